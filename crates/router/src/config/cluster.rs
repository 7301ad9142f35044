//! The section `[cluster]`: this router as a node of a cluster.
//!
//! Source: `cluster.md` of the specification, decision 18; what the data plane makes of it is `fingerpost_cluster`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use fingerpost_cluster::fabric;
use fingerpost_cluster::frame::ETHERTYPE;
use fingerpost_cluster::rule;
use fingerpost_cluster::store::fixed;
use fingerpost_cluster::store::member::Membership;
use fingerpost_cluster::store::parameters::{self, MOST_FLOWLET_MS, Parameters};
use fingerpost_packet::feature::Mistake as Wrong;
use fingerpost_route::source::words::unknown;
use serde::Deserialize;

/// This router as a node of a cluster of routers that act as one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cluster {
    /// Id of this node: one of the members.
    pub(crate) node: String,
    /// Whether packets may need a second hop through the fabric. Default `vlb`. With a store, `mode`, `rule` and `flowlet_ms` are
    /// for a store that has no parameters yet: `cluster set` changes them.
    #[serde(default)]
    pub(crate) mode: ClusterMode,
    /// Rule by which packets take the direct link or an intermediate node, with mode `vlb`. Default
    /// `adaptive`.
    #[serde(default)]
    pub(crate) rule: PathRule,
    /// Number of the cluster, 0 to 255, which internal frames carry: nodes drop those of another one. Default 1.
    #[serde(default = "first")]
    pub(crate) id: u8,
    /// Name of the fabric interface, a TAP interface with the loopback addresses of this node. Default `cluster0`.
    #[serde(default = "interface")]
    pub(crate) interface: String,
    /// EtherType of internal frames. Default 0x88b5.
    #[serde(default = "ethertype")]
    pub(crate) ethertype: u16,
    /// Milliseconds without a packet after which a flow may take another path; with 0 each packet may, which reorders flows.
    /// Default 2.
    #[serde(default = "flowlet_ms")]
    pub(crate) flowlet_ms: u32,
    /// Milliseconds between two probes of an internal link. Default 8.
    #[serde(default = "probe_ms")]
    pub(crate) probe_ms: u32,
    /// Missing probes after which a link is down. Default 5.
    #[serde(default = "probe_multiplier")]
    pub(crate) probe_multiplier: u32,
    /// Where the members come from: this configuration (`static`), `etcd` or `nats`. Default `static`.
    #[serde(default = "stationary")]
    pub(crate) store: String,
    /// URLs of the store, tried in order.
    #[serde(default)]
    pub(crate) endpoints: Vec<String>,
    /// What the keys of the cluster in the store begin with. Default `fingerpost/` and the number of the cluster.
    #[serde(default)]
    pub(crate) prefix: Option<String>,
    /// Seconds without a sign of life after which the store forgets a node. Default 5.
    #[serde(default = "ttl_s")]
    pub(crate) ttl_s: u32,
    /// Seconds for which a node forwards by the last known members without the store, and keeps a member that the store has lost
    /// while its links are up, and for which the number of a node that left goes to no other one. Default 3600.
    #[serde(default = "hold_s")]
    pub(crate) hold_s: u32,
    /// PEM file with the certificates that the store's must lead to.
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
    /// PEM file with the certificate of this node for the store.
    #[serde(default)]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file with the key of that certificate.
    #[serde(default)]
    pub(crate) key: Option<PathBuf>,
    /// User of the store.
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// File with the password of the user, and nothing else.
    #[serde(default)]
    pub(crate) password_file: Option<PathBuf>,
    /// File with a token for the store, and nothing else.
    #[serde(default)]
    pub(crate) token_file: Option<PathBuf>,
    /// The members, this node among them; with a store, this node alone.
    #[serde(default)]
    pub(crate) member: Vec<ClusterMember>,
    /// The internal interfaces of this node.
    #[serde(default)]
    pub(crate) link: Vec<ClusterLink>,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterMember {
    /// Id of the node, 1 to 63 letters, digits, dots, hyphens and underscores.
    pub(crate) id: String,
    /// Number of the node, 1 to 1023; without it, the place of its id among all ids in alphabetical order, or with a store
    /// its former number or the lowest free one.
    #[serde(default)]
    pub(crate) number: Option<u16>,
    /// IPv4 address of the node, for iBGP sessions and as the next hop of its routes.
    #[serde(default)]
    pub(crate) loopback: Option<Ipv4Addr>,
    /// IPv6 address of the node.
    #[serde(default)]
    pub(crate) loopback6: Option<Ipv6Addr>,
    /// Share of the traffic between other nodes that it carries, in proportion to the other weights; 0: none. Default 1.
    #[serde(default = "weight")]
    pub(crate) weight: u32,
}

/// An internal interface: a link to another member, or to a switch that all members are connected to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterLink {
    /// Name of the interface.
    pub(crate) interface: String,
    /// Id of the member at the other end; without it, all members are reached by the interface.
    #[serde(default)]
    pub(crate) peer: Option<String>,
    /// Rate to each member that is reached by it, such as `"10Gbps"`, at least 1 Mbps: what exceeds it is dropped. Without it, the rate is
    /// not limited, and the rule finds no backlog.
    #[serde(default)]
    pub(crate) rate: Option<String>,
}

/// Mode of the fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClusterMode {
    /// A non-blocking switch: packets go straight to their egress node while the link to it is up.
    Direct,
    /// A mesh or an oversubscribed fabric: Valiant load balancing.
    #[default]
    Vlb,
}

impl ClusterMode {
    /// Its word in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Vlb => "vlb",
        }
    }

    /// The mode of the data plane.
    pub(crate) fn mode(self) -> fabric::Mode {
        match self {
            Self::Direct => fabric::Mode::Direct,
            Self::Vlb => fabric::Mode::Vlb,
        }
    }
}

/// Rule of the path choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PathRule {
    /// Every packet takes an intermediate at random.
    Vlb,
    /// The direct link up to a fixed allowance, then an intermediate, as in RouteBricks.
    Fixed,
    /// The direct link while its backlog is short, else the less loaded of two intermediates.
    #[default]
    Adaptive,
}

impl PathRule {
    /// Its word in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vlb => "vlb",
            Self::Fixed => "fixed",
            Self::Adaptive => "adaptive",
        }
    }

    /// The rule of the data plane.
    pub(crate) fn rule(self) -> rule::Rule {
        match self {
            Self::Vlb => rule::Rule::Vlb,
            Self::Fixed => rule::Rule::Fixed,
            Self::Adaptive => rule::Rule::Adaptive,
        }
    }
}

impl Cluster {
    /// Every key with its value in words, for comparisons; members and links are keys of their own.
    pub(crate) fn words(&self) -> Vec<(String, String)> {
        // All of them: a new one does not compile until it is here.
        let Self {
            node,
            mode,
            rule,
            id,
            interface,
            ethertype,
            flowlet_ms,
            probe_ms,
            probe_multiplier,
            store,
            endpoints,
            prefix,
            ttl_s,
            hold_s,
            ca,
            cert,
            key,
            user,
            password_file,
            token_file,
            member,
            link,
        } = self;
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let file = |path: &Option<PathBuf>| text(&path.as_ref().map(|p| p.display().to_string()));
        let keys = [
            ("node", node.clone()),
            ("mode", mode.name().to_owned()),
            ("rule", rule.name().to_owned()),
            ("id", id.to_string()),
            ("interface", interface.clone()),
            ("ethertype", format!("{ethertype:#06x}")),
            ("flowlet_ms", flowlet_ms.to_string()),
            ("probe_ms", probe_ms.to_string()),
            ("probe_multiplier", probe_multiplier.to_string()),
            ("store", store.clone()),
            ("endpoints", endpoints.join(", ")),
            ("prefix", text(prefix)),
            ("ttl_s", ttl_s.to_string()),
            ("hold_s", hold_s.to_string()),
            ("ca", file(ca)),
            ("cert", file(cert)),
            ("key", file(key)),
            ("user", text(user)),
            ("password_file", file(password_file)),
            ("token_file", file(token_file)),
        ];
        let members = member.iter().map(|member| {
            let ClusterMember { id, number, loopback, loopback6, weight } = member;
            let number = number.map_or("no number".to_owned(), |number| format!("number {number}"));
            let loopbacks =
                [loopback.map(|addr| addr.to_string()), loopback6.map(|addr| addr.to_string())];
            let loopbacks: String =
                loopbacks.into_iter().flatten().map(|addr| format!(", loopback {addr}")).collect();
            (format!("member {id}"), format!("{number}{loopbacks}, weight {weight}"))
        });
        let links = link.iter().map(|link| {
            let ClusterLink { interface, peer, rate } = link;
            let peer = peer.as_ref().map_or("all members".to_owned(), |peer| format!("to {peer}"));
            let rate = rate.as_ref().map_or(String::new(), |rate| format!(", rate {rate}"));
            (format!("link {interface}"), peer + &rate)
        });
        let keys = keys.into_iter().map(|(key, words)| (key.to_owned(), words));
        keys.chain(members).chain(links).collect()
    }
}

fn first() -> u8 {
    1
}

fn interface() -> String {
    "cluster0".to_owned()
}

fn ethertype() -> u16 {
    ETHERTYPE
}

fn flowlet_ms() -> u32 {
    2
}

fn probe_ms() -> u32 {
    8
}

fn probe_multiplier() -> u32 {
    5
}

fn weight() -> u32 {
    1
}

fn stationary() -> String {
    STATIC.to_owned()
}

fn ttl_s() -> u32 {
    5
}

fn hold_s() -> u32 {
    3600
}

/// Value of `store` for members of the configuration.
const STATIC: &str = "static";

/// Longest TTL: a node that starts again after a crash waits for it.
const MOST_TTL_S: u32 = 60;

/// Longest name of an interface (IFNAMSIZ).
const MOST_NAME: usize = 15;

/// Smallest EtherType that is not a length.
const FIRST_ETHERTYPE: u16 = 0x600;

/// EtherTypes of packets of the outside.
const OUTSIDE: [(u16, &str); 4] =
    [(0x0800, "IPv4"), (0x0806, "ARP"), (0x86dd, "IPv6"), (0x8100, "VLAN tags")];

impl ClusterLink {
    /// Its rate in bit/s, where it has one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn rate_bps(&self) -> Result<Option<u64>, String> {
        self.rate.as_deref().map(parameters::rate).transpose()
    }
}

impl Cluster {
    /// The members as records; they have the digest of all settings that nodes must agree on.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn membership(&self) -> Result<Membership, String> {
        let members: Vec<fixed::Member> = self
            .member
            .iter()
            .map(|member| fixed::Member {
                id: member.id.clone(),
                number: member.number,
                loopback: member.loopback,
                loopback6: member.loopback6,
                weight: member.weight,
            })
            .collect();
        fixed::membership(&members, self.id, self.digest()).map_err(|error| error.to_string())
    }

    /// Whether the members come from a store.
    pub(crate) fn has_store(&self) -> bool {
        self.store != STATIC
    }

    /// Member of the configuration that is this node.
    pub(crate) fn own(&self) -> Option<&ClusterMember> {
        self.member.iter().find(|member| member.id == self.node)
    }

    /// Parameters that a store without any gets.
    pub(crate) fn parameters(&self) -> Parameters {
        Parameters {
            mode: self.mode.mode(),
            rule: self.rule.rule(),
            flowlet_ms: self.flowlet_ms,
            ..Parameters::default()
        }
    }

    /// Digest of what all nodes must have alike: the EtherType, and where no store has them, mode, rule and members.
    pub(crate) fn digest(&self) -> u32 {
        let mut members: Vec<String> =
            self.member.iter().map(|member| format!("{member:?}")).collect();
        members.sort();
        if self.has_store() {
            members.clear();
        }
        let (mode, rule) = match self.has_store() {
            // Those of the default: nodes of an earlier program had their own here.
            true => (ClusterMode::default(), PathRule::default()),
            false => (self.mode, self.rule),
        };
        let (mode, rule) = (mode.name(), rule.name());
        let text = format!("{} {mode} {rule} {} {members:?}", self.id, self.ethertype);
        // FNV-1a: the same in every build, which a hasher of the standard library is not.
        text.bytes()
            .fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }

    /// Whether an interface is the fabric interface.
    pub(crate) fn is_fabric(&self, name: &str) -> bool {
        self.interface == name
    }

    /// Whether an interface is internal.
    pub(crate) fn is_internal(&self, name: &str) -> bool {
        self.link.iter().any(|link| link.interface == name)
    }

    /// All that is wrong with the section.
    pub(super) fn check(&self) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let ids = || self.member.iter().map(|member| member.id.as_str());
        if !ids().any(|id| id == self.node) {
            let what = match self.member.is_empty() {
                true if self.has_store() => {
                    "no [[cluster.member]]: name this node, with its loopback".to_owned()
                }
                true => "no [[cluster.member]]: name all members, this node among them".to_owned(),
                false => unknown("member", &self.node, ids()),
            };
            wrong.push(Wrong::new("cluster.node", what));
        }
        if let Err(what) = self.membership() {
            wrong.push(Wrong::new("cluster.member", what));
        }
        for (i, member) in self.member.iter().enumerate() {
            if member.loopback.is_none() && member.loopback6.is_none() {
                let what = format!("member {:?}: `loopback` or `loopback6` is needed", member.id);
                wrong.push(Wrong::new(format!("cluster.member.{i}.id"), what));
            }
        }
        self.check_store(&mut wrong);
        let name = &self.interface;
        if name.is_empty() || name.len() > MOST_NAME || name.contains(['/', ' ']) {
            let what = format!("{name:?} is no name of an interface: 1 to {MOST_NAME} characters");
            wrong.push(Wrong::new("cluster.interface", what));
        }
        self.check_links(&mut wrong);
        let outside = OUTSIDE.iter().find(|(known, _)| *known == self.ethertype);
        if let Some((_, name)) = outside {
            let what = format!("`ethertype` 0x{:04x} is that of {name}", self.ethertype);
            wrong.push(Wrong::new("cluster.ethertype", what));
        } else if self.ethertype < FIRST_ETHERTYPE {
            let what = format!("`ethertype` must be at least 0x600, not 0x{:x}", self.ethertype);
            wrong.push(Wrong::new("cluster.ethertype", what));
        }
        for (key, value, least, most) in [
            ("flowlet_ms", self.flowlet_ms, 0, MOST_FLOWLET_MS),
            ("probe_ms", self.probe_ms, 1, 1000),
            ("probe_multiplier", self.probe_multiplier, 1, 100),
            ("ttl_s", self.ttl_s, 1, MOST_TTL_S),
            ("hold_s", self.hold_s, 1, u32::MAX),
        ] {
            if !(least..=most).contains(&value) {
                let what = format!("`{key}` must be from {least} to {most}, not {value}");
                wrong.push(Wrong::new(format!("cluster.{key}"), what));
            }
        }
        wrong
    }

    fn check_links(&self, wrong: &mut Vec<Wrong>) {
        let others = || self.member.iter().map(|m| m.id.as_str()).filter(|id| *id != self.node);
        for (i, link) in self.link.iter().enumerate() {
            let at = |key: &str| format!("cluster.link.{i}.{key}");
            if self.link[..i].iter().any(|other| other.interface == link.interface) {
                let what = format!("interface {:?} is named twice: keep one", link.interface);
                wrong.push(Wrong::new(at("interface"), what));
            }
            if self.is_fabric(&link.interface) {
                let what = format!("{:?} is the fabric interface", link.interface);
                wrong.push(Wrong::new(at("interface"), what));
            }
            match &link.peer {
                Some(peer) if *peer == self.node => {
                    wrong.push(Wrong::new(at("peer"), format!("{peer:?} is this node")));
                }
                Some(peer) if !self.has_store() && !others().any(|id| id == peer) => {
                    wrong.push(Wrong::new(at("peer"), unknown("member", peer, others())));
                }
                _ => {}
            }
            if let Err(what) = link.rate_bps() {
                wrong.push(Wrong::new(at("rate"), what));
            }
        }
        let reached = |id: &str| {
            self.link.iter().any(|link| link.peer.as_ref().is_none_or(|peer| peer == id))
        };
        for id in others().filter(|id| !self.has_store() && !reached(id)) {
            let what = format!("no [[cluster.link]] leads to member {id:?}");
            wrong.push(Wrong::new("cluster.link", what).with("cluster.node"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    const SECTION: &str = r#"
        [cluster]
        node = "b"
        [[cluster.member]]
        id = "a"
        loopback = "192.0.2.1"
        [[cluster.member]]
        id = "b"
        loopback = "192.0.2.2"
        weight = 4
        [[cluster.link]]
        interface = "int0"
        peer = "a"
        rate = "10Gbps"
    "#;

    fn refused(text: &str) -> String {
        let mistakes = Config::parse(text, None).unwrap_err();
        let said = mistakes.iter().map(|(line, what)| format!("{}: {what}", line.unwrap_or(0)));
        said.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_section_with_its_defaults() {
        let config = Config::parse(SECTION, None).unwrap();
        let cluster = config.cluster.unwrap();
        assert_eq!((cluster.id, cluster.ethertype, cluster.flowlet_ms), (1, 0x88b5, 2));
        assert_eq!((&*cluster.interface, cluster.probe_ms), ("cluster0", 8));
        assert_eq!(cluster.link[0].rate_bps(), Ok(Some(10_000_000_000)));
        let membership = cluster.membership().unwrap();
        let members: Vec<_> =
            membership.members.iter().map(|m| (m.number, &*m.id, m.weight)).collect();
        assert_eq!(members, [(1, "a", 1), (2, "b", 4)]);
    }

    #[test]
    fn nodes_with_the_same_members_have_the_same_digest() {
        let digest = |text: &str| Config::parse(text, None).unwrap().cluster.unwrap().digest();
        let other = SECTION
            .replace("node = \"b\"", "node = \"a\"")
            .replace("peer = \"a\"", "peer = \"b\"")
            .replace("int0", "int7");
        assert_eq!(digest(SECTION), digest(&other));
        assert_ne!(digest(SECTION), digest(&SECTION.replace("weight = 4", "weight = 5")));
        assert_ne!(
            digest(SECTION),
            digest(&SECTION.replace("node = \"b\"", "node = \"b\"\nrule = \"fixed\""))
        );
    }

    #[test]
    fn mistakes_name_the_line_and_the_remedy() {
        for (from, to, want) in [
            ("node = \"b\"", "node = \"c\"", "3: unknown member `c`"),
            ("peer = \"a\"", "peer = \"b\"", "13: \"b\" is this node"),
            ("peer = \"a\"", "peer = \"aa\"", "13: unknown member `aa`, known: a"),
            ("10Gbps", "10 Gb", "14: `10 Gb` is no rate"),
            ("10Gbps", "10", "14: `10` is below 1Mbps"),
            ("192.0.2.2", "192.0.2.1", "members a and b both have loopback 192.0.2.1"),
            ("loopback = \"192.0.2.1\"", "", "5: member \"a\": `loopback` or `loopback6`"),
            ("node = \"b\"", "node = \"b\"\nprobe_ms = 0", "4: `probe_ms` must be from 1 to 1000"),
            (
                "node = \"b\"",
                "node = \"b\"\nethertype = 0x800",
                "4: `ethertype` 0x0800 is that of IPv4",
            ),
            ("node = \"b\"", "node = \"b\"\nmode = \"mesh\"", "unknown variant `mesh`"),
            ("interface = \"int0\"", "interface = \"cluster0\"", "is the fabric interface"),
        ] {
            let text = SECTION.replace(from, to);
            assert_ne!(text, SECTION, "{from}");
            let got = refused(&text);
            assert!(got.contains(want), "{to}: {got}");
        }
        let nonstop = refused(&format!("{SECTION}\n[takeover]\nnonstop_s = 5"));
        assert!(nonstop.starts_with("17: `nonstop_s` and `[cluster]` exclude each"), "{nonstop}");
        let alone = SECTION.split("[[cluster.link]]").next().unwrap();
        assert!(refused(alone).contains("no [[cluster.link]] leads to member \"a\""));
    }
}
