//! Checks an IPv4 packet before it may be forwarded (RFC 1812 5.2.2, 5.3.4, 5.3.7).
//!
//! In this order: length, version, header length, total length, checksum; padding is cut off; then
//! addresses that no router forwards, the link broadcast rule, and TTL. The TTL is tested before the
//! lookup, other than RFC 1812 5.2.1.2 and Linux have it: cheaper under attack, and traceroute works
//! toward addresses without a route. Packets to the host itself pass whatever their TTL: the lookup
//! separates them.
//!
//! Packets of our own making have no business here; should one come, what only strangers can do
//! wrong is not held against it.
//!
//! Cost: one line of the frame, a table of 256 bytes for the first octets, and one read of a filter
//! for each address.

use crate::element::support::own_addrs::OwnAddrs;
use crate::element::support::sift::sift;
use crate::frame::wire::checksum::Sum;
use crate::frame::wire::ip4::{FRAGMENT_OFFSET, sum_is_valid};
use crate::frame::wire::{ETHER_BYTES, IP4_BYTES, Ip4};
use crate::frame::{BATCH, Batch, Cause, DropReason, FLAG_GENERATED, FLAG_LINK_MULTICAST, Meta};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IP4Input", "1/3", "h/h", "x/x").outputs(&["forward", "options", "error"]),
    summary: "checks IPv4 headers and addresses, and the TTL",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| Ip4Input { own: OwnAddrs::v4(), special: Vec::with_capacity(BATCH) }))
    },
};

const OPTIONS: u16 = 1;
const ERROR: u16 = 2;

struct Ip4Input {
    own: OwnAddrs,
    /// Packets of the batch that are to be looked at more closely.
    special: Vec<usize>,
}

/// Kind of an address by its first octet.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Octet {
    /// The only one without a bit.
    Unicast,
    /// 0/8, 127/8, 240/4: neither source nor destination.
    Martian,
    /// 169/8, of which 169.254/16 is link-local (RFC 3927).
    MaybeLinkLocal,
    /// 224/4.
    Multicast,
}

static OCTETS: [Octet; 256] = {
    let mut table = [Octet::Unicast; 256];
    table[0] = Octet::Martian;
    table[127] = Octet::Martian;
    table[169] = Octet::MaybeLinkLocal;
    let mut i = 224;
    while i < 256 {
        table[i] = if i < 240 { Octet::Multicast } else { Octet::Martian };
        i += 1;
    }
    table
};

#[inline]
fn octet(addr: u32) -> Octet {
    OCTETS[(addr >> 24) as usize]
}

fn is_link_local(addr: u32) -> bool {
    addr >> 16 == 0xa9fe
}

/// What became of a packet.
enum Verdict {
    Forward,
    Options,
    Expired,
    Drop(DropReason),
}

impl Element for Ip4Input {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.own.follow(&cx.forwarding.ports);
        let Self { own, special } = self;
        sift(batch, special, |frame, at| plain(own, frame, at));
        while let Some(i) = self.special.pop() {
            self.check(batch, i);
        }
    }
}

/// Where a packet behind an Ethernet header ends that is to be forwarded for certain: nothing about it is special.
/// All conditions are taken together, since nearly every packet meets them. Whatever does not is checked one by one.
#[inline(always)]
fn plain(own: &OwnAddrs, frame: &[u8], at: usize) -> Option<usize> {
    let head: &[u8; ETHER_BYTES + IP4_BYTES] = frame.first_chunk()?;
    let ip = Ip4::at(head, ETHER_BYTES)?;
    let end = ETHER_BYTES + ip.total_len();
    let (src, dst) = (ip.src(), ip.dst());
    // Bits that none of them has, gathered: fewer comparisons.
    let odd = u64::from(octet(src) as u8 | octet(dst) as u8)
        | own.bit_of_v4(src)
        | own.bit_of_v4(dst)
        | (at ^ ETHER_BYTES) as u64;
    let plain = (odd == 0)
        & ip.is_plain()
        & (ip.total_len() >= IP4_BYTES)
        & (end <= frame.len())
        & sum_is_valid(ip.raw_sum())
        & (ip.ttl() > 1);
    plain.then_some(end)
}

impl Ip4Input {
    #[cold]
    fn check(&self, batch: &mut Batch, i: usize) {
        let meta = batch.meta()[i];
        let at = usize::from(meta.network);
        match check_header(batch.bytes(i), at, true) {
            Err(reason) => batch.discard(i, reason),
            Ok(ip) => {
                let total = at + ip.total_len();
                let verdict = self.check_packet(ip, &meta);
                batch.truncate(i, total);
                match verdict {
                    Verdict::Forward => {}
                    Verdict::Options => batch.output(i, OPTIONS),
                    Verdict::Expired => {
                        batch.meta_mut()[i].note = Cause::TtlExpired.note();
                        batch.output(i, ERROR);
                    }
                    Verdict::Drop(reason) => batch.discard(i, reason),
                }
            }
        }
    }
}

/// RFC 1812 5.2.2, one after the other; the checksum only where requested.
#[inline]
pub(crate) fn check_header(frame: &[u8], at: usize, checksum: bool) -> Result<Ip4<'_>, DropReason> {
    let ip = Ip4::at(frame, at).ok_or(DropReason::TooShort)?;
    let received = frame.len() - at;
    if ip.version() != 4 {
        return Err(DropReason::BadVersion);
    }
    let header_len = ip.header_len();
    if header_len < IP4_BYTES || header_len > received {
        return Err(DropReason::BadHeaderLength);
    }
    let total_len = ip.total_len();
    if total_len < header_len || total_len > received {
        return Err(DropReason::BadLength);
    }
    let valid = if !checksum {
        true
    } else if header_len == IP4_BYTES {
        sum_is_valid(ip.raw_sum())
    } else {
        Sum::ZERO.bytes(&frame[at..at + header_len]).finish() == 0
    };
    if !valid {
        return Err(DropReason::BadChecksum);
    }
    // The end of a fragment must lie in a packet of at most 65,535 bytes.
    let offset = usize::from(ip.fragment() & FRAGMENT_OFFSET) * 8;
    if offset != 0 && offset + total_len > usize::from(u16::MAX) {
        return Err(DropReason::BadLength);
    }
    Ok(ip)
}

impl Ip4Input {
    /// Addresses and TTL.
    #[inline]
    fn check_packet(&self, ip: Ip4<'_>, meta: &Meta) -> Verdict {
        let (src, dst) = (ip.src(), ip.dst());
        if octet(src) != Octet::Unicast
            && (octet(src) != Octet::MaybeLinkLocal || is_link_local(src))
        {
            return Verdict::Drop(DropReason::MartianSource);
        }
        match octet(dst) {
            Octet::Unicast => {}
            Octet::MaybeLinkLocal if !is_link_local(dst) => {}
            Octet::Multicast => return Verdict::Drop(DropReason::Multicast),
            _ => return Verdict::Drop(DropReason::MartianDestination),
        }
        if meta.flags & (FLAG_LINK_MULTICAST | FLAG_GENERATED) == FLAG_LINK_MULTICAST {
            return Verdict::Drop(DropReason::LinkBroadcast);
        }
        if (self.own.may_be_v4(src) || self.own.may_be_v4(dst))
            && let Some(reason) = self.check_own(src, dst, meta)
        {
            return Verdict::Drop(reason);
        }
        if ip.ttl() <= 1 && !self.own.is_own_v4(dst) {
            return Verdict::Expired;
        }
        if ip.header_len() > IP4_BYTES {
            return Verdict::Options;
        }
        Verdict::Forward
    }

    /// Addresses that concern the host itself.
    #[cold]
    fn check_own(&self, src: u32, dst: u32, meta: &Meta) -> Option<DropReason> {
        if self.own.is_own_v4_at(src, meta.port) && meta.flags & FLAG_GENERATED == 0 {
            return Some(DropReason::OwnSource);
        }
        if self.own.is_broadcast(src) {
            return Some(DropReason::MartianSource);
        }
        self.own.is_broadcast(dst).then_some(DropReason::DirectedBroadcast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Decision, Note};
    use crate::testing::{Bench, World, fill_ip4_checksum, frame_v4};

    const SRC: &str = "10.0.0.9";
    const DST: &str = "192.0.2.1";

    fn run(frame: &[u8], flags: u8) -> (Decision, Note, usize) {
        let mut bench = Bench::new(&World::new());
        let mut batch = crate::testing::batch(&bench.pool, 0, [frame]);
        batch.meta_mut()[0].network = 14;
        batch.meta_mut()[0].flags = flags;
        crate::testing::element(&CLASS, "").process(0, &mut batch, &mut bench.context());
        (batch.decision(0), batch.meta()[0].note, batch.frame_len(0))
    }

    fn good() -> Vec<u8> {
        frame_v4(SRC, DST, 64, 17, &[0; 40])
    }

    /// The good frame with bytes changed and the checksum made right again.
    fn with(change: impl Fn(&mut [u8])) -> Vec<u8> {
        let mut frame = good();
        change(&mut frame[14..]);
        fill_ip4_checksum(&mut frame);
        frame
    }

    fn dropped(frame: &[u8]) -> DropReason {
        match run(frame, 0).0 {
            Decision::Drop(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn header_checks_in_their_order() {
        assert_eq!(run(&good(), 0), (Decision::Output(0), Note::default(), 74));
        assert_eq!(dropped(&good()[..33]), DropReason::TooShort);
        assert_eq!(dropped(&good()[..14]), DropReason::TooShort);
        assert_eq!(dropped(&with(|ip| ip[0] = 0x65)), DropReason::BadVersion);
        assert_eq!(dropped(&with(|ip| ip[0] = 0x44)), DropReason::BadHeaderLength);
        let mut short = with(|ip| ip[0] = 0x4f);
        short.truncate(14 + 59);
        assert_eq!(dropped(&short), DropReason::BadHeaderLength);
        assert_eq!(dropped(&with(|ip| ip[3] = 61)), DropReason::BadLength);
        assert_eq!(dropped(&with(|ip| ip[3] = 19)), DropReason::BadLength);
        assert_eq!(dropped(&with(|ip| [ip[0], ip[3]] = [0x46, 23])), DropReason::BadLength);
        let mut frame = good();
        frame[14 + 10] ^= 1;
        assert_eq!(dropped(&frame), DropReason::BadChecksum);
        let mut frame = with(|ip| ip[0] = 0x46);
        frame[14 + 23] ^= 1;
        assert_eq!(dropped(&frame), DropReason::BadChecksum, "options are summed too");
    }

    #[test]
    fn padding_is_cut_off() {
        let mut frame = frame_v4(SRC, DST, 64, 17, &[1, 2, 3]);
        frame.resize(60, 0);
        assert_eq!(run(&frame, 0), (Decision::Output(0), Note::default(), 14 + 23));
    }

    #[test]
    fn a_fragment_past_the_longest_packet() {
        let at = |units: u16, len: usize| {
            let mut frame = frame_v4(SRC, DST, 64, 17, &vec![0; len]);
            frame[14 + 6..14 + 8].copy_from_slice(&units.to_be_bytes());
            fill_ip4_checksum(&mut frame);
            frame
        };
        assert_eq!(dropped(&at(0x1fff, 8)), DropReason::BadLength);
        assert_eq!(run(&at(0x1ffc, 8), 0).0, Decision::Output(0));
        assert_eq!(dropped(&at(0x1ffd, 4)), DropReason::BadLength, "the header counts");
    }

    #[test]
    fn addresses_that_are_not_forwarded() {
        let src = |a| dropped(&frame_v4(a, DST, 64, 17, &[]));
        for addr in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "10.0.1.0",
            "10.0.1.255",
        ] {
            assert_eq!(src(addr), DropReason::MartianSource, "{addr}");
        }
        assert_eq!(src("10.0.2.1"), DropReason::OwnSource);
        let dst = |a| dropped(&frame_v4(SRC, a, 64, 17, &[]));
        for addr in ["0.0.0.0", "127.0.0.1", "169.254.9.9", "240.0.0.1", "255.255.255.255"] {
            assert_eq!(dst(addr), DropReason::MartianDestination, "{addr}");
        }
        assert_eq!(dst("224.0.0.5"), DropReason::Multicast);
        assert_eq!(dst("239.1.1.1"), DropReason::Multicast);
        assert_eq!(dst("10.0.1.255"), DropReason::DirectedBroadcast);
        assert_eq!(dst("10.0.1.0"), DropReason::DirectedBroadcast);
        for (src, dst) in [
            ("10.0.0.9", "10.0.1.7"),
            ("192.168.1.1", "172.16.0.1"),
            ("100.64.0.1", "198.18.0.1"),
            ("169.253.255.255", "169.255.0.0"),
            ("1.0.0.0", "223.255.255.255"),
            ("126.255.255.255", "128.0.0.0"),
            (SRC, "10.0.0.1"),
        ] {
            assert_eq!(run(&frame_v4(src, dst, 64, 17, &[]), 0).0, Decision::Output(0), "{src}");
        }
    }

    #[test]
    fn the_link_broadcast_rule() {
        let flags = FLAG_LINK_MULTICAST;
        assert_eq!(run(&good(), flags).0, Decision::Drop(DropReason::LinkBroadcast));
        assert_eq!(run(&good(), flags | FLAG_GENERATED).0, Decision::Output(0));
    }

    #[test]
    fn ttl_before_options_and_not_for_ourselves() {
        let expired = (Decision::Output(ERROR), Cause::TtlExpired.note());
        for ttl in [0, 1] {
            let (decision, note, _) = run(&frame_v4(SRC, DST, ttl, 17, &[]), 0);
            assert_eq!((decision, note), expired, "{ttl}");
            let own = run(&frame_v4(SRC, "10.0.1.1", ttl, 17, &[]), 0);
            assert_eq!(own.0, Decision::Output(0), "TTL is not checked for local delivery");
        }
        assert_eq!(run(&frame_v4(SRC, DST, 2, 17, &[]), 0).0, Decision::Output(0));
        assert_eq!(run(&with(|ip| ip[0] = 0x46), 0).0, Decision::Output(OPTIONS));
        let (decision, note, _) = run(&with(|ip| [ip[0], ip[8]] = [0x46, 1]), 0);
        assert_eq!((decision, note), expired);
    }
}
