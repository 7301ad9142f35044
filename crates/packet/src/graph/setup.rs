//! How an element comes to be: its class configures it once, and it is made once a worker.
//!
//! A class reads the arguments and gives what it makes ([`Made`]): a maker of an instance for each worker, and the
//! handlers, which run on a control thread. What instances and handlers share lies behind an `Arc`.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::{Context, Element, Ending, LiveArg};
use crate::device::{DRIVERS, Driver};
use crate::frame::counters::{Count, Instance, PerWorker};
use crate::frame::{Batch, DropReason, Packet};
use crate::handler::control_socket::SocketRequest;
use crate::handler::{Handler, Handlers};
use crate::language::addresses::Interfaces;
use crate::language::open_policy::OpenPolicy;
use crate::language::{Arg, Args, ClassSpec, Classes, ConfigError, Configuration, Role, Value};
use crate::route_table::AnyTable;
use crate::route_table::gateways::Gateways;

/// Registry row, plain data: all that is known of an element without making it.
#[derive(Clone, Copy, Debug)]
pub struct ElementClass {
    /// What configurations call it, and what it declares of its ports.
    pub spec: ClassSpec,
    /// One line.
    pub summary: &'static str,
    /// Reads the arguments of an element of this class.
    pub configure: fn(&mut Setup<'_>) -> Result<Made, ConfigError>,
}

impl ElementClass {
    /// Accepts keywords without effect: see [`ClassSpec::ignored`].
    #[must_use]
    pub const fn ignores(self, ignored: &'static [&'static str]) -> Self {
        Self { spec: self.spec.ignores(ignored), ..self }
    }

    /// The class with another role.
    #[cfg(feature = "click")]
    pub(crate) const fn role(self, role: Role) -> Self {
        Self { spec: self.spec.role(role), ..self }
    }
}

/// Rows that a graph may name: those of this crate, or what a program joins of several.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    /// Classes of elements.
    pub elements: &'static [ElementClass],
    /// Drivers of the devices that elements name.
    pub drivers: &'static [Driver],
    /// Addresses of the host's interfaces.
    pub interfaces: Interfaces,
}

impl From<&'static [ElementClass]> for Registry {
    /// These elements, with the drivers that need no operating system.
    fn from(elements: &'static [ElementClass]) -> Self {
        Self { elements, drivers: DRIVERS, interfaces: |_| None }
    }
}

impl Classes for [ElementClass] {
    fn find(&self, name: &str) -> Option<ClassSpec> {
        self.iter().find(|class| class.spec.name == name).map(|class| class.spec)
    }

    fn each(&self, visit: &mut dyn FnMut(&'static str)) {
        self.iter().for_each(|class| visit(class.spec.name));
    }
}

/// What a class gets to configure an element with.
pub struct Setup<'a> {
    /// The arguments.
    pub args: Args<'a>,
    /// How many inputs are used.
    pub inputs: u32,
    /// How many outputs are used.
    pub outputs: u32,
    /// Gateways of the whole graph: packets carry the numbers of in `Meta::hop`.
    pub gateways: &'a Arc<Gateways>,
    /// What an element ends the router by.
    pub ending: &'a Ending,
    /// The handlers of the graph, once they are installed.
    pub(crate) installed: &'a Installed,
    /// What it may open: files that arguments name are opened by this, and by nothing else.
    pub policy: &'a OpenPolicy,
    /// Drivers that it may name.
    pub drivers: &'static [Driver],
    pub(crate) devices: &'a mut Devices,
    /// The elements around it, and their route tables.
    pub(crate) around: Around<'a>,
    /// What the element of this name and class kept before.
    pub(crate) before: Option<&'a Kept>,
    /// What it keeps.
    pub(crate) kept: Option<Kept>,
}

impl Setup<'_> {
    /// Runs something with the setup of an element that has nothing around it, with so many inputs and outputs.
    pub(crate) fn alone<T>(
        args: Args<'_>,
        (inputs, outputs): (u32, u32),
        gateways: &Arc<Gateways>,
        drivers: &'static [Driver],
        run: impl FnOnce(&mut Setup<'_>) -> T,
    ) -> T {
        run(&mut Setup {
            args,
            inputs,
            outputs,
            gateways,
            ending: &Ending::default(),
            installed: &Installed::default(),
            policy: &OpenPolicy::default(),
            drivers,
            devices: &mut Devices::default(),
            around: Around {
                configuration: None,
                number: 0,
                tables: &mut HashMap::new(),
                shared: &mut HashMap::new(),
                kept_before: &|_| None,
            },
            before: None,
            kept: None,
        })
    }
}

/// The handlers that elements call: those that were installed last.
#[derive(Clone, Debug, Default)]
pub struct Installed(Arc<Mutex<Weak<Handlers>>>);

impl Installed {
    /// Lets elements call these, as long as they are there.
    pub fn install(&self, handlers: &Arc<Handlers>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(handlers);
    }

    /// The installed handlers.
    pub fn handlers(&self) -> Option<Arc<Handlers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

/// A route table that an element shows to others, as soon as it is configured.
pub(crate) type Shown = Arc<OnceLock<AnyTable>>;

/// The configuration that an element is of.
pub(crate) struct Around<'a> {
    pub(crate) configuration: Option<&'a Configuration>,
    /// Which element it is there.
    pub(crate) number: usize,
    /// Route tables by element.
    pub(crate) tables: &'a mut HashMap<usize, Shown>,
    /// What elements share with those that name them.
    #[cfg_attr(
        not(feature = "click"),
        expect(dead_code, reason = "elements of Click alone use it")
    )]
    pub(crate) shared: &'a mut HashMap<usize, Kept>,
    /// What the element of a number kept in the configuration before.
    #[cfg_attr(
        not(feature = "click"),
        expect(dead_code, reason = "elements of Click alone use it")
    )]
    pub(crate) kept_before: &'a dyn Fn(usize) -> Option<Kept>,
}

impl Around<'_> {
    fn slot(&mut self, number: usize) -> Shown {
        self.tables.entry(number).or_default().clone()
    }
}

/// What instances and handlers of an element share, and its successor continues with.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

impl Setup<'_> {
    /// What the instances and handlers of this element share: that of the element of the same name and class, where
    /// the configuration replaces another one, so that counts continue. Once an element.
    pub fn keep<T: Default + Send + Sync + 'static>(&mut self) -> Arc<T> {
        let before = self.before.cloned().and_then(|kept| kept.downcast::<T>().ok());
        let kept = before.unwrap_or_default();
        self.kept = Some(kept.clone());
        kept
    }

    /// The state of the interface feature whose element this is, where the router uses the feature.
    pub fn state<T: Send + Sync + 'static>(&mut self) -> Option<Arc<T>> {
        let state = self.before.cloned().and_then(|kept| kept.downcast::<T>().ok());
        self.kept = state.clone().map(|state| state as Kept);
        state
    }

    /// The number of the port that drives this device, by that driver if one is named.
    ///
    /// # Errors
    /// Another element named another driver for it.
    pub fn device(&mut self, name: &str, driver: Option<String>) -> Result<u16, ConfigError> {
        let number = self.devices.number(name);
        let device = &mut self.devices.list[usize::from(number)];
        match (&device.driver, driver) {
            (Some(one), Some(other)) if *one != other => {
                let words = format!("{name} is driven by {one} elsewhere, by {other} here");
                Err(self.args.refuse_all(&words))
            }
            (_, None) => Ok(number),
            (_, named) => {
                device.driver = named;
                Ok(number)
            }
        }
    }

    /// Offers this route table to other elements by the element's name.
    pub(crate) fn show(&mut self, table: AnyTable) {
        // A later one would be another table of the same element, of which there are none.
        let _ = self.around.slot(self.around.number).set(table);
    }

    /// Where the route table of an element is to be found when all are configured.
    ///
    /// # Errors
    /// There is no such element, or it has no table.
    pub(crate) fn table(&mut self, arg: &Arg<'_>) -> Result<Shown, ConfigError> {
        let name: String = self.args.read(arg, "TABLE")?;
        let elements = self.around.configuration.map_or(&[][..], Configuration::elements);
        let found =
            self.around.configuration.and_then(|all| all.find_from(self.around.number, &name));
        match found {
            Some(at) if elements[at].class.role == Role::RouteTable => Ok(self.around.slot(at)),
            Some(at) => {
                let words =
                    format!("`{name}` is a {}, and no route table", elements[at].class.name);
                Err(self.args.refuse(arg, &words))
            }
            None => Err(self.args.refuse(arg, &format!("there is no element `{name}`"))),
        }
    }

    /// The values between the spaces of a keyword argument, where it is given.
    ///
    /// # Errors
    /// One is not of this type; all that are not are reported.
    pub fn list<T: Value>(&mut self, name: &'static str) -> Result<Option<Vec<T>>, ConfigError> {
        let Some(arg) = self.args.keyword_arg(name)? else { return Ok(None) };
        let values: Vec<_> = arg.words().map(|word| self.args.read(&word, name)).collect();
        values.into_iter().collect::<Result<_, _>>().map(Some)
    }

    /// Exit of packets that cannot continue: an output, if it is used, or a drop.
    pub fn exit(&self, output: u16, reason: DropReason) -> Exit {
        Exit { output: Some(output).filter(|&output| u32::from(output) < self.outputs), reason }
    }

    /// Name of the element; empty outside of a configuration.
    pub(crate) fn name(&self) -> &str {
        let elements = self.around.configuration.map_or(&[][..], Configuration::elements);
        elements.get(self.around.number).map_or("", |element| &element.name)
    }
}

#[cfg(feature = "click")]
impl Setup<'_> {
    /// The number of the port for a device that a driver opens by other words than its name.
    ///
    /// # Errors
    /// Another element named another driver for it.
    pub(crate) fn device_of(
        &mut self,
        name: &str,
        driver: &str,
        what: String,
    ) -> Result<u16, ConfigError> {
        let number = self.device(name, Some(driver.to_owned()))?;
        self.devices.list[usize::from(number)].what = Some(what);
        Ok(number)
    }

    /// Number of the element in its configuration.
    pub(crate) fn number(&self) -> usize {
        self.around.number
    }

    /// Number and class of the element that a name means here.
    pub(crate) fn element(&self, name: &str) -> Option<(usize, &'static str)> {
        let configuration = self.around.configuration?;
        let number = configuration.find_from(self.around.number, name)?;
        Some((number, configuration.elements()[number].class.name))
    }

    /// What another element kept in the configuration before, where it was there.
    pub(crate) fn kept_by<T: Send + Sync + 'static>(&self, number: usize) -> Option<Arc<T>> {
        (self.around.kept_before)(number).and_then(|kept| kept.downcast::<T>().ok())
    }

    /// What an element shares with those that name it, whichever of them is configured first.
    ///
    /// # Panics
    /// When it is requested as another type.
    pub(crate) fn shared<T: Default + Send + Sync + 'static>(&mut self, number: usize) -> Arc<T> {
        let shared = self.around.shared.entry(number).or_insert_with(|| Arc::<T>::default());
        shared.clone().downcast().expect("one class shares one type")
    }
}

/// An output for packets that cannot continue; where it is not used they are dropped, with a reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit {
    output: Option<u16>,
    reason: DropReason,
}

impl Exit {
    /// A drop in any case.
    #[cfg(feature = "click")]
    pub(crate) fn drops(reason: DropReason) -> Self {
        Self { output: None, reason }
    }

    #[cfg(test)]
    pub(crate) fn by(output: u16, reason: DropReason) -> Self {
        Self { output: Some(output), reason }
    }

    /// Sends packet `i` there.
    #[inline]
    pub fn take(self, batch: &mut Batch, i: usize) {
        match self.output {
            Some(output) => batch.output(i, output),
            None => batch.discard(i, self.reason),
        }
    }

    /// Sends a packet there that was taken out of its batch.
    pub(crate) fn emit(self, packet: Packet, cx: &mut Context<'_>) {
        match self.output {
            Some(output) => cx.emit(output, packet),
            None => cx.drop_packet(packet, self.reason),
        }
    }
}

/// The devices that a configuration names. A device's number is that of its port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    pub(crate) list: Vec<Device>,
}

/// A device that a configuration names, or that one before it named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// This configuration names it.
    pub used: bool,
    /// Its name.
    pub name: String,
    /// Name of its driver, where the configuration names one.
    pub driver: Option<String>,
    /// What the driver opens, where that is not the device of this name.
    pub what: Option<String>,
}

impl Devices {
    /// Those of an earlier configuration, under the same numbers, so that their ports stay.
    pub(crate) fn after(before: &[Device]) -> Self {
        let unused =
            |device: &Device| Device { used: false, driver: None, what: None, ..device.clone() };
        Self { list: before.iter().map(unused).collect() }
    }

    fn number(&mut self, name: &str) -> u16 {
        let at = self.list.iter().position(|device| device.name == name).unwrap_or_else(|| {
            self.list.push(Device { used: true, name: name.to_owned(), driver: None, what: None });
            self.list.len() - 1
        });
        self.list[at].used = true;
        // One element names one device, and a plan has no more nodes than that.
        u16::try_from(at).expect("elements are fewer than port numbers")
    }
}

/// Makes an instance for a worker.
pub(crate) type Make = Arc<dyn Fn(Instance) -> Box<dyn Element> + Send + Sync>;

/// Input that each pulled output pulls from.
pub(crate) type Relay = Arc<dyn Fn(u16) -> u16 + Send + Sync>;

/// Which packets enter the graph at an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Receives {
    /// None.
    #[default]
    Nothing,
    /// What this port receives.
    Port(u16),
    /// What any port receives that no other element is for.
    Rest,
}

/// A configured element.
#[derive(Clone)]
pub struct Made {
    pub(crate) make: Make,
    pub(crate) handlers: Vec<Handler>,
    pub(crate) polled: bool,
    pub(crate) waits_for_room: bool,
    pub(crate) holds_back: bool,
    pub(crate) receives: Receives,
    pub(crate) holds: usize,
    pub(crate) control_socket: Option<SocketRequest>,
    pub(crate) relay: Option<Relay>,
    /// Arguments that can be changed while it runs.
    pub(crate) live: &'static [LiveArg],
    /// It is scheduled as a task.
    pub(crate) task: bool,
}

impl Made {
    /// Makes an instance for each worker so.
    pub fn new<E: Element + 'static>(make: impl Fn(Instance) -> E + Send + Sync + 'static) -> Self {
        Self {
            make: Arc::new(move |instance| Box::new(make(instance))),
            handlers: Vec::new(),
            polled: false,
            waits_for_room: false,
            holds_back: false,
            receives: Receives::Nothing,
            holds: 0,
            control_socket: None,
            relay: None,
            live: &[],
            task: false,
        }
    }

    /// It has a turn in each round.
    #[must_use]
    pub fn polled(mut self) -> Self {
        self.polled = true;
        self
    }

    /// Handlers show and change these arguments, in the order of their places: its configuration follows them, and may be
    /// written.
    #[must_use]
    pub fn live(mut self, args: &'static [LiveArg]) -> Self {
        self.live = args;
        self
    }

    /// It has the handlers of a task, in all turns.
    #[must_use]
    pub fn task(mut self) -> Self {
        self.task = true;
        self
    }

    /// It is a source that queues behind it hold back: its turns read [`Inputs::room`](super::Inputs::room). A source
    /// whose output is pulled has no turns.
    #[must_use]
    pub fn waits_for_room(mut self) -> Self {
        self.waits_for_room = true;
        self
    }

    /// It holds sources before it back while it is full.
    #[must_use]
    pub fn holds_back(mut self) -> Self {
        self.holds_back = true;
        self
    }

    /// Received packets enter the graph here.
    #[must_use]
    pub fn receives(mut self, what: Receives) -> Self {
        self.receives = what;
        self
    }

    /// An instance may keep so many packets.
    #[must_use]
    pub fn holds(mut self, packets: usize) -> Self {
        self.holds = packets;
        self
    }

    /// Its handlers and those of all others are to be reached there.
    #[must_use]
    pub fn control_socket(mut self, request: SocketRequest) -> Self {
        self.control_socket = Some(request);
        self
    }

    /// Its outputs, where they are pulled, pull from the input that this names, and what comes is not processed: it may
    /// be pulled from while it pulls itself. Output 0 alone pulls from other inputs than the first.
    #[must_use]
    pub fn relays(mut self, input: impl Fn(u16) -> u16 + Send + Sync + 'static) -> Self {
        self.relay = Some(Arc::new(input));
        self
    }

    /// It has a handler to read the sum of these counts.
    #[must_use]
    pub fn counter(self, name: &'static str, counts: &Arc<PerWorker<Count>>) -> Self {
        let counts = counts.clone();
        self.handler(Handler::read(name, move || counts.sum(Count::read).to_string()))
    }

    /// It has a handler that does this on any write.
    #[must_use]
    pub fn command(self, name: &'static str, run: impl Fn() + Send + Sync + 'static) -> Self {
        self.handler(Handler::write(name, move |_| {
            run();
            Ok(())
        }))
    }

    /// It has this handler as well.
    #[must_use]
    pub fn handler(mut self, handler: Handler) -> Self {
        self.handlers.push(handler);
        self
    }
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handlers: Vec<&str> = self.handlers.iter().map(Handler::name).collect();
        write!(f, "Made(polled {}, {:?}, handlers {handlers:?})", self.polled, self.receives)
    }
}
