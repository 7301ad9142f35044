//! Fields of Ethernet headers: `EtherRewrite(SRC, DST)` writes both addresses, `StoreEtherAddress(ADDR, OFFSET)` one
//! anywhere, `EnsureEther` puts a header before IP packets that have none, `HostEtherFilter(ADDR)` passes what is for a
//! host.
//!
//! Source: Click's elements of these names. `HostEtherFilter` notes which packets are for groups; what a host sent
//! itself (`DROP_OWN true`), and what is for others unless `DROP_OTHER false` is given, leaves by its second output.
//! `StoreEtherAddress` also writes an address that is noted in an annotation (`ANNO`).

use fingerpost_route::Mac;
use std::sync::{Arc, Mutex, PoisonError};

use super::each::{class, each, sorting};
use super::ether_anno::MacAnno;
use crate::element::click::front::{HEADER, grow};
use crate::element::support::setting::{dashed, value};
use crate::frame::wire::ether::{TYPE_IP4, TYPE_IP6};
use crate::frame::wire::{ETHER_BYTES, Ether, EtherMut};
use crate::frame::{DropReason, FLAG_LINK_MULTICAST};
use crate::graph::{ElementClass, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, ConfigError};

/// An address that handlers change. A worker holds the lock for a copy.
#[derive(Clone)]
pub(super) struct Addr(Arc<Mutex<Mac>>);

impl Addr {
    pub(super) fn new(mac: Mac) -> Self {
        Self(Arc::new(Mutex::new(mac)))
    }

    pub(super) fn get(&self) -> Mac {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handled(&self, made: Made, name: &'static str) -> Made {
        let (shown, set) = (self.clone(), self.clone());
        made.handler(Handler::read(name, move || dashed(shown.get()))).handler(Handler::write(
            name,
            move |text| {
                *set.0.lock().unwrap_or_else(PoisonError::into_inner) = value(text)?;
                Ok(())
            },
        ))
    }
}

pub(crate) const REWRITE: ElementClass =
    class("EtherRewrite", "writes the addresses of Ethernet headers", |setup| {
        let src = setup.args.positional::<Mac>("SRC");
        let dst = setup.args.positional::<Mac>("DST");
        setup.args.finish()?;
        let (src, dst) = (Addr::new(src?), Addr::new(dst?));
        let shown = (src.clone(), dst.clone());
        let made = each(move |batch, i| match EtherMut::of(batch.bytes_mut(i)) {
            Some(mut ether) => ether.set_addrs(dst.get(), src.get()),
            None => batch.discard(i, DropReason::TooShort),
        })?;
        Ok(shown.1.handled(shown.0.handled(made, "src"), "dst"))
    });

pub(crate) const STORE: ElementClass = sorting(
    "StoreEtherAddress",
    &["out", "short"],
    "writes an Ethernet address into packets",
    |setup| {
        let anno = setup.args.keyword_arg("ANNO")?;
        let addr = match anno {
            Some(_) => None,
            None => Some(setup.args.positional::<Mac>("ADDR")),
        };
        let at = setup.args.positional_arg("OFFSET");
        setup.args.finish()?;
        let at = offset(setup, &at?)?;
        let anno = anno.map(|anno| MacAnno::read(setup, &anno)).transpose()?;
        let addr = addr.transpose()?.map(Addr::new);
        let (exit, shown) = (setup.exit(1, DropReason::TooShort), addr.clone());
        let made = each(move |batch, i| {
            let mac = match (&addr, anno) {
                (Some(addr), _) => Some(addr.get()),
                (None, anno) => anno.and_then(|anno| anno.get(batch, i)),
            };
            let place = batch.bytes_mut(i).get_mut(at..).and_then(|bytes| bytes.first_chunk_mut());
            match (place, mac) {
                (Some(bytes), mac) => *bytes = mac.unwrap_or_default().0,
                (None, _) => exit.take(batch, i),
            }
        })?;
        Ok(match shown {
            Some(addr) => addr.handled(made, "addr"),
            None => made,
        })
    },
);

/// Where in a packet argument `OFFSET` means; `src` and `dst` are the fields of an Ethernet header.
pub(super) fn offset(setup: &mut Setup<'_>, arg: &Arg<'_>) -> Result<usize, ConfigError> {
    match arg.raw() {
        "src" => Ok(6),
        "dst" => Ok(0),
        _ => setup.args.read(arg, "OFFSET"),
    }
}

pub(crate) const ENSURE: ElementClass =
    class("EnsureEther", "puts an Ethernet header before IP packets that have none", |setup| {
        let kind = setup.args.optional::<u16>("ETHERTYPE");
        let src = setup.args.optional::<Mac>("SRC");
        let dst = setup.args.optional::<Mac>("DST");
        setup.args.finish()?;
        let kind = kind?.unwrap_or(TYPE_IP4);
        let src = src?.unwrap_or(Mac([1, 1, 1, 1, 1, 1]));
        let dst = dst?.unwrap_or(Mac([2, 2, 2, 2, 2, 2]));
        each(move |batch, i| {
            let network = usize::from(batch.meta()[i].network);
            let has_one = network >= ETHER_BYTES
                && (batch.bytes(i).get(network - ETHER_BYTES..).and_then(Ether::of))
                    .is_some_and(|ether| matches!(ether.kind(), TYPE_IP4 | TYPE_IP6));
            if !has_one
                && grow(batch, i, HEADER)
                && let Some(mut ether) = EtherMut::of(batch.bytes_mut(i))
            {
                ether.set_addrs(dst, src);
                ether.set_kind(kind);
            }
        })
    });

pub(crate) const HOST_FILTER: ElementClass =
    sorting("HostEtherFilter", &["out", "others"], "passes frames that are for a host", |setup| {
        let addr = setup.args.positional::<Mac>("ETHER");
        let own = setup.args.optional("DROP_OWN");
        let other = setup.args.optional("DROP_OTHER");
        let offset = setup.args.keyword::<usize>("OFFSET");
        setup.args.finish()?;
        let offset = offset?.unwrap_or(0);
        let (own, other) = (own?.unwrap_or(false), other?.unwrap_or(true));
        let addr = Addr::new(addr?);
        let shown = addr.clone();
        let exit = setup.exit(1, DropReason::NotForUs);
        let made = each(move |batch, i| {
            let Some(ether) = batch.bytes(i).get(offset..).and_then(Ether::of) else {
                return batch.discard(i, DropReason::TooShort);
            };
            let host = addr.get();
            let (group, ours, for_us) =
                (ether.multicast(), ether.src() == host, ether.dst() == host);
            if group {
                batch.meta_mut()[i].flags |= FLAG_LINK_MULTICAST;
            }
            if own && ours || other && !group && !for_us {
                exit.take(batch, i);
            }
        })?;
        Ok(shown.handled(made, "ether"))
    });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::testing::{Rig, World, frame_v4, run};

    #[test]
    fn addresses_are_written() {
        let frame = frame_v4("10.0.0.1", "10.0.0.2", 64, 17, &[0; 8]);
        let batch = run(&REWRITE, "2:0:0:0:0:8, 2:0:0:0:0:9", 14, &[&frame, &frame[..9]]);
        assert_eq!(batch.bytes(0)[..12], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8]);
        assert_eq!(batch.decision(1), Decision::Drop(DropReason::TooShort));
        assert_eq!(run(&STORE, "2:0:0:0:0:8, src", 14, &[&frame]).bytes(0)[11], 8);
        assert_eq!(run(&STORE, "2:0:0:0:0:8, 50", 14, &[&frame]).decision(0), Decision::Output(1));
        let bare = run(&ENSURE, "0x0800, 2:0:0:0:0:8, 2:0:0:0:0:9", 0, &[&frame[14..]]);
        assert_eq!(
            (bare.frame_len(0), &bare.bytes(0)[11..15]),
            (frame.len(), &[8, 8, 0, 0x45][..])
        );
        assert_eq!(run(&ENSURE, "", 14, &[&frame]).bytes(0), frame);
        // The network header is marked behind the packet.
        assert_eq!(run(&ENSURE, "", 200, &[&frame]).frame_len(0), frame.len() + 14);
    }

    #[test]
    fn what_is_for_the_host_passes() {
        let text = "FromDevice(a) -> f :: HostEtherFilter(2:0:0:0:0:8, DROP_OWN true) -> ToDevice(x); f [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let mut frame = frame_v4("10.0.0.1", "10.0.0.2", 64, 17, &[0; 8]);
        let mut goes = |dst: u8, src: u8| {
            frame[..6].copy_from_slice(&[if dst == 255 { 1 } else { 2 }, 0, 0, 0, 0, dst]);
            frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, src]);
            rig.receive("a", &[&frame])[0].0.clone()
        };
        assert_eq!([goes(8, 1), goes(9, 1), goes(255, 1), goes(255, 8)], ["x", "y", "x", "y"]);
        let inner = "FromDevice(a) -> HostEtherFilter(2:0:0:0:0:8, OFFSET 2) -> ToDevice(x)";
        let mut inner = Rig::new(&World::new(), inner);
        let frame = [&[9, 9, 2, 0, 0, 0, 0, 8][..], &[0; 20]].concat();
        assert_eq!(inner.receive("a", &[&frame, &frame[2..]]).len(), 1);
        rig.write("f.ether", "2:0:0:0:0:9");
        assert_eq!(rig.read("f.ether"), "02-00-00-00-00-09");
    }
}
