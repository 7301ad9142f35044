//! The fabric between servers: a full mesh, or a k-ary n-fly where a server has too few ports for one.
//!
//! Source: RouteBricks, section 3.3. A k-ary n-fly over S end points has n stages, and each carries all traffic. A
//! server processes a few times the rate of its ports, whatever it is wired to, so each stage takes S servers; those
//! with the external ports are the first stage, and the last stage leads back to them.
//!
//! Shape: server `i` of a stage is linked to the servers `(i * k + d) mod S` of the next, d = 0 .. k - 1. Any S with
//!        `k^n >= S` works: n hops lead from each server to each, and a server has k links in and k out.
//! Rates: Valiant load balancing crosses the fabric twice, and spreads each time over all S servers. At most
//!        `k^(n-1)` pairs of a source and a destination share a link, each with `sR/S` a phase: `2sR k^(n-1) / S`,
//!        which is 2R/N in a mesh of one port a server.

use super::Rate;
use super::rate;

/// Kind of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each server has a link to each other.
    Mesh,
    /// A k-ary n-fly: stages of servers, each linked to k of the next.
    Fly,
}

impl Topology {
    /// Name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mesh => "mesh",
            Self::Fly => "fly",
        }
    }
}

/// How servers are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// Servers with external ports, S.
    pub port_servers: u64,
    /// Stages, n; 1 is a mesh.
    pub stages: u32,
    /// Servers of the next stage that a server reaches, k; in a mesh all of them, itself included.
    pub degree: u64,
    /// Parallel links between two linked servers.
    pub parallel: u64,
}

/// Smallest n with `fan_out^n >= port_servers`: the stages of the fabric, 1 for a mesh (RouteBricks lecture).
///
/// # Panics
/// When `fan_out` is below 2.
#[must_use]
pub fn stages(port_servers: u64, fan_out: u64) -> u32 {
    assert!(fan_out >= 2, "a fabric has a fan-out of at least 2");
    (1..).find(|&n| power(fan_out, n) >= u128::from(port_servers)).expect("2^64 is enough")
}

/// Servers in all for `port_servers` with ports: as many for each stage.
///
/// # Panics
/// When `fan_out` is below 2.
#[must_use]
pub fn servers(port_servers: u64, fan_out: u64) -> u64 {
    port_servers * u64::from(stages(port_servers, fan_out))
}

fn power(base: u64, exponent: u32) -> u128 {
    u128::from(base).saturating_pow(exponent)
}

impl Wiring {
    /// The wiring with the least stages for `fan_out` internal ports a server, each of rate `link`, that carries
    /// `server` (all external ports of a server) also with `failures` servers less.
    ///
    /// # Errors
    /// The least number of ports that any wiring takes; `None` when none carries the traffic with so many failures.
    pub(crate) fn new(
        port_servers: u64,
        server: Rate,
        fan_out: u64,
        link: Rate,
        failures: u64,
    ) -> Result<Self, Option<u64>> {
        if port_servers == 1 {
            return Ok(Self { port_servers, stages: 1, degree: 1, parallel: 0 });
        }
        let mut need: Option<u64> = None;
        for stages in 1..=u64::BITS {
            let power = |k: &u64| power(*k, stages) >= u128::from(port_servers);
            let degree = (2..=port_servers).find(power).expect("S^n is at least S");
            let mut wiring = Self { port_servers, stages, degree, parallel: 1 };
            if let Some(pair) = wiring.pair_rate(server, failures) {
                wiring.parallel = pair.0.div_ceil(link.0);
                let ports = wiring.server_links();
                // The fan-out of the lecture's formula counts the server itself: a mesh has S <= F.
                let least = if stages == 1 { ports.max(degree) } else { ports };
                if least <= fan_out {
                    return Ok(wiring);
                }
                need = Some(need.map_or(least, |need| need.min(least)));
            }
            if degree == 2 {
                break;
            }
        }
        Err(need)
    }

    /// The wiring with the least stages for a fan-out, whatever the rate of the links; one of a single stage is a mesh.
    ///
    /// # Panics
    /// When there are fewer than two port servers, or the fan-out is below 2.
    #[must_use]
    pub fn of_fan_out(port_servers: u64, fan_out: u64) -> Self {
        let stages = stages(port_servers, fan_out);
        let holds = |k: &u64| power(*k, stages) >= u128::from(port_servers);
        let degree = (2..=port_servers).find(holds).expect("S^n is at least S");
        Self { port_servers, stages, degree, parallel: 1 }
    }

    /// Kind of the fabric.
    #[must_use]
    pub fn topology(&self) -> Topology {
        if self.stages == 1 { Topology::Mesh } else { Topology::Fly }
    }

    /// Servers in all.
    #[must_use]
    pub fn servers(&self) -> u64 {
        self.port_servers * u64::from(self.stages)
    }

    /// Full-duplex ports that a server has for internal links.
    #[must_use]
    pub fn server_links(&self) -> u64 {
        match self.topology() {
            Topology::Mesh => (self.port_servers - 1) * self.parallel,
            Topology::Fly => self.degree * self.parallel,
        }
    }

    /// Full-duplex links in all: half of the ports.
    #[must_use]
    pub fn links(&self) -> u64 {
        (self.servers() * self.server_links()).div_ceil(2)
    }

    /// Greatest rate from one server to another that it is linked to, for every admissible matrix, when each server
    /// has external ports of `server` together and `failures` servers have failed: all of them neighbors of one
    /// server, which spreads over the others. Exact for a mesh, 2sR/(S - f); an estimate for an n-fly. `None` when
    /// no neighbor is left.
    #[must_use]
    pub fn pair_rate(&self, server: Rate, failures: u64) -> Option<Rate> {
        let left = self.degree.checked_sub(failures).filter(|left| *left > 0)?;
        if self.port_servers == 1 {
            return Some(Rate(0));
        }
        let numerator = server.times(2).saturating_mul(power(self.degree, self.stages));
        Some(rate::at_least(numerator, u128::from(self.port_servers) * u128::from(left)))
    }

    /// Greatest rate that a server without external ports processes: both phases of its part of a stage.
    #[must_use]
    pub fn transit_rate(&self, server: Rate) -> Rate {
        if self.stages == 1 {
            return Rate(0);
        }
        let numerator = server.times(2).saturating_mul(power(self.degree, self.stages));
        rate::at_least(numerator, u128::from(self.port_servers))
    }

    /// Servers that are linked, each pair once: in a mesh in both directions, in an n-fly from the first to the second.
    /// Stage t has the servers `t * S` to `t * S + S - 1`, and stage 0 the external ports.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let Self { port_servers, stages, degree, .. } = *self;
        let mesh = stages == 1;
        (0..self.servers()).flat_map(move |from| {
            let (stage, i) = (from / port_servers, from % port_servers);
            let next = (stage + 1) % u64::from(stages) * port_servers;
            let others = if mesh { from + 1..port_servers } else { 0..degree };
            others.map(move |d| match mesh {
                true => (from, d),
                false => (from, next + (i * degree + d) % port_servers),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const G: u64 = 1_000_000_000;

    fn wiring(port_servers: u64, fan_out: u64) -> Wiring {
        Wiring::new(port_servers, Rate(10 * G), fan_out, Rate(10 * G), 0).unwrap()
    }

    #[test]
    fn stages_grow_with_the_power_of_the_fan_out() {
        for (port_servers, fan_out, n) in [
            (1, 2, 1),
            (2, 2, 1),
            (3, 2, 2),
            (48, 48, 1),
            (49, 48, 2),
            (2304, 48, 2),
            (2305, 48, 3),
        ] {
            assert_eq!(stages(port_servers, fan_out), n, "{port_servers} {fan_out}");
        }
        assert_eq!(stages(u64::MAX, 2), 64);
        for (port_servers, fan_out) in [(9, 3), (64, 8), (31, 6), (128, 48)] {
            assert_eq!(Wiring::of_fan_out(port_servers, fan_out), wiring(port_servers, fan_out));
        }
        // RouteBricks: 1,024 ports with k = 16 take two servers more for each port.
        assert_eq!(servers(1024, 16), 3 * 1024);
    }

    #[test]
    fn a_mesh_links_all_pairs_at_two_r_by_n() {
        let mesh = wiring(32, 48);
        assert_eq!((mesh.topology(), mesh.links(), mesh.server_links()), (Topology::Mesh, 496, 31));
        assert_eq!(mesh.pair_rate(Rate(10 * G), 0), Some(Rate(625_000_000)));
        let pairs: BTreeSet<_> = mesh.pairs().collect();
        assert_eq!(pairs.len(), 496);
        assert!(pairs.iter().all(|(a, b)| a < b && *b < 32));
    }

    /// Every server reaches every port server in exactly n hops, by no link more often than its rate has room for.
    #[test]
    fn an_n_fly_reaches_all_and_no_link_has_more_than_its_rate() {
        for (port_servers, fan_out) in
            [(9, 3), (10, 4), (27, 3), (5, 4), (64, 8), (31, 6), (128, 48)]
        {
            let fly = wiring(port_servers, fan_out);
            assert_eq!(fly.topology(), Topology::Fly);
            let mut next: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let mut into: BTreeMap<u64, u64> = BTreeMap::new();
            for (from, to) in fly.pairs() {
                next.entry(from).or_default().push(to);
                *into.entry(to).or_default() += 1;
            }
            assert_eq!(next.len() as u64, fly.servers());
            assert!(next.values().all(|to| to.len() as u64 == fly.degree));
            assert!(into.values().all(|count| *count == fly.degree));
            // Paths between each pair of port servers; each pair sends sR/S a phase, evenly over its paths.
            let mut load: BTreeMap<(u64, u64), f64> = BTreeMap::new();
            for from in 0..port_servers {
                let mut paths = vec![vec![from]];
                for _ in 0..fly.stages {
                    paths = paths
                        .iter()
                        .flat_map(|path| {
                            let ends = &next[path.last().unwrap()];
                            ends.iter().map(move |to| [path.as_slice(), &[*to]].concat())
                        })
                        .collect();
                }
                let mut by_end: BTreeMap<u64, Vec<&Vec<u64>>> = BTreeMap::new();
                for path in &paths {
                    by_end.entry(*path.last().unwrap()).or_default().push(path);
                }
                assert!((0..port_servers).eq(by_end.keys().copied()), "{fly:?}");
                for path in &paths {
                    let share = by_end[path.last().unwrap()].len() as f64;
                    for hop in path.windows(2) {
                        *load.entry((hop[0], hop[1])).or_default() +=
                            2.0 * 10.0 / port_servers as f64 / share;
                    }
                }
            }
            let most = load.values().copied().fold(0.0, f64::max);
            let rate = fly.pair_rate(Rate(10 * G), 0).unwrap().gbps();
            assert!(most <= rate + 1e-6, "{fly:?}: {most} of {rate}");
        }
    }

    /// RouteBricks lecture: how many links of which rate a mesh takes.
    #[test]
    fn links_of_a_mesh_are_as_many_as_its_rate_takes() {
        let mesh = |port_servers, s: u64, fan_out, link| {
            Wiring::new(port_servers, Rate(s * 10 * G), fan_out, Rate(link * G), 0)
        };
        let two = mesh(16, 1, 48, 1).unwrap();
        assert_eq!((two.stages, two.parallel, two.server_links()), (1, 2, 30));
        assert_eq!(mesh(32, 1, 48, 1).unwrap().server_links(), 31);
        assert_eq!(mesh(64, 1, 48, 1).unwrap().stages, 2);
        assert_eq!(mesh(32, 2, 36, 10).unwrap().server_links(), 31);
        // 62 ports of 1 Gbit/s: no mesh. A 6-ary 2-fly takes 48.
        let fly = mesh(32, 2, 48, 1).unwrap();
        assert_eq!((fly.stages, fly.degree, fly.parallel, fly.server_links()), (2, 6, 8, 48));
        // Twelve ports of 10 Gbit/s: 64 servers.
        assert_eq!(mesh(32, 2, 12, 10).unwrap().servers(), 64);
        assert_eq!(mesh(4, 1, 2, 1), Err(Some(15)));
    }
}
