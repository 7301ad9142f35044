//! `TRACEINFO` of `AggregateIPFlows`: a file that lists flows as XML, each one when it has ended, with what the handlers of
//! its `SOURCE` have of the file that packets come from.

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::element::click::only::clock::seconds;
use crate::element::click::only::console;
use crate::element::click::only::dump_encap;
use crate::element::support::caller::Caller;
use crate::graph::Setup;
use crate::language::{Arg, ConfigError, Value};

/// A flow that has ended.
pub(super) struct TracedFlow {
    pub(super) number: u32,
    /// Address and port of who sent first, and of the other side.
    pub(super) src: (u128, u16),
    pub(super) dst: (u128, u16),
    /// Times of the first packet and the last one.
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    /// Where the first packet was in its file; 0 where that is not known.
    pub(super) file_pos: u64,
    /// Packets of each direction.
    pub(super) packets: [u64; 2],
}

/// Element that packets come from, by its handlers.
#[derive(Clone)]
pub(super) struct TraceSource {
    caller: Caller,
    name: String,
}

impl TraceSource {
    /// The element that an argument names.
    ///
    /// # Errors
    /// There is none of that name.
    pub(super) fn read(setup: &mut Setup<'_>, arg: &Arg<'_>) -> Result<Self, ConfigError> {
        let name: String = setup.args.read(arg, "SOURCE")?;
        match setup.element(&name) {
            None => {
                let words = format!("SOURCE: there is no element `{name}`");
                return Err(setup.args.refuse(arg, &words));
            }
            Some((number, "FromDump")) => setup.shared::<dump_encap::Source>(number).give_singly(),
            Some(_) => {}
        }
        Ok(Self { caller: Caller::of(setup), name })
    }

    /// What a handler gives, if there is one.
    fn handler(&self, own: &str) -> Option<String> {
        let (whole, handler) = self.caller.found(&format!("{}.{own}", self.name)).ok()?;
        handler.call_read(&whole, "").ok().map(|text| text.trim().to_owned())
    }
}

/// The file; its clones write to the same one.
#[derive(Clone)]
pub(super) struct FlowTrace {
    to: Arc<Mutex<To>>,
    source: Option<TraceSource>,
}

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
    /// The file that an argument names, for packets of a source; `-` is the standard output.
    pub(super) fn open(
        setup: &mut Setup<'_>,
        file: &Arg<'_>,
        source: Option<TraceSource>,
    ) -> Result<Self, ConfigError> {
        let name: String = setup.args.read(file, "TRACEINFO")?;
        let console = name == "-";
        let opened = if console { Ok(None) } else { setup.policy.new_output(&name) };
        let file = opened.map_err(|error| setup.args.refuse(file, &format!("{name}: {error}")))?;
        let to = Arc::new(Mutex::new(To { file, console, writers: 0, begun: false }));
        Ok(Self { to, source })
    }

    fn lock(&self) -> MutexGuard<'_, To> {
        // A file is whole whatever panicked beside it.
        self.to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a writer.
    pub(super) fn begin(&self) {
        self.lock().writers += 1;
    }

    /// Where the packet at hand is in its file; 0 where that is not known.
    pub(super) fn file_pos(&self) -> u64 {
        let place = self.source.as_ref().and_then(|source| source.handler("packet_filepos"));
        place.and_then(|place| u64::read(&place).ok()).unwrap_or(0)
    }

    /// The file, with its head: the handler of the source is there when the first flow has ended.
    fn begun(&self) -> MutexGuard<'_, To> {
        let mut to = self.lock();
        if !std::mem::replace(&mut to.begun, true) {
            let name = self.source.as_ref().and_then(|source| source.handler("filename"));
            let name = name.filter(|name| !name.is_empty());
            let name = name.map_or_else(String::new, |name| format!(" file='{}'", escaped(&name)));
            to.write(&format!("<?xml version='1.0' standalone='yes'?>\n<trace{name}>\n"));
        }
        to
    }

    /// Ends a writer, the last of which writes the end.
    pub(super) fn end(self) {
        let mut to = self.begun();
        to.writers -= 1;
        if to.writers == 0 {
            to.write("</trace>\n");
        }
    }

    /// Writes a flow.
    pub(super) fn write(&self, flow: &TracedFlow) {
        let TracedFlow { number, src, dst, first_ns, last_ns, file_pos, packets } = flow;
        let (begin, duration) = (seconds(*first_ns), seconds(last_ns.saturating_sub(*first_ns)));
        let place = match file_pos {
            0 => String::new(),
            place => format!(" filepos='{place}'"),
        };
        let [there, back] = packets;
        self.begun().write(&format!(
            "<flow aggregate='{number}' src='{}' sport='{}' dst='{}' dport='{}' begin='{begin}' duration='{duration}'{place}>\n  \
             <stream dir='0' packets='{there}' /><stream dir='1' packets='{back}' />\n</flow>\n",
            addr(src.0),
            src.1,
            addr(dst.0),
            dst.1
        ));
    }
}

/// A text in an attribute of XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

/// An address of either family, as flows have it.
fn addr(addr: u128) -> IpAddr {
    u32::try_from(addr)
        .map_or_else(|_| Ipv6Addr::from(addr).into(), |addr| Ipv4Addr::from(addr).into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_attributes_of_xml() {
        assert_eq!(super::escaped("a'b&c<d"), "a&apos;b&amp;c&lt;d");
    }
}
