//! One queue for several workers: what a device with several queues does, done in software.
//!
//! The worker that owns the queue receives. Packets of its own flows it keeps; those of another worker's it copies into
//! a ring to that worker, and what that worker sends comes back by the same ring and leaves by the queue. A flow has one
//! worker, and each ring and the queue keep their order, so the flow keeps its order. Frames that are no IP packets
//! (ARP) are the owner's. Where a ring is full nothing more is received until it has room: the device loses what is
//! too much, as it does before a single worker that is too slow, and one slow worker slows all of its queue.
//!
//! Source: RouteBricks (Dobrescu et al., SOSP 2009) 4.2, which measured what this costs, against a queue for each core.
//! Cost:   a hash a packet; two copies of each packet of other workers, each time; wakeups where a worker sleeps. Some 40 ns
//!         a packet at the owner and 25 ns at the other, where both share a cache.

use std::os::fd::RawFd;

use super::ring::{self, Ring};
use fingerpost_packet::device::{DeviceError, Port, Ports, QueueSet};
use fingerpost_packet::frame::wire::ether::{
    TAG_BYTES, TYPE_IP4, TYPE_IP6, TYPE_SERVICE_VLAN, TYPE_VLAN,
};
use fingerpost_packet::frame::{BATCH, Batch, Pool, flow};

/// Unlike that of graphs, whose choice between equal paths would else follow from the choice of the worker.
const SEED: u64 = 0x7370_7265_6164;

/// Turns in which the owner's end sends what is still in the rings.
const LAST_TURNS: usize = 16;

/// Gives each worker its share of a device: queue `q` goes to worker `q % workers`, where all frames lie in the pool of
/// that number; of fewer queues than workers each is spread over several. `name` is what messages call the device. The
/// ports must close in the opposite order for nothing of what was sent to be lost.
///
/// # Errors
/// No memory to share, or no file descriptors.
///
/// # Panics
/// Without pools.
pub fn share_out<P: Port + 'static>(
    name: &str,
    queues: Vec<P>,
    pools: &[Pool],
) -> Result<Ports, DeviceError> {
    let (count, workers) = (queues.len(), pools.len());
    if count >= workers {
        let mut sets: Vec<QueueSet<P>> = pools.iter().map(|_| QueueSet::default()).collect();
        for (at, port) in queues.into_iter().enumerate() {
            sets[at % workers].push(port);
        }
        return Ok(sets.into_iter().map(|set| Box::new(set) as Box<dyn Port>).collect());
    }
    // Worker `w` shares the queue of worker `w % count`.
    let mut ends = Vec::new();
    for (at, port) in queues.into_iter().enumerate() {
        let sharing = (at..workers).step_by(count).count();
        ends.push(spread(name, Box::new(port), &pools[at], sharing)?.into_iter());
    }
    Ok((0..workers).filter_map(|worker| ends.get_mut(worker % count.max(1))?.next()).collect())
}

/// Frames of its owner's pool that a queue may hold besides its rings, where it is spread over so many workers.
pub const fn frames_held(workers: usize) -> usize {
    workers.saturating_sub(1) * 2 * BATCH
}

/// The ends for so many workers, the first being that of the worker which owns `port` and all frames of `pool`.
fn spread(
    name: &str,
    port: Box<dyn Port>,
    pool: &Pool,
    workers: usize,
) -> Result<Ports, DeviceError> {
    if workers < 2 {
        return Ok(vec![port]);
    }
    let failed = |source| DeviceError::System {
        device: name.to_owned(),
        call: "ring between workers",
        source,
        hint: "",
    };
    let mut others = Vec::new();
    let mut ends: Ports = Vec::new();
    for _ in 1..workers {
        let (near, far) = ring::pair(name, pool.max_len().into()).map_err(failed)?;
        let (to, from) = (Batch::new(pool), Batch::new(pool));
        others.push(Other { ring: near, to, from, gone: false });
        ends.push(Box::new(far));
    }
    let owner = Owner { port, others, came: Batch::new(pool) };
    ends.insert(0, Box::new(owner));
    Ok(ends)
}

/// The end that has the queue.
struct Owner {
    port: Box<dyn Port>,
    others: Vec<Other>,
    /// What was just received; empty between calls.
    came: Box<Batch>,
}

/// Ring to another worker.
struct Other {
    ring: Ring,
    /// Received packets that the ring had no room for.
    to: Box<Batch>,
    /// Packets that the worker sends and the queue had no room for.
    from: Box<Batch>,
    /// The worker has closed its end.
    gone: bool,
}

impl Other {
    /// Passes received packets on; those for nobody are freed.
    fn pass(&mut self) {
        self.gone |= !self.to.is_empty() && self.ring.send(&mut self.to).is_err();
        if self.gone {
            self.to.clear();
        }
    }
}

impl Owner {
    /// Sends what other workers send, and passes on what waits for them. How many packets moved.
    fn carry(&mut self) -> Result<usize, DeviceError> {
        let mut moved = 0;
        for other in &mut self.others {
            if !other.gone {
                match other.ring.recv(&mut other.from) {
                    Ok(count) => moved += count,
                    Err(_) => other.gone = true,
                }
            }
            if !other.from.is_empty() {
                moved += self.port.send(&mut other.from)?;
            }
            other.pass();
        }
        Ok(moved)
    }

    /// Packets wait for room somewhere.
    fn is_behind(&self) -> bool {
        self.others.iter().any(|other| !other.to.is_empty() || !other.from.is_empty())
    }
}

/// Whose a frame is: 0 is the owner.
fn worker_of(frame: &[u8], workers: usize) -> usize {
    let mut at = 12;
    // Two tags at most, as IEEE 802.1ad has them.
    for _ in 0..2 {
        if matches!(kind(frame, at), TYPE_VLAN | TYPE_SERVICE_VLAN) {
            at += TAG_BYTES;
        }
    }
    let packet = frame.get(at + 2..).unwrap_or_default();
    let hash = match kind(frame, at) {
        TYPE_IP4 => flow::of_ip4(SEED, packet),
        TYPE_IP6 => flow::of_ip6(SEED, packet),
        _ => 0,
    };
    // The upper bits decide, without a division.
    usize::try_from((u64::from(hash) * workers as u64) >> 32).unwrap_or_default()
}

fn kind(frame: &[u8], at: usize) -> u16 {
    frame.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |two| u16::from_be_bytes(*two))
}

impl Port for Owner {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        self.carry()?;
        if self.others.iter().any(|other| !other.to.is_empty()) {
            return Ok(0);
        }
        let Self { port, others, came } = self;
        came.set_limit(into.room());
        let received = port.recv(came);
        came.set_limit(BATCH);
        let before = into.len();
        for i in 0..came.len() {
            match worker_of(came.bytes(i), others.len() + 1) {
                0 => came.move_to(i, into),
                other => came.move_to(i, &mut others[other - 1].to),
            }
        }
        came.clear();
        others.iter_mut().for_each(Other::pass);
        received.map(|_| into.len() - before)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        self.port.send(from)
    }

    fn tend(&mut self) -> Result<(), DeviceError> {
        self.port.tend()?;
        self.carry().map(drop)
    }

    /// Nothing where only time helps: the worker then sleeps a moment.
    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        let begin = fds.len();
        if self.is_behind() {
            return;
        }
        self.port.wait_fds(fds);
        let mut end = fds.len();
        if end == begin {
            return;
        }
        for other in self.others.iter().filter(|other| !other.gone) {
            other.ring.wait_fds(fds);
            if fds.len() == end {
                // Something came in the meantime.
                fds.truncate(begin);
                return;
            }
            end = fds.len();
        }
    }

    fn in_rings(&self) -> usize {
        let waiting = self.others.iter().map(|other| other.to.len() + other.from.len());
        self.port.in_rings() + waiting.sum::<usize>()
    }

    fn mode(&self) -> String {
        self.port.mode()
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.port.stats(visit);
    }
}

impl Drop for Owner {
    /// What other workers sent is counted as sent.
    fn drop(&mut self) {
        for _ in 0..LAST_TURNS {
            if !self.carry().is_ok_and(|moved| moved > 0 || self.is_behind()) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use fingerpost_packet::device::memory::{Link, link};
    use fingerpost_packet::testing::{frame_v4, frame_v6};

    /// A worker's end, and its frames.
    struct End {
        port: Box<dyn Port>,
        pool: Pool,
        batch: Box<Batch>,
    }

    impl End {
        fn new(port: Box<dyn Port>, pool: Pool) -> Self {
            Self { port, batch: Batch::new(&pool), pool }
        }

        /// What came, all of it.
        fn came(&mut self) -> Vec<Vec<u8>> {
            let mut frames = Vec::new();
            while self.port.recv(&mut self.batch).unwrap() > 0 {
                frames.extend((0..self.batch.len()).map(|i| self.batch.bytes(i).to_vec()));
                self.batch.clear();
            }
            frames
        }

        /// Sends frames; how many were taken.
        fn send(&mut self, frames: &[Vec<u8>]) -> usize {
            let mut taken = 0;
            for some in frames.chunks(BATCH) {
                let frames = some.iter().map(|frame| &frame[..]);
                self.batch = fingerpost_packet::testing::batch(&self.pool, 0, frames);
                taken += self.port.send(&mut self.batch).unwrap();
                self.batch.clear();
            }
            taken
        }
    }

    /// The far side of the device, and the ends of so many workers.
    fn device(workers: usize, capacity: usize) -> (End, Vec<End>) {
        let mut pools: Vec<Pool> = (0..=workers).map(|_| Pool::new(2048, 4096)).collect();
        let far_pool = pools.pop().unwrap();
        let (near, far): (Link, Link) = link(&pools[0], &far_pool, capacity);
        let ends = share_out("x", vec![near], &pools).unwrap();
        let ends = ends.into_iter().zip(&pools).map(|(port, pool)| End::new(port, pool.clone()));
        let ends = ends.collect();
        (End::new(Box::new(far), far_pool), ends)
    }

    /// Packet `number` of a flow: IPv4 or IPv6, some with one tag or two.
    fn packet(flow: u8, number: u16) -> Vec<u8> {
        let payload = [&[9, flow, 9, 9, 0, 12, 0, 0][..], &number.to_be_bytes(), &[0; 2]].concat();
        let mut frame = match flow % 2 {
            0 => frame_v4(&format!("10.0.0.{flow}"), "192.0.2.1", 64, 17, &payload),
            _ => frame_v6(&format!("2001:db8::{flow}"), "2001:db8:1::1", 64, 17, &payload),
        };
        for _ in 0..flow % 3 {
            frame.splice(12..12, [0x81, 0, 0, 7]);
        }
        frame
    }

    #[test]
    fn a_flow_has_one_worker_and_keeps_its_order() {
        let (mut far, mut ends) = device(3, 4096);
        let flows = 60;
        let mut sent: Vec<Vec<u8>> =
            (0..20).flat_map(|n| (0..flows).map(move |flow| packet(flow, n))).collect();
        let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6], &[0; 28]].concat();
        sent.insert(500, arp.clone());
        sent.insert(700, vec![1; 12]);
        // As long as frames may be.
        for flow in 0..flows {
            let mut long = packet(flow, 20);
            long.resize(3500, 1);
            sent.push(long);
        }
        assert_eq!(far.send(&sent), sent.len());
        let mut came = vec![Vec::new(); 3];
        for _ in 0..20 {
            for (came, end) in came.iter_mut().zip(&mut ends) {
                came.extend(end.came());
            }
        }
        assert!(came[0].contains(&arp) && came[0].contains(&vec![1; 12]));
        let mut by_flow: HashMap<usize, Vec<&Vec<u8>>> = HashMap::new();
        for (worker, came) in came.iter().enumerate() {
            assert!(came.len() > 200, "worker {worker} has {} of {}", came.len(), sent.len());
            // Each worker sees its share in the order in which it was sent.
            let mine: Vec<&Vec<u8>> = sent.iter().filter(|frame| came.contains(frame)).collect();
            assert!(came.iter().eq(mine), "worker {worker}");
            by_flow.entry(worker).or_default().extend(came);
        }
        assert_eq!(by_flow.values().map(Vec::len).sum::<usize>(), sent.len());
        for flow in 0..flows {
            let of = |worker: &usize| by_flow[worker].contains(&&packet(flow, 0));
            let owner = (0..3).find(of).unwrap();
            assert!((0..20).all(|n| by_flow[&owner].contains(&&packet(flow, n))), "flow {flow}");
        }
        assert!(ends.iter().all(|end| end.pool.free() == end.pool.frames()));
    }

    #[test]
    fn what_a_slow_worker_does_not_take_stays_in_the_device() {
        let (mut far, mut ends) = device(2, 4096);
        let sent: Vec<Vec<u8>> =
            (0..100).flat_map(|n| (0..40).map(move |f| packet(f, n))).collect();
        assert_eq!(far.send(&sent), sent.len());
        // The other one's ring is full, and a batch waits before it.
        let mut came = ends[0].came();
        let waits = ends[0].port.in_rings();
        assert!(came.len() < sent.len() && waits > 0, "{} came, {waits} wait", came.len());
        let mut fds = Vec::new();
        ends[0].port.wait_fds(&mut fds);
        assert!(fds.is_empty(), "only time helps");
        for _ in 0..20 {
            came.extend(ends.iter_mut().flat_map(End::came));
        }
        came.sort();
        let mut sent = sent;
        sent.sort();
        assert!(came == sent, "{} of {}", came.len(), sent.len());
    }

    #[test]
    fn all_workers_send_and_nothing_is_lost_at_the_end() {
        let (mut far, mut ends) = device(3, 100);
        let of = |worker: u8| (0..90).map(|n| packet(worker, n)).collect::<Vec<_>>();
        for (worker, end) in (0..).zip(&mut ends) {
            assert_eq!(end.send(&of(worker)), 90);
        }
        // The owner's are sent, others' go when it has a turn, as far as the device takes them.
        assert!(far.came() == of(0));
        ends[0].port.tend().unwrap();
        let first = far.came();
        assert!(first == [of(1), of(2)[..10].to_vec()].concat(), "{} frames", first.len());
        assert_eq!(ends[0].port.in_rings(), 80);
        let more = of(1)[..20].to_vec();
        assert_eq!(ends[1].send(&more), 20);
        // In the opposite order, as whoever ends the workers does.
        while ends.len() > 1 {
            drop(ends.pop());
        }
        let pool = ends[0].pool.clone();
        drop(ends);
        let last = far.came();
        assert!(last == [more, of(2)[10..].to_vec()].concat(), "{} frames", last.len());
        assert_eq!(pool.free(), pool.frames());
    }

    #[test]
    fn a_worker_that_is_gone_takes_its_packets_along() {
        let (mut far, mut ends) = device(2, 4096);
        drop(ends.pop());
        let sent: Vec<Vec<u8>> = (0..50).flat_map(|n| (0..40).map(move |f| packet(f, n))).collect();
        assert_eq!(far.send(&sent), sent.len());
        let came = ends[0].came();
        assert!((500..1500).contains(&came.len()), "{} of {}", came.len(), sent.len());
        assert_eq!(ends[0].pool.free(), ends[0].pool.frames());

        let (_far, mut ends) = device(2, 16);
        drop(ends.remove(0));
        let end = &mut ends[0];
        let told = (0..1000).find_map(|_| end.port.recv(&mut end.batch).err()).unwrap();
        assert!(told.to_string().starts_with("x: the other side is gone"), "{told}");
    }
}
