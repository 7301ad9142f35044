//! Forwarding in the XDP datapath: the same tables that the packet graph reads, read by a program in the kernel.
//!
//! The writer of the tables puts them into maps that both sides see ([`memory`]), brings the programs along
//! at each publication, and waits for them before it uses memory again ([`epochs`]): to it the programs are
//! one more reader ([`KernelReader`]). What the program does stands in `forward.c`; what it does not do it
//! leaves, untouched, to the classifier of the interface and by that to the graph or the kernel.
//!
//! A program is linked for one interface and one set of tables ([`super::load`]): sizes, forms and the
//! interface's own properties are numbers in its code. A change in place is seen at once. A table that was
//! built anew, a change of interfaces or of the size of a table means new programs, put in the place of
//! the old ones one interface after the other, each at once.
//!
//! Cost: 5 to 70 ms an interface to link, verify and replace; nothing for changes in place. A table that is built beside
//! the control thread has its programs verified there ([`super::ahead`]): to link and replace them takes 1 to 15 ms an
//! interface by the clock, most of it waiting.

mod epochs;
mod fabric;
mod features;
pub mod heartbeat;
mod memory;
mod names;
mod query;
mod ready;
pub mod reasons;
mod received;
mod samples;
mod sent;
mod vlans;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use fingerpost_lpm::{Addr, Epoch, Lookup, Region, is_kernel_readable};
use fingerpost_packet::feature::acl::AccessLists;
use fingerpost_packet::feature::sampling::Sampling;
use fingerpost_route::fib::{KernelAhead, Runner};
use fingerpost_route::{Forwarding, KernelReader, PortInfo, PortTable, Shared};

use super::ahead::Ahead;
use super::bpf::{Map, MapKind, Program, SharedMemory};
use super::fabric::{Fabric, FabricReads};
use super::load::{self, Bound, Insn};
use super::{Classifier, Families, Functions, Link, Mode, XdpError};
use epochs::Epochs;
use features::{ACLS_CAP_BYTES, LISTS_CAP_BYTES, Lists, PortFeatures};
pub use heartbeat::Heartbeat;
use memory::Maps;
pub use memory::{CAP_BYTES, TableMemory};
use names::{LISTS, Names, ROUTES, last, readable};
pub use query::{Evaluated, Fate, ProgramLookup, QueryProgram};
pub use ready::ReadyPort;
use reasons::{LEFT_ALONE, LeftAlone};
pub use received::Received;
use received::{Gone, ReceivedCounts};
use samples::Samples;
use sent::Sent;
use vlans::Tags;
pub use vlans::Vlan;

/// The compiled `forward.c`.
pub(super) static OBJECT: &[u8] = include_bytes!("forward.o");

/// Ports that packets can leave by (`forward.c`).
const PORTS: u32 = 4096;

/// Forwarding in the kernel, for all interfaces of a router. Clones are the same.
#[derive(Clone, Debug)]
pub struct Forwarder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    epochs: Epochs,
    maps: Arc<Maps>,
    /// Maps of the lists of source filters.
    lists: Arc<Maps>,
    /// Maps of access lists.
    acls: Arc<Maps>,
    /// Where programs keep the key of a packet while they look for its rule.
    acl_scratch: Arc<SharedMemory>,
    /// Where programs put samples, once something samples.
    samples: OnceLock<Samples>,
    sent: Sent,
    egress: Arc<SharedMemory>,
    devices: Map,
    left: Map,
    flow_seed: u64,
    /// There is nothing but guards of packets to the router itself.
    only_guards: bool,
    /// Heartbeat of programs that may outlive this process.
    heartbeat: Option<Arc<Heartbeat>>,
    /// Some program that should have gone could not be replaced ([`State::stuck`]). Beside the state, because
    /// grace reads it while a program is being made.
    stuck: AtomicBool,
    /// Programs for tables to come.
    ahead: Ahead,
    /// What loads programs that auditors query beside the control thread.
    runner: OnceLock<Runner>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    forwarding: Option<Forwarding>,
    ports: BTreeMap<u16, Attached>,
    /// Internal interfaces of a cluster.
    fabric: BTreeMap<u16, FabricPort>,
    /// Where packets enter that cluster, if programs send them there.
    entrance: Option<fabric::Entrance>,
    /// Those whose program should have gone and could not be replaced: it may read what it should not.
    stuck: BTreeSet<u16>,
    /// Per CPU: packets and bytes by adjacency, for so many of them.
    uses: Option<Map>,
    /// What was counted in the maps before this one.
    used_before: Vec<Used>,
    /// What was counted of ports that are gone.
    gone: Gone,
    /// Interfaces whose frames come and go, tagged, by the device of another one.
    vlans: Vec<Vlan>,
    /// The source filters, if there are any.
    lists: Option<Lists>,
    /// The access lists, if there are any.
    acls: Option<Arc<AccessLists>>,
    /// What samples, if anything does; an error where programs have no memory for samples.
    sampling: Option<Result<Arc<Sampling>, &'static str>>,
    /// Programs that auditors query.
    programs: query::Kept,
    /// Number of the present tables.
    serial: u64,
    /// Tables that programs were loaded for, and that are not published yet.
    coming: Vec<Coming>,
}

impl State {
    /// Whether programs can read the table of a fib.
    fn is_readable(&self, fib: u16, family: usize) -> bool {
        self.forwarding.as_ref().is_some_and(|forwarding| match family {
            0 => readable(forwarding.v4_of(fib)).is_some(),
            _ => readable(forwarding.v6_of(fib)).is_some(),
        })
    }

    fn is_vlan(&self, port: u16) -> bool {
        self.vlans.iter().any(|vlan| vlan.port == port)
    }

    /// Whether a packet that leaves by its ingress port causes an ICMP redirect. Not where
    /// others come and go by the same device, tagged: what a program leaves of those is the kernel's.
    fn sends_redirects(&self, port: u16) -> bool {
        let ports = self.forwarding.as_ref().map(|forwarding| &forwarding.ports);
        let sends = ports.and_then(|ports| ports.port(port)).is_some_and(|port| port.redirects);
        sends && !self.vlans.iter().any(|vlan| vlan.parent == port)
    }
}

/// An interface whose frames pass through a program.
#[derive(Debug)]
struct Attached {
    ifindex: u32,
    classifier: Arc<Classifier>,
    link: Arc<Link>,
    /// Whether its program is to forward, too.
    forwards: bool,
    seen: ReceivedCounts,
    /// Tags, of an interface that has VLAN interfaces on it.
    vlans: Option<Tags>,
    /// Egress ports of packets that arrive here: all that are open, but for this one where packets that turn back
    /// cause redirects, which the graph sends.
    egress: Arc<SharedMemory>,
    /// Features of its program, or why the graph alone has them.
    features: Result<Option<PortFeatures>, String>,
    /// Features for packets to the router itself.
    local_features: Result<Option<PortFeatures>, String>,
    /// Which tables its program can read, or why there is none.
    state: Result<Reads, String>,
}

/// An internal interface of a cluster, whose program sends frames on between nodes.
#[derive(Debug)]
struct FabricPort {
    ifindex: u32,
    classifier: Arc<Classifier>,
    link: Arc<Link>,
    fabric: Arc<Fabric>,
    seen: ReceivedCounts,
    state: Result<FabricReads, String>,
}

/// What the program of an interface forwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

/// Packets that the programs sent by one adjacency, or by one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// Packets.
    pub packets: u64,
    /// Their bytes, link header included.
    pub bytes: u64,
}

impl Used {
    /// Counts since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

impl Forwarder {
    /// A forwarder without interfaces. Flows are hashed from `flow_seed`, as in the graph; regions take `cap` bytes of
    /// kernel memory at most.
    ///
    /// # Errors
    /// When the kernel makes no such maps.
    pub fn new(flow_seed: u64, cap: usize) -> Result<Self, XdpError> {
        Self::nonstop(flow_seed, cap, None)
    }

    /// The same; with a heartbeat the programs forward only while it lasts, as those must that may outlive
    /// this process ([`super::pins`]).
    ///
    /// # Errors
    /// When the kernel makes no such maps.
    pub fn nonstop(
        flow_seed: u64,
        cap: usize,
        heartbeat: Option<Arc<Heartbeat>>,
    ) -> Result<Self, XdpError> {
        Self::made(flow_seed, cap, heartbeat, false)
    }

    /// One that forwards nothing: its programs apply features to packets to the router itself
    /// ([`Forwarder::guard_port`]).
    ///
    /// # Errors
    /// When the kernel makes no such maps.
    pub fn only_guards() -> Result<Self, XdpError> {
        Self::made(0, 0, None, true)
    }

    fn made(
        flow_seed: u64,
        cap: usize,
        heartbeat: Option<Arc<Heartbeat>>,
        only_guards: bool,
    ) -> Result<Self, XdpError> {
        let epochs = Epochs::new()?;
        Ok(Self(Arc::new(Inner {
            sent: Sent::new(epochs.cpus())?,
            acl_scratch: features::scratch(epochs.cpus())?,
            samples: OnceLock::new(),
            epochs,
            maps: Maps::new(cap),
            lists: Maps::new(LISTS_CAP_BYTES),
            acls: Maps::new(ACLS_CAP_BYTES),
            egress: SharedMemory::new("egress", PORTS as usize * 4)?,
            devices: Map::new(MapKind::DevMap, "devices", 4, 4, PORTS)?,
            left: Map::new(MapKind::PerCpuArray, "left", 4, 8, LEFT_ALONE)?,
            flow_seed,
            only_guards,
            heartbeat,
            stuck: AtomicBool::new(false),
            ahead: Ahead::default(),
            runner: OnceLock::new(),
            state: Mutex::default(),
        })))
    }

    /// What the control side shares with the programs: give it [`fingerpost_route::Control::share`], with a
    /// clone of this as the reader outside.
    pub fn shared(&self) -> Shared {
        let ahead = Some(Arc::new(self.clone()) as Arc<dyn KernelAhead>);
        Shared { memory: self.0.maps.maker(), reads: is_kernel_readable, ahead, fib: 0 }
    }

    /// Loads programs that auditors query by this from now on, beside the thread that wants them.
    pub fn load_beside(&self, runner: Runner) {
        // The first one stays.
        let _ = self.0.runner.set(runner);
    }

    /// Takes an interface in: those that it receives are forwarded if its classifier runs in XDP's native mode, and
    /// packets leave by it once [`Forwarder::open_egress`] opens it. The link runs a program of ours from here
    /// on, whatever it ran before.
    ///
    /// # Errors
    /// When the kernel does not take it as a device to send by, or no program of ours in its link.
    pub fn add_port(
        &self,
        port: u16,
        ifindex: u32,
        classifier: Arc<Classifier>,
        link: Arc<Link>,
    ) -> Result<(), XdpError> {
        self.add_device(port, ifindex)?;
        self.attach((port, ifindex), classifier, link, true)
    }

    /// Applies the features for packets to the router itself to an interface that XDP does not forward for. To be let go by
    /// [`Forwarder::remove_port`].
    ///
    /// # Errors
    /// When the link takes no program of ours.
    pub fn guard_port(
        &self,
        port: u16,
        ifindex: u32,
        classifier: Arc<Classifier>,
        link: Arc<Link>,
    ) -> Result<(), XdpError> {
        self.attach((port, ifindex), classifier, link, false)
    }

    fn attach(
        &self,
        (port, ifindex): (u16, u32),
        classifier: Arc<Classifier>,
        link: Arc<Link>,
        forwards: bool,
    ) -> Result<(), XdpError> {
        let attached = self.attached((port, ifindex), classifier, link, forwards)?;
        self.insert(&mut self.state(), port, attached)
    }

    fn attached(
        &self,
        (port, ifindex): (u16, u32),
        classifier: Arc<Classifier>,
        link: Arc<Link>,
        forwards: bool,
    ) -> Result<Attached, XdpError> {
        Ok(Attached {
            ifindex,
            classifier,
            link,
            forwards,
            seen: ReceivedCounts::new(port, self.0.epochs.cpus())?,
            vlans: None,
            egress: SharedMemory::new("egress", PORTS as usize * 4)?,
            features: Ok(None),
            local_features: Ok(None),
            state: Err("no tables yet".into()),
        })
    }

    fn insert(&self, state: &mut State, port: u16, attached: Attached) -> Result<(), XdpError> {
        if let Some(before) = state.ports.insert(port, attached) {
            state.gone.push(before.seen);
        }
        self.relink(state, port).inspect_err(|_| drop(state.ports.remove(&port)))
    }

    /// The part of [`Forwarder::add_port`] that lets packets leave by it: for many ports whose programs are to
    /// find each other there at once.
    ///
    /// # Errors
    /// When the kernel does not take it as a device to send by.
    pub fn add_device(&self, port: u16, ifindex: u32) -> Result<(), XdpError> {
        let max = PORTS as usize;
        if u32::from(port) >= PORTS {
            return Err(XdpError::Limit { what: "port", max, need: usize::from(port) + 1 });
        }
        let device = |source| XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of devices", source };
        self.0
            .devices
            .update(&u32::from(port).to_ne_bytes(), &ifindex.to_ne_bytes())
            .map_err(device)
    }

    /// Lets an interface go: nothing leaves by it any more. Its own program goes with its link. VLAN interfaces
    /// have none, and come and go by [`Forwarder::set_vlans`].
    pub fn remove_port(&self, port: u16) {
        let mut state = self.state();
        if state.is_vlan(port) {
            return;
        }
        self.set_egress_word(&state, port, 0);
        self.open_vlans(&state, port, false);
        let gone = state.ports.remove(&port).map(|p| (p.classifier, p.ifindex, p.link, p.seen));
        let internal = state.fabric.remove(&port);
        let internal = internal.map(|p| (p.classifier, p.ifindex, p.link, p.seen));
        if let Some((classifier, ifindex, link, seen)) = gone.or(internal) {
            // The link may be held elsewhere; what it runs is the classifier alone from here on.
            let put = classifier.put(ifindex, &link, Functions::default());
            self.note_stuck(&mut state, port, put);
            state.gone.push(seen);
        }
        // A device that is gone was taken out by the kernel.
        let _ = self.0.devices.delete(&u32::from(port).to_ne_bytes());
    }

    /// Follows a change of the families that the classifier of a port [leaves to the kernel](Classifier::leave).
    ///
    /// # Errors
    /// When the kernel refuses both the new program and to go without one.
    pub fn families_changed(&self, port: u16) -> Result<(), XdpError> {
        self.relink(&mut self.state(), port)
    }

    /// What the program of a port forwards, or why it does not; of a VLAN interface, that of the one it is on.
    pub fn reads(&self, port: u16) -> Option<Result<Reads, String>> {
        let state = self.state();
        match state.ports.get(&port) {
            Some(attached) => attached.forwards.then(|| attached.state.clone()),
            None => vlans::reads(&state, port),
        }
    }

    /// Packets that were left alone or dropped, by reason.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn left_alone(&self) -> Result<Vec<(LeftAlone, u64)>, XdpError> {
        let read = |source| XdpError::System { call: "bpf(MAP_LOOKUP_ELEM) of left", source };
        let count =
            |&reason: &LeftAlone| Ok((reason, self.0.left.sum(reason as u32).map_err(read)?));
        LeftAlone::ALL.iter().map(count).collect()
    }

    /// What was sent, by adjacency.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn used(&self) -> Result<Vec<Used>, XdpError> {
        let state = self.state();
        let mut used = state.used_before.clone();
        if let Some(uses) = &state.uses {
            add_uses(uses, &mut used)?;
        }
        Ok(used)
    }

    /// Frames that programs received, by ingress port, ports that are gone included. Of all ports together
    /// as many frames ended there as were sent ([`Forwarder::used`]) and dropped, and as many were left as
    /// have a reason ([`Forwarder::left_alone`]); internal interfaces of a cluster have reasons of their own
    /// ([`Fabric::counts`]).
    pub fn received(&self) -> BTreeMap<u16, Received> {
        let state = self.state();
        let ports = state.ports.values().map(|attached| &attached.seen);
        state.gone.and(ports.chain(state.fabric.values().map(|port| &port.seen)))
    }

    /// What programs sent by a port, whoever has it by now. Over all ports as many packets and bytes as by all
    /// adjacencies ([`Forwarder::used`]), besides transit between nodes of a cluster.
    pub fn sent(&self, port: u16) -> Used {
        self.0.sent.of(port)
    }

    /// A program of the port's that is attached nowhere: it answers as the attached one does, for proofs.
    ///
    /// # Errors
    /// When there is no such port, or the kernel refuses the program.
    pub fn tester(&self, port: u16) -> Result<Program, XdpError> {
        let state = self.state();
        if let Some(port) = state.fabric.get(&port) {
            return Ok(self.fabric_program(&state, port)?.0);
        }
        let attached = state.ports.get(&port).ok_or_else(|| unlinked("no such port".into()))?;
        let code = self.code_of(&state, port, attached, None).map_err(unlinked)?;
        let guard = self.guard_of(&state, port, attached).map_err(unlinked)?;
        attached.classifier.with(Functions { forward: Some(&code), guard: guard.as_deref() })
    }

    /// The programs' lookup of a family in the tables of a fib, as they are now, and the number of these tables. No lookup
    /// where a program cannot read them.
    fn program(&self, fib: u16, family: usize) -> Result<(Option<ProgramLookup>, u64), XdpError> {
        let state = self.state();
        let serial = state.serial;
        if !state.is_readable(fib, family) {
            return Ok((None, serial));
        }
        let function = ["lookups4", "lookups6"][family];
        let code = self.code(&state, [fib; 2], None, function, None).map_err(unlinked)?;
        // The verifier takes its time.
        drop(state);
        Ok((Some(ProgramLookup::new(Program::load(function, &code)?)), serial))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic while it is held")
    }

    /// Opens or closes a port as egress of programs, and the VLAN interfaces on it: its driver must take what
    /// programs send. What would leave by a port that is closed is left to the graph. A VLAN interface has no
    /// state of its own.
    pub fn open_egress(&self, port: u16, open: bool) {
        let state = self.state();
        if state.is_vlan(port) {
            return;
        }
        self.set_egress_word(&state, port, open.into());
        self.open_vlans(&state, port, open);
    }

    /// Whether packets leave by a port in this way.
    pub fn is_open(&self, port: u16) -> bool {
        self.egress_word(port) & 1 == 1
    }

    /// Whether packets leave by a port, and with which tag (`forward.c`).
    fn egress_word(&self, port: u16) -> u32 {
        words(&self.0.egress).u32s().get(usize::from(port)).map_or(0, |word| word.load(Relaxed))
    }

    fn set_egress_word(&self, state: &State, port: u16, word: u32) {
        let store = |egress: &Arc<SharedMemory>, word| {
            if let Some(cell) = words(egress).u32s().get(usize::from(port)) {
                cell.store(word, Relaxed);
            }
        };
        store(&self.0.egress, word);
        for (&from, attached) in &state.ports {
            let closed = from == port && state.sends_redirects(port);
            store(&attached.egress, if closed { 0 } else { word });
        }
    }

    /// Updates the egress ports of packets that arrive on a port.
    fn copy_egress(&self, state: &State, port: u16, attached: &Attached) {
        let closed = state.sends_redirects(port).then_some(usize::from(port));
        let (all, here) = (words(&self.0.egress), words(&attached.egress));
        for (at, (from, to)) in all.u32s().iter().zip(here.u32s()).enumerate() {
            to.store(if closed == Some(at) { 0 } else { from.load(Relaxed) }, Relaxed);
        }
    }

    /// Puts the program for the present tables on an interface; where it cannot be, the classifier alone. An
    /// error leaves the one that was there.
    fn relink(&self, state: &mut State, port: u16) -> Result<(), XdpError> {
        // Of an interface that is gone no program is loaded: it is let go soon.
        state.ports.get(&port).map_or(Ok(()), |attached| attached.link.still_attached())?;
        let written = self.write_vlans(state, port);
        let (features, local_features) = (state.port_features(port), state.local_features(port));
        let Some(attached) = state.ports.get_mut(&port) else { return Ok(()) };
        (attached.features, attached.local_features) = (features, local_features);
        let Some(attached) = state.ports.get(&port) else { return Ok(()) };
        self.copy_egress(state, port, attached);
        let guard = self.guard_of(state, port, attached);
        let to_kernel = guard.as_ref().ok().and_then(Option::as_deref);
        let linked = written
            .map_err(|error| error.to_string())
            .and_then(|_| self.put(state, port, attached, to_kernel));
        let put = |guard| {
            let functions = Functions { forward: None, guard };
            let (ifindex, link) = (attached.ifindex, &attached.link);
            attached.classifier.put_ahead(ifindex, link, functions, &self.0.ahead)
        };
        // Without forwarding, the classifier and the guard; without that, the classifier alone.
        let (put, guard) = match linked {
            Ok(_) => (Ok(()), guard.map(drop)),
            Err(_) => match put(to_kernel) {
                Err(error) if to_kernel.is_some() => (put(None), Err(error.to_string())),
                put => (put, guard.map(drop)),
            },
        };
        if let Some(attached) = state.ports.get_mut(&port) {
            attached.state = linked;
            if let Err(why) = guard {
                attached.local_features = Err(why);
            }
        }
        put
    }

    /// Loads the programs of all interfaces that forward for the tables with one that is to come.
    fn prepare(&self, coming: Coming) {
        let code = |state: &State, port: u16, attached: &Attached| {
            let code = self.code_of(state, port, attached, None).ok()?;
            let guard = self.guard_of(state, port, attached).ok()?;
            let functions = Functions { forward: Some(&code), guard: guard.as_deref() };
            attached.classifier.code(attached.ifindex, functions)
        };
        let mut state = self.state();
        let codes = coming.with(&mut state, |state| {
            let native =
                |attached: &Attached| attached.forwards && attached.link.mode() == Mode::Native;
            let ports = state.ports.iter().filter(|(_, attached)| native(attached));
            ports.filter_map(|(&port, at)| code(state, port, at)).collect::<Vec<_>>()
        });
        let Some(codes) = codes else { return };
        // What is taken in from here on has its program loaded for that table as well.
        state.coming.retain(|other| !other.is_gone() && !other.is_instead_of(&coming));
        state.coming.push(coming);
        drop(state);
        for (code, ifindex) in codes {
            self.0.ahead.prepare("classifier", &code, Some(ifindex));
        }
    }

    /// Puts the programs for the present tables on all interfaces that forward.
    fn relink_all(&self, state: &mut State) {
        let forwarding = state.ports.iter().filter(|(_, attached)| attached.forwards);
        for port in forwarding.map(|(port, _)| *port).collect::<Vec<_>>() {
            let put = self.relink(state, port);
            self.note_stuck(state, port, put);
        }
    }

    /// Notes whether the program of a port is one that may run. One whose interface is gone does not.
    fn note_stuck(&self, state: &mut State, port: u16, put: Result<(), XdpError>) {
        match put {
            Err(error) if !error.is_detached() => state.stuck.insert(port),
            _ => state.stuck.remove(&port),
        };
        self.0.stuck.store(!state.stuck.is_empty(), Relaxed);
    }

    fn put(
        &self,
        state: &State,
        port: u16,
        attached: &Attached,
        guard: Option<&[Insn]>,
    ) -> Result<Reads, String> {
        if !attached.forwards {
            return Err("it is not to forward".into());
        }
        if attached.link.mode() == Mode::Generic {
            return Err("in generic mode the kernel itself forwards as fast".into());
        }
        let code = self.code_of(state, port, attached, None)?;
        let functions = Functions { forward: Some(&code), guard };
        let (ifindex, link) = (attached.ifindex, &attached.link);
        let put = attached.classifier.put_ahead(ifindex, link, functions, &self.0.ahead);
        put.map_err(|error| error.to_string())?;
        let forwarding = state.forwarding.as_ref().ok_or(NO_TABLES)?;
        let [v4, v6] = forwarding.ports.first_fibs(port);
        let left = attached.classifier.left();
        let v4 = !left.v4 && readable(forwarding.v4_of(v4)).is_some();
        Ok(Reads { v4, v6: !left.v6 && readable(forwarding.v6_of(v6)).is_some() })
    }

    /// The program of a port, with counters of its own if there are any.
    fn code_of(
        &self,
        state: &State,
        port: u16,
        attached: &Attached,
        counters: Option<&Counters>,
    ) -> Result<Vec<Insn>, String> {
        let function = match &attached.features {
            Err(why) => return Err(why.clone()),
            Ok(None) => "forward",
            Ok(Some(_)) => "forward_with_features",
        };
        let ports = &state.forwarding.as_ref().ok_or(NO_TABLES)?.ports;
        let fill = ports.port(port).is_some_and(|info| info.fill_checksums);
        self.code(state, ports.first_fibs(port), Some((attached, fill)), function, counters)
    }

    /// The function that applies features to packets to the router itself; `None` where there are none.
    fn guard_of(
        &self,
        state: &State,
        port: u16,
        attached: &Attached,
    ) -> Result<Option<Vec<Insn>>, String> {
        let features = attached.local_features.as_ref().map_err(Clone::clone)?;
        let code = || self.code(state, [port; 2], Some((attached, false)), GUARD, None);
        features.as_ref().map(|_| code()).transpose()
    }

    /// A function of the object, linked for a port (and whether checksums may be partial there), and for
    /// the present tables of a fib a family. It counts in `counters`, or in those of all.
    fn code(
        &self,
        state: &State,
        [fib_v4, fib_v6]: [u16; 2],
        port: Option<(&Attached, bool)>,
        function: &str,
        counters: Option<&Counters>,
    ) -> Result<Vec<Insn>, String> {
        // The guard has no routes.
        let forwarding = state.forwarding.as_ref().filter(|_| function != GUARD);
        if function != GUARD && (forwarding.is_none() || state.uses.is_none()) {
            return Err(NO_TABLES.into());
        }
        let inner = &*self.0;
        let left = counters.map_or(&inner.left, |c| &c.left);
        let seen = counters.map(|c| &c.seen).or(port.map(|(attached, _)| &attached.seen));
        let mut names = Names::new(&inner.epochs);
        let alive = inner.heartbeat.as_deref().map(Heartbeat::memory);
        names.memory("alive", alive.unwrap_or(names.any));
        names.number("nonstop", alive.is_some().into());
        if let Some((Attached { classifier, .. }, _)) = port {
            let ([own4, own6], [local4, local6]) = (classifier.filters(), classifier.local());
            names.memory("own4", own4);
            names.memory("own6", own6);
            names.bound.insert("local4".into(), Bound::Map(local4));
            names.bound.insert("local6".into(), Bound::Map(local6));
        }
        names.memory("egress", port.map_or(&inner.egress, |(attached, _)| &attached.egress));
        names.number("egress_last", u64::from(PORTS) - 1);
        names.map("devices", &inner.devices);
        names.map("left", left);
        if let Some(uses) = counters.map(|c| &c.uses).or(state.uses.as_ref()) {
            names.map("uses", uses);
        }
        names.memory("sent", counters.map_or(&inner.sent, |c| &c.sent).memory());
        names.memory("seen", seen.map_or(names.any, ReceivedCounts::memory));
        names.number("seen_last", seen.map_or(0, |seen| seen.places() as u64 - 1));
        let tags = port.and_then(|(attached, _)| attached.vlans.as_ref());
        names.memory("vlans", tags.map_or(names.any, Tags::memory));
        names.number("tagged", tags.is_some().into());
        names.number("tags", (!state.vlans.is_empty()).into());
        let settings = port.map(|(attached, _)| attached.classifier.settings().as_fd());
        names
            .bound
            .insert("settings".into(), Bound::Memory(settings.unwrap_or(names.any.map().as_fd())));
        names.number("seed", inner.flow_seed);
        names.number("fill", port.is_some_and(|(_, fill)| fill).into());

        // By words of 8 bytes, of which an adjacency is two.
        for (at, (name, last_name, bytes, words)) in [
            ("hops", "hops_last", 8, 1),
            ("slots", "slots_last", 4, 1),
            ("adjacencies", "adjacencies_last", 16, 2),
        ]
        .into_iter()
        .enumerate()
        {
            let region = forwarding.map(|forwarding| forwarding.hops.regions()[at]);
            names.memory(name, names.any);
            if region.is_some_and(|region| !names.region(name, region)) {
                return Err("no kernel memory for next hops".into());
            }
            names.number(last_name, region.map_or(0, |region| last(region, bytes) * words));
        }
        let left = port.map_or(Families::NONE, |(attached, _)| attached.classifier.left());
        names.table(ROUTES, forwarding.map(|all| all.v4_of(fib_v4)).filter(|_| !left.v4));
        names.table(ROUTES, forwarding.map(|all| all.v6_of(fib_v6)).filter(|_| !left.v6));
        let features = port.and_then(|(attached, _)| {
            let Attached { features, local_features, .. } = attached;
            let features = if function == GUARD { local_features } else { features };
            features.as_ref().ok()?.as_ref()
        });
        names.features(features, state.lists.as_ref());
        names.acls(features, state.acls.as_deref(), &inner.acl_scratch);
        names.number("acl_counted", counters.is_none().into());
        names.samples(features, inner.samples.get(), counters.is_none());
        Self::bind_entrance(&mut names, state, counters.is_none());
        if let Some(counters) = counters {
            names.memory("hits", &counters.hits);
        }
        load::function(OBJECT, function, |name| names.bound.get(name).copied())
            .map_err(|error| error.to_string())
    }
}

/// Counters of one program alone.
struct Counters {
    hits: Arc<SharedMemory>,
    left: Map,
    uses: Map,
    sent: Sent,
    seen: ReceivedCounts,
}

fn unlinked(why: String) -> XdpError {
    XdpError::System { call: "linking the program", source: std::io::Error::other(why) }
}

/// The function for packets to the router itself (`forward.c`).
const GUARD: &str = "guard";

const NO_TABLES: &str = "no tables yet";
/// The words of `egress`, a port each.
fn words(memory: &Arc<SharedMemory>) -> Region {
    memory.region("egress", PORTS as usize * 4)
}

impl KernelReader<Forwarding> for Forwarder {
    fn follow(&mut self, value: &Forwarding) {
        let mut state = self.state();
        let same = state.forwarding.as_ref().is_some_and(|old| same_programs(old, value));
        let defaults = state.forwarding.as_ref().map(|old| old.defaults.clone());
        let longest = state.longest_entering();
        let tables = state.forwarding.as_ref().is_some_and(|old| same_tables(old, value));
        state.forwarding = Some(value.clone());
        let same_defaults = defaults.is_some_and(|defaults| defaults == value.defaults);
        let same_entrance = state.longest_entering() == longest;
        if same && same_entrance && (same_defaults || !state.reads_defaults()) {
            return;
        }
        // Those that auditors query know no interfaces.
        if !tables {
            state.programs.clear();
            state.serial += 1;
        }
        let adjacencies = u32::try_from(value.hops.capacity().2).unwrap_or(u32::MAX);
        let before = match &state.uses {
            Some(uses) if uses.entries() >= adjacencies => None,
            _ => {
                let uses = Map::new(MapKind::PerCpuArray, "uses", 4, USE_BYTES, adjacencies);
                // Without counters there are no programs, and each interface says so.
                std::mem::replace(&mut state.uses, uses.ok())
            }
        };
        self.relink_all(&mut state);
        // Programs of other tables to come wait for these, also where only an interface came or went.
        state.coming.retain(|table| !table.is_gone() && !table.is_in(value));
        if state.coming.is_empty() {
            self.0.ahead.clear();
        }
        self.follow_fabric(&mut state);
        if let Some(before) = before {
            let _ = add_uses(&before, &mut state.used_before);
        }
    }

    fn mark(&mut self, epoch: Epoch) {
        self.0.epochs.mark(epoch);
    }

    fn passed(&self, epoch: Epoch) -> bool {
        self.0.epochs.passed(epoch) && !self.0.stuck.load(Relaxed)
    }
}

impl KernelAhead for Forwarder {
    fn prepare_v4(&self, fib: u16, next: Arc<dyn Lookup<u32>>) {
        self.prepare(Coming::V4(fib, Arc::downgrade(&next)));
    }

    fn prepare_v6(&self, fib: u16, next: Arc<dyn Lookup<u128>>) {
        self.prepare(Coming::V6(fib, Arc::downgrade(&next)));
    }
}

/// A table of a fib that is to be published, as long as whoever built it has it.
#[derive(Debug)]
enum Coming {
    V4(u16, Weak<dyn Lookup<u32>>),
    V6(u16, Weak<dyn Lookup<u128>>),
}

impl Coming {
    /// The tables with this one among them; `None` where it is gone.
    fn among(&self, present: &Forwarding) -> Option<Forwarding> {
        let mut next = present.clone();
        match self {
            Self::V4(fib, table) => next.replace_v4(*fib, table.upgrade()?),
            Self::V6(fib, table) => next.replace_v6(*fib, table.upgrade()?),
        }
        Some(next)
    }

    fn is_gone(&self) -> bool {
        match self {
            Self::V4(_, table) => table.strong_count() == 0,
            Self::V6(_, table) => table.strong_count() == 0,
        }
    }

    /// Whether it is published.
    fn is_in(&self, present: &Forwarding) -> bool {
        match self {
            Self::V4(fib, table) => table.as_ptr().cast::<()>() == at_of(present.v4_of(*fib)),
            Self::V6(fib, table) => table.as_ptr().cast::<()>() == at_of(present.v6_of(*fib)),
        }
    }

    /// Whether both are for the same place.
    fn is_instead_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::V4(fib, _), Self::V4(of, _)) | (Self::V6(fib, _), Self::V6(of, _)) => fib == of,
            _ => false,
        }
    }

    /// What `run` makes while this table is among those of the state, for which code is linked. Nobody else sees them.
    fn with<T>(&self, state: &mut State, run: impl FnOnce(&State) -> T) -> Option<T> {
        let next = self.among(state.forwarding.as_ref()?)?;
        let present = state.forwarding.replace(next);
        let made = run(state);
        state.forwarding = present;
        Some(made)
    }
}

/// Whether programs linked for the one are right for the other.
fn same_programs(old: &Forwarding, new: &Forwarding) -> bool {
    let ports = |of: &PortTable| -> Vec<Option<_>> {
        let of_port = |p: &PortInfo| (p.fill_checksums, p.urpf, p.graph_only, p.redirects);
        let what = |(number, port): (u16, &Option<PortInfo>)| {
            port.as_ref().map(|port| (of.first_fibs(number), of_port(port)))
        };
        (0..).zip(&of.ports).map(what).collect()
    };
    same_tables(old, new)
        && (Arc::ptr_eq(&old.ports, &new.ports) || ports(&old.ports) == ports(&new.ports))
}

/// Whether both have the same lookups and next hops.
fn same_tables(old: &Forwarding, new: &Forwarding) -> bool {
    let others =
        |of: &Forwarding| of.others.iter().map(|o| (at(&o.v4), at(&o.v6))).collect::<Vec<_>>();
    at(&old.v4) == at(&new.v4)
        && at(&old.v6) == at(&new.v6)
        && others(old) == others(new)
        && Arc::ptr_eq(&old.hops, &new.hops)
}

fn at<A: Addr>(lookup: &Arc<dyn Lookup<A>>) -> *const () {
    Arc::as_ptr(lookup).cast()
}

fn at_of<A: Addr>(lookup: &dyn Lookup<A>) -> *const () {
    std::ptr::from_ref(lookup).cast()
}

/// Packets and bytes.
const USE_BYTES: u32 = 16;

/// Adds what a map has counted, over all CPUs.
fn add_uses(uses: &Map, to: &mut Vec<Used>) -> Result<(), XdpError> {
    let read = |source| XdpError::System { call: "bpf(MAP_LOOKUP_BATCH) of uses", source };
    to.resize(to.len().max(uses.entries() as usize), Used::default());
    let add = &mut |index: u32, parts: &[u8]| {
        let used = &mut to[index as usize];
        for part in parts.as_chunks::<16>().0 {
            let word =
                |at: usize| part[at..at + 8].first_chunk().map_or(0, |w| u64::from_ne_bytes(*w));
            used.packets += word(0);
            used.bytes += word(8);
        }
    };
    uses.each(add).map_err(read)
}

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod entrance_tests;
#[cfg(test)]
mod feature_tests;
#[cfg(test)]
mod sample_tests;
#[cfg(test)]
mod tests;
