//! A peer at work: a child process that answers a line of JSON to each line that it is sent.
//!
//! Every answer has a limit. A peer that exceeds it, dies or answers with something else is ended, and
//! the error says so with the last line that it wrote to standard error.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fingerpost_lpm::{Addr, NextHopId, Prefix};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Row;
use crate::document::Mode;
use crate::table::Table;

/// How long a peer may take to read and build its table.
pub const LOAD_LIMIT: Duration = Duration::from_secs(60);

/// How long it may take for anything else, beyond the time that it was told to work.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// How long it may take to end when its pipe is closed.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The longest line that is an answer.
const LINE_BYTES: u64 = 1 << 16;

/// What a peer says of itself once its table is built.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Info {
    /// Its own name.
    pub engine: String,
    /// Library and version.
    pub version: String,
    /// Routes that it was given.
    pub routes: u64,
    /// Routes that it refused; lookups in them are answered wrong.
    pub refused: u64,
    /// Time to build, without reading the file.
    pub build_ms: f64,
    /// The lookup structure; `None` where the library does not tell.
    pub bytes: Option<u64>,
    /// What a reader of its numbers must know.
    #[serde(default)]
    pub note: String,
}

/// Which function of its library a peer found fastest on the present keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Functions {
    /// In batches.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Updates {
    /// Updates done, and how long they took.
    pub turn: Turn,
    /// Updates that the library refused.
    pub failed: u64,
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
    /// not the row's, or it does not load the table within [`LOAD_LIMIT`].
    pub fn start(row: &Row, table: &Table<A>) -> Result<Self> {
        ensure!(row.family == A::FAMILY, "{} is for IPv{}", row.name, row.family);
        ensure!(row.is_built(), "needs cargo xtask peers {}", row.program.name);
        let mut command = row.command();
        command.arg(row.engine);
        Self::launch(row.name, command, &table.routes, LOAD_LIMIT)
    }

    fn launch(
        name: &str,
        mut command: Command,
        routes: &[(Prefix<A>, u32)],
        limit: Duration,
    ) -> Result<Self> {
        let scratch = Scratch::new()?;
        let file = scratch.file("table");
        write_routes(&file, routes)?;
        command.arg(A::FAMILY.to_string()).arg(&file);
        let mut process = Process::start(command, scratch).with_context(|| name.to_owned())?;
        let info = process.reply(limit).with_context(|| name.to_owned())?;
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
        let functions = Functions::default();
        Ok(Self { name: name.to_owned(), process, info, functions, keys: 0, family: PhantomData })
    }

    /// What it said of itself when its table was built.
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

    /// Looks up keys for at least `time`, going on where the last turn ended.
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

    /// Withdraws and announces again each of `routes`, over and over, for at least `time`. They must
    /// be routes of its table. `None` where the library has no updates.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn update(
        &mut self,
        routes: &[(Prefix<A>, u32)],
        time: Duration,
    ) -> Result<Option<Updates>> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Reply {
            Done {
                updates: u64,
                ns: u64,
                cpu_ns: u64,
                failed: u64,
            },
            None {
                #[serde(rename = "unsupported")]
                _reason: String,
            },
        }
        let file = self.process.scratch.file("updates");
        write_routes(&file, routes)?;
        let line = format!("update {} {}", file.display(), time.as_millis().max(1));
        match self.ask(&line, REPLY_LIMIT + time)? {
            Reply::None { .. } => Ok(None),
            Reply::Done { updates, ns, cpu_ns, failed } => {
                let turn = turn(updates, ns, cpu_ns).with_context(|| self.name.clone())?;
                Ok(Some(Updates { turn, failed }))
            }
        }
    }

    /// Bytes of the lookup structure now; `None` where the library does not tell.
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

fn write_routes<A: Addr>(file: &Path, routes: &[(Prefix<A>, u32)]) -> Result<()> {
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

/// A folder for the files that a peer is handed, gone with it.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: a counter, nothing is published by it.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("fingerpost-peer-{}-{number}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nobody is left to tell; what stays behind stays in the system's folder for that.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The child and the two ends that we hold.
#[derive(Debug)]
struct Process {
    child: Child,
    /// `None` once it was told to end.
    input: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    scratch: Scratch,
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
        let (sender, lines) = mpsc::channel();
        // Reading blocks, so a thread does it; it ends with the child's output, or with us.
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while matches!((&mut output).take(LINE_BYTES).read_until(b'\n', &mut line), Ok(1..)) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, lines, scratch })
    }

    fn ask<R: DeserializeOwned>(&mut self, line: &str, limit: Duration) -> Result<R> {
        let input = self.input.as_mut().context("was ended")?;
        // A pipe that nobody reads any more shows again, with its reason, when the reply is missing.
        let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        self.reply(limit).with_context(|| line.to_owned())
    }

    /// The next line, if it comes in time and says what is asked. A peer that dies, hangs or cannot be
    /// understood is ended; one that answers with an `error` goes on.
    fn reply<R: DeserializeOwned>(&mut self, limit: Duration) -> Result<R> {
        let line = match self.lines.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                self.end(Duration::ZERO);
                bail!("no answer within {} s", limit.as_secs_f64());
            }
            Err(RecvTimeoutError::Disconnected) => {
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

    /// The last line of its standard error, in brackets; empty where it said nothing.
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
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
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

    const HELLO: &str = r#"echo '{"engine":"fake","version":"1","routes":1,"refused":0,"build_ms":1.5,"bytes":null}'"#;

    fn launch(script: &str, limit: Duration) -> Result<Peer<u32>> {
        let mut command = Command::new("sh");
        command.args(["-c", script, "fake"]);
        let routes = [("10.0.0.0/8".parse().unwrap(), 1)];
        Peer::launch("fake", command, &routes, limit)
    }

    fn fake(script: &str) -> Peer<u32> {
        launch(&format!("{HELLO}; {script}"), LOAD_LIMIT).unwrap()
    }

    fn text(error: &anyhow::Error) -> String {
        format!("{error:#}")
    }

    #[test]
    fn it_is_told_the_family_and_the_table() {
        let peer = launch(
            r#"read -r prefix hop < "$2"; echo '{"engine":"'"$1 $prefix $hop"'","version":"1","routes":1,
"refused":0,"build_ms":0.5,"bytes":7,"note":"n"}' | tr -d '\n'; echo; cat > /dev/null"#,
            LOAD_LIMIT,
        )
        .unwrap();
        assert_eq!((peer.info().engine.as_str(), peer.info().bytes), ("4 10.0.0.0/8 1", Some(7)));
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
        assert!(text(&error).contains("fake: no answer within 0.05 s"), "{error:#}");
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
            read -r line; echo '{"updates":4,"ns":3,"cpu_ns":2,"failed":1}'
            read -r line; echo '{"keys":7}'
            read -r keys file; : > "$file"; echo '{"ok":true}'"#,
        );
        let error = peer.turn(Mode::Dependent, Duration::from_millis(1)).unwrap_err();
        assert_eq!(text(&error), "fake: turn dependent 1: no keys");
        let routes = [("10.0.0.0/8".parse().unwrap(), 1)];
        assert_eq!(peer.update(&routes, Duration::from_millis(1)).unwrap(), None);
        let updates = peer.update(&routes, Duration::from_millis(1)).unwrap().unwrap();
        assert_eq!((updates.turn.count, updates.failed), (4, 1));
        let error = peer.set_keys(&[1, 2]).unwrap_err();
        assert_eq!(text(&error), "fake: took 7 keys");
        peer.keys = 2;
        let error = peer.answers().unwrap_err();
        assert_eq!(text(&error), "fake: 0 bytes of answers to 2 keys");
    }

    #[test]
    fn nothing_is_left_behind() {
        let peer = fake("cat > /dev/null");
        let folder = peer.process.scratch.0.clone();
        assert!(folder.is_dir());
        drop(peer);
        assert!(!folder.exists());
    }
}
