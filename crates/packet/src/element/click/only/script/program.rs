//! The instructions of a script, and how they are carried out, one after the other until the script waits or ends.
//!
//! Source: the manual page of Click's `Script`. The place in the program, the variables and the result belong to the
//! element; nothing is locked while a handler is called, so that it may use the script's own. What an instruction reports
//! stands below what was carried out (`trail.rs`).

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::functions;
use super::text::{Values, escaped, expand, expand_plain, first_word, plain, words};
use super::trail::{Trail, report};
use crate::element::click::only::console;
use crate::element::support::caller::Caller;
use crate::element::support::time;
use crate::graph::Ending;
use crate::handler::{Handler, HandlerError};
use crate::language::Value as _;

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
    /// It runs when a handler is called, of any name.
    Proxy,
    /// It runs when a signal comes: whoever receives signals calls its handler `run`.
    Signal,
}

/// One instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Print {
        text: String,
        newline: bool,
        unquotes: bool,
    },
    Read {
        text: String,
        unquotes: bool,
    },
    Write {
        text: String,
        unquotes: bool,
    },
    Set {
        name: String,
        value: Value,
    },
    Save {
        handler: String,
        file: String,
        append: bool,
    },
    /// A label, or a value that was given when the script was initialized.
    Mark,
    Goto {
        label: String,
        condition: String,
    },
    Restart,
    Return {
        value: Value,
    },
    Exit,
    End,
    Error {
        text: Value,
    },
    Stop,
    Pause {
        count: String,
    },
    Wait {
        time: String,
    },
}

/// A text in which values are put; the forms of instructions that end in `q` take its quotes away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Value {
    text: String,
    unquotes: bool,
}

impl Value {
    fn of(&self, values: &dyn Values) -> String {
        let text = expand(&self.text, values);
        if self.unquotes { plain(&text) } else { text }
    }
}

/// A program.
#[derive(Clone, Default, Debug)]
pub(crate) struct Program {
    steps: Vec<Step>,
    labels: Vec<(String, usize)>,
    /// Variables that have a value before the first instruction.
    initial: Vec<(String, Value)>,
    /// Variables that are handlers.
    exports: Vec<String>,
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
        let unquotes = word.ends_with('q');
        let value = |text: &str| Value { text: text.to_owned(), unquotes };
        let step = match word {
            "print" | "printq" => Step::Print { text: whole(), newline: true, unquotes },
            "printn" | "printnq" => Step::Print { text: whole(), newline: false, unquotes },
            "read" | "readq" if !rest.is_empty() => Step::Read { text: whole(), unquotes },
            "write" | "writeq" if !rest.is_empty() => Step::Write { text: whole(), unquotes },
            "set" | "setq" => match pair()? {
                (name, text) if text.is_empty() => return Err(format!("`{name}` wants a value")),
                (name, text) => Step::Set { name, value: value(&text) },
            },
            "init" | "initq" | "export" | "exportq" => {
                let (name, text) = pair()?;
                if word.starts_with("export") {
                    self.exports.push(name.clone());
                }
                self.initial.push((name, value(&text)));
                Step::Mark
            }
            "save" | "append" => {
                let (handler, file) = pair()?;
                Step::Save { handler, file, append: word == "append" }
            }
            "label" => {
                self.labels.push((pair()?.0, self.steps.len()));
                Step::Mark
            }
            "goto" => {
                let (label, condition) = pair()?;
                Step::Goto { label, condition }
            }
            "loop" => Step::Restart,
            "return" | "returnq" => Step::Return { value: value(rest) },
            "exit" => Step::Exit,
            "end" => Step::End,
            "error" | "errorq" => Step::Error { text: value(rest) },
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

    /// Variables that are handlers.
    pub(crate) fn exports(&self) -> &[String] {
        &self.exports
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
    /// It ended by `exit`.
    Exited,
    /// It ended by an error.
    Failed,
    /// It ended by `stop`.
    Stopped,
}

#[derive(Default)]
struct State {
    variables: Vec<(String, String)>,
    /// What the handler that runs it was given, as it was written.
    arguments: String,
    /// Name of that handler, and whether it was written to.
    handler: String,
    is_write: bool,
    at: usize,
    /// Where it waits for a time.
    until_ns: Option<u64>,
    /// It waits for others to have their turn, and no step ends that.
    rests: bool,
    /// Where it waits for steps: how many are left.
    steps: u64,
    /// Steps that came and were not waited for yet.
    credit: u64,
    running: bool,
    result: String,
    /// What the last write returned: 0, or a negative number.
    status: i32,
    /// It manages the end of the router.
    manages: bool,
    /// The initial values are there.
    has_initial: bool,
}

/// Status of a write that failed: `EINVAL`.
const INVALID: i32 = -22;

/// A script: what its instances and handlers share.
pub(crate) struct Script {
    pub(crate) name: String,
    /// Line above its reports.
    heading: Arc<str>,
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
        (name, class): (String, &'static str),
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
        let state = State { running, manages: drives, ..State::default() };
        let (state, depth, now_ns) = (Mutex::new(state), AtomicUsize::new(0), AtomicU64::new(0));
        let heading = format!("While executing '{name} :: {class}':").into();
        Self { name, heading, kind, program, caller, ending, state, depth, now_ns }
    }

    /// Notes the time of a round of its worker, by which handlers in other threads go as well.
    pub(crate) fn set_now(&self, now_ns: u64) {
        // Relaxed, here and below: nothing else follows from them.
        self.now_ns.store(now_ns, Relaxed);
    }

    /// The virtual time, or the time of its last round.
    pub(crate) fn now_ns(&self) -> u64 {
        time::virtual_ns().unwrap_or_else(|| self.now_ns.load(Relaxed))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it runs, or waits.
    pub(crate) fn is_running(&self) -> bool {
        self.state().running
    }

    /// Whether it waits for others to have their turn.
    pub(crate) fn rests(&self) -> bool {
        self.state().rests
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

    /// Carries it out from its start for a handler that was called with a text, and returns its result.
    pub(crate) fn handle(
        &self,
        handler: &str,
        text: &str,
        is_write: bool,
    ) -> Result<String, String> {
        {
            let mut state = self.state();
            state.begin();
            (state.handler, state.is_write) = (handler.to_owned(), is_write);
            text.clone_into(&mut state.arguments);
        }
        self.called(|| self.run())
    }

    /// What a handler returns that carries instructions out.
    pub(crate) fn called(&self, run: impl FnOnce() -> Came) -> Result<String, String> {
        let (came, words) = Trail::collect(run);
        let mut state = self.state();
        (state.handler, state.is_write) = (String::new(), false);
        if came != Came::Failed {
            drop(state);
            console::err(&words);
            return Ok(self.result());
        }
        state.arguments.clear();
        Err(words.trim_end().to_owned())
    }

    /// Carries it out from its start for a packet, and returns the output.
    pub(crate) fn handle_packet(&self, input: u16) -> Option<u16> {
        self.state().begin();
        self.set("input", input.to_string());
        let _trail = Trail::enter(self.heading.clone());
        match self.run() {
            Came::Ended if self.state().at > self.program.steps.len() => Some(0),
            Came::Ended => u16::read(self.result().trim()).ok(),
            _ => None,
        }
    }

    /// Continues by itself: at its start, or after a time.
    pub(crate) fn continue_by_itself(&self) -> Came {
        // The end of the router starts a manager, and nobody else.
        let by_time = self.kind != Kind::Driver || self.until_ns().is_some();
        let _trail = by_time.then(|| Trail::enter(self.heading.clone()));
        self.run()
    }

    /// Value of a variable that is a handler.
    pub(crate) fn exported(&self, name: &str) -> String {
        self.initialize();
        self.own(name).unwrap_or_default()
    }

    /// Gives variables their initial values, once.
    fn initialize(&self) {
        if std::mem::replace(&mut self.state().has_initial, true) {
            return;
        }
        for (name, value) in &self.program.initial {
            let value = value.of(self);
            self.set(name, value);
        }
    }

    /// Whether instructions are being carried out.
    pub(crate) fn is_busy(&self) -> bool {
        self.depth.load(Relaxed) > 0
    }

    /// Lets it continue from a label.
    pub(crate) fn jump(&self, label: &str) -> Result<(), String> {
        let Some(Jump::To(at)) = self.program.place(label.trim()) else {
            return Err(format!("there is no label `{}`", label.trim()));
        };
        let mut state = self.state();
        state.begin();
        state.at = at;
        Ok(())
    }

    /// Steps that it may wait for. One that never ran begins with them.
    pub(crate) fn step(&self, count: u64) {
        let mut state = self.state();
        state.credit = state.credit.saturating_add(count);
        state.running |= state.at == 0;
    }

    /// The end of the router was requested while it is its manager: a step.
    pub(crate) fn end_requested(&self) {
        let mut state = self.state();
        state.credit = state.credit.saturating_add(1);
    }

    /// Continues until it waits or ends.
    pub(crate) fn run(&self) -> Came {
        let _in_progress = InProgress::begin();
        let came = if self.depth.fetch_add(1, Relaxed) < MOST_DEPTH {
            self.go()
        } else {
            report(&format!("{}: it runs within itself, {MOST_DEPTH} times", self.name));
            self.finish(Came::Failed)
        };
        if self.depth.fetch_sub(1, Relaxed) == 1 {
            self.state().credit = 0;
        }
        came
    }

    fn go(&self) -> Came {
        if !may_jump() {
            return self.jumped_too_often();
        }
        self.initialize();
        loop {
            let at = {
                let mut state = self.state();
                if !state.running {
                    return Came::Ended;
                }
                let taken = state.credit.min(state.steps);
                (state.credit, state.steps) = (state.credit - taken, state.steps - taken);
                if state.steps > 0 {
                    return Came::Waits;
                }
                if let Some(until) = state.until_ns {
                    if self.now_ns() < until {
                        if state.credit == 0 || state.rests {
                            return Came::Waits;
                        }
                        state.credit -= 1;
                    }
                    (state.until_ns, state.rests) = (None, false);
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
        report(&format!("{}: {most} jumps without a wait", self.name));
        self.finish(Came::Failed)
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

    fn carry_out(&self, step: &Step) -> Next {
        let value = |text: &str| plain(&expand(text, self));
        match step {
            Step::Mark => Next::Step,
            Step::Print { text, newline, unquotes } => {
                self.print(text, *newline, *unquotes);
                Next::Step
            }
            Step::Read { text, unquotes } => {
                if let Some((name, text)) = self.read(text, *unquotes) {
                    console::err(&format!("{name}:\n{text}\n"));
                }
                Next::Step
            }
            Step::Write { text, unquotes } => {
                let lags = self.write(text, *unquotes);
                // What is behind it is carried out when all elements have had a turn.
                if lags && matches!(self.kind, Kind::Active | Kind::Driver) {
                    let until = self.now_ns().saturating_add(1);
                    let mut state = self.state();
                    (state.until_ns, state.rests) = (Some(until), true);
                }
                Next::Step
            }
            Step::Set { name, value } => {
                let value = value.of(self);
                self.set(name, value);
                Next::Step
            }
            Step::Save { handler, file, append } => {
                if let Some((_, text)) = self.read(handler, false) {
                    self.write_file(&value(file), &with_newline(text), *append);
                }
                Next::Step
            }
            Step::Goto { label, condition } => {
                let condition = expand(condition, self);
                match bool::read(condition.trim()) {
                    _ if condition.is_empty() => {}
                    Ok(true) => {}
                    Ok(false) => return Next::Step,
                    Err(_) => {
                        report(&format!("bad condition '{condition}'"));
                        return Next::Step;
                    }
                }
                match self.program.place(&value(label)) {
                    Some(Jump::To(at)) => Next::Jump(at),
                    Some(Jump::Exit) => Next::End(Came::Exited),
                    Some(Jump::Error) => Next::End(Came::Failed),
                    Some(Jump::Stop) => self.stop(),
                    None => {
                        report(&format!("no such label '{}'", value(label)));
                        Next::End(Came::Failed)
                    }
                }
            }
            Step::Restart => Next::Jump(0),
            Step::Return { value } => {
                let value = value.of(self);
                self.set("_", value.clone());
                self.state().result = value;
                Next::End(Came::Ended)
            }
            Step::Exit => Next::End(Came::Exited),
            // Behind the last instruction, as whatever ends there.
            Step::End => Next::Jump(self.program.steps.len()),
            Step::Error { text } => {
                let words = text.of(self);
                if !words.is_empty() {
                    report(&words);
                }
                Next::End(Came::Failed)
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
                        let time = time::nanoseconds(time);
                        self.state().until_ns = Some(self.now_ns().saturating_add(time));
                    }
                    Err(words) => report(&format!("syntax error at 'wait': `{time}` is {words}")),
                }
                Next::Step
            }
        }
    }

    fn stop(&self) -> Next {
        self.ending.request();
        Next::End(Came::Stopped)
    }

    /// Name and parameter in the text of an instruction.
    fn handler(&self, text: &str, unquotes: bool) -> (String, String) {
        let text = expand(text, self);
        let (name, rest) = first_word(&text);
        (plain(name), if unquotes { plain(rest) } else { rest.to_owned() })
    }

    /// Whole name of the handler that is read in a text, and its value.
    fn read(&self, text: &str, unquotes: bool) -> Option<(String, String)> {
        let (name, parameter) = self.handler(text, unquotes);
        let (whole, result) = match self.function(&name, &parameter) {
            Some(result) => (format!("{}.{name}", self.name), result.map_err(HandlerError::Failed)),
            None => match self.found(&name, Handler::is_readable, "read") {
                Some((whole, handler)) => {
                    let _trail = Trail::enter(while_calling(&whole, &parameter));
                    let result = handler.call_read(&whole, &parameter);
                    return reported(result).map(|value| (whole, value));
                }
                None => return None,
            },
        };
        let _trail = Trail::enter(while_calling(&whole, &parameter));
        reported(result).map(|value| (whole, value))
    }

    /// A handler that can be called so; reports where there is none.
    fn found(
        &self,
        name: &str,
        fits: impl Fn(&Handler) -> bool,
        how: &str,
    ) -> Option<(String, Handler)> {
        match self.caller.found(name) {
            Ok((whole, handler)) if fits(&handler) => return Some((whole, handler)),
            Ok((whole, _)) => report(&format!("no '{whole}' {how} handler")),
            Err(HandlerError::NoElement(element)) => {
                report(&format!("no element named '{element}'"));
            }
            Err(_) => report(&format!("no '{name}' {how} handler")),
        }
        None
    }

    /// Writes to a handler; whether what it does to packets is still to be done.
    fn write(&self, text: &str, unquotes: bool) -> bool {
        let (name, given) = self.handler(text, unquotes);
        let Some((whole, handler)) = self.found(&name, Handler::is_writable, "write") else {
            return false;
        };
        let _trail = Trail::enter(while_calling(&whole, &given));
        let warnings = reported(handler.call_write(&whole, &given, self.caller.policy()));
        self.state().status = if warnings.is_some() { 0 } else { INVALID };
        for warning in warnings.into_iter().flatten() {
            report(&format!("warning: {warning}"));
        }
        handler.lags()
    }

    fn print(&self, text: &str, newline: bool, unquotes: bool) {
        let (mut file, mut rest) = (None, text.trim());
        if let Some(redirected) = rest.strip_prefix('>') {
            let append = redirected.starts_with('>');
            let (name, what) = first_word(redirected.trim_start_matches('>'));
            file = Some((plain(&expand(name, self)), append));
            rest = what;
        }
        let named = |first: char| first.is_ascii_alphabetic() || matches!(first, '_' | '@');
        let text = match rest.starts_with(named) {
            true => self.read(rest, unquotes).map(|(_, value)| value),
            false => Some(expand_plain(rest, self)),
        };
        let text = match text {
            Some(text) if newline => with_newline(text),
            text => text.unwrap_or_default(),
        };
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
            report(&format!("{name}: {error}"));
        }
    }

    /// What a function of scripts gives, those of this one among them; `None` where there is no such function.
    pub(crate) fn function(&self, name: &str, text: &str) -> Option<Result<String, String>> {
        Some(match name {
            "get" | "shift" => self.take(name, text),
            "readable" | "writable" => {
                let of =
                    |(readable, writable)| if name == "readable" { readable } else { writable };
                let all = words(text).iter().all(|name| of(self.caller.modes(&plain(name))));
                Ok(all.to_string())
            }
            "cat" | "catq" => {
                let file = plain(text.trim());
                let text = self.caller.policy().text(&file).map_err(|e| format!("{file}: {e}"));
                text.map(|text| match name {
                    "cat" => text,
                    _ => format!("\"{}\"", escaped(&text)),
                })
            }
            "kill" => self.kill(text),
            _ => return functions::call(name, text, self.now_ns()),
        })
    }

    /// Value of a variable; `shift` takes its first word out of it.
    fn take(&self, how: &str, text: &str) -> Result<String, String> {
        self.initialize();
        let name = match (words(text).as_slice(), how) {
            ([], "shift") => "args",
            ([], _) => return Err("no variable".into()),
            (&[name], _) => name,
            _ => return Err("too many arguments".into()),
        };
        let mut state = self.state();
        let State { arguments, variables, .. } = &mut *state;
        let value = match name {
            "args" => arguments,
            _ => match variables.iter_mut().find(|(known, _)| known == name) {
                Some((_, value)) => value,
                None => return Err(format!("undefined variable '{name}'")),
            },
        };
        if how == "get" {
            return Ok(value.clone());
        }
        let (first, rest) = first_word(value);
        let (first, rest) = (first.to_owned(), rest.to_owned());
        *value = rest;
        Ok(first)
    }

    /// Sends a signal to processes, unless the configuration is of somebody who may not.
    fn kill(&self, text: &str) -> Result<String, String> {
        let words = words(text);
        let Some((signal, processes)) = words.split_first() else { return Err("bad SIGNO".into()) };
        let Some(number) = super::signal(signal) else { return Err("bad SIGNO".into()) };
        if !self.caller.policy().may_signal() {
            return Err("kill: not allowed".into());
        }
        for process in processes {
            let process = process_id(process).ok_or("bad PID")?;
            let command =
                ["-s", &number.to_string(), "--", &process.to_string()].map(str::to_owned);
            let status = std::process::Command::new("kill").args(command).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(format!("kill({process}, {number}): failed"));
            }
        }
        Ok(String::new())
    }

    fn own(&self, name: &str) -> Option<String> {
        let state = self.state();
        state.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// Gives a variable a value.
    pub(crate) fn set(&self, name: &str, value: String) {
        if value.len() > MOST_BYTES {
            return report(&format!("`{name}` has at most {MOST_BYTES} bytes"));
        }
        let mut state = self.state();
        if name == "args" {
            state.arguments = value;
            return;
        }
        match state.variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => state.variables.push((name.to_owned(), value)),
        }
    }
}

impl State {
    /// The start of the program.
    fn begin(&mut self) {
        (self.at, self.until_ns, self.steps, self.running) = (0, None, 0, true);
        self.rests = false;
        self.result.clear();
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
            "?" => Some(state.status.to_string()),
            "#" => Some(words(&state.arguments).len().to_string()),
            "args" => Some(state.arguments.clone()),
            "0" => Some(state.handler.clone()),
            "write" => Some(state.is_write.to_string()),
            _ => {
                let number = name.parse::<usize>().ok()?.checked_sub(1)?;
                let words = words(&state.arguments);
                Some(words.get(number).copied().unwrap_or_default().to_owned())
            }
        }
    }

    fn call(&self, text: &str) -> Option<String> {
        let (name, rest) = first_word(text);
        let name = plain(name);
        if let Some(result) = self.function(&name, rest) {
            return Some(reported(result.map_err(HandlerError::Failed)).unwrap_or_default());
        }
        let (whole, handler) = self.found(&name, Handler::is_readable, "read")?;
        match handler.call_read(&whole, rest) {
            Err(error @ HandlerError::NoParameter(_)) => reported(Err(error)),
            result => Some(reported(result).unwrap_or_default()),
        }
    }
}

/// The process that a text names, and no group of processes: 0 is that of the router, and all processes are -1.
pub(super) fn process_id(text: &str) -> Option<i32> {
    i32::read(text).ok().filter(|&process| process > 0)
}

fn while_calling(handler: &str, parameter: &str) -> String {
    let blank = if parameter.is_empty() { "" } else { " " };
    format!("While calling '{handler}{blank}{parameter}':")
}

/// The value of a call, or none, and what is wrong is reported; scripts have reported it before.
fn reported<T>(result: Result<T, HandlerError>) -> Option<T> {
    let words = match result {
        Ok(value) => return Some(value),
        Err(HandlerError::NoParameter(name)) => {
            format!("read handler '{name}' does not take parameters")
        }
        Err(error) => error.to_string(),
    };
    if !words.is_empty() {
        report(&words);
    }
    None
}

fn with_newline(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

enum Next {
    Step,
    Jump(usize),
    End(Came),
}
