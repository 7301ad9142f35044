//! The built-in router in threads of this process: a worker on each core that is given, with ports of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use fingerpost_io::afxdp::{PollWait, Waker};
use fingerpost_packet::frame::Pool;
use fingerpost_packet::frame::counters::WorkerCounters;
use fingerpost_packet::graph::worker::{Event, Worker, WorkerOptions};
use fingerpost_packet::{Command, Port, router_graph};
use fingerpost_route::{Forwarding, Reader};

use crate::cores;
use crate::forward::counters;

/// A worker until it is dropped.
pub(crate) struct Running {
    commands: Sender<Command>,
    waker: Waker,
    counters: Arc<WorkerCounters>,
    events: Receiver<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts it with these ports, whose pool that is; `place` is called first in its thread.
    ///
    /// # Errors
    /// When the graph or a descriptor cannot be had.
    pub(crate) fn start(
        pool: Pool,
        reader: Reader<Forwarding>,
        ports: Vec<(u16, Box<dyn Port>)>,
        place: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let plan = router_graph::plan()?;
        let (commands, orders) = channel();
        for (number, port) in ports {
            commands.send(Command::AddPort(number, port)).ok().context("the worker listens")?;
        }
        let (mut wait, waker) = PollWait::new()?;
        let ((requests, _), (tells, events)) = (sync_channel(1), channel());
        let (counters, of_worker) = {
            let all = counters();
            (all.clone(), all)
        };
        let thread = std::thread::spawn(move || {
            place();
            let mut worker = Worker::new(WorkerOptions {
                plan: &plan,
                pool,
                reader,
                counters: of_worker,
                commands: orders,
                requests,
                events: tells,
                flow_seed: 0,
            });
            worker.run(&mut wait);
        });
        Ok(Self { commands, waker, counters, events, thread: Some(thread) })
    }

    fn stop(&mut self) {
        // Where it is gone already there is nothing to stop.
        let _ = self.commands.send(Command::Stop);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Ends it; what it and its ports counted.
    pub(crate) fn end(mut self) -> Told {
        self.stop();
        let mut told = Told {
            packets_in: self.counters.packets_in.read(),
            packets_out: self.counters.packets_out.read(),
            dropped: self.counters.dropped_total(),
            path_ns: self.counters.path_ns.read(),
            send_ns: self.counters.send_ns.read(),
            ports: BTreeMap::new(),
        };
        for event in self.events.try_iter() {
            if let Event::PortClosed(_, Some(port)) | Event::PortFailed(_, _, Some(port)) = event {
                port.stats(&mut |name, count| *told.ports.entry(name).or_insert(0) += count);
            }
        }
        told
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What workers and their ports counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    packets_in: u64,
    packets_out: u64,
    dropped: u64,
    path_ns: u64,
    send_ns: u64,
    /// Counts by name, of all ports.
    ports: BTreeMap<&'static str, u64>,
}

impl Told {
    /// Adds those of another.
    pub(crate) fn add(&mut self, other: &Self) {
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.dropped += other.dropped;
        self.path_ns += other.path_ns;
        self.send_ns += other.send_ns;
        for (name, count) in &other.ports {
            *self.ports.entry(name).or_insert(0) += count;
        }
    }

    /// Shares of a packet's time, as text of a note.
    #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    pub(crate) fn text(&self) -> String {
        let each = |ns: u64, packets: u64| ns as f64 / packets.max(1) as f64;
        let mut text = format!(
            "graph {:.0} ns, sending {:.0} ns a packet",
            each(self.path_ns, self.packets_in),
            each(self.send_ns, self.packets_out)
        );
        if let Some(&calls) = self.ports.get("tx_kicks").filter(|calls| **calls > 0) {
            let _ = write!(text, " in calls of {:.1}", each(self.packets_out, calls));
        }
        if self.dropped > 0 {
            let _ = write!(text, "; {} dropped by it", self.dropped);
        }
        text
    }
}

/// In the thread of a worker: on that core from now on.
pub(crate) fn on(core: usize) -> impl FnOnce() + Send + 'static {
    move || cores::keep_on(core)
}
