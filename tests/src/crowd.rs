//! Crowds of connections, which send little and take the places of others.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Connections that send a text and then next to nothing.
pub struct Crowd {
    child: Child,
    stdin: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Crowd {
    /// Begins one: `command` runs `session crowd PLACE COUNT`, and gets the text.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn begin(command: &mut Command, text: &str) -> Self {
        let child = command.arg(text).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("its programs were found before");
        let stdin = child.stdin.take();
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, stdin, said }
    }

    fn number(&mut self, word: &str) -> usize {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it is text");
        let number = line.trim().strip_prefix(word).and_then(|text| text.trim().parse().ok());
        number.unwrap_or_else(|| panic!("{word} N is wanted: {line}"))
    }

    /// Waits until all have connected; how many did.
    ///
    /// # Panics
    /// When it ends before.
    pub fn has_come(&mut self) -> usize {
        self.number("open")
    }

    /// Ends it; how many connections were left.
    ///
    /// # Panics
    /// When it ended before.
    pub fn end(mut self) -> usize {
        drop(self.stdin.take());
        let left = self.number("left");
        let _ = self.child.wait();
        left
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
