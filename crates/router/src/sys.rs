//! The system calls that the program needs and the standard library has not: netlink sockets, socket options of
//! iptables, poll, signals, capabilities and processor affinity.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Every file descriptor passed to a call is owned or borrowed for the length of the call.
//! 2. Every pointer passed to a call points to a live value of the type that the call expects, and the
//!    length passed with it is that value's.
//! 3. The signal handlers only store to an atomic or end the process, which is safe in a handler.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fingerpost_route::netlink::{self, Messages};
use tokio::net::TcpSocket;

/// Receive buffer of a netlink socket: a full table's worth of changes.
const NETLINK_BUFFER_BYTES: libc::c_int = 256 << 20;

/// Option of netlink sockets (`linux/netlink.h`).
const NETLINK_GET_STRICT_CHK: libc::c_int = 12;

/// The kernel replies before the call that sends returns; it does not where it is out of memory.
const LONGEST_REPLY: Duration = Duration::from_secs(1);

/// Most connections of a listening socket that wait to be accepted.
const LISTEN_QUEUE: libc::c_int = 128;

/// A netlink socket that does not block.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

/// What a receive found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// That many bytes of whole messages.
    Bytes(usize),
    /// Nothing.
    Empty,
    /// The kernel had to drop messages.
    Lost,
}

/// `struct ifreq` of a request for flags.
#[repr(C, align(8))]
struct FlagsRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: i16,
    rest: [u8; 22],
}

impl Netlink {
    /// Socket of a protocol (NETLINK_ROUTE and so on), joined to multicast groups.
    pub(crate) fn open(protocol: libc::c_int, groups: &[u32]) -> io::Result<Self> {
        Self::open_sized(protocol, groups, NETLINK_BUFFER_BYTES)
    }

    /// Socket with a receive buffer of so many bytes: [`Netlink::open`].
    pub(crate) fn open_sized(
        protocol: libc::c_int,
        groups: &[u32],
        buffer_bytes: libc::c_int,
    ) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) })?;
        // SAFETY: invariant 1: the descriptor is new and nobody else's.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // The force variant needs a privilege; what the limit allows is the fallback.
        let force = libc::SO_RCVBUFFORCE;
        if socket.set(libc::SOL_SOCKET, force, &buffer_bytes).is_err() {
            socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &buffer_bytes)?;
        }
        // SAFETY: all zeroes is a valid address of this family.
        let mut addr: libc::sockaddr_nl = unsafe { zeroed() };
        addr.nl_family = u16::try_from(libc::AF_NETLINK).expect("a family is a small number");
        let len = socklen::<libc::sockaddr_nl>();
        let addr = (&raw const addr).cast();
        // SAFETY: invariants 1 and 2.
        check(unsafe { libc::bind(fd, addr, len) })?;
        for group in groups {
            socket.set(libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)?;
        }
        Ok(socket)
    }

    /// Has the kernel refuse requests that it does not understand, and heed the filters of dumps (since Linux 4.20).
    pub(crate) fn check_requests(&self) -> io::Result<()> {
        let on: libc::c_int = 1;
        self.set(libc::SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on)
    }

    /// Sends one request.
    pub(crate) fn send(&self, message: &[u8]) -> io::Result<()> {
        // SAFETY: invariants 1 and 2.
        let sent = unsafe { libc::send(self.fd(), message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes one datagram of the kernel; those of processes, which may send to any socket, are passed over.
    pub(crate) fn recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            let (received, sender) = self.recv_any(buffer)?;
            if sender == 0 || received == Received::Empty {
                return Ok(received);
            }
        }
    }

    /// Takes one datagram, with the port of its sender: 0 for the kernel.
    fn recv_any(&self, buffer: &mut [u8]) -> io::Result<(Received, u32)> {
        // SAFETY: all zeroes is a valid address of this family.
        let mut from: libc::sockaddr_nl = unsafe { zeroed() };
        let (mut len, flags) = (socklen::<libc::sockaddr_nl>(), libc::MSG_TRUNC);
        let (fd, to, room) = (self.fd(), buffer.as_mut_ptr().cast(), buffer.len());
        let (addr, addr_len) = ((&raw mut from).cast(), &raw mut len);
        // SAFETY: invariants 1 and 2.
        let got = unsafe { libc::recvfrom(fd, to, room, flags, addr, addr_len) };
        let received = match usize::try_from(got) {
            // A datagram that was cut is a lost message.
            Ok(got) if got > buffer.len() => Ok(Received::Lost),
            Ok(got) => Ok(Received::Bytes(got)),
            Err(_) => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::ENOBUFS) => Ok(Received::Lost),
                    Some(libc::EAGAIN | libc::EINTR) => Ok(Received::Empty),
                    _ => Err(error),
                }
            }
        };
        received.map(|received| (received, from.nl_pid))
    }

    /// Sends one request that wants a reply ([`F_ACK`](netlink::F_ACK)) and waits for it, for [`LONGEST_REPLY`] at most.
    /// The kernel's refusal is the error. Replies to requests before it are passed over.
    pub(crate) fn request(&self, message: &[u8]) -> io::Result<()> {
        let sent = Messages::new(message).next().transpose().map_err(io::Error::other)?;
        let seq = sent.ok_or(io::ErrorKind::InvalidInput)?.seq;
        self.send(message)?;
        // A refusal repeats the request.
        let mut buffer = [0; 4096];
        let until = Instant::now() + LONGEST_REPLY;
        loop {
            let len = match self.recv(&mut buffer)? {
                Received::Bytes(len) => len,
                Received::Empty if Instant::now() < until => {
                    poll(&[self.fd()], Duration::from_millis(50));
                    continue;
                }
                _ => return Err(io::Error::new(io::ErrorKind::TimedOut, "no reply of the kernel")),
            };
            let mut replies = Messages::new(&buffer[..len]).map_while(Result::ok);
            if let Some(reply) = replies.find(|m| m.kind == netlink::ERROR && m.seq == seq) {
                return match reply.code().map_err(io::Error::other)? {
                    0 => Ok(()),
                    code => Err(io::Error::from_raw_os_error(code.cast_signed())),
                };
            }
        }
    }

    /// Whether an interface is up and running (IFF_UP and IFF_RUNNING), at this moment: the kernel answers without its
    /// lock on the configuration. `None` when there is none of that name.
    pub(crate) fn is_running(&self, name: &str) -> Option<bool> {
        const RUNNING: i16 = 0x41;
        let mut request = FlagsRequest { name: [0; libc::IFNAMSIZ], flags: 0, rest: [0; 22] };
        request.name.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        let pointer = &raw mut request;
        // SAFETY: invariants 1 and 2.
        let done = unsafe { libc::ioctl(self.fd(), libc::SIOCGIFFLAGS as libc::Ioctl, pointer) };
        (done >= 0).then_some(request.flags & RUNNING == RUNNING)
    }

    /// Descriptor for [`poll`].
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let (fd, value) = (self.fd(), (&raw const *value).cast());
        // SAFETY: invariants 1 and 2.
        check(unsafe { libc::setsockopt(fd, level, option, value, socklen::<T>()) }).map(drop)
    }
}

/// A socket whose options are the tables of the old iptables modules.
#[derive(Debug)]
pub(crate) struct Tables(OwnedFd);

impl Tables {
    /// Those of an address family, of the calling thread's namespace.
    pub(crate) fn open(family: libc::c_int) -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::socket(family, kind, 0) })?;
        // SAFETY: invariant 1: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends the request in `question`; the answer takes its place. Needs `CAP_NET_ADMIN`.
    pub(crate) fn ask(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        question: &mut [u8],
    ) -> io::Result<()> {
        let mut len = libc::socklen_t::try_from(question.len()).map_err(io::Error::other)?;
        let (fd, value) = (self.0.as_raw_fd(), question.as_mut_ptr().cast());
        // SAFETY: invariants 1 and 2.
        check(unsafe { libc::getsockopt(fd, level, option, value, &raw mut len) }).map(drop)
    }
}

/// Waits until one of `fds` is readable, a signal came, or `timeout` is over; returns whether that was not the timeout.
pub(crate) fn poll(fds: &[RawFd], timeout: Duration) -> bool {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let timeout = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    let count = libc::nfds_t::try_from(polled.len()).expect("a handful");
    // SAFETY: invariants 1 and 2.
    unsafe { libc::poll(polled.as_mut_ptr(), count, timeout) != 0 }
}

/// CPU time of the calling thread so far.
pub(crate) fn thread_time() -> Duration {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Has large allocations live in mappings of their own for good: such a one grows by the kernel's page tables. The GNU C library
/// raises its bound, up to 32 MiB, whenever a larger one is given back, and copies what lies below when it grows: 20 ms of
/// the control thread for the routes of a full table.
pub(crate) fn map_large_allocations() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes two numbers. Where it is refused, nothing changes.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}

/// Time since an unspecified point of the past, as the service manager counts it.
pub(crate) fn monotonic_time() -> Duration {
    time_of(libc::CLOCK_MONOTONIC)
}

fn time_of(clock: libc::clockid_t) -> Duration {
    // SAFETY: all zeroes is a valid time.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: invariant 2.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Whether the peer of a connection has closed it, even where not all that it sent was read.
pub(crate) fn has_hung_up(fd: RawFd) -> bool {
    first_hung_up(&[fd]).is_some()
}

/// Index of the first of these connections whose peer has closed it, as [`has_hung_up`].
pub(crate) fn first_hung_up(fds: &[RawFd]) -> Option<usize> {
    let closed = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    let asked = |&fd| libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    let mut polled: Vec<libc::pollfd> = fds.iter().map(asked).collect();
    let count = libc::nfds_t::try_from(polled.len()).expect("some hundreds");
    // SAFETY: invariants 1 and 2.
    let found = unsafe { libc::poll(polled.as_mut_ptr(), count, 0) };
    polled.iter().position(|polled| polled.revents & closed != 0).filter(|_| found > 0)
}

/// Has the kernel probe the peer of a silent connection every few seconds; one that does not reply for about half a
/// minute has closed it.
pub(crate) fn keep_alive(socket: &impl AsRawFd) -> io::Result<()> {
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 10),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
    ];
    set_options(socket, &options)
}

/// Has the kernel probe the peer of a connection within a second: whether it is there, is known soon.
pub(crate) fn probe_soon(socket: &impl AsRawFd) -> io::Result<()> {
    let options =
        [(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 1), (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 1)];
    set_options(socket, &options)
}

/// Silence of the peer of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence {
    /// Time since data or an acknowledgement came from it.
    pub(crate) lasts: Duration,
    /// It was sent the same more than once, and has not replied.
    pub(crate) is_owing: bool,
}

/// Silence of the peer of a TCP connection; `None` for another socket.
pub(crate) fn silence(fd: RawFd) -> Option<Silence> {
    // SAFETY: all zeroes is a valid state of a connection.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let (state, mut len) = ((&raw mut info).cast(), socklen::<libc::tcp_info>());
    // SAFETY: invariants 1 and 2.
    let done =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, state, &raw mut len) };
    // One probe may be on its path and back.
    let is_owing = info.tcpi_retransmits > 0 || info.tcpi_probes > 1;
    // Data that acknowledges nothing new counts as no acknowledgement.
    let last = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
    (done == 0).then(|| Silence { lasts: Duration::from_millis(last.into()), is_owing })
}

/// Has the kernel close connections, also those that a listening socket accepts later, whose peer does not take what was sent to
/// it for this long, in milliseconds.
pub(crate) fn disconnect_idle_readers(socket: &impl AsRawFd, time_ms: i32) -> io::Result<()> {
    set_options(socket, &[(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, time_ms)])
}

/// Listens at an address, also at one that the host does not have yet: connections come once it has it.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let (socket, free) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, (libc::IPPROTO_IP, libc::IP_FREEBIND, 1)),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, 1)),
    };
    socket.set_reuseaddr(true)?;
    // Below Linux 4.15 there is no such option for IPv6: the address must be there then.
    let _ = set_options(&socket, &[free]);
    socket.bind(address)?;
    // SAFETY: invariant 1.
    check(unsafe { libc::listen(socket.as_raw_fd(), LISTEN_QUEUE) })?;
    // SAFETY: invariant 1: nobody else has the descriptor any more.
    Ok(unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) })
}

/// Whether the host has an address, or it is one of no host in particular.
pub(crate) fn has_address(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

fn set_options(
    socket: &impl AsRawFd,
    options: &[(libc::c_int, libc::c_int, libc::c_int)],
) -> io::Result<()> {
    for &(level, option, value) in options {
        let (value, len) = ((&raw const value).cast(), socklen::<libc::c_int>());
        // SAFETY: invariants 1 and 2.
        check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) })?;
    }
    Ok(())
}

static STOP: AtomicBool = AtomicBool::new(false);
static RELOAD: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(signal: libc::c_int) {
    // Relaxed: a flag without data behind it.
    STOP.store(true, Ordering::Relaxed);
    SIGNALS.fetch_or(bit(signal), Ordering::Relaxed);
}

/// Signals that came, by number.
static SIGNALS: AtomicU32 = AtomicU32::new(0);

fn bit(signal: libc::c_int) -> u32 {
    u32::try_from(signal).ok().and_then(|signal| 1_u32.checked_shl(signal)).unwrap_or(0)
}

/// Catches more signals, as [`catch_signals`] does SIGINT: each of them is seen by [`take_signal`].
#[cfg(feature = "click")]
pub(crate) fn catch_these(signals: &[i32]) {
    for &signal in signals {
        catch(signal);
    }
}

/// Whether a signal came that was caught, since the last call; it requests no stop then.
#[cfg(feature = "click")]
pub(crate) fn take_signal(signal: i32) -> bool {
    let came = SIGNALS.fetch_and(!bit(signal), Ordering::Relaxed) & bit(signal) != 0;
    if came {
        STOP.store(false, Ordering::Relaxed);
    }
    came
}

extern "C" fn on_hangup(_: libc::c_int) {
    // Relaxed: as above.
    RELOAD.store(true, Ordering::Relaxed);
}

/// Catches SIGINT and SIGTERM: from here on they only request a stop; see [`stop_asked`].
pub(crate) fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        catch(signal);
    }
}

fn catch(signal: libc::c_int) {
    // SAFETY: all zeroes is a valid action.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
    // SAFETY: invariants 2 and 3.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

/// Whether SIGINT or SIGTERM came since [`catch_signals`].
pub(crate) fn stop_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Catches SIGHUP: from here on it only requests that the configuration is read again, see [`reload_asked`]: also where whoever
/// started the program ignores that signal.
pub(crate) fn catch_hangup() {
    // SAFETY: all zeroes is a valid action.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_hangup as extern "C" fn(libc::c_int) as usize;
    // Reads and writes in progress continue; poll(2) returns in any case.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: invariants 2 and 3.
    unsafe { libc::sigaction(libc::SIGHUP, &raw const action, std::ptr::null_mut()) };
}

/// Whether SIGHUP arrived since [`catch_hangup`], or since the last call.
pub(crate) fn reload_asked() -> bool {
    RELOAD.swap(false, Ordering::Relaxed)
}

/// Sets of capabilities as capget(2) has them: two words each, the low one first.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityWords {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`, for the calling thread.
const CAPABILITIES: CapabilityHeader = CapabilityHeader { version: 0x2008_0522, pid: 0 };

/// The effective capabilities of the calling thread: capability `n` is bit `n`.
pub(crate) fn capabilities() -> io::Result<u64> {
    let [low, high] = capability_words()?;
    Ok(u64::from(low.effective) | u64::from(high.effective) << 32)
}

fn capability_words() -> io::Result<[CapabilityWords; 2]> {
    let mut header = CAPABILITIES;
    let mut words = [CapabilityWords { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: invariant 2: version 3 has two words a set.
    let got =
        unsafe { libc::syscall(libc::SYS_capget, &raw mut header, (&raw mut words).cast::<u8>()) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(words) }
}

/// The calling thread, and those that it starts from now on, have no capabilities but these, and no program
/// that they run has more.
pub(crate) fn keep_capabilities(keep: u64) -> io::Result<()> {
    let none: libc::c_ulong = 0;
    let prctl = |option: libc::c_int, what: libc::c_ulong, which: libc::c_ulong| {
        // SAFETY: none of the options used here takes a pointer.
        check(unsafe { libc::prctl(option, what, which, none, none) })
    };
    let ambient = libc::c_ulong::from(libc::PR_CAP_AMBIENT_CLEAR_ALL.cast_unsigned());
    prctl(libc::PR_CAP_AMBIENT, ambient, none)?;
    // To the greatest that the kernel knows. It takes CAP_SETPCAP, and without it the bounding set does not
    // matter: what is not permitted now is not had again, by the last line.
    for number in (0..64).take_while(|&n| prctl(libc::PR_CAPBSET_READ, n, none).is_ok()) {
        if keep >> number & 1 == 0 && prctl(libc::PR_CAPBSET_DROP, number, none).is_err() {
            break;
        }
    }
    let mut words = capability_words()?;
    for (word, keep) in words.iter_mut().zip([keep, keep >> 32]) {
        #[allow(clippy::cast_possible_truncation, reason = "a word of the two")]
        let kept = word.permitted & keep as u32;
        *word = CapabilityWords { effective: kept, permitted: kept, inheritable: 0 };
    }
    let header = CAPABILITIES;
    // SAFETY: invariant 2: version 3 has two words a set.
    let set = unsafe {
        libc::syscall(libc::SYS_capset, &raw const header, (&raw const words).cast::<u8>())
    };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, none).map(drop)
}

/// Has the kernel decide on system calls by this program from now on: those of every thread of the process, or of the
/// calling one and those that it starts.
pub(crate) fn filter_system_calls(program: &[libc::sock_filter], all: bool) -> io::Result<()> {
    let len = libc::c_ushort::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // Kernels before 5.16 slow a thread with a filter down, unless it declines that.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW
        | if all { libc::SECCOMP_FILTER_FLAG_TSYNC } else { 0 };
    let (operation, at) = (libc::SECCOMP_SET_MODE_FILTER, &raw const program);
    // SAFETY: invariant 2: the kernel reads as many steps as there are, and changes none.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, at.cast::<u8>()) };
    match done {
        0 => Ok(()),
        // Positive: the thread that has filters of its own.
        1.. => Err(io::Error::other(format!("thread {done} has another filter"))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Most bytes of locked memory for a process without CAP_IPC_LOCK; `None` where there is no limit.
pub(crate) fn locked_memory_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: invariant 2.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (got == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Gives memory back to the system that was freed here and is kept for later, where the allocator can.
pub(crate) fn trim_memory() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes no pointers; the allocator locks for itself.
        unsafe { libc::malloc_trim(0) };
    }
}

/// The user that the program acts for.
pub(crate) fn user() -> u32 {
    // SAFETY: takes no pointers and cannot fail.
    unsafe { libc::geteuid() }
}

/// The process at the other end of a Unix socket.
pub(crate) fn peer_process(socket: &std::os::unix::net::UnixStream) -> io::Result<i32> {
    peer(socket).map(|peer| peer.pid)
}

/// The user of the process at the other end of a Unix socket.
pub(crate) fn peer_user(socket: &std::os::unix::net::UnixStream) -> io::Result<u32> {
    peer(socket).map(|peer| peer.uid)
}

/// Option of Unix sockets (`asm-generic/socket.h`).
const SO_PEERGROUPS: libc::c_int = 59;

/// The supplementary groups of the process at the other end of a Unix socket, as they were when it connected.
pub(crate) fn peer_groups(socket: &impl AsRawFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let bytes = groups.len() * size_of::<u32>();
        let mut len = libc::socklen_t::try_from(bytes).unwrap_or(libc::socklen_t::MAX);
        let value = groups.as_mut_ptr().cast();
        let (fd, level) = (socket.as_raw_fd(), libc::SOL_SOCKET);
        // SAFETY: invariants 1 and 2.
        let done =
            check(unsafe { libc::getsockopt(fd, level, SO_PEERGROUPS, value, &raw mut len) });
        let count = usize::try_from(len).unwrap_or(0) / size_of::<u32>();
        match done {
            // The kernel has stored the length that is needed.
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => {
                groups.resize(count, 0);
            }
            done => {
                groups.truncate(count);
                return done.map(|_| groups);
            }
        }
    }
}

fn peer(socket: &std::os::unix::net::UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = socklen::<libc::ucred>();
    let value = (&raw mut peer).cast();
    let (fd, level, option) = (socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: invariants 1 and 2.
    check(unsafe { libc::getsockopt(fd, level, option, value, &raw mut len) })?;
    Ok(peer)
}

/// unshare(2) of the calling thread.
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Runs `f` on a thread of its own that makes files for their owner alone: the mode mask of the process, which other
/// threads make files by, stays as it is.
pub(crate) fn for_owner_alone<T: Send>(f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // From here on this thread has a mode mask of its own.
            unshare(libc::CLONE_FS)?;
            // SAFETY: takes no pointers and cannot fail.
            unsafe { libc::umask(0o077) };
            f()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The processors that this process may run on, by number.
pub(crate) fn cores() -> Vec<usize> {
    // SAFETY: all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: invariant 2.
    unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    let max = usize::try_from(libc::CPU_SETSIZE).expect("a small number");
    // SAFETY: the number is below the set's size.
    let cores: Vec<usize> = (0..max).filter(|&n| unsafe { libc::CPU_ISSET(n, &set) }).collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Keeps the calling thread on one processor.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    // SAFETY: all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    if core < usize::try_from(libc::CPU_SETSIZE).expect("a small number") {
        // SAFETY: the number is below the set's size.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: invariant 2.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })
        .map(drop)
}

/// The number of the calling thread's network namespace.
pub(crate) fn namespace_number() -> u64 {
    use std::os::unix::fs::MetadataExt;
    // Without /proc there is one namespace as far as anybody knows.
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |netns| netns.ino())
}

fn socklen<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("socket options are small")
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends as any process can: to the port of another's socket.
    fn send_to(from: &Netlink, to: u32, bytes: &[u8]) {
        // SAFETY: all zeroes is a valid address of this family.
        let mut addr: libc::sockaddr_nl = unsafe { zeroed() };
        addr.nl_family = u16::try_from(libc::AF_NETLINK).unwrap();
        addr.nl_pid = to;
        let (fd, what, len) = (from.fd(), bytes.as_ptr().cast(), bytes.len());
        let (addr, addr_len) = ((&raw const addr).cast(), socklen::<libc::sockaddr_nl>());
        // SAFETY: invariants 1 and 2.
        let sent = unsafe { libc::sendto(fd, what, len, 0, addr, addr_len) };
        assert_eq!(usize::try_from(sent).unwrap(), bytes.len());
    }

    fn port(of: &Netlink) -> u32 {
        // SAFETY: all zeroes is a valid address of this family.
        let mut addr: libc::sockaddr_nl = unsafe { zeroed() };
        let mut len = socklen::<libc::sockaddr_nl>();
        let (fd, value, len) = (of.fd(), (&raw mut addr).cast(), &raw mut len);
        // SAFETY: invariants 1 and 2.
        check(unsafe { libc::getsockname(fd, value, len) }).unwrap();
        addr.nl_pid
    }

    #[test]
    fn listens_at_an_address_that_comes_later() {
        // Addresses for documentation: no host has them.
        for address in ["192.0.2.77:0", "[2001:db8::77]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            assert!(!has_address(address.ip()), "{address}");
            let listener = listen(address).unwrap();
            assert_eq!(listener.local_addr().unwrap().ip(), address.ip());
        }
        assert!(
            has_address("127.0.0.1".parse().unwrap()) && has_address("0.0.0.0".parse().unwrap())
        );
        let taken = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let again = listen(taken.local_addr().unwrap()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn messages_of_processes_are_passed_over() {
        // The protocol in which the kernel lets everybody send to everybody.
        let open = || Netlink::open(libc::NETLINK_USERSOCK, &[]).unwrap();
        let (ours, forger) = (open(), open());
        let mut buffer = [0; 64];
        for forged in [&[1; 16][..], &[2; 100]] {
            send_to(&forger, port(&ours), forged);
            assert_eq!(ours.recv(&mut buffer).unwrap(), Received::Empty);
        }
        send_to(&forger, port(&ours), &[3; 16]);
        let (came, sender) = ours.recv_any(&mut buffer).unwrap();
        assert_eq!((came, sender), (Received::Bytes(16), port(&forger)), "it was sent");
        // One of the kernel comes: it answers a request (RTM_GETLINK) that names no interface.
        let ours = Netlink::open(libc::NETLINK_ROUTE, &[]).unwrap();
        let mut request = [0; 32];
        (request[0], request[4], request[6]) = (32, 18, 5);
        ours.send(&request).unwrap();
        let answer = ours.recv(&mut [0; 8192]).unwrap();
        assert!(matches!(answer, Received::Bytes(16..)), "{answer:?}");
    }

    #[test]
    fn a_request_has_the_reply_of_its_number() {
        use fingerpost_route::netlink::{F_ACK, Request, link};
        let ours = Netlink::open(libc::NETLINK_ROUTE, &[]).unwrap();
        let about = |seq: u32, index: u32| {
            let head = [[0; 4], index.to_ne_bytes(), [0; 4], [0; 4]];
            Request::query(link::DEL, F_ACK, seq).fixed(head.as_flattened()).finish()
        };
        // Nobody waits for this reply: no such interface, or no privilege to delete one.
        ours.send(&about(1, 0x7fff_0000)).unwrap();
        // A request of no kind that exists is refused to everybody; a message without a request in it is done.
        let unknown = Request::query(4000, F_ACK, 2).finish();
        let refused = ours.request(&unknown).unwrap_err().raw_os_error();
        assert!(matches!(refused, Some(libc::EOPNOTSUPP | libc::EPERM)), "{refused:?}");
        let nothing = Request::query(1, F_ACK, 3).finish();
        ours.request(&nothing).unwrap();
    }
}
