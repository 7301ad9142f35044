//! `IPMirror` swaps the addresses of IPv4 packets, and the ports of TCP and UDP; of TCP the two numbers as well.
//!
//! Source: Click's `IPMirror`. Packets go by their new destination, with `DST_ANNO false` by the old one. Checksums
//! stay right: what is swapped adds up to the same.

use super::address_anno::Kept;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::{Batch, DropReason, Hop};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPMirror", "1/1", "a/a", "x/x"),
    summary: "swaps sources and destinations of IPv4 packets",
    configure: |setup| {
        let follows = setup.args.optional("DST_ANNO");
        setup.args.finish()?;
        let kept = Kept::new(setup, follows?);
        Ok(Made::new(move |_| Mirror { kept: kept.clone() }))
    },
};

struct Mirror {
    kept: Kept,
}

/// Swaps the ends of a packet; whether it is one.
fn swap(ip: &mut [u8]) -> bool {
    if ip.len() < 20 || ip[0] >> 4 != 4 {
        return false;
    }
    let (header, first) = (usize::from(ip[0] & 15) * 4, ip[6] & 0x1f == 0 && ip[7] == 0);
    ip[12..20].rotate_left(4);
    if first
        && matches!(ip[9], TCP | UDP)
        && let Some(ports) = ip.get_mut(header..header + 4)
    {
        ports.rotate_left(2);
        if ip[9] == TCP
            && let Some(numbers) = ip.get_mut(header + 4..header + 12)
        {
            numbers.rotate_left(4);
        }
    }
    true
}

impl Element for Mirror {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        self.kept.note(batch);
        for i in 0..batch.len() {
            let network = usize::from(batch.meta()[i].network);
            let ip = batch.bytes_mut(i).get_mut(network..).unwrap_or_default();
            if swap(ip) {
                batch.meta_mut()[i].hop = Hop::NONE;
            } else {
                batch.discard(i, DropReason::TooShort);
            }
        }
        self.kept.restore(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::testing::{Rig, World, frame_v4, run};

    #[test]
    fn packets_go_by_one_of_the_destinations() {
        for (config, to) in [("", "x"), ("true", "x"), ("false", "y"), ("DST_ANNO false", "y")] {
            let text = format!(
                "FromDevice(a) -> Strip(14) -> IPMirror({config}) -> r :: StaticIPLookup(10.0.0.0/8 0, 0/0 1);
                 r => ToDevice(x), ToDevice(y)"
            );
            let mut rig = Rig::new(&World::new(), &text);
            let frame = frame_v4("10.0.0.1", "192.0.2.7", 64, 17, &[0; 8]);
            assert_eq!(rig.receive("a", &[&frame])[0].0, to, "{config}");
        }
    }

    #[test]
    fn ends_change_places() {
        let frame = frame_v4("10.0.0.1", "192.0.2.7", 64, 17, &[0, 1, 0, 2, 0, 8, 0, 0]);
        let back = frame_v4("192.0.2.7", "10.0.0.1", 64, 17, &[0, 2, 0, 1, 0, 8, 0, 0]);
        let batch = run(&CLASS, "", 14, &[&frame, &frame[..20]]);
        assert_eq!(batch.bytes(0)[14..], back[14..]);
        assert_eq!(batch.decision(1), Decision::Drop(DropReason::TooShort));
        let tcp =
            frame_v4("10.0.0.1", "192.0.2.7", 64, 6, &[0, 1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 5]);
        let batch = run(&CLASS, "", 14, &[&tcp, &tcp[..45]]);
        assert_eq!(batch.bytes(0)[34..], [0, 2, 0, 1, 7, 8, 9, 10, 3, 4, 5, 6, 5]);
        assert_eq!(
            batch.bytes(1)[34..],
            [0, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9],
            "numbers are not whole"
        );
    }
}
