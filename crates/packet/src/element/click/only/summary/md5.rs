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

/// Characters of 6 bits each.
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@";

/// The digest of which a text is the digits or the characters; zeros where it is neither.
pub(super) fn read(text: &str) -> [u8; 16] {
    if let Some(bits) = Some(text).filter(|text| text.len() == 32) {
        return u128::from_str_radix(bits, 16).unwrap_or(0).to_be_bytes();
    }
    let value = |letter: u8| LETTERS.iter().position(|known| *known == letter);
    let bits = text.bytes().take(22).enumerate().map(|(n, letter)| {
        let six = value(letter).unwrap_or(0) as u128;
        if n < 21 { six << (122 - 6 * n) } else { six >> 4 }
    });
    bits.fold(0, |all, some| all | some).to_be_bytes()
}

fn of_digest(digest: [u8; 16]) -> String {
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
        let digest = 0x9001_5098_3cd2_4fb0_d696_3f7d_28e1_7f72_u128.to_be_bytes();
        assert_eq!([hex(b"abc"), letters(b"abc")].map(|text| read(&text)), [digest; 2]);
        assert_eq!(
            (of_digest([0; 16]), of_digest([255; 16])),
            ("a".repeat(22), format!("{}W", "@".repeat(21)))
        );
    }
}
