//! What the screen shows and how keys change it. Nothing here reads a terminal or a clock.

use std::collections::{BTreeMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::table::{Tab, Table};
use crate::cli::top::Picture;

/// Samples of a sparkline.
pub(super) const SAMPLES: usize = 30;
/// Rows that a page key moves by.
const PAGE: usize = 10;

/// Column that the rows of a tab are sorted by, and whether the order is reversed; `None`: as the router lists them.
pub(super) type Sort = Option<(usize, bool)>;

/// State of the screen.
pub(super) struct Screen {
    pub(super) picture: Option<Picture>,
    /// Rates of each row of each tab so far, the newest last.
    history: BTreeMap<(usize, String), VecDeque<f64>>,
    pub(super) totals: Totals,
    pub(super) tab: usize,
    sorts: [Sort; Tab::ALL.len()],
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) typing: bool,
    pub(super) selected: usize,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// Colors are wanted.
    pub(super) colors: bool,
}

/// Sums over all interfaces so far, in packets a second.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) received: VecDeque<f64>,
    pub(super) sent: VecDeque<f64>,
    pub(super) dropped: VecDeque<f64>,
}

/// Consequence of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    Quit,
}

impl Screen {
    /// A screen before its first picture.
    pub(super) fn new(colors: bool) -> Self {
        Self {
            picture: None,
            history: BTreeMap::new(),
            totals: Totals::default(),
            tab: 0,
            sorts: [None; Tab::ALL.len()],
            filter: String::new(),
            typing: false,
            selected: 0,
            paused: false,
            help: false,
            colors,
        }
    }

    /// Takes the next picture; while paused it is passed over.
    pub(super) fn push(&mut self, picture: Picture) {
        if self.paused {
            return;
        }
        let mut history = BTreeMap::new();
        for (at, tab) in Tab::ALL.into_iter().enumerate() {
            for row in Table::of(tab, &picture).rows {
                let mut samples = self.history.remove(&(at, row.key.clone())).unwrap_or_default();
                keep(&mut samples, row.rate);
                history.insert((at, row.key), samples);
            }
        }
        // Rows that are gone take nothing.
        self.history = history;
        let sum =
            |of: fn(&crate::cli::top::Rates) -> f64| picture.interfaces.iter().map(of).sum::<f64>();
        keep(&mut self.totals.received, sum(|row| row.rx_packets));
        keep(&mut self.totals.sent, sum(|row| row.tx_packets));
        keep(&mut self.totals.dropped, picture.drops.iter().map(|row| row.packets).sum());
        self.picture = Some(picture);
    }

    /// The table that is shown, filtered and sorted.
    pub(super) fn table(&self) -> Table {
        let tab = Tab::ALL[self.tab];
        let mut table =
            self.picture.as_ref().map_or_else(Table::default, |picture| Table::of(tab, picture));
        table.arrange(&self.filter, self.sort());
        table
    }

    /// Order of the tab that is shown.
    pub(super) fn sort(&self) -> Sort {
        self.sorts[self.tab]
    }

    /// Samples of a row of the tab that is shown.
    pub(super) fn samples(&self, key: &str) -> impl Iterator<Item = f64> + Clone {
        let samples = self.history.get(&(self.tab, key.to_owned()));
        samples.into_iter().flatten().copied()
    }

    /// Carries out a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Next {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            let ends = matches!(key.code, KeyCode::Char('c' | 'd'));
            return if ends { Next::Quit } else { Next::Stay };
        }
        if self.typing {
            self.type_filter(key.code);
            return Next::Stay;
        }
        let rows = self.table().rows.len();
        match key.code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('s') => self.sort_by(1),
            KeyCode::Char('S') => self.sort_by(-1),
            KeyCode::Char('r') => {
                if let Some((_, reversed)) = &mut self.sorts[self.tab] {
                    *reversed = !*reversed;
                }
            }
            KeyCode::Char(digit @ '1'..='6') => self.show(digit as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => self.show((self.tab + 1) % Tab::ALL.len()),
            KeyCode::BackTab | KeyCode::Left => {
                self.show((self.tab + Tab::ALL.len() - 1) % Tab::ALL.len());
            }
            KeyCode::Down | KeyCode::Char('j') => self.selected += 1,
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected += PAGE,
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = rows,
            _ => {}
        }
        self.selected = self.selected.min(rows.saturating_sub(1));
        Next::Stay
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
        self.selected = 0;
    }

    fn show(&mut self, tab: usize) {
        (self.tab, self.selected) = (tab, 0);
    }

    /// Sorts by the next column, or the one before; behind the last one rows are as they came.
    fn sort_by(&mut self, step: isize) {
        let columns = self.table().headings.len();
        let places = columns + 1;
        let at = self.sorts[self.tab].map_or(columns, |(column, _)| column);
        let next = (at + if step > 0 { 1 } else { places - 1 }) % places;
        self.sorts[self.tab] = (next < columns).then_some((next, false));
        self.selected = 0;
    }
}

fn keep(samples: &mut VecDeque<f64>, value: f64) {
    if samples.len() == SAMPLES {
        samples.pop_front();
    }
    // The sum of no numbers is -0, which would be shown so.
    samples.push_back(value + 0.0);
}
