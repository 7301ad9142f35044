//! `InputSwitch(N)` passes packets of one of its inputs, and drops those of the others.
//!
//! Source: Click's `InputSwitch`. A negative number drops all. Handler `switch`.

use crate::element::support::setting::{Setting, value};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("InputSwitch", "-/1", "h/h", "x/x"),
    summary: "passes packets of the input that it is set to",
    configure: |setup| {
        let input = setup.args.optional::<i64>("INPUT");
        setup.args.finish()?;
        let inputs = setup.inputs;
        let input = read(input?.unwrap_or(0), inputs)
            .map_err(|words| setup.args.refuse_all(&format!("INPUT: {words}")))?;
        let input = Setting::<i32>::new(input);
        let (each, shown) = (input.clone(), input.clone());
        Ok(Made::new(move |_| InputSwitch { input: each.clone() })
            .handler(Handler::read("switch", move || shown.get().to_string()))
            .handler(Handler::write("switch", move |text| {
                let new = read(value(text)?, inputs)?;
                input.change(|_| new);
                Ok(())
            })))
    },
};

/// The input of a number as it is given; -1 for none.
fn read(number: i64, inputs: u32) -> Result<i32, String> {
    match i32::try_from(number) {
        _ if number < 0 => Ok(-1),
        Ok(input) if number < i64::from(inputs) => Ok(input),
        _ => Err(format!("`{number}` is no input: there are {inputs}")),
    }
}

struct InputSwitch {
    input: Setting<i32>,
}

impl Element for InputSwitch {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if i32::from(input) != self.input.get() {
            (0..batch.len()).for_each(|i| batch.discard(i, DropReason::Discarded));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World};

    #[test]
    fn one_input_is_open() {
        let text = "FromDevice(a) -> s :: InputSwitch -> ToDevice(x); FromDevice(b) -> [1] s";
        let mut rig = Rig::new(&World::new(), text);
        let mut sent = |switch: &str| {
            rig.write("s.switch", switch);
            ["a", "b"].map(|device| rig.receive(device, &[&[1]]).len())
        };
        assert_eq!([sent("0"), sent("1"), sent("-3")], [[1, 0], [0, 1], [0, 0]]);
        assert_eq!((rig.read("s.switch"), rig.dropped(DropReason::Discarded)), ("-1".into(), 4));
        let reported = rig.handlers.write("s.switch", "2").unwrap_err().to_string();
        assert!(reported.contains("`2` is no input: there are 2"), "{reported}");
    }
}
