//! The instructions of a script, and how they are carried out, one after the other until the script waits or ends.
//!
//! Source: the manual page of Click's `Script`. The place in the program, the variables and the result belong to the
//! element; nothing is locked while a handler is called, so that it may use the script's own.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::functions;
use super::text::{Values, expand, first_word, plain, words};
use crate::element::click::only::console;
use crate::element::support::caller::Caller;
use crate::graph::Ending;
use crate::handler::HandlerError;
use crate::language::Value;

/// Jumps, and runs of scripts, in one go after which a script is ended, as one that never waits.
const MOST_JUMPS: usize = 1_000_000;
/// Runs within runs of a script, at most.
const MOST_DEPTH: usize = 64;
/// Bytes of a variable, at most.
const MOST_BYTES: usize = 1 << 20;

thread_local! {
    static GOING: Going = const {
        Going { runs: Cell::new(0), jumps: Cell::new(0), most: Cell::new(MOST_JUMPS) }
    };
}

/// What scripts do in this thread. Those that run each other are one go: their jumps multiply.
struct Going {
    /// Runs in progress, each within the one before.
    runs: Cell<usize>,
    /// Jumps and runs since the outermost began.
    jumps: Cell<usize>,
    /// How many there may be.
    most: Cell<usize>,
}

/// A run in progress; it ends where this is dropped.
struct InProgress;

impl InProgress {
    fn begin() -> Self {
        GOING.with(|going| {
            if going.runs.get() == 0 {
                going.jumps.set(0);
            }
            going.runs.set(going.runs.get() + 1);
        });
        Self
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        GOING.with(|going| going.runs.set(going.runs.get() - 1));
    }
}

/// Counts a jump; whether there may be one more.
fn may_jump() -> bool {
    GOING.with(|going| {
        going.jumps.set(going.jumps.get() + 1);
        going.jumps.get() <= going.most.get()
    })
}

/// Lets scripts of this thread jump so many times in one go.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn bound_jumps(most: usize) {
    GOING.with(|going| going.most.set(most));
}

/// What starts and drives a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It starts by itself.
    Active,
    /// It runs when its handler `run` is called.
    Passive,
    /// It starts by itself, and decides what the end of the router is.
    Driver,
    /// It runs for each packet.
    Packet,
    /// It runs when a signal comes: whoever receives signals calls its handler `run`.
    Signal,
}

/// One instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Print { text: String, newline: bool },
    Read { name: String, quiet: bool },
    Write { text: String, quiet: bool },
    Set { name: String, value: String },
    Init { name: String, value: String },
    Save { handler: String, file: String, append: bool },
    Label,
    Goto { label: String, condition: String },
    Restart,
    Return { value: String },
    Exit,
    End,
    Error { text: String },
    Stop,
    Pause { count: String },
    Wait { time: String },
}

/// A program.
#[derive(Clone, Default, Debug)]
pub(crate) struct Program {
    steps: Vec<Step>,
    labels: Vec<(String, usize)>,
}

impl Program {
    /// Adds the instruction of one argument, or returns what is wrong with it.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        let (word, rest) = first_word(text);
        let pair = || {
            let (name, value) = first_word(rest);
            match name {
                "" => Err(format!("`{word}` wants a name")),
                name => Ok((name.to_owned(), value.to_owned())),
            }
        };
        let whole = || rest.to_owned();
        let step = match word {
            "print" => Step::Print { text: whole(), newline: true },
            "printn" | "printnq" => Step::Print { text: whole(), newline: false },
            "printq" => Step::Print { text: whole(), newline: true },
            "read" | "readq" if !rest.is_empty() => {
                Step::Read { name: whole(), quiet: word == "readq" }
            }
            "write" | "writeq" if !rest.is_empty() => {
                Step::Write { text: whole(), quiet: word == "writeq" }
            }
            "set" | "setq" => pair().map(|(name, value)| Step::Set { name, value })?,
            "init" | "initq" => pair().map(|(name, value)| Step::Init { name, value })?,
            "export" | "exportq" => pair().map(|(name, value)| Step::Set { name, value })?,
            "save" | "append" => {
                let (handler, file) = pair()?;
                Step::Save { handler, file, append: word == "append" }
            }
            "label" => {
                self.labels.push((pair()?.0, self.steps.len()));
                Step::Label
            }
            "goto" => {
                let (label, condition) = pair()?;
                Step::Goto { label, condition }
            }
            "loop" => Step::Restart,
            "return" | "returnq" => Step::Return { value: whole() },
            "exit" => Step::Exit,
            "end" => Step::End,
            "error" | "errorq" => Step::Error { text: whole() },
            "stop" => Step::Stop,
            "wait" if !rest.is_empty() => Step::Wait { time: whole() },
            "wait_time" | "wait_for" => Step::Wait { time: whole() },
            "wait" | "pause" | "wait_step" | "wait_stop" => Step::Pause { count: whole() },
            "" => return Ok(()),
            _ => return Err(format!("`{word}` is no instruction")),
        };
        self.steps.push(step);
        Ok(())
    }

    /// What a script does that has no instructions and drives the router: it waits for the end.
    pub(crate) fn or_pause(mut self) -> Self {
        if self.steps.is_empty() {
            self.steps.push(Step::Pause { count: String::new() });
        }
        self
    }

    fn place(&self, label: &str) -> Option<Jump> {
        let known = self.labels.iter().find(|(known, _)| known == label);
        match (known, label) {
            (Some((_, at)), _) => Some(Jump::To(*at)),
            (None, "begin" | "loop") => Some(Jump::To(0)),
            (None, "end") => Some(Jump::To(self.steps.len())),
            (None, "exit") => Some(Jump::Exit),
            (None, "error") => Some(Jump::Error),
            (None, "stop") => Some(Jump::Stop),
            _ => None,
        }
    }

    /// Labels that are jumped to and not there.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.steps.iter().find_map(|step| match step {
            Step::Goto { label, .. } if !label.contains('$') && self.place(label).is_none() => {
                Some(label.as_str())
            }
            _ => None,
        })
    }
}

enum Jump {
    To(usize),
    Exit,
    Error,
    Stop,
}

/// How a script came to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// It waits for a step or a time.
    Waits,
    /// It ended; the result is its own.
    Ended,
    /// It ended by `exit`, or by an error.
    Exited,
}

#[derive(Default)]
struct State {
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
    input: u16,
    at: usize,
    /// Where it waits for a time.
    until_ns: Option<u64>,
    /// Where it waits for steps: how many are left.
    steps: u64,
    running: bool,
    result: String,
    /// Whether the last write was accepted.
    written: bool,
    /// It manages the end of the router.
    manages: bool,
}

/// A script: what its instances and handlers share.
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    program: Program,
    caller: Caller,
    ending: Ending,
    state: Mutex<State>,
    /// Number of runs in progress, each within the one before.
    depth: AtomicUsize,
    /// Time of the last round of its worker.
    now_ns: AtomicU64,
}

impl Script {
    pub(crate) fn new(
        name: String,
        kind: Kind,
        program: Program,
        caller: Caller,
        ending: Ending,
    ) -> Self {
        let drives = kind == Kind::Driver;
        if drives {
            ending.manage();
        }
        let running = matches!(kind, Kind::Active | Kind::Driver);
        let state = State { running, manages: drives, written: true, ..State::default() };
        let (state, depth, now_ns) = (Mutex::new(state), AtomicUsize::new(0), AtomicU64::new(0));
        Self { name, kind, program, caller, ending, state, depth, now_ns }
    }

    /// Notes the time of a round of its worker, by which handlers in other threads go as well.
    pub(crate) fn set_now(&self, now_ns: u64) {
        // Relaxed, here and below: nothing else follows from them.
        self.now_ns.store(now_ns, Relaxed);
    }

    /// Time of the last round.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it runs, or waits.
    pub(crate) fn is_running(&self) -> bool {
        self.state().running
    }

    /// Time that it waits for.
    pub(crate) fn until_ns(&self) -> Option<u64> {
        let state = self.state();
        state.until_ns.filter(|_| state.running)
    }

    /// Result of the last run.
    pub(crate) fn result(&self) -> String {
        self.state().result.clone()
    }

    /// Lets it begin anew.
    pub(crate) fn start(&self, arguments: &str, input: u16) {
        let arguments = words(arguments);
        let mut state = self.state();
        let was = std::mem::take(&mut *state);
        let State { variables, manages, written, .. } = was;
        *state = State {
            variables,
            manages,
            written,
            arguments,
            input,
            running: true,
            ..State::default()
        };
    }

    /// Lets it continue from a label.
    pub(crate) fn jump(&self, label: &str) -> Result<(), String> {
        let Some(Jump::To(at)) = self.program.place(label.trim()) else {
            return Err(format!("there is no label `{}`", label.trim()));
        };
        let mut state = self.state();
        (state.at, state.running, state.until_ns, state.steps) = (at, true, None, 0);
        Ok(())
    }

    /// Steps that it may wait for.
    pub(crate) fn step(&self, count: u64) {
        let mut state = self.state();
        state.steps = state.steps.saturating_sub(count);
    }

    /// The end of the router was requested while it is its manager: a step; it waits for no time.
    pub(crate) fn end_requested(&self) {
        let mut state = self.state();
        state.steps = state.steps.saturating_sub(1);
        state.until_ns = None;
    }

    /// Continues until it waits or ends.
    pub(crate) fn run(&self) -> Came {
        let _in_progress = InProgress::begin();
        let came = if self.depth.fetch_add(1, Relaxed) < MOST_DEPTH {
            self.go()
        } else {
            self.complain(&format!("it runs within itself, {MOST_DEPTH} times"));
            self.finish(Came::Exited)
        };
        self.depth.fetch_sub(1, Relaxed);
        came
    }

    fn go(&self) -> Came {
        if !may_jump() {
            return self.jumped_too_often();
        }
        loop {
            let at = {
                let mut state = self.state();
                if !state.running {
                    return Came::Ended;
                }
                if state.steps > 0 {
                    return Came::Waits;
                }
                if let Some(until) = state.until_ns {
                    if self.now_ns() < until {
                        return Came::Waits;
                    }
                    state.until_ns = None;
                }
                let at = state.at;
                state.at += 1;
                at
            };
            let Some(step) = self.program.steps.get(at) else { return self.finish(Came::Ended) };
            match self.carry_out(step) {
                Next::Step => {}
                Next::Jump(to) => {
                    if !may_jump() {
                        return self.jumped_too_often();
                    }
                    self.state().at = to;
                }
                Next::End(came) => return self.finish(came),
            }
        }
    }

    fn jumped_too_often(&self) -> Came {
        let most = GOING.with(|going| going.most.get());
        self.complain(&format!("{most} jumps without a wait"));
        self.finish(Came::Exited)
    }

    fn finish(&self, came: Came) -> Came {
        let mut state = self.state();
        state.running = false;
        if std::mem::take(&mut state.manages) {
            self.ending.leave();
            self.ending.request();
        }
        came
    }

    fn complain(&self, words: &str) {
        console::err(&format!("{}: {words}\n", self.name));
    }

    fn carry_out(&self, step: &Step) -> Next {
        let value = |text: &str| plain(&expand(text, self));
        match step {
            Step::Label => Next::Step,
            Step::Print { text, newline } => {
                self.print(text, *newline);
                Next::Step
            }
            Step::Read { name, quiet } => {
                let (name, parameter) = self.handler(name);
                match self.caller.read(&name, &parameter) {
                    Ok(text) if *quiet => console::err(&format!("{text}\n")),
                    Ok(text) => console::err(&format!("{name}:\n{text}\n")),
                    Err(error) => self.complain(&error.to_string()),
                }
                Next::Step
            }
            Step::Write { text, quiet } => {
                let (name, given) = self.handler(text);
                let result = match self.function_of(&name) {
                    Some(_) => Err(HandlerError::ReadOnly(name.clone())),
                    None => self.caller.write(&name, &given),
                };
                self.state().written = result.is_ok();
                match result {
                    Ok(warnings) => warnings.iter().for_each(|warning| {
                        console::err(&format!("While calling '{name}':\n  warning: {warning}\n"));
                    }),
                    Err(error) if !quiet => self.complain(&error.to_string()),
                    Err(_) => {}
                }
                Next::Step
            }
            Step::Set { name, value: text } => {
                let text = value(text);
                self.set(name, text);
                Next::Step
            }
            Step::Init { name, value: text } => {
                if self.own(name).is_none() {
                    let text = value(text);
                    self.set(name, text);
                }
                Next::Step
            }
            Step::Save { handler, file, append } => {
                let (name, parameter) = self.handler(handler);
                match self.caller.read(&name, &parameter) {
                    Ok(text) => self.write_file(&value(file), &text, *append),
                    Err(error) => self.complain(&error.to_string()),
                }
                Next::Step
            }
            Step::Goto { label, condition } => {
                let condition = value(condition);
                match bool::read(condition.trim()) {
                    _ if condition.is_empty() => {}
                    Ok(true) => {}
                    Ok(false) => return Next::Step,
                    Err(words) => {
                        self.complain(&format!("`{condition}` is {words}"));
                        return Next::Step;
                    }
                }
                match self.program.place(&value(label)) {
                    Some(Jump::To(at)) => Next::Jump(at),
                    Some(Jump::Exit | Jump::Error) => Next::End(Came::Exited),
                    Some(Jump::Stop) => self.stop(),
                    None => {
                        self.complain(&format!("there is no label `{}`", value(label)));
                        Next::End(Came::Exited)
                    }
                }
            }
            Step::Restart => Next::Jump(0),
            Step::Return { value: text } => {
                let text = value(text);
                self.state().result = text;
                Next::End(Came::Ended)
            }
            Step::Exit => Next::End(Came::Exited),
            Step::End => Next::End(Came::Ended),
            Step::Error { text } => {
                self.complain(&value(text));
                Next::End(Came::Exited)
            }
            Step::Stop => self.stop(),
            Step::Pause { count } => {
                let count = value(count);
                let count = if count.is_empty() { Ok(1) } else { u64::read(count.trim()) };
                self.state().steps = count.unwrap_or(1);
                Next::Step
            }
            Step::Wait { time } => {
                let time = value(time);
                match Duration::read(time.trim()) {
                    Ok(time) => {
                        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                        self.state().until_ns = Some(self.now_ns().saturating_add(time));
                    }
                    Err(words) => self.complain(&format!("`{time}` is {words}")),
                }
                Next::Step
            }
        }
    }

    fn stop(&self) -> Next {
        self.ending.request();
        Next::End(Came::Ended)
    }

    /// Name and parameter in the text of an instruction.
    fn handler(&self, text: &str) -> (String, String) {
        let text = expand(text, self);
        let (name, rest) = first_word(&text);
        (plain(name), plain(rest))
    }

    fn function_of(&self, name: &str) -> Option<()> {
        functions::NAMES.contains(&name).then_some(())
    }

    fn print(&self, text: &str, newline: bool) {
        let (mut file, mut rest) = (None, text.trim());
        if let Some(redirected) = rest.strip_prefix('>') {
            let append = redirected.starts_with('>');
            let (name, what) = first_word(redirected.trim_start_matches('>'));
            file = Some((plain(&expand(name, self)), append));
            rest = what;
        }
        let named = |first: char| first.is_ascii_alphabetic() || matches!(first, '_' | '@' | '.');
        let mut text = match rest.starts_with(named) {
            true => self.call(&expand(rest, self)),
            false => plain(&expand(rest, self)),
        };
        if newline && !text.ends_with('\n') {
            text.push('\n');
        }
        match file {
            Some((name, append)) if name != "-" => self.write_file(&name, &text, append),
            _ => console::out(&text),
        }
    }

    fn write_file(&self, name: &str, text: &str, append: bool) {
        if name.is_empty() || name == "-" {
            return console::out(text);
        }
        if let Err(error) = self.caller.write_file(name, text, append) {
            self.complain(&format!("{name}: {error}"));
        }
    }

    fn own(&self, name: &str) -> Option<String> {
        let state = self.state();
        state.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn set(&self, name: &str, value: String) {
        if value.len() > MOST_BYTES {
            return self.complain(&format!("`{name}` has at most {MOST_BYTES} bytes"));
        }
        let mut state = self.state();
        match state.variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => state.variables.push((name.to_owned(), value)),
        }
    }
}

impl Values for Script {
    fn variable(&self, name: &str) -> Option<String> {
        if let Some(own) = self.own(name) {
            return Some(own);
        }
        let state = self.state();
        match name {
            "$" => Some(std::process::id().to_string()),
            "?" => Some(state.written.to_string()),
            "#" => Some(state.arguments.len().to_string()),
            "args" => Some(state.arguments.join(" ")),
            "0" => Some(self.name.clone()),
            "input" => Some(state.input.to_string()),
            _ => {
                let number: usize = name.parse().ok()?;
                state.arguments.get(number.checked_sub(1)?).cloned()
            }
        }
    }

    fn call(&self, text: &str) -> String {
        let (name, rest) = first_word(text);
        let name = plain(name);
        if let Some(result) = functions::call(&name, &words(rest), self.now_ns()) {
            return result.unwrap_or_else(|error| {
                self.complain(&error);
                String::new()
            });
        }
        if name == "get" {
            return self.variable(&plain(rest)).unwrap_or_default();
        }
        if let "readable" | "writable" = name.as_str() {
            let modes = words(rest).iter().map(|name| self.caller.modes(name)).collect::<Vec<_>>();
            let all = modes.iter().all(|modes| if name == "readable" { modes.0 } else { modes.1 });
            return all.to_string();
        }
        self.caller.read(&name, &plain(rest)).unwrap_or_else(|error| {
            self.complain(&error.to_string());
            String::new()
        })
    }
}

enum Next {
    Step,
    Jump(usize),
    End(Came),
}
