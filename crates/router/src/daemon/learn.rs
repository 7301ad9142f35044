//! The start of a run: the control side takes the first dump of every source before any interface is taken over.

use std::time::{Duration, Instant};

use fingerpost_lpm::registry;
use fingerpost_route::{Control, ControlOptions, Durations};
use tracing::warn;

use super::kernel::{KernelSettings, KernelSource};
use super::lasting::{Placed, make_again};
use super::ports::{Interfaces, Plan};
use super::sources::{Configured, Sources};
use super::{DaemonError, RunOptions, TICK, log_decisions, takeover};
use crate::api::saved::COMMAND_SOURCE;
use crate::config::Source;
use crate::sys;

/// Distance of the source of routes that commands make: preferred as much as those of the configuration.
const COMMAND_DISTANCE: u8 = 1;
/// Longest time of the kernel's first dump.
pub(super) const LONGEST_DUMP: Duration = Duration::from_secs(120);

/// The control side with all routes of the first dumps.
pub(super) struct Learned {
    pub(super) control: Control,
    pub(super) sources: Sources,
    /// Changes that cannot be made yet.
    pub(super) unmade: Vec<Placed>,
}

/// `listen`: with the sources whose peers connect.
pub(super) fn learn(options: &RunOptions, listen: bool) -> Result<Learned, DaemonError> {
    let config = &options.config;
    let mut control = Control::new(ControlOptions {
        v4: registry::v4().collect(),
        v6: registry::v6().collect(),
        connected_from_addresses: !config.kernel_routes(),
    })?;
    control.set_group_mode(config.groups.layout.mode())?;
    control.set_fib_options(config.fib.knobs).expect("checked with the configuration");
    for (family, name) in [(4, &config.fib.algorithm_v4), (6, &config.fib.algorithm_v6)] {
        if name != "auto" {
            control.pin_algorithm(family, Some(name)).expect("checked with the configuration");
        }
    }
    for interface in config.interface.iter().filter(|interface| interface.table != 0) {
        control.bind_interface(&interface.name, interface.table)?;
    }
    config.features.bind(None, &mut control)?;
    let kernel_source = config.source.iter().find(|source| source.kind == "kernel");
    let settings = KernelSettings {
        routes: config.kernel_routes(),
        distance: kernel_source.and_then(|source| source.distance),
        buffer_kib: kernel_source.and_then(|source| source.receive_buffer_kib),
        compare_s: kernel_source.and_then(|source| source.compare_s),
    };
    let exported: Vec<u8> = config.source.iter().filter_map(Source::exports_as).collect();
    let mut kernel = KernelSource::open(&mut control, settings, &exported)?;
    let until = Instant::now() + LONGEST_DUMP;
    while !kernel.ready() {
        if Instant::now() > until {
            return Err(DaemonError::Dump);
        }
        if kernel.turn(&mut control)? == 0 {
            sys::poll(&kernel.fds(false).collect::<Vec<_>>(), TICK);
        }
    }
    let mut configured = Configured::default();
    let others = config.source.iter().filter(|source| source.kind != "kernel");
    for source in others.filter(|source| listen || source.is_read_once()) {
        let failed = |error| DaemonError::Source { kind: source.kind.clone(), error };
        configured.feed(&mut control, source, None).map_err(failed)?;
    }
    let read = configured.take_all(&mut control);
    read.map_err(|(kind, error)| DaemonError::Source { kind, error })?;
    let command = control.add_source(COMMAND_SOURCE, COMMAND_DISTANCE);
    let static_neighbors = config.neighbor.iter().map(|neighbor| neighbor.placed().into());
    let changes = static_neighbors.chain(options.saved.iter().cloned()).collect();
    let (unmade, messages) = make_again(&mut control, command, changes);
    messages.iter().for_each(|what| warn!(target: "config", "{what}"));
    if let Err(error) = control.commit(Instant::now()) {
        warn!(target: "fib", "routes are not all visible: {error}");
    }
    log_decisions(&mut control);
    let sources = Sources { kernel, configured, command, visible: Durations::default() };
    Ok(Learned { control, sources, unmade })
}

/// Result of `run --check`.
pub(crate) struct Checked {
    /// Each interface with its plan.
    pub(crate) plans: Vec<Plan>,
    /// What could not be found out.
    pub(crate) unanswered: Vec<String>,
    /// Named interfaces that are not there, each with its message.
    pub(crate) missing: Vec<String>,
}

/// Finds what `run` would do.
///
/// # Errors
/// The kernel does not answer.
pub(crate) fn check(options: &RunOptions) -> Result<Checked, DaemonError> {
    let Learned { mut control, .. } = learn(options, false)?;
    let mut findings = takeover::survey().map_err(DaemonError::Survey)?;
    findings.apply_rules(&mut control);
    let plans = Interfaces::preview(&control, options, &findings);
    Ok(Checked { plans, unanswered: findings.unanswered, missing: options.missing(&control) })
}
