//! Destination of packets as routes see it: `SetIPAddress(ADDR)` lets packets go by an address, `GetIPAddress(OFFSET)`
//! and `GetIP6Address(OFFSET)` by the one that they have there; `StoreIPAddress([ADDR,] OFFSET)` writes an address into
//! them, and `SetRandIPAddress(PREFIX)` lets them go by a random one of a prefix.
//!
//! Source: Click's elements of these names; its destination address annotation is the number of a gateway here, and
//! none where the address is that of the packet's own header. `GetIPAddress(IP dst)` means the header's field.
//! `StoreIPAddress` without an address stores that of the gateway; an `OFFSET` of `src` or `dst` means the header's
//! field, whose checksums follow. `ANNO` is 4 to 16 for four bytes that nothing goes by.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fingerpost_lpm::Prefix;

use super::each::{class, each, sorting};
use super::random::Random;
use super::rewriter::packet::rewrite;
use super::rewriter::pattern::FlowId;
use super::seen::long;
use crate::element::support::byte_anno::numbered;
use crate::element::support::setting::Setting;
use crate::frame::wire::{Ip4, Ip6};
use crate::frame::{Batch, DropReason, Hop};
use crate::graph::{ElementClass, Setup};
use crate::language::ConfigError;
use crate::route_table::gateways::Gateways;

pub(crate) const SET: ElementClass =
    class("SetIPAddress", "lets packets go by an address", |setup| {
        let addr = setup.args.positional::<Ipv4Addr>("IPADDR");
        let annotation = Annotation::read(setup)?;
        setup.args.finish()?;
        let addr = Setting::new(addr?);
        let shown = addr.clone();
        let made = each(move |batch, i| annotation.set(batch, i, addr.get()))?;
        Ok(shown.handled(made, "addr"))
    });

pub(crate) const SET6: ElementClass =
    class("SetIP6Address", "lets packets go by an IPv6 address", |setup| {
        let addr = setup.args.positional::<Ipv6Addr>("IPADDR");
        setup.args.finish()?;
        let (addr, gateways) = (addr?, setup.gateways.clone());
        each(move |batch, i| go_by(&gateways, batch, i, IpAddr::V6(addr)))
    });

pub(crate) const GET: ElementClass =
    class("GetIPAddress", "lets packets go by an address that they have", |setup| {
        let offset = setup.args.optional::<usize>("OFFSET");
        let annotation = Annotation::read(setup)?;
        let field = setup.args.keyword::<String>("IP");
        setup.args.finish()?;
        let field = match field?.as_deref() {
            None => None,
            Some("src") => Some(SRC),
            Some("dst") => Some(DST),
            Some(_) => return Err(setup.args.refuse_all("IP: `src` and `dst` are possible")),
        };
        let offset = offset?;
        if offset.is_some() == field.is_some() {
            return Err(setup.args.refuse_all("give one of OFFSET and IP"));
        }
        each(move |batch, i| {
            let network = usize::from(batch.meta()[i].network);
            let at = field.map_or(offset, |field| Some(network + field)).unwrap_or(0);
            match long(batch.bytes(i), at) {
                Some(addr) => annotation.set(batch, i, Ipv4Addr::from_bits(addr)),
                None => batch.discard(i, DropReason::TooShort),
            }
        })
    });

pub(crate) const GET6: ElementClass =
    class("GetIP6Address", "lets packets go by an IPv6 address that they have", |setup| {
        let offset = setup.args.positional::<usize>("OFFSET");
        setup.args.finish()?;
        let (offset, gateways) = (offset?, setup.gateways.clone());
        each(move |batch, i| {
            match batch.bytes(i).get(offset..).and_then(|bytes| bytes.first_chunk::<16>()) {
                Some(&addr) => go_by(&gateways, batch, i, IpAddr::V6(addr.into())),
                None => batch.discard(i, DropReason::TooShort),
            }
        })
    });

pub(crate) const STORE: ElementClass =
    sorting("StoreIPAddress", &["out", "short"], "writes an address into packets", |setup| {
        let first = setup.args.positional_arg("ADDR");
        let second = setup.args.optional_arg("OFFSET");
        setup.args.finish()?;
        let (addr, offset) = match (first?, second?) {
            (offset, None) => (None, offset),
            (addr, Some(offset)) => (Some(setup.args.read::<Ipv4Addr>(&addr, "ADDR")?), offset),
        };
        let place = match offset.raw() {
            "src" => Place::Field(SRC),
            "dst" => Place::Field(DST),
            _ => Place::At(setup.args.read(&offset, "OFFSET")?),
        };
        let (exit, gateways) = (setup.exit(1, DropReason::TooShort), setup.gateways.clone());
        each(move |batch, i| {
            let addr = addr.or_else(|| gone_by(&gateways, batch, i)).map(Ipv4Addr::to_bits);
            let network = usize::from(batch.meta()[i].network);
            let stored = match (addr, place) {
                (None, _) => None,
                (Some(addr), Place::At(at)) => batch
                    .bytes_mut(i)
                    .get_mut(at..at.saturating_add(4))
                    .map(|bytes| bytes.copy_from_slice(&addr.to_be_bytes())),
                (Some(addr), Place::Field(field)) => {
                    batch.bytes_mut(i).get_mut(network..).and_then(|ip| readdress(ip, field, addr))
                }
            };
            if stored.is_none() {
                exit.take(batch, i);
            }
        })
    });

pub(crate) const RANDOM: ElementClass =
    class("SetRandIPAddress", "lets packets go by a random address of a prefix", |setup| {
        let prefix = setup.args.positional::<Prefix<u32>>("PREFIX");
        let limit = setup.args.optional::<u32>("LIMIT");
        setup.args.finish()?;
        let (prefix, limit) = (prefix?, limit?.unwrap_or(MOST_RANDOM).clamp(1, MOST_RANDOM));
        let host_bits = u32::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
        let gateways = setup.gateways.clone();
        let mut random = Random::of(setup);
        each(move |batch, i| {
            let [a, b, c, d, ..] = random.number().to_le_bytes();
            // So many of the addresses, spread over the prefix.
            let number = u32::from_le_bytes([a, b, c, d]) % limit;
            let addr = prefix.addr() | number.wrapping_mul(0x9e37_79b1) & host_bits;
            go_by(&gateways, batch, i, IpAddr::V4(Ipv4Addr::from_bits(addr)));
        })
    });

/// Addresses that one `SetRandIPAddress` uses at most: far fewer than packets may have
/// ([`crate::route_table::gateways::MOST_OF_PACKETS`]).
const MOST_RANDOM: u32 = 1024;

/// Offsets of the addresses in an IPv4 header.
const SRC: usize = 12;
const DST: usize = 16;

#[derive(Clone, Copy)]
enum Place {
    /// So many bytes into the packet.
    At(usize),
    /// A field of the header.
    Field(usize),
}

/// Where an address is noted.
#[derive(Clone)]
enum Annotation {
    /// Packets go by it.
    Destination(Arc<Gateways>),
    /// In an annotation of four bytes without a name, which begins here.
    Numbered(usize),
}

/// Number of the annotations with names that are behind those without.
const NAMED: usize = 20;

impl Annotation {
    fn read(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let Some(arg) = setup.args.optional_arg("ANNO")? else {
            return Ok(Self::Destination(setup.gateways.clone()));
        };
        if matches!(arg.raw(), "DST_IP" | "0" | "IPADDR" | "0-3") {
            return Ok(Self::Destination(setup.gateways.clone()));
        }
        let number = arg.value::<usize>().ok().filter(|number| number + 4 <= NAMED);
        let words = "ANNO: DST_IP (0), and 4 to 16 for four bytes are possible";
        match number.filter(|number| *number >= 4).and_then(|_| numbered::<4>(&arg)) {
            Some(at) => Ok(Self::Numbered(at)),
            None => Err(setup.args.refuse(&arg, words)),
        }
    }

    /// Notes an address in packet `i`; one that leaves no room in its frame has no annotation without a name.
    fn set(&self, batch: &mut Batch, i: usize, addr: Ipv4Addr) {
        match self {
            Self::Destination(gateways) => go_by(gateways, batch, i, IpAddr::V4(addr)),
            Self::Numbered(at) => {
                if let Some(bytes) = batch.annotations_mut(i) {
                    bytes[*at..at + 4].copy_from_slice(&addr.octets());
                }
            }
        }
    }
}

/// Argument `DST_ANNO` of elements that change destinations: with `false` packets are routed by their addresses from before.
#[derive(Clone, Default)]
pub(super) struct Kept {
    /// Where addresses are kept.
    gateways: Option<Arc<Gateways>>,
    addrs: Vec<Option<Ipv4Addr>>,
}

impl Kept {
    /// What the argument's value stands for.
    pub(super) fn new(setup: &Setup<'_>, follows: Option<bool>) -> Self {
        let gateways = (follows == Some(false)).then(|| setup.gateways.clone());
        Self { gateways, addrs: Vec::new() }
    }

    /// Notes what the packets of a batch go by.
    pub(super) fn note(&mut self, batch: &Batch) {
        let Some(gateways) = &self.gateways else { return };
        self.addrs.clear();
        self.addrs.extend((0..batch.len()).map(|i| gone_by(gateways, batch, i)));
    }

    /// Lets them go by that again.
    pub(super) fn restore(&mut self, batch: &mut Batch) {
        let Some(gateways) = &self.gateways else { return };
        for (i, addr) in self.addrs.drain(..).enumerate() {
            if let Some(addr) = addr {
                go_by(gateways, batch, i, IpAddr::V4(addr));
            }
        }
    }
}

/// Address that a packet goes by: that of its gateway, or its destination.
pub(super) fn gone_by(gateways: &Gateways, batch: &Batch, i: usize) -> Option<Ipv4Addr> {
    let meta = batch.meta()[i];
    match gateways.get(meta.hop.gateway()) {
        Some(IpAddr::V4(addr)) => Some(addr),
        Some(IpAddr::V6(_)) => None,
        None => {
            let ip = Ip4::at(batch.bytes(i), meta.network.into()).filter(|ip| ip.version() == 4);
            ip.map(|ip| Ipv4Addr::from_bits(ip.dst()))
        }
    }
}

/// Lets packet `i` go by an address.
fn go_by(gateways: &Arc<Gateways>, batch: &mut Batch, i: usize, addr: IpAddr) {
    let network = usize::from(batch.meta()[i].network);
    let own = match addr {
        IpAddr::V4(addr) => Ip4::at(batch.bytes(i), network)
            .is_some_and(|ip| ip.version() == 4 && ip.dst() == addr.to_bits()),
        IpAddr::V6(addr) => Ip6::at(batch.bytes(i), network)
            .is_some_and(|ip| ip.version() == 6 && ip.dst() == addr.to_bits()),
    };
    let hop = if own || addr.is_unspecified() {
        Some(Hop::NONE)
    } else {
        gateways.number_of_packet(addr).ok().map(Hop::of_gateway)
    };
    match hop {
        Some(hop) => batch.meta_mut()[i].hop = hop,
        None => batch.discard(i, DropReason::NoRoute),
    }
}

/// Writes an address into the header that `ip` begins with; checksums follow.
fn readdress(ip: &mut [u8], field: usize, addr: u32) -> Option<()> {
    Ip4::at(ip, 0).filter(|header| header.version() == 4)?;
    let from = FlowId { src: long(ip, SRC)?, dst: long(ip, DST)?, sport: 0, dport: 0 };
    let to = if field == SRC { FlowId { src: addr, ..from } } else { FlowId { dst: addr, ..from } };
    rewrite(ip, from, to, false);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::frame::wire::checksum::checksum;
    use crate::testing::{Rig, World, frame_v4, refused, run};

    #[test]
    fn packets_go_by_another_address() {
        let text = |by: &str| {
            format!(
                "FromDevice(a) -> Strip(14) -> {by} -> r :: StaticIPLookup(10.0.0.0/8 0, 0/0 1); r => ToDevice(x), ToDevice(y)"
            )
        };
        let goes = |by: &str| {
            let mut rig = Rig::new(&World::new(), &text(by));
            rig.receive("a", &[&frame_v4("10.0.0.1", "192.0.2.7", 64, 17, &[0; 8])])[0].0.clone()
        };
        assert_eq!(goes("SetIPAddress(10.9.9.9)"), "x");
        assert_eq!(goes("GetIPAddress(12)"), "x", "its source");
        assert_eq!(goes("GetIPAddress(IP src)"), "x");
        assert_eq!(goes("SetIPAddress(10.9.9.9) -> GetIPAddress(16)"), "y", "its destination");
        assert_eq!(goes("SetRandIPAddress(10.0.0.0/9)"), "x");
        assert_eq!(
            goes("SetIPAddress(10.9.9.9) -> StoreIPAddress(16) -> SetIPAddress(0.0.0.0)"),
            "x"
        );
        assert!(refused(&GET, "").contains("give one of OFFSET and IP"));
        for number in ["3", "17", "20", "24", "x"] {
            assert!(refused(&SET, &format!("1.0.0.1, ANNO {number}")).contains("DST_IP"));
        }
        assert_eq!(goes("SetIPAddress(10.9.9.9, 4) -> CheckPaint(9, 7)"), "y", "it is only noted");
        assert_eq!(goes("GetIPAddress(12, 8) -> CheckPaint(10, 8) -> CheckPaint(1, 11)"), "y");
        assert_eq!(goes("GetIPAddress(12, 0)"), "x");
    }

    #[test]
    fn addresses_are_stored() {
        let frame = frame_v4("10.0.0.1", "192.0.2.7", 64, 6, &[1; 20]);
        let batch = run(&STORE, "1.2.3.4, 26", 14, &[&frame, &frame[..20]]);
        assert_eq!(batch.bytes(0)[26..34], [1, 2, 3, 4, 192, 0, 2, 7]);
        assert_eq!(batch.decision(1), Decision::Output(1));
        let batch = run(&STORE, "1.2.3.4, src", 14, &[&frame]);
        assert_eq!((batch.bytes(0)[26], checksum(&batch.bytes(0)[14..34])), (1, 0));
        assert_eq!(
            run(&GET6, "9", 0, &[&frame[..20]]).decision(0),
            Decision::Drop(DropReason::TooShort)
        );
    }
}
