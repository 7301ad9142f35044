//! The registry of elements: graphs, documents and conformance tests loop over its rows.

pub mod click;
pub(crate) mod router;
pub mod support;

use crate::graph::ElementClass;

/// Classes of elements, but those of interface features.
pub(crate) static ELEMENTS: [&[ElementClass]; 3] = [click::ELEMENTS, router::ELEMENTS, CLICK_ONLY];

/// Those that a router has no use for.
#[cfg(feature = "click")]
static CLICK_ONLY: &[ElementClass] = click::only::ELEMENTS;
#[cfg(not(feature = "click"))]
static CLICK_ONLY: &[ElementClass] = &[];
