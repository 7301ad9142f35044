//! Marks of packets besides their color: `CheckPaint(COLOR)` passes those of a color, `SetAnnoByte(ANNO, VALUE)` and
//! `SetPacketType(TYPE)` note something, `SetIPECN` and `MarkIPCE` set the two bits of congestion in IPv4 headers.
//!
//! Source: Click's elements of these names; RFC 3168. The annotation is the color (`PAINT`, 20), the aggregate (`AGGREGATE`,
//! its lowest byte) or one by its number. Packet types are `HOST`, and
//! `BROADCAST` or `MULTICAST`, which `DropBroadcasts` looks at; others mean nothing here.

use super::each::{class, counted, each, sorting};
use crate::element::support::byte_anno::ByteAnno;
use crate::element::support::setting::Setting;
use crate::frame::wire::checksum::update;
use crate::frame::wire::{Ip4, Ip4Mut};
use crate::frame::{Batch, DropReason, FLAG_LINK_MULTICAST};
use crate::graph::ElementClass;
use crate::handler::Handler;

pub(crate) const CHECK: ElementClass =
    sorting("CheckPaint", &["out", "others"], "passes packets of a color", |setup| {
        let color = setup.args.positional::<u8>("COLOR");
        let arg = setup.args.optional_arg("ANNO")?;
        let place = ByteAnno::read(setup, arg.as_ref())?;
        setup.args.finish()?;
        let color = Setting::new(color?);
        let shown = color.clone();
        let exit = setup.exit(1, DropReason::Unmatched);
        let made = each(move |batch, i| {
            if place.get(batch, i) != color.get() {
                exit.take(batch, i);
            }
        })?;
        Ok(shown.handled(made, "color"))
    });

pub(crate) const SET: ElementClass = class("SetAnnoByte", "notes a number in packets", |setup| {
    let arg = setup.args.positional_arg("ANNO")?;
    let place = ByteAnno::read(setup, Some(&arg))?;
    let value = setup.args.positional::<u8>("VALUE");
    setup.args.finish()?;
    let value = Setting::new(value?);
    let shown = value.clone();
    let made = each(move |batch, i| place.set(batch, i, value.get()))?;
    let made = made.handler(Handler::read("anno", move || place.number().to_string()));
    Ok(shown.handled(made, "value"))
});

pub(crate) const PACKET_TYPE: ElementClass =
    class("SetPacketType", "notes whom packets are for", |setup| {
        let arg = setup.args.positional_arg("TYPE")?;
        setup.args.finish()?;
        let group = match arg.raw().to_ascii_uppercase().as_str() {
            "BROADCAST" | "MULTICAST" => true,
            "HOST" | "OTHERHOST" | "OUTGOING" | "LOOPBACK" | "FASTROUTE" => false,
            _ => {
                return Err(setup.args.refuse(
                    &arg,
                    "TYPE: HOST, BROADCAST, MULTICAST, OTHERHOST and OUTGOING are possible",
                ));
            }
        };
        each(move |batch, i| {
            let flags = &mut batch.meta_mut()[i].flags;
            *flags =
                if group { *flags | FLAG_LINK_MULTICAST } else { *flags & !FLAG_LINK_MULTICAST };
        })
    });

/// Congestion experienced.
const CE: u8 = 3;

const ECN_WORDS: &str = "ECN: no, ect1 or ECT(1), ect2 or ECT(0), ce or CE, as 0 to 3";

/// The two bits of congestion by their names: `ect2` of Click is ECT(0) of RFC 3168.
fn ecn_of(text: &str) -> Option<u8> {
    Some(match text {
        "no" | "not-ect" | "0" => 0,
        "ect1" | "ECT(1)" | "ecn_capable1" | "1" => 1,
        "ect2" | "ECT(0)" | "ect0" | "ecn_capable2" | "2" => 2,
        "ce" | "CE" | "3" => CE,
        _ => return None,
    })
}

pub(crate) const SET_ECN: ElementClass =
    class("SetIPECN", "sets the bits of congestion of IPv4 packets", |setup| {
        let arg = setup.args.positional_arg("ECN")?;
        setup.args.finish()?;
        let Some(ecn) = ecn_of(arg.raw()) else {
            return Err(setup.args.refuse(&arg, ECN_WORDS));
        };
        let ecn = Setting::<u8>::new(ecn);
        let shown = ecn.clone();
        let made = each(move |batch, i| {
            // A handler may have more.
            if !mark(batch, i, ecn.get().min(CE)) {
                batch.discard(i, DropReason::TooShort);
            }
        })?;
        Ok(shown.handled(made, "ecn"))
    });

pub(crate) const MARK_CE: ElementClass =
    class("MarkIPCE", "marks IPv4 packets as having met congestion", |setup| {
        let force = setup.args.optional("FORCE");
        setup.args.finish()?;
        let force = force?.unwrap_or(false);
        counted(setup, move |batch, i| {
            let network = usize::from(batch.meta()[i].network);
            let class = Ip4::at(batch.bytes(i), network);
            match class.map(Ip4::traffic_class) {
                None => {
                    batch.discard(i, DropReason::TooShort);
                    true
                }
                // Who does not know of congestion marks takes a loss for one.
                Some(class) if class & CE == 0 && !force => {
                    batch.discard(i, DropReason::Discarded);
                    true
                }
                Some(_) => !mark(batch, i, CE),
            }
        })
    });

/// Sets the two bits; whether there is a header.
fn mark(batch: &mut Batch, i: usize, ecn: u8) -> bool {
    let network = usize::from(batch.meta()[i].network);
    let frame = batch.bytes_mut(i);
    let Some(mut header) = Ip4Mut::at(frame, network) else { return false };
    let view = header.view();
    let (before, sum) = (view.traffic_class(), view.checksum());
    let after = before & !CE | ecn;
    header.set_traffic_class(after);
    let sum = update(sum, before.into(), after.into());
    frame[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::frame::wire::checksum::checksum;
    use crate::testing::{Rig, World, frame_v4, refused, run};

    #[test]
    fn marks_are_set_and_checked() {
        let text = "FromDevice(a) -> SetAnnoByte(PAINT, 5) -> c :: CheckPaint(5) -> SetPacketType(BROADCAST) -> d :: Counter -> DropBroadcasts
            -> ToDevice(x); c [1] -> SetAnnoByte(AGGREGATE, 3) -> CheckPaint(3, ANNO AGGREGATE) -> SetPacketType(HOST) -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        assert!(rig.receive("a", &[&[1]]).is_empty());
        assert_eq!(rig.read("d.count"), "1");
        rig.write("c.color", "4");
        assert_eq!(rig.receive("a", &[&[1]])[0].0, "y");
        assert!(refused(&SET, "77, 1").contains("PAINT, AGGREGATE and 0 to 47"));
        let text = "FromDevice(a) -> SetAnnoByte(5, 9) -> SetAnnoByte(20, 7) -> CheckPaint(9, 5) -> CheckPaint(7) -> ToDevice(x)";
        assert_eq!(Rig::new(&World::new(), text).receive("a", &[&[1]]).len(), 1);
    }

    #[test]
    fn fragments_have_the_marks_of_their_packet() {
        let text = "FromDevice(a) -> MarkIPHeader(14) -> SetAnnoByte(5, 9) -> f :: IPFragmenter(100) -> c :: CheckPaint(9, 5)
            -> ToDevice(marked); c [1] -> ToDevice(other); FromDevice(b) -> MarkIPHeader(14) -> f";
        let mut rig = Rig::new(&World::new(), text);
        let frame = frame_v4("10.0.0.1", "10.0.0.2", 64, 17, &[0; 200]);
        // Frames come again, with what the packet before had.
        for _ in 0..9 {
            for (from, to) in [("a", "marked"), ("b", "other")] {
                let sent = rig.receive(from, &[&frame]);
                assert!(sent.len() == 3 && sent.iter().all(|(sent, _)| sent == to), "{sent:?}");
            }
        }
    }

    #[test]
    fn congestion_is_marked() {
        let frame = frame_v4("10.0.0.1", "10.0.0.2", 64, 17, &[0; 8]);
        let batch = run(&SET_ECN, "ect2", 14, &[&frame]);
        assert_eq!((batch.bytes(0)[15], checksum(&batch.bytes(0)[14..34])), (2, 0));
        for (name, ecn) in [("no", 0), ("ECT(1)", 1), ("ECT(0)", 2), ("CE", 3)] {
            assert_eq!(run(&SET_ECN, name, 14, &[&frame]).bytes(0)[15], ecn, "{name}");
        }
        assert!(refused(&SET_ECN, "ECT(2)").contains("ECT(0)"));
        let capable = batch.bytes(0).to_vec();
        let batch = run(&MARK_CE, "", 14, &[&frame, &capable]);
        assert_eq!(batch.decision(0), Decision::Drop(DropReason::Discarded));
        assert_eq!((batch.bytes(1)[15], checksum(&batch.bytes(1)[14..34])), (3, 0));
        let text = "FromDevice(a) -> MarkIPHeader(14) -> e :: SetIPECN(ce) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        rig.write("e.ecn", "255");
        assert_eq!(rig.receive("a", &[&frame])[0].1[15], 3, "the DSCP stays");
        assert_eq!(run(&MARK_CE, "true", 14, &[&frame]).bytes(0)[15], 3);
    }
}
