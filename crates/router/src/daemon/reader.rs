//! A netlink socket that is read by a thread of its own.
//!
//! A dump of the kernel waits for the kernel's lock on the configuration, in the call that requests it and in those that
//! read on; and the kernel holds that lock for as long as it flushes a million routes. The daemon's thread must not wait
//! for that: it has links to look at. So a thread sends the requests and reads, and what it read waits here in pieces.
//!
//! The kernel cannot be made to wait: what is not read from its socket is lost, once the buffer is full. So pieces with
//! routes that are held back ([`Reader::next`]) wait here, until there are so many that the thread would stop reading.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::Duration;

use fingerpost_route::netlink::{nexthop, route};

use crate::bell::Bell;
use crate::sys::{Netlink, Received, poll};

/// Largest datagram of the kernel's dumps.
const BUFFER_BYTES: usize = 256 << 10;
/// A piece is given when it is so large: some hundred messages, which are handled in less than a millisecond.
const PIECE_BYTES: usize = 32 << 10;
/// Pieces that may wait: up to 120,000 changes of routes in 8 MiB where they come in bulk, one change a piece where they come one by
/// one. The kernel keeps what comes behind them.
const WAITING: usize = 256;
/// The thread has nothing to look at by itself.
const LONG: Duration = Duration::from_secs(3600);

/// What was read at one go.
#[derive(Debug)]
pub(super) enum Piece {
    /// Datagrams, one behind the other.
    Datagrams(Datagrams),
    /// The kernel had to drop messages behind those of the pieces before.
    Lost,
    /// All that the kernel had sent when this mark was requested is in the pieces before.
    Mark(u64),
}

/// What the thread is to do.
enum Request {
    Send(Vec<u8>),
    Mark(u64),
}

/// Datagrams in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    has_routes: bool,
}

impl Datagrams {
    fn push(&mut self, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.ends.push(self.bytes.len());
        self.has_routes |= is_of_routes(datagram);
    }

    /// Each of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// Whether a datagram is about routes or next-hop objects, by its first message: the lines of a dump are of one kind,
/// and notifications come one by one.
fn is_of_routes(datagram: &[u8]) -> bool {
    let kinds = [route::NEW, route::DEL, nexthop::NEW, nexthop::DEL];
    datagram.get(4..6).is_some_and(|kind| kinds.map(u16::to_ne_bytes).iter().any(|of| of == kind))
}

/// The daemon's end. The thread ends with it.
pub(super) struct Reader {
    requests: Sender<Request>,
    pieces: Receiver<io::Result<Piece>>,
    /// Pieces that were read and not received here; more than [`WAITING`] while the thread waits with one.
    waiting: Arc<AtomicUsize>,
    /// The next piece, which was received and held back.
    head: Option<Piece>,
    bell: Bell,
}

impl Reader {
    /// Reads `socket` from now on.
    ///
    /// # Errors
    /// When there are no descriptors or threads left.
    pub(super) fn start(socket: Netlink) -> io::Result<Self> {
        let (bell, other) = Bell::pair()?;
        let (requests, asked) = channel();
        let (give, pieces) = sync_channel(WAITING);
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = waiting.clone();
        let thread =
            Thread { socket, bell: other, requests: asked, pieces: give, waiting: counted };
        // Nobody waits for its end: it may be in the kernel, waiting for that lock.
        std::thread::Builder::new().name("fingerpost-netlink".into()).spawn(|| thread.run())?;
        Ok(Self { requests, pieces, waiting, head: None, bell })
    }

    /// Sends a request, soon.
    pub(super) fn send(&self, request: Vec<u8>) {
        // A thread that has ended has reported why.
        let _ = self.requests.send(Request::Send(request));
        self.bell.ring();
    }

    /// Has a piece [`Piece::Mark`] follow what the kernel has sent by now.
    pub(super) fn mark(&self, number: u64) {
        let _ = self.requests.send(Request::Mark(number));
        self.bell.ring();
    }

    /// The next piece that was read, if there is one. With `hold` one with routes waits, as long as there is room for
    /// those behind it.
    ///
    /// # Errors
    /// When the socket cannot be read any more.
    pub(super) fn next(&mut self, hold: bool) -> io::Result<Option<Piece>> {
        if self.head.is_none() {
            self.head = self.receive()?;
        }
        let waits = matches!(&self.head, Some(Piece::Datagrams(datagrams)) if datagrams.has_routes);
        if hold && waits && !self.is_full() {
            return Ok(None);
        }
        Ok(self.head.take())
    }

    /// Whether the thread waits with a piece, and the socket is not read.
    pub(super) fn is_full(&self) -> bool {
        // Relaxed: it bounds how long pieces wait, and orders nothing.
        self.waiting.load(Ordering::Relaxed) > WAITING
    }

    /// Whether a piece is held back.
    pub(super) fn is_held(&self) -> bool {
        self.head.is_some()
    }

    fn receive(&self) -> io::Result<Option<Piece>> {
        let received = match self.pieces.try_recv() {
            Err(TryRecvError::Empty) => {
                // Silent first, looked again after: a piece in between rings again.
                self.bell.silence();
                self.pieces.try_recv()
            }
            received => received,
        };
        match received {
            Ok(piece) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                piece.map(Some)
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Descriptor for poll: readable when there is a piece.
    pub(super) fn fd(&self) -> RawFd {
        self.bell.fd()
    }
}

struct Thread {
    socket: Netlink,
    bell: Bell,
    requests: Receiver<Request>,
    pieces: SyncSender<io::Result<Piece>>,
    waiting: Arc<AtomicUsize>,
}

impl Thread {
    fn run(self) {
        crate::privilege::keep_nothing();
        if let Err(error) = self.read() {
            self.send(Err(error));
        }
    }

    /// Runs until the other end is gone.
    fn read(&self) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut mark = None;
        loop {
            loop {
                match self.requests.try_recv() {
                    Ok(Request::Send(request)) => self.socket.send(&request)?,
                    Ok(Request::Mark(number)) => mark = Some(number),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            let mut datagrams = Datagrams::default();
            let ended = loop {
                match self.socket.recv(&mut buffer)? {
                    Received::Bytes(len) => datagrams.push(&buffer[..len]),
                    other => break Some(other),
                }
                if datagrams.bytes.len() >= PIECE_BYTES {
                    break None;
                }
            };
            if !datagrams.ends.is_empty() && !self.give(Piece::Datagrams(datagrams)) {
                return Ok(());
            }
            match ended {
                Some(Received::Lost) if !self.give(Piece::Lost) => return Ok(()),
                Some(Received::Empty) => {
                    if let Some(number) = mark.take()
                        && !self.give(Piece::Mark(number))
                    {
                        return Ok(());
                    }
                    poll(&[self.socket.fd(), self.bell.fd()], LONG);
                    self.bell.silence();
                }
                _ => {}
            }
        }
    }

    /// Whether somebody is there to take it.
    fn give(&self, piece: Piece) -> bool {
        self.send(Ok(piece))
    }

    fn send(&self, piece: io::Result<Piece>) -> bool {
        // Counted before it is there, so that the count is never below 0.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let given = self.pieces.send(piece).is_ok();
        self.bell.ring();
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_route::netlink::link;

    #[test]
    fn a_request_is_answered_in_whole_datagrams_and_the_thread_ends_with_its_reader() {
        let socket = Netlink::open(libc::NETLINK_ROUTE, &[]).unwrap();
        let mut reader = Reader::start(socket).unwrap();
        assert!(reader.next(false).unwrap().is_none());
        reader.send(link::dump(7));
        let mut all = Vec::new();
        for _ in 0..100 {
            poll(&[reader.fd()], Duration::from_millis(100));
            while let Some(piece) = reader.next(true).unwrap() {
                let Piece::Datagrams(datagrams) = piece else { panic!("{piece:?}") };
                all.extend(datagrams.iter().map(<[u8]>::to_vec));
            }
            if all.last().is_some_and(|last| last.windows(2).any(|w| w == [3, 0])) {
                break;
            }
        }
        // Every host has a loopback interface, and a dump ends with a message of its own.
        let kinds = |datagram: &Vec<u8>| {
            fingerpost_route::netlink::Messages::new(datagram)
                .map(|message| message.unwrap().kind)
                .collect::<Vec<_>>()
        };
        let kinds: Vec<u16> = all.iter().flat_map(kinds).collect();
        assert_eq!((kinds.first(), kinds.last()), (Some(&16), Some(&3)), "{kinds:?}");
        let Reader { requests, pieces, bell, .. } = reader;
        drop((requests, bell));
        // The other end of the channel goes with the thread.
        assert!(pieces.recv_timeout(Duration::from_secs(5)).is_err());
        assert!(matches!(pieces.try_recv(), Err(TryRecvError::Disconnected)));
    }

    #[test]
    fn a_mark_follows_what_was_sent_before() {
        let mut reader = Reader::start(Netlink::open(libc::NETLINK_ROUTE, &[]).unwrap()).unwrap();
        for number in 1..=20 {
            reader.send(link::dump(u32::try_from(number).unwrap()));
            reader.mark(number);
            let mut datagrams = 0;
            let found = (0..100).find_map(|_| {
                poll(&[reader.fd()], Duration::from_millis(100));
                while let Some(piece) = reader.next(false).unwrap() {
                    match piece {
                        Piece::Datagrams(some) => datagrams += some.iter().count(),
                        Piece::Mark(number) => return Some(number),
                        Piece::Lost => panic!("there is room"),
                    }
                }
                None
            });
            assert_eq!(found, Some(number));
            // The rest of a dump comes as it is read on.
            assert!(datagrams > 0, "{number}");
        }
    }

    /// A reader without a thread, and the end that the thread would have.
    fn by_hand() -> (Reader, impl Fn(u16) -> bool) {
        let (bell, other) = Bell::pair().unwrap();
        let (requests, _) = channel();
        let (give, pieces) = sync_channel(WAITING);
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = waiting.clone();
        let reader = Reader { requests, pieces, waiting, head: None, bell };
        let give = move |kind: u16| {
            let mut datagrams = Datagrams::default();
            datagrams.push(&[&[0; 4][..], &kind.to_ne_bytes(), &[0; 10]].concat());
            counted.fetch_add(1, Ordering::Relaxed);
            let given = give.try_send(Ok(Piece::Datagrams(datagrams))).is_ok();
            other.ring();
            given
        };
        (reader, give)
    }

    /// Kinds of the pieces that are given until there is none.
    fn taken(reader: &mut Reader, hold: bool) -> Vec<u16> {
        let piece = || match reader.next(hold).unwrap()? {
            Piece::Datagrams(of) => Some(u16::from_ne_bytes([of.bytes[4], of.bytes[5]])),
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(piece).collect()
    }

    #[test]
    fn routes_are_held_in_their_order_and_neighbors_before_them_are_not() {
        let (mut reader, give) = by_hand();
        let sent = [28, 20, route::NEW, 28, nexthop::DEL];
        assert!(sent.into_iter().all(&give));
        assert_eq!(taken(&mut reader, true), [28, 20]);
        assert!(reader.is_held() && taken(&mut reader, true).is_empty());
        assert_eq!(taken(&mut reader, false), [route::NEW, 28, nexthop::DEL]);
        assert!(!reader.is_held());
    }

    #[test]
    fn routes_are_taken_before_the_socket_is_not_read_any_more() {
        let (mut reader, give) = by_hand();
        // One is received at once, to be looked at.
        assert!(give(route::NEW) && taken(&mut reader, true).is_empty());
        assert!((0..WAITING).all(|_| give(route::DEL)));
        assert!(taken(&mut reader, true).is_empty(), "there is room still");
        assert!(!give(route::DEL), "the thread would wait with it");
        assert_eq!(taken(&mut reader, true), [route::NEW]);
        reader.waiting.fetch_sub(1, Ordering::Relaxed);
        assert_eq!(taken(&mut reader, false).len(), WAITING);
    }

    #[test]
    fn datagrams_stay_apart() {
        let mut datagrams = Datagrams::default();
        for datagram in [&[1, 2, 3][..], &[4], &[5, 6]] {
            datagrams.push(datagram);
        }
        assert_eq!(datagrams.iter().collect::<Vec<_>>(), [&[1, 2, 3][..], &[4], &[5, 6]]);
    }
}
