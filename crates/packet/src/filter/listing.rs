//! Rules as Click's classifiers list them, for their handler `program`: steps that compare a word of four bytes.
//!
//! Source: the classification programs of Click (Kohler, thesis, 2000, chapter 5) and the format of its handler. Packets are
//! sorted by `program.rs`; a listing is made when it is read. A branch is moved behind all tests whose result is known on
//! each path to it; tests of one word that fail to one place become one.
//! Cost: grows with the square of the number of tests.

use super::field::{Field, Layer};
use super::program::{Expr, Rule, Test};
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol;

/// Where the IP header begins in the numbers of bytes.
const NETWORK: u16 = 256;
/// Where the transport header begins.
const TRANSPORT: u16 = 512;
/// Words that are compared first: protocol, fragment offset.
const FIRST: [u16; 2] = [NETWORK + 8, NETWORK + 4];
/// Paths to a step that are followed each by itself: of more only what they share.
const PATHS: usize = 4;
/// Steps of a listing at most.
const MOST: usize = 2048;

/// What follows a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Step(usize),
    Output(u16),
    /// The part of the rule holds.
    Holds,
    /// It does not.
    Fails,
    /// No packet comes here.
    Never,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    at: u16,
    mask: u32,
    value: u32,
    /// What follows where the packet is too short is `next[short]`.
    short: bool,
    /// Where the word differs, and where it is equal.
    next: [Next; 2],
}

impl Step {
    /// Bytes that a packet must have.
    fn needs(&self) -> u16 {
        let unread = u16::try_from(self.mask.trailing_zeros().min(32) / 8).unwrap_or(0);
        self.at + 4 - unread
    }

    fn differs_from(&self, other: &Self) -> bool {
        self.at == other.at && (self.value ^ other.value) & self.mask & other.mask != 0
    }

    fn one_bit(&self) -> bool {
        self.mask.is_power_of_two()
    }

    fn flip(&mut self) {
        self.value ^= self.mask;
        self.short = !self.short;
        self.next.swap(0, 1);
    }

    /// Result of another step, as far as it follows from this one's.
    fn implies(&self, equal: bool, other: &Self) -> Option<bool> {
        if other.mask == 0 || self.mask == 0 || self.at != other.at {
            return None;
        }
        let within = |one: &Self, all: &Self| {
            one.mask & !all.mask == 0 && (one.value ^ all.value) & one.mask == 0
        };
        match equal {
            true if self.differs_from(other) => Some(false),
            true if within(other, self) && (!self.short || other.short) => Some(true),
            false if within(self, other) => Some(false),
            false if self.one_bit() && self.mask == other.mask => Some(true),
            _ => None,
        }
    }

    /// Whether both comparisons can be one.
    fn joins(&self, other: &Self) -> bool {
        let long_enough = self.short == other.short || other.needs() <= self.needs();
        self.at == other.at && long_enough && !self.differs_from(other)
    }
}

/// Listing of rules over frames.
pub(super) fn of_frames(rules: &[Rule<u16>], outputs: u16) -> String {
    listing(rules, outputs, &[], &mut |steps, expr| {
        steps.add(expr, &|steps, test: &Test<u16>| {
            steps.compare(test.load, test.mask, test.low);
        });
    })
}

/// Listing of rules over IP packets.
pub(super) fn of_packets(rules: &[Rule<Field>], outputs: u16) -> String {
    listing(rules, outputs, &FIRST, &mut |steps, expr| steps.packet(expr, false))
}

fn listing<L>(
    rules: &[Rule<L>],
    outputs: u16,
    first: &[u16],
    add: &mut dyn FnMut(&mut Steps, &Expr<L>),
) -> String {
    let mut steps = Steps(Vec::new());
    for (n, rule) in rules.iter().enumerate() {
        let start = steps.0.len();
        add(&mut steps, &rule.expr);
        if steps.0.len() > MOST {
            return format!("more than {MOST} steps\n");
        }
        let last = n + 1 == rules.len();
        let fails = if last { Next::Output(outputs) } else { Next::Step(steps.0.len()) };
        steps.redirect(start, Next::Output(rule.answer.min(outputs)), fails);
    }
    steps.sort(first);
    Paths::default().shorten(&mut steps.0);
    steps.join();
    let all = steps.purge().unwrap_or(Next::Output(outputs));
    steps.text(all)
}

struct Steps(Vec<Step>);

impl Steps {
    fn compare(&mut self, at: u16, mask: u32, value: u32) {
        let next = [Next::Fails, Next::Holds];
        self.0.push(Step { at, mask, value: value & mask, short: false, next });
    }

    /// Replaces the ends of steps from `start` on.
    fn redirect(&mut self, start: usize, holds: Next, fails: Next) {
        for next in self.0[start..].iter_mut().flat_map(|step| &mut step.next) {
            match next {
                Next::Holds => *next = holds,
                Next::Fails => *next = fails,
                _ => {}
            }
        }
    }

    /// Turns the steps from `start` on round; a relation that is turned round fails for short packets as before.
    fn negate(&mut self, start: usize, short: bool) {
        self.0[start..].iter_mut().for_each(|step| step.short ^= short);
        self.redirect(start, Next::Never, Next::Holds);
        for next in self.0[start..].iter_mut().flat_map(|step| &mut step.next) {
            if *next == Next::Never {
                *next = Next::Fails;
            }
        }
    }

    /// Adds parts one behind the other.
    fn join_parts<T>(&mut self, parts: &[T], all: bool, mut add: impl FnMut(&mut Self, &T)) {
        for (n, part) in parts.iter().enumerate() {
            let start = self.0.len();
            add(self, part);
            let behind = Next::Step(self.0.len());
            match all {
                _ if n + 1 == parts.len() => {}
                true => self.redirect(start, behind, Next::Fails),
                false => self.redirect(start, Next::Holds, behind),
            }
        }
    }

    fn add<L>(&mut self, expr: &Expr<L>, test: &impl Fn(&mut Self, &Test<L>)) {
        let start = self.0.len();
        match expr {
            Expr::Const(value) => {
                self.compare(0, 0, 0);
                if !value {
                    self.negate(start, false);
                }
            }
            Expr::Test(one, must) => {
                test(self, one);
                if !must {
                    self.negate(start, false);
                }
            }
            Expr::All(parts) => self.join_parts(parts, true, |steps, part| steps.add(part, test)),
            Expr::Any(parts) => self.join_parts(parts, false, |steps, part| steps.add(part, test)),
        }
    }

    /// Adds what must hold of IP packets; the protocol may be known.
    fn packet(&mut self, expr: &Expr<Field>, known: bool) {
        let start = self.0.len();
        let mut signs = Vec::new();
        leaves(expr, &mut |test, must| signs.push((guard(test.load), must)));
        let guarded = |sign: &(Guard, bool)| sign.0 != Guard::Nothing;
        let contrary =
            signs.iter().any(guarded) && signs.iter().filter(|s| guarded(s)).all(|s| !s.1);
        if contrary {
            self.packet(&expr.clone().not(), known);
            return self.negate(start, false);
        }
        if let Some(&(guard, _)) = signs.first()
            && guard != Guard::Nothing
            && signs.iter().all(|sign| *sign == (guard, true))
        {
            let is = |value: u8| Test::equal(Field::Protocol, 0xff, value.into());
            let protocols: &[u8] = match guard {
                _ if known => &[],
                Guard::Ports => &[protocol::TCP, protocol::UDP],
                Guard::Tcp => &[protocol::TCP],
                Guard::Icmp => &[PROTOCOL_ICMP],
                Guard::Nothing | Guard::Transport => &[],
            };
            let tests: Vec<_> = protocols.iter().map(|&p| Expr::Test(is(p), true)).collect();
            let mut parts = Vec::new();
            if !tests.is_empty() {
                parts.push(Expr::any(tests));
            }
            parts.push(Expr::Test(Test::equal(Field::Later, 1, 0), true));
            parts.push(expr.clone());
            return self.join_parts(&parts, true, Self::plain);
        }
        match expr {
            Expr::All(parts) => {
                let mut known = known;
                self.join_parts(parts, true, |steps, part| {
                    steps.packet(part, known);
                    known |= is_protocol(part);
                });
            }
            Expr::Any(parts) => {
                if other_than(parts).is_some() {
                    return self.plain(expr);
                }
                self.join_parts(parts, false, |steps, part| steps.packet(part, known));
            }
            _ => self.plain(expr),
        }
    }

    /// Adds what must hold of IP packets with the fields.
    fn plain(&mut self, expr: &Expr<Field>) {
        let start = self.0.len();
        match expr {
            Expr::Any(parts) => match other_than(parts) {
                Some(test) => {
                    self.field(&test);
                    self.negate(start, true);
                }
                None => self.join_parts(parts, false, Self::plain),
            },
            Expr::All(parts) => self.join_parts(parts, true, Self::plain),
            other => self.add(other, &|steps, test| steps.field(test)),
        }
    }

    fn field(&mut self, test: &Test<Field>) {
        let (at, shift) = place(test.load);
        let start = self.0.len();
        if matches!(test.load, Field::Later | Field::Fragment) {
            let mask = if test.load == Field::Later { 0x1fff } else { 0x3fff };
            self.compare(at, mask, 0);
            if test.low == 1 {
                self.negate(start, false);
            }
            return;
        }
        if test.low == test.high {
            return self.compare(at, test.mask << shift, test.low << shift);
        }
        match (test.low, test.high) {
            (0, high) => {
                self.above(at, shift, test.mask, high);
                self.negate(start, true);
            }
            (low, high) if high >= test.mask => self.above(at, shift, test.mask, low - 1),
            (low, high) => self.join_parts(&[false, true], true, |steps, upper| {
                let start = steps.0.len();
                steps.above(at, shift, test.mask, if *upper { high } else { low - 1 });
                if *upper {
                    steps.negate(start, true);
                }
            }),
        }
    }

    /// The bits of the mask are a larger number than this one: leading bits decide, from left to right.
    fn above(&mut self, at: u16, shift: u32, mut mask: u32, mut value: u32) {
        let mut parts = Vec::new();
        while value < mask {
            let set = value > mask >> 1;
            let differs = if set { !value & mask } else { value };
            let lower = u32::MAX.checked_shr(differs.leading_zeros()).unwrap_or(0);
            let upper = mask & !lower;
            parts.push((upper, set));
            mask &= !upper;
            value &= mask;
        }
        if parts.is_empty() {
            // No number of these bits is larger.
            return self.add(&Expr::Const(false), &|_, _: &Test<Field>| ());
        }
        self.leading(at, shift, &parts);
    }

    fn leading(&mut self, at: u16, shift: u32, parts: &[(u32, bool)]) {
        let Some(((mask, set), rest)) = parts.split_first() else { return };
        let start = self.0.len();
        self.compare(at, mask << shift, if *set { mask << shift } else { 0 });
        if !set {
            self.negate(start, true);
        }
        if rest.is_empty() {
            return;
        }
        let behind = Next::Step(self.0.len());
        let (holds, fails) = if *set { (behind, Next::Fails) } else { (Next::Holds, behind) };
        self.redirect(start, holds, fails);
        self.leading(at, shift, rest);
    }

    /// Sorts comparisons that all have to hold, or one of them, by where they look.
    fn sort(&mut self, first: &[u16]) {
        let order = |at: u16| {
            first.iter().position(|one| *one == at).map_or((first.len(), at), |place| (place, 0))
        };
        let steps = &mut self.0;
        let mut before: Vec<Option<usize>> = vec![None; steps.len()];
        let mut several = vec![false; steps.len()];
        for (i, step) in steps.iter().enumerate() {
            for next in step.next {
                if let Next::Step(j) = next {
                    several[j] |= before[j].is_some();
                    before[j] = Some(i);
                }
            }
        }
        let mut i = 0;
        while i < steps.len() {
            let mut behind = i + 1;
            for k in 0..2 {
                let Next::Step(j) = steps[i].next[k] else { continue };
                let (one, two) = (steps[i], steps[j]);
                if one.next[1 - k] == two.next[1 - k]
                    && !several[j]
                    && two.mask != 0
                    && order(two.at) < order(one.at)
                {
                    steps[j] = Step { next: one.next, ..one };
                    steps[j].next[k] = two.next[k];
                    steps[i] = two;
                    steps[i].next[k] = Next::Step(j);
                    behind = before[i].unwrap_or(i);
                    break;
                }
            }
            i = behind;
        }
    }

    /// Makes one comparison of two of one word that fail to one place.
    fn join(&mut self) {
        let steps = &mut self.0;
        let mut i = 0;
        while i < steps.len() {
            if let Next::Step(no) = steps[i].next[0]
                && steps[i].one_bit()
                && steps[i].at == steps[no].at
                && !steps[i].differs_from(&steps[no])
            {
                steps[i].flip();
            }
            let one = steps[i];
            i += 1;
            let Next::Step(yes) = one.next[1] else { continue };
            if one.next[0] == steps[yes].next[1] && steps[yes].one_bit() {
                steps[yes].flip();
            }
            let two = steps[yes];
            if one.next[0] == two.next[0] && one.joins(&two) {
                i -= 1;
                let value = one.value | two.value;
                let next = [one.next[0], two.next[1]];
                steps[i] = Step { mask: one.mask | two.mask, value, next, ..one };
            }
        }
    }

    /// Removes comparisons that decide nothing, and those that no packet comes to; what is left where none is.
    fn purge(&mut self) -> Option<Next> {
        let steps = &mut self.0;
        // From the last one on, so that what follows is settled.
        let mut settled: Vec<Next> = Vec::new();
        settled.resize(steps.len(), Next::Never);
        for i in (0..steps.len()).rev() {
            for next in &mut steps[i].next {
                if let Next::Step(j) = *next {
                    *next = settled[j];
                }
            }
            let [no, yes] = steps[i].next;
            settled[i] = match () {
                () if steps[i].mask == 0 || no == yes || no == Next::Never => yes,
                () if yes == Next::Never => no,
                () => Next::Step(i),
            };
        }
        let start = *settled.first()?;
        let mut kept = vec![false; steps.len()];
        let mut open = vec![start];
        while let Some(next) = open.pop() {
            if let Next::Step(i) = next
                && !std::mem::replace(&mut kept[i], true)
            {
                open.extend(steps[i].next);
            }
        }
        let mut numbers = Vec::with_capacity(steps.len());
        let mut number = 0;
        for kept in &kept {
            numbers.push(number);
            number += usize::from(*kept);
        }
        let mut keep = kept.iter();
        steps.retain(|_| *keep.next().expect("one for each step"));
        for next in steps.iter_mut().flat_map(|step| &mut step.next) {
            if let Next::Step(i) = next {
                *i = numbers[*i];
            }
        }
        Some(start)
    }

    fn text(&self, all: Next) -> String {
        let target = |next: Next| match next {
            Next::Step(step) => format!("step {step}"),
            Next::Output(output) => format!("[{output}]"),
            Next::Holds | Next::Fails | Next::Never => "[X]".to_owned(),
        };
        let mut text = String::new();
        for (i, Step { at, mask, value, short, next: [no, yes] }) in self.0.iter().enumerate() {
            let short = if *short { "  short->yes" } else { "" };
            let (yes, no) = (target(*yes), target(*no));
            text += &format!("{i:2} {at:3}/{value:08x}%{mask:08x}  yes->{yes}  no->{no}{short}\n");
        }
        if self.0.is_empty() {
            text += &format!("all->{}\n", target(all));
        }
        let safe = self.0.iter().map(Step::needs).max().unwrap_or(0);
        text + &format!("safe length {safe}\nalignment offset 0\n")
    }
}

/// What a packet needs to have a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Guard {
    Nothing,
    /// It is no later fragment.
    Transport,
    Ports,
    Tcp,
    Icmp,
}

fn guard(field: Field) -> Guard {
    match field {
        Field::SrcPort | Field::DstPort => Guard::Ports,
        Field::TcpFlags => Guard::Tcp,
        Field::IcmpType => Guard::Icmp,
        Field::At(Layer::Transport, ..) => Guard::Transport,
        _ => Guard::Nothing,
    }
}

fn leaves(expr: &Expr<Field>, visit: &mut impl FnMut(&Test<Field>, bool)) {
    match expr {
        Expr::Const(_) => {}
        Expr::Test(test, must) => visit(test, *must),
        Expr::All(parts) | Expr::Any(parts) => parts.iter().for_each(|part| leaves(part, visit)),
    }
}

/// It is a test of the protocol, or one of several.
fn is_protocol(expr: &Expr<Field>) -> bool {
    match expr {
        Expr::Test(test, true) => test.load == Field::Protocol,
        Expr::Any(parts) => parts.iter().all(is_protocol),
        _ => false,
    }
}

/// Two ranges with one number between them: the test of that number.
fn other_than(parts: &[Expr<Field>]) -> Option<Test<Field>> {
    let [Expr::Test(below, true), Expr::Test(above, true)] = parts else { return None };
    let one = below.high.checked_add(1)?;
    let around = below.low == 0 && above.low == one.checked_add(1)? && above.high == above.mask;
    let same = below.load == above.load && below.mask == above.mask;
    (around && same).then(|| Test::equal(below.load, below.mask, one))
}

/// The word of a field, and how far left the field lies in it.
fn place(field: Field) -> (u16, u32) {
    match field {
        Field::Version => (NETWORK, 28),
        Field::HeaderWords => (NETWORK, 24),
        Field::TrafficClass => (NETWORK, 16),
        Field::Len => (NETWORK, 0),
        Field::Id => (NETWORK + 4, 16),
        Field::Fragment | Field::Later => (NETWORK + 4, 0),
        Field::Ttl => (NETWORK + 8, 24),
        Field::Protocol => (NETWORK + 8, 16),
        Field::Src4 => (NETWORK + 12, 0),
        Field::Dst4 => (NETWORK + 16, 0),
        Field::Src6(n) => (NETWORK + 8 + 4 * u16::from(n), 0),
        Field::Dst6(n) => (NETWORK + 24 + 4 * u16::from(n), 0),
        Field::SrcPort => (TRANSPORT, 16),
        Field::DstPort => (TRANSPORT, 0),
        Field::IcmpType => (TRANSPORT, 24),
        Field::TcpFlags => (TRANSPORT + 12, 16),
        Field::At(layer, at, len) => {
            let base = match layer {
                Layer::Link => 0,
                Layer::V4 | Layer::V6 => NETWORK,
                Layer::Transport => TRANSPORT,
            };
            let behind = u32::from(at % 4) + u32::from(len);
            (base.saturating_add(at / 4 * 4), 32_u32.saturating_sub(8 * behind))
        }
    }
}

/// Known results on the paths to each step: a branch is twice its step, and one more where the word is equal.
#[derive(Default)]
struct Paths {
    /// Those to each step, the step's own branch last.
    to: Vec<Vec<Vec<usize>>>,
}

impl Paths {
    fn shorten(mut self, steps: &mut [Step]) {
        for state in 0..steps.len() {
            let paths = self.paths_to(steps, state);
            self.to.push(paths);
            for equal in [true, false] {
                self.shift(steps, state, equal);
            }
        }
    }

    fn paths_to(&self, steps: &mut [Step], state: usize) -> Vec<Vec<usize>> {
        if state == 0 {
            return vec![vec![0]];
        }
        let mut paths = Vec::new();
        for (i, step) in steps[..state].iter().enumerate() {
            match step.next.map(|next| next == Next::Step(state)) {
                [false, false] => {}
                // The comparison decides nothing.
                [true, true] => paths.extend(self.to[i].iter().map(|path| behind(path).to_vec())),
                [_, equal] => paths.extend(self.paths_by(steps, i, equal)),
            }
        }
        if paths.is_empty() {
            steps[state].next = [Next::Never; 2];
        }
        if paths.len() > PATHS {
            paths = vec![common(&paths)];
        }
        paths.iter_mut().for_each(|path| path.push(2 * state));
        paths
    }

    /// Paths that this branch ends, without those on which the other one is taken.
    fn paths_by(&self, steps: &[Step], state: usize, equal: bool) -> Vec<Vec<usize>> {
        let contradicts = |branch: &usize| {
            steps[branch / 2].implies(branch % 2 == 1, &steps[state]) == Some(!equal)
        };
        let paths = self.to[state].iter().map(|path| behind(path));
        let possible = paths.filter(|path| !path.iter().any(contradicts));
        possible.map(|path| [path, &[2 * state + usize::from(equal)]].concat()).collect()
    }

    /// Moves a branch as far as the results before it are known on all paths.
    fn shift(&self, steps: &mut [Step], state: usize, equal: bool) {
        let Next::Step(to) = steps[state].next[usize::from(equal)] else { return };
        let walk = |known: Vec<usize>| {
            let mut seen = vec![Next::Step(to)];
            while let Some(Next::Step(next)) = seen.last().copied() {
                let result =
                    |branch: &usize| steps[branch / 2].implies(branch % 2 == 1, &steps[next]);
                let Some(result) = known.iter().rev().find_map(result) else { break };
                seen.push(steps[next].next[usize::from(result)]);
            }
            seen
        };
        let paths = self.paths_by(steps, state, equal);
        let walks: Vec<_> = paths.into_iter().map(walk).collect();
        let Some((first, others)) = walks.split_first() else { return };
        let shared = |next: &&Next| others.iter().all(|walk| walk.contains(next));
        if let Some(next) = first.iter().rev().find(shared) {
            steps[state].next[usize::from(equal)] = *next;
        }
    }
}

/// Path to a step without the step's own branch.
fn behind(path: &[usize]) -> &[usize] {
    path.split_last().map_or(&[], |(_, path)| path)
}

/// Branches that are on all paths.
fn common(paths: &[Vec<usize>]) -> Vec<usize> {
    let Some((first, others)) = paths.split_first() else { return Vec::new() };
    let on_all = |branch: &&usize| others.iter().all(|path| path.contains(branch));
    first.iter().filter(on_all).copied().collect()
}

#[cfg(test)]
mod tests {
    use crate::filter::{Choice, Condition, Pattern, Patterns};

    fn packets(texts: &[&str]) -> String {
        let conditions = texts.iter().map(|text| Condition::parse(text).unwrap());
        let rules: Vec<_> = conditions.zip((0..).map(Some)).collect();
        Choice::listing(&rules, u16::try_from(texts.len()).unwrap())
    }

    fn frames(texts: &[&str]) -> String {
        let patterns: Vec<_> = texts.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        Patterns::listing(&patterns)
    }

    #[test]
    fn frames_are_compared_once_with_a_word() {
        let want = " 0  12/08060000%ffff0000  yes->step 1  no->step 3
 1  20/00000001%0000ffff  yes->[0]  no->step 2
 2  20/00000002%0000ffff  yes->[1]  no->[3]
 3  12/08000000%ffff0000  yes->[2]  no->[3]
safe length 24
alignment offset 0
";
        assert_eq!(frames(&["12/0806 22/0001", "12/0806 22/0002", "12/0800", "-"]), want);
        assert_eq!(frames(&["-"]), "all->[0]\nsafe length 0\nalignment offset 0\n");
        let want =
            " 0   0/00000000%ff000000  yes->[1]  no->[0]\nsafe length 1\nalignment offset 0\n";
        assert_eq!(frames(&["!0/00"]), want);
        let twice = frames(&["8/01 0/02", "0/02 1/03"]);
        assert!(twice.starts_with(" 0   0/02000000%ff000000  yes->step 1  no->[2]\n"), "{twice}");
    }

    #[test]
    fn protocols_and_fragments_are_compared_first() {
        let want = " 0 264/00060000%00ff0000  yes->step 2  no->step 1
 1 264/00110000%00ff0000  yes->step 2  no->[2]
 2 260/00000000%00001fff  yes->step 3  no->[2]
 3 512/00000050%0000ffff  yes->[0]  no->step 4
 4 512/00350000%ffff0000  yes->[1]  no->[2]
safe length 516
alignment offset 0
";
        assert_eq!(packets(&["dst port 80", "src port 53"]), want);
        let want = " 0 264/00060000%00ff0000  yes->step 1  no->[1]
 1 260/00000000%00001fff  yes->step 2  no->[1]
 2 524/00020000%00120000  yes->[0]  no->[1]
safe length 526
alignment offset 0
";
        assert_eq!(packets(&["tcp and syn and !ack"]), want);
    }

    #[test]
    fn results_on_all_paths_are_not_compared_again() {
        let want = " 0 264/00010000%00ff0000  yes->[0]  no->step 1
 1 264/00060000%00ff0000  yes->step 3  no->step 2
 2 264/00110000%00ff0000  yes->step 3  no->[3]
 3 260/00000000%00001fff  yes->step 4  no->step 5
 4 512/00000035%0000ffff  yes->[1]  no->step 5
 5 264/00060000%00ff0000  yes->step 6  no->step 8
 6 260/00000000%00001fff  yes->step 7  no->[2]
 7 524/00020000%00120000  yes->step 9  no->[2]
 8 260/00000000%00001fff  yes->step 9  no->[3]
 9 512/00000000%fc00fc00  yes->[3]  no->[2]  short->yes
safe length 526
alignment offset 0
";
        let third = "(proto tcp and !(syn and !ack)) or (tcpudp port >= 1024)";
        assert_eq!(packets(&["proto icmp", "dst port 53", third, "-"]), want);
        let want = " 0 264/00060000%00ff0000  yes->step 2  no->step 1
 1 264/00110000%00ff0000  yes->step 2  no->step 6
 2 260/00000000%00001fff  yes->step 3  no->[5]
 3 512/00001e61%0000ffff  yes->[0]  no->step 4
 4 512/000022b8%0000ffff  yes->[1]  no->step 5
 5 512/00001b58%0000ffff  yes->[2]  no->[5]
 6 264/00010000%00ff0000  yes->step 7  no->[5]
 7 260/00000000%00001fff  yes->step 8  no->[4]
 8 512/08000000%ff000000  yes->[3]  no->[4]
safe length 516
alignment offset 0
";
        let first = ["dst port 7777", "dst port 8888", "dst port 7000"];
        assert_eq!(packets(&[&first[..], &["icmp type echo", "icmp", "-"]].concat()), want);
        let want = " 0 264/00110000%00ff0000  yes->step 1  no->step 4
 1 260/00000000%00001fff  yes->step 2  no->step 4
 2 512/00000089%0000ffff  yes->[0]  no->step 3
 3 512/00440000%ffff0000  yes->[1]  no->step 4
 4 268/80e6ce00%ffffff00  yes->[2]  no->step 5
 5 272/80e6ce00%ffffff00  yes->[2]  no->[3]
safe length 516
alignment offset 0
";
        let net = "128.230.206.0/24";
        assert_eq!(packets(&["udp dst port 137", "udp src port bootpc", net, "-"]), want);
    }

    #[test]
    fn relations_are_comparisons_of_leading_bits() {
        let last = |text: &str| {
            let text = packets(&[text]);
            text.lines().rfind(|line| line.contains("->")).unwrap().to_owned()
        };
        let ends = "yes->[1]  no->[0]  short->yes";
        let same = format!(" 2 512/00000000%fc00fc00  {ends}");
        assert_eq!(last("tcp port >= 1024"), same);
        assert_eq!(last("udp dst port != 80"), format!(" 2 512/00000050%0000ffff  {ends}"));
        assert_eq!(last("ip ttl < 128"), " 0 264/00000000%80000000  yes->[0]  no->[1]");
        assert_eq!(last("ip ttl >= 192"), " 0 264/c0000000%c0000000  yes->[0]  no->[1]");
        let want = " 0 264/00000000%f0000000  yes->step 1  no->[0]  short->yes
 1 264/0f000000%0f000000  yes->[0]  no->[1]\n";
        assert!(packets(&["ip ttl > 14"]).starts_with(want), "{}", packets(&["ip ttl > 14"]));
    }
}
