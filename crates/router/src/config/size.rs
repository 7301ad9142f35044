//! Sizes in bytes, as people write them: `16M`, `512K`, `1G`, or a number.

use std::fmt;

use serde::Deserialize;

/// A size in bytes. K, M and G are powers of 1,024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub(crate) struct Size(pub(crate) usize);

/// Its form in a file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a size is needed: \"16M\", \"512K\", or a number of bytes")]
enum Written {
    Number(u64),
    Words(String),
}

const UNITS: [(char, usize); 3] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

impl TryFrom<Written> for Size {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let text = match written {
            Written::Number(bytes) => bytes.to_string(),
            Written::Words(text) => text,
        };
        let unit = UNITS.iter().find_map(|&(c, bytes)| Some((text.strip_suffix(c)?, bytes)));
        let (digits, unit) = unit.unwrap_or((&text, 1));
        let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
        let words = || format!("`{text}` is no size: \"16M\", \"512K\", or a number of bytes");
        bytes.map(Self).ok_or_else(words)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |unit: &&(char, usize)| self.0 > 0 && self.0.is_multiple_of(unit.1);
        match UNITS.iter().find(whole) {
            Some((c, bytes)) => write!(f, "{}{c}", self.0 / bytes),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        let size = |text: &str| Size::try_from(Written::Words(text.into()));
        for (text, bytes) in [("16M", 16 << 20), ("512K", 512 << 10), ("1G", 1 << 30), ("17", 17)] {
            assert_eq!(size(text), Ok(Size(bytes)));
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!((size("0"), Size(0).to_string()), (Ok(Size(0)), "0".to_owned()));
        for text in ["", "M", "-1", "16 M", "1.5M", "16MB", "99999999999G"] {
            assert!(size(text).unwrap_err().starts_with(&format!("`{text}` is no size")), "{text}");
        }
    }
}
