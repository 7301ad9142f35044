//! The registry of elements: graphs, documents and conformance tests loop over its rows.

pub(crate) mod allowance;
mod api;
mod arp_querier;
mod arp_responder;
mod check_ip_header;
mod check_length;
mod classifier;
mod control_socket;
mod counter;
mod dec_ttl;
mod delay;
mod device;
mod discard;
mod drop_broadcasts;
mod drop_cause;
mod dump;
pub(crate) mod ether_input;
mod fill_checksum;
mod fix_ip_src;
mod front;
mod hold;
pub(crate) mod icmp4_error;
pub(crate) mod icmp6_error;
mod icmp_error;
mod idle;
mod ip4_fragment;
mod ip4_input;
mod ip4_options;
mod ip6_input;
mod ip_combo;
mod ip_filter;
mod ip_lookup;
mod ip_reassembler;
mod meter;
mod nd_advertiser;
mod nd_solicitor;
mod neighbors;
mod next_hop;
mod paint;
#[cfg(any(test, feature = "testing"))]
mod panic_after;
mod ping_responder;
mod prefix_counter;
mod print;
mod querier;
pub(crate) mod questions;
mod queue;
mod rated;
mod route_lookup;
mod sched;
pub(crate) mod set_ip_dscp;
mod setting;
mod setup;
mod sift;
mod source;
mod source_filter;
pub(crate) mod source_sets;
mod switch;
mod tee;
mod unqueue;
pub(crate) mod urpf_check;
mod vlan;
mod waiting;

pub use api::{Context, Element, Held, Inputs, Transmit};
pub(crate) use setup::{Around, Devices, Kept, Shown};
pub use setup::{Device, ElementClass, Exit, Made, Receives, Registry, Setup};

/// Every class of elements.
pub static ELEMENTS: &[ElementClass] = &[
    arp_querier::CLASS,
    arp_responder::CLASS,
    check_ip_header::COMBO,
    check_ip_header::CLASS4,
    check_ip_header::CLASS6,
    check_length::CLASS,
    classifier::CLASS,
    control_socket::CLASS,
    counter::CLASS,
    dec_ttl::CLASS4,
    dec_ttl::CLASS6,
    delay::SHAPER,
    delay::UNQUEUE,
    device::FROM,
    device::FROM_ALL,
    device::TO,
    device::TO_ALL,
    discard::CLASS,
    drop_broadcasts::CLASS,
    drop_cause::CLASS,
    dump::FROM,
    dump::TO,
    ether_input::CLASS,
    fill_checksum::CLASS,
    fix_ip_src::CLASS,
    front::ETHER_ENCAP,
    front::STRIP,
    front::UNSTRIP,
    hold::CLASS,
    icmp4_error::CLASS,
    icmp6_error::CLASS,
    icmp_error::CLASS4,
    icmp_error::CLASS6,
    idle::CLASS,
    ip4_fragment::CLASS,
    ip4_fragment::FRAGMENTER,
    ip4_input::CLASS,
    ip4_options::CLASS,
    ip4_options::GATEWAY,
    ip6_input::CLASS,
    ip_combo::CLASS,
    ip_filter::CLASSIFIER,
    ip_filter::FILTER,
    ip_lookup::CLASS4,
    ip_lookup::CLASS6,
    ip_reassembler::CLASS,
    meter::BYTES,
    meter::PACKETS,
    nd_advertiser::CLASS,
    nd_solicitor::CLASS,
    next_hop::CLASS4,
    next_hop::CLASS6,
    paint::PAINT,
    paint::SWITCH,
    paint::TEE,
    #[cfg(any(test, feature = "testing"))]
    panic_after::CLASS,
    ping_responder::CLASS,
    prefix_counter::CLASS,
    print::CLASS,
    queue::CLASS,
    rated::BYTE_SHAPER,
    rated::BYTE_SPLITTER,
    rated::BYTE_UNQUEUE,
    rated::SHAPER,
    rated::SPLITTER,
    rated::UNQUEUE,
    route_lookup::STATIC,
    route_lookup::LINEAR,
    route_lookup::SORTED,
    route_lookup::RADIX,
    route_lookup::DIRECT,
    route_lookup::RANGE,
    route_lookup::DXR,
    route_lookup::BSD,
    route_lookup::BSD6,
    route_lookup::POPTRIE,
    route_lookup::ANY,
    route_lookup::ANY6,
    sched::ROUND_ROBIN,
    sched::PRIORITY,
    set_ip_dscp::CLASS,
    source::CLASS,
    source::RANDOM,
    source::RATED,
    source_filter::CLASS,
    switch::CLASS,
    tee::CLASS,
    unqueue::CLASS,
    urpf_check::CLASS,
    vlan::DECAP,
    vlan::ENCAP,
    vlan::ETHER_ENCAP,
    vlan::SET,
    vlan::STRIP,
];
