//! Graphs in Click's language, for tests: one for the line of namespaces, and a client of the control socket.

use std::io::{BufRead, BufReader, Read, Write};

use crate::root;

/// The router of two ports from the examples, with the addresses of the line.
///
/// # Panics
/// When it cannot be read.
pub fn router_of_two_ports() -> String {
    let file = root().join("examples/graphs/ip-router-2.click");
    let text = std::fs::read_to_string(file).expect("the example is there");
    let text = text.replace("203.0.113.254", "10.0.2.2");
    text.replace("198.51.100.", "10.0.1.").replace("203.0.113.", "10.0.2.")
}

/// The IPv6 router of two ports in `examples/graphs`, with the addresses of a [`crate::netns::Line`].
///
/// # Panics
/// When it cannot be read.
pub fn ip6_router_of_two_ports() -> String {
    let file = root().join("examples/graphs/ip6-router-2.click");
    let text = std::fs::read_to_string(file).expect("the example is there");
    text.replace("2001:db8:1::", "fd01::").replace("2001:db8:2::", "fd02::")
}

/// A client of the control socket.
#[derive(Debug)]
pub struct Telnet<S>(pub BufReader<S>);

impl<S: Read + Write> Telnet<S> {
    /// The next line of an answer.
    ///
    /// # Panics
    /// When none comes.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it answers in text");
        line.trim_end_matches("\r\n").to_owned()
    }

    /// Value of a read handler; checks the lines before it.
    ///
    /// # Panics
    /// When it is refused.
    pub fn read(&mut self, handler: &str) -> String {
        write!(self.0.get_mut(), "read {handler}\r\n").expect("it is there");
        assert_eq!(self.line(), format!("200 Read handler '{handler}' OK"));
        let length = self.line();
        let length = length.strip_prefix("DATA ").expect("a length").parse().expect("a number");
        let mut data = vec![0; length];
        self.0.read_exact(&mut data).expect("as many bytes as were announced");
        String::from_utf8(data).expect("text")
    }

    /// Writes one line to a handler.
    ///
    /// # Panics
    /// When it is refused.
    pub fn write(&mut self, handler: &str, text: &str) {
        write!(self.0.get_mut(), "write {handler} {text}\r\n").expect("it is there");
        assert_eq!(self.line(), format!("200 Write handler '{handler}' OK"));
    }

    /// Writes a text of any length to a handler.
    ///
    /// # Panics
    /// When it is refused.
    pub fn write_data(&mut self, handler: &str, text: &str) {
        write!(self.0.get_mut(), "writedata {handler} {}\r\n{text}", text.len()).expect("open");
        assert_eq!(self.line(), format!("200 Write handler '{handler}' OK"));
    }
}
