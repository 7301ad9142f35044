//! The log of a running router: events of `tracing` as lines on standard error.
//!
//! ```text
//! event! -- levels.rs (is it wanted?) -- limit.rs (does it repeat?) -- line.rs (text, JSON, priority) -- standard error
//!                                                                  \- journal.rs (fields) ------------ the journal
//! ```
//!
//! Each event has a level, a target of [`TARGETS`], a message that a person can read with the numbers of the decision in it, and
//! the same numbers as fields, which JSON has apart. The control side logs; the packet path counts and logs nothing.
//!
//! The subscriber is our own: levels by target and one line an event need neither spans nor a registry of them, and so none of
//! the packages that would come with it (docs/decisions/0022).
//!
//! Cost: an event that is not wanted is a load of an atomic or two. One that is logged holds a lock while it is written.

mod journal;
mod levels;
mod limit;
mod line;

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use journal::Journal;
pub(crate) use levels::{Levels, TARGETS, level_name};
use limit::{Limit, Repeated};
pub(crate) use line::Format;
use line::{Line, Medium};

/// The log of this process, once it has begun.
static LOG: OnceLock<Arc<Log>> = OnceLock::new();

/// A log: what is wanted, and where it is written.
struct Log {
    state: Mutex<State>,
}

struct State {
    levels: Levels,
    format: Format,
    medium: Medium,
    journal: Journal,
    limit: Limit,
    to: Box<dyn Write + Send>,
    /// Lines that were left out because they repeated.
    suppressed: u64,
}

/// State of the log, for reports.
pub(crate) struct Report {
    pub(crate) levels: Levels,
    pub(crate) format: Format,
    pub(crate) suppressed: u64,
}

/// Begins the log on standard error; later calls change it. Messages of commands become lines of it.
pub(crate) fn begin(levels: &Levels, format: Format) {
    let log = LOG.get_or_init(|| {
        let to = Box::new(io::stderr());
        let log = Arc::new(Log::new(levels.clone(), format, Medium::of_stderr(), to));
        // It fails where there is one, as in a test that has its own.
        let _ = tracing::subscriber::set_global_default(Handle(log.clone()));
        log
    });
    log.set(levels, format);
    // What commands print stays visible at any level: the last of it is why a run ends.
    fingerpost_command::output::redirect(|words| {
        let Some(log) = LOG.get() else { return };
        let fields = serde_json::Map::new();
        log.state().write(&Line { level: Level::ERROR, target: "run", message: words, fields });
    });
}

/// Other levels and another format from now on.
pub(crate) fn set(levels: &Levels, format: Format) {
    if let Some(log) = LOG.get() {
        log.set(levels, format);
    }
}

/// State of the log; `None` before it begins.
pub(crate) fn report() -> Option<Report> {
    let log = LOG.get()?;
    let state = log.state();
    let State { levels, format, suppressed, .. } = &*state;
    Some(Report { levels: levels.clone(), format: *format, suppressed: *suppressed })
}

/// Reports what was left out in a second that is over. To be called now and then.
pub(crate) fn turn() {
    if let Some(log) = LOG.get() {
        log.state().end_second(Instant::now());
    }
}

/// Reports what was left out so far, at the end of a run.
pub(crate) fn end() {
    if let Some(log) = LOG.get() {
        log.state().report_repeated();
    }
}

impl Log {
    fn new(levels: Levels, format: Format, medium: Medium, to: Box<dyn Write + Send>) -> Self {
        let limit = Limit::default();
        let journal = Journal::default();
        let state = State { levels, format, medium, journal, limit, to, suppressed: 0 };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A line that broke off harms no other one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, levels: &Levels, format: Format) {
        {
            let mut state = self.state();
            (state.levels, state.format) = (levels.clone(), format);
        }
        tracing::callsite::rebuild_interest_cache();
    }
}

impl State {
    fn end_second(&mut self, now: Instant) {
        if self.limit.is_over(now) {
            self.report_repeated();
        }
    }

    fn report_repeated(&mut self) {
        for Repeated { level, target, count, message } in self.limit.take() {
            self.suppressed += count;
            let words = format!("{count} more messages like this one were left out: {message}");
            let fields = [("suppressed".to_owned(), count.into())].into_iter().collect();
            self.write(&Line { level, target, message: &words, fields });
        }
    }

    fn write(&mut self, line: &Line<'_>) {
        // What the journal does not take is a line: nothing is lost where there is none.
        if self.format == Format::Journald && self.journal.send(line).is_ok() {
            return;
        }
        let text = line.text(self.format, self.medium, SystemTime::now());
        // With standard error closed there is no place left for it.
        let _ = self.to.write_all(text.as_bytes());
    }
}

/// The log as `tracing` has it.
struct Handle(Arc<Log>);

impl Subscriber for Handle {
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.state().levels.most())
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.0.state().levels.wants(metadata.target(), *metadata.level())
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, fields } = fields;
        let metadata = event.metadata();
        let mut state = self.0.state();
        state.end_second(Instant::now());
        if state.limit.admits(metadata, &message) {
            let (level, target) = (*metadata.level(), metadata.target());
            state.write(&Line { level, target, message: &message, fields });
        }
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Message and fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    fields: serde_json::Map<String, serde_json::Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<serde_json::Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.put(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.put(field, value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // Thousandths are enough, and zeroes behind them are noise.
        self.put(field, (value * 1e3).round() / 1e3);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

#[cfg(test)]
pub(crate) mod tests;
