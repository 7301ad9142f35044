//! The program on an internal interface of a cluster: frames between nodes, without a lookup.
//!
//! At a node between, a frame of the first phase has its hop target set to its egress node and leaves by the link to it,
//! which is charged first (transit has priority over local packets). At the egress node the adjacency index in the frame
//! names the link header that replaces the internal one. All other internal frames go to the socket of the queue, so to
//! the packet graph, probes to the kernel, and what is no internal frame of this cluster and node is dropped. What the
//! program does stands in `fabric.c`, and in plain Rust in `reference.rs`.
//!
//! Source:  RouteBricks (SOSP 2009), sections 3.2 and 6.1: one lookup a packet, at the ingress node.
//! Shape:   regions of words that the graph reads and writes as well ([`FabricWords`]): a line a node for links, 32 bits
//!          an adjacency index and a node; for each CPU 32 counters.
//! Cost:    a line for the link, one for the adjacency; the clock once a packet in transit, where the link has a rate.
//! Limits:  two CPUs that charge one link at once may both be admitted where one packet had room.

#[cfg(test)]
mod reference;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fingerpost_lpm::Region;
use fingerpost_packet::reasons;

use super::XdpError;
use super::bpf::{SharedMemory, possible_cpus};

/// The compiled `fabric.c`.
pub(super) static OBJECT: &[u8] = include_bytes!("fabric.o");

/// Counters of a CPU (`fabric.c`).
const ENDS: usize = 32;

reasons! {
    /// What became of a frame that an internal interface received, in the order that `fabric.c` has. Two kinds are sent, one
    /// is passed to the kernel, those to `egress` are left to the socket of the queue, and the others are dropped.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[repr(u32)]
    FabricEnd;
    Transit = "transit", "Sent on to its egress node.";
    Output = "output", "Sent by the adjacency that it names.";
    Probe = "probe", "A probe, which is the kernel's.";
    NoTable = "no_table", "The tables are not where the program can read.";
    Stale = "stale", "Its adjacency epoch is neither the accepted one nor the one before.";
    Lookup = "lookup", "It names no adjacency, or one that is not resolved.";
    TooBig = "too_big", "Larger than the adjacency's MTU.";
    Egress = "egress", "The egress port takes no packets from XDP.";
    External = "fabric_external", "Dropped: no internal frame.";
    Malformed = "fabric_malformed", "Dropped: an internal frame that is wrong.";
    NotOurs = "fabric_not_ours", "Dropped: for another node, or from another cluster.";
    Phase = "fabric_phase", "Dropped: for another node in the second phase.";
    UnknownNode = "fabric_unknown_node", "Dropped: its egress node has a number that no member can have.";
    LinkDown = "fabric_down", "Dropped: the link to its egress node cannot be used.";
    LinkFull = "fabric_link_full", "Dropped: beyond the rate of the link to its egress node.";
    Refused = "refused", "Dropped: the port to leave by is gone.";
    NoSocket = "no_socket", "Dropped: to be left to the socket of its queue, which has none.";
}

/// Place of the counter of packets that the programs of external interfaces sent into the cluster (`forward.c`).
const ENTERED: usize = ENDS - 1;

const _: () = assert!(FabricEnd::ALL.len() <= ENTERED);

/// Numbers that a program has of its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FabricSettings {
    /// Number of this node.
    pub node: u16,
    /// Id of the cluster.
    pub cluster: u8,
    /// EtherType of internal frames.
    pub ethertype: u16,
}

/// Words that graph and programs share. Make them in the memory of [`Forwarder::shared`](super::forward::Forwarder::shared);
/// in other memory the program leaves the frames that need them to the socket.
#[derive(Clone, Debug)]
pub struct FabricWords {
    /// Links, 8 words of 64 bits a node: until which time (of the monotonic clock, in ns) all packets occupy the link, and those in
    /// transit alone; port in the low 16 bits, whether it is usable in bit 16 and there in bit 17; ns a byte, shifted left by
    /// 16; limit of the backlog in ns; dropped packets in transit, dropped local ones; bytes sent.
    pub links: Region,
    /// Adjacencies, 32 bits an index of this node: that of the hop table and 1, or 0 for none.
    pub outputs: Region,
    /// Epochs, 32 bits a node: that of its adjacency indices in the low 8; of this node, the accepted one.
    pub nodes: Region,
}

/// What the program of an internal interface finishes; other frames go to the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FabricReads {
    /// Frames for other nodes.
    pub transits: bool,
    /// Frames for this one.
    pub delivers: bool,
}

/// What the programs of all internal interfaces of a node share.
#[derive(Debug)]
pub struct Fabric {
    settings: FabricSettings,
    words: FabricWords,
    memory: Arc<SharedMemory>,
    ends: Region,
}

impl Fabric {
    /// The settings and words of a node, with counters of their own.
    ///
    /// # Errors
    /// When the kernel makes no map.
    pub fn new(settings: FabricSettings, words: FabricWords) -> Result<Self, XdpError> {
        let cpus =
            possible_cpus().map_err(|source| XdpError::System { call: "possible CPUs", source })?;
        let bytes = cpus.next_power_of_two() * ENDS * 8;
        let memory = SharedMemory::new("ends", bytes)?;
        let ends = memory.region("ends", bytes);
        Ok(Self { settings, words, memory, ends })
    }

    /// The settings.
    pub fn settings(&self) -> FabricSettings {
        self.settings
    }

    /// The shared words.
    pub fn words(&self) -> &FabricWords {
        &self.words
    }

    /// Frames that internal interfaces received, by what became of them. Each is counted once.
    pub fn counts(&self) -> Vec<(FabricEnd, u64)> {
        FabricEnd::ALL.iter().map(|&end| (end, self.sum(end as usize))).collect()
    }

    /// Packets that external interfaces received and their programs sent to their egress node
    /// ([`Forwarder::enter`](super::forward::Forwarder::enter)).
    pub fn entered(&self) -> u64 {
        self.sum(ENTERED)
    }

    fn sum(&self, at: usize) -> u64 {
        // Relaxed: numbers of a program that may be running, read for people.
        self.ends.u64s().chunks_exact(ENDS).map(|cpu| cpu[at].load(Relaxed)).sum()
    }

    /// The counters, for programs.
    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "bytes and indices of the tests are small")]
mod tests;
