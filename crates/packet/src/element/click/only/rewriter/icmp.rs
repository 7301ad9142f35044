//! `ICMPRewriter(REWRITER, ...)`: ICMP errors about packets that a rewriter changed go to who sent them, and quote what
//! was sent.
//!
//! Source: Click's `ICMPRewriter`. Errors about others leave by the second output, where it is used, or are dropped.

use std::sync::Arc;

use super::{Core, named, packet};
use crate::element::click::only::address_anno::Kept;
use crate::element::click::only::seen::{long, word};
use crate::frame::wire::IP4_BYTES;
use crate::frame::wire::checksum::checksum;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::{Batch, DropReason, Hop};
use crate::graph::{Context, Element, ElementClass, Exit, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("ICMPRewriter", "1/1-2", "h/h", "x/x").outputs(&["out", "others"]),
    summary: "changes ICMP errors about flows that a rewriter changed",
    configure: |setup| {
        let reply = setup.args.keyword_arg("REPLY_ANNO")?;
        let follows = setup.args.keyword("DST_ANNO");
        let arg = setup.args.positional_arg("REWRITERS")?;
        let words: Vec<_> = arg.words().collect();
        let cores: Vec<_> = words.iter().map(|word| named(setup, word)).collect();
        setup.args.finish()?;
        let cores: Arc<[Arc<Core>]> = cores.into_iter().collect::<Result<Vec<_>, _>>()?.into();
        let (exit, paints) = (setup.exit(1, DropReason::Unmatched), reply.is_some());
        let kept = Kept::new(setup, follows?);
        Ok(Made::new(move |_| Errors { cores: cores.clone(), exit, paints, kept: kept.clone() }))
    },
};

struct Errors {
    cores: Arc<[Arc<Core>]>,
    exit: Exit,
    paints: bool,
    kept: Kept,
}

impl Errors {
    /// Changes an error, and gives the paint that it gets; `None` where it is about no known flow.
    fn change(&self, ip: &mut [u8], now_ns: u64) -> Option<Option<u8>> {
        if ip.len() < IP4_BYTES || ip[0] >> 4 != 4 {
            return None;
        }
        let header = usize::from(ip[0] & 15) * 4;
        if header < IP4_BYTES {
            return None;
        }
        let stated = usize::from(word(ip, 2)?).min(ip.len());
        let kind = *ip.get(header)?;
        // Errors quote what they are about behind 8 bytes.
        if ip[9] != PROTOCOL_ICMP || !matches!(kind, 3 | 4 | 5 | 11 | 12) {
            return None;
        }
        let at = header + 8;
        for core in self.cores.iter() {
            let Some(config) = core.config.get() else { continue };
            let quoted = ip.get(at..stated)?;
            // Of what is quoted it is known that it was whole.
            let Some((protocol, id)) = quoted_ends(quoted, config.kind.has_ports()) else {
                continue;
            };
            let mut session = config.table.session();
            let Some(found) = config.find(&mut session, protocol, id.reverse(), now_ns) else {
                continue;
            };
            let change = config.change(&mut session, found, id.reverse());
            let paint = session.flow(found).reply_anno;
            drop(session);
            let sent = change.to.reverse();
            let src = long(ip, 12)?;
            packet::rewrite(&mut ip[at..stated], id, sent, config.kind.has_ports());
            ip[16..20].copy_from_slice(&sent.src.to_be_bytes());
            // Where the host answers that the packet went to.
            if src == id.dst {
                ip[12..16].copy_from_slice(&sent.dst.to_be_bytes());
            }
            ip[header + 2..header + 4].fill(0);
            let sum = checksum(&ip[header..stated]);
            ip[header + 2..header + 4].copy_from_slice(&sum.to_be_bytes());
            ip[10..12].fill(0);
            let sum = checksum(&ip[..header]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            return Some(Some(paint).filter(|_| found.reply));
        }
        None
    }
}

/// Ends of a packet that is quoted, perhaps in part.
fn quoted_ends(quoted: &[u8], ports: bool) -> Option<(u8, super::FlowId)> {
    if quoted.len() < 20 || quoted[0] >> 4 != 4 {
        return None;
    }
    packet::ends(quoted, 0, ports)
}

impl Element for Errors {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.kept.note(batch);
        for i in 0..batch.len() {
            let network = usize::from(batch.meta()[i].network);
            let ip = batch.bytes_mut(i).get_mut(network..).unwrap_or_default();
            match self.change(ip, cx.now_ns) {
                None => self.exit.take(batch, i),
                Some(paint) => {
                    let meta = &mut batch.meta_mut()[i];
                    meta.hop = Hop::NONE;
                    if let Some(paint) = paint.filter(|_| self.paints) {
                        meta.paint = paint;
                    }
                }
            }
        }
        self.kept.restore(batch);
    }
}
