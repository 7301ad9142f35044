//! What nothing can beat: a packet that is dropped where it comes in, and one that goes out as it came.

use std::any::Any;

use anyhow::Result;
use fingerpost_io::xdp::bpf::{Map, Program};

use super::{Engine, Frames, Row, code};
use crate::document::Kind;
use crate::forward::world::{self, LINKS};
use crate::traffic::Meter;

pub(super) const DROP: Row = Row {
    name: "xdp-drop",
    summary: "the meter itself at the ingress: generator and reception alone",
    by_family: false,
    kind: Kind::Ceiling,
    checked: false,
    loses: false,
    program: false,
    kernel_table: false,
    frames: Frames::Packets,
    make: |_, _| Ok(Box::new(Drop)),
};

pub(in crate::xdp) const BARE: Row = Row {
    name: "bare-redirect",
    summary: "bpf_redirect_map to one egress, the packet as it is",
    by_family: false,
    kind: Kind::Ceiling,
    checked: false,
    loses: false,
    program: false,
    kernel_table: false,
    frames: Frames::Packets,
    make: |_, _| Ok(Box::new(Bare::new()?)),
};

struct Drop;

impl Engine for Drop {
    fn attach(&self, meter: &Meter) -> Result<Box<dyn Any>> {
        Ok(Box::new(meter.attach(LINKS[0], world::link_mac(LINKS[0]).0)?))
    }
}

struct Bare {
    program: Program,
    _ports: Map,
}

impl Bare {
    fn new() -> Result<Self> {
        let ports = code::ports()?;
        Ok(Self { program: code::load("bare", false, &[("ports", &ports)])?, _ports: ports })
    }
}

impl Engine for Bare {
    fn attach(&self, _: &Meter) -> Result<Box<dyn Any>> {
        Ok(Box::new(code::attach(&self.program)?))
    }
}
