//! A checked configuration: elements with their arguments, and the connections between them.
//!
//! This is what a plan is made of. Names are whole (`compound/element`), ports are numbers, each
//! connection pushes or pulls. Its text, [`Configuration::flatconfig`], reads as the same again.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use super::args::Args;
use super::class::{ClassSpec, Processing};
use super::lex::{PieceKind, Pieces, is_blank};
use super::open_policy::OpenPolicy;
use super::parse::Requirement;
use super::source::{Errors, Place, Problems, Report, Sources, Span};
use super::text::Text;

/// An element of a configuration.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its whole name.
    pub name: Arc<str>,
    /// Its class.
    pub class: ClassSpec,
    /// Its arguments, as written.
    pub config: Text,
    /// Where it is declared.
    pub place: Span,
    /// How many inputs it has.
    pub inputs: u32,
    /// How many outputs it has.
    pub outputs: u32,
}

/// A connection of two elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Number of the element that packets leave.
    pub from: u32,
    /// Output of the connection.
    pub output: u32,
    /// Number of the element that they reach.
    pub to: u32,
    /// Input of the connection.
    pub input: u32,
    /// Push or pull; agnostic only before it was checked.
    pub kind: Processing,
    /// Where it stands.
    pub place: Span,
}

/// A configuration without compounds, known to be right but for the arguments of its elements.
#[derive(Clone, Debug)]
pub struct Configuration {
    pub(super) sources: Sources,
    pub(super) required: Vec<Requirement>,
    /// Names and values of definitions that were kept.
    pub(super) definitions: Vec<(String, String)>,
    pub(super) elements: Vec<Declared>,
    pub(super) connections: Vec<Connection>,
    pub(super) names: HashMap<Arc<str>, u32>,
    /// What its elements may open.
    pub(super) policy: OpenPolicy,
    /// What was warned of when it was read.
    pub(super) warned: Vec<Report>,
}

impl Configuration {
    /// Its text as it was given, without libraries.
    pub fn text(&self) -> &str {
        self.sources.whole(0)
    }

    /// What it requires besides libraries: kinds, and names where there are such.
    pub fn requirements(&self) -> &[(&'static str, &'static str)] {
        &self.required
    }

    /// Its elements, by number.
    pub fn elements(&self) -> &[Declared] {
        &self.elements
    }

    /// Its connections.
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// The element of a whole name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).map(|&number| number as usize)
    }

    /// The element that `name` means to element `from`: of its own compound, or of one around that.
    pub fn find_from(&self, from: usize, name: &str) -> Option<usize> {
        let mut around: &str = &self.elements[from].name;
        while let Some((compound, _)) = around.rsplit_once('/') {
            if let Some(found) = self.find(&format!("{compound}/{name}")) {
                return Some(found);
            }
            around = compound;
        }
        self.find(name)
    }

    /// Arguments of an element, to be read; errors go to `problems`.
    pub fn args<'a>(&'a self, element: usize, problems: &'a mut Problems) -> Args<'a> {
        let element = &self.elements[element];
        let args = Args::new(&element.name, element.class.name, &element.config, problems);
        args.ignoring(element.class.ignored)
    }

    /// What its elements may open.
    pub fn policy(&self) -> &OpenPolicy {
        &self.policy
    }

    /// Where something stands, as people count.
    pub fn place(&self, span: Span) -> Place {
        self.sources.place(span)
    }

    /// In words, what was warned of when it was read, and since.
    pub fn warnings(&self, problems: &Problems) -> Vec<Report> {
        let mut warned = self.warned.clone();
        warned.extend(problems.warnings(&self.sources));
        warned
    }

    /// Errors reported since, in words.
    pub fn errors(&self, problems: Problems) -> Errors {
        problems.errors(&self.sources)
    }

    /// Its text: what it requires, definitions that were kept, declarations, then connections, in chains.
    pub fn flatconfig(&self) -> String {
        let mut text = String::new();
        let requirement = |(kind, name): &Requirement| match *name {
            "" => (*kind).to_owned(),
            name => format!("{kind} \"{name}\""),
        };
        if !self.required.is_empty() {
            let all: Vec<_> = self.required.iter().map(requirement).collect();
            let _ = writeln!(text, "require({});\n", all.join(", "));
        }
        if !self.definitions.is_empty() {
            let definition = |(name, value): &(String, String)| format!("${name} {value}");
            let all: Vec<_> = self.definitions.iter().map(definition).collect();
            let _ = writeln!(text, "define({});\n", all.join(", "));
        }
        for element in &self.elements {
            let config = uncommented(element.config.as_str());
            let config = config.trim_matches(|c: char| u8::try_from(c).is_ok_and(is_blank));
            let (open, close) = if config.is_empty() { ("", "") } else { ("(", ")") };
            let class = element.class.name;
            let _ = writeln!(text, "{} :: {class}{open}{config}{close};", element.name);
        }
        if !self.elements.is_empty() {
            text.push('\n');
        }
        self.chains(&mut text);
        text
    }

    /// Its connections, as Click writes them: one follows another where it leaves output 0 of the element whose input 0 that
    /// enters, and of several the one that enters an input 0.
    fn chains(&self, text: &mut String) {
        // In this order, so that the text reads as the same again.
        let mut wires = self.connections.clone();
        wires.sort_by_key(|wire| (wire.from, wire.output, wire.to, wire.input));
        let name = |number: u32| &self.elements[number as usize].name;
        // Connections by the element whose output 0 they leave.
        let mut leaving: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, wire) in wires.iter().enumerate().filter(|(_, wire)| wire.output == 0) {
            leaving.entry(wire.from).or_default().push(at);
        }
        let mut next = vec![None; wires.len()];
        let mut follows = vec![false; wires.len()];
        for (at, wire) in wires.iter().enumerate().filter(|(_, wire)| wire.input == 0) {
            let behind = leaving.get(&wire.to).into_iter().flatten().copied();
            let free = || behind.clone().filter(|&other| other != at && !follows[other]);
            let best = free().find(|&other| wires[other].input == 0).or_else(|| free().next_back());
            if let Some(best) = best {
                follows[best] = true;
                next[at] = Some(best);
            }
        }
        let mut written = vec![false; wires.len()];
        // What is left then is in circles.
        for circles in [false, true] {
            for first in 0..wires.len() {
                if written[first] || follows[first] && !circles {
                    continue;
                }
                text.push_str(name(wires[first].from));
                if wires[first].output > 0 {
                    let _ = write!(text, " [{}]", wires[first].output);
                }
                let mut at = Some(first);
                while let Some(wire) = at.filter(|&at| !written[at]) {
                    text.push_str(if wire == first { " -> " } else { "\n    -> " });
                    if wires[wire].input > 0 {
                        let _ = write!(text, "[{}] ", wires[wire].input);
                    }
                    text.push_str(name(wires[wire].to));
                    written[wire] = true;
                    at = next[wire];
                }
                text.push_str(";\n");
            }
        }
    }
}

/// A configuration string with a space for each comment.
pub(super) fn uncommented(config: &str) -> Cow<'_, str> {
    if !Pieces::new(config, 0).any(|piece| piece.kind == PieceKind::Comment) {
        return Cow::Borrowed(config);
    }
    let mut text = String::with_capacity(config.len());
    for piece in Pieces::new(config, 0) {
        text +=
            if piece.kind == PieceKind::Comment { " " } else { &config[piece.start..piece.end] };
    }
    Cow::Owned(text)
}
