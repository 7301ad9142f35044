//! The whole path of a packet over kernel ports, and how fast it is here: generator, classifier,
//! receive, transmit, sink.
//!
//! `cargo test --release -p fingerpost-lab traffic::rate -- --nocapture` prints the rates; the test
//! fails only when a packet is unaccounted for or wrong.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fingerpost_io::afxdp::{AfxdpPort, RING, Spec, frames_needed, open};
use fingerpost_io::xdp::{Classifier, LocalAddresses, testing};
use fingerpost_packet::device::Port;
use fingerpost_packet::frame::{Batch, Pool};

use super::Sink;
use super::generator::{Generator, Tail, WORTHWHILE, udp_frame};
use crate::cores;

const LEN: usize = 82;
const TEMPLATES: u16 = 4096;
const PACKETS: u32 = 4 * WORTHWHILE;

struct Tally {
    received: u64,
    sent: u64,
    seconds: f64,
}

/// Forwards from `west` to `east` until `stop`, then until nothing comes any more.
fn forward(
    pool: &Pool,
    [west, east]: [&mut AfxdpPort; 2],
    to: [u8; 6],
    stop: &AtomicBool,
) -> Tally {
    let mut batch = Batch::new(pool);
    let mut tally = Tally { received: 0, sent: 0, seconds: 0.0 };
    let (mut first, mut last) = (None, Instant::now());
    loop {
        if batch.is_empty() && west.recv(&mut batch).unwrap() > 0 {
            last = Instant::now();
            first.get_or_insert(last);
            tally.received += batch.len() as u64;
            for i in 0..batch.len() {
                batch.bytes_mut(i)[..6].copy_from_slice(&to);
            }
        }
        tally.sent += east.send(&mut batch).unwrap() as u64;
        let quiet = last.elapsed() > Duration::from_millis(100);
        if batch.is_empty() && quiet && stop.load(Ordering::SeqCst) {
            let first = first.unwrap_or(last);
            tally.seconds = (last - first).as_secs_f64();
            return tally;
        }
    }
}

#[test]
fn a_full_rate_run_accounts_for_every_packet() {
    testing::in_namespace(|| {
        let (s0, r0) = testing::veth("s0", "r0", 1);
        let (r1, d0) = testing::veth("r1", "d0", 1);
        let pool = Pool::new(3 * frames_needed(RING), 2048);
        let end = |name, ifindex, shared: Option<&AfxdpPort>| {
            let local = LocalAddresses::new().unwrap();
            let classifier = Classifier::load(testing::mac(name), &local, pool.max_len()).unwrap();
            let link = classifier.attach_best(ifindex).unwrap();
            let spec = Spec {
                name,
                ifindex,
                queue: 0,
                pool: &pool,
                shared,
                ring: RING,
                attached: &link,
                zero_copy: true,
            };
            let port = open(&spec).unwrap();
            classifier.set_socket(0, port.as_fd()).unwrap();
            (port, classifier, link)
        };
        let (mut west, classifier, _west) = end("r0", r0, None);
        let (mut east, _classifier, _east) = end("r1", r1, Some(&west));
        let mut sink = Sink::attach(d0, LEN, 32).unwrap();
        let (from, to) = (testing::mac("r0"), testing::mac("d0"));
        let templates: Vec<_> = (0..TEMPLATES)
            .map(|i| {
                let hosts = if i % 2 == 0 {
                    ["192.0.2.1".to_string(), format!("10.9.{}.{}", i >> 8, i & 0xff)]
                } else {
                    ["fd00::1".to_string(), format!("fd00:9::{i:x}")]
                };
                let hosts = hosts.map(|host| host.parse().unwrap());
                udp_frame([from, [2; 6]], hosts, [i, 9], 64, LEN)
            })
            .collect();
        let mut generator = Generator::new(&templates, s0).unwrap();

        let stop = AtomicBool::new(false);
        let start = Instant::now();
        let (mut checked, mut last, mut generated) = (0, None, 0.0);
        let tally = std::thread::scope(|scope| {
            let forwarder = scope.spawn(|| {
                cores::pin(1);
                forward(&pool, [&mut west, &mut east], to, &stop)
            });
            let source = scope.spawn(|| {
                cores::pin(0);
                generator.run(PACKETS).unwrap();
                generated = start.elapsed().as_secs_f64();
                stop.store(true, Ordering::SeqCst);
            });
            let mut look = || {
                sink.poll(&mut |frame| {
                    let tail = Tail::of(frame).expect("a tail");
                    let template = &templates[tail.template as usize];
                    assert_eq!(frame[..6], to);
                    assert_eq!(frame[6..LEN - 16], template[6..LEN - 16]);
                    assert_eq!(tail.template, tail.sequence % u32::from(TEMPLATES));
                    assert!(last < Some(tail.sequence), "order: {last:?}, {}", tail.sequence);
                    last = Some(tail.sequence);
                    checked += 1;
                })
                .unwrap();
                std::thread::sleep(Duration::from_millis(2));
            };
            while !forwarder.is_finished() {
                look();
            }
            look();
            source.join().unwrap();
            forwarder.join().unwrap()
        });

        let counts = classifier.counts().unwrap();
        let arrived = sink.arrived().unwrap();
        let mut lost = 0;
        west.stats(&mut |name, count| {
            if ["rx_ring_full", "rx_dropped", "rx_fill_ring_empty"].contains(&name) {
                lost += count;
            }
        });
        assert_eq!((counts.passed, counts.no_socket), (0, 0));
        // A full transmit ring of the far veth drops too, which no counter of ours sees.
        assert!(
            tally.received > 0 && tally.received + lost >= counts.redirected,
            "{counts:?}, {} received, {lost} lost, offered {}",
            tally.received,
            generator.offered().unwrap()
        );
        assert!(tally.received <= counts.redirected && arrived <= tally.sent);
        assert_eq!(tally.received, tally.sent);
        assert!(checked as u64 <= sink.sampled().unwrap() && checked > 0);
        until_home(&pool, &mut [&mut west, &mut east]);
        #[allow(clippy::cast_precision_loss, reason = "a rate to read")]
        let mpps = |count: u64, seconds: f64| count as f64 / seconds / 1e6;
        println!(
            "generated {:.2} Mpps, redirected {}, lost before the router {}, forwarded {} at {:.2} \
             Mpps, arrived {arrived}, checked {checked}",
            mpps(generator.offered().unwrap(), generated),
            counts.redirected,
            counts.redirected - tally.received,
            tally.sent,
            mpps(tally.sent, tally.seconds),
        );
    });
}

/// Every frame is free or in a ring, at last only in the fill rings, but for one a port: the kernel
/// keeps the last frame that found the receive ring full for the next packet.
fn until_home(pool: &Pool, ports: &mut [&mut AfxdpPort]) {
    let mut batch = Batch::new(pool);
    let start = Instant::now();
    loop {
        for port in &mut *ports {
            assert_eq!(port.recv(&mut batch).unwrap(), 0);
        }
        let in_rings: usize = ports.iter().map(|port| port.in_rings()).sum();
        assert_eq!(pool.free() + in_rings, pool.frames());
        if in_rings <= ports.len() * (RING as usize + 1) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{in_rings} in rings");
    }
}
