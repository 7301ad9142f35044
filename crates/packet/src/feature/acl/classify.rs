//! Classifies keys by many boxes: the first of the rules whose boxes contain a key, in a few dependent reads.
//!
//! Source: decision trees with cuts of equal size (HiCuts, Gupta and McKeown, Hot Interconnects 1999) and splits between
//! rules (HyperSplit, Qi et al., INFOCOM 2009), where one tree does badly one for each group of rules that are specific in the
//! same addresses (EffiCuts, Vamanan et al., SIGCOMM 2010; CutSplit, Li et al., INFOCOM 2018). Differs: how many trees
//! there are is chosen by the reads that sample keys take; a cut begins at the first boundary
//! of a rule instead of at a power of two, so that cuts and splits are one kind of step; a leaf holds only the
//! comparisons that the path to it leaves open; what copies of rules a subtree may hold is its share of a budget.
//! Shape:  nodes [u32; 4 n]: the first child, what is subtracted from a word, which word and by how much it is
//!         shifted, and the number of the last child; a leaf is its own child, its second number is its first row
//!         rows [u32; 4 n], per leaf: for each of its rules the rule and how many comparisons follow; a comparison is
//!         word, mask, least value and how far above it values may lie; a row without a rule ends the leaf
//! Cost:   a read of a node a level, then the rows of one leaf, for each of one to six trees; 8 keys in lock-step.
//!         A tree whose first rule comes after the best one found is passed over. A change builds anew.
//! Limits: 2^24 rules; where rules overlap so much that the budget is used up, leaves become long
//! Wins:   thousands of rules, of whatever fields. Weak: rules that differ in bits that are no range (TCP flags)

use std::collections::HashMap;

use crate::filter::{Key, KeyBox, WORDS, word};

/// A node or a row: four words, so that none is divided by a cache line.
pub(super) type Row = [u32; 4];

/// No rule.
pub(crate) const NONE: u32 = u32::MAX;

/// Rules at most, so that a row has room for flags.
pub(crate) const MOST_RULES: usize = 1 << 24;

/// Set in a row of a rule whose condition has to be evaluated as well.
pub(super) const INEXACT: u32 = 1 << 16;

/// Rules that a leaf may hold without being divided. Measured with 1,000 rules of access lists: 4 takes 47 ns a packet,
/// 6 takes 55, 8 takes 61 and a sixth less memory.
const LEAF: usize = 4;

/// Children of a node at most.
const MOST_CHILDREN: usize = 1 << 12;

/// Copies of a rule that a tree may hold on average.
const COPIES: usize = 12;

/// An address that is specific: its first word leaves at most this much open (IPv4 prefixes of 16 bits and more).
const SPECIFIC: u32 = 0xffff;

/// Keys that are looked up in lock-step.
const LANES: usize = 8;

/// A box of a rule.
#[derive(Clone, Debug)]
pub(crate) struct RuleBox {
    /// The rule; lower is first.
    pub(crate) rule: u32,
    /// The keys that it may contain.
    pub(crate) keys: KeyBox,
    /// It contains all of them.
    pub(crate) exact: bool,
}

/// A tree for one group of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    /// Its first node.
    pub(crate) root: u32,
    /// The first of its rules.
    pub(crate) first: u32,
}

/// The compiled boxes: flat arrays, reached by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classifier {
    nodes: Vec<Row>,
    rows: Vec<Row>,
    trees: Vec<Tree>,
}

impl Classifier {
    /// Compiles boxes, for [`Classifier::find`] of the first rule.
    ///
    /// # Panics
    /// A rule's number is not below [`MOST_RULES`].
    pub(crate) fn for_first(boxes: Vec<RuleBox>) -> Self {
        Self::new(boxes, true)
    }

    /// Compiles boxes, for [`Classifier::each`] rule.
    ///
    /// # Panics
    /// A rule's number is not below [`MOST_RULES`].
    pub(crate) fn for_each(boxes: Vec<RuleBox>) -> Self {
        Self::new(boxes, false)
    }

    fn new(mut boxes: Vec<RuleBox>, first_only: bool) -> Self {
        boxes.sort_by_key(|one| one.rule);
        assert!(boxes.iter().all(|one| (one.rule as usize) < MOST_RULES), "limit of rules");
        // A few rules are one leaf, or nearly.
        let few = boxes.len() <= 2 * LEAF;
        let tried = if few { &PARTITIONS[..1] } else { &PARTITIONS[..] };
        let sample = sample(&boxes);
        let made = tried.iter().map(|partition| {
            let made = Self::partitioned(&boxes, first_only, partition);
            let cost = made.cost(&sample);
            (cost.average + cost.worst.saturating_sub(WORST) as f64, made)
        });
        let best = made.min_by(|a, b| a.0.total_cmp(&b.0));
        best.map(|(_, made)| made).unwrap_or_default()
    }

    fn partitioned(boxes: &[RuleBox], first_only: bool, partition: &[usize; 6]) -> Self {
        let mut groups: [Vec<u32>; 6] = Default::default();
        let mut before = None;
        for (number, of) in (0..).zip(boxes) {
            // For each rule that contains a key, the boxes of one are side by side.
            let same = before.filter(|&(rule, _)| !first_only && rule == of.rule);
            let group = same.map_or_else(|| partition[group(&of.keys)], |(_, group)| group);
            groups[group].push(number);
            before = Some((of.rule, group));
        }
        let (nodes, rows, leaves) = (Vec::new(), Vec::new(), HashMap::new());
        let mut builder = Builder { boxes, first_only, nodes, rows, leaves };
        let mut trees = Vec::new();
        for group in groups.into_iter().filter(|group| !group.is_empty()) {
            let first = boxes[group[0] as usize].rule;
            let root = builder.reserve(1);
            let copies = COPIES * group.len() + 64;
            builder.build(root, group, &mut Region::all(), copies);
            trees.push(Tree { root: index(root), first });
        }
        // Later trees are passed over when an earlier one has found a rule before all of theirs.
        trees.sort_by_key(|tree| tree.first);
        Self { nodes: builder.nodes, rows: builder.rows, trees }
    }

    /// What lookups of these keys cost.
    pub(crate) fn cost(&self, keys: &[Key]) -> Cost {
        let (mut all, mut worst) = (0, 0);
        for key in keys {
            let (mut best, mut reads) = (NONE, 0);
            for tree in &self.trees {
                if best < tree.first {
                    break;
                }
                let mut node = tree.root;
                let mut next = self.step(node, key);
                while next != node {
                    (node, next) = (next, self.step(next, key));
                    reads += 1;
                }
                let mut at = self.nodes[node as usize][1] as usize;
                while let Some((rule, next, _)) = self.rule(at, best) {
                    reads += 1;
                    if self.matches(at, next, key) {
                        best = rule;
                    }
                    at = next;
                }
            }
            all += reads;
            worst = worst.max(reads);
        }
        Cost { average: all as f64 / keys.len().max(1) as f64, worst }
    }

    /// The nodes, the rows of leaves, and the trees.
    pub(super) fn arrays(&self) -> (&[Row], &[Row], &[Tree]) {
        (&self.nodes, &self.rows, &self.trees)
    }

    /// The first rule that contains each key, or [`NONE`]. `holds` evaluates the condition of an inexact rule for the
    /// packet of a key.
    #[inline]
    pub(crate) fn find(
        &self,
        keys: &[Key],
        best: &mut [u32],
        mut holds: impl FnMut(usize, u32) -> bool,
    ) {
        best.fill(NONE);
        for tree in &self.trees {
            for (chunk, (keys, best)) in keys.chunks(LANES).zip(best.chunks_mut(LANES)).enumerate()
            {
                if best.iter().all(|&best| best < tree.first) {
                    continue;
                }
                let leaves = self.walk(tree.root, keys);
                for (lane, key) in keys.iter().enumerate() {
                    let mut at = leaves[lane];
                    while let Some((rule, next, flags)) = self.rule(at, best[lane]) {
                        if self.matches(at, next, key)
                            && (flags & INEXACT == 0 || holds(chunk * LANES + lane, rule))
                        {
                            best[lane] = rule;
                            break;
                        }
                        at = next;
                    }
                }
            }
        }
    }

    /// Visits every rule before `limit` that contains a key; one with several boxes possibly more than once.
    pub(crate) fn each(&self, key: &Key, limit: u32, mut visit: impl FnMut(u32, bool)) {
        for tree in self.trees.iter().filter(|tree| tree.first < limit) {
            let [mut at, ..] = self.walk(tree.root, std::slice::from_ref(key));
            while let Some((rule, next, flags)) = self.rule(at, limit) {
                if self.matches(at, next, key) {
                    visit(rule, flags & INEXACT == 0);
                }
                at = next;
            }
        }
    }

    /// The first row of the leaf of each of up to [`LANES`] keys.
    #[inline]
    fn walk(&self, root: u32, keys: &[Key]) -> [usize; LANES] {
        let mut at = [root; LANES];
        // A leaf leads to itself.
        loop {
            let mut moved = 0;
            for (at, key) in at.iter_mut().zip(keys) {
                let next = self.step(*at, key);
                moved |= next ^ *at;
                *at = next;
            }
            if moved == 0 {
                return at.map(|at| self.nodes[at as usize][1] as usize);
            }
        }
    }

    /// The child of a node that a key leads to.
    #[inline]
    fn step(&self, node: u32, key: &Key) -> u32 {
        let [base, from, how, last] = self.nodes[node as usize];
        let value = key[how as usize % WORDS].saturating_sub(from) >> (how >> 8);
        base + value.min(last)
    }

    /// The rule at a row, if it is before `limit`; the row of the next one, and its flags.
    #[inline]
    fn rule(&self, at: usize, limit: u32) -> Option<(u32, usize, u32)> {
        let [rule, how, ..] = self.rows[at];
        (rule < limit).then(|| (rule, at + 1 + (how & 0xff) as usize, how))
    }

    /// Whether all comparisons of the rule at a row hold.
    #[inline]
    fn matches(&self, at: usize, next: usize, key: &Key) -> bool {
        self.rows[at + 1..next].iter().all(|&[word, mask, low, span]| {
            (key[word as usize % WORDS] & mask).wrapping_sub(low) <= span
        })
    }
}

/// What groups of rules have a tree of their own, from one tree for all to one for each.
const PARTITIONS: [[usize; 6]; 4] =
    [[0; 6], [0, 0, 0, 1, 1, 1], [0, 0, 1, 2, 2, 2], [0, 1, 2, 3, 4, 5]];

/// Reads that a lookup may take before a partition is disfavored for it.
const WORST: usize = 48;

/// Reads of nodes and of rules that lookups take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// The average.
    pub(crate) average: f64,
    /// The most.
    pub(crate) worst: usize,
}

/// Keys at the corners of boxes, of some 4,000 boxes at most.
fn sample(boxes: &[RuleBox]) -> Vec<Key> {
    let step = boxes.len().div_ceil(4096).max(1);
    let corners = boxes.iter().step_by(step).flat_map(|one| {
        let KeyBox { low, high, mask, bits } = &one.keys;
        [low, high].map(|corner| std::array::from_fn(|w| corner[w] & !mask[w] | bits[w]))
    });
    corners.collect()
}

/// Rules that are specific in the same fields.
fn group(keys: &KeyBox) -> usize {
    let specific = |w: usize| keys.high[w] - keys.low[w] <= SPECIFIC;
    match (specific(word::SRC), specific(word::DST)) {
        (true, true) => 0,
        (true, false) => 1,
        (false, true) => 2,
        // Wide in both addresses: by ports.
        _ => {
            let port =
                |w: usize| keys.high[w] < word::NO_PORT && keys.high[w] - keys.low[w] < 0x4000;
            match (port(word::SRC_PORT), port(word::DST_PORT)) {
                (true, false) => 3,
                (_, true) => 4,
                _ => 5,
            }
        }
    }
}

pub(super) fn index(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than 2^32 rows")
}

/// The keys that reach a node.
#[derive(Clone)]
struct Region {
    low: Key,
    high: Key,
}

impl Region {
    fn all() -> Self {
        Self { low: [0; WORDS], high: [u32::MAX; WORDS] }
    }

    fn covered_in(&self, keys: &KeyBox, w: usize) -> bool {
        keys.low[w] <= self.low[w] && self.high[w] <= keys.high[w]
    }

    fn covered(&self, keys: &KeyBox) -> bool {
        (0..WORDS).all(|w| keys.mask[w] == 0 && self.covered_in(keys, w))
    }
}

/// How a node divides its region: child `n` has the values for which `value.saturating_sub(from) >> shift` is `n`.
#[derive(Clone, Copy, Debug)]
struct Cut {
    word: usize,
    from: u32,
    shift: u32,
    last: u32,
}

impl Cut {
    #[inline]
    fn child(&self, value: u32) -> usize {
        (value.saturating_sub(self.from) >> self.shift).min(self.last) as usize
    }

    /// The values of a child within a region.
    fn values(&self, child: u32, low: u32, high: u32) -> (u32, u32) {
        let start = |n: u32| u64::from(self.from) + (u64::from(n) << self.shift);
        let clamp = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        // The first child has what is below `from` as well, the last one all that is above its start.
        let first = if child == 0 { low } else { clamp(start(child)).max(low) };
        let last = if child == self.last { high } else { clamp(start(child + 1) - 1).min(high) };
        (first, last)
    }
}

struct Builder<'a> {
    boxes: &'a [RuleBox],
    /// Rules after one that takes all are left out.
    first_only: bool,
    nodes: Vec<Row>,
    rows: Vec<Row>,
    /// Equal leaves are one.
    leaves: HashMap<Vec<Row>, usize>,
}

impl Builder<'_> {
    fn reserve(&mut self, nodes: usize) -> usize {
        let at = self.nodes.len();
        self.nodes.resize(at + nodes, [0; 4]);
        at
    }

    /// Builds a node for these boxes; its subtree may hold `copies` more of them.
    fn build(&mut self, node: usize, mut boxes: Vec<u32>, region: &mut Region, copies: usize) {
        let whole = |&number: &u32| {
            let one = &self.boxes[number as usize];
            self.first_only && one.exact && region.covered(&one.keys)
        };
        if let Some(last) = boxes.iter().position(whole) {
            boxes.truncate(last + 1);
        }
        let cut = if boxes.len() <= LEAF { None } else { self.choose(&boxes, region, copies) };
        let Some((cut, placed)) = cut else {
            self.leaf(node, &boxes, region);
            return;
        };
        let children = cut.last as usize + 1;
        let base = self.reserve(children);
        let how = index(cut.word) | cut.shift << 8;
        self.nodes[node] = [index(base), cut.from, how, cut.last];
        let mut of: Vec<Vec<u32>> = vec![Vec::new(); children];
        for &number in &boxes {
            let keys = &self.boxes[number as usize].keys;
            let (low, high) = (keys.low[cut.word], keys.high[cut.word]);
            let (low, high) = (low.max(region.low[cut.word]), high.min(region.high[cut.word]));
            for child in &mut of[cut.child(low)..=cut.child(high)] {
                child.push(number);
            }
        }
        let left = copies - (placed - boxes.len()).min(copies);
        drop(boxes);
        let (low, high) = (region.low[cut.word], region.high[cut.word]);
        for (child, boxes) in (0..).zip(of) {
            let share = left * boxes.len() / placed.max(1);
            (region.low[cut.word], region.high[cut.word]) = cut.values(child, low, high);
            self.build(base + child as usize, boxes, region, share);
        }
        (region.low[cut.word], region.high[cut.word]) = (low, high);
    }

    fn leaf(&mut self, node: usize, boxes: &[u32], region: &Region) {
        let mut rows = Vec::new();
        for &number in boxes {
            let one = &self.boxes[number as usize];
            let at = rows.len();
            rows.push([one.rule, 0, 0, 0]);
            for w in 0..WORDS {
                let keys = &one.keys;
                let (low, high) = (keys.low[w], keys.high[w]);
                if !region.covered_in(keys, w) {
                    rows.push([index(w), u32::MAX, low, high - low]);
                }
                if keys.mask[w] != 0 {
                    rows.push([index(w), keys.mask[w], keys.bits[w], 0]);
                }
            }
            let flags = if one.exact { 0 } else { INEXACT };
            rows[at][1] = index(rows.len() - at - 1) | flags;
        }
        rows.push([NONE, 0, 0, 0]);
        let next = self.rows.len();
        let first = *self.leaves.entry(rows).or_insert_with_key(|rows| {
            self.rows.extend(rows);
            next
        });
        self.nodes[node] = [index(node), index(first), 0, 0];
    }

    /// The best cut of these boxes, and how many there are then; `None` when nothing is gained.
    fn choose(&self, boxes: &[u32], region: &Region, copies: usize) -> Option<(Cut, usize)> {
        let most = boxes.len() + copies;
        let mut best: Option<(f64, Cut, usize)> = None;
        let mut try_one = |cut: Cut, ranges: &[(u32, u32)]| {
            let (expected, placed) = expected(&cut, ranges);
            if placed <= most && best.is_none_or(|(known, ..)| expected < known) {
                best = Some((expected, cut, placed));
            }
        };
        for w in 0..WORDS {
            let (floor, ceiling) = (region.low[w], region.high[w]);
            let open = |&number: &u32| !region.covered_in(&self.boxes[number as usize].keys, w);
            if !boxes.iter().any(open) {
                continue;
            }
            let range = |&number: &u32| {
                let keys = &self.boxes[number as usize].keys;
                (keys.low[w].max(floor), keys.high[w].min(ceiling))
            };
            let ranges: Vec<(u32, u32)> = boxes.iter().map(range).collect();
            // The last values before a boundary.
            let mut ends: Vec<u32> = ranges
                .iter()
                .flat_map(|&(low, high)| {
                    [(low > floor).then(|| low - 1), (high < ceiling).then_some(high)]
                })
                .flatten()
                .collect();
            ends.sort_unstable();
            // Each boundary counts as often as it is one.
            let Some(&middle) = ends.get(ends.len() / 2) else { continue };
            try_one(Cut { word: w, from: middle, shift: 0, last: 1 }, &ranges);
            ends.dedup();
            let (&first, &last) = (ends.first().unwrap_or(&0), ends.last().unwrap_or(&0));
            let children = (2 * ends.len()).next_power_of_two().min(MOST_CHILDREN);
            if ends.len() > 2 {
                // The first child is what is not above `first`, the last one what is above `last`.
                let bits = u64::from(last - first).div_ceil(children as u64);
                let shift = bits.max(1).next_power_of_two().trailing_zeros();
                let from = (first.wrapping_add(1)).saturating_sub(1 << shift.min(31));
                let cut = Cut { word: w, from, shift: shift.min(31), last: 0 };
                let last = (last.saturating_sub(from) >> cut.shift).saturating_add(1);
                try_one(Cut { last: last.min(index(MOST_CHILDREN) + 1), ..cut }, &ranges);
            }
        }
        // A node costs about what the comparison of a rule does.
        let worth = boxes.len() as f64 * 0.85;
        best.filter(|(expected, ..)| *expected <= worth).map(|(_, cut, placed)| (cut, placed))
    }
}

/// How many boxes the child of a random box has, and how many all children have.
fn expected(cut: &Cut, ranges: &[(u32, u32)]) -> (f64, usize) {
    let children = cut.last as usize + 1;
    let mut steps = vec![0_i64; children + 1];
    let mut placed = 0;
    for &(low, high) in ranges {
        let (low, high) = (cut.child(low), cut.child(high));
        steps[low] += 1;
        steps[high + 1] -= 1;
        placed += high + 1 - low;
    }
    let (mut count, mut squares) = (0_i64, 0.0);
    for step in &steps[..children] {
        count += step;
        squares += (count * count) as f64;
    }
    (squares / placed.max(1) as f64, placed)
}
