//! Source filters of a running router: named lists, the action of each, and the ports that they are for.
//!
//! Source: "Surgical DDoS Filtering With Fast LPM" (Salopek, Zec, Mikuc, Vasic, IEEE Access 10, 2022). The order of
//! actions is documented at `SourceFilter`, the element of graphs; what no list decides passes.
//!
//! Lists change while packets flow, by any holder of this: a list of a million prefixes is exchanged in a second or so
//! of the caller's time, by one store. The name of a port changes as links come and go ([`SourceFilters::follow`]).
//!
//! Cost: as of the lists; 128 KiB for the ports.

use std::net::IpAddr;
use std::sync::Arc;

use fingerpost_lpm::{KernelReader, Lookup, Region};
use fingerpost_route::{AnyPrefix, Shared};

use super::Action;
use crate::element::support::source_sets::{Argued, Given, Hits, Rules, SourceSets};
use crate::feature::ports::PortWords;
use crate::feature::row::{Cell, FeatureArc, State};
use crate::frame::counters::Instance;
use crate::frame::wire::{ETHER_BYTES, Ether, Ip4, Ip6, ether};
use crate::language::open_policy::OpenPolicy;
use crate::prefix_sets::{Edit, List, Mask, SetsReader, read_file};

/// Filters of a router at most.
pub(super) const MOST_FILTERS: usize = crate::prefix_sets::MOST_SETS;

/// A filter as it is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// Its name.
    pub name: String,
    /// Action on packets from there.
    pub action: Action,
    /// A file of prefixes, one a line, plain or compressed.
    pub file: Option<String>,
    /// Prefixes besides.
    pub prefixes: Vec<AnyPrefix>,
    /// The interfaces that it is for; `None` for all.
    pub interfaces: Option<Vec<String>>,
    /// Whether it is also for packets to the router itself.
    pub local: bool,
}

/// The filters of a router. Clones are the same ones.
#[derive(Clone)]
pub struct SourceFilters {
    sets: Arc<SourceSets>,
    rules: Rules,
    /// Interfaces by filter; `None` for all.
    interfaces: Arc<[Option<Vec<String>>]>,
    /// Those that are also for packets to the router itself.
    local: Mask,
    ports: Arc<PortWords>,
}

impl Default for SourceFilters {
    fn default() -> Self {
        Self::new(Vec::new(), None).expect("nothing is read, and next to no memory taken")
    }
}

/// Report on a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Action on packets from there.
    pub action: Action,
    /// The interfaces that it is for; `None` for all.
    pub interfaces: Option<Vec<String>>,
    /// Its prefixes of IPv4.
    pub v4: usize,
    /// And of IPv6.
    pub v6: usize,
    /// Packets from there so far.
    pub packets: u64,
    /// Their bytes, Ethernet headers included.
    pub bytes: u64,
    /// Packets of these that were dropped, by this filter or another one.
    pub dropped: u64,
}

/// A filter whose list has an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Covering {
    /// Its name.
    pub name: String,
    /// Action on packets from there.
    pub action: Action,
    /// The longest of its prefixes that covers the address; `None` if it went just now.
    pub prefix: Option<AnyPrefix>,
    /// The interfaces that it is for; `None` for all.
    pub interfaces: Option<Vec<String>>,
}

impl SourceFilters {
    /// These filters. Their lists are read; one that `before` has of the same name, given in the same way, is taken from
    /// there as it is now, and counts continue by name. No port is followed yet.
    ///
    /// # Errors
    /// All that is wrong with files, by line, or that there is no memory.
    ///
    /// # Panics
    /// With more than [`MOST_FILTERS`].
    pub fn new(filters: Vec<Filter>, before: Option<&Self>) -> Result<Self, Vec<String>> {
        assert!(filters.len() <= MOST_FILTERS, "a mask has a bit a filter");
        let (mut argued, mut interfaces, mut local) = (Vec::new(), Vec::new(), 0);
        for (at, filter) in filters.into_iter().enumerate() {
            local |= Mask::from(filter.local) << at;
            let mut given: Vec<Given> = filter.prefixes.into_iter().map(Given::Prefix).collect();
            given.extend(filter.file.map(Given::File));
            argued.push(Argued { name: filter.name.into(), action: filter.action, given });
            interfaces.push(filter.interfaces);
        }
        let sets = match before {
            Some(before) if before.sets.is_of(&argued) => before.sets.clone(),
            before => {
                let before = before.map(|before| &*before.sets);
                Arc::new(SourceSets::new(&argued, before, &OpenPolicy::default())?)
            }
        };
        let all = interfaces.iter().enumerate().filter(|(_, named)| named.is_none());
        let everywhere = all.fold(0, |mask: Mask, (at, _)| mask | 1 << at);
        Ok(Self {
            sets,
            rules: Rules::new(&argued, true),
            interfaces: interfaces.into(),
            local,
            ports: Arc::new(PortWords::all(everywhere)),
        })
    }

    /// Continues the counts of others as they are by now; no worker has these filters yet.
    pub fn go_on_with(&self, before: &Self) {
        if !Arc::ptr_eq(&self.sets, &before.sets) {
            self.sets.go_on_with(&before.sets);
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.interfaces.is_empty()
    }

    /// Ports have these names from now on.
    pub fn follow<'a>(&self, ports: impl Iterator<Item = (u16, &'a str)>) {
        for (port, name) in ports {
            let lists = self.interfaces.iter().enumerate().filter(|(_, named)| {
                named.as_ref().is_none_or(|named| named.iter().any(|known| known == name))
            });
            let lists = lists.fold(0, |mask: Mask, (at, _)| mask | 1 << at);
            self.ports.set(port, lists);
        }
    }

    /// Reports, by filter.
    pub fn rows(&self) -> Vec<Row> {
        let row = |(set, name): (usize, &str)| {
            let ([v4, v6], total) = (self.sets.sets.count(set), self.sets.total(set));
            Row {
                name: name.to_owned(),
                action: self.rules.action(set),
                interfaces: self.interfaces[set].clone(),
                v4,
                v6,
                packets: total.packets,
                bytes: total.bytes,
                dropped: total.dropped,
            }
        };
        self.names().enumerate().map(row).collect()
    }

    /// The filters that an address is on, of those for a port or of all, without waiting for anybody.
    pub fn of(&self, addr: IpAddr, port: Option<u16>) -> Vec<(&str, Action)> {
        let mask = self.sets.sets.lookup(addr) & port.map_or(Mask::MAX, |p| self.ports.word(p));
        self.named(mask).map(|(set, name)| (name, self.rules.action(set))).collect()
    }

    /// What becomes of packets from an address by all filters, or by those for a port, as `pass`, `drop` or `limit`;
    /// and the filters that it is on.
    pub fn lookup(&self, addr: IpAddr, port: Option<u16>) -> (&'static str, Vec<Covering>) {
        let mask = self.sets.sets.lookup(addr) & port.map_or(Mask::MAX, |p| self.ports.word(p));
        let covering = |(set, name): (usize, &str)| Covering {
            name: name.to_owned(),
            action: self.rules.action(set),
            prefix: self.sets.sets.covering(set, addr),
            interfaces: self.interfaces[set].clone(),
        };
        (self.rules.verdict(mask).name(), self.named(mask).map(covering).collect())
    }

    fn named(&self, mask: Mask) -> impl Iterator<Item = (usize, &str)> {
        let names = self.sets.sets.names().iter().enumerate();
        names.filter(move |(set, _)| mask & 1 << set != 0).map(|(set, name)| (set, &**name))
    }

    /// The number of a filter.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.sets.sets.names().iter().position(|known| **known == *name)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sets.sets.names().iter().map(|name| &**name)
    }

    /// Adds prefixes to a filter's list and takes others away, all of them or none: how many came or went.
    ///
    /// # Errors
    /// No memory, in words.
    pub fn edit(
        &self,
        filter: usize,
        add: &[AnyPrefix],
        remove: &[AnyPrefix],
    ) -> Result<usize, String> {
        let edit = |add| move |prefix: &AnyPrefix| Edit { set: filter, prefix: *prefix, add };
        let gone = remove.iter().map(edit(false));
        let edits: Vec<Edit<AnyPrefix>> = gone.chain(add.iter().map(edit(true))).collect();
        self.sets.sets.apply(&edits).map_err(|error| error.to_string())
    }

    /// Exchanges a filter's list for that of a file, at once: how many prefixes came or went.
    ///
    /// # Errors
    /// What is wrong with the file, with its line, or that there is no memory. The list stays as it was.
    pub fn replace(&self, filter: usize, file: &str) -> Result<usize, String> {
        let list: List = read_file(file, &OpenPolicy::default())?;
        self.sets.sets.replace(filter, list).map_err(|error| error.to_string())
    }

    /// Prefixes of a filter, of IPv4 and of IPv6.
    pub fn count(&self, filter: usize) -> [usize; 2] {
        self.sets.sets.count(filter)
    }

    /// Puts lists and counts into memory that the XDP datapath reads too, for so many CPUs: `shared` names the
    /// algorithms that it reads. Once; a list of a million prefixes takes a fraction of a second.
    ///
    /// # Errors
    /// No memory, in words.
    pub fn share(&self, shared: &Shared, cpus: usize) -> Result<(), String> {
        let sets = &self.sets;
        let moved = sets.sets.share(&shared.memory, shared.reads);
        let counted = moved.and_then(|()| sets.share_hits(&shared.memory, cpus));
        counted.map_err(|error| error.to_string())
    }

    /// Brings readers in the kernel to the lists of each family, and to what replaces them.
    pub fn set_kernel_readers(
        &self,
        v4: Box<dyn KernelReader<Arc<dyn Lookup<u32>>>>,
        v6: Box<dyn KernelReader<Arc<dyn Lookup<u128>>>>,
    ) {
        self.sets.sets.set_kernel_readers(v4, v6);
    }

    /// What the XDP datapath counts in: by CPU and list 4 words, of which three are packets, bytes and dropped packets.
    /// `None` before [`SourceFilters::share`].
    pub fn kernel_hits(&self) -> Option<&Region> {
        self.sets.kernel_hits()
    }

    /// The action by mask of lists.
    pub fn verdicts(&self) -> impl Iterator<Item = &'static str> + use<'_> {
        (0..1_u16 << self.interfaces.len()).map(|mask| self.rules.verdict(mask).name())
    }

    /// A number for the lists and their counts, which later filters may continue, as long as there are any.
    pub fn lists_id(&self) -> usize {
        Arc::as_ptr(&self.sets).addr()
    }

    /// The lists that hold for packets of a port, a bit each.
    pub fn lists(&self, port: u16) -> u16 {
        self.ports.word(port)
    }

    /// Those among them that hold for packets to the router itself.
    pub fn local_lists(&self, port: u16) -> u16 {
        self.lists(port) & self.local
    }

    /// Whether some filter is also for packets to the router itself.
    pub fn any_local(&self) -> bool {
        self.local != 0
    }

    pub(crate) fn reader(&self, instance: Instance) -> (SetsReader, Arc<Hits>) {
        (self.sets.sets.reader(), self.sets.hits(instance))
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(crate) fn ports(&self) -> &Arc<PortWords> {
        &self.ports
    }
}

/// The source address of a frame.
fn source(frame: &[u8]) -> Option<IpAddr> {
    match Ether::of(frame)?.kind() {
        ether::TYPE_IP4 => Some(IpAddr::V4(Ip4::at(frame, ETHER_BYTES)?.src().into())),
        ether::TYPE_IP6 => Some(IpAddr::V6(Ip6::at(frame, ETHER_BYTES)?.src().into())),
        _ => None,
    }
}

impl State for SourceFilters {
    fn runs(&self, arc: FeatureArc) -> bool {
        arc == FeatureArc::Ingress
    }

    fn follow(&self, ports: &[(u16, &str)]) {
        Self::follow(self, ports.iter().copied());
    }

    fn go_on_with(&self, before: &dyn State) {
        let before: Option<&Self> = before.of();
        before.into_iter().for_each(|before| Self::go_on_with(self, before));
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let cells = |row: Row| {
            let count = |n: usize| Cell::Number(n as u64);
            vec![
                Cell::Text(row.name),
                Cell::Text(row.action.name().to_owned()),
                match row.action {
                    Action::Limit(rate) => Cell::Text(rate.to_string()),
                    _ => Cell::Nothing,
                },
                row.interfaces.map_or(Cell::Nothing, Cell::Words),
                count(row.v4),
                count(row.v6),
                Cell::Number(row.packets),
                Cell::Number(row.bytes),
                Cell::Number(row.dropped),
            ]
        };
        Self::rows(self).into_iter().map(cells).collect()
    }

    fn drops_local(&self, frame: &[u8], port: u16) -> Option<String> {
        let mask = self.sets.sets.lookup(source(frame)?) & self.local_lists(port);
        let drops = self.rules.verdict(mask).name() == Action::Drop.name();
        let (_, name) =
            self.named(mask).find(|(set, _)| self.rules.action(*set) == Action::Drop)?;
        drops.then(|| format!("source filter {name}"))
    }

    fn notes(&self, _: FeatureArc, frame: &[u8], port: u16) -> Vec<String> {
        let Some(addr) = source(frame) else { return Vec::new() };
        let on = self.of(addr, Some(port)).into_iter();
        on.map(|(name, action)| format!("{name} ({action})")).collect()
    }
}

impl std::fmt::Debug for SourceFilters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::FeatureStates;
    use crate::feature::source_filter::{prefix, rate};
    use crate::frame::DropReason;
    use crate::graph::Graph;
    use crate::router_graph::plan_with;
    use crate::testing::{Bench, World, batch, frame_v4, frame_v6, port_mac};
    use crate::{Pool, WorkerCounters};
    use fingerpost_route::ForwardingAction;

    fn filter(
        name: &str,
        action: Action,
        prefixes: &[&str],
        interfaces: Option<&[&str]>,
    ) -> Filter {
        Filter {
            name: name.to_owned(),
            action,
            file: None,
            prefixes: prefixes.iter().map(|text| prefix(text).unwrap()).collect(),
            interfaces: interfaces.map(|names| names.iter().map(ToString::to_string).collect()),
            local: false,
        }
    }

    fn made(filters: Vec<Filter>) -> SourceFilters {
        let made = SourceFilters::new(filters, None).unwrap();
        made.follow([(0, "wan"), (1, "lan"), (2, "dmz")].into_iter());
        made
    }

    /// The built-in router, with routes by port 1.
    struct Router {
        bench: Bench,
        plan: crate::Plan,
        graph: Graph,
    }

    fn states(filters: &SourceFilters) -> FeatureStates {
        FeatureStates::default().with("source-filter", Arc::new(filters.clone()))
    }

    impl Router {
        fn new(filters: &SourceFilters) -> Self {
            let mut world = World::new();
            world.neighbor(3, 0);
            world.neighbor(4, 1);
            world.action("10.0.0.0/8", ForwardingAction::Adjacency(3));
            world.action("192.0.2.0/24", ForwardingAction::Adjacency(4));
            world.action("2001:db8:5::/48", ForwardingAction::Adjacency(4));
            let bench = Bench::new(&world);
            let plan = plan_with(None, &states(filters)).unwrap();
            Self { graph: Graph::new(&plan, &bench.pool), bench, plan }
        }

        /// Other filters from now on, as a worker takes them over.
        fn replace(&mut self, filters: &SourceFilters) {
            let plan = plan_with(Some(&self.plan), &states(filters)).unwrap();
            let mut graph = Graph::after(&self.plan, &plan, &self.bench.pool);
            graph.take_over(&mut self.graph);
            (self.plan, self.graph) = (plan, graph);
        }

        /// How many packets with these sources pass that arrive on a port.
        fn pass(&mut self, port: u16, sources: &[&str]) -> Vec<bool> {
            let frame = |src: &&str| match src.contains(':') {
                true => frame_v6(src, "2001:db8:5::1", 64, 17, &[0; 30]),
                false => frame_v4(src, "192.0.2.1", 64, 17, &[0; 30]),
            };
            let one = |src| {
                let mut frames = [frame(src)];
                frames[0][..6].copy_from_slice(&port_mac(port.to_le_bytes()[0]).0);
                let frames = batch(&self.bench.pool, port, frames.iter().map(|f| &f[..]));
                self.graph.receive(port, frames, &mut self.bench.round());
                !std::mem::take(&mut self.bench.sent.frames).is_empty()
            };
            sources.iter().map(one).collect()
        }
    }

    const SOURCES: [&str; 4] = ["10.1.0.1", "10.2.0.1", "2001:db8:bad::1", "2001:db8:900d::1"];

    fn lists() -> Vec<Filter> {
        vec![
            filter("bad", Action::Drop, &["10.0.0.0/8", "2001:db8:bad::/48"], Some(&["wan"])),
            filter("good", Action::Pass, &["10.2.0.0/16"], None),
            filter("seen", Action::Count, &["::/0"], Some(&["wan", "lan"])),
        ]
    }

    #[test]
    fn a_port_has_the_filters_that_name_it_and_those_of_all() {
        let filters = made(lists());
        let mut router = Router::new(&filters);
        assert_eq!(router.pass(0, &SOURCES), [false, true, false, true]);
        for other in [1, 2] {
            assert_eq!(router.pass(other, &SOURCES), [true; 4], "{other}");
        }
        let rows = filters.rows();
        let counted: Vec<_> = rows.iter().map(|row| (&row.name[..], row.packets)).collect();
        assert_eq!(counted, [("bad", 3), ("good", 3), ("seen", 4)]);
        assert_eq!((rows[0].v4, rows[0].v6, rows[1].bytes), (1, 1, 3 * 64));
        assert_eq!(router.bench.counters.dropped[DropReason::SourceFilter as usize].read(), 2);
        // Another interface is called so now.
        filters.follow([(0, "lan"), (2, "wan")].into_iter());
        assert_eq!(router.pass(2, &SOURCES), [false, true, false, true]);
        assert_eq!(router.pass(0, &SOURCES), [true; 4]);
    }

    #[test]
    fn packets_of_several_ports_in_a_batch_are_told_apart() {
        let filters = made(lists());
        let mut router = Router::new(&filters);
        let frame = frame_v4("10.1.0.1", "192.0.2.1", 64, 17, &[0; 30]);
        let late = frame_v4("10.1.0.1", "192.0.2.1", 1, 17, &[0; 30]);
        let to_other = |frame: &[u8]| [&port_mac(1).0[..], &frame[6..]].concat();
        let others = [to_other(&frame), to_other(&late)];
        let frames = [&frame[..], &late, &others[0], &others[1]];
        let mut frames = batch(&router.bench.pool, 0, frames);
        frames.meta_mut().iter_mut().skip(2).for_each(|meta| meta.port = 1);
        router.graph.receive(0, frames, &mut router.bench.round());
        // Of the port without the list: the packet, and the error about the other.
        let sent: Vec<u16> = router.bench.sent.frames.iter().map(|frame| frame.0).collect();
        assert_eq!(sent.len(), 2, "{sent:?}");
        assert_eq!(router.bench.counters.dropped[DropReason::SourceFilter as usize].read(), 2);
        assert_eq!(router.bench.counters.dropped[DropReason::TtlExpired as usize].read(), 1);
    }

    #[test]
    fn lists_change_while_packets_flow() {
        let filters = made(lists());
        let mut router = Router::new(&filters);
        let bad = filters.find("bad").unwrap();
        let [one, two] = ["10.1.0.1", "2001:db8:900d::/48"].map(|text| prefix(text).unwrap());
        assert_eq!(filters.edit(bad, &[two, two], &[prefix("10.0.0.0/8").unwrap(), one]), Ok(2));
        assert_eq!(router.pass(0, &SOURCES), [true, true, false, false]);
        let path = std::env::temp_dir().join(format!("fingerpost-filters-{}", std::process::id()));
        let name = path.display().to_string();
        std::fs::write(&path, "10.1.0.0/16\nhello\n").unwrap();
        let told = filters.replace(bad, &name).unwrap_err();
        assert!(told.starts_with(&format!("{name}:2: `hello`")), "{told}");
        assert_eq!(router.pass(0, &SOURCES), [true, true, false, false]);
        std::fs::write(&path, "10.1.0.0/16\n").unwrap();
        assert_eq!(filters.replace(bad, &name), Ok(3));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(router.pass(0, &SOURCES), [false, true, true, true]);
        assert_eq!(filters.count(bad), [1, 0]);
        let addr = "10.1.0.1".parse().unwrap();
        let (does, on) = filters.lookup(addr, None);
        assert_eq!(
            (does, &on[0].name[..], on[0].prefix),
            ("drop", "bad", prefix("10.1.0.0/16").ok())
        );
        assert_eq!(filters.lookup(addr, Some(2)), ("pass", Vec::new()));
        assert_eq!(filters.of(addr, Some(0)), [("bad", Action::Drop)]);
    }

    #[test]
    fn later_filters_go_on_with_lists_and_counts() {
        let filters = made(lists());
        let mut router = Router::new(&filters);
        let bad = filters.find("bad").unwrap();
        filters.edit(bad, &[prefix("192.0.2.0/24").unwrap()], &[]).unwrap();
        router.pass(0, &SOURCES);
        // Without the others, and for other ports: the list stays as commands made it.
        let given =
            || vec![filter("bad", Action::Count, &["10.0.0.0/8", "2001:db8:bad::/48"], None)];
        let later = SourceFilters::new(given(), Some(&filters)).unwrap();
        router.replace(&later);
        assert_eq!(router.pass(2, &SOURCES), [true; 4]);
        let row = &later.rows()[0];
        assert_eq!((row.v4, row.v6, row.packets), (2, 1, 3 + 3));
        // With another list it is read anew.
        let other = filter("bad", Action::Drop, &["10.0.0.0/8"], None);
        let last = SourceFilters::new(vec![other], Some(&later)).unwrap();
        assert_eq!((last.count(0), last.rows()[0].packets), ([1, 0], 6));
        let missing = Filter { file: Some("/nowhere/x".into()), ..given().remove(0) };
        let told = SourceFilters::new(vec![missing], Some(&later)).unwrap_err();
        assert!(told.len() == 1 && told[0].starts_with("/nowhere/x: "), "{told:?}");
        // None at all.
        let plan = plan_with(Some(&router.plan), &FeatureStates::default()).unwrap();
        assert!(plan.find("source_filter").is_none());
    }

    #[test]
    fn both_families_use_up_one_rate_and_a_trial_counts_nothing() {
        let limit = Action::Limit(rate("100").unwrap());
        let filters = made(vec![filter("some", limit, &["0.0.0.0/0", "::/0"], Some(&["wan"]))]);
        let mut router = Router::new(&filters);
        router.bench.now_ns += 1_000_000_000;
        // 20 ms of it at once.
        assert_eq!(router.pass(0, &SOURCES), [true, true, false, false]);
        assert_eq!(router.pass(1, &SOURCES), [true; 4]);
        let row = &filters.rows()[0];
        assert_eq!((row.packets, row.dropped, row.action), (4, 2, limit));
        let pool = Pool::new(64, 2048);
        let mut trial = Graph::dry_run(&router.plan, &pool);
        let counters = WorkerCounters::new(0, 1);
        let frames = [frame_v4("10.1.0.1", "192.0.2.1", 64, 17, &[])];
        let frames = batch(&pool, 0, frames.iter().map(|f| &f[..]));
        let mut round = router.bench.round();
        round.counters = &counters;
        trial.receive(0, frames, &mut round);
        assert_eq!(filters.rows()[0].packets, 4);
        assert_eq!(
            rate("fast").unwrap_err(),
            "`fast` is no rate: `1000` packets, `1Mbps` (bits), `125kBps` (bytes)"
        );
    }
}
