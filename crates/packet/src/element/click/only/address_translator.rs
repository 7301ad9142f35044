//! `AddressTranslator` changes addresses, and where wanted ports, of IPv6 packets: the source of those that come by its
//! first input, the destination of those by its second (NAT-PT, RFC 2766).
//!
//! Source: Click's `AddressTranslator` and its arguments: how many static mappings, whether they have ports, the
//! mappings (`INNER MAPPED`, or `INNER PORT MAPPED PORT OUTER PORT`); then whether there are dynamic ones, whether
//! these have ports, by which input new ones are made (0 alone: a packet from outside names no inner end), and the
//! address that they get (`ADDR`, or `ADDR FIRST-PORT LAST-PORT`, several are separated by commas). Packets without
//! mapping are dropped. All workers share the mappings; those with an address alone last, of those with ports the
//! oldest makes room for a new one. Differs: the outer end of a static mapping with ports is not compared.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::protocol_translator::fill_checksum6;
use crate::frame::wire::icmp::PROTOCOL_ICMPV6;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::wire::{IP6_BYTES, Ip6, Ip6Mut};
use crate::frame::{Batch, DropReason, Hop};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("AddressTranslator", "2/2", "a/a", "xy/xy"),
    summary: "changes addresses and ports of IPv6 packets",
    configure: |setup| {
        let given: Vec<_> = setup.args.rest().collect();
        let read = read(setup, &given);
        setup.args.finish()?;
        let table = Arc::new(Mutex::new(read?));
        let shown = table.clone();
        let made = Made::new(move |instance| Translator {
            table: (!instance.is_dry_run()).then(|| table.clone()),
        });
        Ok(made.handler(Handler::read("mappings", move || lock(&shown).text())))
    },
};

/// An address, and a port where those are mapped as well.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct End {
    addr: u128,
    port: u16,
}

/// Mappings, and how new ones are made.
#[derive(Default)]
struct Table {
    /// Static mappings with ports, or dynamic ones.
    with_ports: bool,
    inward: HashMap<End, End>,
    outward: HashMap<End, End>,
    /// Ends that new mappings get, those that are in use as well; the next is at `next`.
    pool: Vec<End>,
    next: usize,
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    // A mapping is whole or not there.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the arguments in the order that they have.
fn read(setup: &mut Setup<'_>, given: &[Arg<'_>]) -> Result<Table, ConfigError> {
    let mut args = given.iter();
    let mut table = Table::default();
    let mut number = |setup: &mut Setup<'_>, name| match args.next() {
        Some(arg) => setup.args.read::<u16>(arg, name).map(|number| (number, arg)),
        None => Err(setup.args.refuse_all(&format!("argument {name} is missing"))),
    };
    let mappings = number(setup, "STATIC")?.0;
    let ports = mappings > 0 && number(setup, "STATIC_PORTS")?.0 > 0;
    for _ in 0..mappings {
        let Some(arg) = args.next() else {
            return Err(setup.args.refuse_all("there are fewer static mappings than announced"));
        };
        let words: Vec<_> = arg.words().collect();
        let (inner, mapped) = match (&words[..], ports) {
            ([inner, mapped, ..], false) => (end(setup, inner, None)?, end(setup, mapped, None)?),
            ([inner, inner_port, mapped, mapped_port, ..], true) => {
                (end(setup, inner, Some(inner_port))?, end(setup, mapped, Some(mapped_port))?)
            }
            _ => {
                return Err(setup
                    .args
                    .refuse(arg, "a mapping is INNER MAPPED, with ports behind each"));
            }
        };
        table.add(inner, mapped);
    }
    table.with_ports = ports;
    let mut number = |setup: &mut Setup<'_>| match args.next() {
        Some(arg) => setup.args.read::<u16>(arg, "DYNAMIC"),
        None => Ok(0),
    };
    if number(setup)? == 0 {
        return Ok(table);
    }
    let ports = number(setup)? > 0;
    if mappings > 0 && ports != table.with_ports {
        return Err(setup.args.refuse_all("mappings have ports all or none here"));
    }
    table.with_ports = ports;
    if number(setup)? != 0 {
        return Err(setup.args.refuse_all("new mappings are made by packets of input 0 alone"));
    }
    for arg in args {
        let words: Vec<_> = arg.words().collect();
        match (&words[..], ports) {
            ([addr], false) => {
                let end = end(setup, addr, None)?;
                table.pool.push(end);
            }
            ([addr, first, last], true) => {
                let first = setup.args.read::<u16>(first, "PORT")?;
                let last = setup.args.read::<u16>(last, "PORT")?;
                let End { addr, .. } = end(setup, addr, None)?;
                table.pool.extend((first..=last).map(|port| End { addr, port }));
            }
            _ => {
                return Err(setup
                    .args
                    .refuse(arg, "a mapped address is ADDR, or ADDR FIRST LAST with ports"));
            }
        }
    }
    Ok(table)
}

fn end(setup: &mut Setup<'_>, addr: &Arg<'_>, port: Option<&Arg<'_>>) -> Result<End, ConfigError> {
    let addr = setup.args.read::<Ipv6Addr>(addr, "ADDR")?.to_bits();
    let port = port.map(|port| setup.args.read(port, "PORT")).transpose()?.unwrap_or(0);
    Ok(End { addr, port })
}

impl Table {
    fn add(&mut self, inner: End, mapped: End) {
        self.outward.insert(inner, mapped);
        self.inward.insert(mapped, inner);
    }

    /// What an end becomes, by a new mapping where there is none and packets of the input make them.
    fn find(&mut self, input: u16, end: End) -> Option<End> {
        let known = if input == 0 { &self.outward } else { &self.inward };
        if let Some(found) = known.get(&end) {
            return Some(*found);
        }
        if input != 0 || self.pool.is_empty() {
            return None;
        }
        let mapped = self.pool[self.next % self.pool.len()];
        if let Some(before) = self.inward.get(&mapped).copied() {
            // An address is another host's; of ports the oldest is taken.
            if !self.with_ports {
                return None;
            }
            self.outward.remove(&before);
        }
        self.next = (self.next + 1) % self.pool.len();
        self.add(end, mapped);
        Some(mapped)
    }

    fn text(&self) -> String {
        let addr = |end: &End| format!("{} {}", Ipv6Addr::from_bits(end.addr), end.port);
        let mut lines: Vec<_> = self
            .outward
            .iter()
            .map(|(inner, mapped)| format!("{} => {}\n", addr(inner), addr(mapped)))
            .collect();
        lines.sort();
        lines.concat()
    }
}

struct Translator {
    /// `None` where packets are only evaluated: mappings of them are none.
    table: Option<Arc<Mutex<Table>>>,
}

impl Translator {
    /// Changes a packet; `None` where it has no mapping.
    fn change(&self, input: u16, packet: &mut [u8]) -> Option<()> {
        let ip = Ip6::at(packet, 0).filter(|ip| ip.version() == 6)?;
        let (protocol, addr) = (ip.next_header(), if input == 0 { ip.src() } else { ip.dst() });
        let mut table = lock(self.table.as_ref()?);
        let port_at = match protocol {
            TCP | UDP => IP6_BYTES + usize::from(input) * 2,
            // Echoes have an identifier, other messages other things there.
            PROTOCOL_ICMPV6 if matches!(packet.get(IP6_BYTES), Some(128 | 129)) => IP6_BYTES + 4,
            _ => 0,
        };
        let has_port = table.with_ports && port_at > 0;
        let port = match packet.get(port_at..port_at + 2).filter(|_| has_port) {
            Some(bytes) => u16::from_be_bytes([bytes[0], bytes[1]]),
            None => 0,
        };
        let to = table.find(input, End { addr, port })?;
        drop(table);
        let mut header = Ip6Mut::at(packet, 0)?;
        if input == 0 {
            header.set_src(to.addr)
        } else {
            header.set_dst(to.addr)
        }
        if has_port {
            packet.get_mut(port_at..port_at + 2)?.copy_from_slice(&to.port.to_be_bytes());
        }
        // What has no checksum stays.
        let _ = fill_checksum6(packet);
        Some(())
    }
}

impl Element for Translator {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let network = usize::from(batch.meta()[i].network);
            let packet = batch.bytes_mut(i).get_mut(network..).unwrap_or_default();
            if self.change(input, packet).is_none() {
                batch.discard(i, DropReason::Unmatched);
                continue;
            }
            batch.meta_mut()[i].hop = Hop::NONE;
            batch.output(i, input);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v6, refused};

    fn rig(config: &str) -> Rig {
        let text = format!(
            "FromDevice(in) -> Strip(14) -> CheckIP6Header -> [0] t :: AddressTranslator({config}) -> ToDevice(out);
             FromDevice(back) -> Strip(14) -> CheckIP6Header -> [1] t [1] -> ToDevice(inner)"
        );
        Rig::new(&World::new(), &text)
    }

    fn udp(src: &str, dst: &str, ports: [u8; 2]) -> Vec<u8> {
        frame_v6(src, dst, 64, 17, &[0, ports[0], 0, ports[1], 0, 8, 0, 0])
    }

    #[test]
    fn a_static_mapping_serves_both_ways() {
        let mut rig = rig("1, 0, fe80::5 ::1.0.0.1, 0");
        let out = &rig.receive("in", &[&udp("fe80::5", "::2.0.0.2", [1, 2])])[0].1;
        assert_eq!(Ip6::at(out, 0).unwrap().src(), 0x0100_0001);
        let back = &rig.receive("back", &[&udp("::2.0.0.2", "::1.0.0.1", [2, 1])])[0];
        assert_eq!((&*back.0, Ip6::at(&back.1, 0).unwrap().dst() & 0xffff), ("inner", 5));
        assert!(rig.receive("in", &[&udp("fe80::6", "::2.0.0.2", [1, 2])]).is_empty());
        assert_eq!(rig.dropped(DropReason::Unmatched), 1);
    }

    #[test]
    fn icmp_messages_other_than_echoes_stay_as_they_are() {
        let config = "0, 1, 1, 0, ::1.0.0.1 200 201";
        let field = |kind: u8| {
            let message = [kind, 0, 0, 0, 0, 0, 5, 0xdc];
            let frame = frame_v6("fe80::5", "::2.0.0.2", 64, PROTOCOL_ICMPV6, &message);
            rig(config).receive("in", &[&frame])[0].1[44..48].to_vec()
        };
        assert_eq!((field(2), field(128)), (vec![0, 0, 5, 0xdc], vec![0, 200, 5, 0xdc]));
    }

    #[test]
    fn dynamic_mappings_are_made_from_within() {
        let mut alone = rig("0, 1, 0, 0, ::1.0.0.1");
        assert!(alone.receive("back", &[&udp("::2.0.0.2", "::1.0.0.1", [2, 1])]).is_empty());
        assert_eq!(alone.receive("in", &[&udp("fe80::5", "::2.0.0.2", [1, 2])]).len(), 1);
        assert!(
            alone.receive("in", &[&udp("fe80::6", "::2.0.0.2", [1, 2])]).is_empty(),
            "it is taken"
        );
        let mut ports = rig("0, 1, 1, 0, ::1.0.0.1 200 201");
        let port = |rig: &mut Rig, host: &str| {
            rig.receive("in", &[&udp(host, "::2.0.0.2", [1, 2])])[0].1[41]
        };
        let seen = ["fe80::5", "fe80::6", "fe80::5", "fe80::7"].map(|host| port(&mut ports, host));
        assert_eq!(seen, [200, 201, 200, 200], "the oldest makes room");
        let back = &ports.receive("back", &[&udp("::2.0.0.2", "::1.0.0.1", [2, 201])])[0].1;
        assert_eq!((Ip6::at(back, 0).unwrap().dst() & 0xffff, back[43]), (6, 1));
        assert!(ports.read("t.mappings").contains("fe80::6 1 => ::100:1 201"));
        assert!(refused(&CLASS, "0, 1, 0, 1, ::1").contains("of input 0 alone"));
        assert!(refused(&CLASS, "2, 0, ::1 ::2").contains("fewer static mappings"));
        assert!(refused(&CLASS, "0, 1, 1, 0, ::1").contains("ADDR FIRST LAST"));
    }
}
