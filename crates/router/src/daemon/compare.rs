//! Comparisons of the kernel's routes with those that its source has in the RIB: a message that is lost unreported ends in a
//! resynchronization.
//!
//! The kernel reports messages that did not fit (ENOBUFS). What gets lost otherwise would be wrong until the next
//! resynchronization: a socket filter, a bug of the kernel or of ours. So once in a while a thread reads all next-hop
//! objects and routes again, on a socket of its own, and the control thread compares them, at most [`WORK`] a turn.
//!
//! **No false alarms.** A dump and notifications are not ordered with each other, so a difference proves nothing while
//! things change. It counts when all of this holds:
//!
//! 1. it was found in a first pass, and what a second dump, which began after that, has of it differs as well: the
//!    first one was not merely older than a notification;
//! 2. no notification was about it from when it was found until all that the kernel had sent by the end of the second pass was
//!    handled ([`Piece::Mark`](super::reader::Piece)) and [`SETTLE`] went by: none was still queued;
//! 3. no dump of the source began since the first pass did: the kernel does not report what follows when a link changes,
//!    the source reads everything again instead.
//!
//! Routes that the kernel does not have are found by their number: if the RIB has another one than the dump, its routes
//! are looked up in the dump's.
//!
//! **No loop.** What differs still after a resynchronization was not lost but refused: it is logged once and left alone.
//!
//! Cost: a search of the RIB for each route that the kernel has, once every `compare_s`; 8 bytes a route during a
//!       pass, and up to [`MOST`] differences.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, Prefix};
use fingerpost_route::rib::Rib;
use fingerpost_route::source::kernel::snapshot;
use fingerpost_route::{
    AnyPrefix, Control, NextHopUpdate, RouteEvent, RouteKey, RouteUpdate, SourceId, TableId,
};
use tracing::{debug, warn};

use crate::sys::{Netlink, Received, poll};

/// Time of the control thread that a turn takes.
const WORK: Duration = Duration::from_micros(500);
/// Events between two looks at the clock: some tens of microseconds.
const STEP: usize = 64;
/// Events of a piece, and pieces that may wait: enough for a turn.
const PIECE: usize = 512;
const WAITING: usize = 8;
/// Differences that are kept; more are not needed to know that messages were lost.
const MOST: usize = 4_096;
/// Time between the end of the notifications and the verdict.
const SETTLE: Duration = Duration::from_secs(1);
/// Largest datagram of a dump, and the longest wait for one: the kernel may hold its lock for long.
const BUFFER_BYTES: usize = 256 << 10;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    Route(RouteKey),
    Object(u32),
}

/// What the kernel has of it.
#[derive(Clone, Debug)]
enum Held {
    Route(RouteUpdate),
    Object(NextHopUpdate),
    /// No pass found it in the kernel.
    Nothing,
}

/// A pass over all that the kernel has.
struct Request {
    pass: u64,
    left_out: Vec<u8>,
}

enum Found {
    Some(Vec<Held>),
    /// All of it; hashes of the keys of the routes, sorted.
    All(Vec<u64>),
    Failed(String),
}

/// How far a comparison is.
enum Phase {
    /// The next one begins then.
    Waits(Instant),
    First,
    /// The RIB has another number of routes than the dump, which has these.
    Walk(Box<Walk>),
    Second,
    /// A mark of this number was requested.
    Mark(u64),
    Settles(Instant),
}

struct Walk {
    hashes: Vec<u64>,
    tables: Vec<TableId>,
    at: usize,
    /// Which half of the table, and the prefix that was looked at last.
    v6: bool,
    after: (Option<Prefix<u32>>, Option<Prefix<u128>>),
}

/// What follows from a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing, or not yet.
    None,
    /// A mark of this number is needed.
    Mark(u64),
    /// Messages were lost, in words.
    Lost(String),
}

/// Comparisons so far, for reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Complete ones.
    pub(super) done: u64,
    /// Time of the control thread that the latest one took.
    pub(super) work: Duration,
}

/// The control thread's end. The thread ends with it.
pub(super) struct Compare {
    every: Duration,
    requests: Sender<Request>,
    found: Receiver<(u64, Found)>,
    /// Number of the latest pass; what others have found is dropped.
    pass: u64,
    phase: Phase,
    /// Differences, with what the latest pass found.
    suspects: HashMap<Item, Held>,
    /// There are more.
    more: bool,
    /// What the latest resynchronization was for.
    blamed: HashSet<Item>,
    /// What differs though it was read again.
    refused: HashSet<Item>,
    begun: Instant,
    routes: usize,
    work: Duration,
    counts: Counts,
}

impl Compare {
    /// Compares `every` so often.
    ///
    /// # Errors
    /// When there are no descriptors or threads left.
    pub(super) fn start(every: Duration, now: Instant) -> io::Result<Self> {
        let socket = Netlink::open(libc::NETLINK_ROUTE, &[])?;
        let (requests, asked) = channel();
        let (give, found) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("fingerpost-compare".into());
        thread.spawn(move || {
            crate::privilege::keep_nothing();
            read_all(&socket, &asked, &give);
        })?;
        Ok(Self::with(every, requests, found, now))
    }

    fn with(
        every: Duration,
        requests: Sender<Request>,
        found: Receiver<(u64, Found)>,
        now: Instant,
    ) -> Self {
        Self {
            every,
            requests,
            found,
            pass: 0,
            phase: Phase::Waits(now + every),
            suspects: HashMap::new(),
            more: false,
            blamed: HashSet::new(),
            refused: HashSet::new(),
            begun: now,
            routes: 0,
            work: Duration::ZERO,
            counts: Counts::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes note of an event of the source: what changes does not differ for want of a message.
    pub(super) fn note(&mut self, event: &RouteEvent, now: Instant) {
        if matches!(self.phase, Phase::Waits(_)) {
            return;
        }
        match event {
            RouteEvent::StartOfTable => self.wait(now),
            _ if self.suspects.is_empty() => {}
            RouteEvent::Route(update) => drop(self.suspects.remove(&Item::Route(update.key))),
            RouteEvent::Withdraw(key) => drop(self.suspects.remove(&Item::Route(*key))),
            RouteEvent::NextHop(update) => drop(self.suspects.remove(&Item::Object(update.id))),
            RouteEvent::NextHopGone(id) => drop(self.suspects.remove(&Item::Object(*id))),
            _ => {}
        }
    }

    /// The mark has come: all that the kernel had sent when it was requested was handled.
    pub(super) fn marked(&mut self, number: u64, now: Instant) {
        if matches!(self.phase, Phase::Mark(wanted) if wanted == number) {
            self.phase = Phase::Settles(now + SETTLE);
        }
    }

    fn wait(&mut self, now: Instant) {
        self.phase = Phase::Waits(now + self.every);
        self.suspects = HashMap::new();
        self.more = false;
    }

    fn begin_pass(&mut self, left_out: &[u8], phase: Phase) {
        self.pass += 1;
        self.phase = phase;
        let _ = self.requests.send(Request { pass: self.pass, left_out: left_out.to_vec() });
    }

    /// The next piece of work, [`WORK`] at most. `follows`: the source has no dump in progress. `left_out`: protocols that the
    /// source leaves out.
    pub(super) fn turn(
        &mut self,
        control: &Control,
        source: SourceId,
        follows: bool,
        left_out: &[u8],
        now: Instant,
    ) -> Verdict {
        let began = Instant::now();
        let verdict = match self.phase {
            Phase::Waits(until) if now < until || !follows => {
                // What is left of a pass that was given up.
                while self.found.try_recv().is_ok() {}
                return Verdict::None;
            }
            Phase::Waits(_) => {
                (self.begun, self.routes, self.work) = (now, 0, Duration::ZERO);
                self.begin_pass(left_out, Phase::First);
                Verdict::None
            }
            Phase::First | Phase::Second => self.compare(control, source, left_out, now, began),
            Phase::Walk(_) => {
                self.walk(control, source, left_out, (now, began));
                Verdict::None
            }
            Phase::Mark(_) => Verdict::None,
            // Routes that are to be withdrawn are in the RIB until they are.
            Phase::Settles(until) if now < until || control.sweeping() => Verdict::None,
            Phase::Settles(_) => self.judge(control, source, now),
        };
        self.work += began.elapsed();
        verdict
    }

    fn compare(
        &mut self,
        control: &Control,
        source: SourceId,
        left_out: &[u8],
        now: Instant,
        began: Instant,
    ) -> Verdict {
        while began.elapsed() < WORK {
            let found = match self.found.try_recv() {
                Ok((pass, found)) if pass == self.pass => found,
                Ok(_) => continue,
                Err(TryRecvError::Empty) => return Verdict::None,
                Err(TryRecvError::Disconnected) => Found::Failed("its thread has ended".into()),
            };
            match found {
                Found::Some(held) => {
                    for held in held {
                        self.look(control, source, held);
                    }
                }
                Found::All(hashes) => return self.passed(control, source, left_out, hashes, now),
                Found::Failed(why) => {
                    warn!(target: "source", source = "kernel", "source kernel: its routes cannot be compared: {why}");
                    self.wait(now);
                    return Verdict::None;
                }
            }
        }
        Verdict::None
    }

    /// Compares what the kernel has of an item.
    fn look(&mut self, control: &Control, source: SourceId, held: Held) {
        let item = match &held {
            Held::Route(update) => Item::Route(update.key),
            Held::Object(update) => Item::Object(update.id),
            Held::Nothing => return,
        };
        self.routes += usize::from(matches!(self.phase, Phase::First));
        let is_new = matches!(self.phase, Phase::First) && !self.refused.contains(&item);
        if !differs(control, source, item, &held) {
            // Also where an earlier line of the dump had another one of several routes.
            self.suspects.remove(&item);
            self.refused.remove(&item);
        } else if self.suspects.contains_key(&item) || is_new {
            self.suspect(item, held);
        }
    }

    fn suspect(&mut self, item: Item, held: Held) {
        if self.suspects.len() < MOST || self.suspects.contains_key(&item) {
            self.suspects.insert(item, held);
        } else {
            self.more = true;
        }
    }

    /// The end of a pass.
    fn passed(
        &mut self,
        control: &Control,
        source: SourceId,
        left_out: &[u8],
        hashes: Vec<u64>,
        now: Instant,
    ) -> Verdict {
        if let Phase::Second = self.phase {
            self.phase = Phase::Mark(self.pass);
            return Verdict::Mark(self.pass);
        }
        // A route of the kernel that the RIB lacks may hide one that the kernel lacks.
        let same = self.refused.is_empty() && control.source(source).routes == hashes.len() as u64;
        if same && self.suspects.is_empty() {
            self.blamed = HashSet::new();
            self.end(now);
            return Verdict::None;
        }
        if same {
            self.begin_second(left_out);
        } else {
            let tables = control.tables();
            let walk = Walk { hashes, tables, at: 0, v6: false, after: (None, None) };
            self.phase = Phase::Walk(Box::new(walk));
        }
        Verdict::None
    }

    /// What the second pass does not find the kernel does not have.
    fn begin_second(&mut self, left_out: &[u8]) {
        self.suspects.values_mut().for_each(|held| *held = Held::Nothing);
        self.begin_pass(left_out, Phase::Second);
    }

    /// Looks up routes of the RIB in the dump.
    fn walk(
        &mut self,
        control: &Control,
        source: SourceId,
        left_out: &[u8],
        (now, began): (Instant, Instant),
    ) {
        let phase = std::mem::replace(&mut self.phase, Phase::Second);
        let Phase::Walk(mut walk) = phase else { unreachable!("called for a walk") };
        while began.elapsed() < WORK {
            let table = loop {
                match walk.tables.get(walk.at) {
                    Some(&TableId::Routes(table)) => break table,
                    Some(TableId::Paths(_)) => walk.at += 1,
                    None if self.suspects.is_empty() => {
                        self.blamed = HashSet::new();
                        return self.end(now);
                    }
                    None => return self.begin_second(left_out),
                }
            };
            let (v4, v6) = control.ribs(table).expect("tables stay");
            let missing = if walk.v6 {
                let (keys, last) =
                    missing(v6, source, table, walk.after.1, &walk.hashes, AnyPrefix::V6);
                walk.after.1 = last;
                if last.is_none() {
                    (walk.v6, walk.at, walk.after) = (false, walk.at + 1, (None, None));
                }
                keys
            } else {
                let (keys, last) =
                    missing(v4, source, table, walk.after.0, &walk.hashes, AnyPrefix::V4);
                walk.after.0 = last;
                walk.v6 = last.is_none();
                keys
            };
            for item in missing.into_iter().map(Item::Route) {
                if !self.refused.contains(&item) {
                    self.suspect(item, Held::Nothing);
                }
            }
        }
        self.phase = Phase::Walk(walk);
    }

    /// All has settled: what differs now was lost.
    fn judge(&mut self, control: &Control, source: SourceId, now: Instant) -> Verdict {
        self.suspects.retain(|item, held| differs(control, source, *item, held));
        let (again, new): (HashSet<Item>, HashSet<Item>) =
            self.suspects.keys().copied().partition(|item| self.blamed.contains(item));
        let most = if self.more { "at least " } else { "" };
        self.end(now);
        if let Some(example) = again.iter().map(words).min() {
            let count = again.len();
            warn!(target: "source", source = "kernel", differ = count, "source kernel: {most}{count} routes differ though all of them were read again, e.g. {example}: they are left as they are");
            self.refused.extend(again);
        }
        let example = new.iter().map(words).min();
        let (count, noun) =
            (new.len(), if new.len() == 1 { "route differs" } else { "routes differ" });
        self.blamed = new;
        example.map_or(Verdict::None, |example| {
            Verdict::Lost(format!("silent loss: {most}{count} {noun}, e.g. {example}"))
        })
    }

    fn end(&mut self, now: Instant) {
        let (took, work) = (now.duration_since(self.begun), self.work);
        self.counts = Counts { done: self.counts.done + 1, work };
        debug!(
            target: "source", source = "kernel", routes = self.routes, differ = self.suspects.len(),
            took_ms = took.as_secs_f64() * 1e3, work_ms = work.as_secs_f64() * 1e3,
            "source kernel: {} routes and objects compared in {:.0} ms, {:.1} ms of the control thread: {} differ",
            self.routes, took.as_secs_f64() * 1e3, work.as_secs_f64() * 1e3, self.suspects.len()
        );
        self.wait(now);
    }
}

/// Whether the RIB has something else than the kernel.
fn differs(control: &Control, source: SourceId, item: Item, held: &Held) -> bool {
    match (held, item) {
        (Held::Route(update), _) => !control.has_route(source, update),
        (Held::Object(update), _) => !control.has_object(source, update),
        (Held::Nothing, Item::Route(key)) => control.has_key(source, &key),
        // The object went away since the first pass, and its notification has it.
        (Held::Nothing, Item::Object(_)) => false,
    }
}

fn words(item: &Item) -> String {
    match item {
        Item::Route(key) if key.table == fingerpost_route::MAIN_TABLE => key.prefix.to_string(),
        Item::Route(key) => format!("{} table {}", key.prefix, key.table),
        Item::Object(id) => format!("next-hop object {id}"),
    }
}

fn hash(key: &RouteKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Routes of a source, of the next prefixes of a table, that the dump does not have; with the last prefix that was looked at.
fn missing<A: Addr>(
    rib: &Rib<A>,
    source: SourceId,
    table: u32,
    after: Option<Prefix<A>>,
    hashes: &[u64],
    any: fn(Prefix<A>) -> AnyPrefix,
) -> (Vec<RouteKey>, Option<Prefix<A>>) {
    let number = source.index();
    let selected =
        rib.select(after, STEP, usize::MAX, |candidate, _| usize::from(candidate.source) == number);
    let keys = selected.found.into_iter().map(|(prefix, candidate)| RouteKey {
        table,
        prefix: any(prefix),
        metric: candidate.metric,
    });
    let missing = keys.filter(|key| hashes.binary_search(&hash(key)).is_err()).collect();
    (missing, selected.last)
}

/// The thread: reads all that the kernel has, as often as it is requested.
fn read_all(socket: &Netlink, requests: &Receiver<Request>, give: &SyncSender<(u64, Found)>) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(Request { pass, left_out }) = requests.recv() {
        let mut sink = |found| give.send((pass, found)).is_ok();
        if let Err(error) = read_once(socket, &left_out, &mut buffer, &mut sink)
            && !sink(Found::Failed(error))
        {
            return;
        }
    }
}

/// One pass. `sink` returns whether somebody takes what it is given.
fn read_once(
    socket: &Netlink,
    left_out: &[u8],
    buffer: &mut [u8],
    sink: &mut dyn FnMut(Found) -> bool,
) -> Result<(), String> {
    let mut source = snapshot();
    source.leave_out(left_out);
    let (mut piece, mut hashes, mut ended) = (Vec::new(), Vec::new(), false);
    while !ended {
        let mut out = Vec::new();
        source.output(&mut out);
        for request in out {
            socket.send(&request).map_err(|error| error.to_string())?;
        }
        let len = match socket.recv(buffer).map_err(|error| error.to_string())? {
            Received::Bytes(len) => len,
            Received::Lost => return Err("its dump did not fit into the receive buffer".into()),
            Received::Empty => {
                if !poll(&[socket.fd()], LONGEST_WAIT) {
                    return Err("the kernel does not answer".into());
                }
                continue;
            }
        };
        let taken = source.input(&buffer[..len], Instant::now(), &mut |event| match event {
            RouteEvent::Route(update) if Control::takes(&update.key) => {
                hashes.push(hash(&update.key));
                piece.push(Held::Route(update));
            }
            RouteEvent::NextHop(update) => piece.push(Held::Object(update)),
            RouteEvent::EndOfTable => ended = true,
            _ => {}
        });
        taken.map_err(|error| error.to_string())?;
        if (piece.len() >= PIECE || ended) && !sink(Found::Some(std::mem::take(&mut piece))) {
            return Ok(());
        }
    }
    hashes.sort_unstable();
    // A key may be announced again when it turns out to have several routes.
    hashes.dedup();
    sink(Found::All(hashes));
    Ok(())
}

#[cfg(test)]
mod tests {
    use fingerpost_route::{ControlOptions, MAIN_TABLE, Target};

    use super::*;

    #[test]
    fn a_route_that_is_missing_does_not_hide_one_too_many() {
        let (v4, v6) = (fingerpost_lpm::v4().collect(), fingerpost_lpm::v6().collect());
        let options = ControlOptions { v4, v6, connected_from_addresses: true };
        let mut control = Control::new(options).unwrap();
        let source = control.add_source("kernel", 0);
        let update = |prefix: &str| {
            let prefix = AnyPrefix::parse(prefix).unwrap();
            RouteUpdate::new(RouteKey { table: MAIN_TABLE, prefix, metric: 0 }, Target::Blackhole)
        };
        let (lacking, stale) = (update("192.0.2.0/24"), update("198.51.100.0/24"));
        control.handle(source, RouteEvent::Route(stale.clone()));

        let (every, mut now) = (Duration::from_secs(1), Instant::now());
        let ((requests, asked), (give, found)) = (channel(), sync_channel(WAITING));
        let mut compare = Compare::with(every, requests, found, now);
        compare.refused.insert(Item::Route(lacking.key));
        let mut verdicts = Vec::new();
        for _ in 0..20 {
            now += every;
            if let Ok(Request { pass, .. }) = asked.try_recv() {
                give.send((pass, Found::Some(vec![Held::Route(lacking.clone())]))).unwrap();
                give.send((pass, Found::All(vec![hash(&lacking.key)]))).unwrap();
            }
            match compare.turn(&control, source, true, &[], now) {
                Verdict::None => {}
                Verdict::Mark(number) => compare.marked(number, now),
                Verdict::Lost(why) => verdicts.push(why),
            }
        }
        let first = verdicts.first().expect("the stale route is found");
        assert_eq!(first, "silent loss: 1 route differs, e.g. 198.51.100.0/24");
        // With it gone nothing is left to find, and comparisons go on.
        control.handle(source, RouteEvent::Withdraw(stale.key));
        let (done, lost) = (compare.counts().done, verdicts.len());
        for _ in 0..20 {
            now += every;
            if let Ok(Request { pass, .. }) = asked.try_recv() {
                give.send((pass, Found::All(vec![hash(&lacking.key)]))).unwrap();
            }
            let verdict = compare.turn(&control, source, true, &[], now);
            assert!(!matches!(verdict, Verdict::Lost(_)), "{verdict:?}");
            if let Verdict::Mark(number) = verdict {
                compare.marked(number, now);
            }
        }
        assert!(compare.counts().done > done + 2 && lost > 0);
    }
}
