//! The daemon: sources feed the control side, the control side feeds workers, interfaces come and go.
//!
//! One thread (the caller's) does all but carry packets. It owns every socket but those of the ports, and works in
//! bursts: wait, take events of sources and workers, commit once, carry out what follows, run requests.

use std::time::{Duration, Instant, SystemTime};

use fingerpost_lpm::UpdateError;
use fingerpost_packet::feature::source_filter::SourceFilters;
use fingerpost_packet::graph::worker::Event;
use fingerpost_route::fib::{Decision, Severity};
use fingerpost_route::{Committed, Control};
use tracing::{debug, error, info, warn};

use crate::api::backend::{Awaited, Queue};
use crate::api::error::{ApiError, Code};
use crate::{privilege, sys};

mod as_tables;
mod backend;
mod builder;
mod cluster;
mod compare;
mod egress;
mod error;
mod export;
mod features;
mod free;
mod graph;
mod journal;
mod kernel;
mod lasting;
mod learn;
mod memory;
mod nonstop;
mod obstacles;
mod own_addrs;
mod pace;
mod policy;
mod ports;
mod reader;
mod report;
mod route_changes;
mod sampling;
mod sessions;
mod settings;
mod sources;
mod static_routes;
mod table_file;
mod takeover;
mod turns;
mod vlans;
mod workers;
mod xdp_features;

pub(crate) use error::DaemonError;
pub(crate) use lasting::{Lasting, StateFolder};
pub(crate) use learn::check;
pub(crate) use report::{Report, each};
pub(crate) use settings::{RunOptions, Said};

use cluster::{ClusterError, Node};
use features::Features;
use graph::RunningGraph;
use journal::Journal;
use lasting::edit_again;
use learn::{Learned, learn};
use nonstop::NonStop;
use ports::Interfaces;
use sampling::Seen;
use settings::{Progress, Settings};
use sources::Sources;
use turns::Turn;
use workers::Workers;

/// Longest time between two looks at what has no descriptor to wait for.
const TICK: Duration = Duration::from_millis(10);

/// Longest time until the kernel reports an interface that was just made.
const LONGEST_REPORT: Duration = Duration::from_secs(2);
/// Longest wait of a requester until packets follow its change.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A running router.
pub(crate) struct Daemon {
    settings: Settings,
    progress: Progress,
    control: Control,
    sources: Sources,
    workers: Workers,
    graph: RunningGraph,
    interfaces: Interfaces,
    /// What the kernel does to forwarded packets besides routing them.
    policy: policy::Watch,
    journal: Journal,
    requests: backend::Inbox,
}

impl Daemon {
    /// Learns all routes, then takes interfaces over: no packet arrives before its route.
    ///
    /// # Errors
    /// When a source, the kernel or a privilege is missing.
    pub(crate) fn start(options: &RunOptions) -> Result<Self, DaemonError> {
        privilege::to_forward()?;
        let started = Instant::now();
        let config = &options.config;
        let features = Features::new(config)?;
        // First of all: what the last daemon left keeps forwarding while this one learns.
        let nonstop = NonStop::begin(config.takeover.nonstop(), config.features.guards_any());
        let flow_seed = nonstop.flow_seed(config.groups.flow_seed);
        let filters = features.states().of::<SourceFilters>();
        let edits = options.saved.iter().map(|saved| (&*saved.place, &saved.change));
        for what in edit_again(filters.as_deref(), edits) {
            warn!(target: "config", "{what}");
        }
        let Learned { mut control, sources, unmade } = learn(options, true)?;
        let progress = Progress::new(started);
        let (policy, mut findings) = policy::Watch::begin().map_err(DaemonError::Survey)?;
        findings.apply_rules(&mut control);
        for what in options.missing(&control) {
            warn!(target: "takeover", "{what}");
        }
        for what in &findings.unanswered {
            warn!(target: "policy", "unknown: {what}");
        }
        let mut interfaces = Interfaces::new(options, findings, nonstop)?;
        interfaces.share(&mut control, flow_seed)?;
        // All of it: programs that know all routes must not make room for programs that do not.
        if let Err(error) = control.commit_now(Instant::now()) {
            warn!(target: "fib", "routes are not all visible: {error}");
        }
        let node = config.cluster.as_ref();
        let node = node.map(|cluster| Node::new(config, cluster, &interfaces));
        let mut graph = RunningGraph::built_in(features, node.transpose()?);
        let (cores, plan) = (&config.workers.cores, graph.plan());
        let workers = Workers::start(cores, plan, flow_seed, &control, &mut interfaces);
        let workers = workers.map_err(DaemonError::Thread)?;
        if let Some(node) = &mut graph.node {
            interfaces.join(node.ports(), node.open(workers.len())?);
            node.start()?;
        }
        let mut daemon = Self {
            settings: Settings::new(options, unmade),
            progress,
            control,
            sources,
            workers,
            graph,
            interfaces,
            policy,
            journal: Journal::default(),
            requests: backend::Inbox::default(),
        };
        daemon.graph.features.set_forwarder(daemon.interfaces.guard());
        daemon.graph.follow_ports(&daemon.control);
        daemon.await_fabric_interface()?;
        daemon.interfaces.begin(&daemon.control, &daemon.workers);
        if daemon.taken_over() == 0
            && let Some(why) = daemon.interfaces.take_refused()
        {
            daemon.stop();
            return Err(DaemonError::Refused(why));
        }
        daemon.journal.note(&mut daemon.control, &mut daemon.interfaces);
        let runner = builder::start().map_err(DaemonError::Thread)?;
        if let Some(forwarder) = daemon.interfaces.forwarder() {
            forwarder.load_beside(runner.clone());
        }
        daemon.control.build_beside(runner);
        daemon.interfaces.open_beside(builder::start_opener().map_err(DaemonError::Thread)?);
        Ok(daemon)
    }

    /// Waits until the kernel has reported the fabric interface of a cluster node, which was just made: what starts beside
    /// the router finds the routes to the other members.
    fn await_fabric_interface(&mut self) -> Result<(), DaemonError> {
        let until = Instant::now() + LONGEST_REPORT;
        while self.graph.node.as_ref().is_some_and(|node| !node.has_interface()) {
            if Instant::now() > until {
                return Err(ClusterError::Unreported.into());
            }
            if self.sources.kernel.turn(&mut self.control)? == 0 {
                let fds: Vec<_> = self.sources.kernel.fds(false).collect();
                sys::poll(&fds, TICK);
            }
            self.interfaces.provide(&self.control, &self.workers);
            self.graph.follow_cluster(&self.control);
        }
        Ok(())
    }

    /// Keeps what outlasts the run from now on.
    pub(crate) fn keep(&mut self, lasting: Lasting) {
        let mut before = std::mem::replace(&mut self.settings.lasting, lasting);
        self.settings.lasting.take_over(&mut before);
        self.settings.lasting.started(&before.history.running_text());
    }

    /// Serves the requests of the control API from now on.
    pub(crate) fn serve(&mut self, queue: Queue) {
        self.requests.serve(queue);
    }

    /// Works until `stop` returns true; `each` is called about a hundred times a second.
    ///
    /// # Errors
    /// When the kernel can no longer be followed, or a worker has failed.
    pub(crate) fn run(
        &mut self,
        stop: &mut dyn FnMut() -> bool,
        each: &mut dyn FnMut(&mut Self),
    ) -> Result<(), DaemonError> {
        while !stop() {
            let readable = self.wait();
            let mut turn = Turn::begin();
            self.turn(readable, &mut turn)?;
            each(self);
            turn.stage("messages");
            self.progress.turns.end(&turn);
        }
        Ok(())
    }

    /// Waits for events; returns whether there are some that have a descriptor.
    fn wait(&self) -> bool {
        let steps = self.control.sweeps() || self.control.has_steps(Instant::now());
        let held = self.control.holds_sources();
        let files = self.sources.configured.is_behind() && !held;
        let at_once = self.requests.is_behind() || files || steps;
        let tick = if at_once { Duration::ZERO } else { TICK };
        let own = self.requests.fd().into_iter().chain([self.workers.fd()]);
        let fds: Vec<_> = self.sources.fds(held).chain(own).collect();
        sys::poll(&fds, tick)
    }

    fn turn(&mut self, readable: bool, turn: &mut Turn) -> Result<(), DaemonError> {
        let now = Instant::now();
        self.check_workers()?;
        self.follow_confirmation(now);
        self.follow_links(now);
        if readable || self.requests.is_behind() || self.is_due(now) {
            self.progress.pace.alert(now);
        }
        let full = self.progress.pace.is_full(now);
        let taken = self.take_events(full, now)?;
        turn.stage("events");
        if taken > 0 {
            self.progress.pace.alert(now);
        }
        if full || taken > 0 {
            self.follow(now, turn);
            self.run_requests();
            turn.stage("requests");
        }
        let seen = Seen {
            control: &self.control,
            workers: &self.workers,
            interfaces: &self.interfaces,
            features: &self.graph.features,
            uptime: self.progress.elapsed(),
        };
        self.graph.reports.turn(seen, now);
        turn.stage("samples");
        Ok(())
    }

    /// Whether routes wait for a commit at this time.
    fn is_due(&self, now: Instant) -> bool {
        self.control.sweeps() || self.control.next_due().is_some_and(|due| due <= now)
    }

    /// Makes visible what was taken, and does what follows from it.
    fn follow(&mut self, now: Instant, turn: &mut Turn) {
        // A route is visible only after its egress is there.
        self.interfaces.provide(&self.control, &self.workers);
        turn.stage("ports");
        self.commit(now);
        turn.stage("commit");
        self.carry_out(now, turn);
    }

    /// Takes events of workers, and all or those of the kernel that have no descriptor. Returns how many those were.
    fn take_events(&mut self, all: bool, now: Instant) -> Result<usize, DaemonError> {
        self.control.set_time(SystemTime::now());
        let kernel = &mut self.sources.kernel;
        let mut taken =
            if all { kernel.turn(&mut self.control)? } else { kernel.look(&mut self.control) };
        taken += self.sources.take_sessions(&mut self.control, now);
        self.sources.kernel.compare(&self.control, now);
        if all || taken > 0 {
            // The host's own addresses are known before a commit that may take its time.
            self.interfaces.sync_local(&self.control);
        }
        for request in self.workers.take_requests() {
            self.control.resolve(request, now);
            taken += 1;
        }
        while let Some(event) = self.workers.next_event() {
            taken += 1;
            // A port is dropped here and not in the worker: closing waits for the kernel.
            match event {
                Event::PortFailed(port, error, device) => {
                    warn!(target: "interface", port, "port {port} closed: {error}");
                    drop(device);
                    self.interfaces.failed(port, &error, &self.workers);
                }
                Event::PortClosed(port, device) => {
                    drop(device);
                    self.interfaces.closed(port);
                }
                Event::Replaced(_) => {}
            }
        }
        taken += usize::from(self.interfaces.has_made());
        self.workers.keep_alive(now, &mut self.control, &self.interfaces);
        Ok(taken)
    }

    /// Carries out what follows from the commit and from changes of interfaces.
    fn carry_out(&mut self, now: Instant, turn: &mut Turn) {
        self.progress.memory.trim(now);
        self.control.audit(now, self.interfaces.asked());
        turn.stage("audit");
        log_decisions(&mut self.control);
        let (forgotten, requests) = (self.control.take_forgotten(), self.control.take_requests());
        self.sources.kernel.forget(&forgotten);
        self.sources.kernel.ask(&requests);
        self.graph.follow_ports(&self.control);
        self.graph.follow_cluster(&self.control);
        if let Some(mut findings) = self.policy.take() {
            findings.apply_rules(&mut self.control);
            self.interfaces.set_findings(findings);
            // Before an interface is taken over, packets are looked up in its tables.
            self.commit(now);
        }
        turn.stage("followers");
        self.interfaces.sync(&self.control, &self.workers);
        turn.stage("interfaces");
        self.interfaces.recheck_egress(now);
        self.journal.note(&mut self.control, &mut self.interfaces);
        self.workers.end_timing(now);
        turn.stage("notices");
    }

    /// Fails when a worker has failed. Its share of every interface fails with it, and the cause may recur at once: so the
    /// run ends, and its supervisor starts another one.
    fn check_workers(&mut self) -> Result<(), DaemonError> {
        let failures = self.workers.take_failures();
        if failures.is_empty() {
            return Ok(());
        }
        failures.iter().for_each(|what| error!(target: "run", "{what}"));
        let failed = self.workers.len() - self.workers.alive();
        Err(DaemonError::Workers { failed, workers: self.workers.len() })
    }

    /// Makes what was taken visible to the workers, as soon as that is worth it.
    fn commit(&mut self, now: Instant) {
        let graph = &mut self.graph;
        let committed = self.control.commit_with(now, |hops| graph.check_announced(hops));
        self.committed(committed);
    }

    /// Makes all of it visible before this returns, but for what a sweep withdraws: a turn as long as a build.
    fn commit_whole(&mut self) {
        let graph = &mut self.graph;
        let let_go = |hops: &_| graph.check_announced(hops);
        let committed = self.control.commit_whole(Instant::now(), let_go);
        self.committed(committed);
    }

    /// Makes visible what is cheap, and has the next turns do the rest without delay.
    fn commit_soon(&mut self) {
        self.control.flush();
        self.commit(Instant::now());
    }

    /// The generation in which readers see what is awaited, or the error that they do not yet; `None` while the requester is
    /// to wait.
    fn visible(&mut self, awaited: &mut Awaited) -> Option<Result<u64, ApiError>> {
        if awaited.files && self.sources.configured.is_reading() {
            awaited.mark = None;
            return None;
        }
        // Behind the last route of the files.
        if awaited.mark.is_none() {
            awaited.since = Instant::now();
        }
        let mark = awaited.mark.get_or_insert_with(|| self.control.mark());
        let is_late = awaited.since.elapsed() >= LONGEST_WAIT;
        if !self.control.shows(mark) {
            let words = "done, but packets do not follow it yet: tables are being built";
            return is_late.then(|| Err(ApiError::new(Code::NotVisible, words)));
        }
        if awaited.builds && self.control.is_building() && !is_late {
            return None;
        }
        Some(Ok(self.progress.generation()))
    }

    fn committed(&mut self, committed: Result<Committed, UpdateError>) {
        // Routes that are to be withdrawn in pieces forward nothing new.
        let waits = usize::from(self.control.sweeping());
        let all = committed.as_ref().is_ok_and(|done| done.pending <= waits);
        self.sources.committed(all, Instant::now());
        match committed {
            Ok(committed) => {
                self.progress.set_generation(committed.generation);
                self.progress.memory.changed(committed.changes, Instant::now());
            }
            Err(error) => warn!(target: "fib", "routes are not all visible: {error}"),
        }
        log_decisions(&mut self.control);
    }

    /// Interfaces whose frames the workers receive.
    pub(crate) fn taken_over(&self) -> usize {
        self.interfaces.taken_over()
    }

    /// What it does at this moment, in a line.
    pub(crate) fn status(&self) -> String {
        let (interfaces, control) = (self.taken_over(), &self.control);
        let (v4, v6) = (control.rib_v4().len(), control.rib_v6().len());
        let noun = if interfaces == 1 { "interface" } else { "interfaces" };
        format!("Forwarding on {interfaces} {noun}, with {v4} IPv4 routes and {v6} IPv6 routes")
    }

    /// Report of the run so far.
    pub(crate) fn report(&self) -> Report {
        Report::new(self.view())
    }

    /// Time for which the XDP programs keep forwarding after the end of the run; `None` when the kernel has the interfaces
    /// then.
    pub(crate) fn nonstop(&self) -> Option<Duration> {
        self.interfaces.nonstop()
    }

    /// Stops the workers and returns the interfaces to the kernel. Returns the report.
    pub(crate) fn stop(mut self) -> Report {
        self.requests.close();
        if self.interfaces.nonstop().is_some() {
            self.sources.configured.keep_exported();
        }
        if let Some(node) = &mut self.graph.node {
            node.leave();
        }
        // The kernel has its frames from here on; what is in our rings is still carried.
        self.interfaces.quiesce(self.workers.alive() < self.workers.len());
        self.workers.stop().iter().for_each(|what| error!(target: "run", "{what}"));
        self.interfaces.detach();
        self.report()
    }
}

/// Logs what the FIBs decided since the last call.
fn log_decisions(control: &mut Control) {
    for Decision { family, severity, text, build } in control.take_decisions() {
        let algorithm = build.map(|build| build.algorithm);
        let before = build.and_then(|build| build.before);
        let (fitness, prefixes) = (build.map(|b| b.fitness), build.map(|b| b.prefixes));
        let build_ms = build.map(|build| build.took.as_secs_f64() * 1e3);
        macro_rules! decision {
            ($log:ident) => {
                $log!(target: "fib", family, algorithm, before, fitness, prefixes, build_ms, "{text}")
            };
        }
        match severity {
            Severity::Routine => decision!(debug),
            Severity::Choice => decision!(info),
            Severity::Alarm => decision!(warn),
        }
    }
}
