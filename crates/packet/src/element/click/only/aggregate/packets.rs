//! `AggregatePacketCounter` counts the packets of each aggregate by their numbers, for each of its inputs.
//!
//! Source: Click's element of this name. Annotation `ANNO` is the number of a packet: `PACKET_NUMBER` without it,
//! another one of four bytes, or `NONE` where packets have no numbers. `received AGGREGATE` lists the numbers that
//! any input had, and `undelivered AGGREGATE` those that input 0 had more often than input 1, where there is one.
//! Packets of aggregate 0 are not counted. All workers count together, under a lock a batch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::element::click::only::annotations::Annotations;
use crate::element::support::byte_anno::LongAnno;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::handler::Handler;
use crate::language::{ClassSpec, Value};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("AggregatePacketCounter", "1-/1-", "a/a", "#/#").ignores(&["NOTIFIER"]),
    summary: "counts packets of each aggregate by number, for each of its inputs",
    configure: |setup| {
        let number = match setup.args.keyword_arg("ANNO")? {
            None => Some(LongAnno::PACKET_NUMBER),
            Some(arg) if arg.raw() == "NONE" => None,
            Some(arg) => Some(LongAnno::read(setup, &arg)?),
        };
        setup.args.finish()?;
        let shared = setup.keep::<Mutex<Counts>>();
        let each = shared.clone();
        let made = Made::new(move |instance| Packets {
            number,
            shared: (!instance.is_dry_run()).then(|| each.clone()),
        });
        let (clear, all) = (shared.clone(), shared.clone());
        let listed = |name, numbers: fn(&Counts, u32) -> Vec<u32>| {
            let shared = shared.clone();
            Handler::read_with(name, move |text| {
                let aggregate = match text.trim() {
                    "" => 0,
                    text => u32::read(text)
                        .map_err(|_| "argument should be aggregate number".to_owned())?,
                };
                let numbers = numbers(&lock(&shared), aggregate);
                Ok(numbers.iter().map(|number| format!("{number}\n")).collect())
            })
        };
        let made = made
            .command("clear", move || lock(&clear).0.clear())
            .handler(Handler::read("count", move || lock(&all).0.values().sum::<u64>().to_string()))
            .handler(listed("received", Counts::received));
        Ok(match setup.inputs {
            ..2 => made,
            _ => made.handler(listed("undelivered", Counts::undelivered)),
        })
    },
};

/// Packets by aggregate, number and input.
#[derive(Default)]
struct Counts(BTreeMap<(u32, u32, u16), u64>);

/// Counts that are kept at most.
const MOST: usize = 1 << 22;

fn lock(shared: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    // Counts are whole whatever panicked beside them.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counts {
    fn add(&mut self, key: (u32, u32, u16)) {
        if let Some(count) = self.0.get_mut(&key) {
            *count += 1;
        } else if self.0.len() < MOST {
            self.0.insert(key, 1);
        }
    }

    /// Numbers of an aggregate, with inputs and counts.
    fn of(&self, aggregate: u32) -> impl Iterator<Item = (u32, u16, u64)> {
        let range = (aggregate, 0, 0)..=(aggregate, u32::MAX, u16::MAX);
        self.0.range(range).map(|(&(_, number, input), &count)| (number, input, count))
    }

    /// Numbers that any input had.
    fn received(&self, aggregate: u32) -> Vec<u32> {
        let mut numbers: Vec<_> = self.of(aggregate).map(|(number, ..)| number).collect();
        numbers.dedup();
        numbers
    }

    /// Numbers that came more often by the first input than by the second.
    fn undelivered(&self, aggregate: u32) -> Vec<u32> {
        let delivered = |number| self.0.get(&(aggregate, number, 1)).copied().unwrap_or(0);
        let lost = self
            .of(aggregate)
            .filter(|&(number, input, count)| input == 0 && count > delivered(number));
        lost.map(|(number, ..)| number).collect()
    }
}

struct Packets {
    /// Annotation that is the number of a packet.
    number: Option<LongAnno>,
    /// `None` where packets are only evaluated.
    shared: Option<Arc<Mutex<Counts>>>,
}

impl Element for Packets {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            batch.output(i, input);
        }
        let Some(shared) = &self.shared else { return };
        let mut counts = lock(shared);
        for i in 0..batch.len() {
            let aggregate = Annotations::of(batch, i).aggregate;
            if aggregate != 0 {
                let number = self.number.map_or(0, |anno| anno.get(batch, i));
                counts.add((aggregate, number, input));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v4, refused};

    #[test]
    fn numbers_of_packets_are_listed() {
        let text =
            "FromDevice(a) -> s :: SetAnnoByte(36, 7) -> MarkIPHeader(14) -> AggregateIP(ip ttl)
            -> p :: AggregatePacketCounter(ANNO SEQUENCE_NUMBER) -> ToDevice(x);
            FromDevice(b) -> t :: SetAnnoByte(36, 7) -> MarkIPHeader(14) -> AggregateIP(ip ttl)
            -> [1] p [1] -> n :: AggregatePacketCounter(ANNO NONE) -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let send = |rig: &mut Rig, device: &str, ttl: u8, number: &str| {
            rig.write(if device == "a" { "s.value" } else { "t.value" }, number);
            let frame = frame_v4("10.0.0.1", "10.0.0.9", ttl, 17, &[]);
            rig.receive(device, &[&frame]).remove(0).0
        };
        assert_eq!(send(&mut rig, "a", 9, "7"), "x");
        send(&mut rig, "a", 9, "8");
        send(&mut rig, "a", 9, "8");
        send(&mut rig, "a", 3, "8");
        assert_eq!(send(&mut rig, "b", 9, "8"), "y");
        send(&mut rig, "b", 9, "5");
        send(&mut rig, "b", 9, "7");
        send(&mut rig, "a", 0, "7");
        let listed =
            |handler: &str, aggregate: &str| rig.handlers.read(handler, aggregate).unwrap();
        assert_eq!(rig.read("p.count"), "7", "aggregate 0 is none");
        assert_eq!(listed("p.received", "9"), "5\n7\n8\n");
        assert_eq!(listed("p.undelivered", "9"), "8\n", "twice, and delivered once");
        assert_eq!([listed("p.undelivered", "3"), listed("p.received", "")], ["8\n", ""]);
        assert_eq!(listed("n.received", "9"), "0\n");
        assert!(rig.handlers.read("n.undelivered", "9").is_err(), "it has one input");
        let words = rig.handlers.read("p.received", "x").unwrap_err().to_string();
        assert_eq!(words, "argument should be aggregate number");
        rig.write("p.clear", "");
        assert_eq!(rig.read("p.count"), "0");
        assert!(refused(&CLASS, "ANNO 45").contains("0 to 44 are there"));
    }
}
