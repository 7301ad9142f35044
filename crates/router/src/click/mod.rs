//! A router that a file in Click's language describes: read, planned, opened, run until it is stopped.
//!
//! Nothing is opened but what the file names. The elements work in one thread or several (`click/workers.rs`), each with
//! its share of every device (`click/ports.rs`); handlers are called by the threads of the control sockets. Who writes
//! `hotconfig` replaces the configuration: first all that is new is opened, then each worker exchanges its graph between
//! two rounds, then what nobody needs any more is closed. Where something fails before, nothing has changed.

mod archive;
mod dry_run;
mod library;
mod ports;
mod report;
#[cfg(feature = "click")]
pub(crate) mod single;
mod statistics;
mod tracing;
#[cfg(feature = "click")]
pub(crate) mod words;
mod workers;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ::tracing::{error, info, warn};
use fingerpost_lpm::input;
use fingerpost_packet::device::DeviceError;
use fingerpost_packet::graph::Device;
use fingerpost_packet::graph::worker::Event;
use fingerpost_packet::handler::control_socket::{Listen, SessionOptions, SocketRequest};
use fingerpost_packet::handler::{Handler, Handlers};
#[cfg(feature = "click")]
use fingerpost_packet::language::AnyClass;
use fingerpost_packet::language::{Classes, Configuration, Errors, Language};
use fingerpost_packet::{OpenPolicy, Plan, Pool};

use crate::control::{ControlServer, ListenError, Service};
use crate::{log, registry};

use ports::{Driven, Opened};
pub(crate) use report::{ClickPlan, ClickReport, Share};
use statistics::Seeing;
use tracing::Tracing;
pub(crate) use workers::Places;
use workers::{LONGEST_ANSWER, Workers};

/// Frames of each worker besides those that ports and elements may hold.
const SPARE_FRAMES: usize = 4096;
/// No more than so many, whatever the elements may hold: 256 MiB.
const MOST_FRAMES: usize = 1 << 17;
const FRAME_BYTES: u16 = 2048;
/// Interval of checks of events.
const TICK: Duration = Duration::from_millis(10);
/// Time for packets that elements hold to leave, once one of them has ended the run.
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
    /// Its place is that of a socket that is open with other options.
    #[error("{0}: close it in one change and open it in the next, or take another place")]
    OtherSocket(ListenError),
    /// Whoever sent the configuration may not have it opened.
    #[error("{what}: {source}")]
    Denied { what: String, source: io::Error },
    /// The file names no such device.
    #[error("--device {0}: the file names no such device")]
    NoDevice(String),
    /// No such driver.
    #[error("device {device}: no driver `{driver}`; there are {known}")]
    NoDriver { device: String, driver: String, known: String },
    /// It is open, by another driver.
    #[error(
        "device {device}: {open} drives it already, and {asked} cannot in the same moment: put a configuration without \
         it in between"
    )]
    OtherDriver { device: String, open: &'static str, asked: &'static str },
    /// One takes no commands any more.
    #[error("a worker has ended, or does not answer")]
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
            Self::File { source, .. } => denied(source),
            Self::Device(error) => error.is_permission(),
            Self::Listen(ListenError::Tcp(_, source) | ListenError::Start(source)) => {
                denied(source)
            }
            Self::Listen(ListenError::Unix(error)) => error.is_permission(),
            Self::Denied { source, .. } => denied(source),
            _ => false,
        }
    }
}

/// A configuration that can be run.
pub(crate) struct Planned {
    configuration: Configuration,
    plan: Plan,
}

/// Reads a file, and those that it requires from its own folder; opens no files but what the policy allows.
///
/// # Errors
/// It cannot be read, or all that is wrong with it.
pub(crate) fn read(path: &Path, policy: &OpenPolicy) -> Result<Planned, ClickError> {
    let name = path.display().to_string();
    let text =
        input::read_text(path).map_err(|source| ClickError::File { path: name.clone(), source })?;
    Ok(planned(None, &name, &text, &Given::default(), policy)?)
}

/// Reads a configuration as [`configuration`] does, and plans it: after another one, if it takes its place.
///
/// # Errors
/// All that is wrong with it.
pub(crate) fn planned(
    before: Option<&Plan>,
    name: &str,
    text: &str,
    given: &Given<'_>,
    policy: &OpenPolicy,
) -> Result<Planned, Errors> {
    let configuration = configuration(name, text, given, policy)?;
    let plan = Plan::after(before, &configuration, registry::all())?;
    Ok(Planned { configuration, plan })
}

/// A configuration without compounds: of any classes, and nothing of it is checked. Its definitions and what names them
/// stay, unless they are to be expanded.
///
/// # Errors
/// It cannot be read.
#[cfg(feature = "click")]
pub(crate) fn flattened(
    name: &str,
    text: &str,
    given: &Given<'_>,
    expand: bool,
) -> Result<Configuration, Errors> {
    let classes = AnyClass(registry::all().elements);
    let language = Language::new(&classes).unchecked().keeping_defined(!expand);
    read_as(language, name, text, given, &OpenPolicy::check())
}

/// What a configuration is given besides.
#[derive(Clone, Copy, Default)]
pub(crate) struct Given<'a> {
    /// Values of its variables.
    pub(crate) variables: &'a [(String, String)],
    /// Folders of its libraries, before that of the file that requires them.
    pub(crate) folders: &'a [PathBuf],
    /// Other variables stay as they are, as in Click.
    pub(crate) keeps_unknown: bool,
}

/// Reads a configuration that is called `name`, with what it is given, and the libraries that it requires where the policy
/// allows it.
///
/// # Errors
/// All that is wrong with it.
pub(crate) fn configuration(
    name: &str,
    text: &str,
    given: &Given<'_>,
    policy: &OpenPolicy,
) -> Result<Configuration, Errors> {
    read_as(Language::new(registry::all().elements), name, text, given, policy)
}

fn read_as<'a, C: Classes + ?Sized>(
    language: Language<'a, C>,
    name: &str,
    text: &str,
    given: &Given<'a>,
    policy: &'a OpenPolicy,
) -> Result<Configuration, Errors> {
    let language = language.opening(policy.clone()).keeping_unknown(given.keeps_unknown);
    let language = given
        .variables
        .iter()
        .fold(language, |language, (name, value)| language.define(name, value));
    let folders = given.folders;
    language
        .library(move |wanted, asking| library::read(wanted, asking, folders, policy))
        .read(name, text)
}

/// A configuration that a client wants to be run.
struct Request {
    text: String,
    /// What it may open.
    policy: OpenPolicy,
    /// Where its result goes; `None` where nobody can wait for it.
    reply: Option<Sender<Result<(), String>>>,
}

/// A control socket, and what it is of.
type Socket = (SocketRequest, ControlServer);

/// A router at work.
pub(crate) struct Running {
    /// Name of the file, for messages and for what it requires.
    name: String,
    plan: Plan,
    stands: Vec<Stand>,
    /// Control sockets that are there whatever the file has.
    always: Vec<SocketRequest>,
    /// How each open port is driven.
    driven: BTreeMap<u16, Driven>,
    sockets: Vec<Socket>,
    /// Sockets that nobody needs any more; their clients may have requested that.
    closing: Vec<Socket>,
    service: Service,
    ask: Sender<Request>,
    requests: Receiver<Request>,
    workers: Workers,
    seeing: Seeing,
    tracing: Tracing,
    started: Instant,
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
        places: &Places,
        service: Service,
    ) -> Result<Self, ClickError> {
        let Planned { configuration, plan } = planned;
        let devices = plan.devices();
        let missing = |stand: &&Stand| devices.iter().all(|device| device.name != stand.name);
        if let Some(stand) = stands.iter().find(missing) {
            return Err(ClickError::NoDevice(stand.name.clone()));
        }
        let kept = kept(&plan, stands, places.count());
        let frames = kept.saturating_add(SPARE_FRAMES).min(MOST_FRAMES);
        let frames = u32::try_from(frames).expect("bounded above");
        let pools: Vec<_> = (0..places.count()).map(|_| Pool::new(frames, FRAME_BYTES)).collect();
        let ports = open_ports(&plan, stands, &pools, &BTreeMap::new(), &service.policy)?;
        let driven = ports.iter().map(|opened| (opened.number, opened.driven.clone())).collect();
        let always = requests(sockets);
        let (sockets, _) = open_sockets(&plan, &always, &[], &service, &service.policy)?;
        let (ask, requests) = channel();
        let workers = Workers::start(&plan, places, &pools, ports)?;
        let running = Self {
            name: name.display().to_string(),
            stands: stands.to_vec(),
            always,
            driven,
            sockets,
            closing: Vec::new(),
            service,
            ask,
            requests,
            seeing: Seeing::new(&workers),
            tracing: Tracing::new(&workers),
            workers,
            started: Instant::now(),
            plan,
        };
        running.install(configuration);
        Ok(running)
    }

    /// Lets the handlers of the present plan be called, and one that replaces it.
    fn install(&self, configuration: Configuration) {
        let ask = self.ask.clone();
        let hotconfig = Handler::write_opening("hotconfig", move |text, policy| {
            let (reply, answer) = channel();
            let gone = |_| "the router ends".to_owned();
            let reply = Some(reply);
            let request = Request { text: text.to_owned(), policy: policy.clone(), reply };
            ask.send(request).map_err(|_| "the router ends".to_owned())?;
            answer.recv_timeout(LONGEST_ANSWER).map_err(gone)?
        });
        let stopped = self.plan.clone();
        let stop = Handler::write("stop", move |_| {
            stopped.request_stop();
            Ok(())
        });
        let handlers = self.plan.handlers(configuration).global(stop).global(hotconfig);
        let seen = self.seeing.handlers(&self.plan, &self.workers).into_iter();
        let seen = seen.chain(self.tracing.handlers(&self.plan));
        let seen = seen.chain([dry_run::handler(&self.plan, &self.workers)]);
        let handlers = seen.rev().fold(handlers, Handlers::global);
        let handlers = Arc::new(handlers);
        self.plan.installed().install(&handlers);
        self.service.installed.install(handlers);
    }

    /// What it uses, a line each.
    pub(crate) fn opened(&self) -> impl Iterator<Item = String> {
        let name = |port: &u16| &self.plan.devices()[usize::from(*port)].name;
        let devices = self.driven.iter();
        let devices = devices.map(move |(port, driven)| format!("{}: {}", name(port), driven.mode));
        let listening = self.sockets.iter().filter(|(_, socket)| socket.listened());
        let sockets = listening.map(|(_, s)| format!("control socket {}", s.place()));
        devices.chain(sockets)
    }

    /// Runs until `stop` returns true or an element of the file ends it; reads the file again where `again` returns true.
    pub(crate) fn run(&mut self, stop: &mut dyn FnMut() -> bool, again: &mut dyn FnMut() -> bool) {
        let mut ending: Option<Instant> = None;
        while !stop() && !self.workers.has_ended() {
            std::thread::sleep(TICK);
            log::turn();
            close(std::mem::take(&mut self.closing));
            while let Some(event) = self.workers.event() {
                self.hear(event);
            }
            while let Ok(Request { text, policy, reply }) = self.requests.try_recv() {
                let replaced = self.replace(&text, &policy);
                if replaced.is_ok() {
                    info!(target: "graph", "the configuration was replaced");
                }
                if let Some(reply) = reply {
                    // The requester may have left.
                    let _ = reply.send(replaced.map_err(|error| error.to_string()));
                }
            }
            if again() {
                self.read_again();
            }
            end_without(&self.sockets, &self.plan);
            if self.plan.is_stopped() {
                let since = *ending.get_or_insert_with(Instant::now);
                // A round after the last packet has counted what waits.
                if self.workers.held() == 0 && since.elapsed() > TICK
                    || since.elapsed() > LONGEST_DRAIN
                {
                    break;
                }
            }
        }
    }

    fn hear(&mut self, event: Event) {
        let Event::PortFailed(number, error, _) = event else { return };
        // The other workers have ports of it as well, and may have reported it.
        if self.driven.remove(&number).is_some() {
            let name = &self.plan.devices()[usize::from(number)].name;
            warn!(target: "graph", "{name}: {error}");
            self.remove(number);
        }
    }

    /// Runs the present content of the file, as if it was written to `hotconfig`; one that cannot be run changes nothing.
    fn read_again(&mut self) {
        let name = self.name.clone();
        let text = input::read_text(&name)
            .map_err(|source| ClickError::File { path: name.clone(), source });
        let policy = self.service.policy.clone();
        match text.and_then(|text| self.replace(&text, &policy)) {
            Ok(()) => info!(target: "graph", "{name} was read again and runs from now on"),
            Err(error) => {
                for line in error.to_string().lines() {
                    error!(target: "graph", "{line}");
                }
                error!(target: "graph", "{name} is refused: what ran before runs on");
            }
        }
    }

    /// Runs another configuration from now on, which may open no more than the policy allows.
    fn replace(&mut self, text: &str, policy: &OpenPolicy) -> Result<(), ClickError> {
        let Planned { configuration, plan } =
            planned(Some(&self.plan), &self.name, text, &Given::default(), policy)?;
        let ports = open_ports(&plan, &self.stands, &self.workers.pools(), &self.driven, policy)?;
        let opened = open_sockets(&plan, &self.always, &self.sockets, &self.service, policy)?;
        let pools = self.workers.pools();
        let (kept, there) = (kept(&plan, &self.stands, pools.len()), pools[0].frames());
        if kept > there {
            let more = if there < MOST_FRAMES { "; a restart makes more" } else { "" };
            warn!(
                target: "graph",
                "the new configuration may keep {kept} frames in each worker, and there are {there}: what finds none \
                 is dropped (no_buffer){more}"
            );
        }
        // From here on nothing fails but the workers themselves.
        for Opened { number, ports, driven } in ports {
            self.driven.insert(number, driven);
            self.workers.add(number, ports);
        }
        let before = std::mem::replace(&mut self.plan, plan);
        let mut heard = Vec::new();
        let replaced = self.workers.replace(&before, &self.plan, &mut |event| heard.push(event));
        self.tracing.gather(&before);
        heard.into_iter().for_each(|event| self.hear(event));
        replaced?;
        let unused = |(number, device): (u16, &Device)| (!device.used).then_some(number);
        let unused: Vec<u16> = (0..).zip(self.plan.devices()).filter_map(unused).collect();
        for number in unused {
            if self.driven.remove(&number).is_some() {
                self.remove(number);
            }
        }
        self.closing.extend(exchange_sockets(&mut self.sockets, opened));
        self.install(configuration);
        Ok(())
    }

    /// Closes a device.
    fn remove(&mut self, number: u16) {
        let mut heard = Vec::new();
        self.workers.remove(number, &mut |event| heard.push(event));
        heard.into_iter().for_each(|event| self.hear(event));
    }

    /// Stops it, and returns its report.
    pub(crate) fn stop(mut self) -> ClickReport {
        // Requesters that wait receive an error.
        drop(self.requests);
        let crashed = self.workers.stop();
        drop((self.sockets, self.closing));
        ClickReport::new(&self.plan, &self.workers, crashed, self.started)
    }
}

/// Frames that elements and ports of each worker may keep.
fn kept(plan: &Plan, stands: &[Stand], workers: usize) -> usize {
    let used = plan.devices().iter().filter(|device| device.used);
    plan.holds().saturating_add(ports::in_rings(used, stands, workers))
}

/// The ports of a plan's devices that are not open.
fn open_ports(
    plan: &Plan,
    stands: &[Stand],
    pools: &[Pool],
    open: &BTreeMap<u16, Driven>,
    policy: &OpenPolicy,
) -> Result<Vec<Opened>, ClickError> {
    let used = || (0..).zip(plan.devices()).filter(|(_, device)| device.used);
    for (number, device) in used() {
        if let Some(driven) = open.get(&number) {
            ports::agree(device, stands, driven)?;
        }
    }
    let missing = used().filter(|(number, _)| !open.contains_key(number));
    missing.map(|(number, device)| ports::open(number, device, stands, pools, policy)).collect()
}

/// Requests of the sockets of a command line.
fn requests(sockets: &[Listen]) -> Vec<SocketRequest> {
    let request = |listen: &Listen| SocketRequest::new(listen.clone(), SessionOptions::default());
    sockets.iter().map(request).collect()
}

/// Control sockets of a plan, and others, where no `open` one meets them; and whether each open one meets one.
fn open_sockets(
    plan: &Plan,
    always: &[SocketRequest],
    open: &[Socket],
    service: &Service,
    policy: &OpenPolicy,
) -> Result<(Vec<Socket>, Vec<bool>), ClickError> {
    let wanted = plan.control_sockets().chain(always).cloned().collect();
    let known: Vec<_> = open.iter().map(|(known, _)| known).collect();
    let (missing, used) = SocketRequest::matched(wanted, &known);
    let failed = |asked: &SocketRequest, error: ListenError| {
        let is_open = known.iter().any(|known| known.listen == asked.listen);
        match error.is_taken() && is_open {
            true => ClickError::OtherSocket(error),
            false => error.into(),
        }
    };
    let start = |asked: SocketRequest| {
        let place = asked.listen.to_string();
        let denied =
            |source| ClickError::Denied { what: format!("ControlSocket({place})"), source };
        policy.control_socket(&place).map_err(denied)?;
        let started = ControlServer::start(&asked, service.clone());
        let server = started.map_err(|error| failed(&asked, error))?;
        Ok((asked, server))
    };
    let opened = missing.into_iter().map(start).collect::<Result<_, ClickError>>()?;
    Ok((opened, used))
}

/// Puts what [`open_sockets`] opened in the place of those that meet no request, and returns the latter.
fn exchange_sockets(
    sockets: &mut Vec<Socket>,
    (opened, used): (Vec<Socket>, Vec<bool>),
) -> Vec<Socket> {
    let open = std::mem::take(sockets).into_iter().zip(used);
    let (stay, go): (Vec<_>, Vec<_>) = open.partition(|(_, used)| *used);
    sockets.extend(stay.into_iter().map(|(socket, _)| socket).chain(opened));
    go.into_iter().map(|(socket, _)| socket).collect()
}

/// Closes sockets, once their clients have had time to read an answer of the calling thread, on a thread of its own: it
/// waits for the clients, and one of them may wait for another answer.
fn close(sockets: Vec<Socket>) {
    if !sockets.is_empty() {
        std::thread::spawn(move || {
            std::thread::sleep(TICK);
            drop(sockets);
        });
    }
}

/// Requests the end of the router where a control socket could not be opened after all.
fn end_without(sockets: &[Socket], plan: &Plan) {
    if sockets.iter().any(|(_, server)| server.take_failure()) {
        plan.request_stop();
    }
}

/// Whether a file is a graph, and not a configuration (TOML): by its name, else by what stands in it.
///
/// # Errors
/// What is wrong with it as either, where it is neither.
pub(crate) fn is_one(path: &Path) -> Result<bool, String> {
    match path.extension() {
        Some(extension) if extension == "click" => return Ok(true),
        Some(extension) if extension == "toml" => return Ok(false),
        _ => {}
    }
    // What cannot be read twice, or at all, is looked at by who reads it.
    let Ok(text) = input::read_text(path) else { return Ok(false) };
    let Err(error) = toml::from_str::<toml::Table>(&text) else { return Ok(false) };
    let name = path.display().to_string();
    let Err(errors) = configuration(&name, &text, &Given::default(), &OpenPolicy::check()) else {
        return Ok(true);
    };
    let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
    let as_toml = error.message().trim_end().replace('\n', "; ");
    let as_graph = errors
        .reports
        .first()
        .map_or_else(String::new, |error| format!("line {}: {}", error.place.line, error.message));
    Err(format!(
        "{name}: neither a configuration in TOML (line {line}: {as_toml}) nor a graph in Click's language \
         ({as_graph}): a name that ends in .toml or .click selects one"
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_ends_when_stop_is_written() {
        let policy = OpenPolicy::default();
        let planned = planned(None, "a", "Idle -> Discard", &Given::default(), &policy);
        let service = Service::new(policy, None);
        let installed = service.installed.clone();
        let places = Places::Anywhere(1);
        let running =
            Running::start(Path::new("a"), planned.ok().unwrap(), &[], &[], &places, service);
        let mut running = running.ok().unwrap();
        installed.get().unwrap().write("stop", "").unwrap();
        let (start, longest) = (Instant::now(), Duration::from_secs(10));
        running.run(&mut || start.elapsed() > longest, &mut || false);
        assert!(start.elapsed() < longest);
        drop(running.stop());
    }
}
