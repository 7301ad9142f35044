//! Routers of others in the same turns: a loop of DPDK that forwards the frames that our generator makes.
//!
//! Before it is timed each frame crosses once and is compared with the oracle, as ours are. Its generator
//! is measured alone too, since it stands for a device and is no part of the work.

use std::time::Duration;

use anyhow::Result;
use fingerpost_lpm::{Addr, NextHopId};
use fingerpost_packet::device::memory::HEADER_BYTES;

use super::world;
use crate::document::{Kind, Run, Unit};
use crate::measure::{Clock, Plan};
use crate::peer::{HEAD_BYTES, Leave, Peer, Row, Turn};
use crate::table::Table;

const _: () = assert!(HEAD_BYTES == HEADER_BYTES);

/// A loop with the frames of one stream.
pub(super) struct Outside<A: Addr>(Peer<A>);

impl<A: Addr> Outside<A> {
    /// Starts it, hands it the frames and checks the result of each; the run names the program, or why
    /// there is none.
    pub(super) fn start(
        row: &Row,
        table: &Table<A>,
        stream: &str,
        destinations: &[(A, NextHopId)],
        headers: &[[u8; HEADER_BYTES]],
        limit: Duration,
    ) -> (Run, Option<Self>) {
        let mut run = Run::new(row.name, Kind::Peer, stream, Unit::NsPerPacket);
        run.family = Some(A::FAMILY);
        let mut started = || -> Result<Self> {
            let mut peer = Peer::start(row, table, limit)?;
            peer.set_leaves(&leaves(A::FAMILY, table.nexthops))?;
            let chosen = peer.set_frames(headers, world::frame_len(A::FAMILY))?;
            let came = peer.forwarded(headers.len())?;
            let right = |&((addr, hop), came): &(&(A, NextHopId), &crate::peer::Forwarded)| {
                came.port.map(usize::from) == Some(world::egress_of(hop.0))
                    && world::destination(&came.head) == Some(*addr)
                    && world::check::<A>(&came.head, hop.0)
            };
            let wrong = destinations.iter().zip(&came).filter(|pair| !right(pair)).count();
            run.set_answers(came.len() as u64, wrong as u64);
            let info = peer.info();
            run.bytes = info.bytes;
            run.note = format!(
                "{}, {} in bursts of {}, loaded in {:.1} s; {}, generator included",
                info.version,
                chosen.function,
                chosen.burst,
                info.build_ms / 1000.0,
                info.note
            );
            if info.refused > 0 {
                run.note += &format!("; refused {} routes", info.refused);
            }
            Ok(Self(peer))
        };
        match started() {
            Ok(outside) => (run, Some(outside)),
            Err(error) => {
                run.note = format!("{error:#}");
                (run, None)
            }
        }
    }

    /// Nanoseconds a packet.
    pub(super) fn forward(&mut self, plan: Plan) -> Result<f64> {
        self.0.forward(plan.sample).map(|turn| each(turn, plan))
    }

    /// Time of its generator alone.
    pub(super) fn generate(&mut self, plan: Plan) -> Result<f64> {
        self.0.generate(plan.sample).map(|turn| each(turn, plan))
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn each(turn: Turn, plan: Plan) -> f64 {
    let time = if plan.clock == Clock::Thread { turn.cpu } else { turn.wall };
    time.as_nanos() as f64 / turn.count as f64
}

/// Link addresses of all next hops of the world, from 0, which is none.
fn leaves(family: u8, nexthops: u32) -> Vec<Leave> {
    let leave = |hop| {
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&world::hop_mac(family, hop).0);
        macs[6..].copy_from_slice(&world::link_mac(world::hop_link(hop)).0);
        let port = u16::try_from(world::egress_of(hop)).expect("one of two");
        Leave { macs, port }
    };
    std::iter::once(Leave::default()).chain((1..=nexthops).map(leave)).collect()
}
