//! SYN1 and SYN2: larger tables out of a real one, as Poptrie's evaluation made them.
//!
//! Source: Asai and Ohara, SIGCOMM 2015, and the slides. A prefix is replaced by all the prefixes that
//! are some bits longer in it. Not stated there, so ours: a prefix that the table has already wins, and the
//! parts get different next hops (that of the prefix plus the number of the part, modulo their count),
//! or they would merge again.

use std::collections::HashMap;

use fingerpost_lpm::Prefix;

use crate::table::Table;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syn {
    /// Lengths 0 to 15 in 4 parts, 16 to 23 in 2.
    One,
    /// Lengths 0 to 15 in 8 parts, 16 to 19 in 4, 20 to 23 in 2.
    Two,
}

impl Syn {
    /// How many bits longer the parts of a prefix are.
    fn bits(self, len: u8) -> u8 {
        match (self, len) {
            (Self::One, 0..16) => 2,
            (Self::One, 16..24) => 1,
            (Self::Two, 0..16) => 3,
            (Self::Two, 16..20) => 2,
            (Self::Two, 20..24) => 1,
            _ => 0,
        }
    }

    /// What the table's name is followed by.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "SYN1",
            Self::Two => "SYN2",
        }
    }

    /// The larger table.
    pub fn split(self, table: &Table<u32>) -> Table<u32> {
        let mut found: HashMap<Prefix<u32>, u32> = HashMap::new();
        // The longest first: what stood there before wins over a part.
        let stays = |prefix: &Prefix<u32>| self.bits(prefix.len()) == 0;
        found.extend(table.routes.iter().filter(|(prefix, _)| stays(prefix)).copied());
        let mut rest: Vec<_> = table.routes.iter().filter(|(prefix, _)| !stays(prefix)).collect();
        rest.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let there: std::collections::HashSet<_> =
            table.routes.iter().map(|route| route.0).collect();
        for &(prefix, hop) in rest {
            let bits = self.bits(prefix.len());
            let len = prefix.len() + bits;
            for part in 0..1u32 << bits {
                let piece = Prefix::masked(prefix.addr() | part << (32 - len), len);
                // One that the table has keeps its own way: as it is, or in its own parts.
                if !there.contains(&piece) {
                    let hop = (hop - 1 + part) % table.nexthops.max(1) + 1;
                    found.entry(piece).or_insert(hop);
                }
            }
        }
        let file = format!("{} {}", table.file, self.name());
        Table { nexthops: table.nexthops, ..Table::new(&file, found.into_iter().collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_split_and_what_stood_there_wins() {
        let route = |text: &str, hop| (text.parse::<Prefix<u32>>().unwrap(), hop);
        let table = Table::new(
            "t",
            vec![route("10.0.0.0/8", 3), route("10.64.0.0/10", 1), route("11.0.0.0/24", 2)],
        );
        let one = Syn::One.split(&table);
        let text: Vec<_> = one.routes.iter().map(|(p, hop)| format!("{p} {hop}")).collect();
        let want = [
            "10.0.0.0/10 3",
            // 10.64.0.0/10 was there, so it went its own way: into four of length 12.
            "10.64.0.0/12 1",
            "10.80.0.0/12 2",
            "10.96.0.0/12 3",
            "10.112.0.0/12 1",
            "10.128.0.0/10 2",
            "10.192.0.0/10 3",
            "11.0.0.0/24 2",
        ];
        assert_eq!(text, want);
        assert_eq!((&one.file[..], one.nexthops), ("t SYN1", 3));
        assert_eq!(Syn::Two.split(&table).routes.len(), 8 + 8 + 1);
    }
}
