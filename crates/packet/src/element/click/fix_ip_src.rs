//! Sets the source of marked packets to the address of their egress port.
//!
//! Source: Click's `FixIPSrc`. An ICMP error is made before its egress port is known, and has an address of
//! the port that it leaves by (RFC 1812, 4.3.2.4): `ICMPError` marks it, and this element before that port knows.

use std::net::Ipv4Addr;

use crate::element::support::setting::Setting;
use crate::frame::wire::Ip4Mut;
use crate::frame::wire::checksum::update_long;
use crate::frame::{Batch, FLAG_FIX_SOURCE};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("FixIPSrc", "1/1", "a/a", "x/x"),
    summary: "gives our own errors the address of the port they leave by",
    configure: |setup| {
        let addr = setup.args.positional("IPADDR");
        setup.args.finish()?;
        let addr = Setting::<Ipv4Addr>::new(addr?);
        let each = addr.clone();
        Ok(addr.handled(Made::new(move |_| FixIpSrc { addr: each.clone() }), "src"))
    },
};

struct FixIpSrc {
    addr: Setting<Ipv4Addr>,
}

impl Element for FixIpSrc {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            fix(batch, i, self.addr.get().to_bits());
        }
    }
}

/// Gives packet `i` this source, if it is marked for one.
#[inline]
pub(super) fn fix(batch: &mut Batch, i: usize, addr: u32) {
    let meta = &mut batch.meta_mut()[i];
    if meta.flags & FLAG_FIX_SOURCE == 0 {
        return;
    }
    meta.flags &= !FLAG_FIX_SOURCE;
    let network = usize::from(meta.network);
    let Some(mut ip) = Ip4Mut::at(batch.bytes_mut(i), network) else { return };
    let (old, sum) = (ip.view().src(), ip.view().checksum());
    ip.set_src(addr);
    ip.set_checksum(update_long(sum, old, addr));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::wire::Ip4;
    use crate::frame::wire::ip4::sum_is_valid;
    use crate::testing::{Bench, World, batch, element, frame_v4, refused};

    #[test]
    fn only_what_asks_is_changed_and_once() {
        let bench = &mut Bench::new(&World::new());
        let frame = frame_v4("10.0.0.1", "192.0.2.1", 64, 1, &[0; 8]);
        let mut batch = batch(&bench.pool, 0, [&frame[..], &frame, &frame[..20]]);
        for i in [0, 2] {
            batch.meta_mut()[i].flags = FLAG_FIX_SOURCE | 1;
        }
        batch.meta_mut().iter_mut().for_each(|meta| meta.network = 14);
        element(&CLASS, "198.51.100.255").process(0, &mut batch, &mut bench.context());
        let ip = Ip4::at(batch.bytes(0), 14).unwrap();
        assert_eq!((ip.src(), sum_is_valid(ip.raw_sum())), (0xc633_64ff, true));
        assert_eq!((batch.bytes(1), batch.bytes(2)), (&frame[..], &frame[..20]));
        assert_eq!([0, 1, 2].map(|i| batch.meta()[i].flags), [1, 0, 1]);
        assert!(refused(&CLASS, "1.2.3").contains("no IPv4 address"));
    }
}
