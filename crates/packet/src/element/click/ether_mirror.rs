//! Exchanges the two addresses of an Ethernet frame, so that it goes back to its sender.
//!
//! Source: Click's `EtherMirror`. A frame too short for both addresses passes unchanged.

use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("EtherMirror", "1/1", "a/a", "x/x"),
    summary: "exchanges the source and destination addresses of Ethernet frames",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| EtherMirror))
    },
};

struct EtherMirror;

impl Element for EtherMirror {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            if let Some(addrs) = batch.bytes_mut(i).first_chunk_mut::<12>() {
                addrs.rotate_left(6);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn the_addresses_are_exchanged() {
        let mut rig = Rig::new(&World::new(), "FromDevice(a) -> EtherMirror -> ToDevice(a)");
        let frame = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 69];
        let sent = rig.receive("a", &[&frame, &[1, 2, 3]]);
        let mirrored = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 69];
        assert_eq!(sent, [("a".to_owned(), mirrored), ("a".to_owned(), vec![1, 2, 3])]);
    }
}
