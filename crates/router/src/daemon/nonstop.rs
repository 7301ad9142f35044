//! Non-stop forwarding: the XDP datapath forwards without this process. Links are kept, and a heartbeat limits the time.
//!
//! The next daemon finds both. While it learns what there is to know, what the last one left forwards on, if
//! that is not too old; then each interface gets its new program in one step, and what is not taken over is
//! released. A daemon without non-stop forwarding does this as well, and keeps nothing after its end.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fingerpost_io::xdp::forward::Heartbeat;
use fingerpost_io::xdp::{Link, Mode, Pins, XdpError};
use tracing::{info, warn};

use crate::privilege;
use crate::sys;

/// Interval of beats: far less than the shortest time that can be configured, so that a thread that is kept
/// waiting is no absence.
const BEAT: Duration = Duration::from_millis(200);
/// Time for which found programs keep forwarding while a daemon without non-stop forwarding learns.
const AT_START: Duration = Duration::from_secs(10);

/// What outlives this process, and what outlived the last one.
#[derive(Default)]
pub(super) struct NonStop {
    pins: Option<Pins>,
    /// Links without an owner yet, by interface.
    found: BTreeMap<u32, Link>,
    /// Heartbeat of the programs to come, with non-stop forwarding.
    heartbeat: Option<Arc<Heartbeat>>,
    beating: Option<Beating>,
    patience: Option<Duration>,
    /// When a link that was found was released, the last time.
    pub(super) freed: Option<Instant>,
}

impl NonStop {
    /// Looks for what was left in this network namespace, and keeps it forwarding. `patience`: for how long
    /// the XDP programs forward without this process. `guards`: interfaces have features without which nothing may pass,
    /// so they are held where a worker fails. Errors are logged; they end nothing.
    pub(super) fn begin(patience: Option<Duration>, guards: bool) -> Self {
        let name = sys::namespace_number().to_string();
        let pins = Pins::find(&name).unwrap_or_else(|error| {
            warn!(target: "nonstop", "looking for links of an earlier daemon: {error}");
            None
        });
        let mut nonstop = Self { pins, patience, ..Self::default() };
        nonstop.look();
        if patience.is_some()
            && let Err(why) = nonstop.prepare(&name)
        {
            warn!(target: "nonstop", "forwarding will end with this process: {why}");
            nonstop.patience = None;
        }
        if guards
            && nonstop.pins.is_none()
            && let Err(why) = nonstop.make_folder()
        {
            warn!(target: "nonstop", "where a worker fails the kernel will forward, without the features of interfaces: {why}");
        }
        nonstop
    }

    /// Takes over what is there: links, and a heartbeat of a known kind.
    fn look(&mut self) {
        let Some(pins) = &self.pins else { return };
        for kept in pins.links().unwrap_or_default() {
            match kept.link {
                Some(link) => drop(self.found.insert(kept.ifindex, link)),
                // Its interface is gone.
                None => drop(pins.let_go(kept.ifindex)),
            }
        }
        let patience = self.patience.unwrap_or(AT_START);
        let Some(words) = pins.heartbeat() else { return };
        match Heartbeat::found(words, patience) {
            Ok(Ok(heartbeat)) => {
                let over = heartbeat.is_over().unwrap_or(true);
                let state = if over { "was given up" } else { "continues until this one is ready" };
                if !self.found.is_empty() {
                    info!(target: "nonstop", interfaces = self.found.len(), "forwarding of the daemon before {state}");
                }
                let heartbeat = Arc::new(heartbeat);
                self.beating = Some(Beating::start(heartbeat.clone(), false));
                self.heartbeat = Some(heartbeat);
            }
            Ok(Err(stamp)) => {
                warn!(target: "nonstop", "what the daemon before left is of another version (stamp {stamp:#x}): it is replaced, not adopted")
            }
            Err(error) => warn!(target: "nonstop", "the heartbeat of the daemon before: {error}"),
        }
    }

    /// Makes the folder and the heartbeat that are not there yet.
    fn prepare(&mut self, name: &str) -> Result<(), String> {
        let (pins, mounted) = Pins::make(name).map_err(|error| {
            let remedy = match error.kind() {
                std::io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => {
                    " (to mount one takes CAP_SYS_ADMIN, to write there its owner)"
                }
                _ => "",
            };
            format!("no folder in a file system of type bpf: {error}{remedy}")
        })?;
        if mounted {
            info!(target: "nonstop", "mounted a file system of type bpf for {}: it lasts as long as the mount namespace of this process",
                pins.folder().display());
        }
        if self.heartbeat.is_none() {
            let patience = self.patience.unwrap_or(AT_START);
            let heartbeat = Heartbeat::new(patience).map_err(|error| error.to_string())?;
            pins.keep_heartbeat(&heartbeat)
                .map_err(|error| format!("{}: {error}", pins.folder().display()))?;
            heartbeat.beat().map_err(|error| error.to_string())?;
            let heartbeat = Arc::new(heartbeat);
            // No program that was found reads this one.
            self.beating = Some(Beating::start(heartbeat.clone(), true));
            self.heartbeat = Some(heartbeat);
        }
        self.pins = Some(pins);
        Ok(())
    }

    /// What flows are hashed from: as configured, or as the daemon before had it, so that flows stay on their paths
    /// over a restart. Else it is random: routers in a row that choose alike leave paths of the second one idle.
    pub(super) fn flow_seed(&self, configured: Option<u64>) -> u64 {
        let before = self.heartbeat.as_ref().and_then(|heartbeat| heartbeat.flow_seed());
        let seed = configured.or(before).unwrap_or_else(random);
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.note_flow_seed(seed);
        }
        seed
    }

    /// Heartbeat for programs that keep forwarding without this process.
    pub(super) fn heartbeat(&self) -> Option<Arc<Heartbeat>> {
        self.patience.and(self.heartbeat.clone())
    }

    /// Interfaces whose links were found and have no owner yet.
    pub(super) fn found(&self) -> impl Iterator<Item = u32> {
        self.found.keys().copied()
    }

    /// The link that was found for an interface. It runs what the last daemon put in.
    pub(super) fn take(&mut self, ifindex: u32) -> Option<Link> {
        self.found.remove(&ifindex)
    }

    /// All interfaces that will be taken over are: the others' links end, and programs that wait for a beat
    /// get one.
    pub(super) fn settled(&mut self) {
        if let Some(pins) = &self.pins {
            for ifindex in std::mem::take(&mut self.found).into_keys() {
                warn_of_failure(pins.let_go(ifindex));
            }
        }
        match self.patience {
            Some(patience) => {
                if let Some(beating) = &self.beating {
                    beating.go_on();
                }
                let links = self.pins.as_ref().and_then(|pins| Some((pins, pins.links().ok()?)));
                match links {
                    Some((pins, links)) if !links.is_empty() => info!(
                        target: "nonstop",
                        interfaces = links.len(),
                        nonstop_s = patience.as_secs(),
                        "{} interfaces keep forwarding for {} s without this process ({})",
                        links.len(),
                        patience.as_secs(),
                        pins.folder().display()
                    ),
                    _ => info!(
                        target: "nonstop",
                        "no interface forwards in XDP yet, and none without this process"
                    ),
                }
            }
            None => {
                (self.beating, self.heartbeat) = (None, None);
                if let Some(pins) = self.pins.take() {
                    warn_of_failure(pins.release().map(drop));
                }
            }
        }
    }

    /// Keeps the link of an interface beyond this process, if that is wanted and was not released meanwhile.
    pub(super) fn keep(&self, ifindex: u32, link: &Link) -> Result<(), XdpError> {
        match &self.pins {
            Some(pins) if self.patience.is_some() && link.mode() == Mode::Native => {
                if pins.is_held() { pins.keep(ifindex, link) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Keeps the link of an interface beyond this process, whose program drops what is to be forwarded.
    pub(super) fn hold(&mut self, ifindex: u32, link: &Link) -> Result<(), String> {
        if link.mode() == Mode::Generic {
            return Err("in generic mode no program outlives its process".into());
        }
        let pins = match &self.pins {
            Some(pins) => pins,
            None => self.make_folder()?,
        };
        pins.keep(ifindex, link).map_err(|error| error.to_string())
    }

    /// Makes the folder of this router. To mount a file system for it takes privileges of the start.
    fn make_folder(&mut self) -> Result<&Pins, String> {
        let made = Pins::make(&sys::namespace_number().to_string());
        let (pins, _) = made.map_err(|error| format!("no file system of type bpf: {error}"))?;
        Ok(self.pins.insert(pins))
    }

    /// The link of an interface ends with its last owner.
    pub(super) fn let_go(&self, ifindex: u32) {
        if let Some(pins) = &self.pins {
            warn_of_failure(pins.let_go(ifindex));
        }
    }

    /// Time for which kept programs forward when this process ends now; `None` when they do not.
    pub(super) fn lasts(&self) -> Option<Duration> {
        let held = self.pins.as_ref().is_some_and(Pins::is_held);
        self.patience.filter(|_| held)
    }
}

/// Not 0, and not to be guessed from outside: who knows the seed can choose flows that share a path.
fn random() -> u64 {
    // Its keys are the system's random numbers.
    RandomState::new().hash_one(std::process::id()).max(1)
}

fn warn_of_failure(done: std::io::Result<()>) {
    if let Err(error) = done {
        warn!(target: "nonstop", "letting go of what was kept: {error}");
    }
}

/// A thread that beats. It ends when this is dropped.
struct Beating {
    heartbeat: Arc<Heartbeat>,
    /// Also where it was over already.
    revive: Arc<AtomicBool>,
    /// Closed to end it.
    _end: mpsc::Sender<()>,
}

impl Beating {
    /// Beats as long as it is not over, since what was given up is not to come back; or in any case.
    fn start(heartbeat: Arc<Heartbeat>, revive: bool) -> Self {
        let (revive, (end, ended)) = (Arc::new(AtomicBool::new(revive)), mpsc::channel());
        let thread = (heartbeat.clone(), revive.clone());
        let beat = move || {
            privilege::keep_to_run_programs();
            let (heartbeat, revive) = thread;
            loop {
                // Acquire pairs with the store in `go_on`: all programs are new by then.
                if revive.load(Ordering::Acquire) || heartbeat.is_over().is_ok_and(|over| !over) {
                    // What the kernel refuses now it may do the next time; without it drivers stop.
                    let _ = heartbeat.beat();
                }
                if ended.recv_timeout(BEAT) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        // Without the thread nothing beats, and drivers leave all to the kernel.
        let _ = std::thread::Builder::new().name("heartbeat".into()).spawn(beat);
        Self { heartbeat, revive, _end: end }
    }

    /// Beats from now on in any case.
    fn go_on(&self) {
        self.revive.store(true, Ordering::Release);
        // The thread does it again if this one fails.
        let _ = self.heartbeat.beat();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_unless_they_are_configured() {
        let seeds: Vec<u64> = (0..4).map(|_| NonStop::default().flow_seed(None)).collect();
        assert!((1..4).all(|at| !seeds[..at].contains(&seeds[at])), "{seeds:?}");
        assert_eq!(NonStop::default().flow_seed(Some(9)), 9);
    }

    /// The state that a restart finds, without the file system of type bpf between the two.
    #[test]
    fn the_seed_of_the_daemon_before_is_kept() {
        let Ok(left) = Heartbeat::new(Duration::from_secs(1)) else {
            println!("skipped: needs the right to load BPF programs");
            return;
        };
        let heartbeat = Some(Arc::new(left));
        let nonstop = || NonStop { heartbeat: heartbeat.clone(), ..NonStop::default() };
        let first = nonstop().flow_seed(None);
        assert_eq!((nonstop().flow_seed(None), nonstop().flow_seed(Some(9))), (first, 9));
        assert_eq!(nonstop().flow_seed(None), 9, "a configured one is noted too");
    }
}
