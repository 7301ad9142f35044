//! Static routes in the kernel's tables, under a protocol number of their own.
//!
//! A thread compares what there is to be with what a dump of that protocol has, and requests the difference: after a change
//! of either, when links or addresses changed (the kernel removes routes with a link, and does not report it), and every
//! [`LOOK_EVERY`] while there are routes. What an earlier run left is in the first dump, and is deleted where it is not wanted any more. The
//! control thread waits for none of it: a dump waits for the kernel's lock on the configuration.
//!
//! Shape:  one thread a protocol number. No request can change a route of another one (`netlink/export.rs`).
//! Cost:   two dumps a look, in which the kernel passes by its other routes: some 50 ms for a million; a system call a
//!         changed route.
//! Limits: a route that the kernel refuses is tried again every [`RETRY`]; a changed route is gone for some microseconds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fingerpost_route::netlink::route::{F_CLONED, NEW, Route};
use fingerpost_route::netlink::{DONE, ERROR, F_DUMP_INTR, IPV4, IPV6, Messages, errno, export};
use fingerpost_route::{RouteKey, RouteUpdate, Target};

use crate::sys::{Netlink, Received, poll};

/// Time between two looks at what the kernel has, where nothing is known to have changed.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Time until what was refused is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Longest silence of the kernel within a dump: it may be flushing a million routes.
const LONGEST_DUMP: Duration = Duration::from_secs(10);
/// Dumps that are disturbed by changes, at most; then the entries of all of them together count.
const PASSES: u32 = 4;
/// Longest time that the end of the thread is waited for.
const LONGEST_END: Duration = Duration::from_secs(2);
/// Largest datagram of a dump.
const BUFFER_BYTES: usize = 256 << 10;

/// Routes by their key in the kernel.
type Wanted = BTreeMap<RouteKey, RouteUpdate>;

/// Routes of a source, each with its present target: `None` where it waits.
pub(super) struct Announced {
    /// Number of the source.
    pub(super) source: usize,
    pub(super) routes: Arc<Vec<RouteUpdate>>,
    pub(super) sent: Vec<Option<Target>>,
}

impl Announced {
    /// Those that packets follow.
    fn followed(&self) -> impl Iterator<Item = (RouteKey, RouteUpdate)> {
        let sent = self.routes.iter().zip(&self.sent);
        let routes = sent.filter_map(|(route, target)| {
            Some(RouteUpdate { target: target.clone()?, ..route.clone() })
        });
        routes.map(|route| (export::key(&route.key), route))
    }
}

/// What is wanted of the kernel.
struct Wants {
    routes: Wanted,
    /// Keys of each source.
    sources: BTreeMap<usize, BTreeSet<RouteKey>>,
}

impl Wants {
    /// The routes of some sources: the first one that has a key keeps it.
    fn of(announced: &[Announced]) -> Self {
        let (mut routes, mut sources) = (Wanted::new(), BTreeMap::new());
        for one in announced {
            let keys = one.followed().map(|(key, route)| {
                routes.entry(key).or_insert(route);
                key
            });
            sources.insert(one.source, keys.collect());
        }
        Self { routes, sources }
    }
}

/// Counts of exported routes.
#[derive(Clone, Debug, Default)]
pub(super) struct ExportState {
    pub(super) routes: u64,
    pub(super) refused: u64,
    /// Reason of a refusal; empty without one.
    pub(super) last_refusal: String,
}

/// What the kernel made of the routes.
#[derive(Debug, Default)]
struct Exported {
    /// Counts of each source.
    sources: BTreeMap<usize, ExportState>,
    /// Routes that it refused, with its reason.
    refused: BTreeMap<RouteKey, String>,
    /// Messages for the log.
    said: Vec<String>,
}

enum Order {
    Set(Vec<Announced>),
    Look,
}

/// The routes of one protocol number in the kernel. They are deleted when this is dropped.
pub(super) struct Exporter {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    exported: Arc<Mutex<Exported>>,
    keep: Arc<Mutex<bool>>,
}

impl Exporter {
    /// Begins with no routes wanted: those that an earlier run left go with the first order.
    ///
    /// # Errors
    /// Errors of the socket, or of the thread.
    pub(super) fn new(protocol: u8) -> io::Result<Self> {
        let netlink = Netlink::open(libc::NETLINK_ROUTE, &[])?;
        // Kernels before 4.20 reply with all routes, of which those of the protocol count.
        let _ = netlink.check_requests();
        let (orders, received) = channel();
        let exported = Arc::new(Mutex::new(Exported::default()));
        let keep = Arc::new(Mutex::new(false));
        let (shared, keeps) = (exported.clone(), keep.clone());
        let thread = std::thread::Builder::new().name("exporter".into());
        let thread = thread.spawn(move || {
            crate::privilege::keep_to_set_routes();
            let buffer = vec![0; BUFFER_BYTES];
            Thread { netlink, protocol, seq: 0, buffer, exported: shared }.run(&received, &keeps);
        })?;
        Ok(Self { orders: Some(orders), thread: Some(thread), exported, keep })
    }

    /// Has the kernel have the routes of these sources, soon, and no others of the protocol.
    pub(super) fn set(&self, wanted: Vec<Announced>) {
        self.send(Order::Set(wanted));
    }

    /// Has the thread look again at what the kernel has: a link or an address changed.
    pub(super) fn look(&self) {
        self.send(Order::Look);
    }

    /// Leaves the routes in the kernel when this is dropped.
    pub(super) fn keep(&self) {
        *lock(&self.keep) = true;
    }

    /// What the kernel made of the routes of the source of this number so far.
    pub(super) fn exported(&self, source: usize) -> ExportState {
        lock(&self.exported).sources.get(&source).cloned().unwrap_or_default()
    }

    /// Messages since the last call.
    pub(super) fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.exported).said)
    }

    fn send(&self, order: Order) {
        // A thread that has ended has reported why.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.orders = None;
        let until = Instant::now() + LONGEST_END;
        // It may be in the kernel, waiting for a lock: then it ends behind us.
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Thread {
    netlink: Netlink,
    protocol: u8,
    seq: u32,
    buffer: Vec<u8>,
    exported: Arc<Mutex<Exported>>,
}

impl Thread {
    fn run(mut self, orders: &Receiver<Order>, keep: &Mutex<bool>) {
        let (mut wanted, mut clean): (Option<Wants>, bool) = (None, true);
        loop {
            let refused = !lock(&self.exported).refused.is_empty();
            // Where no route is wanted and none is left there is nothing to look after.
            let mut order =
                match wanted.as_ref().is_none_or(|wants| wants.routes.is_empty()) && clean {
                    true => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    false => orders.recv_timeout(if refused { RETRY } else { LOOK_EVERY }),
                };
            loop {
                match order {
                    Ok(Order::Set(announced)) => wanted = Some(Wants::of(&announced)),
                    Ok(Order::Look) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        if !*lock(keep) && wanted.is_some() {
                            self.bring(&Wants::of(&[]));
                        }
                        return;
                    }
                }
                // The latest of those that wait.
                match orders.try_recv() {
                    Ok(next) => order = Ok(next),
                    Err(_) => break,
                }
            }
            if let Some(wanted) = &wanted {
                clean = self.bring(wanted);
            }
        }
    }

    /// Has the kernel have these routes and no others of the protocol. Returns whether the dumps had none that is not wanted.
    fn bring(&mut self, wants: &Wants) -> bool {
        let wanted = &wants.routes;
        let present = match self.present(wanted) {
            Ok(present) => present,
            Err(error) => {
                let what = format!("its routes cannot be listed: {}", words(&error));
                let refused = wanted.keys().map(|key| (*key, what.clone())).collect();
                self.note(wants, &BTreeSet::new(), refused);
                return false;
            }
        };
        let clean = present.keys().all(|key| wanted.contains_key(key));
        let (mut accepted, mut refused) = (BTreeSet::new(), BTreeMap::new());
        for (key, same) in &present {
            if *same {
                accepted.insert(*key);
                continue;
            }
            let request = export::delete(key, self.protocol, self.next_seq());
            match self.netlink.request(&request) {
                // It went by itself, or somebody deleted it.
                Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                    refused.insert(
                        *key,
                        format!("cannot delete route {}: {}", key.prefix, words(&error)),
                    );
                }
                _ => {}
            }
        }
        for (key, route) in
            wanted.iter().filter(|(key, _)| !accepted.contains(key)).collect::<Vec<_>>()
        {
            let request = export::add(route, self.protocol, self.next_seq());
            let added = request.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported));
            match added.and_then(|request| self.netlink.request(&request)) {
                Ok(()) => {
                    accepted.insert(*key);
                }
                Err(error) => {
                    let why = match error.raw_os_error() {
                        Some(libc::EEXIST) => {
                            "another program has a route of that prefix and metric".into()
                        }
                        _ => words(&error),
                    };
                    refused.insert(*key, format!("cannot set route {}: {why}", key.prefix));
                }
            }
        }
        self.note(wants, &accepted, refused);
        clean
    }

    /// Keeps the result, with a message for each refusal that is new.
    fn note(
        &self,
        wants: &Wants,
        accepted: &BTreeSet<RouteKey>,
        refused: BTreeMap<RouteKey, String>,
    ) {
        let count = |all: usize| u64::try_from(all).expect("a count");
        let state = |(source, own): (&usize, &BTreeSet<RouteKey>)| {
            let mut refused = refused.iter().filter(|(key, _)| own.contains(key));
            let state = ExportState {
                routes: count(own.intersection(accepted).count()),
                refused: count(refused.clone().count()),
                last_refusal: refused.next_back().map_or(String::new(), |(_, why)| why.clone()),
            };
            (*source, state)
        };
        let sources = wants.sources.iter().map(state).collect();
        let mut exported = lock(&self.exported);
        let new = refused.iter().filter(|(key, why)| exported.refused.get(key) != Some(why));
        let said: Vec<String> = new.map(|(_, why)| format!("kernel: {why}")).collect();
        exported.said.extend(said);
        (exported.sources, exported.refused) = (sources, refused);
    }

    /// Keys of the routes of the protocol that the kernel has, each with whether it is as wanted.
    fn present(&mut self, wanted: &Wanted) -> io::Result<HashMap<RouteKey, bool>> {
        let mut present = HashMap::new();
        for family in [IPV4, IPV6] {
            let mut passes = 0;
            while !self.dump(family, wanted, &mut present)? && passes < PASSES {
                passes += 1;
            }
        }
        Ok(present)
    }

    /// Reads a dump; whether it was not disturbed.
    fn dump(
        &mut self,
        family: u8,
        wanted: &Wanted,
        present: &mut HashMap<RouteKey, bool>,
    ) -> io::Result<bool> {
        let seq = self.next_seq();
        self.netlink.send(&export::dump(family, self.protocol, seq))?;
        let (mut until, mut whole) = (Instant::now() + LONGEST_DUMP, true);
        loop {
            let len = match self.netlink.recv(&mut self.buffer)? {
                Received::Bytes(len) => len,
                Received::Lost => {
                    whole = false;
                    continue;
                }
                Received::Empty if Instant::now() < until => {
                    poll(&[self.netlink.fd()], Duration::from_millis(100));
                    continue;
                }
                Received::Empty => return Err(io::ErrorKind::TimedOut.into()),
            };
            until = Instant::now() + LONGEST_DUMP;
            for message in
                Messages::new(&self.buffer[..len]).map_while(Result::ok).filter(|m| m.seq == seq)
            {
                whole &= message.flags & F_DUMP_INTR == 0;
                match message.kind {
                    DONE | ERROR => {
                        return match message.code().map_err(io::Error::other)? {
                            0 => Ok(whole),
                            code => Err(io::Error::from_raw_os_error(code.cast_signed())),
                        };
                    }
                    NEW => {
                        let Ok(Some(found)) = Route::parse(&message) else { continue };
                        if found.protocol != self.protocol || found.flags & F_CLONED != 0 {
                            continue;
                        }
                        let (table, prefix, metric) = (found.table, found.prefix, found.metric);
                        let key = RouteKey { table, prefix, metric };
                        let same = |route| export::is_same(route, &found).unwrap_or(false);
                        let same = wanted.get(&key).is_some_and(same);
                        // Of several routes of a key none is: each deletion takes one.
                        present.entry(key).and_modify(|before| *before &= same).or_insert(same);
                    }
                    _ => {}
                }
            }
        }
    }

    fn next_seq(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        self.seq
    }
}

fn words(error: &io::Error) -> String {
    errno::without_number(&error.to_string())
}
