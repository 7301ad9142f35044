//! `EtherSwitch` sends frames by link address, as a switch does: to the output of the input by which frames of their
//! destination came, else to all outputs but that of their own input. `ListenEtherSwitch` has one output more, which
//! gets a copy of each.
//!
//! Source: Click's elements of these names; IEEE 802.1D-2004, 7.7 and 7.8. A link address is forgotten after `TIMEOUT`
//! (300 s) without a frame from it; with 0 none is learned, and each frame goes to all other outputs. A frame for its
//! own input is dropped. Handler `table` has a line for each address with the number of its port. All workers share the
//! table, of at most 65536 addresses, under a lock a batch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_route::Mac;

use crate::element::support::copies::Copies;
use crate::element::support::setting::{Setting, Time, dashed};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::Ether;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("EtherSwitch", "2-/=", "h/h", "#/[^#]"),
    summary: "sends frames to the port of their destination's link address",
    configure: |setup| configure(setup, false),
};

pub(crate) const LISTENED: ElementClass = ElementClass {
    spec: ClassSpec::new("ListenEtherSwitch", "-/=+", "h/h", "#/[^#]"),
    summary: "an EtherSwitch whose last output gets a copy of each frame",
    configure: |setup| configure(setup, true),
};

fn configure(setup: &mut Setup<'_>, listened: bool) -> Result<Made, ConfigError> {
    let timeout = setup.args.keyword::<Time>("TIMEOUT");
    setup.args.finish()?;
    let timeout = Setting::new(timeout?.unwrap_or(Time { ns: 300_000_000_000 }));
    let outputs = u16::try_from(setup.outputs).unwrap_or(u16::MAX);
    let outputs = outputs.saturating_sub(listened.into());
    let (table, failed) = (setup.keep::<Table>(), setup.keep::<PerWorker<Count>>());
    let made = Made::new({
        let (table, timeout, failed) = (table.clone(), timeout.clone(), failed.clone());
        move |instance| Switch {
            table: table.clone(),
            timeout: timeout.clone(),
            learns: !instance.is_dry_run(),
            outputs,
            listened,
            copies: Copies::new(failed.add(instance)),
        }
    });
    let made = made.counter("failed", &failed).handler(Handler::read("table", move || {
        let mut known: Vec<_> = table.lock().iter().map(|(&mac, port)| (mac, *port)).collect();
        known.sort_by_key(|(mac, _)| mac.bits());
        let line = |(mac, port): (Mac, Port)| format!("{} {}\n", dashed(mac), port.number);
        known.into_iter().map(line).collect()
    }));
    Ok(timeout.handled(made, "timeout"))
}

/// Link addresses that are known.
#[derive(Default)]
struct Table(Mutex<HashMap<Mac, Port>>);

/// Addresses that are known at most; frames for others go to all outputs.
const MOST: usize = 1 << 16;

#[derive(Clone, Copy)]
struct Port {
    number: u16,
    /// Time of the last frame.
    last_ns: u64,
}

impl Port {
    fn is_fresh(self, now_ns: u64, timeout: Time) -> bool {
        timeout.ns > 0 && now_ns.saturating_sub(self.last_ns) <= timeout.ns
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<Mac, Port>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Switch {
    table: Arc<Table>,
    timeout: Setting<Time>,
    learns: bool,
    outputs: u16,
    /// Another output gets copies.
    listened: bool,
    copies: Copies,
}

impl Switch {
    /// Sends packet `i` to all outputs but that of its input.
    fn flood(&self, input: u16, batch: &mut Batch, i: usize, cx: &mut Context<'_>) {
        let mut others = (0..self.outputs).filter(|&output| output != input);
        let first = others.next();
        for output in others {
            self.copies.send(batch, i, output, cx);
        }
        match first {
            Some(output) => batch.output(i, output),
            None => batch.discard(i, DropReason::Discarded),
        }
    }
}

impl Element for Switch {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let (now_ns, timeout) = (cx.now_ns, self.timeout.get());
        let table = self.table.clone();
        let mut known = table.lock();
        let mut cleaned = false;
        if self.listened {
            self.copies.send_all(batch, self.outputs, cx);
        }
        for i in 0..batch.len() {
            let Some((src, dst)) =
                Ether::of(batch.bytes(i)).map(|ether| (ether.src(), ether.dst()))
            else {
                batch.discard(i, DropReason::TooShort);
                continue;
            };
            if self.learns && timeout.ns > 0 && !src.is_group() {
                if known.len() >= MOST && !std::mem::replace(&mut cleaned, true) {
                    known.retain(|_, port| port.is_fresh(now_ns, timeout));
                }
                let (port, full) = (Port { number: input, last_ns: now_ns }, known.len() >= MOST);
                match known.entry(src) {
                    Entry::Occupied(mut entry) => _ = entry.insert(port),
                    Entry::Vacant(entry) if !full => _ = entry.insert(port),
                    Entry::Vacant(_) => {}
                }
            }
            // No group is ever a source.
            match known.get(&dst).filter(|port| port.is_fresh(now_ns, timeout)) {
                Some(port) if port.number == input => batch.discard(i, DropReason::Discarded),
                Some(port) => batch.output(i, port.number),
                None => self.flood(input, batch, i, cx),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World};

    fn frame(dst: u8, src: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        (frame[0], frame[5], frame[6], frame[11]) = (2, dst, 2, src);
        frame
    }

    fn rig(config: &str) -> Rig {
        let text = format!(
            "s :: EtherSwitch{config}; FromDevice(a) -> [0] s [0] -> ToDevice(a); FromDevice(b) -> [1] s [1] -> ToDevice(b);
             FromDevice(c) -> [2] s [2] -> ToDevice(c)"
        );
        Rig::new(&World::new(), &text)
    }

    fn sent(rig: &mut Rig, by: &str, frame: &[u8]) -> String {
        let mut to: Vec<_> = rig.receive(by, &[frame]).into_iter().map(|(to, _)| to).collect();
        to.sort();
        to.concat()
    }

    #[test]
    fn frames_go_where_their_destination_is() {
        let mut rig = rig("");
        assert_eq!(sent(&mut rig, "a", &frame(2, 1)), "bc", "nothing is known of 2");
        assert_eq!(sent(&mut rig, "b", &frame(1, 2)), "a");
        assert_eq!(sent(&mut rig, "a", &frame(2, 1)), "b");
        assert_eq!(sent(&mut rig, "b", &frame(2, 3)), "", "it is there already");
        let mut group = frame(1, 1);
        group[0] = 3;
        assert_eq!(sent(&mut rig, "a", &group), "bc");
        assert_eq!(sent(&mut rig, "c", &frame(9, 1)), "ab", "1 moved");
        assert_eq!(sent(&mut rig, "b", &frame(1, 2)), "c");
        assert_eq!(
            rig.read("s.table"),
            "02-00-00-00-00-01 2\n02-00-00-00-00-02 1\n02-00-00-00-00-03 1\n"
        );
        rig.dry_run("a", &frame(1, 7)).unwrap();
        assert!(!rig.read("s.table").contains("07"), "a dry run notes nothing");
    }

    #[test]
    fn one_more_output_gets_copies() {
        let text = "s :: ListenEtherSwitch; FromDevice(a) -> [0] s [0] -> ToDevice(a);
            FromDevice(b) -> [1] s [1] -> ToDevice(b); s [2] -> ToDevice(l)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(sent(&mut rig, "a", &frame(2, 1)), "bl");
        assert_eq!(sent(&mut rig, "b", &frame(1, 2)), "al");
        assert_eq!(sent(&mut rig, "b", &frame(2, 3)), "l", "it is there already");
    }

    #[test]
    fn addresses_are_forgotten() {
        let mut rig = rig("(TIMEOUT 2)");
        sent(&mut rig, "a", &frame(2, 1));
        rig.bench.now_ns += 2_000_000_000;
        assert_eq!(sent(&mut rig, "b", &frame(1, 2)), "a");
        rig.bench.now_ns += 1;
        assert_eq!(sent(&mut rig, "b", &frame(1, 2)), "ac");
        assert_eq!(rig.read("s.timeout"), "2");
        rig.write("s.timeout", "0");
        assert_eq!(sent(&mut rig, "a", &frame(2, 1)), "bc");
        assert_eq!(sent(&mut rig, "b", &frame(1, 2)), "ac", "a hub knows no addresses");
    }

    #[test]
    fn the_table_is_bounded() {
        let mut rig = rig("");
        for n in 0..u32::try_from(MOST + 1000).unwrap() {
            let mut frame = frame(1, 0);
            frame[8..12].copy_from_slice(&n.to_be_bytes());
            rig.receive("a", &[&frame]);
        }
        assert_eq!(rig.read("s.table").lines().count(), MOST);
    }
}
