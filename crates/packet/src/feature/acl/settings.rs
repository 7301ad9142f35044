//! `[[acl]]`: access lists as the configuration has them.

use std::collections::BTreeSet;
use std::sync::Arc;

use fingerpost_route::InterfaceSet;

use super::classify::MOST_RULES;
use super::lists::{AccessLists, Direction, MOST_LISTS};
use super::rules::{Rule, is_name};
use crate::feature::reader::{Mistake, TableReader};
use crate::feature::row::{Field, Given, Item, Settings as FeatureSettings, State, Support, Use};
use crate::feature::value::Value;
use crate::filter::{Family, FilterError};

/// The access lists of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<Placed>);

/// A list, and its place.
#[derive(Clone, Debug)]
struct Placed {
    place: String,
    acl: Acl,
}

/// An access list as it is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Acl {
    /// Its name.
    pub(super) name: String,
    /// The interfaces whose packets it is for; `None` for all.
    pub(super) interfaces: Option<Vec<String>>,
    /// Whether it is for packets that arrive there, or that leave.
    pub(super) direction: Direction,
    /// Its rules, in order.
    pub(super) rules: Vec<Rule>,
    /// Whether comparisons of fields express all conditions.
    exact: bool,
    /// Whether it is also for packets to the router itself.
    pub(super) local: bool,
}

/// Whether comparisons of fields express the condition of a rule.
fn is_exact(rule: &Rule) -> bool {
    [Family::V4, Family::V6].iter().all(|family| rule.condition.boxes(*family).exact)
}

impl Acl {
    fn new(
        name: String,
        interfaces: Option<Vec<String>>,
        direction: Direction,
        rules: Vec<Rule>,
    ) -> Self {
        let exact = rules.iter().all(is_exact);
        Self { name, interfaces, direction, rules, exact, local: false }
    }

    pub(super) fn is_for(&self, interface: &str) -> bool {
        let named = self.interfaces.as_ref();
        named.is_none_or(|names| names.iter().any(|known| known == interface))
    }

    /// An interface that both lists are for, in the same direction.
    fn meets(&self, other: &Self) -> Option<String> {
        if self.direction != other.direction {
            return None;
        }
        match (&self.interfaces, &other.interfaces) {
            (None, None) => Some("every interface".to_owned()),
            (Some(names), None) | (None, Some(names)) => names.first().cloned(),
            (Some(names), Some(_)) => names.iter().find(|name| other.is_for(name)).cloned(),
        }
    }
}

pub(super) const FIELDS: &[Field] = &[
    Field::new("name", "text", "Name in commands and counters."),
    Field::new(
        "interfaces",
        "list of text",
        "Interfaces whose packets it is for; all where it is missing.",
    ),
    Field::new("direction", "`in`, `out`", "Whether it is for packets that arrive, or that leave."),
    Field::new(
        "local",
        "a boolean",
        "Whether it is also for packets to the router itself; `false` without it.",
    ),
    Field::new(
        "rules",
        "list of text",
        "Ordered rules `permit|deny|count|log COUNTER CONDITION`; the first that decides decides, and a packet that no rule decides is denied.",
    ),
];

pub(super) fn read(given: &Given, mistakes: &mut Vec<Mistake>) -> Arc<dyn FeatureSettings> {
    let mut settings = Settings::default();
    for (number, (place, value)) in given.items.iter().enumerate() {
        if number == MOST_LISTS {
            let what = format!("limit exceeded: {MOST_LISTS} ACLs");
            mistakes.push(Mistake::new(format!("{place}.name"), what));
        }
        let Some(acl) = read_acl(given, place, value, mistakes) else { continue };
        for Placed { acl: known, .. } in &settings.0 {
            if !acl.name.is_empty() && known.name == acl.name {
                let what = format!("ACL {:?} is named twice", acl.name);
                mistakes.push(Mistake::new(format!("{place}.name"), what));
            } else if let Some(interface) = known.meets(&acl) {
                let what = format!(
                    "ACL {:?}: {interface} has ACL {:?} with direction \"{}\"",
                    acl.name, known.name, acl.direction
                );
                let mistake = Mistake::new(format!("{place}.name"), what);
                mistakes.push(mistake.with(format!("{place}.direction")));
            }
        }
        settings.0.push(Placed { place: place.clone(), acl });
    }
    Arc::new(settings)
}

fn read_acl(given: &Given, place: &str, value: &Value, mistakes: &mut Vec<Mistake>) -> Option<Acl> {
    let mut table = TableReader::new(place, value, FIELDS, mistakes)?;
    let name = table.required_text("name").unwrap_or_default().to_owned();
    let about = |what: String| format!("ACL {name:?}: {what}");
    if table.is_sure("name") && table.value("name").is_some() && !is_name(&name) {
        table.wrong("name", None, about("a name has letters, digits, `_`, `-` and `.`".into()));
    }
    let direction = table.required_word("direction", &Direction::WORDS).unwrap_or(Direction::In);
    let local = table.flag("local", false);
    if local && direction == Direction::Out {
        let what = "`local = true` goes with direction \"in\"";
        table.wrong("local", None, about(what.into()));
    }
    if table.value("rules").is_none() {
        table.missing("rules");
    }
    let mut rules = Vec::new();
    for (item, text) in table.texts("rules").unwrap_or_default() {
        match Rule::parse(text) {
            Ok(rule) if local && !is_exact(&rule) => {
                let what = format!(
                    "`{text}` does not go with `local = true`: leave out TTL, identification and bytes at an offset, which the graph alone has"
                );
                table.wrong("rules", Some(item), about(what));
            }
            Ok(rule) => rules.push(rule),
            Err(error) => table.wrong("rules", Some(item), about(format!("`{text}`: {error}"))),
        }
    }
    if rules.len() >= MOST_RULES {
        table.wrong("rules", None, about(format!("limit exceeded: {MOST_RULES} rules")));
    }
    let interfaces = table.interfaces("interfaces", given);
    Some(Acl { local, ..Acl::new(name, interfaces, direction, rules) })
}

/// Name of a list for packets that arrive, its interfaces (`None` for all) and its rules.
pub type IngressList<'a, R> = (&'a str, Option<&'a [&'a str]>, &'a [R]);

impl AccessLists {
    /// Lists for packets that arrive, for routers that are put together by hand.
    ///
    /// # Errors
    /// What is wrong with a rule.
    pub fn for_ingress<R: AsRef<str>>(
        lists: &[IngressList<'_, R>],
        before: Option<&Self>,
    ) -> Result<Self, FilterError> {
        let made = lists.iter().map(|(name, interfaces, rules)| {
            let rules: Result<_, _> = rules.iter().map(|rule| Rule::parse(rule.as_ref())).collect();
            let interfaces =
                interfaces.map(|names| names.iter().map(ToString::to_string).collect());
            Ok(Acl::new((*name).to_owned(), interfaces, Direction::In, rules?))
        });
        Ok(Self::new(made.collect::<Result<_, _>>()?, before))
    }
}

impl Settings {
    fn acls(&self) -> impl Iterator<Item = &Acl> {
        self.0.iter().map(|placed| &placed.acl)
    }
}

impl FeatureSettings for Settings {
    fn is_same(&self, other: &dyn FeatureSettings) -> bool {
        other.of::<Self>().is_some_and(|other| self.acls().eq(other.acls()))
    }

    fn on(&self, interface: &str) -> Option<Use> {
        let used: Vec<&Placed> = self.0.iter().filter(|one| one.acl.is_for(interface)).collect();
        let by_name = used.iter().find(|one| one.acl.interfaces.is_some());
        let first = by_name.or(used.first())?;
        let words = used.iter().map(|Placed { acl, .. }| {
            let local = if acl.local { ", local" } else { "" };
            format!("{} ({}{local})", acl.name, acl.direction)
        });
        Some(Use {
            words: words.collect::<Vec<_>>().join(", "),
            named: by_name.is_some(),
            place: match by_name {
                Some(one) => format!("{}.interfaces", one.place),
                None => format!("{}.name", first.place),
            },
        })
    }

    fn is_local(&self, interface: &str) -> bool {
        self.acls().any(|acl| acl.local && acl.is_for(interface))
    }

    fn interfaces(&self) -> InterfaceSet {
        // What leaves by an interface may have arrived on any other.
        let all = |acl: &Acl| acl.interfaces.is_none() || acl.direction == Direction::Out;
        if self.acls().any(all) {
            return InterfaceSet::All;
        }
        let names = self.acls().flat_map(|acl| acl.interfaces.iter().flatten());
        InterfaceSet::Some(names.cloned().collect::<BTreeSet<_>>())
    }

    fn xdp(&self, interface: Option<&str>) -> Support {
        if self.acls().any(|acl| acl.direction == Direction::Out) {
            return Support::Graph("the graph alone applies rules to packets that leave");
        }
        let here = |acl: &&Acl| interface.is_none_or(|interface| acl.is_for(interface));
        if !self.acls().filter(here).all(|acl| acl.exact) {
            return Support::Partly(
                "packets that may match a condition on TTL, identification or bytes at an offset, and IPv6 extension headers",
            );
        }
        Support::Partly("IPv6 packets with extension headers")
    }

    fn items(&self) -> Vec<Item> {
        let item = |acl: &Acl| {
            let names = acl.interfaces.as_ref();
            let names = names.map_or("every interface".to_owned(), |names| names.join(", "));
            let rules = match acl.rules.len() {
                1 => "1 rule".to_owned(),
                many => format!("{many} rules"),
            };
            Item {
                name: format!("acl {}", acl.name),
                words: format!(
                    "{}, {names}, {rules}{}",
                    acl.direction,
                    if acl.local { ", local" } else { "" }
                ),
                lines: ("rule", acl.rules.iter().map(|rule| rule.text.to_string()).collect()),
            }
        };
        self.acls().map(item).collect()
    }

    fn make(&self, before: Option<&dyn State>) -> Result<Option<Arc<dyn State>>, Vec<String>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let before = before.and_then(|before| before.of());
        Ok(Some(Arc::new(AccessLists::new(self.acls().cloned().collect(), before))))
    }
}
