//! Where packets enter and leave the graph.
//!
//! `FromDevice(NAME)` and `ToDevice(NAME)` name one device; whoever runs the graph opens it, with the driver that
//! `METHOD` names. `FromPorts` takes in
//! what any other port receives, and `ToPorts` sends each packet by the port that its note names: so the built-in
//! router is one graph for any number of interfaces.
//!
//! Source: Click's `FromDevice` and `ToDevice`. Differs: `ToDevice` also takes what is pushed to it.

use super::ether_input::AHEAD;
#[cfg(feature = "click")]
use crate::element::click::only::device::{self, IGNORED};
use crate::frame::wire::Ether;
use crate::frame::{BATCH, Batch, FLAG_LINK_MULTICAST, Note};
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Receives, Setup};
use crate::language::{ClassSpec, ConfigError};

/// Keywords without effect: none without Click's elements.
#[cfg(not(feature = "click"))]
const IGNORED: &[&str] = &[];

pub(crate) const FROM: ElementClass = ElementClass {
    spec: spec("FromDevice", "0/1", "h/h").ignores(IGNORED),
    summary: "the packets that a device receives",
    configure: from,
};

pub(crate) const FROM_ALL: ElementClass = ElementClass {
    spec: spec("FromPorts", "0/1", "h/h"),
    summary: "the packets that ports receive for which there is no FromDevice",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| Pass).receives(Receives::Rest))
    },
};

pub(crate) const TO: ElementClass = ElementClass {
    spec: spec("ToDevice", "1/0", "a/a").ignores(IGNORED),
    summary: "sends packets by a device",
    configure: to,
};

pub(crate) const TO_ALL: ElementClass = ElementClass {
    spec: spec("ToPorts", "1/0", "h/h"),
    summary: "sends packets by the port that their note names",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| ToPorts))
    },
};

const fn spec(name: &'static str, ports: &'static str, processing: &'static str) -> ClassSpec {
    ClassSpec::new(name, ports, processing, "x/y")
}

/// Configures an element that receives from the device of its arguments.
pub(crate) fn from(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let port = device(setup)?;
    Ok(Made::new(|_| FromDevice).receives(Receives::Port(port)))
}

/// Configures an element that sends by the device of its arguments.
pub(crate) fn to(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let port = device(setup)?;
    Ok(Made::new(move |_| ToDevice { port }))
}

fn device(setup: &mut Setup<'_>) -> Result<u16, ConfigError> {
    let name = setup.args.positional::<String>("DEVNAME");
    let driver = setup.args.keyword::<String>("METHOD");
    #[cfg(feature = "click")]
    let driver = device::driver(setup, driver);
    setup.args.finish()?;
    let (name, driver) = (name?, driver?);
    if let Some(driver) = &driver
        && !setup.drivers.iter().any(|known| known.name == driver)
    {
        let known: Vec<&str> = setup.drivers.iter().map(|known| known.name).collect();
        let words = format!("METHOD: no driver `{driver}`; there are {}", known.join(", "));
        return Err(setup.args.refuse_all(&words));
    }
    setup.device(&name, driver)
}

/// The worker hands received batches to it. Notes which arrived for a group of hosts.
struct FromDevice;

impl Element for FromDevice {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..AHEAD {
            batch.prefetch(i);
        }
        for i in 0..batch.len() {
            batch.prefetch(i + AHEAD);
            if Ether::of(batch.bytes(i)).is_some_and(Ether::multicast) {
                batch.meta_mut()[i].flags |= FLAG_LINK_MULTICAST;
            }
        }
    }
}

/// Element that leaves packets as they are: the next one reads their headers.
struct Pass;

impl Element for Pass {}

/// Sends by a port.
pub(crate) struct ToDevice {
    pub(crate) port: u16,
}

impl Element for ToDevice {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for meta in batch.meta_mut() {
            meta.note = Note::egress(self.port);
        }
        cx.transmit(batch);
    }

    /// Takes no more than the port has room for, so that packets wait where they are scheduled.
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        batch.set_limit(cx.transmit_room(self.port));
        inputs.pull(0, batch, cx);
        batch.set_limit(BATCH);
        self.process(0, batch, cx);
    }
}

struct ToPorts;

impl Element for ToPorts {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.transmit(batch);
    }
}
