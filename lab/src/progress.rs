//! Progress of a measurement, on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Receiver of progress.
pub trait Progress {
    /// What is being done that has no length.
    fn tell(&mut self, what: &str);
    /// `done` of `all` steps; next comes `what`.
    fn step(&mut self, what: &str, done: usize, all: usize);
    /// The steps are over.
    fn done(&mut self);
}

/// Nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn tell(&mut self, _: &str) {}
    fn step(&mut self, _: &str, _: usize, _: usize) {}
    fn done(&mut self) {}
}

/// A bar on standard error where that is a terminal, else a line now and then.
#[derive(Debug)]
pub struct Bar {
    terminal: bool,
    shown: Option<Instant>,
}

const WIDTH: usize = 24;
/// A bar is redrawn so often at most: drawing must not disturb what is measured.
const REDRAW: Duration = Duration::from_millis(200);
/// Time between lines where there is no bar.
const LINE: Duration = Duration::from_secs(10);

impl Bar {
    /// Nothing shown yet.
    pub fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: None }
    }

    fn due(&mut self, every: Duration) -> bool {
        let now = Instant::now();
        let due = self.shown.is_none_or(|shown| now - shown >= every);
        if due {
            self.shown = Some(now);
        }
        due
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

/// The line of a bar.
fn drawn(what: &str, done: usize, all: usize) -> String {
    let full = done * WIDTH / all.max(1);
    format!("[{}{}] {done}/{all} {what:.40}", "#".repeat(full), " ".repeat(WIDTH - full.min(WIDTH)))
}

impl Progress for Bar {
    fn tell(&mut self, what: &str) {
        // Where standard error is closed nobody waits for it.
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K{what}");
        } else if self.due(LINE) {
            let _ = writeln!(io::stderr(), "fingerpost-lab: {what}");
        }
    }

    fn step(&mut self, what: &str, done: usize, all: usize) {
        if self.terminal && self.due(REDRAW) {
            let _ = write!(io::stderr(), "\r\x1b[K{}", drawn(what, done, all));
        } else if !self.terminal && self.due(LINE) {
            let _ = writeln!(io::stderr(), "fingerpost-lab: {done} of {all} samples");
        }
    }

    fn done(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills() {
        assert_eq!(drawn("dxr18", 0, 4), format!("[{}] 0/4 dxr18", " ".repeat(24)));
        assert_eq!(drawn("x", 2, 4), format!("[{}{}] 2/4 x", "#".repeat(12), " ".repeat(12)));
        assert_eq!(drawn("x", 4, 4), format!("[{}] 4/4 x", "#".repeat(24)));
        let mut bar = Bar { terminal: false, shown: None };
        assert!(bar.due(LINE) && !bar.due(LINE) && bar.due(Duration::ZERO));
    }
}
