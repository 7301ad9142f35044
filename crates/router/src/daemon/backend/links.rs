//! Interfaces.

use std::collections::HashMap;

use fingerpost_packet::feature::Feature;
use fingerpost_packet::feature::row::{Support, Use};
use fingerpost_route::MAIN_TABLE;

use super::View;
use crate::api::model::{Interface, InterfaceFeature};
use crate::config::in_kernel;

impl View<'_> {
    /// Interfaces, with what was counted on them.
    pub(super) fn interface_list(&self) -> Vec<Interface> {
        let driven: HashMap<u16, _> =
            self.interfaces.report().into_iter().map(|row| (row.port, row)).collect();
        let in_xdp = self.interfaces.received_xdp();
        let (tables, ports) = (self.control.tables(), self.control.forwarding().ports.clone());
        let links = self.control.links().map(|(link, port, state)| {
            let count =
                |of: &dyn Fn(&fingerpost_packet::frame::counters::PortCounters) -> u64| -> u64 {
                    let ports = self.workers.iter().map(|worker| &worker.counters.ports);
                    ports.filter_map(|ports| ports.get(usize::from(port))).map(of).sum()
                };
            let addresses = self.control.addresses().filter(|address| address.link == link);
            let drive = driven.get(&port);
            // Packets that the XDP datapath handled reached no worker; packets that it left to the graph did.
            let in_xdp_here = in_xdp.get(&port).copied().unwrap_or_default();
            let sent = self.interfaces.sent_xdp(port);
            Interface {
                name: state.name.clone(),
                index: link,
                port,
                table: tables
                    .get(usize::from(ports.first_fibs(port)[0]))
                    .map_or(MAIN_TABLE, |id| id.number()),
                up: state.up,
                mtu: state.mtu,
                mac: state.mac.map(|mac| mac.to_string()),
                kind: state.kind.clone(),
                addresses: addresses.map(|a| format!("{}/{}", a.addr, a.prefix_len)).collect(),
                path: drive.map_or("kernel", |row| row.path).to_owned(),
                mode: match drive {
                    Some(row) => row.mode.clone(),
                    None if state.loopback => "the loopback".to_owned(),
                    None => "it is down".to_owned(),
                },
                policy: drive.and_then(|row| row.policy.clone()),
                features: self.interface_features(
                    &state.name,
                    port,
                    drive.map_or("kernel", |row| row.path),
                ),
                remedy: drive.and_then(|row| row.remedy.clone()),
                rx_packets: count(&|c| c.rx_packets.read())
                    + in_xdp_here.packets
                    + drive.map_or(0, |row| row.held_back),
                rx_bytes: count(&|c| c.rx_bytes.read()) + in_xdp_here.bytes,
                tx_packets: count(&|c| c.tx_packets.read()) + sent.packets,
                tx_bytes: count(&|c| c.tx_bytes.read()) + sent.bytes,
                punted: drive.map_or(0, |row| row.punted),
            }
        });
        links.collect()
    }

    /// The features of an interface whose packets take this path.
    fn interface_features(&self, name: &str, port: u16, path: &str) -> Vec<InterfaceFeature> {
        let feature = |(row, used, support): (&Feature, Use, Support)| {
            let (path, mut why) = match (path, support) {
                ("kernel", _) => ("kernel", Some(in_kernel(row, name))),
                ("xdp", Support::Xdp) => ("xdp", None),
                ("xdp", Support::Partly(which)) => {
                    ("xdp", Some(format!("these leave XDP: {which}")))
                }
                (_, Support::Xdp | Support::Partly(_)) => ("graph", None),
                (_, Support::Graph(why)) => ("graph", Some(why.to_owned())),
            };
            if let Some(without) = self.interfaces.not_local(row, name, port) {
                why = Some(why.map_or(without.clone(), |why| format!("{why}; {without}")));
            }
            let (name, path) = (row.name.to_owned(), path.to_owned());
            InterfaceFeature { name, settings: used.words, path, why }
        };
        self.settings.config().features.on(name).into_iter().map(feature).collect()
    }
}
