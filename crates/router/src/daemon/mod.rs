//! The daemon: sources feed the control side, the control side feeds workers, interfaces come and go.
//!
//! One thread (the caller's) does all but carry packets. It owns every socket but those of the ports,
//! and works in bursts: take what sources and workers said, commit once, carry out what follows.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use fingerpost_io::afxdp::{self, PollWait};
use fingerpost_io::xdp;
use fingerpost_lpm::registry;
use fingerpost_packet::worker::{Command, Event, Worker, WorkerOptions};
use fingerpost_packet::{Plan as GraphPlan, Pool, WorkerCounters, router_graph};
use fingerpost_route::source::SourceError;
use fingerpost_route::{Committed, Control, ControlOptions, ResolveRequest, SourceId};

use crate::api::backend::Questions;
use crate::api::model::ConfigText;
use crate::config::{Config, Cores, PacketPath};
use crate::privilege::{self, Missing};
use crate::sys;

pub(crate) mod backend;
mod egress;
pub(crate) mod features;
mod kernel;
mod nonstop;
mod notes;
mod obstacles;
mod own_addrs;
mod policy;
mod ports;
mod reader;
mod report;
mod sources;
pub(crate) mod takeover;
mod vlans;
mod xdp_features;

pub(crate) use kernel::FeedError;
pub(crate) use ports::Plan;
pub(crate) use report::{Report, each};

use features::Features;
use kernel::KernelFeed;
use nonstop::Survival;
use notes::Driven;
use ports::{Interfaces, WorkerHandle};
use sources::Sources;

/// The source of routes that commands make, believed as much as those of the configuration.
const COMMAND_SOURCE: &str = "command";
const COMMAND_DISTANCE: u8 = 1;
/// Longest time between two looks at what has no descriptor to wait for.
const TICK: Duration = Duration::from_millis(10);
/// How often neighbors in use are confirmed: well within the kernel's 30 s of trust.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The same while a neighbor may be in use that the kernel deleted: to know it costs a read of all counters.
const KEEP_ALIVE_SOON: Duration = Duration::from_millis(250);
/// How long the kernel may take to say everything at the start.
const LONGEST_DUMP: Duration = Duration::from_secs(120);
/// Questions of workers that wait for the control side.
const ASKS: usize = 1024;
/// Frames beyond what the ports' rings can hold: batches under way, and packets that wait for link
/// addresses.
const SPARE_FRAMES: u32 = 4096;
/// Interfaces that may come later and still find frames.
const SPARE_PORTS: u32 = 2;
/// Port numbers that have counters.
const COUNTED_PORTS: usize = 1024;
/// A table of so many routes is worth to give its memory back when most of it goes.
const LARGE_TABLE: usize = 65_536;
/// Adjacencies that have counters.
const COUNTED_ADJACENCIES: usize = 16_384;

/// What a run is started with besides the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunOptions {
    pub(crate) config: Config,
    /// Interfaces to take over; none named: every usable one.
    pub(crate) only: Vec<String>,
    /// By which way packets go.
    pub(crate) path: PacketPath,
    /// What the command line adds to the configuration, which has it already.
    pub(crate) said: Said,
}

/// What the command line says beside a configuration file: it holds however often the file is read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// Subsystems that are no obstacle.
    pub(crate) ignore: Vec<String>,
    /// Seconds that drivers forward on without this process.
    pub(crate) survive_s: Option<u32>,
}

impl Said {
    /// Adds it to what a file says.
    pub(crate) fn add_to(&self, config: &mut Config) {
        config.takeover.ignore.extend(self.ignore.iter().cloned());
        config.takeover.survive_s = self.survive_s.unwrap_or(config.takeover.survive_s);
    }
}

/// Why a run cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    #[error(transparent)]
    Feed(#[from] FeedError),
    #[error("looking for what the kernel does to forwarded packets: {0}")]
    Survey(std::io::Error),
    #[error(transparent)]
    Xdp(#[from] xdp::XdpError),
    #[error("{0}")]
    Routes(#[from] fingerpost_lpm::UpdateError),
    #[error("{0}")]
    Tables(#[from] fingerpost_route::RouteError),
    #[error("{0}")]
    Feature(String),
    #[error("source {kind}: {error}{}", to_read(error))]
    Source { kind: String, error: SourceError },
    #[error("the kernel did not say all it knows within {} s", LONGEST_DUMP.as_secs())]
    Dump,
    #[error("{0}")]
    Thread(std::io::Error),
    #[error(transparent)]
    Permission(#[from] Missing),
    #[error("no interface can be taken over: {0}")]
    Refused(String),
    #[error("{failed} of {workers} workers failed: the router must be started again")]
    Workers { failed: usize, workers: usize },
}

fn to_read(error: &SourceError) -> &'static str {
    match error {
        SourceError::Io { kind, .. } => privilege::to_read(*kind),
        _ => "",
    }
}

impl DaemonError {
    /// Whether a missing privilege is the cause.
    pub(crate) fn is_permission(&self) -> bool {
        let denied = |e: &std::io::Error| e.kind() == std::io::ErrorKind::PermissionDenied;
        match self {
            Self::Permission(_) | Self::Refused(_) => true,
            Self::Xdp(error) => error.is_permission(),
            Self::Source { error: SourceError::Io { kind, .. }, .. } => {
                *kind == std::io::ErrorKind::PermissionDenied
            }
            Self::Survey(error) | Self::Thread(error) | Self::Feed(FeedError::Socket(error)) => {
                denied(error)
            }
            _ => false,
        }
    }
}

/// A running router.
pub(crate) struct Daemon {
    /// As it is now: started with, and changed since.
    config: Config,
    /// What holds over any file.
    said: Said,
    control: Control,
    kernel: KernelFeed,
    sources: Sources,
    /// The source of routes that commands make.
    command: SourceId,
    /// What workers and drivers hash flows from.
    flow_seed: u64,
    interfaces: Interfaces,
    /// What followers know of how these are driven.
    driven: Driven,
    /// What the kernel does to forwarded packets besides routing them.
    policy: policy::Watch,
    workers: Vec<WorkerHandle>,
    asks: Receiver<ResolveRequest>,
    events: Receiver<Event>,
    messages: Vec<String>,
    last_keep_alive: Instant,
    used: HashMap<u32, u64>,
    load: Duration,
    started: Instant,
    /// That readers see.
    generation: u64,
    /// Of the control API, if it is served.
    questions: Option<Questions>,
    /// There was no time for all questions.
    unanswered: bool,
    /// Of lists whose readers left.
    abandoned: backend::routes::Abandoned,
    /// What interfaces apply to their packets.
    features: Features,
    /// The graph that workers run.
    plan: GraphPlan,
    /// Its text, where it is not the built-in one.
    swapped: Option<ConfigText>,
    /// Packets that elements of the built-in graph may keep.
    built_in_holds: usize,
    /// Elements are timed until then.
    timed_until: Option<Instant>,
    /// Packets are traced.
    tracing: Option<backend::trace::Tracing>,
    /// Traces so far.
    traces: u64,
    /// Most routes since memory was last given back.
    most_routes: usize,
}

impl Daemon {
    /// Learns everything there is to know, then takes interfaces over: no packet comes to us before its
    /// route did.
    pub(crate) fn start(options: &RunOptions) -> Result<Self, DaemonError> {
        privilege::to_forward()?;
        let started = Instant::now();
        let config = &options.config;
        let features = Features::new(config)?;
        let mut found = Vec::new();
        // First of all: what was left forwards on while this one learns.
        let survival =
            Survival::begin(config.takeover.survive(), config.features.guards_any(), &mut found);
        let flow_seed = survival.flow_seed(config.groups.flow_seed);
        let Learned { mut control, kernel, sources, messages } = learn(config)?;
        let command = control.add_source(COMMAND_SOURCE, COMMAND_DISTANCE);
        let load = started.elapsed();
        let (policy, findings) = policy::Watch::begin().map_err(DaemonError::Survey)?;
        let mut messages = [found, messages].concat();
        messages.extend(findings.unanswered.iter().map(|what| format!("cannot tell: {what}")));
        let mut interfaces = Interfaces::new(options, findings, survival)?;
        interfaces.share(&mut control, flow_seed)?;
        // All of it: programs that know all must not make room for programs that do not.
        if let Err(error) = control.commit_now(Instant::now()) {
            messages.push(format!("routes are not all visible: {error}"));
        }
        messages.extend(interfaces.take_notices());
        let (asks_in, asks) = sync_channel(ASKS);
        let (events_in, events) = channel();
        let cores = match &config.workers.cores {
            Cores::List(list) => list.clone(),
            _ => sys::cores(),
        };
        let pin = matches!(config.workers.cores, Cores::List(_));
        let count = cores.len().min(interfaces.queues(&control)).max(1);
        let (frame_bytes, in_rings) = interfaces.frames(&control, count);
        let frames = in_rings + SPARE_PORTS * afxdp::frames_needed(afxdp::RING) + SPARE_FRAMES;
        let plan = router_graph::plan_with(None, &features.states);
        let plan = plan.expect("the built-in graph is whole: a test builds it");
        let mut workers = Vec::new();
        let pulses = interfaces.pulses(count);
        for (core, pulse) in cores.into_iter().zip(pulses) {
            let pool = Pool::new(frames, frame_bytes);
            let counters = Arc::new(WorkerCounters::new(COUNTED_PORTS, COUNTED_ADJACENCIES));
            let (wait, waker) = PollWait::new().map_err(DaemonError::Thread)?;
            let (commands, commands_in) = channel();
            let mut worker = Worker::new(WorkerOptions {
                plan: &plan,
                pool: pool.clone(),
                reader: control.reader(),
                counters: counters.clone(),
                commands: commands_in,
                asks: asks_in.clone(),
                events: events_in.clone(),
                flow_seed,
            });
            if let Some(pulse) = pulse {
                worker.set_heartbeat(Box::new(pulse));
            }
            let nodes = worker.graph().counters();
            let thread = spawn(worker, wait, pin.then_some(core)).map_err(DaemonError::Thread)?;
            let (thread, failed) = (Some(thread), false);
            workers.push(WorkerHandle { commands, waker, pool, counters, nodes, thread, failed });
        }
        let mut daemon = Self {
            config: config.clone(),
            said: options.said.clone(),
            control,
            kernel,
            sources,
            command,
            flow_seed,
            interfaces,
            driven: Driven::default(),
            policy,
            workers,
            asks,
            events,
            messages,
            last_keep_alive: started,
            used: HashMap::new(),
            load,
            started,
            generation: 0,
            questions: None,
            unanswered: false,
            abandoned: backend::routes::Abandoned::default(),
            features,
            built_in_holds: plan.holds(),
            plan,
            swapped: None,
            timed_until: None,
            tracing: None,
            traces: 0,
            most_routes: 0,
        };
        daemon.follow_ports();
        daemon.interfaces.begin(&daemon.control, &daemon.workers);
        if daemon.taken_over() == 0
            && let Some(why) = daemon.interfaces.refused.take()
        {
            daemon.stop();
            return Err(DaemonError::Refused(why));
        }
        daemon.take_notices();
        Ok(daemon)
    }

    /// Answers these from now on.
    pub(crate) fn answer(&mut self, questions: Questions) {
        self.questions = Some(questions);
    }

    /// Works until `stop` says so; `each` is called about a hundred times a second.
    ///
    /// # Errors
    /// When the kernel can no longer be followed, or a worker has failed.
    pub(crate) fn run(
        &mut self,
        stop: &mut dyn FnMut() -> bool,
        each: &mut dyn FnMut(&mut Self),
    ) -> Result<(), DaemonError> {
        while !stop() {
            self.wait();
            self.turn()?;
            each(self);
        }
        Ok(())
    }

    fn wait(&self) {
        let at_once = self.unanswered || self.control.sweeping();
        let tick = if at_once { Duration::ZERO } else { TICK };
        let [links, rest] = self.kernel.fds();
        match &self.questions {
            Some(questions) => sys::poll(&[links, rest, questions.fd()], tick),
            None => sys::poll(&[links, rest], tick),
        }
    }

    /// One burst: take, commit, carry out, answer.
    fn turn(&mut self) -> Result<(), DaemonError> {
        let now = Instant::now();
        self.check_workers()?;
        self.control.set_time(SystemTime::now());
        self.kernel.turn(&mut self.control)?;
        // What is the host's own is so before a commit that may take its time.
        self.interfaces.sync_local(&self.control);
        while let Ok(ask) = self.asks.try_recv() {
            self.control.resolve(ask, now);
        }
        while let Ok(event) = self.events.try_recv() {
            // Dropping a port here, not in the worker: closing waits for the kernel.
            match event {
                Event::PortFailed(port, error, device) => {
                    self.messages.push(format!("port {port} closed: {error}"));
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
        let every = if self.control.wants_uses() { KEEP_ALIVE_SOON } else { KEEP_ALIVE };
        if now.duration_since(self.last_keep_alive) >= every {
            self.last_keep_alive = now;
            let used = self.adjacencies_used();
            self.control.keep_alive(used);
        }
        // A route is visible only after what leaves by it can.
        self.interfaces.provide(&self.control, &self.workers);
        self.commit(now);
        self.give_memory_back();
        self.control.audit(now, self.interfaces.asked());
        self.messages.extend(self.control.take_decisions());
        let (forgotten, requests) = (self.control.take_forgotten(), self.control.take_requests());
        self.kernel.forget(&forgotten);
        self.kernel.ask(&requests);
        self.follow_ports();
        if let Some(findings) = self.policy.take(&mut self.messages) {
            self.interfaces.set_findings(findings);
        }
        self.interfaces.sync(&self.control, &self.workers);
        self.interfaces.look_at_outlets(now);
        self.take_notices();
        self.end_timing(now);
        self.end_abandoned_trace(now);
        self.answer_questions();
        Ok(())
    }

    /// Fails when a worker has failed. It takes its share of every interface along, and the cause may recur at once: so the
    /// run ends, and its supervisor starts another one.
    fn check_workers(&mut self) -> Result<(), DaemonError> {
        if !self.workers.iter().any(WorkerHandle::has_ended) {
            return Ok(());
        }
        for (number, worker) in self.workers.iter_mut().enumerate().filter(|(_, w)| w.has_ended()) {
            let why = worker.join().unwrap_or_else(|| "it ended".to_owned());
            worker.failed = true;
            self.messages.push(format!("worker {number} failed: {why}"));
        }
        let failed = self.workers.len() - self.workers_alive();
        Err(DaemonError::Workers { failed, workers: self.workers.len() })
    }

    /// Workers that have not failed.
    pub(crate) fn workers_alive(&self) -> usize {
        self.workers.iter().filter(|worker| !worker.failed && !worker.has_ended()).count()
    }

    /// Takes what happened to interfaces, for the log and for who follows.
    fn take_notices(&mut self) {
        let notices = self.interfaces.take_notices();
        if !notices.is_empty() {
            self.driven.note(&mut self.control, self.interfaces.report());
        }
        self.messages.extend(notices);
    }

    /// Makes what was taken visible to the workers, as soon as that is worth it.
    fn commit(&mut self, now: Instant) {
        let committed = self.control.commit(now);
        self.committed(committed);
    }

    /// What the allocator keeps of a large table goes back to the system once three quarters of its routes are gone.
    fn give_memory_back(&mut self) {
        let routes = self.control.rib_v4().len() + self.control.rib_v6().len();
        if self.most_routes >= LARGE_TABLE && routes <= self.most_routes / 4 {
            sys::trim_memory();
            self.most_routes = routes;
        }
        self.most_routes = self.most_routes.max(routes);
    }

    /// Makes all of it visible before this returns.
    fn commit_now(&mut self) {
        let committed = self.control.commit_now(Instant::now());
        self.committed(committed);
    }

    fn committed(&mut self, committed: Result<Committed, fingerpost_lpm::UpdateError>) {
        match committed {
            Ok(committed) => self.generation = committed.generation,
            Err(error) => self.messages.push(format!("routes are not all visible: {error}")),
        }
        self.messages.extend(self.control.take_decisions());
    }

    /// After the commit, so that answers find routes and lookup in step.
    fn answer_questions(&mut self) {
        let Some(mut questions) = self.questions.take() else { return };
        let started = Instant::now();
        let mut answered = true;
        while answered {
            let question = questions.next(started);
            answered = question.is_some();
            if let Some(question) = question {
                self.control.set_time(SystemTime::now());
                question(self);
            }
        }
        self.close_abandoned();
        questions.tell(self.control.sequence());
        self.unanswered = questions.waiting();
        self.questions = Some(questions);
    }

    /// Adjacencies that packets left by since the last call.
    fn adjacencies_used(&mut self) -> Vec<u32> {
        let indices: Vec<u32> = self.control.next_hops().adjacencies().map(|(i, _)| i).collect();
        let forwarded = self.interfaces.forwarded();
        let mut used = Vec::new();
        for index in indices {
            let count = |w: &WorkerHandle| {
                w.counters.adjacencies.get(index as usize).map_or(0, |c| c.read())
            };
            let in_driver = forwarded.get(index as usize).map_or(0, |used| used.packets);
            let total = self.workers.iter().map(count).sum::<u64>() + in_driver;
            if self.used.insert(index, total) != Some(total) && total > 0 {
                used.push(index);
            }
        }
        used
    }

    /// What people are to be told, since the last call.
    pub(crate) fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// Interfaces whose frames come to us.
    pub(crate) fn taken_over(&self) -> usize {
        self.interfaces.report().iter().filter(|interface| interface.path != "kernel").count()
    }

    /// Packets forwarded by XDP programs, which no worker saw.
    pub(crate) fn forwarded_in_drivers(&self) -> u64 {
        self.interfaces.forwarded().iter().map(|used| used.packets).sum()
    }

    /// What happened so far.
    pub(crate) fn report(&self) -> Report {
        Report::new(self)
    }

    /// For how long drivers forward on after its end; `None` when the kernel has the interfaces then.
    pub(crate) fn survives(&self) -> Option<Duration> {
        self.interfaces.survives()
    }

    /// Stops the workers and gives the interfaces back to the kernel. Returns the report, and the messages since
    /// [`Daemon::take_messages`].
    pub(crate) fn stop(mut self) -> (Report, Vec<String>) {
        // Who still asks is told so.
        self.questions = None;
        // The kernel has its frames from here on; what is in our rings is still carried.
        self.interfaces.quiesce(self.workers_alive() < self.workers.len());
        // The last first: what one sends by another's queue is still carried.
        for (number, worker) in self.workers.iter_mut().enumerate().rev() {
            worker.tell(Command::Stop);
            if let Some(why) = worker.join() {
                self.messages.push(format!("worker {number} failed: {why}"));
            }
        }
        self.interfaces.detach();
        self.messages.extend(self.interfaces.take_notices());
        let messages = self.take_messages();
        (self.report(), messages)
    }
}

/// What all sources said to the end of their first dump.
struct Learned {
    control: Control,
    kernel: KernelFeed,
    sources: Sources,
    messages: Vec<String>,
}

fn learn(config: &Config) -> Result<Learned, DaemonError> {
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
    let distance = kernel_source.and_then(|source| source.distance);
    let mut kernel = KernelFeed::open(&mut control, config.kernel_routes(), distance)?;
    let until = Instant::now() + LONGEST_DUMP;
    while !kernel.ready() {
        if Instant::now() > until {
            return Err(DaemonError::Dump);
        }
        if kernel.turn(&mut control)? == 0 {
            sys::poll(&kernel.fds(), TICK);
        }
    }
    let mut messages = Vec::new();
    let mut sources = Sources::default();
    for source in config.source.iter().filter(|source| source.kind != "kernel") {
        let failed = |error| DaemonError::Source { kind: source.kind.clone(), error };
        messages.extend(sources.feed(&mut control, source).map_err(failed)?);
    }
    if let Err(error) = control.commit(Instant::now()) {
        messages.push(format!("routes are not all visible: {error}"));
    }
    messages.extend(control.take_decisions());
    Ok(Learned { control, kernel, sources, messages })
}

/// What `run --check` says: each interface and what would be done with it, and what could not be found out.
pub(crate) fn check(options: &RunOptions) -> Result<(Vec<Plan>, Vec<String>), DaemonError> {
    let Learned { control, .. } = learn(&options.config)?;
    let findings = takeover::survey().map_err(DaemonError::Survey)?;
    Ok((Interfaces::preview(&control, options, &findings), findings.unanswered))
}

fn spawn(
    mut worker: Worker,
    mut wait: PollWait,
    core: Option<usize>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("fingerpost".into()).spawn(move || {
        if let Some(core) = core {
            // Without the wanted processor it still forwards.
            let _ = sys::pin(core);
        }
        privilege::keep_nothing();
        worker.run(&mut wait);
    })
}
