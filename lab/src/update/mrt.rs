//! Updates as collectors record them: BGP4MP messages (MRT types 16 and 17).
//!
//! Source: RFC 6396 section 4.4 (BGP4MP), RFC 6397 (with microseconds), RFC 4271 section 4.3 (UPDATE), RFC
//! 4760 (IPv6). Of a file with several peers all of them are taken, in order of arrival: the last word on
//! a prefix holds, whoever sent it. Messages with path numbers (RFC 7911) and states are passed over.

use std::net::IpAddr;

use anyhow::{Result, anyhow};
use fingerpost_route::AnyPrefix;
use fingerpost_route::bgp::{self, Fields, Words};

const BGP4MP: u16 = 16;
const BGP4MP_ET: u16 = 17;
const MESSAGE: u16 = 1;
const MESSAGE_AS4: u16 = 4;
const MESSAGE_LOCAL: u16 = 6;
const MESSAGE_AS4_LOCAL: u16 = 7;

const UPDATE: u8 = 2;
/// Marker of a BGP message.
const MARKER_BYTES: usize = 16;
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
/// When a record makes no sense.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Word>> {
    let (mut words, mut rest, mut number) = (Vec::new(), Fields(bytes), 0);
    while !rest.0.is_empty() {
        number += 1;
        record(&mut rest, &mut words).map_err(|error| anyhow!("record {number}: {error}"))?;
    }
    Ok(words)
}

fn record(rest: &mut Fields<'_>, words: &mut Vec<Word>) -> Result<(), Words> {
    let (kind, subtype, len) = rest.record()?;
    let mut body = Fields(rest.take(len as usize)?);
    if kind == BGP4MP_ET {
        body.take(4)?;
    } else if kind != BGP4MP {
        return Ok(());
    }
    let as_bytes = match subtype {
        MESSAGE | MESSAGE_LOCAL => 2,
        MESSAGE_AS4 | MESSAGE_AS4_LOCAL => 4,
        _ => return Ok(()),
    };
    // Both AS numbers, the interface, both addresses.
    body.take(2 * as_bytes + 2)?;
    let addr_bytes = if body.u16()? == 1 { 4 } else { 16 };
    body.take(2 * addr_bytes)?;
    body.take(MARKER_BYTES + 2)?;
    if body.u8()? == UPDATE { update(body, words) } else { Ok(()) }
}

/// Withdrawals first, as they stand in the message.
fn update(mut body: Fields<'_>, words: &mut Vec<Word>) -> Result<(), Words> {
    let withdrawn = body.counted()?;
    let attributes = body.counted()?;
    prefixes(withdrawn, false, None, words)?;
    let (mut hop, mut reached) = (None, Vec::new());
    for attribute in attributes.attributes() {
        let (kind, mut data) = attribute?;
        match kind {
            bgp::NEXT_HOP => hop = Some(data.next_hop(4)?),
            bgp::MP_REACH_NLRI => {
                let v6 = data.u16()? == 2;
                let safi = data.u8()?;
                let len = data.u8()?;
                let mut hops = Fields(data.take(len.into())?);
                data.u8()?;
                let Ok(hop) = hops.next_hop(len) else { continue };
                if safi == UNICAST {
                    prefixes(data, v6, Some(hop), &mut reached)?;
                }
            }
            bgp::MP_UNREACH_NLRI => {
                let v6 = data.u16()? == 2;
                if data.u8()? == UNICAST {
                    prefixes(data, v6, None, words)?;
                }
            }
            _ => {}
        }
    }
    words.append(&mut reached);
    if hop.is_some() { prefixes(body, false, hop, words) } else { Ok(()) }
}

/// All prefixes that are left.
fn prefixes(
    mut rest: Fields<'_>,
    v6: bool,
    hop: Option<IpAddr>,
    words: &mut Vec<Word>,
) -> Result<(), Words> {
    while !rest.0.is_empty() {
        words.push((rest.prefix(v6)?, hop));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

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
