//! What packets are wanted, as text: the pattern languages of Click, read, compiled, and run on packets.
//!
//! `pattern.rs` is the language of `Classifier`, bytes at offsets; `expression.rs` that of `IPClassifier`,
//! `IPFilter`, access lists and traces, over the fields of IP packets (`field.rs`). Both become rules that
//! `program.rs` compiles into decisions, and `listing.rs` lists as Click does; `boxes.rs` makes ranges of a condition, for thousands of rules.
//!
//! ```
//! # use fingerpost_packet::filter::Filter;
//! let filter = Filter::parse("dst 10.0.0.0/8 and icmp")?;
//! assert!(!filter.matches(&[0x45, 0, 0, 20]));
//! let wrong = Filter::parse("dst 10.0.0.0/8 and icpm").unwrap_err();
//! assert_eq!(wrong.at, 19);
//! # Ok::<(), fingerpost_packet::filter::FilterError>(())
//! ```

mod action;
mod boxes;
mod expression;
mod field;
#[cfg(feature = "click")]
mod listing;
pub(crate) mod names;
mod pattern;
mod program;
#[cfg(test)]
mod tests;

/// Nothing shows a listing without Click's handlers.
#[cfg(not(feature = "click"))]
mod listing {
    use super::{Field, Rule};

    pub(super) fn of_frames(_: &[Rule<u16>], _: u16) -> String {
        String::new()
    }

    pub(super) fn of_packets(_: &[Rule<Field>], _: u16) -> String {
        String::new()
    }
}

use field::{Field, Headers};
use program::{Expr, Program, Rule};

pub use action::{Action, Entry};
pub use boxes::{Boxes, Key, KeyBox, WORDS, word};
pub use pattern::{Pattern, Patterns};

/// IPv4 or IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Family and key of a packet, which begins with its IP header; `None` without a whole one.
#[inline]
pub fn key_of(packet: &[u8]) -> Option<(Family, Key)> {
    Headers::of(packet).key()
}

/// What is wrong with a pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}, at character {}", .at + 1)]
pub struct FilterError {
    /// Bytes of the text before the place.
    pub at: usize,
    /// What was expected there.
    pub message: String,
}

impl FilterError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// Where `part`, which lies in `text`, begins.
fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// What IP packets must be like: an expression, read.
#[derive(Clone, Debug)]
pub struct Condition(Expr<Field>);

impl Condition {
    /// Reads an expression in the language of `IPFilter`.
    ///
    /// # Errors
    /// Where it is wrong, and what was expected.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        expression::parse(text).map(Self)
    }

    /// Whether it looks at what IPv6 headers alone have.
    pub(crate) fn reads_v6(&self) -> bool {
        self.0.any_load(&Field::is_v6)
    }

    /// The condition, compiled.
    pub fn filter(&self) -> Filter {
        Filter(Choice::new([(self.clone(), Some(0))]))
    }
}

/// One condition, compiled.
#[derive(Clone, Debug)]
pub struct Filter(Choice);

impl Filter {
    /// Reads an expression in the language of `IPFilter`.
    ///
    /// # Errors
    /// Where it is wrong, and what was expected.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Condition::parse(text).map(|condition| condition.filter())
    }

    /// Whether it takes a packet, which begins with its IP header.
    #[inline]
    pub fn matches(&self, packet: &[u8]) -> bool {
        self.0.find(packet).is_some()
    }
}

/// Conditions in order, with what each leads to, compiled.
#[derive(Clone, Debug)]
pub struct Choice {
    program: Program<Field>,
    /// It looks at Ethernet headers.
    link: bool,
}

/// Stands for nothing, which a condition may lead to as well.
const NOTHING: u16 = u16::MAX;

impl Choice {
    /// A condition leads to a number below 65,535, or to nothing.
    pub fn new(conditions: impl IntoIterator<Item = (Condition, Option<u16>)>) -> Self {
        let rules = rules(conditions);
        let link = rules.iter().any(|rule| rule.expr.any_load(&|load| load.is_link()));
        Self { program: Program::new(&rules), link }
    }

    /// Listing of conditions as Click's handler `program` has it; what leads to nothing leads to the number of outputs.
    pub(crate) fn listing(conditions: &[(Condition, Option<u16>)], outputs: u16) -> String {
        listing::of_packets(&rules(conditions.iter().cloned()), outputs)
    }

    /// Whether it looks at Ethernet headers: [`Choice::find_behind`] is to be used then.
    pub fn reads_link(&self) -> bool {
        self.link
    }

    /// What the first condition that takes the packet leads to; the packet begins with its IP header.
    #[inline]
    pub fn find(&self, packet: &[u8]) -> Option<u16> {
        self.find_behind(&[], packet)
    }

    /// Answer of [`Choice::find`] for a packet behind this Ethernet header.
    #[inline]
    pub fn find_behind(&self, link: &[u8], packet: &[u8]) -> Option<u16> {
        let headers = Headers::of(packet).behind(link);
        self.program.run(|field| headers.load(field)).filter(|answer| *answer != NOTHING)
    }
}

fn rules(conditions: impl IntoIterator<Item = (Condition, Option<u16>)>) -> Vec<Rule<Field>> {
    let rule = |(Condition(expr), answer): (_, Option<u16>)| {
        debug_assert_ne!(answer, Some(NOTHING));
        Rule { expr, answer: answer.unwrap_or(NOTHING) }
    };
    conditions.into_iter().map(rule).collect()
}
