//! `PullTee` copies packets that are pulled: a copy for each output but the first, by which they are pulled.
//!
//! Source: Click's `PullTee`. The copies are pushed before the packet is returned. Differs: it also takes what is pushed, as
//! `Tee` does; of several packets that are pulled together the copies are all pushed first.

use crate::element::click::tee::configure;
use crate::graph::ElementClass;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("PullTee", "1/1-", "a/ah", "x/x"),
    summary: "copies packets that are pulled",
    configure,
};

#[cfg(test)]
mod tests {
    use crate::element::support::console;
    use crate::testing::{Rig, World};

    #[test]
    fn what_is_pulled_is_copied() {
        let text = "FromDevice(a) -> Queue -> t :: PullTee -> ToDevice(x); t [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[7], &[8]]);
        let mut sent = rig.poll();
        sent.sort();
        let want = [("x", 7), ("x", 8), ("y", 7), ("y", 8)];
        assert_eq!(sent, want.map(|(device, byte)| (device.to_owned(), vec![byte])));
    }

    #[test]
    fn copies_are_pushed_before_packets_are_returned() {
        for tee in ["t :: PullTee", "Paint(1) -> t :: PaintTee(1)"] {
            let text = format!(
                "FromDevice(a) -> Queue -> Null -> {tee} -> Null -> Print(pulled, CONTENTS NONE) -> Discard;
                 t [1] -> Print(pushed, CONTENTS NONE) -> Queue -> Discard"
            );
            let mut rig = Rig::new(&World::new(), &text);
            rig.receive("a", &[&[7]]);
            console::collect();
            rig.poll();
            assert_eq!(console::collected().err, "pushed:    1\npulled:    1\n", "{tee}");
        }
    }
}
