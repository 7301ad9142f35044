//! Access lists of a running router: the compiled rules of each, the ports that they are for, and what they counted.
//!
//! Lists are exchanged as a whole, between two batches of a worker. A list with the same name and rules as before is the
//! same one; else each rule that was in it keeps its counts.
//!
//! Cost: 256 KiB for the ports; for each worker 16 bytes a rule.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fingerpost_route::MemoryMaker;

use super::kernel::{KernelHits, KernelLists};
use super::rules::{Rule, Rules, Verdict};
use super::settings::Acl;
use crate::feature::ports::PortWords;
use crate::feature::row::{Cell, FeatureArc, State};
use crate::frame::Meta;
use crate::frame::counters::{Count, Instance, PerWorker};
use crate::frame::wire::ETHER_BYTES;

/// Access lists of a router at most: a port has the number of one in a word.
pub(super) const MOST_LISTS: usize = 1_000;

/// Whether packets arrive or leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// They arrive.
    In,
    /// They leave.
    Out,
}

impl Direction {
    /// Words of the configuration.
    pub(in crate::feature) const WORDS: [(&str, Self); 2] = [("in", Self::In), ("out", Self::Out)];

    /// The direction of packets on an arc.
    pub(in crate::feature) fn on(arc: FeatureArc) -> Option<Self> {
        match arc {
            FeatureArc::Ingress => Some(Self::In),
            FeatureArc::Egress => Some(Self::Out),
            FeatureArc::Hairpin => None,
        }
    }

    /// The number of the port that a packet arrives on, or leaves by.
    #[inline]
    pub(in crate::feature) fn port(self, meta: &Meta) -> u16 {
        match self {
            Self::In => meta.port,
            Self::Out => meta.note.egress_port(),
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::In { "in" } else { "out" })
    }
}

/// Rules, and what they counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) rules: Rules,
    hits: PerWorker<Hits>,
    before: Mutex<Before>,
}

/// What was counted elsewhere than by workers.
#[derive(Debug)]
struct Before {
    /// Counts that each rule starts from; the last is for packets that no rule decides.
    totals: Vec<Total>,
    /// Counts of the XDP datapath: of programs that run, and until the next are made of those before.
    kernel: Vec<KernelHits>,
}

/// Counts of one worker, one a rule. The last is for packets that no rule decides.
#[derive(Debug, Default)]
pub(super) struct Hits(OnceLock<Box<[Hit]>>);

#[derive(Debug, Default)]
pub(super) struct Hit {
    packets: Count,
    bytes: Count,
}

impl Hit {
    /// Counts a packet.
    #[inline]
    pub(super) fn add(&self, bytes: u64) {
        self.packets.add(1);
        self.bytes.add(bytes);
    }
}

impl Hits {
    pub(super) fn of(&self, rules: &Rules) -> &[Hit] {
        self.0.get_or_init(|| (0..=rules.rules().len()).map(|_| Hit::default()).collect())
    }
}

/// Packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Total {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Total {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }
}

impl Counted {
    fn new(rules: Vec<Rule>, before: Option<&Self>) -> Self {
        let totals = vec![Total::default(); rules.len() + 1];
        let before_all = Before { totals, kernel: Vec::new() }.into();
        let made =
            Self { rules: Rules::new(rules), hits: PerWorker::default(), before: before_all };
        if let Some(before) = before {
            made.go_on_with(before);
        }
        made
    }

    /// Each rule continues the counts of the rule with its text; of several, in order.
    fn go_on_with(&self, before: &Self) {
        let mut known: HashMap<&str, Vec<Total>> = HashMap::new();
        let totals = before.totals();
        for (rule, total) in before.rules.rules().iter().zip(&totals).rev() {
            known.entry(&rule.text).or_default().push(*total);
        }
        let carried = &mut self.before().totals;
        for (rule, carried) in self.rules.rules().iter().zip(carried.iter_mut()) {
            *carried = known.get_mut(&*rule.text).and_then(Vec::pop).unwrap_or_default();
        }
        if let (Some(carried), Some(total)) = (carried.last_mut(), totals.last()) {
            *carried = *total;
        }
    }

    fn before(&self) -> MutexGuard<'_, Before> {
        // Whole whatever panicked beside it.
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn totals(&self) -> Vec<Total> {
        let before = self.before();
        let mut totals = before.totals.clone();
        before.kernel.iter().for_each(|hits| hits.add_to(&mut totals));
        drop(before);
        self.hits.each(|hits| {
            for (total, hit) in totals.iter_mut().zip(hits.of(&self.rules)) {
                *total = total.plus(Total { packets: hit.packets.read(), bytes: hit.bytes.read() });
            }
        });
        totals
    }

    /// Takes counts of the XDP datapath in.
    fn add_kernel(&self, hits: KernelHits) {
        let Before { totals, kernel } = &mut *self.before();
        for over in kernel.extract_if(.., |hits| hits.is_over()) {
            over.add_to(totals);
        }
        kernel.push(hits);
    }

    /// Counts of one more worker.
    pub(super) fn hits(&self, instance: Instance) -> Arc<Hits> {
        self.hits.add(instance)
    }
}

/// A list that runs.
#[derive(Debug)]
struct List {
    acl: Acl,
    counted: Arc<Counted>,
}

impl List {
    /// A rule of it in words, for traces.
    fn note(&self, rule: u32) -> String {
        let name = &self.acl.name;
        match self.counted.rules.rules().get(rule as usize) {
            Some(found) => format!("ACL {name}, rule {}: {}", rule + 1, found.text),
            None => format!("ACL {name}: no rule decides, so the packet is denied"),
        }
    }
}

/// The access lists of a router.
pub struct AccessLists {
    lists: Vec<List>,
    /// For each port the number of its list and one more, or 0: of packets that arrive, and of those that leave.
    ports: [Arc<PortWords>; 2],
    /// What the XDP datapath reads and counts.
    kernel: OnceLock<KernelLists>,
}

impl AccessLists {
    /// Compiles lists. One that is the same as in `before` is taken over from there; counts continue by the texts of rules.
    /// No port is followed yet but by lists for all.
    pub(super) fn new(acls: Vec<Acl>, before: Option<&Self>) -> Self {
        let mut lists = Vec::with_capacity(acls.len());
        for acl in acls {
            let known = before.and_then(|before| before.find(&acl.name));
            let counted = match known {
                Some(known) if known.acl.rules == acl.rules => known.counted.clone(),
                known => {
                    let before = known.map(|known| &*known.counted);
                    Arc::new(Counted::new(acl.rules.clone(), before))
                }
            };
            lists.push(List { acl, counted });
        }
        let ports = [Direction::In, Direction::Out].map(|direction| {
            let all = |list: &List| list.acl.interfaces.is_none();
            Arc::new(PortWords::all(word_of(&lists, direction, all)))
        });
        Self { lists, ports, kernel: OnceLock::new() }
    }

    /// Puts the ingress lists and their counts into memory that the XDP datapath reads and writes too, for so many CPUs,
    /// unless they are there.
    ///
    /// # Errors
    /// No memory, in words.
    pub fn share(&self, memory: &MemoryMaker, cpus: usize) -> Result<(), String> {
        if self.kernel.get().is_some() {
            return Ok(());
        }
        let ingress = |list: &List| list.acl.direction == Direction::In;
        let rules = self.lists.iter().map(|list| ingress(list).then_some(&list.counted.rules));
        let made = KernelLists::new(&rules.collect::<Vec<_>>(), memory, cpus);
        let made = made.map_err(|error| error.to_string())?;
        let mut first = 0;
        for List { counted, .. } in self.lists.iter().filter(|list| ingress(list)) {
            counted.add_kernel(made.hits(first));
            first += counted.rules.rules().len() + 1;
        }
        // Of two that make them at once the first one's are taken.
        let _ = self.kernel.set(made);
        Ok(())
    }

    /// What the XDP datapath reads and counts; `None` before [`AccessLists::share`].
    pub fn kernel(&self) -> Option<&KernelLists> {
        self.kernel.get()
    }

    /// The number of the list for packets that arrive on a port, and one more; 0 where there is none.
    pub fn ingress(&self, port: u16) -> u16 {
        self.ports(Direction::In).word(port)
    }

    /// The lists, also for packets to the router itself, for routers that are put together by hand.
    #[must_use]
    pub fn also_local(mut self) -> Self {
        self.lists.iter_mut().for_each(|list| list.acl.local = true);
        self
    }

    /// The number for packets to the router itself: 0 where the list is not for these.
    pub fn local(&self, port: u16) -> u16 {
        let word = self.ingress(port);
        if self.list(word).is_some_and(|list| list.acl.local) { word } else { 0 }
    }

    /// Whether some list is also for packets to the router itself.
    pub fn any_local(&self) -> bool {
        self.lists.iter().any(|list| list.acl.local)
    }

    /// The list of a port's word.
    fn list(&self, word: u16) -> Option<&List> {
        self.lists.get(usize::from(word).checked_sub(1)?)
    }

    fn find(&self, name: &str) -> Option<&List> {
        self.lists.iter().find(|list| list.acl.name == name)
    }

    /// The lists, by number.
    pub(super) fn counted(&self) -> Vec<Arc<Counted>> {
        self.lists.iter().map(|list| list.counted.clone()).collect()
    }

    /// The words of ports of a direction.
    pub(super) fn ports(&self, direction: Direction) -> &Arc<PortWords> {
        &self.ports[direction as usize]
    }
}

/// The number of the first list of a direction that is meant, and one more; 0 where none is.
fn word_of(lists: &[List], direction: Direction, meant: impl Fn(&List) -> bool) -> u16 {
    let found = lists.iter().position(|list| list.acl.direction == direction && meant(list));
    found.map_or(0, |number| u16::try_from(number + 1).expect("lists are bounded"))
}

impl State for AccessLists {
    fn runs(&self, arc: FeatureArc) -> bool {
        self.lists.iter().any(|list| Some(list.acl.direction) == Direction::on(arc))
    }

    fn follow(&self, ports: &[(u16, &str)]) {
        for direction in [Direction::In, Direction::Out] {
            for (port, name) in ports {
                let word = word_of(&self.lists, direction, |list| list.acl.is_for(name));
                self.ports(direction).set(*port, word);
            }
        }
    }

    fn go_on_with(&self, before: &dyn State) {
        let Some(before) = before.of::<Self>() else { return };
        for list in &self.lists {
            if let Some(known) = before.find(&list.acl.name)
                && !Arc::ptr_eq(&known.counted, &list.counted)
            {
                list.counted.go_on_with(&known.counted);
            }
        }
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let mut rows = Vec::new();
        let mut counters: BTreeMap<&str, Total> = BTreeMap::new();
        for List { acl, counted } in &self.lists {
            let totals = counted.totals();
            let interfaces = acl.interfaces.clone().map_or(Cell::Nothing, Cell::Words);
            let texts = counted.rules.rules().iter().map(|rule| &*rule.text);
            let numbers = (1..=texts.len() as u64).map(Cell::Number).chain([Cell::Nothing]);
            let texts = texts.chain(["no rule: deny"]);
            for ((number, text), total) in numbers.zip(texts).zip(&totals) {
                rows.push(vec![
                    Cell::Text(acl.name.clone()),
                    Cell::Text(acl.direction.to_string()),
                    interfaces.clone(),
                    number,
                    Cell::Text(text.to_owned()),
                    Cell::Number(total.packets),
                    Cell::Number(total.bytes),
                ]);
            }
            for (rule, total) in counted.rules.rules().iter().zip(&totals) {
                if let Verdict::Log(counter) = &rule.verdict {
                    let sum = counters.entry(counter).or_default();
                    *sum = sum.plus(*total);
                }
            }
        }
        let counter = |(name, total): (&str, Total)| {
            vec![
                Cell::Nothing,
                Cell::Nothing,
                Cell::Nothing,
                Cell::Nothing,
                Cell::Text(format!("counter {name}")),
                Cell::Number(total.packets),
                Cell::Number(total.bytes),
            ]
        };
        rows.extend(counters.into_iter().map(counter));
        rows
    }

    fn drops_local(&self, frame: &[u8], port: u16) -> Option<String> {
        let list = self.list(self.local(port))?;
        let rule = *list.counted.rules.all_of(frame.get(ETHER_BYTES..)?).last()?;
        (!list.counted.rules.permits(rule)).then(|| list.note(rule))
    }

    fn notes(&self, arc: FeatureArc, frame: &[u8], port: u16) -> Vec<String> {
        let Some(direction) = Direction::on(arc) else { return Vec::new() };
        let list = self.list(self.ports(direction).word(port));
        let (Some(list), Some(packet)) = (list, frame.get(ETHER_BYTES..)) else {
            return Vec::new();
        };
        list.counted.rules.all_of(packet).into_iter().map(|rule| list.note(rule)).collect()
    }
}

impl fmt::Debug for AccessLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lists.iter().map(|list| &list.acl.name)).finish()
    }
}
