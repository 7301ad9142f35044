//! The registry of elements that the built-in router is made of.

pub(crate) mod device;
pub(crate) mod drop_cause;
pub(crate) mod ether_input;
pub(crate) mod fill_checksum;
pub(crate) mod icmp4_error;
pub(crate) mod icmp6_error;
pub(crate) mod ip4_fragment;
pub(crate) mod ip4_input;
pub(crate) mod ip4_options;
pub(crate) mod ip6_input;
pub(crate) mod ip_lookup;
pub(crate) mod next_hop;
pub(crate) mod resolver;

use crate::graph::ElementClass;

/// Classes of elements that the built-in router is made of.
pub(crate) static ELEMENTS: &[ElementClass] = &[
    device::FROM,
    device::FROM_ALL,
    device::TO,
    device::TO_ALL,
    drop_cause::CLASS,
    ether_input::CLASS,
    fill_checksum::CLASS,
    resolver::CLASS,
    icmp4_error::CLASS,
    icmp6_error::CLASS,
    ip4_fragment::CLASS,
    ip4_fragment::FRAGMENTER,
    ip4_input::CLASS,
    ip4_options::CLASS,
    ip4_options::GATEWAY,
    ip6_input::CLASS,
    ip_lookup::CLASS4,
    ip_lookup::CLASS6,
    next_hop::CLASS4,
    next_hop::CLASS6,
];
