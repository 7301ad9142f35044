//! `[[filter]]`: lists of source prefixes, what becomes of who is on them, and the interfaces that they are for.

use std::collections::BTreeSet;
use std::path::Path;

use fingerpost_packet::source_filters::{
    self as lists, Action, Filter as Made, MOST_FILTERS, Rate, is_name,
};
use fingerpost_route::Filtered;
use fingerpost_route::source::words::unknown;
use serde::Deserialize;

use super::mistakes::Wrong;
use super::{Config, ConfigError, Mode};

/// One list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    pub(crate) name: String,
    pub(crate) action: Word,
    /// What it lets pass a second, where it limits.
    #[serde(default)]
    pub(crate) rate: Option<GivenRate>,
    /// Prefixes, one a line.
    #[serde(default)]
    pub(crate) file: Option<String>,
    /// Prefixes besides.
    #[serde(default)]
    pub(crate) prefixes: Vec<String>,
    /// The interfaces whose packets it is for; not said, all.
    #[serde(default)]
    pub(crate) interfaces: Option<Vec<String>>,
}

/// What becomes of packets whose source is on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Word {
    /// They pass, whatever other lists say.
    Pass,
    /// They are dropped, unless another list lets them pass.
    Drop,
    /// They are counted.
    Count,
    /// So many of them pass.
    Limit,
}

/// A rate, as people write it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub(crate) struct GivenRate(pub(crate) Rate);

/// As a file may have it.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a rate is needed: a number of packets a second, \"8Mbps\" or \"125kBps\""
)]
enum Written {
    Number(u64),
    Words(String),
}

impl TryFrom<Written> for GivenRate {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let text = match written {
            Written::Number(packets) => packets.to_string(),
            Written::Words(text) => text,
        };
        lists::rate(&text).map(Self)
    }
}

impl Filter {
    /// Checked before.
    fn action(&self) -> Action {
        match (self.action, &self.rate) {
            (Word::Pass, _) => Action::Pass,
            (Word::Drop, _) => Action::Drop,
            (Word::Count, _) | (Word::Limit, None) => Action::Count,
            (Word::Limit, Some(GivenRate(rate))) => Action::Limit(*rate),
        }
    }

    /// Where packets come in that it is for, in words.
    pub(crate) fn place(&self) -> String {
        self.interfaces.as_ref().map_or("every interface".to_owned(), |names| names.join(", "))
    }

    /// The same and all else, in a line; not the prefixes, of which there may be many.
    pub(crate) fn told(&self) -> String {
        let mut words = vec![self.action().to_string()];
        words.extend(self.file.clone());
        match self.prefixes.len() {
            0 => {}
            1 => words.push("1 prefix".to_owned()),
            many => words.push(format!("{many} prefixes")),
        }
        words.push(self.place());
        words.join(", ")
    }

    /// What is wrong with it by itself; `at` is its place.
    fn check(&self, at: &str) -> Vec<Wrong> {
        let name = &self.name;
        let mut wrong = Vec::new();
        let wrong_at = |key: &str, what: &str| {
            Wrong::new(format!("{at}.{key}"), format!("filter {name:?}: {what}"))
        };
        if !is_name(name) {
            wrong.push(wrong_at("name", "a name has letters, digits, `_`, `-` and `.`"));
        }
        match (self.action, &self.rate) {
            (Word::Limit, None) => {
                let words = "how much is to pass? `rate = 1000` packets a second, or \"8Mbps\"";
                wrong.push(wrong_at("action", words).with(format!("{at}.rate")));
            }
            (Word::Limit, Some(_)) | (_, None) => {}
            (_, Some(_)) => {
                let words = "`rate` goes with action \"limit\"";
                wrong.push(wrong_at("rate", words).with(format!("{at}.action")));
            }
        }
        if self.interfaces.as_ref().is_some_and(Vec::is_empty) {
            let words = "`interfaces` is empty: name one, or leave it out for all";
            wrong.push(wrong_at("interfaces", words));
        }
        for (i, text) in self.prefixes.iter().enumerate() {
            if let Err(words) = lists::prefix(text) {
                wrong.push(wrong_at(&format!("prefixes.{i}"), &words));
            }
        }
        wrong
    }
}

impl Config {
    /// Mistakes of filters, as [`Config::check`] has them.
    pub(super) fn check_filters(&self) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let mut names = BTreeSet::new();
        for (i, filter) in self.filter.iter().enumerate() {
            wrong.extend(filter.check(&format!("filter.{i}")));
            if !names.insert(&filter.name) {
                let what = format!("filter {:?} is named twice", filter.name);
                wrong.push(Wrong::new(format!("filter.{i}.name"), what));
            }
        }
        if self.filter.len() > MOST_FILTERS {
            let what = format!("limit exceeded: {MOST_FILTERS} filters, each a list of any length");
            wrong.push(Wrong::new(format!("filter.{MOST_FILTERS}.name"), what));
        }
        for (i, filter) in self.filter.iter().enumerate() {
            let name = &filter.name;
            for (at, interface) in filter.interfaces.iter().flatten().enumerate() {
                let known = || self.interface.iter().map(|known| known.name.as_str());
                if !self.interface.is_empty() && self.of(interface).is_none() {
                    let what = unknown("interface", interface, known());
                    let what = format!("filter {name:?}: {what}; those of [[interface]] forward");
                    let at = format!("filter.{i}.interfaces.{at}");
                    wrong.push(Wrong::new(at, what).with("interface.*.name"));
                }
            }
        }
        for (i, interface) in self.interface.iter().enumerate() {
            let why = match interface.mode {
                Mode::Kernel => "the kernel forwards, by its own rules",
                Mode::Xdp => "drivers look at no sources: take another mode",
                Mode::Auto | Mode::Afxdp | Mode::Generic => continue,
            };
            let named = |filter: &&Filter| match &filter.interfaces {
                Some(names) => names.contains(&interface.name),
                // What stays with the kernel is none of those that are forwarded here.
                None => interface.mode == Mode::Xdp,
            };
            for (at, filter) in self.filter.iter().enumerate().filter(|(_, filter)| named(filter)) {
                let (name, filter) = (&interface.name, &filter.name);
                let mode = interface.mode.name();
                let what = format!("interface {name:?}: no filter with mode {mode:?}: {why}");
                let wrong_here = Wrong::new(
                    format!("interface.{i}.mode"),
                    format!("{what} (filter {filter:?})"),
                );
                wrong.push(wrong_here.with(format!("filter.{at}.interfaces")));
            }
        }
        wrong
    }

    /// The filters, for who carries them out.
    pub(crate) fn filters(&self) -> Vec<Made> {
        let made = |filter: &Filter| Made {
            name: filter.name.clone(),
            action: filter.action(),
            file: filter.file.clone(),
            prefixes: filter.prefixes.iter().filter_map(|text| lists::prefix(text).ok()).collect(),
            interfaces: filter.interfaces.clone(),
        };
        self.filter.iter().map(made).collect()
    }

    /// Reads all lists, for who wants to know whether they can be.
    pub(crate) fn check_lists(&self, file: &Path, text: &str) -> Result<(), Vec<ConfigError>> {
        let mut wrong = Vec::new();
        for list in self.filter.iter().filter_map(|filter| filter.file.as_deref()) {
            if let Err(what) = lists::check_file(list) {
                let line = text.lines().position(|line| line.contains(list)).map(|n| n + 1);
                wrong.push(ConfigError { file: file.to_owned(), line, what });
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// The interfaces that have filters.
    /// Whether sources of what comes in by this interface are checked, or looked up in lists.
    pub(crate) fn looks_at_sources(&self, name: &str) -> bool {
        self.of(name).and_then(super::Interface::checks).is_some() || self.filtered().has(name)
    }

    /// The interfaces that filters are for.
    pub(crate) fn filtered(&self) -> Filtered {
        if self.filter.iter().any(|filter| filter.interfaces.is_none()) {
            return Filtered::All;
        }
        Filtered::Some(
            self.filter.iter().flat_map(|f| f.interfaces.iter().flatten()).cloned().collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let mistakes = Config::parse(text, None).unwrap_err();
        let said: Vec<String> =
            mistakes.iter().map(|(line, what)| format!("{}: {what}", line.unwrap_or(0))).collect();
        said.join("\n")
    }

    #[test]
    fn lists_of_every_form() {
        let config = Config::parse(
            r#"
            [[filter]]
            name = "attackers"
            action = "drop"
            file = "list.txt"
            prefixes = ["192.0.2.0/24", "2001:db8::1"]
            interfaces = ["wan0", "wan1"]
            [[filter]]
            name = "scanners"
            action = "limit"
            rate = 1000
            interfaces = ["wan0"]
            "#,
            None,
        )
        .unwrap();
        let names =
            |names: &[&str]| Filtered::Some(names.iter().map(ToString::to_string).collect());
        assert_eq!(config.filtered(), names(&["wan0", "wan1"]));
        assert_eq!(Config::default().filtered(), names(&[]));
        let told: Vec<String> = config.filter.iter().map(Filter::told).collect();
        assert_eq!(told, ["drop, list.txt, 2 prefixes, wan0, wan1", "limit 1000, wan0"]);
        let made = config.filters();
        assert_eq!((made[0].prefixes.len(), made[0].file.as_deref()), (2, Some("list.txt")));
        let all = "[[filter]]\nname = \"a\"\naction = \"limit\"\nrate = \"8Mbps\"\n";
        let config = Config::parse(all, None).unwrap();
        assert_eq!(config.filtered(), Filtered::All);
        assert_eq!(config.filter[0].told(), "limit 1000000Bps, every interface");
        // Forwarded here are the others.
        let kernel = format!("[[interface]]\nname = \"e\"\nmode = \"kernel\"\n{all}");
        assert!(Config::parse(&kernel, None).is_ok());
    }

    #[test]
    fn mistakes_name_the_line_and_the_remedy() {
        let filter = |rest: &str| format!("[[filter]]\nname = \"a\"\naction = \"drop\"\n{rest}");
        let interface = "[[interface]]\nname = \"wan0\"\n";
        for (text, want) in [
            (filter("prefixs = []"), "4: unknown field `prefixs`"),
            (
                filter("prefixes = [\n\"10.0.0.0/8\",\n\"10.0.0.0/33\"]"),
                "6: filter \"a\": `10.0.0.0/33` is no IPv4 prefix",
            ),
            (filter("rate = 5"), "4: filter \"a\": `rate` goes with action \"limit\""),
            (
                filter("interfaces = []"),
                "4: filter \"a\": `interfaces` is empty: name one, or leave it out",
            ),
            (
                filter("[[filter]]\nname = \"a\"\naction = \"pass\""),
                "5: filter \"a\" is named twice",
            ),
            (
                "[[filter]]\nname = \"a\"\naction = \"limit\"".into(),
                "3: filter \"a\": how much is to pass?",
            ),
            (
                "[[filter]]\nname = \"a\"\naction = \"limit\"\nrate = \"fast\"".into(),
                "4: `fast` is no rate: `1000` packets",
            ),
            (
                "[[filter]]\nname = \"a\"\naction = \"limit\"\nrate = [1]".into(),
                "4: a rate is needed",
            ),
            (
                "[[filter]]\nname = \"a b\"\naction = \"drop\"".into(),
                "2: filter \"a b\": a name has letters",
            ),
            ("[[filter]]\nname = \"a\"\naction = \"dorp\"".into(), "did you mean `drop`?"),
            ("[[filter]]\naction = \"drop\"".into(), "missing field `name`"),
            (
                format!("{interface}{}", filter("interfaces = [\"wan1\"]")),
                "6: filter \"a\": unknown interface `wan1`, did you mean `wan0`?",
            ),
            (
                format!("{interface}mode = \"xdp\"\n{}", filter("")),
                "3: interface \"wan0\": no filter with mode \"xdp\": drivers look at no sources",
            ),
            (
                format!("{interface}mode = \"kernel\"\n{}", filter("interfaces = [\"wan0\"]")),
                "3: interface \"wan0\": no filter with mode \"kernel\": the kernel forwards",
            ),
        ] {
            let got = refused(&text);
            assert!(got.contains(want), "{text:?}: {got}");
        }
        let many: String = (0..=MOST_FILTERS)
            .map(|n| format!("[[filter]]\nname = \"f{n}.\"\naction = \"count\"\n"))
            .collect();
        assert!(refused(&many).contains("47: limit exceeded: 15 filters"), "{}", refused(&many));
    }

    #[test]
    fn files_are_looked_for() {
        let path = std::path::Path::new("r.toml");
        let text = "[[filter]]\nname = \"a\"\naction = \"drop\"\nfile = \"/nowhere/list\"\n";
        let errors = Config::of_text(path, text, Some(&[])).unwrap_err();
        assert!(errors[0].to_string().starts_with("r.toml:4: /nowhere/list: "), "{errors:?}");
        assert!(Config::of_text(path, text, None).is_ok());
    }
}
