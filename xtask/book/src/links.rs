//! Links of pages, and whether they lead somewhere within the book.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag};

use crate::{Page, staged as path_in_book};

/// A link, or a picture.
pub(crate) struct Link {
    line: usize,
    target: String,
}

impl Link {
    fn split(&self) -> (&str, &str) {
        self.target.split_once('#').unwrap_or((&self.target, ""))
    }

    fn is_foreign(&self) -> bool {
        self.target.contains("://") || self.target.starts_with("mailto:")
    }

    /// Path from the root of what it leads to; `None` for another host.
    pub(crate) fn file(&self, page: &Page) -> Option<String> {
        let (path, _) = self.split();
        if self.is_foreign() {
            return None;
        }
        if path.is_empty() {
            return Some(page.path.clone());
        }
        let mut parts: Vec<&str> = page.path.split('/').collect();
        parts.pop();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                name => parts.push(name),
            }
        }
        Some(parts.join("/"))
    }
}

/// All links and pictures of a page.
pub(crate) fn links(page: &Page) -> Vec<Link> {
    let parser = Parser::new_ext(&page.text, Options::ENABLE_TABLES).into_offset_iter();
    let targets = parser.filter_map(|(event, range)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            let line = page.text[..range.start].matches('\n').count() + 1;
            Some(Link { line, target: dest_url.into_string() })
        }
        _ => None,
    });
    targets.collect()
}

/// The text of a page as it stands in the book, where the page of a folder is its index.
pub(crate) fn staged(text: &str) -> String {
    text.replace("README.md)", "index.md)").replace("README.md#", "index.md#")
}

/// Links that lead nowhere, with page and line.
///
/// # Errors
/// When a rendered page cannot be read.
pub(crate) fn wrong(
    found: &[(&Page, Vec<Link>)],
    pages: &BTreeMap<&str, &Page>,
    root: &Path,
    html: &Path,
) -> Result<Vec<String>> {
    let mut places = BTreeMap::new();
    for path in pages.keys() {
        places.insert(*path, anchors(html, path)?);
    }
    let mut wrong = Vec::new();
    for (page, links) in found {
        for link in links {
            let (_, anchor) = link.split();
            let why = match link.file(page) {
                None => "leads to another host",
                Some(file) => match places.get(file.as_str()) {
                    Some(places) if anchor.is_empty() || places.contains(anchor) => continue,
                    Some(_) => "that page has no such heading",
                    None if file.ends_with(".md") => "that page is not in the book",
                    None if root.join(&file).is_file() => continue,
                    None => "there is no such file",
                },
            };
            wrong.push(format!("{}:{}: {}: {why}", page.path, link.line, link.target));
        }
    }
    Ok(wrong)
}

/// Places in a rendered page that links can name.
fn anchors(html: &Path, page: &str) -> Result<BTreeSet<String>> {
    let file = html.join(path_in_book(page)).with_extension("html");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let main = text.split_once("<main>").and_then(|(_, main)| main.split_once("</main>"));
    let (main, _) = main.with_context(|| format!("{}: has no text", file.display()))?;
    let ids = main.split(" id=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    Ok(ids.map(|(id, _)| id.to_owned()).collect())
}

/// Beginnings of what a browser loads from another host.
const LOADS: &[&str] = &[
    "src=\"http",
    "src=\"//",
    "<link rel=\"stylesheet\" href=\"http",
    "<link rel=\"preload\" href=\"http",
    "url(http",
    "url(\"http",
    "url('http",
    "@import",
];

/// Files of the book that load something from another host.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn foreign(folder: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            wrong.extend(foreign(&path)?);
            continue;
        }
        let is_text =
            path.extension().is_some_and(|end| ["html", "css", "svg"].iter().any(|e| end == *e));
        if !is_text {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let loads = LOADS.iter().filter(|load| text.contains(**load));
        wrong.extend(loads.map(|load| format!("{}: has {load}", path.display())));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> Page {
        Page { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn broken_links_are_named_with_page_and_line() {
        let root = std::env::temp_dir().join(format!("fingerpost-book-{}", std::process::id()));
        fs::create_dir_all(root.join("html/docs")).unwrap();
        fs::write(root.join("a.png"), "").unwrap();
        let main = |id: &str| format!("<nav id=\"no\"></nav><main><h1 id=\"{id}\">x</h1></main>");
        fs::write(root.join("html/docs/a.html"), main("a")).unwrap();
        fs::write(root.join("html/docs/index.html"), main("b")).unwrap();
        let text = "# A\n[x](README.md#b) ![x](../a.png)\n[x](#a)\n\n| c |\n|---|\n| [x](b.md) |\n\
                    [x](README.md#no) `[x](code.md)`\n![x](b.png) <https://example.net/>\n";
        let (a, b) = (page("docs/a.md", text), page("docs/README.md", "# B\n"));
        let pages = BTreeMap::from([("docs/a.md", &a), ("docs/README.md", &b)]);
        let found = vec![(&a, links(&a)), (&b, links(&b))];
        let said = wrong(&found, &pages, &root, &root.join("html")).unwrap();
        let want = [
            "docs/a.md:7: b.md: that page is not in the book",
            "docs/a.md:8: README.md#no: that page has no such heading",
            "docs/a.md:9: b.png: there is no such file",
            "docs/a.md:9: https://example.net/: leads to another host",
        ];
        assert_eq!(said, want);
        assert_eq!(foreign(&root.join("html")).unwrap(), [""; 0]);
        fs::write(root.join("html/a.css"), "a { src: url('https://example.net/a') }").unwrap();
        assert_eq!(foreign(&root.join("html")).unwrap().len(), 1);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn an_index_is_linked_under_its_name_in_the_book() {
        assert_eq!(
            staged("[a](../README.md) [b](x/README.md#y)"),
            "[a](../index.md) [b](x/index.md#y)"
        );
        assert_eq!(path_in_book("docs/guide/README.md"), "docs/guide/index.md");
    }
}
