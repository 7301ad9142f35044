//! The control socket's protocol: lines with commands in, replies out, no socket.
//!
//! Source: ControlSocket 1.3 of Click (its manual page and element). Bytes go in as they come
//! ([`Session::take`]); replies come out one at a time ([`Session::reply`]), so that who writes them to a
//! slow client holds one of them and no more. However the bytes were cut into pieces, the replies are the
//! same. Behind a proxy (`PROXY` of the element) a name is that of a handler of the proxy, dots included. Differs: of
//! LLRPCs (binary calls into elements) there are those of `llrpc.rs`; lines, data and replies have a greatest length, and
//! all sessions together a greatest memory; what is no UTF-8 is refused; lines after READUNTIL and WRITEUNTIL reach the
//! handler with a plain newline each, whatever they ended with; a last line without an end counts as one. The first line
//! may be `AUTH TOKEN`, which gives write access; one that begins like HTTP or TLS ends the session, so that no page in a
//! browser can speak to a router of its reader.

mod client;
mod input;
mod listen;
mod llrpc;
mod request;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use super::{Handler, HandlerError, Handlers};
use client::Held;
use input::Input;
use llrpc::Llrpc;

pub use client::{Access, Client, Memory, Token};
pub use listen::Listen;
pub use request::{Retries, SocketRequest};

/// What a session may do, and how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionOptions {
    /// Refuses write handlers, whoever sends them.
    pub read_only: bool,
    /// Longest line of a command, or of a text that lines end, in bytes.
    pub longest_line: usize,
    /// Longest text given to a handler, in bytes.
    pub longest_data: usize,
    /// Longest text of a handler, in bytes.
    pub longest_reply: usize,
}

impl Default for SessionOptions {
    /// Room for a table of a million routes in each direction.
    fn default() -> Self {
        Self {
            read_only: false,
            longest_line: 64 << 10,
            longest_data: 64 << 20,
            longest_reply: 64 << 20,
        }
    }
}

/// Bytes of an error of a handler, at most.
const LONGEST_WORDS: usize = 64 << 10;

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
    LlrpcFailed = 522,
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
    Llrpc,
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
    Data { call: Call, data: Text, left: usize },
    /// Lines for a handler, until one that is `end`; without data where they are refused already.
    Lines { call: Call, data: Option<Text>, end: Vec<u8> },
    /// So many bytes that were too many.
    Skip { left: u64 },
    /// Nothing; all was sent.
    Closed,
}

/// Bytes for a handler, as far as they came.
#[derive(Debug)]
struct Text {
    bytes: Vec<u8>,
    held: Held,
}

impl Text {
    /// More of them; `false` where the sessions hold too much.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let fits = self.held.grow(bytes.len());
        if fits {
            self.bytes.extend(bytes);
        }
        fits
    }
}

/// One client's session.
#[derive(Debug)]
pub struct Session {
    options: SessionOptions,
    client: Client,
    /// Element whose handlers stand for all others.
    proxy: Option<String>,
    input: Input,
    state: State,
    /// No line came yet.
    first: bool,
    /// A token was wrong.
    refused: bool,
    /// Rest of the last reply, until the next one is requested.
    replied: Held,
}

impl Session {
    /// A new one, of a client that may do everything. Its first reply is the greeting.
    pub fn new(options: SessionOptions) -> Self {
        Self::of(options, Client::default())
    }

    /// A new one of this client.
    pub fn of(options: SessionOptions, mut client: Client) -> Self {
        if options.read_only {
            (client.access, client.token) = (Access::Read, None);
        }
        let replied = client.memory.hold();
        let (input, state, proxy) = (Input::default(), State::Greeting, None);
        Self { options, client, proxy, input, state, first: true, refused: false, replied }
    }

    /// The session, with the handlers of an element in place of all others.
    #[must_use]
    pub fn through(self, proxy: Option<String>) -> Self {
        Self { proxy, ..self }
    }

    /// Takes bytes of the client. Take replies until there is none before giving more.
    pub fn take(&mut self, bytes: &[u8]) {
        if !self.is_closed() {
            self.input.push(bytes);
        }
    }

    /// The client sends no more.
    pub fn end(&mut self) {
        self.input.end();
    }

    /// All was sent; the connection is to be closed once that was sent.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// A wrong token was given: whoever sends the reply takes his time.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// What the client may do by now.
    pub fn access(&self) -> Access {
        self.client.access
    }

    /// Carries out the next command that is there as a whole, and gives the reply; that before was sent. `None`: more
    /// has to be taken, or the session is closed. Without a router there are no handlers.
    pub fn reply(&mut self, handlers: Option<&Handlers>) -> Option<Vec<u8>> {
        self.replied = self.client.memory.hold();
        loop {
            match std::mem::replace(&mut self.state, State::Command) {
                State::Greeting => return Some(b"Click::ControlSocket/1.3\r\n".to_vec()),
                State::Command => match self.input.line(self.options.longest_line) {
                    None if self.input.is_over() => self.state = State::Closed,
                    None => return None,
                    Some(Err(input::TooLong)) => return Some(self.too_long(Code::Syntax)),
                    Some(Ok(line)) => {
                        let first = std::mem::take(&mut self.first);
                        if let Some(reply) = self.begin(&line, first) {
                            return Some(reply);
                        }
                        if self.is_closed() {
                            return None;
                        }
                        if let Some(reply) = self.command(&line, handlers) {
                            return Some(reply);
                        }
                    }
                },
                State::Data { call, mut data, left } => {
                    let mut fits = true;
                    let left = left - self.input.bytes(left, |bytes| fits = data.push(bytes));
                    if !fits {
                        self.state = State::Skip { left: left as u64 };
                        return Some(no_memory());
                    }
                    if left == 0 {
                        return Some(self.call(&call, data.bytes, handlers));
                    }
                    if self.input.is_over() {
                        self.state = State::Closed;
                        return Some(not_enough());
                    }
                    self.state = State::Data { call, data, left };
                    return None;
                }
                State::Lines { call, data, end } => match self.lines(call, data, end, handlers) {
                    Lines::Reply(reply) => return Some(reply),
                    Lines::More if self.input.is_over() => {
                        self.state = State::Closed;
                        return Some(not_enough());
                    }
                    Lines::More => return None,
                    Lines::Lost => {}
                },
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
        mut data: Option<Text>,
        end: Vec<u8>,
        handlers: Option<&Handlers>,
    ) -> Lines {
        while let Some(line) = self.input.line(self.options.longest_line) {
            let is_end = line.as_ref().is_ok_and(|line| line.trim_ascii_end() == end);
            let refused = match (&mut data, line) {
                (None, _) if is_end => return Lines::Lost,
                (None, _) => continue,
                (Some(text), _) if is_end => {
                    let bytes = std::mem::take(&mut text.bytes);
                    return Lines::Reply(self.call(&call, bytes, handlers));
                }
                (Some(_), Err(input::TooLong)) => self.too_long(Code::TooBig),
                (Some(text), Ok(line)) => {
                    if text.bytes.len() + line.len() >= self.options.longest_data {
                        self.too_big()
                    } else if text.push(&line) && text.push(b"\n") {
                        continue;
                    } else {
                        no_memory()
                    }
                }
            };
            self.state = State::Lines { call, data: None, end };
            return Lines::Reply(refused);
        }
        self.state = State::Lines { call, data, end };
        Lines::More
    }

    /// What the first line states of the session, beside commands.
    fn begin(&mut self, line: &[u8], first: bool) -> Option<Vec<u8>> {
        if first && (is_http(line) || is_tls(line)) {
            self.state = State::Closed;
            return None;
        }
        let given = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let words: Vec<&[u8]> = given.take(3).collect();
        match words[..] {
            [verb, ..] if !verb.eq_ignore_ascii_case(b"AUTH") => None,
            [_, given] if first => match &self.client.token {
                Some(token) if token.is(given) => {
                    self.client.access = Access::Write;
                    Some(message(Code::Ok, "Write access"))
                }
                token => {
                    let words = if token.is_some() { "Wrong token" } else { "No token is set" };
                    (self.state, self.refused) = (State::Closed, true);
                    Some(message(Code::Permission, words))
                }
            },
            [_, ..] => Some(message(Code::Syntax, "AUTH TOKEN is the first line of a session")),
            [] => None,
        }
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
            "LLRPC" => Verb::Llrpc,
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
            "READUNTIL" | "WRITEUNTIL" | "LLRPC" => none_more.is_empty(),
            "CHECKREAD" | "CHECKWRITE" => one.is_empty(),
            _ => true,
        };
        if handler.is_empty() || !fits {
            return syntax("Wrong number of arguments");
        }
        let call = Call { verb, handler: handler.to_owned() };
        let text = || Text { bytes: Vec::new(), held: self.client.memory.hold() };
        // Nothing is kept of what is refused in any case.
        let writes = matches!(verb, Verb::Write | Verb::Llrpc);
        let refused = writes && self.client.access == Access::Read;
        match command.as_str() {
            "READDATA" | "WRITEDATA" | "SETDATA" | "LLRPC" => {
                let one = if one.is_empty() { "0" } else { one };
                let digits = one.bytes().all(|byte| byte.is_ascii_digit());
                let Some(length) = one.parse::<u64>().ok().filter(|_| digits) else {
                    return syntax("Bad length");
                };
                match usize::try_from(length) {
                    Ok(left) if left <= self.options.longest_data => {
                        if refused {
                            self.state = State::Skip { left: length };
                            return Some(self.call(&call, Vec::new(), handlers));
                        }
                        self.state = State::Data { call, data: text(), left };
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
                if refused {
                    let reply = self.call(&call, Vec::new(), handlers);
                    self.state = State::Lines { call, data: None, end };
                    return Some(reply);
                }
                self.state = State::Lines { call, data: Some(text()), end };
                None
            }
            _ => Some(self.call(&call, parameter.as_bytes().to_vec(), handlers)),
        }
    }

    /// Calls a handler, and puts in words what comes of it.
    fn call(&mut self, call: &Call, data: Vec<u8>, handlers: Option<&Handlers>) -> Vec<u8> {
        let Some(handlers) = handlers else {
            return message(Code::NoRouter, "No router installed");
        };
        let name = call.handler.as_str();
        if call.verb == Verb::Llrpc {
            return self.llrpc(name, &data, handlers);
        }
        let (found, own) = match self.found(call.verb, name, handlers) {
            Ok(found) => found,
            Err(reply) => return reply,
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
            Verb::CheckWrite | Verb::Write
                if found.is_writable() && self.client.access == Access::Read =>
            {
                return denied();
            }
            Verb::CheckWrite => return fine(call.verb, name),
            Verb::Read | Verb::Write | Verb::Llrpc => {}
        }
        let Ok(data) = String::from_utf8(data) else {
            return message(Code::Syntax, "Data is no UTF-8 text");
        };
        if call.verb == Verb::Write {
            return match found.call_write_of(own, name, &data, &self.client.policy) {
                Ok(warnings) if warnings.is_empty() => fine(call.verb, name),
                Ok(warnings) => {
                    let summary = format!("Write handler '{name}' OK with warnings");
                    messages(Code::OkWithWarnings, &summary, &warnings.join("\n"))
                }
                Err(error) => refused(call.verb, name, &error),
            };
        }
        match found.call_read_of(own, name, &data) {
            Ok(text) if text.len() > self.options.longest_reply => {
                let most = self.options.longest_reply;
                let words = format!("Data too big: {} bytes, at most {most}", text.len());
                message(Code::TooBig, &words)
            }
            Ok(text) if !self.replied.grow(text.len()) => no_memory(),
            Ok(text) => {
                let mut reply = fine(call.verb, name);
                reply.extend(format!("DATA {}\r\n", text.len()).bytes());
                reply.extend(text.bytes());
                reply
            }
            Err(error) => refused(call.verb, name, &error),
        }
    }

    /// The handler that a name means to this client, and its name within its element; a reply where there is none.
    fn found<'a>(
        &self,
        verb: Verb,
        name: &'a str,
        handlers: &'a Handlers,
    ) -> Result<(&'a Handler, &'a str), Vec<u8>> {
        let Some(proxy) = &self.proxy else {
            let found = handlers.find(name).map_err(|error| refused(verb, name, &error));
            return found.map(|found| (found, super::own_name(name)));
        };
        let own = match name.split_once('.') {
            Some(("" | "0", global)) => global,
            _ => name,
        };
        let words = || message(Code::NoHandler, &format!("No proxied handler named '{name}'"));
        handlers.find_of(proxy, own).map(|found| (found, own)).ok_or_else(words)
    }

    /// Calls an LLRPC, and puts in words what comes of it.
    fn llrpc(&self, name: &str, data: &[u8], handlers: &Handlers) -> Vec<u8> {
        let Some((element, llrpc)) = Llrpc::read(name) else {
            return message(Code::Syntax, &format!("Syntax error in LLRPC name '{name}'"));
        };
        if let Err(reply) = self.found(Verb::Llrpc, &format!("{element}.name"), handlers) {
            return reply;
        }
        if !llrpc.is_remote() {
            let words = format!("Cannot call LLRPC '{name}' remotely");
            return message(Code::Unimplemented, &words);
        }
        if self.client.access == Access::Read {
            return message(Code::Permission, &format!("Permission denied for '{name}'"));
        }
        let size = llrpc.size();
        if llrpc.takes_data() && data.len() != size {
            let words = format!("LLRPC '{name}' requires {size} bytes input data");
            return message(Code::LlrpcFailed, &words);
        }
        let whole = |own: &str| format!("{element}.{own}");
        let read = |own: &str| handlers.read(&whole(own), "").ok();
        let policy = &self.client.policy;
        let write =
            |own: &str, text: &str| handlers.write_within(&whole(own), text, policy).ok().map(drop);
        // An element that stands for others has none of theirs.
        let result = if self.proxy.is_none() { llrpc.call(data, read, write) } else { None };
        let Some(result) = result else {
            let words = format!("LLRPC '{name}' error: Invalid argument");
            return message(Code::LlrpcFailed, &words);
        };
        let mut reply = message(Code::Ok, &format!("LLRPC '{name}' OK"));
        reply.extend(format!("DATA {}\r\n", result.len()).bytes());
        reply.extend(result);
        reply
    }
}

/// What became of lines for a handler.
enum Lines {
    /// More of them have to come.
    More,
    /// They were refused before; here they end.
    Lost,
    Reply(Vec<u8>),
}

const HELP: &str = "Commands supported:
AUTH token                   as the first line: write access
READ handler [arg...]        call a read handler, return its text
READDATA handler n           the same, the argument is the next n bytes
READUNTIL handler [end]      the same, the argument is the lines before `end` or a blank one
WRITE handler [arg...]       call a write handler
WRITEDATA handler n          the same, the argument is the next n bytes
WRITEUNTIL handler [end]     the same, the argument is the lines before `end` or a blank one
CHECKREAD handler            is there such a read handler?
CHECKWRITE handler           is there such a write handler?
LLRPC element#number [n]     call an LLRPC with the next n bytes, return its data
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
        Verb::Read | Verb::CheckRead | Verb::Llrpc => "Read",
        Verb::Write | Verb::CheckWrite => "Write",
    }
}

fn fine(verb: Verb, name: &str) -> Vec<u8> {
    message(Code::Ok, &format!("{} handler '{name}' OK", verb_name(verb)))
}

fn no_memory() -> Vec<u8> {
    message(Code::TooBig, "Data too big for now: other sessions hold all memory there is for them")
}

/// Whether a line is the first of an HTTP request. `GET` is a command as well, whose handlers begin with no slash.
fn is_http(line: &[u8]) -> bool {
    const METHODS: [&[u8]; 9] =
        [b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"PATCH", b"CONNECT", b"TRACE", b"PRI"];
    let mut words = line.split(u8::is_ascii_whitespace);
    let (verb, target) = (words.next().unwrap_or_default(), words.next());
    let named = target.is_some() && METHODS.iter().any(|method| verb.eq_ignore_ascii_case(method));
    let absolute =
        |target: &[u8]| target.starts_with(b"/") || target.windows(3).any(|w| w == b"://");
    let got = verb.eq_ignore_ascii_case(b"GET") && target.is_some_and(absolute);
    named || got || words.next_back().is_some_and(|last| last.starts_with(b"HTTP/"))
}

/// Whether a line is the first of a TLS connection, whose tickets another server may have filled with commands: no text
/// begins with the type of a handshake record.
fn is_tls(line: &[u8]) -> bool {
    line.first() == Some(&0x16)
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

/// A summary and the words of a handler below it, if it has any, as far as anybody reads them: a handler may repeat what
/// it was given.
fn messages(code: Code, summary: &str, words: &str) -> Vec<u8> {
    match words[..words.floor_char_boundary(LONGEST_WORDS)].trim_ascii_end() {
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
