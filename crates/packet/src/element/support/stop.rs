//! The end of a run, as a source requests it at its limit.

use super::caller::Caller;
use super::setting::Setting;
use crate::graph::{Ending, Made, Setup};
use crate::language::ConfigError;

/// Request of one source, made once until the source begins again.
pub(crate) struct Stop {
    /// Request of the graph; `None` where the source stays idle at its limit.
    run: Option<Ending>,
    /// A handler that is called then.
    call: Option<EndCall>,
    is_made: bool,
}

/// A handler that is called at an end.
#[derive(Clone)]
pub(crate) struct EndCall {
    caller: Caller,
    /// Its name and the text that is written to it.
    call: String,
}

impl EndCall {
    /// The argument `END_CALL`, where it is given.
    ///
    /// # Errors
    /// It is given twice.
    pub(crate) fn read(setup: &mut Setup<'_>) -> Result<Option<Self>, ConfigError> {
        let Some(given) = setup.args.keyword_arg("END_CALL")? else { return Ok(None) };
        let call = given.uncommented().into_owned();
        Ok(Some(Self { caller: Caller::of(setup), call }))
    }

    /// Calls it.
    pub(crate) fn make(&self) {
        self.caller.call(&self.call);
    }

    /// Calls it with a text in place of one of its words.
    #[cfg(feature = "click")]
    pub(crate) fn make_of(&self, word: &str, text: &str) {
        let words = self.call.split(' ').map(|part| if part == word { text } else { part });
        self.caller.call(&words.collect::<Vec<_>>().join(" "));
    }
}

/// Adds the handler `stop`, which ends the run, and makes the element inactive.
pub(crate) fn handled(made: Made, setup: &Setup<'_>, active: &Setting<bool>) -> Made {
    let (halt, ending) = (active.clone(), setup.ending.clone());
    made.command("stop", move || {
        halt.set(false);
        ending.request();
    })
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
