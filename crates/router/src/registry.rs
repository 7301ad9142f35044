//! Rows of all crates, joined: what graphs of this program may name.

use std::sync::LazyLock;

use fingerpost_io::interface;
use fingerpost_packet::device::{self, Driver};
use fingerpost_packet::graph::ElementClass;
use fingerpost_packet::{ELEMENTS, Registry};

static DRIVERS: LazyLock<Vec<Driver>> =
    LazyLock::new(|| [device::DRIVERS, fingerpost_io::DRIVERS].concat());

/// Elements of a router that is a node of a cluster.
static NODE_ELEMENTS: LazyLock<Vec<ElementClass>> =
    LazyLock::new(|| [ELEMENTS, fingerpost_cluster::element::ELEMENTS].concat());

/// Every port driver.
pub(crate) fn drivers() -> &'static [Driver] {
    &DRIVERS
}

/// Every element and every port driver.
pub(crate) fn all() -> Registry {
    Registry { elements: ELEMENTS, drivers: drivers(), interfaces: interface::addresses }
}

/// Every element, those of a cluster node among them, and every port driver.
pub(crate) fn of_node() -> Registry {
    Registry { elements: &NODE_ELEMENTS, drivers: drivers(), interfaces: interface::addresses }
}
