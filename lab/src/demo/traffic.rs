//! What is sent, and what must arrive: destinations drawn from the table, frames made for them, and
//! checked against a longest-prefix match that shares nothing with the router's.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fingerpost_command::load::Reader;
use fingerpost_lpm::oracle::Oracle as Lpm;
use fingerpost_lpm::{Addr, NextHopId, Prefix, Rng};
use fingerpost_packet::frame::wire::checksum;
use fingerpost_route::source::table::{FileHop, PeerChoice};
use fingerpost_route::{AnyPrefix, Mac};

use super::lab::{SOURCE_MAC, hop_addr, hop_mac, hop_port, port_mac};
use crate::traffic::generator::{TAIL_BYTES, Tail, udp_frame};

/// Distinct destinations: enough that neither a cache nor a predictor learns them.
const DESTINATIONS: usize = 65_536;
/// One destination of so many is IPv6.
const V6_EVERY: usize = 4;
/// Frames of both families have this length, so that one generator makes both.
pub(super) const FRAME_BYTES: usize = 78;
const TTL: u8 = 64;
const PORTS: [u16; 2] = [4660, 9];
const ETHERNET: usize = 14;

/// The tables, as the oracle of what must arrive.
pub(super) struct Oracle {
    v4: Lpm<u32>,
    v6: Lpm<u128>,
    pub(super) prefixes: Vec<(AnyPrefix, u16)>,
}

impl Oracle {
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut oracle = Self { v4: Lpm::new(), v6: Lpm::new(), prefixes: Vec::new() };
        for path in paths {
            for entry in Reader::open(path, PeerChoice::First).context("the shipped tables")? {
                let entry = entry.context("the shipped tables")?;
                let hop = hop_number(entry.hop).context("next hop not of the shipped tables")?;
                match entry.prefix {
                    AnyPrefix::V4(prefix) => oracle.v4.set(prefix, NextHopId(hop.into())),
                    AnyPrefix::V6(prefix) => oracle.v6.set(prefix, NextHopId(hop.into())),
                };
                oracle.prefixes.push((entry.prefix, hop));
            }
        }
        Ok(oracle)
    }

    /// The next hop of a destination.
    fn hop(&self, addr: IpAddr) -> u16 {
        let id = match addr {
            IpAddr::V4(a) => self.v4.lookup(a.to_bits()),
            IpAddr::V6(a) => self.v6.lookup(a.to_bits()),
        };
        u16::try_from(id.0).expect("the tables have 496 next hops")
    }
}

/// The number in the address of a next hop.
fn hop_number(hop: FileHop) -> Option<u16> {
    let FileHop::Addr(addr) = hop else { return None };
    let number = match addr {
        IpAddr::V4(a) => u16::try_from(a.to_bits() & 0xffff).ok()?,
        IpAddr::V6(a) => u16::try_from(a.to_bits() & 0xffff).ok()?,
    };
    (hop_addr(number, addr.is_ipv6()) == addr).then_some(number)
}

/// One flow: what is sent, and what must come of it.
pub(super) struct Flow {
    pub(super) frame: Vec<u8>,
    pub(super) hop: u16,
    /// Index of the output that it leaves by.
    pub(super) port: usize,
}

/// Frames to destinations drawn from the table: a random host in a random announced prefix.
pub(super) fn flows(oracle: &Oracle) -> Vec<Flow> {
    // Fixed: the same traffic at each run.
    let mut random = Rng::new(0x2545_f491_4f6c_dd1d);
    let v4: Vec<Prefix<u32>> = oracle
        .prefixes
        .iter()
        .filter_map(|(p, _)| if let AnyPrefix::V4(p) = p { Some(*p) } else { None })
        .collect();
    let v6: Vec<Prefix<u128>> = oracle
        .prefixes
        .iter()
        .filter_map(|(p, _)| if let AnyPrefix::V6(p) = p { Some(*p) } else { None })
        .collect();
    let mut flows = Vec::with_capacity(DESTINATIONS);
    while flows.len() < DESTINATIONS {
        let destination = if flows.len() % V6_EVERY == 0 {
            let prefix = v6[random.below(v6.len())];
            random.host(prefix).to_ip()
        } else {
            let prefix = v4[random.below(v4.len())];
            random.host(prefix).to_ip()
        };
        if !forwardable(destination) {
            continue;
        }
        let source = match destination {
            IpAddr::V4(_) => IpAddr::from([198, 18, 0, 2]),
            IpAddr::V6(_) => IpAddr::from([0x2001, 2, 0, 0, 0, 0, 0, 2]),
        };
        let macs = [port_mac(0).0, SOURCE_MAC.0];
        let frame = udp_frame(macs, [source, destination], PORTS, TTL, FRAME_BYTES);
        let hop = oracle.hop(destination);
        flows.push(Flow { frame, hop, port: hop_port(hop) });
    }
    flows
}

/// Whether a router may forward to it (real tables also announce what one may not).
fn forwardable(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(a) => {
            let [a, b, ..] = a.octets();
            !(a == 0 || a == 127 || a >= 224 || (a, b) == (169, 254) || (a, b & 0xfe) == (198, 18))
        }
        IpAddr::V6(a) => {
            let s = a.segments();
            s[0] >> 13 == 1 && s[..3] != [0x2001, 2, 0]
        }
    }
}

/// Checks packets at the destination.
pub(super) struct Checker<'a> {
    flows: &'a [Flow],
    /// The latest sequence number of each flow.
    latest: Vec<Option<u32>>,
    hops: Vec<bool>,
    pub(super) verified: u64,
    pub(super) wrong: u64,
    pub(super) samples: Vec<String>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(flows: &'a [Flow]) -> Self {
        Self {
            flows,
            latest: vec![None; flows.len()],
            hops: vec![false; usize::from(u16::MAX) + 1],
            verified: 0,
            wrong: 0,
            samples: Vec::new(),
        }
    }

    /// One frame that arrived at an output's far end.
    pub(super) fn check(&mut self, port: usize, frame: &[u8]) {
        self.verified += 1;
        if let Err(what) = self.verify(port, frame) {
            self.wrong += 1;
            if self.samples.len() < 5 {
                self.samples.push(what);
            }
        }
    }

    fn verify(&mut self, port: usize, frame: &[u8]) -> Result<(), String> {
        let tail = Tail::of(frame).ok_or("the tail is damaged")?;
        let number = tail.template as usize;
        let flow = self.flows.get(number).ok_or_else(|| format!("no flow {number}"))?;
        let name = format!("flow {number} to next hop {}", flow.hop);
        self.hops[usize::from(flow.hop)] = true;
        if port != flow.port {
            return Err(format!("{name}: left by output {port}"));
        }
        let want = [hop_mac(flow.hop), port_mac(1 + flow.port)];
        let got = [&frame[..6], &frame[6..12]].map(|b| Mac(b.try_into().expect("six bytes")));
        if got != want {
            return Err(format!("{name}: MACs {got:?}, not {want:?}"));
        }
        // But for TTL, checksum and tail it is what was sent.
        let mut sent = flow.frame.clone();
        let (ttl, end) = (if frame[12] == 0x08 { 22 } else { 21 }, sent.len() - TAIL_BYTES);
        sent[ttl] = TTL - 1;
        if frame[12] == 0x08 {
            let header = &frame[ETHERNET..ETHERNET + 20];
            if checksum::checksum(header) != 0 {
                return Err(format!("{name}: the header checksum is wrong"));
            }
            sent[24..26].copy_from_slice(&frame[24..26]);
        }
        if frame[12..end] != sent[12..end] {
            return Err(format!("{name}: the content changed"));
        }
        if let Some(latest) = self.latest[number].replace(tail.sequence)
            && tail.sequence.wrapping_sub(latest).cast_signed() <= 0
        {
            return Err(format!("{name}: {} came after {latest}", tail.sequence));
        }
        Ok(())
    }

    /// Next hops that packets were seen to.
    pub(super) fn hops(&self) -> usize {
        self.hops.iter().filter(|&&seen| seen).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_packet::frame::wire::checksum::checksum as sum;

    fn flow(number: u32) -> (Flow, Vec<u8>) {
        let macs = [port_mac(0).0, SOURCE_MAC.0];
        let to = IpAddr::from([10, 0, 0, 1]);
        let frame = udp_frame(macs, [IpAddr::from([198, 18, 0, 2]), to], PORTS, TTL, FRAME_BYTES);
        let mut arrived = frame.clone();
        arrived[..6].copy_from_slice(&hop_mac(200).0);
        arrived[6..12].copy_from_slice(&port_mac(2).0);
        arrived[22] -= 1;
        arrived[24..26].fill(0);
        let check = sum(&arrived[14..34]);
        arrived[24..26].copy_from_slice(&check.to_be_bytes());
        Tail { sequence: number, template: 0 }.write(&mut arrived);
        (Flow { frame, hop: 200, port: 1 }, arrived)
    }

    #[test]
    fn every_kind_of_damage_is_seen() {
        let (first, good) = flow(7);
        let flows = [first];
        let mut checker = Checker::new(&flows);
        checker.check(1, &good);
        assert_eq!((checker.verified, checker.wrong, checker.hops()), (1, 0, 1));
        checker.check(1, &good);
        assert!(checker.samples[0].contains("7 came after 7"));
        checker.check(0, &flow(8).1);
        for at in [0, 11, 13, 22, 24, 30, 40, FRAME_BYTES - 1] {
            let mut bad = flow(9).1;
            bad[at] ^= 1;
            checker.check(1, &bad);
        }
        checker.check(1, &flow(10).1);
        assert_eq!((checker.verified, checker.wrong), (12, 10));
    }
}
