//! Queues near an element: those that its packets come to first, and how full they are.
//!
//! Source: Click's `RED` and `CoDel`, which look for queues so unless `QUEUES` names them: behind themselves, else
//! before themselves.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use crate::graph::Setup;
use crate::language::{Codes, ConfigError, Processing};

/// Packets in a queue, as the queue itself shows it.
#[derive(Default)]
pub(crate) struct Length(OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>);

impl Length {
    /// Lets this be the length of the queue.
    pub(crate) fn show(&self, read: impl Fn() -> u64 + Send + Sync + 'static) {
        // A queue is configured once.
        let _ = self.0.set(Box::new(read));
    }

    fn read(&self) -> u64 {
        self.0.get().map_or(0, |read| read())
    }
}

/// Queues whose lengths count together.
#[derive(Clone)]
pub(crate) struct Queues {
    lengths: Arc<[Arc<Length>]>,
    /// Their names, a line each.
    pub(crate) names: Arc<str>,
    /// They are behind the element.
    pub(crate) behind: bool,
}

impl Queues {
    /// Reads `QUEUES`, or looks for them.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn read(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let (mut found, mut is_behind) = (Vec::new(), true);
        match setup.args.keyword_arg("QUEUES")? {
            Some(arg) => {
                for word in arg.words() {
                    let name: String = setup.args.read(&word, "QUEUES")?;
                    match setup.element(&name) {
                        Some((number, _)) if is_queue(setup, number) => found.push(number),
                        _ => {
                            return Err(setup
                                .args
                                .refuse(&word, &format!("QUEUES: `{name}` is no queue")));
                        }
                    }
                }
            }
            None => {
                let queues = |behind| near(setup, behind, |number| is_queue(setup, number));
                let behind = queues(true);
                is_behind = !behind.is_empty();
                found = if is_behind { behind } else { queues(false) };
            }
        }
        // Outside of a configuration there is nothing to look at.
        if found.is_empty() && setup.around.configuration.is_some() {
            return Err(setup
                .args
                .refuse_all("no queue is near it: QUEUES names those that count"));
        }
        let elements = setup.around.configuration.map_or(&[][..], |all| all.elements());
        let names: String =
            found.iter().map(|&number| format!("{}\n", elements[number].name)).collect();
        let lengths = found.iter().map(|&number| setup.shared::<Length>(number)).collect();
        Ok(Self { lengths, names: names.into(), behind: is_behind })
    }

    /// Packets in all of them.
    pub(crate) fn length(&self) -> u64 {
        self.lengths.iter().map(|length| length.read()).sum()
    }
}

/// Whether packets wait in an element: what is pushed to it is pulled from it.
pub(crate) fn is_queue(setup: &Setup<'_>, number: usize) -> bool {
    let Some(configuration) = setup.around.configuration else { return false };
    let spec = &configuration.elements()[number].class;
    Codes::read(spec).is_ok_and(|codes| {
        codes.input(0) == Processing::Push && codes.output(0) == Processing::Pull
    })
}

/// Numbers of the first elements that `is` wants on all paths from an element, or to it.
pub(crate) fn near(setup: &Setup<'_>, behind: bool, is: impl Fn(usize) -> bool) -> Vec<usize> {
    let Some(configuration) = setup.around.configuration else { return Vec::new() };
    let (mut found, mut seen) = (Vec::new(), HashSet::from([setup.number()]));
    let mut open = vec![setup.number()];
    while let Some(at) = open.pop() {
        for wire in configuration.connections() {
            let (from, to) = (wire.from as usize, wire.to as usize);
            let (here, next) = if behind { (from, to) } else { (to, from) };
            if here != at || !seen.insert(next) {
                continue;
            }
            if is(next) {
                found.push(next);
            } else {
                open.push(next);
            }
        }
    }
    found.sort_unstable();
    found
}
