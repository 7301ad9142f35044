//! A graph that runs in the calling thread, as Click's driver runs one: a turn of each element after the other, by the time
//! of the host or by a virtual clock.
//!
//! The virtual clock (`--simtime`) begins at 1,000,000,000 seconds, or where it was given a start. It advances by a microsecond a round while elements have
//! something to do, and to the next time that an element waits for where none has; where one does not know its time, by a
//! millisecond. The same configuration does the same each time.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

use fingerpost_lpm::mem::LINE_BYTES;
use fingerpost_lpm::registry as algorithms;
use fingerpost_packet::element::click::only::{clock, console, time};
use fingerpost_packet::graph::Graph;
use fingerpost_packet::graph::worker::{Command, Event, Worker, WorkerOptions, clock_start};
use fingerpost_packet::handler::control_socket::{Listen, SocketRequest};
use fingerpost_packet::handler::{Handler, Handlers};
use fingerpost_packet::language::Configuration;
use fingerpost_packet::{OpenPolicy, Plan, Pool, WorkerCounters};
use fingerpost_route::{Control, ControlOptions};

use super::workers::{COUNTED_PORTS, FLOW_SEED};
use super::{
    ClickError, FRAME_BYTES, Given, MOST_FRAMES, Planned, Request, SPARE_FRAMES, Socket, archive,
    close, end_without, exchange_sockets, kept, open_ports, open_sockets, planned, requests, words,
};
use crate::control::Service;
use crate::sys;

/// Virtual time of a round in which something happened.
const ROUND_NS: u64 = 1000;
/// Step of the virtual clock, and longest sleep, where an element waits for a time that it does not know.
const STEP: Duration = Duration::from_nanos(STEP_NS);
const STEP_NS: u64 = 1_000_000;
/// Longest sleep where none waits for a time.
const SLEEP: Duration = Duration::from_millis(5);

/// Memory of all frames where no device takes part. Only the pages that packets reach are used.
const MOST_BYTES: usize = 1 << 30;

/// Size of each of so many frames where no device takes part: traces have packets of up to 64 KiB, which the host
/// segments or reassembles. An odd number of cache lines, as `Pool::new` advises.
fn largest_frame(frames: usize) -> u16 {
    let lines = (MOST_BYTES / LINE_BYTES / frames).min(usize::from(u16::MAX) / LINE_BYTES);
    u16::try_from(((lines - 1) | 1) * LINE_BYTES).expect("bounded above")
}

/// What is run, and how.
pub(crate) struct SingleOptions<'a> {
    /// Name of the configuration, for messages and for what it requires.
    pub(crate) name: String,
    /// What its configurations are given.
    pub(crate) given: Given<'a>,
    /// Control sockets.
    pub(crate) sockets: Vec<Listen>,
    /// It may be replaced.
    pub(crate) reconfigures: bool,
    /// Time is virtual, and begins at this time of the day.
    pub(crate) virtual_start_ns: Option<i64>,
}

impl Planned {
    /// Whether it has no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.configuration.elements().is_empty()
    }

    /// The configuration without compounds.
    pub(crate) fn flat(&self) -> String {
        self.configuration.flatconfig()
    }

    /// What may not be meant as it is written, in Click's words: lines.
    pub(crate) fn warnings_in_click(&self) -> Vec<String> {
        words::shown(self.plan.warnings().iter())
    }
}

/// The graph at work.
pub(crate) struct Single<'a> {
    options: SingleOptions<'a>,
    plan: Plan,
    worker: Worker,
    commands: Sender<Command>,
    events: Receiver<Event>,
    pool: Pool,
    handlers: Arc<Handlers>,
    signals: Signals,
    service: Service,
    /// Control sockets that are there whatever the configuration has.
    always: Vec<SocketRequest>,
    sockets: Vec<Socket>,
    /// Sockets that nobody needs any more; their clients may have requested that.
    closing: Vec<Socket>,
    ask: Sender<Request>,
    requests: Receiver<Request>,
    /// Whether a device is open.
    has_ports: bool,
    now_ns: u64,
    // The worker's view of routes, of which such a graph has none.
    _control: Control,
}

impl<'a> Single<'a> {
    /// Opens what the configuration names.
    ///
    /// # Errors
    /// Something cannot be opened.
    pub(crate) fn start(planned: Planned, options: SingleOptions<'a>) -> Result<Self, ClickError> {
        let Planned { configuration, plan } = planned;
        let service = Service::new(OpenPolicy::default(), None).reporting(console::warn);
        let frames = kept(&plan, &[], 1).saturating_add(SPARE_FRAMES).min(MOST_FRAMES);
        let devices_may_be =
            options.reconfigures || plan.devices().iter().any(|device| device.used);
        let number = u32::try_from(frames).expect("bounded above");
        let pool = match devices_may_be {
            true => Pool::new(number, FRAME_BYTES),
            false => Pool::untouched(number, largest_frame(frames)),
        };
        let pools = [pool.clone()];
        let ports = open_ports(&plan, &[], &pools, &BTreeMap::new(), &service.policy)?;
        let always = requests(&options.sockets);
        let (sockets, _) = open_sockets(&plan, &always, &[], &service, &service.policy)?;
        let control = Control::new(ControlOptions {
            v4: algorithms::v4().collect(),
            v6: algorithms::v6().collect(),
            connected_from_addresses: false,
        })
        .expect("tables without routes are built");
        let (commands, from_here) = channel();
        let (reports, events) = channel();
        // Nobody resolves anything for such a graph.
        let (wishes, _) = sync_channel(1);
        if let Some(start_ns) = options.virtual_start_ns {
            clock::begin(start_ns);
            time::set_virtual(0);
        }
        let mut worker = Worker::new(WorkerOptions {
            plan: &plan,
            pool: pool.clone(),
            reader: control.reader(),
            counters: Arc::new(WorkerCounters::new(plan.devices().len().max(COUNTED_PORTS), 1)),
            commands: from_here,
            requests: wishes,
            events: reports,
            flow_seed: FLOW_SEED,
        });
        let has_ports = !ports.is_empty();
        for opened in ports {
            for port in opened.ports {
                worker.add_port(opened.number, port);
            }
        }
        let (ask, requests) = channel();
        let parts = Parts::of(&options, &sockets);
        let handlers = installed(&plan, configuration, &options, parts, &ask, &service);
        let signals = Signals::of(&handlers);
        let now_ns = 0;
        Ok(Self {
            options,
            plan,
            worker,
            commands,
            events,
            pool,
            handlers,
            signals,
            service,
            always,
            sockets,
            closing: Vec::new(),
            ask,
            requests,
            has_ports,
            now_ns,
            _control: control,
        })
    }

    /// Ends the elements, which write what they have kept for that, and closes control sockets.
    pub(crate) fn stop(mut self) {
        // A client that waits for an answer gets none: else its socket would wait for it.
        drop(self.requests);
        self.worker.end();
    }

    /// Handlers of the graph.
    pub(crate) fn handlers(&self) -> &Arc<Handlers> {
        &self.handlers
    }

    /// Runs until an element or a handler ends it, or `stop` returns true.
    pub(crate) fn run(&mut self, stop: &mut dyn FnMut() -> bool) {
        while !self.plan.is_stopped() {
            self.signals.hand_out(&self.handlers);
            end_without(&self.sockets, &self.plan);
            if stop() {
                return;
            }
            if self.options.virtual_start_ns.is_some() {
                time::set_virtual(self.now_ns);
            } else {
                self.now_ns = u64::try_from(clock_start().elapsed().as_nanos()).unwrap_or(u64::MAX);
            }
            let received = self.worker.round_at(self.now_ns);
            for event in self.events.try_iter() {
                if let Event::PortFailed(_, error, _) = event {
                    console::warn(&error.to_string());
                }
            }
            while let Ok(Request { text, policy, reply }) = self.requests.try_recv() {
                let replaced = self.replace(&text, &policy).map_err(|error| words::text(&error));
                match (reply, replaced) {
                    // The requester may have left.
                    (Some(reply), replaced) => drop(reply.send(replaced)),
                    (None, Err(error)) => error.lines().for_each(console::warn),
                    (None, Ok(())) => {}
                }
            }
            close(std::mem::take(&mut self.closing));
            let idle = received == 0 && !self.worker.is_active();
            if self.options.virtual_start_ns.is_some() {
                self.go_on(idle);
            } else if idle {
                self.sleep();
            }
        }
    }

    /// Moves the virtual clock on.
    fn go_on(&mut self, idle: bool) {
        let step = match self.worker.graph().due_ns() {
            _ if !idle => ROUND_NS,
            // What waits inside may leave before any time that is known: at a rate.
            due if self.worker.graph().held().total() > 0 => due
                .and_then(|due| due.checked_sub(self.now_ns))
                .filter(|step| *step > 0)
                .map_or(STEP_NS, |step| step.min(STEP_NS)),
            Some(due) if due > self.now_ns => due - self.now_ns,
            Some(_) => STEP_NS,
            // Whatever comes comes from outside.
            None => {
                std::thread::sleep(STEP);
                ROUND_NS
            }
        };
        self.now_ns = self.now_ns.saturating_add(step);
    }

    fn sleep(&self) {
        let most = if self.has_ports { STEP } else { SLEEP };
        let timeout = match self.worker.graph().due_ns() {
            Some(0) => STEP,
            Some(due) => Duration::from_nanos(due.saturating_sub(self.now_ns)),
            None => most,
        };
        std::thread::sleep(timeout.min(most));
    }

    /// Runs another configuration from now on.
    fn replace(&mut self, text: &str, policy: &OpenPolicy) -> Result<(), ClickError> {
        let Planned { configuration, plan } =
            planned(Some(&self.plan), &self.options.name, text, &self.options.given, policy)?;
        let opened = open_sockets(&plan, &self.always, &self.sockets, &self.service, policy)?;
        let graph = Graph::after(&self.plan, &plan, &self.pool);
        if self.commands.send(Command::Replace(Box::new(graph))).is_err() || self.worker.obey() {
            return Err(ClickError::Worker);
        }
        self.closing.extend(exchange_sockets(&mut self.sockets, opened));
        self.plan = plan;
        let sockets = Parts::of(&self.options, &self.sockets);
        self.handlers =
            installed(&self.plan, configuration, &self.options, sockets, &self.ask, &self.service);
        self.signals = Signals::of(&self.handlers);
        Ok(())
    }
}

/// Handlers of the driver's control sockets, which are no elements of the configuration: names and values.
struct Parts(Vec<(String, Vec<(&'static str, String)>)>);

impl Parts {
    fn of(options: &SingleOptions<'_>, sockets: &[Socket]) -> Self {
        let given = |(of, _): &&Socket| options.sockets.contains(&of.listen);
        let one = |(number, (of, _)): (usize, &Socket)| {
            // Click's names.
            let behind = if number == 0 { String::new() } else { format!("@{number}") };
            let name = format!("click_driver@@ControlSocket{behind}");
            let port = of.port().map(|port| ("port", port.to_string()));
            let rows = [("class", "ControlSocket".to_owned()), ("config", of.listen.to_string())];
            let named = ("name", name.clone());
            (name, rows.into_iter().chain([named]).chain(port).collect())
        };
        Self(sockets.iter().filter(given).enumerate().map(one).collect())
    }
}

/// Elements that run when signals come, by number of the signal.
struct Signals(Vec<(i32, String)>);

impl Signals {
    /// Those of a configuration, whose signals are caught from now on.
    fn of(handlers: &Handlers) -> Self {
        let elements = handlers.configuration().elements().iter();
        let of = |name: String| {
            let signals = handlers.read(&format!("{name}.signals"), "").unwrap_or_default();
            let numbers: Vec<i32> =
                signals.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            numbers.into_iter().map(move |number| (number, name.clone()))
        };
        let found: Vec<_> = elements.map(|element| element.name.to_string()).flat_map(of).collect();
        let mut numbers: Vec<i32> = found.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        sys::catch_these(&numbers);
        Self(found)
    }

    /// Runs the elements of each signal that came.
    fn hand_out(&self, handlers: &Handlers) {
        let mut came: Vec<i32> = Vec::new();
        for (number, name) in &self.0 {
            if came.contains(number) || sys::take_signal(*number) {
                came.push(*number);
                // A script reports its own errors.
                let _ = handlers.write(&format!("{name}.run"), "");
            }
        }
    }
}

/// Installs the handlers of a plan.
fn installed(
    plan: &Plan,
    configuration: Configuration,
    options: &SingleOptions<'_>,
    Parts(parts): Parts,
    ask: &Sender<Request>,
    service: &Service,
) -> Arc<Handlers> {
    let stopped = plan.clone();
    let mut handlers = plan.handlers(configuration).global(Handler::write("stop", move |_| {
        stopped.request_stop();
        Ok(())
    }));
    if options.reconfigures {
        let (ask, driver) = (ask.clone(), std::thread::current().id());
        handlers = handlers.global(Handler::write_opening("hotconfig", move |text, policy| {
            let (reply, answer) = channel();
            // A script of the thread that carries it out cannot wait for it.
            let within = std::thread::current().id() == driver;
            let reply = Some(reply).filter(|_| !within);
            let request = Request { text: text.to_owned(), policy: policy.clone(), reply };
            let gone = || "the router ends".to_owned();
            ask.send(request).map_err(|_| gone())?;
            if within {
                return Ok(());
            }
            answer.recv_timeout(super::workers::LONGEST_ANSWER).map_err(|_| gone())?
        }));
    }
    for (name, rows) in parts {
        for (handler, value) in rows {
            handlers = handlers.outside(&name, Handler::read(handler, move || value.clone()));
        }
    }
    let handlers = Arc::new(handlers);
    plan.installed().install(&handlers);
    service.installed.install(handlers.clone());
    handlers
}

/// Text of a configuration file.
///
/// # Errors
/// It cannot be read.
pub(crate) fn text_of(path: &Path) -> Result<String, ClickError> {
    let read = match path.as_os_str() == "-" {
        true => io::read_to_string(io::stdin()),
        false => fingerpost_lpm::input::read_text(path),
    };
    let failed = |source| ClickError::File { path: path.display().to_string(), source };
    let text = read.map_err(failed)?;
    match archive::config(&text) {
        Some(config) => Ok(config.to_owned()),
        None => Ok(text),
    }
}

/// How long a run took.
pub(crate) fn seconds_since(start: Instant) -> String {
    format!("{:.3}", start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_end_with_their_configuration() {
        let path = std::env::temp_dir().join(format!("fp-single-{}", std::process::id()));
        let text = |options: &str| {
            let path = path.display();
            format!("ControlSocket(TCP, 0{options}); ControlSocket(UNIX, {path})")
        };
        let (given, policy) = (Given::default(), OpenPolicy::default());
        let planned = planned(None, "a", &text(""), &given, &policy).ok().unwrap();
        let options = SingleOptions {
            name: "a".to_owned(),
            given,
            sockets: vec![Listen::tcp("0").unwrap()],
            reconfigures: true,
            virtual_start_ns: None,
        };
        let mut single = Single::start(planned, options).ok().unwrap();
        let places = |single: &Single<'_>| -> Vec<String> {
            single.sockets.iter().map(|(_, server)| server.place().to_owned()).collect()
        };
        let first = places(&single);
        single.replace(&text(", VERBOSE true"), &policy).unwrap();
        assert_eq!((places(&single), single.closing.len()), (first.clone(), 0));
        single.replace(&text(", READONLY true"), &policy).unwrap();
        let second = places(&single);
        assert_eq!((&second[..2], second.len()), (&first[1..], 3));
        assert!(!first.contains(&second[2]) && single.closing.len() == 1);
        let other = format!("ControlSocket(UNIX, {}, READONLY true)", path.display());
        let words = single.replace(&other, &policy).unwrap_err().to_string();
        assert!(words.ends_with("open it in the next, or take another place"), "{words}");
        assert_eq!(places(&single), second, "nothing has changed");
        single.replace("Idle -> Discard", &policy).unwrap();
        assert_eq!((places(&single), single.closing.len()), (vec![first[2].clone()], 3));
        single.stop();
        assert!(!path.exists());
    }
}
