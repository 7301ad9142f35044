//! The kernel as a route source: a netlink socket for links, one for all else, and one for requests.
//!
//! Links come first. Their socket is read empty before each piece of the other one is handled, so that a link that
//! fails waits for some hundred messages at most, not for a million; and what follows from it is visible to packets
//! before anything else is done. Where the kernel itself is late, we look: of a link without carrier it speaks only
//! when it has flushed all routes that went with it, which can take most of a second, but it has the flag before.
//!
//! While a table that is built beside lags behind ([`Control::holds_sources`]), messages about routes wait in the
//! reader, as far as it has room, and for [`LONGEST_HOLD`]; those about links never do.

use std::collections::HashSet;
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant, SystemTime};

use fingerpost_route::netlink::neighbor;
use fingerpost_route::source::{RouteSource, SourceError, SourceSpec, Transport, find};
use fingerpost_route::{Control, NeighborRequest, RouteEvent, SourceId};
use tracing::{debug, info, warn};

use super::compare::{Compare, Counts, Verdict};
use super::reader::{Piece, Reader};
use crate::sys::{Netlink, Received};

/// Time that one turn takes messages for, so that a full table of changes does not keep the rest waiting.
const BURST: Duration = Duration::from_millis(4);
/// How long messages may wait for a table. Those about neighbors and addresses behind them wait too: packets to be resolved
/// are held for 3 s.
const LONGEST_HOLD: Duration = Duration::from_millis(300);
/// Largest datagram about links, or in answer to a request for a neighbor.
const BUFFER_BYTES: usize = 64 << 10;
/// Time between two looks at carriers while messages come; the daemon's tick where none come.
const CARRIERS_EVERY: Duration = Duration::from_millis(2);
/// Links looked at in one go, half a microsecond each; of more than that these, and then the next.
const CARRIERS: usize = 256;

/// Time between two comparisons with what the kernel has, unless configured. Each costs a search of the RIB for every route.
const COMPARE_EVERY: Duration = Duration::from_secs(300);

/// Settings of the source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KernelSettings {
    /// The kernel's routes are wanted, not just its links, addresses and neighbors.
    pub(crate) routes: bool,
    pub(crate) distance: Option<u8>,
    /// Size of the receive buffer.
    pub(crate) buffer_kib: Option<u32>,
    /// Seconds between two comparisons; 0 for none.
    pub(crate) compare_s: Option<u32>,
}

/// The kernel's links, addresses, neighbors and, if wanted, routes.
pub(crate) struct KernelSource {
    links: Netlink,
    reader: Reader,
    requests: Netlink,
    source: Box<dyn RouteSource>,
    id: SourceId,
    routes: bool,
    seq: u32,
    buffer: Vec<u8>,
    /// A dump has been completed.
    ready: bool,
    /// Links that ran since their last message.
    ran: HashSet<u32>,
    looked_at_carriers: Instant,
    /// Links that were looked at before, of more than can be at one go.
    looked_at: usize,
    pub(crate) messages: u64,
    resyncs: Resyncs,
    /// Comparisons with what the kernel has, where its routes are wanted.
    compare: Option<Compare>,
    left_out: Vec<u8>,
    /// When the latest message came.
    last_message: Option<Instant>,
    /// When the first one came that may not be visible yet.
    since: Option<Instant>,
    /// When messages began to wait for a table.
    held: Option<Instant>,
}

/// Resynchronizations with the kernel: all that it has is read again.
#[derive(Debug, Default)]
pub(crate) struct Resyncs {
    /// Messages that were lost so many times.
    pub(crate) lost: u64,
    /// Dumps after the first: after a loss, and after changes of links whose consequences the kernel does not report.
    pub(crate) dumps: u64,
    /// The latest resynchronization that is complete: its reason, and how long it took.
    pub(crate) last: Option<(String, Duration)>,
    /// The present one, with its beginning, and whether messages were lost.
    open: Option<(String, Instant, bool)>,
}

impl Resyncs {
    /// Messages were lost.
    fn begin(&mut self, why: String, now: Instant) {
        self.lost += 1;
        // What was lost while one goes on makes it longer.
        let since = self.open.take().map_or(now, |(_, since, _)| since);
        warn!(target: "source", source = "kernel", lost = self.lost, "source kernel: {why}: all of it is read again");
        self.open = Some((why, since, true));
    }

    /// A dump begins, if for no loss then for a change whose consequences the kernel does not report.
    fn dump(&mut self, now: Instant) {
        self.dumps += 1;
        self.open.get_or_insert_with(|| {
            ("a link changed, or an address was deleted: the kernel does not report the routes of it".into(), now, false)
        });
    }

    fn end(&mut self, now: Instant) {
        if let Some((why, since, lost)) = self.open.take() {
            let took = now.duration_since(since);
            let took_ms = took.as_secs_f64() * 1e3;
            match lost {
                true => info!(
                    target: "source", source = "kernel", took_ms,
                    "source kernel: resynchronized in {took_ms:.0} ms"
                ),
                false => debug!(
                    target: "source", source = "kernel", took_ms, why,
                    "source kernel: read again in {took_ms:.0} ms: {why}"
                ),
            }
            self.last = Some((why, took));
        }
    }
}

/// Why the source fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    #[error("netlink: {0}")]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl KernelSource {
    /// Opens the source, and requests a dump. Routes of the protocols `left_out` are not wanted.
    pub(crate) fn open(
        control: &mut Control,
        settings: KernelSettings,
        left_out: &[u8],
    ) -> Result<Self, KernelError> {
        let KernelSettings { routes, distance, buffer_kib, compare_s } = settings;
        let every = compare_s.map_or(COMPARE_EVERY, |seconds| Duration::from_secs(seconds.into()));
        let compare = (routes && !every.is_zero()).then(|| Compare::start(every, Instant::now()));
        let kind = find("kernel").expect("the kernel is in the registry of sources");
        let Transport::Netlink { groups, first } = kind.transport else {
            unreachable!("the kernel speaks netlink")
        };
        let bytes = buffer_kib.and_then(|kib| i32::try_from(u64::from(kib) << 10).ok());
        let socket = match bytes {
            Some(bytes) => Netlink::open_sized(libc::NETLINK_ROUTE, groups, bytes)?,
            None => Netlink::open(libc::NETLINK_ROUTE, groups)?,
        };
        let mut feed = Self {
            links: Netlink::open(libc::NETLINK_ROUTE, first)?,
            reader: Reader::start(socket)?,
            requests: Netlink::open(libc::NETLINK_ROUTE, &[])?,
            source: (kind.open)(&SourceSpec::default())?,
            id: control.add_source(kind.name, distance.unwrap_or(kind.distance)),
            routes,
            seq: 0,
            buffer: vec![0; BUFFER_BYTES],
            ready: false,
            ran: HashSet::new(),
            looked_at_carriers: Instant::now(),
            looked_at: 0,
            messages: 0,
            resyncs: Resyncs::default(),
            compare: compare.transpose()?,
            left_out: left_out.to_vec(),
            last_message: None,
            since: None,
            held: None,
        };
        feed.source.leave_out(left_out);
        feed.flush();
        Ok(feed)
    }

    /// Descriptors for poll: one of them is readable when the kernel has sent messages that are taken, where sources
    /// are held or not.
    pub(crate) fn fds(&self, held: bool) -> impl Iterator<Item = RawFd> {
        let waits = held && self.reader.is_held() && !self.reader.is_full();
        std::iter::once(self.links.fd()).chain((!waits).then(|| self.reader.fd()))
    }

    /// Whether its routes are taken, not just its links, addresses and neighbors.
    pub(crate) fn routes(&self) -> bool {
        self.routes
    }

    /// Whether the first dump is complete.
    pub(crate) fn ready(&self) -> bool {
        self.ready
    }

    /// Takes what there is, up to a burst; returns how many datagrams and changes of carriers that were.
    pub(crate) fn turn(&mut self, control: &mut Control) -> Result<usize, KernelError> {
        // Answers to our own requests are of no interest, but they must not pile up.
        while let Received::Bytes(_) = self.requests.recv(&mut self.buffer)? {}
        let (began, mut taken) = (Instant::now(), 0);
        let holds = control.holds_sources();
        self.held = self.held.filter(|_| holds);
        let hold = holds && self.held.is_none_or(|since| began - since < LONGEST_HOLD);
        loop {
            // Read before links are, and handled after: then it is not older than the state of a link.
            let piece = self.reader.next(hold)?;
            taken += self.take_links(control)?;
            let Some(piece) = piece else { break };
            match piece {
                Piece::Lost => self.lost("routes, addresses or neighbors"),
                Piece::Mark(number) => {
                    if let Some(compare) = &mut self.compare {
                        compare.marked(number, Instant::now());
                    }
                }
                Piece::Datagrams(datagrams) => {
                    for datagram in datagrams.iter() {
                        self.input(control, datagram)?;
                        taken += 1;
                    }
                }
            }
            self.flush();
            if began.elapsed() >= BURST {
                break;
            }
        }
        if self.reader.is_held() {
            self.held.get_or_insert(began);
            self.since.get_or_insert(began);
        }
        if taken > 0 {
            self.messages += taken as u64;
            self.last_message = Some(began);
            self.since.get_or_insert(began);
        }
        Ok(taken)
    }

    /// Leaves out routes of these protocols from now on, as another source has them.
    pub(crate) fn leave_out(&mut self, protocols: &[u8]) {
        if self.routes {
            if self.left_out != protocols {
                self.left_out = protocols.to_vec();
            }
            self.source.leave_out(protocols);
            self.flush();
        }
    }

    /// Compares its routes with what the kernel has, a little at a time. Where messages were lost unreported, all is
    /// read again.
    pub(crate) fn compare(&mut self, control: &Control, now: Instant) {
        let Some(compare) = &mut self.compare else { return };
        let follows = self.ready && !control.source(self.id).dumping;
        match compare.turn(control, self.id, follows, &self.left_out, now) {
            Verdict::None => {}
            Verdict::Mark(number) => self.reader.mark(number),
            Verdict::Lost(why) => {
                self.resyncs.begin(why, now);
                self.source.lost(now);
                self.flush();
            }
        }
    }

    /// Comparisons so far; `None` where there are none.
    pub(crate) fn compared(&self) -> Option<Counts> {
        self.compare.as_ref().map(Compare::counts)
    }

    /// Notes after a commit whether readers see `all` routes.
    pub(crate) fn committed(&mut self, all: bool) {
        if all {
            self.since = None;
        }
    }

    /// Age of the first message that may not be visible yet.
    pub(crate) fn lag(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Age of the latest message.
    pub(crate) fn last_message(&self, now: Instant) -> Option<Duration> {
        self.last_message.map(|at| now.saturating_duration_since(at))
    }

    /// Messages that were not understood, and the reason of one.
    pub(crate) fn errors(&self) -> (u64, String) {
        let rejected = self.source.rejected();
        (rejected.count, rejected.samples.last().cloned().unwrap_or_default())
    }

    /// Resynchronizations so far.
    pub(crate) fn resyncs(&self) -> &Resyncs {
        &self.resyncs
    }

    /// Number of the source.
    pub(crate) fn id(&self) -> SourceId {
        self.id
    }

    /// Looks at carriers alone, while no messages come. Returns how many changed.
    pub(crate) fn look(&mut self, control: &mut Control) -> usize {
        let changed = self.look_at_carriers(control);
        if changed > 0 {
            let _ = control.fail_over();
        }
        changed
    }

    /// Takes what happened to links, and makes visible what follows from it; returns how many datagrams and changes of
    /// carriers that were.
    fn take_links(&mut self, control: &mut Control) -> Result<usize, KernelError> {
        let mut taken = 0;
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            match self.links.recv(&mut buffer)? {
                Received::Empty => break,
                Received::Lost => self.lost("links"),
                Received::Bytes(len) => {
                    self.input(control, &buffer[..len])?;
                    taken += 1;
                }
            }
        }
        self.buffer = buffer;
        if taken > 0 || self.looked_at_carriers.elapsed() >= CARRIERS_EVERY {
            taken += self.look_at_carriers(control);
        }
        // Changes without room are tried again by the commit, which reports them.
        let _ = control.fail_over();
        self.flush();
        Ok(taken)
    }

    fn lost(&mut self, what: &str) {
        let now = Instant::now();
        let why =
            format!("messages about {what} were lost, as the receive buffer was full (ENOBUFS)");
        self.resyncs.begin(why, now);
        self.source.lost(now);
    }

    fn input(&mut self, control: &mut Control, datagram: &[u8]) -> Result<(), KernelError> {
        control.set_time(SystemTime::now());
        let (id, routes) = (self.id, self.routes);
        let (ready, ran, resyncs) = (&mut self.ready, &mut self.ran, &mut self.resyncs);
        let compare = &mut self.compare;
        self.source.input(datagram, Instant::now(), &mut |event| {
            match event {
                RouteEvent::StartOfTable if *ready => resyncs.dump(Instant::now()),
                RouteEvent::EndOfTable => {
                    *ready = true;
                    resyncs.end(Instant::now());
                }
                _ => {}
            }
            if let Some(compare) = compare {
                compare.note(&event, Instant::now());
            }
            if let RouteEvent::Link(update) = &event {
                ran.remove(&update.link);
            }
            if routes || !is_route(&event) {
                control.handle(id, event);
            }
        })?;
        Ok(())
    }

    /// Looks whether links that ran have carrier still. For one that has never run, the reported state holds:
    /// there are such that are up and do not run (dormant ones). Returns how many carriers changed.
    fn look_at_carriers(&mut self, control: &mut Control) -> usize {
        self.looked_at_carriers = Instant::now();
        let mut changed = Vec::new();
        let mut looked = 0;
        let up = control.links().filter(|(_, _, state)| state.up && !state.loopback);
        for (link, _, state) in up.skip(self.looked_at).take(CARRIERS) {
            looked += 1;
            match self.links.is_running(&state.name) {
                Some(true) if self.ran.insert(link) => {}
                Some(runs) if self.ran.contains(&link) => changed.push((link, runs)),
                _ => {}
            }
        }
        self.looked_at = if looked < CARRIERS { 0 } else { self.looked_at + looked };
        changed.into_iter().filter(|&(link, carrier)| control.set_carrier(link, carrier)).count()
    }

    /// Requests the kernel to resolve neighbors, or to confirm them.
    pub(crate) fn ask(&mut self, requests: &[NeighborRequest]) {
        for request in requests {
            self.seq = self.seq.wrapping_add(1);
            // A request that does not fit now is repeated while packets wait.
            let _ =
                self.requests.send(&neighbor::use_request(self.seq, request.link, request.addr));
        }
    }

    /// Requests the kernel to confirm neighbors now.
    pub(crate) fn probe(&mut self, requests: &[NeighborRequest]) {
        for request in requests {
            self.seq = self.seq.wrapping_add(1);
            // The next probe is due soon.
            let _ =
                self.requests.send(&neighbor::probe_request(self.seq, request.link, request.addr));
        }
    }

    /// Has the kernel forget neighbors that it was requested to resolve.
    pub(crate) fn forget(&mut self, requests: &[NeighborRequest]) {
        for request in requests {
            self.seq = self.seq.wrapping_add(1);
            // What does not fit the kernel gives up by itself.
            let _ =
                self.requests.send(&neighbor::forget_request(self.seq, request.link, request.addr));
        }
    }

    fn flush(&mut self) {
        let mut out = Vec::new();
        self.source.output(&mut out);
        out.into_iter().for_each(|request| self.reader.send(request));
    }
}

fn is_route(event: &RouteEvent) -> bool {
    matches!(
        event,
        RouteEvent::Route(_)
            | RouteEvent::Withdraw(_)
            | RouteEvent::NextHop(_)
            | RouteEvent::NextHopGone(_)
    )
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use fingerpost_lpm::Prefix;
    use fingerpost_route::control::ControlOptions;
    use fingerpost_route::fib::{Job, Runner};
    use fingerpost_route::{AnyPrefix, MAIN_TABLE, RouteKey, RouteUpdate, Target};

    use super::*;

    /// A table that is built beside it by hand, and has to catch up with more changes than it may.
    fn lagging() -> (Control, Arc<Mutex<Vec<Job>>>) {
        let mut control = Control::new(ControlOptions {
            v4: fingerpost_lpm::v4().collect(),
            v6: fingerpost_lpm::v6().collect(),
            connected_from_addresses: false,
        })
        .unwrap();
        let other = control.add_source("other", 20);
        let add = |control: &mut Control, numbers: std::ops::Range<u32>| {
            for n in numbers {
                let prefix = AnyPrefix::V4(Prefix::masked((32 << 24) + (n << 8), 24));
                let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
                control.handle(other, RouteEvent::Route(RouteUpdate::new(key, Target::Blackhole)));
            }
        };
        add(&mut control, 0..20_000);
        control.flush();
        control.commit(Instant::now()).unwrap();
        let jobs = Arc::new(Mutex::new(Vec::<Job>::new()));
        let queue = jobs.clone();
        control.build_beside(Runner::new(move |job| queue.lock().unwrap().push(job)));
        control.pin_algorithm(4, Some("dxr18")).unwrap();
        control.flush();
        while jobs.lock().unwrap().is_empty() {
            control.commit(Instant::now()).unwrap();
        }
        add(&mut control, 20_000..170_000);
        control.commit(Instant::now()).unwrap();
        assert!(control.holds_sources());
        (control, jobs)
    }

    #[test]
    fn routes_of_the_kernel_wait_while_a_table_lags_behind_and_links_do_not() {
        let (mut control, jobs) = lagging();
        let settings =
            KernelSettings { routes: true, distance: None, buffer_kib: None, compare_s: Some(0) };
        let mut kernel = KernelSource::open(&mut control, settings, &[]).unwrap();
        let began = Instant::now();
        while !kernel.reader.is_held() {
            kernel.turn(&mut control).unwrap();
            assert!(began.elapsed() < Duration::from_secs(20), "the kernel has routes of its own");
        }
        for _ in 0..20 {
            kernel.turn(&mut control).unwrap();
        }
        assert_eq!(kernel.fds(true).count(), 1, "what is held wakes nobody");
        let id = kernel.id();
        assert_eq!((control.source(id).routes, kernel.ready()), (0, false));
        assert!(control.links().any(|(_, _, state)| state.loopback));
        while control.holds_sources() {
            std::mem::take(&mut *jobs.lock().unwrap()).into_iter().for_each(|job| job());
            control.commit(Instant::now()).unwrap();
        }
        let began = Instant::now();
        while !kernel.ready() {
            kernel.turn(&mut control).unwrap();
            assert!(began.elapsed() < Duration::from_secs(20), "the dump ends");
        }
        assert!(control.source(id).routes > 0);
        assert_eq!((kernel.resyncs().lost, kernel.errors().0), (0, 0));
    }
}
