//! Checks an IPv6 packet before it may be forwarded (RFC 8200, RFC 4291, RFC 4007).
//!
//! Length, version and payload length; padding is cut off; then addresses that no router forwards
//! and the hop limit. Extension headers are not looked at (RFC 8200 4, RFC 7045), but a payload
//! length of 0 with hop-by-hop options, which a jumbogram has, is not supported. A link-local source
//! is left to the next hop, which knows whether the packet would leave its link.
//!
//! Cost: one line of the frame, one read of a filter for each address.

use crate::element::support::own_addrs::OwnAddrs;
use crate::element::support::sift::sift;
use crate::frame::wire::icmp::NEXT_HOP_BY_HOP;
use crate::frame::wire::ip6::{is_link_local, is_multicast};
use crate::frame::wire::{ETHER_BYTES, IP6_BYTES, Ip6};
use crate::frame::{BATCH, Batch, Cause, DropReason, FLAG_GENERATED, FLAG_LINK_MULTICAST, Meta};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IP6Input", "1/2", "h/h", "x/x").outputs(&["forward", "error"]),
    summary: "checks IPv6 headers and addresses, and the hop limit",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| Ip6Input { own: OwnAddrs::v6(), special: Vec::with_capacity(BATCH) }))
    },
};

const ERROR: u16 = 1;

struct Ip6Input {
    own: OwnAddrs,
    /// Packets of the batch that are to be looked at more closely.
    special: Vec<usize>,
}

enum Verdict {
    Forward,
    Expired,
    Drop(DropReason),
}

impl Element for Ip6Input {
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
    let head: &[u8; ETHER_BYTES + IP6_BYTES] = frame.first_chunk()?;
    let ip = Ip6::at(head, ETHER_BYTES)?;
    let (src, dst) = (ip.src(), ip.dst());
    let end = ETHER_BYTES + IP6_BYTES + ip.payload_len();
    let plain = (at == ETHER_BYTES)
        & (ip.version() == 6)
        & (ip.payload_len() != 0)
        & (end <= frame.len())
        & is_ordinary(src)
        & is_ordinary(dst)
        & !own.may_be_v6(src)
        & (ip.hop_limit() > 1);
    plain.then_some(end)
}

/// Neither of `::/8`, where the martians are, nor of `fe00::/7`: link-local and multicast.
#[inline]
fn is_ordinary(addr: u128) -> bool {
    let first = (addr >> 120) as u8;
    first.wrapping_add(2) > 2
}

impl Ip6Input {
    #[cold]
    fn check(&self, batch: &mut Batch, i: usize) {
        let meta = batch.meta()[i];
        let at = usize::from(meta.network);
        match check_header(batch.bytes(i), at) {
            Err(reason) => batch.discard(i, reason),
            Ok(ip) => {
                let total = at + IP6_BYTES + ip.payload_len();
                let verdict = self.check_packet(ip, &meta);
                batch.truncate(i, total);
                match verdict {
                    Verdict::Forward => {}
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

/// Checks of RFC 8200 on the fixed header.
#[inline]
pub(crate) fn check_header(frame: &[u8], at: usize) -> Result<Ip6<'_>, DropReason> {
    let ip = Ip6::at(frame, at).ok_or(DropReason::TooShort)?;
    if ip.version() != 6 {
        return Err(DropReason::BadVersion);
    }
    let payload_len = ip.payload_len();
    if at + IP6_BYTES + payload_len > frame.len() {
        return Err(DropReason::BadLength);
    }
    // Options do not fit into nothing: a jumbogram (RFC 2675), or nonsense.
    if payload_len == 0 && ip.next_header() == NEXT_HOP_BY_HOP {
        return Err(DropReason::BadLength);
    }
    Ok(ip)
}

/// `::/96` (unspecified, loopback, IPv4-compatible) and `::ffff:0:0/96` (IPv4-mapped).
#[inline]
pub(crate) fn is_martian(addr: u128) -> bool {
    let high = addr >> 32;
    high == 0 || high == 0xffff
}

impl Ip6Input {
    #[inline]
    fn check_packet(&self, ip: Ip6<'_>, meta: &Meta) -> Verdict {
        let (src, dst) = (ip.src(), ip.dst());
        if is_martian(src) || is_multicast(src) {
            return Verdict::Drop(DropReason::MartianSource);
        }
        if is_martian(dst) {
            return Verdict::Drop(DropReason::MartianDestination);
        }
        if is_multicast(dst) {
            return Verdict::Drop(DropReason::Multicast);
        }
        let generated = meta.flags & FLAG_GENERATED != 0;
        if meta.flags & FLAG_LINK_MULTICAST != 0 && !generated {
            return Verdict::Drop(DropReason::LinkBroadcast);
        }
        if self.own.may_be_v6(src) && self.own.is_own_v6_at(src, meta.port) && !generated {
            return Verdict::Drop(DropReason::OwnSource);
        }
        if is_link_local(dst) {
            let own = self.own.is_own_v6(dst);
            return Verdict::Drop(if own { DropReason::Local } else { DropReason::Scope });
        }
        if ip.hop_limit() <= 1 && !self.own.is_own_v6(dst) {
            return Verdict::Expired;
        }
        Verdict::Forward
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Decision, Note};
    use crate::testing::{Bench, World, frame_v6};

    const SRC: &str = "2001:db8::9";
    const DST: &str = "2001:db8:ff::1";

    fn run(frame: &[u8], flags: u8) -> (Decision, Note, usize) {
        let mut bench = Bench::new(&World::new());
        let mut batch = crate::testing::batch(&bench.pool, 0, [frame]);
        batch.meta_mut()[0].network = 14;
        batch.meta_mut()[0].flags = flags;
        crate::testing::element(&CLASS, "").process(0, &mut batch, &mut bench.context());
        (batch.decision(0), batch.meta()[0].note, batch.frame_len(0))
    }

    fn dropped(frame: &[u8]) -> DropReason {
        match run(frame, 0).0 {
            Decision::Drop(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn header_checks() {
        let good = frame_v6(SRC, DST, 64, 17, &[0; 8]);
        assert_eq!(run(&good, 0), (Decision::Output(0), Note::default(), 62));
        assert_eq!(dropped(&good[..53]), DropReason::TooShort);
        assert_eq!(dropped(&good[..61]), DropReason::BadLength);
        let mut frame = good.clone();
        frame[14] = 0x45;
        assert_eq!(dropped(&frame), DropReason::BadVersion);
        let mut frame = good.clone();
        frame.extend([0; 9]);
        assert_eq!(
            run(&frame, 0),
            (Decision::Output(0), Note::default(), 62),
            "padding is cut off"
        );
        assert_eq!(dropped(&frame_v6(SRC, DST, 64, 0, &[])), DropReason::BadLength);
        // Extension headers, known or not, whole or not, are no business of ours.
        for next in [0, 43, 44, 51, 60, 59, 253] {
            let frame = frame_v6(SRC, DST, 64, next, &[next, 255, 0, 0, 0, 0, 0, 0]);
            assert_eq!(run(&frame, 0).0, Decision::Output(0), "{next}");
        }
        assert_eq!(run(&frame_v6(SRC, DST, 64, 59, &[]), 0).0, Decision::Output(0));
    }

    #[test]
    fn addresses_that_are_not_forwarded() {
        let src = |a| dropped(&frame_v6(a, DST, 64, 17, &[]));
        for addr in ["::", "::1", "::10.0.0.1", "::ffff:10.0.0.1", "ff02::1", "ff0e::1"] {
            assert_eq!(src(addr), DropReason::MartianSource, "{addr}");
        }
        assert_eq!(src("2001:db8:1::1"), DropReason::OwnSource);
        assert_eq!(src("fe80::1:1"), DropReason::OwnSource);
        let dst = |a| dropped(&frame_v6(SRC, a, 64, 17, &[]));
        for addr in ["::", "::1", "::10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(dst(addr), DropReason::MartianDestination, "{addr}");
        }
        for addr in ["ff01::1", "ff02::1", "ff05::2", "ff0e::1"] {
            assert_eq!(dst(addr), DropReason::Multicast, "{addr}");
        }
        assert_eq!(dst("fe80::9"), DropReason::Scope);
        assert_eq!(dst("febf::9"), DropReason::Scope);
        assert_eq!(dst("fe80::1:1"), DropReason::Local);
        for (src, dst) in
            [("fe80::9", DST), ("fec0::9", "fd00::1"), (SRC, "::1:0:0:1"), (SRC, "2001:db8:1::1")]
        {
            assert_eq!(run(&frame_v6(src, dst, 64, 17, &[]), 0).0, Decision::Output(0), "{src}");
        }
        assert_eq!(
            run(&frame_v6(SRC, DST, 64, 17, &[]), FLAG_LINK_MULTICAST).0,
            Decision::Drop(DropReason::LinkBroadcast)
        );
    }

    #[test]
    fn the_hop_limit_is_not_for_ourselves() {
        for hops in [0, 1] {
            let (decision, note, _) = run(&frame_v6(SRC, DST, hops, 17, &[]), 0);
            assert_eq!((decision, note), (Decision::Output(ERROR), Cause::TtlExpired.note()));
            let own = run(&frame_v6(SRC, "2001:db8:1::1", hops, 17, &[]), 0);
            assert_eq!(own.0, Decision::Output(0));
        }
        assert_eq!(run(&frame_v6(SRC, DST, 2, 17, &[]), 0).0, Decision::Output(0));
    }
}
