//! Interfaces whose programs are loaded by another thread before the forwarder takes them in.
//!
//! Verifying a program takes tens of milliseconds of the thread that loads it. Another thread makes the maps of an interface
//! and loads its program ([`super::super::ahead`]) for the tables and features of that time; [`Forwarder::add_ready`] links it where
//! these are still the present ones, and returns the interface to be made ready again where they are not.
//!
//! Cost:   to link a program, twice; 1 or 2 ms of the thread that takes the interface in.

use std::sync::Arc;

use super::{Attached, Forwarder, Insn, State};
use crate::xdp::{Classifier, Functions, Link, Mode, XdpError};

/// An interface that the forwarder has not taken in yet, with its maps.
#[derive(Debug)]
pub struct ReadyPort {
    port: u16,
    attached: Attached,
}

/// A program, and the interface that it is bound to.
type Code = (Vec<Insn>, Option<u32>);

impl Forwarder {
    /// Makes the maps of an interface and loads its program, to be taken in by [`Forwarder::add_ready`]. It forwards as one
    /// of [`Forwarder::add_port`] does, or is one of [`Forwarder::guard_port`].
    ///
    /// # Errors
    /// When the kernel makes no such maps.
    pub fn ready_port(
        &self,
        (port, ifindex): (u16, u32),
        classifier: Arc<Classifier>,
        link: Arc<Link>,
        forwards: bool,
    ) -> Result<ReadyPort, XdpError> {
        let attached = self.attached((port, ifindex), classifier, link, forwards)?;
        Ok(self.make_ready(ReadyPort { port, attached }))
    }

    /// Loads the program of such an interface for the present tables and features, and for the tables that are to come.
    #[must_use]
    pub fn make_ready(&self, ready: ReadyPort) -> ReadyPort {
        let (ready, programs) = self.linked(&mut self.state(), ready);
        for codes in programs {
            let prepare = |(code, bound): &Code| self.0.ahead.prepare("classifier", code, *bound);
            let _ = codes.iter().any(prepare);
        }
        ready
    }

    /// Whether the program of such an interface would have to be loaded again to take it in, as tables or features are
    /// others by now.
    pub fn is_stale(&self, ready: ReadyPort) -> (ReadyPort, bool) {
        let (ready, programs) = self.linked(&mut self.state(), ready);
        let classifier = &ready.attached.classifier;
        let is_there =
            |(code, bound): &Code| self.0.ahead.has(code, *bound) || classifier.runs(code, *bound);
        let stale = programs.iter().any(|codes| !codes.iter().any(is_there));
        (ready, stale)
    }

    /// Takes such an interface in; a program that is stale is loaded here.
    ///
    /// # Errors
    /// As [`Forwarder::add_port`].
    pub fn add_ready(&self, ready: ReadyPort) -> Result<(), XdpError> {
        let ReadyPort { port, attached } = ready;
        if attached.forwards {
            self.add_device(port, attached.ifindex)?;
        }
        self.insert(&mut self.state(), port, attached)
    }

    /// Its programs, for the present tables and for those to come: the codes that the interface is tried with, the best
    /// first. None where no program can be linked, whose reason it gets once it is taken in.
    fn linked(&self, state: &mut State, ready: ReadyPort) -> (ReadyPort, Vec<Vec<Code>>) {
        let ReadyPort { port, attached } = ready;
        // Linked among the ports; nobody else sees it there.
        let before = state.ports.insert(port, attached);
        let written = self.write_vlans(state, port);
        let (features, local_features) = (state.port_features(port), state.local_features(port));
        let mut attached = state.ports.remove(&port).expect("it was put there");
        (attached.features, attached.local_features) = (features, local_features);
        let mut programs = Vec::new();
        if written.is_ok() {
            programs.push(self.codes(state, port, &attached));
            let coming = std::mem::take(&mut state.coming);
            let codes = |state: &State| self.codes(state, port, &attached);
            programs.extend(coming.iter().filter_map(|table| table.with(state, codes)));
            state.coming = coming;
        }
        before.into_iter().for_each(|before| drop(state.ports.insert(port, before)));
        (ReadyPort { port, attached }, programs)
    }

    fn codes(&self, state: &State, port: u16, attached: &Attached) -> Vec<Code> {
        let mode = attached.link.mode();
        let guard = self.guard_of(state, port, attached).ok().flatten();
        let forward = (attached.forwards && mode == Mode::Native)
            .then(|| self.code_of(state, port, attached, None).ok())
            .flatten();
        let functions = Functions { forward: forward.as_deref(), guard: guard.as_deref() };
        attached.classifier.codes(attached.ifindex, mode, functions)
    }
}
