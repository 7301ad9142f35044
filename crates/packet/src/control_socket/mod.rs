//! The control socket's protocol: lines with commands in, replies out, no socket.
//!
//! Source: ControlSocket 1.3 of Click (its manual page and element). Bytes go in as they come
//! ([`Session::take`]); replies come out one at a time ([`Session::reply`]), so that who writes them to a
//! slow client holds one of them and no more. However the bytes were cut into pieces, the replies are the
//! same. Differs: no LLRPC (binary calls into elements) and no proxies; lines, data and replies have a
//! greatest length; what is no UTF-8 is refused; lines after READUNTIL and WRITEUNTIL reach the handler
//! with a plain newline each, whatever they ended with; a last line without an end counts as one.

mod input;
mod listen;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use crate::handler::{HandlerError, Handlers};
use input::Input;

pub use listen::Listen;

/// What a session may do, and how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionOptions {
    /// Refuses to write handlers.
    pub read_only: bool,
    /// Longest line of a command, or of a text that lines end, in bytes.
    pub longest_line: usize,
    /// Longest text given to a handler, in bytes.
    pub longest_data: usize,
    /// Longest text of a handler, in bytes.
    pub longest_reply: usize,
}

impl Default for SessionOptions {
    /// Room for a table of a million routes each way.
    fn default() -> Self {
        Self {
            read_only: false,
            longest_line: 64 << 10,
            longest_data: 64 << 20,
            longest_reply: 64 << 20,
        }
    }
}

/// The three digits that replies begin with.
#[derive(Clone, Copy)]
enum Code {
    Ok = 200,
    OkWithWarnings = 220,
    Syntax = 500,
    Unimplemented = 501,
    NoElement = 510,
    NoHandler = 511,
    HandlerFailed = 520,
    TooBig = 521,
    Permission = 530,
    NoRouter = 540,
    Unspecified = 590,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Read,
    Write,
    CheckRead,
    CheckWrite,
}

/// A command that calls a handler, or would.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Call {
    verb: Verb,
    handler: String,
}

/// What comes next from the client.
#[derive(Debug)]
enum State {
    /// Nothing was sent yet.
    Greeting,
    /// A command.
    Command,
    /// So many bytes more for a handler.
    Data { call: Call, data: Vec<u8>, left: usize },
    /// Lines for a handler, until one that is `end`; `lost` where they are too many already.
    Lines { call: Call, data: Vec<u8>, end: Vec<u8>, lost: bool },
    /// So many bytes that were too many.
    Skip { left: u64 },
    /// Nothing; all was said.
    Closed,
}

/// One client's session.
#[derive(Debug)]
pub struct Session {
    options: SessionOptions,
    input: Input,
    state: State,
}

impl Session {
    /// A new one. Its first reply is the greeting.
    pub fn new(options: SessionOptions) -> Self {
        Self { options, input: Input::default(), state: State::Greeting }
    }

    /// Takes bytes of the client. Ask for replies until there is none before giving more.
    pub fn take(&mut self, bytes: &[u8]) {
        if !self.is_closed() {
            self.input.push(bytes);
        }
    }

    /// The client sends no more.
    pub fn end(&mut self) {
        self.input.end();
    }

    /// All was said; the connection is to be closed once that was sent.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Carries out the next command that is there as a whole, and gives the reply. `None`: more has to
    /// be taken, or the session is closed. Without a router there are no handlers.
    pub fn reply(&mut self, handlers: Option<&Handlers>) -> Option<Vec<u8>> {
        loop {
            match std::mem::replace(&mut self.state, State::Command) {
                State::Greeting => return Some(b"Click::ControlSocket/1.3\r\n".to_vec()),
                State::Command => match self.input.line(self.options.longest_line) {
                    None if self.input.is_over() => self.state = State::Closed,
                    None => return None,
                    Some(Err(input::TooLong)) => return Some(self.too_long(Code::Syntax)),
                    Some(Ok(line)) => {
                        if let Some(reply) = self.command(&line, handlers) {
                            return Some(reply);
                        }
                    }
                },
                State::Data { call, mut data, left } => {
                    let left = left - self.input.bytes(left, |bytes| data.extend(bytes));
                    if left == 0 {
                        return Some(self.call(&call, data, handlers));
                    }
                    if self.input.is_over() {
                        self.state = State::Closed;
                        return Some(not_enough());
                    }
                    self.state = State::Data { call, data, left };
                    return None;
                }
                State::Lines { call, data, end, lost } => {
                    match self.lines(call, data, end, lost, handlers) {
                        Lines::Reply(reply) => return Some(reply),
                        Lines::More if self.input.is_over() => {
                            self.state = State::Closed;
                            return Some(not_enough());
                        }
                        Lines::More => return None,
                        Lines::Lost => {}
                    }
                }
                State::Skip { left } => {
                    let now = usize::try_from(left).unwrap_or(usize::MAX);
                    let left = left - self.input.bytes(now, |_| ()) as u64;
                    if left > 0 {
                        let over = self.input.is_over();
                        self.state = if over { State::Closed } else { State::Skip { left } };
                        return None;
                    }
                }
                State::Closed => {
                    self.state = State::Closed;
                    return None;
                }
            }
        }
    }

    /// Lines for a handler, as far as they are there.
    fn lines(
        &mut self,
        call: Call,
        mut data: Vec<u8>,
        end: Vec<u8>,
        lost: bool,
        handlers: Option<&Handlers>,
    ) -> Lines {
        while let Some(line) = self.input.line(self.options.longest_line) {
            let fits = match &line {
                Ok(line) if line.trim_ascii_end() == end => {
                    if lost {
                        return Lines::Lost;
                    }
                    return Lines::Reply(self.call(&call, data, handlers));
                }
                Ok(line) => data.len() + line.len() < self.options.longest_data,
                Err(input::TooLong) => false,
            };
            match line {
                _ if lost => {}
                Ok(line) if fits => {
                    data.extend(line);
                    data.push(b'\n');
                }
                line => {
                    self.state = State::Lines { call, data: Vec::new(), end, lost: true };
                    return Lines::Reply(match line {
                        Ok(_) => self.too_big(),
                        Err(input::TooLong) => self.too_long(Code::TooBig),
                    });
                }
            }
        }
        self.state = State::Lines { call, data, end, lost };
        Lines::More
    }

    fn too_big(&self) -> Vec<u8> {
        let most = self.options.longest_data;
        message(Code::TooBig, &format!("Data too big: at most {most} bytes"))
    }

    fn too_long(&self, code: Code) -> Vec<u8> {
        let most = self.options.longest_line;
        message(code, &format!("Line too long: at most {most} bytes"))
    }

    /// Carries out a line, unless it has to wait for what the line announces.
    fn command(&mut self, line: &[u8], handlers: Option<&Handlers>) -> Option<Vec<u8>> {
        let syntax = |words| Some(message(Code::Syntax, words));
        let Ok(line) = std::str::from_utf8(line) else {
            return syntax("Command line is no UTF-8 text");
        };
        let (word, rest) = first_word(line);
        let (handler, parameter) = first_word(rest);
        let command = word.to_ascii_uppercase();
        let verb = match command.as_str() {
            "" => return None,
            "READ" | "GET" | "READDATA" | "READUNTIL" => Verb::Read,
            "WRITE" | "SET" | "WRITEDATA" | "SETDATA" | "WRITEUNTIL" => Verb::Write,
            "CHECKREAD" => Verb::CheckRead,
            "CHECKWRITE" => Verb::CheckWrite,
            "HELP" => return Some(message(Code::Ok, HELP)),
            "QUIT" | "CLOSE" => {
                self.state = State::Closed;
                return Some(message(Code::Ok, "Goodbye!"));
            }
            _ => {
                let words = format!("Command '{command}' unimplemented");
                return Some(message(Code::Unimplemented, &words));
            }
        };
        let (one, none_more) = first_word(parameter);
        let fits = match command.as_str() {
            "READDATA" | "WRITEDATA" | "SETDATA" => !one.is_empty() && none_more.is_empty(),
            "READUNTIL" | "WRITEUNTIL" => none_more.is_empty(),
            "CHECKREAD" | "CHECKWRITE" => one.is_empty(),
            _ => true,
        };
        if handler.is_empty() || !fits {
            return syntax("Wrong number of arguments");
        }
        let call = Call { verb, handler: handler.to_owned() };
        let data = Vec::new();
        match command.as_str() {
            "READDATA" | "WRITEDATA" | "SETDATA" => {
                let digits = one.bytes().all(|byte| byte.is_ascii_digit());
                let Some(length) = one.parse::<u64>().ok().filter(|_| digits) else {
                    return syntax("Bad length");
                };
                match usize::try_from(length) {
                    Ok(left) if left <= self.options.longest_data => {
                        self.state = State::Data { call, data, left };
                        None
                    }
                    _ => {
                        self.state = State::Skip { left: length };
                        Some(self.too_big())
                    }
                }
            }
            "READUNTIL" | "WRITEUNTIL" => {
                let end = one.as_bytes().to_vec();
                self.state = State::Lines { call, data, end, lost: false };
                None
            }
            _ => Some(self.call(&call, parameter.as_bytes().to_vec(), handlers)),
        }
    }

    /// Calls a handler, and puts in words what comes of it.
    fn call(&self, call: &Call, data: Vec<u8>, handlers: Option<&Handlers>) -> Vec<u8> {
        let Some(handlers) = handlers else {
            return message(Code::NoRouter, "No router installed");
        };
        let name = call.handler.as_str();
        let found = match handlers.find(name) {
            Ok(found) => found,
            Err(error) => return refused(call.verb, name, &error),
        };
        let denied = || {
            let words = format!("Permission denied for write handler '{name}'");
            message(Code::Permission, &words)
        };
        let not = |what| message(Code::NoHandler, &format!("Handler '{name}' not {what}"));
        match call.verb {
            Verb::CheckRead if !found.is_readable() => return not("readable"),
            Verb::CheckWrite if !found.is_writable() => return not("writable"),
            Verb::CheckRead => return fine(call.verb, name),
            Verb::CheckWrite | Verb::Write if found.is_writable() && self.options.read_only => {
                return denied();
            }
            Verb::CheckWrite => return fine(call.verb, name),
            Verb::Read | Verb::Write => {}
        }
        let Ok(data) = String::from_utf8(data) else {
            return message(Code::Syntax, "Data is no UTF-8 text");
        };
        if call.verb == Verb::Write {
            return match handlers.write(name, &data) {
                Ok(warnings) if warnings.is_empty() => fine(call.verb, name),
                Ok(warnings) => {
                    let summary = format!("Write handler '{name}' OK with warnings");
                    messages(Code::OkWithWarnings, &summary, &warnings.join("\n"))
                }
                Err(error) => refused(call.verb, name, &error),
            };
        }
        match handlers.read(name, &data) {
            Ok(text) if text.len() > self.options.longest_reply => {
                let most = self.options.longest_reply;
                let words = format!("Data too big: {} bytes, at most {most}", text.len());
                message(Code::TooBig, &words)
            }
            Ok(text) => {
                let mut reply = fine(call.verb, name);
                reply.extend(format!("DATA {}\r\n", text.len()).bytes());
                reply.extend(text.bytes());
                reply
            }
            Err(error) => refused(call.verb, name, &error),
        }
    }
}

/// What became of lines for a handler.
enum Lines {
    /// More of them have to come.
    More,
    /// It was told before that they were too many; here they end.
    Lost,
    Reply(Vec<u8>),
}

const HELP: &str = "Commands supported:
READ handler [arg...]        call a read handler, return its text
READDATA handler n           the same, the argument is the next n bytes
READUNTIL handler [end]      the same, the argument is the lines before `end` or a blank one
WRITE handler [arg...]       call a write handler
WRITEDATA handler n          the same, the argument is the next n bytes
WRITEUNTIL handler [end]     the same, the argument is the lines before `end` or a blank one
CHECKREAD handler            is there such a read handler?
CHECKWRITE handler           is there such a write handler?
HELP                         this list
QUIT                         close the connection
";

/// A line's first word and what follows, without white space around.
fn first_word(text: &str) -> (&str, &str) {
    let blank = |c: char| c.is_ascii_whitespace() || c == '\x0b';
    let text = text.trim_matches(blank);
    let (word, rest) = text.split_once(blank).unwrap_or((text, ""));
    (word, rest.trim_start_matches(blank))
}

fn verb_name(verb: Verb) -> &'static str {
    match verb {
        Verb::Read | Verb::CheckRead => "Read",
        Verb::Write | Verb::CheckWrite => "Write",
    }
}

fn fine(verb: Verb, name: &str) -> Vec<u8> {
    message(Code::Ok, &format!("{} handler '{name}' OK", verb_name(verb)))
}

fn not_enough() -> Vec<u8> {
    message(Code::Syntax, "Not enough data")
}

fn refused(verb: Verb, name: &str, error: &HandlerError) -> Vec<u8> {
    let code = match error {
        HandlerError::NoElement(_) => Code::NoElement,
        HandlerError::NoHandler(_) => Code::NoHandler,
        HandlerError::WriteOnly(_) | HandlerError::ReadOnly(_) => Code::Permission,
        HandlerError::NoParameter(_) | HandlerError::Failed(_) => {
            let code = if verb == Verb::Write { Code::HandlerFailed } else { Code::Unspecified };
            let summary = format!("{} handler '{name}' error", verb_name(verb));
            return messages(code, &summary, &error.to_string());
        }
    };
    message(code, &error.to_string())
}

/// A summary and the words of a handler below it, if it has any.
fn messages(code: Code, summary: &str, words: &str) -> Vec<u8> {
    match words.trim_ascii_end() {
        "" => message(code, summary),
        words => message(code, &format!("{summary}:\n{words}")),
    }
}

/// One reply of a line or several.
fn message(code: Code, text: &str) -> Vec<u8> {
    let mut reply = Vec::with_capacity(text.len() + 8);
    let mut lines = text.split('\n').peekable();
    while let Some(line) = lines.next() {
        let mark = if lines.peek().is_some() { '-' } else { ' ' };
        let line = line.trim_end_matches('\r');
        reply.extend(format!("{}{mark}{line}\r\n", code as u16).bytes());
    }
    reply
}
