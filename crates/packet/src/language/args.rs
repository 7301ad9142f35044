//! The arguments of an element: read by name and type, with errors that name their place.
//!
//! An element's `configure` reads each argument, then finishes, then makes the element;
//! so everything wrong with its arguments is reported at once:
//!
//! ```
//! # use fingerpost_packet::language::{Args, ConfigError};
//! fn configure(args: &mut Args<'_>) -> Result<(u32, bool), ConfigError> {
//!     let capacity = args.optional("CAPACITY");
//!     let verbose = args.keyword("VERBOSE");
//!     args.finish()?;
//!     Ok((capacity?.unwrap_or(1000), verbose?.unwrap_or(false)))
//! }
//! ```
//!
//! Source: Click's `Args`: of a keyword that is given again the last value counts, here with a warning. Differs: an argument
//! whose first word is in capitals, with something behind it, is a keyword argument, known or not, so that a misspelled
//! keyword is never taken for a value. Who means such a text itself quotes it. A word of one letter is a keyword of classes
//! that have it.

use std::borrow::Cow;
use std::ops::Range;

use super::source::{InClick, Problems, Sources, Span, short};
use super::text::Text;
use super::value::{Value, unquote};

/// The arguments were wrong, which was reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("wrong arguments, reported before")]
pub struct ConfigError;

/// One argument, or one word of it.
#[derive(Clone, Debug)]
pub struct Arg<'a> {
    text: &'a Text,
    range: Range<usize>,
}

impl<'a> Arg<'a> {
    /// Text as written, with its quotes.
    pub fn raw(&self) -> &'a str {
        &self.text.as_str()[self.range.clone()]
    }

    /// The bytes that it stands for.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        unquote(self.raw())
    }

    /// Text as written, with its quotes, a space for each comment.
    pub fn uncommented(&self) -> Cow<'a, str> {
        super::flat::uncommented(self.raw())
    }

    /// Its parts between white space.
    pub fn words(&self) -> impl Iterator<Item = Self> + use<'a> {
        let text = self.text;
        text.words(self.range.clone()).map(move |range| Self { text, range })
    }

    /// Where it is.
    pub fn span(&self) -> Span {
        self.text.span(self.range.clone())
    }

    /// Value of the argument.
    ///
    /// # Errors
    /// In words, with the text: "`x` is no whole number".
    pub fn value<T: Value>(&self) -> Result<T, String> {
        let bytes = self.bytes();
        let text = std::str::from_utf8(&bytes);
        let value = text.map_err(|_| "no text".to_owned()).and_then(T::read);
        value.map_err(|words| format!("`{}` is {words}", short(self.raw())))
    }
}

#[derive(Clone, Debug)]
struct Given {
    range: Range<usize>,
    /// Length of its keyword, where it has one.
    keyword: usize,
    /// Where its value starts.
    value: usize,
    used: bool,
}

/// The arguments that one element was given.
#[derive(Debug)]
pub struct Args<'a> {
    element: &'a str,
    class: &'a str,
    text: &'a Text,
    given: Vec<Given>,
    /// All positional ones before this are used.
    next: usize,
    /// Those with keywords.
    keyed: Vec<usize>,
    /// Names that the class read, for hints.
    known: Vec<&'static str>,
    positions: usize,
    problems: &'a mut Problems,
    wrong: bool,
}

impl<'a> Args<'a> {
    /// The arguments in `text` for `element` of `class`; errors go to `problems`.
    pub fn new(
        element: &'a str,
        class: &'a str,
        text: &'a Text,
        problems: &'a mut Problems,
    ) -> Self {
        let of = |range: Range<usize>| {
            let (keyword, value) = keyword_of(text, range.clone());
            Given { range, keyword, value, used: false }
        };
        let given: Vec<Given> = text.arguments().into_iter().map(of).collect();
        let keyed = (0..given.len()).filter(|&at| given[at].keyword > 0).collect();
        let (next, known, positions) = (0, Vec::new(), 0);
        Self { element, class, text, given, next, keyed, known, positions, problems, wrong: false }
    }

    /// Accepts keywords that have no effect, with a warning that names those that are given.
    #[must_use]
    pub fn ignoring(mut self, names: &[&'static str]) -> Self {
        let mut given = Vec::new();
        for name in names {
            // Twice is as good as once.
            if !matches!(self.find(name), (None, _)) {
                given.push(*name);
            }
        }
        if !given.is_empty() {
            let words = format!("{}: no effect here", given.join(", "));
            self.warn(&words, InClick::Silent);
        }
        self
    }

    /// The next argument, which must be there. It may also be given by its name as a keyword.
    ///
    /// # Errors
    /// It is missing or of another type.
    pub fn positional<T: Value>(&mut self, name: &'static str) -> Result<T, ConfigError> {
        match self.optional(name)? {
            Some(value) => Ok(value),
            None => Err(self.missing(name)),
        }
    }

    /// The next argument, if there is one. It may also be given by its name as a keyword.
    ///
    /// # Errors
    /// It is of another type.
    pub fn optional<T: Value>(&mut self, name: &'static str) -> Result<Option<T>, ConfigError> {
        self.optional_arg(name)?.map(|arg| self.read(&arg, name)).transpose()
    }

    /// The same, unread: for lists and data.
    ///
    /// # Errors
    /// None: what is wrong with an argument is found where it is read.
    pub fn optional_arg(&mut self, name: &'static str) -> Result<Option<Arg<'a>>, ConfigError> {
        self.positions = self.positions.saturating_add(1);
        Ok(self.by_keyword(name).or_else(|| self.advance()))
    }

    /// The next argument, which must be there, unread.
    ///
    /// # Errors
    /// It is missing.
    pub fn positional_arg(&mut self, name: &'static str) -> Result<Arg<'a>, ConfigError> {
        self.optional_arg(name)?.ok_or_else(|| self.missing(name))
    }

    /// The argument `NAME value`, if it is given.
    ///
    /// # Errors
    /// It is of another type.
    pub fn keyword<T: Value>(&mut self, name: &'static str) -> Result<Option<T>, ConfigError> {
        self.keyword_arg(name)?.map(|arg| self.read(&arg, name)).transpose()
    }

    /// The same, unread.
    ///
    /// # Errors
    /// None: what is wrong with an argument is found where it is read.
    pub fn keyword_arg(&mut self, name: &'static str) -> Result<Option<Arg<'a>>, ConfigError> {
        Ok(self.by_keyword(name))
    }

    /// All further arguments without keyword, in order: patterns, routes.
    pub fn rest(&mut self) -> impl Iterator<Item = Arg<'a>> + use<'a> {
        self.positions = usize::MAX;
        let text = self.text;
        let mut ranges = Vec::with_capacity(self.given.len() - self.next);
        for given in self.given[self.next..].iter_mut().filter(|g| !g.used && g.keyword == 0) {
            given.used = true;
            ranges.push(given.range.clone());
        }
        ranges.into_iter().map(move |range| Arg { text, range })
    }

    /// The next argument, whatever it is: of elements whose arguments mean nothing here, or may look like keywords.
    pub(crate) fn next_of_any(&mut self) -> Option<Arg<'a>> {
        let given = self.given.iter_mut().find(|given| !given.used)?;
        given.used = true;
        Some(Arg { text: self.text, range: given.range.clone() })
    }

    /// Value of an argument, or of a word of one; messages call it `name`.
    ///
    /// # Errors
    /// It is of another type.
    pub fn read<T: Value>(&mut self, arg: &Arg<'_>, name: &str) -> Result<T, ConfigError> {
        arg.value().map_err(|words| self.refuse(arg, &format!("{name}: {words}")))
    }

    /// Reports an error of an argument.
    pub fn refuse(&mut self, arg: &Arg<'_>, words: &str) -> ConfigError {
        self.tell(arg.span(), words, None)
    }

    /// Reports an error of the arguments as a whole.
    pub fn refuse_all(&mut self, words: &str) -> ConfigError {
        self.tell(self.text.whole_span(), words, None)
    }

    /// Warns about the arguments as a whole.
    pub fn warn_all(&mut self, words: &str) {
        let element = (short(self.element), short(self.class));
        let words_in_click = format!("warning: {words}");
        self.warn(words, InClick::Configuring { element, words: words_in_click });
    }

    /// Warns about what Click does not warn about.
    pub fn warn_here(&mut self, words: &str) {
        self.warn(words, InClick::Silent);
    }

    fn warn(&mut self, words: &str, in_click: InClick) {
        let message = format!("`{}` ({}): {words}", short(self.element), short(self.class));
        self.problems.warn(self.text.whole_span(), message, in_click);
    }

    /// Arguments that are neither one of these keywords nor in the place of one.
    pub(crate) fn others_than(&self, keywords: &[&str]) -> Vec<String> {
        let text = self.text.as_str();
        let mut places = 0;
        let others = self.given.iter().filter(|given| {
            let keyword = &text[given.range.start..given.range.start + given.keyword];
            places += usize::from(given.keyword == 0);
            match given.keyword {
                0 => places > keywords.len(),
                _ => !keywords.contains(&keyword),
            }
        });
        others.map(|given| text[given.range.clone()].to_owned()).collect()
    }

    /// Finishes the reading: arguments that were not read are errors.
    ///
    /// # Errors
    /// An argument was not read, or was wrong before.
    pub fn finish(&mut self) -> Result<(), ConfigError> {
        let unused = |given: &Given| !given.used;
        let of = |given: &Given| (given.range.clone(), given.keyword);
        let left: Vec<_> = self.given.iter().filter(|given| unused(given)).map(of).collect();
        let mut reported = false;
        for (range, keyword) in left {
            if keyword == 0 {
                if !reported {
                    let words = format!("too many arguments: at most {}", self.positions);
                    self.tell(self.text.span(range), &words, None);
                    reported = true;
                }
                continue;
            }
            let word = &self.text.as_str()[range.start..range.start + keyword];
            let near = self.problems.near(word, self.known.iter().copied());
            let hint = near.unwrap_or_else(|| match self.known.len() {
                0 => "there are none here; quote it to mean the text itself".into(),
                _ => format!("known here: {}", self.known.join(", ")),
            });
            let span = self.text.span(range.start..range.start + keyword);
            self.tell(span, &format!("unknown keyword `{}`", short(word)), Some(hint));
        }
        if self.wrong { Err(ConfigError) } else { Ok(()) }
    }

    fn missing(&mut self, name: &str) -> ConfigError {
        self.tell(self.text.whole_span(), &format!("argument {name} is missing"), None)
    }

    fn tell(&mut self, at: Span, words: &str, hint: Option<String>) -> ConfigError {
        self.wrong = true;
        let (element, class) = (short(self.element), short(self.class));
        let message = format!("`{element}` ({class}): {words}");
        let in_click = InClick::Configuring { element: (element, class), words: words.to_owned() };
        self.problems.add(at, message).maybe(hint).in_click(in_click);
        ConfigError
    }

    fn advance(&mut self) -> Option<Arg<'a>> {
        let free = |given: &Given| !given.used && given.keyword == 0;
        let at = self.next + self.given[self.next..].iter().position(free)?;
        self.next = at + 1;
        self.given[at].used = true;
        Some(Arg { text: self.text, range: self.given[at].range.clone() })
    }

    fn by_keyword(&mut self, name: &'static str) -> Option<Arg<'a>> {
        let (found, again) = self.find(name);
        if again {
            self.warn_here(&format!("{name} is given twice: the last one counts"));
        }
        found
    }

    /// The last argument of a keyword, and whether there are more.
    fn find(&mut self, name: &'static str) -> (Option<Arg<'a>>, bool) {
        self.known.push(name);
        if name.len() == 1 {
            self.short_keyword(name);
        }
        let (mut found, mut again) = (None, false);
        for n in 0..self.keyed.len() {
            let given = &mut self.given[self.keyed[n]];
            let (range, past) = (given.range.clone(), given.range.start + given.keyword);
            if given.used || &self.text.as_str()[range.start..past] != name {
                continue;
            }
            given.used = true;
            let arg = Arg { text: self.text, range: given.value..range.end };
            again |= found.replace(arg).is_some();
        }
        (found, again)
    }

    /// Makes keyword arguments of those that begin with a keyword of one letter, which may be a value elsewhere.
    fn short_keyword(&mut self, name: &str) {
        for (at, given) in self.given.iter_mut().enumerate() {
            if given.used || given.keyword > 0 {
                continue;
            }
            let (word, value) = self.text.split_word(given.range.clone());
            if self.text.as_str().get(word) == Some(name) && !value.is_empty() {
                (given.keyword, given.value) = (name.len(), value.start);
                self.keyed.push(at);
            }
        }
    }
}

/// Arguments with another value in one of them: that of a keyword, or in its place where it is given without; the last one
/// where it is not given.
pub(crate) fn replaced(config: &str, place: usize, keyword: &str, value: &str) -> String {
    let mut sources = Sources::default();
    let end = u32::try_from(config.len()).ok();
    let source = sources.add("config", config).zip(end);
    let Some((source, end)) = source else { return config.to_owned() };
    let text = Text::of(&sources, Span { source, start: 0, end });
    let mut args: Vec<String> = Vec::new();
    let (mut at, mut places) = (None, 0);
    for range in text.arguments() {
        let (length, _) = keyword_of(&text, range.clone());
        let word = &config[range.start..range.start + length];
        if length == 0 && places == place || length > 0 && word == keyword {
            at = Some((args.len(), length > 0));
        }
        places += usize::from(length == 0);
        args.push(config[range].to_owned());
    }
    match at {
        Some((at, true)) => args[at] = format!("{keyword} {value}"),
        Some((at, false)) => args[at] = value.to_owned(),
        None if args.len() == place => args.push(value.to_owned()),
        None => args.push(format!("{keyword} {value}")),
    }
    args.join(", ")
}

/// Length of the keyword that an argument begins with, 0 where it has none, and where its value starts.
fn keyword_of(text: &Text, argument: Range<usize>) -> (usize, usize) {
    let none = (0, argument.start);
    if !text.as_str()[argument.clone()].starts_with(|first: char| first.is_ascii_uppercase()) {
        return none;
    }
    let (word, value) = text.split_word(argument);
    let part = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    let keyword = word.len() > 1 && text.as_str()[word.clone()].bytes().all(part);
    if keyword && !value.is_empty() { (word.len(), value.start) } else { none }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::source::Sources;
    use fingerpost_lpm::Prefix;

    /// Result of `configure` for arguments, and its errors.
    fn run<T>(
        config: &str,
        configure: impl FnOnce(&mut Args<'_>) -> Result<T, ConfigError>,
    ) -> (Option<T>, Vec<String>) {
        let mut sources = Sources::default();
        sources.add("f", config).unwrap();
        let end = u32::try_from(config.len()).unwrap();
        let text = Text::of(&sources, Span { source: 0, start: 0, end });
        let mut problems = Problems::default();
        let made = configure(&mut Args::new("q", "Queue", &text, &mut problems)).ok();
        let errors = problems.errors(&sources);
        let words = errors.reports.into_iter().map(|report| {
            let hint = report.hint.map_or(String::new(), |hint| format!(" ({hint})"));
            format!("{} {}{hint}", report.place.column, report.message)
        });
        (made, words.collect())
    }

    type Queue = (u32, Option<bool>, Option<u16>);

    fn queue(args: &mut Args<'_>) -> Result<Queue, ConfigError> {
        let capacity = args.positional("CAPACITY");
        let verbose = args.optional("VERBOSE");
        let burst = args.keyword("BURST");
        args.finish()?;
        Ok((capacity?, verbose?, burst?))
    }

    fn good(config: &str) -> Queue {
        let (made, reported) = run(config, queue);
        assert!(reported.is_empty(), "{reported:?}");
        made.unwrap()
    }

    fn reported(config: &str) -> String {
        let (made, reported) = run(config, queue);
        assert_eq!((made, reported.is_empty()), (None, false), "{config}");
        reported.join("; ")
    }

    #[test]
    fn positions_and_keywords() {
        assert_eq!(good("5"), (5, None, None));
        assert_eq!(good("5, true"), (5, Some(true), None));
        assert_eq!(good("BURST 7, 5"), (5, None, Some(7)), "keywords stand anywhere");
        assert_eq!(good("VERBOSE no, CAPACITY 0x10"), (16, Some(false), None));
        assert_eq!(good("VERBOSE no, 5, BURST\t7,"), (5, Some(false), Some(7)));
        assert_eq!(good("\"5\", /* yes */ 'true'"), (5, Some(true), None));
        assert_eq!(good("5, BURST /* packets */ 7"), (5, None, Some(7)));
        assert_eq!(good("5, BURST/**/7"), (5, None, Some(7)));
        assert_eq!(good("5, BURST 1, BURST 2"), (5, None, Some(2)), "the last one counts");
        assert_eq!(good("BURST 1, CAPACITY 2, BURST x, CAPACITY 5, BURST 3"), (5, None, Some(3)));
    }

    #[test]
    fn a_keyword_of_one_letter_is_one_where_the_class_has_it() {
        let number = |args: &mut Args<'_>| {
            let number = args.optional::<u32>("N");
            let text = args.optional::<String>("TEXT");
            args.finish()?;
            Ok((number?, text?))
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(run("N 3", number).0.unwrap(), (Some(3), None));
        assert_eq!(run("x, N 3", number).0.unwrap(), (Some(3), text("x")));
        assert_eq!(run("5, X y", number).0.unwrap(), (Some(5), text("X y")));
        assert_eq!(run("5, N", number).0.unwrap(), (Some(5), text("N")));
    }

    #[test]
    fn all_that_is_wrong_is_reported() {
        assert_eq!(reported(""), "1 `q` (Queue): argument CAPACITY is missing");
        assert_eq!(
            reported("x, maybe, BRUST 3, 4"),
            "1 `q` (Queue): CAPACITY: `x` is no whole number; \
             4 `q` (Queue): VERBOSE: `maybe` is neither `true` nor `false`; \
             11 `q` (Queue): unknown keyword `BRUST` (did you mean `BURST`?); \
             20 `q` (Queue): too many arguments: at most 2"
        );
        assert_eq!(
            reported("5, BURST 70000"),
            "10 `q` (Queue): BURST: `70000` is out of range: 0 to 65535 are possible"
        );
        assert_eq!(reported("CAPACITY 1, no, 3"), "17 `q` (Queue): too many arguments: at most 2");
        assert_eq!(
            reported("5, SOMETHING x"),
            "4 `q` (Queue): unknown keyword `SOMETHING` (known here: CAPACITY, VERBOSE, BURST)"
        );
        assert_eq!(reported("\\<ff>"), "1 `q` (Queue): CAPACITY: `\\<ff>` is no text");
    }

    #[test]
    fn what_is_in_capitals_is_a_keyword_unless_quoted() {
        let text = |args: &mut Args<'_>| {
            let text = args.positional::<String>("TEXT");
            args.finish()?;
            text
        };
        assert_eq!(run("OK", text).0.unwrap(), "OK");
        assert_eq!(run("'OK done'", text).0.unwrap(), "OK done");
        assert_eq!(run("Ok done", text).0.unwrap(), "Ok done");
        let unknown = "1 `q` (Queue): unknown keyword `OK` (known here: TEXT)";
        assert_eq!(run("OK done", text).1[0], "1 `q` (Queue): argument TEXT is missing");
        assert_eq!(run("x, OK done", text).1, [unknown.replace('1', "4")]);
    }

    #[test]
    fn lists_and_data_are_read_by_their_words_and_bytes() {
        let source = |args: &mut Args<'_>| {
            let data = args.optional_arg("DATA");
            let ports = args.keyword_arg("PORTS");
            args.finish()?;
            let ports = ports?.into_iter().flat_map(|list| list.words().collect::<Vec<_>>());
            let ports: Result<Vec<u16>, _> = ports.map(|port| args.read(&port, "PORTS")).collect();
            Ok((data?.map(|data| data.bytes().into_owned()), ports?))
        };
        let good = |config| run(config, source).0.unwrap();
        assert_eq!(good("\\<ff 00>"), (Some(vec![255, 0]), vec![]));
        let bytes = |text| good(text).0.unwrap();
        assert_eq!(
            bytes("\\<1 2 // abc >\n 3/* > ff */4 5>"),
            [0x12, 0x34],
            "an odd digit is none"
        );
        assert_eq!(bytes("\"a\\<6 /* \" */ 2>c\""), *b"abc");
        assert_eq!(good("PORTS 1 0x2 '3', DATA \"a b\""), (Some(b"a b".to_vec()), vec![1, 2, 3]));
        assert_eq!(run("PORTS 1 x", source).1, ["9 `q` (Queue): PORTS: `x` is no whole number"]);
    }

    #[test]
    fn a_route_table_reads_its_routes() {
        fn routes(args: &mut Args<'_>) -> Result<Vec<(Prefix<u32>, u16)>, ConfigError> {
            let mut routes = Vec::new();
            for route in args.rest() {
                let words: Vec<Arg<'_>> = route.words().collect();
                let [prefix, port] = &words[..] else {
                    args.refuse(&route, "a route is PREFIX OUTPUT");
                    continue;
                };
                if let (Ok(prefix), Ok(port)) =
                    (args.read(prefix, "PREFIX"), args.read(port, "OUTPUT"))
                {
                    routes.push((prefix, port));
                }
            }
            args.finish()?;
            Ok(routes)
        }
        let (made, _) = run("1.0.0.0/24 5, 10/8 /* all */ 6", routes);
        assert_eq!(made.unwrap().len(), 2);
        let (_, reported) = run("1.0.0.0/33 5, 10/8, 1.2.3.4 x", routes);
        assert_eq!(reported.len(), 3);
        assert!(reported[0].starts_with("1 `q` (Queue): PREFIX: `1.0.0.0/33` is no IPv4 prefix"));
        assert_eq!(reported[1], "15 `q` (Queue): a route is PREFIX OUTPUT");
        assert_eq!(reported[2], "29 `q` (Queue): OUTPUT: `x` is no whole number");
        let many = "1.0.0.0/24 5, ".repeat(200_000);
        let (made, _) = run(&many, routes);
        let made = made.unwrap();
        assert_eq!(made.len(), 200_000);
        assert!(made.iter().all(|route| *route == made[0] && route.1 == 5));
    }
}
