//! Where a control socket waits for clients.

use std::fmt;

/// A place to listen at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// A TCP port of this host.
    Tcp {
        /// Its number.
        port: u16,
        /// Where it is taken, the next free one of those that follow.
        or_next: bool,
        /// For other hosts, too.
        everywhere: bool,
    },
    /// A Unix socket of this path.
    Unix(String),
}

/// How many ports are tried after one that may be followed.
const FURTHER: u16 = 10;

impl Listen {
    /// A TCP port as Click writes it, for this host alone: `1234`, or `1234+` for it or the next free one of
    /// the following ten.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn tcp(text: &str) -> Result<Self, String> {
        let (number, or_next) = match text.strip_suffix('+') {
            Some(number) => (number, true),
            None => (text, false),
        };
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        match number.parse() {
            Ok(port) if digits => Ok(Self::Tcp { port, or_next, everywhere: false }),
            _ => Err(format!("`{text}` is no TCP port: 0 to 65535, with + for the next free one")),
        }
    }

    /// TCP ports to try, in order.
    pub fn ports(&self) -> std::ops::RangeInclusive<u16> {
        match *self {
            Self::Tcp { port, or_next: true, .. } => port..=port.saturating_add(FURTHER),
            Self::Tcp { port, .. } => port..=port,
            #[allow(clippy::reversed_empty_ranges, reason = "it has none")]
            Self::Unix(_) => 1..=0,
        }
    }
}

/// Text form: the arguments of a ControlSocket.
impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { port, or_next, everywhere } => {
                let next = if *or_next { "+" } else { "" };
                let hosts = if *everywhere { ", LOCALHOST false" } else { "" };
                write!(f, "TCP, {port}{next}{hosts}")
            }
            Self::Unix(path) => write!(f, "UNIX, {path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_followed_by_ten() {
        let ports = |text| Listen::tcp(text).map(|listen| listen.ports());
        assert_eq!(ports("1234"), Ok(1234..=1234));
        assert_eq!(ports("41930+"), Ok(41930..=41940));
        assert_eq!(ports("65530+"), Ok(65530..=65535));
        let unix = Listen::Unix("x".to_owned());
        assert_eq!((unix.ports().count(), unix.to_string().as_str()), (0, "UNIX, x"));
        assert_eq!(Listen::tcp("41930+").unwrap().to_string(), "TCP, 41930+");
        let everywhere = Listen::Tcp { port: 7, or_next: false, everywhere: true };
        assert_eq!(everywhere.to_string(), "TCP, 7, LOCALHOST false");
        for text in ["", "+", "65536", "+5", "-1", "5++", "x", "5 "] {
            assert!(ports(text).unwrap_err().starts_with(&format!("`{text}` is no TCP port")));
        }
    }
}
