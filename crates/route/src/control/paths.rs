//! Table of all paths of a route table, for feasible source checks (RFC 3704 2.3, "an equivalent, RPF-specific table").
//!
//! Source: RFC 3704 2.3 puts the alternative paths beside the best one; RFC 8704 3.1 has the same of paths that are
//!         known and not the best.
//! Shape:  a table of its own ([`TableId::Paths`]), which has every prefix of the route table; its next hop is the group
//!         of the paths of all candidates there, each once. Where the best route leads nowhere, so does this one: a
//!         source that is routed to nowhere must fail (RFC 5635). So the longest match is that of the route table itself, and
//!         one lookup is enough.
//! Cost:   none before an interface needs it; then each change is made twice, and a table takes twice the memory.
//!         The XDP datapath does not see it.

use fingerpost_lpm::NextHopId;

use super::resolver::resolver;
use super::routes::is_direct;
use super::sources::HOST;
use super::{Control, RouteError};
use crate::event::{AnyPrefix, ObjectTarget, Path, TableId};
use crate::nexthop::{HopAttrs, HopFlags, HopKey};
use crate::rib::Candidate;

impl Control {
    /// Keeps all paths of a route table from now on.
    pub(super) fn keep_paths(&mut self, table: u32) -> Result<(), RouteError> {
        self.add_table(table)?;
        if self.tables.fib(TableId::Paths(table)).is_some() {
            return Ok(());
        }
        self.tables.add(TableId::Paths(table)).ok_or(RouteError::TooManyTables)?;
        for prefix in self.tables.prefixes(table) {
            self.follow_paths(table, prefix);
        }
        self.output.outdate();
        Ok(())
    }

    /// Takes a change of the candidates of a prefix over to the table of all paths, if there is one.
    pub(super) fn follow_paths(&mut self, number: u32, prefix: AnyPrefix) {
        if self.tables.get(TableId::Paths(number)).is_none() {
            return;
        }
        let candidates = self.tables.get(number).map(|t| t.candidates(prefix)).unwrap_or_default();
        let key = self.key_of_all(&candidates);
        let table = self.tables.get_mut(TableId::Paths(number)).expect("just seen");
        let present = table.find(prefix, HOST.0, 0).map(|candidate| candidate.hop);
        let attrs = HopAttrs { flags: HopFlags::of_prefix(prefix), mtu: 0, table: number };
        let resolver = resolver(&self.links, &self.objects, &self.tables, &self.neighbors);
        let hop = match &key {
            Some(key) => match self.hops.acquire_as(key, attrs, present, &resolver) {
                Ok(hop) => hop,
                Err(error) => {
                    // The paths of before stay: the next change of the prefix tries again.
                    let error = RouteError::NextHop { prefix, error };
                    return self.sources.get_mut(HOST).refuse(&error);
                }
            },
            None => NextHopId::NONE,
        };
        let table = self.tables.get_mut(TableId::Paths(number)).expect("just seen");
        if key.as_ref().is_some_and(|key| is_direct(prefix, key)) {
            table.force(prefix);
        }
        if hop.is_none() {
            table.remove(prefix, HOST.0, 0);
        } else {
            let candidate = Candidate { source: HOST.0, distance: 0, metric: 0, hop };
            table.insert(prefix, candidate, 0);
        }
        if let Some(present) = present {
            self.hops.release(present);
        }
    }

    /// Key of the group of all paths of these candidates, the best of which comes first.
    fn key_of_all(&self, candidates: &[Candidate]) -> Option<HopKey> {
        let best = self.hops.key(candidates.first()?.hop)?;
        let mut paths = Vec::new();
        for candidate in candidates {
            for path in self.paths_by(self.hops.key(candidate.hop)) {
                // Its share of packets does not matter here.
                let path = Path { weight: 1, ..path };
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        let leads_out = !self.paths_by(Some(best)).is_empty();
        // Alternatives that are not in use are paths as well.
        let several = candidates.len() > 1 || matches!(best, HopKey::Ranked(_));
        Some(if several && leads_out { HopKey::of_paths(paths) } else { best.clone() })
    }

    /// The paths of a next hop, those of a next-hop object as its source announced them last.
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
            Some(ObjectTarget::Blackhole | ObjectTarget::Local) | None => Vec::new(),
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
    use crate::event::{MAIN_TABLE, NeighborState, RouteKey, Target};
    use crate::forwarding::UrpfMode;
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
        // Earlier routes count as well as later ones.
        lab.control.check_sources("left", Some(UrpfMode::Feasible)).unwrap();
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
    fn alternatives_are_paths_whether_or_not_they_are_in_use() {
        let mut lab = lab();
        lab.neighbor(LEFT, "10.0.1.8", NeighborState::Reachable(mac(1)));
        lab.neighbor(RIGHT, "10.0.2.8", NeighborState::Reachable(mac(2)));
        lab.control.check_sources("left", Some(UrpfMode::Feasible)).unwrap();
        let path =
            |gateway: &str| Path { gateway: Some(gateway.parse().unwrap()), link: None, weight: 1 };
        lab.route("192.0.2.0/24", Target::Ranked(vec![path("10.0.2.8"), path("10.0.1.8")]));
        lab.control.commit_now(std::time::Instant::now()).unwrap();
        let (left, right) = (lab.port("left"), lab.port("right"));
        assert_eq!(ports(&mut lab, "192.0.2.1"), [vec![left, right], vec![right]]);
    }

    #[test]
    fn any_number_names_a_route_table_beside_the_paths_of_another_one() {
        let mut lab = lab();
        lab.control.check_sources("left", Some(UrpfMode::Feasible)).unwrap();
        assert_eq!(lab.control.add_table(u32::MAX), Ok(2));
        let names = [TableId::Routes(MAIN_TABLE), TableId::Paths(MAIN_TABLE), u32::MAX.into()];
        assert_eq!(lab.control.tables(), names);
        assert_eq!(names.map(|name| name.to_string()), ["254", "254 paths", "4294967295"]);
        let sources: Vec<_> = lab.control.sources().map(|source| source.name).collect();
        assert_eq!(sources, ["host", "neighbor", "kernel"], "paths have no source of their own");
    }
}
