//! The record that a node publishes of itself, and the membership that the records of all nodes make.
//!
//! Source: our own; what `Membership` has is what a node must know of the others to send packets to them.
//! Shape:  JSON with a version; fields that are unknown are ignored, an unknown version is a conflict.
//! Cost:   a record a node: 100 bytes, and 50 a neighbor. A change of one parses one.
//! Limits: 1 MiB a record, 65,535 prefixes, neighbors and addresses each.
//!
//! Records come from a store that others write to: parsing never panics, and a record that conflicts with another is left
//! out of the membership with a message, so that one bad node does not harm the rest.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fingerpost_route::event::AnyPrefix;
use serde::{Deserialize, Serialize};

use super::value::{self, ValueError};
use crate::rule::MAX_NODES;

/// Version of the record that this program writes and reads.
pub const VERSION: u32 = 1;
/// Longest record that is read.
const MOST_BYTES: usize = 1 << 20;
/// Longest list in a record.
const MOST_ITEMS: usize = 65_535;
/// Longest id.
const MOST_ID: usize = 63;
/// Adjacency indexes have 24 bits.
const MOST_ADJACENCY: u32 = (1 << 24) - 1;

/// Prefixes as strings.
mod texts {
    use fingerpost_route::event::AnyPrefix;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(
        prefixes: &[AnyPrefix],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(prefixes.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<AnyPrefix>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        let parse = |text: &String| AnyPrefix::parse(text).map_err(de::Error::custom);
        texts.iter().map(parse).collect()
    }
}

/// A neighbor behind a node that other nodes may name as the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbor {
    /// Its address.
    pub address: IpAddr,
    /// Index of its adjacency at the node, from 1.
    pub adjacency: u32,
}

/// What a node publishes of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the record.
    pub version: u32,
    /// Name of the node.
    pub id: String,
    /// Number of the node, from 1.
    pub number: u16,
    /// Cluster id.
    pub cluster: u8,
    /// Differs from one start of the node to the next.
    pub boot: u32,
    /// Epoch of its adjacency indexes.
    pub epoch: u8,
    /// Share of transit; 0 carries none.
    pub weight: u32,
    /// Digest of the settings that all nodes must have in common.
    pub digest: u32,
    /// Version of the parameters that it has read.
    #[serde(default)]
    pub parameters: u64,
    /// IPv4 address of the node itself.
    #[serde(default)]
    pub loopback: Option<Ipv4Addr>,
    /// IPv6 address of the node itself.
    #[serde(default)]
    pub loopback6: Option<Ipv6Addr>,
    /// Its other addresses.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Prefixes of its external interfaces.
    #[serde(default, with = "texts")]
    pub prefixes: Vec<AnyPrefix>,
    /// Neighbors that are next hops.
    #[serde(default)]
    pub neighbors: Vec<Neighbor>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            version: VERSION,
            id: String::new(),
            number: 0,
            cluster: 0,
            boot: 0,
            epoch: 0,
            weight: 1,
            digest: 0,
            parameters: 0,
            loopback: None,
            loopback6: None,
            addresses: Vec::new(),
            prefixes: Vec::new(),
            neighbors: Vec::new(),
        }
    }
}

impl Record {
    /// The record that a node wrote.
    ///
    /// # Errors
    /// When the bytes are no record of this version, or have values out of their ranges.
    pub fn parse(bytes: &[u8]) -> Result<Self, ValueError> {
        let record: Self = value::parse(bytes, MOST_BYTES, ("version", VERSION))?;
        record.check()?;
        Ok(record)
    }

    /// The bytes to publish.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Checks the ranges of all values.
    ///
    /// # Errors
    /// When one is out of its range.
    pub fn check(&self) -> Result<(), ValueError> {
        let malformed = |message: String| Err(ValueError::Malformed(message));
        if !is_id(&self.id) {
            return malformed(format!(
                "the id {:?} is not 1 to {MOST_ID} letters, digits, dots, hyphens and underscores",
                self.id.chars().take(2 * MOST_ID).collect::<String>()
            ));
        }
        if !(1..MAX_NODES).contains(&usize::from(self.number)) {
            return malformed(format!("number {}, 1 to {}", self.number, MAX_NODES - 1));
        }
        for (what, items) in [
            ("addresses", self.addresses.len()),
            ("prefixes", self.prefixes.len()),
            ("neighbors", self.neighbors.len()),
        ] {
            if items > MOST_ITEMS {
                return malformed(format!("{items} {what}, at most {MOST_ITEMS}"));
            }
        }
        for neighbor in &self.neighbors {
            let Neighbor { address, adjacency } = neighbor;
            if !(1..=MOST_ADJACENCY).contains(adjacency) {
                return malformed(format!(
                    "adjacency {adjacency} of {address}, 1 to {MOST_ADJACENCY}"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a node may have this name. It is part of a key of the store.
#[must_use]
pub fn is_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=MOST_ID).contains(&id.len()) && id.bytes().all(allowed)
}

/// Something between records that an operator must mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Two nodes with one name write one record by turns.
    #[error("two nodes call themselves {id}")]
    SameId {
        /// The name.
        id: String,
    },
    /// A number for two.
    #[error("members {first} and {second} both have number {number}; {second} is left out")]
    SameNumber {
        /// The number.
        number: u16,
        /// Who keeps it.
        first: String,
        /// Who is left out.
        second: String,
    },
    /// A loopback for two.
    #[error("members {first} and {second} both have loopback {loopback}; {second} is left out")]
    SameLoopback {
        /// The address.
        loopback: IpAddr,
        /// Who keeps it.
        first: String,
        /// Who is left out.
        second: String,
    },
    /// A member of another cluster publishes here.
    #[error("member {id} has cluster id {theirs}, this node {ours}; it is left out")]
    Cluster {
        /// Which member.
        id: String,
        /// Its cluster id.
        theirs: u8,
        /// Ours.
        ours: u8,
    },
    /// A member has other settings. It stays in the membership: settings are rolled out one node at a time.
    #[error("member {id} has other cluster settings (digest {theirs:08x}, this node {ours:08x})")]
    Digest {
        /// Which member.
        id: String,
        /// Its digest.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// A record of another version, or no record at all.
    #[error("the record of {id} is unreadable: {why}")]
    Unreadable {
        /// Key of the record.
        id: String,
        /// Why.
        why: ValueError,
    },
}

/// All members that this node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Revision of the store, 0 without one.
    pub revision: u64,
    /// Sorted by number, no number or loopback twice.
    pub members: Vec<Record>,
    /// What is wrong between them.
    pub conflicts: Vec<Conflict>,
    /// Monotonic time since when the store does not answer. The members are the last known.
    pub store_lost_since: Option<Duration>,
}

impl Membership {
    /// The membership of these records by id. Where two conflict, the own record comes first, then those of the members
    /// `before`, then the order of numbers: a node that joins does not put out one that is there.
    #[must_use]
    pub fn new(
        own: Option<&Record>,
        before: &[Record],
        records: &BTreeMap<String, Result<Record, ValueError>>,
        revision: u64,
    ) -> Self {
        let mut membership = Self { revision, ..Self::default() };
        membership.members.extend(own.cloned());
        let mut others = Vec::new();
        for (id, record) in records {
            match record {
                Ok(record) if own.is_some_and(|own| own.id == record.id) => {}
                Ok(record) if record.id != *id => {
                    let why = ValueError::Malformed(format!("it names itself {}", record.id));
                    membership.conflicts.push(Conflict::Unreadable { id: id.clone(), why });
                }
                Ok(record) => others.push(record),
                Err(why) => {
                    let conflict = Conflict::Unreadable { id: id.clone(), why: why.clone() };
                    membership.conflicts.push(conflict);
                }
            }
        }
        let joins = |record: &Record| !before.iter().any(|member| member.id == record.id);
        others.sort_by_key(|record| (joins(record), record.number));
        others.into_iter().for_each(|record| membership.add(own, record));
        membership.members.sort_by_key(|record| record.number);
        membership
    }

    fn add(&mut self, own: Option<&Record>, record: &Record) {
        let (mut found, mut fatal) = (None, false);
        if let Some(own) = own {
            if own.cluster != record.cluster {
                let (theirs, ours) = (record.cluster, own.cluster);
                found = Some(Conflict::Cluster { id: record.id.clone(), theirs, ours });
                fatal = true;
            } else if own.digest != record.digest {
                let (theirs, ours) = (record.digest, own.digest);
                found = Some(Conflict::Digest { id: record.id.clone(), theirs, ours });
            }
        }
        self.conflicts.extend(found);
        let clash = self.members.iter().find_map(|first| clash(first, record));
        if !fatal && clash.is_none() {
            self.members.push(record.clone());
        }
        self.conflicts.extend(clash);
    }
}

/// What two members have that only one may.
#[must_use]
pub fn clash(first: &Record, second: &Record) -> Option<Conflict> {
    let (a, b) = (first.id.clone(), second.id.clone());
    if first.number == second.number {
        return Some(Conflict::SameNumber { number: first.number, first: a, second: b });
    }
    let same4 = first.loopback.filter(|_| first.loopback == second.loopback).map(IpAddr::V4);
    let same6 = first.loopback6.filter(|_| first.loopback6 == second.loopback6).map(IpAddr::V6);
    let loopback = same4.or(same6)?;
    Some(Conflict::SameLoopback { loopback, first: a, second: b })
}

/// Entry of a fuzzer: bytes of a store.
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing {
    use super::{Membership, Record};

    /// What is read is written and read again as it was, and makes a membership of one.
    pub fn check(bytes: &[u8]) {
        match Record::parse(bytes) {
            Ok(record) => {
                assert_eq!(Record::parse(&record.to_bytes()), Ok(record.clone()));
                let records = [(record.id.clone(), Ok(record.clone()))].into();
                assert_eq!(Membership::new(Some(&record), &[], &records, 1).members, [record]);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn full() -> Record {
        Record {
            id: "a.rack-1".to_owned(),
            number: 3,
            cluster: 1,
            boot: 77,
            loopback: Some(Ipv4Addr::new(192, 0, 2, 3)),
            loopback6: Some("2001:db8::3".parse().unwrap()),
            addresses: vec!["10.1.0.1".parse().unwrap()],
            prefixes: vec![
                AnyPrefix::V4("10.1.0.0/16".parse().unwrap()),
                AnyPrefix::V6("2001:db8:1::/48".parse().unwrap()),
            ],
            neighbors: vec![Neighbor { address: "10.1.0.5".parse().unwrap(), adjacency: 9 }],
            ..Record::default()
        }
    }

    fn member(id: &str, number: u16) -> Record {
        Record { id: id.to_owned(), number, ..Record::default() }
    }

    fn joined(own: &Record, others: &[Record]) -> Membership {
        let records = others.iter().map(|record| (record.id.clone(), Ok(record.clone())));
        Membership::new(Some(own), &[], &records.collect(), 1)
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let bytes = full().to_bytes();
        assert_eq!(Record::parse(&bytes), Ok(full()));
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains(r#""prefixes":["10.1.0.0/16","2001:db8:1::/48"]"#), "{text}");
        assert!(text.starts_with(r#"{"version":1,"id":"a.rack-1","number":3,"#), "{text}");
        // Fields of other programs of this version are passed over.
        let more = text.replace("\"epoch\"", "\"state\":\"draining\",\"epoch\"");
        let more = more.replace("\"adjacency\":9", "\"adjacency\":9,\"mtu\":1500");
        assert_eq!(
            (more.len() == text.len() + 30, Record::parse(more.as_bytes())),
            (true, Ok(full()))
        );
    }

    #[test]
    fn a_bad_record_has_one_clear_error() {
        let changed = |from: &str, to: &str| {
            let text = String::from_utf8(full().to_bytes()).unwrap();
            assert!(text.contains(from), "{from}");
            Record::parse(text.replace(from, to).as_bytes()).unwrap_err().to_string()
        };
        assert_eq!(
            changed("\"version\":1", "\"version\":2"),
            "it has version 2, this program reads version 1"
        );
        assert_eq!(changed("\"number\":3", "\"number\":0"), "number 0, 1 to 1023");
        assert_eq!(
            changed("\"adjacency\":9", "\"adjacency\":16777216"),
            "adjacency 16777216 of 10.1.0.5, 1 to 16777215"
        );
        let error = changed("10.1.0.0/16", "10.1.0.1/16");
        assert!(error.contains("host bits"), "{error}");
        assert!(changed("a.rack-1", "a/b").starts_with("the id \"a/b\" is not"));
        let error = Record::parse(b"\xff{}").unwrap_err().to_string();
        assert_eq!(error, "expected value at line 1 column 1");
        let error = Record::parse(&vec![b'['; MOST_BYTES]).unwrap_err().to_string();
        assert!(error.contains("recursion limit") || error.contains("invalid type"), "{error}");
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            at in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
        ) {
            testing::check(&bytes);
            let mut record = full().to_bytes();
            let at = at.index(record.len());
            record.splice(at..(at + 1), bytes);
            record.truncate(cut.index(record.len()) + 1);
            testing::check(&record);
        }
    }

    #[test]
    fn conflicts_are_named_and_the_own_record_stays() {
        let own = Record { loopback: Some(Ipv4Addr::new(192, 0, 2, 1)), ..member("m", 1) };
        let found = joined(
            &own,
            &[
                member("a", 1),
                Record { digest: 0xbeef, ..member("b", 2) },
                Record { cluster: 9, ..member("c", 3) },
                member("d", 2),
                Record { loopback: own.loopback, ..member("e", 5) },
            ],
        );
        let ids: Vec<_> = found.members.iter().map(|record| record.id.as_str()).collect();
        assert_eq!(ids, ["m", "b"]);
        let messages: Vec<_> = found.conflicts.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "members m and a both have number 1; a is left out",
                "member b has other cluster settings (digest 0000beef, this node 00000000)",
                "members b and d both have number 2; d is left out",
                "member c has cluster id 9, this node 0; it is left out",
                "members m and e both have loopback 192.0.2.1; e is left out",
            ]
        );
    }

    #[test]
    fn a_node_that_joins_puts_no_member_out() {
        let loopback = Some(Ipv4Addr::new(192, 0, 2, 2));
        let old = Record { loopback, ..member("b", 2) };
        let new = Record { loopback, ..member("aa", 3) };
        let both = joined(&member("a", 1), &[new.clone(), old.clone()]);
        assert_eq!(both.members, [member("a", 1), old.clone()], "{:?}", both.conflicts);
        // The number that is free may be a lower one.
        let new = Record { number: 1, ..new };
        let records = [("aa".to_owned(), Ok(new)), ("b".to_owned(), Ok(old.clone()))].into();
        let own = member("c", 4);
        let found = Membership::new(Some(&own), std::slice::from_ref(&old), &records, 1);
        assert_eq!(found.members, [old, own]);
        assert_eq!(found.conflicts.len(), 1);
    }

    #[test]
    fn a_record_under_the_name_of_another_is_left_out() {
        let records = [("b".to_owned(), Ok(member("c", 2)))].into();
        let found = Membership::new(Some(&member("a", 1)), &[], &records, 1);
        assert_eq!(found.members, [member("a", 1)]);
        assert_eq!(
            found.conflicts[0].to_string(),
            "the record of b is unreadable: it names itself c"
        );
    }
}
