//! Next-hop objects: `nhmsg` and its attributes.

use core::net::IpAddr;

use super::{Malformed, Message, Request, fixed};

/// `RTM_NEWNEXTHOP`.
pub const NEW: u16 = 104;
/// `RTM_DELNEXTHOP`.
pub const DEL: u16 = 105;
const GET: u16 = 106;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;

/// A next-hop object of a message.
#[derive(Clone, Debug)]
pub struct NextHop<'a> {
    /// Its number, from 1.
    pub id: u32,
    /// Where to.
    pub gateway: Option<IpAddr>,
    /// Kernel index of the link.
    pub link: Option<u32>,
    /// Drops all.
    pub blackhole: bool,
    /// Packets are encapsulated.
    pub encap: bool,
    /// It is for bridges (VXLAN), not for routes.
    pub fdb: bool,
    /// `RTNH_F_*`, see [`super::route::HOP_DEAD`].
    pub flags: u8,
    group: Option<&'a [u8]>,
}

impl<'a> NextHop<'a> {
    /// Reads the body of [`NEW`] or [`DEL`].
    ///
    /// # Errors
    /// [`Malformed`], also where the number is missing.
    pub fn parse(message: &Message<'a>) -> Result<Self, Malformed> {
        let (h, attrs) = fixed::<8>(message.body, "nhmsg")?;
        let mut found = Self {
            id: 0,
            gateway: None,
            link: None,
            blackhole: false,
            encap: false,
            fdb: false,
            // nh_flags is a u32 of which the kernel uses the low byte.
            flags: super::u32_at(h, 4).to_le_bytes()[0],
            group: None,
        };
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NHA_ID => found.id = attr.u32()?,
                NHA_GROUP => found.group = Some(attr.data),
                NHA_BLACKHOLE => found.blackhole = true,
                NHA_OIF => found.link = Some(attr.u32()?).filter(|&link| link != 0),
                NHA_GATEWAY => found.gateway = Some(attr.ip()?),
                NHA_ENCAP_TYPE => found.encap |= attr.u16()? != 0,
                NHA_ENCAP => found.encap = true,
                NHA_FDB => found.fdb = true,
                _ => {}
            }
        }
        if found.id == 0 {
            return Err(Malformed::Value { what: "next-hop id", value: 0 });
        }
        if let Some(group) = found.group
            && group.len() % ENTRY_BYTES != 0
        {
            let what = "next-hop group length";
            return Err(Malformed::Value { what, value: group.len() as u64 });
        }
        Ok(found)
    }

    /// The members (number and weight from 1) where it is a group.
    pub fn group(&self) -> Option<impl ExactSizeIterator<Item = (u32, u32)> + 'a> {
        // id u32, weight - 1 u8, its high byte u8 (Linux 6.12 on, 0 before), reserved u16
        self.group.map(|entries| {
            entries.chunks_exact(ENTRY_BYTES).map(|entry| {
                let id = u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
                (id, u32::from(u16::from_le_bytes([entry[4], entry[5]])) + 1)
            })
        })
    }
}

/// Size of `nexthop_grp`.
const ENTRY_BYTES: usize = 8;

/// Request for all next-hop objects.
pub fn dump(seq: u32) -> Vec<u8> {
    Request::dump(GET, seq).fixed(&[0; 8]).finish()
}
