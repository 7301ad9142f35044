//! `StrideSched(TICKETS, ...)` pulls from its inputs in the ratio of their tickets.
//!
//! Source: Click's `StrideSched`; Waldspurger and Weihl, Stride Scheduling, 1995. An input that has nothing is passed over, and
//! keeps its place. Handlers `tickets0`, `tickets1`, ... have the tickets of an input, which may be 0 then: it is not pulled
//! from.

use std::sync::Arc;

use crate::element::support::setting::{Setting, value};
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Inputs, Made};
use crate::handler::Handler;
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
            setup.args.warn_here(&format!("more tickets than {MOST_TICKETS} are taken as so many"));
        }
        let tickets = tickets.into_iter().map(|tickets| tickets.min(MOST_TICKETS));
        let tickets: Arc<[Setting<u32>]> = tickets.map(Setting::new).collect();
        let each = tickets.clone();
        let made = Made::new(move |_| Stride {
            places: each.iter().map(stride).collect(),
            order: (0..each.len()).collect(),
            tickets: each.clone(),
        });
        Ok(handled(made, &tickets))
    },
};

/// Names of the handlers of tickets.
const NAMES: [&str; 16] = [
    "tickets0",
    "tickets1",
    "tickets2",
    "tickets3",
    "tickets4",
    "tickets5",
    "tickets6",
    "tickets7",
    "tickets8",
    "tickets9",
    "tickets10",
    "tickets11",
    "tickets12",
    "tickets13",
    "tickets14",
    "tickets15",
];

/// Adds the handlers of the tickets of the first inputs or outputs, and of all in their order.
pub(super) fn handled(made: Made, tickets: &Arc<[Setting<u32>]>) -> Made {
    let all = tickets.clone();
    let made = made.handler(Handler::read("config", move || {
        let tickets: Vec<_> = all.iter().map(|tickets| tickets.get().to_string()).collect();
        tickets.join(", ")
    }));
    NAMES.iter().zip(tickets.iter()).fold(made, |made, (name, tickets)| {
        let (shown, set) = (tickets.clone(), tickets.clone());
        made.handler(Handler::read(name, move || shown.get().to_string())).handler(Handler::write(
            name,
            move |text| {
                set.set(value::<u32>(text)?.min(MOST_TICKETS));
                Ok(())
            },
        ))
    })
}

/// How far an input moves by a packet; one without tickets is never next.
pub(super) fn stride(tickets: &Setting<u32>) -> u64 {
    ONE.checked_div(tickets.get().into()).unwrap_or(u64::MAX)
}

/// Tickets of an input: Click's bound.
const MOST_TICKETS: u32 = 65_535;

/// Stride of one ticket.
const ONE: u64 = 1 << 24;

struct Stride {
    tickets: Arc<[Setting<u32>]>,
    /// Where each input is: the lowest is next.
    places: Vec<u64>,
    /// Inputs in the order of their places, as of the last packet.
    order: Vec<usize>,
}

impl Stride {
    /// Pulls one packet; whether there was one.
    fn one(&mut self, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) -> bool {
        let Self { tickets, places, order } = self;
        order.sort_unstable_by_key(|&input| (places[input], input));
        for &input in &*order {
            let stride = stride(&tickets[input]);
            if stride == u64::MAX {
                continue;
            }
            let before = into.len();
            inputs.pull(u16::try_from(input).unwrap_or(u16::MAX), into, cx);
            if into.len() > before {
                places[input] = places[input].saturating_add(stride);
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

    #[test]
    fn tickets_are_changed() {
        let text = "InfiniteSource(\\<01>) -> s :: StrideSched(4, 2) -> Unqueue(6) -> ToDevice(a);
            InfiniteSource(\\<02>) -> [1] s";
        let mut rig = Rig::new(&World::new(), text);
        let mut count = || rig.poll().iter().filter(|(_, frame)| frame[0] == 2).count();
        count();
        assert_eq!(count(), 2);
        rig.write("s.tickets0", "0");
        assert_eq!((rig.poll().iter().filter(|(_, frame)| frame[0] == 2).count()), 6);
        assert_eq!([rig.read("s.tickets1"), rig.read("s.config")], ["2", "0, 2"]);
    }
}
