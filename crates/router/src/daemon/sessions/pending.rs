//! Peers that have connected and wait for a seat, as their address has a session whose connection may be half-open.
//!
//! A peer that lost its power does not close its connection. When it is back it sends its table in a new one, and the routes of the
//! old session must not stand beside those. So the kernel probes the old connection: a peer without it resets it at once, one that
//! has both acknowledges the probe, and one that does neither within [`LONGEST`] is gone.
//!
//! Cost: a system call for each session of the address and turn, while a peer waits; two peers of one address wait for a second.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::session::Session;
use super::socket::Stream;
use super::{Seat, Settings, Turn};

/// Time after which a connection whose peer has not acknowledged a probe is closed: some probes may be lost.
const LONGEST: Duration = Duration::from_secs(5);
/// A connection that was silent for less has its peer: nothing restarts in that time.
const LATELY: Duration = Duration::from_millis(500);

/// A peer that waits.
pub(super) struct PendingPeer {
    pub(super) stream: Stream,
    pub(super) peer: Option<IpAddr>,
    since: Instant,
}

impl PendingPeer {
    /// Whether a session is of this peer, and it was silent since the peer waits.
    fn may_be_half_open(&self, seat: &Seat, now: Instant) -> bool {
        let silent = now.saturating_duration_since(self.since) + LATELY;
        seat.peer == self.peer && silence(seat).is_some_and(|ago| ago > silent)
    }
}

/// Silence of an open connection.
fn silence(seat: &Seat) -> Option<Duration> {
    seat.session.as_ref().filter(|session| !session.is_closed()).and_then(Session::silent_for)
}

/// The peers that wait.
#[derive(Default)]
pub(super) struct PendingPeers(Vec<PendingPeer>);

impl PendingPeers {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Has a peer wait, or returns its connection where no session may be half-open.
    pub(super) fn hold(
        &mut self,
        seats: &[Seat],
        stream: Stream,
        peer: Option<IpAddr>,
        now: Instant,
    ) -> Option<Stream> {
        // On this host a connection has both ends or none.
        if peer.is_none_or(|peer| peer.to_canonical().is_loopback()) {
            return Some(stream);
        }
        let pending = PendingPeer { stream, peer, since: now };
        let mut half_open =
            seats.iter().filter(|seat| pending.may_be_half_open(seat, now)).peekable();
        if half_open.peek().is_none() {
            return Some(pending.stream);
        }
        half_open.filter_map(|seat| seat.session.as_ref()).for_each(Session::probe_soon);
        self.0.push(pending);
        None
    }

    /// Peers that wait no longer. Sessions whose peers are gone have ended then.
    pub(super) fn admitted(
        &mut self,
        seats: &mut [Seat],
        settings: &Settings,
        turn: &mut Turn<'_>,
    ) -> Vec<PendingPeer> {
        let mut admitted = Vec::new();
        for pending in std::mem::take(&mut self.0) {
            let late = turn.now.saturating_duration_since(pending.since) >= LONGEST;
            let of_peer = seats.iter_mut().filter(|seat| seat.peer == pending.peer);
            let mut waits = false;
            for seat in of_peer {
                if !pending.may_be_half_open(seat, turn.now) {
                    seat.session.iter().for_each(Session::keep_alive);
                } else if late {
                    seat.leave(
                        turn,
                        settings,
                        "its peer has connected again, and does not reply here",
                    );
                } else {
                    waits = true;
                }
            }
            if waits { self.0.push(pending) } else { admitted.push(pending) }
        }
        admitted
    }
}
