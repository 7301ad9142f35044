//! What a control socket is to be, and the port that it has once it is open.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Listen, SessionOptions};

/// A control socket that an element or a command line requests; whoever opens it notes its port here.
#[derive(Clone, Debug)]
pub struct SocketRequest {
    /// Where it waits for clients.
    pub listen: Listen,
    /// What its clients may do.
    pub options: SessionOptions,
    /// Full name of an element whose handlers stand for all others.
    pub proxy: Option<String>,
    /// What reports of connections begin with, where they are wanted.
    pub reports: Option<String>,
    /// What becomes of it where its place is taken.
    pub retries: Retries,
    /// The port of its socket, which requests that one socket meets have in common.
    port: Arc<Mutex<Arc<OnceLock<u16>>>>,
}

/// Attempts to open a socket whose place is taken, one a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retries {
    /// How many there are after the first one.
    pub count: u32,
    /// Each one that fails is reported, not only the last.
    pub warns: bool,
}

impl Retries {
    /// No second attempt.
    pub const NONE: Self = Self { count: 0, warns: true };
}

impl SocketRequest {
    /// A socket whose clients call the handlers of all elements.
    pub fn new(listen: Listen, options: SessionOptions) -> Self {
        let (proxy, reports, retries) = (None, None, Retries::NONE);
        Self { listen, options, proxy, reports, retries, port: Arc::default() }
    }

    /// Notes the port that the socket has.
    pub fn note_port(&self, port: u16) {
        // A socket has one.
        let _ = self.cell().set(port);
    }

    /// The port that the socket has, or the one to try first; `None` of a Unix socket.
    pub fn port(&self) -> Option<u16> {
        self.cell().get().copied().or_else(|| self.listen.ports().next())
    }

    /// Whether the socket of another request will do, whose port this one has from then on, also one that comes later.
    /// Whether it reports connections, and its attempts, do not count: they stay those of the open one.
    fn is_met_by(&self, open: &Self) -> bool {
        let same =
            self.listen == open.listen && self.options == open.options && self.proxy == open.proxy;
        if same {
            let cell = open.cell();
            *self.port.lock().unwrap_or_else(PoisonError::into_inner) = cell;
        }
        same
    }

    /// The requests among those wanted that no open socket meets, and whether each open one meets one. An open socket meets
    /// one request, before others its own.
    pub fn matched(wanted: Vec<Self>, open: &[&Self]) -> (Vec<Self>, Vec<bool>) {
        let (mut missing, mut used) = (wanted, vec![false; open.len()]);
        for own in [true, false] {
            missing.retain(|asked| {
                let free = |(open, used): (&&Self, &mut bool)| {
                    let meets = !*used
                        && (!own || Arc::ptr_eq(&asked.port, &open.port))
                        && asked.is_met_by(open);
                    *used |= meets;
                    meets
                };
                !open.iter().zip(&mut used).any(free)
            });
        }
        (missing, used)
    }

    fn cell(&self) -> Arc<OnceLock<u16>> {
        Arc::clone(&self.port.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_port_of_its_socket() {
        let request =
            |text: &str| SocketRequest::new(Listen::tcp(text).unwrap(), SessionOptions::default());
        let (one, other) = (request("41931+"), request("41931+"));
        let handler = one.clone();
        let shown = other.clone();
        one.note_port(41933);
        assert_eq!((handler.port(), other.port()), (Some(41933), Some(41931)), "one socket's");
        assert!(other.is_met_by(&one) && !request("41932").is_met_by(&one));
        assert_eq!((other.port(), shown.port()), (Some(41933), Some(41933)), "it is served there");
        let (late, waits) = (request("41934"), request("41934"));
        assert!(waits.is_met_by(&late));
        late.note_port(41934);
        assert!(waits.cell().get().is_some(), "a server that opens later");
        let reported = SocketRequest { reports: Some("c".into()), ..request("41931+") };
        assert!(reported.is_met_by(&one), "reports alone need no other socket");
        let proxied = SocketRequest { proxy: Some("p".into()), ..request("41931+") };
        assert!(!proxied.is_met_by(&one));
        let unix = SocketRequest::new(Listen::Unix("x".into()), SessionOptions::default());
        assert_eq!(unix.port(), None);
    }

    #[test]
    fn an_open_socket_meets_one_request() {
        let request =
            || SocketRequest::new(Listen::tcp("41930+").unwrap(), SessionOptions::default());
        let (one, other) = (request(), request());
        one.note_port(41930);
        other.note_port(41931);
        let matched = |wanted| SocketRequest::matched(wanted, &[&one, &other]);
        let (missing, used) = matched(vec![request(), request(), request()]);
        assert_eq!((missing.len(), used), (1, vec![true, true]));
        let (missing, used) = matched(vec![request(), one.clone()]);
        assert_eq!((missing.len(), used), (0, vec![true, true]));
        let (missing, used) = matched(vec![other.clone()]);
        assert_eq!((missing.len(), used, other.port()), (0, vec![false, true], Some(41931)));
        assert_eq!(matched(Vec::new()).1, [false, false]);
    }
}
