//! Settings of interfaces, by name: they hold for interfaces that come later, too.

use std::collections::{BTreeMap, BTreeSet};

use crate::forwarding::UrpfMode;

/// Interfaces, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceSet {
    /// Interfaces of these names.
    Some(BTreeSet<String>),
    /// Every interface.
    All,
}

impl Default for InterfaceSet {
    fn default() -> Self {
        Self::Some(BTreeSet::new())
    }
}

impl InterfaceSet {
    /// Whether the interface of this name is included.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Some(names) => names.contains(name),
            Self::All => true,
        }
    }

    /// Whether no interface is included.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Some(names) if names.is_empty())
    }
}

/// Settings that differ from the defaults.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    /// Route tables of the interfaces that are bound to one.
    tables: BTreeMap<String, u32>,
    source_checks: BTreeMap<String, UrpfMode>,
    graph_only: InterfaceSet,
    without_redirects: BTreeSet<String>,
}

impl Interfaces {
    /// Number of the route table that the interface is bound to by its name.
    pub(super) fn table(&self, name: &str) -> Option<u32> {
        self.tables.get(name).copied()
    }

    pub(super) fn bind(&mut self, name: &str, table: u32) {
        self.tables.insert(name.to_owned(), table);
    }

    pub(super) fn source_check(&self, name: &str) -> Option<UrpfMode> {
        self.source_checks.get(name).copied()
    }

    pub(super) fn set_source_check(&mut self, name: &str, check: Option<UrpfMode>) {
        match check {
            Some(check) => drop(self.source_checks.insert(name.to_owned(), check)),
            None => drop(self.source_checks.remove(name)),
        }
    }

    pub(super) fn is_graph_only(&self, name: &str) -> bool {
        self.graph_only.has(name)
    }

    /// Replaces the set of filtered interfaces; whether it changed.
    pub(super) fn set_graph_only(&mut self, interfaces: InterfaceSet) -> bool {
        std::mem::replace(&mut self.graph_only, interfaces.clone()) != interfaces
    }

    pub(super) fn sends_redirects(&self, name: &str) -> bool {
        !self.without_redirects.contains(name)
    }

    pub(super) fn set_redirects(&mut self, name: &str, send: bool) {
        if send {
            self.without_redirects.remove(name);
        } else {
            self.without_redirects.insert(name.to_owned());
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::tests::lab;
    use super::*;

    #[test]
    fn ports_are_marked_as_filtered() {
        let mut lab = lab();
        let mut seen = |interfaces: Option<InterfaceSet>| {
            interfaces.into_iter().for_each(|interfaces| lab.control.leave_to_graph(interfaces));
            lab.control.commit_now(std::time::Instant::now()).unwrap();
            let ports = ["left", "right"].map(|name| lab.port(name));
            let forwarding = lab.reader.pin().clone();
            ports.map(|port| forwarding.ports.port(port).unwrap().graph_only)
        };
        let some = |names: &[&str]| {
            Some(InterfaceSet::Some(names.iter().map(ToString::to_string).collect()))
        };
        assert_eq!(seen(None), [false, false]);
        assert_eq!(seen(some(&["right", "other"])), [false, true]);
        assert_eq!(seen(Some(InterfaceSet::All)), [true, true]);
        assert_eq!(seen(some(&[])), [false, false]);
    }
}
