//! Access lists: ordered rules that permit, deny and count packets of interfaces, on ingress and egress.
//!
//! `settings.rs` reads `[[acl]]`, `rules.rs` has a list's rules and compiles them, `classify.rs` is the structure that
//! decides among thousands of them, `lists.rs` is what runs, `element.rs` the step in the graph, `kernel.rs`
//! the form that the XDP datapath reads.

mod classify;
mod element;
mod kernel;
mod lists;
mod rules;
mod settings;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use kernel::KernelLists;
pub use lists::{AccessLists, Direction};
pub use rules::{Rule, Verdict};
pub use settings::{IngressList, Settings};

use super::row::{Column, Feature, FeatureArc, Key, Stage};
use crate::frame::DropReason;

/// The row.
pub(super) const FEATURE: Feature = Feature {
    name: "acl",
    summary: "permits, denies and counts packets by ordered rules, on ingress and egress",
    key: None,
    section: Some(Key { name: "acl", former: None, fields: settings::FIELDS }),
    read: settings::read,
    stages: &[
        Stage {
            name: "acl_in",
            arc: FeatureArc::Ingress,
            // A packet that a list of sources drops needs no search.
            after: &["source_filter"],
            element: &element::INGRESS,
        },
        Stage { name: "acl_out", arc: FeatureArc::Egress, after: &[], element: &element::EGRESS },
    ],
    guards: true,
    kernel: "the kernel forwards, by its own rules",
    drop_reasons: &[DropReason::Acl],
    columns: &[
        Column { field: "acl", heading: "acl", summary: "Name of the ACL; null for a counter." },
        Column { field: "direction", heading: "direction", summary: "`in` or `out`." },
        Column {
            field: "interfaces",
            heading: "interfaces",
            summary: "The interfaces whose packets it is for; null for all that are forwarded here.",
        },
        Column {
            field: "number",
            heading: "rule",
            summary: "Place of the rule, from 1; null for what is denied because no rule decides, and for counters.",
        },
        Column {
            field: "rule",
            heading: "text",
            summary: "Text of the rule, or name of the counter.",
        },
        Column { field: "packets", heading: "packets", summary: "Packets that the rule took." },
        Column {
            field: "bytes",
            heading: "bytes",
            summary: "Bytes of these packets, Ethernet headers included.",
        },
    ],
};
