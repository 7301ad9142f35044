//! Summaries of IP packets, a line each: `FromIPSummaryDump` makes packets of them, `ToIPSummaryDump` writes them.
//!
//! Source: Click's elements of these names, and the form of their files: a line `!data FIELD...` names the fields of
//! the lines behind it; other lines that begin with `!`, and those with `#`, are no packets (`!proto P` is the protocol
//! of those without one). Fields: times (`timestamp`, `ts_sec`), addresses and ports (`ip_src`, `sport`), parts of the
//! headers (`ip_len`, `ip_ttl`, `ip_opt`, `tcp_seq`, `tcp_flags`, `tcp_opt`, `icmp_type`), `payload` and its
//! `payload_md5`, and annotations (`link` and `direction` for the paint, `aggregate`, `count`). Files may have binary
//! records (`BINARY true`, `binary.rs`), and be compressed.
//!
//! `ToIPFlowDumps` (`flow_dumps.rs`) writes a file for each flow.
//! `ToIPSummaryDump` writes the fields `timestamp ip_src` unless others are named, and with `VERBOSE true` the host and
//! the time at which it began before them; Click's has the date as well. It writes a line `!bad` before that of a packet with wrong headers
//! where `BAD_PACKETS true` is given.
//!
//! `FromIPSummaryDump(FILE)` gives a packet a turn, and waits while all queues behind it are full; with `TIMING true`
//! at the distances of the times in the file. Packets are IPv4 packets without link header, of `PROTO` (TCP), with a
//! TTL of 100, and without checksums unless `CHECKSUM true` is given; bytes that a packet should have and nothing is
//! known of are zeros with `CHECKSUM true`, and else an annotation. `SAMPLE P` is the part of the packets that leave.
//! With `MULTIPACKET true` a line is as many packets as it counts (`several.rs`), of each of which `SAMPLE` decides. Offsets of
//! fragments are in units of 8 bytes in files of version 1.0. `DATA TEXT` stands for a file. Of several workers the first reads it.

mod bad;
mod binary;
pub(crate) mod fields;
mod flow_dumps;
mod from;
mod ip_options;
mod md5;
mod options;
mod pattern;
mod several;
mod source;
mod tcp_options;
mod tcpdump;
mod to;

pub(crate) use flow_dumps::FLOWS;
pub(crate) use from::FROM;
pub(crate) use tcpdump::FROM as FROM_TCPDUMP;
pub(crate) use to::TO;
