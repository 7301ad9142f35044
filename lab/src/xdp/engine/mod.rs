//! Forwarders at the router's ingress, a file each. To add one: its file, its `mod` and its row.

mod afxdp;
mod ceiling;
mod cluster;
mod code;
mod kernel;
mod ours;
mod trie;

use std::any::Any;

use anyhow::{Result, bail};
use fingerpost_io::xdp::bpf::Program;

use crate::document::Kind;
use crate::named::named;
use crate::table::Tables;
use crate::traffic::Meter;

pub(super) use ceiling::BARE;
pub(super) use cluster::{Internal, are_for, internal};
pub(crate) use code::let_in;
pub(super) use ours::{OURS, Ours};

/// Something that forwards, of one family. What it needs was made before: only attaching is left.
pub(super) trait Engine {
    /// Begins to forward, from the first link of the present network namespace to the two others, until
    /// the guard is dropped. `meter` is what all packets end at.
    ///
    /// # Errors
    /// The kernel's error.
    fn attach(&self, meter: &Meter) -> Result<Box<dyn Any>>;

    /// Has its program timed by itself.
    ///
    /// # Errors
    /// When there is none, or those of `time`.
    fn alone(&self, time: &mut dyn FnMut(&Program) -> Result<f64>) -> Result<f64> {
        let _ = time;
        bail!("no program that does its work")
    }
}

/// Frames that a forwarder is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frames {
    /// Packets of the outside.
    Packets,
    /// Packets of the outside, of IPv4, that leave by other nodes of a cluster.
    Input,
    /// Internal frames of a cluster, of IPv4, for other nodes.
    Transit,
    /// Internal frames of a cluster, of IPv4, for this node.
    Output,
}

impl Frames {
    /// Whether there are such frames with packets of a family.
    pub(super) fn have(self, family: u8) -> bool {
        self == Self::Packets || family == 4
    }
}

/// Registry row.
#[derive(Debug)]
pub struct Row {
    /// What options call it.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Whether its runs are named by family.
    by_family: bool,
    pub(super) kind: Kind,
    /// Whether it forwards, so that packets must arrive as the table has it.
    pub(super) checked: bool,
    /// Whether packets may be lost before it, because it does not work on the core that sends.
    pub(super) loses: bool,
    /// Whether a program does the work, which can be timed by itself.
    pub(super) program: bool,
    /// Whether it uses the kernel's table.
    pub(super) kernel_table: bool,
    /// What it is sent.
    pub(super) frames: Frames,
    /// Makes one for a family, in the router's namespace.
    pub(super) make: fn(&Tables, u8) -> Result<Box<dyn Engine>>,
}

impl Row {
    /// What documents call its runs.
    pub(super) fn name(&self, family: u8) -> String {
        if self.by_family { format!("{}-v{family}", self.name) } else { self.name.to_owned() }
    }
}

static ROWS: &[&Row] = &[
    &ceiling::DROP,
    &ceiling::BARE,
    &cluster::INPUT,
    &cluster::TRANSIT,
    &cluster::OUTPUT,
    &kernel::KERNEL,
    &kernel::HELPER,
    &trie::TRIE,
    &ours::OURS,
    &afxdp::AFXDP,
];

/// Rows of the registry.
pub type Names = Vec<&'static Row>;

/// Forwarders by name, as options take them: `all`, or names with commas.
///
/// # Errors
/// When a name is none; the message lists those that are.
pub fn find(names: &str) -> Result<Names> {
    Ok(named("forwarder", ROWS, |row| row.name, names)?.into_iter().copied().collect())
}
