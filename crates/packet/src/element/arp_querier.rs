//! Finds the link address of the next hop of IPv4 packets, and puts the Ethernet header before them:
//! `ARPQuerier(10.0.0.1/24, 02:00:00:00:00:01)`.
//!
//! Source: Click's `ARPQuerier`; RFC 826, RFC 1122 2.3.2, RFC 5227. Packets come at input 0, without their
//! Ethernet header, and leave by output 0. The next hop is their gateway, where the route lookup noted one, or
//! their destination; broadcasts and groups need no question. What ARP packets say comes at input 1, each with its
//! Ethernet header, and ends here. Requests leave by output 1, where it is used, else by output 0.
//!
//! While an address is unknown it is asked for once a second, and its packets wait, as [`super::waiting`] bounds
//! them. After 3 seconds they leave by output 2, where it is used, with the note that an ICMP error is made of, or
//! end here; for some seconds then others do so at once, while the question is repeated.
//!
//! Addresses are kept for `TIMEOUT` (5 minutes), and confirmed after `POLL_TIMEOUT` (a minute) by asking the
//! station itself. Only a packet that is for us makes a new entry; any updates one that is there. Refused are
//! senders that no station is: groups, ourselves, and with a prefix given those outside of it. All workers learn
//! what one does.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use fingerpost_lpm::Prefix;
use fingerpost_route::Mac;

use super::arp_responder::value;
use super::front::{HEADER, grow};
use super::neighbors::{FOREVER, Neighbor, Neighbors, View};
use super::setting::Setting;
use super::waiting::{ASK_NS, PATIENCE_NS, Waiting};
use super::{Context, Element, ElementClass, Exit, Held, Inputs, Made};
use crate::buf::{Batch, Packet};
use crate::cause::Cause;
use crate::counters::{Count, PerWorker};
use crate::drops::DropReason;
use crate::gateways::Gateways;
use crate::graph::{Around, ClassSpec};
use crate::handler::Handler;
use crate::wire::arp::{ARP_BYTES, Arp, End, REQUEST, write_arp};
use crate::wire::ether::{TYPE_ARP, TYPE_IP4};
use crate::wire::{ETHER_BYTES, EtherMut, Ip4};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec {
        name: "ARPQuerier",
        ports: "2/1-3",
        processing: "h/h",
        flow: "xy/x",
        output_names: &["out", "queries", "failed"],
    },
    summary: "finds the link addresses of next hops by ARP",
    configure: |setup| {
        let own = setup.args.positional::<Around<u32>>("IP");
        let mac = setup.args.positional::<Mac>("ETH");
        let capacity = setup.args.keyword("CAPACITY");
        let entries = setup.args.keyword("ENTRY_CAPACITY");
        let timeout = setup.args.keyword("TIMEOUT");
        let poll = setup.args.keyword("POLL_TIMEOUT");
        let broadcast = setup.args.keyword::<Ipv4Addr>("BROADCAST");
        setup.args.finish()?;
        let (own, mac, capacity) = (own?, mac?, capacity?.unwrap_or(PACKETS));
        let ns = |time: Option<Duration>, usual: u64| match time {
            // Click's: never.
            Some(Duration::ZERO) => FOREVER,
            Some(time) => u64::try_from(time.as_nanos()).unwrap_or(FOREVER),
            None => usual,
        };
        // Of two addresses or one there is no broadcast (RFC 3021).
        let last = Some(own.prefix.last()).filter(|_| own.prefix.len() < 31);
        let settings = Settings {
            addr: Setting::new(Ipv4Addr::from_bits(own.addr)),
            mac,
            subnet: Some(own.prefix).filter(|prefix| prefix.len() < 32),
            broadcast: broadcast?.map(Ipv4Addr::to_bits).or(last),
            life_ns: ns(timeout?, LIFE_NS),
            poll_ns: ns(poll?, POLL_NS),
            queries: u16::from(setup.outputs > 1),
            failed: setup.exit(FAILED, DropReason::HostUnreachable),
            gateways: setup.gateways.clone(),
        };
        // What was learned stays known to a configuration that follows.
        let kept = setup.keep::<Shared>();
        let entries = entries?.unwrap_or(ENTRIES);
        let (shown, addr) = (kept.clone(), settings.addr.clone());
        let made = Made::new(move || {
            // Only now the configuration is taken.
            kept.1.set_capacity(entries);
            ArpQuerier {
                settings: settings.clone(),
                view: View::new(kept.1.clone()),
                waiting: Waiting::new(capacity),
                counts: kept.0.add(),
                learned: Vec::new(),
            }
        });
        let made = made.polled().holds(capacity.into());
        Ok(addr.handled(handled(made, &shown), "ipaddr"))
    },
};

/// Packets that a worker keeps.
const PACKETS: u16 = 1024;
/// Addresses that are kept.
const ENTRIES: usize = 16 * 1024;
/// How long an address is kept that nobody confirms: Click's.
const LIFE_NS: u64 = 300_000_000_000;
/// After this long a station is asked whether it is still there: Click's.
const POLL_NS: u64 = 60_000_000_000;
/// How long packets are not kept for a station that did not answer.
const HOLD_DOWN_NS: u64 = 5_000_000_000;
/// Keys looked at in a round.
const TURNS: usize = 16;

/// Where ARP packets come in.
const REPLIES: u16 = 1;
const FAILED: u16 = 2;

#[derive(Default)]
struct Counts {
    queries: Count,
    responses: Count,
    drops: Count,
    /// Packets that wait.
    length: Count,
}

/// What workers and handlers share.
type Shared = (PerWorker<Counts>, Arc<Neighbors>);

fn handled(made: Made, shared: &Arc<Shared>) -> Made {
    let read = |name, value: fn(&Counts) -> u64| {
        let shared = shared.clone();
        Handler::read(name, move || shared.0.sum(value).to_string())
    };
    let stats = shared.clone();
    let [shown, count, insert, delete, clear] = [(); 5].map(|()| shared.1.clone());
    made.handler(read("queries", |counts| counts.queries.read()))
        .handler(read("responses", |counts| counts.responses.read()))
        .handler(read("drops", |counts| counts.drops.read()))
        .handler(read("length", |counts| counts.length.read()))
        .handler(Handler::read("stats", move || {
            let drops = stats.0.sum(|counts| counts.drops.read());
            let queries = stats.0.sum(|counts| counts.queries.read());
            format!("{drops} packets killed\n{queries} ARP queries sent\n")
        }))
        .handler(Handler::read("count", move || count.all().len().to_string()))
        .handler(Handler::read("table", move || {
            let line = |(addr, entry): (u32, Neighbor)| {
                format!("{} {}\n", Ipv4Addr::from_bits(addr), entry.mac)
            };
            shown.all().into_iter().map(line).collect()
        }))
        .handler(Handler::write("insert", move |text| {
            let (addr, mac) = text.trim().split_once(' ').unwrap_or((text, ""));
            let entry = Neighbor { mac: value(mac)?, heard_ns: FOREVER };
            let known = insert.learn(value::<Ipv4Addr>(addr)?.to_bits(), entry, 0, FOREVER);
            known.then_some(()).ok_or_else(|| "no room for another entry".into())
        }))
        .handler(Handler::write("delete", move |text| {
            let addr = value::<Ipv4Addr>(text)?;
            let known = delete.forget(addr.to_bits());
            known.then_some(()).ok_or_else(|| format!("no entry for {addr}"))
        }))
        .handler(Handler::write("clear", move |_| {
            clear.clear();
            Ok(())
        }))
}

#[derive(Clone)]
struct Settings {
    addr: Setting<Ipv4Addr>,
    mac: Mac,
    /// Where all neighbors are, if that is known.
    subnet: Option<Prefix<u32>>,
    broadcast: Option<u32>,
    life_ns: u64,
    poll_ns: u64,
    /// The output of requests.
    queries: u16,
    failed: Exit,
    gateways: Arc<Gateways>,
}

struct ArpQuerier {
    settings: Settings,
    view: View,
    waiting: Waiting<u32>,
    counts: Arc<Counts>,
    /// What was learned just now, kept for its memory.
    learned: Vec<u32>,
}

/// Where a packet goes.
enum Way {
    To(Mac),
    /// To this neighbor, which is to be asked whether it is still there.
    Confirm(u32, Mac),
    Ask(u32),
    Drop(DropReason),
}

impl ArpQuerier {
    /// Of the packet at an offset of a frame.
    fn way(&self, batch: &Batch, i: usize, now_ns: u64) -> Way {
        let meta = batch.meta()[i];
        let Some(ip) = Ip4::at(batch.bytes(i), meta.network.into()) else {
            return Way::Drop(DropReason::TooShort);
        };
        let addr = match self.settings.gateways.get(meta.hop) {
            None => ip.dst(),
            Some(IpAddr::V4(addr)) => addr.to_bits(),
            // ARP knows nothing of them.
            Some(IpAddr::V6(_)) => return Way::Drop(DropReason::Unresolved),
        };
        if let Some(entry) = self.view.get(addr) {
            let age = entry.age_ns(now_ns);
            if age < self.settings.poll_ns {
                return Way::To(entry.mac);
            }
            if age < self.settings.life_ns {
                return Way::Confirm(addr, entry.mac);
            }
        }
        match addr.to_be_bytes() {
            [0, 0, 0, 0] => Way::Drop(DropReason::MartianDestination),
            [255, 255, 255, 255] => Way::To(Mac([0xff; 6])),
            _ if self.settings.broadcast == Some(addr) => Way::To(Mac([0xff; 6])),
            // RFC 1112, 6.4.
            [224..=239, b, c, d] => Way::To(Mac([1, 0, 0x5e, b & 0x7f, c, d])),
            _ => Way::Ask(addr),
        }
    }

    /// Asks for an address: all stations, or the one that had it.
    fn ask(&self, addr: u32, known: Option<Mac>, cx: &mut Context<'_>) {
        // Without a free frame it is asked again a second later.
        let Some(mut packet) = cx.pool.alloc() else { return };
        if !packet.set_len(ETHER_BYTES + ARP_BYTES) {
            return;
        }
        let ours = End { mac: self.settings.mac, addr: self.settings.addr.get().to_bits() };
        let frame = packet.bytes_mut();
        if let Some(mut ether) = EtherMut::of(frame) {
            ether.set_addrs(known.unwrap_or(Mac([0xff; 6])), ours.mac);
            ether.set_kind(TYPE_ARP);
        }
        let target = End { mac: Mac([0; 6]), addr };
        if write_arp(frame, ETHER_BYTES, REQUEST, ours, target) {
            self.counts.queries.add(1);
            cx.originate(self.settings.queries, packet);
        }
    }

    /// Puts the Ethernet header before a packet that was taken out, and sends it.
    fn send(&self, mut packet: Packet, to: Mac, cx: &mut Context<'_>) {
        let network = packet.meta.network.checked_add(HEADER);
        let Some(network) = network.filter(|_| packet.push_front(HEADER.into())) else {
            cx.drop_packet(packet, DropReason::NoBuffer);
            return;
        };
        packet.meta.network = network;
        write_header(packet.bytes_mut(), to, self.settings.mac);
        cx.emit(0, packet);
    }

    /// Takes over what all workers have learned, and lets go what waited for it; whether anything did.
    fn follow(&mut self, cx: &mut Context<'_>) -> bool {
        let mut learned = std::mem::take(&mut self.learned);
        self.view.follow(&mut |addr| learned.push(addr));
        let mut any = false;
        for addr in learned.drain(..) {
            any |= self.release(addr, cx);
        }
        self.learned = learned;
        any
    }

    /// Sends what waited for an address, if it is known; whether anything did.
    fn release(&mut self, addr: u32, cx: &mut Context<'_>) -> bool {
        let Some(entry) = self.view.get(addr) else { return false };
        let mut packets = Vec::new();
        self.waiting.release(addr, |packet| packets.push(packet));
        let any = !packets.is_empty();
        packets.into_iter().for_each(|packet| self.send(packet, entry.mac, cx));
        any
    }

    /// What becomes of a packet whose next hop has to be asked for.
    fn wait(&mut self, addr: u32, batch: &mut Batch, i: usize, cx: &mut Context<'_>) {
        let now_ns = cx.now_ns;
        let Some((wait, ask)) = self.waiting.wait(addr, now_ns) else {
            self.counts.drops.add(1);
            return batch.discard(i, DropReason::HoldFull);
        };
        let down = wait.failed_ns.is_some_and(|at| now_ns.saturating_sub(at) < HOLD_DOWN_NS);
        if ask {
            self.ask(addr, None, cx);
        }
        if down {
            self.counts.drops.add(1);
            batch.meta_mut()[i].note = Cause::HostUnreachable.note();
            self.settings.failed.take(batch, i);
        } else if self.waiting.has_room(addr) {
            let packet = batch.take(i);
            self.waiting.keep(addr, packet);
        } else {
            self.counts.drops.add(1);
            batch.discard(i, DropReason::HoldFull);
        }
    }

    fn packets(&mut self, batch: &mut Batch, cx: &mut Context<'_>) {
        // What has waited is emitted, behind the batch; so that none overtakes it, all are then.
        let emitting = self.follow(cx);
        for i in 0..batch.len() {
            let to = match self.way(batch, i, cx.now_ns) {
                Way::To(mac) => mac,
                Way::Confirm(addr, mac) => {
                    let ask = self.waiting.wait(addr, cx.now_ns).is_some_and(|(_, ask)| ask);
                    if ask {
                        self.ask(addr, Some(mac), cx);
                    }
                    mac
                }
                Way::Ask(addr) => {
                    self.wait(addr, batch, i, cx);
                    continue;
                }
                Way::Drop(reason) => {
                    self.counts.drops.add(1);
                    batch.discard(i, reason);
                    continue;
                }
            };
            if emitting {
                let packet = batch.take(i);
                self.send(packet, to, cx);
            } else if grow(batch, i, HEADER) {
                write_header(batch.bytes_mut(i), to, self.settings.mac);
            }
        }
    }

    /// What an ARP packet says of its sender, if it can be believed.
    fn hear(&mut self, frame: &[u8], now_ns: u64) {
        let Some(arp) = Arp::at(frame, ETHER_BYTES) else { return };
        let (sender, own) = (arp.sender(), self.settings.addr.get().to_bits());
        let station = sender.mac.0[0] & 1 == 0 && sender.mac != Mac([0; 6]);
        let near = self.settings.subnet.is_none_or(|subnet| subnet.contains(sender.addr));
        if !station || !near || sender.addr == 0 || sender.addr == own {
            return;
        }
        self.counts.responses.add(1);
        let table = self.view.table();
        if arp.target().addr != own && !table.knows(sender.addr) {
            return;
        }
        // An entry by hand stays what it is; and what was heard just now is no news to all workers.
        let settled = |entry: Neighbor| {
            entry.heard_ns == FOREVER || entry.mac == sender.mac && entry.age_ns(now_ns) < ASK_NS
        };
        if self.view.get(sender.addr).is_some_and(settled) {
            return;
        }
        let entry = Neighbor { mac: sender.mac, heard_ns: now_ns };
        if !table.learn(sender.addr, entry, now_ns, self.settings.life_ns) {
            self.counts.drops.add(1);
        }
    }

    fn count_length(&self) {
        self.counts.length.set(self.waiting.held().total() as u64);
    }
}

fn write_header(frame: &mut [u8], dst: Mac, src: Mac) {
    if let Some(mut ether) = EtherMut::of(frame) {
        ether.set_addrs(dst, src);
        ether.set_kind(TYPE_IP4);
    }
}

impl Element for ArpQuerier {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if input == REPLIES {
            self.follow(cx);
            for i in 0..batch.len() {
                self.hear(batch.bytes(i), cx.now_ns);
                batch.discard(i, DropReason::Consumed);
            }
            self.follow(cx);
        } else {
            self.packets(batch, cx);
        }
        self.count_length();
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.follow(cx);
        let now_ns = cx.now_ns;
        for _ in 0..self.waiting.keys().min(TURNS) {
            let Some((addr, wait)) = self.waiting.turn() else { break };
            if wait.is_empty() {
                let after = if wait.failed_ns.is_some() { HOLD_DOWN_NS } else { ASK_NS };
                let since = wait.failed_ns.unwrap_or(wait.asked_ns);
                if now_ns.saturating_sub(since) >= after {
                    self.waiting.forget();
                }
            } else if now_ns.saturating_sub(wait.since_ns) >= PATIENCE_NS {
                wait.failed_ns = Some(now_ns);
                let (counts, failed) = (&self.counts, self.settings.failed);
                self.waiting.release(addr, |mut packet| {
                    counts.drops.add(1);
                    packet.meta.note = Cause::HostUnreachable.note();
                    failed.emit(packet, cx);
                });
            } else if wait.asks(now_ns) {
                self.ask(addr, None, cx);
            }
        }
        self.count_length();
    }

    fn held(&self) -> Held {
        self.waiting.held()
    }

    fn hand_over(&mut self) -> Option<Box<dyn Any + Send>> {
        let waiting = std::mem::replace(&mut self.waiting, Waiting::new(0));
        self.count_length();
        Some(Box::new(waiting))
    }

    fn take_over(&mut self, state: Box<dyn Any + Send>) {
        if let Ok(waiting) = state.downcast::<Waiting<u32>>() {
            self.waiting = *waiting;
            self.count_length();
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.waiting.stop(|packet| cx.drop_packet(packet, DropReason::Shutdown));
        self.count_length();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::arp_responder::arp_frame;
    use crate::testing::{Bench, Rig, World, batch, frame_v4, refused};
    use crate::wire::arp::REPLY;

    const SECOND: u64 = 1_000_000_000;
    const OURS: End = End { mac: Mac([2, 0, 0, 0, 0, 1]), addr: 0x0a00_0001 };

    fn peer(n: u8) -> End {
        End { mac: Mac([2, 0, 0, 0, 9, n]), addr: 0x0a00_0000 | u32::from(n) }
    }

    /// A packet to 10.0.0.`to`, which ends in `n`.
    fn packet(to: u8, n: u8) -> Vec<u8> {
        frame_v4("192.0.2.1", &format!("10.0.0.{to}"), 64, 17, &[n])[14..].to_vec()
    }

    fn rig(config: &str, more: &str) -> Rig {
        let text = format!(
            "FromDevice(ip) -> q :: ARPQuerier(10.0.0.1/24, 02:00:00:00:00:01{config});
             FromDevice(arp) -> [1] q; q -> ToDevice(out){more}"
        );
        Rig::new(&World::new(), &text)
    }

    fn request(addr: u32) -> Vec<u8> {
        let mut frame = arp_frame(REQUEST, OURS, End { mac: Mac([0; 6]), addr });
        frame.truncate(42);
        frame
    }

    /// Where frames went, and their last bytes.
    fn seen(sent: &[(String, Vec<u8>)]) -> String {
        sent.iter().map(|(device, frame)| format!("{device}{} ", frame.last().unwrap())).collect()
    }

    #[test]
    fn packets_wait_for_the_answer_in_order() {
        let mut rig = rig("", "; q [1] -> ToDevice(query)");
        let sent = rig.receive("ip", &[&packet(7, 1), &packet(7, 2), &packet(8, 3)]);
        let ask = |n| ("query".to_owned(), request(peer(n).addr));
        assert_eq!(sent, [ask(7), ask(8)]);
        assert_eq!((rig.read("q.length"), rig.read("q.queries")), ("3".into(), "2".into()));
        let sent = rig.receive("arp", &[&arp_frame(REPLY, peer(7), OURS)]);
        assert_eq!(seen(&sent), "out1 out2 ");
        let header = [&peer(7).mac.0[..], &OURS.mac.0, &[8, 0]].concat();
        assert_eq!((&sent[0].1[..14], &sent[0].1[14..]), (&header[..], &packet(7, 1)[..]));
        // Known by now.
        assert_eq!(
            seen(&rig.receive("ip", &[&packet(7, 4), &packet(8, 5), &packet(7, 6)])),
            "out4 out6 "
        );
        assert_eq!(rig.read("q.table"), "10.0.0.7 02:00:00:00:09:07\n");
        assert_eq!((rig.read("q.count"), rig.read("q.responses")), ("1".into(), "1".into()));
        assert_eq!(rig.dropped(DropReason::Consumed), 1);
        rig.graph.stop(&mut rig.bench.round());
        assert_eq!(rig.dropped(DropReason::Shutdown), 2);
    }

    #[test]
    fn silence_ends_the_wait_and_is_remembered() {
        let mut rig = rig("", "; q [1] -> ToDevice(query); q [2] -> ToDevice(failed)");
        rig.receive("ip", &[&packet(7, 1)]);
        for tenth in 1..30 {
            rig.bench.now_ns = SECOND + tenth * SECOND / 10;
            let asks = u64::from(tenth % 10 == 0);
            assert_eq!(rig.poll().len() as u64, asks, "{tenth}");
        }
        rig.bench.now_ns = 4 * SECOND;
        assert_eq!(seen(&rig.poll()), "failed1 ");
        // For some time others do not wait, but it is asked for.
        let sent = rig.receive("ip", &[&packet(7, 2)]);
        assert_eq!(sent.iter().map(|s| s.0.as_str()).collect::<Vec<_>>(), ["failed", "query"]);
        assert_eq!(seen(&rig.receive("ip", &[&packet(7, 3)])), "failed3 ");
        // Until it answers, or long after.
        rig.receive("arp", &[&arp_frame(REPLY, peer(7), OURS)]);
        assert_eq!(seen(&rig.receive("ip", &[&packet(7, 4)])), "out4 ");
        assert_eq!((rig.read("q.drops"), rig.read("q.queries")), ("3".into(), "4".into()));
        rig.bench.now_ns = 10 * SECOND;
        rig.poll();
        rig.write("q.clear", "");
        assert_eq!(rig.receive("ip", &[&packet(7, 5)])[0].0, "query");
        assert_eq!(rig.read("q.length"), "1");
    }

    #[test]
    fn an_address_is_confirmed_and_forgotten() {
        let mut rig = rig(", TIMEOUT 10s, POLL_TIMEOUT 4s", "; q [1] -> ToDevice(query)");
        rig.receive("ip", &[&packet(7, 1)]);
        rig.receive("arp", &[&arp_frame(REPLY, peer(7), OURS)]);
        rig.poll();
        rig.bench.now_ns = 6 * SECOND;
        rig.poll();
        let sent = rig.receive("ip", &[&packet(7, 2), &packet(7, 3)]);
        assert_eq!(seen(&sent[..2]), "out2 out3 ");
        let mut want = request(peer(7).addr);
        want[..6].copy_from_slice(&peer(7).mac.0);
        assert_eq!(sent[2..], [("query".to_owned(), want)], "asked once, and alone");
        rig.bench.now_ns = 11 * SECOND;
        rig.poll();
        let sent = rig.receive("ip", &[&packet(7, 4)]);
        assert_eq!(sent, [("query".to_owned(), request(peer(7).addr))]);
        // Whoever asks for us is heard as well, with another link address.
        let moved = End { mac: Mac([2, 0, 0, 0, 9, 99]), ..peer(7) };
        let sent = rig.receive("arp", &[&arp_frame(REQUEST, moved, OURS)]);
        assert_eq!((seen(&sent).as_str(), &sent[0].1[..6]), ("out4 ", &moved.mac.0[..]));
    }

    #[test]
    fn not_everything_is_believed() {
        let mut rig = rig("", "");
        let other = End { mac: Mac([2; 6]), addr: 0x0a00_00aa };
        let from = |mac: [u8; 6], addr| End { mac: Mac(mac), addr };
        let good = arp_frame(REPLY, peer(7), OURS);
        let frames = [
            arp_frame(REPLY, peer(7), other),
            arp_frame(REPLY, from([3, 0, 0, 0, 0, 7], peer(7).addr), OURS),
            arp_frame(REPLY, from([0; 6], peer(7).addr), OURS),
            arp_frame(REPLY, from([2; 6], 0), OURS),
            arp_frame(REPLY, from([2; 6], OURS.addr), OURS),
            arp_frame(REPLY, from([2; 6], 0x0a00_0101), OURS),
            good[..41].to_vec(),
            vec![],
        ];
        for frame in &frames {
            rig.receive("arp", &[frame]);
            assert_eq!(rig.read("q.count"), "0", "{frame:02x?}");
        }
        // What is said to others changes what is known, and no more.
        rig.receive("arp", &[&good]);
        rig.receive("arp", &[&arp_frame(REQUEST, from([6; 6], peer(7).addr), other)]);
        assert_eq!(rig.read("q.table"), "10.0.0.7 06:06:06:06:06:06\n");
        // But not what somebody wrote by hand.
        rig.write("q.insert", "10.0.0.7 2:0:0:0:0:77");
        rig.receive("arp", &[&good]);
        assert_eq!(rig.read("q.table"), "10.0.0.7 02:00:00:00:00:77\n");
        rig.write("q.delete", "10.0.0.7");
        assert_eq!(rig.read("q.count"), "0");
        for (handler, text) in
            [("q.insert", "10.0.0.7"), ("q.delete", "10.0.0.7"), ("q.ipaddr", "x")]
        {
            assert!(rig.handlers.write(handler, text).is_err(), "{handler}");
        }
    }

    #[test]
    fn some_addresses_need_no_question() {
        let mut rig = rig(", BROADCAST 10.0.0.77", "");
        let mac = |rig: &mut Rig, dst: &str| {
            let frame = frame_v4("192.0.2.1", dst, 64, 17, &[])[14..].to_vec();
            let sent = rig.receive("ip", &[&frame]);
            sent.first().map(|s| s.1[..6].to_vec())
        };
        assert_eq!(mac(&mut rig, "255.255.255.255"), Some(vec![0xff; 6]));
        assert_eq!(mac(&mut rig, "10.0.0.77"), Some(vec![0xff; 6]));
        assert_eq!(mac(&mut rig, "224.1.2.3"), Some(vec![1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(mac(&mut rig, "239.129.2.3"), Some(vec![1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(mac(&mut rig, "0.0.0.0"), None);
        assert_eq!(rig.dropped(DropReason::MartianDestination), 1);
        assert!(rig.receive("ip", &[&[0x45; 19]]).is_empty());
        assert_eq!(rig.dropped(DropReason::TooShort), 1);
        assert_eq!(rig.read("q.queries"), "0");
        let mut rig = self::rig("", "");
        assert_eq!(mac(&mut rig, "10.0.0.255"), Some(vec![0xff; 6]), "the last of the subnet");
        assert!(refused(&CLASS, "10.0.0.1/33, x, CAPACITY -1").contains("`x` is no Ethernet"));
    }

    #[test]
    fn what_is_known_and_what_waits_outlives_a_configuration() {
        let mut rig = rig("", "");
        rig.receive("ip", &[&packet(7, 1)]);
        rig.receive("arp", &[&arp_frame(REPLY, peer(8), OURS)]);
        let text = "FromDevice(ip) -> q :: ARPQuerier(10.0.0.1/24, 02:00:00:00:00:01);
             FromDevice(arp) -> [1] q; q -> Counter -> ToDevice(out)";
        rig.replace(text).unwrap();
        assert_eq!((rig.read("q.length"), rig.read("q.queries")), ("1".into(), "1".into()));
        assert_eq!(seen(&rig.receive("ip", &[&packet(8, 2)])), "out2 ");
        assert_eq!(seen(&rig.receive("arp", &[&arp_frame(REPLY, peer(7), OURS)])), "out1 ");
        assert_eq!(rig.read("q.length"), "0");
    }

    #[test]
    fn room_is_bounded() {
        let mut rig = rig(", CAPACITY 3, ENTRY_CAPACITY 1", "; q [1] -> Discard");
        let packets: Vec<_> = (0..5).map(|n| packet(7, n)).collect();
        let frames: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        rig.receive("ip", &frames);
        assert_eq!((rig.read("q.length"), rig.dropped(DropReason::HoldFull)), ("3".into(), 2));
        rig.receive("arp", &[&arp_frame(REPLY, peer(8), OURS), &arp_frame(REPLY, peer(7), OURS)]);
        assert_eq!(rig.read("q.table"), "10.0.0.8 02:00:00:00:09:08\n");
        assert!(rig.handlers.write("q.insert", "10.0.0.9 2:0:0:0:0:9").is_err());
        assert_eq!(rig.read("q.stats"), "3 packets killed\n1 ARP queries sent\n");
    }

    /// An instance of a worker.
    fn instance(table: &Arc<Neighbors>, gateways: &Arc<Gateways>) -> ArpQuerier {
        let failed = Exit::by(FAILED, DropReason::HostUnreachable);
        ArpQuerier {
            settings: Settings {
                addr: Setting::new(Ipv4Addr::from_bits(OURS.addr)),
                mac: OURS.mac,
                subnet: None,
                broadcast: None,
                life_ns: LIFE_NS,
                poll_ns: POLL_NS,
                queries: 1,
                failed,
                gateways: gateways.clone(),
            },
            view: View::new(table.clone()),
            waiting: Waiting::new(16),
            counts: Arc::default(),
            learned: Vec::new(),
        }
    }

    #[test]
    fn the_gateway_is_asked_for_and_workers_learn_from_each_other() {
        let (table, gateways) = (Arc::new(Neighbors::default()), Arc::new(Gateways::default()));
        table.set_capacity(9);
        let [mut one, mut other] = [(); 2].map(|()| instance(&table, &gateways));
        let mut bench = Bench::new(&World::new());
        let frame = frame_v4("192.0.2.1", "198.51.100.9", 64, 17, &[5])[14..].to_vec();
        let mut through = |querier: &mut ArpQuerier, gateway: &str, n: u8| {
            let mut frame = frame.clone();
            *frame.last_mut().unwrap() = n;
            let mut batch = batch(&bench.pool, 0, [&frame[..]]);
            batch.meta_mut()[0].hop = gateways.number(gateway.parse().unwrap()).unwrap();
            querier.process(0, &mut batch, &mut bench.context());
            let emitted = bench.emitted.drain(..);
            let emitted: Vec<_> =
                emitted.map(|(out, p)| (out, *p.bytes().last().unwrap())).collect();
            (batch.decision(0), emitted)
        };
        use crate::buf::Decision::{Drop, Output, Taken};
        assert_eq!(through(&mut one, "10.0.0.7", 1), (Taken, vec![(1, 7)]));
        assert_eq!(through(&mut other, "2001:db8::1", 1).0, Drop(DropReason::Unresolved));
        let entry = Neighbor { mac: peer(7).mac, heard_ns: SECOND };
        assert!(table.learn(peer(7).addr, entry, SECOND, LIFE_NS));
        assert_eq!(through(&mut other, "10.0.0.7", 2), (Output(0), vec![]));
        // What waited comes first.
        assert_eq!(through(&mut one, "10.0.0.7", 3), (Taken, vec![(0, 1), (0, 3)]));
        assert_eq!(one.held().total(), 0);
    }
}
