//! The rules of the house that a reader should not have to enforce, read from the sources.
//!
//! Each rule is a function from text to complaints, tried on a broken text and run on the whole
//! repository. CONTRIBUTING.md gives the reasons.

use std::process::Command;

use fingerpost_tests::source::{self, File};
use fingerpost_tests::words;

/// Past this a file has a second idea in it.
const LINES: usize = 1000;

/// Folders whose `mod.rs` or `lib.rs` is the list of what they hold.
const REGISTRIES: &[&str] = &[
    "crates/lpm/src/algo/own",
    "crates/lpm/src/algo/published",
    "crates/route/src/source",
    "crates/packet/src/device",
    "crates/packet/src/element/click",
    "crates/packet/src/element/router",
    "crates/io/src",
    "crates/router/src/cli",
];

/// Where unsafe code may stand: a file, or a folder (with the `/`).
const UNSAFE: &[&str] = &[
    "crates/command/src/interrupt.rs",
    "crates/lpm/src/mem/mod.rs",
    "crates/lpm/src/mem/map.rs",
    "crates/lpm/src/simd.rs",
    "crates/packet/src/frame/buf/annotations.rs",
    "crates/packet/src/frame/buf/mod.rs",
    "crates/packet/src/frame/buf/tests.rs",
    "crates/io/src/afxdp/",
    "crates/io/src/interface.rs",
    "crates/io/src/link_socket.rs",
    "crates/io/src/socket_call.rs",
    "crates/io/src/namespace.rs",
    "crates/io/src/af_packet/mod.rs",
    "crates/io/src/ring/handover.rs",
    "crates/io/src/schedule.rs",
    "crates/io/src/shared_ring.rs",
    "crates/io/src/tap.rs",
    "crates/io/src/user.rs",
    "crates/io/src/xdp/",
    "crates/router/src/sys.rs",
    // Programs of their own, in their own workspaces; the shipped one links none of them.
    "lab/peers/",
];

/// Structs that coordinate, with their files, and the most fields that one may have: each field is a part with private
/// state.
const COORDINATORS: &[(&str, &str)] = &[
    ("crates/route/src/control/mod.rs", "Control"),
    ("crates/route/src/fib/mod.rs", "Fib"),
    ("crates/router/src/daemon/mod.rs", "Daemon"),
    ("crates/router/src/daemon/cluster/mod.rs", "Node"),
    ("crates/router/src/daemon/ports/mod.rs", "Interfaces"),
    ("crates/router/src/daemon/workers.rs", "Workers"),
];
const FIELDS: usize = 10;

/// Longest subject of a commit, and the last commit that may break it: one of 75 characters, of a history that is not rewritten.
const SUBJECT: usize = 72;
const SUBJECTS_SINCE: &str = "07650f9";

fn may_be_unsafe(path: &str) -> bool {
    let fast = path.starts_with("crates/lpm/src/algo/") && path.ends_with("_fast.rs");
    fast || UNSAFE.iter().any(|at| path == *at || (at.ends_with('/') && path.starts_with(at)))
}

/// A file opens with what it is.
fn opening(file: &File) -> Vec<String> {
    if file.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![format!("{}: opens with no //! line", file.path)]
}

/// A file is one idea.
fn length(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if lines <= LINES {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines, at most {LINES}", file.path)]
}

/// Nothing is left for later: neither notes nor stubs nor tests that are switched off.
fn unfinished(file: &File) -> Vec<String> {
    // In two halves, or this file would find itself.
    let notes = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let code = source::code(&file.text);
    let stubs = ["todo!", "unimplemented!", "#[ignore", "#![ignore"];
    let mut wrong = Vec::new();
    for (line, word) in source::words(&file.text) {
        if notes.contains(&word) {
            wrong.push(format!("{}:{line}: {word}", file.path));
        }
    }
    for (line, text) in code.lines().enumerate() {
        for stub in stubs.iter().filter(|stub| text.contains(**stub)) {
            wrong.push(format!("{}:{}: {stub}", file.path, line + 1));
        }
    }
    wrong
}

/// Unsafe code only in the files that are named for it, and those open with their invariants. A
/// module line may allow it for such a file.
fn fenced(file: &File) -> Vec<String> {
    let code = source::code(&file.text);
    let used: Vec<_> =
        source::words(&code).filter(|(_, word)| *word == "unsafe").map(|(line, _)| line).collect();
    if may_be_unsafe(&file.path) {
        let header = file.text.lines().take_while(|line| line.starts_with("//!"));
        let numbered =
            header.filter_map(|line| line.strip_prefix("//! ")).any(|l| l.starts_with("1. "));
        // The parts of a folder may share the list of its mod.rs.
        let part = file.path.contains("/afxdp/") || file.path.contains("/xdp/");
        if used.is_empty() || numbered || (part && !file.path.ends_with("/mod.rs")) {
            return Vec::new();
        }
        return vec![format!("{}: no numbered invariants in its opening", file.path)];
    }
    let mut wrong: Vec<_> = used
        .iter()
        .map(|line| format!("{}:{line}: unsafe outside its fences", file.path))
        .collect();
    let folder = module_folder(&file.path);
    let lint = code.match_indices("(unsafe_code").chain(code.match_indices(" unsafe_code,"));
    for (at, _) in lint.filter(|(at, _)| !code[..*at].ends_with("forbid")) {
        let line = code[..at].matches('\n').count() + 1;
        let after = code[at..].split_once(']').map_or("", |(_, rest)| rest);
        let allowed = module_name(after).is_some_and(|name| {
            may_be_unsafe(&format!("{folder}/{name}.rs"))
                || may_be_unsafe(&format!("{folder}/{name}/mod.rs"))
        });
        if !allowed {
            wrong.push(format!("{}:{line}: allows unsafe code outside its fences", file.path));
        }
    }
    wrong
}

/// Where the modules of a file are: beside `lib.rs`, `main.rs` and `mod.rs`, below any other.
fn module_folder(path: &str) -> &str {
    for root in ["/lib.rs", "/main.rs", "/mod.rs"] {
        if let Some(folder) = path.strip_suffix(root) {
            return folder;
        }
    }
    path.trim_end_matches(".rs")
}

/// `x` of `pub mod x;` at the beginning of `code`.
fn module_name(code: &str) -> Option<&str> {
    let (item, _) = code.split_once(';')?;
    let mut words = item.split_ascii_whitespace();
    let mut word = words.next()?;
    if word.starts_with("pub") {
        word = words.next()?;
    }
    if word == "mod" { words.next() } else { None }
}

/// Each exception from a lint has a reason.
fn reasons(file: &File) -> Vec<String> {
    let code = source::code(&file.text);
    let mut wrong = Vec::new();
    for (at, opening) in ["#[allow(", "#![allow(", "#[expect(", "#![expect("]
        .into_iter()
        .flat_map(|opening| code.match_indices(opening))
    {
        let body = &code[at + opening.len()..];
        let body = body.split_once(")]").map_or(body, |(body, _)| body);
        if !source::words(body).any(|(_, word)| word == "reason") {
            let line = code[..at].matches('\n').count() + 1;
            wrong.push(format!("{}:{line}: {opening}...) without a reason", file.path));
        }
    }
    wrong
}

/// A registry has a `mod` line for each file beside it, and a row for each file that makes one.
fn registry(folder: &str, list: &str, members: &[(String, String)]) -> Vec<String> {
    let code = source::code(list);
    let has_module = |name: &str| {
        code.lines().any(|line| module_name(line.trim_start()).is_some_and(|found| found == name))
    };
    // What rows are called here, by those that are listed: `bsearch::MODULE`.
    let capitals =
        |word: &str| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let row_names: Vec<&str> = members
        .iter()
        .flat_map(|(name, _)| code.split(&format!("{name}::")).skip(1).collect::<Vec<_>>())
        .filter_map(|rest| source::words(rest).next())
        .map(|(_, word)| word)
        .filter(|word| capitals(word))
        .collect();
    let mut wrong = Vec::new();
    for (name, text) in members {
        if !has_module(name) {
            wrong.push(format!("{folder}: no line for {name}"));
        }
        let text = source::code(text);
        for row in &row_names {
            let makes = ["const", "static"].iter().any(|kind| {
                text.lines().any(|line| {
                    line.starts_with("pub") && line.contains(&format!(" {kind} {row}:"))
                })
            });
            if makes && !code.contains(&format!("{name}::{row}")) {
                wrong.push(format!("{folder}: {name}::{row} is in no list"));
            }
        }
    }
    wrong.dedup();
    wrong
}

/// Test data has its origin and its licence beside it.
fn credits(path: &str, readme: Option<&str>) -> Vec<String> {
    let Some(text) = readme else { return vec![format!("{path}: no README.md")] };
    let text = text.to_lowercase();
    let missing = ["origin", "licen"].into_iter().filter(|word| !text.contains(word));
    missing.map(|word| format!("{path}/README.md: says nothing of its {word}...")).collect()
}

/// Links between documents lead somewhere, and files that they name are there. `x.rs` stands for a
/// file that is yet to be written.
fn links(file: &File, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut wrong = Vec::new();
    let linked = file.text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    for (target, _) in linked {
        let target = target.split('#').next().unwrap_or_default();
        if !target.is_empty() && !target.contains("://") && !exists(&normal(folder, target)) {
            wrong.push(format!("{}: no {target} to link to", file.path));
        }
    }
    // Every other piece between backticks is code, in a document without stray ones.
    for name in file.text.split('`').skip(1).step_by(2) {
        let rooms = ["crates/", "lab/", "tests/", "testdata/", "xtask/", "docs/"];
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        let here = rooms.iter().any(|room| name.starts_with(room)) && !name.ends_with("/x.rs");
        if here && plain && !exists(name.trim_end_matches('/')) {
            wrong.push(format!("{}: names {name}, which is not there", file.path));
        }
    }
    wrong
}

/// Modules with parts are `x/mod.rs`: no `x.rs` stands beside a folder of its modules.
fn layout(files: &[File]) -> Vec<String> {
    let folders: Vec<_> =
        files.iter().filter_map(|file| file.path.rsplit_once('/')).map(|at| at.0).collect();
    let beside = |file: &&File| folders.contains(&file.path.trim_end_matches(".rs"));
    files.iter().filter(beside).map(|file| format!("{}: beside its folder", file.path)).collect()
}

/// `target` as seen from `folder`, without its `..`.
fn normal(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn sources() -> Vec<File> {
    let files = source::files(".", ".rs");
    assert!(files.len() > 20, "{} files are not this repository", files.len());
    files
}

fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[test]
fn every_file_opens_with_what_it_is() {
    none(&sources().iter().flat_map(opening).collect::<Vec<_>>());
    assert_eq!(opening(&file("x.rs", "//! Words.\n")), [""; 0]);
    assert_eq!(opening(&file("x.rs", "use std::fs;\n//! Words.")).len(), 1);
    assert_eq!(opening(&file("x.rs", "//!\n")).len(), 1);
}

#[test]
fn modules_have_one_layout() {
    none(&layout(&sources()));
    let both = [file("a/x.rs", ""), file("a/x/y.rs", ""), file("a/z/mod.rs", "")];
    assert_eq!(layout(&both), ["a/x.rs: beside its folder"]);
}

#[test]
fn no_file_is_too_long() {
    none(&sources().iter().flat_map(length).collect::<Vec<_>>());
    assert_eq!(length(&file("x.rs", &"x\n".repeat(LINES))), [""; 0]);
    assert_eq!(length(&file("x.rs", &"x\n".repeat(LINES + 1))).len(), 1);
}

#[test]
fn nothing_is_left_for_later() {
    none(&sources().iter().flat_map(unfinished).collect::<Vec<_>>());
    for bad in [
        concat!("// TO", "DO: later"),
        concat!("/* FIX", "ME */"),
        "fn f() { todo!() }",
        "fn f() { unimplemented!(\"x\") }",
        "#[test]\n#[ignore = \"slow\"]\nfn f() {}",
    ] {
        assert_eq!(unfinished(&file("x.rs", bad)).len(), 1, "{bad}");
    }
    assert_eq!(
        unfinished(&file("x.rs", "// the todo! macro is not used\nlet s = \"todo!\";")),
        [""; 0]
    );
}

#[test]
fn unsafe_code_stays_in_its_files() {
    none(&sources().iter().flat_map(fenced).collect::<Vec<_>>());
    let root = fingerpost_tests::root();
    let gone = UNSAFE.iter().filter(|path| !root.join(path).exists());
    assert_eq!(gone.collect::<Vec<_>>(), [&""; 0], "a fence around nothing");
    let inside =
        "//! Memory.\n//!\n//! Invariants:\n//! 1. It is there.\nfn f() { unsafe { g() } }";
    assert_eq!(fenced(&file("crates/lpm/src/mem/mod.rs", inside)), [""; 0]);
    assert_eq!(fenced(&file("crates/lpm/src/algo/dxr_fast.rs", inside)), [""; 0]);
    assert_eq!(fenced(&file("crates/lpm/src/algo/dxr.rs", inside)).len(), 1);
    assert_eq!(
        fenced(&file("crates/lpm/src/mem/mod.rs", "//! Memory.\nunsafe fn f() {}")).len(),
        1
    );
    assert_eq!(fenced(&file("crates/lpm/src/x.rs", "// unsafe\nlet s = \"unsafe\";")), [""; 0]);
    let allow = "#[allow(unsafe_code, reason = \"x\")]\n";
    let module = |name: &str| format!("{allow}pub mod {name};");
    assert_eq!(fenced(&file("crates/lpm/src/lib.rs", &module("mem"))), [""; 0]);
    assert_eq!(fenced(&file("crates/lpm/src/lib.rs", &module("routes"))).len(), 1);
    assert_eq!(fenced(&file("crates/io/src/lib.rs", &module("afxdp"))), [""; 0]);
    assert_eq!(fenced(&file("crates/lpm/src/lib.rs", &format!("{allow}fn f() {{}}"))).len(), 1);
    assert_eq!(fenced(&file("crates/lpm/src/x.rs", "#![allow(unsafe_code)]\nmod mem;")).len(), 1);
    assert_eq!(fenced(&file("crates/lpm/src/x.rs", "#![forbid(unsafe_code)]\nmod mem;")), [""; 0]);
    let second = "#[allow(dead_code, unsafe_code, reason = \"x\")]\nfn f() {}";
    assert_eq!(fenced(&file("crates/lpm/src/x.rs", second)).len(), 1);
}

#[test]
fn every_exception_has_a_reason() {
    none(&sources().iter().flat_map(reasons).collect::<Vec<_>>());
    assert_eq!(reasons(&file("x.rs", "#[allow(dead_code, reason = \"x\")]")), [""; 0]);
    assert_eq!(reasons(&file("x.rs", "#[allow(\n    dead_code,\n    reason = \"x\"\n)]")), [""; 0]);
    assert_eq!(reasons(&file("x.rs", "#[allow(dead_code)]\nfn f(reason: u8) {}")).len(), 1);
    assert_eq!(reasons(&file("x.rs", "#![expect(dead_code)]")).len(), 1);
}

/// Number of fields of a struct; `None` where the text has no such struct.
fn fields(text: &str, name: &str) -> Option<usize> {
    let code = source::code(text);
    let found = code.match_indices(&format!("struct {name}")).find(|(at, found)| {
        let next = code[at + found.len()..].chars().next().unwrap_or(' ');
        !next.is_alphanumeric() && next != '_'
    });
    let body = code[found?.0..].split_once("{\n")?.1.split_once("\n}")?.0;
    let field =
        |line: &&str| line.starts_with("    ") && !line.starts_with("     ") && line.contains(": ");
    Some(body.lines().filter(field).count())
}

#[test]
fn coordinators_have_few_fields() {
    let mut wrong = Vec::new();
    for (path, name) in COORDINATORS {
        let text = std::fs::read_to_string(fingerpost_tests::root().join(path)).unwrap();
        match fields(&text, name) {
            Some(1..=FIELDS) => {}
            count => wrong.push(format!("{path}: {name} has {count:?} fields, at most {FIELDS}")),
        }
    }
    none(&wrong);
    let text = "struct Ab {\n    x: u8,\n}\n/// struct A {\npub(crate) struct A<'a> {\n    /// One: 1.\n    \
                pub(super) x: &'a u8,\n    #[allow(dead_code)]\n    y: [u8; 2],\n}\n";
    assert_eq!(
        [fields(text, "A"), fields(text, "Ab"), fields(text, "B")],
        [Some(2), Some(1), None]
    );
}

#[test]
fn every_registry_lists_its_folder() {
    let mut wrong = Vec::new();
    for folder in REGISTRIES {
        let files = source::files(folder, ".rs");
        let list = files.iter().find(|f| {
            f.path.strip_prefix(folder).is_some_and(|name| ["/mod.rs", "/lib.rs"].contains(&name))
        });
        let list = &list.unwrap_or_else(|| panic!("{folder} has no list")).text;
        let members: Vec<_> = files.iter().filter_map(|f| member(folder, f)).collect();
        wrong.extend(registry(folder, list, &members));
    }
    none(&wrong);
}

/// The name and text of `x.rs` or `x/mod.rs` right in `folder`.
fn member(folder: &str, file: &File) -> Option<(String, String)> {
    let inside = file.path.strip_prefix(folder)?.strip_prefix('/')?;
    let name = inside.strip_suffix("/mod.rs").or_else(|| inside.strip_suffix(".rs"))?;
    (name != "mod" && name != "lib" && !name.contains('/'))
        .then(|| (name.to_owned(), file.text.clone()))
}

#[test]
fn a_registry_with_a_gap_is_found() {
    let list = "//! Rows.\nmod dxr;\npub mod radix;\n// mod sail;\npub static ALL: &[Module] = &[dxr::MODULE];";
    let make = |names: &[(&str, &str)]| -> Vec<(String, String)> {
        names.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect()
    };
    let row = "pub const MODULE: Module = x;";
    let check = |names: &[(&str, &str)]| registry("algo", list, &make(names)).len();
    assert_eq!(check(&[("dxr", row), ("radix", "")]), 0);
    assert_eq!(check(&[("dxr", row), ("sail", "")]), 1, "no mod line");
    assert_eq!(check(&[("dxr", row), ("radix", row)]), 1, "in no list");
    assert_eq!(member("a/algo", &file("a/algo/x/mod.rs", "")).unwrap().0, "x");
    assert_eq!(member("a/algo", &file("a/algo/x/y.rs", "")), None);
    assert_eq!(member("a/algo", &file("a/algo/mod.rs", "")), None);
}

#[test]
fn test_data_has_its_credits() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(fingerpost_tests::root().join("testdata")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let readme = std::fs::read_to_string(path.join("README.md")).ok();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            wrong.extend(credits(&format!("testdata/{name}"), readme.as_deref()));
            seen += 1;
        }
    }
    none(&wrong);
    assert!(seen > 0);
    assert_eq!(credits("x", None).len(), 1);
    assert_eq!(credits("x", Some("Origin: made here. License: as the rest.")), [""; 0]);
    assert_eq!(credits("x", Some("Origin: made here.")).len(), 1);
}

#[test]
fn words_are_those_of_the_glossary() {
    let all: Vec<_> = words::files(".").iter().flat_map(words::check).collect();
    none(&all.iter().map(ToString::to_string).collect::<Vec<_>>());
    let planted = |text| words::check(&file("crates/lpm/src/x.rs", text)).len();
    assert_eq!(planted("//! A table that is told of routes.\n"), 1);
    assert_eq!(planted("/// Of lists whose readers left.\nfn f() {}\n"), 1);
    assert_eq!(planted("fn f() { fail(\"nobody told it\"); }\n"), 1);
}

/// Subjects that are too long.
fn subjects(log: &str) -> Vec<String> {
    let long = |line: &&str| {
        line.split_once(' ').is_some_and(|(_, subject)| subject.chars().count() > SUBJECT)
    };
    log.lines().filter(long).map(|line| format!("subject beyond {SUBJECT}: {line}")).collect()
}

#[test]
fn subjects_of_commits_are_short() {
    let range = format!("{SUBJECTS_SINCE}..HEAD");
    let log = Command::new("git")
        .args(["log", "--no-merges", "--format=%h %s", &range])
        .current_dir(fingerpost_tests::root())
        .output();
    match log {
        Ok(log) if log.status.success() => none(&subjects(&String::from_utf8_lossy(&log.stdout))),
        _ => fingerpost_tests::skip("git and the history since the rule"),
    }
    assert_eq!(subjects(&format!("1234567 {}", "x".repeat(SUBJECT))), [""; 0]);
    assert_eq!(subjects(&format!("1234567 {}", "x".repeat(SUBJECT + 1))).len(), 1);
}

#[test]
fn documents_name_what_is_there() {
    let root = fingerpost_tests::root();
    let exists = |path: &str| root.join(path).exists();
    let documents = source::files(".", ".md");
    assert!(documents.len() > 5);
    none(&documents.iter().flat_map(|file| links(file, &exists)).collect::<Vec<_>>());
    let there = |path: &str| ["docs/a.md", "crates/lpm", "b.md"].contains(&path);
    let good = "[a](a.md#x) [b](../b.md) [c](https://example.net/) `crates/lpm/` `crates/lpm/x.rs`";
    assert_eq!(links(&file("docs/README.md", good), &there), [""; 0]);
    assert_eq!(links(&file("docs/README.md", "[a](b.md)"), &there).len(), 1);
    assert_eq!(
        links(&file("README.md", "`crates/gone.rs` and `ls crates/gone.rs`"), &there).len(),
        1
    );
}
