//! `RoundRobinIPMapper(PATTERN, ...)` gives new flows of rewriters its patterns in turn; `SourceIPHashMapper(NODES SEED,
//! PATTERN SERVER, ...)` gives all flows from one source address the same pattern.
//!
//! Source: Click's elements of these names; Karger et al., Consistent Hashing and Random Trees, STOC 1997. Each server is at
//! NODES places of a ring of hashes, and a source has the pattern whose place is the next one behind its hash, so that
//! without one server only its sources move. A flow that finds no port by a pattern gets the next one. Differs: the
//! hash is ours, so that which server a source has differs from Click's.
//! Cost: a new flow is a search in the ring; patterns stand behind the inputs of the rewriter, as if each were one.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fingerpost_lpm::Rng;

use super::{Input, Kind, Spec, input};
use crate::graph::{ElementClass, Made, Passing, Setup};
use crate::language::{Args, ClassSpec, Problems, Value};

pub(crate) const IN_TURN: ElementClass = ElementClass {
    spec: ClassSpec::new(IN_TURN_NAME, "0/0", "a/a", "x/y"),
    summary: "gives new flows of rewriters its patterns in turn",
    configure: |setup| {
        // The rewriters that name it read them.
        let patterns = std::iter::from_fn(|| setup.args.next_of_any()).count();
        if patterns == 0 {
            return Err(setup.args.refuse_all("it has no patterns"));
        }
        setup.args.finish()?;
        Ok(Made::new(|_| Passing))
    },
};

pub(crate) const BY_SOURCE: ElementClass = ElementClass {
    spec: ClassSpec::new(BY_SOURCE_NAME, "0/0", "a/a", "x/y"),
    summary: "gives new flows of rewriters its patterns by a hash of their source",
    configure: |setup| {
        if let Err(words) = Ring::read(&mut setup.args) {
            return Err(setup.args.refuse_all(&words));
        }
        let patterns = std::iter::from_fn(|| setup.args.next_of_any()).count();
        if patterns == 0 {
            return Err(setup.args.refuse_all("it has no patterns"));
        }
        setup.args.finish()?;
        Ok(Made::new(|_| Passing))
    },
};

const IN_TURN_NAME: &str = "RoundRobinIPMapper";
const BY_SOURCE_NAME: &str = "SourceIPHashMapper";

/// Places of a server at most.
const MOST_NODES: u32 = 1024;

/// Patterns of a mapper, which stand behind the inputs of the rewriter.
#[derive(Debug)]
pub(super) struct Mapper {
    /// The first of them, and how many there are.
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) order: Order,
}

/// Which pattern a new flow gets.
#[derive(Debug)]
pub(super) enum Order {
    /// The next one.
    Turn(AtomicUsize),
    /// That of its source: hashes and patterns, by hash.
    Ring(Vec<(u64, usize)>),
}

impl Mapper {
    /// Inputs that stand for the patterns of a flow from this source, the first one first.
    pub(super) fn order(&self, src: u32) -> impl Iterator<Item = u16> {
        let begin = match &self.order {
            // Relaxed: each worker gets some pattern, and the next one another.
            Order::Turn(next) => next.fetch_add(1, Relaxed),
            Order::Ring(ring) => {
                let at = ring.partition_point(|(hash, _)| *hash < mixed(src.into()));
                ring.get(at).or(ring.first()).map_or(0, |(_, pattern)| *pattern)
            }
        };
        (0..self.count).map(move |n| {
            let input = self.first + begin.wrapping_add(n) % self.count;
            u16::try_from(input).expect("there are MOST_INPUTS at most")
        })
    }
}

/// A number whose bits all depend on those of `number`.
fn mixed(number: u64) -> u64 {
    Rng::new(number).word()
}

/// The first argument of a mapper by source.
struct Ring {
    nodes: u32,
    seed: u32,
}

impl Ring {
    fn read(args: &mut Args<'_>) -> Result<Self, String> {
        let words = "expected NODES SEED before the patterns";
        let arg = args.next_of_any().ok_or(words)?;
        let numbers: Vec<_> = arg.words().map(|word| word.value::<u32>()).collect();
        let [Ok(nodes), Ok(seed)] = numbers[..] else { return Err(words.into()) };
        match (1..=MOST_NODES).contains(&nodes) {
            true => Ok(Self { nodes, seed }),
            false => Err(format!("NODES: 1 to {MOST_NODES} are possible")),
        }
    }

    /// The places of servers on the ring.
    fn of(&self, servers: &[u32]) -> Vec<(u64, usize)> {
        let places = |(pattern, server): (usize, &u32)| {
            let base = mixed(u64::from(self.seed) << 32 | u64::from(*server));
            (0..self.nodes).map(move |node| (mixed(base ^ mixed(node.into())), pattern))
        };
        let mut ring: Vec<_> = servers.iter().enumerate().flat_map(places).collect();
        ring.sort_unstable();
        ring
    }
}

type Patterns = (Vec<Spec>, Order);

/// The patterns of a mapper and their order, where the words are the name of one.
pub(super) fn read(
    setup: &Setup<'_>,
    words: &[String],
    kind: Kind,
) -> Option<Result<Patterns, String>> {
    let [name] = words else { return None };
    let (number, class) = setup.element(name)?;
    if ![IN_TURN_NAME, BY_SOURCE_NAME].contains(&class) {
        return None;
    }
    let named = |words: String| format!("{class} {name}: {words}");
    patterns(setup, number, class, kind).map(|read| read.map_err(named))
}

fn patterns(
    setup: &Setup<'_>,
    number: usize,
    class: &str,
    kind: Kind,
) -> Option<Result<Patterns, String>> {
    let configuration = setup.around.configuration?;
    let mut problems = Problems::default();
    let mut args = configuration.args(number, &mut problems);
    let by_source = class == BY_SOURCE_NAME;
    // What is wrong with its first argument the mapper refuses.
    let ring = if by_source { Some(Ring::read(&mut args).ok()?) } else { None };
    let (mut patterns, mut servers) = (Vec::new(), Vec::new());
    while let Some(arg) = args.next_of_any() {
        let mut words: Vec<String> = arg.words().map(|word| word.raw().to_owned()).collect();
        if by_source {
            match words.pop().and_then(|word| u32::read(&word).ok()) {
                Some(server) => servers.push(server),
                None => return Some(Err("no number of a server".into())),
            }
        }
        if !matches!(words.first().map(String::as_str), None | Some("pattern" | "keep")) {
            words.insert(0, "pattern".to_owned());
        }
        match input(setup, &words, kind) {
            Ok(spec @ (Input::Pattern(_) | Input::Keep, _)) => patterns.push(spec),
            Ok(_) => return Some(Err("no pattern".into())),
            Err(words) => return Some(Err(words)),
        }
    }
    let order = match ring {
        Some(ring) => Order::Ring(ring.of(&servers)),
        None => Order::Turn(AtomicUsize::new(0)),
    };
    // One without any is refused by itself.
    (!patterns.is_empty()).then_some(Ok((patterns, order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapper(servers: &[u32]) -> Mapper {
        let order = Order::Ring(Ring { nodes: 64, seed: 7 }.of(servers));
        Mapper { first: 3, count: servers.len(), order }
    }

    #[test]
    fn only_sources_of_a_server_that_is_gone_move() {
        let (all, fewer) = (mapper(&[10, 20, 30, 40]), mapper(&[10, 20, 40]));
        let mut counts = [0; 4];
        for src in 0..10_000_u32 {
            let before = all.order(src).next().unwrap() - 3;
            assert_eq!(all.order(src).next(), Some(before + 3), "always the same");
            counts[usize::from(before)] += 1;
            let after = fewer.order(src).next().unwrap() - 3;
            match before {
                2 => {}
                3 => assert_eq!(after, 2),
                _ => assert_eq!(after, before),
            }
        }
        assert!(counts.iter().all(|count| (1500..4000).contains(count)), "{counts:?}");
        let inputs: Vec<_> = all.order(5).collect();
        assert!((3..7).all(|input| inputs.contains(&input)), "{inputs:?}");
    }
}
