//! Pieces of the programs of others: what every forwarder in XDP does before and after its lookup.
//!
//! Registers: R6 the context, R7 the frame, R8 its end. What is not to be forwarded goes to `pass`.

use std::os::fd::AsFd;

use anyhow::Result;
use fingerpost_io::xdp::asm::Reg::{R1, R2, R3, R6, R7, R8};
use fingerpost_io::xdp::asm::Width::{Byte, Half, Word};
use fingerpost_io::xdp::asm::{Asm, Helper, Label, Reg, When, be16};
use fingerpost_io::xdp::bpf::{Link, Map, MapKind, Program};
use fingerpost_io::xdp::{Mode, XDP_ABORTED};

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

/// A program at the ingress.
pub(super) fn attach(program: &Program) -> Result<Link> {
    Ok(program.attach(LINKS[0], Mode::Native)?)
}

/// Reads the frame; only whole headers of the family, without options, with hops left, continue.
pub(super) fn begin(a: &mut Asm, family: u8, pass: Label) {
    let (kind, end, ttl) = if family == 4 { (0x0800, 34, 22) } else { (0x86dd, 54, 21) };
    a.set(R6, R1).load(Word, R7, R6, 0).load(Word, R8, R6, 4);
    a.set(R1, R7).add(R1, end).branch(R1, When::Gt, R8, pass);
    a.load(Half, R1, R7, 12).branch(R1, When::Ne, be16(kind), pass);
    if family == 4 {
        a.load(Byte, R1, R7, 14).branch(R1, When::Ne, 0x45, pass);
    }
    a.load(Byte, R1, R7, ttl).branch(R1, When::Le, 1, pass);
}

/// One hop less, and the header checksum to it (RFC 1141).
pub(super) fn age(a: &mut Asm, family: u8) {
    if family == 4 {
        a.load(Half, R1, R7, 24).add(R1, be16(0x0100));
        // What overflows comes in below; 0xffff is another word for zero.
        a.set(R2, R1).add(R2, 1).shr(R2, 16).add(R1, R2).store(Half, R7, 24, R1);
    }
    let ttl = if family == 4 { 22 } else { 21 };
    a.load(Byte, R1, R7, ttl).sub(R1, 1).store(Byte, R7, ttl, R1);
}

/// Ends the program: out by the link whose number is in `link`.
pub(super) fn redirect(a: &mut Asm, link: Reg, ports: &Map) {
    a.set(R2, link).set_map(R1, ports.as_fd()).set(R3, XDP_ABORTED);
    a.call(Helper::RedirectMap).exit();
}
