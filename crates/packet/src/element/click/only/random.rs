//! Packets by chance: `RandomSample(P)` passes a part of them, `RandomSwitch` sends each to any output,
//! `RandomBitErrors(P)` damages them.
//!
//! `RandomSeed(SEED)` restarts every random generator of the configuration from a seed; so does a write to its handler `seed`.
//! Without a number it takes one that nobody foresees.
//!
//! Source: Click's elements of these names. The numbers are the same in each run (xorshift64), where the configuration has no `RandomSeed`.
//! `random` of a `Script` follows a seed as well, where one thread runs it all (`fingerpost click`).

use super::each::sorting;
use crate::element::support::setting::{Setting, Word, value};
use crate::element::support::time;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, Made, Passing, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, Value};
use std::fmt;
use std::sync::Arc;

/// Seed of all generators of a configuration.
struct Seed {
    value: Setting<u32>,
    /// How often it was set.
    count: Setting<u32>,
}

impl Default for Seed {
    fn default() -> Self {
        Self { value: Setting::new(0), count: Setting::new(0) }
    }
}

impl Seed {
    fn of(setup: &mut Setup<'_>) -> Arc<Self> {
        // No element has this number.
        setup.shared::<Self>(usize::MAX)
    }

    fn set(&self, seed: u32) {
        self.value.set(seed);
        self.count.change(|count| count.wrapping_add(1));
    }
}

/// Generator of numbers.
#[derive(Clone)]
pub(crate) struct Random {
    state: u64,
    seed: Arc<Seed>,
    /// How often the seed had been set when the state began.
    begun: u32,
}

/// State of a generator that has no seed.
const FIRST_STATE: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// A generator that follows the seed of the configuration.
    pub(crate) fn of(setup: &mut Setup<'_>) -> Self {
        Self { state: FIRST_STATE, seed: Seed::of(setup), begun: 0 }
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> u64 {
        let count = self.seed.count.get();
        if count != self.begun {
            self.begun = count;
            let seed = u64::from(self.seed.value.get());
            // A state of zeros would stay one.
            self.state = FIRST_STATE ^ seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// The next number from 0 on, below 1.
    #[allow(clippy::cast_precision_loss, reason = "53 bits are those of the number")]
    pub(crate) fn real(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A probability, from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Chance(pub(crate) f64);

impl Value for Chance {
    fn read(text: &str) -> Result<Self, String> {
        let chance = f64::read(text)?;
        let possible = (0.0..=1.0).contains(&chance);
        possible.then_some(Self(chance)).ok_or_else(|| "no probability: 0 to 1 are possible".into())
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Word for Chance {
    fn to_word(self) -> u64 {
        self.0.to_bits()
    }
    fn of_word(word: u64) -> Self {
        Self(f64::from_bits(word))
    }
}

/// A part of the packets of a file, chosen at random.
#[derive(Clone)]
pub(crate) struct Sampling {
    part: Chance,
    random: Random,
}

impl Sampling {
    /// This part, or all of them.
    pub(crate) fn new(setup: &mut Setup<'_>, part: Option<Chance>) -> Self {
        Self { part: part.unwrap_or(Chance(1.0)), random: Random::of(setup) }
    }

    /// Whether the next packet is one of them.
    pub(crate) fn takes(&mut self) -> bool {
        self.part.0 >= 1.0 || self.random.real() < self.part.0
    }

    /// Adds the handler that shows the part.
    pub(crate) fn handled(&self, made: Made) -> Made {
        let part = self.part;
        made.handler(Handler::read("sampling_prob", move || part.to_string()))
    }
}

pub(crate) const SEED: ElementClass = ElementClass {
    spec: ClassSpec::new("RandomSeed", "0/0", "a/a", "x/y"),
    summary: "has all random numbers of a configuration begin from a seed",
    configure: |setup| {
        let given = setup.args.optional::<u32>("SEED");
        setup.args.finish()?;
        let (first, seed) = (given?.unwrap_or_else(unforeseen), Seed::of(setup));
        seed.set(first);
        let shown = seed.value.clone();
        let made = Made::new(move |instance| {
            // A configuration that is only checked leaves the numbers of this thread as they are.
            if !instance.is_dry_run() {
                time::seed(first.into());
            }
            Passing
        });
        let made = made.handler(Handler::read("seed", move || shown.get().to_string()));
        Ok(made.handler(Handler::write("seed", move |text| {
            let next = if text.trim().is_empty() { unforeseen() } else { value(text)? };
            seed.set(next);
            time::seed(next.into());
            Ok(())
        })))
    },
};

/// A seed where none is given.
#[allow(clippy::cast_possible_truncation, reason = "half of the bits are as random as all")]
fn unforeseen() -> u32 {
    time::secret_word() as u32
}

pub(crate) const SAMPLE: ElementClass = sorting(
    "RandomSample",
    &["sampled", "others"],
    "passes a part of packets at random",
    |setup| {
        let chance = setup.args.optional::<Chance>("P");
        let sample = setup.args.keyword::<Chance>("SAMPLE");
        let drop = setup.args.keyword::<Chance>("DROP");
        let active = setup.args.keyword("ACTIVE");
        setup.args.finish()?;
        let chance = match (chance?.or(sample?), drop?) {
            (Some(chance), None) => chance,
            (None, Some(Chance(drop))) => Chance(1.0 - drop),
            _ => return Err(setup.args.refuse_all("give one of P, SAMPLE and DROP")),
        };
        let chance = Setting::new(chance);
        let active = Setting::new(active?.unwrap_or(true));
        let exit = setup.exit(1, DropReason::Discarded);
        let drops = setup.keep::<PerWorker<Count>>();
        let random = Random::of(setup);
        let made = Made::new({
            let (chance, active, drops) = (chance.clone(), active.clone(), drops.clone());
            move |instance| Sample {
                chance: chance.clone(),
                active: active.clone(),
                exit,
                random: random.clone(),
                drops: drops.add(instance),
            }
        });
        let (shown, set) = (chance.clone(), chance.clone());
        let made = made
            .counter("drops", &drops)
            .handler(Handler::read("drop_prob", move || (1.0 - shown.get().0).to_string()))
            .handler(Handler::write("drop_prob", move |text| {
                set.set(Chance(1.0 - value::<Chance>(text)?.0));
                Ok(())
            }));
        Ok(active.handled(chance.handled(made, "sampling_prob"), "active"))
    },
);

struct Sample {
    chance: Setting<Chance>,
    active: Setting<bool>,
    exit: Exit,
    random: Random,
    drops: Arc<Count>,
}

impl Element for Sample {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if !self.active.get() {
            return;
        }
        let Chance(chance) = self.chance.get();
        for i in 0..batch.len() {
            if self.random.real() >= chance {
                self.drops.add(1);
                self.exit.take(batch, i);
            }
        }
    }
}

pub(crate) const SWITCH: ElementClass = ElementClass {
    spec: ClassSpec::new("RandomSwitch", "1/1-", "h/h", "x/x"),
    summary: "sends each packet to any of its outputs",
    configure: |setup| {
        setup.args.finish()?;
        let outputs = u64::from(setup.outputs.max(1));
        let random = Random::of(setup);
        Ok(Made::new(move |_| Switch { outputs, random: random.clone() }))
    },
};

struct Switch {
    outputs: u64,
    random: Random,
}

impl Element for Switch {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let output = (self.random.number() >> 20) % self.outputs;
            batch.output(i, u16::try_from(output).unwrap_or(0));
        }
    }
}

pub(crate) const BIT_ERRORS: ElementClass = ElementClass {
    spec: ClassSpec::new("RandomBitErrors", "1/1", "a/a", "x/x"),
    summary: "changes bits of packets at random",
    configure: |setup| {
        let chance = setup.args.positional::<Chance>("P");
        let kind = setup.args.optional::<String>("KIND");
        let active = setup.args.optional("ACTIVE");
        setup.args.finish()?;
        let kind = match kind?.as_deref().map(Damage::read) {
            None => Damage::Flip,
            Some(Ok(kind)) => kind,
            Some(Err(words)) => return Err(setup.args.refuse_all(&format!("KIND: {words}"))),
        };
        let kind = Setting::new(kind);
        let chance = Setting::new(chance?);
        let active = Setting::new(active?.unwrap_or(true));
        let random = Random::of(setup);
        let made = Made::new({
            let (chance, active, kind) = (chance.clone(), active.clone(), kind.clone());
            move |_| BitErrors {
                chance: chance.clone(),
                kind: kind.clone(),
                active: active.clone(),
                random: random.clone(),
            }
        });
        let made = kind.handled(made, "error_kind");
        Ok(active.handled(chance.handled(made, "p_bit_error"), "active"))
    },
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    Flip,
    Set,
    Clear,
}

const DAMAGES: [(Damage, &str); 3] =
    [(Damage::Flip, "flip"), (Damage::Set, "set"), (Damage::Clear, "clear")];

impl Value for Damage {
    fn read(text: &str) -> Result<Self, String> {
        let found = DAMAGES.iter().find(|(_, name)| *name == text.trim());
        found.map(|(kind, _)| *kind).ok_or_else(|| "flip, set or clear are possible".to_owned())
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = DAMAGES.iter().find(|(kind, _)| kind == self);
        f.write_str(found.map_or("flip", |(_, name)| name))
    }
}

impl Word for Damage {
    fn to_word(self) -> u64 {
        self as u64
    }
    fn of_word(word: u64) -> Self {
        usize::try_from(word)
            .ok()
            .and_then(|at| DAMAGES.get(at))
            .map_or(Self::Flip, |(kind, _)| *kind)
    }
}

struct BitErrors {
    chance: Setting<Chance>,
    kind: Setting<Damage>,
    active: Setting<bool>,
    random: Random,
}

impl Element for BitErrors {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let Chance(chance) = self.chance.get();
        if !self.active.get() || chance <= 0.0 {
            return;
        }
        let kind = self.kind.get();
        for i in 0..batch.len() {
            for byte in batch.bytes_mut(i) {
                for bit in 0..8 {
                    if self.random.real() < chance {
                        match kind {
                            Damage::Flip => *byte ^= 1 << bit,
                            Damage::Set => *byte |= 1 << bit,
                            Damage::Clear => *byte &= !(1 << bit),
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused, run};

    #[test]
    fn a_part_of_the_packets_passes() {
        let text = "FromDevice(a) -> s :: RandomSample(.25) -> ToDevice(x); s [1] -> r :: RandomSwitch -> ToDevice(y); r [1] -> ToDevice(z)";
        let mut rig = Rig::new(&World::new(), text);
        let sent: Vec<_> = (0..10).flat_map(|_| rig.receive("a", &[&[7][..]; 100])).collect();
        let count = |device: &str| sent.iter().filter(|(to, _)| to == device).count();
        assert!(
            (200..300).contains(&count("x")) && (320..430).contains(&count("y")),
            "{}",
            count("x")
        );
        assert_eq!(count("x") + count("y") + count("z"), 1000);
        rig.write("s.drop_prob", "0");
        assert_eq!(
            rig.receive("a", &[&[7][..]; 100]).iter().filter(|(to, _)| to == "x").count(),
            100
        );
        assert!(
            refused(&SAMPLE, "").contains("give one of")
                && refused(&SAMPLE, "2").contains("0 to 1")
        );
    }

    #[test]
    fn numbers_repeat_from_a_seed() {
        let text = "FromDevice(a) -> r :: RandomSwitch -> ToDevice(x); r [1] -> ToDevice(y); s :: RandomSeed(7);
            t :: Script(TYPE PASSIVE, return $(random 1000000))";
        let goes = |rig: &mut Rig| -> String {
            let sent: Vec<_> = (0..40).flat_map(|_| rig.receive("a", &[&[7]])).collect();
            sent.into_iter().map(|(to, _)| to).chain([rig.read("t.run")]).collect()
        };
        let mut rig = Rig::new(&World::new(), text);
        let (first, second) = (goes(&mut rig), goes(&mut rig));
        assert_eq!((first != second, rig.read("s.seed")), (true, "7".into()));
        rig.write("s.seed", "7");
        assert_eq!(goes(&mut rig), first);
        rig.write("s.seed", "8");
        assert_ne!(goes(&mut rig), first);
        rig.write("s.seed", "");
        let drawn = rig.read("s.seed");
        rig.write("s.seed", "");
        assert_ne!(rig.read("s.seed"), drawn, "one in 2^32");
    }

    #[test]
    fn bits_change() {
        let ones = run(&BIT_ERRORS, "0.5, set", 0, &[&[0; 1000]])
            .bytes(0)
            .iter()
            .map(|b| b.count_ones())
            .sum::<u32>();
        assert!((3800..4200).contains(&ones), "{ones}");
        assert_eq!(run(&BIT_ERRORS, "1", 0, &[&[0x0f]]).bytes(0), [0xf0]);
        assert_eq!(run(&BIT_ERRORS, "1, clear", 0, &[&[0x0f]]).bytes(0), [0]);
        assert!(refused(&BIT_ERRORS, "1, x").contains("flip, set or clear"));
    }
}
