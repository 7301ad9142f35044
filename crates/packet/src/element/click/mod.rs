//! The registry of elements for graphs of files: those of Click, and ours beside them.

pub(crate) mod arp_querier;
pub(crate) mod arp_responder;
pub(crate) mod check_ip_header;
pub(crate) mod check_length;
pub(crate) mod classifier;
pub(crate) mod control_socket;
pub(crate) mod counter;
pub(crate) mod dec_ttl;
pub(crate) mod delay;
pub(crate) mod discard;
pub(crate) mod drop_broadcasts;
pub(crate) mod dump;
pub(crate) mod ether_mirror;
pub(crate) mod fix_ip_src;
pub(crate) mod front;
pub(crate) mod icmp_error;
pub(crate) mod idle;
pub(crate) mod ip_combo;
pub(crate) mod ip_filter;
pub(crate) mod ip_reassembler;
pub(crate) mod meter;
pub(crate) mod nd_advertiser;
pub(crate) mod nd_solicitor;
pub(crate) mod neighbors;
#[cfg(feature = "click")]
pub mod only;
pub(crate) mod paint;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod panic_after;
pub(crate) mod ping_responder;
pub(crate) mod prefix_counter;
pub(crate) mod print;
pub(crate) mod querier;
pub(crate) mod queue;
pub(crate) mod rated;
pub(crate) mod route_lookup;
pub(crate) mod sched;
pub(crate) mod set_ip_dscp;
mod sorting;
pub(crate) mod source;
pub(crate) mod source_filter;
pub(crate) mod switch;
pub(crate) mod tee;
pub(crate) mod unqueue;
pub(crate) mod urpf_check;
pub(crate) mod vlan;

use crate::graph::ElementClass;

/// Classes of elements for graphs of files.
pub(crate) static ELEMENTS: &[ElementClass] = &[
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
    discard::CLASS,
    drop_broadcasts::CLASS,
    dump::FROM,
    dump::TO,
    ether_mirror::CLASS,
    fix_ip_src::CLASS,
    front::ETHER_ENCAP,
    front::STRIP,
    front::UNSTRIP,
    icmp_error::CLASS4,
    icmp_error::CLASS6,
    idle::CLASS,
    ip_combo::CLASS,
    ip_filter::CLASSIFIER,
    ip_filter::FILTER,
    ip_reassembler::CLASS,
    meter::BYTES,
    meter::PACKETS,
    nd_advertiser::CLASS,
    nd_solicitor::CLASS,
    paint::PAINT,
    paint::SWITCH,
    paint::TEE,
    #[cfg(any(test, feature = "testing"))]
    panic_after::CLASS,
    ping_responder::CLASS,
    prefix_counter::CLASS,
    print::CLASS,
    queue::CLASS,
    queue::FRONT_DROP,
    queue::FULL_NOTE,
    queue::MIXED,
    queue::NOTIFIER,
    queue::QUICK_NOTE,
    queue::SIMPLE,
    queue::THREAD_SAFE,
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
