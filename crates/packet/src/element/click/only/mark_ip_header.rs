//! `MarkIPHeader(OFFSET)` notes where the network header begins, and checks nothing.
//!
//! Source: Click's `MarkIPHeader`, `MarkIP6Header`.

use crate::frame::{Batch, Hop};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const V4: ElementClass = class("MarkIPHeader");
pub(crate) const V6: ElementClass = class("MarkIP6Header");

const fn class(name: &'static str) -> ElementClass {
    ElementClass {
        spec: ClassSpec::new(name, "1/1", "a/a", "x/x"),
        summary: "notes where the network header begins",
        configure: |setup| {
            let offset = setup.args.optional("OFFSET");
            setup.args.finish()?;
            let offset = offset?.unwrap_or(0);
            Ok(Made::new(move |_| Mark { offset }))
        },
    }
}

struct Mark {
    offset: u8,
}

impl Element for Mark {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for meta in batch.meta_mut() {
            (meta.network, meta.hop) = (self.offset, Hop::NONE);
        }
    }
}
