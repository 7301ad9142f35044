//! Where a source listens whose peers connect (`fpm`): an address and port, or the path of a Unix socket.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Listen {
    /// Reads `ADDRESS:PORT`, or a path from the root. `remote`: others than this host may connect.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str, remote: bool) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            format!(
                "`listen`: {text:?} is neither an address with a port, as \"127.0.0.1:2620\", nor a path from the root"
            )
        })?;
        if !address.ip().is_loopback() && !remote {
            return Err(format!(
                "`listen`: {address} can be reached from other hosts, which could set routes: a loopback address is \
                 needed, or `remote = true` to allow it"
            ));
        }
        Ok(Self::Tcp(address))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_unless_more_is_wanted() {
        let parse = |text| Listen::parse(text, false);
        for text in ["127.0.0.1:2620", "[::1]:2620", "/run/fpm.sock"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        assert!(parse("0.0.0.0:2620").unwrap_err().contains("`remote = true`"));
        assert_eq!(Listen::parse("0.0.0.0:2620", true).unwrap().to_string(), "0.0.0.0:2620");
        for text in ["127.0.0.1", "2620", "localhost:2620", "fpm.sock", ""] {
            assert!(parse(text).unwrap_err().contains("neither an address"), "{text}");
        }
    }
}
