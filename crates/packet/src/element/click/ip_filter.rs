//! Sorts IP packets by expressions over their fields: `IPClassifier(tcp dst port 80, udp, -)`, and
//! `IPFilter(deny src 10.0.0.0/8, allow all)`.
//!
//! Source: Click's elements of these names. A packet is sorted by the first expression that takes it, and dropped when
//! none does. The language is Click's; it is for both families, so that `IP6Classifier` and `IP6Filter` are not needed.
//!
//! Handlers change the expressions as those of `Classifier` do. Outputs of an `IPClassifier` that no packet leaves by are
//! reported, where its expressions have no address of IPv6.
//!
//! Cost: a load for each field that the expressions read, up to the first that holds.

use fingerpost_route::Reader;

use super::sorting::{Sorting, one_per_output, patterns, warn_of_unused};
use crate::filter::{Action, Choice, Condition, Entry};
use crate::frame::wire::ETHER_BYTES;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass};
use crate::language::{Args, ClassSpec, ConfigError};

pub(crate) const CLASSIFIER: ElementClass = ElementClass {
    spec: spec("IPClassifier"),
    summary: "sorts IP packets by expressions over their fields",
    configure: |setup| Sorting::made(setup, "IPClassifier", classifier, |sorting| Sort { sorting }),
};

pub(crate) const FILTER: ElementClass = ElementClass {
    spec: spec("IPFilter"),
    summary: "lets IP packets pass, or drops them, by expressions over their fields",
    configure: |setup| Sorting::made(setup, "IPFilter", filter, |sorting| Sort { sorting }),
};

fn classifier(args: &mut Args<'_>, outputs: u32) -> Result<Sorting<Choice>, ConfigError> {
    let (conditions, texts) = one_per_output(args, outputs, Condition::parse)?;
    let conditions: Vec<_> = conditions.into_iter().zip((0..u16::MAX).map(Some)).collect();
    // In a listing words of IPv6 headers are those of IPv4 headers that lie there.
    if !conditions.iter().any(|(condition, _)| condition.reads_v6()) {
        let unmatched = u16::try_from(outputs).unwrap_or(u16::MAX);
        warn_of_unused(args, conditions.len(), || Choice::listing(&conditions, unmatched));
    }
    Ok(sorting(texts, conditions, outputs))
}

fn filter(args: &mut Args<'_>, outputs: u32) -> Result<Sorting<Choice>, ConfigError> {
    let entries = patterns(args, Entry::parse);
    args.finish()?;
    let (entries, texts) = entries?;
    let (mut conditions, mut denies) = (Vec::new(), false);
    for Entry { action, condition } in entries {
        let output = action.output();
        denies |= action == Action::Deny;
        if let Some(output) = output.filter(|&output| u32::from(output) >= outputs) {
            let words = format!("output {output} is named, but {outputs} are connected");
            return Err(args.refuse_all(&words));
        }
        conditions.push((condition, output));
    }
    if denies && outputs > 1 {
        args.warn_here("`deny` drops packets, whatever outputs there are");
    }
    Ok(sorting(texts, conditions, outputs))
}

fn sorting(
    texts: Vec<String>,
    conditions: Vec<(Condition, Option<u16>)>,
    outputs: u32,
) -> Sorting<Choice> {
    let choice = Choice::new(conditions.iter().cloned());
    let outputs = u16::try_from(outputs).unwrap_or(u16::MAX);
    Sorting::new(texts, choice, move || Choice::listing(&conditions, outputs))
}

const fn spec(name: &'static str) -> ClassSpec {
    ClassSpec::new(name, "1/-", "h/h", "x/x")
}

struct Sort {
    sorting: Reader<Sorting<Choice>>,
}

/// What is found for a packet with its Ethernet header, which is still there where it was cut off.
fn find_behind_link(choice: &Choice, batch: &mut Batch, i: usize) -> Option<u16> {
    let network = usize::from(batch.meta()[i].network);
    let missing = u16::try_from(ETHER_BYTES.saturating_sub(network)).unwrap_or(0);
    // What lies in the headroom was of another packet.
    let back = missing <= batch.cut_off(i) && batch.push_front(i, missing);
    let bytes = batch.bytes(i);
    let at = network + if back { usize::from(missing) } else { 0 };
    let (front, packet) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
    let link = front.len().checked_sub(ETHER_BYTES).map_or(&[][..], |from| &front[from..]);
    let found = choice.find_behind(link, packet);
    if back {
        batch.pull_front(i, missing);
    }
    found
}

impl Element for Sort {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let choice = &self.sorting.pin().choice;
        for i in 0..batch.len() {
            let found = match choice.reads_link() {
                false => {
                    let network = usize::from(batch.meta()[i].network);
                    choice.find(batch.bytes(i).get(network..).unwrap_or_default())
                }
                true => find_behind_link(choice, batch, i),
            };
            match found {
                Some(output) => batch.output(i, output),
                None => batch.discard(i, DropReason::Unmatched),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Plan;
    use crate::testing::{Rig, World, frame_v4, frame_v6, refused};

    fn packets() -> Vec<Vec<u8>> {
        let ports = [0, 99, 0, 80, 0, 0, 0, 0];
        [
            frame_v4("10.0.0.1", "192.0.2.1", 64, 6, &ports),
            frame_v4("10.0.0.1", "192.0.2.1", 64, 17, &ports),
            frame_v6("2001:db8::1", "2001:db8::2", 64, 6, &ports),
            vec![0; 60],
        ]
        .map(|frame| frame[ETHER_BYTES..].to_vec())
        .into()
    }

    fn sorted(text: &str) -> (String, u64) {
        let mut rig = Rig::new(&World::new(), text);
        let packets = packets();
        let frames: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        let sent = rig.receive("in", &frames);
        let names = sent.into_iter().map(|(device, _)| device).collect();
        (names, rig.dropped(DropReason::Unmatched))
    }

    #[test]
    fn packets_leave_by_the_first_expression_that_takes_them() {
        let ends = "c => ToDevice(a), ToDevice(b)";
        let text = format!("FromDevice(in) -> c :: IPClassifier(tcp port 80, udp); {ends}");
        assert_eq!(sorted(&text), ("aab".into(), 1));
        let text =
            format!("FromDevice(in) -> c :: IPFilter(drop udp, 1 ip vers 6, allow all); {ends}");
        assert_eq!(sorted(&text), ("aab".into(), 1));
        let text = "FromDevice(in) -> IPFilter(deny src 10/8, allow any) -> ToDevice(a)";
        assert_eq!(sorted(text), ("aa".into(), 2));
        let text = format!("FromDevice(in) -> c :: IPFilter(allow tcp, deny udp, 1 any); {ends}");
        assert_eq!(sorted(&text), ("aab".into(), 1));
        let plan = Plan::read("a", &text, crate::ELEMENTS).unwrap();
        assert!(plan.warnings()[0].message.contains("`deny` drops packets"));
    }

    #[cfg(feature = "click")]
    #[test]
    fn outputs_that_no_packet_leaves_by_are_reported() {
        let warned = |class: &str, patterns: &[&str]| {
            let outputs: Vec<_> =
                (0..patterns.len()).map(|n| format!("c [{n}] -> Discard;")).collect();
            let text =
                format!("Idle -> c :: {class}({}); {}", patterns.join(", "), outputs.concat());
            crate::testing::warnings(&text)
        };
        let output = |number| format!("`c` (IPClassifier): output {number} matches no packets");
        assert_eq!(
            warned("IPClassifier", &["tcp", "tcp dst port 80", "udp and tcp", "-"]),
            [output(1), output(2)]
        );
        assert!(warned("IPClassifier", &["tcp dst port 80", "tcp", "udp", "-"]).is_empty());
        // The second byte of this address lies where the protocol of IPv4 does.
        assert!(warned("IPClassifier", &["tcp", "src 2a06:98c0::/29", "-"]).is_empty());
        assert!(warned("IPFilter", &["0 all", "1 tcp"]).is_empty(), "as in Click");
    }

    #[test]
    fn expressions_are_replaced_while_packets_are_sorted() {
        let text = "FromDevice(in) -> f :: IPFilter(allow tcp, deny all) -> ToDevice(a)";
        let mut rig = Rig::new(&World::new(), text);
        let packets = packets();
        let frames: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        assert_eq!(rig.receive("in", &frames).len(), 2);
        rig.write("f.config", "allow udp");
        assert_eq!(
            (rig.receive("in", &frames).len(), rig.read("f.config")),
            (1, "allow udp".into())
        );
        for (config, words) in [
            ("allow udp, 1 tcp", "output 1 is named, but 1 are connected"),
            ("allow tcp, permit all", "number of an output"),
        ] {
            let refused = rig.handlers.write("f.config", config).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        assert_eq!(
            (rig.receive("in", &frames).len(), rig.read("f.config")),
            (1, "allow udp".into())
        );
    }

    #[test]
    fn ethernet_headers_are_read_where_they_were_cut_off() {
        let frame = frame_v4("10.0.0.1", "192.0.2.1", 64, 17, &[0; 8]);
        let mac =
            |at: usize| frame[at..at + 6].iter().map(|b| format!("{b:x}")).collect::<Vec<_>>();
        let [dst, src] = [mac(0).join(":"), mac(6).join(":")];
        for (text, want) in [(format!("ether src {src}"), 1), (format!("ether src {dst}"), 0)] {
            let text = format!(
                "FromDevice(in) -> MarkIPHeader(14) -> IPClassifier({text}) -> ToDevice(a);
                 FromDevice(cut) -> Strip(14) -> MarkIPHeader -> IPClassifier({text}) -> ToDevice(b)"
            );
            let mut rig = Rig::new(&World::new(), &text);
            let sent = ["in", "cut"].map(|device| rig.receive(device, &[&frame]).len());
            assert_eq!(sent, [want; 2], "{text}");
        }
    }

    #[test]
    fn the_headroom_is_no_ethernet_header() {
        let text = "FromDevice(other) -> EtherEncap(0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2) -> Discard;
            FromDevice(in) -> MarkIPHeader -> IPClassifier(ether src 2:0:0:0:0:1) -> ToDevice(a)";
        let mut rig = Rig::new(&World::new(), text);
        let packets = packets();
        assert!(rig.receive("other", &[&packets[0]]).is_empty());
        assert!(rig.receive("in", &[&packets[0]]).is_empty(), "the frame of the packet before");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let reported = refused(&FILTER, "allow all, permit tcp, 2 src port bgq");
        assert!(reported.contains("number of an output, at character 1"), "{reported}");
        assert!(reported.contains("up to 65535 or a known name, at character 12"), "{reported}");
        let text = "Idle -> f :: IPFilter(1 all); f -> Discard";
        let reported = Plan::read("a", text, crate::ELEMENTS).unwrap_err().to_string();
        assert!(reported.contains("output 1 is named, but 1 are connected"), "{reported}");
    }
}
