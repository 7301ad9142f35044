//! Routes: `rtmsg` and its attributes, the hops of a multipath route, and how to set a route.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    Attr, Attrs, F_ACK, F_CREATE, F_REPLACE, IPV4, IPV6, Malformed, Message, Request, family_of,
    fixed, u16_at, u32_at,
};
use crate::event::{AnyPrefix, MAIN_TABLE};

/// `RTM_NEWROUTE`.
pub const NEW: u16 = 24;
/// `RTM_DELROUTE`.
pub const DEL: u16 = 25;
pub(super) const GET: u16 = 26;

/// What the kernel does with packets of a route (`RTN_*`).
pub mod kind {
    /// Forwards them.
    pub const UNICAST: u8 = 1;
    /// Takes them.
    pub const LOCAL: u8 = 2;
    /// Takes them and sends them as a broadcast.
    pub const BROADCAST: u8 = 3;
    /// Takes them; sends them as unicast.
    pub const ANYCAST: u8 = 4;
    /// Takes them as multicast.
    pub const MULTICAST: u8 = 5;
    /// Drops them silently.
    pub const BLACKHOLE: u8 = 6;
    /// Drops them, with ICMP unreachable.
    pub const UNREACHABLE: u8 = 7;
    /// Drops them, with ICMP prohibited.
    pub const PROHIBIT: u8 = 8;
    /// Looks on in the table of the next rule.
    pub const THROW: u8 = 9;
}

/// The hop cannot be used (`RTNH_F_DEAD`).
pub const HOP_DEAD: u8 = 1;
/// The hop's link has no carrier (`RTNH_F_LINKDOWN`).
pub const HOP_LINK_DOWN: u8 = 16;

/// The gateway is taken to be on the link, whatever the routes are (`RTNH_F_ONLINK`).
pub(super) const HOP_ON_LINK: u32 = 4;

/// A clone made for one destination (`RTM_F_CLONED`).
pub const F_CLONED: u32 = 0x200;

/// Set by the kernel itself (`RTPROT_KERNEL`).
pub const PROTOCOL_KERNEL: u8 = 2;
/// Learned from router advertisements (`RTPROT_RA`).
pub const PROTOCOL_RA: u8 = 9;
/// Set by a node of a cluster: `fingerpost` where `/etc/iproute2/rt_protos` names it.
pub const PROTOCOL_FINGERPOST: u8 = 0x66;

pub(super) const SCOPE_UNIVERSE: u8 = 0;
pub(super) const SCOPE_LINK: u8 = 253;

pub(super) const RTA_DST: u16 = 1;
pub(super) const RTA_OIF: u16 = 4;
pub(super) const RTA_GATEWAY: u16 = 5;
pub(super) const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
pub(super) const RTA_METRICS: u16 = 8;
pub(super) const RTA_MULTIPATH: u16 = 9;
pub(super) const RTA_TABLE: u16 = 15;
pub(super) const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;

pub(super) const RTAX_MTU: u16 = 2;

/// A route of a message.
#[derive(Clone, Debug)]
pub struct Route<'a> {
    /// Where it leads.
    pub prefix: AnyPrefix,
    /// Source prefix length; more than 0 for IPv6 routes that also match the source.
    pub src_len: u8,
    /// Type of service; more than 0 for IPv4 routes that also match that.
    pub tos: u8,
    /// Which table.
    pub table: u32,
    /// Who made it (`RTPROT_*`).
    pub protocol: u8,
    /// What it does, see [`kind`].
    pub kind: u8,
    /// `RTM_F_*`.
    pub flags: u32,
    /// Lower wins.
    pub metric: u32,
    /// The next-hop object it names.
    pub object: Option<u32>,
    /// Largest packet along it, in bytes, where the route has one.
    pub mtu: Option<u32>,
    hop: Hop,
    multipath: &'a [u8],
}

/// One hop of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Gateway of either family.
    pub gateway: Option<IpAddr>,
    /// Kernel index of the link.
    pub link: Option<u32>,
    /// Share, from 1.
    pub weight: u32,
    /// [`HOP_DEAD`], [`HOP_LINK_DOWN`] and others (`RTNH_F_*`).
    pub flags: u8,
    /// Packets are encapsulated (MPLS, segment routing and the like).
    pub encap: bool,
}

impl<'a> Route<'a> {
    /// Reads the body of [`NEW`] or [`DEL`]. `None` for families other than IPv4 and IPv6.
    ///
    /// # Errors
    /// [`Malformed`], also for a prefix with host bits.
    pub fn parse(message: &Message<'a>) -> Result<Option<Self>, Malformed> {
        let (h, attrs) = fixed::<12>(message.body, "rtmsg")?;
        let [family, dst_len, src_len, tos, table, protocol, _scope, kind, ..] = *h;
        if family != IPV4 && family != IPV6 {
            return Ok(None);
        }
        let flags = u32_at(h, 8);
        let mut dst = if family == IPV4 {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        let hop = Hop {
            weight: 1,
            // The low byte of a route's flags is that of its only hop.
            flags: flags.to_ne_bytes()[if cfg!(target_endian = "little") { 0 } else { 3 }],
            ..Hop::default()
        };
        let mut table = u32::from(table);
        let (mut metric, mut object, mut mtu, mut multipath) = (0, None, None, &[][..]);
        let mut only = hop;
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                RTA_DST => {
                    let given = attr.ip()?;
                    if given.is_ipv4() != dst.is_ipv4() {
                        return Err(attr.wrong_len());
                    }
                    dst = given;
                }
                RTA_PRIORITY => metric = attr.u32()?,
                RTA_MULTIPATH => multipath = attr.data,
                RTA_TABLE => table = attr.u32()?,
                RTA_NH_ID => object = Some(attr.u32()?),
                RTA_METRICS => {
                    for metric in attr.nested() {
                        let metric = metric?;
                        if metric.kind == RTAX_MTU {
                            mtu = Some(metric.u32()?);
                        }
                    }
                }
                _ => only.read(&attr)?,
            }
        }
        let prefix = AnyPrefix::new(dst, dst_len)
            .map_err(|_| Malformed::Value { what: "prefix length", value: dst_len.into() })?;
        // Zebra has sent `RT_TABLE_UNSPEC` for the main table (frr#14949); the kernel never does.
        if table == 0 {
            table = MAIN_TABLE;
        }
        let hop = only;
        Ok(Some(Self {
            prefix,
            src_len,
            tos,
            table,
            protocol,
            kind,
            flags,
            metric,
            object,
            mtu,
            hop,
            multipath,
        }))
    }

    /// Its hops: those of a multipath route, or the only one, or none.
    pub fn hops(&self) -> Hops<'a> {
        let encap = self.hop.encap;
        let only = self.multipath.is_empty()
            && (self.hop.gateway.is_some() || self.hop.link.is_some() || self.hop.encap);
        Hops { only: only.then_some(self.hop), rest: self.multipath, encap }
    }
}

impl Hop {
    fn read(&mut self, attr: &Attr<'_>) -> Result<(), Malformed> {
        match attr.kind {
            RTA_OIF => self.link = Some(attr.u32()?).filter(|&link| link != 0),
            RTA_GATEWAY => self.gateway = Some(attr.ip()?),
            // The family, then the address.
            RTA_VIA => {
                let data = attr.data.get(2..).unwrap_or_default();
                self.gateway = Some(Attr { kind: attr.kind, data }.ip()?);
            }
            RTA_ENCAP_TYPE => self.encap |= attr.u16()? != 0,
            RTA_ENCAP => self.encap = true,
            _ => {}
        }
        Ok(())
    }
}

/// The hops of a route. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Hops<'a> {
    only: Option<Hop>,
    rest: &'a [u8],
    /// The route encapsulates packets for all of them: FRR has VXLAN so, beside `RTA_MULTIPATH`.
    encap: bool,
}

impl Iterator for Hops<'_> {
    type Item = Result<Hop, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(hop) = self.only.take() {
            return Some(Ok(hop));
        }
        if self.rest.is_empty() {
            return None;
        }
        // len u16, flags u8, weight - 1 u8, link u32, then attributes; padded to 4.
        let bytes = core::mem::take(&mut self.rest);
        let Some(h) = bytes.first_chunk::<8>() else {
            return Some(Err(Malformed::Short { what: "rtnexthop", need: 8, have: bytes.len() }));
        };
        let len = u16_at(h, 0);
        let Some(attrs) = bytes.get(8..usize::from(len)) else {
            let what = "rtnexthop length";
            return Some(Err(Malformed::Value { what, value: len.into() }));
        };
        let mut hop = Hop {
            link: Some(u32_at(h, 4)).filter(|&link| link != 0),
            weight: u32::from(h[3]) + 1,
            flags: h[2],
            encap: self.encap,
            ..Hop::default()
        };
        for attr in Attrs::new(attrs) {
            if let Err(error) = attr.and_then(|attr| hop.read(&attr)) {
                return Some(Err(error));
            }
        }
        self.rest = bytes.get(super::aligned(usize::from(len))..).unwrap_or_default();
        Some(Ok(hop))
    }
}

/// Request for all routes of a family, of all tables.
pub fn dump(family: u8, seq: u32) -> Vec<u8> {
    Request::dump(GET, seq).fixed(&[family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).finish()
}

/// A route of the main table that a program sets: one hop on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRoute {
    /// Address of the prefix, host bits zero.
    pub addr: IpAddr,
    /// Length of the prefix, in bits.
    pub prefix_len: u8,
    /// Gateway, taken to be on the link; a route of IPv4 may have one of IPv6.
    pub gateway: Option<IpAddr>,
    /// Kernel index of the link.
    pub link: u32,
    /// Lower wins among routes of one prefix.
    pub metric: u32,
    /// Who sets it (`RTPROT_*`).
    pub protocol: u8,
    /// Address that the host sends from by it, one of its own.
    pub source: Option<IpAddr>,
}

impl HostRoute {
    /// Request to set the route. One of the prefix and metric that is there is replaced, whoever set it.
    pub fn set_request(&self, seq: u32) -> Vec<u8> {
        let request = self.request(NEW, F_ACK | F_CREATE | F_REPLACE, seq);
        match self.source {
            Some(source) => request.ip(RTA_PREFSRC, source).finish(),
            None => request.finish(),
        }
    }

    /// Request to delete the route, from whatever address the host sends by it.
    pub fn delete_request(&self, seq: u32) -> Vec<u8> {
        self.request(DEL, F_ACK, seq).finish()
    }

    fn request(&self, kind: u16, flags: u16, seq: u32) -> Request {
        let (scope, hop_flags) = match self.gateway {
            Some(_) => (SCOPE_UNIVERSE, HOP_ON_LINK),
            None => (SCOPE_LINK, 0),
        };
        let table = u8::try_from(MAIN_TABLE).expect("254");
        let head = [
            [family_of(self.addr), self.prefix_len, 0, 0],
            [table, self.protocol, scope, kind::UNICAST],
            hop_flags.to_ne_bytes(),
        ];
        let request = Request::query(kind, flags, seq)
            .fixed(head.as_flattened())
            .ip(RTA_DST, self.addr)
            .attr(RTA_OIF, &self.link.to_ne_bytes())
            .attr(RTA_PRIORITY, &self.metric.to_ne_bytes());
        match self.gateway {
            None => request,
            Some(gateway) if family_of(gateway) == family_of(self.addr) => {
                request.ip(RTA_GATEWAY, gateway)
            }
            Some(gateway) => request.attr(RTA_VIA, &super::export::via(gateway)),
        }
    }
}
