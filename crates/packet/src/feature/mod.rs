//! The registry of interface features; `row.rs` is the seam.

pub mod acl;
pub mod policer;
pub(crate) mod ports;
mod reader;
pub mod redirects;
pub mod row;
pub mod sampling;
mod set;
pub mod source_filter;
pub mod urpf;
mod value;

pub use reader::{Mistake, TableReader, word};
pub use row::Feature;
pub use set::{FeatureSettings, FeatureStates};
pub use value::Value;

/// Every interface feature.
pub static FEATURES: &[Feature] = &[
    sampling::FEATURE,
    source_filter::FEATURE,
    acl::FEATURE,
    urpf::FEATURE,
    policer::FEATURE,
    redirects::FEATURE,
];
