//! Linux forwards, with the same table, in a thread of its own (threaded NAPI) that is kept on the router's core.
//!
//! Otherwise it would work in the sender's core and slow that down, and nothing could be offered to it that it does not
//! take.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fingerpost_io::xdp::Link;
use rustix::thread::Pid;

use super::packets::Does;
use super::{Forwarder, Row, Scene, Stand};
use crate::cores;
use crate::document::Kind;
use crate::xdp::engine::let_in;
use crate::xdp::lab::{Lab, set_forwarding};

pub(super) const KERNEL: Row = Row {
    name: "kernel-v4",
    summary: "Linux forwards, with the same table, in a thread on the router's core",
    kind: Kind::Peer,
    kernel_table: true,
    does: Does::Routes,
    begin,
};

/// How long its thread may take to be there.
const PATIENCE: Duration = Duration::from_secs(2);

struct Kernel<'a> {
    lab: &'a Lab,
    _attached: Link,
}

impl Forwarder for Kernel<'_> {
    fn end(self: Box<Self>) -> String {
        String::new()
    }
}

impl Drop for Kernel<'_> {
    fn drop(&mut self) {
        // What other rows leave to the kernel must not arrive as if they had forwarded it. Where this fails, so
        // does the next turn.
        let _ = self.lab.router.inside(|| set_forwarding(false));
        let _ = set_threaded(self.lab, false);
    }
}

fn begin<'a>(stand: &'a Stand) -> Result<Scene<'a>> {
    let lab = stand.lab(1)?;
    let attached = lab.router.inside(|| {
        set_forwarding(true)?;
        let_in()
    })?;
    let forwarder = Kernel { lab, _attached: attached };
    // Links of other namespaces may have the same name.
    let others = threads_of("r0");
    set_threaded(lab, true)?;
    let start = Instant::now();
    while !threads_of("r0")
        .into_iter()
        .any(|thread| !others.contains(&thread) && cores::keep(Some(thread), stand.last_core()))
    {
        ensure!(start.elapsed() < PATIENCE, "needs to see the kernel's threads");
        std::thread::sleep(Duration::from_millis(1));
    }
    let ends = stand.ends(lab, Does::Routes, 1)?;
    Ok(Scene { ends: Box::new(ends), forwarder: Box::new(forwarder) })
}

/// Sets it by the file of the link that is seen in a view of files with the namespace's own `/sys`.
fn set_threaded(lab: &Lab, threaded: bool) -> Result<()> {
    let value = u8::from(threaded);
    let words = format!("mount -t sysfs sysfs /sys && echo {value} > /sys/class/net/r0/threaded");
    let mut command = lab.router.command("unshare");
    let output = command.args(["--mount", "sh", "-c", &words]).stderr(Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "threaded NAPI: {}", said.trim());
    Ok(())
}

/// Kernel threads that serve links of that name: `napi/LINK-NUMBER`.
fn threads_of(link: &str) -> Vec<Pid> {
    let wanted = format!("napi/{link}-");
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let named = |entry: &std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("comm"))
            .is_ok_and(|name| name.starts_with(&wanted))
    };
    let all = entries.filter_map(Result::ok).filter(named);
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).collect()
}
