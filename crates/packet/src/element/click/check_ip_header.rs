//! Checks headers before anything else reads them: `CheckIPHeader` and `CheckIP6Header`.
//!
//! Source: Click's elements of these names; RFC 1812, 5.2.2, RFC 8200, 3. What is behind the length that a
//! packet states is cut off. A packet that is right has its network header noted, and no gateway: it goes
//! to its own destination. One that is not goes to output 1, or is dropped.
//!
//! Of sources, those are refused that are listed, as Click does, and none where none is, but for the IPv6 address of ones
//! alone. For IPv4 a good destination excepts a packet: `INTERFACES 10.0.0.1/24` means the broadcast address of that prefix,
//! 0.0.0.0 and 255.255.255.255 on one side, and 10.0.0.1 on the other; Click's old form, a list without its keyword, has the
//! two addresses as well. With `MARTIANS true` `CheckIP6Header` also refuses what nobody may send from or to (RFC 4291, 2.5
//! to 2.8); `::` may query groups for an address (RFC 4862). Destinations are left to routes.
//!
//! `IPInputCombo(COLOR, ...)` takes whole Ethernet frames: it paints them, and cuts the Ethernet header off as well.
//!
//! The first packet that is wrong is reported on standard error, and all of them with `VERBOSE`, of `IPInputCombo` with it
//! alone; `DETAILS` counts them by reason (`drop_details`).
//!
//! Cost: a line of the frame, and a comparison with each listed source.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::front::{HEADER, cut};
use crate::element::router::ether_input::AHEAD;
use crate::element::router::{ip4_input, ip6_input};
use crate::element::support::complaint::Complaint;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::IP6_BYTES;
use crate::frame::wire::ip6::is_multicast;
use crate::frame::{Batch, DropReason, Hop};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::handler::Handler;
use crate::language::{Around, ClassSpec, ConfigError, Value};

pub(crate) const CLASS4: ElementClass = ElementClass {
    spec: spec("CheckIPHeader"),
    summary: "checks IPv4 headers and sources",
    configure: |setup| configure4(setup, None),
};

pub(crate) const COMBO: ElementClass = ElementClass {
    spec: spec("IPInputCombo"),
    summary: "Paint, Strip(14) and CheckIPHeader in one",
    configure: |setup| {
        let color = setup.args.positional("COLOR");
        configure4(setup, Some(color))
    },
};

/// Configures the element; with a color, which may be wrong, where an Ethernet header is cut off.
fn configure4(
    setup: &mut Setup<'_>,
    combo: Option<Result<u8, ConfigError>>,
) -> Result<Made, ConfigError> {
    let interfaces = setup.list::<Around<u32>>("INTERFACES");
    let bad = setup.list::<Ipv4Addr>("BADSRC");
    let good = setup.list::<Ipv4Addr>("GOODDST");
    let checksum = setup.args.keyword("CHECKSUM");
    let old = old_form::<Ipv4Addr>(setup, "BADSRC");
    let (old, given) = old.map_or_else(|wrong| (Err(wrong), None), |(old, at)| (Ok(old), at));
    let common = Common::read(setup, given)?;
    let old = old?;
    let mut check =
        Check4 { checksum: checksum?.unwrap_or(true), bad: Vec::new(), good: Vec::new() };
    let (interfaces, bad) = (interfaces?, bad?);
    if interfaces.is_some() || old.is_some() {
        check.bad = vec![0, u32::MAX];
    }
    check.bad.extend(old.into_iter().chain(bad).flatten().map(Ipv4Addr::to_bits));
    check.good.extend(good?.unwrap_or_default().into_iter().map(Ipv4Addr::to_bits));
    for own in interfaces.unwrap_or_default() {
        check.good.push(own.addr);
        // Of two addresses or one there is no broadcast (RFC 3021).
        if own.prefix.len() < 31 {
            check.bad.push(own.prefix.last());
        }
    }
    check.bad.sort_unstable();
    check.bad.dedup();
    let combo = combo.transpose()?;
    let place = match combo {
        Some(_) => Place { offset: HEADER, combo },
        None => Place { offset: common.offset, combo },
    };
    Ok(made(setup, place, &common, check))
}

pub(crate) const CLASS6: ElementClass = ElementClass {
    spec: spec("CheckIP6Header"),
    summary: "checks IPv6 headers and addresses",
    configure: |setup| {
        let bad = setup.list::<Ipv6Addr>("BADADDRS");
        let martians = setup.args.keyword("MARTIANS");
        let old = old_form::<Ipv6Addr>(setup, "BADADDRS");
        let (old, given) = old.map_or_else(|wrong| (Err(wrong), None), |(old, at)| (Ok(old), at));
        let common = Common::read(setup, given)?;
        let bad = old?.or(bad?).unwrap_or_default().into_iter().map(Ipv6Addr::to_bits);
        let bad = bad.chain([ALL_ONES]).collect();
        let check = Check6 { bad, martians: martians?.unwrap_or(false) };
        Ok(made(setup, Place { offset: common.offset, combo: None }, &common, check))
    },
};

/// IPv6 address that may not send, whatever is listed: a multicast one, of which Click refuses no other.
const ALL_ONES: u128 = u128::MAX;

const fn spec(name: &'static str) -> ClassSpec {
    let output_names = &["out", "bad"];
    ClassSpec::new(name, "1/1-2", "a/ah", "x/x").outputs(output_names)
}

/// Addresses and offset, where they are given.
type Old<A> = (Option<Vec<A>>, Option<u8>);

/// The arguments without keywords: `OFFSET`, or a list of bad addresses and `OFFSET`.
fn old_form<A: Value>(setup: &mut Setup<'_>, name: &str) -> Result<Old<A>, ConfigError> {
    let mut given = setup.args.rest();
    let (first, second, more) = (given.next(), given.next(), given.next());
    let Some(first) = first else { return Ok((None, None)) };
    if let Some(more) = more {
        return Err(setup.args.refuse(&more, "too many arguments: at most 2"));
    }
    if second.is_none()
        && let Ok(offset) = first.value()
    {
        return Ok((None, Some(offset)));
    }
    let listed: Vec<_> = first.words().map(|word| setup.args.read::<A>(&word, name)).collect();
    let offset = second.map(|offset| setup.args.read(&offset, "OFFSET")).transpose();
    Ok((Some(listed.into_iter().collect::<Result<_, _>>()?), offset?))
}

/// Arguments of both classes.
struct Common {
    offset: u8,
    /// All wrong packets are reported.
    verbose: bool,
    /// There is a handler of counts by reason.
    details: bool,
}

impl Common {
    /// Reads it, and that this was all: the offset may have been given without its keyword.
    fn read(setup: &mut Setup<'_>, given: Option<u8>) -> Result<Self, ConfigError> {
        let offset = setup.args.keyword("OFFSET");
        let verbose = setup.args.keyword("VERBOSE");
        let details = setup.args.keyword("DETAILS");
        setup.args.finish()?;
        Ok(Self {
            offset: offset?.or(given).unwrap_or(0),
            verbose: verbose?.unwrap_or(false),
            details: details?.unwrap_or(false),
        })
    }
}

/// What is wrong with a packet, in the order of the checks; in Click's words.
const REASONS: [(DropReason, &str); 7] = [
    (DropReason::TooShort, "tiny packet"),
    (DropReason::BadVersion, "bad IP version"),
    (DropReason::BadHeaderLength, "bad IP header length"),
    (DropReason::BadLength, "bad IP length"),
    (DropReason::BadChecksum, "bad IP checksum"),
    (DropReason::MartianSource, "bad source address"),
    (DropReason::MartianDestination, "bad destination address"),
];

#[derive(Default)]
struct Counts([Count; REASONS.len()]);

/// Where the header begins, and what `IPInputCombo` does besides.
#[derive(Clone, Copy)]
struct Place {
    offset: u8,
    /// A color, and what is before the header is cut off.
    combo: Option<u8>,
}

fn made<C: Check>(setup: &mut Setup<'_>, place: Place, common: &Common, check: C) -> Made {
    let complaint = match place.combo {
        Some(_) if !common.verbose => Complaint::none(),
        _ => Complaint::new(&C::heading(setup.name()), common.verbose),
    };
    let counts = setup.keep::<PerWorker<Counts>>();
    let (all, details) = (counts.clone(), counts.clone());
    let used = setup.outputs > 1;
    let check = Arc::new(check);
    let made = Made::new(move |instance| CheckHeader {
        place,
        check: check.clone(),
        used,
        counts: counts.add(instance),
        complaint: if instance.is_dry_run() { Complaint::none() } else { complaint.clone() },
    })
    .handler(Handler::read("drops", move || {
        all.sum(|counts| counts.0.iter().map(Count::read).sum()).to_string()
    }));
    if !common.details {
        return made;
    }
    made.handler(Handler::read("drop_details", move || {
        let line = |(at, (_, words)): (usize, &(_, &str))| {
            format!("{}\t{words}\n", details.sum(|counts| counts.0[at].read()))
        };
        REASONS[..C::REASONS].iter().enumerate().map(line).collect()
    }))
}

/// Checks of a family.
trait Check: Send + Sync + 'static {
    /// Number of reasons of the family.
    const REASONS: usize;
    /// What stands before the reason in a line about a packet.
    fn heading(element: &str) -> String;
    /// The reason as such a line has it.
    fn shown(reason: &'static str) -> &'static str {
        reason
    }
    /// Where in the frame the packet ends whose header is at an offset, if it is right.
    fn end(&self, frame: &[u8], at: usize) -> Result<usize, DropReason>;
}

struct Check4 {
    checksum: bool,
    bad: Vec<u32>,
    good: Vec<u32>,
}

impl Check for Check4 {
    // All but that of destinations.
    const REASONS: usize = REASONS.len() - 1;

    fn heading(element: &str) -> String {
        format!("{element}: IP header check failed: ")
    }

    #[inline]
    fn end(&self, frame: &[u8], at: usize) -> Result<usize, DropReason> {
        let ip = ip4_input::check_header(frame, at, self.checksum)?;
        if self.bad.contains(&ip.src()) && !self.good.contains(&ip.dst()) {
            return Err(DropReason::MartianSource);
        }
        Ok(at + ip.total_len())
    }
}

struct Check6 {
    bad: Vec<u128>,
    martians: bool,
}

impl Check for Check6 {
    const REASONS: usize = REASONS.len();

    fn heading(_: &str) -> String {
        "IP6 header check failed".to_owned()
    }

    fn shown(_: &'static str) -> &'static str {
        ""
    }

    #[inline]
    fn end(&self, frame: &[u8], at: usize) -> Result<usize, DropReason> {
        let ip = ip6_input::check_header(frame, at)?;
        let (src, dst) = (ip.src(), ip.dst());
        let discovers = src == 0 && is_multicast(dst);
        let martian = self.martians && (ip6_input::is_martian(src) || is_multicast(src));
        if martian && !discovers || self.bad.contains(&src) {
            return Err(DropReason::MartianSource);
        }
        if self.martians && ip6_input::is_martian(dst) {
            return Err(DropReason::MartianDestination);
        }
        Ok(at + IP6_BYTES + ip.payload_len())
    }
}

struct CheckHeader<C> {
    place: Place,
    check: Arc<C>,
    /// There is an output for what is wrong.
    used: bool,
    counts: Arc<Counts>,
    complaint: Complaint,
}

impl<C: Check> Element for CheckHeader<C> {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            batch.prefetch(i + AHEAD);
            match self.check.end(batch.bytes(i), self.place.offset.into()) {
                Ok(end) => {
                    batch.truncate(i, end);
                    let meta = &mut batch.meta_mut()[i];
                    meta.network = self.place.offset;
                    meta.hop = Hop::NONE;
                    if let Some(color) = self.place.combo {
                        meta.paint = color;
                        cut(batch, i, self.place.offset);
                    }
                }
                Err(reason) => {
                    if let Some(at) = REASONS.iter().position(|known| known.0 == reason) {
                        self.counts.0[at].add(1);
                        self.complaint.about(C::shown(REASONS[at].1));
                    }
                    if self.used {
                        batch.output(i, 1);
                    } else {
                        batch.discard(i, reason);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::support::console;
    use crate::frame::Decision;
    use crate::testing::{
        Rig, World, element, fill_ip4_checksum, frame_v4, frame_v6, refused, run,
    };
    use fingerpost_lpm::NextHopId;

    fn drops(rig: &mut Rig, frames: &[Vec<u8>]) -> String {
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        rig.receive("a", &frames);
        rig.read("c.drop_details").split_whitespace().filter(|w| w.parse::<u64>().is_ok()).collect()
    }

    #[test]
    fn what_is_wrong_is_counted_by_reason() {
        let text = "FromDevice(a) -> c :: CheckIPHeader(INTERFACES 10.9.9.9/24, OFFSET 14, DETAILS true) -> Discard";
        let mut rig = Rig::new(&World::new(), text);
        let good = frame_v4("10.0.0.1", "192.0.2.1", 64, 17, &[0; 8]);
        let with = |change: fn(&mut Vec<u8>)| {
            let mut frame = good.clone();
            change(&mut frame);
            frame
        };
        let frames = [
            good.clone(),
            vec![],
            good[..33].to_vec(),
            with(|f| f[14] = 0x55),
            with(|f| f[14] = 0x44),
            with(|f| f[14] = 0x4f),
            with(|f| f[17] = 29),
            with(|f| f[17] = 19),
            with(|f| f[24] ^= 1),
            frame_v4("0.0.0.0", "192.0.2.1", 64, 17, &[]),
            frame_v4("255.255.255.255", "192.0.2.1", 64, 17, &[]),
        ];
        assert_eq!(drops(&mut rig, &frames), "212212");
        assert_eq!(rig.read("c.drops"), "10");
        assert!(rig.read("c.drop_details").starts_with("2\ttiny packet\n1\tbad IP version\n"));
        assert_eq!(rig.dropped(DropReason::BadChecksum), 1);

        let text = "FromDevice(a) -> c :: CheckIP6Header(BADADDRS 2001:db8::bad, MARTIANS true, OFFSET 14, DETAILS true) -> Discard";
        let mut rig = Rig::new(&World::new(), text);
        let dst = "2001:db8::1";
        let mut long = frame_v6("2001:db8::2", dst, 64, 17, &[0; 8]);
        long[19] = 9;
        let frames = [
            frame_v6("2001:db8::2", dst, 64, 17, &[0; 8]),
            frame_v6("fe80::1", "ff02::1", 64, 17, &[]),
            frame_v6("::", "ff02::1:ff00:1", 255, 58, &[]),
            good,
            long,
            vec![0x60; 53],
            frame_v6("::", dst, 64, 17, &[]),
            frame_v6("::1", dst, 64, 17, &[]),
            frame_v6("ff02::1", dst, 64, 17, &[]),
            frame_v6("::ffff:1.2.3.4", dst, 64, 17, &[]),
            frame_v6("2001:db8::bad", dst, 64, 17, &[]),
            frame_v6("2001:db8::2", "::", 64, 17, &[]),
            frame_v6("2001:db8::2", "::1", 64, 17, &[]),
        ];
        assert_eq!(drops(&mut rig, &frames), "2001052");
        let mut rig = Rig::new(&World::new(), &text.replace("MARTIANS true", "MARTIANS false"));
        assert_eq!(drops(&mut rig, &frames), "2001010");
    }

    #[test]
    fn the_first_wrong_packet_is_reported_or_all_are() {
        let frame = frame_v4("10.0.0.1", "192.0.2.1", 64, 17, &[]);
        let mut wrong = frame[14..].to_vec();
        wrong[10] ^= 1;
        let reported = |config: &str| {
            let text = format!("FromDevice(a) -> c :: CheckIPHeader({config}) -> Discard");
            let mut rig = Rig::new(&World::new(), &text);
            console::collect();
            rig.receive("a", &[&frame[14..], &wrong, &wrong, &[0x45]]);
            assert!(!rig.read("c.handlers").contains("drop_details"));
            console::collected().err
        };
        let failed = "c: IP header check failed:";
        assert_eq!(reported(""), format!("{failed} bad IP checksum\n"));
        assert_eq!(
            reported("VERBOSE true"),
            format!("{0} bad IP checksum\n{0} bad IP checksum\n{0} tiny packet\n", failed)
        );
        let combo = |config: &str| {
            let text = format!("FromDevice(a) -> c :: IPInputCombo({config}) -> Discard");
            console::collect();
            Rig::new(&World::new(), &text).receive("a", &[&[0; 14]]);
            console::collected().err
        };
        let lines = ["1", "1, VERBOSE true"].map(combo);
        assert_eq!(lines, [String::new(), format!("{failed} tiny packet\n")]);
    }

    #[test]
    fn without_arguments_any_source_may_send() {
        let frame = frame_v4("0.0.0.0", "192.0.2.1", 64, 17, &[]);
        let taken = |config: &str, frame: &[u8]| {
            run(&CLASS4, config, 0, &[frame]).decision(0) == Decision::Output(0)
        };
        assert!(taken("", &frame[14..]) && taken("OFFSET 14", &frame) && taken("14", &frame));
        let good = frame_v4("10.0.0.1", "192.0.2.1", 64, 17, &[]);
        let old = "10.0.0.255 10.0.1.255, 14";
        assert!(taken(old, &good) && !taken(old, &frame), "the old form has 0.0.0.0 as well");
        let bad = frame_v4("10.0.1.255", "192.0.2.1", 64, 17, &[]);
        assert!(!taken(old, &bad) && taken("14", &bad));
        assert!(refused(&CLASS4, "1.2.3.4, 14, 5").contains("too many arguments"));
        assert!(refused(&CLASS4, "x, 14").contains("BADSRC: `x`"));
        let ones = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        for (src, output) in [("::1", 0), ("ff02::1", 0), (ones, 1)] {
            let frame = frame_v6(src, "2001:db8::1", 64, 17, &[]);
            let batch = run(&CLASS6, "OFFSET 14", 0, &[&frame]);
            assert_eq!(batch.decision(0), Decision::Output(output), "{src}");
        }
    }

    #[test]
    fn padding_is_cut_and_the_header_noted() {
        let mut frame = frame_v4("10.0.0.1", "192.0.2.1", 64, 17, &[1, 2]);
        let len = frame.len();
        frame.resize(60, 0xee);
        let batch = run(&CLASS4, "OFFSET 14", 0, &[&frame]);
        assert_eq!((batch.frame_len(0), batch.meta()[0].network), (len, 14));
        let batch = run(&CLASS4, "", 9, &[&frame[14..]]);
        assert_eq!((batch.frame_len(0), batch.meta()[0].network), (len - 14, 0));
        let mut frame = frame_v6("2001:db8::2", "2001:db8::1", 64, 17, &[1, 2]);
        frame.push(0xee);
        let batch = run(&CLASS6, "OFFSET 14", 0, &[&frame]);
        assert_eq!((batch.frame_len(0), batch.meta()[0].network), (56, 14));
        // The old gateway is none of this packet's.
        let bench = &mut crate::testing::Bench::new(&World::new());
        let mut batch = crate::testing::batch(&bench.pool, 0, [&frame[14..]]);
        batch.meta_mut()[0].hop = Hop::of_gateway(NextHopId(3));
        element(&CLASS6, "").process(0, &mut batch, &mut bench.context());
        assert_eq!(batch.meta()[0].hop, Hop::NONE);
    }

    #[test]
    fn sources_by_interfaces_and_lists() {
        let refuses = |config: &str, src: &str, dst: &str| {
            let frame = frame_v4(src, dst, 64, 17, &[]);
            run(&CLASS4, &format!("OFFSET 14, {config}"), 0, &[&frame]).decision(0)
                == Decision::Output(1)
        };
        let own = "INTERFACES 10.0.0.1/24 192.0.2.0/31";
        assert!(refuses(own, "10.0.0.255", "8.8.8.8") && !refuses(own, "10.0.0.254", "8.8.8.8"));
        assert!(!refuses(own, "10.0.0.255", "10.0.0.1"), "to ourselves");
        assert!(!refuses(own, "192.0.2.1", "8.8.8.8"), "of two addresses none is for all");
        assert!(refuses(own, "0.0.0.0", "8.8.8.8") && !refuses(own, "0.0.0.0", "10.0.0.1"));
        let lists = "BADSRC 1.2.3.4 5.6.7.8, GOODDST 9.9.9.9";
        assert!(refuses(lists, "5.6.7.8", "8.8.8.8") && !refuses(lists, "5.6.7.8", "9.9.9.9"));
        assert!(!refuses(lists, "0.0.0.0", "8.8.8.8"), "others were named");
        let reported = refused(&CLASS4, "INTERFACES 10.0.0.1/33 x, BADSRC 1, OFFSET 300");
        for words in ["`10.0.0.1/33` is no", "`x` is no", "BADSRC: `1`", "OFFSET: `300`"] {
            assert!(reported.contains(words), "{reported}");
        }
    }

    #[test]
    fn the_combo_takes_frames() {
        let frame = frame_v4("10.0.0.255", "192.0.2.1", 64, 17, &[1, 2]);
        let batch = run(&COMBO, "7", 0, &[&frame, &frame[..33]]);
        let meta = batch.meta()[0];
        assert_eq!((batch.bytes(0), meta.network, meta.paint), (&frame[14..], 0, 7));
        assert_eq!((batch.decision(1), batch.bytes(1)), (Decision::Output(1), &frame[..33]));
        let batch = run(&COMBO, "7, INTERFACES 10.0.0.1/24", 0, &[&frame]);
        assert_eq!(batch.decision(0), Decision::Output(1));
        assert!(refused(&COMBO, "256, BADSRC x").contains("COLOR: `256`"));
    }

    #[test]
    fn a_checksum_may_be_left_alone() {
        let mut frame = frame_v4("10.0.0.1", "192.0.2.1", 64, 17, &[0; 4]);
        frame[14] = 0x46;
        fill_ip4_checksum(&mut frame);
        assert_eq!(run(&CLASS4, "OFFSET 14", 0, &[&frame]).decision(0), Decision::Output(0));
        frame[34] ^= 0xff;
        assert_eq!(run(&CLASS4, "OFFSET 14", 0, &[&frame]).decision(0), Decision::Output(1));
        let config = "OFFSET 14, CHECKSUM false, VERBOSE true, DETAILS true";
        assert_eq!(run(&CLASS4, config, 0, &[&frame]).decision(0), Decision::Output(0));
    }
}
