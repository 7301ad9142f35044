//! Reports of samples to collectors: samples of the workers and of the XDP datapath, completed by the route table, and
//! counters of interfaces at an interval.
//!
//! All of it runs in the control thread, between its turns: the RIB has the lengths of prefixes, and tables of AS numbers
//! (`as_tables.rs`) those of the collectors that name a file. Sockets do not block; a
//! datagram that the kernel does not take is counted, and the first one between two reports of counters is logged.
//!
//! Cost:   an estimated 3 us a sample, and a system call for about seven of them. A turn takes at most [`MOST`] samples.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use fingerpost_packet::feature::sampling::{Collector, Protocol, Sampling};
use fingerpost_packet::frame::flow;
use fingerpost_packet::sample::ipfix::Messages;
use fingerpost_packet::sample::sflow::Datagrams;
use fingerpost_packet::sample::{
    CounterSample, Egress, Exporter, FlowSample, Now, Routed, Sample, Sampler, addresses, network,
};
use fingerpost_route::{Control, Forwarding, ForwardingAction, IpFamily, TableId};
use tracing::{info, warn};

use super::as_tables::AsTables;
use super::features::Features;
use super::ports::Interfaces;
use super::ports::numbers::Counted;
use super::workers::Workers;

/// Samples of a turn at most: a few milliseconds.
const MOST: usize = 1024;

/// Longest time that a sample waits for others of its datagram: sFlow allows a second.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// Time between two sums of what the XDP datapath has sampled while there are samples: each is a sum over all processors and ports.
const BETWEEN_SUMS: Duration = Duration::from_millis(100);

/// Time until a socket that could not be opened, or that failed, is opened again.
const OPEN_AGAIN: Duration = Duration::from_secs(2);

/// The parts of the daemon that reports are made of.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) control: &'a Control,
    pub(super) workers: &'a Workers,
    pub(super) interfaces: &'a Interfaces,
    pub(super) features: &'a Features,
    /// Time since the start.
    pub(super) uptime: Duration,
}

/// Reports to the collectors in use.
#[derive(Default)]
pub(super) struct Reports {
    sinks: Vec<Sink>,
    as_tables: AsTables,
    /// When the counts of the XDP datapath were summed up last.
    summed: Option<Instant>,
}

/// One collector.
struct Sink {
    collector: Collector,
    open: Option<Open>,
    /// When it is opened next at the earliest.
    next_open: Instant,
    next_counters: Instant,
    /// When what is begun is sent at the latest.
    flush: Option<Instant>,
    counts: Sent,
    /// A failure was logged since the last counters.
    fails: bool,
}

struct Open {
    socket: UdpSocket,
    exporter: Box<dyn Exporter>,
}

/// What was sent to a collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sent {
    /// Datagrams that the kernel took.
    pub(crate) datagrams: u64,
    /// Datagrams that could not be sent, and sockets that could not be opened.
    pub(crate) failed: u64,
    /// Samples that came while there was no socket, or whose interface samples no longer.
    pub(crate) lost: u64,
}

impl Reports {
    /// Reports what was sampled since the last call, and counters where they are due.
    pub(super) fn turn(&mut self, seen: Seen<'_>, now: Instant) {
        let Some(sampling) = seen.features.states().of::<Sampling>() else {
            *self = Self::default();
            return;
        };
        self.follow(sampling.collectors(), now);
        let Self { sinks, as_tables, summed } = self;
        as_tables.turn();
        let time = time(seen.uptime);
        sinks.iter_mut().for_each(|sink| sink.open(now));
        let mut world = World::new(seen, &sampling);
        let counters = sinks.iter().any(|sink| sink.next_counters <= now);
        if counters {
            seen.features.note_sampled();
            *summed = Some(now);
        }
        let counters = if counters { world.counters() } else { Vec::new() };
        for sink in sinks.iter_mut().filter(|sink| sink.next_counters <= now) {
            sink.next_counters = now + Duration::from_secs(sink.collector.counters_s.into());
            sink.fails = false;
            sink.add(now, |exporter, send| {
                counters.iter().for_each(|sample| exporter.counters(sample, time, send));
            });
            sink.flush(time);
        }
        let mut report = |sample: &Sample| {
            let flow = world.flow(sample);
            for sink in &mut *sinks {
                // Without a rate nobody can count by it.
                if flow.sampler.rate == 0 || sink.open.is_none() {
                    sink.counts.lost += 1;
                    continue;
                }
                let mut flow = flow;
                if let Some((file, routed)) =
                    sink.collector.as_table.as_ref().zip(flow.routed.as_mut())
                {
                    let addrs = addresses(flow.header);
                    routed.as_numbers =
                        addrs.and_then(|(from, to)| as_tables.numbers(file, [from, to]));
                }
                sink.add(now, |exporter, send| exporter.flow(&flow, time, send));
            }
        };
        let taken = sampling.take(MOST, &mut report);
        if let Some(forwarder) = seen.interfaces.forwarder() {
            forwarder.take_samples(MOST - taken, |sample| {
                if is_old(*summed, now) {
                    seen.features.note_sampled();
                    *summed = Some(now);
                }
                report(sample);
            });
        }
        for sink in sinks.iter_mut().filter(|sink| sink.flush.is_some_and(|due| due <= now)) {
            sink.flush(time);
        }
    }

    /// Opens new collectors and closes those that are gone.
    fn follow(&mut self, collectors: &[Collector], now: Instant) {
        if self.sinks.iter().map(|sink| &sink.collector).eq(collectors) {
            return;
        }
        self.as_tables.follow(collectors.iter().filter_map(|one| one.as_table.as_deref()));
        let mut before = std::mem::take(&mut self.sinks);
        for collector in collectors {
            let known = before.iter().position(|sink| sink.collector == *collector);
            self.sinks.push(known.map_or_else(
                || Sink {
                    collector: collector.clone(),
                    open: None,
                    next_open: now,
                    next_counters: now,
                    flush: None,
                    counts: Sent::default(),
                    fails: false,
                },
                |at| before.swap_remove(at),
            ));
        }
    }

    /// Collectors, with what was sent to them.
    pub(super) fn sent(&self) -> impl Iterator<Item = (&Collector, Sent)> {
        self.sinks.iter().map(|sink| (&sink.collector, sink.counts))
    }
}

impl Sink {
    /// Opens the socket, where it is not open and its time has come.
    fn open(&mut self, now: Instant) {
        if self.open.is_some() || now < self.next_open {
            return;
        }
        self.next_open = now + OPEN_AGAIN;
        let Collector { address, protocol, agent, header, .. } = &self.collector;
        let opened = UdpSocket::bind((unspecified(address.ip()), 0)).and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.connect(address)?;
            let own = socket.local_addr()?.ip();
            Ok((socket, agent.unwrap_or(own)))
        });
        match opened {
            Ok((socket, agent)) => {
                info!(target: "sampling", "samples are sent to {}, from agent {agent}", self.collector);
                let exporter: Box<dyn Exporter> = match protocol {
                    Protocol::Sflow => Box::new(Datagrams::new(agent, (*header).into())),
                    Protocol::Ipfix => Box::new(Messages::new(0)),
                };
                self.open = Some(Open { socket, exporter });
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Has the exporter add something, and sends the datagrams that are full. Without a socket they are lost.
    fn add(&mut self, now: Instant, add: impl FnOnce(&mut dyn Exporter, &mut dyn FnMut(&[u8]))) {
        self.flush.get_or_insert(now + LONGEST_WAIT);
        self.with(add);
    }

    /// Sends what is begun.
    fn flush(&mut self, time: Now) {
        self.flush = None;
        self.with(|exporter, send| exporter.flush(time, send));
    }

    fn with(&mut self, run: impl FnOnce(&mut dyn Exporter, &mut dyn FnMut(&[u8]))) {
        let Some(Open { socket, exporter }) = &mut self.open else { return };
        let (mut sent, mut errors) = (0, Vec::new());
        run(exporter.as_mut(), &mut |datagram| match socket.send(datagram) {
            Ok(_) => sent += 1,
            Err(error) => errors.push(error),
        });
        self.counts.datagrams += sent;
        // A full buffer, and a collector that does not listen, pass. Other errors may stay with the socket: it has the source
        // address of its time, which may be gone.
        let passes = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused)
        };
        if !errors.iter().all(passes) {
            self.open = None;
        }
        errors.iter().for_each(|error| self.failed(error));
    }

    fn failed(&mut self, error: &io::Error) {
        self.counts.failed += 1;
        if !std::mem::replace(&mut self.fails, true) {
            warn!(target: "sampling", "samples are not sent to {}: {error}", self.collector);
        }
    }
}

/// Whether the last sums are too old for a sample, or there are none.
fn is_old(summed: Option<Instant>, now: Instant) -> bool {
    summed.is_none_or(|last| now.saturating_duration_since(last) >= BETWEEN_SUMS)
}

fn time(uptime: Duration) -> Now {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The uptime wraps around after 49 days, as other agents' does.
    let low = uptime.as_millis() & u128::from(u32::MAX);
    Now {
        uptime_ms: u32::try_from(low).expect("the low half"),
        unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX),
    }
}

/// What samples are completed with.
struct World<'a> {
    seen: Seen<'a>,
    sampling: &'a Sampling,
    /// Names of the tables by fib.
    tables: Vec<TableId>,
    /// Samplers by port: their counts are sums over all workers.
    samplers: HashMap<u16, Sampler>,
}

impl<'a> World<'a> {
    fn new(seen: Seen<'a>, sampling: &'a Sampling) -> Self {
        Self { seen, sampling, tables: Vec::new(), samplers: HashMap::new() }
    }

    /// A sample with who took it, and what the route table has of it.
    fn flow<'s>(&mut self, sample: &'s Sample) -> FlowSample<'s> {
        if self.tables.is_empty() {
            self.tables = self.seen.control.tables();
        }
        let forwarding = self.seen.control.forwarding();
        let info = forwarding.ports.port(sample.port);
        let sampler = *self.samplers.entry(sample.port).or_insert_with(|| {
            let (name, link) = info.map_or(("", 0), |info| (&info.name, info.link));
            let none = Sampler { link, rate: 0, packets: 0, samples: 0, lost: 0 };
            // One that samples no longer has no rate.
            sampler(self.sampling, name, link).unwrap_or(none)
        });
        let header = sample.header();
        let (egress, routed) = self.routed(&forwarding, sample.port, header);
        FlowSample { sampler, header, frame_len: sample.frame_len, egress, routed }
    }

    fn routed(
        &self,
        forwarding: &Forwarding,
        port: u16,
        header: &[u8],
    ) -> (Egress, Option<Routed>) {
        let found = addresses(header).zip(network(header));
        let Some(((source, destination), (at, _))) = found else { return (Egress::Unknown, None) };
        let (packet, seed) = (&header[at..], self.seen.workers.flow_seed());
        let (action, table, ttl) = match destination {
            IpAddr::V4(addr) => {
                let (action, table) =
                    self.look_up(forwarding, port, addr.to_bits(), flow::of_ip4(seed, packet));
                (action, table, packet[8])
            }
            IpAddr::V6(addr) => {
                let (action, table) =
                    self.look_up(forwarding, port, addr.to_bits(), flow::of_ip6(seed, packet));
                (action, table, packet[7])
            }
        };
        let link = |port| forwarding.ports.port(port).map_or(0, |info| info.link);
        let (mut egress, next_hop) = match action {
            ForwardingAction::Adjacency(index) => {
                let hops = &forwarding.hops;
                let next_hop = hops.neighbor(index).unwrap_or(destination);
                (Egress::Link(link(hops.adjacency(index).port)), next_hop)
            }
            ForwardingAction::Glean(port) => (Egress::Link(link(port)), destination),
            ForwardingAction::Local => (Egress::Host, destination),
            // Codes of "destination unreachable" (RFC 792, RFC 1812 5.2.7.1).
            ForwardingAction::NoRoute => (Egress::Dropped(0), unspecified(destination)),
            ForwardingAction::Vrf(..) => (Egress::NO_REASON, unspecified(destination)),
            ForwardingAction::Unreachable => (Egress::Dropped(1), unspecified(destination)),
            ForwardingAction::Prohibit => (Egress::Dropped(13), unspecified(destination)),
            ForwardingAction::Blackhole => (Egress::NO_REASON, unspecified(destination)),
        };
        if ttl <= 1 && matches!(egress, Egress::Link(_)) {
            egress = Egress::EXPIRED;
        }
        let len = |addr| {
            let prefix = self.seen.control.routed_prefix(table, addr);
            prefix.map_or(0, |prefix| prefix.len())
        };
        let (source_len, destination_len) = (len(source), len(destination));
        (egress, Some(Routed { next_hop, source_len, destination_len, as_numbers: None }))
    }

    /// The forwarding action of a packet that arrives at a port, and the table that has it.
    fn look_up<A: IpFamily>(
        &self,
        forwarding: &Forwarding,
        port: u16,
        addr: A,
        hash: u32,
    ) -> (ForwardingAction, TableId) {
        let found = forwarding.lookups(port, addr, || hash).last();
        let (action, fib) =
            found.map_or((ForwardingAction::NoRoute, 0), |found| (found.action, found.fib));
        (action, self.tables.get(usize::from(fib)).copied().unwrap_or(self.tables[0]))
    }

    /// Counters of the interfaces that are forwarded for.
    fn counters(&self) -> Vec<CounterSample> {
        let Seen { control, workers, interfaces, .. } = self.seen;
        let (forwarding, received) = (control.forwarding(), interfaces.received_xdp());
        let report = interfaces.report();
        let counters = report.iter().filter(|row| row.path != "kernel").filter_map(|row| {
            let info = forwarding.ports.port(row.port)?;
            let counted = interfaces.counted(row.port, workers, &received);
            let Counted { graph, received, sent } = &counted;
            Some(CounterSample {
                link: info.link,
                speed: 0,
                up: info.up,
                received: [received.bytes + graph.rx[1], received.packets + graph.rx[0]],
                sent: [sent.bytes + graph.tx[1], sent.packets + graph.tx[0]],
                sampler: sampler(self.sampling, &info.name, info.link),
            })
        });
        counters.collect()
    }
}

/// An interface as a sampler, if its packets are sampled.
fn sampler(sampling: &Sampling, name: &str, link: u32) -> Option<Sampler> {
    let (rate, counts) = sampling.of(name)?;
    let (packets, samples, lost) = (counts.packets, counts.samples, counts.lost);
    Some(Sampler { link, rate, packets, samples, lost })
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_made_ten_times_a_second_while_there_are_samples() {
        let (mut summed, begin) = (None, Instant::now());
        let turns = (0..100).map(|turn: u32| begin + turn * Duration::from_millis(10));
        let sums = turns.filter(|now| {
            let old = is_old(summed, *now);
            summed = if old { Some(*now) } else { summed };
            old
        });
        assert_eq!(sums.count(), 10);
    }
}
