//! A network namespace of our own for programs that change routes, and programs in it.
//!
//! It goes with us and its last process, with all that is in it. Nothing has a name on the host.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fingerpost_io::namespace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::scratch::Scratch;

/// Time between two checks of a program that is waited for.
const TICK: Duration = Duration::from_millis(1);

/// The namespace.
pub(crate) struct Namespace {
    net: namespace::Namespace,
    scratch: Scratch,
}

impl Namespace {
    /// Makes one, and a folder for files.
    ///
    /// # Errors
    /// What is missing: the privilege, or the programs `unshare`, `nsenter` and `ip`.
    pub(crate) fn new() -> Result<Self> {
        for program in ["unshare", "nsenter", "ip"] {
            need(program)?;
        }
        let denied = |error: &std::io::Error| error.kind() == ErrorKind::PermissionDenied;
        let net = namespace::Namespace::new().map_err(|error| match denied(&error) {
            true => anyhow!("needs root"),
            false => anyhow!("needs network namespaces: {error}"),
        })?;
        Ok(Self { net, scratch: Scratch::new("lab")? })
    }

    /// A file of the folder that goes with the namespace.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// A command in the namespace.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.net.command(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs `ip` with these words.
    ///
    /// # Errors
    /// When it fails, with its message.
    pub(crate) fn ip(&self, words: &str) -> Result<()> {
        let output = self.command("ip").args(words.split(' ')).stderr(Stdio::piped()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ip {words}: {}", said.trim());
        Ok(())
    }

    /// Runs `ip` with these lines.
    ///
    /// # Errors
    /// When it fails, with its first message.
    pub(crate) fn batch(
        &self,
        write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<()> {
        let file = self.file("batch");
        write_lines(&file, write)?;
        let mut command = self.command("ip");
        let output = command.arg("-batch").arg(&file).stderr(Stdio::piped()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ip: {}", said.lines().next().unwrap_or(""));
        Ok(())
    }

    /// Its path, for `ip link ... netns`.
    pub(crate) fn path(&self) -> String {
        self.net.path()
    }

    /// Calls `work` with this thread in the namespace; afterwards it is back.
    ///
    /// # Errors
    /// Those of `work`, or when the thread may not.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.net.inside(work).context("needs the right to enter namespaces")?
    }

    /// A link that is up, with these addresses, and an end of it that nobody looks at.
    ///
    /// # Errors
    /// When the kernel has no veth pairs.
    pub(crate) fn link(&self, name: &str, addrs: &[String]) -> Result<()> {
        self.ip(&format!("link add {name} type veth peer name {name}x"))?;
        self.ip(&format!("link set {name}x up"))?;
        self.ip(&format!("link set {name} up"))?;
        for addr in addrs {
            let nodad = if addr.contains(':') { " nodad" } else { "" };
            self.ip(&format!("addr add {addr} dev {name}{nodad}"))?;
        }
        Ok(())
    }

    /// Runs a command to its end; how long it took, by the clock of the wall.
    ///
    /// # Errors
    /// When it fails or is ended because it took longer than `limit`.
    pub(crate) fn timed(&self, command: &mut Command, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        let mut child = command.spawn()?;
        loop {
            if let Some(status) = child.try_wait()? {
                ensure!(status.code().is_some(), "{status}");
                return Ok(start.elapsed());
            }
            if start.elapsed() > limit {
                let _ = child.kill();
                let _ = child.wait();
                bail!("longer than {} s", limit.as_secs());
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Whether there is such a program.
///
/// # Errors
/// That it is needed.
pub(crate) fn need(program: &str) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where servers are is not on everybody's path.
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    ensure!(folders.iter().any(|folder| folder.join(program).is_file()), "needs {program}");
    Ok(())
}

/// A program that answers lines with lines, over its pipes. Ended when dropped.
pub(crate) struct Talk {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    /// What it wrote after the last line that was taken.
    rest: Vec<u8>,
}

impl Talk {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let to = child.stdin.take().context("standard input is a pipe")?;
        let from = child.stdout.take().context("standard output is a pipe")?;
        Ok(Self { child, to, from, rest: Vec::new() })
    }

    /// Sends lines.
    ///
    /// # Errors
    /// When the program is gone.
    pub(crate) fn say(&mut self, lines: &str) -> Result<()> {
        self.to.write_all(lines.as_bytes())?;
        self.to.flush()?;
        Ok(())
    }

    /// The next line, without its end.
    ///
    /// # Errors
    /// When none comes until then, or the program ended.
    pub(crate) fn line(&mut self, until: Instant) -> Result<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line = String::from_utf8_lossy(&self.rest[..end]).into_owned();
                self.rest.drain(..=end);
                return Ok(line);
            }
            let left = until.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "no answer");
            let limit = Timespec::try_from(left)?;
            let mut waiting = [PollFd::new(&self.from, PollFlags::IN)];
            ensure!(poll(&mut waiting, Some(&limit))? > 0, "no answer");
            let mut piece = [0; 1 << 12];
            let len = self.from.read(&mut piece)?;
            ensure!(len > 0, "the program ended");
            self.rest.extend_from_slice(&piece[..len]);
        }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a file of lines.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_lines(
    file: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<()> {
    let open = || -> std::io::Result<()> {
        let mut to = std::io::BufWriter::new(fs::File::create(file)?);
        write(&mut to)?;
        to.flush()
    };
    open().with_context(|| file.display().to_string())
}
