//! The driver against the kernel: veth pairs in a namespace of the test's own.
//!
//! Topology: `s0 == r0` and `r1 == d0`, all in one namespace, no addresses: frames move by MAC alone.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::*;
use crate::xdp::{Classifier, LocalAddresses, testing};

const FRAMES: u32 = 4096;
const SMALL: u32 = 256;

/// An interface with its classifier and the port on one of its queues. Dropped in this order.
struct End {
    port: AfxdpPort,
    mac: [u8; 6],
    ifindex: u32,
    classifier: Classifier,
    link: Link,
}

fn end(name: &str, pool: &Pool, shared: Option<&AfxdpPort>, mode: Mode, queue: u32) -> End {
    let (ifindex, mac) = (testing::ifindex(name), testing::mac(name));
    let classifier =
        Classifier::load(mac, &LocalAddresses::new().unwrap(), pool.max_len()).unwrap();
    let link = classifier.attach(ifindex, mode).unwrap();
    let spec =
        Spec { name, ifindex, queue, pool, shared, ring: SMALL, attached: &link, zero_copy: true };
    let port = open(&spec).unwrap();
    classifier.set_socket(queue, port.as_fd()).unwrap();
    End { port, mac, ifindex, classifier, link }
}

/// A frame for `mac` that carries its number.
fn frame(mac: [u8; 6], number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0xa5; len];
    frame[..6].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[30..34].copy_from_slice(&Ipv4Addr::new(10, 1, 2, 3).octets());
    frame[34..38].copy_from_slice(&number.to_be_bytes());
    let last = len - 1;
    frame[last] = number.to_le_bytes()[0];
    frame
}

fn put(batch: &mut Batch, bytes: &[u8]) {
    let mut packet = batch.pool().alloc().unwrap();
    assert!(packet.set_len(bytes.len()));
    packet.bytes_mut().copy_from_slice(bytes);
    batch.push(packet).unwrap();
}

fn stat(port: &AfxdpPort, name: &str) -> u64 {
    let mut found = None;
    port.stats(&mut |n, value| {
        if n == name {
            found = Some(value);
        }
    });
    found.unwrap_or_else(|| panic!("no count {name}"))
}

/// Calls `step` until it returns true, for at most 10 s.
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let start = Instant::now();
    while !step() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what} takes too long");
    }
}

/// Sends all of `batch`.
fn send_all(port: &mut AfxdpPort, batch: &mut Batch) {
    until("sending", || {
        port.send(batch).unwrap();
        batch.is_empty()
    });
}

/// Sends `count` frames from s0 through a forwarder between r0 and r1 to d0, `burst` at a time, and
/// checks each byte and each frame of all pools.
fn forward(mode: Mode, share: bool, count: u32, burst: u32) {
    testing::veth("s0", "r0", 1);
    testing::veth("r1", "d0", 1);
    let pools = [(); 3].map(|()| Pool::new(FRAMES, 2048));
    let [source_pool, pool, sink_pool] = &pools;
    let mut source = end("s0", source_pool, None, mode, 0);
    let mut west = end("r0", pool, None, mode, 0);
    let mut east = end("r1", pool, share.then_some(&west.port), mode, 0);
    let mut sink = end("d0", sink_pool, None, mode, 0);
    // veth has no zero-copy; the text has the reason where it was tried.
    let expected = match mode {
        Mode::Native => "native, copy: zero-copy refused by bind (Operation not supported)",
        Mode::Generic => "generic, copy",
    };
    for port in [&west.port, &east.port] {
        assert!(port.mode().starts_with(expected), "{}", port.mode());
        assert_eq!(port.in_rings(), SMALL as usize, "the fill ring is full");
    }

    let mut out = Batch::new(source_pool);
    let mut inside = Batch::new(pool);
    let mut arrived = Batch::new(sink_pool);
    let (mut sent, mut got) = (0, 0);
    let len = |number: u32| 60 + number as usize * 7 % 1400;
    while got < count {
        let end = count.min(sent + burst);
        (sent..end).for_each(|n| put(&mut out, &frame(west.mac, n, len(n))));
        sent = end;
        send_all(&mut source.port, &mut out);
        until("crossing", || {
            west.port.recv(&mut inside).unwrap();
            for i in 0..inside.len() {
                assert_eq!(inside.bytes(i)[..6], west.mac);
                inside.bytes_mut(i)[..6].copy_from_slice(&sink.mac);
            }
            let held = inside.len();
            let total = pool.free() + west.port.in_rings() + east.port.in_rings() + held;
            assert_eq!(total, pool.frames(), "every frame is somewhere");
            east.port.send(&mut inside).unwrap();
            east.port.recv(&mut inside).unwrap();
            sink.port.recv(&mut arrived).unwrap();
            for i in 0..arrived.len() {
                assert_eq!(arrived.bytes(i), frame(sink.mac, got, len(got)), "frame {got}");
                got += 1;
            }
            arrived.clear();
            got == sent
        });
    }
    let counts = west.classifier.counts().unwrap();
    assert_eq!((counts.redirected, counts.no_socket), (u64::from(count), 0));
    for port in [&source.port, &west.port, &east.port, &sink.port] {
        for name in ["rx_dropped", "rx_ring_full", "tx_invalid", "tx_refused", "bad_descriptors"] {
            assert_eq!(stat(port, name), 0, "{name}");
        }
    }
    assert_eq!(west.link.mode(), mode);
    drop((source, west, east, sink, inside, out, arrived));
    for pool in &pools {
        assert_eq!(pool.free(), pool.frames(), "closed ports give back what they held");
    }
}

#[test]
fn frames_cross_in_native_mode() {
    testing::in_namespace(|| forward(Mode::Native, true, 20_000, 64));
}

#[test]
fn frames_cross_with_the_memory_registered_twice() {
    testing::in_namespace(|| forward(Mode::Native, false, 2_000, 32));
}

#[test]
fn frames_cross_in_generic_mode() {
    testing::in_namespace(|| forward(Mode::Generic, true, 5_000, 32));
}

#[test]
fn a_queue_is_a_socket_of_its_own() {
    testing::in_namespace(|| {
        testing::veth("s0", "r0", 2);
        let pool = Pool::new(FRAMES, 2048);
        let mut source = end("s0", &pool, None, Mode::Native, 1);
        let mut first = end("r0", &pool, Some(&source.port), Mode::Native, 0);
        let spec = Spec {
            name: "r0",
            ifindex: first.ifindex,
            queue: 1,
            pool: &pool,
            shared: Some(&first.port),
            ring: SMALL,
            attached: &first.link,
            zero_copy: false,
        };
        let mut second = open(&spec).unwrap();
        first.classifier.set_socket(1, second.as_fd()).unwrap();
        assert_eq!(second.mode(), "native, copy");
        let mut batch = Batch::new(&pool);
        for number in 0..10 {
            put(&mut batch, &frame(first.mac, number, 60));
        }
        send_all(&mut source.port, &mut batch);
        until("arriving", || {
            second.recv(&mut batch).unwrap();
            batch.len() == 10
        });

        let error = open(&Spec { queue: 7, ..spec }).unwrap_err().to_string();
        assert!(error.starts_with("r0: bind: ") && error.ends_with("(no such queue?)"), "{error}");
        let error = open(&spec).unwrap_err().to_string();
        assert!(error.ends_with("(another AF_XDP socket has this queue)"), "{error}");
        let error = open(&Spec { ring: 100, ..spec }).unwrap_err().to_string();
        assert_eq!(error, "r0: a ring of 100 entries: need a power of two, 64 to 16384");
        assert_eq!(first.port.recv(&mut Batch::new(&pool)).unwrap(), 0);
    });
}

#[test]
fn overload_drops_in_the_kernel_and_leaks_nothing() {
    testing::in_namespace(|| {
        testing::veth("s0", "r0", 1);
        let (source_pool, pool) = (Pool::new(FRAMES, 2048), Pool::new(300, 2048));
        let mut source = end("s0", &source_pool, None, Mode::Native, 0);
        let mut west = end("r0", &pool, None, Mode::Native, 0);
        let mut out = Batch::new(&source_pool);
        let mut inside = Batch::new(&pool);
        for round in 0..50 {
            for number in 0..32 {
                put(&mut out, &frame(west.mac, round * 32 + number, 60));
            }
            send_all(&mut source.port, &mut out);
        }
        // The ring of 256 is full and nobody looked.
        until("arriving", || west.classifier.counts().unwrap().redirected == 1600);
        let mut got = 0;
        until("draining", || {
            let count = west.port.recv(&mut inside).unwrap();
            got += count;
            assert_eq!(pool.free() + west.port.in_rings() + inside.len(), 300);
            inside.clear();
            count == 0
        });
        assert_eq!(got, SMALL as usize);
        assert_eq!(stat(&west.port, "rx_ring_full") + stat(&west.port, "rx_dropped"), 1344);
        // And goes on afterwards.
        put(&mut out, &frame(west.mac, 7, 60));
        send_all(&mut source.port, &mut out);
        until("arriving", || west.port.recv(&mut inside).unwrap() == 1);
        drop((west, inside));
        assert_eq!(pool.free(), 300);
    });
}

#[test]
fn a_port_follows_its_interface_down_and_away() {
    testing::in_namespace(|| {
        testing::veth("s0", "r0", 1);
        let pool = Pool::new(FRAMES, 2048);
        let mut source = end("s0", &pool, None, Mode::Native, 0);
        let mut west = end("r0", &pool, Some(&source.port), Mode::Native, 0);
        let mut batch = Batch::new(&pool);
        testing::ip("link set s0 down");
        put(&mut batch, &frame(west.mac, 1, 60));
        let free = pool.free();
        assert_eq!(source.port.send(&mut batch).unwrap(), 1, "down is no error");
        assert_eq!((stat(&source.port, "tx_link_down"), pool.free()), (1, free + 1), "dropped");
        for _ in 0..2000 {
            assert_eq!(source.port.recv(&mut batch).unwrap(), 0, "nor later");
        }
        testing::ip("link set s0 up");
        put(&mut batch, &frame(west.mac, 2, 60));
        send_all(&mut source.port, &mut batch);
        until("coming up", || {
            source.port.recv(&mut batch).unwrap();
            west.port.recv(&mut batch).unwrap() > 0
        });
        assert_eq!(batch.len(), 1, "what was to be sent before stays away");
        assert_eq!(batch.bytes(0), frame(west.mac, 2, 60));
        assert_eq!(stat(&source.port, "tx_link_down"), 1);
        batch.clear();

        testing::ip("link del s0");
        for port in [&mut source.port, &mut west.port] {
            let mut error = None;
            until("noticing", || {
                error = port.recv(&mut batch).err();
                error.is_some()
            });
            let error = error.unwrap().to_string();
            assert!(error.ends_with("(the interface is gone)"), "{error}");
        }
        put(&mut batch, &frame(west.mac, 1, 60));
        assert!(source.port.send(&mut batch).is_err());
        drop((source, west, batch));
        assert_eq!(pool.free(), pool.frames());
    });
}

#[test]
fn a_queue_can_be_opened_again_at_once() {
    testing::in_namespace(|| {
        testing::veth("s0", "r0", 1);
        let pool = Pool::new(FRAMES, 2048);
        let mut source = end("s0", &pool, None, Mode::Native, 0);
        for round in 0..5 {
            let mut west = end("r0", &pool, None, Mode::Native, 0);
            let mut batch = Batch::new(&pool);
            put(&mut batch, &frame(west.mac, round, 60));
            send_all(&mut source.port, &mut batch);
            until("arriving", || west.port.recv(&mut batch).unwrap() == 1);
            drop((west, batch));
            assert_eq!(pool.free() + source.port.in_rings(), pool.frames());
        }
    });
}

#[test]
fn empty_frames_are_not_sent_and_not_lost() {
    testing::in_namespace(|| {
        testing::veth("s0", "r0", 1);
        let pool = Pool::new(FRAMES, 2048);
        let mut source = end("s0", &pool, None, Mode::Native, 0);
        let mut batch = Batch::new(&pool);
        put(&mut batch, &[]);
        put(&mut batch, &[0xff; 60]);
        assert_eq!(source.port.send(&mut batch).unwrap(), 2);
        assert_eq!(stat(&source.port, "tx_empty_frames"), 1);
        until("completing", || {
            source.port.recv(&mut batch).unwrap();
            pool.free() + SMALL as usize == pool.frames()
        });
        assert_eq!(stat(&source.port, "tx_invalid"), 0);
    });
}

#[test]
fn frames_fit_their_mtu() {
    let sizes = [0, 1500, 1778, 1779, 3826, 3827, 9000].map(frame_bytes_for);
    let (small, large) = (Some(2048), Some(4096));
    assert_eq!(sizes, [small, small, small, large, large, None, None]);
}
