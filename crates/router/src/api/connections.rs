//! Connections of the sockets: how many there may be, and whose place a newcomer takes.
//!
//! Every client is accepted at once, so that none waits behind clients that send nothing. Where there is no room left, one
//! connection ends: the oldest that its client has closed, which the server does not notice while it serves one request and the
//! next one has arrived; where there is none, the one that has waited longest for its client (for a request, or for the rest of
//! one); where none waits, the oldest whose client does not read its response; then the oldest stream, which its client can
//! request again. One whose request is being served otherwise never does. So a client that sends its request and reads the
//! response is served however many others do not. A response that is no stream has a time to be read in, whoever waits. Users
//! have a bound each, and so have all clients of the TCP listener; those who may only read have one in all, so that there is
//! room for who may change. A stream of another user ends for a newcomer only where that user has more connections.
//!
//! Responses that are no streams are held whole until they are sent, so that there is a bound for the bytes of all of them, and one
//! for those of clients who may only read. A response that exceeds a bound closes the oldest connections whose clients do not
//! read; one for a client who may only read closes connections of such clients alone. Where that does not make enough room, the
//! response is refused and no connection is closed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;

use super::access::{Access, Peer};
use crate::sys;

/// Connections at one time, those of one user, and those of users who may only read.
const MOST: usize = 256;
const MOST_OF_USER: usize = 128;
const MOST_READERS: usize = 192;
/// Bytes of responses that are held at one time, and of those to clients who may only read. One of any size is sent where no other
/// is held.
const MOST_BYTES: u64 = 32 << 20;
const MOST_BYTES_OF_READERS: u64 = 16 << 20;
/// Time after which a client reads its response too slowly to keep its place where others need it: since it read a piece, and since
/// the response began.
const READ_SOON: Duration = Duration::from_millis(250);
const READ_WHOLE_SOON: Duration = Duration::from_secs(5);

/// Time for which a connection waits for its client to read a response that is no stream, whoever else waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Time since it read a piece.
    pub(super) piece: Duration,
    /// Time since the response began.
    pub(super) whole: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { piece: Duration::from_secs(30), whole: Duration::from_secs(300) }
    }
}

/// A response that is no stream, while it is sent.
#[derive(Clone, Copy, Debug)]
struct Sending {
    began: Instant,
    /// When the server took the last piece of it.
    progressed: Instant,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    number: u64,
    uid: u32,
    reads_only: bool,
    /// Its socket while it is served, to check whether the client has closed it.
    socket: Mutex<Option<OwnedFd>>,
    /// Whether it waits for its client.
    waits: AtomicBool,
    /// Whether a stream is being sent.
    streams: AtomicBool,
    /// Its response, while it is sent, and notice that there is one.
    sending: Mutex<Option<Sending>>,
    sends: Notify,
    /// Bytes of that response.
    held: AtomicU64,
    patience: Patience,
    end: Notify,
}

impl Connection {
    /// Resolves when another connection takes the place of this one.
    pub(super) async fn ended(&self) {
        self.end.notified().await;
    }

    /// Resolves when its client has read too little of a response.
    pub(super) async fn unread(&self) {
        loop {
            self.sends.notified().await;
            while let Some(until) = self.deadline() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left).await;
            }
        }
    }

    /// When its client must have read more of the response that is being sent.
    fn deadline(&self) -> Option<Instant> {
        let Sending { began, progressed } = (*self.sending())?;
        Some((progressed + self.patience.piece).min(began + self.patience.whole))
    }

    fn socket(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sending(&self) -> MutexGuard<'_, Option<Sending>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its client reads a response that is no stream, and does so slowly.
    fn is_slow(&self, now: Instant) -> bool {
        self.sending().is_some_and(|Sending { began, progressed }| {
            now.saturating_duration_since(progressed) > READ_SOON
                || now.saturating_duration_since(began) > READ_WHOLE_SOON
        })
    }

    /// Ends the connection, which its client can distinguish from the end of a response.
    pub(super) fn cut(&self) {
        self.end.notify_one();
    }

    /// The user, if its client may not change anything.
    pub(super) fn reader(&self) -> Option<u32> {
        self.reads_only.then_some(self.uid)
    }

    /// Sets whether the connection waits for its client.
    pub(super) fn set_waiting(&self, waits: bool) {
        // Relaxed, here and below: a single thread serves, and nothing else follows from it.
        self.waits.store(waits, Ordering::Relaxed);
    }
}

/// All open connections, by their number: the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    patience: Patience,
    all: BTreeMap<u64, Arc<Connection>>,
}

/// Room of a connection, until this is dropped.
pub(super) struct Room {
    pub(super) connection: Arc<Connection>,
    of: Connections,
    /// Whether it took the place of another connection.
    pub(super) took_place: bool,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.open().all.remove(&self.connection.number);
        // It would keep the connection open for the client.
        *self.connection.socket() = None;
    }
}

impl Connections {
    #[cfg(test)]
    pub(super) fn with_patience(patience: Patience) -> Self {
        Self(Arc::new(Mutex::new(Open { patience, ..Open::default() })))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a client; `None` where all others are being served without a stream, and read what they are sent.
    pub(super) fn enter(&self, peer: &Peer) -> Option<Room> {
        let (uid, reads_only) = (peer.uid, peer.access < Access::Write);
        let mut open = self.open();
        let of_user = |known: &Connection| known.uid == uid;
        let readers = |known: &Connection| known.reads_only;
        let full = |limit: usize, of: &dyn Fn(&Connection) -> bool| {
            open.all.values().filter(|known| of(known)).count() >= limit
        };
        let place: Option<&dyn Fn(&Connection) -> bool> = match () {
            () if full(MOST_OF_USER, &of_user) => Some(&of_user),
            () if reads_only && full(MOST_READERS, &readers) => Some(&readers),
            () if full(MOST, &|_| true) => Some(&|_| true),
            () => None,
        };
        let took_place = place.is_some();
        if let Some(among) = place {
            let waits = |known: &Connection| known.waits.load(Ordering::Relaxed) && among(known);
            let of = |uid| open.all.values().filter(|known| known.uid == uid).count();
            let streams = |known: &Arc<Connection>| {
                known.streams.load(Ordering::Relaxed)
                    && among(known)
                    && (known.uid == uid || of(known.uid) > of(uid))
            };
            let now = Instant::now();
            let slow = |known: &Connection| known.is_slow(now) && among(known);
            let oldest = open.closed(among);
            let oldest = oldest.or_else(|| open.all.values().find(|known| waits(known)));
            let oldest = oldest.or_else(|| open.all.values().find(|known| slow(known)));
            let oldest = oldest.or_else(|| {
                let streams = open.all.values().filter(|known| streams(known));
                streams.max_by_key(|known| (of(known.uid), Reverse(known.number)))
            });
            let oldest = oldest?.clone();
            open.all.remove(&oldest.number);
            oldest.end.notify_one();
        }
        open.last += 1;
        let connection = Arc::new(Connection {
            number: open.last,
            uid,
            reads_only,
            socket: Mutex::default(),
            waits: AtomicBool::new(true),
            streams: AtomicBool::new(false),
            sending: Mutex::default(),
            sends: Notify::new(),
            held: AtomicU64::new(0),
            patience: open.patience,
            end: Notify::new(),
        });
        open.all.insert(connection.number, connection.clone());
        drop(open);
        Some(Room { connection, of: self.clone(), took_place })
    }
}

impl Open {
    /// The oldest of these connections that its client has closed.
    fn closed(&self, among: &dyn Fn(&Connection) -> bool) -> Option<&Arc<Connection>> {
        let known = self.all.values().filter(|known| among(known));
        let fd = |known: &Connection| Some(known.socket().as_ref()?.as_raw_fd());
        let with_socket = known.filter_map(|known| Some((known, fd(known)?)));
        let (known, sockets): (Vec<_>, Vec<_>) = with_socket.unzip();
        sys::first_hung_up(&sockets).map(|at| known[at])
    }
}

impl Room {
    /// Has newcomers take the place as soon as the client has closed the connection, whose socket this is.
    pub(super) fn watch(&self, socket: OwnedFd) {
        *self.connection.socket() = Some(socket);
    }

    /// Room for the bytes of responses over this connection.
    pub(super) fn bytes(&self) -> ByteRoom {
        ByteRoom { connection: self.connection.clone(), of: self.of.clone() }
    }
}

/// Room for the bytes of responses over a connection.
#[derive(Clone)]
pub(super) struct ByteRoom {
    connection: Arc<Connection>,
    of: Connections,
}

impl ByteRoom {
    /// Has the bytes of a response count as held until the work of its request ends. `false` where there is no room for them.
    pub(super) fn hold(&self, body: &Body) -> bool {
        let len = hyper::body::Body::size_hint(body).exact().filter(|len| *len > PIECE_LEN);
        let Some(len) = len.filter(|_| !self.connection.streams.load(Ordering::Relaxed)) else {
            return true;
        };
        let mut open = self.of.open();
        let now = Instant::now();
        let reads_only = self.connection.reads_only;
        let held = |known: &Connection| known.held.load(Ordering::Relaxed);
        let gives_way = |known: &Connection| {
            held(known) > 0 && (known.reads_only || !reads_only) && known.is_slow(now)
        };
        // All are found before the first one ends: where there is no room after all, none does.
        let mut chosen: BTreeMap<u64, Arc<Connection>> = BTreeMap::new();
        for (of_readers, limit) in [(true, MOST_BYTES_OF_READERS), (false, MOST_BYTES)] {
            if of_readers && !reads_only {
                continue;
            }
            let counts = |known: &&Arc<Connection>| {
                (known.reads_only || !of_readers) && !chosen.contains_key(&known.number)
            };
            let counted: Vec<_> = open.all.values().filter(counts).cloned().collect();
            let mut all: u64 = counted.iter().map(|known| held(known)).sum();
            let mut oldest = counted.into_iter().filter(|known| gives_way(known));
            while all > 0 && all.saturating_add(len) > limit {
                let Some(known) = oldest.next() else { return false };
                all -= held(&known);
                chosen.insert(known.number, known);
            }
        }
        for (number, known) in chosen {
            open.all.remove(&number);
            known.end.notify_one();
        }
        self.connection.held.store(len, Ordering::Relaxed);
        true
    }
}

/// Largest piece of a response that is given to the server at once. It takes 16 before it waits for the client, and ends the
/// work when it has the last one: with what the socket holds nothing of most responses is left then.
const PIECE: usize = 4 << 10;
const PIECE_LEN: u64 = PIECE as u64;

/// A request that is being served, until its response is sent.
#[derive(Debug)]
pub(super) struct Work(Arc<Connection>);

impl Work {
    /// Begins to serve a request: the connection does not wait for its client meanwhile.
    pub(super) fn begin(connection: &Arc<Connection>) -> Self {
        connection.set_waiting(false);
        Self(connection.clone())
    }

    /// A body at whose end the work ends.
    pub(super) fn with(self, body: Body) -> Body {
        // Smaller ones are taken at once.
        let is_large =
            hyper::body::Body::size_hint(&body).exact().is_none_or(|len| len > PIECE_LEN);
        if is_large && !self.0.streams.load(Ordering::Relaxed) {
            let now = Instant::now();
            *self.0.sending() = Some(Sending { began: now, progressed: now });
            self.0.sends.notify_one();
        }
        Body::new(Held { body, rest: Bytes::new(), work: self })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        *self.0.sending() = None;
        self.0.held.store(0, Ordering::Relaxed);
        self.0.set_waiting(true);
    }
}

/// A stream that is being sent over a connection.
#[derive(Debug)]
pub(super) struct Streaming(Arc<Connection>);

impl Streaming {
    /// Begins a stream: newcomers may take the place of the connection meanwhile.
    pub(super) fn begin(connection: &Arc<Connection>) -> Self {
        connection.streams.store(true, Ordering::Relaxed);
        Self(connection.clone())
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.streams.store(false, Ordering::Relaxed);
    }
}

/// Body of a response.
struct Held {
    body: Body,
    /// What is left of the last frame.
    rest: Bytes,
    work: Work,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        if let Some(sending) = &mut *self.work.0.sending() {
            sending.progressed = Instant::now();
        }
        let len = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let body = self.body.size_hint();
        let mut size = SizeHint::new();
        if let Some(upper) = body.upper() {
            size.set_upper(upper.saturating_add(rest));
        }
        size.set_lower(body.lower().saturating_add(rest));
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, access: Access) -> Peer {
        Peer::with(uid, access)
    }

    #[test]
    fn the_one_that_waits_longest_is_replaced_and_who_is_served_stays() {
        let connections = Connections::default();
        let one = peer(1, Access::Write);
        let mut rooms: Vec<Room> =
            (0..MOST_OF_USER).map(|_| connections.enter(&one).unwrap()).collect();
        assert!(rooms.iter().all(|room| !room.took_place));
        let work = Work::begin(&rooms[0].connection);
        let newcomer = connections.enter(&one).unwrap();
        assert!(newcomer.took_place);
        let open = |room: &Room| connections.open().all.contains_key(&room.connection.number);
        assert!(open(&rooms[0]) && !open(&rooms[1]) && open(&rooms[2]) && open(&newcomer));
        drop(work);
        drop(connections.enter(&one).unwrap());
        assert!(!open(&rooms[0]), "its response is sent");
        // All others are being served.
        rooms.extend([newcomer]);
        let works: Vec<Work> = rooms.iter().map(|room| Work::begin(&room.connection)).collect();
        let room = connections.enter(&one).unwrap();
        let _work = Work::begin(&room.connection);
        let again = connections.enter(&one);
        assert!(again.is_none() || !again.unwrap().took_place);
        drop(works);
    }

    #[test]
    fn who_has_closed_its_connection_gives_way_first() {
        use std::os::unix::net::UnixStream;

        let connections = Connections::default();
        let one = peer(1, Access::Write);
        let (mut rooms, mut clients) = (Vec::new(), Vec::new());
        for _ in 0..MOST_OF_USER {
            let (client, socket) = UnixStream::pair().unwrap();
            let room = connections.enter(&one).unwrap();
            room.watch(socket.into());
            rooms.push(room);
            clients.push(client);
        }
        // The first waits, all others are being served.
        let works: Vec<Work> = rooms[1..].iter().map(|r| Work::begin(&r.connection)).collect();
        clients.truncate(MOST_OF_USER - 2);
        let open = |room: &Room| connections.open().all.contains_key(&room.connection.number);
        let newcomers = [(); 2].map(|()| connections.enter(&one).unwrap());
        assert!(newcomers.iter().all(|room| room.took_place));
        assert_eq!(rooms.iter().position(|room| !open(room)), Some(MOST_OF_USER - 2));
        assert!(open(&rooms[0]) && !open(&rooms[MOST_OF_USER - 1]));
        drop(connections.enter(&one).unwrap());
        assert!(!open(&rooms[0]), "where all clients are there, the one that waits");
        drop(works);
    }

    #[test]
    fn a_large_response_is_work_until_its_last_piece() {
        use hyper::body::Body as _;

        let room = Connections::default().enter(&peer(1, Access::Read)).unwrap();
        let sent: Vec<u8> = (0..=255).cycle().take(10 * PIECE + 1).collect();
        let mut body = Work::begin(&room.connection).with(Body::from(sent.clone()));
        let mut got = Vec::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while !body.is_end_stream() {
            let size = body.size_hint().exact();
            assert_eq!(size, u64::try_from(sent.len() - got.len()).ok());
            assert!(!room.connection.waits.load(Ordering::Relaxed));
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) else {
                panic!("there is more");
            };
            let data = frame.into_data().unwrap();
            assert!(data.len() <= PIECE);
            got.extend_from_slice(&data);
        }
        assert_eq!(got, sent);
        drop(body);
        assert!(room.connection.waits.load(Ordering::Relaxed));
    }

    #[test]
    fn streams_give_way_the_oldest_of_the_user_with_most_first() {
        let connections = Connections::default();
        let mut rooms = Vec::new();
        let (mut works, mut streams) = (Vec::new(), Vec::new());
        for (uid, count) in [(1, MOST_OF_USER), (2, MOST_READERS - MOST_OF_USER)] {
            for _ in 0..count {
                let room = connections.enter(&peer(uid, Access::Read)).unwrap();
                works.push(Work::begin(&room.connection));
                streams.push(Streaming::begin(&room.connection));
                rooms.push(room);
            }
        }
        let open = |room: &Room| connections.open().all.contains_key(&room.connection.number);
        let enter = |uid| {
            let room = connections.enter(&peer(uid, Access::Read))?;
            let work = Work::begin(&room.connection);
            Some((room, work))
        };
        // One of its own, one of the user that has most; each newcomer is being served, and stays.
        let own = enter(1).unwrap();
        assert!(!open(&rooms[0]) && open(&rooms[1]) && own.0.took_place);
        let third = enter(3).unwrap();
        assert!(!open(&rooms[1]) && open(&rooms[2]) && open(&rooms[MOST_OF_USER]));
        let second = enter(2).unwrap();
        assert!(!open(&rooms[2]) && open(&own.0) && open(&third.0));
        // Without streams nobody gives way.
        streams.clear();
        assert!(enter(3).is_none());
        drop(second);
    }

    #[test]
    fn who_does_not_read_a_response_gives_way() {
        let connections = Connections::default();
        let one = peer(1, Access::Read);
        let rooms: Vec<Room> =
            (0..MOST_OF_USER).map(|_| connections.enter(&one).unwrap()).collect();
        let works = rooms.iter().map(|room| Work::begin(&room.connection));
        let _bodies: Vec<Body> =
            works.map(|work| work.with(Body::from(vec![0; 100 * PIECE]))).collect();
        assert!(connections.enter(&one).is_none(), "all have a response that began just now");
        let before = |room: &Room, began: Duration, progressed: Duration| {
            let now = Instant::now();
            let at = |time| now.checked_sub(time).unwrap();
            let sending = Sending { began: at(began), progressed: at(progressed) };
            *room.connection.sending() = Some(sending);
        };
        let open = |room: &Room| connections.open().all.contains_key(&room.connection.number);
        before(&rooms[7], 2 * READ_SOON, 2 * READ_SOON);
        let newcomer = connections.enter(&one).unwrap();
        let _work = Work::begin(&newcomer.connection);
        assert!(newcomer.took_place && !open(&rooms[7]) && open(&rooms[0]));
        // A byte now and then keeps no place for long.
        before(&rooms[9], 2 * READ_WHOLE_SOON, Duration::ZERO);
        let newcomer = connections.enter(&one).unwrap();
        let _work = Work::begin(&newcomer.connection);
        assert!(newcomer.took_place && !open(&rooms[9]));
        assert!(connections.enter(&one).is_none());
    }

    #[test]
    fn responses_are_held_up_to_a_bound() {
        let connections = Connections::default();
        let rooms = |uid, access, count| -> Vec<Room> {
            (0..count).map(|_| connections.enter(&peer(uid, access)).unwrap()).collect()
        };
        let respond = |room: &Room| {
            let (work, body) = (Work::begin(&room.connection), Body::from(vec![0; 1 << 20]));
            room.bytes().hold(&body).then(|| work.with(body))
        };
        let readers = rooms(1, Access::Read, 20);
        let mut bodies: Vec<Option<Body>> = readers.iter().map(respond).collect();
        assert!(bodies[..16].iter().all(Option::is_some), "16 MiB for readers");
        assert!(bodies[16..].iter().all(Option::is_none), "and no more");
        // Small responses, as errors are, and those of others have room.
        let small = Body::from(vec![0; 100]);
        assert!(readers[19].bytes().hold(&small));
        let writers = rooms(2, Access::Write, 20);
        let others: Vec<Option<Body>> = writers.iter().map(respond).collect();
        assert_eq!(others.iter().filter(|body| body.is_some()).count(), 16, "32 MiB in all");
        drop(others);
        bodies[3] = None;
        assert!(respond(&readers[17]).is_some(), "what is sent is held no longer");
        // A client that does not read gives way, as soon as it is one.
        bodies[17] = respond(&readers[17]);
        assert!(bodies[17].is_some() && respond(&readers[18]).is_none());
        let long_ago = Instant::now().checked_sub(2 * READ_SOON).unwrap();
        let sending = Sending { began: long_ago, progressed: long_ago };
        *readers[5].connection.sending() = Some(sending);
        assert!(respond(&readers[18]).is_some());
        assert!(!connections.open().all.contains_key(&readers[5].connection.number));
        // A larger one than the bound is sent alone.
        bodies.clear();
        assert!(readers[0].bytes().hold(&Body::from(vec![0; 17 << 20])));
        assert!(respond(&readers[1]).is_none());
    }

    #[test]
    fn a_response_takes_places_only_where_it_fits_then_and_of_writers_only_for_a_writer() {
        let connections = Connections::default();
        let rooms = |uid, access| -> Vec<Room> {
            (0..3).map(|_| connections.enter(&peer(uid, access)).unwrap()).collect()
        };
        let respond = |room: &Room, mib: usize| {
            let (work, body) = (Work::begin(&room.connection), Body::from(vec![0; mib << 20]));
            room.bytes().hold(&body).then(|| work.with(body))
        };
        let long_ago = Instant::now().checked_sub(2 * READ_SOON).unwrap();
        let sending = Sending { began: long_ago, progressed: long_ago };
        let set_slow = |room: &Room| *room.connection.sending() = Some(sending);
        let open = |room: &Room| connections.open().all.contains_key(&room.connection.number);
        let readers = rooms(1, Access::Read);
        let _bodies = [respond(&readers[0], 1), respond(&readers[1], 15)].map(Option::unwrap);
        set_slow(&readers[0]);
        assert!(respond(&readers[2], 2).is_none() && open(&readers[0]), "1 MiB is too little");
        assert!(respond(&readers[2], 1).is_some() && !open(&readers[0]));
        // 15 MiB of a reader are left, and 17 of writers come.
        let writers = rooms(2, Access::Write);
        let _bodies = [respond(&writers[0], 16), respond(&writers[1], 1)].map(Option::unwrap);
        set_slow(&writers[0]);
        assert!(respond(&readers[2], 1).is_none() && open(&writers[0]));
        assert!(respond(&writers[2], 1).is_some() && !open(&writers[0]));
    }

    #[test]
    fn readers_leave_room_for_others() {
        let connections = Connections::default();
        let mut rooms = Vec::new();
        let mut works = Vec::new();
        for uid in 1..4 {
            for _ in 0..MOST_OF_USER {
                let Some(room) = connections.enter(&peer(uid, Access::Read)) else { continue };
                works.push(Work::begin(&room.connection));
                rooms.push(room);
            }
        }
        assert_eq!(rooms.len(), MOST_READERS);
        for _ in MOST_READERS..MOST {
            rooms.push(connections.enter(&peer(0, Access::Write)).unwrap());
        }
        // The last places are for those who send their request.
        assert!(connections.enter(&peer(9, Access::Write)).unwrap().took_place);
    }
}
