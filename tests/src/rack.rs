//! A cluster in network namespaces: nodes with a mesh of internal links, and a host behind each external port.
//!
//! ```text
//! host a0 (10.1.0.2) -- (x0 10.1.0.1) node a (192.0.2.1) == int-b, int-c, .. == node b (x0 10.2.0.1) -- host b0 (10.2.0.2)
//! ```
//!
//! Nodes are called `a`, `b` and so on; node number `n` has the loopbacks `192.0.2.n` and `fd00::n`, and behind its
//! external port `p` is `10.n.p.0/24` with the host `10.n.p.2`, and `fd00:n:p::/64`.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fingerpost_io::namespace::Named;

use crate::netns::{Router, command, exec, ip, namespaces_of, ready, run};

/// What a rack is made of.
#[derive(Clone, Debug)]
pub struct Built {
    /// How many nodes.
    pub nodes: usize,
    /// External ports of each node.
    pub ports: usize,
    /// Rate of each internal link, as the configuration has it.
    pub rate: Option<&'static str>,
    /// Further keys of `[cluster]`.
    pub keys: String,
    /// Whether all nodes are at one switch, each by the interface `fabric`, instead of a mesh.
    pub switch: bool,
    /// Whether each internal link crosses a bridge of its own in the namespace of the switch, which [`Rack::pass_nothing`] can
    /// have drop frames; the bridge's port toward node `a` of the link to node `b` is called `a-b`.
    pub bridged: bool,
    /// Store that has the members, `etcd` or `nats`, at [`STORE`]; `None`: the configuration has them.
    pub store: Option<&'static str>,
}

/// Where a store is reached from the nodes, by interfaces of its own: an address of the switch's namespace.
pub const STORE: &str = "172.16.0.254";

impl Built {
    /// So many nodes of one external port, whose links have no rate.
    pub fn of(nodes: usize) -> Self {
        let (rate, keys, store) = (None, String::new(), None);
        Self { nodes, ports: 1, rate, keys, switch: false, bridged: false, store }
    }
}

/// A node and its hosts.
pub struct Place {
    /// Id of the node.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// Namespaces of its hosts, one for each external port.
    pub hosts: Vec<String>,
    config: PathBuf,
}

/// Namespaces, links and configurations of a cluster. They are deleted when this is dropped.
pub struct Rack {
    /// Its nodes, by number from 1.
    pub places: Vec<Place>,
    /// Namespace of the switch, whose ports are called as the nodes.
    pub switch: String,
    /// Program that the nodes run: [`crate::program`] at first.
    pub program: PathBuf,
    built: Built,
    _namespaces: Vec<Named>,
    /// The last to be dropped.
    _alone: MutexGuard<'static, ()>,
}

/// Held by the rack that there is: what a failure costs is measured, which another rack beside it would disturb.
static ALONE: Mutex<()> = Mutex::new(());

impl Rack {
    /// Makes it; `None`, with a skip line, as with [`crate::netns::Line::new`].
    ///
    /// # Panics
    /// When a command of the set-up fails.
    pub fn new(tools: &[&str], built: Built) -> Option<Self> {
        if !ready(tools) {
            return None;
        }
        // A test that failed has left nothing behind.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let ids: Vec<String> = (b'a'..).take(built.nodes).map(|c| char::from(c).into()).collect();
        let roles = ids.iter().flat_map(|id| {
            let hosts = (0..built.ports).map(move |port| format!("{id}{port}"));
            std::iter::once(id.clone()).chain(hosts)
        });
        let mut namespaces = namespaces_of(roles.chain(["s".to_owned()]));
        let switch = namespaces.pop().expect("the last role");
        let each = built.ports + 1;
        let places = ids.iter().zip(namespaces.chunks(each)).map(|(id, names)| Place {
            id: id.clone(),
            namespace: names[0].to_string(),
            hosts: names[1..].iter().map(|name| (**name).to_owned()).collect(),
            config: std::env::temp_dir().join(format!("{}.toml", &*names[0])),
        });
        let (places, name) = (places.collect(), (*switch).to_owned());
        namespaces.push(switch);
        let rack = Self {
            places,
            switch: name,
            program: crate::program().expect("a rack is ready with it"),
            built,
            _namespaces: namespaces,
            _alone: alone,
        };
        rack.link();
        for place in &rack.places {
            std::fs::write(&place.config, rack.config(place)).expect("the temporary folder");
        }
        Some(rack)
    }

    fn link(&self) {
        if self.built.switch {
            ip(&format!("-n {} link add switch mtu 1600 type bridge", self.switch));
            ip(&format!("-n {} link set switch up", self.switch));
        }
        if self.built.store.is_some() {
            let s = &self.switch;
            ip(&format!("-n {s} link add manage type bridge"));
            ip(&format!("-n {s} addr add {STORE}/24 dev manage"));
            ip(&format!("-n {s} link set manage up"));
            ip(&format!("-n {s} link set lo up"));
            for (n, place) in (1..).zip(&self.places) {
                let (node, port) = (&place.namespace, format!("m{}", place.id));
                ip(&format!("-n {node} link add manage type veth peer name {port} netns {s}"));
                ip(&format!("-n {node} addr add 172.16.0.{n}/24 dev manage"));
                ip(&format!("-n {node} link set manage up"));
                ip(&format!("-n {s} link set dev {port} master manage up"));
            }
        }
        for (i, place) in self.places.iter().enumerate() {
            let (node, n) = (&place.namespace, i + 1);
            ip(&format!("-n {node} link set lo up"));
            run(node, "sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0");
            for (port, host) in place.hosts.iter().enumerate() {
                ip(&format!("-n {node} link add x{port} type veth peer name h0 netns {host}"));
                for (namespace, link, last) in [(node, &*format!("x{port}"), 1), (host, "h0", 2)] {
                    ip(&format!("-n {namespace} addr add 10.{n}.{port}.{last}/24 dev {link}"));
                    ip(&format!(
                        "-n {namespace} addr add fd00:{n}:{port}::{last}/64 dev {link} nodad"
                    ));
                    ip(&format!("-n {namespace} link set {link} up"));
                }
                ip(&format!("-n {host} route add default via 10.{n}.{port}.1"));
                ip(&format!("-n {host} route add default via fd00:{n}:{port}::1"));
            }
            if self.built.switch {
                let (switch, id) = (&self.switch, &place.id);
                ip(&format!(
                    "-n {node} link add fabric mtu 1600 type veth peer name {id} mtu 1600 netns {switch}"
                ));
                ip(&format!("-n {node} link set fabric up"));
                ip(&format!("-n {switch} link set dev {id} master switch up"));
                continue;
            }
            for other in &self.places[..i] {
                if self.built.bridged {
                    self.link_by_bridge(other, place);
                    continue;
                }
                let (there, here) = (&other.namespace, &place.id);
                let names = format!("int-{} mtu 1600 type veth peer name int-{here}", other.id);
                ip(&format!("-n {node} link add {names} mtu 1600 netns {there}"));
                ip(&format!("-n {node} link set int-{} up", other.id));
                ip(&format!("-n {there} link set int-{here} up"));
            }
        }
    }

    fn link_by_bridge(&self, one: &Place, other: &Place) {
        let (switch, bridge) = (&self.switch, format!("br-{}{}", one.id, other.id));
        ip(&format!("-n {switch} link add {bridge} mtu 1600 type bridge"));
        ip(&format!("-n {switch} link set {bridge} up"));
        for (here, there) in [(one, other), (other, one)] {
            let (node, port) = (&here.namespace, format!("{}-{}", here.id, there.id));
            let names = format!("int-{} mtu 1600 type veth peer name {port}", there.id);
            ip(&format!("-n {node} link add {names} mtu 1600 netns {switch}"));
            ip(&format!("-n {node} link set int-{} up", there.id));
            ip(&format!("-n {switch} link set dev {port} master {bridge} up"));
            // It takes what programs send.
            run(switch, &format!("ethtool -K {port} gro on"));
        }
    }

    /// Has the hosts and the switch take what programs send, and the hosts leave no checksum to a card that is not there.
    ///
    /// # Panics
    /// When `ethtool` fails.
    pub fn take_in_xdp(&self) {
        for place in &self.places {
            run(&place.hosts[0], "ethtool -K h0 gro on tx off");
            run(&self.switch, &format!("ethtool -K {} gro on", place.id));
        }
    }

    /// Has the switch, or the bridges of links, drop what goes from one node to another, for each of these pairs; the carrier
    /// stays. Without a pair, all passes again.
    ///
    /// # Panics
    /// When `nft` fails, or there is nothing between the nodes.
    pub fn pass_nothing(&self, pairs: &[(usize, usize)]) {
        assert!(self.built.switch || self.built.bridged, "a link without a bridge");
        let mut rules = "add table bridge f\ndelete table bridge f\n".to_owned();
        if !pairs.is_empty() {
            rules += "add table bridge f\nadd chain bridge f f { type filter hook forward priority 0; }\n";
        }
        for &(from, to) in pairs {
            let (from, to) = (&self.places[from].id, &self.places[to].id);
            let ports = match self.built.switch {
                true => format!("iifname {from} oifname {to}"),
                false => format!("iifname {from}-{to}"),
            };
            rules += &format!("add rule bridge f f {ports} drop\n");
        }
        let file = std::env::temp_dir().join(format!("{}.nft", self.switch));
        std::fs::write(&file, rules).expect("the temporary folder");
        run(&self.switch, &format!("nft -f {}", file.display()));
        let _ = std::fs::remove_file(&file);
    }

    /// Takes the carrier from both ends of links across bridges, or gives it back.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn carrier(&self, links: &[(usize, usize)], state: &str) {
        let mut lines = String::new();
        for &(one, other) in links {
            let (one, other) = (&self.places[one].id, &self.places[other].id);
            lines += &format!("link set {one}-{other} {state}\nlink set {other}-{one} {state}\n");
        }
        let file = std::env::temp_dir().join(format!("{}.carrier", self.switch));
        std::fs::write(&file, lines).expect("the temporary folder");
        run(&self.switch, &format!("ip -batch {}", file.display()));
        let _ = std::fs::remove_file(&file);
    }

    /// Cuts the node off the store, or connects it again.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn manage(&self, node: usize, state: &str) {
        ip(&format!("-n {} link set manage {state}", self.places[node].namespace));
    }

    /// Text of the configuration of a node.
    pub fn config_of(&self, node: usize) -> String {
        self.config(&self.places[node])
    }

    /// Gives a node another configuration, for its next start.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set_config(&self, node: usize, text: &str) {
        std::fs::write(&self.places[node].config, text).expect("the temporary folder");
    }

    fn config(&self, place: &Place) -> String {
        let mut text = format!("[cluster]\nnode = \"{}\"\n{}\n", place.id, self.built.keys);
        if let Some(store) = self.built.store {
            let url = if store == "etcd" { "http" } else { "nats" };
            let port = if store == "etcd" { 2379 } else { 4222 };
            text += &format!("store = \"{store}\"\nendpoints = [\"{url}://{STORE}:{port}\"]\n");
        }
        for (i, member) in self.places.iter().enumerate() {
            let (id, n) = (&member.id, i + 1);
            if self.built.store.is_some() && *id != place.id {
                continue;
            }
            text += &format!(
                "[[cluster.member]]\nid = \"{id}\"\nloopback = \"192.0.2.{n}\"\nloopback6 = \"fd00::{n}\"\n"
            );
        }
        if self.built.store.is_some() {
            // All but the one to the store.
            let external = (0..self.built.ports).map(|port| format!("x{port}"));
            let others = self.places.iter().filter(|other| other.id != place.id);
            for name in external.chain(others.map(|other| format!("int-{}", other.id))) {
                text += &format!("[[interface]]\nname = \"{name}\"\n");
            }
        }
        if self.built.switch {
            return text + "[[cluster.link]]\ninterface = \"fabric\"\n";
        }
        for peer in self.places.iter().filter(|peer| peer.id != place.id) {
            let id = &peer.id;
            text += &format!("[[cluster.link]]\ninterface = \"int-{id}\"\npeer = \"{id}\"\n");
            text += &self.built.rate.map_or(String::new(), |rate| format!("rate = \"{rate}\"\n"));
        }
        text
    }

    /// Starts the router of a node with static routes to the external prefixes of the others; returns when it forwards on
    /// all interfaces.
    ///
    /// # Panics
    /// When it does not.
    pub fn start(&self, node: usize) -> Router {
        let internal = if self.built.switch { 1 } else { self.built.nodes - 1 };
        let router = self.start_with(node, self.built.ports + internal);
        if self.built.store.is_none() {
            self.routes(node);
        }
        router
    }

    /// Starts the router of a node without routes to the others; returns when it forwards on `interfaces` interfaces.
    ///
    /// # Panics
    /// When it does not.
    pub fn start_with(&self, node: usize, interfaces: usize) -> Router {
        let place = &self.places[node];
        let words = place.config.display().to_string();
        Router::start_program(&self.program, command, &place.namespace, &words, interfaces)
    }

    /// Starts the router of a node; returns at once.
    pub fn begin(&self, node: usize) -> Router {
        let place = &self.places[node];
        let words = place.config.display().to_string();
        Router::begin_program(&self.program, command, &place.namespace, &words)
    }

    /// What is wrong with the configuration of a node, by the program.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn check(&self, node: usize) -> String {
        let place = &self.places[node];
        let words = format!("{} config check {}", self.program.display(), place.config.display());
        let output = crate::netns::exec(&place.namespace, &words);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Starts all routers, and waits until all links are up.
    ///
    /// # Panics
    /// When one does not start, or a link stays down.
    pub fn start_all(&self) -> Vec<Router> {
        let routers: Vec<Router> = (0..self.places.len()).map(|node| self.start(node)).collect();
        routers.iter().for_each(wait_for_links);
        routers
    }

    /// Addresses of the host behind a node, so many for traffic from another node, which has addresses of its own there; the
    /// routers know all of them.
    ///
    /// # Panics
    /// When one does not answer.
    pub fn destinations(&self, from: usize, to: usize, count: usize) -> Vec<String> {
        let (n, first) = (to + 1, 10 + from * count);
        let (from, to) = (&self.places[from].hosts[0], &self.places[to].hosts[0]);
        let addrs: Vec<String> =
            (first..first + count).map(|host| format!("10.{n}.0.{host}")).collect();
        for addr in &addrs {
            ip(&format!("-n {to} addr replace {addr}/24 dev h0"));
            assert!(ping(from, addr).contains("1 received"), "{addr}");
        }
        addrs
    }

    /// What nodes and internal interfaces have counted of lost packets, for messages.
    pub fn faults<'a>(&self, routers: impl IntoIterator<Item = &'a Router>) -> String {
        let of_router = |router: &Router| {
            let status: serde_json::Value = router.ask("cluster status");
            let down = |member: &serde_json::Value| {
                let times = member["link"]["downs"].as_u64()?;
                Some(format!("{} {times}", member["id"].as_str()?))
            };
            let members = status["members"].as_array().into_iter().flatten();
            let downs: Vec<String> = members.filter_map(down).collect();
            let rows: Vec<serde_json::Value> = router.ask("interface show");
            let lost = rows.iter().map(|row| {
                let events = row["device"].as_object().into_iter().flatten();
                let events: Vec<_> = events.filter(|(_, count)| **count != 0).collect();
                format!("{} {} {events:?}", row["name"], row["dropped"])
            });
            format!(
                "node {}: downs {downs:?}, drops {}, left_xdp {}, dropped {:?}\n",
                status["node"],
                status["drops"],
                status["left_xdp"],
                lost.collect::<Vec<_>>()
            )
        };
        // Redirects that failed behind the program, which counts them as sent.
        let of_link = |node: &str, link: String| {
            let said = exec(node, &format!("ethtool -S {link}")).stdout;
            let said = String::from_utf8_lossy(&said).into_owned();
            let lost = said.lines().map(str::trim);
            let lost = lost.filter(|line| line.contains("xmit_errors") && !line.ends_with(": 0"));
            lost.map(|line| format!("{link} {line}\n")).collect::<String>()
        };
        let links = self.places.iter().flat_map(|place| {
            let peers = self.places.iter().filter(|peer| peer.id != place.id);
            peers.map(|peer| of_link(&place.namespace, format!("int-{}", peer.id)))
        });
        let namespaces = self
            .places
            .iter()
            .flat_map(|place| place.hosts.iter().chain([&place.namespace]).map(String::as_str));
        let kernels = namespaces.chain([&*self.switch]).map(lost_by_kernel);
        routers.into_iter().map(of_router).chain(links).chain(kernels).collect()
    }

    /// Routes to what is behind other nodes, as iBGP with next-hop-self would bring them.
    fn routes(&self, node: usize) {
        let namespace = &self.places[node].namespace;
        for other in (0..self.places.len()).filter(|&other| other != node) {
            let n = other + 1;
            for port in 0..self.built.ports {
                ip(&format!("-n {namespace} route replace 10.{n}.{port}.0/24 via 192.0.2.{n}"));
                ip(&format!("-n {namespace} -6 route replace fd00:{n}:{port}::/64 via fd00::{n}"));
            }
        }
    }
}

/// Frames that interfaces of a namespace dropped, and packets that its UDP sockets did.
fn lost_by_kernel(namespace: &str) -> String {
    let said = |words: &str| String::from_utf8_lossy(&exec(namespace, words).stdout).into_owned();
    let links: Vec<serde_json::Value> =
        serde_json::from_str(&said("ip -j -s link")).unwrap_or_default();
    let dropped = links.iter().filter_map(|link| {
        let [rx, tx] = ["rx", "tx"].map(|way| link["stats64"][way]["dropped"].as_u64());
        (rx != Some(0) || tx != Some(0)).then(|| format!("{} {rx:?} {tx:?}", link["ifname"]))
    });
    let dropped: Vec<String> = dropped.collect();
    let snmp = said("cat /proc/net/snmp");
    let udp: Vec<&str> = snmp.lines().filter(|line| line.starts_with("Udp:")).collect();
    format!("{namespace}: dropped rx, tx {dropped:?}, {}\n", udp.join(" "))
}

impl Drop for Rack {
    fn drop(&mut self) {
        for place in &self.places {
            let _ = std::fs::remove_file(&place.config);
        }
    }
}

/// Waits until all links of a node are up.
///
/// # Panics
/// When one stays down.
pub fn wait_for_links(router: &Router) {
    wait_for(router, "links that are up", |status| {
        let members = status["members"].as_array().expect("members");
        let mut links = members.iter().map(|member| &member["link"]).filter(|link| !link.is_null());
        links.all(|link| link["up"] == true)
    });
}

/// Waits until the cluster as a node has it fulfills `done`.
///
/// # Panics
/// When that takes longer than 20 s.
pub fn wait_for(router: &Router, what: &str, done: impl Fn(&serde_json::Value) -> bool) {
    let until = std::time::Instant::now() + crate::patience(std::time::Duration::from_secs(20));
    loop {
        let status: serde_json::Value = router.ask("cluster status");
        if done(&status) {
            return;
        }
        assert!(
            std::time::Instant::now() < until,
            "waited for {what}: {status:#} {:#?}",
            router.said()
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// What a number of `cluster status` is at a node.
///
/// # Panics
/// When it has no such number.
pub fn packets(router: &Router, what: &str) -> u64 {
    let status: serde_json::Value = router.ask("cluster status");
    status["packets"][what].as_u64().expect("a count")
}

/// How often the link of a node to another one went down.
///
/// # Panics
/// When it has no such link.
pub fn downs(router: &Router, peer: &str) -> u64 {
    let status: serde_json::Value = router.ask("cluster status");
    let mut members = status["members"].as_array().expect("members").iter();
    let member = members.find(|member| member["id"] == peer).expect("a member");
    member["link"]["downs"].as_u64().expect("a count")
}

/// Packets that a router forwarded in XDP.
///
/// # Panics
/// When it has no such number.
pub fn forwarded_xdp(router: &Router) -> u64 {
    let stats: serde_json::Value = router.ask("graph stats");
    stats["drivers"]["forwarded"].as_u64().expect("a count")
}

/// Reply of a host to one ping, or why there is none.
pub fn ping(host: &str, words: &str) -> String {
    let output = command(host, &format!("ping -n -c 1 -W 2 {words}")).output();
    let output = output.expect("ping was found before");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
