//! Sends all packets to one of its outputs: `Switch(0)`, changed by its handler.
//!
//! Source: Click's `Switch`. A negative number drops packets. Handler `switch`.

use crate::element::support::setting::{Setting, value};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, LiveArg, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Switch", "1/-", "h/h", "x/x"),
    summary: "sends all packets to the output that it is set to",
    configure: |setup| {
        let output = setup.args.optional("OUTPUT");
        setup.args.finish()?;
        let outputs = setup.outputs;
        let output =
            read(output?.unwrap_or(0), outputs).map_err(|words| setup.args.refuse_all(&words))?;
        let output = Setting::<u16>::new(output);
        let (each, shown) = (output.clone(), output.clone());
        let made = Made::new(move |_| Switch { output: each.clone() });
        let text = move || match shown.get() {
            NONE => "-1".to_owned(),
            output => output.to_string(),
        };
        let made = made.live(&[LiveArg { handler: "switch", keyword: "OUTPUT" }]);
        Ok(made.handler(Handler::read("switch", text)).handler(Handler::write(
            "switch",
            move |text| {
                let new = read(value(text)?, outputs)?;
                output.change(|_| new);
                Ok(())
            },
        )))
    },
};

/// Stands for no output: there are fewer.
const NONE: u16 = u16::MAX;

/// The output of a number as it is given.
fn read(number: i64, outputs: u32) -> Result<u16, String> {
    let known = |&output: &u16| u32::from(output) < outputs && output != NONE;
    match u16::try_from(number).ok().filter(known) {
        Some(output) => Ok(output),
        None if number < 0 => Ok(NONE),
        None => Err(format!("output must be < {outputs}")),
    }
}

struct Switch {
    output: Setting<u16>,
}

impl Element for Switch {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let output = self.output.get();
        for i in 0..batch.len() {
            if output == NONE {
                batch.discard(i, DropReason::Discarded);
            } else {
                batch.output(i, output);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn packets_go_where_it_is_set_to() {
        let text = "FromDevice(a) -> s :: Switch => ToDevice(x), ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(rig.receive("a", &[&[1]])[0].0, "x");
        rig.write("s.switch", "1");
        assert_eq!(
            (rig.receive("a", &[&[1]])[0].0.as_str(), rig.read("s.switch")),
            ("y", "1".into())
        );
        rig.write("s.switch", "-7");
        assert!(rig.receive("a", &[&[1]]).is_empty());
        assert_eq!((rig.dropped(DropReason::Discarded), rig.read("s.switch")), (1, "-1".into()));
        let reported = rig.handlers.write("s.switch", "2").unwrap_err().to_string();
        assert!(reported.contains("output must be < 2"), "{reported}");
        assert!(rig.handlers.write("s.switch", "x").is_err());
        assert!(refused(&CLASS, "8").contains("output must be < 8"));
    }
}
