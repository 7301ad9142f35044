//! Interfaces.

use std::collections::{BTreeMap, HashMap};

use fingerpost_packet::DropReason;
use fingerpost_packet::feature::Feature;
use fingerpost_packet::feature::row::{Support, Use};
use fingerpost_packet::frame::counters::PortCounters;
use fingerpost_route::MAIN_TABLE;

use super::View;
use crate::api::model::{Interface, InterfaceFeature};
use crate::config::in_kernel;
use crate::daemon::ports::numbers::Counted;

impl View<'_> {
    /// Interfaces, with what was counted on them.
    pub(super) fn interface_list(&self) -> Vec<Interface> {
        let driven: HashMap<u16, _> =
            self.interfaces.report().into_iter().map(|row| (row.port, row)).collect();
        let mut addresses: HashMap<u32, Vec<String>> = HashMap::new();
        for address in self.control.addresses() {
            let words = format!("{}/{}", address.addr, address.prefix_len);
            addresses.entry(address.link).or_default().push(words);
        }
        let in_xdp = self.interfaces.received_xdp();
        let (tables, ports) = (self.control.tables(), self.control.forwarding().ports.clone());
        let links = self.control.links().map(|(link, port, state)| {
            let drive = driven.get(&port);
            // Packets that the XDP datapath handled reached no worker; packets that it left to the graph did.
            let counted = self.interfaces.counted(port, self.workers, &in_xdp);
            let Counted { graph, received, sent } = &counted;
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
                addresses: addresses.remove(&link).unwrap_or_default(),
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
                rx_packets: graph.rx[0] + received.packets + drive.map_or(0, |row| row.held_back),
                rx_bytes: graph.rx[1] + received.bytes,
                tx_packets: graph.tx[0] + sent.packets,
                tx_bytes: graph.tx[1] + sent.bytes,
                punted: drive.map_or(0, |row| row.punted),
                dropped: dropped(&counted, drive.map_or(0, |row| row.held_back)),
                device: self.device_counts(port),
            }
        });
        links.collect()
    }

    /// Counters of a port, a worker at a time.
    pub(super) fn port_counters(&self, port: u16) -> impl Iterator<Item = &PortCounters> {
        let ports = self.workers.iter().map(|worker| &worker.counters.ports);
        ports.filter_map(move |ports| ports.get(usize::from(port)))
    }

    /// Counts of the device of a port, of all workers.
    pub(super) fn device_counts(&self, port: u16) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (name, count) in self.port_counters(port).flat_map(PortCounters::device) {
            *all.entry(name.to_owned()).or_default() += count;
        }
        all
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

/// Frames of an interface that were dropped, by reason: by workers, in XDP, and there for want of a worker.
fn dropped(counted: &Counted, held_back: u64) -> BTreeMap<String, u64> {
    let by_workers = DropReason::ALL.iter().map(|&reason| (reason, counted.graph.dropped(reason)));
    let in_xdp = counted.received.dropped();
    let mut all = BTreeMap::new();
    for (reason, count) in by_workers
        .chain(in_xdp.filter_map(|(why, count)| Some((why.drop_reason()?, count))))
        .chain([(DropReason::NoWorker, held_back)])
        .filter(|(_, count)| *count > 0)
    {
        *all.entry(reason.name().to_owned()).or_default() += count;
    }
    all
}
