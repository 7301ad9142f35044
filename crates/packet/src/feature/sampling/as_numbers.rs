//! Tables of AS numbers: a file maps prefixes to them, since the route table has none.
//!
//! A line is a prefix or an address of either family and the number of its origin AS, `64500` or `AS64500`; `#` and `;` begin a
//! comment. 0 is for a prefix of no AS within one that has one. The file may be compressed.
//!
//! Cost:   a longest match in the store of prefixes an address; some 90 bytes a prefix of IPv4 and 150 of IPv6.

use std::net::IpAddr;

use fingerpost_lpm::PrefixMap;
use fingerpost_route::AnyPrefix;

use crate::language::open_policy::OpenPolicy;
use crate::prefix_sets::{read_lines, read_prefix};

/// Prefixes of a file at most: bounds the memory. A full table has a third of them.
const MOST_PREFIXES: usize = 1 << 22;

/// Table of AS numbers by prefix.
#[derive(Debug, Default)]
pub struct AsNumbers {
    v4: PrefixMap<u32, u32>,
    v6: PrefixMap<u128, u32>,
}

impl AsNumbers {
    /// Reads the table of a file.
    ///
    /// # Errors
    /// What is wrong with it, with its name and the number of the line.
    pub fn read(file: &str) -> Result<Self, String> {
        let mut all = Self::default();
        read_lines(file, &OpenPolicy::default(), &mut |line| all.line(line)).map(|()| all)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [prefix, number] = words[..] else {
            return Err(format!("`{}` is no PREFIX and AS number", line.trim_ascii()));
        };
        let prefix = read_prefix(prefix)?;
        let digits = number.strip_prefix("AS").unwrap_or(number);
        let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let as_number = digits.and_then(|digits| digits.parse().ok());
        let as_number = as_number.ok_or_else(|| {
            format!("`{number}` is no AS number: 0 to {}, as 64500 or AS64500", u32::MAX)
        })?;
        if self.len() == MOST_PREFIXES {
            return Err(format!("limit exceeded: {MOST_PREFIXES} prefixes"));
        }
        let before = match prefix {
            AnyPrefix::V4(prefix) => self.v4.insert(prefix, as_number),
            AnyPrefix::V6(prefix) => self.v6.insert(prefix, as_number),
        };
        match before {
            Some(before) if before != as_number => {
                Err(format!("the prefix has AS {before} in a line before"))
            }
            _ => Ok(()),
        }
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The AS number of an address; 0 where no prefix covers it.
    pub fn of(&self, addr: IpAddr) -> u32 {
        let found = match addr {
            IpAddr::V4(addr) => self.v4.longest_match(addr.to_bits()).map(|(_, number)| number),
            IpAddr::V6(addr) => self.v6.longest_match(addr.to_bits()).map(|(_, number)| number),
        };
        found.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Result<AsNumbers, String> {
        let mut all = AsNumbers::default();
        lines.iter().try_for_each(|line| all.line(line)).map(|()| all)
    }

    #[test]
    fn the_longest_prefix_has_the_number() {
        let lines = ["10.0.0.0/8 64500", " 10.1.0.0/16\tAS4200000001 ", "10.1.2.0/24 0"];
        let all =
            read(&[&lines[..], &["2001:db8::/32 65536", "10.0.0.0/8 AS64500"]].concat()).unwrap();
        assert_eq!((all.len(), all.is_empty()), (4, false));
        for (addr, number) in [
            ("10.9.9.9", 64_500),
            ("10.1.9.9", 4_200_000_001),
            ("10.1.2.9", 0),
            ("192.0.2.1", 0),
            ("2001:db8:9::1", 65_536),
            ("2001:db9::1", 0),
        ] {
            assert_eq!(all.of(addr.parse().unwrap()), number, "{addr}");
        }
    }

    #[test]
    fn a_wrong_line_refuses_the_file() {
        for (lines, want) in [
            (&["10.0.0.0/8"][..], "`10.0.0.0/8` is no PREFIX and AS number"),
            (&["10.0.0.0/8 1 2"], "`10.0.0.0/8 1 2` is no PREFIX"),
            (&["10.0.0.0/33 1"], "`10.0.0.0/33` is no IPv4 prefix"),
            (&["10.0.0.0/8 +1"], "`+1` is no AS number: 0 to 4294967295"),
            (&["10.0.0.0/8 4294967296"], "`4294967296` is no AS number"),
            (&["10.0.0.0/8 1", "10.0.0.0/8 2"], "the prefix has AS 1 in a line before"),
        ] {
            let wrong = read(lines).unwrap_err();
            assert!(wrong.starts_with(want), "{wrong}");
        }
        assert!(AsNumbers::read("/nowhere/at/all").unwrap_err().starts_with("/nowhere/at/all: "));
    }
}
