//! Our forwarder: the tables of the packet graph, read by its program in the kernel.
//!
//! Built through the control side, as the daemon does it, with the router's links as its ports; the
//! classifier behind the program has no addresses of its own and no sockets. Attaching links the program
//! anew for each interface, which is not timed.

use std::any::Any;
use std::sync::Arc;

use anyhow::{Context, Error, Result, bail, ensure};
use fingerpost_io::xdp::bpf::Program;
use fingerpost_io::xdp::forward::{CAP_BYTES, Forwarder};
use fingerpost_io::xdp::{Classifier, LocalAddresses, Mode, XDP_DROP};
use fingerpost_lpm::Addr;
use fingerpost_packet::feature::sampling::Sampling;
use fingerpost_route::Control;

use super::{Engine, Frames, Row};
use crate::document::Kind;
use crate::forward::features::{Collecting, Crossing, Feature, Running};
use crate::forward::stream::Stream;
use crate::forward::world::{self, LINKS, Ports};
use crate::table::{Table, Tables};
use crate::traffic::Meter;
use crate::xdp::XdpOptions;

pub(in crate::xdp) const OURS: Row = Row {
    name: "xdp",
    summary: "our forwarder: the router's own tables, read by its program",
    by_family: true,
    kind: Kind::Ours,
    checked: true,
    loses: false,
    program: true,
    kernel_table: false,
    frames: Frames::Packets,
    make: |tables, family| Ok(Box::new(Ours::new(tables, family)?)),
};

/// The longest frame that a socket behind the classifier would take.
pub(super) const LONGEST: u16 = 2048;

pub(in crate::xdp) struct Ours {
    forwarder: Forwarder,
    ports: Ports,
    family: u8,
    /// Keeps the tables.
    pub(in crate::xdp) control: Control,
    /// Keeps the feature, and takes its samples.
    feature: Option<(Running, Option<Collecting>)>,
}

impl Ours {
    pub(in crate::xdp) fn new(tables: &Tables, family: u8) -> Result<Self> {
        let forwarder = Forwarder::new(0, CAP_BYTES)?;
        let (control, ports) = world::build(&tables.only(family), None, None, Some(&forwarder))?;
        let ours = Self { forwarder, ports, family, control, feature: None };
        // Says so now if it cannot.
        drop(ours.hold()?);
        Ok(ours)
    }

    /// Forwarder with a feature on its ingress.
    pub(in crate::xdp) fn with_feature(
        options: &XdpOptions,
        family: u8,
        feature: &Feature,
    ) -> Result<Self> {
        let mut ours = Self::new(&options.tables, family)?;
        match (&options.tables.v4, &options.tables.v6) {
            (Some(table), _) if family == 4 => ours.start(options, table, feature)?,
            (_, Some(table)) if family == 6 => ours.start(options, table, feature)?,
            _ => bail!("no table of IPv{family}"),
        }
        Ok(ours)
    }

    fn start<A: Addr>(
        &mut self,
        options: &XdpOptions,
        table: &Table<A>,
        feature: &Feature,
    ) -> Result<()> {
        let most = options.destinations.iter().copied().max().unwrap_or(1);
        let crossing = Crossing::draw(table, Stream::Prefix, most, options.seed)?;
        let (control, ports) = (&mut self.control, self.ports);
        let running = Running::start(feature, table, &crossing, options.listed, control, ports)?;
        self.forwarder.set_source_filters(running.states.of()).map_err(Error::msg)?;
        self.forwarder.set_access_lists(running.states.of()).map_err(Error::msg)?;
        self.forwarder.set_sampling(running.states.of()).map_err(Error::msg)?;
        let samples = running.states.of::<Sampling>().map(|_| {
            let forwarder = self.forwarder.clone();
            Collecting::start(move || _ = forwarder.take_samples(usize::MAX, |_| ()))
        });
        let _held = self.hold()?;
        let len = usize::from(world::frame_len(A::FAMILY));
        let tester = self.forwarder.tester(ports.input)?;
        if let Some(refused) = running.refused {
            let answer = tester.test(&refused[..len])?;
            ensure!(
                answer.action == XDP_DROP.cast_unsigned(),
                "{}: the program passes it",
                feature.name
            );
        } else {
            let header = crossing.headers(|_| 1)[0];
            tester.test(&header[..len])?;
            let sampled = self.forwarder.sampled().get(&ports.input).copied().unwrap_or_default();
            ensure!(sampled.packets > 0, "{}: the program counts no packet", feature.name);
        }
        self.feature = Some((running, samples));
        Ok(())
    }

    pub(in crate::xdp) fn hold(&self) -> Result<Held> {
        let held = Held { forwarder: self.forwarder.clone(), ports: self.ports };
        let local = LocalAddresses::new()?;
        for (port, link) in self.ports.all().into_iter().zip(LINKS) {
            let classifier = Classifier::load(world::link_mac(link).0, &local, LONGEST)?;
            let attached = Arc::new(classifier.attach(link, Mode::Native)?);
            self.forwarder.add_port(port, link, Arc::new(classifier), attached)?;
            // The other end has the sink's program: what leaves arrives.
            self.forwarder.open_egress(port, true);
        }
        let reads = self.forwarder.reads(self.ports.input).context("a port that was added")?;
        let reads = reads.map_err(anyhow::Error::msg)?;
        if !(if self.family == 4 { reads.v4 } else { reads.v6 }) {
            bail!("the program reads no IPv{} table", self.family);
        }
        Ok(held)
    }
}

/// The interfaces, until they are let go.
pub(in crate::xdp) struct Held {
    pub(super) forwarder: Forwarder,
    pub(super) ports: Ports,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ports.all().into_iter().for_each(|port| self.forwarder.remove_port(port));
    }
}

impl Engine for Ours {
    fn attach(&self, _: &Meter) -> Result<Box<dyn Any>> {
        Ok(Box::new(self.hold()?))
    }

    fn alone(&self, time: &mut dyn FnMut(&Program) -> Result<f64>) -> Result<f64> {
        let _held = self.hold()?;
        time(&self.forwarder.tester(self.ports.input)?)
    }
}
