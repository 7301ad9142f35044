//! MD5 digests of payloads as text: hexadecimal digits, or the 22 characters of Click.
//!
//! Source: RFC 1321. It names equal payloads, and protects nothing.

use md5::{Digest as _, Md5};

/// Digest of bytes, in 32 hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Digest of bytes, in 22 characters of 6 bits each, the last of 2.
pub(super) fn letters(bytes: &[u8]) -> String {
    of_digest(Md5::digest(bytes).into())
}

fn of_digest(digest: [u8; 16]) -> String {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@";
    let bits = u128::from_be_bytes(digest);
    let letter = |n: u32| {
        // 126 bits in whole letters, and the last two.
        let six = if n < 21 { bits >> (122 - 6 * n) } else { bits << 4 };
        char::from(LETTERS[usize::try_from(six & 63).expect("6 bits")])
    };
    (0..22).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_rfc() {
        for (text, want) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(hex(text.as_bytes()), want);
        }
        assert_eq!(
            (of_digest([0; 16]), of_digest([255; 16])),
            ("a".repeat(22), format!("{}W", "@".repeat(21)))
        );
    }
}
