//! The configuration file, and what is assumed without one.

use std::fmt;
use std::path::{Path, PathBuf};

use fingerpost_route::source::words::{nearest, unknown};
use serde::Deserialize;

/// All that can be configured. Everything has a default, so that `run` works without a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The interfaces to forward on; none named: every usable one.
    pub(crate) interface: Vec<Interface>,
    /// The sources of routes; none named: the kernel.
    pub(crate) source: Vec<Source>,
    pub(crate) fib: FibConfig,
    pub(crate) workers: Workers,
    pub(crate) takeover: Takeover,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interface {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) mode: Mode,
    /// The route table that its packets ask, and that holds its own prefixes; 0 is the main one.
    #[serde(default)]
    pub(crate) table: u32,
}

/// How an interface is driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// The fastest that works: zero-copy, native copy, generic.
    #[default]
    Auto,
    /// AF_XDP in the driver, or not at all.
    Afxdp,
    /// AF_XDP behind the driver, which every device can do.
    Generic,
    /// Left to the kernel.
    Kernel,
}

/// One source of routes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) path: Option<PathBuf>,
    #[serde(default)]
    pub(crate) routes: Vec<String>,
    #[serde(default)]
    pub(crate) distance: Option<u8>,
}

/// The lookup algorithms: `auto` or a name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FibConfig {
    pub(crate) algorithm_v4: String,
    pub(crate) algorithm_v6: String,
}

impl Default for FibConfig {
    fn default() -> Self {
        Self { algorithm_v4: "auto".into(), algorithm_v6: "auto".into() }
    }
}

/// The worker threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Workers {
    pub(crate) cores: Cores,
}

/// The processors to forward on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Cores {
    #[serde(skip)]
    #[default]
    Auto,
    /// `"auto"`, spelled out.
    Word(CoresWord),
    /// By number.
    List(Vec<usize>),
}

/// The one word that may stand for a list of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CoresWord {
    Auto,
}

/// What to do about things that the kernel does to forwarded packets and we do not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Takeover {
    /// Subsystems to take interfaces over in spite of: `rule`, `tc`, `xfrm`, `nftables`,
    /// `iptables`, `master`.
    pub(crate) ignore: Vec<String>,
}

/// What is wrong with a configuration, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    file: PathBuf,
    line: Option<usize>,
    what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads and checks a file. Nothing is changed by a file that is refused.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let fail = |line, what| ConfigError { file: path.to_owned(), line, what };
        let text = std::fs::read_to_string(path).map_err(|error| fail(None, error.to_string()))?;
        let config = Self::parse(&text).map_err(|(line, what)| fail(line, what))?;
        Ok(config)
    }

    fn parse(text: &str) -> Result<Self, (Option<usize>, String)> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            (line, with_suggestion(error.message()))
        })?;
        config.check().map_err(|(word, what)| {
            // Point at the first line that holds the offending word.
            let line = text.lines().position(|line| line.contains(&word)).map(|n| n + 1);
            (line, what)
        })?;
        Ok(config)
    }

    /// What the grammar cannot say: names that must exist, fields that go together.
    fn check(&self) -> Result<(), (String, String)> {
        let mut names: Vec<&str> = self.interface.iter().map(|i| i.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let what = format!("interface {:?} is named twice: keep one", twice[0]);
            return Err((twice[0].to_owned(), what));
        }
        for source in &self.source {
            let kinds = || fingerpost_route::source::SOURCES.iter().map(|kind| kind.name);
            if !kinds().any(|kind| kind == source.kind) {
                let what = unknown("source kind", &source.kind, kinds());
                return Err((source.kind.clone(), what));
            }
            if (source.kind == "file") != source.path.is_some() {
                let what = format!(
                    "source {:?}: `path` goes with kind \"file\" and only with it",
                    source.kind
                );
                return Err((source.kind.clone(), what));
            }
            if (source.kind == "fixed") == source.routes.is_empty() {
                let what = format!(
                    "source {:?}: `routes` goes with kind \"fixed\" and only with it",
                    source.kind
                );
                return Err((source.kind.clone(), what));
            }
        }
        let v4 = fingerpost_lpm::registry::v4().map(|row| row.name);
        algorithm(&self.fib.algorithm_v4, v4)?;
        let v6 = fingerpost_lpm::registry::v6().map(|row| row.name);
        algorithm(&self.fib.algorithm_v6, v6)?;
        for word in &self.takeover.ignore {
            if !crate::daemon::takeover::SUBSYSTEMS.contains(&word.as_str()) {
                let words = crate::daemon::takeover::SUBSYSTEMS.iter().copied();
                return Err((word.clone(), unknown("subsystem", word, words)));
            }
        }
        if self.workers.cores == Cores::List(Vec::new()) {
            return Err((
                "cores".into(),
                "`cores` is empty: name a processor, or say \"auto\"".into(),
            ));
        }
        Ok(())
    }

    /// Whether the kernel's routes are wanted.
    pub(crate) fn kernel_routes(&self) -> bool {
        self.source.is_empty() || self.source.iter().any(|source| source.kind == "kernel")
    }

    /// How an interface is to be driven; `None` when the file names others only.
    pub(crate) fn mode(&self, name: &str) -> Option<Mode> {
        if self.interface.is_empty() {
            return Some(Mode::Auto);
        }
        self.interface.iter().find(|i| i.name == name).map(|i| i.mode)
    }
}

fn algorithm(
    name: &str,
    names: impl Iterator<Item = &'static str> + Clone,
) -> Result<(), (String, String)> {
    if name == "auto" || names.clone().any(|n| n == name) {
        return Ok(());
    }
    let words = left_out(name);
    Err((name.to_owned(), words.unwrap_or_else(|| unknown("algorithm", name, names))))
}

/// Why the algorithm of this name is not here, if it could be.
pub(crate) fn left_out(name: &str) -> Option<String> {
    let feature = fingerpost_lpm::registry::needs(name)?;
    Some(format!("{name} is in programs built with `--features {feature}`, and not in this one"))
}

/// Adds the nearest valid word to a message of the parser that lists the valid ones.
fn with_suggestion(message: &str) -> String {
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match words[..] {
        [given, ref valid @ ..] if message.starts_with("unknown ") => {
            match nearest(given, valid.iter().copied()) {
                Some(near) => format!("{message}: did you mean `{near}`?"),
                None => message.to_owned(),
            }
        }
        _ => message.trim_end().replace('\n', "; "),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&b| b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_named() {
        assert_eq!(left_out("poptrie18").is_none(), cfg!(feature = "poptrie"));
        assert!(left_out("poptrie18").is_none_or(|words| words.contains("--features poptrie")));
        assert_eq!(left_out("dxr18"), None);
    }

    fn refused(text: &str) -> String {
        let (line, what) = Config::parse(text).unwrap_err();
        format!("{}: {what}", line.unwrap_or(0))
    }

    #[test]
    fn an_empty_file_and_a_full_one() {
        assert_eq!(Config::parse("").unwrap(), Config::default());
        let full = Config::parse(
            r#"
            [[interface]]
            name = "eth0"
            [[interface]]
            name = "eth1"
            mode = "kernel"
            table = 100
            [[source]]
            kind = "file"
            path = "table.mrt.gz"
            distance = 20
            [[source]]
            kind = "fixed"
            routes = ["0.0.0.0/0 via 192.0.2.1"]
            [fib]
            algorithm_v4 = "dxr18"
            [workers]
            cores = [1, 2]
            [takeover]
            ignore = ["nftables"]
            "#,
        )
        .unwrap();
        assert_eq!(full.mode("eth1"), Some(Mode::Kernel));
        assert_eq!(full.mode("eth7"), None);
        assert_eq!([full.interface[0].table, full.interface[1].table], [0, 100]);
        assert!(!full.kernel_routes());
        assert_eq!(full.workers.cores, Cores::List(vec![1, 2]));
        assert!(Config::parse("[workers]\ncores = \"auto\"").is_ok());
    }

    #[test]
    fn errors_name_the_line_and_the_nearest_word() {
        for (text, want) in [
            ("[fib]\nalgoritm_v4 = \"auto\"", "2: unknown field `algoritm_v4`"),
            ("[fib]\nalgoritm_v4 = \"auto\"", "did you mean `algorithm_v4`?"),
            (
                "\n[fib]\nalgorithm_v4 = \"dxr81\"",
                "3: unknown algorithm `dxr81`, did you mean `dxr",
            ),
            ("[[interface]]\nname = \"a\"\nmode = \"generik\"", "did you mean `generic`?"),
            ("[[interface]]\nname = \"a\"\n[[interface]]\nname = \"a\"", "named twice"),
            (
                "[[source]]\nkind = \"kernal\"",
                "2: unknown source kind `kernal`, did you mean `kernel`?",
            ),
            ("[[source]]\nkind = \"file\"", "`path` goes with kind \"file\""),
            ("[[source]]\nkind = \"kernel\"\npath = \"x\"", "`path` goes with"),
            ("[takeover]\nignore = [\"nftable\"]", "did you mean `nftables`?"),
            ("[workers]\ncores = []", "2: `cores` is empty"),
            ("[[interface]\n", "1: "),
        ] {
            let got = refused(text);
            assert!(got.contains(want), "{text:?}: {got}");
        }
    }
}
