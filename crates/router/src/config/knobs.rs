//! `[fib.knobs]`: when the FIB applies changes and looks for a better algorithm.
//!
//! The words are those of [`FibOptions`], which says what they mean; this is what a file may hold.

use fingerpost_route::fib::{FibOptionError, FibOptions};
use serde::Deserialize;

/// The knobs of every FIB; those that are left out have their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Knobs {
    pub(crate) bucket_time_ms: u32,
    pub(crate) bucket_change_threshold_rate: u32,
    pub(crate) max_sync_delay_ms: u32,
    pub(crate) evaluation_changes: u32,
    pub(crate) evaluation_s: u32,
    pub(crate) hysteresis_percent: u32,
    pub(crate) cpu_share_percent: u32,
    pub(crate) at_once_us: u32,
    pub(crate) trial_ms: u32,
    pub(crate) trial_mib: u32,
    pub(crate) audit_share_bp: u32,
}

impl Default for Knobs {
    fn default() -> Self {
        let options = FibOptions::default();
        Self {
            bucket_time_ms: options.bucket_time_ms,
            bucket_change_threshold_rate: options.bucket_change_threshold_rate,
            max_sync_delay_ms: options.max_sync_delay_ms,
            evaluation_changes: options.evaluation_changes,
            evaluation_s: options.evaluation_s,
            hysteresis_percent: options.hysteresis_percent,
            cpu_share_percent: options.cpu_share_percent,
            at_once_us: options.at_once_us,
            trial_ms: options.trial_ms,
            trial_mib: options.trial_mib,
            audit_share_bp: options.audit_share_bp,
        }
    }
}

impl Knobs {
    /// As the FIB takes them.
    ///
    /// # Errors
    /// The first that is out of its range.
    pub(crate) fn options(self) -> Result<FibOptions, FibOptionError> {
        let options = FibOptions {
            bucket_time_ms: self.bucket_time_ms,
            bucket_change_threshold_rate: self.bucket_change_threshold_rate,
            max_sync_delay_ms: self.max_sync_delay_ms,
            evaluation_changes: self.evaluation_changes,
            evaluation_s: self.evaluation_s,
            hysteresis_percent: self.hysteresis_percent,
            cpu_share_percent: self.cpu_share_percent,
            at_once_us: self.at_once_us,
            trial_ms: self.trial_ms,
            trial_mib: self.trial_mib,
            audit_share_bp: self.audit_share_bp,
        };
        options.validated()
    }
}
