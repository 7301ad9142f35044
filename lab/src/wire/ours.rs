//! Our router over each of its drivers.

use anyhow::{Context, Result, ensure};
use fingerpost_io::DRIVERS;
use fingerpost_io::afxdp::{self, AfxdpPort, Spec};
use fingerpost_io::interface;
use fingerpost_io::xdp::{Classifier, Link, LocalAddresses, Mode};
use fingerpost_packet::Port;
use fingerpost_packet::device::DeviceSpec;
use fingerpost_packet::frame::{BATCH, Pool};

use super::packets::Does;
use super::ring::RingEnds;
use super::{Forwarder, Row, Scene, Stand};
use crate::document::Kind;
use crate::forward::world::{self, LINKS};
use crate::worker::{Running, Told, on};
use crate::xdp::engine::let_in;

pub(super) const AFXDP: Row = Row {
    name: "afxdp",
    summary: "our router over AF_XDP",
    kind: Kind::Ours,
    kernel_table: false,
    does: Does::Routes,
    begin: |stand| afxdp(stand, 1),
};

pub(super) const AFXDP_TWO: Row = Row {
    name: "afxdp-2-workers",
    summary: "the same in two workers, with a queue of each link each",
    begin: |stand| afxdp(stand, 2),
    ..AFXDP
};

pub(super) const AF_PACKET: Row =
    Row { name: "af_packet", summary: "our router over packet sockets", begin: af_packet, ..AFXDP };

pub(super) const TAP: Row =
    Row { name: "tap", summary: "our router between TAP interfaces", begin: tap, ..AFXDP };

pub(super) const RING: Row = Row {
    name: "ring",
    summary: "our router between rings of shared memory, their other ends in another thread",
    begin: ring,
    ..AFXDP
};

/// Bytes of a frame.
const FRAME_BYTES: u16 = 2048;
/// Frames of a router whose ports keep none for long.
const FRAMES: u32 = 2048;

/// Workers, and what must be there as long as they are.
struct Ours<T> {
    running: Vec<Running>,
    _attached: T,
}

impl<T> Forwarder for Ours<T> {
    fn end(self: Box<Self>) -> String {
        let mut told = Told::default();
        self.running.into_iter().for_each(|running| told.add(&running.end()));
        told.text()
    }
}

/// A classifier and its place.
type Attached = Vec<(Classifier, Link)>;

fn afxdp<'a>(stand: &'a Stand, workers: usize) -> Result<Scene<'a>> {
    ensure!(stand.cores.len() >= 2 * workers, "needs {} cores", 2 * workers);
    let lab = stand.lab(workers)?;
    let forwarder = lab.router.inside(|| {
        let local = LocalAddresses::new()?;
        let mut attached = Attached::new();
        for link in LINKS {
            let longest = FRAME_BYTES - fingerpost_packet::frame::HEADROOM;
            let classifier = Classifier::load(world::link_mac(link).0, &local, longest)?;
            let program = classifier.attach(link, Mode::Native)?;
            attached.push((classifier, program));
        }
        let mut running = Vec::new();
        for (queue, core) in (0..).zip(&stand.cores[stand.cores.len() - workers..]) {
            let (pool, ports) = afxdp_ports(stand, &attached, queue)?;
            running.push(Running::start(pool, stand.control.reader(), ports, on(*core))?);
        }
        Ok(Ours { running, _attached: attached })
    })?;
    let ends = stand.ends(lab, Does::Routes, workers)?;
    Ok(Scene { ends: Box::new(ends), forwarder: Box::new(forwarder) })
}

/// One queue of each link, with a pool of their own.
fn afxdp_ports(stand: &Stand, attached: &Attached, queue: u32) -> Result<(Pool, Numbered)> {
    let links = u32::try_from(LINKS.len())?;
    let frames = links * afxdp::frames_needed(afxdp::RING) + u32::try_from(4 * BATCH)?;
    let pool = Pool::new(frames, FRAME_BYTES);
    let mut sockets = Vec::<AfxdpPort>::new();
    for (link, (classifier, program)) in LINKS.into_iter().zip(attached) {
        let socket = afxdp::open(&Spec {
            name: &interface::name_of(link),
            ifindex: link,
            queue,
            pool: &pool,
            shared: sockets.first(),
            ring: afxdp::RING,
            attached: program,
            zero_copy: false,
        })?;
        classifier.set_socket(queue, std::os::fd::AsFd::as_fd(&socket))?;
        sockets.push(socket);
    }
    let boxed = sockets.into_iter().map(|socket| Box::new(socket) as Box<dyn Port>);
    Ok((pool, stand.ports.all().into_iter().zip(boxed).collect()))
}

/// Ports by their numbers.
type Numbered = Vec<(u16, Box<dyn Port>)>;

/// Devices of a driver with one queue each, in the order of the links.
fn open(stand: &Stand, driver: &str, names: &[String]) -> Result<(Pool, Numbered)> {
    let pool = Pool::new(FRAMES, FRAME_BYTES);
    let driver = DRIVERS.iter().find(|row| row.name == driver).context("a driver of this name")?;
    let mut ports = Numbered::new();
    for (number, name) in stand.ports.all().into_iter().zip(names) {
        let opened = (driver.open)(&DeviceSpec {
            name,
            queues: (0, 1),
            pools: std::slice::from_ref(&pool),
        })?;
        ports.extend(opened.into_iter().map(|port| (number, port)));
    }
    Ok((pool, ports))
}

fn af_packet<'a>(stand: &'a Stand) -> Result<Scene<'a>> {
    let lab = stand.lab(1)?;
    let forwarder = lab.router.inside(|| {
        let attached = let_in()?;
        let (pool, ports) = open(stand, "af_packet", &LINKS.map(interface::name_of))?;
        let running = Running::start(pool, stand.control.reader(), ports, on(stand.last_core()))?;
        Ok(Ours { running: vec![running], _attached: attached })
    })?;
    let ends = stand.ends(lab, Does::Routes, 1)?;
    Ok(Scene { ends: Box::new(ends), forwarder: Box::new(forwarder) })
}

/// The interfaces' other side is the kernel of the router's namespace: packets are made and end there.
fn tap<'a>(stand: &'a Stand) -> Result<Scene<'a>> {
    let lab = stand.lab(1)?;
    lab.router.inside(|| {
        let names = ["tap0", "tap1", "tap2"].map(str::to_owned);
        let (pool, ports) = open(stand, "tap", &names)?;
        let running = Running::start(pool, stand.control.reader(), ports, on(stand.last_core()))?;
        let mut found = Vec::new();
        for name in &names {
            found.push(interface::index_of(name)?);
        }
        let ends = stand.ends_on(found[0], &found[1..], Does::Routes, 1)?;
        let forwarder = Ours { running: vec![running], _attached: () };
        Ok(Scene { ends: Box::new(ends), forwarder: Box::new(forwarder) })
    })
}

fn ring<'a>(stand: &'a Stand) -> Result<Scene<'a>> {
    ensure!(stand.cores.len() > 1, "needs 2 cores");
    let paths = [0, 1, 2].map(|i| stand.scratch.join(format!("ring{i}")).display().to_string());
    // Who comes first listens.
    let ends = RingEnds::new(&stand.packets, |pool| {
        let driver = DRIVERS.iter().find(|row| row.name == "ring").context("it is ours")?;
        let mut ports = Vec::new();
        for name in &paths {
            ports.extend((driver.open)(&DeviceSpec {
                name,
                queues: (0, 1),
                pools: std::slice::from_ref(pool),
            })?);
        }
        Ok(ports)
    })?;
    let (pool, ports) = open(stand, "ring", &paths)?;
    let running = Running::start(pool, stand.control.reader(), ports, on(stand.last_core()))?;
    let forwarder = Ours { running: vec![running], _attached: () };
    Ok(Scene { ends: Box::new(ends), forwarder: Box::new(forwarder) })
}
