//! Tests of frames, packets and batches.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. A frame that is claimed was forgotten before, in favor of a pretended ring, and no other handle of it is left.

use crate::frame::*;

fn filled(pool: &Pool, count: usize) -> Box<Batch> {
    let mut batch = Batch::new(pool);
    for i in 0..count {
        let mut packet = pool.alloc().unwrap();
        assert!(packet.set_len(60));
        packet.bytes_mut().fill(u8::try_from(i % 251).unwrap());
        batch.push(packet).unwrap();
    }
    batch
}

#[test]
fn what_goes_on_closes_up() {
    let pool = Pool::new(64, 2048);
    let mut batch = filled(&pool, 10);
    (0..10).for_each(|i| batch.output(i, 3));
    assert_eq!(batch.shared_output(), Some(3));
    for i in [0, 4, 5, 9] {
        batch.discard(i, DropReason::NoRoute);
    }
    batch.meta_mut()[8].paint = 7;
    assert_eq!(batch.shared_output(), Some(3));
    let mut reported = 0;
    batch.close_up(|reason, _| reported += usize::from(reason == DropReason::NoRoute));
    let left: Vec<u8> = (0..batch.len()).map(|i| batch.bytes(i)[0]).collect();
    assert_eq!((reported, &left[..], pool.free()), (4, &[1, 2, 3, 6, 7, 8][..], 58));
    assert_eq!((batch.meta()[5].paint, batch.uniform()), (7, Some(Decision::Output(0))));
    batch.output(1, 1);
    assert_eq!(batch.shared_output(), None, "two outputs");
    batch.output(1, 0);
    let taken = batch.take(2);
    assert_eq!(batch.shared_output(), None, "one is away");
    drop(taken);
    let mut batch = filled(&pool, 2);
    batch.close_up(|_, _| panic!("none is dropped"));
    assert_eq!(batch.len(), 2);
    (0..2).for_each(|i| batch.discard(i, DropReason::NoRoute));
    assert_eq!(batch.shared_output(), None, "none goes on");
}

#[test]
fn frames_return_however_packets_end() {
    let pool = Pool::new(64, 2048);
    drop(pool.alloc());
    drop(filled(&pool, 10));
    let mut batch = filled(&pool, 10);
    assert_eq!(pool.free(), 54);
    batch.discard(3, DropReason::NoRoute);
    batch.output(4, 1);
    let taken = batch.take(5);
    assert_eq!(batch.uniform(), None);
    let (mut zero, mut one) = (Batch::new(&pool), Batch::new(&pool));
    let mut drops = 0;
    batch.scatter(
        |reason, _| {
            assert_eq!(reason, DropReason::NoRoute);
            drops += 1;
        },
        |output, put| put(if output == 0 { &mut zero } else { &mut one }),
    );
    assert_eq!((zero.len(), one.len(), drops), (7, 1, 1));
    assert_eq!(zero.bytes(3)[0], 6, "order is kept across what left");
    assert_eq!((one.bytes(0)[0], taken.bytes()[0]), (4, 5));
    drop((zero, one, taken, batch));
    assert_eq!(pool.free(), 64);
}

#[test]
fn a_hole_in_a_dropped_batch_is_not_freed_twice() {
    let pool = Pool::new(8, 2048);
    let mut batch = filled(&pool, 4);
    let taken = batch.take(2);
    drop(batch);
    assert_eq!(pool.free(), 7);
    drop(taken);
    assert_eq!(pool.free(), 8);
}

#[test]
fn the_kernel_borrows_frames() {
    let pool = Pool::new(8, 2048);
    let mut offsets = Vec::new();
    assert_eq!(pool.take_raw(100, |f| offsets.push(f.offset())), 8);
    assert!(pool.alloc().is_none());
    let mut batch = Batch::new(&pool);
    for &offset in &offsets[..3] {
        // SAFETY: invariant 1.
        let frame = unsafe { pool.claim(offset + 300) }.unwrap();
        batch.push_raw(frame, 256, 60, Meta::default());
    }
    let mut sent = Vec::new();
    batch.take_front_raw(2, |frame, offset, len, _| sent.push((frame, offset, len)));
    assert_eq!((batch.len(), sent[0].1, sent[0].2), (1, offsets[0] + 256, 60));
    pool.give_many(sent.into_iter().map(|s| s.0));
    drop(batch);
    assert_eq!(pool.free(), 3);
    // SAFETY: nothing is claimed past the end.
    assert!(unsafe { pool.claim(8 * 2048) }.is_none());
}

#[test]
#[should_panic(expected = "goes back to its own pool")]
fn a_frame_of_another_pool_is_refused() {
    let (pool, other) = (Pool::new(2, 2048), Pool::new(2, 2048));
    pool.take_raw(1, |frame| other.give_raw(frame));
}

#[test]
fn fronts_move_within_the_frame() {
    let pool = Pool::new(2, 2048);
    let mut packet = pool.alloc().unwrap();
    assert!(packet.set_len(1792) && !packet.set_len(1793));
    assert!(packet.push_front(256) && !packet.push_front(1));
    assert!(packet.pull_front(2048) && !packet.pull_front(1));
    assert!(packet.bytes().is_empty());
}

#[test]
fn a_copy_has_the_bytes_that_were_cut_off() {
    let pool = Pool::new(8, 2048);
    let mut batch = filled(&pool, 1);
    batch.bytes_mut(0)[..3].copy_from_slice(&[1, 2, 3]);
    assert!(batch.pull_front(0, 20));
    let mut copy = batch.copy(0).unwrap();
    assert_eq!((batch.cut_off(0), copy.bytes().len()), (20, 40));
    assert!(copy.push_front(20));
    assert_eq!(&copy.bytes()[..4], &[1, 2, 3, 0]);
    assert!(batch.push_front(0, 120));
    let copy = batch.copy(0).unwrap();
    assert_eq!((batch.cut_off(0), copy.bytes()), (0, batch.bytes(0)));
}
