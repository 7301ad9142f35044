//! Why the program in the kernel did not forward a packet: counters, in the order that `forward.c` has.

use fingerpost_packet::frame::DropReason;
use fingerpost_packet::reasons;

reasons! {
    /// Why a packet was left alone, or for the last six dropped.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u32)]
    LeftAlone;
    NotOurs = "not_ours", "Not sent to the interface's own link address.";
    Short = "short", "Shorter than an IP header.";
    Type = "type", "Neither IPv4 nor IPv6, or tagged twice.";
    Header = "header", "An IP header that is wrong.";
    Address = "address", "To or from the host itself, or an address that is not forwarded.";
    Expired = "expired", "TTL or hop limit used up.";
    Options = "options", "IPv4 with options, or another version.";
    NoTable = "no_table", "The tables of this family are not where the program can read, or its packets stay with the kernel.";
    Verdict = "verdict", "The next hop is no neighbor with a known link address on a port: no route, a connected network, an unreachable or prohibit route, or one into a VRF.";
    TooBig = "too_big", "Larger than the MTU of the next hop, or of an internal link.";
    Unresolved = "unresolved", "The next hop's link address is not known.";
    Egress = "egress", "The egress port takes no packets from XDP, or is the ingress port of an interface that sends redirects; in a cluster, the link to the egress node cannot be used.";
    Quoted = "quoted", "ICMP to a group of next hops, which takes the path of the flow that it quotes.";
    PartialChecksum = "partial_checksum", "The checksum is partial, or may be.";
    Damaged = "damaged", "An index that leads nowhere.";
    Away = "away", "The router has been away for too long: the packet is the kernel's.";
    Tag = "tag", "Tagged for no VLAN interface that is forwarded here.";
    Headroom = "headroom", "The driver leaves no room for a tag or an internal header.";
    Feature = "feature", "A feature of the interface needs the graph for it: a rate, uRPF by a large group, or a rule of an ACL.";
    Host = "host", "The kernel's: a route to the host itself, or one that encapsulates packets.";
    Blackhole = "blackhole", "Dropped: the route is a blackhole.";
    Refused = "refused", "Dropped: the port to leave by is gone.";
    SourceFilter = "source_filter", "Dropped: its source is on a list.";
    Urpf = "urpf", "Dropped: its source is not reached by the interface that it arrived on.";
    Acl = "acl", "Dropped: an ACL denies it.";
    LinkFull = "fabric_link_full", "Dropped: beyond the rate of the link to its egress node.";
}

/// Number of reasons.
#[allow(clippy::cast_possible_truncation, reason = "a short list")]
pub(super) const LEFT_ALONE: u32 = LeftAlone::ALL.len() as u32;

/// Those whose packets end in the program.
pub(super) const DROPS: &[LeftAlone] = LeftAlone::ALL.split_at(LeftAlone::Blackhole as usize).1;

// `forward.c` has a word for each.
const _: () = assert!(DROPS.len() <= 8);

impl LeftAlone {
    /// Drop reason of the graph, where the packet is dropped; all others pass to the graph or the kernel.
    pub fn drop_reason(self) -> Option<DropReason> {
        match self {
            Self::Blackhole => Some(DropReason::Blackhole),
            Self::Refused => Some(DropReason::PortDown),
            Self::SourceFilter => Some(DropReason::SourceFilter),
            Self::Urpf => Some(DropReason::Urpf),
            Self::Acl => Some(DropReason::Acl),
            Self::LinkFull => Some(DropReason::FabricLinkFull),
            _ => None,
        }
    }
}
