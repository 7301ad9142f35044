//! The section `[log]`: what the daemon logs, and in which form.

use serde::Deserialize;

use crate::log::{Format, Levels};

/// The log on standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// The least important level that is logged: `"error"`, `"warn"`, `"info"`, `"debug"` or `"off"`, and others for single
    /// targets behind it, as `"info,fib=debug"`. Without it `"info"`.
    pub(crate) level: Levels,
    /// Form of a line.
    pub(crate) format: Format,
}
