//! A map of kind `BPF_MAP_TYPE_LPM_TRIE`, which XDP routers use that do not use the kernel's table.
//!
//! Source: `kernel/bpf/lpm_trie.c`, a trie of one bit a step with paths compressed. A value holds all
//! that a packet needs, the MACs and the egress, so that nothing is read after it.

use std::any::Any;

use anyhow::{Context, Result};
use fingerpost_io::xdp::bpf::{Map, MapKind, Program};
use fingerpost_lpm::Addr;

use super::{Engine, Frames, Row, code};
use crate::document::Kind;
use crate::forward::world;
use crate::table::Table;
use crate::traffic::Meter;

pub(super) const TRIE: Row = Row {
    name: "lpm-trie-map",
    summary: "an XDP program with the table in an LPM_TRIE map",
    by_family: false,
    kind: Kind::Peer,
    checked: true,
    loses: false,
    program: true,
    kernel_table: false,
    frames: Frames::Packets,
    make: |tables, family| {
        let program = match (family, &tables.v4, &tables.v6) {
            (4, Some(table), _) => Trie::new(table),
            (_, _, Some(table)) => Trie::new(table),
            _ => anyhow::bail!("no table"),
        };
        Ok(Box::new(program?))
    },
};

/// MACs, and the number of the link out.
const VALUE_BYTES: u32 = 16;

struct Trie {
    program: Program,
    _maps: [Map; 2],
}

impl Trie {
    fn new<A: Addr>(table: &Table<A>) -> Result<Self> {
        let addr_bytes = u32::from(A::BITS) / 8;
        let count = u32::try_from(table.routes.len()).context("routes are counted in 32 bits")?;
        let routes = Map::new(MapKind::LpmTrie, "routes", 4 + addr_bytes, VALUE_BYTES, count)?;
        for &(prefix, hop) in &table.routes {
            let mut key = u32::from(prefix.len()).to_ne_bytes().to_vec();
            let bytes = prefix.addr().to_u128().to_be_bytes();
            key.extend(&bytes[16 - addr_bytes as usize..]);
            let link = world::hop_link(hop);
            let macs = [world::hop_mac(A::FAMILY, hop).0, world::link_mac(link).0];
            let value = [&macs.concat()[..], &link.to_ne_bytes()].concat();
            routes.update(&key, &value)?;
        }
        let ports = code::ports()?;
        let maps = [("routes", &routes), ("ports", &ports)];
        Ok(Self { program: code::load("trie", A::FAMILY == 6, &maps)?, _maps: [routes, ports] })
    }
}

impl Engine for Trie {
    fn attach(&self, _: &Meter) -> Result<Box<dyn Any>> {
        Ok(Box::new(code::attach(&self.program)?))
    }

    fn alone(&self, time: &mut dyn FnMut(&Program) -> Result<f64>) -> Result<f64> {
        time(&self.program)
    }
}
