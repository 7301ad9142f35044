//! MD5 of bytes, as hexadecimal digits and as 22 characters of Click.
//!
//! Source: RFC 1321. It names equal payloads, and protects nothing.

/// Digest of bytes.
pub(super) fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((8 * bytes.len() as u64).to_le_bytes());
    let (blocks, _) = padded.as_chunks::<64>();
    blocks.iter().for_each(|block| add(&mut state, block));
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

/// Bits that a word is rotated by, for each of four steps of four rounds.
const ROTATIONS: [[u32; 4]; 4] =
    [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

fn add(state: &mut [u32; 4], block: &[u8; 64]) {
    let (words, _) = block.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64_usize {
        let (mixed, word) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let sum = a.wrapping_add(mixed).wrapping_add(constant(step)).wrapping_add(words[word % 16]);
        let turned = sum.rotate_left(ROTATIONS[step / 16][step % 4]);
        (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(more);
    }
}

/// `2^32 * |sin(step + 1)|`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the definition of the constants"
)]
fn constant(step: usize) -> u32 {
    (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32
}

/// 32 hexadecimal digits.
pub(super) fn hex(digest: [u8; 16]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 22 characters of 6 bits each, the last of 2.
pub(super) fn letters(digest: [u8; 16]) -> String {
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
            assert_eq!(hex(digest(text.as_bytes())), want);
        }
        assert_eq!(
            (letters([0; 16]), letters([255; 16])),
            ("a".repeat(22), format!("{}W", "@".repeat(21)))
        );
    }
}
