//! The registry's row of AF_XDP: a whole interface, all that its queues receive.
//!
//! `run` opens its interfaces by [`open`](super::open) under a [`Classifier`](crate::xdp::Classifier);
//! this is for graphs that name a device: they get every frame, and the kernel none. The attachment
//! lasts as long as any of the ports.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use super::{AfxdpPort, RING, Spec, frames_needed};
use crate::interface::index_of;
use crate::xdp::bpf::{Link, Map, MapKind, Program};
use crate::xdp::load::{self, Bound};
use crate::xdp::{XdpError, classify};
use fingerpost_packet::device::{DeviceError, DeviceSpec, Driver, Port, Ports};
use fingerpost_packet::frame::Batch;

pub(crate) const DRIVER: Driver = Driver {
    name: "afxdp",
    summary: "a network interface by AF_XDP, all frames of the queues named; needs root",
    in_rings: frames_needed(RING) as usize,
    external: true,
    open,
};

/// A port that keeps the interface's program attached.
#[derive(Debug)]
struct Whole {
    // Dropped in this order.
    port: AfxdpPort,
    _link: Arc<Link>,
}

fn open(spec: &DeviceSpec<'_>) -> Result<Ports, DeviceError> {
    let system =
        |call, source| DeviceError::System { device: spec.name.into(), call, source, hint: "" };
    let ifindex = index_of(spec.name).map_err(|e| system("if_nametoindex", e))?;
    let (first, count) = spec.queues;
    let sockets = Map::new(MapKind::XskMap, "sockets", 4, 4, first + count)?;
    let link = Arc::new(take_all(&sockets)?.attach_best(ifindex)?);
    let mut ports: Vec<AfxdpPort> = Vec::new();
    for queue in first..first + count {
        let pool = spec.pool(queue - first);
        let port = super::open(&Spec {
            name: spec.name,
            ifindex,
            queue,
            pool,
            shared: ports.iter().find(|port| port.pool.same(pool)),
            ring: RING,
            attached: &link,
            zero_copy: true,
        })?;
        let fd = port.as_fd().as_raw_fd().to_ne_bytes();
        sockets
            .update(&queue.to_ne_bytes(), &fd)
            .map_err(|e| system("bpf(MAP_UPDATE_ELEM) of sockets", e))?;
        ports.push(port);
    }
    let whole = |port| Box::new(Whole { port, _link: link.clone() }) as Box<dyn Port>;
    Ok(ports.into_iter().map(whole).collect())
}

/// Every frame to the socket of its queue; to the kernel where there is none.
fn take_all(sockets: &Map) -> Result<Program, XdpError> {
    let bind = |name: &str| (name == "sockets").then_some(Bound::Map(sockets.as_fd()));
    Program::load("take_all", &load::link(classify::OBJECT, "take_all", bind))
}

impl Port for Whole {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        self.port.recv(into)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        self.port.send(from)
    }

    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        self.port.wait_fds(fds);
    }

    fn in_rings(&self) -> usize {
        self.port.in_rings()
    }

    fn mode(&self) -> String {
        self.port.mode()
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.port.stats(visit);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::afxdp::frames_needed;
    use crate::xdp::testing;
    use fingerpost_packet::frame::Pool;

    #[test]
    fn a_named_device_gives_every_frame() {
        testing::in_namespace(|| {
            testing::veth("a0", "b0", 2);
            let pool = Pool::new(5 * frames_needed(RING), 2048);
            let open = |name| {
                let spec = DeviceSpec { name, queues: (0, 2), pools: std::slice::from_ref(&pool) };
                (DRIVER.open)(&spec)
            };
            let mut near = open("a0").unwrap();
            let mut far = open("b0").unwrap();
            let mut batch = Batch::new(&pool);
            // Neither IP nor for anybody: an unknown type to a multicast address.
            for _ in 0..5 {
                let mut packet = pool.alloc().unwrap();
                packet.set_len(60);
                packet.bytes_mut().fill(0x33);
                batch.push(packet).unwrap();
            }
            assert_eq!(near[1].send(&mut batch).unwrap(), 5);
            let start = Instant::now();
            while batch.len() < 5 {
                far[1].recv(&mut batch).unwrap();
                assert!(start.elapsed() < Duration::from_secs(5), "{} arrived", batch.len());
            }
            assert_eq!(batch.bytes(4), [0x33; 60]);
            drop(batch);
            let in_rings: usize = near.iter().chain(&far).map(|port| port.in_rings()).sum();
            assert_eq!(pool.free() + in_rings, pool.frames());

            drop(far.pop());
            assert!(testing::ip("-o link show dev b0").contains(" xdp "), "one port is left");
            drop((near, far));
            testing::soon_without("b0", "xdp");
            assert_eq!(pool.free(), pool.frames());
            let error = open("c0").err().unwrap().to_string();
            assert_eq!(error, "c0: if_nametoindex: No such device (os error 19)");
        });
    }
}
