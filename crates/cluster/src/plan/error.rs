//! Why there is no plan.

use std::fmt;

use super::{MOST_SERVERS, Rate};

/// Reason why no cluster is as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// A rate or a count is 0.
    Zero,
    /// The external capacity is no whole number of ports.
    NotMultiple {
        /// Requested capacity.
        capacity: Rate,
        /// Rate of a port.
        port: Rate,
    },
    /// One port alone is more than a server processes.
    PortFaster {
        /// Rate of a port.
        port: Rate,
        /// What a server processes.
        server: Rate,
    },
    /// A server processes less than twice its ports.
    ServerTooSlow {
        /// Rate of the ports of a server.
        ports: Rate,
        /// What they take, in and out.
        need: Rate,
        /// What a server processes.
        server: Rate,
    },
    /// A server has fewer cores than uniform traffic takes.
    TooFewCores {
        /// Cores that it takes.
        need: u64,
        /// Cores of a server.
        has: u64,
    },
    /// A server has too few internal ports for any topology.
    FanOut {
        /// Least number of internal ports.
        need: u64,
        /// Internal ports of a server.
        fan_out: u64,
        /// Rate of one.
        link: Rate,
    },
    /// The links of a server lead to no more servers than may fail.
    TooManyFailures {
        /// Failures to have room for.
        failures: u64,
        /// Servers with ports.
        servers: u64,
    },
    /// The cluster has more servers than internal frames can name.
    TooManyServers {
        /// Servers that it takes.
        need: u64,
    },
    /// The ports of a server have a rate beyond 64 bits.
    TooManyPorts,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => write!(f, "capacity, ports, links and clock are more than 0"),
            Self::NotMultiple { capacity, port } => {
                write!(f, "capacity {capacity} is no multiple of a port of {port}")
            }
            Self::PortFaster { port, server } => {
                write!(f, "port of {port} is faster than a server, which processes {server}")
            }
            Self::ServerTooSlow { ports, need, server } => {
                write!(
                    f,
                    "server processes {server}: ports of {ports} on it take {need}, in and out"
                )
            }
            Self::TooFewCores { need, has } => {
                write!(f, "uniform traffic takes {need} cores, a server has {has}")
            }
            Self::FanOut { need, fan_out, link } => write!(
                f,
                "fan-out of {fan_out} too small: a server takes at least {need} internal ports of {link}"
            ),
            Self::TooManyFailures { failures, servers } => {
                write!(f, "{failures} failures are too many for {servers} servers with ports")
            }
            Self::TooManyServers { need } => {
                write!(f, "{need} servers needed, at most {MOST_SERVERS}")
            }
            Self::TooManyPorts => write!(f, "ports of a server together are beyond 64 bits"),
        }
    }
}

impl std::error::Error for PlanError {}
