//! The flat configuration against what its classes declare: ports, and who hands packets to whom.
//!
//! Each port is push, pull or agnostic. An agnostic one is what the port at the other end of its
//! connection is, and what the ports are that it reaches inside its element; that is followed, in steps,
//! from the ports that are fixed. Where two that must agree do not, both are named. What is agnostic in
//! the end pushes.
//!
//! Source: Click's router checks. Cost: linear in ports and connections.

use std::collections::{HashMap, HashSet, VecDeque};

use super::class::{Codes, Joined, Processing, Reach};
use super::expand::Flat;
use super::flat::Declared;
use super::source::{InClick, Problems, short};

/// Checks `flat`, and fills in the numbers of ports and the kinds of connections. Where it is not
/// `whole`, because something of it could not be read, no error is reported that the rest could mend.
pub(super) fn check(flat: &mut Flat, whole: bool, problems: &mut Problems) {
    let mut checker = Checker { flat, whole, problems, codes: Vec::new(), ports: Vec::new() };
    checker.read_codes();
    checker.count();
    let used = Used::new(checker.flat);
    checker.propagate(&used);
    checker.exclusive(&used);
}

struct Checker<'a> {
    flat: &'a mut Flat,
    whole: bool,
    problems: &'a mut Problems,
    /// Codes by element; `None` where they are unknown.
    codes: Vec<Option<Codes>>,
    /// What each used port is, by its number in [`Used`].
    ports: Vec<Processing>,
}

/// All ports that are connected, numbered: inputs of an element by port, then its outputs.
struct Used {
    /// Numbers by element: the first input, the first output, and past the last.
    first: Vec<[usize; 3]>,
    /// Element and port of each.
    port: Vec<(u32, u32)>,
    /// Ends by connection: numbers of its output and its input.
    ends: Vec<[usize; 2]>,
    /// Connections by port.
    wires: Vec<Vec<u32>>,
}

impl Used {
    fn new(flat: &Flat) -> Self {
        let mut all: Vec<(u32, bool, u32)> = Vec::with_capacity(2 * flat.connections.len());
        for wire in &flat.connections {
            all.push((wire.from, true, wire.output));
            all.push((wire.to, false, wire.input));
        }
        all.sort_unstable();
        all.dedup();
        let find = |port| all.binary_search(&port).expect("all ports were taken");
        let ends = flat
            .connections
            .iter()
            .map(|wire| [find((wire.from, true, wire.output)), find((wire.to, false, wire.input))]);
        let ends: Vec<[usize; 2]> = ends.collect();
        let mut wires = vec![Vec::new(); all.len()];
        for (number, ends) in (0..).zip(&ends) {
            ends.iter().for_each(|&end| wires[end].push(number));
        }
        let first = (0..).take(flat.elements.len()).map(|element: u32| {
            let at = |key| all.partition_point(|port| *port < key);
            [at((element, false, 0)), at((element, true, 0)), at((element + 1, false, 0))]
        });
        let first = first.collect();
        let port = all.iter().map(|&(element, _, port)| (element, port)).collect();
        Self { first, port, ends, wires }
    }

    fn is_output(&self, port: usize) -> bool {
        port >= self.first[self.port[port].0 as usize][1]
    }
}

impl Checker<'_> {
    fn read_codes(&mut self) {
        for element in &self.flat.elements {
            let codes = Codes::read(&element.class);
            if let Err(error) = &codes {
                let words = format!("class `{}`: {error}", element.class.name);
                self.problems.add(element.place, words);
            }
            self.codes.push(codes.ok().filter(|_| !element.class.name.is_empty()));
        }
    }

    /// How many ports each element has, and whether those used are these.
    fn count(&mut self) {
        let mut used = vec![[Vec::new(), Vec::new()]; self.flat.elements.len()];
        for (number, wire) in self.flat.connections.iter().enumerate() {
            used[wire.to as usize][0].push((wire.input, number));
            used[wire.from as usize][1].push((wire.output, number));
        }
        for (number, mut used) in used.into_iter().enumerate() {
            let Some(codes) = &self.codes[number] else { continue };
            used.iter_mut().for_each(|ports| ports.sort_unstable());
            let most =
                |ports: &[(u32, usize)]| ports.last().map_or(0, |(port, _)| *port as usize + 1);
            let (inputs, outputs) = codes.counts(most(&used[0]), most(&used[1]));
            let counted = |count: usize| u32::try_from(count).expect("ports are bounded");
            let counts = [counted(inputs), counted(outputs)];
            [self.flat.elements[number].inputs, self.flat.elements[number].outputs] = counts;
            let fixed = self.whole || codes.outputs_are_fixed();
            for ((ports, count), what) in used.iter().zip(counts).zip(["input", "output"]) {
                if what == "output" && !fixed {
                    continue;
                }
                self.count_side(number, ports, count, what);
            }
        }
    }

    fn count_side(&mut self, element: usize, used: &[(u32, usize)], count: u32, what: &str) {
        let element = &self.flat.elements[element];
        let whose = shown(element);
        for &(port, wire) in used.iter().filter(|(port, _)| *port >= count) {
            let has = match count {
                0 => format!("it has no {what}s"),
                1 => format!("it has {what} 0 only"),
                _ => format!("its last one is {}", count - 1),
            };
            let at = self.flat.connections[wire].place;
            let in_click = format!("{} has no {what} {port}", in_click(element));
            self.problems
                .add(at, format!("{whose} has no {what} {port}: {has}"))
                .in_click(InClick::Checking(in_click));
        }
        if !self.whole {
            return;
        }
        let mut next = 0;
        let ports = used.iter().map(|(port, _)| *port).filter(|&port| port < count);
        for port in ports.chain([count]) {
            if port > next {
                let last = port - 1;
                let which = match last == next {
                    true => format!("{what} {next} of {whose} is"),
                    false => format!("{what}s {next} to {last} of {whose} are"),
                };
                let unused: Vec<String> = (next..port)
                    .map(|port| format!("{} {what} {port} unused", in_click(element)))
                    .collect();
                let problem = self.problems.add(element.place, format!("{which} not connected"));
                problem.in_click(InClick::Checking(unused.join("\n")));
                if what == "output" {
                    problem.hint("connect what is not wanted to `Discard`");
                } else {
                    problem.hint("connect an `Idle` to what gets no packets");
                }
            }
            next = port + 1;
        }
    }

    /// What each port is.
    fn propagate(&mut self, used: &Used) {
        let fixed = |number: usize| {
            let (element, port) = used.port[number];
            let Some(codes) = &self.codes[element as usize] else { return Processing::Agnostic };
            match used.is_output(number) {
                true => codes.output(port as usize),
                false => codes.input(port as usize),
            }
        };
        let declared: Vec<Processing> = (0..used.port.len()).map(fixed).collect();
        let inside = self.inside(used, &declared);
        self.ports.clone_from(&declared);
        let mut waiting: VecDeque<usize> = VecDeque::new();
        for (port, &is) in declared.iter().enumerate() {
            if is != Processing::Agnostic {
                waiting.push_back(port);
            }
        }
        // What was reached, so that large elements are gone through once for each kind.
        let mut groups: HashSet<(usize, Processing)> = HashSet::new();
        while let Some(port) = waiting.pop_front() {
            let is = self.ports[port];
            for &wire in &used.wires[port] {
                let [output, input] = used.ends[wire as usize];
                let other = if port == output { input } else { output };
                if self.ports[other] == Processing::Agnostic {
                    self.ports[other] = is;
                    waiting.push_back(other);
                } else if self.ports[other] != is {
                    self.clash(used, wire as usize, &declared);
                }
            }
            if declared[port] != Processing::Agnostic {
                continue;
            }
            for &group in inside.of.get(&port).into_iter().flatten() {
                if !groups.insert((group, is)) {
                    continue;
                }
                for &other in &inside.groups[group] {
                    if self.ports[other] == Processing::Agnostic {
                        self.ports[other] = is;
                        waiting.push_back(other);
                    } else if self.ports[other] != is {
                        self.mixed(used, port, other);
                        break;
                    }
                }
            }
        }
        for (wire, ends) in self.flat.connections.iter_mut().zip(&used.ends) {
            let pulls = self.ports[ends[0]] == Processing::Pull;
            wire.kind = if pulls { Processing::Pull } else { Processing::Push };
        }
    }

    /// Agnostic ports of one element that must agree.
    fn inside(&self, used: &Used, declared: &[Processing]) -> Inside {
        let mut inside = Inside::default();
        let free = |port: &usize| declared[*port] == Processing::Agnostic;
        for (codes, &[first, outputs, past]) in self.codes.iter().zip(&used.first) {
            let Some(codes) = codes else { continue };
            let inputs = by_flow(codes.input_flows(), used, (first..outputs).filter(free));
            let outputs = by_flow(codes.output_flows(), used, (outputs..past).filter(free));
            for (one, inputs) in &inputs {
                for (other, outputs) in &outputs {
                    inside.join(used, one.joined(*other), inputs, outputs);
                }
            }
        }
        inside
    }

    fn clash(&mut self, used: &Used, wire: usize, declared: &[Processing]) {
        let [output, input] = used.ends[wire];
        let place = self.flat.connections[wire].place;
        let side = |port: usize| {
            let kind = if self.ports[port] == Processing::Push { "push" } else { "pull" };
            let how = if declared[port] == Processing::Agnostic {
                ", by what it is joined to"
            } else {
                ""
            };
            format!("{} ({kind}{how})", self.port(used, port))
        };
        let words = format!("{} is connected to {}", side(output), side(input));
        let hint = match self.ports[output] {
            Processing::Pull => {
                "put an `Unqueue` between them, which takes packets and hands them on"
            }
            _ => "put a `Queue` between them",
        };
        let click_side = |port: usize| {
            let (element, number) = used.port[port];
            let kind = if self.ports[port] == Processing::Push { "push" } else { "pull" };
            let side = if used.is_output(port) { "output" } else { "input" };
            format!("{} {kind} {side} {number}", in_click(&self.flat.elements[element as usize]))
        };
        let in_click = format!("{} connected to {}", click_side(output), click_side(input));
        self.problems.add(place, words).hint(hint).in_click(InClick::Checking(in_click));
    }

    fn mixed(&mut self, used: &Used, one: usize, other: usize) {
        let element = &self.flat.elements[used.port[one].0 as usize];
        let (one, other) = if used.is_output(one) { (other, one) } else { (one, other) };
        let side = |port: usize| {
            let kind = if self.ports[port] == Processing::Push { "push" } else { "pull" };
            let what = if used.is_output(port) { "output" } else { "input" };
            format!("{what} {} is {kind}", used.port[port].1)
        };
        let words = format!(
            "agnostic element {} in mixed context: {}, {}",
            shown(element),
            side(one),
            side(other)
        );
        let hint = match self.ports[other] {
            Processing::Pull => "put a `Queue` before or behind it",
            _ => "put an `Unqueue` before or behind it",
        };
        let at = element.place;
        let problem = self.problems.add(at, words).hint(hint);
        for port in [one, other] {
            if let Some(&wire) = used.wires[port].first() {
                let what = if used.is_output(port) { "output" } else { "input" };
                let at = self.flat.connections[wire as usize].place;
                problem.note(at, format!("{what} {} is connected here", used.port[port].1));
            }
        }
    }

    /// A push output and a pull input have one connection each.
    fn exclusive(&mut self, used: &Used) {
        for port in 0..used.port.len() {
            let wires = &used.wires[port];
            let output = used.is_output(port);
            let alone = match self.ports[port] {
                Processing::Pull => !output,
                _ => output,
            };
            let known = self.codes[used.port[port].0 as usize].is_some();
            // Something that was not read may make it pull.
            let open = !self.whole && self.ports[port] == Processing::Agnostic;
            if !alone || open || wires.len() < 2 || !known {
                continue;
            }
            let place = |wire: u32| self.flat.connections[wire as usize].place;
            let (first, second, count) = (place(wires[0]), place(wires[1]), wires.len());
            let kind = if output { "push" } else { "pull" };
            let words = format!("{kind} {} has {count} connections", self.port(used, port));
            let hint = match output {
                true => "put a `Tee` there, which copies packets to several outputs",
                false => "put a scheduler there, such as `RoundRobinSched`",
            };
            let (element, number) = used.port[port];
            let side = if output { "output" } else { "input" };
            let whose = in_click(&self.flat.elements[element as usize]);
            let in_click = format!("illegal reuse of {whose} {kind} {side} {number}");
            self.problems
                .add(second, words)
                .hint(hint)
                .note(first, "the first one is here")
                .in_click(InClick::Checking(in_click));
        }
    }

    /// `output 0 of ``q`` (Queue)`
    fn port(&self, used: &Used, port: usize) -> String {
        let (element, number) = used.port[port];
        let what = if used.is_output(port) { "output" } else { "input" };
        format!("{what} {number} of {}", shown(&self.flat.elements[element as usize]))
    }
}

fn shown(element: &Declared) -> String {
    format!("`{}` ({})", short(&element.name), element.class.name)
}

/// Name and class of an element as Click writes them.
fn in_click(element: &Declared) -> String {
    format!("'{} :: {}'", short(&element.name), element.class.name)
}

/// Groups of ports that must agree.
#[derive(Default)]
struct Inside {
    groups: Vec<Vec<usize>>,
    /// Groups by port.
    of: HashMap<usize, Vec<usize>>,
}

impl Inside {
    fn join(&mut self, used: &Used, how: Joined, inputs: &[usize], outputs: &[usize]) {
        let number = |port: usize| used.port[port].1;
        match how {
            Joined::No => {}
            Joined::All => {
                self.group(inputs.iter().chain(outputs).copied().collect(), inputs, outputs)
            }
            Joined::Same => {
                let by_number: HashMap<u32, usize> =
                    outputs.iter().map(|&port| (number(port), port)).collect();
                for &input in inputs {
                    if let Some(&output) = by_number.get(&number(input)) {
                        self.group(vec![input, output], &[input], &[output]);
                    }
                }
            }
            // With three ports on a side, each is joined to each by way of others.
            Joined::Others if inputs.len() > 2 && outputs.len() > 2 => {
                self.join(used, Joined::All, inputs, outputs);
            }
            // Few on one side: the work is linear in the other.
            Joined::Others => {
                for &input in inputs {
                    let other = |port: &usize| number(*port) != number(input);
                    let others: Vec<usize> = outputs.iter().copied().filter(other).collect();
                    let all = others.iter().copied().chain([input]).collect();
                    self.group(all, &[input], &others);
                }
            }
        }
    }

    /// Only where there is something on both sides.
    fn group(&mut self, ports: Vec<usize>, inputs: &[usize], outputs: &[usize]) {
        if inputs.is_empty() || outputs.is_empty() {
            return;
        }
        for &port in &ports {
            self.of.entry(port).or_default().push(self.groups.len());
        }
        self.groups.push(ports);
    }
}

/// Ports by the flow code they have; the last code is of all further ports.
fn by_flow(
    flows: &[Reach],
    used: &Used,
    ports: impl Iterator<Item = usize>,
) -> Vec<(Reach, Vec<usize>)> {
    let mut groups: Vec<(Reach, Vec<usize>)> =
        flows.iter().map(|&flow| (flow, Vec::new())).collect();
    for port in ports {
        let at = (used.port[port].1 as usize).min(flows.len() - 1);
        groups[at].1.push(port);
    }
    groups
}
