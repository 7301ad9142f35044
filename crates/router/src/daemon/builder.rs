//! Threads that work beside the control thread: one builds lookup tables, one after the other, and loads their XDP programs;
//! another one makes what interfaces need that come.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;

use fingerpost_route::fib::{Job, Runner};

use crate::privilege;

/// Starts the thread that builds tables. It ends when the last copy of the runner is gone.
///
/// # Errors
/// When there are no threads left.
pub(super) fn start() -> io::Result<Runner> {
    // Tables that XDP programs read are maps.
    thread("builder", privilege::keep_to_load_programs)
}

/// Starts the thread that opens interfaces, which a build would keep waiting. It ends as that of [`start`] does.
///
/// # Errors
/// When there are no threads left.
pub(super) fn start_opener() -> io::Result<Runner> {
    thread("opener", privilege::keep_to_open_interfaces)
}

fn thread(name: &str, keep: fn()) -> io::Result<Runner> {
    let (jobs, received) = channel::<Job>();
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(move || {
        keep();
        for job in received {
            // The panic hook prints it, and who gave the job notices that its result is missing. Later jobs are done nevertheless.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    })?;
    // A job that nobody takes is dropped, which those who gave it notice.
    Ok(Runner::new(move |job| drop(jobs.send(job))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_panics_keeps_none_from_being_done() {
        let runner = thread("test", || ()).unwrap();
        let (done, results) = channel();
        let of_panic = done.clone();
        runner.run(move || {
            let _dropped = of_panic;
            panic!("a job that fails");
        });
        runner.run(move || done.send(7).expect("it is waited for"));
        assert_eq!(results.iter().collect::<Vec<_>>(), [7]);
    }
}
