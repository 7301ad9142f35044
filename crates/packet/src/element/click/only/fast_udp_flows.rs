//! `FastUDPFlows(RATE, LIMIT, LENGTH, SRCETH, SRCIP, DSTETH, DSTIP, FLOWS, FLOWSIZE)` makes UDP packets of so many flows
//! at once, in Ethernet frames.
//!
//! Source: Click's `FastUDPFlows`. Each packet is one of a flow at random; after `FLOWSIZE` packets (0: never) another
//! flow begins in the place of one. Ports are random, and a `RandomSeed` has others. `LENGTH` counts the Ethernet
//! header, and is 60 at least. A rate of 0 is as fast as they are pulled, a limit below 0 none.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use fingerpost_route::Mac;

use super::fast_udp_source::{Ends, allowance, sum_v4, v4};
use super::random::Random;
use crate::element::click::source;
use crate::element::support::setting::Setting;
use crate::frame::wire::{ETHER_BYTES, EtherMut, IP4_BYTES};
use crate::graph::ElementClass;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("FastUDPFlows", "0/1", "h/a", "x/y"),
    summary: "makes UDP packets of several flows",
    configure: |setup| {
        let rate = setup.args.positional::<u32>("RATE");
        let limit = setup.args.positional::<i64>("LIMIT");
        let length = setup.args.positional::<usize>("LENGTH");
        let src_mac = setup.args.positional::<Mac>("SRCETH");
        let src = setup.args.positional::<Ipv4Addr>("SRCIP");
        let dst_mac = setup.args.positional::<Mac>("DSTETH");
        let dst = setup.args.positional::<Ipv4Addr>("DSTIP");
        let number = setup.args.positional::<usize>("FLOWS");
        let size = setup.args.positional::<u32>("FLOWSIZE");
        let checksum = setup.args.optional("CHECKSUM");
        let active = setup.args.optional("ACTIVE");
        setup.args.finish()?;
        let (length, number) = (length?, number?);
        if length > LONGEST {
            return Err(setup.args.refuse_all(&format!("LENGTH: {LONGEST} is the most")));
        }
        if !(1..=MOST).contains(&number) {
            return Err(setup.args.refuse_all(&format!("FLOWS: 1 to {MOST} are possible")));
        }
        if length < SHORTEST {
            setup.args.warn_all(&format!("LENGTH: {SHORTEST} is the least"));
        }
        let mut frame = vec![0; length.max(SHORTEST)];
        if let Some(mut ether) = EtherMut::of(&mut frame) {
            ether.set_addrs(dst_mac?, src_mac?);
        }
        let ends = Ends { addrs: [src?, dst?], ports: [0; 2] };
        let (size, random, checksum) = (size?, Random::of(setup), checksum?.unwrap_or(true));
        let flows = Mutex::new(Flows { ends, checksum, number, size, random, open: Vec::new() });
        let (limit, active) = (Setting::new(limit?.max(-1)), active?.unwrap_or(true));
        let change = move |frame: &mut [u8], _: u64, _: u64| {
            flows.lock().unwrap_or_else(PoisonError::into_inner).head(frame);
        };
        let allowance = allowance(rate?);
        let allowed = allowance.as_ref();
        let made = source::of_bytes(setup, &frame, &limit, active, allowed, Arc::new(change));
        Ok(match &allowance {
            Some(allowance) => allowance.handled(made),
            None => made,
        })
    },
};

/// Bytes of a frame.
const SHORTEST: usize = 60;
const LONGEST: usize = 1518;
/// Flows at once.
const MOST: usize = 1 << 20;

/// Flows that packets of a source are of.
struct Flows {
    ends: Ends<Ipv4Addr>,
    checksum: bool,
    number: usize,
    /// Packets of a flow; 0 for no end.
    size: u32,
    random: Random,
    /// None before the first packet.
    open: Vec<Flow>,
}

struct Flow {
    ports: [u16; 2],
    sent: u32,
}

impl Flow {
    /// One with random ports.
    fn begin(random: &mut Random) -> Self {
        let [a, b, c, d, ..] = random.number().to_le_bytes();
        let port = |bytes| u16::from_le_bytes(bytes).max(1);
        Self { ports: [port([a, b]), port([c, d])], sent: 0 }
    }
}

impl Flows {
    /// Writes the headers of the next packet, where there is room for them.
    fn head(&mut self, frame: &mut [u8]) {
        if frame.len() < ETHER_BYTES + IP4_BYTES + 8 {
            return;
        }
        let random = &mut self.random;
        if self.open.is_empty() {
            self.open = (0..self.number).map(|_| Flow::begin(random)).collect();
        }
        let flows = self.open.len() as u64;
        let at = usize::try_from((random.number() >> 20) % flows).unwrap_or(0);
        let flow = &mut self.open[at];
        if self.size > 0 && flow.sent >= self.size {
            *flow = Flow::begin(random);
        }
        flow.sent = flow.sent.saturating_add(1);
        self.ends.ports = flow.ports;
        v4(frame, &self.ends);
        sum_v4(&mut frame[ETHER_BYTES..], self.checksum);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn packets_are_of_flows_of_that_size() {
        let text =
            "s :: FastUDPFlows(0, 200, 60, 2:0:0:0:0:1, 10.0.0.1, 2:0:0:0:0:2, 10.0.0.2, 3, 4)
            -> Strip(14) -> CheckIPHeader -> CheckUDPHeader -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        let sent = rig.poll();
        assert!(sent.len() == 200 && sent.iter().all(|(_, packet)| packet.len() == 46));
        assert_eq!(sent[0].1[12..20], [10, 0, 0, 1, 10, 0, 0, 2]);
        let mut flows = BTreeMap::<_, usize>::new();
        sent.iter().for_each(|(_, packet)| *flows.entry(&packet[20..24]).or_default() += 1);
        assert!(flows.values().all(|&packets| packets <= 4), "{flows:?}");
        assert!((50..=52).contains(&flows.len()), "three of them have not ended: {flows:?}");
        rig.write("s.length", "100");
        rig.write("s.reset", "");
        let sent = rig.poll();
        assert!(sent.len() == 200 && sent.iter().all(|(_, packet)| packet.len() == 86));
        assert_eq!([rig.read("s.count"), rig.read("s.length")], ["200", "100"]);
    }

    #[test]
    fn flows_may_have_no_end_and_no_checksum() {
        let text = "s :: FastUDPFlows(1000, -1, 60, 2:0:0:0:0:1, 10.0.0.1, 2:0:0:0:0:2, 10.0.0.2, 5, 0, false)
            -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        let mut sent = rig.poll();
        for _ in 0..10 {
            rig.bench.now_ns += 10_000_000;
            sent.extend(rig.poll());
        }
        assert_eq!(sent.len(), 120, "a burst of 20 ms, and 100 ms");
        let ports: BTreeSet<_> = sent.iter().map(|(_, frame)| &frame[34..38]).collect();
        assert_eq!(ports.len(), 5);
        assert!(sent.iter().all(|(_, frame)| frame[40..42] == [0, 0]));
        rig.write("s.rate", "5");
    }

    #[test]
    fn lengths_and_numbers_have_bounds() {
        let text = "s :: FastUDPFlows(0, 1, 9, 2:0:0:0:0:1, 10.0.0.1, 2:0:0:0:0:2, 10.0.0.2, 1, 1) -> ToDevice(x)";
        assert_eq!(Rig::new(&World::new(), text).poll()[0].1.len(), 60);
        for (length, flows, words) in
            [("1519", "1", "LENGTH: 1518"), ("60", "0", "1 to 1048576"), ("60", "9999999", "FLOWS")]
        {
            let config =
                format!("0, 1, {length}, 2:0:0:0:0:1, 1.0.0.1, 2:0:0:0:0:2, 1.0.0.2, {flows}, 1");
            let reported = refused(&CLASS, &config);
            assert!(reported.contains(words), "{reported}");
        }
    }
}
