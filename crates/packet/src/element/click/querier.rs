//! Finds the link address of the next hop of packets, and puts the Ethernet header before them: what `ARPQuerier` and
//! `NDSolicitor` have in common.
//!
//! Packets come at input 0, without their Ethernet header, and leave by output 0. The next hop is their gateway, where
//! the route lookup noted one, or their destination; broadcasts and groups need no resolution. Replies of hosts come
//! at input 1, each with its Ethernet header, and are consumed. Queries leave by output 1, where it is used, else by
//! output 0.
//!
//! While an address is unknown its packets wait: a bounded number for each address, and of all. `NDSolicitor`, and any
//! whose output 2 is used, query it once a second. After 3 seconds the packets leave by output 2, with the note that an
//! ICMP error is made of, or are dropped; for some seconds then others do so at once, while the query is repeated. An
//! `ARPQuerier` without output 2 does as Click's: packets wait until `TIMEOUT`, and each may cause a query, of which
//! ten are a tenth of a second apart and the others two seconds.
//!
//! Addresses are kept for `TIMEOUT`, and confirmed after `POLL_TIMEOUT` by querying the host itself. All workers learn
//! what one does ([`super::neighbors`]).

use std::any::Any;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fingerpost_route::Mac;

use super::front::{HEADER, grow};
use super::neighbors::{FOREVER, Neighbor, Neighbors, Station, View};
use crate::element::support::setting::{dashed, value};
use crate::element::support::waiting::{
    Bounds, KEYS, PATIENCE_NS, PER_KEY, QUERY_NS, Share, Waiting,
};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::EtherMut;
use crate::frame::{Batch, Cause, DropReason, Packet};
use crate::graph::{Context, Element, Exit, Held, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{Args, ClassSpec, ConfigError, Value};
use crate::route_table::gateways::Gateways;

/// Queries and replies of one family.
pub(super) trait Protocol: Clone + Send + Sync + 'static {
    /// Address of a host.
    type Addr: Station;
    /// The same, as text.
    type Text: Value + Display + From<Self::Addr> + Into<Self::Addr>;
    /// Type of the packets.
    const ETHERTYPE: u16;
    /// Time after which a host is probed.
    const POLL_NS: u64;
    /// How long an address is kept that nobody confirms.
    const LIFE_NS: u64;
    /// Name of its queries.
    const QUERIES: &'static str;
    /// Whether queries are repeated by time where output 2 is not used, too.
    const REPEATS: bool;

    /// Link address that queries come from.
    fn mac(&self) -> Mac;
    /// Destination of the packet at an offset of a frame.
    fn destination(frame: &[u8], network: usize) -> Option<Self::Addr>;
    /// A gateway, if it is of this family.
    fn gateway(addr: IpAddr) -> Option<Self::Addr>;
    /// Link address of what needs no resolution.
    fn known(&self, addr: Self::Addr) -> Option<Result<Mac, DropReason>>;
    /// Writes a query for an address, to all or to the host that had it. Returns whether there was room.
    fn query(&self, addr: Self::Addr, known: Option<Mac>, packet: &mut Packet) -> bool;
    /// Reply in a frame, if it is valid.
    fn hear(&self, frame: &[u8]) -> Option<Heard<Self::Addr>>;
}

/// Reply of a host.
pub(super) struct Heard<A> {
    pub(super) addr: A,
    pub(super) mac: Mac,
    /// It is for us: who is not known yet becomes so.
    pub(super) new: bool,
    /// Another link address than the known one is true.
    pub(super) moves: bool,
    /// Whether the host is confirmed reachable; else it is probed when next needed.
    pub(super) confirms: bool,
}

/// What classes declare of their ports.
pub(super) const fn spec(name: &'static str) -> ClassSpec {
    ClassSpec::new(name, "2/1-3", "h/h", "xy/x").outputs(&["out", "queries", "failed"])
}

/// The arguments that all have, behind those of the protocol.
pub(super) struct Given {
    capacity: Option<u16>,
    entries: Option<usize>,
    per_entry: Option<u16>,
    /// Known hosts are queried by broadcast, too.
    pub(super) broadcast_poll: bool,
    timeout: Option<Duration>,
    poll: Option<Duration>,
}

impl Given {
    pub(super) fn read(args: &mut Args<'_>) -> Result<Self, ConfigError> {
        let capacity = args.keyword("CAPACITY");
        let entries = args.keyword("ENTRY_CAPACITY");
        let per_entry = args.keyword("ENTRY_PACKET_CAPACITY");
        let broadcast_poll = args.keyword("BROADCAST_POLL");
        let timeout = args.keyword("TIMEOUT");
        let poll = args.keyword("POLL_TIMEOUT");
        Ok(Self {
            capacity: capacity?,
            // Click's: without a bound.
            entries: entries?.filter(|&entries| entries > 0),
            per_entry: per_entry?.filter(|&packets| packets > 0),
            broadcast_poll: broadcast_poll?.unwrap_or(false),
            timeout: timeout?,
            poll: poll?,
        })
    }

    /// What a table bounds, where another one bounds the rest.
    pub(super) fn of_table(self, table: Self) -> Self {
        Self { broadcast_poll: self.broadcast_poll, poll: self.poll, ..table }
    }

    /// How long addresses are kept.
    pub(super) fn life_ns<P: Protocol>(&self) -> u64 {
        ns(self.timeout, P::LIFE_NS)
    }

    /// Addresses that are kept at most.
    pub(super) fn entries(&self) -> usize {
        self.entries.unwrap_or(ENTRIES)
    }

    /// The element.
    pub(super) fn made<P: Protocol>(self, protocol: P, setup: &mut Setup<'_>) -> Made {
        // What was learned stays known to a configuration that follows.
        let kept = setup.keep::<Shared<P::Addr>>();
        self.made_with(protocol, setup, kept)
    }

    /// The element, with this table.
    pub(super) fn made_with<P: Protocol>(
        self,
        protocol: P,
        setup: &mut Setup<'_>,
        kept: Arc<Shared<P::Addr>>,
    ) -> Made {
        let capacity = self.capacity.unwrap_or(PACKETS);
        let life_ns = self.life_ns::<P>();
        let repeats = P::REPEATS || setup.outputs > u32::from(FAILED);
        let bounds = Bounds {
            packets: capacity,
            keys: self.entries.unwrap_or(KEYS),
            per_key: self.per_entry.or(self.capacity).unwrap_or(PER_KEY),
            quick: !repeats,
        };
        let settings = Settings {
            protocol,
            repeats,
            broadcast_poll: self.broadcast_poll,
            life_ns,
            poll_ns: ns(self.poll, P::POLL_NS),
            queries: u16::from(setup.outputs > 1),
            failed: setup.exit(FAILED, DropReason::HostUnreachable),
            gateways: setup.gateways.clone(),
        };
        let entries = self.entries();
        let shown = kept.clone();
        let made = Made::new(move |instance| {
            let table = if instance.is_dry_run() {
                Arc::new(kept.1.copy())
            } else {
                // Only now the configuration is taken.
                kept.1.set_capacity(entries);
                kept.1.clone()
            };
            Querier::new(settings.clone(), table, bounds, kept.0.add(instance))
        });
        handled::<P>(made.polled().holds(capacity.into()), &shown, life_ns)
    }
}

/// Nanoseconds of a time argument: `usual` without one, never for 0 (Click's).
fn ns(time: Option<Duration>, usual: u64) -> u64 {
    match time {
        // Click's: never.
        Some(Duration::ZERO) => FOREVER,
        Some(time) => u64::try_from(time.as_nanos()).unwrap_or(FOREVER),
        None => usual,
    }
}

/// Packets that a worker keeps.
const PACKETS: u16 = 1024;
/// Addresses that are kept.
const ENTRIES: usize = 16 * 1024;
/// How long packets are not kept for a host that did not answer.
const HOLD_DOWN_NS: u64 = 5_000_000_000;
/// Keys looked at in a round.
const TURNS: usize = 16;

/// Input of replies.
const REPLIES: u16 = 1;
pub(super) const FAILED: u16 = 2;

#[derive(Default)]
pub(super) struct Counts<A> {
    queries: Count,
    responses: Count,
    drops: Count,
    /// Packets that wait.
    length: Count,
    /// Time of the last look.
    now_ns: Count,
    /// Addresses that are not known yet, each with the time at which it was first wanted.
    wanted: Mutex<Vec<(A, u64)>>,
}

/// Addresses that are not known yet: so many are shown as they come, more once a millisecond.
const SHOWN_AT_ONCE: usize = 16;
const SHOWN_NS: u64 = 1_000_000;

/// What workers and handlers share.
pub(super) type Shared<A> = (PerWorker<Counts<A>>, Arc<Neighbors<A>>);

/// Entries of the table, the oldest first: address, link address if it is known, and time of the last news.
fn listed<A: Station>(
    table: &Neighbors<A>,
    members: &[Arc<Shared<A>>],
    life_ns: u64,
) -> Vec<(A, Option<Mac>, u64)> {
    let last = |shared: &Arc<Shared<A>>| shared.0.greatest(|counts| counts.now_ns.read());
    let now_ns = members.iter().map(last).max().unwrap_or(0);
    let age_ns = |at_ns: u64| if at_ns == FOREVER { 0 } else { now_ns.saturating_sub(at_ns) };
    let known = table.all();
    let of = |&(addr, entry): &(A, Neighbor)| {
        let age_ns = age_ns(entry.heard_ns);
        (addr, Some(entry.mac).filter(|_| age_ns < life_ns || life_ns == FOREVER), age_ns)
    };
    let mut all: Vec<_> = known.iter().map(of).collect();
    members.iter().for_each(|shared| {
        shared.0.each(|counts| {
            // The worker needs the list again at once.
            let wanted = counts.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
            // Who still waits for an address keeps it: it is not older than what is forgotten.
            all.extend(
                wanted.into_iter().map(|(addr, since)| (addr, None, age_ns(since).min(life_ns))),
            );
        })
    });
    // Of several workers that know an address, or wait for it, the last news count; the link address first.
    all.sort_by_key(|&(addr, mac, age_ns)| (addr, mac.is_none(), age_ns));
    all.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.2 = kept.2.min(next.2);
        }
        same
    });
    all.sort_by_key(|&(addr, _, age_ns)| (std::cmp::Reverse(age_ns), addr));
    all
}

fn handled<P: Protocol>(made: Made, shared: &Arc<Shared<P::Addr>>, life_ns: u64) -> Made {
    let read = |name, value: fn(&Counts<P::Addr>) -> u64| {
        let shared = shared.clone();
        Handler::read(name, move || shared.0.sum(value).to_string())
    };
    let stats = shared.clone();
    let made = made
        .handler(read("queries", |counts| counts.queries.read()))
        .handler(read("responses", |counts| counts.responses.read()))
        .handler(Handler::read("stats", move || {
            let drops = stats.0.sum(|counts| counts.drops.read());
            let queries = stats.0.sum(|counts| counts.queries.read());
            format!("{drops} packets killed\n{queries} {} sent\n", P::QUERIES)
        }));
    let members = shared.clone();
    table_handled::<P>(made, &shared.1, life_ns, move || vec![members.clone()])
}

/// Adds the handlers of a table, of which these elements have packets that wait.
pub(super) fn table_handled<P: Protocol>(
    made: Made,
    table: &Arc<Neighbors<P::Addr>>,
    life_ns: u64,
    members: impl Fn() -> Vec<Arc<Shared<P::Addr>>> + Send + Sync + 'static,
) -> Made {
    let members = Arc::new(members);
    let read = |name, value: fn(&Counts<P::Addr>) -> u64| {
        let members = members.clone();
        let sum = move || members().iter().map(|shared| shared.0.sum(value)).sum::<u64>();
        Handler::read(name, move || sum().to_string())
    };
    let [shown, count] = [(); 2].map(|()| (table.clone(), members.clone()));
    let [insert, delete, clear] = [(); 3].map(|()| table.clone());
    made.handler(read("drops", |counts| counts.drops.read()))
        .handler(read("length", |counts| counts.length.read()))
        .handler(Handler::read("count", move || {
            listed(&count.0, &(count.1)(), life_ns).len().to_string()
        }))
        .handler(Handler::read("table", move || {
            let line = |(addr, mac, age_ns): (P::Addr, Option<Mac>, u64)| {
                let (known, mac) = (u8::from(mac.is_some()), mac.unwrap_or(Mac([0xff; 6])));
                let mac = dashed(mac);
                let (s, us) = (age_ns / 1_000_000_000, age_ns / 1000 % 1_000_000);
                format!("{} {known} {mac} {s}.{us:06}\n", P::Text::from(addr))
            };
            listed(&shown.0, &(shown.1)(), life_ns).into_iter().map(line).collect()
        }))
        .handler(Handler::write("insert", move |text| {
            let (addr, mac) = text.trim().split_once(' ').unwrap_or((text, ""));
            let entry = Neighbor { mac: value(mac)?, heard_ns: FOREVER };
            let known = insert.learn(value::<P::Text>(addr)?.into(), entry, 0, FOREVER);
            known.then_some(()).ok_or_else(|| "no room for another entry".into())
        }))
        .handler(Handler::write("delete", move |text| {
            let addr = value::<P::Text>(text)?.into();
            let known = delete.forget(addr);
            known.then_some(()).ok_or_else(|| format!("no entry for {}", P::Text::from(addr)))
        }))
        .command("clear", move || clear.clear())
}

#[derive(Clone)]
pub(super) struct Settings<P> {
    pub(super) protocol: P,
    /// Queries are repeated by time, and packets do not wait for longer than [`PATIENCE_NS`].
    pub(super) repeats: bool,
    pub(super) broadcast_poll: bool,
    pub(super) life_ns: u64,
    pub(super) poll_ns: u64,
    /// Output of queries.
    pub(super) queries: u16,
    pub(super) failed: Exit,
    pub(super) gateways: Arc<Gateways>,
}

/// The element.
pub(super) struct Querier<P: Protocol> {
    settings: Settings<P>,
    view: View<P::Addr>,
    waiting: Waiting<P::Addr>,
    /// Hosts being probed. Apart, so that a sweep through addresses that nobody has
    /// takes no room from them (RFC 6583).
    confirming: Waiting<P::Addr>,
    bounds: Bounds,
    counts: Arc<Counts<P::Addr>>,
    /// When the addresses that are not known were last shown, and how many they were.
    shown: (u64, usize),
    /// What was learned just now, kept for its memory.
    learned: Vec<P::Addr>,
    /// The same, of packets that waited.
    released: Vec<Packet>,
}

/// Where a packet goes.
enum Verdict<A> {
    To(Mac),
    /// Sent to this neighbor, which is to be probed.
    Confirm(A, Mac),
    Query(A, Share),
    Drop(DropReason),
}

impl<P: Protocol> Querier<P> {
    pub(super) fn new(
        settings: Settings<P>,
        table: Arc<Neighbors<P::Addr>>,
        bounds: Bounds,
        counts: Arc<Counts<P::Addr>>,
    ) -> Self {
        Self {
            settings,
            view: View::new(table),
            waiting: Waiting::bounded(bounds),
            confirming: Waiting::bounded(Bounds { packets: 0, keys: KEYS, ..bounds }),
            bounds,
            counts,
            shown: (0, 0),
            learned: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Next hop of the packet at an offset of a frame.
    fn way(&self, batch: &Batch, i: usize, now_ns: u64) -> Verdict<P::Addr> {
        let meta = batch.meta()[i];
        let Some(dst) = P::destination(batch.bytes(i), meta.network.into()) else {
            return Verdict::Drop(DropReason::TooShort);
        };
        let (addr, share) = match self.settings.gateways.get(meta.hop.gateway()).map(P::gateway) {
            None => (dst, Share::Host(meta.port)),
            Some(Some(gateway)) => (gateway, Share::Gateway),
            // Of the other family, of which this protocol knows nothing.
            Some(None) => return Verdict::Drop(DropReason::Unresolved),
        };
        if let Some(entry) = self.view.get(addr) {
            let age = entry.age_ns(now_ns);
            if age < self.settings.poll_ns {
                return Verdict::To(entry.mac);
            }
            if age < self.settings.life_ns {
                return Verdict::Confirm(addr, entry.mac);
            }
        }
        match self.settings.protocol.known(addr) {
            None => Verdict::Query(addr, share),
            Some(Ok(mac)) => Verdict::To(mac),
            Some(Err(reason)) => Verdict::Drop(reason),
        }
    }

    /// Queries an address: by broadcast, or at the host that had it. The query has the annotations of its cause.
    fn query(
        &self,
        addr: P::Addr,
        known: Option<Mac>,
        cause: Option<(&Batch, usize)>,
        cx: &mut Context<'_>,
    ) {
        // Without a free frame it is queried again a second later.
        let Some(mut packet) = cx.pool.alloc() else { return };
        let known = known.filter(|_| !self.settings.broadcast_poll);
        if self.settings.protocol.query(addr, known, &mut packet) {
            if let Some((batch, i)) = cause {
                packet.meta.vlan = batch.meta()[i].vlan;
                if let Some(of_cause) = batch.annotations(i)
                    && let Some(annotations) = packet.annotations_mut()
                {
                    *annotations = *of_cause;
                }
            }
            self.counts.queries.add(1);
            cx.originate(self.settings.queries, packet);
        }
    }

    /// Puts the Ethernet header before a packet that was taken out, and sends it.
    fn send(&self, mut packet: Packet, to: Mac, cx: &mut Context<'_>) {
        let network = packet.meta.network.checked_add(HEADER);
        let Some(network) = network.filter(|_| packet.push_front(HEADER.into())) else {
            cx.drop_packet(packet, DropReason::NoBuffer);
            return;
        };
        packet.meta.network = network;
        self.write_header(packet.bytes_mut(), to);
        cx.emit(0, packet);
    }

    /// Takes over what all workers have learned, and lets go what waited for it; whether anything did.
    fn follow(&mut self, cx: &mut Context<'_>) -> bool {
        let mut learned = std::mem::take(&mut self.learned);
        self.view.follow(&mut |addr| learned.push(addr));
        let mut any = false;
        for addr in learned.drain(..) {
            any |= self.release(addr, cx);
        }
        self.learned = learned;
        any
    }

    /// Sends what waited for an address, if it is known; whether anything did.
    fn release(&mut self, addr: P::Addr, cx: &mut Context<'_>) -> bool {
        let Some(entry) = self.view.get(addr) else { return false };
        let mut packets = std::mem::take(&mut self.released);
        self.waiting.release(addr, |packet| packets.push(packet));
        let any = !packets.is_empty();
        packets.drain(..).for_each(|packet| self.send(packet, entry.mac, cx));
        self.released = packets;
        any
    }

    /// Handles a packet whose next hop has to be resolved.
    fn wait(
        &mut self,
        (addr, share): (P::Addr, Share),
        batch: &mut Batch,
        i: usize,
        cx: &mut Context<'_>,
    ) {
        let (now_ns, counts) = (cx.now_ns, &self.counts);
        let drop = &mut |packet| {
            counts.drops.add(1);
            cx.drop_packet(packet, DropReason::HoldFull);
        };
        let Some((wait, due)) = self.waiting.wait(addr, share, now_ns, drop) else {
            self.counts.drops.add(1);
            return batch.discard(i, DropReason::HoldFull);
        };
        let down = wait.failed_ns.is_some_and(|at| now_ns.saturating_sub(at) < HOLD_DOWN_NS);
        if due {
            self.query(addr, None, Some((batch, i)), cx);
        }
        if down {
            self.counts.drops.add(1);
            batch.meta_mut()[i].note = Cause::HostUnreachable.note();
            self.settings.failed.take(batch, i);
        } else if self.has_room(addr, cx) {
            let packet = batch.take(i);
            self.waiting.keep(addr, packet);
        } else {
            self.counts.drops.add(1);
            batch.discard(i, DropReason::HoldFull);
        }
    }

    fn has_room(&mut self, addr: P::Addr, cx: &mut Context<'_>) -> bool {
        let counts = &self.counts;
        let drop = &mut |packet| {
            counts.drops.add(1);
            cx.drop_packet(packet, DropReason::HoldFull);
        };
        if self.waiting.has_room(addr, drop) {
            return true;
        }
        let first = self.waiting.replace_first(addr);
        let replaced = first.is_some();
        first.into_iter().for_each(drop);
        replaced
    }

    fn packets(&mut self, batch: &mut Batch, cx: &mut Context<'_>) {
        // What has waited is emitted, behind the batch; so that none overtakes it, all are then.
        let mut emitting = self.follow(cx);
        for i in 0..batch.len() {
            let to = match self.way(batch, i, cx.now_ns) {
                Verdict::To(mac) => mac,
                Verdict::Confirm(addr, mac) => {
                    // None of them has packets, nor makes room.
                    let waits = self.confirming.wait(addr, Share::Gateway, cx.now_ns, &mut |_| ());
                    let due = waits.is_some_and(|(_, due)| due);
                    if due {
                        self.query(addr, Some(mac), Some((batch, i)), cx);
                        // The query is the first of what is emitted.
                        emitting = true;
                    }
                    mac
                }
                Verdict::Query(addr, share) => {
                    self.wait((addr, share), batch, i, cx);
                    continue;
                }
                Verdict::Drop(reason) => {
                    self.counts.drops.add(1);
                    batch.discard(i, reason);
                    continue;
                }
            };
            if emitting {
                let packet = batch.take(i);
                self.send(packet, to, cx);
            } else if grow(batch, i, HEADER) {
                self.write_header(batch.bytes_mut(i), to);
            }
        }
    }

    /// Learns from a host's reply.
    fn hear(&mut self, frame: &[u8], now_ns: u64) {
        let Some(heard) = self.settings.protocol.hear(frame) else { return };
        let Heard { addr, mac, new, moves, confirms } = heard;
        let station = mac.0[0] & 1 == 0 && mac != Mac([0; 6]);
        if !station {
            return;
        }
        self.counts.responses.add(1);
        let table = self.view.table();
        if !new && !table.knows(addr) {
            return;
        }
        let fresh_ns = QUERY_NS.min(self.settings.poll_ns / 2);
        self.confirming.forget_key(addr);
        // An entry by hand stays what it is; and what was heard just now is no news to all workers.
        let settled = |entry: Neighbor| {
            entry.heard_ns == FOREVER
                || entry.mac == mac && (!confirms || entry.age_ns(now_ns) < fresh_ns)
                || entry.mac != mac && !moves
        };
        if self.view.get(addr).is_some_and(settled) {
            return;
        }
        // What nobody confirmed is as old as what has to be.
        let heard_ns = if confirms { now_ns } else { now_ns.saturating_sub(self.settings.poll_ns) };
        let entry = Neighbor { mac, heard_ns };
        if !table.learn(addr, entry, now_ns, self.settings.life_ns) {
            self.counts.drops.add(1);
        }
    }

    fn write_header(&self, frame: &mut [u8], dst: Mac) {
        if let Some(mut ether) = EtherMut::of(frame) {
            ether.set_addrs(dst, self.settings.protocol.mac());
            ether.set_kind(P::ETHERTYPE);
        }
    }

    fn count_length(&mut self, now_ns: u64) {
        self.counts.length.set(self.waiting.held().total() as u64);
        self.counts.now_ns.set(now_ns);
        let (at_ns, shown) = self.shown;
        let keys = self.waiting.keys();
        let few = keys <= SHOWN_AT_ONCE && (keys > 0 || shown > 0);
        let due = keys != shown && now_ns.saturating_sub(at_ns) >= SHOWN_NS;
        if few || due {
            // A handler that copies the list is not waited for: the next packet shows it.
            if let Ok(mut wanted) = self.counts.wanted.try_lock() {
                wanted.clear();
                wanted.extend(self.waiting.all());
                self.shown = (now_ns, keys);
            }
        }
    }

    /// The turn of an address that no time but `TIMEOUT` ends the wait for.
    fn turn_without_repeats(&mut self, now_ns: u64) -> Option<P::Addr> {
        let (life_ns, view) = (self.settings.life_ns, &self.view);
        let (addr, wait) = self.waiting.turn()?;
        let old = now_ns.saturating_sub(wait.queried_ns) > life_ns;
        if wait.is_empty() && (old || view.get(addr).is_some()) {
            self.waiting.forget();
        }
        old.then_some(addr)
    }
}

impl<P: Protocol> Element for Querier<P> {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if input == REPLIES {
            self.follow(cx);
            for i in 0..batch.len() {
                self.hear(batch.bytes(i), cx.now_ns);
                batch.discard(i, DropReason::Consumed);
            }
            self.follow(cx);
        } else {
            self.packets(batch, cx);
        }
        self.count_length(cx.now_ns);
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.follow(cx);
        let now_ns = cx.now_ns;
        for _ in 0..self.waiting.keys().min(TURNS) {
            if !self.settings.repeats {
                let Some(addr) = self.turn_without_repeats(now_ns) else { continue };
                let counts = &self.counts;
                self.waiting.release(addr, |packet| {
                    counts.drops.add(1);
                    cx.drop_packet(packet, DropReason::HostUnreachable);
                });
                continue;
            }
            let Some((addr, wait)) = self.waiting.turn() else { break };
            if wait.is_empty() {
                let after = if wait.failed_ns.is_some() { HOLD_DOWN_NS } else { QUERY_NS };
                let since = wait.failed_ns.unwrap_or(wait.queried_ns);
                if now_ns.saturating_sub(since) >= after {
                    self.waiting.forget();
                }
            } else if now_ns.saturating_sub(wait.since_ns) >= PATIENCE_NS {
                wait.failed_ns = Some(now_ns);
                let (counts, failed) = (&self.counts, self.settings.failed);
                self.waiting.release(addr, |mut packet| {
                    counts.drops.add(1);
                    packet.meta.note = Cause::HostUnreachable.note();
                    failed.emit(packet, cx);
                });
            } else if wait.is_due(now_ns) {
                self.query(addr, None, None, cx);
            }
        }
        for _ in 0..self.confirming.keys().min(TURNS) {
            let queried = self.confirming.turn().map_or(now_ns, |(_, wait)| wait.queried_ns);
            if now_ns.saturating_sub(queried) >= QUERY_NS {
                self.confirming.forget();
            }
        }
        self.count_length(now_ns);
    }

    fn held(&self) -> Held {
        self.waiting.held()
    }

    fn hand_over(&mut self) -> Option<Box<dyn Any + Send>> {
        let none = Bounds { packets: 0, ..self.bounds };
        let waiting = std::mem::replace(&mut self.waiting, Waiting::bounded(none));
        self.count_length(self.counts.now_ns.read());
        Some(Box::new(waiting))
    }

    fn take_over(&mut self, state: Box<dyn Any + Send>) {
        if let Ok(waiting) = state.downcast::<Waiting<P::Addr>>() {
            self.waiting = *waiting;
            self.count_length(self.counts.now_ns.read());
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.waiting.stop(|packet| cx.drop_packet(packet, DropReason::Shutdown));
        self.count_length(self.counts.now_ns.read());
    }
}
