//! Whether the kernel forwards at all: `net.ipv4.ip_forward`, `net.ipv4.conf.IF.forwarding` and
//! `net.ipv6.conf.all.forwarding`.
//!
//! Source: the kernel's `include/uapi/linux/netconf.h`, `net/ipv4/devinet.c`, `net/ipv6/addrconf.c`. The families differ:
//! IPv4 reads the switch of the ingress interface alone (`ip_forward` sets those of all interfaces), IPv6 at the
//! one switch of all interfaces. The IPv6 `forwarding` of one interface makes it a host or a router for neighbor
//! discovery and stops no packet. What overrules the one switch for an ingress interface since Linux 6.17,
//! `force_forwarding`, is reported when it changes, but its value is not (seen with Linux 6.18).

use std::collections::BTreeMap;

use super::super::{IPV4, Malformed, Message, Request, fixed};

/// `RTM_NEWNETCONF`.
pub const NEW: u16 = 80;
const GET: u16 = 82;

const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;

/// Stands in the place of an interface for all of them.
const ALL: i32 = -1;
/// Stands in the place of an interface for those that are yet to come.
const DEFAULT: i32 = -2;

/// All switches of both families, by interface. What was not reported is taken for on: it keeps nothing with the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    v4: BTreeMap<i32, bool>,
    v6: BTreeMap<i32, bool>,
}

impl Forwarding {
    /// Reads [`NEW`].
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(&mut self, message: &Message<'_>) -> Result<(), Malformed> {
        // netconfmsg: the family, padded.
        let (h, attrs) = fixed::<4>(message.body, "netconfmsg")?;
        let (mut link, mut on) = (None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NETCONFA_IFINDEX => link = Some(attr.u32()?.cast_signed()),
                NETCONFA_FORWARDING => on = Some(attr.u32()? != 0),
                _ => {}
            }
        }
        if let (Some(link), Some(on)) = (link, on) {
            self.of(h[0]).insert(link, on);
        }
        Ok(())
    }

    /// Forgets a family, which is about to be reported anew.
    pub fn forget(&mut self, family: u8) {
        self.of(family).clear();
    }

    fn of(&mut self, family: u8) -> &mut BTreeMap<i32, bool> {
        if family == IPV4 { &mut self.v4 } else { &mut self.v6 }
    }

    /// The switch that keeps the kernel from forwarding IPv4 packets that arrive by a link of this name.
    pub fn off_v4(&self, link: u32, name: &str) -> Option<String> {
        let on = |link: i32| self.v4.get(&link).copied();
        let here = i32::try_from(link).ok().and_then(on).or(on(DEFAULT)).unwrap_or(true);
        let all = on(ALL).unwrap_or(true);
        match (here, all) {
            (true, _) => None,
            (false, true) => Some(format!("net.ipv4.conf.{name}.forwarding=0")),
            (false, false) => Some("net.ipv4.ip_forward=0".into()),
        }
    }

    /// The switch that keeps the kernel from forwarding IPv6 packets, unless the ingress interface overrules it.
    pub fn off_v6(&self) -> Option<String> {
        let off = self.v6.get(&ALL) == Some(&false);
        off.then(|| "net.ipv6.conf.all.forwarding=0".into())
    }
}

/// Request for all switches of a family.
pub fn dump(family: u8, seq: u32) -> Vec<u8> {
    Request::dump(GET, seq).fixed(&[family, 0, 0, 0]).finish()
}

#[cfg(test)]
mod tests {
    use super::super::super::{IPV6, Messages};
    use super::*;

    fn forwarding(settings: &[(u8, i32, bool)]) -> Forwarding {
        let mut forwarding = Forwarding::default();
        for &(family, link, on) in settings {
            let message = Request::new(NEW, 2, 1)
                .fixed(&[family, 0, 0, 0])
                .attr(NETCONFA_IFINDEX, &link.to_ne_bytes())
                .attr(NETCONFA_FORWARDING, &u32::from(on).to_ne_bytes())
                .finish();
            let message = Messages::new(&message).next().unwrap().unwrap();
            forwarding.read(&message).unwrap();
        }
        forwarding
    }

    #[test]
    fn the_families_have_switches_of_their_own() {
        assert_eq!(Forwarding::default().off_v4(3, "a"), None, "no message");
        assert_eq!(Forwarding::default().off_v6(), None);
        let mut all = forwarding(&[
            (IPV4, ALL, true),
            (IPV4, DEFAULT, true),
            (IPV4, 3, false),
            (IPV4, 4, true),
            (IPV6, ALL, false),
            (IPV6, 3, true),
        ]);
        assert_eq!(all.off_v4(3, "a").unwrap(), "net.ipv4.conf.a.forwarding=0");
        assert_eq!([4, 5].map(|link| all.off_v4(link, "b")), [None, None], "5 is yet to come");
        assert_eq!(all.off_v6().unwrap(), "net.ipv6.conf.all.forwarding=0");
        all.forget(IPV4);
        assert_eq!(all.off_v4(3, "a"), None);
        // One interface that forwards though the rest does not, and vice versa.
        let one = forwarding(&[(IPV4, ALL, false), (IPV4, 3, true), (IPV4, 4, false)]);
        assert_eq!(one.off_v4(3, "a"), None);
        assert_eq!(one.off_v4(4, "b").unwrap(), "net.ipv4.ip_forward=0");
        assert_eq!(forwarding(&[(IPV6, ALL, true), (IPV6, 3, false)]).off_v6(), None);
    }
}
