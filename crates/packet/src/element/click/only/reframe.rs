//! `Reframe` makes frames of a stream of bytes whose packets do not begin and end where frames do, as `Socket`
//! receives it.
//!
//! Source: Click's `Reframe`. The length of a frame is in `FLEN` bytes (1, 2 or 4; 2) at `FOFF` (2), in network order
//! unless `NTOH false` is given. It is multiplied by `MUL` (1), and `ADD` (0) is added to it; it counts from the
//! beginning of the frame. Frames begin at multiples of `ALIGN` (1), what is between them is left out. `FLEN 0` stands
//! for frames of `ADD` bytes, one behind the other. What is usual fits IPv4 packets. A length that does not reach
//! behind its field is left out, with the bytes before it, and so are frames that no buffer can hold. Packets end
//! here; frames are new packets, without annotations. Where the output is pulled, 1,000 frames and 1 MiB wait; packets
//! that come then are dropped. Each worker has a stream of its own.

use std::collections::VecDeque;

use crate::frame::{ANNOTATION_BYTES, Batch, DropReason, FLAG_GENERATED, Packet};
use crate::graph::{Context, Element, ElementClass, Held, Inputs, Made};
use crate::language::{ClassSpec, Processing};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Reframe", "1/1", "h/a", "x/y"),
    summary: "makes frames of a stream of bytes",
    configure: |setup| {
        let offset = setup.args.keyword::<u16>("FOFF");
        let bytes = setup.args.keyword::<u8>("FLEN");
        let network = setup.args.keyword("NTOH");
        let factor = setup.args.keyword::<u32>("MUL");
        let align = setup.args.keyword::<u32>("ALIGN");
        let added = setup.args.keyword::<u32>("ADD");
        setup.args.finish()?;
        let shape = Shape {
            offset: usize::from(offset?.unwrap_or(2)),
            bytes: usize::from(bytes?.unwrap_or(2)),
            network: network?.unwrap_or(true),
            factor: u64::from(factor?.unwrap_or(1)),
            align: u64::from(align?.unwrap_or(1)),
            added: u64::from(added?.unwrap_or(0)),
        };
        if ![0, 1, 2, 4].contains(&shape.bytes) {
            return Err(setup.args.refuse_all("FLEN: 0, 1, 2 and 4 are possible"));
        }
        if shape.bytes == 0 && shape.added == 0 {
            return Err(setup.args.refuse_all("ADD: with FLEN 0 it is the length of frames"));
        }
        if shape.align == 0 {
            return Err(setup.args.refuse_all("ALIGN: 1 is the least"));
        }
        let connections = setup.around.configuration.map_or(&[][..], |all| all.connections());
        let number = setup.number();
        let mut behind = connections.iter().filter(|wire| wire.from as usize == number);
        let pulled = behind.any(|wire| wire.kind == Processing::Pull);
        Ok(Made::new(move |_| Reframe {
            shape,
            pulled,
            stream: Vec::new(),
            skipped: 0,
            frames: VecDeque::new(),
        })
        .holds(if pulled { MOST_FRAMES } else { 0 }))
    },
};

/// Where frames end.
#[derive(Clone, Copy)]
struct Shape {
    offset: usize,
    bytes: usize,
    network: bool,
    factor: u64,
    align: u64,
    added: u64,
}

/// What a stream begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// A frame of this length, and so many bytes behind it that are of none.
    Frame(u64, u64),
    /// Bytes that are of no frame.
    Nothing(u64),
}

impl Shape {
    /// Bytes from the end of a frame to the next place where one may begin.
    fn behind(self, length: u64) -> u64 {
        length.checked_next_multiple_of(self.align).map_or(0, |next| next - length)
    }

    /// What a stream begins with; `None` where more bytes are needed to know.
    fn next(self, stream: &[u8]) -> Option<Next> {
        if self.bytes == 0 {
            return Some(Next::Frame(self.added, 0));
        }
        let behind = self.offset + self.bytes;
        let field = stream.get(self.offset..behind)?;
        let number = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let value = match self.network {
            true => field.iter().fold(0, number),
            false => field.iter().rev().fold(0, number),
        };
        // Below 2^64: both factors are below 2^32.
        let length = value * self.factor + self.added;
        Some(match length >= behind as u64 {
            true => Next::Frame(length, self.behind(length)),
            false => Next::Nothing(behind as u64),
        })
    }
}

/// Frames that wait to be pulled, at most.
const MOST_FRAMES: usize = 1000;
/// Bytes of a stream that wait at most.
const MOST_BYTES: usize = 1 << 20;

struct Reframe {
    shape: Shape,
    pulled: bool,
    /// Bytes that are of no frame yet.
    stream: Vec<u8>,
    /// Bytes that are still to come and are left out.
    skipped: u64,
    /// Frames that wait to be pulled.
    frames: VecDeque<Packet>,
}

impl Reframe {
    /// Leaves out bytes from the beginning of the stream, as far as they are there.
    fn skip(&mut self, bytes: u64) {
        let present = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.stream.len());
        self.stream.drain(..present);
        self.skipped = bytes - present as u64;
    }

    /// Makes the frames that are whole.
    fn cut(&mut self, cx: &mut Context<'_>) {
        self.skip(self.skipped);
        while self.skipped == 0 && !self.stream.is_empty() && self.frames.len() < MOST_FRAMES {
            match self.shape.next(&self.stream) {
                None => break,
                Some(Next::Nothing(bytes)) => self.skip(bytes),
                Some(Next::Frame(length, behind)) => {
                    let most = usize::from(cx.pool.max_len()) - ANNOTATION_BYTES;
                    let fits = usize::try_from(length).ok().filter(|length| *length <= most);
                    let Some(bytes) = fits else {
                        self.skip(length.saturating_add(behind));
                        continue;
                    };
                    let Some(frame) = self.stream.get(..bytes) else { break };
                    let Some(mut packet) = cx.pool.alloc() else { break };
                    let has_room = packet.set_len(bytes);
                    debug_assert!(has_room, "it is not longer than the longest");
                    packet.bytes_mut().copy_from_slice(frame);
                    self.skip(length.saturating_add(behind));
                    if self.pulled {
                        packet.meta.flags |= FLAG_GENERATED;
                        cx.counters.generated.add(1);
                        self.frames.push_back(packet);
                    } else {
                        cx.originate(0, packet);
                    }
                }
            }
        }
    }
}

impl Element for Reframe {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            if self.stream.len() > MOST_BYTES {
                batch.discard(i, DropReason::QueueFull);
                continue;
            }
            self.stream.extend(batch.bytes(i));
            batch.discard(i, DropReason::Consumed);
            self.cut(cx);
        }
    }

    fn pull(&mut self, _: u16, into: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.cut(cx);
        while into.room() > 0 {
            let Some(packet) = self.frames.pop_front() else { break };
            // There is room.
            let _ = into.push(packet);
        }
    }

    fn held(&self) -> Held {
        Held { received: 0, generated: self.frames.len() }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        for packet in self.frames.drain(..) {
            cx.drop_packet(packet, DropReason::Shutdown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    /// Frames that become of pieces of a stream.
    fn frames(config: &str, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let text = format!("FromDevice(a) -> Reframe({config}) -> ToDevice(x)");
        let mut rig = Rig::new(&World::new(), &text);
        rig.receive("a", pieces).into_iter().map(|(_, frame)| frame).collect()
    }

    #[test]
    fn lengths_are_in_the_frames() {
        // Of 6, 4 and 5 bytes, in pieces of any length.
        let stream = [1, 1, 0, 6, 9, 9, 2, 2, 0, 4, 3, 3, 0, 5, 7];
        let want = [&stream[..6], &stream[6..10], &stream[10..]];
        for size in 1..=stream.len() {
            let pieces: Vec<_> = stream.chunks(size).collect();
            assert_eq!(frames("", &pieces), want, "by {size}");
        }
        let numbers = "FOFF 0, FLEN 4, NTOH false, MUL 2, ADD 1";
        assert_eq!(
            frames(numbers, &[&[2, 0, 0, 0, 5, 2, 0, 0, 0, 6]]),
            [[2, 0, 0, 0, 5], [2, 0, 0, 0, 6]]
        );
        let aligned = "FOFF 1, FLEN 1, ALIGN 4";
        let pieces: [&[u8]; 3] = [&[7, 5, 1, 1, 1, 0], &[0, 0, 8, 4], &[2, 2, 9, 2]];
        let want: [&[u8]; 3] = [&[7, 5, 1, 1, 1], &[8, 4, 2, 2], &[9, 2]];
        assert_eq!(frames(aligned, &pieces), want);
        assert_eq!(
            frames("FLEN 0, ADD 3, ALIGN 4", &[&[1, 2], &[3, 4, 5, 6, 7]]),
            [[1, 2, 3], [4, 5, 6]]
        );
    }

    #[test]
    fn lengths_that_cannot_be_are_left_out() {
        let pieces: [&[u8]; 3] = [&[0, 0, 0, 3, 1, 1, 0xff, 0xff], &[5; 500], &[]];
        assert_eq!(frames("", &pieces), [[0_u8; 0]; 0]);
        // A frame of 5,000 bytes, and one of 4 behind it.
        let mut stream = vec![0, 0, 0x13, 0x88];
        stream.resize(5000, 1);
        stream.extend([8, 8, 0, 4]);
        let pieces: Vec<_> = stream.chunks(1000).collect();
        assert_eq!(frames("", &pieces), [[8, 8, 0, 4]]);
        for (config, words) in
            [("FLEN 3", "0, 1, 2 and 4"), ("FLEN 0", "ADD"), ("ALIGN 0", "ALIGN")]
        {
            assert!(refused(&CLASS, config).contains(words), "{config}");
        }
    }

    #[test]
    fn frames_wait_until_they_are_pulled() {
        let text =
            "FromDevice(a) -> Reframe(FLEN 0, ADD 1) -> u :: Unqueue(ACTIVE false) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        let bytes = [7; 1100];
        assert_eq!(rig.receive("a", &[&bytes]).len(), 0);
        assert_eq!(rig.graph.held().total(), MOST_FRAMES);
        assert_eq!(rig.dropped(DropReason::Consumed), 1);
        rig.write("u.active", "true");
        let mut sent = 0;
        for _ in 0..2000 {
            sent += rig.poll().len();
        }
        assert_eq!((sent, rig.graph.held().total()), (1100, 0));
        rig.write("u.active", "false");
        rig.receive("a", &[&bytes[..5]]);
        rig.graph.stop(&mut rig.bench.round());
        assert_eq!((rig.graph.held().total(), rig.dropped(DropReason::Shutdown)), (0, 5));
    }
}
