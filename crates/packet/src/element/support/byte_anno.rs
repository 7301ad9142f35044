//! Annotations of one byte that elements name by `ANNO`: the color, the lowest byte of the aggregate, or one by its number;
//! those of two bytes, and numbers of four.
//!
//! Source: Click's annotations, 48 bytes of a packet, numbers 0 to 47; `AnnotationInfo` names more. They lie at the end of
//! [`ANNOTATION_BYTES`], before which are the annotations with names.

use crate::frame::{AGGREGATE_AT, ANNOTATION_BYTES, Batch, NUMBERED_AT, Packet};
use crate::graph::Setup;
use crate::language::{Arg, ConfigError, annotations};

const _: () = assert!(ANNOTATION_BYTES - NUMBERED_AT == annotations::BYTES);

/// Number of the color.
const PAINT: usize = 20;
/// Number of the aggregate, the lowest byte of it.
const AGGREGATE: usize = 24;

/// Where the annotation of `N` bytes without a name is that an argument gives by the number of its first byte; `None` where
/// there is none.
pub(crate) fn numbered<const N: usize>(arg: &Arg<'_>) -> Option<usize> {
    let number = annotations::first_byte(arg, N)?;
    number.checked_add(NUMBERED_AT).filter(|at| *at <= ANNOTATION_BYTES - N)
}

/// An annotation of two bytes without a name, the higher one first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WordAnno(usize);

impl WordAnno {
    /// The one that argument `name` names, by the number of its first byte.
    ///
    /// # Errors
    /// There is no such annotation.
    pub(crate) fn read(
        setup: &mut Setup<'_>,
        arg: &Arg<'_>,
        name: &str,
    ) -> Result<Self, ConfigError> {
        match numbered::<2>(arg) {
            Some(at) => Ok(Self(at)),
            None => {
                Err(setup.args.refuse(arg, &format!("{name}: 0 to 46 are there for two bytes")))
            }
        }
    }

    /// That of packet `i`.
    #[cfg(feature = "click")]
    pub(crate) fn get(self, batch: &Batch, i: usize) -> u16 {
        let bytes = batch.annotations(i).and_then(|bytes| bytes.get(self.0..)?.first_chunk());
        bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes))
    }

    /// Gives it to a packet; one that leaves no room in its frame has none.
    pub(crate) fn set_packet(self, packet: &mut Packet, value: u16) {
        if let Some(bytes) = packet.annotations_mut() {
            bytes[self.0..self.0 + 2].copy_from_slice(&value.to_be_bytes());
        }
    }
}

/// An annotation of four bytes, a number whose lowest byte is the first.
#[cfg(feature = "click")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LongAnno(usize);

#[cfg(feature = "click")]
impl LongAnno {
    /// Number of the packet in its trace.
    pub(crate) const PACKET_NUMBER: Self = Self(NUMBERED_AT + 32);

    /// The one that an argument names, or gives by the number of its first byte.
    ///
    /// # Errors
    /// There is no such annotation.
    pub(crate) fn read(setup: &mut Setup<'_>, arg: &Arg<'_>) -> Result<Self, ConfigError> {
        match annotations::first_byte(arg, 4) {
            Some(AGGREGATE) => Ok(Self(AGGREGATE_AT)),
            Some(number) if number <= annotations::BYTES - 4 => Ok(Self(NUMBERED_AT + number)),
            _ => {
                let words = "ANNO: PACKET_NUMBER, SEQUENCE_NUMBER, AGGREGATE and 0 to 44 are there";
                Err(setup.args.refuse(arg, words))
            }
        }
    }

    /// That of packet `i`.
    pub(crate) fn get(self, batch: &Batch, i: usize) -> u32 {
        let bytes = batch.annotations(i).and_then(|bytes| bytes.get(self.0..)?.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }
}

/// An annotation of one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ByteAnno {
    /// The color.
    Paint,
    /// A byte of the aggregate, from the lowest one on.
    Aggregate(usize),
    /// One without a name.
    Numbered(usize),
}

impl ByteAnno {
    /// The one that an argument names; the color without it.
    ///
    /// # Errors
    /// There is no such annotation.
    pub(crate) fn read(setup: &mut Setup<'_>, arg: Option<&Arg<'_>>) -> Result<Self, ConfigError> {
        let Some(arg) = arg else { return Ok(Self::Paint) };
        if arg.raw() == "AGGREGATE" {
            return Ok(Self::Aggregate(0));
        }
        match annotations::first_byte(arg, 1) {
            Some(number) if number < annotations::BYTES => Ok(Self::of(number)),
            _ => Err(setup.args.refuse(arg, "ANNO: PAINT, AGGREGATE and 0 to 47 are there")),
        }
    }

    /// The one of a number.
    pub(crate) fn of(number: usize) -> Self {
        match number {
            PAINT => Self::Paint,
            _ if (AGGREGATE..AGGREGATE + 4).contains(&number) => {
                Self::Aggregate(number - AGGREGATE)
            }
            _ => Self::Numbered(number),
        }
    }

    /// Its number among Click's.
    #[cfg(feature = "click")]
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Paint => PAINT,
            Self::Aggregate(byte) => AGGREGATE + byte,
            Self::Numbered(number) => number,
        }
    }

    fn at(self) -> usize {
        match self {
            Self::Numbered(number) => NUMBERED_AT + number,
            Self::Aggregate(byte) => AGGREGATE_AT + byte,
            Self::Paint => AGGREGATE_AT,
        }
    }

    /// That of packet `i`.
    pub(crate) fn get(self, batch: &Batch, i: usize) -> u8 {
        match self {
            Self::Paint => batch.meta()[i].paint,
            _ => batch.annotations(i).map_or(0, |bytes| bytes[self.at()]),
        }
    }

    /// Gives it to packet `i`; a packet that leaves no room in its frame has none.
    pub(crate) fn set(self, batch: &mut Batch, i: usize, value: u8) {
        match self {
            Self::Paint => batch.meta_mut()[i].paint = value,
            _ => {
                if let Some(bytes) = batch.annotations_mut(i) {
                    bytes[self.at()] = value;
                }
            }
        }
    }
}
