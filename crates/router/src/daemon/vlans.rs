//! VLAN interfaces on interfaces that are taken over: which of them drivers forward for, and why not for others.
//!
//! Their frames come and go, tagged, by the device of another interface, so the program there forwards for them.
//! What it leaves of what comes tagged is the kernel's, which has the VLAN interface: neither AF_XDP sockets nor
//! the graph take tags. What is to leave by a VLAN interface and does not leave by XDP goes out through a
//! packet socket, as by any interface that stays with the kernel.

use std::collections::BTreeMap;
use std::sync::Arc;

use fingerpost_io::xdp::forward::Vlan;
use fingerpost_packet::feature::row::Support;
use fingerpost_route::{Control, LinkState, PortTable};
use tracing::warn;

use super::ports::{Interfaces, chosen};
use crate::config::Mode;

/// The kind that the kernel gives to such interfaces.
pub(super) const KIND: &str = "vlan";
/// Tag type of 802.1Q.
const TAG: u16 = 0x8100;
/// Valid VLAN IDs.
const IDS: std::ops::RangeInclusive<u16> = 1..=4094;

/// The VLAN interfaces by port.
#[derive(Default)]
pub(super) struct Vlans {
    by_port: BTreeMap<u16, Result<Tagged, String>>,
    /// Ports when they were read.
    ports: Option<Arc<PortTable>>,
}

/// A VLAN interface that an XDP program forwards for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tagged {
    vlan: Vlan,
    /// The interface that it is on.
    pub(super) on: String,
}

impl Tagged {
    /// Description of where it is forwarded.
    pub(super) fn place(&self) -> String {
        format!("in XDP on {}, tag {}", self.on, self.vlan.id)
    }

    /// Packet path and its description; `forwards` is what the XDP program forwards.
    pub(super) fn path_and_mode(
        &self,
        forwards: Option<Result<&'static str, String>>,
    ) -> (&'static str, String) {
        match forwards {
            Some(Ok(what)) => {
                ("xdp", format!("{what} forwarded {}, the rest by the kernel", self.place()))
            }
            Some(Err(why)) => ("kernel", format!("it is not forwarded {}: {why}", self.place())),
            None => ("kernel", format!("{} is not taken over", self.on)),
        }
    }
}

impl Vlans {
    /// Looks at all of them again.
    pub(super) fn forget(&mut self) {
        self.ports = None;
    }

    /// How one is driven, or why not.
    pub(super) fn get(&self, port: u16) -> Option<&Result<Tagged, String>> {
        self.by_port.get(&port)
    }
}

impl Interfaces {
    /// Follows the VLAN interfaces, and updates the programs.
    pub(super) fn sync_vlans(&mut self, control: &Control) {
        let Some(forwarder) = &self.datapath.forwarder else { return };
        // Any change of a link makes a new one.
        let ports = control.forwarding().ports.clone();
        if self.vlans.ports.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &ports)) {
            return;
        }
        let links = control.links().filter(|(_, _, state)| state.kind == KIND && state.up);
        let by_port: BTreeMap<_, _> = links
            .map(|(link, port, state)| (port, self.tagged(control, link, port, state)))
            .collect();
        let told = by_port.values().flatten().map(|tagged| tagged.vlan).collect();
        if let Err(error) = forwarder.set_vlans(told) {
            warn!(target: "interface", "VLAN interfaces: {error}");
        }
        self.history.changed = true;
        self.vlans = Vlans { by_port, ports: Some(ports) };
    }

    fn tagged(
        &self,
        control: &Control,
        link: u32,
        port: u16,
        state: &LinkState,
    ) -> Result<Tagged, String> {
        if !matches!(chosen(&self.options, state)?, Mode::Auto | Mode::Xdp) {
            return Err("by the configuration".into());
        }
        let config = &self.options.config;
        for (row, used, support) in config.features.on(&state.name) {
            if support != Support::Xdp {
                let (name, words) = (row.name, used.words);
                return Err(format!(
                    "{name} ({words}) needs the graph, to which tagged frames never come"
                ));
            }
        }
        let vlan = state.vlan.ok_or("the interface that it is on is not here")?;
        if vlan.protocol != TAG {
            return Err(format!("its tags are of type {:#06x}, not {TAG:#06x}", vlan.protocol));
        }
        if !IDS.contains(&vlan.id) {
            return Err(format!("tag {} names no VLAN", vlan.id));
        }
        if vlan.mapped {
            return Err("it maps priorities".into());
        }
        let mac = state.mac.ok_or("it has no Ethernet address")?;
        if let Some(why) = self.obstacle(link, state) {
            return Err(why);
        }
        let on = control.links().find(|(other, _, _)| *other == vlan.parent);
        let (ifindex, parent, on) = on.ok_or("the interface that it is on is not here")?;
        match self.plan(ifindex, on) {
            Ok(Mode::Auto | Mode::Xdp) => {}
            Ok(_) => return Err(format!("{} is not forwarded in XDP", on.name)),
            Err(why) => return Err(format!("{} stays with the kernel: {why}", on.name)),
        }
        // The program of that interface forwards for both.
        let left = self.left(link, state);
        if !left.families.within(self.left(ifindex, on).families) {
            return Err(left.why.unwrap_or_default());
        }
        let vlan = Vlan { port, parent, ifindex, id: vlan.id, mac };
        Ok(Tagged { vlan, on: on.name.clone() })
    }
}
