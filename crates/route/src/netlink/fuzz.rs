//! Properties that hold for any bytes: every parser of them returns, and without a panic.

use super::obstacle::forwarding::Forwarding;
use super::obstacle::{Survey, nft, rule, tc, xfrm};
use super::{Messages, address, link, neighbor, nexthop, route};

/// Reads `bytes` as messages and each body as every kind of body there is. Returns how many
/// messages there were, so that nothing is optimised away.
pub fn check(bytes: &[u8]) -> usize {
    let mut count = 0;
    let mut survey = Survey::new();
    let _ = survey.output();
    for message in Messages::new(bytes).flatten() {
        count += 1;
        if let Ok(Some(route)) = route::Route::parse(&message) {
            // Each hop takes at least 8 bytes, so a loop would show.
            assert!(route.hops().count() <= 1 + message.body.len() / 8);
        }
        if let Ok(object) = nexthop::NextHop::parse(&message)
            && let Some(group) = object.group()
        {
            assert!(group.count() <= message.body.len() / 8);
        }
        let _ = message.code();
        let _ = link::Link::parse(&message);
        let _ = address::parse(&message);
        let _ = neighbor::parse(&message);
        let _ = rule::parse(&message);
        let _ = Forwarding::default().read(&message);
        let _ = tc::parse_qdisc(&message).map(|qdisc| qdisc.obstacle());
        let _ = tc::parse_filter(&message);
        let _ = xfrm::parse(&message);
        let _ = nft::parse_chain(&message);
    }
    assert!(count <= 1 + bytes.len() / 16);
    let _ = survey.input(bytes);
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{F_CREATE, Request};
    use crate::source::real::data;
    use proptest::prelude::*;

    /// The messages of an FPM capture, without its frame headers.
    fn unframed(mut bytes: &[u8]) -> Vec<u8> {
        let mut messages = Vec::new();
        while let [1, 1, high, low, ..] = bytes {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            messages.extend_from_slice(&bytes[4..len]);
            bytes = &bytes[len..];
        }
        assert!(bytes.is_empty());
        messages
    }

    fn kinds(bytes: &[u8]) -> Vec<u16> {
        Messages::new(bytes).map(|message| message.unwrap().kind).collect()
    }

    #[test]
    fn real_messages_are_understood() {
        let Some(path) = data("fpm/frr844-bgp-first2000.bin") else { return };
        let bytes = unframed(&std::fs::read(path).unwrap());
        let all = kinds(&bytes);
        let count = |kind| all.iter().filter(|&&k| k == kind).count();
        assert_eq!((count(nexthop::NEW), count(route::NEW), all.len()), (3, 1997, 2000));
        for message in Messages::new(&bytes).map(Result::unwrap) {
            if message.kind == route::NEW {
                let route = route::Route::parse(&message).unwrap().unwrap();
                assert_eq!((route.kind, route.table), (route::kind::UNICAST, 254));
                assert!(route.object.is_some());
            } else {
                assert!(nexthop::NextHop::parse(&message).unwrap().id > 0);
            }
        }
        let withdrawn = std::fs::read(data("fpm/frr844-withdraw-1000.bin").unwrap()).unwrap();
        assert_eq!(kinds(&unframed(&withdrawn)), [route::DEL; 1000]);
    }

    #[test]
    fn both_forms_of_multipath() {
        let Some(path) = data("fpm/frr844-static-nonhg.bin") else { return };
        let inline = unframed(&std::fs::read(path).unwrap());
        let mut widths = Vec::new();
        for message in Messages::new(&inline).map(Result::unwrap) {
            let route = route::Route::parse(&message).unwrap().unwrap();
            assert_eq!(route.object, None);
            let hops: Vec<_> = route.hops().map(Result::unwrap).collect();
            if message.kind == route::NEW && hops.len() > 1 {
                assert!(
                    hops.iter().all(|hop| hop.gateway.is_some() && hop.weight == 1),
                    "{hops:?}"
                );
                widths.push((route.prefix.family(), hops.len()));
            }
        }
        assert_eq!(widths, [(4, 2), (6, 2)]);

        let objects = unframed(&std::fs::read(data("fpm/frr844-static-nhg.bin").unwrap()).unwrap());
        let groups: Vec<Vec<_>> = Messages::new(&objects)
            .map(Result::unwrap)
            .filter(|message| message.kind == nexthop::NEW)
            .filter_map(|message| {
                Some(nexthop::NextHop::parse(&message).unwrap().group()?.collect())
            })
            .collect();
        assert!(
            groups.iter().all(|group| group.iter().all(|(id, weight)| *id > 0 && *weight == 1))
        );
        assert!(groups.iter().filter(|group| group.len() == 2).count() >= 2, "{groups:?}");
    }

    /// One message of every kind, with nests.
    fn sample() -> Vec<u8> {
        let u32 = |value: u32| value.to_ne_bytes();
        let hop = [&[16, 0, 0, 1][..], &u32(3), &[8, 0, 5, 0, 10, 0, 0, 1]].concat();
        let hook = Request::new(0, 0, 0).attr(1, &2u32.to_be_bytes()).attr(3, b"eth0").finish();
        [
            Request::new(24, F_CREATE, 1)
                .fixed(&[2, 8, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0])
                .attr(1, &[10, 0, 0, 0])
                .attr(9, &[&hop[..], &hop].concat())
                .attr(8, &[8, 0, 2, 0, 220, 5, 0, 0]),
            Request::new(104, 0, 1).fixed(&[0; 8]).attr(1, &u32(7)).attr(2, &[1; 16]),
            Request::new(16, 0, 1)
                .fixed(&[0; 16])
                .attr(3, b"eth0\0")
                .attr(18, &[8, 0, 1, 0, b'v', b'e', b't', 0]),
            Request::new(20, 0, 1).fixed(&[2, 24, 0, 0, 1, 0, 0, 0]).attr(2, &[10, 0, 0, 1]),
            Request::new(28, 0, 1).fixed(&[2; 12]).attr(1, &[10, 0, 0, 2]).attr(2, &[2; 6]),
            Request::new(32, 0, 1).fixed(&[2; 12]).attr(15, &u32(100)),
            Request::new(36, 0, 1).fixed(&[0; 20]).attr(1, b"clsact\0"),
            Request::new(44, 0, 1).fixed(&[0; 20]).attr(1, b"bpf\0"),
            Request::new(0x13, 0, 1).fixed(&[2; 168]),
            Request::new(10 << 8 | 3, 0, 1)
                .fixed(&[2, 0, 0, 0])
                .attr(4, &hook[16..])
                .attr(6, &[1; 4]),
            Request::new(2, 0, 1).fixed(&u32(0)),
        ]
        .map(Request::finish)
        .concat()
    }

    #[test]
    fn truncated_anywhere() {
        let mut inputs = vec![sample()];
        inputs.extend(
            data("fpm/frr844-static-nhg.bin").map(|path| unframed(&std::fs::read(path).unwrap())),
        );
        for bytes in inputs {
            let whole = check(&bytes);
            assert!(whole > 10);
            for cut in 0..bytes.len() {
                assert!(check(&bytes[..cut]) <= whole);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            check(&bytes);
        }

        #[test]
        fn mutated(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut bytes = sample();
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            check(&bytes);
        }
    }
}
