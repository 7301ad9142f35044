//! Messages to the service manager (sd_notify(3)): state of the service, and keep-alives for its watchdog.
//!
//! A message is a datagram to the socket that the manager names in `NOTIFY_SOCKET`. Without that variable nothing is sent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::sys;

/// Interval at which the status text is renewed.
const STATUS: Duration = Duration::from_secs(1);
/// Longest wait for the manager to take a message.
const LONGEST: Duration = Duration::from_millis(200);

/// The control thread's side: status and keep-alives.
#[derive(Debug)]
pub(crate) struct Service {
    /// Interval of keep-alives, half of the time that the manager waits; `None` where it waits for none.
    interval: Option<Duration>,
    alive: Instant,
    status: Instant,
    /// Status text that was sent last.
    sent: String,
}

impl Service {
    /// Reports that the service is ready, with its status.
    pub(crate) fn ready(status: String) -> Self {
        let variable = |name| std::env::var(name).ok();
        let pid = std::process::id().to_string();
        let interval = watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), &pid);
        send(&format!("READY=1\nSTATUS={status}"));
        let now = Instant::now();
        Self { interval, alive: now, status: now, sent: status }
    }

    /// Sends what is due: a keep-alive, and the status if it changed.
    pub(crate) fn turn(&mut self, now: Instant, status: impl FnOnce() -> String) {
        if self.interval.is_some_and(|interval| now >= self.alive + interval) {
            self.alive = now;
            send("WATCHDOG=1");
        }
        if now >= self.status + STATUS {
            self.status = now;
            let status = status();
            if status != self.sent {
                send(&format!("STATUS={status}"));
                self.sent = status;
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        send("STOPPING=1");
    }
}

/// A change of the configuration, while the manager shows the service as reloading.
pub(crate) struct Reloading(());

impl Reloading {
    /// Reports the beginning of a change.
    pub(crate) fn begin() -> Self {
        let micros = sys::monotonic_time().as_micros();
        send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        Self(())
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        send("READY=1");
    }
}

/// Half of the time that the manager waits, if that is for this process.
fn watchdog(usec: Option<String>, pid: Option<String>, own: &str) -> Option<Duration> {
    let usec: u64 = usec?.parse().ok()?;
    let ours = pid.is_none_or(|pid| pid == own);
    (ours && usec > 0).then(|| Duration::from_micros(usec) / 2)
}

/// Sends a message to the service manager, if there is one, and waits at most [`LONGEST`].
fn send(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    if let Err(error) = send_to(&name, state) {
        warn!(target: "run", "the service manager did not get {state:?}: {error}");
    }
}

/// Sends to a path, or to an abstract address where the name begins with `@`.
fn send_to(name: &OsStr, state: &str) -> io::Result<()> {
    let addr = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(LONGEST))?;
    socket.send_to_addr(state.as_bytes(), &addr).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_come_at_half_the_time() {
        let of = |usec: &str, pid: Option<&str>| {
            watchdog(Some(usec.into()), pid.map(str::to_owned), "7")
        };
        assert_eq!(of("3000000", None), Some(Duration::from_millis(1500)));
        assert_eq!(of("3000000", Some("7")), of("3000000", None));
        assert_eq!([of("3000000", Some("8")), of("0", None), of("x", None)], [None; 3]);
        assert_eq!(watchdog(None, None, "7"), None);
    }

    #[test]
    fn both_kinds_of_addresses_are_reached() {
        let name = format!("fingerpost-service-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let file = UnixDatagram::bind(&path).unwrap();
        let addr = SocketAddr::from_abstract_name(&name).unwrap();
        let hidden = UnixDatagram::bind_addr(&addr).unwrap();
        for (socket, name) in
            [(file, path.clone().into_os_string()), (hidden, format!("@{name}").into())]
        {
            send_to(&name, "READY=1").unwrap();
            let mut buffer = [0; 64];
            let count = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], b"READY=1");
        }
        std::fs::remove_file(path).unwrap();
    }
}
