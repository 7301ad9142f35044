//! The journal of systemd by its own protocol: an event is a datagram of fields, so that `journalctl FIELD=VALUE` finds it.
//!
//! Source: "Native Journal Protocol" of systemd's documentation. A field is `NAME=value` and the end of the line; where the
//!         value has such an end, `NAME`, the end of the line, the length in 8 bytes (little-endian), and the value.
//! Cost:   a system call an event. It never waits for the journal.
//! Limits: an event of at most some 200 KiB, as a socket takes it.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use serde_json::Value;

use super::line::{Line, escaped, priority};

/// Where the journal listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Sends events to the journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

impl Default for Journal {
    fn default() -> Self {
        Self::at(SOCKET.into())
    }
}

impl Journal {
    /// A journal that listens there.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, socket: None }
    }

    /// Sends an event.
    ///
    /// # Errors
    /// When there is no journal, or it does not take the event now.
    pub(super) fn send(&mut self, line: &Line<'_>) -> io::Result<()> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                none.insert(socket)
            }
        };
        // By its name each time: a journal that was restarted has another socket there.
        socket.send_to(&datagram(line), &self.path).map(drop)
    }
}

/// The fields of an event. Names of the event's own begin with `FINGERPOST_`, so that none means something else to the journal.
fn datagram(line: &Line<'_>) -> Vec<u8> {
    let Line { level, target, message, fields } = line;
    let mut all = Vec::new();
    // journalctl shows it as it is on a terminal.
    put(&mut all, "MESSAGE", &escaped(message));
    put(&mut all, "PRIORITY", &priority(*level).to_string());
    put(&mut all, "SYSLOG_IDENTIFIER", "fingerpost");
    put(&mut all, "FINGERPOST_TARGET", target);
    for (name, value) in fields {
        let name = name.chars().map(|c| match c.to_ascii_uppercase() {
            c if c.is_ascii_alphanumeric() => c,
            _ => '_',
        });
        let name = format!("FINGERPOST_{}", name.collect::<String>());
        match value {
            Value::String(text) => put(&mut all, &name, text),
            other => put(&mut all, &name, &other.to_string()),
        }
    }
    all
}

fn put(to: &mut Vec<u8>, name: &str, value: &str) {
    to.extend(name.as_bytes());
    if value.contains('\n') {
        to.push(b'\n');
        to.extend((value.len() as u64).to_le_bytes());
    } else {
        to.push(b'=');
    }
    to.extend(value.as_bytes());
    to.push(b'\n');
}
