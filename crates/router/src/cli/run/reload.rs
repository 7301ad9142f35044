//! SIGHUP: the configuration file is read again, as `config apply` of it would.
//!
//! A thread of its own reads and checks the file and its lists, and requests the change from the daemon: routes,
//! packets and other requests do not wait. A refused file changes nothing, and the signal never ends the program.

use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use fingerpost_lpm::input;
use tracing::{error, info, warn};

use crate::api::access::Requester;
use crate::api::backend::Requests;
use crate::api::config::{ConfigApply, apply};
use crate::api::error::{ApiError, Code, Detail};
use crate::api::model::ConfigChange;
use crate::config::Config;
use crate::privilege;
use crate::sys;

/// What is done at SIGHUP.
pub(super) struct Reload {
    file: Option<PathBuf>,
    requests: Requests,
    under_way: Option<JoinHandle<()>>,
}

impl Reload {
    /// Reload of the file that the run was started with, if any.
    pub(super) fn new(file: Option<PathBuf>, requests: Requests) -> Self {
        Self { file, requests, under_way: None }
    }

    /// Begins a reload after a signal. A signal during a reload is taken up after it.
    pub(super) fn turn(&mut self) {
        if self.under_way.as_ref().is_some_and(|thread| !thread.is_finished())
            || !sys::reload_asked()
        {
            return;
        }
        let Some(file) = self.file.clone() else {
            warn!(
                target: "config",
                "SIGHUP: this run was started without a configuration file to read again"
            );
            return;
        };
        let requests = self.requests.clone();
        let thread = std::thread::Builder::new().name("fingerpost-hup".into());
        match thread.spawn(move || read_again(&file, &requests)) {
            Ok(thread) => self.under_way = Some(thread),
            Err(error) => error!(target: "config", "SIGHUP: {error}: nothing changes"),
        }
    }
}

fn read_again(file: &Path, requests: &Requests) {
    privilege::keep_for_jobs();
    let name = file.display();
    match changes(file, requests) {
        Ok(changes) if changes.is_empty() => {
            info!(target: "config", "{name} read again: no change");
        }
        Ok(changes) => {
            info!(target: "config", "{name} read again:");
            changes.iter().for_each(|change| info!(target: "config", "{change}"));
        }
        Err(error) if error.code.is_done() => {
            warn!(target: "config", "{name} read again: {error}");
        }
        Err(error) => {
            let error_alone = Detail { message: error.message, place: error.place };
            let all = if error.errors.is_empty() { vec![error_alone] } else { error.errors };
            for Detail { message: what, place } in all {
                let place = place.map_or(String::new(), |place| format!("{place}: "));
                error!(target: "config", "{place}{what}");
            }
            error!(target: "config", "{name} is refused: the running configuration stays");
        }
    }
}

fn changes(file: &Path, requests: &Requests) -> Result<Vec<ConfigChange>, ApiError> {
    let name = file.display().to_string();
    let failed = |error: io::Error| ApiError {
        place: Some(name.clone()),
        ..ApiError::new(Code::Refused, error)
    };
    let text = input::read_text(file).map_err(failed)?;
    for what in Config::former_names_of(file, &text) {
        warn!(target: "config", "{what}");
    }
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // The change is waited for.
    let runtime = runtime.enable_time().build().map_err(failed)?;
    let wanted = ConfigApply { file: name.clone(), text, confirm_s: None };
    Ok(runtime.block_on(apply(requests, wanted, Requester::daemon("SIGHUP")))?.changes)
}
