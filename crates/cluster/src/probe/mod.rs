//! Probes over internal links: which nodes and links are up, a few milliseconds after that changed.
//!
//! Source: BFD (RFC 5880) for the links; the flooding of one hop stands for what an IGP would do, as a path of the cluster
//!         has at most two links.
//! Shape:  `packet` is what a probe carries, `session` the state of a link, `table` all links of a node and what
//!         the others announce, `run` the thread with its sockets. All but the last are functions over time.

mod packet;
mod run;
mod session;
mod table;

#[cfg(any(test, feature = "testing"))]
pub use packet::testing;
pub use packet::{Bits, PacketError, Part, Probe, Service, VERSION};
pub use run::{Interface, Probes, RunCounts, Settings};
pub use session::{Counts, LinkState, Local, Reason, Session};
pub use table::{ANY, Member, Table, TableCounts};
