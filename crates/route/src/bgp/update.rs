//! BGP UPDATE messages.
//!
//! Source: RFC 4271 sections 4.3 and 9.1.2.2, RFC 4760 (other families), RFC 7911 (path identifiers), RFC 8950 (IPv4 over
//! IPv6 next hops), RFC 4724 section 2 (End-of-RIB). Unicast of IPv4 and IPv6; prefixes of other families are passed over.
//!
//! Cost: one pass over the message, and one allocation for the attributes of a message that announces prefixes.

use core::net::IpAddr;
use std::sync::Arc;

use super::{Fields, MP_REACH_NLRI, MP_UNREACH_NLRI, NEXT_HOP, Words};
use crate::event::AnyPrefix;

/// Type of an UPDATE message.
pub const UPDATE: u8 = 2;
/// Type of an OPEN message.
pub const OPEN: u8 = 1;

/// Bytes of a message's header: marker, length, type.
const HEADER_BYTES: usize = 19;

pub(super) const ORIGIN: u8 = 1;
pub(super) const AS_PATH: u8 = 2;
pub(super) const MULTI_EXIT_DISC: u8 = 4;
pub(super) const LOCAL_PREF: u8 = 5;

/// Type of a segment of AS_PATH whose AS numbers are in order.
pub(super) const SEQUENCE: u8 = 2;

const AFI_IPV4: u16 = 1;
const AFI_IPV6: u16 = 2;
const UNICAST: u8 = 1;

/// Value of ORIGIN that stands for INCOMPLETE, and for a missing attribute.
const INCOMPLETE: u8 = 2;

/// Bytes of an AS number in AS_PATH (RFC 6793).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsNumbers {
    /// Four.
    #[default]
    Long,
    /// Two.
    Short,
    /// Four, or two where the attribute makes no sense with four.
    Either,
}

/// How the speaker encodes its messages, as its OPEN messages agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// Bytes of an AS number.
    pub as_numbers: AsNumbers,
    /// Whether prefixes of IPv4, and of IPv6, have path identifiers (RFC 7911).
    pub add_path: [bool; 2],
    /// Next hop of IPv4 prefixes that come without one.
    pub next_hop: Option<IpAddr>,
}

impl Encoding {
    fn has_paths(self, v6: bool) -> bool {
        self.add_path[usize::from(v6)]
    }
}

/// Path attributes that the next hop and the choice of a path depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathAttributes {
    /// Next hop.
    pub next_hop: IpAddr,
    /// LOCAL_PREF, where there is one.
    pub local_pref: Option<u32>,
    /// Length of AS_PATH: a set counts as one, segments of a confederation not at all (RFC 5065).
    pub as_path_len: u32,
    /// ORIGIN: 0 IGP, 1 EGP, 2 INCOMPLETE.
    pub origin: u8,
    /// MULTI_EXIT_DISC, where there is one.
    pub med: Option<u32>,
}

/// One statement of an UPDATE message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// The path of a prefix, with its identifier, or 0.
    Announced(AnyPrefix, u32, Arc<PathAttributes>),
    /// The path of a prefix is gone.
    Withdrawn(AnyPrefix, u32),
    /// The speaker has sent its whole table of a family: IPv6 or IPv4.
    EndOfRib {
        /// Whether the family is IPv6.
        v6: bool,
    },
}

/// Type and body of a message, and what follows it.
///
/// # Errors
/// When it is not whole.
pub fn message<'a>(rest: &mut Fields<'a>) -> Result<(u8, Fields<'a>), Words> {
    rest.take(16)?; // marker
    let len = usize::from(rest.u16()?);
    let kind = rest.u8()?;
    let body = len.checked_sub(HEADER_BYTES).ok_or("a BGP message shorter than its header")?;
    Ok((kind, Fields(rest.take(body)?)))
}

/// Reads the body of an UPDATE message; withdrawals come before announcements.
///
/// # Errors
/// When it makes no sense. Prefixes whose attributes make none were visited as withdrawn (RFC 7606 section 2); where the
/// prefixes themselves cannot be read, nothing of the message was visited. A next hop of an odd length hides no prefix:
/// they follow behind as many bytes.
pub fn update(
    mut body: Fields<'_>,
    encoding: Encoding,
    visit: &mut dyn FnMut(Statement),
) -> Result<(), Words> {
    let withdrawn = body.counted()?;
    let attributes = body.counted()?;
    let announced = body;
    if withdrawn.0.is_empty() && attributes.0.is_empty() && announced.0.is_empty() {
        visit(Statement::EndOfRib { v6: false });
        return Ok(());
    }
    let mut statements = Vec::new();
    prefixes(withdrawn, false, encoding, |prefix, path| {
        statements.push(Statement::Withdrawn(prefix, path));
    })?;
    let (mut read, mut reach, mut mistake) = (Read::default(), None, None);
    for attribute in attributes.attributes() {
        let (kind, mut data) = match attribute {
            Ok(attribute) => attribute,
            // What follows is not where it seems to be.
            Err(what) => {
                mistake = Some(what);
                break;
            }
        };
        match kind {
            MP_UNREACH_NLRI => {
                if let Some(v6) = family(&mut data)? {
                    if data.0.is_empty() {
                        statements.push(Statement::EndOfRib { v6 });
                    }
                    prefixes(data, v6, encoding, |prefix, path| {
                        statements.push(Statement::Withdrawn(prefix, path));
                    })?;
                }
            }
            MP_REACH_NLRI => {
                if let Some(v6) = family(&mut data)? {
                    let len = data.u8()?;
                    let mut hops = Fields(data.take(len.into())?);
                    data.u8()?; // reserved
                    let next_hop = hops.next_hop(len);
                    mistake = mistake.or(next_hop.err());
                    reach = Some((v6, next_hop.ok(), data));
                }
            }
            _ => {
                if let Err(what) = read.attribute(kind, data, encoding.as_numbers) {
                    mistake = mistake.or(Some(what));
                }
            }
        }
    }
    let hop = read.next_hop.or(encoding.next_hop);
    let of_body = (!announced.0.is_empty()).then_some((false, hop, announced));
    for (v6, next_hop, rest) in reach.into_iter().chain(of_body) {
        if next_hop.is_none() {
            mistake = mistake.or(Some("prefixes without a next hop"));
        }
        let announced = next_hop.filter(|_| mistake.is_none()).map(|hop| Arc::new(read.with(hop)));
        prefixes(rest, v6, encoding, |prefix, path| {
            statements.push(match &announced {
                Some(attributes) => Statement::Announced(prefix, path, attributes.clone()),
                None => Statement::Withdrawn(prefix, path),
            });
        })?;
    }
    statements.into_iter().for_each(visit);
    mistake.map_or(Ok(()), Err)
}

/// Attributes of a path, as an entry of a table dump has them: MP_REACH_NLRI there may hold the next hop alone (RFC 6396
/// section 4.3.4). `None` without a next hop.
///
/// # Errors
/// When one makes no sense.
pub fn attributes(
    attributes: Fields<'_>,
    v6: bool,
    as_numbers: AsNumbers,
) -> Result<Option<PathAttributes>, Words> {
    let (mut read, mut multi) = (Read::default(), None);
    for attribute in attributes.attributes() {
        let (kind, mut data) = attribute?;
        if kind == MP_REACH_NLRI {
            // Some writers keep all of it, which begins with the high byte of the family, 0, where no next hop has length 0.
            if data.0.first() == Some(&0) {
                data.take(3)?;
            }
            let len = data.u8()?;
            multi = Some(data.next_hop(len)?);
        } else {
            read.attribute(kind, data, as_numbers)?;
        }
    }
    let next_hop = if v6 { multi.or(read.next_hop) } else { read.next_hop.or(multi) };
    Ok(next_hop.map(|next_hop| read.with(next_hop)))
}

/// Attributes read so far.
#[derive(Default)]
struct Read {
    next_hop: Option<IpAddr>,
    local_pref: Option<u32>,
    as_path_len: u32,
    origin: Option<u8>,
    med: Option<u32>,
}

impl Read {
    fn attribute(
        &mut self,
        kind: u8,
        mut data: Fields<'_>,
        as_numbers: AsNumbers,
    ) -> Result<(), Words> {
        let mut number = || data.array().map(u32::from_be_bytes);
        match kind {
            NEXT_HOP => self.next_hop = Some(data.next_hop(4)?),
            LOCAL_PREF => self.local_pref = Some(number()?),
            MULTI_EXIT_DISC => self.med = Some(number()?),
            ORIGIN => self.origin = Some(data.u8()?),
            AS_PATH => self.as_path_len = as_path_len(data, as_numbers)?,
            _ => {}
        }
        Ok(())
    }

    fn with(&self, next_hop: IpAddr) -> PathAttributes {
        PathAttributes {
            next_hop,
            local_pref: self.local_pref,
            as_path_len: self.as_path_len,
            origin: self.origin.unwrap_or(INCOMPLETE),
            med: self.med,
        }
    }
}

/// Length of an AS path by RFC 4271, section 9.1.2.2: a set counts as one.
fn as_path_len(data: Fields<'_>, as_numbers: AsNumbers) -> Result<u32, Words> {
    match as_numbers {
        AsNumbers::Long => as_path_len_of(data, 4),
        AsNumbers::Short => as_path_len_of(data, 2),
        AsNumbers::Either => {
            let long = as_path_len_of(data, 4);
            long.or_else(|what| as_path_len_of(data, 2).map_err(|_| what))
        }
    }
}

fn as_path_len_of(mut data: Fields<'_>, number_bytes: usize) -> Result<u32, Words> {
    const SET: u8 = 1;
    let mut len = 0;
    while !data.0.is_empty() {
        let (kind, count) = (data.u8()?, data.u8()?);
        data.take(usize::from(count) * number_bytes)?;
        len += match kind {
            SET => 1,
            SEQUENCE => u32::from(count),
            _ => 0,
        };
    }
    Ok(len)
}

/// Whether a family is IPv6 unicast or IPv4 unicast; `None` for others.
pub(crate) fn family(data: &mut Fields<'_>) -> Result<Option<bool>, Words> {
    let (afi, safi) = (data.u16()?, data.u8()?);
    Ok(match (afi, safi) {
        (AFI_IPV4, UNICAST) => Some(false),
        (AFI_IPV6, UNICAST) => Some(true),
        _ => None,
    })
}

/// All prefixes that are left, each with its path identifier.
fn prefixes(
    mut rest: Fields<'_>,
    v6: bool,
    encoding: Encoding,
    mut visit: impl FnMut(AnyPrefix, u32),
) -> Result<(), Words> {
    while !rest.0.is_empty() {
        let path = match encoding.has_paths(v6) {
            true => rest.array().map(u32::from_be_bytes)?,
            false => 0,
        };
        visit(rest.prefix(v6)?, path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
    }

    fn said(body: &[u8], encoding: Encoding) -> Result<Vec<String>, Words> {
        let mut said = Vec::new();
        update(Fields(body), encoding, &mut |statement| {
            said.push(match statement {
                Statement::Announced(prefix, path, a) => format!(
                    "{prefix} {path} {} pref {:?} len {} origin {} med {:?}",
                    a.next_hop, a.local_pref, a.as_path_len, a.origin, a.med
                ),
                Statement::Withdrawn(prefix, path) => format!("{prefix} {path} -"),
                Statement::EndOfRib { v6 } => format!("end {v6}"),
            });
        })?;
        Ok(said)
    }

    const ALL: &[u8] = &[
        0x40, 1, 1, 0, // IGP
        0x40, 2, 14, 2, 2, 0, 0, 0xfd, 0xe9, 0, 0, 0, 7, 1, 1, 0, 0, // a sequence of two
        0, 9, // and a set
        0x40, 3, 4, 192, 0, 2, 1, //
        0x80, 4, 4, 0, 0, 0, 5, //
        0x40, 5, 4, 0, 0, 0, 200,
    ];

    #[test]
    fn attributes_are_those_of_the_message() {
        let mut attributes = ALL.to_vec();
        attributes[6] = 16;
        let body = [&counted(&[8, 10])[..], &counted(&attributes), &[24, 12, 1, 2]].concat();
        assert_eq!(
            said(&body, Encoding::default()).unwrap(),
            ["10.0.0.0/8 0 -", "12.1.2.0/24 0 192.0.2.1 pref Some(200) len 3 origin 0 med Some(5)"]
        );
        // An ORIGIN without a value.
        attributes[2] = 0;
        attributes.remove(3);
        let broken = [&counted(&[8, 10])[..], &counted(&attributes), &[24, 12, 1, 2]].concat();
        let mut seen = Vec::new();
        let done =
            update(Fields(&broken), Encoding::default(), &mut |statement| seen.push(statement));
        let prefix = |text| AnyPrefix::parse(text).unwrap();
        let gone = ["10.0.0.0/8", "12.1.2.0/24"].map(|text| Statement::Withdrawn(prefix(text), 0));
        assert!(done.is_err() && seen == gone, "{seen:?}");
        for cut in 0..body.len() {
            // A message may end behind any prefix.
            let whole = cut == body.len() - 4;
            assert_eq!(said(&body[..cut], Encoding::default()).is_ok(), whole, "{cut}");
        }
    }

    #[test]
    fn path_identifiers_and_other_families_are_read_as_agreed() {
        let hop = [0x40, 3, 4, 192, 0, 2, 1];
        let v4 = [&counted(&[])[..], &counted(&hop), &[0, 0, 0, 9, 8, 10]].concat();
        let encoding =
            Encoding { as_numbers: AsNumbers::Short, add_path: [true, false], next_hop: None };
        assert_eq!(
            said(&v4, encoding).unwrap(),
            ["10.0.0.0/8 9 192.0.2.1 pref None len 0 origin 2 med None"]
        );
        // IPv4 with a next hop of IPv6, and VPN prefixes, which are passed over.
        let mut reach = vec![0x80, 14, 0, 0, 1, 1, 16];
        reach.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        reach.extend([0, 8, 10]);
        reach[2] = u8::try_from(reach.len() - 3).unwrap();
        let vpn = [0x80, 15, 4, 0, 1, 128, 0];
        let body = [&counted(&[])[..], &counted(&[&vpn[..], &reach].concat())].concat();
        assert_eq!(
            said(&body, Encoding::default()).unwrap(),
            ["10.0.0.0/8 0 2001:db8::1 pref None len 0 origin 2 med None"]
        );
    }

    /// RFC 7606, section 2: what the message withdraws is gone, and so is what it announces over nothing that can be read.
    #[test]
    fn a_next_hop_of_an_odd_length_leaves_the_withdrawals() {
        let reach = [0x80, 14, 13, 0, 2, 1, 5, 0x20, 1, 0x0d, 0xb8, 0, 0, 16, 0x20, 2];
        let unreach = [0x80, 15, 6, 0, 2, 1, 16, 0x20, 1];
        let attributes = counted(&[&reach[..], &unreach].concat());
        let body = [&counted(&[8, 10])[..], &attributes].concat();
        let (mut gone, encoding) = (Vec::new(), Encoding::default());
        let done = update(Fields(&body), encoding, &mut |statement| match statement {
            Statement::Withdrawn(prefix, _) => gone.push(prefix.to_string()),
            other => panic!("{other:?}"),
        });
        assert_eq!(done, Err("next hop of an odd length"));
        assert_eq!(gone, ["10.0.0.0/8", "2001::/16", "2002::/16"]);
    }

    #[test]
    fn as_numbers_of_two_bytes_are_taken_where_four_make_no_sense() {
        let path = |path: &[u8]| {
            let attribute = [&[0x40, 2, u8::try_from(path.len()).unwrap()][..], path].concat();
            let hop = [0x40, 3, 4, 192, 0, 2, 1];
            [&counted(&[])[..], &counted(&[&attribute[..], &hop].concat()), &[8, 10]].concat()
        };
        let (short, long) = (path(&[2, 2, 0xfd, 0xe9, 0, 7]), path(&[2, 1, 0, 0, 0xfd, 0xe9]));
        let either = Encoding { as_numbers: AsNumbers::Either, ..Encoding::default() };
        let len = |len: u8| format!("10.0.0.0/8 0 192.0.2.1 pref None len {len} origin 2 med None");
        assert_eq!(said(&short, either).unwrap(), [len(2)]);
        assert_eq!(said(&long, either).unwrap(), [len(1)]);
        assert!(said(&short, Encoding::default()).is_err());
        assert!(said(&path(&[2, 2, 0xfd]), either).is_err());
    }

    #[test]
    fn an_empty_message_ends_the_table_of_its_family() {
        let v6 = [0x80, 15, 3, 0, 2, 1];
        let v6 = [&counted(&[])[..], &counted(&v6)].concat();
        assert_eq!(said(&[0, 0, 0, 0], Encoding::default()).unwrap(), ["end false"]);
        assert_eq!(said(&v6, Encoding::default()).unwrap(), ["end true"]);
    }
}
