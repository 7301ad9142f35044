//! The devices of a graph: which driver opens each, and which worker has which of its queues.
//!
//! Each worker has its share of every device's queues: one of each, where there are as many. What a device has fewer of
//! than there are workers is spread over them in software (`fingerpost_io::share_out`), so that every worker
//! receives from every device and sends by it, whatever drives it.

use fingerpost_io::{frames_held, interface, share_out};
use fingerpost_packet::device::{DeviceSpec, Driver, Port};
use fingerpost_packet::graph::Device;
use fingerpost_packet::{OpenPolicy, Pool};

use super::{ClickError, Stand};
use crate::registry::drivers;

/// A device that was opened.
pub(super) struct Opened {
    /// The number of the device.
    pub(super) number: u16,
    /// A port for each worker.
    pub(super) ports: Vec<Box<dyn Port>>,
    /// How it is driven.
    pub(super) driven: Driven,
}

/// How a device is driven.
#[derive(Clone)]
pub(super) struct Driven {
    /// Name of its driver.
    driver: &'static str,
    /// Description of how it is driven.
    pub(super) mode: String,
}

/// What opens a device, and what that opens.
struct Way<'a> {
    driver: &'static Driver,
    name: &'a str,
    queues: u32,
}

impl<'a> Way<'a> {
    /// The file or device that stands for it, or the interface of its name.
    fn of(device: &'a Device, stands: &'a [Stand]) -> Result<Self, ClickError> {
        let stand = stands.iter().find(|stand| stand.name == device.name);
        let (driver, name) = match (stand, &device.driver) {
            (Some(stand), _) => (stand.driver.as_str(), stand.what.as_str()),
            (None, Some(driver)) => {
                (driver.as_str(), device.what.as_deref().unwrap_or(&device.name))
            }
            (None, None) => ("afxdp", device.name.as_str()),
        };
        let Some(row) = drivers().iter().find(|row| row.name == driver) else {
            return Err(ClickError::NoDriver {
                device: device.name.clone(),
                driver: driver.to_owned(),
                known: drivers().iter().map(|row| row.name).collect::<Vec<_>>().join(", "),
            });
        };
        // A device of another kind has one queue, or does not report it.
        Ok(Self { driver: row, name, queues: interface::queues(name).unwrap_or(1) })
    }
}

/// Frames that these devices may hold, for each of so many workers.
pub(super) fn in_rings<'a>(
    devices: impl Iterator<Item = &'a Device>,
    stands: &[Stand],
    workers: usize,
) -> usize {
    let needed = |device| {
        let way = Way::of(device, stands);
        let queues = way.as_ref().map_or(1, |way| way.queues.max(1) as usize);
        let each = way.as_ref().map_or(0, |way| way.driver.in_rings);
        queues.div_ceil(workers) * each + frames_held(workers.div_ceil(queues))
    };
    devices.map(needed).sum()
}

/// Opens a device that the policy allows: a port for each worker, whose frames lie in these pools.
pub(super) fn open(
    number: u16,
    device: &Device,
    stands: &[Stand],
    pools: &[Pool],
    policy: &OpenPolicy,
) -> Result<Opened, ClickError> {
    let Way { driver, name, queues } = Way::of(device, stands)?;
    let denied = |source| ClickError::Denied { what: device.name.clone(), source };
    if driver.external {
        policy.device(driver.name, name).map_err(denied)?;
    }
    let queues = (driver.open)(&DeviceSpec { name, queues: (0, queues), pools })?;
    let mut mode = queues.first().map(|port| port.mode()).unwrap_or_default();
    match (queues.len(), pools.len()) {
        (_, 1) => {}
        (queues, workers) if queues < workers => {
            mode += &format!("; {} for {workers} workers, by flow", counted(queues));
        }
        (queues, workers) => mode += &format!("; {} for {workers} workers", counted(queues)),
    }
    let driven = Driven { driver: driver.name, mode };
    Ok(Opened { number, ports: share_out(name, queues, pools)?, driven })
}

/// Whether a device that is open may stay as it is.
pub(super) fn agree(device: &Device, stands: &[Stand], driven: &Driven) -> Result<(), ClickError> {
    let asked = Way::of(device, stands)?.driver.name;
    if asked == driven.driver {
        return Ok(());
    }
    Err(ClickError::OtherDriver { device: device.name.clone(), open: driven.driver, asked })
}

fn counted(queues: usize) -> String {
    if queues == 1 { "one queue".to_owned() } else { format!("{queues} queues") }
}
