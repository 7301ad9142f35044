//! Certificates of a test, made by `openssl` in a folder: `NAME.pem` and `NAME.key`.

use std::path::Path;

use crate::netns::run;

/// Makes a key with what follows, as for a request or a certificate.
const NEW: &str = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

fn file(folder: &Path, name: &str, kind: &str) -> String {
    folder.join(format!("{name}.{kind}")).display().to_string()
}

/// Makes a CA.
///
/// # Panics
/// When `openssl` fails.
pub fn authority(namespace: &str, folder: &Path, name: &str) {
    let [key, certificate] = ["key", "pem"].map(|kind| file(folder, name, kind));
    run(
        namespace,
        &format!("{NEW} -x509 -days 2 -keyout {key} -out {certificate} -subj /CN={name}"),
    );
}

/// Makes a certificate for a host of this address by a CA of the folder.
///
/// # Panics
/// When `openssl` fails, or the folder cannot be written.
pub fn certificate(namespace: &str, folder: &Path, ca: &str, name: &str, addr: &str) {
    let [key, certificate, request, names] =
        ["key", "pem", "csr", "names"].map(|kind| file(folder, name, kind));
    std::fs::write(&names, format!("subjectAltName=IP:{addr}\n")).expect("the folder is there");
    run(namespace, &format!("{NEW} -keyout {key} -out {request} -subj /CN={name}"));
    let [ca_key, ca] = ["key", "pem"].map(|kind| file(folder, ca, kind));
    let sign = format!("openssl x509 -req -in {request} -CA {ca} -CAkey {ca_key} -CAcreateserial");
    run(namespace, &format!("{sign} -days 2 -out {certificate} -extfile {names}"));
}
