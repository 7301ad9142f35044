//! All paths of a table: what a feasible check of sources asks (RFC 3704 2.3, "an equivalent, RPF-specific table").
//!
//! Source: RFC 3704 2.3 puts the alternative paths beside the best one; RFC 8704 3.1 has the same of paths that are
//!         known and not the best.
//! Shape:  a table of its own, which has every prefix of the other one; its next hop is the group of the ways of all
//!         candidates there, each once. Where the best route leads nowhere, so does this one: a source that is routed
//!         to nowhere is to fail (RFC 5635). So the longest match is that of the table itself, and one lookup answers.
//! Cost:   none before an interface asks for it; then each change is made twice, and a table takes twice the memory.
//!         Programs in the kernel do not see it.

use super::tables::number_of_paths;
use super::{Control, MAIN_TABLE, RouteError};
use crate::event::{AnyPrefix, ObjectTarget, Path, RouteKey};
use crate::forwarding::ReversePath;
use crate::nexthop::HopKey;
use crate::rib::Candidate;

impl Control {
    /// Packets that come in by the interface of this name have their sources checked from the next commit on, or
    /// (`None`) no longer.
    ///
    /// # Errors
    /// [`RouteError::TooManyTables`], where a feasible check needs one.
    pub fn check_sources(
        &mut self,
        name: &str,
        check: Option<ReversePath>,
    ) -> Result<(), RouteError> {
        if check == Some(ReversePath::Feasible) {
            let table = self.bindings.get(name).copied().unwrap_or(MAIN_TABLE);
            self.keep_paths(table)?;
        }
        match check {
            Some(check) => drop(self.source_checks.insert(name.to_owned(), check)),
            None => drop(self.source_checks.remove(name)),
        }
        self.ports_changed = true;
        Ok(())
    }

    /// The number of the table with the paths of this one, if they are kept.
    pub(super) fn paths_of(&self, table: u32) -> Option<u32> {
        self.paths?;
        let number = number_of_paths(self.tables.fib(table)?);
        self.tables.fib(number).map(|_| number)
    }

    /// Keeps the paths of a table from now on.
    pub(super) fn keep_paths(&mut self, table: u32) -> Result<(), RouteError> {
        let fib = self.add_table(table)?;
        if self.paths.is_none() {
            self.paths = Some(self.add_source("paths", 0));
        }
        if self.paths_of(table).is_some() {
            return Ok(());
        }
        self.tables.add(number_of_paths(fib)).ok_or(RouteError::TooManyTables)?;
        let Some(known) = self.tables.get(table) else { return Ok(()) };
        let v4 = known.v4.rib.prefixes_after(None).map(AnyPrefix::V4);
        let v6 = known.v6.rib.prefixes_after(None).map(AnyPrefix::V6);
        for prefix in v4.chain(v6).collect::<Vec<_>>() {
            self.follow_paths(&RouteKey { table, prefix, metric: 0 });
        }
        self.ports_changed = true;
        Ok(())
    }

    /// After a change of the candidates of a prefix: its paths are those of all that are there now.
    pub(super) fn follow_paths(&mut self, key: &RouteKey) {
        let Some((source, table)) = self.paths.zip(self.paths_of(key.table)) else { return };
        let candidates = self.tables.get(key.table).map(|t| t.of(key.prefix)).unwrap_or_default();
        let paths = RouteKey { table, prefix: key.prefix, metric: 0 };
        match self.key_of_all(&candidates) {
            Some(hop) => self.insert(source, paths, &hop, 0),
            None => self.withdraw(source, &paths),
        }
    }

    fn key_of_all(&self, candidates: &[Candidate]) -> Option<HopKey> {
        let best = self.hops.key(candidates.first()?.hop)?;
        let mut paths = Vec::new();
        for candidate in candidates {
            for path in self.paths_by(self.hops.key(candidate.hop)) {
                // How many packets would take it says nothing here.
                let path = Path { weight: 1, ..path };
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        let leads_out = !self.paths_by(Some(best)).is_empty();
        Some(if candidates.len() > 1 && leads_out { HopKey::of_paths(paths) } else { best.clone() })
    }

    /// The ways that a next hop stands for, those of a next-hop object as its source says them now.
    fn paths_by(&self, key: Option<&HopKey>) -> Vec<Path> {
        let object = |source, id| match self.objects.get(source, id) {
            Some(ObjectTarget::Path(path)) => vec![*path],
            Some(ObjectTarget::Group(members)) => {
                let member = |&(id, _): &(u32, u32)| match self.objects.get(source, id) {
                    Some(ObjectTarget::Path(path)) => Some(*path),
                    _ => None,
                };
                members.iter().filter_map(member).collect()
            }
            Some(ObjectTarget::Blackhole) | None => Vec::new(),
        };
        match key {
            Some(&HopKey::Object { source, id }) => object(source, id),
            Some(key) => key.paths().to_vec(),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::tests::{LEFT, Lab, RIGHT, lab, mac, via};
    use super::*;
    use crate::event::{NeighborState, Target};
    use crate::hops::ForwardingAction;

    /// Ports that the paths of an address leave by, and those of its best route.
    fn ports(lab: &mut Lab, addr: &str) -> [Vec<u16>; 2] {
        let addr = addr.parse::<std::net::Ipv4Addr>().unwrap().to_bits();
        let port = lab.port("left");
        let forwarding = lab.reader.pin().clone();
        let info = forwarding.ports.port(port).unwrap();
        [info.paths, info.fib].map(|fib| {
            let id = forwarding.v4_of(fib).lookup(addr);
            let mut ports = Vec::new();
            forwarding.hops.any_action(id, |action| {
                match action {
                    ForwardingAction::Adjacency(index) => {
                        ports.push(forwarding.hops.adjacency(index).port)
                    }
                    ForwardingAction::Glean(port) => ports.push(port),
                    _ => {}
                }
                false
            });
            ports.sort_unstable();
            ports.dedup();
            ports
        })
    }

    #[test]
    fn paths_are_those_of_all_candidates() {
        let mut lab = lab();
        lab.neighbor(LEFT, "10.0.1.8", NeighborState::Reachable(mac(1)));
        lab.neighbor(RIGHT, "10.0.2.8", NeighborState::Reachable(mac(2)));
        let other = lab.control.add_source("other", 200);
        lab.route("192.0.2.0/24", via("10.0.1.8"));
        let key = |prefix: &str| RouteKey {
            table: MAIN_TABLE,
            prefix: AnyPrefix::parse(prefix).unwrap(),
            metric: 0,
        };
        let put = |lab: &mut Lab, prefix: &str, target: &Target| {
            let op = super::super::Operation::REPLACE;
            lab.control.put_route(other, key(prefix), op, target, None, None).unwrap();
        };
        put(&mut lab, "192.0.2.0/24", &via("10.0.2.8"));
        put(&mut lab, "0.0.0.0/0", &via("10.0.2.8"));
        // What is there is known too, and what comes later.
        lab.control.check_sources("left", Some(ReversePath::Feasible)).unwrap();
        lab.route("198.51.100.0/24", via("10.0.1.8"));
        lab.control.commit_now(std::time::Instant::now()).unwrap();
        let (left, right) = (lab.port("left"), lab.port("right"));
        assert_eq!(ports(&mut lab, "192.0.2.1"), [vec![left, right], vec![left]]);
        // A longer prefix hides what a shorter one has.
        assert_eq!(ports(&mut lab, "198.51.100.1"), [vec![left], vec![left]]);
        assert_eq!(ports(&mut lab, "203.0.113.1"), [vec![right], vec![right]]);
        assert_eq!(ports(&mut lab, "10.0.1.77"), [vec![left], vec![left]]);

        // The other source's path goes, and comes where the best leads nowhere.
        lab.control.delete_route(other, key("192.0.2.0/24"), &super::super::Paths::All).unwrap();
        lab.route("203.0.113.0/24", Target::Blackhole);
        put(&mut lab, "203.0.113.0/24", &via("10.0.2.8"));
        lab.control.commit_now(std::time::Instant::now()).unwrap();
        assert_eq!(ports(&mut lab, "192.0.2.1"), [vec![left], vec![left]]);
        assert_eq!(ports(&mut lab, "203.0.113.1"), [vec![], vec![]]);
        lab.withdraw("203.0.113.0/24");
        lab.control.commit_now(std::time::Instant::now()).unwrap();
        assert_eq!(ports(&mut lab, "203.0.113.1"), [vec![right], vec![right]]);
    }

    #[test]
    fn nobody_takes_the_number_of_such_a_table() {
        let mut lab = lab();
        let refused = lab.control.add_table(u32::MAX - 3).unwrap_err();
        assert_eq!(refused.to_string(), "table 4294967292 is kept for paths: take a lower number");
        assert_eq!(lab.control.fib_reports(std::time::Instant::now()).len(), 2);
    }
}
