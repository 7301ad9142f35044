//! Elements of Click that a router has no use for: its language of scripts, summaries, and what its users'
//! configurations name besides. Feature `click` builds them in.

pub(crate) mod address_anno;
pub(crate) mod address_translator;
pub(crate) mod aggregate;
pub(crate) mod aggregate_counter;
pub(crate) mod annotations;
pub(crate) mod anonymize;
pub(crate) mod arp_table;
pub(crate) mod average_counter;
pub(crate) mod bypass;
pub(crate) mod check_arp_header;
pub(crate) mod check_transport;
mod checked;
mod checksums;
pub(crate) mod clipboard;
pub mod clock;
pub(crate) mod codel;
pub(crate) mod cpu_switch;
pub(crate) mod crc;
pub(crate) mod device;
pub(crate) mod drr_sched;
pub(crate) mod dump_encap;
pub(crate) mod dump_seek;
pub(crate) mod dump_window;
pub(crate) mod each;
pub(crate) mod encap;
pub(crate) mod ether_anno;
pub(crate) mod ether_fields;
pub(crate) mod ether_switch;
pub(crate) mod fast_udp_flows;
pub(crate) mod fast_udp_source;
pub(crate) mod heads;
pub(crate) mod hub;
pub(crate) mod info;
pub(crate) mod input_switches;
mod interval;
pub(crate) mod ip6;
pub(crate) mod ip6_fragmenter;
pub(crate) mod ip_mirror;
pub(crate) mod ip_print;
pub(crate) mod link_unqueue;
pub(crate) mod mark_ip_header;
pub(crate) mod mcast_socket;
pub(crate) mod nearest;
pub(crate) mod null;
pub(crate) mod paint_checks;
pub(crate) mod payload;
pub(crate) mod ping_source;
pub(crate) mod protocol_translator;
pub(crate) mod pull_tee;
pub(crate) mod quit_watcher;
pub(crate) mod random;
pub(crate) mod rate_block;
pub(crate) mod rate_monitor;
pub(crate) mod received;
pub(crate) mod red;
pub(crate) mod reframe;
pub(crate) mod renamed;
pub(crate) mod rewriter;
pub(crate) mod round_robin_switch;
pub(crate) mod sched_order_test;
pub(crate) mod script;
pub(crate) mod seen;
pub(crate) mod set_checksum;
pub(crate) mod set_timestamp;
pub(crate) mod socket;
pub(crate) mod stride_sched;
pub(crate) mod strip_header;
pub(crate) mod summary;
pub(crate) mod suppressor;
pub(crate) mod switches;
pub(crate) mod tcp_fragmenter;
pub(crate) mod tcp_reflector;
pub(crate) mod testing;
pub(crate) mod thread_sched;
pub(crate) mod time_sorted_sched;
pub(crate) mod timed;
pub(crate) mod times;
pub(crate) mod toy_tcp;
pub(crate) mod truncate;
pub(crate) mod udp_record;
pub(crate) mod unqueues;

pub use crate::element::support::{console, time};
use crate::graph::ElementClass;

/// Their classes.
pub(crate) static ELEMENTS: &[ElementClass] = &[
    address_anno::GET,
    address_anno::GET6,
    address_anno::RANDOM,
    address_anno::SET,
    address_anno::SET6,
    address_anno::STORE,
    address_translator::CLASS,
    aggregate::picks::FILTER,
    aggregate::picks::FIRST,
    aggregate::flows::FLOWS,
    aggregate::IP,
    aggregate::LENGTH,
    aggregate::PAINT,
    aggregate::flows::PAIRS,
    aggregate_counter::CLASS,
    aggregate_counter::LAST,
    aggregate::packets::CLASS,
    anonymize::CLASS,
    arp_table::CLASS,
    average_counter::CLASS,
    bypass::CLASS,
    check_arp_header::CLASS,
    check_transport::ICMP,
    check_transport::TCP,
    check_transport::UDP,
    clipboard::CLASS,
    codel::CLASS,
    super::queue::CPU,
    cpu_switch::CLASS,
    crc::CHECK,
    crc::SET,
    device::FROM_DPDK,
    device::FROM_HOST,
    device::POLL,
    device::TAP,
    device::TO_DPDK,
    device::TO_HOST,
    device::TO_SNIFFERS,
    device::TUN,
    drr_sched::CLASS,
    encap::DYNAMIC,
    encap::ICMP_IP,
    encap::IP,
    encap::UDP_IP,
    ether_anno::GET,
    ether_anno::SET,
    ether_switch::CLASS,
    ether_switch::LISTENED,
    ether_fields::ENSURE,
    ether_fields::HOST_FILTER,
    ether_fields::REWRITE,
    ether_fields::STORE,
    fast_udp_flows::CLASS,
    fast_udp_source::V4,
    fast_udp_source::V6,
    hub::CLASS,
    info::ADDRESSES,
    info::ANNOTATIONS,
    info::CLICKY,
    info::ERROR,
    info::MESSAGE,
    info::PORTS,
    info::SCHEDULE,
    ip6::ADVERTISER,
    ip6::ENCAP,
    ip6::LOOKUP,
    ip6::MIRROR,
    ip6::PRINT,
    ip6::SET_DSCP,
    ip6::SOLICITOR,
    ip6::UDP_ENCAP,
    ip6_fragmenter::CLASS,
    ip_mirror::CLASS,
    ip_print::ARP,
    ip_print::IP,
    link_unqueue::CLASS,
    mark_ip_header::V4,
    mark_ip_header::V6,
    mcast_socket::CLASS,
    null::ALIGN,
    null::NULL,
    null::PULL,
    null::PUSH,
    paint_checks::CHECK,
    paint_checks::MARK_CE,
    paint_checks::PACKET_TYPE,
    paint_checks::SET,
    paint_checks::SET_ECN,
    payload::ERASE,
    payload::PAD,
    payload::RESIZE,
    payload::STORE_DATA,
    payload::TRUNCATE,
    ping_source::CLASS,
    ping_source::OLD,
    protocol_translator::TO_V4,
    protocol_translator::TO_V6,
    input_switches::CLASS,
    input_switches::SIMPLE,
    input_switches::STATIC,
    pull_tee::CLASS,
    quit_watcher::CLASS,
    random::BIT_ERRORS,
    random::SAMPLE,
    random::SEED,
    random::SWITCH,
    rate_block::BLOCK,
    rate_block::COMPARE,
    rate_monitor::CLASS,
    red::ADAPTIVE,
    red::RED,
    reframe::CLASS,
    renamed::ALIGNMENT,
    renamed::CHECK_IP,
    renamed::DEVIRTUALIZE,
    renamed::DISCARD,
    renamed::ERROR,
    renamed::FIELDS,
    renamed::FLOW,
    renamed::IDLE,
    renamed::NAMES,
    renamed::NULL1,
    renamed::NULL2,
    renamed::NULL3,
    renamed::NULL4,
    renamed::NULL5,
    renamed::NULL6,
    renamed::NULL7,
    renamed::NULL8,
    renamed::PING_ENCAP,
    renamed::PRIORITY,
    renamed::VLAN_ENCAP,
    renamed::VLAN_SET,
    renamed::VLAN_STRIP,
    rewriter::ADDR,
    rewriter::FTP,
    rewriter::ICMP,
    rewriter::IP,
    rewriter::BY_SOURCE,
    rewriter::IN_TURN,
    rewriter::PAIR,
    rewriter::PATTERNS,
    rewriter::PING,
    rewriter::TCP,
    rewriter::UDP,
    round_robin_switch::CLASS,
    sched_order_test::CLASS,
    script::DRIVER_MANAGER,
    script::SCRIPT,
    set_checksum::IP,
    set_checksum::TCP,
    set_checksum::UDP,
    set_timestamp::CLASS,
    socket::CLASS,
    socket::FROM,
    socket::TO,
    stride_sched::CLASS,
    strip_header::IP,
    strip_header::MARK_MAC,
    strip_header::TO_NETWORK,
    strip_header::UNSTRIP,
    summary::FLOWS,
    summary::FROM,
    summary::FROM_TCPDUMP,
    summary::TO,
    suppressor::CLASS,
    switches::HASH,
    input_switches::INPUT,
    switches::STATIC,
    switches::STRIDE,
    tcp_fragmenter::CLASS,
    tcp_reflector::CLASS,
    testing::check_packet::CLASS,
    testing::compare_packets::CLASS,
    testing::neighborhood::CLASS,
    testing::notifier_debug::CLASS,
    testing::tasks::HANDLER,
    testing::tasks::NULL,
    testing::timer::CLASS,
    testing::upstream_notifier::CLASS,
    thread_sched::ACQUIRE,
    thread_sched::BALANCED,
    thread_sched::LOCKS,
    thread_sched::PUSH,
    thread_sched::RELEASE,
    thread_sched::STATIC,
    time_sorted_sched::CLASS,
    timed::SINK,
    timed::SOURCE,
    times::ACCUM,
    times::ADJUST,
    times::DELTA,
    times::FILTER,
    times::RANGE,
    times::STORE,
    toy_tcp::TOY,
    toy_tcp::WEB,
    truncate::CLASS,
    udp_record::CLASS,
    unqueues::BURSTER,
    unqueues::ROUND_ROBIN,
    unqueues::SECOND,
    unqueues::TIMED,
];
