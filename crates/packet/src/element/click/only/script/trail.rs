//! Where reports of scripts stand: below the script that was carried out and the handler that was called, each of which is
//! written once, before its first report.
//!
//! Source: the contexts of Click's error handlers. They belong to the thread, since scripts call each other.

use std::cell::RefCell;

use crate::element::click::only::console;

thread_local! {
    static TRAIL: RefCell<State> = const { RefCell::new(State { places: Vec::new(), kept: None }) };
}

struct State {
    /// What is carried out, the outermost first, and whether it was written.
    places: Vec<(String, bool)>,
    /// Reports for whoever called from outside.
    kept: Option<String>,
}

/// Something that is carried out; it ends where this is dropped.
pub(crate) struct Trail;

impl Trail {
    /// Enters a place: the line that stands above its reports.
    pub(crate) fn enter(line: &str) -> Self {
        TRAIL.with_borrow_mut(|state| state.places.push((line.to_owned(), false)));
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
        let result = run();
        let kept = TRAIL.with_borrow_mut(|state| if outermost { state.kept.take() } else { None });
        (result, kept.unwrap_or_default())
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
                kept.push_str(&text);
                String::new()
            }
            None => text,
        }
    });
    console::err(&text);
}
