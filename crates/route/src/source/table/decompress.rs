//! Compressed inputs, known by their first bytes and decoded as they are read.
//!
//! gzip (RFC 1952) and bzip2 with several members, xz with several streams, Zstandard (RFC 8878)
//! with several frames. All decoders are pure Rust.
//!
//! A short input must not keep its reader busy for hours, or fill what it writes to: the plain bytes are at most
//! [`MOST_RATIO`] times those of the input. Route tables compress 3 to 30 times.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::source::SourceError;

/// How an input is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// gzip.
    Gz,
    /// bzip2.
    Bz2,
    /// xz.
    Xz,
    /// Zstandard.
    Zst,
}

impl Kind {
    /// Format by the first bytes; `None` for plain bytes, or for too few of them.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x1f, 0x8b, ..] => Some(Self::Gz),
            // The digit is the size of a block.
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Self::Bz2),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            // A frame, or a frame to skip.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zst),
            _ => None,
        }
    }
}

impl core::fmt::Display for Kind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Gz => "gzip",
            Self::Bz2 => "bzip2",
            Self::Xz => "xz",
            Self::Zst => "zstd",
        })
    }
}

/// Enough to know each kind.
const MAGIC_BYTES: usize = 6;
/// `xz -9` needs 65 MiB; a file that wants more is more likely an attack than a table.
const XZ_LIMIT_KIB: u32 = 256 << 10;
/// What `zstd --ultra -22 --long=27` needs.
const ZSTD_WINDOW_BYTES: u64 = 128 << 20;
/// Plain bytes for each byte of the input, at most. What DEFLATE can reach with zeros is 1,032.
pub const MOST_RATIO: u64 = 1000;

/// The plain bytes of an input.
pub struct Decoded {
    name: String,
    kind: Option<Kind>,
    reader: Box<dyn Read + Send>,
    seen: Arc<Seen>,
    /// Plain bytes so far.
    given: u64,
    broken: bool,
}

impl Decoded {
    /// Looks at the first bytes of `input` to know how to read it; `name` is for messages.
    ///
    /// # Errors
    /// [`SourceError::Io`] when they cannot be read.
    pub fn new(name: &str, mut input: Box<dyn Read + Send>) -> Result<Self, SourceError> {
        let mut magic = Vec::with_capacity(MAGIC_BYTES);
        input
            .by_ref()
            .take(MAGIC_BYTES as u64)
            .read_to_end(&mut magic)
            .map_err(|error| SourceError::io(name, &error))?;
        let kind = Kind::of(&magic);
        let seen = Arc::new(Seen::default());
        let input = Cursor::new(magic).chain(input);
        let input = BufReader::new(Watched { input, seen: seen.clone() });
        let reader: Box<dyn Read + Send> = match kind {
            None => Box::new(input),
            Some(Kind::Gz) => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
            Some(Kind::Bz2) => Box::new(bzip2::bufread::MultiBzDecoder::new(input)),
            Some(Kind::Xz) => {
                Box::new(lzma_rust2::XzReader::new_mem_limit(input, true, XZ_LIMIT_KIB))
            }
            Some(Kind::Zst) => Box::new(Zst::new(input)),
        };
        Ok(Self { name: name.into(), kind, reader, seen, given: 0, broken: false })
    }

    /// How it is compressed.
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Bytes of the input that were read so far.
    pub fn read_bytes(&self) -> u64 {
        self.seen.bytes()
    }

    /// Some of the plain bytes; 0 at the end.
    ///
    /// # Errors
    /// Once: [`SourceError::Truncated`] when the compressed input is incomplete,
    /// [`SourceError::Compression`] when it is damaged or grows beyond [`MOST_RATIO`], [`SourceError::Io`] when it
    /// cannot be read.
    /// All bytes before have been given; 0 follows.
    pub fn read_some(&mut self, into: &mut [u8]) -> Result<usize, SourceError> {
        if self.broken {
            return Ok(0);
        }
        loop {
            let error = match self.reader.read(into) {
                Ok(len) => {
                    self.given += len as u64;
                    if self.kind.is_some() && self.given > self.seen.bytes() * MOST_RATIO {
                        self.broken = true;
                        let what = format!("decompressed more than {MOST_RATIO} times its size");
                        return Err(SourceError::Compression { name: self.name.clone(), what });
                    }
                    return Ok(len);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            // A decoder is not used again: its behavior after an error is undefined.
            self.broken = true;
            let name = self.name.clone();
            return Err(match self.kind {
                Some(kind) if !self.seen.failure() => {
                    if self.seen.end() {
                        let at = format!("in the {kind} data");
                        SourceError::Truncated { name, at, rest: "the rest is missing".into() }
                    } else {
                        let what = format!("damaged {kind} data: {error}");
                        SourceError::Compression { name, what }
                    }
                }
                _ => SourceError::io(&name, &error),
            });
        }
    }
}

/// State of the input below a decoder, which the decoder's errors do not have.
#[derive(Default)]
struct Seen {
    bytes: AtomicU64,
    end: AtomicBool,
    failure: AtomicBool,
}

impl Seen {
    // Relaxed, here and below: the decoder runs on the thread that reads.
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    fn failure(&self) -> bool {
        self.failure.load(Ordering::Relaxed)
    }
}

struct Watched<R> {
    input: R,
    seen: Arc<Seen>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let result = self.input.read(into);
        match &result {
            Ok(0) if !into.is_empty() => self.seen.end.store(true, Ordering::Relaxed),
            Ok(len) => {
                self.seen.bytes.fetch_add(*len as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.seen.failure.store(true, Ordering::Relaxed);
            }
            Err(_) => {}
        }
        result
    }
}

/// Frames one after another; the decoder itself knows only one.
struct Zst<R> {
    input: R,
    decoder: FrameDecoder,
    /// The input is inside a frame.
    open: bool,
}

impl<R: BufRead> Zst<R> {
    fn new(input: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES);
        Self { input, decoder, open: false }
    }
}

impl<R: BufRead> Read for Zst<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.open {
                if self.input.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                match self.decoder.init(&mut self.input) {
                    Ok(()) => self.open = true,
                    Err(FrameDecoderError::ReadFrameHeaderError(
                        ReadFrameHeaderError::SkipFrame { length, .. },
                    )) => {
                        let mut skipped = self.input.by_ref().take(length.into());
                        if io::copy(&mut skipped, &mut io::sink())? < length.into() {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        continue;
                    }
                    Err(error) => return Err(io::Error::other(error)),
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let len = self.decoder.read(into)?;
            if len > 0 || into.is_empty() {
                return Ok(len);
            }
            self.open = false;
        }
    }
}
