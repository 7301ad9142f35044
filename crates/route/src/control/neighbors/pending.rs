//! Pending resolutions: hosts on links that the kernel is to resolve and that have not replied. Their number is bounded,
//! and shared fairly among ingress ports (RFC 6583: a prefix can be swept).
//!
//! The kernel gives up a host that is absent after seconds; one that is present replies within milliseconds. So a host that
//! finds no room replaces another one: of a random sample one of the ingress port that has most, and of these the oldest.
//! A sweep replaces itself, and hosts that other ports need stay.
//!
//! Cost: a hash table; a replacement reads [`SAMPLE`] rows.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Instant;

use fingerpost_lpm::Rng;

/// Most hosts: three quarters of the neighbors that Linux has room for (`gc_thresh3`). The last quarter is left to next
/// hops of routes, whose number the routes bound.
pub(super) const MOST: usize = 768;
/// Hosts in the sample from which one is replaced.
const SAMPLE: usize = 8;

/// Kernel index of a link, and the address of a host on it.
pub(super) type Host = (u32, IpAddr);

/// Table of pending resolutions.
#[derive(Debug)]
pub(super) struct Pending {
    /// Rows, in no order.
    rows: Vec<Row>,
    places: HashMap<Host, usize>,
    by_ingress: HashMap<u16, usize>,
    rng: Rng,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    host: Host,
    ingress: u16,
    since: Instant,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            places: HashMap::new(),
            by_ingress: HashMap::new(),
            // A sweeping host must not know which hosts make room.
            rng: Rng::new(RandomState::new().hash_one(0)),
        }
    }
}

impl Pending {
    pub(super) fn contains(&self, host: &Host) -> bool {
        self.places.contains_key(host)
    }

    /// Each host, and when its resolution began.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Host, Instant)> + '_ {
        self.rows.iter().map(|row| (row.host, row.since))
    }

    /// Adds a host for packets of the port `ingress`; returns the host that it replaced. A host that is in the table stays
    /// as it is.
    pub(super) fn add(&mut self, host: Host, ingress: u16, now: Instant) -> Option<Host> {
        if self.contains(&host) {
            return None;
        }
        let gone = (self.rows.len() >= MOST).then(|| self.choose());
        if let Some(gone) = &gone {
            self.remove(gone);
        }
        self.places.insert(host, self.rows.len());
        self.rows.push(Row { host, ingress, since: now });
        *self.by_ingress.entry(ingress).or_default() += 1;
        gone
    }

    /// Removes a host; whether it was in the table.
    pub(super) fn remove(&mut self, host: &Host) -> bool {
        let Some(at) = self.places.remove(host) else { return false };
        let row = self.rows.swap_remove(at);
        if let Some(moved) = self.rows.get(at) {
            self.places.insert(moved.host, at);
        }
        if let Some(count) = self.by_ingress.get_mut(&row.ingress) {
            *count -= 1;
            if *count == 0 {
                self.by_ingress.remove(&row.ingress);
            }
        }
        true
    }

    /// The host to replace.
    fn choose(&mut self) -> Host {
        let sample: [Row; SAMPLE] =
            std::array::from_fn(|_| self.rows[self.rng.below(self.rows.len())]);
        let load = |row: &Row| self.by_ingress.get(&row.ingress).copied().unwrap_or_default();
        let worst = sample.iter().max_by_key(|row| (load(row), Reverse(row.since)));
        worst.expect("a sample is not empty").host
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::time::Duration;

    fn host(n: usize) -> Host {
        let [.., upper, lower] = n.to_be_bytes();
        (7, IpAddr::from([10, 0, upper, lower]))
    }

    #[test]
    fn an_ingress_with_few_requests_keeps_its_hosts() {
        let (mut pending, began) = (Pending::default(), Instant::now());
        for n in 0..50 {
            assert_eq!(pending.add(host(n), 3, began), None);
        }
        let mut gone = 0;
        for n in 1000..9000 {
            let now = began + Duration::from_micros(200 * n as u64);
            gone += usize::from(pending.add(host(n), 1, now).is_some());
            assert_eq!(pending.add(host(n), 2, now), None, "it is pending already");
        }
        assert_eq!((gone, pending.iter().count()), (8050 - MOST, MOST));
        assert!((0..50).all(|n| pending.contains(&host(n))));
        // Hosts of the sweep's last 30 ms are there, but for some.
        let latest = (8850..9000).filter(|&n| pending.contains(&host(n))).count();
        assert!(latest >= 140, "{latest} of 150");
        // Two with many requests share the table.
        for n in 10_000..20_000 {
            let now = began + Duration::from_secs(2) + Duration::from_micros(100 * n as u64);
            pending.add(host(n), 4 + u16::from(n % 2 == 0), now);
        }
        let counts = &pending.by_ingress;
        assert_eq!(counts.values().sum::<usize>(), MOST);
        assert_eq!(counts[&3], 50);
        assert!(counts[&4].abs_diff(counts[&5]) < 50, "{counts:?}");
        for n in 0..20_000 {
            pending.remove(&host(n));
        }
        assert!(pending.rows.is_empty() && pending.by_ingress.is_empty());
        assert!(!pending.remove(&host(0)));
    }
}
