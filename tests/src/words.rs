//! Words of the glossary in the sources and pages: `cargo xtask words` and `tests/tests/rules.rs`.
//!
//! Checked are the doc comments and the string literals of Rust files, except those of test code, and the
//! prose of Markdown pages. Not checked are names between backticks, code blocks, identifiers, options
//! (`--word`), format arguments (`{word}`) and the old names that an `alias` keeps for one release.
//!
//! The lists leave out those words of the glossary's right column that are also standard terms of something
//! else: `network`, `rule`, `gateway`, `device`, `node`, `lock`, `version`, `level`, `bucket`, `burst`,
//! `vector`, `peer`, `multipath`, `edge`. Those are for the reviewer.

use crate::source::{self, File, Kind};

/// A row of the glossary: what to write, and the words it replaces.
struct Term {
    write: &'static str,
    not: &'static [&'static str],
}

/// Words and phrases that users and readers do not see, in lower case.
const TERMS: &[Term] = &[
    Term { write: "prefix", not: &["subnet", "subnets", "cidr"] },
    Term { write: "path, next hop, method, route", not: &["way", "ways"] },
    Term { write: "source", not: &["a feed", "the feed", "each feed", "every feed", "no feed"] },
    Term {
        write: "administrative distance",
        not: &["believe", "believes", "believed", "believing", "belief"],
    },
    Term { write: "next-hop group", not: &["path list", "path lists"] },
    Term { write: "forwarding action", not: &["leg", "legs"] },
    Term { write: "neighbor", not: &["arp entry", "arp entries"] },
    Term { write: "host", not: &["station", "stations"] },
    Term {
        write: "resolve, request, query, look up",
        not: &["ask", "asks", "asked", "asking", "question", "questions"],
    },
    Term { write: "algorithm, baseline", not: &["engine", "engines"] },
    Term {
        write: "XDP, the XDP datapath",
        not: &["in drivers", "in the drivers", "in the driver", "by drivers", "by the drivers"],
    },
    Term { write: "egress, PortSet", not: &["outlet", "outlets"] },
    Term {
        write: "ingress interface",
        not: &["came in", "comes in by", "come in by", "came by", "coming in by"],
    },
    Term { write: "drop reason", not: &["what ended"] },
    Term { write: "uRPF", not: &["reverse path", "reverse-path"] },
    Term { write: "partial checksum", not: &["unfilled", "open sum", "open sums"] },
    Term {
        write: "non-stop forwarding, remain",
        not: &["survive", "survives", "survived", "surviving", "survival", "survivor", "survivors"],
    },
    Term { write: "dry run, calibration", not: &["trial", "trials", "tried apart"] },
    Term {
        write: "send, report, advertise, signal, return",
        not: &["tell", "tells", "told", "telling"],
    },
    Term { write: "report, state, specify, name", not: &["say", "says", "said", "saying"] },
    Term { write: "receive", not: &["hear", "hears", "heard", "hearing"] },
    Term {
        write: "continue, proceed",
        not: &["go on", "goes on", "went on", "going on", "gone on"],
    },
];

/// Phrases that a word of [`TERMS`] is allowed in, each with its reason.
const EXEMPT: &[(&str, &str)] = &[
    ("by the way", "an idiom"),
    ("under way", "an idiom"),
    ("either way", "an idiom"),
    ("the same way", "a manner, not a path"),
    ("this way", "a manner, not a path"),
    ("that way", "a manner, not a path"),
    ("other way round", "an idiom"),
    ("other way around", "an idiom"),
    ("monitoring station", "RFC 7854's term"),
    ("subnet router", "RFC 4291: Subnet-Router anycast address"),
    ("subnet mask", "the name of DHCP's and ioctl's field"),
    ("reverse path forwarding", "RFC 3704's term"),
    ("reverse path filter", "the kernel's rp_filter"),
    ("reverse path filtering", "the kernel's rp_filter"),
    ("question mark", "a character"),
    ("search engine", "a term of its own"),
];

/// Files that quote the words: the lists themselves, and pages that are made from sources, where they are checked.
const QUOTES: &[&str] = &[
    "tests/src/words.rs",
    "docs/glossary.md",
    "docs/reference/",
    // Lines as tcpdump and Click print them.
    "crates/packet/src/element/click/only/ip_print.rs",
];

/// Words that no doc comment begins with, whatever follows.
const FRAGMENTS: &[&str] = &["of", "by", "with", "as", "the same"];

/// Words with which a doc comment begins only if a main clause follows, behind a comma or a colon.
const PREPOSITIONS: &[&str] = &[
    "about", "above", "across", "after", "against", "among", "at", "before", "behind", "below",
    "beneath", "beside", "between", "during", "for", "from", "in", "inside", "into", "on",
    "outside", "over", "per", "since", "through", "to", "towards", "under", "until", "upon",
    "within", "without",
];

/// A breach of the language rules.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breach {
    /// The file, from the root of the checkout.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// The word and what to write for it.
    pub what: String,
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Every Rust file and page below `dir`, from the root of the checkout.
pub fn files(dir: &str) -> Vec<File> {
    if dir.ends_with(".rs") || dir.ends_with(".md") {
        let text = std::fs::read_to_string(crate::root().join(dir))
            .unwrap_or_else(|error| panic!("{dir}: {error}"));
        return vec![File { path: dir.to_owned(), text }];
    }
    [".rs", ".md"].into_iter().flat_map(|end| source::files(dir, end)).collect()
}

/// Breaches in `file`, in the order of lines.
pub fn check(file: &File) -> Vec<Breach> {
    if QUOTES.iter().any(|quoting| file.path.starts_with(quoting)) {
        return Vec::new();
    }
    let blocks = if file.path.ends_with(".md") { page(&file.text) } else { rust(file) };
    let mut all: Vec<Breach> = blocks.iter().flat_map(|block| block.breaches(&file.path)).collect();
    all.sort();
    all
}

/// How many breaches each folder has, a crate's folders below `src` one by one.
pub fn by_folder(all: &[Breach]) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for breach in all {
        let parts: Vec<&str> = breach.path.split('/').collect();
        let depth = if parts[0] == "crates" { 4 } else { 2 };
        let folder = parts[..parts.len() - 1].iter().take(depth).copied().collect::<Vec<_>>();
        *counts.entry(folder.join("/") + "/").or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// Prose that belongs together, with its place: a doc comment, a literal, a paragraph.
struct Block {
    text: String,
    /// Offset in `text` and line in the file of each line.
    lines: Vec<(usize, usize)>,
    documentation: bool,
}

impl Block {
    fn new(documentation: bool) -> Self {
        Self { text: String::new(), lines: Vec::new(), documentation }
    }

    fn push(&mut self, line: usize, text: &str) {
        self.lines.push((self.text.len(), line));
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn line(&self, offset: usize) -> usize {
        let at = self.lines.partition_point(|(start, _)| *start <= offset);
        self.lines.get(at.saturating_sub(1)).map_or(0, |(_, line)| *line)
    }

    fn breaches(&self, path: &str) -> Vec<Breach> {
        let prose = prose(&self.text);
        let tokens = tokens(&prose);
        let mut found = Vec::new();
        for at in 0..tokens.len() {
            for term in TERMS {
                let Some(phrase) = term.not.iter().find(|phrase| stands(&tokens, at, phrase))
                else {
                    continue;
                };
                let exempt = EXEMPT.iter().any(|(words, _)| {
                    let count = words.split(' ').count();
                    (at.saturating_sub(count - 1)..=at)
                        .any(|from| stands(&tokens, from, words) && from + count > at)
                });
                if !exempt {
                    let what = format!("\"{phrase}\": write {}", term.write);
                    found.push((tokens[at].offset, what));
                }
            }
        }
        if self.documentation
            && let Some(opening) = fragment(&prose)
        {
            found.push((0, format!("doc comment begins with \"{opening}\": begin with the noun")));
        }
        let breach =
            |(offset, what)| Breach { path: path.to_owned(), line: self.line(offset), what };
        found.into_iter().map(breach).collect()
    }
}

/// A word of prose.
struct Token {
    word: String,
    offset: usize,
    /// Nothing but blanks (or a hyphen) is between this and the word before.
    joined: bool,
}

fn tokens(text: &str) -> Vec<Token> {
    let mut all: Vec<Token> = Vec::new();
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let mut end = 0;
    let mut at = 0;
    while let Some(start) = text[at..].find(part).map(|from| at + from) {
        let len = text[start..].find(|c| !part(c)).unwrap_or(text.len() - start);
        let word = &text[start..start + len];
        let between = &text[end..start];
        let joined = between.chars().all(|c| c.is_whitespace() || c == '-');
        // `--word` is an option, `8-way` a term of its own.
        let hyphen = between.ends_with('-');
        let name = word.contains('_')
            || word.chars().skip(1).any(char::is_uppercase)
            || hyphen && (joined || between.ends_with("--"));
        let word = if name { String::new() } else { word.to_lowercase() };
        all.push(Token { word, offset: start, joined });
        end = start + len;
        at = end;
    }
    all
}

/// Whether the words of `phrase` stand at `at`, unbroken.
fn stands(tokens: &[Token], at: usize, phrase: &str) -> bool {
    phrase.split([' ', '-']).enumerate().all(|(n, word)| {
        tokens.get(at + n).is_some_and(|token| token.word == word && (n == 0 || token.joined))
    })
}

/// `text` with code between backticks, format arguments and addresses of pages blanked out.
fn prose(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut close: Option<char> = None;
    for (at, c) in text.char_indices() {
        let blank = if c.is_ascii() && c != '\n' { ' ' } else { c };
        match close {
            Some(end) if c == end => {
                close = None;
                out.push(';');
            }
            Some(_) => out.push(blank),
            None if c == '`' && text[at + 1..].contains('`') => {
                close = Some('`');
                out.push(';');
            }
            None if c == '{' && argument(&text[at..]) => {
                close = Some('}');
                out.push(';');
            }
            None if text[at..].starts_with("](") => {
                close = Some(')');
                out.push(']');
            }
            None => out.push(c),
        }
    }
    out
}

/// Whether `text` begins with a format argument: `{}`, `{name}`, `{0:>8}`.
fn argument(text: &str) -> bool {
    let inside = text[1..].split_once('}').map(|(inside, _)| inside);
    inside.is_some_and(|name| name.len() < 60 && !name.contains([' ', '{', '\n']))
}

/// The words that make the first sentence of a doc comment a fragment.
fn fragment(prose: &str) -> Option<&str> {
    let paragraph = prose.split("\n\n").next().unwrap_or_default().trim();
    let first = paragraph.split_whitespace().next()?;
    let lower = paragraph.to_lowercase();
    let leads = |words: &&&str| {
        lower.strip_prefix(**words).is_some_and(|rest| rest.starts_with(char::is_whitespace))
    };
    if let Some(words) = FRAGMENTS.iter().find(leads) {
        return Some(words);
    }
    let sentence = paragraph.split_once(". ").map_or(paragraph, |(sentence, _)| sentence);
    let preposition = PREPOSITIONS.contains(&first.to_lowercase().as_str());
    (preposition && !sentence.contains([',', ':'])).then_some(first)
}

/// Doc comments and literals of a Rust file.
fn rust(file: &File) -> Vec<Block> {
    let text = &file.text;
    let tests = test_code(text);
    let all_tests = is_test_path(&file.path);
    let mut blocks: Vec<Block> = Vec::new();
    // The doc comment that goes on, if any: its marker and the line that would continue it.
    let mut open: Option<(&str, usize)> = None;
    let mut fence = false;
    let mut line = 1;
    let mut at = 0;
    for span in source::spans(text) {
        line += text[at..span.start].matches('\n').count();
        at = span.start;
        let body = &text[span.start..span.end];
        match span.kind {
            Kind::Comment => {
                let Some(marker) = marker(body) else { continue };
                if open != Some((marker, line)) {
                    blocks.push(Block::new(true));
                    fence = false;
                }
                let words = body[3..].trim_end_matches("*/");
                let block = blocks.last_mut().expect("one was pushed");
                if words.trim_start().starts_with("```") {
                    fence = !fence;
                } else if fence {
                    // Code of an example.
                } else if marker == "/**" {
                    for (n, words) in words.lines().enumerate() {
                        block.push(line + n, words.trim_start_matches([' ', '*']));
                    }
                } else {
                    block.push(line, words.strip_prefix(' ').unwrap_or(words));
                }
                open = Some((marker, line + 1));
            }
            Kind::String if !all_tests && !tests.iter().any(|(a, b)| (*a..*b).contains(&at)) => {
                let before = text[..span.start].trim_end();
                let alias =
                    ["alias =", "aliases =", "alias(", "aliases([", "include_str!(", "path ="];
                if alias.iter().any(|end| before.ends_with(end)) {
                    continue;
                }
                let mut block = Block::new(false);
                for (n, words) in body.lines().enumerate() {
                    block.push(line + n, &words.replace("\\n", "  ").replace("\\t", "  "));
                }
                blocks.push(block);
            }
            Kind::String | Kind::Character => {}
        }
    }
    blocks
}

fn marker(comment: &str) -> Option<&'static str> {
    if comment.starts_with("////") || comment.starts_with("/***") || comment == "/**/" {
        return None;
    }
    ["///", "//!", "/**", "/*!"].into_iter().find(|marker| comment.starts_with(marker))
}

/// Whether all of a file is test code.
fn is_test_path(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let folders = ["tests", "testing", "benches", "fuzz"];
    parts.iter().any(|part| folders.contains(part))
        || parts.last().is_some_and(|file| *file == "tests.rs" || *file == "testing.rs")
}

/// Bytes of `text` that are compiled only for tests.
fn test_code(text: &str) -> Vec<(usize, usize)> {
    let code = blanked(text);
    let marks = ["#[cfg(test)]", "#[cfg(all(test", "#[cfg(any(test", "#[test]", "#[cfg(all(loom"];
    let mut found = Vec::new();
    for mark in marks {
        for (start, _) in code.match_indices(mark) {
            let end = item_end(&code, start).unwrap_or(code.len());
            found.push((start, end));
        }
    }
    found
}

/// As [`source::code`], byte by byte: offsets are those of `text`.
fn blanked(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for span in source::spans(text) {
        for byte in &mut bytes[span.start..span.end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where the item whose attributes begin at `start` ends: its brace, or its semicolon.
fn item_end(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, c) in code[start..].char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' => depth -= 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(start + at + 1);
                }
            }
            ';' | ',' if depth == 0 => return Some(start + at + 1),
            _ => {}
        }
        if depth < 0 {
            return Some(start + at);
        }
    }
    None
}

/// Prose of a Markdown page: no fenced or indented code, no comments of HTML.
fn page(text: &str) -> Vec<Block> {
    let mut blocks = vec![Block::new(false)];
    let (mut fence, mut hidden) = (false, false);
    for (n, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            fence = !fence;
        } else if start.starts_with("<!--") || hidden {
            hidden = !line.contains("-->");
        } else if line.is_empty() {
            blocks.push(Block::new(false));
        } else if !fence && !line.starts_with("    ") {
            blocks.last_mut().expect("never empty").push(n + 1, line);
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        check(&file).into_iter().map(|b| format!("{}: {}", b.line, b.what)).collect()
    }

    fn count(text: &str) -> usize {
        found("crates/x/src/x.rs", text).len()
    }

    #[test]
    fn words_of_documentation_and_literals_are_found() {
        assert_eq!(
            found("crates/x/src/x.rs", "/// Whom it\n/// told.\nfn f() {}\n"),
            ["2: \"told\": write send, report, advertise, signal, return"]
        );
        assert_eq!(count("fn f() { g(\"the table is asked\"); }"), 1);
        assert_eq!(count("/// A loop that goes\n/// on.\nfn f() {}"), 1);
        assert_eq!(count("//! Prefixes of a subnet.\n"), 1);
        assert_eq!(count("// told\nfn told() { let asked = 1; }"), 0, "neither is seen");
        assert_eq!(count("/// Calls `told`, see [x](told.md), --survive and 8-way.\nfn f() {}"), 0);
        assert_eq!(count("fn f() { g(\"{asked} of {told:>3}\"); }"), 0);
        assert_eq!(count("/// ```\n/// told();\n/// ```\nfn f() {}"), 0);
        assert_eq!(count("#[serde(alias = \"ways\")]\nfn f() {}"), 0);
        assert_eq!(count("#[serde(rename = \"ways\")]\nfn f() {}"), 1);
        assert_eq!(count("/// It comes in. By then it is told.\nfn f() {}"), 1);
    }

    #[test]
    fn exempt_phrases_pass() {
        assert_eq!(count("/// It is, by the way, under way.\nfn f() {}"), 0);
        assert_eq!(count("/// A leg of another way.\nfn f() {}"), 2);
    }

    #[test]
    fn literals_of_test_code_pass() {
        let inside =
            "#[cfg(test)]\nmod tests {\n fn f() { g(\"told\") }\n}\nfn h() { g(\"told\") }";
        assert_eq!(found("crates/x/src/x.rs", inside).len(), 1);
        assert_eq!(found("crates/x/src/x.rs", inside)[0].split(':').next(), Some("5"));
        assert_eq!(found("crates/x/tests/x.rs", "fn f() { g(\"told\") }").len(), 0);
        assert_eq!(found("crates/x/tests/x.rs", "/// It told.\nfn f() {}").len(), 1);
    }

    #[test]
    fn fragments_are_found() {
        for bad in [
            "Of lists whose readers left.",
            "By interface.",
            "With headers, without frames.",
            "As above.",
            "The same for IPv6.",
            "For tests.",
            "In the order\n/// of the registry.",
        ] {
            assert_eq!(count(&format!("/// {bad}\nfn f() {{}}")), 1, "{bad}");
        }
        for good in [
            "Largest MTU of the path.",
            "For each family, the algorithm.",
            "Bytewise copy.",
            "Official name.\n///\n/// In bytes.",
        ] {
            assert_eq!(count(&format!("/// {good}\nfn f() {{}}")), 0, "{good}");
        }
    }

    #[test]
    fn pages_are_read_as_prose() {
        let text = "# What is told\n\n    told\n\n```\ntold\n```\n<!-- told -->\n`told`\n";
        assert_eq!(found("docs/x.md", text).len(), 1);
        assert_eq!(found("docs/glossary.md", text).len(), 0);
    }
}
