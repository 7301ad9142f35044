//! Routes of FRR's zebra, which connects and sends them: the Forwarding Plane Manager stream of its module
//! `dplane_fpm_nl`.
//!
//! Source: FRR, `zebra/dplane_fpm_nl.c`, `zebra/rt_netlink.c`, `doc/developer/fpm.rst` (8.4 to 10); the messages are
//! rtnetlink's, see [`crate::netlink`]. Recorded streams of 8.4.4 are among the tests.
//!
//! Shape: frames, of which each has one or more messages, in the byte order of zebra's host, which is taken to be ours:
//!
//! ```text
//! | version 1 | type 1 | length u16, in network order, these 4 bytes included | message | message | ...
//! ```
//!
//! **A frame is one change.** An update of a route is a deletion and an addition in one frame (unless zebra has
//! `fpm use-route-replace`). So deletions of routes and of objects wait for the end of their frame, and what the
//! frame adds again is replaced: it keeps its next-hop group, and the flows of it. After each frame follows
//! [`RouteEvent::Commit`]. With `fpm use-route-replace`, the default since FRR 10, an update is one addition: the route of
//! its key replaces the one before, whatever protocol either has.
//!
//! **End of the table.** Zebra sends everything after it has connected and does not report the end of that. The table
//! is complete by the rules of [`super::replay`]. Then routes of the session before that were not repeated are withdrawn; until then they forward.
//!
//! **Acknowledgements.** FRR 8.5 and later read the stream in the other direction. Each route returns as it came, with
//! `RTM_F_OFFLOAD`, once readers see it, or with `RTM_F_OFFLOAD_FAILED` where it was refused, in the form of that frame:
//! see [`acks`]. FRR before 8.5 reads and ignores them.
//!
//! **Numbers of objects.** A zebra that was restarted numbers its next-hop objects anew, and routes of the session before
//! still name those of before. So objects of each session have numbers of their own: zebra's, with the number of the
//! session above [`SESSION_BITS`]. These repeat after [`SessionSpec::DISTINCT`] sessions. A session whose table is complete
//! leaves no object of those before it; and the routes of a peer go before so many sessions in a row have ended without one.
//!
//! **Left out.** Routes of the kernel itself (protocol 2: connected prefixes, and what others set in the kernel): they
//! come from the source `kernel` and from addresses, and zebra does not always report their end (frr#19637). One that is
//! added withdraws the route that it replaces. Neighbors
//! and link-layer entries of EVPN.
//!
//! Cost: about 150 ns a route; memory for each next-hop object, and for each route that is to be acknowledged and not
//! yet visible, or whose object is not there or encapsulates packets (some 250 bytes).
//! Limits: messages in the byte order of this host. A frame of another type than netlink is counted and skipped, a
//! message that cannot be read ends its frame. Routes that would encapsulate packets (MPLS, segment routing) are refused
//! and counted, and their packets are for the host: no other route takes them, and the kernel, which has the route, forwards
//! them. Refused and counted are label routes, and routes for a type of service or a source prefix alone. Tables are numbered as the kernel's, not by VRF interface as SONiC's zebra does.

mod acks;
mod objects;
#[cfg(test)]
mod tests;

use std::time::Instant;

use super::replay::Replay;
use super::rtnetlink::{self, Body, Unsupported};
use super::{
    Refused, Rejected, RouteSource, SessionSpec, SourceError, SourceKind, SourceSpec, Transport,
};
use crate::event::{NextHopUpdate, ObjectTarget, RouteEvent, RouteKey, RouteUpdate, Target};
use crate::netlink::nexthop::{self, NextHop};
use crate::netlink::route::{self, PROTOCOL_KERNEL, Route};
use crate::netlink::{Malformed, Message, Messages};
use acks::{Acks, Outcome};
use objects::Objects;

/// Protocols that zebra sets routes in the kernel with: its own, and one for each of its clients (`RTPROT_ZEBRA`;
/// `RTPROT_BABEL`; `RTPROT_BGP`, IS-IS, OSPF, RIP, RIPng, NHRP, EIGRP, LDP, sharp, PBR, static, OpenFabric, SR-TE).
const ZEBRA: &[u8] = &[11, 42, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196, 197, 198];

pub(super) const KIND: SourceKind = SourceKind {
    name: "fpm",
    summary: "FRR's zebra, which connects and sends its routes (module dplane_fpm_nl)",
    transport: Transport::Sessions { listen: "127.0.0.1:2620" },
    // Zebra has chosen among its own by their distances.
    distance: 20,
    mirrored: ZEBRA,
    open: |spec| Ok(Box::new(Fpm::new(spec))),
};

const VERSION: u8 = 1;
/// The type of a frame of netlink messages.
const NETLINK: u8 = 1;
const HEADER_BYTES: usize = 4;

/// Bits of a number that are zebra's: FRR gives numbers below 250,000,000 (`ZEBRA_NHG_PROTO_UPPER`).
const SESSION_BITS: u32 = 28;

/// Deletions of a frame that is not at its end.
#[derive(Debug, Default)]
struct Held {
    routes: Vec<RouteKey>,
    objects: Vec<u32>,
}

/// One session.
struct Fpm {
    replay: Replay,
    held: Held,
    objects: Objects,
    /// What makes zebra's numbers of objects those of the session.
    numbers: u32,
    acks: Option<Acks>,
    /// Frames so far: the number of the latest commit.
    frames: u64,
    rejected: Rejected,
}

type Sink<'a> = &'a mut dyn FnMut(RouteEvent);

impl Fpm {
    fn new(spec: &SourceSpec) -> Self {
        Self {
            replay: Replay::new(spec.session.sweep_after),
            held: Held::default(),
            objects: Objects::default(),
            numbers: ((spec.session.number % SessionSpec::DISTINCT) as u32) << SESSION_BITS,
            acks: spec.session.acknowledge.then(Acks::default),
            frames: 0,
            rejected: Rejected::default(),
        }
    }
}

impl RouteSource for Fpm {
    fn input(
        &mut self,
        mut bytes: &[u8],
        now: Instant,
        sink: Sink<'_>,
    ) -> Result<usize, SourceError> {
        if self.replay.begin(now) {
            sink(RouteEvent::StartOfTable);
        }
        let numbers = self.numbers;
        let sink: Sink<'_> = &mut |event| sink(numbered(event, numbers));
        let given = bytes.len();
        while let &[version, kind, high, low, ..] = bytes {
            let len = usize::from(u16::from_be_bytes([high, low]));
            if version != VERSION || len < HEADER_BYTES {
                let what = format!(
                    "version {version} and length {len} are not those of an FPM frame: its version is {VERSION}, its \
                     length at least {HEADER_BYTES} bytes"
                );
                self.rejected.add(|| format!("frame {}: {what}", self.frames + 1));
                return Err(SourceError::Syntax {
                    place: format!("frame {}", self.frames + 1),
                    what,
                });
            }
            let Some((frame, rest)) = bytes.split_at_checked(len) else { break };
            bytes = rest;
            self.frames += 1;
            let messages = match kind {
                NETLINK => self.frame(&frame[HEADER_BYTES..], sink),
                _ => {
                    self.reject(&format_args!("type {kind}, which is not netlink's, 1"));
                    1
                }
            };
            self.replay.note(messages, now);
            sink(RouteEvent::Commit(self.frames));
        }
        Ok(given - bytes.len())
    }

    fn tick(&mut self, now: Instant, sink: Sink<'_>) {
        if self.replay.completes(false, now) {
            sink(RouteEvent::EndOfTable);
        }
    }

    fn output(&mut self, out: &mut Vec<Vec<u8>>) {
        out.extend(self.acks.as_mut().and_then(Acks::take));
    }

    fn visible(&mut self, commit: u64, refused: &[Refused]) {
        if let Some(acks) = &mut self.acks {
            acks.visible(commit, refused);
        }
    }

    fn rejected(&self) -> Rejected {
        self.rejected.clone()
    }
}

impl Fpm {
    /// Takes the messages of a frame; returns how many they were.
    fn frame(&mut self, bytes: &[u8], sink: Sink<'_>) -> u32 {
        let mut count = 0;
        for message in Messages::new(bytes) {
            count += 1;
            let taken = match message {
                Ok(message) => self.message(&message, sink),
                // What else the frame holds is lost with it.
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                self.reject(&error);
            }
        }
        for key in self.held.routes.drain(..) {
            sink(RouteEvent::Withdraw(key));
        }
        for id in self.held.objects.drain(..) {
            self.objects.remove(id);
            if let Some(acks) = &mut self.acks {
                acks.object_gone(id);
            }
            sink(RouteEvent::NextHopGone(id));
        }
        count
    }

    fn message(&mut self, message: &Message<'_>, sink: Sink<'_>) -> Result<(), Malformed> {
        match message.kind {
            route::NEW => self.route_added(message, sink)?,
            route::DEL => {
                if let Some(route) = Route::parse(message)?
                    && route.protocol != PROTOCOL_KERNEL
                    && let (key, Ok(())) = rtnetlink::key(&route)
                {
                    self.withdraw(key);
                }
            }
            nexthop::NEW => {
                let found = NextHop::parse(message)?;
                self.held.objects.retain(|&held| held != found.id);
                match self.objects.put(&found, sink) {
                    Ok(()) => self.arrived(found.id),
                    Err(why) => {
                        self.encapsulates(found.id);
                        self.reject(&format_args!("next-hop object {}: {why}", found.id));
                    }
                }
            }
            nexthop::DEL => self.held.objects.push(NextHop::parse(message)?.id),
            _ => {}
        }
        Ok(())
    }

    fn route_added(&mut self, message: &Message<'_>, sink: Sink<'_>) -> Result<(), Malformed> {
        let Some(route) = Route::parse(message)? else {
            let family = message.body.first().copied().unwrap_or_default();
            self.reject(&format_args!("route of address family {family}, neither IPv4 nor IPv6"));
            return Ok(());
        };
        let (key, supported) = rtnetlink::key(&route);
        if route.protocol == PROTOCOL_KERNEL {
            if supported.is_ok() {
                self.withdraw(key);
            }
            return Ok(());
        }
        if let Err(Unsupported(why)) = supported {
            // It is another route than the one for all packets to the prefix, which stays.
            self.reject(&format_args!("route {}: {why}", key.prefix));
            return Ok(());
        }
        // Zebra deletes a route right before it adds another one.
        self.held.routes.retain(|held| *held != key);
        let outcome = match self.body(&route, key) {
            Ok((Body { target, mtu }, is_wrapped)) => {
                let outcome = if is_wrapped {
                    let prefix = key.prefix;
                    self.reject(&format_args!("route {prefix}: its packets would be encapsulated"));
                    match target {
                        // Packets follow it once the object does not encapsulate them any more.
                        Target::Object(id) => Outcome::Awaits(id),
                        _ => Outcome::Refused,
                    }
                } else {
                    self.outcome(&target, key)
                };
                sink(RouteEvent::Route(RouteUpdate { mtu, ..RouteUpdate::new(key, target) }));
                outcome
            }
            Err(why) => {
                self.reject(&format_args!("route {}: {why}", key.prefix));
                // The route that it replaces is gone all the same.
                self.held.routes.push(key);
                Outcome::Refused
            }
        };
        if let Some(acks) = &mut self.acks {
            acks.add(key, message, self.frames, outcome);
        }
        Ok(())
    }

    /// What becomes of a route with this target.
    fn outcome(&mut self, target: &Target, key: RouteKey) -> Outcome {
        let Target::Object(id) = *target else { return Outcome::Taken };
        if self.objects.leads(id) {
            return Outcome::TakenBy(id);
        }
        // FRR sends a group before its members.
        if !self.objects.has(id) {
            self.reject(&format_args!(
                "route {}: next-hop object {id}, which is not known",
                key.prefix
            ));
        }
        // No packet follows it before the object comes.
        Outcome::Awaits(id)
    }

    /// What the route does, and whether its packets would be encapsulated; or why it is refused.
    fn body(&self, route: &Route<'_>, key: RouteKey) -> Result<(Body, bool), String> {
        let line = rtnetlink::line(route, key, false).map_err(|error| error.to_string())?;
        let body = line.body.ok_or("without a next hop that can be used")?;
        let is_wrapped = line.wrapped
            || matches!(body.target, Target::Object(id) if self.objects.wraps_packets(id));
        Ok((body, is_wrapped))
    }

    /// An object has come: so have the routes that wait for it, or for a group that has it in it.
    fn arrived(&mut self, id: u32) {
        let Some(acks) = self.acks.as_mut().filter(|acks| acks.has_late()) else { return };
        for object in self.objects.users(id).into_iter().chain([id]) {
            if self.objects.leads(object) && !self.objects.wraps_packets(object) {
                acks.arrived(object, self.frames);
            }
        }
    }

    /// An object cannot be used, or encapsulates packets: routes of it, and of groups that have it in them, wait until it is
    /// another one.
    fn encapsulates(&mut self, id: u32) {
        let Some(acks) = &mut self.acks else { return };
        if !self.objects.has(id) {
            return acks.object_gone(id);
        }
        for object in self.objects.users(id).into_iter().chain([id]) {
            acks.suspend(object);
        }
    }

    fn withdraw(&mut self, key: RouteKey) {
        if let Some(acks) = &mut self.acks {
            acks.forget(&key);
        }
        if !self.held.routes.contains(&key) {
            self.held.routes.push(key);
        }
    }

    fn reject(&mut self, what: &dyn std::fmt::Display) {
        let frame = self.frames;
        self.rejected.add(|| format!("frame {frame}: {what}"));
    }
}

/// An event with the session's numbers of next-hop objects.
fn numbered(event: RouteEvent, numbers: u32) -> RouteEvent {
    match event {
        RouteEvent::NextHop(NextHopUpdate { id, target }) => {
            let target = match target {
                ObjectTarget::Group(members) => ObjectTarget::Group(
                    members.into_iter().map(|(id, weight)| (id ^ numbers, weight)).collect(),
                ),
                target => target,
            };
            RouteEvent::NextHop(NextHopUpdate { id: id ^ numbers, target })
        }
        RouteEvent::NextHopGone(id) => RouteEvent::NextHopGone(id ^ numbers),
        RouteEvent::Route(update @ RouteUpdate { target: Target::Object(id), .. }) => {
            RouteEvent::Route(RouteUpdate { target: Target::Object(id ^ numbers), ..update })
        }
        event => event,
    }
}
