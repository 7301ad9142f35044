//! Context lines above the reports of scripts: the script that was carried out and the handler that was called, each of which
//! is written once, before its first report.
//!
//! Source: the contexts of Click's error handlers. They belong to the thread, since scripts call each other.

use std::cell::RefCell;
use std::sync::Arc;

use crate::element::click::only::console;

thread_local! {
    static TRAIL: RefCell<State> = const { RefCell::new(State { places: Vec::new(), kept: None }) };
}

struct State {
    /// What is carried out, the outermost first, and whether it was written.
    places: Vec<(Arc<str>, bool)>,
    /// Reports for whoever called from outside.
    kept: Option<String>,
}

/// Something that is carried out; it ends where this is dropped.
pub(crate) struct Trail;

impl Trail {
    /// Enters a place: the line that stands above its reports.
    pub(crate) fn enter(line: impl Into<Arc<str>>) -> Self {
        let line = line.into();
        TRAIL.with_borrow_mut(|state| state.places.push((line, false)));
        Self
    }

    /// Runs something for a handler, and returns what was reported; nothing where a script called it, since that was
    /// written.
    pub(crate) fn collect<T>(run: impl FnOnce() -> T) -> (T, String) {
        let outermost = TRAIL.with_borrow_mut(|state| {
            let outermost = state.places.is_empty() && state.kept.is_none();
            if outermost {
                state.kept = Some(String::new());
            }
            outermost
        });
        let kept = Kept { outermost };
        let result = run();
        (result, kept.take())
    }
}

/// Bytes of reports that are kept for a caller, at most.
const MOST_KEPT: usize = 1 << 16;

/// Reports that are kept while a handler is called; whatever panics there, they are no longer where this is dropped.
struct Kept {
    outermost: bool,
}

impl Kept {
    fn take(&self) -> String {
        let kept =
            TRAIL.with_borrow_mut(|state| if self.outermost { state.kept.take() } else { None });
        kept.unwrap_or_default()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.take();
    }
}

/// Adds a report to those that are kept; the first that does not fit ends them.
fn keep(kept: &mut String, text: &str) {
    if kept.len() > MOST_KEPT {
        return;
    }
    kept.push_str(text);
    if kept.len() > MOST_KEPT {
        kept.truncate(kept.floor_char_boundary(MOST_KEPT));
        // Longer than the part of a character that was cut off.
        kept.push_str("...\n");
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        TRAIL.with_borrow_mut(|state| state.places.pop());
    }
}

/// Reports lines, indented below where they belong.
pub(crate) fn report(words: &str) {
    let line = |depth: usize, line: &str| format!("{}{line}\n", "  ".repeat(depth));
    let text = TRAIL.with_borrow_mut(|state| {
        let places = state.places.iter_mut().enumerate();
        let new = places.filter_map(|(depth, (place, shown))| {
            (!std::mem::replace(shown, true)).then(|| line(depth, place))
        });
        let mut text: String = new.collect();
        text.extend(words.lines().map(|words| line(state.places.len(), words)));
        match &mut state.kept {
            Some(kept) => {
                keep(kept, &text);
                String::new()
            }
            None => text,
        }
    });
    console::err(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_a_bound_and_an_end() {
        let line = "\u{2026}".repeat(100);
        let ((), kept) = Trail::collect(|| (0..1000).for_each(|_| report(&line)));
        assert!(kept.ends_with("...\n") && kept.len() <= MOST_KEPT + 4, "{}", kept.len());
        let panics = || Trail::collect(|| panic!("a handler may"));
        assert!(std::panic::catch_unwind(panics).is_err());
        console::collect();
        report("x");
        assert_eq!(console::collected().err, "x\n", "nobody keeps it any more");
        assert_eq!(Trail::collect(|| report("y")).1, "y\n");
    }
}
