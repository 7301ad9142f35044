//! Stand-in for a BGP router that reports the routes of its peers by BMP (RFC 7854).

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::Path;

use fingerpost_route::AnyPrefix;

const ROUTE_MONITORING: u8 = 0;
const PEER_DOWN: u8 = 2;
const PEER_UP: u8 = 3;
const OPEN: u8 = 1;
const UPDATE: u8 = 2;

/// Flag of routes behind the router's policy.
const POST_POLICY: u8 = 0x40;

const OWN_AS: u32 = 65000;

/// A session with a router that takes the routes. It ends when this is dropped.
#[derive(Debug)]
pub struct Monitored(UnixStream);

impl Monitored {
    /// Connects to the socket of a router.
    ///
    /// # Panics
    /// When it does not listen there.
    pub fn connect(socket: &Path) -> Self {
        Self(UnixStream::connect(socket).expect("the router listens"))
    }

    /// The session with the peer of this number is up, for both families.
    ///
    /// # Panics
    /// When the session has ended.
    pub fn up(&mut self, peer: u8) {
        let opens = [open(OWN_AS, 1), open(as_of(peer), peer)].concat();
        // Own address and both ports, which do not matter.
        self.send(PEER_UP, peer, &[&[0; 20][..], &opens].concat());
    }

    /// That session is down, and all routes of the peer are gone.
    ///
    /// # Panics
    /// When the session has ended.
    pub fn down(&mut self, peer: u8) {
        // The peer closed it.
        self.send(PEER_DOWN, peer, &[4]);
    }

    /// The peer has announced a prefix by a next hop of the same family, with an AS path of this length.
    ///
    /// # Panics
    /// When the families differ, or the session has ended.
    pub fn announce(&mut self, peer: u8, prefix: AnyPrefix, next_hop: IpAddr, as_path_len: u8) {
        self.announced(POST_POLICY, peer, prefix, next_hop, as_path_len);
    }

    /// The peer has announced it, and the router's policy may reject it.
    ///
    /// # Panics
    /// When the families differ, or the session has ended.
    pub fn announce_before_policy(&mut self, peer: u8, prefix: AnyPrefix, next_hop: IpAddr) {
        self.announced(0, peer, prefix, next_hop, 1);
    }

    fn announced(
        &mut self,
        flags: u8,
        peer: u8,
        prefix: AnyPrefix,
        next_hop: IpAddr,
        as_path_len: u8,
    ) {
        let attribute = |flags: u8, kind: u8, value: &[u8]| {
            [&[flags, kind, u8::try_from(value.len()).expect("short")][..], value].concat()
        };
        let path = as_of(peer).to_be_bytes().repeat(as_path_len.into());
        let origin = attribute(0x40, 1, &[0]);
        let as_path = attribute(0x40, 2, &[&[2, as_path_len][..], &path].concat());
        let (hop, nlri) = match (prefix, next_hop) {
            (AnyPrefix::V4(of), IpAddr::V4(hop)) => {
                (attribute(0x40, 3, &hop.octets()), nlri(&of.addr().to_be_bytes(), of.len()))
            }
            (AnyPrefix::V6(of), IpAddr::V6(hop)) => {
                let nlri = nlri(&of.addr().to_be_bytes(), of.len());
                let reach = [&[0, 2, 1, 16][..], &hop.octets(), &[0], &nlri].concat();
                (attribute(0x80, 14, &reach), Vec::new())
            }
            _ => panic!("{prefix} by {next_hop}"),
        };
        let attributes = [origin, as_path, hop].concat();
        let len = u16::try_from(attributes.len()).expect("few attributes").to_be_bytes();
        let body = [&[0, 0][..], &len, &attributes, &nlri].concat();
        self.send_with(flags, ROUTE_MONITORING, peer, &message(UPDATE, &body));
    }

    fn send(&mut self, kind: u8, peer: u8, body: &[u8]) {
        self.send_with(POST_POLICY, kind, peer, body);
    }

    fn send_with(&mut self, flags: u8, kind: u8, peer: u8, body: &[u8]) {
        let header = [
            // A peer with an IPv4 address.
            &[0, flags][..],
            &[0; 8],
            &[0; 12],
            &Ipv4Addr::new(192, 0, 2, peer).octets(),
            &as_of(peer).to_be_bytes(),
            &[0, 0, 0, peer],
            &[0; 8],
        ];
        let body = [&header.concat()[..], body].concat();
        let len = u32::try_from(6 + body.len()).expect("short").to_be_bytes();
        let bytes = [&[3][..], &len, &[kind], &body].concat();
        self.0.write_all(&bytes).expect("the router reads");
    }
}

fn as_of(peer: u8) -> u32 {
    OWN_AS + u32::from(peer)
}

/// A BGP message.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(19 + body.len()).expect("short").to_be_bytes();
    [&[0xff; 16][..], &len, &[kind], body].concat()
}

fn open(as_number: u32, id: u8) -> Vec<u8> {
    let own = as_number.to_be_bytes();
    let families = [[1, 4, 0, 1, 0, 1], [1, 4, 0, 2, 0, 1]].concat();
    let capabilities = [&families[..], &[65, 4], &own].concat();
    let len = u8::try_from(capabilities.len()).expect("few");
    let head = [&[4][..], &own[2..], &[0, 90], &[0, 0, 0, id], &[len + 2, 2, len]].concat();
    message(OPEN, &[head, capabilities].concat())
}

/// Length of a prefix in bits, and its bytes as far as that.
fn nlri(addr: &[u8], len: u8) -> Vec<u8> {
    [&[len][..], &addr[..usize::from(len.div_ceil(8))]].concat()
}
