//! Sets of source prefixes, and what becomes of packets on them: what `SourceFilter` and the filters of the built-in
//! router share.
//!
//! All sets of an element are one lookup ([`PrefixSets`]), whose answer is a mask. What becomes of packets with a mask is
//! worked out once ([`Rules`]); a [`Judge`] is a worker's end, which carries it out and counts.
//!
//! Cost: for packets on a list two counts; the counts of a worker take 24 bytes a mask.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fingerpost_lpm::{MemoryMaker, Region, UpdateError};
use fingerpost_route::AnyPrefix;

use super::allowance::{Allowance, Budget, Rate};
use super::lookups::Lookups;
use crate::frame::counters::{Count, Instance, PerWorker};
use crate::frame::{BATCH, Batch};
use crate::graph::Exit;
use crate::language::open_policy::OpenPolicy;
use crate::prefix_sets::{List, MOST_SETS, Mask, PrefixSets, mask, read_file};
use crate::route_table::Family;

/// What becomes of packets whose source is in a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Whatever the actions of other sets.
    Pass,
    /// Unless a set lets them pass.
    Drop,
    /// Nothing but that.
    Count,
    /// Gets this color.
    Mark(u8),
    /// Lets pass so much a second.
    Limit(Rate),
}

impl Action {
    /// Kind of the action, without its numbers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Count => "count",
            Self::Mark(_) => "mark",
            Self::Limit(_) => "limit",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark(color) => write!(f, "mark {color}"),
            Self::Limit(rate) => write!(f, "limit {rate}"),
            _ => f.write_str(self.name()),
        }
    }
}

/// A set as it is configured.
pub(crate) struct Argued {
    pub(crate) name: Box<str>,
    pub(crate) action: Action,
    pub(crate) given: Vec<Given>,
}

/// Where prefixes of a set come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Given {
    Prefix(AnyPrefix),
    File(String),
}

/// The sets, and what they have counted: what the next configuration continues with.
pub(crate) struct SourceSets {
    pub(crate) sets: PrefixSets,
    given: Vec<Vec<Given>>,
    hits: PerWorker<Hits>,
    /// Counts of the XDP datapath, as [`HIT_WORDS`] has them.
    kernel_hits: OnceLock<Region>,
    /// What sets of other numbers had counted before.
    before: Mutex<Vec<Totals>>,
}

/// Words of 8 bytes that the XDP datapath counts in, by CPU and set: packets, bytes, dropped packets. There is room for
/// one set more than there can be, so that a CPU has a power of two.
const HIT_WORDS: usize = 4;

/// Counts of one worker, by mask.
#[derive(Default)]
pub(crate) struct Hits {
    masks: OnceLock<Box<[Hit]>>,
    /// Packets without a source that were dropped.
    others: Count,
}

#[derive(Default)]
struct Hit {
    packets: Count,
    bytes: Count,
    /// Those of them that were dropped.
    dropped: Count,
}

/// What a set has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Those of them that were dropped.
    pub(crate) dropped: u64,
}

impl Hits {
    fn masks(&self, sets: usize) -> &[Hit] {
        self.masks.get_or_init(|| (0..1_usize << sets).map(|_| Hit::default()).collect())
    }
}

impl SourceSets {
    /// These sets. One that `old` has of the same name, given by the same prefixes and files, is as it is there; counts
    /// continue by name.
    ///
    /// # Errors
    /// What is wrong with files, with the line, or that there is no memory.
    pub(crate) fn new(
        sets: &[Argued],
        old: Option<&Self>,
        policy: &OpenPolicy,
    ) -> Result<Self, Vec<String>> {
        let (mut made, mut given, mut before) = (Vec::new(), Vec::new(), Vec::new());
        let mut wrong = Vec::new();
        for set in sets {
            let known = old.and_then(|old| {
                old.sets.names().iter().position(|name| *name == set.name).map(|at| (old, at))
            });
            before.push(known.map_or(Totals::default(), |(old, at)| old.total(at)));
            let list = match known.filter(|(old, at)| old.given[*at] == set.given) {
                Some((old, at)) => Ok(old.sets.list(at)),
                None => gather(&set.given, policy),
            };
            match list {
                Ok(list) => made.push((set.name.clone(), list)),
                Err(words) => wrong.push(words),
            }
            given.push(set.given.clone());
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let sets = PrefixSets::new(made).map_err(|error| vec![error.to_string()])?;
        let (hits, kernel_hits) = (PerWorker::default(), OnceLock::new());
        Ok(Self { sets, given, hits, kernel_hits, before: Mutex::new(before) })
    }

    /// Takes the counts of others over by name as they are by now; nothing was counted here yet.
    pub(crate) fn go_on_with(&self, old: &Self) {
        for (name, before) in self.sets.names().iter().zip(self.before().iter_mut()) {
            let known = old.sets.names().iter().position(|known| known == name);
            *before = known.map_or(Totals::default(), |at| old.total(at));
        }
    }

    fn before(&self) -> MutexGuard<'_, Vec<Totals>> {
        // Whole whatever panicked beside it.
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether these are the same sets, given in the same way.
    pub(crate) fn is_of(&self, sets: &[Argued]) -> bool {
        let names = self.sets.names().iter().eq(sets.iter().map(|set| &set.name));
        names && self.given.iter().eq(sets.iter().map(|set| &set.given))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.given.len()
    }

    /// Counts of one more worker.
    pub(crate) fn hits(&self, instance: Instance) -> Arc<Hits> {
        self.hits.add(instance)
    }

    /// What a set has counted.
    pub(crate) fn total(&self, set: usize) -> Totals {
        let sum = |of: fn(&Hit) -> &Count| {
            self.hits.sum(|hits| {
                let masks = hits.masks(self.len()).iter().enumerate();
                masks.filter(|(mask, _)| mask & 1 << set != 0).map(|(_, hit)| of(hit).read()).sum()
            })
        };
        let before = self.before()[set];
        let [packets, bytes, dropped] = self.kernel_total(set);
        Totals {
            packets: before.packets.wrapping_add(sum(|hit| &hit.packets)).wrapping_add(packets),
            bytes: before.bytes.wrapping_add(sum(|hit| &hit.bytes)).wrapping_add(bytes),
            dropped: before.dropped.wrapping_add(sum(|hit| &hit.dropped)).wrapping_add(dropped),
        }
    }

    /// Packets, bytes and dropped packets that the XDP datapath counted on a set.
    fn kernel_total(&self, set: usize) -> [u64; 3] {
        let words = self.kernel_hits.get().map_or(&[][..], Region::u64s);
        let lines = words.chunks_exact(HIT_WORDS).skip(set).step_by(MOST_SETS + 1);
        // Relaxed: numbers of a program that may be running, read for people.
        lines.fold([0; 3], |sum, line| std::array::from_fn(|i| sum[i] + line[i].load(Relaxed)))
    }

    /// Makes the counts of the XDP datapath, for so many CPUs, unless they are there.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn share_hits(&self, memory: &MemoryMaker, cpus: usize) -> Result<(), UpdateError> {
        if self.kernel_hits.get().is_none() {
            let bytes = cpus * (MOST_SETS + 1) * HIT_WORDS * 8;
            let hits = memory.make().region("hits", bytes)?;
            // Of two that make them at once the first one's are taken.
            let _ = self.kernel_hits.set(hits);
        }
        Ok(())
    }

    /// The counts of the XDP datapath, if it has any.
    pub(crate) fn kernel_hits(&self) -> Option<&Region> {
        self.kernel_hits.get()
    }

    /// Packets dropped.
    pub(crate) fn drops(&self) -> u64 {
        self.hits.sum(|hits| {
            let masks = hits.masks(self.len()).iter().map(|hit| hit.dropped.read());
            masks.sum::<u64>() + hits.others.read()
        })
    }
}

/// All prefixes that are given.
fn gather(given: &[Given], policy: &OpenPolicy) -> Result<List, String> {
    let mut list = List::default();
    for given in given {
        match given {
            Given::Prefix(prefix) => list.push(*prefix),
            Given::File(name) => {
                let more = read_file(name, policy)?;
                list.v4.extend(more.v4);
                list.v6.extend(more.v6);
            }
        }
    }
    Ok(list)
}

/// What is done, by set and by mask.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) actions: Arc<[Action]>,
    verdicts: Arc<[Verdict]>,
    /// Allowance of each set that limits.
    limits: Arc<[Option<Allowance>]>,
}

impl Rules {
    /// Rules of the sets' actions; `open` lets pass what no set decides.
    pub(crate) fn new(sets: &[Argued], open: bool) -> Self {
        let actions: Arc<[Action]> = sets.iter().map(|set| set.action).collect();
        let verdicts = (0..1 << actions.len()).map(|mask| Verdict::of(mask, &actions, open));
        let limits = actions.iter().map(|action| action.allowance()).collect();
        Self { verdicts: verdicts.collect(), limits, actions }
    }

    /// What becomes of packets that these sets cover.
    pub(crate) fn verdict(&self, mask: Mask) -> Verdict {
        self.verdicts[usize::from(mask)]
    }

    /// Present action, where handlers changed it.
    pub(crate) fn action(&self, set: usize) -> Action {
        self.limit(set).map_or(self.actions[set], |limit| Action::Limit(limit.rate()))
    }

    /// Allowance of a set that limits.
    pub(in crate::element) fn limit(&self, set: usize) -> Option<&Allowance> {
        self.limits[set].as_ref()
    }
}

impl Action {
    fn allowance(&self) -> Option<Allowance> {
        match self {
            Self::Limit(rate) => Some(Allowance::of(*rate)),
            _ => None,
        }
    }
}

/// What becomes of packets with a mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) drop: bool,
    color: Option<u8>,
    /// The sets whose rate decides.
    pub(crate) limits: Mask,
}

impl Verdict {
    const PASS: Self = Self { drop: false, color: None, limits: 0 };

    fn of(mask: usize, actions: &[Action], open: bool) -> Self {
        let sets = actions.iter().enumerate().filter(|(set, _)| mask & 1 << set != 0);
        let sets: Vec<Action> = sets.map(|(_, action)| *action).collect();
        let bits = |set: usize| mask & 1 << set;
        let limits = (0..actions.len()).filter(|&set| matches!(actions[set], Action::Limit(_)));
        let limits = Mask::try_from(limits.map(bits).sum::<usize>()).expect("a bit a set");
        let (pass, drop) = (sets.contains(&Action::Pass), sets.contains(&Action::Drop));
        let limits = if pass || drop { 0 } else { limits };
        let drop = !pass && (drop || limits == 0 && !open);
        let color = sets.iter().find_map(|action| match action {
            Action::Mark(color) => Some(*color),
            _ => None,
        });
        Self { drop, color, limits }
    }
}

impl Verdict {
    /// Its code: one word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self { drop: true, .. } => "drop",
            Self { limits: 0, .. } => "pass",
            _ => "limit",
        }
    }
}

/// A worker's end.
pub(crate) struct Judge {
    hits: Arc<Hits>,
    sets: usize,
    verdicts: Arc<[Verdict]>,
    /// Budgets of sets that limit, by number.
    budgets: Box<[Option<Budget>]>,
    /// Sets that cover each packet, until their rates are charged: in order, whatever family they are of.
    limited: Box<[Mask; BATCH]>,
    /// Whether there are such.
    any: bool,
    /// Nothing is to be done for sources that no set has.
    pub(crate) idle: bool,
    exit: Exit,
}

impl Judge {
    /// Counts into `hits`; what is not to continue leaves by `exit`.
    pub(crate) fn new(hits: Arc<Hits>, rules: &Rules, exit: Exit) -> Self {
        let budgets = rules.limits.iter().map(|limit| limit.as_ref().map(Allowance::budget));
        Self {
            hits,
            sets: rules.actions.len(),
            verdicts: rules.verdicts.clone(),
            budgets: budgets.collect(),
            limited: Box::new([0; BATCH]),
            any: false,
            idle: rules.verdict(0) == Verdict::PASS,
            exit,
        }
    }

    /// Judges the packets of these lookups; `meant` gives the sets that a packet is to be judged by.
    #[inline]
    pub(crate) fn all<A: Family>(
        &mut self,
        lookups: &Lookups<A>,
        batch: &mut Batch,
        meant: impl Fn(&Batch, usize) -> Mask,
    ) {
        let Self { hits, sets, verdicts, limited, any, idle, exit, .. } = self;
        let (masks, idle) = (hits.masks(*sets), *idle);
        let answers = &lookups.answers[..lookups.len];
        let (mut seen, mut count) = ([0_u16; BATCH], 0);
        // Without a branch: who is on a list comes as he likes.
        for (answer, i) in answers.iter().zip(0..) {
            seen[count % BATCH] = i;
            count += usize::from(!(answer.is_none() && idle));
        }
        for &i in &seen[..count] {
            let i = usize::from(i);
            let place = lookups.place(i);
            let mask = mask(answers[i]) & meant(batch, place);
            let hit = &masks[usize::from(mask)];
            hit.packets.add(1);
            hit.bytes.add(batch.frame_len(place) as u64);
            let verdict = verdicts[usize::from(mask)];
            if let Some(color) = verdict.color {
                batch.meta_mut()[place].paint = color;
            }
            if verdict.limits != 0 {
                limited[place] = mask;
                *any = true;
            }
            if verdict.drop {
                hit.dropped.add(1);
                exit.take(batch, place);
            }
        }
    }

    /// Ends packets of rates that are used up; once, when a whole batch is judged.
    #[inline]
    pub(crate) fn limit(&mut self, batch: &mut Batch, now_ns: u64) {
        if std::mem::take(&mut self.any) {
            self.spend(batch, now_ns);
        }
    }

    fn spend(&mut self, batch: &mut Batch, now_ns: u64) {
        let masks = self.hits.masks(self.sets);
        self.budgets.iter_mut().flatten().for_each(|budget| budget.refresh(now_ns));
        for i in 0..batch.len() {
            let mask = usize::from(std::mem::take(&mut self.limited[i]));
            let limits = self.verdicts[mask].limits;
            if limits == 0 {
                continue;
            }
            let meant = |set: &usize| limits & 1_u16 << set != 0;
            let mut sets = (0..self.budgets.len()).filter(meant);
            // All are asked before any is charged.
            if sets.all(|set| self.budgets[set].as_ref().is_none_or(|b| b.has_room(now_ns))) {
                let bytes = batch.frame_len(i);
                for set in (0..self.budgets.len()).filter(meant) {
                    if let Some(budget) = &mut self.budgets[set] {
                        budget.charge(bytes, now_ns);
                    }
                }
            } else {
                masks[mask].dropped.add(1);
                self.exit.take(batch, i);
            }
        }
    }

    /// Ends a packet that has no source.
    pub(crate) fn end(&self, batch: &mut Batch, i: usize) {
        self.hits.others.add(1);
        self.exit.take(batch, i);
    }
}
