//! Headers behind IPv4 headers: `CheckTCPHeader`, `CheckUDPHeader` and `CheckICMPHeader`.
//!
//! Source: Click's elements of these names. What is of another protocol, too short, or has a wrong checksum goes to the
//! second output, where it is used, or is dropped. Later fragments pass. The first packet that is wrong is reported on
//! standard error, and all of them with `VERBOSE`; `DETAILS` counts them by reason.

use std::sync::Arc;

use crate::element::click::only::seen::{Seen, word};
use crate::element::support::complaint::Complaint;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::Ip4;
use crate::frame::wire::checksum::{checksum, pseudo_v4};
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP as PROTOCOL_TCP, UDP as PROTOCOL_UDP};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, Made, Setup};
use crate::handler::Handler;
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

#[derive(Default)]
struct Counts([Count; 3]);

fn configure(setup: &mut Setup<'_>, protocol: u8) -> Result<Made, ConfigError> {
    let verbose = setup.args.keyword("VERBOSE");
    let details = setup.args.keyword("DETAILS");
    setup.args.finish()?;
    let (verbose, details) = (verbose?.unwrap_or(false), details?.unwrap_or(false));
    let exit = setup.exit(1, DropReason::BadChecksum);
    let name = match protocol {
        PROTOCOL_TCP => "TCP",
        PROTOCOL_UDP => "UDP",
        _ => "ICMP",
    };
    let heading = format!("{}: {name} header check failed: ", setup.name());
    let complaint = Complaint::new(&heading, verbose);
    let reasons = Arc::new([
        format!("not {name}"),
        "bad packet length".to_owned(),
        format!("bad {name} checksum"),
    ]);
    let counts = setup.keep::<PerWorker<Counts>>();
    let (all, by_reason, shown) = (counts.clone(), counts.clone(), reasons.clone());
    let made = Made::new(move |instance| Check {
        protocol,
        exit,
        counts: counts.add(instance),
        reasons: reasons.clone(),
        complaint: if instance.is_dry_run() { Complaint::none() } else { complaint.clone() },
    });
    let made = made.handler(Handler::read("drops", move || {
        all.sum(|counts| counts.0.iter().map(Count::read).sum()).to_string()
    }));
    if !details {
        return Ok(made);
    }
    Ok(made.handler(Handler::read("drop_details", move || {
        let line = |(at, words): (usize, &String)| {
            format!("{}\t{words}\n", by_reason.sum(|counts| counts.0[at].read()))
        };
        shown.iter().enumerate().map(line).collect()
    })))
}

struct Check {
    protocol: u8,
    exit: Exit,
    counts: Arc<Counts>,
    /// Words for each of [`Wrong`].
    reasons: Arc<[String; 3]>,
    complaint: Complaint,
}

impl Check {
    fn wrong(&self, frame: &[u8], network: usize) -> Option<Wrong> {
        let seen = Seen::bare(frame, network);
        let header = seen.ip().and_then(|ip| Some((ip, Ip4::at(ip, 0)?)));
        let Some((ip, header)) = header.filter(|(_, header)| header.protocol() == self.protocol)
        else {
            return Some(Wrong::Protocol);
        };
        let (_, transport) = seen.transport()?;
        let whole = match self.protocol {
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
        let transport = match self.protocol {
            PROTOCOL_UDP => match word(transport, 4).map(usize::from) {
                Some(length) if (8..=transport.len()).contains(&length) => &transport[..length],
                _ => return Some(Wrong::Length),
            },
            _ => transport,
        };
        if self.protocol == PROTOCOL_UDP && transport[6..8] == [0, 0] {
            return None;
        }
        let sum = if self.protocol == PROTOCOL_ICMP {
            checksum(transport)
        } else {
            let length = u16::try_from(transport.len()).unwrap_or(u16::MAX);
            let (src, dst) = (header.src().to_be_bytes(), header.dst().to_be_bytes());
            pseudo_v4(src, dst, self.protocol, length).bytes(transport).finish()
        };
        (sum != 0).then_some(Wrong::Checksum)
    }
}

impl Element for Check {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            if let Some(wrong) = self.wrong(batch.bytes(i), batch.meta()[i].network.into()) {
                self.counts.0[wrong as usize].add(1);
                self.complaint.about(&self.reasons[wrong as usize]);
                self.exit.take(batch, i);
            }
        }
    }
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
