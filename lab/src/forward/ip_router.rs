//! Click's IP router as its users write it, and the same with address translation.
//!
//! The configuration has the elements of `conf/make-ip-conf.pl` of Click: an input of Ethernet, a table of a few routes, and
//! two outputs by ARP and a queue. `click-router-nat` has `IPRewriter` behind the check of the header. Before anything is
//! timed, each packet crosses once, which makes its mapping, and must leave by the output of its route, to the gateway, with
//! the TTL, checksum and source that it must have.

use std::collections::HashSet;
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow, ensure};
use fingerpost_packet::frame::wire::checksum::checksum;
use fingerpost_packet::frame::wire::{ETHER_BYTES, Ether, IP4_BYTES, Ip4};
use fingerpost_route::{Control, Mac};

use super::nat::{self, FIRST_PORT, OUTSIDE};
use super::{ForwardOptions, Path, Prepared, graphs, packets, world};
use crate::document::{Kind, Run, Unit};
use crate::table::Table;

const PLAIN: &str = "click-router";
const TRANSLATED: &str = "click-router-nat";

/// Link addresses of the outputs, and of the gateways behind them.
const OUT: [Mac; 2] = [Mac([2, 0, 0, 0, 1, 1]), Mac([2, 0, 0, 0, 2, 1])];
const GATEWAY: [Mac; 2] = [Mac([2, 0, 0, 0, 1, 2]), Mac([2, 0, 0, 0, 2, 2])];

/// Number of the output that the table gives a destination: each second quarter of all addresses has the same one.
fn output_of(dst: u32) -> usize {
    (dst >> 30 & 1) as usize
}

/// The configuration, with `elements`, each followed by an arrow, between the check of the header and the table. Its own
/// addresses are of 240.0.0.0/4 (RFC 1112, section 4), which no routing table has.
fn configuration(elements: &str) -> String {
    let [a, b] = OUT;
    let outputs: String = (1..=2).map(output).collect();
    format!(
        "ip :: Strip(14) -> CheckIPHeader(INTERFACES 240.0.0.1/24 240.0.1.1/24 240.0.2.1/24) -> {elements}
             rt :: StaticIPLookup(240.0.0.1/32 0, 240.0.0.255/32 0, 240.0.0.0/32 0, 240.0.1.1/32 0, 240.0.1.255/32 0,
                 240.0.1.0/32 0, 240.0.2.1/32 0, 240.0.2.255/32 0, 240.0.2.0/32 0, 240.0.1.0/24 1, 240.0.2.0/24 2,
                 255.255.255.255/32 0.0.0.0 0, 0.0.0.0/32 0, 0.0.0.0/2 240.0.1.2 1, 64.0.0.0/2 240.0.2.2 2,
                 128.0.0.0/2 240.0.1.2 1, 192.0.0.0/2 240.0.2.2 2);
         arpt :: Tee(3);
         c :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
         FromDevice(in) -> c;
         c[0] -> ARPResponder(240.0.0.1 02:00:00:00:00:01) -> Discard;
         c[1] -> arpt;
         c[2] -> Paint(3) -> ip;
         c[3] -> Discard;
         arpq1 :: ARPQuerier(240.0.1.1, {a});
         arpq2 :: ARPQuerier(240.0.2.1, {b});
         arpt[0] -> [1]arpq1; arpt[1] -> [1]arpq2; arpt[2] -> Discard;
         rt[0] -> EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2) -> Discard;
         {outputs}"
    )
}

/// The path behind an output of the table, which has this number.
fn output(n: usize) -> String {
    let addr = format!("240.0.{n}.1");
    format!(
        "arpq{n} -> Queue(200) -> ToDevice(out{n});
         rt[{n}] -> DropBroadcasts -> cp{n} :: PaintTee({n}) -> gio{n} :: IPGWOptions({addr}) -> FixIPSrc({addr})
             -> dt{n} :: DecIPTTL -> fr{n} :: IPFragmenter(1500) -> [0]arpq{n};
         dt{n}[1] -> ICMPError({addr}, timeexceeded) -> rt;
         fr{n}[1] -> ICMPError({addr}, unreachable, needfrag) -> rt;
         gio{n}[1] -> ICMPError({addr}, parameterproblem) -> rt;
         cp{n}[1] -> ICMPError({addr}, redirect, host) -> rt;
         "
    )
}

/// Whether a frame that left by an output is as it must be.
fn is_right(output: usize, frame: &[u8], translated: bool) -> bool {
    let header = frame.get(ETHER_BYTES..ETHER_BYTES + IP4_BYTES);
    let port = frame.get(ETHER_BYTES + IP4_BYTES..).and_then(|udp| udp.first_chunk().copied());
    let (Some(ether), Some(header), Some(port)) = (Ether::of(frame), header, port) else {
        return false;
    };
    let is_routed = |ip: Ip4<'_>| {
        let mapped = ip.src() == OUTSIDE && u16::from_be_bytes(port) >= FIRST_PORT;
        ip.ttl() == world::TTL - 1 && output_of(ip.dst()) == output && mapped == translated
    };
    (ether.src(), ether.dst()) == (OUT[output], GATEWAY[output])
        && checksum(header) == 0
        && Ip4::at(frame, ETHER_BYTES).is_some_and(is_routed)
}

/// Both runs of each stream. None without the option.
pub(super) fn prepare(
    table: &Table<u32>,
    options: &ForwardOptions,
    control: &Control,
    prepared: &mut Prepared,
) -> Result<()> {
    if !options.click {
        return Ok(());
    }
    for &stream in &options.streams {
        let (found, headers) = packets(table, options, stream)?;
        let sent = found.len() as u64;
        for (name, elements) in [(PLAIN, String::new()), (TRANSLATED, nat::rewriter(sent))] {
            let failed = |error| anyhow!("{error}");
            let (plan, handlers) =
                graphs::read(name, &configuration(&elements)).with_context(|| name.to_owned())?;
            // Devices are numbered in the order of the configuration.
            let ports = world::Ports { input: 0, out: [1, 2] };
            let mut path =
                Path::new(plan, control.reader(), ports, 4, headers.clone(), options.burst);
            for (output, mac) in GATEWAY.iter().enumerate() {
                let n = output + 1;
                let entry = format!("240.0.{n}.2 {mac}");
                handlers.write(&format!("arpq{n}.insert"), &entry).map_err(failed)?;
            }
            let left = Mutex::new(found.iter().map(|found| found.0).collect::<HashSet<u32>>());
            let translated = !elements.is_empty();
            let (checked, wrong) = path.check_frames(sent, sent, move |output, frame| {
                let is_first = world::destination(frame)
                    .is_some_and(|dst: u32| left.lock().expect("one thread").remove(&dst));
                is_first && is_right(output, frame, translated)
            });
            if translated {
                let mappings = handlers.read("nat.size", "").map_err(failed)?;
                ensure!(mappings.trim() == sent.to_string(), "{mappings} mappings of {sent} flows");
            }
            let mut run = Run::new(name, Kind::Ours, stream.name(), Unit::NsPerPacket);
            run.family = Some(4);
            run.set_answers(checked, wrong);
            run.note = format!("{sent} flows");
            path.free_run();
            prepared.paths.push((run, path));
        }
    }
    Ok(())
}

/// Notes with the run that translates how it compares with the other one, turn by turn.
pub(super) fn compare(runs: &mut [Run]) {
    super::note_shares(runs, PLAIN, |name| name == TRANSLATED);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Answers;
    use crate::forward::{Stream, forward, tests::tables};
    use crate::table::Tables;

    fn options() -> ForwardOptions {
        ForwardOptions {
            tables: Tables { v6: None, ..tables() },
            streams: vec![Stream::Prefix],
            destinations: 500,
            seconds: 0.01,
            click: true,
            elements: false,
            ..ForwardOptions::default()
        }
    }

    #[test]
    fn all_packets_leave_by_the_output_of_their_route() {
        let runs = forward(&options()).unwrap().runs;
        for name in [PLAIN, TRANSLATED] {
            let run = runs.iter().find(|run| run.name == name).unwrap();
            assert_eq!((run.answers, run.samples.len()), (Answers::Ok, 9), "{run:?}");
            assert!(run.note.starts_with("500 flows"), "{}", run.note);
            assert_eq!(run.note.ends_with(" of click-router"), name == TRANSLATED, "{}", run.note);
        }
    }

    #[test]
    fn a_frame_that_is_not_as_it_must_be_is_seen() {
        let (to, from) = (0x4001_0203u32, 0x0a00_0001u32);
        let mut frame = world::header(to, 9);
        frame[..6].copy_from_slice(&GATEWAY[1].0);
        frame[6..12].copy_from_slice(&OUT[1].0);
        assert!(!is_right(1, &frame, false), "its TTL is as before");
        frame[ETHER_BYTES + 8] = world::TTL - 1;
        assert!(!is_right(1, &frame, false), "its checksum is of the other TTL");
        world::set_source(&mut frame, from);
        assert!(is_right(1, &frame, false));
        assert!(!is_right(0, &frame, false) && !is_right(1, &frame, true));
        world::set_source(&mut frame, OUTSIDE);
        assert!(!is_right(1, &frame, true), "its port is no mapped one");
    }
}
