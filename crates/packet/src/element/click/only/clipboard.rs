//! `Clipboard(OFFSET/LENGTH...)` copies ranges of bytes of packets that come by its first input into those that come by
//! its second.
//!
//! Source: Click's `Clipboard`. What comes by an input leaves by the output of its number. A packet of the second
//! input gets the bytes that the last packet of the first had, at the same places; as many as both have. Without such a
//! packet it stays as it is. All workers share the bytes, under a lock a batch.

use std::sync::{Arc, Mutex, PoisonError};

use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::{ClassSpec, Value};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Clipboard", "2/2", "a/a", "#/#"),
    summary: "copies bytes of packets into those of its second input",
    configure: |setup| {
        let arguments: Vec<_> = setup.args.rest().collect();
        setup.args.finish()?;
        let ranges = arguments.iter().map(|arg| setup.args.read::<Range>(arg, "RANGE"));
        let ranges: Arc<[Range]> = ranges.collect::<Result<_, _>>()?;
        if ranges.is_empty() {
            return Err(setup.args.refuse_all("argument RANGE is missing"));
        }
        let copied = setup.keep::<Mutex<Vec<Vec<u8>>>>();
        Ok(Made::new(move |instance| Clipboard {
            ranges: ranges.clone(),
            // A dry run begins with what there is.
            copied: match instance.is_dry_run() {
                true => Arc::new(Mutex::new(
                    copied.lock().unwrap_or_else(PoisonError::into_inner).clone(),
                )),
                false => copied.clone(),
            },
        }))
    },
};

/// Bytes of a packet.
#[derive(Clone, Copy)]
struct Range {
    offset: usize,
    length: usize,
}

impl Value for Range {
    fn read(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').ok_or("OFFSET/LENGTH is wanted")?;
        let number = |text: &str| u16::read(text).map(usize::from);
        Ok(Self { offset: number(parts.0)?, length: number(parts.1)? })
    }
}

struct Clipboard {
    ranges: Arc<[Range]>,
    /// Bytes of each range.
    copied: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Element for Clipboard {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        copied.resize_with(self.ranges.len(), Vec::new);
        for i in 0..batch.len() {
            batch.output(i, input);
            for (range, copied) in self.ranges.iter().zip(&mut *copied) {
                if input == 0 {
                    let packet = batch.bytes(i).get(range.offset..).unwrap_or_default();
                    copied.clear();
                    copied.extend(&packet[..packet.len().min(range.length)]);
                } else {
                    let packet = batch.bytes_mut(i).get_mut(range.offset..).unwrap_or_default();
                    let length = packet.len().min(copied.len());
                    packet[..length].copy_from_slice(&copied[..length]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CLASS;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn bytes_are_copied_from_one_input_to_the_other() {
        let text = "FromDevice(a) -> c :: Clipboard(1/3) -> ToDevice(x); FromDevice(b) -> [1] c [1] -> ToDevice(y)";
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
        assert!(refused(&CLASS, "1").contains("LENGTH") && refused(&CLASS, "").contains("RANGE"));
    }

    #[test]
    fn several_ranges_are_copied() {
        let text = "FromDevice(a) -> c :: Clipboard(0/1, 3/2) -> ToDevice(x); FromDevice(b) -> [1] c [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[1, 2, 3, 4, 5]]);
        assert_eq!(rig.receive("b", &[&[9; 5]])[0].1, [1, 9, 9, 4, 5]);
    }
}
