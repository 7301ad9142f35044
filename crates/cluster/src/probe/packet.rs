//! Payload of a probe: what a node announces on each internal link, after the header of the frame.
//!
//! Source: the mandatory section of a BFD control packet (RFC 5880, 4.1). "My Discriminator" is the boot id here, "Your
//!         Discriminator" the boot id last received; the intervals are settings that a digest compares, not negotiated,
//!         and the rest is what an IGP would flood: the state of the node and its links.
//!
//! ```text
//!  0  version, 1 | 1 state: 1 active, 2 draining, 3 leaving | 2-3 members | 4-7 boot id | 8-11 sequence number
//! 12-15 digest of the settings | 16-19 boot id last received from the receiver, 0 for none | 20 adjacency epoch
//! 21  length of the name, then the name | 2 bytes: number of bits, then the bits: links that are up, by node number
//! ```
//!
//! Shape:  numbers are big-endian and bits count from the most significant. What follows is padding of Ethernet.
//! Cost:   parsing borrows from the frame and allocates nothing.
//! Limits: 255 bytes of name, [`MAX_NODES`] bits, so at most 407 bytes.

use std::fmt;

use crate::rule::{MAX_NODES, NodeId};

/// The version that this file reads and writes.
pub const VERSION: u8 = 1;

/// Bytes before the name.
const FIXED: usize = 22;

/// What a node is prepared to carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// All packets.
    #[default]
    Active,
    /// Packets whose path leads over it already.
    Draining,
    /// None soon: it is about to stop, and is neither an intermediate nor an egress any more.
    Leaving,
}

/// Payload of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe<'a> {
    /// What the sender carries.
    pub service: Service,
    /// How many members the sender's settings have; 0 where a store has them.
    pub members: u16,
    /// Random number of the sender's start, never 0.
    pub boot: u32,
    /// Number of the probe on its link.
    pub sequence: u32,
    /// Digest of the sender's cluster settings.
    pub digest: u32,
    /// Boot id that the sender last received from the receiver; 0 for none.
    pub received: u32,
    /// Epoch of the sender's adjacency indices.
    pub epoch: u8,
    /// Name of the sender.
    pub name: &'a str,
    /// Links of the sender that are up.
    pub up: Bits<'a>,
}

/// A set of node numbers as a bitmap, most significant bit first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits<'a> {
    count: u16,
    bytes: &'a [u8],
}

/// Why bytes are not a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Another version of the protocol.
    #[error("version {0} of the probe, this node has version {VERSION}")]
    Version(u8),
    /// The bytes end before a field does.
    #[error("the probe ends in its {0}")]
    Truncated(Part),
    /// A state that no node has.
    #[error("state {0} of a node, 1 and 2 are known")]
    State(u8),
    /// Boot id 0, which stands for none.
    #[error("boot id 0")]
    Boot,
    /// Too many members.
    #[error("{0} members, at most {MAX_NODES}")]
    Members(u16),
    /// A name that is empty or no UTF-8.
    #[error("the name is empty or no UTF-8")]
    Name,
    /// More links than there can be nodes.
    #[error("{0} links, at most {MAX_NODES}")]
    Links(u16),
}

/// Part of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The fields of fixed length.
    Fields,
    /// The name.
    Name,
    /// The number of links.
    Count,
    /// The bits of the links.
    Links,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fields => "fixed fields",
            Self::Name => "name",
            Self::Count => "number of links",
            Self::Links => "bits of the links",
        })
    }
}

impl<'a> Bits<'a> {
    /// A bitmap of so many bits; the slice has the bytes that they fill.
    ///
    /// # Panics
    /// When the slice has another length, or there are more than [`MAX_NODES`] bits.
    pub fn new(count: u16, bytes: &'a [u8]) -> Self {
        assert!(usize::from(count) <= MAX_NODES && bytes.len() == usize::from(count).div_ceil(8));
        Self { count, bytes }
    }

    /// How many bits there are.
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// The bytes that the bits fill.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether there is no bit at all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the node is in the set; one beyond the bits is not.
    pub fn has(&self, node: NodeId) -> bool {
        node < self.count && self.bytes[usize::from(node / 8)] & mask(node) != 0
    }
}

/// The bit of a node in its byte.
pub(super) fn mask(node: NodeId) -> u8 {
    0x80 >> (node % 8)
}

impl<'a> Probe<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// One for each field that can be wrong; the version is looked at first.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let version = *bytes.first().ok_or(PacketError::Truncated(Part::Fields))?;
        if version != VERSION {
            return Err(PacketError::Version(version));
        }
        let (fixed, rest) =
            bytes.split_first_chunk::<FIXED>().ok_or(PacketError::Truncated(Part::Fields))?;
        let word = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let service = match fixed[1] {
            1 => Service::Active,
            2 => Service::Draining,
            3 => Service::Leaving,
            other => return Err(PacketError::State(other)),
        };
        let members = u16::from_be_bytes([fixed[2], fixed[3]]);
        if usize::from(members) > MAX_NODES {
            return Err(PacketError::Members(members));
        }
        let boot = word(4);
        if boot == 0 {
            return Err(PacketError::Boot);
        }
        let (name, rest) =
            rest.split_at_checked(fixed[21].into()).ok_or(PacketError::Truncated(Part::Name))?;
        let name = std::str::from_utf8(name).map_err(|_| PacketError::Name)?;
        if name.is_empty() {
            return Err(PacketError::Name);
        }
        let (count, rest) = rest.split_first_chunk().ok_or(PacketError::Truncated(Part::Count))?;
        let count = u16::from_be_bytes(*count);
        if usize::from(count) > MAX_NODES {
            return Err(PacketError::Links(count));
        }
        let bytes = rest
            .get(..usize::from(count).div_ceil(8))
            .ok_or(PacketError::Truncated(Part::Links))?;
        Ok(Self {
            service,
            members,
            boot,
            sequence: word(8),
            digest: word(12),
            received: word(16),
            epoch: fixed[20],
            name,
            up: Bits { count, bytes },
        })
    }

    /// Appends the payload.
    ///
    /// # Panics
    /// When the name has more than 255 bytes.
    pub fn write(&self, into: &mut Vec<u8>) {
        let name_len = u8::try_from(self.name.len()).expect("names have at most 255 bytes");
        into.push(VERSION);
        into.push(match self.service {
            Service::Active => 1,
            Service::Draining => 2,
            Service::Leaving => 3,
        });
        into.extend(self.members.to_be_bytes());
        for word in [self.boot, self.sequence, self.digest, self.received] {
            into.extend(word.to_be_bytes());
        }
        into.extend([self.epoch, name_len]);
        into.extend(self.name.as_bytes());
        into.extend(self.up.count.to_be_bytes());
        into.extend(self.up.bytes);
    }
}

/// What a fuzzer calls.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::*;

    /// Parses anything. What is a probe comes out of a writer as it went in.
    ///
    /// # Panics
    /// When it does not.
    pub fn check(bytes: &[u8]) {
        let Ok(probe) = Probe::parse(bytes) else { return };
        let mut written = Vec::new();
        probe.write(&mut written);
        assert_eq!(written, bytes[..written.len()]);
        let all = (0..u16::MAX).filter(|&node| probe.up.has(node)).count();
        assert!(all <= probe.up.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UP: [u8; 2] = [0b0110_0000, 0b1000_0000];

    fn probe() -> Probe<'static> {
        Probe {
            service: Service::Draining,
            members: 4,
            boot: 0x0102_0304,
            sequence: 7,
            digest: 0xaabb_ccdd,
            received: 0x0506_0708,
            epoch: 9,
            name: "a",
            up: Bits::new(9, &UP),
        }
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        probe().write(&mut bytes);
        bytes
    }

    #[test]
    fn every_byte_is_where_the_format_has_it() {
        let expected = [
            1,
            2,
            0,
            4,
            1,
            2,
            3,
            4,
            0,
            0,
            0,
            7,
            0xaa,
            0xbb,
            0xcc,
            0xdd,
            5,
            6,
            7,
            8,
            9,
            1,
            b'a',
            0,
            9,
            0b0110_0000,
            0b1000_0000,
        ];
        assert_eq!(bytes(), expected);
        let mut padded = bytes();
        padded.extend([0xee; 20]);
        let read = Probe::parse(&padded).unwrap();
        assert_eq!(read, probe());
        let up: Vec<_> = (0..30).filter(|&node| read.up.has(node)).collect();
        assert_eq!(up, [1, 2, 8]);
        assert!(!read.up.is_empty());
        for (state, service) in [(1, Service::Active), (3, Service::Leaving)] {
            padded[1] = state;
            assert_eq!(Probe::parse(&padded).unwrap().service, service);
            let mut written = Vec::new();
            Probe { service, ..probe() }.write(&mut written);
            assert_eq!(written[1], state);
        }
    }

    #[test]
    fn each_defect_has_its_error() {
        let with = |at: usize, value: u8| {
            let mut bytes = bytes();
            bytes[at] = value;
            Probe::parse(&bytes).map(|_| ()).unwrap_err()
        };
        assert_eq!(with(0, 2), PacketError::Version(2));
        assert_eq!(with(1, 0), PacketError::State(0));
        assert_eq!(with(1, 4), PacketError::State(4));
        assert_eq!(with(2, 0xff), PacketError::Members(0xff04));
        assert_eq!(with(22, 0xff), PacketError::Name);
        assert_eq!(with(21, 0), PacketError::Name);
        assert_eq!(with(21, 200), PacketError::Truncated(Part::Name));
        assert_eq!(with(21, 4), PacketError::Truncated(Part::Count));
        assert_eq!(with(23, 0x10), PacketError::Links(0x1009));
        assert_eq!(with(23, 1), PacketError::Truncated(Part::Links));
        let mut boot = bytes();
        boot[4..8].fill(0);
        assert_eq!(Probe::parse(&boot), Err(PacketError::Boot));
        let whole = bytes();
        let ends: Vec<_> = (0..whole.len()).map(|len| Probe::parse(&whole[..len])).collect();
        assert!(ends.iter().all(|end| matches!(end, Err(PacketError::Truncated(_)))), "{ends:?}");
        assert_eq!(ends[21].unwrap_err().to_string(), "the probe ends in its fixed fields");
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            testing::check(&bytes);
        }

        #[test]
        fn altered_probes_do_not_panic(at in 0usize..27, value: u8, len in 0usize..40) {
            let mut bytes = bytes();
            bytes[at] = value;
            bytes.resize(len, value);
            testing::check(&bytes);
        }
    }
}
