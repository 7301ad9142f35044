//! A frame has one owner, whatever a program without unsafe code does: what is taken out of a batch is out of its reach,
//! labels that it is given afterwards have no effect, and a callback that panics loses frames rather than have them
//! freed twice.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use fingerpost_packet::frame::{Decision, PacketQueue, Places};
use fingerpost_packet::testing::batch;
use fingerpost_packet::{Batch, DropReason, Meta, Packet, Pool};

const FRAMES: u32 = 32;
const SENT: usize = 8;

fn filled(pool: &Pool) -> Box<Batch> {
    batch(pool, 0, (0..SENT).map(|i| &[[0_u8; 60], [1; 60]][i % 2][..]))
}

/// Takes all free frames: no two are the same, and none of them is one that `away` still has.
fn drained(pool: &Pool, away: &[&Packet]) -> usize {
    let packets: Vec<Packet> = std::iter::from_fn(|| pool.alloc()).collect();
    let all = packets.iter().chain(away.iter().copied());
    let mut places: Vec<_> = all.map(|packet| packet.bytes().as_ptr()).collect();
    places.sort_unstable();
    let count = places.len();
    places.dedup();
    assert_eq!(places.len(), count, "a frame was freed while it had an owner");
    packets.len()
}

#[test]
fn a_taken_packet_is_out_of_reach_of_its_batch() {
    let pool = Pool::new(FRAMES, 2048);
    let mut batch = filled(&pool);
    let mut taken = batch.take(3);
    taken.bytes_mut().fill(7);
    assert_eq!(
        (batch.bytes(3), batch.frame_len(3), batch.decision(3)),
        (&[][..], 0, Decision::Taken)
    );
    batch.bytes_mut(3).fill(9);
    assert!(!batch.push_front(3, 1) && !batch.pull_front(3, 1));
    batch.each(|i, mut one| {
        assert_eq!(one.frame.is_empty(), i == 3);
        one.frame.fill(9);
        one.truncate(40);
    });
    assert!(taken.bytes().iter().all(|&byte| byte == 7));
    let again = catch_unwind(AssertUnwindSafe(|| batch.take(3)));
    assert!(again.is_err(), "it was taken before");
    assert_eq!(drained(&pool, &[&taken]), FRAMES as usize - SENT);
}

/// What a program does to a batch after it took a packet and labeled the hole.
type Ending = fn(&mut Batch, &Pool);

const ENDINGS: [(&str, Ending); 9] = [
    ("clear", |batch, _| batch.clear()),
    ("free_front", |batch, _| batch.free_front(SENT)),
    ("free_front of some", |batch, _| batch.free_front(4)),
    ("unlabel", |batch, _| {
        batch.unlabel();
        assert_eq!(batch.len(), SENT - 1);
    }),
    ("close_up", |batch, _| {
        batch.close_up(|_, _| ());
        assert!(batch.len() < SENT);
    }),
    ("scatter", |batch, pool| {
        let mut to = Batch::new(pool);
        batch.scatter(|_, _| (), |_, put| put(&mut to));
        assert!(to.len() < SENT && batch.is_empty());
    }),
    ("take_front_raw", |batch, pool| {
        batch.take_front_raw(SENT, |frame, _, len, _| {
            assert_eq!(len, 60, "no hole is handed to the kernel");
            pool.give_raw(frame);
        });
    }),
    ("shared_output", |batch, _| assert_eq!(batch.shared_output(), None)),
    ("uniform", |batch, _| assert_eq!(batch.uniform(), None)),
];

/// Labels that a wrong element gives what it has just taken.
const LABELS: [fn(&mut Batch, usize); 5] = [
    |_, _| (),
    |batch, i| batch.output(i, 0),
    |batch, i| batch.output(i, 2),
    |batch, i| batch.discard(i, DropReason::NoRoute),
    |batch, _| batch.each(|_, mut one| one.discard(DropReason::NoRoute)),
];

#[test]
fn labels_of_a_taken_packet_have_no_effect() {
    for (name, ending) in ENDINGS {
        for (nth, label) in LABELS.iter().enumerate() {
            let pool = Pool::new(FRAMES, 2048);
            let mut batch = filled(&pool);
            let taken = batch.take(2);
            label(&mut batch, 2);
            ending(&mut batch, &pool);
            drained(&pool, &[&taken]);
            drop(batch);
            assert_eq!(drained(&pool, &[&taken]), FRAMES as usize - 1, "{name}, label {nth}");
            drop(taken);
            assert_eq!(pool.free(), FRAMES as usize, "{name}, label {nth}");
        }
    }
}

#[test]
fn a_packet_that_moved_is_not_distributed_again() {
    struct Nowhere;
    impl Places for Nowhere {
        fn place(&mut self, _: &Meta) -> Result<&mut Batch, DropReason> {
            Err(DropReason::PortDown)
        }
    }
    let pool = Pool::new(FRAMES, 2048);
    let (mut batch, mut to) = (filled(&pool), Batch::new(&pool));
    batch.move_to(0, &mut to);
    let refused = catch_unwind(AssertUnwindSafe(|| batch.distribute(&mut Nowhere)));
    assert!(refused.is_err(), "there is a hole");
    drop((batch, to));
    assert_eq!(drained(&pool, &[]), FRAMES as usize);
    let mut queue = PacketQueue::with_room(4);
    let mut batch = filled(&pool);
    queue.take(&mut batch, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.take(&mut batch, 1))).is_err());
    batch.output(1, 0);
    drop((batch, queue));
    assert_eq!(drained(&pool, &[]), FRAMES as usize);
}

/// Calls of a program's own function in the middle of moving packets, which panic at the third packet.
const CALLS: [(&str, Ending); 4] = [
    ("scatter", |batch, pool| {
        let (mut to, mut calls) = (Batch::new(pool), 0);
        batch.scatter(
            |_, _| (),
            |_, put| {
                put(&mut to);
                calls += 1;
                assert!(calls < 3, "a callback fails");
            },
        );
    }),
    ("close_up", |batch, _| {
        (0..SENT).step_by(2).for_each(|i| batch.discard(i, DropReason::NoRoute));
        let mut calls = 0;
        batch.close_up(|_, _| {
            calls += 1;
            assert!(calls < 3, "a callback fails");
        });
    }),
    ("distribute", |batch, pool| {
        struct Two(Box<Batch>);
        impl Places for Two {
            fn place(&mut self, _: &Meta) -> Result<&mut Batch, DropReason> {
                assert!(self.0.len() < 2, "a callback fails");
                Ok(&mut self.0)
            }
        }
        batch.distribute(&mut Two(Batch::new(pool)));
    }),
    ("take_front_raw", |batch, pool| {
        let mut calls = 0;
        batch.take_front_raw(SENT, |frame, _, _, _| {
            pool.give_raw(frame);
            calls += 1;
            assert!(calls < 3, "a callback fails");
        });
    }),
];

#[test]
fn a_callback_that_panics_has_no_frame_freed_twice() {
    for (name, call) in CALLS {
        let pool = Pool::new(FRAMES, 2048);
        let mut batch = filled(&pool);
        let failed = catch_unwind(AssertUnwindSafe(|| call(&mut batch, &pool)));
        assert!(failed.is_err(), "{name}");
        drop(batch);
        // Those under way are lost with the batch; the others are there.
        let free = drained(&pool, &[]);
        assert!((FRAMES as usize - SENT..=FRAMES as usize).contains(&free), "{name}: {free}");
    }
    // Nor does one that holds the list of free frames end the pool with it.
    let pool = Pool::new(FRAMES, 2048);
    let failed = catch_unwind(AssertUnwindSafe(|| {
        pool.take_raw(4, |_| panic!("a callback fails"));
    }));
    assert!(failed.is_err());
    assert_eq!(drained(&pool, &[]), FRAMES as usize - 4);
}

/// Kilobytes of memory that this process uses.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has a line");
    line.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number")
}

#[test]
fn a_pool_that_is_not_used_takes_no_memory() {
    // 255 MiB.
    let before = resident_kib();
    let pool = Pool::untouched(4096, 65_472);
    let mut packet = pool.alloc().expect("it has frames");
    assert!(packet.set_len(60_000) && packet.bytes().iter().all(|&byte| byte == 0));
    packet.bytes_mut()[59_999] = 7;
    assert!(pool.memory().0.as_ptr().addr().is_multiple_of(4096));
    let used = resident_kib().saturating_sub(before);
    assert!(used < 64 << 10, "{used} KiB");
}
