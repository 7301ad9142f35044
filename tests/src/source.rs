//! Reads the sources of this repository as text, for the tests of its own rules.
//!
//! [`code`] is no Rust parser: it knows comments and literals, so that a word in a comment is not
//! taken for code. That is enough for rules about words, and costs milliseconds for the whole tree.

use std::fs;
use std::path::Path;

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// From the root of the checkout, with `/`.
    pub path: String,
    /// All of it.
    pub text: String,
}

/// Every file below `dir` (from the root of the checkout) whose name ends in `end`, by path. Build
/// outputs and hidden folders are left out.
///
/// # Panics
/// When a folder or file cannot be read.
pub fn files(dir: &str, end: &str) -> Vec<File> {
    let mut all = Vec::new();
    collect(&crate::root(), Path::new(dir), end, &mut all);
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

fn collect(root: &Path, dir: &Path, end: &str, all: &mut Vec<File>) {
    let full = root.join(dir);
    let entries = fs::read_dir(&full).unwrap_or_else(|e| panic!("{}: {e}", full.display()));
    for entry in entries {
        let entry = entry.unwrap_or_else(|e| panic!("{}: {e}", full.display()));
        let name = entry.file_name().into_string().expect("names in this repository are UTF-8");
        let path = dir.join(&name);
        let kind = entry.file_type().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if kind.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(root, &path, end, all);
            }
        } else if name.ends_with(end) {
            let text = fs::read_to_string(root.join(&path))
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let path = path.to_str().expect("names in this repository are UTF-8");
            all.push(File { path: path.trim_start_matches("./").to_owned(), text });
        }
    }
}

/// What a [`Span`] of a source file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `// ...` without the newline, or `/* ... */`; documentation comments as well.
    Comment,
    /// A string literal with its quotes, raw or not.
    String,
    /// A character literal with its quotes.
    Character,
}

/// A comment or literal of a source file: bytes `start..end`.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Its kind.
    pub kind: Kind,
    /// Offset of its first byte.
    pub start: usize,
    /// Offset behind its last byte.
    pub end: usize,
}

/// Every comment and literal of `text`, in order.
pub fn spans(text: &str) -> Vec<Span> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let found = comment(&text[at..])
            .map(|len| (Kind::Comment, len))
            .or_else(|| raw_string(text, at).map(|len| (Kind::String, len)))
            .or_else(|| string(&text[at..]).map(|len| (Kind::String, len)))
            .or_else(|| character(&text[at..]).map(|len| (Kind::Character, len)));
        if let Some((kind, len)) = found {
            all.push(Span { kind, start: at, end: at + len });
            at += len;
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    all
}

/// `text` with every comment and every string or character literal blanked out, line by line as
/// before.
pub fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for span in spans(text) {
        out.push_str(&text[at..span.start]);
        out.extend(text[span.start..span.end].chars().map(|c| if c == '\n' { c } else { ' ' }));
        at = span.end;
    }
    out.push_str(&text[at..]);
    out
}

fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with("/*") {
        return None;
    }
    let mut depth = 0_u32;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    Some(rest.len())
}

/// `r"..."`, `r#"..."#` and so on; the `b` or `c` before it, if any, stays.
fn raw_string(text: &str, at: usize) -> Option<usize> {
    let rest = text[at..].strip_prefix('r')?;
    let before = text[..at].chars().next_back().unwrap_or(' ');
    if is_word(before) && !matches!(before, 'b' | 'c') {
        return None;
    }
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let body = rest[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let len = body.find(&close).map_or(body.len(), |end| end + close.len());
    Some(1 + hashes + 1 + len)
}

fn string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('"')?;
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(1 + at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// `'x'` or `'\n'`, but not the `'a` of a lifetime.
fn character(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    let mut chars = body.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next();
        return body[2.min(body.len())..].find('\'').map(|end| 1 + 2 + end + 1);
    }
    let (end, second) = chars.next()?;
    (second == '\'').then_some(1 + end + 1)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The words (identifiers and keywords) of `code`, each with its line, from 1.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(line, text)| {
        text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(move |w| (line + 1, w))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(text: &str) -> String {
        code(text).split_ascii_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        assert_eq!(bare("a // unsafe\nb /* x /* y */ z */ c"), "a b c");
        assert_eq!(bare(r#"f("a \" // b", 'x', '"', '\'', '\u{41}') // "#), "f( , , , , )");
        assert_eq!(bare("r\"a\\\" b r#\"c \" d\"# e"), "b e");
        assert_eq!(bare("br\"x\" var\"y\""), "b var");
        assert_eq!(bare("fn f<'a>(x: &'a str, c: 'static) {'b: loop {}}").matches('\'').count(), 4);
        assert_eq!(bare("'é' \"é\" é"), "é");
    }

    #[test]
    fn lines_stay_where_they_are() {
        let text = "a\n/* b\n c */ d\n\"e\nf\" g";
        assert_eq!(code(text).lines().count(), text.lines().count());
        let found: Vec<_> = words(&code(text)).map(|(l, w)| (l, w.to_owned())).collect();
        assert_eq!(found, [(1, "a".to_owned()), (3, "d".to_owned()), (5, "g".to_owned())]);
    }

    #[test]
    fn the_tree_is_found() {
        let all = files(".", ".rs");
        assert!(all.iter().any(|f| f.path == "tests/src/source.rs"));
        assert!(all.iter().all(|f| !f.path.starts_with("target/")));
    }
}
