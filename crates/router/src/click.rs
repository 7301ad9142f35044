//! A router that a file in Click's language describes: read, planned, opened, run until it is told to stop.
//!
//! Nothing is opened but what the file names. The elements work in one thread; handlers are called by those of the
//! control sockets. Who writes `hotconfig` replaces the configuration: first all that is new is opened, then the graph
//! is exchanged between two rounds, then what nobody needs any more is closed. Where something fails before, nothing
//! has changed.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fingerpost_lpm::registry;
use fingerpost_packet::control_socket::{Listen, SessionOptions};
use fingerpost_packet::device::afxdp::{self, PollWait, Waker};
use fingerpost_packet::device::{DRIVERS, DeviceError, DeviceSpec, Port, QueueSet};
use fingerpost_packet::element::Device;
use fingerpost_packet::graph::{Configuration, Errors, Graph, Language, NodeCounters, Report};
use fingerpost_packet::handler::Handler;
use fingerpost_packet::worker::{Command, Event, Worker, WorkerOptions};
use fingerpost_packet::{DropReason, ELEMENTS, Plan, Pool, WorkerCounters};
use fingerpost_route::{Control, ControlOptions};
use serde::Serialize;

use crate::control::{ControlServer, Installed, ListenError};

/// Frames besides those that ports and elements may hold.
const SPARE_FRAMES: usize = 4096;
/// No more than so many, whatever the elements may hold: 256 MiB.
const MOST_FRAMES: usize = 1 << 17;
const FRAME_BYTES: u16 = 2048;
/// Until the next look at what happened.
const TICK: Duration = Duration::from_millis(10);
/// Ports that are counted, whatever the first configuration has.
const COUNTED_PORTS: usize = 256;
/// For the worker to end a round and take another graph.
const LONGEST_REPLACING: Duration = Duration::from_secs(30);
/// For what elements hold to leave, once one of them asked for the end.
const LONGEST_DRAIN: Duration = Duration::from_secs(1);

/// A device of the file, and what it stands for here.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    /// What the file calls it.
    pub(crate) name: String,
    /// The driver that opens it.
    pub(crate) driver: String,
    /// What that driver opens.
    pub(crate) what: String,
}

/// Why there is no such router.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClickError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    /// What is wrong with it.
    #[error("{0}")]
    Wrong(#[from] Errors),
    /// A device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A control socket cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The file names no such device.
    #[error("--device {0}: the file names no such device")]
    NoDevice(String),
    /// No such driver.
    #[error("device {device}: no driver `{driver}`; there are {known}")]
    NoDriver { device: String, driver: String, known: String },
    /// The worker takes no commands any more.
    #[error("the worker has ended, or does not answer")]
    Worker,
    /// No thread, or no file descriptors.
    #[error("worker: {0}")]
    Thread(io::Error),
}

impl ClickError {
    /// Whether a privilege is missing.
    pub(crate) fn is_permission(&self) -> bool {
        let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        match self {
            Self::File { source, .. } | Self::Device(DeviceError::System { source, .. }) => {
                denied(source)
            }
            Self::Listen(ListenError::Tcp(_, source) | ListenError::Start(source)) => {
                denied(source)
            }
            Self::Listen(ListenError::Unix(error)) => error.is_permission(),
            _ => false,
        }
    }
}

/// A configuration that can be run.
pub(crate) struct Planned {
    configuration: Configuration,
    plan: Plan,
}

/// Reads a file, and those that it requires from its own folder.
///
/// # Errors
/// It cannot be read, or all that is wrong with it.
pub(crate) fn read(path: &Path) -> Result<Planned, ClickError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|source| ClickError::File { path: name.clone(), source })?;
    Ok(planned(None, &name, &text)?)
}

fn planned(before: Option<&Plan>, name: &str, text: &str) -> Result<Planned, Errors> {
    let configuration = configuration(name, text)?;
    let plan = Plan::after(before, &configuration, ELEMENTS)?;
    Ok(Planned { configuration, plan })
}

/// Reads a configuration that is called `name`; what it requires as a library is found beside the file that asks.
///
/// # Errors
/// All that is wrong with it.
pub(crate) fn configuration(name: &str, text: &str) -> Result<Configuration, Errors> {
    Language::new(ELEMENTS).library(library).read(name, text)
}

/// The file that `require(library FILE)` means: beside the one that asks.
fn library(wanted: &str, asking: &str) -> Result<(String, String), String> {
    let folder = Path::new(asking).parent().unwrap_or(Path::new(""));
    let path = folder.join(wanted);
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    Ok((path.display().to_string(), text))
}

/// A configuration that a client wants to be run, and where to say what came of it.
type Request = (String, Sender<Result<(), String>>);

/// A control socket, and what asked for it.
type Socket = ((Listen, SessionOptions), ControlServer);

/// A port under the number of its device.
type NumberedPort = (u16, Box<dyn Port>);

/// A router at work.
pub(crate) struct Running {
    /// Of the file, for messages and for what it requires.
    name: String,
    plan: Plan,
    stands: Vec<Stand>,
    /// Control sockets that are there whatever the file says.
    always: Vec<(Listen, SessionOptions)>,
    /// How each open port is driven.
    modes: BTreeMap<u16, String>,
    sockets: Vec<Socket>,
    /// Nobody needs these any more, but who asked for that may be their client.
    closing: Vec<Socket>,
    installed: Installed,
    ask: Sender<Request>,
    requests: Receiver<Request>,
    pool: Pool,
    counters: Arc<WorkerCounters>,
    nodes: Arc<[NodeCounters]>,
    commands: Sender<Command>,
    events: Receiver<Event>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    started: Instant,
    // The worker's view of the router's own routes, of which such a router has none.
    _control: Control,
}

impl Running {
    /// Opens the devices and control sockets, and starts.
    ///
    /// # Errors
    /// Something cannot be opened; nothing is left open then.
    pub(crate) fn start(
        name: &Path,
        planned: Planned,
        stands: &[Stand],
        sockets: &[Listen],
    ) -> Result<Self, ClickError> {
        let Planned { configuration, plan } = planned;
        let devices = plan.devices();
        let missing = |stand: &&Stand| devices.iter().all(|device| device.name != stand.name);
        if let Some(stand) = stands.iter().find(missing) {
            return Err(ClickError::NoDevice(stand.name.clone()));
        }
        let rings = devices.len() * afxdp::frames_needed(afxdp::RING) as usize;
        let frames = plan.holds().saturating_add(rings + SPARE_FRAMES).min(MOST_FRAMES);
        let frames = u32::try_from(frames).expect("bounded above");
        let pool = Pool::new(frames, FRAME_BYTES);
        let ports = open_ports(&plan, stands, &pool, &BTreeMap::new())?;
        let modes = ports.iter().map(|(number, port)| (*number, port.mode())).collect();
        let installed = Installed::default();
        let always: Vec<_> =
            sockets.iter().map(|listen| (listen.clone(), SessionOptions::default())).collect();
        let sockets = open_sockets(&plan, &always, &[], &installed)?;
        let control = Control::new(ControlOptions {
            v4: registry::v4().collect(),
            v6: registry::v6().collect(),
            connected_from_addresses: false,
        })
        .expect("tables without routes are built");
        let counters = Arc::new(WorkerCounters::new(devices.len().max(COUNTED_PORTS), 1));
        let (mut wait, waker) = PollWait::new().map_err(ClickError::Thread)?;
        let (commands, orders) = channel();
        let (asks, _) = sync_channel(1);
        let (told, events) = channel();
        let (ask, requests) = channel();
        let mut worker = Worker::new(WorkerOptions {
            plan: &plan,
            pool: pool.clone(),
            reader: control.reader(),
            counters: counters.clone(),
            commands: orders,
            asks,
            events: told,
            flow_seed: 0,
        });
        let nodes = worker.graph().counters();
        for (number, port) in ports {
            worker.add_port(number, port);
        }
        let thread = std::thread::Builder::new()
            .name("fingerpost".into())
            .spawn(move || worker.run(&mut wait))
            .map_err(ClickError::Thread)?;
        let running = Self {
            name: name.display().to_string(),
            stands: stands.to_vec(),
            always,
            modes,
            sockets,
            closing: Vec::new(),
            installed,
            ask,
            requests,
            pool,
            counters,
            nodes,
            commands,
            events,
            waker,
            thread: Some(thread),
            started: Instant::now(),
            plan,
            _control: control,
        };
        running.install(configuration);
        Ok(running)
    }

    /// Lets the handlers of the present plan be called, and one that replaces it.
    fn install(&self, configuration: Configuration) {
        let ask = self.ask.clone();
        let hotconfig = Handler::write("hotconfig", move |text| {
            let (reply, answer) = channel();
            let gone = |_| "the router ends".to_owned();
            ask.send((text.to_owned(), reply)).map_err(|_| "the router ends".to_owned())?;
            answer.recv_timeout(LONGEST_REPLACING).map_err(gone)?
        });
        let (plan, nodes) = (self.plan.clone(), self.nodes.clone());
        let stats = Handler::read("stats", move || stats(&plan, &nodes));
        let handlers = self.plan.handlers(configuration).global(stats).global(hotconfig);
        self.installed.install(Arc::new(handlers));
    }

    /// What it uses, a line each.
    pub(crate) fn opened(&self) -> impl Iterator<Item = String> {
        let name = |port: &u16| &self.plan.devices()[usize::from(*port)].name;
        let devices = self.modes.iter().map(move |(port, mode)| format!("{}: {mode}", name(port)));
        let sockets = self.sockets.iter().map(|(_, s)| format!("control socket {}", s.place()));
        devices.chain(sockets)
    }

    /// Works until `stop` says so, or an element of the file; what happens is told to `tell`.
    pub(crate) fn run(&mut self, stop: &mut dyn FnMut() -> bool, tell: &mut dyn FnMut(String)) {
        let mut ending: Option<Instant> = None;
        while !stop() && !self.has_ended() {
            std::thread::sleep(TICK);
            let closing = std::mem::take(&mut self.closing);
            if !closing.is_empty() {
                // It waits for their clients, and one of them may wait for an answer of this thread.
                std::thread::spawn(move || drop(closing));
            }
            while let Ok(event) = self.events.try_recv() {
                self.hear(event, tell);
            }
            while let Ok((text, reply)) = self.requests.try_recv() {
                let replaced = self.replace(&text, tell);
                if replaced.is_ok() {
                    tell("the configuration was replaced".to_owned());
                }
                // Who asked may have gone.
                let _ = reply.send(replaced.map_err(|error| error.to_string()));
            }
            if self.plan.is_stopped() {
                let since = *ending.get_or_insert_with(Instant::now);
                let held = self.counters.held.read() + self.counters.generated_held.read();
                // A round after the last packet has counted what waits.
                if held == 0 && since.elapsed() > TICK || since.elapsed() > LONGEST_DRAIN {
                    break;
                }
            }
        }
    }

    /// Whether the worker ended by itself, as one does that panicked.
    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    fn hear(&mut self, event: Event, tell: &mut dyn FnMut(String)) {
        if let Event::PortFailed(port, error, _) = event {
            self.modes.remove(&port);
            tell(format!("{}: {error}", self.plan.devices()[usize::from(port)].name));
        }
    }

    /// Runs another configuration from now on.
    fn replace(&mut self, text: &str, tell: &mut dyn FnMut(String)) -> Result<(), ClickError> {
        let Planned { configuration, plan } = planned(Some(&self.plan), &self.name, text)?;
        let ports = open_ports(&plan, &self.stands, &self.pool, &self.modes)?;
        let opened = open_sockets(&plan, &self.always, &self.sockets, &self.installed)?;
        let graph = Box::new(Graph::after(&self.plan, &plan, &self.pool));
        // From here on nothing fails but the worker itself.
        self.nodes = graph.counters();
        for (number, port) in ports {
            self.modes.insert(number, port.mode());
            self.tell_worker(Command::AddPort(number, port));
        }
        self.tell_worker(Command::Replace(graph));
        self.plan = plan;
        self.wait_for_worker(tell)?;
        let unused = |(number, device): (u16, &Device)| (!device.used).then_some(number);
        let unused: Vec<u16> = (0..).zip(self.plan.devices()).filter_map(unused).collect();
        for number in unused {
            if self.modes.remove(&number).is_some() {
                self.tell_worker(Command::RemovePort(number));
            }
        }
        let wanted = wanted_sockets(&self.plan, &self.always);
        let (stay, go) = std::mem::take(&mut self.sockets)
            .into_iter()
            .partition(|(asked, _)| wanted.contains(asked));
        (self.sockets, self.closing) = (stay, go);
        self.sockets.extend(opened);
        self.install(configuration);
        Ok(())
    }

    fn tell_worker(&self, command: Command) {
        // It may have ended by itself, as one whose thread panicked has: `stop` tells.
        let _ = self.commands.send(command);
        self.waker.wake();
    }

    /// Until it runs the new graph.
    fn wait_for_worker(&mut self, tell: &mut dyn FnMut(String)) -> Result<(), ClickError> {
        while let Ok(event) = self.events.recv_timeout(LONGEST_REPLACING) {
            if matches!(event, Event::Replaced(_)) {
                return Ok(());
            }
            self.hear(event, tell);
        }
        Err(ClickError::Worker)
    }

    /// Ends it, and says what it did.
    pub(crate) fn stop(mut self) -> ClickReport {
        self.tell_worker(Command::Stop);
        // Who waits for an answer is told that there will be none.
        drop(self.requests);
        let crashed = self.thread.take().is_some_and(|thread| thread.join().is_err());
        drop((self.sockets, self.closing));
        let counters = &self.counters;
        let count = |of: &[fingerpost_packet::counters::Count]| {
            let each = DropReason::ALL.iter().map(|&why| (why.name(), of[why as usize].read()));
            each.filter(|(_, count)| *count > 0).collect()
        };
        let elements =
            self.plan.nodes().iter().zip(self.nodes.iter()).map(|(node, counts)| Element {
                name: node.name.to_string(),
                class: node.class.spec.name,
                packets: counts.packets.read(),
                batches: counts.batches.read(),
                dropped: counts.drops(),
                reasons: reasons(counts),
            });
        ClickReport {
            crashed,
            packets_in: counters.packets_in.read(),
            packets_out: counters.packets_out.read(),
            dropped: count(&counters.dropped),
            originated: counters.generated.read(),
            originated_sent: counters.generated_sent.read(),
            originated_dropped: count(&counters.generated_dropped),
            elements: elements.collect(),
            seconds: self.started.elapsed().as_secs_f64(),
        }
    }
}

/// What each element counted, a line each: its name and class, packets, batches, drops, and these by reason.
fn stats(plan: &Plan, nodes: &[NodeCounters]) -> String {
    let mut text = String::new();
    for (node, counts) in plan.nodes().iter().zip(nodes) {
        let (packets, batches) = (counts.packets.read(), counts.batches.read());
        let (name, class, drops) = (&node.name, node.class.spec.name, counts.drops());
        text += &format!("{name}\t{class}\t{packets}\t{batches}\t{drops}");
        for (why, count) in reasons(counts) {
            text += &format!("\t{why} {count}");
        }
        text.push('\n');
    }
    text
}

/// Packets that ended at an element, by reason.
fn reasons(counts: &NodeCounters) -> BTreeMap<&'static str, u64> {
    let each = DropReason::ALL.iter().map(|&why| (why.name(), counts.dropped(why)));
    each.filter(|(_, count)| *count > 0).collect()
}

/// The ports of a plan's devices that are not open.
fn open_ports(
    plan: &Plan,
    stands: &[Stand],
    pool: &Pool,
    open: &BTreeMap<u16, String>,
) -> Result<Vec<NumberedPort>, ClickError> {
    let missing = (0..).zip(plan.devices());
    let missing = missing.filter(|(number, device)| device.used && !open.contains_key(number));
    missing.map(|(number, device)| Ok((number, open_port(device, stands, pool)?))).collect()
}

/// The control sockets that a plan and others ask for.
fn wanted_sockets(
    plan: &Plan,
    always: &[(Listen, SessionOptions)],
) -> Vec<(Listen, SessionOptions)> {
    plan.control_sockets().chain(always).cloned().collect()
}

/// Those of them that are not `open`.
fn open_sockets(
    plan: &Plan,
    always: &[(Listen, SessionOptions)],
    open: &[Socket],
    installed: &Installed,
) -> Result<Vec<Socket>, ListenError> {
    let is_open = |asked: &(Listen, SessionOptions)| open.iter().any(|(known, _)| known == asked);
    let missing = wanted_sockets(plan, always).into_iter().filter(|asked| !is_open(asked));
    let start = |asked: (Listen, SessionOptions)| {
        let server = ControlServer::start(&asked.0, asked.1, installed.clone())?;
        Ok((asked, server))
    };
    missing.map(start).collect()
}

/// The port of a device: what stands for it, or the interface of its name.
fn open_port(device: &Device, stands: &[Stand], pool: &Pool) -> Result<Box<dyn Port>, ClickError> {
    let stand = stands.iter().find(|stand| stand.name == device.name);
    let (driver, name) = match (stand, &device.driver) {
        (Some(stand), _) => (stand.driver.as_str(), stand.what.as_str()),
        (None, Some(driver)) => (driver.as_str(), device.name.as_str()),
        (None, None) => ("afxdp", device.name.as_str()),
    };
    let Some(row) = DRIVERS.iter().find(|row| row.name == driver) else {
        return Err(ClickError::NoDriver {
            device: device.name.clone(),
            driver: driver.to_owned(),
            known: DRIVERS.iter().map(|row| row.name).collect::<Vec<_>>().join(", "),
        });
    };
    // A device of another kind has one queue, or does not say.
    let queues = afxdp::queues(name).unwrap_or(1);
    let mut ports = QueueSet::default();
    for port in (row.open)(&DeviceSpec { name, queues: (0, queues), pool })? {
        ports.push(port);
    }
    Ok(Box::new(ports))
}

/// What such a router did.
#[derive(Debug, Serialize)]
pub(crate) struct ClickReport {
    #[serde(skip)]
    pub(crate) crashed: bool,
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    pub(crate) originated: u64,
    pub(crate) originated_sent: u64,
    pub(crate) originated_dropped: BTreeMap<&'static str, u64>,
    pub(crate) elements: Vec<Element>,
    pub(crate) seconds: f64,
}

/// What one element saw.
#[derive(Debug, Serialize)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) packets: u64,
    pub(crate) batches: u64,
    pub(crate) dropped: u64,
    /// The same, by reason.
    pub(crate) reasons: BTreeMap<&'static str, u64>,
}

/// What the file would open.
#[derive(Debug, Serialize)]
pub(crate) struct ClickPlan {
    pub(crate) elements: usize,
    pub(crate) devices: Vec<String>,
    pub(crate) control_sockets: usize,
}

impl Planned {
    /// What may not be meant as it is written, a line each.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let line = |report: &Report| format!("{}: warning: {}", report.place, report.message);
        self.plan.warnings().iter().map(line)
    }

    /// What it would open.
    pub(crate) fn outline(&self) -> ClickPlan {
        ClickPlan {
            elements: self.plan.nodes().len(),
            devices: self.plan.devices().iter().map(|device| device.name.clone()).collect(),
            control_sockets: self.plan.control_sockets().count(),
        }
    }
}

/// A file of this kind.
pub(crate) fn is_one(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "click")
}

/// `NAME=DRIVER:WHAT`, as it is given on the command line.
impl std::str::FromStr for Stand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not NAME=DRIVER:WHAT, as eth0=pcap:in.pcap,out.pcap");
        let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (driver, what) = rest.split_once(':').ok_or_else(wrong)?;
        Ok(Self { name: name.to_owned(), driver: driver.to_owned(), what: what.to_owned() })
    }
}
