//! Messages in, events out: single cases, each with the messages that the kernel sends.

use std::time::Instant;

use super::model::Model;
use super::{Kernel, PASSES};
use crate::event::{MAIN_TABLE, ObjectTarget, Path, RouteEvent};
use crate::netlink::{
    DONE, ERROR, F_APPEND, F_CREATE, F_DUMP_INTR, F_EXCL, F_MULTI, F_REPLACE, IPV4, IPV6, Request,
    link, nexthop, route,
};
use crate::source::{RouteSource, SourceError};

/// A source, its consumer, and the number of the request that is open.
struct Case {
    source: Kernel,
    model: Model,
    seq: u32,
    requested: Vec<u16>,
}

impl Case {
    /// A source that has requested the links.
    fn new() -> Self {
        let mut case = Self {
            source: Kernel::default(),
            model: Model::default(),
            seq: 0,
            requested: Vec::new(),
        };
        case.send();
        case
    }

    /// A source at the dump of IPv4 routes, everything before it empty.
    fn at_routes() -> Self {
        let mut case = Self::new();
        (0..4).for_each(|_| case.done());
        assert_eq!(case.requested, [18, 22, 30, 106, 26]);
        case
    }

    /// Following, with nothing known.
    fn following() -> Self {
        let mut case = Self::at_routes();
        case.done();
        case.done();
        assert_eq!(case.model.dumps, 1);
        case
    }

    fn send(&mut self) {
        let mut out = Vec::new();
        self.source.output(&mut out);
        for request in out {
            self.requested.push(u16::from_ne_bytes([request[4], request[5]]));
            self.seq = u32::from_ne_bytes(request[8..12].try_into().unwrap());
        }
    }

    fn try_input(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        let model = &mut self.model;
        let read = self.source.input(bytes, Instant::now(), &mut |event| model.take(event))?;
        assert_eq!(read, bytes.len());
        self.send();
        Ok(())
    }

    fn input(&mut self, bytes: &[u8]) {
        self.try_input(bytes).unwrap();
    }

    fn done(&mut self) {
        self.input(&done_with(self.seq, 0, 0));
    }

    /// A line of the open dump.
    fn line(&mut self, v6: bool, prefix: u8, gateway: u8) {
        self.input(&message(v6, prefix, gateway, route::NEW, F_MULTI, self.seq));
    }

    fn notify(&mut self, v6: bool, prefix: u8, gateway: u8, flags: u16) {
        self.input(&message(v6, prefix, gateway, route::NEW, flags, 99));
    }

    fn delete(&mut self, v6: bool, prefix: u8, gateway: u8) {
        self.input(&message(v6, prefix, gateway, route::DEL, 0, 99));
    }

    fn routes(&self) -> Vec<String> {
        self.model.table(MAIN_TABLE)
    }
}

fn done_with(seq: u32, code: i32, flags: u16) -> Vec<u8> {
    Request::new(DONE, F_MULTI | flags, seq).fixed(&code.to_ne_bytes()).finish()
}

fn failed(seq: u32, code: i32) -> Vec<u8> {
    Request::new(ERROR, 0, seq).fixed(&code.to_ne_bytes()).fixed(&[0; 16]).finish()
}

fn head(v6: bool) -> [u8; 12] {
    [if v6 { IPV6 } else { IPV4 }, 16, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0]
}

fn prefixed(v6: bool, prefix: u8, kind: u16, flags: u16, seq: u32, head: [u8; 12]) -> Request {
    let request = Request::new(kind, flags, seq).fixed(&head);
    let mut addr = [0; 16];
    (addr[0], addr[1]) = if v6 { (0x20, prefix) } else { (10, prefix) };
    request.attr(1, &addr[..if v6 { 16 } else { 4 }])
}

fn message(v6: bool, prefix: u8, gateway: u8, kind: u16, flags: u16, seq: u32) -> Vec<u8> {
    let mut addr = [0; 16];
    (addr[0], addr[15]) = (0x20, gateway);
    let v4 = [172, 16, 0, gateway];
    let request = prefixed(v6, prefix, kind, flags, seq, head(v6));
    let request = request.attr(5, if v6 { &addr } else { &v4 });
    request.attr(4, &3u32.to_ne_bytes()).finish()
}

const V4: bool = false;
const V6: bool = true;

#[test]
fn everything_is_requested_once_then_followed() {
    let mut case = Case::at_routes();
    case.line(V4, 1, 1);
    case.done();
    case.line(V6, 1, 1);
    case.done();
    assert_eq!(case.requested, [18, 22, 30, 106, 26, 26]);
    assert_eq!(case.model.dumps, 1);
    case.notify(V4, 2, 2, F_CREATE | F_EXCL);
    case.delete(V4, 1, 1);
    assert_eq!(case.routes(), ["10.2.0.0/16 172.16.0.2@3", "2001::/16 2000::1@3"]);
    assert_eq!(case.requested.len(), 6, "no more questions");
}

#[test]
fn a_deleted_route_is_not_brought_back_by_an_older_line() {
    let mut case = Case::at_routes();
    case.delete(V4, 1, 1);
    case.line(V4, 1, 1);
    case.line(V4, 2, 1);
    case.done();
    // Once more, because the line was left out.
    assert_eq!(case.requested[4..], [26, 26]);
    case.line(V4, 2, 1);
    case.done();
    case.done();
    assert_eq!(case.routes(), ["10.2.0.0/16 172.16.0.1@3"]);
}

#[test]
fn a_new_route_is_not_lost_to_an_older_line() {
    let mut case = Case::at_routes();
    case.notify(V4, 1, 2, F_REPLACE);
    case.line(V4, 1, 1);
    assert_eq!(case.routes(), ["10.1.0.0/16 172.16.0.2@3"]);
    case.done();
    case.line(V4, 1, 2);
    case.done();
    case.done();
    assert_eq!((case.routes(), case.model.dumps), (vec!["10.1.0.0/16 172.16.0.2@3".into()], 1));
}

#[test]
fn a_second_route_of_a_key_is_found_though_the_first_has_changed() {
    let mut case = Case::at_routes();
    case.notify(V4, 1, 3, F_REPLACE);
    case.line(V4, 1, 3);
    case.line(V4, 1, 2);
    case.done();
    case.line(V4, 1, 3);
    case.line(V4, 1, 2);
    case.done();
    case.done();
    case.delete(V4, 1, 3);
    assert_eq!(case.routes(), ["10.1.0.0/16 172.16.0.2@3"]);
    case.delete(V4, 1, 2);
    assert_eq!(case.routes(), [""; 0]);
}

#[test]
fn a_disturbed_dump_is_repeated_and_not_for_ever() {
    let mut case = Case::at_routes();
    for pass in 0..=PASSES {
        assert_eq!(case.requested.len(), 5 + usize::try_from(pass).unwrap());
        case.line(V4, u8::try_from(pass).unwrap(), 1);
        case.input(&done_with(case.seq, 0, F_DUMP_INTR));
    }
    case.done();
    assert_eq!(case.model.dumps, 1);
    // Entries of any of the passes are kept.
    assert_eq!(case.routes().len(), 7);

    // Also where only a line has the mark, and where entries go under a dump that counts them.
    let mut case = Case::at_routes();
    case.input(&message(V4, 1, 1, route::NEW, F_MULTI | F_DUMP_INTR, case.seq));
    case.done();
    assert_eq!(case.requested[4..], [26, 26]);
    case.done();
    case.delete(V6, 1, 1);
    case.done();
    assert_eq!(case.requested[5..], [26, 26, 26], "IPv6 once more");
    case.done();
    assert_eq!(case.model.dumps, 1);
}

#[test]
fn a_dump_that_fails_is_tried_again_then_given_up() {
    let mut case = Case::new();
    // Another dump runs on the socket.
    (0..20).for_each(|_| case.input(&failed(case.seq, -16)));
    // No room at first: the lines come all the same.
    let before = case.requested.len();
    case.input(&failed(case.seq, -105));
    assert_eq!(case.requested.len(), before, "still waiting");
    case.done();
    // This kernel has no such thing.
    case.input(&failed(case.seq, -95));
    case.done();
    assert_eq!(case.requested[before..], [22, 30, 106]);
    for _ in 0..PASSES {
        case.input(&failed(case.seq, -1));
    }
    let error = case.try_input(&failed(case.seq, -1)).unwrap_err();
    let SourceError::Io { kind, what, .. } = error else { panic!("{error}") };
    assert_eq!(kind, std::io::ErrorKind::PermissionDenied);
    assert!(what.starts_with("the list of next-hop objects cannot be had"), "{what}");
    assert_eq!(case.model.dumps, 0, "nothing is dropped on the ground of half a list");
}

#[test]
fn a_datagram_that_is_cut_off_is_requested_again() {
    let mut case = Case::at_routes();
    let line = message(V4, 1, 1, route::NEW, F_MULTI, case.seq);
    case.input(&line[..line.len() - 4]);
    case.done();
    assert_eq!(case.requested[4..], [26, 26]);
    case.line(V4, 1, 1);
    case.done();
    case.done();
    assert_eq!(case.routes().len(), 1);
    assert_eq!(case.source.rejected().count, 1);
    // A notification: only a new dump can replace it.
    let requested = case.requested.len();
    case.input(&line[..line.len() - 4]);
    assert_eq!(case.requested.len(), requested + 1);
    // Always cut off: the buffer is too small, and no table without the rest is the table.
    let mut case = Case::at_routes();
    for _ in 0..PASSES {
        case.input(&line[..20]);
        case.done();
    }
    case.input(&line[..20]);
    assert!(case.try_input(&done_with(case.seq, 0, 0)).is_err());
}

#[test]
fn after_a_loss_nothing_old_counts() {
    let mut case = Case::at_routes();
    case.line(V4, 1, 1);
    let old = case.seq;
    case.source.lost(Instant::now());
    case.send();
    assert_eq!(case.requested.len(), 5, "the kernel answers one dump at a time");
    case.input(&message(V4, 2, 1, route::NEW, F_MULTI, old));
    case.input(&done_with(old, 0, 0));
    // The barrier: links, which are ignored.
    assert_eq!(case.requested[5..], [18]);
    case.input(&link_message(5, F_MULTI, case.seq));
    // Told before the kernel spoke again: perhaps gone by now.
    case.notify(V4, 3, 1, F_CREATE | F_EXCL);
    assert!(case.model.links.is_empty());
    case.done();
    (0..4).for_each(|_| case.done());
    assert_eq!(case.requested[6..], [18, 22, 30, 106, 26]);
    case.line(V4, 1, 1);
    case.done();
    case.done();
    assert_eq!(case.routes(), ["10.1.0.0/16 172.16.0.1@3"]);
    // Late lines of any old dump are ignored.
    case.input(&message(V4, 4, 1, route::NEW, F_MULTI, old));
    assert_eq!(case.routes().len(), 1);
}

fn link_message(index: u32, flags: u16, seq: u32) -> Vec<u8> {
    let head = [[0, 0, 1, 0], index.to_ne_bytes(), 0x1_0001u32.to_ne_bytes(), [0; 4]];
    Request::new(link::NEW, flags, seq).fixed(head.as_flattened()).attr(16, &[6]).finish()
}

#[test]
fn hops_of_old_kernels_come_one_by_one() {
    let mut case = Case::at_routes();
    case.done();
    case.line(V6, 1, 1);
    case.line(V6, 1, 2);
    case.done();
    assert_eq!(case.routes(), ["2001::/16 2000::1@3 2000::2@3"]);
    case.delete(V6, 1, 1);
    assert_eq!(case.routes(), ["2001::/16 2000::2@3"]);
    // One more, without the others: only a dump has them.
    let requested = case.requested.len();
    case.notify(V6, 1, 5, F_CREATE | F_APPEND);
    assert_eq!((case.requested.len(), case.routes().len()), (requested + 1, 1));
}

#[test]
fn what_cannot_be_followed_is_reported_or_left_to_the_host() {
    let mut case = Case::following();
    let new = |v6, prefix, head| prefixed(v6, prefix, route::NEW, F_CREATE | F_EXCL, 0, head);
    let path = 3u32.to_ne_bytes();
    let mut tos = head(V4);
    tos[3] = 0x10;
    case.input(&new(V4, 1, tos).attr(4, &path).finish());
    let mut from = head(V6);
    from[2] = 64;
    case.input(&new(V6, 1, from).attr(4, &path).finish());
    let mut cloned = head(V6);
    cloned[9] = 0x02;
    case.input(&new(V6, 2, cloned).attr(4, &path).finish());
    assert_eq!(case.routes(), [""; 0]);
    assert_eq!(
        case.source.rejected().samples,
        [
            "route 10.1.0.0/16: only for a type of service",
            "route 2001::/16: only for a source prefix"
        ]
    );
    // The host wraps these itself.
    case.input(&new(V4, 3, head(V4)).attr(4, &path).attr(21, &[1, 0]).attr(22, &[0; 4]).finish());
    let object = new(V4, 4, head(V4)).attr(30, &[9, 0, 0, 0]).attr(4, &path).attr(21, &[1, 0]);
    case.input(&object.finish());
    assert_eq!(case.routes(), ["10.3.0.0/16 local", "10.4.0.0/16 local"]);
    // Objects for bridges are none of ours.
    let fdb = Request::new(nexthop::NEW, 0, 0).fixed(&[0; 8]).attr(1, &[7, 0, 0, 0]).attr(11, &[]);
    case.input(&fdb.finish());
    assert!(case.model.objects.is_empty());
    // A port that leaves a bridge is not a link that is deleted.
    case.input(&link_message(3, 0, 0));
    let mut head = [0; 16];
    (head[0], head[4]) = (7, 3);
    case.input(&Request::new(link::DEL, 0, 0).fixed(&head).finish());
    assert_eq!(case.model.links.len(), 1);
}

#[test]
fn the_mtu_is_part_of_what_a_route_is() {
    let with = |v6, prefix, mtu: u32, kind, flags, seq| {
        let mut addr = [0; 16];
        (addr[0], addr[15]) = (0x20, 1);
        let gateway = if v6 { &addr[..] } else { &[172, 16, 0, 1] };
        let request = prefixed(v6, prefix, kind, flags, seq, head(v6));
        // Among other metrics: an initial window.
        let metrics = [&[8, 0, 11, 0, 10, 0, 0, 0, 8, 0, 2, 0][..], &mtu.to_ne_bytes()].concat();
        let request = request.attr(5, gateway).attr(4, &3u32.to_ne_bytes());
        request.attr(8, &metrics).finish()
    };
    let mut case = Case::following();
    for (v6, mtu, want) in [
        (V4, 1400, " mtu 1400"),
        (V4, 0, ""),
        // What cannot be is what the kernel makes of it when it forwards.
        (V4, 20, " mtu 68"),
        (V4, 100_000, " mtu 65535"),
        (V6, 1400, " mtu 1400"),
        (V6, 1000, " mtu 1280"),
    ] {
        case.input(&with(v6, 1, mtu, route::NEW, F_REPLACE, 0));
        let route = if v6 { "2001::/16 2000::1@3" } else { "10.1.0.0/16 172.16.0.1@3" };
        assert_eq!(case.routes().last(), Some(&format!("{route}{want}")));
    }
    // Two that differ in nothing else: the one that is meant goes.
    let mut case = Case::following();
    for (mtu, flags) in [(1400, F_CREATE | F_EXCL), (1300, F_CREATE | F_APPEND)] {
        case.input(&with(V4, 1, mtu, route::NEW, flags, 0));
    }
    assert_eq!(case.routes(), ["10.1.0.0/16 172.16.0.1@3 mtu 1400"]);
    case.input(&with(V4, 1, 1300, route::DEL, 0, 0));
    assert_eq!(case.routes(), ["10.1.0.0/16 172.16.0.1@3 mtu 1400"]);
    // A line of a dump with another MTU is another state of the route.
    let mut case = Case::at_routes();
    case.input(&with(V4, 1, 1300, route::NEW, F_REPLACE, 99));
    case.input(&with(V4, 1, 1400, route::NEW, F_MULTI, case.seq));
    case.done();
    assert_eq!(case.requested[4..], [26, 26], "once more");
    case.input(&with(V4, 1, 1300, route::NEW, F_MULTI, case.seq));
    case.done();
    case.done();
    assert_eq!(case.routes(), ["10.1.0.0/16 172.16.0.1@3 mtu 1300"]);
}

#[test]
fn hops_that_cannot_be_used_are_left_out() {
    let hops = |flags: [u8; 2]| {
        let mut all = Vec::new();
        for (at, flags) in flags.iter().enumerate() {
            all.extend([16, 0, *flags, 1, u8::try_from(at).unwrap() + 1, 0, 0, 0]);
            all.extend([8, 0, 5, 0, 172, 16, 0, 1]);
        }
        prefixed(V4, 1, route::NEW, F_REPLACE, 0, head(V4)).attr(9, &all).finish()
    };
    let mut case = Case::following();
    for (flags, want) in [
        ([0, 0], "10.1.0.0/16 172.16.0.1@1*2 172.16.0.1@2*2"),
        ([0, 1], "10.1.0.0/16 172.16.0.1@1"),
        ([16, 0], "10.1.0.0/16 172.16.0.1@2"),
        // Without carrier on any: the kernel uses them, as far as they are not dead.
        ([16, 16], "10.1.0.0/16 172.16.0.1@1*2 172.16.0.1@2*2"),
        ([17, 16], "10.1.0.0/16 172.16.0.1@2"),
    ] {
        case.input(&hops(flags));
        assert_eq!(case.routes(), [want], "{flags:?}");
    }
    case.input(&hops([1, 1]));
    assert_eq!(case.routes(), [""; 0]);
}

mod fuzzed {
    use super::*;
    use crate::source::fuzz::kernel;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

        #[test]
        fn any_messages(
            parts in prop::collection::vec((0usize..8, any::<[u8; 4]>()), 0..30),
        ) {
            let mut bytes = Vec::new();
            for (kind, [prefix, gateway, at, value]) in parts {
                // Answers to the requests as they are numbered, some mutated.
                let seq = super::super::FIRST_SEQ + 1 + u32::from(value % 8);
                let mut part = match kind {
                    0..=2 => message(kind == 0, prefix, gateway, route::NEW, F_MULTI, seq),
                    3 => message(V6, prefix, gateway, route::DEL, 0, 0),
                    4 => link_message(gateway.into(), F_MULTI, seq),
                    _ => done_with(seq, 0, 0),
                };
                if at > 100 {
                    let at = usize::from(at) % part.len();
                    part[at] = value;
                }
                bytes.extend(part);
            }
            kernel(&bytes);
        }
    }
}

#[test]
fn events_of_one_dump_lie_between_start_and_end() {
    let mut source = Kernel::default();
    let mut events = Vec::new();
    for _ in 0..6 {
        let mut out = Vec::new();
        source.output(&mut out);
        let seq = u32::from_ne_bytes(out[0][8..12].try_into().unwrap());
        source
            .input(&done_with(seq, 0, 0), Instant::now(), &mut |event| events.push(event))
            .unwrap();
    }
    assert_eq!(events, [RouteEvent::StartOfTable, RouteEvent::EndOfTable]);
}

#[test]
fn a_route_that_its_link_took_along_does_not_come_back_by_an_older_message() {
    let mut case = Case::new();
    case.input(&link_message(3, F_MULTI, case.seq));
    (0..6).for_each(|_| case.done());
    assert_eq!(case.model.dumps, 1);
    // The other socket is read first: the link has gone down and its routes with it, while messages of before that wait.
    let requested = case.requested.len();
    case.input(&link_down(3));
    assert!(!case.model.links[&3].0.up, "at once");
    assert_eq!(case.requested[requested..], [18], "the barrier");
    case.notify(V4, 1, 1, F_CREATE | F_EXCL);
    case.input(&link_message(3, F_MULTI, case.seq));
    assert!(!case.model.links[&3].0.up, "a reply that is ignored");
    case.done();
    assert_eq!(case.requested[requested..], [18, 18]);
    (0..6).for_each(|_| case.done());
    assert_eq!((case.routes(), case.model.dumps), (vec![], 2));
    assert_eq!(case.requested.len(), requested + 7);
}

#[test]
fn routes_that_another_source_has_are_left_out_and_return() {
    let mut case = Case::at_routes();
    let of = |protocol: u8, mut message: Vec<u8>| {
        // Behind the header: family, lengths, type of service, table, protocol.
        message[16 + 5] = protocol;
        message
    };
    let bgp = |prefix, kind, flags, seq| of(186, message(V4, prefix, 1, kind, flags, seq));
    case.line(V4, 1, 1);
    case.input(&bgp(2, route::NEW, F_MULTI, case.seq));
    case.done();
    case.done();
    let own = "10.1.0.0/16 172.16.0.1@3";
    let both = [own, "10.2.0.0/16 172.16.0.1@3"];
    assert_eq!(case.routes(), both);

    case.source.leave_out(&[11, 186]);
    case.send();
    assert_eq!(case.routes(), both, "until the table was read again");
    case.input(&bgp(3, route::NEW, F_CREATE | F_REPLACE, 9));
    assert_eq!(case.routes(), both);
    // The barrier, and all kinds up to IPv4 routes.
    (0..5).for_each(|_| case.done());
    case.line(V4, 1, 1);
    (2..4).for_each(|prefix| case.input(&bgp(prefix, route::NEW, F_MULTI, case.seq)));
    case.done();
    case.done();
    assert_eq!((case.routes(), case.model.dumps), (vec![own.to_owned()], 2));
    // One that took the place of another protocol's; and its end, which is none of ours.
    case.notify(V4, 4, 1, F_CREATE | F_EXCL);
    case.input(&bgp(4, route::NEW, F_CREATE | F_REPLACE, 9));
    case.input(&bgp(1, route::NEW, F_CREATE | F_APPEND, 9));
    case.input(&bgp(1, route::DEL, 0, 9));
    assert_eq!(case.routes(), [own]);

    case.source.leave_out(&[11, 186]);
    case.send();
    assert_eq!(case.source.phase, super::Phase::Follow, "nothing new");
    case.source.leave_out(&[]);
    case.send();
    (0..5).for_each(|_| case.done());
    case.line(V4, 1, 1);
    case.input(&bgp(3, route::NEW, F_MULTI, case.seq));
    case.done();
    case.done();
    assert_eq!(case.routes(), [own, "10.3.0.0/16 172.16.0.1@3"]);
}

#[test]
fn a_link_event_during_the_barrier_needs_no_second_dump() {
    let mut case = Case::new();
    case.input(&link_message(3, F_MULTI, case.seq));
    (0..6).for_each(|_| case.done());
    let requested = case.requested.len();
    case.input(&link_down(3));
    case.input(&link_message(3, 0, 0));
    // Its reply may be older than notifications meanwhile.
    case.done();
    assert_eq!(case.requested[requested..], [18, 18]);
    (0..7).for_each(|_| case.done());
    assert_eq!(case.requested[requested..], [18, 18, 18, 22, 30, 106, 26, 26]);
    assert_eq!(case.model.dumps, 2);
}

fn link_down(index: u32) -> Vec<u8> {
    let head = [[0, 0, 1, 0], index.to_ne_bytes(), [0; 4], [0; 4]];
    Request::new(link::NEW, 0, 0).fixed(head.as_flattened()).attr(16, &[2]).finish()
}

/// MPLS, and an encapsulation that nobody knows: of a shorter prefix no packet may be taken.
#[test]
fn routes_that_encapsulate_packets_are_counted_and_the_kernels() {
    const ENCAP_TYPE: u16 = 21;
    const ENCAP: u16 = 22;
    let mut case = Case::following();
    case.notify(false, 8, 1, F_CREATE | F_EXCL);
    for (prefix, encapsulation) in [(9, 1_u16), (10, 99)] {
        let route = prefixed(false, prefix, route::NEW, F_CREATE | F_EXCL, 99, head(false));
        let route = route
            .attr(4, &2_u32.to_ne_bytes())
            .attr(ENCAP, &[8, 0, 1, 0, 0, 1, 0x41, 0])
            .attr(ENCAP_TYPE, &encapsulation.to_ne_bytes());
        case.input(&route.finish());
    }
    let local = case.routes().into_iter().filter(|route| route.ends_with(" local"));
    assert_eq!(local.collect::<Vec<_>>(), ["10.9.0.0/16 local", "10.10.0.0/16 local"]);
    let rejected = case.source.rejected();
    assert_eq!(rejected.count, 2, "{rejected:?}");
    assert_eq!(rejected.samples[0], "route 10.9.0.0/16: encapsulates packets");
}

/// Where `net.ipv4.nexthop_compat_mode` is 0, a route has the number of its object and nothing else of it.
#[test]
fn an_object_that_encapsulates_packets_has_them_for_the_host() {
    let mut case = Case::following();
    let object = |encap: bool| {
        let request = Request::query(nexthop::NEW, F_CREATE | F_REPLACE, 99)
            .fixed(&[2, 0, 3, 0, 0, 0, 0, 0])
            .attr(1, &5_u32.to_ne_bytes())
            .attr(5, &2_u32.to_ne_bytes())
            .ip(6, "10.0.0.9".parse().unwrap());
        if encap { request.attr(7, &[1, 0]).attr(8, &[0; 4]) } else { request }.finish()
    };
    case.input(&object(false));
    let route = prefixed(false, 9, route::NEW, F_CREATE | F_EXCL, 99, head(false));
    case.input(&route.attr(30, &5_u32.to_ne_bytes()).finish());
    assert_eq!(case.model.objects[&5].0, ObjectTarget::Path(path("10.0.0.9", 2)));
    case.input(&object(true));
    assert_eq!(case.model.objects[&5].0, ObjectTarget::Local);
    assert_eq!(case.routes(), ["10.9.0.0/16 object 5"], "the route stays");
    assert_eq!(case.source.rejected().samples, ["next-hop object 5: encapsulates packets"]);
    case.input(&object(false));
    assert_eq!(case.model.objects[&5].0, ObjectTarget::Path(path("10.0.0.9", 2)));
}

fn path(gateway: &str, link: u32) -> Path {
    Path { gateway: gateway.parse().ok(), link: Some(link), weight: 1 }
}
