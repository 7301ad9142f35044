//! Tables of the old iptables modules, which have no netlink: read by `getsockopt`.
//!
//! Source: the kernel's `include/uapi/linux/netfilter_ipv4/ip_tables.h`, `netfilter_ipv6/ip6_tables.h` and
//! `netfilter/x_tables.h`. A table is listed in `/proc/net/ip_tables_names` once it was used in this namespace, and
//! stays there when it is empty again. So each listed table is read: [`INFO`] has the first and the last rule of each hook,
//! and [`ENTRIES`], for the policies, has all rules. A request for a table that is not listed would
//! create it.
//!
//! ```text
//! info:    | name 32 | valid_hooks u32 | hook_entry 5 u32 | underflow 5 u32 | num_entries u32 | size u32 |
//! entries: | name 32 | size u32 | pad 4 | entry | entry | ...
//! entry:   | match | target_offset u16 | next_offset u16 | ... | target: size u16, name 29, 1 | verdict i32 |
//! ```

use super::Obstacle;

/// `IPT_SO_GET_INFO` and `IP6T_SO_GET_INFO`.
pub const INFO: i32 = 64;
/// `IPT_SO_GET_ENTRIES` and `IP6T_SO_GET_ENTRIES`.
pub const ENTRIES: i32 = 65;
/// Size of `ipt_getinfo`.
pub const INFO_BYTES: usize = 84;
/// Size of the name of a table, its terminating zero included.
const NAME_BYTES: usize = 32;
/// Where entries begin in an answer.
const HEAD_BYTES: usize = 40;
/// Size of `xt_entry_target`, behind which the verdict of a standard target stands.
const TARGET_BYTES: usize = 32;
/// `-NF_ACCEPT - 1`, the verdict of a policy that accepts.
const ACCEPT: i32 = -2;

/// The hooks that forwarded packets pass, as the kernel numbers them.
const HOOKS: [(usize, &str); 3] = [(0, "PREROUTING"), (2, "FORWARD"), (4, "POSTROUTING")];

/// One of the two families of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// `iptables` or `ip6tables`.
    pub name: &'static str,
    /// Where the kernel lists the tables of the calling thread's namespace.
    pub names: &'static str,
    /// Level of the socket options.
    pub level: i32,
    /// Address family of the socket.
    pub family: i32,
    /// Offset of `target_offset` in an entry.
    target_offset: usize,
}

/// Both of them.
pub const TOOLS: [Tool; 2] = [
    Tool {
        name: "iptables",
        names: "/proc/thread-self/net/ip_tables_names",
        level: 0,
        family: 2,
        target_offset: 88,
    },
    Tool {
        name: "ip6tables",
        names: "/proc/thread-self/net/ip6_tables_names",
        level: 41,
        family: 10,
        target_offset: 140,
    },
];

/// Where the rules of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    hooks: u32,
    begins: [u32; 5],
    ends: [u32; 5],
    size: u32,
}

/// The request for [`INFO`], which the kernel overwrites with the reply; `None` for a name that no table can have.
pub fn info_request(table: &str) -> Option<[u8; INFO_BYTES]> {
    let mut request = [0; INFO_BYTES];
    put_name(&mut request, table).then_some(request)
}

/// The request for [`ENTRIES`].
pub fn entries_request(table: &str, info: &Info) -> Option<Vec<u8>> {
    let mut request = vec![0; HEAD_BYTES + info.size as usize];
    request[NAME_BYTES..NAME_BYTES + 4].copy_from_slice(&info.size.to_ne_bytes());
    put_name(&mut request, table).then_some(request)
}

fn put_name(request: &mut [u8], table: &str) -> bool {
    let fits = !table.is_empty() && table.len() < NAME_BYTES;
    if fits {
        request[..table.len()].copy_from_slice(table.as_bytes());
    }
    fits
}

impl Info {
    /// Reads an answer.
    pub fn parse(answer: &[u8; INFO_BYTES]) -> Self {
        let word = |at: usize| {
            let word = answer[NAME_BYTES + 4 * at..].first_chunk().expect("13 words follow");
            u32::from_ne_bytes(*word)
        };
        Self {
            hooks: word(0),
            begins: std::array::from_fn(|hook| word(1 + hook)),
            ends: std::array::from_fn(|hook| word(6 + hook)),
            size: word(12),
        }
    }

    /// The hooks of forwarded packets that the table has: number and name of the chain.
    fn hooks(&self) -> impl Iterator<Item = (usize, &'static str)> {
        HOOKS.into_iter().filter(|(hook, _)| self.hooks >> hook & 1 == 1)
    }

    /// The first chain of forwarded packets that has rules: its policy does not stand first.
    pub fn rules(&self, tool: Tool, table: &str) -> Option<Obstacle> {
        let (_, chain) = self.hooks().find(|(hook, _)| self.begins[*hook] != self.ends[*hook])?;
        Some(obstacle(tool, table, &format!("chain {chain} has rules")))
    }

    /// The first chain of forwarded packets with a policy that drops, from the answer for [`ENTRIES`].
    pub fn policy(&self, tool: Tool, table: &str, answer: &[u8]) -> Option<Obstacle> {
        let drops = |hook: usize| {
            let entry = answer.get(HEAD_BYTES + self.ends[hook] as usize..)?;
            let at = entry.get(tool.target_offset..)?.first_chunk()?;
            let verdict = usize::from(u16::from_ne_bytes(*at)) + TARGET_BYTES;
            Some(i32::from_ne_bytes(*entry.get(verdict..)?.first_chunk()?) != ACCEPT)
        };
        let (_, chain) = self.hooks().find(|(hook, _)| drops(*hook).unwrap_or(true))?;
        Some(obstacle(tool, table, &format!("chain {chain} has policy DROP")))
    }
}

/// A table that the kernel lists but does not show, for this reason.
pub fn unknown(tool: Tool, table: &str, why: &str) -> Obstacle {
    obstacle(tool, table, &format!("cannot be read: {why}"))
}

fn obstacle(tool: Tool, table: &str, what: &str) -> Obstacle {
    let what = format!("{} (legacy) table {table}: {what}", tool.name);
    Obstacle { subsystem: "iptables", link: None, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The filter table of a tool, with chains INPUT, FORWARD and OUTPUT: an entry for each policy, and as many rules of
    /// FORWARD before its own.
    fn filter(tool: Tool, rules: u32, verdict: i32) -> (Info, Vec<u8>) {
        let bytes = tool.target_offset + 24 + 40;
        let entry = |verdict: i32| {
            let mut entry = vec![0; bytes];
            let target = u16::try_from(tool.target_offset + 24).unwrap();
            entry[tool.target_offset..tool.target_offset + 2]
                .copy_from_slice(&target.to_ne_bytes());
            let at = usize::from(target) + TARGET_BYTES;
            entry[at..at + 4].copy_from_slice(&verdict.to_ne_bytes());
            entry
        };
        let step = u32::try_from(bytes).unwrap();
        let forward = (1 + rules) * step;
        let mut words =
            vec![0b1110, 0, 0, step, forward + step, 0, 0, 0, forward, forward + step, 0];
        words.extend([3 + rules, (3 + rules) * step]);
        let mut answer = info_request("filter").unwrap();
        for (at, word) in words.iter().enumerate() {
            answer[NAME_BYTES + 4 * at..][..4].copy_from_slice(&u32::to_ne_bytes(*word));
        }
        let info = Info::parse(&answer);
        let mut entries = entries_request("filter", &info).unwrap()[..HEAD_BYTES].to_vec();
        entries.extend(entry(-1)); // INPUT drops, which is no matter of forwarded packets
        (0..rules).for_each(|_| entries.extend(entry(-1)));
        entries.extend(entry(verdict));
        entries.extend(entry(-1));
        (info, entries)
    }

    #[test]
    fn rules_and_policies_of_forwarded_packets_are_found() {
        for tool in TOOLS {
            let (info, entries) = filter(tool, 0, ACCEPT);
            assert_eq!(info.rules(tool, "filter"), None);
            assert_eq!(info.policy(tool, "filter", &entries), None);
            let (info, entries) = filter(tool, 0, -1);
            assert_eq!(info.rules(tool, "filter"), None);
            let found = info.policy(tool, "filter", &entries).unwrap();
            let want =
                format!("{} (legacy) table filter: chain FORWARD has policy DROP", tool.name);
            assert_eq!((found.subsystem, found.link, found.what), ("iptables", None, want));
            // What was cut off is not taken for harmless.
            assert!(info.policy(tool, "filter", &entries[..50]).is_some());
            let (info, _) = filter(tool, 2, ACCEPT);
            let found = info.rules(tool, "filter").unwrap();
            assert!(found.what.ends_with("table filter: chain FORWARD has rules"), "{found:?}");
        }
    }

    #[test]
    fn names_that_no_table_has_are_not_requested() {
        assert_eq!(info_request(""), None);
        assert_eq!(info_request(&"x".repeat(32)), None);
        assert!(info_request(&"x".repeat(31)).is_some());
    }
}
