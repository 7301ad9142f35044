//! What the classifiers of a router share: the addresses that they leave to the kernel, and whether the router is there.
//!
//! Shape: a hash map a family, keyed by the address in network order, and before it a filter of 4,096 bits
//!        ([`fingerpost_packet::element::support::own_addrs`]), which forwarding programs read for each packet: only what it does not exclude
//!        is looked up in the map, so that the answer is exact.
//! Cost:  40 to 60 bytes of kernel memory an address, taken as they come, and a page a filter. The filter costs a
//!        read a packet; the map about 15 ns, for packets of a classifier and one foreign address in thousands.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::XdpError;
use super::bpf::{Map, MapKind, SharedMemory};
use super::presence::{Presence, Pulse, Watch};
use fingerpost_packet::element::support::own_addrs::{Filter, filter_of};

/// Addresses at most, a family: far more than a router's own, few enough to read in one go.
const MOST: u32 = 65_536;
/// Who gives all addresses knows of one that was inserted before within this time.
const EARLY: Duration = Duration::from_secs(30);

/// The host's own addresses on all interfaces, and the broadcast and all-zeros addresses of its
/// prefixes. Changes are seen by the next packet.
#[derive(Debug)]
pub struct LocalAddresses {
    pub(super) v4: Map,
    pub(super) v6: Map,
    pub(super) presence: Presence,
    pub(super) filters: [Arc<SharedMemory>; 2],
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    all: HashSet<IpAddr>,
    /// Inserted one by one, and not among all that were set since.
    early: HashMap<IpAddr, Instant>,
}

impl LocalAddresses {
    /// None.
    ///
    /// # Errors
    /// When the kernel makes no maps.
    pub fn new() -> Result<Self, XdpError> {
        let filter = |name| SharedMemory::new(name, size_of::<Filter>());
        Ok(Self {
            v4: Map::new(MapKind::Hash, "local_v4", 4, 4, MOST)?,
            v6: Map::new(MapKind::Hash, "local_v6", 16, 4, MOST)?,
            presence: Presence::new()?,
            filters: [filter("own4")?, filter("own6")?],
            known: Mutex::default(),
        })
    }

    /// Has classifiers leave all frames to the kernel from the moment on at which this process ends, before its sockets
    /// are closed. Keep what is returned.
    ///
    /// # Errors
    /// The kernel's error; `EPERM` without CAP_PERFMON.
    pub fn watch(&self) -> Result<Watch, XdpError> {
        self.presence.watch()
    }

    /// A heartbeat for each of so many workers. Classifiers that are loaded from here on give frames of a queue to its
    /// socket only while the worker that owns it works: of queue `q` that is worker `q % workers`.
    ///
    /// # Errors
    /// The kernel's error: `Rejected` before Linux 5.11.
    pub fn pulses(&self, workers: usize) -> Result<Vec<Pulse>, XdpError> {
        self.presence.pulses(workers)
    }

    /// Time of the clock that programs read, in nanoseconds, at an instant of this process: in a time namespace it reads
    /// another clock.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn kernel_time(&self) -> Result<(u64, Instant), XdpError> {
        self.presence.time()
    }

    /// Adds an address; `false` when it was there. It stays for half a minute whatever is set meanwhile, since
    /// who sets all may learn of it later.
    ///
    /// # Errors
    /// `Limit` when there are too many, else the kernel's error.
    pub fn insert(&self, address: IpAddr) -> Result<bool, XdpError> {
        let mut known = self.known.lock().expect("no panic while it is held");
        let new = self.add(&mut known, address)?;
        if new {
            known.early.insert(address, Instant::now());
        }
        Ok(new)
    }

    /// Removes an address; `false` when it was not there.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn remove(&self, address: IpAddr) -> Result<bool, XdpError> {
        let mut known = self.known.lock().expect("no panic while it is held");
        let removed = self.take(&mut known, &[address])?;
        Ok(removed > 0)
    }

    /// Removes an address that was inserted and not set since; `false` of any other, which who sets all removes.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn retract(&self, address: IpAddr) -> Result<bool, XdpError> {
        let mut known = self.known.lock().expect("no panic while it is held");
        if !known.early.contains_key(&address) {
            return Ok(false);
        }
        self.take(&mut known, &[address]).map(|removed| removed > 0)
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
        known.early.retain(|address, since| !wanted.contains(address) && since.elapsed() < EARLY);
        let stays =
            |address: &&IpAddr| !wanted.contains(*address) && !known.early.contains_key(*address);
        let gone: Vec<IpAddr> = known.all.iter().filter(stays).copied().collect();
        self.take(&mut known, &gone).map(drop)
    }

    /// Whether some were inserted that were not set since.
    pub fn has_early(&self) -> bool {
        !self.known.lock().expect("no panic while it is held").early.is_empty()
    }

    /// Whether it is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.known.lock().expect("no panic while it is held").all.contains(&address)
    }

    fn add(&self, known: &mut Known, address: IpAddr) -> Result<bool, XdpError> {
        if known.all.contains(&address) {
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
        known.all.insert(address);
        // One bit: what stands there stays.
        for (memory, bits) in self.filters.iter().zip(filters([&address].into_iter())) {
            let region = memory.region("own", size_of::<Filter>());
            region.u64s().iter().zip(bits).filter(|(_, bits)| *bits != 0).for_each(
                |(word, bits)| {
                    word.fetch_or(bits, Relaxed);
                },
            );
        }
        Ok(true)
    }

    /// Removes these; how many of them there were.
    fn take(&self, known: &mut Known, addresses: &[IpAddr]) -> Result<usize, XdpError> {
        let mut taken = 0;
        for address in addresses {
            if !known.all.contains(address) {
                continue;
            }
            match address {
                IpAddr::V4(v4) => self.v4.delete(&v4.octets()),
                IpAddr::V6(v6) => self.v6.delete(&v6.octets()),
            }
            .map_err(|source| XdpError::System {
                call: "bpf(MAP_DELETE_ELEM) of local addresses",
                source,
            })?;
            known.all.remove(address);
            known.early.remove(address);
            taken += 1;
        }
        if taken > 0 {
            // A bit may have been that of others, too.
            for (memory, bits) in self.filters.iter().zip(filters(known.all.iter())) {
                let region = memory.region("own", size_of::<Filter>());
                region.u64s().iter().zip(bits).for_each(|(word, bits)| word.store(bits, Relaxed));
            }
        }
        Ok(taken)
    }
}

/// The filters of both families.
fn filters<'a>(addresses: impl Iterator<Item = &'a IpAddr> + Clone) -> [Filter; 2] {
    [false, true].map(|v6| filter_of(addresses.clone().filter(|address| address.is_ipv6() == v6)))
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn in_kernel(local: &LocalAddresses, address: &str) -> bool {
        match address.parse().unwrap() {
            IpAddr::V4(v4) => local.v4.lookup(&v4.octets(), &mut [0; 4]).unwrap(),
            IpAddr::V6(v6) => local.v6.lookup(&v6.octets(), &mut [0; 4]).unwrap(),
        }
    }

    #[test]
    fn the_kernels_maps_follow_the_set() {
        if !testing::can_bpf() {
            return;
        }
        let local = LocalAddresses::new().unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let bits = |local: &LocalAddresses| {
            local.filters.each_ref().map(|memory| {
                let region = memory.region("own", size_of::<Filter>());
                region.u64s().iter().map(|word| word.load(Relaxed).count_ones()).sum::<u32>()
            })
        };
        assert!(local.insert(address("10.0.0.1")).unwrap());
        assert!(!local.insert(address("10.0.0.1")).unwrap());
        assert!(local.insert(address("fd00::1")).unwrap());
        assert!(in_kernel(&local, "10.0.0.1") && in_kernel(&local, "fd00::1"));
        assert!(!in_kernel(&local, "10.0.0.2") && !in_kernel(&local, "fd00::2"));
        assert_eq!(bits(&local), [1, 1]);
        local.set(["fd00::1", "10.0.0.2"].map(address)).unwrap();
        assert!(in_kernel(&local, "10.0.0.1"), "who sets all may not know of it yet");
        local.set(["fd00::1", "10.0.0.1", "10.0.0.2"].map(address)).unwrap();
        assert_eq!(bits(&local), [2, 1]);
        local.set(["fd00::1", "fd00::2", "10.0.0.2"].map(address)).unwrap();
        assert_eq!(bits(&local), [1, 2]);
        assert!(!in_kernel(&local, "10.0.0.1") && in_kernel(&local, "10.0.0.2"));
        assert!(in_kernel(&local, "fd00::1") && in_kernel(&local, "fd00::2"));
        assert!(local.contains(address("fd00::2")) && !local.contains(address("10.0.0.1")));
        assert!(local.remove(address("fd00::1")).unwrap());
        assert!(!local.remove(address("fd00::1")).unwrap());
        assert!(!in_kernel(&local, "fd00::1"));
    }

    #[test]
    fn an_address_that_comes_and_goes_before_all_are_set_is_gone_at_once() {
        if !testing::can_bpf() {
            return;
        }
        let local = LocalAddresses::new().unwrap();
        let [brief, lasting] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        assert!(local.insert(brief).unwrap() && local.insert(lasting).unwrap());
        // Who sets all has seen the first come and go.
        local.set([lasting]).unwrap();
        assert!(local.retract(brief).unwrap());
        assert!(!in_kernel(&local, "10.0.0.1") && !local.has_early());
        // Another interface may have the address still: who sets all knows.
        assert!(!local.retract(lasting).unwrap());
        assert!(in_kernel(&local, "10.0.0.2"));
    }
}
