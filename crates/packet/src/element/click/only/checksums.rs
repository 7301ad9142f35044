//! Checksums of an IPv4 packet, computed anew.

use crate::frame::wire::checksum::{checksum, pseudo_v4};
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP, UDP};

/// Fills in the checksums of an IPv4 packet and of its transport header. Bytes without a whole header stay as they are.
pub(crate) fn fill_checksums(ip: &mut [u8]) {
    let header = ip.first().map_or(0, |byte| usize::from(byte & 15) * 4);
    if header < 20 || ip.len() < header {
        return;
    }
    let first = ip[6] & 0x1f == 0 && ip[7] == 0;
    ip[10..12].fill(0);
    let sum = checksum(&ip[..header]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let (at, whole) = match ip[9] {
        TCP => (16, 20),
        UDP => (6, 8),
        PROTOCOL_ICMP => (2, 8),
        _ => return,
    };
    if !first || ip.len() < header + whole {
        return;
    }
    let (protocol, length) = (ip[9], ip.len() - header);
    let ends = |at: usize| [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]];
    let (src, dst) = (ends(12), ends(16));
    ip[header + at..header + at + 2].fill(0);
    let sum = match protocol {
        PROTOCOL_ICMP => checksum(&ip[header..]),
        _ => {
            let pseudo = pseudo_v4(src, dst, protocol, u16::try_from(length).unwrap_or(u16::MAX));
            let sum = pseudo.bytes(&ip[header..]).finish();
            // For UDP 0 means that there is none.
            if protocol == UDP && sum == 0 { u16::MAX } else { sum }
        }
    };
    ip[header + at..header + at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_without_a_whole_header_stay() {
        for bytes in [&[][..], &[0x45], &[0x45; 19], &[0x44; 20], &[0x46; 23]] {
            let mut filled = bytes.to_vec();
            fill_checksums(&mut filled);
            assert_eq!(filled, bytes);
        }
        let mut whole = [0x45; 20];
        fill_checksums(&mut whole);
        assert_eq!(checksum(&whole), 0);
    }
}
