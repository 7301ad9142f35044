//! Handlers that many elements have besides their own: those of their task, and `config` of elements whose arguments can
//! be changed while they run.
//!
//! Source: Click's `live_reconfigure`, `reconfigure_keyword_handler` and `add_task_handlers`. A configuration that is written
//! is read as that of a new element, and what its handlers show is written to those of the present one; a handler that
//! is written changes the configuration. Tickets and threads of tasks change nothing here.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::{ElementClass, Setup};
use crate::handler::Handler;
use crate::language::open_policy::OpenPolicy;
use crate::language::{Args, ConfigError, InClick, Problems, Sources, Span, Text, replaced};
use crate::route_table::gateways::Gateways;

/// An argument that a handler shows and changes.
#[derive(Clone, Copy, Debug)]
pub struct LiveArg {
    /// Name of the handler, which can be read and written.
    pub handler: &'static str,
    /// Its keyword. The first of a list stands in the first place where it is given without one, and so on; one that stands
    /// there again is of another handler.
    pub keyword: &'static str,
}

/// An element whose arguments can be changed.
pub(super) struct Live {
    pub(super) class: &'static ElementClass,
    pub(super) args: &'static [LiveArg],
    pub(super) config: String,
    pub(super) inputs: u32,
    pub(super) outputs: u32,
    pub(super) gateways: Arc<Gateways>,
}

impl Live {
    /// The handlers of the element, of which these change the configuration, and `config`.
    pub(super) fn handlers(self, given: Vec<Handler>) -> Vec<Handler> {
        let text = Arc::new(Mutex::new(self.config.clone()));
        let set = {
            let text = text.clone();
            move |new: String| *text.lock().unwrap_or_else(PoisonError::into_inner) = new
        };
        let shown = move || text.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut handlers = Vec::with_capacity(given.len() + 2);
        for handler in &given {
            let place = self.args.iter().position(|arg| arg.handler == handler.name());
            let Some(place) = place.filter(|_| handler.is_writable()) else {
                handlers.push(handler.clone());
                continue;
            };
            let (arg, inner) = (self.args[place], handler.clone());
            let place =
                self.keywords().iter().position(|known| *known == arg.keyword).unwrap_or(place);
            let (shown, set) = (shown.clone(), set.clone());
            if handler.is_readable() {
                let inner = inner.clone();
                handlers.push(Handler::read_with(arg.handler, move |text| {
                    inner.call_read(arg.handler, text).map_err(|error| error.to_string())
                }));
            }
            handlers.push(Handler::write_warned(arg.handler, move |given| {
                let warnings = written(&inner, arg.handler, given)?;
                set(replaced(&shown(), place, arg.keyword, given.trim()));
                Ok(warnings)
            }));
        }
        let read = shown.clone();
        handlers.push(Handler::read("config", read));
        handlers.push(Handler::write("config", move |config| {
            for (arg, value) in self.args.iter().zip(self.values(config)?) {
                for handler in given.iter().filter(|handler| handler.name() == arg.handler) {
                    if handler.is_writable() {
                        written(handler, arg.handler, &value)?;
                    }
                }
            }
            set(config.trim().to_owned());
            Ok(())
        }));
        handlers
    }

    /// Keywords that can be changed, each once.
    fn keywords(&self) -> Vec<&'static str> {
        let mut keywords: Vec<_> = Vec::with_capacity(self.args.len());
        for arg in self.args {
            if !keywords.contains(&arg.keyword) {
                keywords.push(arg.keyword);
            }
        }
        keywords
    }

    /// Arguments of a configuration that cannot be changed.
    fn others(&self, config: &str) -> Result<Vec<String>, String> {
        configured(self.class.spec.name, config, |args| Ok(args.others_than(&self.keywords())))
    }

    /// What a new element of this configuration would have, for each argument.
    fn values(&self, config: &str) -> Result<Vec<String>, String> {
        let (present, new) = (self.others(&self.config)?, self.others(config)?);
        let only_in =
            |one: &[String], other: &[String]| one.iter().find(|arg| !other.contains(arg)).cloned();
        if let Some(other) = only_in(&new, &present).or_else(|| only_in(&present, &new)) {
            return Err(format!("`{other}` cannot be changed while the element is used"));
        }
        let ports = (self.inputs, self.outputs);
        let made = configured(self.class.spec.name, config, |args| {
            Setup::alone(args, ports, &self.gateways, &[], self.class.configure)
        })?;
        let value = |arg: &LiveArg| {
            let shows = |handler: &&Handler| handler.name() == arg.handler && handler.is_readable();
            let handler = made.handlers.iter().find(shows);
            let handler = handler.ok_or_else(|| format!("no handler {}", arg.handler))?;
            handler.call_read(arg.handler, "").map_err(|error| error.to_string())
        };
        self.args.iter().map(value).collect()
    }
}

/// Reads the arguments of a configuration that was written to an element of this class.
///
/// # Errors
/// What is wrong with them, a line each.
pub(crate) fn configured<T>(
    class: &str,
    config: &str,
    read: impl FnOnce(Args<'_>) -> Result<T, ConfigError>,
) -> Result<T, String> {
    let mut sources = Sources::default();
    let source = sources.add("config", config).ok_or("a text of 4 GiB or more")?;
    let end = u32::try_from(config.len()).map_err(|_| "a text of 4 GiB or more")?;
    let text = Text::of(&sources, Span { source, start: 0, end });
    let mut problems = Problems::default();
    let value = read(Args::new("", class, &text, &mut problems));
    value.map_err(|_| {
        let reports = problems.errors(&sources).reports.into_iter();
        let words = reports.map(|report| match report.in_click {
            Some(InClick::Configuring { words, .. }) => words,
            _ => report.message,
        });
        words.collect::<Vec<_>>().join("\n")
    })
}

fn written(handler: &Handler, name: &str, text: &str) -> Result<Vec<String>, String> {
    handler.call_write(name, text, &OpenPolicy::default()).map_err(|error| error.to_string())
}

/// Tickets of a task, in Click.
const TICKETS: u32 = 1024;
/// Most of them.
const MOST_TICKETS: u32 = 1 << 15;

/// Handlers of the task of an element with these handlers.
pub(super) fn task_handlers(given: &[Handler]) -> [Handler; 4] {
    let shown = |name: &str| {
        given.iter().find(|handler| handler.name() == name && handler.is_readable()).cloned()
    };
    let read = |handler: &Option<Handler>| {
        let text = handler.as_ref().and_then(|handler| handler.call_read("", "").ok())?;
        Some(text.trim().to_owned())
    };
    let parts = ["active", "limit", "count"].map(shown);
    let scheduled = move || {
        let [active, limit, count] = parts.each_ref().map(read);
        let number = |text: Option<String>| text.and_then(|text| text.parse::<i64>().ok());
        let done = match (number(limit), number(count)) {
            (Some(limit), Some(count)) => limit >= 0 && count >= limit,
            _ => false,
        };
        (active.as_deref() != Some("false") && !done).to_string()
    };
    let tickets = Arc::new(AtomicU32::new(TICKETS));
    let set = tickets.clone();
    [
        Handler::read("scheduled", scheduled),
        // Relaxed: nothing depends on it.
        Handler::read("tickets", move || tickets.load(Relaxed).to_string()),
        Handler::write("tickets", move |text| {
            let number = text.trim().parse::<u32>().ok().filter(|number| *number > 0);
            let number = number.ok_or("bad number of tickets")?;
            set.store(number.min(MOST_TICKETS), Relaxed);
            Ok(())
        }),
        Handler::read("home_thread", || "0".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn configurations_are_written_and_follow_handlers() {
        let text = "FromDevice(a) -> p :: Paint(5) -> s :: Switch -> q :: Queue(5) -> Unqueue -> ToDevice(b);
            s [1] -> Discard";
        let mut rig = Rig::new(&World::new(), text);
        let config = |rig: &Rig, name: &str| rig.read(&format!("{name}.config"));
        rig.write("q.config", "7");
        assert_eq!((rig.read("q.capacity"), config(&rig, "q")), ("7".into(), "7".into()));
        rig.write("q.config", "CAPACITY 8");
        rig.write("q.capacity", "9");
        assert_eq!((rig.read("q.capacity"), config(&rig, "q")), ("9".into(), "CAPACITY 9".into()));
        rig.write("p.color", "3");
        rig.write("s.switch", "1");
        assert_eq!([config(&rig, "p"), config(&rig, "s")], ["3", "1"]);
        rig.write("s.config", "0");
        assert_eq!(rig.read("s.switch"), "0");
        rig.receive("a", &[&[7]]);
        let refused = |rig: &Rig, text: &str| rig.handlers.write("q.config", text).unwrap_err();
        assert!(refused(&rig, "x").to_string().contains("CAPACITY: `x` is no whole number"));
        assert!(refused(&rig, "1, 2").to_string().contains("`2` cannot be changed"));
        assert_eq!(rig.read("q.capacity"), "9", "nothing was changed");
    }

    #[test]
    fn arguments_that_stay_are_given_again() {
        let text = "FromDevice(a) -> p :: Paint(5, ANNO 3) -> e :: EtherEncap(0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2) -> ToDevice(b)";
        let rig = Rig::new(&World::new(), text);
        rig.write("p.config", "6, ANNO 3");
        assert_eq!([rig.read("p.color"), rig.read("p.config")], ["6", "6, ANNO 3"]);
        for (config, word) in [("7", "ANNO 3"), ("7, ANNO 4", "ANNO 4"), ("7, ANNO 3, X 1", "X 1")]
        {
            let words = rig.handlers.write("p.config", config).unwrap_err().to_string();
            assert!(words.contains(&format!("`{word}` cannot be changed")), "{words}");
        }
        assert_eq!(rig.read("p.color"), "6", "nothing was changed");
        rig.write("e.etht", "34525");
        let config = rig.read("e.config");
        assert!(config.starts_with("34525, "), "{config}");
        assert_eq!([rig.read("e.ethertype"), rig.read("e.etht")], ["34525", "34525"]);
        rig.write("e.config", &config.replace("34525", "2054"));
        assert_eq!([rig.read("e.ethertype"), rig.read("e.etht")], ["2054", "2054"]);
    }

    #[test]
    fn tasks_have_handlers() {
        let text = "i :: InfiniteSource(LIMIT 2) -> Queue -> u :: Unqueue -> d :: Discard; Idle -> n :: Null -> Discard";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(rig.read("i.scheduled"), "true");
        (0..9).for_each(|_| drop(rig.poll()));
        assert_eq!([rig.read("i.scheduled"), rig.read("u.scheduled")], ["false", "true"]);
        assert_eq!([rig.read("u.tickets"), rig.read("u.home_thread")], ["1024", "0"]);
        rig.write("u.tickets", "5");
        assert_eq!(rig.read("u.tickets"), "5");
        for without in ["d", "n"] {
            assert!(!rig.read(&format!("{without}.handlers")).contains("scheduled"));
        }
    }
}
