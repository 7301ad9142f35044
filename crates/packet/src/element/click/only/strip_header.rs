//! Headers cut off as far as they are known: `StripIPHeader`, `StripToNetworkHeader`; `UnstripIPHeader` brings the IPv4
//! header back. `MarkMACHeader(OFFSET, LENGTH)` notes where the link header ends, and so where the network header
//! begins; without `LENGTH` it changes nothing.
//!
//! Source: Click's elements of these names. Differs: how long the header was is not noted. The bytes that were cut off
//! are searched for one with a correct checksum; without one, 20 bytes come back.

use super::each::{class, each};
use crate::element::click::front::{cut, grow};
use crate::frame::wire::Ip4;
use crate::frame::wire::checksum::checksum;
use crate::frame::{Batch, DropReason};
use crate::graph::ElementClass;

pub(crate) const IP: ElementClass = class("StripIPHeader", "cuts the IPv4 header off", |setup| {
    setup.args.finish()?;
    each(|batch, i| {
        let network = usize::from(batch.meta()[i].network);
        let header = Ip4::at(batch.bytes(i), network).map_or(0, Ip4::header_len);
        match u8::try_from(network + header).ok().filter(|_| header >= 20) {
            Some(bytes) => cut(batch, i, bytes),
            None => batch.discard(i, DropReason::BadHeaderLength),
        }
    })
});

pub(crate) const UNSTRIP: ElementClass =
    class("UnstripIPHeader", "brings the IPv4 header back that was cut off", |setup| {
        setup.args.finish()?;
        each(|batch, i| {
            let bytes = header_before(batch, i).unwrap_or(20);
            if grow(batch, i, bytes) {
                batch.meta_mut()[i].network = 0;
            }
        })
    });

/// Length of the IPv4 header that was cut off directly before packet `i`.
fn header_before(batch: &mut Batch, i: usize) -> Option<u8> {
    let most = batch.cut_off(i).min(60);
    if !batch.push_front(i, most) {
        return None;
    }
    let front = &batch.bytes(i)[..most.into()];
    let is_header = |words: &u8| {
        let start = front.len().checked_sub(usize::from(*words) * 4);
        start.is_some_and(|at| front[at] == 0x40 | words && checksum(&front[at..]) == 0)
    };
    let words = (5..=15).find(is_header);
    batch.pull_front(i, most);
    words.map(|words| words * 4)
}

pub(crate) const TO_NETWORK: ElementClass =
    class("StripToNetworkHeader", "cuts off what is before the network header", |setup| {
        setup.args.finish()?;
        each(|batch, i| {
            let bytes = batch.meta()[i].network;
            cut(batch, i, bytes);
        })
    });

pub(crate) const MARK_MAC: ElementClass =
    class("MarkMACHeader", "marks where the link header of packets stops", |setup| {
        let offset = setup.args.optional::<u8>("OFFSET");
        let length = setup.args.optional::<u8>("LENGTH");
        setup.args.finish()?;
        let (offset, length) = (offset?.unwrap_or(0), length?.unwrap_or(0));
        let network = offset.saturating_add(length);
        each(move |batch, i| {
            if length > 0 {
                batch.meta_mut()[i].network = network;
            }
        })
    });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v4, run};

    #[test]
    fn the_link_header_ends_where_it_is_marked() {
        let frame = frame_v4("10.0.0.1", "192.0.2.7", 64, 17, &[0; 8]);
        let network = |config| run(&MARK_MAC, config, 3, &[&frame]).meta()[0].network;
        assert_eq!(["", "2", "0, 14", "4, 14"].map(network), [3, 3, 14, 18]);
    }

    #[test]
    fn headers_go_and_come_back() {
        let frame = frame_v4("10.0.0.1", "192.0.2.7", 64, 17, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(run(&IP, "", 14, &[&frame]).bytes(0), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(run(&TO_NETWORK, "", 14, &[&frame]).bytes(0), &frame[14..]);
        let text = "FromDevice(a) -> Strip(14) -> StripIPHeader -> UnstripIPHeader -> MarkMACHeader -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(rig.receive("a", &[&frame])[0].1, frame[14..]);
        let mut long = frame.clone();
        long.splice(34..34, [1, 1, 1, 0]);
        (long[14], long[17]) = (0x46, 32);
        long[24..26].fill(0);
        let sum = checksum(&long[14..38]).to_be_bytes();
        long[24..26].copy_from_slice(&sum);
        assert_eq!(rig.receive("a", &[&long])[0].1, long[14..], "with options");
        long[24] ^= 1;
        assert_eq!(rig.receive("a", &[&long])[0].1, long[18..], "no header is known for certain");
    }
}
