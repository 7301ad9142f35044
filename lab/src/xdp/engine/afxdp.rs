//! The packet graph over AF_XDP, for the record: a worker on the other core, if there is one.
//!
//! A packet goes to user space and back, and out by a socket buffer: what a program in the kernel spares.
//! The generator is faster than the worker, so that most packets end at a full receive ring.

use std::any::Any;
use std::os::fd::AsFd;

use anyhow::Result;
use fingerpost_io::afxdp::{self, AfxdpPort, Spec};
use fingerpost_io::interface;
use fingerpost_io::xdp::{Classifier, Link, LocalAddresses, Mode};
use fingerpost_packet::Port;
use fingerpost_packet::frame::{BATCH, Pool};
use fingerpost_route::Control;

use super::{Engine, Frames, Row};
use crate::cores::elsewhere;
use crate::document::Kind;
use crate::forward::world::{self, LINKS, Ports};
use crate::table::Tables;
use crate::traffic::Meter;
use crate::worker::Running;

pub(super) const AFXDP: Row = Row {
    name: "afxdp",
    summary: "the packet graph over AF_XDP, on a core of its own",
    by_family: false,
    kind: Kind::Ours,
    checked: true,
    loses: true,
    program: false,
    kernel_table: false,
    frames: Frames::Packets,
    make: |tables, family| Ok(Box::new(Graph::new(tables, family)?)),
};

/// Bytes of a frame.
const FRAME_BYTES: u16 = 2048;

struct Graph {
    control: Control,
    ports: Ports,
}

impl Graph {
    fn new(tables: &Tables, family: u8) -> Result<Self> {
        let (control, ports) = world::build(&tables.only(family), None, None, None)?;
        Ok(Self { control, ports })
    }
}

/// The worker and its sockets, until it is dropped.
struct Held {
    // Dropped in this order.
    _running: Running,
    _attached: Vec<(Classifier, Link)>,
}

impl Engine for Graph {
    fn attach(&self, _: &Meter) -> Result<Box<dyn Any>> {
        let local = LocalAddresses::new()?;
        let links = u32::try_from(LINKS.len())?;
        let frames = links * afxdp::frames_needed(afxdp::RING) + u32::try_from(4 * BATCH)?;
        let pool = Pool::new(frames, FRAME_BYTES);
        let (mut attached, mut sockets) = (Vec::new(), Vec::<AfxdpPort>::new());
        for link in LINKS {
            let classifier = Classifier::load(world::link_mac(link).0, &local, pool.max_len())?;
            let program = classifier.attach(link, Mode::Native)?;
            let socket = afxdp::open(&Spec {
                name: &interface::name_of(link),
                ifindex: link,
                queue: 0,
                pool: &pool,
                shared: sockets.first(),
                ring: afxdp::RING,
                attached: &program,
                zero_copy: false,
            })?;
            classifier.set_socket(0, socket.as_fd())?;
            attached.push((classifier, program));
            sockets.push(socket);
        }
        let boxed = sockets.into_iter().map(|socket| Box::new(socket) as Box<dyn Port>);
        let ports = self.ports.all().into_iter().zip(boxed).collect();
        let running = Running::start(pool, self.control.reader(), ports, elsewhere)?;
        Ok(Box::new(Held { _running: running, _attached: attached }))
    }
}
