//! TLS and passwords of the stores: what is right works, what is wrong is denied in words.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fingerpost_cluster::store::{Keep, Options, Store, StoreError};

use super::server::{Demand, KINDS, NATS, Server, USER};

/// Makes a CA, another one, and certificates of the first for a server and a client.
pub(crate) fn certificates(dir: &Path) {
    let openssl = |args: &str| {
        let mut command = Command::new("openssl");
        command.args(args.split_ascii_whitespace()).current_dir(dir);
        let done = command.stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{args}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for ca in ["ca", "other"] {
        openssl(&format!("{new} -x509 -days 2 -keyout {ca}.key -out {ca}.pem -subj /CN={ca}"));
    }
    fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
    for name in ["server", "client"] {
        openssl(&format!("{new} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out {name}.pem -extfile names"
        ));
    }
}

fn works(store: &mut dyn Store) {
    let after = store.list("").unwrap().revision;
    let revision = store.put("member/a", b"1", Keep::Leased).unwrap();
    store.keep_alive().unwrap();
    let found = store.watch("member/", after, Duration::from_secs(10)).unwrap();
    assert_eq!(found.items[0].revision, revision);
    store.delete("member/a").unwrap();
}

#[test]
fn tls_with_certificates_of_ones_own() {
    for kind in KINDS {
        let Some(server) = Server::that_demands(kind, Demand::Certificate) else { continue };
        let right = server.options();
        works(&mut *server.open(&right));

        let ca = Some(server.dir().join("other.pem"));
        let error = server.open(&Options { ca, ..right.clone() }).get("a").unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{message}");
        assert!(message.contains("invalid peer certificate: UnknownIssuer"), "{message}");

        let error = server.open(&Options { identity: None, ..right.clone() }).get("a").unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, StoreError::Denied { .. }), "{message}");

        // Without TLS at a port with it.
        let endpoints = vec![format!("{}://127.0.0.1:{}", kind.schemes[0], server.port())];
        let plain = Options { endpoints, ca: None, identity: None, ..right.clone() };
        let message = server.open(&plain).get("a").unwrap_err().to_string();
        assert!(message.contains("http://127.0.0.1") || message.contains("TLS"), "{message}");

        // Certificate and key that do not belong together.
        let identity = Some((server.dir().join("client.pem"), server.dir().join("server.key")));
        let options = Options { identity, ..right };
        let opened = (fingerpost_cluster::store::find(kind.name).unwrap().open)(&options);
        let message = opened.err().unwrap().to_string();
        assert!(message.contains("client.pem") && message.contains("server.key"), "{message}");
    }
}

#[test]
fn passwords_are_demanded_and_renewed() {
    for kind in KINDS {
        let Some(mut server) = Server::that_demands(kind, Demand::Password) else { continue };
        let right = server.options();
        let mut store = server.open(&right);
        works(&mut *store);
        let wrong = Some((USER.0.to_owned(), "wrong".to_owned()));
        for user in [wrong, None] {
            let begin = Instant::now();
            let mut store = server.open(&Options { user, ..right.clone() });
            for call in [store.get("a").map(drop), store.watch("", 0, Duration::ZERO).map(drop)] {
                assert!(matches!(call, Err(StoreError::Denied { .. })), "{call:?}");
            }
            assert!(begin.elapsed() < right.timeout * 2);
        }
        // etcd's tokens end with the server.
        server.stop();
        server.start();
        works(&mut *store);
    }
}

#[test]
fn tokens_are_demanded() {
    // etcd's tokens are those that a password gets.
    let Some(server) = Server::that_demands(&NATS, Demand::Token) else { return };
    let right = server.options();
    works(&mut *server.open(&right));
    for token in [None, Some("wrong".to_owned())] {
        let denied = server.open(&Options { token, ..right.clone() }).get("a");
        assert!(matches!(denied, Err(StoreError::Denied { .. })), "{denied:?}");
    }
}
