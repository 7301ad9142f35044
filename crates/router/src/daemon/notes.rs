//! What is noted of interfaces for who follows: taken over, given back, closed.
//!
//! It is found by comparing what drives each interface with what did before, whenever something happened to one.

use std::collections::BTreeMap;

use fingerpost_route::{Control, Takeover};

use super::ports::InterfaceReport;

/// How each interface was driven when it was looked at last, by name: the path of its packets, and in words.
#[derive(Default)]
pub(super) struct Driven(BTreeMap<String, (&'static str, String)>);

/// Path of an interface that stays with the kernel.
const KERNEL: &str = "kernel";

impl Driven {
    /// Notes what is another way now.
    pub(super) fn note(&mut self, control: &mut Control, now: Vec<InterfaceReport>) {
        let mut before = std::mem::take(&mut self.0);
        for InterfaceReport { name, path, mode, .. } in now {
            let old = before.remove(&name);
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
                path,
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
    }
}
