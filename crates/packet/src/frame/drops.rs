//! Why packets end: one closed list for the whole router, so that in = out + dropped + held.

/// Closed list of reasons: each has the name that counters and documents use, and a line on what
/// it means.
#[macro_export]
macro_rules! reasons {
    ($(#[$attribute:meta])* $list:ident; $($variant:ident = $name:literal, $doc:literal;)*) => {
        $(#[$attribute])*
        pub enum $list {
            $(#[doc = $doc] $variant,)*
        }

        impl $list {
            /// Every reason, in order of its number.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// What counters and documents call it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it means, in a line.
            pub fn summary(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}
reasons! {
    /// Why a packet was dropped.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[repr(u8)]
    DropReason;
    TooShort = "too_short", "Shorter than the headers it must have.";
    BadEtherType = "bad_ether_type", "Neither IPv4 nor IPv6.";
    NotForUs = "not_for_us", "Sent to another host's link address.";
    LinkBroadcast = "link_broadcast", "Unicast packet in a broadcast or multicast frame (RFC 1812 5.3.4).";
    BadVersion = "bad_version", "The version field does not fit the frame's type.";
    BadHeaderLength = "bad_header_length", "Header length below 20 bytes, or past the packet.";
    BadLength = "bad_length", "The length field exceeds what was received, or is below the header's.";
    BadChecksum = "bad_checksum", "The IPv4 header checksum is wrong.";
    MartianSource = "martian_source", "A source that no packet may come from (RFC 1812 5.3.7, RFC 4291).";
    MartianDestination = "martian_destination", "A destination that no router may forward to.";
    Urpf = "urpf", "Its source is not reached by the interface that it arrived on (uRPF, RFC 3704).";
    SourceFilter = "source_filter", "Its source is on a list of prefixes to drop.";
    Acl = "acl", "An access list denied it.";
    Policer = "policer", "It exceeded the rate of a policer.";
    OwnSource = "own_source", "One of our own addresses as the source: a loop or a forgery.";
    Multicast = "multicast", "Multicast is not routed.";
    Scope = "scope", "A link-local address that would leave its link (RFC 4007).";
    DirectedBroadcast = "directed_broadcast", "Sent to the broadcast address of a connected prefix (RFC 2644).";
    TtlExpired = "ttl_expired", "TTL or hop limit used up.";
    BadOption = "bad_option", "An IPv4 option that makes no sense.";
    SourceRouted = "source_routed", "Source-routed packets are not forwarded (RFC 7126).";
    NoRoute = "no_route", "No prefix covers the destination.";
    Blackhole = "blackhole", "The route is a blackhole.";
    Unreachable = "unreachable", "The route is unreachable.";
    Prohibit = "prohibit", "The route is prohibited.";
    Local = "local", "For the host itself, but it reached the fast path.";
    TooBig = "too_big", "Larger than the next hop's MTU, and may not be fragmented.";
    Unresolved = "unresolved", "The next hop's link address did not become known in time.";
    HoldFull = "hold_full", "Too many packets wait for link addresses.";
    HostUnreachable = "host_unreachable", "The next hop does not answer.";
    PortDown = "port_down", "The port to leave by is down or gone.";
    QueueFull = "queue_full", "A queue of the graph is full.";
    TransmitFull = "transmit_full", "The port to leave by took no more.";
    TransmitError = "transmit_error", "The port to leave by refused the packet.";
    NoBuffer = "no_buffer", "No free frame.";
    ErrorSuppressed = "error_suppressed", "An ICMP error that may not be sent, or not this often.";
    LoopGuard = "loop_guard", "Went round inside the router too often.";
    Unwired = "unwired", "The graph has nothing at this output.";
    Consumed = "consumed", "Consumed by an element, as an ARP reply is, or became part of another packet.";
    BadFragment = "bad_fragment", "A fragment that contradicts others of its packet, or makes no sense (RFC 5722).";
    Incomplete = "incomplete", "Of a packet whose fragments did not all come in time, or do not fit a frame.";
    Unmatched = "unmatched", "No pattern or color of those that a graph sorts by.";
    Discarded = "discarded", "Reached an element whose purpose is to drop.";
    Shutdown = "shutdown", "Still held when the worker stopped, or by an element that a new configuration has not.";
    FabricMalformed = "fabric_malformed", "An internal frame of a cluster that is none by its header.";
    FabricNotOurs = "fabric_not_ours", "An internal frame of another cluster, or for another node.";
    FabricPhase = "fabric_phase", "An internal frame that was balanced already and is not at its egress node.";
    FabricDown = "fabric_down", "No path to the egress node of the cluster is up.";
    FabricUnknownNode = "fabric_unknown_node", "The egress node is no member of the cluster.";
    FabricLinkFull = "fabric_link_full", "It exceeded the rate of an internal link.";
    FabricExternal = "fabric_external", "Arrived on an internal interface of the cluster without its header.";
    FabricInternal = "fabric_internal", "An internal frame of the cluster on an external interface.";
    NoWorker = "no_worker", "Inside a worker that failed, or dropped in XDP because no worker would have applied a filter.";
    NoMapping = "no_mapping", "Of a new flow for which address translation has no port left, or no place in its table.";
}

/// How many reasons there are.
pub const REASONS: usize = DropReason::ALL.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_dense_and_distinct() {
        for (i, &reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason as usize, i);
            assert!(DropReason::ALL[..i].iter().all(|r| r.name() != reason.name()));
        }
    }
}
