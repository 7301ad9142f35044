//! Names of ports: `PortInfo(web 8080/tcp, query 53)` lets `web` and `query` stand for these.
//!
//! Source: Click's `PortInfo`. A port is one of TCP, of UDP, or of both where no protocol is given.

use std::cell::RefCell;

use super::scoped::{self, Scoped};
use super::{Arg, Configuration, Value};

/// The class that declares them.
pub(crate) const CLASS_NAME: &str = "PortInfo";

/// Ports of TCP and of UDP.
type Ports = [Option<u16>; 2];

thread_local! {
    static NAMES: RefCell<Scoped<Ports>> = RefCell::default();
}

/// Makes the names of a configuration known.
pub(crate) fn declare(configuration: &Configuration) {
    NAMES.with_borrow_mut(Scoped::clear);
    scoped::declare(configuration, CLASS_NAME, add);
}

/// Adds one name with its port.
pub(crate) fn add(arg: &Arg<'_>) -> Result<(), String> {
    let words: Vec<_> = arg.words().collect();
    let [name, port] = &words[..] else { return Err("expected a name and a port".into()) };
    let (name, port): (String, String) = (name.value()?, port.value()?);
    let (port, protocols) = port.split_once('/').unwrap_or((&port, "tcp+udp"));
    let number = u16::read(port).map_err(|words| format!("`{port}` is {words}"))?;
    for protocol in protocols.split('+') {
        let at = match protocol {
            "tcp" => 0,
            "udp" => 1,
            other => return Err(format!("`{other}` is neither `tcp` nor `udp`")),
        };
        NAMES.with_borrow_mut(|names| names.own(&name)[at] = Some(number));
    }
    Ok(())
}

/// The port that a name stands for: of TCP first, or of UDP.
pub(crate) fn named(name: &str, udp_first: bool) -> Option<u16> {
    let [tcp, udp] = NAMES.with_borrow(|names| names.find(name))?;
    if udp_first { udp.or(tcp) } else { tcp.or(udp) }
}
