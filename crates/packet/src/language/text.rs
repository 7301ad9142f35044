//! Text of a configuration string that knows where each of its bytes is from.
//!
//! A string without variables is a range of the source, shared and never copied: a route table of a
//! million arguments is one range. Where variables were put in, pieces record which bytes are the source's
//! own and which came of a variable; the latter are placed where the variable is named.

use std::ops::Range;
use std::sync::Arc;

use super::lex::{PieceKind, Pieces, is_blank};
use super::source::{Sources, Span};

/// A shared piece of text with its origin.
#[derive(Clone, Debug)]
pub struct Text {
    whole: Arc<str>,
    range: Range<usize>,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    /// The whole is source text of this number.
    Source(u16),
    /// The whole was put together.
    Made(Arc<[Made]>),
}

/// Origin of the bytes from `at` on.
#[derive(Clone, Copy, Debug)]
struct Made {
    at: usize,
    from: Span,
    /// Byte by byte; otherwise all of them are from all of the span.
    verbatim: bool,
}

impl Text {
    /// What stands at a span.
    pub fn of(sources: &Sources, span: Span) -> Self {
        Self {
            whole: Arc::clone(sources.whole(span.source)),
            range: span.start as usize..span.end as usize,
            origin: Origin::Source(span.source),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.whole[self.range.clone()]
    }

    /// A part of it, shared.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let start = self.range.start;
        let range = start + range.start..start + range.end;
        Self { whole: Arc::clone(&self.whole), range, origin: self.origin.clone() }
    }

    /// Where a part of it is from.
    pub fn span(&self, range: Range<usize>) -> Span {
        let offset = |at: usize| u32::try_from(at).expect("texts are below 4 GiB");
        let (start, end) = (self.range.start + range.start, self.range.start + range.end);
        match &self.origin {
            Origin::Source(source) => {
                Span { source: *source, start: offset(start), end: offset(end) }
            }
            Origin::Made(pieces) => {
                let of = |at: usize| {
                    let piece = pieces[pieces.partition_point(|piece| piece.at <= at).max(1) - 1];
                    let moved = piece.from.start + offset(at.saturating_sub(piece.at));
                    match piece.verbatim {
                        true => Span { start: moved, end: moved + 1, ..piece.from },
                        false => piece.from,
                    }
                };
                of(start).to(of(end.max(start + 1) - 1))
            }
        }
    }

    /// Where all of it is from.
    pub fn whole_span(&self) -> Span {
        self.span(0..self.range.len())
    }

    /// Its arguments: split at commas, white space and comments around them left out. An empty last
    /// one is none.
    pub fn arguments(&self) -> Vec<Range<usize>> {
        let text = self.as_str();
        let mut found = Vec::new();
        let mut inside: Option<Range<usize>> = None;
        for piece in Pieces::new(text, 0) {
            match piece.kind {
                PieceKind::Comma => {
                    found.push(inside.take().unwrap_or(piece.start..piece.start));
                }
                PieceKind::Comment => {}
                _ => {
                    let bytes = &text.as_bytes()[piece.start..piece.end];
                    let start = piece.start + blank(bytes.iter());
                    let end = piece.end - blank(bytes.iter().rev());
                    if piece.kind != PieceKind::Plain || start < end {
                        inside = Some(inside.map_or(start, |range| range.start)..end);
                    }
                }
            }
        }
        found.extend(inside);
        found
    }

    /// The parts of one of its arguments between white space and comments. Quotes keep theirs.
    pub fn words(&self, argument: Range<usize>) -> Words<'_> {
        let text = &self.as_str()[..argument.end];
        Words { pieces: Pieces::new(text, argument.start), text, open: None }
    }

    /// The first word of one of its arguments, and the rest from the second on.
    pub(super) fn split_word(&self, argument: Range<usize>) -> (Range<usize>, Range<usize>) {
        let mut words = self.words(argument.clone());
        let first = words.next().unwrap_or(argument.start..argument.start);
        let rest = words.next().map_or(argument.end, |second| second.start);
        (first, rest..argument.end)
    }
}

/// How many bytes are white space before the first that is not.
fn blank<'a>(bytes: impl Iterator<Item = &'a u8>) -> usize {
    bytes.take_while(|&&byte| is_blank(byte)).count()
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text {}

/// See [`Text::words`].
#[derive(Clone, Debug)]
pub struct Words<'a> {
    pieces: Pieces<'a>,
    text: &'a str,
    /// What is left of a plain piece.
    open: Option<(usize, usize)>,
}

impl Iterator for Words<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let mut begun: Option<usize> = None;
        let mut past = 0;
        loop {
            let (start, end, plain) = match self.open.take() {
                Some((start, end)) => (start, end, true),
                None => match self.pieces.next() {
                    None => return begun.map(|start| start..past),
                    Some(piece) if piece.kind == PieceKind::Comment => match begun {
                        Some(start) => return Some(start..past),
                        None => continue,
                    },
                    Some(piece) => (piece.start, piece.end, piece.kind == PieceKind::Plain),
                },
            };
            if !plain {
                begun.get_or_insert(start);
                past = end;
                continue;
            }
            let bytes = &self.text.as_bytes()[start..end];
            let blank = blank(bytes.iter());
            if let (Some(from), true) = (begun, blank > 0) {
                self.open = Some((start, end));
                return Some(from..past);
            }
            let bytes = &bytes[blank..];
            if bytes.is_empty() {
                continue;
            }
            let len = bytes.iter().position(|&byte| is_blank(byte)).unwrap_or(bytes.len());
            begun.get_or_insert(start + blank);
            past = start + blank + len;
            if len < bytes.len() {
                self.open = Some((past, end));
            }
        }
    }
}

/// Puts a text together out of others.
#[derive(Debug, Default)]
pub(super) struct Builder {
    text: String,
    pieces: Vec<Made>,
}

impl Builder {
    /// Adds a part of `text` as it is.
    pub(super) fn copy(&mut self, text: &Text, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let from = text.span(range.clone());
        // Of a text that was itself put together only the place is known, not each byte's.
        let verbatim = matches!(text.origin, Origin::Source(_));
        self.pieces.push(Made { at: self.text.len(), from, verbatim });
        self.text.push_str(&text.as_str()[range]);
    }

    /// Whether nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Adds `text` for what stands at `from`.
    pub(super) fn put(&mut self, text: &str, from: Span) {
        if !text.is_empty() {
            self.pieces.push(Made { at: self.text.len(), from, verbatim: false });
            self.text.push_str(text);
        }
    }

    /// The text; `from` is the place of an empty one.
    pub(super) fn build(mut self, from: Span) -> Text {
        if self.pieces.is_empty() {
            self.pieces.push(Made { at: 0, from, verbatim: false });
        }
        let range = 0..self.text.len();
        Text { whole: self.text.into(), range, origin: Origin::Made(self.pieces.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        let mut sources = Sources::default();
        sources.add("a", text).unwrap();
        let end = u32::try_from(text.len()).unwrap();
        Text::of(&sources, Span { source: 0, start: 0, end })
    }

    fn split(config: &str) -> Vec<String> {
        let text = text(config);
        text.arguments().into_iter().map(|range| text.as_str()[range].to_owned()).collect()
    }

    fn words(argument: &str) -> Vec<String> {
        let text = text(argument);
        text.words(0..argument.len()).map(|range| text.as_str()[range].to_owned()).collect()
    }

    #[test]
    fn arguments_are_split_at_commas() {
        assert_eq!(split(" a , b c,d "), ["a", "b c", "d"]);
        assert_eq!(split(""), [""; 0]);
        assert_eq!(split("1"), split("1,"));
        assert_eq!(split("1"), split("1, /* c */"));
        assert_eq!(split("1"), split("/* c */ 1 // d\n"));
        assert_eq!(split(",1,,2"), ["", "1", "", "2"]);
        assert_eq!(split(","), [""]);
        assert_eq!(split("(a,b),[c,d]"), ["(a", "b)", "[c", "d]"], "brackets protect nothing");
        assert_eq!(split("'a,b',\"c,\\\",d\",\\<2c,2c>"), ["'a,b'", "\"c,\\\",d\"", "\\<2c,2c>"]);
        assert_eq!(split("a /* x, y */ b"), ["a /* x, y */ b"]);
        assert_eq!(split("'',x"), ["''", "x"]);
        assert_eq!(split("1.0.0.0/24 5, 2.0.0.0/8 - 7"), ["1.0.0.0/24 5", "2.0.0.0/8 - 7"]);
    }

    #[test]
    fn words_are_split_at_white_space() {
        assert_eq!(words("a  bc\td"), ["a", "bc", "d"]);
        assert_eq!(words("a\"b c\"d 'e f'"), ["a\"b c\"d", "'e f'"]);
        assert_eq!(words("1.0.0.0/24 - (x)"), ["1.0.0.0/24", "-", "(x)"]);
        assert_eq!(words("a/**/b /* c */ d//"), ["a", "b", "d"]);
        assert_eq!(words(" 'x' "), ["'x'"]);
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn a_text_that_was_put_together_knows_its_places() {
        let from = text("12 $x 34");
        let mut builder = Builder::default();
        builder.copy(&from, 0..3);
        builder.put("value", from.span(3..5));
        builder.copy(&from, 5..8);
        let made = builder.build(from.whole_span());
        assert_eq!(made.as_str(), "12 value 34");
        let span = |range| {
            let span = made.span(range);
            (span.start, span.end)
        };
        assert_eq!(span(1..2), (1, 2));
        assert_eq!(span(4..6), (3, 5));
        assert_eq!(span(0..4), (0, 5));
        assert_eq!(span(9..11), (6, 8));
        assert_eq!(span(10..10), (7, 8), "an empty part stands where its byte would");
        let slice = made.slice(9..11);
        assert_eq!((slice.as_str(), slice.span(0..1).start), ("34", 6));
    }
}
