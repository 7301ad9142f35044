//! Ethernet addresses in annotations: `SetEtherAddress(ANNO, ADDR)` notes one, `GetEtherAddress(ANNO, OFFSET)` that which the
//! packet has there; `StoreEtherAddress` writes it back.
//!
//! Source: Click's elements of these names. An annotation is six of those without a name, by the number of its first byte: 0
//! to 26. An `OFFSET` of `src` or `dst` is the field of an Ethernet header at the beginning. A packet that is too short leaves
//! by the second output, or is dropped.

use fingerpost_route::Mac;

use super::each::{each, sorting};
use super::ether_fields::{Addr, offset};
use crate::element::support::byte_anno::numbered;
use crate::frame::{Batch, DropReason};
use crate::graph::{ElementClass, Setup};
use crate::language::{Arg, ConfigError};

/// Six annotations of one byte.
#[derive(Clone, Copy)]
pub(super) struct MacAnno(usize);

impl MacAnno {
    pub(super) fn read(setup: &mut Setup<'_>, arg: &Arg<'_>) -> Result<Self, ConfigError> {
        match numbered::<6>(arg) {
            Some(at) => Ok(Self(at)),
            None => Err(setup.args.refuse(arg, "ANNO: 0 to 42 are there for six bytes")),
        }
    }

    pub(super) fn get(self, batch: &Batch, i: usize) -> Option<Mac> {
        let bytes = batch.annotations(i)?.get(self.0..)?.first_chunk()?;
        Some(Mac(*bytes))
    }

    fn set(self, batch: &mut Batch, i: usize, mac: Mac) {
        if let Some(bytes) = batch.annotations_mut(i) {
            bytes[self.0..self.0 + 6].copy_from_slice(&mac.0);
        }
    }
}

pub(crate) const SET: ElementClass =
    super::each::class("SetEtherAddress", "notes an Ethernet address in packets", |setup| {
        let first = setup.args.positional_arg("ANNO")?;
        let second = setup.args.positional_arg("ADDR")?;
        setup.args.finish()?;
        // In any order: only one of them is an address.
        let (anno, addr) = match first.value::<Mac>() {
            Ok(_) => (second, first),
            Err(_) => (first, second),
        };
        let anno = MacAnno::read(setup, &anno)?;
        let addr = Addr::new(setup.args.read(&addr, "ADDR")?);
        let shown = addr.clone();
        let made = each(move |batch, i| anno.set(batch, i, addr.get()))?;
        Ok(shown.handled(made, "addr"))
    });

pub(crate) const GET: ElementClass = sorting(
    "GetEtherAddress",
    &["out", "short"],
    "notes an Ethernet address that packets have",
    |setup| {
        let anno = setup.args.positional_arg("ANNO")?;
        let at = setup.args.positional_arg("OFFSET")?;
        setup.args.finish()?;
        let (anno, at) = (MacAnno::read(setup, &anno)?, offset(setup, &at)?);
        let exit = setup.exit(1, DropReason::TooShort);
        each(move |batch, i| {
            match batch.bytes(i).get(at..).and_then(|bytes| bytes.first_chunk::<6>()) {
                Some(&bytes) => anno.set(batch, i, Mac(bytes)),
                None => exit.take(batch, i),
            }
        })
    },
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn addresses_are_noted() {
        let text = "FromDevice(a) -> GetEtherAddress(4, src) -> StoreEtherAddress(dst, ANNO 4)
            -> s :: SetEtherAddress(10, 2:0:0:0:0:9) -> StoreEtherAddress(OFFSET src, ANNO 10) -> g :: GetEtherAddress(0, 14) -> ToDevice(x);
            g [short] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let mut frame: Vec<u8> = (0..20).collect();
        let sent = rig.receive("a", &[&frame]);
        assert_eq!(
            (&*sent[0].0, &sent[0].1[..12]),
            ("x", &[6, 7, 8, 9, 10, 11, 2, 0, 0, 0, 0, 9][..])
        );
        rig.write("s.addr", "2:0:0:0:0:8");
        frame.pop();
        let sent = rig.receive("a", &[&frame]);
        assert_eq!((&*sent[0].0, sent[0].1[11]), ("y", 8));
        assert!(refused(&SET, "43, 2:0:0:0:0:9").contains("0 to 42"));
        assert!(refused(&GET, "PAINT, src").contains("0 to 42"));
        let huge = usize::MAX - crate::frame::NUMBERED_AT;
        assert!(refused(&SET, &format!("{huge}, 2:0:0:0:0:9")).contains("0 to 42"));
    }
}
