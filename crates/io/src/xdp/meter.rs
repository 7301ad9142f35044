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
//! destination, and with IPv4 the header checksum.

use std::net::IpAddr;
use std::os::fd::AsFd;

use super::asm::Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use super::asm::Width::{Double, Half, Word};
use super::asm::{Asm, Helper, Insn, When, be16};
use super::bpf::{Link, Map, MapKind, Program};
use super::{Mode, XDP_DROP, XDP_PASS, XdpError};

/// Packets between two readings of the clock.
const STRIDE: i32 = 4096;

/// Offsets in the state.
const ARRIVED: i16 = 0;
const WRONG: i16 = 8;
const FIRST: i16 = 16;
const FIRST_AT: i16 = 24;
const LAST: i16 = 32;
const LAST_AT: i16 = 40;
const STATE_BYTES: usize = 48;

/// How a packet must arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// To which next hop.
    pub to: [u8; 6],
    /// From which output: its MAC, which identifies the port too.
    pub from: [u8; 6],
    /// To which destination.
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
}

impl Meter {
    /// For frames of `len` bytes whose UDP source port is the number of their row in `expected` and
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
        let state = Map::new(MapKind::Array, "meter", 4, 48, 1)?;
        Ok(Self { expected: rows, state, v6, len, ttl })
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
            .update(&0u32.to_ne_bytes(), &[0; STATE_BYTES])
            .map_err(|source| XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of a meter", source })
    }

    /// What arrived so far.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&self) -> Result<Reading, XdpError> {
        let mut state = [0; STATE_BYTES];
        self.state.lookup(&0u32.to_ne_bytes(), &mut state).map_err(|source| XdpError::System {
            call: "bpf(MAP_LOOKUP_ELEM) of a meter",
            source,
        })?;
        let number = |at: i16| {
            let at = usize::try_from(at).expect("an offset");
            u64::from_ne_bytes(state[at..at + 8].try_into().expect("a slice of 8 bytes"))
        };
        Ok(Reading {
            arrived: number(ARRIVED),
            wrong: number(WRONG),
            timed: number(LAST_AT) - number(FIRST_AT),
            ns: number(LAST) - number(FIRST),
        })
    }

    /// The program. R6 is the row, R7 the frame, R8 its end and later all differences, R9 the state.
    fn program(&self, output: [u8; 6]) -> Vec<Insn> {
        let len = i32::try_from(self.len).expect("a frame is short");
        let (kind, udp, ip) = if self.v6 { (0x86dd, 54, 20) } else { (0x0800, 34, 22) };
        // TTL and protocol, or next header and hop limit: neighbors in either order.
        let fate = if self.v6 { [17, self.ttl] } else { [self.ttl, 17] };
        let mut a = Asm::new();
        let (pass, wrong, right, done) = (a.label(), a.label(), a.label(), a.label());
        a.load(Word, R7, R1, 0).load(Word, R8, R1, 4).set_map_value(R9, self.state.as_fd(), 0);

        // Of the family, in a frame of this very length.
        a.set(R1, R7).add(R1, len).branch(R1, When::Gt, R8, pass).branch(R1, When::Lt, R8, pass);
        a.load(Half, R1, R7, 12).branch(R1, When::Ne, be16(kind), pass);

        a.load(Half, R1, R7, udp).to_be16(R1).store(Word, R10, -4, R1);
        a.set_map(R1, self.expected.as_fd()).set(R2, R10).add(R2, -4).call(Helper::MapLookup);
        a.branch(R0, When::Eq, 0, wrong).set(R6, R0);

        // Each comparison leaves its bits in R8.
        let macs = [(Double, 0, 0), (Word, 8, 8)];
        let v4 = [(Word, 30, 12)];
        let v6 = [(Double, 38, 16), (Double, 46, 24)];
        a.set(R8, 0);
        for (width, at, row) in macs.iter().chain(if self.v6 { &v6[..] } else { &v4 }) {
            a.load(*width, R1, R7, *at).load(*width, R2, R6, *row).xor(R1, R2).or(R8, R1);
        }
        // Its output is the one that leads here.
        let own = u32::from_ne_bytes([output[2], output[3], output[4], output[5]]);
        a.load(Word, R1, R7, 8).set64(R2, own.into()).xor(R1, R2).or(R8, R1);
        let fate = u16::from_ne_bytes(fate);
        a.load(Half, R1, R7, ip).set(R2, fate).xor(R1, R2).or(R8, R1);
        if !self.v6 {
            // The ten half words of the header add up to 0xffff; folding words does as well.
            a.set(R1, 0);
            for at in [14, 18, 22, 26, 30] {
                a.load(Word, R2, R7, at).add(R1, R2);
            }
            for (bits, mask) in [(32, 0xffff_ffff), (16, 0xffff), (16, 0xffff)] {
                a.set(R3, R1).shr(R3, bits).set64(R2, mask).and(R1, R2).add(R1, R3);
            }
            a.set64(R2, 0xffff).xor(R1, R2).or(R8, R1);
        }
        a.branch(R8, When::Eq, 0, right);
        a.bind(wrong).set(R1, 1).fetch_add(R9, WRONG, R1);
        a.bind(right);

        a.set(R6, 1).fetch_add(R9, ARRIVED, R6).add(R6, 1);
        a.set(R1, R6).and(R1, STRIDE - 1).branch(R1, When::Ne, 0, done);
        a.call(Helper::TimeNs).store(Double, R9, LAST, R0).store(Double, R9, LAST_AT, R6);
        a.load(Double, R1, R9, FIRST).branch(R1, When::Ne, 0, done);
        a.store(Double, R9, FIRST, R0).store(Double, R9, FIRST_AT, R6);
        a.bind(done).set(R0, XDP_DROP).exit();
        a.bind(pass).set(R0, XDP_PASS).exit();
        a.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::generator::{Generator, udp_frame};
    use super::super::lab;
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
        if !lab::can_bpf() {
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

    /// A pair without a router between: what is sent is what must arrive, at a plausible pace.
    #[test]
    fn traffic_is_timed() {
        lab::in_namespace(|| {
            let (a, b) = lab::veth("a0", "b0", 1);
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
