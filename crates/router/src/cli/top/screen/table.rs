//! The tables of the screen: rows of cells made of a picture, sorted by a column, with those that a filter leaves.

use std::cmp::Ordering;

use fingerpost_packet::DropReason;

use crate::cli::output::Column;
use crate::cli::top::{
    DROPS, Drops, ELEMENTS, FIBS, INTERFACES, Picture, Rates, SOURCES, Share, whole,
};

/// Tabs of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Interfaces,
    Workers,
    Elements,
    Drops,
    Fib,
    Sources,
}

impl Tab {
    pub(super) const ALL: [Self; 6] =
        [Self::Interfaces, Self::Workers, Self::Elements, Self::Drops, Self::Fib, Self::Sources];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Interfaces => "interfaces",
            Self::Workers => "workers",
            Self::Elements => "elements",
            Self::Drops => "drops",
            Self::Fib => "FIB",
            Self::Sources => "sources",
        }
    }
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    /// Name that the row keeps from picture to picture.
    pub(super) key: String,
    /// What its sparkline shows.
    pub(super) rate: f64,
    /// Something is wrong with it.
    pub(super) alarm: bool,
    /// What there is to know besides the cells.
    pub(super) detail: String,
}

/// Rows with their headings.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) headings: Vec<&'static str>,
    pub(super) rows: Vec<Row>,
    /// Heading of the sparkline: what it shows.
    pub(super) shown: &'static str,
}

fn table<T>(
    columns: &[Column<T>],
    things: &[T],
    shown: &'static str,
    row: impl Fn(&T, Vec<String>) -> Row,
) -> Table {
    let cells = |thing: &T| columns.iter().map(|(_, cell)| cell(thing)).collect();
    Table {
        headings: columns.iter().map(|(heading, _)| *heading).collect(),
        rows: things.iter().map(|thing| row(thing, cells(thing))).collect(),
        shown,
    }
}

impl Table {
    /// The table of a tab.
    pub(super) fn of(tab: Tab, picture: &Picture) -> Self {
        match tab {
            Tab::Interfaces => {
                table(INTERFACES, &picture.interfaces, "in/s", |row: &Rates, cells| {
                    let remedy = row.remedy.as_ref();
                    let remedy = remedy.map(|what| format!("nothing leaves by it in XDP: {what}"));
                    Row {
                        key: row.name.clone(),
                        rate: row.rx_packets,
                        alarm: !row.up || row.policy.is_some(),
                        detail: row.policy.clone().or(remedy).unwrap_or_default(),
                        cells,
                    }
                })
            }
            Tab::Workers => workers(&picture.elements),
            Tab::Elements => {
                table(ELEMENTS, &picture.elements, "packets/s", |row: &Share, cells| Row {
                    key: format!("{} {:?}", row.name, row.worker),
                    rate: row.packets,
                    alarm: false,
                    detail: String::new(),
                    cells,
                })
            }
            Tab::Drops => table(DROPS, &picture.drops, "packets/s", |row: &Drops, cells| Row {
                key: format!("{} {}", row.element, row.reason),
                rate: row.packets,
                alarm: row.packets > 0.0,
                detail: meaning(&row.reason),
                cells,
            }),
            Tab::Fib => table(FIBS, &picture.fibs, "pending", |fib, cells| Row {
                key: format!("{} {} {}", fib.table, fib.family, fib.paths),
                #[allow(clippy::cast_precision_loss, reason = "a bar for people")]
                rate: fib.pending as f64,
                alarm: fib.mismatch_routes > 0,
                detail: format!(
                    "{} of {}, {} builds, {} changes in place, {} failures",
                    fib.choice, fib.algorithm, fib.builds, fib.applied, fib.failures
                ),
                cells,
            }),
            Tab::Sources => table(SOURCES, &picture.sources, "updates/s", |row, cells| Row {
                key: row.source.name.clone(),
                rate: row.updates_per_second,
                alarm: !row.source.in_sync,
                detail: row.source.last_error.clone(),
                cells,
            }),
        }
    }

    /// Keeps the rows with `filter` in a cell, and sorts them by a column: numbers in descending order, text in
    /// ascending order, unless reversed.
    pub(super) fn arrange(&mut self, filter: &str, sort: Option<(usize, bool)>) {
        let filter = filter.to_lowercase();
        self.rows.retain(|row| row.cells.iter().any(|cell| cell.to_lowercase().contains(&filter)));
        if let Some((column, reversed)) = sort {
            self.rows.sort_by(|a, b| {
                let order = compare(&a.cells[column], &b.cells[column]);
                if reversed { order.reverse() } else { order }
            });
        }
    }
}

fn compare(a: &str, b: &str) -> Ordering {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => b.total_cmp(&a),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

/// What a worker did, of what its elements did: every packet passes the one that received most.
fn workers(elements: &[Share]) -> Table {
    let mut numbers: Vec<usize> = elements.iter().filter_map(|share| share.worker).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let row = |number: usize| {
        let of = || elements.iter().filter(move |share| share.worker == Some(number));
        let rate = of().map(|share| share.packets).fold(0.0, f64::max);
        let share: f64 = of().filter_map(|share| share.share).sum();
        let batch = of().filter_map(|share| share.average_batch).fold(0.0, f64::max);
        let dearest = of().max_by(|a, b| a.share.partial_cmp(&b.share).unwrap_or(Ordering::Equal));
        Row {
            cells: vec![
                number.to_string(),
                whole(rate),
                format!("{batch:.1}"),
                format!("{:.1}", share * 100.0),
                dearest.map_or(String::new(), |share| share.name.clone()),
            ],
            key: number.to_string(),
            rate,
            alarm: false,
            detail: String::new(),
        }
    };
    Table {
        headings: vec!["worker", "packets/s", "batch", "share %", "dearest element"],
        rows: numbers.into_iter().map(row).collect(),
        shown: "packets/s",
    }
}

/// Meaning of a drop reason.
fn meaning(reason: &str) -> String {
    let found = DropReason::ALL.iter().find(|known| known.name() == reason);
    found.map_or(String::new(), |reason| reason.summary().to_owned())
}
