//! Which top-level module of a crate uses which other one, read from the paths in its sources.
//!
//! A top-level module is a file or folder directly below `src`. Paths that begin with `crate` or `super` are followed;
//! a name that the crate's root re-exports counts as the module that it comes from. Test modules at the end of a file
//! and in a `tests.rs` do not count: a test may use whatever shows the fault.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{self, File};

/// Uses of a crate: for each top-level module the modules that it uses, each with a place.
pub type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// Modules that `src` (a folder, from the root of the checkout) has, and what they use.
pub fn uses(src: &str) -> Uses {
    uses_of(src, &source::files(src, ".rs"))
}

/// Modules of these files, and what they use.
pub fn uses_of(src: &str, files: &[File]) -> Uses {
    let relative = |file: &File| file.path[src.len()..].trim_start_matches('/').to_owned();
    let is_root = |path: &str| matches!(path, "lib.rs" | "main.rs");
    let module = |path: &str| {
        let first = path.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first).to_owned()
    };
    let names: BTreeSet<String> = files
        .iter()
        .map(relative)
        .filter(|path| !is_root(path) && !path.starts_with("bin/"))
        .map(|path| module(&path))
        .collect();
    let mut exported = BTreeMap::new();
    for file in files.iter().filter(|file| is_root(&relative(file))) {
        exported.extend(exports(&source::code(&file.text), &names));
    }
    let mut uses: Uses = names.iter().map(|name| (name.clone(), BTreeMap::new())).collect();
    for file in files {
        let path = relative(file);
        if is_root(&path) || path.starts_with("bin/") || path.ends_with("/tests.rs") {
            continue;
        }
        let (own, depth) = (module(&path), depth(&path));
        let code = source::code(&file.text);
        for (at, first) in firsts(without_tests(&code), depth) {
            let to = if names.contains(&first) { Some(&first) } else { exported.get(&first) };
            if let Some(to) = to.filter(|to| **to != own) {
                let line = code[..at].lines().count();
                let found = uses.get_mut(&own).expect("every file has a module");
                found.entry(to.clone()).or_insert_with(|| format!("{}:{line}", file.path));
            }
        }
    }
    uses
}

/// A circle of modules that use each other, the first one again at its end; empty where there is none.
pub fn circle(uses: &Uses) -> Vec<String> {
    let mut done = BTreeSet::new();
    for start in uses.keys() {
        let mut path = Vec::new();
        if let Some(found) = walk(uses, start, &mut path, &mut done) {
            return found;
        }
    }
    Vec::new()
}

fn walk(
    uses: &Uses,
    at: &str,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(begin) = path.iter().position(|name| name == at) {
        let mut circle = path[begin..].to_vec();
        circle.push(at.to_owned());
        return Some(circle);
    }
    if !done.contains(at) {
        path.push(at.to_owned());
        for next in uses.get(at).into_iter().flat_map(BTreeMap::keys) {
            let found = walk(uses, next, path, done);
            if found.is_some() {
                return found;
            }
        }
        path.pop();
        done.insert(at.to_owned());
    }
    None
}

/// How many `super` lead from a file to the root of its crate.
fn depth(path: &str) -> usize {
    let folders = path.matches('/').count();
    if path.ends_with("/mod.rs") { folders } else { folders + 1 }
}

/// Code up to the test module that ends a file.
fn without_tests(code: &str) -> &str {
    let ends =
        ["mod tests", "pub(super) mod tests"].map(|module| format!("#[cfg(test)]\n{module}"));
    let end = ends.iter().filter_map(|end| code.find(end)).min();
    &code[..end.unwrap_or(code.len())]
}

/// First names behind `crate::`, and behind so many `super::` as lead to the root; each with its place.
fn firsts(code: &str, depth: usize) -> Vec<(usize, String)> {
    let to_root = "super::".repeat(depth);
    let mut found = Vec::new();
    for start in ["crate::", to_root.as_str()] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || matches!(before, '_' | '$' | ':') {
                continue;
            }
            let rest = &code[at + start.len()..];
            found.extend(branches(rest).into_iter().map(|branch| (at, first_word(branch))));
        }
    }
    found
}

/// The paths that follow a prefix: one, or those of a list in braces.
fn branches(rest: &str) -> Vec<&str> {
    let Some(list) = rest.strip_prefix('{') else { return vec![rest] };
    let (mut depth, mut begin, mut all) = (0_u32, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                all.push(&list[begin..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    all
}

fn first_word(path: &str) -> String {
    path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Names that a root re-exports by `pub use module::...`, each with its module.
fn exports(code: &str, names: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (at, start) in code.match_indices("pub use ") {
        let rest = &code[at + start.len()..];
        let path = rest.split(';').next().unwrap_or_default();
        let module = first_word(path);
        if names.contains(&module) {
            let words = path.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            for word in words.filter(|word| !word.is_empty() && *word != module) {
                all.entry(word.to_owned()).or_insert_with(|| module.clone());
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Uses {
        let file = |&(path, text): &(&str, &str)| File {
            path: format!("x/src/{path}"),
            text: text.to_owned(),
        };
        uses_of("x/src", &files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn paths_lead_to_modules() {
        let uses = of(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;\npub use c::{deep::Thing, Other as Renamed};"),
            ("a.rs", "use crate::{b::{self, X}, d};\nfn f() { super::c::g() }"),
            (
                "b/mod.rs",
                "// crate::a\nuse super::d::Y;\n#[cfg(test)]\nmod tests { use crate::a::Z; }",
            ),
            ("b/inner.rs", "use super::own;\nuse super::super::c;"),
            ("b/tests.rs", "use crate::a::Z;"),
            ("c.rs", "struct X;\n#[cfg(test)]\npub(super) mod tests { use crate::a::Z; }"),
            ("d.rs", "use crate::Thing;"),
        ]);
        let of = |name: &str| uses[name].keys().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(of("a"), ["b", "c", "d"]);
        assert_eq!(of("b"), ["c", "d"]);
        assert_eq!(of("c"), [""; 0]);
        assert_eq!(of("d"), ["c"]);
        assert_eq!(circle(&uses), [""; 0]);
        assert_eq!(uses["a"]["b"], "x/src/a.rs:1");
    }

    #[test]
    fn a_circle_is_found_whole() {
        let uses = of(&[
            ("a.rs", "use crate::b::X;"),
            ("b.rs", "use super::c::X;"),
            ("c/mod.rs", "fn f() { crate::a::g() }"),
        ]);
        assert_eq!(circle(&uses), ["a", "b", "c", "a"]);
    }
}
