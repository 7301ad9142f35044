//! Rows of all crates, joined: what graphs of this program may name.

use std::sync::LazyLock;

use fingerpost_packet::device::{self, Driver};
use fingerpost_packet::{ELEMENTS, Registry};

static DRIVERS: LazyLock<Vec<Driver>> =
    LazyLock::new(|| [device::DRIVERS, fingerpost_io::DRIVERS].concat());

/// Every port driver.
pub(crate) fn drivers() -> &'static [Driver] {
    &DRIVERS
}

/// Every element and every port driver.
pub(crate) fn all() -> Registry {
    Registry { elements: ELEMENTS, drivers: drivers() }
}
