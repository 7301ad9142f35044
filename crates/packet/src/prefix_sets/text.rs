//! Sets of prefixes as text: what handlers take and return.

use std::fmt::Write;
use std::net::IpAddr;

use fingerpost_route::AnyPrefix;

use super::{Edit, List, Mask, PrefixSets, read_file};
use crate::handler::Warnings;
use crate::language::open_policy::OpenPolicy;
use crate::route_table::Family;

/// A prefix, or an address, of either family. Host bits are cleared.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn read_prefix(word: &str) -> Result<AnyPrefix, String> {
    let prefix = if word.contains(':') {
        u128::prefix(word).map(AnyPrefix::V6)
    } else {
        u32::prefix(word).map(AnyPrefix::V4)
    };
    prefix.map_err(|what| format!("`{word}` is {what}"))
}

impl PrefixSets {
    /// `add SET PREFIX ..` and `remove SET PREFIX ..`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn write_edit(&self, add: bool, text: &str) -> Result<Warnings, String> {
        let mut edits = Vec::new();
        self.edits(add, text.split_ascii_whitespace(), &mut edits)?;
        self.edit(&edits)
    }

    /// Lines of these two; all of them or none.
    ///
    /// # Errors
    /// The first line that makes no sense, and why.
    pub(crate) fn write_ctrl(&self, text: &str) -> Result<Warnings, String> {
        let mut edits = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let mut words = line.split_ascii_whitespace();
            let read = match words.next() {
                None => Ok(()),
                Some("add") => self.edits(true, words, &mut edits),
                Some("remove") => self.edits(false, words, &mut edits),
                Some(word) => Err(format!("`{word}` is neither `add` nor `remove`")),
            };
            read.map_err(|words| format!("line {}: {words}", at + 1))?;
        }
        self.edit(&edits)
    }

    /// `set SET [PREFIX ..]`: these and no others.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn write_set(&self, text: &str) -> Result<(), String> {
        let mut words = text.split_ascii_whitespace();
        let set = self.set(words.next())?;
        let mut list = List::default();
        for word in words {
            list.push(read_prefix(word)?);
        }
        self.replace(set, list).map(drop).map_err(|error| error.to_string())
    }

    /// `load SET FILE`: those of the file and no others.
    ///
    /// # Errors
    /// What is wrong, in words; with the place where it is the file.
    pub(crate) fn write_load(&self, text: &str, policy: &OpenPolicy) -> Result<(), String> {
        let (name, file) =
            text.trim().split_once([' ', '\t']).ok_or("a SET and a FILE are wanted")?;
        let set = self.set(Some(name))?;
        let list = read_file(file.trim(), policy)?;
        self.replace(set, list).map(drop).map_err(|error| error.to_string())
    }

    /// Every prefix of a set, or of all, a line each behind its set's name.
    ///
    /// # Errors
    /// There is no such set.
    pub(crate) fn read_table(&self, text: &str) -> Result<String, String> {
        let sets = match text.trim() {
            "" => 0..self.names().len(),
            name => {
                let set = self.set(Some(name))?;
                set..set + 1
            }
        };
        let mut out = String::new();
        for set in sets {
            let (name, list) = (&self.names()[set], self.list(set));
            for prefix in list.v4 {
                let _ = writeln!(out, "{name}\t{prefix}");
            }
            for prefix in list.v6 {
                let _ = writeln!(out, "{name}\t{prefix}");
            }
        }
        Ok(out)
    }

    /// The sets that cover an address.
    ///
    /// # Errors
    /// It is no address.
    pub(crate) fn read_lookup(&self, text: &str) -> Result<Mask, String> {
        let word = text.trim();
        let addr: IpAddr = word.parse().map_err(|_| format!("`{word}` is no IP address"))?;
        Ok(self.lookup(addr))
    }

    /// The names of a mask, with commas; `-` for none.
    pub(crate) fn text(&self, mask: Mask) -> String {
        let names = self.names().iter().enumerate().filter(|(set, _)| mask & 1 << set != 0);
        let names: Vec<&str> = names.map(|(_, name)| &**name).collect();
        if names.is_empty() { "-".to_owned() } else { names.join(",") }
    }

    fn set(&self, name: Option<&str>) -> Result<usize, String> {
        let known = || self.names().join(", ");
        let name = name.ok_or_else(|| format!("the name of a set is wanted: {}", known()))?;
        let set = self.names().iter().position(|known| &**known == name);
        set.ok_or_else(|| format!("`{name}` is no set: {}", known()))
    }

    fn edits<'a>(
        &self,
        add: bool,
        mut words: impl Iterator<Item = &'a str>,
        edits: &mut Vec<Edit<AnyPrefix>>,
    ) -> Result<(), String> {
        let set = self.set(words.next())?;
        let before = edits.len();
        for word in words {
            edits.push(Edit { set, prefix: read_prefix(word)?, add });
        }
        if edits.len() == before { Err("a PREFIX is wanted".into()) } else { Ok(()) }
    }

    /// Carries edits out, and warns about those without effect: lists of prefixes repeat themselves.
    fn edit(&self, edits: &[Edit<AnyPrefix>]) -> Result<Warnings, String> {
        let new = self.apply(edits).map_err(|error| error.to_string())?;
        Ok(match edits.len() - new {
            0 => Warnings::new(),
            1 if edits.len() == 1 => {
                let Edit { set, prefix, add } = edits[0];
                let prefix = match prefix {
                    AnyPrefix::V4(prefix) => prefix.to_string(),
                    AnyPrefix::V6(prefix) => prefix.to_string(),
                };
                let has = if add { "has" } else { "does not have" };
                vec![format!("`{}` {has} {prefix} as it is", self.names()[set])]
            }
            vain => vec![format!("{vain} of {} changes had no effect", edits.len())],
        })
    }
}
