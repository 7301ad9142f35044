//! Where elements write for people: standard output and standard error, or what a test collects.

use std::cell::RefCell;
use std::io::Write as _;

/// What was written, in a test.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Written {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

thread_local! {
    static COLLECTED: RefCell<Option<Written>> = const { RefCell::new(None) };
}

/// Collects from now on what elements of this thread write.
pub fn collect() {
    COLLECTED.with_borrow_mut(|collected| *collected = Some(Written::default()));
}

/// What was collected since; elements write to where they usually do again.
pub fn collected() -> Written {
    COLLECTED.with_borrow_mut(Option::take).unwrap_or_default()
}

/// Writes to standard output.
#[cfg(feature = "click")]
pub(crate) fn out(text: &str) {
    out_bytes(text.as_bytes());
}

/// Writes bytes to standard output.
#[cfg(feature = "click")]
pub(crate) fn out_bytes(bytes: &[u8]) {
    if !is_kept(&String::from_utf8_lossy(bytes), |written| &mut written.out) {
        let mut out = std::io::stdout().lock();
        // Where nobody reads it there is no one to report that to.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }
}

/// Writes a line to standard error.
pub fn warn(line: &str) {
    err(&format!("{line}\n"));
}

/// Writes to standard error.
pub(crate) fn err(text: &str) {
    if !is_kept(text, |written| &mut written.err) {
        // As above.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Bytes that are kept of each stream, at most.
const MOST_KEPT: usize = 1 << 26;

/// Whether the text is kept for a test; then it is added to what was written there.
fn is_kept(text: &str, stream: impl Fn(&mut Written) -> &mut String) -> bool {
    COLLECTED.with_borrow_mut(|collected| {
        let written = collected.as_mut();
        written
            .map(|written| {
                let kept = stream(written);
                if kept.len() + text.len() <= MOST_KEPT {
                    kept.push_str(text);
                }
            })
            .is_some()
    })
}
