//! Sizing of a cluster: how many servers, how they are linked, what each must process.
//!
//! Source: RouteBricks (Dobrescu et al., SOSP 2009), section 3, and the lecture on it. Symbols as there: S servers with
//! external ports, s ports of rate R on each. All of it is integer arithmetic in bits per second, rounded up.
//! Read [`wiring`](Wiring) first; [`table`] is the lecture's table.

mod error;
mod rate;
mod table;
mod wiring;
mod work;

pub use error::PlanError;
pub use rate::Rate;
pub use table::{CAPACITIES, FAN_OUT, PORT, Row, table};
pub use wiring::{Topology, Wiring, servers, stages};
pub use work::{Cores, Cycles, Load, Processing};

/// Most servers of a cluster: internal frames have 16 bits for the number of one.
pub const MOST_SERVERS: u64 = 1 << 16;

/// What a cluster is planned for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// External capacity: the rate of all external ports, in each direction.
    pub capacity: Rate,
    /// Rate of an external port, R.
    pub port: Rate,
    /// External ports of a server, s.
    pub ports_per_server: u32,
    /// Full-duplex ports of a server for internal links, F.
    pub fan_out: u32,
    /// Rate of an internal port.
    pub link: Rate,
    /// Failures that the links have room for.
    pub failures: u32,
    /// What a server can process; without it, whatever it must.
    pub processing: Option<Processing>,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// External ports.
    pub ports: u64,
    /// Rate of the external ports of a server together, sR.
    pub server: Rate,
    /// Servers and links.
    pub wiring: Wiring,
    /// Rate that one of the parallel links carries at most, with the failures that it has room for.
    pub link: Rate,
    /// What servers process.
    pub load: Load,
    /// Cores that servers take, where cycles are known.
    pub cores: Option<Cores>,
    /// What the busiest server has to process, as a part of what it can; above 1 the worst matrices do not fit.
    pub processing_load: Option<f64>,
    /// The clusters that failures leave, from none to two, or to as many as the links have room for.
    pub after_failures: Vec<AfterFailures>,
}

/// What is left after failures of servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AfterFailures {
    /// Servers that failed.
    pub failed: u64,
    /// Rate of the external ports that are left.
    pub external: Rate,
    /// Rate that an internal link has to carry for any admissible matrix of those ports: 2sR/(S - f) in a mesh.
    pub link: Rate,
    /// Part of `external` that the links carry whatever the matrix, 0 to 1.
    pub carried: f64,
}

impl Plan {
    /// Plans the cluster with the least stages.
    ///
    /// # Errors
    /// When the request contradicts itself, or no cluster fulfils it.
    pub fn new(request: &Request) -> Result<Self, PlanError> {
        let Request { capacity, port, link, .. } = *request;
        let per_server = u64::from(request.ports_per_server);
        if [capacity.0, port.0, link.0, per_server].contains(&0) {
            return Err(PlanError::Zero);
        }
        if !capacity.0.is_multiple_of(port.0) {
            return Err(PlanError::NotMultiple { capacity, port });
        }
        let ports = capacity.0 / port.0;
        let port_servers = ports.div_ceil(per_server);
        if port_servers > MOST_SERVERS {
            return Err(PlanError::TooManyServers { need: port_servers });
        }
        let server = u64::try_from(port.times(per_server)).map(Rate);
        let server = server.map_err(|_| PlanError::TooManyPorts)?;
        let failures = u64::from(request.failures);
        if failures > 0 && failures >= port_servers {
            return Err(PlanError::TooManyFailures { failures, servers: port_servers });
        }
        let fan_out = u64::from(request.fan_out);
        let wiring = Wiring::new(port_servers, server, fan_out, link, failures).map_err(
            |need| match need {
                Some(need) => PlanError::FanOut { need, fan_out, link },
                None => PlanError::TooManyFailures { failures, servers: port_servers },
            },
        )?;
        if wiring.servers() > MOST_SERVERS {
            return Err(PlanError::TooManyServers { need: wiring.servers() });
        }
        let load = Load::new(&wiring, server);
        let (cores, processing_load) = process(request, server, &load)?;
        let mut plan = Self {
            ports,
            server,
            wiring,
            link: Rate(0),
            load,
            cores,
            processing_load,
            after_failures: Vec::new(),
        };
        let rows = (0..=failures.max(2)).map_while(|failed| plan.after(failed, request));
        plan.after_failures = rows.collect();
        let designed = plan.after_failures.iter().find(|row| row.failed == failures);
        plan.link = designed.map_or(Rate(0), |row| row.link);
        Ok(plan)
    }

    /// What `failed` servers less leave; `None` when nothing is.
    fn after(&self, failed: u64, request: &Request) -> Option<AfterFailures> {
        let left = self.wiring.port_servers.checked_sub(failed).filter(|left| *left > 0)?;
        let pair = self.wiring.pair_rate(self.server, failed)?;
        // The last server may have fewer ports; what fails has all of them, at worst.
        let lost = self.server.times(failed);
        let external = u128::from(request.capacity.0).saturating_sub(lost);
        // The one server that is left sends itself everything.
        let alone = left == 1;
        let parallel = self.wiring.parallel.max(1);
        let provided = request.link.times(parallel) as f64;
        let link = if alone { Rate(0) } else { Rate(pair.0.div_ceil(parallel)) };
        Some(AfterFailures {
            failed,
            external: rate::at_least(external, 1),
            link,
            carried: if alone { 1.0 } else { (provided / pair.0 as f64).min(1.0) },
        })
    }

    /// What the busiest server has to process at worst, as a multiple of what it can; 1 when all fits. Links always
    /// have room for what they carry.
    #[must_use]
    pub fn oversubscription(&self) -> f64 {
        self.processing_load.unwrap_or(0.0).max(1.0)
    }
}

/// Cores, and the load of the busiest server as a part of what it can process.
fn process(
    request: &Request,
    server: Rate,
    load: &Load,
) -> Result<(Option<Cores>, Option<f64>), PlanError> {
    match request.processing {
        None => Ok((None, None)),
        Some(Processing::Rate(has)) if has < load.uniform => {
            let fast = request.port > has;
            Err(if fast {
                PlanError::PortFaster { port: request.port, server: has }
            } else {
                PlanError::ServerTooSlow { ports: server, need: load.uniform, server: has }
            })
        }
        Some(Processing::Rate(has)) => Ok((None, Some(load.greatest().0 as f64 / has.0 as f64))),
        Some(Processing::Measured { cycles, clock_hz, cores: has, packet_bytes }) => {
            if clock_hz == 0 || packet_bytes == 0 {
                return Err(PlanError::Zero);
            }
            let need = load.cores(cycles, clock_hz, packet_bytes);
            let Some(has) = has else { return Ok((Some(need), None)) };
            if need.uniform > has {
                return Err(PlanError::TooFewCores { need: need.uniform, has });
            }
            let most = need.worst.max(need.transit);
            Ok((Some(need), Some(most as f64 / has as f64)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1_000_000_000;

    fn request(capacity: u64, per_server: u32) -> Request {
        Request {
            capacity: Rate(capacity * G),
            port: Rate(10 * G),
            ports_per_server: per_server,
            fan_out: FAN_OUT,
            link: Rate(10 * G),
            failures: 0,
            processing: None,
        }
    }

    /// Links of 10 Gbit/s hold the wiring of the formula from a fan-out of 16 on; below, some plans take more stages.
    #[test]
    fn plans_are_the_cells_of_the_table() {
        for fan_out in 16..200 {
            for row in table(fan_out) {
                for (at, capacity) in CAPACITIES.iter().enumerate() {
                    let request = request(capacity.0 / G, row.ports_per_server);
                    let wiring = Plan::new(&Request { fan_out, ..request }).unwrap().wiring;
                    let found = (wiring.servers(), wiring.stages);
                    assert_eq!(found, (row.servers[at], row.stages[at]), "{capacity} {fan_out}");
                }
            }
        }
    }

    #[test]
    fn a_mesh_of_32() {
        let plan = Plan::new(&request(320, 1)).unwrap();
        assert_eq!((plan.ports, plan.wiring.servers(), plan.wiring.links()), (32, 32, 496));
        assert_eq!(plan.link, Rate(625_000_000));
        assert_eq!((plan.load.uniform, plan.load.worst), (Rate(20 * G), Rate(29_375_000_000)));
        assert_eq!((plan.oversubscription(), plan.processing_load), (1.0, None));
    }

    /// 2R/(N - k), Gbit/s, for 0, 1 and 2 failures with R = 10: the table of Zhang-Shen and McKeown's rule.
    #[test]
    fn links_after_failures() {
        for (n, want) in [
            (4, [5.0, 6.67, 10.0]),
            (8, [2.5, 2.86, 3.33]),
            (16, [1.25, 1.33, 1.43]),
            (32, [0.625, 0.645, 0.667]),
        ] {
            let plan = Plan::new(&request(n * 10, 1)).unwrap();
            assert_eq!(plan.after_failures.len(), 3);
            for (row, want) in plan.after_failures.iter().zip(want) {
                assert!((row.link.gbps() - want).abs() < 0.006, "{n}: {row:?}");
                assert_eq!(row.external, Rate((n - row.failed) * 10 * G));
                assert!((row.carried - 1.0).abs() < 1e-9);
            }
        }
        // 100 nodes, 5 failures: 5.3 % more.
        let five = Request { fan_out: 100, failures: 5, ..request(1000, 1) };
        let plan = Plan::new(&five).unwrap();
        assert_eq!(plan.link.0, 20 * G / 95 + 1);
        assert_eq!(plan.after_failures.len(), 6);
    }

    #[test]
    fn links_without_room_for_a_failure_carry_a_part() {
        let tight = Request { link: Rate(5 * G), ..request(40, 1) };
        let plan = Plan::new(&tight).unwrap();
        assert_eq!(plan.wiring.parallel, 1);
        let carried: Vec<f64> = plan.after_failures.iter().map(|row| row.carried).collect();
        assert!((carried[0] - 1.0).abs() < 1e-9);
        assert!((carried[1] - 0.75).abs() < 1e-9);
        assert!((carried[2] - 0.5).abs() < 1e-9);
        let room = Plan::new(&Request { failures: 1, ..tight }).unwrap();
        assert_eq!((room.wiring.parallel, room.link), (2, Rate(3_333_333_334)));
        assert!((room.after_failures[1].carried - 1.0).abs() < 1e-9);
    }

    #[test]
    fn servers_that_hold_uniform_traffic_alone_are_oversubscribed() {
        let with =
            |processing| Plan::new(&Request { processing: Some(processing), ..request(320, 1) });
        assert!(
            (with(Processing::Rate(Rate(20 * G))).unwrap().oversubscription() - 1.46875).abs()
                < 1e-9
        );
        assert!(
            (with(Processing::Rate(Rate(30 * G))).unwrap().oversubscription() - 1.0).abs() < 1e-9
        );
        let cycles = Cycles { input: 300, transit: 100, output: 100 };
        let measured =
            |cores| with(Processing::Measured { cycles, clock_hz: 3 * G, cores, packet_bytes: 64 });
        // 14.88 Mpps at 400 cycles and 3 GHz: 1.98 cores; 94 % more through at 100.
        assert_eq!(measured(None).unwrap().cores, Some(Cores { uniform: 2, worst: 3, transit: 0 }));
        assert!((measured(Some(2)).unwrap().oversubscription() - 1.5).abs() < 1e-9);
        assert_eq!(measured(Some(1)), Err(PlanError::TooFewCores { need: 2, has: 1 }));
    }

    #[test]
    fn requests_that_nothing_fulfils_have_one_reason_each() {
        let error = |request: Request| Plan::new(&request).unwrap_err().to_string();
        let good = request(320, 1);
        let processing = |rate| Some(Processing::Rate(Rate(rate * G)));
        for (request, want) in [
            (request(325, 1), "capacity 325G is no multiple of a port of 10G"),
            (request(0, 1), "capacity, ports, links and clock are more than 0"),
            (
                Request { processing: processing(9), ..good },
                "port of 10G is faster than a server, which processes 9G",
            ),
            (
                Request { processing: processing(19), ..good },
                "server processes 19G: ports of 10G on it take 20G, in and out",
            ),
            (
                Request { fan_out: 2, link: Rate(G), ..good },
                "fan-out of 2 too small: a server takes at least 20 internal ports of 1G",
            ),
            (
                Request { failures: 32, ..good },
                "32 failures are too many for 32 servers with ports",
            ),
            (request(1_000_000, 1), "100000 servers needed, at most 65536"),
        ] {
            assert_eq!(error(request), want);
        }
        assert_eq!(Plan::new(&request(10, 1)).unwrap().wiring.links(), 0);
    }
}
