//! `TRACEINFO` of `AggregateIPFlows`: a file that lists flows as XML, each one when it has ended.

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::element::click::only::clock::seconds;
use crate::element::click::only::console;
use crate::graph::Setup;
use crate::language::{Arg, ConfigError};

/// A flow that has ended.
pub(super) struct TracedFlow {
    pub(super) number: u32,
    /// Address and port of who sent first, and of the other side.
    pub(super) src: (u128, u16),
    pub(super) dst: (u128, u16),
    /// Times of the first packet and the last one.
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    /// Packets of each direction.
    pub(super) packets: [u64; 2],
}

/// The file; its clones write to the same one.
#[derive(Clone)]
pub(super) struct FlowTrace(Arc<Mutex<To>>);

struct To {
    /// `None` for the standard output, and after an error.
    file: Option<File>,
    console: bool,
    /// Elements that write to it.
    writers: usize,
    begun: bool,
}

impl To {
    fn write(&mut self, text: &str) {
        if self.console {
            return console::out_bytes(text.as_bytes());
        }
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(text.as_bytes())
        {
            console::err(&format!("AggregateIPFlows: TRACEINFO: {error}\n"));
            self.file = None;
        }
    }
}

impl FlowTrace {
    /// The file that an argument names; `-` is the standard output.
    pub(super) fn open(setup: &mut Setup<'_>, file: &Arg<'_>) -> Result<Self, ConfigError> {
        let name: String = setup.args.read(file, "TRACEINFO")?;
        let console = name == "-";
        let opened = if console { Ok(None) } else { setup.policy.new_output(&name) };
        let file = opened.map_err(|error| setup.args.refuse(file, &format!("{name}: {error}")))?;
        Ok(Self(Arc::new(Mutex::new(To { file, console, writers: 0, begun: false }))))
    }

    fn lock(&self) -> MutexGuard<'_, To> {
        // A file is whole whatever panicked beside it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a writer, the first of which writes the head.
    pub(super) fn begin(&self) {
        let mut to = self.lock();
        to.writers += 1;
        if !std::mem::replace(&mut to.begun, true) {
            to.write("<?xml version='1.0' standalone='yes'?>\n<trace>\n");
        }
    }

    /// Ends a writer, the last of which writes the end.
    pub(super) fn end(self) {
        let mut to = self.lock();
        to.writers -= 1;
        if to.writers == 0 {
            to.write("</trace>\n");
        }
    }

    /// Writes a flow.
    pub(super) fn write(&self, flow: &TracedFlow) {
        let TracedFlow { number, src, dst, first_ns, last_ns, packets } = flow;
        let (begin, duration) = (seconds(*first_ns), seconds(last_ns.saturating_sub(*first_ns)));
        let mut text = format!(
            "<flow aggregate='{number}' src='{}' sport='{}' dst='{}' dport='{}' begin='{begin}' duration='{duration}'>\n",
            addr(src.0),
            src.1,
            addr(dst.0),
            dst.1
        );
        for (direction, packets) in packets.iter().enumerate() {
            text += &format!("  <stream dir='{direction}' packets='{packets}' />\n");
        }
        self.lock().write(&(text + "</flow>\n"));
    }
}

/// An address of either family, as flows have it.
fn addr(addr: u128) -> IpAddr {
    u32::try_from(addr)
        .map_or_else(|_| Ipv6Addr::from(addr).into(), |addr| Ipv4Addr::from(addr).into())
}
