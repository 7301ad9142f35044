//! `UrpfCheck`: drops packets whose source is not reached by their ingress interface, by the graph's own route tables.
//!
//! Source: RFC 3704 (strict, feasible and loose reverse path forwarding), RFC 8704 for what a further table is good for,
//! RFC 5635 for sources that are routed to nowhere. A route table of a graph has one route a prefix, so paths that are
//! known but not the best are a table of their own: feasible looks in all that are named, and so do the lists of prefixes a
//! customer that RFC 8704 makes.
//!
//! Strict and feasible: the source's route leads to one of OUTPUTS, or where none are given to the output that is the
//! packet's color, as Click's routers paint packets by their ingress. Loose: there is a route. A route to an
//! output of BLACKHOLE is none. Nothing is required of packets that have no source yet or whose source means nothing
//! beyond their link (RFC 3704 leaves those to who knows the link): from 0.0.0.0 to the broadcast address, from :: and
//! fe80::/10, to the multicast addresses of the link; nor of those that are our own, or of a family that no table is for.
//!
//! Cost: the lookup's of each table named for a batch, and the source of each header.

use std::sync::Arc;

use fingerpost_lpm::LpmReader;
use fingerpost_route::UrpfMode as Mode;

use crate::element::router::ether_input::AHEAD;
use crate::element::support::lookups::Lookups;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::ip6::is_link_local;
use crate::frame::{Batch, DropReason, Meta};
use crate::graph::{Context, Element, ElementClass, Exit, Made, Setup, Shown};
use crate::language::{ClassSpec, ConfigError};
use crate::route_table::{AnyTable, Family, Path, RouteTable};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("UrpfCheck", "1/1-2", "a/ah", "x/x").outputs(&["pass", "fail"]),
    summary: "drops packets whose source is not reached by their ingress interface (RFC 3704)",
    configure,
};

/// What routes have to be.
#[derive(Clone, Debug)]
struct Rule {
    mode: Mode,
    /// None: the color's.
    outputs: Option<Vec<u16>>,
    blackholes: Vec<u16>,
    allow_default: bool,
}

impl Rule {
    /// Whether a packet of this color may come from where the route leads.
    #[inline]
    fn takes(&self, path: Option<Path>, color: u8) -> bool {
        let Some(path) = path else { return false };
        if self.blackholes.contains(&path.output) || path.default && !self.allow_default {
            return false;
        }
        match (&self.mode, &self.outputs) {
            (Mode::Loose, _) => true,
            (_, Some(outputs)) => outputs.contains(&path.output),
            (_, None) => path.output == u16::from(color),
        }
    }
}

fn configure(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let tables = setup.args.positional_arg("TABLE");
    let mode = setup.args.keyword_arg("MODE");
    let outputs = setup.list::<u16>("OUTPUTS");
    let blackholes = setup.list::<u16>("BLACKHOLE");
    let allow_default = setup.args.keyword::<bool>("ALLOW_DEFAULT");
    let shown: Vec<_> = tables?.words().map(|word| setup.table(&word)).collect();
    let mode = match mode? {
        None => Mode::Strict,
        Some(arg) => match Mode::ALL.iter().find(|(_, name)| *name == arg.raw()) {
            Some((mode, _)) => *mode,
            None => return Err(setup.args.refuse(&arg, "MODE is `strict`, `feasible` or `loose`")),
        },
    };
    setup.args.finish()?;
    let shown = shown.into_iter().collect::<Result<Vec<Shown>, _>>()?;
    let rule = Arc::new(Rule {
        mode,
        outputs: outputs?,
        blackholes: blackholes?.unwrap_or_default(),
        // With a route to everywhere nothing would ever fail.
        allow_default: allow_default?.unwrap_or(mode != Mode::Loose),
    });
    let exit = setup.exit(1, DropReason::Urpf);
    let failed = setup.keep::<PerWorker<Count>>();
    let counts = failed.clone();
    let made = Made::new(move |instance| {
        let tables = shown.iter().map(|shown| shown.get().expect("a plan has all its tables"));
        let (mut v4, mut v6) = (Family4::new(), Family6::new());
        for table in tables {
            match table {
                AnyTable::V4(table) => v4.add(table, mode),
                AnyTable::V6(table) => v6.add(table, mode),
            }
        }
        UrpfCheck { v4, v6, rule: rule.clone(), exit, failed: counts.add(instance) }
    });
    Ok(made.counter("drops", &failed))
}

type Family4 = Sources<u32>;
type Family6 = Sources<u128>;

/// Tables of a family, and the sources of a batch to look up.
struct Sources<A: Family> {
    tables: Vec<(Arc<RouteTable<A>>, LpmReader<A>)>,
    lookups: Lookups<A>,
}

impl<A: Family> Sources<A> {
    fn new() -> Self {
        Self { tables: Vec::new(), lookups: Lookups::new() }
    }

    /// Strict knows the first table alone.
    fn add(&mut self, table: &Arc<RouteTable<A>>, mode: Mode) {
        if mode != Mode::Strict || self.tables.is_empty() {
            self.tables.push((table.clone(), table.reader()));
        }
    }

    /// Looks up all that were pushed, table by table; those that no table takes fail.
    fn check(&mut self, rule: &Rule, batch: &mut Batch, fail: impl Fn(&mut Batch, usize)) {
        if self.tables.is_empty() {
            return;
        }
        let Self { tables, lookups } = self;
        for (table, reader) in tables {
            let len = lookups.len;
            reader.lookup_batch(&lookups.addrs[..len], &mut lookups.answers[..len]);
            // Who is not taken moves up, to be asked for in the next table.
            lookups.len = 0;
            for k in 0..len {
                let place = usize::from(lookups.places[k]);
                let color = batch.meta()[place].paint;
                if !rule.takes(table.path(lookups.answers[k]), color) {
                    lookups.push(lookups.addrs[k], place);
                }
            }
            if lookups.len == 0 {
                return;
            }
        }
        for &place in &lookups.places[..lookups.len] {
            fail(batch, usize::from(place));
        }
    }
}

struct UrpfCheck {
    v4: Family4,
    v6: Family6,
    rule: Arc<Rule>,
    exit: Exit,
    failed: Arc<Count>,
}

impl Element for UrpfCheck {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        (self.v4.lookups.len, self.v6.lookups.len) = (0, 0);
        for i in 0..batch.len() {
            batch.prefetch(i + AHEAD);
            let meta = batch.meta()[i];
            let (at, frame) = (usize::from(meta.network), batch.bytes(i));
            match frame.get(at).map_or(0, |first| first >> 4) {
                4 if let Some(src) = u32::checked_source(frame, &meta) => {
                    self.v4.lookups.push(src, i)
                }
                6 if let Some(src) = u128::checked_source(frame, &meta) => {
                    self.v6.lookups.push(src, i)
                }
                // Whether it is a packet at all is for others to find out.
                _ => {}
            }
        }
        let Self { v4, v6, rule, exit, failed } = self;
        let fail = |batch: &mut Batch, i: usize| {
            failed.add(1);
            exit.take(batch, i);
        };
        if v4.lookups.len > 0 {
            v4.check(rule, batch, fail);
        }
        if v6.lookups.len > 0 {
            v6.check(rule, batch, fail);
        }
    }
}

/// Addresses of a family whose sources are checked.
pub(crate) trait Sourced: Family {
    /// Whether a packet's source means nothing beyond its link.
    fn is_of_link(src: Self, dst: Self) -> bool;

    /// The source of a packet, if a route back to it is to be looked up.
    #[inline]
    fn checked_source(frame: &[u8], meta: &Meta) -> Option<Self> {
        let at = usize::from(meta.network);
        let (src, dst) = (Self::src(frame, at)?, Self::dst(frame, at)?);
        (!(meta.is_ours() || Self::is_of_link(src, dst))).then_some(src)
    }
}

impl Sourced for u32 {
    /// From who has no address yet to everybody; to a multicast address of the link, 224.0.0.0/24.
    #[inline]
    fn is_of_link(src: u32, dst: u32) -> bool {
        src == 0 && dst == u32::MAX || dst >> 8 == 0xe0_0000
    }
}

impl Sourced for u128 {
    /// From who has no address yet, or one of the link; to a multicast address of the link, ff02::/16.
    #[inline]
    fn is_of_link(src: u128, dst: u128) -> bool {
        src == 0 || is_link_local(src) || dst >> 112 == 0xff02
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::graph::Plan;
    use crate::testing::{Rig, World, frame_v4, frame_v6, refused};
    use fingerpost_lpm::Prefix;

    /// Two paths in, colors 1 and 2; a route table that has them as outputs 1 and 2, and 3 to nowhere.
    fn rig(check: &str) -> Rig {
        let text = format!(
            "FromDevice(one) -> Paint(1) -> u :: UrpfCheck({check}); FromDevice(two) -> Paint(2) -> u;
             rt :: RadixIPLookup(10.1.0.0/16 1, 10.2.0.0/16 2, 10.9.0.0/16 3, 10.1.9.0/24 2);
             more :: RadixIPLookup(10.1.0.0/16 2, 10.9.0.0/16 2);
             rt6 :: IP6Lookup(2001:db8:1::/48 1, 2001:db8:2::/48 2, ::/0 2);
             Idle -> rt => Discard, Discard, Discard, Discard; Idle -> more => Discard, Discard, Discard;
             Idle -> rt6 => Discard, Discard, Discard; u -> ToDevice(out)"
        );
        Rig::new(&World::new(), &text)
    }

    fn packet(src: &str, dst: &str) -> Vec<u8> {
        let frame = if src.contains(':') {
            frame_v6(src, dst, 64, 17, &[])
        } else {
            frame_v4(src, dst, 64, 17, &[])
        };
        frame[14..].to_vec()
    }

    /// Which of the sources pass that a device receives.
    fn passing(check: &str, device: &str, sources: &[&str]) -> Vec<bool> {
        let mut rig = rig(check);
        let dst = |src: &str| if src.contains(':') { "2001:db8::9" } else { "192.0.2.9" };
        let pass = |src: &&str| !rig.receive(device, &[&packet(src, dst(src))]).is_empty();
        let passing: Vec<bool> = sources.iter().map(pass).collect();
        let failed = passing.iter().filter(|pass| !**pass).count();
        assert_eq!(rig.dropped(DropReason::Urpf), failed as u64);
        assert_eq!(rig.read("u.drops"), failed.to_string());
        passing
    }

    const SOURCES: [&str; 5] = ["10.1.0.1", "10.1.9.1", "10.2.0.1", "10.9.0.1", "8.8.8.8"];

    #[test]
    fn strict_wants_the_best_route_to_lead_back() {
        assert_eq!(passing("rt", "one", &SOURCES), [true, false, false, false, false]);
        assert_eq!(passing("rt, MODE strict", "two", &SOURCES), [false, true, true, false, false]);
        // Wherever it comes in.
        let named = "rt, OUTPUTS 2 3";
        assert_eq!(passing(named, "one", &SOURCES), [false, true, true, true, false]);
        let nowhere = "rt, OUTPUTS 2 3, BLACKHOLE 3";
        assert_eq!(passing(nowhere, "one", &SOURCES), [false, true, true, false, false]);
        let further = "rt more, MODE strict";
        assert_eq!(passing(further, "two", &SOURCES), passing("rt", "two", &SOURCES));
    }

    #[test]
    fn feasible_knows_paths_that_are_not_the_best() {
        let feasible = "rt more, MODE feasible";
        assert_eq!(passing(feasible, "one", &SOURCES), [true, false, false, false, false]);
        assert_eq!(passing(feasible, "two", &SOURCES), [true, true, true, true, false]);
    }

    #[test]
    fn loose_wants_any_route_that_is_not_to_nowhere() {
        assert_eq!(passing("rt, MODE loose", "one", &SOURCES), [true, true, true, true, false]);
        let nowhere = "rt, MODE loose, BLACKHOLE 3";
        assert_eq!(passing(nowhere, "one", &SOURCES), [true, true, true, false, false]);
        // Routed to nowhere while it runs (RFC 5635, source based).
        let mut rig = rig(nowhere);
        let attack = packet("10.2.0.66", "192.0.2.9");
        assert_eq!(rig.receive("one", &[&attack]).len(), 1);
        rig.write("rt.add", "10.2.0.66/32 3");
        assert_eq!(rig.receive("one", &[&attack, &packet("10.2.0.67", "192.0.2.9")]).len(), 1);
    }

    #[test]
    fn the_default_route_counts_if_it_is_said_so() {
        let sources = ["2001:db8:1::1", "2001:db8:2::1", "2001:db8:3::1"];
        assert_eq!(passing("rt6, MODE loose", "one", &sources), [true, true, false]);
        assert_eq!(passing("rt6, MODE loose, ALLOW_DEFAULT true", "one", &sources), [true; 3]);
        assert_eq!(passing("rt6", "two", &sources), [false, true, true]);
        // It leads where another route leads, and is told from it nevertheless.
        assert_eq!(passing("rt6, ALLOW_DEFAULT false", "two", &sources), [false, true, false]);
        assert_eq!(
            passing("rt rt6", "two", &["10.2.0.1", "2001:db8:2::1", "10.1.0.1"]),
            [true, true, false]
        );
        assert_eq!(passing("rt", "one", &sources), [true; 3], "no table for the family");
    }

    #[test]
    fn who_has_no_address_yet_is_not_asked_for_a_way_back() {
        let mut rig = rig("rt rt6, OUTPUTS 0");
        for (src, dst, passes) in [
            ("0.0.0.0", "255.255.255.255", true),
            ("0.0.0.0", "192.0.2.1", false),
            ("192.0.2.1", "255.255.255.255", false),
            ("8.8.8.8", "224.0.0.5", true),
            ("8.8.8.8", "224.0.1.5", false),
            ("::", "ff02::1:ff00:1", true),
            ("fe80::1", "2001:db8::1", true),
            ("2001:db8:9::1", "ff02::1", true),
            ("2001:db8:9::1", "ff05::1", false),
        ] {
            let sent = rig.receive("one", &[&packet(src, dst)]).len();
            assert_eq!(sent == 1, passes, "{src} to {dst}");
        }
        assert_eq!(
            rig.receive("one", &[&[0x45; 3][..], &[0; 40], &[]]).len(),
            3,
            "others check that"
        );
    }

    #[test]
    fn names_are_those_of_the_compound_it_stands_in() {
        let text = "elementclass Checked { input -> UrpfCheck(rt, OUTPUTS 0) -> output;
                rt :: RadixIPLookup(10.0.0.0/8 0); Idle -> rt -> Discard }
            FromDevice(a) -> Checked -> ToDevice(b); rt :: RadixIPLookup(11.0.0.0/8 0); Idle -> rt -> Discard";
        let mut rig = Rig::new(&World::new(), text);
        let frames = [packet("10.0.0.1", "192.0.2.1"), packet("11.0.0.1", "192.0.2.1")];
        assert_eq!(rig.receive("a", &[&frames[0], &frames[1]]).len(), 1);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let around = "Idle -> rt :: RadixIPLookup(0/0 0) -> c :: Counter -> Discard; Idle -> ";
        for (config, want) in [
            ("r", "there is no element `r`"),
            ("c", "`c` is a Counter, and no route table"),
            ("", "argument TABLE is missing"),
            ("rt, MODE exact", "MODE is `strict`, `feasible` or `loose`"),
            ("rt, OUTPUTS x", "`x` is no whole number"),
        ] {
            let text = format!("{around}UrpfCheck({config}) -> Discard");
            let reported = Plan::read("x", &text, crate::ELEMENTS).unwrap_err().to_string();
            assert!(reported.contains(want), "{config}: {reported}");
        }
        assert!(refused(&CLASS, "rt").contains("there is no element `rt`"));
    }

    fn routes() -> impl Strategy<Value = Vec<(Prefix<u32>, u16)>> {
        let prefix = (0..4_u32, 0..5_usize).prop_map(|(bits, len)| {
            Prefix::masked(bits << 28 | bits << 8 | bits, [0, 3, 16, 24, 32][len])
        });
        prop::collection::btree_map(prefix, 0..4_u16, 0..12)
            .prop_map(|map| map.into_iter().collect())
    }

    /// Check of the RFC, over a list that is searched from end to end.
    fn expected(rule: &Rule, tables: &[&[(Prefix<u32>, u16)]], src: u32, color: u8) -> bool {
        let tables = if rule.mode == Mode::Strict { &tables[..1] } else { tables };
        tables.iter().any(|routes| {
            let covering = routes.iter().filter(|(prefix, _)| prefix.contains(src));
            let best = covering.max_by_key(|(prefix, _)| prefix.len());
            best.is_some_and(|(prefix, output)| {
                let leads = rule
                    .outputs
                    .as_ref()
                    .map_or(*output == u16::from(color), |all| all.contains(output));
                !rule.blackholes.contains(output)
                    && (prefix.len() > 0 || rule.allow_default)
                    && (rule.mode == Mode::Loose || leads)
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn packets_pass_that_a_slow_search_lets_pass(
            (first, second) in (routes(), routes()),
            (mode, allow_default) in (0..3_usize, any::<bool>()),
            outputs in prop::option::of(prop::collection::vec(0..4_u16, 1..3)),
            blackholes in prop::collection::vec(0..4_u16, 0..2),
        ) {
            let rule = Rule { mode: Mode::ALL[mode].0, outputs, blackholes, allow_default };
            let list = |routes: &[(Prefix<u32>, u16)]| {
                routes.iter().map(|(prefix, output)| format!("{prefix} {output}")).collect::<Vec<_>>().join(", ")
            };
            let words = |numbers: &[u16]| numbers.iter().map(|n| format!(" {n}")).collect::<String>();
            let mut check = format!("one two, MODE {}, ALLOW_DEFAULT {allow_default}", Mode::ALL[mode].1);
            if let Some(outputs) = &rule.outputs {
                check += &format!(", OUTPUTS{}", words(outputs));
            }
            if !rule.blackholes.is_empty() {
                check += &format!(", BLACKHOLE{}", words(&rule.blackholes));
            }
            let text = format!(
                "FromDevice(in) -> Paint(2) -> UrpfCheck({check}) -> ToDevice(out);
                 Idle -> one :: RadixIPLookup({}); one => Discard, Discard, Discard, Discard;
                 Idle -> two :: IPLookup({}); two => Discard, Discard, Discard, Discard",
                list(&first), list(&second)
            );
            let mut rig = Rig::new(&World::new(), &text);
            let sources = (0..4_u32).flat_map(|bits| {
                let near = bits << 28 | bits << 8 | bits;
                [near, near ^ 1, near ^ 0xff, near ^ 0xffff, near ^ 1 << 27]
            });
            let sources: Vec<u32> = sources.collect();
            let frames: Vec<Vec<u8>> = sources.iter()
                .map(|&src| packet(&std::net::Ipv4Addr::from(src).to_string(), "192.0.2.9")).collect();
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let seen: Vec<u32> = rig.receive("in", &frames).into_iter()
                .map(|(_, frame)| u32::src(&frame, 0).unwrap()).collect();
            let want: Vec<u32> = sources.into_iter()
                .filter(|&src| expected(&rule, &[&first, &second], src, 2)).collect();
            prop_assert_eq!(seen, want, "{}", text);
        }
    }
}
