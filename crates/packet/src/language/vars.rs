//! Variables in configuration strings: `$x`, `${x}`, `${x-default}`.
//!
//! Source: click(5). A frame has the parameters and definitions of one compound in use, or of the top;
//! what it does not have, the frame around its text has. Definitions see each other in any order. In
//! double quotes a value is escaped; in single quotes and comments there are no variables. Differs: a
//! variable without a value is an error, and so is a `$` that names none, which single quotes allow.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::lex::{PieceKind, Pieces, is_name};
use super::source::{Problems, Span, short};
use super::text::{Builder, Text};

/// Bytes that all variables of a configuration may put in.
const MOST_BYTES: usize = 256 << 20;

/// Definitions that may use one another.
const MOST_DEPTH: usize = 64;

/// Variables with their values.
#[derive(Debug)]
pub(super) struct Frame<'f> {
    around: Option<&'f Frame<'f>>,
    depth: usize,
    values: HashMap<&'f str, RefCell<State>>,
    /// Those that stay as they are where that is wanted.
    kept: HashSet<&'f str>,
}

#[derive(Clone, Debug)]
enum State {
    /// Text to be expanded in its own frame.
    Raw(Text),
    /// Being expanded.
    Busy,
    Done(Text),
    /// A parameter that was not given.
    Unset,
}

impl<'f> Frame<'f> {
    /// An empty frame in another.
    pub(super) fn new(around: Option<&'f Self>) -> Self {
        let depth = around.map_or(0, |around| around.depth + 1);
        Self { around, depth, values: HashMap::new(), kept: HashSet::new() }
    }

    /// The frame of `depth` around this one, or itself.
    pub(super) fn at(&self, depth: usize) -> &Self {
        let mut frame = self;
        while frame.depth > depth {
            frame = frame.around.expect("only the top is at depth 0");
        }
        frame
    }

    /// Adds a definition, whose value may have variables.
    pub(super) fn define(&mut self, name: &'f str, value: Text) {
        self.values.insert(name, RefCell::new(State::Raw(value)));
    }

    /// Lets a definition stay one, for texts that keep such.
    pub(super) fn keep(&mut self, name: &'f str) {
        self.kept.insert(name);
    }

    /// Adds a parameter with what it was given.
    pub(super) fn bind(&mut self, name: &'f str, value: Option<Text>) {
        let state = value.map_or(State::Unset, State::Done);
        self.values.insert(name, RefCell::new(state));
    }

    fn find(&self, name: &str) -> Option<(&Self, &RefCell<State>)> {
        let mut frame = Some(self);
        while let Some(inner) = frame {
            if let Some(value) = inner.values.get(name) {
                return Some((inner, value));
            }
            frame = inner.around;
        }
        None
    }

    /// Whether a name stands for a definition that may stay one.
    fn keeps(&self, name: &str) -> bool {
        self.find(name).is_some_and(|(frame, _)| frame.kept.contains(name))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let frames = std::iter::successors(Some(self), |frame| frame.around);
        frames.flat_map(|frame| frame.values.keys().copied())
    }
}

/// What stays as it is in a text.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Keeps {
    /// Variables that are not known.
    pub unknown: bool,
    /// Those whose definitions stay; in values and defaults that are put in they are put in as well.
    pub defined: bool,
}

/// Puts values in.
#[derive(Debug)]
pub(super) struct Expander<'p> {
    /// What is wrong.
    pub problems: &'p mut Problems,
    bytes: usize,
    depth: usize,
    keeps: Keeps,
}

impl<'p> Expander<'p> {
    /// Reports errors to `problems`.
    pub(super) fn new(problems: &'p mut Problems) -> Self {
        Self { problems, bytes: 0, depth: 0, keeps: Keeps::default() }
    }

    /// Expands as [`expand`](Self::expand) does, but for what `keeps` names.
    pub(super) fn expand_for(&mut self, text: &Text, frame: &Frame<'_>, keeps: Keeps) -> Text {
        let before = std::mem::replace(&mut self.keeps, keeps);
        let expanded = self.expand(text, frame);
        self.keeps = before;
        expanded
    }

    /// Expands what is put in elsewhere, where it may be escaped or split: definitions do not stay.
    fn expand_inner(&mut self, text: &Text, frame: &Frame<'_>) -> Text {
        self.expand_for(text, frame, Keeps { defined: false, ..self.keeps })
    }

    /// `text` with the variables of `frame` put in; the same text where there are none.
    pub(super) fn expand(&mut self, text: &Text, frame: &Frame<'_>) -> Text {
        // What is copied counts as well: a compound's text is copied for each use of it.
        if !text.as_str().contains('$') || !self.charge(text.as_str().len(), text.whole_span()) {
            return text.clone();
        }
        let reported = self.problems.count();
        let mut builder = Builder::default();
        let all = text.as_str();
        let mut at = 0;
        while let Some(piece) = Pieces::new(all, at).next() {
            at = piece.end;
            match piece.kind {
                PieceKind::Dollar => {
                    at = self.variable(text, piece.start..all.len(), frame, &mut builder, Raw)
                }
                PieceKind::Double => {
                    self.quoted(text, piece.start, at, frame, &mut builder, Double)
                }
                PieceKind::Hex => self.quoted(text, piece.start, at, frame, &mut builder, Hex),
                _ => builder.copy(text, piece.start..piece.end),
            }
        }
        let made = builder.build(text.whole_span());
        // Where something was left out, that was told.
        if self.problems.count() == reported && !balanced(made.as_str()) {
            let words =
                "with its variables put in, this has quotes or parentheses without their end";
            self.problems.add(text.whole_span(), words);
        }
        made
    }

    fn quoted(
        &mut self,
        text: &Text,
        start: usize,
        end: usize,
        frame: &Frame<'_>,
        builder: &mut Builder,
        how: Inside,
    ) {
        let bytes = text.as_str().as_bytes();
        let (mut from, mut at) = (start, start);
        while at < end {
            match bytes[at] {
                b'\\' => at += 2,
                b'$' => {
                    builder.copy(text, from..at);
                    at = self.variable(text, at..end, frame, builder, how);
                    from = at;
                }
                _ => at += 1,
            }
        }
        builder.copy(text, from..end.max(from));
    }

    /// Puts in what the reference at the start of `within` stands for. Where it ends.
    fn variable(
        &mut self,
        text: &Text,
        within: Range<usize>,
        frame: &Frame<'_>,
        builder: &mut Builder,
        how: Inside,
    ) -> usize {
        let at = within.start;
        let reference = Reference::read(&text.as_str()[..within.end], at);
        let Some(Reference { name, word, default, end }) = reference else {
            if self.keeps.unknown {
                // `$$` is one of its own.
                let more = text.as_str().as_bytes()[..within.end].get(at + 1) == Some(&b'$');
                builder.copy(text, at..at + 1 + usize::from(more));
                return at + 1 + usize::from(more);
            }
            // As in Click, what is no reference is itself.
            builder.copy(text, at..at + 1);
            return at + 1;
        };
        let place = text.span(at..end);
        if self.keeps.defined && frame.keeps(name) {
            let bytes = text.as_str().as_bytes();
            match (bytes.get(at + 1), bytes.get(end)) {
                // What is put in behind it would be read as a part of the name.
                (Some(first), Some(b'$')) if *first != b'{' => {
                    builder.put(&format!("${{{name}}}"), place);
                }
                _ => builder.copy(text, at..end),
            }
            return end;
        }
        // A `$` before a number may be what was put in before: a flat configuration reads as itself.
        let number = name.starts_with(|c: char| c.is_ascii_digit());
        let value = match (self.value(name, frame, place), default) {
            (Ok(value), _) => Some(value),
            (Err(Missing::Told), _) => None,
            (Err(Missing::Unknown), None) if self.keeps.unknown || number => {
                builder.copy(text, at..end);
                return end;
            }
            (Err(_), Some(range)) => Some(self.expand_inner(&text.slice(range), frame)),
            (Err(Missing::Unset), None) => {
                self.problems
                    .add(place, format!("`${}` has no value here: it was not given", short(name)))
                    .hint(format!("write `${{{name}-VALUE}}` for what it is then"));
                None
            }
            (Err(Missing::Unknown), None) => {
                let hint = self.problems.near(name, frame.names());
                let hint = hint.map(|hint| hint.replacen('`', "`$", 1));
                let words = format!("no variable is called `${}`", short(name));
                self.problems.add(place, words).maybe(hint);
                None
            }
        };
        if let Some(value) = value {
            let value = match word {
                None => value.as_str(),
                Some(word) => {
                    let range = value.words(0..value.as_str().len()).nth(word).unwrap_or(0..0);
                    &value.as_str()[range]
                }
            };
            self.put(value, place, builder, how);
        }
        end
    }

    /// Whether so many bytes more may be made; reported once where not.
    fn charge(&mut self, bytes: usize, place: Span) -> bool {
        if self.bytes > MOST_BYTES {
            return false;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST_BYTES {
            let most = MOST_BYTES >> 20;
            self.problems.add(place, format!("texts with variables make more than {most} MiB"));
        }
        self.bytes <= MOST_BYTES
    }

    fn put(&mut self, value: &str, place: Span, builder: &mut Builder, how: Inside) {
        if !self.charge(value.len(), place) {
            return;
        }
        match how {
            Raw => builder.put(value, place),
            Double => {
                let mut escaped = String::with_capacity(value.len());
                for c in value.chars() {
                    if matches!(c, '"' | '\\' | '$') {
                        escaped.push('\\');
                    }
                    escaped.push(c);
                }
                builder.put(&escaped, place);
            }
            Hex if value.bytes().all(|b| b.is_ascii_hexdigit() || b.is_ascii_whitespace()) => {
                builder.put(value, place);
            }
            Hex => {
                let words = format!("`{}` is no hexadecimal data", short(value));
                self.problems.add(place, words);
            }
        }
    }

    fn value(&mut self, name: &str, frame: &Frame<'_>, place: Span) -> Result<Text, Missing> {
        let Some((frame, cell)) = frame.find(name) else { return Err(Missing::Unknown) };
        let state = cell.borrow().clone();
        match state {
            State::Done(text) => Ok(text),
            State::Unset => Err(Missing::Unset),
            State::Busy => {
                self.problems.add(place, format!("`${}` is defined by itself", short(name)));
                Err(Missing::Told)
            }
            State::Raw(_) if self.depth == MOST_DEPTH => {
                let words = format!("definitions use each other more than {MOST_DEPTH} deep");
                self.problems.add(place, words);
                Err(Missing::Told)
            }
            State::Raw(text) => {
                cell.replace(State::Busy);
                self.depth += 1;
                let text = self.expand_inner(&text, frame);
                self.depth -= 1;
                cell.replace(State::Done(text.clone()));
                Ok(text)
            }
        }
    }
}

/// Why there is no value.
enum Missing {
    Unknown,
    Unset,
    Told,
}

/// What a variable stands in.
#[derive(Clone, Copy)]
enum Inside {
    Raw,
    Double,
    Hex,
}
use Inside::{Double, Hex, Raw};

struct Reference<'a> {
    name: &'a str,
    /// Which word of its value, from 0: `${name[1]}`.
    word: Option<usize>,
    default: Option<Range<usize>>,
    /// Past its last byte.
    end: usize,
}

impl<'a> Reference<'a> {
    /// The reference whose `$` is at `at`.
    fn read(text: &'a str, at: usize) -> Option<Self> {
        let bytes = text.as_bytes();
        let braces = bytes.get(at + 1) == Some(&b'{');
        let start = at + 1 + usize::from(braces);
        let len = bytes[start.min(bytes.len())..].iter().take_while(|&&byte| is_name(byte)).count();
        if len == 0 {
            return None;
        }
        let past = start + len;
        let name = &text[start..past];
        if !braces {
            return Some(Self { name, word: None, default: None, end: past });
        }
        let (mut past, mut word) = (past, None);
        if bytes.get(past) == Some(&b'[') {
            let close = past + text[past..].find(']')?;
            word = Some(text[past + 1..close].trim().parse().ok()?);
            past = close + 1;
        }
        match bytes.get(past)? {
            b'}' => Some(Self { name, word, default: None, end: past + 1 }),
            b'-' => {
                let close = past + 1 + text[past + 1..].find('}')?;
                Some(Self { name, word, default: Some(past + 1..close), end: close + 1 })
            }
            _ => None,
        }
    }
}

/// All quotes and parentheses of a configuration string have their end in it.
pub(super) fn balanced(text: &str) -> bool {
    let mut depth = 0_usize;
    for piece in Pieces::new(text, 0) {
        match piece.kind {
            PieceKind::Open => depth += 1,
            PieceKind::Close if depth == 0 => return false,
            PieceKind::Close => depth -= 1,
            // A comment to the end of its line would hide the parenthesis behind the string.
            PieceKind::Comment
                if piece.end == text.len() && text[piece.start..].starts_with("//") =>
            {
                return false;
            }
            _ if piece.unclosed().is_some() => return false,
            _ => {}
        }
    }
    depth == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::source::Sources;

    /// Expands the last of `texts` with those before defined as `a`, `b`, ...; `u` is not given.
    fn expand(texts: &[&str]) -> (String, String) {
        let mut sources = Sources::default();
        let mut list: Vec<Text> = Vec::new();
        for text in texts {
            let source = sources.add("f", text).unwrap();
            let end = u32::try_from(text.len()).unwrap();
            list.push(Text::of(&sources, Span { source, start: 0, end }));
        }
        let mut frame = Frame::new(None);
        let last = list.pop().unwrap();
        for (name, value) in ["a", "b", "c"].into_iter().zip(list) {
            frame.define(name, value);
        }
        frame.bind("u", None);
        let inner = Frame::new(Some(&frame));
        let mut problems = Problems::default();
        let made = Expander::new(&mut problems).expand(&last, &inner).as_str().to_owned();
        let reports = problems.errors(&sources).reports;
        let reported = reports.iter().map(|r| format!("{} {}", r.place.column, r.message));
        (made, reported.collect::<Vec<_>>().join("; "))
    }

    fn good(texts: &[&str]) -> String {
        let (made, reported) = expand(texts);
        assert_eq!(reported, "", "{texts:?}");
        made
    }

    #[test]
    fn values_are_put_in() {
        assert_eq!(good(&["5", "$a, x$a/24 ${a}b ${u-7} ${z-8}"]), "5, x5/24 5b 7 8");
        assert_eq!(good(&["$b", "$c$c", "1", "$a"]), "11", "in any order");
        assert_eq!(good(&["1, 2", "$a"]), "1, 2");
        assert_eq!(
            good(&["x 'y z' w", "${a[0]}-${a[1]}-${a[ 2 ]}-${a[3]}-${u[0]-5}"]),
            "x-'y z'-w--5"
        );
        assert_eq!(
            good(&["1", "5$, ${a, ${}, ${a+1} $(add $a 2)"]),
            "5$, ${a, ${}, ${a+1} $(add 1 2)"
        );
        assert_eq!(good(&["1", "${u-$a}"]), "1");
        assert_eq!(good(&["", "x$a"]), "x");
        assert_eq!(good(&["1", "'$a' /* $a */ // $a\n"]), "'$a' /* $a */ // $a\n");
        assert_eq!(good(&["(1)", "($a)"]), "((1))");
    }

    #[test]
    fn in_quotes_values_are_escaped() {
        assert_eq!(good(&["\"x\\y\"", "\"<$a>\""]), r#""<\"x\\y\">""#);
        assert_eq!(good(&["'$b'", "\"$a\""]), r#""'\$b'""#);
        assert_eq!(good(&["5", r#""\$a${a}\\$a""#]), r#""\$a5\\5""#);
        assert_eq!(good(&["48 4", r"\<$a 5>"]), r"\<48 4 5>");
    }

    #[test]
    fn what_cannot_be_put_in_is_reported() {
        let reported = |texts: &[&str]| expand(texts).1;
        assert_eq!(reported(&["1", "x $z"]), "3 no variable is called `$z`");
        assert_eq!(reported(&["1", "$u"]), "1 `$u` has no value here: it was not given");
        assert_eq!(reported(&["$b", "$a", "$a"]), "1 `$a` is defined by itself");
        assert_eq!(reported(&["xy", r"\<$a>"]), "3 `xy` is no hexadecimal data");
        let ends = "1 with its variables put in, this has quotes or parentheses without their end";
        assert_eq!(reported(&["(", "$a"]), format!("{ends}"));
        assert_eq!(reported(&["/", "x $a/ y"]), ends);
        assert_eq!(reported(&["1", "\"$a"]), ends);
    }

    #[test]
    fn what_is_copied_for_each_use_is_bounded_too() {
        let mut sources = Sources::default();
        let literal = format!("'{}', $a", "x".repeat(1 << 20));
        let source = sources.add("f", &literal).unwrap();
        let end = u32::try_from(literal.len()).unwrap();
        let text = Text::of(&sources, Span { source, start: 0, end });
        let mut frame = Frame::new(None);
        frame.define("a", text.slice(1..2));
        let inner = Frame::new(Some(&frame));
        let mut problems = Problems::default();
        let mut expander = Expander::new(&mut problems);
        let made = (0..300).filter(|_| expander.expand(&text, &inner) != text).count();
        assert!((200..256).contains(&made), "{made}");
        assert_eq!(problems.count(), 1);
    }

    #[test]
    fn defaults_hold_where_unknown_variables_stay() {
        let mut sources = Sources::default();
        let source = sources.add("f", "$x ${x} ${x-7} ${x-$y-8}").unwrap();
        let text = Text::of(&sources, Span { source, start: 0, end: 24 });
        let mut problems = Problems::default();
        let keeps = Keeps { unknown: true, defined: false };
        let made = Expander::new(&mut problems).expand_for(&text, &Frame::new(None), keeps);
        assert_eq!((made.as_str(), problems.count()), ("$x ${x} 7 $y-8", 0));
    }

    #[test]
    fn growth_is_bounded() {
        let doubled = "$b".repeat(1000);
        let (made, reported) = expand(&[&doubled, &"$c".repeat(1000), &"x".repeat(1000), "$a"]);
        assert_eq!(reported, "535 texts with variables make more than 256 MiB", "once");
        assert!(made.len() < 300 << 20);
    }
}
