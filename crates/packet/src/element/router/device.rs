//! Where packets enter and leave the graph.
//!
//! `FromDevice(NAME)` and `ToDevice(NAME)` name one device; whoever runs the graph opens it, with the driver that
//! `METHOD` names. `FromPorts` takes in
//! what any other port receives, and `ToPorts` sends each packet by the port that its note names: so the built-in
//! router is one graph for any number of interfaces.
//!
//! Source: Click's `FromDevice` and `ToDevice`. With Click's elements `FORCE_IP true` passes IPv4 packets alone, whose header
//! it marks: others leave by output 1, or are dropped. Differs: the time of a packet is noted only with `TIMESTAMP true`;
//! `ToDevice` also takes what is pushed to it.

use std::sync::Arc;

use super::ether_input::AHEAD;
#[cfg(feature = "click")]
use crate::element::click::only::device::{self, IGNORED, IGNORED_FROM};
#[cfg(feature = "click")]
use crate::element::click::only::received::Received;
use crate::element::support::packets::Packets;
use crate::frame::counters::Count;
use crate::frame::wire::Ether;
use crate::frame::{BATCH, Batch, FLAG_LINK_MULTICAST, Note};
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Passing, Receives, Setup};
use crate::language::{ClassSpec, ConfigError};

/// Keywords without effect: none without Click's elements.
#[cfg(not(feature = "click"))]
const IGNORED: &[&str] = &[];
#[cfg(not(feature = "click"))]
const IGNORED_FROM: &[&str] = &[];

pub(crate) const FROM: ElementClass = ElementClass {
    spec: spec("FromDevice", "0/1-2", "h/h").outputs(&["out", "others"]).ignores(IGNORED_FROM),
    summary: "the packets that a device receives",
    configure: from,
};

pub(crate) const FROM_ALL: ElementClass = ElementClass {
    spec: spec("FromPorts", "0/1", "h/h"),
    summary: "the packets that ports receive for which there is no FromDevice",
    configure: |setup| {
        setup.args.finish()?;
        // The next element reads the headers.
        Ok(Made::new(|_| Passing).receives(Receives::Rest))
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
    #[cfg(feature = "click")]
    let received = device::received(setup);
    let port = device(setup, true)?;
    #[cfg(feature = "click")]
    let received = received?;
    let counts = setup.keep::<Packets>();
    let each = counts.clone();
    let made = Made::new(move |instance| FromDevice {
        count: each.workers.add(instance),
        #[cfg(feature = "click")]
        received,
    });
    Ok(counts.handled(made).receives(Receives::Port(port)))
}

/// Configures an element that sends by the device of its arguments.
pub(crate) fn to(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let port = device(setup, false)?;
    let counts = setup.keep::<Packets>();
    let each = counts.clone();
    let made = Made::new(move |instance| Counted {
        device: ToDevice { port },
        count: each.workers.add(instance),
    });
    Ok(counts.handled(made))
}

/// The port that an element names; one that receives may have what the host sends as well.
fn device(setup: &mut Setup<'_>, receives: bool) -> Result<u16, ConfigError> {
    let name = setup.args.positional::<String>("DEVNAME");
    let driver = setup.args.keyword::<String>("METHOD");
    #[cfg(not(feature = "click"))]
    let _ = receives;
    #[cfg(feature = "click")]
    let outbound = if receives { setup.args.keyword::<bool>("OUTBOUND") } else { Ok(None) };
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
    #[cfg(feature = "click")]
    if outbound?.unwrap_or(false) {
        return device::outbound(setup, &name, driver);
    }
    setup.device(&name, driver)
}

/// The worker hands received batches to it. Notes which arrived for a group of hosts.
struct FromDevice {
    count: Arc<Count>,
    #[cfg(feature = "click")]
    received: Received,
}

impl Element for FromDevice {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.count.add(batch.len() as u64);
        for i in 0..AHEAD {
            batch.prefetch(i);
        }
        for i in 0..batch.len() {
            batch.prefetch(i + AHEAD);
            if Ether::of(batch.bytes(i)).is_some_and(Ether::multicast) {
                batch.meta_mut()[i].flags |= FLAG_LINK_MULTICAST;
            }
        }
        #[cfg(feature = "click")]
        self.received.note(batch, cx.now_ns);
        #[cfg(not(feature = "click"))]
        let _ = cx;
    }
}

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

    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.fill(batch, inputs, cx);
        self.process(0, batch, cx);
    }
}

impl ToDevice {
    /// Takes no more than the port has room for, so that packets wait where they are scheduled.
    fn fill(&self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        batch.set_limit(cx.transmit_room(self.port));
        inputs.pull(0, batch, cx);
        batch.set_limit(BATCH);
    }
}

/// [`ToDevice`], whose packets are counted: those that it was given to send.
struct Counted {
    device: ToDevice,
    count: Arc<Count>,
}

impl Element for Counted {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.count.add(batch.len() as u64);
        self.device.process(input, batch, cx);
    }

    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.device.fill(batch, inputs, cx);
        self.process(0, batch, cx);
    }
}

struct ToPorts;

impl Element for ToPorts {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.transmit(batch);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn packets_are_counted() {
        let text = "f :: FromDevice(a) -> q :: Queue -> t :: ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[1; 60], &[2; 60]]);
        rig.poll();
        let counts = |rig: &Rig| [rig.read("f.count"), rig.read("t.count")];
        assert_eq!(counts(&rig), ["2", "2"]);
        rig.write("t.reset_counts", "");
        rig.receive("a", &[&[3; 60]]);
        rig.poll();
        assert_eq!(counts(&rig), ["3", "1"]);
    }

    #[cfg(feature = "click")]
    #[test]
    fn ip_packets_alone_are_passed() {
        let text = "f :: FromDevice(a, FORCE_IP true) -> IPClassifier(udp) -> ToDevice(x); f [1] -> ToDevice(y);
            FromDevice(b, FORCE_IP true) -> ToDevice(z)";
        let mut rig = Rig::new(&World::new(), text);
        let ip = crate::testing::frame_v4("10.0.0.1", "10.0.0.2", 64, 17, &[0; 8]);
        let arp = [&ip[..12], &[8, 6], &ip[14..]].concat();
        let to = |rig: &mut Rig, device: &str| -> String {
            let sent = rig.receive(device, &[&arp, &ip]).into_iter();
            sent.map(|(device, _)| device).collect()
        };
        assert_eq!((to(&mut rig, "a"), to(&mut rig, "b")), ("xy".into(), "z".into()));
        assert_eq!(rig.dropped(crate::frame::DropReason::Unmatched), 1);
    }

    #[cfg(feature = "click")]
    #[test]
    fn times_of_packets_are_noted_where_that_is_wished() {
        use crate::element::click::only::console;
        for (more, stamped) in
            [(", TIMESTAMP true", true), (", TIMESTAMP false", false), ("", false)]
        {
            console::collect();
            let text = format!(
                "FromDevice(a{more}) -> ToIPSummaryDump(-, HEADER false, FIELDS timestamp)"
            );
            Rig::new(&World::new(), &text).receive("a", &[&[1; 60]]);
            let out = console::collected().out;
            assert_eq!(out != "0.000000\n", stamped, "{more}: {out}");
        }
    }

    #[cfg(feature = "click")]
    #[test]
    fn what_the_kernel_sends_is_received_by_a_packet_socket() {
        use crate::device::Driver;
        use crate::graph::{Plan, Registry};
        static DRIVERS: &[Driver] = &[Driver {
            name: "af_packet",
            summary: "",
            in_rings: 0,
            external: true,
            open: |_| Ok(Vec::new()),
        }];
        let registry =
            || Registry { elements: crate::ELEMENTS, drivers: DRIVERS, interfaces: |_| None };
        let of = |text: String| {
            let plan = Plan::read("a", &text, registry()).unwrap();
            let warned = plan.warnings().iter().any(|report| report.message.contains("OUTBOUND"));
            (plan.devices()[0].what.clone(), warned)
        };
        let what = |more: &str| of(format!("FromDevice(eth0, OUTBOUND true{more}) -> Discard"));
        let sends = "Idle -> ToDevice(eth0, METHOD LINUX, OUTBOUND true)".to_owned();
        assert_eq!(of(sends), (None, true), "it receives nothing");
        assert_eq!(what(", METHOD LINUX"), (Some("eth0,outbound".into()), false));
        assert_eq!(what(""), (None, true), "the kernel sends by other means then");
    }
}
