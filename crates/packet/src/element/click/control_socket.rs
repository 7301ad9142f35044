//! Requests a control socket: whoever runs the graph opens it, on a thread of its own.
//!
//! Source: Click's `ControlSocket`. Differs: a TCP socket is for this host alone unless `LOCALHOST false` opens it to
//! all; whoever runs the graph decides which clients may change the router.

use crate::graph::{Element, ElementClass, Made, Setup};
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
        Ok(Made::new(|_| Nothing).control_socket(listen, options))
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

struct Nothing;

impl Element for Nothing {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::refused;

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
