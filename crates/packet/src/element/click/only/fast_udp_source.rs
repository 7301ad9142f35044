//! `FastUDPSource(RATE, LIMIT, LENGTH, SRCETH, SRCIP, SPORT, DSTETH, DSTIP, DPORT)` makes the same UDP packet again and
//! again, in an Ethernet frame; `FastUDPSourceIP6` is the same for IPv6.
//!
//! Source: Click's elements of these names. `LENGTH` counts the Ethernet header, and is 60 at least. A
//! rate of 0 is as fast as they are pulled, a limit below 0 none. `CHECKSUM` and `ACTIVE` are true unless given. Behind each
//! `INTERVAL` packets, unless that is 0, both ports are one higher. The handler `rate` is the rate at which all packets of the
//! limit were made, and 0 before; it is written to change `RATE`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fingerpost_route::Mac;

use super::checksums::fill_checksums;
use crate::element::click::source::{self, LONGEST};
use crate::element::support::allowance::{Allowance, Rate};
use crate::element::support::setting::{Setting, value};
use crate::filter::names::Port;
use crate::frame::wire::checksum::pseudo_v6;
use crate::frame::wire::ether::TYPE_IP6;
use crate::frame::wire::protocol::UDP;
use crate::frame::wire::{ETHER_BYTES, EtherMut, IP4_BYTES, IP6_BYTES, Ip6Mut, UDP_BYTES};
use crate::graph::{ElementClass, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError, Value};

pub(crate) const V4: ElementClass = ElementClass {
    spec: ClassSpec::new("FastUDPSource", "0/1", "h/a", "x/y"),
    summary: "makes the same UDP packet again and again",
    configure: |setup| {
        let family =
            Family { names: ["SRCIP", "DSTIP"], header_bytes: IP4_BYTES, write: v4, sum: sum_v4 };
        configure::<Ipv4Addr>(setup, &family)
    },
};

pub(crate) const V6: ElementClass = ElementClass {
    spec: ClassSpec::new("FastUDPSourceIP6", "0/1", "h/a", "x/y"),
    summary: "makes the same UDP packet over IPv6 again and again",
    configure: |setup| {
        let family =
            Family { names: ["SRCIP6", "DSTIP6"], header_bytes: IP6_BYTES, write: v6, sum: sum_v6 };
        configure::<Ipv6Addr>(setup, &family)
    },
};

/// Least length of a packet.
const LEAST: usize = 60;

/// Where packets come from and go to.
#[derive(Clone)]
pub(super) struct Ends<A> {
    pub(super) addrs: [A; 2],
    pub(super) ports: [u16; 2],
}

/// What differs between IPv4 and IPv6.
struct Family<A> {
    names: [&'static str; 2],
    header_bytes: usize,
    /// Writes headers into a frame of zeros, without their sums.
    write: fn(&mut [u8], &Ends<A>),
    /// Writes the sums of a packet; whether UDP has one.
    sum: fn(&mut [u8], bool),
}

/// When the first and the last packet were made, and how many.
#[derive(Default)]
struct Sent {
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    packets: AtomicU64,
}

impl Sent {
    /// Notes a packet. Relaxed: they are numbers for people.
    fn note(&self, number: u64, now_ns: u64) {
        if number == 0 {
            self.first_ns.store(now_ns, Relaxed);
        }
        self.last_ns.store(now_ns, Relaxed);
        self.packets.store(number + 1, Relaxed);
    }

    /// Packets a second; 0 before all of a limit were made.
    fn rate(&self, limit: i64) -> u64 {
        let packets = self.packets.load(Relaxed);
        if !u64::try_from(limit).is_ok_and(|limit| packets >= limit) {
            return 0;
        }
        let took_ns = self.last_ns.load(Relaxed).saturating_sub(self.first_ns.load(Relaxed));
        packets.saturating_mul(1000) / (took_ns / 1_000_000).max(1)
    }
}

fn configure<A: Value>(setup: &mut Setup<'_>, family: &Family<A>) -> Result<Made, ConfigError> {
    let rate = setup.args.positional::<u32>("RATE");
    let limit = setup.args.positional::<i64>("LIMIT");
    let length = setup.args.positional::<usize>("LENGTH");
    let src_mac = setup.args.positional::<Mac>("SRCETH");
    let src = setup.args.positional::<A>(family.names[0]);
    let sport = setup.args.positional::<Port>("SPORT");
    let dst_mac = setup.args.positional::<Mac>("DSTETH");
    let dst = setup.args.positional::<A>(family.names[1]);
    let dport = setup.args.positional::<Port>("DPORT");
    let checksum = setup.args.optional("CHECKSUM");
    let interval = setup.args.optional::<u32>("INTERVAL");
    let active = setup.args.optional("ACTIVE");
    setup.args.finish()?;
    let (interval, checksum) = (u64::from(interval?.unwrap_or(0)), checksum?.unwrap_or(true));
    let ends = Ends { addrs: [src?, dst?], ports: [sport?.0, dport?.0] };
    let length = length?;
    if length < LEAST {
        setup.args.warn_all("packet length < 60, defaulting to 60");
    }
    let headers = ETHER_BYTES + family.header_bytes;
    let length = length.max(LEAST).max(headers + UDP_BYTES);
    if length > usize::from(LONGEST) {
        return Err(setup.args.refuse_all(&format!("packets have at most {LONGEST} bytes")));
    }
    let mut frame = vec![0; length];
    if let Some(mut ether) = EtherMut::of(&mut frame) {
        ether.set_addrs(dst_mac?, src_mac?);
    }
    (family.write)(&mut frame, &ends);
    let sum = family.sum;
    sum(&mut frame[ETHER_BYTES..], checksum);
    let sent = Arc::new(Sent::default());
    let shown = sent.clone();
    let change = move |frame: &mut [u8], number: u64, now_ns: u64| {
        sent.note(number, now_ns);
        let steps = number.checked_div(interval).unwrap_or(0);
        // The handler `data` may have cut the packet.
        if steps > 0 && frame.len() >= headers + UDP_BYTES {
            for at in [headers, headers + 2] {
                let port = u64::from(u16::from_be_bytes([frame[at], frame[at + 1]])) + steps;
                let [.., high, low] = port.to_be_bytes();
                frame[at..at + 2].copy_from_slice(&[high, low]);
            }
            sum(&mut frame[ETHER_BYTES..], checksum);
        }
    };
    let limit = Setting::new(limit?.max(-1));
    let allowance = allowance(rate?);
    let (active, allowed) = (active?.unwrap_or(true), allowance.as_ref());
    let made = source::of_bytes(setup, &frame, &limit, active, allowed, Arc::new(change));
    let read = Handler::read("rate", move || shown.rate(limit.get()).to_string());
    let write = Handler::write("rate", move |text| {
        let rate = Rate::of_packets(value(text)?);
        // One as fast as they are pulled stays that.
        allowance.as_ref().map_or(Ok(()), |allowance| allowance.set(rate))
    });
    Ok(made.handler(read).handler(write))
}

/// So many packets a second; 0 is as fast as they are pulled.
pub(super) fn allowance(rate: u32) -> Option<Allowance> {
    (rate > 0).then(|| Allowance::of(Rate::of_packets(rate.into())))
}

/// Writes the headers of a frame that has room for them, but for its link addresses and sums.
pub(super) fn v4(frame: &mut [u8], ends: &Ends<Ipv4Addr>) {
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip = &mut frame[ETHER_BYTES..];
    let length = u16::try_from(ip.len()).unwrap_or(u16::MAX);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    // Click's TTL.
    (ip[8], ip[9]) = (250, UDP);
    ip[12..16].copy_from_slice(&ends.addrs[0].octets());
    ip[16..20].copy_from_slice(&ends.addrs[1].octets());
    udp(&mut ip[IP4_BYTES..], ends.ports);
}

/// Writes the sums of a packet over IPv4; whether UDP has one.
pub(super) fn sum_v4(ip: &mut [u8], checksum: bool) {
    fill_checksums(ip);
    if !checksum {
        ip[26..28].fill(0);
    }
}

fn v6(frame: &mut [u8], ends: &Ends<Ipv6Addr>) {
    if let Some(mut ether) = EtherMut::of(frame) {
        ether.set_kind(TYPE_IP6);
    }
    let ip = &mut frame[ETHER_BYTES..];
    let length = u16::try_from(ip.len() - IP6_BYTES).unwrap_or(u16::MAX);
    if let Some(mut header) = Ip6Mut::at(ip, 0) {
        header.set_first(0, 0);
        header.set_payload_len(length);
        header.set_next_header(UDP);
        header.set_hop_limit(250);
        header.set_src(ends.addrs[0].to_bits());
        header.set_dst(ends.addrs[1].to_bits());
    }
    udp(&mut ip[IP6_BYTES..], ends.ports);
}

fn sum_v6(ip: &mut [u8], checksum: bool) {
    let (header, udp) = ip.split_at_mut(IP6_BYTES);
    udp[6..8].fill(0);
    if !checksum {
        return;
    }
    let [src, dst] = [8, 24].map(|at| header[at..].first_chunk().copied().unwrap_or_default());
    let length = u32::try_from(udp.len()).unwrap_or(u32::MAX);
    let sum = pseudo_v6(&src, &dst, UDP, length).bytes(udp).finish();
    udp[6..8].copy_from_slice(&(if sum == 0 { u16::MAX } else { sum }).to_be_bytes());
}

/// Writes ports and length of a UDP header.
fn udp(udp: &mut [u8], ports: [u16; 2]) {
    let length = u16::try_from(udp.len()).unwrap_or(u16::MAX);
    for (at, word) in [0, 2, 4].into_iter().zip([ports[0], ports[1], length]) {
        udp[at..at + 2].copy_from_slice(&word.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn the_packet_is_valid() {
        let text = "s :: FastUDPSource(0, 300, 60, 2:0:0:0:0:1, 10.0.0.1, 5, 2:0:0:0:0:2, 10.0.0.2, 6) -> Strip(14)
            -> CheckIPHeader -> CheckUDPHeader -> ToDevice(x);
            t :: FastUDPSourceIP6(1000, -1, 80, 2:0:0:0:0:1, fe80::1, 5, 2:0:0:0:0:2, fe80::2, 6) -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let mut sent = rig.poll();
        sent.extend(rig.poll());
        let count = |device: &str| sent.iter().filter(|(to, _)| to == device).count();
        assert_eq!((count("x"), count("y"), rig.read("s.count")), (300, 20, "300".into()));
        let ip6 = &sent.iter().find(|(to, _)| to == "y").unwrap().1;
        assert_eq!(
            (ip6.len(), &ip6[12..15], &ip6[54..58]),
            (80, &[0x86, 0xdd, 0x60][..], &[0, 5, 0, 6][..])
        );
        let ip4 = &sent.iter().find(|(to, _)| to == "x").unwrap().1;
        assert_eq!(ip4.len(), 60 - ETHER_BYTES);
        rig.write("t.rate", "5");
        let ends = "2:0:0:0:0:1, 10.0.0.1, 5, 2:0:0:0:0:2, 10.0.0.2, 6";
        assert!(refused(&V4, &format!("1, 1, 1793, {ends}")).contains("at most 1792 bytes"));
        let text = format!("FastUDPSource(0, 1, 40, {ends}) -> ToDevice(x)");
        assert_eq!(Rig::new(&World::new(), &text).poll()[0].1.len(), 60);
    }

    #[test]
    fn ports_rise_and_the_rate_is_measured() {
        let ends =
            |src: &str, dst: &str| format!("2:0:0:0:0:1, {src}, 5, 2:0:0:0:0:2, {dst}, 65534");
        let text = format!(
            "s :: FastUDPSource(0, 5, 60, {}, true, 2) -> Strip(14) -> CheckIPHeader -> CheckUDPHeader -> ToDevice(x);
             t :: FastUDPSourceIP6(1000, 30, 80, {}, INTERVAL 10) -> Strip(14) -> CheckIP6Header -> ToDevice(y);
             FastUDPSourceIP6(0, 3, 80, {}, false, 2) -> ToDevice(z)",
            ends("10.0.0.1", "10.0.0.2"),
            ends("fe80::1", "fe80::2"),
            ends("fe80::1", "fe80::2"),
        );
        let mut rig = Rig::new(&World::new(), &text);
        assert_eq!(["s.rate", "t.rate"].map(|name| rig.read(name)), ["0", "0"]);
        let mut sent = rig.poll();
        rig.bench.now_ns += 10_000_000;
        sent.extend(rig.poll());
        let of = |device: &str, at: usize| {
            let frames = sent.iter().filter(|(to, _)| to == device);
            frames.map(|(_, frame)| frame[at..].to_vec()).collect::<Vec<_>>()
        };
        let ports: Vec<_> = of("x", 20).iter().map(|udp| [udp[1], udp[2], udp[3]]).collect();
        let want = [[5, 255, 254], [5, 255, 254], [6, 255, 255], [6, 255, 255], [7, 0, 0]];
        assert_eq!(ports, want, "and begin anew at the end");
        // 20 packets are a burst of the rate; the sum over all is 0.
        let packets = of("y", 0);
        assert_eq!(packets.len(), 30);
        for packet in &packets {
            let ends = [8, 24].map(|at| packet[at..at + 16].try_into().unwrap());
            assert_eq!(pseudo_v6(&ends[0], &ends[1], UDP, 26).bytes(&packet[40..]).finish(), 0);
        }
        assert_eq!([0, 10, 29].map(|at| packets[at][41]), [5, 6, 7]);
        assert!(of("z", 60).iter().all(|udp| udp[..2] == [0, 0]));
        assert_eq!(["s.rate", "t.rate"].map(|name| rig.read(name)), ["5000", "3000"]);
    }
}
