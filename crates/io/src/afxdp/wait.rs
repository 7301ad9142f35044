//! Sleeping until a port is readable: poll(2) on the ports of a worker and on an event to wake it by.
//!
//! Cost: a system call a sleep, which only a worker without work makes.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Buffers handed to the kernel live through the call and have the size given.
//! 2. A descriptor that the kernel returns is new and ours alone.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use fingerpost_packet::device::Wait;

/// Sleeps in poll(2).
#[derive(Debug)]
pub struct PollWait {
    event: Arc<OwnedFd>,
    polled: Vec<libc::pollfd>,
}

/// Wakes the worker that sleeps in the [`PollWait`] it came with; also when it is about to sleep.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl PollWait {
    /// A sleeper and what wakes it.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new() -> io::Result<(Self, Waker)> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: invariant 2.
        let event = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok((Self { event: event.clone(), polled: Vec::new() }, Waker(event)))
    }

    /// Whether anything was ready; leaves the answers in `polled`.
    fn poll(&mut self, timeout: Duration) -> bool {
        let time = libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let count = self.polled.len() as libc::nfds_t;
        // SAFETY: invariant 1.
        let ready = unsafe {
            libc::ppoll(self.polled.as_mut_ptr(), count, &raw const time, std::ptr::null())
        };
        // An interruption is an early return, which the trait allows.
        ready > 0
    }
}

impl Wait for PollWait {
    fn wait(&mut self, fds: &[RawFd], timeout: Duration) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        self.polled.clear();
        self.polled.push(entry(self.event.as_raw_fd()));
        self.polled.extend(fds.iter().copied().map(entry));
        if !self.poll(timeout) {
            return;
        }
        if self.polled.iter().all(|p| p.revents & libc::POLLIN == 0) {
            // Only errors: a port whose device is gone would have us spin until it is closed.
            for polled in &mut self.polled {
                if polled.revents != 0 {
                    polled.fd = -1;
                }
            }
            self.poll(timeout.min(Duration::from_millis(1)));
        }
        if self.polled[0].revents & libc::POLLIN != 0 {
            let mut count = [0u8; 8];
            // SAFETY: invariant 1. It can only fail by having been read before.
            unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        }
    }
}

impl Waker {
    /// Ends the present sleep, or the next.
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: invariant 1. It can only fail by overflow, and then the sleeper is awake.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// How long a wait took, whether it was cut short.
    fn short(wait: &mut PollWait, fds: &[RawFd], timeout: Duration) -> bool {
        let start = Instant::now();
        wait.wait(fds, timeout);
        start.elapsed() < LONG / 2
    }

    #[test]
    fn a_sleep_ends_by_data_by_waking_and_by_time() {
        let (mut wait, waker) = PollWait::new().unwrap();
        let (mut there, here) = UnixStream::pair().unwrap();
        let fds = [here.as_raw_fd()];
        let start = Instant::now();
        wait.wait(&fds, Duration::from_millis(30));
        assert!(start.elapsed() >= Duration::from_millis(30), "nothing happened before");

        waker.wake();
        assert!(short(&mut wait, &fds, LONG), "woken before the sleep");
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.clone().wake();
        });
        assert!(short(&mut wait, &fds, LONG), "woken in the sleep");
        other.join().unwrap();
        let start = Instant::now();
        wait.wait(&fds, Duration::from_millis(30));
        assert!(start.elapsed() >= Duration::from_millis(30), "a waking counts once");

        there.write_all(b"x").unwrap();
        assert!(short(&mut wait, &fds, LONG), "data");
    }

    #[test]
    fn a_broken_descriptor_does_not_make_it_spin() {
        let (mut wait, waker) = PollWait::new().unwrap();
        let (there, here) = UnixStream::pair().unwrap();
        drop(there);
        let broken = [here.as_raw_fd(), 1_000_000];
        // The closed peer reads as end of file, which is data; the number that is no descriptor not.
        assert!(short(&mut wait, &broken[..1], LONG));
        let start = Instant::now();
        for _ in 0..20 {
            wait.wait(&broken[1..], LONG);
        }
        assert!(start.elapsed() >= Duration::from_millis(20) && start.elapsed() < LONG / 2);
        waker.wake();
        wait.wait(&broken[1..], LONG);
    }
}
