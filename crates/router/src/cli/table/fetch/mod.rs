//! `fingerpost table fetch`: files of the archives of route collectors, or of any URL.
//!
//! A file is written beside its place, as `FILE.part`, and renamed once it is whole. What an earlier try left is continued, if
//! `FILE.part.from` has the same URL and the server still has the same file: that with the noted validator and length. It is kept
//! as `FILE.from`, so that nothing is requested for a file that is there and from the same URL. Files of a collector begin with its
//! name, as the archives give those of all collectors the same ones.

mod collector;
mod http;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use fingerpost_command::progress::Progress;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::cli::command::{Exit, Failure};
use crate::cli::output::{Output, Report, message};
use collector::Collector;
use http::{Known, Reply, Url};

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost table fetch --collector rrc00
  $ fingerpost table fetch --collector route-views2 --date 2026-11-21T10:00 --updates 4 -o tables
  $ fingerpost table fetch http://mirror.example/rib.bz2

Without --date the latest dump is fetched. A file that is there is not fetched again, and one of which a \
part is there is continued. The archives publish no checksums; the SHA-256 of each file is printed.";

#[derive(Args)]
pub(super) struct Arguments {
    /// File to fetch
    #[arg(value_name = "URL", required_unless_present = "collector", conflicts_with = "collector")]
    url: Option<Url>,
    /// Collector whose table dump is fetched: rrcNN (RIPE RIS) or route-views* (RouteViews)
    #[arg(long, value_name = "NAME")]
    collector: Option<String>,
    /// Time of the dump (UTC), YYYY-MM-DD or YYYY-MM-DDTHH:MM: the last one until then
    #[arg(long, value_name = "DATE", value_parser = collector::parse_date, requires = "collector")]
    date: Option<u64>,
    /// Number of files of updates to fetch that follow the dump
    #[arg(long, value_name = "N", default_value_t = 0, requires = "collector")]
    updates: u32,
    /// Mirror of the archive, in its place
    #[arg(long, value_name = "URL", requires = "collector")]
    base_url: Option<String>,
    /// SHA-256 of the file; another one is refused
    #[arg(long, value_name = "HEX", value_parser = hash, conflicts_with = "updates")]
    sha256: Option<String>,
    /// Folder to write to
    #[arg(long, short, value_name = "FOLDER", default_value = ".")]
    out: PathBuf,
}

fn hash(text: &str) -> Result<String, &'static str> {
    match text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("64 hexadecimal digits are needed"),
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let fetch = |url: &Url| {
        let (collector, wanted) = (arguments.collector.as_deref(), arguments.sha256.as_deref());
        let fetched = fetch(url, collector, &arguments.out, wanted);
        fetched.map_err(|error| {
            (error.kind(), Failure::outside(error.kind(), format_args!("{url}: {error}")))
        })
    };
    if let Some(url) = &arguments.url {
        return Ok(output.print(&Files { files: vec![fetch(url).map_err(|(_, failed)| failed)?] })?);
    }
    let name = arguments.collector.as_deref().unwrap_or_default();
    let collector = Collector::new(name, arguments.base_url.as_deref());
    let collector = collector.map_err(|words| Failure::new(Exit::Usage, words))?;
    let url = |text: String| {
        text.parse::<Url>()
            .map_err(|what| Failure::new(Exit::Usage, format_args!("{text}: {what}")))
    };
    let mut time = collector.dump_at(arguments.date.unwrap_or_else(collector::now));
    // The latest dump appears some time after its name.
    let mut tries = if arguments.date.is_some() { 1 } else { 4 };
    let dump = loop {
        tries -= 1;
        match fetch(&url(collector.dump(time))?) {
            Ok(dump) => break dump,
            Err((ErrorKind::NotFound, _)) if tries > 0 => time -= collector.interval(),
            Err((_, failed)) => return Err(failed),
        }
    };
    let mut files = vec![dump];
    for updates in collector.updates(time, arguments.updates) {
        files.push(fetch(&url(updates)?).map_err(|(_, failed)| failed)?);
    }
    Ok(output.print(&Files { files })?)
}

/// The JSON of this command.
#[derive(Serialize)]
struct Files {
    files: Vec<Fetched>,
}

#[derive(Serialize)]
struct Fetched {
    file: String,
    url: String,
    bytes: u64,
    /// Bytes that were there before.
    resumed_at: u64,
    sha256: String,
}

impl Report for Files {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for Fetched { file, bytes, sha256, .. } in &self.files {
            writeln!(to, "{file}: {bytes} bytes, SHA-256 {sha256}")?;
        }
        Ok(())
    }
}

/// Broken connections in a row, without a byte between them, after which a fetch fails.
const MOST_FAILURES: u32 = 3;

/// The part of a file that is there, or all of it, and where it is from.
struct Part {
    file: PathBuf,
    /// Lines: the URL, the validator of the file there, its length. The latter two may be empty or missing.
    from: PathBuf,
}

impl Part {
    fn new(path: &Path) -> Self {
        Self::whole(&beside(path, ".part"))
    }

    /// A file that is complete.
    fn whole(path: &Path) -> Self {
        Self { file: path.to_owned(), from: beside(path, ".from") }
    }

    /// What is there of the file at this URL.
    fn of(&self, url: &Url) -> Known {
        let from = fs::read_to_string(&self.from).unwrap_or_default();
        let mut lines = from.lines();
        if lines.next() != Some(&*url.to_string()) {
            return Known::default();
        }
        let have = fs::metadata(&self.file).map_or(0, |part| part.len());
        let validator = lines.next().filter(|line| !line.is_empty()).map(str::to_owned);
        Known { have, validator, len: lines.next().and_then(|len| len.parse().ok()) }
    }

    /// Notes where the part is from.
    fn note(&self, url: &Url, validator: Option<&str>, len: Option<u64>) -> io::Result<()> {
        let (validator, len) = (validator.unwrap_or_default(), len.map(|len| len.to_string()));
        fs::write(&self.from, format!("{url}\n{validator}\n{}\n", len.unwrap_or_default()))
    }

    fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.file)?;
        fs::remove_file(&self.from)
    }
}

/// The file with this end of its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

fn fetch(
    url: &Url,
    collector: Option<&str>,
    folder: &Path,
    wanted: Option<&str>,
) -> io::Result<Fetched> {
    let name = url.file_name();
    if name.is_empty() || name == ".." || name == "." {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the URL names no file"));
    }
    let name = collector.map_or(name.to_owned(), |collector| format!("{collector}.{name}"));
    let path = folder.join(&name);
    let (part, mut resumed_at) = (Part::new(&path), 0);
    let is_there = path.exists();
    if !is_there {
        resumed_at = part.of(url).have;
        transfer(url, &part, &name)?;
    } else if collector.is_none() && wanted.is_none() {
        compare(url, &Part::whole(&path))?;
    }
    let whole = if is_there { &path } else { &part.file };
    let (sha256, bytes) = sha256(whole)?;
    if wanted.is_some_and(|wanted| wanted != sha256) {
        let what = format!("{}: SHA-256 is {sha256}, another one was wanted", whole.display());
        if !is_there {
            part.remove()?;
        }
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    if !is_there {
        part.note(url, part.of(url).validator.as_deref(), Some(bytes))?;
        fs::rename(&part.from, Part::whole(&path).from)?;
        fs::rename(&part.file, &path)?;
    }
    let (file, url) = (path.display().to_string(), url.to_string());
    Ok(Fetched { file, url, bytes, resumed_at, sha256 })
}

/// Refuses a file that is there and is no such file as the URL has: many URLs end in one name. One from this URL is right, and
/// one from an unknown place as far as its length is.
fn compare(url: &Url, file: &Part) -> io::Result<()> {
    let known = file.of(url);
    if known.have > 0 && known.len == Some(known.have) {
        return Ok(());
    }
    let have = fs::metadata(&file.file)?.len();
    match http::get(url, &Known { have, ..Known::default() })?.len {
        Some(there) if there != have => {
            let what = format!(
                "another file of {have} bytes is {} already: remove it, or give another --out",
                file.file.display()
            );
            Err(io::Error::new(ErrorKind::AlreadyExists, what))
        }
        _ => Ok(()),
    }
}

/// Fetches what of a file is not there yet.
fn transfer(url: &Url, part: &Part, name: &str) -> io::Result<()> {
    let mut to = OpenOptions::new().append(true).create(true).open(&part.file)?;
    to.set_len(part.of(url).have)?;
    let mut failures = 0;
    loop {
        let known = part.of(url);
        let have = known.have;
        let copied = http::get(url, &known).and_then(|reply| {
            if reply.start == 0 {
                // Bytes of another file are gone before there is a note of this one.
                to.set_len(0)?;
                part.note(url, reply.validator.as_deref(), reply.len)?;
            }
            copy(reply, &mut to, name)
        });
        let Err(error) = copied else { return to.sync_all() };
        use ErrorKind::{ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
        let now = to.metadata()?.len();
        failures = if now > have { 0 } else { failures + 1 };
        let broken =
            matches!(error.kind(), UnexpectedEof | ConnectionReset | TimedOut | WouldBlock);
        if !broken || failures >= MOST_FAILURES {
            return Err(error);
        }
        message(format_args!("{name}: {error} at byte {now}; continued from there"));
    }
}

fn copy(mut reply: Reply, to: &mut File, name: &str) -> io::Result<()> {
    let mut progress = Progress::new();
    progress.bytes(name, reply.start, reply.len);
    let mut at = reply.start;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reply.body.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => {
                to.write_all(&buffer[..len])?;
                at += len as u64;
                progress.at(at);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    match reply.len {
        Some(len) if len != to.metadata()?.len() => {
            Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection was closed"))
        }
        _ => Ok(()),
    }
}

fn sha256(path: &Path) -> io::Result<(String, u64)> {
    let (mut file, mut hash) = (File::open(path)?, Sha256::new());
    let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
    loop {
        let len = file.read(&mut buffer)?;
        if len == 0 {
            break;
        }
        hash.update(&buffer[..len]);
        bytes += len as u64;
    }
    Ok((hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), bytes))
}
