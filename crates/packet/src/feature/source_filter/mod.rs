//! Source filters: lists of source prefixes, what is done with packets from there, and the interfaces that they are for.
//!
//! `settings.rs` reads `[[source_filter]]`, `filters.rs` is what runs, `element.rs` the step in the graph.

mod element;
mod filters;
mod settings;

pub use crate::element::support::allowance::Rate;
pub use crate::element::support::source_sets::Action;
pub use filters::{Covering, Filter, Row, SourceFilters};
pub use settings::{Settings, prefix};

pub use super::reader::rate;
use super::row::{Column, Feature, FeatureArc, Key, Stage};
use crate::frame::DropReason;

/// The row.
pub(super) const FEATURE: Feature = Feature {
    name: "source-filter",
    summary: "passes, drops, counts or limits packets by lists of source prefixes",
    key: None,
    section: Some(Key { name: "source_filter", former: Some("filter"), fields: settings::FIELDS }),
    read: settings::read,
    stages: &[Stage {
        name: "source_filter",
        arc: FeatureArc::Ingress,
        after: &[],
        element: &element::CLASS,
    }],
    guards: true,
    kernel: "the kernel forwards, by its own rules",
    drop_reasons: &[DropReason::SourceFilter],
    columns: &[
        Column { field: "name", heading: "name", summary: "Name of the filter." },
        Column {
            field: "action",
            heading: "action",
            summary: "`pass` (whatever other filters do), `drop`, `limit`, `count`.",
        },
        Column {
            field: "rate",
            heading: "rate",
            summary: "Packets or bytes a second that pass in each worker; null without a limit.",
        },
        Column {
            field: "interfaces",
            heading: "interfaces",
            summary: "The interfaces whose packets it is for; null for all that are forwarded here.",
        },
        Column { field: "prefixes_v4", heading: "ipv4", summary: "Number of IPv4 prefixes." },
        Column { field: "prefixes_v6", heading: "ipv6", summary: "Number of IPv6 prefixes." },
        Column {
            field: "packets",
            heading: "packets",
            summary: "Packets from there that arrived on these interfaces.",
        },
        Column {
            field: "bytes",
            heading: "bytes",
            summary: "Bytes of these packets, Ethernet headers included.",
        },
        Column {
            field: "dropped",
            heading: "dropped",
            summary: "Packets of these that were dropped, by this filter or another one.",
        },
    ],
};
