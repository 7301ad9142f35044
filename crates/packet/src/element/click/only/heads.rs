//! First packets of inputs that are pulled, held by a scheduler that looks at them before it gives one.

use crate::frame::{Batch, DropReason, FLAG_GENERATED, Packet};
use crate::graph::{Context, Held, Inputs};

/// A packet of each input.
pub(crate) struct Heads(Vec<Option<Packet>>);

impl Heads {
    /// None yet, of so many inputs.
    pub(crate) fn new(inputs: usize) -> Self {
        Self((0..inputs).map(|_| None).collect())
    }

    /// The packet of an input, pulled now where there is none; `into` is where packets are pulled to.
    pub(crate) fn pull(
        &mut self,
        input: usize,
        into: &mut Batch,
        inputs: &mut dyn Inputs,
        cx: &mut Context<'_>,
    ) -> Option<&Packet> {
        let head = &mut self.0[input];
        if head.is_none() {
            let (before, room) = (into.len(), into.room());
            into.set_limit(before + 1);
            inputs.pull(u16::try_from(input).unwrap_or(u16::MAX), into, cx);
            if into.len() > before {
                *head = Some(into.take(before));
                into.close_up(|_, _| {});
            }
            into.set_limit(before + room);
        }
        head.as_ref()
    }

    /// Whether an input's packet is there.
    pub(crate) fn is_there(&self, input: usize) -> bool {
        self.0[input].is_some()
    }

    /// The packets of the first two inputs.
    pub(crate) fn both(&self) -> [Option<&Packet>; 2] {
        [self.0[0].as_ref(), self.0[1].as_ref()]
    }

    /// Takes the packet of an input.
    pub(crate) fn take(&mut self, input: usize) -> Option<Packet> {
        self.0[input].take()
    }

    /// Gives the packet of an input; there has to be one.
    pub(crate) fn give(&mut self, input: usize, into: &mut Batch, cx: &mut Context<'_>) {
        if let Some(packet) = self.0[input].take()
            && let Err(packet) = into.push(packet)
        {
            cx.drop_packet(packet, DropReason::NoBuffer);
        }
    }

    /// How many there are.
    pub(crate) fn held(&self) -> Held {
        let mut held = Held::default();
        for packet in self.0.iter().flatten() {
            held.add(packet.meta.flags & FLAG_GENERATED != 0);
        }
        held
    }

    /// Ends them.
    pub(crate) fn stop(&mut self, cx: &mut Context<'_>) {
        for packet in self.0.iter_mut().filter_map(Option::take) {
            cx.drop_packet(packet, DropReason::Shutdown);
        }
    }
}
