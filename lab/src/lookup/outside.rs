//! Peers: programs of others that answer the same keys in the same turns.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;

use super::check::Questions;
use crate::document::{Kind, Mode, Run, Unit};
use crate::family::Family;
use crate::measure::{Clock, Plan};
use crate::peer::{Peer, Row};
use crate::table::Table;

/// Runs of different modes share it.
pub(super) type Shared<A> = Rc<RefCell<Peer<A>>>;

/// A peer, or why there is none.
pub(super) struct Outside<A: Family> {
    row: &'static Row,
    peer: Result<Shared<A>, String>,
    routes: usize,
    edges: (u64, u64),
}

impl<A: Family> Outside<A> {
    /// Starts it and looks up the edges.
    pub(super) fn start(
        row: &'static Row,
        table: &Table<A>,
        edges: &Questions<A>,
        limit: Duration,
    ) -> Self {
        let started = || -> Result<_> {
            let mut peer = Peer::start(row, table, limit)?;
            let asked = ask(&mut peer, edges)?;
            Ok((peer, asked))
        };
        let routes = table.routes.len();
        match started() {
            Ok((peer, edges)) => Self { row, peer: Ok(Rc::new(RefCell::new(peer))), routes, edges },
            Err(error) => Self { row, peer: Err(format!("{error:#}")), routes, edges: (0, 0) },
        }
    }

    /// Hands it the keys of a stream and checks the answers; a run for each mode, with the peer where
    /// it is to be measured.
    pub(super) fn entries(
        &mut self,
        stream: &str,
        modes: &[Mode],
        questions: &Questions<A>,
    ) -> Vec<(Run, Option<Shared<A>>)> {
        let asked = self.peer.as_ref().map_err(Clone::clone).and_then(|peer| {
            let asked = ask(&mut peer.borrow_mut(), questions).map_err(|e| format!("{e:#}"))?;
            Ok((Rc::clone(peer), asked))
        });
        if let Err(note) = &asked {
            self.peer = Err(note.clone());
        }
        let entry = |&mode: &Mode| {
            let mut run = Run::new(self.row.name, Kind::Peer, stream, Unit::MlookupsPerSecond);
            (run.mode, run.family) = (mode, Some(A::FAMILY));
            match &asked {
                Ok((peer, (count, wrong))) => {
                    run.set_answers(count + self.edges.0, wrong + self.edges.1);
                    self.describe(&peer.borrow(), mode, &mut run);
                    (run, Some(Rc::clone(peer)))
                }
                Err(note) => {
                    run.note.clone_from(note);
                    (run, None)
                }
            }
        };
        modes.iter().map(entry).collect()
    }

    #[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
    fn describe(&self, peer: &Peer<A>, mode: Mode, run: &mut Run) {
        let info = peer.info();
        run.bytes = info.bytes;
        run.bytes_per_prefix = info.bytes.map(|bytes| bytes as f64 / self.routes.max(1) as f64);
        let function = match mode {
            Mode::Batch => &peer.functions().batch,
            Mode::Single => &peer.functions().single,
            Mode::Dependent => &peer.functions().dependent,
        };
        let mut words = vec![info.version.clone()];
        words.extend([function, &info.note].into_iter().filter(|w| !w.is_empty()).cloned());
        if info.refused > 0 {
            words.push(format!("refused {} routes", info.refused));
        }
        run.note = words.join("; ");
    }
}

/// Number of answers, and of wrong ones.
fn ask<A: Family>(peer: &mut Peer<A>, questions: &Questions<A>) -> Result<(u64, u64)> {
    if questions.addrs.is_empty() {
        return Ok((0, 0));
    }
    peer.set_keys(&questions.addrs)?;
    let answers = peer.answers()?;
    let wrong = answers.iter().zip(&questions.answers).filter(|(got, want)| got != want).count();
    Ok((answers.len() as u64, wrong as u64))
}

/// Nanoseconds a lookup, by the same clock as ours.
#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
pub(super) fn turn<A: Family>(peer: &mut Peer<A>, mode: Mode, plan: Plan) -> Result<f64> {
    let turn = peer.turn(mode, plan.sample)?;
    let time = if plan.clock == Clock::Thread { turn.cpu } else { turn.wall };
    Ok(time.as_nanos() as f64 / turn.count as f64)
}
