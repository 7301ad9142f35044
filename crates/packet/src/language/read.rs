//! A configuration in Click's language, from text to what can be planned: the steps in order.
//!
//! Tokens ([`super::lex`]), statements ([`super::parse`]), names ([`super::scope`]), compounds and
//! variables expanded ([`super::expand`], [`super::vars`]), ports and kinds checked ([`super::check`]).
//! Each step continues where the one before found an error, as far as it makes sense, so that one
//! run reports all; none of them runs without end, whatever the text.

use std::collections::HashSet;

use super::check::check;
use super::class::Classes;
use super::expand::{Variables, expand};
use super::flat::Configuration;
use super::lex::{PieceKind, Pieces};
use super::open_policy::OpenPolicy;
use super::parse::{Library, parse};
use super::scope::{Template, resolve};
use super::source::{Errors, Problems, Sources, Span};
use super::text::Text;
use super::vars::balanced;

/// What a configuration is read with.
///
/// ```
/// use fingerpost_packet::language::{ClassSpec, Language};
/// let class = |name, ports, processing| ClassSpec::new(name, ports, processing, "x/x");
/// let classes = [class("Idle", "0/1", "a/a"), class("Discard", "1/0", "a/a")];
/// let read = Language::new(&classes[..]).read("a.click", "i :: Idle -> Discard;").unwrap();
/// assert_eq!(read.flatconfig(), "i :: Idle;\nDiscard@2 :: Discard;\n\ni -> Discard@2;\n");
/// let errors = Language::new(&classes[..]).read("a.click", "Idle -> Discrad").unwrap_err();
/// assert_eq!(errors.reports[0].hint.as_deref(), Some("did you mean `Discard`?"));
/// ```
pub struct Language<'a, C: Classes + ?Sized> {
    classes: &'a C,
    variables: Vec<(&'a str, &'a str)>,
    library: Box<Library<'a>>,
    policy: OpenPolicy,
    keeps_unknown: bool,
    keeps_defined: bool,
    unchecked: bool,
}

impl<'a, C: Classes + ?Sized> Language<'a, C> {
    /// Language with these classes, and nothing else.
    pub fn new(classes: &'a C) -> Self {
        let library = Box::new(|_: &str, _: &str| Err("libraries are not read here".to_owned()));
        let (variables, policy) = (Vec::new(), OpenPolicy::default());
        Self {
            classes,
            variables,
            library,
            policy,
            keeps_unknown: false,
            keeps_defined: false,
            unchecked: false,
        }
    }

    /// Leaves out the checks of ports: of a configuration that is written as text, and not run.
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        self.unchecked = true;
        self
    }

    /// Leaves variables that nothing defines as they are, as Click does: no error.
    #[must_use]
    pub fn keeping_unknown(mut self, keeps: bool) -> Self {
        self.keeps_unknown = keeps;
        self
    }

    /// Leaves definitions outside of compounds, and arguments of elements that name them, as they are: whoever reads the text
    /// may give other values. Arguments of compounds get the values, as do all where one cannot be written as a definition.
    #[must_use]
    pub fn keeping_defined(mut self, keeps: bool) -> Self {
        self.keeps_defined = keeps;
        self
    }

    /// Gives `$name` a value, whatever the file defines it as, or was given before.
    #[must_use]
    pub fn define(mut self, name: &'a str, value: &'a str) -> Self {
        self.variables.retain(|(known, _)| *known != name);
        self.variables.push((name, value));
        self
    }

    /// Finds the file of `require(library FILE)`: gets `FILE` and the name of the requiring file;
    /// gives the name that identifies the file, and its text.
    #[must_use]
    pub fn library(
        mut self,
        find: impl FnMut(&str, &str) -> Result<(String, String), String> + 'a,
    ) -> Self {
        self.library = Box::new(find);
        self
    }

    /// Lets elements open what `policy` allows. Where it shows no text of files, neither do errors: of a library there is
    /// the place then, and nothing else.
    #[must_use]
    pub fn opening(mut self, policy: OpenPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Reads a configuration; `name` is what messages call it, and by which a library that requires it knows it.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(mut self, name: &str, text: &str) -> Result<Configuration, Errors> {
        let mut sources = Sources::shown(self.policy.shows_text());
        let mut problems = Problems::default();
        let Some(source) = sources.add(name, text) else {
            sources.add(name, "");
            problems.add(Span::default(), "a text of 4 GiB or more");
            return Err(problems.errors(&sources));
        };
        let (statements, requirements) =
            parse(&mut sources, source, &mut self.library, &mut problems);
        let mut overrides = Vec::new();
        for (name, value) in self.variables {
            let Some(source) = sources.add(&format!("value of ${name}"), value) else {
                problems.add(Span::default(), format!("the value of `${name}` is too large"));
                continue;
            };
            let end = u32::try_from(value.len()).expect("it was added");
            overrides.push((name, Text::of(&sources, Span { source, start: 0, end })));
        }
        let templates = resolve(&sources, statements, &self.classes, &mut problems);
        let Some(templates) = templates else {
            problems.end_reading();
            return Err(problems.errors(&sources));
        };
        let defined = templates.last().filter(|_| self.keeps_defined);
        let definitions = defined.map_or_else(Vec::new, |top| definitions(top, &overrides));
        let (keeps_unknown, kept) = (self.keeps_unknown, &definitions[..]);
        let variables = Variables { overrides: &overrides, keeps_unknown, kept };
        let mut flat = expand(&sources, &templates, variables, &mut problems);
        drop(templates);
        problems.end_reading();
        // What is missing because it could not be read must not be told as missing.
        let whole = problems.is_empty();
        if !self.unchecked {
            check(&mut flat, whole, &mut problems);
        }
        if !problems.is_empty() {
            return Err(problems.errors(&sources));
        }
        let (elements, connections, names) = (flat.elements, flat.connections, flat.names);
        let warned = problems.warnings(&sources);
        Ok(Configuration {
            sources,
            required: requirements,
            definitions,
            elements,
            connections,
            names,
            policy: self.policy,
            warned,
        })
    }
}

/// Names and values of definitions outside of compounds that can be written as such: without overrides that are no single
/// argument, and where there are such, without those that may name them.
fn definitions(top: &Template<'_>, overrides: &[(&str, Text)]) -> Vec<(String, String)> {
    let other = |name: &str| overrides.iter().find(|(known, _)| *known == name);
    let own = top.defines.iter().map(|(name, _, value)| {
        let value = other(name).map_or(value, |(_, value)| value);
        ((*name).to_owned(), value.as_str().to_owned())
    });
    let is_new = |(name, _): &&(&str, Text)| top.defines.iter().all(|(known, ..)| known != name);
    let more = overrides.iter().filter(is_new);
    let more = more.map(|(name, value)| ((*name).to_owned(), value.as_str().to_owned()));
    let unfit: HashSet<&str> =
        overrides.iter().filter(|(_, value)| !is_argument(value)).map(|(name, _)| *name).collect();
    let is_kept = |(name, value): &(String, String)| {
        unfit.is_empty() || !unfit.contains(name.as_str()) && !value.contains('$')
    };
    own.chain(more).filter(is_kept).collect()
}

/// Whether a text is one argument as it is, wherever it stands.
fn is_argument(text: &Text) -> bool {
    let whole = text.as_str();
    matches!(&text.arguments()[..], [all] if *all == (0..whole.len()))
        && balanced(whole)
        && !Pieces::new(whole, 0).any(|piece| piece.kind == PieceKind::Comment)
}
