//! Traffic control: ingress and egress filters, and queueing that shapes.

use super::super::{Malformed, Message, Request, fixed, u32_at};
use super::Obstacle;

/// `RTM_NEWQDISC`.
pub const NEW_QDISC: u16 = 36;
const GET_QDISC: u16 = 38;
/// `RTM_NEWTFILTER`.
pub const NEW_FILTER: u16 = 44;
const GET_FILTER: u16 = 46;

const TCA_KIND: u16 = 1;

/// Where filters hang on a `clsact` or `ingress` queueing discipline.
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

/// Disciplines that only queue. All others delay, order, drop or count by rule.
const PLAIN: [&str; 10] = [
    "noqueue",
    "noop",
    "pfifo",
    "bfifo",
    "pfifo_fast",
    "fq",
    "fq_codel",
    "mq",
    "clsact",
    "ingress",
];

/// A queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// Kernel index of its link.
    pub link: u32,
    /// `fq_codel`, `clsact`, ...
    pub kind: String,
}

impl Qdisc {
    /// Parent in requests for its filters.
    pub fn filter_parents(&self) -> &'static [u32] {
        match self.kind.as_str() {
            "clsact" => &[EGRESS, INGRESS],
            "ingress" => &[INGRESS],
            _ => &[],
        }
    }

    /// Whether it does more than queue.
    pub fn obstacle(&self) -> Option<Obstacle> {
        let plain = PLAIN.contains(&self.kind.as_str());
        let what = || format!("tc qdisc {} shapes what leaves", self.kind);
        (!plain).then(|| Obstacle { subsystem: "tc", link: Some(self.link), what: what() })
    }
}

/// Reads [`NEW_QDISC`].
///
/// # Errors
/// [`Malformed`].
pub fn parse_qdisc(message: &Message<'_>) -> Result<Qdisc, Malformed> {
    let (link, _, kind) = parse(message)?;
    Ok(Qdisc { link, kind })
}

/// Reads [`NEW_FILTER`].
///
/// # Errors
/// [`Malformed`].
pub fn parse_filter(message: &Message<'_>) -> Result<Obstacle, Malformed> {
    let (link, parent, kind) = parse(message)?;
    let side = if parent == EGRESS { "egress" } else { "ingress" };
    Ok(Obstacle { subsystem: "tc", link: Some(link), what: format!("tc {side} filter {kind}") })
}

/// Link, parent and kind.
fn parse(message: &Message<'_>) -> Result<(u32, u32, String), Malformed> {
    let (h, attrs) = fixed::<20>(message.body, "tcmsg")?;
    let mut kind = String::new();
    for attr in attrs {
        let attr = attr?;
        if attr.kind == TCA_KIND {
            kind = attr.text().into_owned();
        }
    }
    Ok((u32_at(h, 4), u32_at(h, 12), kind))
}

/// Request for the queueing disciplines of all links.
pub fn dump_qdiscs(seq: u32) -> Vec<u8> {
    Request::dump(GET_QDISC, seq).fixed(&[0; 20]).finish()
}

/// Request for the filters at one place of a link.
pub fn dump_filters(link: u32, parent: u32, seq: u32) -> Vec<u8> {
    let head = [0, link, 0, parent, 0].map(u32::to_ne_bytes);
    Request::dump(GET_FILTER, seq).fixed(head.as_flattened()).finish()
}
