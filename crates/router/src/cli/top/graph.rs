//! `fingerpost top --control`: a graph of a file at a glance, by its handlers `stats`, `workers` and `cycles`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{ANEW, Drops, Share, drops_between, rate, shares, whole, write_drops, write_elements};
use crate::api::graph::{DriverStats, ElementStats, GraphStats};
use crate::cli::command::Failure;
use crate::cli::output::{Column, Columns, Output, Report};
use crate::control::client::ControlClient;
use crate::sys;

/// Interval of checks whether it is to end.
const SLICE: Duration = Duration::from_millis(50);

/// What there is to see at one moment.
struct Look {
    at: Instant,
    workers: Vec<Vec<u64>>,
    graph: GraphStats,
}

/// One picture: its fields are its JSON.
#[derive(Serialize)]
struct Picture {
    /// Seconds between two samples.
    seconds: f64,
    workers: Vec<Worker>,
    elements: Vec<Share>,
    drops: Vec<Drops>,
}

/// What a worker did: packets a second, and what it holds.
#[derive(Serialize)]
struct Worker {
    worker: usize,
    rx_packets: f64,
    tx_packets: f64,
    dropped: f64,
    generated: f64,
    held: u64,
}

/// The cells of a handler's rows.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split('\t').collect())
}

impl Look {
    fn new(client: &mut ControlClient, timed: Option<f64>) -> Result<Self, Failure> {
        let (stats, workers) = (client.read("stats", "")?, client.read("workers", "")?);
        let cycles = if timed.is_some() { client.read("cycles", "")? } else { String::new() };
        let at = Instant::now();
        let cycles: BTreeMap<&str, (f64, f64)> = rows(&cycles)
            .filter_map(|row| Some((*row.first()?, (number(row.get(2)?)?, number(row.get(3)?)?))))
            .collect();
        let element = |row: Vec<&str>| {
            let count = |at: usize| row.get(at)?.parse::<u64>().ok();
            let reason = |cell: &&str| {
                let (reason, count) = cell.rsplit_once(' ')?;
                Some((reason.to_owned(), count.parse().ok()?))
            };
            let name = (*row.first()?).to_owned();
            let timed = cycles.get(name.as_str()).copied();
            Some(ElementStats {
                class: (*row.get(1)?).to_owned(),
                worker: 0,
                packets: count(2)?,
                batches: count(3)?,
                average_batch: None,
                cycles: timed.map(|(_, cycles)| cycles),
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "counts of ticks, for shares"
                )]
                ticks: timed.map(|(packets, cycles)| (packets * cycles) as u64),
                dropped: count(4)?,
                reasons: row[5..].iter().filter_map(reason).collect(),
                name,
            })
        };
        let elements: Option<Vec<_>> = rows(&stats).map(element).collect();
        let elements = elements.ok_or_else(|| client.protocol("no `stats` as of this version"))?;
        let drivers = DriverStats::default();
        let graph = GraphStats { elements, timed, drivers, edges: Vec::new() };
        let workers = rows(&workers)
            .map(|row| row.iter().map_while(|cell| cell.parse().ok()).collect())
            .collect();
        Ok(Self { at, workers, graph })
    }
}

fn number(cell: &str) -> Option<f64> {
    cell.parse().ok()
}

/// Shows pictures until there were enough, or somebody ends it.
pub(super) fn run(
    mut client: ControlClient,
    interval: f64,
    count: u64,
    anew: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    // Elements are not to be timed when nobody looks any more.
    sys::catch_signals();
    let timed = client.write("cycles", "true").is_ok();
    let shown = show(&mut client, (interval, timed), count, anew, output);
    if timed {
        let ended = client.write("cycles", "false");
        return shown.and(ended.map_err(Failure::from));
    }
    shown
}

fn show(
    client: &mut ControlClient,
    (interval, timed): (f64, bool),
    count: u64,
    anew: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut before = Look::new(client, None)?;
    for _ in 0..count {
        if timed {
            // From now on, as the rates.
            client.write("cycles", "true")?;
        }
        while before.at.elapsed().as_secs_f64() < interval {
            if sys::stop_asked() {
                return Ok(());
            }
            std::thread::sleep(SLICE);
        }
        let now = Look::new(client, timed.then_some(interval))?;
        let picture = Picture::new(&before, &now);
        if anew {
            output.write_all(ANEW.as_bytes())?;
        }
        output.print(&picture)?;
        output.flush()?;
        before = now;
    }
    Ok(())
}

impl Picture {
    fn new(before: &Look, now: &Look) -> Self {
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let worker = |(number, now): (usize, &Vec<u64>)| {
            let at = |cells: &[u64], at: usize| cells.get(at).copied().unwrap_or(0);
            let old = before.workers.get(number).map_or(&now[..], |old| &old[..]);
            let rate = |cell: usize| rate(at(old, cell), at(now, cell), seconds);
            Worker {
                worker: number,
                rx_packets: rate(1),
                tx_packets: rate(2),
                dropped: rate(3),
                held: at(now, 4),
                generated: rate(5),
            }
        };
        // The handlers have sums over all workers.
        let elements = shares(&before.graph, &now.graph, seconds).into_iter();
        Self {
            seconds,
            workers: now.workers.iter().enumerate().map(worker).collect(),
            elements: elements.map(|share| Share { worker: None, ..share }).collect(),
            drops: drops_between(&before.graph, &now.graph, seconds),
        }
    }
}

const WORKERS: &[Column<Worker>] = &[
    ("worker", |row| row.worker.to_string()),
    ("in/s", |row| whole(row.rx_packets)),
    ("out/s", |row| whole(row.tx_packets)),
    ("dropped/s", |row| whole(row.dropped)),
    ("made/s", |row| whole(row.generated)),
    ("held", |row| row.held.to_string()),
];

impl Report for Picture {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        Columns::of(WORKERS, &self.workers).write(to)?;
        writeln!(to)?;
        write_elements(&self.elements, to)?;
        writeln!(to)?;
        write_drops(&self.drops, to)
    }
}
