//! Why a table cannot be built, changed or opened.

use core::fmt;

/// Why a table was not built or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateError {
    /// Cannot be done in place; build again from the routes. Not a fault.
    Rebuild,
    /// The shape of this table exceeds what the structure can hold; do not try again.
    Limit {
        /// Which limit.
        what: &'static str,
        /// What fits.
        max: u64,
        /// Requested value.
        got: u64,
    },
    /// Memory could not be had; a smaller structure may still fit.
    Memory {
        /// Name of the region.
        name: &'static str,
        /// Requested size.
        bytes: usize,
    },
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rebuild => f.write_str("cannot be changed in place: build again"),
            Self::Limit { what, max, got } => {
                write!(f, "{what} limit exceeded: need {got}, at most {max}")
            }
            Self::Memory { name, bytes } => write!(f, "no memory for {name}: {bytes} bytes"),
        }
    }
}

impl core::error::Error for UpdateError {}

/// Why saved regions were not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// A region that the layout needs is not there.
    Missing(&'static str),
    /// A region is shorter than what it must hold, or an index leaves it.
    Bounds(&'static str),
    /// Written by another layout.
    Version {
        /// What this program reads.
        want: u64,
        /// What was found.
        got: u64,
    },
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "region {name} is missing"),
            Self::Bounds(name) => write!(f, "region {name} is cut short or damaged"),
            Self::Version { want, got } => write!(f, "layout {got:#x} found, {want:#x} wanted"),
        }
    }
}

impl core::error::Error for FormatError {}
