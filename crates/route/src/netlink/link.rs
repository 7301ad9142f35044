//! Links: `ifinfomsg` and its attributes.

use super::{Attr, Malformed, Message, Request, fixed, u16_at, u32_at};
use crate::event::{BOND, LinkState, Mac, VRF, VlanState};

/// `RTM_NEWLINK`.
pub const NEW: u16 = 16;
/// `RTM_DELLINK`.
pub const DEL: u16 = 17;
const GET: u16 = 18;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_CARRIER: u16 = 33;
const IFLA_LINK_NETNSID: u16 = 37;

const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;

/// `IFLA_VRF_TABLE` of a VRF device, and `IFLA_VRF_PORT_TABLE` of its members.
const IFLA_VRF_TABLE: u16 = 1;
const IFLA_BOND_SLAVE_STATE: u16 = 1;
const BOND_STATE_BACKUP: u8 = 1;

const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_EGRESS_QOS: u16 = 3;
const IFLA_VLAN_INGRESS_QOS: u16 = 4;
const IFLA_VLAN_PROTOCOL: u16 = 5;

const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_LOWER_UP: u32 = 0x1_0000;

const ARPHRD_ETHER: u16 = 1;

/// Filter of requests that leaves out counters, the larger part of each reply.
const RTEXT_FILTER_SKIP_STATS: u32 = 8;

/// A link of a message.
#[derive(Clone, Debug)]
pub struct Link {
    /// Kernel index.
    pub link: u32,
    /// Set up by the administrator, with or without carrier.
    pub admin_up: bool,
    /// What RFC 2863 calls its state, as the kernel numbers it (0 unknown, 6 up). Unlike carrier it
    /// changes together with the routes over the link, under the same lock.
    pub operstate: u8,
    /// Its present state.
    pub state: LinkState,
}

impl Link {
    /// Reads the body of [`NEW`] or [`DEL`]. `None` for messages of other families (bridges) about
    /// a port, which have equal types: their "deleted" means that it left the bridge.
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
        let (mut parent, mut elsewhere, mut data, mut member) = (None, false, None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                IFLA_ADDRESS if hardware == ARPHRD_ETHER => {
                    state.mac = attr.data.try_into().ok().map(Mac);
                }
                IFLA_IFNAME => state.name = attr.text().into_owned(),
                IFLA_MTU => state.mtu = attr.u32()?,
                IFLA_LINK => parent = Some(attr.u32()?),
                IFLA_LINK_NETNSID => elsewhere = true,
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
                            IFLA_INFO_DATA => data = Some(info),
                            IFLA_INFO_SLAVE_KIND => state.master_kind = info.text().into_owned(),
                            IFLA_INFO_SLAVE_DATA => member = Some(info),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        state.up = up;
        if let (Some(parent), false, Some(data), "vlan") = (parent, elsewhere, data, &*state.kind) {
            state.vlan = Some(vlan(parent, &data)?);
        }
        if state.master_kind == BOND {
            for attr in member.iter().flat_map(Attr::nested) {
                let attr = attr?;
                if attr.kind == IFLA_BOND_SLAVE_STATE {
                    state.backup = attr.u8()? == BOND_STATE_BACKUP;
                }
            }
        }
        let vrf = match (&*state.kind, &*state.master_kind) {
            (VRF, _) => data,
            (_, VRF) => member,
            _ => None,
        };
        for attr in vrf.iter().flat_map(Attr::nested) {
            let attr = attr?;
            if attr.kind == IFLA_VRF_TABLE {
                state.vrf = Some(attr.u32()?);
            }
        }
        Ok(Some(Self { link, admin_up, operstate, state }))
    }
}

/// `IFLA_INFO_DATA` of a VLAN interface.
fn vlan(parent: u32, data: &Attr<'_>) -> Result<VlanState, Malformed> {
    // The protocol is an attribute since Linux 3.10; before there was one.
    let mut vlan = VlanState { parent, id: 0, protocol: 0x8100, mapped: false };
    for attr in data.nested() {
        let attr = attr?;
        match (attr.kind, attr.data) {
            (IFLA_VLAN_ID, [a, b]) => vlan.id = u16::from_ne_bytes([*a, *b]),
            (IFLA_VLAN_PROTOCOL, [a, b]) => vlan.protocol = u16::from_be_bytes([*a, *b]),
            (IFLA_VLAN_EGRESS_QOS | IFLA_VLAN_INGRESS_QOS, map) => vlan.mapped |= !map.is_empty(),
            _ => {}
        }
    }
    Ok(vlan)
}

/// Request for all links.
pub fn dump(seq: u32) -> Vec<u8> {
    Request::dump(GET, seq)
        .fixed(&[0; 16])
        .attr(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes())
        .finish()
}

#[cfg(test)]
mod tests {
    use super::super::Messages;
    use super::*;

    /// What of a message about a link of this kind is known of its VLAN.
    fn vlan_of(kind: &str, attrs: &[(u16, &[u8])], data: &[(u16, &[u8])]) -> Option<VlanState> {
        let nested = |all: &[(u16, &[u8])]| -> Vec<u8> {
            let body =
                all.iter().fold(Request::new(0, 0, 0), |r, (kind, data)| r.attr(*kind, data));
            body.finish()[16..].to_vec()
        };
        let info = nested(&[(IFLA_INFO_KIND, kind.as_bytes()), (IFLA_INFO_DATA, &nested(data))]);
        let mut fixed = [0; 16];
        fixed[4] = 9;
        let message = Request::new(NEW, 0, 0).fixed(&fixed).attr(IFLA_LINKINFO, &info);
        let message = attrs.iter().fold(message, |m, (kind, data)| m.attr(*kind, data)).finish();
        let message = Messages::new(&message).next().unwrap().unwrap();
        let link = Link::parse(&message).unwrap().unwrap();
        assert_eq!((link.link, &link.state.kind[..]), (9, kind));
        link.state.vlan
    }

    #[test]
    fn vrfs_and_their_members_have_its_table() {
        let table = Request::new(0, 0, 0).attr(IFLA_VRF_TABLE, &10u32.to_ne_bytes()).finish();
        let read = |kind: (u16, &str), data: u16| {
            let info =
                Request::new(0, 0, 0).attr(kind.0, kind.1.as_bytes()).attr(data, &table[16..]);
            let message = Request::new(NEW, 0, 0).fixed(&[0; 16]);
            let message = message.attr(IFLA_LINKINFO, &info.finish()[16..]).finish();
            let message = Messages::new(&message).next().unwrap().unwrap();
            Link::parse(&message).unwrap().unwrap().state.vrf
        };
        assert_eq!(read((IFLA_INFO_KIND, "vrf"), IFLA_INFO_DATA), Some(10));
        assert_eq!(read((IFLA_INFO_SLAVE_KIND, "vrf"), IFLA_INFO_SLAVE_DATA), Some(10));
        assert_eq!(read((IFLA_INFO_SLAVE_KIND, "bond"), IFLA_INFO_SLAVE_DATA), None);
        assert_eq!(read((IFLA_INFO_KIND, "vrf"), IFLA_INFO_SLAVE_DATA), None);
    }

    #[test]
    fn members_of_a_bond_are_in_use_or_not() {
        for (state, backup) in [(0, false), (1, true)] {
            let data = Request::new(0, 0, 0).attr(IFLA_BOND_SLAVE_STATE, &[state]).finish();
            let info = Request::new(0, 0, 0).attr(IFLA_INFO_SLAVE_KIND, b"bond");
            let info = info.attr(IFLA_INFO_SLAVE_DATA, &data[16..]).finish();
            let message = Request::new(NEW, 0, 0).fixed(&[0; 16]);
            let message = message.attr(IFLA_MASTER, &5u32.to_ne_bytes());
            let message = message.attr(IFLA_LINKINFO, &info[16..]).finish();
            let message = Messages::new(&message).next().unwrap().unwrap();
            let link = Link::parse(&message).unwrap().unwrap().state;
            assert_eq!((link.is_in_bond(), link.backup), (true, backup));
        }
    }

    #[test]
    fn vlan_interfaces_have_their_parent_and_tag() {
        let on = (IFLA_LINK, &7u32.to_ne_bytes()[..]);
        let id = (IFLA_VLAN_ID, &10u16.to_ne_bytes()[..]);
        let vlan = VlanState { parent: 7, id: 10, protocol: 0x8100, mapped: false };
        assert_eq!(vlan_of("vlan", &[on], &[id]), Some(vlan));
        let protocol = (IFLA_VLAN_PROTOCOL, &[0x88, 0xa8][..]);
        let service = VlanState { protocol: 0x88a8, ..vlan };
        assert_eq!(vlan_of("vlan", &[on], &[protocol, id]), Some(service));
        for map in [IFLA_VLAN_EGRESS_QOS, IFLA_VLAN_INGRESS_QOS] {
            let mapped = VlanState { mapped: true, ..vlan };
            assert_eq!(vlan_of("vlan", &[on], &[id, (map, &[0; 12])]), Some(mapped));
        }
        // Its other half in another namespace, where 7 is something else; and no VLAN at all.
        let elsewhere = (IFLA_LINK_NETNSID, &[0; 4][..]);
        assert_eq!(vlan_of("vlan", &[on, elsewhere], &[id]), None);
        assert_eq!(vlan_of("veth", &[on], &[id]), None);
    }
}
