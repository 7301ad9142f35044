//! What a step of a trace means in the cluster: the node that a packet came from, its egress node, and the path there with
//! the reason for it.
//!
//! Limits: the reason is that of a new flowlet at this moment; a packet of one in progress keeps the path of that.

use fingerpost_cluster::fabric::Mode;
use fingerpost_cluster::frame::{Header, LOOKUP};
use fingerpost_cluster::rule::{Members, NodeId, Rule};
use fingerpost_packet::graph::worker::clock_start;

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
    ) -> Option<String> {
        let settings = &self.fabric.settings;
        let header = |frame| Header::parse(frame, settings.ethertype).ok();
        match class {
            "ClusterInput" => {
                let Header { hop, output, .. } = header(after)?;
                let mut reader = self.fabric.reader();
                let why = self.why(reader.pin(), hop == output, output);
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
    fn why(&self, members: &Members, direct: bool, to: NodeId) -> String {
        let settings = &self.fabric.settings;
        if !members.direct(settings.node, to) {
            return "the direct link is down".to_owned();
        }
        if settings.mode == Mode::Direct {
            return "mode direct".to_owned();
        }
        match (settings.rule.rule, direct) {
            (Rule::Vlb, _) => "drawn by rule vlb".to_owned(),
            (Rule::Fixed, true) => "the allowance of the direct link has room".to_owned(),
            (Rule::Fixed, false) => "the allowance of the direct link is used up".to_owned(),
            (Rule::Adaptive, _) => {
                let now = u64::try_from(clock_start().elapsed().as_nanos()).unwrap_or(u64::MAX);
                let backlog = self.fabric.links.backlog_ns(to, self.fabric.link_time(now));
                format!(
                    "the direct link has a backlog of {:.1} us, and the threshold is {:.1} us",
                    microseconds(backlog),
                    microseconds(settings.rule.threshold),
                )
            }
        }
    }

    fn name(&self, node: NodeId) -> String {
        let mut members = self.membership.members.iter();
        let found = members.find(|record| record.number == node);
        found.map_or_else(|| node.to_string(), |record| record.id.clone())
    }
}
