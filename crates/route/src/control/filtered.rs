//! Which interfaces have the sources of their packets looked up in lists.
//!
//! The lists are the packet path's. It is said here because whoever forwards without them must know, and hears of ports
//! by the port table: programs in drivers leave such ports alone.

use std::collections::BTreeSet;

use super::Control;

/// Interfaces, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// These.
    Some(BTreeSet<String>),
    /// Whatever there is, and comes.
    All,
}

impl Default for Filtered {
    fn default() -> Self {
        Self::Some(BTreeSet::new())
    }
}

impl Filtered {
    /// Whether this one is among them.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Some(names) => names.contains(name),
            Self::All => true,
        }
    }
}

impl Control {
    /// Packets that come in by these interfaces, and no others, have their sources looked up in lists from the next
    /// commit on.
    pub fn filter_sources(&mut self, interfaces: Filtered) {
        self.ports_changed |= self.filtered != interfaces;
        self.filtered = interfaces;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::tests::lab;
    use super::*;

    #[test]
    fn ports_say_that_they_are_filtered() {
        let mut lab = lab();
        let mut seen = |interfaces: Option<Filtered>| {
            interfaces.into_iter().for_each(|interfaces| lab.control.filter_sources(interfaces));
            lab.control.commit_now(std::time::Instant::now()).unwrap();
            let ports = ["left", "right"].map(|name| lab.port(name));
            let forwarding = lab.reader.pin().clone();
            ports.map(|port| forwarding.ports.port(port).unwrap().filtered)
        };
        let some =
            |names: &[&str]| Some(Filtered::Some(names.iter().map(ToString::to_string).collect()));
        assert_eq!(seen(None), [false, false]);
        assert_eq!(seen(some(&["right", "other"])), [false, true]);
        assert_eq!(seen(Some(Filtered::All)), [true, true]);
        assert_eq!(seen(some(&[])), [false, false]);
    }
}
