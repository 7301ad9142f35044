//! Taking interfaces over, and giving them back, loses no packet: at a start, a restart, after a crash, at changes of an
//! interface and when one is added.
//!
//! The kernel's own forwarding is on: whoever has an interface forwards. In the tests a part of a full table and some
//! thousand packets; `cargo xtask soak takeover` has all of it, several times, and prints the table of
//! `docs/benchmarks/takeover.md`.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fingerpost_tests::netns::{Line, Router, batch, command_beside, conserved, ip, run};
use fingerpost_tests::traffic::{Traffic, overflowed};
use fingerpost_tests::{soak, tables};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
/// What one route leads to, and what another leads to by an interface that takes nothing from XDP.
const FLOWS: [&str; 2] = ["10.9.0.1", "10.8.0.1"];
/// Interfaces of the router besides the two that carry traffic.
const MORE: usize = 8;

/// How much there is of everything.
struct Size {
    /// One route of so many of the table.
    share: usize,
    /// Packets a second.
    rate: u64,
    /// Duration of each phase.
    seconds: u64,
    /// Times that each event is tried.
    runs: usize,
}

impl Size {
    fn new() -> Self {
        if soak(Duration::ZERO).is_zero() {
            Self { share: 20, rate: 3_000, seconds: 4, runs: 1 }
        } else {
            Self { share: 1, rate: 10_000, seconds: 4, runs: 5 }
        }
    }
}

/// One at a time: two would lose packets to each other.
static ALONE: Mutex<()> = Mutex::new(());

/// A router of ten interfaces with a table in the kernel.
struct Lab {
    line: Line,
    size: Size,
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    fn new() -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let line = Line::new(&["ping", "ethtool", "nsenter"])?;
        let size = Size::new();
        let (r, d) = (&line.router, &line.destination);
        // Checksums that a sender leaves to a card are filled in by the graph, not in XDP.
        run(&line.source, "ethtool -K s0 gro on tx off");
        run(d, "ethtool -K d0 gro on tx off");
        for i in 0..MORE {
            ip(&format!("-n {r} link add x{i} type veth peer name y{i} netns {d}"));
            ip(&format!("-n {r} link set x{i} up"));
            ip(&format!("-n {d} link set y{i} up"));
        }
        // Without GRO, nor a program, the other end of x0 takes nothing that XDP sends.
        run(d, "ethtool -K y0 gro off");
        ip(&format!("-n {r} addr add 10.0.3.1/24 dev x0"));
        ip(&format!("-n {d} addr add 10.0.3.2/24 dev y0"));
        let mut lines = String::from("route add 10.9.0.0/16 via 10.0.2.2\n");
        lines += "route add 10.8.0.0/16 via 10.0.3.2\n";
        batch(r, &(lines + &tables::routes_by("10.0.2.2", size.share)));
        for flow in FLOWS {
            ip(&format!("-n {d} addr add {flow}/32 dev lo"));
        }
        line.kernel_forwards(true);
        let lab = Self { line, size, _alone: alone };
        lab.warm_up();
        Some(lab)
    }

    /// All neighbors are known.
    fn warm_up(&self) {
        for flow in FLOWS {
            run(&self.line.source, &format!("ping -c 2 -i 0.1 -W 2 {flow}"));
        }
    }

    fn start(&self, words: &str) -> Router {
        Router::start_by(command_beside, &self.line.router, words, 2 + MORE)
    }

    /// Packets that were sent, and of these the lost ones, while `event` happens. What the destination had no room for
    /// arrived.
    fn during(&self, event: impl FnOnce()) -> (u64, u64) {
        let before = overflowed(&self.line.destination);
        let (rate, seconds) = (self.size.rate, self.size.seconds);
        let traffic = Traffic::begin(TRANSFER, &self.line, &FLOWS, rate, seconds);
        thread::sleep(Duration::from_millis(700));
        event();
        let counts = traffic.end();
        assert!(counts.sent > rate * (seconds - 1), "{counts:?}");
        (counts.sent, counts.lost() - (overflowed(&self.line.destination) - before))
    }

    /// Tries an event so often, and the same traffic without it; prints what was lost. None may be but `held` a time.
    fn compare_but(&self, what: &str, held: u64, mut event: impl FnMut()) {
        let (mut sent, mut lost, mut quiet) = (0, 0, 0);
        for _ in 0..self.size.runs {
            let (more, gone) = self.during(&mut event);
            (sent, lost) = (sent + more, lost + gone);
            // In the short form only where it decides.
            if gone > 0 || self.size.runs > 1 {
                quiet += self.during(|| ()).1;
            }
        }
        println!("| {what} | {sent} | {lost} | {quiet} |");
        let most = quiet + held * self.size.runs as u64;
        assert!(lost <= most, "{what}: {lost} of {sent} were lost, {quiet} without it");
    }

    fn compare(&self, what: &str, event: impl FnMut()) {
        self.compare_but(what, 0, event);
    }
}

/// Nothing was dropped inside the router, and none is missing.
fn whole(router: Router) {
    conserved(&undropped(router));
}

/// Nothing was dropped inside the router. Where XDP forwards on, packets pass while its counts are read, one after the
/// other: whether in = out shows only in quiet.
fn undropped(router: Router) -> serde_json::Value {
    let said = router.said();
    let report = router.stop();
    assert_eq!(report["dropped"], serde_json::json!({}), "{said:#?} {report}");
    report
}

#[test]
fn a_start_loses_nothing() {
    let Some(lab) = Lab::new() else { return };
    lab.compare("`run` on a live router", || {
        let router = lab.start("");
        thread::sleep(Duration::from_millis(300));
        whole(router);
    });
}

#[test]
fn a_start_after_a_crash_loses_nothing() {
    let Some(lab) = Lab::new() else { return };
    lab.compare("`run` after `kill -9`", || {
        let router = lab.start("");
        thread::sleep(Duration::from_millis(300));
        whole(router);
    });
    // The crash itself costs what lay in the rings of the process.
    lab.start("").kill();
    lab.warm_up();
    lab.compare("`run` after `kill -9`", || {
        let router = lab.start("");
        thread::sleep(Duration::from_millis(300));
        whole(router);
    });
}

#[test]
fn changes_of_interfaces_lose_nothing() {
    let Some(lab) = Lab::new() else { return };
    let r = &lab.line.router;
    let router = lab.start("");
    lab.warm_up();
    let mut mtu = [1400, 1500].into_iter().cycle();
    lab.compare("`ip link set r1 mtu 1400`", || {
        ip(&format!("-n {r} link set r1 mtu {}", mtu.next().expect("a cycle")));
        thread::sleep(Duration::from_millis(300));
        ip(&format!("-n {r} link set x0 mtu 1450"));
    });
    let mut number = 0;
    lab.compare("an interface is added", || {
        number += 1;
        let (name, peer) = (format!("n{number}"), format!("m{number}"));
        ip(&format!("-n {r} link add {name} type veth peer name {peer}"));
        ip(&format!("-n {r} link set {peer} up"));
        ip(&format!("-n {r} link set {name} up"));
        ip(&format!("-n {r} addr add 10.7.{number}.1/24 dev {name}"));
    });
    let said = router.said();
    assert!(said.iter().any(|line| line.contains("n1: taken over")), "{said:#?}");
    assert!(!said.iter().any(|line| line.contains("closed")), "{said:#?}");
    whole(router);
}

#[test]
fn another_address_of_an_interface_is_followed_in_place() {
    let Some(lab) = Lab::new() else { return };
    let router = lab.start("");
    lab.line.kernel_forwards(false);
    ip(&format!("-n {} link set r0 address 02:00:00:00:77:01", lab.line.router));
    ip(&format!("-n {} neigh flush dev s0", lab.line.source));
    thread::sleep(Duration::from_millis(300));
    lab.warm_up();
    let said = router.said();
    assert!(!said.iter().any(|line| line.contains("closed")), "{said:#?}");
    assert_eq!(said.iter().filter(|line| line.contains("r0: taken over")).count(), 1);
    router.stop();
}

#[test]
fn restarts_with_non_stop_forwarding_lose_nothing() {
    let Some(lab) = Lab::new() else { return };
    let mut router = Some(lab.start("--nonstop 60"));
    lab.warm_up();
    lab.compare("SIGTERM and start, non-stop forwarding", || {
        undropped(router.take().expect("started before"));
        thread::sleep(Duration::from_millis(300));
        router = Some(lab.start("--nonstop 60"));
    });
    // What lay in the rings of a process that is killed is lost with it: some milliseconds of the packets that XDP
    // leaves, on a busy machine.
    let held = lab.size.rate / 2 / 100;
    lab.compare_but("`kill -9` and start, non-stop forwarding", held, || {
        router.take().expect("started before").kill();
        thread::sleep(Duration::from_millis(300));
        router = Some(lab.start("--nonstop 60"));
    });
    whole(router.take().expect("started before"));
    let release = format!("{} release", fingerpost_tests::program().expect("it runs").display());
    let done = command_beside(&lab.line.router, &release).output().expect("it was found before");
    assert!(done.status.success(), "{done:?}");
}
