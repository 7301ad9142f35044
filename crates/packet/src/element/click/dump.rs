//! Packets from a capture file, and into one.
//!
//! Source: Click's `FromDump` and `ToDump`. A packet is what a record holds, usually from its Ethernet header on. Of
//! several workers one reads the file; all write to the same. `FromDump` may be pulled from as well. With `TIMING true`
//! packets come at the intervals of their records, otherwise as fast as they can be read, while `ACTIVE` is true. Where
//! annotations are known, a packet has the time of its record. Packets leave from the time `START` on, or from
//! `START_AFTER` after the first record on, until the time `END`, until `END_AFTER` after the first record or `INTERVAL`
//! after the first packet that left; `FILEPOS` is the place in the file of the first record that is looked at, which handler
//! `filepos` changes ([`super::only::dump_seek`]), and `SAMPLE` the part of the packets that leave
//! ([`super::only::dump_window`]). The kind of packets in a new file is that of `ENCAP` or that
//! of the `FromDump` that `USE_ENCAP_FROM` names ([`super::only::dump_encap`]). With `FORCE_IP true` packets without an
//! IPv4 header leave by output 1, or are dropped, and the header of the others is marked. Each packet is in the file of
//! `ToDump` at once, of longer ones `SNAPLEN` bytes: 2,000 without it, all with 0. Differs: what is no
//! regular file is read only where the arguments request it, `-` for standard input or `SPECIAL true` for a FIFO or a
//! device, as a worker waits for it; `fingerpost click` reads those too.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "click")]
use super::only::dump_encap::{ETHER, Encap, Source};
#[cfg(feature = "click")]
use super::only::dump_seek::Sought;
#[cfg(feature = "click")]
use super::only::dump_window::{Fate, Window};
use crate::device::pcap::{Form, Pcap};
use crate::element::support::plain::Opened;
use crate::element::support::setting::Setting;
use crate::element::support::stop::{self, EndCall, Stop};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{BATCH, Batch, DropReason};
#[cfg(feature = "click")]
use crate::graph::Exit;
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, ClassSpec, ConfigError};

pub(crate) const FROM: ElementClass = ElementClass {
    spec: ClassSpec::new("FromDump", "0/1-2", "h/ah", "x/y")
        .outputs(&["out", "others"])
        .ignores(&["PER_NODE", "MMAP"]),
    summary: "the packets of a capture file, a burst a round",
    configure: |setup| {
        let file = setup.args.positional_arg("FILENAME");
        let timing = setup.args.optional("TIMING");
        let stop = setup.args.keyword("STOP");
        let burst = setup.args.keyword("BURST");
        let special = setup.args.keyword("SPECIAL");
        let active = setup.args.keyword("ACTIVE");
        let call = EndCall::read(setup);
        let chosen = Chosen::read(setup);
        setup.args.finish()?;
        let (file, call, chosen) = (file?, call?, chosen?);
        let name: String = setup.args.read(&file, "FILENAME")?;
        let stop = stop?.unwrap_or(false).then(|| setup.ending.clone());
        let burst: usize = burst?.unwrap_or(32);
        let special = special?.unwrap_or(false) || setup.policy.is_special(&name);
        let (reader, bytes) = open(setup, &file, special)?;
        let chosen = chosen.of_file(&reader);
        let reader = Mutex::new(reader);
        let counts = setup.keep::<PerWorker<Count>>();
        let (timing, active) = (timing?.unwrap_or(false), Setting::new(active?.unwrap_or(true)));
        let again = Arc::new(AtomicBool::new(false));
        let (each, anew, shown) = (active.clone(), again.clone(), counts.clone());
        let (ends, picked) = (call.is_some(), chosen.clone());
        let made = Made::new(move |instance| {
            let reader = match instance.is_dry_run() {
                true => None,
                false => reader.lock().unwrap_or_else(PoisonError::into_inner).take(),
            };
            let chosen = picked.of_instance(reader.is_some());
            FromDump {
                reader,
                stop: Stop::new(stop.clone()).calling(call.clone()),
                ends,
                burst: if chosen.gives_singly() { 1 } else { burst },
                active: each.clone(),
                timing,
                began: None,
                again: anew.clone(),
                due_ns: 0,
                count: counts.add(instance),
                chosen,
            }
        });
        let (base, reset) = (Arc::new(Count::default()), shown.clone());
        let since = base.clone();
        let made = made
            .polled()
            .handler(Handler::read("count", move || {
                (shown.sum(Count::read) - since.read()).to_string()
            }))
            .command("reset_counts", move || base.add(reset.sum(Count::read) - base.read()))
            // Relaxed: nothing else depends on it.
            .command("reset_timing", move || again.store(true, Relaxed));
        let made = chosen.seeking(made, setup, (name.clone(), special));
        let made =
            made.handler(Handler::read("filename", move || name.clone()))
                .handler(Handler::read("filesize", move || {
                    bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string())
                }));
        let made = stop::handled(made, setup, &active);
        Ok(active.handled(chosen.handled(made, &active), "active"))
    },
};

/// What is to be read, and its size; `None` where the configuration is only checked and it is no regular file. A
/// compressed file has no size that is known.
fn open(
    setup: &mut Setup<'_>,
    arg: &Arg<'_>,
    special: bool,
) -> Result<(Option<Pcap>, Option<u64>), ConfigError> {
    let name: String = setup.args.read(arg, "FILENAME")?;
    let opened = Opened::new(setup.policy, &name, special).map_err(|error| {
        let hint = if error.kind() == io::ErrorKind::InvalidInput { ": see SPECIAL" } else { "" };
        format!("{name}: open: {error}{hint}")
    });
    let read = opened.and_then(|opened| {
        let (plain, bytes) = opened.plain(&name).map_err(|error| error.to_string())?;
        let read = plain.map(|plain| Pcap::reading(&name, plain, is_known)).transpose();
        Ok((read.map_err(|error| error.to_string())?, bytes))
    });
    read.map_err(|words| setup.args.refuse(arg, &words))
}

#[cfg(feature = "click")]
fn is_known(link: u32) -> bool {
    Encap::of_link(link).is_some()
}

#[cfg(not(feature = "click"))]
fn is_known(_: u32) -> bool {
    false
}

/// Which records of the file leave, and by which output.
#[cfg(feature = "click")]
#[derive(Clone)]
struct Chosen {
    window: Window,
    force_ip: bool,
    encap: Encap,
    others: Exit,
    /// What others want of it.
    source: Arc<Source>,
    /// Another place to read from; `None` where nothing is read.
    sought: Option<Sought>,
}

#[cfg(feature = "click")]
impl Chosen {
    fn read(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let window = Window::read(setup);
        let force_ip = setup.args.keyword("FORCE_IP")?.unwrap_or(false);
        let others = setup.exit(1, DropReason::Unmatched);
        let number = setup.number();
        let (source, sought) = (setup.shared::<Source>(number), Some(Sought::default()));
        Ok(Self { window: window?, force_ip, encap: ETHER, others, source, sought })
    }

    /// The choice for a file, by the link type of its packets.
    fn of_file(mut self, file: &Option<Pcap>) -> Self {
        let known = file.as_ref().and_then(Pcap::link).and_then(Encap::of_link);
        self.encap = known.unwrap_or(self.encap);
        // It is set once for each element.
        let _ = self.source.encap.set(self.encap);
        self
    }

    /// The choice of an instance, which reads the file or does not.
    fn of_instance(&self, reads: bool) -> Self {
        Self { sought: self.sought.clone().filter(|_| reads), ..self.clone() }
    }

    /// Whether packets leave one at a time.
    fn gives_singly(&self) -> bool {
        self.source.gives_singly()
    }

    /// A reader of the place that a handler was given, where there is one.
    fn sought(&mut self) -> Option<Pcap> {
        let (at, reader) = self.sought.as_ref()?.take()?;
        self.window.seek(at);
        Some(reader)
    }

    /// Adds the handler that changes the place, for a file of this name, which may be no regular one.
    fn seeking(&self, made: Made, setup: &Setup<'_>, file: (String, bool)) -> Made {
        match &self.sought {
            Some(sought) => sought.handled(made, file, setup.policy.clone()),
            None => made,
        }
    }

    fn fate(&mut self, time: Duration, bytes: usize) -> Fate {
        self.window.fate(time, bytes)
    }

    /// Sorts packets; how many leave by output 0.
    fn sort(&self, batch: &mut Batch) -> u64 {
        let mut first = batch.len() as u64;
        if !self.force_ip {
            return first;
        }
        for i in 0..batch.len() {
            match self.encap.network(batch.bytes(i)) {
                Some(network) => batch.meta_mut()[i].network = network,
                None => {
                    self.others.take(batch, i);
                    first -= 1;
                }
            }
        }
        first
    }

    /// Does so with packets that were pulled: those from number `first` on.
    fn sort_pulled(&self, into: &mut Batch, first: usize, cx: &mut Context<'_>) -> u64 {
        if self.force_ip {
            for i in first..into.len() {
                match self.encap.network(into.bytes(i)) {
                    Some(network) => into.meta_mut()[i].network = network,
                    None => self.others.emit(into.take(i), cx),
                }
            }
            into.close_up(|_, _| {});
        }
        (into.len() - first) as u64
    }

    fn handled(&self, made: Made, active: &Setting<bool>) -> Made {
        let name = self.encap.name;
        self.window.handled(made, active).handler(Handler::read("encap", move || name.to_owned()))
    }
}

/// All records leave.
#[cfg(not(feature = "click"))]
#[derive(Clone)]
struct Chosen;

#[cfg(not(feature = "click"))]
#[allow(dead_code, reason = "nothing is left out, and nothing ends but the file")]
enum Fate {
    Leaves,
    IsSkipped,
    Ends,
}

#[cfg(not(feature = "click"))]
#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as that of feature `click`")]
impl Chosen {
    fn read(_: &mut Setup<'_>) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn of_file(self, _: &Option<Pcap>) -> Self {
        self
    }

    fn of_instance(&self, _: bool) -> Self {
        Self
    }

    fn gives_singly(&self) -> bool {
        false
    }

    fn sought(&mut self) -> Option<Pcap> {
        None
    }

    fn seeking(&self, made: Made, _: &Setup<'_>, _: (String, bool)) -> Made {
        made
    }

    fn fate(&mut self, _: Duration, _: usize) -> Fate {
        Fate::Leaves
    }

    fn sort(&self, batch: &mut Batch) -> u64 {
        batch.len() as u64
    }

    fn sort_pulled(&self, into: &mut Batch, first: usize, _: &mut Context<'_>) -> u64 {
        (into.len() - first) as u64
    }

    fn handled(&self, made: Made, _: &Setting<bool>) -> Made {
        made
    }
}

pub(crate) const TO: ElementClass = ElementClass {
    spec: ClassSpec::new("ToDump", "1/0-1", "a/a", "x/x").ignores(&["UNBUFFERED", "PER_NODE"]),
    summary: "writes packets to a capture file; drops them there, or passes them",
    configure: |setup| {
        let file = setup.args.positional_arg("FILENAME")?;
        let snap_len = setup.args.keyword::<usize>("SNAPLEN");
        let longer = setup.args.keyword("EXTRA_LENGTH");
        let nano = setup.args.keyword("NANO");
        let link = Link::read(setup);
        setup.args.finish()?;
        let (longer, nano, link) = (longer?.unwrap_or(true), nano?.unwrap_or(false), link?);
        let snap_len = most_bytes(snap_len?);
        let name: String = setup.args.read(&file, "FILENAME")?;
        // Not yet emptied: the configuration may be refused for something else.
        let opened = setup.policy.output(&name);
        let opened =
            opened.map_err(|error| setup.args.refuse(&file, &format!("{name}: {error}")))?;
        let opened = Mutex::new(opened);
        let writer = setup.keep::<Mutex<Writer>>();
        let [shown, failed, reset] = [(); 3].map(|()| writer.clone());
        let (ends, file_name) = (setup.outputs == 0, name.clone());
        let made = Made::new(move |instance| {
            let writer = (!instance.is_dry_run()).then(|| writer.clone());
            if let Some(writer) = &writer
                && let Some(file) = opened.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                lock(writer).begin(&name, file, Form { link: link.number(), nano, snap_len });
            }
            ToDump { writer, ends, longer }
        });
        Ok(made
            .handler(Handler::read("filename", move || file_name.clone()))
            .command("reset_counts", move || {
                let mut writer = lock(&reset);
                writer.before = writer.written();
            })
            .handler(Handler::read("count", move || {
                let writer = lock(&shown);
                (writer.written() - writer.before).to_string()
            }))
            .handler(Handler::read("error", move || {
                lock(&failed).failed.clone().unwrap_or_default()
            })))
    },
};

/// Bytes of each packet that are written: all where the argument is 0.
fn most_bytes(snap_len: Option<usize>) -> usize {
    match snap_len.unwrap_or(2000) {
        0 => usize::MAX,
        bytes => bytes,
    }
}

/// Kind of the packets in the file: that of `ENCAP`, or that of a `FromDump`.
#[cfg(feature = "click")]
enum Link {
    Given(Encap),
    Of(Arc<Source>),
}

#[cfg(feature = "click")]
impl Link {
    fn read(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let given = setup.args.keyword::<Encap>("ENCAP")?;
        let Some(from) = setup.args.keyword_arg("USE_ENCAP_FROM")? else {
            return Ok(Self::Given(given.unwrap_or(ETHER)));
        };
        let mut source = None;
        for word in from.words() {
            let name: String = setup.args.read(&word, "USE_ENCAP_FROM")?;
            match setup.element(&name) {
                Some((number, "FromDump")) => source = Some(setup.shared::<Source>(number)),
                _ => {
                    let words = format!("USE_ENCAP_FROM: `{name}` is no FromDump");
                    return Err(setup.args.refuse(&word, &words));
                }
            }
        }
        Ok(source.filter(|_| given.is_none()).map_or(Self::Given(given.unwrap_or(ETHER)), Self::Of))
    }

    fn number(&self) -> u32 {
        match self {
            Self::Given(encap) => encap.link,
            Self::Of(source) => source.encap.get().unwrap_or(&ETHER).link,
        }
    }
}

/// Packets are Ethernet frames.
#[cfg(not(feature = "click"))]
struct Link;

#[cfg(not(feature = "click"))]
#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as that of feature `click`")]
impl Link {
    fn read(_: &mut Setup<'_>) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn number(&self) -> u32 {
        Form::default().link
    }
}

struct FromDump {
    /// Reader, until the end of the file.
    reader: Option<Pcap>,
    stop: Stop,
    /// A handler is called at the end; else the element is no longer active then.
    ends: bool,
    burst: usize,
    active: Setting<bool>,
    /// Packets come at the distances of their times.
    timing: bool,
    /// Time of the first packet, and when it came.
    began: Option<(Duration, u64)>,
    /// The next packet comes at once, and begins the distances again.
    again: Arc<AtomicBool>,
    /// When the next packet comes.
    due_ns: u64,
    count: Arc<Count>,
    chosen: Chosen,
}

impl FromDump {
    /// Reads what is due, as far as there is room and there are frames.
    fn fill(&mut self, into: &mut Batch, cx: &mut Context<'_>) {
        if let Some(reader) = self.chosen.sought() {
            (self.reader, self.began) = (Some(reader), None);
            self.stop.reset();
        }
        if self.reader.is_none() || !self.active.get() {
            return;
        }
        // Without free frames there is nothing to read into: later.
        let (before, room) = (into.len(), into.room());
        into.set_limit(before + room.min(cx.pool.free()));
        let more = self.read(into, cx.now_ns);
        into.set_limit(before + room);
        let came = (into.len() - before) as u64;
        cx.counters.packets_in.add(came);
        if !more {
            self.reader = None;
            self.stop.request();
        }
    }

    /// Reads what is due; whether the file may have more.
    fn read(&mut self, batch: &mut Batch, now_ns: u64) -> bool {
        while batch.room() > 0 && self.active.get() {
            let Some(reader) = &mut self.reader else { return false };
            let Ok(Some((time, bytes))) = reader.peek() else { return false };
            if self.timing {
                if self.again.swap(false, Relaxed) {
                    self.began = None;
                }
                let (first, began_ns) = *self.began.get_or_insert((time, now_ns));
                let since = u64::try_from(time.saturating_sub(first).as_nanos());
                self.due_ns = began_ns.saturating_add(since.unwrap_or(u64::MAX));
                if self.due_ns > now_ns {
                    return true;
                }
            }
            match self.chosen.fate(time, bytes) {
                Fate::IsSkipped => reader.skip(),
                Fate::Leaves => {
                    if !reader.recv_one(batch, note).unwrap_or(false) {
                        return false;
                    }
                }
                Fate::Ends => {
                    if !self.ends {
                        self.active.set(false);
                    }
                    self.stop.request();
                    self.stop.reset();
                }
            }
        }
        true
    }
}

/// Notes the time of a record in its packet, and how many bytes of the frame it lacks.
#[cfg(feature = "click")]
fn note(batch: &mut Batch, i: usize, time: Duration, frame_len: u32) {
    use super::only::annotations::Annotations;
    let held = u32::try_from(batch.frame_len(i)).unwrap_or(u32::MAX);
    let timestamp_ns = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let extra_length = frame_len.saturating_sub(held);
    Annotations { timestamp_ns, extra_length, ..Annotations::default() }.set(batch, i);
}

#[cfg(not(feature = "click"))]
fn note(_: &mut Batch, _: usize, _: Duration, _: u32) {}

/// Time that a packet has, and how many bytes it lacks.
#[cfg(feature = "click")]
fn noted(batch: &Batch, i: usize) -> (Option<Duration>, u32) {
    let noted = super::only::annotations::Annotations::of(batch, i);
    let time = u64::try_from(noted.timestamp_ns).ok().filter(|time| *time > 0);
    (time.map(Duration::from_nanos), noted.extra_length)
}

#[cfg(not(feature = "click"))]
fn noted(_: &Batch, _: usize) -> (Option<Duration>, u32) {
    (None, 0)
}

impl Element for FromDump {
    fn poll(&mut self, batch: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        batch.set_limit(self.burst.min(BATCH));
        self.fill(batch, cx);
        batch.set_limit(BATCH);
        self.count.add(self.chosen.sort(batch));
    }

    fn pull(&mut self, _: u16, into: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        let (first, limit) = (into.len(), into.len() + into.room());
        if self.chosen.gives_singly() {
            into.set_limit(limit.min(first + 1));
        }
        self.fill(into, cx);
        into.set_limit(limit);
        self.count.add(self.chosen.sort_pulled(into, first, cx));
    }

    fn keeps_time(&self) -> bool {
        self.timing && self.reader.is_some() && self.active.get()
    }

    fn due_ns(&self) -> Option<u64> {
        Some(self.due_ns)
    }
}

/// The file that all instances write to.
#[derive(Default)]
struct Writer {
    name: String,
    file: Option<Pcap>,
    /// Packets that were written before counts were reset.
    before: u64,
    /// Why no more is written.
    failed: Option<String>,
}

impl Writer {
    /// Begins a file, or continues the one of that name.
    fn begin(&mut self, name: &str, file: File, form: Form) {
        if self.file.is_some() && self.name == name {
            return;
        }
        name.clone_into(&mut self.name);
        self.before = 0;
        match Pcap::writing(name, file, form) {
            Ok(file) => (self.file, self.failed) = (Some(file), None),
            Err(error) => (self.file, self.failed) = (None, Some(error.to_string())),
        }
    }

    /// Whether the packets are in the file.
    fn write(&mut self, batch: &Batch, longer: bool) -> bool {
        let Some(file) = &mut self.file else { return false };
        let noted = |i| {
            let (time, lacks) = noted(batch, i);
            (time, if longer { lacks } else { 0 })
        };
        if let Err(error) = file.write(batch, noted) {
            (self.file, self.before) = (None, 0);
            self.failed = Some(error.to_string());
        }
        self.file.is_some()
    }

    fn written(&self) -> u64 {
        self.file.as_ref().map_or(0, Pcap::written)
    }
}

fn lock(writer: &Mutex<Writer>) -> std::sync::MutexGuard<'_, Writer> {
    // A panic between two records leaves both whole.
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ToDump {
    /// Writer; a dry run has none.
    writer: Option<Arc<Mutex<Writer>>>,
    ends: bool,
    /// Bytes that packets lack count.
    longer: bool,
}

impl Element for ToDump {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let written =
            self.writer.as_ref().is_none_or(|writer| lock(writer).write(batch, self.longer));
        if !self.ends {
            return;
        }
        if !written {
            (0..batch.len()).for_each(|i| batch.discard(i, DropReason::TransmitError));
            return;
        }
        cx.written(batch);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn a_length_of_zero_is_all_and_none_is_2000() {
        assert_eq!([None, Some(0), Some(68)].map(super::most_bytes), [2000, usize::MAX, 68]);
    }

    /// A capture file with a frame of 20 bytes at each of these milliseconds, of 60 bytes on the wire.
    fn capture(name: &str, times_ms: &[u32]) -> String {
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
            bytes.extend(word.to_le_bytes());
        }
        for &ms in times_ms {
            for word in [1000 + ms / 1000, ms % 1000 * 1000, 20, 60] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend([7; 20]);
        }
        let file = std::env::temp_dir().join(format!("fpdump{}{name}", std::process::id()));
        std::fs::write(&file, bytes).unwrap();
        file.display().to_string()
    }

    #[test]
    fn packets_come_at_the_distances_of_their_times() {
        let file = capture("timing", &[0, 5, 1500]);
        let text = format!("f :: FromDump({file}, TIMING true, ACTIVE false) -> ToDevice(x)");
        let mut rig = Rig::new(&World::new(), &text);
        assert_eq!(rig.poll().len(), 0);
        rig.write("f.active", "true");
        let mut sent = Vec::new();
        for _ in 0..2000 {
            sent.push(rig.poll().len());
            rig.bench.now_ns += 1_000_000;
        }
        std::fs::remove_file(file).unwrap();
        let at: Vec<_> = (0..2000).filter(|&ms| sent[ms] > 0).collect();
        assert_eq!((at, sent.iter().sum::<usize>()), (vec![0, 5, 1500], 3));
        assert_eq!(rig.read("f.count"), "3");
    }

    #[cfg(feature = "click")]
    #[test]
    fn times_of_packets_are_written() {
        let (from, to) = (capture("times", &[2500, 3000]), capture("written", &[]));
        let text = format!("FromDump({from}) -> ToDump({to})");
        Rig::new(&World::new(), &text).poll();
        let mut rig =
            Rig::new(&World::new(), &format!("FromDump({to}) -> t :: TimeRange -> ToDevice(x)"));
        assert_eq!(rig.poll().len(), 2);
        for file in [from, to] {
            std::fs::remove_file(file).unwrap();
        }
        assert_eq!(rig.read("t.range"), "1002.500000 1003.000000");
    }

    #[cfg(feature = "click")]
    #[test]
    fn packets_have_the_time_and_the_length_of_their_record() {
        let file = capture("annotations", &[2500]);
        let text = format!(
            "FromDump({file}) -> t :: TimeRange -> AggregateLength -> c :: AggregateCounter -> ToDevice(x)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        assert_eq!(rig.poll().len(), 1);
        std::fs::remove_file(file).unwrap();
        assert_eq!((rig.read("t.first"), rig.read("c.nagg")), ("1002.500000".into(), "1".into()));
    }

    #[cfg(feature = "click")]
    #[test]
    fn packets_of_a_time_or_a_place_leave() {
        let file = capture("window", &[0, 1000, 2000, 3000]);
        for (more, count, last) in [
            ("START 1001", 3, "132"),
            ("START_AFTER 1.5s", 2, "132"),
            ("END 1001", 1, "24"),
            ("END_AFTER 2s", 2, "60"),
            ("START 1001, INTERVAL 1", 1, "60"),
            ("FILEPOS 60, INTERVAL 2", 2, "96"),
            ("SAMPLE 0", 0, "0"),
            ("SAMPLE 1", 4, "132"),
        ] {
            let text = format!("f :: FromDump({file}, {more}) -> ToDevice(x)");
            let mut rig = Rig::new(&World::new(), &text);
            let sent = rig.poll().len() + rig.poll().len();
            assert_eq!((sent, rig.read("f.packet_filepos").as_str()), (count, last), "{more}");
        }
        let text = format!("f :: FromDump({file}, END 1001) -> ToDevice(x)");
        let mut rig = Rig::new(&World::new(), &text);
        assert_eq!((rig.poll().len(), rig.poll().len()), (1, 0));
        assert_eq!([rig.read("f.active"), rig.read("f.filesize")], ["false", "168"]);
        rig.write("f.reset_counts", "");
        rig.write("f.extend_interval", "2");
        assert_eq!((rig.poll().len(), rig.read("f.active")), (2, "false".into()));
        rig.write("f.active", "true");
        assert_eq!((rig.poll().len(), rig.read("f.count")), (1, "3".into()));
        let text = format!("f :: FromDump({file}, END 1002, ACTIVE false) -> ToDevice(x)");
        let mut rig = Rig::new(&World::new(), &text);
        assert!(rig.poll().is_empty());
        rig.write("f.extend_interval", "1");
        assert_eq!((rig.poll().len(), rig.read("f.active")), (3, "false".into()));
        std::fs::remove_file(file).unwrap();
    }

    #[cfg(feature = "click")]
    #[test]
    fn a_file_is_read_on_from_another_place() {
        let file = capture("seek", &[0, 1000, 2000, 3000]);
        let plan = |more: &str| format!("f :: FromDump({file}{more}, false) -> ToDevice(x)");
        let sent = |rig: &mut Rig, place: &str| {
            rig.write("f.filepos", place);
            let sent = rig.poll().len();
            (sent, rig.read("f.packet_filepos"))
        };
        let mut rig = Rig::new(&World::new(), &plan(""));
        assert_eq!((rig.poll().len(), rig.read("f.filesize")), (4, "168".into()));
        assert_eq!(sent(&mut rig, "96"), (2, "132".into()), "the end was reached before");
        assert_eq!(sent(&mut rig, "168").0, 0);
        for (place, words) in [("x", "must be file offset"), ("169", "range"), ("23", "range")] {
            let refused = rig.handlers.write("f.filepos", place).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        let status = std::process::Command::new("gzip").arg("-f").arg(&file).status();
        if !status.is_ok_and(|status| status.success()) {
            return println!("skipped: needs gzip");
        }
        let mut rig = Rig::new(&World::new(), &plan(".gz"));
        assert_eq!(rig.read("f.filesize"), "-", "it is not known");
        assert_eq!(sent(&mut rig, "60"), (3, "132".into()));
        assert!(rig.handlers.write("f.filepos", "169").is_err());
        std::fs::remove_file(format!("{file}.gz")).unwrap();
    }

    #[cfg(feature = "click")]
    #[test]
    fn places_of_flows_in_their_file_are_listed() {
        let (file, trace) = (capture("flows", &[]), capture("trace", &[]));
        let frame = |port| {
            crate::testing::frame_v4("10.0.0.1", "10.0.0.2", 64, 17, &[0, port, 0, 9, 0, 8, 0, 0])
        };
        let to = format!("FromDevice(a) -> SetTimestamp(5) -> ToDump({file})");
        let [one, other] = [frame(5), frame(6)];
        Rig::new(&World::new(), &to).receive("a", &[&one, &one, &other]);
        let text = format!(
            "f :: FromDump({file}, FORCE_IP true) -> AggregateIPFlows(TRACEINFO {trace}, SOURCE f) -> ToDevice(x)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        let sent: Vec<_> = (0..4).map(|_| rig.poll().len()).collect();
        rig.graph.stop(&mut rig.bench.round());
        let lines = std::fs::read_to_string(&trace).unwrap();
        for file in [&file, &trace] {
            std::fs::remove_file(file).unwrap();
        }
        assert_eq!(sent, [1, 1, 1, 0], "one at a time");
        assert!(lines.contains(&format!("\n<trace file='{file}'>\n")), "{lines}");
        assert!(lines.contains("sport='5'") && lines.contains("filepos='24'>"), "{lines}");
        assert!(lines.contains(&format!("filepos='{}'>", 24 + 2 * (16 + one.len()))), "{lines}");
        let reported = crate::graph::Plan::read(
            "a",
            "FromDevice(a) -> AggregateIPFlows(SOURCE none) -> ToDevice(x)",
            crate::ELEMENTS,
        );
        assert!(reported.unwrap_err().to_string().contains("there is no element `none`"));
    }

    #[test]
    fn files_may_be_compressed() {
        let file = capture("compressed", &[0, 1]);
        let status = std::process::Command::new("gzip").arg("-f").arg(&file).status();
        if !status.is_ok_and(|status| status.success()) {
            return println!("skipped: needs gzip");
        }
        let file = format!("{file}.gz");
        let text = format!("f :: FromDump({file}) -> ToDevice(x)");
        let sent = Rig::new(&World::new(), &text).poll();
        std::fs::remove_file(file).unwrap();
        assert_eq!((sent.len(), sent[0].1.as_slice()), (2, &[7; 20][..]));
    }

    #[cfg(feature = "click")]
    #[test]
    fn handlers_are_called_at_the_end() {
        let file = capture("end", &[0, 1000, 2000]);
        let text = format!(
            "f :: FromDump({file}, END 1001, END_CALL f.extend_interval 1) -> ToDevice(x);
            g :: FromDump({file}, END 1001, END_CALL p.color 7) -> p :: Paint(1) -> ToDevice(y);
            h :: FromDump({file}, STOP true, ACTIVE false) -> ToDevice(z)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        let sent = rig.poll();
        std::fs::remove_file(file).unwrap();
        let to = |name: &str| sent.iter().filter(|(device, _)| device == name).count();
        // What is called at the end decides whether more packets come.
        assert_eq!((to("x"), to("y"), rig.read("p.color")), (3, 3, "7".into()));
    }

    #[cfg(feature = "click")]
    #[test]
    fn other_packets_than_frames_are_written_and_read() {
        let ip = crate::testing::frame_v4("10.0.0.1", "10.0.0.2", 64, 17, &[0; 30])[14..].to_vec();
        let (file, copy) = (capture("encap", &[]), capture("copy", &[]));
        let text = format!("FromDevice(a) -> t :: ToDump({file}, ENCAP IP, SNAPLEN 40, NANO true)");
        let mut rig = Rig::new(&World::new(), &text);
        rig.receive("a", &[&ip, &[0; 40]]);
        assert_eq!([rig.read("t.count"), rig.read("t.filename")], ["2", file.as_str()]);
        rig.write("t.reset_counts", "");
        assert_eq!(rig.read("t.count"), "0");
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!((&bytes[..4], bytes[20]), (&[0x4d, 0x3c, 0xb2, 0xa1][..], 101));
        assert_eq!((bytes.len(), bytes[32], usize::from(bytes[36])), (24 + 2 * 56, 40, ip.len()));
        let text = format!(
            "f :: FromDump({file}, FORCE_IP true) -> IPClassifier(udp) -> t :: ToDump({copy}, USE_ENCAP_FROM f);
            f [1] -> ToDevice(other)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        let sent = rig.poll();
        assert_eq!((sent.len(), sent[0].0.as_str(), sent[0].1.len()), (1, "other", 40));
        assert_eq!(["f.encap", "f.count", "t.count"].map(|name| rig.read(name)), ["IP", "1", "1"]);
        let bytes = std::fs::read(&copy).unwrap();
        // The bytes that it lacks are counted.
        assert_eq!((bytes[20], usize::from(bytes[36])), (101, ip.len()));
        // The same where they are pulled: what pulls has no part in the others.
        let text = format!(
            "f :: FromDump({file}, FORCE_IP true) -> Unqueue -> ToDevice(x); f [1] -> ToDevice(other)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        let mut sent: Vec<_> =
            rig.poll().into_iter().map(|(device, frame)| (device, frame.len())).collect();
        sent.extend(rig.poll().into_iter().map(|(device, frame)| (device, frame.len())));
        sent.sort();
        assert_eq!(sent, [("other".to_owned(), 40), ("x".to_owned(), 40)]);
        for file in [file, copy] {
            std::fs::remove_file(file).unwrap();
        }
        let text = "Idle -> n :: Null -> ToDump(/dev/null, USE_ENCAP_FROM n)";
        let reported = crate::graph::Plan::read("a", text, crate::ELEMENTS).unwrap_err();
        assert!(reported.to_string().contains("`n` is no FromDump"), "{reported}");
    }
}
