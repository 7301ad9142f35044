//! From templates to flat elements: each compound in use becomes its elements, and vanishes.
//!
//! An element of a compound `c` is called `c/name`. Packets go through the ports of compounds as through
//! a tunnel: a connection joins what is before the first to what is behind the last. The size of the
//! whole was checked before; what grows here is bounded as well.
//!
//! Source: click(5).

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::class::{ClassSpec, Processing, Role};
use super::flat::{Connection, Declared};
use super::parse::REST;
use super::scope::{ClassRef, End, MOST_CONNECTIONS, Part, Template};
use super::source::{InClick, Problems, Sources, Span, short};
use super::text::{Builder, Text};
use super::vars::{Expander, Frame, Keeps};

/// Longest name of an element with those of its compounds, in bytes.
const MOST_NAME: usize = 1000;

/// Stands for a class that is not known: it has any ports and nothing is known of them.
pub(super) const UNKNOWN: ClassSpec = ClassSpec::new("", "-/-", "a/a", "x/y");

/// Elements and connections without compounds.
#[derive(Debug, Default)]
pub(super) struct Flat {
    /// Elements in the order of their declaration, those of a compound behind those of the text that it is used in.
    pub elements: Vec<Declared>,
    /// Connections in the order of their text; their kinds are not known yet.
    pub connections: Vec<Connection>,
    /// Numbers of elements by name.
    pub names: HashMap<Arc<str>, u32>,
}

/// What becomes of variables of the top.
pub(super) struct Variables<'a> {
    /// Values that replace those of definitions.
    pub overrides: &'a [(&'a str, Text)],
    /// Those that nothing defines stay as they are.
    pub keeps_unknown: bool,
    /// Definitions, with values, of those that do as well in the arguments of elements that are no compounds.
    pub kept: &'a [(String, String)],
}

/// Expands the last of `templates`.
pub(super) fn expand(
    sources: &Sources,
    templates: &[Template<'_>],
    Variables { overrides, keeps_unknown, kept }: Variables<'_>,
    problems: &mut Problems,
) -> Flat {
    let Some(top) = templates.len().checked_sub(1) else { return Flat::default() };
    let variables = Expander::new(problems);
    let mut work = Work {
        sources,
        templates,
        variables,
        keeps: Keeps { unknown: keeps_unknown, defined: !kept.is_empty() },
        flat: Flat::default(),
        wires: Vec::new(),
        compounds: 0,
        stopped: false,
    };
    let mut frame = Frame::new(None);
    let defined = templates[top].defines.iter().map(|(name, _, value)| (*name, value));
    for (name, value) in defined.chain(overrides.iter().map(|(name, value)| (*name, value))) {
        frame.define(name, value.clone());
    }
    for (name, _) in kept {
        frame.keep(name);
    }
    work.compounds = 1;
    work.compound((top, 0), "", &frame);
    if !work.stopped {
        work.join();
    }
    work.flat
}

struct Work<'t, 'p> {
    sources: &'t Sources,
    templates: &'t [Template<'t>],
    variables: Expander<'p>,
    keeps: Keeps,
    flat: Flat,
    wires: Vec<(Port, Port, Span)>,
    /// Those in use so far.
    compounds: u32,
    stopped: bool,
}

/// A port of an element, or the inner or outer side of a compound's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Port {
    Element(u32, u32),
    /// Inputs of compound n are tunnel 2n, outputs 2n + 1.
    Tunnel(u32, u32),
}

impl<'t> Work<'t, '_> {
    /// Adds what a compound of this template and number has: its own elements, then those of the compounds in it, one
    /// compound after the other.
    fn compound(&mut self, (number, own): (usize, u32), prefix: &str, frame: &Frame<'_>) {
        let template = &self.templates[number];
        let mut parts = Vec::with_capacity(template.parts.len());
        let mut used = vec![[0; 2]; template.parts.len()];
        for wire in &template.wires {
            for (side, end) in [wire.to, wire.from].into_iter().enumerate() {
                if let Some(part) = end.part {
                    used[part][side] = used[part][side].max(end.port + 1);
                }
            }
        }
        let mut inside = Vec::new();
        for (part, used) in template.parts.iter().zip(used) {
            if self.stopped {
                return;
            }
            parts.push(self.part(part, used, prefix, frame, &mut inside));
        }
        let port = |end: End, from: bool| match end.part.map(|part| parts[part]) {
            None => Port::Tunnel(2 * own + u32::from(!from), end.port),
            Some(Made::Element(element)) => Port::Element(element, end.port),
            Some(Made::Compound(inner)) => Port::Tunnel(2 * inner + u32::from(from), end.port),
        };
        let wires = template.wires.iter();
        self.wires.extend(wires.map(|w| (port(w.from, true), port(w.to, false), w.place)));
        for Inside { template, number, prefix, frame } in inside {
            if self.stopped {
                return;
            }
            self.compound((template, number), &prefix, &frame);
        }
    }

    /// Adds a part, of which so many inputs and outputs are used; a compound is left to be expanded.
    fn part<'f>(
        &mut self,
        part: &'t Part<'t>,
        used: [u32; 2],
        prefix: &str,
        frame: &'f Frame<'f>,
        inside: &mut Vec<Inside<'f>>,
    ) -> Made
    where
        't: 'f,
    {
        let name = format!("{prefix}{}", part.name);
        if name.len() > MOST_NAME {
            let words =
                format!("a name of {} bytes in its compounds, at most {MOST_NAME}", name.len());
            self.variables.problems.add(part.place, words);
            self.stopped = true;
            return Made::Element(0);
        }
        let given = part.config.unwrap_or(Span { start: part.place.end, ..part.place });
        let script = matches!(part.class, ClassRef::Built(class) if class.role == Role::Script);
        // What a compound is given chooses its form, and is put in quotes, split and compared.
        let compound = matches!(part.class, ClassRef::Template(_));
        let keeps = Keeps {
            unknown: script || self.keeps.unknown,
            defined: self.keeps.defined && !compound,
        };
        let config = self.variables.expand_for(&Text::of(self.sources, given), frame, keeps);
        let class = match self.form(part, used, &config) {
            ClassRef::Built(class) => class,
            ClassRef::Unknown => UNKNOWN,
            ClassRef::Template(number) => {
                let template = &self.templates[number];
                let mut inner = Frame::new(Some(frame.at(template.depth - 1)));
                self.bind(template, part, &config, &mut inner);
                for (name, _, value) in &template.defines {
                    inner.define(name, value.clone());
                }
                let own = self.compounds;
                self.compounds += 1;
                let prefix = format!("{name}/");
                inside.push(Inside { template: number, number: own, prefix, frame: inner });
                return Made::Compound(own);
            }
        };
        let name: Arc<str> = name.into();
        let number = u32::try_from(self.flat.elements.len()).expect("their number is bounded");
        if let Some(first) = self.flat.names.insert(Arc::clone(&name), number) {
            let first = self.flat.elements[first as usize].place;
            self.variables
                .problems
                .add(part.place, format!("`{}` is declared twice", short(&name)))
                .note(first, "an element in a compound has this name, too");
        }
        let place = part.place;
        self.flat.elements.push(Declared { name, class, config, place, inputs: 0, outputs: 0 });
        Made::Element(number)
    }

    /// The first form of a part's class whose parameters and ports fit, before one of which keywords are left out; the only
    /// one, whether they do or not.
    fn form(&mut self, part: &Part<'_>, used: [u32; 2], config: &Text) -> ClassRef {
        let mut class = part.class;
        let ClassRef::Template(first) = class else { return class };
        if self.templates[first].otherwise.is_none() {
            return class;
        }
        let (mut near, mut loosely) = (None, None);
        loop {
            let ClassRef::Template(number) = class else { return class };
            let template = &self.templates[number];
            if let Some(left) = self.takes(template, config) {
                let ports_fit = [template.inputs, template.outputs] == used;
                if ports_fit && left == 0 {
                    return class;
                }
                let found = if ports_fit { &mut loosely } else { &mut near };
                found.get_or_insert(class);
            }
            match template.otherwise {
                Some(next) => class = next,
                None => break,
            }
        }
        if let Some(class) = loosely {
            return class;
        }
        let (count, [inputs, outputs]) = (config.arguments().len(), used);
        let words = format!(
            "`{}`: no form of its class has {count} arguments, {inputs} inputs and {outputs} outputs",
            short(&part.name)
        );
        self.variables.problems.add(part.place, words);
        near.unwrap_or(ClassRef::Unknown)
    }

    /// How many keywords of a compound are not given, where it has parameters for these arguments.
    fn takes(&self, template: &Template<'_>, config: &Text) -> Option<usize> {
        let name_of = |span: Span| self.sources.text(span);
        let keywords = template.formals.iter().filter_map(|formal| formal.keyword.map(name_of));
        let (rest, keywords): (Vec<_>, Vec<_>) = keywords.partition(|keyword| *keyword == REST);
        let (mut positional, mut given) = (0, HashSet::new());
        for argument in config.arguments() {
            let (word, value) = config.split_word(argument);
            match config.as_str().get(word).filter(|word| keywords.contains(word)) {
                Some(keyword) if !value.is_empty() => {
                    given.insert(keyword);
                }
                _ => positional += 1,
            }
        }
        let formals = template.formals.iter().filter(|formal| formal.keyword.is_none()).count();
        let fits = positional == formals || positional > formals && !rest.is_empty();
        fits.then(|| keywords.len() - given.len())
    }

    /// Gives the parameters of a compound what it was called with.
    fn bind<'f>(
        &mut self,
        template: &'t Template<'t>,
        part: &Part<'_>,
        config: &Text,
        frame: &mut Frame<'f>,
    ) where
        't: 'f,
    {
        let name_of = |span: Span| self.sources.text(span);
        let keyword = |range: &Range<usize>| {
            let (word, value) = config.split_word(range.clone());
            let is_keyword = |said: &&str| *said != REST && !value.is_empty();
            let said = config.as_str().get(word).filter(is_keyword)?;
            let known =
                template.formals.iter().position(|f| f.keyword.map(name_of) == Some(said))?;
            Some((known, value))
        };
        let mut values: Vec<Option<Text>> = vec![None; template.formals.len()];
        let positions = |f: &usize| template.formals[*f].keyword.is_none();
        let mut positional = (0..template.formals.len()).filter(positions);
        let count = positional.clone().count();
        let class = short(&part.name);
        let rest = template.formals.iter().position(|f| f.keyword.map(name_of) == Some(REST));
        let mut left = Builder::default();
        if let Some(rest) = rest {
            values[rest] = Some(config.slice(0..0));
        }
        for argument in config.arguments() {
            let at = config.span(argument.clone());
            let (formal, range) = match keyword(&argument) {
                // Of a keyword that is given again the last value counts, as with elements.
                Some((formal, range)) => {
                    if values[formal].is_some() {
                        let name = template.formals[formal].keyword.map_or("", name_of);
                        let words = format!(
                            "compound `{class}`: {} is given twice: the last one counts",
                            short(name)
                        );
                        self.variables.problems.warn(at, words, InClick::Silent);
                    }
                    (formal, range)
                }
                None => match positional.next() {
                    Some(formal) => (formal, argument),
                    None if rest.is_some() => {
                        if !left.is_empty() {
                            left.put(", ", at);
                        }
                        left.copy(config, argument);
                        continue;
                    }
                    None => {
                        let words =
                            format!("compound `{class}`: too many arguments: at most {count}");
                        let keywords =
                            template.formals.iter().filter_map(|f| f.keyword.map(name_of));
                        let word = config.words(argument).next().unwrap_or_default();
                        let near = self.variables.problems.near(&config.as_str()[word], keywords);
                        self.variables.problems.add(at, words).maybe(near);
                        break;
                    }
                },
            };
            values[formal] = Some(config.slice(range));
        }
        if let Some(rest) = rest.filter(|_| !left.is_empty()) {
            values[rest] = Some(left.build(part.place));
        }
        for formal in positional {
            let name = short(name_of(template.formals[formal].variable));
            self.variables
                .problems
                .add(part.place, format!("compound `{class}`: argument `{name}` is missing"))
                .note(template.formals[formal].variable, "the parameter is declared here");
            // Told: what uses it need not be.
            values[formal] = Some(config.slice(0..0));
        }
        for (formal, value) in template.formals.iter().zip(values) {
            frame.bind(&self.sources.text(formal.variable)[1..], value);
        }
    }

    /// Follows all tunnels from element to element.
    fn join(&mut self) {
        let mut behind: HashMap<Port, Vec<Port>> = HashMap::new();
        for &(from, to, _) in &self.wires {
            if matches!(from, Port::Tunnel(..)) {
                behind.entry(from).or_default().push(to);
            }
        }
        let mut seen = HashSet::new();
        let mut steps = 0;
        for &(from, to, place) in &self.wires {
            let Port::Element(element, output) = from else { continue };
            let mut passed = HashSet::new();
            let mut next = vec![to];
            while let Some(port) = next.pop() {
                steps += 1;
                let connections = self.flat.connections.len() as u64;
                if steps > 4 * MOST_CONNECTIONS || connections > MOST_CONNECTIONS {
                    let (most, steps) = (MOST_CONNECTIONS, 4 * MOST_CONNECTIONS);
                    let words = format!(
                        "more than {most} connections, or {steps} ports on paths through compounds"
                    );
                    self.variables.problems.add(place, words);
                    self.flat.connections.clear();
                    return;
                }
                match port {
                    Port::Element(to, input) => {
                        if seen.insert((element, output, to, input)) {
                            let kind = Processing::Agnostic;
                            let from = element;
                            let connection = Connection { from, output, to, input, kind, place };
                            self.flat.connections.push(connection);
                        }
                    }
                    Port::Tunnel(..) => {
                        if passed.insert(port) {
                            next.extend(behind.get(&port).into_iter().flatten().rev());
                        }
                    }
                }
            }
        }
    }
}

/// A compound that is yet to be expanded.
struct Inside<'f> {
    template: usize,
    /// Its number.
    number: u32,
    prefix: String,
    frame: Frame<'f>,
}

/// What a part became.
#[derive(Clone, Copy)]
enum Made {
    Element(u32),
    Compound(u32),
}
