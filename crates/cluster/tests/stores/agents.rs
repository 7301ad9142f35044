//! Agents of three nodes on real stores: numbers, conflicts, parameters, and a store that is gone for a while.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fingerpost_cluster::fabric::Mode;
use fingerpost_cluster::rule::Rule;
use fingerpost_cluster::store::adopt::Adopted;
use fingerpost_cluster::store::agent::{Agent, Clock, Settings};
use fingerpost_cluster::store::member::{Membership, Record};
use fingerpost_cluster::store::parameters::{Change, KEY, Parameters};
use fingerpost_cluster::store::{Keep, Options, Store};

use super::server::{KINDS, Server};

const TTL: Duration = Duration::from_secs(3);

struct Node {
    agent: Agent,
    store: Box<dyn Store>,
    start: Instant,
}

impl Node {
    fn new(server: &Server, id: &str, boot: u32) -> Self {
        let settings =
            Settings { ttl: TTL, poll: Duration::from_millis(50), ..Settings::default() };
        let own = Record { id: id.to_owned(), boot, ..Record::default() };
        let options = Options { ttl: TTL, timeout: Duration::from_secs(2), ..server.options() };
        Self {
            agent: Agent::new(settings, own),
            store: server.open(&options),
            start: Instant::now(),
        }
    }

    fn clock(&self) -> Clock {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Clock { now: self.start.elapsed(), unix_s: unix.as_secs() }
    }

    fn step(&mut self) -> Arc<Membership> {
        let clock = self.clock();
        self.agent.step(&mut *self.store, clock);
        self.agent.membership()
    }
}

/// Steps of all nodes until `done` with the membership of each.
fn steps(nodes: &mut [Node], what: &str, done: impl Fn(&Membership) -> bool) {
    let begin = Instant::now();
    loop {
        let memberships: Vec<_> = nodes.iter_mut().map(Node::step).collect();
        if memberships.iter().all(|membership| done(membership)) {
            return;
        }
        let errors: Vec<_> = nodes.iter().map(|node| node.agent.error()).collect();
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}: {errors:?} {memberships:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ids(membership: &Membership) -> Vec<&str> {
    let mut ids: Vec<_> = membership.members.iter().map(|member| member.id.as_str()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn three_nodes_join_lose_the_store_and_have_it_again() {
    for kind in KINDS {
        let Some(mut server) = Server::new(kind) else { continue };
        let mut nodes = Vec::from(["c", "a", "b"].map(|id| Node::new(&server, id, 1)));
        steps(&mut nodes, "join", |membership| ids(membership) == ["a", "b", "c"]);
        let mut numbers: Vec<_> = nodes.iter().map(|node| node.agent.own().number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3]);
        let before: Vec<_> =
            nodes.iter().map(|node| node.agent.membership().members.clone()).collect();

        server.stop();
        steps(&mut nodes, "lost", |membership| membership.store_lost_since.is_some());
        let stopped = Instant::now();
        while stopped.elapsed() < TTL + Duration::from_secs(1) {
            for (node, before) in nodes.iter_mut().zip(&before) {
                assert_eq!(node.step().members, *before);
                assert!(node.agent.error().unwrap().to_string().contains("unreachable"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        server.start();
        steps(&mut nodes, "back", |membership| membership.store_lost_since.is_none());
        let back = Instant::now();
        while back.elapsed() < TTL * 3 {
            for (node, before) in nodes.iter_mut().zip(&before) {
                assert_eq!(node.step().members, *before);
            }
        }
        // A node that is gone without a word leaves the membership; one that leaves does so at once.
        drop(nodes.remove(0));
        steps(&mut nodes, "gone", |membership| ids(membership) == ["a", "b"]);
        let mut leaving = nodes.remove(0);
        let clock = leaving.clock();
        leaving.agent.leave(&mut *leaving.store, clock).unwrap();
        let begin = Instant::now();
        steps(&mut nodes, "left", |membership| ids(membership) == ["b"]);
        assert!(begin.elapsed() < TTL / 2, "{:?}", begin.elapsed());
    }
}

#[test]
fn a_second_node_of_one_id_is_refused_in_words() {
    for kind in KINDS {
        let Some(server) = Server::new(kind) else { continue };
        let mut nodes = vec![Node::new(&server, "a", 1)];
        steps(&mut nodes, "join", |membership| ids(membership) == ["a"]);
        let mut twin = Node::new(&server, "a", 2);
        twin.step();
        let message = twin.agent.error().expect("it is refused").to_string();
        assert!(message.starts_with("another node is named a (boot id 00000001)"), "{message}");
        assert!(!twin.agent.has_joined());
        assert_eq!(ids(&nodes[0].step()), ["a"], "the first stays");
    }
}

fn change(words: &[(&str, &str)]) -> Change {
    Change::parse(words.iter().copied(), &["a", "b", "c"]).unwrap()
}

impl Node {
    fn change(&mut self, words: &[(&str, &str)]) -> Result<u64, String> {
        self.agent.change(&mut *self.store, &change(words)).map_err(|error| error.to_string())
    }

    fn adopted(&self) -> Adopted {
        self.agent.parameters().clone()
    }
}

/// Steps of all nodes until `done` with the parameters of each.
fn adopt(nodes: &mut [Node], what: &str, done: impl Fn(&Adopted) -> bool) {
    let begin = Instant::now();
    loop {
        nodes.iter_mut().for_each(|node| drop(node.step()));
        let adopted: Vec<_> = nodes.iter().map(Node::adopted).collect();
        if adopted.iter().all(&done) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}: {adopted:?}");
    }
}

#[test]
fn parameters_are_changed_by_compare_and_set() {
    for kind in KINDS {
        let Some(mut server) = Server::new(kind) else { continue };
        let mut nodes = Vec::from(["a", "b", "c"].map(|id| Node::new(&server, id, 1)));
        steps(&mut nodes, "join", |membership| ids(membership) == ["a", "b", "c"]);
        adopt(&mut nodes, "the first ones", |adopted| adopted.parameters.version == 1);

        // Each node makes changes at once, and none is lost.
        const EACH: u64 = 5;
        std::thread::scope(|scope| {
            for (node, id) in nodes.iter_mut().zip(["a", "b", "c"]) {
                scope.spawn(move || {
                    for weight in 1..=EACH {
                        let key = format!("weight.{id}");
                        node.change(&[(&key, &weight.to_string())]).unwrap();
                    }
                });
            }
        });
        adopt(&mut nodes, "all changes", |adopted| {
            let Parameters { version, weights, .. } = &*adopted.parameters;
            *version == 1 + 3 * EACH && weights.values().all(|weight| u64::from(*weight) == EACH)
        });

        // A mode is active when all have reported it; one that does not step holds it up.
        let begin = Instant::now();
        nodes[0].change(&[("mode", "direct"), ("rule", "fixed")]).unwrap();
        adopt(&mut nodes[..2], "the rule", |adopted| adopted.parameters.rule == Rule::Fixed);
        assert_eq!(nodes[0].adopted().mode, Mode::Vlb);
        adopt(&mut nodes, "the mode", |adopted| adopted.mode == Mode::Direct);
        assert!(begin.elapsed() < TTL * 2, "the watch wakes: {:?}", begin.elapsed());

        let version = nodes[0].adopted().parameters.version;
        server.stop();
        let lost = nodes[1].change(&[("rule", "vlb")]).unwrap_err();
        assert!(lost.contains("unreachable"), "{lost}");
        steps(&mut nodes, "lost", |membership| membership.store_lost_since.is_some());
        assert!(nodes.iter().all(|node| node.adopted().parameters.rule == Rule::Fixed));
        server.start();
        steps(&mut nodes, "back", |membership| membership.store_lost_since.is_none());
        adopt(&mut nodes, "unchanged", |adopted| adopted.parameters.version == version);

        // Nonsense, until the next change.
        let options = Options { ttl: TTL, ..server.options() };
        let mut vandal = server.open(&options);
        vandal.put(KEY, b"{\"format\":1,\"version\":", Keep::Forever).unwrap();
        adopt(&mut nodes, "nonsense", |adopted| {
            adopted.error.is_some() && adopted.parameters.version == version
        });
        assert_eq!(nodes[2].change(&[("flowlet_ms", "9")]), Ok(version + 1));
        adopt(&mut nodes, "repaired", |adopted| {
            adopted.error.is_none() && adopted.parameters.flowlet_ms == 9
        });
    }
}
