//! Answers echo requests: a request becomes the reply, and goes back to where it came from.
//!
//! Source: Click's `ICMPPingResponder`; RFC 792, RFC 1122 3.2.2.6. As in Click the addresses change places and the TTL
//! stays, unless `TTL` gives one. Differs: ICMPv6 as well (RFC 4443, 4.2). What is
//! no request, not whole, or not from one host to another goes to output 1, where it is used, or is dropped: an
//! answer to a broadcast would make of one packet many. A reply has the time at which it was made. A checksum that was
//! wrong stays wrong.

use std::sync::Arc;

use super::delay::stamp;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::checksum::{checksum, update};
use crate::frame::wire::icmp::{PROTOCOL_ICMP, PROTOCOL_ICMPV6};
use crate::frame::wire::ip6::is_multicast;
use crate::frame::wire::{IP4_BYTES, IP6_BYTES, Ip4, Ip4Mut, Ip6, Ip6Mut};
use crate::frame::{Batch, DropReason, FLAG_LINK_MULTICAST, Hop};
use crate::graph::{Context, Element, ElementClass, Exit, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("ICMPPingResponder", "1/1-2", "a/ah", "x/x")
        .outputs(&["replies", "others"]),
    summary: "answers echo requests",
    configure: |setup| {
        let ttl = setup.args.keyword::<u8>("TTL");
        setup.args.finish()?;
        let ttl = ttl?;
        let exit = setup.exit(1, DropReason::Unmatched);
        let counts = setup.keep::<PerWorker<Count>>();
        let shown = counts.clone();
        let made = move |instance| PingResponder { exit, ttl, replies: counts.add(instance) };
        Ok(Made::new(made).counter("count", &shown))
    },
};

/// Bytes of an echo message without data.
const ECHO_BYTES: usize = 8;

const V4_REQUEST: u8 = 8;
const V4_REPLY: u8 = 0;
const V6_REQUEST: u8 = 128;
const V6_REPLY: u8 = 129;

struct PingResponder {
    exit: Exit,
    /// TTL of replies, where it is not that of the request.
    ttl: Option<u8>,
    replies: Arc<Count>,
}

/// Makes a reply of a request; whether it was one.
fn answer(packet: &mut [u8], ttl: Option<u8>) -> bool {
    match packet.first().map_or(0, |first| first >> 4) {
        4 => answer_v4(packet, ttl),
        6 => answer_v6(packet, ttl),
        _ => false,
    }
}

fn answer_v4(packet: &mut [u8], ttl: Option<u8>) -> bool {
    let Some(ip) = Ip4::at(packet, 0) else { return false };
    let (src, dst, len) = (ip.src(), ip.dst(), ip.header_len());
    let station = |addr: u32| addr >> 24 != 0 && addr < 0xe000_0000;
    let echo = ip.protocol() == PROTOCOL_ICMP && !ip.is_fragment() && len >= IP4_BYTES;
    if !echo || !station(src) || !station(dst) || !turn(packet, len, V4_REQUEST, V4_REPLY) {
        return false;
    }
    let Some(mut ip) = Ip4Mut::at(packet, 0) else { return false };
    ip.set_src(dst);
    ip.set_dst(src);
    let Some(ttl) = ttl else { return true };
    ip.set_ttl(ttl);
    ip.set_checksum(0);
    let sum = checksum(&packet[..len]);
    if let Some(mut ip) = Ip4Mut::at(packet, 0) {
        ip.set_checksum(sum);
    }
    true
}

fn answer_v6(packet: &mut [u8], ttl: Option<u8>) -> bool {
    let Some(ip) = Ip6::at(packet, 0) else { return false };
    let (src, dst) = (ip.src(), ip.dst());
    let station = |addr: u128| addr > 1 && !is_multicast(addr);
    if ip.next_header() != PROTOCOL_ICMPV6 || !station(src) || !station(dst) {
        return false;
    }
    // The addresses under the checksum only change places.
    if !turn(packet, IP6_BYTES, V6_REQUEST, V6_REPLY) {
        return false;
    }
    if let Some(mut ip) = Ip6Mut::at(packet, 0) {
        ip.set_src(dst);
        ip.set_dst(src);
        if let Some(ttl) = ttl {
            ip.set_hop_limit(ttl);
        }
    }
    true
}

/// Turns the message at an offset round, if it is of that type; whether it was.
fn turn(packet: &mut [u8], at: usize, from: u8, to: u8) -> bool {
    let message = packet.get_mut(at..).filter(|message| message.len() >= ECHO_BYTES);
    let Some([kind, 0, a, b, ..]) = message else { return false };
    if *kind != from {
        return false;
    }
    *kind = to;
    let word = |kind: u8| u16::from(kind) << 8;
    [*a, *b] = update(u16::from_be_bytes([*a, *b]), word(from), word(to)).to_be_bytes();
    true
}

impl Element for PingResponder {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            let meta = batch.meta()[i];
            let network = usize::from(meta.network);
            let packet = batch.bytes_mut(i).get_mut(network..).unwrap_or_default();
            if meta.flags & FLAG_LINK_MULTICAST != 0 || !answer(packet, self.ttl) {
                self.exit.take(batch, i);
                continue;
            }
            self.replies.add(1);
            // The way back is its own.
            let meta = &mut batch.meta_mut()[i];
            (meta.hop, meta.paint) = (Hop::NONE, 0);
            stamp(batch, i, cx.now_ns, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Stage;
    use crate::frame::Note;
    use crate::testing::element;
    use fingerpost_lpm::NextHopId;

    const PING: &str = "eth lan.host > lan\nip4 10.1.0.2 > 10.1.0.1 ttl 9 id 7\nicmp 8/0\nbytes 20";
    const PING6: &str =
        "eth lan.host > lan\nip6 2001:db8:1::2 > 2001:db8:1::1 hop 9\nicmp6 128/0\nbytes 20";

    #[test]
    fn a_request_becomes_its_reply() {
        let stage = &mut Stage::default();
        let reply4 = "eth lan.host > lan\nip4 10.1.0.1 > 10.1.0.2 ttl 64 id 7\nicmp 0/0\nbytes 20";
        let reply6 = PING6
            .replace("2001:db8:1::2 > 2001:db8:1::1 hop 9", "2001:db8:1::1 > 2001:db8:1::2 hop 64")
            .replace("128/0", "129/0");
        for (request, reply) in [(PING, reply4), (PING6, &reply6)] {
            let frame = stage.frame(request);
            let mut packet = stage.packet("lan", &frame, Note::default());
            (packet.meta.hop, packet.meta.paint) = (Hop::of_gateway(NextHopId(3)), 3);
            let left = stage.run(&mut *element(&CLASS, "TTL 64"), vec![packet]).remove(0);
            assert_eq!(left.frame, stage.frame(reply), "{reply}");
            assert_eq!((left.output, left.meta.hop, left.meta.paint), (0, Hop::NONE, 0));
        }
    }

    #[test]
    fn the_ttl_stays_unless_one_is_given() {
        let stage = &mut Stage::default();
        let turned = "eth lan.host > lan\nip4 10.1.0.1 > 10.1.0.2 ttl 9 id 7\nicmp 0/0\nbytes 20";
        let frame = stage.frame(PING);
        let packet = stage.packet("lan", &frame, Note::default());
        let left = stage.run(&mut *element(&CLASS, ""), vec![packet]).remove(0);
        assert_eq!(left.frame, stage.frame(turned));
    }

    #[test]
    #[cfg(feature = "click")]
    fn replies_have_their_own_time() {
        use crate::testing::{Rig, World, frame_v4};
        crate::element::click::only::console::collect();
        let text = "FromDevice(a) -> MarkIPHeader(14) -> SetTimestamp(1) -> p :: ICMPPingResponder
            -> ToIPSummaryDump(-, HEADER false, FIELDS timestamp); p [1] -> ToIPSummaryDump(-, HEADER false, FIELDS timestamp)";
        let mut rig = Rig::new(&World::new(), text);
        rig.bench.now_ns = 5;
        let ping = frame_v4("10.0.0.1", "10.0.0.2", 64, 1, &[8, 0, 0, 0, 0, 5, 0, 1]);
        let reply = frame_v4("10.0.0.1", "10.0.0.2", 64, 1, &[0, 0, 0, 0, 0, 5, 0, 1]);
        rig.receive("a", &[&ping]);
        rig.receive("a", &[&reply]);
        let out = crate::element::click::only::console::collected().out;
        let lines: Vec<_> = out.lines().collect();
        assert!(lines[0].len() > "1000000000.".len() && lines[1] == "1.000000", "{out}");
    }

    #[test]
    fn others_are_left_as_they_are() {
        let stage = &mut Stage::default();
        let frames = [
            PING.replace("8/0", "0/0"),
            PING.replace("8/0", "8/1"),
            PING.replace("id 7", "id 7 mf"),
            PING.replace("id 7", "id 7 off 8"),
            PING.replace("10.1.0.1", "224.0.0.1"),
            PING.replace("10.1.0.1", "255.255.255.255"),
            PING.replace("10.1.0.2", "0.0.0.0"),
            PING.replace("icmp 8/0", "udp 2048 > 0"),
            PING6.replace("128/0", "129/0"),
            PING6.replace("2001:db8:1::1", "ff02::1"),
            PING6.replace("2001:db8:1::2", "::"),
        ]
        .map(|text| stage.frame(&text));
        let whole = stage.frame(PING);
        let short = [&whole[..20], &whole[..41], &[][..], &[0x40; 20]];
        for frame in frames.iter().map(Vec::as_slice).chain(short) {
            let packet = stage.packet("lan", frame, Note::default());
            let left = stage.run(&mut *element(&CLASS, ""), vec![packet]).remove(0);
            assert_eq!((left.output, &left.frame[..]), (1, frame));
        }
        // In a frame for all stations.
        let mut packet = stage.packet("lan", &whole, Note::default());
        packet.meta.flags = FLAG_LINK_MULTICAST;
        assert_eq!(stage.run(&mut *element(&CLASS, ""), vec![packet])[0].output, 1);
    }
}
