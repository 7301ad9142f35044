//! Elements that look at what others do, of Click's folder of tests: packets that are compared, tasks that count their turns,
//! a source's signal by hand, those of queues, names of what is around.
//!
//! Source: Click's elements of these names. Its other tests are C++ of its own library.

pub(crate) mod check_packet;
pub(crate) mod compare_packets;
pub(crate) mod neighborhood;
pub(crate) mod notifier_debug;
pub(crate) mod tasks;
pub(crate) mod timer;
pub(crate) mod upstream_notifier;
