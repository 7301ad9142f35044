//! `SourceFilter`: lets packets pass, drops, counts or marks them by lists of prefixes that their source is on.
//!
//! Source: "Surgical DDoS Filtering With Fast LPM" (Salopek, Zec, Mikuc, Vasic, IEEE Access 10, 2022): lists of a
//! million prefixes, each looked up for every packet. Here all lists of an element are one lookup ([`PrefixSets`]); several
//! elements in a row look up each its own, as there.
//!
//! What decides, whatever the order of the arguments: a set that lets pass, else one that drops, else those that
//! limit the rate of all their sources together (in each worker), each of which must have room, else DEFAULT. Sets that
//! count or mark do so for every packet; of several colors the first set's is taken. What is neither IPv4 nor IPv6 is
//! DEFAULT's.
//!
//! Cost: the lookup's for a batch, the source of each header, and for packets on a list two counts.

use std::sync::Arc;

use crate::element::router::ether_input::AHEAD;
use crate::element::support::allowance::Rate;
use crate::element::support::lookups::Lookups;
use crate::element::support::setting::value;
use crate::element::support::source_sets::{Action, Argued, Given, Judge, Rules, SourceSets};
use crate::frame::wire::{ETHER_BYTES, IP4_BYTES, IP6_BYTES};
use crate::frame::{BATCH, Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Instance, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, ClassSpec, ConfigError, Value};
use crate::prefix_sets::{MOST_SETS, Mask, SetsReader, read_prefix};
use crate::route_table::Family;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("SourceFilter", "1/1-2", "a/ah", "x/x").outputs(&["pass", "drop"]),
    summary: "lets packets pass, drops, counts or marks them by lists of source prefixes",
    configure,
};

fn configure(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let default = setup.args.keyword_arg("DEFAULT");
    let mut sets: Vec<Argued> = Vec::new();
    for arg in setup.args.rest() {
        match read_set(&arg) {
            Ok(set) if sets.iter().any(|other| other.name == set.name) => {
                setup.args.refuse(&arg, &format!("there are two sets `{}`", set.name));
            }
            Ok(_) if sets.len() == MOST_SETS => {
                setup.args.refuse(&arg, &format!("limit exceeded: {MOST_SETS} sets"));
                break;
            }
            Ok(set) => sets.push(set),
            Err(words) => {
                setup.args.refuse(&arg, &words);
            }
        }
    }
    let open = match default? {
        None => true,
        Some(arg) => match arg.raw() {
            "pass" => true,
            "drop" => false,
            _ => return Err(setup.args.refuse(&arg, "DEFAULT is `pass` or `drop`")),
        },
    };
    setup.args.finish()?;
    let rules = Rules::new(&sets, open);
    let before = setup.before.cloned().and_then(|kept| kept.downcast::<SourceSets>().ok());
    let shared = match before {
        Some(shared) if shared.is_of(&sets) => shared,
        before => match SourceSets::new(&sets, before.as_deref(), setup.policy) {
            Ok(made) => Arc::new(made),
            Err(wrong) => {
                let reported = wrong.iter().map(|words| setup.args.refuse_all(words));
                return Err(reported.last().expect("something is wrong"));
            }
        },
    };
    setup.kept = Some(shared.clone());
    let exit = setup.exit(1, DropReason::SourceFilter);
    let made = handled(&shared, &rules, move |shared, rules, instance| SourceFilter {
        reader: shared.sets.reader(),
        judge: Judge::new(shared.hits(instance), rules, exit),
        v4: Lookups::new(),
        v6: Lookups::new(),
    });
    Ok(made)
}

fn read_count(shared: &SourceSets) -> String {
    let line = |set: usize| {
        let total = shared.total(set);
        format!("{} {} {}\n", shared.sets.names()[set], total.packets, total.bytes)
    };
    (0..shared.len()).map(line).collect()
}

fn read_stat(shared: &SourceSets, rules: &Rules) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for (set, name) in shared.sets.names().iter().enumerate() {
        let [v4, v6] = shared.sets.count(set);
        let action = rules.action(set);
        let _ = writeln!(text, "{name}: {action}, {v4} IPv4 and {v6} IPv6 prefixes");
    }
    for structure in shared.sets.structures() {
        let _ = writeln!(
            text,
            "IPv{}: {} distinct prefixes, {} bytes ({})",
            structure.family, structure.prefixes, structure.bytes, structure.algorithm
        );
    }
    text
}

/// `SET RATE`, of a set that limits.
fn write_limit(shared: &SourceSets, rules: &Rules, text: &str) -> Result<(), String> {
    let (name, rate) = text.trim().split_once(' ').ok_or("what is written is SET RATE")?;
    let set = shared.sets.names().iter().position(|known| **known == *name);
    let set = set.ok_or_else(|| format!("no set `{name}`"))?;
    let limit = rules.limit(set).ok_or_else(|| format!("`{name}` limits no rate"))?;
    limit.set(value(rate)?)
}

/// The element's handlers.
fn handled(
    shared: &Arc<SourceSets>,
    rules: &Rules,
    make: impl Fn(&SourceSets, &Rules, Instance) -> SourceFilter + Send + Sync + 'static,
) -> Made {
    let (each, judged) = (shared.clone(), rules.clone());
    let made = Made::new(move |instance| make(&each, &judged, instance));
    let of = || shared.clone();
    let (count, drops, stat, table, lookup) = (of(), of(), of(), of(), of());
    let (add, remove, ctrl, set, load) = (of(), of(), of(), of(), of());
    let (limit, shown, limits, judged) = (of(), rules.clone(), rules.clone(), rules.clone());
    made.handler(Handler::read("count", move || read_count(&count)))
        .handler(Handler::read("drops", move || drops.drops().to_string()))
        .handler(Handler::read("stat", move || read_stat(&stat, &shown)))
        .handler(Handler::write("limit", move |text| write_limit(&limit, &limits, text)))
        .handler(Handler::read_with("table", move |text| table.sets.read_table(text)))
        .handler(Handler::read_with("lookup", move |text| {
            let mask = lookup.sets.read_lookup(text)?;
            Ok(format!("{} {}", judged.verdict(mask).name(), lookup.sets.text(mask)))
        }))
        .handler(Handler::write_warned("add", move |text| add.sets.write_edit(true, text)))
        .handler(Handler::write_warned("remove", move |text| remove.sets.write_edit(false, text)))
        .handler(Handler::write_warned("ctrl", move |text| ctrl.sets.write_ctrl(text)))
        .handler(Handler::write("set", move |text| set.sets.write_set(text)))
        .handler(Handler::write_opening("load", move |text, policy| {
            load.sets.write_load(text, policy)
        }))
}

/// `NAME ACTION [PREFIX | FILE name] ..`.
fn read_set(arg: &Arg<'_>) -> Result<Argued, String> {
    let words: Result<Vec<String>, String> = arg.words().map(|word| word.value()).collect();
    let words = words?;
    let mut words = words.iter().map(String::as_str);
    let form = "a set is NAME pass|drop|count|mark COLOR|limit RATE [PREFIX | FILE name] ..";
    let (Some(name), Some(action)) = (words.next(), words.next()) else { return Err(form.into()) };
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)) {
        return Err(format!("`{name}` is no name of a set: letters, digits, `_`, `-` and `.`"));
    }
    let action = match action {
        "pass" => Action::Pass,
        "drop" => Action::Drop,
        "count" => Action::Count,
        "mark" => {
            let color = words.next().ok_or(form)?;
            let number = color.parse().map_err(|_| format!("`{color}` is no color: 0 to 255"))?;
            Action::Mark(number)
        }
        "limit" => {
            let rate = words.next().ok_or(form)?;
            Action::Limit(Rate::read(rate).map_err(|words| format!("`{rate}` is {words}"))?)
        }
        _ => return Err(format!("`{action}`: {form}")),
    };
    let mut given = Vec::new();
    while let Some(word) = words.next() {
        given.push(match word {
            "FILE" => Given::File(words.next().ok_or(form)?.to_owned()),
            word => Given::Prefix(read_prefix(word)?),
        });
    }
    Ok(Argued { name: name.into(), action, given })
}

struct SourceFilter {
    reader: SetsReader,
    judge: Judge,
    v4: Lookups<u32>,
    v6: Lookups<u128>,
}

impl Element for SourceFilter {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.gather(batch);
        let Self { reader, judge, v4, v6 } = self;
        if v4.len > 0 {
            reader.v4.lookup_batch(&v4.addrs[..v4.len], &mut v4.answers[..v4.len]);
            judge.all(v4, batch, |_, _| Mask::MAX);
        }
        if v6.len > 0 {
            reader.v6.lookup_batch(&v6.addrs[..v6.len], &mut v6.answers[..v6.len]);
            judge.all(v6, batch, |_, _| Mask::MAX);
        }
        judge.limit(batch, cx.now_ns);
    }
}

impl SourceFilter {
    /// Sorts the sources of a batch by family.
    fn gather(&mut self, batch: &mut Batch) {
        const FRONT4: usize = ETHER_BYTES + IP4_BYTES;
        const FRONT6: usize = ETHER_BYTES + IP6_BYTES;
        let Self { v4, v6, .. } = self;
        v4.clear();
        v6.clear();
        // Nearly always all packets are alike, as whoever looked at them before has sorted them.
        let alike = match batch.meta().first().and_then(|_| batch.bytes(0).get(ETHER_BYTES)) {
            Some(first) if first >> 4 == 4 => v4.fill::<FRONT4>(batch, 4),
            Some(first) if first >> 4 == 6 => v6.fill::<FRONT6>(batch, 6),
            _ => false,
        };
        if alike {
            return;
        }
        let len = batch.len();
        for i in 0..len {
            batch.prefetch(i + AHEAD);
            let at = usize::from(batch.meta()[i].network);
            let frame = batch.bytes(i);
            match frame.get(at).map_or(0, |first| first >> 4) {
                4 if let Some(src) = u32::src(frame, at) => v4.push(src, i),
                6 if let Some(src) = u128::src(frame, at) => v6.push(src, i),
                _ => {}
            }
        }
        if v4.len + v6.len < len && !self.judge.idle {
            self.others(batch);
        }
    }

    /// What is no IP packet has no source.
    #[cold]
    fn others(&mut self, batch: &mut Batch) {
        let mut pushed = [false; BATCH];
        let v4 = &self.v4.places[..self.v4.len];
        for &place in v4.iter().chain(&self.v6.places[..self.v6.len]) {
            pushed[usize::from(place)] = true;
        }
        for i in (0..batch.len()).filter(|&i| !pushed[i]) {
            self.judge.end(batch, i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::testing::{Bench, Rig, World, batch, element, frame_v4, frame_v6, refused, run};

    const BLOCK: Option<DropReason> = Some(DropReason::SourceFilter);

    /// For each source why it is dropped, if it is, and its color.
    fn judged(config: &str, sources: &[&str]) -> Vec<(Option<DropReason>, u8)> {
        let frame = |src: &&str| match src.contains(':') {
            true => frame_v6(src, "2001:db8::9", 64, 17, &[]),
            false => frame_v4(src, "192.0.2.1", 64, 17, &[]),
        };
        let frames: Vec<Vec<u8>> = sources.iter().map(frame).collect();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        // In tests all outputs are used.
        let batch = run(&CLASS, config, 14, &frames);
        let of = |i| match batch.decision(i) {
            Decision::Output(0) => (None, batch.meta()[i].paint),
            Decision::Output(1) => (BLOCK, batch.meta()[i].paint),
            other => panic!("{other:?}"),
        };
        (0..batch.len()).map(of).collect()
    }

    #[test]
    fn what_lets_pass_comes_before_what_drops_and_both_before_the_default() {
        let sets = "bad drop 10.0.0.0/8 2001:db8::/32, good pass 10.1.0.0/16, seen count 0.0.0.0/0,
            one mark 3 10.0.0.0/9, two mark 4 10.0.0.0/8 192.0.2.0/24";
        let sources =
            ["10.9.0.1", "10.1.2.3", "10.200.0.1", "192.0.2.7", "8.8.8.8", "2001:db8::1", "::2"];
        let (pass, drop) = (None, BLOCK);
        let colors = [3, 3, 4, 4, 0, 0, 0];
        let open = [drop, pass, drop, pass, pass, drop, pass];
        let shut = [drop, pass, drop, drop, drop, drop, drop];
        for (config, want) in [
            (sets.to_owned(), open),
            (format!("{sets}, DEFAULT pass"), open),
            (format!("{sets}, DEFAULT drop"), shut),
        ] {
            let got = judged(&config, &sources);
            assert_eq!(got, want.into_iter().zip(colors).collect::<Vec<_>>(), "{config}");
        }
        assert_eq!(judged("", &["10.0.0.1"]), [(pass, 0)], "no sets at all");
        assert_eq!(judged("DEFAULT drop", &["10.0.0.1"]), [(drop, 0)]);
    }

    #[test]
    fn a_packet_has_the_same_verdict_whatever_is_beside_it() {
        let sets =
            "bad drop 10.0.0.0/8 2001:db8::/32, one mark 3 10.0.0.0/9 192.0.2.0/24, DEFAULT pass";
        let sources = ["10.9.0.1", "8.8.8.8", "192.0.2.7", "10.200.0.1", "2001:db8::1", "::2"];
        let alone: Vec<_> = sources.iter().flat_map(|source| judged(sets, &[source])).collect();
        assert_eq!(alone, [(BLOCK, 3), (None, 0), (None, 3), (BLOCK, 0), (BLOCK, 0), (None, 0)]);
        for (from, to) in (0..6).flat_map(|from| (from + 1..=6).map(move |to| (from, to))) {
            assert_eq!(judged(sets, &sources[from..to]), alone[from..to], "{from} to {to}");
        }
        // The last one's headers are not where those of the others are.
        let front = |tag: &[u8]| [&[0; 14], tag, &from("10.9.0.1")].concat();
        let bench = &mut Bench::new(&World::new());
        let frames = [front(&[]), front(&[]), front(&[0; 4])];
        let mut batch = batch(&bench.pool, 0, frames.iter().map(Vec::as_slice));
        batch.meta_mut().iter_mut().zip([14, 14, 18]).for_each(|(meta, at)| meta.network = at);
        element(&CLASS, sets).process(0, &mut batch, &mut bench.context());
        assert!((0..3).all(|i| batch.decision(i) == Decision::Output(1)));
    }

    #[test]
    fn what_is_no_packet_of_ip_is_the_defaults() {
        let short = &frame_v4("10.0.0.1", "10.0.0.2", 1, 1, &[])[..24];
        let frames = [&[0; 60][..], short, &[]];
        for (config, output) in [("a drop 0.0.0.0/0 ::/0", 0), ("DEFAULT drop", 1)] {
            let batch = run(&CLASS, config, 14, &frames);
            assert!((0..3).all(|i| batch.decision(i) == Decision::Output(output)), "{config}");
        }
    }

    const GRAPH: &str = "FromDevice(a) -> f :: SourceFilter(good pass 10.1.0.0/16, bad drop 10.0.0.0/8) -> ToDevice(b)";

    fn from(src: &str) -> Vec<u8> {
        let mut frame = frame_v4(src, "192.0.2.1", 64, 17, &[7; 8]);
        frame.drain(..14);
        frame
    }

    #[test]
    fn sets_change_between_packets_and_count_what_they_hit() {
        let mut rig = Rig::new(&World::new(), GRAPH);
        let sent = |rig: &mut Rig, src: &str| rig.receive("a", &[&from(src)]).len();
        assert_eq!(["10.0.0.1", "10.1.0.1", "11.0.0.1"].map(|src| sent(&mut rig, src)), [0, 1, 1]);
        assert_eq!(rig.read("f.count"), "good 1 28\nbad 2 56\n");
        rig.write("f.add", "bad 11.0.0.0/8");
        rig.write("f.ctrl", "remove good 10.1.0.0/16\nadd good 10.0.0.1");
        assert_eq!(["10.0.0.1", "10.1.0.1", "11.0.0.1"].map(|src| sent(&mut rig, src)), [1, 0, 0]);
        rig.write("f.set", "bad 1.0.0.0/8");
        assert_eq!(["10.1.0.1", "1.1.1.1"].map(|src| sent(&mut rig, src)), [1, 0]);
        assert_eq!((rig.read("f.drops"), rig.dropped(DropReason::SourceFilter)), ("4".into(), 4));
        assert_eq!(rig.read("f.table"), "good\t10.0.0.1/32\nbad\t1.0.0.0/8\n");
        assert!(
            rig.read("f.stat").starts_with("good: pass, 1 IPv4 and 0 IPv6 prefixes\nbad: drop")
        );
    }

    #[test]
    fn a_later_configuration_goes_on_with_what_is_given_as_before() {
        let mut rig = Rig::new(&World::new(), GRAPH);
        rig.receive("a", &[&from("10.0.0.1")]);
        rig.write("f.add", "bad 11.0.0.0/8");
        rig.replace(GRAPH).unwrap();
        assert_eq!(rig.read("f.count"), "good 0 0\nbad 1 28\n");
        assert!(rig.receive("a", &[&from("11.0.0.1")]).is_empty());
        // Another set before it, another action, other prefixes of the first.
        let other = "FromDevice(a) -> f :: SourceFilter(new count 11.0.0.0/8, bad count 10.0.0.0/8, good drop 8.0.0.0/8)
            -> ToDevice(b)";
        rig.replace(other).unwrap();
        assert_eq!(
            rig.read("f.table"),
            "new\t11.0.0.0/8\nbad\t10.0.0.0/8\nbad\t11.0.0.0/8\ngood\t8.0.0.0/8\n"
        );
        assert_eq!(rig.receive("a", &[&from("11.0.0.1"), &from("8.0.0.1")]).len(), 1);
        assert_eq!(rig.read("f.count"), "new 1 28\nbad 3 84\ngood 1 28\n");
        // One that is refused takes nothing along.
        assert!(
            rig.replace(
                "FromDevice(a) -> f :: SourceFilter(bad drop FILE /nowhere) -> ToDevice(b)"
            )
            .is_err()
        );
        assert_eq!(rig.read("f.count"), "new 1 28\nbad 3 84\ngood 1 28\n");
    }

    #[test]
    fn files_are_read_and_loaded_whole() {
        let path = std::env::temp_dir().join(format!("fingerpost-filter-{}", std::process::id()));
        let name = path.display().to_string();
        std::fs::write(&path, "# bad\n10.0.0.0/8\n2001:db8::/32\n").unwrap();
        let mut rig = Rig::new(
            &World::new(),
            &format!(
                "FromDevice(a) -> f :: SourceFilter(bad drop 9.9.9.9 FILE {name}) -> ToDevice(b)"
            ),
        );
        assert_eq!(rig.read("f.table"), "bad\t9.9.9.9/32\nbad\t10.0.0.0/8\nbad\t2001:db8::/32\n");
        std::fs::write(&path, "11.0.0.0/8\nnonsense\n").unwrap();
        let reported =
            rig.handlers.write("f.load", &format!("bad {name}")).unwrap_err().to_string();
        assert!(
            reported.contains(&format!("{name}:2: `nonsense` is no IPv4 prefix")),
            "{reported}"
        );
        assert!(rig.receive("a", &[&from("10.0.0.1")]).is_empty(), "it stays as it is");
        std::fs::write(&path, "11.0.0.0/8\n").unwrap();
        rig.write("f.load", &format!("bad {name}"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(rig.read("f.table"), "bad\t11.0.0.0/8\n");
        assert_eq!(rig.receive("a", &[&from("10.0.0.1"), &from("11.0.0.1")]).len(), 1);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (config, want) in [
            ("a drop 10.0.0.0/33", "`10.0.0.0/33` is no IPv4 prefix"),
            ("a drop FILE /nowhere", "/nowhere: "),
            ("a drop FILE", "a set is NAME"),
            ("a", "a set is NAME"),
            ("a burn 10.0.0.0/8", "`burn`: a set is NAME"),
            ("a mark x 10.0.0.0/8", "`x` is no color"),
            ("a/b drop", "`a/b` is no name of a set"),
            ("a drop, a pass", "there are two sets `a`"),
            ("DEFAULT maybe", "DEFAULT is `pass` or `drop`"),
            ("DEFAUL drop", "unknown keyword"),
        ] {
            let reported = refused(&CLASS, config);
            assert!(reported.contains(want), "{config}: {reported}");
        }
        let many: Vec<String> = (0..=MOST_SETS).map(|set| format!("s{set} count")).collect();
        assert!(refused(&CLASS, &many.join(", ")).contains("limit exceeded: 15 sets"));
    }

    #[test]
    fn the_rate_of_listed_sources_is_limited() {
        let text = "FromDevice(a) -> s :: SourceFilter(far limit 1000 10.0.0.0/8 2001:db8::/32,
            big limit 800kbps 10.1.0.0/16, own pass 10.9.0.0/16, bad drop 10.8.0.0/16, DEFAULT drop) -> ToDevice(b)";
        // Without Ethernet headers, as behind a check of IP headers.
        let mut rig =
            Rig::new(&World::new(), &text.replace("FromDevice(a)", "FromDevice(a) -> Strip(14)"));
        let frames = |src: &str| {
            let frame = match src.contains(':') {
                true => frame_v6(src, "2001:db8::9", 64, 17, &[0; 60]),
                false => frame_v4(src, "192.0.2.1", 64, 17, &[0; 80]),
            };
            vec![frame; 30]
        };
        let passed = |rig: &mut Rig, sources: &[&str]| {
            rig.bench.now_ns += 1_000_000_000;
            let each: Vec<_> = sources.iter().map(|src| frames(src)).collect();
            // By turns.
            let frames: Vec<_> =
                (0..30).flat_map(|n| each.iter().map(move |of| &of[n][..])).collect();
            rig.receive("a", &frames).len()
        };
        // A burst of 20 ms, in packets; of 2,000 bytes, and the packet with which they are used up.
        assert_eq!(passed(&mut rig, &["10.0.0.1"]), 20);
        assert_eq!(passed(&mut rig, &["10.0.0.1", "2001:db8::1"]), 20, "both families together");
        assert_eq!(passed(&mut rig, &["10.1.0.1"]), 20, "both sets have room for these");
        assert_eq!((passed(&mut rig, &["10.9.0.1"]), passed(&mut rig, &["10.8.0.1"])), (30, 0));
        assert_eq!(passed(&mut rig, &["192.0.2.1"]), 0);
        rig.write("s.limit", "far 10000");
        assert_eq!((passed(&mut rig, &["10.0.0.1"]), passed(&mut rig, &["10.1.0.1"])), (30, 21));
        assert_eq!(rig.handlers.read("s.lookup", "10.1.0.1").unwrap(), "limit far,big");
        assert!(
            rig.read("s.stat").starts_with(
                "far: limit 10000pps, 1 IPv4 and 1 IPv6 prefixes\nbig: limit 800kbps,"
            )
        );
        assert_eq!(rig.read("s.drops"), rig.dropped(DropReason::SourceFilter).to_string());
        for (text, words) in [
            ("far 8Mbps", "packets are counted here"),
            ("big 5", "bytes are counted here"),
            ("own 5", "`own` limits no rate"),
            ("none 5", "no set `none`"),
            ("far", "SET RATE"),
            ("far x", "`x` is no rate"),
        ] {
            let reported = rig.handlers.write("s.limit", text).unwrap_err().to_string();
            assert!(reported.contains(words), "{text}: {reported}");
        }
        assert!(refused(&CLASS, "x limit fast 10/8").contains("`fast` is no rate"));
    }
}
