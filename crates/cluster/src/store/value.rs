//! Values of the store: JSON with the version of its format, and what is wrong with one that others wrote.

use serde::de::DeserializeOwned;

/// Why bytes of the store are no value of a kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Written by another version of the program.
    #[error("it has {field} {found}, this program reads {field} {reads}")]
    Version {
        /// Field of the version.
        field: &'static str,
        /// Version that the value has.
        found: u64,
        /// Version that this program reads.
        reads: u32,
    },
    /// No value of the kind, or one with fields that cannot be.
    #[error("{0}")]
    Malformed(String),
}

/// The value in so many bytes at most, if `field` has the version that this program reads.
pub(super) fn parse<T: DeserializeOwned>(
    bytes: &[u8],
    most_bytes: usize,
    (field, reads): (&'static str, u32),
) -> Result<T, ValueError> {
    let malformed = |error: serde_json::Error| ValueError::Malformed(error.to_string());
    if bytes.len() > most_bytes {
        let what = format!("{} bytes, at most {most_bytes}", bytes.len());
        return Err(ValueError::Malformed(what));
    }
    // Another version may have other fields.
    let any: serde_json::Value = serde_json::from_slice(bytes).map_err(malformed)?;
    match any.get(field).and_then(serde_json::Value::as_u64) {
        Some(found) if found != u64::from(reads) => {
            Err(ValueError::Version { field, found, reads })
        }
        // What is missing or no number has its place in the error of the kind.
        _ => serde_json::from_slice(bytes).map_err(malformed),
    }
}
