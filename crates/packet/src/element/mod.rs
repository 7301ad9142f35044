//! The registry of elements: graphs, documents and conformance tests loop over its rows.

pub(crate) mod click;
pub(crate) mod router;
pub mod support;

use crate::graph::ElementClass;

/// Classes of elements, but those of interface features.
pub(crate) static ELEMENTS: [&[ElementClass]; 2] = [click::ELEMENTS, router::ELEMENTS];
