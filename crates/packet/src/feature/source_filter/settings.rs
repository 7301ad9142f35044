//! `[[source_filter]]`: lists of source prefixes as the configuration has them.

use std::sync::Arc;

use fingerpost_route::{AnyPrefix, InterfaceSet};

use super::Action;
use super::filters::{Filter, MOST_FILTERS, SourceFilters};
use crate::feature::reader::{Mistake, Placed, TableReader, read_items};
use crate::feature::row::{Field, Given, Item, Settings as FeatureSettings, State, Support, Use};
use crate::feature::value::Value;
use crate::language::open_policy::OpenPolicy;
use crate::prefix_sets::{read_file, read_prefix};

/// The filters of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<Placed<Filter>>);

/// A prefix, or an address, of either family; host bits are cleared.
///
/// # Errors
/// What is wrong, in words.
pub fn prefix(text: &str) -> Result<AnyPrefix, String> {
    read_prefix(text)
}

/// Whether a filter may be called so.
fn is_name(name: &str) -> bool {
    let of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !name.is_empty() && name.bytes().all(of_names)
}

pub(super) fn read(given: &Given, mistakes: &mut Vec<Mistake>) -> Arc<dyn FeatureSettings> {
    let most = (MOST_FILTERS, "filters, each a list of any length");
    let items =
        read_items(given, mistakes, most, ("source filter", |one: &Filter| &one.name), read_filter);
    Arc::new(Settings(items))
}

pub(super) const FIELDS: &[Field] = &[
    Field::new("name", "text", "Name in commands and counters."),
    Field::new(
        "action",
        "`pass`, `drop`, `count`, `limit`",
        "What becomes of a packet whose source is on the list.",
    ),
    Field::new(
        "rate",
        "a number of packets a second, or text as `\"8Mbps\"`",
        "Rate of action `limit`.",
    ),
    Field::new(
        "file",
        "text",
        "File of prefixes, one a line; `source-filter replace` reads it again.",
    ),
    Field::new("prefixes", "list of text", "Prefixes beside those of the file."),
    Field::new(
        "interfaces",
        "list of text",
        "Interfaces whose packets it is for; all where it is missing.",
    ),
    Field::new(
        "local",
        "a boolean",
        "Whether it is also for packets to the router itself; `false` without it.",
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Pass,
    Drop,
    Count,
    Limit,
}

const WORDS: [(&str, Word); 4] =
    [("pass", Word::Pass), ("drop", Word::Drop), ("count", Word::Count), ("limit", Word::Limit)];

fn read_filter(
    given: &Given,
    place: &str,
    value: &Value,
    mistakes: &mut Vec<Mistake>,
) -> Option<Filter> {
    let mut table = TableReader::new(place, value, FIELDS, mistakes)?;
    let name = table.required_text("name").unwrap_or_default().to_owned();
    let said = |what: String| format!("source filter {name:?}: {what}");
    if table.is_sure("name") && table.value("name").is_some() && !is_name(&name) {
        table.wrong("name", None, said("a name has letters, digits, `_`, `-` and `.`".into()));
    }
    let word = table.required_word("action", &WORDS);
    let rate = table.rate("rate");
    let action = match (word, rate) {
        (Some(Word::Pass), _) => Action::Pass,
        (Some(Word::Drop), _) => Action::Drop,
        (Some(Word::Count) | None, _) => Action::Count,
        (Some(Word::Limit), Some(rate)) => Action::Limit(rate),
        (Some(Word::Limit), None) => {
            if table.is_sure("rate") {
                let what = "no rate: `rate = 1000` packets a second, or \"8Mbps\"";
                table.wrong("action", None, said(what.into()));
            }
            Action::Count
        }
    };
    if rate.is_some() && word.is_some_and(|word| word != Word::Limit) {
        table.wrong("rate", None, said("`rate` goes with action \"limit\"".into()));
    }
    let file = table.text("file").map(ToOwned::to_owned);
    let mut prefixes = Vec::new();
    for (item, text) in table.texts("prefixes").unwrap_or_default() {
        match read_prefix(text) {
            Ok(prefix) => prefixes.push(prefix),
            Err(what) => table.wrong("prefixes", Some(item), said(what)),
        }
    }
    let interfaces = table.interfaces("interfaces", given);
    let local = table.flag("local", false);
    if local && word == Some(Word::Limit) {
        let what = "`local = true` does not go with action \"limit\", which the graph alone has: take \"drop\"";
        table.wrong("local", None, said(what.into()));
    }
    Some(Filter { name, action, file, prefixes, interfaces, local })
}

impl Filter {
    fn is_for(&self, interface: &str) -> bool {
        let names = self.interfaces.as_ref();
        names.is_none_or(|names| names.iter().any(|known| known == interface))
    }
}

impl Settings {
    /// The filters.
    pub fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.0.iter().map(|given| &given.item)
    }
}

/// All about a filter but its prefixes, of which there may be many, in a line.
fn described(filter: &Filter) -> String {
    let mut words = vec![filter.action.to_string()];
    words.extend(filter.file.clone());
    match filter.prefixes.len() {
        0 => {}
        1 => words.push("1 prefix".to_owned()),
        many => words.push(format!("{many} prefixes")),
    }
    let names = filter.interfaces.as_ref();
    words.push(names.map_or("every interface".to_owned(), |names| names.join(", ")));
    words.extend(filter.local.then(|| "local".to_owned()));
    words.join(", ")
}

impl FeatureSettings for Settings {
    fn is_same(&self, other: &dyn FeatureSettings) -> bool {
        other.of::<Self>().is_some_and(|other| self.filters().eq(other.filters()))
    }

    fn on(&self, interface: &str) -> Option<Use> {
        let used: Vec<&Placed<Filter>> =
            self.0.iter().filter(|given| given.item.is_for(interface)).collect();
        let first = used.first()?;
        let by_name = used.iter().find(|given| given.item.interfaces.is_some());
        let words = used.iter().map(|Placed { item: filter, .. }| {
            format!("{}{}", filter.name, if filter.local { " (local)" } else { "" })
        });
        Some(Use {
            words: words.collect::<Vec<_>>().join(", "),
            named: by_name.is_some(),
            place: match by_name {
                Some(given) => format!("{}.interfaces", given.place),
                None => format!("{}.name", first.place),
            },
        })
    }

    fn is_local(&self, interface: &str) -> bool {
        self.filters().any(|filter| filter.local && filter.is_for(interface))
    }

    fn interfaces(&self) -> InterfaceSet {
        if self.filters().any(|filter| filter.interfaces.is_none()) {
            return InterfaceSet::All;
        }
        let names = self.filters().flat_map(|filter| filter.interfaces.iter().flatten());
        InterfaceSet::Some(names.cloned().collect())
    }

    fn xdp(&self, interface: Option<&str>) -> Support {
        let limits = |filter: &Filter| matches!(filter.action, Action::Limit(_));
        let here = |filter: &&Filter| interface.is_none_or(|interface| filter.is_for(interface));
        if self.filters().filter(here).any(limits) {
            Support::Partly("packets whose rate a filter limits")
        } else {
            Support::Xdp
        }
    }

    fn items(&self) -> Vec<Item> {
        let item = |filter: &Filter| Item {
            name: format!("source-filter {}", filter.name),
            words: described(filter),
            lines: ("prefix", filter.prefixes.iter().map(ToString::to_string).collect()),
        };
        self.filters().map(item).collect()
    }

    fn files(&self) -> Vec<(String, String)> {
        let file = |given: &Placed<Filter>| {
            Some((format!("{}.file", given.place), given.item.file.clone()?))
        };
        self.0.iter().filter_map(file).collect()
    }

    fn check_files(&self) -> Vec<Mistake> {
        let policy = OpenPolicy::default();
        let wrong = |(place, file): (String, String)| {
            read_file(&file, &policy).err().map(|what| Mistake::new(place, what))
        };
        self.files().into_iter().filter_map(wrong).collect()
    }

    fn make(&self, before: Option<&dyn State>) -> Result<Option<Arc<dyn State>>, Vec<String>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let before = before.and_then(|before| before.of());
        let made = SourceFilters::new(self.filters().cloned().collect(), before)?;
        Ok(Some(Arc::new(made)))
    }
}
