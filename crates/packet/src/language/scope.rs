//! From statements to templates: what each name means, once for each body of text.
//!
//! A template is the top of a configuration or the body of a compound, with its elements numbered, its
//! connections between numbered ports, and each element's class known: a built-in one, or an earlier
//! template. Classes are visible from the end of their definition to the end of the enclosing body, so
//! none can contain itself. What is wrong is reported here once, however often a compound is used; how
//! large the whole would become is known before anything is expanded.
//!
//! A class may have several forms, of which arguments and used ports select one when it is expanded.
//!
//! Source: click(5). A class that is declared again is the later one from there on. Differs: elements may be used before
//! they are declared; names of outputs (`ttl[expired]`) stand for their numbers.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::class::{ClassSpec, Classes};
use super::parse::{
    Body, Chain, Class, Formal, Item, MOST_DEPTH, Otherwise, PortItem, Ports, Statement, What,
};
use super::source::{InClick, Problem, Problems, Sources, Span, short};
use super::text::Text;

/// Elements of a configuration at most, compounds counted as well.
pub(super) const MOST_ELEMENTS: u64 = 32_768;

/// Connections of a configuration at most.
pub(super) const MOST_CONNECTIONS: u64 = 262_144;

/// A body with its names resolved.
#[derive(Debug)]
pub(super) struct Template<'s> {
    /// How many bodies its text stands in: 0 for the top.
    pub depth: usize,
    /// Its parameters.
    pub formals: Vec<Formal>,
    /// Its definitions: name without `$`, where, and the value.
    pub defines: Vec<(&'s str, Span, Text)>,
    /// Its elements, by number.
    pub parts: Vec<Part<'s>>,
    /// Its connections.
    pub wires: Vec<Wire>,
    /// Inputs that it has as a compound.
    pub inputs: u32,
    /// Outputs that it has as a compound.
    pub outputs: u32,
    /// What the class is where its arguments or ports do not fit this one.
    pub otherwise: Option<ClassRef>,
    /// All of it could be read and resolved: what it does not have is not there.
    whole: bool,
    /// What it expands to.
    size: Size,
}

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    elements: u64,
    wires: u64,
    levels: usize,
}

/// An element of a template.
#[derive(Debug)]
pub(super) struct Part<'s> {
    /// Its name in this body.
    pub name: Cow<'s, str>,
    /// What it is.
    pub class: ClassRef,
    /// Configuration between its parentheses.
    pub config: Option<Span>,
    /// Where it is declared.
    pub place: Span,
}

/// What an element is.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClassRef {
    /// An element of the program.
    Built(ClassSpec),
    /// A compound, by number of its template.
    Template(usize),
    /// Class that is not known, which was reported.
    Unknown,
}

/// A connection of a template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wire {
    /// Where packets come from.
    pub from: End,
    /// Where they go to.
    pub to: End,
    /// Where it stands.
    pub place: Span,
}

/// A port of a part, or of the template itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct End {
    /// Number of the part; `None` is what is outside: an input as the source of packets, an output as
    /// where they go.
    pub part: Option<usize>,
    /// Number of the port.
    pub port: u32,
}

/// Resolves all names. The last template is the top; `None` where what is wrong with it leaves nothing
/// to expand.
pub(super) fn resolve<'s>(
    sources: &'s Sources,
    statements: Vec<Statement>,
    classes: &'s dyn Classes,
    problems: &mut Problems,
) -> Option<Vec<Template<'s>>> {
    let mut resolver = Resolver {
        sources,
        classes,
        problems,
        templates: Vec::new(),
        visible: vec![HashMap::new()],
        later: HashMap::new(),
        spread: 0,
        too_large: false,
    };
    let top = resolver.body(None, 0, Vec::new(), statements, None, true);
    resolver.templates.push(top);
    let fits = !resolver.too_large;
    fits.then_some(resolver.templates)
}

struct Resolver<'s, 'p> {
    sources: &'s Sources,
    classes: &'s dyn Classes,
    problems: &'p mut Problems,
    /// Those that are done.
    templates: Vec<Template<'s>>,
    /// Classes by name, a map for each open body.
    visible: Vec<HashMap<&'s str, ClassRef>>,
    /// Classes that are declared somewhere, for hints.
    later: HashMap<&'s str, Span>,
    /// Ports that stood beside arrows so far.
    spread: u64,
    too_large: bool,
}

/// A body in the making.
struct Scope<'s> {
    inside: bool,
    names: HashMap<Cow<'s, str>, usize>,
    /// Numbers tried last for names made up of a class.
    last: HashMap<String, usize>,
    parts: Vec<Part<'s>>,
    /// Connections whose ends are resolved when all elements are known.
    hops: Vec<Hop<'s>>,
    defines: Vec<(&'s str, Span, Text)>,
}

/// One arrow.
struct Hop<'s> {
    from: Vec<Side<'s>>,
    to: Vec<Side<'s>>,
    pairs: bool,
    place: Span,
}

/// An element on one side of an arrow, with its ports there.
struct Side<'s> {
    what: Named<'s>,
    span: Span,
    ports: Option<Ports>,
}

/// An element, known or yet to be declared.
#[derive(Clone, Copy)]
enum Named<'s> {
    Part(usize),
    Name(&'s str),
    /// Element that is wrong, which was reported.
    Nothing,
}

/// The elements and ports that one side of an arrow stands for.
struct Spread {
    ends: Vec<End>,
    /// Where in `ends` more ports of the same element may be put, if anywhere.
    grows: Option<usize>,
}

impl<'s> Resolver<'s, '_> {
    fn text(&self, span: Span) -> &'s str {
        self.sources.text(span)
    }

    fn body(
        &mut self,
        name: Option<Span>,
        depth: usize,
        formals: Vec<Formal>,
        statements: Vec<Statement>,
        span: Option<Span>,
        whole: bool,
    ) -> Template<'s> {
        let reported = self.problems.count();
        let mut scope = Scope {
            inside: depth > 0,
            names: HashMap::new(),
            last: HashMap::new(),
            parts: Vec::new(),
            hops: Vec::new(),
            defines: Vec::new(),
        };
        let (mut variables, mut keywords) = (HashMap::new(), HashMap::new());
        for formal in &formals {
            self.variable(&mut variables, formal.variable);
            let first = formal.keyword.and_then(|at| keywords.insert(self.text(at), at));
            if let (Some(at), Some(first)) = (formal.keyword, first) {
                let words = format!("keyword `{}` is declared twice", short(self.text(at)));
                self.problems.add(at, words).note(first, "first declared here");
            }
        }
        for statement in statements {
            match statement {
                Statement::Chain(chain) => self.chain(&mut scope, chain, depth),
                Statement::Class { name, class } => self.class_statement(name, class, depth),
                Statement::Define(config) => self.define(&mut scope, &mut variables, config),
            }
        }
        let wires = self.wires(&scope);
        // What could not be read may have the port that seems to be left out.
        let sure = span.filter(|_| whole && self.problems.count() == reported);
        let (inputs, outputs) = self.outside(&wires, sure);
        let size = self.size(name.or(span), &scope.parts, wires.len());
        let Scope { parts, defines, .. } = scope;
        let whole = true;
        let otherwise = None;
        Template { depth, formals, defines, parts, wires, inputs, outputs, otherwise, whole, size }
    }

    /// Size that a body expands to; reported where it is too large.
    fn size(&mut self, at: Option<Span>, parts: &[Part<'_>], wires: usize) -> Size {
        let mut size = Size { elements: 1, wires: wires as u64, levels: 1 };
        for part in parts {
            let inner = match part.class {
                // The largest of its forms.
                ClassRef::Template(number) => self.templates[number].size,
                _ => Size { elements: 1, wires: 0, levels: 0 },
            };
            size.elements = size.elements.saturating_add(inner.elements);
            size.wires = size.wires.saturating_add(inner.wires);
            size.levels = size.levels.max(inner.levels + 1);
        }
        let at = at.or_else(|| parts.last().map(|part| part.place)).unwrap_or_default();
        let too_much = [
            (size.elements, MOST_ELEMENTS, "elements"),
            (size.wires, MOST_CONNECTIONS, "connections"),
            (size.levels as u64, MOST_DEPTH as u64, "levels of compounds"),
        ];
        for (got, most, what) in too_much {
            // Once it is told of a class, it is true of all that use it.
            if got > most && !self.too_large {
                self.problems
                    .add(at, format!("this expands to {got} {what}, at most {most}"))
                    .hint("use fewer compounds in compounds");
                self.too_large = true;
            }
        }
        size
    }

    /// Name of a variable, reported where it is one of the scope already.
    fn variable(&mut self, known: &mut HashMap<&'s str, Span>, at: Span) {
        let name = &self.text(at)[1..];
        if let Some(first) = known.insert(name, at) {
            self.problems
                .add(at, format!("`${}` is defined twice", short(name)))
                .note(first, "first defined here");
        }
    }

    fn define(&mut self, scope: &mut Scope<'s>, known: &mut HashMap<&'s str, Span>, config: Span) {
        let text = Text::of(self.sources, config);
        for argument in text.arguments() {
            let (first, value) = text.split_word(argument.clone());
            let name = text.span(first);
            let plain = |name: &str| !name.is_empty() && name.bytes().all(super::lex::is_name);
            if !self.text(name).strip_prefix('$').is_some_and(plain) {
                let words = format!("expected `$NAME VALUE`, found `{}`", short(self.text(name)));
                self.problems.add(text.span(argument), words);
                continue;
            }
            self.variable(known, name);
            scope.defines.push((&self.text(name)[1..], name, text.slice(value)));
        }
    }

    fn class_statement(&mut self, name: Span, class: Class, depth: usize) {
        let text = self.text(name);
        self.later.entry(text).or_insert(name);
        // Found before it is declared: inside, the name still means the class before.
        let class = self.class(class, Some(name), depth);
        let map = self.visible.last_mut().expect("a body is open");
        map.insert(text, class);
    }

    /// What a class is; a compound becomes a template.
    fn class(&mut self, class: Class, name: Option<Span>, depth: usize) -> ClassRef {
        match class {
            Class::Named(at) => self.find(self.text(at)).unwrap_or_else(|| {
                self.unknown_class(at);
                ClassRef::Unknown
            }),
            Class::Compound(body) => {
                let (mut forms, mut next) = (Vec::new(), *body);
                let mut otherwise = loop {
                    let behind = next.otherwise.take();
                    match behind {
                        Some(Otherwise::Body(body)) => {
                            forms.push(std::mem::replace(&mut next, *body));
                        }
                        Some(Otherwise::Before(at)) => break Some(self.before(name, at)),
                        None => break None,
                    }
                };
                // The last form first: each has the number of the one behind it.
                let mut class = self.form(next, otherwise, name, depth);
                while let Some(form) = forms.pop() {
                    otherwise = Some(class);
                    class = self.form(form, otherwise, name, depth);
                }
                class
            }
        }
    }

    /// A form of a compound as a template, and what the class is where this form does not fit.
    fn form(
        &mut self,
        form: Body,
        otherwise: Option<ClassRef>,
        name: Option<Span>,
        depth: usize,
    ) -> ClassRef {
        let Body { span, formals, statements, whole, .. } = form;
        self.visible.push(HashMap::new());
        let reported = self.problems.count();
        let mut template = self.body(name, depth + 1, formals, statements, Some(span), whole);
        template.whole = whole && self.problems.count() == reported;
        template.otherwise = otherwise;
        if let Some(ClassRef::Template(other)) = otherwise {
            let (own, other) = (&mut template.size, self.templates[other].size);
            own.elements = own.elements.max(other.elements);
            own.wires = own.wires.max(other.wires);
            own.levels = own.levels.max(other.levels);
        }
        self.visible.pop();
        self.templates.push(template);
        ClassRef::Template(self.templates.len() - 1)
    }

    /// What a class that is extended meant before.
    fn before(&mut self, name: Option<Span>, at: Span) -> ClassRef {
        let Some(name) = name else {
            self.problems.add(at, "a class without a name extends nothing");
            return ClassRef::Unknown;
        };
        self.find(self.text(name)).unwrap_or_else(|| {
            let words = format!("there is no class `{}` to extend", short(self.text(name)));
            self.problems.add(at, words);
            ClassRef::Unknown
        })
    }

    fn find(&self, name: &str) -> Option<ClassRef> {
        let declared = self.visible.iter().rev().find_map(|map| map.get(name));
        declared.copied().or_else(|| self.classes.find(name).map(ClassRef::Built))
    }

    fn unknown_class(&mut self, at: Span) {
        let name = self.text(at);
        let hint = self.near_class(name);
        let words = format!("unknown element class `{}`", short(name));
        let later = self.later.get(name).copied();
        let in_click = InClick::Reading(format!("unknown element class '{}'", short(name)));
        said_elsewhere(self.problems.add(at, words).maybe(hint).in_click(in_click), later);
    }

    fn near_class(&mut self, name: &str) -> Option<String> {
        let declared = self.visible.iter().flat_map(|map| map.keys().copied());
        let mut names = Vec::new();
        self.classes.each(&mut |name| names.push(name));
        self.problems.near(name, names.into_iter().chain(declared))
    }

    /// Declares the elements of a chain, and keeps its arrows.
    fn chain(&mut self, scope: &mut Scope<'s>, chain: Chain, depth: usize) {
        let Chain { groups, arrows } = chain;
        let alone = groups.len() == 1;
        let last_group = groups.len() - 1;
        let mut before: Option<(Vec<Side<'s>>, Span)> = None;
        let mut arrows = arrows.into_iter();
        for (n, group) in groups.into_iter().enumerate() {
            let place = group[0].span.to(group[group.len() - 1].span);
            if alone && group.len() > 1 {
                self.declare_many(scope, group, depth);
                return;
            }
            let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
            for item in group {
                let what = self.item(scope, item.what, item.span, depth);
                self.useless(item.inputs.as_ref().filter(|_| n == 0), "before the first");
                self.useless(item.outputs.as_ref().filter(|_| n == last_group), "behind the last");
                inputs.push(Side { what, span: item.span, ports: item.inputs });
                let what = item.leaves.map_or(what, |(leaves, ..)| Named::Name(self.text(leaves)));
                outputs.push(Side { what, span: item.span, ports: item.outputs });
            }
            if let Some((from, first)) = before.take() {
                let (_, pairs) = arrows.next().expect("an arrow less than groups");
                let place = first.to(place);
                scope.hops.push(Hop { from, to: inputs, pairs, place });
            }
            before = Some((outputs, place));
        }
        // An element that stands alone must still be one.
        if let (true, Some((sides, place))) = (alone, before) {
            scope.hops.push(Hop { from: sides, to: Vec::new(), pairs: true, place });
        }
    }

    /// Reports ports that no arrow joins.
    fn useless(&mut self, ports: Option<&Ports>, place: &str) {
        if let Some(ports) = ports {
            let words = format!("ports {place} element of a chain");
            self.problems.add(ports.span, words).hint("they join nothing; leave them out");
        }
    }

    /// `a, b, c :: Class(args)`: all are of the class; others may stand before them, `d :: Other, a, b :: Class`.
    fn declare_many(&mut self, scope: &mut Scope<'s>, group: Vec<Item>, depth: usize) {
        let place = group[0].span.to(group[group.len() - 1].span);
        let mut waiting: Vec<(Span, Span)> = Vec::new();
        let mut declares = false;
        for item in group {
            self.useless(item.inputs.as_ref(), "before a declared");
            self.useless(item.outputs.as_ref(), "behind a declared");
            declares = match item.what {
                What::Named(name) => {
                    waiting.push((name, item.span));
                    false
                }
                What::Made { name: None, .. } => false,
                What::Made { name: Some(name), class, config } => {
                    let class = self.class(class, None, depth);
                    for (name, span) in waiting.drain(..) {
                        self.declare(scope, name, class, config, span);
                    }
                    self.declare(scope, name, class, config, item.span);
                    true
                }
            };
        }
        if !declares {
            self.problems
                .add(place, "elements in a row that nothing is connected to")
                .hint("write `a, b :: Class` to declare them, or an arrow");
        }
    }

    /// The element that stands in a chain, declared where it is made there.
    fn item(&mut self, scope: &mut Scope<'s>, what: What, span: Span, depth: usize) -> Named<'s> {
        match what {
            What::Named(at) => {
                let name = self.text(at);
                match self.find(name) {
                    Some(class) => self.anonymous(scope, name, class, None, span),
                    None => Named::Name(name),
                }
            }
            What::Made { name, class, config } => {
                let called = match &class {
                    Class::Named(at) => self.text(*at),
                    Class::Compound(_) => "",
                };
                let class = self.class(class, None, depth);
                match name {
                    Some(name) => self.declare(scope, name, class, config, span),
                    None => self.anonymous(scope, called, class, config, span),
                }
            }
        }
    }

    fn declare(
        &mut self,
        scope: &mut Scope<'s>,
        at: Span,
        class: ClassRef,
        config: Option<Span>,
        place: Span,
    ) -> Named<'s> {
        let name = self.text(at);
        if matches!(name, "input" | "output") {
            self.problems
                .add(at, format!("`{name}` is where packets enter or leave a compound"))
                .hint("choose another name");
            return Named::Nothing;
        }
        if self.find(name).is_some() {
            self.problems
                .add(at, format!("`{}` is a class, no name for an element", short(name)))
                .hint("choose another name, often in small letters");
            return Named::Nothing;
        }
        if let Some(&first) = scope.names.get(name) {
            let first = scope.parts[first].place;
            let shown = short(name);
            let before = self.sources.place(first);
            let in_click = format!(
                "redeclaration of element '{shown}'\n{}:{}: element '{shown}' previously declared here",
                before.file, before.line
            );
            self.problems
                .add(at, format!("`{shown}` is declared twice"))
                .in_click(InClick::Reading(in_click))
                .note(first, "first declared here");
            return Named::Nothing;
        }
        scope.add(Part { name: Cow::Borrowed(name), class, config, place })
    }

    /// An element without name is called by its class and a number.
    fn anonymous(
        &mut self,
        scope: &mut Scope<'s>,
        class_name: &str,
        class: ClassRef,
        config: Option<Span>,
        place: Span,
    ) -> Named<'s> {
        // All numbers between the last one and where that began are still taken.
        let last = scope.last.get(class_name).copied().unwrap_or(0);
        let mut number = (scope.parts.len() + 1).max(last + 1);
        let name = loop {
            let name = format!("{class_name}@{number}");
            if !scope.names.contains_key(name.as_str()) {
                break name;
            }
            number += 1;
        };
        scope.last.insert(class_name.to_owned(), number);
        scope.add(Part { name: Cow::Owned(name), class, config, place })
    }

    /// The connections of all arrows, each once.
    fn wires(&mut self, scope: &Scope<'s>) -> Vec<Wire> {
        let mut wires = Vec::new();
        let mut seen = HashSet::new();
        for hop in &scope.hops {
            let from = self.spread(scope, &hop.from, false, hop.to.is_empty());
            let to = self.spread(scope, &hop.to, true, false);
            let ends = [&from, &to].into_iter().flatten().map(|side| side.ends.len() as u64);
            self.spread += ends.sum::<u64>();
            if self.spread > 4 * MOST_CONNECTIONS {
                let words = format!("more than {} ports in all arrows", 4 * MOST_CONNECTIONS);
                self.problems.add(hop.place, words);
                self.too_large = true;
                return wires;
            }
            // Lone elements are looked up and joined to nothing.
            let (Some(from), Some(to)) = (from, to) else { continue };
            if hop.to.is_empty() {
                continue;
            }
            let Some((from, to)) = self.pair(hop, from, to) else { continue };
            // Those that were written were looked at; those that were added may be too many.
            let good = from.iter().all(|&end| self.exists(scope, end, false, hop.place))
                && to.iter().all(|&end| self.exists(scope, end, true, hop.place));
            if !good {
                continue;
            }
            if (wires.len() + from.len().max(to.len())) as u64 > MOST_CONNECTIONS {
                let words = format!("more than {MOST_CONNECTIONS} connections");
                self.problems.add(hop.place, words);
                self.too_large = true;
                return wires;
            }
            for n in 0..from.len().max(to.len()) {
                // A side of one element is joined to each of the other's.
                let (from, to) = (from[n.min(from.len() - 1)], to[n.min(to.len() - 1)]);
                if seen.insert((from, to)) {
                    wires.push(Wire { from, to, place: hop.place });
                }
            }
        }
        wires
    }

    /// Both sides made equally long, or one of them of length 1.
    fn pair(&mut self, hop: &Hop<'_>, from: Spread, to: Spread) -> Option<(Vec<End>, Vec<End>)> {
        let (left, right) = (from.ends.len(), to.ends.len());
        if !hop.pairs {
            if left > 1 && right > 1 {
                self.problems
                    .add(hop.place, format!("{left} outputs to {right} inputs: which to which?"))
                    .hint("write `=>` to join them in order");
                return None;
            }
            return Some((from.ends, to.ends));
        }
        let grown = match (left < right, left > right) {
            (true, _) => from.grow(right).map(|ends| (ends, to.ends)),
            (_, true) => to.grow(left).map(|ends| (from.ends, ends)),
            _ => Some((from.ends, to.ends)),
        };
        if grown.is_none() {
            self.problems
                .add(hop.place, format!("`=>` joins {left} outputs to {right} inputs"))
                .hint("it joins them in order: there must be as many on each side");
        }
        grown
    }

    /// All ports of one side of an arrow. `None` where something is wrong with it.
    fn spread(
        &mut self,
        scope: &Scope<'s>,
        sides: &[Side<'s>],
        inputs: bool,
        lone: bool,
    ) -> Option<Spread> {
        let mut spread = Spread { ends: Vec::new(), grows: None };
        let mut good = true;
        for side in sides {
            let Some(part) = self.part(scope, side, inputs) else {
                good = false;
                continue;
            };
            let Some(ports) = &side.ports else {
                let end = End { part, port: 0 };
                spread.ends.push(end);
                // A lone element is joined to nothing: it need not have the port.
                good &= lone || self.exists(scope, end, inputs, side.span);
                if sides.len() == 1 {
                    spread.grows = Some(0);
                }
                continue;
            };
            for item in &ports.list {
                let Some((first, last)) = self.numbers(scope, part, *item, inputs) else {
                    good = false;
                    continue;
                };
                if spread.ends.len() as u64 + u64::from(last - first) > MOST_CONNECTIONS {
                    self.problems.add(ports.span, format!("more than {MOST_CONNECTIONS} ports"));
                    return None;
                }
                spread.ends.extend((first..=last).map(|port| End { part, port }));
                good &= self.exists(scope, End { part, port: last }, inputs, ports.span);
            }
            if ports.more {
                if spread.grows.is_some() {
                    self.problems.add(ports.span, "two lists of ports without end");
                    good = false;
                }
                spread.grows = spread.ends.len().checked_sub(1);
            }
        }
        good.then_some(spread)
    }

    /// The part that is meant; `Some(None)` is the outside.
    fn part(&mut self, scope: &Scope<'s>, side: &Side<'s>, inputs: bool) -> Option<Option<usize>> {
        let name = match side.what {
            Named::Part(part) => return Some(Some(part)),
            Named::Nothing => return None,
            Named::Name(name) => name,
        };
        if let Some(&part) = scope.names.get(name) {
            return Some(Some(part));
        }
        if !matches!(name, "input" | "output") {
            self.unknown_element(scope, name, side.span);
            return None;
        }
        if !scope.inside {
            self.problems.add(side.span, format!("`{name}` outside of a compound")).hint(
                "`input` and `output` are the ports of the compound whose `{ }` they stand in",
            );
            return None;
        }
        if inputs == (name == "input") {
            let words = match inputs {
                true => "packets cannot go to `input`: they come from there",
                false => "packets cannot come from `output`: they go there",
            };
            self.problems.add(side.span, words);
            return None;
        }
        Some(None)
    }

    fn unknown_element(&mut self, scope: &Scope<'s>, name: &str, at: Span) {
        if name.starts_with("group@") {
            let what = if name.ends_with('i') {
                "input: begin a chain in it with `[0] ->`"
            } else {
                "output: end a chain in it with `-> [0]`"
            };
            self.problems.add(at, format!("this group has no {what}"));
            return;
        }
        let names = scope.names.keys().map(AsRef::as_ref);
        let hint = self.problems.near(name, names).or_else(|| self.near_class(name));
        let words = format!("no element is called `{}`", short(name));
        let later = self.later.get(name).copied();
        let in_click = InClick::Reading(format!("undeclared element '{}'", short(name)));
        said_elsewhere(self.problems.add(at, words).maybe(hint).in_click(in_click), later);
    }

    /// First and last port.
    fn numbers(
        &mut self,
        scope: &Scope<'s>,
        part: Option<usize>,
        item: PortItem,
        inputs: bool,
    ) -> Option<(u32, u32)> {
        let (at, numbers) = match item {
            PortItem::Numbers(first, last, at) => (at, Some((first, last))),
            PortItem::Named(at) => (at, None),
        };
        let class = part.map(|part| scope.parts[part].class);
        let (what, name) = (if inputs { "input" } else { "output" }, short(self.text(at)));
        match (class, numbers) {
            (Some(ClassRef::Built(class)), None) if !inputs => {
                let names = class.output_names;
                let found = names.iter().position(|known| *known == self.text(at));
                if let Some(number) = found.and_then(|number| u32::try_from(number).ok()) {
                    return Some((number, number));
                }
                let hint = self.problems.near(self.text(at), names.iter().copied());
                let hint = hint.or_else(|| match names {
                    [] => None,
                    _ => Some(format!("its outputs are {}", names.join(", "))),
                });
                let words = format!("`{}` has no output `{name}`", class.name);
                self.problems.add(at, words).maybe(hint);
                return None;
            }
            (Some(ClassRef::Unknown), None) => return None,
            (_, None) => {
                let whose = if part.is_none() || !inputs { "of a compound" } else { "of inputs" };
                let words = format!("no {what} `{name}`: ports {whose} have numbers only");
                self.problems.add(at, words);
                return None;
            }
            _ => {}
        }
        numbers
    }

    /// A port is there, as far as that can be known of a compound; reported where it is not.
    fn exists(&mut self, scope: &Scope<'s>, end: End, inputs: bool, at: Span) -> bool {
        let Some(part) = end.part else { return true };
        let ClassRef::Template(number) = scope.parts[part].class else { return true };
        let template = &self.templates[number];
        // Which form it is depends on its ports.
        if template.otherwise.is_some() {
            return true;
        }
        let count = if inputs { template.inputs } else { template.outputs };
        if end.port >= count && template.whole {
            let (name, port) = (short(&scope.parts[part].name), end.port);
            let what = if inputs { "input" } else { "output" };
            let has = match count {
                0 => format!("it has no {what}s"),
                _ => format!("its last one is {}", count - 1),
            };
            self.problems.add(at, format!("compound `{name}` has no {what} {port}: {has}"));
        }
        end.port < count || !template.whole
    }

    /// Number of ports of a compound, reported where one is surely left out.
    fn outside(&mut self, wires: &[Wire], span: Option<Span>) -> (u32, u32) {
        let mut used = [Vec::new(), Vec::new()];
        for wire in wires {
            for (side, end) in [wire.from, wire.to].into_iter().enumerate() {
                if end.part.is_none() {
                    used[side].push(end.port);
                }
            }
        }
        let counts = used.map(|mut used| {
            used.sort_unstable();
            used.dedup();
            let count = used.last().map_or(0, |last| last + 1);
            let missing = (0..).zip(&used).find(|(port, used)| port != *used).map(|(port, _)| port);
            (count, missing)
        });
        for ((count, missing), what) in counts.into_iter().zip(["input", "output"]) {
            if let (Some(missing), Some(span)) = (missing, span) {
                let last = count - 1;
                let words = format!("compound skips {what} {missing}, and uses {what} {last}");
                let open = Span { end: span.start + 1, ..span };
                self.problems.add(open, words).hint("count ports from 0, without gaps");
            }
        }
        (counts[0].0, counts[1].0)
    }
}

/// Names the class that was meant, which is not visible at the place of the problem.
fn said_elsewhere(problem: &mut Problem, class: Option<Span>) {
    if let Some(class) = class {
        problem
            .note(class, "a class of this name is declared here")
            .hint("a class is visible behind its declaration, in the same `{ }` and those inside");
    }
}

impl<'s> Scope<'s> {
    fn add(&mut self, part: Part<'s>) -> Named<'s> {
        let number = self.parts.len();
        self.names.insert(part.name.clone(), number);
        self.parts.push(part);
        Named::Part(number)
    }
}

impl Spread {
    /// Ends of a wanted number, if there is a place for more.
    fn grow(self, wanted: usize) -> Option<Vec<End>> {
        let mut ends = self.ends;
        let at = self.grows?;
        let (last, missing) = (ends[at], wanted - ends.len());
        let most = u32::try_from(missing).ok()?.checked_add(last.port)?;
        let more: Vec<End> = (last.port + 1..=most).map(|port| End { port, ..last }).collect();
        ends.splice(at + 1..at + 1, more);
        Some(ends)
    }
}
