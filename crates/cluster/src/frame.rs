//! The frame on an internal link: 18 bytes before the IP packet, and the link address that names an adjacency of another node.
//!
//! Source: RouteBricks, SOSP 2009, section 5 encodes the egress node in the destination MAC, so that no node after the input
//!         reads an IP header. The adjacency index spares the egress node its lookup.
//! Shape:  all fields big-endian; both addresses are locally administered unicast, so that an ordinary switch forwards the
//!         frame by its hop target:
//!
//! ```text
//!          0  02 | cluster id | hop target 16 | egress node 16
//!          6  02 | cluster id | sending node 16 | phase 8 | epoch 8      phase: 1 to an intermediate, 2 to the egress node
//!         12  EtherType 16 | adjacency index 24 | class 8                class: 0 data, 255 probe
//!         18  the IP packet, or a probe
//! ```
//!
//! Cost:   one cache line; a transit node reads 18 bytes.
//! Limits: 65,535 nodes, 2^24 - 1 adjacencies a node; an internal MTU of at least 4 bytes more than that of the fabric interface.
//!
//! On the fabric interface of a node an adjacency of another node is a neighbor with the address
//! `02 | adjacency index 24 | egress node 16`; index 0 has the egress node look the destination up.

use fingerpost_route::Mac;

use crate::rule::{NodeId, Phase};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 18;

/// Bytes by which the header exceeds that of Ethernet: what an internal MTU has more than that of the fabric interface.
pub const EXTRA_BYTES: u16 = 4;

/// Bytes of a full frame: a header and an IP packet of 1,500 bytes.
pub const FULL_BYTES: u64 = 1518;

/// EtherType unless configured otherwise: the first that IEEE 802 leaves to local experiments.
pub const ETHERTYPE: u16 = 0x88b5;

/// Offset of the byte that has the class of a frame.
pub const CLASS_AT: u8 = 17;

/// Adjacency index that has the egress node look the destination up.
pub const LOOKUP: u32 = 0;

/// First byte of both addresses: locally administered, unicast.
const LOCAL: u8 = 0x02;

/// What an internal frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    /// An IP packet.
    Data,
    /// A probe of the link.
    Probe,
}

impl FrameClass {
    /// Byte in the frame.
    pub fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Probe => 0xff,
        }
    }
}

/// Fields of the header of an internal frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Cluster that the frame belongs to.
    pub cluster: u8,
    /// Node that the frame is sent to now.
    pub hop: NodeId,
    /// Node whose external port the packet leaves by.
    pub output: NodeId,
    /// Node that sent the frame.
    pub sender: NodeId,
    /// Phase of the packet.
    pub phase: Phase,
    /// Low 8 bits of the adjacency epoch of the egress node that the sender knew.
    pub epoch: u8,
    /// EtherType of internal frames.
    pub ethertype: u16,
    /// Adjacency index at the egress node, below 2^24; [`LOOKUP`] for none.
    pub adjacency: u32,
    /// What the frame carries.
    pub class: FrameClass,
}

/// Reason why bytes are no internal frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Shorter than the header.
    Short,
    /// Another EtherType.
    EtherType,
    /// Addresses that are not of this form.
    Address,
    /// A phase other than 1 and 2.
    Phase,
    /// An unknown class.
    Class,
}

impl Header {
    /// Reads the header at the front of a frame with this EtherType.
    ///
    /// # Errors
    /// When the frame is shorter or no internal frame.
    #[inline]
    pub fn parse(frame: &[u8], ethertype: u16) -> Result<Self, FrameError> {
        let Some(b) = frame.first_chunk::<HEADER_BYTES>() else { return Err(FrameError::Short) };
        if u16::from_be_bytes([b[12], b[13]]) != ethertype {
            return Err(FrameError::EtherType);
        }
        if b[0] != LOCAL || b[6] != LOCAL || b[1] != b[7] {
            return Err(FrameError::Address);
        }
        let phase = match b[10] {
            1 => Phase::First,
            2 => Phase::Second,
            _ => return Err(FrameError::Phase),
        };
        let class = match b[usize::from(CLASS_AT)] {
            0 => FrameClass::Data,
            0xff => FrameClass::Probe,
            _ => return Err(FrameError::Class),
        };
        Ok(Self {
            cluster: b[1],
            hop: NodeId::from_be_bytes([b[2], b[3]]),
            output: NodeId::from_be_bytes([b[4], b[5]]),
            sender: NodeId::from_be_bytes([b[8], b[9]]),
            phase,
            epoch: b[11],
            ethertype,
            adjacency: u32::from_be_bytes([0, b[14], b[15], b[16]]),
            class,
        })
    }

    /// The header as bytes. An adjacency index of more than 24 bits loses those above.
    #[inline]
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut b = [0; HEADER_BYTES];
        (b[0], b[1], b[6], b[7]) = (LOCAL, self.cluster, LOCAL, self.cluster);
        b[2..4].copy_from_slice(&self.hop.to_be_bytes());
        b[4..6].copy_from_slice(&self.output.to_be_bytes());
        b[8..10].copy_from_slice(&self.sender.to_be_bytes());
        b[10] = phase_byte(self.phase);
        b[11] = self.epoch;
        b[12..14].copy_from_slice(&self.ethertype.to_be_bytes());
        b[14..17].copy_from_slice(&self.adjacency.to_be_bytes()[1..]);
        b[usize::from(CLASS_AT)] = self.class.byte();
        b
    }
}

fn phase_byte(phase: Phase) -> u8 {
    match phase {
        Phase::First => 1,
        Phase::Second => 2,
    }
}

/// What data frames of a cluster to one node have in common, so that a few instructions recognize them.
///
/// The first 16 bytes of the header are two words here, its byte `n` in the bits from `8 * (n % 8)` on.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    common: [u64; 2],
    /// Sending node and phase of what this node sends on.
    sender: u64,
}

/// A frame that [`Arrivals`] recognized.
#[derive(Clone, Copy, Debug)]
pub struct Arrival([u64; 2]);

/// Bits of the words that are alike: all but those of the egress node, and the EtherType.
const ALIKE: [u64; 2] =
    [!(0xffff << OUTPUT_AT), u64::from_le_bytes([0, 0, 0, 0, 0xff, 0xff, 0, 0])];

/// Where the egress node is in the first word.
const OUTPUT_AT: u32 = 32;

/// The hop target in the first word.
const HOP: u64 = 0xffff << (OUTPUT_AT - 16);

/// Sending node and phase in the second word.
const SENDER_AND_PHASE: u64 = 0xff_ffff;

/// Where the phase is in the second word.
const PHASE_AT: u32 = 16;

impl Arrivals {
    /// Frames of this cluster to `node`.
    pub fn new(cluster: u8, node: NodeId, ethertype: u16) -> Self {
        let header = Header {
            cluster,
            hop: node,
            output: 0,
            sender: node,
            phase: Phase::Second,
            epoch: 0,
            ethertype,
            adjacency: 0,
            class: FrameClass::Data,
        };
        let [first, second] = words(&header.bytes());
        Self { common: [first, second & ALIKE[1]], sender: second & SENDER_AND_PHASE }
    }

    /// Recognizes a frame; `None` for any other, whose fields [`Header::parse`] reads.
    #[inline(always)]
    pub fn recognize(&self, frame: &[u8]) -> Option<Arrival> {
        let b = frame.first_chunk::<HEADER_BYTES>()?;
        let [first, second] = words(b);
        let phase = second >> PHASE_AT & 0xff;
        let other = (first ^ self.common[0]) & ALIKE[0]
            | (second ^ self.common[1]) & ALIKE[1]
            | u64::from(b[usize::from(CLASS_AT)]);
        (other == 0 && (phase == 1 || phase == 2)).then_some(Arrival([first, second]))
    }

    /// Turns a frame of phase 1 into one of phase 2, from this node to its egress node.
    #[inline(always)]
    pub fn send_on(&self, Arrival([first, second]): Arrival, frame: &mut [u8]) {
        let first = first & !HOP | first >> 16 & HOP;
        let second = second & !SENDER_AND_PHASE | self.sender;
        if let Some(words) = frame.first_chunk_mut::<16>() {
            words[..8].copy_from_slice(&first.to_le_bytes());
            words[8..].copy_from_slice(&second.to_le_bytes());
        }
    }
}

impl Arrival {
    /// Node whose external port the packet leaves by.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "takes the field of a node")]
    pub fn output(self) -> NodeId {
        ((self.0[0] >> OUTPUT_AT) as NodeId).swap_bytes()
    }

    /// Whether the packet is in phase 1.
    #[inline(always)]
    pub fn in_phase_1(self) -> bool {
        self.0[1] >> PHASE_AT & 0xff == 1
    }
}

/// The first 16 bytes of a header.
#[inline(always)]
fn words(b: &[u8; HEADER_BYTES]) -> [u64; 2] {
    let word = |at: usize| b[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    [word(0), word(8)]
}

/// An adjacency of another node, as a neighbor on the fabric interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricAddr {
    /// Adjacency index at the egress node, below 2^24; [`LOOKUP`] for none.
    pub adjacency: u32,
    /// Egress node.
    pub output: NodeId,
}

impl FabricAddr {
    /// The link address. An adjacency index of more than 24 bits loses those above.
    pub fn mac(self) -> Mac {
        let ([_, a, b, c], [d, e]) = (self.adjacency.to_be_bytes(), self.output.to_be_bytes());
        Mac([LOCAL, a, b, c, d, e])
    }

    /// Reads a destination address; `None` for one of another form, a group address among them.
    #[inline]
    pub fn of(mac: [u8; 6]) -> Option<Self> {
        let [first, a, b, c, d, e] = mac;
        (first == LOCAL).then_some(Self {
            adjacency: u32::from_be_bytes([0, a, b, c]),
            output: NodeId::from_be_bytes([d, e]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: [u8; 20] =
        [2, 7, 0, 3, 1, 4, 2, 7, 0, 9, 1, 0xfe, 0x88, 0xb5, 0x01, 0x02, 0x03, 0, 0x45, 0];

    #[test]
    fn fields_are_where_the_format_has_them() {
        let header = Header::parse(&FRAME, ETHERTYPE).unwrap();
        let expected = Header {
            cluster: 7,
            hop: 3,
            output: 0x104,
            sender: 9,
            phase: Phase::First,
            epoch: 0xfe,
            ethertype: ETHERTYPE,
            adjacency: 0x01_0203,
            class: FrameClass::Data,
        };
        assert_eq!(header, expected);
        assert_eq!(header.bytes(), FRAME[..HEADER_BYTES]);
        let mut frame = FRAME;
        let arrivals = Arrivals::new(7, 3, ETHERTYPE);
        let arrival = arrivals.recognize(&frame).unwrap();
        assert_eq!((arrival.output(), arrival.in_phase_1()), (0x104, true));
        arrivals.send_on(arrival, &mut frame);
        let second = Header { hop: 0x104, sender: 3, phase: Phase::Second, ..expected };
        assert_eq!(Header::parse(&frame, ETHERTYPE), Ok(second));
    }

    #[test]
    fn other_frames_are_named() {
        let with = |at: usize, byte: u8| {
            let mut frame = FRAME;
            frame[at] = byte;
            Header::parse(&frame, ETHERTYPE).unwrap_err()
        };
        assert_eq!(Header::parse(&FRAME[..17], ETHERTYPE), Err(FrameError::Short));
        assert_eq!(with(13, 0), FrameError::EtherType);
        assert_eq!([with(0, 3), with(6, 0), with(7, 8)], [FrameError::Address; 3]);
        assert_eq!([with(10, 0), with(10, 3), with(10, 0x81)], [FrameError::Phase; 3]);
        assert_eq!(with(17, 1), FrameError::Class);
    }

    #[test]
    fn a_neighbor_of_the_fabric_names_an_adjacency() {
        let addr = FabricAddr { adjacency: 0xab_cdef, output: 0x102 };
        assert_eq!(addr.mac(), Mac([2, 0xab, 0xcd, 0xef, 1, 2]));
        assert_eq!(FabricAddr::of(addr.mac().0), Some(addr));
        assert_eq!(FabricAddr::of([0x33, 0x33, 0, 0, 0, 1]), None);
    }

    proptest! {
        #[test]
        fn what_is_recognized_is_parsed(
            len in 0usize..30,
            changes in proptest::collection::vec((0usize..20, any::<u8>(), any::<bool>()), 0..4),
        ) {
            let mut frame = FRAME.repeat(2);
            for (at, byte, small) in changes {
                frame[at] = if small { byte & 3 } else { byte };
            }
            frame.truncate(len + 14);
            let parsed = Header::parse(&frame, ETHERTYPE).ok().filter(|header| {
                (header.cluster, header.hop, header.class) == (7, 3, FrameClass::Data)
            });
            let arrivals = Arrivals::new(7, 3, ETHERTYPE);
            let arrival = arrivals.recognize(&frame);
            let seen = arrival.map(|arrival| (arrival.output(), arrival.in_phase_1()));
            prop_assert_eq!(seen, parsed.map(|h| (h.output, h.phase == Phase::First)));
            if let (Some(arrival), Some(header)) = (arrival, parsed) {
                let mut sent = frame.clone();
                arrivals.send_on(arrival, &mut sent);
                let hop = header.output;
                let second = Header { hop, sender: 3, phase: Phase::Second, ..header };
                prop_assert_eq!(Header::parse(&sent, ETHERTYPE), Ok(second));
                prop_assert_eq!(&sent[16..], &frame[16..]);
            }
        }

        #[test]
        fn what_is_parsed_is_written_again(frame in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut frame = frame;
            let ethertype = frame.get(12..14).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
            if let Some(byte) = frame.get_mut(10) {
                *byte &= 3;
            }
            if let Some(head) = frame.first_chunk_mut::<8>() {
                (head[0], head[6], head[7]) = (2, 2, head[1]);
            }
            if let Ok(header) = Header::parse(&frame, ethertype) {
                prop_assert_eq!(&header.bytes()[..], &frame[..HEADER_BYTES]);
            }
        }
    }
}
