//! Links: `ifinfomsg` and its attributes.

use super::{Malformed, Message, Request, fixed, u16_at, u32_at};
use crate::event::{LinkState, Mac};

/// `RTM_NEWLINK`.
pub const NEW: u16 = 16;
/// `RTM_DELLINK`.
pub const DEL: u16 = 17;
const GET: u16 = 18;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_CARRIER: u16 = 33;

const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_SLAVE_KIND: u16 = 4;

const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_LOWER_UP: u32 = 0x1_0000;

const ARPHRD_ETHER: u16 = 1;

/// Not asked for: counters, which are the larger part of each answer.
const RTEXT_FILTER_SKIP_STATS: u32 = 8;

/// A link as a message tells of it.
#[derive(Clone, Debug)]
pub struct Link {
    /// Kernel index.
    pub link: u32,
    /// Set up by the administrator, with or without carrier.
    pub admin_up: bool,
    /// What RFC 2863 calls its state, as the kernel numbers it (0 unknown, 6 up). Unlike carrier it
    /// changes together with the routes over the link, under the same lock.
    pub operstate: u8,
    /// As it is now.
    pub state: LinkState,
}

impl Link {
    /// Reads the body of [`NEW`] or [`DEL`]. `None` for what other families (bridges) say in the
    /// same words about a port: their "deleted" means that it left the bridge.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(message: &Message<'_>) -> Result<Option<Self>, Malformed> {
        let (h, attrs) = fixed::<16>(message.body, "ifinfomsg")?;
        if h[0] != 0 {
            return Ok(None);
        }
        let (hardware, link, flags) = (u16_at(h, 2), u32_at(h, 4), u32_at(h, 8));
        let mut state = LinkState { loopback: flags & IFF_LOOPBACK != 0, ..LinkState::default() };
        let admin_up = flags & IFF_UP != 0;
        let mut up = admin_up && flags & IFF_LOWER_UP != 0;
        let mut operstate = 0;
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                IFLA_ADDRESS if hardware == ARPHRD_ETHER => {
                    state.mac = attr.data.try_into().ok().map(Mac);
                }
                IFLA_IFNAME => state.name = attr.text().into_owned(),
                IFLA_MTU => state.mtu = attr.u32()?,
                IFLA_MASTER => state.master = Some(attr.u32()?).filter(|&master| master != 0),
                // IF_OPER_NOTPRESENT 1, DOWN 2, LOWERLAYERDOWN 3 (RFC 2863, renumbered).
                IFLA_OPERSTATE => {
                    operstate = attr.u8()?;
                    up &= !matches!(operstate, 1..=3);
                }
                IFLA_CARRIER => up &= attr.u8()? != 0,
                IFLA_LINKINFO => {
                    for info in attr.nested() {
                        let info = info?;
                        match info.kind {
                            IFLA_INFO_KIND => state.kind = info.text().into_owned(),
                            IFLA_INFO_SLAVE_KIND => state.master_kind = info.text().into_owned(),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        state.up = up;
        Ok(Some(Self { link, admin_up, operstate, state }))
    }
}

/// Asks for all links.
pub fn dump(seq: u32) -> Vec<u8> {
    Request::dump(GET, seq)
        .fixed(&[0; 16])
        .attr(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes())
        .finish()
}
