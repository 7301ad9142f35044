//! Packets from a capture file, and into one.
//!
//! Source: Click's `FromDump` and `ToDump`. A packet is what a record holds, from its Ethernet header on. Of
//! several workers one reads the file; all write to the same. Differs: what is no regular file is read only where the
//! arguments request it, `-` for standard input or `SPECIAL true` for a FIFO or a device, as a worker waits for it.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::Port;
use crate::device::pcap::Pcap;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{BATCH, Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Ending, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, ClassSpec, ConfigError};

pub(crate) const FROM: ElementClass = ElementClass {
    spec: ClassSpec::new("FromDump", "0/1", "h/h", "x/y"),
    summary: "the packets of a capture file, a burst a round",
    configure: |setup| {
        let file = setup.args.positional_arg("FILENAME");
        let stop = setup.args.keyword("STOP");
        let burst = setup.args.keyword("BURST");
        let special = setup.args.keyword("SPECIAL");
        setup.args.finish()?;
        let file = file?;
        let stop = stop?.unwrap_or(false).then(|| setup.ending.clone());
        let burst: usize = burst?.unwrap_or(32);
        let reader = Mutex::new(open(setup, &file, special?.unwrap_or(false))?);
        let counts = setup.keep::<PerWorker<Count>>();
        let shown = counts.clone();
        let made = Made::new(move |instance| FromDump {
            reader: reader.lock().unwrap_or_else(PoisonError::into_inner).take(),
            stop: stop.clone(),
            burst,
            count: counts.add(instance),
        });
        Ok(made.polled().counter("count", &shown))
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
    spec: ClassSpec::new("ToDump", "1/0-1", "a/a", "x/x"),
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
    count: Arc<Count>,
}

impl Element for FromDump {
    fn poll(&mut self, batch: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        let Some(reader) = &mut self.reader else { return };
        // Without free frames there is nothing to read into: later.
        batch.set_limit(self.burst.min(cx.pool.free()));
        let wanted = batch.room();
        let read = reader.recv(batch);
        batch.set_limit(BATCH);
        cx.counters.packets_in.add(batch.len() as u64);
        self.count.add(batch.len() as u64);
        if read.is_err() || batch.len() < wanted {
            self.reader = None;
            if let Some(stop) = &self.stop {
                stop.request();
            }
        }
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
        if let Err(error) = file.write(batch) {
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
