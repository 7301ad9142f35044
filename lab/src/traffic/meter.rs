//! Where traffic that is measured ends: programs on the outputs' far ends that compare every packet
//! with what must arrive, take the time now and then, and drop it. Nothing of it leaves the kernel.
//!
//! Shape: what must arrive by the packet's number (its UDP source port) in an array map, 16 bytes a
//!        packet of IPv4 and 32 of IPv6; one state, so one CPU at a time may deliver.
//! Cost:  some 20 ns a packet, and a clock read every 4,096th: 40 ns for each packet would be
//!        more than an XDP hop is worth. The first and the last reading count, so what a call of the
//!        generator costs before its first packet does not.
//!
//! Compared are the MACs (so the next hop and the port), the TTL or hop limit, the protocol, the
//! destination, and with IPv4 the header checksum. Of internal frames of a cluster ([`Meter::internal`]) all 18 bytes before
//! the packet.

use std::net::IpAddr;
use std::os::fd::AsFd;

use fingerpost_io::xdp::bpf::{Link, Map, MapKind, Program};
use fingerpost_io::xdp::load::{self, Bound, Insn};
use fingerpost_io::xdp::{Mode, XdpError};
use fingerpost_packet::frame::wire::ether::{TYPE_IP4, TYPE_IP6};

/// Bytes of the state: words of 8 bytes (`meter.c`).
const STATE_BYTES: u32 = 48;

/// How a packet must arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Link address of its next hop.
    pub to: [u8; 6],
    /// Link address of its output, which identifies the port too.
    pub from: [u8; 6],
    /// Destination address.
    pub destination: IpAddr,
}

/// What arrived since the last [`Meter::reset`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// Packets.
    pub arrived: u64,
    /// Packets that differ from what must arrive.
    pub wrong: u64,
    /// Packets between the first and the last reading of the clock.
    pub timed: u64,
    /// Nanoseconds between them.
    pub ns: u64,
}

impl Reading {
    /// Nanoseconds a packet; `None` when the clock was read fewer than two times.
    #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    pub fn ns_per_packet(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.ns as f64 / self.timed as f64)
    }
}

/// A meter, for packets of one family and length.
#[derive(Debug)]
pub struct Meter {
    expected: Map,
    state: Map,
    v6: bool,
    len: usize,
    ttl: u8,
    /// EtherType, and what stands between it and the packet: an adjacency index and a class.
    internal: Option<(u16, [u8; 4])>,
}

impl Meter {
    /// A meter of frames of `len` bytes whose UDP source port is the number of their row in `expected` and
    /// that must arrive with that TTL or hop limit.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// When there are no rows, or more than a port can number, or of two families, or frames too short
    /// for them.
    pub fn new(expected: &[Expected], len: usize, ttl: u8) -> Result<Self, XdpError> {
        let v6 = expected.first().expect("at least one row").destination.is_ipv6();
        assert!(len >= if v6 { 62 } else { 42 }, "{len} bytes hold no UDP header");
        let count = u32::try_from(expected.len()).ok().filter(|&n| n <= 1 << 16);
        let count = count.expect("a port numbers 65,536 rows");
        let bytes = if v6 { 32 } else { 16 };
        let rows = Map::new(MapKind::Array, "expected", 4, bytes, count)?;
        for (number, row) in (0..count).zip(expected) {
            let mut value = [row.to, row.from].concat();
            match row.destination {
                IpAddr::V4(addr) => value.extend(addr.octets()),
                IpAddr::V6(addr) => value.extend([&[0; 4][..], &addr.octets()].concat()),
            }
            rows.update(&number.to_ne_bytes(), &value).map_err(|source| XdpError::System {
                call: "bpf(MAP_UPDATE_ELEM) of what is expected",
                source,
            })?;
        }
        let state = Map::new(MapKind::Array, "meter", 4, STATE_BYTES, 1)?;
        Ok(Self { expected: rows, state, v6, len, ttl, internal: None })
    }

    /// A meter of internal frames of a cluster with this EtherType, whose packets stand behind these 4 bytes more. In the
    /// place of link addresses rows have what identifies the nodes.
    #[must_use]
    pub fn internal(self, ethertype: u16, index: [u8; 4]) -> Self {
        assert!(self.len >= if self.v6 { 66 } else { 46 }, "{} bytes hold no UDP header", self.len);
        Self { internal: Some((ethertype, index)), ..self }
    }

    /// Attaches it in native mode to an interface of the present network namespace, as the far end of
    /// the output with that MAC. Packets that others sent pass on to the kernel.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn attach(&self, ifindex: u32, output: [u8; 6]) -> Result<Link, XdpError> {
        self.load(output)?.attach(ifindex, Mode::Native)
    }

    /// Its program for the far end of the output with that MAC, for who has another one before it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn load(&self, output: [u8; 6]) -> Result<Program, XdpError> {
        Program::load("meter", &self.program(output))
    }

    /// Begins anew.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn reset(&self) -> Result<(), XdpError> {
        self.state
            .update(&0u32.to_ne_bytes(), &[0; STATE_BYTES as usize])
            .map_err(|source| XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of a meter", source })
    }

    /// What arrived so far.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&self) -> Result<Reading, XdpError> {
        let mut state = [0; STATE_BYTES as usize];
        self.state.lookup(&0u32.to_ne_bytes(), &mut state).map_err(|source| XdpError::System {
            call: "bpf(MAP_LOOKUP_ELEM) of a meter",
            source,
        })?;
        let word = |word: &[u8; 8]| u64::from_ne_bytes(*word);
        let mut words = state.as_chunks().0.iter().map(word);
        let [arrived, wrong, first, first_at, last, last_at] =
            std::array::from_fn(|_| words.next().unwrap_or_default());
        Ok(Reading { arrived, wrong, timed: last_at - first_at, ns: last - first })
    }

    /// The program: `meter.c`.
    fn program(&self, output: [u8; 6]) -> Vec<Insn> {
        // TTL and protocol, or next header and hop limit: neighbors in either order.
        let fate = if self.v6 { [17, self.ttl] } else { [self.ttl, 17] };
        let own = u32::from_ne_bytes([output[2], output[3], output[4], output[5]]);
        let plain = (if self.v6 { TYPE_IP6 } else { TYPE_IP4 }, [0; 4]);
        let (ethertype, index) = self.internal.unwrap_or(plain);
        load::link(include_bytes!("meter.o"), "meter", |name| {
            Some(match name {
                "extra" => Bound::Number(if self.internal.is_some() { 4 } else { 0 }),
                "index" => Bound::Number(u32::from_ne_bytes(index).into()),
                "type" => Bound::Number(ethertype.to_be().into()),
                "state" => Bound::Memory(self.state.as_fd()),
                "expected" => Bound::Map(self.expected.as_fd()),
                "v6" => Bound::Number(self.v6.into()),
                "len" => Bound::Number(self.len as u64),
                "output" => Bound::Number(own.into()),
                "fate" => Bound::Number(u16::from_ne_bytes(fate).into()),
                _ => return None,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use fingerpost_io::xdp::{XDP_DROP, XDP_PASS, testing};

    use super::super::generator::{Generator, udp_frame};
    use super::*;

    const OUTPUTS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4]];

    fn row(number: u16, v6: bool) -> Expected {
        let [a, b] = number.to_be_bytes();
        let destination = if v6 {
            IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number])
        } else {
            IpAddr::from([10, 9, a, b])
        };
        Expected { to: [2, 4, 0, 0, a, b], from: OUTPUTS[0], destination }
    }

    /// The frame as it arrives undamaged.
    fn frame(number: u16, v6: bool) -> Vec<u8> {
        let row = row(number, v6);
        let source = if v6 { "fd00::1" } else { "10.0.0.1" }.parse().unwrap();
        udp_frame([row.to, row.from], [source, row.destination], [number, 9], 63, 80)
    }

    #[test]
    fn every_kind_of_damage_is_counted() {
        if !testing::can_bpf() {
            return;
        }
        for v6 in [false, true] {
            let rows: Vec<_> = (0..300).map(|n| row(n, v6)).collect();
            let meter = Meter::new(&rows, 80, 63).unwrap();
            let program = Program::load("meter", &meter.program(OUTPUTS[0])).unwrap();
            let other = Program::load("meter", &meter.program(OUTPUTS[1])).unwrap();
            let action = |frame: &[u8]| program.test(frame).unwrap().action.cast_signed();
            for number in [0, 1, 255, 256, 299] {
                assert_eq!(action(&frame(number, v6)), XDP_DROP);
            }
            let mut reading = meter.read().unwrap();
            assert_eq!((reading.arrived, reading.wrong), (5, 0));
            assert_eq!(reading.ns_per_packet(), None);
            // MACs, what follows them, the number, each byte of the destination.
            let (ip, udp, addr) = if v6 { (20, 54, 38..54) } else { (22, 34, 30..34) };
            let bytes = (0..12).chain([ip, ip + 1, udp, udp + 1]).chain(addr);
            let bytes: Vec<_> = bytes.chain(if v6 { 0..0 } else { 14..20 }).collect();
            for (bad, &at) in bytes.iter().enumerate() {
                let mut frame = frame(77, v6);
                frame[at] ^= 0x40;
                assert_eq!(action(&frame), XDP_DROP);
                reading = meter.read().unwrap();
                assert_eq!(reading.wrong, bad as u64 + 1, "IPv6 {v6}, byte {at}");
            }
            other.test(&frame(77, v6)).unwrap();
            reading = meter.read().unwrap();
            assert_eq!(reading.wrong, bytes.len() as u64 + 1, "by another output");
            assert_eq!(reading.arrived, reading.wrong + 5);
            let good = frame(77, v6);
            assert_eq!(action(&good[..79]), XDP_PASS, "shorter");
            assert_eq!(action(&[&good[..], &[0]].concat()), XDP_PASS, "longer");
            assert_eq!(action(&frame(77, !v6)), XDP_PASS, "the other family");
            assert_eq!(meter.read().unwrap(), reading, "those are not its");
            meter.reset().unwrap();
            assert_eq!(meter.read().unwrap(), Reading::default());
        }
    }

    #[test]
    fn internal_frames_are_compared_too() {
        if !testing::can_bpf() {
            return;
        }
        let rows: Vec<_> = (0..10).map(|n| row(n, false)).collect();
        let meter = Meter::new(&rows, 84, 63).unwrap().internal(0x88b5, [0, 0, 1, 0]);
        let program = Program::load("meter", &meter.program(OUTPUTS[0])).unwrap();
        let action = |frame: &[u8]| program.test(frame).unwrap().action.cast_signed();
        let plain = frame(7, false);
        let good = [&plain[..12], &[0x88, 0xb5, 0, 0, 1, 0], &plain[14..]].concat();
        assert_eq!((action(&good), action(&plain)), (XDP_DROP, XDP_PASS));
        assert_eq!(meter.read().unwrap(), Reading { arrived: 1, ..Reading::default() });
        let bad: Vec<_> = (0..12).chain(14..24).chain([26, 27, 38, 39]).chain(34..38).collect();
        for (count, &at) in (1..).zip(&bad) {
            let mut frame = good.clone();
            frame[at] ^= 0x40;
            assert_eq!(action(&frame), XDP_DROP);
            assert_eq!(meter.read().unwrap().wrong, count, "byte {at}");
        }
        assert_eq!(action(&[&good[..13], &[0xb6], &good[14..]].concat()), XDP_PASS);
    }

    /// A pair without a router between: what is sent is what must arrive, at a plausible pace.
    #[test]
    fn traffic_is_timed() {
        testing::in_namespace(|| {
            let (a, b) = testing::veth("a0", "b0", 1);
            let rows: Vec<_> = (0..1000).map(|n| row(n, false)).collect();
            let templates: Vec<_> = (0..1000).map(|n| frame(n, false)).collect();
            let meter = Meter::new(&rows, 80, 63).unwrap();
            let link = meter.attach(b, OUTPUTS[0]).unwrap();
            let mut generator = Generator::plain(&templates, a).unwrap();
            for _ in 0..2 {
                meter.reset().unwrap();
                let offered = generator.run(20_000).unwrap();
                let reading = meter.read().unwrap();
                assert_eq!((reading.arrived, reading.wrong), (offered, 0));
                assert_eq!(reading.timed, 3 * 4096, "of 4, first and last included");
                let ns = reading.ns_per_packet().unwrap();
                assert!((10.0..1e6).contains(&ns), "{ns} ns a packet");
            }
            drop(link);
        });
    }
}
