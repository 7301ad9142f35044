//! What packets are wanted, as text: the pattern languages of Click, read, compiled, and run on packets.
//!
//! `pattern.rs` is the language of `Classifier`, bytes at offsets. Both are compiled by `program.rs`.

mod pattern;
mod program;

pub use pattern::{Pattern, Patterns};

/// What is wrong with a pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}, at character {}", .at + 1)]
pub struct FilterError {
    /// Bytes of the text before the place.
    pub at: usize,
    /// What was expected there.
    pub message: String,
}

impl FilterError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// Where `part`, which lies in `text`, begins.
fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}
