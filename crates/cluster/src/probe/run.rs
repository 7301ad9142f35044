//! The thread of the probes: sockets on the internal interfaces, time, and the table between them.
//!
//! Shape:  a loop over deadlines that are multiples of the interval from its start, so that it does not drift; it waits for a
//!         frame or the next deadline. Frames are taken before time is looked at: a thread that was held up finds no links
//!         down for what lies in its sockets. A link that has changed sends all probes at once, once a millisecond at most.
//! Cost:   two system calls and about 2 us a probe, and a system call for the carrier of each interface and interval; at 64 nodes
//!         and 8 ms some 8,000 wakeups a second.
//! Limits: a change of the carrier is seen with the next interval, where the kernel does not show it later. An interface that is gone is looked for every 16 intervals.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fingerpost_io::link_socket::{LinkSocket, Only, is_gone, wait};
use fingerpost_io::schedule;

use super::session::Local;
use super::table::{Member, Table};
use crate::frame::{CLASS_AT, FrameClass, HEADER_BYTES, Header, LOOKUP};
use crate::rule::{Members, Phase};

/// Most frames that an interface is taken from at once.
const FRAMES: usize = 256;

/// Intervals between two looks for an interface that is gone.
const REOPEN: u64 = 16;

/// Least time between probes that are sent because of a change.
const URGENT_NS: u64 = 1_000_000;

/// Room for the longest probe.
const BUFFER_BYTES: usize = 512;

/// An interface with internal links.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Name of the node that it leads to, be it a member or not yet; `None` where all members are reached by it.
    pub peer: Option<String>,
    /// Whether the data plane receives by it: until then its links are as without a carrier.
    pub ready: Arc<AtomicBool>,
}

/// What a thread of probes is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node.
    pub local: Local,
    /// All members.
    pub members: Vec<Member>,
    /// The internal interfaces.
    pub interfaces: Vec<Interface>,
    /// Id of the cluster.
    pub cluster: u8,
    /// EtherType of internal frames.
    pub ethertype: u16,
    /// Real-time priority of the thread, if it is to have one.
    pub real_time: Option<u8>,
    /// Called by the thread once it has its priority, to give up privileges: it needs CAP_NET_RAW from there on.
    pub begin: fn(),
}

/// What the thread counted, besides the sessions of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Frames whose header is not one of an internal frame.
    pub malformed: u64,
    /// Frames of another cluster.
    pub other_cluster: u64,
    /// Probes that an interface did not take.
    pub unsent: u64,
    /// Longest time that the thread was late for an interval.
    pub most_late_ns: u64,
    /// Intervals that it was late for by so much that other nodes may have found the links of this one down.
    pub late_intervals: u64,
    /// Why the thread has no real-time priority, where one was wanted.
    pub scheduling: Option<String>,
}

/// A thread that sends and receives probes, until this is dropped.
#[derive(Debug)]
pub struct Probes {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    table: Mutex<Table>,
    /// Members that take the place of those of the thread; set with the table locked.
    replaced: Mutex<Option<Members>>,
    counts: Mutex<RunCounts>,
}

impl Probes {
    /// Starts the thread, in the network namespace of the caller. `on_change` gets the members each time that something has
    /// changed which a data plane reads; the first time with all others down. It must not call [`Probes::look`].
    ///
    /// # Errors
    /// The kernel's error when a socket cannot be had, as without CAP_NET_RAW, or no thread. An interface that is not there is no
    /// error: its links are down.
    pub fn start(
        settings: Settings,
        members: Members,
        on_change: impl FnMut(&Table, &Members) + Send + 'static,
    ) -> io::Result<Self> {
        let links: Vec<_> =
            settings.interfaces.iter().map(|interface| interface.peer.clone()).collect();
        let table = Table::new(settings.local.clone(), &settings.members, &links);
        let mut sockets = Vec::new();
        for interface in &settings.interfaces {
            sockets.push(match open(interface, settings.ethertype) {
                Ok(socket) => Some(socket),
                Err(error) if is_gone(&error) => None,
                Err(error) => return Err(error),
            });
        }
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            table: Mutex::new(table),
            replaced: Mutex::default(),
            counts: Mutex::default(),
        });
        let state = Loop {
            shared: Arc::clone(&shared),
            settings,
            sockets,
            start: Instant::now(),
            buffer: [0; BUFFER_BYTES],
            frame: Vec::new(),
        };
        let work = move || state.run(members, on_change);
        let thread = std::thread::Builder::new().name("probes".into()).spawn(work)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Calls `with` with the table, which waits meanwhile: to read states, or to change what this node announces. A change is
    /// announced with the next probes.
    pub fn look<T>(&self, with: impl FnOnce(&mut Table) -> T) -> T {
        with(&mut lock(&self.shared.table))
    }

    /// From now on these are the members: [`Table::set_members`]. `weighted` has a number for each that ever was one, and the
    /// weights; the thread brings its states in line, with at most an interval between.
    pub fn set_members(&self, members: &[Member], weighted: Members) {
        let mut table = lock(&self.shared.table);
        table.set_members(members);
        *lock(&self.shared.replaced) = Some(weighted);
    }

    /// What the thread counted.
    pub fn counts(&self) -> RunCounts {
        lock(&self.shared.counts).clone()
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        // Relaxed: nothing is read by it.
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by it.
            let _ = thread.join();
        }
    }
}

/// A lock whose holder may have panicked: tables are whole between calls.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(interface: &Interface, ethertype: u16) -> io::Result<LinkSocket> {
    let only = Only { at: CLASS_AT.into(), value: FrameClass::Probe.byte() };
    LinkSocket::open(&interface.name, ethertype, only)
}

struct Loop {
    shared: Arc<Shared>,
    settings: Settings,
    sockets: Vec<Option<LinkSocket>>,
    start: Instant,
    buffer: [u8; BUFFER_BYTES],
    frame: Vec<u8>,
}

impl Loop {
    #[allow(clippy::cast_possible_truncation, reason = "584 years of nanoseconds")]
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(mut self, mut members: Members, mut on_change: impl FnMut(&Table, &Members)) {
        if let Some(Err(error)) = self.settings.real_time.map(schedule::real_time) {
            lock(&self.shared.counts).scheduling = Some(error.to_string());
        }
        (self.settings.begin)();
        let shared = Arc::clone(&self.shared);
        let interval = self.settings.local.interval_ns;
        let (mut next_ns, mut sent_ns, mut ticks) = (0, 0, 0u64);
        let mut urgent = false;
        // Relaxed: nothing is read by it.
        while !shared.stop.load(Ordering::Relaxed) {
            let deadline = lock(&shared.table).deadline_ns().unwrap_or(next_ns).min(next_ns);
            let due = if urgent { deadline.min(sent_ns + URGENT_NS) } else { deadline };
            self.wait(due);
            let mut table = lock(&shared.table);
            if let Some(replaced) = lock(&shared.replaced).take() {
                members = replaced;
                urgent = true;
            }
            urgent |= self.receive(&mut table, &mut members, &mut on_change);
            let now = self.now_ns();
            urgent |= table.expire(now);
            let tick = now >= next_ns;
            if tick {
                urgent |= self.carriers(&mut table, ticks.is_multiple_of(REOPEN));
                ticks += 1;
                let late = now - next_ns;
                let mut counts = lock(&shared.counts);
                counts.most_late_ns = counts.most_late_ns.max(late);
                counts.late_intervals +=
                    u64::from(late + interval >= self.settings.local.detection_ns());
                next_ns += interval;
                if next_ns <= now {
                    // Held up for longer: what was missed is not made up for.
                    next_ns = now + interval;
                }
            }
            if tick || (urgent && now >= sent_ns + URGENT_NS) {
                self.send(&mut table);
                (sent_ns, urgent) = (now, false);
            }
            if table.apply(&mut members) {
                on_change(&table, &members);
            }
        }
    }

    /// Waits for a frame, or until a moment.
    fn wait(&self, until_ns: u64) {
        let now = self.now_ns();
        if until_ns > now {
            let sockets: Vec<_> = self.sockets.iter().flatten().map(AsFd::as_fd).collect();
            let most = Duration::from_nanos(until_ns - now);
            if wait(&sockets, most).is_err() {
                std::thread::sleep(most);
            }
        }
    }

    /// Takes the frames that are there. Each change is reported by itself, or a restart would show as nothing.
    fn receive(
        &mut self,
        table: &mut Table,
        members: &mut Members,
        on_change: &mut impl FnMut(&Table, &Members),
    ) -> bool {
        let mut changed = false;
        for at in 0..self.sockets.len() {
            for _ in 0..FRAMES {
                let Some(socket) = &self.sockets[at] else { break };
                let frame = match socket.receive(&mut self.buffer) {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    Err(error) => {
                        if is_gone(&error) {
                            self.sockets[at] = None;
                        }
                        break;
                    }
                };
                let Ok(header) = Header::parse(frame, self.settings.ethertype) else {
                    lock(&self.shared.counts).malformed += 1;
                    continue;
                };
                if header.cluster != self.settings.cluster {
                    lock(&self.shared.counts).other_cluster += 1;
                    continue;
                }
                let now = self.start.elapsed().as_nanos();
                let now = u64::try_from(now).unwrap_or(u64::MAX);
                let ends = (header.sender, header.hop);
                if table.receive(now, at, ends, &frame[HEADER_BYTES..]) {
                    changed = true;
                    if table.apply(members) {
                        on_change(table, members);
                    }
                }
            }
        }
        changed
    }

    /// Looks at the carriers, and for interfaces that are gone.
    fn carriers(&mut self, table: &mut Table, reopen: bool) -> bool {
        let mut changed = false;
        for (at, socket) in self.sockets.iter_mut().enumerate() {
            if socket.is_none() && reopen {
                *socket = open(&self.settings.interfaces[at], self.settings.ethertype).ok();
            }
            let carrier = socket.as_ref().map(LinkSocket::carrier);
            if let Some(Err(_)) = carrier {
                *socket = None;
            }
            // Relaxed: a flag without data behind it.
            let ready = self.settings.interfaces[at].ready.load(Ordering::Relaxed);
            changed |= table.carrier(at, ready && matches!(carrier, Some(Ok(true))));
        }
        changed
    }

    fn send(&mut self, table: &mut Table) {
        let mut unsent = 0;
        for (at, socket) in self.sockets.iter_mut().enumerate() {
            let mut gone = false;
            table.probes(at, |to, payload| {
                let Some(socket) = socket.as_ref() else { return };
                let header = Header {
                    cluster: self.settings.cluster,
                    hop: to,
                    output: to,
                    sender: self.settings.local.number,
                    phase: Phase::Second,
                    epoch: 0,
                    ethertype: self.settings.ethertype,
                    adjacency: LOOKUP,
                    class: FrameClass::Probe,
                };
                self.frame.clear();
                self.frame.extend(header.bytes());
                self.frame.extend(payload);
                if let Err(error) = socket.send(&self.frame) {
                    unsent += 1;
                    gone |= is_gone(&error);
                }
            });
            if gone {
                *socket = None;
            }
        }
        if unsent > 0 {
            lock(&self.shared.counts).unsent += unsent;
        }
    }
}
