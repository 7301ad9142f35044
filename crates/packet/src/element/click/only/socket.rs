//! Packets by sockets of the host: `Socket(TYPE, ADDR, PORT)` receives and sends, `FromSocket` receives alone,
//! `ToSocket` sends alone.
//!
//! Source: Click's elements of these names. `TYPE` is `TCP`, `UDP`, `UNIX` or `UNIX_DGRAM`; the last two take a
//! `FILENAME`. Without outputs, with a local address (`LOCAL_ADDR`, `LOCAL_PORT`, `LOCAL_FILENAME`) or `CLIENT true` it
//! connects, else it listens; a server of a stream has one client at a time. Each is a device of driver `socket`.
//! Received packets get the time of it unless `TIMESTAMP false`, and have `SNAPLEN` bytes at most: of datagrams the rest is
//! cut off, of a stream it is the next packet. `SNDBUF` and `RCVBUF` are the buffers of the kernel in bytes; with `NODELAY
//! false` TCP gathers what is sent.
//! Differs: `ALLOW` and `DENY` are refused, a packet filter of the host does that; names of hosts are not resolved.

use std::net::Ipv4Addr;

use super::received::Received;
use crate::element::router::device::ToDevice;
use crate::frame::Batch;
use crate::graph::run::RECEIVED;
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Receives, Setup};
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = class("Socket", "0-1/0-1", "a/h");
pub(crate) const FROM: ElementClass = class("FromSocket", "0/1", "h/h");
pub(crate) const TO: ElementClass = class("ToSocket", "1/0", "a/a");

const fn class(name: &'static str, ports: &'static str, processing: &'static str) -> ElementClass {
    ElementClass {
        spec: ClassSpec::new(name, ports, processing, "x/y")
            .ignores(&["VERBOSE", "HEADROOM", "PROPER"]),
        summary: "packets by a socket of the host",
        configure,
    }
}

fn configure(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let kind = setup.args.positional_arg("TYPE")?;
    let (name, is_unix) = match kind.raw().to_ascii_uppercase().as_str() {
        "TCP" => ("tcp", false),
        "UDP" => ("udp", false),
        "UNIX" => ("unix", true),
        "UNIX_DGRAM" => ("unix-datagram", true),
        _ => {
            return Err(setup
                .args
                .refuse(&kind, "TYPE: TCP, UDP, UNIX and UNIX_DGRAM are possible"));
        }
    };
    let (remote, local) = if is_unix {
        let remote = setup.args.positional::<String>("FILENAME");
        let local = setup.args.optional::<String>("LOCAL_FILENAME");
        (remote, local)
    } else {
        let addr = setup.args.positional::<Ipv4Addr>("ADDR");
        let number = setup.args.positional::<u16>("PORT");
        let local = setup.args.optional::<Ipv4Addr>("LOCAL_ADDR");
        let local_port = setup.args.optional::<u16>("LOCAL_PORT");
        let remote = addr.and_then(|addr| number.map(|number| format!("{addr}:{number}")));
        let local = local.and_then(|addr| {
            local_port.map(|number| addr.map(|addr| format!("{addr}:{}", number.unwrap_or(0))))
        });
        (remote, local)
    };
    let client = setup.args.keyword("CLIENT");
    let stamps = setup.args.keyword::<bool>("TIMESTAMP");
    let snap_len = setup.args.keyword::<u32>("SNAPLEN");
    let no_delay = setup.args.keyword::<bool>("NODELAY");
    let buffers = ["SNDBUF", "RCVBUF"].map(|name| setup.args.keyword::<u32>(name));
    for refused in ["ALLOW", "DENY"] {
        if let Some(arg) = setup.args.keyword_arg(refused)? {
            let words = format!("{refused}: a packet filter of the host decides who may connect");
            setup.args.refuse(&arg, &words);
        }
    }
    setup.args.finish()?;
    let snap_len = snap_len?;
    let buffers = buffers.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (name, bytes) in
        ["SNAPLEN", "SNDBUF", "RCVBUF"].into_iter().zip([&[snap_len], &*buffers].concat())
    {
        // The kernel takes them as signed numbers.
        if bytes.is_some_and(|bytes| bytes == 0 || i32::try_from(bytes).is_err()) {
            return Err(setup.args.refuse_all(&format!("{name}: 1 to {} are possible", i32::MAX)));
        }
    }
    let (remote, local) = (remote?, local?);
    let connects = client?.unwrap_or(setup.outputs == 0 || local.is_some() && setup.inputs > 0);
    let is_stream = matches!(name, "tcp" | "unix");
    let role = if connects { "client" } else { "server" };
    let mut what = format!("{name},{role},{remote}");
    if let Some(local) = local {
        if !connects {
            let words =
                "a socket that listens has no other address of its own: CLIENT true connects";
            return Err(setup.args.refuse_all(words));
        }
        what += &format!(",{local}");
    }
    if let Some(bytes) = snap_len.filter(|_| is_stream) {
        what += &format!(",snaplen={bytes}");
    }
    if !no_delay?.unwrap_or(true) && name == "tcp" {
        what += ",nodelay=false";
    }
    for (option, bytes) in ["sndbuf", "rcvbuf"].into_iter().zip(buffers) {
        if let Some(bytes) = bytes {
            what += &format!(",{option}={bytes}");
        }
    }
    let received = Received {
        stamps: stamps?.unwrap_or(true),
        snap_len: snap_len.filter(|_| !is_stream).map(|bytes| bytes as usize),
        force_ip: None,
    };
    let device = setup.name().replace('/', "-");
    let number = setup.device_of(&device, "socket", what)?;
    Ok(socket(setup, number, received))
}

/// An element that sends by a socket what is wired to it, and gives what comes from there.
pub(super) fn socket(setup: &Setup<'_>, port: u16, received: Received) -> Made {
    let has_inputs = setup.inputs > 0;
    let made = Made::new(move |_| Socket { device: ToDevice { port }, has_inputs, received });
    if setup.outputs > 0 { made.receives(Receives::Port(port)) } else { made }
}

struct Socket {
    device: ToDevice,
    has_inputs: bool,
    received: Received,
}

impl Element for Socket {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.has_inputs && input != RECEIVED {
            return self.device.process(0, batch, cx);
        }
        self.received.note(batch, cx.now_ns);
    }

    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.device.poll(batch, inputs, cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn a_socket_is_a_device() {
        let text = "s :: Socket(TCP, 0.0.0.0, 80) -> ToDevice(x); FromDevice(a) -> ToSocket(UDP, 10.0.0.1, 53);
            FromDevice(b) -> c :: Socket(UDP, 10.0.0.1, 53, 0.0.0.0, 9) -> ToDevice(y); u :: FromSocket(UNIX, /run/s, VERBOSE true) -> ToDevice(z)";
        let mut rig = Rig::new(&World::new(), text);
        let devices = rig.plan.devices().iter().filter_map(|device| device.what.as_deref());
        let devices: Vec<_> = devices.collect();
        let want = [
            "tcp,server,0.0.0.0:80",
            "udp,client,10.0.0.1:53",
            "udp,client,10.0.0.1:53,0.0.0.0:9",
            "unix,server,/run/s",
        ];
        assert_eq!(devices, want);
        assert_eq!(rig.receive("s", &[&[1]])[0].0, "x");
        assert_eq!(
            (&*rig.receive("c", &[&[1]])[0].0, &*rig.receive("b", &[&[1]])[0].0),
            ("y", "c")
        );
        let text = "s :: Socket(TCP, 0.0.0.0, 80, SNAPLEN 9, NODELAY false, SNDBUF 5, RCVBUF 6) -> ToDevice(x);
            u :: Socket(UDP, 0.0.0.0, 81, SNAPLEN 9, NODELAY false) -> t :: ToIPSummaryDump(-, HEADER false, FIELDS
                timestamp wire_len) -> ToDevice(y);
            v :: Socket(UDP, 0.0.0.0, 82, TIMESTAMP false) -> t";
        let mut rig = Rig::new(&World::new(), text);
        let what: Vec<_> =
            rig.plan.devices().iter().filter_map(|device| device.what.as_deref()).collect();
        let want = [
            "tcp,server,0.0.0.0:80,snaplen=9,nodelay=false,sndbuf=5,rcvbuf=6",
            "udp,server,0.0.0.0:81",
            "udp,server,0.0.0.0:82",
        ];
        assert_eq!(what, want);
        crate::element::click::only::console::collect();
        assert_eq!(rig.receive("u", &[&[7; 12]])[0].1, [7; 9]);
        assert_eq!(rig.receive("v", &[&[7; 12]])[0].1, [7; 12]);
        let out = crate::element::click::only::console::collected().out;
        let lines: Vec<_> = out.lines().collect();
        assert!(lines[0].ends_with(" 12") && !lines[0].starts_with("0."), "{out}");
        assert_eq!(lines[1], "0.000000 12");
        assert!(refused(&CLASS, "SCTP, 1.2.3.4, 5").contains("TCP, UDP, UNIX"));
        for option in ["SNAPLEN 0", "SNDBUF 0", "RCVBUF 2147483648"] {
            let words = refused(&CLASS, &format!("TCP, 1.2.3.4, 5, {option}"));
            assert!(words.contains("1 to 2147483647 are possible"), "{option}: {words}");
        }
        let both = refused(&CLASS, "UDP, 1.2.3.4, 5, 1.2.3.5, 6, CLIENT false");
        assert!(both.contains("has no other address"), "{both}");
        assert!(
            refused(&CLASS, "TCP, 1.2.3.4, 5, ALLOW x").contains("a packet filter of the host")
        );
    }
}
