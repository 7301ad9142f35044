//! What several elements share: state, rates, and how batches are sorted.

pub(crate) mod allowance;
pub(crate) mod byte_anno;
pub(crate) mod caller;
pub(crate) mod complaint;
pub mod console;
pub(crate) mod copies;
pub(crate) mod icmp_errors;
pub(crate) mod lookups;
pub(crate) mod one_instance;
pub mod own_addrs;
pub(crate) mod packets;
pub(crate) mod plain;
pub mod rate_limit;
pub(crate) mod resets;
pub(crate) mod setting;
pub(crate) mod sift;
pub(crate) mod source_addr;
pub(crate) mod source_sets;
pub(crate) mod stop;
pub mod time;
pub(crate) mod waiting;
