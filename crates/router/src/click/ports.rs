//! The devices of a graph: which driver opens each, and which worker has which of its queues.
//!
//! Each worker has its share of every device's queues: one of each, where there are as many. What a device has fewer of
//! than there are workers is spread over them in software (`fingerpost_packet::device::spread`), so that every worker
//! receives from every device and sends by it, whatever drives it.

use fingerpost_packet::Pool;
use fingerpost_packet::device::afxdp;
use fingerpost_packet::device::{DRIVERS, DeviceError, DeviceSpec, Driver, Port, QueueSet, spread};
use fingerpost_packet::element::Device;

use super::{ClickError, Stand};

/// A device that was opened.
pub(super) struct Opened {
    /// The number of the device.
    pub(super) number: u16,
    /// A port for each worker.
    pub(super) ports: Vec<Box<dyn Port>>,
    /// How it is driven.
    pub(super) mode: String,
}

/// What opens a device, and what that opens.
struct Way<'a> {
    driver: &'static Driver,
    name: &'a str,
    queues: u32,
}

impl<'a> Way<'a> {
    /// By what stands for it, or the interface of its name.
    fn of(device: &'a Device, stands: &'a [Stand]) -> Result<Self, ClickError> {
        let stand = stands.iter().find(|stand| stand.name == device.name);
        let (driver, name) = match (stand, &device.driver) {
            (Some(stand), _) => (stand.driver.as_str(), stand.what.as_str()),
            (None, Some(driver)) => (driver.as_str(), device.name.as_str()),
            (None, None) => ("afxdp", device.name.as_str()),
        };
        let Some(row) = DRIVERS.iter().find(|row| row.name == driver) else {
            return Err(ClickError::NoDriver {
                device: device.name.clone(),
                driver: driver.to_owned(),
                known: DRIVERS.iter().map(|row| row.name).collect::<Vec<_>>().join(", "),
            });
        };
        // A device of another kind has one queue, or does not say.
        Ok(Self { driver: row, name, queues: afxdp::queues(name).unwrap_or(1) })
    }
}

/// Frames that the rings of these devices may hold, for each of so many workers.
pub(super) fn in_rings<'a>(
    devices: impl Iterator<Item = &'a Device>,
    stands: &[Stand],
    workers: usize,
) -> usize {
    let queues = |device| Way::of(device, stands).map_or(1, |way| way.queues as usize);
    let each: usize = devices.map(|device| queues(device).div_ceil(workers)).sum();
    each * afxdp::frames_needed(afxdp::RING) as usize
}

/// Opens a device: a port for each worker, whose frames lie in these pools.
pub(super) fn open(
    number: u16,
    device: &Device,
    stands: &[Stand],
    pools: &[Pool],
) -> Result<Opened, ClickError> {
    let Way { driver, name, queues } = Way::of(device, stands)?;
    let queues = (driver.open)(&DeviceSpec { name, queues: (0, queues), pools })?;
    let mut mode = queues.first().map(|port| port.mode()).unwrap_or_default();
    match (queues.len(), pools.len()) {
        (_, 1) => {}
        (queues, workers) if queues < workers => {
            mode += &format!("; {} for {workers} workers, by flow", counted(queues));
        }
        (queues, workers) => mode += &format!("; {} for {workers} workers", counted(queues)),
    }
    Ok(Opened { number, ports: share_out(name, queues, pools)?, mode })
}

fn counted(queues: usize) -> String {
    if queues == 1 { "one queue".to_owned() } else { format!("{queues} queues") }
}

/// Gives each worker its share of the queues, or of one of them.
fn share_out(
    name: &str,
    queues: Vec<Box<dyn Port>>,
    pools: &[Pool],
) -> Result<Vec<Box<dyn Port>>, DeviceError> {
    let workers = pools.len();
    let count = queues.len();
    if count >= workers {
        let mut sets: Vec<QueueSet<_>> = pools.iter().map(|_| QueueSet::default()).collect();
        for (at, port) in queues.into_iter().enumerate() {
            sets[at % workers].push(port);
        }
        return Ok(sets.into_iter().map(|set| Box::new(set) as Box<dyn Port>).collect());
    }
    // Worker `w` shares the queue of worker `w % count`.
    let mut ends = Vec::new();
    for (at, port) in queues.into_iter().enumerate() {
        let sharing = (at..workers).step_by(count).count();
        ends.push(spread(name, port, &pools[at], sharing)?.into_iter());
    }
    Ok((0..workers).filter_map(|worker| ends.get_mut(worker % count.max(1))?.next()).collect())
}
