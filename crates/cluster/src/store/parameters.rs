//! Parameters of a cluster: what its nodes do alike, under one key of the store, and changes of them.
//!
//! Source: versioned configurations of SDN controllers; changes by compare-and-set, so that none is lost.
//! Shape:  JSON with the version of its format, 1, and the number of the change, from 1. A field that is unknown is an error: a node
//!         must not act on a part of a change.
//! Cost:   100 bytes, and 20 a node with a weight or state of its own.
//! Limits: 1 MiB.
//!
//! Parameters come from a store that others write to: parsing never panics, and what cannot be is one error.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use fingerpost_route::source::words::unknown;
use serde::{Deserialize, Serialize};

use super::member::is_id;
use super::value::{self, ValueError};
use crate::fabric::Mode;
use crate::plan::Rate;
use crate::rule::Rule;

/// Key of the parameters.
pub const KEY: &str = "parameters";
/// Version of the format that this program writes and reads.
pub const FORMAT: u32 = 1;
/// Greatest version. A store of nonsense can name no later one, which all nodes would keep.
pub const MOST_VERSION: u64 = 1 << 53;
/// Longest gap that ends a flowlet: entries of the table would wrap beyond some minutes.
pub const MOST_FLOWLET_MS: u32 = 10_000;
/// Lowest rate of a link, in bit/s.
pub const LEAST_RATE: u64 = 1_000_000;
/// Longest value that is read.
const MOST_BYTES: usize = 1 << 20;

/// What the nodes of a cluster do alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Version of the format.
    pub format: u32,
    /// Number of the change that made them, from 1.
    pub version: u64,
    /// Mode of the fabric.
    pub mode: Mode,
    /// Rule of the path choice.
    pub rule: Rule,
    /// Gap that ends a flowlet, in milliseconds.
    pub flowlet_ms: u32,
    /// Rate of each internal link in bit/s; absent: that of each node's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Shares of transit by node; those of others are in their configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
    /// Nodes that are to carry nothing for others.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub draining: BTreeSet<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            format: FORMAT,
            version: 1,
            mode: Mode::Vlb,
            rule: Rule::Adaptive,
            flowlet_ms: 2,
            rate_bps: None,
            weights: BTreeMap::new(),
            draining: BTreeSet::new(),
        }
    }
}

impl Parameters {
    /// The parameters that a node wrote.
    ///
    /// # Errors
    /// When the bytes are no parameters of this format, or have values out of their ranges.
    pub fn parse(bytes: &[u8]) -> Result<Self, ValueError> {
        let parameters: Self = value::parse(bytes, MOST_BYTES, ("format", FORMAT))?;
        parameters.check().map_err(ValueError::Malformed)?;
        Ok(parameters)
    }

    /// The bytes to store.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=MOST_VERSION).contains(&self.version) {
            return Err(format!("version {}, 1 to {MOST_VERSION}", self.version));
        }
        if self.flowlet_ms > MOST_FLOWLET_MS {
            return Err(format!("flowlet_ms {}, 0 to {MOST_FLOWLET_MS}", self.flowlet_ms));
        }
        if let Some(rate) = self.rate_bps.filter(|rate| *rate < LEAST_RATE) {
            return Err(format!("rate_bps {rate}, at least {LEAST_RATE}"));
        }
        match self.weights.keys().chain(&self.draining).find(|id| !is_id(id)) {
            Some(id) => {
                Err(format!("{:?} is no name of a node", id.chars().take(80).collect::<String>()))
            }
            None => Ok(()),
        }
    }
}

/// Word for what the configuration of each node has.
const CONFIGURED: &str = "configured";
/// Keys of changes.
const KEYS: [&str; 6] = ["mode", "rule", "flowlet_ms", "rate", "weight.NODE", "state.NODE"];

/// A change of parameters: what it does not name stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    mode: Option<Mode>,
    rule: Option<Rule>,
    flowlet_ms: Option<u32>,
    rate_bps: Option<Option<u64>>,
    weights: BTreeMap<String, Option<u32>>,
    draining: BTreeMap<String, bool>,
}

impl Change {
    /// The change that keys and their values in words describe: `rule` is `adaptive`, `state.b` is `draining`. A node that is named
    /// must be one of `members`, unless that only has the configuration of the node rule again.
    ///
    /// # Errors
    /// What is wrong with a key or value, with the valid ones.
    pub fn parse<'a>(
        words: impl IntoIterator<Item = (&'a str, &'a str)>,
        members: &[&str],
    ) -> Result<Self, String> {
        let mut change = Self::default();
        for (key, value) in words {
            let node = |id: &str, resets: bool| match resets || members.contains(&id) {
                true => Ok(id.to_owned()),
                false => {
                    Err(format!("`{key}`: {}", unknown("member", id, members.iter().copied())))
                }
            };
            match key.split_once('.').map_or((key, None), |(key, id)| (key, Some(id))) {
                ("mode", None) => change.mode = Some(named("mode", value, Mode::ALL, Mode::name)?),
                ("rule", None) => change.rule = Some(named("rule", value, Rule::ALL, Rule::name)?),
                ("flowlet_ms", None) => {
                    let number = value.parse().ok().filter(|ms| *ms <= MOST_FLOWLET_MS);
                    let what =
                        || format!("`flowlet_ms` must be from 0 to {MOST_FLOWLET_MS}, not {value}");
                    change.flowlet_ms = Some(number.ok_or_else(what)?);
                }
                ("rate", None) if value == CONFIGURED => change.rate_bps = Some(None),
                ("rate", None) => change.rate_bps = Some(Some(rate(value)?)),
                ("weight", Some(id)) if value == CONFIGURED => {
                    change.weights.insert(node(id, true)?, None);
                }
                ("weight", Some(id)) => {
                    let what =
                        |_| format!("`{key}` must be a number or `{CONFIGURED}`, not {value}");
                    change.weights.insert(node(id, false)?, Some(value.parse().map_err(what)?));
                }
                ("state", Some(id)) => {
                    let draining = match value {
                        "draining" => true,
                        "active" => false,
                        _ => {
                            return Err(format!(
                                "`{key}` must be `active` or `draining`, not {value}"
                            ));
                        }
                    };
                    change.draining.insert(node(id, !draining)?, draining);
                }
                _ => return Err(unknown("parameter", key, KEYS)),
            }
        }
        Ok(change)
    }

    /// The parameters after the change, with the next version.
    ///
    /// # Errors
    /// When there is no further version.
    pub fn apply(&self, before: &Parameters) -> Result<Parameters, String> {
        let mut after = before.clone();
        after.version = before.version.saturating_add(1);
        if after.version > MOST_VERSION {
            return Err(format!("there is no version above {MOST_VERSION}"));
        }
        after.mode = self.mode.unwrap_or(after.mode);
        after.rule = self.rule.unwrap_or(after.rule);
        after.flowlet_ms = self.flowlet_ms.unwrap_or(after.flowlet_ms);
        after.rate_bps = self.rate_bps.unwrap_or(after.rate_bps);
        for (id, weight) in &self.weights {
            match weight {
                Some(weight) => after.weights.insert(id.clone(), *weight),
                None => after.weights.remove(id),
            };
        }
        for (id, draining) in &self.draining {
            match draining {
                true => after.draining.insert(id.clone()),
                false => after.draining.remove(id),
            };
        }
        Ok(after)
    }
}

/// The value of this name.
fn named<T: Copy, const N: usize>(
    what: &str,
    value: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<T, String> {
    let found = all.into_iter().find(|one| name(*one) == value);
    found.ok_or_else(|| unknown(what, value, all.map(name)))
}

/// A rate in bit/s: `10Gbps`, `2.5G`.
///
/// # Errors
/// When it is none, or below 1 Mbps.
pub fn rate(text: &str) -> Result<u64, String> {
    match Rate::from_str(text.strip_suffix("bps").unwrap_or(text)) {
        Ok(Rate(bps)) if bps >= LEAST_RATE => Ok(bps),
        Ok(_) => Err(format!("`{text}` is below 1Mbps")),
        Err(_) => Err(format!("`{text}` is no rate: \"10Gbps\", \"2.5G\", or bits a second")),
    }
}

/// Entry of a property test: bytes of a store.
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing {
    use super::Parameters;

    /// What is read is written and read again as it was.
    ///
    /// # Panics
    /// When it is not.
    pub fn check(bytes: &[u8]) {
        match Parameters::parse(bytes) {
            Ok(parameters) => assert_eq!(Parameters::parse(&parameters.to_bytes()), Ok(parameters)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn full() -> Parameters {
        Parameters {
            version: 7,
            mode: Mode::Direct,
            rule: Rule::Fixed,
            rate_bps: Some(10_000_000_000),
            weights: [("b".to_owned(), 0)].into(),
            draining: ["c".to_owned()].into(),
            ..Parameters::default()
        }
    }

    #[test]
    fn parameters_are_read_as_they_were_written() {
        assert_eq!(Parameters::parse(&full().to_bytes()), Ok(full()));
        assert_eq!(
            String::from_utf8(Parameters::default().to_bytes()).unwrap(),
            r#"{"format":1,"version":1,"mode":"vlb","rule":"adaptive","flowlet_ms":2}"#
        );
    }

    #[test]
    fn nonsense_has_one_clear_error() {
        let changed = |from: &str, to: &str| {
            let text = String::from_utf8(full().to_bytes()).unwrap();
            assert!(text.contains(from), "{from}: {text}");
            Parameters::parse(text.replace(from, to).as_bytes()).unwrap_err().to_string()
        };
        for (from, to, want) in [
            ("\"format\":1", "\"format\":2", "it has format 2, this program reads format 1"),
            ("\"version\":7", "\"version\":0", "version 0, 1 to 9007199254740992"),
            ("\"version\":7", "\"version\":9007199254740993", "version 9007199254740993, 1 to"),
            ("\"direct\"", "\"mesh\"", "unknown variant `mesh`, expected `direct` or `vlb`"),
            ("\"flowlet_ms\":2", "\"flowlet_ms\":10001", "flowlet_ms 10001, 0 to 10000"),
            ("10000000000", "999", "rate_bps 999, at least 1000000"),
            ("\"c\"", "\"c/d\"", "\"c/d\" is no name of a node"),
            ("\"rule\"", "\"mtu\":9,\"rule\"", "unknown field `mtu`"),
        ] {
            let got = changed(from, to);
            assert!(got.starts_with(want), "{to}: {got}");
        }
        assert_eq!(
            Parameters::parse(b"\xff").unwrap_err().to_string(),
            "expected value at line 1 column 1"
        );
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            at in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
        ) {
            testing::check(&bytes);
            let mut value = full().to_bytes();
            let at = at.index(value.len());
            value.splice(at..(at + 1), bytes);
            value.truncate(cut.index(value.len()) + 1);
            testing::check(&value);
        }
    }

    fn changed(before: &Parameters, words: &[(&str, &str)]) -> Parameters {
        Change::parse(words.iter().copied(), &["a", "b", "c.d"]).unwrap().apply(before).unwrap()
    }

    #[test]
    fn a_change_has_the_next_version_and_leaves_the_rest() {
        let first = Parameters::default();
        let second = changed(
            &first,
            &[("rule", "fixed"), ("weight.b", "4"), ("state.c.d", "draining"), ("rate", "2.5Gbps")],
        );
        let wanted = Parameters {
            version: 2,
            rule: Rule::Fixed,
            rate_bps: Some(2_500_000_000),
            weights: [("b".to_owned(), 4)].into(),
            draining: ["c.d".to_owned()].into(),
            ..first.clone()
        };
        assert_eq!(second, wanted);
        let third = changed(&second, &[("mode", "direct"), ("flowlet_ms", "0")]);
        assert_eq!(third, Parameters { version: 3, mode: Mode::Direct, flowlet_ms: 0, ..wanted });
        // Also of nodes that have left.
        let words = [("weight.b", "configured"), ("state.c.d", "active"), ("rate", "configured")];
        let none = Change::parse(words, &[]).unwrap().apply(&second).unwrap();
        assert_eq!(none, Parameters { version: 3, rule: Rule::Fixed, ..first });
        let last = Parameters { version: MOST_VERSION, ..full() };
        assert!(Change::default().apply(&last).is_err());
    }

    #[test]
    fn mistakes_name_the_valid_words() {
        for (key, value, want) in [
            ("delta", "5ms", "unknown parameter `delta`, known: mode, rule, flowlet_ms, rate"),
            ("mode", "mesh", "unknown mode `mesh`, known: direct, vlb"),
            ("rule", "adaptiv", "unknown rule `adaptiv`, did you mean `adaptive`?"),
            ("flowlet_ms", "5ms", "`flowlet_ms` must be from 0 to 10000, not 5ms"),
            ("flowlet_ms", "10001", "`flowlet_ms` must be from 0 to 10000, not 10001"),
            ("rate", "fast", "`fast` is no rate"),
            ("rate", "10", "`10` is below 1Mbps"),
            ("weight.b", "-1", "`weight.b` must be a number or `configured`, not -1"),
            ("weight.x", "1", "`weight.x`: unknown member `x`, known: a, b"),
            ("state.b", "down", "`state.b` must be `active` or `draining`, not down"),
            ("state.x", "draining", "`state.x`: unknown member `x`, known: a, b"),
            ("weight", "1", "unknown parameter `weight`"),
        ] {
            let got = Change::parse([(key, value)], &["a", "b"]).unwrap_err();
            assert!(got.starts_with(want), "{key}={value}: {got}");
        }
    }
}
