//! The packets of a run: where they go, what is sent, and what must come out.

use anyhow::{Result, ensure};
use fingerpost_lpm::{Addr, NextHopId};

use crate::forward::stream::{self, Stream};
use crate::forward::world;
use crate::table::Table;
use crate::traffic::Meter;
use crate::traffic::generator::STAMP_BYTES;
use crate::traffic::meter::Expected;

/// What a forwarder does with a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// It routes: next hop by the table, a hop less.
    Routes,
    /// It gives all packets to one next hop, and changes nothing else.
    Hands,
}

/// UDP packets of IPv4, 64 bytes on the wire, each to a destination of its own. Its source port is its number here. All
/// leave by one egress, since that is all that some of the baselines can do: the one with more destinations.
pub(super) struct Packets {
    pub(super) templates: Vec<Vec<u8>>,
    pub(super) found: Vec<(u32, NextHopId)>,
    pub(super) len: usize,
    /// The egress.
    pub(super) way: usize,
}

impl Packets {
    /// Packets to so many destinations of a table.
    ///
    /// # Errors
    /// When there is nothing to forward to.
    pub(super) fn new(table: &Table<u32>, count: usize, seed: u64) -> Result<Self> {
        let oracle = table.oracle();
        let mut found = stream::destinations(table, &oracle, Stream::Prefix, 2 * count, seed);
        let second = found.iter().filter(|to| world::egress_of(to.1.0) == 1).count();
        let way = usize::from(2 * second > found.len());
        found.retain(|to| world::egress_of(to.1.0) == way);
        found.truncate(count);
        ensure!(!found.is_empty(), "{}: no address to forward to", table.file);
        let len = usize::from(world::frame_len(4));
        assert!(len >= 42 + STAMP_BYTES, "a stamp fits behind the UDP header");
        let numbered = (0..=u16::MAX).zip(&found);
        let templates =
            numbered.map(|(number, to)| world::header(to.0, number)[..len].to_vec()).collect();
        Ok(Self { templates, found, len, way })
    }

    /// What looks at them when they come out of something that does this.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn meter(&self, does: Does) -> Result<Meter> {
        let expected = self.found.iter().map(|&(addr, hop)| {
            let to = if does == Does::Routes { world::hop_mac(4, hop.0).0 } else { peer() };
            let from = world::link_mac(world::hop_link(hop.0)).0;
            Expected { to, from, destination: addr.to_ip() }
        });
        let ttl = if does == Does::Routes { world::TTL - 1 } else { world::TTL };
        Ok(Meter::new(&expected.collect::<Vec<_>>(), self.len, ttl)?)
    }
}

/// The host that gets all packets of a program that only hands them on.
pub(super) fn peer() -> [u8; 6] {
    world::hop_mac(4, 0).0
}
