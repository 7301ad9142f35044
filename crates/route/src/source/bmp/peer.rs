//! Peers of a monitored router: the header that names one, and what its OPEN messages agree on.
//!
//! Source: RFC 7854 sections 4.2 and 4.10, RFC 8671 section 4, RFC 9069 section 4; RFC 5492 (capabilities), RFC 9072
//! (long optional parameters), RFC 4760 section 8, RFC 7911 section 4, RFC 6793, RFC 8950 section 4.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bgp::path_ids::PathIds;
use crate::bgp::ribs::PeerNumber;
use crate::bgp::update::{AsNumbers, Encoding, OPEN, message};
use crate::bgp::{Fields, Words};

/// Bits of the flags of a peer, but of Loc-RIB.
const V6: u8 = 0x80;
const POST_POLICY: u8 = 0x40;
const SHORT_AS: u8 = 0x20;
const ADJ_RIB_OUT: u8 = 0x10;

const GLOBAL_INSTANCE: u8 = 0;
const LOCAL_INSTANCE: u8 = 2;
const LOC_RIB: u8 = 3;

/// Routes of a peer, or the router's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PeerRib {
    Adj,
    Loc,
}

/// What a peer is known by. A Loc-RIB is no peer and the only one of its instance, so its key has zeros: its header has
/// the router's identifier in GoBGP, and the peer that a route came from in FRR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) view: PeerRib,
    pub(super) addr: IpAddr,
    /// Peers with link-local addresses on two interfaces may have one address, and differ here only. Else 0: a peer that
    /// was restarted may have another identifier, and is no other peer.
    pub(super) bgp_id: u32,
}

impl Key {
    const LOC_RIB: Self =
        Self { view: PeerRib::Loc, addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), bgp_id: 0 };
}

/// Header of a message about a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// `None` for a peer of another routing instance.
    pub(super) key: Option<Key>,
    pub(super) is_out: bool,
    pub(super) is_post_policy: bool,
    pub(super) has_short_as: bool,
    pub(super) peer_as: u32,
    pub(super) bgp_id: u32,
}

impl Header {
    /// Takes it off the front of a body.
    pub(super) fn read(body: &mut Fields<'_>) -> Result<Self, Words> {
        let (kind, flags) = (body.u8()?, body.u8()?);
        let distinguisher: [u8; 8] = body.array()?;
        let addr: [u8; 16] = body.array()?;
        let number = |body: &mut Fields<'_>| body.array().map(u32::from_be_bytes);
        let (peer_as, bgp_id) = (number(body)?, number(body)?);
        body.take(8)?; // time
        let view = match kind {
            GLOBAL_INSTANCE | LOCAL_INSTANCE => Some(PeerRib::Adj),
            LOC_RIB => Some(PeerRib::Loc),
            _ => None,
        };
        let view = view.filter(|_| distinguisher == [0; 8]);
        let flags = if kind == LOC_RIB { 0 } else { flags };
        let [.., a, b, c, d] = addr;
        let addr: IpAddr = match flags & V6 != 0 {
            true => Ipv6Addr::from(addr).into(),
            false => Ipv4Addr::from([a, b, c, d]).into(),
        };
        Ok(Self {
            key: view.map(|view| match view {
                PeerRib::Loc => Key::LOC_RIB,
                PeerRib::Adj if is_link_local(addr) => Key { view, addr, bgp_id },
                PeerRib::Adj => Key { view, addr, bgp_id: 0 },
            }),
            is_out: flags & ADJ_RIB_OUT != 0,
            is_post_policy: flags & POST_POLICY != 0,
            has_short_as: flags & SHORT_AS != 0,
            peer_as,
            bgp_id,
        })
    }
}

fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local())
}

/// What an OPEN message offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Open {
    /// Whether it has content: FRR sends the header alone where it has not kept the message.
    is_known: bool,
    /// Number of its sender's AS.
    pub(super) own_as: u32,
    /// Whether AS numbers of four bytes are offered.
    has_long_as: bool,
    /// Whether prefixes of IPv4 may have next hops of IPv6.
    takes_v6_hops: bool,
    /// Unicast of IPv4 and of IPv6; neither where it names no family, which is IPv4.
    families: [bool; 2],
    /// Whether path identifiers are received, by family.
    receives_paths: [bool; 2],
    /// Whether path identifiers are sent, by family.
    sends_paths: [bool; 2],
}

/// Takes the OPEN messages off a Peer Up: the one that was sent to the peer, and the one that it sent.
pub(super) fn opens(body: &mut Fields<'_>) -> Result<(Open, Open), Words> {
    // Own address and both ports.
    body.take(16 + 2 + 2)?;
    Ok((open(body)?, open(body)?))
}

/// Takes an OPEN message off the front.
fn open(rest: &mut Fields<'_>) -> Result<Open, Words> {
    const CAPABILITIES: u8 = 2;
    const EXTENDED: u8 = 255;
    let (kind, mut body) = message(rest)?;
    if kind != OPEN {
        return Err("a BGP message that is no OPEN");
    }
    if body.0.is_empty() {
        return Ok(Open::default());
    }
    body.u8()?; // version
    let mut open = Open { is_known: true, own_as: body.u16()?.into(), ..Open::default() };
    body.take(2 + 4)?; // hold time, identifier
    let len = body.u8()?;
    let extended = len == EXTENDED && body.0.first() == Some(&EXTENDED);
    if extended {
        body.take(3)?;
    }
    while !body.0.is_empty() {
        let kind = body.u8()?;
        let len = if extended { body.u16()?.into() } else { usize::from(body.u8()?) };
        let value = Fields(body.take(len)?);
        if kind == CAPABILITIES {
            open.capabilities(value)?;
        }
    }
    Ok(open)
}

impl Open {
    fn capabilities(&mut self, mut rest: Fields<'_>) -> Result<(), Words> {
        const MULTIPROTOCOL: u8 = 1;
        const NEXT_HOPS: u8 = 5;
        const LONG_AS: u8 = 65;
        const ADD_PATH: u8 = 69;
        const RECEIVES: u8 = 1;
        const SENDS: u8 = 2;
        while !rest.0.is_empty() {
            let (code, len) = (rest.u8()?, rest.u8()?);
            let mut value = Fields(rest.take(len.into())?);
            match code {
                MULTIPROTOCOL => {
                    let (afi, _, safi) = (value.u16()?, value.u8()?, value.u8()?);
                    if let Some(at) = unicast(afi, safi) {
                        self.families[at] = true;
                    }
                }
                NEXT_HOPS => {
                    while !value.0.is_empty() {
                        let (afi, safi, hop) = (value.u16()?, value.u16()?, value.u16()?);
                        self.takes_v6_hops |= (afi, safi, hop) == (1, 1, 2);
                    }
                }
                LONG_AS => {
                    self.has_long_as = true;
                    self.own_as = value.array().map(u32::from_be_bytes)?;
                }
                ADD_PATH => {
                    while !value.0.is_empty() {
                        let (afi, safi, how) = (value.u16()?, value.u8()?, value.u8()?);
                        if let Some(at) = unicast(afi, safi) {
                            self.receives_paths[at] = how & RECEIVES != 0;
                            self.sends_paths[at] = how & SENDS != 0;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn families(&self) -> [bool; 2] {
        match self.families {
            _ if !self.is_known => [true; 2],
            [false, false] => [true, false],
            families => families,
        }
    }
}

/// Place of a family of unicast prefixes: IPv4 first.
fn unicast(afi: u16, safi: u8) -> Option<usize> {
    match (afi, safi) {
        (1, 1) => Some(0),
        (2, 1) => Some(1),
        _ => None,
    }
}

/// A peer that is up.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) number: PeerNumber,
    /// Whether Peer Up was sent. GoBGP 3 and bgpd before FRR 10.2 send none of a Loc-RIB.
    pub(super) is_announced: bool,
    /// Families whose table it sends.
    families: [bool; 2],
    pub(super) path_ids: PathIds,
    /// Whether AS numbers have four bytes for sure, unless the header has the flag.
    has_long_as: bool,
    /// Next hop of IPv4 prefixes that come without one, as bgpd sends them where it is one of IPv6 (RFC 8950).
    next_hop: Option<IpAddr>,
    /// Families whose table is complete.
    pub(super) ended: [bool; 2],
}

impl Peer {
    /// A peer that the router has sent the one message and received the other from.
    pub(super) fn new(number: PeerNumber, key: Key, sent: &Open, received: &Open) -> Self {
        let both = |of: fn(&Open) -> [bool; 2], other: fn(&Open) -> [bool; 2]| {
            let (ours, theirs) = (of(sent), other(received));
            [ours[0] && theirs[0], ours[1] && theirs[1]]
        };
        let is_session = key.view == PeerRib::Adj && sent.is_known && received.is_known;
        let is_external = sent.own_as != received.own_as;
        let takes_v6_hops = is_session && sent.takes_v6_hops && received.takes_v6_hops;
        let add_path = both(|open| open.receives_paths, |open| open.sends_paths);
        Self {
            number,
            is_announced: true,
            families: both(Open::families, Open::families),
            path_ids: PathIds::new(add_path, is_session),
            has_long_as: is_session && sent.has_long_as && received.has_long_as,
            // Packets for what an external peer announces are for it to forward, and a link-local address has no interface
            // here.
            next_hop: Some(key.addr).filter(|&addr| {
                takes_v6_hops && is_external && addr.is_ipv6() && !is_link_local(addr)
            }),
            ended: [false; 2],
        }
    }

    /// A Loc-RIB whose routes come without Peer Up: nothing is known of it.
    pub(super) fn loc_rib(number: PeerNumber) -> Self {
        let open = Open::default();
        Self { is_announced: false, ..Self::new(number, Key::LOC_RIB, &open, &open) }
    }

    /// Its Peer Up has come, behind routes.
    pub(super) fn announce(&mut self, key: Key, sent: &Open, received: &Open) {
        let new = Self::new(self.number, key, sent, received);
        let mut path_ids = self.path_ids;
        path_ids.agree(new.path_ids);
        *self = Self { path_ids, ended: self.ended, ..new };
    }

    /// Whether its tables are complete.
    pub(super) fn has_ended(&self) -> bool {
        self.families.iter().zip(self.ended).all(|(sends, ended)| !sends || ended)
    }

    /// How a message with this body is encoded; where it is taken, also the forms of later ones and what is to be reported.
    pub(super) fn encoding(
        &self,
        header: &Header,
        body: Fields<'_>,
    ) -> Result<(Encoding, PathIds, Option<Words>), Words> {
        let (form, path_ids) = self.path_ids.form(body)?;
        // bgpd writes AS numbers as the peer has them, and never sets the flag.
        let as_numbers = match header.has_short_as {
            true => AsNumbers::Short,
            false if self.has_long_as => AsNumbers::Long,
            false => AsNumbers::Either,
        };
        let encoding = Encoding { as_numbers, add_path: form.has_ids, next_hop: self.next_hop };
        Ok((encoding, path_ids, form.report))
    }
}
