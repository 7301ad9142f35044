//! Watches the kernel's policy: what it does to forwarded packets, which whoever takes them over would bypass.
//!
//! A thread of its own has a socket for each netlink protocol that reports such changes: nftables, `ip rule`, traffic
//! control, IPsec policies, and the switches of forwarding. After a report it surveys everything again
//! ([`takeover::survey`]), and hands over what is different: neither packets nor the control thread wait for a large
//! ruleset. The old iptables modules report nothing, so their tables are read four times a second.
//!
//! Cost: nothing while nothing changes, but for reading the tables of iptables-legacy where there are some. A survey
//!       lists chains, not rules: some 2 ms; at most ten a second, and none within [`SETTLES`] of the last report of a
//!       flood. A kernel thread that loads a large nftables set has to report each element.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use fingerpost_route::netlink::obstacle::{GROUPS, Obstacle};
use tracing::error;

use super::takeover::{self, Findings, IPTABLES};
use crate::sys::{Netlink, Received, poll};

/// Time from the first report of a change to the survey: a transaction has many.
const SETTLES: Duration = Duration::from_millis(20);
/// Interval between two surveys.
const APART: Duration = Duration::from_millis(100);
/// Interval between two looks at the tables of iptables-legacy.
const LOOKS: Duration = Duration::from_millis(250);
/// The longest time between two of them, where tables are so large that a look takes long.
const LONGEST_LOOKS: Duration = Duration::from_millis(700);
/// A look may take so much of the time between two: one part in so many.
const SHARE: u32 = 20;
/// Time until a survey that failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// Reports taken at one go.
const BURST: usize = 1024;

/// What the thread sends.
enum News {
    Found(Findings),
    /// A survey failed, for this reason.
    Failed(String),
}

/// The thread, seen from the daemon. It ends within a second after this is dropped.
pub(super) struct Watch {
    news: Receiver<News>,
    /// Reason of the latest failure, which is reported once.
    failed: Option<String>,
    stop: Arc<AtomicBool>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Relaxed: a flag without data behind it.
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Watch {
    /// Begins to watch the calling thread's network namespace; returns what was found first.
    ///
    /// # Errors
    /// Errors of the first survey or the thread.
    pub(super) fn begin() -> io::Result<(Self, Findings)> {
        // Before the survey, so that no change falls between the two.
        let sockets = Sockets::open()?;
        let found = takeover::survey()?;
        let (sender, news) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = Watcher {
            sockets,
            legacy: Legacy::new(&found),
            known: found.clone(),
            next: Instant::now(),
            due: false,
        };
        let (thread, stopped) = (std::thread::Builder::new().name("policy".into()), stop.clone());
        thread.spawn(move || watcher.run(&stopped, &sender))?;
        Ok((Self { news, failed: None, stop }, found))
    }

    /// Findings since the last call, if anything changed.
    pub(super) fn take(&mut self) -> Option<Findings> {
        let mut found = None;
        loop {
            match self.news.try_recv() {
                Ok(News::Found(findings)) => (found, self.failed) = (Some(findings), None),
                Ok(News::Failed(why)) => self.fail(why),
                Err(TryRecvError::Empty) => return found,
                Err(TryRecvError::Disconnected) => {
                    self.fail("the thread that watches is gone".into());
                    return found;
                }
            }
        }
    }

    fn fail(&mut self, why: String) {
        if self.failed.as_ref() != Some(&why) {
            error!(target: "policy", "changes of the kernel's policy are not seen: {why}");
            self.failed = Some(why);
        }
    }
}

/// A socket for each protocol that this kernel has.
struct Sockets(Vec<Netlink>);

impl Sockets {
    fn open() -> io::Result<Self> {
        let mut sockets = Vec::new();
        for (protocol, groups) in GROUPS {
            match Netlink::open(protocol.number(), groups) {
                Ok(socket) => sockets.push(socket),
                // What the kernel does not have has no rules.
                Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(sockets))
    }

    fn fds(&self) -> Vec<RawFd> {
        self.0.iter().map(Netlink::fd).collect()
    }

    /// Takes the reports that wait; whether there were any. Their content is not read: a survey follows.
    fn drain(&self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut any = false;
        for socket in &self.0 {
            for _ in 0..BURST {
                if socket.recv(buffer)? == Received::Empty {
                    break;
                }
                any = true;
            }
        }
        Ok(any)
    }
}

/// What the thread works with.
struct Watcher {
    sockets: Sockets,
    legacy: Legacy,
    /// What the last survey found.
    known: Findings,
    /// The earliest time of the next survey.
    next: Instant,
    /// A change was reported, or the last survey failed.
    due: bool,
}

impl Watcher {
    fn run(mut self, stop: &AtomicBool, news: &Sender<News>) {
        crate::privilege::keep_to_survey();
        let fds = self.sockets.fds();
        let mut buffer = vec![0; 64 << 10];
        while !stop.load(Ordering::Relaxed) {
            let until = if self.due { self.next } else { self.legacy.next };
            // Rounded up: poll counts in milliseconds.
            let time = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            poll(if self.due { &[] } else { &fds }, time);
            let said = match self.sockets.drain(&mut buffer) {
                Ok(reported) => self.turn(reported),
                Err(error) => {
                    // Nobody listens once the daemon is gone.
                    let _ = news.send(News::Failed(error.to_string()));
                    return;
                }
            };
            if said.is_some_and(|said| news.send(said).is_err()) {
                return;
            }
        }
    }

    /// Surveys when that is due; what is new.
    fn turn(&mut self, reported: bool) -> Option<News> {
        if (reported | self.legacy.changed()) && !self.due {
            self.due = true;
            self.next = self.next.max(Instant::now() + SETTLES);
        }
        if !self.due || Instant::now() < self.next {
            return None;
        }
        match takeover::survey() {
            Ok(found) => {
                (self.due, self.next) = (false, Instant::now() + APART);
                self.legacy.know(&found);
                (found != self.known).then(|| {
                    self.known = found.clone();
                    News::Found(found)
                })
            }
            Err(error) => {
                self.next = Instant::now() + AGAIN;
                Some(News::Failed(error.to_string()))
            }
        }
    }
}

/// The tables of iptables-legacy.
struct Legacy {
    /// What was found in them last.
    known: Vec<Obstacle>,
    /// When they are read again.
    next: Instant,
}

impl Legacy {
    fn new(found: &Findings) -> Self {
        let mut legacy = Self { known: Vec::new(), next: Instant::now() + LOOKS };
        legacy.know(found);
        legacy
    }

    fn know(&mut self, found: &Findings) {
        let of_tables = found.obstacles.iter().filter(|found| found.subsystem == IPTABLES);
        self.known = of_tables.cloned().collect();
    }

    /// Reads them when it is time; whether there is something else in them.
    fn changed(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        // Tables that cannot be read were reported by the survey.
        let found = takeover::legacy_tables(&mut Vec::new());
        self.next = now + (now.elapsed() * SHARE).clamp(LOOKS, LONGEST_LOOKS);
        found != self.known
    }
}
