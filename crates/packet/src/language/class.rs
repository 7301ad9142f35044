//! What a class of elements declares of its ports, in Click's codes.
//!
//! Source: click(5) and the port, processing and flow codes of Click's elements. The codes are plain
//! text in a row; here they are read. A code that cannot be read is an error of the class, reported when a
//! configuration uses it.

/// What a class declares: plain data, and all that a configuration is checked against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassSpec {
    /// What configurations call it.
    pub name: &'static str,
    /// How many inputs and outputs: `1/1-2`, `1/-`, `1-/=`.
    pub ports: &'static str,
    /// Which of them push (`h`), pull (`l`) or do either (`a`): `a/ah`. The last letter repeats.
    pub processing: &'static str,
    /// Which input reaches which output: those that share a letter. `x/x`, `xy/x`, `#/#`.
    pub flow: &'static str,
    /// Names of the first outputs; numbers always work.
    pub output_names: &'static [&'static str],
    /// What the elements are to others.
    pub role: Role,
    /// Keywords that Click's class has, and that have no effect here: they are accepted with a warning.
    pub ignored: &'static [&'static str],
}

/// What elements of a class are to others, which know no class by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// One step of many.
    #[default]
    Step,
    /// They look destinations up in the routes of the router.
    Lookup,
    /// They have a route table that other elements may name.
    RouteTable,
    /// They run programs: variables that are not known stay in their arguments.
    Script,
}

impl ClassSpec {
    /// Class of this name with these codes, in Click's order; its outputs have no names.
    pub const fn new(
        name: &'static str,
        ports: &'static str,
        processing: &'static str,
        flow: &'static str,
    ) -> Self {
        Self { name, ports, processing, flow, output_names: &[], role: Role::Step, ignored: &[] }
    }

    /// Names the first outputs.
    #[must_use]
    pub const fn outputs(self, output_names: &'static [&'static str]) -> Self {
        Self { output_names, ..self }
    }

    /// Gives the elements a role.
    #[must_use]
    pub const fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Accepts keywords without effect.
    #[must_use]
    pub const fn ignores(self, ignored: &'static [&'static str]) -> Self {
        Self { ignored, ..self }
    }
}

/// All classes that a configuration may use.
pub trait Classes {
    /// The class of a name.
    fn find(&self, name: &str) -> Option<ClassSpec>;
    /// Every name, for hints.
    fn each(&self, visit: &mut dyn FnMut(&'static str));
}

impl Classes for [ClassSpec] {
    fn find(&self, name: &str) -> Option<ClassSpec> {
        self.iter().find(|class| class.name == name).copied()
    }

    fn each(&self, visit: &mut dyn FnMut(&'static str)) {
        self.iter().for_each(|class| visit(class.name));
    }
}

impl<C: Classes + ?Sized> Classes for &C {
    fn find(&self, name: &str) -> Option<ClassSpec> {
        (**self).find(name)
    }

    fn each(&self, visit: &mut dyn FnMut(&'static str)) {
        (**self).each(visit);
    }
}

/// Classes, and as one of its own any other name that begins with a capital: for programs that write configurations as
/// text and make no elements.
#[derive(Clone, Copy, Debug)]
pub struct AnyClass<C>(pub C);

impl<C: Classes> Classes for AnyClass<C> {
    fn find(&self, name: &str) -> Option<ClassSpec> {
        let any = || {
            let capital = name.starts_with(|first: char| first.is_ascii_uppercase());
            // Never freed: few names, of a program that ends soon.
            capital.then(|| ClassSpec::new(name.to_owned().leak(), "-/-", "a/a", "x/x"))
        };
        self.0.find(name).or_else(any)
    }

    fn each(&self, visit: &mut dyn FnMut(&'static str)) {
        self.0.each(visit);
    }
}

/// A code of a class cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{code}` is no {what}")]
pub(crate) struct CodeError {
    /// Which code.
    pub what: &'static str,
    /// What was declared.
    pub code: &'static str,
}

/// Whether packets are pushed or pulled at a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Processing {
    /// The element before hands them on.
    Push,
    /// The element behind pulls them.
    Pull,
    /// Whatever the other end does.
    Agnostic,
}

/// A class with its codes read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Codes {
    inputs: Count,
    outputs: Outputs,
    processing: [Vec<Processing>; 2],
    flow: [Vec<Reach>; 2],
}

/// Range of ports; without end where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Count {
    least: usize,
    most: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outputs {
    Count(Count),
    /// Number of inputs, and so many more.
    Inputs(usize),
}

/// Ports of the other side that one is joined to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    /// Letters a to z and A to Z, one bit each.
    letters: u64,
    /// `#`: the port's own number is one of the letters.
    number: bool,
    /// `[^..]`: all but these.
    not: bool,
}

const LETTERS: u64 = (1 << 52) - 1;

/// How two groups of ports are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Joined {
    /// Not at all.
    No,
    /// Each with each.
    All,
    /// Those of the same number.
    Same,
    /// Those of different numbers.
    Others,
}

impl Reach {
    /// How inputs of this code and outputs of `other` are joined.
    pub(crate) fn joined(self, other: Self) -> Joined {
        let letters =
            |reach: Self| if reach.not { LETTERS & !reach.letters } else { reach.letters };
        if letters(self) & letters(other) != 0 {
            return Joined::All;
        }
        match ((self.number, self.not), (other.number, other.not)) {
            ((true, false), (true, false)) => Joined::Same,
            ((true, false), (true, true)) | ((true, true), (true, false)) => Joined::Others,
            // All numbers but its own, or all numbers: any other number is shared.
            ((_, true), (_, true))
            | ((true, false), (false, true))
            | ((false, true), (true, false)) => Joined::All,
            _ => Joined::No,
        }
    }
}

impl Codes {
    /// Reads the codes of a class.
    ///
    /// # Errors
    /// One of them is no such code.
    pub(crate) fn read(class: &ClassSpec) -> Result<Self, CodeError> {
        let (inputs, outputs) =
            ports(class.ports).ok_or(CodeError { what: "number of ports", code: class.ports })?;
        let processing = sides(class.processing, processing)
            .ok_or(CodeError { what: "processing code", code: class.processing })?;
        let flow =
            sides(class.flow, flow).ok_or(CodeError { what: "flow code", code: class.flow })?;
        Ok(Self { inputs, outputs, processing, flow })
    }

    /// How many inputs and outputs it has where so many are used: as near to that as it can.
    pub(crate) fn counts(&self, inputs: usize, outputs: usize) -> (usize, usize) {
        let inputs = self.inputs.nearest(inputs);
        match self.outputs {
            Outputs::Count(count) => (inputs, count.nearest(outputs)),
            Outputs::Inputs(more) => (inputs, inputs + more),
        }
    }

    /// The number of outputs is not that of inputs.
    pub(crate) fn outputs_are_fixed(&self) -> bool {
        matches!(self.outputs, Outputs::Count(_))
    }

    /// What an input does.
    pub(crate) fn input(&self, port: usize) -> Processing {
        last_repeats(&self.processing[0], port)
    }

    /// What an output does.
    pub(crate) fn output(&self, port: usize) -> Processing {
        last_repeats(&self.processing[1], port)
    }

    /// Whether packets of an input may leave by an output.
    pub(crate) fn join(&self, input: usize, output: usize) -> bool {
        match last_repeats(&self.flow[0], input).joined(last_repeats(&self.flow[1], output)) {
            Joined::No => false,
            Joined::All => true,
            Joined::Same => input == output,
            Joined::Others => input != output,
        }
    }

    /// Flow codes of the inputs, by port. The last one is of all further ports.
    pub(crate) fn input_flows(&self) -> &[Reach] {
        &self.flow[0]
    }

    /// Reach of each output.
    pub(crate) fn output_flows(&self) -> &[Reach] {
        &self.flow[1]
    }
}

fn last_repeats<T: Copy>(list: &[T], at: usize) -> T {
    list[at.min(list.len() - 1)]
}

impl Count {
    fn nearest(self, used: usize) -> usize {
        used.max(self.least).min(self.most.unwrap_or(usize::MAX))
    }

    fn read(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<u16>().ok().map(usize::from);
        let Some((least, most)) = text.split_once('-') else {
            let exact = number(text)?;
            return Some(Self { least: exact, most: Some(exact) });
        };
        let least = if least.is_empty() { 0 } else { number(least)? };
        let most = if most.is_empty() { None } else { Some(number(most)?) };
        most.is_none_or(|most| least <= most).then_some(Self { least, most })
    }
}

fn ports(code: &str) -> Option<(Count, Outputs)> {
    // Click's default, for classes that declare nothing.
    let code = if code.is_empty() { "0/0" } else { code };
    let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
    let inputs = Count::read(inputs)?;
    let outputs = match outputs.strip_prefix('=') {
        Some(more) if more.bytes().all(|byte| byte == b'+') => Outputs::Inputs(more.len()),
        Some(_) => return None,
        None => Outputs::Count(Count::read(outputs)?),
    };
    Some((inputs, outputs))
}

/// Both sides of a code; one without a slash is for both.
fn sides<T>(code: &str, side: fn(&str) -> Option<Vec<T>>) -> Option<[Vec<T>; 2]> {
    let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
    let sides = [side(inputs)?, side(outputs)?];
    sides.iter().all(|list| !list.is_empty()).then_some(sides)
}

fn processing(side: &str) -> Option<Vec<Processing>> {
    let letter = |letter| match letter {
        'h' => Some(Processing::Push),
        'l' => Some(Processing::Pull),
        'a' => Some(Processing::Agnostic),
        _ => None,
    };
    side.chars().map(letter).collect()
}

fn flow(side: &str) -> Option<Vec<Reach>> {
    let mut letters = side.chars();
    let mut list = Vec::new();
    while let Some(first) = letters.next() {
        let mut reach = Reach { letters: 0, number: false, not: false };
        if first != '[' {
            reach.add(first)?;
        } else {
            let mut inside = letters.next()?;
            if inside == '^' {
                reach.not = true;
                inside = letters.next()?;
            }
            while inside != ']' {
                reach.add(inside)?;
                inside = letters.next()?;
            }
        }
        list.push(reach);
    }
    Some(list)
}

impl Reach {
    fn add(&mut self, letter: char) -> Option<()> {
        let bit = match letter {
            'a'..='z' => u32::from(letter) - u32::from('a'),
            'A'..='Z' => 26 + u32::from(letter) - u32::from('A'),
            '#' => {
                self.number = true;
                return Some(());
            }
            _ => return None,
        };
        self.letters |= 1 << bit;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(ports: &'static str, processing: &'static str, flow: &'static str) -> ClassSpec {
        ClassSpec::new("X", ports, processing, flow)
    }

    fn counts(code: &'static str, inputs: usize, outputs: usize) -> (usize, usize) {
        Codes::read(&spec(code, "a/a", "x/x")).unwrap().counts(inputs, outputs)
    }

    #[test]
    fn numbers_of_ports() {
        assert_eq!(counts("1/1", 0, 5), (1, 1));
        assert_eq!(counts("1/1-2", 1, 0), (1, 1));
        assert_eq!(counts("1/1-2", 1, 3), (1, 2));
        assert_eq!(counts("1-2/0", 3, 1), (2, 0));
        assert_eq!(counts("2-/-", 1, 9), (2, 9));
        assert_eq!(counts("-/-", 0, 0), (0, 0));
        assert_eq!(counts("3", 1, 9), (3, 3));
        assert_eq!(counts("-2", 5, 1), (2, 1));
        assert_eq!(counts("1-/=", 4, 1), (4, 4));
        assert_eq!(counts("1-/=+", 4, 1), (4, 5));
        assert_eq!(counts("1-/=++", 0, 0), (1, 3));
        assert_eq!(counts("", 2, 2), (0, 0));
        for bad in ["x", "1/x", "1/=x", "=/1", "2-1", "1/2/3", "/", "1//1", "99999"] {
            let error = Codes::read(&spec(bad, "a/a", "x/x")).unwrap_err();
            assert_eq!(error.to_string(), format!("`{bad}` is no number of ports"));
        }
    }

    #[test]
    fn processing_repeats_its_last_letter() {
        let codes = Codes::read(&spec("-/-", "ahl/ha", "x/x")).unwrap();
        let inputs: Vec<_> = (0..4).map(|port| codes.input(port)).collect();
        use Processing::{Agnostic, Pull, Push};
        assert_eq!(inputs, [Agnostic, Push, Pull, Pull]);
        assert_eq!((codes.output(0), codes.output(7)), (Push, Agnostic));
        for bad in ["", "x/a", "a/", "/", "a/a/a"] {
            assert!(Codes::read(&spec("-/-", bad, "x/x")).is_err(), "{bad}");
        }
    }

    #[test]
    fn flows_join_ports_that_share_a_letter() {
        let joined = |code: &'static str| {
            let codes = Codes::read(&spec("-/-", "a", code)).unwrap();
            codes.input_flows()[0].joined(codes.output_flows()[0])
        };
        assert_eq!(joined("x/x"), Joined::All);
        assert_eq!(joined("x/y"), Joined::No);
        assert_eq!(joined("X/x"), Joined::No);
        assert_eq!(joined("[xy]/y"), Joined::All);
        assert_eq!(joined("[^x]/x"), Joined::No);
        assert_eq!(joined("[^x]/y"), Joined::All);
        assert_eq!(joined("#/#"), Joined::Same);
        assert_eq!(joined("#/[^#]"), Joined::Others);
        assert_eq!(joined("#/[#x]"), Joined::Same);
        assert_eq!(joined("#/x"), Joined::No);
        assert_eq!(joined("#/[^x]"), Joined::All);
        assert_eq!(Codes::read(&spec("2/1", "a", "xy/x")).unwrap().input_flows().len(), 2);
        for bad in ["", "1/x", "[x", "[^", "x/y/z", "x/]"] {
            assert!(Codes::read(&spec("-/-", "a", bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn classes_are_found_by_name() {
        let list = [spec("1", "a", "x")];
        assert!(list[..].find("X").is_some() && list[..].find("Y").is_none());
        let mut names = Vec::new();
        list[..].each(&mut |name| names.push(name));
        assert_eq!(names, ["X"]);
    }
}
