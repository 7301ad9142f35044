//! Headers behind IPv4 headers: `CheckTCPHeader`, `CheckUDPHeader` and `CheckICMPHeader`.
//!
//! Source: Click's elements of these names. What is of another protocol, too short, or has a wrong checksum goes to the
//! second output, where it is used, or is dropped. Later fragments pass. The first packet that is wrong is reported on
//! standard error, and all of them with `VERBOSE`; `DETAILS` counts them by reason.

use super::checked::{Checks, checked};
use crate::element::click::only::seen::{Seen, word};
use crate::frame::DropReason;
use crate::frame::wire::Ip4;
use crate::frame::wire::checksum::{checksum, pseudo_v4};
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP as PROTOCOL_TCP, UDP as PROTOCOL_UDP};
use crate::graph::{ElementClass, Made, Setup};
use crate::language::{ClassSpec, ConfigError};

pub(crate) const TCP: ElementClass = ElementClass {
    spec: spec("CheckTCPHeader"),
    summary: "checks TCP headers",
    configure: |setup| configure(setup, PROTOCOL_TCP),
};

pub(crate) const UDP: ElementClass = ElementClass {
    spec: spec("CheckUDPHeader"),
    summary: "checks UDP headers",
    configure: |setup| configure(setup, PROTOCOL_UDP),
};

pub(crate) const ICMP: ElementClass = ElementClass {
    spec: spec("CheckICMPHeader"),
    summary: "checks ICMP headers",
    configure: |setup| configure(setup, PROTOCOL_ICMP),
};

const fn spec(name: &'static str) -> ClassSpec {
    ClassSpec::new(name, "1/1-2", "a/ah", "x/x").outputs(&["out", "bad"])
}

/// Why a packet is wrong.
#[derive(Clone, Copy)]
enum Wrong {
    Protocol,
    Length,
    Checksum,
}

fn configure(setup: &mut Setup<'_>, protocol: u8) -> Result<Made, ConfigError> {
    let verbose = setup.args.keyword("VERBOSE");
    let details = setup.args.keyword("DETAILS");
    setup.args.finish()?;
    let (heading, reasons): (_, &'static [&'static str]) = match protocol {
        PROTOCOL_TCP => {
            ("TCP header check failed: ", &["not TCP", "bad packet length", "bad TCP checksum"])
        }
        PROTOCOL_UDP => {
            ("UDP header check failed: ", &["not UDP", "bad packet length", "bad UDP checksum"])
        }
        _ => {
            ("ICMP header check failed: ", &["not ICMP", "bad packet length", "bad ICMP checksum"])
        }
    };
    let checks = Checks {
        heading,
        reasons,
        verbose: verbose?.unwrap_or(false),
        details: details?.unwrap_or(false),
        drop: DropReason::BadChecksum,
    };
    Ok(checked(setup, checks, move |batch, i| {
        wrong(batch.bytes(i), batch.meta()[i].network.into(), protocol).map(|wrong| wrong as usize)
    }))
}

fn wrong(frame: &[u8], network: usize, protocol: u8) -> Option<Wrong> {
    let seen = Seen::bare(frame, network);
    let header = seen.ip().and_then(|ip| Some((ip, Ip4::at(ip, 0)?)));
    let Some((ip, header)) = header.filter(|(_, header)| header.protocol() == protocol) else {
        return Some(Wrong::Protocol);
    };
    let (_, transport) = seen.transport()?;
    let whole = match protocol {
        PROTOCOL_TCP => {
            transport.len() >= 20 && {
                let header = usize::from(transport[12] >> 4) * 4;
                header >= 20 && header <= transport.len()
            }
        }
        _ => transport.len() >= 8,
    };
    if !whole {
        return Some(Wrong::Length);
    }
    // What was not captured cannot be summed.
    if ip.len() < header.total_len() {
        return None;
    }
    let transport = match protocol {
        PROTOCOL_UDP => match word(transport, 4).map(usize::from) {
            Some(length) if (8..=transport.len()).contains(&length) => &transport[..length],
            _ => return Some(Wrong::Length),
        },
        _ => transport,
    };
    if protocol == PROTOCOL_UDP && transport[6..8] == [0, 0] {
        return None;
    }
    let sum = if protocol == PROTOCOL_ICMP {
        checksum(transport)
    } else {
        let length = u16::try_from(transport.len()).unwrap_or(u16::MAX);
        let (src, dst) = (header.src().to_be_bytes(), header.dst().to_be_bytes());
        pseudo_v4(src, dst, protocol, length).bytes(transport).finish()
    };
    (sum != 0).then_some(Wrong::Checksum)
}

#[cfg(test)]
mod tests {
    use crate::element::click::only::console;
    use crate::testing::{Rig, World};

    #[test]
    fn wrong_headers_leave_by_the_second_output() {
        let text = |data: &str| {
            format!(
                "FromIPSummaryDump(DATA \"!data src dst proto payload\n{data}\", CHECKSUM true) -> c :: IPClassifier(tcp, udp, icmp);
                 c [0] -> t :: CheckTCPHeader -> tc :: Counter -> Discard; c [1] -> u :: CheckUDPHeader -> uc :: Counter -> Discard;
                 c [2] -> i :: CheckICMPHeader -> ic :: Counter -> Discard;
                 FromDevice(a) -> MarkIPHeader -> x :: CheckTCPHeader -> ToDevice(b); x [bad] -> ToDevice(c)"
            )
        };
        let rows = "1.0.0.1 2.0.0.2 T \\\"abc\\\"\n1.0.0.1 2.0.0.2 U \\\"abcd\\\"\n1.0.0.1 2.0.0.2 I \\\"x\\\"";
        let mut rig = Rig::new(&World::new(), &text(rows));
        (0..5).for_each(|_| drop(rig.poll()));
        assert_eq!(
            ["t", "u", "i"].map(|name| rig.read(&format!("{name}.drops"))),
            ["0", "0", "0"].map(String::from)
        );
        let passed = ["tc", "uc", "ic"].map(|name| rig.read(&format!("{name}.count")));
        assert_eq!(passed, ["1", "1", "1"].map(String::from));
        assert_eq!(rig.receive("a", &[&[0x45; 30]])[0].0, "c");
        assert_eq!(rig.read("x.drops"), "1");
        assert!(!rig.read("x.handlers").contains("drop_details"));
    }

    #[test]
    fn wrong_headers_are_reported_and_counted_by_reason() {
        let reported = |config: &str| {
            let text = format!(
                "FromDevice(a) -> MarkIPHeader -> x :: CheckUDPHeader({config}) -> Discard"
            );
            let mut rig = Rig::new(&World::new(), &text);
            let mut sum =
                crate::testing::frame_v4("1.0.0.1", "2.0.0.2", 9, 17, &[0, 1, 0, 2, 0, 8, 1, 1]);
            let tcp = crate::testing::frame_v4("1.0.0.1", "2.0.0.2", 9, 6, &[0; 20]);
            sum.drain(..14);
            console::collect();
            rig.receive("a", &[&sum, &tcp[14..], &sum]);
            (console::collected().err, rig.read("x.handlers"), rig)
        };
        let (lines, _, _) = reported("");
        assert_eq!(lines, "x: UDP header check failed: bad UDP checksum\n");
        let (lines, handlers, rig) = reported("VERBOSE true, DETAILS true");
        let words = ["bad UDP checksum", "not UDP", "bad UDP checksum"];
        assert_eq!(lines, words.map(|why| format!("x: UDP header check failed: {why}\n")).concat());
        assert!(handlers.contains("drop_details"));
        let details = "1\tnot UDP\n0\tbad packet length\n2\tbad UDP checksum\n";
        assert_eq!(rig.read("x.drop_details"), details);
    }
}
