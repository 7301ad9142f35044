//! Answers neighbor solicitations: `NDAdvertiser(2001:db8::1 fe80::1 02:00:00:00:00:01, ...)`.
//!
//! Source: Click's `IP6NDAdvertiser`; RFC 4861, 7.2.4 and 7.2.8, RFC 4862, 5.4. The twin of `ARPResponder`, with its
//! entries and handlers ([`super::arp_responder`]). The solicitation becomes the advertisement: from the address that
//! was solicited, as of a router unless `ROUTER false` is given, and for a prefix without the flag that overrides
//! what others advertise. A duplicate address detection is answered to all nodes. What is no valid solicitation,
//! or for nobody here, goes to output 1, or is dropped.

use std::sync::Arc;

use fingerpost_route::{Mac, Reader};

use super::arp_responder::{Table, Tables, read_entries, spec};
use crate::frame::counters::Count;
use crate::frame::wire::ether::TYPE_IP6;
use crate::frame::wire::nd::{
    ADVERTISEMENT, ALL_NODES, ND_BYTES, Nd, OVERRIDE, ROUTER, SOLICITATION, SOLICITED,
    multicast_mac,
};
use crate::frame::wire::{ETHER_BYTES, Ether, EtherMut};
use crate::frame::{Batch, DropReason, FLAG_LINK_MULTICAST};
use crate::graph::{Context, Element, ElementClass, Exit};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: spec("NDAdvertiser"),
    summary: "answers neighbor solicitations for addresses",
    configure: |setup| {
        let router = setup.args.keyword("ROUTER");
        let table = read_entries::<u128>(setup);
        setup.args.finish()?;
        let flags = if router?.unwrap_or(true) { ROUTER } else { 0 };
        Ok(Tables::made(table?, setup, move |table, exit, replies| NdAdvertiser {
            table,
            exit,
            replies,
            flags,
        }))
    },
};

struct NdAdvertiser {
    table: Reader<Table<u128>>,
    exit: Exit,
    replies: Arc<Count>,
    /// Flags of all advertisements.
    flags: u8,
}

/// The advertisement that answers a frame, and its destination on the link.
fn answer(table: &Table<u128>, frame: &[u8], flags: u8) -> Option<(Nd, Mac)> {
    let ether = Ether::of(frame).filter(|ether| ether.kind() == TYPE_IP6)?;
    let solicitation = Nd::at(frame, ETHER_BYTES).filter(|nd| nd.kind == SOLICITATION)?;
    let from = solicitation.link.unwrap_or(ether.src());
    if from.0[0] & 1 != 0 {
        return None;
    }
    let (prefix, mac) = table.find(solicitation.target)?;
    // Who has one of our own addresses is told nothing; within a prefix others are right.
    let taken = table.find(solicitation.src).filter(|(prefix, _)| prefix.len() == 128);
    if taken.is_some_and(|(_, own)| own != from) {
        return None;
    }
    let flags = flags | if prefix.len() == 128 { OVERRIDE } else { 0 };
    let (flags, dst, to) = match solicitation.src {
        0 => (flags, ALL_NODES, multicast_mac(ALL_NODES)),
        src => (flags | SOLICITED, src, from),
    };
    let target = solicitation.target;
    Some((Nd { kind: ADVERTISEMENT, flags, src: target, dst, target, link: Some(mac) }, to))
}

/// Bytes of the frame of an answer.
const BYTES: usize = ETHER_BYTES + ND_BYTES;

impl Element for NdAdvertiser {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let table = self.table.pin();
        for i in 0..batch.len() {
            let Some((nd, to)) = answer(table, batch.bytes(i), self.flags) else {
                self.exit.take(batch, i);
                continue;
            };
            // A solicitation may be shorter by its option. All is written anew, so where it grows is the same.
            let missing = u16::try_from(BYTES.saturating_sub(batch.frame_len(i))).unwrap_or(0);
            if !batch.push_front(i, missing) {
                batch.discard(i, DropReason::NoBuffer);
                continue;
            }
            batch.truncate(i, BYTES);
            let frame = batch.bytes_mut(i);
            if let Some(mut ether) = EtherMut::of(frame) {
                ether.set_addrs(to, nd.link.unwrap_or(Mac([0; 6])));
                ether.set_kind(TYPE_IP6);
            }
            nd.write(frame, ETHER_BYTES);
            batch.meta_mut()[i].flags &= !FLAG_LINK_MULTICAST;
            self.replies.add(1);
        }
    }
}

/// Such a packet in an Ethernet frame, for tests.
#[cfg(test)]
pub(super) fn nd_frame(dst: Mac, src: Mac, nd: &Nd) -> Vec<u8> {
    let mut frame = vec![0; BYTES - if nd.link.is_some() { 0 } else { 8 }];
    let mut ether = EtherMut::of(&mut frame).unwrap();
    ether.set_addrs(dst, src);
    ether.set_kind(TYPE_IP6);
    assert!(nd.write(&mut frame, ETHER_BYTES));
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::wire::nd::solicited_node;
    use crate::testing::{Rig, World, refused};

    const PEER: Mac = Mac([2, 0, 0, 0, 9, 9]);
    const NET: u128 = 0x2001_0db8 << 96;
    const SOLICITOR: u128 = NET | 9;

    fn solicitation(src: u128, target: u128, link: Option<Mac>) -> Vec<u8> {
        let dst = solicited_node(target);
        let nd = Nd { kind: SOLICITATION, flags: 0, src, dst, target, link };
        nd_frame(multicast_mac(dst), PEER, &nd)
    }

    fn says(target: u128, mac: u8, dst: u128, to: Mac, flags: u8) -> Vec<u8> {
        let ours = Mac([2, 0, 0, 0, 0, mac]);
        let nd = Nd { kind: ADVERTISEMENT, flags, src: target, dst, target, link: Some(ours) };
        nd_frame(to, ours, &nd)
    }

    fn rig(more: &str) -> Rig {
        let entries = "2001:db8::1 fe80::1 2:0:0:0:0:1, 2001:db8:0:0:5::/80 2:0:0:0:0:2";
        let text = format!(
            "FromDevice(a) -> r :: NDAdvertiser({entries}{more}) -> ToDevice(b); r [1] -> ToDevice(c)"
        );
        Rig::new(&World::new(), &text)
    }

    #[test]
    fn solicitations_become_advertisements() {
        let (all, proxied) = (ROUTER | SOLICITED | OVERRIDE, NET | 5 << 48 | 0x77);
        let link_local = 0xfe80 << 112 | 1;
        let group = multicast_mac(ALL_NODES);
        for (frame, want) in [
            (solicitation(SOLICITOR, NET | 1, Some(PEER)), says(NET | 1, 1, SOLICITOR, PEER, all)),
            (
                solicitation(SOLICITOR, link_local, Some(PEER)),
                says(link_local, 1, SOLICITOR, PEER, all),
            ),
            // Another's address is left to it where it speaks itself.
            (
                solicitation(SOLICITOR, proxied, Some(PEER)),
                says(proxied, 2, SOLICITOR, PEER, ROUTER | SOLICITED),
            ),
            // Asked without a link address, and from no address.
            (solicitation(SOLICITOR, NET | 1, None), says(NET | 1, 1, SOLICITOR, PEER, all)),
            (solicitation(0, NET | 1, None), says(NET | 1, 1, ALL_NODES, group, ROUTER | OVERRIDE)),
        ] {
            assert_eq!(rig("").receive("a", &[&frame]), [("b".to_owned(), want)]);
        }
        let want = says(NET | 1, 1, SOLICITOR, PEER, SOLICITED | OVERRIDE);
        let mut rig = rig(", ROUTER false");
        // Padded by the link.
        let padded = [solicitation(SOLICITOR, NET | 1, Some(PEER)), vec![0; 9]].concat();
        assert_eq!(rig.receive("a", &[&padded]), [("b".to_owned(), want)]);
        assert_eq!(rig.read("r.count"), "1");
    }

    #[test]
    fn others_are_left_as_they_are() {
        let mut rig = rig("");
        let good = solicitation(SOLICITOR, NET | 1, Some(PEER));
        let mut damaged = good.clone();
        damaged[60] ^= 1;
        let mut arp = good.clone();
        arp[12..14].copy_from_slice(&[8, 6]);
        let group = solicitation(SOLICITOR, NET | 1, Some(Mac([3, 0, 0, 0, 0, 1])));
        for odd in [
            solicitation(SOLICITOR, NET | 2, Some(PEER)),
            // In our own name.
            solicitation(NET | 1, NET | 1, Some(PEER)),
            says(NET | 1, 1, SOLICITOR, PEER, SOLICITED),
            damaged,
            arp,
            group,
            good[..70].to_vec(),
            vec![],
        ] {
            assert_eq!(rig.receive("a", &[&odd]), [("c".to_owned(), odd)]);
        }
        assert_eq!((rig.read("r.count"), rig.dropped(DropReason::Unmatched)), ("0".into(), 0));
    }

    #[test]
    fn entries_change_while_it_answers() {
        let mut rig = rig("");
        rig.write("r.add", "2001:db8::/64 2:0:0:0:0:7");
        let sent = rig.receive("a", &[&solicitation(SOLICITOR, NET | 2, Some(PEER))]);
        assert_eq!(sent, [("b".to_owned(), says(NET | 2, 7, SOLICITOR, PEER, ROUTER | SOLICITED))]);
        rig.write("r.remove", "2001:db8::1/128");
        assert_eq!(rig.handlers.read("r.lookup", "2001:db8::1").unwrap(), "02-00-00-00-00-07");
        assert!(
            rig.read("r.table").starts_with("fe80::1/128 02-00-00-00-00-01\n2001:db8:0:0:5::/80")
        );
        let reported = refused(&CLASS, "2001:db8::1, 10.0.0.1 2:0:0:0:0:1");
        for words in ["an entry is addresses", "`10.0.0.1` is no IPv6 prefix"] {
            assert!(reported.contains(words), "{reported}");
        }
    }
}
