//! The interface features of the configuration at run time: states made, and followed as links come and go.
//!
//! States are made outside the daemon's thread, since a list of a million prefixes takes a second or so; what happens
//! here takes no longer than planning a graph.

use std::sync::Arc;

use fingerpost_io::xdp::forward::Forwarder;
use fingerpost_packet::feature::acl::AccessLists;
use fingerpost_packet::feature::sampling::Sampling;
use fingerpost_packet::feature::source_filter::SourceFilters;
use fingerpost_packet::feature::{FeatureSettings, FeatureStates};
use fingerpost_route::netlink::errno::without_number;
use fingerpost_route::{Control, PortTable};

use super::DaemonError;
use super::free::free_later;
use crate::api::error::{ApiError, Code};
use crate::config::Config;

/// Features of the running configuration.
pub(super) struct Features {
    states: FeatureStates,
    /// Ports whose names the states have.
    ports: Option<Arc<PortTable>>,
    /// XDP datapath, which reads the lists of source filters and the rules of ACLs.
    forwarder: Option<Forwarder>,
    /// What the XDP datapath does without at present, each reported once.
    unshared: Vec<String>,
}

/// Features of a configuration that is not yet the running one, and those that they were made beside.
pub(super) struct Prepared {
    wanted: FeatureSettings,
    before: FeatureStates,
    made: FeatureStates,
    /// What the XDP datapath would do without, in words.
    unshared: Vec<String>,
}

/// Running features, for another thread to make others beside them.
pub(super) struct Beside {
    settings: FeatureSettings,
    before: FeatureStates,
    forwarder: Option<Forwarder>,
}

impl Beside {
    /// Makes the states of other features; files are read here. `None` where they are the running ones.
    pub(super) fn prepare(self, wanted: &FeatureSettings) -> Result<Option<Prepared>, ApiError> {
        let Self { settings, before, forwarder } = self;
        if settings == *wanted {
            return Ok(None);
        }
        let wanted = wanted.clone();
        let made = FeatureStates::make(&wanted, Some((&settings, &before)));
        let made = made.map_err(|wrong| ApiError::new(Code::Refused, wrong.join("; ")))?;
        let unshared = forwarder.map_or_else(Vec::new, |forwarder| {
            let filters = made.of::<SourceFilters>();
            let acls = made.of::<AccessLists>();
            unshared(
                filters.map_or(Ok(()), |filters| forwarder.share(&filters)),
                acls.map_or(Ok(()), |acls| forwarder.share_access_lists(&acls)),
            )
        });
        Ok(Some(Prepared { wanted, before, made, unshared }))
    }
}

/// Messages about what could not be put into memory of the kernel.
fn unshared(filters: Result<(), String>, acls: Result<(), String>) -> Vec<String> {
    [message("source filters", filters), message("ACLs", acls)].into_iter().flatten().collect()
}

fn message(what: &str, result: Result<(), String>) -> Option<String> {
    let why = without_number(&result.err()?);
    Some(format!("{what} are not in XDP: {why}; `interface show` has each interface"))
}

impl Prepared {
    /// Settings of these features.
    pub(super) fn settings(&self) -> &FeatureSettings {
        &self.wanted
    }

    /// States of these features.
    pub(super) fn states(&self) -> &FeatureStates {
        &self.made
    }

    /// They will not be the running ones.
    pub(super) fn let_go(self) {
        free_later(self.made);
    }
}

impl Features {
    /// Features of the configuration at the start.
    ///
    /// # Errors
    /// When a state cannot be made, such as of a file that cannot be read.
    pub(super) fn new(config: &Config) -> Result<Self, DaemonError> {
        let states = FeatureStates::make(&config.features, None);
        let states = states.map_err(|wrong| DaemonError::Feature(wrong.join("; ")))?;
        Ok(Self { states, ports: None, forwarder: None, unshared: Vec::new() })
    }

    /// The XDP datapath reads features from now on; called before interfaces are taken over.
    pub(super) fn set_forwarder(&mut self, forwarder: Option<&Forwarder>) {
        self.forwarder = forwarder.cloned();
    }

    /// States of the features in use: any thread may read them and change their lists.
    pub(super) fn states(&self) -> &FeatureStates {
        &self.states
    }

    /// Gives states the names of new ports, before packets arrive there. Returns messages about what the XDP datapath
    /// does without.
    #[must_use]
    pub(super) fn follow_ports(&mut self, control: &Control) -> Vec<String> {
        // Any change of a link makes a new table.
        let ports = control.forwarding().ports.clone();
        if self.ports.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, &ports)) {
            // What was sampled until now is of those that had the numbers.
            if self.ports.is_some() {
                self.note_sampled();
            }
            let names: Vec<(u16, &str)> =
                control.links().map(|(_, port, state)| (port, &*state.name)).collect();
            self.states.follow(&names);
            self.ports = Some(ports);
            if let Some(forwarder) = &self.forwarder {
                let filters = forwarder.set_source_filters(self.states.of());
                let sampling = forwarder.set_sampling(self.states.of::<Sampling>());
                let mut now = unshared(filters, forwarder.set_access_lists(self.states.of()));
                now.extend(message("samples", sampling));
                return self.note(now);
            }
        }
        Vec::new()
    }

    /// Notes what the XDP datapath has sampled so far, in sum over all processors.
    pub(super) fn note_sampled(&self) {
        if let Some((forwarder, sampling)) =
            self.forwarder.as_ref().zip(self.states.of::<Sampling>())
        {
            forwarder.sampled().into_iter().for_each(|(port, all)| sampling.note_xdp(port, all));
        }
    }

    /// Notes what the XDP datapath does without; returns what is not known yet.
    fn note(&mut self, unshared: Vec<String>) -> Vec<String> {
        let new = unshared.iter().filter(|what| !self.unshared.contains(what)).cloned().collect();
        self.unshared = unshared;
        new
    }

    /// What others are made beside.
    pub(super) fn beside(&self, running: &Config) -> Beside {
        Beside {
            settings: running.features.clone(),
            before: self.states.clone(),
            forwarder: self.forwarder.clone(),
        }
    }

    /// Whether these can take the place of the running ones.
    ///
    /// # Errors
    /// When the running features were changed since these were prepared.
    pub(super) fn fits(
        &self,
        new: &Config,
        running: &Config,
        prepared: Option<&Prepared>,
    ) -> Result<(), ApiError> {
        let fits = match prepared {
            None => new.features == running.features,
            Some(prepared) => {
                prepared.wanted == new.features && prepared.before.is_same(&self.states)
            }
        };
        let message = "the features were changed by another request meanwhile: try again";
        if fits { Ok(()) } else { Err(ApiError::at(Code::Refused, "features", message)) }
    }

    /// Features that ran before, with their states of that time; `None` where they are the running ones.
    pub(super) fn prepared(&self, config: &Config, made: FeatureStates) -> Option<Prepared> {
        let (wanted, before) = (config.features.clone(), self.states.clone());
        let unshared = self.unshared.clone();
        (!made.is_same(&before)).then_some(Prepared { wanted, before, made, unshared })
    }

    /// Puts prepared features in the place of the running ones. Returns their settings, and messages as
    /// [`Features::follow_ports`].
    pub(super) fn put(
        &mut self,
        prepared: Prepared,
        control: &Control,
    ) -> (FeatureSettings, Vec<String>) {
        let Prepared { wanted, made, unshared, .. } = prepared;
        self.note_sampled();
        made.go_on_with(&self.states);
        let old = std::mem::replace(&mut self.states, made);
        self.ports = None;
        let mut messages = self.note(unshared);
        messages.extend(self.follow_ports(control));
        free_later(old);
        (wanted, messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_shared_is_reported_once() {
        let mut features = Features::new(&Config::default()).unwrap();
        let full = || Err("shared memory: Cannot allocate memory (os error 12)".to_owned());
        let message = "ACLs are not in XDP: shared memory: Cannot allocate memory; `interface show` has each \
                       interface";
        assert_eq!(features.note(unshared(Ok(()), full())), [message]);
        assert_eq!(features.note(unshared(Ok(()), full())), [""; 0]);
        assert_eq!(features.note(unshared(Ok(()), Ok(()))), [""; 0]);
        assert_eq!(features.note(unshared(Ok(()), full())), [message]);
    }
}
