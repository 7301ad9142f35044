//! Aggregates: packets get the number of the group that they belong to. `AggregateIP(FIELD)` takes it from a field of
//! the header, `AggregateLength` from the length, `AggregatePaint` from the color.
//!
//! Source: Click's elements of these names. A field is `ip src`, `ip dst/8`, `tcp sport`, `ip ttl`, or a part of a
//! header or of the payload: `ip[OFFSET]`, `tcp[OFFSET:BYTES]`, `data[FIRST-LAST]`, in bits between braces
//! (`ip{96-103}`); each with `/PREFIX` for its first bits, or `& MASK`. With `INCREMENTAL true` the new bits are put
//! behind those of the aggregate before. A packet without the field leaves by the second output, where it is used, or
//! is dropped. `AggregateLength` counts bytes that were not captured; with `IP true` those from the network header on,
//! and drops packets without one.

pub(crate) mod ended;
mod field;
mod flow_trace;
pub(crate) mod flows;
mod fragments;
pub(crate) mod packets;
pub(crate) mod picks;

use super::annotations::Annotations;
use super::each::{class, each, sorting};
use super::seen::Seen;
use crate::element::support::byte_anno::ByteAnno;
use crate::frame::{Batch, DropReason};
use crate::graph::ElementClass;
use crate::handler::Handler;
use crate::language::Value;

use field::{Field, Header};

/// Gives packet `i` an aggregate.
fn set(batch: &mut Batch, i: usize, aggregate: u32) {
    let mut annotations = Annotations::of(batch, i);
    annotations.aggregate = aggregate;
    annotations.set(batch, i);
}

pub(crate) const IP: ElementClass = sorting(
    "AggregateIP",
    &["out", "others"],
    "gives packets the number that a field has",
    |setup| {
        let arg = setup.args.positional_arg("FIELD")?;
        let incremental = setup.args.keyword("INCREMENTAL");
        let unshift = setup.args.keyword("UNSHIFT_IP_ADDR");
        setup.args.finish()?;
        let text = String::from_utf8_lossy(&arg.bytes()).into_owned();
        let field = Field::read(&text)
            .map_err(|words| setup.args.refuse(&arg, &format!("FIELD: `{text}` is {words}")))?;
        let incremental = incremental?.unwrap_or(false);
        // The prefix of an address is itself an address.
        let shift = if unshift?.unwrap_or(false) { field.shift_in_addr() } else { 0 };
        let exit = setup.exit(1, DropReason::Unmatched);
        let made = each(move |batch, i| match field.of(&Seen::packet(batch, i)) {
            None => exit.take(batch, i),
            Some(value) if incremental => {
                let before = u64::from(Annotations::of(batch, i).aggregate);
                let [a, b, c, d, ..] = (before << field.bits | u64::from(value)).to_le_bytes();
                set(batch, i, u32::from_le_bytes([a, b, c, d]));
            }
            Some(value) => set(batch, i, value << shift),
        })?;
        let header = match field.header {
            Header::Ip => "ip",
            Header::Transport(_) => "transp",
            Header::Payload => "payload",
        };
        Ok(made
            .handler(Handler::read("field", move || text.clone()))
            .handler(Handler::read("header", move || header.to_owned()))
            .handler(Handler::read("bit_offset", move || field.offset_bits.to_string()))
            .handler(Handler::read("bit_length", move || field.bits.to_string())))
    },
);

pub(crate) const LENGTH: ElementClass =
    class("AggregateLength", "gives packets their length as a number", |setup| {
        let ip = setup.args.keyword("IP");
        setup.args.finish()?;
        let ip = ip?.unwrap_or(false);
        each(move |batch, i| {
            let seen = Seen::packet(batch, i);
            if ip && seen.ip().is_none() {
                return batch.discard(i, DropReason::Unmatched);
            }
            let bytes = seen.frame.len() - if ip { seen.network } else { 0 };
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let length = bytes.saturating_add(seen.annotations.extra_length);
            set(batch, i, length);
        })
    });

pub(crate) const PAINT: ElementClass =
    class("AggregatePaint", "gives packets their color as a number", |setup| {
        let bits = setup.args.optional::<u32>("BITS");
        let incremental = setup.args.keyword("INCREMENTAL");
        let arg = setup.args.keyword_arg("ANNO")?;
        let anno = ByteAnno::read(setup, arg.as_ref())?;
        setup.args.finish()?;
        let (bits, incremental) = (bits?.unwrap_or(8), incremental?.unwrap_or(false));
        if !(1..=8).contains(&bits) {
            return Err(setup.args.refuse_all("BITS: 1 to 8 are possible"));
        }
        each(move |batch, i| {
            let paint = u32::from(anno.get(batch, i)) & ((1 << bits) - 1);
            let before = Annotations::of(batch, i).aggregate;
            set(batch, i, if incremental { before << bits | paint } else { paint });
        })
    });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v4, refused, run};

    #[test]
    fn fields_are_numbers() {
        let frame = frame_v4("10.1.2.3", "192.0.2.7", 64, 17, &[0, 53, 1, 2, 0, 8, 0, 0]);
        let number = |config: &str| {
            let batch = run(&IP, config, 14, &[&frame]);
            Annotations::of(&batch, 0).aggregate
        };
        assert_eq!(number("ip src/8"), 10);
        assert_eq!(number("ip src/16, UNSHIFT_IP_ADDR true"), 0x0a01_0000);
        assert_eq!(number("\"ip[14, 1]\", UNSHIFT_IP_ADDR true"), 0x0000_0200);
        assert_eq!(
            [number("udp dport"), number("ip ttl"), number("ip[9]"), number("udp[0:2]")],
            [258, 64, 17, 53]
        );
        assert_eq!(number("ip hl"), 5);
        let tcp = run(&IP, "tcp sport", 14, &[&frame]);
        assert_eq!(tcp.decision(0), crate::frame::Decision::Output(1));
        assert!(refused(&IP, "ip color").contains("is no field"));
        let text = "FromDevice(a) -> MarkIPHeader(14) -> AggregateIP(ip src/8) -> g :: AggregateIP(ip ttl, INCREMENTAL true)
            -> f :: AggregateFilter(1 2624, deny all); f [0] -> ToDevice(x); f [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(rig.receive("a", &[&frame])[0].0, "y", "10 * 256 + 64");
        assert_eq!((rig.read("g.bit_offset"), rig.read("g.field")), ("64".into(), "ip ttl".into()));
    }

    #[test]
    fn lengths_are_numbers() {
        let frame = frame_v4("10.1.2.3", "192.0.2.7", 64, 17, &[0; 30]);
        assert_eq!(Annotations::of(&run(&LENGTH, "IP true", 14, &[&frame]), 0).aggregate, 50);
        assert_eq!(Annotations::of(&run(&LENGTH, "", 14, &[&frame]), 0).aggregate, 64);
        let longer = [&frame[..], &[0; 6]].concat();
        let padded = run(&LENGTH, "IP true", 14, &[&longer, &frame[..20]]);
        assert_eq!(Annotations::of(&padded, 0).aggregate, 56, "the length that is there");
        assert_eq!(padded.decision(1), crate::frame::Decision::Drop(DropReason::Unmatched));
    }
}
