//! The packet graph over AF_XDP, for the record: a worker on the other core, if there is one.
//!
//! A packet goes to user space and back, and out by a socket buffer: what a program in the kernel spares.
//! The generator is faster than the worker, so that most packets end at a full receive ring.

use std::any::Any;
use std::os::fd::AsFd;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use fingerpost_packet::buf::{BATCH, Pool};
use fingerpost_packet::device::afxdp::{self, AfxdpPort, PollWait, Spec, Waker};
use fingerpost_packet::xdp::{Classifier, Link, LocalAddresses, Meter, Mode};
use fingerpost_packet::{Command, Port};
use fingerpost_route::Control;

use super::{Engine, Row};
use crate::document::Kind;
use crate::forward::worker;
use crate::forward::world::{self, LINKS, Ports};
use crate::lookup::elsewhere;
use crate::table::Tables;

pub(super) const AFXDP: Row = Row {
    name: "afxdp",
    summary: "the packet graph over AF_XDP, on a core of its own",
    by_family: false,
    kind: Kind::Ours,
    checked: true,
    loses: true,
    program: false,
    kernel_table: false,
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
    commands: Sender<Command>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    _attached: Vec<(Classifier, Link)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Where it is gone already there is nothing to stop.
        let _ = self.commands.send(Command::Stop);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
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
                name: &afxdp::name_of(link),
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
        let (commands, orders) = channel();
        for (number, socket) in self.ports.all().into_iter().zip(sockets) {
            let port: Box<dyn Port> = Box::new(socket);
            commands.send(Command::AddPort(number, port)).ok().context("the worker listens")?;
        }
        let (mut wait, waker) = PollWait::new()?;
        let reader = self.control.reader();
        let thread = std::thread::spawn(move || {
            elsewhere();
            // A graph that is not there leaves the packets where they are, and the run says so.
            if let Ok(mut worker) = worker(pool, reader, orders) {
                worker.run(&mut wait);
            }
        });
        Ok(Box::new(Held { commands, waker, thread: Some(thread), _attached: attached }))
    }
}
