//! Packets from a capture file, and into one.
//!
//! Source: Click's `FromDump` and `ToDump`. A packet is what a record holds, from its Ethernet header on. Of several
//! workers one reads the file; all write to the same. With `TIMING true` packets come at the distances of their times,
//! else as they can be read, while `ACTIVE`. Packets have the time of their record where annotations are known.
//! Differs: what is no regular file is read only where the arguments request it, `-` for standard input or `SPECIAL
//! true` for a FIFO or a device, as a worker waits for it.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::device::pcap::Pcap;
use crate::element::support::setting::Setting;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{BATCH, Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Ending, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, ClassSpec, ConfigError};

pub(crate) const FROM: ElementClass = ElementClass {
    spec: ClassSpec::new("FromDump", "0/1", "h/h", "x/y").ignores(&["PER_NODE"]),
    summary: "the packets of a capture file, a burst a round",
    configure: |setup| {
        let file = setup.args.positional_arg("FILENAME");
        let stop = setup.args.keyword("STOP");
        let burst = setup.args.keyword("BURST");
        let special = setup.args.keyword("SPECIAL");
        let timing = setup.args.keyword("TIMING");
        let active = setup.args.keyword("ACTIVE");
        setup.args.finish()?;
        let file = file?;
        let stop = stop?.unwrap_or(false).then(|| setup.ending.clone());
        let burst: usize = burst?.unwrap_or(32);
        let reader = Mutex::new(open(setup, &file, special?.unwrap_or(false))?);
        let counts = setup.keep::<PerWorker<Count>>();
        let shown = counts.clone();
        let (timing, active) = (timing?.unwrap_or(false), Setting::new(active?.unwrap_or(true)));
        let each = active.clone();
        let made = Made::new(move |instance| FromDump {
            reader: match instance.is_dry_run() {
                true => None,
                false => reader.lock().unwrap_or_else(PoisonError::into_inner).take(),
            },
            stop: stop.clone(),
            burst,
            active: each.clone(),
            timing,
            began: None,
            due_ns: 0,
            count: counts.add(instance),
        });
        Ok(active.handled(made.polled().counter("count", &shown), "active"))
    },
};

/// What is to be read; `None` where the configuration is only checked and it is no regular file.
fn open(setup: &mut Setup<'_>, arg: &Arg<'_>, special: bool) -> Result<Option<Pcap>, ConfigError> {
    let name: String = setup.args.read(arg, "FILENAME")?;
    let opened = match special || name == "-" {
        true => setup.policy.special_input(&name),
        false => setup.policy.input(&name).map(Some),
    };
    let reported = |error: io::Error| {
        let hint = if error.kind() == io::ErrorKind::InvalidInput { ": see SPECIAL" } else { "" };
        format!("{name}: open: {error}{hint}")
    };
    let read = opened.map_err(reported).and_then(|file| {
        let read = file.map(|file| Pcap::reading(&name, file)).transpose();
        read.map_err(|error| error.to_string())
    });
    read.map_err(|words| setup.args.refuse(arg, &words))
}

pub(crate) const TO: ElementClass = ElementClass {
    spec: ClassSpec::new("ToDump", "1/0-1", "a/a", "x/x").ignores(&[
        "SNAPLEN",
        "EXTRA_LENGTH",
        "UNBUFFERED",
        "PER_NODE",
        "NANO",
    ]),
    summary: "writes packets to a capture file; drops them there, or passes them",
    configure: |setup| {
        let file = setup.args.positional_arg("FILENAME")?;
        setup.args.finish()?;
        let name: String = setup.args.read(&file, "FILENAME")?;
        // Not yet emptied: the configuration may be refused for something else.
        let opened = setup.policy.output(&name);
        let opened =
            opened.map_err(|error| setup.args.refuse(&file, &format!("{name}: {error}")))?;
        let opened = Mutex::new(opened);
        let writer = setup.keep::<Mutex<Writer>>();
        let (shown, failed) = (writer.clone(), writer.clone());
        let ends = setup.outputs == 0;
        let made = Made::new(move |instance| {
            let writer = (!instance.is_dry_run()).then(|| writer.clone());
            if let Some(writer) = &writer
                && let Some(file) = opened.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                lock(writer).begin(&name, file);
            }
            ToDump { writer, ends }
        });
        Ok(made
            .handler(Handler::read("count", move || lock(&shown).written().to_string()))
            .handler(Handler::read("error", move || {
                lock(&failed).failed.clone().unwrap_or_default()
            })))
    },
};

struct FromDump {
    /// Reader, until the end of the file.
    reader: Option<Pcap>,
    stop: Option<Ending>,
    burst: usize,
    active: Setting<bool>,
    /// Packets come at the distances of their times.
    timing: bool,
    /// Time of the first packet, and when it came.
    began: Option<(Duration, u64)>,
    /// When the next packet comes.
    due_ns: u64,
    count: Arc<Count>,
}

impl FromDump {
    /// Reads what is due; whether the file may have more.
    fn read(&mut self, batch: &mut Batch, now_ns: u64) -> bool {
        let Some(reader) = &mut self.reader else { return false };
        while batch.room() > 0 {
            if self.timing {
                let Ok(Some(time)) = reader.next_time() else { return false };
                let (first, began_ns) = *self.began.get_or_insert((time, now_ns));
                let since = u64::try_from(time.saturating_sub(first).as_nanos());
                self.due_ns = began_ns.saturating_add(since.unwrap_or(u64::MAX));
                if self.due_ns > now_ns {
                    return true;
                }
            }
            if !reader.recv_one(batch, note).unwrap_or(false) {
                return false;
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

/// Time that a packet has.
#[cfg(feature = "click")]
fn noted(batch: &Batch, i: usize) -> Option<Duration> {
    let time = super::only::annotations::Annotations::of(batch, i).timestamp_ns;
    u64::try_from(time).ok().filter(|time| *time > 0).map(Duration::from_nanos)
}

#[cfg(not(feature = "click"))]
fn noted(_: &Batch, _: usize) -> Option<Duration> {
    None
}

impl Element for FromDump {
    fn poll(&mut self, batch: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        if self.reader.is_none() || !self.active.get() {
            return;
        }
        // Without free frames there is nothing to read into: later.
        batch.set_limit(self.burst.min(cx.pool.free()));
        let more = self.read(batch, cx.now_ns);
        batch.set_limit(BATCH);
        cx.counters.packets_in.add(batch.len() as u64);
        self.count.add(batch.len() as u64);
        if !more {
            self.reader = None;
            if let Some(stop) = &self.stop {
                stop.request();
            }
        }
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
    /// Why no more is written.
    failed: Option<String>,
}

impl Writer {
    /// Begins a file, or continues the one of that name.
    fn begin(&mut self, name: &str, file: File) {
        if self.file.is_some() && self.name == name {
            return;
        }
        name.clone_into(&mut self.name);
        match Pcap::writing(name, file) {
            Ok(file) => (self.file, self.failed) = (Some(file), None),
            Err(error) => (self.file, self.failed) = (None, Some(error.to_string())),
        }
    }

    /// Whether the packets are in the file.
    fn write(&mut self, batch: &Batch) -> bool {
        let Some(file) = &mut self.file else { return false };
        if let Err(error) = file.write(batch, |i| noted(batch, i)) {
            (self.file, self.failed) = (None, Some(error.to_string()));
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
}

impl Element for ToDump {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let written = self.writer.as_ref().is_none_or(|writer| lock(writer).write(batch));
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
}
