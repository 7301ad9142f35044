//! Rules of an access list, as text and compiled: `deny tcp dst port 22`, `permit all`.
//!
//! ```text
//! rule    = verdict condition
//! verdict = "permit" | "deny"        decides: no later rule is looked at
//!         | "count"                  counts the packet, and leaves the decision to later rules
//!         | "log" COUNTER            the same, into a counter that several rules may share
//! ```
//!
//! The condition is in the language of [`Condition`]. The first rule that decides and takes the packet decides; a packet
//! that no rule decides is denied.
//!
//! Shape: for each family a [`Classifier`] of the rules that decide and one of those that count; of a rule whose
//!        condition is more than boxes the condition itself ([`Filter`]).
//! Cost:  that of the classifier; conditions are evaluated only where the part that boxes express holds.

use std::fmt;

use super::classify::{Classifier, MOST_RULES, NONE, RuleBox};
use crate::filter::{Condition, Family, Filter, FilterError, Key};

/// What a rule does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// The packet passes.
    Permit,
    /// The packet is dropped.
    Deny,
    /// The packet is counted; later rules decide.
    Count,
    /// The packet is counted into a counter with a name; later rules decide.
    Log(Box<str>),
}

impl Verdict {
    /// Whether it ends the search.
    pub fn decides(&self) -> bool {
        !matches!(self, Self::Count | Self::Log(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permit => f.write_str("permit"),
            Self::Deny => f.write_str("deny"),
            Self::Count => f.write_str("count"),
            Self::Log(counter) => write!(f, "log {counter}"),
        }
    }
}

/// A rule, read.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What it does.
    pub verdict: Verdict,
    /// Which packets it takes.
    pub condition: Condition,
    /// Its text, with single spaces.
    pub text: Box<str>,
}

/// Rules are the same when their texts are.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Rule {}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// Where it is wrong, and what was expected.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let word = |at: usize| {
            let rest = &text[at..];
            let start = at + rest.len() - rest.trim_ascii_start().len();
            let len = text[start..].find(|c: char| c.is_ascii_whitespace());
            (start, start + len.unwrap_or(text.len() - start))
        };
        let (start, end) = word(0);
        let named = || {
            let (from, to) = word(end);
            let name = &text[from..to];
            if is_name(name) {
                Ok((Box::<str>::from(name), to))
            } else {
                let what = "expected a name: letters, digits, `_`, `-` and `.`";
                Err(FilterError { at: from, message: what.to_owned() })
            }
        };
        let (verdict, at) = match &text[start..end] {
            "permit" => (Verdict::Permit, end),
            "deny" => (Verdict::Deny, end),
            "count" => (Verdict::Count, end),
            "log" => named().map(|(name, at)| (Verdict::Log(name), at))?,
            _ => {
                let what = "expected `permit`, `deny`, `count` or `log`";
                return Err(FilterError { at: start, message: what.to_owned() });
            }
        };
        let shifted = |error: FilterError| FilterError { at: at + error.at, ..error };
        let condition = Condition::parse(&text[at..]).map_err(shifted)?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        Ok(Self { verdict, condition, text: words.join(" ").into() })
    }
}

/// Whether something may be called so.
pub(super) fn is_name(name: &str) -> bool {
    let of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !name.is_empty() && name.bytes().all(of_names)
}

/// Rules in order, compiled.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    /// Classifiers of IPv4 and of IPv6 for rules that decide.
    deciding: [Classifier; 2],
    /// The two for rules that count.
    counting: [Classifier; 2],
    /// Conditions of rules that are more than boxes.
    conditions: Vec<Option<Filter>>,
    /// What becomes of a packet without a whole IP header.
    without_header: Vec<u32>,
}

/// Packets to be decided together, of one family.
pub(crate) struct Classified<'a> {
    /// Their keys.
    pub(crate) keys: &'a [Key],
    /// The rule that decides each: the number of rules, where none does.
    pub(crate) decided: &'a mut [u32],
}

impl Rules {
    /// Compiles rules.
    ///
    /// # Panics
    /// There are [`MOST_RULES`] or more.
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        assert!(rules.len() < MOST_RULES, "limit of rules");
        let mut boxes: [[Vec<RuleBox>; 2]; 2] = Default::default();
        let mut conditions = Vec::with_capacity(rules.len());
        for (number, rule) in (0..).zip(&rules) {
            let mut all_exact = true;
            for (of, family) in boxes.iter_mut().zip([Family::V4, Family::V6]) {
                let made = rule.condition.boxes(family);
                all_exact &= made.exact;
                let exact = made.exact;
                let made = made.boxes.into_iter().map(|keys| RuleBox { rule: number, keys, exact });
                of[usize::from(!rule.verdict.decides())].extend(made);
            }
            conditions.push((!all_exact).then(|| rule.condition.filter()));
        }
        let [v4, v6] = boxes;
        let ([decide4, count4], [decide6, count6]) = (v4, v6);
        let none = u32::try_from(rules.len()).expect("below the limit");
        let takes = |&(_, rule): &(u32, &Rule)| rule.condition.filter().matches(&[]);
        let mut without_header = Vec::new();
        for (number, rule) in (0..).zip(&rules).filter(takes) {
            without_header.push(number);
            if rule.verdict.decides() {
                break;
            }
        }
        if without_header.last().is_none_or(|&last| !rules[last as usize].verdict.decides()) {
            without_header.push(none);
        }
        Self {
            rules,
            deciding: [decide4, decide6].map(Classifier::for_first),
            counting: [count4, count6].map(Classifier::for_each),
            conditions,
            without_header,
        }
    }

    /// The rules.
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether packets that this rule decides pass.
    #[inline]
    pub(crate) fn permits(&self, rule: u32) -> bool {
        self.rules.get(rule as usize).is_some_and(|rule| rule.verdict == Verdict::Permit)
    }

    /// Whether some rule counts only.
    pub(crate) fn counts(&self) -> bool {
        self.counting.iter().any(|classifier| !classifier.arrays().2.is_empty())
    }

    /// The classifiers of a family: for rules that decide, and for those that count.
    pub(super) fn classifiers(&self, family: Family) -> [&Classifier; 2] {
        [&self.deciding, &self.counting].map(|of| &of[family as usize])
    }

    /// The number that stands for no rule.
    pub(crate) fn none(&self) -> u32 {
        u32::try_from(self.rules.len()).expect("checked when they were compiled")
    }

    /// Finds the rule that decides each packet; `packet` shows one by its place, from its IP header on.
    #[inline]
    pub(crate) fn decide<'p>(
        &self,
        family: Family,
        packets: &mut Classified<'_>,
        packet: impl Fn(usize) -> &'p [u8],
    ) {
        let classifier = &self.deciding[family as usize];
        classifier.find(packets.keys, packets.decided, |i, rule| self.holds(rule, packet(i)));
        let none = self.none();
        for decided in packets.decided.iter_mut() {
            *decided = (*decided).min(none);
        }
    }

    /// The rules that count a packet which the rule `decided` decides, in order, appended to `found`.
    pub(crate) fn counted(
        &self,
        family: Family,
        key: &Key,
        packet: &[u8],
        decided: u32,
        found: &mut Vec<u32>,
    ) {
        let start = found.len();
        self.counting[family as usize].each(key, decided, |rule, exact| {
            // One with several boxes comes more than once, each time behind itself.
            if found[start..].last() != Some(&rule) && (exact || self.holds(rule, packet)) {
                found.push(rule);
            }
        });
        found[start..].sort_unstable();
    }

    /// Every rule that counts or decides a packet, which begins with its IP header. The last one decides; where it is
    /// [`Rules::none`], no rule does.
    pub(crate) fn all_of(&self, packet: &[u8]) -> Vec<u32> {
        let Some((family, key)) = crate::filter::key_of(packet) else {
            return self.of_none().to_vec();
        };
        let (mut decided, mut found) = ([NONE], Vec::new());
        let mut packets = Classified { keys: &[key], decided: &mut decided };
        self.decide(family, &mut packets, |_| packet);
        self.counted(family, &key, packet, decided[0], &mut found);
        found.push(decided[0]);
        found
    }

    /// The rules of [`Rules::all_of`] for a packet without a whole IP header.
    pub(crate) fn of_none(&self) -> &[u32] {
        &self.without_header
    }

    #[inline]
    fn holds(&self, rule: u32, packet: &[u8]) -> bool {
        self.conditions[rule as usize].as_ref().is_none_or(|condition| condition.matches(packet))
    }
}
