//! Programs of others (`others.c`): what they need, and where they are attached.

use std::os::fd::AsFd;

use anyhow::Result;
use fingerpost_io::xdp::Mode;
use fingerpost_io::xdp::bpf::{Link, Map, MapKind, Program};
use fingerpost_io::xdp::load::{self, Bound};

use crate::forward::world::LINKS;

/// A device map with the router's links under their own numbers; made in the router's namespace.
pub(super) fn ports() -> Result<Map> {
    let entries = LINKS.iter().max().map_or(0, |&last| last + 1);
    let ports = Map::new(MapKind::DevMap, "ports", 4, 4, entries)?;
    for link in LINKS {
        ports.update(&link.to_ne_bytes(), &link.to_ne_bytes())?;
    }
    Ok(ports)
}

/// A function of `others.c` for one family, with its maps by name.
pub(super) fn load(function: &'static str, v6: bool, maps: &[(&str, &Map)]) -> Result<Program> {
    let code = load::link(include_bytes!("others.o"), function, |name| match name {
        "v6" => Some(Bound::Number(v6.into())),
        "link" => Some(Bound::Number(LINKS[1].into())),
        _ => maps.iter().find(|map| map.0 == name).map(|map| Bound::Map(map.1.as_fd())),
    });
    Ok(Program::load(function, &code)?)
}

/// A program at the ingress.
pub(super) fn attach(program: &Program) -> Result<Link> {
    Ok(program.attach(LINKS[0], Mode::Native)?)
}

/// Hands all to the kernel, at the ingress. A frame that is redirected into a veth arrives only where a program or GRO is.
pub(crate) fn let_in() -> Result<Link> {
    attach(&load("pass", false, &[])?)
}
