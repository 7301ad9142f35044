//! Choices of one input: `PullSwitch(INPUT)` pulls from it, `InputSwitch(INPUT)` passes what it brings; handlers change it.
//! `StaticPullSwitch(INPUT)` is never changed.
//!
//! Source: Click's elements of these names (`SimplePullSwitch` is another name of the first). Below 0 it is no input.

use crate::element::support::setting::{Setting, value};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = class("PullSwitch", true);
pub(crate) const SIMPLE: ElementClass = class("SimplePullSwitch", true);
pub(crate) const STATIC: ElementClass = class("StaticPullSwitch", false);

const fn class(name: &'static str, changes: bool) -> ElementClass {
    ElementClass {
        spec: ClassSpec::new(name, "-/1", "l/l", "x/x"),
        summary: "pulls from one of its inputs",
        configure: if changes { changing } else { fixed },
    }
}

fn changing(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let input = read(setup)?;
    let each = input.clone();
    Ok(handled(Made::new(move |_| PullSwitch { input: each.clone() }), input, setup.inputs))
}

fn fixed(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let input = read(setup)?;
    Ok(Made::new(move |_| PullSwitch { input: input.clone() }))
}

pub(crate) const INPUT: ElementClass = ElementClass {
    spec: ClassSpec::new("InputSwitch", "-/1", "h/h", "x/x"),
    summary: "passes what comes by one of its inputs",
    configure: |setup| {
        let input = read(setup)?;
        let each = input.clone();
        Ok(handled(Made::new(move |_| Input { input: each.clone() }), input, setup.inputs))
    },
};

/// The chosen input of the arguments.
fn read(setup: &mut Setup<'_>) -> Result<Setting<u16>, ConfigError> {
    let input = setup.args.optional::<i64>("INPUT");
    setup.args.finish()?;
    let checked = checked(input?.unwrap_or(0), setup.inputs);
    checked.map(Setting::new).map_err(|words| setup.args.refuse_all(&format!("INPUT: {words}")))
}

/// Adds the handlers that read and change it.
fn handled(made: Made, input: Setting<u16>, inputs: u32) -> Made {
    let shown = input.clone();
    let made = made.handler(Handler::read("switch", move || match shown.get() {
        NONE => "-1".into(),
        input => input.to_string(),
    }));
    made.handler(Handler::write("switch", move |text| {
        let chosen = checked(value(text)?, inputs)?;
        input.change(|_| chosen);
        Ok(())
    }))
}

/// Stands for no input: there are fewer.
const NONE: u16 = u16::MAX;

/// The input of a number as it is given; below 0 it is none.
fn checked(number: i64, inputs: u32) -> Result<u16, String> {
    match u16::try_from(number) {
        Ok(input) if u32::from(input) < inputs => Ok(input),
        _ if number < 0 => Ok(NONE),
        _ => Err(format!("`{number}` is no input: there are {inputs}")),
    }
}

struct PullSwitch {
    input: Setting<u16>,
}

impl Element for PullSwitch {
    fn pull(&mut self, _: u16, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        let input = self.input.get();
        if input != NONE {
            inputs.pull(input, into, cx);
        }
    }
}

struct Input {
    input: Setting<u16>,
}

impl Element for Input {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if input != self.input.get() {
            for i in 0..batch.len() {
                batch.discard(i, DropReason::Discarded);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn one_input_is_pulled() {
        let text = "FromDevice(a) -> Queue -> [0] s :: PullSwitch(1) -> ToDevice(x); FromDevice(b) -> Queue -> [1] s";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[1]]);
        rig.receive("b", &[&[2]]);
        assert_eq!(rig.poll()[0].1, [2]);
        rig.write("s.switch", "-1");
        assert_eq!((rig.poll().len(), rig.read("s.switch")), (0, "-1".into()));
        rig.write("s.switch", "0");
        assert_eq!(rig.poll()[0].1, [1]);
        assert!(refused(&CLASS, "1").contains("`1` is no input: there are 1"));
    }

    #[test]
    fn one_input_passes() {
        let text = "FromDevice(a) -> s :: InputSwitch(1) -> ToDevice(x); FromDevice(b) -> [1] s";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!((rig.receive("a", &[&[1]]).len(), rig.receive("b", &[&[1]]).len()), (0, 1));
        rig.write("s.switch", "0");
        assert_eq!((rig.receive("a", &[&[1]]).len(), rig.read("s.switch")), (1, "0".into()));
    }
}
