//! The kernel's own links, addresses, neighbors, next-hop objects and routes, by rtnetlink.
//!
//! Source: `NETLINK_ROUTE`, joined to the groups of [`GROUPS`] before the first request, and a second socket joined
//! to [`LINK_GROUPS`]. The source requests six dumps one after another, then follows notifications.
//!
//! **What makes it right.** A change and a dump can report an entry in either order. While a
//! kind is being dumped, a notification of an entry wins over the dump's lines of it: the
//! notification is never older than the line, and a later change has a notification of its own.
//! A line that disagrees is left out and the dump of that kind repeated. A dump is also repeated when
//! the kernel reports that it was disturbed (NLM_F_DUMP_INTR), and when entries were deleted under those
//! dumps that find their place again by counting entries (IPv6 routes, neighbors, addresses): the
//! kernel then skips as many as were deleted.
//!
//! **Links first.** What happened to a link must not wait behind the messages of a million routes, so links have a
//! socket of their own. The two are not ordered with each other, but this holds. The reader gives
//! a datagram of the first socket to [`RouteSource::input`] only after the second was read empty: so a line about a
//! link is never older than a notification that comes after it, and of notifications before it the rule above holds.
//! A notification of a link overtakes older ones of routes, objects and addresses, and those do not have what
//! the kernel did with the link: so the new dump begins only after a request whose reply lies behind all of
//! them (the barrier, below).
//!
//! **What the kernel does not report.** When a link goes down it removes IPv4 routes and next-hop objects
//! silently, and hides IPv6 routes; a deleted IPv4 address takes the routes with it that name
//! it as their source; a deleted object its routes. So a change of a link's state, and a deleted
//! address, are followed by a new full dump, in which the consumer drops what is not repeated. The
//! dump of links comes first and waits for the lock under which the kernel works on such a change,
//! so that the dump of routes, which does not, cannot come too early. Deleted objects are
//! [`RouteEvent::NextHopGone`] at once.
//!
//! **Barrier.** After an overrun the kernel is silent until the socket has been read empty,
//! without another error. So `lost` first requests the links and ignores the reply; by its end the
//! socket was empty, and only then the new dump begins. Such a request precedes every other new dump.
//!
//! Shape: bytes are whole datagrams. Each dump lies between `StartOfTable` and `EndOfTable`.
//! Cost: about 100 ns a route; no memory a route but for those that share a key (see `duplicates`).

mod duplicates;
#[cfg(test)]
mod live;
#[cfg(test)]
mod model;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::Instant;

use super::rtnetlink::{self, Body, Line, Unsupported};
use super::{Rejected, RouteSource, SourceError, SourceKind, Transport};
use crate::event::{
    AddressUpdate, LinkUpdate, NeighborState, NextHopUpdate, ObjectTarget, RouteEvent, RouteKey,
    RouteUpdate, Target,
};
use crate::netlink::link::Link;
use crate::netlink::nexthop::NextHop;
use crate::netlink::route::{F_CLONED, Route, kind};
use crate::netlink::{
    DONE, ERROR, F_APPEND, F_CREATE, F_DUMP_INTR, F_EXCL, F_MULTI, F_REPLACE, IPV4, IPV6,
    Malformed, Message, Messages, address, link, neighbor, nexthop, route,
};
use duplicates::{Duplicates, Effect, Put};

/// The table of the host's own addresses and broadcasts (`RT_TABLE_LOCAL`), looked up before all
/// others. Its routes have this table in their key, and target [`Target::Local`].
pub const LOCAL_TABLE: u32 = 255;

/// The groups to join: neighbors, IPv4 addresses and routes, IPv6 addresses and routes, next-hop objects (RTNLGRP
/// numbers).
pub const GROUPS: &[u32] = &[3, 5, 7, 9, 11, 32];

/// The group to join with the second socket, which is read first: links.
pub const LINK_GROUPS: &[u32] = &[1];

pub(super) const KIND: SourceKind = SourceKind {
    name: "kernel",
    summary: "the kernel's links, addresses, neighbors, next-hop objects and routes, by netlink",
    transport: Transport::Netlink { groups: GROUPS, first: LINK_GROUPS },
    // Connected routes are among them, which nothing may override.
    distance: 0,
    mirrored: &[],
    open: |_| Ok(Box::new(Kernel::default())),
};

/// What is dumped, in this order: objects before the routes that name them, and links first, see
/// above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Links,
    Addresses,
    Neighbors,
    Objects,
    RoutesV4,
    RoutesV6,
}

impl Kind {
    const FIRST: Self = Self::Links;

    fn next(self) -> Option<Self> {
        match self {
            Self::Links => Some(Self::Addresses),
            Self::Addresses => Some(Self::Neighbors),
            Self::Neighbors => Some(Self::Objects),
            Self::Objects => Some(Self::RoutesV4),
            Self::RoutesV4 => Some(Self::RoutesV6),
            Self::RoutesV6 => None,
        }
    }

    fn request(self, seq: u32) -> Vec<u8> {
        match self {
            Self::Links => link::dump(seq),
            Self::Addresses => address::dump(seq),
            Self::Neighbors => neighbor::dump(seq),
            Self::Objects => nexthop::dump(seq),
            Self::RoutesV4 => route::dump(IPV4, seq),
            Self::RoutesV6 => route::dump(IPV6, seq),
        }
    }

    /// Finds its place again by counting entries, so that a deletion makes it skip some.
    fn counts(self) -> bool {
        matches!(self, Self::Addresses | Self::Neighbors | Self::RoutesV6)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::Addresses => "addresses",
            Self::Neighbors => "neighbors",
            Self::Objects => "next-hop objects",
            Self::RoutesV4 => "IPv4 routes",
            Self::RoutesV6 => "IPv6 routes",
        }
    }
}

/// State of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Something happened that queued messages do not have, or messages were lost: reading up to the end of a
    /// reply, which lies behind all of them.
    Barrier,
    /// A dump of this kind is requested, or the next request.
    Dump(Kind),
    /// All is known; following.
    Follow,
}

/// An entry that a notification reported during the dump of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Link(u32),
    Address(u32, IpAddr, u8),
    Neighbor(u32, IpAddr),
    Object(u32),
}

/// A source that reads all of it once, on a socket without groups, to compare it with what another one has followed. A dump
/// that was disturbed is not repeated.
pub fn snapshot() -> Box<dyn RouteSource> {
    Box::new(Kernel { most_passes: 0, ..Kernel::default() })
}

/// Most passes of a dump; then the entries of all of them together are taken.
const PASSES: u32 = 6;

/// Our requests are numbered from here, far from what others use on the same socket.
const FIRST_SEQ: u32 = 0x4650_0000;

/// The kernel lacks the kind: ENOENT, EINVAL, EPROTONOSUPPORT, EOPNOTSUPP, EAFNOSUPPORT.
const ABSENT: [u32; 5] = [2, 22, 93, 95, 97];

/// Another dump runs on this socket: EBUSY.
const BUSY: u32 = 16;
/// The receive buffer is full: ENOBUFS.
const NO_ROOM: u32 = 105;

/// What of a link decides about the routes over it.
type Known = (bool, u8, u32, Option<u32>);

struct Kernel {
    phase: Phase,
    /// Number of the request whose reply is not complete.
    requested: Option<u32>,
    seq: u32,
    /// The reply is of no use any more.
    abandoned: bool,
    /// `StartOfTable` comes before any other event.
    start: bool,
    /// Another full dump must follow this one.
    again: bool,
    /// The dump of this kind must be repeated.
    disturbed: bool,
    /// Part of it was cut off (a receive buffer that is too small).
    unreadable: bool,
    passes: u32,
    /// Passes of a disturbed dump at most, besides the first.
    most_passes: u32,
    /// Entries that notifications reported since the request.
    touched: HashSet<Entry>,
    touched_routes: HashMap<RouteKey, Option<Body>>,
    /// Objects that went away since the request, and with them the routes that name them.
    gone: HashSet<u32>,
    /// The line before this one in a dump of routes: key, first route of the key, whether it joins.
    line: Option<(RouteKey, Body, bool)>,
    duplicates: Duplicates,
    /// Routes that were announced as an earlier dump had them, and that this one did not confirm.
    assumed: HashSet<RouteKey>,
    /// Whether a link is set up, its state, its MTU and the table of its VRF. Not whether it has carrier: a dump can have
    /// that before the kernel has drawn any consequence.
    links: HashMap<u32, Known>,
    /// All links are in it: since the last loss a dump was completed.
    all_links: bool,
    /// The link of each single next-hop object.
    objects: HashMap<u32, Option<u32>>,
    /// Protocols whose routes another source has.
    mirrored: Vec<u8>,
    rejected: Rejected,
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            phase: Phase::Dump(Kind::FIRST),
            requested: None,
            seq: FIRST_SEQ,
            abandoned: false,
            start: false,
            again: false,
            disturbed: false,
            unreadable: false,
            passes: 0,
            most_passes: PASSES,
            touched: HashSet::new(),
            touched_routes: HashMap::new(),
            gone: HashSet::new(),
            line: None,
            duplicates: Duplicates::default(),
            assumed: HashSet::new(),
            links: HashMap::new(),
            all_links: false,
            objects: HashMap::new(),
            mirrored: Vec::new(),
            rejected: Rejected::default(),
        }
    }
}

type Sink<'a> = &'a mut dyn FnMut(RouteEvent);

impl RouteSource for Kernel {
    /// Takes all of `bytes`: one datagram, or several whole ones. It stops at what cannot be read.
    fn input(&mut self, bytes: &[u8], _now: Instant, sink: Sink<'_>) -> Result<usize, SourceError> {
        if core::mem::take(&mut self.start) {
            sink(RouteEvent::StartOfTable);
        }
        for message in Messages::new(bytes) {
            match message {
                Ok(message) => self.message(&message, sink)?,
                Err(error) => {
                    self.reject(&error);
                    // What else the datagram held is lost with it.
                    if self.requested.is_some() {
                        self.unreadable = true;
                    } else {
                        self.refresh();
                    }
                }
            }
        }
        Ok(bytes.len())
    }

    /// The next request, once the one before is answered.
    fn output(&mut self, out: &mut Vec<Vec<u8>>) {
        if self.requested.is_some() {
            return;
        }
        let kind = match self.phase {
            Phase::Follow => return,
            Phase::Barrier => Kind::Links,
            Phase::Dump(kind) => {
                if kind == Kind::FIRST && self.passes == 0 {
                    self.start = true;
                    self.duplicates.begin();
                    self.assumed.clear();
                }
                kind
            }
        };
        self.seq = self.seq.wrapping_add(1);
        self.requested = Some(self.seq);
        self.disturbed = false;
        self.unreadable = false;
        self.touched.clear();
        self.touched_routes.clear();
        self.gone.clear();
        self.line = None;
        out.push(kind.request(self.seq));
    }

    /// Notes ENOBUFS of the socket. It need not be read empty first.
    fn lost(&mut self, _now: Instant) {
        // The kernel runs one dump at a time: the open one must be complete before the next.
        self.abandoned = self.requested.is_some();
        self.phase = Phase::Barrier;
        self.start = false;
        self.again = false;
        self.all_links = false;
        self.passes = 0;
    }

    /// A new dump follows, for the routes that were reported before.
    fn leave_out(&mut self, protocols: &[u8]) {
        if self.mirrored != protocols {
            self.mirrored = protocols.to_vec();
            // The first dump is without them.
            if self.seq != FIRST_SEQ {
                self.refresh();
            }
        }
    }

    fn rejected(&self) -> Rejected {
        self.rejected.clone()
    }
}

impl Kernel {
    fn message(&mut self, message: &Message<'_>, sink: Sink<'_>) -> Result<(), SourceError> {
        let reply = self.requested == Some(message.seq);
        match message.kind {
            // There was no room for the first lines. The dump continues as the socket is read.
            ERROR if reply && message.code() == Ok(NO_ROOM) => {}
            DONE | ERROR if reply => return self.answered(message, sink),
            // A reply to another's request on this socket, or nothing at all (NLMSG_NOOP).
            0..=15 => {}
            _ if message.flags & F_MULTI != 0 => {
                if !reply {
                    return Ok(());
                }
                self.disturbed |= message.flags & F_DUMP_INTR != 0;
                if let Phase::Dump(kind) = self.phase
                    && !self.abandoned
                    && let Err(error) = self.line(kind, message, sink)
                {
                    self.reject(&error);
                }
            }
            _ => {
                if let Err(error) = self.notification(message, sink) {
                    self.reject(&error);
                }
            }
        }
        Ok(())
    }

    /// The end of a dump.
    fn answered(&mut self, message: &Message<'_>, sink: Sink<'_>) -> Result<(), SourceError> {
        self.disturbed |= message.flags & F_DUMP_INTR != 0;
        self.requested = None;
        if core::mem::take(&mut self.abandoned) {
            return Ok(());
        }
        let kind = match self.phase {
            Phase::Follow => return Ok(()),
            Phase::Barrier => {
                // What happened meanwhile may be ahead of this answer, too.
                if !core::mem::take(&mut self.again) {
                    self.phase = Phase::Dump(Kind::FIRST);
                }
                return Ok(());
            }
            Phase::Dump(kind) => kind,
        };
        let code = message.code().unwrap_or(0);
        if code == BUSY {
            return Ok(());
        }
        let failed = self.unreadable || code != 0 && !ABSENT.contains(&code);
        if (self.disturbed || failed) && self.passes < self.most_passes {
            self.passes += 1;
            return Ok(());
        }
        if failed {
            let error = match code {
                0 => std::io::ErrorKind::InvalidData.into(),
                code => std::io::Error::from_raw_os_error(code.cast_signed()),
            };
            let what = format!("the list of {} cannot be had: {error}", kind.name());
            return Err(SourceError::Io { name: "kernel".into(), kind: error.kind(), what });
        }
        self.passes = 0;
        self.phase = match kind.next() {
            Some(next) => Phase::Dump(next),
            None => {
                self.assumed.drain().for_each(|key| sink(RouteEvent::Withdraw(key)));
                sink(RouteEvent::EndOfTable);
                self.duplicates.end();
                self.all_links = true;
                if core::mem::take(&mut self.again) { Phase::Barrier } else { Phase::Follow }
            }
        };
        Ok(())
    }

    /// Notes a change that the kernel does not report.
    fn refresh(&mut self) {
        match self.phase {
            Phase::Follow => self.phase = Phase::Barrier,
            // There was no request yet.
            Phase::Barrier if self.requested.is_none() => {}
            _ => self.again = true,
        }
    }

    fn reject(&mut self, error: &Malformed) {
        self.rejected.add(|| format!("message: {error}"));
    }

    /// A line of the dump of `kind`.
    fn line(&mut self, kind: Kind, message: &Message<'_>, sink: Sink<'_>) -> Result<(), Malformed> {
        match (kind, message.kind) {
            (Kind::Links, link::NEW) => {
                if let Some(found) = Link::parse(message)?
                    && !self.touched.contains(&Entry::Link(found.link))
                {
                    self.links.insert(found.link, link_state(&found));
                    sink(link_event(found));
                }
            }
            (Kind::Addresses, address::NEW) => {
                if let Some(found) = address::parse(message)?
                    && !self.touched.contains(&entry_of(&found))
                {
                    sink(RouteEvent::Address(found));
                }
            }
            (Kind::Neighbors, neighbor::NEW) => {
                if let Some(found) = neighbor::parse(message)?
                    && !self.touched.contains(&Entry::Neighbor(found.link, found.addr))
                {
                    sink(RouteEvent::Neighbor(found));
                }
            }
            (Kind::Objects, nexthop::NEW) => {
                let found = NextHop::parse(message)?;
                if !self.touched.contains(&Entry::Object(found.id)) {
                    self.object(&found, sink);
                }
            }
            (Kind::RoutesV4 | Kind::RoutesV6, route::NEW) => self.route_line(message, sink)?,
            _ => {}
        }
        Ok(())
    }

    fn route_line(&mut self, message: &Message<'_>, sink: Sink<'_>) -> Result<(), Malformed> {
        let Some(Line { key, body, joins, several, partial, .. }) = self.route(message)? else {
            return Ok(());
        };
        if partial {
            self.duplicates.note_partial(key);
        }
        let Some(body) = body else { return Ok(()) };
        if matches!(body.target, Target::Object(id) if self.gone.contains(&id)) {
            self.disturbed = true;
            return Ok(());
        }
        if let Some(reported) = self.touched_routes.get(&key) {
            if reported.as_ref() == Some(&body) {
                self.assumed.remove(&key);
                self.disturbed |= !self.duplicates.same_line(&key);
            } else {
                // Older than a notification, or another route of this key.
                self.disturbed = true;
            }
            return Ok(());
        }
        let effect = match &mut self.line {
            Some((before, first, joined)) if *before == key => {
                *joined &= joins;
                self.duplicates.next_line(key, first, &body, *joined, several)
            }
            _ => {
                self.line = Some((key, body.clone(), joins));
                self.duplicates.first_line(key, &body, several)
            }
        };
        self.effect(key, effect, sink);
        Ok(())
    }

    /// What happened by itself.
    fn notification(&mut self, message: &Message<'_>, sink: Sink<'_>) -> Result<(), Malformed> {
        match message.kind {
            link::NEW | link::DEL => {
                if let Some(found) = Link::parse(message)? {
                    self.touch(Kind::Links, Entry::Link(found.link));
                    self.link(found, message.kind == link::DEL, sink);
                }
            }
            address::NEW | address::DEL => {
                if let Some(found) = address::parse(message)? {
                    self.touch(Kind::Addresses, entry_of(&found));
                    if found.gone {
                        self.deleted(Kind::Addresses);
                        // IPv4 routes that have it as their source go with it, unsaid.
                        if found.addr.is_ipv4() {
                            self.refresh();
                        }
                    }
                    sink(RouteEvent::Address(found));
                }
            }
            neighbor::NEW | neighbor::DEL => {
                if let Some(found) = neighbor::parse(message)? {
                    self.touch(Kind::Neighbors, Entry::Neighbor(found.link, found.addr));
                    if found.state == NeighborState::Gone {
                        self.deleted(Kind::Neighbors);
                    }
                    sink(RouteEvent::Neighbor(found));
                }
            }
            nexthop::NEW | nexthop::DEL => {
                let found = NextHop::parse(message)?;
                self.touch(Kind::Objects, Entry::Object(found.id));
                if message.kind == nexthop::NEW {
                    self.object(&found, sink);
                } else {
                    self.objects.remove(&found.id);
                    self.object_gone(found.id, sink);
                }
            }
            route::NEW => self.route_added(message, sink)?,
            route::DEL => self.route_removed(message, sink)?,
            _ => {}
        }
        Ok(())
    }

    /// Whether this kind is being dumped at the moment.
    fn dumping(&self, kind: Kind) -> bool {
        self.phase == Phase::Dump(kind) && self.requested.is_some() && !self.abandoned
    }

    fn touch(&mut self, kind: Kind, entry: Entry) {
        if self.dumping(kind) {
            self.touched.insert(entry);
        }
    }

    fn deleted(&mut self, kind: Kind) {
        self.disturbed |= kind.counts() && self.dumping(kind);
    }

    fn link(&mut self, found: Link, deleted: bool, sink: Sink<'_>) {
        let number = found.link;
        let now = link_state(&found);
        let usable = !deleted && found.state.up;
        let before = if deleted {
            sink(RouteEvent::Link(LinkUpdate { link: number, state: None }));
            self.links.remove(&number)
        } else {
            sink(link_event(found));
            self.links.insert(number, now)
        };
        if !usable {
            // The kernel removes the objects on it; groups of them follow with the dump.
            let on_it = self.objects.extract_if(|_, link| *link == Some(number));
            let mut gone: Vec<u32> = on_it.map(|(id, _)| id).collect();
            gone.sort_unstable();
            gone.into_iter().for_each(|id| self.object_gone(id, sink));
        }
        let changed = match before {
            Some((admin_up, ..)) if deleted => admin_up,
            Some(before) => before != now,
            // New, unless it was there before and is only not known yet.
            None => !self.all_links,
        };
        if changed {
            self.refresh();
        }
    }

    fn object(&mut self, found: &NextHop<'_>, sink: Sink<'_>) {
        if found.fdb {
            return;
        }
        let id = found.id;
        let update = rtnetlink::object(found).unwrap_or_else(|| {
            self.rejected.add(|| format!("next-hop object {id}: encapsulates packets"));
            // A route may name it alone (sysctl `net.ipv4.nexthop_compat_mode`).
            NextHopUpdate { id, target: ObjectTarget::Local }
        });
        self.gone.remove(&id);
        self.objects.insert(id, found.link);
        sink(RouteEvent::NextHop(update));
    }

    fn object_gone(&mut self, id: u32, sink: Sink<'_>) {
        sink(RouteEvent::NextHopGone(id));
        if self.requested.is_some() {
            self.gone.insert(id);
        }
        for (key, effect) in self.duplicates.object_gone(id) {
            self.effect(key, effect, sink);
        }
    }

    /// The route of a message, if it is one that is followed.
    ///
    /// Routes whose packets the kernel encapsulates (MPLS, segment routing) are refused, counted, and for the host: no
    /// other route takes their packets, which the kernel forwards.
    fn route(&mut self, message: &Message<'_>) -> Result<Option<Line>, Malformed> {
        let Some(route) = Route::parse(message)? else { return Ok(None) };
        // Of the local table only what is for the host itself: the addresses, broadcasts, and whatever was added.
        let host = matches!(route.kind, kind::LOCAL | kind::BROADCAST | kind::ANYCAST);
        if route.table == LOCAL_TABLE && !host || route.flags & F_CLONED != 0 {
            return Ok(None);
        }
        let (key, supported) = rtnetlink::key(&route);
        if let Err(Unsupported(why)) = supported {
            self.rejected.add(|| format!("route {}: {why}", key.prefix));
            return Ok(None);
        }
        let mut line = rtnetlink::line(&route, key, message.kind == route::DEL)?;
        if line.wrapped && message.kind == route::NEW {
            let key = line.key;
            self.rejected.add(|| format!("route {}: encapsulates packets", key.prefix));
        }
        if self.mirrored.contains(&route.protocol) {
            let replaces = message.kind == route::NEW && message.flags & F_REPLACE != 0;
            // Another source has it; the one that it took the place of is gone all the same.
            line.body = None;
            return Ok(replaces.then_some(line));
        }
        Ok(Some(line))
    }

    fn route_added(&mut self, message: &Message<'_>, sink: Sink<'_>) -> Result<(), Malformed> {
        let Some(Line { key, body, joins, several, partial, .. }) = self.route(message)? else {
            return Ok(());
        };
        let v6 = key.prefix.family() == 6;
        let put = match message.flags {
            flags if flags & F_REPLACE != 0 => Put::Instead,
            flags if flags & F_CREATE == 0 => Put::There,
            flags if flags & F_EXCL != 0 => Put::Alone,
            flags if v6 || flags & F_APPEND != 0 => Put::Behind,
            _ => Put::Before,
        };
        let kind = if v6 { Kind::RoutesV6 } else { Kind::RoutesV4 };
        if self.dumping(kind) {
            self.touched_routes.insert(key, body.clone());
        }
        if partial {
            self.duplicates.note_partial(key);
        }
        let effect = match body {
            // It has just lost its last hop.
            None => self.duplicates.removed(key, None),
            Some(_) if joins && put == Put::Behind => Effect::Redump,
            Some(body) => self.duplicates.added(key, body, put, several),
        };
        self.effect(key, effect, sink);
        Ok(())
    }

    fn route_removed(&mut self, message: &Message<'_>, sink: Sink<'_>) -> Result<(), Malformed> {
        let Some(Line { key, body, .. }) = self.route(message)? else { return Ok(()) };
        let kind = if key.prefix.family() == 6 { Kind::RoutesV6 } else { Kind::RoutesV4 };
        let effect = self.duplicates.removed(key, body.as_ref());
        if self.dumping(kind) {
            let left = match &effect {
                Effect::Announce(left) | Effect::Assume(left) => Some(left.clone()),
                _ => None,
            };
            self.touched_routes.insert(key, left);
            self.deleted(kind);
        }
        self.effect(key, effect, sink);
        Ok(())
    }

    fn effect(&mut self, key: RouteKey, effect: Effect, sink: Sink<'_>) {
        let guess = matches!(effect, Effect::Assume(_));
        match effect {
            Effect::Announce(Body { target, mtu }) | Effect::Assume(Body { target, mtu }) => {
                sink(RouteEvent::Route(RouteUpdate { mtu, ..RouteUpdate::new(key, target) }));
            }
            Effect::Gone => sink(RouteEvent::Withdraw(key)),
            Effect::Keep => return,
            Effect::Redump => return self.refresh(),
        }
        if guess {
            self.assumed.insert(key);
        } else if !self.assumed.is_empty() {
            self.assumed.remove(&key);
        }
    }
}

fn link_state(found: &Link) -> Known {
    (found.admin_up, found.operstate, found.state.mtu, found.state.vrf)
}

fn link_event(found: Link) -> RouteEvent {
    RouteEvent::Link(LinkUpdate { link: found.link, state: Some(found.state) })
}

fn entry_of(address: &AddressUpdate) -> Entry {
    Entry::Address(address.link, address.addr, address.prefix_len)
}
