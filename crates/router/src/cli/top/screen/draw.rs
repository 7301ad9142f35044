//! The screen as cells: a pure function of its state.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};

use super::state::{SAMPLES, Screen};
use super::table::Tab;
use crate::cli::top::{Picture, whole};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const HELP: [(&str, &str); 9] = [
    ("1-6, Tab, arrows", "another tab"),
    ("up, down, j, k", "another row; the line below the table has its details"),
    ("s, S", "sort by the next column, by the one before"),
    ("r", "reverse the order"),
    ("/", "show the rows with a text; Enter keeps it, Esc clears it"),
    ("p, space", "pause, continue"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
    ("red", "down, wrong, not in sync, dropped now"),
];

/// Draws a screen.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let [head, tabs, body, detail, foot] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    match &screen.picture {
        Some(picture) => frame.render_widget(heading(picture, screen), head),
        None => frame.render_widget(Paragraph::new("waiting for the first two samples"), head),
    }
    frame.render_widget(tab_line(screen), tabs);
    body_table(frame, body, detail, screen);
    frame.render_widget(foot_line(screen), foot);
    if screen.help {
        help(frame);
    }
}

/// Style of what is wrong.
fn alarm(screen: &Screen) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if screen.colors { style.fg(Color::Red) } else { style }
}

fn heading(picture: &Picture, screen: &Screen) -> Paragraph<'static> {
    let totals = &screen.totals;
    let mut lines = vec![Line::raw(picture.title())];
    for (name, samples, wrong) in [
        ("in     ", &totals.received, false),
        ("out    ", &totals.sent, false),
        ("dropped", &totals.dropped, true),
    ] {
        let now = samples.back().copied().unwrap_or_default();
        let bars = Span::raw(spark(samples.iter().copied()));
        let rate = Span::raw(format!(" {} packets/s", whole(now)));
        let rate = if wrong && now > 0.0 { rate.style(alarm(screen)) } else { rate };
        lines.push(Line::from(vec![Span::raw(format!("{name} ")), bars, rate]));
    }
    Paragraph::new(lines)
}

fn tab_line(screen: &Screen) -> Line<'static> {
    let mut spans = Vec::new();
    for (at, tab) in Tab::ALL.into_iter().enumerate() {
        let name = format!(" {} {} ", at + 1, tab.name());
        let style = match at == screen.tab {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        spans.push(Span::styled(name, style));
    }
    Line::from(spans)
}

fn body_table(frame: &mut Frame<'_>, area: Rect, detail: Rect, screen: &Screen) {
    let table = screen.table();
    let sort = screen.sort();
    let mut headings: Vec<String> = table.headings.iter().map(|&name| name.to_owned()).collect();
    if let Some((column, reversed)) = sort
        && let Some(heading) = headings.get_mut(column)
    {
        heading.push(if reversed { '▲' } else { '▼' });
    }
    let width = |column: usize| {
        let cells = table.rows.iter().map(|row| row.cells[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let mut widths: Vec<Constraint> = (0..headings.len())
        .map(|column| Constraint::Length(u16::try_from(width(column)).unwrap_or(u16::MAX)))
        .collect();
    widths.push(Constraint::Length(u16::try_from(SAMPLES).unwrap_or(u16::MAX)));
    headings.push(table.shown.to_owned());
    let rows = table.rows.iter().map(|row| {
        let cells = row.cells.iter().map(|cell| Cell::from(cell.clone()));
        let cells = cells.chain([Cell::from(spark(screen.samples(&row.key)))]);
        let style = if row.alarm { alarm(screen) } else { Style::new() };
        Row::new(cells.collect::<Vec<_>>()).style(style)
    });
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let widget = Table::new(rows, widths)
        .column_spacing(2)
        .header(Row::new(headings).style(bold))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let selected =
        (!table.rows.is_empty()).then_some(screen.selected.min(table.rows.len().saturating_sub(1)));
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(widget, area, &mut state);
    let words = match selected.map(|at| &table.rows[at]) {
        Some(row) => row.detail.clone(),
        None if screen.picture.is_none() => String::new(),
        None => "no rows".to_owned(),
    };
    frame.render_widget(Paragraph::new(words), detail);
}

fn foot_line(screen: &Screen) -> Line<'static> {
    if screen.typing {
        return Line::raw(format!("/{}_", screen.filter));
    }
    let mut words = "? help  / filter  s sort  p pause  q quit".to_owned();
    if !screen.filter.is_empty() {
        words += &format!("  filter: {}", screen.filter);
    }
    if screen.paused {
        words += "  PAUSED";
    }
    Line::raw(words)
}

fn help(frame: &mut Frame<'_>) {
    let whole = frame.area();
    let height = u16::try_from(HELP.len() + 2).unwrap_or(u16::MAX).min(whole.height);
    let width = 76.min(whole.width);
    let area = Rect { x: (whole.width - width) / 2, y: (whole.height - height) / 2, width, height };
    let lines = HELP.map(|(keys, what)| Line::raw(format!("{keys:<18}{what}")));
    frame.render_widget(Clear, area);
    frame.render_widget(
        Paragraph::new(lines.to_vec()).block(Block::bordered().title(" keys ")),
        area,
    );
}

/// Bars of samples, the highest as high as the largest.
fn spark(samples: impl Iterator<Item = f64> + Clone) -> String {
    let most = samples.clone().fold(0.0, f64::max);
    let bar = |value: f64| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 7, as the value is at most `most`"
        )]
        let height = if most > 0.0 { (value / most * 7.0).round() as usize } else { 0 };
        BARS[height.min(7)]
    };
    samples.map(bar).collect()
}
