//! Checksums of 4 bytes at the end of packets: `SetCRC32` appends one, `CheckCRC32` drops packets whose checksum is wrong
//! and removes it from the others.
//!
//! Source: Click's elements of these names: the polynomial of Ethernet (IEEE 802.3), each byte from its highest bit on, from
//! ones and not inverted, the bytes in the order of the host. It is not the checksum that an interface appends.

use super::each::{class, each};
use crate::frame::DropReason;
use crate::graph::ElementClass;

const BYTES: usize = 4;

/// Remainders by the highest byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u32;
    while byte < 256 {
        let mut rest = byte << 24;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 << 31 == 0 { rest << 1 } else { rest << 1 ^ 0x04c1_1db7 };
            bit += 1;
        }
        table[byte as usize] = rest;
        byte += 1;
    }
    table
};

fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |rest, byte| {
        let [highest, ..] = rest.to_be_bytes();
        rest << 8 ^ TABLE[usize::from(highest ^ byte)]
    })
}

pub(crate) const SET: ElementClass =
    class("SetCRC32", "appends a checksum of 4 bytes to packets", |setup| {
        setup.args.finish()?;
        each(|batch, i| {
            let (sum, end) = (crc(batch.bytes(i)), batch.frame_len(i));
            if !batch.lengthen(i, BYTES) {
                return batch.discard(i, DropReason::NoBuffer);
            }
            batch.bytes_mut(i)[end..].copy_from_slice(&sum.to_ne_bytes());
        })
    });

pub(crate) const CHECK: ElementClass =
    class("CheckCRC32", "checks a checksum of 4 bytes and cuts it off", |setup| {
        setup.args.finish()?;
        each(|batch, i| {
            let Some((rest, sum)) = batch.bytes(i).split_last_chunk::<BYTES>() else {
                return batch.discard(i, DropReason::TooShort);
            };
            let (end, right) = (rest.len(), crc(rest) == u32::from_ne_bytes(*sum));
            match right {
                true => batch.truncate(i, end),
                false => batch.discard(i, DropReason::BadChecksum),
            }
        })
    });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::testing::{Rig, World, run};

    #[test]
    fn sums_are_appended_and_cut_off() {
        // The check value of CRC-32/MPEG-2.
        assert_eq!(crc(b"123456789"), 0x0376_e6e7);
        let sums = run(&SET, "", 0, &[b"123456789", b""]);
        assert_eq!(sums.bytes(0)[9..], 0x0376_e6e7_u32.to_ne_bytes());
        let mut wrong = sums.bytes(0).to_vec();
        wrong[0] ^= 1;
        let checked = run(&CHECK, "", 0, &[sums.bytes(0), &wrong, b"123", sums.bytes(1)]);
        assert_eq!((checked.bytes(0), checked.frame_len(3)), (&b"123456789"[..], 0));
        assert_eq!(checked.decision(1), Decision::Drop(DropReason::BadChecksum));
        assert_eq!(checked.decision(2), Decision::Drop(DropReason::TooShort));
        let mut rig =
            Rig::new(&World::new(), "FromDevice(a) -> SetCRC32 -> CheckCRC32 -> ToDevice(b)");
        assert_eq!(rig.receive("a", &[&[7; 60]])[0].1, [7; 60]);
    }
}
