//! `Suppressor` passes what comes by an input to the output of its number, and drops it where that is switched off.
//! Where packets are pulled, it does not pull for an output that is switched off.
//!
//! Source: Click's `Suppressor`. Handlers `active0`, `active1` and so on switch each port, `reset` switches all of them on.

use crate::element::support::setting::Setting;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Suppressor", "-/=", "a/a", "#/#"),
    summary: "passes packets from inputs to outputs that are not switched off",
    configure: |setup| {
        setup.args.finish()?;
        let ports: Vec<_> = (0..setup.inputs).map(|_| Setting::new(true)).collect();
        let (each, all) = (ports.clone(), ports.clone());
        let made = Made::new(move |_| Suppressor { ports: each.clone() });
        let made = made.command("reset", move || all.iter().for_each(|port| port.set(true)));
        Ok(ports.iter().enumerate().fold(made, |made, (number, port)| {
            let before = made.handlers.len();
            let mut made = port.handled(made, "active");
            let own = made.handlers.split_off(before).into_iter();
            made.handlers.extend(own.map(|handler| handler.named(format!("active{number}"))));
            made
        }))
    },
};

struct Suppressor {
    ports: Vec<Setting<bool>>,
}

impl Suppressor {
    fn passes(&self, port: u16) -> bool {
        self.ports.get(usize::from(port)).is_none_or(Setting::get)
    }
}

impl Element for Suppressor {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let passes = self.passes(input);
        for i in 0..batch.len() {
            match passes {
                true => batch.output(i, input),
                false => batch.discard(i, DropReason::Discarded),
            }
        }
    }

    fn pulls(&self, output: u16) -> bool {
        self.passes(output)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn ports_are_switched() {
        let text = "FromDevice(a) -> s :: Suppressor -> ToDevice(x); FromDevice(b) -> [1] s [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        rig.write("s.active1", "false");
        let goes = |rig: &mut Rig| ["a", "b"].map(|device| rig.receive(device, &[&[1]]).len());
        assert_eq!((goes(&mut rig), rig.read("s.active1")), ([1, 0], "false".into()));
        rig.write("s.reset", "");
        assert_eq!((goes(&mut rig), rig.read("s.active1")), ([1, 1], "true".into()));
    }

    #[test]
    fn a_port_that_is_switched_off_does_not_pull() {
        let text = "FromDevice(a) -> q :: Queue(5) -> s :: Suppressor -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        rig.write("s.active0", "false");
        let sent = rig.receive("a", &[&[1], &[2]]).len() + rig.poll().len();
        assert_eq!((sent, rig.read("q.length")), (0, "2".into()));
        rig.write("s.reset", "");
        assert_eq!((rig.poll().len(), rig.read("q.length")), (2, "0".into()));
    }
}
