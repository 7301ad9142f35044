//! Lookup tables: what answers, how large it is, and which algorithm is to be used.

use std::time::{Duration, Instant};

use fingerpost_io::xdp::forward::TableMemory;
use fingerpost_lpm::{Addr, Algorithm, Routes, registry};
use fingerpost_route::fib::Fib;
use fingerpost_route::rib::Rib;
use fingerpost_route::source::words::unknown;
use fingerpost_route::{Control, MAIN_TABLE, TableId};
use tracing::warn;

use super::{Daemon, View};
use crate::api::error::{ApiError, Code};
use crate::api::model::{self, AlgorithmChange};
use crate::config::left_out;
use crate::daemon::report::each;

/// Leaves the choice to the daemon.
const AUTO: &str = "auto";
/// Has the FIB calibrate the candidates on the live table.
const MEASURED: &str = "measured";

impl View<'_> {
    /// The lookups of all tables, the main one first, IPv4 before IPv6.
    pub(super) fn fib_list(&self) -> Vec<model::Fib> {
        let mut rows = Vec::new();
        let links = || self.control.links();
        let attached = self
            .interfaces
            .forwarder()
            .is_some_and(|forwarder| links().any(|(_, port, _)| forwarder.reads(port).is_some()));
        for (at, table) in self.control.tables().into_iter().enumerate() {
            let forwarder = self.interfaces.forwarder();
            let memory =
                forwarder.map(|f| (f, f.table_memory(u16::try_from(at).unwrap_or(u16::MAX))));
            let shared = |family: usize, prefixes: usize| -> Option<model::SharedMemory> {
                let (forwarder, tables) = memory?;
                let TableMemory { used, reserved } = tables[family]?;
                let (total_reserved, cap) = (forwarder.reserved_bytes(), forwarder.cap_bytes());
                let used_per_prefix = each(used, prefixes);
                Some(model::SharedMemory { used, used_per_prefix, reserved, total_reserved, cap })
            };
            let known = self.control.ribs(table).zip(self.control.fibs(table));
            let ((rib_v4, rib_v6), (fib_v4, fib_v6)) = known.expect("tables stay");
            let (memory, fitness_v4) = (shared(0, rib_v4.len()), fitness(registry::v4(), rib_v4));
            rows.push(self.fib(table, rib_v4, fib_v4, attached, memory, fitness_v4));
            let (memory, fitness_v6) = (shared(1, rib_v6.len()), fitness(registry::v6(), rib_v6));
            rows.push(self.fib(table, rib_v6, fib_v6, attached, memory, fitness_v6));
        }
        rows
    }

    fn fib<A: Addr>(
        &self,
        table: TableId,
        rib: &Rib<A>,
        fib: &Fib<A>,
        attached: bool,
        shared: Option<model::SharedMemory>,
        fitness: Vec<model::Fitness>,
    ) -> model::Fib {
        let report = fib.report(rib, Instant::now());
        let bytes = report.bytes;
        let rib_bytes = rib.bytes();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        model::Fib {
            family: A::FAMILY,
            table: table.number(),
            paths: matches!(table, TableId::Paths(_)),
            algorithm: report.algorithm.to_owned(),
            choice: report.choice.to_string(),
            generation: self.progress.generation(),
            prefixes: rib.len(),
            routes: rib.candidates(),
            bytes,
            bytes_per_prefix: each(bytes, rib.len()),
            rib_bytes,
            bytes_per_route: each(bytes + rib_bytes, rib.candidates()),
            pending: report.pending,
            behind_ms: report.behind.map(ms),
            applied: report.counts.applied,
            builds: report.counts.builds,
            failures: report.counts.failures,
            mismatch_routes: report.mismatch_routes,
            mismatch_routes_xdp: report.mismatch_routes_kernel,
            audited: report.audit.checked,
            audited_xdp: report.audit.kernel_reader,
            audit_passes: report.audit.passes,
            last_build_ms: ms(report.counts.last_build),
            longest_delay_ms: ms(report.counts.longest_delay),
            banned: report.banned.into_iter().map(str::to_owned).collect(),
            fitness,
            in_xdp: attached.then_some(shared.is_some()),
            shared,
        }
    }
}

/// Fitness of algorithms for a table as it is.
fn fitness<A: Addr>(
    algorithms: impl Iterator<Item = &'static Algorithm<A>>,
    rib: &Rib<A>,
) -> Vec<model::Fitness> {
    let stats = rib.stats();
    let row = |algorithm: &Algorithm<A>| model::Fitness {
        name: algorithm.name.to_owned(),
        fitness: (algorithm.fitness)(&stats),
    };
    algorithms.map(row).collect()
}

/// Has the FIBs use an algorithm and no other, or choose again; returns their families.
pub(in crate::daemon) fn pin(
    control: &mut Control,
    change: &AlgorithmChange,
) -> Result<Vec<u8>, ApiError> {
    let (name, families) = (change.name.as_str(), families(change)?);
    for family in &families {
        let pinned = control.pin_algorithm(*family, (name != AUTO).then_some(name));
        pinned.map_err(|known| {
            ApiError::at(Code::NotFound, "name", unknown("algorithm", name, known))
        })?;
    }
    Ok(families)
}

impl Daemon {
    /// Uses an algorithm and no other, or chooses again, from the next commit on.
    pub(super) fn pin_algorithm(&mut self, change: &AlgorithmChange) -> Result<(), ApiError> {
        for family in pin(&mut self.control, change)? {
            let fib = &mut self.settings.config_mut().fib;
            let choice = if family == 4 { &mut fib.algorithm_v4 } else { &mut fib.algorithm_v6 };
            change.name.clone_into(choice);
        }
        Ok(())
    }

    /// State of the lookup tables after such a choice, when no table is being built.
    pub(super) fn pinned(&mut self, change: &AlgorithmChange) -> Result<Vec<model::Fib>, ApiError> {
        let (name, families) = (change.name.as_str(), families(change)?);
        let fibs = self.view().fib_list();
        let leaving = fibs.iter().filter(|fib| families.contains(&fib.family));
        for what in leaving.filter_map(model::Fib::leaves_xdp) {
            warn!(target: "fib", "{what}");
        }
        let mut of_change =
            fibs.iter().filter(|fib| fib.table == MAIN_TABLE && families.contains(&fib.family));
        let other = |fib: &&model::Fib| is_named(name) && fib.algorithm != name;
        match of_change.find(other) {
            // It stays pinned, and is used as soon as it can hold the table.
            Some(fib) => Err(ApiError::at(
                Code::Refused,
                "name",
                format_args!(
                    "{name} cannot hold this IPv{} table: {} is used (the log has the reason)",
                    fib.family, fib.algorithm
                ),
            )),
            None => Ok(fibs),
        }
    }
}

fn is_named(name: &str) -> bool {
    ![AUTO, MEASURED].contains(&name)
}

/// Families that a choice is for.
fn families(change: &AlgorithmChange) -> Result<Vec<u8>, ApiError> {
    let name = change.name.as_str();
    let mut families = match change.family {
        None => vec![4, 6],
        Some(family @ (4 | 6)) => vec![family],
        Some(_) => return Err(ApiError::at(Code::BadRequest, "family", "4 or 6 is needed")),
    };
    if is_named(name) {
        families.retain(|family| names(*family).contains(&name));
    }
    if families.is_empty() {
        let known = match change.family {
            Some(family) => names(family),
            None => [names(4), names(6)].concat(),
        };
        let words = left_out(name).unwrap_or_else(|| unknown("algorithm", name, known));
        return Err(ApiError::at(Code::NotFound, "name", words));
    }
    Ok(families)
}

/// Families that a choice which was made is for.
pub(super) fn families_of(change: &AlgorithmChange) -> Vec<u8> {
    families(change).unwrap_or_default()
}

fn names(family: u8) -> Vec<&'static str> {
    if family == 4 {
        registry::v4().map(|row| row.name).collect()
    } else {
        registry::v6().map(|row| row.name).collect()
    }
}
