//! What a step of a trace means in the cluster: the node that a packet came from, its egress node, and the path there with
//! the reason for it, as the element at the input left it in the trace.
//!
//! Limits: the threshold is that of this moment.

use fingerpost_cluster::element::reason::Reason;
use fingerpost_cluster::flowlet::Outcome;
use fingerpost_cluster::frame::{HEADER_BYTES, Header, LOOKUP};
use fingerpost_cluster::rule::{NodeId, Rule, Why};
use fingerpost_packet::graph::trace::Wanted;

use super::Node;
use super::status::microseconds;

impl Node {
    /// Words for what an element of a class made of a frame; none for elements that are not the cluster's, and for packets
    /// that pass them.
    pub(in crate::daemon) fn step(
        &self,
        class: &str,
        before: &[u8],
        after: &[u8],
        reason: u32,
    ) -> Option<String> {
        let settings = &self.fabric.settings;
        let header = |frame| Header::parse(frame, settings.ethertype).ok();
        match class {
            "ClusterInput" => {
                let Header { hop, output, .. } = header(after)?;
                let why = Reason::of(reason).map_or_else(String::new, |reason| self.why(reason));
                let (to, by) = (self.name(output), self.ports.link(hop)?.0);
                Some(match hop == output {
                    true => format!("to node {to} by the direct link {by}: {why}"),
                    false => format!("to node {to} over node {} by {by}: {why}", self.name(hop)),
                })
            }
            "ClusterTransit" => {
                let Header { sender, output, .. } = header(before)?;
                let from = self.name(sender);
                Some(if output == settings.node {
                    format!("from node {from}, leaves the cluster here")
                } else {
                    let by = self.ports.link(output)?.0;
                    format!("from node {from} to node {} by {by}", self.name(output))
                })
            }
            "ClusterOutput" => {
                let Header { sender, adjacency, .. } = header(before)?;
                let from = self.name(sender);
                Some(match adjacency {
                    LOOKUP => format!("from node {from}, which names no adjacency"),
                    index => format!("from node {from}, which names adjacency {index}"),
                })
            }
            _ => None,
        }
    }

    /// Reason for a path.
    fn why(&self, reason: Reason) -> String {
        let Reason::Rule(why, outcome) = reason else { return "mode direct".to_owned() };
        let rule = self.fabric.paths().rule;
        let threshold = format!("the threshold of {:.1} us", microseconds(rule.threshold));
        let why = match why {
            Why::SameNode => "it leaves by this node".to_owned(),
            Why::DrewEnd => "drawn by weight, as an end of the path".to_owned(),
            Why::Drawn if rule.rule == Rule::Fixed => {
                "the allowance of the direct link was used up".to_owned()
            }
            Why::Drawn => "drawn by weight".to_owned(),
            Why::Allowance => "the allowance of the direct link had room".to_owned(),
            Why::ShortQueue => format!("the backlog of the direct link was below {threshold}"),
            Why::Shorter => format!(
                "the backlog of the direct link was not below {threshold}, and the one of this link was shorter"
            ),
            Why::NoneShorter => format!(
                "the backlog of the direct link was not below {threshold}, and none of two others was shorter"
            ),
            Why::NoIntermediate => "there was no intermediate node".to_owned(),
            Why::NoDirect => "the direct link was down".to_owned(),
        };
        match outcome {
            Outcome::Began | Outcome::Local => why,
            Outcome::Kept => format!("it continues a flowlet, for which {why}"),
            Outcome::Lost => format!("the path of its flowlet failed or drains; {why}"),
            Outcome::Sprayed => format!("the link of its flowlet was full; {why}"),
        }
    }

    /// Has a trace look for packets in internal frames, too.
    pub(in crate::daemon) fn trace_inside(&self, wanted: Wanted) -> Wanted {
        wanted.inside(self.fabric.settings.ethertype, HEADER_BYTES)
    }

    fn name(&self, node: NodeId) -> String {
        let mut members = self.membership.members.iter();
        let found = members.find(|record| record.number == node);
        found.map_or_else(|| node.to_string(), |record| record.id.clone())
    }
}
