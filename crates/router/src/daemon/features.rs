//! The interface features of the configuration at run time: states made, and followed as links come and go.
//!
//! States are made outside the daemon's thread, since a list of a million prefixes takes a second or so; what happens
//! here takes no longer than planning a graph.

use std::sync::Arc;
use std::time::Duration;

use fingerpost_io::xdp::forward::Forwarder;
use fingerpost_packet::feature::acl::AccessLists;
use fingerpost_packet::feature::source_filter::SourceFilters;
use fingerpost_packet::feature::{FeatureSettings, FeatureStates};
use fingerpost_route::{Control, PortTable};

use super::DaemonError;
use crate::api::error::{ApiError, Code};
use crate::config::Config;

/// Longer than workers need to take over a graph.
const LONGEST_ROUND: Duration = Duration::from_secs(2);

/// Features of the running configuration.
pub(super) struct Features {
    states: FeatureStates,
    /// Ports whose names the states have.
    ports: Option<Arc<PortTable>>,
    /// XDP datapath, which reads the lists of source filters and the rules of ACLs.
    forwarder: Option<Forwarder>,
}

/// Features of a configuration that is not yet the running one, and those that they were made beside.
pub(super) struct Prepared {
    wanted: FeatureSettings,
    before: FeatureStates,
    made: FeatureStates,
}

/// Settings that states are to be made of, for another thread.
pub(super) struct Wanted {
    wanted: FeatureSettings,
    settings: FeatureSettings,
    before: FeatureStates,
    forwarder: Option<Forwarder>,
}

impl Wanted {
    /// Makes the states; files are read here.
    pub(super) fn prepare(self) -> Result<Prepared, ApiError> {
        let Self { wanted, settings, before, forwarder } = self;
        let made = FeatureStates::make(&wanted, Some((&settings, &before)));
        let made = made.map_err(|wrong| ApiError::new(Code::Refused, wrong.join("; ")))?;
        if let Some(forwarder) = &forwarder {
            // Without memory for them their interfaces are the graph's, and say so.
            let _ = made.of::<SourceFilters>().map(|filters| forwarder.share(&filters));
            let _ = made.of::<AccessLists>().map(|acls| forwarder.share_access_lists(&acls));
        }
        Ok(Prepared { wanted, before, made })
    }
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
        let_go(self.made);
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
        Ok(Self { states, ports: None, forwarder: None })
    }

    /// The XDP datapath reads features from now on; called before interfaces are taken over.
    pub(super) fn set_forwarder(&mut self, forwarder: Option<&Forwarder>) {
        self.forwarder = forwarder.cloned();
    }

    /// States of the features in use: any thread may read them and change their lists.
    pub(super) fn states(&self) -> &FeatureStates {
        &self.states
    }

    /// Gives states the names of new ports, before packets arrive there.
    pub(super) fn follow_ports(&mut self, control: &Control) {
        // Any change of a link makes a new table.
        let ports = control.forwarding().ports.clone();
        if self.ports.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, &ports)) {
            let names: Vec<(u16, &str)> =
                control.links().map(|(_, port, state)| (port, &*state.name)).collect();
            self.states.follow(&names);
            self.ports = Some(ports);
            if let Some(forwarder) = &self.forwarder {
                forwarder.set_source_filters(self.states.of());
                forwarder.set_access_lists(self.states.of());
            }
        }
    }

    /// Work before the features of `config` can be the running ones; `None` where they are.
    pub(super) fn wanted(&self, config: Config, running: &Config) -> Option<Wanted> {
        let same = config.features == running.features;
        (!same).then(|| Wanted {
            wanted: config.features,
            settings: running.features.clone(),
            before: self.states.clone(),
            forwarder: self.forwarder.clone(),
        })
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

    /// Puts prepared features in the place of the running ones. Returns their settings.
    pub(super) fn put(&mut self, prepared: Prepared, control: &Control) -> FeatureSettings {
        let Prepared { wanted, made, .. } = prepared;
        made.go_on_with(&self.states);
        let old = std::mem::replace(&mut self.states, made);
        self.ports = None;
        self.follow_ports(control);
        let_go(old);
        wanted
    }
}

/// Workers leave the old graph within a round. The last holder of lists of millions of prefixes frees them, which takes a
/// while, so that is to be neither a worker nor the daemon's thread.
fn let_go(old: FeatureStates) {
    let last = move || {
        std::thread::sleep(LONGEST_ROUND);
        drop(old);
    };
    // Without a thread they are freed at once.
    let _ = std::thread::Builder::new().name("fingerpost-free".into()).spawn(last);
}
