//! The policers' step in the graph: packets of a port take tokens from the first policer of the port that takes them.
//!
//! Cost: a look at the port of each packet; where a port has policers, their conditions in order.

use std::sync::Arc;

use super::{Exceed, Hits, Policers, Running};
use crate::element::click::set_ip_dscp::mark;
use crate::feature::acl::Direction;
use crate::feature::ports::PortWords;
use crate::frame::{BATCH, Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Instance, Made};
use crate::language::ClassSpec;

pub(super) const INGRESS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPPolicerIn", "5/5", "h/h", "#/#")
        .outputs(&["forward4", "options4", "error4", "forward6", "error6"]),
    summary: "bounds the rate of packets that arrive, by the policers of their port",
    configure: |setup| {
        setup.args.finish()?;
        let policers = setup.state::<Policers>();
        Ok(Made::new(move |instance| Police::new(policers.as_deref(), Direction::In, instance)))
    },
};

pub(super) const EGRESS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPPolicerOut", "2/2", "h/h", "#/#").outputs(&["out4", "out6"]),
    summary: "bounds the rate of packets that leave, by the policers of their port",
    configure: |setup| {
        setup.args.finish()?;
        let policers = setup.state::<Policers>();
        Ok(Made::new(move |instance| Police::new(policers.as_deref(), Direction::Out, instance)))
    },
};

/// Policers of a port in order, with this worker's counts.
type Chain = Vec<(Arc<Running>, Arc<Hits>)>;

struct Police {
    /// Chains by number.
    chains: Vec<Chain>,
    /// `None` without a state: everything passes.
    ports: Option<Arc<PortWords>>,
    direction: Direction,
    /// Number of each packet's policer in the chain at hand; [`NONE`] for no policer.
    by: Box<[u16; BATCH]>,
}

const NONE: u16 = u16::MAX;

impl Police {
    fn new(policers: Option<&Policers>, direction: Direction, instance: Instance) -> Self {
        let chain = |chain: &Vec<Arc<Running>>| {
            chain.iter().map(|one| (one.clone(), one.hits.add(instance))).collect::<Chain>()
        };
        Self {
            chains: policers.iter().flat_map(|all| &all.chains).map(|(.., c)| chain(c)).collect(),
            ports: policers.map(|policers| policers.ports(direction).clone()),
            direction,
            by: Box::new([NONE; BATCH]),
        }
    }

    /// Polices the packets of a batch whose port has this word.
    fn police(&mut self, word: u16, ports: &PortWords, batch: &mut Batch, now_ns: u64) {
        let Self { chains, direction, by, .. } = self;
        let Some(chain) = chains.get(usize::from(word) - 1) else { return };
        for (i, by) in by.iter_mut().enumerate().take(batch.len()) {
            let meta = batch.meta()[i];
            let takes = |(one, _): &(Arc<Running>, _)| {
                let packet = || batch.bytes(i).get(meta.network.into()..).unwrap_or_default();
                one.filter.as_ref().is_none_or(|filter| filter.matches(packet()))
            };
            let found = if ports.word(direction.port(&meta)) == word {
                chain.iter().position(takes)
            } else {
                None
            };
            *by = found.map_or(NONE, |number| u16::try_from(number).expect("policers are bounded"));
        }
        for (number, (one, hits)) in (0..).zip(chain) {
            let of_bytes = one.policer.rate.is_of_bytes();
            let tokens = |i: usize, batch: &Batch| {
                if of_bytes { batch.frame_len(i) as u64 } else { 1 }
            };
            let taken = |i: &usize| by[*i] == number;
            let mine = (0..batch.len()).filter(taken);
            let (packets, all) =
                mine.clone().fold((0, 0), |(n, sum), i| (n + 1, sum + tokens(i, batch)));
            if packets == 0 {
                continue;
            }
            hits.packets.add(packets);
            hits.bytes.add(mine.clone().map(|i| batch.frame_len(i) as u64).sum());
            if one.bucket.take_all(all, now_ns) {
                continue;
            }
            for i in mine {
                if one.bucket.take(tokens(i, batch), now_ns) {
                    continue;
                }
                hits.exceeding.add(1);
                match one.policer.exceed {
                    Exceed::Drop => batch.discard(i, DropReason::Policer),
                    Exceed::Dscp(dscp) => {
                        let network = batch.meta()[i].network.into();
                        mark(batch.bytes_mut(i), network, dscp << 2);
                    }
                }
            }
        }
    }
}

impl Element for Police {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if input != 0 {
            (0..batch.len()).for_each(|i| batch.output(i, input));
        }
        let Some(ports) = self.ports.clone() else { return };
        // Nearly always a batch has one chain, or none.
        let mut last = 0;
        loop {
            let words = batch.meta().iter().map(|meta| ports.word(self.direction.port(meta)));
            let Some(word) = words.filter(|&word| word > last).min() else { return };
            self.police(word, &ports, batch, cx.now_ns);
            last = word;
        }
    }
}
