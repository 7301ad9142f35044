//! The route tables of a bench, as the files have them, one family each.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use fingerpost_command::load::Reader;
use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::{Addr, NextHopId, Prefix, RouteStore};
use fingerpost_route::AnyPrefix;
use fingerpost_route::source::table::PeerChoice;

use crate::document::{BenchDocument, Run, TableInfo};
use crate::machine::machine;

/// One family of a table: prefixes with the dense number of their next hop, from 1.
#[derive(Clone, Debug)]
pub struct Table<A: Addr> {
    /// Where it came from.
    pub file: String,
    /// Routes by address, then length; no prefix twice.
    pub routes: Vec<(Prefix<A>, u32)>,
    /// How many next hops there are.
    pub nexthops: u32,
}

impl<A: Addr> Table<A> {
    /// Sorts; of several routes of a prefix the last one stays.
    pub fn new(file: &str, mut routes: Vec<(Prefix<A>, u32)>) -> Self {
        routes.reverse();
        routes.sort_by_key(|route| route.0);
        routes.dedup_by_key(|route| route.0);
        let nexthops = routes.iter().map(|route| route.1).max().unwrap_or(0);
        Self { file: file.to_owned(), routes, nexthops }
    }

    /// Its description in a document.
    pub fn info(&self) -> TableInfo {
        TableInfo {
            file: self.file.clone(),
            routes: self.routes.len(),
            nexthops: self.nexthops as usize,
            family: A::FAMILY,
        }
    }

    /// Its routes as a store and an oracle take them.
    pub fn pairs(&self) -> impl Iterator<Item = (Prefix<A>, NextHopId)> + '_ {
        self.routes.iter().map(|&(prefix, hop)| (prefix, NextHopId(hop)))
    }

    /// The oracle over its routes.
    pub fn oracle(&self) -> Oracle<A> {
        self.pairs().collect()
    }

    /// Its routes in a store.
    pub fn store(&self) -> RouteStore<A> {
        self.pairs().collect()
    }

    /// Every n-th route, so that there are at most `most`.
    pub fn thin(&mut self, most: usize) {
        let step = self.routes.len().div_ceil(most.max(1)).max(1);
        self.routes = self.routes.iter().copied().step_by(step).collect();
    }
}

/// Both families of some files.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// IPv4, if there is any.
    pub v4: Option<Table<u32>>,
    /// IPv6, if there is any.
    pub v6: Option<Table<u128>>,
}

impl Tables {
    /// Those of one family.
    pub(crate) fn only(&self, family: u8) -> Self {
        Self {
            v4: self.v4.clone().filter(|_| family == 4),
            v6: self.v6.clone().filter(|_| family == 6),
        }
    }

    /// The document of what was run over them.
    ///
    /// # Errors
    /// When there is no table, or nothing ran.
    pub(crate) fn document(&self, runs: Vec<Run>) -> Result<BenchDocument> {
        if runs.is_empty() {
            bail!("none of these algorithms has the family of the table");
        }
        let (v4, v6) = (self.v4.as_ref().map(Table::info), self.v6.as_ref().map(Table::info));
        let infos: Vec<_> = v4.into_iter().chain(v6).collect();
        let table = infos.first().cloned().context("no table")?;
        let tables = if infos.len() > 1 { infos } else { Vec::new() };
        Ok(BenchDocument { machine: machine(), table, tables, runs })
    }

    /// Reads text or MRT files, compressed or not.
    ///
    /// # Errors
    /// When a file cannot be read, is cut short, or there is no route in any.
    pub fn load<P: AsRef<Path>>(files: &[P]) -> Result<Self> {
        let mut numbers = HashMap::new();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let (mut file4, mut file6) = (String::new(), String::new());
        for file in files {
            let file = file.as_ref();
            let name = file.display().to_string();
            for entry in Reader::open(file, PeerChoice::First)? {
                let entry = entry?;
                let next = u32::try_from(numbers.len() + 1).context("too many next hops")?;
                let number = *numbers.entry((entry.prefix.family(), entry.hop)).or_insert(next);
                match entry.prefix {
                    AnyPrefix::V4(prefix) => {
                        v4.push((prefix, number));
                        file4.clone_from(&name);
                    }
                    AnyPrefix::V6(prefix) => {
                        v6.push((prefix, number));
                        file6.clone_from(&name);
                    }
                }
            }
        }
        if v4.is_empty() && v6.is_empty() {
            bail!("no routes in the given files");
        }
        dense(&mut v4);
        dense(&mut v6);
        Ok(Self {
            v4: (!v4.is_empty()).then(|| Table::new(&file4, v4)),
            v6: (!v6.is_empty()).then(|| Table::new(&file6, v6)),
        })
    }
}

/// Numbers next hops from 1 without gaps, in order of appearance.
fn dense<A: Addr>(routes: &mut [(Prefix<A>, u32)]) {
    let mut numbers = HashMap::new();
    for (_, number) in routes {
        let next = u32::try_from(numbers.len() + 1).expect("fewer than before");
        *number = *numbers.entry(*number).or_insert(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_become_sorted_tables() {
        let path = std::env::temp_dir().join(format!("fingerpost-table-{}", std::process::id()));
        let text = "10.0.0.0/8 192.0.2.1\n2001:db8::/32 fd00::1\n10.0.0.0/8 192.0.2.2\n\
                    9.0.0.0/8 192.0.2.1\n";
        std::fs::write(&path, text).unwrap();
        let tables = Tables::load(&[&path]).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut v4 = tables.v4.unwrap();
        let prefix = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        assert_eq!(v4.routes, [(prefix("9.0.0.0/8"), 1), (prefix("10.0.0.0/8"), 2)]);
        assert_eq!((v4.nexthops, tables.v6.unwrap().info().routes), (2, 1));
        v4.thin(1);
        assert_eq!(v4.routes.len(), 1);
        assert!(Tables::load(&["/nowhere"]).is_err());
    }
}
