//! `cargo xtask docs book`: the pages of the repository as one searchable book, which loads nothing from elsewhere.
//!
//! Shape: [`contents`] puts the pages in order -> [`stage`] copies them, with what they show -> mdBook renders ->
//! [`links`] checks each link of each page against what was rendered. A page that no index names, and a link that leads
//! nowhere, out of the book or to another host, is an error with page and line.
//! Cost: a second or two, without optimization.

mod contents;
mod links;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use mdbook_driver::MDBook;
use mdbook_driver::config::Config;

use contents::Part;

/// A page: its path from the root, and its text.
pub(crate) struct Page {
    path: String,
    text: String,
}

impl Page {
    /// Its first heading.
    fn title(&self) -> Result<&str> {
        let title = self.text.lines().find_map(|line| line.strip_prefix("# "));
        title.with_context(|| format!("{}: has no heading", self.path))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [root, out] = &arguments[..] else {
        eprintln!("usage: fingerpost-book ROOT OUT");
        return ExitCode::from(2);
    };
    match book(root, out) {
        Ok(pages) => {
            println!("{}: {pages} pages", out.join("html/index.html").display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the book of a checkout; returns the number of its pages.
fn book(root: &Path, out: &Path) -> Result<usize> {
    let parts = contents::parts(root)?;
    let pages: BTreeMap<&str, &Page> =
        parts.iter().flat_map(|part| &part.pages).map(|page| (page.path.as_str(), page)).collect();
    let found: Vec<_> = pages.values().map(|page| (*page, links::links(page))).collect();
    let source = out.join("source");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    stage(&parts, &found, root, &source)?;
    let html = out.join("html");
    let config = config(&html)?;
    let mut rendered = MDBook::load_with_config(out, config)?;
    rendered.config.book.src = "source".into();
    rendered.build()?;
    let mut wrong = links::wrong(&found, &pages, root, &html)?;
    wrong.extend(links::foreign(&html)?);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(pages.len())
}

fn config(html: &Path) -> Result<Config> {
    let text = format!(
        "[book]\ntitle = 'Fingerpost'\nlanguage = 'en'\nsrc = 'source'\n\
         [build]\nbuild-dir = '{}'\ncreate-missing = false\nuse-default-preprocessors = false\n\
         [output.html]\nno-section-label = true\nsmart-punctuation = false\n\
         [output.html.print]\nenable = false\n\
         [output.html.fold]\nenable = true\n\
         [output.html.playground]\nrunnable = false\n",
        std::path::absolute(html)?.display()
    );
    text.parse().map_err(|error| anyhow!("the configuration of mdBook: {error:#}"))
}

/// Copies the pages, with a summary, and the other files that they lead to.
fn stage(
    parts: &[Part],
    found: &[(&Page, Vec<links::Link>)],
    root: &Path,
    source: &Path,
) -> Result<()> {
    let mut summary = String::from("# Summary\n\n");
    for Part { title, pages } in parts {
        let is_first = title.is_empty();
        if !is_first {
            summary += &format!("\n# {title}\n\n");
        }
        for (at, page) in pages.iter().enumerate() {
            // Pages of a folder stand below its index.
            let indent =
                if !is_first && at > 0 && contents::is_index(&pages[0].path) { "  " } else { "" };
            let bullet = if is_first { "" } else { "- " };
            let file = staged(&page.path);
            summary += &format!("{indent}{bullet}[{}]({file})\n", page.title()?.replace('`', ""));
            put(&source.join(file), links::staged(&page.text).as_bytes())?;
        }
    }
    put(&source.join("SUMMARY.md"), summary.as_bytes())?;
    for (page, links) in found {
        for target in links.iter().filter_map(|link| link.file(page)) {
            let from = root.join(&target);
            // What is missing, or is a folder, is reported with its line.
            if !target.ends_with(".md") && from.is_file() {
                put(&source.join(&target), &fs::read(from)?)?;
            }
        }
    }
    Ok(())
}

/// Path in the book of a page.
pub(crate) fn staged(path: &str) -> String {
    match path.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.md"),
        None => path.to_owned(),
    }
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file of the book is in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_book_is_searched_without_a_network() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let out = std::env::temp_dir().join(format!("fingerpost-book-{}", std::process::id()));
        assert!(book(&root, &out).unwrap() > 60);
        let url = format!("file://{}/html/docs/guide/index.html?search=policer", out.display());
        let mut browser = Command::new("chromium");
        browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]);
        browser.args(["--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", &url]);
        let shown =
            browser.arg(format!("--user-data-dir={}", out.join("browser").display())).output();
        fs::remove_dir_all(&out).unwrap();
        let Ok(shown) = shown else { return println!("skipped: needs chromium") };
        let page = String::from_utf8_lossy(&shown.stdout);
        assert!(page.contains("search results for 'policer'"), "{page}");
        assert!(page.contains("Limit a rate by a policer"), "{page}");
    }
}
