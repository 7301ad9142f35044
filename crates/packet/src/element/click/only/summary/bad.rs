//! What is wrong with the headers of a packet, as a summary reports it in a line `!bad`.
//!
//! Source: `BAD_PACKETS` and `CAREFUL_TRUNC` of Click's `ToIPSummaryDump`.

use crate::element::click::only::seen::{Seen, word};
use crate::frame::wire::protocol::{TCP, UDP};

/// In words, the first that is wrong; bytes that are missing without a note count where `careful`.
pub(super) fn words(seen: &Seen<'_>, careful: bool) -> Option<String> {
    let ip = seen.frame.get(seen.network..).unwrap_or_default();
    let (Some(&first), Some(total)) = (ip.first(), word(ip, 2).map(usize::from)) else {
        return Some("no IP header".to_owned());
    };
    let (version, header) = (first >> 4, usize::from(first & 15));
    match () {
        () if version != 4 => return Some(format!("IP version {version}")),
        () if header < 5 => return Some(format!("IP header length {header}")),
        () if total < header * 4 => return Some(format!("IP length {total}")),
        () => {}
    }
    let missing = total.saturating_sub(ip.len() + seen.annotations.extra_length as usize);
    if careful && missing > 0 {
        return Some(format!("truncated IP missing {missing}"));
    }
    match seen.transport() {
        Some((TCP, tcp)) => {
            let header = tcp.get(12)? >> 4;
            (header < 5).then(|| format!("TCP header length {header}"))
        }
        Some((UDP, udp)) => {
            let length = word(udp, 4)?;
            (length < 8).then(|| format!("UDP length {length}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_has_words() {
        let packet = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 9, TCP, 0, 0, 1, 0, 0, 1, 2, 0, 0, 2];
            ip.extend([0; 20]);
            ip[32] = 0x50;
            change(&mut ip);
            [true, false].map(|careful| words(&Seen::bare(&ip, 0), careful).unwrap_or_default())
        };
        assert_eq!(packet(&|_| ()), ["", ""]);
        for (at, byte, want) in [
            (0, 0x65, "IP version 6"),
            (0, 0x43, "IP header length 3"),
            (3, 19, "IP length 19"),
            (32, 0x40, "TCP header length 4"),
        ] {
            assert_eq!(packet(&|ip| ip[at] = byte), [want, want]);
        }
        assert_eq!(packet(&|ip| ip.truncate(37)), ["truncated IP missing 3", ""]);
        assert_eq!(packet(&|ip| ip.clear()), ["no IP header", "no IP header"]);
        let udp = packet(&|ip| (ip[9], ip[25]) = (UDP, 7));
        assert_eq!(udp[0], "UDP length 7");
    }
}
