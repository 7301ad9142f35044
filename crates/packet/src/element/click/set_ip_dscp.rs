//! Marks IP packets with a DSCP (RFC 2474); the two bits of ECN stay as they are.
//!
//! Source: Click's `SetIPDSCP`. Differs: packets of both families. What is no IP packet passes unchanged.

use crate::element::support::setting::Setting;
use crate::frame::Batch;
use crate::frame::wire::checksum::update;
use crate::frame::wire::{Ip4Mut, Ip6Mut};
use crate::graph::{Context, Element, ElementClass, LiveArg, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("SetIPDSCP", "1/1", "a/a", "x/x"),
    summary: "marks IP packets with a DSCP",
    configure: |setup| {
        let dscp = setup.args.positional::<u8>("DSCP");
        setup.args.finish()?;
        let dscp = dscp?;
        if dscp > MOST {
            return Err(setup.args.refuse_all(&format!("DSCP: {dscp} is more than {MOST}")));
        }
        let dscp = Setting::<u8>::new(dscp);
        let each = dscp.clone();
        let made = Made::new(move |_| SetIpDscp { dscp: each.clone() });
        Ok(dscp.handled(made, "dscp").live(&[LiveArg { handler: "dscp", keyword: "DSCP" }]))
    },
};

/// What 6 bits hold.
const MOST: u8 = 63;

struct SetIpDscp {
    dscp: Setting<u8>,
}

impl Element for SetIpDscp {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        // A handler may have been told more.
        let dscp = self.dscp.get().min(MOST) << 2;
        for i in 0..batch.len() {
            let network = usize::from(batch.meta()[i].network);
            mark(batch.bytes_mut(i), network, dscp);
        }
    }
}

/// Sets the DSCP of a frame's IP packet, whose header begins at `network`; `dscp` lies in the upper six bits.
pub(crate) fn mark(frame: &mut [u8], network: usize, dscp: u8) {
    match frame.get(network).map_or(0, |first| first >> 4) {
        4 => mark_v4(frame, network, dscp),
        6 => mark_v6(frame, network, dscp),
        _ => {}
    }
}

fn mark_v4(frame: &mut [u8], network: usize, dscp: u8) {
    let Some(mut ip) = Ip4Mut::at(frame, network) else { return };
    let (old, sum) = (ip.view().traffic_class(), ip.view().checksum());
    let new = dscp | old & 3;
    ip.set_traffic_class(new);
    // The byte before it is not changed, and adds nothing.
    ip.set_checksum(update(sum, old.into(), new.into()));
}

fn mark_v6(frame: &mut [u8], network: usize, dscp: u8) {
    let Some(mut ip) = Ip6Mut::at(frame, network) else { return };
    let (old, label) = (ip.view().traffic_class(), ip.view().flow_label());
    ip.set_first(dscp | old & 3, label);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::wire::ip4::sum_is_valid;
    use crate::frame::wire::{Ip4, Ip6};
    use crate::testing::{Rig, World, fill_ip4_checksum, frame_v4, frame_v6, refused, run};

    #[test]
    fn packets_are_marked_and_stay_right() {
        let mut v4 = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[7; 9]);
        v4[15] = 0xab;
        fill_ip4_checksum(&mut v4);
        let mut v6 = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[7; 9]);
        v6[14..18].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45]);
        let batch = run(&CLASS, "46", 14, &[&v4, &v6, &v4[..30], &[], &[0; 60]]);
        let ip = Ip4::at(batch.bytes(0), 14).unwrap();
        assert_eq!((ip.traffic_class(), sum_is_valid(ip.raw_sum())), (46 << 2 | 3, true));
        let ip = Ip6::at(batch.bytes(1), 14).unwrap();
        assert_eq!((ip.traffic_class(), ip.flow_label()), (46 << 2 | 3, 0x12345));
        assert_eq!(batch.bytes(1)[18..], v6[18..]);
        assert_eq!((batch.bytes(2), batch.bytes(4)), (&v4[..30], &[0; 60][..]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(refused(&CLASS, "64").contains("64 is more than 63"));
        let mut rig = Rig::new(&World::new(), "FromDevice(a) -> s :: SetIPDSCP(0) -> ToDevice(b)");
        rig.write("s.dscp", "10");
        let packet = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[])[14..].to_vec();
        assert_eq!((rig.receive("a", &[&packet])[0].1[1], rig.read("s.dscp")), (40, "10".into()));
    }
}
