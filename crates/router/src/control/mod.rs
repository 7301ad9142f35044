//! The server of Click's control socket: clients by TCP or a Unix socket, a thread each.
//!
//! The protocol is [`fingerpost_packet::handler::control_socket`]; here are the sockets, and who may do what. Root and the
//! router's own user may write, on a Unix socket and over the loopback, where the kernel reports who a client is
//! ([`peer`]). All others read over TCP, unless they know the token, and are not served by a Unix socket. What comes over
//! TCP opens nothing that is not known ([`OpenPolicy::known_only`]), whoever sends it.
//!
//! A client that does not read its replies stops its own thread alone, which holds one reply at most, and only for
//! so long. There is room for so many clients; the next one waits to be accepted. Those that only read have half of the
//! places, and memory of their own, so that they keep nobody out who may write.

pub(crate) mod client;
mod opened;
mod peer;

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fingerpost_lpm::input;
use fingerpost_packet::handler::control_socket;
use fingerpost_packet::handler::control_socket::{Access, Memory, Session, SocketRequest, Token};
use fingerpost_packet::{Handlers, OpenPolicy};
use tracing::warn;

use crate::api::socket::Claimed;
use crate::bell::Bell;
use crate::{privilege, sys};
use opened::{Accepted, Listener, Opened};

pub(crate) use opened::ListenError;

/// Clients of a socket at one time.
const CLIENTS: usize = 16;
/// Clients among them that only read.
const READERS: usize = CLIENTS / 2;
/// What one of those is answered that finds no place.
const FULL: &[u8] = b"590 Too many sessions that only read\r\n";
/// How long a client may take before it reads on.
const LONGEST_WRITE: Duration = Duration::from_secs(30);
/// How long it may take to read one reply: 64 MiB at 1 Mb/s.
const LONGEST_REPLY: Duration = Duration::from_secs(600);
/// How long one that may write may be silent: longer than people think, shorter than a connection is forgotten.
const WRITER_IDLE: Duration = Duration::from_secs(3600);
/// Longest silence of one that only reads, whose place others may want.
const READER_IDLE: Duration = Duration::from_secs(300);
/// What the texts of all clients may have that may write, in bytes: four of the longest.
const WRITERS_MEMORY: usize = 256 << 20;
/// Memory of those that only read.
const READERS_MEMORY: usize = 128 << 20;
/// Delay before a wrong token is answered.
const REFUSAL: Duration = Duration::from_secs(1);
/// Time from one attempt to listen at a place that is taken to the next.
const RETRY: Duration = Duration::from_secs(1);
/// Delay before another attempt when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// The handlers of the configuration that runs: none before the first one, others when it is replaced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Installed(Arc<RwLock<Option<Arc<Handlers>>>>);

impl Installed {
    /// Has these called from now on.
    pub(crate) fn install(&self, handlers: Arc<Handlers>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(handlers);
    }

    /// The present ones.
    pub(crate) fn get(&self) -> Option<Arc<Handlers>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What all control sockets of a router have in common.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// What is called.
    pub(crate) installed: Installed,
    /// What the router's owner may have opened.
    pub(crate) policy: OpenPolicy,
    /// What gives write access over TCP.
    pub(crate) token: Option<Token>,
    writers: Bounds,
    readers: Bounds,
    /// Handlers are called for one of those at a time that only read: their texts are not counted before they are whole,
    /// and some take a second.
    turn: Arc<Mutex<()>>,
    /// Where reports of sockets and connections go.
    report: fn(&str),
}

/// What clients of one kind take at most.
#[derive(Clone, Debug)]
struct Bounds {
    memory: Memory,
    idle: Duration,
}

impl Service {
    /// Service of a router that may open this.
    pub(crate) fn new(policy: OpenPolicy, token: Option<Token>) -> Self {
        let bounds = |memory, idle| Bounds { memory: Memory::of(memory), idle };
        Self {
            installed: Installed::default(),
            policy,
            token,
            writers: bounds(WRITERS_MEMORY, WRITER_IDLE),
            readers: bounds(READERS_MEMORY, READER_IDLE),
            turn: Arc::default(),
            report: |words| warn!(target: "graph", "{words}"),
        }
    }

    /// The service, with another place for reports.
    #[cfg(feature = "click")]
    pub(crate) fn reporting(self, report: fn(&str)) -> Self {
        Self { report, ..self }
    }

    /// Reports an attempt to listen that failed, where so many are left.
    fn warn_of_attempt(&self, request: &SocketRequest, error: &ListenError, left: u32) {
        if request.retries.warns {
            let tries = if left == 1 { "try" } else { "tries" };
            (self.report)(&format!("warning: {error} ({left} {tries} left)"));
        }
    }

    fn bounds(&self, access: Access) -> &Bounds {
        match access {
            Access::Read => &self.readers,
            Access::Write => &self.writers,
        }
    }

    fn client(&self, access: Access, policy: OpenPolicy) -> control_socket::Client {
        let memory = self.bounds(access).memory.clone();
        control_socket::Client { access, policy, token: self.token.clone(), memory }
    }

    /// The next reply to a client.
    fn reply(&self, session: &mut Session) -> Option<Vec<u8>> {
        let reads = session.access() == Access::Read;
        // A handler that panicked has left nothing behind that others see.
        let _turn = reads.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        session.reply(self.installed.get().as_deref())
    }
}

/// The token of a file that others cannot read.
///
/// # Errors
/// What is wrong with the file, in words.
pub(crate) fn secret(path: &Path) -> Result<String, String> {
    let name = path.display();
    let told = |error: io::Error| format!("{name}: {error}");
    let file = input::open(path, 4096).map_err(told)?;
    let mode = file.metadata().map_err(told)?.mode();
    if mode & 0o007 != 0 {
        return Err(format!("{name}: everybody may use it (mode {:03o}): chmod 600", mode & 0o777));
    }
    let text = input::text(file, 4096).map_err(told)?;
    Ok(text.trim().to_owned())
}

/// What wakes the server's thread up.
#[derive(Debug)]
struct Wake {
    bell: Bell,
    /// It is to end.
    ends: AtomicBool,
    /// It could not listen, and no attempt is left.
    failed: AtomicBool,
}

/// A running server. It ends when this is dropped, with all its clients.
#[derive(Debug)]
pub(crate) struct ControlServer {
    wake: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
    /// Where it is: `127.0.0.1:1234`, or a path.
    place: String,
    /// It did so from the start.
    listened: bool,
    /// Its Unix socket, whose file goes with it.
    _claimed: Option<Claimed>,
}

impl ControlServer {
    /// Listens, and serves what is installed at each time.
    ///
    /// # Errors
    /// When it cannot listen there, and it is not to be tried again.
    pub(crate) fn start(request: &SocketRequest, service: Service) -> Result<Self, ListenError> {
        let (listener, place, claimed) = match Opened::new(request) {
            Ok(Opened { listener, place, claimed }) => (Some(listener), place, claimed),
            Err(error) if request.retries.count > 0 && error.is_taken() => {
                let left = request.retries.count;
                service.warn_of_attempt(request, &error, left);
                (None, request.listen.to_string(), None)
            }
            Err(error) => return Err(error),
        };
        let listened = listener.is_some();
        let (bell, woken) = Bell::pair()?;
        let [ends, failed] = [false; 2].map(AtomicBool::new);
        let wake = Arc::new(Wake { bell, ends, failed });
        let (wakes, request) = (Arc::clone(&wake), request.clone());
        let serve = move || {
            let (listener, _claimed) = match listener {
                Some(listener) => (listener, None),
                None => match tried_again(&request, &service, &wakes, &woken) {
                    Some(Opened { listener, claimed, .. }) => (listener, claimed),
                    None => return,
                },
            };
            privilege::keep_nothing();
            Serving::new(listener, request, service, wakes).run(&woken);
        };
        let thread = std::thread::Builder::new().name("fingerpost-control".into()).spawn(serve)?;
        Ok(Self { wake, thread: Some(thread), place, listened, _claimed: claimed })
    }

    /// Whether it turned out since the last call that it cannot listen.
    pub(crate) fn take_failure(&self) -> bool {
        self.wake.failed.swap(false, SeqCst)
    }

    /// Whether its place was free when it started.
    pub(crate) fn listened(&self) -> bool {
        self.listened
    }

    /// Where it listens: address and port, or a path.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }
}

/// Tries to listen once a second; `None` where the server is to end, or no attempt is left.
fn tried_again(
    request: &SocketRequest,
    service: &Service,
    wake: &Wake,
    woken: &Bell,
) -> Option<Opened> {
    for left in (0..request.retries.count).rev() {
        sys::poll(&[woken.fd()], RETRY);
        woken.silence();
        if wake.ends.load(SeqCst) {
            return None;
        }
        match Opened::new(request) {
            Ok(opened) => return Some(opened),
            Err(error) if left > 0 && error.is_taken() => {
                service.warn_of_attempt(request, &error, left);
            }
            Err(error) => {
                (service.report)(&error.to_string());
                break;
            }
        }
    }
    wake.failed.store(true, SeqCst);
    None
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.wake.ends.store(true, SeqCst);
        self.wake.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A server that failed has printed its error.
            let _ = thread.join();
        }
    }
}

/// The thread that accepts clients.
struct Serving {
    listener: Listener,
    request: SocketRequest,
    service: Service,
    wake: Arc<Wake>,
    places: Arc<Places>,
    clients: Vec<Connected>,
}

/// How many clients are not done.
#[derive(Default)]
struct Places {
    all: AtomicUsize,
    /// Clients among them that only read, or did at first.
    readers: AtomicUsize,
}

struct Connected {
    stream: Arc<UnixStream>,
    thread: JoinHandle<()>,
}

impl Serving {
    fn new(listener: Listener, request: SocketRequest, service: Service, wake: Arc<Wake>) -> Self {
        let places = Arc::default();
        Self { listener, request, service, wake, places, clients: Vec::new() }
    }

    /// Runs until it is to end, for which `woken` rings, too.
    fn run(mut self, woken: &Bell) {
        let day = Duration::from_secs(24 * 3600);
        loop {
            woken.silence();
            if self.wake.ends.load(SeqCst) {
                break;
            }
            self.clients.retain(|client| !client.thread.is_finished());
            let all = [woken.fd(), self.listener.fd()];
            let room = self.places.all.load(SeqCst) < CLIENTS;
            sys::poll(if room { &all } else { &all[..1] }, day);
            if !room {
                continue;
            }
            match self.listener.accept(&self.service) {
                Ok(Some(accepted)) => self.serve(accepted),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Out of descriptors, most likely: it gets better or it does not, but never by spinning.
                Err(_) => {
                    sys::poll(&all[..1], PAUSE);
                }
            }
        }
        for client in &self.clients {
            // It may have gone already.
            let _ = client.stream.shutdown(Shutdown::Both);
        }
        for client in self.clients {
            // What went wrong in there is over.
            let _ = client.thread.join();
        }
    }

    fn serve(&mut self, Accepted { mut stream, client, from }: Accepted) {
        if stream.set_write_timeout(Some(LONGEST_WRITE)).is_err() {
            return;
        }
        let reads = client.access == Access::Read;
        if reads && self.places.readers.load(SeqCst) >= READERS {
            // It may have gone already; a line fits whatever it has read.
            let _ = stream.write(FULL);
            return;
        }
        let number = stream.as_raw_fd();
        let report = self.service.report;
        let reports = self.request.reports.as_ref();
        if let Some(name) = reports {
            let from = from.map(|from| format!(" from {}.{}", from.ip(), from.port()));
            let from = from.unwrap_or_default();
            report(&format!("{name}: opened connection {number}{from}"));
        }
        let closed = reports.map(|name| format!("{name}: closed connection {number}"));
        let stream = Arc::new(stream);
        let end = End {
            closed,
            report,
            stream: Arc::clone(&stream),
            places: Arc::clone(&self.places),
            reads,
            wake: Arc::clone(&self.wake),
        };
        self.places.all.fetch_add(1, SeqCst);
        self.places.readers.fetch_add(usize::from(reads), SeqCst);
        let session = Session::of(self.request.options, client);
        let session = session.through(self.request.proxy.clone());
        let service = self.service.clone();
        let thread = std::thread::Builder::new().name("fingerpost-client".into());
        // Without a thread `end` closes the connection; the next client may have more luck.
        if let Ok(thread) = thread.spawn(move || {
            // What a client does to its own connection is its own affair.
            let _ = talk(&end.stream, session, &service);
        }) {
            self.clients.push(Connected { stream, thread });
        }
    }
}

/// Reports the end of a client, however it ended.
struct End {
    /// What is reported, if anything is, and where.
    closed: Option<String>,
    report: fn(&str),
    stream: Arc<UnixStream>,
    places: Arc<Places>,
    /// Which place it has.
    reads: bool,
    wake: Arc<Wake>,
}

impl Drop for End {
    fn drop(&mut self) {
        // It may have gone already.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(words) = &self.closed {
            (self.report)(words);
        }
        self.places.readers.fetch_sub(usize::from(self.reads), SeqCst);
        self.places.all.fetch_sub(1, SeqCst);
        self.wake.bell.ring();
    }
}

/// One client, from greeting to end.
fn talk(mut stream: &UnixStream, mut session: Session, service: &Service) -> io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        while let Some(reply) = service.reply(&mut session) {
            if session.is_refused() {
                std::thread::sleep(REFUSAL);
            }
            send(stream, &reply)?;
        }
        if session.is_closed() {
            return Ok(());
        }
        // One that is silent for longer ends by the error of the next line.
        stream.set_read_timeout(Some(service.bounds(session.access()).idle))?;
        match stream.read(&mut bytes) {
            Ok(0) => session.end(),
            Ok(length) => session.take(&bytes[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends a reply to somebody who reads it.
fn send(mut stream: &UnixStream, mut reply: &[u8]) -> io::Result<()> {
    let until = Instant::now() + LONGEST_REPLY;
    while !reply.is_empty() {
        if Instant::now() >= until {
            return Err(ErrorKind::TimedOut.into());
        }
        match stream.write(reply) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(sent) => reply = &reply[sent..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::sync::mpsc;

    use fingerpost_packet::Handler;
    use fingerpost_packet::handler::control_socket::{Listen, Retries, SessionOptions};
    use fingerpost_packet::language::{ClassSpec, Language};

    use super::*;
    use crate::api::socket::SocketError;

    const GREETING: &str = "Click::ControlSocket/1.3\r\n";
    const PATIENCE: Duration = Duration::from_secs(20);

    /// What such a router has, with a handler of so long a text.
    fn service(big: usize) -> Service {
        let service = Service::new(OpenPolicy::default(), None);
        service.installed.install(handlers(big));
        service
    }

    fn handlers(big: usize) -> Arc<Handlers> {
        let class = |name, ports| ClassSpec::new(name, ports, "a/a", "x/x");
        let classes = [class("Idle", "0/1"), class("Discard", "1/0")];
        let read = Language::new(&classes[..]).read("a.click", "i :: Idle -> Discard").unwrap();
        let given = vec![
            Handler::read("big", move || "x".repeat(big)),
            Handler::read("panic", || panic!("as a broken handler does")),
            Handler::write("take", |_| Ok(())),
        ];
        let given = vec![given, Vec::new()];
        Arc::new(Handlers::new(Arc::new(read), given, &classes[..]))
    }

    /// One without a router yet.
    fn nothing() -> Service {
        Service::new(OpenPolicy::default(), None)
    }

    /// A port of this host, chosen by it.
    fn any_port() -> Listen {
        Listen::tcp("0").unwrap()
    }

    fn request(listen: &Listen) -> SocketRequest {
        SocketRequest::new(listen.clone(), SessionOptions::default())
    }

    fn start(listen: &Listen, service: Service) -> ControlServer {
        ControlServer::start(&request(listen), service).unwrap()
    }

    /// What servers of tests report.
    static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// A service that reports there.
    fn reporting() -> Service {
        Service { report: |words| REPORTED.lock().unwrap().push(words.to_owned()), ..service(0) }
    }

    /// Whether so is reported, in a while.
    fn is_reported(fits: impl Fn(&str) -> bool) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if REPORTED.lock().unwrap().iter().any(|words| fits(words)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn connect(server: &ControlServer) -> TcpStream {
        let stream = TcpStream::connect(server.place()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// What is answered to `text`, whose last command is to close.
    fn ask(mut stream: impl Read + Write, text: &str) -> String {
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn greeted(stream: &mut impl Read) {
        let mut greeting = vec![0; GREETING.len()];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, GREETING.as_bytes());
    }

    #[test]
    fn clients_are_answered_over_tcp() {
        let server = start(&any_port(), service(0));
        assert!(server.place().starts_with("127.0.0.1:"), "{}", server.place());
        let list = "200 Read handler 'list' OK\r\nDATA 14\r\n2\ni\nDiscard@2\n";
        let bye = "200 Goodbye!\r\n";
        for _ in 0..2 * CLIENTS {
            let answer = ask(connect(&server), "read list\r\nquit\r\n");
            assert_eq!(answer, format!("{GREETING}{list}{bye}"));
        }
        let stream = connect(&server);
        (&stream).write_all(b"read i.take").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answer = ask(&stream, "");
        assert_eq!(answer, format!("{GREETING}530 Handler 'i.take' write-only\r\n"));
    }

    #[test]
    fn clients_are_answered_over_a_unix_socket() {
        let path = std::env::temp_dir().join(format!("fp-control-{}.sock", std::process::id()));
        let listen = Listen::Unix(path.to_str().unwrap().to_owned());
        let server = start(&listen, nothing());
        assert_eq!(PathBuf::from(server.place()), path);
        let answer = ask(UnixStream::connect(&path).unwrap(), "read list\nquit\n");
        assert_eq!(answer, format!("{GREETING}540 No router installed\r\n200 Goodbye!\r\n"));
        let again = ControlServer::start(&request(&listen), nothing());
        assert!(matches!(again, Err(ListenError::Unix(SocketError::Taken { .. }))));
        drop(server);
        assert!(!fs::exists(path).unwrap(), "it takes its file along");
    }

    #[test]
    fn the_next_free_port_is_taken_where_that_is_wished() {
        // Between looking and taking another program may be faster: then once more.
        for attempt in 0.. {
            let first = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = first.local_addr().unwrap().port();
            let only = Listen::tcp(&port.to_string()).unwrap();
            let error = ControlServer::start(&request(&only), nothing());
            let words = error.unwrap_err().to_string();
            assert!(words.starts_with(&format!("control socket: TCP port {port}: ")), "{words}");
            let or_next = Listen::tcp(&format!("{port}+")).unwrap();
            let requested = request(&or_next);
            let started = ControlServer::start(&requested, nothing());
            if let Ok(server) = started {
                let found: SocketAddr = server.place().parse().unwrap();
                assert_eq!(requested.port(), Some(found.port()));
                assert!((1..=10).contains(&(found.port() - port)), "{found} after {port}");
                return;
            }
            assert!(attempt < 10, "eleven ports in a row are taken, ten times");
        }
    }

    #[test]
    fn a_place_that_is_taken_is_tried_again() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let listen = Listen::tcp(&port.to_string()).unwrap();
        let mut last = request(&listen);
        last.retries = Retries { count: 1, warns: true };
        let server = ControlServer::start(&last, reporting()).unwrap();
        assert!(!server.listened());
        let place = format!("control socket: TCP port {port}: ");
        assert!(is_reported(|words| {
            words.starts_with(&format!("warning: {place}")) && words.ends_with("(1 try left)")
        }));
        assert!(is_reported(|words| words.starts_with(&place)), "no attempt is left");
        let begin = Instant::now();
        while !server.take_failure() {
            assert!(begin.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!server.take_failure(), "once");
        let mut silent = request(&listen);
        silent.retries = Retries { count: 1000, warns: false };
        let server = ControlServer::start(&silent, reporting()).unwrap();
        drop(first);
        let place = format!("127.0.0.1:{port}");
        let begin = Instant::now();
        let stream = loop {
            match TcpStream::connect(&place) {
                Ok(stream) => break stream,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(ask(stream, "quit\n").starts_with(GREETING));
        assert_eq!((silent.port(), server.take_failure()), (Some(port), false));
    }

    #[test]
    fn other_errors_are_not_tried_again() {
        let mut nowhere = request(&Listen::Unix("/nowhere/at/all".into()));
        nowhere.retries = Retries { count: 1000, warns: false };
        let error = ControlServer::start(&nowhere, nothing());
        assert!(matches!(error, Err(ListenError::Unix(SocketError::Io { .. }))));
    }

    #[test]
    fn connections_are_reported_where_that_is_wished() {
        let mut verbose = request(&any_port());
        verbose.reports = Some("v :: ControlSocket".into());
        let server = ControlServer::start(&verbose, reporting()).unwrap();
        ask(connect(&server), "quit\n");
        let reported = |what: &str| {
            let words = format!("v :: ControlSocket: {what} connection ");
            is_reported(|line| line.starts_with(&words))
        };
        assert!(reported("opened") && reported("closed"));
        assert!(is_reported(
            |line| line.contains("opened connection") && line.contains(" from 127.0.0.1.")
        ));
    }

    #[test]
    fn one_that_does_not_read_stops_nobody() {
        // More than both ends of a connection hold.
        let big = 40 << 20;
        let server = start(&any_port(), service(big));
        let mut lazy = connect(&server);
        lazy.write_all(b"read i.big\nquit\n").unwrap();
        let answer = ask(connect(&server), "checkread i.big\nquit\n");
        assert!(answer.ends_with("200 Read handler 'i.big' OK\r\n200 Goodbye!\r\n"), "{answer}");
        // It has not lost anything by being slow.
        let answer = ask(lazy, "");
        assert_eq!(answer.bytes().filter(|&byte| byte == b'x').count(), big);
        assert!(answer.ends_with("x200 Goodbye!\r\n"));
    }

    #[test]
    fn a_handler_that_panics_ends_its_client_alone() {
        let server = start(&any_port(), service(0));
        for _ in 0..2 * CLIENTS {
            assert_eq!(ask(connect(&server), "read i.panic\n"), GREETING);
        }
        let answer = ask(connect(&server), "write i.take\nquit\n");
        assert!(answer.contains("200 Write handler 'i.take' OK\r\n"), "{answer}");
    }

    #[test]
    fn one_too_many_waits_until_another_leaves() {
        let server = start(&any_port(), service(0));
        let mut here: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&server)).collect();
        here.iter_mut().for_each(greeted);
        let mut waiting = connect(&server);
        waiting.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let early = waiting.read(&mut [0; 1]).unwrap_err().kind();
        assert!(matches!(early, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{early}");
        drop(here.pop());
        waiting.set_read_timeout(Some(PATIENCE)).unwrap();
        greeted(&mut waiting);
    }

    #[test]
    fn a_silent_client_is_left_after_a_while() {
        let mut service = service(0);
        service.writers.idle = Duration::from_millis(100);
        let server = start(&any_port(), service);
        let mut silent = connect(&server);
        greeted(&mut silent);
        silent.write_all(b"writedata i.take 10\n123").unwrap();
        assert_eq!(silent.read(&mut [0; 1]).unwrap_or(0), 0, "it was closed");
    }

    #[test]
    fn a_wrong_token_is_answered_late_and_a_right_one_at_once() {
        let mut service = service(0);
        service.token = Some(Token::new("0123456789abcdef").unwrap());
        let server = start(&any_port(), service);
        let begin = Instant::now();
        let answer = ask(connect(&server), "AUTH 0123456789abcdef\nwrite i.take\nquit\n");
        assert!(answer.contains("200 Write access\r\n200 Write handler 'i.take' OK"), "{answer}");
        assert!(begin.elapsed() < REFUSAL);
        let answer = ask(connect(&server), "AUTH 0123456789abcdeg\nwrite i.take\n");
        assert_eq!(answer, format!("{GREETING}530 Wrong token\r\n"));
        assert!(begin.elapsed() >= REFUSAL);
    }

    #[test]
    fn a_token_lies_in_a_file_that_others_cannot_read() {
        let path = std::env::temp_dir().join(format!("fp-token-{}", std::process::id()));
        fs::write(&path, "0123456789abcdef\n").unwrap();
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o640);
        assert_eq!(secret(&path).unwrap(), "0123456789abcdef");
        mode(0o644);
        let told = secret(&path).unwrap_err();
        assert!(told.ends_with("everybody may use it (mode 644): chmod 600"), "{told}");
        fs::remove_file(&path).unwrap();
        assert!(secret(&path).unwrap_err().contains("No such file"));
        assert!(secret(Path::new("/dev/zero")).unwrap_err().contains("is a device"));
    }

    #[test]
    fn it_ends_when_told_whatever_clients_do() {
        let server = start(&any_port(), service(40 << 20));
        let mut silent = connect(&server);
        greeted(&mut silent);
        let mut lazy = connect(&server);
        greeted(&mut lazy);
        lazy.write_all(b"read i.big\n").unwrap();
        let mut first = [0; 1];
        lazy.read_exact(&mut first).unwrap();
        let place = server.place().to_owned();
        let (done, ended) = mpsc::channel();
        let begin = Instant::now();
        std::thread::spawn(move || {
            drop(server);
            done.send(()).unwrap();
        });
        ended.recv_timeout(PATIENCE).unwrap();
        assert!(begin.elapsed() < LONGEST_WRITE);
        assert_eq!(silent.read(&mut first).unwrap_or(0), 0, "it was closed");
        assert!(TcpStream::connect(place).is_err(), "nobody listens");
    }

    #[test]
    fn handlers_may_be_replaced_while_a_client_is_there() {
        let service = nothing();
        let slot = service.installed.clone();
        let server = start(&any_port(), service);
        let mut stream = connect(&server);
        greeted(&mut stream);
        let mut line = |text: &str| {
            stream.write_all(text.as_bytes()).unwrap();
            let mut answer = [0; 200];
            let length = stream.read(&mut answer).unwrap();
            String::from_utf8_lossy(&answer[..length]).into_owned()
        };
        assert_eq!(line("checkread list\n"), "540 No router installed\r\n");
        slot.install(handlers(0));
        assert_eq!(line("checkread list\n"), "200 Read handler 'list' OK\r\n");
    }
}
