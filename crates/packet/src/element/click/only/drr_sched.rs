//! `DRRSched` pulls from its inputs by turns, as many bytes of each: deficit round robin.
//!
//! Source: Click's `DRRSched`; Shreedhar and Varghese, SIGCOMM 1995. An input that has packets may give `QUANTUM` (500) bytes more at
//! each of its turns; what it may and does not is kept for the next, as long as it has packets.

use super::heads::Heads;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Held, Inputs, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("DRRSched", "-/1", "l/l", "x/x"),
    summary: "pulls from its inputs by turns, as many bytes of each",
    configure: |setup| {
        let quantum = setup.args.optional::<usize>("QUANTUM");
        setup.args.finish()?;
        let (quantum, inputs) = (quantum?.unwrap_or(500).max(1), setup.inputs as usize);
        Ok(Made::new(move |_| Drr {
            quantum,
            heads: Heads::new(inputs),
            may_give: vec![0; inputs],
            turn: 0,
        })
        .holds(inputs))
    },
};

struct Drr {
    quantum: usize,
    heads: Heads,
    /// Bytes that each input may give.
    may_give: Vec<usize>,
    turn: usize,
}

impl Element for Drr {
    fn pull(&mut self, _: u16, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        let mut without = 0;
        while into.room() > 0 && without < self.may_give.len() {
            let turn = self.turn;
            let length = self.heads.pull(turn, into, inputs, cx).map(|packet| packet.bytes().len());
            match length {
                Some(length) if length <= self.may_give[turn] => {
                    self.may_give[turn] -= length;
                    self.heads.give(turn, into, cx);
                    without = 0;
                    continue;
                }
                Some(_) => without = 0,
                None => {
                    self.may_give[turn] = 0;
                    without += 1;
                }
            }
            self.turn = (turn + 1) % self.may_give.len();
            self.may_give[self.turn] += self.quantum;
        }
    }

    fn held(&self) -> Held {
        self.heads.held()
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.heads.stop(cx);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn inputs_give_as_many_bytes() {
        let text = "FromDevice(a) -> Queue -> [0] d :: DRRSched(500) -> Unqueue(100) -> ToDevice(x); FromDevice(b) -> Queue -> [1] d";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[1; 100][..]; 100]);
        rig.receive("b", &[&[2; 500][..]; 100]);
        let sent = rig.poll();
        let bytes = |from: u8| {
            sent.iter().filter(|(_, frame)| frame[0] == from).map(|(_, f)| f.len()).sum::<usize>()
        };
        assert_eq!(sent.len(), 100);
        assert!(bytes(1).abs_diff(bytes(2)) <= 500, "{} {}", bytes(1), bytes(2));
        let rest: usize = (0..5).map(|_| rig.poll().len()).sum();
        assert_eq!(rest, 100, "all leave, whatever the other has");
    }
}
