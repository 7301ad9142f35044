//! `ICMPPingSource(SRC, DST)` sends ICMP echo requests, one in each interval, and reads the replies that its input
//! gets. Where it is pulled, each pull has a request.
//!
//! Source: Click's `ICMPPingSource` (`ICMPSendPings` is its older name). `INTERVAL` (1 s), `LIMIT`, `IDENTIFIER`,
//! `DATA` (none), `STOP`: the router ends after `LIMIT` requests, when the replies are there or a second is over. With
//! `MIRROR true` a reply has the next request sent at once, whatever the limit. A line for
//! each reply goes to the standard error, unless `VERBOSE false` is given. Of
//! several workers the first sends.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::checksums::fill_checksums;
use super::console;
use super::seen::{Seen, word};
use crate::element::click::source::{LONGEST, stamp};
use crate::element::support::one_instance::OneInstance;
use crate::element::support::setting::{Setting, value};
use crate::element::support::stop::Stop;
use crate::frame::wire::Ip4;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::{Batch, DropReason, FLAG_COPY, FLAG_GENERATED, Hop};
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = class("ICMPPingSource");
pub(crate) const OLD: ElementClass = class("ICMPSendPings");

const fn class(name: &'static str) -> ElementClass {
    ElementClass {
        spec: ClassSpec::new(name, "0-1/1", "h/a", "x/y"),
        summary: "sends ICMP echo requests and reads their replies",
        configure,
    }
}

fn configure(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let src = setup.args.positional::<Ipv4Addr>("SRC");
    let dst = setup.args.positional::<Ipv4Addr>("DST");
    let interval = setup.args.keyword::<Duration>("INTERVAL");
    let data = setup.args.keyword_arg("DATA")?;
    let limit = setup.args.keyword::<i64>("LIMIT");
    let identifier = setup.args.keyword::<u16>("IDENTIFIER");
    let active = setup.args.keyword("ACTIVE");
    let verbose = setup.args.keyword("VERBOSE");
    let stop = setup.args.keyword("STOP");
    let mirror = setup.args.keyword("MIRROR");
    setup.args.finish()?;
    let mirror: bool = mirror?.unwrap_or(false);
    let shared = Arc::new(Shared {
        src: Setting::new(src?),
        dst: Setting::new(dst?),
        active: Setting::new(active?.unwrap_or(true)),
        limit: Setting::new(unbounded(limit?.unwrap_or(-1))),
        interval_us: Setting::new(micros(interval?.unwrap_or(Duration::from_secs(1)))),
        times: Mutex::default(),
    });
    let identifier = identifier?.unwrap_or(0);
    let data: Arc<[u8]> = data.map_or_else(Arc::default, |data| data.bytes().into());
    if HEADER_BYTES + data.len() > usize::from(LONGEST) {
        let words = format!("DATA: packets have at most {LONGEST} bytes");
        return Err(setup.args.refuse_all(&words));
    }
    let verbose = verbose?.unwrap_or(true);
    let stop = stop?.unwrap_or(false).then(|| setup.ending.clone());
    let replies = setup.inputs > 0;
    let one = OneInstance::default();
    let made = Made::new({
        let shared = shared.clone();
        move |instance| Pings {
            shared: shared.clone(),
            works: one.is(instance),
            identifier,
            data: data.clone(),
            verbose,
            replies,
            mirror,
            is_due: false,
            next_ns: 0,
            last_ns: 0,
            phase: Phase::Sends,
            dry_run: instance.is_dry_run(),
            stop: Stop::new(stop.clone()),
        }
    });
    Ok(handled(made.polled(), &shared))
}

fn unbounded(limit: i64) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1)
}

fn handled(made: Made, shared: &Arc<Shared>) -> Made {
    let read = |name, text: fn(&Times) -> String| {
        let shared = shared.clone();
        Handler::read(name, move || text(&shared.times()))
    };
    let made = made
        .handler(read("count", |times| times.sent.to_string()))
        .handler(read("rtt_min", |times| seconds(times.least_ns)))
        .handler(read("rtt_avg", |times| seconds(times.mean_ns())))
        .handler(read("rtt_max", |times| seconds(times.most_ns)))
        .handler(read("summary", Times::summary));
    let [resets, limit, interval] = [(); 3].map(|()| shared.clone());
    let made = made
        .command("reset_counts", move || *resets.times() = Times::default())
        .handler(Handler::write("limit", move |text| {
            let given = unbounded(value::<i64>(text)?);
            limit.limit.change(|_| given);
            Ok(())
        }))
        .handler(Handler::write("interval", move |text| {
            let given = micros(value::<Duration>(text)?);
            interval.interval_us.change(|_| given);
            Ok(())
        }));
    let made = shared.active.handled(made, "active");
    shared.dst.handled(shared.src.handled(made, "src"), "dst")
}

fn seconds(ns: u64) -> String {
    format!("{:.6}", Duration::from_nanos(ns).as_secs_f64())
}

fn millis(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64() * 1000.0
}

struct Shared {
    src: Setting<Ipv4Addr>,
    dst: Setting<Ipv4Addr>,
    active: Setting<bool>,
    limit: Setting<u32>,
    interval_us: Setting<u32>,
    times: Mutex<Times>,
}

impl Shared {
    fn times(&self) -> MutexGuard<'_, Times> {
        // Numbers are whole whatever panicked beside them.
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests whose times are kept: those of the last so many.
const KEPT: usize = 256;

/// What is known of requests and replies.
struct Times {
    sent: u32,
    received: u32,
    least_ns: u64,
    most_ns: u64,
    sum_ns: u64,
    /// Sum of the squares, in milliseconds.
    squares: f64,
    /// When each of the last requests was sent, by its number; 0 where it is answered.
    sent_ns: [u64; KEPT],
}

impl Default for Times {
    fn default() -> Self {
        Self {
            sent: 0,
            received: 0,
            least_ns: 0,
            most_ns: 0,
            sum_ns: 0,
            squares: 0.0,
            sent_ns: [0; KEPT],
        }
    }
}

impl Times {
    fn mean_ns(&self) -> u64 {
        self.sum_ns / u64::from(self.received.max(1))
    }

    fn summary(&self) -> String {
        let lost = self.sent.saturating_sub(self.received);
        let percent = u64::from(lost) * 100 / u64::from(self.sent.max(1));
        let mean = millis(self.sum_ns) / f64::from(self.received.max(1));
        let variance = self.squares / f64::from(self.received.max(1)) - mean * mean;
        format!(
            "{} packets transmitted, {} received, {percent}% packet loss\n\
             rtt min/avg/max/mdev = {:.3}/{mean:.3}/{:.3}/{:.3} ms",
            self.sent,
            self.received,
            millis(self.least_ns),
            millis(self.most_ns),
            variance.max(0.0).sqrt()
        )
    }
}

struct Pings {
    shared: Arc<Shared>,
    /// Whether this is the first worker.
    works: bool,
    identifier: u16,
    data: Arc<[u8]>,
    verbose: bool,
    /// Whether replies are read.
    replies: bool,
    /// A reply has the next request sent.
    mirror: bool,
    /// A request is to be sent, whatever the time and the limit.
    is_due: bool,
    next_ns: u64,
    /// Time of the last request.
    last_ns: u64,
    phase: Phase,
    stop: Stop,
    /// Packets are only evaluated: a reply counts for nothing.
    dry_run: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sends,
    /// All requests are sent: replies may come.
    Waits,
    Over,
}

/// Time that the reply to the last request has.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Bytes of the IPv4 and ICMP headers.
const HEADER_BYTES: usize = 28;

impl Pings {
    /// Makes a request if it is time for one, or whoever wants one is there.
    fn make(&mut self, batch: &mut Batch, cx: &mut Context<'_>, wanted: bool) {
        let shared = &self.shared;
        let due = self.is_due;
        let early = cx.now_ns < self.next_ns && !due && !wanted;
        if !self.works || !shared.active.get() || early && self.phase == Phase::Sends {
            return;
        }
        let mut times = shared.times();
        if times.sent >= shared.limit.get() && !due {
            let over = !self.replies
                || times.received >= times.sent
                || cx.now_ns >= self.last_ns.saturating_add(PATIENCE_NS);
            self.phase = if over { Phase::Over } else { Phase::Waits };
            if over {
                self.stop.request();
            }
            return;
        }
        self.phase = Phase::Sends;
        self.stop.reset();
        if early || batch.room() == 0 {
            return;
        }
        let interval_ns = u64::from(shared.interval_us.get()) * 1000;
        let Some(mut packet) = cx.pool.alloc() else { return };
        if !packet.set_len(HEADER_BYTES + self.data.len()) {
            return;
        }
        (self.last_ns, self.next_ns, self.is_due) = (cx.now_ns, cx.now_ns + interval_ns, false);
        let [high, low] = times.sent.to_be_bytes()[2..] else { return };
        let number = u16::from_be_bytes([high, low]);
        let bytes = packet.bytes_mut();
        let total = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes();
        bytes[..12].copy_from_slice(&[
            0x45,
            0,
            total[0],
            total[1],
            high,
            low,
            0,
            0,
            255,
            PROTOCOL_ICMP,
            0,
            0,
        ]);
        bytes[12..16].copy_from_slice(&shared.src.get().octets());
        bytes[16..20].copy_from_slice(&shared.dst.get().octets());
        bytes[20..24].copy_from_slice(&[8, 0, 0, 0]);
        bytes[24..26].copy_from_slice(&self.identifier.to_be_bytes());
        bytes[26..28].copy_from_slice(&[high, low]);
        bytes[28..].copy_from_slice(&self.data);
        fill_checksums(bytes);
        times.sent += 1;
        if times.sent >= shared.limit.get() {
            self.phase = Phase::Waits;
        }
        times.sent_ns[usize::from(number) % KEPT] = cx.now_ns.max(1);
        drop(times);
        stamp(&mut packet, cx.now_ns);
        packet.meta.flags |= FLAG_GENERATED | FLAG_COPY;
        (packet.meta.network, packet.meta.hop) = (0, Hop::NONE);
        if batch.push(packet).is_ok() {
            cx.counters.generated.add(1);
        }
    }

    /// Reads a reply.
    fn reply(&self, seen: &Seen<'_>, now_ns: u64) -> Option<()> {
        let header = Ip4::at(seen.ip()?, 0)?;
        let icmp = seen.of(PROTOCOL_ICMP).filter(|icmp| icmp.first() == Some(&0))?;
        let (identifier, number) = (word(icmp, 4)?, word(icmp, 6)?);
        if identifier != self.identifier {
            return None;
        }
        let mut times = self.shared.times();
        let sent_ns = std::mem::take(&mut times.sent_ns[usize::from(number) % KEPT]);
        if sent_ns == 0 {
            return None;
        }
        let took_ns = now_ns.max(1).saturating_sub(sent_ns);
        times.least_ns = if times.received == 0 { took_ns } else { times.least_ns.min(took_ns) };
        times.most_ns = times.most_ns.max(took_ns);
        times.sum_ns += took_ns;
        times.squares += millis(took_ns).powi(2);
        times.received += 1;
        drop(times);
        if self.verbose {
            console::warn(&format!(
                "{} bytes from {}: icmp_seq={number} ttl={} time={:.3} ms",
                icmp.len(),
                Ipv4Addr::from_bits(header.src()),
                header.ttl(),
                millis(took_ns)
            ));
        }
        Some(())
    }
}

impl Element for Pings {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            if !self.dry_run && self.reply(&Seen::packet(batch, i), cx.now_ns).is_some() {
                self.is_due = self.mirror;
            }
            batch.discard(i, DropReason::Consumed);
        }
    }

    fn pull(&mut self, _: u16, into: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.make(into, cx, true);
    }

    fn poll(&mut self, batch: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.make(batch, cx, false);
    }

    fn keeps_time(&self) -> bool {
        self.works && self.shared.active.get() && (self.phase != Phase::Over || self.is_due)
    }

    fn due_ns(&self) -> Option<u64> {
        Some(match self.phase {
            _ if self.is_due => 0,
            Phase::Sends => self.next_ns,
            Phase::Waits | Phase::Over => self.last_ns.saturating_add(PATIENCE_NS),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn replies_are_timed() {
        console::collect();
        let text = "p :: ICMPPingSource(10.0.0.1, 10.0.0.2, LIMIT 2, INTERVAL 10ms, STOP true, DATA \\<01 02>)
            -> ICMPPingResponder -> Queue -> DelayUnqueue(3ms) -> p";
        let mut rig = Rig::new(&World::new(), text);
        rig.bench.now_ns = 1_000_000;
        for _ in 0..40 {
            rig.poll();
            rig.bench.now_ns += 1_000_000;
        }
        let summary = rig.read("p.summary");
        assert!(
            summary.starts_with("2 packets transmitted, 2 received, 0% packet loss"),
            "{summary}"
        );
        assert_eq!((rig.read("p.count"), rig.plan.is_stopped()), ("2".into(), true));
        let written = console::collected().err;
        assert!(written.starts_with("10 bytes from 10.0.0.2: icmp_seq=0 ttl="), "{written}");
        let mean: f64 = rig.read("p.rtt_avg").parse().unwrap();
        assert!((0.002..0.006).contains(&mean), "{mean}");
        let long = format!("1.0.0.1, 1.0.0.2, DATA \"{}\"", "x".repeat(1800));
        assert!(refused(&CLASS, &long).contains("packets have at most 1792 bytes"));
    }

    #[test]
    fn replies_have_the_next_request_sent() {
        let text = |mirror: bool| {
            format!(
                "p :: ICMPPingSource(10.0.0.1, 10.0.0.2, LIMIT 2, MIRROR {mirror}, VERBOSE false)
                 -> s :: ICMPPingResponder -> Queue -> DelayUnqueue(3ms) -> p"
            )
        };
        let sent = |mirror| {
            let mut rig = Rig::new(&World::new(), &text(mirror));
            rig.bench.now_ns = 1_000_000;
            for _ in 0..40 {
                rig.poll();
                rig.bench.now_ns += 1_000_000;
            }
            rig.read("p.count").parse::<u32>().unwrap()
        };
        assert_eq!(sent(false), 1, "the second is a second later");
        assert!(
            (8..=14).contains(&sent(true)),
            "one for each reply, 3 or 4 ms after the one before"
        );
    }

    #[test]
    fn a_summary_has_the_deviation() {
        let ms = 1_000_000;
        let times = Times {
            sent: 4,
            received: 2,
            least_ns: 2 * ms,
            most_ns: 4 * ms,
            sum_ns: 6 * ms,
            squares: 20.0,
            ..Times::default()
        };
        let want = "4 packets transmitted, 2 received, 50% packet loss\nrtt min/avg/max/mdev = 2.000/3.000/4.000/1.000 ms";
        assert_eq!(times.summary(), want);
    }

    #[test]
    fn each_pull_has_a_request() {
        let text = "p :: ICMPPingSource(10.0.0.1, 10.0.0.2, LIMIT 3) -> Unqueue -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        rig.bench.now_ns = 1_000_000;
        let sent: usize = (0..9).map(|_| rig.poll().len()).sum();
        assert_eq!(sent, 3, "whatever the interval");
    }

    #[test]
    fn data_is_what_is_given() {
        let text = "p :: ICMPPingSource(10.0.0.1, 10.0.0.2, LIMIT 1) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        rig.bench.now_ns = 1_000_000;
        let sent = rig.poll();
        assert_eq!(sent[0].1.len(), HEADER_BYTES, "and nothing without it");
    }

    #[test]
    fn the_last_reply_has_a_second() {
        let text = |interval: &str, delay: &str| {
            format!(
                "p :: ICMPPingSource(10.0.0.1, 10.0.0.2, LIMIT 1, INTERVAL {interval}, STOP true, VERBOSE false)
                 -> ICMPPingResponder -> Queue -> DelayUnqueue({delay}) -> p"
            )
        };
        // Milliseconds until the router ends.
        let ends = |interval, delay| {
            let mut rig = Rig::new(&World::new(), &text(interval, delay));
            rig.bench.now_ns = 1_000_000;
            let ended = (0..3000).find(|_| {
                rig.poll();
                rig.bench.now_ns += 1_000_000;
                rig.plan.is_stopped()
            });
            ended.expect("it ends")
        };
        assert!((200..=202).contains(&ends("10ms", "200ms")), "with the reply");
        assert!((200..=202).contains(&ends("5s", "200ms")), "not an interval later");
        assert_eq!(ends("10ms", "2s"), 1000, "without a reply");
    }
}
