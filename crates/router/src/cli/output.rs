//! Where the output of commands goes: data to standard output, messages to standard error.
//!
//! A command makes one plain struct of what it found; it is printed as text, or with `--json` as it
//! is. Buffered: ten million lines are written in 64 KiB pieces.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use serde::Serialize;

use crate::time::rfc3339;

/// Results of a command: its fields are its JSON.
pub(crate) trait Report: Serialize {
    /// The same, for people.
    ///
    /// # Errors
    /// Those of `to`.
    fn text(&self, to: &mut dyn Write) -> io::Result<()>;
}

/// Standard output (tests use memory), and how to write to it.
pub(crate) struct Output<W = BufWriter<io::Stdout>> {
    to: W,
    json: bool,
}

const BUFFER_BYTES: usize = 64 << 10;

impl Output {
    /// Writes text, or JSON.
    pub(crate) fn new(json: bool) -> Self {
        Self { to: BufWriter::with_capacity(BUFFER_BYTES, io::stdout()), json }
    }
}

#[cfg(test)]
impl Output<Vec<u8>> {
    /// Writes to memory.
    pub(crate) fn memory(json: bool) -> Self {
        Self { to: Vec::new(), json }
    }

    /// What was written so far.
    pub(crate) fn written(&self) -> &str {
        std::str::from_utf8(&self.to).unwrap()
    }
}

impl<W: Write> Output<W> {
    /// Whether JSON is wanted, for a command that is handed it ready-made.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints one document, or one line of a stream.
    ///
    /// # Errors
    /// Those of standard output.
    pub(crate) fn print(&mut self, report: &impl Report) -> io::Result<()> {
        if !self.json {
            return report.text(&mut self.to);
        }
        serde_json::to_writer(&mut self.to, report)?;
        self.to.write_all(b"\n")
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Messages are the log of a daemon, and carry the time.
static TIMED: AtomicBool = AtomicBool::new(false);

/// Messages are the log of a daemon from now on: each carries the time, unless the journal reads them, which notes
/// that itself.
pub(crate) fn begin_log() {
    // Relaxed: nothing else follows from it.
    TIMED.store(!is_journal(), Ordering::Relaxed);
}

/// Whether standard error is the journal, as systemd.exec(5) says how to find out: a service may have that variable
/// and write elsewhere.
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let stream = std::fs::metadata("/proc/self/fd/2");
    stream.is_ok_and(|stream| named == format!("{}:{}", stream.dev(), stream.ino()))
}

/// One line on standard error. What a message quotes cannot break the line or move the cursor.
pub(crate) fn message(words: impl fmt::Display) {
    let mut line = String::new();
    if TIMED.load(Ordering::Relaxed) {
        line = rfc3339(SystemTime::now()) + " ";
    }
    line += "fingerpost: ";
    for c in words.to_string().chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line.push('\n');
    if cfg!(test) {
        // Kept under the name of the test.
        eprint!("{line}");
        return;
    }
    // Where even standard error is closed nobody is left to be told.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Columns of text: as wide as what stands in them, numbers to the right.
#[derive(Default)]
pub(crate) struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// Columns with these headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(ToString::to_string).collect()] }
    }

    /// A row below the others.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Writes them all, two blanks apart.
    ///
    /// # Errors
    /// Those of `to`.
    pub(crate) fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column| self.rows.iter().filter_map(move |row: &Vec<String>| row.get(column));
        let widths: Vec<_> =
            (0..columns).map(|c| cells(c).map(|s| s.chars().count()).max().unwrap_or(0)).collect();
        let numbers: Vec<_> =
            (0..columns).map(|c| cells(c).skip(1).all(|s| is_number(s))).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let cell = if numbers[column] {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                };
                line.push_str(if column > 0 { "  " } else { "" });
                line.push_str(&cell);
            }
            writeln!(to, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A cell of something that may not be known.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Digits with at most a point between them, or nothing known.
fn is_number(cell: &str) -> bool {
    cell == "-" || (!cell.is_empty() && cell.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut columns = Columns::new(&["name", "routes", "note"]);
        columns.row(["dxr18".into(), "901899".into(), String::new()]);
        columns.row(["x".into(), "-".into(), "limit exceeded".into()]);
        let mut text = Vec::new();
        columns.write(&mut text).unwrap();
        let want = "name   routes  note\ndxr18  901899\nx           -  limit exceeded\n";
        assert_eq!(String::from_utf8(text).unwrap(), want);
    }
}
