//! `TCPFragmenter(MTU)` cuts TCP segments into ones that fit an MTU.
//!
//! Source: Click's `TCPFragmenter`; RFC 9293, 3.4. Each segment has the headers of the first with a sequence number and
//! checksums of its own; `FIN` is that of the last. An MTU counts the IPv4 and TCP headers. `MTU_ANNO` names an
//! annotation of two bytes that holds an MTU; the smaller of the two applies. Packets that are not TCP, fragments and packets
//! that fit pass. Handlers: `count` packets came, `fragmented_count` were cut, into `fragments`.

use std::sync::Arc;

use super::annotations::Annotations;
use super::checksums::fill_checksums;
use super::seen::{Seen, long};
use crate::element::support::byte_anno::WordAnno;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::Ip4;
use crate::frame::wire::protocol::TCP;
use crate::frame::wire::tcp::FIN;
use crate::frame::{Batch, DropReason, Packet};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("TCPFragmenter", "1/1", "h/h", "x/x"),
    summary: "cuts TCP segments into ones that fit an MTU",
    configure: |setup| {
        let mtu = setup.args.optional::<usize>("MTU");
        let noted = setup.args.optional_arg("MTU_ANNO")?;
        setup.args.finish()?;
        let mtu = mtu?.filter(|mtu| *mtu > 0);
        if mtu.is_none() && noted.is_none() {
            return Err(setup.args.refuse_all("At least one of MTU and MTU_ANNO must be set"));
        }
        let mtu = mtu.unwrap_or(usize::MAX);
        let noted = noted.map(|arg| WordAnno::read(setup, &arg, "MTU_ANNO")).transpose()?;
        let counts = setup.keep::<PerWorker<Counts>>();
        let read = |name, count: fn(&Counts) -> u64| {
            let counts = counts.clone();
            Handler::read(name, move || counts.sum(count).to_string())
        };
        let handlers = [
            read("count", |counts| counts.came.read()),
            read("fragmented_count", |counts| counts.cut.read()),
            read("fragments", |counts| counts.made.read()),
        ];
        let made = Made::new(move |instance| Fragmenter {
            mtu,
            noted,
            segments: Vec::new(),
            counts: counts.add(instance),
        });
        Ok(handlers.into_iter().fold(made, Made::handler))
    },
};

#[derive(Default)]
struct Counts {
    came: Count,
    cut: Count,
    made: Count,
}

struct Fragmenter {
    mtu: usize,
    /// Annotation with another MTU.
    noted: Option<WordAnno>,
    /// Segments of the packet at hand.
    segments: Vec<Packet>,
    counts: Arc<Counts>,
}

/// Headers of a segment: their bytes, and what is behind them.
struct Parts {
    ip: usize,
    headers: usize,
    end: usize,
}

/// Those of packet `i`; `None` where it is not a whole TCP segment.
fn parts(batch: &Batch, i: usize) -> Option<Parts> {
    let network = usize::from(batch.meta()[i].network);
    let seen = Seen::bare(batch.bytes(i), network);
    let tcp = seen.of(TCP).filter(|tcp| tcp.len() >= 20)?;
    let header = Ip4::at(batch.bytes(i), network).filter(|header| !header.is_fragment())?;
    let ip = header.header_len();
    let tcp_header = usize::from(tcp[12] >> 4) * 4;
    let headers = network + ip + tcp_header;
    let end = network + seen.ip()?.len();
    (ip >= 20 && tcp_header >= 20 && headers <= end).then_some(Parts { ip, headers, end })
}

impl Fragmenter {
    fn mtu(&self, batch: &Batch, i: usize) -> usize {
        let noted = self.noted.map(|noted| usize::from(noted.get(batch, i)));
        noted.filter(|mtu| *mtu > 0).map_or(self.mtu, |mtu| mtu.min(self.mtu))
    }

    /// Makes the segments that packet `i` is cut into; none where it passes.
    fn cut(&mut self, batch: &mut Batch, i: usize) -> Result<(), DropReason> {
        let network = usize::from(batch.meta()[i].network);
        let Some(Parts { ip, headers, end }) = parts(batch, i) else { return Ok(()) };
        let mtu = self.mtu(batch, i);
        let room = mtu.saturating_sub(headers - network);
        if end - network <= mtu || room == 0 {
            return Ok(());
        }
        let seq = long(batch.bytes(i), network + ip + 4).unwrap_or(0);
        let flags = batch.bytes(i)[network + ip + 13];
        for at in (headers..end).step_by(room) {
            let mut packet = batch.copy(i).ok_or(DropReason::NoBuffer)?;
            let length = room.min(end - at);
            let bytes = packet.bytes_mut();
            bytes.copy_within(at..at + length, headers);
            let total = u16::try_from(headers - network + length).unwrap_or(u16::MAX);
            let header = &mut bytes[network..];
            header[2..4].copy_from_slice(&total.to_be_bytes());
            let offset = u32::try_from(at - headers).unwrap_or(0);
            header[ip + 4..ip + 8].copy_from_slice(&seq.wrapping_add(offset).to_be_bytes());
            header[ip + 13] = if at + length < end { flags & !FIN } else { flags };
            fill_checksums(&mut header[..usize::from(total)]);
            let fits = packet.set_len(headers + length);
            debug_assert!(fits, "it is shorter than what it was");
            Annotations::of(batch, i).set_packet(&mut packet);
            self.segments.push(packet);
        }
        Ok(())
    }
}

impl Element for Fragmenter {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        // What is emitted follows what stays in the batch: from the first cut on all are.
        // Without buffers for all segments of a packet, none of them leaves.
        let mut any = false;
        for i in 0..batch.len() {
            self.counts.came.add(1);
            if let Err(reason) = self.cut(batch, i) {
                self.segments.clear();
                batch.discard(i, reason);
            } else if !self.segments.is_empty() {
                self.counts.cut.add(1);
                self.counts.made.add(self.segments.len() as u64);
                batch.discard(i, DropReason::Consumed);
                self.segments.drain(..).for_each(|segment| cx.originate(0, segment));
                any = true;
            } else if any {
                let packet = batch.take(i);
                cx.emit(0, packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CLASS;
    use crate::testing::{Rig, World, frame_v4, refused};

    #[test]
    fn segments_fit() {
        let mut tcp = vec![0, 80, 0, 90, 0, 0, 0, 5, 0, 0, 0, 0, 0x50, 0x19, 0, 9, 0, 0, 0, 0];
        tcp.extend(0..25);
        let text = "FromDevice(a) -> MarkIPHeader(14) -> t :: TCPFragmenter(50) -> Strip(14) -> c :: CheckIPHeader(CHECKSUM true)
            -> CheckTCPHeader -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        let long = frame_v4("10.0.0.1", "10.0.0.2", 9, 6, &tcp);
        let short = frame_v4("10.0.0.1", "10.0.0.2", 9, 6, &tcp[..30]);
        let udp = frame_v4("10.0.0.1", "10.0.0.2", 9, 17, &[0; 60]);
        let sent = rig.receive("a", &[&long]);
        let seen: Vec<_> =
            sent.iter().map(|(_, ip)| (ip.len(), ip[27], ip[33], ip[40..].to_vec())).collect();
        let bytes = |from: u8, to: u8| (from..to).collect::<Vec<_>>();
        assert_eq!(
            seen,
            [
                (50, 5, 0x18, bytes(0, 10)),
                (50, 15, 0x18, bytes(10, 20)),
                (45, 25, 0x19, bytes(20, 25))
            ]
        );
        let both = ["t.count", "t.fragmented_count", "t.fragments"].map(|name| rig.read(name));
        assert_eq!(both, ["1", "1", "3"]);
        let plain = "FromDevice(a) -> MarkIPHeader(14) -> SetAnnoByte(5, 50) -> TCPFragmenter(MTU_ANNO 4) -> ToDevice(x)";
        let mut plain = Rig::new(&World::new(), plain);
        let sent: Vec<_> =
            plain.receive("a", &[&udp, &long, &short]).into_iter().map(|x| x.1.len()).collect();
        assert_eq!(sent, [94, 64, 64, 59, 64]);
        // A first fragment.
        let mut first = long.clone();
        first[20] = 0x20;
        assert_eq!(plain.receive("a", &[&first])[0].1.len(), long.len());
        let words = "At least one of MTU and MTU_ANNO must be set";
        assert!(refused(&CLASS, "").contains(words) && refused(&CLASS, "0").contains(words));
    }

    #[test]
    fn all_segments_leave_or_none() {
        let mut tcp = vec![0, 80, 0, 90, 0, 0, 0, 5, 0, 0, 0, 0, 0x50, 0x19, 0, 9, 0, 0, 0, 0];
        tcp.resize(tcp.len() + 1500, 7);
        let long = frame_v4("10.0.0.1", "10.0.0.2", 9, 6, &tcp);
        let text = "FromDevice(a) -> MarkIPHeader(14) -> t :: TCPFragmenter(41) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        // Frames for the segments of one packet, and not of another one at the same time.
        assert!((1502..3000).contains(&rig.bench.pool.frames()));
        assert_eq!(rig.receive("a", &[&long, &long]).len(), 1500);
        let counts = ["t.count", "t.fragmented_count", "t.fragments"].map(|name| rig.read(name));
        assert_eq!(counts, ["2", "1", "1500"]);
    }
}
