//! Source texts of graphs, places in them, and what is wrong there.
//!
//! Every step of the language (see [`super`]) reports to [`Problems`] what it finds and
//! continues, so that one run shows all that is wrong with a file. Places are byte ranges until somebody reads
//! them; only then are lines counted. Nothing here grows with the number of problems past a bound.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use fingerpost_route::source::words::nearest;

/// Problems that are kept; the others are counted.
const MOST_KEPT: usize = 1000;

/// The text that was given, which requires the others.
const FIRST: u16 = 0;

/// Problems that are shown.
const MOST_SHOWN: usize = 50;

/// Words compared in search of near ones, over all problems: a bad file must not take long.
const MOST_COMPARED: usize = 100_000;

/// Characters shown of a line, and of a word.
const LINE_SHOWN: usize = 100;
const WORD_SHOWN: usize = 60;

/// A range of bytes of a source text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span {
    /// Number of the text in its [`Sources`].
    pub source: u16,
    /// First byte.
    pub start: u32,
    /// Past the last byte.
    pub end: u32,
}

impl Span {
    /// From the start of this one to the end of `last`, of the same text.
    #[must_use]
    pub fn to(self, last: Self) -> Self {
        Self { end: last.end.max(self.start), ..self }
    }

    /// Without its first and last byte: what stands between brackets.
    #[must_use]
    pub fn inside(self) -> Self {
        let end = self.end.saturating_sub(1).max(self.start);
        Self { start: (self.start + 1).min(end), end, ..self }
    }
}

/// A line directive: what the line after it is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directive {
    /// First byte of the line after it.
    pub next: u32,
    /// Number of that line.
    pub line: u32,
    /// Name of the file from there on, where it gives one.
    pub file: Option<Arc<str>>,
}

/// A text and its name.
#[derive(Clone, Debug)]
pub(super) struct Source {
    name: Arc<str>,
    text: Arc<str>,
    /// First byte of each line.
    lines: Vec<u32>,
    directives: Vec<Directive>,
}

/// Where something is, as people count: from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Name of the file.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Character in the line, from 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Source {
    /// The line in which byte `at` is, as a range.
    fn line_of(&self, at: u32) -> (usize, Range<usize>) {
        let line = self.lines.partition_point(|&start| start <= at) - 1;
        let start = self.lines[line] as usize;
        let end = self.lines.get(line + 1).map_or(self.text.len(), |&next| next as usize - 1);
        (line, start..end)
    }

    fn place(&self, at: u32) -> Place {
        let (line, range) = self.line_of(at);
        let before = &self.text.as_bytes()[range.start..(at as usize).max(range.start)];
        let column = before.iter().filter(|&&byte| byte & 0xC0 != 0x80).count() + 1;
        let said = self.directives.partition_point(|directive| directive.next <= at);
        let (mut file, mut number) = (&self.name, line + 1);
        if let Some(last) = said.checked_sub(1) {
            let directive = &self.directives[last];
            let (from, _) = self.line_of(directive.next);
            number = (directive.line as usize).saturating_add(line - from);
            let named = self.directives[..said].iter().rev().find_map(|d| d.file.as_ref());
            // An empty name is that of the text itself.
            file = named.filter(|name| !name.is_empty()).unwrap_or(file);
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Place { file: Arc::clone(file), line: count(number), column: count(column) }
    }
}

/// All texts of a configuration: the file, its libraries, and variables given at start-up.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    list: Vec<Source>,
    /// Who reads errors sent the first text, and may not read the others.
    hides_libraries: bool,
}

impl Sources {
    /// None yet; whether errors are to show what stands in others than the first.
    pub(super) fn shown(libraries: bool) -> Self {
        Self { list: Vec::new(), hides_libraries: !libraries }
    }

    /// Adds a text. `None` when it is of 4 GiB or more, or one text too many.
    pub fn add(&mut self, name: &str, text: &str) -> Option<u16> {
        let id = u16::try_from(self.list.len()).ok()?;
        u32::try_from(text.len()).ok()?;
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let after = breaks.map(|(at, _)| u32::try_from(at + 1).expect("the length fits"));
        let lines = std::iter::once(0).chain(after).collect();
        let (name, text) = (Arc::from(name), Arc::from(text));
        self.list.push(Source { name, text, lines, directives: Vec::new() });
        Some(id)
    }

    /// Names lines of a text.
    pub fn direct(&mut self, source: u16, directives: Vec<Directive>) {
        self.list[usize::from(source)].directives = directives;
    }

    /// A whole text, shared.
    pub fn whole(&self, source: u16) -> &Arc<str> {
        &self.list[usize::from(source)].text
    }

    /// Name of a text.
    pub fn name(&self, source: u16) -> &str {
        &self.list[usize::from(source)].name
    }

    /// The text of a span.
    pub fn text(&self, span: Span) -> &str {
        &self.whole(span.source)[span.start as usize..span.end as usize]
    }

    /// Where a span begins.
    pub fn place(&self, span: Span) -> Place {
        self.list[usize::from(span.source)].place(span.start)
    }
}

/// How Click reports a problem: scripts of its users look for its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InClick {
    /// What could not be read: the router is not made.
    Reading(String),
    /// Ports that do not fit: the router is not initialized.
    Checking(String),
    /// Nothing: Click does not report it.
    Silent,
    /// Arguments of an element: below a heading that names it and its class.
    Configuring {
        /// Name and class.
        element: (String, String),
        /// What is wrong.
        words: String,
    },
}

/// Something wrong at a place.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    at: Span,
    message: String,
    in_click: Option<InClick>,
    hint: Option<String>,
    notes: Vec<(Span, String)>,
}

impl Problem {
    /// Adds a remedy.
    pub fn hint(&mut self, words: impl Into<String>) -> &mut Self {
        self.hint = Some(words.into());
        self
    }

    /// Adds how Click reports it.
    pub fn in_click(&mut self, report: InClick) -> &mut Self {
        self.in_click = Some(report);
        self
    }

    /// Adds a remedy, where there is one.
    pub fn maybe(&mut self, words: Option<String>) -> &mut Self {
        self.hint = words.or(self.hint.take());
        self
    }

    /// Names another place that has to do with it.
    pub fn note(&mut self, at: Span, words: impl Into<String>) -> &mut Self {
        self.notes.push((at, words.into()));
        self
    }
}

/// Collects what is wrong.
#[derive(Debug, Default)]
pub struct Problems {
    kept: Vec<Problem>,
    /// Problems reported: compounds are read once for each use.
    reported: HashSet<(Span, String)>,
    more: usize,
    /// What is right, but may not be meant.
    warned: Vec<Problem>,
    compared: usize,
    /// Takes the words of a problem that is not kept.
    unkept: Problem,
}

impl Problems {
    /// Reports one: lower case, no full stop. Equal words about one place are reported once.
    pub fn add(&mut self, at: Span, message: impl Into<String>) -> &mut Problem {
        let message = message.into();
        self.unkept = Problem::default();
        if self.kept.len() == MOST_KEPT {
            self.more += usize::from(!self.reported.contains(&(at, message)));
            return &mut self.unkept;
        }
        if !self.reported.insert((at, message.clone())) {
            return &mut self.unkept;
        }
        self.kept.push(Problem { at, message, ..Problem::default() });
        self.kept.last_mut().expect("just added")
    }

    /// Warns about what may not be meant, with how Click reports it; no more than are shown, and equal words about one place
    /// once.
    pub fn warn(&mut self, at: Span, message: String, in_click: InClick) {
        let known = self.warned.iter().any(|known| known.at == at && known.message == message);
        if !known && self.warned.len() < MOST_SHOWN {
            let in_click = Some(in_click);
            self.warned.push(Problem { at, message, in_click, ..Problem::default() });
        }
    }

    /// What was reported so far is what could not be read, of which Click makes no router.
    pub(super) fn end_reading(&mut self) {
        for problem in &mut self.kept {
            problem.in_click.get_or_insert_with(|| InClick::Reading(problem.message.clone()));
        }
    }

    /// What may not be meant, in words.
    pub fn warnings(&self, sources: &Sources) -> Vec<Report> {
        self.warned.iter().map(|problem| Report::new(problem, sources)).collect()
    }

    /// Whether none was reported.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Number of problems reported.
    pub fn count(&self) -> usize {
        self.kept.len() + self.more
    }

    /// A hint with the nearest of `known`. Compares no more words than a bad file is worth.
    pub fn near<'a>(
        &mut self,
        given: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Option<String> {
        if given.len() > WORD_SHOWN {
            return None;
        }
        let left = MOST_COMPARED - self.compared;
        let known = known.into_iter().take(left).inspect(|_| self.compared += 1);
        let near = nearest(given, known.filter(|word| word.len().abs_diff(given.len()) <= 2))?;
        Some(format!("did you mean `{near}`?"))
    }

    /// All of them, by place, in words.
    pub fn errors(mut self, sources: &Sources) -> Errors {
        self.kept.sort_by_key(|problem| (problem.at.source, problem.at.start));
        let all = self.count();
        let mut reports: Vec<_> =
            self.kept.iter().take(MOST_SHOWN).map(|p| Report::new(p, sources)).collect();
        let more = all - reports.len();
        let elsewhere = |problem: &Problem| problem.at.source != FIRST;
        if sources.hides_libraries && self.kept.iter().any(elsewhere) {
            for (report, problem) in reports.iter_mut().zip(&self.kept) {
                (report.hint, report.notes) = (None, Vec::new());
                if elsewhere(problem) {
                    *report = Report::hidden(problem, sources);
                }
            }
            // A line has no more than one mistake then.
            reports.dedup();
        }
        Errors { reports, more }
    }
}

/// A problem in words, with its place and the line it is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// How Click reports it, where that differs.
    pub in_click: Option<InClick>,
    /// The text that is wrong, shortened.
    pub token: String,
    /// The line, or as much of it as fits, and which of its characters are meant.
    pub excerpt: (String, Range<usize>),
    /// What would put it right.
    pub hint: Option<String>,
    /// Other places that have to do with it.
    pub notes: Vec<(Place, String)>,
}

impl Report {
    fn new(problem: &Problem, sources: &Sources) -> Self {
        let notes = problem.notes.iter();
        Self {
            place: sources.place(problem.at),
            message: problem.message.clone(),
            in_click: problem.in_click.clone(),
            token: short(sources.text(problem.at)),
            excerpt: excerpt(&sources.list[usize::from(problem.at.source)], problem.at),
            hint: problem.hint.clone(),
            notes: notes.map(|(at, words)| (sources.place(*at), words.clone())).collect(),
        }
    }

    /// That there is a problem in a line, and nothing of what stands there: not even what the text calls that line.
    fn hidden(problem: &Problem, sources: &Sources) -> Self {
        let source = &sources.list[usize::from(problem.at.source)];
        let (line, _) = source.line_of(problem.at.start);
        let line = u32::try_from(line + 1).unwrap_or(u32::MAX);
        Self {
            place: Place { file: Arc::clone(&source.name), line, column: 1 },
            message: "a mistake in a library, whose text is not shown here".to_owned(),
            in_click: None,
            token: String::new(),
            excerpt: (String::new(), 0..0),
            hint: None,
            notes: Vec::new(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        let (line, marked) = &self.excerpt;
        if !line.trim().is_empty() {
            let (skip, width) = (marked.start, marked.len().max(1));
            write!(f, "\n    {line}\n    {}{}", " ".repeat(skip), "^".repeat(width))?;
        }
        for (place, words) in &self.notes {
            write!(f, "\n    {place}: {words}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n    hint: {hint}")?;
        }
        Ok(())
    }
}

/// Everything wrong with a configuration, by place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Errors {
    /// The first of them.
    pub reports: Vec<Report>,
    /// How many more there are.
    pub more: usize,
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, report) in self.reports.iter().enumerate() {
            write!(f, "{}{report}", if n == 0 { "" } else { "\n" })?;
        }
        if self.more > 0 {
            write!(f, "\n... and {} more", self.more)?;
        }
        Ok(())
    }
}

/// Text for a message: one line, not too long, nothing that a terminal would obey.
pub(crate) fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(WORD_SHOWN).map(plain).collect();
    if text.chars().nth(WORD_SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

fn plain(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

/// The line of a span, no more of it than fits, and the characters of it that the span covers.
fn excerpt(source: &Source, span: Span) -> (String, Range<usize>) {
    let (_, line) = source.line_of(span.start);
    let text = &source.text;
    let from = (span.start as usize).clamp(line.start, line.end);
    let to = (span.end as usize).clamp(from, line.end);
    let before = text[line.start..from].chars().rev().take(LINE_SHOWN / 2);
    let mut shown: Vec<char> = before.collect();
    shown.reverse();
    let start = shown.len();
    let room = LINE_SHOWN - start;
    let inside = text[from..to].chars().take(room);
    shown.extend(inside);
    let end = shown.len();
    shown.extend(text[to..line.end].chars().take(LINE_SHOWN - end));
    let blank = shown.iter().take_while(|c| c.is_whitespace()).count().min(start);
    let shown: String = shown[blank..].iter().map(|&c| plain(c)).collect();
    (shown.trim_end().to_owned(), start - blank..end - blank)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u32, end: u32) -> Span {
        Span { source: 0, start, end }
    }

    fn one(text: &str) -> Sources {
        let mut sources = Sources::default();
        assert_eq!(sources.add("a.click", text), Some(0));
        sources
    }

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let sources = one("ab\n\u{e9}\u{20ac}x\n");
        let place = |at| sources.place(span(at, at)).to_string();
        assert_eq!(place(0), "a.click:1:1");
        assert_eq!(place(2), "a.click:1:3", "the break belongs to its line");
        assert_eq!(place(3), "a.click:2:1");
        assert_eq!(place(8), "a.click:2:3", "two characters of two and three bytes before");
        assert_eq!(place(10), "a.click:3:1", "the end of the text");
    }

    #[test]
    fn directives_rename_the_lines_after_them() {
        let mut sources = one("a\n# 10 \"b\"\nc\nd\n#line 3\ne");
        let file = Some(Arc::from("b"));
        sources.direct(
            0,
            vec![
                Directive { next: 11, line: 10, file },
                Directive { next: 23, line: 3, file: None },
            ],
        );
        let place = |at| sources.place(span(at, at)).to_string();
        assert_eq!(place(0), "a.click:1:1");
        assert_eq!(place(11), "b:10:1");
        assert_eq!(place(13), "b:11:1");
        assert_eq!(place(23), "b:3:1", "the name stays");
    }

    #[test]
    fn problems_are_shown_by_place_once_each() {
        let sources = one("  a ->\tb;\nc");
        let mut problems = Problems::default();
        problems.add(span(10, 11), "second");
        problems.add(span(7, 8), "first").hint("do this").note(span(2, 3), "see here");
        problems.add(span(10, 11), "second");
        assert_eq!(problems.count(), 2);
        let errors = problems.errors(&sources);
        assert_eq!(errors.reports[0].token, "b");
        assert_eq!(
            errors.to_string(),
            "a.click:1:8: first\n    a -> b;\n         ^\n    a.click:1:3: see here\n    \
             hint: do this\na.click:2:1: second\n    c\n    ^"
        );
    }

    #[test]
    fn what_is_shown_is_bounded() {
        let long = "x".repeat(10_000);
        let sources = one(&long);
        let mut problems = Problems::default();
        for at in 0..2000 {
            problems.add(span(at, 10_000), "bad").hint("h");
        }
        let errors = problems.errors(&sources);
        assert_eq!((errors.reports.len(), errors.more), (50, 1950));
        assert!(errors.to_string().ends_with("... and 1950 more"));
        let report = &errors.reports[49];
        assert!(report.excerpt.0.len() <= LINE_SHOWN && report.token.len() < 80);
        assert_eq!(report.excerpt.1, 49..100);
        assert_eq!(short("a\x1b[0m\n"), "a [0m ");
    }

    #[test]
    fn of_a_library_that_is_hidden_only_the_line_is_reported() {
        let reported = |shown| {
            let mut sources = Sources::shown(shown);
            sources.add("a.click", "require(library b)").unwrap();
            sources.add("b", "x\nroot:secret:0\n").unwrap();
            let file = Some(Arc::from("secret"));
            sources.direct(1, vec![Directive { next: 2, line: 7, file }]);
            let at = |source, start, end| Span { source, start, end };
            let mut problems = Problems::default();
            problems.add(at(1, 2, 6), "`root` is nothing").hint("did you mean `secret`?");
            problems.add(at(1, 7, 13), "`secret` is nothing");
            problems
                .add(at(0, 0, 7), "wrong")
                .hint("did you mean `secret`?")
                .note(at(1, 2, 6), "x");
            problems.errors(&sources).to_string()
        };
        assert_eq!(reported(true).matches("secret").count(), 8, "{}", reported(true));
        assert_eq!(
            reported(false),
            "a.click:1:1: wrong\n    require(library b)\n    ^^^^^^^\nb:2:1: a mistake in a library, whose text \
             is not shown here"
        );
    }

    #[test]
    fn near_words_are_found_until_it_takes_too_long() {
        let mut problems = Problems::default();
        let near = problems.near("Cuonter", ["Queue", "Counter"]);
        assert_eq!(near.as_deref(), Some("did you mean `Counter`?"));
        assert_eq!(problems.near("Xyz", ["Queue", "Counter"]), None);
        assert_eq!(problems.near("Cuonter", std::iter::repeat_n("Queue", MOST_COMPARED)), None);
        assert_eq!(problems.near("Cuonter", ["Counter"]), None, "enough was compared");
    }
}
