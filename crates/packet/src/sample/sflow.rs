//! sFlow version 5: flow samples and counter samples.
//!
//! Source: "sFlow Version 5" (P. Phaal, M. Lavine, sflow.org, July 2004); XDR of its section 5. A packet has the records
//!         `sampled_header` (format 1), `extended_router` (format 1002) and, by a table of AS numbers, `extended_gateway`
//!         (format 1003) in a `flow_sample` (format 1); an interface has `if_counters` (format 1) in a `counters_sample` (format 2).
//! Shape:  a datagram is a header of 28 or 40 bytes, and samples, each of which states its length.
//! Cost:   a copy of the header, and about 100 bytes beside it.
//! Limits: kernel indices below 2^24 (a `source_id` has no more); others are reported as 0.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{CounterSample, DATAGRAM_BYTES, Egress, Exporter, FlowSample, Now, Put, Send};

/// Formats of samples and records, with enterprise 0 (section 5, `data_format`).
const FLOW_SAMPLE: u32 = 1;
const COUNTERS_SAMPLE: u32 = 2;
const SAMPLED_HEADER: u32 = 1;
const EXTENDED_ROUTER: u32 = 1002;
const EXTENDED_GATEWAY: u32 = 1003;
const IF_COUNTERS: u32 = 1;

/// `as_path_segment_type` of a sequence.
const AS_SEQUENCE: u32 = 2;

/// `header_protocol` of Ethernet frames.
const ETHERNET: u32 = 1;

/// Bytes of the frame check sequence: frame lengths include it, though it was stripped.
const FCS_BYTES: u32 = 4;

/// `interface`: formats of an output (upper two bits), and the output that is the router itself.
const DISCARDED: u32 = 1 << 30;
const INTERNAL: u32 = 0x3fff_ffff;

/// Value of a counter that is not known.
const UNKNOWN: u32 = u32::MAX;

/// Writes datagrams for one collector.
#[derive(Debug)]
pub struct Datagrams {
    agent: IpAddr,
    header_bytes: usize,
    sequence: u32,
    /// Numbers of the last flow sample and the last counter sample of each interface.
    sources: BTreeMap<u32, [u32; 2]>,
    samples: Vec<u8>,
    count: u32,
}

impl Datagrams {
    /// Datagrams of the agent with this address, with at most `header_bytes` of each packet.
    pub fn new(agent: IpAddr, header_bytes: usize) -> Self {
        Self {
            agent,
            header_bytes,
            sequence: 0,
            sources: BTreeMap::new(),
            samples: Vec::with_capacity(2 * DATAGRAM_BYTES),
            count: 0,
        }
    }

    /// Adds a sample whose body `write` appends; its format and its length are written before that.
    fn add(&mut self, format: u32, now: Now, send: Send<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.samples.len();
        opaque(&mut self.samples, format, write);
        if begin > 0 && self.samples.len() > DATAGRAM_BYTES - 40 {
            let later = self.samples.split_off(begin);
            self.flush(now, send);
            self.samples.extend(later);
        }
        self.count += 1;
    }

    /// Number of the next sample of an interface.
    fn number(&mut self, link: u32, kind: usize) -> u32 {
        let last = &mut self.sources.entry(link).or_default()[kind];
        *last = last.wrapping_add(1);
        *last
    }
}

/// Format and length of an opaque value, and what `write` appends.
fn opaque(to: &mut Vec<u8>, format: u32, write: impl FnOnce(&mut Vec<u8>)) {
    to.u32(format);
    let at = to.len();
    to.u32(0);
    write(to);
    let len = u32::try_from(to.len() - at - 4).expect("a datagram is short");
    to[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

/// An address with its type.
fn address(to: &mut Vec<u8>, addr: IpAddr) {
    match addr {
        IpAddr::V4(addr) => {
            to.u32(1);
            to.extend(addr.octets());
        }
        IpAddr::V6(addr) => {
            to.u32(2);
            to.extend(addr.octets());
        }
    }
}

/// A kernel index, as `sflow_data_source` and `interface` have it.
fn index(link: u32) -> u32 {
    if link < 1 << 24 { link } else { 0 }
}

fn output(egress: Egress) -> u32 {
    match egress {
        Egress::Unknown => 0,
        Egress::Link(link) => index(link),
        Egress::Host => INTERNAL,
        Egress::Dropped(reason) => DISCARDED | u32::from(reason),
    }
}

impl Exporter for Datagrams {
    fn flow(&mut self, sample: &FlowSample<'_>, now: Now, send: Send<'_>) {
        let (sampler, number) = (&sample.sampler, self.number(sample.sampler.link, 0));
        let header = &sample.header[..sample.header.len().min(self.header_bytes)];
        self.add(FLOW_SAMPLE, now, send, |to| {
            to.u32(number);
            to.u32(index(sampler.link));
            to.u32(sampler.rate);
            to.low(sampler.packets);
            to.low(sampler.lost);
            to.u32(index(sampler.link));
            to.u32(output(sample.egress));
            let gateway = sample.routed.and_then(|routed| routed.as_numbers);
            to.u32(1 + u32::from(sample.routed.is_some()) + u32::from(gateway.is_some()));
            opaque(to, SAMPLED_HEADER, |to| {
                to.u32(ETHERNET);
                to.u32(sample.frame_len.saturating_add(FCS_BYTES));
                to.u32(FCS_BYTES);
                to.u32(u32::try_from(header.len()).expect("at most HEADER_BYTES"));
                to.extend(header);
                // To a multiple of 4 bytes (RFC 4506 4.10).
                to.resize(to.len() + header.len().next_multiple_of(4) - header.len(), 0);
            });
            if let Some(routed) = sample.routed {
                opaque(to, EXTENDED_ROUTER, |to| {
                    address(to, routed.next_hop);
                    to.u32(routed.source_len.into());
                    to.u32(routed.destination_len.into());
                });
            }
            if let Some((routed, [source, destination])) = sample.routed.zip(gateway) {
                opaque(to, EXTENDED_GATEWAY, |to| {
                    address(to, routed.next_hop);
                    // The router's own AS and that of the source's peer are not known.
                    [0, source, 0].iter().for_each(|number| to.u32(*number));
                    // A path of one segment of one AS, or an empty one.
                    if destination == 0 {
                        to.u32(0);
                    } else {
                        [1, AS_SEQUENCE, 1, destination].iter().for_each(|word| to.u32(*word));
                    }
                    // No communities, and no local preference.
                    [0, 0].iter().for_each(|word| to.u32(*word));
                });
            }
        });
    }

    fn counters(&mut self, sample: &CounterSample, now: Now, send: Send<'_>) {
        let number = self.number(sample.link, 1);
        self.add(COUNTERS_SAMPLE, now, send, |to| {
            to.u32(number);
            to.u32(index(sample.link));
            to.u32(1);
            opaque(to, IF_COUNTERS, |to| {
                to.u32(sample.link);
                // ethernetCsmacd.
                to.u32(6);
                to.u64(sample.speed);
                // Full duplex; both bits of the state are those of a link that is up, or of none.
                to.u32(1);
                to.u32(if sample.up { 3 } else { 0 });
                // Behind the packets: multicasts, broadcasts, discards, errors, and of received ones unknown protocols.
                for ([bytes, packets], unknown) in [(sample.received, 5), (sample.sent, 4)] {
                    to.u64(bytes);
                    to.low(packets);
                    (0..unknown).for_each(|_| to.u32(UNKNOWN));
                }
                // Not promiscuous, as far as that is known.
                to.u32(0);
            });
        });
    }

    fn flush(&mut self, now: Now, send: Send<'_>) {
        if self.count == 0 {
            return;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let mut datagram = Vec::with_capacity(self.samples.len() + 40);
        datagram.u32(5);
        address(&mut datagram, self.agent);
        // One agent, without parts.
        datagram.u32(0);
        datagram.u32(self.sequence);
        datagram.u32(now.uptime_ms);
        datagram.u32(self.count);
        datagram.append(&mut self.samples);
        self.count = 0;
        send(&datagram);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Routed, Sampler};

    const NOW: Now = Now { uptime_ms: 0x0102_0304, unix_ms: 0 };
    const SAMPLER: Sampler =
        Sampler { link: 7, rate: 1000, packets: 0x1_0000_1388, samples: 6, lost: 1 };

    fn sample(header: &[u8], routed: Option<Routed>) -> FlowSample<'_> {
        let egress = if routed.is_some() { Egress::Link(9) } else { Egress::Dropped(0) };
        FlowSample { sampler: SAMPLER, header, frame_len: 1514, egress, routed }
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|two| u8::try_from(two[0] << 4 | two[1]).unwrap()).collect()
    }

    fn written(datagrams: &mut Datagrams, what: impl Fn(&mut Datagrams, Send<'_>)) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let mut send = |datagram: &[u8]| sent.push(datagram.to_vec());
        what(datagrams, &mut send);
        datagrams.flush(NOW, &mut send);
        sent
    }

    /// The numbers are those of the grammar in section 5 of the specification, field by field.
    #[test]
    fn a_flow_sample_byte_for_byte() {
        let routed = Routed {
            next_hop: "2001:db8::1".parse().unwrap(),
            source_len: 48,
            destination_len: 32,
            as_numbers: None,
        };
        let header = [0xaa, 0xbb, 0xcc, 0xdd, 0xee];
        let mut datagrams = Datagrams::new("192.0.2.9".parse().unwrap(), 128);
        let sent =
            written(&mut datagrams, |to, send| to.flow(&sample(&header, Some(routed)), NOW, send));
        let want = hex("00000005 00000001 c0000209 00000000 00000001 01020304 00000001 \
             00000001 00000064 \
             00000001 00000007 000003e8 00001388 00000001 00000007 00000009 00000002 \
             00000001 00000018 00000001 000005ee 00000004 00000005 aabbccdd ee000000 \
             000003ea 0000001c 00000002 20010db8 00000000 00000000 00000001 00000030 00000020");
        assert_eq!(sent, [want]);
    }

    #[test]
    fn as_numbers_byte_for_byte() {
        let routed = |source, destination| Routed {
            next_hop: "192.0.2.1".parse().unwrap(),
            source_len: 24,
            destination_len: 16,
            as_numbers: Some([source, destination]),
        };
        for (numbers, len, body) in [
            ((64_500, 0x1_0001), "2c", "0000fbf4 00000000 00000001 00000002 00000001 00010001"),
            ((0, 0), "20", "00000000 00000000 00000000"),
        ] {
            let mut datagrams = Datagrams::new("192.0.2.9".parse().unwrap(), 128);
            let routed = Some(routed(numbers.0, numbers.1));
            let sent =
                written(&mut datagrams, |to, send| to.flow(&sample(&[7; 4], routed), NOW, send));
            let want = hex(&format!(
                "000003ea 00000010 00000001 c0000201 00000018 00000010 \
                 000003eb 000000{len} 00000001 c0000201 00000000 {body} 00000000 00000000"
            ));
            assert!(sent[0].ends_with(&want), "{:02x?}", sent[0]);
            // Behind the header of the datagram and seven words: the number of records.
            assert_eq!(sent[0][28 + 8 + 28..][..4], [0, 0, 0, 3]);
        }
    }

    #[test]
    fn a_dropped_packet_of_an_ipv6_agent_byte_for_byte() {
        let mut datagrams = Datagrams::new("2001:db8::9".parse().unwrap(), 4);
        let first = written(&mut datagrams, |to, send| to.flow(&sample(&[1; 9], None), NOW, send));
        assert_eq!(first.len(), 1);
        let sent = written(&mut datagrams, |to, send| to.flow(&sample(&[1; 9], None), NOW, send));
        let want = hex(
            "00000005 00000002 20010db8 00000000 00000000 00000009 00000000 00000002 01020304 00000001 \
             00000001 0000003c \
             00000002 00000007 000003e8 00001388 00000001 00000007 40000000 00000001 \
             00000001 00000014 00000001 000005ee 00000004 00000004 01010101",
        );
        assert_eq!(sent, [want], "both numbers count, and the header is cut");
    }

    #[test]
    fn a_counter_sample_byte_for_byte() {
        let counters = CounterSample {
            link: 7,
            speed: 10_000_000_000,
            up: true,
            received: [0x1_0000_0002, 3],
            sent: [4, 0x2_0000_0005],
            sampler: None,
        };
        let mut datagrams = Datagrams::new("192.0.2.9".parse().unwrap(), 128);
        let sent = written(&mut datagrams, |to, send| to.counters(&counters, NOW, send));
        let want = hex("00000005 00000001 c0000209 00000000 00000001 01020304 00000001 \
             00000002 0000006c 00000001 00000007 00000001 \
             00000001 00000058 00000007 00000006 00000002 540be400 00000001 00000003 \
             00000001 00000002 00000003 ffffffff ffffffff ffffffff ffffffff ffffffff \
             00000000 00000004 00000005 ffffffff ffffffff ffffffff ffffffff 00000000");
        assert_eq!(sent, [want]);
    }

    #[test]
    fn datagrams_are_filled_and_bounded() {
        let mut datagrams = Datagrams::new("192.0.2.9".parse().unwrap(), 128);
        let sent = written(&mut datagrams, |to, send| {
            (0..20).for_each(|_| to.flow(&sample(&[1; 256], None), NOW, send));
        });
        let sizes: Vec<usize> = sent.iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|size| *size <= DATAGRAM_BYTES) && sizes.len() == 3, "{sizes:?}");
        let counts = sent.iter().map(|datagram| datagram[27]);
        assert_eq!(counts.sum::<u8>(), 20);
        assert_eq!(sent.iter().map(|datagram| datagram[19]).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(written(&mut datagrams, |_, _| ()), [] as [Vec<u8>; 0], "nothing to send");
    }
}
