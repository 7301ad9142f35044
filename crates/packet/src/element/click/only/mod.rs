//! Elements of Click that a router has no use for: its language of scripts, summaries, and what its users' configurations
//! name besides. Feature `click` builds them in.

pub(crate) mod annotations;
pub(crate) mod average_counter;
pub(crate) mod caller;
pub(crate) mod check_transport;
pub mod clock;
pub(crate) mod encap;
pub(crate) mod hub;
pub(crate) mod info;
pub(crate) mod ip_mirror;
pub(crate) mod ip_print;
pub(crate) mod mark_ip_header;
pub(crate) mod null;
pub(crate) mod rewriter;
pub(crate) mod round_robin_switch;
pub(crate) mod script;
pub(crate) mod seen;
pub(crate) mod set_timestamp;
pub(crate) mod stride_sched;
pub(crate) mod summary;
pub(crate) mod time_sorted_sched;
pub(crate) mod timed;
pub(crate) mod truncate;

pub use crate::element::support::console;
use crate::graph::ElementClass;

/// Their classes.
pub(crate) static ELEMENTS: &[ElementClass] = &[
    average_counter::CLASS,
    check_transport::ICMP,
    check_transport::TCP,
    check_transport::UDP,
    encap::ICMP_IP,
    encap::IP,
    encap::UDP_IP,
    hub::CLASS,
    info::ADDRESSES,
    info::CLICKY,
    info::ERROR,
    info::MESSAGE,
    info::PORTS,
    info::SCHEDULE,
    ip_mirror::CLASS,
    ip_print::ARP,
    ip_print::IP,
    mark_ip_header::V4,
    mark_ip_header::V6,
    null::ALIGN,
    null::NULL,
    null::PULL,
    null::PUSH,
    rewriter::ADDR,
    rewriter::FTP,
    rewriter::ICMP,
    rewriter::IP,
    rewriter::PAIR,
    rewriter::PATTERNS,
    rewriter::TCP,
    rewriter::UDP,
    round_robin_switch::CLASS,
    script::DRIVER_MANAGER,
    script::SCRIPT,
    set_timestamp::CLASS,
    stride_sched::CLASS,
    summary::FROM,
    summary::TO,
    time_sorted_sched::CLASS,
    timed::SINK,
    timed::SOURCE,
    truncate::CLASS,
];
