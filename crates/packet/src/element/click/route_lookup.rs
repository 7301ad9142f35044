//! Route tables in a graph: which output a packet takes, and by which gateway.
//!
//! Source: Click's IP route table elements, with the arguments and handlers that all of them have, and those that the
//! DXR elements added. Differs: IPv6 tables take and list routes in the same form; packets without a route are counted
//! and not reported on a console; where several routes of the arguments have one prefix there is one warning for all.
//!
//! Shape: one type for all classes, `RouteTable`; a class is a name and an algorithm of the registry. A packet's
//! destination is that of its header, or the gateway that an element before noted (Click's annotation).
//!
//! Cost: the algorithm's for a batch, and three short loops.

use std::sync::Arc;

use fingerpost_lpm::{Algorithm, LpmReader, NextHopId};
use fingerpost_route::source::words::nearest;

use crate::element::router::ether_input::AHEAD;
use crate::frame::{BATCH, Batch, DropReason, Hop};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError, Role};
use crate::route_table::{Family, Route, RouteTable};

/// How a class of tables looks up.
#[derive(Clone, Copy)]
enum By {
    /// The fittest algorithm, chosen again as the table grows.
    Fittest,
    /// The fittest algorithm, and routes are listed in the order in which they were added.
    FittestAsAdded,
    /// This algorithm.
    Named(&'static str),
    /// This algorithm, and routes are listed in the order in which they were added.
    NamedAsAdded(&'static str),
    /// The algorithm that the argument ALGORITHM names, or else the fittest.
    Argument,
}

/// Routes of the arguments with a prefix that was there before, reported one by one.
const TOLD_TWICE: usize = 5;

macro_rules! classes {
    ($($row:ident: $family:ty, $name:literal, $by:expr, $changes:literal, $summary:literal;)*) => {$(
        pub(crate) const $row: ElementClass = ElementClass {
            spec: ClassSpec::new($name, "1/-", "h/h", "x/x").role(Role::RouteTable),
            summary: $summary,
            configure: |setup| configure::<$family>(setup, $name, $by, $changes),
        };
    )*
    };
}

classes! {
    STATIC: u32, "StaticIPLookup", By::FittestAsAdded, false, "an IPv4 route table that does not change";
    LINEAR: u32, "LinearIPLookup", By::FittestAsAdded, true, "an IPv4 route table for few routes; any number will do";
    SORTED: u32, "SortedIPLookup", By::Fittest, true, "an IPv4 route table for few routes, as LinearIPLookup";
    RADIX: u32, "RadixIPLookup", By::NamedAsAdded("radix"), true, "an IPv4 route table: path-compressed trie";
    DIRECT: u32, "DirectIPLookup", By::Named("dir24_8"), true, "an IPv4 route table: DIR-24-8";
    RANGE: u32, "RangeIPLookup", By::Named("bsearch"), true, "an IPv4 route table: sorted ranges";
    DXR: u32, "DXRIPLookup", By::Named("dxr20"), true, "an IPv4 route table: DXR with 20 bits, D20R";
    BSD: u32, "BSDIPLookup", By::Named("radix_lockless"), true, "an IPv4 route table: BSD's radix tree";
    BSD6: u128, "BSDIP6Lookup", By::Named("radix_lockless"), true, "an IPv6 route table: BSD's radix tree";
    POPTRIE: u32, "PoptrieIPLookup", By::Named("poptrie"), true, "an IPv4 route table: Poptrie, where it is built in";
    ANY: u32, "IPLookup", By::Argument, true, "an IPv4 route table by any algorithm of the registry";
    ANY6: u128, "IP6Lookup", By::Argument, true, "an IPv6 route table by any algorithm of the registry";
}

fn configure<A: Family>(
    setup: &mut Setup<'_>,
    class: &'static str,
    by: By,
    changes: bool,
) -> Result<Made, ConfigError> {
    let table = Arc::new(read::<A>(setup, class, by)?);
    setup.show(A::any_table(Arc::clone(&table)));
    let read = |name, read: fn(&RouteTable<A>) -> String| {
        let table = Arc::clone(&table);
        Handler::read(name, move || read(&table))
    };
    let lookup = Arc::clone(&table);
    let lookup = Handler::read_with("lookup", move |text| lookup.read_lookup(text));
    let write = |name, write: fn(&RouteTable<A>, &str) -> Result<(), String>| {
        let table = Arc::clone(&table);
        Handler::write(name, move |text| write(&table, text))
    };
    let mut handlers = vec![
        read("table", RouteTable::read_table),
        lookup,
        read("stat", RouteTable::read_stat),
        read("bench_sel", RouteTable::read_bench_sel),
        write("bench_sel", RouteTable::write_bench_sel),
        read("bench", RouteTable::read_bench),
    ];
    if changes {
        handlers.extend([
            write("add", RouteTable::write_add),
            write("set", RouteTable::write_set),
            write("remove", RouteTable::write_remove),
            write("ctrl", RouteTable::write_ctrl),
            write("flush", |table, _| table.flush().map_err(|error| error.to_string())),
        ]);
    }
    let made = Made::new(move |_| RouteLookup {
        table: Arc::clone(&table),
        reader: table.reader(),
        addrs: Box::new([A::default(); BATCH]),
        numbers: Box::new([NextHopId::NONE; BATCH]),
    });
    Ok(handlers.into_iter().fold(made, Made::handler))
}

fn read<A: Family>(
    setup: &mut Setup<'_>,
    class: &'static str,
    by: By,
) -> Result<RouteTable<A>, ConfigError> {
    let rows = rows::<A>(setup, by);
    let mut routes = Vec::new();
    for arg in setup.args.rest() {
        let bytes = arg.bytes();
        let text = std::str::from_utf8(&bytes).map_err(|_| "no text".to_owned());
        let route = text.and_then(|text| Route::read(text.split_ascii_whitespace()));
        match route {
            Err(words) => {
                setup.args.refuse(&arg, &words);
            }
            Ok(Route { output, .. }) if u32::from(output) >= setup.outputs => {
                let words =
                    format!("output {output} is not connected: there are {}", setup.outputs);
                setup.args.refuse(&arg, &words);
            }
            Ok(route) => routes.push(route),
        }
    }
    setup.args.finish()?;
    let gateways = Arc::clone(setup.gateways);
    match RouteTable::new(class, rows?, setup.outputs, gateways, &routes) {
        Err((_, error)) => Err(setup.args.refuse_all(&error.to_string())),
        Ok((table, twice)) => {
            if matches!(by, By::FittestAsAdded | By::NamedAsAdded(_)) {
                table.list_as_added(&routes);
            }
            if !twice.is_empty() {
                let reported: Vec<String> = twice
                    .iter()
                    .take(TOLD_TWICE)
                    .map(|&at| routes[at].prefix.to_string())
                    .collect();
                let more = match twice.len().saturating_sub(TOLD_TWICE) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let words = "given more than once, the last one counts";
                setup.args.warn_all(&format!("{}{more}: {words}", reported.join(", ")));
            }
            Ok(table)
        }
    }
}

/// The algorithms to choose from.
fn rows<A: Family>(
    setup: &mut Setup<'_>,
    by: By,
) -> Result<Vec<&'static Algorithm<A>>, ConfigError> {
    let name = match by {
        By::Fittest | By::FittestAsAdded => None,
        By::Named(name) | By::NamedAsAdded(name) => Some(name.to_owned()),
        By::Argument => match setup.args.keyword_arg("ALGORITHM")? {
            None => None,
            Some(arg) => {
                let name: String = setup.args.read(&arg, "ALGORITHM")?;
                if let Err(unknown) = A::row(&name) {
                    let near = nearest(&name, A::rows().map(|row| row.name));
                    let near = near.map(|near| format!("; did you mean `{near}`?"));
                    let words =
                        format!("ALGORITHM: `{name}`: {unknown}{}", near.unwrap_or_default());
                    return Err(setup.args.refuse(&arg, &words));
                }
                Some(name)
            }
        },
    };
    let Some(name) = name else { return Ok(A::rows().collect()) };
    match A::row(&name) {
        Ok(row) => Ok(vec![row]),
        Err(unknown) => Err(setup.args.refuse_all(&format!("`{name}`: {unknown}"))),
    }
}

/// A worker's part of a table.
struct RouteLookup<A: Family> {
    table: Arc<RouteTable<A>>,
    reader: LpmReader<A>,
    addrs: Box<[A; BATCH]>,
    numbers: Box<[NextHopId; BATCH]>,
}

impl<A: Family> Element for RouteLookup<A> {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let len = batch.len();
        for i in 0..len {
            batch.prefetch(i + AHEAD);
            let meta = batch.meta()[i];
            // A frame too short to have a destination gets some answer: it is dropped where headers are checked.
            let noted = self.table.gateways().get(meta.hop.gateway()).and_then(A::from_ip);
            let addr = noted.or_else(|| A::dst(batch.bytes(i), usize::from(meta.network)));
            self.addrs[i] = addr.unwrap_or_default();
        }
        self.reader.lookup_batch(&self.addrs[..len], &mut self.numbers[..len]);
        for i in 0..len {
            let Some(path) = self.table.path(self.numbers[i]) else {
                batch.discard(i, DropReason::NoRoute);
                continue;
            };
            if !path.gateway.is_none() {
                batch.meta_mut()[i].hop = Hop::of_gateway(path.gateway);
            }
            batch.output(i, path.output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::testing::{Bench, Rig, World, batch, element, frame_v4, frame_v6};

    /// The outputs that packets to these destinations take; none where they are dropped.
    fn outputs(element: &mut dyn Element, dsts: &[&str]) -> Vec<Option<u16>> {
        let mut bench = Bench::new(&World::new());
        let frames = dsts.iter().map(|dst| match dst.contains(':') {
            true => frame_v6("2001:db8::9", dst, 64, 17, &[]),
            false => frame_v4("10.0.0.9", dst, 64, 17, &[]),
        });
        let frames: Vec<Vec<u8>> = frames.collect();
        let mut batch = batch(&bench.pool, 0, frames.iter().map(|frame| &frame[..]));
        batch.meta_mut().iter_mut().for_each(|meta| meta.network = 14);
        element.process(0, &mut batch, &mut bench.context());
        let output = |i| match batch.decision(i) {
            Decision::Output(output) => Some(output),
            Decision::Drop(reason) => {
                assert_eq!(reason, DropReason::NoRoute);
                None
            }
            Decision::Taken => panic!("no table keeps packets"),
        };
        (0..batch.len()).map(output).collect()
    }

    #[test]
    fn every_class_sends_packets_the_way_of_their_prefix() {
        for class in [&STATIC, &LINEAR, &RADIX, &DIRECT, &RANGE, &DXR, &BSD, &ANY] {
            let routes = "10/8 1, 10.1.0.0/16 192.0.2.1 2, 10.1.2.3/32 3, 0.0.0.0/1 - 0";
            let mut element = element(class, routes);
            let dsts = ["10.9.9.9", "10.1.9.9", "10.1.2.3", "11.0.0.1", "192.0.2.1"];
            let want = [Some(1), Some(2), Some(3), Some(0), None];
            assert_eq!(outputs(&mut *element, &dsts), want, "{}", class.spec.name);
        }
        for class in [&BSD6, &ANY6] {
            let routes = "2001:db8::/32 1, 2001:db8:1::/48 fe80::1 2, 2001:db8:1::7/128 :: 3";
            let mut element = element(class, routes);
            let dsts = ["2001:db8::1", "2001:db8:1::1", "2001:db8:1::7", "2001:db9::1"];
            let want = [Some(1), Some(2), Some(3), None];
            assert_eq!(outputs(&mut *element, &dsts), want, "{}", class.spec.name);
        }
    }

    #[test]
    fn every_algorithm_of_the_registry_can_be_named() {
        for row in fingerpost_lpm::v4() {
            let mut element = element(&ANY, &format!("10.0.0.0/8 1, ALGORITHM {}", row.name));
            assert_eq!(outputs(&mut *element, &["10.0.0.1", "11.0.0.1"]), [Some(1), None]);
        }
        for row in fingerpost_lpm::v6() {
            let mut element = element(&ANY6, &format!("ALGORITHM {}, 2001:db8::/32 1", row.name));
            assert_eq!(outputs(&mut *element, &["2001:db8::1", "::1"]), [Some(1), None]);
        }
    }

    #[test]
    fn a_gateway_is_noted_and_asked_for_by_the_next_table() {
        let gateways = Arc::<crate::route_table::gateways::Gateways>::default();
        let element = |routes: &[&str]| {
            let read = |text: &&str| Route::<u32>::read(text.split(' ')).unwrap();
            let routes: Vec<_> = routes.iter().map(read).collect();
            let rows = fingerpost_lpm::v4().collect();
            let made = RouteTable::new("T", rows, 8, Arc::clone(&gateways), &routes);
            let Ok((table, _)) = made else { panic!("these routes can be had") };
            RouteLookup {
                reader: table.reader(),
                table: Arc::new(table),
                addrs: Box::new([0; BATCH]),
                numbers: Box::new([NextHopId::NONE; BATCH]),
            }
        };
        let mut first = element(&["10.0.0.0/8 192.0.2.1 1", "11.0.0.0/8 2"]);
        let mut second = element(&["192.0.2.0/24 3", "11.0.0.0/8 4", "10.0.0.0/8 5"]);
        let mut bench = Bench::new(&World::new());
        let frames = ["10.0.0.1", "11.0.0.1"].map(|dst| frame_v4("9.9.9.9", dst, 64, 17, &[]));
        let mut batch = batch(&bench.pool, 0, frames.iter().map(|frame| &frame[..]));
        batch.meta_mut().iter_mut().for_each(|meta| meta.network = 14);
        first.process(0, &mut batch, &mut bench.context());
        let noted = |batch: &Batch| {
            [0, 1].map(|i| gateways.get(batch.meta()[i].hop.gateway()).map(|addr| addr.to_string()))
        };
        assert_eq!(noted(&batch), [Some("192.0.2.1".to_owned()), None]);
        batch.unlabel();
        second.process(0, &mut batch, &mut bench.context());
        assert_eq!([0, 1].map(|i| batch.decision(i)), [Decision::Output(3), Decision::Output(4)]);
        assert_eq!(noted(&batch), [Some("192.0.2.1".to_owned()), None], "it stays");
    }

    #[test]
    fn tables_are_listed_as_they_were_made() {
        let listed = |class: &str| {
            let text = format!(
                "Idle -> t :: {class}(1.2.3.4/32 0, 1.2.0.0/20 1, 0/0 0) => Discard, Discard"
            );
            let rig = Rig::new(&World::new(), &text);
            rig.write("t.remove", "1.2.0.0/20");
            rig.write("t.add", "9.0.0.0/8 1");
            rig.write("t.add", "8.0.0.0/8 1");
            let table = rig.read("t.table");
            let first = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
            table.lines().map(first).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(listed("LinearIPLookup"), "1.2.3.4/32 9.0.0.0/8 0.0.0.0/0 8.0.0.0/8");
        assert_eq!(listed("RadixIPLookup"), listed("LinearIPLookup"));
        assert_eq!(listed("SortedIPLookup"), "0.0.0.0/0 1.2.3.4/32 8.0.0.0/8 9.0.0.0/8");
    }
}
