//! `McastSocket(233.252.0.0, 1234)` sends packets to a multicast group as UDP datagrams, and receives those of others.
//!
//! Source: Click's `McastSocket`. `SOURCEIP` is the address of the interface to use; datagrams from it are our own, and
//! are not received. Without it `LOOP` decides whether they are. `TIMESTAMP` and `SNAPLEN` are those of `Socket`.

use std::net::Ipv4Addr;

use super::received::Received;
use super::socket::socket;
use crate::graph::ElementClass;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("McastSocket", "0-1/0-1", "a/h", "x/y").ignores(&["HEADROOM"]),
    summary: "sends packets to a multicast group, and receives those of others",
    configure: |setup| {
        let args = &mut setup.args;
        let group = args.positional::<Ipv4Addr>("MCASTIP");
        let group_port = args.positional::<u16>("MCASTPORT");
        let source = args.optional::<Ipv4Addr>("SOURCEIP");
        let source_port = args.optional::<u16>("SOURCEPORT");
        let looped = args.keyword::<bool>("LOOP");
        let stamps = args.keyword::<bool>("TIMESTAMP");
        let snap_len = args.keyword::<u32>("SNAPLEN");
        let buffers = [args.keyword::<u32>("RCVBUF"), args.keyword::<u32>("SNDBUF")];
        args.finish()?;
        let [receive, send] = buffers;
        let source = source?.map_or_else(String::new, |source| source.to_string());
        let device = format!(
            "{},{},{source},{},{},{},{}",
            group?,
            group_port?,
            source_port?.unwrap_or(0),
            looped?.unwrap_or(true),
            receive?.unwrap_or(0),
            send?.unwrap_or(0)
        );
        let number = setup.device(&device, Some("mcast".to_owned()))?;
        let received = Received {
            stamps: stamps?.unwrap_or(true),
            snap_len: snap_len?.map(|bytes| bytes as usize),
            force_ip: None,
        };
        Ok(socket(setup, number, received))
    },
};
