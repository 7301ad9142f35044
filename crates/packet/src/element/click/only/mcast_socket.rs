//! `McastSocket(233.252.0.0, 1234)` sends packets to a multicast group as UDP datagrams, and receives those of others.
//!
//! Source: Click's `McastSocket`. `SOURCEIP` is the address of the interface to use; datagrams from it are our own, and are
//! not received. Without it `LOOP` decides whether they are. `SNAPLEN`, `HEADROOM` and `TIMESTAMP` have no meaning here.

use std::net::Ipv4Addr;

use crate::element::router::device::ToDevice;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Inputs, Made, RECEIVED, Receives};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("McastSocket", "0-1/0-1", "a/h", "x/y"),
    summary: "sends packets to a multicast group, and receives those of others",
    configure: |setup| {
        let args = &mut setup.args;
        let group = args.positional::<Ipv4Addr>("MCASTIP");
        let port = args.positional::<u16>("MCASTPORT");
        let source = args.optional::<Ipv4Addr>("SOURCEIP");
        let source_port = args.optional::<u16>("SOURCEPORT");
        let looped = args.keyword::<bool>("LOOP");
        let buffers = [args.keyword::<u32>("RCVBUF"), args.keyword::<u32>("SNDBUF")];
        let ignored = [args.keyword::<u32>("SNAPLEN"), args.keyword::<u32>("HEADROOM")];
        let timestamp = args.keyword::<bool>("TIMESTAMP");
        args.finish()?;
        ignored.into_iter().try_for_each(|given| given.map(drop))?;
        timestamp?;
        let [receive, send] = buffers;
        let source = source?.map_or_else(String::new, |source| source.to_string());
        let device = format!(
            "{},{},{source},{},{},{},{}",
            group?,
            port?,
            source_port?.unwrap_or(0),
            looped?.unwrap_or(true),
            receive?.unwrap_or(0),
            send?.unwrap_or(0)
        );
        let port = setup.device(&device, Some("mcast".to_owned()))?;
        let receives = if setup.outputs > 0 { Receives::Port(port) } else { Receives::Nothing };
        Ok(Made::new(move |_| McastSocket { to: ToDevice { port } }).receives(receives))
    },
};

struct McastSocket {
    to: ToDevice,
}

impl Element for McastSocket {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if input != RECEIVED {
            self.to.process(input, batch, cx);
        }
    }

    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.to.poll(batch, inputs, cx);
    }
}
