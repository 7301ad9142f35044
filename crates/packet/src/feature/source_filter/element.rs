//! `IPSourceFilter`: passes, drops or limits packets by the lists that their source is on, of those for the port that
//! they arrived on.
//!
//! Source: as of `SourceFilter`, whose parts it is made of. The lists, and the ports that they are for, are the state
//! [`SourceFilters`]; without it all packets pass.
//!
//! A dropped packet is reported to nobody, since an ICMP error would go to a source that is not wanted. One element for
//! both families, so that both use up one rate.
//!
//! Cost: as of `SourceFilter`, and a look at the port of each packet. A batch of ports without a list costs that alone.

use std::sync::Arc;

use super::filters::SourceFilters;
use crate::element::router::ether_input::AHEAD;
use crate::element::support::lookups::Lookups;
use crate::element::support::source_sets::Judge;
use crate::feature::ports::PortWords;
use crate::frame::wire::{ETHER_BYTES, IP4_BYTES, IP6_BYTES};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;
use crate::prefix_sets::SetsReader;
use crate::route_table::Family;

pub(super) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPSourceFilter", "5/5", "h/h", "#/#")
        .outputs(&["forward4", "options4", "error4", "forward6", "error6"]),
    summary: "the source filters of the router's configuration, by the port that a packet arrived on",
    configure: |setup| {
        setup.args.finish()?;
        let filters = setup.state::<SourceFilters>().unwrap_or_default();
        let exit = setup.exit(BEHIND_THE_LAST, DropReason::SourceFilter);
        Ok(Made::new(move |instance| {
            let (reader, hits) = filters.reader(instance);
            IpSourceFilter {
                reader,
                judge: Judge::new(hits, filters.rules(), exit),
                ports: filters.ports().clone(),
                v4: Lookups::new(),
                v6: Lookups::new(),
            }
        }))
    },
};

/// The first input of IPv6.
const FIRST_V6: u16 = 3;
/// No output: dropped.
const BEHIND_THE_LAST: u16 = 5;

struct IpSourceFilter {
    reader: SetsReader,
    judge: Judge,
    ports: Arc<PortWords>,
    v4: Lookups<u32>,
    v6: Lookups<u128>,
}

impl Element for IpSourceFilter {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if input != 0 {
            (0..batch.len()).for_each(|i| batch.output(i, input));
        }
        let Self { reader, judge, ports, v4, v6 } = self;
        if batch.meta().iter().fold(0, |all, meta| all | ports.word(meta.port)) == 0 {
            return;
        }
        if input < FIRST_V6 {
            gather::<u32, { ETHER_BYTES + IP4_BYTES }>(v4, batch, 4);
            reader.v4.lookup_batch(&v4.addrs[..v4.len], &mut v4.answers[..v4.len]);
            judge.all(v4, batch, |batch, i| ports.word(batch.meta()[i].port));
        } else {
            gather::<u128, { ETHER_BYTES + IP6_BYTES }>(v6, batch, 6);
            reader.v6.lookup_batch(&v6.addrs[..v6.len], &mut v6.answers[..v6.len]);
            judge.all(v6, batch, |batch, i| ports.word(batch.meta()[i].port));
        }
        judge.limit(batch, cx.now_ns);
    }
}

/// The sources of a batch, whose headers were checked.
fn gather<A: Family, const FRONT: usize>(lookups: &mut Lookups<A>, batch: &mut Batch, version: u8) {
    lookups.clear();
    if lookups.fill::<FRONT>(batch, version) {
        return;
    }
    lookups.clear();
    for i in 0..batch.len() {
        batch.prefetch(i + AHEAD);
        if let Some(src) = A::src(batch.bytes(i), batch.meta()[i].network.into()) {
            lookups.push(src, i);
        }
    }
}
