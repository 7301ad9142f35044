//! Peers of a monitored router: the header that names one, and what its OPEN messages agree on.
//!
//! Source: RFC 7854 sections 4.2 and 4.10, RFC 8671 section 4, RFC 9069 section 4; RFC 5492 (capabilities), RFC 9072
//! (long optional parameters), RFC 4760 section 8, RFC 7911 section 4, RFC 6793.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bgp::ribs::PeerNumber;
use crate::bgp::update::{Encoding, OPEN, message};
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

/// What a peer is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) view: PeerRib,
    pub(super) addr: IpAddr,
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
            key: view.map(|view| Key { view, addr }),
            is_out: flags & ADJ_RIB_OUT != 0,
            is_post_policy: flags & POST_POLICY != 0,
            has_short_as: flags & SHORT_AS != 0,
            peer_as,
            bgp_id,
        })
    }
}

/// What an OPEN message offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Open {
    /// Number of its sender's AS.
    pub(super) own_as: u32,
    /// Unicast of IPv4 and of IPv6; neither where it names no family, which is IPv4.
    families: [bool; 2],
    /// Whether path identifiers are received, by family.
    receives_paths: [bool; 2],
    /// Whether path identifiers are sent, by family.
    sends_paths: [bool; 2],
}

/// Takes an OPEN message off the front.
pub(super) fn open(rest: &mut Fields<'_>) -> Result<Open, Words> {
    const CAPABILITIES: u8 = 2;
    const EXTENDED: u8 = 255;
    let (kind, mut body) = message(rest)?;
    if kind != OPEN {
        return Err("a BGP message that is no OPEN");
    }
    body.u8()?; // version
    let mut open = Open { own_as: body.u16()?.into(), ..Open::default() };
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
                LONG_AS => self.own_as = value.array().map(u32::from_be_bytes)?,
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
        if self.families == [false; 2] { [true, false] } else { self.families }
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
    /// Families whose table it sends.
    families: [bool; 2],
    add_path: [bool; 2],
    /// Families whose table is complete.
    pub(super) ended: [bool; 2],
}

impl Peer {
    /// A peer that the router has sent the one message and received the other from.
    pub(super) fn new(number: PeerNumber, sent: &Open, received: &Open) -> Self {
        let both = |of: fn(&Open) -> [bool; 2], other: fn(&Open) -> [bool; 2]| {
            let (ours, theirs) = (of(sent), other(received));
            [ours[0] && theirs[0], ours[1] && theirs[1]]
        };
        Self {
            number,
            families: both(Open::families, Open::families),
            add_path: both(|open| open.receives_paths, |open| open.sends_paths),
            ended: [false; 2],
        }
    }

    /// Whether its tables are complete.
    pub(super) fn has_ended(&self) -> bool {
        self.families.iter().zip(self.ended).all(|(sends, ended)| !sends || ended)
    }

    /// How its messages are encoded.
    pub(super) fn encoding(&self, header: &Header) -> Encoding {
        Encoding { short_as: header.has_short_as, add_path: self.add_path }
    }
}
