//! Cuts IPv4 packets that are larger than the next hop's MTU into fragments (RFC 791, 3.2).
//!
//! Every packet comes with the MTU as its note and leaves by output 0, with the next hop that it came
//! with, as fragments in order. The first lies in the received frame; the later ones are packets
//! of our own making. All of a datagram's fragments leave, or none: a part of them is of no use to
//! anybody. Whether a packet may be cut (don't-fragment) is the sender's business.
//!
//! `IPFragmenter(MTU)` is the same for a graph with ports of its own, after Click's element of that name. It looks at
//! don't-fragment itself, unless `HONOR_DF` is false: such a packet goes to its second output, with [`Cause::TooBig`] as its
//! note, as does one whose header leaves no room for payload. Standard error has a line about the first five, or about each
//! with `VERBOSE`.
//!
//! Cost: a copy of all payload but the first fragment's, a header checksum a fragment; 140 ns for
//! 1,428 bytes in two.

use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::element::support::complaint::Complaint;
use crate::element::support::setting::{Setting, value};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::checksum::checksum;
use crate::frame::wire::ip4::{DONT_FRAGMENT, FRAGMENT_OFFSET, MORE_FRAGMENTS};
use crate::frame::wire::{IP4_BYTES, Ip4, Ip4Mut};
use crate::frame::{Batch, Cause, DropReason, FLAG_GENERATED, Packet};
use crate::graph::{Context, Element, ElementClass, Exit, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IP4Fragment", "1/1", "h/h", "x/x"),
    summary: "cuts IPv4 packets to the MTU in their note",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| Ip4Fragment::default()))
    },
};

pub(crate) const FRAGMENTER: ElementClass = ElementClass {
    spec: ClassSpec::new("IPFragmenter", "1/1-2", "h/h", "x/x").outputs(&["out", "too_big"]),
    summary: "cuts IPv4 packets to an MTU, unless they forbid it",
    configure: |setup| {
        let mtu = setup.args.positional::<u16>("MTU");
        let honor_df = setup.args.optional("HONOR_DF");
        let verbose = setup.args.optional("VERBOSE");
        // Frames of a pool have the same room before them, whatever is asked for.
        let headroom = setup.args.keyword::<u32>("HEADROOM");
        setup.args.finish()?;
        headroom?;
        let mtu = mtu?;
        if mtu < LEAST_MTU {
            return Err(setup.args.refuse_all(TOO_SMALL));
        }
        let mtu = Setting::new(mtu);
        let honor_df: bool = honor_df?.unwrap_or(true);
        let complaint = Complaint::about_first(LINES, "IPFragmenter", verbose?.unwrap_or(false));
        let exit = setup.exit(1, DropReason::TooBig);
        let kept = setup.keep::<(PerWorker<Count>, PerWorker<Counts>)>();
        let (each, shown, cut) = (mtu.clone(), kept.clone(), kept.clone());
        let made = Made::new(move |instance| IpFragmenter {
            mtu: each.clone(),
            honor_df,
            exit,
            id: 0,
            drops: kept.0.add(instance),
            complaint: if instance.is_dry_run() { Complaint::none() } else { complaint.clone() },
            cutter: Cutter { later: Vec::new(), counts: kept.1.add(instance) },
        });
        let drops = Handler::read("drops", move || shown.0.sum(Count::read).to_string());
        let fragments = move || cut.1.sum(|counts| counts.fragments.read()).to_string();
        let shown = mtu.clone();
        Ok(made
            .handler(drops)
            .handler(Handler::read("fragments", fragments))
            .handler(Handler::read("mtu", move || shown.get().to_string()))
            .handler(Handler::write("mtu", move |text| {
                let bytes: u16 = value(text)?;
                if bytes < LEAST_MTU {
                    return Err(TOO_SMALL.to_owned());
                }
                mtu.set(bytes);
                Ok(())
            })))
    },
};

/// Least MTU that may be configured: Click's.
const LEAST_MTU: u16 = 8;
const TOO_SMALL: &str = "MTU must be at least 8";

/// Lines about packets that are not cut, unless there is one about each: Click's.
const LINES: u32 = 5;

/// Bytes of the longest IPv4 header.
const MAX_HEADER: usize = 60;

/// End of the list of options: also what it is padded with.
const OPTION_END: u8 = 0;
/// An option of one byte that means nothing.
const OPTION_NOP: u8 = 1;
/// Set in the number of an option that every fragment carries.
const OPTION_COPIED: u8 = 0x80;

/// The element.
#[derive(Default)]
struct Ip4Fragment {
    cutter: Cutter,
}

#[derive(Default)]
struct Counts {
    datagrams: Count,
    fragments: Count,
}

/// What cuts.
#[derive(Default)]
struct Cutter {
    /// The later fragments of the present datagram, kept for its memory.
    later: Vec<Packet>,
    counts: Arc<Counts>,
}

impl Cutter {
    /// Sends `packet` to output 0 in as many fragments as an MTU needs.
    fn send(&mut self, mut packet: Packet, mtu: usize, cx: &mut Context<'_>) {
        match self.cut(&mut packet, mtu, cx) {
            Ok(()) => {
                cx.emit(0, packet);
                for next in self.later.drain(..) {
                    cx.originate(0, next);
                }
            }
            Err(reason) => {
                self.later.clear();
                cx.drop_packet(packet, reason);
            }
        }
    }

    /// Cuts `packet`, leaving the first fragment in it and the rest in `self.later`.
    fn cut(&mut self, packet: &mut Packet, mtu: usize, cx: &Context<'_>) -> Result<(), DropReason> {
        let network = usize::from(packet.meta.network);
        let whole = packet.bytes();
        let ip = Ip4::at(whole, network).ok_or(DropReason::TooShort)?;
        let (len, header_len) = (ip.total_len(), ip.header_len());
        if header_len < IP4_BYTES {
            return Err(DropReason::BadLength);
        }
        let header = whole.get(network..network + header_len).ok_or(DropReason::TooShort)?;
        let payload =
            whole.get(network + header_len..network + len).ok_or(DropReason::BadLength)?;
        if len <= mtu {
            return Ok(());
        }
        let (word, first) = (ip.fragment(), room(mtu, header_len));
        let offset = usize::from(word & FRAGMENT_OFFSET);
        // What would end past 65,535 bytes cannot be said in the offset field, and is no datagram.
        if offset * 8 + payload.len() > usize::from(u16::MAX) {
            return Err(DropReason::BadLength);
        }
        let mut later_header = [0; MAX_HEADER];
        let later_header_len = later_header_of(header, &mut later_header);
        let later_header = &later_header[..later_header_len];
        let step = room(mtu, later_header_len);
        if first == 0 || step == 0 {
            return Err(DropReason::TooBig);
        }

        let mut done = first;
        while done < payload.len() {
            let mut next = cx.pool.alloc().ok_or(DropReason::NoBuffer)?;
            let piece = &payload[done..payload.len().min(done + step)];
            if !next.set_len(network + later_header_len + piece.len()) {
                return Err(DropReason::NoBuffer);
            }
            let bytes = next.bytes_mut();
            bytes[..network].copy_from_slice(&whole[..network]);
            bytes[network..network + later_header_len].copy_from_slice(later_header);
            bytes[network + later_header_len..].copy_from_slice(piece);
            let at = u16::try_from(offset + done / 8).expect("the end fits the field");
            done += piece.len();
            let more = done < payload.len() || word & MORE_FRAGMENTS != 0;
            let flags = word & !FRAGMENT_OFFSET & !MORE_FRAGMENTS;
            let word = flags | if more { MORE_FRAGMENTS } else { 0 } | at;
            finish(bytes, network, word);
            next.meta = packet.meta;
            if next.meta.annotated {
                packet.copy_annotations(&mut next);
            }
            self.later.push(next);
        }
        // Nothing can fail any more.
        if !packet.set_len(network + header_len + first) {
            return Err(DropReason::BadLength);
        }
        finish(packet.bytes_mut(), network, word | MORE_FRAGMENTS);
        self.counts.datagrams.add(1);
        self.counts.fragments.add(1 + self.later.len() as u64);
        Ok(())
    }
}

impl Element for Ip4Fragment {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            // Taken out, so that its fragments follow each other and those of the next follow them.
            let mut packet = batch.take(i);
            let network = usize::from(packet.meta.network);
            let mtu = packet.meta.note.mtu().map_or(0, usize::from);
            // The next hop counts down the TTL of all fragments, since the later ones of a forwarded
            // datagram are flagged as ours as well. One that is ours altogether gets its step back.
            if packet.meta.flags & FLAG_GENERATED != 0
                && let Some(mut ip) = Ip4Mut::at(packet.bytes_mut(), network)
            {
                let ttl = ip.view().ttl();
                ip.set_ttl(ttl.saturating_add(1));
            }
            self.cutter.send(packet, mtu, cx);
        }
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("datagrams", self.cutter.counts.datagrams.read());
        visit("fragments", self.cutter.counts.fragments.read());
    }
}

/// The element of graphs with an MTU of their own.
struct IpFragmenter {
    mtu: Setting<u16>,
    /// What forbids it is not cut.
    honor_df: bool,
    exit: Exit,
    /// Identification of the next packet that is cut although it forbids it: it may have none (RFC 6864).
    id: u16,
    drops: Arc<Count>,
    complaint: Complaint,
    cutter: Cutter,
}

impl IpFragmenter {
    /// Sends packet `i`, which is not to be cut, to the other output.
    fn refuse(&self, batch: &mut Batch, i: usize, mtu: u16) {
        self.drops.add(1);
        self.complaint.about_with(|| {
            let ends = Ip4::at(batch.bytes(i), batch.meta()[i].network.into())
                .map_or([0; 2], |ip| [ip.src(), ip.dst()]);
            let [src, dst] = ends.map(Ipv4Addr::from_bits);
            format!("({mtu}) DF {src} {dst} len={}", batch.frame_len(i))
        });
        batch.meta_mut()[i].note = Cause::TooBig(mtu).note();
        self.exit.take(batch, i);
    }
}

impl Element for IpFragmenter {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let stated = self.mtu.get();
        let mtu = usize::from(stated);
        let ip = |batch: &Batch, i: usize| {
            let ip = Ip4::at(batch.bytes(i), batch.meta()[i].network.into())?;
            let fits = room(mtu, ip.header_len()) > 0;
            Some((ip.total_len(), ip.fragment() & DONT_FRAGMENT != 0, fits))
        };
        let mut cutting = false;
        for i in 0..batch.len() {
            let Some((len, whole, fits)) = ip(batch, i) else {
                batch.discard(i, DropReason::TooShort);
                continue;
            };
            if len > mtu && (whole && self.honor_df || !fits) {
                self.refuse(batch, i, stated);
                continue;
            }
            // Behind the first that is cut all are taken out, so that none overtakes another.
            cutting |= len > mtu;
            if !cutting {
                continue;
            }
            let mut packet = batch.take(i);
            let network = usize::from(packet.meta.network);
            if len > mtu
                && whole
                && let Some(mut ip) = Ip4Mut::at(packet.bytes_mut(), network)
            {
                let word = ip.view().fragment();
                ip.set_fragment(word & !DONT_FRAGMENT);
                ip.set_id(self.id);
                self.id = self.id.wrapping_add(1);
            }
            self.cutter.send(packet, mtu, cx);
        }
    }
}

/// Payload bytes of a fragment that is not the last: a multiple of 8. 0 when there is no room.
fn room(mtu: usize, header_len: usize) -> usize {
    mtu.saturating_sub(header_len) & !7
}

/// The header of the later fragments: without the options that only the first one carries. Returns
/// its length.
fn later_header_of(header: &[u8], out: &mut [u8; MAX_HEADER]) -> usize {
    out[..IP4_BYTES].copy_from_slice(&header[..IP4_BYTES]);
    let mut len = IP4_BYTES;
    let mut rest = &header[IP4_BYTES..];
    while let Some(&kind) = rest.first() {
        if kind == OPTION_NOP {
            rest = &rest[1..];
            continue;
        }
        // Bad lengths were refused when the options were looked at; here they end the list.
        let option = rest.get(1).and_then(|&n| rest.get(..usize::from(n))).filter(|o| o.len() >= 2);
        let Some(option) = option.filter(|_| kind != OPTION_END) else { break };
        if kind & OPTION_COPIED != 0 {
            out[len..len + option.len()].copy_from_slice(option);
            len += option.len();
        }
        rest = &rest[option.len()..];
    }
    let padded = len.next_multiple_of(4);
    out[len..padded].fill(OPTION_END);
    Ip4Mut::at(out, 0)
        .expect("60 bytes hold a header")
        .set_header_len(u8::try_from(padded).expect("no longer than the header that it is from"));
    padded
}

/// Writes what differs between fragments: length, flags and offset, checksum.
fn finish(frame: &mut [u8], network: usize, word: u16) {
    let len = u16::try_from(frame.len() - network).expect("shorter than the packet before");
    let mut ip = Ip4Mut::at(frame, network).expect("a header was there before");
    ip.set_total_len(len);
    ip.set_fragment(word);
    ip.set_checksum(0);
    let header_len = ip.view().header_len();
    let sum = checksum(&frame[network..network + header_len]);
    Ip4Mut::at(frame, network).expect("as above").set_checksum(sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Left, Stage};
    use crate::frame::{Hop, Meta, Note};
    use fingerpost_route::ForwardingAction;
    use proptest::prelude::*;

    fn run(stage: &mut Stage, text: &str, mtu: u16) -> Vec<Left> {
        let frame = stage.frame(text);
        let mut packet = stage.packet("wide", &frame, Note::of_mtu(mtu));
        packet.meta.hop = Hop::of_action(ForwardingAction::Adjacency(5));
        packet.meta.paint = 7;
        packet.meta.vlan = 9;
        stage.run(&mut Ip4Fragment::default(), vec![packet])
    }

    /// Offset in units of 8, total length, more fragments.
    fn shape(left: &[Left]) -> Vec<(u16, usize, bool)> {
        let one = |l: &Left| {
            let ip = Ip4::at(&l.frame, 14).unwrap();
            let header = &l.frame[14..14 + ip.header_len()];
            assert_eq!(checksum(header), 0, "header checksum");
            assert_eq!(l.frame.len(), 14 + ip.total_len());
            (ip.fragment() & FRAGMENT_OFFSET, ip.total_len(), ip.fragment() & MORE_FRAGMENTS != 0)
        };
        left.iter().map(one).collect()
    }

    const HEAD: &str =
        "eth wide.host > wide\nip4 10.4.0.2 > 198.51.100.7 id 99 tos 0x2e ttl 7 proto 17";

    #[test]
    fn known_shape() {
        let mut stage = Stage { pool: crate::frame::Pool::new(16, 8192), ..Stage::default() };
        let left = run(&mut stage, &format!("{HEAD}\nbytes 3980"), 1500);
        assert_eq!(shape(&left), [(0, 1500, true), (185, 1500, true), (370, 1040, false)]);
        // Everything else is kept, the next hop too; the later ones are ours.
        for (i, l) in left.iter().enumerate() {
            let ip = Ip4::at(&l.frame, 14).unwrap();
            assert_eq!((ip.id(), ip.traffic_class(), ip.ttl(), ip.protocol()), (99, 0x2e, 7, 17));
            let flags = if i == 0 { 0 } else { FLAG_GENERATED };
            let meta = Meta {
                port: 3,
                network: 14,
                flags,
                hop: Hop::of_action(ForwardingAction::Adjacency(5)),
                note: Note::of_mtu(1500),
                paint: 7,
                vlan: 9,
                annotated: false,
            };
            assert_eq!((l.output, l.meta), (0, meta));
            assert_eq!(l.frame[..14], left[0].frame[..14]);
        }
        assert_eq!(stage.counters.generated.read(), 2);
        assert_eq!(stage.drops(), []);
        assert_eq!(stage.pool.free(), 16);
    }

    #[test]
    fn a_fragment_is_cut_further() {
        let mut stage = Stage::default();
        let left = run(&mut stage, &format!("{HEAD} off 800 mf\nbytes 1000"), 576);
        assert_eq!(shape(&left), [(100, 572, true), (169, 468, true)]);
        let left = run(&mut stage, &format!("{HEAD} off 800\nbytes 1000"), 576);
        assert_eq!(shape(&left), [(100, 572, true), (169, 468, false)]);
        // The reserved bit is nobody's, and kept.
        let left = run(&mut stage, &format!("{HEAD} evil 1\nbytes 1000"), 576);
        assert!(left.iter().all(|l| l.frame[20] & 0x80 != 0));
    }

    #[test]
    fn later_fragments_carry_copied_options_only() {
        let mut stage = Stage::default();
        // Record route (7) is not copied, router alert (148) is, a NOP between, an odd option (0x99).
        let options = "0707040000000001940400009903aa";
        let text = format!("{HEAD} opts {options}\nbytes 200");
        let left = run(&mut stage, &text, 132);
        // 36 bytes of header leave 96, 28 leave 104.
        assert_eq!(shape(&left), [(0, 132, true), (12, 132, false)]);
        let original = stage.frame(&text);
        assert_eq!(left[0].frame[34..50], original[34..50], "the first keeps all");
        assert_eq!(left[1].frame[14], 0x47);
        assert_eq!(left[1].frame[34..42], [0x94, 4, 0, 0, 0x99, 3, 0xaa, 0]);
        assert_eq!(left[1].frame[42], 96, "the payload goes on");
        // None copied: a plain header.
        let left = run(&mut stage, &format!("{HEAD} opts 07070400000000\nbytes 200"), 128);
        assert_eq!(left.iter().map(|l| l.frame[14]).collect::<Vec<_>>(), [0x47, 0x45]);
        // A list that lies about its lengths ends there.
        for options in ["94ff0000", "94000000", "94010000", "01010194"] {
            let left = run(&mut stage, &format!("{HEAD} opts {options}\nbytes 200"), 128);
            assert_eq!(left[1].frame[14], 0x45, "{options}");
        }
    }

    #[test]
    fn what_cannot_be_cut_is_dropped_whole() {
        let mut stage = Stage::default();
        assert_eq!(run(&mut stage, &format!("{HEAD}\nbytes 100"), 27), []);
        assert_eq!(stage.drops(), [(DropReason::TooBig, 1)]);
        assert_eq!(shape(&run(&mut stage, &format!("{HEAD}\nbytes 17"), 28)).len(), 3);
        // The last offset that can be written is 65,528; and a datagram ends at 65,535.
        assert_eq!(run(&mut stage, &format!("{HEAD} off 65528\nbytes 100"), 68), []);
        assert_eq!(stage.drops(), [(DropReason::BadLength, 1), (DropReason::TooBig, 1)]);
        let left = run(&mut stage, &format!("{HEAD} off 65432\nbytes 100"), 68);
        assert_eq!(shape(&left), [(8179, 68, true), (8185, 68, true), (8191, 24, false)]);
    }

    #[test]
    fn a_header_shorter_than_any_is_dropped() {
        for words in 0..5 {
            let mut stage = Stage::default();
            let mut frame = stage.frame(&format!("{HEAD}\nbytes 1000"));
            frame[14] = 0x40 | words;
            let packet = stage.packet("wide", &frame, Note::of_mtu(576));
            assert_eq!(stage.run(&mut Ip4Fragment::default(), vec![packet]).len(), 0);
            assert_eq!(stage.drops(), [(DropReason::BadLength, 1)], "{words} words");
        }
    }

    #[test]
    fn without_frames_for_all_none_leaves() {
        let mut stage = Stage::default();
        let frame = stage.frame(&format!("{HEAD}\nbytes 1480"));
        let packet = stage.packet("wide", &frame, Note::of_mtu(500));
        let mut all: Vec<_> = std::iter::from_fn(|| stage.pool.alloc()).collect();
        all.truncate(all.len() - 3);
        let mut element = Ip4Fragment::default();
        assert_eq!(stage.run(&mut element, vec![packet]).len(), 4, "3 and the first are enough");
        let packet = stage.packet("wide", &frame, Note::of_mtu(300));
        assert_eq!(stage.run(&mut element, vec![packet]), []);
        assert_eq!(stage.drops(), [(DropReason::NoBuffer, 1)]);
        assert_eq!(stage.counters.generated.read(), 3, "those of the dropped one are not counted");
        drop(all);
        assert_eq!(stage.pool.free(), stage.pool.frames());
    }

    #[test]
    fn datagrams_keep_their_order() {
        let mut stage = Stage::default();
        let packets = [1, 2, 3].map(|id| {
            let head = HEAD.replace("id 99", &format!("id {id}"));
            let frame = stage.frame(&format!("{head}\nbytes 1480"));
            stage.packet("wide", &frame, Note::of_mtu(800))
        });
        let left = stage.run(&mut Ip4Fragment::default(), packets.into());
        let ids: Vec<u16> = left.iter().map(|l| Ip4::at(&l.frame, 14).unwrap().id()).collect();
        assert_eq!(ids, [1, 1, 2, 2, 3, 3]);
        assert_eq!(shape(&left).iter().map(|s| s.0).collect::<Vec<_>>(), [0, 97, 0, 97, 0, 97]);
    }

    proptest! {
        #[test]
        fn put_together_again_it_is_what_it_was(
            payload in prop::collection::vec(any::<u8>(), 1..1400),
            options in prop::collection::vec(any::<u8>(), 0..40),
            offset in 0..4000_u32,
            mf in any::<bool>(),
            mtu in 68..1500_u16,
        ) {
            let mut stage = Stage::default();
            let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
            let options = if options.is_empty() { String::new() } else { format!("opts {}", hex(&options)) };
            let text = format!("{HEAD} off {} {} {options}\nhex {}", offset * 8, if mf { "mf" } else { "" }, hex(&payload));
            let left = run(&mut stage, &text, mtu);
            let mut at = offset;
            let mut together = Vec::new();
            let all = left.len();
            for (i, (l, (offset, len, more))) in left.iter().zip(shape(&left)).enumerate() {
                prop_assert!(len <= usize::from(mtu) && u32::from(offset) == at);
                prop_assert_eq!(more, mf || i + 1 < all);
                let header_len = Ip4::at(&l.frame, 14).unwrap().header_len();
                let piece = &l.frame[14 + header_len..];
                prop_assert!(i + 1 == all || piece.len() % 8 == 0);
                at += u32::try_from(piece.len() / 8).unwrap();
                together.extend_from_slice(piece);
            }
            prop_assert_eq!(together, payload);
            prop_assert_eq!(stage.pool.free(), stage.pool.frames());
        }
    }

    fn fragmenter(stage: &mut Stage, config: &str, packets: &[&str]) -> Vec<Left> {
        let packets = packets.iter().map(|text| {
            let frame = stage.frame(&format!("{HEAD} {text}"));
            stage.packet("wide", &frame, Note::default())
        });
        let packets = packets.collect();
        stage.run(&mut *crate::testing::element(&FRAGMENTER, config), packets)
    }

    #[test]
    fn a_graph_states_the_mtu() {
        let mut stage = Stage::default();
        let texts =
            ["\nbytes 100", "\nbytes 1000", "\nbytes 101", "df\nbytes 1000", "df\nbytes 10"];
        let left = fragmenter(&mut stage, "576", &texts);
        let seen: Vec<_> = left.iter().map(|l| (l.output, l.frame.len() - 34)).collect();
        assert_eq!(seen, [(0, 100), (1, 1000), (0, 552), (0, 448), (0, 101), (0, 10)]);
        let too_big = left[1].clone();
        assert_eq!(too_big.meta.note, Cause::TooBig(576).note());
        assert_eq!(too_big.frame, stage.frame(&format!("{HEAD} df\nbytes 1000")), "as it came");
        let ip = Ip4::at(&left[3].frame, 14).unwrap();
        assert_eq!((ip.ttl(), ip.fragment()), (7, 69), "hops were counted before");
        assert!(stage.drops().is_empty());
    }

    #[test]
    fn the_first_that_are_not_cut_are_reported_or_all_are() {
        use crate::element::support::console;
        let reported = |config: &str| {
            console::collect();
            fragmenter(&mut Stage::default(), config, &["df\nbytes 1000"; 7]);
            console::collected().err
        };
        let line = "IPFragmenter(576) DF 10.4.0.2 198.51.100.7 len=1034\n";
        assert_eq!(reported("576"), line.repeat(5));
        assert_eq!(reported("576, true, true"), line.repeat(7));
        assert_eq!(reported("576, VERBOSE true"), line.repeat(7));
        assert_eq!(reported("576, false"), "");
        // A header that leaves no room.
        let mut stage = Stage::default();
        let options = format!("opts {}\nbytes 100", "01".repeat(40));
        let left = fragmenter(&mut stage, "64", &[&options]);
        assert_eq!((left[0].output, left[0].meta.note), (1, Cause::TooBig(64).note()));
        assert!(crate::testing::refused(&FRAGMENTER, "7").contains("MTU must be at least 8"));
    }

    #[test]
    fn the_mtu_has_a_bound_for_its_handler_as_well() {
        let world = crate::testing::World::new();
        let text = "FromDevice(a) -> f :: IPFragmenter(576) -> ToDevice(b)";
        let rig = crate::testing::Rig::new(&world, text);
        let words = rig.handlers.write("f.mtu", "7").unwrap_err().to_string();
        assert!(words.contains(TOO_SMALL), "{words}");
        assert!(rig.handlers.write("f.mtu", "8").is_ok());
        assert_eq!(rig.handlers.read("f.mtu", "").unwrap(), "8");
    }

    #[test]
    fn dont_fragment_may_be_overruled() {
        let mut stage = Stage::default();
        let texts = ["df\nbytes 1000", "df\nbytes 1000"];
        let left = fragmenter(&mut stage, "HONOR_DF false, MTU 576", &texts);
        let ips: Vec<_> = left.iter().map(|l| Ip4::at(&l.frame, 14).unwrap()).collect();
        assert!(ips.iter().all(|ip| ip.fragment() & DONT_FRAGMENT == 0));
        assert_eq!(ips.iter().map(|ip| ip.id()).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert_eq!(shape(&left).len(), 4);
        // What has no header ends.
        let packet = stage.packet("wide", &[0; 30], Note::default());
        let left = stage.run(&mut *crate::testing::element(&FRAGMENTER, "576"), vec![packet]);
        assert_eq!((left, stage.drops()), (vec![], vec![(DropReason::TooShort, 1)]));
    }
}
