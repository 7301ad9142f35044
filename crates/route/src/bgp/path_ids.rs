//! Whether the prefixes of a peer's messages have path identifiers, where its OPEN messages may be wrong about it.
//!
//! Source: RFC 7911. A monitoring router writes messages anew, and not always as the OPEN messages of the peer agree: bgpd
//! of FRR leaves path identifiers out, and GoBGP 4 writes them into its Loc-RIB without an agreement. Read in the other form,
//! `2400:cb00::/32` is the default route, and path 1 of any prefix is the default route three times.
//!
//! So both forms are tried until a message fits one of them only, which then is the form of all messages of the peer and
//! family. What a speaker writes always fits the form that it writes. No speaker writes the default route twice
//! in a list without identifiers, so that an identifier below 65,536 never fits as prefixes.
//!
//! A message before that one may fit both forms. The first byte of its path identifiers would be the length of a prefix: such
//! large ones are seldom, and it is read without them.
//!
//! Cost: two passes over the prefixes of the first messages, one of each peer and family as a rule; then a look at the
//! attributes of each message of a peer that has shown the form of one family.

use super::update::family;
use super::{Fields, MP_REACH_NLRI, MP_UNREACH_NLRI, Words};

/// Form of the messages of a peer, by family: IPv4 first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathIds {
    /// Whether its OPEN messages agree on path identifiers.
    agreed: [bool; 2],
    /// Whether both OPEN messages are known, and those of a BGP session.
    trusted: bool,
    /// Whether a message has shown that there are path identifiers.
    seen: [Option<bool>; 2],
    /// Whether a difference was reported.
    reported: [bool; 2],
}

/// Form of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Whether its prefixes have path identifiers, by family.
    pub has_ids: [bool; 2],
    /// What is to be reported: the first message that is not as agreed.
    pub report: Option<Words>,
}

impl PathIds {
    /// Path identifiers as the OPEN messages agree on them.
    pub fn new(agreed: [bool; 2], trusted: bool) -> Self {
        Self { agreed, trusted, ..Self::default() }
    }

    /// Replaces the agreement by that of `other`, and keeps what messages have shown.
    pub fn agree(&mut self, other: Self) {
        (self.agreed, self.trusted) = (other.agreed, other.trusted);
    }

    /// Form of an UPDATE message with this body, and the forms of the peer where the message is taken: one that is rejected
    /// shows nothing.
    ///
    /// # Errors
    /// When its prefixes can be read in neither form, or as a default route in one and as others in the other.
    pub fn form(&self, body: Fields<'_>) -> Result<(Form, Self), Words> {
        let mut form = Form { has_ids: self.agreed, report: None };
        let mut then = *self;
        if let [Some(v4), Some(v6)] = self.seen {
            form.has_ids = [v4, v6];
        } else {
            let lists = lists(body, self.seen.map(|seen| seen.is_none()))?;
            for (at, lists) in lists.iter().enumerate() {
                form.has_ids[at] = match self.seen[at] {
                    Some(seen) => seen,
                    None => then.decide(at, lists)?,
                };
            }
        }
        for (at, has_ids) in form.has_ids.into_iter().enumerate() {
            if has_ids != self.agreed[at] && !self.reported[at] {
                then.reported[at] = true;
                form.report = Some(if has_ids {
                    "prefixes have path identifiers, on which no OPEN messages agree, and are read so"
                } else {
                    "prefixes have no path identifiers, on which OPEN messages agree, and are read so"
                });
            }
        }
        Ok((form, then))
    }

    fn decide(&mut self, at: usize, lists: &[Fields<'_>]) -> Result<bool, Words> {
        let agreed = self.agreed[at];
        if lists.iter().all(|list| list.0.is_empty()) {
            return Ok(agreed);
        }
        let [without, with] = [false, true].map(|has_ids| walk(lists, at == 1, has_ids));
        let (as_agreed, other) = if agreed { (&with, &without) } else { (&without, &with) };
        let other_fits = other.as_ref().is_ok_and(|walk| walk.tidy);
        match as_agreed {
            Err(_) if other_fits => self.seen[at] = Some(!agreed),
            Err(what) => return Err(what),
            Ok(_) if other.is_err() => self.seen[at] = Some(agreed),
            Ok(_) => {}
        }
        if let Some(seen) = self.seen[at] {
            return Ok(seen);
        }
        let (Ok(without), Ok(with)) = (without, with) else { return Ok(agreed) };
        if agreed {
            return Ok(without.has_default || !without.tidy);
        }
        if !self.trusted && without.has_default && with.tidy && !with.has_default {
            return Err("a default route, or other prefixes with path identifiers");
        }
        Ok(false)
    }
}

/// What lists of prefixes are in one form.
struct Walk {
    /// Whether no bit is set behind the length of a prefix.
    tidy: bool,
    has_default: bool,
}

fn walk(lists: &[Fields<'_>], v6: bool, has_ids: bool) -> Result<Walk, Words> {
    let mut walk = Walk { tidy: true, has_default: false };
    for &(mut list) in lists {
        let mut defaults = 0;
        while !list.0.is_empty() {
            if has_ids {
                list.take(4)?;
            }
            let mut bytes = list;
            let len = list.prefix(v6)?.len();
            let last =
                bytes.take(1 + usize::from(len).div_ceil(8))?.last().copied().unwrap_or_default();
            walk.tidy &= len % 8 == 0 || last & (0xff >> (len % 8)) == 0;
            walk.has_default |= len == 0;
            defaults += u32::from(len == 0);
            if defaults > 1 && !has_ids {
                return Err("the default route twice, as where there are path identifiers");
            }
        }
    }
    Ok(walk)
}

/// The lists of prefixes of an UPDATE message, of IPv4 and of IPv6 where they are wanted.
fn lists(mut body: Fields<'_>, wanted: [bool; 2]) -> Result<[Vec<Fields<'_>>; 2], Words> {
    let withdrawn = body.counted()?;
    let attributes = body.counted()?;
    let v4 = if wanted[0] { vec![withdrawn, body] } else { Vec::new() };
    let mut lists = [v4, Vec::new()];
    for attribute in attributes.attributes() {
        // What follows a broken one is not where it seems to be.
        let Ok((kind, mut data)) = attribute else { break };
        if !matches!(kind, MP_REACH_NLRI | MP_UNREACH_NLRI) {
            continue;
        }
        let Some(v6) = family(&mut data)? else { continue };
        if kind == MP_REACH_NLRI {
            let len = data.u8()?;
            data.take(usize::from(len) + 1)?;
        }
        if wanted[usize::from(v6)] {
            lists[usize::from(v6)].push(data);
        }
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(v4: &[u8], v6: &[u8]) -> Vec<u8> {
        let mut attributes = vec![0x40, 3, 4, 192, 0, 2, 1];
        if !v6.is_empty() {
            let reach = [&[0, 2, 1, 16][..], &[0x20; 16], &[0], v6].concat();
            attributes.extend([0x80, MP_REACH_NLRI, u8::try_from(reach.len()).unwrap()]);
            attributes.extend(reach);
        }
        let len = u16::try_from(attributes.len()).unwrap().to_be_bytes();
        [&[0, 0][..], &len, &attributes, v4].concat()
    }

    fn form(ids: &mut PathIds, v4: &[u8], v6: &[u8]) -> Result<[bool; 2], Words> {
        let (form, then) = ids.form(Fields(&body(v4, v6)))?;
        *ids = then;
        Ok(form.has_ids)
    }

    #[test]
    fn a_message_that_fits_one_form_shows_it_for_all() {
        // 10.101.0.0/24 with path 1, and 10.1.2.0/24 without one.
        for (agreed, list, has_ids) in [
            (false, &[0, 0, 0, 1, 24, 10, 101, 0][..], true),
            (true, &[0, 0, 0, 1, 24, 10, 101, 0], true),
            (true, &[24, 10, 1, 2], false),
            (false, &[24, 10, 1, 2], false),
        ] {
            let ids = PathIds::new([agreed; 2], true);
            let (first, ids) = ids.form(Fields(&body(list, &[]))).unwrap();
            assert_eq!(first.has_ids, [has_ids, agreed], "{list:?}");
            assert_eq!(first.report.is_some(), has_ids != agreed, "{list:?}");
            // Two prefixes of /24, or one with a large identifier.
            let both = [24, 10, 1, 2, 24, 10, 1, 3];
            let (second, _) = ids.form(Fields(&body(&both, &[]))).unwrap();
            assert_eq!((second.has_ids[0], second.report), (has_ids, None));
        }
    }

    #[test]
    fn no_default_route_comes_of_the_wrong_form() {
        // 2400:cb00::/32 and 10.1.2.0/25 end in 0, the length of a default route behind four bytes.
        let mut ids = PathIds::new([true; 2], true);
        assert_eq!(form(&mut ids, &[25, 10, 1, 2, 0], &[32, 0x24, 0, 0xcb, 0]), Ok([false; 2]));
        // A real one has a small identifier.
        assert_eq!(form(&mut ids, &[0, 0, 0, 1, 0], &[0, 0, 0, 7, 0]), Ok([true; 2]));
        // Default routes of both families, as agreed.
        let mut ids = PathIds::new([false; 2], true);
        assert_eq!(form(&mut ids, &[0], &[0]), Ok([false; 2]));
        // Default, 10.5.0.0/16 and 11.0.0.0/8, or 11.0.0.0/8 with path 0x00100a05.
        let either = [0, 16, 10, 5, 8, 11];
        assert_eq!(form(&mut PathIds::new([false; 2], true), &either, &[]), Ok([false; 2]));
        assert!(form(&mut PathIds::new([false; 2], false), &either, &[]).is_err());
        assert_eq!(form(&mut PathIds::new([true; 2], false), &either, &[]), Ok([true; 2]));
        // Path 1, cut short: neither form.
        for agreed in [false, true] {
            let mut ids = PathIds::new([agreed; 2], false);
            assert!(form(&mut ids, &[0, 0, 0, 1, 24, 10, 101], &[]).is_err(), "{agreed}");
        }
    }

    #[test]
    fn an_empty_message_shows_nothing() {
        let mut ids = PathIds::new([true, false], true);
        assert_eq!(form(&mut ids, &[], &[]), Ok([true, false]));
        assert_eq!(ids, PathIds::new([true, false], true));
    }
}
