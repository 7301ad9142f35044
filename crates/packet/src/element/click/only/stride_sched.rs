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
            places: Places::new(&each),
            order: (0..each.len()).collect(),
        });
        Ok(handled(made, &tickets))
    },
};

/// Adds the handlers of the tickets of each input or output, and of all in their order.
pub(super) fn handled(made: Made, tickets: &Arc<[Setting<u32>]>) -> Made {
    let all = tickets.clone();
    let made = made.handler(Handler::read("config", move || {
        let tickets: Vec<_> = all.iter().map(|tickets| tickets.get().to_string()).collect();
        tickets.join(", ")
    }));
    tickets.iter().enumerate().fold(made, |made, (number, tickets)| {
        let (shown, set) = (tickets.clone(), tickets.clone());
        let name = format!("tickets{number}");
        let read = Handler::read("tickets", move || shown.get().to_string());
        let write = Handler::write("tickets", move |text| {
            set.set(value::<u32>(text)?.min(MOST_TICKETS));
            Ok(())
        });
        made.handler(read.named(name.clone())).handler(write.named(name))
    })
}

/// Tickets of an input: Click's bound.
const MOST_TICKETS: u32 = 65_535;

/// Stride of one ticket.
const ONE: u64 = 1 << 24;

/// Where the inputs, or the outputs, of an element are.
pub(super) struct Places {
    tickets: Arc<[Setting<u32>]>,
    /// `None` where there are no tickets.
    places: Box<[Option<Place>]>,
}

#[derive(Clone, Copy)]
struct Place {
    /// The lowest is next.
    at: u64,
    /// How far a packet moves it.
    stride: u64,
}

impl Places {
    pub(super) fn new(tickets: &Arc<[Setting<u32>]>) -> Self {
        let mut new = Self { tickets: tickets.clone(), places: vec![None; tickets.len()].into() };
        // All begin together: no place is read before it is there.
        for (place, tickets) in new.places.iter_mut().zip(&*new.tickets) {
            *place = stride(tickets).map(|stride| Place { at: stride, stride });
        }
        new
    }

    /// Follows the tickets. One that has some again is a stride behind the lowest, as it does not get what it missed.
    pub(super) fn refresh(&mut self) {
        for number in 0..self.places.len() {
            let Some(stride) = stride(&self.tickets[number]) else {
                self.places[number] = None;
                continue;
            };
            let lowest = || self.places.iter().flatten().map(|place| place.at).min().unwrap_or(0);
            let at = self.places[number]
                .map_or_else(|| lowest().saturating_add(stride), |place| place.at);
            self.places[number] = Some(Place { at, stride });
        }
    }

    /// Where one is, if it has tickets.
    pub(super) fn at(&self, number: usize) -> Option<u64> {
        self.places[number].map(|place| place.at)
    }

    /// The one that is next.
    pub(super) fn next(&self) -> Option<usize> {
        let places = self.places.iter().enumerate();
        let used = places.filter_map(|(number, place)| Some((place.as_ref()?.at, number)));
        used.min().map(|(_, number)| number)
    }

    /// Moves one by a packet.
    pub(super) fn advance(&mut self, number: usize) {
        if let Some(place) = &mut self.places[number] {
            place.at = place.at.saturating_add(place.stride);
        }
    }
}

fn stride(tickets: &Setting<u32>) -> Option<u64> {
    ONE.checked_div(tickets.get().into())
}

struct Stride {
    places: Places,
    /// Inputs in the order of their places, as of the last packet.
    order: Vec<usize>,
}

impl Stride {
    /// Pulls one packet; whether there was one.
    fn one(&mut self, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) -> bool {
        let Self { places, order } = self;
        places.refresh();
        order.sort_unstable_by_key(|&input| (places.at(input), input));
        for &input in &*order {
            if places.at(input).is_none() {
                continue;
            }
            let before = into.len();
            inputs.pull(u16::try_from(input).unwrap_or(u16::MAX), into, cx);
            if into.len() > before {
                places.advance(input);
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
        (0..100).for_each(|_| drop(rig.poll()));
        rig.write("s.tickets0", "4");
        let first = (0..3).map(|_| rig.poll().iter().filter(|(_, frame)| frame[0] == 1).count());
        assert_eq!(first.sum::<usize>(), 12, "no more than its share");
    }
}
