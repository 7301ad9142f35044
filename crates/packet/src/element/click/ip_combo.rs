//! `IPOutputCombo(COLOR, IPADDR, MTU)`: the egress steps of Click's router, in one element.
//!
//! Source: Click's element of that name. It is `DropBroadcasts`, `PaintTee`, `IPGWOptions`, `FixIPSrc` and `DecIPTTL`
//! one behind the other, and a look at the length; each is the very code of that element. A packet that is too long
//! is not cut: it leaves by output 4 with [`Cause::TooBig`] as its note. `IPInputCombo` is with
//! [`super::check_ip_header`].

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::dec_ttl::DecTtl;
use super::fix_ip_src;
use crate::element::router::ip4_options::Ip4Options;
use crate::element::support::setting::Setting;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::Ip4;
use crate::frame::{Batch, Cause, DropReason, FLAG_LINK_MULTICAST};
use crate::graph::{Context, Element, ElementClass, Exit, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPOutputCombo", "1/1-5", "h/h", "x/x")
        .outputs(&["out", "redirect", "bad", "expired", "too_big"]),
    summary: "DropBroadcasts, PaintTee, IPGWOptions, FixIPSrc, DecIPTTL in one",
    configure: |setup| {
        let color = setup.args.positional("COLOR");
        let addr = setup.args.positional::<Ipv4Addr>("IPADDR");
        let mtu = setup.args.positional("MTU");
        setup.args.finish()?;
        let color = Setting::<u8>::new(color?);
        let mtu = Setting::<u16>::new(mtu?);
        let addr = addr?.to_bits();
        let redirects = setup.outputs > 1;
        let bad = setup.exit(2, DropReason::BadOption);
        let expired = setup.exit(3, DropReason::TtlExpired);
        let too_big = setup.exit(4, DropReason::TooBig);
        let counts = setup.keep::<PerWorker<Counts>>();
        let (settings, drops) = ((color.clone(), mtu.clone()), counts.clone());
        let made = Made::new(move |instance| {
            let counts = counts.add(instance);
            Combo {
                color: color.clone(),
                redirects,
                options: Ip4Options::speaking([addr].into(), bad),
                addr,
                ttl: DecTtl::new(expired),
                mtu: mtu.clone(),
                too_big,
                counts,
            }
        });
        let made = made.handler(Handler::read("drops", move || {
            drops.sum(|counts| counts.drops.read()).to_string()
        }));
        Ok(settings.1.handled(settings.0.handled(made, "color"), "mtu"))
    },
};

#[derive(Default)]
struct Counts {
    drops: Count,
}

struct Combo {
    color: Setting<u8>,
    /// There is an output for copies.
    redirects: bool,
    options: Ip4Options,
    addr: u32,
    ttl: DecTtl<4>,
    mtu: Setting<u16>,
    too_big: Exit,
    counts: Arc<Counts>,
}

impl Combo {
    /// Whether packet `i` continues to output 0.
    fn passes(&mut self, batch: &mut Batch, i: usize, cx: &mut Context<'_>) -> bool {
        let meta = batch.meta()[i];
        if meta.flags & FLAG_LINK_MULTICAST != 0 {
            batch.discard(i, DropReason::LinkBroadcast);
            return false;
        }
        if self.redirects
            && meta.paint == self.color.get()
            && let Some(copy) = batch.copy(i)
        {
            cx.originate(1, copy);
        }
        if !self.options.pass(batch, i, cx) {
            return false;
        }
        fix_ip_src::fix(batch, i, self.addr);
        if !self.ttl.pass(batch, i) {
            return false;
        }
        let len = Ip4::at(batch.bytes(i), meta.network.into()).map_or(0, |ip| ip.total_len());
        if len > usize::from(self.mtu.get()) {
            batch.meta_mut()[i].note = Cause::TooBig(self.mtu.get()).note();
            self.too_big.take(batch, i);
            return false;
        }
        true
    }
}

impl Element for Combo {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            if !self.passes(batch, i, cx) {
                self.counts.drops.add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, fill_ip4_checksum, frame_v4};

    /// Frames go through the combo and through the elements that it is made of, to the same places.
    #[test]
    fn one_step_does_what_six_do() {
        let input =
            "FromDevice(a) -> Strip(14) -> CheckIPHeader -> p :: PaintSwitch; Idle -> Discard";
        let input = input.replace("p :: PaintSwitch; Idle -> Discard", "Paint(3)");
        let combo = format!(
            "{input} -> c :: IPOutputCombo(3, 10.0.0.1, 576);
             c => ToDevice(out), ToDevice(redirect), ToDevice(bad), ToDevice(expired), ToDevice(big)"
        );
        let steps = format!(
            "{input} -> DropBroadcasts -> p :: PaintTee(3) -> o :: IPGWOptions(10.0.0.1)
                -> FixIPSrc(10.0.0.1) -> t :: DecIPTTL -> f :: IPFragmenter(576) -> ToDevice(out);
             p [1] -> ToDevice(redirect); o [1] -> ToDevice(bad); t [1] -> ToDevice(expired);
             f [1] -> ToDevice(big)"
        );
        let frame = |ttl, len: usize| frame_v4("10.0.0.9", "192.0.2.1", ttl, 17, &vec![7; len]);
        let options = |bytes: [u8; 8]| {
            let mut frame = frame(9, 40);
            frame[14] = 0x47;
            frame[34..42].copy_from_slice(&bytes);
            fill_ip4_checksum(&mut frame);
            frame
        };
        let mut broadcast = frame(64, 4);
        broadcast[0] = 0xff;
        let mut whole = frame(64, 557);
        whole[20] = 0x40;
        fill_ip4_checksum(&mut whole);
        let frames = [
            frame(64, 4),
            frame(2, 556),
            frame(1, 4),
            options([7, 7, 4, 0, 0, 0, 0, 0]),
            options([7, 7, 3, 0, 0, 0, 0, 0]),
            options([131, 7, 4, 0, 0, 0, 0, 0]),
            broadcast,
            whole,
            // Both wrong: the TTL comes first.
            frame(1, 600),
        ];
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let [one, six] = [combo, steps].map(|text| {
            let mut rig = Rig::new(&World::new(), &text);
            let mut sent = rig.receive("a", &frames);
            sent.sort();
            let drops: Vec<_> = DropReason::ALL.iter().map(|&reason| rig.dropped(reason)).collect();
            (sent, drops)
        });
        assert_eq!(one, six);
        let count = |device: &str| one.0.iter().filter(|sent| sent.0 == device).count();
        assert_eq!(
            ["out", "redirect", "bad", "expired", "big"].map(count),
            [3, 8, 1, 2, 1],
            "all but the broadcast could be redirected"
        );
    }

    #[test]
    fn unused_outputs_drop() {
        let text =
            "FromDevice(a) -> Strip(14) -> c :: IPOutputCombo(0, 10.0.0.1, 100) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        let packets = [(64, 80), (64, 81), (1, 0)]
            .map(|(ttl, len)| frame_v4("10.0.0.9", "192.0.2.1", ttl, 17, &vec![0; len]));
        let sent = rig.receive("a", &packets.each_ref().map(|packet| &packet[..]));
        assert_eq!((sent.len(), rig.read("c.drops")), (1, "2".into()));
        let dropped = [DropReason::TooBig, DropReason::TtlExpired].map(|r| rig.dropped(r));
        assert_eq!(dropped, [1, 1]);
        rig.write("c.mtu", "101");
        assert_eq!(rig.receive("a", &[&packets[1]]).len(), 1);
        assert!(rig.receive("a", &[&[0; 24]]).is_empty());
        assert_eq!(rig.dropped(DropReason::BadHeaderLength), 1);
    }
}
