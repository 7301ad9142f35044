//! What would become of a packet in such a router, as the global handler `why`.
//!
//! `[DEVICE] PACKET` is read: a frame in hexadecimal digits, an address, or a flow, of which a packet is made up. It goes
//! through a graph that sends nothing and changes nothing ([`fingerpost_packet::graph::DryRun`]), with the route tables,
//! neighbors and settings of the moment. With `json` before it the answer is for programs.

use std::net::IpAddr;
use std::time::Instant;

use fingerpost_packet::Plan;
use fingerpost_packet::frame::wire::{ETHER_BYTES, ether};
use fingerpost_packet::graph::DryRun;
use fingerpost_packet::handler::Handler;
use fingerpost_route::{Forwarding, Mac};

use super::FRAME_BYTES;
use super::tracing::{json, tell, words};
use super::workers::{FLOW_SEED, Workers};
use crate::api::graph::WhyAnswer;
use crate::flow::Flow;
use crate::packet_path::{SENDER, bytes, verdict};

/// Where a packet is sent that is made up. Devices of such a router have no link addresses but those that elements
/// know, which take what comes.
const RECEIVER: Mac = Mac([2, 0, 0x5e, 0, 0, 2]);

/// The handler of the present configuration.
pub(super) fn handler(plan: &Plan, workers: &Workers) -> Handler {
    let (plan, started, forwarding) = (plan.clone(), workers.started(), workers.forwarding());
    Handler::read_with("why", move |parameter| {
        let (parameter, for_programs) = match parameter.trim().strip_prefix("json ") {
            Some(rest) => (rest.trim(), true),
            None => (parameter.trim(), false),
        };
        let answer = why(&plan, &forwarding, started, parameter)?;
        if for_programs {
            return Ok(json(&answer) + "\n");
        }
        let mut text = format!("{}: {}\n", answer.does, answer.verdict);
        tell(&answer.dry_run, &mut text);
        Ok(text)
    })
}

fn why(
    plan: &Plan,
    forwarding: &Forwarding,
    started: Instant,
    asked: &str,
) -> Result<WhyAnswer, String> {
    let (port, packet) = entry(plan, asked)?;
    let frame = frame(packet)?;
    let dry_run = DryRun {
        plan,
        port,
        forwarding,
        flow_seed: FLOW_SEED,
        now_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        frame_bytes: FRAME_BYTES,
    };
    let (trace, _) = dry_run.run(&frame).map_err(|error| error.to_string())?;
    let dry_run = words(plan, &trace, 1);
    let (does, verdict) = verdict(&dry_run, "", || "for others".to_owned());
    let interface = dry_run.interface.clone();
    Ok(WhyAnswer { does, verdict, interface, route: None, drivers: Vec::new(), dry_run })
}

/// The port that is meant, the first one without a name, and the rest of the words.
fn entry<'a>(plan: &Plan, asked: &'a str) -> Result<(u16, &'a str), String> {
    let devices = || (0..).zip(plan.devices()).filter(|(_, device)| device.used);
    let takes = |port: &u16| plan.entry(*port).is_some();
    let (first, rest) = asked.split_once(char::is_whitespace).unwrap_or((asked, ""));
    if let Some((port, device)) = devices().find(|(_, device)| device.name == first) {
        return match takes(&port) {
            true => Ok((port, rest.trim())),
            false => Err(format!("the graph receives nothing from {}", device.name)),
        };
    }
    match devices().map(|(port, _)| port).find(takes) {
        Some(port) => Ok((port, asked)),
        None => Err("the graph receives from no device".to_owned()),
    }
}

/// The frame that is meant.
fn frame(packet: &str) -> Result<Vec<u8>, String> {
    let asked = match (packet.parse::<IpAddr>(), packet.split(',').nth(1)) {
        (Ok(addr), _) => Some(Flow::any(addr)),
        (_, Some(dst)) => {
            let dst = dst.trim().parse().map_err(|_| format!("`{dst}` is no address"))?;
            Some(Flow::parse(packet, dst)?)
        }
        _ => None,
    };
    if let Some(flow) = asked {
        let kind = if flow.is_ipv4() { ether::TYPE_IP4 } else { ether::TYPE_IP6 };
        return Ok([&RECEIVER.0[..], &SENDER.0, &kind.to_be_bytes(), &flow.packet()].concat());
    }
    let words =
        "[DEVICE] with a frame in hexadecimal digits, an address, or SRC,DST,PROTOCOL,SPORT,DPORT";
    let frame = bytes(packet).map_err(|error| format!("{error}: {words}"))?;
    if frame.len() < ETHER_BYTES {
        return Err(format!("shorter than an Ethernet header: {words}"));
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_as_people_write_them() {
        let made = frame("192.0.2.1").unwrap();
        assert_eq!((&made[..6], &made[12..14]), (&RECEIVER.0[..], &[8, 0][..]));
        assert_eq!(made[30..34], [192, 0, 2, 1]);
        let flow = frame("2001:db8::1, 2001:db8::2, tcp, 1, 2").unwrap();
        assert_eq!(
            (&flow[12..14], flow[20], &flow[54..58]),
            (&[0x86, 0xdd][..], 6, &[0, 1, 0, 2][..])
        );
        let hex: String = made.iter().map(|byte| format!("{byte:02x} ")).collect();
        assert_eq!(frame(&hex), Ok(made));
        for (text, words) in [
            ("", "shorter than an Ethernet header"),
            ("0102", "shorter than an Ethernet header"),
            ("eth9 10.0.0.1", "is no hexadecimal digit"),
            ("10.0.0.1,x,udp", "`x` is no address"),
            ("10.0.0.1,10.0.0.2", "SRC,DST,PROTOCOL,SPORT,DPORT is needed"),
        ] {
            let told = frame(text).unwrap_err();
            assert!(told.contains(words), "{text}: {told}");
        }
    }
}
