//! Which user is at the other end of a TCP connection of this host: the kernel is queried for the client's socket.
//!
//! Source: `sock_diag(7)`, `linux/sock_diag.h`, `linux/inet_diag.h`. The answer is the user that made the socket.
//! Whoever has none any more is nobody: of a socket that was closed the kernel reports user 0, and inode 0; where the client
//! is gone, a listening socket at its address would be found. So an answer counts only of a socket that a process has, in
//! a connected state, with both ends as requested, while our own end of the connection is still there: then no other
//! client can have had these addresses and ports meanwhile.
//!
//! Cost: a netlink socket and a request, some 20 us a client.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use fingerpost_route::netlink::{IPV4, IPV6, Message, Messages, Request};

use crate::sys::{self, Netlink, Received};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const TCP: u8 = 6;
/// `TCP_ESTABLISHED`, `TCP_FIN_WAIT1` and `2` (it sends no more) and `TCP_CLOSE_WAIT`.
const CONNECTED: [u8; 4] = [1, 4, 5, 8];
/// `struct inet_diag_sockid`: ports and addresses in network order, interface, cookie.
const ID_BYTES: usize = 48;
/// `struct inet_diag_msg`: family, state, 2 bytes, the identity, 3 words, user and inode.
const ANSWER_BYTES: usize = 72;
/// The kernel replies within the call.
const LONGEST: Duration = Duration::from_secs(1);

/// The user at the other end; `None` of a client of another host, and where the kernel does not know.
pub(super) fn user(stream: &TcpStream) -> Option<u32> {
    let (client, here) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
    let (client, here) = (canonical(client), canonical(here));
    if !client.ip().is_loopback() || !here.ip().is_loopback() {
        return None;
    }
    let user = ask(client, here).ok()??;
    // A connection that was reset has no peer any more.
    (canonical(stream.peer_addr().ok()?) == client).then_some(user)
}

/// An IPv4 address that a socket of IPv6 has is one of IPv4.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// The user of the socket between `from`, its own address, and `to`.
fn ask(from: SocketAddr, to: SocketAddr) -> io::Result<Option<u32>> {
    let kernel = Netlink::open(libc::NETLINK_SOCK_DIAG, &[])?;
    kernel.send(&question(from, to))?;
    let mut answer = [0; 4096];
    for _ in 0..2 {
        match kernel.recv(&mut answer)? {
            Received::Bytes(len) => {
                let mut messages = Messages::new(&answer[..len]).map_while(Result::ok);
                return Ok(messages.find_map(|message| user_of(&message, from, to)));
            }
            Received::Empty => {
                sys::poll(&[kernel.fd()], LONGEST);
            }
            Received::Lost => break,
        }
    }
    Ok(None)
}

/// `struct inet_diag_req_v2` of one socket.
fn question(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut body = vec![if from.is_ipv4() { IPV4 } else { IPV6 }, TCP, 0, 0];
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(ends(from, to));
    // Any interface; `INET_DIAG_NOCOOKIE`.
    body.extend([0; 4]);
    body.extend([0xff; 8]);
    Request::query(BY_FAMILY, 0, 1).fixed(&body).finish()
}

/// How both ends begin an identity.
fn ends(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut bytes = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    for addr in [from.ip(), to.ip()] {
        let start = bytes.len();
        match addr {
            IpAddr::V4(addr) => bytes.extend(addr.octets()),
            IpAddr::V6(addr) => bytes.extend(addr.octets()),
        }
        bytes.resize(start + 16, 0);
    }
    bytes
}

/// User in a message; `None` where it is no answer, or not of a connected socket between these.
fn user_of(message: &Message<'_>, from: SocketAddr, to: SocketAddr) -> Option<u32> {
    let body = message.body.first_chunk::<ANSWER_BYTES>().filter(|_| message.kind == BY_FAMILY)?;
    let (family, state, id) = (body[0], body[1], &body[4..4 + ID_BYTES]);
    let addr = |at: usize| {
        let bytes: [u8; 16] = id[at..at + 16].try_into().expect("16 bytes");
        match family {
            IPV4 => Some(IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))),
            IPV6 => Some(IpAddr::V6(Ipv6Addr::from(bytes))),
            _ => None,
        }
    };
    let end = |port: usize, at: usize| {
        let port = u16::from_be_bytes([id[port], id[port + 1]]);
        Some(canonical(SocketAddr::new(addr(at)?, port)))
    };
    let word = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().expect("4 bytes"));
    let (user, inode) = (word(64), word(68));
    let asked = end(0, 4)? == from && end(2, 20)? == to;
    (asked && CONNECTED.contains(&state) && inode != 0).then_some(user)
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener};

    use super::*;

    /// A client's end and ours.
    fn connected(listen: &str, connect: &str) -> Option<(TcpStream, TcpStream)> {
        // Without IPv6 there is none to look at.
        let listener = TcpListener::bind(listen).ok()?;
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(format!("{connect}:{port}")).ok()?;
        Some((client, listener.accept().unwrap().0))
    }

    #[test]
    fn the_user_of_a_client_is_known_while_it_is_there() {
        for (listen, connect) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.9.9.9"),
            ("[::1]:0", "[::1]"),
            // Our end is one of IPv6 here; in the second the client's is as well.
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "[::ffff:127.0.0.1]"),
        ] {
            let Some((client, here)) = connected(listen, connect) else { continue };
            assert_eq!(user(&here), Some(sys::user()), "{listen} {connect}");
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(user(&here), Some(sys::user()), "{listen} {connect}, half closed");
            // The kernel says root of a socket that nobody has.
            drop(client);
            assert_eq!(user(&here), None, "{listen} {connect}, closed");
        }
    }

    #[test]
    fn another_socket_at_the_clients_address_is_not_the_client() {
        let (client, here) = connected("127.0.0.1:0", "127.0.0.1").unwrap();
        let (from, to) = (client.local_addr().unwrap(), here.local_addr().unwrap());
        assert_eq!(ask(from, to).unwrap(), Some(sys::user()));
        // A listening socket is what the kernel finds where no connection is.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = listener.local_addr().unwrap();
        assert_eq!(ask(listening, to).unwrap(), None);
        assert_eq!(ask(to, "127.0.0.1:1".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn only_an_answer_of_a_connected_socket_counts() {
        let (from, to) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let answer = |family: u8, state: u8, ends: Vec<u8>, user: u32, inode: u32| {
            let mut body = vec![family, state, 0, 0];
            body.extend(ends);
            body.resize(4 + ID_BYTES + 12, 0);
            body.extend(user.to_ne_bytes());
            body.extend(inode.to_ne_bytes());
            body
        };
        let said = |kind: u16, body: &[u8]| {
            user_of(&Message { kind, flags: 0, seq: 1, port: 0, body }, from, to)
        };
        let right = answer(IPV4, 1, ends(from, to), 7, 9);
        assert_eq!(said(BY_FAMILY, &right), Some(7));
        assert_eq!(said(BY_FAMILY, &right[..ANSWER_BYTES - 1]), None);
        assert_eq!(said(2, &right), None, "an error");
        assert_eq!(said(BY_FAMILY, &answer(IPV4, 1, ends(to, from), 7, 9)), None);
        assert_eq!(said(BY_FAMILY, &answer(IPV4, 1, ends(from, to), 0, 0)), None, "closed");
        // SYN_SENT, SYN_RECV, TIME_WAIT, CLOSE, LAST_ACK, LISTEN, CLOSING, NEW_SYN_RECV.
        for state in [2, 3, 6, 7, 9, 10, 11, 12] {
            assert_eq!(said(BY_FAMILY, &answer(IPV4, state, ends(from, to), 0, 9)), None);
        }
        // A client of IPv6 that reaches an address of IPv4.
        let mapped = |addr: SocketAddr| {
            let IpAddr::V4(ip) = addr.ip() else { panic!("{addr}") };
            SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port())
        };
        let answer = answer(IPV6, 1, ends(mapped(from), mapped(to)), 7, 9);
        assert_eq!(said(BY_FAMILY, &answer), Some(7));
    }
}
