//! `Null` passes packets as they are, and so does `Align`: any alignment is good here; `PullNull` and `PushNull` do so
//! where packets are pulled, and where they are pushed.
//!
//! Source: Click's elements of these names.

use crate::graph::{Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const NULL: ElementClass = class("Null", "a/a");

pub(crate) const ALIGN: ElementClass = ElementClass {
    spec: ClassSpec::new("Align", "1/1", "a/a", "x/x"),
    summary: "passes packets as they are: any alignment is good here",
    configure: |setup| {
        let modulus = setup.args.optional::<u32>("MODULUS");
        let offset = setup.args.optional::<u32>("OFFSET");
        setup.args.finish()?;
        modulus?;
        offset?;
        Ok(Made::new(|_| Null))
    },
};

pub(crate) const PULL: ElementClass = class("PullNull", "l/l");
pub(crate) const PUSH: ElementClass = class("PushNull", "h/h");

const fn class(name: &'static str, processing: &'static str) -> ElementClass {
    ElementClass {
        spec: ClassSpec::new(name, "1/1", processing, "x/x"),
        summary: "passes packets as they are",
        configure: |setup| {
            setup.args.finish()?;
            Ok(Made::new(|_| Null))
        },
    }
}

struct Null;

impl Element for Null {
    fn pull(
        &mut self,
        _: u16,
        into: &mut crate::frame::Batch,
        inputs: &mut dyn crate::graph::Inputs,
        cx: &mut crate::graph::Context<'_>,
    ) {
        inputs.pull(0, into, cx);
    }
}
