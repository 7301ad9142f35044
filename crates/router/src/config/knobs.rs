//! `[fib.knobs]`: when the FIB applies changes and looks for a better algorithm.
//!
//! The words are those of [`FibOptions`], which describes them and has the defaults of those that
//! are left out; this is the list of what a file may hold.

use fingerpost_route::fib::FibOptions;
use serde::Deserialize;

/// How [`FibOptions`] are read: for `#[serde(with)]`.
#[derive(Deserialize)]
#[serde(remote = "FibOptions", deny_unknown_fields, default = "FibOptions::default")]
pub(super) struct Knobs {
    bucket_time_ms: u32,
    bucket_change_threshold_rate: u32,
    max_sync_delay_ms: u32,
    evaluation_changes: u32,
    evaluation_s: u32,
    hysteresis_percent: u32,
    cpu_share_percent: u32,
    at_once_us: u32,
    #[serde(alias = "trial_ms")]
    calibration_ms: u32,
    #[serde(alias = "trial_mib")]
    calibration_mib: u32,
    audit_share_bp: u32,
}
