//! Interface features in a configuration: what does not go together with the mode of an interface, and the files that
//! features name. What features have of it is read by their rows (`fingerpost_packet::feature`).

use std::path::Path;

use fingerpost_packet::feature::row::{Settings, Support};
use fingerpost_packet::feature::{Feature, Mistake as Wrong};

use super::mistakes::Document;
use super::{Config, ConfigError, Mode};

/// What the kernel does in place of a feature on an interface that it forwards for.
pub(crate) fn in_kernel(row: &Feature, interface: &str) -> String {
    row.kernel.replace("NAME", interface)
}

/// A feature's name as configurations have it.
fn title(row: &Feature) -> String {
    row.key.map_or_else(|| row.name.to_owned(), |key| format!("`{}`", key.name))
}

impl Config {
    /// Features that an interface cannot have in its mode.
    pub(super) fn check_features(&self) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        for interface in &self.interface {
            let (name, mode) = (&interface.name, interface.mode.name());
            for (row, settings) in self.features.each() {
                let found = match interface.mode {
                    Mode::Kernel => settings.unlike_usual(name).map(|(_, place)| {
                        let local =
                            "; take another mode, or name other interfaces for `local = true`";
                        let remedy = if settings.is_local(name) { local } else { "" };
                        (place, in_kernel(row, name) + remedy)
                    }),
                    Mode::Xdp => graph_only(settings, name),
                    Mode::Auto | Mode::Afxdp | Mode::Generic => None,
                };
                if let Some((place, why)) = found {
                    let title = title(row);
                    let what = format!("interface {name:?}: no {title} with mode {mode:?}: {why}");
                    wrong.push(Wrong::new(place, what));
                }
            }
        }
        wrong
    }

    /// A line for each name in the file that the next release refuses.
    pub(crate) fn former_name_warnings(&self, file: &Path) -> impl Iterator<Item = String> {
        let file = file.display().to_string();
        self.former_names.iter().map(move |(line, what)| match line {
            Some(line) => format!("{file}:{line}: {what}"),
            None => format!("{file}: {what}"),
        })
    }

    /// These lines for a text that another reader applies; a text that is refused has none.
    pub(crate) fn former_names_of(file: &Path, text: &str) -> Vec<String> {
        let config = Self::of_text(file, text, None);
        config.map_or_else(|_| Vec::new(), |config| config.former_name_warnings(file).collect())
    }

    /// Files of features that cannot be read.
    pub(super) fn check_feature_files(&self) -> Vec<Wrong> {
        let files = self.features.each().flat_map(|(_, settings)| settings.files());
        let unreadable = |(place, path): (String, String)| {
            let error = super::readable(path.as_ref()).err()?;
            Some(Wrong::new(place, format!("{path}: {error}")))
        };
        files.filter_map(unreadable).collect()
    }

    /// Reads all files of features; `text` is that of the configuration.
    ///
    /// # Errors
    /// All mistakes in them.
    pub(crate) fn check_lists(&self, file: &Path, text: &str) -> Result<(), Vec<ConfigError>> {
        let found = self.features.each().flat_map(|(_, settings)| settings.check_files());
        let wrong = found.map(|wrong| ConfigError {
            file: file.to_owned(),
            line: Document::line_in(text, &wrong.at),
            what: wrong.what,
        });
        let wrong: Vec<ConfigError> = wrong.collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

/// Place and reason of a feature that an interface uses and the XDP datapath does not implement.
fn graph_only(settings: &dyn Settings, interface: &str) -> Option<(String, String)> {
    let used = settings.on(interface)?;
    match settings.xdp(Some(interface)) {
        Support::Xdp | Support::Partly(_) => None,
        Support::Graph(why) => Some((used.place, format!("{why}: take another mode"))),
    }
}

#[cfg(test)]
mod tests {
    use fingerpost_packet::feature::source_filter;
    use fingerpost_route::InterfaceSet;

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
            [[source_filter]]
            name = "attackers"
            action = "drop"
            file = "list.txt"
            prefixes = ["192.0.2.0/24", "2001:db8::1"]
            interfaces = ["wan0", "wan1"]
            [[source_filter]]
            name = "scanners"
            action = "limit"
            rate = 1000
            interfaces = ["wan0"]
            "#,
            None,
        )
        .unwrap();
        let names =
            |names: &[&str]| InterfaceSet::Some(names.iter().map(ToString::to_string).collect());
        assert_eq!(
            config.features.graph_only(),
            names(&[]),
            "XDP has their actions, or leaves packets one by one"
        );
        assert_eq!(Config::default().features.graph_only(), names(&[]));
        let items = |config: &Config| -> Vec<(String, String)> {
            let items = config.features.of::<source_filter::Settings>().items().into_iter();
            items.map(|item| (item.name, item.words)).collect()
        };
        let item = |name: &str, words: &str| (name.to_owned(), words.to_owned());
        assert_eq!(
            items(&config),
            [
                item("source-filter attackers", "drop, list.txt, 2 prefixes, wan0, wan1"),
                item("source-filter scanners", "limit 1000pps, wan0"),
            ]
        );
        let all = "[[source_filter]]\nname = \"a\"\naction = \"limit\"\nrate = \"8Mbps\"\n";
        let config = Config::parse(all, None).unwrap();
        assert_eq!(config.features.graph_only(), names(&[]));
        let want = [item("source-filter a", "limit 8Mbps, every interface")];
        assert_eq!(items(&config), want);
        // Forwarded here are the others.
        let kernel = format!("[[interface]]\nname = \"e\"\nmode = \"kernel\"\n{all}");
        assert!(Config::parse(&kernel, None).is_ok());
    }

    #[test]
    fn mistakes_name_the_line_and_the_remedy() {
        let filter =
            |rest: &str| format!("[[source_filter]]\nname = \"a\"\naction = \"drop\"\n{rest}");
        let interface = "[[interface]]\nname = \"wan0\"\n";
        for (text, want) in [
            (filter("prefixs = []"), "4: unknown field `prefixs`"),
            (
                filter("prefixes = [\n\"10.0.0.0/8\",\n\"10.0.0.0/33\"]"),
                "6: source filter \"a\": `10.0.0.0/33` is no IPv4 prefix",
            ),
            (filter("rate = 5"), "4: source filter \"a\": `rate` goes with action \"limit\""),
            (filter("interfaces = []"), "4: `interfaces` is empty: name one, or leave it out"),
            (
                filter("[[source_filter]]\nname = \"a\"\naction = \"pass\""),
                "5: source filter \"a\" is named twice",
            ),
            (
                "[[source_filter]]\nname = \"a\"\naction = \"limit\"".into(),
                "3: source filter \"a\": no rate: `rate = 1000`",
            ),
            (
                "[[source_filter]]\nname = \"a\"\naction = \"limit\"\nrate = \"fast\"".into(),
                "4: `fast` is no rate: `1000` packets",
            ),
            (
                "[[source_filter]]\nname = \"a\"\naction = \"limit\"\nrate = [1]".into(),
                "4: a rate is needed",
            ),
            (
                "[[source_filter]]\nname = \"a b\"\naction = \"drop\"".into(),
                "2: source filter \"a b\": a name has letters",
            ),
            ("[[source_filter]]\nname = \"a\"\naction = \"dorp\"".into(), "did you mean `drop`?"),
            ("[[source_filter]]\naction = \"drop\"".into(), "missing field `name`"),
            (
                format!("{interface}{}", filter("interfaces = [\"wan1\"]")),
                "6: unknown interface `wan1`, did you mean `wan0`?; correct it, or add `[[interface]]` with `name = \"wan1\"`",
            ),
            (
                format!("{interface}mode = \"kernel\"\n{}", filter("interfaces = [\"wan0\"]")),
                "7: interface \"wan0\": no source-filter with mode \"kernel\": the kernel forwards",
            ),
        ] {
            let got = refused(&text);
            assert!(got.contains(want), "{text:?}: {got}");
        }
        let local = filter("local = true\n");
        let acl = "[[acl]]\nname = \"a\"\ndirection = \"in\"\nlocal = true\nrules = [\n";
        for (text, want) in [
            (
                local.replace("\"drop\"", "\"limit\"\nrate = 5"),
                "5: source filter \"a\": `local = true` does not go with action \"limit\"",
            ),
            (
                format!("{acl}\"permit tcp\",\n\"deny ip ttl 1\"]"),
                "7: ACL \"a\": `deny ip ttl 1` does not go with `local = true`",
            ),
            (
                format!("{acl}]").replace("\"in\"", "\"out\""),
                "4: ACL \"a\": `local = true` goes with direction \"in\"",
            ),
            (
                format!("{interface}mode = \"kernel\"\n{local}"),
                "5: interface \"wan0\": no source-filter with mode \"kernel\": the kernel forwards, by its own \
                 rules; take another mode, or name other interfaces for `local = true`",
            ),
        ] {
            // One mistake, one message.
            let got = refused(&text);
            assert!(got.contains(want) && !got.contains('\n'), "{text:?}: {got}");
        }
        let many: String = (0..=15)
            .map(|n| format!("[[source_filter]]\nname = \"f{n}.\"\naction = \"count\"\n"))
            .collect();
        assert!(refused(&many).contains("47: limit exceeded: 15 filters"), "{}", refused(&many));
    }

    #[test]
    fn files_are_looked_for() {
        let path = std::path::Path::new("r.toml");
        let text = "[[source_filter]]\nname = \"a\"\naction = \"drop\"\nfile = \"/nowhere/list\"\n";
        let errors = Config::of_text(path, text, Some(&[])).unwrap_err();
        assert!(errors[0].to_string().starts_with("r.toml:4: /nowhere/list: "), "{errors:?}");
        assert!(Config::of_text(path, text, None).is_ok());
    }
}
