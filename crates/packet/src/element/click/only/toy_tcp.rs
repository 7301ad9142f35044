//! TCP clients for tests of others: `ToyTCP(DPORT)` connects and acknowledges what it receives; `WebGen(PREFIX, DST,
//! RATE)` requests a page in each of so many connections a second, from addresses of a prefix.
//!
//! Source: Click's elements of these names; RFC 9293, as far as a client that sends one segment needs it. `ToyTCP`
//! takes and makes segments without IP header; `WebGen` takes and makes IPv4 packets. A request to connect is repeated
//! after a second, a connection that is reset or over begins anew (`ToyTCP`) or makes room for another (`WebGen`, 100
//! at once). `WebGen` gives up a connection without progress for 30 seconds. Of several workers the first connects.
//! Differs: `ToyTCP` sends no data of its own.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use fingerpost_lpm::Prefix;

use super::checksums::fill_checksums;
use super::random::Random;
use super::seen::{Seen, long, word};
use crate::element::support::one_instance::OneInstance;
use crate::frame::wire::Ip4;
use crate::frame::wire::protocol::TCP;
use crate::frame::wire::tcp::{ACK, FIN, RST, SYN};
use crate::frame::{Batch, DropReason, Hop};
use crate::graph::{Context, Element, ElementClass, Inputs, Made};
use crate::language::ClassSpec;

pub(crate) const TOY: ElementClass = ElementClass {
    spec: ClassSpec::new("ToyTCP", "1/1", "h/h", "x/y"),
    summary: "a TCP client that acknowledges what it receives",
    configure: |setup| {
        let port = setup.args.positional::<u16>("DPORT");
        setup.args.finish()?;
        let port = port?;
        let (one, random) = (OneInstance::default(), Random::of(setup));
        let made = Made::new(move |instance| {
            let works = one.is(instance);
            let mut random = random.clone();
            Toy { works, client: Client::new([1024, port], &mut random), random }
        });
        Ok(made.polled())
    },
};

pub(crate) const WEB: ElementClass = ElementClass {
    spec: ClassSpec::new("WebGen", "1/1", "h/h", "x/y"),
    summary: "requests a page in so many TCP connections a second",
    configure: |setup| {
        let prefix = setup.args.positional::<Prefix<u32>>("PREFIX");
        let dst = setup.args.positional::<Ipv4Addr>("DST");
        let rate = setup.args.optional::<u32>("RATE");
        setup.args.finish()?;
        let (prefix, dst, rate) = (prefix?, dst?.to_bits(), rate?.unwrap_or(1).max(1));
        let (one, random) = (OneInstance::default(), Random::of(setup));
        let made = Made::new(move |instance| Web {
            works: one.is(instance),
            prefix,
            dst,
            interval_ns: 1_000_000_000 / u64::from(rate),
            next_ns: None,
            clients: HashMap::new(),
            random: random.clone(),
        });
        Ok(made.polled())
    },
};

/// Time after which a request is repeated.
const REPEAT_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nobody answered yet.
    Begun,
    Open,
    Over,
}

/// One side of a connection.
struct Client {
    ports: [u16; 2],
    state: State,
    next_send: u32,
    next_receive: u32,
    /// When the request to connect is to be repeated.
    repeat_ns: u64,
    /// When the connection last made progress.
    progress_ns: u64,
}

/// A segment to be sent.
type Segment = Vec<u8>;

impl Client {
    fn new(ports: [u16; 2], random: &mut Random) -> Self {
        let [a, b, c, d, ..] = random.number().to_le_bytes();
        let next_send = u32::from_le_bytes([a, b, c, d]);
        Self {
            ports,
            state: State::Begun,
            next_send,
            next_receive: 0,
            repeat_ns: 0,
            progress_ns: 0,
        }
    }

    fn segment(&self, flags: u8, data: &[u8]) -> Segment {
        let mut bytes = self.ports.map(u16::to_be_bytes).concat();
        bytes.extend(self.next_send.to_be_bytes());
        bytes.extend(self.next_receive.to_be_bytes());
        // A window of 60 KiB.
        bytes.extend([0x50, flags, 0xf0, 0, 0, 0, 0, 0]);
        bytes.extend(data);
        bytes
    }

    /// The request to connect, where it is due.
    fn connect(&mut self, now_ns: u64) -> Option<Segment> {
        if self.state != State::Begun || now_ns < self.repeat_ns {
            return None;
        }
        self.repeat_ns = now_ns + REPEAT_NS;
        Some(self.segment(SYN, &[]))
    }

    /// What answers a segment; `request` is sent when the connection opens.
    fn input(&mut self, tcp: &[u8], request: &[u8]) -> Option<Segment> {
        let flags = *tcp.get(13)?;
        let (seq, header) = (long(tcp, 4)?, usize::from(tcp[12] >> 4) * 4);
        let length = u32::try_from(tcp.len().saturating_sub(header)).ok()?;
        if flags & RST != 0 {
            self.state = State::Over;
            return None;
        }
        if self.state == State::Begun {
            if flags & (SYN | ACK) != SYN | ACK {
                return None;
            }
            self.state = State::Open;
            self.next_send = self.next_send.wrapping_add(1);
            self.next_receive = seq.wrapping_add(1);
            let reply = self.segment(ACK, request);
            let sent = u32::try_from(request.len()).ok()?;
            self.next_send = self.next_send.wrapping_add(sent);
            return Some(reply);
        }
        if length == 0 && flags & (SYN | FIN) == 0 {
            return None;
        }
        if seq == self.next_receive {
            let ends = flags & FIN != 0;
            self.next_receive = seq.wrapping_add(length + u32::from(ends));
            if ends {
                let reply = self.segment(FIN | ACK, &[]);
                self.state = State::Over;
                return Some(reply);
            }
        }
        Some(self.segment(ACK, &[]))
    }
}

/// Emits a packet of the router's own.
fn emit(bytes: &[u8], cx: &mut Context<'_>) {
    let Some(mut packet) = cx.pool.alloc() else { return };
    if packet.set_len(bytes.len()) {
        packet.bytes_mut().copy_from_slice(bytes);
        (packet.meta.network, packet.meta.hop) = (0, Hop::NONE);
        cx.originate(0, packet);
    }
}

struct Toy {
    works: bool,
    client: Client,
    random: Random,
}

impl Element for Toy {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            let tcp = batch.bytes(i);
            let [own, other] = self.client.ports;
            let ours = word(tcp, 0) == Some(other) && word(tcp, 2) == Some(own);
            if self.works
                && ours
                && let Some(reply) = self.client.input(tcp, &[])
            {
                emit(&reply, cx);
            }
            batch.discard(i, DropReason::Consumed);
        }
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        if !self.works {
            return;
        }
        if self.client.state == State::Over {
            let [own, other] = self.client.ports;
            self.client = Client::new([own.wrapping_add(1).max(1024), other], &mut self.random);
            self.client.repeat_ns = cx.now_ns + REPEAT_NS;
        }
        if let Some(request) = self.client.connect(cx.now_ns) {
            emit(&request, cx);
        }
    }

    fn keeps_time(&self) -> bool {
        self.works && self.client.state != State::Open
    }

    fn due_ns(&self) -> Option<u64> {
        Some(self.client.repeat_ns)
    }
}

/// Connections at once.
const MOST: usize = 100;
/// Time without progress after which a connection makes room for another.
const PATIENCE_NS: u64 = 30_000_000_000;
/// What a client requests.
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

struct Web {
    works: bool,
    prefix: Prefix<u32>,
    dst: u32,
    interval_ns: u64,
    next_ns: Option<u64>,
    /// Connections by source address and port.
    clients: HashMap<(u32, u16), Client>,
    random: Random,
}

impl Web {
    fn send(&self, src: u32, segment: &[u8], cx: &mut Context<'_>) {
        let total = u16::try_from(20 + segment.len()).unwrap_or(u16::MAX).to_be_bytes();
        let mut packet = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, TCP, 0, 0];
        packet.extend(src.to_be_bytes());
        packet.extend(self.dst.to_be_bytes());
        packet.extend(segment);
        fill_checksums(&mut packet);
        emit(&packet, cx);
    }
}

impl Element for Web {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            let seen = Seen::packet(batch, i);
            let ends = seen.of(TCP).zip(seen.ip().and_then(|ip| Ip4::at(ip, 0)));
            if let Some((tcp, ip)) = ends.filter(|(_, ip)| ip.src() == self.dst)
                && let Some(port) = word(tcp, 2)
            {
                let key = (ip.dst(), port);
                let client =
                    self.clients.get_mut(&key).filter(|c| word(tcp, 0) == Some(c.ports[1]));
                if let Some(client) = client {
                    let before = (client.state, client.next_receive);
                    let reply = client.input(tcp, REQUEST);
                    if before != (client.state, client.next_receive) {
                        client.progress_ns = cx.now_ns;
                    }
                    if client.state == State::Over {
                        self.clients.remove(&key);
                    }
                    if let Some(reply) = reply {
                        self.send(key.0, &reply, cx);
                    }
                }
            }
            batch.discard(i, DropReason::Consumed);
        }
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        if !self.works {
            return;
        }
        let next = *self.next_ns.get_or_insert(cx.now_ns);
        if cx.now_ns < next {
            return;
        }
        self.next_ns =
            Some(next.max(cx.now_ns.saturating_sub(self.interval_ns)) + self.interval_ns);
        let now_ns = cx.now_ns;
        self.clients.retain(|_, client| now_ns.saturating_sub(client.progress_ns) < PATIENCE_NS);
        let mut requests = Vec::new();
        // One that nobody answers waits for its next request to connect.
        for (key, client) in &mut self.clients {
            requests.extend(client.connect(cx.now_ns).map(|segment| (key.0, segment)));
        }
        if self.clients.len() < MOST {
            let number = self.random.number();
            let hosts = u32::MAX.checked_shr(self.prefix.len().into()).unwrap_or(0);
            let [a, b, c, d, e, f, ..] = number.to_le_bytes();
            let src = self.prefix.addr() | u32::from_le_bytes([a, b, c, d]) & hosts;
            let port = u16::from_le_bytes([e, f]) | 1024;
            let mut client = Client::new([port, 80], &mut self.random);
            client.progress_ns = now_ns;
            requests.extend(client.connect(cx.now_ns).map(|segment| (src, segment)));
            self.clients.insert((src, port), client);
        }
        for (src, segment) in requests {
            self.send(src, &segment, cx);
        }
    }

    fn keeps_time(&self) -> bool {
        self.works
    }

    fn due_ns(&self) -> Option<u64> {
        self.next_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World};

    /// A segment of the other side.
    fn answer(to: &[u8], flags: u8, seq: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = [&to[2..4], &to[..2]].concat();
        bytes.extend(seq.to_be_bytes());
        bytes.extend(long(to, 4).unwrap().wrapping_add(1).to_be_bytes());
        bytes.extend([0x50, flags, 0xf0, 0, 0, 0, 0, 0]);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn a_client_connects_and_acknowledges() {
        let mut rig = Rig::new(&World::new(), "FromDevice(a) -> ToyTCP(80) -> ToDevice(b)");
        let syn = rig.poll().remove(0).1;
        assert_eq!((syn[13], word(&syn, 2)), (SYN, Some(80)));
        assert!(rig.poll().is_empty());
        rig.bench.now_ns += REPEAT_NS;
        assert_eq!(rig.poll()[0].1, syn, "it is repeated");
        let ack = rig.receive("a", &[&answer(&syn, SYN | ACK, 99, &[])]).remove(0).1;
        assert_eq!((ack[13], long(&ack, 8)), (ACK, Some(100)));
        let ack = rig.receive("a", &[&answer(&syn, ACK, 100, b"hello")]).remove(0).1;
        assert_eq!(long(&ack, 8), Some(105));
        let fin = rig.receive("a", &[&answer(&syn, ACK | FIN, 105, &[])]).remove(0).1;
        assert_eq!((fin[13], long(&fin, 8)), (FIN | ACK, Some(106)));
        rig.poll();
        rig.bench.now_ns += REPEAT_NS;
        assert_eq!(word(&rig.poll()[0].1, 0), Some(1025), "and another one begins");
    }

    #[test]
    fn pages_are_requested() {
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(a) -> WebGen(10.0.0.0/8, 192.0.2.1, 10) -> CheckIPHeader -> CheckTCPHeader -> ToDevice(b)",
        );
        let syn = rig.poll().remove(0).1;
        assert_eq!((syn[12], &syn[16..20], syn[33]), (10, &[192, 0, 2, 1][..], SYN));
        let mut reply = syn[..20].to_vec();
        reply[12..20].rotate_left(4);
        reply.extend(answer(&syn[20..], SYN | ACK, 7, &[]));
        let get = rig.receive("a", &[&[&[0; 14][..], &reply[..]].concat()]).len();
        assert_eq!(get, 0, "no network header is there");
        let text =
            "FromDevice(a) -> MarkIPHeader -> WebGen(10.0.0.0/8, 192.0.2.1, 10) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        let syn = rig.poll().remove(0).1;
        let mut reply = syn[..20].to_vec();
        reply[12..20].rotate_left(4);
        reply.extend(answer(&syn[20..], SYN | ACK, 7, &[]));
        let get = rig.receive("a", &[&reply]).remove(0).1;
        assert_eq!(&get[40..], REQUEST);
        rig.bench.now_ns += 100_000_000;
        assert_eq!(rig.poll().len(), 1, "another one");
        // Connections that stay open without an end make room in the end.
        let open = |rig: &mut Rig| {
            rig.bench.now_ns += 100_000_000;
            let sent = rig.poll();
            for (_, syn) in &sent {
                let mut reply = syn[..20].to_vec();
                reply[12..20].rotate_left(4);
                reply.extend(answer(&syn[20..], SYN | ACK, 7, &[]));
                rig.receive("a", &[&reply]);
            }
            sent.len()
        };
        let begun: Vec<usize> = (0..450).map(|_| open(&mut rig)).collect();
        assert_eq!((begun[200], begun[290..].iter().any(|&n| n > 0)), (0, true), "{begun:?}");
    }
}
