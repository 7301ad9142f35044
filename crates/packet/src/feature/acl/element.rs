//! The access lists' step in the graph: packets of a port are decided by the list of the port.
//!
//! On ingress it stands behind the checks of headers, whose outputs it passes on, so that a packet about which an error
//! is due is decided too: no sender learns of a packet that is denied. On egress it sees packets as they leave, those
//! of the router's own making included.
//!
//! Cost: a look at the port of each packet; where a port has a list, a key of 64 bytes for each packet and the cost of
//! `classify.rs`.

use std::sync::Arc;

use super::lists::{AccessLists, Counted, Direction, Hits};
use super::rules::Classified;
use crate::element::router::ether_input::AHEAD;
use crate::feature::ports::PortWords;
use crate::filter::{Family, Key, WORDS, key_of};
use crate::frame::{BATCH, Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Instance, Made};
use crate::language::ClassSpec;

pub(super) const INGRESS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPAccessIn", "5/5", "h/h", "#/#")
        .outputs(&["forward4", "options4", "error4", "forward6", "error6"]),
    summary: "permits, denies and counts packets that arrive, by the access list of their port",
    configure: |setup| {
        setup.args.finish()?;
        let lists = setup.state::<AccessLists>();
        Ok(Made::new(move |instance| Access::new(lists.as_deref(), Direction::In, instance)))
    },
};

pub(super) const EGRESS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPAccessOut", "2/2", "h/h", "#/#").outputs(&["out4", "out6"]),
    summary: "permits, denies and counts packets that leave, by the access list of their port",
    configure: |setup| {
        setup.args.finish()?;
        let lists = setup.state::<AccessLists>();
        Ok(Made::new(move |instance| Access::new(lists.as_deref(), Direction::Out, instance)))
    },
};

struct Access {
    /// Lists by number, with this worker's counts.
    lists: Vec<(Arc<Counted>, Arc<Hits>)>,
    /// `None` without a state: everything passes.
    ports: Option<Arc<PortWords>>,
    direction: Direction,
    scratch: Box<Scratch>,
    counted: Vec<u32>,
}

/// Packets of one list and family.
struct Scratch {
    keys: [Key; BATCH],
    places: [u16; BATCH],
    decided: [u32; BATCH],
    len: usize,
}

impl Access {
    fn new(lists: Option<&AccessLists>, direction: Direction, instance: Instance) -> Self {
        let counted = lists.map(AccessLists::counted).unwrap_or_default();
        let with_hits = counted.into_iter().map(|counted| {
            let hits = counted.hits(instance);
            // Takes the memory now, and not with the first packet.
            hits.of(&counted.rules);
            (counted, hits)
        });
        Self {
            lists: with_hits.collect(),
            ports: lists.map(|lists| lists.ports(direction).clone()),
            direction,
            scratch: Box::new(Scratch {
                keys: [[0; WORDS]; BATCH],
                places: [0; BATCH],
                decided: [0; BATCH],
                len: 0,
            }),
            counted: Vec::new(),
        }
    }

    /// Decides the packets of a batch whose port has this word.
    fn decide(&mut self, word: u16, family: Family, ports: &PortWords, batch: &mut Batch) {
        let Self { lists, scratch, counted, direction, .. } = self;
        let Some((list, hits)) = lists.get(usize::from(word) - 1) else { return };
        let (rules, hits) = (&list.rules, hits.of(&list.rules));
        scratch.len = 0;
        for i in 0..batch.len() {
            if ports.word(direction.port(&batch.meta()[i])) != word {
                continue;
            }
            batch.prefetch(i + AHEAD);
            match key_of(packet(batch, i)) {
                Some((found, key)) if found == family => {
                    scratch.keys[scratch.len] = key;
                    scratch.places[scratch.len] = u16::try_from(i).expect("a batch is small");
                    scratch.len += 1;
                }
                // Elements before this one have checked the header.
                _ => {
                    let decided = rules.all_of(packet(batch, i));
                    decided.iter().for_each(|&rule| hits[rule as usize].add(bytes(batch, i)));
                    if decided.last().is_none_or(|&rule| !rules.permits(rule)) {
                        batch.discard(i, DropReason::Acl);
                    }
                }
            }
        }
        let Scratch { keys, places, decided, len } = &mut **scratch;
        let (keys, places, decided) = (&keys[..*len], &places[..*len], &mut decided[..*len]);
        let mut packets = Classified { keys, decided };
        rules.decide(family, &mut packets, |i| packet(batch, usize::from(places[i])));
        let counts = rules.counts();
        for (i, (&place, &mut rule)) in places.iter().zip(packets.decided.iter_mut()).enumerate() {
            let place = usize::from(place);
            let bytes = bytes(batch, place);
            if counts {
                counted.clear();
                rules.counted(family, &keys[i], packet(batch, place), rule, counted);
                counted.iter().for_each(|&rule| hits[rule as usize].add(bytes));
            }
            hits[rule as usize].add(bytes);
            if !rules.permits(rule) {
                batch.discard(place, DropReason::Acl);
            }
        }
    }
}

/// A packet, from its IP header on.
#[inline]
fn packet(batch: &Batch, i: usize) -> &[u8] {
    batch.bytes(i).get(batch.meta()[i].network.into()..).unwrap_or_default()
}

fn bytes(batch: &Batch, i: usize) -> u64 {
    batch.frame_len(i) as u64
}

impl Element for Access {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if input != 0 {
            (0..batch.len()).for_each(|i| batch.output(i, input));
        }
        let Some(ports) = self.ports.clone() else { return };
        let first_v6 = if self.direction == Direction::In { 3 } else { 1 };
        let family = if input < first_v6 { Family::V4 } else { Family::V6 };
        // Nearly always a batch has one list, or none.
        let mut last = 0;
        loop {
            let words = batch.meta().iter().map(|meta| ports.word(self.direction.port(meta)));
            let Some(word) = words.filter(|&word| word > last).min() else { return };
            self.decide(word, family, &ports, batch);
            last = word;
        }
    }
}
