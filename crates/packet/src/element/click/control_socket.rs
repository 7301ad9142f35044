//! Requests a control socket: whoever runs the graph opens it, on a thread of its own.
//!
//! Source: Click's `ControlSocket`. `PROXY` names an element whose handlers stand for those of all others. With `VERBOSE
//! true` connections are reported. Where the socket's place is taken, it is tried again `RETRIES` times, once a second;
//! each attempt that fails is reported, with `RETRY_WARNINGS false` only the last, which ends the router; other errors are
//! not retried. A configuration that replaces another keeps a socket of the same place, `READONLY` and `PROXY` with its
//! clients, and with its `VERBOSE`. Differs: a TCP socket is for this host alone unless `LOCALHOST false` opens it to all;
//! whoever runs the graph decides which clients may change the router. Handler `port` has the TCP port that it listens at,
//! `filename` the path of the Unix socket.

use crate::graph::{ElementClass, Made, Passing, Setup};
use crate::handler::Handler;
use crate::handler::control_socket::{Listen, Retries, SessionOptions, SocketRequest};
use crate::language::{Arg, ClassSpec, ConfigError};

const NAME: &str = "ControlSocket";

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new(NAME, "0/0", "a/a", "x/x"),
    summary: "opens the handlers of all elements to programs, by TCP or a Unix socket",
    configure: |setup| {
        let request = read(setup)?;
        let of = request.clone();
        let shown = match &request.listen {
            Listen::Unix(path) => {
                let path = path.clone();
                Handler::read("filename", move || path.clone())
            }
            Listen::Tcp { .. } => {
                let port = move || of.port().map_or_else(String::new, |port| port.to_string());
                Handler::read("port", port)
            }
        };
        Ok(Made::new(|_| Passing).control_socket(request).handler(shown))
    },
};

fn read(setup: &mut Setup<'_>) -> Result<SocketRequest, ConfigError> {
    let args = &mut setup.args;
    let kind = args.positional::<String>("TYPE").map(|kind| kind.to_ascii_uppercase());
    let name = if kind.as_deref() == Ok("UNIX") { "FILENAME" } else { "PORT" };
    let place = args.positional_arg(name);
    let read_only = args.keyword("READONLY");
    let localhost = args.keyword("LOCALHOST");
    let proxy = args.keyword_arg("PROXY");
    let verbose = args.keyword("VERBOSE");
    let retries = args.keyword("RETRIES");
    let warns = args.keyword("RETRY_WARNINGS");
    args.finish()?;
    let (kind, place) = (kind?, place?);
    let text: String = args.read(&place, name)?;
    let everywhere = localhost? == Some(false);
    let listen = match kind.as_str() {
        "TCP" => match Listen::tcp(&text) {
            Ok(Listen::Tcp { port, or_next, .. }) => Listen::Tcp { port, or_next, everywhere },
            Ok(listen) => listen,
            Err(words) => return Err(args.refuse(&place, &words)),
        },
        "UNIX" => Listen::Unix(text),
        other => {
            return Err(args.refuse_all(&format!("TYPE: `{other}` is neither TCP nor UNIX")));
        }
    };
    let options =
        SessionOptions { read_only: read_only?.unwrap_or(false), ..SessionOptions::default() };
    let retries = Retries { count: retries?.unwrap_or(0), warns: warns?.unwrap_or(true) };
    let proxy = proxy?.map(|arg| proxy_of(setup, &arg)).transpose()?;
    let reports = verbose?.unwrap_or(false).then(|| format!("{} :: {NAME}", setup.name()));
    let mut request = SocketRequest::new(listen, options);
    (request.proxy, request.reports, request.retries) = (proxy, reports, retries);
    Ok(request)
}

/// Full name of the element that an argument names.
#[cfg(feature = "click")]
fn proxy_of(setup: &mut Setup<'_>, arg: &Arg<'_>) -> Result<String, ConfigError> {
    let name: String = setup.args.read(arg, "PROXY")?;
    let number = setup.element(&name).map(|(number, _)| number);
    match setup.around.configuration.zip(number) {
        Some((configuration, number)) => Ok(configuration.elements()[number].name.to_string()),
        None => Err(setup.args.refuse(arg, &format!("PROXY: there is no element `{name}`"))),
    }
}

/// None of the elements that there are stands for others.
#[cfg(not(feature = "click"))]
fn proxy_of(setup: &mut Setup<'_>, arg: &Arg<'_>) -> Result<String, ConfigError> {
    Err(setup.args.refuse(arg, "PROXY: no element stands for others here"))
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
        let requests: Vec<_> = rig.plan.control_sockets().collect();
        requests[0].note_port(41953);
        assert_eq!(rig.read("t.port"), "41953");
        let other = Rig::new(&World::new(), text);
        assert_eq!(other.read("t.port"), "41951", "of another router");
    }

    #[cfg(feature = "click")]
    #[test]
    fn what_it_is_to_be_is_requested() {
        let text = "elementclass C { c :: ControlSocket(UNIX, /tmp/x, LOCALHOST true, PROXY p, VERBOSE true,
            RETRIES 3, RETRY_WARNINGS false, READONLY true); p :: Script(TYPE PROXY, return 1) } a :: C";
        let rig = Rig::new(&World::new(), text);
        let request = rig.plan.control_sockets().next().unwrap();
        assert_eq!(request.proxy.as_deref(), Some("a/p"));
        assert_eq!(request.reports.as_deref(), Some("a/c :: ControlSocket"));
        assert_eq!(request.retries, Retries { count: 3, warns: false });
        assert!(request.options.read_only);
        let words = refused(&CLASS, "UNIX, /tmp/x, PROXY p");
        assert!(words.contains("PROXY: there is no element `p`"), "{words}");
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
