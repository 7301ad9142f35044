//! Notices for followers of events: interfaces that are taken over, returned or closed, and requests that are refused.
//!
//! A notice is found by comparing the path of each interface with the path before, whenever something happened to one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fingerpost_route::{Control, Takeover};
use tracing::warn;

use super::ports::{InterfaceReport, Interfaces};

/// Path of each interface at the last comparison, by name, with its description.
#[derive(Default)]
struct Driven(BTreeMap<String, (&'static str, String)>);

/// Paths of interfaces and refused requests, as followers of events know them.
#[derive(Default)]
pub(super) struct Journal {
    driven: Driven,
    refusals: Refusals,
}

/// Refused requests that are noted in [`REFUSAL_TIME`]; further ones are counted.
const MOST_REFUSALS: u32 = 50;
const REFUSAL_TIME: Duration = Duration::from_secs(10);

/// Refused requests of the present span of time.
#[derive(Default)]
struct Refusals {
    since: Option<Instant>,
    noted: u32,
    left_out: u64,
}

impl Journal {
    /// Counts a refused request; whether it is noted. Whoever may connect can make any number of them.
    pub(super) fn count_refusal(&mut self, now: Instant) -> bool {
        let Refusals { since, noted, left_out } = &mut self.refusals;
        if since.is_none_or(|since| now.duration_since(since) > REFUSAL_TIME) {
            if *left_out > 0 {
                warn!(target: "control", refused = *left_out, "{left_out} more requests were refused");
            }
            (*since, *noted, *left_out) = (Some(now), 0, 0);
        }
        let has_room = *noted < MOST_REFUSALS;
        if has_room {
            *noted += 1
        } else {
            *left_out += 1
        }
        has_room
    }

    /// Notes what happened to interfaces.
    pub(super) fn note(&mut self, control: &mut Control, interfaces: &mut Interfaces) {
        if interfaces.take_changed() {
            self.driven.note(control, interfaces.report());
        }
    }
}

/// Path of an interface that stays with the kernel.
const KERNEL: &str = "kernel";

impl Driven {
    /// Notes the interfaces whose path has changed.
    fn note(&mut self, control: &mut Control, now: Vec<InterfaceReport>) {
        let mut before = std::mem::take(&mut self.0);
        for InterfaceReport { name, path, mode, opening, .. } in now {
            let old = before.remove(&name);
            if opening && old.is_none() {
                // What becomes of it is the first that is noted.
                continue;
            }
            let old_path = old.as_ref().map(|(path, _)| *path);
            if old_path != Some(path) {
                let takeover = match old_path {
                    _ if path != KERNEL => Takeover::Taken,
                    None => Takeover::Kernel,
                    Some(_) => Takeover::Released,
                };
                control.note_interface(&name, takeover, path, &mode);
            }
            self.0.insert(name, (path, mode));
        }
        for (name, (_, mode)) in before {
            control.note_interface(&name, Takeover::Closed, "", &mode);
        }
    }
}

#[cfg(test)]
mod tests {
    use fingerpost_route::{ControlOptions, Happened};

    use super::*;
    use crate::log::tests::captured;

    #[test]
    fn refused_requests_are_noted_at_a_bounded_rate() {
        let (mut journal, now) = (Journal::default(), Instant::now());
        let noted = (0..1000).filter(|_| journal.count_refusal(now)).count();
        assert_eq!(noted, MOST_REFUSALS as usize);
        let (noted, lines) = captured(|| journal.count_refusal(now + 2 * REFUSAL_TIME));
        assert!(noted);
        assert_eq!(lines, ["<4>control: 950 more requests were refused"]);
    }

    const OPENING: &str = "opening";

    #[test]
    fn changes_of_the_path_are_noted_once() {
        let (v4, v6) = (fingerpost_lpm::v4().collect(), fingerpost_lpm::v6().collect());
        let options = ControlOptions { v4, v6, connected_from_addresses: true };
        let mut control = Control::new(options).unwrap();
        let mut driven = Driven::default();
        let mut noted = |rows: &[(&str, &'static str)]| {
            let since = control.sequence();
            let report = |&(name, path): &(&str, &'static str)| InterfaceReport {
                name: name.into(),
                port: 0,
                opening: path == OPENING,
                path: if path == OPENING { KERNEL } else { path },
                mode: format!("by {path}"),
                policy: None,
                remedy: None,
                punted: 0,
                redirected: 0,
                held_back: 0,
            };
            driven.note(&mut control, rows.iter().map(report).collect());
            let text = |what: &Happened| match what {
                Happened::Interface { name, takeover, path, mode } => {
                    format!("{name} {takeover:?} {path} {mode}")
                }
                other => panic!("{other:?}"),
            };
            let notices = control.notices(since).unwrap();
            notices.map(|notice| text(&notice.what)).collect::<Vec<_>>()
        };
        let both = [("a", "xdp"), ("b", KERNEL)];
        assert_eq!(noted(&both), ["a Taken xdp by xdp", "b Kernel kernel by kernel"]);
        assert!(noted(&both).is_empty());
        assert_eq!(noted(&[("a", "afxdp"), ("b", KERNEL)]), ["a Taken afxdp by afxdp"]);
        assert_eq!(noted(&[("a", KERNEL)]), ["a Released kernel by kernel", "b Closed  by kernel"]);
        assert_eq!(noted(&[]), ["a Closed  by kernel"]);
        // While an interface is opened it is the kernel's as before, and nothing is noted of one that is new.
        assert!(noted(&[("a", OPENING)]).is_empty());
        assert_eq!(noted(&[("a", KERNEL)]), ["a Kernel kernel by kernel"]);
        assert!(noted(&[("a", OPENING)]).is_empty());
        assert_eq!(noted(&[("a", "xdp")]), ["a Taken xdp by xdp"]);
        assert_eq!(noted(&[("a", OPENING)]), ["a Released kernel by opening"]);
    }
}
