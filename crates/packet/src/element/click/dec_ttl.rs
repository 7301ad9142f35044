//! Counts the hops of packets that are forwarded: `DecIPTTL` and `DecIP6HLIM`.
//!
//! Source: Click's elements of these names; RFC 1812, 5.3.1, RFC 8200, 3. A packet that has no hop left goes,
//! unchanged, to output 1 with [`Cause::TtlExpired`] as its note, or is dropped. The checksum is updated.

use std::sync::Arc;

use crate::element::support::setting::Setting;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::ip6::is_multicast;
use crate::frame::wire::{Ip4Mut, Ip6Mut};
use crate::frame::{Batch, Cause, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, Made, Setup};
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS4: ElementClass = ElementClass {
    spec: spec("DecIPTTL"),
    summary: "counts the TTL of IPv4 packets down",
    configure: configure::<4>,
};

pub(crate) const CLASS6: ElementClass = ElementClass {
    spec: spec("DecIP6HLIM"),
    summary: "counts the hop limit of IPv6 packets down",
    configure: configure::<6>,
};

const fn spec(name: &'static str) -> ClassSpec {
    let output_names = &["out", "expired"];
    ClassSpec::new(name, "1/1-2", "a/ah", "x/x").outputs(output_names)
}

fn configure<const FAMILY: u8>(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let active = setup.args.keyword("ACTIVE");
    let multicast = setup.args.keyword("MULTICAST");
    setup.args.finish()?;
    let active = Setting::<bool>::new(active?.unwrap_or(true));
    let multicast: bool = multicast?.unwrap_or(true);
    let exit = setup.exit(1, DropReason::TtlExpired);
    let drops = setup.keep::<PerWorker<Count>>();
    let (each, counts) = (active.clone(), drops.clone());
    let made = Made::new(move |instance| DecTtl::<FAMILY> {
        active: each.clone(),
        multicast,
        exit,
        drops: counts.add(instance),
    });
    Ok(active.handled(made.counter("drops", &drops), "active"))
}

pub(super) struct DecTtl<const FAMILY: u8> {
    active: Setting<bool>,
    /// Packets to groups are counted down as well.
    multicast: bool,
    exit: Exit,
    drops: Arc<Count>,
}

/// What became of a packet.
enum Step {
    Done,
    Expired,
    NoHeader,
}

impl<const FAMILY: u8> DecTtl<FAMILY> {
    /// One that counts for itself.
    pub(super) fn new(exit: Exit) -> Self {
        Self { active: Setting::new(true), multicast: true, exit, drops: Arc::default() }
    }

    /// Decrements the TTL of packet `i`; returns whether it continues.
    #[inline]
    pub(super) fn pass(&self, batch: &mut Batch, i: usize) -> bool {
        let network = usize::from(batch.meta()[i].network);
        match self.step(batch.bytes_mut(i), network) {
            Step::Done => return true,
            Step::Expired => {
                self.drops.add(1);
                batch.meta_mut()[i].note = Cause::TtlExpired.note();
                self.exit.take(batch, i);
            }
            Step::NoHeader => batch.discard(i, DropReason::TooShort),
        }
        false
    }

    #[inline]
    fn step(&self, frame: &mut [u8], network: usize) -> Step {
        if FAMILY == 4 {
            let Some(mut ip) = Ip4Mut::at(frame, network) else { return Step::NoHeader };
            if !self.multicast && ip.view().dst() >> 28 == 0xe {
                return Step::Done;
            }
            if ip.view().ttl() <= 1 {
                return Step::Expired;
            }
            ip.decrement_ttl();
        } else {
            let Some(mut ip) = Ip6Mut::at(frame, network) else { return Step::NoHeader };
            if !self.multicast && is_multicast(ip.view().dst()) {
                return Step::Done;
            }
            if ip.view().hop_limit() <= 1 {
                return Step::Expired;
            }
            ip.decrement_hop_limit();
        }
        Step::Done
    }
}

impl<const FAMILY: u8> Element for DecTtl<FAMILY> {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if !self.active.get() {
            return;
        }
        for i in 0..batch.len() {
            self.pass(batch, i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::frame::wire::Ip4;
    use crate::frame::wire::ip4::sum_is_valid;
    use crate::testing::{Rig, World, frame_v4, frame_v6, refused, run};

    #[test]
    fn hops_are_counted_down_to_the_last() {
        let frames = [64, 2, 1, 0].map(|ttl| frame_v4("10.0.0.1", "192.0.2.1", ttl, 17, &[]));
        let batch = run(&CLASS4, "", 14, &frames.each_ref().map(|f| &f[..]));
        for (i, ttl) in [(0, 63), (1, 1)] {
            let ip = Ip4::at(batch.bytes(i), 14).unwrap();
            assert_eq!((ip.ttl(), sum_is_valid(ip.raw_sum())), (ttl, true));
            assert_eq!(batch.decision(i), Decision::Output(0));
        }
        for i in [2, 3] {
            assert_eq!(batch.decision(i), Decision::Output(1));
            assert_eq!(batch.meta()[i].note, Cause::TtlExpired.note());
            assert_eq!(batch.bytes(i), frames[i], "as it came");
        }
        let frames = [64, 2, 1, 0].map(|hops| frame_v6("2001:db8::1", "ff05::1", hops, 17, &[]));
        let batch = run(&CLASS6, "", 14, &frames.each_ref().map(|f| &f[..]));
        assert_eq!([0, 1, 2, 3].map(|i| batch.bytes(i)[21]), [63, 1, 1, 0]);
        assert_eq!(batch.decision(1), Decision::Output(0));
        assert_eq!(batch.decision(2), Decision::Output(1));
    }

    #[test]
    fn settings_and_handlers() {
        let to_all = frame_v4("10.0.0.1", "224.0.0.5", 1, 17, &[]);
        let batch = run(&CLASS4, "MULTICAST false", 14, &[&to_all, &to_all[..30]]);
        assert_eq!((batch.decision(0), batch.bytes(0)), (Decision::Output(0), &to_all[..]));
        assert_eq!(batch.decision(1), Decision::Drop(DropReason::TooShort));
        let batch = run(&CLASS6, "MULTICAST no", 0, &[&[0x60; 39]]);
        assert_eq!(batch.decision(0), Decision::Drop(DropReason::TooShort));
        let text = "FromDevice(a) -> Strip(14) -> t :: DecIPTTL -> ToDevice(b)";
        let text = text.replace("Strip(14)", "Strip(14) -> CheckIPHeader");
        let mut rig = Rig::new(&World::new(), &text);
        let last = frame_v4("10.0.0.1", "192.0.2.1", 1, 17, &[]);
        assert!(rig.receive("a", &[&last]).is_empty());
        assert_eq!((rig.read("t.drops"), rig.dropped(DropReason::TtlExpired)), ("1".into(), 1));
        rig.write("t.active", "false");
        assert_eq!(rig.receive("a", &[&last])[0].1, last[14..]);
        assert!(refused(&CLASS4, "ACTIVE 2").contains("neither `true` nor `false`"));
    }
}
