//! Headers behind IPv4 headers: `CheckTCPHeader`, `CheckUDPHeader` and `CheckICMPHeader`.
//!
//! Source: Click's elements of these names. What is of another protocol, too short, or has a wrong checksum goes to the
//! second output, where it is used, or is dropped. Later fragments pass.

use std::sync::Arc;

use crate::element::click::only::seen::{Seen, word};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::Ip4;
use crate::frame::wire::checksum::{checksum, pseudo_v4};
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP as PROTOCOL_TCP, UDP as PROTOCOL_UDP};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, Made, Setup};
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
    ClassSpec::new(name, "1/1-2", "a/ah", "x/x")
        .outputs(&["out", "bad"])
        .ignores(&["VERBOSE", "DETAILS"])
}

fn configure(setup: &mut Setup<'_>, protocol: u8) -> Result<Made, ConfigError> {
    setup.args.finish()?;
    let exit = setup.exit(1, DropReason::BadChecksum);
    let counts = setup.keep::<PerWorker<Count>>();
    let shown = counts.clone();
    let made = Made::new(move |instance| Check { protocol, exit, drops: counts.add(instance) });
    Ok(made.counter("drops", &shown))
}

struct Check {
    protocol: u8,
    exit: Exit,
    drops: Arc<Count>,
}

impl Check {
    fn is_good(&self, frame: &[u8], network: usize) -> bool {
        let seen = Seen::bare(frame, network);
        let Some(ip) = seen.ip() else { return false };
        let Some(header) = Ip4::at(ip, 0).filter(|header| header.protocol() == self.protocol)
        else {
            return false;
        };
        let Some((_, transport)) = seen.transport() else { return true };
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
            return false;
        }
        // What was not captured cannot be summed.
        if ip.len() < header.total_len() {
            return true;
        }
        let transport = match self.protocol {
            PROTOCOL_UDP => match word(transport, 4).map(usize::from) {
                Some(length) if (8..=transport.len()).contains(&length) => &transport[..length],
                _ => return false,
            },
            _ => transport,
        };
        if self.protocol == PROTOCOL_UDP && transport[6..8] == [0, 0] {
            return true;
        }
        if self.protocol == PROTOCOL_ICMP {
            return checksum(transport) == 0;
        }
        let length = u16::try_from(transport.len()).unwrap_or(u16::MAX);
        let (src, dst) = (header.src().to_be_bytes(), header.dst().to_be_bytes());
        pseudo_v4(src, dst, self.protocol, length).bytes(transport).finish() == 0
    }
}

impl Element for Check {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            if !self.is_good(batch.bytes(i), batch.meta()[i].network.into()) {
                self.drops.add(1);
                self.exit.take(batch, i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
    }
}
