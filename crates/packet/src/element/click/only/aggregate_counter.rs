//! Counts by aggregate: `AggregateCounter` packets or bytes of each; `AggregateLast` keeps the last packet of each until
//! `clear` is written.
//!
//! Source: Click's elements of these names. `BYTES true` counts bytes, with those that were not captured unless
//! `EXTRA_LENGTH false` is given, `IP_BYTES true` those behind the network header's beginning; a packet that stands for
//! several counts as these unless `MULTIPACKET false`. What comes by the second input counts for aggregates that are
//! known; what is not counted leaves by the second output, where it is used. `AGGREGATE_STOP N` and `COUNT_STOP N` end
//! the router, `AGGREGATE_FREEZE` and `COUNT_FREEZE` let it take no new aggregates, `AGGREGATE_CALL N HANDLER` and
//! `COUNT_CALL` call a handler, once. `write_text_file FILE` writes a line for each, `write_ip_file` with addresses,
//! `write_file` two words of 4 bytes, `write_pdf_file` how many aggregates have each count. `reaggregate_counts` makes
//! the counts aggregates, which count how many aggregates had them. All workers count together, under a lock a batch. A
//! packet that `AggregateLast` gives has annotations of all of its aggregate: their number and length, and the time of
//! the first. It gives those of aggregates that have ended by its `NOTIFIER`, an `AggregateIPFlows`, without a `clear`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::aggregate::ended::{Ended, Listener};
use super::annotations::Annotations;
use crate::element::click::counter::Call;
use crate::element::support::resets::Resets;
use crate::element::support::setting::Setting;
use crate::element::support::stop;
use crate::frame::{Batch, DropReason, FLAG_GENERATED, Packet};
use crate::graph::{Context, Element, ElementClass, Ending, Held, Inputs, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("AggregateCounter", "1-2/1-2", "a/ah", "x/x"),
    summary: "counts packets or bytes of each aggregate",
    configure: |setup| {
        let mut is = |name, usual| setup.args.keyword::<bool>(name).map(|is| is.unwrap_or(usual));
        let (bytes, ip_bytes) = (is("BYTES", false)?, is("IP_BYTES", false)?);
        let (packets, extra) = (is("MULTIPACKET", true)?, is("EXTRA_LENGTH", true)?);
        let mut limit = |name| setup.args.keyword::<u64>(name);
        let aggregates = [limit("AGGREGATE_STOP")?, limit("AGGREGATE_FREEZE")?];
        let counts = [limit("COUNT_STOP")?, limit("COUNT_FREEZE")?];
        let banner = setup.args.keyword::<String>("BANNER");
        let calls = [Call::read(setup, "AGGREGATE_CALL"), Call::read(setup, "COUNT_CALL")];
        setup.args.finish()?;
        let [aggregate_call, count_call] = calls;
        let calls = [aggregate_call?, count_call?];
        let banner = Arc::new(Mutex::new(banner?.unwrap_or_default()));
        let what = What { bytes: bytes || ip_bytes, ip: ip_bytes, packets, extra };
        let shared = setup.keep::<Mutex<Counts>>();
        let (frozen, active) = (Setting::new(false), Setting::new(true));
        let stop = setup.ending.clone();
        let others = u16::from(setup.outputs > 1);
        let made = Made::new({
            let (shared, frozen, active) = (shared.clone(), frozen.clone(), active.clone());
            let calls = calls.clone();
            move |instance| Counter {
                what,
                shared: (!instance.is_dry_run()).then(|| shared.clone()),
                limits: [aggregates, counts],
                frozen: frozen.clone(),
                active: active.clone(),
                stop: stop.clone(),
                calls: calls.clone(),
                others,
            }
        });
        let made = calls[1].handled(calls[0].handled(made, "aggregate_call"), "count_call");
        let made = stop::handled(made, setup, &active);
        let made = active.handled(frozen.handled(made, "freeze"), "active");
        let read = |name, text: fn(&Counts) -> String| {
            let shared = shared.clone();
            Handler::read(name, move || text(&lock(&shared)))
        };
        let write = |name, form: Form| {
            let (shared, banner) = (shared.clone(), banner.clone());
            Handler::write_opening(name, move |file, policy| {
                let bytes = lock(&shared).written(&lock(&banner), form);
                let file = file.trim();
                if file == "-" {
                    super::console::out_bytes(&bytes);
                    return Ok(());
                }
                let opened = policy.new_output(file).map_err(|error| format!("{file}: {error}"))?;
                let Some(mut opened) = opened else { return Ok(()) };
                opened.write_all(&bytes).map_err(|error| format!("{file}: {error}"))
            })
        };
        let clear = shared.clone();
        let again = |name| {
            let shared = shared.clone();
            Handler::write(name, move |_| {
                lock(&shared).count_counts();
                Ok(())
            })
        };
        let set = banner.clone();
        Ok(made
            .handler(read("count", |counts| counts.total.to_string()))
            .handler(read("nagg", |counts| counts.of.len().to_string()))
            .handler(read("counts_pdf", Counts::pdf))
            .handler(Handler::write("banner", move |text| {
                text.clone_into(&mut lock(&set));
                Ok(())
            }))
            .handler(again("reaggregate_counts"))
            .handler(again("counts_pdf"))
            .handler(write("write_file", Form::Words))
            .handler(write("write_text_file", Form::Numbers))
            .handler(write("write_ascii_file", Form::Numbers))
            .handler(write("write_ip_file", Form::Addrs))
            .handler(write("write_pdf_file", Form::Pdf))
            .handler(Handler::read("banner", move || lock(&banner).clone()))
            .command("clear", move || *lock(&clear) = Counts::default()))
    },
};

/// Form of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Numbers,
    Addrs,
    /// Words of 4 bytes.
    Words,
    /// How many aggregates have each count.
    Pdf,
}

/// What is counted.
#[derive(Clone, Copy)]
struct What {
    bytes: bool,
    ip: bool,
    packets: bool,
    extra: bool,
}

impl What {
    fn of(self, batch: &Batch, i: usize, annotations: &Annotations) -> u64 {
        let others = if self.packets { u64::from(annotations.extra_packets) } else { 0 };
        if !self.bytes {
            return 1 + others;
        }
        let network = if self.ip { usize::from(batch.meta()[i].network) } else { 0 };
        let length = batch.frame_len(i).saturating_sub(network) as u64;
        length + if self.extra { u64::from(annotations.extra_length) } else { 0 }
    }
}

#[derive(Default)]
struct Counts {
    of: HashMap<u32, u64>,
    total: u64,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counts are whole whatever panicked beside them.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counts {
    fn written(&self, banner: &str, form: Form) -> Vec<u8> {
        let mut text = banner.to_owned();
        if !banner.is_empty() && !banner.ends_with('\n') {
            text.push('\n');
        }
        let _ = writeln!(text, "!num_nonzero {}", self.of.len());
        text += match form {
            Form::Numbers | Form::Pdf => "",
            Form::Addrs => "!ip\n",
            Form::Words if cfg!(target_endian = "little") => "!packed_le\n",
            Form::Words => "!packed_be\n",
        };
        let mut bytes = text.into_bytes();
        if form == Form::Pdf {
            bytes.extend(self.pdf().bytes());
            return bytes;
        }
        for (&aggregate, &count) in &self.of.iter().collect::<BTreeMap<_, _>>() {
            match form {
                Form::Addrs => {
                    bytes.extend(format!("{} {count}\n", Ipv4Addr::from_bits(*aggregate)).bytes());
                }
                Form::Numbers | Form::Pdf => {
                    bytes.extend(format!("{aggregate} {count}\n").bytes());
                }
                Form::Words => {
                    bytes.extend(aggregate.to_ne_bytes());
                    bytes.extend(u32::try_from(*count).unwrap_or(u32::MAX).to_ne_bytes());
                }
            }
        }
        bytes
    }

    /// Counts how many aggregates have each count: what was a count is an aggregate then.
    fn count_counts(&mut self) {
        let counts = std::mem::take(self);
        for count in counts.of.into_values() {
            *self.of.entry(u32::try_from(count).unwrap_or(u32::MAX)).or_default() += 1;
            self.total += 1;
        }
    }

    /// How many aggregates have each count.
    fn pdf(&self) -> String {
        let mut numbers = BTreeMap::<u64, u64>::new();
        self.of.values().for_each(|count| *numbers.entry(*count).or_default() += 1);
        numbers.into_iter().map(|(count, aggregates)| format!("{count} {aggregates}\n")).collect()
    }
}

/// Aggregates that are counted at most.
const MOST: usize = 1 << 22;

struct Counter {
    what: What,
    /// `None` where packets are only evaluated.
    shared: Option<Arc<Mutex<Counts>>>,
    /// Numbers of aggregates, and counts, at which the router ends and new ones are not taken.
    limits: [[Option<u64>; 2]; 2],
    frozen: Setting<bool>,
    active: Setting<bool>,
    stop: Ending,
    /// Calls at a number of aggregates, and at a count.
    calls: [Call; 2],
    /// The output of what is not counted.
    others: u16,
}

impl Counter {
    /// Counts a packet; how many aggregates there are now, and all that is counted.
    fn count(
        &self,
        counts: &mut Counts,
        (input, batch, i): (u16, &Batch, usize),
    ) -> Option<[u64; 2]> {
        let annotations = Annotations::of(batch, i);
        let amount = self.what.of(batch, i, &annotations);
        let Counts { of, total } = counts;
        let takes_new = input == 0 && !self.frozen.get() && of.len() < MOST;
        match of.get_mut(&annotations.aggregate) {
            Some(count) => *count += amount,
            None if takes_new => drop(of.insert(annotations.aggregate, amount)),
            None => return None,
        }
        *total += amount;
        let numbers = [of.len() as u64, *total];
        for (number, [stops, freezes]) in numbers.into_iter().zip(self.limits) {
            if stops.is_some_and(|limit| number >= limit) {
                self.stop.request();
            }
            if freezes.is_some_and(|limit| number >= limit) {
                self.frozen.change(|_| true);
            }
        }
        Some(numbers)
    }
}

impl Element for Counter {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let Some(shared) = &self.shared else { return };
        if !self.calls.iter().any(Call::is_armed) {
            let mut counts = self.active.get().then(|| lock(shared));
            for i in 0..batch.len() {
                let counted =
                    counts.as_mut().and_then(|counts| self.count(counts, (input, batch, i)));
                if counted.is_none() {
                    batch.output(i, self.others);
                }
            }
            return;
        }
        for i in 0..batch.len() {
            // What is called may read the counts, or end them.
            let numbers = match self.active.get() {
                true => self.count(&mut lock(shared), (input, batch, i)),
                false => None,
            };
            if numbers.is_none() {
                batch.output(i, self.others);
            }
            for (call, number) in self.calls.iter().zip(numbers.into_iter().flatten()) {
                call.reached(false, || number);
            }
        }
    }
}

pub(crate) const LAST: ElementClass = ElementClass {
    spec: ClassSpec::new("AggregateLast", "1/1-2", "h/h", "x/x").outputs(&["last", "others"]),
    summary: "keeps the last packet of each aggregate until `clear` is written",
    configure: |setup| {
        let ends = setup.args.keyword("STOP_AFTER_CLEAR");
        let notifier = setup.args.keyword_arg("NOTIFIER")?;
        setup.args.finish()?;
        let ended = notifier.map(|arg| Ended::of(setup, &arg)).transpose()?;
        let ends = ends?.unwrap_or(false).then(|| setup.ending.clone());
        let others = setup.outputs > 1;
        let clears = Arc::new(Resets::new());
        let each = clears.clone();
        let made = Made::new(move |instance| Last {
            kept: BTreeMap::new(),
            others,
            clears: each.instance(),
            ends: ends.clone(),
            ended: ended.as_ref().filter(|_| !instance.is_dry_run()).map(|ended| ended.listen()),
        });
        let made = made.polled().holds(MOST_KEPT);
        Ok(clears.handled(made, "clear"))
    },
};

/// Packets that are kept at most; what would be more is passed on at once.
const MOST_KEPT: usize = 4096;

struct Last {
    kept: BTreeMap<u32, Packet>,
    /// Whether earlier packets have an output.
    others: bool,
    clears: Resets,
    ends: Option<Ending>,
    /// Aggregates that have ended, whose last packets leave.
    ended: Option<Listener>,
}

impl Last {
    fn give_ended(&mut self, cx: &mut Context<'_>) {
        for aggregate in self.ended.as_ref().map(Listener::take).unwrap_or_default() {
            if let Some(packet) = self.kept.remove(&aggregate) {
                cx.emit(0, packet);
            }
        }
    }
}

/// Notes in a packet that it stands for those before it, of which the last has a note, too.
fn note_all(packet: &mut Packet, before: Option<&Packet>) {
    let mut annotations = Annotations::of_packet(packet);
    match before {
        None if annotations.first_ns == 0 => annotations.first_ns = annotations.timestamp_ns,
        None => {}
        Some(before) => {
            let noted = Annotations::of_packet(before);
            let bytes = u32::try_from(before.bytes().len()).unwrap_or(u32::MAX);
            let all = |one: u32, more: u32, own: u32| one.saturating_add(more).saturating_add(own);
            annotations.extra_packets = all(annotations.extra_packets, noted.extra_packets, 1);
            annotations.extra_length = all(annotations.extra_length, noted.extra_length, bytes);
            annotations.first_ns = noted.first_ns;
        }
    }
    annotations.set_packet(packet);
}

impl Element for Last {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            let aggregate = Annotations::of(batch, i).aggregate;
            if self.kept.len() >= MOST_KEPT && !self.kept.contains_key(&aggregate) {
                continue;
            }
            let mut packet = batch.take(i);
            let before = self.kept.remove(&aggregate);
            note_all(&mut packet, before.as_ref());
            self.kept.insert(aggregate, packet);
            match before {
                Some(packet) if self.others => cx.emit(1, packet),
                Some(packet) => cx.drop_packet(packet, DropReason::Discarded),
                None => {}
            }
        }
        // Packets of such an aggregate may be in this batch.
        self.give_ended(cx);
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.give_ended(cx);
        if !self.clears.came() {
            return;
        }
        for (_, packet) in std::mem::take(&mut self.kept) {
            cx.emit(0, packet);
        }
        if let Some(ends) = &self.ends {
            ends.request();
        }
    }

    fn held(&self) -> Held {
        let mut held = Held::default();
        for packet in self.kept.values() {
            held.add(packet.meta.flags & FLAG_GENERATED != 0);
        }
        held
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        for (_, packet) in std::mem::take(&mut self.kept) {
            cx.drop_packet(packet, DropReason::Shutdown);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::element::click::only::console;
    use crate::testing::{Rig, World, frame_v4, refused};

    #[test]
    fn aggregates_are_counted() {
        let text = "FromDevice(a) -> MarkIPHeader(14) -> AggregateIP(ip src) -> c :: AggregateCounter(BYTES true, AGGREGATE_FREEZE 2, BANNER x)
            -> p :: AggregatePacketCounter -> l :: AggregateLast -> ToDevice(x); l [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let send = |rig: &mut Rig, host: &str, bytes: usize| {
            rig.receive("a", &[&frame_v4(host, "10.0.0.9", 64, 17, &vec![0; bytes])])
        };
        send(&mut rig, "10.0.0.1", 10);
        send(&mut rig, "10.0.0.2", 10);
        assert_eq!(send(&mut rig, "10.0.0.1", 20)[0].0, "y");
        send(&mut rig, "10.0.0.3", 10);
        assert_eq!(
            (rig.read("c.nagg"), rig.read("c.count"), rig.read("c.freeze")),
            ("2".into(), "142".into(), "true".into())
        );
        assert_eq!(
            (rig.read("c.counts_pdf"), rig.read("p.count")),
            ("44 1\n98 1\n".into(), "4".into())
        );
        console::collect();
        rig.write("c.write_ip_file", "-");
        assert_eq!(console::collected().out, "x\n!num_nonzero 2\n!ip\n10.0.0.1 98\n10.0.0.2 44\n");
        // A device has no length.
        rig.write("c.write_ip_file", "/dev/null");
        let file = std::env::temp_dir().join(format!("fpaggregates{}", std::process::id()));
        rig.write("c.banner", "!b");
        rig.write("c.write_file", &file.display().to_string());
        let words = [0x0a00_0001, 98, 0x0a00_0002, 44_u32].map(u32::to_ne_bytes).concat();
        let written = std::fs::read(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        assert!(written.starts_with(b"!b\n!num_nonzero 2\n!packed_") && written.ends_with(&words));
        rig.write("c.reaggregate_counts", "");
        assert_eq!((rig.read("c.count"), rig.read("c.counts_pdf")), ("2".into(), "1 2\n".into()));
        rig.write("l.clear", "");
        let sent = rig.poll();
        assert_eq!((sent.len(), sent[0].1.len(), &*sent[0].0), (3, 54, "x"));
        rig.write("c.clear", "");
        rig.write("p.clear", "");
        assert_eq!((rig.read("c.nagg"), rig.read("p.count")), ("0".into(), "0".into()));
    }

    #[test]
    fn others_leave_by_the_second_output() {
        let text = "FromDevice(a) -> MarkIPHeader(14) -> AggregateIP(ip src) -> c :: AggregateCounter(AGGREGATE_FREEZE 1)
            -> ToDevice(x); FromDevice(b) -> [1] c [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let send = |rig: &mut Rig, device: &str, host: u8| {
            let frame = frame_v4(&format!("10.0.0.{host}"), "10.0.0.9", 64, 17, &[]);
            rig.receive(device, &[&frame]).remove(0).0
        };
        assert_eq!(["b", "a"].map(|device| send(&mut rig, device, 1)), ["y", "x"]);
        assert_eq!([1, 2].map(|host| send(&mut rig, "a", host)), ["x", "y"]);
        rig.write("c.active", "false");
        assert_eq!((send(&mut rig, "a", 1), rig.read("c.count")), ("y".into(), "2".into()));
        console::collect();
        rig.write("c.write_pdf_file", "-");
        assert_eq!(console::collected().out, "!num_nonzero 1\n2 1\n");
    }

    #[test]
    fn the_last_stands_for_all() {
        console::collect();
        let rows = "!data timestamp aggregate len count\n1 7 40 1\n2 8 50 1\n3 7 60 2\n4 7 50 1";
        let fields = "timestamp first_timestamp aggregate count wire_len";
        let text = format!(
            "f :: FromIPSummaryDump(DATA \"{rows}\") -> l :: AggregateLast(STOP_AFTER_CLEAR true)
             -> ToIPSummaryDump(-, HEADER false, FIELDS {fields})"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..9).for_each(|_| drop(rig.poll()));
        rig.write("l.clear", "");
        (0..9).for_each(|_| drop(rig.poll()));
        let out = console::collected().out;
        assert_eq!(out, "4.000000 1.000000 7 4 150\n2.000000 2.000000 8 1 50\n");
        assert!(rig.plan.is_stopped());
    }

    #[test]
    fn the_last_of_a_flow_that_has_ended_leaves() {
        console::collect();
        let (one, other) = ("1.0.0.1 5 2.0.0.2 6 U", "1.0.0.1 7 2.0.0.2 6 U");
        let rows = format!(
            "!data timestamp src sport dst dport proto\n1 {one}\n2 {one}\n3 {other}\n100 {other}\n101 {one}"
        );
        let text = format!(
            "FromIPSummaryDump(DATA \"{rows}\") -> a :: AggregateIPFlows(REAP 20) -> l :: AggregateLast(NOTIFIER a)
             -> ToIPSummaryDump(-, HEADER false, FIELDS timestamp aggregate count)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..9).for_each(|_| drop(rig.poll()));
        let out = console::collected().out;
        assert_eq!(out, "2.000000 1 2\n3.000000 2 1\n", "without a `clear`");
        console::collect();
        rig.write("a.clear", "");
        (0..2).for_each(|_| drop(rig.poll()));
        let out = console::collected().out;
        assert_eq!(out, "100.000000 3 1\n101.000000 4 1\n", "without a packet");
        let words = refused(&super::LAST, "NOTIFIER a");
        assert!(words.contains("`a` is no element that numbers flows"), "{words}");
    }

    #[test]
    fn handlers_are_called_at_a_count() {
        let text = "FromDevice(a) -> MarkIPHeader(14) -> AggregateIP(ip src)
            -> c :: AggregateCounter(AGGREGATE_CALL 2 p.color 7, COUNT_CALL 4 c.stop) -> p :: Paint(1) -> Discard";
        let mut rig = Rig::new(&World::new(), text);
        let send = |rig: &mut Rig, host: u8| {
            let frame = frame_v4(&format!("10.0.0.{host}"), "10.0.0.9", 64, 17, &[]);
            rig.receive("a", &[&frame]);
            [rig.read("p.color"), rig.read("c.count"), rig.read("c.active")]
        };
        assert_eq!(send(&mut rig, 1), ["1", "1", "true"]);
        assert_eq!(send(&mut rig, 1), ["1", "2", "true"]);
        assert_eq!(send(&mut rig, 2), ["7", "3", "true"]);
        assert_eq!(rig.read("c.count_call"), "4 c.stop");
        assert_eq!(send(&mut rig, 2), ["7", "4", "false"]);
        assert_eq!(send(&mut rig, 3), ["7", "4", "false"]);
    }
}
