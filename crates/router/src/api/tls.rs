//! TLS of the TCP listener: the certificate of this host, and the CA of its clients.
//!
//! Source: rustls with ring: TLS 1.2 and 1.3, HTTP/1.1 by ALPN.
//! Shape:  files in PEM, read at the start and again once one of them has changed: a renewed certificate needs no restart. Files
//!         that cannot be used then leave the former ones in use.
//! Limits: a key without a passphrase; no revocation lists.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

use super::tcp::TlsFiles;
use crate::stamp::Stamps;

/// What the server presents, and what it demands of clients.
#[derive(Debug)]
pub(super) struct Tls {
    files: TlsFiles,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    config: Arc<ServerConfig>,
    /// State of the files that it is of.
    seen: Stamps,
}

impl Tls {
    /// TLS by these files.
    ///
    /// # Errors
    /// When one of them cannot be read or is not what it must be.
    pub(super) fn new(files: &TlsFiles) -> io::Result<Self> {
        let seen = Stamps::of(all(files));
        let state = State { config: config(files)?, seen };
        Ok(Self { files: files.clone(), state: Mutex::new(state) })
    }

    /// Begins TLS with a client.
    ///
    /// # Errors
    /// When the client does something else, or has no certificate where one is demanded.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        TlsAcceptor::from(self.config()).accept(stream).await
    }

    /// The configuration of the next connection.
    fn config(&self) -> Arc<ServerConfig> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.seen.have_changed(all(&self.files)) {
            match config(&self.files) {
                Ok(config) => {
                    state.config = config;
                    let certificate = self.files.certificate.display();
                    info!(target: "control", "read the certificate {certificate} again");
                }
                Err(error) => {
                    warn!(target: "control", "[listen]: {error}: the former certificate stays in use");
                }
            }
        }
        Arc::clone(&state.config)
    }
}

fn all(files: &TlsFiles) -> impl Iterator<Item = &Path> {
    [&files.certificate, &files.key].into_iter().chain(&files.client_ca).map(AsRef::as_ref)
}

fn config(files: &TlsFiles) -> io::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| pem(&files.key, error))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => builder.with_client_cert_verifier(verifier(ca, provider)?),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        invalid(format!("{certificate} with {key}: {error}"))
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What demands a certificate by this CA of clients.
fn verifier(
    ca: &Path,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> io::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|error| invalid(format!("{}: {error}", ca.display())))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| invalid(format!("{}: {error}", ca.display())))
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(file).map_err(|error| pem(file, error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| pem(file, error))?;
    if found.is_empty() {
        return Err(invalid(format!("{}: no certificate in it", file.display())));
    }
    Ok(found)
}

/// The error of a file in PEM.
fn pem(file: &Path, error: rustls::pki_types::pem::Error) -> io::Error {
    use rustls::pki_types::pem::Error;
    let file = file.display();
    match error {
        Error::Io(error) => io::Error::new(error.kind(), format!("{file}: {error}")),
        Error::NoItemsFound => invalid(format!("{file}: no private key in it")),
        error => invalid(format!("{file}: {error}")),
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let of = |certificate: &str, key: &str| {
            let files =
                TlsFiles { certificate: certificate.into(), key: key.into(), client_ca: None };
            Tls::new(&files).unwrap_err()
        };
        let missing = of("/nonexistent/c.pem", manifest);
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(missing.to_string().starts_with("/nonexistent/c.pem: "), "{missing}");
        assert_eq!(of(manifest, manifest).to_string(), format!("{manifest}: no certificate in it"));
    }
}
