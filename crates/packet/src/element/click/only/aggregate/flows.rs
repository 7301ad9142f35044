//! Numbers of flows: `AggregateIPAddrPair` numbers pairs of addresses, `AggregateIPFlows` flows.
//!
//! Source: Click's elements of these names. Flows end after `TCP_TIMEOUT` (a day), `TCP_DONE_TIMEOUT` (30 s, after both
//! sides finished) or `UDP_TIMEOUT` (60 s) without a packet. Packets of a flow's other direction get color 1, and those
//! of its first color 0. Later fragments belong to no flow: they leave by the second output. Each worker has its own
//! numbers. Differs: ICMP errors are flows of their own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::set;
use crate::element::click::only::clock;
use crate::element::click::only::each::sorting;
use crate::element::click::only::seen::{Seen, word};
use crate::element::support::resets::Resets;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::wire::{Ip4, Ip6};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, Made, Setup};
use crate::language::ConfigError;

/// What packets are numbered by: ends in an order that both directions have.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Ends {
    addrs: [u128; 2],
    ports: [u16; 2],
    protocol: u8,
}

struct Numbered {
    number: u32,
    /// The second of the ends sent first.
    turned: bool,
    last_ns: i64,
    /// FIN of each direction.
    finished: [bool; 2],
}

pub(crate) const PAIRS: ElementClass =
    sorting("AggregateIPAddrPair", OTHERS, "numbers pairs of addresses", |setup| {
        let timeout = setup.args.keyword::<Duration>("TIMEOUT");
        let timeout = timeout?.filter(|timeout| !timeout.is_zero()).map_or(i64::MAX, nanoseconds);
        flows(setup, Timeouts { tcp_ns: timeout, done_ns: timeout, other_ns: timeout }, false)
    })
    .ignores(&["REAP"]);

pub(crate) const FLOWS: ElementClass =
    sorting("AggregateIPFlows", OTHERS, "numbers flows", |setup| {
        let tcp = setup.args.keyword::<Duration>("TCP_TIMEOUT");
        let done = setup.args.keyword::<Duration>("TCP_DONE_TIMEOUT");
        let udp = setup.args.keyword::<Duration>("UDP_TIMEOUT");
        let time = |given: Option<Duration>, seconds| {
            nanoseconds(given.unwrap_or(Duration::from_secs(seconds)))
        };
        let timeouts = Timeouts {
            tcp_ns: time(tcp?, 86_400),
            done_ns: time(done?, 30),
            other_ns: time(udp?, 60),
        };
        flows(setup, timeouts, true)
    })
    .ignores(&["FRAGMENT_TIMEOUT", "REAP", "ICMP", "FRAGMENTS", "TRACEINFO", "SOURCE"]);

const OTHERS: &[&str] = &["out", "others"];

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[derive(Clone, Copy)]
struct Timeouts {
    tcp_ns: i64,
    done_ns: i64,
    other_ns: i64,
}

fn flows(setup: &mut Setup<'_>, timeouts: Timeouts, ports: bool) -> Result<Made, ConfigError> {
    setup.args.finish()?;
    let exit = setup.exit(1, DropReason::Unmatched);
    let clears = Arc::new(Resets::new());
    let each = clears.clone();
    let made = Made::new(move |_| Flows {
        timeouts,
        ports,
        exit,
        known: HashMap::new(),
        next: 1,
        clears: each.instance(),
    });
    Ok(clears.handled(made, "clear"))
}

/// Flows that are known at most; then all are forgotten.
pub(super) const MOST_FLOWS: usize = 1 << 20;

struct Flows {
    timeouts: Timeouts,
    ports: bool,
    exit: Exit,
    known: HashMap<Ends, Numbered>,
    next: u32,
    clears: Resets,
}

impl Flows {
    /// Ends of a packet, whether it comes from the second of them, and flags of TCP.
    fn ends(&self, seen: &Seen<'_>) -> Option<(Ends, bool, u8)> {
        let (src, dst, protocol, transport) = match seen.ip() {
            Some(ip) => {
                let header = Ip4::at(ip, 0)?;
                let transport = match seen.transport() {
                    Some((_, transport)) => transport,
                    None if self.ports => return None,
                    None => &[],
                };
                (header.src().into(), header.dst().into(), header.protocol(), transport)
            }
            None => {
                let frame = seen.frame.get(seen.network..)?;
                let header = Ip6::at(frame, 0).filter(|header| header.version() == 6)?;
                (header.src(), header.dst(), header.next_header(), frame.get(40..)?)
            }
        };
        let (mut sport, mut dport) = (0, 0);
        if self.ports && matches!(protocol, TCP | UDP) {
            (sport, dport) = (word(transport, 0)?, word(transport, 2)?);
        }
        let turned = (src, sport) > (dst, dport);
        let (addrs, ports) = match turned {
            true => ([dst, src], [dport, sport]),
            false => ([src, dst], [sport, dport]),
        };
        let protocol = if self.ports { protocol } else { 0 };
        let flags = if protocol == TCP { transport.get(13).copied().unwrap_or(0) } else { 0 };
        Some((Ends { addrs, ports, protocol }, turned, flags))
    }

    /// Number of a packet, and its direction.
    fn number(&mut self, ends: Ends, turned: bool, flags: u8, now_ns: i64) -> (u32, bool) {
        let timeouts = self.timeouts;
        let limit = |known: &Numbered| match (ends.protocol, known.finished) {
            (TCP, [true, true]) => timeouts.done_ns,
            (TCP, _) => timeouts.tcp_ns,
            _ => timeouts.other_ns,
        };
        // A SYN of a connection whose two sides have ended begins another one.
        let again = |known: &Numbered| flags & 2 != 0 && known.finished == [true; 2];
        let ended =
            |known: &Numbered| again(known) || now_ns.saturating_sub(known.last_ns) >= limit(known);
        if self.known.get(&ends).is_none_or(ended) {
            if self.known.len() >= MOST_FLOWS {
                self.known.clear();
            }
            let flow =
                Numbered { number: self.next, turned, last_ns: now_ns, finished: [false; 2] };
            self.next = self.next.wrapping_add(1).max(1);
            self.known.insert(ends, flow);
        }
        let Some(flow) = self.known.get_mut(&ends) else { return (0, false) };
        flow.last_ns = now_ns;
        let reply = flow.turned != turned;
        flow.finished[usize::from(reply)] |= flags & 1 != 0;
        if flags & 4 != 0 {
            flow.finished = [true; 2];
        }
        (flow.number, reply)
    }
}

impl Element for Flows {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.clears.came() {
            self.known.clear();
        }
        for i in 0..batch.len() {
            let seen = Seen::packet(batch, i);
            let Some((ends, turned, flags)) = self.ends(&seen) else {
                self.exit.take(batch, i);
                continue;
            };
            let now_ns = match seen.annotations.timestamp_ns {
                0 => clock::time_of_day(cx.now_ns),
                time => time,
            };
            let (number, reply) = self.number(ends, turned, flags, now_ns);
            set(batch, i, number);
            batch.meta_mut()[i].paint = u8::from(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::element::click::only::console;
    use crate::testing::{Rig, World};

    #[test]
    fn flows_are_numbered_in_both_directions() {
        console::collect();
        let rows = "!data timestamp src sport dst dport proto\n1 1.0.0.1 5 2.0.0.2 6 U\n2 2.0.0.2 6 1.0.0.1 5 U\n3 1.0.0.1 7 2.0.0.2 6 U\n100 1.0.0.1 5 2.0.0.2 6 U\n";
        let text = format!(
            "FromIPSummaryDump(DATA \"{rows}\", STOP true) -> AggregateIPFlows -> f :: AggregateFirst -> c :: Counter -> t :: ToIPSummaryDump(-, HEADER false, FIELDS aggregate link);
             f [1] -> AggregateIPAddrPair -> t"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..20).for_each(|_| drop(rig.poll()));
        assert_eq!(console::collected().out, "1 0\n1 0\n2 0\n3 0\n", "the pair begins anew");
        assert_eq!(rig.read("c.count"), "3");
    }

    #[test]
    fn a_connection_that_begins_again_is_another_flow() {
        console::collect();
        let (there, back) = ("1.0.0.1 5 2.0.0.2 6 T", "2.0.0.2 6 1.0.0.1 5 T");
        let rows = format!(
            "!data timestamp src sport dst dport proto tcp_flags\n1 {there} S\n2 {back} SA\n3 {there} F\n3 {there} S\n4 {back} FA\n5 {there} S\n"
        );
        let text = format!(
            "FromIPSummaryDump(DATA \"{rows}\", STOP true) -> AggregateIPFlows -> ToIPSummaryDump(-, HEADER false, FIELDS aggregate)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..20).for_each(|_| drop(rig.poll()));
        assert_eq!(console::collected().out, "1\n1\n1\n1\n1\n2\n");
    }

    #[test]
    fn keywords_without_effect_are_named() {
        let text =
            "FromDevice(a) -> AggregateIPFlows(REAP 5, FRAGMENT_TIMEOUT 9, REAP 6) -> ToDevice(x)";
        let rig = Rig::new(&World::new(), text);
        let warnings: Vec<_> =
            rig.plan.warnings().iter().map(|report| report.message.clone()).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].ends_with("FRAGMENT_TIMEOUT, REAP: no effect here"), "{warnings:?}");
    }
}
