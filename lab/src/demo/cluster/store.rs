//! etcd for the demo, in the namespace of the hosts: it has the members of the cluster.
//!
//! Shape:  a bridge with an address, and an interface `manage` of each node at it. etcd's data lie in a folder that goes with
//!         the namespace.
//! Limits: one server, without TLS.

use std::process::Child;

use anyhow::{Context, Result, ensure};

use super::plan::ID;
use crate::namespace::{Namespace, need};
use crate::program;

/// Address of the server.
const ADDR: &str = "172.16.0.254";
/// Time to live of a node's record: a node that was killed starts once it is over.
const TTL_S: u32 = 2;

/// The server. Ends when this is dropped.
pub(super) struct Store(Child);

/// Connects all nodes with the namespace of the server.
///
/// # Errors
/// When the kernel refuses an interface.
fn connect<'a>(outside: &Namespace, nodes: impl Iterator<Item = &'a Namespace>) -> Result<()> {
    outside.batch(|to| {
        writeln!(to, "link set lo up")?;
        writeln!(to, "link add manage type bridge")?;
        writeln!(to, "addr add {ADDR}/24 dev manage")?;
        writeln!(to, "link set manage up")
    })?;
    for ((node, id), n) in nodes.zip(ID).zip(1..) {
        node.batch(|to| {
            let path = outside.path();
            writeln!(to, "link add manage type veth peer name m{id} netns {path}")?;
            writeln!(to, "addr add 172.16.0.{n}/24 dev manage")?;
            writeln!(to, "link set manage up")
        })?;
        outside.ip(&format!("link set dev m{id} master manage up"))?;
    }
    Ok(())
}

impl Store {
    /// Connects the nodes with it, and starts it.
    ///
    /// # Errors
    /// When etcd is not installed, or this build of the program has no client for it.
    pub(super) fn start<'a>(
        outside: &Namespace,
        nodes: impl Iterator<Item = &'a Namespace>,
    ) -> Result<Self> {
        need("etcd")?;
        has_client(outside)?;
        connect(outside, nodes)?;
        let (data, peer) = (outside.file("etcd"), "http://127.0.0.1:2380");
        let client = format!("http://{ADDR}:2379");
        // The kernel ends it with the thread that starts it.
        let mut etcd = outside.command("setpriv");
        etcd.args(["--pdeathsig", "KILL", "--", "etcd", "--data-dir"]).arg(data);
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
        etcd.args(["--initial-cluster", &format!("default={peer}")]);
        Ok(Self(etcd.spawn().context("etcd")?))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Keys of `[cluster]` for it.
pub(super) fn keys() -> String {
    format!("store = \"etcd\"\nendpoints = [\"http://{ADDR}:2379\"]\nttl_s = {TTL_S}\n")
}

/// Whether the program was built with it.
fn has_client(namespace: &Namespace) -> Result<()> {
    let file = namespace.file("store.toml");
    let text = format!(
        "[cluster]\nnode = \"a\"\n{}[[cluster.member]]\nid = \"a\"\nloopback = \"192.0.2.1\"\n\
         [[cluster.link]]\ninterface = \"int-b\"\n",
        keys()
    );
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    let mut check = namespace.command(&program::beside()?.to_string_lossy());
    let check = check.args(["config", "check"]).arg(&file).status();
    ensure!(check.is_ok_and(|status| status.success()), "fingerpost was built without etcd");
    Ok(())
}
