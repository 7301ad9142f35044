//! `TCPReflector` answers TCP segments as a server would that takes every connection, and knows none of them: it makes
//! each segment its own answer.
//!
//! Source: Click's `TCPReflector`; RFC 9293. A SYN becomes a SYN|ACK with a random sequence number. Data, and a FIN,
//! are acknowledged with the number that they acknowledge themselves; the payload stays, and so goes back. Other
//! segments are dropped. Packets begin with their IPv4 header. Differs: bytes behind the length of that header are no
//! payload.

use super::checksums::fill_checksums;
use super::each::{class, each};
use super::random::Random;
use super::seen::{Seen, long, word};
use crate::frame::wire::IP4_BYTES;
use crate::frame::wire::ip4::MORE_FRAGMENTS;
use crate::frame::wire::protocol::TCP;
use crate::frame::wire::tcp::{ACK, FIN, PSH, RST, SYN};
use crate::frame::{DropReason, Hop};
use crate::graph::ElementClass;

pub(crate) const CLASS: ElementClass =
    class("TCPReflector", "answers TCP segments as a server without state", |setup| {
        setup.args.finish()?;
        let mut random = Random::of(setup);
        each(move |batch, i| {
            if answer(batch.bytes_mut(i), &mut random).is_some() {
                batch.meta_mut()[i].hop = Hop::NONE;
            } else {
                batch.discard(i, DropReason::Consumed);
            }
        })
    });

/// TTL of answers, in Click.
const TTL: u8 = 250;
/// Window of answers, in Click.
const WINDOW: u16 = 60 * 1024;

/// Makes a packet the answer to it, where there is one.
fn answer(frame: &mut [u8], random: &mut Random) -> Option<()> {
    let seen = Seen::bare(frame, 0);
    let (total, tcp) = (seen.ip()?.len(), seen.of(TCP)?);
    let header = total - tcp.len();
    // The answer to a first fragment would be one.
    let is_cut = word(frame, 6)? & MORE_FRAGMENTS != 0;
    if header < IP4_BYTES || tcp.len() < 20 || is_cut {
        return None;
    }
    let (seq, ack) = (long(tcp, 4)?, long(tcp, 8)?);
    let data = tcp.len().saturating_sub(usize::from(tcp[12] >> 4) * 4);
    let data = u32::try_from(data).ok()?;
    let flags = tcp[13] & !PSH;
    let ends = flags & FIN != 0;
    let (flags, seq, ack) = match flags {
        SYN => {
            let [a, b, c, d, ..] = random.number().to_le_bytes();
            (SYN | ACK, u32::from_le_bytes([a, b, c, d]), seq.wrapping_add(1))
        }
        _ if flags & (SYN | RST) != 0 || data == 0 && !ends => return None,
        _ => (ACK | flags & FIN, ack, seq.wrapping_add(data).wrapping_add(u32::from(ends))),
    };
    let ip = frame.get_mut(..total)?;
    ip[8] = TTL;
    ip[12..20].rotate_left(4);
    let tcp = &mut ip[header..];
    tcp[..4].rotate_left(2);
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&ack.to_be_bytes());
    tcp[13] = flags;
    tcp[14..16].copy_from_slice(&WINDOW.to_be_bytes());
    fill_checksums(ip);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v4};

    const TEXT: &str = "FromDevice(a) -> Strip(14) -> TCPReflector -> CheckIPHeader -> CheckTCPHeader -> ToDevice(b)";

    /// A segment with the numbers 7 and 9, from port 1 to port 80.
    fn segment(flags: u8, data: &[u8]) -> Vec<u8> {
        let mut tcp = vec![0, 1, 0, 80, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0];
        tcp.extend(data);
        frame_v4("10.0.0.1", "192.0.2.7", 64, TCP, &tcp)
    }

    #[test]
    fn segments_are_answered() {
        let mut rig = Rig::new(&World::new(), TEXT);
        let mut answer = |flags, data: &[u8]| rig.receive("a", &[&segment(flags, data)]).pop();
        let syn = answer(SYN, &[]).unwrap().1;
        assert_eq!((syn[8], &syn[12..24]), (250, &[192, 0, 2, 7, 10, 0, 0, 1, 0, 80, 0, 1][..]));
        assert_eq!((long(&syn, 28), syn[33], &syn[34..36]), (Some(8), 18, &[0xf0, 0][..]));
        let next = answer(SYN | PSH, &[]).unwrap().1;
        assert_ne!(long(&syn, 24), long(&next, 24), "numbers are random");
        for (flags, data, to) in [
            (ACK, "data", Some((ACK, 11))),
            (ACK | PSH, "x", Some((ACK, 8))),
            (ACK | FIN, "", Some((ACK | FIN, 8))),
            (FIN, "data", Some((ACK | FIN, 12))),
            (ACK, "", None),
            (RST, "data", None),
            (SYN | ACK, "", None),
        ] {
            let data = data.as_bytes();
            let sent = answer(flags, data).map(|(_, sent)| sent);
            assert_eq!(
                sent.as_deref().map(|sent| (sent[33], long(sent, 28).unwrap())),
                to,
                "{flags} {data:?}"
            );
            if let Some(sent) = sent {
                assert_eq!((long(&sent, 24), &sent[40..]), (Some(9), data), "{flags}");
            }
        }
    }

    #[test]
    fn what_is_no_segment_is_dropped() {
        let mut rig = Rig::new(&World::new(), TEXT);
        let mut padded = segment(ACK, b"");
        padded.extend([0; 6]);
        let mut short = segment(SYN, b"");
        short.truncate(50);
        let mut bad = segment(SYN, b"");
        bad[14] = 0x44;
        let mut cut = segment(SYN, b"");
        cut[20] |= 0x20;
        let udp = frame_v4("10.0.0.1", "192.0.2.7", 64, 17, &[2; 30]);
        let frames: [&[u8]; 5] = [&padded, &short, &bad, &cut, &udp];
        assert!(rig.receive("a", &frames).is_empty());
        assert_eq!(rig.dropped(DropReason::Consumed), 5);
    }

    #[test]
    fn a_client_is_served() {
        let text = "w :: WebGen(10.0.0.0/8, 192.0.2.1, 1) -> c :: Counter -> TCPReflector -> d :: Counter -> w";
        let mut rig = Rig::new(&World::new(), text);
        (0..9).for_each(|_| drop(rig.poll()));
        assert_eq!(
            [rig.read("c.count"), rig.read("d.count")],
            ["3", "2"],
            "a request to connect, one for a page, and what acknowledges the answer"
        );
    }
}
