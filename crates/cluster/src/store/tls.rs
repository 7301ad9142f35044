//! TLS toward a store: the files of the options, read once.
//!
//! Source: rustls with ring. Only the configured CA is trusted, never those of the system: a store is one's own.
//! Shape:  one `ClientConfig`, absent when no file is configured.
//! Cost:   once, at the start.
//! Limits: PEM; a key without a passphrase; TLS 1.2 and 1.3. No revocation lists.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::{Options, StoreError};

/// The configuration of TLS, if there are files of it.
pub(super) fn config(options: &Options) -> Result<Option<Arc<ClientConfig>>, StoreError> {
    let Some(ca) = &options.ca else {
        if let Some((certificate, _)) = &options.identity {
            let file = certificate.display();
            return Err(StoreError::Configuration(format!("certificate {file} without a CA file")));
        }
        return Ok(None);
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|error| fault(ca, error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Configuration(error.to_string()))?
        .with_root_certificates(roots);
    let config = match &options.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
                pem::Error::NoItemsFound => fault(key, "no private key in it"),
                error => fault(key, error),
            })?;
            builder
                .with_client_auth_cert(certificates(certificate)?, private)
                .map_err(|error| fault(certificate, format!("with {}: {error}", key.display())))?
        }
    };
    Ok(Some(Arc::new(config)))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let found = CertificateDer::pem_file_iter(file).map_err(|error| fault(file, error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| fault(file, error))?;
    if found.is_empty() {
        return Err(fault(file, "no certificate in it"));
    }
    Ok(found)
}

fn fault(file: &Path, why: impl std::fmt::Display) -> StoreError {
    StoreError::Configuration(format!("{}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn message(ca: Option<&str>, identity: Option<(&str, &str)>) -> String {
        let identity = identity.map(|(certificate, key)| (certificate.into(), key.into()));
        let options = Options { ca: ca.map(PathBuf::from), identity, ..Options::default() };
        config(&options).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_the_file() {
        assert!(config(&Options::default()).unwrap().is_none());
        let message_of = message(Some("/nonexistent/ca.pem"), None);
        assert!(message_of.starts_with("/nonexistent/ca.pem: "), "{message_of}");
        assert!(message_of.contains("No such file"), "{message_of}");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(message(Some(manifest), None), format!("{manifest}: no certificate in it"));
        assert_eq!(message(None, Some(("c.pem", "k.pem"))), "certificate c.pem without a CA file");
    }
}
