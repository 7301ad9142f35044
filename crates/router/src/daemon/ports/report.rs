//! Reports of interfaces: how each is driven and why, and what was forwarded, punted and dropped there.
//!
//! Cost: a report reads the counters of each classifier, a system call each.

use std::collections::BTreeMap;

use fingerpost_io::xdp::fabric::FabricEnd;
use fingerpost_io::xdp::forward::reasons::LeftAlone;
use fingerpost_io::xdp::forward::{Forwarder, Reads, Received, Used};
use fingerpost_packet::feature::{Feature, row, urpf};
use fingerpost_route::netlink::errno::without_number;
use tracing::warn;

use super::numbers::Counted;
use super::{Drive, Interfaces, Open, WorkerHandle};
use crate::api::metrics::GraphCounts;
use crate::config::in_kernel;
use crate::daemon::takeover;

/// What is known of an interface, for reports.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct InterfaceReport {
    pub(crate) name: String,
    pub(crate) port: u16,
    /// `xdp`, `afxdp` or `kernel`.
    pub(crate) path: &'static str,
    pub(crate) mode: String,
    /// What the kernel does to forwarded packets of it: for that it stays with the kernel, as a whole or with the packets
    /// of a family, or is taken over in spite of it.
    pub(crate) policy: Option<String>,
    /// Whether it is being taken over.
    #[serde(skip)]
    pub(crate) opening: bool,
    /// Remedy that lets packets leave by it in XDP, where its driver alone prevents it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// Frames left to the kernel by the classifier.
    pub(crate) punted: u64,
    /// Frames handed to the workers' sockets.
    pub(crate) redirected: u64,
    /// Frames dropped in XDP, since no worker would have looked at their sources.
    pub(crate) held_back: u64,
}

impl Interfaces {
    /// Packets that the XDP datapath left to the graph or the kernel, or dropped, by reason.
    pub(in crate::daemon) fn left_xdp(&self) -> Vec<(LeftAlone, u64)> {
        let counted =
            self.datapath.guard.as_ref().and_then(|forwarder| forwarder.left_alone().ok());
        counted.unwrap_or_default()
    }

    /// Packets that the XDP datapath received, by ingress port.
    pub(in crate::daemon) fn received_xdp(&self) -> BTreeMap<u16, Received> {
        self.datapath.guard.as_ref().map(Forwarder::received).unwrap_or_default()
    }

    /// Why features are not applied to packets to the router itself that arrive on an interface, if they are not.
    pub(in crate::daemon) fn unguarded(&self, port: u16) -> Option<String> {
        match self.guard().and_then(|guard| guard.guards(port)) {
            Some(guards) => guards.err(),
            None => Some("the interface has no XDP program".to_owned()),
        }
    }

    /// Why a feature that is also for packets to the router itself is not applied to these on an interface.
    pub(in crate::daemon) fn not_local(
        &self,
        row: &Feature,
        name: &str,
        port: u16,
    ) -> Option<String> {
        let mut each = self.options.config.features.each();
        each.find(|(known, settings)| known.name == row.name && settings.is_local(name))?;
        let why = self.unguarded(port)?;
        Some(format!("packets to the router itself pass: {why}"))
    }

    /// What was counted of the interface that has a port number by now, with all ports of [`Interfaces::received_xdp`].
    pub(in crate::daemon) fn counted(
        &self,
        port: u16,
        workers: &[WorkerHandle],
        received: &BTreeMap<u16, Received>,
    ) -> Counted {
        self.counted_in_all(port, workers, received).since(&self.history.numbers.before(port))
    }

    /// What was counted before of other interfaces that had the number.
    pub(in crate::daemon) fn counted_before(&self, port: u16) -> Counted {
        self.history.numbers.before(port)
    }

    pub(super) fn counted_in_all(
        &self,
        port: u16,
        workers: &[WorkerHandle],
        received: &BTreeMap<u16, Received>,
    ) -> Counted {
        Counted {
            graph: GraphCounts::of(workers.iter().map(|worker| &*worker.counters), port),
            received: received.get(&port).copied().unwrap_or_default(),
            sent: self.sent_xdp(port),
        }
    }

    /// Packets that the XDP datapath sent by a port.
    fn sent_xdp(&self, port: u16) -> Used {
        self.datapath
            .forwarder
            .as_ref()
            .map_or_else(Used::default, |forwarder| forwarder.sent(port))
    }

    /// Packets that the XDP datapath forwarded, by adjacency.
    pub(in crate::daemon) fn forwarded(&self) -> Vec<Used> {
        self.datapath
            .forwarder
            .as_ref()
            .and_then(|forwarder| forwarder.used().ok())
            .unwrap_or_default()
    }

    /// What would let packets leave by an interface in XDP, where its driver takes none; `None` where it takes
    /// them, or nothing leaves in XDP at all.
    pub(super) fn remedy(&self, open: &Open) -> Option<String> {
        let forwarder = self.datapath.forwarder.as_ref()?;
        let driven = matches!(open.drive, Drive::Afxdp { .. });
        if !driven || forwarder.is_open(open.port) || forwarder.reads(open.port)?.is_err() {
            return None;
        }
        Some(match &*open.state.kind {
            "veth" => {
                "its peer has neither GRO nor an XDP program: `ethtool -K PEER gro on`, where \
                       PEER is the other end"
                    .to_owned()
            }
            _ => "its driver takes no packets from XDP programs".to_owned(),
        })
    }

    /// Logs the reverse-path filter of the kernel that holds no longer where we forward and the configuration has no uRPF.
    pub(super) fn report_kernel_filter(&mut self, name: &str) {
        if self.options.config.features.of::<urpf::Settings>().has(name) {
            return;
        }
        if let Some(filter) = takeover::reverse_path_filter(name) {
            warn!(target: "takeover", interface = name, filter, "{name}: the kernel's reverse-path filter ({filter}) does not hold for what is forwarded here: configure \
                 urpf = \"{filter}\", or \"off\", for it");
        }
    }

    /// Logs features that the configuration has for an interface by name, or for packets to the router itself, and that
    /// are not applied there.
    pub(super) fn report_not_applied(&mut self, link: u32) {
        let Some(open) = self.open.get(&link).filter(|_| !self.opening.has(link)) else { return };
        let (name, in_kernel_alone) = (&open.state.name, self.path_and_mode(open).0 == "kernel");
        let features = self.options.config.features.each();
        let notice = |(row, settings): (&Feature, &dyn row::Settings)| {
            let (words, _) = settings.unlike_usual(name)?;
            let kernel = in_kernel_alone.then(|| in_kernel(row, name));
            let why: Vec<String> =
                kernel.into_iter().chain(self.not_local(row, name, open.port)).collect();
            let why = (!why.is_empty()).then(|| why.join("; "))?;
            Some(format!("{} ({words}) of {name} does not hold: {why}", row.name))
        };
        for notice in features.filter_map(notice) {
            warn!(target: "interface", interface = name, "{notice}");
        }
    }

    /// What is forwarded in XDP of a port, or why nothing is; `None` where that was not tried.
    pub(super) fn forwards(&self, port: u16) -> Option<Result<&'static str, String>> {
        Some(match self.datapath.forwarder.as_ref()?.reads(port)? {
            Ok(Reads { v4: true, v6: true }) => Ok("IPv4 and IPv6"),
            Ok(Reads { v4: true, v6: false }) => Ok("IPv4"),
            Ok(Reads { v4: false, v6: true }) => Ok("IPv6"),
            Ok(_) => Err("it reads the tables of neither family".into()),
            Err(why) => Err(why),
        })
    }

    /// Packet path of an interface, and its description.
    pub(super) fn path_and_mode(&self, open: &Open) -> (&'static str, String) {
        let forwards = self.forwards(open.port);
        if let (Drive::Kernel, Some(tagged)) = (&open.drive, self.vlans.get(open.port)) {
            return tagged.as_ref().map_or_else(
                |why| ("kernel", why.clone()),
                |tagged| tagged.path_and_mode(forwards),
            );
        }
        match (&open.drive, forwards) {
            (Drive::Kernel, _) => ("kernel", open.mode.clone()),
            (Drive::Afxdp { .. }, None) => ("afxdp", open.mode.clone()),
            (Drive::Afxdp { .. }, Some(Ok(what))) => {
                let is_open = |open: &Open| {
                    self.datapath.forwarder.as_ref().is_some_and(|f| f.is_open(open.port))
                };
                match self.remedy(open) {
                    None => {
                        let how = format!("{what} forwarded in XDP, the rest by {}", open.mode);
                        ("xdp", how)
                    }
                    // Packets that arrive on it may leave by others.
                    Some(remedy) if self.open.values().any(is_open) => {
                        let how = format!(
                            "{what} received in XDP, the rest by {}; nothing leaves by it in XDP: {remedy}",
                            open.mode
                        );
                        ("xdp", how)
                    }
                    Some(remedy) => {
                        ("afxdp", format!("{}; nothing leaves by it in XDP: {remedy}", open.mode))
                    }
                }
            }
            (Drive::Afxdp { .. }, Some(Err(why))) => {
                ("afxdp", format!("{}; not in XDP: {why}", open.mode))
            }
        }
    }

    /// Packets that the XDP datapath forwarded, those in transit between nodes of a cluster among them.
    pub(in crate::daemon) fn forwarded_packets(&self) -> u64 {
        let transit = self.fabric_ends().into_iter().filter(|(end, _)| *end == FabricEnd::Transit);
        let transit: u64 = transit.map(|(_, count)| count).sum();
        self.forwarded().iter().map(|used| used.packets).sum::<u64>() + transit
    }

    /// Frames of internal interfaces that XDP dropped, by reason.
    pub(in crate::daemon) fn dropped_fabric(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let dropped = self.fabric_ends().into_iter().filter(|(end, _)| *end >= FabricEnd::External);
        dropped.map(|(end, count)| (end.name(), count)).filter(|(_, count)| *count > 0)
    }

    /// What became of frames of internal interfaces in XDP.
    fn fabric_ends(&self) -> Vec<(FabricEnd, u64)> {
        let cluster = self.datapath.cluster.as_ref();
        cluster.map(|cluster| cluster.programs().counts()).unwrap_or_default()
    }

    /// Interfaces whose frames the workers receive.
    pub(in crate::daemon) fn taken_over(&self) -> usize {
        self.report().iter().filter(|interface| interface.path != "kernel").count()
    }

    /// Why an interface could not be taken over for want of a privilege, the latest.
    pub(in crate::daemon) fn take_refused(&mut self) -> Option<String> {
        self.history.refused.take()
    }

    /// Whether an interface was opened, closed or returned since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.history.changed)
    }

    /// How each interface is driven.
    pub(crate) fn report(&self) -> Vec<InterfaceReport> {
        if self.open.is_empty() {
            return self.history.last.clone();
        }
        self.open
            .iter()
            .map(|(&link, open)| {
                let Seen { punted, redirected, held_back } = open.counts();
                let (path, mut mode) = self.path_and_mode(open);
                let policy = self.mark(link).map(str::to_owned);
                if let (Drive::Afxdp { .. }, Some(policy)) = (&open.drive, &policy) {
                    mode += &format!("; {policy}");
                }
                InterfaceReport {
                    name: open.state.name.clone(),
                    port: open.port,
                    path,
                    mode: without_number(&mode),
                    policy,
                    opening: self.opening.has(link),
                    remedy: self.remedy(open),
                    punted,
                    redirected,
                    held_back,
                }
            })
            .collect()
    }

    /// Frames that the classifiers left to the kernel, on interfaces past and present.
    pub(crate) fn punted(&self) -> u64 {
        self.history.closed.punted
            + self.open.values().map(|open| open.counts().punted).sum::<u64>()
    }

    /// Frames that the classifiers dropped for want of a worker, on interfaces past and present.
    pub(in crate::daemon) fn held_back(&self) -> u64 {
        self.history.closed.held_back
            + self.open.values().map(|open| open.counts().held_back).sum::<u64>()
    }
}

/// Frames that a classifier has seen.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// Frames left to the kernel.
    punted: u64,
    /// Frames given to sockets.
    redirected: u64,
    /// Frames dropped for want of a worker.
    held_back: u64,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, more: Self) {
        self.punted += more.punted;
        self.redirected += more.redirected;
        self.held_back += more.held_back;
    }
}

impl Open {
    pub(super) fn counts(&self) -> Seen {
        match &self.drive {
            Drive::Afxdp { classifier, .. } => classifier.counts().map_or_else(
                |_| Seen::default(),
                |c| Seen { punted: c.passed, redirected: c.redirected, held_back: c.held_back },
            ),
            Drive::Kernel => Seen::default(),
        }
    }
}
