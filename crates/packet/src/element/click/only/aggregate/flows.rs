//! Numbers of flows: `AggregateIPAddrPair` numbers pairs of addresses, `AggregateIPFlows` flows.
//!
//! Source: Click's elements of these names. Flows end after `TCP_TIMEOUT` (a day), `TCP_DONE_TIMEOUT` (30 s, after both
//! sides finished) or `UDP_TIMEOUT` (60 s) without a packet, and are forgotten every `REAP` (20 minutes). Packets of a
//! flow's other direction get color 1, and those of its first color 0. Later fragments get the number of their first one,
//! for which they wait up to `FRAGMENT_TIMEOUT` (30 s), unless `FRAGMENTS` is false; packets between the same two addresses
//! keep their order. With `ICMP true` an ICMP error gets the number of the flow that it is about, and color 2 more than the
//! packet that it has. Everything else leaves by the second output.
//! `TRACEINFO FILE` lists the flows as XML, with the name of the file that `SOURCE` reads and the places of their first
//! packets in it, by its handlers `filename` and `packet_filepos`. All times are those of packets. Each worker knows its own flows; no two of
//! all workers have a number in common. Elements that name one as their `NOTIFIER` learn which flows have ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::ended::Ended;
use super::flow_trace::{FlowTrace, TraceSource, TracedFlow};
use super::fragments::{Fragments, Key, MOST_WAITING, Mark, Released};
use super::set;
use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::clock;
use crate::element::click::only::each::sorting;
use crate::element::click::only::seen::{Seen, word};
use crate::element::support::resets::Resets;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::wire::{Ip4, Ip6};
use crate::frame::{Batch, DropReason, Packet};
use crate::graph::{Context, Element, ElementClass, Exit, Held, Inputs, Made, Setup};
use crate::handler::Handler;

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
    first_ns: i64,
    last_ns: i64,
    /// Where the first packet was in its file, where it is known.
    file_pos: u64,
    /// FIN of each direction.
    finished: [bool; 2],
    /// Packets of each direction.
    packets: [u64; 2],
}

pub(crate) const PAIRS: ElementClass =
    sorting("AggregateIPAddrPair", OTHERS, "numbers pairs of addresses", |setup| {
        let timeout = setup.args.keyword::<Duration>("TIMEOUT");
        setup.args.finish()?;
        let timeout = timeout?.filter(|timeout| !timeout.is_zero()).map_or(i64::MAX, nanoseconds);
        let timeouts = Timeouts { tcp_ns: timeout, done_ns: timeout, other_ns: timeout };
        Ok(flows(
            setup,
            Rules { timeouts, reap_ns: i64::MAX, ports: false, errors: false },
            None,
            None,
        ))
    })
    .ignores(&["REAP"]);

pub(crate) const FLOWS: ElementClass =
    sorting("AggregateIPFlows", OTHERS, "numbers flows", |setup| {
        let tcp = setup.args.keyword::<Duration>("TCP_TIMEOUT");
        let done = setup.args.keyword::<Duration>("TCP_DONE_TIMEOUT");
        let udp = setup.args.keyword::<Duration>("UDP_TIMEOUT");
        let fragment = setup.args.keyword::<Duration>("FRAGMENT_TIMEOUT");
        let reap = setup.args.keyword::<Duration>("REAP");
        let fragments = setup.args.keyword::<bool>("FRAGMENTS");
        let errors = setup.args.keyword::<bool>("ICMP");
        let file = setup.args.keyword_arg("TRACEINFO")?;
        let source = setup.args.keyword_arg("SOURCE")?;
        setup.args.finish()?;
        let time = |given: Option<Duration>, seconds| {
            nanoseconds(given.unwrap_or(Duration::from_secs(seconds)))
        };
        let timeouts = Timeouts {
            tcp_ns: time(tcp?, 86_400),
            done_ns: time(done?, 30),
            other_ns: time(udp?, 60),
        };
        let rules = Rules {
            timeouts,
            reap_ns: time(reap?, 1200).max(1),
            ports: true,
            errors: errors?.unwrap_or(false),
        };
        let timeout_ns = time(fragment?, 30);
        let source = source.map(|source| TraceSource::read(setup, &source)).transpose()?;
        let trace = file.map(|file| FlowTrace::open(setup, &file, source)).transpose()?;
        Ok(flows(setup, rules, fragments?.unwrap_or(true).then_some(timeout_ns), trace))
    });

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

impl Timeouts {
    /// Whether a flow has ended at a time.
    fn end(self, ends: &Ends, flow: &Numbered, now_ns: i64) -> bool {
        let limit_ns = match (ends.protocol, flow.finished) {
            (TCP, [true, true]) => self.done_ns,
            (TCP, _) => self.tcp_ns,
            _ => self.other_ns,
        };
        now_ns.saturating_sub(flow.last_ns) >= limit_ns
    }
}

/// What flows are, and when they end.
#[derive(Clone, Copy)]
struct Rules {
    timeouts: Timeouts,
    /// Interval after which flows that have ended are forgotten.
    reap_ns: i64,
    /// Ports are a part of a flow.
    ports: bool,
    /// ICMP errors belong to the flows that they are about.
    errors: bool,
}

fn flows(
    setup: &mut Setup<'_>,
    rules: Rules,
    fragment_timeout_ns: Option<i64>,
    trace: Option<FlowTrace>,
) -> Made {
    let exit = setup.exit(1, DropReason::Unmatched);
    let clears = Arc::new(Resets::new());
    let each = clears.clone();
    let number = setup.number();
    let (ended, next) = (setup.shared::<Ended>(number), Arc::new(AtomicU32::new(1)));
    let made = Made::new(move |instance| Flows {
        rules,
        exit,
        known: HashMap::new(),
        next: if instance.is_dry_run() { Arc::new(AtomicU32::new(1)) } else { next.clone() },
        ended: (!instance.is_dry_run()).then(|| ended.clone()),
        reaped_ns: i64::MIN,
        fragments: fragment_timeout_ns.map(Fragments::new),
        trace: trace.clone().filter(|_| !instance.is_dry_run()).inspect(FlowTrace::begin),
        clears: each.instance(),
    });
    let clear = clears.request();
    let clear = Handler::write("clear", move |_| {
        clear();
        Ok(())
    });
    // Without packets it is carried out as well.
    let made = made.polled().handler(clear.lagging());
    if fragment_timeout_ns.is_some() { made.holds(MOST_WAITING) } else { made }
}

/// Flows that are known at most; then all are forgotten.
pub(super) const MOST_FLOWS: usize = 1 << 20;

struct Flows {
    rules: Rules,
    exit: Exit,
    known: HashMap<Ends, Numbered>,
    /// Number of the next one, of any worker.
    next: Arc<AtomicU32>,
    /// `None` where packets are only evaluated.
    ended: Option<Arc<Ended>>,
    /// When flows that had ended were forgotten.
    reaped_ns: i64,
    /// Where fragments are looked at.
    fragments: Option<Fragments>,
    trace: Option<FlowTrace>,
    clears: Resets,
}

/// What a packet is to an element that numbers flows.
enum Sort {
    /// A packet of a flow: its ends, whether it comes from the second of them, and flags of TCP.
    Flow(Ends, bool, u8),
    /// A later fragment.
    Fragment(Key),
    /// An error about a packet of these ends.
    Error(Ends, bool),
}

/// Ends of an IPv4 packet, and whether it comes from the second of them.
fn ends4(header: &Ip4<'_>, ports: Option<&[u8]>) -> Option<(Ends, bool)> {
    let (mut sport, mut dport) = (0, 0);
    if let Some(transport) = ports {
        (sport, dport) = (word(transport, 0)?, word(transport, 2)?);
    }
    let protocol = ports.map_or(0, |_| header.protocol());
    Some(sorted([header.src().into(), header.dst().into()], [sport, dport], protocol))
}

/// Ends in their order, and whether it is the other one.
fn sorted(addrs: [u128; 2], ports: [u16; 2], protocol: u8) -> (Ends, bool) {
    let [src, dst] = addrs;
    let [sport, dport] = ports;
    match (src, sport) > (dst, dport) {
        true => (Ends { addrs: [dst, src], ports: [dport, sport], protocol }, true),
        false => (Ends { addrs, ports, protocol }, false),
    }
}

fn flags_of(protocol: u8, transport: &[u8]) -> u8 {
    if protocol == TCP { transport.get(13).copied().unwrap_or(0) } else { 0 }
}

impl Flows {
    /// What a packet is; `None` for what has no number.
    fn sort(&self, seen: &Seen<'_>) -> Option<Sort> {
        let Rules { ports, errors, .. } = self.rules;
        let Some(ip) = seen.ip() else {
            let frame = seen.frame.get(seen.network..)?;
            let header = Ip6::at(frame, 0).filter(|header| header.version() == 6)?;
            let (protocol, addrs) = (header.next_header(), [header.src(), header.dst()]);
            if !ports {
                let (ends, turned) = sorted(addrs, [0; 2], 0);
                return Some(Sort::Flow(ends, turned, 0));
            }
            let transport = frame.get(40..).filter(|_| matches!(protocol, TCP | UDP))?;
            let ends = [word(transport, 0)?, word(transport, 2)?];
            let (ends, turned) = sorted(addrs, ends, protocol);
            return Some(Sort::Flow(ends, turned, flags_of(protocol, transport)));
        };
        let header = Ip4::at(ip, 0)?;
        if !ports {
            return ends4(&header, None).map(|(ends, turned)| Sort::Flow(ends, turned, 0));
        }
        match (header.protocol(), seen.transport()) {
            (TCP | UDP, Some((protocol, transport))) => ends4(&header, Some(transport))
                .map(|(ends, turned)| Sort::Flow(ends, turned, flags_of(protocol, transport))),
            (TCP | UDP, None) => Some(Sort::Fragment(Key::of(&header))),
            // Destination unreachable, source quench, redirect, time exceeded, parameter problem (RFC 792).
            (PROTOCOL_ICMP, Some((_, [3 | 4 | 5 | 11 | 12, ..]))) if errors => {
                let inner = seen.payload()?;
                let about = Ip4::at(inner, 0)?;
                let is_first = about.fragment() & FRAGMENT_OFFSET == 0;
                let known = is_first && matches!(about.protocol(), TCP | UDP);
                let transport = inner.get(about.header_len()..).filter(|_| known)?;
                ends4(&about, Some(transport)).map(|(ends, turned)| Sort::Error(ends, turned))
            }
            _ => None,
        }
    }

    /// Number of a packet, and its color.
    fn number(&mut self, ends: Ends, turned: bool, flags: u8, now_ns: i64) -> Mark {
        let timeouts = self.rules.timeouts;
        // A SYN of a connection whose two sides have ended begins another one.
        let again = |known: &Numbered| flags & 2 != 0 && known.finished == [true; 2];
        let ended = |known: &Numbered| again(known) || timeouts.end(&ends, known, now_ns);
        if self.known.get(&ends).is_none_or(ended) {
            if self.known.len() >= MOST_FLOWS {
                self.forget(|_, _| true);
            }
            // Relaxed: only that no two are equal matters. 0 is no flow.
            let next = || self.next.fetch_add(1, Relaxed);
            let flow = Numbered {
                number: Some(next()).filter(|number| *number > 0).unwrap_or_else(next),
                turned,
                first_ns: now_ns,
                last_ns: now_ns,
                file_pos: self.trace.as_ref().map_or(0, FlowTrace::file_pos),
                finished: [false; 2],
                packets: [0; 2],
            };
            if let Some(before) = self.known.insert(ends, flow) {
                self.report(vec![(ends, before)]);
            }
        }
        let Some(flow) = self.known.get_mut(&ends) else { return Mark::default() };
        flow.last_ns = now_ns;
        let direction = usize::from(flow.turned != turned);
        flow.packets[direction] += 1;
        flow.finished[direction] |= flags & 1 != 0;
        if flags & 4 != 0 {
            flow.finished = [true; 2];
        }
        Mark { number: flow.number, paint: u8::from(direction == 1) }
    }

    /// Number and color of an error about a packet.
    fn number_error(&self, ends: &Ends, turned: bool, now_ns: i64) -> Option<Mark> {
        let flow = self.known.get(ends)?;
        let is_known = !self.rules.timeouts.end(ends, flow, now_ns);
        is_known.then(|| Mark { number: flow.number, paint: 2 + u8::from(flow.turned != turned) })
    }

    /// Forgets flows, and lists them.
    fn forget(&mut self, which: impl Fn(&Ends, &Numbered) -> bool) {
        let forgotten = self.known.extract_if(|ends, flow| which(ends, flow)).collect();
        self.report(forgotten);
    }

    /// Lists flows that have ended, by their numbers.
    fn report(&self, mut flows: Vec<(Ends, Numbered)>) {
        flows.sort_by_key(|(_, flow)| flow.number);
        if let Some(ended) = &self.ended {
            ended.add(flows.iter().map(|(_, flow)| flow.number));
        }
        if let Some(trace) = &self.trace {
            flows.iter().for_each(|(ends, flow)| trace.write(&ends.traced(flow)));
        }
    }

    /// Forgets flows that have ended, when it is time.
    fn reap(&mut self, now_ns: i64) {
        if self.reaped_ns == i64::MIN {
            self.reaped_ns = now_ns;
        }
        if now_ns.saturating_sub(self.reaped_ns) >= self.rules.reap_ns {
            self.reaped_ns = now_ns;
            let timeouts = self.rules.timeouts;
            self.forget(|ends, flow| timeouts.end(ends, flow, now_ns));
        }
    }

    /// What becomes of packet `i`, and the time of it.
    fn look(&mut self, batch: &Batch, i: usize, cx: &Context<'_>) -> (Fate, i64) {
        let seen = Seen::packet(batch, i);
        let now_ns = match seen.annotations.timestamp_ns {
            0 => clock::time_of_day(cx.now_ns),
            time => time,
        };
        self.reap(now_ns);
        let ip = seen.ip().and_then(|ip| Ip4::at(ip, 0));
        let (key, is_fragment) = (ip.map(|ip| Key::of(&ip)), ip.is_some_and(Ip4::is_fragment));
        let fate = match self.sort(&seen) {
            None => Fate::Other,
            Some(Sort::Error(ends, turned)) => {
                let mark = self.number_error(&ends, turned, now_ns);
                mark.map_or(Fate::Other, |mark| Fate::Marked(mark, key))
            }
            Some(Sort::Flow(ends, turned, flags)) => {
                let mark = self.number(ends, turned, flags, now_ns);
                if let (true, Some(fragments), Some(key)) = (is_fragment, &mut self.fragments, key)
                {
                    fragments.begin(key, mark, now_ns);
                }
                Fate::Marked(mark, key)
            }
            Some(Sort::Fragment(key)) => match &mut self.fragments {
                None => Fate::Other,
                Some(fragments) => {
                    let mark = fragments.mark(&key, now_ns);
                    mark.map_or(Fate::Waits(key), |mark| Fate::Marked(mark, Some(key)))
                }
            },
        };
        (fate, now_ns)
    }

    /// Sends a packet that waited.
    fn send(&self, (packet, mark): Released, cx: &mut Context<'_>) {
        match mark {
            Some(mark) => cx.emit(0, marked(packet, mark)),
            None => self.exit.emit(packet, cx),
        }
    }

    /// Sends the packets between the two addresses of a key that need not wait any more.
    fn release(&mut self, key: &Key, now_ns: i64, cx: &mut Context<'_>) {
        while let Some(ready) = self.fragments.as_mut().and_then(|all| all.ready(key, now_ns)) {
            self.send(ready, cx);
        }
    }

    /// Forgets all flows, and sends all that waits.
    fn clear(&mut self, cx: &mut Context<'_>) {
        self.forget(|_, _| true);
        while let Some(oldest) = self.fragments.as_mut().and_then(Fragments::oldest) {
            self.send(oldest, cx);
        }
    }
}

/// What becomes of a packet.
enum Fate {
    /// It leaves by the second output.
    Other,
    /// It has a number.
    Marked(Mark, Option<Key>),
    /// It waits for its first fragment.
    Waits(Key),
}

impl Ends {
    /// A flow of these ends, as it is listed.
    fn traced(&self, flow: &Numbered) -> TracedFlow {
        let [first, second] = [0, 1].map(|at| (self.addrs[at], self.ports[at]));
        let (src, dst) = if flow.turned { (second, first) } else { (first, second) };
        TracedFlow {
            number: flow.number,
            src,
            dst,
            first_ns: flow.first_ns,
            last_ns: flow.last_ns,
            file_pos: flow.file_pos,
            packets: flow.packets,
        }
    }
}

/// A packet outside of a batch, marked.
fn marked(mut packet: Packet, mark: Mark) -> Packet {
    let mut annotations = Annotations::of_packet(&packet);
    annotations.aggregate = mark.number;
    annotations.set_packet(&mut packet);
    packet.meta.paint = mark.paint;
    packet
}

impl Element for Flows {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.clears.came() {
            self.clear(cx);
        }
        // What is emitted leaves after the batch: the rest of it has to be emitted too then.
        let mut emits = false;
        for i in 0..batch.len() {
            let (fate, now_ns) = self.look(batch, i, cx);
            while let Some(late) = self.fragments.as_ref().and_then(|all| all.late(now_ns)) {
                emits = true;
                self.release(&late, now_ns, cx);
            }
            let (key, mark) = match fate {
                Fate::Other => {
                    self.exit.take(batch, i);
                    continue;
                }
                Fate::Waits(key) => (Some(key), None),
                Fate::Marked(mark, key) => (key, Some(mark)),
            };
            match (key, &mut self.fragments, mark) {
                (Some(key), Some(fragments), _)
                    if mark.is_none() || fragments.is_waited_for(&key) =>
                {
                    emits = true;
                    let oldest = fragments.wait(key, mark, now_ns, batch.take(i));
                    if let Some(oldest) = oldest {
                        self.send(oldest, cx);
                    }
                    self.release(&key, now_ns, cx);
                }
                (.., Some(mark)) if emits => cx.emit(0, marked(batch.take(i), mark)),
                (.., Some(mark)) => {
                    set(batch, i, mark.number);
                    batch.meta_mut()[i].paint = mark.paint;
                }
                (.., None) => self.exit.take(batch, i),
            }
        }
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        if self.clears.came() {
            self.clear(cx);
        }
    }

    fn held(&self) -> Held {
        self.fragments.as_ref().map_or_else(Held::default, Fragments::held)
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        while let Some((packet, _)) = self.fragments.as_mut().and_then(Fragments::oldest) {
            cx.drop_packet(packet, DropReason::Shutdown);
        }
        self.forget(|_, _| true);
        if let Some(trace) = self.trace.take() {
            trace.end();
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

    /// Fields of packets that a configuration writes, from the rows of a summary.
    fn written(fields: &str, rows: &str, flows: &str, write: &str) -> String {
        console::collect();
        let text = format!(
            "FromIPSummaryDump(DATA \"!data {fields}\n{rows}\", STOP true) -> f :: AggregateIPFlows({flows})
                -> t :: ToIPSummaryDump(-, HEADER false, FIELDS {write}); f [1] -> Paint(9) -> t"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..20).for_each(|_| drop(rig.poll()));
        rig.graph.stop(&mut rig.bench.round());
        console::collected().out
    }

    #[test]
    fn later_fragments_have_the_number_of_the_first_one() {
        let fields = "timestamp src sport dst dport proto ip_id ip_fragoff";
        let rows = "1 1.0.0.1 5 2.0.0.2 6 U 1 0\n2 1.0.0.1 - 2.0.0.2 - U 7 8\n3 1.0.0.1 - 2.0.0.2 - U 8 8\n\
            4 1.0.0.1 8 2.0.0.2 6 U 7 0+\n5 1.0.0.1 - 2.0.0.2 - U 7 16\n6 1.0.0.1 5 2.0.0.2 6 U 9 0\n\
            33 1.0.0.1 5 2.0.0.2 6 U 10 0\n";
        let waited = written(fields, rows, "", "ip_id aggregate link");
        let ids: String = waited.lines().map(|line| format!("{line}, ")).collect();
        assert_eq!(ids, "1 1 0, 7 2 0, 8 0 9, 7 2 0, 7 2 0, 9 1 0, 10 1 0, ", "8 has no first one");
        let apart = written(fields, rows, "FRAGMENTS false", "ip_id aggregate link");
        assert_eq!(apart, "1 1 0\n7 0 9\n8 0 9\n7 2 0\n7 0 9\n9 1 0\n10 1 0\n");
    }

    #[test]
    fn what_is_neither_tcp_nor_udp_has_no_number() {
        let rows = "1.0.0.1 2.0.0.2 47\n1.0.0.1 2.0.0.2 I\n1.0.0.1 2.0.0.2 U\n";
        assert_eq!(
            written("src dst proto", rows, "", "ip_proto aggregate link"),
            "47 0 9\nI 0 9\nU 1 0\n"
        );
    }

    /// An ICMP error from a router about a UDP packet from 1.0.0.1, port 5, to 2.0.0.2, port 6.
    #[test]
    fn errors_belong_to_the_flow_that_they_are_about() {
        let about = "4500001c 00000000 40110000 01000001 02000002 00050006 00080000";
        let error =
            format!("45000038 00000000 40010000 09000009 01000001 03010000 00000000 {about}");
        let hex = |text: &str| text.replace(' ', "");
        for (flows, wanted) in [("ICMP true", "U 1 0\nI 1 2\n"), ("", "U 1 0\nI 0 9\n")] {
            console::collect();
            let text = format!(
                "s :: InfiniteSource(DATA \\<{}>, LIMIT 1) -> m :: MarkIPHeader(0) -> f :: AggregateIPFlows({flows})
                    -> t :: ToIPSummaryDump(-, HEADER false, FIELDS ip_proto aggregate link); f [1] -> Paint(9) -> t;
                 e :: InfiniteSource(DATA \\<{}>, LIMIT 1, ACTIVE false) -> m",
                hex(about), hex(&error)
            );
            let mut rig = Rig::new(&World::new(), &text);
            drop(rig.poll());
            rig.write("e.active", "true");
            (0..3).for_each(|_| drop(rig.poll()));
            assert_eq!(console::collected().out, wanted);
        }
    }

    #[test]
    fn flows_are_listed_when_they_have_ended() {
        let file = std::env::temp_dir().join(format!("fp-flows-{}", std::process::id()));
        let (there, back) = ("1.0.0.1 5 2.0.0.2 6 U", "2.0.0.2 6 1.0.0.1 5 U");
        let rows =
            format!("1 {there}\n2.5 {back}\n3 2.0.0.2 7 1.0.0.1 5 T\n4 {there}\n100 {back}\n");
        let fields = "timestamp src sport dst dport proto";
        let flows = format!("TRACEINFO {}, REAP 20", file.display());
        assert_eq!(written(fields, &rows, &flows, "aggregate link"), "1 0\n1 1\n2 0\n1 0\n3 0\n");
        let flow = |number, ends, times, [there, back]: [u32; 2]| {
            format!(
                "<flow aggregate='{number}' {ends} {times}>\n  <stream dir='0' packets='{there}' />\
                 <stream dir='1' packets='{back}' />\n</flow>\n"
            )
        };
        let wanted = [
            "<?xml version='1.0' standalone='yes'?>\n<trace>\n".to_owned(),
            flow(
                1,
                "src='1.0.0.1' sport='5' dst='2.0.0.2' dport='6'",
                "begin='1.000000' duration='3.000000'",
                [2, 1],
            ),
            flow(
                2,
                "src='2.0.0.2' sport='7' dst='1.0.0.1' dport='5'",
                "begin='3.000000' duration='0.000000'",
                [1, 0],
            ),
            flow(
                3,
                "src='2.0.0.2' sport='6' dst='1.0.0.1' dport='5'",
                "begin='100.000000' duration='0.000000'",
                [1, 0],
            ),
            "</trace>\n".to_owned(),
        ];
        assert_eq!(std::fs::read_to_string(&file).unwrap(), wanted.concat());
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn keywords_without_effect_are_named() {
        let text = "FromDevice(a) -> AggregateIPAddrPair(REAP 5, TIMEOUT 5, REAP 6) -> ToDevice(x)";
        let rig = Rig::new(&World::new(), text);
        let warnings: Vec<_> =
            rig.plan.warnings().iter().map(|report| report.message.clone()).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].ends_with("REAP: no effect here"), "{warnings:?}");
    }
}
