//! Names of addresses: `AddressInfo(lan 10.0.0.1/24 02:00:00:00:00:01)` lets `lan` stand for each of them.
//!
//! Source: Click's `AddressInfo`. `NAME:ip`, `NAME:ipnet`, `NAME:bcast` and `NAME:eth` name which is meant; `NAME` is what the
//! argument wants, and an address where that is a prefix. The name of an interface of the host stands for its addresses, and
//! `NAME:gw` for the gateway of its default route. A name holds in the
//! compound that declares it and those inside. Names are those of the configuration that this thread planned last:
//! handlers that other threads call know none of them.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;

use fingerpost_route::Mac;

use super::scoped::{self, Scoped};
use super::value::Around;
use super::{Arg, Configuration};

/// The class that declares them.
pub(crate) const CLASS_NAME: &str = "AddressInfo";

/// What a name stands for: addresses that a configuration names, or those of an interface of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Named {
    /// Its IPv4 address, and the prefix around it.
    pub own: Option<Around<u32>>,
    /// Its link address.
    pub mac: Option<Mac>,
    /// Gateway of the default route by it.
    pub gateway: Option<Ipv4Addr>,
}

/// Addresses of an interface of the host, by its name.
pub type Interfaces = fn(&str) -> Option<Named>;

thread_local! {
    static INTERFACES: Cell<Interfaces> = const { Cell::new(|_| None) };
    static NAMES: RefCell<Scoped<Named>> = RefCell::default();
}

/// Makes the names of a configuration known.
pub(crate) fn declare(configuration: &Configuration, interfaces: Interfaces) {
    INTERFACES.set(interfaces);
    NAMES.with_borrow_mut(Scoped::clear);
    scoped::declare(configuration, CLASS_NAME, add);
}

/// Adds one name with its addresses.
pub(crate) fn add(arg: &Arg<'_>) -> Result<(), String> {
    let mut words = arg.words();
    let name: String = words.next().ok_or("a name and its addresses are missing")?.value()?;
    let mut named = NAMES.with_borrow_mut(|names| *names.own(&name));
    for word in words {
        if let Ok(own) = word.value::<Around<u32>>() {
            named.own = Some(own);
        } else if let Ok(mac) = word.value::<Mac>() {
            named.mac = Some(mac);
        } else if word.value::<Around<u128>>().is_err() {
            return Err(format!("`{}` is no address", word.raw()));
        }
    }
    NAMES.with_borrow_mut(|names| *names.own(&name) = named);
    Ok(())
}

fn find(text: &str) -> Option<(Named, &str)> {
    let (name, kind) = text.split_once(':').unwrap_or((text, ""));
    let named = NAMES.with_borrow(|names| names.find(name));
    let named = named.or_else(|| INTERFACES.get()(name))?;
    Some((named, kind))
}

/// The address of a name.
pub(super) fn addr(text: &str) -> Option<Ipv4Addr> {
    let (prefix, len) = prefix(text)?;
    (len == 32).then(|| Ipv4Addr::from_bits(prefix))
}

/// Address and prefix length of a name.
pub(super) fn prefix(text: &str) -> Option<(u32, u8)> {
    let (named, kind) = find(text)?;
    if kind == "gw" {
        return named.gateway.map(|gateway| (gateway.to_bits(), 32));
    }
    let own = named.own?;
    match kind {
        "" | "ip" | "ipaddr" | "ip4" => Some((own.addr, 32)),
        "ipnet" | "ip4net" | "net" => Some((own.prefix.addr(), own.prefix.len())),
        "bcast" | "bcast4" => Some((own.prefix.last(), 32)),
        _ => None,
    }
}

/// The Ethernet address of a name.
pub(super) fn mac(text: &str) -> Option<Mac> {
    let (named, kind) = find(text)?;
    named.mac.filter(|_| matches!(kind, "" | "eth" | "ether" | "ethernet"))
}

/// Types that no name stands for.
pub(super) fn none<T>(_: &str) -> Option<T> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::Value;
    use crate::testing::{Rig, World};

    #[test]
    fn names_stand_for_what_is_wanted() {
        let text = "AddressInfo(lan 1.2.3.4/20 2:0:0:0:0:1, other 2-0-0-0-0-2);
            rt :: LinearIPLookup(lan 0, lan:ipnet 1, lan:bcast 2, lan/24 0); Idle -> rt; rt => Discard, Discard, Discard;
            FromDevice(a) -> EtherEncap(0x0800, lan, other:eth) -> ToDevice(b);
            Idle -> of :: IPClassifier(src net lan and dst host lan, -); of => Discard, Discard";
        let mut rig = Rig::new(&World::new(), text);
        let table = rig.read("rt.table");
        for row in ["1.2.3.4/32", "1.2.0.0/20", "1.2.15.255/32", "1.2.3.0/24"] {
            assert!(table.contains(row), "{table}");
        }
        let sent = rig.receive("a", &[&[7]]);
        assert_eq!(sent[0].1[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        assert!(Ipv4Addr::read("other").is_err() && Mac::read("lan:ip").is_err());
    }

    #[test]
    fn prefixes_are_named_in_filters() {
        let text = "AddressInfo(lan 1.2.3.4/20); FromDevice(in) -> MarkIPHeader(14)
            -> c :: IPClassifier(src net lan:ipnet, -) -> ToDevice(a); c [1] -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        let mut to = |src| {
            let frame = crate::testing::frame_v4(src, "9.9.9.9", 64, 17, &[0; 8]);
            rig.receive("in", &[&frame])[0].0.clone()
        };
        assert_eq!([to("1.2.15.255"), to("1.2.16.1")], ["a", "b"]);
    }

    #[test]
    fn names_hold_in_their_compound() {
        let compound =
            "elementclass A { AddressInfo(a 1.0.0.1); input -> s :: SetIPAddress(a) -> output }";
        let used = |text: &str| {
            crate::Plan::read("f", &format!("{compound} {text}"), crate::ELEMENTS)
                .map(|_| ())
                .is_ok()
        };
        assert!(used("Idle -> A -> Discard"));
        assert!(!used("Idle -> A -> SetIPAddress(a) -> Discard"));
        assert!(used("AddressInfo(a 2.0.0.1); Idle -> A -> SetIPAddress(a) -> Discard"));
        let outer = "AddressInfo(b 2.0.0.1); elementclass B { input -> SetIPAddress(b) -> output } Idle -> B -> Discard";
        assert!(used(outer), "of the compounds around it");
    }
}
