//! The section `[listen]`: the TCP listener for browsers and collectors, which only reads.

use std::net::SocketAddr;
use std::path::PathBuf;

use fingerpost_packet::feature::Mistake as Wrong;
use serde::Deserialize;

use crate::api::tcp::TlsFiles;

/// TCP listener for the API as far as it reads. Without `address` there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListenConfig {
    /// Address and port, as `127.0.0.1:9477`; without it nothing listens.
    pub(crate) address: Option<SocketAddr>,
    /// Whether `address` may be one that other hosts reach: whoever connects there reads routes, counters and configuration.
    pub(crate) remote: bool,
    /// Names of this host that requests may have in their `Host` header, beside `localhost` and addresses.
    pub(crate) names: Vec<String>,
    /// File with a token, in one line: requests need it in the header `Authorization: Bearer TOKEN`. Without it everybody who can
    /// connect may read.
    pub(crate) token_file: Option<PathBuf>,
    /// File with the certificate of this host in PEM, and those between it and its CA: then the listener speaks TLS alone. It
    /// is read again when it changes.
    pub(crate) certificate: Option<PathBuf>,
    /// File with the private key of `certificate` in PEM, without a passphrase.
    pub(crate) key: Option<PathBuf>,
    /// File with certificates in PEM: clients need a certificate by one of them.
    pub(crate) client_ca: Option<PathBuf>,
}

impl ListenConfig {
    /// Mistakes in the section.
    pub(super) fn check(&self) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let Some(address) = self.address else {
            let given = [
                ("remote", self.remote),
                ("names", !self.names.is_empty()),
                ("token_file", self.token_file.is_some()),
                ("certificate", self.certificate.is_some()),
                ("key", self.key.is_some()),
                ("client_ca", self.client_ca.is_some()),
            ];
            let without = |key| {
                let what = format!("`{key}` goes with `address` only: add it");
                Wrong::new(format!("listen.{key}"), what)
            };
            return given.into_iter().filter(|row| row.1).map(|(key, _)| without(key)).collect();
        };
        if !address.ip().is_loopback() && !self.remote {
            let what = format!(
                "`address`: {address} can be reached from other hosts: a loopback address is needed, or `remote = true` \
                 to allow it"
            );
            wrong.push(Wrong::new("listen.address", what));
        }
        let goes_with = |key: &str, with: &str| {
            let what = format!("`{key}` goes with `{with}` only: add it");
            Wrong::new(format!("listen.{key}"), what)
        };
        match [&self.certificate, &self.key, &self.client_ca].map(Option::is_some) {
            [true, false, _] => wrong.push(goes_with("certificate", "key")),
            [false, true, _] => wrong.push(goes_with("key", "certificate")),
            [false, false, true] => wrong.push(goes_with("client_ca", "certificate")),
            _ if self.certificate.is_some() && !cfg!(feature = "tls") => {
                let what = "`certificate` needs a build with the cargo feature `tls`".to_owned();
                wrong.push(Wrong::new("listen.certificate", what));
            }
            _ => {}
        }
        for (at, name) in self.names.iter().enumerate() {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            if name.is_empty() || !name.chars().all(is_name) {
                let what = format!("`{name}` is no name of a host: it has neither port nor path");
                wrong.push(Wrong::new(format!("listen.names.{at}"), what));
            }
        }
        wrong
    }

    /// The files of TLS, if it is wanted.
    pub(crate) fn tls(&self) -> Option<TlsFiles> {
        let (certificate, key) = (self.certificate.clone()?, self.key.clone()?);
        Some(TlsFiles { certificate, key, client_ca: self.client_ca.clone() })
    }

    /// The section in words, for comparisons.
    pub(crate) fn words(&self) -> String {
        let Some(address) = self.address else { return "nothing".to_owned() };
        let names = self.names.iter().map(|name| format!(", as {name}"));
        let token = self.token_file.iter().map(|path| format!(", token of {}", path.display()));
        let files = [
            ("certificate", &self.certificate),
            ("key", &self.key),
            ("clients by", &self.client_ca),
        ];
        let files = files.into_iter().filter_map(|(what, path)| {
            path.as_ref().map(|path| format!(", {what} {}", path.display()))
        });
        names.chain(token).chain(files).fold(address.to_string(), |words, more| words + &more)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn loopback_unless_more_is_wanted() {
        let read = |text: &str| Config::parse(&format!("[listen]\n{text}\n"), None);
        let words = |text: &str| read(text).unwrap().listen.words();
        assert_eq!(words("address = \"127.0.0.1:9477\""), "127.0.0.1:9477");
        assert_eq!(words("address = \"[::1]:9477\""), "[::1]:9477");
        assert_eq!(Config::default().listen.words(), "nothing");
        let all = "address = \"0.0.0.0:80\"\nremote = true\nnames = [\"r1.example\"]\ntoken_file = \"/t\"";
        assert_eq!(words(all), "0.0.0.0:80, as r1.example, token of /t");
        #[cfg(feature = "tls")]
        {
            let tls =
                "address = \"[::1]:443\"\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"";
            assert_eq!(words(tls), "[::1]:443, certificate /c, key /k, clients by /a");
        }
        for (text, line, want) in [
            ("address = \"0.0.0.0:9477\"", 2, "`remote = true` to allow it"),
            ("address = \"localhost:9477\"", 2, "invalid socket address"),
            ("remote = true", 2, "`remote` goes with `address` only"),
            ("address = \"127.0.0.1:1\"\nnames = [\"a:80\"]", 3, "`a:80` is no name of a host"),
            ("key = \"/k\"", 2, "`key` goes with `address` only"),
            ("address = \"[::1]:1\"\nkey = \"/k\"", 3, "`key` goes with `certificate` only"),
            ("address = \"[::1]:1\"\nclient_ca = \"/k\"", 3, "`client_ca` goes with `certificate`"),
            (
                "address = \"[::1]:1\"\ncertificate = \"/c\"",
                3,
                "`certificate` goes with `key` only",
            ),
            ("adress = \"127.0.0.1:1\"", 2, "did you mean `address`?"),
        ] {
            let wrong = read(text).unwrap_err();
            assert!(wrong.len() == 1 && wrong[0].0 == Some(line), "{wrong:?}");
            assert!(wrong[0].1.contains(want), "{wrong:?}");
        }
    }
}
