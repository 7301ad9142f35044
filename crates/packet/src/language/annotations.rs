//! Names of annotations: `AnnotationInfo(MARK 4 1, CHECK_OVERLAP MARK PAINT)` lets `MARK` stand for byte 4.
//!
//! Source: Click's `AnnotationInfo`. Differs: of the names that are there without it, only `PAINT`, `AGGREGATE`,
//! `PACKET_NUMBER` and `SEQUENCE_NUMBER` are.

use std::cell::RefCell;

use super::scoped::{self, Scoped};
use super::{Arg, Configuration, Value};

/// The class that declares them.
const CLASS_NAME: &str = "AnnotationInfo";
/// What begins an argument that names some that may not overlap.
const OVERLAP: &str = "CHECK_OVERLAP";
/// Bytes of annotations that a packet has.
pub(crate) const BYTES: usize = 48;
/// Those with names that are there in any case.
const KNOWN: [(&str, Place); 4] = [
    ("PAINT", Place { at: 20, bytes: 1 }),
    ("AGGREGATE", Place { at: 24, bytes: 4 }),
    ("PACKET_NUMBER", Place { at: 32, bytes: 4 }),
    ("SEQUENCE_NUMBER", Place { at: 36, bytes: 4 }),
];

/// First byte of an annotation, and how many it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

thread_local! {
    static NAMES: RefCell<Scoped<Place>> = RefCell::default();
}

/// Makes the names of a configuration known.
pub(crate) fn declare(configuration: &Configuration) {
    NAMES.with_borrow_mut(Scoped::clear);
    scoped::declare(configuration, CLASS_NAME, |arg| match overlapping(arg) {
        Some(_) => Ok(()),
        None => add(arg),
    });
}

/// The names of an argument for annotations that must not overlap.
fn overlapping<'a>(arg: &Arg<'a>) -> Option<impl Iterator<Item = Arg<'a>> + use<'a>> {
    let mut words = arg.words();
    (words.next()?.raw() == OVERLAP).then_some(words)
}

/// Adds one name with its place.
fn add(arg: &Arg<'_>) -> Result<(), String> {
    let words: Vec<_> = arg.words().collect();
    let (name, at, bytes) = match &words[..] {
        [name, at] => (name, at, Ok(1)),
        [name, at, bytes] => (name, at, bytes.value()),
        _ => return Err("expected a name, its first byte and its size".into()),
    };
    let (name, place): (String, _) = (name.value()?, Place { at: at.value()?, bytes: bytes? });
    if place.bytes == 0 || place.at >= BYTES || place.bytes > BYTES - place.at {
        return Err(format!("`{name}`: there are bytes 0 to {}", BYTES - 1));
    }
    if let Some((_, is)) = KNOWN.iter().find(|(known, is)| *known == name && *is != place) {
        let bytes = if is.bytes == 1 { "byte" } else { "bytes" };
        let words = format!("`{name}` is there already, at byte {}, {} {bytes}", is.at, is.bytes);
        return Err(words);
    }
    NAMES.with_borrow_mut(|names| *names.own(&name) = place);
    Ok(())
}

/// Reads an argument of the element, and compares what is not to overlap.
///
/// # Errors
/// Why there is no such annotation, or which overlap.
#[cfg(feature = "click")]
pub(crate) fn check(arg: &Arg<'_>) -> Result<(), String> {
    let Some(words) = overlapping(arg) else { return add(arg) };
    let mut places: Vec<(String, Place)> = Vec::new();
    for word in words {
        let name: String = word.value()?;
        let place = named(&name).ok_or_else(|| format!("no annotation is called `{name}`"))?;
        let meets =
            |other: &Place| other.at < place.at + place.bytes && place.at < other.at + other.bytes;
        if let Some((other, _)) = places.iter().find(|(_, other)| meets(other)) {
            return Err(format!("annotations `{other}` and `{name}` overlap"));
        }
        places.push((name, place));
    }
    Ok(())
}

/// The annotation that a name stands for.
pub(crate) fn named(name: &str) -> Option<Place> {
    let known = KNOWN.iter().find(|(known, _)| *known == name).map(|(_, place)| *place);
    known.or_else(|| NAMES.with_borrow(|names| names.find(name)))
}

/// First byte of the annotation of `bytes` bytes that an argument names, or gives by its number.
pub(crate) fn first_byte(arg: &Arg<'_>, bytes: usize) -> Option<usize> {
    match named(arg.raw()) {
        Some(place) => (place.bytes == bytes).then_some(place.at),
        None => usize::read(arg.raw()).ok(),
    }
}
