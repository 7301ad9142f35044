//! The nodes of the demo as processes, `fingerpost run` in a network namespace each, and their hosts in one more.
//!
//! Shape:  a mesh of veth pairs with the rate 2R/N in the configuration of each end; routes by iBGP from two reflectors where
//!         FRR is installed, else static ones; members in etcd where it is installed, else in the configuration. State and
//!         loads are those of the control socket (`cluster status`).
//! Cost:   some seconds to start; a request to each node five times a second.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use fingerpost_cluster::rule::Rule;
use fingerpost_io::DRIVERS;
use fingerpost_packet::device::DeviceSpec;
use fingerpost_packet::{Pool, Port};
use serde::Deserialize;

use super::frr::{self, Frr};
use super::plan::{self, Host, ID, NODES, others};
use super::store::{self, Store};
use super::{LinkView, NodeView, Rack};
use crate::namespace::Namespace;
use crate::program::{self, Router};
use crate::xdp::lab::set_forwarding;

/// Longest time until a killed node is noticed.
const LONGEST: Duration = Duration::from_secs(10);
/// Time between two looks for that.
const TICK: Duration = Duration::from_millis(1);
/// Exit code of a missing privilege.
const PERMISSION: i32 = 4;
/// Frames of a host's port.
const FRAMES: u32 = 2048;

/// What a node reports, as far as it is used.
#[derive(Deserialize)]
struct Status {
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    id: String,
    link: Option<Link>,
}

#[derive(Deserialize)]
struct Link {
    up: bool,
    bytes: u64,
}

/// Forwarding action of an address.
#[derive(Deserialize)]
struct RouteAnswer {
    action: Option<String>,
}

impl Status {
    fn of(router: &Router) -> Option<Self> {
        router.request("/v1/cluster")
    }

    fn view(&self) -> NodeView {
        let link = |id: &&str| {
            let member = self.members.iter().find(|member| member.id == **id)?;
            member.link.as_ref().map(|link| LinkView { up: link.up, bytes: link.bytes })
        };
        NodeView { links: ID.iter().map(link).collect() }
    }
}

/// A node.
struct Place {
    // Dropped in this order.
    frr: Option<Frr>,
    router: Option<Router>,
    /// Last message of the router.
    last: Arc<Mutex<String>>,
    /// Whether it has the static routes since its start.
    routed: bool,
    namespace: Namespace,
}

/// The nodes and the namespace of their hosts.
pub(super) struct Spaces {
    places: Vec<Place>,
    store: Option<Store>,
    outside: Namespace,
    rule: Rule,
    ports: u8,
}

impl Spaces {
    /// Makes the namespaces, and starts the nodes and what brings their routes.
    ///
    /// # Errors
    /// A missing privilege or program.
    pub(super) fn new(rule: Rule, ports: u8, progress: &dyn Fn(String)) -> Result<Self> {
        let outside = Namespace::new()?;
        program::beside()?;
        let place = || -> Result<Place> {
            let (namespace, last) = (Namespace::new()?, Arc::default());
            Ok(Place { frr: None, router: None, last, routed: false, namespace })
        };
        let places = (0..NODES).map(|_| place()).collect::<Result<_>>()?;
        let mut rack = Self { places, store: None, outside, rule, ports };
        rack.link()?;
        rack.check()?;
        match Store::start(&rack.outside, rack.places.iter().map(|place| &place.namespace)) {
            Ok(store) => {
                rack.store = Some(store);
                progress("members in etcd".to_owned());
            }
            Err(missing) => progress(format!("{missing:#}: members in the configuration")),
        }
        progress(format!("starting {NODES} nodes, fingerpost run in a network namespace each"));
        for node in 0..NODES {
            rack.restart(node)?;
        }
        match rack.reflect() {
            Ok(()) => progress("routes by iBGP, FRR with two route reflectors".to_owned()),
            Err(missing) => {
                rack.places.iter_mut().for_each(|place| place.frr = None);
                progress(format!("{missing:#}: static routes"));
            }
        }
        Ok(rack)
    }

    fn link(&self) -> Result<()> {
        self.outside.inside(|| {
            // Nobody but the hosts of the demo sends anything.
            let name = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
            std::fs::write(name, "1").context(name)
        })?;
        for (node, place) in self.places.iter().enumerate() {
            place.namespace.inside(|| set_forwarding(false))?;
            place.namespace.batch(|to| {
                writeln!(to, "link set lo up")?;
                for host in plan::hosts_of(node, self.ports) {
                    let (path, name) = (self.outside.path(), host.interface());
                    let (port, mac, addr) = (host.port_mac(), host.mac(), host.addr());
                    writeln!(
                        to,
                        "link add {name} address {port} type veth peer name {host} address {mac} netns {path}"
                    )?;
                    writeln!(to, "addr add {}/24 dev {name}", host.port_addr())?;
                    writeln!(to, "link set {name} up")?;
                    writeln!(to, "neigh add {addr} lladdr {mac} dev {name} nud permanent")?;
                }
                for (there, other) in ID.iter().zip(&self.places[..node]) {
                    let (here, path) = (ID[node], other.namespace.path());
                    writeln!(
                        to,
                        "link add int-{there} mtu 1600 type veth peer name int-{here} mtu 1600 netns {path}"
                    )?;
                }
                Ok(())
            })?;
            for host in plan::hosts_of(node, self.ports) {
                self.outside.ip(&format!("link set {host} up"))?;
            }
        }
        for (node, place) in self.places.iter().enumerate() {
            place.namespace.batch(|to| {
                let mut names = others(node).map(|other| ID[other]);
                names.try_for_each(|id| writeln!(to, "link set int-{id} up"))
            })?;
        }
        Ok(())
    }

    /// Whether nodes can run here.
    fn check(&self) -> Result<()> {
        let mut check = self.places[0].namespace.command(&program::beside()?.to_string_lossy());
        check.args(["run", "--check"]).stderr(std::process::Stdio::piped());
        let check = check.output().context("fingerpost run --check")?;
        let message = String::from_utf8_lossy(&check.stderr).into_owned();
        ensure!(check.status.code() != Some(PERMISSION), "{}", message.trim());
        Ok(())
    }

    /// Starts FRR at all nodes.
    fn reflect(&mut self) -> Result<()> {
        frr::is_there()?;
        for (node, place) in self.places.iter_mut().enumerate() {
            place.frr = Some(Frr::start(&place.namespace, node, self.ports)?);
        }
        Ok(())
    }

    fn config(&self, own: usize) -> String {
        let mut text = format!(
            "[takeover]\nignore = [\"forwarding\"]\n\n[cluster]\nnode = \"{}\"\nrule = \"{}\"\nflowlet_ms = {}\n",
            ID[own],
            plan::rule_name(self.rule),
            plan::FLOWLET_MS
        );
        if self.store.is_some() {
            text += &store::keys();
            // All interfaces but the one to the store.
            let external = plan::hosts_of(own, self.ports).map(|host| host.interface());
            let internal = others(own).map(|other| format!("int-{}", ID[other]));
            for name in external.chain(internal) {
                let _ = write!(text, "\n[[interface]]\nname = \"{name}\"\n");
            }
        }
        // With a store a node names itself alone.
        let named = |node: usize| self.store.is_none() || node == own;
        for (node, id) in ID.iter().enumerate().filter(|&(node, _)| named(node)) {
            let loopback = plan::loopback(node);
            let _ =
                write!(text, "\n[[cluster.member]]\nid = \"{id}\"\nloopback = \"{loopback}\"\n");
        }
        for id in others(own).map(|other| ID[other]) {
            let rate = plan::LINK_BPS / 1_000;
            let _ = write!(
                text,
                "\n[[cluster.link]]\ninterface = \"int-{id}\"\npeer = \"{id}\"\nrate = \"{rate}kbps\"\n"
            );
        }
        text
    }

    /// Whether a node forwards on all of its interfaces and has the routes of all nodes.
    fn is_routed(&mut self, node: usize) -> Result<bool> {
        let ports = self.ports;
        let interfaces = (NODES - 1 + usize::from(ports)) as u64;
        let place = &mut self.places[node];
        let Some(router) = &mut place.router else { return Ok(false) };
        if let Some(status) = router.ended()? {
            let last = place.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return Err(anyhow!("node {}: {status}: {last}", ID[node]));
        }
        if router.interfaces().is_none_or(|count| count < interfaces) {
            return Ok(false);
        }
        if place.frr.is_none() && !place.routed {
            // Refused until the loopbacks of the others are reached.
            let replace = place.namespace.batch(|to| {
                let mut hosts = plan::hosts(ports).filter(|host| host.node != node);
                hosts.try_for_each(|host| {
                    let (network, via) = (host.network(), plan::loopback(host.node));
                    writeln!(to, "route replace {network}/24 via {via}")
                })
            });
            place.routed = replace.is_ok();
        }
        // The live lookup: what the kernel has is not yet what packets are forwarded by.
        let leaves = |host: Host| {
            let path = format!("/v1/route?addr={}", host.addr());
            let answer: Option<RouteAnswer> = router.request(&path);
            answer.is_some_and(|answer| answer.action.as_deref() == Some("adjacency"))
        };
        Ok(plan::hosts(ports).all(leaves))
    }
}

impl Rack for Spaces {
    fn mode(&self) -> &'static str {
        "namespaces"
    }

    fn routes(&self) -> &'static str {
        if self.places.iter().all(|place| place.frr.is_some()) { "bgp" } else { "static" }
    }

    fn members(&self) -> &'static str {
        if self.store.is_some() { "etcd" } else { "configuration" }
    }

    fn hosts(&mut self) -> Result<Vec<Box<dyn Port>>> {
        let driver = DRIVERS.iter().find(|row| row.name == "af_packet");
        let driver = driver.context("there is a driver af_packet")?;
        let pool = Pool::new(FRAMES, 2048);
        self.outside.inside(|| {
            let open = |host: Host| {
                let (name, pools) = (host.to_string(), std::slice::from_ref(&pool));
                let ports = (driver.open)(&DeviceSpec { name: &name, queues: (0, 1), pools })?;
                ports.into_iter().next().context("a packet socket is one port")
            };
            plan::hosts(self.ports).map(open).collect()
        })
    }

    fn look(&mut self) -> Result<Vec<Option<NodeView>>> {
        let view = |place: &Place| {
            let status = place.router.as_ref().and_then(Status::of);
            status.map(|status| status.view())
        };
        Ok(self.places.iter().map(view).collect())
    }

    fn kill(&mut self, node: usize) -> Result<Duration> {
        let mut router = self.places[node].router.take().context("the node runs")?;
        let at = Instant::now();
        router.kill()?;
        let noticed = |router: &Router| loop {
            let view = Status::of(router).map(|status| status.view());
            let is_down = |link: LinkView| !link.up;
            if view.is_some_and(|view| view.links[node].is_some_and(is_down)) {
                return Ok(at.elapsed());
            }
            ensure!(at.elapsed() < LONGEST, "nobody notices that a node is gone");
            thread::sleep(TICK);
        };
        thread::scope(|scope| {
            let routers = self.places.iter().filter_map(|place| place.router.as_ref());
            let threads: Vec<_> =
                routers.map(|router| scope.spawn(move || noticed(router))).collect();
            let mut longest = Duration::ZERO;
            for thread in threads {
                let took = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
                longest = longest.max(took);
            }
            Ok(longest)
        })
    }

    fn restart(&mut self, node: usize) -> Result<()> {
        let config = self.config(node);
        let place = &mut self.places[node];
        let (router, messages) = Router::start(&place.namespace, &config)?;
        let last = place.last.clone();
        // It ends with the router.
        thread::spawn(move || {
            messages.pass_on(&|line| {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
            });
        });
        (place.router, place.routed) = (Some(router), false);
        Ok(())
    }

    fn is_whole(&mut self) -> Result<bool> {
        let mut all = true;
        for node in 0..NODES {
            all &= self.is_routed(node)?;
        }
        let nodes = self.look()?;
        let links = nodes.iter().flatten().flat_map(|node| node.links.iter().flatten());
        Ok(all && links.filter(|link| link.up).count() == NODES * (NODES - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_links_by_node() {
        let text = r#"{"members": [
            {"id": "b", "link": {"up": true, "bytes": 7}}, {"id": "a", "link": null},
            {"id": "d", "link": {"up": false, "bytes": 0}}]}"#;
        let status: Status = serde_json::from_str(text).unwrap();
        let link = |up, bytes| Some(LinkView { up, bytes });
        assert_eq!(status.view().links, [None, link(true, 7), None, link(false, 0)]);
    }
}
