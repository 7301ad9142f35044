//! `CheckARPHeader(OFFSET)` checks ARP headers before other elements read them, and notes where they are.
//!
//! Source: Click's `CheckARPHeader`; RFC 826. Kinds and lengths of both kinds of addresses are those of Ethernet and IPv4,
//! and the packet has all of it. What is wrong leaves by the second output or is dropped; the first such packet is
//! reported on standard error, all with `VERBOSE`; `DETAILS` counts by reason.

use super::checked::{Checks, checked};
use crate::frame::Batch;
use crate::frame::DropReason;
use crate::graph::ElementClass;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("CheckARPHeader", "1/1-2", "a/ah", "x/x").outputs(&["out", "bad"]),
    summary: "checks ARP headers",
    configure: |setup| {
        let offset = setup.args.optional::<u8>("OFFSET");
        let verbose = setup.args.keyword("VERBOSE");
        let details = setup.args.keyword("DETAILS");
        setup.args.finish()?;
        let offset = offset?.unwrap_or(0);
        let checks = Checks {
            heading: "ARP header check failed: ",
            reasons: REASONS,
            verbose: verbose?.unwrap_or(false),
            details: details?.unwrap_or(false),
            drop: DropReason::BadLength,
        };
        Ok(checked(setup, checks, move |batch, i| check(batch, i, offset)))
    },
};

const REASONS: &[&str] = &[
    "tiny packet",
    "bad packet length",
    "bad hardware type",
    "bad protocol type",
    "bad hardware length",
    "bad protocol length",
];

/// Bytes before the addresses.
const FIXED: usize = 8;

/// Number of the reason why a packet is wrong; one that is right has its header noted.
fn check(batch: &mut Batch, i: usize, offset: u8) -> Option<usize> {
    let header = batch.bytes(i).get(usize::from(offset)..).unwrap_or_default();
    let Some(fixed) = header.first_chunk::<FIXED>() else { return Some(0) };
    let [h, ardware, p, rotocol, mac_len, addr_len, ..] = *fixed;
    let wanted = FIXED + 2 * (usize::from(mac_len) + usize::from(addr_len));
    let wrong = [
        header.len() < wanted,
        [h, ardware] != [0, 1],
        [p, rotocol] != [8, 0],
        mac_len != 6,
        addr_len != 4,
    ];
    let wrong = wrong.iter().position(|wrong| *wrong).map(|at| at + 1);
    if wrong.is_none() {
        batch.meta_mut()[i].network = offset;
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::CLASS;
    use crate::element::click::only::console;
    use crate::testing::{Rig, World, run};

    #[test]
    fn right_headers_are_noted() {
        console::collect();
        let mut arp = [0; 31];
        arp[3..11].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        let batch = run(&CLASS, "3", 14, &[&arp, &arp[..30]]);
        let noted: Vec<_> = batch.meta().iter().map(|meta| meta.network).collect();
        assert_eq!(noted, [3, 14], "and wrong ones are not");
    }

    #[test]
    fn headers_are_checked() {
        console::collect();
        let text = "FromDevice(a) -> c :: CheckARPHeader(2, DETAILS true) -> ToDevice(x); c [bad] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let mut arp = [0; 30];
        arp[2..10].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        let goes = |rig: &mut Rig, frame: &[u8]| rig.receive("a", &[frame])[0].0.clone();
        assert_eq!(goes(&mut rig, &arp), "x");
        let short = arp[..29].to_vec();
        let changed = |at: usize, to: u8| {
            let mut frame = arp;
            frame[at] = to;
            frame.to_vec()
        };
        let wrong = [
            arp[..9].to_vec(),
            short.clone(),
            changed(3, 6),
            changed(4, 6),
            changed(6, 5),
            changed(7, 3),
            short,
        ];
        for frame in &wrong {
            assert_eq!(goes(&mut rig, frame), "y");
        }
        assert_eq!(rig.read("c.drops"), "7");
        let details = "1\ttiny packet\n2\tbad packet length\n1\tbad hardware type\n1\tbad protocol type\n\
            1\tbad hardware length\n1\tbad protocol length\n";
        assert_eq!(rig.read("c.drop_details"), details);
        assert_eq!(console::collected().err, "c: ARP header check failed: tiny packet\n");
    }
}
