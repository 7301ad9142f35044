//! Queries of the programs in the kernel: the same code over the same memory, so that an auditor or a
//! test can compare what their lookups answer ([`ProgramLookup`]), and people can see what becomes of a packet
//! ([`Forwarder::evaluate`]).
//!
//! Cost: a system call of 1 to 2 us for [`MOST_ADDRESSES`] addresses; to link and load a program takes milliseconds.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use fingerpost_lpm::{Addr, Lookup, NextHopId, Region, Step};
use fingerpost_route::fib::KernelLookup;

use super::features::HIT_BYTES;
use super::reasons::{LEFT_ALONE, LeftAlone};
use super::{
    Counters, Forwarder, NO_TABLES, Reads, ReceivedCounts, Sent, State, USE_BYTES, Used, Vlan,
    add_uses, unlinked, vlans,
};
use crate::xdp::bpf::{Map, MapKind, Program, SharedMemory};
use crate::xdp::{XDP_DROP, XDP_REDIRECT, XdpError};

/// Addresses that a program answers at a time (`forward.c`).
const MOST_ADDRESSES: usize = 64;

/// What the programs of some ports do with a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evaluated {
    /// The ports: by the program of each it goes alike.
    pub ports: Vec<u16>,
    /// What becomes of it, or why there is no program.
    pub fate: Result<Fate, String>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It leaves by this adjacency.
    Sent(u32),
    /// It ends there.
    Dropped(LeftAlone),
    /// It passes to the graph or the kernel, untouched.
    Left(LeftAlone),
}

/// Programs kept for queries: of a FIB for IPv4 and IPv6, as long as they read the present tables.
pub(super) type Kept = BTreeMap<u16, [QueryProgram; 2]>;

/// A program for queries.
#[derive(Clone, Debug, Default)]
pub enum QueryProgram {
    /// There is none: no program can read the table, or the kernel refused it.
    #[default]
    None,
    /// Another thread loads it, as long as it holds the other end.
    Loading(Weak<()>),
    /// It reads the present table.
    Loaded(Arc<ProgramLookup>),
}

/// What programs have in common that do the same: whether checksums may be partial there, what they forward, and the
/// features of the interface; or why there is none.
type Kind<'a> = Result<(bool, Reads, u64), &'a str>;

/// How a packet arrives: by a port with a program, tagged for a VLAN interface on it or not.
type Arrival = (u16, Option<Vlan>);

impl QueryProgram {
    fn loaded(self) -> Option<Arc<ProgramLookup>> {
        if let Self::Loaded(program) = self { Some(program) } else { None }
    }
}

impl Forwarder {
    /// The program that answers for a table of family 0 (IPv4) or 1 (IPv6), made once for its present state: by this
    /// thread, or with [`Forwarder::load_beside`] by another one. What cannot be made is tried again when it is wanted
    /// again.
    pub fn query_program(&self, fib: u16, family: usize) -> QueryProgram {
        let mut state = self.state();
        if !state.is_readable(fib, family) {
            return QueryProgram::None;
        }
        let kept = &mut state.programs.entry(fib).or_default()[family];
        match (&kept, self.0.runner.get()) {
            (QueryProgram::None, Some(runner)) => {
                let held = Arc::new(());
                let loading = QueryProgram::Loading(Arc::downgrade(&held));
                *kept = loading.clone();
                drop(state);
                let forwarder = self.clone();
                runner.run(move || {
                    let _ = forwarder.make(fib, family);
                    drop(held);
                });
                loading
            }
            (QueryProgram::None, None) => {
                drop(state);
                self.make(fib, family)
            }
            // That thread is gone.
            (QueryProgram::Loading(held), _) if held.strong_count() == 0 => {
                drop(state);
                self.make(fib, family)
            }
            _ => kept.clone(),
        }
    }

    /// Such a program, made by this thread if there is none yet.
    pub fn query_program_now(&self, fib: u16, family: usize) -> Option<Arc<ProgramLookup>> {
        let kept = self.state().programs.get(&fib).map(|kept| kept[family].clone());
        kept.and_then(QueryProgram::loaded).or_else(|| self.make(fib, family).loaded())
    }

    /// Makes such a program, and keeps it unless the tables are other ones by now.
    fn make(&self, fib: u16, family: usize) -> QueryProgram {
        let made = self.program(fib, family);
        let (made, serial) = made.map_or((None, None), |(program, serial)| (program, Some(serial)));
        let loaded = |program| QueryProgram::Loaded(Arc::new(program));
        let made = made.map_or(QueryProgram::None, loaded);
        let mut state = self.state();
        if serial.is_none_or(|serial| serial == state.serial) {
            state.programs.entry(fib).or_default()[family] = made.clone();
        }
        made
    }

    /// What the programs of the ports of a fib do with an IP packet, should it arrive on them in a frame of
    /// its own. It leaves nowhere and is counted nowhere.
    ///
    /// # Errors
    /// When the kernel refuses a program.
    pub fn evaluate(&self, fib: u16, packet: &[u8]) -> Result<Vec<Evaluated>, XdpError> {
        let state = self.state();
        // Programs differ by the port's own address, by what senders behind it may leave open and by features; what
        // they do with a packet to the port differs by the latter two alone, and by the families that they forward.
        let mut alike: Vec<(Kind<'_>, Arrival, Vec<u16>)> = Vec::new();
        for (&port, attached) in state.ports.iter().filter(|(_, attached)| attached.forwards) {
            let Some(ports) = state.forwarding.as_ref().map(|forwarding| &forwarding.ports) else {
                continue;
            };
            let family = usize::from(packet.first().is_some_and(|first| first >> 4 == 6));
            if ports.first_fibs(port)[family] != fib {
                continue;
            }
            let fill = ports.port(port).is_some_and(|info| info.fill_checksums);
            let tagged = vlans::read_by(&state, port).map(|vlan| (vlan.port, Some(vlan)));
            for (arriving, vlan) in std::iter::once((port, None)).chain(tagged) {
                let kind = attached.state.as_ref().map_err(String::as_str);
                let kind = kind.map(|reads| (fill, *reads, state.features_alike(arriving)));
                match alike.iter_mut().find(|(known, _, _)| *known == kind) {
                    Some((_, _, ports)) => ports.push(arriving),
                    None => alike.push((kind, (port, vlan), vec![arriving])),
                }
            }
        }
        let one = |(kind, arrival, ports): (Kind<'_>, Arrival, Vec<u16>)| {
            let fate = match kind {
                Ok(_) => Ok(self.fate(&state, arrival, packet)?),
                Err(why) => Err(why.to_owned()),
            };
            Ok(Evaluated { ports, fate })
        };
        alike.into_iter().map(one).collect()
    }

    /// The fate of a packet, by a program with counters of its own.
    fn fate(&self, state: &State, (port, vlan): Arrival, packet: &[u8]) -> Result<Fate, XdpError> {
        let no_tables = || unlinked(NO_TABLES.into());
        let (attached, forwarding) =
            state.ports.get(&port).zip(state.forwarding.as_ref()).ok_or_else(no_tables)?;
        let uses = state.uses.as_ref().ok_or_else(no_tables)?;
        let cpus = self.0.epochs.cpus();
        let counters = Counters {
            hits: SharedMemory::new("hits", cpus * HIT_BYTES)?,
            left: Map::new(MapKind::PerCpuArray, "left", 4, 8, LEFT_ALONE)?,
            uses: Map::new(MapKind::PerCpuArray, "uses", 4, USE_BYTES, uses.entries())?,
            sent: Sent::new(cpus)?,
            seen: ReceivedCounts::like(&attached.seen)?,
        };
        let code = self.code_of(state, port, attached, Some(&counters)).map_err(unlinked)?;
        let program = Program::load("forward", &code)?;
        let mac = forwarding.ports.port(port).and_then(|info| info.mac).unwrap_or_default();
        let mac = vlan.map_or(mac, |vlan| vlan.mac);
        let tag = vlan.map(|vlan| [&[0x81, 0][..], &vlan.id.to_be_bytes()].concat());
        let kind: [u8; 2] =
            if packet.first().is_some_and(|b| b >> 4 == 6) { [0x86, 0xdd] } else { [8, 0] };
        let tag = tag.unwrap_or_default();
        let frame = [&mac.0[..], &[2, 0, 0, 0, 0, 0], &tag, &kind, packet].concat();
        let answer = program.test(&frame)?;
        let mut used = Vec::new();
        add_uses(&counters.uses, &mut used)?;
        if answer.action.cast_signed() == XDP_REDIRECT
            && let Some(index) = used.iter().position(|used| *used != Used::default())
        {
            return Ok(Fate::Sent(u32::try_from(index).expect("adjacencies are fewer")));
        }
        let counted =
            |&&why: &&LeftAlone| counters.left.sum(why as u32).is_ok_and(|count| count > 0);
        let why = LeftAlone::ALL.iter().find(counted).copied();
        let why = why.ok_or_else(|| unlinked("it counts nothing".into()))?;
        let dropped = answer.action.cast_signed() == XDP_DROP;
        Ok(if dropped { Fate::Dropped(why) } else { Fate::Left(why) })
    }
}

/// A lookup by a program. It reads the tables of the time when it was made.
#[derive(Debug)]
pub struct ProgramLookup {
    program: Program,
}

impl ProgramLookup {
    pub(super) fn new(program: Program) -> Self {
        Self { program }
    }

    /// # Panics
    /// When the kernel no longer runs a program that it has loaded.
    fn ask<A: Addr>(&self, addrs: &[A], out: &mut [NextHopId]) {
        let bytes = usize::from(A::BITS / 8);
        // Shorter than an Ethernet header a program is not run on.
        let mut packet = vec![0; addrs.len().max(4) * bytes];
        for (place, addr) in packet.chunks_exact_mut(bytes).zip(addrs) {
            let addr = addr.to_u128();
            if bytes == 4 {
                #[allow(clippy::cast_possible_truncation, reason = "an address of 32 bits")]
                place.copy_from_slice(&(addr as u32).to_ne_bytes());
            } else {
                #[allow(clippy::cast_possible_truncation, reason = "takes the two halves")]
                let (high, low) = ((addr >> 64) as u64, addr as u64);
                place[..8].copy_from_slice(&high.to_ne_bytes());
                place[8..].copy_from_slice(&low.to_ne_bytes());
            }
        }
        let answer = self.program.test(&packet).expect("a program that was loaded can be run");
        for (out, place) in out.iter_mut().zip(answer.frame.chunks_exact(bytes)) {
            let hop = place.first_chunk().expect("4 bytes or more");
            *out = NextHopId(u32::from_ne_bytes(*hop));
        }
    }
}

impl KernelLookup for Forwarder {
    fn v4(&self, fib: u16) -> Option<Arc<dyn Lookup<u32>>> {
        self.query_program(fib, 0).loaded().map(|program| program as Arc<dyn Lookup<u32>>)
    }

    fn v6(&self, fib: u16) -> Option<Arc<dyn Lookup<u128>>> {
        self.query_program(fib, 1).loaded().map(|program| program as Arc<dyn Lookup<u128>>)
    }
}

impl<A: Addr> Lookup<A> for ProgramLookup {
    fn lookup(&self, addr: A) -> NextHopId {
        let mut out = [NextHopId::NONE];
        self.ask(&[addr], &mut out);
        out[0]
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        let out = fingerpost_lpm::lookup::check_out(addrs, out);
        for (addrs, out) in addrs.chunks(MOST_ADDRESSES).zip(out.chunks_mut(MOST_ADDRESSES)) {
            self.ask(addrs, out);
        }
    }

    fn explain(&self, addr: A, _: &mut dyn FnMut(&Step)) -> NextHopId {
        self.lookup(addr)
    }

    fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}

    fn regions(&self) -> &[Region] {
        &[]
    }
}
