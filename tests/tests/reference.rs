//! The pages of `docs/reference/`: made from the command line, the types and the registries, and compared.
//!
//! `FINGERPOST_ACCEPT=1 cargo test -p fingerpost-tests --test reference` writes them again; `cargo xtask docs`
//! does that after a build. Nothing in them is kept by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use fingerpost_packet::feature::row::{Field, Given, GivenInterface};
use fingerpost_packet::feature::{FEATURES, Feature, Value};
use fingerpost_packet::{DropReason, ELEMENTS};
use fingerpost_tests::source::{self, File};

/// First line of every page.
const MADE: &str = "<!-- Made by tests/tests/reference.rs; see there. -->\n\n";

/// Compares `page` with what is recorded in `path`, or records it.
fn compare(path: &str, page: &str) {
    let file = fingerpost_tests::root().join(path);
    if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
        std::fs::create_dir_all(file.parent().expect("a page lies in a folder"))
            .expect("the checkout can be written");
        std::fs::write(&file, page).expect("the checkout can be written");
    }
    let recorded = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = recorded.lines().zip(page.lines()).position(|(was, is)| was != is);
    assert!(
        recorded == page,
        "{path} is out of date, first in line {}: FINGERPOST_ACCEPT=1 cargo test -p fingerpost-tests --test reference",
        differs.unwrap_or_else(|| recorded.lines().count().min(page.lines().count())) + 1
    );
}

/// Standard output of a command; `None` where it fails because its program is not beside this one.
fn printed(program: &Path, words: &[String], columns: usize) -> Option<String> {
    let run = Command::new(program)
        .args(words)
        .env("COLUMNS", columns.to_string())
        .env_remove("FINGERPOST_SOCKET")
        .output()
        .expect("the program was found before");
    let refusal = String::from_utf8_lossy(&run.stderr);
    if !run.status.success() && refusal.contains("fingerpost-lab: No such file") {
        return None;
    }
    assert!(run.status.success(), "{words:?}: {refusal}");
    Some(String::from_utf8(run.stdout).expect("help is UTF-8"))
}

/// Names in the list `Commands:` of a help text.
fn subcommands(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let rows = list.take_while(|line| !line.is_empty());
    let name = |line: &str| {
        let text = line.strip_prefix("  ")?;
        (!text.starts_with(' ')).then(|| text.split_whitespace().next().map(str::to_owned))?
    };
    rows.filter_map(name).filter(|name| name != "help").collect()
}

/// The help of a command and of those below it, as name and text.
fn helps(program: &Path, words: &[String], columns: usize, all: &mut Vec<(String, String)>) {
    let mut asking = words.to_vec();
    asking.push("--help".to_owned());
    let Some(help) = printed(program, &asking, columns) else { return };
    all.push((format!("fingerpost {}", words.join(" ")).trim_end().to_owned(), help.clone()));
    for name in subcommands(&help) {
        helps(program, &[words, &[name]].concat(), columns, all);
    }
}

#[test]
fn commands() {
    let Some(program) = fingerpost_tests::program() else {
        return fingerpost_tests::skip("a release build of fingerpost");
    };
    // Alone in a folder: what `fingerpost-lab` beside it would print is not of this program.
    let folder = std::env::temp_dir().join(format!("fpcommands{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let alone = folder.join("fingerpost");
    std::fs::copy(program, &alone).unwrap();
    let program = alone;
    let mut page = format!("# Commands\n\n{MADE}");
    page.push_str(
        "Names of commands, options and JSON fields, and exit codes, stay as they are; new ones are added.\n\
         Standard output is data, standard error is messages. `demo`, `bench` and `papers` are those of\n\
         `fingerpost-lab`, which prints their help.\n",
    );
    let mut narrow = String::new();
    for (columns, text) in [(100, &mut page), (80, &mut narrow)] {
        let mut all = Vec::new();
        helps(&program, &[], columns, &mut all);
        assert!(all.len() > 20, "{} commands are not all", all.len());
        for (name, help) in all {
            for line in help.lines() {
                // Examples are whole commands, and a word cannot be broken.
                let example = line.trim_start().starts_with("$ ");
                let long = line.chars().count() > columns && !example;
                assert!(!long, "{name} --help: beyond {columns} columns: {line}");
            }
            let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    compare("docs/reference/commands.md", &page);
    compare("tests/tests/reference/help-80.txt", &narrow);
}

/// Family of algorithms that a cargo feature adds; its variants have names that begin so.
const ON_DEMAND: &str = "poptrie";

#[test]
fn algorithms() {
    let mut rows = BTreeMap::new();
    for row in fingerpost_lpm::v4() {
        rows.insert(row.name, (row.summary, row.source, format!("{:?}", row.origin)));
    }
    for row in fingerpost_lpm::v6() {
        rows.insert(row.name, (row.summary, row.source, format!("{:?}", row.origin)));
    }
    for row in fingerpost_lpm::registry::left_out() {
        rows.insert(row.name, (row.summary, row.source, "Published".to_owned()));
    }
    // Built with a cargo feature or without it: the page has one row for its family.
    rows.retain(|name, _| *name == ON_DEMAND || !name.starts_with(ON_DEMAND));
    let mut page = format!("# Lookup algorithms\n\n{MADE}");
    page.push_str(
        "Published ones are faithful forms of known schemes, own ones designs of this project. \
         `fingerpost algorithms`\nprints the families and limits of those that a build has.\n\n\
         | name | origin | summary | source |\n|---|---|---|---|\n",
    );
    for (name, (summary, source, origin)) in rows {
        let _ = writeln!(page, "| `{name}` | {} | {summary} | {source} |", origin.to_lowercase());
    }
    compare("docs/reference/algorithms.md", &page);
}

#[test]
fn drop_reasons() {
    let mut page = format!("# Drop reasons\n\n{MADE}");
    page.push_str(
        "Each dropped packet has one of these reasons; counters, `why` and traces name it.\n\n\
         | name | meaning |\n|---|---|\n",
    );
    for reason in DropReason::ALL {
        let _ = writeln!(page, "| `{}` | {} |", reason.name(), cell(reason.summary()));
    }
    page.push_str(
        "\n## Packets that leave the XDP datapath\n\nThe XDP datapath counts what it leaves to the graph, or drops, \
         under these names.\n\n| name | meaning |\n|---|---|\n",
    );
    let lists = source::files("crates", "reasons.rs");
    let list = lists.iter().find(|file| file.path.contains("/xdp/"));
    let rows: Vec<_> = list.map_or("", |file| &file.text).lines().filter_map(reason).collect();
    assert!(rows.len() > 5, "{} reasons of the XDP datapath are not all", rows.len());
    for (name, meaning) in rows {
        let _ = writeln!(page, "| `{name}` | {} |", cell(meaning));
    }
    compare("docs/reference/drop-reasons.md", &page);
}

/// Name and meaning in a row `Variant = "name", "meaning";` of a list of reasons.
fn reason(line: &str) -> Option<(&str, &str)> {
    let (_, row) = line.split_once(" = \"")?;
    let (name, rest) = row.split_once("\", \"")?;
    Some((name, rest.strip_suffix("\";")?))
}

/// `text` without what would end a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Text of the `//!` lines of a file, without links of rustdoc.
fn opening(file: &File) -> String {
    let lines = file.text.lines().map_while(|line| line.strip_prefix("//!"));
    let text: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    text.join("\n").replace("[`", "`").replace("`]", "`")
}

#[test]
fn elements() {
    let mut page = format!("# Elements\n\n{MADE}");
    page.push_str(
        "Steps that a graph can wire, as `fingerpost run FILE.click` and `fingerpost graph check` know them. Ports are\n\
         inputs/outputs; an output with a name can be called by it. [Build a graph](../guide/build-a-graph.md) has \
         examples.\n\n| class | ports | outputs | summary |\n|---|---|---|---|\n",
    );
    let mut rows: Vec<_> = ELEMENTS.iter().collect();
    rows.sort_by_key(|class| class.spec.name.to_lowercase());
    for class in &rows {
        let spec = &class.spec;
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            spec.name,
            spec.ports,
            spec.output_names.join(", "),
            cell(class.summary)
        );
    }
    // Arguments are described where they are read.
    let mut described = 0;
    for file in source::files("crates", ".rs") {
        if !file.path.contains("/element/") && !file.path.contains("/feature/") {
            continue;
        }
        let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        let named = |class: &&&fingerpost_packet::ElementClass| {
            code.contains("ElementClass") && code.contains(&format!("\"{}\"", class.spec.name))
        };
        let names: Vec<_> = rows.iter().filter(named).map(|class| class.spec.name).collect();
        if !names.is_empty() {
            described += names.len();
            let _ = write!(page, "\n## {}\n\n{}\n", names.join(", "), opening(&file));
        }
    }
    assert!(described * 10 > rows.len() * 7, "{described} of {} are described", rows.len());
    compare("docs/reference/elements.md", &page);
}

/// Each class of Click: by its name here, under another name, or why it is not.
#[test]
fn click() {
    let path = "testdata/click/classes.tsv";
    let rows = std::fs::read_to_string(fingerpost_tests::root().join(path)).unwrap();
    let find = |name: &str| ELEMENTS.iter().find(|class| class.spec.name == name);
    let is_here = |name: &str| find(name).is_some();
    let mut page = format!("# Classes of Click\n\n{MADE}");
    let (mut all, mut here, mut other) = (0, 0, 0);
    let mut table = String::from("| class | group | here |\n|---|---|---|\n");
    for row in rows.lines().skip(1) {
        let [name, group, note] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{path}: {row}: three columns are wanted");
        };
        assert_eq!(
            is_here(name),
            note.is_empty(),
            "{path}: {name}: a note is for classes that are not here"
        );
        let words = match note.strip_prefix("= ") {
            _ if note.is_empty() => match find(name).map_or(&[][..], |class| class.spec.ignored) {
                [] => "yes".to_owned(),
                ignored => format!("yes; without effect: `{}`", ignored.join("`, `")),
            },
            Some(known) => {
                assert!(is_here(known), "{path}: {name}: there is no `{known}`");
                other += 1;
                format!("as `{known}`")
            }
            None if note.starts_with("not yet") => note.to_owned(),
            None => format!("no: {note}"),
        };
        (all, here) = (all + 1, here + usize::from(note.is_empty()));
        let _ = writeln!(table, "| `{name}` | {group} | {} |", cell(&words));
    }
    let _ = write!(
        page,
        "Of the {all} classes that Click 2.1 registers, those of wireless networks apart, {here} are here by their name and {other} \
         under\nanother one, which a configuration has to use. [Elements](elements.md) has how each differs, and the classes of this project besides. \
         [Build a graph](../guide/build-a-graph.md)\nhas how a configuration of Click is run.\n\n{table}"
    );
    compare("docs/reference/click.md", &page);
    let Some(data) = std::env::var_os("FINGERPOST_DATA").map(std::path::PathBuf::from) else {
        return;
    };
    let Ok(registered) = std::fs::read_to_string(data.join("click/classes.csv")) else { return };
    let registered: BTreeSet<_> =
        registered.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    let listed: BTreeSet<_> =
        rows.lines().skip(1).filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(listed, registered, "{path} and the classes that Click registers");
}

/// A struct or enum of the configuration, read from its source.
#[derive(Debug, Default)]
struct Type {
    doc: String,
    /// Name, type (empty for a variant), description.
    members: Vec<(String, String, String)>,
    lowercase: bool,
}

/// Every `struct` and `enum` with named members in `text`.
fn types(text: &str, all: &mut BTreeMap<String, Type>) {
    let (mut doc, mut attributes) = (Vec::new(), String::new());
    let mut open: Option<(String, Type)> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///") {
            doc.push(words.trim().to_owned());
            continue;
        }
        if line.starts_with("#[") {
            attributes.push_str(line);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().filter(|w| !w.starts_with("pub")).collect();
        if let [kind @ ("struct" | "enum"), name, "{"] = words[..] {
            let lowercase = kind == "enum" && attributes.contains("rename_all = \"lowercase\"");
            open = Some((name.to_owned(), Type { doc: doc.join(" "), members: vec![], lowercase }));
        } else if line == "}" && indent == 0 {
            all.extend(open.take());
        } else if let Some((_, it)) = &mut open
            && indent == 4
            && !attributes.contains("skip)")
        {
            let name = |word: &str| match attributes.split_once("rename = \"") {
                Some((_, rest)) => rest.split('"').next().unwrap_or_default().to_owned(),
                None => word.to_owned(),
            };
            let bare = line.trim_end_matches(',').trim_start_matches("pub(crate) ");
            let bare = bare.trim_start_matches("pub(super) ").trim_start_matches("pub ");
            if let Some((field, kind)) = bare.split_once(": ") {
                it.members.push((name(field), kind.to_owned(), doc.join(" ")));
            } else if bare.chars().next().is_some_and(char::is_uppercase) {
                let variant = bare.split(['(', ' ']).next().unwrap_or_default();
                it.members.push((name(variant), String::new(), doc.join(" ")));
            }
        }
        doc.clear();
        attributes.clear();
    }
}

/// What is between the brackets of `Vec<X>` and `Option<X>`, and the type itself otherwise.
fn inner(kind: &str) -> &str {
    let mut kind = kind;
    while let Some((_, rest)) = kind.split_once('<') {
        kind = rest.trim_end_matches('>');
    }
    kind.rsplit("::").next().unwrap_or(kind)
}

/// How a value of a type is written.
fn value(kind: &str, types: &BTreeMap<String, Type>) -> String {
    let list = kind.contains("Vec<");
    let one = match inner(kind) {
        "String" | "PathBuf" | "SocketAddr" => "string".to_owned(),
        "bool" => "true, false".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "integer".to_owned(),
        "Choice" => "integer or string".to_owned(),
        "Cores" => "\"auto\" or list of integers".to_owned(),
        "Size" => "size: bytes, `\"16M\"`".to_owned(),
        "Levels" => "log levels, `\"info,fib=debug\"`".to_owned(),
        "GivenRate" => "packets a second, or `\"8Mbps\"`".to_owned(),
        other => match types.get(other) {
            Some(it) if it.lowercase => {
                let words =
                    it.members.iter().map(|(name, ..)| format!("`\"{}\"`", name.to_lowercase()));
                words.collect::<Vec<_>>().join(", ")
            }
            _ => other.to_owned(),
        },
    };
    if list { format!("list of {one}") } else { one }
}

/// A section and those in it; `keys` collects what is listed by section, for the cross-check.
fn section(
    page: &mut String,
    (path, list): (&str, bool),
    it: &Type,
    types: &BTreeMap<String, Type>,
    keys: &mut BTreeMap<String, Vec<String>>,
) {
    let mut below = Vec::new();
    if !path.is_empty() {
        let heading = if list { format!("[[{path}]]") } else { format!("[{path}]") };
        let _ = write!(
            page,
            "\n## `{heading}`\n\n{}\n\n| key | value | meaning |\n|---|---|---|\n",
            it.doc
        );
    }
    for (name, kind, doc) in &it.members {
        keys.entry(path.to_owned()).or_default().push(name.clone());
        let of = types.get(inner(kind));
        match of {
            Some(of)
                if !of.lowercase
                    && !matches!(inner(kind), "Cores" | "Choice" | "Size" | "GivenRate") =>
            {
                below.push((name, kind.contains("Vec<"), of));
            }
            _ => {
                let mut doc = doc.clone();
                if let Some(of) = of.filter(|of| of.lowercase) {
                    for (word, _, meaning) in
                        of.members.iter().filter(|(_, _, doc)| !doc.is_empty())
                    {
                        let _ = write!(doc, " `{}`: {meaning}", word.to_lowercase());
                    }
                }
                let (value, doc) = (cell(&value(kind, types)), cell(doc.trim()));
                assert!(
                    !doc.is_empty(),
                    "`{name}` of `[{path}]` has no meaning: write its doc comment"
                );
                let _ = writeln!(page, "| `{name}` | {value} | {doc} |");
            }
        }
    }
    for (name, list, of) in below {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        section(page, (&path, list), of, types, keys);
    }
}

/// What a feature refuses when it reads `given`: the words behind `expected`, which list what is valid.
fn expected(row: &Feature, given: &Given) -> String {
    let mut mistakes = Vec::new();
    (row.read)(given, &mut mistakes);
    let first = mistakes.first().expect("what no feature has is refused");
    let (_, valid) = first.what.split_once("expected ").expect("a refusal lists what is valid");
    let valid = valid.split(": did you mean").next().unwrap_or(valid);
    valid.trim_start_matches("one of ").to_owned()
}

/// Keys and sections of interface features, from the registry and from what their readers refuse.
fn features(page: &mut String, keys: &mut BTreeMap<String, Vec<String>>) {
    page.push_str(
        "\n## Interface features\n\nKeys of `[[interface]]`:\n\n| key | value | meaning |\n|---|---|---|\n",
    );
    for row in FEATURES {
        let Some(key) = row.key else { continue };
        let value = Some(Value::Text("?".to_owned()));
        let interface = GivenInterface { name: "a".into(), place: "interface.0".into(), value };
        let given = Given { interfaces: vec![interface], items: Vec::new() };
        let _ = writeln!(page, "| `{}` | {} | {} |", key.name, expected(row, &given), row.summary);
        keys.entry("interface".to_owned()).or_default().push(key.name.to_owned());
    }
    for row in FEATURES {
        let Some(section) = row.section else { continue };
        let _ = writeln!(
            page,
            "\n## `[[{}]]`\n\n{}: {}.\n\n| key | value | meaning |\n|---|---|---|",
            section.name, row.name, row.summary
        );
        for Field { name, value, summary } in section.fields {
            let (value, summary) = (cell(value), cell(summary));
            let _ = writeln!(page, "| `{name}` | {value} | {summary} |");
        }
        let names = section.fields.iter().map(|field| field.name.to_owned());
        keys.entry(section.name.to_owned()).or_default().extend(names);
    }
}

#[test]
fn configuration() {
    let mut all = BTreeMap::new();
    for dir in ["crates/route/src/fib", "crates/router/src"] {
        for file in source::files(dir, ".rs") {
            if dir.ends_with("fib") || file.path.contains("/config") {
                types(&file.text, &mut all);
            }
        }
    }
    // Forms of the log stand with what writes them.
    let mut of_log = BTreeMap::new();
    let lines = source::files("crates/router/src/log", "line.rs");
    lines.iter().for_each(|file| types(&file.text, &mut of_log));
    let format = of_log.remove_entry("Format").expect("the log has forms");
    all.extend([format]);
    let root = all.get("Config").expect("the configuration has a type");
    let mut page = format!("# Configuration\n\n{MADE}");
    page.push_str(
        "A file in TOML. Every key has a default; an unknown key is an error that names the line and the nearest valid\n\
         word (`fingerpost config check FILE`).\n",
    );
    let mut keys = BTreeMap::new();
    section(&mut page, ("", false), root, &all, &mut keys);
    features(&mut page, &mut keys);
    compare("docs/reference/configuration.md", &page);

    // The program knows each of them, and no others: it lists them where it refuses a key.
    let Some(program) = fingerpost_tests::program() else {
        return fingerpost_tests::skip("a release build of fingerpost");
    };
    let file = std::env::temp_dir().join(format!("fpkeys{}.toml", std::process::id()));
    for (path, known) in keys {
        if path.is_empty() {
            continue;
        }
        let heading = if page.contains(&format!("`[[{path}]]`")) {
            format!("[[{path}]]")
        } else {
            format!("[{path}]")
        };
        for key in known {
            std::fs::write(&file, format!("{heading}\n{key} = {{ no = 'such value' }}\n")).unwrap();
            let run = Command::new(&program).args(["config", "check"]).arg(&file).output().unwrap();
            let refusal = String::from_utf8_lossy(&run.stderr).into_owned()
                + &String::from_utf8_lossy(&run.stdout);
            let unknown = refusal.contains(&format!("unknown field `{key}`"));
            assert!(!unknown, "{path}.{key}: {refusal}");
        }
    }
    let _ = std::fs::remove_file(&file);
}

#[test]
fn types_are_read_with_their_words() {
    let text = "/// One.\npub(crate) struct A {\n    /// How.\n    #[serde(default)]\n    pub(crate) mode: Vec<Mode>,\n}\n\
                #[serde(rename_all = \"lowercase\")]\nenum Mode {\n    /// Fast.\n    Xdp,\n}\n";
    let mut all = BTreeMap::new();
    types(text, &mut all);
    assert_eq!(all["A"].doc, "One.");
    assert_eq!(all["A"].members, [("mode".to_owned(), "Vec<Mode>".to_owned(), "How.".to_owned())]);
    assert_eq!(value("Vec<Mode>", &all), "list of `\"xdp\"`");
    assert_eq!(subcommands("Commands:\n  a  b\n     c\n  help  x\n\nOptions:\n"), ["a"]);
}
