//! Drivers forward on while the router is away: what is sent arrives, whoever holds the programs.
//!
//! The kernel's own forwarding is off unless a test has it on: then only XDP programs can have forwarded.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fingerpost_io::xdp::forward::heartbeat::STAMP;
use fingerpost_packet::frame::flow::hash_v4;
use fingerpost_packet::frame::wire::{Ports, protocol};
use fingerpost_tests::lasting::{Lasting, RATE};
use fingerpost_tests::netns::{Router, command_beside, exec, ip};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

#[test]
fn nothing_is_lost_when_it_is_killed_and_comes_back() {
    let Some(line) = Lasting::new(TRANSFER) else { return };
    let router = line.start("--nonstop 60");
    line.warm_up();
    let traffic = line.traffic(6);
    std::thread::sleep(Duration::from_millis(1000));
    router.kill();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(line.has_program("r0") && line.has_program("r1"));
    let router = line.start("--nonstop 60");
    let said = router.said();
    assert!(
        said.iter().any(|line| line.contains("continues until this one is ready")),
        "{said:#?}"
    );
    assert!(
        said.iter().any(|line| line.contains("2 interfaces keep forwarding for 60 s")),
        "{said:#?}"
    );
    let (sent, arrived) = traffic.end();
    println!("{arrived} of {sent} arrived");
    assert!(sent > 5 * RATE);
    assert_eq!(sent, arrived);
    // It is the new one that forwards: it knows what is new.
    ip(&format!("-n {} addr add 192.0.2.1/32 dev lo", line.line.destination));
    assert!(!line.pings("192.0.2.1"));
    ip(&format!("-n {} route add 192.0.2.0/24 via 10.0.2.2", line.line.router));
    std::thread::sleep(Duration::from_millis(300));
    assert!(line.pings("192.0.2.1"));
    ip(&format!("-n {} route replace blackhole 10.9.0.0/16", line.line.router));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!line.pings("10.9.0.1"));
    let report = router.stop();
    assert!(report["forwarded_xdp"].as_u64() > Some(0), "{report}");
}

#[test]
fn after_its_time_the_kernel_has_the_packets() {
    let Some(line) = Lasting::new(TRANSFER) else { return };
    line.line.kernel_forwards(true);
    let router = line.start("--nonstop 2");
    line.warm_up();
    // Longer than it may be away: it never is.
    std::thread::sleep(Duration::from_millis(2200));
    let killed = Instant::now();
    router.kill();
    // The kernel would drop it, drivers know nothing of that.
    ip(&format!("-n {} route replace blackhole 10.9.0.0/16", line.line.router));
    let forwards = line.pings("10.9.0.1");
    // The last beat may have been a moment before the end; and a machine may be too slow to look in time.
    assert!(
        forwards || killed.elapsed() > Duration::from_millis(1700),
        "the drivers still forward"
    );
    // What is no driver's to do goes to the kernel at once: sockets died with the process.
    let expired = exec(&line.line.source, "ping -c 1 -W 1 -t 1 10.0.2.2");
    let expired = String::from_utf8_lossy(&expired.stdout).into_owned();
    assert!(expired.contains("From 10.0.1.1") && expired.contains("exceeded"), "{expired}");
    std::thread::sleep(Duration::from_millis(2200).saturating_sub(killed.elapsed()));
    assert!(!line.pings("10.9.0.1"), "the kernel has them, and a route that drops");
    ip(&format!("-n {} route replace 10.9.0.0/16 via 10.0.2.2", line.line.router));
    assert!(line.pings("10.9.0.1"), "by the kernel");
    // A daemon that comes later does not bring the old tables back, but its own.
    let router = line.start("--nonstop 2");
    let said = router.said();
    assert!(said.iter().any(|line| line.contains("was given up")), "{said:#?}");
    line.line.kernel_forwards(false);
    assert!(line.pings("10.9.0.1"));
    // One that hangs is away, too, though its sockets are open.
    router.signal("STOP");
    line.line.kernel_forwards(true);
    std::thread::sleep(Duration::from_millis(2200));
    assert!(line.pings("10.9.0.1"), "by the kernel");
    line.line.kernel_forwards(false);
    assert!(!line.pings("10.9.0.1"), "by nobody");
    router.signal("CONT");
    std::thread::sleep(Duration::from_millis(500));
    assert!(line.pings("10.9.0.1"), "by the driver");
    router.stop();
}

/// The hash of a flow, by which it takes one of two paths.
fn hash(router: &Router) -> u32 {
    let answer: serde_json::Value =
        router.ask("route get 10.8.0.1 --flow 192.0.2.9,10.8.0.1,udp,1024,53");
    let hash = answer["group"]["hash"].as_u64().expect("a group");
    u32::try_from(hash).expect("a hash has 32 bits")
}

#[test]
fn flows_stay_on_their_paths_over_a_restart() {
    let Some(line) = Lasting::new(TRANSFER) else { return };
    let paths = "nexthop via 10.0.2.2 nexthop via 10.0.1.2";
    ip(&format!("-n {} route add 10.8.0.0/16 {paths}", line.line.router));
    let of_a_start = |words: &str| {
        let router = line.start(words);
        let hash = hash(&router);
        router.kill();
        hash
    };
    let first = of_a_start("--nonstop 60");
    assert_eq!(of_a_start("--nonstop 60"), first, "drivers forwarded on by the same seed");
    line.release();
    assert_ne!(of_a_start("--nonstop 60"), first, "nothing was left, and chance chose");
    let file = std::env::temp_dir().join(format!("seed-{}.toml", line.line.router));
    std::fs::write(&file, "[groups]\nflow_seed = 7\n").expect("a file");
    let configured = of_a_start(&format!("{} --nonstop 60", file.display()));
    let _ = std::fs::remove_file(&file);
    let ports = Some(Ports { src: 1024, dst: 53 });
    assert_eq!(configured, hash_v4(7, 0xc000_0209, 0x0a08_0001, protocol::UDP, ports));
}

#[test]
fn what_another_version_left_is_replaced_and_told() {
    let Some(line) = Lasting::new(TRANSFER) else { return };
    let router = line.start("--nonstop 60");
    line.warm_up();
    router.kill();
    let stamp = || {
        let memory = line.pins().and_then(|pins| pins.heartbeat()).expect("it was kept");
        memory.region("stamp", 8)
    };
    assert_eq!(stamp().u64s()[0].load(Ordering::Relaxed), STAMP);
    stamp().u64s()[0].store(STAMP + 1, Ordering::Relaxed);
    let traffic = line.traffic(3);
    std::thread::sleep(Duration::from_millis(500));
    let router = line.start("--nonstop 60");
    let (sent, arrived) = traffic.end();
    println!("{arrived} of {sent} arrived");
    assert_eq!(sent, arrived);
    let said = router.said();
    assert_eq!(said.iter().filter(|l| l.contains("of another version")).count(), 1, "{said:#?}");
    assert_eq!(stamp().u64s()[0].load(Ordering::Relaxed), STAMP);
    router.stop();
}

#[test]
fn it_can_be_ended_for_good() {
    let Some(line) = Lasting::new(TRANSFER) else { return };
    let router = line.start("--nonstop 60");
    line.warm_up();
    router.stop();
    assert!(line.pings("10.9.0.1"), "an orderly end, and another start may follow");
    assert!(line.pings("fd02::2"), "of both families");
    assert_eq!(line.release(), "r0: released\nr1: released\n");
    assert!(line.pins().is_none());
    let until = Instant::now() + Duration::from_secs(5);
    while line.has_program("r0") || line.has_program("r1") {
        assert!(Instant::now() < until, "programs stay");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!line.pings("10.9.0.1"), "nobody forwards");
    assert_eq!(line.release(), "", "nothing is left");
    // One that is not to be survived takes over what it finds, and keeps nothing.
    line.start("--nonstop 60").kill();
    assert!(line.pings("10.9.0.1"));
    let traffic = line.traffic(3);
    std::thread::sleep(Duration::from_millis(500));
    let router = line.start("");
    let (sent, arrived) = traffic.end();
    println!("{arrived} of {sent} arrived");
    assert_eq!(sent, arrived);
    assert!(line.pins().is_none());
    router.kill();
    line.line.kernel_forwards(true);
    assert!(line.pings("10.9.0.1") || line.pings("10.9.0.1"), "the kernel, at once");
    assert!(!line.has_program("r0"));
}

#[test]
fn interfaces_that_are_driven_another_way_are_let_go() {
    let Some(line) = Lasting::new(TRANSFER) else { return };
    line.start("--nonstop 60").kill();
    assert!(line.has_program("r0") && line.has_program("r1"));
    let file = std::env::temp_dir().join(format!("survival-{}.toml", line.line.router));
    let (r0, r1) = ("name = \"r0\"\nmode = \"generic\"", "name = \"r1\"\nmode = \"kernel\"");
    std::fs::write(&file, format!("[[interface]]\n{r0}\n[[interface]]\n{r1}\n")).expect("a file");
    let words = format!("{} --nonstop 60", file.display());
    let router = Router::start_by(command_beside, &line.line.router, &words, 1);
    let _ = std::fs::remove_file(&file);
    let said = router.said();
    let told = |words: &str| said.iter().any(|line| line.contains(words));
    assert!(told("r0: taken over: AF_XDP, generic"), "{said:#?}");
    assert!(
        told("r1 stays with the kernel") && told("no interface forwards in XDP yet"),
        "{said:#?}"
    );
    assert!(!line.has_program("r1"));
    router.kill();
    let until = Instant::now() + Duration::from_secs(5);
    while line.has_program("r0") {
        assert!(Instant::now() < until, "a generic program is nobody's to keep");
        std::thread::sleep(Duration::from_millis(20));
    }
}
