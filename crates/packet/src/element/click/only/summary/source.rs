//! A source of packets that a file describes line by line, whatever the form of its lines: one packet a turn.
//!
//! It waits while all queues behind it are full, and may be pulled from instead. Of several workers the first reads it.
//! Handlers: `filename`, `filesize` in bytes where it is not compressed, and `filepos`, how many plain bytes were read.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::several::Several;
use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::console;
use crate::element::click::only::random::{Chance, Sampling};
use crate::element::support::plain::Opened;
use crate::element::support::setting::Setting;
use crate::element::support::stop;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{ANNOTATION_BYTES, Batch};
use crate::graph::{Context, Element, Ending, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, ConfigError};

/// A packet of a line: its bytes, its annotations and its color.
pub(super) type Row = (Vec<u8>, Annotations, u8);

/// What is read, and how much of it was.
pub(super) struct Input {
    reader: BufReader<Box<dyn Read + Send>>,
    place: Arc<Place>,
}

/// Where a file is read.
#[derive(Default)]
struct Place {
    name: String,
    /// Its length in bytes; `None` where it is no regular file, or compressed.
    bytes: Option<u64>,
    /// Plain bytes that were read.
    read: AtomicU64,
}

impl Input {
    fn new(reader: Box<dyn Read + Send>, name: &str, bytes: Option<u64>) -> Self {
        let place = Place { name: name.to_owned(), bytes, read: AtomicU64::new(0) };
        Self { reader: BufReader::new(reader), place: Arc::new(place) }
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into)?;
        // Relaxed: no other memory depends on it.
        self.place.read.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.place.read.fetch_add(bytes as u64, Relaxed);
        self.reader.consume(bytes);
    }
}

/// Form of the lines of a file.
pub(super) trait Form: Clone + Send + Sync + 'static {
    /// What messages call it.
    const NAME: &'static str;

    /// The packet of a line; `None` where it is none.
    fn line(&mut self, line: &str) -> Option<Row>;

    /// Whether records follow, in place of lines.
    fn is_binary(&self) -> bool {
        false
    }

    /// The packet of the next record, where it is one; `None` at the end.
    fn record(&mut self, input: &mut Input) -> Option<Option<Row>> {
        let _ = input;
        None
    }

    /// A packet that stands for several is given as so many.
    fn repeats(&self) -> bool {
        false
    }

    /// Packets come at the distances of their times.
    fn is_timed(&self) -> bool {
        false
    }
}

/// What such sources have in common of their arguments.
pub(super) struct Given {
    active: Result<Option<bool>, ConfigError>,
    stop: Result<Option<bool>, ConfigError>,
    sample: Result<Option<Chance>, ConfigError>,
}

impl Given {
    pub(super) fn read(setup: &mut Setup<'_>) -> Self {
        Self {
            active: setup.args.keyword("ACTIVE"),
            stop: setup.args.keyword("STOP"),
            sample: setup.args.keyword("SAMPLE"),
        }
    }

    /// The source, of what was opened.
    pub(super) fn made<F: Form>(
        self,
        setup: &mut Setup<'_>,
        input: Option<Input>,
        form: F,
    ) -> Result<Made, ConfigError> {
        let active = Setting::new(self.active?.unwrap_or(true));
        let sampling = Sampling::new(setup, self.sample?);
        let ending = self.stop?.unwrap_or(false).then(|| setup.ending.clone());
        let place = input.as_ref().map(|input| input.place.clone()).unwrap_or_default();
        let input = Mutex::new(input);
        let counts = setup.keep::<PerWorker<Count>>();
        let made = Made::new({
            let (active, counts, sampling) = (active.clone(), counts.clone(), sampling.clone());
            move |instance| Source {
                // One instance reads it: that of the first worker.
                input: match instance.is_dry_run() {
                    true => None,
                    false => input.lock().unwrap_or_else(PoisonError::into_inner).take(),
                },
                form: form.clone(),
                several: None,
                next: None,
                began: None,
                active: active.clone(),
                stop: ending.clone(),
                count: counts.add(instance),
                sampling: sampling.clone(),
            }
        });
        let made = made
            .polled()
            .waits_for_room()
            .counter("count", &counts)
            .handler(Handler::read("filename", {
                let place = place.clone();
                move || place.name.clone()
            }))
            .handler(Handler::read("filesize", {
                let place = place.clone();
                move || place.bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string())
            }))
            .handler(Handler::read("filepos", move || place.read.load(Relaxed).to_string()))
            .handler(Handler::read("encap", || "IP".to_owned()));
        let made = stop::handled(sampling.handled(made), setup, &active);
        Ok(active.handled(made, "active"))
    }
}

/// What argument `FILENAME` names, or the text of `DATA`; `None` where nothing is to be read.
pub(super) fn open(
    setup: &mut Setup<'_>,
    file: Option<&Arg<'_>>,
    data: Option<&Arg<'_>>,
    absent: bool,
) -> Result<Option<Input>, ConfigError> {
    if let Some(data) = data {
        let data = data.bytes().into_owned();
        let bytes = data.len() as u64;
        return Ok(Some(Input::new(Box::new(Cursor::new(data)), "<data>", Some(bytes))));
    }
    let Some(arg) = file else { return Err(setup.args.refuse_all("argument FILENAME is missing")) };
    let name: String = setup.args.read(arg, "FILENAME")?;
    match Opened::new(setup.policy, &name, false) {
        Ok(opened) => {
            let plain = opened.plain(&name);
            let (plain, bytes) =
                plain.map_err(|error| setup.args.refuse(arg, &error.to_string()))?;
            Ok(plain.map(|plain| Input::new(Box::new(plain), &name, bytes)))
        }
        Err(error) if absent && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(setup.args.refuse(arg, &format!("{name}: {error}"))),
    }
}

struct Source<F> {
    /// What is not read yet; `None` at its end.
    input: Option<Input>,
    form: F,
    /// Packets of the last line that are still to come.
    several: Option<Several>,
    /// The packet that is next.
    next: Option<Row>,
    /// Time of the first packet, and of the clock when it left.
    began: Option<(i64, u64)>,
    active: Setting<bool>,
    stop: Option<Ending>,
    count: Arc<Count>,
    sampling: Sampling,
}

/// Packets of lines that count several which are passed in search of the next packet: some milliseconds.
const LOOKS: usize = 1 << 16;

/// Bytes of a line, at most: what is longer is several lines.
const MOST_LINE: u64 = 1 << 20;

impl<F: Form> Source<F> {
    /// Reads on to the next packet; whether there is one now. Of the packets of lines that count several, [`LOOKS`] that are
    /// not in the sample are passed at most: a line may count billions.
    fn look(&mut self) -> bool {
        let (repeats, mut looks) = (self.form.repeats(), 0);
        while self.next.is_none() && looks < LOOKS {
            let several = match self.several.take() {
                Some(several) => several,
                None => match self.read() {
                    Some(Some(row)) => Several::of(row, repeats),
                    Some(None) => continue,
                    None => return false,
                },
            };
            let (row, rest) = several.next(repeats);
            self.several = rest;
            self.next = Some(row).filter(|_| self.sampling.takes());
            looks += usize::from(self.several.is_some());
        }
        self.next.is_some()
    }

    /// Reads a line or a record, which may be a packet; `None` at the end.
    fn read(&mut self) -> Option<Option<Row>> {
        let input = self.input.as_mut()?;
        let mut line = Vec::new();
        let read = match self.form.is_binary() {
            true => self.form.record(input),
            false => read_line::<F>(input, &mut line)
                .then(|| self.form.line(&String::from_utf8_lossy(&line))),
        };
        if read.is_none() {
            self.end();
        }
        read
    }

    fn end(&mut self) {
        self.input = None;
        if let Some(stop) = &self.stop {
            stop.request();
        }
    }

    /// Time at which the next packet leaves.
    fn due(&self) -> Option<u64> {
        let (_, annotations, _) = self.next.as_ref()?;
        let (first, then) = self.began.filter(|_| self.form.is_timed())?;
        let since = annotations.timestamp_ns.saturating_sub(first);
        Some(then.saturating_add(u64::try_from(since).unwrap_or(0)))
    }

    /// Puts the next packet into a batch, if it is time; whether there was one.
    fn give(&mut self, into: &mut Batch, cx: &mut Context<'_>) -> bool {
        if !self.active.get() || !self.look() || self.due().is_some_and(|due| due > cx.now_ns) {
            return false;
        }
        let Some(mut packet) = cx.pool.alloc() else { return false };
        let Some((bytes, mut annotations, paint)) = self.next.take() else { return false };
        self.began.get_or_insert((annotations.timestamp_ns, cx.now_ns));
        let most = usize::from(cx.pool.max_len()) - ANNOTATION_BYTES;
        let len = bytes.len().min(most);
        annotations.extra_length += u32::try_from(bytes.len() - len).unwrap_or(0);
        if !packet.set_len(len) {
            return false;
        }
        packet.bytes_mut().copy_from_slice(&bytes[..len]);
        packet.meta.paint = paint;
        annotations.set_packet(&mut packet);
        cx.counters.packets_in.add(1);
        self.count.add(1);
        into.push(packet).is_ok()
    }
}

/// Reads a line; whether there is one more.
fn read_line<F: Form>(input: &mut Input, line: &mut Vec<u8>) -> bool {
    line.clear();
    match input.by_ref().take(MOST_LINE).read_until(b'\n', line) {
        Ok(bytes) => bytes > 0,
        Err(error) => {
            console::err(&format!("{}: {error}\n", F::NAME));
            false
        }
    }
}

impl<F: Form> Element for Source<F> {
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        if inputs.room() > 0 {
            self.give(batch, cx);
        }
    }

    fn pull(&mut self, _: u16, into: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        while into.room() > 0 && self.give(into, cx) {}
    }

    fn keeps_time(&self) -> bool {
        self.active.get() && self.due().is_some()
    }

    fn due_ns(&self) -> Option<u64> {
        self.due()
    }
}
