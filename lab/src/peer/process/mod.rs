//! A peer at work: a child process that answers a line of JSON to each line that it is sent.
//!
//! Waiting for an answer blocks in the system, on the pipe and a limit: nothing of ours runs beside a
//! peer that works. A peer that exceeds its limit, dies or answers with something else is ended, and
//! the error contains the last line that it wrote to standard error. Whatever becomes of a [`Peer`],
//! its program is ended and reaped when it is dropped; and it ends by itself when we are gone.

mod router;

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::marker::PhantomData;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fingerpost_lpm::{Addr, NextHopId, Prefix};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Row;
use crate::document::Mode;
use crate::scratch::Scratch;
use crate::table::Table;

pub use router::{Chosen, Forwarded, HEAD_BYTES, Leave};

/// Longest time that a baseline takes to read and build its table, unless another is given.
pub const LOAD_LIMIT: Duration = Duration::from_secs(60);

/// Longest time for anything else, beyond the time that it works on request.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// How long it may take to end when its pipe is closed.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The longest line that is an answer.
const LINE_BYTES: usize = 1 << 16;

/// Information that a baseline reports once its table is built.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Info {
    /// Its own name.
    pub name: String,
    /// Library and version.
    pub version: String,
    /// Routes that it was given.
    pub routes: u64,
    /// Routes that it refused; lookups in them are answered wrong.
    pub refused: u64,
    /// Time to build, without reading the file.
    pub build_ms: f64,
    /// The lookup structure; `None` where the library does not report it.
    pub bytes: Option<u64>,
    /// What a reader of its numbers must know.
    #[serde(default)]
    pub note: String,
}

/// Which function of its library a peer found fastest on the present keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Functions {
    /// Lookups in batches.
    pub batch: String,
    /// One by one.
    pub single: String,
    /// Each waiting for the one before.
    pub dependent: String,
}

/// A turn of lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Lookups done.
    pub count: u64,
    /// Time that passed, by the same clock as `Instant`.
    pub wall: Duration,
    /// CPU time of the thread that worked: less than `wall` where others had the core.
    pub cpu: Duration,
}

/// A turn of updates: a withdrawal and an announcement count as two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Updates {
    /// Those that were not timed one by one, and how long they took together.
    pub turn: Turn,
    /// Updates of both halves.
    pub done: u64,
    /// How many of them the library refused.
    pub failed: u64,
    /// What each of the others took, in ns.
    pub each_ns: Vec<u32>,
}

/// A running peer that holds a table. Ended when dropped.
#[derive(Debug)]
pub struct Peer<A: Addr> {
    name: String,
    process: Process,
    info: Info,
    functions: Functions,
    keys: usize,
    family: PhantomData<A>,
}

impl<A: Addr> Peer<A> {
    /// Starts the row's program on a table and waits until it is built.
    ///
    /// # Errors
    /// When the program was not built (the message begins `needs cargo xtask peers`), the family is
    /// not the row's, or it does not load the table within `limit` ([`LOAD_LIMIT`] is enough for all
    /// but rte_lpm).
    pub fn start(row: &Row, table: &Table<A>, limit: Duration) -> Result<Self> {
        ensure!(row.family == A::FAMILY, "{} is for IPv{}", row.name, row.family);
        let command = row.command();
        let mut command =
            command.with_context(|| format!("needs cargo xtask peers {}", row.program.name))?;
        command.arg(row.engine);
        Self::launch(row.name, command, &table.routes, limit)
    }

    fn launch(
        name: &str,
        mut command: Command,
        routes: &[(Prefix<A>, u32)],
        limit: Duration,
    ) -> Result<Self> {
        let scratch = Scratch::new("peer")?;
        let file = scratch.file("table");
        write_routes(&file, routes.iter().copied())?;
        command.arg(A::FAMILY.to_string()).arg(&file);
        let mut process = Process::start(command, scratch).with_context(|| name.to_owned())?;
        let info = process.reply(limit).with_context(|| format!("{name}: loading the table"))?;
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
        let functions = Functions::default();
        Ok(Self { name: name.to_owned(), process, info, functions, keys: 0, family: PhantomData })
    }

    /// Information that it reported when its table was built.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Which functions it chose for the present keys; empty names where a library has but one.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Hands over the addresses that all later turns look up, over and over, in this order.
    ///
    /// # Errors
    /// When it cannot take them, or `keys` is empty.
    pub fn set_keys(&mut self, keys: &[A]) -> Result<()> {
        #[derive(Deserialize)]
        struct Reply {
            keys: usize,
            #[serde(default)]
            functions: Functions,
        }
        let file = self.process.scratch.file("keys");
        write_keys(&file, keys)?;
        let reply: Reply = self.ask(&format!("keys {}", file.display()), REPLY_LIMIT)?;
        ensure!(reply.keys == keys.len(), "{}: took {} keys", self.name, reply.keys);
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
        self.keys = keys.len();
        self.functions = reply.functions;
        Ok(())
    }

    /// Its answers to the present keys, in their order.
    ///
    /// # Errors
    /// When there are no keys, or it does not answer each.
    pub fn answers(&mut self) -> Result<Vec<NextHopId>> {
        let file = self.process.scratch.file("answers");
        let _: Done = self.ask(&format!("answers {}", file.display()), REPLY_LIMIT)?;
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        let (words, rest) = bytes.as_chunks::<4>();
        ensure!(
            rest.is_empty() && words.len() == self.keys,
            "{}: {} bytes of answers to {} keys",
            self.name,
            bytes.len(),
            self.keys
        );
        Ok(words.iter().map(|&word| NextHopId(u32::from_le_bytes(word))).collect())
    }

    /// Looks up keys for at least `time`, from where the last turn ended.
    ///
    /// # Errors
    /// When there are no keys, or it does not come back.
    pub fn turn(&mut self, mode: Mode, time: Duration) -> Result<Turn> {
        #[derive(Deserialize)]
        struct Reply {
            lookups: u64,
            ns: u64,
            cpu_ns: u64,
        }
        let mode = match mode {
            Mode::Batch => "batch",
            Mode::Single => "single",
            Mode::Dependent => "dependent",
        };
        let line = format!("turn {mode} {}", time.as_millis().max(1));
        let reply: Reply = self.ask(&line, REPLY_LIMIT + time)?;
        turn(reply.lookups, reply.ns, reply.cpu_ns).with_context(|| self.name.clone())
    }

    /// Hands over the changes that all later turns make, over and over, in this order; the next hop
    /// `NONE` withdraws, and that of a route that is not there is nothing to do. Where the library has no
    /// updates, why it has none.
    ///
    /// # Errors
    /// When it cannot take them, or there are none.
    pub fn set_changes(&mut self, changes: &[(Prefix<A>, NextHopId)]) -> Result<Option<String>> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Reply {
            Taken { changes: usize },
            None { unsupported: String },
        }
        let file = self.process.scratch.file("changes");
        write_routes(&file, changes.iter().map(|&(prefix, hop)| (prefix, hop.0)))?;
        let reply = self.ask(&format!("changes {}", file.display()), REPLY_LIMIT)?;
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
        match reply {
            Reply::None { unsupported } => Ok(Some(unsupported)),
            Reply::Taken { changes: taken } => {
                ensure!(taken == changes.len(), "{}: took {taken} changes", self.name);
                Ok(None)
            }
        }
    }

    /// Makes changes for at least `time`, from where the last turn ended: half of the time without
    /// a look at single ones, the other half with each timed by itself.
    ///
    /// # Errors
    /// When there are no changes, or it does not come back.
    pub fn update(&mut self, time: Duration) -> Result<Updates> {
        #[derive(Deserialize)]
        struct Reply {
            updates: u64,
            ns: u64,
            cpu_ns: u64,
            timed: usize,
            failed: u64,
        }
        let file = self.process.scratch.file("each");
        let line = format!("update {} {}", time.as_millis().max(2), file.display());
        let reply: Reply = self.ask(&line, REPLY_LIMIT + time)?;
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        let (words, rest) = bytes.as_chunks::<4>();
        ensure!(
            rest.is_empty() && words.len() == reply.timed,
            "{}: {} bytes for {} updates",
            self.name,
            bytes.len(),
            reply.timed
        );
        let turn =
            turn(reply.updates, reply.ns, reply.cpu_ns).with_context(|| self.name.clone())?;
        let each_ns: Vec<u32> = words.iter().map(|&word| u32::from_le_bytes(word)).collect();
        let done = reply.updates + each_ns.len() as u64;
        Ok(Updates { turn, done, failed: reply.failed, each_ns })
    }

    /// Makes the changes that the last turn left, up to the end of the list; how many were refused.
    ///
    /// # Errors
    /// When there are no changes, or it does not come back.
    pub fn finish_changes(&mut self) -> Result<u64> {
        #[derive(Deserialize)]
        struct Reply {
            failed: u64,
        }
        Ok(self.ask::<Reply>("rest", REPLY_LIMIT)?.failed)
    }

    /// Bytes of the lookup structure now; `None` where the library does not report it.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn bytes(&mut self) -> Result<Option<u64>> {
        #[derive(Deserialize)]
        struct Reply {
            bytes: Option<u64>,
        }
        Ok(self.ask::<Reply>("bytes", REPLY_LIMIT)?.bytes)
    }

    fn ask<R: DeserializeOwned>(&mut self, line: &str, limit: Duration) -> Result<R> {
        self.process.ask(line, limit).with_context(|| self.name.clone())
    }
}

/// The reply of commands that only do something.
#[derive(Deserialize)]
struct Done {
    #[serde(rename = "ok")]
    _ok: bool,
}

fn turn(count: u64, ns: u64, cpu_ns: u64) -> Result<Turn> {
    ensure!(count > 0 && ns > 0, "a turn of {count} in {ns} ns");
    Ok(Turn { count, wall: Duration::from_nanos(ns), cpu: Duration::from_nanos(cpu_ns) })
}

fn write_routes<A: Addr>(
    file: &Path,
    routes: impl Iterator<Item = (Prefix<A>, u32)>,
) -> Result<()> {
    let write = || {
        let mut out = BufWriter::new(File::create(file)?);
        for (prefix, hop) in routes {
            writeln!(out, "{prefix} {hop}")?;
        }
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

/// IPv4 as little-endian words of the host-order value, IPv6 in network order.
fn write_keys<A: Addr>(file: &Path, keys: &[A]) -> Result<()> {
    let write = || {
        let mut out = BufWriter::new(File::create(file)?);
        for key in keys {
            let bytes = key.to_u128().to_be_bytes();
            if A::FAMILY == 4 {
                let [.., a, b, c, d] = bytes;
                out.write_all(&[d, c, b, a])?;
            } else {
                out.write_all(&bytes)?;
            }
        }
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

/// The child and the two ends that we hold.
#[derive(Debug)]
struct Process {
    child: Child,
    /// Standard input; `None` once it was closed to end the program.
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// What was read beyond the last line.
    read: Vec<u8>,
    scratch: Scratch,
}

/// Why there is no line.
enum Silence {
    /// The limit has passed.
    Limit,
    /// Its output is closed.
    End,
}

impl Process {
    fn start(mut command: Command, scratch: Scratch) -> Result<Self> {
        let errors = File::create(scratch.file("stderr")).context("cannot make a file")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("its output is a pipe");
        Ok(Self { child, input, output, read: Vec::new(), scratch })
    }

    fn ask<R: DeserializeOwned>(&mut self, line: &str, limit: Duration) -> Result<R> {
        let input = self.input.as_mut().context("was ended")?;
        // A pipe that nobody reads any more shows again, with its reason, when the reply is missing.
        let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        self.reply(limit).with_context(|| line.to_owned())
    }

    /// Sleeps until its output has a whole line (or too many bytes for one), ends, or the limit passes.
    fn line(&mut self, limit: Duration) -> Result<Vec<u8>, Silence> {
        let deadline = Instant::now() + limit;
        let mut piece = [0; 4096];
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                return Ok(self.read.drain(..=end).collect());
            }
            if self.read.len() >= LINE_BYTES {
                return Ok(std::mem::take(&mut self.read));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| Silence::Limit)?;
            let mut waits = [PollFd::new(&self.output, PollFlags::IN)];
            match poll(&mut waits, Some(&left)) {
                Ok(0) => return Err(Silence::Limit),
                Err(Errno::INTR) => continue,
                Ok(_) | Err(_) => {}
            }
            match self.output.read(&mut piece) {
                Ok(len @ 1..) => self.read.extend_from_slice(&piece[..len]),
                // Of what it began to say the caller sees that it is no answer.
                Ok(0) if !self.read.is_empty() => return Ok(std::mem::take(&mut self.read)),
                Ok(0) | Err(_) => return Err(Silence::End),
            }
        }
    }

    /// The next line, if it comes in time and is the reply expected. A baseline that dies, hangs or cannot be
    /// understood is ended; one that replies with an `error` continues.
    fn reply<R: DeserializeOwned>(&mut self, limit: Duration) -> Result<R> {
        let line = match self.line(limit) {
            Ok(line) => line,
            Err(Silence::Limit) => {
                self.end(Duration::ZERO);
                bail!("no answer within {} s{}", limit.as_secs_f64(), self.last_words());
            }
            Err(Silence::End) => {
                self.end(END_LIMIT);
                let status = self.child.wait().context("cannot wait for it")?;
                bail!("ended ({status}){}", self.last_words());
            }
        };
        let parsed = serde_json::from_slice::<serde_json::Value>(&line).and_then(|value| {
            let error = value.get("error").and_then(|e| e.as_str()).map(str::to_owned);
            match error {
                Some(error) => Ok(Err(anyhow!(error))),
                None => serde_json::from_value(value).map(Ok),
            }
        });
        match parsed {
            Ok(answer) => answer,
            Err(error) => {
                self.end(Duration::ZERO);
                let text = String::from_utf8_lossy(&line);
                let start: String = text.trim_end().chars().take(80).collect();
                bail!("not an answer ({error}): {start}");
            }
        }
    }

    /// The last line of its standard error, in brackets; empty where there is none.
    fn last_words(&self) -> String {
        let text = fs::read(self.scratch.file("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(String::new, |line| format!(": {}", line.trim()))
    }

    /// Closes its pipe, gives it some time to end, then ends it.
    fn end(&mut self, limit: Duration) {
        self.input = None;
        let start = Instant::now();
        while start.elapsed() < limit {
            match self.child.try_wait() {
                Ok(None) => {}
                Ok(Some(_)) => return,
                Err(_) => break,
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(END_LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = r#"echo '{"name":"fake","version":"1","routes":1,"refused":0,"build_ms":1.5,"bytes":null}'"#;

    fn launch(script: &str, limit: Duration) -> Result<Peer<u32>> {
        let mut command = Command::new("sh");
        command.args(["-c", script, "fake"]);
        let routes = [("10.0.0.0/8".parse().unwrap(), 1)];
        Peer::launch("fake", command, &routes, limit)
    }

    pub(super) fn fake(script: &str) -> Peer<u32> {
        launch(&format!("{HELLO}; {script}"), LOAD_LIMIT).unwrap()
    }

    pub(super) fn text(error: &anyhow::Error) -> String {
        format!("{error:#}")
    }

    #[test]
    fn it_is_told_the_family_and_the_table() {
        let peer = launch(
            r#"read -r prefix hop < "$2"; echo '{"name":"'"$1 $prefix $hop"'","version":"1","routes":1,
"refused":0,"build_ms":0.5,"bytes":7,"note":"n"}' | tr -d '\n'; echo; cat > /dev/null"#,
            LOAD_LIMIT,
        )
        .unwrap();
        assert_eq!((peer.info().name.as_str(), peer.info().bytes), ("4 10.0.0.0/8 1", Some(7)));
    }

    #[test]
    fn one_that_dies_says_why() {
        let error =
            launch("cat < /dev/null; echo 'out of luck' >&2; exit 3", LOAD_LIMIT).unwrap_err();
        assert!(text(&error).contains("exit status: 3): out of luck"), "{error:#}");
        let mut peer = fake("read -r line; exit 0");
        let error = peer.turn(Mode::Batch, Duration::from_millis(1)).unwrap_err();
        assert!(text(&error).contains("fake: turn batch 1: ended (exit status: 0)"), "{error:#}");
        let error = peer.bytes().unwrap_err();
        assert!(text(&error).contains("was ended"), "{error:#}");
        assert!(launch("exec no-such-program-here", LOAD_LIMIT).is_err());
    }

    #[test]
    fn one_that_hangs_is_ended() {
        let start = Instant::now();
        let error = launch("exec sleep 1000", Duration::from_millis(50)).unwrap_err();
        assert!(
            text(&error).contains("fake: loading the table: no answer within 0.05 s"),
            "{error:#}"
        );
        // One that does not care about its pipe.
        drop(fake("exec sleep 1000"));
        assert!(start.elapsed() < Duration::from_secs(100));
    }

    #[test]
    fn garbage_is_not_an_answer() {
        let error = launch("echo Hello; cat > /dev/null", LOAD_LIMIT).unwrap_err();
        assert!(text(&error).contains("not an answer") && text(&error).ends_with(": Hello"));
        let error = launch("head -c 100000 /dev/zero; exec sleep 1000", LOAD_LIMIT).unwrap_err();
        assert!(text(&error).contains("not an answer"), "{error:#}");
        let mut peer =
            fake(r#"read -r line; echo '{"lookups":0,"ns":5,"cpu_ns":5}'; cat > /dev/null"#);
        let error = peer.turn(Mode::Single, Duration::from_millis(1)).unwrap_err();
        assert!(text(&error).contains("a turn of 0 in 5 ns"), "{error:#}");
        let mut peer = fake(r#"read -r line; echo '{"lookups":"many"}'; cat > /dev/null"#);
        assert!(peer.turn(Mode::Single, Duration::from_millis(1)).is_err());
    }

    #[test]
    fn errors_are_passed_on_and_it_goes_on() {
        let mut peer = fake(
            r#"read -r line; echo '{"error":"no keys"}'
            read -r line; echo '{"unsupported":"immutable"}'
            read -r line; echo '{"changes":2}'
            read -r line; echo '{"changes":3}'
            read -r update ms file; printf '\001\000\000\000\000\001\000\000' > "$file"
            echo '{"updates":4,"ns":3,"cpu_ns":2,"timed":2,"failed":1}'
            read -r line; echo '{"updates":4,"ns":3,"cpu_ns":2,"timed":3,"failed":1}'
            read -r line; echo '{"ok":true,"failed":9}'
            read -r line; echo '{"keys":7}'
            read -r keys file; : > "$file"; echo '{"ok":true}'"#,
        );
        let error = peer.turn(Mode::Dependent, Duration::from_millis(1)).unwrap_err();
        assert_eq!(text(&error), "fake: turn dependent 1: no keys");
        let prefix = "10.0.0.0/8".parse().unwrap();
        let changes = [(prefix, NextHopId::NONE), (prefix, NextHopId(1))];
        assert_eq!(peer.set_changes(&changes).unwrap().as_deref(), Some("immutable"));
        assert_eq!(peer.set_changes(&changes).unwrap(), None);
        let error = peer.set_changes(&changes).unwrap_err();
        assert_eq!(text(&error), "fake: took 3 changes");
        let updates = peer.update(Duration::from_millis(1)).unwrap();
        assert_eq!((updates.turn.count, updates.done, updates.failed), (4, 6, 1));
        assert_eq!(updates.each_ns, [1, 256]);
        let error = peer.update(Duration::from_millis(1)).unwrap_err();
        assert_eq!(text(&error), "fake: 8 bytes for 3 updates");
        assert_eq!(peer.finish_changes().unwrap(), 9);
        let error = peer.set_keys(&[1, 2]).unwrap_err();
        assert_eq!(text(&error), "fake: took 7 keys");
        peer.keys = 2;
        let error = peer.answers().unwrap_err();
        assert_eq!(text(&error), "fake: 0 bytes of answers to 2 keys");
    }

    /// Nothing of ours runs while a peer works: not a thread that reads, not a loop that looks.
    #[test]
    fn waiting_costs_no_processor_time() {
        let mut peer = fake(r#"read -r line; sleep 0.3; echo '{"bytes":5}'"#);
        let start = crate::measure::Clock::Thread.now();
        assert_eq!(peer.bytes().unwrap(), Some(5));
        let spent = crate::measure::Clock::Thread.now() - start;
        assert!(spent < Duration::from_millis(50), "{spent:?}");
    }

    #[test]
    fn answers_come_in_pieces_and_several_at_once() {
        let mut peer = fake(
            r#"read -r line; printf '{"by'; sleep 0.05; printf 'tes":5}\n{"bytes":6}\n{"byt'
            sleep 0.05; printf 'es":7}\n{"bytes'"#,
        );
        for bytes in 5..8 {
            assert_eq!(peer.bytes().unwrap(), Some(bytes));
        }
        let error = peer.bytes().unwrap_err();
        assert!(text(&error).contains(r#"not an answer"#), "{error:#}");
    }

    #[test]
    fn one_that_is_dropped_at_work_is_ended_and_reaped() {
        let mut peer = fake("while :; do :; done");
        let id = peer.process.child.id();
        assert!(Path::new(&format!("/proc/{id}")).exists());
        peer.process.end(Duration::from_millis(20));
        // Not even a zombie is left.
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        let start = Instant::now();
        drop(peer);
        assert!(start.elapsed() < END_LIMIT);
    }

    #[test]
    fn nothing_is_left_behind() {
        let peer = fake("cat > /dev/null");
        let folder = peer.process.scratch.path().to_owned();
        assert!(folder.is_dir());
        drop(peer);
        assert!(!folder.exists());
    }
}
