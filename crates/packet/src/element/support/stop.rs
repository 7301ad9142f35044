//! The end of a run, as a source requests it at its limit.

use super::caller::Caller;
use super::console;
use crate::graph::{Ending, Setup};
use crate::language::ConfigError;

/// Request of one source, made once until the source begins again.
pub(crate) struct Stop {
    /// Request of the graph; `None` where the source stays idle at its limit.
    run: Option<Ending>,
    /// A handler that is called then.
    call: Option<EndCall>,
    is_made: bool,
}

/// A handler with the text that is written to it.
#[derive(Clone)]
pub(crate) struct EndCall {
    caller: Caller,
    name: String,
    text: String,
}

impl EndCall {
    /// The argument `END_CALL`, where it is given.
    ///
    /// # Errors
    /// It is no text.
    pub(crate) fn read(setup: &mut Setup<'_>) -> Result<Option<Self>, ConfigError> {
        let Some(given) = setup.args.keyword::<String>("END_CALL")? else { return Ok(None) };
        let (name, text) = given.trim().split_once(char::is_whitespace).unwrap_or((&given, ""));
        let (name, text) = (name.trim().to_owned(), text.trim().to_owned());
        Ok(Some(Self { caller: Caller::of(setup), name, text }))
    }

    fn make(&self) {
        if let Err(error) = self.caller.write(&self.name, &self.text) {
            console::warn(&error.to_string());
        }
    }
}

impl Stop {
    /// A request that is not made yet.
    pub(crate) fn new(run: Option<Ending>) -> Self {
        Self { run, call: None, is_made: false }
    }

    /// Calls this as well.
    pub(crate) fn calling(self, call: Option<EndCall>) -> Self {
        Self { call, ..self }
    }

    /// Makes it, unless it was made before.
    pub(crate) fn request(&mut self) {
        if let Some(run) = self.run.as_ref().filter(|_| !self.is_made) {
            run.request();
        }
        if let Some(call) = self.call.as_ref().filter(|_| !self.is_made) {
            // Whatever it calls finds the request made.
            self.is_made = true;
            call.make();
        }
        self.is_made = true;
    }

    /// Begins again.
    pub(crate) fn reset(&mut self) {
        self.is_made = false;
    }
}
