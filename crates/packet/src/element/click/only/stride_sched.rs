//! `StrideSched(TICKETS, ...)` pulls from its inputs in the ratio of their tickets.
//!
//! Source: Click's `StrideSched`; Waldspurger and Weihl, Stride Scheduling, 1995. An input that has nothing is passed over, and
//! keeps its place.

use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Inputs, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("StrideSched", "1-/1", "l/l", "x/x"),
    summary: "pulls from its inputs in the ratio of their tickets",
    configure: |setup| {
        let given: Vec<_> = setup.args.rest().collect();
        let tickets: Vec<_> =
            given.iter().map(|arg| setup.args.read::<u32>(arg, "TICKETS")).collect();
        setup.args.finish()?;
        let tickets = tickets.into_iter().collect::<Result<Vec<_>, _>>()?;
        if tickets.len() != setup.inputs as usize || tickets.contains(&0) {
            let words = format!("{} inputs want as many numbers of tickets above 0", setup.inputs);
            return Err(setup.args.refuse_all(&words));
        }
        if tickets.iter().any(|&tickets| tickets > MOST_TICKETS) {
            setup.args.warn_all(&format!("more tickets than {MOST_TICKETS} are taken as so many"));
        }
        let tickets = tickets.into_iter().map(|tickets| tickets.min(MOST_TICKETS));
        let tickets: Vec<u32> = tickets.collect();
        let strides: Vec<u64> = tickets.iter().map(|&tickets| ONE / u64::from(tickets)).collect();
        Ok(Made::new(move |_| Stride {
            places: strides.clone(),
            order: (0..strides.len()).collect(),
            strides: strides.clone(),
        }))
    },
};

/// Tickets of an input: Click's bound.
const MOST_TICKETS: u32 = 65_535;

/// Stride of one ticket.
const ONE: u64 = 1 << 24;

struct Stride {
    strides: Vec<u64>,
    /// Where each input is: the lowest is next.
    places: Vec<u64>,
    /// Inputs in the order of their places, as of the last packet.
    order: Vec<usize>,
}

impl Stride {
    /// Pulls one packet; whether there was one.
    fn one(&mut self, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) -> bool {
        let Self { strides, places, order } = self;
        order.sort_unstable_by_key(|&input| (places[input], input));
        for &input in &*order {
            let before = into.len();
            inputs.pull(u16::try_from(input).unwrap_or(u16::MAX), into, cx);
            if into.len() > before {
                places[input] += strides[input];
                return true;
            }
        }
        false
    }
}

impl Element for Stride {
    fn pull(&mut self, _: u16, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        let wanted = into.len() + into.room();
        while into.len() < wanted {
            into.set_limit(into.len() + 1);
            if !self.one(into, inputs, cx) {
                break;
            }
        }
        into.set_limit(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn inputs_have_turns_by_their_tickets() {
        let text = "InfiniteSource(\\<01>, LIMIT 10) -> s :: StrideSched(4, 2, 1) -> Unqueue -> ToDevice(a);
            InfiniteSource(\\<02>, LIMIT 10) -> [1] s; InfiniteSource(\\<03>, LIMIT 10) -> [2] s";
        let mut rig = Rig::new(&World::new(), text);
        let order: String = rig.poll().iter().map(|(_, frame)| frame[0].to_string()).collect();
        assert_eq!(order, "112112311211231122322322333333");
        assert!(refused(&CLASS, "1, 2").contains("1 inputs want"));
    }
}
