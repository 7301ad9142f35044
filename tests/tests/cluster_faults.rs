//! What failures of nodes and links cost: for each kind the median of several runs, failures at random, and none at all
//! under load.
//!
//! Longer: `cargo xtask soak cluster`, which has nine runs a kind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fingerpost_lpm::Rng;
use fingerpost_tests::faults::{Cost, DETECTION_MS, FLOWS, Fault, Trial};
use fingerpost_tests::netns::{Router, run};
use fingerpost_tests::rack::{Built, Place, Rack, downs, forwarded_xdp, packets, wait_for};
use fingerpost_tests::traffic::Traffic;
use fingerpost_tests::{soak, soaks, store};

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// What the racks need.
const TOOLS: &[&str] = &["ping", "nft", "ethtool"];

/// Longest time without a failure in `no_link_fails_under_load`.
const LOADED: Duration = Duration::from_secs(600);

/// Runs of each kind of failure.
fn runs() -> usize {
    if soaks() { 9 } else { 3 }
}

/// The middle one; 0 of none.
fn median(mut times_ms: Vec<f64>) -> f64 {
    times_ms.sort_by(f64::total_cmp);
    times_ms.get(times_ms.len() / 2).copied().unwrap_or_default()
}

/// Checks that the median of the failures that follow each other costs no more than the detection time, that nothing is lost
/// after it, and that all is as before once it is mended.
fn cost_of(trial: &mut Trial, faults: &[Fault]) {
    let mut times_ms = Vec::new();
    // A run beside which the machine held a node up is made again, a few times.
    for (i, &fault) in (0..runs() + 3).zip(faults.iter().cycle()) {
        let going = trial.begin(1);
        // By the time of a probe, in steps that meet each part of it.
        thread::sleep(Duration::from_millis(200 + 7 * i as u64));
        trial.fail(fault);
        times_ms.extend(trial.end(fault, going).lost_ms);
        while_it_lasts(trial, fault);
        let ends = times_ms.len() == runs();
        if soaks() || ends {
            trial.lose_nothing();
        }
        trial.mend(fault);
        if ends {
            break;
        }
    }
    let median = median(times_ms.clone());
    println!("{}: {times_ms:.1?} ms, median {median:.1} ms", Fault::KINDS[faults[0].kind()]);
    assert_eq!(times_ms.len(), runs(), "failures beside the traffic");
    assert!(median <= DETECTION_MS, "{times_ms:?}");
}

/// What a node reports of a failure that lasts.
fn while_it_lasts(trial: &Trial, fault: Fault) {
    let down = |node: usize, peer: usize| {
        let peer = &trial.rack.places[peer].id;
        wait_for(trial.router(node), "the link that is down", |status| {
            let members = status["members"].as_array().expect("members");
            members.iter().any(|member| member["id"] == **peer && member["link"]["up"] == false)
        });
    };
    match fault {
        Fault::Killed(node) | Fault::Silent(node) => {
            (0..4).filter(|other| *other != node).take(2).for_each(|other| down(other, node));
            // Routing daemons find its next hop gone.
            let of = &trial.rack.places[0].namespace;
            let until = Instant::now() + Duration::from_secs(5);
            while !run(of, &format!("ip route show 192.0.2.{}", node + 1)).is_empty() {
                assert!(Instant::now() < until, "the route to a lost node");
                thread::sleep(Duration::from_millis(50));
            }
        }
        Fault::Cut(one, other) | Fault::OneWay(one, other) => {
            down(one, other);
            down(other, one);
        }
        Fault::Parted => {
            down(0, 2);
            down(3, 1);
        }
        Fault::Drained(_) | Fault::NoStore | Fault::Stale => {}
    }
}

#[test]
fn failures_cost_the_detection_time_and_nothing_after_it() {
    let Some(rack) = Rack::new(TOOLS, Trial::built(None)) else { return };
    let mut trial = Trial::new(TRANSFER, rack, None);
    // A quarter of the packets crosses each of the two, in XDP.
    let counts = trial.traffic(1).end();
    for node in [2, 3] {
        let crossed = packets(trial.router(node), "transit") * 100 / counts.sent;
        assert!((20..=35).contains(&crossed), "{crossed} % of {counts:?} cross node {node}");
        assert!(forwarded_xdp(trial.router(node)) > counts.sent / 5, "transit is in XDP");
    }
    cost_of(&mut trial, &[Fault::Killed(2), Fault::Killed(3)]);
    cost_of(&mut trial, &[Fault::Cut(0, 1), Fault::Cut(0, 2), Fault::Cut(3, 1)]);
    cost_of(&mut trial, &[Fault::OneWay(0, 1), Fault::OneWay(0, 3), Fault::OneWay(2, 1)]);
    cost_of(&mut trial, &[Fault::Silent(2), Fault::Silent(3)]);
    trial.lose_nothing();
}

/// Several of each kind in the order of a seed.
#[test]
fn failures_at_random_cost_the_detection_time_each() {
    let long = soak(Duration::ZERO);
    // In a soak with a store, which a killed node has to wait for when it starts again.
    let of_store = match soaks() {
        true => store::rack(&[TOOLS, &["etcd"]].concat(), Trial::built(Some("etcd"))),
        false => None,
    };
    let (mut trial, kinds) = match of_store {
        Some((rack, server)) => (Trial::new(TRANSFER, rack, Some(server)), Fault::KINDS.len()),
        None => match Rack::new(TOOLS, Trial::built(None)) {
            Some(rack) => (Trial::new(TRANSFER, rack, None), Fault::Parted.kind() + 1),
            None => return,
        },
    };
    let seed = u64::from(std::process::id());
    println!("seed {seed}, program {}", trial.rack.program.display());
    let (mut rng, began) = (Rng::new(seed), Instant::now());
    let mut of_kinds: BTreeMap<usize, Vec<Cost>> = BTreeMap::new();
    let mut rounds = 0;
    while rounds < 3 || began.elapsed() < long {
        let fault = Fault::random(rng.below(kinds), &mut rng);
        let cost = trial.cost(fault, Duration::from_millis(500 + rng.below(500) as u64));
        println!("round {rounds}, {fault:?}: {:.1?} ms, {:?}", cost.lost_ms, cost.counts);
        of_kinds.entry(fault.kind()).or_default().push(cost);
        rounds += 1;
    }
    trial.lose_nothing();
    let excused = of_kinds.values().flatten().filter(|cost| cost.excused).count();
    println!("{excused} of {rounds} failures met a node that the machine held up");
    assert!(excused * 100 <= rounds, "{excused} of {rounds}");
    println!("{rounds} failures in {:.0} s, seed {seed}", began.elapsed().as_secs_f64());
    println!(
        "| failure | times | packets sent | lost | median, 90 %, most, ms | behind a later one |"
    );
    for (kind, costs) in of_kinds {
        let sum = |of: fn(&Cost) -> u64| -> u64 { costs.iter().map(of).sum() };
        let times_ms: Vec<f64> = costs.iter().filter_map(|cost| cost.lost_ms).collect();
        let mut sorted = times_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |parts: usize| sorted.get(sorted.len() * parts / 10).copied().unwrap_or_default();
        let (median, nine_of_ten) = (at(5), at(9));
        let most = sorted.last().copied().unwrap_or_default();
        let (sent, lost) = (sum(|cost| cost.counts.sent), sum(|cost| cost.counts.lost()));
        let behind = sum(|cost| cost.counts.reordered);
        let name = Fault::KINDS[kind];
        println!(
            "| {name} | {} | {sent} | {lost} | {median:.1}, {nine_of_ten:.1}, {most:.1} | {behind} |",
            costs.len()
        );
        assert!(median <= DETECTION_MS || times_ms.len() < 3, "{name}: {times_ms:?}");
    }
}

/// Packets a second that each node receives for each other one: 95 % of R = 1,800 packets of 1,400 bytes in all.
const PAIR: u64 = 570;

/// Longest time by which a thread that sleeps for a millisecond wakes up late, until this is stopped.
struct Witness(Arc<AtomicBool>, thread::JoinHandle<Duration>);

impl Witness {
    fn start() -> Self {
        const SLEEP: Duration = Duration::from_millis(1);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            // Relaxed: a flag without data behind it.
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                thread::sleep(SLEEP);
                longest = longest.max(began.elapsed().saturating_sub(SLEEP));
            }
            longest
        });
        Self(stop, thread)
    }

    fn stop(self) -> Duration {
        self.0.store(true, Ordering::Relaxed);
        self.1.join().expect("it only sleeps")
    }
}

/// In a soak no link may fail at all; beside other tests, one of five times without a failure is enough, as the machine may
/// keep the kernel's own threads from their work.
#[test]
fn no_link_fails_under_load() {
    // 2R/N.
    let built =
        Built { rate: Some("10.08Mbps"), keys: "flowlet_ms = 1".to_owned(), ..Built::of(4) };
    let Some(rack) = Rack::new(&["ping"], built) else { return };
    let routers = rack.start_all();
    let all_downs = || -> u64 {
        let of = |router: &Router, place: &Place| -> u64 {
            let peers = rack.places.iter().filter(|peer| peer.id != place.id);
            peers.map(|peer| downs(router, &peer.id)).sum()
        };
        routers.iter().zip(&rack.places).map(|(router, place)| of(router, place)).sum()
    };
    let pairs: Vec<(usize, usize)> =
        (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(i, j)| i != j).collect();
    let addrs: Vec<Vec<String>> =
        pairs.iter().map(|&(from, to)| rack.destinations(from, to, FLOWS)).collect();
    let (seconds, times) = if soaks() { (soak(LOADED).min(LOADED).as_secs(), 1) } else { (4, 5) };
    let mut failures = Vec::new();
    while failures.len() < times && failures.last() != Some(&0) {
        let (before, witness) = (all_downs(), Witness::start());
        let going: Vec<Traffic> = pairs
            .iter()
            .zip(&addrs)
            .map(|(&(from, to), addrs)| {
                let addrs: Vec<&str> = addrs.iter().map(String::as_str).collect();
                let ends = [from, to].map(|node| &*rack.places[node].hosts[0]);
                Traffic::between(TRANSFER, ends, &addrs, (PAIR, seconds, 1_354))
            })
            .collect();
        let (mut sent, mut received) = (0, 0);
        for counts in going.into_iter().map(Traffic::end) {
            (sent, received) = (sent + counts.sent, received + counts.received);
        }
        failures.push(all_downs() - before);
        println!(
            "{seconds} s of load: links failed {failures:?}, {received} of {sent} packets; a thread of the test woke up {} ms late",
            witness.stop().as_millis()
        );
        assert!(sent >= PAIR * 12 * seconds * 9 / 10, "{sent} packets sent are no load");
    }
    assert_eq!(failures.last(), Some(&0), "links that went down: {failures:?}");
}
