//! `Bypass` sends packets past some elements: while it is not active what comes at input 0 leaves by output 0; while it
//! is, by output 1, to elements that return it to input 1, and so to output 0.
//!
//! Source: Click's `Bypass`. Where packets are pulled, output 0 pulls from input 1 while it is active, and from input 0
//! else; output 1 pulls from input 0.

use crate::element::support::setting::Setting;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Bypass", "1-2/1-2", "a/a", "x/x").ignores(&["INLINE"]),
    summary: "sends packets past some elements, or through them",
    configure: |setup| {
        let active = setup.args.optional("ACTIVE");
        setup.args.finish()?;
        let active = Setting::new(active?.unwrap_or(false));
        // With one port of a side there is nothing to choose.
        let (second_in, second_out) = (setup.inputs > 1, setup.outputs > 1);
        let [each, pulled] = [(); 2].map(|()| active.clone());
        let made = Made::new(move |_| Bypass { active: each.clone(), second_out })
            .relays(move |output| u16::from(output == 0 && second_in && pulled.get()));
        Ok(active.handled(made, "active"))
    },
};

struct Bypass {
    active: Setting<bool>,
    second_out: bool,
}

impl Element for Bypass {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if input == 0 && self.second_out && self.active.get() {
            (0..batch.len()).for_each(|i| batch.output(i, 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn packets_are_pushed_past() {
        let text = "FromDevice(a) -> b :: Bypass -> ToDevice(x); b [1] -> Counter -> c :: Counter -> [1] b";
        let mut rig = Rig::new(&World::new(), text);
        let mut went = |active: &str| {
            rig.write("b.active", active);
            let sent = rig.receive("a", &[&[1], &[2]]).len();
            (sent, rig.read("c.count"))
        };
        assert_eq!(went("false"), (2, "0".into()));
        assert_eq!(went("true"), (2, "2".into()));
        assert_eq!(went("false"), (2, "2".into()));
        let text = "FromDevice(a) -> b :: Bypass(true) -> ToDevice(x)";
        assert_eq!(Rig::new(&World::new(), text).receive("a", &[&[1]]).len(), 1);
        assert!(refused(&CLASS, "x").contains("ACTIVE"));
    }

    #[test]
    fn packets_are_pulled_past() {
        let text = "FromDevice(a) -> q :: Queue(5) -> b :: Bypass -> ToDevice(x); b [1] -> c :: Counter -> [1] b";
        let mut rig = Rig::new(&World::new(), text);
        let mut went = |active: &str| {
            rig.write("b.active", active);
            let sent = rig.receive("a", &[&[1], &[2]]).len() + rig.poll().len();
            (sent, rig.read("c.count"), rig.read("q.length"))
        };
        assert_eq!(went("false"), (2, "0".into(), "0".into()));
        assert_eq!(went("true"), (2, "2".into(), "0".into()));
        let circle = "Idle -> b :: Bypass -> u :: Unqueue -> Idle; b [1] -> Counter -> c :: Bypass -> [1] b; Idle -> [1] c";
        Rig::new(&World::new(), circle);
    }
}
