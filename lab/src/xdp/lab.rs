//! The lab of `bench xdp`, of the ports of `bench forward` and of the demo: a router with one ingress and two
//! egresses, and the far ends of its links.
//!
//! ```text
//! outside       router        outside
//!   s0 --------- r0  r1 -------- d0
//!                    r2 -------- d1
//! ```
//!
//! Two network namespaces without names, which go with the process. The router's links have the
//! numbers and MACs of [`world`], its neighbors are permanent, and
//! each next hop is an object: so the kernel has the table as the router of `bench forward` has it.
//! What would only slow the kernel down is off: the reverse path filter and the early lookup of sockets.

use std::process::Stdio;

use anyhow::{Context, Result};
use fingerpost_io::interface::index_of;
use fingerpost_lpm::Addr;

use crate::forward::world::{self, LINKS};
use crate::namespace::Namespace;
use crate::table::{Table, Tables};

/// Names of the router's links, in the order of [`LINKS`], and of their far ends.
const ROUTER: [&str; 3] = ["r0", "r1", "r2"];
const OUTSIDE: [&str; 3] = ["s0", "d0", "d1"];

/// Settings of the router, under `/proc/sys/net`. The first ones are for links to come.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/ip_early_demux", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
];

/// The namespaces and what is in them.
pub(crate) struct Lab {
    pub(crate) router: Namespace,
    pub(crate) outside: Namespace,
    /// The link, outside, that leads to the router's ingress.
    pub(crate) source: u32,
    /// The links, outside, that the router's egresses lead to.
    pub(crate) far: [u32; 2],
    /// Routes that the kernel did not take.
    pub(crate) refused: usize,
}

impl Lab {
    /// Makes it, with so many queues for each direction of a link.
    ///
    /// # Errors
    /// What is missing: a privilege or a program.
    pub(crate) fn new(queues: usize) -> Result<Self> {
        let (router, outside) = (Namespace::new()?, Namespace::new()?);
        outside.inside(|| set("ipv6/conf/default/disable_ipv6", "1"))?;
        router.inside(|| SETTINGS.iter().try_for_each(|(name, value)| set(name, value)))?;
        router.batch(|to| {
            writeln!(to, "link set lo up")?;
            for ((name, far), link) in ROUTER.iter().zip(OUTSIDE).zip(LINKS) {
                let mac = world::link_mac(link);
                let (each, path) =
                    (format!("numtxqueues {queues} numrxqueues {queues}"), outside.path());
                writeln!(
                    to,
                    "link add name {name} index {link} address {mac} {each} type veth \
                     peer name {far} {each} netns {path}"
                )?;
                writeln!(to, "link set {name} up")?;
            }
            // 198.18.0.0/15 and 2001:2::/48 are there for benchmarks (RFC 2544, RFC 5180).
            writeln!(to, "addr add 198.18.0.1/24 dev r0")?;
            writeln!(to, "addr add 2001:2::1/64 dev r0 nodad")
        })?;
        outside.batch(|to| OUTSIDE.iter().try_for_each(|far| writeln!(to, "link set {far} up")))?;
        let [source, d0, d1] = outside.inside(|| {
            let [s, a, b] = OUTSIDE.map(index_of);
            Ok([s?, a?, b?])
        })?;
        Ok(Self { router, outside, source, far: [d0, d1], refused: 0 })
    }

    /// Gives the kernel the tables.
    ///
    /// # Errors
    /// When it takes no next hop.
    pub(crate) fn fill(&mut self, tables: &Tables) -> Result<()> {
        if let Some(table) = &tables.v4 {
            self.refused += self.fill_family(table)?;
        }
        if let Some(table) = &tables.v6 {
            self.refused += self.fill_family(table)?;
        }
        Ok(())
    }

    /// Returns how many routes it refused.
    fn fill_family<A: Addr>(&self, table: &Table<A>) -> Result<usize> {
        let object = |hop| u32::from(A::FAMILY) << 20 | hop;
        let neighbors = self.router.batch(|to| {
            for hop in 1..=table.nexthops {
                let (addr, mac) = (world::hop_addr(A::FAMILY, hop), world::hop_mac(A::FAMILY, hop));
                let out = if world::egress_of(hop) == 0 { ROUTER[1] } else { ROUTER[2] };
                writeln!(to, "neigh add {addr} lladdr {mac} dev {out} nud permanent")?;
                let id = object(hop);
                writeln!(to, "nexthop add id {id} via {addr} dev {out} onlink")?;
            }
            Ok(())
        });
        neighbors.context("next-hop objects")?;
        let file = self.router.file("routes");
        crate::namespace::write_lines(&file, |to| {
            for &(prefix, hop) in &table.routes {
                writeln!(to, "route add {prefix} nhid {}", object(hop))?;
            }
            Ok(())
        })?;
        let mut command = self.router.command("ip");
        command.args(["-force", "-batch"]).arg(&file).stderr(Stdio::piped());
        let output = command.output().context("ip -batch")?;
        let said = String::from_utf8_lossy(&output.stderr);
        Ok(said.lines().filter(|line| line.starts_with("Command failed")).count())
    }
}

/// Whether the kernel forwards what comes in, where this thread is: in the router's namespace.
///
/// # Errors
/// When the kernel does not take the setting.
pub(crate) fn set_forwarding(forwards: bool) -> Result<()> {
    let value = if forwards { "1" } else { "0" };
    ["ipv4", "ipv6"]
        .iter()
        .try_for_each(|family| set(&format!("{family}/conf/all/forwarding"), value))
}

/// Sets a value of the thread's namespace.
fn set(name: &str, value: &str) -> Result<()> {
    std::fs::write(format!("/proc/sys/net/{name}"), value).with_context(|| name.to_owned())
}
