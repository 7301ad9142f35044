//! Network address translation: `IPRewriter`, `TCPRewriter` and `UDPRewriter` change addresses and ports of flows,
//! `ICMPPingRewriter` addresses and identifiers of echo requests and replies, `IPAddrRewriter` and `IPAddrPairRewriter`
//! addresses alone; `IPRewriterPatterns` names patterns, `RoundRobinIPMapper` has several that new flows get in turn
//! and `SourceIPHashMapper` several that flows get by their source (`mapper.rs`), `FTPPortMapper` and `ICMPRewriter`
//! change what packets have of flows in their payload.
//!
//! Source: Click's elements of these names; RFC 3022. An argument for each input decides what becomes of a new flow
//! that comes by it: `drop`, `pass OUTPUT`, `keep FOUT ROUT`, or `pattern SADDR SPORT DADDR DPORT FOUT ROUT` (without
//! ports for the two that have none; `pattern NAME FOUT ROUT`). Packets of a known flow leave by FOUT and replies by
//! ROUT, whatever input they come by. A flow ends when it was silent for `TIMEOUT` (TCP a day, or 5 minutes before a
//! reply; UDP 5 minutes), or in favor of a new one when `MAPPING_CAPACITY` (1,048,576) flows are there and it was
//! silent for `GUARANTEE` (5 s). `MAPPING_CAPACITY ELEMENT` shares the flows' table of another rewriter. Packets of a
//! flow that finds no place or no port are dropped with reason `no_mapping`. `REPLY_ANNO PAINT` gives replies the paint
//! of the first packet. Packets go by their new destination, with `DST_ANNO false` by the old one.
//! `ICMPPingRewriter(SADDR, DADDR)` is an old form of `pattern SADDR - DADDR - 0 1`. All workers share the table, in
//! parts with a lock each (`table/`). Read handler `table_bytes`: its memory. Differs: flows end with their
//! configuration.

mod ftp;
mod icmp;
mod mapper;
pub(super) mod packet;
pub(super) mod pattern;
mod stages;
mod table;
mod tcp;

pub(crate) use ftp::CLASS as FTP;
pub(crate) use icmp::CLASS as ICMP;
pub(crate) use mapper::{BY_SOURCE, IN_TURN};

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::element::click::only::address_anno::Kept;
use crate::element::click::only::info;
use crate::element::support::setting::value;
use crate::element::support::time::nanoseconds;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP as PROTOCOL_TCP, UDP as PROTOCOL_UDP};
use crate::frame::{Batch, DropReason, Hop};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, ClassSpec, ConfigError, Problems, Value};

use mapper::Mapper;
use packet::{FIN, FLAGS, RST};
use pattern::{Choice, FlowId, Pattern};
use stages::Stages;
use table::{Flow, Found, Key, Session, Table, Times};

pub(crate) const IP: ElementClass = class("IPRewriter", |setup| configure(setup, Kind::Ip));
pub(crate) const UDP: ElementClass = class("UDPRewriter", |setup| configure(setup, Kind::Udp));
pub(crate) const TCP: ElementClass = class("TCPRewriter", |setup| configure(setup, Kind::Tcp));
pub(crate) const PING: ElementClass =
    class("ICMPPingRewriter", |setup| configure(setup, Kind::Ping));
pub(crate) const ADDR: ElementClass = class("IPAddrRewriter", |setup| configure(setup, Kind::Addr));
pub(crate) const PAIR: ElementClass =
    class("IPAddrPairRewriter", |setup| configure(setup, Kind::Pair));

pub(crate) const PATTERNS: ElementClass = ElementClass {
    spec: ClassSpec::new(PATTERNS_NAME, "0/0", "a/a", "x/y"),
    summary: "names patterns of rewriters",
    configure: |setup| {
        info::each(setup, |arg| {
            let words: Vec<String> = arg.words().map(|word| word.raw().to_owned()).collect();
            let values = words.get(1..).unwrap_or_default();
            Pattern::read(values, words.len() == 3, true).map(drop)
        })
    },
};

const PATTERNS_NAME: &str = "IPRewriterPatterns";

const fn class(
    name: &'static str,
    configure: fn(&mut Setup<'_>) -> Result<Made, ConfigError>,
) -> ElementClass {
    let spec = ClassSpec::new(name, "1-/1-", "h/h", "x/x").ignores(&["REAP_INTERVAL"]);
    ElementClass { spec, summary: "changes the ends of flows by patterns (NAT)", configure }
}

/// What a rewriter changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ip,
    Udp,
    Tcp,
    /// Echo requests and replies: an identifier stands for a port.
    Ping,
    Addr,
    Pair,
}

impl Kind {
    fn has_ports(self) -> bool {
        matches!(self, Self::Ip | Self::Udp | Self::Tcp | Self::Ping)
    }

    /// Protocols whose flows `lookup` reads, in its order. Without ports flows have none.
    fn protocols(self) -> &'static [u8] {
        match self {
            Self::Ip => &[PROTOCOL_TCP, PROTOCOL_UDP],
            Self::Tcp => &[PROTOCOL_TCP],
            Self::Udp => &[PROTOCOL_UDP, PROTOCOL_TCP],
            Self::Ping => &[PROTOCOL_ICMP],
            Self::Addr | Self::Pair => &[0],
        }
    }

    /// Whether names of ports are those of UDP first.
    fn is_udp_first(self) -> bool {
        self != Self::Tcp
    }

    /// Whether it changes packets of a protocol.
    fn is_for(self, protocol: u8) -> bool {
        match self {
            Self::Tcp => protocol == PROTOCOL_TCP,
            Self::Ip | Self::Udp => matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP),
            Self::Ping => protocol == PROTOCOL_ICMP,
            Self::Addr | Self::Pair => true,
        }
    }
}

/// What becomes of a new flow.
#[derive(Debug)]
enum Input {
    Drop,
    Pass,
    Keep,
    Pattern(Pattern),
    Mapper(Mapper),
}

/// An input with the outputs of the packets of a flow that begins there, and of the replies to them.
type Spec = (Input, [u16; 2]);

/// Inputs of a rewriter with the patterns of its mappers, at most: a flow has the number of its own in 16 bits.
const MOST_INPUTS: usize = u16::MAX as usize;

/// A rewriter: what its instances, its handlers and the elements that name it share.
#[derive(Default)]
pub(super) struct Core {
    own: Arc<Table>,
    config: OnceLock<Config>,
    failures: AtomicU64,
    workers: AtomicUsize,
}

struct Config {
    /// That of another rewriter where they share their capacity.
    table: Arc<Table>,
    owner: u16,
    kind: Kind,
    /// Inputs that packets have, and the patterns of mappers behind them.
    inputs: Vec<Input>,
    /// Number of the former.
    own_inputs: usize,
    /// Outputs of each ([`Spec`]), which are all that a packet of a known flow needs of it.
    outputs: Vec<[u16; 2]>,
    reply_paint: bool,
    tcp: Timeouts,
    udp: Timeouts,
}

#[derive(Clone, Copy)]
struct Timeouts {
    /// Time before the first reply.
    begin_ns: u64,
    busy_ns: u64,
    done_ns: u64,
    guarantee_ns: u64,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left half done is one flow.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Classes that keep flows.
const REWRITERS: [&str; 6] = [
    "IPRewriter",
    "TCPRewriter",
    "UDPRewriter",
    "ICMPPingRewriter",
    "IPAddrRewriter",
    "IPAddrPairRewriter",
];

/// The rewriter that an argument names.
fn named(setup: &mut Setup<'_>, arg: &Arg<'_>) -> Result<Arc<Core>, ConfigError> {
    let name: String = setup.args.read(arg, "REWRITER")?;
    match setup.element(&name) {
        Some((number, class)) if REWRITERS.contains(&class) => Ok(setup.shared::<Core>(number)),
        _ => Err(setup.args.refuse(arg, &format!("there is no rewriter `{name}`"))),
    }
}

fn configure(setup: &mut Setup<'_>, kind: Kind) -> Result<Made, ConfigError> {
    let mut time = |name: &'static str| -> Result<Option<u64>, ConfigError> {
        Ok(setup.args.keyword::<Duration>(name)?.map(nanoseconds))
    };
    const SECOND: u64 = 1_000_000_000;
    let (timeout, guarantee) = (time("TIMEOUT")?, time("GUARANTEE")?.unwrap_or(5 * SECOND));
    let tcp = Timeouts {
        begin_ns: time("TCP_NODATA_TIMEOUT")?.or(timeout).unwrap_or(300 * SECOND),
        busy_ns: time("TCP_TIMEOUT")?.or(timeout).unwrap_or(86_400 * SECOND),
        done_ns: time("TCP_DONE_TIMEOUT")?.unwrap_or(240 * SECOND),
        guarantee_ns: time("TCP_GUARANTEE")?.unwrap_or(guarantee),
    };
    let udp_timeout = time("UDP_TIMEOUT")?.or(timeout).unwrap_or(300 * SECOND);
    let streaming = time("UDP_STREAMING_TIMEOUT")?.or(time("STREAMING_TIMEOUT")?);
    let udp = Timeouts {
        begin_ns: udp_timeout,
        busy_ns: streaming.unwrap_or(udp_timeout),
        done_ns: udp_timeout,
        guarantee_ns: time("UDP_GUARANTEE")?.unwrap_or(guarantee),
    };
    let capacity = match setup.args.keyword_arg("MAPPING_CAPACITY")? {
        Some(arg) => Some(arg),
        None => setup.args.keyword_arg("CAPACITY")?,
    };
    let reply_paint = match setup.args.keyword_arg("REPLY_ANNO")? {
        None => false,
        Some(arg) if matches!(arg.raw(), "PAINT" | "20") => true,
        Some(arg) => return Err(setup.args.refuse(&arg, "REPLY_ANNO: PAINT is possible")),
    };
    let follows = setup.args.keyword("DST_ANNO")?;
    let kept = Kept::new(setup, follows);
    let given: Vec<_> = setup.args.rest().collect();
    let mut inputs = Vec::new();
    let given = match old_form(setup, &given, kind) {
        Some(old) => {
            inputs.push(old);
            Vec::new()
        }
        None => given,
    };
    // Patterns of mappers stand behind the inputs that packets have.
    let mut mapped = Vec::new();
    for (number, arg) in given.iter().enumerate() {
        let words: Vec<String> = arg.words().map(|word| word.raw().to_owned()).collect();
        let read = match mapper::read(setup, &words, kind) {
            None => input(setup, &words, kind),
            Some(read) => read.map(|(patterns, order)| {
                let first = given.len() + mapped.len();
                let count = patterns.len();
                mapped.extend(patterns);
                (Input::Mapper(Mapper { first, count, order }), [0; 2])
            }),
        };
        match read {
            Ok(input) => inputs.push(input),
            Err(words) => {
                setup.args.refuse(arg, &format!("input spec {number}: {words}"));
            }
        }
    }
    setup.args.finish()?;
    if inputs.len() != setup.inputs as usize {
        let words = format!("{} inputs want as many arguments, not {}", setup.inputs, inputs.len());
        return Err(setup.args.refuse_all(&words));
    }
    let own_inputs = inputs.len();
    inputs.extend(mapped);
    if inputs.len() > MOST_INPUTS {
        let words = format!("at most {MOST_INPUTS} inputs and patterns of mappers are possible");
        return Err(setup.args.refuse_all(&words));
    }
    let core = setup.shared::<Core>(setup.number());
    let mut table = core.own.clone();
    match &capacity {
        None => {}
        Some(arg) => match arg.value::<usize>() {
            Ok(capacity) => core.own.set_capacity(capacity),
            Err(_) => table = named(setup, arg)?.own.clone(),
        },
    }
    let (inputs, outputs) = inputs.into_iter().unzip();
    let config = Config {
        table,
        // Nodes of a graph have numbers of 16 bits.
        owner: u16::try_from(setup.number()).unwrap_or(u16::MAX),
        kind,
        inputs,
        own_inputs,
        outputs,
        reply_paint,
        tcp,
        udp,
    };
    // Once an element.
    let _ = core.config.set(config);
    let outputs = setup.outputs;
    let made = Made::new({
        let core = core.clone();
        move |instance| {
            // Mappings of packets that are only evaluated are none.
            let core = (!instance.is_dry_run()).then(|| core.clone());
            if let Some(core) = &core
                && let Some(config) = core.config.get()
            {
                config.table.use_workers(core.workers.fetch_add(1, Relaxed) + 1);
            }
            Rewriter { core, outputs, stages: Stages::default(), kept: kept.clone() }
        }
    });
    Ok(handled(made, &core))
}

/// Source and destination of a rewriter of echo requests, as configurations gave them that knew no patterns.
fn old_form(setup: &Setup<'_>, given: &[Arg<'_>], kind: Kind) -> Option<Spec> {
    let [src, dst] = given else { return None };
    if kind != Kind::Ping || setup.inputs != 1 {
        return None;
    }
    let word = |arg: &Arg<'_>| arg.raw().to_owned();
    let words = [word(src), "-".to_owned(), word(dst), "-".to_owned()];
    let reply = u16::from(setup.outputs > 1);
    Pattern::read(&words, false, kind.is_udp_first())
        .ok()
        .map(|pattern| (Input::Pattern(pattern), [0, reply]))
}

/// Reads what becomes of the new flows of an input.
fn input(setup: &Setup<'_>, words: &[String], kind: Kind) -> Result<Spec, String> {
    let output = |text: &String| {
        let number = u16::read(text).ok().filter(|&number| u32::from(number) < setup.outputs);
        number.ok_or_else(|| format!("bad output `{text}`"))
    };
    let both = |words: &[String]| Ok::<_, String>([output(&words[0])?, output(&words[1])?]);
    let addrs_alone = !kind.has_ports();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["drop" | "discard"] => Ok((Input::Drop, [0; 2])),
        ["pass" | "passthrough" | "nochange"] => Ok((Input::Pass, [0; 2])),
        ["pass" | "passthrough" | "nochange", _] => Ok((Input::Pass, [output(&words[1])?; 2])),
        ["keep", ..] if words.len() == 3 => Ok((Input::Keep, both(&words[1..])?)),
        ["pattern", name, ..] if words.len() == 4 => {
            let pattern = named_pattern(setup, name, kind)?;
            Ok((Input::Pattern(pattern), both(&words[2..])?))
        }
        ["pattern", ..] if words.len() >= 5 => {
            let (values, outputs) = words[1..].split_at(words.len() - 3);
            // Of a pattern with ports the ports come first to be wrong.
            let pattern = Pattern::read(values, addrs_alone, kind.is_udp_first())?;
            if kind == Kind::Addr && values.last().is_some_and(|dst| dst != "-") {
                return Err("the destination of packets is not changed here: `-`".into());
            }
            Ok((Input::Pattern(pattern), both(outputs)?))
        }
        _ => Err("bad input spec".into()),
    }
}

/// The pattern of a name.
fn named_pattern(setup: &Setup<'_>, name: &str, kind: Kind) -> Result<Pattern, String> {
    let none = || format!("no pattern `{name}`");
    let configuration = setup.around.configuration.ok_or_else(none)?;
    for (number, element) in configuration.elements().iter().enumerate() {
        if element.class.name != PATTERNS_NAME {
            continue;
        }
        let mut problems = Problems::default();
        let mut args = configuration.args(number, &mut problems);
        while let Some(arg) = args.next_of_any() {
            let words: Vec<String> = arg.words().map(|word| word.raw().to_owned()).collect();
            if words.first().is_some_and(|first| first == name) {
                let addrs_alone = !kind.has_ports() && words.len() == 3;
                return Pattern::read(&words[1..], addrs_alone, kind.is_udp_first());
            }
        }
    }
    Err(none())
}

fn handled(made: Made, core: &Arc<Core>) -> Made {
    let [patterns, size, capacity, set, failures, clear, bytes] = [(); 7].map(|()| core.clone());
    let (kind, inputs) = match core.config.get() {
        Some(config) => (config.kind, config.own_inputs),
        None => return made,
    };
    let made = (0..inputs).fold(made, |made, input| {
        let core = core.clone();
        let read = Handler::read("pattern", move || input_texts(&core, Some(input)));
        made.handler(read.named(format!("pattern{input}")))
    });
    let made = ["nmappings", "table_size"].into_iter().fold(made, |made, name| {
        let core = core.clone();
        made.handler(Handler::read(name, move || flows_of(&core).iter().sum::<u64>().to_string()))
    });
    let made = match kind.has_ports() && kind.is_for(PROTOCOL_TCP) {
        true => made.handler(looked_up("tcp_lookup", core, &[PROTOCOL_TCP])),
        false => made,
    };
    made.handler(Handler::read("patterns", move || input_texts(&patterns, None)))
        .handler(Handler::read("size", move || {
            size.config.get().map_or(0, |config| config.table.len()).to_string()
        }))
        .handler(Handler::read("table_bytes", move || {
            bytes.config.get().map_or(0, |config| config.table.bytes()).to_string()
        }))
        .handler(Handler::read("capacity", move || {
            capacity.config.get().map_or(0, |config| config.table.capacity()).to_string()
        }))
        .handler(Handler::write("capacity", move |text| {
            // A second number would be places that are kept for new flows: they have those without a guarantee.
            let mut words = text.split_whitespace();
            let capacity = value::<usize>(words.next().unwrap_or_default())?;
            words.try_for_each(|word| value::<usize>(word).map(|_| ()))?;
            if let Some(config) = set.config.get() {
                config.table.set_capacity(capacity);
            }
            Ok(())
        }))
        .handler(Handler::read("mapping_failures", move || {
            failures.failures.load(Relaxed).to_string()
        }))
        .handler(listed("mappings", core, None))
        .handler(listed("table", core, None))
        .handler(listed("tcp_mappings", core, Some(PROTOCOL_TCP)))
        .handler(listed("tcp_table", core, Some(PROTOCOL_TCP)))
        .handler(listed("udp_mappings", core, Some(PROTOCOL_UDP)))
        .handler(listed("udp_table", core, Some(PROTOCOL_UDP)))
        .handler(looked_up("lookup", core, kind.protocols()))
        .handler(Handler::write("clear", move |_| {
            if let Some(config) = clear.config.get() {
                config.table.clear(config.owner);
            }
            Ok(())
        }))
}

/// Flows by the input of their first packets.
fn flows_of(core: &Core) -> Vec<u64> {
    let Some(config) = core.config.get() else { return Vec::new() };
    let mut flows = vec![0; config.inputs.len()];
    config.table.each(config.owner, &mut |flow| {
        if let Some(count) = flows.get_mut(usize::from(flow.input)) {
            *count += 1;
        }
    });
    for (number, input) in config.inputs.iter().enumerate() {
        if let Input::Mapper(Mapper { first, count, .. }) = input {
            flows[number] = flows[*first..first + count].iter().sum();
        }
    }
    flows.truncate(config.own_inputs);
    flows
}

/// What becomes of the flows of an input, or of all inputs, a line each with the number of flows that there are.
fn input_texts(core: &Core, one: Option<usize>) -> String {
    let Some(config) = core.config.get() else { return String::new() };
    let flows = flows_of(core);
    let inputs = config.inputs.iter().zip(flows).enumerate();
    let line = |(number, (input, flows)): (usize, (&Input, u64))| {
        let text = match input {
            Input::Drop => "<drop>".to_owned(),
            Input::Pass => "<nochange>".to_owned(),
            Input::Keep => "<keep>".to_owned(),
            Input::Pattern(pattern) => pattern.text(),
            Input::Mapper(_) => "<mapper>".to_owned(),
        };
        let count = if flows == 0 { String::new() } else { format!(" [{flows}]") };
        one.is_none_or(|one| one == number).then(|| format!("{text}{count}\n"))
    };
    inputs.filter_map(line).collect()
}

/// Handler that reads what the ends of a flow become, `SADDR SPORT DADDR DPORT`: of the first of these protocols that has
/// one, and empty where none has.
fn looked_up(name: &'static str, core: &Arc<Core>, protocols: &'static [u8]) -> Handler {
    let core = core.clone();
    Handler::read_with(name, move |text| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[src, sport, dst, dport] = words.as_slice() else {
            return Err("expected SADDR SPORT DADDR DPORT".into());
        };
        let addr = |text| Ipv4Addr::read(text).map(Ipv4Addr::to_bits);
        let (src, dst) = (addr(src)?, addr(dst)?);
        let id = FlowId { src, dst, sport: u16::read(sport)?, dport: u16::read(dport)? };
        // The first session makes the table, for all workers, and is none of a handler.
        let config = core.config.get().filter(|config| config.table.len() > 0);
        let found = config.and_then(|config| {
            let mut session = config.table.session();
            protocols.iter().find_map(|&protocol| {
                // Time 0 ends no flow: a handler has no clock of packets.
                let found = config.find(&mut session, protocol, id, 0)?;
                Some(config.change(&mut session, found, id).to)
            })
        });
        Ok(found.map_or_else(String::new, |FlowId { src, sport, dst, dport }| {
            let addr = Ipv4Addr::from_bits;
            format!("{} {sport} {} {dport}", addr(src), addr(dst))
        }))
    })
}

/// Handler that lists flows, of a protocol where one is given.
fn listed(name: &'static str, core: &Arc<Core>, protocol: Option<u8>) -> Handler {
    let core = core.clone();
    Handler::read(name, move || {
        let mut text = String::new();
        if let Some(config) = core.config.get() {
            config.table.each(config.owner, &mut |flow| {
                if protocol.is_none_or(|protocol| flow.key().protocol == protocol) {
                    text += &flow_text(config, flow);
                }
            });
        }
        text
    })
}

/// A flow as its ends are before and behind, and the outputs of its packets, which a star marks, and of replies.
fn flow_text(config: &Config, flow: &Flow) -> String {
    let ends = |FlowId { src, sport, dst, dport }: FlowId| {
        let [src, dst] = [src, dst].map(Ipv4Addr::from_bits);
        match config.kind {
            Kind::Addr => src.to_string(),
            Kind::Pair => format!("({src}, {dst})"),
            Kind::Ping => format!("({src}, {dst}, {sport})"),
            Kind::Ip | Kind::Udp | Kind::Tcp => format!("({src}, {sport}, {dst}, {dport})"),
        }
    };
    let [packets, replies] = config.outputs.get(usize::from(flow.input)).copied().unwrap_or([0; 2]);
    format!("{} => {} [*{packets} {replies}]\n", ends(flow.from()), ends(flow.to(false)))
}

/// What a packet becomes.
struct Change {
    from: FlowId,
    to: FlowId,
}

impl Config {
    /// Keys by which a packet may be known: as a packet of a flow, and as a reply.
    fn keys(&self, protocol: u8, id: FlowId) -> [Key; 2] {
        let reply = match self.kind {
            Kind::Addr => FlowId { dst: id.dst, ..FlowId::default() },
            _ => id,
        };
        let key = self.key(protocol, id);
        [key, Key { id: reply, ..key }]
    }

    /// The first of [`Self::keys`].
    #[inline]
    fn key(&self, protocol: u8, id: FlowId) -> Key {
        let id = match self.kind {
            Kind::Addr => FlowId { src: id.src, ..FlowId::default() },
            _ => id,
        };
        Key { owner: self.owner, protocol: if self.kind.has_ports() { protocol } else { 0 }, id }
    }

    /// Whether plain packets are changed in [`Stages`]: of UDP, and of TCP.
    fn plain(&self) -> [bool; 2] {
        let ports = self.kind.has_ports();
        [PROTOCOL_UDP, PROTOCOL_TCP].map(|protocol| ports && self.kind.is_for(protocol))
    }

    /// How long a flow stays, by what is known of it.
    #[inline]
    fn times(&self, protocol: u8, flow: &Flow) -> Times {
        let tcp = protocol == PROTOCOL_TCP && self.kind != Kind::Udp;
        let all = if tcp { &self.tcp } else { &self.udp };
        let busy = flow.is_answered() && (tcp || flow.packets() > 2);
        let silent_ns = match busy {
            _ if tcp && flow.is_closed() => all.done_ns,
            true => all.busy_ns,
            false => all.begin_ns,
        };
        Times { silent_ns, guarantee_ns: all.guarantee_ns }
    }

    /// What a flow's packet becomes.
    #[inline]
    fn change(&self, session: &mut Session<'_>, found: Found, id: FlowId) -> Change {
        let to = session.flow(found).to(found.reply);
        // Of flows that are known by one address the other stays.
        let to = match (self.kind, found.reply) {
            (Kind::Addr, false) => FlowId { src: to.src, ..id },
            (Kind::Addr, true) => FlowId { dst: to.dst, ..id },
            _ => to,
        };
        Change { from: id, to }
    }

    #[inline]
    fn find(
        &self,
        session: &mut Session<'_>,
        protocol: u8,
        id: FlowId,
        now_ns: u64,
    ) -> Option<Found> {
        let own = session.hash(&self.key(protocol, id));
        self.find_by(session, own, protocol, id, now_ns)
    }

    /// The flow of a packet, by the hash of the first of its keys.
    #[inline]
    fn find_by(
        &self,
        session: &mut Session<'_>,
        hash: u64,
        protocol: u8,
        id: FlowId,
        now_ns: u64,
    ) -> Option<Found> {
        let [own, reply] = self.keys(protocol, id);
        let found = session.find_by(hash, &own, now_ns);
        if own == reply { found } else { found.or_else(|| session.find(&reply, now_ns)) }
    }

    /// A new flow by an input's pattern, or the first of its mapper's that has a place; `None` where there is no place or
    /// no port for it.
    fn map(
        &self,
        session: &mut Session<'_>,
        flow: (u8, FlowId),
        input: u16,
        paint: u8,
        now_ns: u64,
    ) -> Option<Found> {
        match self.inputs.get(usize::from(input))? {
            Input::Mapper(mapper) => mapper
                .order(flow.1.src)
                .find_map(|input| self.map_by(session, flow, input, paint, now_ns)),
            _ => self.map_by(session, flow, input, paint, now_ns),
        }
    }

    /// A new flow by one pattern.
    fn map_by(
        &self,
        session: &mut Session<'_>,
        (protocol, id): (u8, FlowId),
        input: u16,
        paint: u8,
        now_ns: u64,
    ) -> Option<Found> {
        let key = self.keys(protocol, id)[0];
        let (choice, pattern) = match self.inputs.get(usize::from(input))? {
            Input::Keep => (Choice::One(key.id), None),
            Input::Pattern(pattern) => (pattern.choice(key.id), Some(pattern)),
            Input::Drop | Input::Pass | Input::Mapper(_) => return None,
        };
        let to = match choice {
            Choice::One(to) => to,
            Choice::Of(values) => values.with(values.low),
        };
        session.release();
        let _maker = session.table().maker(&key, to);
        if session.is_shared()
            && let Some(known) = session.find(&key, now_ns)
        {
            return Some(known);
        }
        // Several hosts may have one address: it is a flow's own that may not be taken twice.
        let to = match (choice, pattern) {
            (Choice::Of(values), Some(pattern)) => {
                let value = session.free_value(&key, &values, now_ns)?;
                pattern.take(&values, value);
                values.with(value)
            }
            (_, pattern) => {
                let other = session.find(&Key { id: to.reverse(), ..key }, now_ns);
                match (other, pattern) {
                    (Some(_), Some(_)) => return None,
                    // What is kept comes before what is changed.
                    (Some(other), None) => session.remove(other),
                    (None, _) => {}
                }
                to
            }
        };
        let flow = Flow::new(key, to, input, paint);
        let times = self.times(protocol, &flow);
        session.add(flow, times, now_ns)
    }

    /// Output of a packet, or of a reply, of a flow that began at an input.
    fn output(&self, input: u16, reply: bool) -> u16 {
        self.outputs.get(usize::from(input)).map_or(0, |outputs| outputs[usize::from(reply)])
    }
}

struct Rewriter {
    core: Option<Arc<Core>>,
    outputs: u32,
    stages: Stages,
    kept: Kept,
}

/// A rewriter at work on a batch.
struct Work<'a> {
    core: &'a Core,
    config: &'a Config,
    session: Session<'a>,
    input: u16,
    now_ns: u64,
}

impl Work<'_> {
    /// Output of a packet, which is rewritten.
    fn one(&mut self, batch: &mut Batch, i: usize, stages: &Stages) -> Result<u16, DropReason> {
        let Self { core, config, ref mut session, input, now_ns } = *self;
        let meta = batch.meta()[i];
        let network = usize::from(meta.network);
        let ends = stages.ends(config, i, (batch.bytes(i), network));
        let known = ends.map(|(protocol, id, _)| (protocol, id));
        let found = ends.and_then(|(protocol, id, hash)| match hash {
            Some(hash) => config.find_by(session, hash, protocol, id, now_ns),
            None => config.find(session, protocol, id, now_ns),
        });
        let (found, (protocol, id)) = match (found, known) {
            (Some(found), Some(known)) => (found, known),
            (_, known) => match (config.inputs.get(usize::from(input)), known) {
                (Some(Input::Pass), _) => return Ok(config.output(input, false)),
                (Some(Input::Drop) | None, _) | (_, None) => return Err(DropReason::Unmatched),
                // A reply that nobody is known to have requested.
                _ if config.kind == Kind::Ping && !packet::is_request(batch.bytes(i), network) => {
                    return Err(DropReason::Unmatched);
                }
                (_, Some(known)) => {
                    let mapped = config.map(session, known, input, meta.paint, now_ns);
                    let Some(mapped) = mapped else {
                        core.failures.fetch_add(1, Relaxed);
                        return Err(DropReason::NoMapping);
                    };
                    (mapped, known)
                }
            },
        };
        let change = config.change(session, found, id);
        let ip = batch.bytes_mut(i).get_mut(network..).unwrap_or_default();
        let flow = session.flow(found);
        flow.count(found.reply);
        if protocol == PROTOCOL_TCP && config.kind.has_ports() {
            let flags = ip.get(usize::from(ip[0] & 15) * 4 + FLAGS).copied().unwrap_or(0);
            if flags & (FIN | RST) != 0 {
                flow.close(found.reply);
            }
            if flags & RST != 0 {
                flow.close(!found.reply);
            }
            if flow.is_changed() {
                let [packets, replies] = session.deltas(found);
                let (own, other) =
                    if found.reply { (replies, packets) } else { (packets, replies) };
                packet::renumber(ip, own, other);
            }
        }
        packet::rewrite(ip, change.from, change.to, config.kind.has_ports());
        let flow = session.flow(found);
        let (from, paint) = (flow.input, flow.reply_anno);
        let times = config.times(protocol, flow);
        session.touch(found, times, now_ns);
        let meta = &mut batch.meta_mut()[i];
        // The route is that of the new destination.
        meta.hop = Hop::NONE;
        if found.reply && config.reply_paint {
            meta.paint = paint;
        }
        Ok(config.output(from, found.reply))
    }
}

impl Element for Rewriter {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let core = self.core.as_deref();
        let config = core.and_then(|core| core.config.get());
        let (Some(core), Some(config)) = (core, config) else {
            (0..batch.len()).for_each(|i| batch.discard(i, DropReason::Unmatched));
            return;
        };
        let (now_ns, mut session) = (cx.now_ns, config.table.session());
        let Self { outputs, stages, kept, .. } = self;
        kept.note(batch);
        stages.run(config, &mut session, batch, now_ns);
        // In their order, so that packets behind the first of a new flow find it.
        let mut work = Work { core, config, session, input, now_ns };
        for at in 0..stages.special.len() {
            let i = stages.special[at];
            match work.one(batch, i, stages) {
                Ok(output) if u32::from(output) < *outputs => batch.output(i, output),
                Ok(_) => batch.discard(i, DropReason::Unmatched),
                Err(reason) => batch.discard(i, reason),
            }
        }
        stages.special.clear();
        kept.restore(batch);
    }
}

#[cfg(test)]
mod figures_test;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod workers_test;
