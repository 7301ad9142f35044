//! What servers must process: rates for any server, cores for a measured cost of a packet.
//!
//! Source: RouteBricks, section 3.2: a server handles its ports twice (in and out), and with Valiant load balancing
//! up to `sR (S - 2) / S` of others: 2sR under uniform traffic, up to 3sR otherwise. Cores are packets per second
//! times cycles per packet, divided by the clock. A packet of B bytes, CRC included, takes B + 20 bytes of a link:
//! 8 of preamble and 12 of gap; 64 bytes at 100 Gbit/s are 148.8 Mpps.

use super::rate::at_least;
use super::{Rate, Wiring};

/// Rates that one server processes; a packet counts once for each time that it passes the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Rate of a server with ports under uniform traffic, all of it direct: 2sR.
    pub uniform: Rate,
    /// Greatest rate of a server with ports under any admissible matrix: at most 3sR.
    pub worst: Rate,
    /// Greatest rate of a server without ports, in an n-fly; 0 in a mesh.
    pub transit: Rate,
}

/// Cost of a packet in cycles of a core, by what the server does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycles {
    /// Cycles at the input: check, lookup, choice of the path, internal header.
    pub input: u64,
    /// Cycles of transit: the internal header is read, the IP header is not.
    pub transit: u64,
    /// Cycles at the output: rewrite of the link header.
    pub output: u64,
}

/// What a server can process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processing {
    /// A rate; a packet counts once for each time that it passes the server (the lecture: 20 to 30 Gbit/s).
    Rate(Rate),
    /// Measured cycles per packet.
    Measured {
        /// Cost of a packet.
        cycles: Cycles,
        /// Clock of a core in Hz.
        clock_hz: u64,
        /// Cores of a server; without them the plan has as many as it takes.
        cores: Option<u64>,
        /// Bytes of a packet on the link, CRC included.
        packet_bytes: u64,
    },
}

/// Cores that one server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Cores of a server with ports under uniform traffic.
    pub uniform: u64,
    /// Cores of a server with ports under the worst admissible matrix.
    pub worst: u64,
    /// Cores of a server without ports, in an n-fly; 0 in a mesh.
    pub transit: u64,
}

/// Bytes of a link that each packet takes beside its own: preamble, start of frame and gap (IEEE 802.3).
const OVERHEAD_BYTES: u64 = 20;

impl Load {
    /// The load of a server whose external ports have the rate `server` together.
    #[must_use]
    pub fn new(wiring: &Wiring, server: Rate) -> Self {
        let (count, others) = (wiring.port_servers, wiring.port_servers.saturating_sub(2));
        Self {
            uniform: at_least(server.times(2), 1),
            worst: at_least(server.times(2 * count + others), count.into()),
            transit: wiring.transit_rate(server),
        }
    }

    /// The greatest rate of any server.
    #[must_use]
    pub fn greatest(&self) -> Rate {
        self.worst.max(self.transit)
    }

    /// Cores for this load, of which half of `uniform` is input and half output.
    #[must_use]
    pub fn cores(&self, cycles: Cycles, clock_hz: u64, packet_bytes: u64) -> Cores {
        let port = u128::from(self.uniform.0 / 2);
        let own = port * (u128::from(cycles.input) + u128::from(cycles.output));
        let through = |rate: u64| u128::from(rate) * u128::from(cycles.transit);
        let bits = u128::from(8 * (packet_bytes + OVERHEAD_BYTES));
        let cores = |work: u128| {
            u64::try_from(work.div_ceil(bits * u128::from(clock_hz))).unwrap_or(u64::MAX)
        };
        Cores {
            uniform: cores(own),
            worst: cores(own + through(self.worst.0 - self.uniform.0)),
            transit: cores(through(self.transit.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1_000_000_000;

    fn mesh(port_servers: u64) -> Wiring {
        Wiring { port_servers, stages: 1, degree: port_servers, parallel: 1 }
    }

    #[test]
    fn a_server_processes_two_to_three_times_its_ports() {
        let load = |n| Load::new(&mesh(n), Rate(10 * G));
        assert_eq!(load(4), Load { uniform: Rate(20 * G), worst: Rate(25 * G), transit: Rate(0) });
        assert_eq!(load(32).worst, Rate(29_375_000_000));
        assert_eq!((load(1).worst, load(2).worst), (Rate(20 * G), Rate(20 * G)));
        let fly = Wiring { port_servers: 64, stages: 2, degree: 8, parallel: 1 };
        assert_eq!(Load::new(&fly, Rate(10 * G)).transit, Rate(20 * G));
    }

    /// 100 Gbit/s at 200 cycles and 3 GHz: 10 cores a pass with 64 bytes, 20 to 30 in a cluster; 3 to 4 with 700.
    #[test]
    fn cores_follow_from_cycles() {
        let load = Load::new(&mesh(1000), Rate(100 * G));
        let cycles = Cycles { input: 200, transit: 200, output: 200 };
        let cores = load.cores(cycles, 3 * G, 64);
        assert_eq!((cores.uniform, cores.worst, cores.transit), (20, 30, 0));
        let cores = load.cores(cycles, 3 * G, 700);
        assert_eq!((cores.uniform, cores.worst), (3, 4));
        let cheap = Cycles { input: 200, transit: 50, output: 50 };
        assert_eq!(load.cores(cheap, 3 * G, 64).worst, 15);
    }
}
