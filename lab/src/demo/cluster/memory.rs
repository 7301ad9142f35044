//! The nodes of the demo as threads of this process, between rings of shared memory: for an ordinary user.
//!
//! Limits: the hosts open their rings first and the node that is killed comes last to each of its own, so that the other
//!         ends wait for it when it is gone.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fingerpost_cluster::rule::Rule;
use fingerpost_packet::{Pool, Port};

use super::node::{Node, host_ring, open_ring};
use super::plan::{self, KILLED, NODES, others};
use super::{NodeView, Rack};
use crate::scratch::Scratch;

/// Longest time until a killed node is noticed.
const LONGEST: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(1);

/// The nodes.
pub(super) struct Memory {
    // Dropped in this order.
    nodes: Vec<Option<Node>>,
    hosts: Vec<Box<dyn Port>>,
    folder: Scratch,
    rule: Rule,
    ports: u8,
    starts: u32,
}

impl Memory {
    /// Starts them.
    ///
    /// # Errors
    /// When a ring or a thread cannot be had.
    pub(super) fn new(rule: Rule, ports: u8) -> Result<Self> {
        let folder = Scratch::new("cluster")?;
        let nodes = (0..NODES).map(|_| None).collect();
        let mut rack = Self { nodes, hosts: Vec::new(), folder, rule, ports, starts: 0 };
        let pool = Pool::new(1, 2048);
        for host in plan::hosts(ports) {
            rack.hosts.push(open_ring(rack.folder.path(), &host_ring(host), &pool)?);
        }
        for node in others(KILLED).chain([KILLED]) {
            rack.restart(node)?;
        }
        Ok(rack)
    }
}

impl Rack for Memory {
    fn mode(&self) -> &'static str {
        "memory"
    }

    fn routes(&self) -> &'static str {
        "static"
    }

    fn members(&self) -> &'static str {
        "configuration"
    }

    fn hosts(&mut self) -> Result<Vec<Box<dyn Port>>> {
        Ok(std::mem::take(&mut self.hosts))
    }

    fn look(&mut self) -> Result<Vec<Option<NodeView>>> {
        Ok(self.nodes.iter().map(|node| node.as_ref().map(Node::view)).collect())
    }

    fn kill(&mut self, node: usize) -> Result<Duration> {
        let dead = self.nodes[node].take().context("the node runs")?;
        let at = dead.kill();
        loop {
            let seen = others(node).filter_map(|other| self.nodes[other].as_ref());
            let links: Vec<_> = seen.map(|other| other.seen()[node]).collect();
            let noticed = |link: &Option<(bool, Instant)>| link.is_some_and(|(up, _)| !up);
            if links.iter().all(noticed) {
                let last = links.iter().flatten().map(|(_, when)| *when).max();
                return Ok(last.map_or(Duration::ZERO, |last| last.saturating_duration_since(at)));
            }
            ensure!(at.elapsed() < LONGEST, "nobody notices that a node is gone");
            thread::sleep(TICK);
        }
    }

    fn restart(&mut self, node: usize) -> Result<()> {
        self.starts += 1;
        let (boot, folder) = (self.starts, self.folder.path());
        self.nodes[node] = Some(Node::start(node, boot, self.rule, self.ports, folder)?);
        Ok(())
    }

    fn is_whole(&mut self) -> Result<bool> {
        let nodes = self.look()?;
        let links = nodes.iter().flatten().flat_map(|node| node.links.iter().flatten());
        Ok(links.filter(|link| link.up).count() == NODES * (NODES - 1))
    }
}
