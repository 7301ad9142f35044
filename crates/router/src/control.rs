//! The server of Click's control socket: clients by TCP or a Unix socket, a thread each.
//!
//! What is said is [`fingerpost_packet::control_socket`]'s; here are the sockets. A client that does not
//! read what it asked for stops its own thread alone, which holds one reply at most, and only for so long.
//! There is room for so many clients; the next one waits to be accepted.

pub(crate) mod client;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use fingerpost_packet::Handlers;
use fingerpost_packet::control_socket::{Listen, Session, SessionOptions};

use crate::api::socket::{Claimed, SocketError};
use crate::privilege;
use crate::sys;

/// Clients at one time.
const CLIENTS: usize = 16;
/// How long a client may take before it reads on.
const LONGEST_WRITE: Duration = Duration::from_secs(30);
/// Until the next look when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// The handlers of the configuration that runs: none before the first one, others when it is replaced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Installed(Arc<RwLock<Option<Arc<Handlers>>>>);

impl Installed {
    /// From here on these are called.
    pub(crate) fn install(&self, handlers: Arc<Handlers>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(handlers);
    }

    /// The present ones.
    pub(crate) fn get(&self) -> Option<Arc<Handlers>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why nobody can be listened to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// No such TCP port is free.
    #[error("control socket: TCP port {0}: {1}")]
    Tcp(String, io::Error),
    /// No Unix socket.
    #[error(transparent)]
    Unix(#[from] SocketError),
    /// No thread, or no file descriptors.
    #[error("control socket: {0}")]
    Start(#[from] io::Error),
}

/// A running server. It ends when this is dropped, with all its clients.
#[derive(Debug)]
pub(crate) struct ControlServer {
    /// The other end wakes the server up; its close ends it.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    /// Where it is: `127.0.0.1:1234`, or a path.
    place: String,
    /// Its Unix socket, whose file goes with it.
    _claimed: Option<Claimed>,
}

impl ControlServer {
    /// Listens, and serves what is `installed` at each time.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub(crate) fn start(
        listen: &Listen,
        options: SessionOptions,
        installed: Installed,
    ) -> Result<Self, ListenError> {
        let (listener, place, claimed) = match listen {
            Listen::Unix(path) => {
                let claimed = Claimed::new(path.into())?;
                (Listener::Unix(claimed.listener()?), path.clone(), Some(claimed))
            }
            Listen::Tcp { everywhere, .. } => {
                let listener = bind(listen, *everywhere)?;
                listener.set_nonblocking(true)?;
                let place = listener.local_addr()?.to_string();
                (Listener::Tcp(listener), place, None)
            }
        };
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let clients = wake.try_clone()?;
        let serve = move || {
            privilege::keep_nothing();
            Serving::new(listener, options, installed, clients).run(&woken);
        };
        let thread = std::thread::Builder::new().name("fingerpost-control".into()).spawn(serve)?;
        Ok(Self { wake: Some(wake), thread: Some(thread), place, _claimed: claimed })
    }

    /// Where it listens: address and port, or a path.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        if let Some(wake) = self.wake.take() {
            // It is open: nothing else shuts it down.
            let _ = wake.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            // A server that failed has nothing more to say.
            let _ = thread.join();
        }
    }
}

/// The first free one of the ports, on all addresses of both families or for this host alone.
fn bind(listen: &Listen, everywhere: bool) -> Result<TcpListener, ListenError> {
    let addresses: &[IpAddr] = match everywhere {
        // A host without IPv6 has IPv4 left.
        true => &[IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        false => &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
    };
    let mut failed = io::Error::from(ErrorKind::InvalidInput);
    for port in listen.ports() {
        for &address in addresses {
            match TcpListener::bind(SocketAddr::new(address, port)) {
                Ok(listener) => return Ok(listener),
                // What is taken is taken on all addresses.
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    failed = error;
                    break;
                }
                Err(error) => failed = error,
            }
        }
    }
    let (first, last) = (*listen.ports().start(), *listen.ports().end());
    let ports = if first == last { first.to_string() } else { format!("{first} to {last}") };
    Err(ListenError::Tcp(ports, failed))
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// The next client. A TCP connection becomes a stream socket like any other: reads, writes, limits of
    /// time and shutdown are the same system calls for both.
    fn accept(&self) -> io::Result<UnixStream> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(stream, _)| stream),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(UnixStream::from(OwnedFd::from(stream)))
            }
        }
    }

    /// The mode of a Unix socket's file says the same; this also holds for who came before it was set.
    fn may_ask(&self, client: &UnixStream) -> bool {
        match self {
            Self::Tcp(_) => true,
            Self::Unix(_) => {
                sys::peer_user(client).is_ok_and(|user| user == 0 || user == sys::user())
            }
        }
    }

    fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener) => listener.as_raw_fd(),
        }
    }
}

/// The thread that accepts clients.
struct Serving {
    listener: Listener,
    options: SessionOptions,
    installed: Installed,
    wake: Arc<UnixStream>,
    /// Clients that are not done.
    busy: Arc<AtomicUsize>,
    clients: Vec<Client>,
}

struct Client {
    stream: Arc<UnixStream>,
    thread: JoinHandle<()>,
}

impl Serving {
    fn new(
        listener: Listener,
        options: SessionOptions,
        installed: Installed,
        wake: UnixStream,
    ) -> Self {
        let (wake, busy) = (Arc::new(wake), Arc::default());
        Self { listener, options, installed, wake, busy, clients: Vec::new() }
    }

    /// Until the other end of `woken` is shut down.
    fn run(mut self, woken: &UnixStream) {
        let day = Duration::from_secs(24 * 3600);
        while !told_to_stop(woken) {
            self.clients.retain(|client| !client.thread.is_finished());
            let all = [woken.as_raw_fd(), self.listener.fd()];
            let room = self.busy.load(SeqCst) < CLIENTS;
            sys::poll(if room { &all } else { &all[..1] }, day);
            if !room {
                continue;
            }
            match self.listener.accept() {
                Ok(stream) => self.serve(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Out of descriptors, most likely: it gets better or it does not, but never by spinning.
                Err(_) => sys::poll(&all[..1], PAUSE),
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

    fn serve(&mut self, stream: UnixStream) {
        let limited = stream.set_write_timeout(Some(LONGEST_WRITE));
        if limited.is_err() || !self.listener.may_ask(&stream) {
            return;
        }
        let stream = Arc::new(stream);
        let end = End {
            stream: Arc::clone(&stream),
            busy: Arc::clone(&self.busy),
            wake: Arc::clone(&self.wake),
        };
        self.busy.fetch_add(1, SeqCst);
        let (options, installed) = (self.options, self.installed.clone());
        let thread = std::thread::Builder::new().name("fingerpost-client".into());
        // Without a thread `end` closes the connection; the next client may have more luck.
        if let Ok(thread) = thread.spawn(move || {
            // What a client does to its own connection is its own affair.
            let _ = talk(&end.stream, Session::new(options), &installed);
        }) {
            self.clients.push(Client { stream, thread });
        }
    }
}

/// Says of a client, however it ended, that it did.
struct End {
    stream: Arc<UnixStream>,
    busy: Arc<AtomicUsize>,
    wake: Arc<UnixStream>,
}

impl Drop for End {
    fn drop(&mut self) {
        // It may have gone already.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.busy.fetch_sub(1, SeqCst);
        // A pipe that is full wakes it, too.
        let _ = (&*self.wake).write(&[0]);
    }
}

/// Takes what woke the server; whether it was the end.
fn told_to_stop(mut woken: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    loop {
        match woken.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// One client, from greeting to end.
fn talk(mut stream: &UnixStream, mut session: Session, installed: &Installed) -> io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        while let Some(reply) = session.reply(installed.get().as_deref()) {
            stream.write_all(&reply)?;
        }
        if session.is_closed() {
            return Ok(());
        }
        match stream.read(&mut bytes) {
            Ok(0) => session.end(),
            Ok(length) => session.take(&bytes[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpStream;
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::time::Instant;

    use fingerpost_packet::Handler;
    use fingerpost_packet::graph::{ClassSpec, Language};

    use super::*;

    const GREETING: &str = "Click::ControlSocket/1.3\r\n";
    const PATIENCE: Duration = Duration::from_secs(20);

    fn installed(big: usize) -> Installed {
        let class = |name, ports| ClassSpec {
            name,
            ports,
            processing: "a/a",
            flow: "x/x",
            output_names: &[],
        };
        let classes = [class("Idle", "0/1"), class("Discard", "1/0")];
        let read = Language::new(&classes[..]).read("a.click", "i :: Idle -> Discard").unwrap();
        let given = vec![
            Handler::read("big", move || "x".repeat(big)),
            Handler::read("panic", || panic!("as a broken handler does")),
            Handler::write("take", |_| Ok(())),
        ];
        let given = vec![given, Vec::new()];
        let installed = Installed::default();
        installed.install(Arc::new(Handlers::new(Arc::new(read), given, &classes[..])));
        installed
    }

    /// A port of this host, chosen by it.
    fn any_port() -> Listen {
        Listen::tcp("0").unwrap()
    }

    fn start(listen: &Listen, installed: Installed) -> ControlServer {
        ControlServer::start(listen, SessionOptions::default(), installed).unwrap()
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
        let server = start(&any_port(), installed(0));
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
        let server = start(&listen, Installed::default());
        assert_eq!(PathBuf::from(server.place()), path);
        let answer = ask(UnixStream::connect(&path).unwrap(), "read list\nquit\n");
        assert_eq!(answer, format!("{GREETING}540 No router installed\r\n200 Goodbye!\r\n"));
        let again = ControlServer::start(&listen, SessionOptions::default(), Installed::default());
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
            let error =
                ControlServer::start(&only, SessionOptions::default(), Installed::default());
            let words = error.unwrap_err().to_string();
            assert!(words.starts_with(&format!("control socket: TCP port {port}: ")), "{words}");
            let or_next = Listen::tcp(&format!("{port}+")).unwrap();
            let started =
                ControlServer::start(&or_next, SessionOptions::default(), Installed::default());
            if let Ok(server) = started {
                let found: SocketAddr = server.place().parse().unwrap();
                assert!((1..=10).contains(&(found.port() - port)), "{found} after {port}");
                return;
            }
            assert!(attempt < 10, "eleven ports in a row are taken, ten times");
        }
    }

    #[test]
    fn one_that_does_not_read_stops_nobody() {
        // More than both ends of a connection hold.
        let big = 40 << 20;
        let server = start(&any_port(), installed(big));
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
        let server = start(&any_port(), installed(0));
        for _ in 0..2 * CLIENTS {
            assert_eq!(ask(connect(&server), "read i.panic\n"), GREETING);
        }
        let answer = ask(connect(&server), "write i.take\nquit\n");
        assert!(answer.contains("200 Write handler 'i.take' OK\r\n"), "{answer}");
    }

    #[test]
    fn one_too_many_waits_until_another_leaves() {
        let server = start(&any_port(), installed(0));
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
    fn it_ends_when_told_whatever_clients_do() {
        let server = start(&any_port(), installed(40 << 20));
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
        let slot = Installed::default();
        let server = start(&any_port(), slot.clone());
        let mut stream = connect(&server);
        greeted(&mut stream);
        let mut line = |text: &str| {
            stream.write_all(text.as_bytes()).unwrap();
            let mut answer = [0; 200];
            let length = stream.read(&mut answer).unwrap();
            String::from_utf8_lossy(&answer[..length]).into_owned()
        };
        assert_eq!(line("checkread list\n"), "540 No router installed\r\n");
        slot.install(installed(0).get().unwrap());
        assert_eq!(line("checkread list\n"), "200 Read handler 'list' OK\r\n");
    }
}
