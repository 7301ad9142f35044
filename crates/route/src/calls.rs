//! The lookup calls of the data path: one address in, what happens to its packets out.
//!
//! Source: FreeBSD's `fib4_lookup`, `fib6_lookup` and `fib4_check_urpf`, `fib6_check_urpf`
//! (sys/netinet/in_fib.c, sys/netinet6/in6_fib.c). Differs: a reference flag is not needed, as an answer
//! is good for as long as the [`Forwarding`] it came from is pinned; a member of a group whose link is
//! down is no member, so that the flow has another one instead of none. The calls that give the route
//! too, `fib4_lookup_rt` and `fib6_lookup_rt`, are [`crate::Control::lookup_route`].
//!
//! Workers ask for batches ([`Forwarding::v4_of`]); these are for who asks for one.

use std::net::{Ipv4Addr, Ipv6Addr};

use fingerpost_lpm::NextHopId;

use crate::forwarding::Forwarding;
use crate::hops::ForwardingAction;

/// How a lookup is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LookupFlags {
    /// A default route is none (FreeBSD's NHR_NODEFAULT): for checks of where a packet may come from.
    pub no_default: bool,
}

/// What happens to packets to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Index of the next hop or group; `NONE` for a station on a link that was named by its scope.
    pub hop: NextHopId,
    /// What packets of the flow do.
    pub action: ForwardingAction,
}

impl Forwarding {
    /// What happens to IPv4 packets to `dst` by the table of a fib; those of equal `flow` go by the same
    /// member of a group. `None` without a route.
    pub fn fib4_lookup(
        &self,
        fib: u16,
        dst: Ipv4Addr,
        flow: u32,
        flags: LookupFlags,
    ) -> Option<Answer> {
        self.answer(self.v4_of(fib).lookup(dst.to_bits()), flow, flags)
    }

    /// The same for IPv6. A link-local destination is on the link that `scope` names by its kernel index,
    /// and nowhere without one; other destinations have no scope (RFC 4007).
    pub fn fib6_lookup(
        &self,
        fib: u16,
        dst: Ipv6Addr,
        scope: u32,
        flow: u32,
        flags: LookupFlags,
    ) -> Option<Answer> {
        if dst.is_unicast_link_local() {
            let on_link = |port: &Option<_>| {
                port.as_ref().is_some_and(|info: &crate::PortInfo| info.link == scope && info.up)
            };
            let port = u16::try_from(self.ports.ports.iter().position(on_link)?).ok()?;
            return Some(Answer { hop: NextHopId::NONE, action: ForwardingAction::Glean(port) });
        }
        self.answer(self.v6_of(fib).lookup(dst.to_bits()), flow, flags)
    }

    /// Whether packets from `src` may come in: there is a route to it, and if a port is given one that
    /// leaves by this port (RFC 3704, strict; any member of a group will do). Without a port: loose.
    pub fn fib4_check_urpf(
        &self,
        fib: u16,
        src: Ipv4Addr,
        port: Option<u16>,
        flags: LookupFlags,
    ) -> bool {
        self.fib4_lookup(fib, src, 0, flags).is_some_and(|answer| self.leaves_by(answer, port))
    }

    /// The same for IPv6.
    pub fn fib6_check_urpf(
        &self,
        fib: u16,
        src: Ipv6Addr,
        scope: u32,
        port: Option<u16>,
        flags: LookupFlags,
    ) -> bool {
        let answer = self.fib6_lookup(fib, src, scope, 0, flags);
        answer.is_some_and(|answer| self.leaves_by(answer, port))
    }

    fn answer(&self, hop: NextHopId, flow: u32, flags: LookupFlags) -> Option<Answer> {
        if hop.is_none() || flags.no_default && self.defaults.contains(&hop) {
            return None;
        }
        Some(Answer { hop, action: self.hops.action(hop, flow) })
    }

    /// Whether packets of some flow with this next hop leave, by this port or (`None`) by any.
    #[inline]
    pub fn leads_out(&self, hop: NextHopId, port: Option<u16>) -> bool {
        self.hops.any_action(hop, |action| self.leaves(action, port))
    }

    #[inline]
    fn leaves(&self, action: ForwardingAction, port: Option<u16>) -> bool {
        let by = match action {
            ForwardingAction::Adjacency(index) => self.hops.view().packed_adjacency(index).port(),
            ForwardingAction::Glean(on) => on,
            _ => return false,
        };
        port.is_none_or(|port| by == port)
    }

    fn leaves_by(&self, answer: Answer, port: Option<u16>) -> bool {
        match (port, answer.hop.is_none()) {
            (None, _) => true,
            (_, true) => self.leaves(answer.action, port),
            (_, false) => self.leads_out(answer.hop, port),
        }
    }
}
