//! Addresses that several `ARPQuerier` share: `t :: ARPTable`, and `ARPQuerier(..., TABLE t)`.
//!
//! Source: Click's `ARPTable`. What one element learns, all that name the table know; each has its own packets that wait,
//! within the bounds of the table. `CAPACITY_SLIM_FACTOR` is accepted and has no effect.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::element::click::arp_querier::{ByArp, Named};
use crate::element::click::neighbors::Neighbors;
use crate::element::click::querier::{Given, Shared, table_handled};
use crate::frame::counters::PerWorker;
use crate::graph::{ElementClass, Made, Passing, Setup};
use crate::language::{ClassSpec, ConfigError, Problems};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new(NAME, "0/0", "a/a", "x/y").ignores(&["CAPACITY_SLIM_FACTOR"]),
    summary: "keeps link addresses for several ARPQuerier",
    configure: |setup| {
        let given = Given::read(&mut setup.args);
        setup.args.finish()?;
        let given = given?;
        let number = setup.number();
        let table = table(setup, number);
        let group = setup.shared::<Group>(number);
        setup.kept = Some(Arc::new(table.clone()));
        // A handler may write entries where no element has learned any.
        table.set_capacity(given.entries());
        let members = move || lock(&group.members).clone();
        let made = Made::new(|_| Passing);
        Ok(table_handled::<ByArp>(made, &table, given.life_ns::<ByArp>(), members))
    },
};

const NAME: &str = "ARPTable";

/// What a table and the elements that name it share.
#[derive(Default)]
struct Group {
    table: OnceLock<Arc<Neighbors<u32>>>,
    members: Mutex<Vec<Arc<Shared<u32>>>>,
}

/// The table of an `ARPTable`: that which it had before, whoever is configured first.
fn table(setup: &mut Setup<'_>, number: usize) -> Arc<Neighbors<u32>> {
    let before = setup.kept_by::<Arc<Neighbors<u32>>>(number);
    let group = setup.shared::<Group>(number);
    let first = || before.map_or_else(Arc::default, |before| Arc::clone(&*before));
    group.table.get_or_init(first).clone()
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A list is whole whatever panicked beside it.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The table that argument `TABLE` names, for one more element, and its bounds.
pub(in crate::element::click) fn named(setup: &mut Setup<'_>) -> Result<Named, ConfigError> {
    let Some(arg) = setup.args.keyword_arg("TABLE")? else { return Ok(None) };
    let name: String = setup.args.read(&arg, "TABLE")?;
    let number = match setup.element(&name) {
        Some((number, NAME)) => number,
        _ => return Err(setup.args.refuse(&arg, &format!("TABLE: `{name}` is no {NAME}"))),
    };
    // What is wrong with them the table refuses.
    let mut problems = Problems::default();
    let given =
        setup.around.configuration.map(|all| Given::read(&mut all.args(number, &mut problems)));
    let Some(Ok(given)) = given else { return Ok(None) };
    let table = table(setup, number);
    let group = setup.shared::<Group>(number);
    let shared = Arc::new((PerWorker::default(), table));
    lock(&group.members).push(shared.clone());
    Ok(Some((shared, given)))
}

#[cfg(test)]
mod tests {
    use crate::graph::Plan;
    use crate::testing::{Rig, World, frame_v4};

    #[test]
    fn what_one_element_learns_the_others_know() {
        let text =
            "FromDevice(a) -> p :: ARPQuerier(10.0.0.1, 2:0:0:0:0:1, TABLE t) -> ToDevice(x);
            FromDevice(b) -> q :: ARPQuerier(10.0.1.1, 2:0:0:0:0:2, TABLE t) -> ToDevice(y);
            Idle -> [1] p; FromDevice(replies) -> [1] q; t :: ARPTable(ENTRY_CAPACITY 2)";
        let mut rig = Rig::new(&World::new(), text);
        let packet =
            |n: u8| frame_v4("192.0.2.1", &format!("10.0.1.{n}"), 64, 17, &[n])[14..].to_vec();
        // A query, and the packet waits.
        assert_eq!(rig.receive("a", &[&packet(7)]).len(), 1);
        assert_eq!([rig.read("t.length"), rig.read("t.count")], ["1", "1"]);
        rig.write("t.insert", "10.0.1.8 2:0:0:0:9:8");
        for (device, out) in [("a", "x"), ("b", "y")] {
            let sent = rig.receive(device, &[&packet(8)]);
            assert_eq!(
                (sent.len(), sent[0].0.as_str(), &sent[0].1[..6]),
                (1, out, &[2, 0, 0, 0, 9, 8][..])
            );
        }
        assert!(rig.read("t.table").contains("10.0.1.8 1 02-00-00-00-09-08"));
        assert_eq!(
            rig.read("q.table"),
            rig.read("t.table")
                .lines()
                .filter(|l| l.contains(".8 "))
                .map(|l| format!("{l}\n"))
                .collect::<String>()
        );
        rig.write("t.insert", "10.0.1.7 2:0:0:0:9:7");
        let sent = rig.poll();
        assert_eq!((sent.len(), sent[0].1[5]), (1, 7), "what waited leaves");
        assert!(rig.handlers.write("t.insert", "10.0.1.9 2:0:0:0:9:9").is_err(), "it is full");
        rig.write("t.delete", "10.0.1.8");
        assert_eq!(rig.read("p.count"), "1");
        rig.write("t.clear", "");
        assert_eq!(rig.read("q.count"), "0");
    }

    #[test]
    fn addresses_stay_where_the_configuration_is_replaced() {
        let table = "t :: ARPTable;";
        let querier = "FromDevice(a) -> p :: ARPQuerier(10.0.0.1, 2:0:0:0:0:1, TABLE t) -> ToDevice(x); Idle -> [1] p;";
        let orders = [format!("{querier}{table}"), format!("{table}{querier}")];
        let mut rig = Rig::new(&World::new(), &orders[0]);
        rig.write("t.insert", "10.0.1.8 2:0:0:0:9:8");
        for text in [&orders[0], &orders[1], &orders[0]] {
            rig.replace(text).unwrap();
            let packet = frame_v4("192.0.2.1", "10.0.1.8", 64, 17, &[1])[14..].to_vec();
            assert_eq!(rig.receive("a", &[&packet])[0].1[..6], [2, 0, 0, 0, 9, 8]);
            assert_eq!(rig.read("t.count"), "1");
        }
    }

    #[test]
    fn a_table_has_to_be_one() {
        let text = "Idle -> q :: ARPQuerier(10.0.0.1, 2:0:0:0:0:1, TABLE n) -> n :: Null -> Discard; Idle -> [1] q";
        let reported = Plan::read("a", text, crate::ELEMENTS).unwrap_err().to_string();
        assert!(reported.contains("TABLE: `n` is no ARPTable"), "{reported}");
    }
}
