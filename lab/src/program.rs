//! The program `fingerpost` as a process: where it is, and one that runs until it is stopped.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

use crate::namespace::Namespace;

/// Time between two requests for the status of a program that starts.
const TICK: Duration = Duration::from_millis(20);
/// Longest time from the request to stop to the end.
const LONGEST_STOP: Duration = Duration::from_secs(30);

/// Path of `fingerpost`, beside the running program.
///
/// # Errors
/// When it is not there.
pub fn beside() -> Result<PathBuf> {
    let own = std::env::current_exe().context("path of this program")?;
    let path = own.with_file_name("fingerpost");
    ensure!(
        path.is_file(),
        "{}: not found; `cargo build --release --workspace` builds it there",
        path.display()
    );
    Ok(path)
}

/// A router, `fingerpost run`, in a network namespace. Killed when it is dropped or this program ends.
pub(crate) struct Router {
    child: Child,
    socket: PathBuf,
    report: PathBuf,
}

impl Router {
    /// Starts it with this configuration (TOML), and returns its messages too. The calling thread must live as long as
    /// the router.
    ///
    /// # Errors
    /// When a program is missing or a file cannot be written.
    pub(crate) fn start(namespace: &Namespace, config: &str) -> Result<(Self, Messages)> {
        let [file, socket, report] =
            ["router.toml", "router.sock", "router.json"].map(|name| namespace.file(name));
        fs::write(&file, config).with_context(|| file.display().to_string())?;
        let program = beside()?;
        // The kernel ends it with the thread that starts it.
        let mut command = namespace.command("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(program).arg("run").arg(&file);
        command.arg("--json").arg("--socket").arg(&socket).stderr(Stdio::piped());
        let to = File::create(&report).with_context(|| report.display().to_string())?;
        let mut child = command.stdout(to).spawn().context("setpriv")?;
        let messages = child.stderr.take().expect("standard error is a pipe");
        Ok((Self { child, socket, report }, Messages(BufReader::new(messages))))
    }

    /// Waits until as many interfaces are taken over.
    ///
    /// # Errors
    /// When it ends before, or takes longer than `limit`.
    pub(crate) fn wait(&mut self, interfaces: u64, limit: Duration) -> Result<()> {
        let start = Instant::now();
        while self.interfaces() != Some(interfaces) {
            if let Some(status) = self.child.try_wait()? {
                bail!("fingerpost run: {status}");
            }
            ensure!(start.elapsed() < limit, "fingerpost run: not ready after {limit:?}");
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Interfaces that it forwards on; `None` while it does not answer.
    pub(crate) fn interfaces(&self) -> Option<u64> {
        let status: serde_json::Value = self.request("/v1/status")?;
        status["interfaces"].as_u64()
    }

    /// Reply of its control socket to a request for this path; `None` while it does not answer.
    pub(crate) fn request<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        let (_, body) = reply.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// Kills it, without waiting for its end.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill()?)
    }

    /// Its exit status, once it has ended.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Stops it and returns its report.
    ///
    /// # Errors
    /// When it fails, does not end, or its report is not as expected.
    pub(crate) fn stop<T: DeserializeOwned>(mut self) -> Result<T> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process has a number")?, Signal::TERM)?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(start.elapsed() < LONGEST_STOP, "fingerpost run: does not end");
            std::thread::sleep(TICK);
        };
        ensure!(status.success(), "fingerpost run: {status}");
        let text = fs::read(&self.report).with_context(|| self.report.display().to_string())?;
        serde_json::from_slice(&text).context("the report of fingerpost run")
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Messages of a router, line by line.
pub(crate) struct Messages(BufReader<ChildStderr>);

impl Messages {
    /// Passes each line on until the router ends.
    pub(crate) fn pass_on(self, progress: &(dyn Fn(String) + Sync)) {
        for line in self.0.lines().map_while(Result::ok) {
            // `TIME fingerpost: MESSAGE`: the reader adds its own name.
            let message = line.split_once("fingerpost: ").map_or(&*line, |(_, message)| message);
            progress(message.to_owned());
        }
    }
}
