//! The first step: is the frame for us, and what is in it.
//!
//! A frame must be addressed to the port's own MAC, or to a group of hosts; the latter is flagged,
//! and the IP elements decide. Frames of ports whose senders leave partial checksums leave by
//! outputs of their own.
//!
//! Cost: reads the frame's first line, and prefetches those of the next frames.

use fingerpost_route::Mac;

use crate::frame::wire::{ETHER_BYTES, Ether, ether};
use crate::frame::{BATCH, Batch, DropReason, FLAG_LINK_MULTICAST};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("EtherInput", "1/4", "h/h", "x/x")
        .outputs(&["ip4", "ip6", "fill4", "fill6"]),
    summary: "checks the destination MAC, separates IPv4 from IPv6",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| EtherInput { special: Vec::with_capacity(BATCH) }))
    },
};

/// Frames ahead whose first line is prefetched.
pub(crate) const AHEAD: usize = 4;

/// Where the network header begins.
const NETWORK: u8 = 14;
const _: () = assert!(NETWORK as usize == ETHER_BYTES);

/// Added to an output's number for ports that need their checksums filled.
const FILL: u16 = 2;

struct EtherInput {
    /// Frames of the batch that are to be looked at more closely.
    special: Vec<usize>,
}

/// Properties of the ingress port of a frame.
#[derive(Clone, Copy)]
struct From {
    number: u16,
    /// `None` for a port without MAC: any unicast address is its own.
    mac: Option<Mac>,
    fill: bool,
}

impl From {
    fn port(number: u16, cx: &Context<'_>) -> Option<Self> {
        let port = cx.forwarding.ports.port(number)?;
        Some(Self { number, mac: port.mac, fill: port.fill_checksums })
    }
}

/// Any frame, step by step.
#[cold]
fn look(batch: &mut Batch, i: usize, cx: &Context<'_>) {
    let Some(from) = From::port(batch.meta()[i].port, cx) else {
        return batch.discard(i, DropReason::PortDown);
    };
    let Some(ether) = Ether::of(batch.bytes(i)) else {
        return batch.discard(i, DropReason::TooShort);
    };
    let output = match ether.kind() {
        ether::TYPE_IP4 => 0,
        ether::TYPE_IP6 => 1,
        _ => return batch.discard(i, DropReason::BadEtherType),
    };
    let multicast = ether.multicast();
    if !multicast && from.mac.is_some_and(|mac| mac != ether.dst()) {
        return batch.discard(i, DropReason::NotForUs);
    }
    let meta = &mut batch.meta_mut()[i];
    meta.network = NETWORK;
    if multicast {
        meta.flags |= FLAG_LINK_MULTICAST;
    }
    batch.output(i, if from.fill { output + FILL } else { output });
}

impl Element for EtherInput {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..AHEAD {
            batch.prefetch(i);
        }
        // Nearly always a batch is of one port, and all of it for us.
        let first = batch.meta().first().and_then(|meta| From::port(meta.port, cx));
        let mac = first.and_then(|from| from.mac).filter(|mac| !mac.is_group());
        let (Some(From { number, fill, .. }), Some(mac)) = (first, mac) else {
            return (0..batch.len()).for_each(|i| look(batch, i, cx));
        };
        let (special, mac, v6) = (&mut self.special, mac.bits(), if fill { 1 + FILL } else { 1 });
        batch.each_ahead(|i, mut one| {
            let kind = match Ether::of(one.frame) {
                Some(ether) if one.meta.port == number && ether.dst_bits() == mac => ether.kind(),
                _ => return special.push(i),
            };
            one.meta.network = NETWORK;
            match kind {
                // Its label is that already.
                ether::TYPE_IP4 if !fill => {}
                ether::TYPE_IP4 => one.output(FILL),
                ether::TYPE_IP6 => one.output(v6),
                _ => special.push(i),
            }
        });
        while let Some(i) = self.special.pop() {
            look(batch, i, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::testing::{Bench, World, frame_v4, frame_v6, port_mac};

    #[test]
    fn frames_are_sorted_by_address_and_type() {
        let mut world = World::new();
        world.ports.ports[1].as_mut().unwrap().fill_checksums = true;
        world.ports.ports[2].as_mut().unwrap().mac = None;
        let mut bench = Bench::new(&world);
        let v4 = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[]);
        let v6 = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[]);
        let to = |frame: &[u8], mac: Mac| {
            let mut frame = frame.to_vec();
            frame[..6].copy_from_slice(&mac.0);
            frame
        };
        let kind = |kind: u16| {
            let mut frame = v4.clone();
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            frame
        };
        let (broadcast, group) = (Mac([0xff; 6]), Mac([0x33, 0x33, 0, 0, 0, 1]));
        let drop = Decision::Drop;
        let out = Decision::Output;
        let cases: &[(u16, Vec<u8>, Decision, u8)] = &[
            (0, v4.clone(), out(0), 0),
            (0, v6.clone(), out(1), 0),
            (0, to(&v4, broadcast), out(0), FLAG_LINK_MULTICAST),
            (0, to(&v6, group), out(1), FLAG_LINK_MULTICAST),
            (0, to(&v4, port_mac(1)), drop(DropReason::NotForUs), 0),
            (1, v4.clone(), drop(DropReason::NotForUs), 0),
            (1, to(&v4, port_mac(1)), out(2), 0),
            (1, to(&v6, port_mac(1)), out(3), 0),
            (2, v4.clone(), out(0), 0),
            (7, v4.clone(), drop(DropReason::PortDown), 0),
            (0, kind(0x0806), drop(DropReason::BadEtherType), 0),
            (0, kind(0x8100), drop(DropReason::BadEtherType), 0),
            (0, kind(46), drop(DropReason::BadEtherType), 0),
            (0, v4[..13].to_vec(), drop(DropReason::TooShort), 0),
            (0, vec![], drop(DropReason::TooShort), 0),
        ];
        let element = &mut *crate::testing::element(&CLASS, "");
        for (i, (port, frame, want, flags)) in cases.iter().enumerate() {
            let batch = bench.process(element, *port, [&frame[..]]);
            assert_eq!(batch.decision(0), *want, "case {i}");
            if let Decision::Output(_) = want {
                assert_eq!((batch.meta()[0].network, batch.meta()[0].flags), (14, *flags));
            }
        }
        // Ports may be mixed in a batch.
        let mut batch = crate::testing::batch(&bench.pool, 0, [&v4[..], &v4, &v4]);
        batch.meta_mut()[1].port = 1;
        element.process(0, &mut batch, &mut bench.context());
        let seen = [0, 1, 2].map(|i| batch.decision(i));
        assert_eq!(seen, [out(0), drop(DropReason::NotForUs), out(0)]);
    }
}
