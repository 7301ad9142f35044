//! What a control socket is to be, and the port that it has once it is open.

use std::sync::{Arc, OnceLock};

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
    port: Arc<OnceLock<u16>>,
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
        let _ = self.port.set(port);
    }

    /// The port that the socket has, or the one to try first; `None` of a Unix socket.
    pub fn port(&self) -> Option<u16> {
        self.port.get().copied().or_else(|| self.listen.ports().next())
    }

    /// Whether the socket of another request will do, whose port this one has then.
    pub fn is_met_by(&self, open: &Self) -> bool {
        let same = self.listen == open.listen
            && self.options == open.options
            && self.proxy == open.proxy
            && self.reports == open.reports;
        if let (true, Some(port)) = (same, open.port.get()) {
            self.note_port(*port);
        }
        same
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
        assert_eq!((one.port(), other.is_met_by(&one)), (Some(41931), true));
        one.note_port(41933);
        assert_eq!((handler.port(), other.port()), (Some(41933), Some(41931)), "one socket's");
        assert!(other.is_met_by(&one) && !request("41932").is_met_by(&one));
        assert_eq!(other.port(), Some(41933), "it is served there");
        let proxied = SocketRequest { proxy: Some("p".into()), ..request("41931+") };
        assert!(!proxied.is_met_by(&one));
        let unix = SocketRequest::new(Listen::Unix("x".into()), SessionOptions::default());
        assert_eq!(unix.port(), None);
    }
}
