//! From tokens to statements: what stands where, before anything is known of names.
//!
//! Source: the grammar of click(5). A group `( [0] -> a; b -> [1] )` is two elements that pass packets as
//! they are, one for its inputs and one for its outputs, and what stands in it belongs to the body around it.
//! What cannot be read is reported, and reading continues at the next statement. A `require(library FILE)`
//! is replaced by the statements of the file, once a file. Cost: each token is looked at once, or
//! twice where something is wrong.

use std::collections::HashSet;

use super::lex::{Kind, Token, lex, lex_part};
use super::source::{InClick, Problems, Sources, Span, short};
use super::text::Text;
use crate::frame::MOST_OUTPUT;

/// How deep `{ }` may stand in each other, and libraries require each other.
pub(super) const MOST_DEPTH: usize = 64;

/// Forms that a class may have.
const MOST_FORMS: usize = 64;

/// Highest number of a port.
pub(super) const MOST_PORT: u32 = MOST_OUTPUT as u32;

/// Finds a library: gets what `require` names and the name of the requiring file; gives the name that
/// identifies the file and its text, or in words why not.
pub(super) type Library<'a> = dyn FnMut(&str, &str) -> Result<(String, String), String> + 'a;

/// One statement.
#[derive(Debug)]
pub(super) enum Statement {
    /// Elements, joined by arrows or alone.
    Chain(Chain),
    /// `elementclass NAME class`
    Class {
        /// Where its name is.
        name: Span,
        /// What it stands for.
        class: Class,
    },
    /// `define(..)`: what is between the parentheses.
    Define(Span),
}

/// What an element is made of.
#[derive(Debug)]
pub(super) enum Class {
    /// A class by its name.
    Named(Span),
    /// `{ .. }`
    Compound(Box<Body>),
}

/// The inside of a compound.
#[derive(Debug)]
pub(super) struct Body {
    /// Span with its braces.
    pub span: Span,
    /// Its parameters.
    pub formals: Vec<Formal>,
    /// What is in it.
    pub statements: Vec<Statement>,
    /// All of it could be read.
    pub whole: bool,
    /// What the class is where its arguments or ports do not fit this body.
    pub otherwise: Option<Otherwise>,
}

/// Another form of a class.
#[derive(Debug)]
pub(super) enum Otherwise {
    /// The body behind `||`.
    Body(Box<Body>),
    /// `...`: the class that its name meant before.
    Before(Span),
}

/// A parameter of a compound.
#[derive(Debug)]
pub(super) struct Formal {
    /// The keyword it is given by; by its position where there is none. [`REST`] stands for all that is left.
    pub keyword: Option<Span>,
    /// `$name`
    pub variable: Span,
}

/// Keyword of a parameter that takes what the others do not.
pub(super) const REST: &str = "__REST__";

/// Groups of elements with arrows between them.
#[derive(Debug)]
pub(super) struct Chain {
    /// One more than arrows.
    pub groups: Vec<Vec<Item>>,
    /// Where each is, and whether it is `=>`.
    pub arrows: Vec<(Span, bool)>,
}

/// An element in a chain.
#[derive(Debug)]
pub(super) struct Item {
    /// `[..]` before it.
    pub inputs: Option<Ports>,
    /// What it is called, or made of.
    pub what: What,
    /// `[..]` behind it.
    pub outputs: Option<Ports>,
    /// For a group, name of the element that its outputs are those of, and the numbers of its inputs and outputs.
    pub leaves: Option<(Span, u32, u32)>,
    /// Span without its ports.
    pub span: Span,
}

/// How an element is named.
#[derive(Debug)]
pub(super) enum What {
    /// A name alone: of an element, or of a class.
    Named(Span),
    /// `name :: class(config)`, or without name.
    Made {
        /// Its name.
        name: Option<Span>,
        /// Its class.
        class: Class,
        /// Configuration between the parentheses.
        config: Option<Span>,
    },
}

/// `[..]`
#[derive(Debug)]
pub(super) struct Ports {
    /// Span with its brackets.
    pub span: Span,
    /// Ports and ranges of them.
    pub list: Vec<PortItem>,
    /// A trailing comma: more may follow.
    pub more: bool,
}

/// One port, or a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PortItem {
    /// First and last.
    Numbers(u32, u32, Span),
    /// An output by its name.
    Named(Span),
}

/// What a configuration requires besides libraries: its kind, and its name where it has one.
pub(super) type Requirement = (&'static str, &'static str);

/// Reads text number `source` of `sources`, and what it requires; libraries that it requires are added to them.
pub(super) fn parse(
    sources: &mut Sources,
    source: u16,
    library: &mut Library<'_>,
    problems: &mut Problems,
) -> (Vec<Statement>, Vec<Requirement>) {
    let loaded = HashSet::from([sources.name(source).to_owned()]);
    let requirements = Vec::new();
    let mut files = Files { sources, library, loaded, requirements, depth: 0, outside: None };
    (files.parse(source, problems), files.requirements)
}

struct Files<'a, 'l> {
    sources: &'a mut Sources,
    library: &'a mut Library<'l>,
    loaded: HashSet<String>,
    requirements: Vec<Requirement>,
    depth: usize,
    /// A text with the names of the outside of compounds, once it is needed.
    outside: Option<Span>,
}

impl Files<'_, '_> {
    fn parse(&mut self, source: u16, problems: &mut Problems) -> Vec<Statement> {
        let text = std::sync::Arc::clone(self.sources.whole(source));
        let (tokens, directives) = lex(source, &text, problems);
        self.sources.direct(source, directives);
        let end = u32::try_from(text.len()).expect("texts are below 4 GiB");
        let end = Span { source, start: end, end };
        let mut parser = Parser {
            files: self,
            text: &text,
            tokens: &tokens,
            at: 0,
            end,
            depth: 0,
            outside: None,
            before: Vec::new(),
            problems,
        };
        parser.statements(true)
    }

    /// The statements of `require(what)`; none where it is already there.
    fn require(&mut self, what: Span, problems: &mut Problems) -> Vec<Statement> {
        let text = Text::of(self.sources, what);
        let mut statements = Vec::new();
        for argument in text.arguments() {
            let at = text.span(argument.clone());
            let words = text.words(argument).map(|word| &text.as_str()[word]);
            // A package may stand in quotes, as a file may.
            let unquoted =
                |word: &str| String::from_utf8_lossy(&super::value::unquote(word)).into_owned();
            let words: Vec<String> = words.map(unquoted).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words[..] {
                ["library", file] => statements.extend(self.library(file, at, problems)),
                [COMPACT] => self.requirements.push((COMPACT, "")),
                ["package", name] | [name] => {
                    if let Some(known) = PACKAGES.into_iter().find(|known| *known == name) {
                        self.requirements.push(("package", known));
                        continue;
                    }
                    let in_click = format!("required package '{}' missing", short(name));
                    let hint = match name {
                        COMPACT => "write `require(compact_config)`",
                        _ => "all elements are built in, and no foreign code is loaded",
                    };
                    problems
                        .add(at, format!("there is no package `{}`", short(name)))
                        .hint(hint)
                        .in_click(InClick::Reading(in_click));
                }
                _ => {
                    let words = format!("`{}` cannot be required", short(&words.join(" ")));
                    problems.add(at, words).hint("write `require(library FILE)`");
                }
            }
        }
        statements
    }

    fn library(&mut self, file: &str, at: Span, problems: &mut Problems) -> Vec<Statement> {
        let wanted = super::value::unquote(file);
        let wanted = String::from_utf8_lossy(&wanted);
        let (name, text) = match (self.library)(&wanted, self.sources.name(at.source)) {
            Ok(found) => found,
            Err(words) => {
                problems.add(at, format!("no library `{}`: {words}", short(&wanted)));
                return Vec::new();
            }
        };
        if !self.loaded.insert(name.clone()) {
            return Vec::new();
        }
        if self.depth == MOST_DEPTH {
            let words = format!("libraries require each other more than {MOST_DEPTH} deep");
            problems.add(at, words);
            return Vec::new();
        }
        let Some(source) = self.sources.add(&name, &text) else {
            problems.add(at, format!("library `{}` is too large, or one too many", short(&name)));
            return Vec::new();
        };
        self.depth += 1;
        let statements = self.parse(source, problems);
        self.depth -= 1;
        statements
    }
}

/// A requirement without a name: that configurations are kept in little memory, which is so.
const COMPACT: &str = "compact_config";

/// Packages of Click whose elements are built in, as far as there are any.
pub(crate) const PACKAGES: [&str; 9] =
    ["analysis", "aqm", "click", "etherswitch", "ip6", "local", "simple", "tcpudp", "userlevel"];

/// A statement could not be read, which was reported.
struct Broken;

type Read<T> = Result<T, Broken>;

struct Parser<'p, 'a, 'l> {
    files: &'p mut Files<'a, 'l>,
    text: &'p str,
    tokens: &'p [Token],
    at: usize,
    /// The end of the text.
    end: Span,
    /// Braces that are open.
    depth: usize,
    /// What a chain begins and ends with that has no element there.
    outside: Option<Outside>,
    /// Statements that belong before the one that is read.
    before: Vec<Statement>,
    problems: &'p mut Problems,
}

/// Names of where packets come from and go to, outside of a group or compound, and how many ports are used.
#[derive(Clone, Copy)]
struct Outside {
    input: Span,
    output: Span,
    inputs: u32,
    outputs: u32,
}

/// How many ports a list uses, from port 0 on.
fn ports_used(ports: Option<&Ports>) -> u32 {
    let last = ports.into_iter().flat_map(|ports| &ports.list).map(|port| match port {
        PortItem::Numbers(_, last, _) => last.saturating_add(1),
        PortItem::Named(_) => 1,
    });
    last.max().unwrap_or(1)
}

impl Parser<'_, '_, '_> {
    fn kind(&self, ahead: usize) -> Option<Kind> {
        self.tokens.get(self.at + ahead).map(|token| token.kind)
    }

    /// The text of the next token, empty at the end.
    fn word(&self) -> &str {
        self.tokens.get(self.at).map_or("", |token| self.of(token.span))
    }

    fn of(&self, span: Span) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    /// Where the next token is.
    fn here(&self) -> Span {
        self.tokens.get(self.at).map_or(self.end, |token| token.span)
    }

    /// Takes the next token if it is of `kind`.
    fn take(&mut self, kind: Kind) -> Option<Span> {
        let found = (self.kind(0) == Some(kind)).then(|| self.here());
        self.at += usize::from(found.is_some());
        found
    }

    /// Reports what was expected instead of the next token.
    fn expected(&mut self, what: &str) -> Broken {
        let at = self.here();
        match self.kind(0) {
            // The lexer has told.
            Some(Kind::Bad) => {}
            Some(_) => {
                let found = short(self.word());
                self.problems.add(at, format!("expected {what}, found `{found}`"));
            }
            None => {
                self.problems.add(at, format!("expected {what}, found the end of the file"));
            }
        }
        Broken
    }

    fn wrong(&mut self, at: Span, words: impl Into<String>, hint: &str) -> Broken {
        self.problems.add(at, words).hint(hint);
        Broken
    }

    /// Statements up to the end of the text or the `}` of this body.
    fn statements(&mut self, top: bool) -> Vec<Statement> {
        let mut list = Vec::new();
        while let Some(kind) = self.kind(0) {
            if kind == Kind::Bars && !top {
                return list;
            }
            if kind == Kind::CloseBody {
                if !top {
                    break;
                }
                let at = self.here();
                self.wrong(at, "`}` means nothing here", "there is no `{` that it would close");
                self.at += 1;
                continue;
            }
            let before = self.at;
            if self.statement(top, &mut list).is_err() {
                self.recover(before);
            }
        }
        list
    }

    fn statement(&mut self, top: bool, list: &mut Vec<Statement>) -> Read<()> {
        if self.take(Kind::Semicolon).is_some() {
            return Ok(());
        }
        let at = self.here();
        match (self.kind(0), self.word()) {
            (Some(Kind::Word), "elementclass") => {
                let class = self.class_statement()?;
                list.push(class);
            }
            (Some(Kind::Word), "define") => {
                self.at += 1;
                let Some(config) = self.take(Kind::Config) else {
                    return Err(self.expected("`(` after `define`"));
                };
                list.push(Statement::Define(config.inside()));
            }
            (Some(Kind::Word), "require") => {
                self.at += 1;
                let Some(config) = self.take(Kind::Config) else {
                    return Err(self.expected("`(` after `require`"));
                };
                if !top {
                    let hint = "put it before all classes";
                    return Err(self.wrong(at, "`require` stands outside of `{ }` only", hint));
                }
                let statements = self.files.require(config.inside(), self.problems);
                list.extend(statements);
            }
            (Some(Kind::Word), "provide") => {
                let hint = "a library is required by the name of its file";
                return Err(self.wrong(at, "`provide` is not supported", hint));
            }
            _ => {
                let chain = self.chain();
                list.append(&mut self.before);
                let mut chain = chain?;
                Self::all_ports(&mut chain);
                self.count_outside(&chain);
                self.ends()?;
                // A group alone is what stands in it.
                let lone = chain.groups.len() == 1 && chain.groups[0].len() == 1;
                if !(lone && chain.groups[0][0].leaves.is_some()) {
                    list.push(Statement::Chain(chain));
                }
            }
        }
        Ok(())
    }

    /// Nothing follows that cannot begin a statement: what stands before it was meant otherwise.
    fn ends(&mut self) -> Read<()> {
        match self.kind(0) {
            Some(Kind::Dash) => {
                let at = self.here();
                let hint = "names are of letters, digits and `_`; arrows are `->`";
                Err(self.wrong(at, "`-` means nothing here", hint))
            }
            Some(
                Kind::Bad
                | Kind::Declares
                | Kind::Bar
                | Kind::Dots
                | Kind::Number
                | Kind::ClosePorts,
            ) => Err(self.expected("an arrow or `;`")),
            _ => Ok(()),
        }
    }

    /// Goes to where the next statement may begin, past `before`.
    fn recover(&mut self, before: usize) {
        self.at = self.at.max(before + 1).min(self.tokens.len());
        let mut open = 0_usize;
        while let Some(kind) = self.kind(0) {
            match kind {
                Kind::OpenBody => open += 1,
                Kind::CloseBody if open == 0 => return,
                Kind::CloseBody => open -= 1,
                Kind::Semicolon if open == 0 => return,
                Kind::Bars if open == 0 && self.depth > 0 => return,
                Kind::Word if open == 0 && self.begins_line() => return,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Goes past the `}` of a body that is not read, however deep it goes.
    fn skip_body(&mut self) {
        let mut open = 1_usize;
        while let (Some(kind), true) = (self.kind(0), open > 0) {
            match kind {
                Kind::OpenBody => open += 1,
                Kind::CloseBody => open -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// The next token is the first of its line and does not continue what stands before.
    fn begins_line(&self) -> bool {
        let Some(last) = self.at.checked_sub(1) else { return true };
        let last = self.tokens[last];
        let goes_on = [Kind::Arrow, Kind::Pairs, Kind::Declares, Kind::Comma, Kind::ClosePorts];
        let between = &self.text[last.span.end as usize..self.here().start as usize];
        between.contains('\n') && !goes_on.contains(&last.kind)
    }

    fn class_statement(&mut self) -> Read<Statement> {
        self.at += 1;
        let name = self.name("a name for the class")?;
        if self.kind(0) == Some(Kind::OpenBody) {
            let body = self.body()?;
            return Ok(Statement::Class { name, class: Class::Compound(Box::new(body)) });
        }
        let class = self.name("a class or `{`")?;
        Ok(Statement::Class { name, class: Class::Named(class) })
    }

    /// A name that may be given.
    fn name(&mut self, what: &str) -> Read<Span> {
        if self.kind(0) != Some(Kind::Word) {
            return Err(self.expected(what));
        }
        if matches!(self.word(), "elementclass" | "define" | "require" | "provide") {
            let (at, word) = (self.here(), self.word().to_owned());
            let words = format!("expected {what}: `{word}` is a word of the language");
            return Err(self.wrong(at, words, "choose another name"));
        }
        Ok(self.take(Kind::Word).expect("seen above"))
    }

    fn body(&mut self) -> Read<Body> {
        let open = self.take(Kind::OpenBody).expect("the caller saw it");
        if self.depth == MOST_DEPTH {
            let words = format!("more than {MOST_DEPTH} `{{` are open");
            let broken = self.wrong(open, words, "give inner compounds a class outside");
            self.skip_body();
            return Err(broken);
        }
        self.depth += 1;
        let mut forms = vec![self.form(open)?];
        let mut before = None;
        while self.take(Kind::Bars).is_some() {
            before = self.take(Kind::Dots);
            if before.is_some() {
                break;
            }
            if forms.len() == MOST_FORMS {
                let words = format!("a class of more than {MOST_FORMS} forms");
                let broken = self.wrong(open, words, "forms of one class stand between `||`");
                self.skip_body();
                self.depth -= 1;
                return Err(broken);
            }
            forms.push(self.form(open)?);
        }
        self.depth -= 1;
        let Some(close) = self.take(Kind::CloseBody) else {
            return Err(self.wrong(open, "this `{` has no `}`", "each `{` needs a `}`"));
        };
        let mut otherwise = before.map(Otherwise::Before);
        while let Some(form) = forms.pop() {
            let body = Body { span: open.to(close), otherwise: otherwise.take(), ..form };
            if forms.is_empty() {
                return Ok(body);
            }
            otherwise = Some(Otherwise::Body(Box::new(body)));
        }
        Err(Broken)
    }

    /// One of the forms of a class: what stands up to `||` or `}`.
    fn form(&mut self, open: Span) -> Read<Body> {
        let reported = self.problems.count();
        let formals = self.formals();
        let names = self.own_names(open)?;
        let around = self.outside.replace(names);
        let before = std::mem::take(&mut self.before);
        let statements = self.statements(false);
        (self.outside, self.before) = (around, before);
        let whole = self.problems.count() == reported;
        Ok(Body { span: open, formals, statements, whole, otherwise: None })
    }

    /// What a compound's packets come from and go to.
    fn own_names(&mut self, at: Span) -> Read<Outside> {
        let span = match self.files.outside {
            Some(span) => span,
            None => {
                let span = self.own_text("input output", at)?;
                self.files.outside = Some(span);
                span
            }
        };
        let (input, output) = (Span { end: 5, ..span }, Span { start: 6, ..span });
        Ok(Outside { input, output, inputs: 0, outputs: 0 })
    }

    /// `$a, KEY $b |`, if there are any. What cannot be read is reported and left out.
    fn formals(&mut self) -> Vec<Formal> {
        let mut list = Vec::new();
        let keyed = self.kind(0) == Some(Kind::Word) && self.kind(1) == Some(Kind::Variable);
        match self.kind(0) {
            Some(Kind::Bar) => {
                self.at += 1;
                return list;
            }
            Some(Kind::Variable) => {}
            Some(Kind::Dots) => {
                let at = self.here();
                let hint = "write `{ BODY || ... }`";
                self.wrong(at, "`...` stands behind the bodies that extend a class", hint);
                self.at += 1;
                self.take(Kind::Bars);
                return list;
            }
            _ if keyed => {}
            _ => return list,
        }
        loop {
            let keyword = self.take(Kind::Word);
            match self.take(Kind::Variable) {
                Some(variable) => list.push(Formal { keyword, variable }),
                None => {
                    self.expected("a parameter, as `$name`");
                    break;
                }
            }
            if self.take(Kind::Comma).is_none() {
                break;
            }
        }
        if self.take(Kind::Bar).is_none() {
            self.expected("`|` after the parameters");
        }
        list
    }

    fn chain(&mut self) -> Read<Chain> {
        let mut chain = Chain { groups: Vec::new(), arrows: Vec::new() };
        loop {
            let before = chain.arrows.is_empty();
            if let Some(item) = self.implicit(before)? {
                chain.groups.push(vec![item]);
                let at = self.here();
                if !before {
                    return Ok(chain);
                }
                let pairs = self.kind(0) == Some(Kind::Pairs);
                self.at += 1;
                chain.arrows.push((at, pairs));
                continue;
            }
            if matches!(self.kind(0), Some(Kind::Arrow | Kind::Pairs)) && before {
                let at = self.here();
                let hint = "inside of a class write `input` where packets come in";
                let arrow = if self.kind(0) == Some(Kind::Pairs) { "=>" } else { "->" };
                let in_click = InClick::Reading(format!("syntax error near '{arrow}'"));
                let problem = self.problems.add(at, "no element before this arrow");
                problem.hint(hint).in_click(in_click);
                return Err(Broken);
            }
            let ends =
                matches!(self.kind(0), None | Some(Kind::Semicolon | Kind::CloseBody | Kind::Bars));
            if let (true, Some(&(arrow, _))) = (ends, chain.arrows.last()) {
                let hint = "inside of a class write `output` where packets leave";
                return Err(self.wrong(arrow, "no element behind this arrow", hint));
            }
            let group = self.group()?;
            chain.groups.push(group);
            let at = self.here();
            let pairs = match self.kind(0) {
                Some(Kind::Arrow) => false,
                Some(Kind::Pairs) => true,
                _ => return Ok(chain),
            };
            self.at += 1;
            chain.arrows.push((at, pairs));
        }
    }

    /// Gives groups beside `=>` all of their ports.
    fn all_ports(chain: &mut Chain) {
        let ports = |span: Span, count: u32| {
            (count > 1).then(|| Ports {
                span,
                list: vec![PortItem::Numbers(0, count - 1, span)],
                more: false,
            })
        };
        for (at, &(_, pairs)) in chain.arrows.iter().enumerate() {
            if !pairs {
                continue;
            }
            for item in &mut chain.groups[at] {
                if let (Some((_, _, outputs)), None) = (item.leaves, &item.outputs) {
                    item.outputs = ports(item.span, outputs);
                }
            }
            for item in chain.groups.get_mut(at + 1).into_iter().flatten() {
                if let (Some((_, inputs, _)), None) = (item.leaves, &item.inputs) {
                    item.inputs = ports(item.span, inputs);
                }
            }
        }
    }

    /// The outside of a group or compound, where a chain begins or ends there without an element.
    fn implicit(&mut self, begins: bool) -> Read<Option<Item>> {
        let Some(outside) = self.outside else { return Ok(None) };
        let here = self.at;
        let start = self.here();
        let mut ports = self.ports()?;
        // `[0], [1] -> ..` is `[0,1] -> ..`.
        while let (Some(all), Some(Kind::Comma), Some(Kind::OpenPorts)) =
            (&mut ports, self.kind(0), self.kind(1))
        {
            self.at += 1;
            if let Some(Ports { span, list, more }) = self.ports()? {
                all.span = all.span.to(span);
                all.list.extend(list);
                all.more |= more;
            }
        }
        let fits = match self.kind(0) {
            Some(Kind::Arrow | Kind::Pairs) => begins,
            None | Some(Kind::Semicolon | Kind::CloseBody | Kind::Bars) => !begins,
            _ => false,
        };
        if !fits {
            self.at = here;
            return Ok(None);
        }
        let count = ports_used(ports.as_ref());
        let used = self.outside.as_mut().expect("seen above");
        let (name, inputs, outputs) = if begins {
            used.inputs = used.inputs.max(count);
            (outside.input, None, ports)
        } else {
            used.outputs = used.outputs.max(count);
            (outside.output, ports, None)
        };
        Ok(Some(Item { inputs, what: What::Named(name), outputs, leaves: None, span: start }))
    }

    /// In a group, what `input` or `output` means: its outside, as a side of a chain without an element does.
    fn named_outside(&mut self, name: Span, sides: [Option<&Ports>; 2]) -> Read<Option<Span>> {
        let Some(outside) = self.outside else { return Ok(None) };
        let begins = match self.of(name) {
            "input" => true,
            "output" => false,
            _ => return Ok(None),
        };
        if !self.files.sources.text(outside.input).starts_with("group@") {
            return Ok(None);
        }
        let [inputs, outputs] = sides;
        let arrow = |kind: Option<Kind>| matches!(kind, Some(Kind::Arrow | Kind::Pairs));
        let before = self.tokens.iter().rev().find(|token| token.span.end <= name.start);
        let wrong = match begins {
            true => inputs.is_some() || arrow(before.map(|token| token.kind)),
            false => outputs.is_some() || arrow(self.kind(0)),
        };
        if wrong {
            let (words, hint) = match begins {
                true => ("packets cannot go to `input`", "they come from there"),
                false => ("packets cannot come from `output`", "they go there"),
            };
            return Err(self.wrong(name, words, hint));
        }
        let used = self.outside.as_mut().expect("seen above");
        if begins {
            used.inputs = used.inputs.max(ports_used(outputs));
            return Ok(Some(outside.input));
        }
        used.outputs = used.outputs.max(ports_used(inputs));
        Ok(Some(outside.output))
    }

    /// Counts the ports of the outside of a group that `=>` spreads over several elements.
    fn count_outside(&mut self, chain: &Chain) {
        let Some(outside) = &mut self.outside else { return };
        let lone = |items: &[Item], name: Span| match items {
            [item] => matches!(item.what, What::Named(named) if named == name),
            _ => false,
        };
        for (at, _) in chain.arrows.iter().enumerate().filter(|(_, (_, pairs))| *pairs) {
            let [from, to] =
                [at, at + 1].map(|at| chain.groups.get(at).map_or(&[][..], Vec::as_slice));
            let count = |items: &[Item]| u32::try_from(items.len()).unwrap_or(u32::MAX);
            if lone(from, outside.input) && from[0].outputs.is_none() {
                outside.inputs = outside.inputs.max(count(to));
            }
            if lone(to, outside.output) && to[0].inputs.is_none() {
                outside.outputs = outside.outputs.max(count(from));
            }
        }
    }

    /// A text of the parser's own, and where words of it are.
    fn own_text(&mut self, text: &str, at: Span) -> Read<Span> {
        let Some(source) = self.files.sources.add("group", text) else {
            return Err(self.wrong(at, "too many groups", "use compounds"));
        };
        let end = u32::try_from(text.len()).expect("a short text");
        Ok(Span { source, start: 0, end })
    }

    /// `( statements )`: what stands in it goes before the statement, with the elements that are its inputs and outputs.
    fn parenthesized(&mut self) -> Read<(What, (Span, u32, u32))> {
        let whole = self.take(Kind::Config).expect("the caller saw it");
        if self.depth == MOST_DEPTH {
            return Err(self.wrong(whole, "too many groups in each other", "use compounds"));
        }
        let inside = whole.inside();
        let number = (whole.source, whole.start);
        let names = format!("group@{}x{}i group@{}x{}o", number.0, number.1, number.0, number.1);
        let span = self.own_text(&names, whole)?;
        let middle =
            span.start + u32::try_from(names.find(' ').unwrap_or(0)).expect("a short text");
        let (input, output) = (Span { end: middle, ..span }, Span { start: middle + 1, ..span });
        let (start, end) = (inside.start as usize, inside.end as usize);
        let text = &self.text[..end];
        let (tokens, _) = lex_part(whole.source, text, start, self.problems);
        let mut inner = Parser {
            files: &mut *self.files,
            text: self.text,
            tokens: &tokens,
            at: 0,
            end: Span { start: inside.end, ..inside },
            depth: self.depth + 1,
            outside: Some(Outside { input, output, inputs: 0, outputs: 0 }),
            before: Vec::new(),
            problems: &mut *self.problems,
        };
        let statements = inner.statements(true);
        let used = inner.outside.expect("set above");
        for (name, count) in [(input, used.inputs), (output, used.outputs)] {
            if count > 0 {
                let name = self.files.sources.text(name).to_owned();
                let mut text = format!("{name} :: {{ input -> output;");
                for port in 1..count {
                    text += &format!(" input [{port}] -> [{port}] output;");
                }
                text += " }";
                let span = self.own_text(&text, whole)?;
                let declared = self.files.parse(span.source, self.problems);
                self.before.extend(declared);
            }
        }
        self.before.extend(statements);
        Ok((What::Named(input), (output, used.inputs, used.outputs)))
    }

    fn group(&mut self) -> Read<Vec<Item>> {
        let mut items = vec![self.item()?];
        while self.take(Kind::Comma).is_some() {
            items.push(self.item()?);
        }
        Ok(items)
    }

    fn item(&mut self) -> Read<Item> {
        let inputs = self.ports()?;
        let start = self.here();
        let (what, leaves) = match self.kind(0) {
            Some(Kind::Config) => {
                let (what, leaves) = self.parenthesized()?;
                (what, Some(leaves))
            }
            _ => (self.what()?, None),
        };
        let last = self.tokens[self.at - 1].span;
        let outputs = self.ports()?;
        let what = match what {
            What::Named(name) if leaves.is_none() => {
                let sides = [inputs.as_ref(), outputs.as_ref()];
                What::Named(self.named_outside(name, sides)?.unwrap_or(name))
            }
            what => what,
        };
        Ok(Item { inputs, what, outputs, leaves, span: start.to(last) })
    }

    fn what(&mut self) -> Read<What> {
        match self.kind(0) {
            Some(Kind::Word | Kind::OpenBody) => {}
            Some(Kind::Variable) => {
                let at = self.here();
                let hint = "variables stand in arguments, between parentheses";
                return Err(self.wrong(at, "a variable cannot be an element", hint));
            }
            _ => return Err(self.expected("an element")),
        }
        if self.kind(0) == Some(Kind::Word) && self.kind(1) == Some(Kind::Declares) {
            let name = self.name("a name for the element")?;
            self.at += 1;
            let class = self.class()?;
            return Ok(What::Made { name: Some(name), class, config: self.config() });
        }
        let class = self.class()?;
        let config = self.config();
        Ok(match (class, config) {
            (Class::Named(name), None) => What::Named(name),
            (class, config) => What::Made { name: None, class, config },
        })
    }

    fn config(&mut self) -> Option<Span> {
        self.take(Kind::Config).map(Span::inside)
    }

    fn class(&mut self) -> Read<Class> {
        if self.kind(0) != Some(Kind::OpenBody) {
            return Ok(Class::Named(self.name("a class")?));
        }
        let body = self.body()?;
        Ok(Class::Compound(Box::new(body)))
    }

    fn ports(&mut self) -> Read<Option<Ports>> {
        let Some(open) = self.take(Kind::OpenPorts) else { return Ok(None) };
        let (mut list, mut more) = (Vec::new(), false);
        let close = loop {
            if let Some(close) = self.take(Kind::ClosePorts) {
                more = !list.is_empty();
                break close;
            }
            let item = self.port()?;
            list.push(item);
            if let Some(close) = self.take(Kind::ClosePorts) {
                break close;
            }
            if self.take(Kind::Comma).is_none() {
                return Err(self.expected("`]`"));
            }
        };
        if list.is_empty() {
            list.push(PortItem::Numbers(0, 0, open.to(close)));
        }
        Ok(Some(Ports { span: open.to(close), list, more }))
    }

    fn port(&mut self) -> Read<PortItem> {
        if let Some(name) = self.take(Kind::Word) {
            return Ok(PortItem::Named(name));
        }
        let start = self.here();
        let first = self.number()?;
        if self.take(Kind::Dash).is_none() {
            return Ok(PortItem::Numbers(first, first, start));
        }
        let end = self.here();
        let last = self.number()?;
        let span = start.to(end);
        if last < first {
            let words = format!("ports {first} to {last} go backwards");
            return Err(self.wrong(span, words, "write the lower number first"));
        }
        Ok(PortItem::Numbers(first, last, span))
    }

    fn number(&mut self) -> Read<u32> {
        let Some(at) = self.take(Kind::Number) else {
            return Err(self.expected("the number of a port"));
        };
        match self.of(at).parse().ok().filter(|&port| port <= MOST_PORT) {
            Some(port) => Ok(port),
            None => {
                let words = format!("no port {}: at most {MOST_PORT}", short(self.of(at)));
                Err(self.wrong(at, words, "ports are counted from 0"))
            }
        }
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
