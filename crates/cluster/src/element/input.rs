//! `ClusterInput`: the path of a packet through the fabric, and the internal header.
//!
//! Source: RouteBricks, SOSP 2009, section 3; `rule` has what differs.
//! Shape:  packets whose egress port is the fabric interface arrive with a link header whose destination names the egress node
//!         and its adjacency ([`FabricAddr`]); they leave with the internal header by an internal port. Others pass.
//! Cost:   a hash of the flow, an entry of the flowlet table, three backlogs at most; 4 bytes more in front of the packet.
//!
//! A packet that comes from another node and was looked up to a third one has its TTL counted down once more: the output
//! node gave the first count back, so a routing loop between nodes would never end.
//!
//! In mode `direct` packets take the direct link, without hash and flowlet, where it is up.

use std::sync::Arc;

use fingerpost_lpm::Rng;
use fingerpost_packet::frame::wire::{ETHER_BYTES, Ether, ether};
use fingerpost_packet::frame::{Batch, DropReason, Note, flow};
use fingerpost_packet::graph::{Context, Element, ElementClass, Instance, Made};
use fingerpost_packet::language::ClassSpec;
use fingerpost_route::Reader;

use super::hops;
use super::reason::Reason;
use crate::fabric::{Charges, Class, Fabric, Mode, NodeCounts, PathSettings, PortRole};
use crate::flowlet::{Flow, Flowlets, Outcome};
use crate::frame::{EXTRA_BYTES, FULL_BYTES, FabricAddr, FrameClass, HEADER_BYTES, Header};
use crate::rule::{Local, Members, NodeId, Path, Phase, Rule, choose};

pub(super) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("ClusterInput", "1/1", "h/h", "x/x"),
    summary: "chooses the path of packets to other cluster nodes, and writes the internal header",
    configure: |setup| {
        setup.args.finish()?;
        let fabric = super::state(setup)?;
        Ok(Made::new(move |instance| ClusterInput::new(fabric.clone(), instance)))
    },
};

/// Entries of the flowlet table: 512 KiB.
const FLOWLETS: usize = 1 << 16;

/// Nanoseconds of a tick of flowlets, as a shift: 1.024 us, so that the counter wraps after 73 minutes.
const TICK_SHIFT: u32 = 10;

/// Bytes that the internal header adds, as a length.
const EXTRA: u64 = EXTRA_BYTES as u64;

struct ClusterInput {
    fabric: Arc<Fabric>,
    members: Reader<Members>,
    counts: Arc<NodeCounts>,
    /// How paths are chosen in this batch.
    paths: PathSettings,
    flowlets: Flowlets,
    queues: Queues,
    draws: Rng,
}

/// Backlogs of the links and allowances as this batch leaves them.
struct Queues {
    fabric: Arc<Fabric>,
    links: Charges,
    allowances: Charges,
}

impl Local for Queues {
    #[inline]
    fn backlog(&self, to: NodeId) -> u64 {
        self.links.backlog_ns(&self.fabric.links, to)
    }

    #[inline]
    fn allowance(&self, to: NodeId) -> bool {
        !self.allowances.is_full(&self.fabric.allowances, to, FULL_BYTES)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "ticks wrap, as the table expects")]
fn ticks(now_ns: u64) -> u32 {
    (now_ns >> TICK_SHIFT) as u32
}

impl ClusterInput {
    fn new(fabric: Arc<Fabric>, instance: Instance) -> Self {
        // Of another worker it would be the same sequence, of other flows.
        let draws = Rng::new(u64::from(fabric.settings.node) + 1);
        let queues = Queues {
            fabric: fabric.clone(),
            links: Charges::of(instance),
            allowances: Charges::of(instance),
        };
        Self {
            members: fabric.reader(),
            counts: fabric.counts.add(instance),
            paths: fabric.paths(),
            flowlets: Flowlets::new(FLOWLETS, ticks(fabric.paths().flowlet_ns)),
            queues,
            draws,
            fabric,
        }
    }

    /// Begins a batch by the settings of this moment.
    fn begin(&mut self, now_ns: u64) {
        let paths = self.fabric.paths();
        if paths.flowlet_ns != self.paths.flowlet_ns {
            self.flowlets.set_delta(ticks(paths.flowlet_ns));
        }
        self.paths = paths;
        self.members.pin();
        let now = self.fabric.link_time(now_ns);
        self.queues.links.begin(now);
        self.queues.allowances.begin(now);
    }

    /// The path of packet `i` to its egress node.
    fn path(&mut self, i: usize, to: NodeId, batch: &Batch, cx: &mut Context<'_>) -> Option<Path> {
        let (from, paths, members) = (self.fabric.settings.node, self.paths, self.members.pinned());
        if paths.mode == Mode::Direct && members.direct(from, to) {
            cx.reason = Reason::ModeDirect.number();
            return Some(Path::Direct);
        }
        let frame = batch.bytes(i);
        let packet = frame.get(ETHER_BYTES..).unwrap_or_default();
        let hash = match Ether::of(frame).map(Ether::kind) {
            Some(ether::TYPE_IP6) => flow::of_ip6(cx.flow_seed, packet),
            _ => flow::of_ip4(cx.flow_seed, packet),
        };
        let (queues, draws, bytes) = (&self.queues, &mut self.draws, frame.len() as u64);
        let full =
            |path: Path| queues.links.is_full(&queues.fabric.links, path.first(to), bytes + EXTRA);
        let fresh = || choose(&paths.rule, members, from, to, queues, draws.word());
        let flow = Flow { hash, from, to };
        let (choice, outcome) = self.flowlets.path(members, flow, ticks(cx.now_ns), full, fresh)?;
        cx.reason = Reason::Rule(choice.why, outcome).number();
        match outcome {
            Outcome::Began => self.counts.flowlets.add(1),
            Outcome::Lost => self.counts.rechosen.add(1),
            Outcome::Sprayed => self.counts.sprayed.add(1),
            Outcome::Kept | Outcome::Local => {}
        }
        Some(choice.path)
    }

    /// Encapsulates packet `i`.
    fn send(
        &mut self,
        i: usize,
        fabric: &Fabric,
        batch: &mut Batch,
        cx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let settings = &fabric.settings;
        let dst = batch.bytes(i).first_chunk().copied().ok_or(DropReason::TooShort)?;
        let FabricAddr { adjacency, output } =
            FabricAddr::of(dst).ok_or(DropReason::FabricMalformed)?;
        if usize::from(output) >= self.members.pinned().len() || output == settings.node {
            return Err(DropReason::FabricUnknownNode);
        }
        if fabric.role(batch.meta()[i].port) == PortRole::Internal && !hops::count_down(batch, i) {
            return Err(DropReason::TtlExpired);
        }
        let path = self.path(i, output, batch, cx).ok_or(DropReason::FabricDown)?;
        let hop = path.first(output);
        let port = fabric.links.usable(hop).ok_or(DropReason::FabricDown)?.port;
        let bytes = batch.frame_len(i) as u64 + EXTRA;
        if !self.queues.links.charge(&fabric.links, hop, Class::Local, bytes) {
            return Err(DropReason::FabricLinkFull);
        }
        if hop == output && self.paths.rule.rule == Rule::Fixed {
            self.queues.allowances.charge(&fabric.allowances, hop, Class::Local, bytes);
        }
        if !batch.push_front(i, EXTRA_BYTES) {
            return Err(DropReason::NoBuffer);
        }
        let phase = if hop == output { Phase::Second } else { Phase::First };
        let header = Header {
            cluster: settings.cluster,
            hop,
            output,
            sender: settings.node,
            phase,
            epoch: fabric.epoch(output),
            ethertype: settings.ethertype,
            adjacency,
            class: FrameClass::Data,
        };
        batch.bytes_mut(i)[..HEADER_BYTES].copy_from_slice(&header.bytes());
        batch.meta_mut()[i].note = Note::egress(port);
        let count = if hop == output { &self.counts.direct } else { &self.counts.balanced };
        count.add(1);
        Ok(())
    }
}

impl Element for ClusterInput {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        // Once a batch: the borrows of a packet are of what it changes.
        let fabric = self.fabric.clone();
        let Some(fabric_port) = fabric.fabric_port() else { return };
        self.begin(cx.now_ns);
        for i in 0..batch.len() {
            if batch.meta()[i].note != Note::egress(fabric_port) {
                continue;
            }
            if let Err(reason) = self.send(i, &fabric, batch, cx) {
                batch.discard(i, reason);
            }
        }
        self.queues.links.end(&fabric.links);
        self.queues.allowances.end(&fabric.allowances);
    }
}
