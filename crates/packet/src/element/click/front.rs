//! What is done at the front of a frame: `Strip` and `Unstrip` cut bytes off and bring them back, `EtherEncap`
//! puts an Ethernet header before it.
//!
//! Source: Click's elements of these names. Bytes that were cut off are still there until something is written over
//! them, and what is shorter than `Strip` cuts becomes empty, both as in Click. The network header stays where it is,
//! so its offset changes with the front.

use fingerpost_route::Mac;

use crate::element::support::setting::Setting;
use crate::frame::wire::{ETHER_BYTES, EtherMut};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, LiveArg, Made};
use crate::language::ClassSpec;

pub(crate) const STRIP: ElementClass = ElementClass {
    spec: spec("Strip"),
    summary: "cuts bytes off the front of frames",
    configure: |setup| {
        let length = setup.args.keyword("LENGTH")?;
        let bytes = length.map_or_else(|| setup.args.positional("NBYTES"), Ok);
        setup.args.finish()?;
        let bytes: u16 = bytes?;
        Ok(Made::new(move |_| Strip { bytes }))
    },
};

pub(crate) const UNSTRIP: ElementClass = ElementClass {
    spec: spec("Unstrip"),
    summary: "brings bytes back that were cut off the front of frames",
    configure: |setup| {
        let length = setup.args.keyword("LENGTH")?;
        let bytes = length.map_or_else(|| setup.args.positional("NBYTES"), Ok);
        setup.args.finish()?;
        let bytes: u8 = bytes?;
        Ok(Made::new(move |_| Unstrip { bytes }))
    },
};

pub(crate) const ETHER_ENCAP: ElementClass = ElementClass {
    spec: spec("EtherEncap"),
    summary: "puts an Ethernet header before packets",
    configure: |setup| {
        let kind = setup.args.positional("ETHERTYPE");
        let src = setup.args.positional::<Mac>("SRC");
        let dst = setup.args.positional::<Mac>("DST");
        setup.args.finish()?;
        let kind = Setting::<u16>::new(kind?);
        let ends = [Setting::new(dst?), Setting::new(src?)];
        let (each, each_ends) = (kind.clone(), ends.clone());
        let made = Made::new(move |_| EtherEncap {
            header: [0; ETHER_BYTES],
            kind: each.clone(),
            ends: each_ends.clone(),
        });
        let [dst, src] = ends;
        let made = dst.handled(src.handled(made, "src"), "dst");
        let made = kind.handled(kind.handled(made, "ethertype"), "etht");
        Ok(made.live(&[
            LiveArg { handler: "ethertype", keyword: "ETHERTYPE" },
            LiveArg { handler: "src", keyword: "SRC" },
            LiveArg { handler: "dst", keyword: "DST" },
            LiveArg { handler: "etht", keyword: "ETHERTYPE" },
        ]))
    },
};

const fn spec(name: &'static str) -> ClassSpec {
    ClassSpec::new(name, "1/1", "a/a", "x/x")
}

/// Cuts bytes off the front of packet `i`, or ends it where there are fewer.
pub(super) fn cut(batch: &mut Batch, i: usize, bytes: u8) {
    if batch.pull_front(i, bytes.into()) {
        let network = &mut batch.meta_mut()[i].network;
        *network = network.saturating_sub(bytes);
    } else {
        batch.discard(i, DropReason::TooShort);
    }
}

/// Grows the front of packet `i`, or ends it where there is no room. Whether there was.
pub(super) fn grow(batch: &mut Batch, i: usize, bytes: u8) -> bool {
    let network = batch.meta()[i].network.checked_add(bytes);
    match network.filter(|_| batch.push_front(i, bytes.into())) {
        Some(network) => {
            batch.meta_mut()[i].network = network;
            true
        }
        None => {
            batch.discard(i, DropReason::NoBuffer);
            false
        }
    }
}

struct Strip {
    bytes: u16,
}

impl Element for Strip {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            if !batch.pull_front(i, self.bytes) {
                // It has fewer.
                batch.truncate(i, 0);
            }
            let network = &mut batch.meta_mut()[i].network;
            *network = u8::try_from(u16::from(*network).saturating_sub(self.bytes)).unwrap_or(0);
        }
    }
}

struct Unstrip {
    bytes: u8,
}

impl Element for Unstrip {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            grow(batch, i, self.bytes);
        }
    }
}

/// Length of an Ethernet header.
pub(super) const HEADER: u8 = 14;
const _: () = assert!(HEADER as usize == ETHER_BYTES);

struct EtherEncap {
    header: [u8; ETHER_BYTES],
    kind: Setting<u16>,
    /// Destination and source.
    ends: [Setting<Mac>; 2],
}

impl Element for EtherEncap {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if let Some(mut ether) = EtherMut::of(&mut self.header) {
            let [dst, src] = &self.ends;
            ether.set_addrs(dst.get(), src.get());
            ether.set_kind(self.kind.get());
        }
        for i in 0..batch.len() {
            if grow(batch, i, HEADER) {
                batch.bytes_mut(i)[..ETHER_BYTES].copy_from_slice(&self.header);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Decision, HEADROOM};
    use crate::testing::{element, refused, run};

    #[test]
    fn bytes_go_and_come_back() {
        let batch = run(&STRIP, "14", 14, &[&[7; 20], &[7; 14], &[7; 13]]);
        assert_eq!((batch.bytes(0), batch.bytes(1)), (&[7; 6][..], &[][..]));
        assert_eq!((batch.meta()[0].network, batch.meta()[1].network), (0, 0));
        assert_eq!((batch.decision(2), batch.bytes(2)), (Decision::Output(0), &[][..]));
        assert_eq!(run(&STRIP, "300", 14, &[&[7; 400]]).frame_len(0), 100);
        assert_eq!(run(&STRIP, "4", 14, &[&[7; 20]]).meta()[0].network, 10);

        let batch = &mut run(&STRIP, "2", 0, &[&[1, 2, 3]]);
        let bench = &mut crate::testing::Bench::new(&crate::testing::World::new());
        element(&UNSTRIP, "2").process(0, batch, &mut bench.context());
        assert_eq!((batch.bytes(0), batch.meta()[0].network), (&[1, 2, 3][..], 2));
    }

    #[test]
    fn what_does_not_fit_ends() {
        let mut batch = run(&UNSTRIP, "255", 0, &[&[1]]);
        assert_eq!((batch.frame_len(0), batch.meta()[0].network), (256, 255));
        let bench = &mut crate::testing::Bench::new(&crate::testing::World::new());
        element(&UNSTRIP, "1").process(0, &mut batch, &mut bench.context());
        assert_eq!(batch.decision(0), Decision::Drop(DropReason::NoBuffer));
        batch.meta_mut()[0].network = 0;
        batch.output(0, 0);
        element(&UNSTRIP, "2").process(0, &mut batch, &mut bench.context());
        let left = usize::from(HEADROOM) - 255;
        assert_eq!((left, batch.decision(0)), (1, Decision::Drop(DropReason::NoBuffer)));
    }

    #[test]
    fn an_ethernet_header_comes_before_the_packet() {
        let batch = run(&ETHER_ENCAP, "0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2", 0, &[&[9, 8]]);
        let want = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 9, 8];
        assert_eq!((batch.bytes(0), batch.meta()[0].network), (&want[..], 14));
        let text =
            "FromDevice(a) -> e :: EtherEncap(0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2) -> ToDevice(x)";
        let mut rig = crate::testing::Rig::new(&crate::testing::World::new(), text);
        rig.write("e.src", "2:0:0:0:0:9");
        assert_eq!(rig.receive("a", &[&[9, 8]])[0].1[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 9]);
        assert_eq!(rig.read("e.dst"), "02-00-00-00-00-02");
        assert!(refused(&ETHER_ENCAP, "65536, x").contains("DST is missing"));
        assert!(refused(&STRIP, "65536").contains("0 to 65535 are possible"));
    }
}
