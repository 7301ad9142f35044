//! DPDK's testpmd over AF_XDP: it receives, writes two MACs and sends. It looks up nothing.
//!
//! What arrives is compared with what it must do: all packets to one host by the one egress, TTL, checksum and
//! addresses as they were. A program of its own: started in the router's namespace for a turn, and ended by its standard
//! input, or as that child.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::packets::{Does, peer};
use super::{Forwarder, Row, Scene, Stand};
use crate::document::Kind;
use crate::namespace::need;
use crate::xdp::lab::Lab;

pub(super) const TESTPMD: Row = Row {
    name: "testpmd-af_xdp",
    summary: "DPDK's testpmd over AF_XDP, forwarding by MAC: no lookup",
    kind: Kind::Peer,
    kernel_table: false,
    does: Does::Hands,
    begin,
};

/// How long it may take until a packet comes out.
const START: Duration = Duration::from_secs(30);
/// How long it may take to end.
const END: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(20);

/// Ours to end.
struct Testpmd<'a> {
    child: Child,
    lab: &'a Lab,
    /// Its egress.
    out: String,
}

impl Forwarder for Testpmd<'_> {
    fn end(self: Box<Self>) -> String {
        String::new()
    }
}

impl Drop for Testpmd<'_> {
    fn drop(&mut self) {
        // It forwards until Enter is pressed.
        if let Some(mut input) = self.child.stdin.take() {
            let _ = input.write_all(b"\n");
        }
        let start = Instant::now();
        while start.elapsed() < END && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(TICK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its programs stay on the links where it did not end by itself.
        for link in ["r0", &self.out] {
            let _ = self.lab.router.ip(&format!("link set dev {link} xdp off"));
        }
    }
}

fn begin<'a>(stand: &'a Stand) -> Result<Scene<'a>> {
    need("dpdk-testpmd")?;
    ensure!(stand.cores.len() > 1, "needs 2 cores");
    let lab = stand.lab(1)?;
    let (ours, its) = (stand.cores[0], stand.last_core());
    let mut command = lab.router.command("dpdk-testpmd");
    command.args(["-l", &format!("{ours},{its}"), &format!("--main-lcore={ours}")]);
    // No huge pages: they would have to be set aside for it.
    command.args(["--no-huge", "--no-shconf", "-m", "256", "--no-pci", "--no-telemetry"]);
    let out = format!("r{}", 1 + stand.packets.way);
    command.args(["--vdev", "net_af_xdp0,iface=r0", "--vdev", &format!("net_af_xdp1,iface={out}")]);
    let station = peer().map(|byte| format!("{byte:02x}")).join(":");
    command.args(["--", "--forward-mode=mac", &format!("--eth-peer=1,{station}"), "--nb-cores=1"]);
    command.args(["--no-mlockall", "--total-num-mbufs=32768"]);
    let child = command.stdin(Stdio::piped()).spawn().context("dpdk-testpmd")?;
    let mut forwarder = Testpmd { child, lab, out };
    let mut ends = stand.ends(lab, Does::Hands, 1)?;
    let start = Instant::now();
    while super::ends::Ends::warm(&mut ends)? == 0 {
        ensure!(forwarder.child.try_wait()?.is_none(), "testpmd ended");
        ensure!(start.elapsed() < START, "nothing came out of testpmd");
        std::thread::sleep(TICK);
    }
    Ok(Scene { ends: Box::new(ends), forwarder: Box::new(forwarder) })
}
