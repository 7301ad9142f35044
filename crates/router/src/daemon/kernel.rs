//! The kernel as a feed: one netlink socket for what it says, one for what we ask of it.

use std::io;
use std::os::fd::RawFd;
use std::time::Instant;

use fingerpost_route::netlink::neighbor;
use fingerpost_route::source::{RouteSource, SourceError, SourceSpec, Transport, find};
use fingerpost_route::{Control, NeighborRequest, RouteEvent, SourceId};

use crate::sys::{Netlink, Received};

/// Datagrams taken at one go, so that a full table of changes does not keep the rest waiting.
const BURST: usize = 4096;
/// Largest datagram of the kernel's dumps.
const BUFFER_BYTES: usize = 256 << 10;

/// The kernel's links, addresses, neighbors and, if wanted, routes.
pub(crate) struct KernelFeed {
    socket: Netlink,
    requests: Netlink,
    source: Box<dyn RouteSource>,
    id: SourceId,
    routes: bool,
    seq: u32,
    buffer: Vec<u8>,
    /// A dump has been completed.
    ready: bool,
    pub(crate) messages: u64,
    pub(crate) resyncs: u64,
}

/// Why the feed cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedError {
    #[error("netlink: {0}")]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl KernelFeed {
    /// Opens the feed and asks for everything. `routes`: the kernel's routes are wanted, not just its
    /// links, addresses and neighbors.
    pub(crate) fn open(
        control: &mut Control,
        routes: bool,
        distance: Option<u8>,
    ) -> Result<Self, FeedError> {
        let kind = find("kernel").expect("the kernel is in the registry of sources");
        let Transport::Netlink { groups } = kind.transport else {
            unreachable!("the kernel speaks netlink")
        };
        let mut feed = Self {
            socket: Netlink::open(libc::NETLINK_ROUTE, groups)?,
            requests: Netlink::open(libc::NETLINK_ROUTE, &[])?,
            source: (kind.open)(&SourceSpec::default())?,
            id: control.add_source(kind.name, distance.unwrap_or(kind.distance)),
            routes,
            seq: 0,
            buffer: vec![0; BUFFER_BYTES],
            ready: false,
            messages: 0,
            resyncs: 0,
        };
        feed.flush()?;
        Ok(feed)
    }

    /// For poll: readable when the kernel has something to say.
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.fd()
    }

    /// Whether its routes are taken, not just its links, addresses and neighbors.
    pub(crate) fn routes(&self) -> bool {
        self.routes
    }

    /// Whether everything was said once.
    pub(crate) fn ready(&self) -> bool {
        self.ready
    }

    /// Takes what there is, up to a burst; returns how many datagrams that were.
    pub(crate) fn turn(&mut self, control: &mut Control) -> Result<usize, FeedError> {
        // Answers to our own requests are of no interest, but they must not pile up.
        while let Received::Bytes(_) = self.requests.recv(&mut self.buffer)? {}
        let mut taken = 0;
        let now = Instant::now();
        while taken < BURST {
            match self.socket.recv(&mut self.buffer)? {
                Received::Empty => break,
                Received::Lost => {
                    self.resyncs += 1;
                    self.source.lost(now);
                }
                Received::Bytes(len) => {
                    let (id, routes, ready) = (self.id, self.routes, &mut self.ready);
                    self.source.input(&self.buffer[..len], now, &mut |event| {
                        *ready |= event == RouteEvent::EndOfTable;
                        if routes || !is_route(&event) {
                            control.handle(id, event);
                        }
                    })?;
                }
            }
            taken += 1;
            self.flush()?;
        }
        self.messages += taken as u64;
        Ok(taken)
    }

    /// Asks the kernel to find neighbors, or to confirm them.
    pub(crate) fn ask(&mut self, requests: &[NeighborRequest]) {
        for request in requests {
            self.seq = self.seq.wrapping_add(1);
            // A request that does not fit now is asked again when packets still wait.
            let _ =
                self.requests.send(&neighbor::use_request(self.seq, request.link, request.addr));
        }
    }

    fn flush(&mut self) -> Result<(), FeedError> {
        let mut out = Vec::new();
        self.source.output(&mut out);
        for message in out {
            self.socket.send(&message)?;
        }
        Ok(())
    }
}

fn is_route(event: &RouteEvent) -> bool {
    matches!(
        event,
        RouteEvent::Route(_)
            | RouteEvent::Withdraw(_)
            | RouteEvent::NextHop(_)
            | RouteEvent::NextHopGone(_)
    )
}
