//! All mistakes of a configuration at once, each with its line.
//!
//! A file is parsed into tables that know where they stand, and these become the configuration. A key or a value that
//! cannot is reported, taken out, and the rest is tried again; in the place of a required one comes a stand-in, so that
//! what stands beside it is looked at as well. What is noted as *doubtful* meanwhile keeps rules that depend on it from
//! reporting a mistake that only follows from another one.
//!
//! Cost: one more pass over the tables for each mistake, [`MOST`] at most

use std::borrow::Cow;
use std::ops::Range;

use fingerpost_command::former;
use fingerpost_packet::feature::row::{Given, GivenInterface, Key};
use fingerpost_packet::feature::{FEATURES, Feature, FeatureSettings, Mistake as Wrong, Value};
use fingerpost_route::source::words::nearest;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer, Error};

/// A mistake: the line where it is known, and what is wrong.
pub(super) type Mistake = (Option<usize>, String);

/// Mistakes reported at one time.
pub(super) const MOST: usize = 50;
/// Keys that are accepted by a former name for one release, as an alias of their field: section, name, former name.
const FORMER_KEYS: [(&str, &str, &str); 3] = [
    ("takeover", "nonstop_s", "survive_s"),
    ("fib.knobs", "calibration_ms", "trial_ms"),
    ("fib.knobs", "calibration_mib", "trial_mib"),
];
/// Values that a missing one may be of: a word, a number, a truth value, a list, a table.
const STAND_INS: usize = 5;

/// A file whose values have been read, and what was wrong with them.
pub(super) struct Document<'a> {
    lines: Lines,
    tables: Spanned<DeTable<'a>>,
    mistakes: Vec<Mistake>,
    /// Places that do not hold what was meant: refused, missing, or probably misspelled.
    doubtful: Vec<String>,
    /// Places of values that nobody wrote, and how many kinds were tried there.
    stand_ins: Vec<(String, usize)>,
}

impl<'a> Document<'a> {
    /// Parses `text` and reads it as a `T`, which holds stand-ins where there are mistakes.
    ///
    /// # Errors
    /// All mistakes, when they leave nothing to look at: those of the grammar, and what no stand-in heals.
    pub(super) fn read<T: DeserializeOwned>(text: &'a str) -> Result<(T, Self), Vec<Mistake>> {
        let (tables, errors) = DeTable::parse_recoverable(text);
        let mut document = Self {
            lines: Lines::of(text),
            tables,
            mistakes: Vec::new(),
            doubtful: Vec::new(),
            stand_ins: Vec::new(),
        };
        for error in &errors {
            if document.mistakes.len() >= MOST {
                break;
            }
            let line = error.span().map(|span| document.lines.line(span.start));
            // What a parser finds behind a mistake on the same line follows from it.
            if document.mistakes.iter().all(|(known, _)| *known != line) {
                document.mistakes.push((line, one_line(error.message())));
            }
        }
        if !errors.is_empty() {
            return Err(document.finish());
        }
        loop {
            let error = match T::deserialize(Deserializer::from(document.without_features())) {
                Ok(read) => return Ok((read, document)),
                Err(error) => error,
            };
            if document.mistakes.len() >= MOST || !document.settle(&error) {
                return Err(document.finish());
            }
        }
    }

    /// Adds what else is wrong, unless it follows from what is known already, or there is enough.
    pub(super) fn add(&mut self, wrong: impl IntoIterator<Item = Wrong>) {
        for Wrong { at, with, what } in wrong {
            if self.mistakes.len() >= MOST {
                return;
            }
            if std::iter::once(&at).chain(&with).all(|place| !self.is_doubtful(place)) {
                self.mistakes.push((self.line(&at), what));
            }
        }
    }

    /// The tables without what features read themselves.
    fn without_features(&self) -> Spanned<DeTable<'a>> {
        let mut tables = self.tables.clone();
        let known: Vec<String> =
            tables.get_ref().keys().map(|key| key.get_ref().to_string()).collect();
        for key in known.iter().filter(|key| section(key).is_some()) {
            tables.get_mut().remove(key.as_str());
        }
        let interfaces = tables.get_mut().get_mut(INTERFACES);
        if let Some(DeValue::Array(list)) = interfaces.map(Spanned::get_mut) {
            for item in list.iter_mut() {
                let DeValue::Table(table) = item.get_mut() else { continue };
                for key in FEATURES.iter().filter_map(|row| row.key) {
                    key.former.into_iter().chain([key.name]).for_each(|name| {
                        table.remove(name);
                    });
                }
            }
        }
        tables
    }

    /// Reads what features read themselves.
    pub(super) fn features(&mut self) -> FeatureSettings {
        for (name, value) in self.tables.get_ref() {
            let (name, value) = (name.get_ref().to_string(), value.get_ref());
            if section(&name).is_none() {
                continue;
            }
            let what = match value {
                DeValue::Array(_) => continue,
                DeValue::Table(_) => format!("`{name}` is a list of tables: write `[[{name}]]`"),
                other => {
                    let other = plain(other).describe();
                    format!("`{name}`: invalid type: {other}, expected a sequence")
                }
            };
            self.mistakes.push((self.line(&name), what));
            self.doubtful.push(name);
        }
        let (settings, wrong) = FeatureSettings::read(|row| self.given(row));
        self.add(wrong);
        settings
    }

    /// What stands there for a feature.
    fn given(&self, row: &Feature) -> Given {
        let mut given = Given::default();
        let tables = self.tables.get_ref();
        let items = |name: &str| match tables.get(name).map(Spanned::get_ref) {
            Some(DeValue::Array(list)) => Some(list),
            _ => None,
        };
        for name in row.section.iter().flat_map(names) {
            for (at, item) in items(name).into_iter().flatten().enumerate() {
                given.items.push((format!("{name}.{at}"), plain(item.get_ref())));
            }
        }
        for (at, item) in items(INTERFACES).into_iter().flatten().enumerate() {
            let DeValue::Table(table) = item.get_ref() else { continue };
            let Some(DeValue::String(name)) = table.get("name").map(Spanned::get_ref) else {
                continue;
            };
            let mut interface =
                GivenInterface { name: name.to_string(), place: String::new(), value: None };
            for key in row.key.iter().flat_map(names) {
                if let Some(value) = table.get(key).filter(|_| interface.value.is_none()) {
                    interface.place = format!("{INTERFACES}.{at}.{key}");
                    interface.value = Some(plain(value.get_ref()));
                }
            }
            given.interfaces.push(interface);
        }
        given
    }

    /// Lines that have former names of keys and sections, and what these are called now.
    pub(super) fn former_names(&self) -> Vec<Mistake> {
        let mut found = Vec::new();
        for (section, name, former) in FORMER_KEYS {
            let place = join(section, former);
            if self.value(&place).is_some() {
                found.push((self.line(&place), former::warning(former, name)));
            }
        }
        let mut look = |key: Option<Key>, place: &dyn Fn(&str) -> String| {
            let Some((name, former)) = key.and_then(|key| Some((key.name, key.former?))) else {
                return;
            };
            let place = place(former);
            if self.value(&place).is_some() {
                found.push((self.line(&place), former::warning(former, name)));
            }
        };
        let interfaces = match self.tables.get_ref().get(INTERFACES).map(Spanned::get_ref) {
            Some(DeValue::Array(list)) => list.len(),
            _ => 0,
        };
        for row in FEATURES {
            look(row.section, &str::to_owned);
            for at in 0..interfaces {
                look(row.key, &|key| format!("{INTERFACES}.{at}.{key}"));
            }
        }
        found
    }

    /// All mistakes, by line.
    pub(super) fn finish(mut self) -> Vec<Mistake> {
        self.mistakes.sort_by_key(|(line, _)| *line);
        self.mistakes
    }

    /// Reports an error and makes the tables such that it does not come again. `false` when nothing does.
    fn settle(&mut self, error: &Error) -> bool {
        let message = error.message();
        let line = error.span().map(|span| self.lines.line(span.start));
        let Some(found) = error.span().and_then(|span| self.find(&span)) else {
            self.mistakes.push((line, with_suggestion(message)));
            return false;
        };
        let place = match &found {
            Found::Key(place) | Found::Value(place) => place.clone(),
        };
        let message = &*with_features(message, &place);
        if message.starts_with("unknown field ")
            && let (Found::Key(_), Some(field)) = (&found, quoted(message))
        {
            self.mistakes.push((line, with_suggestion(message)));
            let meant = nearest(&field, quotes(message).into_iter().skip(1));
            let table = parent(&place);
            // What stands there besides is no other spelling of it, unless it is a list of tables, one of which may be.
            let meant = meant.map(|meant| join(table, meant));
            let tables = |value: &DeValue<'_>| {
                matches!(value, DeValue::Array(list)
                    if list.iter().any(|item| matches!(item.get_ref(), DeValue::Table(_))))
            };
            let meant = meant
                .filter(|meant| self.value_mut(meant).is_none_or(|value| tables(value.get_ref())));
            self.doubtful.extend(meant);
            self.doubtful.push(place.clone());
            return self.take_out(&place);
        }
        if let Some(field) = message.strip_prefix("missing field ").and_then(quoted) {
            let missing = join(&place, &field);
            if !self.is_doubtful(&missing) {
                self.mistakes.push((line, message.to_owned()));
                self.doubtful.push(missing.clone());
            }
            self.stand_ins.push((missing.clone(), 0));
            return self.put(&missing, DeValue::String("".into()));
        }
        if let Some(at) = self.stand_ins.iter().position(|(known, _)| *known == place) {
            return self.other_stand_in(at, message);
        }
        let key = place.rsplit('.').find(|step| step.parse::<usize>().is_err()).unwrap_or(&place);
        // `[[fib]]`: its first table is read as the first field.
        let listed = place.split_once('.').is_some_and(|(_, rest)| rest.parse::<usize>().is_ok());
        let what = if listed && message.starts_with("invalid type: map, expected") {
            one_table(key)
        } else {
            of_value(key, message)
        };
        self.mistakes.push((line, what));
        self.doubtful.push(place.clone());
        self.take_out(&place)
    }

    /// Another value for one that is required and was not there: `message` has the reason why the last one is wrong.
    fn other_stand_in(&mut self, at: usize, message: &str) -> bool {
        let (place, tried) = self.stand_ins[at].clone();
        if tried == STAND_INS {
            return false;
        }
        self.stand_ins[at].1 += 1;
        // A word of several: any of them will do.
        if let Some(word) =
            quotes(message).get(1).filter(|_| message.starts_with("unknown variant"))
        {
            return self.put(&place, DeValue::String(Cow::Owned((*word).to_owned())));
        }
        let value = match tried {
            0 => DeValue::Integer(Default::default()),
            1 => DeValue::Boolean(false),
            2 => DeValue::Array(DeArray::new()),
            _ => DeValue::Table(DeTable::new()),
        };
        self.put(&place, value)
    }

    fn is_doubtful(&self, place: &str) -> bool {
        self.doubtful.iter().any(|doubtful| overlap(doubtful, place))
    }

    /// Line of a place in a text that could be read before.
    pub(super) fn line_in(text: &'a str, place: &str) -> Option<usize> {
        let (tables, _) = DeTable::parse_recoverable(text);
        let (mistakes, doubtful, stand_ins) = (Vec::new(), Vec::new(), Vec::new());
        Self { lines: Lines::of(text), tables, mistakes, doubtful, stand_ins }.line(place)
    }

    /// Line of a key or value, or of the nearest that there is around it.
    fn line(&self, place: &str) -> Option<usize> {
        let mut table: Option<&DeTable<'a>> = Some(self.tables.get_ref());
        let mut value: Option<&Spanned<DeValue<'a>>> = None;
        let mut start = None;
        for step in place.split('.') {
            let next = match (table.take(), value.map(Spanned::get_ref)) {
                (Some(table), _) | (None, Some(DeValue::Table(table))) => {
                    let Some((key, next)) = table.get_key_value(step) else { break };
                    start = Some(key.span().start);
                    next
                }
                (None, Some(DeValue::Array(list))) => {
                    let number = step.parse::<usize>().ok();
                    let Some(next) = number.and_then(|number| list.get(number)) else { break };
                    start = Some(next.span().start);
                    next
                }
                _ => break,
            };
            value = Some(next);
        }
        start.map(|start| self.lines.line(start))
    }

    /// What has this span: the innermost, as a table may begin and end with what it holds.
    fn find(&self, span: &Range<usize>) -> Option<Found> {
        let whole = (*span == self.tables.span()).then(|| Found::Value(String::new()));
        find_in(self.tables.get_ref(), "", span).or(whole)
    }

    fn table_mut(&mut self, place: &str) -> Option<&mut DeTable<'a>> {
        if place.is_empty() {
            return Some(self.tables.get_mut());
        }
        match self.value_mut(place)?.get_mut() {
            DeValue::Table(table) => Some(table),
            _ => None,
        }
    }

    fn value(&self, place: &str) -> Option<&DeValue<'a>> {
        let mut steps = place.split('.');
        let mut value = self.tables.get_ref().get(steps.next()?)?.get_ref();
        for step in steps {
            value = match value {
                DeValue::Table(table) => table.get(step)?.get_ref(),
                DeValue::Array(list) => list.get(step.parse::<usize>().ok()?)?.get_ref(),
                _ => return None,
            };
        }
        Some(value)
    }

    fn value_mut(&mut self, place: &str) -> Option<&mut Spanned<DeValue<'a>>> {
        let mut steps = place.split('.');
        let mut value = self.tables.get_mut().get_mut(steps.next()?)?;
        for step in steps {
            value = match value.get_mut() {
                DeValue::Table(table) => table.get_mut(step)?,
                DeValue::Array(list) => list.get_mut(step.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(value)
    }

    /// Takes a key with its value out of its table, or a value out of its list.
    fn take_out(&mut self, place: &str) -> bool {
        let (above, last) = (parent(place), place.rsplit('.').next().unwrap_or(place));
        if let Some(table) = self.table_mut(above) {
            return table.remove(last).is_some();
        }
        let (Ok(number), Some(list)) = (last.parse::<usize>(), self.value_mut(above)) else {
            return false;
        };
        let DeValue::Array(list) = list.get_mut() else { return false };
        let before = list.len();
        let rest = std::mem::replace(list, DeArray::new()).into_iter().enumerate();
        rest.filter(|(at, _)| *at != number).for_each(|(_, value)| list.push(value));
        list.len() < before
    }

    fn put(&mut self, place: &str, value: DeValue<'a>) -> bool {
        let key = place.rsplit('.').next().unwrap_or(place).to_owned();
        let number = self.stand_ins.iter().position(|(known, _)| known == place).unwrap_or(0);
        let Some(table) = self.table_mut(parent(place)) else { return false };
        // Behind the end of any file, and nothing else's.
        let nowhere = |n: usize| usize::MAX - 2 * number - n..usize::MAX;
        table.insert(Spanned::new(nowhere(1), Cow::Owned(key)), Spanned::new(nowhere(2), value));
        true
    }
}

/// The list of interfaces.
const INTERFACES: &str = "interface";

/// The feature that a section is for.
fn section(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|row| row.section.is_some_and(|section| section.is(name)))
}

/// The names by which a key is accepted.
fn names(key: &Key) -> impl Iterator<Item = &'static str> {
    [key.name].into_iter().chain(key.former)
}

/// A value as features read it.
fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::Other(number.as_str().to_owned()), Value::Integer),
        DeValue::Array(list) => {
            Value::List(list.iter().map(|item| plain(item.get_ref())).collect())
        }
        DeValue::Table(table) => {
            let entry = |(key, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                (key.get_ref().to_string(), plain(value.get_ref()))
            };
            Value::Table(table.iter().map(entry).collect())
        }
        DeValue::Float(number) => Value::Other(number.as_str().to_owned()),
        DeValue::Datetime(time) => Value::Other(time.to_string()),
    }
}

/// Adds the keys and sections of features to a message that lists what is known.
fn with_features<'m>(message: &'m str, place: &str) -> Cow<'m, str> {
    if !message.starts_with("unknown field ") || !message.contains(", expected one of ") {
        return Cow::Borrowed(message);
    }
    let keys: Vec<Key> = match parent(place).split_once('.') {
        None if parent(place).is_empty() => FEATURES.iter().filter_map(|row| row.section).collect(),
        Some((INTERFACES, _)) => FEATURES.iter().filter_map(|row| row.key).collect(),
        _ => Vec::new(),
    };
    let more: String = keys.iter().map(|key| format!(", `{}`", key.name)).collect();
    Cow::Owned(message.trim_end().to_owned() + &more)
}

/// The key or the value that an error is about, by its place.
enum Found {
    Key(String),
    Value(String),
}

fn find_in(table: &DeTable<'_>, place: &str, span: &Range<usize>) -> Option<Found> {
    table.iter().find_map(|(key, value)| {
        let place = join(place, key.get_ref());
        if key.span() == *span {
            return Some(Found::Key(place));
        }
        find_value(value, place, span)
    })
}

fn find_value(value: &Spanned<DeValue<'_>>, place: String, span: &Range<usize>) -> Option<Found> {
    let within = match value.get_ref() {
        DeValue::Table(table) => find_in(table, &place, span),
        DeValue::Array(list) => (list.iter().enumerate())
            .find_map(|(at, value)| find_value(value, join(&place, &at.to_string()), span)),
        _ => None,
    };
    within.or_else(|| (value.span() == *span).then_some(Found::Value(place)))
}

fn join(place: &str, step: &str) -> String {
    if place.is_empty() { step.to_owned() } else { format!("{place}.{step}") }
}

fn parent(place: &str) -> &str {
    place.rsplit_once('.').map_or("", |(above, _)| above)
}

/// Whether two places are the same, or one is within the other.
fn overlap(a: &str, b: &str) -> bool {
    let same = |(a, b): (&str, &str)| a == b || a == "*" || b == "*";
    a.split('.').zip(b.split('.')).all(same)
}

/// What stands between quotation marks of a message.
fn quotes(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

fn quoted(message: &str) -> Option<String> {
    quotes(message).first().map(ToString::to_string)
}

/// What is wrong with the value of a key.
fn of_value(key: &str, message: &str) -> String {
    // The words of serde mean little to who has not seen the code.
    if message == "wanted string or table" {
        return format!("`{key}`: a word in quotation marks is needed");
    }
    if message.starts_with("invalid type: map, expected a sequence") {
        return format!("`{key}` is a list of tables: write `[[{key}]]`");
    }
    if message.starts_with("invalid type: sequence, expected struct") {
        return one_table(key);
    }
    match message.starts_with("invalid ") {
        true => format!("`{key}`: {}", one_line(message)),
        false => with_suggestion(message),
    }
}

fn one_table(key: &str) -> String {
    format!("`{key}` is one table: write `[{key}]`")
}

/// Adds the nearest valid word to a message of the parser that lists the valid ones.
fn with_suggestion(message: &str) -> String {
    match quotes(message)[..] {
        [given, ref valid @ ..] if message.starts_with("unknown ") => {
            match nearest(given, valid.iter().copied()) {
                Some(near) => format!("{message}: did you mean `{near}`?"),
                None => message.to_owned(),
            }
        }
        _ => one_line(message),
    }
}

fn one_line(message: &str) -> String {
    message.trim_end().replace('\n', "; ")
}

/// Where the lines of a text begin behind the first one. A file of many mistakes is not read again for each of them.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at + 1).collect())
    }

    /// Number of the line, from 1, that has the byte at this place.
    fn line(&self, at: usize) -> usize {
        self.0.partition_point(|&start| start <= at) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn said(text: &str) -> Vec<String> {
        let mistakes = Config::parse(text, None).unwrap_err();
        mistakes.iter().map(|(line, what)| format!("{}: {what}", line.unwrap_or(0))).collect()
    }

    #[track_caller]
    fn are(text: &str, want: &[&str]) {
        let said = said(text);
        assert_eq!(said.len(), want.len(), "{said:#?}");
        for (said, want) in said.iter().zip(want) {
            assert!(said.starts_with(want), "{said}\nis not {want}");
        }
    }

    #[test]
    fn mistakes_of_all_kinds_are_found_at_once() {
        let text = r#"[[interface]]
nam = "wan0"
mode = "generik"
[[interface]]
name = "lan0"
table = "x"
[[filter]]
name = "a"
action = "dorp"
rate = 1000
prefixes = [
    "10.0.0.0/33",
    5,
]
interfaces = ["wan0"]
[[filter]]
action = "drop"
colour = "red"
[fibb]
algorithm_v4 = "auto"
[takeover]
ignore = ["nftable"]
[groups]
layout = 5
[[source]]
kind = "kernal"
[workers]
cores = []
"#;
        are(
            text,
            &[
                "2: unknown field `nam`, expected one of `name`, `mode`, ",
                "3: unknown variant `generik`, expected one of `auto`, ",
                "6: `table`: invalid type: string \"x\", expected u32",
                "9: unknown variant `dorp`, expected one of `pass`, `drop`, `count`, `limit`: did you mean `drop`?",
                "12: source filter \"a\": `10.0.0.0/33` is no IPv4 prefix",
                "13: `prefixes`: invalid type: integer `5`, expected a string",
                "16: missing field `name`",
                "18: unknown field `colour`, expected one of ",
                "19: unknown field `fibb`, expected one of ",
                "22: unknown subsystem `nftable`, did you mean `nftables`?",
                "24: `layout`: a word in quotation marks is needed",
                "26: unknown source kind `kernal`, did you mean `kernel`?",
                "28: `cores` is empty",
            ],
        );
        assert!(said(text)[0].ends_with(": did you mean `name`?"));
        assert!(said(text)[8].ends_with(": did you mean `fib`?"));
    }

    #[test]
    fn what_follows_from_a_mistake_is_none() {
        // No `missing field`, no rule about an action that is not known, nor about a rate that is.
        are("[[filter]]\nname = \"a\"\naction = \"limt\"\n", &["3: unknown variant `limt`"]);
        are(
            "[[filter]]\nname = \"a\"\naction = \"limit\"\nrat = 5\n",
            &["4: unknown field `rat`, expected one of "],
        );
        are("[[filter]]\nname = 5\naction = \"drop\"\n", &["2: `name`: invalid type: integer"]);
        are("[[source]]\nkind = \"file\"\npath = 5\n", &["3: `path`: invalid type: integer"]);
        are("[[source]]\nkind = \"fixed\"\nroutes = [7]\n", &["3: `routes`: invalid type"]);
        are(
            "[[intrface]]\nname = \"a\"\n[[interface]]\nname = \"b\"\n[[filter]]\nname = \"f\"\n\
             action = \"drop\"\ninterfaces = [\"a\"]\n",
            &["1: unknown field `intrface`"],
        );
        // Of two filters whose names are missing neither has the other's.
        let nameless = "[[filter]]\naction = \"drop\"\n";
        are(&nameless.repeat(2), &["1: missing field `name`", "3: missing field `name`"]);
    }

    #[test]
    fn a_place_is_found_where_it_stands() {
        are("fib.algorithm_v4 = \"dxr81\"\n", &["1: unknown algorithm `dxr81`"]);
        are("fib = { algorithm_v4 = \"auto\", algoritm_v6 = 5 }\n", &["1: unknown field"]);
        are("filter = 5\n", &["1: `filter`: invalid type: integer `5`"]);
        are("[filter]\nname = \"a\"\n", &["1: `filter` is a list of tables: write `[[filter]]`"]);
        are("[[fib]]\nalgorithm_v4 = \"auto\"\n", &["1: `fib` is one table: write `[fib]`"]);
        let twice = "[[interface]]\nname = \"a\"\n\n[[interface]]\n# again\nname = \"a\"\n";
        are(twice, &["6: interface \"a\" is named twice"]);
        // Another word of the file is the same.
        are(
            "[[interface]]\nname = \"nftable\"\n[takeover]\nignore = [\n  \"tc\",\n  \"nftable\",\n]\n",
            &["6: unknown subsystem `nftable`"],
        );
    }

    #[test]
    fn of_many_mistakes_the_first_ones_are_named() {
        let many = |line: &str| line.repeat(3 * super::MOST);
        let routes = format!("[[source]]\nkind = \"fixed\"\nroutes = [\n{}]\n", many("\"x\",\n"));
        let links = [("eth0".to_owned(), 2)];
        let found = Config::parse(&routes, Some(&links)).unwrap_err();
        assert_eq!((found.len(), found[0].0), (super::MOST, Some(4)));
        assert_eq!(found[super::MOST - 1].0, Some(3 + super::MOST));
        assert_eq!(said(&many("= 5\n")).len(), super::MOST);
        let named = many("[[interface]]\nname = \"a\"\n");
        assert_eq!(said(&named).len(), super::MOST);
    }

    #[test]
    fn mistakes_of_the_grammar_are_all_that_is_told() {
        let said = said("[fib]\nalgorithm_v4 = \n[[interface]\nname = \"a\"\nnam = 5\n");
        assert!(
            said.len() >= 2 && said[0].starts_with("2: ") && said[1].starts_with("3: "),
            "{said:#?}"
        );
        are("[fib]\n[fib]\n", &["2: duplicate key"]);
    }
}
