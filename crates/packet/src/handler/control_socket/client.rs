//! Who is at the other end of a session: what it may do and have opened, and the memory that all of them share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::language::open_policy::OpenPolicy;

/// What a client may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// Call read handlers.
    Read,
    /// Call write handlers, too.
    Write,
}

/// The client of a session. By default one that may do everything and shares nothing.
#[derive(Clone, Debug)]
pub struct Client {
    /// What it may do from the start.
    pub access: Access,
    /// What its writes may have opened.
    pub policy: OpenPolicy,
    /// What gives it write access when it sends this first.
    pub token: Option<Token>,
    /// Where its texts lie.
    pub memory: Memory,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            access: Access::Write,
            policy: OpenPolicy::default(),
            token: None,
            memory: Memory::default(),
        }
    }
}

/// A secret that gives write access.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

impl Token {
    /// Bytes of a token at least: what nobody guesses at the rate at which wrong ones are answered.
    pub const LEAST_BYTES: usize = 16;

    /// A token of printable characters without white space, which a line can hold.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn new(text: &str) -> Result<Self, String> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token is one word of printable ASCII characters".into());
        }
        if text.len() < Self::LEAST_BYTES {
            let least = Self::LEAST_BYTES;
            return Err(format!("a token has {least} characters at least: `openssl rand -hex 16`"));
        }
        Ok(Self(text.as_bytes().into()))
    }

    /// Whether this is it. How long that takes is independent of where they differ.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        let padded = given.iter().chain(std::iter::repeat(&0));
        let differ = self.0.iter().zip(padded).fold(0, |differ, (a, b)| differ | (a ^ b));
        std::hint::black_box(differ) == 0 && given.len() == self.0.len()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Bytes that the texts of all sessions together may have. Clones share them.
#[derive(Clone, Debug)]
pub struct Memory(Arc<AtomicUsize>);

impl Memory {
    /// So many bytes.
    pub fn of(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Nothing yet.
    pub(super) fn hold(&self) -> Held {
        Held { memory: self.clone(), bytes: 0 }
    }
}

impl Default for Memory {
    /// Key without a bound.
    fn default() -> Self {
        Self::of(usize::MAX)
    }
}

/// What a session holds of the memory; it is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    memory: Memory,
    bytes: usize,
}

impl Held {
    /// Takes more of it; `false`, and nothing, where so much is not left.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        // Relaxed, here and below: a count that no other memory depends on.
        let less = |left: usize| left.checked_sub(bytes);
        let taken = self.memory.0.fetch_update(Relaxed, Relaxed, less).is_ok();
        self.bytes += if taken { bytes } else { 0 };
        taken
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.0.fetch_add(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_compared_whole() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdeg", "0123456789abcdef0", "0"] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert!(!token.is(b"0123456789abcde\0"));
        assert_eq!(format!("{token:?}"), "Token(..)");
        for (text, words) in [
            ("", "16 characters at least"),
            ("0123456789abcde", "16 characters at least"),
            ("0123456789 abcdef", "one word"),
            ("0123456789abcdef\n", "one word"),
        ] {
            assert!(Token::new(text).unwrap_err().contains(words), "{text}");
        }
    }

    #[test]
    fn what_is_held_is_given_back() {
        let memory = Memory::of(10);
        let (mut one, mut two) = (memory.hold(), memory.hold());
        assert!(one.grow(6) && !two.grow(5) && two.grow(4) && !one.grow(1));
        drop(one);
        assert!(two.grow(6) && !two.grow(1));
        drop(two);
        assert!(memory.hold().grow(10));
    }
}
