//! Handlers: named access points of elements, text in and text out.
//!
//! Source: Click's handlers (its programming manual, and the handlers that every element has there).
//! An element's author gives closures that a control thread calls; what they reach they share with the
//! workers' instances. Differs from Click: a read handler never has side effects on packets, since it
//! runs beside the workers and not between two of them.

pub mod control_socket;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::language::open_policy::OpenPolicy;
use crate::language::{Classes, Codes, Configuration, PACKAGES, Processing};

type Read = Arc<dyn Fn() -> String + Send + Sync>;
type ReadWith = Arc<dyn Fn(&str) -> Result<String, String> + Send + Sync>;
#[cfg(feature = "click")]
type ReadNamed = Arc<dyn Fn(&str, &str) -> Result<String, String> + Send + Sync>;
type Write = Arc<dyn Fn(&str, &str, &OpenPolicy) -> Result<Warnings, String> + Send + Sync>;

/// Name of a handler that stands for all names which no other has.
const ANY: &str = "*";

/// Warnings of a write handler that succeeded, a line each.
pub type Warnings = Vec<String>;

/// A named access point: it can be read, read with a parameter, written, or some of that.
#[derive(Clone)]
pub struct Handler {
    name: Cow<'static, str>,
    read: Option<Reader>,
    write: Option<Write>,
    /// What a write does to packets is done in the next turn of its element.
    lags: bool,
}

#[derive(Clone)]
enum Reader {
    Plain(Read),
    With(ReadWith),
    #[cfg(feature = "click")]
    Named(ReadNamed),
}

impl Handler {
    /// One that gives a text.
    pub fn read(name: &'static str, read: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self::of(name, Some(Reader::Plain(Arc::new(read))), None)
    }

    /// One that answers a parameter, empty where none was given, or returns what is wrong with it.
    pub fn read_with(
        name: &'static str,
        read: impl Fn(&str) -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        Self::of(name, Some(Reader::With(Arc::new(read))), None)
    }

    /// One that takes a text, or returns what is wrong with it; then nothing has changed.
    pub fn write(
        name: &'static str,
        write: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self::write_warned(name, move |text| write(text).map(|()| Warnings::new()))
    }

    /// Write handler with warnings about what it took, but not as written.
    pub fn write_warned(
        name: &'static str,
        write: impl Fn(&str) -> Result<Warnings, String> + Send + Sync + 'static,
    ) -> Self {
        Self::of(name, None, Some(Arc::new(move |_, text, _| write(text))))
    }

    /// One that takes a text which may name files or devices, and what of these whoever writes it may have opened.
    pub fn write_opening(
        name: &'static str,
        write: impl Fn(&str, &OpenPolicy) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let write = move |_: &str, text: &str, policy: &OpenPolicy| {
            write(text, policy).map(|()| Warnings::new())
        };
        Self::of(name, None, Some(Arc::new(write)))
    }

    fn of(name: &'static str, read: Option<Reader>, write: Option<Write>) -> Self {
        Self { name: name.into(), read, write, lags: false }
    }

    /// Handler for every name that no other handler has; both functions receive the name, without its element's.
    #[cfg(feature = "click")]
    pub(crate) fn any(
        read: impl Fn(&str, &str) -> Result<String, String> + Send + Sync + 'static,
        write: impl Fn(&str, &str) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let write = move |name: &str, text: &str, _: &OpenPolicy| {
            write(name, text).map(|()| Warnings::new())
        };
        Self::of(ANY, Some(Reader::Named(Arc::new(read))), Some(Arc::new(write)))
    }

    /// This one, whose writes change packets in the next turn of its element: a script waits for that.
    #[cfg(feature = "click")]
    #[must_use]
    pub(crate) fn lagging(self) -> Self {
        Self { lags: true, ..self }
    }

    /// Whether what a write does to packets is done in the next turn of its element.
    #[cfg(feature = "click")]
    pub(crate) fn lags(&self) -> bool {
        self.lags
    }

    /// This one, by a name that a configuration gives.
    #[cfg(feature = "click")]
    #[must_use]
    pub(crate) fn named(self, name: String) -> Self {
        Self { name: name.into(), ..self }
    }

    /// This one, and where it cannot be read or written, `other`.
    fn or(self, other: Self) -> Self {
        Self {
            name: self.name,
            read: self.read.or(other.read),
            write: self.write.or(other.write),
            lags: self.lags || other.lags,
        }
    }

    /// Its name within its element.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is something to read.
    pub fn is_readable(&self) -> bool {
        self.read.is_some()
    }

    /// Whether it takes a text.
    pub fn is_writable(&self) -> bool {
        self.write.is_some()
    }

    /// Reads it; `name` is what an error calls it.
    pub(crate) fn call_read(&self, name: &str, parameter: &str) -> Result<String, HandlerError> {
        self.call_read_of(own_name(name), name, parameter)
    }

    /// Reads it by its name within its element; `name` is what an error calls it.
    fn call_read_of(&self, own: &str, name: &str, parameter: &str) -> Result<String, HandlerError> {
        #[cfg(not(feature = "click"))]
        let _ = own;
        match &self.read {
            None => Err(HandlerError::WriteOnly(name.to_owned())),
            Some(Reader::With(read)) => read(parameter).map_err(HandlerError::Failed),
            #[cfg(feature = "click")]
            Some(Reader::Named(read)) => read(own, parameter).map_err(HandlerError::Failed),
            Some(Reader::Plain(read)) if parameter.is_empty() => Ok(read()),
            Some(Reader::Plain(_)) => Err(HandlerError::NoParameter(name.to_owned())),
        }
    }

    /// Writes to it; `name` is what an error calls it.
    pub(crate) fn call_write(
        &self,
        name: &str,
        text: &str,
        policy: &OpenPolicy,
    ) -> Result<Warnings, HandlerError> {
        self.call_write_of(own_name(name), name, text, policy)
    }

    /// Writes to it by its name within its element; `name` is what an error calls it.
    fn call_write_of(
        &self,
        own: &str,
        name: &str,
        text: &str,
        policy: &OpenPolicy,
    ) -> Result<Warnings, HandlerError> {
        match &self.write {
            None => Err(HandlerError::ReadOnly(name.to_owned())),
            Some(write) => write(own, text, policy).map_err(HandlerError::Failed),
        }
    }

    fn mode(&self) -> &'static str {
        match (self.is_readable(), self.is_writable()) {
            (true, true) => "rw",
            (false, true) => "w",
            _ => "r",
        }
    }
}

/// Name of a handler within its element: names of elements have no dot.
fn own_name(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, own)| own)
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handler({} {})", self.name, self.mode())
    }
}

/// Why a handler was not called, or what it returned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HandlerError {
    /// The configuration has no such element.
    #[error("No element named '{0}'")]
    NoElement(String),
    /// The element has no such handler; the name as it was given.
    #[error("No handler named '{0}'")]
    NoHandler(String),
    /// It can only be written.
    #[error("Handler '{0}' write-only")]
    WriteOnly(String),
    /// It can only be read.
    #[error("Handler '{0}' read-only")]
    ReadOnly(String),
    /// A parameter was given to one that takes none.
    #[error("Read handler '{0}' does not take parameters")]
    NoParameter(String),
    /// The handler's own words, one line or several.
    #[error("{0}")]
    Failed(String),
}

/// All handlers of a configuration.
///
/// An `element.handler` names one; so does `N.handler` with the element's number from 1. A name
/// without a dot, with `0.` or with nothing before its dot is a global one.
#[derive(Clone, Debug)]
pub struct Handlers {
    configuration: Arc<Configuration>,
    /// Handlers by element, in order of declaration, then in order of making.
    elements: Vec<Vec<Handler>>,
    /// Those of parts that are no elements of the configuration, by name.
    outside: Vec<(String, Vec<Handler>)>,
    global: Vec<Handler>,
}

impl Handlers {
    /// Those of `configuration`: what its elements give, by element, and what all have; `classes` are
    /// those that it may use. A read and a write of one name become one handler.
    ///
    /// # Panics
    /// If `given` is not one list an element.
    pub fn new(
        configuration: Arc<Configuration>,
        given: Vec<Vec<Handler>>,
        classes: &(impl Classes + ?Sized),
    ) -> Self {
        assert_eq!(given.len(), configuration.elements().len(), "one list an element");
        let of = |(element, given)| with_listing(given, common(&configuration, element));
        let elements = given.into_iter().enumerate().map(of).collect();
        let global = with_listing(Vec::new(), globals(&configuration, classes));
        Self { configuration, elements, outside: Vec::new(), global }
    }

    /// Adds one of a part that is no element of the configuration, as the driver's control socket.
    #[must_use]
    pub fn outside(mut self, part: &str, handler: Handler) -> Self {
        match self.outside.iter_mut().find(|(name, _)| name == part) {
            Some((_, handlers)) => handlers.push(handler),
            None => self.outside.push((part.to_owned(), vec![handler])),
        }
        self
    }

    /// Adds a global one, before those of the same name.
    #[must_use]
    pub fn global(mut self, handler: Handler) -> Self {
        self.global.retain(|handler| handler.name != "handlers");
        self.global = with_listing(vec![handler], self.global);
        self
    }

    /// The configuration that they are of.
    pub fn configuration(&self) -> &Arc<Configuration> {
        &self.configuration
    }

    /// The handler of a full name.
    ///
    /// # Errors
    /// There is no such element or handler.
    pub fn find(&self, name: &str) -> Result<&Handler, HandlerError> {
        let (handlers, own) = match name.split_once('.') {
            None => (&self.global, name),
            Some(("" | "0", own)) => (&self.global, own),
            Some((element, own)) => {
                let handlers = self.of_element(element);
                (handlers.ok_or_else(|| HandlerError::NoElement(element.to_owned()))?, own)
            }
        };
        find(handlers, own).ok_or_else(|| HandlerError::NoHandler(name.to_owned()))
    }

    /// The handler of an element by its name within it, which may have dots.
    fn find_of(&self, element: &str, own: &str) -> Option<&Handler> {
        find(self.of_element(element)?, own)
    }

    /// Handlers of an element, which is named or numbered.
    fn of_element(&self, element: &str) -> Option<&Vec<Handler>> {
        let numbered = || element.parse::<usize>().ok()?.checked_sub(1);
        let number = self.configuration.find(element).or_else(numbered);
        let outside = || {
            let found = self.outside.iter().find(|(name, _)| name == element);
            found.map(|(_, handlers)| handlers)
        };
        number.and_then(|number| self.elements.get(number)).or_else(outside)
    }

    /// Calls a read handler; `parameter` is empty for none.
    ///
    /// # Errors
    /// It is not there, not to be read so, or fails.
    pub fn read(&self, name: &str, parameter: &str) -> Result<String, HandlerError> {
        self.find(name)?.call_read(name, parameter)
    }

    /// Calls a write handler, which may warn, and may open whatever the process can.
    ///
    /// # Errors
    /// It is not there, not to be written, or fails.
    pub fn write(&self, name: &str, text: &str) -> Result<Warnings, HandlerError> {
        self.write_within(name, text, &OpenPolicy::default())
    }

    /// Calls a write handler for a client whose policy is this.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_within(
        &self,
        name: &str,
        text: &str,
        policy: &OpenPolicy,
    ) -> Result<Warnings, HandlerError> {
        self.find(name)?.call_write(name, text, policy)
    }
}

/// The handler of a name, or the one that stands for all other names.
fn find<'a>(handlers: &'a [Handler], own: &str) -> Option<&'a Handler> {
    let found = handlers.iter().find(|handler| handler.name == own);
    found.or_else(|| handlers.iter().find(|handler| handler.name == ANY))
}

/// Those of one element, one a name, and the one that lists them.
fn with_listing(given: Vec<Handler>, all_have: Vec<Handler>) -> Vec<Handler> {
    let mut handlers: Vec<Handler> = Vec::new();
    for handler in given.into_iter().chain(all_have) {
        match handlers.iter_mut().find(|known| known.name == handler.name) {
            Some(known) => *known = known.clone().or(handler),
            None => handlers.push(handler),
        }
    }
    let own = handlers.iter().filter(|handler| handler.name != ANY);
    let listed: String = own.map(|h| format!("{}\t{}\n", h.name, h.mode())).collect();
    handlers.push(Handler::read("handlers", move || format!("{listed}handlers\tr\n")));
    handlers
}

/// What every element has, but for the listing.
fn common(configuration: &Arc<Configuration>, element: usize) -> Vec<Handler> {
    type Of = fn(&Configuration, usize) -> String;
    let rows: [(&'static str, Of); 4] = [
        ("name", |configuration, element| configuration.elements()[element].name.to_string()),
        ("class", |configuration, element| configuration.elements()[element].class.name.to_owned()),
        ("config", |configuration, element| {
            configuration.elements()[element].config.as_str().to_owned()
        }),
        ("ports", ports),
    ];
    let of = |(name, of): (&'static str, Of)| {
        let configuration = Arc::clone(configuration);
        Handler::read(name, move || of(&configuration, element))
    };
    rows.into_iter().map(of).collect()
}

/// Global ones, but for the listing.
fn globals(configuration: &Arc<Configuration>, classes: &(impl Classes + ?Sized)) -> Vec<Handler> {
    let mut names = String::new();
    classes.each(&mut |name| names.extend([name, "\n"]));
    let of = |name, of: fn(&Configuration) -> String| {
        let configuration = Arc::clone(configuration);
        Handler::read(name, move || of(&configuration))
    };
    vec![
        Handler::read("version", || env!("CARGO_PKG_VERSION").to_owned()),
        Handler::read("driver", || "userlevel".to_owned()),
        of("list", list),
        Handler::read("classes", move || names.clone()),
        of("config", |configuration| configuration.text().to_owned()),
        of("flatconfig", Configuration::flatconfig),
        // Native code is never loaded: these are built in.
        Handler::read("packages", || PACKAGES.map(|name| format!("{name}\n")).concat()),
        of("requirements", requirements),
    ]
}

/// What a configuration requires: a line for each kind, and one for each name.
fn requirements(configuration: &Configuration) -> String {
    let lines = |(kind, name): &(&str, &str)| format!("{kind}\n{name}\n");
    configuration.requirements().iter().map(lines).collect()
}

/// The number of elements, and their names.
fn list(configuration: &Configuration) -> String {
    let elements = configuration.elements();
    let names = elements.iter().map(|element| format!("{}\n", element.name));
    std::iter::once(format!("{}\n", elements.len())).chain(names).collect()
}

/// How many ports an element has and, for each, push or pull (`~`: it would do either), the packets
/// counted there (`-`: none are), and what it is joined with.
fn ports(configuration: &Configuration, element: usize) -> String {
    let declared = &configuration.elements()[element];
    let number = u32::try_from(element).expect("elements have small numbers");
    let name = |element: u32| &configuration.elements()[element as usize].name;
    let wires = || configuration.connections().iter();
    let codes = Codes::read(&declared.class).ok();
    let would_do_either = |what: &str, port: u32| {
        let kind = codes.as_ref().map(|codes| match what {
            "input" => codes.input(port as usize),
            _ => codes.output(port as usize),
        });
        kind == Some(Processing::Agnostic)
    };
    let side = |count: u32, what: &str, joined: &dyn Fn(u32) -> Vec<(Processing, String)>| {
        let mut text = format!("{count} {what}{}\n", if count == 1 { "" } else { "s" });
        for port in 0..count {
            let joined = joined(port);
            let kind = match joined.first() {
                Some((Processing::Pull, _)) => "pull",
                _ => "push",
            };
            let ends: Vec<String> = joined.into_iter().map(|(_, end)| end).collect();
            let either = if would_do_either(what, port) { "~" } else { "" };
            text += &format!("{kind}{either}\t-\t{}\n", ends.join(", "));
        }
        text
    };
    let inputs = |port| {
        let here = wires().filter(|wire| (wire.to, wire.input) == (number, port));
        here.map(|wire| (wire.kind, format!("{} [{}]", name(wire.from), wire.output))).collect()
    };
    let outputs = |port| {
        let here = wires().filter(|wire| (wire.from, wire.output) == (number, port));
        here.map(|wire| (wire.kind, format!("[{}] {}", wire.input, name(wire.to)))).collect()
    };
    side(declared.inputs, "input", &inputs) + &side(declared.outputs, "output", &outputs)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::language::Language;
    use crate::language::testing::CLASSES;

    const TEXT: &str = "// two\nq :: Queue(5, /* c */ 6);\nInfiniteSource -> c :: Counter -> q;\n\
                        q -> u :: Unqueue -> Discard; Idle -> q;\n";

    fn configuration() -> Arc<Configuration> {
        Arc::new(Language::new(CLASSES).read("a.click", TEXT).unwrap())
    }

    fn handlers() -> Handlers {
        let configuration = configuration();
        let capacity = Arc::new(Mutex::new(5));
        let (read, write) = (Arc::clone(&capacity), capacity);
        let mut given = vec![Vec::new(); configuration.elements().len()];
        given[0] = vec![
            Handler::read("capacity", move || read.lock().unwrap().to_string()),
            Handler::read_with("twice", |word| match word {
                "" => Err("of what?".to_owned()),
                word => Ok(format!("{word}{word}")),
            }),
            Handler::write("reset", |_| Ok(())),
            Handler::write_warned("capacity", move |text| {
                *write.lock().unwrap() = text.parse().map_err(|_| format!("`{text}`?"))?;
                Ok(vec!["was full".to_owned()])
            }),
        ];
        Handlers::new(configuration, given, CLASSES)
    }

    #[test]
    fn elements_are_named_or_numbered_from_one() {
        let handlers = handlers();
        assert_eq!(handlers.read("q.name", "").unwrap(), "q");
        assert_eq!(handlers.read("1.class", "").unwrap(), "Queue");
        assert_eq!(handlers.read("1.config", "").unwrap(), "5, /* c */ 6");
        assert_eq!(handlers.read("InfiniteSource@2.config", "").unwrap(), "");
        for global in ["list", ".list", "0.list"] {
            assert_eq!(
                handlers.read(global, "").unwrap(),
                "6\nq\nInfiniteSource@2\nc\nu\nDiscard@5\nIdle@6\n"
            );
        }
        let no_element = |name: &str| Err(HandlerError::NoElement(name.to_owned()));
        assert_eq!(handlers.read("x.name", ""), no_element("x"));
        assert_eq!(handlers.read("7.name", ""), no_element("7"));
        assert_eq!(handlers.read("-1.name", ""), no_element("-1"));
        assert_eq!(
            handlers.read("18446744073709551616.name", ""),
            no_element("18446744073709551616")
        );
        for name in ["q.", "q.nmae", "", ".", "name", "0.capacity"] {
            assert_eq!(handlers.read(name, ""), Err(HandlerError::NoHandler(name.to_owned())));
            assert_eq!(handlers.write(name, ""), Err(HandlerError::NoHandler(name.to_owned())));
        }
    }

    #[test]
    fn a_read_and_a_write_of_one_name_are_one_handler() {
        let handlers = handlers();
        assert_eq!(handlers.write("q.capacity", "7"), Ok(vec!["was full".to_owned()]));
        assert_eq!(handlers.read("q.capacity", "").unwrap(), "7");
        assert_eq!(handlers.write("q.capacity", "x"), Err(HandlerError::Failed("`x`?".to_owned())));
        assert_eq!(handlers.read("q.capacity", "").unwrap(), "7");
        assert_eq!(
            handlers.read("q.handlers", "").unwrap(),
            "capacity\trw\ntwice\tr\nreset\tw\nname\tr\nclass\tr\nconfig\tr\nports\tr\nhandlers\tr\n"
        );
    }

    #[test]
    fn what_cannot_be_done_is_reported() {
        let handlers = handlers();
        let reported = |result: Result<String, HandlerError>| result.unwrap_err().to_string();
        assert_eq!(reported(handlers.read("q.reset", "")), "Handler 'q.reset' write-only");
        assert_eq!(
            handlers.write("q.name", "p").unwrap_err().to_string(),
            "Handler 'q.name' read-only"
        );
        assert_eq!(
            reported(handlers.read("q.name", "x")),
            "Read handler 'q.name' does not take parameters"
        );
        assert_eq!(reported(handlers.read("q.twice", "")), "of what?");
        assert_eq!(handlers.read("q.twice", "ab ").unwrap(), "ab ab ");
        let found = handlers.find("q.reset").unwrap();
        assert_eq!(
            (found.name(), found.is_readable(), found.is_writable()),
            ("reset", false, true)
        );
    }

    #[test]
    fn ports_say_what_they_are_joined_with() {
        let handlers = handlers();
        assert_eq!(
            handlers.read("q.ports", "").unwrap(),
            "1 input\npush\t-\tc [0], Idle@6 [0]\n1 output\npull\t-\t[0] u\n"
        );
        assert_eq!(handlers.read("5.ports", "").unwrap(), "1 input\npush~\t-\tu [0]\n0 outputs\n");
        assert_eq!(
            handlers.read("c.ports", "").unwrap(),
            "1 input\npush~\t-\tInfiniteSource@2 [0]\n1 output\npush~\t-\t[0] q\n"
        );
    }

    #[test]
    fn global_ones_tell_of_the_configuration() {
        let handlers = handlers().global(Handler::write("hotconfig", |_| Ok(())));
        assert_eq!(handlers.read("config", "").unwrap(), TEXT);
        assert!(handlers.read("flatconfig", "").unwrap().starts_with("q :: Queue(5,   6);\n"));
        assert!(handlers.read("packages", "").unwrap().contains("\naqm\nclick\n"));
        assert_eq!(handlers.read("requirements", "").unwrap(), "");
        let text = "require(package analysis, compact_config); Idle -> Idle";
        let configuration = Arc::new(Language::new(CLASSES).read("a.click", text).unwrap());
        let required = Handlers::new(configuration, vec![Vec::new(); 2], CLASSES);
        let lines = required.read("requirements", "").unwrap();
        assert_eq!(lines, "package\nanalysis\ncompact_config\n\n");
        assert_eq!(handlers.read("driver", "").unwrap(), "userlevel");
        assert_eq!(handlers.read("version", "").unwrap(), env!("CARGO_PKG_VERSION"));
        let classes = handlers.read("classes", "").unwrap();
        assert_eq!(classes.lines().count(), CLASSES.len());
        assert!(classes.contains("\nQueue\n"));
        let listed = handlers.read("handlers", "").unwrap();
        assert!(listed.starts_with("hotconfig\tw\nversion\tr\n"));
        assert_eq!(listed.matches("handlers\t").count(), 1);
    }
}
