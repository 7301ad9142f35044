//! Routes of a monitored BGP router, which connects and sends those of its peers: the BGP Monitoring Protocol.
//!
//! Source: RFC 7854 (the protocol), RFC 8671 (Adj-RIB-Out, passed over), RFC 9069 (Loc-RIB).
//!
//! Shape: messages, each with its length:
//!
//! ```text
//! | version 3 | length u32 | type | header of the peer, 42 bytes, but in types 4 and 5 | body
//! ```
//!
//! **Which routes.** A router may send what it got from its peers (Adj-RIB-In), before or after its policy, and what it
//! chose (Loc-RIB). Its choice is taken where it sends it; the routes of its peers do not count then. Else the best path of
//! each prefix among its peers is chosen by [`crate::bgp::ribs`], from routes behind the router's policy where it sends
//! any, and the next hops of the other paths are kept as its alternatives. Fingerpost does not know what else the router
//! would have preferred (IGP metrics, weights): where that matters, have it send its Loc-RIB. Routes without a next hop, which
//! the router itself originates, are left out; so are other routing instances (a peer distinguisher), which are counted as
//! rejected.
//!
//! **Which of them come** is known only when they do. Routes behind the policy, or the router's choice, that come behind
//! others begin a table anew: what came before forwards until they repeat it. A session begins with those that the router sent in the
//! session before ([`super::SessionSpec::monitored`]): until they come, others are kept and not sent to the control side, as the policy may
//! reject them. A table that is complete without them, as the router is configured otherwise now, has the others.
//!
//! **A message is one change**: after each follows [`RouteEvent::Commit`].
//!
//! **How messages are read.** Families, path identifiers and AS numbers are as the OPEN messages of a peer agree, which Peer
//! Up has, unless the messages show otherwise: see [`crate::bgp::path_ids`] and [`AsNumbers`](crate::bgp::update::AsNumbers).
//! Such a difference is counted as rejected once a peer and family, with its words.
//!
//! **Loc-RIB without Peer Up.** GoBGP 3 and most releases of FRR send the routes of the Loc-RIB and no Peer Up of it. It is
//! a peer from its first route on.
//!
//! **End of the table.** By the rules of [`super::replay`]; the mark is End-of-RIB of all peers for each of their families,
//! which FRR sends only for peers that were up before the session.
//!
//! Cost: about 1 us a route; the loss of a peer that has routes looks at all prefixes, in steps: until the last of them the input
//! stops before the message; memory for each path of each peer ([`Ribs`]).
//! Limits: unicast; a message of at most 1 MiB; one path a prefix at a time; peers, prefixes and paths up to
//! [`super::SessionSpec::limits`], beyond which they are rejected one by one, and the others are taken.

mod peer;
#[cfg(test)]
pub(super) mod tests;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::replay::Replay;
use super::{Monitored, Rejected, RouteSource, SourceError, SourceKind, SourceSpec, Transport};
use crate::bgp::ribs::Ribs;
use crate::bgp::update::{Statement, UPDATE, message, update};
use crate::bgp::{Fields, Words};
use crate::event::RouteEvent;
use peer::{Header, Key, Peer, PeerRib, opens};

pub(super) const KIND: SourceKind = SourceKind {
    name: "bmp",
    summary: "a BGP router, which connects and sends the routes of its peers or its own choice (BMP)",
    transport: Transport::Sessions { listen: "127.0.0.1:11019" },
    // As routes of external BGP.
    distance: 20,
    mirrored: &[],
    open: |spec| Ok(Box::new(Bmp::new(spec))),
};

const VERSION: u8 = 3;
const HEADER_BYTES: usize = 6;
const MESSAGE_BYTES: usize = 1 << 20;

const ROUTE_MONITORING: u8 = 0;
const PEER_DOWN: u8 = 2;
const PEER_UP: u8 = 3;

type Sink<'a> = &'a mut dyn FnMut(RouteEvent);

/// One session.
struct Bmp {
    replay: Replay,
    peers: HashMap<Key, Peer>,
    monitored: View,
    /// Whether the router has ceased to send its choice: what its peers sent was not kept.
    over: bool,
    ribs: Ribs,
    /// The table is complete once the routes that are kept were sent.
    completes: bool,
    messages: u64,
    /// End-of-RIB markers.
    ends: u64,
    /// Time of the input that stopped before a message, whose work is done in steps.
    due: Option<Instant>,
    rejected: Rejected,
}

/// Which of its routes the router sends.
struct View {
    sends: Monitored,
    /// Those that are awaited: until they come, others are kept and not sent.
    awaited: Option<Monitored>,
    /// When the first of those came.
    kept_since: Option<Instant>,
    /// Time for which they are kept where the table is complete.
    patience: Duration,
}

impl View {
    /// Routes of a peer came that are kept.
    fn note(&mut self, now: Instant) {
        if self.awaited.is_some() {
            self.kept_since.get_or_insert(now);
        }
    }

    /// Whether routes were kept for so long that others do not come.
    fn is_over(&self, now: Instant) -> bool {
        let long = |since| now.saturating_duration_since(since) >= self.patience;
        self.awaited.is_some() && self.kept_since.is_some_and(long)
    }
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Whole,
    /// It is to be taken again when the work that it began is done.
    Again,
}

impl Bmp {
    fn new(spec: &SourceSpec) -> Self {
        let before = spec.session.monitored;
        Self {
            replay: Replay::new(spec.session.sweep_after),
            peers: HashMap::new(),
            monitored: View {
                sends: Monitored::PrePolicy,
                awaited: before.filter(|before| *before > Monitored::PrePolicy),
                kept_since: None,
                patience: spec.session.sweep_after,
            },
            over: false,
            ribs: Ribs::new(spec.session.limits),
            completes: false,
            messages: 0,
            ends: 0,
            due: None,
            rejected: Rejected::default(),
        }
    }
}

impl RouteSource for Bmp {
    fn input(
        &mut self,
        mut bytes: &[u8],
        now: Instant,
        sink: Sink<'_>,
    ) -> Result<usize, SourceError> {
        if self.replay.begin(now) {
            sink(RouteEvent::StartOfTable);
        }
        let given = bytes.len();
        self.due = None;
        if self.works(sink) {
            self.due = Some(now);
            return Ok(0);
        }
        while let &[version, a, b, c, d, kind, ..] = bytes {
            let len = u32::from_be_bytes([a, b, c, d]) as usize;
            if version != VERSION || !(HEADER_BYTES..=MESSAGE_BYTES).contains(&len) {
                let place = format!("message {}", self.messages + 1);
                let what = format!(
                    "version {version} and length {len} are not those of a BMP message: its version is {VERSION}, its \
                     length {HEADER_BYTES} to {MESSAGE_BYTES} bytes"
                );
                self.rejected.add(|| format!("{place}: {what}"));
                return Err(SourceError::Syntax { place, what });
            }
            let Some((whole, rest)) = bytes.split_at_checked(len) else { break };
            self.messages += 1;
            match self.message(kind, Fields(&whole[HEADER_BYTES..]), now, sink) {
                Ok(Taken::Whole) => {}
                Ok(Taken::Again) => {
                    self.messages -= 1;
                    self.due = Some(now);
                    break;
                }
                Err(what) => self.reject(what),
            }
            bytes = rest;
            // Not Peer Down: FRR sends it at each try to reach a peer.
            self.replay.note(matches!(kind, ROUTE_MONITORING | PEER_UP).into(), now);
            sink(RouteEvent::Commit(self.messages));
            if self.over {
                return Err(SourceError::Syntax {
                    place: format!("message {}", self.messages),
                    what: "the router has ceased to send its Loc-RIB; in a new session it sends the routes of its peers"
                        .to_owned(),
                });
            }
            if self.ribs.is_busy() {
                self.due = Some(now);
                break;
            }
        }
        Ok(given - bytes.len())
    }

    fn tick(&mut self, now: Instant, sink: Sink<'_>) {
        if self.ribs.is_busy() {
            return;
        }
        let marked = self.counted().next().is_some() && self.counted().all(Peer::has_ended);
        self.completes = self.replay.completes(marked, now);
        let is_over = self.completes || self.replay.is_complete() && self.monitored.is_over(now);
        if is_over && self.monitored.awaited.is_some() && !self.ribs.is_empty() {
            // The others do not come any more.
            self.monitored.awaited = None;
            self.ribs.repeat();
        }
        if self.works(sink) {
            self.due = Some(now);
        }
    }

    fn monitored(&self) -> Option<Monitored> {
        // Without its choice, the router is to be taken as one that never sent it.
        (!self.over).then(|| self.monitored.awaited.unwrap_or(self.monitored.sends))
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn ends(&self) -> u64 {
        self.ends
    }

    fn rejected(&self) -> Rejected {
        self.rejected.clone()
    }
}

impl Bmp {
    /// Takes the next step of what was begun; whether more are left. The table is complete behind the last one.
    fn works(&mut self, sink: Sink<'_>) -> bool {
        if self.ribs.is_busy() {
            let sends = self.monitored.awaited.is_none();
            self.ribs.step(&mut |change| {
                if sends {
                    sink(change.event());
                }
            });
        }
        if !self.ribs.is_busy() && std::mem::take(&mut self.completes) {
            sink(RouteEvent::EndOfTable);
        }
        self.ribs.is_busy()
    }

    /// Peers whose routes count.
    fn counted(&self) -> impl Iterator<Item = &Peer> {
        let loc_rib = self.monitored.sends == Monitored::LocRib;
        let counts = move |key: &Key| !loc_rib || key.view == PeerRib::Loc;
        self.peers.iter().filter(move |(key, _)| counts(key)).map(|(_, peer)| peer)
    }

    /// Has routes replace all before, which the router has sent so far.
    fn replace_by(&mut self, sends: Monitored, now: Instant, sink: Sink<'_>) {
        self.monitored.sends = sends;
        self.monitored.kept_since = None;
        self.peers.values_mut().for_each(|peer| peer.ended = [false; 2]);
        let had_routes = !self.ribs.is_empty();
        self.ribs.clear();
        match self.monitored.awaited {
            Some(awaited) if awaited > sends => {}
            // What is replaced was kept.
            Some(_) => self.monitored.awaited = None,
            None if had_routes => {
                self.replay.restart(now);
                sink(RouteEvent::StartOfTable);
            }
            None => {}
        }
    }

    fn message(
        &mut self,
        kind: u8,
        mut body: Fields<'_>,
        now: Instant,
        sink: Sink<'_>,
    ) -> Result<Taken, Words> {
        if !matches!(kind, ROUTE_MONITORING | PEER_DOWN | PEER_UP) {
            return Ok(Taken::Whole);
        }
        let header = Header::read(&mut body)?;
        let Some(key) = header.key else {
            // Once a peer, not once a route.
            return if kind == PEER_UP {
                Err("a peer of another routing instance")
            } else {
                Ok(Taken::Whole)
            };
        };
        if kind == ROUTE_MONITORING {
            return self.routes(key, &header, body, now, sink);
        }
        if kind == PEER_DOWN && key.view == PeerRib::Loc {
            self.over = self.peers.contains_key(&key);
            return Ok(Taken::Whole);
        }
        if kind == PEER_UP
            && let Some(peer) = self.peers.get_mut(&key).filter(|peer| !peer.is_announced)
        {
            let (sent, received) = opens(&mut body)?;
            peer.announce(key, &sent, &received);
            return Ok(Taken::Whole);
        }
        let gone = if kind == PEER_DOWN { self.named_by_loss(key)? } else { key };
        if let Some(before) = self.peers.remove(&gone) {
            self.ribs.remove_peer(before.number);
        }
        if self.ribs.is_busy() {
            return Ok(Taken::Again);
        }
        if kind == PEER_UP { self.up(key, &header, body, now, sink) } else { Ok(Taken::Whole) }
    }

    /// The peer that a Peer Down is about. Where the router has cleared its identifier it is the only peer of the address.
    fn named_by_loss(&self, key: Key) -> Result<Key, Words> {
        if key.bgp_id != 0 || self.peers.contains_key(&key) {
            return Ok(key);
        }
        let named = |known: &&Key| (known.view, known.addr) == (key.view, key.addr);
        let mut named = self.peers.keys().filter(named);
        match (named.next(), named.next()) {
            (Some(_), Some(_)) => Err("the loss of one of several peers, without its identifier"),
            (one, _) => Ok(one.copied().unwrap_or(key)),
        }
    }

    fn up(
        &mut self,
        key: Key,
        header: &Header,
        mut body: Fields<'_>,
        now: Instant,
        sink: Sink<'_>,
    ) -> Result<Taken, Words> {
        let (sent, received) = opens(&mut body)?;
        let external = sent.own_as != header.peer_as;
        let number = self.ribs.add_peer(crate::bgp::ribs::Peer {
            addr: key.addr,
            bgp_id: header.bgp_id,
            external,
        })?;
        // Not for a Loc-RIB that is refused: nothing would take the place of the routes of the peers.
        if key.view == PeerRib::Loc && self.monitored.sends < Monitored::LocRib {
            self.replace_by(Monitored::LocRib, now, sink);
        }
        self.peers.insert(key, Peer::new(number, key, &sent, &received));
        Ok(Taken::Whole)
    }

    fn routes(
        &mut self,
        key: Key,
        header: &Header,
        mut body: Fields<'_>,
        now: Instant,
        sink: Sink<'_>,
    ) -> Result<Taken, Words> {
        if key.view == PeerRib::Adj && !self.peers.contains_key(&key) {
            return Err("routes of a peer that is not up");
        }
        let of = match key.view {
            PeerRib::Loc => Monitored::LocRib,
            PeerRib::Adj if header.is_post_policy => Monitored::PostPolicy,
            PeerRib::Adj => Monitored::PrePolicy,
        };
        if header.is_out || of < self.monitored.sends {
            return Ok(Taken::Whole);
        }
        let (kind, body) = message(&mut body)?;
        if kind != UPDATE {
            return Err("a BGP message that is no UPDATE");
        }
        let (encoding, path_ids, report) = match self.peers.get(&key) {
            Some(peer) => peer.encoding(header, body)?,
            None => Peer::loc_rib(0).encoding(header, body)?,
        };
        if of > self.monitored.sends {
            // A message that cannot be read takes the place of no routes.
            update(body, encoding, &mut |_| ())?;
        }
        if !self.peers.contains_key(&key) {
            let peer = crate::bgp::ribs::Peer { addr: key.addr, bgp_id: 0, external: false };
            self.peers.insert(key, Peer::loc_rib(self.ribs.add_peer(peer)?));
        }
        if of > self.monitored.sends {
            self.replace_by(of, now, sink);
            if self.ribs.is_busy() {
                return Ok(Taken::Again);
            }
        }
        self.monitored.note(now);
        let peer = self.peers.get_mut(&key).expect("it is there");
        let (ribs, rejected, messages) = (&mut self.ribs, &mut self.rejected, self.messages);
        let ends = &mut self.ends;
        let sends = self.monitored.awaited.is_none();
        let taken = update(body, encoding, &mut |statement| {
            let change = match statement {
                Statement::Announced(prefix, id, attributes) => {
                    let change = ribs.announce(peer.number, prefix, id, &attributes);
                    change.unwrap_or_else(|what| {
                        rejected.add(|| format!("message {messages}: {prefix}: {what}"));
                        None
                    })
                }
                Statement::Withdrawn(prefix, id) => ribs.withdraw(peer.number, prefix, id),
                Statement::EndOfRib { v6 } => {
                    peer.ended[usize::from(v6)] = true;
                    *ends += 1;
                    None
                }
            };
            if let Some(change) = change.filter(|_| sends) {
                sink(change.event());
            }
        });
        taken?;
        peer.path_ids = path_ids;
        if let Some(what) = report {
            let whose = match key.view {
                PeerRib::Loc => "the Loc-RIB".to_owned(),
                PeerRib::Adj => format!("peer {}", key.addr),
            };
            rejected.add(|| format!("message {messages}: {whose}: {what}"));
        }
        Ok(Taken::Whole)
    }

    fn reject(&mut self, what: Words) {
        let messages = self.messages;
        self.rejected.add(|| format!("message {messages}: {what}"));
    }
}
