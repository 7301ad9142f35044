//! Events of route sources, in one plain enum.
//!
//! Sources parse their own formats; from here on nothing knows where an event came from but by the
//! number of its source. Interfaces are named by the kernel's index in the namespace we run in.

use core::fmt;
use core::net::IpAddr;

use fingerpost_lpm::{Addr, Prefix};

/// A link-layer address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Six bytes in hexadecimal, with `:` or `-` between all of them.
impl core::str::FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let between = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(between);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| matches!(part.len(), 1 | 2)).ok_or(MacError)?;
            // `from_str_radix` would take a sign.
            let digits = part.bytes().all(|b| b.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| digits).ok_or(MacError)?;
        }
        if parts.next().is_some() { Err(MacError) } else { Ok(Self(bytes)) }
    }
}

/// The text is no link address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("six bytes in hexadecimal are needed, as 02:00:5e:10:00:01")]
pub struct MacError;

impl Mac {
    /// Whether it is a multicast or broadcast address: no host has it.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Its bits, the first byte highest.
    pub fn bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A prefix of either family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AnyPrefix {
    /// IPv4.
    V4(Prefix<u32>),
    /// IPv6.
    V6(Prefix<u128>),
}

impl AnyPrefix {
    /// `ADDR/LEN` of either family.
    ///
    /// # Errors
    /// [`fingerpost_lpm::PrefixError`] for invalid text.
    pub fn parse(text: &str) -> Result<Self, fingerpost_lpm::PrefixError> {
        if text.contains(':') { text.parse().map(Self::V6) } else { text.parse().map(Self::V4) }
    }

    /// Refuses host bits and a length beyond the family's.
    ///
    /// # Errors
    /// As [`Prefix::new`].
    pub fn new(addr: IpAddr, len: u8) -> Result<Self, fingerpost_lpm::PrefixError> {
        Ok(match addr {
            IpAddr::V4(a) => Self::V4(Prefix::new(a.to_bits(), len)?),
            IpAddr::V6(a) => Self::V6(Prefix::new(a.to_bits(), len)?),
        })
    }

    /// Whether it is a single address.
    pub fn is_address(self) -> bool {
        match self {
            Self::V4(p) => p.len() == 32,
            Self::V6(p) => p.len() == 128,
        }
    }

    /// The lowest address.
    pub fn addr(self) -> IpAddr {
        match self {
            Self::V4(p) => p.addr().to_ip(),
            Self::V6(p) => p.addr().to_ip(),
        }
    }

    /// Length in bits.
    #[allow(clippy::len_without_is_empty, reason = "a length in bits, not a size")]
    pub fn len(self) -> u8 {
        match self {
            Self::V4(p) => p.len(),
            Self::V6(p) => p.len(),
        }
    }

    /// 4 or 6.
    pub fn family(self) -> u8 {
        match self {
            Self::V4(_) => 4,
            Self::V6(_) => 6,
        }
    }

    /// The smallest MTU that a route may have, in bytes: what every link of the family carries
    /// (RFC 791 section 3.2; RFC 8200 section 5).
    pub fn min_mtu(self) -> u16 {
        match self {
            Self::V4(_) => 68,
            Self::V6(_) => 1280,
        }
    }
}

impl fmt::Display for AnyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(p) => p.fmt(f),
            Self::V6(p) => p.fmt(f),
        }
    }
}

/// What names a route of one source: as in the kernel, the metric is part of the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RouteKey {
    /// Which routing table. The kernel's main table is [`MAIN_TABLE`].
    pub table: u32,
    /// Where it leads.
    pub prefix: AnyPrefix,
    /// Lower wins among routes of equal distance.
    pub metric: u32,
}

/// The kernel's main table, and the default everywhere.
pub const MAIN_TABLE: u32 = 254;

/// Name of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TableId {
    /// The route table of this number.
    Routes(u32),
    /// All paths of the route table of this number, for feasible source checks.
    Paths(u32),
}

impl TableId {
    /// Number of the route table.
    pub fn number(self) -> u32 {
        match self {
            Self::Routes(number) | Self::Paths(number) => number,
        }
    }
}

impl From<u32> for TableId {
    fn from(number: u32) -> Self {
        Self::Routes(number)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Routes(number) => write!(f, "{number}"),
            Self::Paths(number) => write!(f, "{number} paths"),
        }
    }
}

/// One path of a route: a gateway, a link, or both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path {
    /// `None`: the destination itself is on the link. May be of the other family (RFC 8950).
    pub gateway: Option<IpAddr>,
    /// Kernel index of the link; `None`: found by the route to the gateway.
    pub link: Option<u32>,
    /// Share among equal paths, from 1.
    pub weight: u32,
}

/// What happens to packets of a route.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// Leave by one path.
    Path(Path),
    /// Leave by one of several, by flow.
    Paths(Vec<Path>),
    /// Leave by the first of several that leads anywhere: the others are alternatives.
    Ranked(Vec<Path>),
    /// Follow the next-hop object of this id; it may be announced later.
    Object(u32),
    /// Ours: hand to the host.
    Local,
    /// Drop silently.
    Blackhole,
    /// Drop, with ICMP host unreachable.
    Unreachable,
    /// Drop, with ICMP administratively prohibited.
    Prohibit,
    /// Look up in the next table of the policy rules.
    Throw,
}

/// A route as its source states it: a new one, or a replacement of that key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RouteUpdate {
    /// Its name.
    pub key: RouteKey,
    /// What it does.
    pub target: Target,
    /// Largest IP packet along it, in bytes; 0 for what the link carries, which is a limit in any case.
    pub mtu: u16,
    /// Overrides the distance of the source.
    pub distance: Option<u8>,
    /// Its paths are added to those of this key instead of replacing them (the kernel's IPv6 `append`).
    pub append: bool,
}

impl RouteUpdate {
    /// The whole of a route, with the link's MTU and the distance of its source.
    pub fn new(key: RouteKey, target: Target) -> Self {
        Self { key, target, mtu: 0, distance: None, append: false }
    }
}

/// A next-hop object of the source (RTM_NEWNEXTHOP).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHopUpdate {
    /// The source's own number.
    pub id: u32,
    /// What it does.
    pub target: ObjectTarget,
}

/// What a next-hop object does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectTarget {
    /// One path.
    Path(Path),
    /// Other objects with weights from 1; members may be announced later.
    Group(Vec<(u32, u32)>),
    /// Drop silently.
    Blackhole,
    /// For the host itself: its packets would be encapsulated, and the kernel does that.
    Local,
}

/// A link: new, changed or gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkUpdate {
    /// Kernel index.
    pub link: u32,
    /// `None`: the link is gone.
    pub state: Option<LinkState>,
}

/// The kind of VRF devices.
pub const VRF: &str = "vrf";
/// The kind of bonds.
pub const BOND: &str = "bond";

/// A link as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkState {
    /// Name, unique at one moment; links can be renamed.
    pub name: String,
    /// Administratively up and with carrier.
    pub up: bool,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// `None` for links without Ethernet addresses (tunnels, PPP).
    pub mac: Option<Mac>,
    /// What kind of device (`veth`, `vlan`, `wireguard`; empty for hardware).
    pub kind: String,
    /// The bridge, bond or VRF it belongs to.
    pub master: Option<u32>,
    /// What kind of master that is.
    pub master_kind: String,
    /// Route table of the VRF that it is, or belongs to.
    pub vrf: Option<u32>,
    /// It belongs to a bond that does not use it at the moment.
    pub backup: bool,
    /// The loopback.
    pub loopback: bool,
    /// Tag of a VLAN interface whose parent is in this namespace.
    pub vlan: Option<VlanState>,
}

impl LinkState {
    /// Whether it belongs to a bond: what it receives is the bond's.
    pub fn is_in_bond(&self) -> bool {
        self.master.is_some() && self.master_kind == BOND
    }
}

/// What a VLAN interface does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VlanState {
    /// Kernel index of the link.
    pub parent: u32,
    /// VLAN of its tags, 12 bits.
    pub id: u16,
    /// Their EtherType: 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub protocol: u16,
    /// Priorities in tags mean something to it.
    pub mapped: bool,
}

/// An address of the host: new or gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressUpdate {
    /// Kernel index of the link.
    pub link: u32,
    /// The host's own address.
    pub addr: IpAddr,
    /// Address of the other end, whose prefix is the connected one; `None` where that of the own address is.
    pub peer: Option<IpAddr>,
    /// Length of the connected prefix, in bits.
    pub prefix_len: u8,
    /// The prefix is not connected (the kernel's IFA_F_NOPREFIXROUTE): whoever set the address sets its routes.
    pub no_prefix: bool,
    /// Set when the address was removed.
    pub gone: bool,
    /// It is not the first of its prefix (the kernel's IFA_F_SECONDARY).
    pub secondary: bool,
}

impl AddressUpdate {
    /// An address that is there, the first of its prefix, which is connected.
    pub fn new(link: u32, addr: IpAddr, prefix_len: u8) -> Self {
        let (peer, no_prefix, gone, secondary) = (None, false, false, false);
        Self { link, addr, peer, prefix_len, no_prefix, gone, secondary }
    }

    /// Addresses of packets for the host itself: this one, and the broadcast addresses of its prefix.
    pub fn local(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let broadcast = match self.peer.unwrap_or(self.addr) {
            IpAddr::V4(addr) if self.prefix_len < 31 => {
                let subnet = Prefix::masked(addr.to_bits(), self.prefix_len);
                Some([subnet.first().to_ip(), subnet.last().to_ip()])
            }
            _ => None,
        };
        core::iter::once(self.addr).chain(broadcast.into_iter().flatten())
    }
}

/// A neighbor: new, changed or gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighborUpdate {
    /// Kernel index of the link.
    pub link: u32,
    /// Its address.
    pub addr: IpAddr,
    /// Its state.
    pub state: NeighborState,
}

/// State of a neighbor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighborState {
    /// Usable, and set by a user: neither resolved nor ever confirmed.
    Permanent(Mac),
    /// Usable, and known to be fresh (reachable, no ARP needed).
    Reachable(Mac),
    /// Usable, but the kernel wants it confirmed (stale, delay, probe).
    Stale(Mac),
    /// Its resolution is in progress.
    Incomplete,
    /// It did not reply.
    Failed,
    /// The entry was removed.
    Gone,
}

impl NeighborState {
    /// Its link address, where that is known.
    pub fn mac(self) -> Option<Mac> {
        match self {
            Self::Permanent(mac) | Self::Reachable(mac) | Self::Stale(mac) => Some(mac),
            Self::Incomplete | Self::Failed | Self::Gone => None,
        }
    }
}

/// Whether one host can have this address: no multicast, no broadcast, and not the loopback's.
pub fn is_host(addr: IpAddr) -> bool {
    let broadcast = matches!(addr, IpAddr::V4(addr) if addr.is_broadcast());
    !(addr.is_unspecified() || addr.is_loopback() || addr.is_multicast() || broadcast)
}

/// Event of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteEvent {
    /// A new route, or a replacement.
    Route(RouteUpdate),
    /// The route of this key is gone.
    Withdraw(RouteKey),
    /// A new next-hop object, or a replacement.
    NextHop(NextHopUpdate),
    /// The object is gone, and with it every route that names it: the kernel does not report those.
    NextHopGone(u32),
    /// A link.
    Link(LinkUpdate),
    /// An address of the host.
    Address(AddressUpdate),
    /// A neighbor.
    Neighbor(NeighborUpdate),
    /// Everything up to here must become visible together.
    Commit(u64),
    /// A full dump begins: what is not repeated before `EndOfTable` is gone.
    StartOfTable,
    /// A full dump or resync is complete.
    EndOfTable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_addresses_are_six_bytes() {
        let mac = Mac([2, 0, 0x5e, 0x10, 0, 1]);
        for text in ["02:00:5e:10:00:01", "2:0:5E:10:0:1", "02-00-5e-10-00-01"] {
            assert_eq!(text.parse(), Ok(mac), "{text}");
        }
        assert_eq!(mac.to_string().parse(), Ok(mac));
        for text in
            ["", "02:00:5e:10:00", "02:00:5e:10:00:01:02", "02:00:5e:10:00:+1", "2:0:5e:10:0:"]
        {
            assert_eq!(text.parse::<Mac>(), Err(MacError), "{text}");
        }
        assert!(
            "020:0:5e:10:0:1".parse::<Mac>().is_err()
                && "02:00-5e:10:00:01".parse::<Mac>().is_err()
        );
        assert!(
            !mac.is_group()
                && Mac([0xff; 6]).is_group()
                && Mac([0x33, 0x33, 0, 0, 0, 1]).is_group()
        );
    }

    #[test]
    fn groups_and_broadcasts_are_no_hosts() {
        let is = |text: &str| is_host(text.parse().unwrap());
        assert!(["10.0.0.1", "169.254.0.1", "fe80::1", "2001:db8::1"].into_iter().all(is));
        let not = ["0.0.0.0", "::", "127.0.0.1", "::1", "224.0.0.1", "ff02::1", "255.255.255.255"];
        assert!(!not.into_iter().any(is));
    }
}
