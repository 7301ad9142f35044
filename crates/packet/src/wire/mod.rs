//! Headers as they lie in a frame: read and written in place, no copies, no allocation.

pub mod checksum;
pub mod icmp;
