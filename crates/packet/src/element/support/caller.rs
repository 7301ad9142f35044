//! Handlers that an element calls: names mean first what is in its own compound, then what is around that.

#[cfg(feature = "click")]
use std::io::{self, Write as _};

use super::console;
use crate::graph::{Installed, Setup};
use crate::handler::{Handler, HandlerError};
use crate::language::open_policy::OpenPolicy;

/// Calls handlers for one element.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    installed: Installed,
    /// The element's name, with its dot.
    #[cfg(feature = "click")]
    own: String,
    /// Compounds that it is in, the innermost first, each with its slash; the last is empty.
    around: Vec<String>,
    /// What may be opened by what it writes.
    policy: OpenPolicy,
}

impl Caller {
    pub(crate) fn of(setup: &Setup<'_>) -> Self {
        let mut around = Vec::new();
        let mut name = setup.name();
        while let Some((compound, _)) = name.rsplit_once('/') {
            around.push(format!("{compound}/"));
            name = compound;
        }
        around.push(String::new());
        Self {
            installed: setup.installed.clone(),
            #[cfg(feature = "click")]
            own: format!("{}.", setup.name()),
            around,
            policy: setup.policy.clone(),
        }
    }

    /// The handler of a name, and its whole name.
    pub(crate) fn found(&self, name: &str) -> Result<(String, Handler), HandlerError> {
        let none = || HandlerError::NoHandler(name.to_owned());
        let handlers = self.installed.handlers().ok_or_else(none)?;
        // A name alone is one of the element's own handlers first.
        #[cfg(feature = "click")]
        if !name.contains('.')
            && let whole = format!("{}{name}", self.own)
            && let Ok(handler) = handlers.find(&whole)
        {
            return Ok((whole, handler.clone()));
        }
        let mut missing = None;
        for compound in &self.around {
            // Global ones are of no compound.
            let whole =
                if name.contains('.') { format!("{compound}{name}") } else { name.to_owned() };
            match handlers.find(&whole) {
                Ok(handler) => return Ok((whole, handler.clone())),
                Err(error) => missing = Some(error),
            }
        }
        Err(match missing {
            Some(HandlerError::NoElement(_)) => {
                HandlerError::NoElement(name.split_once('.').map_or(name, |(e, _)| e).to_owned())
            }
            _ => none(),
        })
    }

    /// What may be opened.
    #[cfg(feature = "click")]
    pub(crate) fn policy(&self) -> &OpenPolicy {
        &self.policy
    }

    /// Writes a text to a file that may be opened, behind what it holds where `append`.
    #[cfg(feature = "click")]
    pub(crate) fn write_file(&self, name: &str, text: &str, append: bool) -> io::Result<()> {
        let file = if append { self.policy.output(name) } else { self.policy.new_output(name) };
        let Some(mut file) = file? else { return Ok(()) };
        file.write_all(text.as_bytes())
    }

    /// Whether it can be read, and whether it can be written.
    #[cfg(feature = "click")]
    pub(crate) fn modes(&self, name: &str) -> (bool, bool) {
        let modes = |(_, handler): (_, Handler)| (handler.is_readable(), handler.is_writable());
        self.found(name).map(modes).unwrap_or_default()
    }

    /// Writes to a handler; what it warned of.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<Vec<String>, HandlerError> {
        let (whole, handler) = self.found(name)?;
        handler.call_write(&whole, text, &self.policy)
    }

    /// Calls a handler by its name and what is written to it, as an argument has them; reports where that fails.
    pub(crate) fn call(&self, call: &str) {
        let call = call.trim();
        let (name, text) = call.split_once(char::is_whitespace).unwrap_or((call, ""));
        if let Err(error) = self.write(name, text.trim()) {
            console::warn(&error.to_string());
        }
    }
}
