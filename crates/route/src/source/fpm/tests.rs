//! What each message becomes, frame by frame, and recorded streams.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::event::{AnyPrefix, MAIN_TABLE};
use crate::netlink::{F_CREATE, F_REPLACE, Request};
use crate::source::real::data;
use crate::source::{SessionSpec, event_words};

const BGP: u8 = 186;
const UNICAST: u8 = route::kind::UNICAST;

fn frame(messages: &[Vec<u8>]) -> Vec<u8> {
    let body = messages.concat();
    let len = u16::try_from(4 + body.len()).unwrap();
    [&[1, 1][..], &len.to_be_bytes(), &body].concat()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key(prefix: &str) -> RouteKey {
    RouteKey { table: MAIN_TABLE, prefix: AnyPrefix::parse(prefix).unwrap(), metric: 20 }
}

/// A route message as zebra writes it, to be completed with next hops.
fn route_of(kind: u16, prefix: &str, protocol: u8, of: u8) -> Request {
    let prefix = AnyPrefix::parse(prefix).unwrap();
    let family = if prefix.family() == 4 { 2 } else { 10 };
    let head = [family, prefix.len(), 0, 0, 254, protocol, 0, of, 0, 0, 0, 0];
    Request::query(kind, F_CREATE | F_REPLACE, 0)
        .fixed(&head)
        .ip(1, prefix.addr())
        .attr(6, &20_u32.to_ne_bytes())
}

fn by_object(prefix: &str, object: u32) -> Vec<u8> {
    route_of(route::NEW, prefix, BGP, UNICAST).attr(30, &object.to_ne_bytes()).finish()
}

fn by_gateway(prefix: &str, gateway: &str, link: u32) -> Vec<u8> {
    let request = route_of(route::NEW, prefix, BGP, UNICAST).ip(5, ip(gateway));
    request.attr(4, &link.to_ne_bytes()).finish()
}

fn deleted(prefix: &str) -> Vec<u8> {
    route_of(route::DEL, prefix, BGP, 0).finish()
}

fn object(id: u32) -> Request {
    Request::query(nexthop::NEW, 0, 0).fixed(&[2, 0, 11, 0, 0, 0, 0, 0]).attr(1, &id.to_ne_bytes())
}

fn single(id: u32, gateway: &str) -> Vec<u8> {
    object(id).ip(6, ip(gateway)).attr(5, &3_u32.to_ne_bytes()).finish()
}

fn group(id: u32, members: &[(u32, u8)]) -> Vec<u8> {
    let member =
        |&(id, weight): &(u32, u8)| [&id.to_ne_bytes()[..], &[weight - 1, 0, 0, 0]].concat();
    let members: Vec<u8> = members.iter().flat_map(member).collect();
    object(id).attr(2, &members).finish()
}

/// An object that encapsulates packets.
fn wrapping(id: u32) -> Vec<u8> {
    object(id).attr(7, &[1, 0]).attr(8, &[0; 4]).finish()
}

fn object_gone(id: u32) -> Vec<u8> {
    Request::query(nexthop::DEL, 0, 0).fixed(&[0; 8]).attr(1, &id.to_ne_bytes()).finish()
}

/// The line of an event; commits have none.
fn words(event: &RouteEvent) -> Option<String> {
    (!matches!(event, RouteEvent::Commit(_))).then(|| event_words::words(event))
}

struct Lab {
    fpm: Fpm,
    now: Instant,
}

impl Lab {
    fn new() -> Self {
        let mut lab = Self { fpm: Fpm::new(&SourceSpec::default()), now: Instant::now() };
        assert_eq!(lab.input(&[]), ["start of table"]);
        lab
    }

    /// Events of whole frames, in words.
    fn input(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut said = Vec::new();
        let taken = self.fpm.input(bytes, self.now, &mut |event| said.extend(words(&event)));
        assert_eq!(taken, Ok(bytes.len()));
        said
    }

    fn frame(&mut self, messages: &[Vec<u8>]) -> Vec<String> {
        self.input(&frame(messages))
    }

    /// Events after a time without frames.
    fn wait(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        let mut said = Vec::new();
        self.fpm.tick(self.now, &mut |event| said.extend(words(&event)));
        said
    }

    /// What is sent when readers see all of it but `refused`.
    fn visible(&mut self, refused: &[RouteKey]) -> Vec<u8> {
        let commit = self.fpm.frames;
        let refused: Vec<Refused> = refused.iter().map(|&key| Refused { commit, key }).collect();
        self.visible_but(&refused)
    }

    /// What is sent when readers see all of it but what was refused in these frames.
    fn visible_but(&mut self, refused: &[Refused]) -> Vec<u8> {
        self.fpm.visible(self.fpm.frames, refused);
        let mut out = Vec::new();
        self.fpm.output(&mut out);
        out.concat()
    }

    fn rejected(&self) -> (u64, String) {
        let rejected = self.fpm.rejected();
        (rejected.count, rejected.samples.last().cloned().unwrap_or_default())
    }
}

#[test]
fn routes_of_every_form() {
    let mut lab = Lab::new();
    let hop = |gateway: &str, weight: u8| {
        let gateway = Request::query(0, 0, 0).ip(5, ip(gateway)).finish();
        let len = u16::try_from(8 + gateway.len() - 16).unwrap();
        [&len.to_ne_bytes()[..], &[0, weight - 1], &3_u32.to_ne_bytes(), &gateway[16..]].concat()
    };
    let multipath = [hop("192.0.2.1", 3), hop("192.0.2.2", 1)].concat();
    let via: Vec<u8> =
        [&[10, 0][..], &"2001:db8::9".parse::<std::net::Ipv6Addr>().unwrap().octets()].concat();
    let of_table =
        route_of(route::NEW, "10.4.0.0/16", BGP, UNICAST).attr(15, &1001_u32.to_ne_bytes());
    lab.frame(&[single(7, "10.0.0.1")]);
    let said = lab.frame(&[
        by_gateway("10.1.0.0/16", "192.0.2.1", 3),
        route_of(route::NEW, "10.2.0.0/16", BGP, UNICAST).attr(9, &multipath).finish(),
        route_of(route::NEW, "10.3.0.0/16", BGP, UNICAST).attr(18, &via).finish(),
        of_table.ip(5, ip("192.0.2.1")).finish(),
        route_of(route::NEW, "10.5.0.0/16", 196, route::kind::BLACKHOLE).finish(),
        route_of(route::NEW, "10.6.0.0/16", 196, route::kind::UNREACHABLE).finish(),
        route_of(route::NEW, "10.7.0.0/16", 196, route::kind::PROHIBIT).finish(),
        by_object("2001:db8:1::/48", 7),
    ]);
    assert_eq!(
        said,
        [
            "route 10.1.0.0/16 table 254 metric 20 192.0.2.1@3*1",
            "route 10.2.0.0/16 table 254 metric 20 192.0.2.1@3*3 192.0.2.2@3*1",
            "route 10.3.0.0/16 table 254 metric 20 2001:db8::9*1",
            "route 10.4.0.0/16 table 1001 metric 20 192.0.2.1*1",
            "route 10.5.0.0/16 table 254 metric 20 blackhole",
            "route 10.6.0.0/16 table 254 metric 20 unreachable",
            "route 10.7.0.0/16 table 254 metric 20 prohibit",
            "route 2001:db8:1::/48 table 254 metric 20 object 7",
        ]
    );
    assert_eq!(lab.rejected().0, 0);
}

fn connected(kind: u16, prefix: &str) -> Vec<u8> {
    let route = route_of(kind, prefix, PROTOCOL_KERNEL, UNICAST);
    route.attr(4, &3_u32.to_ne_bytes()).finish()
}

#[test]
fn a_route_of_the_kernel_takes_the_place_of_another_one() {
    let mut lab = Lab::new();
    // With `fpm use-route-replace` nothing deletes the route that is no longer selected.
    lab.frame(&[by_gateway("10.1.0.0/16", "192.0.2.1", 3)]);
    let gone = "withdraw 10.1.0.0/16 table 254 metric 20";
    assert_eq!(lab.frame(&[connected(route::NEW, "10.1.0.0/16")]), [gone]);
    assert!(lab.visible(&[]).is_empty(), "a route that is gone is not acknowledged");
    assert!(lab.frame(&[connected(route::DEL, "10.1.0.0/16")]).is_empty());
    // Without it both are in a frame; and back.
    let (old, new) = (deleted("10.1.0.0/16"), connected(route::NEW, "10.1.0.0/16"));
    assert_eq!(lab.frame(&[old, new]), [gone]);
    let (old, new) = (connected(route::DEL, "10.1.0.0/16"), by_object("10.1.0.0/16", 7));
    assert_eq!(lab.frame(&[old, new]), ["route 10.1.0.0/16 table 254 metric 20 object 7"]);
}

#[test]
fn an_object_that_encapsulates_for_a_while_keeps_its_routes() {
    let mut lab = Lab::new();
    lab.frame(&[single(5, "192.0.2.5"), by_object("10.1.0.0/16", 5)]);
    assert_eq!(lab.frame(&[wrapping(5)]), ["object 5 local"]);
    assert_eq!(lab.frame(&[single(5, "192.0.2.6")]), ["object 5 192.0.2.6@3*1"]);
}

#[test]
fn objects_of_a_session_are_bounded() {
    let mut objects = Objects::default();
    let mut put = |id: u32| {
        let bytes = object(id).attr(5, &3_u32.to_ne_bytes()).finish();
        let message = Messages::new(&bytes).next().unwrap().unwrap();
        objects.put(&NextHop::parse(&message).unwrap(), &mut |_| ())
    };
    let most = u32::try_from(objects::MOST).unwrap();
    assert!((1..=most).all(|id| put(id).is_ok()));
    assert!(put(most + 1).is_err());
    assert_eq!(put(7), Ok(()), "one that is there may change");
}

#[test]
fn what_is_deleted_and_added_in_a_frame_is_replaced() {
    let mut lab = Lab::new();
    let (new, again) = (by_object("10.1.0.0/16", 5), by_object("10.1.0.0/16", 6));
    lab.frame(&[new]);
    let said = lab.frame(&[deleted("10.1.0.0/16"), again.clone(), deleted("10.2.0.0/16")]);
    let route = "route 10.1.0.0/16 table 254 metric 20 object 6";
    assert_eq!(said, [route, "withdraw 10.2.0.0/16 table 254 metric 20"]);
    // Added and deleted: the last message counts.
    let said = lab.frame(&[again, deleted("10.1.0.0/16")]);
    assert_eq!(said, [route, "withdraw 10.1.0.0/16 table 254 metric 20"]);
    let said = lab.frame(&[object_gone(5), single(5, "192.0.2.5"), object_gone(6)]);
    assert_eq!(said, ["object 5 192.0.2.5@3*1", "object 6 gone"]);
    // Another frame is another change.
    assert_eq!(lab.frame(&[deleted("10.9.0.0/16")]), ["withdraw 10.9.0.0/16 table 254 metric 20"]);
}

#[test]
fn groups_come_before_their_members_and_in_one_another() {
    let mut lab = Lab::new();
    assert_eq!(lab.frame(&[group(9, &[(1, 3), (2, 1)])]), ["object 9 1*3 2*1"]);
    assert_eq!(lab.frame(&[single(1, "192.0.2.1")]), ["object 1 192.0.2.1@3*1"]);
    let resilient = object(10)
        .attr(2, &[1, 0, 0, 0, 0, 0, 0, 0])
        .attr(3, &[1, 0])
        .attr(12, &[8, 0, 1, 0, 32, 0, 0, 0]);
    assert_eq!(lab.frame(&[resilient.finish()]), ["object 10 1*1"]);
    assert_eq!(lab.frame(&[object(3).attr(4, &[]).finish()]), ["object 3 blackhole"]);
    // A third of 20 to 9, of which 1 has three quarters; the rest to 4.
    assert_eq!(lab.frame(&[group(20, &[(9, 1), (4, 2)])]), ["object 20 1*3 2*1 4*8"]);
    assert_eq!(lab.frame(&[group(30, &[(20, 1), (1, 1)])]), ["object 30 1*15 2*1 4*8"]);
    // Those that have it in them follow.
    let said = lab.frame(&[group(9, &[(2, 1)])]);
    assert_eq!(said, ["object 9 2*1", "object 20 2*1 4*2", "object 30 2*1 4*2 1*3"]);
    // A member becomes a group: it was not known before.
    assert_eq!(
        lab.frame(&[group(4, &[(5, 1), (6, 1)])]),
        ["object 4 5*1 6*1", "object 20 2*1 5*1 6*1", "object 30 2*1 5*1 6*1 1*3"]
    );
    assert_eq!(lab.rejected().0, 0);
    assert_eq!(lab.frame(&[group(9, &[(30, 1)])]), ["object 9 gone"]);
    let why = "frame 9: next-hop object 9: a group that has itself or too many others in it";
    assert_eq!(lab.rejected(), (1, why.to_owned()));
}

#[test]
fn objects_of_a_later_session_are_others() {
    let mut lab = Lab::new();
    let mut spec = SourceSpec::default();
    spec.session.number = 17;
    lab.fpm = Fpm::new(&spec);
    let said = lab.frame(&[
        single(7, "10.0.0.1"),
        group(8, &[(7, 1)]),
        by_object("10.1.0.0/16", 8),
        object_gone(7),
    ]);
    let [seven, eight] = [7, 8].map(|id: u32| id + (1 << SESSION_BITS));
    assert_eq!(said.len(), 5, "{said:?}");
    assert!(said[1].starts_with(&format!("object {seven} ")), "{said:?}");
    assert!(
        said[2].starts_with(&format!("object {eight} ")) && said[2].contains(&seven.to_string())
    );
    assert!(said[3].contains(&eight.to_string()), "{said:?}");
    assert_eq!(said[4], format!("object {seven} gone"));
}

/// The kernel has such a route too, and its copy is left out: without one here, a shorter prefix took the packets.
#[test]
fn packets_that_would_be_encapsulated_are_for_the_host() {
    let mut lab = Lab::new();
    let label =
        |request: Request| request.attr(21, &[1, 0]).attr(22, &[8, 0, 1, 0, 1, 1, 1, 1]).finish();
    let plain = || route_of(route::NEW, "10.1.0.0/16", BGP, UNICAST).ip(5, ip("192.0.2.1"));
    let gone = "withdraw 10.1.0.0/16 table 254 metric 20";
    let route = |target: &str| [format!("route 10.1.0.0/16 table 254 metric 20 {target}")];
    assert_eq!(lab.frame(&[label(plain())]), route("local"));
    let why = "route 10.1.0.0/16: its packets would be encapsulated";
    assert_eq!(lab.rejected(), (1, format!("frame 1: {why}")));
    assert_eq!(lab.visible(&[]), flagged(&label(plain()), FAILED));
    assert_eq!(lab.frame(&[deleted("10.1.0.0/16")]), [gone]);
    // By an object, and by a group that has it as a member.
    assert_eq!(lab.frame(&[wrapping(5)]), ["object 5 local"]);
    assert_eq!(lab.frame(&[by_object("10.1.0.0/16", 5)]), route("object 5"));
    lab.frame(&[group(6, &[(1, 1), (5, 1)])]);
    assert_eq!(lab.frame(&[by_object("10.1.0.0/16", 6)]), route("object 6"));
    assert_eq!(lab.rejected(), (4, format!("frame 6: {why}")));
    assert_eq!(lab.visible(&[]), flagged(&by_object("10.1.0.0/16", 6), FAILED));
    // The object is a plain one again.
    lab.frame(&[single(5, "192.0.2.5")]);
    assert_eq!(lab.frame(&[by_object("10.1.0.0/16", 6)]).len(), 1);
    // VXLAN, whose type stands behind several next hops and is for all of them.
    let hop = |last: u8| [&[16, 0, 0, 0, 3, 0, 0, 0, 8, 0, 5, 0, 10, 0, 0][..], &[last]].concat();
    let several = plain().attr(9, &[hop(1), hop(2)].concat());
    assert_eq!(lab.frame(&[several.attr(21, &[100, 0]).finish()]), route("local"));
    assert_eq!(lab.rejected().0, 5);
}

#[test]
fn what_cannot_be_a_route_is_refused_and_counted() {
    let mut lab = Lab::new();
    let plain = || route_of(route::NEW, "10.1.0.0/16", BGP, UNICAST).ip(5, ip("192.0.2.1"));
    let gone = "withdraw 10.1.0.0/16 table 254 metric 20";
    // Label routes, types of service, and hops that cannot be.
    let label = Request::query(route::NEW, 0, 0).fixed(&[28, 20, 0, 0, 254, BGP, 0, 1, 0, 0, 0, 0]);
    assert!(lab.frame(&[label.finish()]).is_empty());
    assert_eq!(lab.rejected().0, 1);
    let mut tos = plain().finish();
    tos[16 + 3] = 8;
    assert_eq!(lab.frame(&[tos]), [""; 0], "another route than that for all packets");
    assert_eq!(lab.frame(&[route_of(route::NEW, "10.1.0.0/16", BGP, UNICAST).finish()]), [gone]);
    assert_eq!(lab.frame(&[route_of(route::NEW, "10.1.0.0/16", BGP, 99).finish()]), [gone]);
    let why = "frame 4: route 10.1.0.0/16: route type 99 makes no sense";
    assert_eq!(lab.rejected(), (4, why.to_owned()));
}

#[test]
fn frames_are_cut_anywhere_and_errors_keep_to_their_frame() {
    let good = frame(&[by_gateway("10.1.0.0/16", "192.0.2.1", 3), deleted("10.2.0.0/16")]);
    let mut lab = Lab::new();
    let mut sink = |_| panic!("no frame is complete");
    for cut in 0..good.len() {
        assert_eq!(lab.fpm.input(&good[..cut], lab.now, &mut sink), Ok(0));
    }
    // Protobuf, and a message beyond its frame: both counted once, the rest is taken.
    let protobuf = [1, 2, 0, 6, 9, 9];
    let mut long = frame(&[deleted("10.9.0.0/16"), deleted("10.3.0.0/16")]);
    long[4] = 200;
    let said = lab.input(&[&protobuf[..], &long, &[1, 1, 0, 4], &good].concat());
    assert_eq!(
        said,
        [
            "route 10.1.0.0/16 table 254 metric 20 192.0.2.1@3*1",
            "withdraw 10.2.0.0/16 table 254 metric 20"
        ]
    );
    let why = format!("frame 2: message of 200 bytes where {} are left", long.len() - 4);
    assert_eq!(lab.rejected(), (2, why));
    for bad in [[2, 1, 0, 44], [1, 1, 0, 3]] {
        let mut lab = Lab::new();
        let mut said = Vec::new();
        let error =
            lab.fpm.input(&[&good[..], &bad].concat(), lab.now, &mut |e| said.extend(words(&e)));
        let what = error.unwrap_err().to_string();
        assert!(what.starts_with("frame 2: version "), "{what}");
        assert_eq!((said.len(), lab.rejected().0), (2, 1), "what came before is taken");
    }
}

#[test]
fn a_table_ends_in_a_silence() {
    let mut lab = Lab::new();
    let second = Duration::from_secs(1);
    assert!(lab.wait(29 * second).is_empty());
    lab.frame(&[by_object("10.1.0.0/16", 5)]);
    assert!(lab.wait(29 * second).is_empty());
    assert_eq!(lab.wait(second), ["end of table"]);
    assert!(lab.wait(100 * second).is_empty(), "there is one for each session");
}

/// Zebra has deleted routes of the main table so (frr#14949).
#[test]
fn table_0_names_the_main_table() {
    let mut lab = Lab::new();
    lab.frame(&[by_object("10.1.0.0/16", 5)]);
    let mut message = deleted("10.1.0.0/16");
    message[16 + 4] = 0;
    assert_eq!(lab.frame(&[message]), ["withdraw 10.1.0.0/16 table 254 metric 20"]);
}

#[test]
fn a_route_for_a_source_prefix_is_another_than_that_of_its_prefix() {
    let of_source = |kind| {
        let mut message = route_of(kind, "2001:db8::/32", BGP, UNICAST);
        message = message.attr(2, &[0; 16]).ip(5, ip("2001:db8::9"));
        let mut message = message.attr(4, &3_u32.to_ne_bytes()).finish();
        message[16 + 2] = 48;
        message
    };
    let mut lab = Lab::new();
    let plain = by_gateway("2001:db8::/32", "2001:db8::1", 3);
    assert_eq!(lab.frame(std::slice::from_ref(&plain)).len(), 1);
    assert_eq!(lab.frame(&[of_source(route::NEW)]), [""; 0]);
    let why = "frame 2: route 2001:db8::/32: only for a source prefix";
    assert_eq!(lab.rejected(), (1, why.to_owned()));
    assert_eq!(lab.frame(&[of_source(route::DEL)]), [""; 0]);
    assert_eq!(lab.visible(&[]), flagged(&plain, OFFLOAD));
    // Nor is the deletion of the other one taken back by it.
    let gone = "withdraw 2001:db8::/32 table 254 metric 20";
    assert_eq!(lab.frame(&[deleted("2001:db8::/32"), of_source(route::NEW)]), [gone]);
}

#[test]
fn what_is_deleted_twice_and_added_stays() {
    let mut lab = Lab::new();
    let route = by_gateway("10.1.0.0/16", "192.0.2.1", 3);
    let (gone, again) = (deleted("10.1.0.0/16"), route.clone());
    let said = lab.frame(&[gone.clone(), gone, again]);
    assert_eq!(said, ["route 10.1.0.0/16 table 254 metric 20 192.0.2.1@3*1"]);
    assert_eq!(lab.visible(&[]), flagged(&route, OFFLOAD));
}

#[test]
fn an_object_that_goes_before_readers_see_it_fails_its_routes() {
    let mut lab = Lab::new();
    let [one, two, three] = [("10.1.0.0/16", 5), ("10.2.0.0/16", 6), ("10.3.0.0/16", 5)]
        .map(|(p, id)| by_object(p, id));
    lab.frame(&[single(5, "10.0.0.1"), single(6, "10.0.0.2"), one.clone(), two.clone()]);
    lab.frame(&[object_gone(5)]);
    // The number is used again.
    lab.frame(&[single(5, "10.0.0.3"), three.clone()]);
    let want = [flagged(&one, FAILED), flagged(&two, OFFLOAD), flagged(&three, OFFLOAD)];
    assert_eq!(lab.visible(&[]), want.concat());
    lab.frame(std::slice::from_ref(&one));
    assert_eq!(lab.visible(&[]), flagged(&one, OFFLOAD));
    assert!(lab.fpm.acks.as_ref().unwrap().remembers_nothing());
}

/// A frame with a route as it came but for its flags.
fn flagged(message: &[u8], flags: u32) -> Vec<u8> {
    let mut message = message.to_vec();
    message[24..28].copy_from_slice(&flags.to_ne_bytes());
    frame(&[message])
}

const OFFLOAD: u32 = 0x4000;
const FAILED: u32 = 0x2000_0000;

#[test]
fn a_refusal_is_of_the_frame_that_has_the_route() {
    let mut lab = Lab::new();
    let (old, new) =
        (by_gateway("10.1.0.0/16", "192.0.2.1", 3), by_gateway("10.1.0.0/16", "192.0.2.2", 3));
    let refused = |commit| Refused { commit, key: key("10.1.0.0/16") };
    // Refused in the first frame, and valid in the second, before readers saw either.
    lab.frame(std::slice::from_ref(&old));
    lab.frame(std::slice::from_ref(&new));
    assert_eq!(lab.visible_but(&[refused(1)]), flagged(&new, OFFLOAD));
    // The other way round.
    lab.frame(std::slice::from_ref(&new));
    lab.frame(std::slice::from_ref(&old));
    assert_eq!(lab.visible_but(&[refused(4)]), flagged(&old, FAILED));
    // Refused twice.
    lab.frame(std::slice::from_ref(&new));
    lab.frame(std::slice::from_ref(&old));
    assert_eq!(lab.visible_but(&[refused(5), refused(6)]), flagged(&old, FAILED));
}

#[test]
fn routes_whose_object_comes_later_are_acknowledged_again() {
    let mut lab = Lab::new();
    let routes = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"];
    let [one, two, three, four] = routes.map(|prefix| by_object(prefix, 9));
    let all = [one.clone(), two.clone(), three, four];
    lab.frame(&all);
    let failed: Vec<u8> = all.iter().flat_map(|message| flagged(message, FAILED)).collect();
    assert_eq!(lab.visible(&[]), failed);
    // One is deleted, one gets another object; those that are left have to wait for a member of the group.
    let other = by_object("10.4.0.0/16", 5);
    lab.frame(&[single(5, "10.0.0.1"), deleted("10.3.0.0/16"), other.clone()]);
    assert_eq!(lab.visible(&[]), flagged(&other, OFFLOAD));
    lab.frame(&[group(9, &[(7, 1), (8, 1)])]);
    assert!(lab.visible(&[]).is_empty(), "the group has no member");
    lab.frame(&[single(8, "10.0.0.2")]);
    let mut out = Vec::new();
    lab.fpm.output(&mut out);
    assert!(out.is_empty(), "readers do not see it yet");
    let sent = lab.visible(&[]);
    let mut want = [flagged(&one, OFFLOAD), flagged(&two, OFFLOAD)];
    if !sent.starts_with(&want[0]) {
        want.reverse();
    }
    assert_eq!(sent, want.concat());
    lab.frame(&[single(8, "10.0.0.3"), single(7, "10.0.0.4")]);
    assert!(lab.visible(&[]).is_empty(), "once");
    // The object behind its route, in one frame: there is nothing to correct.
    let late = by_object("10.5.0.0/16", 11);
    lab.frame(&[late.clone(), single(11, "10.0.0.5")]);
    assert_eq!(lab.visible(&[]), flagged(&late, OFFLOAD));
    // An object that went away took the routes that name it with it, whether it was known or not.
    let gone = by_object("10.6.0.0/16", 12);
    lab.frame(std::slice::from_ref(&gone));
    lab.frame(&[object_gone(12)]);
    lab.frame(&[single(12, "10.0.0.6")]);
    assert_eq!(lab.visible(&[]), flagged(&gone, FAILED));
    assert!(!lab.fpm.acks.as_ref().unwrap().has_late());
    // One that was refused for another reason does not wait for its object.
    let refused = by_object("10.7.0.0/16", 13);
    lab.frame(std::slice::from_ref(&refused));
    assert_eq!(lab.visible(&[key("10.7.0.0/16")]), flagged(&refused, FAILED));
    assert!(!lab.fpm.acks.as_ref().unwrap().has_late());
}

#[test]
fn routes_of_an_object_that_encapsulates_are_acknowledged_when_it_is_plain() {
    let mut lab = Lab::new();
    let [one, two, three] = [("10.1.0.0/16", 5), ("10.2.0.0/16", 6), ("10.3.0.0/16", 7)]
        .map(|(prefix, id)| by_object(prefix, id));
    lab.frame(&[wrapping(5), one.clone()]);
    assert_eq!(lab.visible(&[]), flagged(&one, FAILED));
    lab.frame(&[single(5, "10.0.0.5")]);
    assert_eq!(lab.visible(&[]), flagged(&one, OFFLOAD));
    // One that routes wait for encapsulates when it comes, by itself and as the member of a group.
    lab.frame(&[two.clone(), group(7, &[(5, 1), (8, 1)]), wrapping(8), three.clone()]);
    assert_eq!(lab.visible(&[]), [flagged(&two, FAILED), flagged(&three, FAILED)].concat());
    lab.frame(&[wrapping(6), single(5, "10.0.0.6"), group(7, &[(5, 1), (8, 2)])]);
    assert!(lab.visible(&[]).is_empty());
    lab.frame(&[single(6, "10.0.0.6")]);
    assert_eq!(lab.visible(&[]), flagged(&two, OFFLOAD));
    lab.frame(&[single(8, "10.0.0.8")]);
    assert_eq!(lab.visible(&[]), flagged(&three, OFFLOAD));
    // Before readers see the routes.
    lab.frame(&[two.clone(), three.clone()]);
    lab.frame(&[wrapping(6), wrapping(8)]);
    assert_eq!(lab.visible(&[]), [flagged(&two, FAILED), flagged(&three, FAILED)].concat());
    lab.frame(&[group(7, &[(5, 1)]), single(6, "10.0.0.7")]);
    assert_eq!(lab.visible(&[]), [flagged(&three, OFFLOAD), flagged(&two, OFFLOAD)].concat());
    let acks = lab.fpm.acks.as_ref().unwrap();
    assert!(!acks.has_late() && acks.remembers_nothing());
}

#[test]
fn a_change_of_a_member_looks_at_the_groups_that_have_it_and_no_others() {
    const GROUPS: u32 = 10_000;
    const MEMBERS: u32 = 16;
    let mut lab = Lab::new();
    let members: Vec<(u32, u8)> = (1..=MEMBERS).map(|id| (id, 1)).collect();
    for id in 0..GROUPS {
        lab.frame(&[group(1000 + id, &members)]);
    }
    // Three of them are in a group each, and those in another one.
    let inner = [1000, 1001, 1002];
    for (at, id) in (0..).zip(inner) {
        lab.frame(&[group(50_000 + at, &[(id, 1)])]);
    }
    lab.frame(&[group(60_000, &[(50_000, 1), (50_001, 1), (50_002, 1)])]);
    let looks = |lab: &mut Lab, messages: &[Vec<u8>]| {
        let before = lab.fpm.objects.looks.get();
        let said = lab.frame(messages);
        (said.len(), lab.fpm.objects.looks.get() - before)
    };
    // It, the group that has it, and the outermost one, whose parts are looked at.
    let (said, count) = looks(&mut lab, &[group(1001, &members[1..])]);
    assert_eq!(said, 3);
    assert!(count < 200, "{count} looks");
    // One that no group has, and a member that all have and that is no group.
    assert_eq!(looks(&mut lab, &[group(5000, &members)]), (1, members.len()));
    assert_eq!(looks(&mut lab, &[single(1, "192.0.2.1")]), (1, 0));
    // The index follows: what has left a group is sent without it.
    lab.frame(&[group(50_001, &[(1003, 1)])]);
    assert_eq!(looks(&mut lab, &[group(1001, &members)]), (1, members.len()));
    lab.frame(&[object_gone(60_000), object_gone(50_001)]);
    assert_eq!(looks(&mut lab, &[group(1003, &members)]), (1, members.len()));
}

#[test]
fn acknowledgements_are_the_routes_as_they_came() {
    let mut lab = Lab::new();
    let (a, b) = (by_object("10.1.0.0/16", 5), by_gateway("2001:db8::/32", "2001:db8::9", 3));
    lab.frame(&[single(5, "10.0.0.1"), single(6, "10.0.0.2"), a.clone(), b.clone()]);
    let mut out = Vec::new();
    lab.fpm.output(&mut out);
    assert!(out.is_empty(), "readers do not see them yet");
    assert_eq!(lab.visible(&[]), [flagged(&a, 0x4000), flagged(&b, 0x4000)].concat());
    assert!(lab.visible(&[]).is_empty(), "once");
    // A length that is in network order, an RTM_NEWROUTE in host order that is a request.
    let bytes = flagged(&a, 0x4000);
    assert_eq!(&bytes[..4], &[1, 1, 0, 56]);
    assert_eq!(&bytes[4..8], &52_u32.to_ne_bytes());
    assert_eq!(u16::from_ne_bytes([bytes[8], bytes[9]]), 24);
    assert_eq!(u16::from_ne_bytes([bytes[10], bytes[11]]) & 1, 1);

    // Refused here, or by the control side.
    let label = route_of(route::NEW, "10.2.0.0/16", BGP, UNICAST).attr(21, &[1, 0]).finish();
    lab.frame(&[a.clone(), label.clone(), b.clone()]);
    let (gone, failed) = (key("10.9.0.0/16"), key("2001:db8::/32"));
    let want = [flagged(&a, 0x4000), flagged(&label, 0x2000_0000), flagged(&b, 0x2000_0000)];
    assert_eq!(lab.visible(&[gone, failed]), want.concat());
    // Its object may come later; no packet follows it until then.
    let early = by_object("10.1.0.0/16", 9);
    assert_eq!(lab.frame(std::slice::from_ref(&early)).len(), 1, "it is kept");
    assert_eq!(lab.visible(&[]), flagged(&early, 0x2000_0000));
    let why = "route 10.1.0.0/16: next-hop object 9, which is not known";
    assert!(lab.rejected().1.ends_with(why), "{:?}", lab.rejected());
    // Of a route that changed, the latest; of one that was deleted, none.
    let later = by_object("10.1.0.0/16", 6);
    lab.frame(std::slice::from_ref(&a));
    lab.frame(&[b, a.clone()]);
    lab.frame(&[deleted("2001:db8::/32"), deleted("10.1.0.0/16"), later.clone()]);
    assert_eq!(lab.visible(&[]), flagged(&later, 0x4000));
    // What came after the commit waits.
    lab.frame(std::slice::from_ref(&a));
    lab.fpm.visible(lab.fpm.frames - 1, &[]);
    lab.fpm.output(&mut out);
    assert!(out.is_empty());
    assert_eq!(lab.visible(&[]), flagged(&a, 0x4000));
    let session = SessionSpec { acknowledge: false, ..SessionSpec::default() };
    lab.fpm = Fpm::new(&SourceSpec { session, ..SourceSpec::default() });
    lab.frame(&[a]);
    assert!(lab.visible(&[]).is_empty());
}

/// Events of a recorded stream, however it is cut.
fn recorded(name: &str) -> Option<(Vec<String>, Lab)> {
    let bytes = std::fs::read(data(&format!("fpm/{name}"))?).unwrap();
    let mut whole = Lab::new();
    let said = whole.input(&bytes);
    for size in [1, 7, 1000] {
        let (mut lab, mut buffer, mut again) = (Lab::new(), Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            buffer.extend_from_slice(piece);
            let sink = &mut |event| again.extend(words(&event));
            let taken = lab.fpm.input(&buffer, lab.now, sink).unwrap();
            buffer.drain(..taken);
        }
        assert!(buffer.is_empty());
        assert_eq!(again, said);
    }
    Some((said, whole))
}

#[test]
fn a_recorded_session_with_objects() {
    let Some((said, lab)) = recorded("frr844-static-nhg.bin") else { return };
    assert_eq!(said.join("\n") + "\n", include_str!("recorded/static-nhg.txt"));
    assert_eq!(lab.rejected().0, 0);
}

#[test]
fn a_recorded_session_without_objects() {
    let Some((said, lab)) = recorded("frr844-static-nonhg.bin") else { return };
    assert_eq!(said.join("\n") + "\n", include_str!("recorded/static-nonhg.txt"));
    assert_eq!(lab.rejected().0, 0);
}

#[test]
fn recorded_replays_and_withdrawals() {
    let Some((said, mut lab)) = recorded("frr844-bgp-first2000.bin") else { return };
    let mut counts = String::new();
    for start in ["object 3 -@2", "object 4 -@2", "object 6 10.20.0.2@2", "route ", "withdraw"] {
        let count = said.iter().filter(|line| line.starts_with(start)).count();
        writeln!(counts, "{start}: {count}").unwrap();
    }
    let want =
        "object 3 -@2: 1\nobject 4 -@2: 1\nobject 6 10.20.0.2@2: 1\nroute : 1997\nwithdraw: 0\n";
    assert_eq!((said.len(), counts.as_str()), (2000, want));
    assert!(said[3..].iter().all(|line| line.ends_with(" table 254 metric 20 object 6")));
    // Each returns, in a frame of its length.
    assert_eq!(lab.visible(&[]).len(), 1997 * 56);
    let (said, lab) = recorded("frr844-withdraw-1000.bin").unwrap();
    assert!(said.len() == 1000 && said.iter().all(|line| line.starts_with("withdraw ")));
    assert_eq!(lab.rejected().0, 0);
}
