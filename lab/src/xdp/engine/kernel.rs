//! The kernel's table: used by the kernel itself, and by a program with `bpf_fib_lookup`.
//!
//! The second is what `xdp-forward` of xdp-tools does, and the samples of the kernel before it; here for one family at
//! a time, which spares it a branch.

use std::any::Any;

use anyhow::Result;
use fingerpost_io::xdp::bpf::{Map, Program};

use super::{Engine, Frames, Row, code};
use crate::document::Kind;
use crate::traffic::Meter;

pub(super) const KERNEL: Row = Row {
    name: "kernel",
    summary: "Linux forwards, with the same table",
    by_family: true,
    kind: Kind::Peer,
    checked: true,
    loses: false,
    program: false,
    kernel_table: true,
    frames: Frames::Packets,
    make: |_, _| Ok(Box::new(Kernel)),
};

pub(super) const HELPER: Row = Row {
    name: "fib-lookup-helper",
    summary: "an XDP program with bpf_fib_lookup, on the kernel's table",
    by_family: false,
    kind: Kind::Peer,
    checked: true,
    loses: false,
    program: true,
    kernel_table: true,
    frames: Frames::Packets,
    make: |_, family| Ok(Box::new(Asks::new(family)?)),
};

struct Kernel;

impl Engine for Kernel {
    fn attach(&self, _: &Meter) -> Result<Box<dyn Any>> {
        Ok(Box::new(code::let_in()?))
    }
}

struct Asks {
    program: Program,
    _ports: Map,
}

impl Asks {
    fn new(family: u8) -> Result<Self> {
        let ports = code::ports()?;
        Ok(Self {
            program: code::load("helper", family == 6, &[("ports", &ports)])?,
            _ports: ports,
        })
    }
}

impl Engine for Asks {
    fn attach(&self, _: &Meter) -> Result<Box<dyn Any>> {
        Ok(Box::new(code::attach(&self.program)?))
    }

    fn alone(&self, time: &mut dyn FnMut(&Program) -> Result<f64>) -> Result<f64> {
        time(&self.program)
    }
}
