//! Peers that make the same changes in the same turns.
//!
//! Changes that a library refuses are counted beside its figures, and its answers are checked at the end:
//! DPDK's rte_fib, for one, loses count of its chunks and refuses some routes from then on
//! (`lab/peers/README.md`). That makes its figures those of a library with a fault, not none.

use std::time::Duration;

use anyhow::{Context, Result};

use super::changes::Changes;
use super::writer::Latencies;
use crate::document::{Kind, Mode, Run, Unit};
use crate::family::Family;
use crate::lookup::check::Questions;
use crate::measure::Plan;
use crate::peer::{Peer, Row};
use crate::table::Table;

/// A peer with its changes, and what came of them.
pub(super) struct Outside<A: Family> {
    peer: Peer<A>,
    latencies: Latencies,
    done: u64,
    refused: u64,
}

impl<A: Family> Outside<A> {
    /// Starts it and hands the changes over; a run names the program, or why there is none.
    pub(super) fn start(
        row: &'static Row,
        name: &str,
        table: &Table<A>,
        changes: &Changes<A>,
        limit: Duration,
    ) -> (Run, Option<Self>) {
        let mut run = Run::new(name, Kind::Peer, name, Unit::UpdatesPerSecond);
        (run.mode, run.family) = (Mode::Single, Some(A::FAMILY));
        run.algorithm = Some(row.name.to_owned());
        let started = || -> Result<Self> {
            let mut peer = Peer::start(row, table, limit)?;
            if let Some(why) = peer.set_changes(changes)? {
                anyhow::bail!("{}: has no updates: {why}", peer.info().version);
            }
            Ok(Self { peer, latencies: Latencies::default(), done: 0, refused: 0 })
        };
        match started() {
            Ok(outside) => (run, Some(outside)),
            Err(error) => {
                run.note = format!("{error:#}");
                (run, None)
            }
        }
    }

    /// Nanoseconds an update, over half of a sample; in the other half each one is timed by itself.
    #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    pub(super) fn turn(&mut self, plan: Plan) -> Result<f64> {
        let updates = self.peer.update(plan.sample)?;
        self.done += updates.done;
        self.refused += updates.failed;
        self.latencies.extend(updates.each_ns.iter().map(|&ns| f64::from(ns) / 1000.0));
        Ok(updates.turn.cpu.as_nanos() as f64 / updates.turn.count as f64)
    }

    /// Makes the rest of the changes, and checks; a run of single updates beside the one of all.
    pub(super) fn describe(mut self, questions: &Questions<A>, run: &mut Run) -> Run {
        if let Err(error) = self.ask(questions, run) {
            run.note = format!("{error:#}");
        } else {
            run.note.clone_from(&self.peer.info().version);
        }
        run.refused = Some(self.refused);
        if self.refused > 0 {
            run.note += &format!("; refused {} of {} updates", self.refused, self.done);
        }
        let mut single = Run { unit: Unit::Us, ..run.clone() };
        self.latencies.describe(&mut single);
        single
    }

    fn ask(&mut self, questions: &Questions<A>, run: &mut Run) -> Result<()> {
        self.refused += self.peer.finish_changes()?;
        run.bytes = self.peer.bytes()?;
        if questions.addrs.is_empty() {
            return Ok(());
        }
        self.peer.set_keys(&questions.addrs)?;
        let answers = self.peer.answers().context("after the updates")?;
        let wrong = answers.iter().zip(&questions.answers).filter(|(got, want)| got != want);
        run.set_answers(answers.len() as u64, wrong.count() as u64);
        Ok(())
    }
}
