//! Updates as collectors record them: BGP4MP messages (MRT types 16 and 17).
//!
//! Source: RFC 6396 section 4.4 (BGP4MP), RFC 6397 (with microseconds), RFC 4271 section 4.3 (UPDATE), RFC
//! 4760 (IPv6). Of a file with several peers all of them are taken, in order of arrival: the last word on
//! a prefix holds, whoever sent it. Messages with path numbers (RFC 7911) and states are passed over.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Result, bail};
use fingerpost_lpm::Prefix;
use fingerpost_route::AnyPrefix;

const BGP4MP: u16 = 16;
const BGP4MP_ET: u16 = 17;
const MESSAGE: u16 = 1;
const MESSAGE_AS4: u16 = 4;
const MESSAGE_LOCAL: u16 = 6;
const MESSAGE_AS4_LOCAL: u16 = 7;

const UPDATE: u8 = 2;
/// Marker, length and type of a BGP message.
const MARKER_BYTES: usize = 16;

const ATTR_EXTENDED_LEN: u8 = 0x10;
const ATTR_NEXT_HOP: u8 = 3;
const ATTR_MP_REACH_NLRI: u8 = 14;
const ATTR_MP_UNREACH_NLRI: u8 = 15;
const UNICAST: u8 = 1;

/// A prefix and its new next hop; none withdraws.
pub(super) type Word = (AnyPrefix, Option<IpAddr>);

/// Whether these are records of updates.
pub(super) fn is_updates(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, _, _, 0, 16 | 17, 0, 0..=11, ..])
}

/// All changes of a file, in its order.
///
/// # Errors
/// When a record ends inside a field.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Word>> {
    let (mut words, mut rest, mut number) = (Vec::new(), Fields(bytes), 0);
    while !rest.0.is_empty() {
        number += 1;
        if record(&mut rest, &mut words).is_none() {
            bail!("record {number}: ends inside a field");
        }
    }
    Ok(words)
}

/// `None` where something is missing.
fn record(rest: &mut Fields<'_>, words: &mut Vec<Word>) -> Option<()> {
    rest.take(4)?;
    let (kind, subtype) = (rest.u16()?, rest.u16()?);
    let len = usize::try_from(rest.u32()?).ok()?;
    let mut body = Fields(rest.take(len)?);
    if kind == BGP4MP_ET {
        body.take(4)?;
    } else if kind != BGP4MP {
        return Some(());
    }
    let as_bytes = match subtype {
        MESSAGE | MESSAGE_LOCAL => 2,
        MESSAGE_AS4 | MESSAGE_AS4_LOCAL => 4,
        _ => return Some(()),
    };
    // Both AS numbers, the interface, both addresses.
    body.take(2 * as_bytes + 2)?;
    let addr_bytes = if body.u16()? == 1 { 4 } else { 16 };
    body.take(2 * addr_bytes)?;
    body.take(MARKER_BYTES + 2)?;
    if body.u8()? != UPDATE {
        return Some(());
    }
    update(body, words)
}

/// Withdrawals first, as they stand in the message.
fn update(mut body: Fields<'_>, words: &mut Vec<Word>) -> Option<()> {
    let mut withdrawn = body.counted()?;
    let mut attributes = body.counted()?;
    withdrawn.prefixes(false, |prefix| words.push((prefix, None)))?;
    let (mut hop, mut reached) = (None, Vec::new());
    while !attributes.0.is_empty() {
        let (flags, kind) = (attributes.u8()?, attributes.u8()?);
        let long = flags & ATTR_EXTENDED_LEN != 0;
        let len = if long { attributes.u16()?.into() } else { attributes.u8()?.into() };
        let mut data = Fields(attributes.take(len)?);
        match kind {
            ATTR_NEXT_HOP => hop = Some(IpAddr::from(Ipv4Addr::from(data.array()?))),
            ATTR_MP_REACH_NLRI => {
                let v6 = data.u16()? == 2;
                let safi = data.u8()?;
                let len = data.u8()?;
                let mut hops = Fields(data.take(len.into())?);
                data.u8()?;
                let hop = match len {
                    4 => IpAddr::from(Ipv4Addr::from(hops.array()?)),
                    // A global address, and perhaps a link-local one behind it.
                    16 | 32 => Ipv6Addr::from(hops.array()?).into(),
                    _ => continue,
                };
                if safi == UNICAST {
                    data.prefixes(v6, |prefix| reached.push((prefix, Some(hop))))?;
                }
            }
            ATTR_MP_UNREACH_NLRI => {
                let v6 = data.u16()? == 2;
                if data.u8()? == UNICAST {
                    data.prefixes(v6, |prefix| words.push((prefix, None)))?;
                }
            }
            _ => {}
        }
    }
    words.append(&mut reached);
    if let Some(hop) = hop {
        body.prefixes(false, |prefix| words.push((prefix, Some(hop))))?;
    }
    Some(())
}

/// Fields in network order, taken from the front; `None` where there are too few bytes.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A length of two bytes, and so many bytes.
    fn counted(&mut self) -> Option<Fields<'a>> {
        let len = self.u16()?;
        self.take(len.into()).map(Fields)
    }

    /// All that are left: a length in bits, then as many bytes as hold them.
    fn prefixes(&mut self, v6: bool, mut each: impl FnMut(AnyPrefix)) -> Option<()> {
        while !self.0.is_empty() {
            let len = self.u8()?;
            let bytes = self.take(usize::from(len).div_ceil(8))?;
            let mut addr = [0; 16];
            addr.get_mut(..bytes.len())?.copy_from_slice(bytes);
            let addr = u128::from_be_bytes(addr);
            // Bits behind the length carry no meaning (RFC 4271 section 4.3).
            each(match v6 {
                true if len <= 128 => AnyPrefix::V6(Prefix::masked(addr, len)),
                false if len <= 32 => {
                    let top = u32::try_from(addr >> 96).expect("32 bits are left");
                    AnyPrefix::V4(Prefix::masked(top, len))
                }
                _ => return None,
            });
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
    }

    fn message(kind: u16, subtype: u16, bgp: u8, body: &[u8]) -> Vec<u8> {
        let as_bytes = if matches!(subtype, 1 | 6) { 2 } else { 4 };
        let len = u16::try_from(body.len() + 19).unwrap().to_be_bytes();
        let head = [&vec![7; 2 * as_bytes + 2][..], &[0, 1], &[9; 8], &[255; 16], &len, &[bgp]];
        let micros: &[u8] = if kind == 17 { &[0, 0, 0, 5] } else { &[] };
        let body = [micros, &head.concat(), body].concat();
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0, 0, 0, 1][..], &kind.to_be_bytes(), &subtype.to_be_bytes(), &len, &body].concat()
    }

    fn said(bytes: &[u8]) -> Vec<String> {
        let text = |(prefix, hop): &Word| match hop {
            Some(hop) => format!("{prefix} {hop}"),
            None => format!("{prefix} -"),
        };
        read(bytes).unwrap().iter().map(text).collect()
    }

    #[test]
    fn withdrawals_are_withdrawals() {
        let hop = [0x40, 3, 4, 192, 0, 2, 1];
        let v4 =
            [&counted(&[8, 10, 20, 11, 1, 0xff])[..], &counted(&hop), &[24, 12, 1, 2]].concat();
        let mut reach = vec![0x90, 14, 0, 0, 0, 2, 1, 16];
        reach.extend(Ipv6Addr::LOCALHOST.octets());
        reach.extend([0, 32, 0x20, 1, 0x0d, 0xb8]);
        reach[3] = u8::try_from(reach.len() - 4).unwrap();
        let unreach = [0x80, 15, 6, 0, 2, 1, 16, 0x20, 2];
        let v6 = [&counted(&[])[..], &counted(&[&unreach[..], &reach].concat())].concat();
        let file = [
            message(16, 4, 2, &v4),
            message(16, 4, 4, &[]),
            message(17, 4, 2, &v6),
            message(16, 5, 2, &[]),
            message(16, 1, 2, &[&counted(&[0])[..], &counted(&[])].concat()),
        ];
        let all = file.concat();
        assert!(is_updates(&all) && !is_updates(b"1 a 10.0.0.0/8 1"));
        assert_eq!(
            said(&all),
            [
                "10.0.0.0/8 -",
                "11.1.240.0/20 -",
                "12.1.2.0/24 192.0.2.1",
                "2002::/16 -",
                "2001:db8::/32 ::1",
                "0.0.0.0/0 -"
            ]
        );
        // Cut anywhere but between records.
        let ends: Vec<_> = (1..=file.len()).map(|n| file[..n].concat().len()).collect();
        for cut in 1..all.len() {
            assert_eq!(read(&all[..cut]).is_ok(), ends.contains(&cut), "{cut}");
        }
    }
}
