//! Levels of the log.

use tracing::info;

use super::bad;
use crate::api::error::ApiError;
use crate::api::log::{LogChange, LogState, LogTarget};
use crate::log::{self, Levels, Report, TARGETS, level_name};

/// State of the log.
pub(super) fn state() -> LogState {
    let none = || Report { levels: Levels::default(), format: log::Format::Text, suppressed: 0 };
    let Report { levels, format, suppressed } = log::report().unwrap_or_else(none);
    let targets = TARGETS.iter().map(|&(target, summary)| LogTarget {
        target: target.to_owned(),
        level: level_name(levels.of(target)).to_owned(),
        summary: summary.to_owned(),
    });
    LogState {
        level: levels.to_string(),
        format: format.name().to_owned(),
        suppressed,
        targets: targets.collect(),
    }
}

/// Changes levels.
pub(super) fn set(change: &LogChange) -> Result<(), ApiError> {
    let Some(Report { mut levels, format, .. }) = log::report() else { return Ok(()) };
    levels.set(&change.level).map_err(|words| bad("level", words))?;
    // At the levels before: also who turns off the log of changes is in it.
    info!(target: "control", levels = %levels, "log levels are {levels} from now on");
    log::set(&levels, format);
    Ok(())
}
