//! Parts that several algorithms share: allocators inside a region, reclamation, tables of fixed strides.

pub(crate) mod buddy;
pub(crate) mod extents;
pub(crate) mod line_space;
pub(crate) mod retired;
pub(crate) mod runs;
pub(crate) mod strides;
pub(crate) mod unchanging;
