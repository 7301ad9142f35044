//! Outputs that do not depend on what a packet is: `StaticSwitch(OUTPUT)` has one, `StrideSwitch(TICKETS, ...)` shares
//! packets out, `HashSwitch(OFFSET, LENGTH)` chooses by some of their bytes.
//!
//! Source: Click's elements of these names.

use std::sync::Arc;

use crate::element::click::only::stride_sched::{Places, handled};
use crate::element::support::setting::Setting;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const STATIC: ElementClass = ElementClass {
    spec: ClassSpec::new("StaticSwitch", "1/-", "h/h", "x/x"),
    summary: "sends all packets to one output",
    configure: |setup| {
        let output = setup.args.positional::<i64>("OUTPUT");
        setup.args.finish()?;
        let output = output?;
        let known = u16::try_from(output).ok().filter(|&known| u32::from(known) < setup.outputs);
        if known.is_none() && output >= 0 {
            let words = format!("OUTPUT: `{output}` is no output: there are {}", setup.outputs);
            return Err(setup.args.refuse_all(&words));
        }
        Ok(Made::new(move |_| Static(known)))
    },
};

struct Static(Option<u16>);

impl Element for Static {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            match self.0 {
                Some(output) => batch.output(i, output),
                None => batch.discard(i, DropReason::Discarded),
            }
        }
    }
}

pub(crate) const STRIDE: ElementClass = ElementClass {
    spec: ClassSpec::new("StrideSwitch", "1/1-", "h/h", "x/x"),
    summary: "shares packets out to its outputs by tickets",
    configure: |setup| {
        let given: Vec<_> = setup.args.rest().collect();
        let tickets: Vec<_> =
            given.iter().map(|arg| setup.args.read::<u16>(arg, "TICKETS")).collect();
        setup.args.finish()?;
        let tickets = tickets.into_iter().collect::<Result<Vec<_>, _>>()?;
        if tickets.len() != setup.outputs as usize || tickets.contains(&0) {
            let words =
                format!("{} outputs want as many numbers of tickets above 0", setup.outputs);
            return Err(setup.args.refuse_all(&words));
        }
        let tickets: Arc<[Setting<u32>]> =
            tickets.into_iter().map(|tickets| Setting::new(tickets.into())).collect();
        let each = tickets.clone();
        let made = Made::new(move |_| Stride { places: Places::new(&each) });
        Ok(handled(made, &tickets))
    },
};

struct Stride {
    places: Places,
}

impl Element for Stride {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        self.places.refresh();
        for i in 0..batch.len() {
            let Some(output) = self.places.next() else {
                batch.discard(i, DropReason::Discarded);
                continue;
            };
            self.places.advance(output);
            batch.output(i, u16::try_from(output).unwrap_or(u16::MAX));
        }
    }
}

pub(crate) const HASH: ElementClass = ElementClass {
    spec: ClassSpec::new("HashSwitch", "1/1-", "h/h", "x/x"),
    summary: "sends packets to the output that some of their bytes stand for",
    configure: |setup| {
        let offset = setup.args.positional::<usize>("OFFSET");
        let length = setup.args.positional::<usize>("LENGTH");
        setup.args.finish()?;
        let (offset, length) = (offset?, length?);
        let outputs = setup.outputs.max(1);
        if length == 0 {
            return Err(setup.args.refuse_all("LENGTH: a byte at least"));
        }
        Ok(Made::new(move |_| Hash { offset, length, outputs }))
    },
};

struct Hash {
    offset: usize,
    length: usize,
    outputs: u32,
}

impl Element for Hash {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let bytes = batch.bytes(i).get(self.offset..self.offset.saturating_add(self.length));
            // What is too short goes to the first output. Which output a sum means is Click's choice as well, so that
            // a configuration shares packets out alike.
            let sum = bytes.map_or(0, |bytes| {
                bytes.iter().fold(0_u32, |sum, &byte| sum.wrapping_add(byte.into()))
            });
            let output = match self.outputs {
                2 | 4 | 8 => (sum ^ sum >> 4) & (self.outputs - 1),
                outputs => sum % outputs,
            };
            batch.output(i, u16::try_from(output).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    fn sent(rig: &mut Rig, frames: &[&[u8]]) -> [usize; 2] {
        let sent = rig.receive("a", frames);
        ["x", "y"].map(|device| sent.iter().filter(|(to, _)| to == device).count())
    }

    #[test]
    fn packets_are_shared_out() {
        let rig = |class: &str| {
            let text = format!("FromDevice(a) -> s :: {class} => ToDevice(x), ToDevice(y)");
            Rig::new(&World::new(), &text)
        };
        let frames: Vec<[u8; 2]> = (0..100).map(|n| [n, n]).collect();
        let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
        assert_eq!(sent(&mut rig("StaticSwitch(1)"), &frames), [0, 100]);
        assert_eq!(sent(&mut rig("StaticSwitch(-1)"), &frames), [0, 0]);
        assert_eq!(sent(&mut rig("StrideSwitch(3, 1)"), &frames), [75, 25]);
        let mut shared = rig("StrideSwitch(3, 1)");
        for (handler, tickets, want) in [
            ("s.tickets0", "0", [0, 100]),
            ("s.tickets0", "3", [75, 25]),
            ("s.tickets1", "0", [100, 0]),
        ] {
            shared.write(handler, tickets);
            assert_eq!(sent(&mut shared, &frames), want, "{handler} {tickets}");
        }
        let mut by_sum = rig("HashSwitch(0, 2)");
        for (sum, to) in [(0, [1, 0]), (1, [0, 1]), (16, [0, 1]), (17, [1, 0]), (34, [1, 0])] {
            assert_eq!(sent(&mut by_sum, &[&[sum, 0][..]]), to, "{sum}: bits 0 and 4");
        }
        let [x, y] = sent(&mut rig("HashSwitch(0, 1)"), &frames);
        assert!(x > 20 && y > 20 && x + y == 100, "{x} {y}");
        assert_eq!(sent(&mut rig("HashSwitch(0, 9)"), &frames), [100, 0]);
        let far = format!("HashSwitch({}, 9)", usize::MAX);
        assert_eq!(sent(&mut rig(&far), &frames), [100, 0]);
        assert!(refused(&STRIDE, "1").contains("8 outputs want as many"));
        assert!(refused(&STATIC, "8").contains("`8` is no output"));
    }
}
