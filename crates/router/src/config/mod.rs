//! The configuration file, and what is assumed without one.

mod cluster;
mod control;
mod features;
mod groups;
mod knobs;
mod listen;
mod log;
mod merge;
mod mistakes;
mod neighbor;
mod routes;
mod shared;
mod size;
mod store;
mod tcp;
mod workers;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

pub(crate) use fingerpost_command::choice::left_out;
use fingerpost_lpm::input::{self, MOST_STREAM_BYTES};
use fingerpost_packet::feature::{FeatureSettings, Mistake as Wrong};
use fingerpost_route::fib::FibOptions;
use fingerpost_route::netlink::route::PROTOCOL_FINGERPOST;
use fingerpost_route::source::Transport;
use fingerpost_route::source::mrt::Speed;
use fingerpost_route::source::table::PeerChoice;
use fingerpost_route::source::words::unknown;
use serde::Deserialize;

pub(crate) use cluster::Cluster;
pub(crate) use control::ControlConfig;
pub(crate) use features::in_kernel;
pub(crate) use groups::Groups;
pub(crate) use listen::Listen;
pub(crate) use log::LogConfig;
pub(crate) use merge::merged;
use mistakes::{Document, Mistake};
pub(crate) use neighbor::StaticNeighbor;
pub(crate) use shared::Shared;
pub(crate) use size::Size;
pub(crate) use tcp::ListenConfig;
pub(crate) use workers::{Cores, Workers};

/// All that can be configured. Everything has a default, so that `run` works without a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The interfaces to forward on; none named: every usable one.
    pub(crate) interface: Vec<Interface>,
    /// The sources of routes; none named: the kernel.
    pub(crate) source: Vec<Source>,
    /// What interfaces apply to their packets: keys of `[[interface]]` and sections that the features read
    /// themselves.
    #[serde(skip)]
    pub(crate) features: FeatureSettings,
    /// Lines with names that the next release does not accept any more, and what is wrong there.
    #[serde(skip)]
    pub(crate) former_names: Vec<(Option<usize>, String)>,
    pub(crate) fib: FibConfig,
    pub(crate) groups: Groups,
    pub(crate) workers: Workers,
    pub(crate) takeover: Takeover,
    pub(crate) xdp: Xdp,
    /// Link addresses that are set by hand.
    pub(crate) neighbor: Vec<StaticNeighbor>,
    pub(crate) control: ControlConfig,
    pub(crate) listen: ListenConfig,
    pub(crate) log: LogConfig,
    pub(crate) cluster: Option<Cluster>,
}

/// One interface. With none of these sections every usable interface is taken over.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interface {
    /// Name of the interface, as `ip link` prints it.
    pub(crate) name: String,
    /// Packet path of the interface.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// Route table that packets from the interface are looked up in, and that its connected prefixes are in; 0:
    /// the main table.
    #[serde(default)]
    pub(crate) table: u32,
}

/// How an interface is driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// The fastest of these that works: the XDP datapath, AF_XDP with zero-copy, with copies, in generic mode.
    #[default]
    Auto,
    /// The XDP datapath, and AF_XDP for the packets that leave it; without it the kernel keeps the interface.
    Xdp,
    /// AF_XDP in native mode; without it the kernel keeps the interface.
    Afxdp,
    /// AF_XDP in generic mode, which every interface supports.
    Generic,
    /// The kernel forwards.
    Kernel,
}

impl Mode {
    /// Its word in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::Afxdp => "afxdp",
            Self::Generic => "generic",
            Self::Kernel => "kernel",
        }
    }
}

/// Packet path of all interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PacketPath {
    /// The XDP datapath where that is possible, else the graph
    #[default]
    Auto,
    /// The XDP datapath; interfaces without it stay with the kernel
    Xdp,
    /// The graph, over AF_XDP in native mode; interfaces without it stay with the kernel
    Afxdp,
    /// The graph
    Graph,
}

impl PacketPath {
    /// Mode of an interface: that of the path where the mode of the interface is `auto`.
    pub(crate) fn mode(self, of_interface: Mode) -> Mode {
        match (of_interface, self) {
            (Mode::Auto, Self::Xdp) => Mode::Xdp,
            (Mode::Auto, Self::Afxdp) => Mode::Afxdp,
            (mode, _) => mode,
        }
    }

    /// Whether packets may be forwarded in XDP at all.
    pub(crate) fn in_driver(self) -> bool {
        matches!(self, Self::Auto | Self::Xdp)
    }
}

/// One source of routes. With none of these sections the source is the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Kind of source: `kernel` (the kernel's routes), `file` (a table file), `fixed` (static routes), `fpm` (FRR's
    /// zebra, which connects), `bmp` (a BGP router, which connects) or `mrt` (recorded updates, which are replayed).
    pub(crate) kind: String,
    /// Table file of kind `file`; first file of kind `mrt`: a table dump, or recorded updates.
    #[serde(default)]
    pub(crate) path: Option<PathBuf>,
    /// Static routes of kind `fixed`, as `ip route` writes them: `"10.0.0.0/8 via 192.0.2.1 dev eth0"`.
    #[serde(default)]
    pub(crate) routes: Shared<Vec<String>>,
    /// Administrative distance of its routes, 0 to 255; of equal prefixes the one with the lower distance is
    /// used. Each kind has a default.
    #[serde(default)]
    pub(crate) distance: Option<u8>,
    /// Receive buffer for what the kernel reports, in KiB, for kind `kernel`: of what does not fit messages are lost, and
    /// all routes are read again. Without it 262144.
    #[serde(default)]
    pub(crate) receive_buffer_kib: Option<u32>,
    /// Seconds between two comparisons of the routes with those that the kernel has, for kind `kernel`: where messages were
    /// lost unreported, all routes are read again. 0 for none; without it 300.
    #[serde(default)]
    pub(crate) compare_s: Option<u32>,
    /// Where a source of kind `fpm` or `bmp` listens: address and port, or the path of a Unix socket; without it
    /// `127.0.0.1:2620`, and `127.0.0.1:11019` for `bmp`.
    #[serde(default)]
    pub(crate) listen: Option<String>,
    /// Whether `listen` may be an address that other hosts reach: whoever connects there sets routes.
    #[serde(default)]
    pub(crate) remote: bool,
    /// Seconds of silence after which the table of a new session is complete; routes of the session before that were
    /// not repeated are withdrawn then. Without it 30.
    #[serde(default)]
    pub(crate) sweep_s: Option<u32>,
    /// Seconds for which routes stay when a session has ended and the peer does not come back; without it 120.
    #[serde(default)]
    pub(crate) stale_s: Option<u32>,
    /// Whether routes are acknowledged to the peer when packets follow them; without it they are.
    #[serde(default)]
    pub(crate) acknowledge: Option<bool>,
    /// Most peers of a source of kind `bmp`; routes of any further one are rejected. Without it 1024.
    #[serde(default)]
    pub(crate) max_peers: Option<u32>,
    /// Most prefixes of a source of kind `bmp`, and most routes of a peer of kind `fpm`; any further one is rejected.
    /// Without it 4000000.
    #[serde(default)]
    pub(crate) max_prefixes: Option<u32>,
    /// Most paths, of all prefixes and peers, of a source of kind `bmp`; any further one is rejected. Without it 50000000.
    #[serde(default)]
    pub(crate) max_paths: Option<u32>,
    /// Most tables that are made for routes of a peer of kind `fpm`; routes of any further one are refused. Without it 1024.
    #[serde(default)]
    pub(crate) max_tables: Option<u32>,
    /// Where static routes of kind `fixed` are written, too: `kernel`, its route tables; without it nowhere.
    #[serde(default)]
    pub(crate) export: Option<Export>,
    /// Protocol number of exported routes, which no other program may use: all routes of it belong to this one; without it
    /// 103.
    #[serde(default)]
    pub(crate) protocol: Option<u8>,
    /// What must be alive for a path of a static route to be used: `neighbor`, its link and its neighbor, which is
    /// probed; without it the link alone.
    #[serde(default)]
    pub(crate) liveness: Option<Liveness>,
    /// Milliseconds between two probes of a next hop with `liveness`, 100 to 60000; without it 1000.
    #[serde(default)]
    pub(crate) probe_ms: Option<u32>,
    /// Further files of kind `mrt`, in order: the updates that follow `path`.
    #[serde(default)]
    pub(crate) updates: Vec<PathBuf>,
    /// Speed of a replay, of kind `mrt`: so many times as fast as recorded, or `"max"`, as fast as possible; without it 1.
    #[serde(default)]
    pub(crate) speed: Option<Choice>,
    /// Whose routes of MRT files are taken, of kinds `file` and `mrt`: a peer's number, or `"best"`, the best path of each prefix; of
    /// kind `file` without it `"first"`, the first peer that a prefix has, of `mrt` `"best"`.
    #[serde(default)]
    pub(crate) peer: Option<Choice>,
}

/// A number, or a word.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a number or a word is needed")]
pub(crate) enum Choice {
    Number(u32),
    Word(String),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => f.write_str(word),
        }
    }
}

impl Choice {
    /// What it names; its default where there is none.
    fn of<T: Default + FromStr>(choice: Option<&Self>) -> Result<T, T::Err> {
        choice.map_or(Ok(T::default()), |choice| choice.to_string().parse())
    }
}

/// Where static routes are written besides our own tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Export {
    /// The kernel's route tables.
    Kernel,
}

/// What keeps a path of a static route in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Liveness {
    /// Its link is up, and its neighbor replies.
    Neighbor,
}

/// Protocol numbers of routes that others have: the kernel, the usual daemons (`/etc/iproute2/rt_protos`, FRR) and the
/// nodes of a cluster.
const TAKEN_PROTOCOLS: &[u8] = &[
    0,
    1,
    2,
    3,
    4,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    17,
    18,
    42,
    99,
    PROTOCOL_FINGERPOST,
    186,
    187,
    188,
    189,
    191,
    192,
    193,
    194,
    195,
    196,
    197,
    198,
];

impl Source {
    /// Largest receive buffer: the kernel counts in 31 bits, and doubles what it is given.
    const LARGEST_RECEIVE_BUFFER_KIB: u32 = 1 << 19;

    /// Whether its peers connect.
    pub(crate) fn has_sessions(&self) -> bool {
        let kind = fingerpost_route::source::find(&self.kind);
        kind.is_some_and(|kind| matches!(kind.transport, Transport::Sessions { .. }))
    }

    /// Whether all of its routes are there once it is opened.
    pub(crate) fn is_read_once(&self) -> bool {
        !self.has_sessions() && self.kind != "mrt"
    }

    /// Whose routes are taken.
    pub(crate) fn peer_choice(&self) -> PeerChoice {
        Choice::of(self.peer.as_ref()).expect("checked with the configuration")
    }

    /// Speed of a replay.
    pub(crate) fn replay_speed(&self) -> Speed {
        Choice::of(self.speed.as_ref()).expect("checked with the configuration")
    }

    /// What is wrong with the keys for MRT files, each with its key.
    fn check_mrt(&self) -> Vec<(&'static str, String)> {
        let (is_mrt, kind) = (self.kind == "mrt", &self.kind);
        let given = [("updates", !self.updates.is_empty()), ("speed", self.speed.is_some())];
        let only = |key| (key, format!("source {kind:?}: `{key}` goes with kind \"mrt\" only"));
        let given = given.into_iter().filter(|(_, given)| *given && !is_mrt);
        let mut wrong: Vec<_> = given.map(|(key, _)| only(key)).collect();
        if self.peer.is_some() && !is_mrt && kind != "file" {
            let what = format!("source {kind:?}: `peer` goes with kinds \"file\" and \"mrt\" only");
            wrong.push(("peer", what));
        }
        match Choice::of::<PeerChoice>(self.peer.as_ref()) {
            Err(what) => wrong.push(("peer", format!("peer: {what}"))),
            Ok(PeerChoice::First) if is_mrt && self.peer.is_some() => {
                wrong.push(("peer", "peer of a replay: a peer's number, or `best`".to_owned()));
            }
            Ok(_) => {}
        }
        let speed = Choice::of::<Speed>(self.speed.as_ref());
        wrong.extend(speed.err().map(|what| ("speed", format!("speed: {what}"))));
        wrong
    }

    /// Where it listens, if its peers connect.
    pub(crate) fn listens_at(&self) -> Option<&str> {
        match fingerpost_route::source::find(&self.kind)?.transport {
            Transport::Sessions { listen } => Some(self.listen.as_deref().unwrap_or(listen)),
            _ => None,
        }
    }

    /// Protocol number of its routes in the kernel, where they are exported.
    pub(crate) fn exports_as(&self) -> Option<u8> {
        self.export.map(|Export::Kernel| self.protocol.unwrap_or(Self::PROTOCOL))
    }

    /// Time between two probes of a next hop, with liveness.
    pub(crate) fn probe(&self) -> Option<Duration> {
        let every = self.probe_ms.unwrap_or(1000);
        self.liveness.map(|Liveness::Neighbor| Duration::from_millis(every.into()))
    }

    /// Protocol number of exported routes unless configured: none that `/etc/iproute2/rt_protos` has.
    const PROTOCOL: u8 = 103;

    /// What is wrong with the keys of static routes, each with its key.
    fn check_static(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let (export, liveness) = (self.export.is_some(), self.liveness.is_some());
        let given = [
            ("export", export, None),
            ("liveness", liveness, None),
            ("protocol", self.protocol.is_some(), Some(("export = \"kernel\"", export))),
            ("probe_ms", self.probe_ms.is_some(), Some(("liveness = \"neighbor\"", liveness))),
        ];
        for (key, _, needs) in given.into_iter().filter(|(_, given, _)| *given) {
            if self.kind != "fixed" {
                let what = format!("source {:?}: `{key}` goes with kind \"fixed\" only", self.kind);
                wrong.push((key, what));
            } else if let Some((other, false)) = needs {
                wrong.push((key, format!("`{key}` goes with `{other}` only: add it")));
            }
        }
        if let Some(number) = self.protocol.filter(|number| TAKEN_PROTOCOLS.contains(number)) {
            let what = format!(
                "protocol {number} belongs to another program: take a free number, as {}",
                Self::PROTOCOL
            );
            wrong.push(("protocol", what));
        }
        if self.probe_ms.is_some_and(|ms| !(100..=60_000).contains(&ms)) {
            wrong.push(("probe_ms", "probe_ms must be from 100 to 60000".to_owned()));
        }
        wrong
    }

    /// What is wrong with the keys of a source whose peers connect, each with its key.
    fn check_sessions(&self) -> Vec<(&'static str, String)> {
        let mut wrong = self.check_kind();
        for (key, value, kinds) in [
            ("max_peers", self.max_peers, &["bmp"][..]),
            ("max_prefixes", self.max_prefixes, &["bmp", "fpm"]),
            ("max_paths", self.max_paths, &["bmp"]),
            ("max_tables", self.max_tables, &["fpm"]),
        ] {
            let Some(value) = value else { continue };
            if !kinds.contains(&self.kind.as_str()) {
                let kinds = match kinds {
                    [kind] => format!("kind {kind:?}"),
                    kinds => format!("kinds \"{}\"", kinds.join("\" and \"")),
                };
                let what = format!("source {:?}: `{key}` goes with {kinds} only", self.kind);
                wrong.push((key, what));
            } else if value == 0 {
                wrong.push((key, format!("{key} must be at least 1")));
            }
        }
        if let Some(kib) = self.receive_buffer_kib {
            let most = Self::LARGEST_RECEIVE_BUFFER_KIB;
            let what = match &*self.kind {
                "kernel" if (1..=most).contains(&kib) => None,
                "kernel" => Some(format!("receive_buffer_kib must be from 1 to {most}")),
                kind => Some(format!(
                    "source {kind:?}: `receive_buffer_kib` goes with kind \"kernel\" only"
                )),
            };
            wrong.extend(what.map(|what| ("receive_buffer_kib", what)));
        }
        if self.compare_s.is_some() && self.kind != "kernel" {
            let what =
                format!("source {:?}: `compare_s` goes with kind \"kernel\" only", self.kind);
            wrong.push(("compare_s", what));
        }
        wrong
    }

    fn check_kind(&self) -> Vec<(&'static str, String)> {
        let Some(listen) = self.listens_at() else {
            let given = [
                ("listen", self.listen.is_some()),
                ("remote", self.remote),
                ("sweep_s", self.sweep_s.is_some()),
                ("stale_s", self.stale_s.is_some()),
                ("acknowledge", self.acknowledge.is_some()),
            ];
            let given = given.into_iter().filter(|(_, given)| *given);
            let what = |key| {
                format!("source {:?}: `{key}` goes with kinds \"fpm\" and \"bmp\" only", self.kind)
            };
            return given.map(|(key, _)| (key, what(key))).collect();
        };
        let mut wrong = Vec::new();
        wrong.extend(Listen::parse(listen, self.remote).err().map(|what| ("listen", what)));
        for (key, value) in [("sweep_s", self.sweep_s), ("stale_s", self.stale_s)] {
            let most = Takeover::LONGEST_NONSTOP_S;
            if value.is_some_and(|value| value == 0 || value > most) {
                wrong.push((key, format!("{key} must be from 1 to {most}")));
            }
        }
        wrong
    }
}

/// The FIB: its lookup algorithms.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FibConfig {
    /// Lookup algorithm for IPv4: a name, or `auto`, the one with the best fitness for the table.
    pub(crate) algorithm_v4: String,
    /// Lookup algorithm for IPv6: a name, or `auto`.
    pub(crate) algorithm_v6: String,
    #[serde(with = "knobs::Knobs")]
    pub(crate) knobs: FibOptions,
}

impl Default for FibConfig {
    fn default() -> Self {
        let auto = || "auto".to_owned();
        Self { algorithm_v4: auto(), algorithm_v6: auto(), knobs: FibOptions::default() }
    }
}

/// What a change of the kernel's policy does to an interface that is taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnChange {
    /// The kernel gets it back, until the policy is gone.
    #[default]
    Release,
    /// The router keeps it, and prints a warning.
    Warn,
}

impl OnChange {
    /// Its word in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Warn => "warn",
        }
    }
}

/// Which policies of the kernel for forwarded packets keep an interface with the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Takeover {
    /// Subsystems whose policy does not keep an interface with the kernel: `forwarding`, `rule`, `tc`, `xfrm`,
    /// `nftables`,
    /// `iptables`, `master`.
    pub(crate) ignore: Vec<String>,
    /// What is done with an interface when such a policy appears at run time.
    pub(crate) on_change: OnChange,
    /// Seconds for which the XDP datapath forwards without this process (non-stop forwarding); 0: none.
    #[serde(alias = "survive_s")]
    pub(crate) nonstop_s: u32,
}

impl Takeover {
    /// Kernel subsystems that `ignore` may name.
    pub(crate) const SUBSYSTEMS: &[&str] =
        &["forwarding", "rule", "tc", "xfrm", "nftables", "iptables", "master"];
    /// A day: routes of yesterday are none.
    pub(crate) const LONGEST_NONSTOP_S: u32 = 86_400;

    /// Time for which the XDP programs keep forwarding without this process, if they are to.
    pub(crate) fn nonstop(&self) -> Option<Duration> {
        (self.nonstop_s > 0).then(|| Duration::from_secs(self.nonstop_s.into()))
    }
}

/// The XDP datapath.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Xdp {
    /// Most memory of the kernel that tables and next hops of the XDP datapath may take.
    pub(crate) memory: Size,
}

impl Default for Xdp {
    fn default() -> Self {
        Self { memory: Size(fingerpost_io::xdp::forward::CAP_BYTES) }
    }
}

/// What is wrong with a configuration, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    file: PathBuf,
    line: Option<usize>,
    what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.what)
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// File and line.
    pub(crate) fn place(&self) -> String {
        let file = self.file.display();
        self.line.map_or_else(|| file.to_string(), |line| format!("{file}:{line}"))
    }

    /// The line, from 1, where it is known.
    pub(crate) fn line(&self) -> Option<usize> {
        self.line
    }

    /// What is wrong there.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }
}

impl Config {
    /// Reads and checks what stood in a file. Nothing is changed by a file that is refused; all that is wrong with
    /// it is named. With the links that fixed routes may use (name and number) these are checked, too.
    pub(crate) fn of_text(
        path: &Path,
        text: &str,
        links: Option<&[(String, u32)]>,
    ) -> Result<Self, Vec<ConfigError>> {
        let error = |(line, what)| ConfigError { file: path.to_owned(), line, what };
        Self::parse(text, links).map_err(|mistakes| mistakes.into_iter().map(error).collect())
    }

    /// All errors are found at once: those of keys and values, then those between them. An error of
    /// the grammar ends it.
    fn parse(text: &str, links: Option<&[(String, u32)]>) -> Result<Self, Vec<Mistake>> {
        let (mut config, mut document) = Document::read::<Self>(text)?;
        config.features = document.features();
        config.former_names = document.former_names();
        document.add(config.check());
        document.add(links.map_or(Vec::new(), |links| config.check_routes(links)));
        let mistakes = document.finish();
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    }

    /// Rules beyond the grammar: names that must exist, fields that depend on each other.
    fn check(&self) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        for (i, Interface { name, .. }) in self.interface.iter().enumerate() {
            if self.interface[..i].iter().any(|other| other.name == *name) {
                let what = format!("interface {name:?} is named twice: keep one");
                wrong.push(Wrong::new(format!("interface.{i}.name"), what));
            }
        }
        wrong.extend(self.check_features());
        for (i, source) in self.source.iter().enumerate() {
            let (at, kind) = (format!("source.{i}.kind"), &source.kind);
            let kinds = || fingerpost_route::source::SOURCES.iter().map(|kind| kind.name);
            if !kinds().any(|known| known == kind) {
                wrong.push(Wrong::new(at, unknown("source kind", kind, kinds())));
                continue;
            }
            for (field, wanted, given) in [
                ("path", &["file", "mrt"][..], source.path.is_some()),
                ("routes", &["fixed"], !source.routes.is_empty()),
            ] {
                if wanted.contains(&&**kind) != given {
                    let wanted = wanted.join("\" or \"");
                    let what = format!(
                        "source {kind:?}: `{field}` goes with kind \"{wanted}\" and only with it"
                    );
                    let place = format!("source.{i}.{field}");
                    wrong.push(match given {
                        true => Wrong::new(place, what).with(&at),
                        false => Wrong::new(&at, what).with(place),
                    });
                }
            }
        }
        for (i, source) in self.source.iter().enumerate() {
            let wrong_keys = source.check_sessions();
            wrong.extend(
                wrong_keys
                    .into_iter()
                    .chain(source.check_static())
                    .chain(source.check_mrt())
                    .map(|(key, what)| Wrong::new(format!("source.{i}.{key}"), what)),
            );
            let Some(listen) = source.listens_at() else { continue };
            if self.source[..i].iter().any(|other| other.listens_at() == Some(listen)) {
                let what =
                    format!("two sources listen at {listen}: give one of them another `listen`");
                wrong.push(
                    Wrong::new(format!("source.{i}.listen"), what).with(format!("source.{i}.kind")),
                );
            }
        }
        let v4 = fingerpost_lpm::registry::v4().map(|row| row.name);
        let what = algorithm(&self.fib.algorithm_v4, v4).err();
        wrong.extend(what.map(|what| Wrong::new("fib.algorithm_v4", what)));
        let v6 = fingerpost_lpm::registry::v6().map(|row| row.name);
        let what = algorithm(&self.fib.algorithm_v6, v6).err();
        wrong.extend(what.map(|what| Wrong::new("fib.algorithm_v6", what)));
        if let Err(error) = self.fib.knobs.validated() {
            wrong.push(Wrong::new(format!("fib.knobs.{}", error.name), error.to_string()));
        }
        for (i, word) in self.takeover.ignore.iter().enumerate() {
            if !Takeover::SUBSYSTEMS.contains(&word.as_str()) {
                let words = Takeover::SUBSYSTEMS.iter().copied();
                let at = format!("takeover.ignore.{i}");
                wrong.push(Wrong::new(at, unknown("subsystem", word, words)));
            }
        }
        let (most, nonstop_s) = (Takeover::LONGEST_NONSTOP_S, self.takeover.nonstop_s);
        if nonstop_s > most {
            let what = format!("nonstop_s must be from 0 to {most}, not {nonstop_s}");
            wrong.push(Wrong::new("takeover.nonstop_s", what));
        }
        if nonstop_s > 0 && self.cluster.is_some() {
            let what = "`nonstop_s` and `[cluster]` exclude each other, internal links end with the process: set \
                        `nonstop_s` to 0";
            wrong.push(Wrong::new("takeover.nonstop_s", what));
        }
        if self.workers.cores == Cores::List(Vec::new()) {
            let what = "`cores` is empty: name a processor, or use \"auto\"";
            wrong.push(Wrong::new("workers.cores", what));
        }
        wrong.extend(StaticNeighbor::check(&self.neighbor));
        wrong.extend(self.listen.check());
        wrong.extend(self.cluster.iter().flat_map(Cluster::check));
        wrong
    }

    /// Section of an interface, by its name.
    pub(crate) fn of(&self, name: &str) -> Option<&Interface> {
        self.interface.iter().find(|interface| interface.name == name)
    }

    /// Whether the kernel's routes are wanted.
    pub(crate) fn kernel_routes(&self) -> bool {
        self.source.is_empty() || self.source.iter().any(|source| source.kind == "kernel")
    }

    /// How an interface is to be driven; `None` when the file names others only.
    pub(crate) fn mode(&self, name: &str) -> Option<Mode> {
        let internal = self.cluster.as_ref().is_some_and(|cluster| cluster.is_internal(name));
        if self.interface.is_empty() || (internal && self.of(name).is_none()) {
            return Some(Mode::Auto);
        }
        self.of(name).map(|interface| interface.mode)
    }
}

fn algorithm(name: &str, names: impl Iterator<Item = &'static str> + Clone) -> Result<(), String> {
    if name == "auto" || names.clone().any(|n| n == name) {
        return Ok(());
    }
    Err(left_out(name).unwrap_or_else(|| unknown("algorithm", name, names)))
}

/// Whether a file can be read.
pub(crate) fn readable(path: &Path) -> std::io::Result<()> {
    input::open(path, MOST_STREAM_BYTES).map(drop)
}

#[cfg(test)]
mod tests {
    use fingerpost_route::group::GroupMode;

    use super::*;

    #[test]
    fn what_was_left_out_is_named() {
        assert_eq!(left_out("poptrie18").is_none(), cfg!(feature = "poptrie"));
        assert!(left_out("poptrie18").is_none_or(|words| words.contains("--features poptrie")));
        assert_eq!(left_out("dxr18"), None);
    }

    fn refused(text: &str) -> String {
        let mistakes = Config::parse(text, None).unwrap_err();
        let said: Vec<String> =
            mistakes.iter().map(|(line, what)| format!("{}: {what}", line.unwrap_or(0))).collect();
        said.join("\n")
    }

    #[test]
    fn an_empty_file_and_a_full_one() {
        assert_eq!(Config::parse("", None).unwrap(), Config::default());
        let full = Config::parse(
            r#"
            [[interface]]
            name = "eth0"
            [[interface]]
            name = "eth1"
            mode = "kernel"
            table = 100
            [[interface]]
            name = "eth2"
            urpf = "feasible"
            redirects = false
            [[source]]
            kind = "file"
            path = "table.mrt.gz"
            distance = 20
            [[source]]
            kind = "fixed"
            routes = ["0.0.0.0/0 via 192.0.2.1"]
            [fib]
            algorithm_v4 = "dxr18"
            [fib.knobs]
            bucket_time_ms = 20
            [groups]
            layout = "slots"
            flow_seed = 9
            [workers]
            cores = [1, 2]
            [takeover]
            ignore = ["nftables", "forwarding"]
            on_change = "warn"
            nonstop_s = 60
            [xdp]
            memory = "8M"
            "#,
            None,
        )
        .unwrap();
        assert_eq!(full.mode("eth1"), Some(Mode::Kernel));
        assert_eq!(full.mode("eth7"), None);
        assert_eq!([full.interface[0].table, full.interface[1].table], [0, 100]);
        let on = |name| -> Vec<(&str, String)> {
            let used = full.features.on(name).into_iter();
            used.map(|(row, used, _)| (row.name, used.words)).collect()
        };
        assert_eq!(on("eth1"), [("redirects", "on".to_owned())]);
        assert_eq!(on("eth2"), [("urpf", "feasible".to_owned())]);
        assert!(full.features.guards("eth2") && !full.features.guards("eth1"));
        assert!(!full.kernel_routes());
        let knobs = full.fib.knobs;
        assert_eq!((knobs.bucket_time_ms, knobs.bucket_change_threshold_rate), (20, 500));
        assert_eq!(full.groups.layout.mode(), GroupMode::Slots);
        assert_eq!((full.groups.flow_seed, Config::default().groups.flow_seed), (Some(9), None));
        assert_eq!(Config::default().groups.layout.mode(), GroupMode::default());
        assert_eq!(full.workers.cores, Cores::List(vec![1, 2]));
        let on_change = [full.takeover.on_change, Config::default().takeover.on_change];
        assert_eq!(on_change, [OnChange::Warn, OnChange::Release]);
        assert_eq!(full.takeover.nonstop(), Some(Duration::from_secs(60)));
        assert_eq!(Config::default().takeover.nonstop(), None);
        assert_eq!(
            (full.xdp.memory, Config::default().xdp.memory),
            (Size(8 << 20), Size(16 << 20))
        );
        assert!(Config::parse("[workers]\ncores = \"auto\"", None).is_ok());
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let said = refused(
            "[fib]\nalgoritm_v4 = \"auto\"\nalgorithm_v6 = \"rl23\"\n[[interface]]\nmode = 5\n\
             name = \"a\"\n[takeover]\nignore = [\"nftable\"]\nignor = []\n",
        );
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 5, "{said}");
        for (line, words) in lines.iter().zip([
            "2: unknown field `algoritm_v4`",
            "3: unknown algorithm `rl23`",
            "5: ",
            "8: unknown subsystem",
            "9: unknown field `ignor`",
        ]) {
            assert!(line.starts_with(words), "{said}");
        }
    }

    #[test]
    fn former_names_are_accepted_with_a_warning() {
        let text = "[[interface]]\nname = \"a\"\nreverse_path = \"loose\"\n[[filter]]\nname = \"f\"\n\
                    action = \"drop\"\n[takeover]\nsurvive_s = 5\n[fib.knobs]\ntrial_ms = 7\n";
        let config = Config::parse(text, None).unwrap();
        assert_eq!((config.takeover.nonstop_s, config.fib.knobs.calibration_ms), (5, 7));
        let on: Vec<&str> = config.features.on("a").iter().map(|(row, ..)| row.name).collect();
        assert_eq!(on, ["source-filter", "urpf", "redirects"]);
        let lines: Vec<String> = config.former_name_warnings(Path::new("r.toml")).collect();
        assert_eq!(
            lines,
            [
                "r.toml:8: `survive_s` is called `nonstop_s` now: the next release refuses it",
                "r.toml:10: `trial_ms` is called `calibration_ms` now: the next release refuses it",
                "r.toml:4: `filter` is called `source_filter` now: the next release refuses it",
                "r.toml:3: `reverse_path` is called `urpf` now: the next release refuses it",
            ]
        );
    }

    #[test]
    fn errors_name_the_line_and_the_nearest_word() {
        for (text, want) in [
            ("[fib]\nalgoritm_v4 = \"auto\"", "2: unknown field `algoritm_v4`"),
            ("[fib]\nalgoritm_v4 = \"auto\"", "did you mean `algorithm_v4`?"),
            (
                "\n[fib]\nalgorithm_v4 = \"dxr81\"",
                "3: unknown algorithm `dxr81`, did you mean `dxr",
            ),
            ("[[interface]]\nname = \"a\"\nmode = \"generik\"", "did you mean `generic`?"),
            ("[[interface]]\nname = \"a\"\n[[interface]]\nname = \"a\"", "named twice"),
            ("[[interface]]\nname = \"a\"\nurfp = \"loose\"", "did you mean `urpf`?"),
            ("[[source_filer]]\nname = \"a\"", "did you mean `source_filter`?"),
            (
                "[[interface]]\nname = \"a\"\nredirects = 1",
                "3: `redirects`: invalid type: integer `1`",
            ),
            (
                "[[interface]]\nname = \"a\"\nurpf = \"stric\"",
                "3: unknown variant `stric`, expected one of `off`, `strict`, `feasible`, `loose`: did you mean `strict`?",
            ),
            (
                "[[interface]]\nname = \"a\"\nmode = \"kernel\"\nreverse_path = \"loose\"",
                "4: interface \"a\": no `urpf` with mode \"kernel\": the kernel forwards, by net.ipv4.conf.a.rp_filter",
            ),
            (
                "[[interface]]\nname = \"a\"\nmode = \"kernel\"\nredirects = false",
                "4: interface \"a\": no `redirects` with mode \"kernel\": the kernel sends them",
            ),
            (
                "[[interface]]\nname = \"a\"\nmode = \"xdp\"\nurpf = \"feasible\"",
                "no `urpf` with mode \"xdp\": the graph alone has the table of all paths: take another mode",
            ),
            (
                "[[source]]\nkind = \"kernal\"",
                "2: unknown source kind `kernal`, did you mean `kernel`?",
            ),
            ("[[source]]\nkind = \"file\"", "`path` goes with kind \"file\" or \"mrt\""),
            ("[[source]]\nkind = \"kernel\"\npath = \"x\"", "`path` goes with"),
            ("[fib.knobs]\nbucket_ms = 5", "2: unknown field `bucket_ms`"),
            (
                "[fib.knobs]\ncpu_share_percent = 0",
                "2: cpu_share_percent must be from 1 to 100, not 0",
            ),
            (
                "[[source]]\nkind = \"fixed\"\nroutes = [\"10.0.0.0/8 blackhole\"]\nexport = \"kernel\"\nprotocol = 11",
                "5: protocol 11 belongs to another program: take a free number, as 103",
            ),
            (
                "[[source]]\nkind = \"fixed\"\nroutes = [\"10.0.0.0/8 blackhole\"]\nprobe_ms = 50",
                "4: `probe_ms` goes with `liveness = \"neighbor\"` only: add it",
            ),
            (
                "[[source]]\nkind = \"kernel\"\nliveness = \"neighbor\"",
                "3: source \"kernel\": `liveness` goes with kind \"fixed\" only",
            ),
            (
                "[[source]]\nkind = \"bmp\"\nmax_tables = 9",
                "3: source \"bmp\": `max_tables` goes with kind \"fpm\" only",
            ),
            (
                "[[source]]\nkind = \"fixed\"\nmax_prefixes = 9",
                "3: source \"fixed\": `max_prefixes` goes with kinds \"bmp\" and \"fpm\" only",
            ),
            ("[groups]\nlayout = \"slot\"", "did you mean `slots`?"),
            ("[takeover]\nignore = [\"nftable\"]", "did you mean `nftables`?"),
            (
                "[takeover]\non_change = \"releas\"",
                "2: unknown variant `releas`, expected `release` or `warn`",
            ),
            ("[takeover]\nnonstop_s = 86401", "2: nonstop_s must be from 0 to 86400, not 86401"),
            ("[workers]\ncores = []", "2: `cores` is empty"),
            ("[xdp]\nmemory = \"16MB\"", "2: `16MB` is no size: \"16M\", \"512K\", or a number"),
            ("[xdp]\nmemory = [16]", "2: a size is needed: \"16M\""),
            ("[[interface]\n", "1: "),
        ] {
            let got = refused(text);
            assert!(got.contains(want), "{text:?}: {got}");
        }
    }
}
