//! SIGHUP: the configuration file is read again, as `config apply` of it would.
//!
//! A thread of its own reads and checks the file and its lists, and asks the daemon for the change: routes,
//! packets and other questions go on. What is refused changes nothing, and the signal never ends the program.

use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use fingerpost_lpm::input;

use crate::api::backend::Ask;
use crate::api::error::{ApiError, Code, Detail};
use crate::api::features::apply;
use crate::api::model::{ConfigChange, ConfigText};
use crate::cli::config::told;
use crate::cli::output::message;
use crate::privilege;
use crate::sys;

/// What is done at SIGHUP.
pub(super) struct Reload {
    file: Option<PathBuf>,
    ask: Ask,
    under_way: Option<JoinHandle<()>>,
}

impl Reload {
    /// Of the file that the run was started with, if it was.
    pub(super) fn new(file: Option<PathBuf>, ask: Ask) -> Self {
        Self { file, ask, under_way: None }
    }

    /// Begins what the signal asks for. One that comes while a file is read is taken up after it.
    pub(super) fn turn(&mut self) {
        if self.under_way.as_ref().is_some_and(|thread| !thread.is_finished())
            || !sys::reload_asked()
        {
            return;
        }
        let Some(file) = self.file.clone() else {
            return message(
                "SIGHUP: this run was started without a configuration file to read again",
            );
        };
        let ask = self.ask.clone();
        let thread = std::thread::Builder::new().name("fingerpost-hup".into());
        match thread.spawn(move || read_again(&file, &ask)) {
            Ok(thread) => self.under_way = Some(thread),
            Err(error) => message(format_args!("SIGHUP: {error}: nothing changes")),
        }
    }
}

fn read_again(file: &Path, ask: &Ask) {
    privilege::keep_for_files();
    let name = file.display();
    match changes(file, ask) {
        Ok(changes) if changes.is_empty() => message(format_args!("{name} read again: no change")),
        Ok(changes) => {
            message(format_args!("{name} read again:"));
            changes.iter().for_each(|change| message(told(change)));
        }
        Err(error) => {
            let error_alone = Detail { message: error.message, place: error.place };
            let all = if error.errors.is_empty() { vec![error_alone] } else { error.errors };
            for Detail { message: what, place } in all {
                let place = place.map_or(String::new(), |place| format!("{place}: "));
                message(format_args!("{place}{what}"));
            }
            message(format_args!("{name} is refused: the running configuration stays"));
        }
    }
}

fn changes(file: &Path, ask: &Ask) -> Result<Vec<ConfigChange>, ApiError> {
    let name = file.display().to_string();
    let failed = |error: io::Error| ApiError {
        place: Some(name.clone()),
        ..ApiError::new(Code::Refused, error)
    };
    let text = input::read_text(file).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(failed)?;
    runtime.block_on(apply(ask, ConfigText { file: name.clone(), text }))
}
