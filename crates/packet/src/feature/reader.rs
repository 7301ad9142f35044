//! Reads one table of a feature's configuration, and reports all that is wrong with it at once.
//!
//! A mistake names its *place*: the keys that lead to it, joined by points, a list's items by number
//! (`source_filter.0.prefixes.2`). Whoever reads the file turns a place into a line. A key that is probably misspelled
//! makes the key that was meant *doubtful*: no mistake is reported that only follows from that.

use std::collections::BTreeSet;

use fingerpost_route::source::words::{nearest, unknown};

use super::row::{Field, Given};
use super::value::Value;
use crate::element::support::allowance::Rate;
use crate::language::Value as _;

/// A mistake of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// The place of the key or value.
    pub at: String,
    /// Further places whose values must have been read as they are meant for this to be a mistake; `*` is any step.
    pub with: Vec<String>,
    /// What is wrong, in words.
    pub what: String,
}

impl Mistake {
    /// A mistake at a place.
    pub fn new(at: impl Into<String>, what: impl Into<String>) -> Self {
        Self { at: at.into(), with: Vec::new(), what: what.into() }
    }

    /// Adds a place that has to be right for this to be a mistake.
    #[must_use]
    pub fn with(mut self, place: impl Into<String>) -> Self {
        self.with.push(place.into());
        self
    }
}

/// One table of the configuration.
pub struct TableReader<'a> {
    at: &'a str,
    entries: &'a [(String, Value)],
    fields: &'static [Field],
    /// Keys that were misspelled, by what was meant, or that have no usable value.
    doubtful: Vec<&'a str>,
    mistakes: &'a mut Vec<Mistake>,
}

impl<'a> TableReader<'a> {
    /// Reads `value`, whose place is `at`, as a table with these keys; keys beside them are mistakes. `None`, with a
    /// mistake, where it is no table.
    pub fn new(
        at: &'a str,
        value: &'a Value,
        fields: &'static [Field],
        mistakes: &'a mut Vec<Mistake>,
    ) -> Option<Self> {
        let Value::Table(entries) = value else {
            let key = at.split('.').next().unwrap_or(at);
            let what = format!("`{key}` is a list of tables: write `[[{key}]]`");
            mistakes.push(Mistake::new(at, what));
            return None;
        };
        let mut doubtful = Vec::new();
        let keys = || fields.iter().map(|field| field.name);
        for (key, _) in entries.iter().filter(|(key, _)| !keys().any(|known| known == key)) {
            let known: Vec<String> = keys().map(|key| format!("`{key}`")).collect();
            let mut what = format!("unknown field `{key}`, expected one of {}", known.join(", "));
            if let Some(near) = nearest(key, keys()) {
                what += &format!(": did you mean `{near}`?");
                doubtful.extend(keys().find(|key| *key == near));
            }
            mistakes.push(Mistake::new(format!("{at}.{key}"), what));
        }
        Some(Self { at, entries, fields, doubtful, mistakes })
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Whether what stands, or does not stand, at a key is what was meant.
    pub fn is_sure(&self, key: &str) -> bool {
        !self.doubtful.contains(&key)
    }

    /// Reports a mistake at a key of this table, or at an item of its list.
    pub fn wrong(&mut self, key: &'a str, item: Option<usize>, what: impl Into<String>) {
        self.doubtful.push(key);
        let at = match item {
            None => format!("{}.{key}", self.at),
            Some(item) => format!("{}.{key}.{item}", self.at),
        };
        self.mistakes.push(Mistake::new(at, what));
    }

    /// Reports that a key is missing, unless it is probably misspelled.
    pub fn missing(&mut self, key: &'a str) {
        if self.is_sure(key) {
            self.doubtful.push(key);
            let field = self.fields.iter().find(|field| field.name == key);
            let values = field.map_or(String::new(), |field| format!(" ({})", field.value));
            self.mistakes.push(Mistake::new(self.at, format!("missing field `{key}`{values}")));
        }
    }

    /// What was read at a key, or reports what is wrong with it.
    pub fn tried<T>(&mut self, key: &'a str, read: Result<T, impl Into<String>>) -> Option<T> {
        read.map_err(|what| self.wrong(key, None, what)).ok()
    }

    fn refuse(&mut self, key: &'a str, item: Option<usize>, value: &Value, expected: &str) {
        let what = format!("`{key}`: invalid type: {}, expected {expected}", value.describe());
        self.wrong(key, item, what);
    }

    /// Text, where the key is given.
    pub fn text(&mut self, key: &'a str) -> Option<&'a str> {
        match self.value(key)? {
            Value::Text(text) => Some(text),
            other => {
                self.refuse(key, None, other, "a string");
                None
            }
        }
    }

    /// Text that must be given.
    pub fn required_text(&mut self, key: &'a str) -> Option<&'a str> {
        if self.value(key).is_none() {
            self.missing(key);
        }
        self.text(key)
    }

    /// A truth value, or `usual` where the key is not given.
    pub fn flag(&mut self, key: &'a str, usual: bool) -> bool {
        match self.value(key) {
            None => usual,
            Some(Value::Boolean(value)) => *value,
            Some(other) => {
                self.refuse(key, None, other, "a boolean");
                usual
            }
        }
    }

    /// A list of texts with their numbers; items that are no text are mistakes. `None` where the key is not given.
    pub fn texts(&mut self, key: &'a str) -> Option<Vec<(usize, &'a str)>> {
        let Value::List(list) = self.value(key)? else {
            let value = self.value(key).expect("it was found above");
            self.refuse(key, None, value, "a sequence");
            return None;
        };
        let mut texts = Vec::with_capacity(list.len());
        for (item, value) in list.iter().enumerate() {
            match value {
                Value::Text(text) => texts.push((item, &**text)),
                other => self.refuse(key, Some(item), other, "a string"),
            }
        }
        Some(texts)
    }

    /// Names of interfaces, each of which the configuration forwards for. `None` where the key is not given: all.
    pub fn interfaces(&mut self, key: &'a str, given: &Given) -> Option<Vec<String>> {
        let names = self.texts(key)?;
        if names.is_empty() && self.is_sure(key) {
            self.wrong(key, None, format!("`{key}` is empty: name one, or leave it out for all"));
        }
        for (item, name) in &names {
            let known = || given.interfaces.iter().map(|known| &*known.name);
            if !given.interfaces.is_empty() && !known().any(|known| known == *name) {
                let what = unknown_interface(name, known());
                let at = format!("{}.{key}.{item}", self.at);
                self.mistakes.push(Mistake::new(at, what).with("interface.*.name"));
            }
        }
        Some(names.into_iter().map(|(_, name)| name.to_owned()).collect())
    }

    /// What one of these words stands for.
    pub fn word<T: Copy>(&mut self, key: &'a str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        self.tried(key, word(text, words))
    }

    /// A rate: a number of packets a second, or text with a unit.
    pub fn rate(&mut self, key: &'a str) -> Option<Rate> {
        let rate = match self.value(key)? {
            Value::Integer(number) if *number >= 0 => rate(&number.to_string()),
            Value::Text(text) => rate(text),
            _ => {
                Err("a rate is needed: a number of packets a second, \"8Mbps\" or \"125kBps\""
                    .into())
            }
        };
        self.tried(key, rate)
    }

    /// What one of these words stands for, at a key that must be given.
    pub fn required_word<T: Copy>(&mut self, key: &'a str, words: &[(&str, T)]) -> Option<T> {
        if self.value(key).is_none() {
            self.missing(key);
        }
        self.word(key, words)
    }
}

/// A rate as it is written: `1000` packets a second, `8Mbps`.
///
/// # Errors
/// What is wrong, in words.
pub fn rate(text: &str) -> Result<Rate, String> {
    Rate::read(text).map_err(|words| format!("`{text}` is {words}"))
}

/// An item of a section, and its place.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) place: String,
    pub(super) item: T,
}

/// Reads the items of a section by `read`. Mistakes are one item too many, where there are more than `most`, and a second
/// one with the name of another.
pub(super) fn read_items<T>(
    given: &Given,
    mistakes: &mut Vec<Mistake>,
    (most, limit): (usize, &str),
    (kind, name): (&str, fn(&T) -> &str),
    read: fn(&Given, &str, &Value, &mut Vec<Mistake>) -> Option<T>,
) -> Vec<Placed<T>> {
    let mut items: Vec<Placed<T>> = Vec::new();
    let mut names = BTreeSet::new();
    for (number, (place, value)) in given.items.iter().enumerate() {
        let at = || format!("{place}.name");
        if number == most {
            mistakes.push(Mistake::new(at(), format!("limit exceeded: {most} {limit}")));
        }
        let Some(item) = read(given, place, value, mistakes) else { continue };
        let name = name(&item);
        if !name.is_empty() && !names.insert(name.to_owned()) {
            mistakes.push(Mistake::new(at(), format!("{kind} {name:?} is named twice")));
        }
        items.push(Placed { place: place.clone(), item });
    }
    items
}

/// What one of these words stands for.
///
/// # Errors
/// It is none of them; the message has the nearest.
pub fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, found)) = words.iter().find(|(known, _)| *known == text) {
        return Ok(*found);
    }
    let known: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
    let mut what = format!("unknown variant `{text}`, expected one of {}", known.join(", "));
    if let Some(near) = nearest(text, words.iter().map(|(word, _)| *word)) {
        what += &format!(": did you mean `{near}`?");
    }
    Err(what)
}

/// Message about an interface that no `[[interface]]` of the file names.
pub(super) fn unknown_interface<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let what = unknown("interface", name, known);
    format!(
        "{what}; correct it, or add `[[interface]]` with `name = {name:?}` to forward there, too"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, Value)]) -> Value {
        Value::Table(
            entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
        )
    }

    #[test]
    fn all_mistakes_of_a_table_are_reported_with_their_places() {
        let value = table(&[
            ("nam", Value::Text("x".into())),
            ("action", Value::Text("dorp".into())),
            ("list", Value::List(vec![Value::Integer(5), Value::Text("ok".into())])),
            ("local", Value::Text("yes".into())),
        ]);
        let mut mistakes = Vec::new();
        const FIELDS: [Field; 5] = [
            Field::new("name", "text", ""),
            Field::new("action", "`drop`, `pass`", ""),
            Field::new("list", "a list", ""),
            Field::new("local", "a boolean", ""),
            Field::new("other", "text", ""),
        ];
        let mut reader = TableReader::new("acl.1", &value, &FIELDS, &mut mistakes).unwrap();
        assert_eq!(reader.required_text("name"), None, "`nam` is it, so it is not missing");
        assert_eq!(reader.required_word("action", &[("drop", 1), ("pass", 2)]), None);
        assert_eq!(reader.texts("list"), Some(vec![(1, "ok")]));
        assert!(!reader.flag("local", false) && !reader.is_sure("local"));
        assert_eq!(reader.required_text("other"), None);
        let got: Vec<(&str, &str)> = mistakes.iter().map(|m| (&*m.at, &*m.what)).collect();
        assert_eq!(got[0].0, "acl.1.nam");
        assert!(got[0].1.ends_with("did you mean `name`?"), "{got:?}");
        assert_eq!(got[1].0, "acl.1.action");
        assert!(got[1].1.ends_with("did you mean `drop`?"), "{got:?}");
        assert_eq!(
            got[2],
            ("acl.1.list.0", "`list`: invalid type: integer `5`, expected a string")
        );
        assert_eq!(got[3].0, "acl.1.local");
        assert_eq!(got[4], ("acl.1", "missing field `other` (text)"));
        assert_eq!(got.len(), 5);
    }

    #[test]
    fn what_is_no_table_is_one_mistake() {
        let mut mistakes = Vec::new();
        assert!(TableReader::new("acl.0", &Value::Integer(1), &[], &mut mistakes).is_none());
        assert_eq!(mistakes[0].what, "`acl` is a list of tables: write `[[acl]]`");
    }
}
