//! Devices as configurations of Click name them: keywords of `FromDevice` and `ToDevice`; `PollDevice`,
//! `FromDPDKDevice` and `ToDPDKDevice`, which are the same here; and the host: `FromHost`, `ToHost`, `ToHostSniffers`,
//! `KernelTap`, `KernelTun`.
//!
//! Source: Click's elements of these names, and FastClick's. `METHOD LINUX`, `METHOD PCAP` and `SNIFFER true` leave
//! packets to the host as well (driver `af_packet`), unless `SNIFFER false` is given; a `METHOD` may also name a
//! driver. By `af_packet` a `FromDevice` with `OUTBOUND true` receives what the kernel sends as well. What means nothing here
//! (`PROMISC`, `BURST`, `SNAPLEN`, `HEADROOM`...) is taken with a warning, and so is `BPF_FILTER`: an `IPClassifier` behind
//! the element does what it does.
//!
//! `KernelTap(ADDR/LEN)` and `FromHost(DEVNAME, ADDR/LEN)` are a TAP interface with this address, `KernelTun(ADDR/LEN)`
//! is a TUN interface, whose packets have no Ethernet header (what is no IP leaves by output 1); `DEVNAME`, `ETHER` and
//! `MTU` are those of the interface. `ToHost` sends to the interface of the `FromHost` of its name, else of the first
//! one, else to one of its own; unicast frames get the link address of that interface, so that the host takes them.
//! `ToHostSniffers` drops packets: no program can be shown what the host is not.

use std::net::Ipv4Addr;
use std::sync::Arc;

use fingerpost_route::Mac;

use super::received::Received;
use crate::element::router::device::{ToDevice, from, to};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::{Ether, EtherMut};
use crate::frame::{Batch, DropReason, Hop};
use crate::graph::run::RECEIVED;
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Receives, Setup};
use crate::language::{Around, ClassSpec, ConfigError, Problems};

pub(crate) const POLL: ElementClass = ElementClass {
    spec: ClassSpec::new("PollDevice", "0/1", "h/h", "x/y").ignores(IGNORED_FROM),
    summary: "the packets that a device receives, as FromDevice",
    configure: from,
};

pub(crate) const FROM_DPDK: ElementClass = ElementClass {
    spec: ClassSpec::new("FromDPDKDevice", "0/1", "h/h", "x/y").ignores(IGNORED_DPDK),
    summary: "the packets that a device receives, as FromDevice",
    configure: from,
};

pub(crate) const TO_DPDK: ElementClass = ElementClass {
    spec: ClassSpec::new("ToDPDKDevice", "1/0", "a/a", "x/y").ignores(IGNORED_DPDK),
    summary: "sends packets by a device, as ToDevice",
    configure: to,
};

pub(crate) const FROM_HOST: ElementClass = ElementClass {
    spec: ClassSpec::new(FROM_HOST_NAME, "0/1", "h/h", "x/y").ignores(IGNORED_HOST),
    summary: "the frames that the host sends by a TAP interface",
    configure: |setup| {
        let name = setup.args.positional::<String>("DEVNAME");
        let own = setup.args.optional::<Around<u32>>("PREFIX");
        let host = Host::read(setup, name.map(Some), own)?;
        host.made(setup, "tap", false)
    },
};

pub(crate) const TO_HOST: ElementClass = ElementClass {
    spec: ClassSpec::new("ToHost", "1/0", "a/a", "x/y").ignores(&["SNIFFERS", "ALLOW_NONEXISTENT"]),
    summary: "sends frames to the host, by a TAP interface",
    configure: |setup| {
        let name = setup.args.optional::<String>("DEVNAME");
        let kind = setup.args.keyword::<String>("TYPE");
        setup.args.finish()?;
        kind?;
        let host = named_host(setup, name?.as_deref());
        let mac = host.mac();
        let port = setup.device_of(&host.name, "tap", host.what(false))?;
        let drops = setup.keep::<PerWorker<Count>>();
        let shown = drops.clone();
        let made = Made::new(move |instance| {
            let drops = drops.add(instance);
            ToHost { device: ToDevice { port }, mac, drops }
        });
        Ok(made.counter("drops", &shown))
    },
};

pub(crate) const TO_SNIFFERS: ElementClass = ElementClass {
    spec: ClassSpec::new("ToHostSniffers", "1/0", "a/a", "x/y"),
    summary: "drops packets: the host has no sniffers for what it is not sent",
    configure: |setup| {
        while setup.args.next_of_any().is_some() {}
        setup.args.finish()?;
        setup
            .args
            .warn_here("packets end here: `ToDump` writes them for programs that look at them");
        Ok(Made::new(|_| ToSniffers))
    },
};

pub(crate) const TAP: ElementClass = ElementClass {
    spec: ClassSpec::new("KernelTap", "0-1/1", "a/h", "x/y").ignores(IGNORED_HOST),
    summary: "frames to and from the host, by a TAP interface",
    configure: |setup| {
        let own = setup.args.positional::<Around<u32>>("ADDR");
        let host = Host::read(setup, Ok(None), own.map(Some))?;
        host.made(setup, "tap", false)
    },
};

pub(crate) const TUN: ElementClass = ElementClass {
    spec: ClassSpec::new("KernelTun", "0-1/1-2", "a/h", "x/y")
        .outputs(&["ip", "others"])
        .ignores(IGNORED_HOST),
    summary: "IP packets to and from the host, by a TUN interface",
    configure: |setup| {
        let own = setup.args.positional::<Around<u32>>("ADDR");
        let tap = setup.args.keyword("TAP");
        let host = Host::read(setup, Ok(None), own.map(Some))?;
        match tap?.unwrap_or(false) {
            true => host.made(setup, "tap", false),
            false => host.made(setup, "tun", true),
        }
    },
};

const FROM_HOST_NAME: &str = "FromHost";

/// Keywords of interfaces of the host that have no effect.
const IGNORED_HOST: &[&str] = &["BURST", "HEADROOM", "IGNORE_QUEUE_OVERFLOWS"];

/// Keywords of Click's devices that have no effect. The first three have an effect in `FromDevice`.
pub(crate) const IGNORED: &[&str] = &[
    "FORCE_IP",
    "OUTBOUND",
    "TIMESTAMP",
    "BURST",
    "HEADROOM",
    "PROTOCOL",
    "ENCAP",
    "ALLOW_NONEXISTENT",
    "QUIET",
    "UP_CALL",
    "UNIQUE",
    "NO_PAD",
    "QUEUE",
    "DEBUG",
    "NETMAP_EXTRA",
];

/// Keywords of Click's `FromDevice` that have no effect.
pub(crate) const IGNORED_FROM: &[&str] = IGNORED.split_at(3).1;

/// Keywords of FastClick's devices that have no effect.
const IGNORED_DPDK: &[&str] = &[
    "BURST",
    "QUEUE",
    "N_QUEUES",
    "MINQUEUES",
    "MAXQUEUES",
    "MINTHREADS",
    "MAXTHREADS",
    "THREADOFFSET",
    "NDESC",
    "NUMA",
    "NUMA_NODE_OVERRIDE",
    "VERBOSE",
    "ACTIVE",
    "SCALE",
    "MODE",
    "RSS_AGGREGATE",
    "PAUSE",
    "MAC",
    "MTU",
    "RX_INTR",
    "IQUEUE",
    "BLOCKING",
    "TIMEOUT",
    "ALLOC",
    "TX_IP_CHKSUM",
    "TX_TCP_CHKSUM",
    "VLAN",
    "TIMESTAMP",
    "ALLOW_NONEXISTENT",
];

/// The driver that the keywords of `FromDevice` and `ToDevice` mean, and that of `METHOD`.
pub(crate) fn driver(
    setup: &mut Setup<'_>,
    method: Result<Option<String>, ConfigError>,
) -> Result<Option<String>, ConfigError> {
    let sniffer = setup.args.keyword::<bool>("SNIFFER");
    let promiscuous = setup.args.optional::<bool>("PROMISC");
    let length = setup.args.optional::<u32>("SNAPLEN");
    if setup.args.keyword_arg("BPF_FILTER")?.is_some() {
        setup.args.warn_here("BPF_FILTER is not applied: put an IPClassifier behind it");
    }
    if matches!(promiscuous, Ok(Some(_))) || matches!(length, Ok(Some(_))) {
        setup.args.warn_here("PROMISC and SNAPLEN change nothing here");
    }
    promiscuous?;
    length?;
    let (method, sniffer) = (method?, sniffer?);
    let shares = || {
        let known = setup.drivers.iter().any(|driver| driver.name == SHARING);
        known.then(|| SHARING.to_owned())
    };
    Ok(match (method.as_deref(), sniffer) {
        (Some("LINUX" | "PCAP" | "MMAP" | "NETMAP" | "BPF"), Some(false)) => None,
        (Some("LINUX" | "PCAP" | "MMAP" | "NETMAP" | "BPF"), _) | (None, Some(true)) => shares(),
        _ => method,
    })
}

/// Driver of devices whose packets the host gets as well.
const SHARING: &str = "af_packet";

/// What is done to the packets that a `FromDevice` receives.
pub(crate) fn received(setup: &mut Setup<'_>) -> Result<Received, ConfigError> {
    let force_ip = setup.args.keyword::<bool>("FORCE_IP");
    let stamps = setup.args.keyword::<bool>("TIMESTAMP");
    let others = setup.exit(1, DropReason::Unmatched);
    Ok(Received {
        stamps: stamps?.unwrap_or(false),
        snap_len: None,
        force_ip: force_ip?.unwrap_or(false).then_some(others),
    })
}

/// The number of the port for a device of which packets are received as well that the kernel sends.
pub(crate) fn outbound(
    setup: &mut Setup<'_>,
    name: &str,
    driver: Option<String>,
) -> Result<u16, ConfigError> {
    if driver.as_deref() == Some(SHARING) {
        return setup.device_of(name, SHARING, format!("{name},outbound"));
    }
    setup.args.warn_here("OUTBOUND: no effect by this driver: METHOD LINUX receives what is sent");
    setup.device(name, driver)
}

/// Link address of an interface of a `ToHost` or `FromHost` that has none of its own: Click's.
const USUAL_MAC: Mac = Mac([0, 1, 2, 3, 4, 5]);

/// An interface of the host that is made for an element.
struct Host {
    /// Name of the device in the graph, and of the interface unless it has one of its own.
    name: String,
    interface: Option<String>,
    own: Option<Around<u32>>,
    mac: Option<Mac>,
    mtu: Option<u16>,
}

impl Host {
    fn read(
        setup: &mut Setup<'_>,
        name: Result<Option<String>, ConfigError>,
        own: Result<Option<Around<u32>>, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let gateway = setup.args.optional::<Ipv4Addr>("GATEWAY");
        let own_name = setup.args.keyword::<String>("DEVNAME");
        let old_name = setup.args.keyword::<String>("DEV_NAME");
        let mac = setup.args.keyword::<Mac>("ETHER");
        let mtu = setup.args.keyword("MTU");
        let kind = setup.args.keyword::<String>("TYPE");
        setup.args.finish()?;
        kind?;
        if gateway?.is_some() {
            setup.args.warn_here("GATEWAY: the host gets no route by it; `ip route add` makes one");
        }
        let interface = name?.or(own_name?).or(old_name?);
        let name = interface.clone().unwrap_or_else(|| setup.name().replace('/', "-"));
        Ok(Self { name, interface, own: own?, mac: mac?, mtu: mtu? })
    }

    fn mac(&self) -> Mac {
        self.mac.unwrap_or(USUAL_MAC)
    }

    /// What the driver of the interface opens: its name and what it is to have.
    /// Interface as its driver takes it; one without Ethernet header (`bare`) has no link address.
    fn what(&self, bare: bool) -> String {
        // The kernel numbers interfaces without a name of their own.
        let mut what = self.interface.clone().unwrap_or_else(|| "click%d".to_owned());
        if let Some(own) = self.own {
            what += &format!(",{}/{}", Ipv4Addr::from_bits(own.addr), own.prefix.len());
        }
        if !bare {
            what += &format!(",ether={}", self.mac());
        }
        if let Some(mtu) = self.mtu {
            what += &format!(",mtu={mtu}");
        }
        what
    }

    fn made(self, setup: &mut Setup<'_>, driver: &str, bare: bool) -> Result<Made, ConfigError> {
        let number = setup.device_of(&self.name, driver, self.what(bare))?;
        Ok(kernel(setup, number, bare))
    }
}

/// An element that sends to an interface of the host what is wired to it, and gives what comes from there.
fn kernel(setup: &Setup<'_>, port: u16, bare: bool) -> Made {
    let (has_inputs, outputs) = (setup.inputs > 0, setup.outputs);
    let made = Made::new(move |_| Kernel { device: ToDevice { port }, has_inputs, outputs, bare });
    if outputs > 0 { made.receives(Receives::Port(port)) } else { made }
}

/// The interface that a `ToHost` sends by.
fn named_host(setup: &Setup<'_>, name: Option<&str>) -> Host {
    let own = Host { name: "host".into(), interface: None, own: None, mac: None, mtu: None };
    let Some(configuration) = setup.around.configuration else { return own };
    let mut first = None;
    for (number, element) in configuration.elements().iter().enumerate() {
        if element.class.name != FROM_HOST_NAME {
            continue;
        }
        // The element itself reports what is wrong.
        let mut problems = Problems::default();
        let mut args = configuration.args(number, &mut problems);
        let Ok(interface) = args.positional::<String>("DEVNAME") else { continue };
        let own = args.optional("PREFIX").ok().flatten();
        let mac = args.keyword("ETHER").ok().flatten();
        let mtu = args.keyword("MTU").ok().flatten();
        let host = Host { name: interface.clone(), interface: Some(interface), own, mac, mtu };
        if name == Some(&host.name) {
            return host;
        }
        first = first.or(Some(host));
    }
    first.unwrap_or(own)
}

/// Sends to an interface of the host what is wired to it, and gives what comes from there.
struct Kernel {
    device: ToDevice,
    has_inputs: bool,
    outputs: u32,
    /// Packets have no Ethernet header.
    bare: bool,
}

impl Element for Kernel {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.has_inputs && input != RECEIVED {
            return self.device.process(0, batch, cx);
        }
        if !self.bare {
            return;
        }
        for i in 0..batch.len() {
            let meta = &mut batch.meta_mut()[i];
            (meta.network, meta.hop) = (0, Hop::NONE);
            let version = batch.bytes(i).first().map(|first| first >> 4);
            match version {
                Some(4 | 6) => {}
                _ if self.outputs > 1 => batch.output(i, 1),
                _ => batch.discard(i, DropReason::BadVersion),
            }
        }
    }

    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.device.poll(batch, inputs, cx);
    }
}

struct ToHost {
    device: ToDevice,
    mac: Mac,
    /// Packets that the interface did not take.
    drops: Arc<Count>,
}

impl Element for ToHost {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            let frame = batch.bytes_mut(i);
            let unicast = Ether::of(frame).filter(|ether| !ether.multicast());
            let src = unicast.map(Ether::src);
            if let (Some(src), Some(mut ether)) = (src, EtherMut::of(frame)) {
                ether.set_addrs(self.mac, src);
            }
        }
        self.device.process(0, batch, cx);
        self.drops.add(batch.len() as u64);
    }

    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        batch.set_limit(cx.transmit_room(self.device.port));
        inputs.pull(0, batch, cx);
        batch.set_limit(crate::frame::BATCH);
        self.process(0, batch, cx);
    }
}

struct ToSniffers;

impl Element for ToSniffers {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            batch.discard(i, DropReason::Discarded);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ELEMENTS;
    use crate::element::click::only::console;
    use crate::frame::{Batch, DropReason};
    use crate::graph::{Plan, Round, Transmit};
    use crate::testing::{Rig, World, batch};

    #[test]
    fn a_host_is_an_interface() {
        let text = "FromHost(fake0, 192.0.2.1/24, ETHER 2:0:0:0:0:7) -> ToDevice(x); FromDevice(a) -> h :: ToHost;
            FromDevice(b) -> t :: KernelTun(10.0.0.1/8, MTU 1400); t -> ToDevice(y); t [1] -> ToDevice(z);
            FromDevice(c) -> Queue -> KernelTap(10.0.0.2/8, DEVNAME tap7) -> ToDevice(w)";
        let mut rig = Rig::new(&World::new(), text);
        let devices: Vec<_> =
            rig.plan.devices().iter().map(|d| (&*d.name, d.what.as_deref())).collect();
        assert!(
            devices.contains(&("fake0", Some("fake0,192.0.2.1/24,ether=02:00:00:00:00:07"))),
            "{devices:?}"
        );
        assert!(devices.contains(&("t", Some("click%d,10.0.0.1/8,mtu=1400"))), "{devices:?}");
        let sent = rig.receive("a", &[&[8; 20], &[1; 20]]);
        assert_eq!((&*sent[0].0, &sent[0].1[..7]), ("fake0", &[2, 0, 0, 0, 0, 7, 8][..]));
        assert_eq!(sent[1].1, [1; 20], "a group stays");
        assert_eq!(rig.read("h.drops"), "0");
        assert_eq!(rig.receive("b", &[&[0x45; 20]])[0].0, "t");
        assert_eq!(rig.receive("t", &[&[0x45; 20]])[0].0, "y");
        assert_eq!(rig.receive("t", &[&[0x15; 20]])[0].0, "z");
        assert_eq!(rig.receive("tap7", &[&[0x15; 20]])[0].0, "w");
        rig.receive("c", &[&[7; 20]]);
        assert_eq!(rig.poll(), [("tap7".to_owned(), vec![7; 20])]);
    }

    /// A host that takes nothing.
    struct Full;

    impl Transmit for Full {
        fn transmit(&mut self, batch: &mut Batch) {
            (0..batch.len()).for_each(|i| batch.discard(i, DropReason::TransmitFull));
        }

        fn room(&mut self, _: u16) -> usize {
            0
        }
    }

    #[test]
    fn what_a_host_does_not_take_is_counted() {
        let text = "FromHost(fake0, 192.0.2.1/24) -> Discard; FromDevice(a) -> h :: ToHost";
        let mut rig = Rig::new(&World::new(), text);
        let at = rig.plan.devices().iter().position(|device| device.name == "a").unwrap();
        let port = u16::try_from(at).unwrap();
        let frames = batch(&rig.bench.pool, port, [&[8; 20][..], &[9; 20]]);
        rig.graph.receive(port, frames, &mut Round { transmit: &mut Full, ..rig.bench.round() });
        assert_eq!((rig.read("h.drops"), rig.dropped(DropReason::TransmitFull)), ("2".into(), 2));
    }

    #[test]
    fn keywords_without_meaning_are_taken_with_a_warning() {
        console::collect();
        let text = "FromDevice(eth0, 1, SNAPLEN 100, METHOD LINUX, BURST 8, BPF_FILTER 'ip') -> ToDevice(eth0, BURST 4);
            FromDPDKDevice(0, N_QUEUES 4) -> ToDPDKDevice(1, BLOCKING true); PollDevice(eth1, PROMISC true) -> ToHostSniffers(x)";
        let plan = Plan::read("f", text, ELEMENTS).unwrap();
        let warnings: Vec<_> =
            plan.warnings().iter().map(|report| report.message.clone()).collect();
        let warned = |words: &str| warnings.iter().any(|warning| warning.contains(words));
        assert!(
            warned("BPF_FILTER is not applied") && warned("BURST: no effect here"),
            "{warnings:?}"
        );
        assert!(warned("N_QUEUES") && warned("PROMISC") && warned("`ToDump`"), "{warnings:?}");
    }
}
