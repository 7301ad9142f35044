//! What the kernel's policy means to each interface: which obstacles there are, which families stay with the kernel, and
//! what is taken over in spite of an obstacle because by the configuration (`takeover.on_change = "warn"`).
//!
//! An obstacle keeps an interface with the kernel when it is planned ([`Interfaces::plan`]); here is what else follows
//! from a change: marks for reports, lines for people, and the families of which the classifier takes packets.

use std::collections::BTreeMap;

use fingerpost_io::xdp::{Families, XdpError};
use fingerpost_route::{Control, LinkState};
use tracing::{info, warn};

use super::ports::{Interfaces, chosen};
use super::takeover::{self, Findings, Left};
use crate::config::OnChange;

/// What was found for each interface, by the kernel's index.
#[derive(Default)]
struct Marks(BTreeMap<u32, Mark>);

/// What was found for one.
#[derive(Default)]
struct Mark {
    /// What of the interface was looked at besides the findings.
    name: String,
    master: Option<u32>,
    vrf: Option<u32>,
    backup: bool,
    /// The obstacle, in words.
    obstacle: Option<String>,
    /// It was taken over when the obstacle appeared, and stays so.
    kept: bool,
    left: Left,
}

impl Mark {
    fn is_of(&self, state: &LinkState) -> bool {
        let seen = (&self.name, self.master, self.vrf, self.backup);
        seen == (&state.name, state.master, state.vrf, state.backup)
    }
}

/// The kernel's policy for forwarded packets, and what it means to each interface.
pub(super) struct Policy {
    findings: Findings,
    /// Whether a survey since the last [`Interfaces::sync`] found something else.
    surveyed: bool,
    marks: Marks,
}

impl Policy {
    /// Policy as a first survey found it.
    pub(super) fn new(findings: Findings) -> Self {
        Self { findings, surveyed: false, marks: Marks::default() }
    }

    /// Whether a survey found something else since the last call.
    pub(super) fn take_surveyed(&mut self) -> bool {
        std::mem::take(&mut self.surveyed)
    }
}

impl Interfaces {
    /// What a new survey found holds from the next [`Interfaces::sync`] on.
    pub(super) fn set_findings(&mut self, findings: Findings) {
        let new = findings
            .unanswered
            .iter()
            .filter(|what| !self.policy.findings.unanswered.contains(what));
        new.for_each(|what| warn!(target: "policy", "unknown: {what}"));
        self.policy.findings = findings;
        self.policy.surveyed = true;
        self.vlans.forget();
    }

    /// Judges the interfaces that changed, or all after a survey.
    pub(super) fn follow_policy(&mut self, control: &Control) {
        // Which rules concern a link follows from its name and its VRF.
        self.policy.surveyed |= self.policy.findings.note_complex_rules(control);
        let mut links = 0;
        for (link, port, state) in control.links().filter(|(_, _, state)| !state.loopback) {
            links += 1;
            let known = self.policy.marks.0.get(&link).is_some_and(|mark| mark.is_of(state));
            if self.policy.surveyed || !known {
                self.judge(link, port, state);
            }
        }
        if self.policy.marks.0.len() > links {
            let there: Vec<u32> = control.links().map(|(link, _, _)| link).collect();
            self.policy.marks.0.retain(|link, _| there.contains(link));
        }
    }

    fn judge(&mut self, link: u32, port: u16, state: &LinkState) {
        let takeover = &self.options.config.takeover;
        let ours = self.takes(link, port);
        let warn = takeover.on_change == OnChange::Warn;
        let before = self.policy.marks.0.remove(&link).unwrap_or_default();
        let verdict = takeover::judge(link, state, &self.policy.findings, &takeover.ignore);
        let (mut obstacle, kept, left) = match verdict {
            Err(why) if warn && (ours || before.kept) => (Some(why), true, before.left.clone()),
            Err(why) => (Some(why), false, Left::default()),
            Ok(left) if warn && (ours || before.kept) => {
                let (now, were) = (left.families, before.left.families);
                let families = Families { v4: now.v4 && were.v4, v6: now.v6 && were.v6 };
                let why = left.why.clone().filter(|_| families != Families::NONE);
                (left.why, now != families, Left { families, why })
            }
            Ok(left) => (left.why.clone(), false, left),
        };
        if chosen(&self.options, state).is_err() {
            // It stays with the kernel whatever its policy is.
            obstacle = None;
        }
        let name = &state.name;
        if kept && before.obstacle != obstacle {
            let what = obstacle.as_deref().unwrap_or_default();
            warn!(target: "policy", interface = name, obstacle = what, "{name}: stays taken over in spite of {what}");
        } else if before.kept && !kept {
            info!(target: "policy", interface = name, "{name}: the kernel's policy is no obstacle any more");
        }
        if ours && left != before.left {
            self.history.changed = true;
            let (v4, v6) = (left.families.v4, left.families.v6);
            let why = left.why.as_deref().unwrap_or("packets of both families are taken over");
            info!(target: "policy", interface = name, left_v4 = v4, left_v6 = v6, "{name}: {why}");
            if let Err(error) = self.leave(link, left.families) {
                warn!(target: "policy", interface = name, "{name}: {error}");
            }
        }
        let LinkState { master, vrf, backup, .. } = *state;
        let name = state.name.clone();
        self.policy.marks.0.insert(link, Mark { name, master, vrf, backup, obstacle, kept, left });
    }

    /// Has the classifier and the program of an interface leave the packets of these families to the kernel.
    fn leave(&self, link: u32, families: Families) -> Result<(), XdpError> {
        let Some((port, classifier)) = self.classifier(link) else { return Ok(()) };
        classifier.leave(families)?;
        self.datapath
            .forwarder
            .as_ref()
            .map_or(Ok(()), |forwarder| forwarder.families_changed(port))
    }

    /// What keeps an interface with the kernel, in words; `None` where nothing does, or it is kept in spite of it.
    pub(super) fn obstacle(&self, link: u32, state: &LinkState) -> Option<String> {
        if self.policy.marks.0.get(&link).is_some_and(|mark| mark.kept) {
            return None;
        }
        let ignore = &self.options.config.takeover.ignore;
        takeover::judge(link, state, &self.policy.findings, ignore).err()
    }

    /// The families whose packets stay with the kernel while an interface is taken over.
    pub(super) fn left(&self, link: u32, state: &LinkState) -> Left {
        match self.policy.marks.0.get(&link) {
            Some(mark) if mark.is_of(state) => mark.left.clone(),
            _ => {
                let ignore = &self.options.config.takeover.ignore;
                takeover::judge(link, state, &self.policy.findings, ignore).unwrap_or_default()
            }
        }
    }

    /// The obstacle of an interface, for reports: it stays with the kernel for that, or in part, or is taken over in
    /// spite of it.
    pub(super) fn mark(&self, link: u32) -> Option<&str> {
        self.policy.marks.0.get(&link)?.obstacle.as_deref()
    }
}
