//! Values in the text of a script: `$name`, `${name}`, and `$(handler parameter)`.
//!
//! Source: click(5) and the manual page of Click's `Script`. Nothing is put in between single quotes. Between double
//! quotes what is put in is escaped, so that it stays one text. Names that nothing is known of stay as they are. A text
//! that loses its quotes afterwards has values put in with quotes of their own, so that these lose nothing.

use crate::language::unquote;

/// What values are taken from.
pub(crate) trait Values {
    /// Value of a variable, if there is one.
    fn variable(&self, name: &str) -> Option<String>;
    /// What a handler or function gives, if there is one.
    fn call(&self, text: &str) -> Option<String>;
}

/// Calls within calls, at most: what is deeper stays as it is.
const MOST_DEPTH: usize = 64;

/// Bytes of a text, at most: values that would make it longer are not put in. A full route table is shorter.
const MOST_BYTES: usize = 1 << 26;

/// The text with all values put in; quotes stay.
pub(crate) fn expand(text: &str, values: &dyn Values) -> String {
    expand_at(text, values, 0, false)
}

/// The text with all values put in, and without its quotes; those of the values stay.
pub(crate) fn expand_plain(text: &str, values: &dyn Values) -> String {
    plain(&expand_at(text, values, 0, true))
}

/// The inside of double quotes that stand for a text.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' | '$' => out.extend(['\\', c]),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\<{:02X}>", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

fn expand_at(text: &str, values: &dyn Values, depth: usize, quotes: bool) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at, mut double) = (String::new(), 0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\'' if !double => {
                let end = text[at + 1..].find('\'').map_or(text.len(), |end| at + end + 2);
                out.push_str(&text[at..end]);
                at = end;
            }
            b'"' => {
                double = !double;
                out.push('"');
                at += 1;
            }
            b'\\' => {
                let end = text[at + 1..].chars().next().map_or(at + 1, |c| at + 1 + c.len_utf8());
                out.push_str(&text[at..end]);
                at = end;
            }
            b'$' => {
                let (end, value) = reference(text, at, values, depth);
                match value.filter(|value| out.len() + value.len() <= MOST_BYTES) {
                    Some(value) if double => out.push_str(&escaped(&value)),
                    Some(value) if quotes => out.extend(["\"", &escaped(&value), "\""]),
                    Some(value) => out.push_str(&value),
                    None => out.push_str(&text[at..end]),
                }
                at = end;
            }
            _ => {
                let next = at + text[at..].chars().next().map_or(1, char::len_utf8);
                let more = text[next..].find(['\'', '"', '\\', '$']);
                let end = more.map_or(text.len(), |more| next + more);
                out.push_str(&text[at..end]);
                at = end;
            }
        }
    }
    out
}

/// Where the reference at `at` ends, and its value.
fn reference(text: &str, at: usize, values: &dyn Values, depth: usize) -> (usize, Option<String>) {
    let rest = &text[at + 1..];
    match rest.as_bytes().first() {
        Some(b'(') => match closing(rest) {
            Some(end) if depth == MOST_DEPTH => (at + 2 + end, None),
            Some(end) => {
                let inner = expand_at(&rest[1..end], values, depth + 1, false);
                (at + 2 + end, values.call(&inner))
            }
            None => (text.len(), None),
        },
        Some(b'{') => {
            let Some(end) = rest.find('}') else { return (text.len(), None) };
            let (name, usual) = match rest[1..end].split_once('-') {
                Some((name, usual)) => (name, Some(usual.to_owned())),
                None => (&rest[1..end], None),
            };
            (at + 2 + end, values.variable(name).or(usual))
        }
        Some(b'$' | b'?' | b'#') => (at + 2, values.variable(&rest[..1])),
        _ => {
            let name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            let len = rest.bytes().take_while(|&b| name(b)).count();
            if len == 0 {
                return (at + 1, None);
            }
            (at + 1 + len, values.variable(&rest[..len]))
        }
    }
}

/// Where the parenthesis that `text` begins with is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut closed = unquoted(text).filter(|&(_, byte)| {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    closed.next().map(|(at, _)| at)
}

/// Bytes of a text that no quotes hold, with their places.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let (mut quote, mut escaped) = (None, false);
    text.bytes().enumerate().filter(move |&(_, byte)| {
        match (quote, byte) {
            _ if escaped => escaped = false,
            (Some(b'"'), b'\\') => escaped = true,
            (Some(open), byte) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, _) => return true,
        }
        false
    })
}

/// The text that a quoted one stands for.
pub(crate) fn plain(text: &str) -> String {
    String::from_utf8_lossy(&unquote(text)).into_owned()
}

/// The first word, and what follows it.
pub(crate) fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    match unquoted(text).find(|(_, byte)| byte.is_ascii_whitespace()) {
        Some((at, _)) => (&text[..at], text[at..].trim()),
        None => (text, ""),
    }
}

/// All words, with their quotes.
pub(crate) fn words(mut text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    loop {
        let (word, rest) = first_word(text);
        if word.is_empty() {
            return words;
        }
        words.push(word);
        text = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Some3;

    impl Values for Some3 {
        fn variable(&self, name: &str) -> Option<String> {
            match name {
                "x" => Some("a \"b\"".into()),
                "1" => Some("one".into()),
                "$" => Some("7".into()),
                _ => None,
            }
        }

        fn call(&self, text: &str) -> Option<String> {
            (text != "nothing").then(|| format!("<{text}>"))
        }
    }

    #[test]
    fn values_are_put_in() {
        let of = |text: &str| plain(&expand(text, &Some3));
        assert_eq!(of("$x!"), "a b!");
        assert_eq!(of("\"$x!\""), "a \"b\"!");
        assert_eq!(of("'$x' $1 ${1}2 $12"), "$x one one2 $12");
        assert_eq!(expand("$(f $(g $1) \")\") $$", &Some3), "<f <g one> \")\"> 7");
        assert_eq!(of("${y-2} $y \"\\$x\" $"), "2 $y $x $");
        assert_eq!(of("$(f"), "$(f");
        assert_eq!(of("$(nothing) \\$x"), "$(nothing) \\$x");
        let kept = |text: &str| expand_plain(text, &Some3);
        assert_eq!(kept("$x! '$x' \"$x\""), "a \"b\"! $x a \"b\"");
        assert_eq!(plain(&format!("\"{}\"", escaped("\t\\$\n\u{1}"))), "\t\\$\n\u{1}");
        assert_eq!(of("é$1ü"), "éoneü");
        struct Long(String);
        impl Values for Long {
            fn variable(&self, _: &str) -> Option<String> {
                Some(self.0.clone())
            }

            fn call(&self, _: &str) -> Option<String> {
                Some(self.0.clone())
            }
        }
        let long = Long("x".repeat(MOST_BYTES / 3));
        assert_eq!(expand("$x$(f)$x$x", &long), long.0.repeat(3) + "$x");
        let deep = "$(".repeat(10_000) + &")".repeat(10_000);
        assert!(expand(&deep, &Some3).starts_with(&"<".repeat(MOST_DEPTH)));
        assert_eq!(words("a 'b c' \"d e\"f  g"), ["a", "'b c'", "\"d e\"f", "g"]);
        assert_eq!(first_word(" write  a b "), ("write", "a b"));
    }
}
