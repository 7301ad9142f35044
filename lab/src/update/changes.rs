//! Which changes: random routes withdrawn and announced again, or a recorded stream.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use fingerpost_command::load::Reader;
use fingerpost_lpm::input::{self, MOST_STREAM_BYTES};
use fingerpost_lpm::testing::Rng;
use fingerpost_lpm::{Addr, NextHopId, Prefix};
use fingerpost_route::AnyPrefix;
use fingerpost_route::bgp::mrt::{Message, Records, is_updates};
use fingerpost_route::bgp::update::Statement;
use fingerpost_route::source::table::PeerChoice;
use fingerpost_route::source::table::decompress::Decoded;

use crate::table::Table;

/// Changes in order; the next hop `NONE` withdraws.
pub type Changes<A> = Vec<(Prefix<A>, NextHopId)>;

/// Withdraws and announces again random routes of the table, one after the other. Each such pair leaves
/// the table as it was.
pub fn random_pairs<A: Addr>(table: &Table<A>, pairs: usize, seed: u64) -> Changes<A> {
    let mut rng = Rng::new(seed);
    let draw = |_| table.routes[rng.below(table.routes.len())];
    let drawn = (0..if table.routes.is_empty() { 0 } else { pairs }).map(draw);
    drawn.flat_map(|(prefix, hop)| [(prefix, NextHopId::NONE), (prefix, NextHopId(hop))]).collect()
}

/// A recorded stream, of both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Prefix and, for an announcement, the next hop as the file names it, numbered from 0.
    entries: Vec<(AnyPrefix, Option<u32>)>,
}

impl Recorded {
    /// Reads lines `TIME OP PREFIX NEXTHOP` (`a` announces, `w` withdraws), or an MRT file of updates,
    /// compressed or not; any other file as a table, of which every route is announced.
    ///
    /// # Errors
    /// When it cannot be read, or a line makes no sense.
    pub fn load(file: &Path) -> Result<Self> {
        let name = file.display().to_string();
        let opened = input::open(file, MOST_STREAM_BYTES).with_context(|| name.clone())?;
        let mut decoded = Decoded::new(&name, Box::new(opened))?;
        let (mut text, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match decoded.read_some(&mut piece)? {
                0 => break,
                len => text.extend_from_slice(&piece[..len]),
            }
        }
        let recorded = match std::str::from_utf8(&text) {
            Ok(text) => Self::lines(text).with_context(|| name.clone())?,
            Err(_) if is_updates(&text) => Self::mrt(&text).with_context(|| name.clone())?,
            Err(_) => Self::table(file)?,
        };
        ensure!(!recorded.entries.is_empty(), "{name}: no update");
        Ok(recorded)
    }

    fn lines(text: &str) -> Result<Self> {
        let mut hops = HashMap::new();
        let mut entries = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let wrong = || format!("line {}: {line:.60?} is not `TIME OP PREFIX NEXTHOP`", i + 1);
            if words.is_empty() || words[0].starts_with('#') {
                continue;
            }
            ensure!(words.len() >= 3, wrong());
            let prefix = match words[2].parse::<Prefix<u32>>() {
                Ok(prefix) => AnyPrefix::V4(prefix),
                Err(_) => AnyPrefix::V6(words[2].parse().ok().with_context(wrong)?),
            };
            let hop = match (words[1], words.get(3)) {
                ("w", _) => None,
                ("a", Some(&hop)) => {
                    let next = u32::try_from(hops.len()).with_context(wrong)?;
                    Some(*hops.entry(hop).or_insert(next))
                }
                _ => anyhow::bail!(wrong()),
            };
            entries.push((prefix, hop));
        }
        Ok(Self { entries })
    }

    /// Those of all peers in order of arrival: the last word on a prefix holds, whoever sent it.
    fn mrt(bytes: &[u8]) -> Result<Self> {
        let mut hops = HashMap::new();
        let mut entries = Vec::new();
        for (at, record) in Records::new(bytes).enumerate() {
            let mut read = || {
                let Some(message) = Message::of(&record?)? else { return Ok(()) };
                message.statements(&mut |statement| match statement {
                    Statement::Announced(prefix, _, attributes) => {
                        let next = u32::try_from(hops.len()).unwrap_or(u32::MAX);
                        let hop = *hops.entry(attributes.next_hop).or_insert(next);
                        entries.push((prefix, Some(hop)));
                    }
                    Statement::Withdrawn(prefix, _) => entries.push((prefix, None)),
                    Statement::EndOfRib { .. } => {}
                })
            };
            read().map_err(|words| anyhow!("record {}: {words}", at + 1))?;
        }
        Ok(Self { entries })
    }

    fn table(file: &Path) -> Result<Self> {
        let mut hops = HashMap::new();
        let mut entries = Vec::new();
        for entry in Reader::open(file, PeerChoice::First)? {
            let entry = entry?;
            let next = u32::try_from(hops.len()).context("too many next hops")?;
            entries.push((entry.prefix, Some(*hops.entry(entry.hop).or_insert(next))));
        }
        Ok(Self { entries })
    }

    /// Those of one family, with next hops that the table does not have.
    pub fn changes<A: Addr>(&self, table: &Table<A>) -> Changes<A> {
        let of_family = self.entries.iter().filter_map(|&(prefix, hop)| {
            let hop = hop.map_or(NextHopId::NONE, |hop| NextHopId(table.nexthops + 1 + hop));
            let (addr, len) = match prefix {
                AnyPrefix::V4(p) if A::FAMILY == 4 => (u128::from(p.addr()), p.len()),
                AnyPrefix::V6(p) if A::FAMILY == 6 => (p.addr(), p.len()),
                _ => return None,
            };
            Some((Prefix::masked(A::from_u128(addr), len), hop))
        });
        of_family.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_leave_the_table_as_it_was() {
        let routes = (0..50u32).map(|n| (Prefix::masked(n << 20, 12), n + 1)).collect();
        let table = Table::<u32>::new("t", routes);
        let changes = random_pairs(&table, 100, 1);
        assert_eq!(changes.len(), 200);
        for pair in changes.chunks(2) {
            assert!(pair[0].1.is_none() && table.routes.contains(&(pair[1].0, pair[1].1.0)));
            assert_eq!(pair[0].0, pair[1].0);
        }
        assert_eq!(random_pairs(&Table::<u32>::new("t", Vec::new()), 100, 1), []);
    }

    /// What collectors shipped: a whole table with three withdrawals, and five minutes of many peers.
    #[test]
    fn real_updates_announce_and_withdraw() {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
        let data = std::env::var_os("FINGERPOST_DATA").map_or(beside, Into::into);
        let file = |name: &str| data.join("mrt").join(name);
        if !file("updates.et-header.2015.gz").exists() {
            return println!("skipped: needs the route tables (FINGERPOST_DATA)");
        }
        let counts = |recorded: &Recorded| {
            let announced = recorded.entries.iter().filter(|entry| entry.1.is_some()).count();
            (announced, recorded.entries.len() - announced)
        };
        let whole = Recorded::load(&file("updates.et-header.2015.gz")).unwrap();
        assert_eq!(counts(&whole), (577_737, 3));
        let many = Recorded::load(&file("updates.20160811.1600.gz")).unwrap();
        let (announced, withdrawn) = counts(&many);
        assert!(announced > 10_000 && withdrawn > 1000, "{announced} {withdrawn}");
        let v6 = many.changes(&Table::<u128>::new("t", Vec::new())).len();
        let v4 = many.changes(&Table::<u32>::new("t", Vec::new())).len();
        assert!(v4 > 1000 && v6 > 1000 && v4 + v6 == many.entries.len(), "{v4} {v6}");
    }

    #[test]
    fn recorded_lines_are_read() {
        let text = "1 a 10.0.0.0/8 192.0.2.1\n# x\n2 w 10.0.0.0/8 0.0.0.0\n\
                    3 a 2001:db8::/32 fd00::1\n4 a 11.0.0.0/8 192.0.2.2\n";
        let recorded = Recorded::lines(text).unwrap();
        let table = Table::new("t", vec![("12.0.0.0/8".parse::<Prefix<u32>>().unwrap(), 5)]);
        let changes: Vec<_> =
            recorded.changes(&table).iter().map(|(p, hop)| format!("{p} {}", hop.0)).collect();
        assert_eq!(changes, ["10.0.0.0/8 6", "10.0.0.0/8 0", "11.0.0.0/8 8"]);
        assert_eq!(recorded.changes(&Table::<u128>::new("t", Vec::new())).len(), 1);
        for bad in ["1 a", "1 x 10.0.0.0/8 1", "1 a 10.0.0.0/8", "1 a ten 1"] {
            let error = Recorded::lines(bad).unwrap_err().to_string();
            assert!(error.starts_with("line 1: "), "{error}");
        }
        assert!(Recorded::load(Path::new("/nowhere")).is_err());
    }
}
