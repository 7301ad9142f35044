//! `Clipboard(OFFSET, LENGTH)` copies bytes of packets that come by its first input into those that come by its
//! second.
//!
//! Source: Click's `Clipboard`. What comes by an input leaves by the output of its number. A packet of the second
//! input gets the bytes that the last packet of the first had, at the same place; as many as both have. Without such a
//! packet it stays as it is. All workers share the bytes, under a lock a batch.

use std::sync::{Arc, Mutex, PoisonError};

use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Clipboard", "2/2", "a/a", "#/#"),
    summary: "copies bytes of packets into those of its second input",
    configure: |setup| {
        let offset = setup.args.positional::<u16>("OFFSET");
        let length = setup.args.positional::<u16>("LENGTH");
        setup.args.finish()?;
        let (offset, length) = (usize::from(offset?), usize::from(length?));
        let bytes = setup.keep::<Mutex<Vec<u8>>>();
        Ok(Made::new(move |instance| Clipboard {
            offset,
            length,
            // A dry run begins with what there is.
            bytes: match instance.is_dry_run() {
                true => Arc::new(Mutex::new(copy(&bytes))),
                false => bytes.clone(),
            },
        }))
    },
};

fn copy(bytes: &Mutex<Vec<u8>>) -> Vec<u8> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

struct Clipboard {
    offset: usize,
    length: usize,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Element for Clipboard {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        for i in 0..batch.len() {
            batch.output(i, input);
            if input == 0 {
                let packet = batch.bytes(i).get(self.offset..).unwrap_or_default();
                bytes.clear();
                bytes.extend(&packet[..packet.len().min(self.length)]);
                continue;
            }
            let packet = batch.bytes_mut(i).get_mut(self.offset..).unwrap_or_default();
            let length = packet.len().min(bytes.len()).min(self.length);
            packet[..length].copy_from_slice(&bytes[..length]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CLASS;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn bytes_are_copied_from_one_input_to_the_other() {
        let text = "FromDevice(a) -> c :: Clipboard(1, 3) -> ToDevice(x); FromDevice(b) -> [1] c [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let mut pasted = |copied: &[&[u8]]| {
            let sent = rig.receive("a", copied);
            assert!(
                sent.iter()
                    .map(|(to, frame)| (&**to, &frame[..]))
                    .eq(copied.iter().map(|frame| ("x", *frame)))
            );
            let sent = rig.receive("b", &[&[9; 6], &[9; 2], &[9]]);
            sent.into_iter().map(|(_, frame)| frame).collect::<Vec<_>>()
        };
        assert_eq!(pasted(&[]), [vec![9; 6], vec![9; 2], vec![9]]);
        assert_eq!(
            pasted(&[&[1, 2, 3, 4, 5], &[5, 6, 7, 8, 9]]),
            [vec![9, 6, 7, 8, 9, 9], vec![9, 6], vec![9]]
        );
        assert_eq!(pasted(&[&[1, 2]]), [vec![9, 2, 9, 9, 9, 9], vec![9, 2], vec![9]]);
        assert_eq!(pasted(&[&[]]), [vec![9; 6], vec![9; 2], vec![9]]);
        assert!(refused(&CLASS, "1").contains("LENGTH"));
    }
}
