//! `AnonymizeIPAddr` replaces the addresses of IPv4 packets by others, which share prefixes as the addresses do.
//!
//! Source: Click's `AnonymizeIPAddr`, and `tcpdpriv -A50`, which it follows. Two addresses with `N` first bits in
//! common become two with `N` first bits in common, and the bits behind those are random. 0.0.0.0 and 255.255.255.255
//! stay. `CLASS N` keeps the leading one bits of an address, up to `N`: with 4, an address of class A, B, C or D
//! becomes one of its class. `PRESERVE_8 "18 128"` keeps the listed `/8` prefixes. `SEED false` leaves the choice to
//! the generator of the configuration, which [`RandomSeed`](super::random) sets: each run then chooses alike. The
//! header checksum is updated, and stays wrong where it was; TCP and UDP checksums, which cover the addresses, are
//! not. Other packets than IPv4 leave by the second output, or are dropped. Differs: in ICMP errors the addresses of
//! the packet inside, and the gateway of a redirect, are replaced as well.
//! Shape: bit `N` of an address changes where a keyed hash of the `N` bits before it is odd (Xu, Fan, Ammar, Moon:
//! Crypto-PAn, ICNP 2002). There is no table, so all workers choose alike.
//! Cost: 32 hashes an address; each worker remembers 1,024 of them.

use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::{Arc, OnceLock};

use super::each::sorting;
use super::random::Random;
use crate::element::support::time;
use crate::frame::wire::checksum::update_long;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::wire::{IP4_BYTES, Ip4};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, Made};

pub(crate) const CLASS: ElementClass = sorting(
    "AnonymizeIPAddr",
    &["out", "others"],
    "replaces IPv4 addresses by others with the same common prefixes",
    |setup| {
        let class = setup.args.keyword::<u32>("CLASS");
        let preserved = setup.list::<u8>("PRESERVE_8");
        let seed = setup.args.keyword("SEED");
        setup.args.finish()?;
        let class = class?.unwrap_or(0);
        if class > 32 {
            return Err(setup.args.refuse_all("CLASS: 0 to 32 are possible"));
        }
        let kept = Arc::new(Kept { class, prefixes: preserved?.unwrap_or_default() });
        let random = (!seed?.unwrap_or(true)).then(|| Random::of(setup));
        let exit = setup.exit(1, DropReason::Unmatched);
        let key = setup.keep::<OnceLock<u64>>();
        Ok(Made::new(move |_| Anonymize {
            kept: kept.clone(),
            key: key.clone(),
            random: random.clone(),
            known: vec![(0, 0); KNOWN],
            exit,
        }))
    },
);

/// Bits that do not change.
struct Kept {
    /// How many leading one bits.
    class: u32,
    /// Prefixes of 8 bits.
    prefixes: Vec<u8>,
}

impl Kept {
    /// Whether the bit behind the first `bits` bits of an address stays.
    fn next_bit(&self, addr: u32, bits: u32) -> bool {
        let same = |other: u32| (addr ^ other) & prefix_mask(bits) == 0;
        bits < self.class && same(u32::MAX)
            || bits < 8 && self.prefixes.iter().any(|&prefix| same(u32::from(prefix) << 24))
    }
}

fn prefix_mask(bits: u32) -> u32 {
    !u32::MAX.checked_shr(bits).unwrap_or(0)
}

/// What becomes of an address by this key.
fn image(kept: &Kept, key: u64, addr: u32) -> u32 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let changes = |bits: u32| {
        hasher.hash_one((key, addr & prefix_mask(bits), bits)) & 1 != 0
            && !kept.next_bit(addr, bits)
    };
    let changed = (0..32).filter(|bits| changes(*bits)).map(|bits| 1_u32 << (31 - bits));
    addr ^ changed.sum::<u32>()
}

/// Addresses that are remembered.
const KNOWN: usize = 1024;

struct Anonymize {
    kept: Arc<Kept>,
    /// What the choice depends on, once it is made; it is that of all workers.
    key: Arc<OnceLock<u64>>,
    /// The generator that makes it, where it is not to be a secret.
    random: Option<Random>,
    /// Addresses and what they become, each at the place of its last bits; 0 becomes 0.
    known: Vec<(u32, u32)>,
    exit: Exit,
}

impl Anonymize {
    fn other(&mut self, addr: u32) -> u32 {
        const SPECIAL: [u32; 2] = [0, u32::MAX];
        if SPECIAL.contains(&addr) {
            return addr;
        }
        let at = addr as usize % KNOWN;
        if self.known[at].0 == addr {
            return self.known[at].1;
        }
        let random = &mut self.random;
        let key = *self.key.get_or_init(|| match random {
            Some(random) => random.number(),
            None => time::random_word(),
        });
        let mut other = image(&self.kept, key, addr);
        // Two addresses would become those that stay: they become what these would have.
        while SPECIAL.contains(&other) {
            other = image(&self.kept, key, other);
        }
        self.known[at] = (addr, other);
        other
    }

    /// Replaces both addresses of an IPv4 header.
    fn replace(&mut self, header: &mut [u8]) {
        for at in [12, 16] {
            let Some(change) = self.replace_one(header, at) else { return };
            update_sum(header, 10, change);
        }
    }

    /// Replaces an address; what it was, and what it is.
    fn replace_one(&mut self, bytes: &mut [u8], at: usize) -> Option<[u32; 2]> {
        let place = bytes.get_mut(at..)?.first_chunk_mut()?;
        let old = u32::from_be_bytes(*place);
        let new = self.other(old);
        *place = new.to_be_bytes();
        Some([old, new])
    }
}

/// Updates a checksum for a word that changed.
fn update_sum(bytes: &mut [u8], at: usize, [old, new]: [u32; 2]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
        *place = update_long(u16::from_be_bytes(*place), old, new).to_be_bytes();
    }
}

/// Types of ICMP messages that have a packet inside: unreachable, source quench, redirect, time exceeded, parameter
/// problem.
const ERRORS: [u8; 5] = [3, 4, REDIRECT, 11, 12];
const REDIRECT: u8 = 5;
/// Bytes before the packet inside.
const ICMP_BYTES: usize = 8;

impl Element for Anonymize {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let network = usize::from(batch.meta()[i].network);
            let packet = batch.bytes_mut(i).get_mut(network..).unwrap_or_default();
            let Some(header) = Ip4::at(packet, 0).filter(|header| header.version() == 4) else {
                self.exit.take(batch, i);
                continue;
            };
            let is_first = header.fragment() & FRAGMENT_OFFSET == 0;
            let is_icmp = header.protocol() == PROTOCOL_ICMP && is_first;
            let behind = header.header_len();
            self.replace(packet);
            let Some(icmp) = packet.get_mut(behind..).filter(|_| is_icmp) else { continue };
            let Some(&kind) = icmp.first().filter(|kind| ERRORS.contains(kind)) else { continue };
            if kind == REDIRECT
                && let Some(change) = self.replace_one(icmp, 4)
            {
                update_sum(icmp, 2, change);
            }
            // Its own checksum makes up for the addresses, so that the message's stays.
            if let Some(inner) = icmp.get_mut(ICMP_BYTES..).filter(|inner| inner.len() >= IP4_BYTES)
            {
                self.replace(inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::frame::wire::checksum::checksum;
    use crate::testing::{Rig, World, frame_v4, refused, run};

    fn images(config: &str, addrs: &[u32]) -> Vec<u32> {
        time::seed(3);
        let mut frames = Vec::new();
        for &addr in addrs {
            let [a, b, c, d] = addr.to_be_bytes();
            frames.push(frame_v4(&format!("{a}.{b}.{c}.{d}"), "255.255.255.255", 9, 17, &[0; 8]));
        }
        let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
        let batch = run(&CLASS, config, 14, &frames);
        (0..batch.len())
            .map(|i| {
                let header = Ip4::at(batch.bytes(i), 14).unwrap();
                assert_eq!(header.dst(), u32::MAX, "it stays");
                assert_eq!(checksum(&batch.bytes(i)[14..34]), 0, "the sum is right again");
                header.src()
            })
            .collect()
    }

    /// Addresses with common prefixes of all lengths.
    fn addrs() -> Vec<u32> {
        let mut addrs = vec![0x1234_5678, 0xffff_fffe, 1, 0xc0a8_0101, 0x8000_0001, 0xe000_0005];
        addrs.extend((0..32).map(|bit| 0x1234_5678 ^ 1 << bit));
        addrs.extend((0..32).map(|bit| u32::MAX << bit).filter(|addr| *addr != u32::MAX));
        addrs
    }

    #[test]
    fn common_prefixes_stay_as_long() {
        let addrs = addrs();
        let others = images("", &addrs);
        assert!(addrs.iter().zip(&others).filter(|(a, b)| a == b).count() < 3, "they are others");
        for (a, x) in addrs.iter().zip(&others) {
            for (b, y) in addrs.iter().zip(&others) {
                assert_eq!((a ^ b).leading_zeros(), (x ^ y).leading_zeros(), "{a:x} and {b:x}");
            }
        }
        assert_eq!(images("", &[0]), [0]);
    }

    #[test]
    fn classes_and_prefixes_may_be_kept() {
        let addrs = addrs();
        for class in [1, 2, 4, 32] {
            for (a, x) in addrs.iter().zip(images(&format!("CLASS {class}"), &addrs)) {
                let ones = |addr: u32| addr.leading_ones().min(class);
                assert_eq!(ones(*a), ones(x), "{a:x} by {class}");
            }
        }
        let nets: Vec<u32> = (0..=255).map(|net| net << 24 | 5).collect();
        let others = images("PRESERVE_8 18 127", &nets);
        for (net, other) in nets.iter().zip(&others) {
            let is_kept = |addr: u32| [18, 127].contains(&(addr >> 24));
            assert!(!is_kept(*net) && !is_kept(*other) || net >> 24 == other >> 24, "{net:x}");
        }
        assert!(nets.iter().zip(&others).any(|(net, other)| net >> 24 != other >> 24));
        assert_eq!(others[19] >> 24, 19, "what is left of 18/7");
        assert!(refused(&CLASS, "CLASS 33").contains("0 to 32"));
        assert!(refused(&CLASS, "PRESERVE_8 18 256").contains("256"));
    }

    #[test]
    fn what_would_become_an_address_that_stays_becomes_another() {
        let kept = Kept { class: 0, prefixes: Vec::new() };
        // The address that would become 0, bit by bit.
        let key = 5;
        let back = (0..32).fold(0, |addr, bits| addr | image(&kept, key, addr) & 1 << (31 - bits));
        assert_eq!(image(&kept, key, back), 0);
        assert!(back > 0 && back < u32::MAX, "{back:x}");
        let secret = Arc::new(OnceLock::from(key));
        let mut element = Anonymize {
            kept: Arc::new(kept),
            key: secret,
            random: None,
            known: vec![(0, 0); KNOWN],
            exit: Exit::by(1, DropReason::Unmatched),
        };
        let other = element.other(back);
        assert_eq!(other, image(&element.kept, key, 0));
        assert_eq!(element.other(back), other, "it is remembered");
    }

    #[test]
    fn packets_inside_icmp_errors_have_other_addresses_too() {
        let inner = frame_v4("10.1.1.1", "10.2.2.2", 9, 17, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let mut icmp = vec![5, 1, 0, 0, 10, 3, 3, 3];
        icmp.extend(&inner[14..]);
        let sum = checksum(&icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        let frame = frame_v4("10.3.3.3", "10.1.1.1", 9, 1, &icmp);
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(a) -> MarkIPHeader(14) -> a :: AnonymizeIPAddr(SEED false) -> ToDevice(x); a [1] -> ToDevice(y)",
        );
        let sent = rig.receive("a", &[&frame, &[0x60; 60]]);
        assert_eq!([&sent[0].0, &sent[1].0], ["x", "y"]);
        let ip = &sent[0].1[14..];
        assert_ne!(ip[12..20], frame[26..34]);
        assert_eq!(ip[16..20], ip[40..44], "the destination is the source inside");
        assert_eq!(ip[12..16], ip[24..28], "the gateway is the sender");
        assert_eq!([&ip[..20], &ip[20..], &ip[28..48]].map(checksum), [0; 3]);
        assert_eq!(ip[48..], inner[34..], "what it carries stays");
        // Another kind of message keeps its bytes, and a later fragment is no message.
        for (at, value) in [(34, 8), (21, 1)] {
            let mut other = frame.clone();
            other[at] = value;
            assert_eq!(rig.receive("a", &[&other])[0].1[34..], other[34..]);
        }
        let seeded = |text: &str| {
            let mut rig = Rig::new(&World::new(), text);
            rig.receive("a", &[&frame]).remove(0).1
        };
        let text = "FromDevice(a) -> MarkIPHeader(14) -> AnonymizeIPAddr(SEED false) -> ToDevice(x); RandomSeed(";
        let [one, again, other] = [7, 7, 8].map(|seed| seeded(&format!("{text}{seed})")));
        assert!(one == again && one != other);
    }

    #[test]
    fn frames_without_ip_leave_apart() {
        let batch = run(&CLASS, "", 14, &[&[0x45; 20], &[0x60; 60], &[]]);
        assert_eq!([0, 1, 2].map(|i| batch.decision(i)), [Decision::Output(1); 3]);
    }
}
