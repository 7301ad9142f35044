//! Output of commands: data to standard output, messages to standard error.
//!
//! A command returns one plain struct of results; it is printed as text, or with `--json` as it
//! is. Buffered: ten million lines are written in 64 KiB pieces.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::sync::OnceLock;

use serde::Serialize;

/// Results of a command: its fields are its JSON.
pub trait Report: Serialize {
    /// Writes the results as text.
    ///
    /// # Errors
    /// Those of `to`.
    fn text(&self, to: &mut dyn Write) -> io::Result<()>;
}

/// Standard output (tests use memory), and the format to write to it.
pub struct Output<W = BufWriter<io::Stdout>> {
    to: W,
    json: bool,
}

const BUFFER_BYTES: usize = 64 << 10;

impl Output {
    /// Output to standard output, as text or JSON.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self { to: BufWriter::with_capacity(BUFFER_BYTES, io::stdout()), json }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Output<Vec<u8>> {
    /// Output to memory.
    #[must_use]
    pub fn memory(json: bool) -> Self {
        Self { to: Vec::new(), json }
    }

    /// Text written so far.
    ///
    /// # Panics
    /// When it is not UTF-8.
    #[must_use]
    #[allow(clippy::unwrap_used, reason = "for tests")]
    pub fn written(&self) -> &str {
        std::str::from_utf8(&self.to).unwrap()
    }
}

impl<W: Write> Output<W> {
    /// Whether JSON is wanted, for a command whose results are JSON already.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints one document, or one line of a stream.
    ///
    /// # Errors
    /// Those of standard output.
    pub fn print(&mut self, report: &impl Report) -> io::Result<()> {
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

/// Name of the program, in front of each message.
static NAME: OnceLock<&'static str> = OnceLock::new();

/// Sets the name of the program that messages begin with; the first call counts.
pub(crate) fn set_name(name: &'static str) {
    let _ = NAME.set(name);
}

/// Name of the program.
pub(crate) fn name() -> &'static str {
    NAME.get().copied().unwrap_or("fingerpost")
}

/// Where messages go instead of standard error.
static REDIRECTED: OnceLock<fn(&str)> = OnceLock::new();

/// Has `sink` write the messages from now on, as lines of the log of a daemon; the first call counts.
pub fn redirect(sink: fn(&str)) {
    let _ = REDIRECTED.set(sink);
}

/// What has drawn on the terminal: it makes room for what is written beside it.
static DRAWN: OnceLock<fn(&mut dyn FnMut())> = OnceLock::new();

/// Has `beside` make room on the terminal for each message from now on; the first call counts.
pub(crate) fn drawn(beside: fn(&mut dyn FnMut())) {
    let _ = DRAWN.set(beside);
}

/// Prints one line on standard error. Quoted text cannot break the line or move the cursor.
pub fn message(words: impl fmt::Display) {
    let words = words.to_string();
    if let Some(sink) = REDIRECTED.get() {
        return sink(&words);
    }
    let mut line = format!("{}: ", name());
    for c in words.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line.push('\n');
    if cfg!(test) {
        // The test runner keeps it under the name of the test.
        eprint!("{line}");
        return;
    }
    // With standard error closed there is no place left for it.
    let mut write = || drop(io::stderr().write_all(line.as_bytes()));
    match DRAWN.get() {
        Some(beside) => beside(&mut write),
        None => write(),
    }
}

/// A column: its heading, and the cell of a thing.
pub type Column<T> = (&'static str, fn(&T) -> String);

/// Columns of text, as wide as their widest cell, with numbers to the right.
#[derive(Default)]
pub struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// Columns with these headings.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(ToString::to_string).collect()] }
    }

    /// Columns with a row for each thing.
    pub fn of<'t, T: 't>(columns: &[Column<T>], things: impl IntoIterator<Item = &'t T>) -> Self {
        let mut rows = Self::headed(columns);
        things.into_iter().for_each(|thing| rows.thing(columns, thing));
        rows
    }

    /// Columns without a row.
    #[must_use]
    pub fn headed<T>(columns: &[Column<T>]) -> Self {
        Self { rows: vec![columns.iter().map(|column| column.0.to_owned()).collect()] }
    }

    /// Adds the row of a thing.
    pub fn thing<T>(&mut self, columns: &[Column<T>], thing: &T) {
        self.row(columns.iter().map(|(_, cell)| cell(thing)));
    }

    /// Adds a row below the others.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Writes them all, two blanks apart.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
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

/// Cell of a value that may not be known.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Whether a cell is digits with at most a point between them, or `-`.
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
