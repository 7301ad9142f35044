//! Any text as a summary of packets, for tests and the fuzzer: it is read, written, and read again.
//!
//! The first byte of an input selects how it is read, the rest is the file.

use std::fmt::Write as _;

use super::{Rig, World};
use crate::element::support::console;

/// Fields of which a packet made of a line has what was read.
const FIELDS: &str = "ntimestamp first_timestamp ip_src ip_dst ip_len ip_proto ip_id ip_tos ip_ttl ip_sum \
    ip_fragoff sport dport tcp_seq tcp_ack tcp_flags tcp_win tcp_urp tcp_opt udp_len icmp_type icmp_code icmp_id icmp_seq \
    payload count link aggregate";
/// The others, which are written only.
const MORE: &str = "timestamp ts_sec ts_usec usec1 ip_hl ip_frag ip_capture_len payload_len direction wire_len eth_src \
    eth_dst none";
/// The field of IPv4 options. What only fills space in them is not written.
const OPTIONS: &[u8] = b"ip_opt";
/// Rounds at most: as many as a file has lines.
const ROUNDS: usize = 3000;

/// Keywords of the reader.
fn options(how: u8) -> String {
    let truth = |bit: u8| how & bit != 0;
    let proto = ["T", "U", "I", "47"][usize::from(how >> 2 & 3)];
    format!("ZERO {}, CHECKSUM {}, PROTO {proto}, TIMING {}", truth(1), truth(2), truth(16))
}

/// What a file is written as that was read so, with these fields; the packets go through a queue where `queued`.
fn written(file: &[u8], how: u8, fields: &str) -> String {
    let mut data = String::new();
    file.iter().for_each(|byte| write!(data, "{byte:02x}").expect("a text takes all"));
    let between = if how & 32 != 0 { "-> Queue(3) -> Unqueue(2)" } else { "" };
    let text = format!(
        "FromIPSummaryDump(DATA \\<{data}>, STOP true, {}) {between} -> ToIPSummaryDump(-, FIELDS {fields}) -> Discard",
        options(how)
    );
    console::collect();
    let mut rig = Rig::new(&World::new(), &text);
    for _ in 0..ROUNDS {
        // A packet leaves in the round in which the end is seen.
        let stopped = rig.plan.is_stopped();
        rig.poll();
        if stopped {
            break;
        }
        let now_ns = rig.bench.now_ns;
        rig.bench.now_ns = rig.graph.due_ns().unwrap_or(0).max(now_ns + 1);
    }
    rig.graph.stop(&mut rig.bench.round());
    assert_eq!(rig.bench.pool.free(), rig.bench.pool.frames(), "every frame came back");
    console::collected().out
}

/// What must hold of any file: it is read to its end, and what is written of its packets is read as the same packets.
///
/// # Panics
/// Where it does not hold.
pub fn check(bytes: &[u8]) {
    let Some((&how, file)) = bytes.split_first() else { return };
    if file.len() > 4096 {
        return;
    }
    let mut first = written(file, how, FIELDS);
    if file.windows(OPTIONS.len()).any(|bytes| bytes == OPTIONS) {
        // Packets of these fields alone have no options, and so another payload.
        first = written(first.as_bytes(), how & !(2 | 16), FIELDS);
    }
    // Checksums and lengths that were read are those of the packets.
    let again = written(first.as_bytes(), how & !(2 | 16), FIELDS);
    assert_eq!(first, again, "what was written is read as other packets");
    let all = written(first.as_bytes(), how & !(2 | 16), &format!("{FIELDS} {MORE}"));
    let names = FIELDS.split_whitespace().chain(MORE.split_whitespace()).count();
    let is_row = |line: &&str| !line.starts_with('!');
    for (row, whole) in first.lines().filter(is_row).zip(all.lines().filter(is_row)) {
        assert!(whole.starts_with(row), "more fields change others: {row}\n{whole}");
    }
    assert_eq!(first.lines().count(), all.lines().count());
    assert!(names > 40);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let file = "!data timestamp src dst proto sport dport flags payload\n\
            1.5 1.0.0.1 2.0.0.2 T 5 6 SA \"a\\000b\"\n2 1.0.0.1 - U - 9 - -\n!proto I\n# none\n\n3 - - - - - - x\n";
        for how in 0..64 {
            let bytes = [&[how], file.as_bytes()].concat();
            check(&bytes);
        }
        let out = written(file.as_bytes(), 0, "timestamp src proto payload");
        assert_eq!(out.lines().count(), 5, "{out}");
        check(&[]);
        check(b"\0!data\n\xff\xfe");
    }
}
