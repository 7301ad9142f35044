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
//! any, and the next hops of the paths behind it go along as alternatives. Fingerpost does not know what else the router
//! would have preferred (IGP metrics, weights): where that matters, have it send its Loc-RIB. Routes without a next hop, which
//! the router itself originates, are left out; so are other routing instances (a peer distinguisher), which are counted as
//! rejected.
//!
//! **A message is one change**: after each follows [`RouteEvent::Commit`].
//!
//! **How messages are read.** Path identifiers and families are as the OPEN messages of a peer agree, which Peer Up has.
//!
//! **End of the table.** By the rules of [`super::replay`]; the mark is End-of-RIB of all peers for each of their families,
//! which FRR sends only for peers that were up before the session.
//!
//! Cost: about 1 us a route; the loss of a peer that has routes looks at all prefixes, so the input stops behind it; memory for each path of each peer ([`Ribs`]).
//! Limits: unicast; a message of at most 1 MiB; one path a prefix at a time; peers, prefixes and paths up to
//! [`super::SessionSpec::limits`], beyond which they are rejected one by one, and the others are taken.

mod peer;
#[cfg(test)]
pub(super) mod tests;

use std::collections::HashMap;
use std::time::Instant;

use super::replay::Replay;
use super::{Rejected, RouteSource, SourceError, SourceKind, SourceSpec, Transport};
use crate::bgp::ribs::{Change, Ribs};
use crate::bgp::update::{Statement, UPDATE, message, update};
use crate::bgp::{Fields, Words};
use crate::event::RouteEvent;
use peer::{Header, Key, Peer, View, open};

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
    /// Whether the router sends routes behind the policy: those before it do not count any more, of no peer.
    post_policy: bool,
    /// Whether the router has ceased to send its choice: what its peers sent was not kept.
    over: bool,
    ribs: Ribs,
    messages: u64,
    /// The latest message took a look at all prefixes.
    was_long: bool,
    /// Time of the input that stopped behind such a message.
    due: Option<Instant>,
    rejected: Rejected,
}

impl Bmp {
    fn new(spec: &SourceSpec) -> Self {
        Self {
            replay: Replay::new(spec.session.sweep_after),
            peers: HashMap::new(),
            post_policy: false,
            over: false,
            ribs: Ribs::new(spec.session.limits),
            messages: 0,
            was_long: false,
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
        while let &[version, a, b, c, d, kind, ..] = bytes {
            let len = u32::from_be_bytes([a, b, c, d]) as usize;
            if version != VERSION || !(HEADER_BYTES..=MESSAGE_BYTES).contains(&len) {
                let place = format!("message {}", self.messages + 1);
                let what = format!(
                    "version {version} and length {len} make no message of BMP, which has version {VERSION} and at \
                     most {MESSAGE_BYTES} bytes"
                );
                self.rejected.add(|| format!("{place}: {what}"));
                return Err(SourceError::Syntax { place, what });
            }
            let Some((whole, rest)) = bytes.split_at_checked(len) else { break };
            bytes = rest;
            self.messages += 1;
            // Not Peer Down: FRR sends it at each try to reach a peer.
            self.replay.note(matches!(kind, ROUTE_MONITORING | PEER_UP).into(), now);
            if let Err(what) = self.message(kind, Fields(&whole[HEADER_BYTES..]), sink) {
                self.reject(what);
            }
            sink(RouteEvent::Commit(self.messages));
            if self.over {
                return Err(SourceError::Syntax {
                    place: format!("message {}", self.messages),
                    what: "the router has ceased to send its Loc-RIB; in a new session it sends the routes of its peers"
                        .to_owned(),
                });
            }
            // The peers of a router often go together, and each of them takes as long.
            if std::mem::take(&mut self.was_long) && !bytes.is_empty() {
                self.due = Some(now);
                break;
            }
        }
        Ok(given - bytes.len())
    }

    fn tick(&mut self, now: Instant, sink: Sink<'_>) {
        let marked = self.counted().next().is_some() && self.counted().all(Peer::has_ended);
        if self.replay.completes(marked, now) {
            sink(RouteEvent::EndOfTable);
        }
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn rejected(&self) -> Rejected {
        self.rejected.clone()
    }
}

impl Bmp {
    /// Whether the router sends its choice.
    fn has_loc_rib(&self) -> bool {
        self.peers.keys().any(|key| key.view == View::LocRib)
    }

    /// Peers whose routes count.
    fn counted(&self) -> impl Iterator<Item = &Peer> {
        let loc_rib = self.has_loc_rib();
        let counts = move |key: &Key| !loc_rib || key.view == View::LocRib;
        self.peers.iter().filter(move |(key, _)| counts(key)).map(|(_, peer)| peer)
    }

    fn message(&mut self, kind: u8, mut body: Fields<'_>, sink: Sink<'_>) -> Result<(), Words> {
        if !matches!(kind, ROUTE_MONITORING | PEER_DOWN | PEER_UP) {
            return Ok(());
        }
        let header = Header::read(&mut body)?;
        let Some(key) = header.key else {
            // Once a peer, not once a route.
            return if kind == PEER_UP {
                Err("a peer of another routing instance")
            } else {
                Ok(())
            };
        };
        match kind {
            PEER_UP => self.up(key, &header, body, sink),
            PEER_DOWN => {
                if let Some(peer) = self.peers.remove(&key) {
                    if key.view == View::LocRib {
                        self.over = true;
                        return Ok(());
                    }
                    self.was_long = self.ribs.has_paths(peer.number);
                    self.ribs.remove_peer(peer.number, &mut |change| sink(change.event()));
                }
                Ok(())
            }
            _ => self.routes(key, &header, body, sink),
        }
    }

    fn up(
        &mut self,
        key: Key,
        header: &Header,
        mut body: Fields<'_>,
        sink: Sink<'_>,
    ) -> Result<(), Words> {
        // Own address and both ports.
        body.take(16 + 2 + 2)?;
        let (sent, received) = (open(&mut body)?, open(&mut body)?);
        let mut changed = |change: Change| sink(change.event());
        if let Some(before) = self.peers.remove(&key) {
            self.was_long = self.ribs.has_paths(before.number);
            self.ribs.remove_peer(before.number, &mut changed);
        }
        let external = sent.own_as != header.peer_as;
        let number = self.ribs.add_peer(crate::bgp::ribs::Peer {
            addr: key.addr,
            bgp_id: header.bgp_id,
            external,
        })?;
        // Not for a Loc-RIB that is refused: nothing would take the place of the routes of the peers.
        if key.view == View::LocRib && !self.has_loc_rib() {
            self.ribs.clear(&mut changed);
        }
        self.peers.insert(key, Peer::new(number, &sent, &received));
        Ok(())
    }

    fn routes(
        &mut self,
        key: Key,
        header: &Header,
        mut body: Fields<'_>,
        sink: Sink<'_>,
    ) -> Result<(), Words> {
        if !self.peers.contains_key(&key) {
            return Err("routes of a peer that is not up");
        }
        let of_peer = key.view != View::LocRib;
        if of_peer && (header.is_out || self.has_loc_rib()) {
            return Ok(());
        }
        if of_peer && header.is_post_policy && !self.post_policy {
            self.post_policy = true;
            self.peers.values_mut().for_each(|peer| peer.ended = [false; 2]);
            self.ribs.clear(&mut |change| sink(change.event()));
        }
        if of_peer && self.post_policy && !header.is_post_policy {
            return Ok(());
        }
        let peer = self.peers.get_mut(&key).expect("just seen");
        let (kind, body) = message(&mut body)?;
        if kind != UPDATE {
            return Err("a BGP message that is no UPDATE");
        }
        let (ribs, rejected, messages) = (&mut self.ribs, &mut self.rejected, self.messages);
        update(body, peer.encoding(header), &mut |statement| {
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
                    None
                }
            };
            if let Some(change) = change {
                sink(change.event());
            }
        })
    }

    fn reject(&mut self, what: Words) {
        let messages = self.messages;
        self.rejected.add(|| format!("message {messages}: {what}"));
    }
}
