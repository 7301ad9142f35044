//! Names of lookup algorithms on the command line.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;

/// Word that leaves the choice to the registry, as the daemon does.
pub const AUTO: &str = "auto";
/// Word that means every algorithm.
pub const ALL: &str = "all";

/// Names of the registry, each once, behind `word`, which means several of them.
#[must_use]
pub fn names(word: &'static str) -> Names {
    names_beside(&[word])
}

/// Names of the registry, each once, behind several such words.
#[must_use]
pub fn names_beside(words: &[&'static str]) -> Names {
    let mut names = words.to_vec();
    let v4 = fingerpost_lpm::v4().map(|row| row.name);
    for name in v4.chain(fingerpost_lpm::v6().map(|row| row.name)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Names(PossibleValuesParser::new(names))
}

/// Parser of an algorithm's name, which also knows those that this program was built without.
#[derive(Clone)]
pub struct Names(PossibleValuesParser);

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        match value.to_str().and_then(left_out) {
            Some(words) => Err(clap::Error::raw(ErrorKind::InvalidValue, words + "\n")),
            None => self.0.parse_ref(command, arg, value),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// Parser of [`AUTO`] or one of these names, those of one family.
pub fn names_of(names: impl IntoIterator<Item = &'static str>) -> PossibleValuesParser {
    PossibleValuesParser::new(std::iter::once(AUTO).chain(names))
}

/// Message about an algorithm that this program was built without; `None` for any other name.
#[must_use]
pub fn left_out(name: &str) -> Option<String> {
    let feature = fingerpost_lpm::registry::needs(name)?;
    Some(format!("{name} is in programs built with `--features {feature}`, and not in this one"))
}
