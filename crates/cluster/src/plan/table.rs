//! The sizing table of the RouteBricks lecture: servers for an external capacity in ports of 10 Gbit/s.
//!
//! Reproduced by `S * n`, S = ceil(capacity / (s * 10 Gbit/s)), n the smallest integer with `F^n >= S`. Assumptions of
//! the lecture: 7 NICs a server, 6 of them internal, each 6 x 10 Gbit/s or 8 x 1 Gbit/s, so F is 36 or 48; a current
//! server processes 20 to 30 Gbit/s, an upcoming one twice that, and so has two ports.

use super::{Rate, servers, stages};

/// Internal ports of a server in the lecture: 6 NICs of 8.
pub const FAN_OUT: u32 = 48;

/// External capacities: the columns of the table.
pub const CAPACITIES: [Rate; 5] = [
    Rate(160_000_000_000),
    Rate(320_000_000_000),
    Rate(640_000_000_000),
    Rate(1_280_000_000_000),
    Rate(2_560_000_000_000),
];

/// Rate of an external port.
pub const PORT: Rate = Rate(10_000_000_000);

/// A row of the table: servers of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Kind of server.
    pub name: &'static str,
    /// External ports of a server, s.
    pub ports_per_server: u32,
    /// Servers for each of [`CAPACITIES`].
    pub servers: [u64; CAPACITIES.len()],
    /// Stages for each of [`CAPACITIES`]; 1 is a mesh.
    pub stages: [u32; CAPACITIES.len()],
}

/// The table for servers with `fan_out` internal ports.
///
/// # Panics
/// When `fan_out` is below 2.
#[must_use]
pub fn table(fan_out: u32) -> [Row; 2] {
    [("current servers", 1), ("upcoming servers", 2)].map(|(name, ports_per_server)| {
        let port_servers = CAPACITIES
            .map(|capacity| capacity.0.div_ceil(PORT.0).div_ceil(u64::from(ports_per_server)));
        Row {
            name,
            ports_per_server,
            servers: port_servers.map(|count| servers(count, fan_out.into())),
            stages: port_servers.map(|count| stages(count, fan_out.into())),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as the lecture has it.
    const LECTURE: [[u64; 5]; 2] = [[16, 32, 128, 256, 512], [8, 16, 32, 128, 256]];

    fn cells(fan_out: u32) -> [[u64; 5]; 2] {
        table(fan_out).map(|row| row.servers)
    }

    #[test]
    fn every_cell_is_that_of_the_lecture() {
        assert_eq!(
            CAPACITIES.map(|rate| rate.to_string()),
            ["160G", "320G", "640G", "1.28T", "2.56T"]
        );
        for (row, lecture) in cells(FAN_OUT).iter().zip(&LECTURE) {
            for (capacity, (cell, want)) in CAPACITIES.iter().zip(row.iter().zip(lecture)) {
                assert_eq!(cell, want, "{capacity}");
            }
        }
        assert_eq!(table(FAN_OUT).map(|row| row.ports_per_server), [1, 2]);
        assert_eq!(table(FAN_OUT).map(|row| row.stages), [[1, 1, 2, 2, 2], [1, 1, 1, 2, 2]]);
    }

    #[test]
    fn fan_outs_of_32_to_63_reproduce_it_and_no_other() {
        let right: Vec<u32> = (2..=4096).filter(|&fan_out| cells(fan_out) == LECTURE).collect();
        assert_eq!(right, (32..=63).collect::<Vec<_>>());
    }
}
