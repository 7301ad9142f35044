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

use fingerpost_io::xdp::XdpError;
use fingerpost_io::xdp::bpf::{Map, MapKind, Program};
use fingerpost_io::xdp::load::{self, Bound};

/// The compiled `generator.c`.
static OBJECT: &[u8] = include_bytes!("generator.o");

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

/// Bytes of the program's state, and words of 8 bytes in it (`generator.c`).
const STATE_BYTES: u32 = 48;
const OFFERED: usize = 1;
const INTERVAL: usize = 2;
const DUE: usize = 3;
const FIRST: usize = 4;
const LAST: usize = 5;

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

    /// Sends templates as they are, without tails, of any even length from an Ethernet header on.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// When there are no templates, or they are not of one such length.
    pub fn plain(templates: &[Vec<u8>], ifindex: u32) -> Result<Self, XdpError> {
        Self::made(templates, ifindex, Ending::Template)
    }

    /// Sends templates with a [`Stamp`] in the last [`STAMP_BYTES`] of each packet, which no checksum may cover.
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
        let program = store.load("generate", &state, ending, &device)?;
        let batch = if ending == Ending::Stamp { STAMPED_BATCH } else { BATCH };
        Ok(Self { program, state, frame: templates[0].clone(), batch })
    }

    /// Sends about `count` packets as fast as they can be made, from the calling thread and its CPU;
    /// fewer when a signal arrives. Use [`WORTHWHILE`] or more at a time. Whether the interface took
    /// them all is not known.
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
        Ok(self.read()?[OFFERED])
    }

    /// Sets the pace of a stamped generator: from now on a packet every `interval_ns` at most, so that [`Generator::run`],
    /// which counts the turns, sends fewer than its `count`. 0 sends in each turn. What was sent is counted from here.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_pace(&mut self, interval_ns: u64) -> Result<(), XdpError> {
        let mut state = self.read()?;
        for (at, value) in [(OFFERED, 0), (INTERVAL, interval_ns), (DUE, 0), (FIRST, 0), (LAST, 0)]
        {
            state[at] = value;
        }
        self.state
            .update(&0u32.to_ne_bytes(), state.map(u64::to_ne_bytes).as_flattened())
            .map_err(|source| XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of a pace", source })
    }

    /// What a stamped generator sent since its pace was set.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn sent(&self) -> Result<Sent, XdpError> {
        let state = self.read()?;
        Ok(Sent { packets: state[OFFERED], ns: state[LAST] - state[FIRST] })
    }

    fn read(&self) -> Result<[u64; 6], XdpError> {
        let mut state = [[0; 8]; 6];
        self.state
            .lookup(&0u32.to_ne_bytes(), state.as_flattened_mut())
            .map_err(|source| XdpError::System { call: "bpf(MAP_LOOKUP_ELEM)", source })?;
        Ok(state.map(u64::from_ne_bytes))
    }
}

/// A program on all templates in turn, without a device on either side: what it costs by itself.
#[derive(Debug)]
pub struct Feeder {
    /// The program, and one that does nothing; each with the map that holds it.
    feeds: [(Program, Map); 2],
    frame: Vec<u8>,
}

impl Feeder {
    /// A feeder of a program that takes such frames; see [`Generator::plain`].
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// When there are no templates, or they are not of one even length.
    pub fn new(templates: &[Vec<u8>], program: &Program) -> Result<Self, XdpError> {
        let store = Templates::new(templates)?;
        let nothing = Program::load("nothing", &load::link(OBJECT, "nothing", |_| None))?;
        let feed = |target: &Program| {
            let targets = Map::new(MapKind::ProgArray, "target", 4, 4, 1)?;
            let fd = target.as_fd().as_raw_fd();
            targets.update(&0u32.to_ne_bytes(), &fd.to_ne_bytes()).map_err(|source| {
                XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of a program", source }
            })?;
            let state = Map::new(MapKind::Array, "generator", 4, STATE_BYTES, 1)?;
            // The kernel empties a map of programs when its last descriptor outside programs closes.
            Ok::<_, XdpError>((store.load("feed", &state, Ending::Template, &targets)?, targets))
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

/// What a packet ends in (`generator.c`).
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    /// What its template ends in.
    Template,
    Tail,
    Stamp,
}

/// The templates, as the program reads them: words of 8 bytes.
struct Templates {
    /// Words that not all templates share, by template.
    store: Map,
    /// A bit for each of these.
    stored: u64,
    /// Words of the first template.
    first: Vec<u64>,
    len: usize,
}

impl Templates {
    fn new(templates: &[Vec<u8>]) -> Result<Self, XdpError> {
        let len = templates.first().expect("at least one template").len();
        assert!(len.is_multiple_of(2) && (14..=MOST_BYTES).contains(&len));
        let count = u32::try_from(templates.len()).expect("templates are counted in 32 bits");
        let all: Vec<Vec<u64>> = templates.iter().map(|template| words(template)).collect();
        let same = templates.iter().all(|template| template.len() == len);
        assert!(same, "templates of several lengths");
        let first = all[0].clone();
        let differs = |&at: &usize| all.iter().any(|words| words[at] != first[at]);
        let stored: Vec<usize> = (0..first.len()).filter(differs).collect();
        let stride = u32::try_from(stored.len().max(1) * 8).expect("at most 96");
        let store = Map::new(MapKind::Array, "templates", 4, stride, count)?;
        for (number, words) in (0..count).zip(&all) {
            let mut value: Vec<u8> =
                stored.iter().flat_map(|&at| words[at].to_ne_bytes()).collect();
            value.resize(stride as usize, 0);
            store.update(&number.to_ne_bytes(), &value).map_err(|source| XdpError::System {
                call: "bpf(MAP_UPDATE_ELEM) of templates",
                source,
            })?;
        }
        let stored = stored.iter().fold(0, |stored, at| stored | 1 << at);
        Ok(Self { store, stored, first, len })
    }

    /// A function of `generator.c` that makes packets of them, for the only entry of `to`.
    fn load(
        &self,
        function: &'static str,
        state: &Map,
        ending: Ending,
        to: &Map,
    ) -> Result<Program, XdpError> {
        let code = load::link(OBJECT, function, |name| {
            Some(match name {
                "state" => Bound::Memory(state.as_fd()),
                "templates" => Bound::Map(self.store.as_fd()),
                "device" | "target" => Bound::Map(to.as_fd()),
                "ending" => Bound::Number(ending as u64),
                "len" => Bound::Number(self.len as u64),
                "count" => Bound::Number(self.store.entries().into()),
                "stored" => Bound::Number(self.stored),
                word => {
                    let at: usize = word.strip_prefix("word")?.parse().ok()?;
                    Bound::Number(self.first.get(at).copied().unwrap_or_default())
                }
            })
        });
        Program::load(function, &code)
    }
}

/// A frame in words, the last one filled up with zeros.
fn words(frame: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    frame.chunks(8).map(word).collect()
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
    use fingerpost_io::xdp::{XDP_REDIRECT, testing};

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
        testing::in_namespace(|| {
            let (_, b) = testing::veth("a0", "b0", 1);
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
                assert_eq!(answer.action.cast_signed(), XDP_REDIRECT);
            }
            assert_eq!(generator.offered().unwrap(), 7);
            assert_eq!(generator.program.test(&[0; 81]).unwrap().action, 0, "too short a page");

            let target = Program::load("pass", &testing::program("pass")).unwrap();
            let feeder = Feeder::new(&templates, &target).unwrap();
            let (feed, _) = &feeder.feeds[0];
            assert_eq!(feed.test(&[0xee; 82]).unwrap().action, 2, "it goes on in the program");
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
                answer.action.cast_signed() == XDP_REDIRECT
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
