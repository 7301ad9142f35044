//! From text to tokens: names, operators, ports, and configuration strings as a whole.
//!
//! Source: the Click configuration language (click(5)). A configuration string is everything between
//! `(` and the `)` that belongs to it; what is inside is split elsewhere. The pieces that
//! both need, quotes and comments, are separated by [`Pieces`], here and nowhere else. Every byte is
//! looked at once.

use std::sync::Arc;

use super::source::{Directive, Problems, Span, short};
use super::value::unquote;

/// Longest name, in bytes.
pub(super) const MOST_NAME: usize = 255;

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A name, of an element, a class, a formal or a port.
    Word,
    /// Digits alone.
    Number,
    /// `$name`.
    Variable,
    /// `->`
    Arrow,
    /// `=>`
    Pairs,
    /// `::`
    Declares,
    /// `||`
    Bars,
    /// `...`
    Dots,
    /// `;`
    Semicolon,
    /// `,`
    Comma,
    /// `[`
    OpenPorts,
    /// `]`
    ClosePorts,
    /// `{`
    OpenBody,
    /// `}`
    CloseBody,
    /// `|`
    Bar,
    /// `-`
    Dash,
    /// A configuration string with its parentheses.
    Config,
    /// Something that was already complained about.
    Bad,
}

/// A piece of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token {
    /// What.
    pub kind: Kind,
    /// Where.
    pub span: Span,
}

/// Splits `text`, which is number `source` of its texts. What is no token goes to `problems`.
pub(super) fn lex(
    source: u16,
    text: &str,
    problems: &mut Problems,
) -> (Vec<Token>, Vec<Directive>) {
    let lexer = Lexer { source, text, at: 0, problems, directives: Vec::new() };
    lexer.run()
}

/// A part of a text likewise: what stands in the parentheses of a group.
pub(super) fn lex_part(
    source: u16,
    text: &str,
    start: usize,
    problems: &mut Problems,
) -> (Vec<Token>, Vec<Directive>) {
    let lexer = Lexer { source, text, at: start, problems, directives: Vec::new() };
    lexer.run()
}

/// White space.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// May stand in a name.
pub(super) fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

struct Lexer<'a> {
    source: u16,
    text: &'a str,
    at: usize,
    problems: &'a mut Problems,
    directives: Vec<Directive>,
}

impl Lexer<'_> {
    fn run(mut self) -> (Vec<Token>, Vec<Directive>) {
        let mut tokens = Vec::new();
        while let Some(byte) = self.blank() {
            let start = self.at;
            let kind = self.token(byte);
            tokens.push(Token { kind, span: self.span(start, self.at) });
        }
        (tokens, self.directives)
    }

    fn span(&self, start: usize, end: usize) -> Span {
        let offset = |at: usize| u32::try_from(at).expect("texts are below 4 GiB");
        Span { source: self.source, start: offset(start), end: offset(end) }
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    /// Skips white space, comments and line directives; the byte after them.
    fn blank(&mut self) -> Option<u8> {
        loop {
            match self.byte(0)? {
                byte if is_blank(byte) => self.at += 1,
                b'/' if matches!(self.byte(1), Some(b'/' | b'*')) => {
                    let (end, closed) = comment_end(self.text, self.at);
                    if !closed {
                        let open = self.span(self.at, self.at + 2);
                        self.problems.add(open, "this comment does not end").hint("write `*/`");
                    }
                    self.at = end;
                }
                b'#' if self.at == 0 || self.text.as_bytes()[self.at - 1] == b'\n' => {
                    self.directive();
                }
                byte => return Some(byte),
            }
        }
    }

    /// A line that begins with `#`; `#!` at the very beginning is the shell's.
    fn directive(&mut self) {
        let (start, end) = (self.at, line_end(self.text, self.at));
        let line = &self.text[start..end];
        self.at = (end + 1).min(self.text.len());
        if start == 0 && line.starts_with("#!") {
            return;
        }
        if !self.renames(start, end) {
            let span = self.span(start, end);
            self.problems
                .add(span, "a line that begins with `#` is no line directive")
                .hint("write `#line 12 \"file\"`, or begin comments with `//`");
        }
    }

    /// Notes the line directive of this range; whether it is one.
    fn renames(&mut self, start: usize, end: usize) -> bool {
        let Some((line, file)) = line_directive(&self.text[start..end]) else { return false };
        let next = self.span(start, (end + 1).min(self.text.len())).end;
        self.directives.push(Directive { next, line, file });
        true
    }

    fn token(&mut self, byte: u8) -> Kind {
        let (kind, bytes) = match (byte, self.byte(1), self.byte(2)) {
            (b'-', Some(b'>'), _) => (Kind::Arrow, 2),
            (b'=', Some(b'>'), _) => (Kind::Pairs, 2),
            (b':', Some(b':'), _) => (Kind::Declares, 2),
            (b'|', Some(b'|'), _) => (Kind::Bars, 2),
            (b'.', Some(b'.'), Some(b'.')) => (Kind::Dots, 3),
            (b';', ..) => (Kind::Semicolon, 1),
            (b',', ..) => (Kind::Comma, 1),
            (b'[', ..) => (Kind::OpenPorts, 1),
            (b']', ..) => (Kind::ClosePorts, 1),
            (b'{', ..) => (Kind::OpenBody, 1),
            (b'}', ..) => (Kind::CloseBody, 1),
            (b'|', ..) => (Kind::Bar, 1),
            (b'-', ..) => (Kind::Dash, 1),
            (b'(', ..) => return self.config(),
            (b'$', Some(next), _) if is_name(next) => return self.variable(),
            (byte, ..) if is_name(byte) || byte == b'@' => return self.word(),
            _ => return self.stray(),
        };
        self.at += bytes;
        kind
    }

    fn variable(&mut self) -> Kind {
        let name = &self.text.as_bytes()[self.at + 1..];
        self.at += 1 + name.iter().take_while(|&&byte| is_name(byte)).count();
        Kind::Variable
    }

    /// Components joined by single slashes.
    fn word(&mut self) -> Kind {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let inside = |at: usize| bytes.get(at).is_some_and(|&b| is_name(b) || b == b'@');
        while inside(self.at) || (bytes.get(self.at) == Some(&b'/') && inside(self.at + 1)) {
            self.at += 1;
        }
        let word = &self.text[start..self.at];
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if digits(word) {
            return Kind::Number;
        }
        let span = self.span(start, self.at);
        if word.len() > MOST_NAME {
            let len = word.len();
            self.problems.add(span, format!("a name of {len} bytes, at most {MOST_NAME}"));
            return Kind::Bad;
        }
        if word.split('/').any(digits) {
            self.problems
                .add(span, format!("`{}` is no name: a part of it has digits only", short(word)))
                .hint("put a letter into each part between slashes");
            return Kind::Bad;
        }
        Kind::Word
    }

    fn config(&mut self) -> Kind {
        let open = self.at;
        let mut depth = 0_usize;
        for piece in Pieces::new(self.text, open) {
            match piece.kind {
                PieceKind::Open => depth += 1,
                PieceKind::Close => depth -= 1,
                PieceKind::Comment if self.text.as_bytes()[piece.start] == b'#' => {
                    self.renames(piece.start, piece.end);
                }
                _ => {}
            }
            if depth == 0 {
                self.at = piece.end;
                return Kind::Config;
            }
            if let Some(what) = piece.unclosed() {
                let span = self.span(piece.start, piece.start + piece.kind.opening());
                self.problems.add(span, format!("this {what} does not end"));
                self.at = self.text.len();
                return Kind::Bad;
            }
        }
        let span = self.span(open, open + 1);
        self.problems
            .add(span, "this `(` has no `)`")
            .hint("each `(` needs a `)`, also in arguments");
        self.at = self.text.len();
        Kind::Bad
    }

    /// Whatever begins no token, up to the next byte that may.
    fn stray(&mut self) -> Kind {
        let start = self.at;
        let begins = |c: char| {
            c.is_whitespace() || c.is_ascii_alphanumeric() || "_@$;,[]{}()|-=:/\"'#".contains(c)
        };
        let first = self.text[start..].chars().next().map_or(1, char::len_utf8);
        let rest = self.text[start + first..].chars().take_while(|c| !begins(*c));
        self.at = start + first + rest.map(char::len_utf8).sum::<usize>();
        let (span, word) = (self.span(start, self.at), short(&self.text[start..self.at]));
        let hint = match word.as_str() {
            ")" => "there is no `(` that it would close",
            "\"" | "'" => "quotes stand in arguments, between parentheses",
            "=" => "connections are `->` or `=>`",
            ":" => "elements are declared with `::`",
            "/" => "names do not begin or end with `/`",
            "$" => "a variable is `$` and a name, in arguments",
            _ => "names are of letters, digits and `_`",
        };
        self.problems.add(span, format!("`{word}` means nothing here")).hint(hint);
        Kind::Bad
    }
}

/// What a piece of a configuration string is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PieceKind {
    /// Text without meaning to the splitter; white space too.
    Plain,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `,`
    Comma,
    /// `$`
    Dollar,
    /// `'...'`: nothing inside is special.
    Single,
    /// `"..."`: a backslash hides the next character.
    Double,
    /// `\<...>`: bytes in hexadecimal.
    Hex,
    /// `// ...` without its line break, `/* ... */`, or a line directive.
    Comment,
}

impl PieceKind {
    /// Length of what opens it.
    fn opening(self) -> usize {
        if matches!(self, Self::Hex | Self::Comment) { 2 } else { 1 }
    }
}

/// A piece of a configuration string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// What.
    pub kind: PieceKind,
    /// First byte.
    pub start: usize,
    /// Past the last byte.
    pub end: usize,
    /// A quote or comment has its end.
    pub closed: bool,
}

impl Piece {
    /// In words, what should have ended and did not.
    pub(super) fn unclosed(&self) -> Option<&'static str> {
        let what = match self.kind {
            PieceKind::Single | PieceKind::Double => "quote",
            PieceKind::Hex => "`\\<`",
            PieceKind::Comment => "comment",
            _ => return None,
        };
        (!self.closed).then_some(what)
    }
}

/// Separates the pieces of a configuration string, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Pieces<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Pieces<'a> {
    /// The pieces of `text` from byte `at` on.
    pub(super) fn new(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let next = bytes.get(start + 1);
        let mut closed = true;
        let (kind, end) = match bytes.get(start)? {
            b'(' => (PieceKind::Open, start + 1),
            b')' => (PieceKind::Close, start + 1),
            b',' => (PieceKind::Comma, start + 1),
            b'$' => (PieceKind::Dollar, start + 1),
            b'\'' => {
                let end = find(bytes, start + 1, b'\'');
                closed = end.is_some();
                (PieceKind::Single, end.unwrap_or(bytes.len()))
            }
            b'"' => {
                let end = double_end(self.text, start + 1);
                closed = end.is_some();
                (PieceKind::Double, end.unwrap_or(bytes.len()))
            }
            b'\\' if next == Some(&b'<') => {
                let end = hex_end(self.text, start + 2);
                closed = end.is_some();
                (PieceKind::Hex, end.unwrap_or(bytes.len()))
            }
            b'/' if matches!(next, Some(b'/' | b'*')) => {
                let (end, ends) = comment_end(self.text, start);
                closed = ends;
                (PieceKind::Comment, end)
            }
            b'#' if is_directive(self.text, start) => {
                (PieceKind::Comment, line_end(self.text, start))
            }
            _ => {
                let goes_on = |at: usize| {
                    let special = |&byte: &u8| SPECIAL[usize::from(byte)] && opens(self.text, at);
                    bytes.get(at).is_some_and(|byte| !special(byte))
                };
                let mut end = start + 1;
                while goes_on(end) {
                    end += 1;
                }
                (PieceKind::Plain, end)
            }
        };
        self.at = end;
        Some(Piece { kind, start, end, closed })
    }
}

/// Bytes that may end a plain piece: most of a large configuration goes by here.
static SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"(),$'\"\\/#";
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
};

/// A special byte does end it: a slash, a backslash and a `#` do so in company only.
fn opens(text: &str, at: usize) -> bool {
    let bytes = text.as_bytes();
    match bytes[at] {
        b'/' => matches!(bytes.get(at + 1), Some(b'/' | b'*')),
        b'\\' => bytes.get(at + 1) == Some(&b'<'),
        b'#' => is_directive(text, at),
        _ => true,
    }
}

/// Whether the `#` at `at` begins a line directive: as white space, it may stand in a configuration string, too.
pub(super) fn is_directive(text: &str, at: usize) -> bool {
    let begins = at > 0 && text.as_bytes()[at - 1] == b'\n';
    begins && line_directive(&text[at..line_end(text, at)]).is_some()
}

/// The end of the line at `at`, without its line break.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |found| at + found)
}

/// What a line directive sets: `# 12 "file"` or `#line 12 "file"`; what stands behind, as the preprocessor of C writes it,
/// has no meaning here.
fn line_directive(line: &str) -> Option<(u32, Option<Arc<str>>)> {
    let blanks: &[char] = &[' ', '\t'];
    let words = line.strip_prefix('#')?.trim_start_matches(blanks);
    let words = words.strip_prefix("line").filter(|rest| rest.starts_with(blanks)).unwrap_or(words);
    let words = words.trim_start_matches(blanks);
    let digits = words.bytes().take_while(u8::is_ascii_digit).count();
    let number = words[..digits].parse().ok()?;
    let rest = words[digits..].trim_start_matches(blanks);
    if !rest.starts_with('"') {
        return Some((number, None));
    }
    let quoted = &rest[..double_end(rest, 1).unwrap_or(rest.len())];
    let name = String::from_utf8_lossy(&unquote(quoted)).into_owned();
    Some((number, Some(name.into())))
}

/// Past the next `wanted`.
fn find(bytes: &[u8], from: usize, wanted: u8) -> Option<usize> {
    bytes[from..].iter().position(|&byte| byte == wanted).map(|at| from + at + 1)
}

/// Past the end of a double quote whose inside begins at `at`.
fn double_end(text: &str, mut at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' if bytes.get(at + 1) == Some(&b'<') => at = hex_end(text, at + 2)?,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Past the end of bytes in hexadecimal that begin at `at`: comments among them may hold a `>`.
fn hex_end(text: &str, mut at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    loop {
        match bytes.get(at)? {
            b'>' => return Some(at + 1),
            b'/' if matches!(bytes.get(at + 1), Some(b'/' | b'*')) => {
                at = comment_end(text, at).0;
            }
            _ => at += 1,
        }
    }
}

/// Past the end of a comment that begins at `at`, and whether it has one. Line breaks are not part of it.
fn comment_end(text: &str, at: usize) -> (usize, bool) {
    let rest = &text[at + 2..];
    if text.as_bytes()[at + 1] == b'/' {
        return (rest.find('\n').map_or(text.len(), |found| at + 2 + found), true);
    }
    let found = rest.find("*/");
    (found.map_or(text.len(), |found| at + 4 + found), found.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::source::Sources;

    /// Kinds with their texts, directives, and messages.
    fn lexed(text: &str) -> (String, Vec<Directive>, String) {
        let mut sources = Sources::default();
        let source = sources.add("a", text).unwrap();
        let mut problems = Problems::default();
        let (tokens, directives) = lex(source, text, &mut problems);
        let shown = tokens.iter().map(|t| format!("{:?} {}", t.kind, sources.text(t.span)));
        let shown = shown.collect::<Vec<_>>().join(" | ");
        let errors = problems.errors(&sources);
        let words = errors.reports.iter().map(|r| format!("{} {}", r.place.column, r.message));
        (shown, directives, words.collect::<Vec<_>>().join("; "))
    }

    fn good(text: &str) -> String {
        let (shown, _, wrong) = lexed(text);
        assert_eq!(wrong, "", "{text}");
        shown
    }

    fn bad(text: &str) -> String {
        lexed(text).2
    }

    #[test]
    fn names_have_components() {
        assert_eq!(good("a a/b2/_c Q@3 2x"), "Word a | Word a/b2/_c | Word Q@3 | Word 2x");
        assert_eq!(good("a//b\nc/**/d"), "Word a | Word c | Word d");
        assert_eq!(good("12"), "Number 12");
        assert_eq!(bad("1/x"), "1 `1/x` is no name: a part of it has digits only");
        assert_eq!(bad("x/22"), "1 `x/22` is no name: a part of it has digits only");
        assert_eq!(bad("a/"), "2 `/` means nothing here");
        assert_eq!(bad("/a"), "1 `/` means nothing here");
        assert_eq!(bad(&"a".repeat(256)), "1 a name of 256 bytes, at most 255");
        assert_eq!(good(&"a".repeat(255)).len(), 260);
    }

    #[test]
    fn operators_are_the_longest_that_fit() {
        assert_eq!(
            good("a->b=>c::d||e...f"),
            "Word a | Arrow -> | Word b | Pairs => | Word c | Declares :: | Word d | Bars || | Word e | \
             Dots ... | Word f"
        );
        assert_eq!(
            good("[0-3,];{$x|}"),
            "OpenPorts [ | Number 0 | Dash - | Number 3 | Comma , | ClosePorts ] | Semicolon ; | \
             OpenBody { | Variable $x | Bar | | CloseBody }"
        );
        assert_eq!(bad("a = b"), "3 `=` means nothing here");
        assert_eq!(bad("a : b"), "3 `:` means nothing here");
        assert_eq!(bad("$ x"), "1 `$` means nothing here");
        assert_eq!(bad("a \u{20ac}\u{e9}% b"), "3 `\u{20ac}\u{e9}%` means nothing here");
    }

    #[test]
    fn a_configuration_string_ends_at_its_parenthesis() {
        assert_eq!(good("Q(1, (2))a"), "Word Q | Config (1, (2)) | Word a");
        assert_eq!(good("()"), "Config ()");
        for inside in
            ["')'", "\")\\\")\"", "/* ) */", "// )\n", "\\<29 )>", "\"\\\\\"", "a\\b", "'\"'"]
        {
            assert_eq!(good(&format!("({inside});")), format!("Config ({inside}) | Semicolon ;"));
        }
        assert_eq!(bad("a (b (c)"), "3 this `(` has no `)`");
        assert_eq!(bad("(a 'b)"), "4 this quote does not end");
        assert_eq!(bad("(\"b\\\")"), "2 this quote does not end");
        assert_eq!(bad("(\\<41)"), "2 this `\\<` does not end");
        assert_eq!(bad("(\\<41 /* > */)"), "2 this `\\<` does not end");
        assert_eq!(bad("(/* )"), "2 this comment does not end");
        assert_eq!(bad("a)"), "2 `)` means nothing here");
    }

    #[test]
    fn comments_and_directives_are_white_space() {
        assert_eq!(good("a // b\nc /* d\n */ e //"), "Word a | Word c | Word e");
        assert_eq!(bad("a /* b"), "3 this comment does not end");
        let (shown, directives, wrong) = lexed("#!/bin/x\na\n# 7 \"b c\"\nd\n#line 9\ne(\n# 3\n)");
        assert_eq!(
            (shown.as_str(), wrong.as_str()),
            ("Word a | Word d | Word e | Config (\n# 3\n)", "")
        );
        let said: Vec<_> = directives.iter().map(|d| (d.next, d.line, d.file.as_deref())).collect();
        assert_eq!(said, [(21, 7, Some("b c")), (31, 9, None), (38, 3, None)]);
        assert_eq!(bad("a\n#include b"), "1 a line that begins with `#` is no line directive");
        let (_, directives, wrong) =
            lexed("# 1 \"<built-in>\" 3 4\na\n#line 5 \"a\\\"b\"\n# 6 \"\"\nb\n# 7 x");
        let said: Vec<_> = directives.iter().map(|d| (d.line, d.file.as_deref())).collect();
        let files = [(1, Some("<built-in>")), (5, Some("a\"b")), (6, Some("")), (7, None)];
        assert_eq!((said.as_slice(), wrong.as_str()), (&files[..], ""));
        assert_eq!(bad("a #"), "3 `#` means nothing here", "not at the start of its line");
    }

    #[test]
    fn many_strings_are_read_once() {
        // A string that were looked through to the end of the text for each `(` would take for ever.
        let text = "A(b)->".repeat(200_000);
        let mut problems = Problems::default();
        assert_eq!(lex(0, &text, &mut problems).0.len(), 600_000);
        assert!(problems.is_empty());
    }
}
