//! Paths of packets: traces become documents for people, files and programs.
//!
//! The same for the daemon and for graphs of files; what only one of them knows, names of ports and what a lookup
//! found, it adds itself.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::UNIX_EPOCH;

use fingerpost_lpm::Addr;
use fingerpost_packet::frame::wire::{ETHER_BYTES, Ether, Ip4, Ip6, ether};
use fingerpost_packet::graph::trace::{Fate, Step, Trace, Traced, changes, summary};
use fingerpost_packet::language::Role;
use fingerpost_packet::{Meta, Plan};
use fingerpost_route::Mac;

use crate::api::graph::{
    FieldChange, PacketTrace, TableRoute, TraceRoute, TraceStep, TracedPacket,
};

/// The sender of a packet that is made up: a link address that is set by hand.
pub(crate) const SENDER: Mac = Mac([2, 0, 0x5e, 0, 0, 1]);
/// Longest frame in a request, in bytes.
const LONGEST: usize = 9216;

/// What is known of a graph that packets were traced in.
pub(crate) struct TraceWriter<'a> {
    /// The graph.
    pub(crate) plan: &'a Plan,
    /// Names of its ports.
    pub(crate) port: &'a dyn Fn(u16) -> String,
    /// What a lookup in the routes of the daemon found for a frame, and then those in VRFs.
    pub(crate) found: &'a dyn Fn(&[u8], Meta) -> Vec<TraceRoute>,
    /// What an interface feature does with a frame of a port, by the class of its element.
    pub(crate) notes: &'a Notes<'a>,
    /// What a step means in a cluster, by the class of its element.
    pub(crate) cluster: &'a InCluster<'a>,
}

/// Finds what an element of a cluster made of a frame: class of the element, frame before and after it, and the number by which
/// the element explained it.
pub(crate) type InCluster<'a> = dyn Fn(&str, &[u8], &[u8], u32) -> Option<String> + 'a;

/// Finds what an interface feature does with a frame: class of its element, frame, and what is known of it.
pub(crate) type Notes<'a> = dyn Fn(&str, &[u8], Meta) -> Vec<String> + 'a;

impl TraceWriter<'_> {
    /// A trace in words.
    pub(crate) fn write(&self, trace: &Trace, number: u64) -> PacketTrace {
        let mut last: Vec<(&[u8], Meta)> =
            trace.packets.iter().map(|packet| (&*packet.frame, packet.meta)).collect();
        let mut steps = Vec::new();
        for step in &trace.steps {
            let Some(seen) = last.get_mut(usize::from(step.packet)) else { continue };
            let before = *seen;
            *seen = (step.frame.as_deref().unwrap_or(before.0), step.meta);
            steps.push(self.step(step, before, seen.0));
        }
        let packet = |(number, packet): (usize, &Traced)| {
            let end = trace.steps.iter().rfind(|step| usize::from(step.packet) == number);
            let (fate, reason, interface) = match end.map(|step| step.fate) {
                Some(Fate::Sent(port)) => ("sent", None, Some((self.port)(port))),
                Some(Fate::Dropped(why)) => ("dropped", Some(why.name().to_owned()), None),
                Some(Fate::Written) => ("written", None, None),
                _ => ("kept", None, None),
            };
            TracedPacket {
                summary: summary(&packet.frame),
                fate: fate.to_owned(),
                reason,
                interface,
                frame: hex(&packet.frame),
                last: hex(&packet.last),
            }
        };
        let time = trace.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let first = trace.packets.first();
        PacketTrace {
            number,
            time: time.as_secs_f64(),
            interface: first.map(|packet| (self.port)(packet.meta.port)).unwrap_or_default(),
            packets: trace.packets.iter().enumerate().map(packet).collect(),
            steps,
            cut: trace.cut,
        }
    }

    fn step(&self, step: &Step, (before, meta): (&[u8], Meta), frame: &[u8]) -> TraceStep {
        let node = &self.plan.nodes()[usize::from(step.node)];
        let spec = &node.class.spec;
        let (does, output, reason, port) = match step.fate {
            Fate::Output(output) => ("passed", Some(output), None, None),
            Fate::Dropped(why) => ("dropped", None, Some(why), None),
            Fate::Kept => ("kept", None, None, None),
            Fate::Sent(port) => ("sent", None, None, Some(port)),
            Fate::Written => ("written", None, None, None),
        };
        let name = output.and_then(|output| spec.output_names.get(usize::from(output)));
        let rewritten = changes(before, frame).into_iter();
        let is_lookup = spec.role == Role::Lookup;
        let routes = if is_lookup { (self.found)(frame, step.meta) } else { Vec::new() };
        let mut routes = routes.into_iter();
        TraceStep {
            packet: step.packet,
            element: node.name.to_string(),
            class: spec.name.to_owned(),
            input: step.input,
            does: does.to_owned(),
            output,
            output_name: name.map(ToString::to_string),
            interface: port.map(self.port),
            reason: reason.map(|why| why.name().to_owned()),
            why: reason.map(|why| why.summary().to_owned()),
            changes: rewritten
                .map(|change| FieldChange { field: change.field, from: change.from, to: change.to })
                .collect(),
            route: routes.next(),
            vrf_routes: routes.collect(),
            notes: (self.notes)(spec.name, frame, step.meta),
            cluster: match step.fate {
                Fate::Output(_) => (self.cluster)(spec.name, before, frame, step.reason),
                _ => None,
            },
            found: self.table_route(step, frame, meta),
            made: step.made.clone(),
        }
    }

    /// What an element with a route table of its own has for a packet that was so before.
    fn table_route(&self, step: &Step, frame: &[u8], before: Meta) -> Option<TableRoute> {
        if !self.plan.has_routes(step.node) {
            return None;
        }
        let dst = network(frame.get(before.network.into()..)?)?;
        let found = self.plan.route_of(step.node, before.hop.gateway(), dst);
        let gateway = found.as_ref().and_then(|found| found.gateway);
        Some(TableRoute {
            prefix: found.map(|found| found.prefix),
            gateway: gateway.map(|gateway| gateway.to_string()),
        })
    }
}

/// Where a packet goes, from its IP header on.
fn network(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(Ip4::at(packet, 0)?.dst().to_ip()),
        6 => Some(Ip6::at(packet, 0)?.dst().to_ip()),
        _ => None,
    }
}

/// Where a frame goes, by its IP header.
pub(crate) fn destination(frame: &[u8]) -> Option<IpAddr> {
    match Ether::of(frame)?.kind() {
        ether::TYPE_IP4 => Some(Ip4::at(frame, ETHER_BYTES)?.dst().to_ip()),
        ether::TYPE_IP6 => Some(Ip6::at(frame, ETHER_BYTES)?.dst().to_ip()),
        _ => None,
    }
}

/// Result of a dry run, in a word and a sentence. `place` is where it is sent beside an interface, `wait` what a packet
/// waits for.
pub(crate) fn verdict(
    dry_run: &PacketTrace,
    place: &str,
    wait: impl FnOnce() -> String,
) -> (String, String) {
    let last = dry_run.steps.iter().rfind(|step| step.packet == 0);
    let at = last.map_or("-", |step| step.element.as_str());
    let Some(packet) = dry_run.packets.first() else { return Default::default() };
    let (does, words) = match packet.fate.as_str() {
        "sent" => {
            let by = packet.interface.as_deref().unwrap_or("-");
            ("forward", format!("it is forwarded by {by}{place}"))
        }
        "dropped" => {
            let reason = packet.reason.as_deref().unwrap_or("-");
            let why = last.and_then(|step| step.why.as_deref()).unwrap_or_default();
            let error = match &dry_run.packets[1..] {
                [] => String::new(),
                made => format!(" Its sender receives: {}", made[0].summary),
            };
            let on = last.map(|step| step.notes.join(", ")).filter(|on| !on.is_empty());
            let on = on.map_or_else(String::new, |on| format!(" It is on: {on}."));
            ("drop", format!("it is dropped by {at} ({reason}): {why}{on}{error}"))
        }
        "written" => ("write", format!("{at} writes it to a file")),
        _ => ("wait", format!("it waits in {at} {}", wait())),
    };
    (does.to_owned(), words)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A frame of hexadecimal digits; blanks and colons between them are passed over.
pub(crate) fn bytes(digits: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u32> = digits
        .chars()
        .filter(|c| !c.is_whitespace() && *c != ':')
        .map(|c| c.to_digit(16).ok_or_else(|| format!("`{c}` is no hexadecimal digit")))
        .collect::<Result<_, _>>()?;
    if digits.len() % 2 == 1 {
        return Err("an odd number of digits".into());
    }
    if digits.len() / 2 > LONGEST {
        return Err(format!("more than {LONGEST} bytes"));
    }
    let byte = |pair: &[u32]| u8::try_from(pair[0] << 4 | pair[1]).expect("two digits");
    Ok(digits.chunks(2).map(byte).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_people_write_them() {
        assert_eq!(bytes("02:00 5E ff\n"), Ok(vec![2, 0, 0x5e, 0xff]));
        assert_eq!(bytes("020"), Err("an odd number of digits".into()));
        assert_eq!(bytes("0x12"), Err("`x` is no hexadecimal digit".into()));
        assert!(bytes(&"00".repeat(LONGEST + 1)).unwrap_err().contains("more than 9216"));
    }
}
