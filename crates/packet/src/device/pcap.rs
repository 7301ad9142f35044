//! Capture files as ports: frames come from one file and go to another.
//!
//! Reads and writes the classic format, as ports with Ethernet frames. What is written carries the number of
//! the packet as its time in microseconds, so that equal runs give equal files.
//!
//! Cost: a copy a packet to read, and some system calls a packet to write, which goes straight to the
//! file so that every error is reported; for tests, bug reports and demonstrations.

use std::fs::File;
use std::io::{BufReader, Read};
use std::time::Duration;

use fingerpost_lpm::input::{self, MOST_STREAM_BYTES};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use super::{DeviceError, Driver, Port};
use crate::frame::Batch;

pub(crate) const DRIVER: Driver = Driver {
    name: "pcap",
    summary: "reads frames from a capture file and writes to another: IN,OUT (either may be empty)",
    in_rings: 0,
    external: true,
    open: |spec| {
        let (input, output) = spec.name.split_once(',').unwrap_or((spec.name, ""));
        Ok(vec![Box::new(Pcap::new(input, output)?)])
    },
};

/// What a file is read from.
type Input = BufReader<Box<dyn Read + Send>>;

/// What a file holds of a packet.
struct Record {
    time: Duration,
    /// Length of the frame, of which `bytes` may be the beginning.
    frame_len: u32,
    bytes: Vec<u8>,
}

/// A port between two files.
pub struct Pcap {
    name: String,
    reader: Option<PcapReader<Input>>,
    /// A record that was read to see its time.
    ahead: Option<Record>,
    writer: Option<PcapWriter<File>>,
    /// Bytes of a frame that are written at most.
    snap_len: usize,
    written: u64,
    too_long: u64,
    no_buffer: u64,
}

impl Pcap {
    /// A port that receives what the file `input` holds and writes to the file `output`; either may
    /// be empty: then nothing is received, and what is sent is freed.
    ///
    /// # Errors
    /// When a file cannot be opened, is no capture file, or does not hold Ethernet frames.
    pub fn new(input: &str, output: &str) -> Result<Self, DeviceError> {
        let reader = (!input.is_empty()).then(|| open_reader(input)).transpose()?;
        let writer = (!output.is_empty()).then(|| open_writer(output)).transpose()?;
        Ok(Self::of(if input.is_empty() { output } else { input }, reader, writer))
    }

    /// A port that receives what a file holds, of the link types that are wanted; `name` is for messages.
    ///
    /// # Errors
    /// When it is no capture file, or holds packets of another link type.
    pub fn reading(
        name: &str,
        input: impl Read + Send + 'static,
        wanted: impl Fn(u32) -> bool,
    ) -> Result<Self, DeviceError> {
        Ok(Self::of(name, Some(reader(name, Box::new(input), wanted)?), None))
    }

    /// Link type of the packets that are read.
    pub fn link(&self) -> Option<u32> {
        self.reader.as_ref().map(|reader| reader.header().datalink.into())
    }

    /// A port that writes to a file, which is emptied; `name` is for messages.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn writing(name: &str, file: File, form: Form) -> Result<Self, DeviceError> {
        // A FIFO or a device has nothing that stays.
        if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            file.set_len(0).map_err(|e| system(name, "truncate", e))?;
        }
        let snap_len = form.snap_len;
        Ok(Self { snap_len, ..Self::of(name, None, Some(writer(name, file, form)?)) })
    }

    fn of(name: &str, reader: Option<PcapReader<Input>>, writer: Option<PcapWriter<File>>) -> Self {
        let (name, ahead, snap_len) = (name.to_owned(), None, usize::MAX);
        Self { name, reader, ahead, writer, snap_len, written: 0, too_long: 0, no_buffer: 0 }
    }

    /// Writes the frames of a batch, and leaves them in it. A frame has the time that `noted` has of it, and else so many
    /// microseconds as there are frames before it, and was so many bytes longer.
    ///
    /// # Errors
    /// When the file cannot be written to.
    pub fn write(
        &mut self,
        batch: &Batch,
        noted: impl Fn(usize) -> (Option<Duration>, u32),
    ) -> Result<(), DeviceError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        for i in 0..batch.len() {
            let frame = batch.bytes(i);
            let len = u32::try_from(frame.len()).expect("a frame has at most 64 KiB");
            let (time, longer) = noted(i);
            let time = time.unwrap_or(Duration::from_micros(self.written));
            let held = &frame[..frame.len().min(self.snap_len)];
            writer
                .write_packet(&PcapPacket::new(time, len.saturating_add(longer), held))
                .map_err(|e| format(&self.name, "write", e))?;
            self.written += 1;
        }
        Ok(())
    }

    /// Time and length of the next packet; `None` at the end of the file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn peek(&mut self) -> Result<Option<(Duration, usize)>, DeviceError> {
        if self.ahead.is_none() {
            self.ahead = self.read()?;
        }
        Ok(self.ahead.as_ref().map(|record| (record.time, record.bytes.len())))
    }

    /// Leaves out the packet that [`Pcap::peek`] showed.
    pub fn skip(&mut self) {
        self.ahead = None;
    }

    fn read(&mut self) -> Result<Option<Record>, DeviceError> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let Some(record) = reader.next_packet() else { return Ok(None) };
        let record = record.map_err(|e| format(&self.name, "read", e))?;
        let (time, frame_len) = (record.timestamp, record.orig_len);
        Ok(Some(Record { time, frame_len, bytes: record.data.into_owned() }))
    }

    /// Receives the next packet, with its time and the length of the frame that it was, if the batch has room. `false` at
    /// the end of the file; a packet that does not fit a frame is left out.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn recv_one(
        &mut self,
        into: &mut Batch,
        visit: impl FnOnce(&mut Batch, usize, Duration, u32),
    ) -> Result<bool, DeviceError> {
        let record = match self.ahead.take() {
            Some(record) => Some(record),
            None => self.read()?,
        };
        let Some(record) = record else { return Ok(false) };
        let Some(mut packet) = into.pool().alloc() else {
            self.no_buffer += 1;
            return Ok(true);
        };
        if !packet.set_len(record.bytes.len()) {
            self.too_long += 1;
            return Ok(true);
        }
        packet.bytes_mut().copy_from_slice(&record.bytes);
        if into.push(packet).is_ok() {
            visit(into, into.len() - 1, record.time, record.frame_len);
        }
        Ok(true)
    }

    /// Frames written.
    pub fn written(&self) -> u64 {
        self.written
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Link type of the packets, as libpcap numbers them: 1 is Ethernet.
    pub link: u32,
    /// Times have nanoseconds.
    pub nano: bool,
    /// Bytes of a packet that are written at most.
    pub snap_len: usize,
}

impl Default for Form {
    fn default() -> Self {
        Self { link: DataLink::ETHERNET.into(), nano: false, snap_len: usize::MAX }
    }
}

/// Calls `record` with the time and the frame of each packet of a capture file, in its order.
///
/// # Errors
/// When the file cannot be read, is no capture file, or does not hold Ethernet frames.
pub fn read(path: &str, mut record: impl FnMut(Duration, &[u8])) -> Result<(), DeviceError> {
    let mut reader = open_reader(path)?;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.map_err(|e| format(path, "read", e))?;
        record(packet.timestamp, &packet.data);
    }
    Ok(())
}

fn system(device: &str, call: &'static str, source: std::io::Error) -> DeviceError {
    DeviceError::System { device: device.to_owned(), call, source, hint: "" }
}

fn format(device: &str, call: &'static str, error: PcapError) -> DeviceError {
    match error {
        PcapError::IoError(source) => system(device, call, source),
        other => DeviceError::Unfit { device: device.to_owned(), what: other.to_string() },
    }
}

fn open_reader(path: &str) -> Result<PcapReader<Input>, DeviceError> {
    let file = input::open(path, MOST_STREAM_BYTES).map_err(|e| system(path, "open", e))?;
    reader(path, Box::new(file), |_| false)
}

/// The reader of Ethernet frames, or of packets of another link type that is wanted.
fn reader(
    name: &str,
    input: Box<dyn Read + Send>,
    wanted: impl Fn(u32) -> bool,
) -> Result<PcapReader<Input>, DeviceError> {
    let reader = PcapReader::new(BufReader::new(input)).map_err(|e| format(name, "read", e))?;
    let kind = reader.header().datalink;
    if kind != DataLink::ETHERNET && !wanted(kind.into()) {
        let what = format!("holds {kind:?} frames, not Ethernet");
        return Err(DeviceError::Unfit { device: name.to_owned(), what });
    }
    Ok(reader)
}

fn open_writer(path: &str) -> Result<PcapWriter<File>, DeviceError> {
    writer(path, File::create(path).map_err(|e| system(path, "create", e))?, Form::default())
}

fn writer(name: &str, file: File, form: Form) -> Result<PcapWriter<File>, DeviceError> {
    let resolution = if form.nano { TsResolution::NanoSecond } else { TsResolution::MicroSecond };
    let header = PcapHeader {
        datalink: form.link.into(),
        ts_resolution: resolution,
        endianness: Endianness::Little,
        ..PcapHeader::default()
    };
    PcapWriter::with_header(file, header).map_err(|e| format(name, "write", e))
}

impl Port for Pcap {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let mut count = 0;
        while into.room() > 0 && self.recv_one(into, |_, _, _, _| count += 1)? {}
        Ok(count)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let count = from.len();
        self.write(from, |_| (None, 0))?;
        from.free_front(count);
        Ok(count)
    }

    fn mode(&self) -> String {
        "capture file".into()
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("written", self.written);
        visit("too_long", self.too_long);
        visit("no_buffer", self.no_buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Pool;

    #[test]
    fn what_is_written_is_read_again() {
        let dir = std::env::temp_dir().join(format!("fingerpost-pcap-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("x.pcap").display().to_string();
        let pool = Pool::new(64, 2048);
        let frames: Vec<Vec<u8>> = (1..=40u8).map(|n| vec![n; usize::from(n) * 37]).collect();
        let mut batch = crate::testing::batch(&pool, 0, frames.iter().map(|f| &f[..]));
        let mut port = Pcap::new("", &path).unwrap();
        assert_eq!(port.recv(&mut Batch::new(&pool)).unwrap(), 0);
        assert_eq!(port.send(&mut batch).unwrap(), 40);
        drop(port);
        let mut read_again = Vec::new();
        read(&path, |time, frame| read_again.push((time, frame.to_vec()))).unwrap();
        let expected = frames.iter().zip(0..).map(|(f, n)| (Duration::from_micros(n), f.clone()));
        assert_eq!(read_again, expected.collect::<Vec<_>>());
        let first = std::fs::read(&path).unwrap();
        let mut port = Pcap::new(&path, "").unwrap();
        batch.set_limit(30);
        assert_eq!(port.recv(&mut batch).unwrap(), 30);
        for (i, frame) in frames[..30].iter().enumerate() {
            assert_eq!(batch.bytes(i), frame);
        }
        batch.clear();
        assert_eq!((port.recv(&mut batch).unwrap(), port.recv(&mut batch).unwrap()), (10, 0));
        batch.clear();
        assert_eq!(pool.free(), 64);
        // Equal runs, equal files.
        let mut batch = crate::testing::batch(&pool, 0, frames.iter().map(|f| &f[..]));
        Pcap::new("", &path).unwrap().send(&mut batch).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn errors_name_the_file_and_the_fault() {
        let missing = Pcap::new("/nowhere/x.pcap", "").err().unwrap().to_string();
        assert!(missing.starts_with("/nowhere/x.pcap: open: "), "{missing}");
        let nonsense = Pcap::new("/proc/self/cmdline", "").err().unwrap().to_string();
        assert!(nonsense.starts_with("/proc/self/cmdline: "), "{nonsense}");
    }
}
