//! Progress of long work, on standard error: on a terminal a bar with rate and time left, elsewhere a line every few
//! seconds.
//!
//! Cost: a draw is some tens of microseconds, five times a second at most. A thread draws again while a step lasts: it wakes
//! once a second.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike, WeakProgressBar};

use crate::output::{self, message};

/// Time between two lines where there is no terminal.
const LINE: Duration = Duration::from_secs(5);
/// Most draws a second on a terminal.
const DRAWS_HZ: u8 = 5;
/// Time between two draws while nothing happens: they must not disturb what is measured ...
const TICK: Duration = Duration::from_secs(1);
/// ... but transfers are none of that.
const TICK_BYTES: Duration = Duration::from_millis(200);
/// Work of bytes that takes less shows nothing.
const SHORT: Duration = Duration::from_millis(300);
/// Characters of a name that are shown.
const NAME_CHARS: usize = 48;

/// What is shown of the present work.
pub struct Progress {
    to: To,
    work: Option<Work>,
}

#[derive(Clone)]
enum To {
    Nobody,
    Terminal,
    Lines(Lines),
}

struct Work {
    bar: ProgressBar,
    unit: Unit,
    begun: Instant,
    is_shown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Nothing is counted.
    None,
    Steps,
    Bytes,
    /// Bytes of an unknown number.
    Stream,
}

impl Unit {
    /// Template of the bar, or of the line where there is no bar.
    fn template(self, is_bar: bool) -> &'static str {
        match (self, is_bar) {
            (Self::None, _) => "{msg}, {elapsed}",
            (Self::Stream, _) => "{msg}: {bytes}, {bytes_per_sec}",
            (Self::Steps, true) => "{msg} [{wide_bar}] {pos}/{len}, {per_sec}, {eta} left",
            (Self::Steps, false) => "{msg}: {pos} of {len}, {per_sec}, {eta} left",
            (Self::Bytes, true) => {
                "{msg} [{wide_bar}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left"
            }
            (Self::Bytes, false) => {
                "{msg}: {percent} %, {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left"
            }
        }
    }
}

impl Progress {
    /// Nothing is shown yet.
    #[must_use]
    pub fn new() -> Self {
        // A terminal that cannot move its cursor is none.
        let moves = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        let to = match io::stderr().is_terminal() && moves {
            true => To::Terminal,
            false => To::Lines(Lines::default()),
        };
        Self { to, work: None }
    }

    /// Lines, whatever there is: for several pieces of work at a time.
    #[must_use]
    pub fn lines() -> Self {
        Self { to: To::Lines(Lines::default()), work: None }
    }

    /// Nothing is ever shown.
    #[must_use]
    pub fn silent() -> Self {
        Self { to: To::Nobody, work: None }
    }

    /// Begins work that has no length: the time so far is shown.
    pub fn stage(&mut self, what: &str) {
        self.begin(what, Unit::None, None);
        self.show();
    }

    /// `done` of `all` steps; next comes `what`.
    pub fn step(&mut self, what: &str, done: usize, all: usize) {
        let same = |work: &Work| {
            work.unit == Unit::Steps
                && work.bar.length() == Some(all as u64)
                && work.bar.position() <= done as u64
        };
        if !self.work.as_ref().is_some_and(same) {
            self.begin(what, Unit::Steps, Some(all as u64));
            self.show();
        }
        if let Some(work) = &self.work {
            work.bar.set_position(done as u64);
            work.bar.set_message(shortened(what));
        }
    }

    /// `at` of `len` bytes of `what`, of which the first `at` need no time.
    pub fn bytes(&mut self, what: &str, at: u64, len: Option<u64>) {
        self.begin(what, if len.is_some() { Unit::Bytes } else { Unit::Stream }, len);
        if let Some(work) = &self.work {
            work.bar.set_position(at);
            work.bar.reset_eta();
        }
    }

    /// Bytes of the present work so far.
    pub fn at(&mut self, at: u64) {
        let Some(work) = &self.work else { return };
        work.bar.set_position(at);
        if !work.is_shown && work.begun.elapsed() >= SHORT {
            self.show();
        }
    }

    /// The present work is over.
    pub fn done(&mut self) {
        if let Some(Work { bar, .. }) = self.work.take() {
            bar.finish_and_clear();
            if matches!(self.to, To::Terminal) {
                *drawn() = None;
            }
        }
    }

    fn begin(&mut self, what: &str, unit: Unit, len: Option<u64>) {
        self.done();
        if matches!(self.to, To::Nobody) {
            return;
        }
        let template = unit.template(matches!(self.to, To::Terminal));
        let style = ProgressStyle::with_template(template).expect("the templates are valid");
        let bar = ProgressBar::with_draw_target(len, ProgressDrawTarget::hidden());
        bar.set_style(style.progress_chars("## "));
        bar.set_message(shortened(what));
        self.work = Some(Work { bar, unit, begun: Instant::now(), is_shown: false });
    }

    fn show(&mut self) {
        let Some(work) = &mut self.work else { return };
        work.is_shown = true;
        match &self.to {
            To::Nobody => {}
            To::Terminal => {
                work.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_HZ));
                *drawn() = Some(work.bar.downgrade());
                output::drawn(beside);
            }
            To::Lines(lines) => {
                let target = ProgressDrawTarget::term_like_with_hz(Box::new(lines.clone()), 1);
                work.bar.set_draw_target(target);
            }
        }
        work.bar.tick();
        let is_fast = matches!((&self.to, work.unit), (To::Terminal, Unit::Bytes | Unit::Stream));
        work.bar.enable_steady_tick(if is_fast { TICK_BYTES } else { TICK });
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done();
    }
}

fn shortened(what: &str) -> String {
    // A name of a file may be anything; on a terminal it must not move the cursor.
    what.chars().filter(|c| !c.is_control()).take(NAME_CHARS).collect()
}

/// The bar that the terminal shows.
static DRAWN: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

fn drawn() -> std::sync::MutexGuard<'static, Option<WeakProgressBar>> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes something to the terminal beside the bar: it is drawn again below.
fn beside(write: &mut dyn FnMut()) {
    let bar = drawn().as_ref().and_then(WeakProgressBar::upgrade);
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Draws as lines, one every few seconds.
#[derive(Clone, Debug)]
struct Lines(Arc<Mutex<Line>>);

#[derive(Debug)]
struct Line {
    drawn: String,
    printed: Instant,
}

impl Default for Lines {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Line { drawn: String::new(), printed: Instant::now() })))
    }
}

impl Lines {
    fn line(&self) -> std::sync::MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TermLike for Lines {
    fn width(&self) -> u16 {
        200
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.line().drawn.push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.line().drawn.clear();
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut line = self.line();
        let drawn = std::mem::take(&mut line.drawn);
        let words = drawn.trim();
        if !words.is_empty() && line.printed.elapsed() >= LINE {
            line.printed = Instant::now();
            message(words);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid_and_a_bar_counts() {
        for unit in [Unit::None, Unit::Steps, Unit::Bytes, Unit::Stream] {
            for is_bar in [false, true] {
                ProgressStyle::with_template(unit.template(is_bar)).unwrap();
            }
        }
        let mut progress = Progress::lines();
        progress.step("a", 0, 4);
        progress.step("b", 2, 4);
        let of = |progress: &Progress| {
            let work = progress.work.as_ref().unwrap();
            (work.bar.message(), work.bar.position(), work.bar.length(), work.is_shown)
        };
        assert_eq!(of(&progress), ("b".into(), 2, Some(4), true));
        progress.bytes("f\x1b[2J", 1 << 20, None);
        progress.at(3 << 20);
        assert_eq!(of(&progress), ("f[2J".into(), 3 << 20, None, false));
        progress.done();
        assert!(progress.work.is_none());
        let mut silent = Progress::silent();
        silent.step("a", 0, 4);
        assert!(silent.work.is_none());
    }

    #[test]
    fn a_line_is_printed_now_and_then() {
        let lines = Lines::default();
        let draw = |text: &str| {
            lines.clear_line().unwrap();
            lines.write_str(text).unwrap();
            lines.flush().unwrap();
            lines.line().printed
        };
        let first = draw("early   ");
        assert_eq!(first, draw("early   "));
        let before = Instant::now().checked_sub(LINE).unwrap();
        lines.line().printed = before;
        assert_eq!(draw("   "), before);
        assert!(draw("late") > before);
    }
}
