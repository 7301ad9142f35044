//! What the classifiers of a router share: the addresses that they leave to the kernel, and whether the router is there.
//!
//! Shape: a hash map a family, keyed by the address in network order.
//! Cost:  40 to 60 bytes of kernel memory an address, taken as they come; about 15 ns a packet.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Mutex;

use super::XdpError;
use super::bpf::{Map, MapKind};
use super::presence::{Presence, Watch};

/// Addresses at most, a family: far more than a router's own, few enough to read in one go.
const MOST: u32 = 65_536;

/// The host's own addresses on all interfaces, and the broadcast and all-zeros addresses of its
/// subnets. Changes are seen by the next packet.
#[derive(Debug)]
pub struct LocalAddresses {
    pub(super) v4: Map,
    pub(super) v6: Map,
    pub(super) presence: Presence,
    known: Mutex<HashSet<IpAddr>>,
}

impl LocalAddresses {
    /// None.
    ///
    /// # Errors
    /// When the kernel makes no maps.
    pub fn new() -> Result<Self, XdpError> {
        Ok(Self {
            v4: Map::new(MapKind::Hash, "local_v4", 4, 4, MOST)?,
            v6: Map::new(MapKind::Hash, "local_v6", 16, 4, MOST)?,
            presence: Presence::new()?,
            known: Mutex::default(),
        })
    }

    /// Has classifiers leave all frames to the kernel from the moment on at which this process ends, before its sockets
    /// are closed. Keep what is returned.
    ///
    /// # Errors
    /// What the kernel says; `EPERM` without CAP_PERFMON.
    pub fn watch(&self) -> Result<Watch, XdpError> {
        self.presence.watch()
    }

    /// Adds an address; `false` when it was there.
    ///
    /// # Errors
    /// `Limit` when there are too many, else what the kernel says.
    pub fn insert(&self, address: IpAddr) -> Result<bool, XdpError> {
        let mut known = self.known.lock().expect("no panic while it is held");
        self.add(&mut known, address)
    }

    /// Removes an address; `false` when it was not there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove(&self, address: IpAddr) -> Result<bool, XdpError> {
        let mut known = self.known.lock().expect("no panic while it is held");
        self.take(&mut known, address)
    }

    /// Makes the set these addresses: adds what is missing, then removes what is too much.
    ///
    /// # Errors
    /// As `insert` and `remove`; the set then lies between the old and the new.
    pub fn set(&self, addresses: impl IntoIterator<Item = IpAddr>) -> Result<(), XdpError> {
        let mut known = self.known.lock().expect("no panic while it is held");
        let wanted: HashSet<IpAddr> = addresses.into_iter().collect();
        for &address in &wanted {
            self.add(&mut known, address)?;
        }
        let gone: Vec<IpAddr> = known.difference(&wanted).copied().collect();
        for address in gone {
            self.take(&mut known, address)?;
        }
        Ok(())
    }

    /// Whether it is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.known.lock().expect("no panic while it is held").contains(&address)
    }

    fn add(&self, known: &mut HashSet<IpAddr>, address: IpAddr) -> Result<bool, XdpError> {
        if known.contains(&address) {
            return Ok(false);
        }
        let result = match address {
            IpAddr::V4(v4) => self.v4.update(&v4.octets(), &[0; 4]),
            IpAddr::V6(v6) => self.v6.update(&v6.octets(), &[0; 4]),
        };
        result.map_err(|source| match source.raw_os_error() {
            Some(libc::E2BIG) => XdpError::Limit {
                what: "local address",
                max: MOST as usize,
                need: MOST as usize + 1,
            },
            _ => XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of local addresses", source },
        })?;
        Ok(known.insert(address))
    }

    fn take(&self, known: &mut HashSet<IpAddr>, address: IpAddr) -> Result<bool, XdpError> {
        if !known.contains(&address) {
            return Ok(false);
        }
        match address {
            IpAddr::V4(v4) => self.v4.delete(&v4.octets()),
            IpAddr::V6(v6) => self.v6.delete(&v6.octets()),
        }
        .map_err(|source| XdpError::System {
            call: "bpf(MAP_DELETE_ELEM) of local addresses",
            source,
        })?;
        Ok(known.remove(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::super::lab;
    use super::*;

    fn in_kernel(local: &LocalAddresses, address: &str) -> bool {
        match address.parse().unwrap() {
            IpAddr::V4(v4) => local.v4.lookup(&v4.octets(), &mut [0; 4]).unwrap(),
            IpAddr::V6(v6) => local.v6.lookup(&v6.octets(), &mut [0; 4]).unwrap(),
        }
    }

    #[test]
    fn the_kernels_maps_follow_the_set() {
        if !lab::can_bpf() {
            return;
        }
        let local = LocalAddresses::new().unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(local.insert(address("10.0.0.1")).unwrap());
        assert!(!local.insert(address("10.0.0.1")).unwrap());
        assert!(local.insert(address("fd00::1")).unwrap());
        assert!(in_kernel(&local, "10.0.0.1") && in_kernel(&local, "fd00::1"));
        assert!(!in_kernel(&local, "10.0.0.2") && !in_kernel(&local, "fd00::2"));
        local.set(["fd00::1", "fd00::2", "10.0.0.2"].map(address)).unwrap();
        assert!(!in_kernel(&local, "10.0.0.1") && in_kernel(&local, "10.0.0.2"));
        assert!(in_kernel(&local, "fd00::1") && in_kernel(&local, "fd00::2"));
        assert!(local.contains(address("fd00::2")) && !local.contains(address("10.0.0.1")));
        assert!(local.remove(address("fd00::1")).unwrap());
        assert!(!local.remove(address("fd00::1")).unwrap());
        assert!(!in_kernel(&local, "fd00::1"));
    }
}
