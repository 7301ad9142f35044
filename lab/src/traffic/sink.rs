//! Where test traffic ends: a program that counts what a [`Generator`](super::Generator) made, lets a
//! random share through to be checked, and drops the rest. All else passes to the kernel.
//!
//! Cost: some 40 ns a packet counted, in the kernel, on the CPU that delivers it; the sampled ones
//! cost a copy besides. What a far end with an ordinary IP stack would do costs the sender five times
//! as much: benches must end here.

use std::os::fd::AsFd;

use fingerpost_io::afxdp::{self, AfxdpPort, Spec};
use fingerpost_io::interface;
use fingerpost_io::xdp::bpf::{Link, Map, MapKind, Program};
use fingerpost_io::xdp::load::{self, Bound, Insn};
use fingerpost_io::xdp::{Mode, XdpError};
use fingerpost_packet::device::{DeviceError, Port};
use fingerpost_packet::frame::{Batch, Pool};

use super::generator::MOST_BYTES;

/// Default share of the packets that is checked: 1 in 32.
pub const SAMPLE: u32 = 32;

/// Entries of the receive rings, of all queues together: with 1 in 32 of 1 Mpps they hold what comes
/// in 100 ms, and a checker that shares its CPU with the traffic is away for long.
const RINGS: u32 = 4096;
const QUEUES: u32 = 1024;

/// Counter numbers (`sink.c`).
const ARRIVED: u32 = 0;
const SAMPLED: u32 = 1;

/// A sink on one interface, until it is dropped.
#[derive(Debug)]
pub struct Sink {
    // Dropped in this order.
    batch: Box<Batch>,
    ports: Vec<AfxdpPort>,
    link: Link,
    counts: Map,
}

impl Sink {
    /// Attaches one to an interface of the present network namespace, on all of its queues. It counts
    /// UDP packets in frames of exactly `frame_len` bytes, and lets 1 in `sample` of them through to
    /// [`Sink::poll`], chosen at random: a fixed stride would meet the same templates for ever.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// When `sample` is not a power of two, or the frames are longer than a generator's.
    pub fn attach(ifindex: u32, frame_len: usize, sample: u32) -> Result<Self, DeviceError> {
        assert!(sample.is_power_of_two() && frame_len <= MOST_BYTES);
        let name = &interface::name_of(ifindex);
        let queues = interface::queues(name).map_err(|source| DeviceError::System {
            device: name.clone(),
            call: "ioctl(ETHTOOL_GCHANNELS)",
            source,
            hint: "",
        })?;
        let counts = Map::new(MapKind::PerCpuArray, "sink", 4, 8, 2)?;
        let sockets = Map::new(MapKind::XskMap, "sockets", 4, 4, QUEUES)?;
        let code = program(&counts, &sockets, frame_len, sample);
        let program = Program::load("sink", &code)?;
        let link = program.attach_best(ifindex)?;
        let ring = (RINGS / queues).max(512).next_power_of_two();
        let frames = queues * afxdp::frames_needed(ring)
            + u32::try_from(fingerpost_packet::frame::BATCH).expect("256");
        let pool = Pool::new(frames, 2048);
        let mut ports: Vec<AfxdpPort> = Vec::new();
        for queue in 0..queues {
            let port = afxdp::open(&Spec {
                name,
                ifindex,
                queue,
                pool: &pool,
                shared: ports.first(),
                ring,
                attached: &link,
                zero_copy: false,
            })?;
            let fd = std::os::fd::AsRawFd::as_raw_fd(&port.as_fd());
            sockets.update(&queue.to_ne_bytes(), &fd.to_ne_bytes()).map_err(|source| {
                XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of sockets", source }
            })?;
            ports.push(port);
        }
        Ok(Self { batch: Batch::new(&pool), ports, link, counts })
    }

    /// Where its program runs.
    pub fn mode(&self) -> Mode {
        self.link.mode()
    }

    /// Packets that arrived so far.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn arrived(&self) -> Result<u64, XdpError> {
        self.count(ARRIVED)
    }

    /// Arrived packets that were let through to be checked.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn sampled(&self) -> Result<u64, XdpError> {
        self.count(SAMPLED)
    }

    /// Shows each packet let through since the last call, in order a queue, and returns how many.
    /// Called too seldom it misses some (the rings hold 4,096), which changes no count.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn poll(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<usize, DeviceError> {
        let mut count = 0;
        for port in &mut self.ports {
            while port.recv(&mut self.batch)? > 0 {
                count += self.batch.len();
                (0..self.batch.len()).for_each(|i| each(self.batch.bytes(i)));
                self.batch.clear();
            }
        }
        Ok(count)
    }

    fn count(&self, index: u32) -> Result<u64, XdpError> {
        self.counts
            .sum(index)
            .map_err(|source| XdpError::System { call: "bpf(MAP_LOOKUP_ELEM) of counts", source })
    }
}

/// The program: `sink.c`.
fn program(counts: &Map, sockets: &Map, frame_len: usize, sample: u32) -> Vec<Insn> {
    load::link(include_bytes!("sink.o"), "sink", |name| {
        Some(match name {
            "counts" => Bound::Map(counts.as_fd()),
            "sockets" => Bound::Map(sockets.as_fd()),
            "len" => Bound::Number(frame_len as u64),
            "others" => Bound::Number(u64::from(sample) - 1),
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use fingerpost_io::xdp::{XDP_DROP, XDP_PASS, testing};

    use super::super::generator::{Generator, Tail, udp_frame};
    use super::*;

    fn templates(to: [u8; 6], count: u16) -> Vec<Vec<u8>> {
        (0..count)
            .map(|i| {
                let addresses = if i % 2 == 0 {
                    ["10.0.0.1".to_string(), format!("10.9.{}.{}", i >> 8, i & 0xff)]
                } else {
                    ["fd00::1".to_string(), format!("fd00:9::{i:x}")]
                };
                let addresses = addresses.map(|a| a.parse().unwrap());
                udp_frame([to, [2, 0, 0, 0, 0, 9]], addresses, [i, 9], 64, 82)
            })
            .collect()
    }

    /// From one end of a pair to the other: all arrive, the sample is what was sent, in order.
    #[test]
    fn what_is_generated_arrives() {
        testing::in_namespace(|| {
            // The queue is that of the sending core, and order is kept in a queue.
            crate::cores::pin(0);
            let (a, b) = testing::veth("a0", "b0", 2);
            let templates = templates(testing::mac("b0"), 1000);
            let mut sink = Sink::attach(b, 82, 32).unwrap();
            assert_eq!(sink.mode(), Mode::Native);
            let mut generator = Generator::new(&templates, a).unwrap();
            let (mut last, mut checked, mut offered) = (None, 0u64, 0);
            let mut seen: HashMap<u32, u32> = HashMap::new();
            // In parts, so that the ring of the sample does not overflow.
            for _ in 0..8 {
                offered += generator.run(10_000).unwrap();
                sink.poll(&mut |frame| {
                    let tail = Tail::of(frame).expect("a tail");
                    let end = frame.len() - 16;
                    assert_eq!(frame[..end], templates[tail.template as usize][..end]);
                    assert_eq!(tail.template, tail.sequence % 1000);
                    assert!(last < Some(tail.sequence), "{last:?} before {}", tail.sequence);
                    last = Some(tail.sequence);
                    *seen.entry(tail.template).or_default() += 1;
                    checked += 1;
                })
                .unwrap();
            }
            assert_eq!((offered, generator.offered().unwrap()), (80_000, 80_000));
            assert_eq!(sink.arrived().unwrap(), 80_000);
            assert_eq!(sink.sampled().unwrap(), checked);
            // 2,500 expected, with a standard deviation of 49.
            assert!((2_200..2_800).contains(&checked), "{checked} of 80000");
            assert!(seen.len() > 800, "{} of 1000 templates", seen.len());
        });
    }

    #[test]
    fn other_frames_are_the_kernels() {
        if !testing::can_bpf() {
            return;
        }
        let counts = Map::new(MapKind::PerCpuArray, "sink", 4, 8, 2).unwrap();
        let sockets = Map::new(MapKind::XskMap, "sockets", 4, 4, 8).unwrap();
        let program = Program::load("sink", &program(&counts, &sockets, 82, 1)).unwrap();
        let action = |frame: &[u8]| program.test(frame).unwrap().action.cast_signed();
        for good in templates([1; 6], 2) {
            assert_eq!(action(&good), XDP_DROP, "no socket");
            let mut bad = good.clone();
            bad[if good[12] == 8 { 23 } else { 20 }] = 58;
            assert_eq!(action(&bad), XDP_PASS, "not UDP");
            assert_eq!(action(&good[..81]), XDP_PASS, "shorter");
            assert_eq!(action(&[&good[..], &[0]].concat()), XDP_PASS, "longer");
            let mut bad = good.clone();
            bad[13] = 6;
            assert_eq!(action(&bad), XDP_PASS, "not IP");
        }
        assert_eq!((counts.sum(0).unwrap(), counts.sum(1).unwrap()), (2, 0));
    }
}
