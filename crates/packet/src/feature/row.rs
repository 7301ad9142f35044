//! The seam of interface features: what an interface applies to its packets before or after the lookup.
//!
//! A feature is a file or a folder here, and a row of [`FEATURES`](super::FEATURES). The row is plain data ([`Feature`]):
//! its name, its configuration, and the [`Stage`]s at which its elements stand in the graph. What it does is behind two
//! object-safe traits:
//!
//! - [`Settings`]: what a configuration has of the feature, checked and immutable. The row's `read` makes it of
//!   [`Given`]: the feature's key of each `[[interface]]`, and the items of its section. It answers which interfaces use
//!   the feature ([`Settings::on`]), what has changed ([`Settings::items`]), and what the XDP datapath does with it
//!   ([`Settings::xdp`]). [`Settings::make`] makes the state.
//! - [`State`]: what the feature has at run time, shared by all workers: compiled lists, counts. It is exchanged as a
//!   whole, and reaches the elements by [`Setup::state`](crate::graph::Setup::state). Control threads read it
//!   ([`State::rows`]) and follow interfaces for it ([`State::follow`]).
//!
//! Life of a feature. The daemon reads the configuration ([`FeatureSettings::read`](super::FeatureSettings::read)), makes
//! the states of the features in use ([`FeatureStates::make`](super::FeatureStates::make), which may take a second for a
//! list of a million prefixes and runs beside everything else), and plans the graph with them
//! (`router_graph::plan_with`): only stages that a state names ([`State::runs`]) stand in it, so that a router without
//! a feature executes nothing of it. `config apply` makes new states from new settings with the old ones at hand
//! ([`Settings::make`] gets `before`, to keep what is unchanged), plans the graph anew, and all workers take over the
//! whole of it between two batches; counts continue by [`State::go_on_with`].
//!
//! Elements of a stage. An element has one input a [slot](FeatureArc) of its arc, and as many outputs, in the same order;
//! packets that pass leave by the output of the number of their input. A packet that is not to pass is
//! dropped with a reason. Outputs behind these are for packets that the element makes; their names state where they lead
//! (see [`EXITS`](crate::router_graph::EXITS)).
//!
//! What follows from the row, without another line: keys and sections of the configuration with the nearest word for a
//! misspelled one, `config diff` and `config apply`, the element in graphs from files, `interface show`, traces and `why`
//! (by the name of the stage and [`State::notes`]), drop reasons, `NAME show` with its API path, and checks of what
//! cannot go together with an interface's mode.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use fingerpost_route::{Control, InterfaceSet, RouteError};

use super::reader::Mistake;
use super::value::Value;
use crate::frame::DropReason;
use crate::graph::ElementClass;

/// Registry row of an interface feature, plain data.
#[derive(Clone, Copy)]
pub struct Feature {
    /// Its name, in commands and in the API: `source-filter`.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Its key of `[[interface]]`, if it has one.
    pub key: Option<Key>,
    /// Its section, a list of tables, if it has one: `[[source_filter]]`.
    pub section: Option<Key>,
    /// Reads what a configuration has of it; mistakes are added to the list.
    pub read: fn(&Given, &mut Vec<Mistake>) -> Arc<dyn Settings>,
    /// Where its elements stand.
    pub stages: &'static [Stage],
    /// Packets must not be forwarded without it: an interface that uses it holds its packets back where a worker failed.
    pub guards: bool,
    /// What the kernel does in its place on an interface that it forwards for: a clause in which `NAME` stands for the
    /// interface.
    pub kernel: &'static str,
    /// Why its elements drop packets.
    pub drop_reasons: &'static [DropReason],
    /// Columns of `NAME show`; none: there is nothing to show.
    pub columns: &'static [Column],
}

impl fmt::Debug for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feature").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A key or section of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// A former name, accepted for one release.
    pub former: Option<&'static str>,
    /// Keys of the tables of a section; none for a key of `[[interface]]`.
    pub fields: &'static [Field],
}

/// A key of a table, for the reader and for the reference.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its values: words in backquotes, or a kind of value.
    pub value: &'static str,
    /// Its meaning, a sentence.
    pub summary: &'static str,
}

impl Field {
    /// A field of a table.
    pub const fn new(name: &'static str, value: &'static str, summary: &'static str) -> Self {
        Self { name, value, summary }
    }
}

impl Key {
    /// Whether the configuration means it by this word.
    pub fn is(&self, word: &str) -> bool {
        word == self.name || self.former == Some(word)
    }
}

/// Where an element of a feature stands in the graph.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// The element's name there, in counters and traces.
    pub name: &'static str,
    /// Its place.
    pub arc: FeatureArc,
    /// Names of stages of the same arc that packets pass before it, where these are in use.
    pub after: &'static [&'static str],
    /// What it is.
    pub element: &'static ElementClass,
}

/// A place in the path of packets where features stand, one behind the other. Its *slots* are the inputs of an element
/// there, in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FeatureArc {
    /// The place after the checks of the header and before the lookup. Slots: `forward4`, `options4` (IPv4 packets with options),
    /// `error4` (an ICMP error is due, as for a used-up TTL), `forward6`, `error6`.
    Ingress,
    /// A packet whose next hop is on the interface that it arrived on, before its header is rewritten; `Meta::hop` is
    /// the encoded forwarding action. Slots: IPv4, IPv6.
    Hairpin,
    /// After the next hop: the packet as it leaves, link header included; `Meta::note` is the number of the port. Slots:
    /// IPv4, IPv6.
    Egress,
}

impl FeatureArc {
    /// All arcs, in the order in which a packet passes them.
    pub const ALL: [Self; 3] = [Self::Ingress, Self::Hairpin, Self::Egress];
}

/// What a configuration has of one feature.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The interfaces that the configuration names; none: every interface is forwarded for.
    pub interfaces: Vec<GivenInterface>,
    /// Items of the section: place and value.
    pub items: Vec<(String, Value)>,
}

/// An interface of the configuration.
#[derive(Clone, Debug)]
pub struct GivenInterface {
    /// Its name.
    pub name: String,
    /// The place of the feature's key.
    pub place: String,
    /// The value of the feature's key, where it is given.
    pub value: Option<Value>,
}

/// How an interface uses a feature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    /// In a few words, for people: `strict`.
    pub words: String,
    /// The configuration names the interface for it, rather than all interfaces.
    pub named: bool,
    /// The place in the configuration.
    pub place: String,
}

/// What the XDP datapath does with a feature on an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// It applies the feature.
    Xdp,
    /// It applies the feature, but these packets leave it for the graph.
    Partly(&'static str),
    /// Packets of the interface leave the XDP datapath for the graph: why.
    Graph(&'static str),
}

/// Something of the settings that can be added, changed and removed by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Its name: `source-filter attackers`.
    pub name: String,
    /// What it is, in a line.
    pub words: String,
    /// What its lines are called, and its lines: each can come and go.
    pub lines: (&'static str, Vec<String>),
}

impl Item {
    /// An item without lines.
    pub fn new(name: impl Into<String>, words: impl Into<String>) -> Self {
        Self { name: name.into(), words: words.into(), lines: ("", Vec::new()) }
    }
}

/// What a configuration has of a feature, checked.
pub trait Settings: Any + fmt::Debug + Send + Sync {
    /// Whether other settings of the same feature are the same.
    fn is_same(&self, other: &dyn Settings) -> bool;

    /// How an interface uses the feature; `None` where it does not.
    fn on(&self, interface: &str) -> Option<Use>;

    /// What the configuration has for an interface where the kernel's own settings would hold instead, if that is
    /// anything but usual, in words, and its place. A feature that is off unless configured: its use by name, or for
    /// packets to the router itself.
    fn unlike_usual(&self, interface: &str) -> Option<(String, String)> {
        let used = self.on(interface).filter(|used| used.named || self.is_local(interface))?;
        Some((used.words, used.place))
    }

    /// The interfaces that use it.
    fn interfaces(&self) -> InterfaceSet;

    /// What the XDP datapath does with it on an interface that uses it; `None` is any interface, where all do.
    fn xdp(&self, interface: Option<&str>) -> Support;

    /// Whether it is also for packets to the router itself that arrive on an interface.
    fn is_local(&self, interface: &str) -> bool {
        let _ = interface;
        false
    }

    /// What can be changed by itself, for `config diff`.
    fn items(&self) -> Vec<Item>;

    /// Files that it names: the place, and the path.
    fn files(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Mistakes within these files: the place in the configuration, and what is wrong. It reads them.
    fn check_files(&self) -> Vec<Mistake> {
        Vec::new()
    }

    /// Hands to the control side what it publishes of ports for this feature; `before` are the settings until now.
    ///
    /// # Errors
    /// There are too many tables.
    fn bind(&self, before: Option<&dyn Settings>, control: &mut Control) -> Result<(), RouteError> {
        let _ = (before, control);
        Ok(())
    }

    /// Makes the state; `None` where no interface uses the feature. `before` is the state until now, to take over what
    /// is the same. Files are read here; this may take seconds.
    ///
    /// # Errors
    /// All that is wrong with files, or that there is no memory.
    fn make(&self, before: Option<&dyn State>) -> Result<Option<Arc<dyn State>>, Vec<String>>;
}

/// Run-time state of a feature, shared by all workers and read by control threads.
pub trait State: Any + Send + Sync {
    /// Whether the graph needs the feature's elements of an arc.
    fn runs(&self, arc: FeatureArc) -> bool;

    /// Ports have these names from now on; called before a new port receives.
    fn follow(&self, ports: &[(u16, &str)]) {
        let _ = ports;
    }

    /// Takes the counts of another state over as they are by now; no worker has this one yet.
    fn go_on_with(&self, before: &dyn State) {
        let _ = before;
    }

    /// Rows of `NAME show`, a cell for each of the row's columns.
    fn rows(&self) -> Vec<Vec<Cell>> {
        Vec::new()
    }

    /// Why it drops a packet to the router itself that arrives on a port, in a few words; `None` where it does not.
    fn drops_local(&self, frame: &[u8], port: u16) -> Option<String> {
        let _ = (frame, port);
        None
    }

    /// What it does with a packet that arrives on a port, or on the arc `Egress` leaves by it, in a few words, for traces
    /// of its elements.
    fn notes(&self, arc: FeatureArc, frame: &[u8], port: u16) -> Vec<String> {
        let _ = (arc, frame, port);
        Vec::new()
    }
}

impl dyn Settings {
    /// These settings, where they are of this type.
    pub fn of<T: Settings>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

impl dyn State {
    /// This state, where it is of this type.
    pub fn of<T: State>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// State of a feature that stands on one arc and has nothing but its settings in the port table.
#[derive(Debug)]
pub struct InUse(pub FeatureArc);

impl State for InUse {
    fn runs(&self, arc: FeatureArc) -> bool {
        arc == self.0
    }
}

/// A column of `NAME show`.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Field of the JSON object.
    pub field: &'static str,
    /// Heading of the column of text.
    pub heading: &'static str,
    /// What it is, with its unit.
    pub summary: &'static str,
}

/// A cell of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell {
    /// Nothing: `null`, and `-` in text.
    Nothing,
    /// Text.
    Text(String),
    /// A number.
    Number(u64),
    /// Words: a list, joined by commas in text.
    Words(Vec<String>),
}
