//! Which input is pulled from: `PullSwitch(INPUT)`, changed by its handler, and `StaticPullSwitch(INPUT)`.
//!
//! Source: Click's elements of these names (`SimplePullSwitch` is another name of the first). Below 0 nothing is pulled.

use super::switches::{NONE, checked};
use crate::element::support::setting::{Setting, value};
use crate::frame::Batch;
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
    let inputs = setup.inputs;
    let (shown, set, each) = (input.clone(), input.clone(), input);
    let made = Made::new(move |_| PullSwitch { input: each.clone() });
    let made = made.handler(Handler::read("switch", move || match shown.get() {
        NONE => "-1".into(),
        input => input.to_string(),
    }));
    Ok(made.handler(Handler::write("switch", move |text| {
        let input = checked(value(text)?, inputs)?;
        set.change(|_| input);
        Ok(())
    })))
}

fn fixed(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let input = read(setup)?;
    Ok(Made::new(move |_| PullSwitch { input: input.clone() }))
}

fn read(setup: &mut Setup<'_>) -> Result<Setting<u16>, ConfigError> {
    let input = setup.args.optional::<i64>("INPUT");
    setup.args.finish()?;
    let checked = checked(input?.unwrap_or(0), setup.inputs);
    checked.map(Setting::new).map_err(|words| setup.args.refuse_all(&format!("INPUT: {words}")))
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
}
