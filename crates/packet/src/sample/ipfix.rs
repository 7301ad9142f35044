//! IPFIX: a flow record of one packet for each sample, and what each interface samples.
//!
//! Source: RFC 7011 (messages, sets, templates, options templates), RFC 7012 and IANA's registry of information elements;
//!         RFC 5477 for the selectors: a selector is an interface, by its kernel index.
//! Shape:  a message is a header of 16 bytes and sets: templates, options templates and selectors in the first message and
//!         after each round of counters, templates also after ten minutes (RFC 7011 8.1 wants them again over UDP), then
//!         records of IPv4 and of IPv6 packets.
//! Cost:   81 bytes an IPv4 packet, 117 an IPv6 packet.
//! Limits: counters of interfaces have no place here: they are sFlow's.

use std::net::IpAddr;

use super::{
    CounterSample, DATAGRAM_BYTES, Egress, Exporter, FlowSample, Now, Put, Routed, Sampler, Send,
};
use crate::frame::wire::icmp::{PROTOCOL_ICMP, PROTOCOL_ICMPV6, Upper, upper_layer};
use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::wire::protocol::TCP;
use crate::frame::wire::{IP6_BYTES, Ip4, Ip6, Ports};

const HEADER: usize = 16;
const SET_HEADER: usize = 4;

/// Numbers of sets: templates, options templates, and one for each template of ours (RFC 7011 3.3.2).
const TEMPLATES: u16 = 2;
const OPTIONS_TEMPLATES: u16 = 3;
const FLOWS_V4: u16 = 256;
const FLOWS_V6: u16 = 257;
const SELECTORS: u16 = 258;

/// Elements of a record with their lengths; the addresses of the families come first.
const ADDRESSES_V4: [(u16, u16); 5] = [
    (8, 4),  // sourceIPv4Address
    (12, 4), // destinationIPv4Address
    (15, 4), // ipNextHopIPv4Address
    (9, 1),  // sourceIPv4PrefixLength
    (13, 1), // destinationIPv4PrefixLength
];
const ADDRESSES_V6: [(u16, u16); 5] = [
    (27, 16), // sourceIPv6Address
    (28, 16), // destinationIPv6Address
    (62, 16), // ipNextHopIPv6Address
    (29, 1),  // sourceIPv6PrefixLength
    (30, 1),  // destinationIPv6PrefixLength
];
/// The last is icmpTypeCodeIPv4 or icmpTypeCodeIPv6.
const COMMON: [(u16, u16); 15] = [
    (4, 1),   // protocolIdentifier
    (5, 1),   // ipClassOfService
    (7, 2),   // sourceTransportPort
    (11, 2),  // destinationTransportPort
    (6, 2),   // tcpControlBits
    (10, 4),  // ingressInterface
    (14, 4),  // egressInterface
    (16, 4),  // bgpSourceAsNumber
    (17, 4),  // bgpDestinationAsNumber
    (89, 1),  // forwardingStatus
    (1, 8),   // octetDeltaCount
    (2, 8),   // packetDeltaCount
    (152, 8), // flowStartMilliseconds
    (153, 8), // flowEndMilliseconds
    (302, 8), // selectorId
];
const ICMP: [(u16, u16); 2] = [(32, 2), (139, 2)];

/// Bytes of the records.
const V4_BYTES: usize = 81;
const V6_BYTES: usize = 117;

/// A selector: its scope first.
const SELECTOR: [(u16, u16); 8] = [
    (302, 8), // selectorId
    (304, 2), // selectorAlgorithm
    (309, 4), // samplingSize
    (310, 4), // samplingPopulation
    (305, 4), // samplingPacketInterval
    (306, 4), // samplingPacketSpace
    (318, 8), // selectorIdTotalPktsObserved
    (319, 8), // selectorIdTotalPktsSelected
];
const SELECTOR_BYTES: usize = 42;

/// `selectorAlgorithm`: random n-out-of-N sampling, the nearest to a random distance with a mean (RFC 5477 8.2.1). Its parameters
/// are a size and a population; interval and space are those of systematic sampling, for collectors that know no other.
const RANDOM: u16 = 3;

/// `forwardingStatus` (RFC 7270 4.12): unknown, dropped (for no reason that has a number, by a rule, as unroutable, for its TTL),
/// consumed by the host.
const UNKNOWN: u8 = 0;
const DROPPED: u8 = 128;
const DENIED: u8 = 129;
const UNROUTABLE: u8 = 131;
const BAD_TTL: u8 = 137;
const CONSUMED: u8 = 192;

/// Code of "destination unreachable" for what is prohibited (RFC 1812 5.2.7.1).
const PROHIBITED: u16 = 13;

/// Longest time between templates: a collector may expire them, and has none after a restart.
const TEMPLATES_MS: u32 = 600_000;

/// Writes messages for one collector.
#[derive(Debug)]
pub struct Messages {
    domain: u32,
    /// Data records in the messages before.
    sequence: u32,
    /// Templates are in the next message.
    announces: bool,
    /// Uptime of the last message with templates.
    announced_ms: u32,
    selectors: Records,
    v4: Records,
    v6: Records,
}

#[derive(Debug, Default)]
struct Records {
    bytes: Vec<u8>,
    count: u32,
}

impl Messages {
    /// Messages of an observation domain.
    pub fn new(domain: u32) -> Self {
        let records = Records::default;
        Self {
            domain,
            sequence: 0,
            announces: true,
            announced_ms: 0,
            selectors: records(),
            v4: records(),
            v6: records(),
        }
    }

    /// Bytes of the message that is begun.
    fn len(&self) -> usize {
        let sets = [&self.selectors, &self.v4, &self.v6];
        let sets = sets.iter().map(|set| match set.bytes.len() {
            0 => 0,
            bytes => SET_HEADER + bytes,
        });
        HEADER + sets.sum::<usize>() + if self.announces { templates().len() } else { 0 }
    }

    /// Makes room for a record of so many bytes.
    fn make_room(&mut self, bytes: usize, now: Now, send: Send<'_>) {
        if self.len() + SET_HEADER + bytes > DATAGRAM_BYTES {
            self.flush(now, send);
        }
    }
}

fn set(to: &mut Vec<u8>, number: u16, body: &[u8]) {
    to.u16(number);
    to.u16(u16::try_from(SET_HEADER + body.len()).expect("a message is short"));
    to.extend(body);
}

fn fields<'a>(to: &mut Vec<u8>, fields: impl Iterator<Item = &'a (u16, u16)>) {
    for (element, bytes) in fields {
        to.u16(*element);
        to.u16(*bytes);
    }
}

/// Templates of the flow records, and the options template of selectors.
fn templates() -> Vec<u8> {
    let count = u16::try_from(ADDRESSES_V4.len() + COMMON.len() + 1).expect("a few");
    let (mut flows, mut all) = (Vec::new(), Vec::new());
    for (number, addresses, icmp) in
        [(FLOWS_V4, &ADDRESSES_V4, &ICMP[0]), (FLOWS_V6, &ADDRESSES_V6, &ICMP[1])]
    {
        flows.u16(number);
        flows.u16(count);
        fields(&mut flows, addresses.iter().chain(&COMMON).chain([icmp]));
    }
    set(&mut all, TEMPLATES, &flows);
    let mut selectors = Vec::new();
    selectors.u16(SELECTORS);
    selectors.u16(u16::try_from(SELECTOR.len()).expect("a few"));
    // One field of scope.
    selectors.u16(1);
    fields(&mut selectors, SELECTOR.iter());
    set(&mut all, OPTIONS_TEMPLATES, &selectors);
    all
}

/// What the record of a packet has of its IP header and what follows that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    class: u8,
    /// Bytes of the IP packet.
    bytes: u64,
    ports: [u16; 2],
    tcp_flags: u16,
    icmp: u16,
}

impl Key {
    fn of(frame: &[u8]) -> Option<Self> {
        let (source, destination) = super::addresses(frame)?;
        let (at, _) = super::network(frame)?;
        let (protocol, class, bytes, upper) = match source {
            IpAddr::V4(_) => {
                let ip = Ip4::at(frame, at)?;
                // Fragments behind the first begin with no header.
                let first = ip.fragment() & FRAGMENT_OFFSET == 0;
                let upper = if first { at + ip.header_len() } else { usize::MAX };
                (ip.protocol(), ip.traffic_class(), ip.total_len() as u64, upper)
            }
            IpAddr::V6(_) => {
                let ip = Ip6::at(frame, at)?;
                // Extension headers that the sample cuts off leave what the first header has.
                let (protocol, upper) = match upper_layer(&frame[at..]) {
                    Some(Upper { fragment: Some(1..), protocol, .. }) => (protocol, usize::MAX),
                    Some(Upper { protocol, at: upper, .. }) => (protocol, at + upper),
                    None => (ip.next_header(), usize::MAX),
                };
                let bytes = (ip.payload_len() + IP6_BYTES) as u64;
                (protocol, ip.traffic_class(), bytes, upper)
            }
        };
        let upper = frame.get(upper..).unwrap_or(&[]);
        let ports = Ports::of(protocol, upper).map_or([0; 2], |ports| [ports.src, ports.dst]);
        let word = |at: usize| match upper.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(word) => u16::from_be_bytes(*word),
            None => 0,
        };
        let tcp_flags = if protocol == TCP { word(12) & 0xfff } else { 0 };
        let icmp = matches!(protocol, PROTOCOL_ICMP | PROTOCOL_ICMPV6).then(|| word(0));
        let icmp = icmp.unwrap_or(0);
        Some(Self { source, destination, protocol, class, bytes, ports, tcp_flags, icmp })
    }
}

fn write(to: &mut Vec<u8>, key: &Key, sample: &FlowSample<'_>, now: Now) {
    let Routed { next_hop, source_len, destination_len, as_numbers } = match sample.routed {
        Some(routed) => routed,
        None => Routed {
            next_hop: std::net::Ipv4Addr::UNSPECIFIED.into(),
            source_len: 0,
            destination_len: 0,
            as_numbers: None,
        },
    };
    match (key.source, key.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let next_hop = match next_hop {
                IpAddr::V4(next_hop) => next_hop.octets(),
                // RFC 8950: it has no place here.
                IpAddr::V6(_) => [0; 4],
            };
            [source.octets(), destination.octets(), next_hop]
                .iter()
                .for_each(|addr| to.extend(addr));
        }
        (source, destination) => {
            for addr in [source, destination, next_hop] {
                to.extend(match addr {
                    IpAddr::V6(addr) => addr.octets(),
                    IpAddr::V4(_) => [0; 16],
                });
            }
        }
    }
    to.u8(source_len);
    to.u8(destination_len);
    to.u8(key.protocol);
    to.u8(key.class);
    key.ports.iter().for_each(|port| to.u16(*port));
    to.u16(key.tcp_flags);
    to.u32(sample.sampler.link);
    let (egress, status) = match sample.egress {
        Egress::Unknown => (0, UNKNOWN),
        // By its route: an ACL, a filter or a policer may have dropped it since.
        Egress::Link(link) => (link, UNKNOWN),
        Egress::Host => (0, CONSUMED),
        Egress::EXPIRED => (0, BAD_TTL),
        Egress::NO_REASON => (0, DROPPED),
        Egress::Dropped(PROHIBITED) => (0, DENIED),
        Egress::Dropped(_) => (0, UNROUTABLE),
    };
    to.u32(egress);
    as_numbers.unwrap_or_default().iter().for_each(|number| to.u32(*number));
    to.u8(status);
    to.u64(key.bytes);
    to.u64(1);
    to.u64(now.unix_ms);
    to.u64(now.unix_ms);
    to.u64(sample.sampler.link.into());
    to.u16(key.icmp);
}

impl Exporter for Messages {
    fn flow(&mut self, sample: &FlowSample<'_>, now: Now, send: Send<'_>) {
        // A flow record is about IP packets.
        let Some(key) = Key::of(sample.header) else { return };
        let is_v4 = key.source.is_ipv4();
        if !self.announces && now.uptime_ms.wrapping_sub(self.announced_ms) >= TEMPLATES_MS {
            self.flush(now, send);
            self.announces = true;
        }
        self.make_room(if is_v4 { V4_BYTES } else { V6_BYTES }, now, send);
        let records = if is_v4 { &mut self.v4 } else { &mut self.v6 };
        let begin = records.bytes.len();
        write(&mut records.bytes, &key, sample, now);
        debug_assert_eq!(records.bytes.len() - begin, if is_v4 { V4_BYTES } else { V6_BYTES });
        records.count += 1;
    }

    fn counters(&mut self, sample: &CounterSample, now: Now, send: Send<'_>) {
        let Some(Sampler { link, rate, packets, samples, .. }) = sample.sampler else { return };
        if !self.announces && self.selectors.count == 0 {
            // Templates come with the first selectors of a round, not with what was begun before them.
            self.flush(now, send);
            self.announces = true;
        }
        self.make_room(SELECTOR_BYTES, now, send);
        let to = &mut self.selectors.bytes;
        to.u64(link.into());
        to.u16(RANDOM);
        to.u32(1);
        to.u32(rate);
        to.u32(1);
        to.u32(rate.saturating_sub(1));
        to.u64(packets);
        to.u64(samples);
        self.selectors.count += 1;
    }

    fn flush(&mut self, now: Now, send: Send<'_>) {
        let counts = [&self.selectors, &self.v4, &self.v6].map(|records| records.count);
        if counts == [0; 3] {
            return;
        }
        let len = u16::try_from(self.len()).expect("a message is short");
        let mut message = Vec::with_capacity(len.into());
        message.u16(10);
        message.u16(len);
        message.u32(now.unix_s());
        message.u32(self.sequence);
        message.u32(self.domain);
        if std::mem::take(&mut self.announces) {
            self.announced_ms = now.uptime_ms;
            message.extend(templates());
        }
        for (number, records) in
            [(SELECTORS, &mut self.selectors), (FLOWS_V4, &mut self.v4), (FLOWS_V6, &mut self.v6)]
        {
            let Records { bytes, count } = std::mem::take(records);
            if count > 0 {
                set(&mut message, number, &bytes);
                self.sequence = self.sequence.wrapping_add(count);
            }
        }
        send(&message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{frame_v4, frame_v6};

    const NOW: Now = Now { uptime_ms: 0, unix_ms: 1_700_000_000_123 };
    const SAMPLER: Sampler = Sampler { link: 7, rate: 1000, packets: 5000, samples: 6, lost: 1 };

    fn sample<'a>(header: &'a [u8], next_hop: &str, egress: Egress) -> FlowSample<'a> {
        let next_hop = next_hop.parse().unwrap();
        let routed =
            Some(Routed { next_hop, source_len: 24, destination_len: 16, as_numbers: None });
        FlowSample { sampler: SAMPLER, header, frame_len: 74, egress, routed }
    }

    fn counters() -> CounterSample {
        let sampler = Some(SAMPLER);
        CounterSample { link: 7, speed: 0, up: true, received: [0; 2], sent: [0; 2], sampler }
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|two| u8::try_from(two[0] << 4 | two[1]).unwrap()).collect()
    }

    fn written(messages: &mut Messages, what: impl Fn(&mut Messages, Send<'_>)) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let mut send = |message: &[u8]| sent.push(message.to_vec());
        what(messages, &mut send);
        messages.flush(NOW, &mut send);
        sent
    }

    /// RFC 7011: the header of 3.1, templates of 3.4.1, the options template of 3.4.2.2, data of 3.4.3.
    #[test]
    fn the_first_message_byte_for_byte() {
        let mut messages = Messages::new(9);
        let sent = written(&mut messages, |to, send| to.counters(&counters(), NOW, send));
        let common = "00040001 00050001 00070002 000b0002 00060002 000a0004 000e0004 00100004 00110004 \
                      00590001 00010008 00020008 00980008 00990008 012e0008";
        let want = hex(&format!(
            "000a 011c 6553f100 00000000 00000009 \
             0002 00b4 \
             0100 0015 00080004 000c0004 000f0004 00090001 000d0001 {common} 00200002 \
             0101 0015 001b0010 001c0010 003e0010 001d0001 001e0001 {common} 008b0002 \
             0003 002a 0102 0008 0001 012e0008 01300002 01350004 01360004 01310004 01320004 013e0008 013f0008 \
             0102 002e 0000000000000007 0003 00000001 000003e8 00000001 000003e7 \
             0000000000001388 0000000000000006"
        ));
        let want_len = u16::try_from(want.len()).unwrap().to_be_bytes();
        assert_eq!(want[2..4], want_len, "the length by hand");
        assert_eq!(sent, [want]);
    }

    #[test]
    fn records_of_both_families_byte_for_byte() {
        let mut messages = Messages::new(9);
        written(&mut messages, |to, send| to.counters(&counters(), NOW, send));
        let mut tcp = vec![0; 20];
        tcp[..4].copy_from_slice(&[0x30, 0x39, 0, 80]);
        // An offset of five words, and a reserved bit besides.
        (tcp[12], tcp[13]) = (0x52, 0x12);
        let four = frame_v4("10.0.0.9", "192.0.2.1", 64, 6, &tcp);
        let six = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 58, &[128, 0, 0, 0]);
        let sent = written(&mut messages, |to, send| {
            to.flow(&sample(&four, "10.0.1.1", Egress::Link(8)), NOW, send);
            let mut six = sample(&six, "2001:db8::1", Egress::Dropped(0));
            six.routed.as_mut().unwrap().as_numbers = Some([64_500, 4_200_000_001]);
            to.flow(&six, NOW, send);
        });
        let want = hex("000a 00de 6553f100 00000001 00000009 \
             0100 0055 0a000009 c0000201 0a000101 18 10 \
             06 00 3039 0050 0212 00000007 00000008 00000000 00000000 00 \
             0000000000000028 0000000000000001 0000018bcfe5687b 0000018bcfe5687b 0000000000000007 0000 \
             0101 0079 20010db8000000000000000000000009 20010db8000500000000000000000001 \
             20010db8000000000000000000000001 18 10 \
             3a 00 0000 0000 0000 00000007 00000000 0000fbf4 fa56ea01 83 \
             000000000000002c 0000000000000001 0000018bcfe5687b 0000018bcfe5687b 0000000000000007 8000");
        assert_eq!(want[2..4], u16::try_from(want.len()).unwrap().to_be_bytes());
        assert_eq!(sent, [want]);
    }

    #[test]
    fn messages_are_bounded_and_numbered_by_records() {
        let mut messages = Messages::new(0);
        let four = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 8]);
        let sent = written(&mut messages, |to, send| {
            (0..40).for_each(|_| to.flow(&sample(&four, "10.0.1.1", Egress::Link(8)), NOW, send));
            to.counters(&counters(), NOW, send);
            to.flow(&sample(&[0; 40], "10.0.1.1", Egress::Unknown), NOW, send);
        });
        let mut records = 0;
        for message in &sent {
            let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
            assert!(message.len() <= DATAGRAM_BYTES && usize::from(word(2)) == message.len());
            assert_eq!(u32::from(word(10)), records, "records before this message");
            let mut at = HEADER;
            while at < message.len() {
                let body = usize::from(word(at + 2)) - SET_HEADER;
                let of = match word(at) {
                    FLOWS_V4 => 81,
                    SELECTORS => SELECTOR_BYTES,
                    _ => usize::MAX,
                };
                records += u32::try_from(body / of).unwrap();
                at += SET_HEADER + body;
            }
        }
        assert_eq!(records, 41, "what is no IP packet has no record");
    }

    #[test]
    fn templates_come_once_a_round() {
        let mut messages = Messages::new(0);
        let sent = written(&mut messages, |to, send| {
            (0..40).for_each(|_| to.counters(&counters(), NOW, send));
        });
        let with_templates = |message: &&Vec<u8>| message[HEADER..][..2] == [0, 2];
        assert_eq!((sent.len(), sent.iter().filter(with_templates).count()), (2, 1));
        assert!(with_templates(&&sent[0]));
    }

    #[test]
    fn templates_come_again_beside_flows_alone() {
        let mut messages = Messages::new(0);
        let four = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 8]);
        let mut with_templates = |uptime_ms| {
            let mut sent = Vec::new();
            let (now, mut send) =
                (Now { uptime_ms, ..NOW }, |message: &[u8]| sent.push(message.to_vec()));
            messages.flow(&sample(&four, "10.0.1.1", Egress::Link(8)), now, &mut send);
            messages.flush(now, &mut send);
            assert_eq!(sent.len(), 1);
            sent[0][HEADER..][..2] == [0, 2]
        };
        assert_eq!(
            [0, 1, 599_999, 600_000, 600_001].map(&mut with_templates),
            [true, false, false, true, false]
        );
        assert!(with_templates(5), "the uptime wrapped around");
    }

    #[test]
    fn reasons_of_drops_have_their_status() {
        let four = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 8]);
        let status = |egress| {
            let mut bytes = Vec::new();
            write(&mut bytes, &Key::of(&four).unwrap(), &sample(&four, "0.0.0.0", egress), NOW);
            bytes[bytes.len() - 43]
        };
        let all = [Egress::EXPIRED, Egress::NO_REASON, Egress::Dropped(13), Egress::Dropped(0)];
        assert_eq!(all.map(status), [137, 128, 129, 131]);
        assert_eq!([Egress::Host, Egress::Link(3)].map(status), [192, 0]);
    }

    #[test]
    fn ports_stand_behind_extension_headers() {
        let udp = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &[0x30, 0x39, 0, 53, 0, 8, 0, 0]].concat();
        let frame = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 60, &udp);
        let key = Key::of(&frame).unwrap();
        assert_eq!((key.protocol, key.ports), (17, [12345, 53]));
    }

    #[test]
    fn fragments_behind_the_first_have_no_ports() {
        let mut frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0x30, 0x39, 0, 53, 0, 0, 0, 0]);
        assert_eq!(Key::of(&frame).unwrap().ports, [12345, 53]);
        frame[14 + 7] = 1;
        assert_eq!(Key::of(&frame).unwrap().ports, [0, 0]);
        // A header that was cut.
        frame[14 + 7] = 0;
        assert_eq!(Key::of(&frame[..36]).unwrap().ports, [0, 0]);
    }
}
