//! `route get --explain` in the XDP datapath: what its programs do with a packet to the address.

use std::net::IpAddr;

use fingerpost_io::xdp::forward::reasons::LeftAlone;
use fingerpost_io::xdp::forward::{Evaluated, Fate, Forwarder};
use fingerpost_lpm::Lookup;

use super::View;
use crate::api::model::DriverAnswer;
use crate::flow::Flow;

impl View<'_> {
    /// Dry runs of a packet to `addr`, of `flow` or of any, in the programs that read a table. Interfaces
    /// with equal results are together; none where nothing forwards in XDP.
    pub(super) fn in_drivers(
        &self,
        table: u32,
        addr: IpAddr,
        flow: Option<Flow>,
    ) -> Vec<DriverAnswer> {
        let flow = flow.unwrap_or_else(|| Flow::any(addr));
        self.drivers_with(table, addr, flow.to_string(), &flow.packet())
    }

    /// Dry runs of a packet of the requester in the XDP datapath, under this name.
    pub(super) fn drivers_with(
        &self,
        table: u32,
        addr: IpAddr,
        name: String,
        packet: &[u8],
    ) -> Vec<DriverAnswer> {
        let Some(forwarder) = self.interfaces.forwarder() else { return Vec::new() };
        let Some(at) = self.control.tables().iter().position(|id| *id == table.into()) else {
            return Vec::new();
        };
        let fib = u16::try_from(at).expect("tables are counted in 16 bits");
        let nexthop = answered(forwarder, fib, addr);
        let evaluated = forwarder.evaluate(fib, packet).unwrap_or_else(|error| {
            vec![Evaluated { ports: Vec::new(), fate: Err(error.to_string()) }]
        });
        let one = |evaluated: Evaluated| {
            let of = |port: &u16| {
                let link = self.control.links().find(|(_, number, _)| number == port);
                link.map_or_else(|| port.to_string(), |(_, _, state)| state.name.clone())
            };
            let counted = |does, why: LeftAlone| {
                (does, None, Some(why.name().to_owned()), Some(why.summary().to_owned()))
            };
            let (does, adjacency, reason, why) = match evaluated.fate {
                Ok(Fate::Sent(adjacency)) => ("forward", Some(adjacency), None, None),
                Ok(Fate::Dropped(why)) => counted("drop", why),
                Ok(Fate::Left(why)) => counted("leave", why),
                Err(why) => ("none", None, None, Some(why)),
            };
            DriverAnswer {
                interfaces: evaluated.ports.iter().map(of).collect(),
                table,
                packet: name.clone(),
                nexthop: if does == "none" { None } else { nexthop },
                does: does.to_owned(),
                adjacency: adjacency.and_then(|index| self.adjacency(index)),
                reason,
                why,
            }
        };
        evaluated.into_iter().map(one).collect()
    }
}

/// What the programs' lookup answers; `None` where they cannot read the table.
fn answered(forwarder: &Forwarder, fib: u16, addr: IpAddr) -> Option<u32> {
    let hop = match addr {
        IpAddr::V4(addr) => forwarder.query_program_now(fib, 0)?.lookup(addr.to_bits()),
        IpAddr::V6(addr) => forwarder.query_program_now(fib, 1)?.lookup(addr.to_bits()),
    };
    Some(hop.0)
}
