//! Headers cut off as far as they are known: `StripIPHeader`, `StripToNetworkHeader`; `UnstripIPHeader` brings the IPv4 header
//! back, without options. `MarkMACHeader` passes packets: their link header is where they begin.
//!
//! Source: Click's elements of these names.

use super::each::{class, each};
use crate::element::click::front::{cut, grow};
use crate::frame::DropReason;
use crate::frame::wire::Ip4;
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
            // Options are not known of: the header that is brought back states them.
            if grow(batch, i, 20) {
                batch.meta_mut()[i].network = 0;
            }
        })
    });

pub(crate) const TO_NETWORK: ElementClass =
    class("StripToNetworkHeader", "cuts off what is before the network header", |setup| {
        setup.args.finish()?;
        each(|batch, i| {
            let bytes = batch.meta()[i].network;
            cut(batch, i, bytes);
        })
    });

pub(crate) const MARK_MAC: ElementClass =
    class("MarkMACHeader", "passes packets: their link header is where they begin", |setup| {
        setup.args.optional::<u32>("OFFSET")?;
        setup.args.optional::<u32>("LENGTH")?;
        setup.args.finish()?;
        each(|_, _| ())
    });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v4, run};

    #[test]
    fn headers_go_and_come_back() {
        let frame = frame_v4("10.0.0.1", "192.0.2.7", 64, 17, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(run(&IP, "", 14, &[&frame]).bytes(0), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(run(&TO_NETWORK, "", 14, &[&frame]).bytes(0), &frame[14..]);
        let text = "FromDevice(a) -> Strip(14) -> StripIPHeader -> UnstripIPHeader -> MarkMACHeader -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(rig.receive("a", &[&frame])[0].1, frame[14..]);
    }
}
