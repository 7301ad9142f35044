//! The thread that builds lookup tables beside the control thread, one after the other, and loads XDP programs.

use std::io;
use std::sync::mpsc::channel;

use fingerpost_route::fib::{Job, Runner};

/// Starts the thread. It ends when the last copy of the runner is gone.
///
/// # Errors
/// When there are no threads left.
pub(super) fn start() -> io::Result<Runner> {
    let (jobs, received) = channel::<Job>();
    let thread = std::thread::Builder::new().name("builder".into());
    thread.spawn(move || {
        // Tables that XDP programs read are maps.
        crate::privilege::keep_to_load_programs();
        received.iter().for_each(|job| job());
    })?;
    // A job that nobody takes is dropped, which those who gave it notice.
    Ok(Runner::new(move |job| drop(jobs.send(job))))
}
