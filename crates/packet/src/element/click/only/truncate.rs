//! `Truncate(LENGTH)` cuts packets to a length; what was cut off is counted in an annotation unless `EXTRA_LENGTH false`.
//!
//! Source: Click's `Truncate`.

use crate::element::click::only::annotations::Annotations;
use crate::element::support::setting::Setting;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Truncate", "1/1", "a/a", "x/x"),
    summary: "cuts packets to a length",
    configure: |setup| {
        let length = setup.args.positional::<u32>("LENGTH");
        let extra = setup.args.keyword("EXTRA_LENGTH");
        setup.args.finish()?;
        let (length, extra) = (Setting::new(length?), extra?.unwrap_or(true));
        let each = length.clone();
        Ok(length.handled(Made::new(move |_| Truncate { length: each.clone(), extra }), "nbytes"))
    },
};

struct Truncate {
    length: Setting<u32>,
    extra: bool,
}

impl Element for Truncate {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let length = self.length.get() as usize;
        for i in 0..batch.len() {
            let cut = batch.frame_len(i).saturating_sub(length);
            if cut == 0 {
                continue;
            }
            batch.truncate(i, length);
            if self.extra {
                let mut annotations = Annotations::of(batch, i);
                annotations.extra_length += u32::try_from(cut).unwrap_or(0);
                annotations.set(batch, i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, run};

    #[test]
    fn the_end_is_cut_off() {
        let batch = run(&CLASS, "3", 0, &[&[7; 10], &[7; 2]]);
        assert_eq!((batch.frame_len(0), batch.frame_len(1)), (3, 2));
        assert_eq!((Annotations::of(&batch, 0).extra_length, batch.annotations(1)), (7, None));
        let mut rig = Rig::new(&World::new(), "FromDevice(a) -> t :: Truncate(3) -> ToDevice(b)");
        rig.write("t.nbytes", "2");
        assert_eq!(
            (rig.receive("a", &[&[7; 10]])[0].1.len(), rig.read("t.nbytes")),
            (2, "2".into())
        );
        assert_eq!(run(&CLASS, "3, EXTRA_LENGTH false", 0, &[&[7; 10]]).annotations(0), None);
    }
}
