//! What each message becomes, and a recorded stream.

use super::*;
use crate::bgp::ribs::Limits;
use crate::event::{RouteUpdate, Target};
use crate::source::SessionSpec;
use crate::source::real::data;
use crate::source::table::decompress::Decoded;

const OWN_AS: u16 = 65000;

fn message_of(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER_BYTES + body.len()).unwrap().to_be_bytes();
    [&[VERSION][..], &len, &[kind], body].concat()
}

fn bgp(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(19 + body.len()).unwrap().to_be_bytes();
    [&[0xff; 16][..], &len, &[kind], body].concat()
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// Header of the peer 10.0.0.`last` of AS 65000 + `last`.
fn peer(kind: u8, flags: u8, last: u8) -> Vec<u8> {
    let addr = if kind == 3 { [0; 4] } else { [10, 0, 0, last] };
    let peer_as = (u32::from(OWN_AS) + u32::from(last)).to_be_bytes();
    [&[kind, flags][..], &[0; 8], &[0; 12], &addr, &peer_as, &[0, 0, 0, last], &[0; 8]].concat()
}

fn open_of(own_as: u16, capabilities: &[u8]) -> Vec<u8> {
    let len = u8::try_from(capabilities.len()).unwrap();
    let options = if len == 0 { vec![0] } else { [&[len + 2, 2, len][..], capabilities].concat() };
    bgp(1, &[&[4][..], &own_as.to_be_bytes(), &[0, 90], &[9; 4], &options].concat())
}

const UNICAST: &[u8] = &[1, 4, 0, 1, 0, 1];

fn up_with(kind: u8, last: u8, [sent, received]: [&[u8]; 2]) -> Vec<u8> {
    let theirs = open_of(OWN_AS + u16::from(last), received);
    let body = [&peer(kind, 0, last)[..], &[0; 20], &open_of(OWN_AS, sent), &theirs].concat();
    message_of(PEER_UP, &body)
}

fn up(last: u8) -> Vec<u8> {
    up_with(0, last, [UNICAST; 2])
}

fn down(last: u8) -> Vec<u8> {
    message_of(PEER_DOWN, &[&peer(0, 0, last)[..], &[1]].concat())
}

/// The first 8 bits of these prefixes, by a next hop, from a peer.
fn routes_of(kind: u8, flags: u8, last: u8, hop: u8, nlri: &[u8]) -> Vec<u8> {
    let hop = [0x40, 3, 4, 192, 0, 2, hop];
    let attributes = counted(if nlri.is_empty() { &[] } else { &hop });
    let update = bgp(2, &[&counted(&[])[..], &attributes, nlri].concat());
    message_of(ROUTE_MONITORING, &[&peer(kind, flags, last)[..], &update].concat())
}

/// A message about a peer with this BGP identifier.
fn with_id(mut message: Vec<u8>, id: u8) -> Vec<u8> {
    message[HEADER_BYTES + 33] = id;
    message
}

fn announced(last: u8, hop: u8) -> Vec<u8> {
    routes_of(0, 0, last, hop, &[8, 10])
}

fn withdrawn(last: u8) -> Vec<u8> {
    let update = bgp(2, &[&counted(&[8, 10])[..], &counted(&[])].concat());
    message_of(ROUTE_MONITORING, &[&peer(0, 0, last)[..], &update].concat())
}

/// An event in words; none for the end of a message.
fn said(event: RouteEvent) -> Option<String> {
    Some(match event {
        RouteEvent::Commit(_) => return None,
        RouteEvent::Route(RouteUpdate { key, target: Target::Path(path), .. }) => {
            format!("{} {}", key.prefix, path.gateway.unwrap())
        }
        RouteEvent::Route(RouteUpdate { key, target: Target::Ranked(paths), .. }) => {
            let hops = paths.iter().map(|path| path.gateway.unwrap().to_string());
            format!("{} {}", key.prefix, hops.collect::<Vec<_>>().join(", else "))
        }
        RouteEvent::Withdraw(key) => format!("{} -", key.prefix),
        RouteEvent::StartOfTable => "start".to_owned(),
        RouteEvent::EndOfTable => "end".to_owned(),
        other => panic!("{other:?}"),
    })
}

/// A session with messages of each kind, for the fuzzers.
pub(in crate::source) fn sample() -> Vec<u8> {
    let both = [UNICAST, &[1, 4, 0, 2, 0, 1, 69, 4, 0, 1, 1, 3, 65, 4, 0, 1, 0, 0]].concat();
    let messages = [
        message_of(4, &[0, 2, 0, 1, b'r']),
        up(1),
        up_with(0, 2, [&both, &both]),
        announced(1, 1),
        routes_of(0, 0x40, 1, 2, &[8, 10, 12, 11, 16]),
        routes_of(0, 0x20, 2, 2, &[0, 0, 0, 1, 8, 10]),
        withdrawn(1),
        up_with(3, 0, [UNICAST; 2]),
        routes_of(3, 0, 0, 3, &[8, 10]),
        down(2),
    ];
    messages.concat()
}

struct Session {
    bmp: Bmp,
    now: Instant,
}

impl Session {
    fn new() -> Self {
        Self { bmp: Bmp::new(&SourceSpec::default()), now: Instant::now() }
    }

    /// A session behind one in which the router sent these.
    fn behind(monitored: Monitored) -> Self {
        let session = SessionSpec { monitored: Some(monitored), ..SessionSpec::default() };
        let spec = SourceSpec { session, ..SourceSpec::default() };
        Self { bmp: Bmp::new(&spec), now: Instant::now() }
    }

    fn of(limits: Limits) -> Self {
        let session = SessionSpec { limits, ..SessionSpec::default() };
        let spec = SourceSpec { session, ..SourceSpec::default() };
        Self { bmp: Bmp::new(&spec), now: Instant::now() }
    }

    fn input(&mut self, messages: &[Vec<u8>]) -> Vec<String> {
        let (mut events, bytes) = (Vec::new(), messages.concat());
        let mut taken = 0;
        loop {
            let sink = &mut |event| events.extend(said(event));
            taken += self.bmp.input(&bytes[taken..], self.now, sink).unwrap();
            if self.bmp.due().is_none() {
                assert_eq!(taken, bytes.len());
                return events;
            }
        }
    }

    fn wait(&mut self, seconds: u64) -> Vec<String> {
        self.now += Duration::from_secs(seconds);
        let mut events = Vec::new();
        self.bmp.tick(self.now, &mut |event| events.extend(said(event)));
        while self.bmp.due().is_some() {
            let sink = &mut |event| events.extend(said(event));
            assert_eq!(self.bmp.input(&[], self.now, sink), Ok(0));
        }
        events
    }

    fn rejected(&self) -> Vec<String> {
        self.bmp.rejected().samples
    }
}

#[test]
fn the_best_path_of_all_peers_is_the_route() {
    let mut session = Session::new();
    assert_eq!(
        session.input(&[message_of(4, &[0, 2, 0, 1, b'r']), up(1), up(2), announced(2, 2)]),
        ["start", "10.0.0.0/8 192.0.2.2"]
    );
    let both = ["10.0.0.0/8 192.0.2.1, else 192.0.2.2"];
    assert_eq!(session.input(&[announced(1, 1)]), both);
    let other = ["10.0.0.0/8 192.0.2.1, else 192.0.2.3"];
    assert_eq!(session.input(&[announced(2, 3)]), other, "not the best");
    assert_eq!(session.input(&[withdrawn(1)]), ["10.0.0.0/8 192.0.2.3"]);
    assert_eq!(session.input(&[down(2)]), ["10.0.0.0/8 -"]);
    assert_eq!(session.rejected(), [""; 0]);
    session.input(&[announced(2, 2)]);
    assert_eq!(session.rejected(), ["message 9: routes of a peer that is not up"]);
}

#[test]
fn the_choice_of_the_router_stands_above_its_peers() {
    let mut session = Session::new();
    let own = |flags, hop| routes_of(3, flags, 0, hop, &[8, 10]);
    let events = session.input(&[up(1), announced(1, 1), up_with(3, 0, [UNICAST; 2])]);
    assert_eq!(events, ["start", "10.0.0.0/8 192.0.2.1", "start"]);
    // The flag says that the table was filtered, and nothing of addresses.
    assert_eq!(session.input(&[own(0x80, 7), announced(1, 1)]), ["10.0.0.0/8 192.0.2.7"]);
    // What the router itself originates.
    let body = [&counted(&[])[..], &counted(&[0x40, 3, 4, 0, 0, 0, 0]), &[8, 10]].concat();
    let local = [&peer(3, 0, 0)[..], &bgp(2, &body)].concat();
    assert_eq!(session.input(&[message_of(ROUTE_MONITORING, &local)]), ["10.0.0.0/8 -"]);
    // Without it the routes of its peers would be missing: a new session has them.
    let gone = message_of(PEER_DOWN, &[&peer(3, 0, 0)[..], &[1]].concat());
    let error = session.bmp.input(&gone, session.now, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("Loc-RIB"), "{error}");
}

#[test]
fn routes_behind_the_policy_replace_those_before_it() {
    let mut session = Session::new();
    let events = session.input(&[
        up(1),
        routes_of(0, 0, 1, 1, &[8, 10, 8, 11]),
        routes_of(0, 0x40, 1, 2, &[8, 10]),
        announced(1, 1),
        // Sent to the peer, and of another instance.
        routes_of(0, 0x10, 1, 9, &[8, 12]),
    ]);
    // A table anew: what it does not repeat is withdrawn at its end.
    let table = ["start", "10.0.0.0/8 192.0.2.1", "11.0.0.0/8 192.0.2.1"];
    assert_eq!(events, [&table[..], &["start", "10.0.0.0/8 192.0.2.2"]].concat());
    // No route of any peer counts before the policy any more.
    assert_eq!(session.input(&[up(3), announced(3, 5)]), [""; 0]);
    let mut other = up(2);
    other[HEADER_BYTES + 3] = 1;
    assert_eq!(session.input(&[other]), [""; 0]);
    assert_eq!(session.rejected(), ["message 8: a peer of another routing instance"]);
}

/// RFC 8671: the flags of what a peer was sent (0x10), behind the policy (0x40).
#[test]
fn only_routes_that_count_replace_those_before_the_policy() {
    let first = ["start", "10.0.0.0/8 192.0.2.1"];
    let (sent, behind) = (
        |last| routes_of(0, 0x50, last, 9, &[8, 12]),
        |last| routes_of(0, 0x40, last, 9, &[8, 12]),
    );
    let mut session = Session::new();
    assert_eq!(session.input(&[up(1), announced(1, 1)]), first);
    assert_eq!(session.input(&[sent(1), sent(1)]), [""; 0], "what peer 1 was sent");
    assert_eq!(session.input(&[behind(2)]), [""; 0], "of a peer that is not up");
    assert_eq!(session.rejected(), ["message 5: routes of a peer that is not up"]);
    assert_eq!(session.input(&[announced(1, 3)]), ["10.0.0.0/8 192.0.2.3"]);
    // The choice of the router stands above those as well.
    let events = session.input(&[up_with(3, 0, [UNICAST; 2]), routes_of(3, 0, 0, 7, &[8, 10])]);
    assert_eq!(events, ["start", "10.0.0.0/8 192.0.2.7"]);
    assert_eq!(session.input(&[sent(1), behind(1)]), [""; 0]);
}

#[test]
fn a_choice_of_the_router_that_is_refused_leaves_the_routes_of_its_peers() {
    let limits = Limits { peers: 1, ..Limits::default() };
    let mut session = Session::of(limits);
    session.input(&[up(1), announced(1, 1)]);
    assert_eq!(session.input(&[up_with(3, 0, [UNICAST; 2])]), [""; 0]);
    assert_eq!(session.rejected(), ["message 3: a peer too many (the limit is max_peers)"]);
    assert_eq!(session.input(&[announced(1, 2)]), ["10.0.0.0/8 192.0.2.2"]);
}

/// A router that reports routes before and behind its policy: those before it forward in no session but the first.
#[test]
fn a_session_begins_with_the_routes_that_the_router_sent_in_the_one_before() {
    let pre = |nlri: &[u8]| routes_of(0, 0, 1, 1, nlri);
    let post = |nlri: &[u8]| routes_of(0, 0x40, 1, 2, nlri);
    let own = |nlri: &[u8]| routes_of(3, 0, 0, 3, nlri);
    let own_up = up_with(3, 0, [UNICAST; 2]);
    let mut first = Session::new();
    assert_eq!(first.bmp.monitored(), Some(Monitored::PrePolicy));
    first.input(&[up(1), pre(&[8, 10]), post(&[8, 10])]);
    assert_eq!(first.bmp.monitored(), Some(Monitored::PostPolicy));

    let mut next = Session::behind(Monitored::PostPolicy);
    assert_eq!(next.input(&[up(1), pre(&[8, 10, 8, 11, 8, 12])]), ["start"]);
    assert_eq!(next.input(&[post(&[8, 10])]), ["10.0.0.0/8 192.0.2.2"], "nothing is withdrawn");
    assert_eq!(next.input(&[pre(&[8, 11]), post(&[8, 11])]), ["11.0.0.0/8 192.0.2.2"]);
    assert_eq!(next.wait(30), ["end"], "and 12.0.0.0/8 is the policy's");
    assert_eq!(next.bmp.monitored(), Some(Monitored::PostPolicy));
    // Now its choice as well, which is a table anew; then it stands above both.
    let events = next.input(&[own_up.clone(), own(&[8, 10])]);
    assert_eq!(events, ["start", "10.0.0.0/8 192.0.2.3"]);
    let mut last = Session::behind(Monitored::LocRib);
    assert_eq!(last.input(&[up(1), pre(&[8, 10]), post(&[8, 10])]), ["start"]);
    assert_eq!(last.input(&[own_up.clone(), own(&[8, 10])]), ["10.0.0.0/8 192.0.2.3"]);
    assert_eq!(last.bmp.monitored(), Some(Monitored::LocRib));
    let gone = message_of(PEER_DOWN, &[&peer(3, 0, 0)[..], &[1]].concat());
    last.bmp.input(&gone, last.now, &mut |_| ()).unwrap_err();
    assert_eq!(last.bmp.monitored(), None, "it has none any more");
}

/// A router that is configured otherwise now.
#[test]
fn routes_that_are_awaited_and_do_not_come_give_way_to_others() {
    let many: Vec<u8> = (1..=9).flat_map(|n| [8, n]).collect();
    let mut session = Session::behind(Monitored::PostPolicy);
    assert_eq!(session.input(&[up(1), up(2), routes_of(0, 0, 1, 1, &many)]), ["start"]);
    assert_eq!(session.input(&[announced(2, 2), withdrawn(2)]), [""; 0]);
    assert_eq!((session.wait(29), session.bmp.monitored()), (vec![], Some(Monitored::PostPolicy)));
    let events = session.wait(1);
    assert_eq!((events.len(), &events[0][..], &events[9][..]), (10, "1.0.0.0/8 192.0.2.1", "end"));
    assert_eq!(session.bmp.monitored(), Some(Monitored::PrePolicy));
    assert_eq!(session.input(&[announced(2, 2)]), ["10.0.0.0/8 192.0.2.2"]);
    assert_eq!(session.wait(100), [""; 0], "once");

    // One without routes has shown nothing: what comes later waits for as long.
    let mut session = Session::behind(Monitored::PostPolicy);
    session.input(&[up(1)]);
    assert_eq!(session.wait(30), ["end"]);
    assert_eq!(session.input(&[announced(1, 1)]), [""; 0]);
    assert_eq!(session.wait(29), [""; 0]);
    assert_eq!((session.wait(1), session.wait(9)), (vec!["10.0.0.0/8 192.0.2.1".into()], vec![]));
    assert_eq!(session.input(&[announced(1, 2)]), ["10.0.0.0/8 192.0.2.2"]);
}

/// All peers of a router may go at once, each with a full table: what else there is to do must not wait for them.
#[test]
fn the_input_stops_before_a_message_whose_work_takes_several_steps() {
    let many: Vec<u8> = (1..=5).flat_map(|n| [8, n]).collect();
    let mut session = Session::new();
    session.input(&[up(1), up(2), up(3), routes_of(0, 0, 1, 1, &many), announced(2, 2)]);
    let messages = [down(3), down(1), down(2), up(1), announced(1, 4)];
    let bytes = messages.concat();
    let (mut steps, mut taken) = (Vec::new(), 0);
    while taken < bytes.len() {
        let mut events = 0;
        let sink = &mut |event| events += said(event).iter().len();
        let len = session.bmp.input(&bytes[taken..], session.now, sink).unwrap();
        assert_eq!(session.bmp.due(), (taken + len < bytes.len()).then_some(session.now));
        steps.push((len, events));
        taken += len;
    }
    let len = |at: usize| messages[at].len();
    // Two changes a step, of six prefixes.
    let first = [(len(0), 0), (0, 2), (0, 2), (len(1), 1)];
    assert_eq!(steps, [&first[..], &[(len(2) + len(3) + len(4), 2)]].concat());
    // A peer that comes up again was lost before.
    let again = [up(1), up(2)];
    let taken = session.bmp.input(&again.concat(), session.now, &mut |_| ());
    assert_eq!((taken, session.bmp.due()), (Ok(0), Some(session.now)));
    assert_eq!(session.input(&again), ["10.0.0.0/8 -"]);
    assert_eq!(session.rejected(), [""; 0]);
}

#[test]
fn path_identifiers_are_read_where_both_agreed_on_them() {
    let receives = [UNICAST, &[69, 4, 0, 1, 1, 1]].concat();
    let sends = [UNICAST, &[69, 4, 0, 1, 1, 2]].concat();
    let with_path = routes_of(0, 0, 1, 1, &[0, 0, 0, 5, 8, 10]);
    let mut session = Session::new();
    let events = session.input(&[up_with(0, 1, [&receives, &sends]), with_path.clone()]);
    assert_eq!(events, ["start", "10.0.0.0/8 192.0.2.1"]);
    // The other way round the peer sends none, unless its messages show them.
    let mut session = Session::new();
    let up = up_with(0, 1, [&sends, &receives]);
    let events = session.input(&[up.clone(), announced(1, 2), with_path.clone()]);
    assert_eq!(events, ["start", "10.0.0.0/8 192.0.2.2"]);
    assert_eq!(session.rejected(), ["message 3: incomplete inside a field"]);
    let mut session = Session::new();
    assert_eq!(session.input(&[up, with_path]), ["start", "10.0.0.0/8 192.0.2.1"]);
    let why = "prefixes have path identifiers, on which no OPEN messages agree, and are read so";
    assert_eq!(session.rejected(), [format!("message 2: peer 10.0.0.1: {why}")]);
}

/// bgpd of FRR: the OPEN messages are those of the peer, and the messages are written without path identifiers.
#[test]
fn prefixes_without_the_identifiers_that_were_agreed_on_are_prefixes() {
    let offers = [UNICAST, &[1, 4, 0, 2, 0, 1, 69, 8, 0, 1, 1, 3, 0, 2, 1, 3]].concat();
    let v6 = |kind: u8, rest: &[u8]| {
        let attribute = [&[0x80, kind, u8::try_from(rest.len()).unwrap()][..], rest].concat();
        let update = bgp(2, &[&counted(&[])[..], &counted(&attribute)].concat());
        message_of(ROUTE_MONITORING, &[&peer(0, 0, 1)[..], &update].concat())
    };
    let reach = [&[0, 2, 1, 16][..], &[0x20; 16], &[0, 32, 0x24, 0, 0xcb, 0]].concat();
    let mut session = Session::new();
    let events = session.input(&[
        up_with(0, 1, [&offers, &offers]),
        // With identifiers, both were the default route.
        routes_of(0, 0, 1, 1, &[25, 10, 1, 2, 0]),
        v6(14, &reach),
        routes_of(0, 0, 1, 1, &[24, 10, 1, 3]),
        v6(15, &[0, 2, 1, 32, 0x24, 0, 0xcb, 0]),
    ]);
    let hop = "2020:2020:2020:2020:2020:2020:2020:2020";
    let want = [
        "start".to_owned(),
        "10.1.2.0/25 192.0.2.1".into(),
        format!("2400:cb00::/32 {hop}"),
        "10.1.3.0/24 192.0.2.1".into(),
        "2400:cb00::/32 -".into(),
    ];
    assert_eq!(events, want);
    // Once a family.
    let why = "prefixes have no path identifiers, on which OPEN messages agree, and are read so";
    assert_eq!(session.rejected(), [2, 3].map(|n| format!("message {n}: peer 10.0.0.1: {why}")));
}

/// bgpd of FRR leaves out the next hop of an IPv4 prefix where both ends agreed on next hops of IPv6 (RFC 8950).
#[test]
fn prefixes_without_a_next_hop_are_by_an_external_peer_of_ipv6() {
    let capabilities = [UNICAST, &[5, 6, 0, 1, 0, 1, 0, 2]].concat();
    // Of the peer fd00::1, or fe80::1, in an AS of that number.
    let header = |first: u8, peer_as: u16| {
        let mut header = peer(0, 0x80, 1);
        header[10..26].copy_from_slice(&[
            first,
            if first == 0xfe { 0x80 } else { 0 },
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            1,
        ]);
        header[28..30].copy_from_slice(&peer_as.to_be_bytes());
        header
    };
    let events = |first, peer_as, capabilities: &[u8]| {
        let opens = [OWN_AS, peer_as].map(|own_as| open_of(own_as, capabilities)).concat();
        let header = header(first, peer_as);
        let up = message_of(PEER_UP, &[&header[..], &[0; 20], &opens].concat());
        let update = bgp(2, &[&counted(&[])[..], &counted(&[0x40, 1, 1, 0]), &[8, 10]].concat());
        let route = message_of(ROUTE_MONITORING, &[&header[..], &update].concat());
        let mut session = Session::new();
        (session.input(&[up, route])[1..].to_vec(), session.bmp.rejected().count)
    };
    let other = OWN_AS + 1;
    assert_eq!(events(0xfd, other, &capabilities), (vec!["10.0.0.0/8 fd00::1".to_owned()], 0));
    for (first, peer_as, capabilities) in
        [(0xfd, OWN_AS, &capabilities[..]), (0xfd, other, UNICAST), (0xfe, other, &capabilities)]
    {
        assert_eq!(events(first, peer_as, capabilities), (vec![], 1), "{first:x} {peer_as}");
    }
}

#[test]
fn peers_of_one_address_differ_by_their_bgp_identifiers() {
    // Of fe80::1.
    let with_id = |message: Vec<u8>, id: u8| {
        let mut message = with_id(message, id);
        message[HEADER_BYTES + 1] = 0x80;
        message[HEADER_BYTES + 10..][..16]
            .copy_from_slice(&"fe80::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        message
    };
    let of = |id, hop, first| with_id(routes_of(0, 0, 1, hop, &[8, first]), id);
    let gone = |id| with_id(down(1), id);
    let mut session = Session::new();
    let events = session.input(&[with_id(up(1), 1), of(1, 1, 10), with_id(up(1), 2), of(2, 2, 11)]);
    assert_eq!(events, ["start", "10.0.0.0/8 192.0.2.1", "11.0.0.0/8 192.0.2.2"]);
    // A router that has cleared the identifier: either may be gone.
    assert_eq!(session.input(&[gone(0)]), [""; 0]);
    let why = "the loss of one of several peers, without its identifier";
    assert_eq!(session.rejected(), [format!("message 5: {why}")]);
    assert_eq!(session.input(&[gone(2)]), ["11.0.0.0/8 -"]);
    // At each further try to reach it.
    assert_eq!(session.input(&[gone(2)]), [""; 0]);
    assert_eq!(session.input(&[of(1, 3, 10)]), ["10.0.0.0/8 192.0.2.3"]);
    assert_eq!(session.input(&[gone(0), gone(0)]), ["10.0.0.0/8 -"]);
    assert_eq!(session.bmp.rejected().count, 1);
}

#[test]
fn a_peer_that_comes_with_another_bgp_identifier_has_no_routes_of_before() {
    let mut session = Session::new();
    let events = session.input(&[up(1), announced(1, 1), with_id(up(1), 9)]);
    assert_eq!(events, ["start", "10.0.0.0/8 192.0.2.1", "10.0.0.0/8 -"]);
    assert_eq!(session.input(&[with_id(announced(1, 2), 9)]), ["10.0.0.0/8 192.0.2.2"]);
    // Cleared.
    assert_eq!(session.input(&[with_id(down(1), 0)]), ["10.0.0.0/8 -"]);
    assert_eq!((session.rejected(), session.bmp.peers.len()), (vec![], 0));
}

/// GoBGP 3, and FRR before 10.2.
#[test]
fn a_loc_rib_without_peer_up_is_a_peer_from_its_first_route_on() {
    let own = |last: u8, hop, nlri: &[u8]| {
        let mut message = routes_of(3, 0, 0, hop, nlri);
        // FRR has the peer there that the route came from.
        message[HEADER_BYTES + 10..HEADER_BYTES + 26].fill(last);
        message
    };
    let mut session = Session::new();
    let events = session.input(&[up(1), announced(1, 1), own(1, 7, &[8, 10])]);
    assert_eq!(events, ["start", "10.0.0.0/8 192.0.2.1", "start", "10.0.0.0/8 192.0.2.7"]);
    assert_eq!(session.input(&[announced(1, 1), own(2, 8, &[8, 10])]), ["10.0.0.0/8 192.0.2.8"]);
    // Its Peer Up, behind routes: they stay.
    assert_eq!(session.input(&[up_with(3, 0, [UNICAST; 2])]), [""; 0]);
    assert_eq!(session.input(&[own(0, 9, &[8, 10])]), ["10.0.0.0/8 192.0.2.9"]);
    // A second one begins it anew.
    assert_eq!(session.input(&[up_with(3, 0, [UNICAST; 2])]), ["10.0.0.0/8 -"]);
    assert_eq!(session.rejected(), [""; 0]);
}

#[test]
fn a_message_that_cannot_be_read_replaces_no_routes() {
    for (kind, flags) in [(0, 0x40), (3, 0)] {
        let mut session = Session::new();
        session.input(&[up(1), announced(1, 1)]);
        // A prefix that is cut short, and an ORIGIN without content.
        let cut = routes_of(kind, flags, 1, 7, &[24, 10]);
        let attributes = counted(&[0x40, 3, 4, 192, 0, 2, 7, 0x40, 1, 0]);
        let update = bgp(2, &[&counted(&[])[..], &attributes, &[8, 10]].concat());
        let broken = [&peer(kind, flags, 1)[..], &update].concat();
        let messages = [cut, message_of(ROUTE_MONITORING, &broken)];
        assert_eq!(session.input(&messages), [""; 0], "{kind}");
        assert_eq!(session.bmp.rejected().count, 2);
        assert_eq!(session.input(&[announced(1, 2)]), ["10.0.0.0/8 192.0.2.2"], "{kind}");
        let whole = routes_of(kind, flags, 1, 7, &[8, 10]);
        assert_eq!(session.input(&[whole]), ["start", "10.0.0.0/8 192.0.2.7"]);
    }
}

/// FRR sends the header of an OPEN message alone where it has not kept the message.
#[test]
fn an_open_message_without_content_shows_nothing() {
    let body = |kind| [&peer(kind, 0, 1)[..], &[0; 20], &bgp(1, &[]), &bgp(1, &[])].concat();
    let end = |kind| routes_of(kind, 0, 1, 0, &[]);
    for kind in [0, 3] {
        let mut session = Session::new();
        let messages =
            [message_of(PEER_UP, &body(kind)), routes_of(kind, 0, 1, 1, &[8, 10]), end(kind)];
        assert_eq!(session.input(&messages), ["start", "10.0.0.0/8 192.0.2.1"]);
        assert_eq!(session.rejected(), [""; 0]);
        session.wait(29);
        session.input(&[routes_of(kind, 0, 1, 1, &[8, 11])]);
        assert_eq!(session.wait(1), [""; 0], "it may have IPv6 too");
    }
}

/// GoBGP 4 up to 4.7: 10.101.0.0/24 with path 1, and a Peer Up that has no capability.
#[test]
fn path_identifiers_of_a_loc_rib_need_no_agreement() {
    let route = routes_of(3, 0, 0, 1, &[0, 0, 0, 1, 24, 10, 101, 0]);
    let update = bgp(2, &[&counted(&[0, 0, 0, 1, 24, 10, 101, 0])[..], &counted(&[])].concat());
    let gone = message_of(ROUTE_MONITORING, &[&peer(3, 0, 0)[..], &update].concat());
    let mut session = Session::new();
    let events = session.input(&[up_with(3, 0, [&[]; 2]), route.clone(), gone]);
    assert_eq!(events, ["start", "10.101.0.0/24 192.0.2.1", "10.101.0.0/24 -"]);
    // Cut short, it fits no form, and no default route comes of it.
    let mut session = Session::new();
    let cut = routes_of(3, 0, 0, 1, &[0, 0, 0, 1, 24, 10, 101]);
    let events = session.input(&[up_with(3, 0, [&[]; 2]), cut, route]);
    assert_eq!(events, ["start", "10.101.0.0/24 192.0.2.1"]);
    assert_eq!(session.bmp.rejected().count, 2);
}

#[test]
fn a_message_that_is_rejected_shows_no_form() {
    // 10.1.2.0/24, with an ORIGIN that has no content.
    let attributes = counted(&[0x40, 3, 4, 192, 0, 2, 1, 0x40, 1, 0]);
    let update = bgp(2, &[&counted(&[])[..], &attributes, &[24, 10, 1, 2]].concat());
    let broken = message_of(ROUTE_MONITORING, &[&peer(0, 0, 1)[..], &update].concat());
    let mut session = Session::new();
    session.input(&[up(1), broken]);
    assert_eq!(session.bmp.rejected().count, 1);
    let route = routes_of(0, 0, 1, 1, &[0, 0, 0, 1, 24, 10, 101, 0]);
    assert_eq!(session.input(&[route]), ["10.101.0.0/24 192.0.2.1"]);
}

#[test]
fn what_is_too_much_is_counted_and_the_rest_is_applied() {
    let limits = Limits { peers: 2, prefixes: 2, paths: 3, of_prefix: 1024 };
    let mut session = Session::of(limits);
    let three = routes_of(0, 0, 1, 1, &[8, 10, 8, 11, 8, 12]);
    let events = session.input(&[up(1), up(2), up(3), three, announced(2, 2), announced(3, 3)]);
    let both = "10.0.0.0/8 192.0.2.1, else 192.0.2.2";
    assert_eq!(events, ["start", "10.0.0.0/8 192.0.2.1", "11.0.0.0/8 192.0.2.1", both]);
    assert_eq!(
        session.rejected(),
        [
            "message 3: a peer too many (the limit is max_peers)",
            "message 4: 12.0.0.0/8: a prefix too many (the limit is max_prefixes)",
            "message 6: routes of a peer that is not up",
        ]
    );
    let more = routes_of(0, 0, 2, 2, &[8, 11]);
    assert_eq!(session.input(std::slice::from_ref(&more)), [""; 0]);
    assert!(
        session.rejected()[3].ends_with("11.0.0.0/8: a path too many (the limit is max_paths)")
    );
    // A peer that goes makes room for another one, and for its paths.
    let left = session.input(&[down(1), more, up(3), announced(3, 3)]);
    assert!(left.contains(&"11.0.0.0/8 192.0.2.2".to_owned()), "{left:?}");
    assert_eq!(left.last().unwrap(), "10.0.0.0/8 192.0.2.2, else 192.0.2.3");
    assert_eq!(session.bmp.rejected().count, 4);
}

#[test]
fn many_paths_of_one_prefix_are_cut_off() {
    let offers = [UNICAST, &[69, 4, 0, 1, 1, 3]].concat();
    let mut session = Session::new();
    session.input(&[up_with(0, 1, [&offers, &offers])]);
    let most = u32::try_from(Limits::default().of_prefix).unwrap();
    for id in 0..most + 10 {
        let nlri = [&id.to_be_bytes()[..], &[8, 10]].concat();
        session.input(&[routes_of(0, 0, 1, 1, &nlri)]);
    }
    assert_eq!(session.bmp.rejected().count, 10);
    assert!(session.rejected()[0].ends_with("10.0.0.0/8: a path too many of the prefix"));
    assert_eq!(session.input(&[down(1)]), ["10.0.0.0/8 -"]);
}

#[test]
fn the_table_ends_when_all_peers_have_ended_theirs() {
    let both = [UNICAST, &[1, 4, 0, 2, 0, 1]].concat();
    let end_v6 = {
        let body = [&counted(&[])[..], &counted(&[0x80, 15, 3, 0, 2, 1])].concat();
        let update = [&peer(0, 0, 1)[..], &bgp(2, &body)].concat();
        message_of(ROUTE_MONITORING, &update)
    };
    let end = |last| routes_of(0, 0, last, 0, &[]);
    let mut session = Session::new();
    session.input(&[up_with(0, 1, [&both, &both]), up(2), end(2), end(1)]);
    session.wait(25);
    session.input(&[withdrawn(2)]);
    assert_eq!(session.wait(6), [""; 0], "peer 1 has IPv6 too");
    session.input(&[end_v6]);
    assert_eq!(session.wait(0), ["end"]);
    assert_eq!(session.wait(100), [""; 0], "once");
    assert_eq!(session.bmp.ends(), 3);
    // A router that sends no end.
    let mut session = Session::new();
    session.input(&[up(1), announced(1, 1)]);
    session.wait(10);
    session.input(&[down(2)]);
    assert_eq!((session.wait(19), session.wait(1)), (vec![], vec!["end".to_owned()]));
    assert_eq!(session.bmp.ends(), 0, "the clock is none");
}

#[test]
fn a_message_that_makes_no_sense_is_counted_and_the_rest_is_applied() {
    let mut session = Session::new();
    let mut broken = announced(1, 1);
    broken.truncate(broken.len() - 1);
    broken[4] -= 1;
    session.input(&[up(1), broken, announced(1, 2)]);
    assert_eq!(session.rejected(), ["message 2: incomplete inside a field"]);
    let events = session.input(&[announced(1, 3)]);
    assert_eq!(events, ["10.0.0.0/8 192.0.2.3"]);
    // A message in pieces waits for its end.
    let whole = announced(1, 4);
    let mut events = Vec::new();
    let mut sink = |event| events.extend(said(event));
    for cut in 0..whole.len() {
        assert_eq!(session.bmp.input(&whole[..cut], session.now, &mut sink), Ok(0), "{cut}");
    }
    session.bmp.input(&whole, session.now, &mut sink).unwrap();
    assert_eq!(events, ["10.0.0.0/8 192.0.2.4"]);
    // Nothing behind another version can be understood.
    let error = session.bmp.input(&[4, 0, 0, 0, 6, 0], session.now, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("message 6: version 4"), "{error}");
}

#[test]
fn a_stream_recorded_from_frr_is_understood() {
    let Some(path) = data("fpm/frr844-bmp-pre-policy-2000.bin.gz") else { return };
    let file = std::fs::File::open(path).unwrap();
    let mut decoded = Decoded::new("bmp", Box::new(file)).unwrap();
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(len @ 1..) = decoded.read_some(&mut piece) {
        bytes.extend_from_slice(&piece[..len]);
    }
    let mut bmp = Bmp::new(&SourceSpec::default());
    let mut events = Vec::new();
    let taken = bmp.input(&bytes, Instant::now(), &mut |event| events.extend(said(event)));
    assert_eq!(taken, Ok(bytes.len()));
    // bgpd kept no routes before the policy, of which it was to report: it reports each as withdrawn.
    assert_eq!((bmp.messages, bmp.peers.len(), events), (2_004, 1, vec!["start".to_owned()]));
    assert_eq!(bmp.rejected(), Rejected::default());
}
