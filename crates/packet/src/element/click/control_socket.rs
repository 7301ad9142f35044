//! Requests a control socket: whoever runs the graph opens it, on a thread of its own.
//!
//! Source: Click's `ControlSocket`. Differs: a TCP socket is for this host alone unless `LOCALHOST false` opens it to
//! all; whoever runs the graph decides which clients may change the router. Handler `port` has the TCP port that it
//! listens at, `filename` the path of the Unix socket.

use crate::graph::{ElementClass, Made, Passing, Setup};
use crate::handler::Handler;
use crate::handler::control_socket::{Listen, SessionOptions};
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("ControlSocket", "0/0", "a/a", "x/x").ignores(&[
        "VERBOSE",
        "RETRY_WARNINGS",
        "RETRIES",
    ]),
    summary: "opens the handlers of all elements to programs, by TCP or a Unix socket",
    configure: |setup| {
        let (listen, read_only) = read(setup)?;
        let options = SessionOptions { read_only, ..SessionOptions::default() };
        let shown = match listen.clone() {
            Listen::Unix(path) => Handler::read("filename", move || path.clone()),
            tcp @ Listen::Tcp { .. } => {
                let port = move || tcp.port().map_or_else(String::new, |port| port.to_string());
                Handler::read("port", port)
            }
        };
        Ok(Made::new(|_| Passing).control_socket(listen, options).handler(shown))
    },
};

fn read(setup: &mut Setup<'_>) -> Result<(Listen, bool), ConfigError> {
    let args = &mut setup.args;
    let kind = args.positional::<String>("TYPE").map(|kind| kind.to_ascii_uppercase());
    let name = if kind.as_deref() == Ok("UNIX") { "FILENAME" } else { "PORT" };
    let place = args.positional_arg(name);
    let read_only = args.keyword("READONLY");
    let localhost = args.keyword("LOCALHOST");
    args.finish()?;
    let (kind, place) = (kind?, place?);
    let text: String = args.read(&place, name)?;
    let read_only = read_only?.unwrap_or(false);
    match (kind.as_str(), localhost?) {
        ("TCP", localhost) => match Listen::tcp(&text) {
            Ok(Listen::Tcp { port, or_next, .. }) => {
                let everywhere = localhost == Some(false);
                Ok((Listen::Tcp { port, or_next, everywhere }, read_only))
            }
            Ok(listen) => Ok((listen, read_only)),
            Err(words) => Err(args.refuse(&place, &words)),
        },
        ("UNIX", None) => Ok((Listen::Unix(text), read_only)),
        ("UNIX", Some(_)) => Err(args.refuse_all("LOCALHOST is for TCP")),
        (other, _) => Err(args.refuse_all(&format!("TYPE: `{other}` is neither TCP nor UNIX"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn its_place_is_shown() {
        let text = "t :: ControlSocket(tcp, 41951+); u :: ControlSocket(UNIX, /tmp/x)";
        let rig = Rig::new(&World::new(), text);
        assert_eq!([rig.read("t.port"), rig.read("u.filename")], ["41951", "/tmp/x"]);
        Listen::tcp("41951+").unwrap().note_port(41953);
        assert_eq!(rig.read("t.port"), "41953");
    }

    #[test]
    fn all_errors_are_reported() {
        let words = refused(&CLASS, "UNIX, READONLY x, LOCALHOST y");
        assert!(
            ["FILENAME", "READONLY", "LOCALHOST"].iter().all(|name| words.contains(name)),
            "{words}"
        );
        let words = refused(&CLASS, "READONLY x");
        assert!(["TYPE", "PORT", "READONLY"].iter().all(|name| words.contains(name)), "{words}");
    }
}
