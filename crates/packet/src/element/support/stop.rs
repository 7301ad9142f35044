//! The end of a run, as a source requests it at its limit.

use crate::graph::Ending;

/// Request of one source, made once until the source begins again.
pub(crate) struct Stop {
    /// Request of the graph; `None` where the source stays idle at its limit.
    run: Option<Ending>,
    is_made: bool,
}

impl Stop {
    /// A request that is not made yet.
    pub(crate) fn new(run: Option<Ending>) -> Self {
        Self { run, is_made: false }
    }

    /// Makes it, unless it was made before.
    pub(crate) fn request(&mut self) {
        if let Some(run) = self.run.as_ref().filter(|_| !self.is_made) {
            run.request();
        }
        self.is_made = true;
    }

    /// Begins again.
    pub(crate) fn reset(&mut self) {
        self.is_made = false;
    }
}
