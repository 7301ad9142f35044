//! The membership that stands in the configuration: for a lab, two nodes or a fixed rack.
//!
//! Source: our own. There is no store, so nothing is announced: neighbors behind other nodes are looked up there.
//! Shape:  records with what the configuration has of each member.
//! Cost:   once.
//! Limits: a change needs the configuration of every node.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::member::{Conflict, Membership, Record};

/// A member as the configuration has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Name.
    pub id: String,
    /// Number; absent: its place among the ids in alphabetical order, from 1.
    pub number: Option<u16>,
    /// IPv4 address of the node.
    pub loopback: Option<Ipv4Addr>,
    /// IPv6 address of the node.
    pub loopback6: Option<Ipv6Addr>,
    /// Share of transit; 0 carries none.
    pub weight: u32,
}

/// The membership of these members, all with the cluster id and the digest of the settings of this node.
///
/// # Errors
/// The first conflict: two members with one id, number or loopback, or a record that makes no sense.
pub fn membership(members: &[Member], cluster: u8, digest: u32) -> Result<Membership, Conflict> {
    let mut ids: Vec<&str> = members.iter().map(|member| member.id.as_str()).collect();
    ids.sort_unstable();
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Conflict::SameId { id: twice[0].to_owned() });
    }
    let mut records = BTreeMap::new();
    for member in members {
        let place = ids.iter().position(|id| *id == member.id).map_or(1, |place| place + 1);
        let record = Record {
            id: member.id.clone(),
            number: member.number.unwrap_or(u16::try_from(place).unwrap_or(u16::MAX)),
            cluster,
            digest,
            loopback: member.loopback,
            loopback6: member.loopback6,
            weight: member.weight,
            ..Record::default()
        };
        let checked = record.check().map(|()| record);
        records.insert(member.id.clone(), checked);
    }
    let membership = Membership::new(None, &[], &records, 0);
    match membership.conflicts.first() {
        Some(conflict) => Err(conflict.clone()),
        None => Ok(membership),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, number: Option<u16>) -> Member {
        Member { id: id.to_owned(), number, weight: 1, ..Member::default() }
    }

    #[test]
    fn members_without_a_number_have_their_place() {
        let found = membership(&[member("c", None), member("a", None), member("b", None)], 1, 7);
        let found = found.unwrap();
        let numbers: Vec<_> =
            found.members.iter().map(|member| (member.number, member.id.as_str())).collect();
        assert_eq!(numbers, [(1, "a"), (2, "b"), (3, "c")]);
    }

    #[test]
    fn a_conflict_is_named() {
        let message = |members: &[Member]| membership(members, 1, 0).unwrap_err().to_string();
        assert_eq!(
            message(&[member("a", None), member("b", Some(1))]),
            "members a and b both have number 1; b is left out"
        );
        assert_eq!(message(&[member("a", None), member("a", None)]), "two nodes call themselves a");
        assert_eq!(
            message(&[member("a b", None)]),
            "the record of a b is unreadable: the id \"a b\" is not 1 to 63 letters, digits, dots, \
             hyphens and underscores"
        );
    }
}
