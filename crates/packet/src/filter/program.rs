//! Rules over the words of a packet, compiled into a graph of decisions: the first rule that holds gives
//! the answer.
//!
//! Source: the decision trees of Click's classifiers (Kohler, thesis, 2000, chapter 5). Differs: rules are
//! expanded test by test, and the result of a test is taken out of all that is still open, so that no
//! path evaluates a test twice; equal remainders share one node.
//! Shape:  a node is a test of one word under a mask, and the two nodes that follow; nodes point to earlier nodes or
//!         to answers, so every walk ends.
//! Cost:   a node is a load, unless the word is the last one's, two comparisons and a jump.
//! Limits: rules that expand into too much are laid out one behind the other instead: as many nodes as
//!         there are tests.

use std::collections::HashMap;
use std::hash::Hash;

/// A word, and which of its bits are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loaded {
    pub(super) word: u32,
    pub(super) there: u32,
}

/// Which word a test looks at.
pub(super) trait Load: Copy + Eq + Hash {}
impl<T: Copy + Eq + Hash> Load for T {}

/// Holds when all bits of the mask are there, and the word under the mask is in a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Test<L> {
    pub(super) load: L,
    pub(super) mask: u32,
    pub(super) low: u32,
    pub(super) high: u32,
}

impl<L: Load> Test<L> {
    /// The word under the mask is this value.
    pub(super) fn equal(load: L, mask: u32, value: u32) -> Self {
        Self { load, mask, low: value & mask, high: value & mask }
    }

    fn exact(&self) -> bool {
        self.low == self.high && self.low & !self.mask == 0
    }

    fn takes(&self, value: u32) -> bool {
        (self.low..=self.high).contains(&value)
    }

    #[inline]
    fn holds(&self, loaded: Loaded) -> bool {
        self.takes(loaded.word & self.mask) && self.mask & !loaded.there == 0
    }

    /// What is left of this test once another is known to hold, or not to.
    fn after(self, known: &Self, holds: bool) -> Expr<L> {
        let open = Expr::Test(self, true);
        if self.load != known.load {
            return open;
        }
        let inside = known.mask & !self.mask == 0;
        if !holds {
            // That the other does not hold says nothing where this one may hold without it.
            let narrower = inside && self.exact() && known.takes(self.low & known.mask);
            let within =
                self.mask == known.mask && known.low <= self.low && self.high <= known.high;
            return if narrower || within { Expr::Const(false) } else { open };
        }
        if known.exact() {
            let rest = self.mask & !known.mask;
            if rest == 0 {
                return Expr::Const(self.takes(known.low & self.mask));
            }
            if !self.exact() {
                return open;
            }
            let differs = (self.low ^ known.low) & self.mask & known.mask != 0;
            let left = Self::equal(self.load, rest, self.low);
            return if differs { Expr::Const(false) } else { Expr::Test(left, true) };
        }
        if self.mask == known.mask {
            if self.high < known.low || known.high < self.low {
                return Expr::Const(false);
            }
            if self.low <= known.low && known.high <= self.high {
                return Expr::Const(true);
            }
        }
        open
    }
}

/// What must hold: tests, or their contrary, and how they combine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Expr<L> {
    Const(bool),
    /// The test, and whether it must hold.
    Test(Test<L>, bool),
    All(Vec<Self>),
    Any(Vec<Self>),
}

impl<L: Load> Expr<L> {
    pub(super) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut left = Vec::new();
        for part in parts {
            match part {
                Self::Const(true) => {}
                Self::Const(false) => return Self::Const(false),
                Self::All(parts) => left.extend(parts),
                part => left.push(part),
            }
        }
        if left.len() == 1 { left.swap_remove(0) } else { Self::All(left).settled() }
    }

    pub(super) fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut left = Vec::new();
        for part in parts {
            match part {
                Self::Const(false) => {}
                Self::Const(true) => return Self::Const(true),
                Self::Any(parts) => left.extend(parts),
                part => left.push(part),
            }
        }
        if left.len() == 1 { left.swap_remove(0) } else { Self::Any(left).settled() }
    }

    /// The empty list: a conjunction that holds, a disjunction that does not.
    fn settled(self) -> Self {
        match self {
            Self::All(parts) if parts.is_empty() => Self::Const(true),
            Self::Any(parts) if parts.is_empty() => Self::Const(false),
            other => other,
        }
    }

    pub(super) fn not(self) -> Self {
        match self {
            Self::Const(value) => Self::Const(!value),
            Self::Test(test, must) => Self::Test(test, !must),
            Self::All(parts) => Self::Any(parts.into_iter().map(Self::not).collect()),
            Self::Any(parts) => Self::All(parts.into_iter().map(Self::not).collect()),
        }
    }

    /// What is left once a test is known.
    fn after(&self, known: &Test<L>, holds: bool) -> Self {
        match self {
            Self::Const(value) => Self::Const(*value),
            Self::Test(test, true) => test.after(known, holds),
            Self::Test(test, false) => test.after(known, holds).not(),
            Self::All(parts) => Self::all(parts.iter().map(|part| part.after(known, holds))),
            Self::Any(parts) => Self::any(parts.iter().map(|part| part.after(known, holds))),
        }
    }

    /// The first test that `wanted` takes.
    fn find(&self, wanted: &impl Fn(&Test<L>) -> bool) -> Option<Test<L>> {
        match self {
            Self::Const(_) => None,
            Self::Test(test, _) => Some(*test).filter(wanted),
            Self::All(parts) | Self::Any(parts) => parts.iter().find_map(|part| part.find(wanted)),
        }
    }

    /// Whether any test looks at a word that `wanted` takes.
    pub(super) fn any_load(&self, wanted: &impl Fn(L) -> bool) -> bool {
        self.find(&|test: &Test<L>| wanted(test.load)).is_some()
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Self::Const(_) | Self::Test(..) => 1,
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::size).sum(),
        }
    }
}

/// What must hold for an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Rule<L> {
    pub(super) expr: Expr<L>,
    pub(super) answer: u16,
}

/// Where the evaluation continues: a node's number, or one of these and an answer.
type Target = u32;
const ANSWER: Target = 1 << 31;
const NO_ANSWER: Target = Target::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Node<L> {
    test: Test<L>,
    yes: Target,
    no: Target,
}

/// The compiled rules.
#[derive(Clone, Debug)]
pub(super) struct Program<L> {
    nodes: Box<[Node<L>]>,
    start: Target,
}

/// Tests that an expansion may look at in all: some 50 ms.
const WORK: usize = 1 << 20;

/// Tests behind each other that an expansion may come to; each is a call within another.
const DEPTH: usize = 256;

/// How many rules ahead a test of the word at hand may come from. Without a bound, a packet that the
/// second rule takes would first be compared with the words of all later ones.
const AHEAD: usize = 16;

impl<L: Load> Program<L> {
    pub(super) fn new(rules: &[Rule<L>]) -> Self {
        Self::expanded(rules).unwrap_or_else(|| Self::chained(rules))
    }

    /// `None` when there is too much of it.
    fn expanded(rules: &[Rule<L>]) -> Option<Self> {
        let mut maker = Maker { work: WORK, ..Maker::default() };
        let start = maker.expand(open(rules.iter().cloned()), None, 0)?;
        Some(maker.program(start))
    }

    /// Rule after rule, each left at the first test that decides it.
    fn chained(rules: &[Rule<L>]) -> Self {
        let mut maker = Maker::default();
        let mut next = NO_ANSWER;
        for rule in rules.iter().rev() {
            next = maker.chain(&rule.expr, ANSWER | Target::from(rule.answer), next);
        }
        maker.program(next)
    }

    /// The answer of the first rule that holds.
    #[inline]
    pub(super) fn run(&self, load: impl Fn(L) -> Loaded) -> Option<u16> {
        let mut at = self.start;
        let mut last: Option<(L, Loaded)> = None;
        while at & ANSWER == 0 {
            let node = &self.nodes[at as usize];
            let loaded = match last {
                Some((of, loaded)) if of == node.test.load => loaded,
                _ => load(node.test.load),
            };
            last = Some((node.test.load, loaded));
            at = if node.test.holds(loaded) { node.yes } else { node.no };
        }
        u16::try_from(at & !ANSWER).ok()
    }
}

/// Rules that can still hold, up to the first that does.
fn open<L: Load>(rules: impl Iterator<Item = Rule<L>>) -> Vec<Rule<L>> {
    let mut open = Vec::new();
    for rule in rules.filter(|rule| rule.expr != Expr::Const(false)) {
        let last = rule.expr == Expr::Const(true);
        open.push(rule);
        if last {
            break;
        }
    }
    open
}

struct Maker<L> {
    nodes: Vec<Node<L>>,
    /// Equal nodes are one.
    known: HashMap<Node<L>, Target>,
    /// What was made of these rules, beginning with this test.
    made: HashMap<(Vec<Rule<L>>, Test<L>), Target>,
    work: usize,
}

impl<L> Default for Maker<L> {
    fn default() -> Self {
        Self { nodes: Vec::new(), known: HashMap::new(), made: HashMap::new(), work: 0 }
    }
}

impl<L: Load> Maker<L> {
    fn node(&mut self, test: Test<L>, yes: Target, no: Target) -> Target {
        if yes == no {
            return yes;
        }
        let node = Node { test, yes, no };
        *self.known.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            Target::try_from(self.nodes.len() - 1).expect("memory ends before 2^31 nodes")
        })
    }

    fn expand(&mut self, rules: Vec<Rule<L>>, last: Option<L>, depth: usize) -> Option<Target> {
        let Some(first) = rules.first() else { return Some(NO_ANSWER) };
        if first.expr == Expr::Const(true) {
            return Some(ANSWER | Target::from(first.answer));
        }
        let size = rules.iter().map(|rule| rule.expr.size()).sum();
        self.work = self.work.checked_sub(size).filter(|_| depth < DEPTH)?;
        // Tests of the word at hand first, so that it is loaded once.
        let near = |last| {
            let same = move |test: &Test<L>| test.load == last;
            rules.iter().take(AHEAD).find_map(|rule| rule.expr.find(&same))
        };
        let test = last.and_then(near).or_else(|| first.expr.find(&|_| true))?;
        let key = (rules, test);
        if let Some(&made) = self.made.get(&key) {
            return Some(made);
        }
        let rules = &key.0;
        let [yes, no] = [true, false].map(|holds| {
            let after =
                |rule: &Rule<L>| Rule { expr: rule.expr.after(&test, holds), answer: rule.answer };
            self.expand(open(rules.iter().map(after)), Some(test.load), depth + 1)
        });
        let made = self.node(test, yes?, no?);
        self.made.insert(key, made);
        Some(made)
    }

    fn chain(&mut self, expr: &Expr<L>, yes: Target, no: Target) -> Target {
        match expr {
            Expr::Const(true) => yes,
            Expr::Const(false) => no,
            Expr::Test(test, true) => self.node(*test, yes, no),
            Expr::Test(test, false) => self.node(*test, no, yes),
            Expr::All(parts) => parts.iter().rev().fold(yes, |yes, part| self.chain(part, yes, no)),
            Expr::Any(parts) => parts.iter().rev().fold(no, |no, part| self.chain(part, yes, no)),
        }
    }

    fn program(self, start: Target) -> Program<L> {
        Program { nodes: self.nodes.into(), start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    /// A few words of a few bits, so that tests meet.
    type Words = [Loaded; 3];

    fn value(expr: &Expr<usize>, words: &Words) -> bool {
        match expr {
            Expr::Const(value) => *value,
            Expr::Test(test, must) => {
                let Loaded { word, there } = words[test.load];
                let holds = test.mask & there == test.mask
                    && word & test.mask >= test.low
                    && word & test.mask <= test.high;
                holds == *must
            }
            Expr::All(parts) => parts.iter().all(|part| value(part, words)),
            Expr::Any(parts) => parts.iter().any(|part| value(part, words)),
        }
    }

    fn test() -> impl Strategy<Value = Test<usize>> {
        let mask = prop_oneof![Just(7_u32), 1..8_u32];
        (0..3_usize, mask, 0..8_u32, 0..8_u32, any::<bool>()).prop_map(
            |(load, mask, a, b, range)| match range {
                true => Test { load, mask, low: a.min(b), high: a.max(b) },
                false => Test::equal(load, mask, a),
            },
        )
    }

    fn expr() -> impl Strategy<Value = Expr<usize>> {
        let leaf = prop_oneof![
            1 => any::<bool>().prop_map(Expr::Const),
            20 => (test(), any::<bool>()).prop_map(|(test, must)| Expr::Test(test, must)),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let parts = prop::collection::vec(inner.clone(), 0..4);
            prop_oneof![
                parts.clone().prop_map(Expr::all),
                parts.prop_map(Expr::any),
                inner.prop_map(Expr::not),
            ]
        })
    }

    fn words() -> impl Strategy<Value = Words> {
        let there = prop_oneof![4 => Just(7_u32), 1 => 0..8_u32];
        prop::array::uniform3(
            (0..8_u32, there).prop_map(|(word, there)| Loaded { word: word & there, there }),
        )
    }

    proptest! {
        #[test]
        fn both_forms_say_what_the_rules_say(
            exprs in prop::collection::vec(expr(), 0..6),
            packets in prop::collection::vec(words(), 1..20),
        ) {
            let rule = |(answer, expr)| Rule { expr, answer };
            let rules: Vec<_> = (0..).zip(exprs).map(rule).collect();
            let programs =
                [Program::expanded(&rules).expect("few rules"), Program::chained(&rules)];
            for words in packets {
                let want = rules.iter().find(|rule| value(&rule.expr, &words)).map(|r| r.answer);
                for program in &programs {
                    prop_assert_eq!(program.run(|load| words[load]), want);
                }
                let loads = RefCell::new(Vec::new());
                programs[0].run(|load| {
                    loads.borrow_mut().push(load);
                    words[load]
                });
                let mut once = loads.borrow().clone();
                once.sort_unstable();
                once.dedup();
                prop_assert_eq!(once.len(), loads.borrow().len(), "each word is loaded once");
            }
        }

        #[test]
        fn a_contrary_is_one(expr in expr(), words in words()) {
            prop_assert_eq!(value(&expr.clone().not(), &words), !value(&expr, &words));
        }
    }

    #[test]
    fn what_would_grow_too_large_is_chained() {
        // Three words, each in one of many ranges that overlap: every order of them is another state.
        let one = |load: usize, at: u32| {
            let low = at * 37 % 1000;
            Expr::Test(Test { load, mask: u32::MAX, low, high: low + 500 }, true)
        };
        let rules: Vec<_> = (0..2000)
            .map(|n| {
                let at = u32::from(n);
                let parts = [one(0, at), one(1, at * 7), one(2, at * 11)];
                Rule { expr: Expr::all(parts), answer: n }
            })
            .collect();
        assert!(Program::expanded(&rules).is_none());
        let program = Program::new(&rules);
        assert!(program.nodes.len() <= 6000);
        let words = [400, 900, 123].map(|word| Loaded { word, there: u32::MAX });
        let want = rules.iter().find(|rule| value(&rule.expr, &words)).map(|rule| rule.answer);
        assert!(want.is_some());
        assert_eq!(program.run(|load| words[load]), want);
    }

    #[test]
    fn common_tests_are_shared() {
        let is = |load, value| Expr::Test(Test::equal(load, u32::MAX, value), true);
        let rule = |answer, parts: Vec<_>| Rule { expr: Expr::all(parts), answer };
        // Two types of one protocol, another protocol, the rest.
        let rules = [
            rule(0, vec![is(0, 0x806), is(1, 1)]),
            rule(1, vec![is(0, 0x806), is(1, 2)]),
            rule(2, vec![is(0, 0x800)]),
            rule(3, vec![]),
        ];
        assert_eq!(Program::new(&rules).nodes.len(), 4);
    }
}
