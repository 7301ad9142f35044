//! Traffic at the kernel's own pace: a program that turns recycled pages into packets and redirects
//! them into an interface, for the demo and the tests. Faster than any router behind it.
//!
//! Shape: templates in an array map, handed out in turn; a counter; an interface to redirect to. Words
//!        that all templates share are constants of the program: what is measured behind it should
//!        not have to share the caches with more than must be.
//! Cost:  0.2 to 0.3 us a packet, and 25 ms a call of [`Generator::run`]; a turn in which none is due 0.1 us.
//!
//! A [stamped](Generator::stamped) one keeps a pace: the kernel runs the program over and over, and it sends when a
//! packet is due. Its packets end in a [`Stamp`] instead.
//!
//! Each packet ends in a [`Tail`], unless the generator is a [plain](Generator::plain) one: a sequence number and the
//! number of its template, each followed by its complement. A number and its complement, at even offsets, add up to
//! 0xffff in every 16-bit word, which is zero in ones' complement arithmetic: so the UDP checksum that holds for a
//! tail of zeros holds for every tail, and nothing has to be computed a packet.
//!
//! Traps: the kernel recycles pages as the last receiver left them, so every byte is written anew for
//! each packet. A redirect into a veth arrives only if its **peer** has an XDP program or `gro on`;
//! otherwise frames vanish without a count. More than 64 frames a batch overrun a veth's ring.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::asm::Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use super::asm::Width::{Double, Half, Word};
use super::asm::{Asm, Helper, Insn, When};
use super::bpf::{Map, MapKind, Program};
use super::{XDP_ABORTED, XDP_DROP, XdpError};

/// Longest packet: the program copies it word by word.
pub const MOST_BYTES: usize = 96;

/// Bytes of a [`Tail`].
pub const TAIL_BYTES: usize = 16;

/// Packets a call should have at least, so that its fixed cost does not show.
pub const WORTHWHILE: u32 = 1 << 18;

/// Bytes of a [`Stamp`].
pub const STAMP_BYTES: usize = 12;

/// Frames the kernel hands on at a time.
const BATCH: u32 = 64;

/// Frames the kernel hands on at a time where packets are stamped: those of a batch leave together, so that the first
/// one waits for the last.
const STAMPED_BATCH: u32 = 16;

/// How much of what was due is sent late, after the generator had no CPU: more at once than a ring holds would be
/// lost through no fault of who receives it.
const CATCH_UP_NS: i32 = 100_000;

/// Offsets in the program's state.
const NEXT: i16 = 0;
const SEQUENCE: i16 = 4;
const OFFERED: i16 = 8;
const INTERVAL: i16 = 16;
const DUE: i16 = 24;
const FIRST: i16 = 32;
const LAST: i16 = 40;
const STATE_BYTES: u32 = 48;

/// Last 16 bytes of each packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// Counts the packets of a generator from 0, modulo 2^32.
    pub sequence: u32,
    /// Which template it was made of.
    pub template: u32,
}

impl Tail {
    /// Reads it back from a frame; `None` when the complements do not fit.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let tail = frame.last_chunk::<TAIL_BYTES>()?;
        let word =
            |at: usize| u32::from_be_bytes([tail[at], tail[at + 1], tail[at + 2], tail[at + 3]]);
        (word(0) == !word(4) && word(8) == !word(12))
            .then(|| Self { sequence: word(0), template: word(8) })
    }

    /// Writes it over the end of a frame.
    ///
    /// # Panics
    /// When the frame is shorter than a tail.
    pub fn write(self, frame: &mut [u8]) {
        let tail = frame.last_chunk_mut::<TAIL_BYTES>().expect("a template holds a tail");
        let words = [self.sequence, !self.sequence, self.template, !self.template];
        for (to, word) in tail.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
    }
}

/// Last 12 bytes of each packet of a stamped generator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// When it was made, by the kernel's monotonic clock.
    pub ns: u64,
    /// Counts the packets of a generator, modulo 2^32.
    pub number: u32,
}

impl Stamp {
    /// Reads it back from a frame; `None` when that is too short.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (number, rest) = (frame.last_chunk()?, frame.get(..frame.len() - 4)?);
        Some(Self {
            ns: u64::from_ne_bytes(*rest.last_chunk()?),
            number: u32::from_ne_bytes(*number),
        })
    }
}

/// What a stamped generator sent since its pace was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// Nanoseconds from the first to the last.
    pub ns: u64,
}

/// A generator. It may be moved to another network namespace than that of its interface.
#[derive(Debug)]
pub struct Generator {
    program: Program,
    state: Map,
    frame: Vec<u8>,
    batch: u32,
}

impl Generator {
    /// Sends `templates` in turn into an interface of the present network namespace. They are whole
    /// frames of one even length, at most [`MOST_BYTES`], the last [`TAIL_BYTES`] of them zero
    /// (see [`udp_frame`]).
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// When there are no templates, or they are not as described.
    pub fn new(templates: &[Vec<u8>], ifindex: u32) -> Result<Self, XdpError> {
        let len = templates.first().expect("at least one template").len();
        assert!(len >= 14 + TAIL_BYTES);
        let tailed = (0u32..).zip(templates).map(|(number, template)| {
            assert!(template[len - TAIL_BYTES..].iter().all(|&b| b == 0), "tail of {number}");
            let mut template = template.clone();
            Tail { sequence: 0, template: number }.write(&mut template);
            template
        });
        Self::made(&tailed.collect::<Vec<_>>(), ifindex, Ending::Tail)
    }

    /// The same without tails: what is sent are the templates as they are, of any even length from an
    /// Ethernet header on.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// When there are no templates, or they are not of one such length.
    pub fn plain(templates: &[Vec<u8>], ifindex: u32) -> Result<Self, XdpError> {
        Self::made(templates, ifindex, Ending::Template)
    }

    /// The same with a [`Stamp`] in the last [`STAMP_BYTES`] of each packet, which no checksum may cover.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// As [`Generator::plain`].
    pub fn stamped(templates: &[Vec<u8>], ifindex: u32) -> Result<Self, XdpError> {
        Self::made(templates, ifindex, Ending::Stamp)
    }

    fn made(templates: &[Vec<u8>], ifindex: u32, ending: Ending) -> Result<Self, XdpError> {
        let device = Map::new(MapKind::DevMap, "device", 4, 4, 1)?;
        device.update(&0u32.to_ne_bytes(), &ifindex.to_ne_bytes()).map_err(|source| {
            XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of the interface", source }
        })?;
        let store = Templates::new(templates)?;
        let state = Map::new(MapKind::Array, "generator", 4, STATE_BYTES, 1)?;
        let code = program(&store, &state, ending, &End::Device(&device));
        let program = Program::load("generator", &code)?;
        let batch = if ending == Ending::Stamp { STAMPED_BATCH } else { BATCH };
        Ok(Self { program, state, frame: templates[0].clone(), batch })
    }

    /// Sends about `count` packets as fast as they can be made, from the calling thread and its CPU;
    /// fewer when a signal arrives. Use [`WORTHWHILE`] or more at a time. Whether the interface took
    /// them all, it does not tell.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn run(&mut self, count: u32) -> Result<u64, XdpError> {
        let before = self.offered()?;
        self.program.run_live(&self.frame, count, self.batch)?;
        Ok(self.offered()? - before)
    }

    /// Packets offered to the interface so far.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn offered(&self) -> Result<u64, XdpError> {
        Ok(number_at(&self.read()?, OFFERED))
    }

    /// Of a stamped generator: from now on a packet every `interval_ns` at most, and in [`Generator::run`] fewer than
    /// asked for, since it counts the turns. 0 sends in each turn. What was sent is counted from here.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_pace(&mut self, interval_ns: u64) -> Result<(), XdpError> {
        let mut state = self.read()?;
        for (at, value) in [(OFFERED, 0), (INTERVAL, interval_ns), (DUE, 0), (FIRST, 0), (LAST, 0)]
        {
            let at = usize::try_from(at).expect("an offset");
            state[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        self.state
            .update(&0u32.to_ne_bytes(), &state)
            .map_err(|source| XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of a pace", source })
    }

    /// What a stamped generator sent since its pace was set.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn sent(&self) -> Result<Sent, XdpError> {
        let state = self.read()?;
        let ns = number_at(&state, LAST) - number_at(&state, FIRST);
        Ok(Sent { packets: number_at(&state, OFFERED), ns })
    }

    fn read(&self) -> Result<[u8; STATE_BYTES as usize], XdpError> {
        let mut state = [0; STATE_BYTES as usize];
        self.state
            .lookup(&0u32.to_ne_bytes(), &mut state)
            .map_err(|source| XdpError::System { call: "bpf(MAP_LOOKUP_ELEM)", source })?;
        Ok(state)
    }
}

fn number_at(state: &[u8; STATE_BYTES as usize], at: i16) -> u64 {
    let at = usize::try_from(at).expect("an offset");
    u64::from_ne_bytes(state[at..at + 8].try_into().expect("a slice of 8 bytes"))
}

/// A program on all templates in turn, without a device on either side: what it costs by itself.
#[derive(Debug)]
pub struct Feeder {
    /// The program, and one that does nothing; each with the map that holds it.
    feeds: [(Program, Map); 2],
    frame: Vec<u8>,
}

impl Feeder {
    /// For a program that takes such frames; see [`Generator::plain`].
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// When there are no templates, or they are not of one even length.
    pub fn new(templates: &[Vec<u8>], program: &Program) -> Result<Self, XdpError> {
        let store = Templates::new(templates)?;
        let mut a = Asm::new();
        a.set(R0, XDP_ABORTED).exit();
        let nothing = Program::load("nothing", &a.finish())?;
        let feed = |target: &Program| {
            let targets = Map::new(MapKind::ProgArray, "target", 4, 4, 1)?;
            let fd = target.as_fd().as_raw_fd();
            targets.update(&0u32.to_ne_bytes(), &fd.to_ne_bytes()).map_err(|source| {
                XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of a program", source }
            })?;
            let state = Map::new(MapKind::Array, "generator", 4, STATE_BYTES, 1)?;
            let code = self::program(&store, &state, Ending::Template, &End::Program(&targets));
            // The kernel empties a map of programs when its last descriptor outside programs closes.
            Ok::<_, XdpError>((Program::load("feeder", &code)?, targets))
        };
        let feeds = [feed(program)?, feed(&nothing)?];
        Ok(Self { feeds, frame: templates[0].clone() })
    }

    /// Nanoseconds that a frame takes in the program, in the mean of `count`: what the feeding costs is
    /// measured as well and taken off.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn time(&self, count: u32) -> Result<f64, XdpError> {
        let mut took = [0; 2];
        for (took, (feed, _)) in took.iter_mut().zip(&self.feeds) {
            *took = feed.time(&self.frame, count)?;
        }
        Ok(f64::from(took[0]) - f64::from(took[1]))
    }
}

/// The templates, as the program reads them.
struct Templates {
    store: Map,
    pieces: Vec<Piece>,
    len: usize,
}

impl Templates {
    fn new(templates: &[Vec<u8>]) -> Result<Self, XdpError> {
        let len = templates.first().expect("at least one template").len();
        assert!(len.is_multiple_of(2) && (14..=MOST_BYTES).contains(&len));
        let count = u32::try_from(templates.len()).expect("templates are counted in 32 bits");
        let (pieces, stride) = pieces(templates);
        let store = Map::new(MapKind::Array, "templates", 4, stride, count)?;
        let mut value = vec![0; stride as usize];
        for (number, template) in (0..count).zip(templates) {
            for piece in &pieces {
                if let Bytes::Stored(at) = piece.bytes {
                    value[at..at + piece.len].copy_from_slice(piece.of(template));
                }
            }
            store.update(&number.to_ne_bytes(), &value).map_err(|source| XdpError::System {
                call: "bpf(MAP_UPDATE_ELEM) of templates",
                source,
            })?;
        }
        Ok(Self { store, pieces, len })
    }
}

/// Where a frame goes when it is made.
enum End<'a> {
    /// Into the only interface of this map.
    Device(&'a Map),
    /// Through the only program of this map.
    Program(&'a Map),
}

/// On the program's stack: the time.
const NOW: i16 = -16;

/// What a packet ends in.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    /// What its template ends in.
    Template,
    Tail,
    Stamp,
}

/// One store of the program: `len` (8, 4 or 2) bytes of the frame.
struct Piece {
    from: usize,
    len: usize,
    bytes: Bytes,
}

/// Where the bytes of a piece are.
enum Bytes {
    /// Bytes that are equal in all templates.
    Constant(u64),
    /// In the template's value of the map, from this offset.
    Stored(usize),
}

impl Piece {
    fn of<'a>(&self, template: &'a [u8]) -> &'a [u8] {
        &template[self.from..self.from + self.len]
    }
}

/// All pieces of a frame, the longest first, and the bytes of a value of the map.
fn pieces(templates: &[Vec<u8>]) -> (Vec<Piece>, u32) {
    let first = &templates[0];
    for (number, template) in templates.iter().enumerate() {
        assert!(template.len() == first.len(), "template {number} has another length");
    }
    let (mut pieces, mut from, mut stride) = (Vec::new(), 0, 0);
    for len in [8, 4, 2] {
        while first.len() - from >= len {
            let mut piece = Piece { from, len, bytes: Bytes::Stored(stride) };
            if templates.iter().all(|template| piece.of(template) == piece.of(first)) {
                piece.bytes = Bytes::Constant(number(piece.of(first)));
            } else {
                stride += len;
            }
            pieces.push(piece);
            from += len;
        }
    }
    let stride = u32::try_from(stride.next_multiple_of(8).max(8)).expect("at most 96");
    (pieces, stride)
}

/// What a load of these 8, 4 or 2 bytes gives.
fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        _ => u64::from_ne_bytes(bytes.try_into().expect("8, 4 or 2 bytes")),
    }
}

/// The program. R6 is the context, R7 the frame, R8 its end, later the template; R9 the state. One CPU
/// at a time runs it, so its counters need no atomic additions.
fn program(templates: &Templates, state: &Map, ending: Ending, end: &End<'_>) -> Vec<Insn> {
    let at = |n: usize| i16::try_from(n).expect("at most 96");
    let (store, len) = (&templates.store, templates.len);
    let mut a = Asm::new();
    let (abort, more) = (a.label(), a.label());
    let (idle, caught_up, begun) = (a.label(), a.label(), a.label());
    a.set(R6, R1).load(Word, R7, R6, 0).load(Word, R8, R6, 4);
    a.set(R1, R7).add(R1, i32::from(at(len))).branch(R1, When::Gt, R8, abort);
    a.set_map_value(R9, state.as_fd(), 0);

    // Whether one is due, and when the next one is.
    if ending == Ending::Stamp {
        a.call(Helper::TimeNs).load(Double, R2, R9, DUE).branch(R2, When::Gt, R0, idle);
        a.set(R3, R0).sub(R3, CATCH_UP_NS).branch(R2, When::Ge, R3, caught_up).set(R2, R3);
        a.bind(caught_up).load(Double, R1, R9, INTERVAL).add(R2, R1).store(Double, R9, DUE, R2);
        a.store(Double, R9, LAST, R0).store(Double, R10, NOW, R0);
        a.load(Double, R1, R9, FIRST).branch(R1, When::Ne, 0, begun).store(Double, R9, FIRST, R0);
        a.bind(begun);
    }

    // The next template, the first again after the last.
    a.load(Word, R1, R9, NEXT).store(Word, R10, -4, R1).add(R1, 1);
    a.branch32(R1, When::Lt, store.entries().cast_signed(), more).set(R1, 0);
    a.bind(more).store(Word, R9, NEXT, R1);
    a.set_map(R1, store.as_fd()).set(R2, R10).add(R2, -4).call(Helper::MapLookup);
    a.branch(R0, When::Eq, 0, abort).set(R8, R0);

    // Its bytes: all of them, see the head of this file.
    for piece in &templates.pieces {
        let width = match piece.len {
            8 => Double,
            4 => Word,
            _ => Half,
        };
        match piece.bytes {
            Bytes::Stored(offset) => a.load(width, R1, R8, at(offset)),
            Bytes::Constant(number) => a.set64(R1, number),
        };
        a.store(width, R7, at(piece.from), R1);
    }

    if ending == Ending::Stamp {
        let stamp = at(len - STAMP_BYTES);
        a.load(Double, R1, R10, NOW).store(Double, R7, stamp, R1);
        a.load(Word, R1, R9, SEQUENCE).store(Word, R7, stamp + 8, R1);
        a.add(R1, 1).store(Word, R9, SEQUENCE, R1);
    }
    // The sequence number and its complement.
    if ending == Ending::Tail {
        let tail = at(len - TAIL_BYTES);
        a.load(Word, R1, R9, SEQUENCE).set(R2, R1).add(R2, 1).store(Word, R9, SEQUENCE, R2);
        a.to_be32(R1).store(Word, R7, tail, R1).xor32(R1, -1).store(Word, R7, tail + 4, R1);
    }

    a.load(Double, R1, R9, OFFERED).add(R1, 1).store(Double, R9, OFFERED, R1);
    match end {
        End::Device(device) => {
            a.set_map(R1, device.as_fd()).set(R2, 0).set(R3, XDP_ABORTED);
            a.call(Helper::RedirectMap).exit();
        }
        End::Program(target) => {
            a.set(R1, R6).set_map(R2, target.as_fd()).set(R3, 0).call(Helper::TailCall);
        }
    }
    a.bind(abort).set(R0, XDP_ABORTED).exit();
    if ending == Ending::Stamp {
        // The page goes back; XDP_ABORTED would be traced each time.
        a.bind(idle).set(R0, XDP_DROP).exit();
    }
    a.finish()
}

/// A frame with a UDP packet, right checksums and a tail of zeros, as a template.
///
/// # Panics
/// When the addresses are of two families, or `len` (of the whole frame, in bytes) is too short: 58
/// with IPv4, 78 with IPv6.
pub fn udp_frame(
    [to, from]: [[u8; 6]; 2],
    [source, destination]: [IpAddr; 2],
    [source_port, destination_port]: [u16; 2],
    ttl: u8,
    len: usize,
) -> Vec<u8> {
    let mut frame = Vec::with_capacity(len);
    frame.extend([to, from].concat());
    let word = |n: usize| u16::try_from(n).expect("a frame is short").to_be_bytes();
    let udp = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([0x08, 0x00, 0x45, 0x00]);
            frame.extend(word(len - 14));
            frame.extend([0, 0, 0, 0, ttl, 17, 0, 0]);
            frame.extend([source, destination].map(|a| a.octets()).concat());
            let sum = checksum(&[&frame[14..34]]);
            frame[24..26].copy_from_slice(&sum);
            34
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(word(len - 54));
            frame.extend([17, ttl]);
            frame.extend([source, destination].map(|a| a.octets()).concat());
            54
        }
        _ => panic!("addresses of two families"),
    };
    assert!(len >= udp + 8 + TAIL_BYTES, "{len} bytes hold no tail");
    frame.extend([source_port, destination_port].map(u16::to_be_bytes).concat());
    frame.extend(word(len - udp));
    frame.resize(len, 0);
    // Of the pseudo header: the addresses, the length and the protocol.
    let addresses = if udp == 34 { &frame[26..34] } else { &frame[22..54] };
    let mut sum = checksum(&[addresses, &word(len - udp), &[0, 17], &frame[udp..]]);
    if sum == [0, 0] {
        sum = [0xff, 0xff];
    }
    frame[udp + 6..udp + 8].copy_from_slice(&sum);
    frame
}

/// The internet checksum (RFC 1071) of these bytes, each part of an even length.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks_exact(2));
    let mut sum: u32 = words.map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (!u16::try_from(sum).expect("folded")).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(destination: &str, len: usize) -> Vec<u8> {
        let source = if destination.contains(':') { "fd00::1" } else { "10.0.0.1" };
        let addresses = [source, destination].map(|a| a.parse().unwrap());
        udp_frame([[1; 6], [2; 6]], addresses, [1000, 9], 64, len)
    }

    /// The UDP checksum holds when everything that it covers adds up to zero.
    fn checksums_hold(frame: &[u8]) -> bool {
        let (v4, udp) = if frame[12] == 8 { (true, 34) } else { (false, 54) };
        let addresses = if v4 { &frame[26..34] } else { &frame[22..54] };
        let header = !v4 || checksum(&[&frame[14..34]]) == [0, 0];
        header
            && checksum(&[addresses, &frame[udp + 4..udp + 6], &[0, 17], &frame[udp..]]) == [0, 0]
    }

    #[test]
    fn templates_are_packets_with_right_checksums() {
        for (destination, len) in [("10.1.2.3", 58), ("10.1.2.3", 60), ("2001:db8::1", 78)] {
            let mut frame = template(destination, len);
            assert_eq!(frame.len(), len);
            assert!(checksums_hold(&frame));
            for sequence in [0, 1, 0xffff, 0x1_0000, 0x1234_5678, u32::MAX] {
                let tail = Tail { sequence, template: !sequence / 3 };
                tail.write(&mut frame);
                assert!(checksums_hold(&frame), "{tail:?}");
                assert_eq!(Tail::of(&frame), Some(tail));
            }
            frame[len - 1] ^= 1;
            assert!(!checksums_hold(&frame) && Tail::of(&frame).is_none());
        }
        assert_eq!(Tail::of(&[0xff; 10]), None);
    }

    /// Through the kernel's test run, without a device: the dirtiest page becomes the next template.
    #[test]
    fn every_byte_is_written_anew() {
        use super::super::lab;
        lab::in_namespace(|| {
            let (_, b) = lab::veth("a0", "b0", 1);
            let templates: Vec<_> =
                ["10.1.2.3", "2001:db8::1", "10.1.2.4"].map(|d| template(d, 82)).into();
            let generator = Generator::new(&templates, b).unwrap();
            for sequence in 0..7 {
                let answer = generator.program.test(&[0xee; 82]).unwrap();
                let number = sequence % 3;
                let mut expected = templates[number as usize].clone();
                Tail { sequence, template: number }.write(&mut expected);
                assert_eq!(answer.frame, expected);
                assert!(checksums_hold(&answer.frame));
                assert_eq!(answer.action.cast_signed(), super::super::XDP_REDIRECT);
            }
            assert_eq!(generator.offered().unwrap(), 7);
            assert_eq!(generator.program.test(&[0; 81]).unwrap().action, 0, "too short a page");

            let mut a = Asm::new();
            a.load(Word, R2, R1, 0).load(Word, R3, R1, 4).sub(R3, R2);
            a.set(R0, R3).exit();
            let target = Program::load("length", &a.finish()).unwrap();
            let feeder = Feeder::new(&templates, &target).unwrap();
            let (feed, _) = &feeder.feeds[0];
            assert_eq!(feed.test(&[0xee; 82]).unwrap().action, 82, "it goes on in the program");
            let answer = feed.test(&[0xee; 82]).unwrap();
            assert_eq!(answer.frame[..66], templates[1][..66], "on the next template");
            let ns = feeder.time(10_000).unwrap();
            assert!((-100.0..10_000.0).contains(&ns), "{ns} ns");

            // With stamps: none before it is due, and what was sent is counted from the pace on.
            let mut generator = Generator::stamped(&templates, b).unwrap();
            for number in 0..4 {
                let answer = generator.program.test(&[0xee; 82]).unwrap();
                let end = 82 - STAMP_BYTES;
                assert_eq!(answer.frame[..end], templates[number as usize % 3][..end]);
                let stamp = Stamp::of(&answer.frame).unwrap();
                assert_eq!(stamp.number, number);
                let sent = generator.sent().unwrap();
                assert_eq!((sent.packets, sent.ns > 0), (u64::from(number) + 1, number > 0));
            }
            generator.set_pace(3_600_000_000_000).unwrap();
            let sends = |generator: &Generator| {
                let answer = generator.program.test(&[0xee; 82]).unwrap();
                answer.action.cast_signed() == super::super::XDP_REDIRECT
            };
            assert!(sends(&generator) && !sends(&generator) && !sends(&generator));
            assert_eq!(generator.sent().unwrap(), Sent { packets: 1, ns: 0 });
            generator.set_pace(1_000_000).unwrap();
            assert!(sends(&generator), "a new pace begins at once");
            assert_eq!(Stamp::of(&[0; 11]), None);

            // Without tails, of lengths that end in each kind of piece, and one template alone.
            for (len, count) in [(82, 3), (62, 2), (60, 2), (60, 1)] {
                let templates: Vec<_> =
                    templates[..count].iter().map(|t| t[..len].into()).collect();
                let generator = Generator::plain(&templates, b).unwrap();
                for number in [0, 1, 2, 3, 4] {
                    let answer = generator.program.test(&[0xee; 90]).unwrap();
                    assert_eq!(answer.frame[..len], templates[number % count]);
                }
            }
        });
    }
}
