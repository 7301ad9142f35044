//! Peers at a Unix socket, with the source `fpm`: sessions, seats, and what is written back.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use fingerpost_route::ControlOptions;
use fingerpost_route::netlink::{Request, route};
use fingerpost_route::source::find;

use super::*;
use crate::log::tests::captured;

const SWEEP: Duration = Duration::from_secs(2);
const STALE: Duration = Duration::from_secs(30);

/// A listening source with its control side, and a clock.
struct Lab {
    listener: Listener,
    control: Control,
    now: Instant,
    said: Vec<String>,
    path: PathBuf,
}

/// A frame that adds or deletes `10.N.0.0/16`.
fn frame(kind: u16, n: u8) -> Vec<u8> {
    let message = Request::query(kind, 0x500, 0)
        .fixed(&[2, 16, 0, 0, 254, 186, 0, 6, 0, 0, 0, 0])
        .attr(1, &[10, n, 0, 0])
        .attr(6, &20_u32.to_ne_bytes())
        .finish();
    framed(&message)
}

fn framed(message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + message.len()).unwrap();
    [&[1, 1][..], &len.to_be_bytes(), message].concat()
}

/// A frame that adds a next-hop object.
fn object() -> Vec<u8> {
    let object = Request::query(NEW_NEXT_HOP, 0x500, 0).fixed(&[2, 0, 11, 0, 0, 0, 0, 0]);
    framed(&object.attr(1, &7_u32.to_ne_bytes()).attr(6, &[10, 0, 0, 1]).finish())
}

impl Lab {
    fn new(name: &str) -> Self {
        Self::of("fpm", name)
    }

    fn of(kind: &str, name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fp-{name}-{}.sock", std::process::id()));
        let kind = find(kind).unwrap();
        let session = SessionSpec { sweep_after: SWEEP, ..SessionSpec::default() };
        let settings = Settings {
            kind,
            listen: Listen::Unix(path.clone()),
            spec: SourceSpec { session, ..SourceSpec::default() },
            distance: kind.distance,
            stale_after: STALE,
        };
        let (v4, v6) = (fingerpost_lpm::v4().collect(), fingerpost_lpm::v6().collect());
        let options = ControlOptions { v4, v6, connected_from_addresses: true };
        let control = Control::new(options).unwrap();
        let listener = Listener::open(settings).unwrap();
        Self { listener, control, now: Instant::now(), said: Vec::new(), path }
    }

    fn peer(&self) -> UnixStream {
        UnixStream::connect(&self.path).unwrap()
    }

    /// A peer whose table of one route is complete.
    fn peer_with_table(&mut self) -> UnixStream {
        let mut peer = self.peer();
        peer.write_all(&frame(route::NEW, 1)).unwrap();
        self.turn(NOW);
        self.turn(NOW);
        self.turn(SWEEP);
        peer
    }

    /// A peer that returns after its table and sends nothing.
    fn returned_silent(&mut self) -> UnixStream {
        drop(self.peer_with_table());
        self.turn(NOW);
        let silent = self.peer();
        self.turn(NOW);
        silent
    }

    /// A turn after this time.
    fn turn(&mut self, time: Duration) -> usize {
        self.now += time;
        let number = &mut |control: &mut Control, settings: &Settings| {
            control.add_source(settings.kind.name, settings.distance)
        };
        let (control, now) = (&mut self.control, self.now);
        let listener = &mut self.listener;
        let (taken, lines) = captured(|| listener.turn(&mut Turn { control, now, number }));
        self.said.extend(lines);
        taken
    }

    /// A commit after which readers see `all`.
    fn commit(&mut self, all: bool) {
        self.control.commit_now(self.now).unwrap();
        let listener = &mut self.listener;
        let ((), lines) = captured(|| listener.committed(all, self.now));
        self.said.extend(lines);
    }

    /// Routes of each seat.
    fn routes(&mut self) -> Vec<u64> {
        self.commit(false);
        self.listener.seats().map(|seat| self.control.source(seat.id).routes).collect()
    }

    fn report(&self, seat: usize) -> SeatReport {
        self.listener.seats[seat].report(self.now)
    }
}

/// `RTM_NEWNEXTHOP`.
const NEW_NEXT_HOP: u16 = 104;
const NOW: Duration = Duration::ZERO;

#[test]
fn a_peer_that_returns_has_its_seat_and_what_it_does_not_repeat_is_swept() {
    let mut lab = Lab::new("seat");
    assert_eq!(lab.turn(NOW), 0);
    let mut peer = lab.peer();
    for n in 1..=3 {
        peer.write_all(&frame(route::NEW, n)).unwrap();
    }
    lab.turn(NOW);
    lab.turn(NOW);
    assert_eq!((lab.routes(), lab.listener.mirrored(&lab.control)), (vec![3], None));
    lab.turn(SWEEP);
    let mirrored = lab.listener.mirrored(&lab.control).unwrap();
    assert!(mirrored.contains(&11) && mirrored.contains(&186), "its table is complete");
    drop(peer);
    lab.turn(NOW);
    assert_eq!((lab.routes(), lab.listener.mirrored(&lab.control)), (vec![3], None));
    assert!(lab.said.last().unwrap().contains("its 3 routes stay for 30 s"), "{:?}", lab.said);
    lab.turn(STALE - Duration::from_secs(1));

    let mut peer = lab.peer();
    peer.write_all(&frame(route::NEW, 2)).unwrap();
    lab.turn(NOW);
    lab.turn(SWEEP);
    lab.turn(SWEEP - Duration::from_millis(1));
    assert_eq!(lab.routes(), [3], "the table may not be complete");
    lab.turn(Duration::from_millis(1));
    assert_eq!(lab.routes(), [1]);
    let report = lab.report(0);
    assert_eq!((report.is_open, report.sessions, report.messages, report.errors), (true, 2, 4, 0));
    // Its routes end with the time for which they stay.
    drop(peer);
    lab.turn(NOW);
    lab.turn(STALE - Duration::from_millis(1));
    assert_eq!(lab.routes(), [1]);
    lab.turn(Duration::from_millis(1));
    assert_eq!(lab.routes(), [0]);
    assert!(lab.said.last().unwrap().contains("has not come back in 30 s"), "{:?}", lab.said);
    lab.peer();
    lab.turn(NOW);
    assert_eq!(lab.routes(), [0], "and the seat is used again");
}

#[test]
fn routes_do_not_outlive_sessions_that_end_before_their_tables() {
    let mut lab = Lab::new("flaps");
    let mut peer = lab.peer();
    peer.write_all(&frame(route::NEW, 1)).unwrap();
    lab.turn(NOW);
    lab.turn(NOW);
    lab.turn(SWEEP);
    drop(peer);
    lab.turn(NOW);
    for n in 2..100 {
        let mut peer = lab.peer();
        peer.write_all(&frame(route::NEW, n)).unwrap();
        lab.turn(NOW);
        lab.turn(SWEEP / 2);
        drop(peer);
        lab.turn(NOW);
        if lab.routes() == [0] {
            assert!(u64::from(n) > STALE.as_secs(), "{n}");
            return;
        }
    }
    panic!("{:?}", lab.said);
}

/// Numbers of next-hop objects repeat: routes of a session so long ago must not follow an object of the present one.
#[test]
fn routes_do_not_outlive_the_numbers_of_their_objects() {
    let mut lab = Lab::new("numbers");
    let mut peer = lab.peer();
    for n in 1..=2 {
        peer.write_all(&frame(route::NEW, n)).unwrap();
    }
    peer.write_all(&object()).unwrap();
    lab.turn(NOW);
    lab.turn(NOW);
    lab.turn(SWEEP);
    drop(peer);
    lab.turn(NOW);
    for later in 1..=SessionSpec::DISTINCT {
        let mut peer = lab.peer();
        peer.write_all(&frame(route::NEW, 3)).unwrap();
        lab.turn(NOW);
        lab.turn(NOW);
        // The first two stay for as long as their numbers are others.
        let routes = if later < SessionSpec::DISTINCT { 3 } else { 1 };
        assert_eq!(lab.routes(), [routes], "{later}: {:?}", lab.said.last());
        drop(peer);
        lab.turn(NOW);
    }
    let why =
        "15 sessions with the peer at the socket in a row have ended without a complete table";
    assert!(lab.said.iter().any(|line| line.contains(why)), "{:?}", lab.said);
}

/// A connection alone is no peer that has come back.
#[test]
fn a_session_in_which_nothing_is_sent_keeps_no_routes() {
    let mut lab = Lab::new("silent");
    let mut silent = lab.returned_silent();
    lab.turn(STALE - Duration::from_millis(1));
    assert_eq!(lab.routes(), [1]);
    lab.turn(Duration::from_millis(1));
    assert_eq!(lab.routes(), [0]);
    let why = "has connected and sent nothing in 30 s: its 1 routes are withdrawn";
    assert!(lab.said.last().unwrap().contains(why), "{:?}", lab.said);
    assert_eq!(lab.listener.mirrored(&lab.control), None, "it has no table");
    // What it sends after all is one.
    silent.write_all(&frame(route::NEW, 2)).unwrap();
    lab.turn(NOW);
    lab.turn(SWEEP);
    assert!(lab.listener.mirrored(&lab.control).is_some());
    assert_eq!(lab.routes(), [1]);
}

#[test]
fn a_session_in_which_nothing_is_sent_gives_its_seat_to_the_next() {
    let mut lab = Lab::new("gives");
    let mut silent = lab.returned_silent();
    lab.turn(SILENCE);
    let mut peer = lab.peer();
    peer.write_all(&frame(route::NEW, 2)).unwrap();
    lab.turn(NOW);
    lab.turn(NOW);
    assert_eq!(lab.routes(), [2], "it has the seat of its routes");
    assert!(
        lab.said.iter().any(|line| line.contains("is closed for a newer one")),
        "{:?}",
        lab.said
    );
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    lab.turn(SWEEP);
    assert_eq!(lab.routes(), [1]);
    // One that has sent something is no such session, however silent it is.
    let other = lab.peer();
    lab.turn(SILENCE);
    lab.turn(SILENCE);
    assert_eq!(lab.routes(), [1, 0]);
    drop(other);
}

/// A message of BMP about the peer 192.0.2.1, with these flags.
fn monitored(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let peer = [&[0, flags][..], &[0; 20], &[192, 0, 2, 1], &[0, 0, 0xfd, 0xe9], &[9; 4], &[0; 8]];
    let body = [&peer.concat(), body].concat();
    let len = u32::try_from(6 + body.len()).unwrap().to_be_bytes();
    [&[3][..], &len, &[kind], &body].concat()
}

/// A router that reports its routes before and behind its policy: no session but the first has those before it.
#[test]
fn the_next_session_begins_with_the_routes_that_the_router_sent() {
    let bgp = |kind: u8, body: &[u8]| {
        let len = u16::try_from(19 + body.len()).unwrap().to_be_bytes();
        [&[0xff; 16][..], &len, &[kind], body].concat()
    };
    let open = bgp(1, &[4, 0xfd, 0xe8, 0, 90, 9, 9, 9, 9, 0]);
    let up = monitored(3, 0, &[&[0; 20][..], &open, &open].concat());
    let path = [&[0, 0, 0, 7, 0x40, 3, 4, 192, 0, 2, 1][..], &[8, 10]].concat();
    let before = monitored(0, 0, &bgp(2, &path));
    let behind = monitored(0, 0x40, &bgp(2, &path));
    let mut lab = Lab::of("bmp", "views");
    for (session, message) in [(1, &behind), (2, &before), (3, &behind)] {
        let mut peer = lab.peer();
        lab.turn(NOW);
        let id = lab.listener.seats[0].id;
        let updates = lab.control.source(id).updates;
        peer.write_all(&[&up[..], message].concat()).unwrap();
        lab.turn(NOW);
        let updates = lab.control.source(id).updates - updates;
        assert_eq!((lab.routes(), updates), (vec![1], u64::from(session != 2)), "{session}");
        drop(peer);
        lab.turn(NOW);
    }
}

#[test]
fn peers_at_a_time_have_a_seat_each() {
    let mut lab = Lab::new("peers");
    let mut peers: Vec<UnixStream> = (0..3).map(|_| lab.peer()).collect();
    lab.turn(NOW);
    for (n, peer) in peers.iter_mut().enumerate() {
        // All have a route to one prefix.
        peer.write_all(&frame(route::NEW, 0)).unwrap();
        peer.write_all(&frame(route::NEW, u8::try_from(n).unwrap())).unwrap();
    }
    lab.turn(NOW);
    assert_eq!(lab.routes(), [1, 2, 2]);
    // The second one goes and is there again before its end was read, and not all of it was.
    peers[1].write_all(&frame(route::NEW, 9)).unwrap();
    peers.remove(1);
    let mut again = lab.peer();
    again.write_all(&frame(route::NEW, 1)).unwrap();
    let (until, seat) = (Instant::now(), &mut lab.listener.seats[1]);
    assert!(seat.session.as_ref().is_some_and(Session::is_closed));
    let number = &mut |_: &mut Control, _: &Settings| panic!("there is a seat");
    let (control, now) = (&mut lab.control, lab.now);
    let mut turn = Turn { control, now, number };
    assert_eq!(lab.listener.seat_for(None, &mut turn), Some(1));
    assert!(until.elapsed() < Duration::from_secs(5));
    lab.turn(NOW);
    lab.turn(NOW);
    lab.turn(SWEEP);
    assert_eq!(lab.routes(), [1, 1, 2]);
    assert_eq!(lab.listener.seats.len(), 3);
}

#[test]
fn a_session_without_routes_keeps_no_seat() {
    let mut lab = Lab::new("empty");
    for _ in 0..3 {
        drop(lab.peer());
        lab.turn(NOW);
        lab.turn(NOW);
        assert!(lab.listener.seats[0].left.is_none() && lab.listener.seats[0].session.is_none());
    }
    assert!(lab.said.last().unwrap().ends_with("it has no routes"), "{:?}", lab.said);
    assert_eq!((lab.listener.seats.len(), lab.report(0).sessions), (1, 3));
    assert!(!lab.control.source(lab.listener.seats[0].id).dumping);
}

#[test]
fn routes_of_a_peer_are_bounded() {
    let mut lab = Lab::new("bounded");
    lab.listener.settings.spec.session.limits.prefixes = 2;
    let mut peer = lab.peer();
    for n in 1..=3 {
        peer.write_all(&frame(route::NEW, n)).unwrap();
    }
    lab.turn(NOW);
    lab.turn(NOW);
    assert_eq!(lab.routes(), [2]);
    let source = lab.control.source(lab.listener.seats[0].id);
    assert_eq!(source.refused, 1);
    assert!(
        source.last_refusal.ends_with("(the limit is max_prefixes)"),
        "{}",
        source.last_refusal
    );
    // Only the kernel has the third one: its routes count.
    lab.turn(SWEEP);
    assert!(!lab.control.source(lab.listener.seats[0].id).dumping);
    assert_eq!(lab.listener.mirrored(&lab.control), None);
    // In a session without a refusal they do not.
    drop(peer);
    lab.turn(NOW);
    let mut peer = lab.peer_with_table();
    assert!(lab.listener.mirrored(&lab.control).is_some());
    peer.write_all(&[2, 3, 4].map(|n| frame(route::NEW, n)).concat()).unwrap();
    lab.turn(NOW);
    assert_eq!(lab.listener.mirrored(&lab.control), None);
}

/// What one peer has lost is not there, however complete the table of the other is.
#[test]
fn a_refused_route_of_one_peer_counts_beside_a_complete_table_of_another() {
    let mut lab = Lab::new("masked");
    lab.listener.settings.spec.session.limits.prefixes = 2;
    let mut peers = [lab.peer(), lab.peer()];
    lab.turn(NOW);
    peers[0].write_all(&frame(route::NEW, 1)).unwrap();
    lab.turn(NOW);
    lab.turn(SWEEP);
    assert_eq!(lab.routes(), [1, 0]);
    assert!(lab.listener.mirrored(&lab.control).is_some(), "the other one has sent nothing yet");
    peers[1].write_all(&[2, 3, 4].map(|n| frame(route::NEW, n)).concat()).unwrap();
    lab.turn(NOW);
    assert_eq!(lab.listener.mirrored(&lab.control), None);
    lab.turn(SWEEP);
    assert_eq!((lab.routes(), lab.listener.mirrored(&lab.control)), (vec![1, 2], None));
    // It counts until its session ends.
    drop(peers);
    lab.turn(NOW);
    let _peer = lab.peer_with_table();
    assert!(lab.listener.mirrored(&lab.control).is_some());
}

#[test]
fn seats_are_bounded_and_a_peer_that_returns_has_its_own() {
    let mut lab = Lab::new("many");
    let peer = |n: usize| Some(IpAddr::from(u32::try_from(n).unwrap().to_be_bytes()));
    let number = &mut |control: &mut Control, settings: &Settings| {
        control.add_source(settings.kind.name, settings.distance)
    };
    let now = lab.now;
    let mut turn = Turn { control: &mut lab.control, now, number };
    for n in 0..MOST_SEATS {
        let at = lab.listener.seat_for(peer(n), &mut turn);
        assert_eq!(at, Some(n));
        lab.listener.seats[n].left = Some(now);
    }
    assert_eq!(lab.listener.seat_for(peer(MOST_SEATS), &mut turn), None);
    assert_eq!(lab.listener.seat_for(peer(7), &mut turn), Some(7));
    lab.listener.seats[9].left = None;
    assert_eq!(lab.listener.seat_for(peer(MOST_SEATS), &mut turn), Some(9));
    assert_eq!(lab.listener.seats.len(), MOST_SEATS);
}

#[test]
fn routes_are_acknowledged_when_readers_see_them() {
    let mut lab = Lab::new("acks");
    let mut peer = lab.peer();
    peer.set_nonblocking(true).unwrap();
    let bytes = frame(route::NEW, 7);
    peer.write_all(&bytes).unwrap();
    lab.turn(NOW);
    lab.turn(NOW);
    lab.commit(false);
    let mut got = [0; 100];
    assert!(peer.read(&mut got).is_err(), "nothing yet");
    assert!(lab.listener.seats[0].session.as_ref().unwrap().lag(lab.now + SWEEP) >= SWEEP);
    lab.commit(true);
    let len = peer.read(&mut got).unwrap();
    let mut want = bytes.clone();
    want[4 + 16 + 8..][..4].copy_from_slice(&0x4000_u32.to_ne_bytes());
    assert_eq!(got[..len], want);
    assert_eq!(lab.report(0).lag, Duration::ZERO);
    lab.commit(true);
    assert!(peer.read(&mut got).is_err(), "once");
}

/// A frame with `2001:db8::/32` by a gateway of IPv4, which no route of IPv6 has here, or of IPv6.
fn frame_v6(gateway_v4: bool) -> Vec<u8> {
    let gateway: &[u8] = if gateway_v4 { &[2, 0, 192, 0, 2, 1] } else { &[10, 0, 0xfd, 0, 0, 0] };
    let mut via = gateway.to_vec();
    via.resize(if gateway_v4 { 6 } else { 18 }, 1);
    let message = Request::query(route::NEW, 0x500, 0)
        .fixed(&[10, 32, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0])
        .attr(1, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .attr(6, &20_u32.to_ne_bytes())
        .attr(18, &via)
        .finish();
    let len = u16::try_from(4 + message.len()).unwrap();
    [&[1, 1][..], &len.to_be_bytes(), &message].concat()
}

#[test]
fn a_route_that_is_refused_in_one_frame_and_taken_in_the_next_is_acknowledged_as_taken() {
    let mut lab = Lab::new("forms");
    let mut peer = lab.peer();
    peer.set_nonblocking(true).unwrap();
    let flags_after = |lab: &mut Lab, peer: &mut UnixStream, frames: &[Vec<u8>]| {
        for frame in frames {
            peer.write_all(frame).unwrap();
            lab.turn(NOW);
            lab.turn(NOW);
            lab.commit(false);
        }
        lab.commit(true);
        let mut got = [0; 200];
        let len = peer.read(&mut got).unwrap();
        assert_eq!(len, frames.last().unwrap().len(), "one acknowledgement, of the latest");
        u32::from_ne_bytes(got[4 + 16 + 8..][..4].try_into().unwrap())
    };
    let (refused, taken) = (frame_v6(true), frame_v6(false));
    let one = std::slice::from_ref(&refused);
    assert_eq!(flags_after(&mut lab, &mut peer, one), 0x2000_0000);
    assert_eq!(flags_after(&mut lab, &mut peer, &[refused.clone(), taken.clone()]), 0x4000);
    assert_eq!(lab.routes(), [1]);
    assert_eq!(flags_after(&mut lab, &mut peer, &[taken, refused]), 0x2000_0000);
    assert_eq!(lab.routes(), [0], "the route that was to be replaced is gone, too");
}

#[test]
fn a_peer_waits_while_its_routes_are_not_visible_or_it_does_not_read() {
    let mut lab = Lab::new("wait");
    let mut peer = lab.peer();
    peer.set_nonblocking(true).unwrap();
    lab.turn(NOW);
    // The same few routes again and again: none is dropped, and none is read beyond the limit.
    let piece: Vec<u8> = (0..=255).flat_map(|n| frame(route::NEW, n)).collect();
    let (mut rest, mut written) = (&piece[..], 0_usize);
    let mut fill = |peer: &mut UnixStream| {
        while let Ok(len) = peer.write(rest) {
            written += len;
            rest = if len < rest.len() { &rest[len..] } else { &piece };
        }
        written
    };
    let frame_bytes = piece.len() / 256;
    let mut before = 0;
    while lab.listener.fds(false).count() == 2 {
        let now = fill(&mut peer);
        lab.turn(NOW);
        assert!(now > before || now / frame_bytes >= 200_000, "{now}");
        before = now;
    }
    let seen = usize::try_from(lab.report(0).messages).unwrap();
    let limit = 262_144;
    assert!((limit..limit + 4096).contains(&seen), "{seen}");
    lab.turn(NOW);
    assert_eq!(usize::try_from(lab.report(0).messages).unwrap(), seen, "it waits");
    // All of it is acknowledged by one of each route, however often that came.
    lab.commit(true);
    assert_eq!(lab.listener.fds(false).count(), 2);
    let (mut got, mut buffer) = (0, vec![0; 1 << 16]);
    while let Ok(len) = peer.read(&mut buffer) {
        got += len;
        lab.commit(true);
    }
    assert_eq!(got, piece.len());
    assert_eq!(lab.routes(), [256]);

    // It does not read: for a while it waits, then it is sent nothing more.
    while lab.listener.seats[0].session.as_ref().is_some_and(|s| s.fd_to_read().is_some()) {
        fill(&mut peer);
        lab.turn(NOW);
        lab.commit(true);
    }
    lab.turn(Duration::from_secs(31));
    lab.commit(true);
    assert!(lab.said.last().unwrap().contains("acknowledged no more"), "{:?}", lab.said);
    assert_eq!(lab.listener.fds(false).count(), 2);
    let seen = lab.report(0).messages;
    lab.turn(NOW);
    assert!(lab.report(0).messages > seen);
}

#[test]
fn what_makes_no_sense_ends_the_session_and_not_the_routes() {
    let mut lab = Lab::new("sense");
    let mut peer = lab.peer();
    peer.write_all(&frame(route::NEW, 1)).unwrap();
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    lab.turn(NOW);
    lab.turn(NOW);
    assert_eq!(lab.routes(), [1]);
    let report = lab.report(0);
    assert_eq!((report.is_open, report.errors), (false, 1));
    let why = "what it sends cannot be read: frame 2: version 71 and length";
    assert!(lab.said.last().unwrap().contains(why), "{:?}", lab.said);
    let path = lab.path.clone();
    drop(lab);
    assert!(!path.exists(), "its file goes with it");
}
