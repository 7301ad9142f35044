//! Programs that another thread loads: those for tables to come are linked without being loaded again, and an auditor
//! waits for those of the present tables.

use std::sync::Mutex;

use fingerpost_lpm::testing::{Shape, table};
use fingerpost_lpm::{RouteStore, Rows};
use fingerpost_route::fib::{Job, KernelLookup};

use super::tests::Lab;
use super::*;
use crate::xdp::{LocalAddresses, testing};
use fingerpost_packet::cases::Built;

/// A table of other routes, in memory that programs read.
fn another(forwarder: &Forwarder) -> Arc<dyn Lookup<u32>> {
    let routes: RouteStore<u32> = table::<u32>(Shape::Internet, 2000, 20, 9).into_iter().collect();
    let row = u32::row("bc18").unwrap();
    row.build(&routes, &mut *forwarder.shared().memory.make()).unwrap().publish()
}

/// Ids of the programs on all ports.
fn linked(forwarder: &Forwarder) -> BTreeSet<u32> {
    let state = forwarder.state();
    state.ports.values().map(|attached| attached.link.program_id().unwrap()).collect()
}

#[test]
fn programs_of_tables_to_come_are_linked_as_they_are() {
    testing::in_namespace(|| {
        let Lab { mut forwarder, topology, .. } = Lab::new();
        let next = another(&forwarder);
        let value = Forwarding { v4: next.clone(), ..topology.forwarding.clone() };
        let before = linked(&forwarder);
        forwarder.prepare_v4(0, next);
        let prepared = forwarder.0.ahead.ids();
        assert_eq!(prepared.len(), before.len());
        assert_eq!(linked(&forwarder), before, "nothing is linked before the tables are there");
        forwarder.follow(&value);
        assert_eq!(linked(&forwarder), prepared);

        // A table that nobody prepared for, and one that differs from the one that came.
        for prepare in [false, true] {
            let value = Forwarding { v4: another(&forwarder), ..value.clone() };
            if prepare {
                forwarder.prepare_v4(0, another(&forwarder));
            }
            let prepared = forwarder.0.ahead.ids();
            forwarder.follow(&value);
            assert!(linked(&forwarder).is_disjoint(&prepared));
            assert_eq!(forwarder.0.ahead.ids(), BTreeSet::new(), "nothing waits any longer");
            assert!(forwarder.state().ports.values().all(|attached| attached.state.is_ok()));
        }
    });
}

/// An interface whose program was loaded elsewhere is taken in without a load, unless tables changed meanwhile; and a table
/// that comes later has its program, too.
#[test]
fn an_interface_that_was_made_ready_is_taken_in_as_it_is() {
    testing::in_namespace(|| {
        let Lab { mut forwarder, topology, .. } = Lab::new();
        let (port, spec) =
            (0..).zip(&topology.topology.ports).find(|(_, spec)| !spec.down).unwrap();
        forwarder.remove_port(port);
        let (near, _) = testing::veth("new", "other", 1);
        let local = LocalAddresses::new().unwrap();
        let classifier = Classifier::load(topology.mac(&spec.name).0, &local, 1792).unwrap();
        let classifier = Arc::new(classifier);
        let link = Arc::new(classifier.attach(near, Mode::Native).unwrap());
        let (plain, id) = (link.program_id().unwrap(), || link.program_id().unwrap());
        let ready = forwarder.ready_port((port, near), classifier.clone(), link.clone(), true);
        assert_eq!((forwarder.0.ahead.ids().len(), id()), (1, plain), "it is not taken in");
        let (ready, is_stale) = forwarder.is_stale(ready.unwrap());
        assert!(!is_stale && !forwarder.state().ports.contains_key(&port));

        // Other tables, and one that is being built.
        let value = Forwarding { v4: another(&forwarder), ..topology.forwarding.clone() };
        forwarder.follow(&value);
        let (ready, is_stale) = forwarder.is_stale(ready);
        assert!(is_stale, "{:?}", forwarder.0.ahead.ids());
        let ready = forwarder.make_ready(ready);
        let next = another(&forwarder);
        forwarder.prepare_v4(0, next.clone());
        let (ready, is_stale) = forwarder.is_stale(ready);
        assert!(is_stale, "it has no program for the table that is being built");
        let (ready, is_stale) = forwarder.is_stale(forwarder.make_ready(ready));
        assert!(!is_stale);

        let prepared = forwarder.0.ahead.ids();
        forwarder.add_ready(ready).unwrap();
        assert!(
            prepared.contains(&id()) && forwarder.reads(port).is_some_and(|reads| reads.is_ok())
        );
        // An interface that comes or goes does not cost the programs of the table that is being built.
        let mut ports = (*value.ports).clone();
        ports.ports.push(None);
        forwarder.follow(&Forwarding { ports: Arc::new(ports), ..value.clone() });
        let present = id();
        forwarder.follow(&Forwarding { v4: next, ..value });
        assert!(prepared.contains(&id()) && id() != present);
        assert!(linked(&forwarder).is_subset(&prepared), "none was loaded here");

        // It goes: nothing is loaded for it, and it runs nothing that forwards.
        forwarder.remove_port(port);
        assert_eq!(id(), plain);
    });
}

#[test]
fn an_auditor_gets_a_program_once_another_thread_has_loaded_it() {
    testing::in_namespace(|| {
        let mut forwarder = Forwarder::new(0, CAP_BYTES).unwrap();
        let topology = Built::of_cases_shared(&forwarder.shared());
        forwarder.follow(&topology.forwarding);
        let jobs: Arc<Mutex<Vec<Job>>> = Arc::default();
        let to = jobs.clone();
        forwarder.load_beside(Runner::new(move |job| to.lock().unwrap().push(job)));
        let work = || {
            let jobs = std::mem::take(&mut *jobs.lock().unwrap());
            let count = jobs.len();
            jobs.into_iter().for_each(|job| job());
            count
        };
        let program = |forwarder: &Forwarder| forwarder.query_program(0, 0);
        assert!(matches!(program(&forwarder), QueryProgram::Loading(_)));
        assert!(matches!(program(&forwarder), QueryProgram::Loading(_)));
        assert!(KernelLookup::v4(&forwarder, 0).is_none());
        assert_eq!(work(), 1, "it is loaded once");
        assert!(matches!(program(&forwarder), QueryProgram::Loaded(_)));
        assert!(KernelLookup::v4(&forwarder, 0).is_some());

        // Tables that come while it is being loaded.
        let value = Forwarding { v4: another(&forwarder), ..topology.forwarding.clone() };
        forwarder.follow(&value);
        assert!(matches!(program(&forwarder), QueryProgram::Loading(_)));
        forwarder.follow(&Forwarding { v4: another(&forwarder), ..value });
        assert!(matches!(program(&forwarder), QueryProgram::Loading(_)));
        assert_eq!(work(), 2);
        assert!(matches!(program(&forwarder), QueryProgram::Loaded(_)));
        assert!(forwarder.query_program_now(0, 1).is_some(), "at once, for a person");

        // A thread that ends without it.
        forwarder.follow(&Forwarding { v4: another(&forwarder), ..topology.forwarding.clone() });
        assert!(matches!(program(&forwarder), QueryProgram::Loading(_)));
        jobs.lock().unwrap().clear();
        assert!(matches!(program(&forwarder), QueryProgram::Loaded(_)));
    });
}
