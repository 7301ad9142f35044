//! Lets packets pass up to a length: `CheckLength(1500)`.
//!
//! Source: Click's `CheckLength`. Longer ones go to output 1, where it is used, or are dropped. The length is that of
//! the packet as it is at this place: with its Ethernet header, or without.

use crate::element::support::setting::Setting;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, LiveArg, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("CheckLength", "1/1-2", "a/ah", "x/x").outputs(&["out", "long"]),
    summary: "lets packets pass up to a length",
    configure: |setup| {
        let length = setup.args.positional("LENGTH");
        setup.args.finish()?;
        let length = Setting::<u32>::new(length?);
        let (each, exit) = (length.clone(), setup.exit(1, DropReason::TooBig));
        let made = Made::new(move |_| CheckLength { length: each.clone(), exit });
        Ok(length.handled(made, "length").live(&[LiveArg { handler: "length", keyword: "LENGTH" }]))
    },
};

struct CheckLength {
    length: Setting<u32>,
    exit: Exit,
}

impl Element for CheckLength {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let length = self.length.get() as usize;
        for i in 0..batch.len() {
            if batch.frame_len(i) > length {
                self.exit.take(batch, i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn long_packets_go_another_way() {
        let text = "FromDevice(a) -> c :: CheckLength(60) -> ToDevice(b); c [long] -> ToDevice(c)";
        let mut rig = Rig::new(&World::new(), text);
        let mut goes = |len: usize| rig.receive("a", &[&vec![7; len]]).remove(0).0;
        assert_eq!([0, 60, 61].map(&mut goes), ["b", "b", "c"]);
        rig.write("c.length", "61");
        assert_eq!(rig.receive("a", &[&[7; 61]])[0].0, "b");
        let mut rig = Rig::new(&World::new(), "FromDevice(a) -> CheckLength(60) -> ToDevice(b)");
        assert!(rig.receive("a", &[&[7; 61]]).is_empty());
        assert_eq!(rig.dropped(DropReason::TooBig), 1);
        assert!(refused(&CLASS, "-1").contains("LENGTH: `-1` is out of range"));
    }
}
