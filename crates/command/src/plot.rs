//! Drawings in SVG: bars, curves, boxes and heat maps, each a file of its own that needs nothing else, or several in one.
//!
//! Drawn by hand rather than by a plotting crate: four forms of a page each, without fonts or scripts,
//! and the same numbers give the same bytes, so that a page that is made again differs where it must.

use std::fmt::{self, Arguments, Display, Formatter, Write};

const COLORS: [&str; 8] =
    ["#1f6f8b", "#e07a3f", "#5b8c5a", "#8d6a9f", "#b5485d", "#7a7a7a", "#c2a23a", "#3d5a80"];
const GREY: &str = "#dddddd";
/// Height of the title, and of a line of the legend.
const HEAD: f64 = 26.0;
const LEGEND: f64 = 18.0;

/// Drawing; its text is an SVG file.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    width: f64,
    height: f64,
    body: String,
}

impl Display for Drawing {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Self { width, height, body } = self;
        write!(
            to,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#ffffff"/>
{body}</svg>
"##
        )
    }
}

/// Drawings one below the other, as one.
pub fn column(drawings: &[Drawing]) -> Drawing {
    let mut body = String::new();
    let (mut width, mut height) = (0.0f64, 0.0);
    for drawing in drawings {
        write!(body, "<g transform=\"translate(0 {height:.0})\">\n{}</g>\n", drawing.body)
            .expect("a string takes all");
        width = width.max(drawing.width);
        height += drawing.height;
    }
    Drawing { width, height, body }
}

/// What is drawn so far.
struct Canvas(Drawing);

impl Canvas {
    fn new(width: f64, height: f64, title: &str) -> Self {
        let mut canvas = Self(Drawing { width, height, body: String::new() });
        canvas.put(format_args!(r#"<text x="8" y="17" font-size="13">{}</text>"#, escaped(title)));
        canvas
    }

    fn put(&mut self, text: Arguments<'_>) {
        self.0.body.write_fmt(text).expect("a string takes all");
        self.0.body.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        self.put(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escaped(text)
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{color}"/>"#
        ));
    }

    fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), color: &str) {
        self.put(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{color}"/>"#
        ));
    }

    /// Names with their colors, four a line, below the title.
    fn legend(&mut self, names: &[&str]) {
        for (i, name) in names.iter().enumerate() {
            let (x, y) = (10.0 + 150.0 * number(i % 4), HEAD + LEGEND * number(i / 4));
            self.rect((x, y), (10.0, 10.0), COLORS[i % COLORS.len()]);
            self.text(x + 14.0, y + 9.0, "start", name);
        }
    }

    fn done(self) -> Drawing {
        self.0
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of what is drawn")]
fn number(count: usize) -> f64 {
    count as f64
}

/// Where the drawing itself begins, below so many names.
fn below(names: usize) -> f64 {
    HEAD + LEGEND * number(names.div_ceil(4)) + 8.0
}

/// A number above `most`, of which a quarter is easy to read.
fn round_up(most: f64) -> f64 {
    let unit = 10f64.powf(most.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
    steps.iter().map(|step| step * unit).find(|&top| top >= most).unwrap_or(10.0 * unit)
}

fn short(value: f64) -> String {
    match value.abs() {
        big if big >= 1e6 => format!("{:.2}M", value / 1e6),
        big if big >= 1e4 => format!("{:.0}k", value / 1e3),
        big if big >= 100.0 => format!("{value:.0}"),
        big if big >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Groups of bars one below the other, a bar a series; a bar without a value is left out.
pub fn bars(title: &str, series: &[&str], groups: &[(String, Vec<Option<f64>>)]) -> Drawing {
    const LEFT: f64 = 150.0;
    const WIDTH: f64 = 430.0;
    const BAR: f64 = 12.0;
    let top = if series.len() > 1 { below(series.len()) } else { HEAD };
    let each = BAR * number(series.len()) + 8.0;
    let most = groups.iter().flat_map(|group| &group.1).flatten().copied().fold(0.0, f64::max);
    let most = round_up(most);
    let bottom = top + each * number(groups.len());
    let mut canvas = Canvas::new(LEFT + WIDTH + 60.0, bottom + 24.0, title);
    if series.len() > 1 {
        canvas.legend(series);
    }
    for step in 0..=4 {
        let x = LEFT + WIDTH * f64::from(step) / 4.0;
        canvas.line((x, top), (x, bottom), GREY);
        canvas.text(x, bottom + 14.0, "middle", &short(most * f64::from(step) / 4.0));
    }
    for (g, (label, values)) in groups.iter().enumerate() {
        let y = top + 4.0 + each * number(g);
        canvas.text(LEFT - 6.0, y + BAR * number(series.len()) / 2.0 + 4.0, "end", label);
        for (i, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let (y, length) = (y + BAR * number(i), WIDTH * value / most);
            canvas.rect((LEFT, y), (length, BAR - 2.0), COLORS[i % COLORS.len()]);
            canvas.text(LEFT + length + 4.0, y + BAR - 3.0, "start", &short(*value));
        }
    }
    canvas.done()
}

/// Shares of a whole (0 to 1, upwards) over a number from 0 to `most`.
pub fn curves(title: &str, unit: &str, most: f64, curves: &[(String, Vec<(f64, f64)>)]) -> Drawing {
    const LEFT: f64 = 40.0;
    const WIDTH: f64 = 560.0;
    const HEIGHT: f64 = 240.0;
    let names: Vec<&str> = curves.iter().map(|curve| &curve.0[..]).collect();
    let top = below(names.len());
    let bottom = top + HEIGHT;
    let mut canvas = Canvas::new(LEFT + WIDTH + 20.0, bottom + 40.0, title);
    canvas.legend(&names);
    let x_of = |x: f64| LEFT + WIDTH * (x / most).clamp(0.0, 1.0);
    for step in 0..=5 {
        let part = f64::from(step) / 5.0;
        let (x, y) = (LEFT + WIDTH * part, bottom - HEIGHT * part);
        canvas.line((x, top), (x, bottom), GREY);
        canvas.line((LEFT, y), (LEFT + WIDTH, y), GREY);
        canvas.text(x, bottom + 14.0, "middle", &format!("{:.0}", most * part));
        canvas.text(LEFT - 6.0, y + 4.0, "end", &format!("{part:.1}"));
    }
    canvas.text(LEFT + WIDTH / 2.0, bottom + 30.0, "middle", unit);
    for (i, (_, points)) in curves.iter().enumerate() {
        let mut path = String::new();
        for &(x, y) in points {
            write!(path, "{:.1},{:.1} ", x_of(x), bottom - HEIGHT * y).expect("a string takes all");
        }
        canvas.put(format_args!(
            r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="1.5"/>"#,
            path.trim_end(),
            COLORS[i % COLORS.len()]
        ));
    }
    canvas.done()
}

/// A named row of boxes: a label each, and the 5th, 25th, 50th, 75th and 95th percentile.
pub type Panel = (String, Vec<(String, [f64; 5])>);

/// Panels one below the other, with one scale.
pub fn boxes(title: &str, unit: &str, panels: &[Panel]) -> Drawing {
    const LEFT: f64 = 44.0;
    const EACH: f64 = 18.0;
    const HEIGHT: f64 = 120.0;
    const PANEL: f64 = HEIGHT + 46.0;
    let widest = panels.iter().map(|panel| panel.1.len()).max().unwrap_or(0);
    let width = (EACH * number(widest)).max(200.0);
    let all = panels.iter().flat_map(|panel| &panel.1).map(|row| row.1[4]);
    let most = round_up(all.fold(0.0, f64::max));
    let height = HEAD + PANEL * number(panels.len()) + 16.0;
    let mut canvas = Canvas::new(LEFT + width + 16.0, height, title);
    for (p, (name, rows)) in panels.iter().enumerate() {
        let top = HEAD + PANEL * number(p) + 18.0;
        let bottom = top + HEIGHT;
        let y_of = |value: f64| bottom - HEIGHT * (value / most).clamp(0.0, 1.0);
        canvas.text(LEFT, top - 5.0, "start", name);
        for step in 0..=4 {
            let value = most * f64::from(step) / 4.0;
            canvas.line((LEFT, y_of(value)), (LEFT + width, y_of(value)), GREY);
            canvas.text(LEFT - 6.0, y_of(value) + 4.0, "end", &short(value));
        }
        for (i, (label, [low, first, middle, third, high])) in rows.iter().enumerate() {
            let x = LEFT + EACH * (number(i) + 0.5);
            canvas.line((x, y_of(*low)), (x, y_of(*high)), "#555555");
            let size = (EACH - 8.0, (y_of(*first) - y_of(*third)).max(1.0));
            canvas.rect((x - EACH / 2.0 + 4.0, y_of(*third)), size, COLORS[p % COLORS.len()]);
            let middle = y_of(*middle);
            canvas.line((x - EACH / 2.0 + 4.0, middle), (x + EACH / 2.0 - 4.0, middle), "#000000");
            canvas.text(x, bottom + 14.0, "middle", label);
        }
    }
    canvas.text(LEFT, height - 6.0, "start", unit);
    canvas.done()
}

/// Most cells of a side of a heat map; of larger ones a cell has the largest of several numbers.
const CELLS: usize = 96;

/// Square of numbers as colors: white is 0, blue 1, and what is larger is orange to red at 2. Rows downwards.
pub fn heat(title: &str, rows: &str, columns: &str, numbers: &[Vec<f64>]) -> Drawing {
    const LEFT: f64 = 90.0;
    const SIDE: f64 = 400.0;
    const TOP: f64 = HEAD + 22.0;
    let widest = numbers.iter().map(Vec::len).max().unwrap_or(0).max(numbers.len()).max(1);
    let block = widest.div_ceil(CELLS);
    let cell = SIDE / number(widest.div_ceil(block));
    let mut canvas = Canvas::new(LEFT + SIDE + 80.0, TOP + SIDE + 14.0, title);
    canvas.text(LEFT, TOP - 6.0, "start", columns);
    canvas.text(LEFT - 6.0, TOP + 10.0, "end", rows);
    for (y, rows) in numbers.chunks(block).enumerate() {
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        for x in 0..width.div_ceil(block) {
            let part = |row: &Vec<f64>| {
                let cells = row.iter().skip(x * block).take(block).copied();
                cells.fold(0.0, f64::max)
            };
            let most = rows.iter().map(part).fold(0.0, f64::max);
            let at = (LEFT + cell * number(x), TOP + cell * number(y));
            canvas.rect(at, (cell, cell), &heat_color(most));
        }
    }
    for step in 0..=8 {
        let (value, y) = (f64::from(step) / 4.0, TOP + 18.0 * f64::from(step));
        canvas.rect((LEFT + SIDE + 12.0, y), (14.0, 14.0), &heat_color(value));
        canvas.text(LEFT + SIDE + 32.0, y + 11.0, "start", &format!("{value:.2}"));
    }
    canvas.done()
}

/// Color of a number in a heat map.
fn heat_color(value: f64) -> String {
    let mix = |from: [f64; 3], to: [f64; 3], part: f64| {
        let at = |i: usize| from[i] + (to[i] - from[i]) * part.clamp(0.0, 1.0);
        format!("rgb({:.0},{:.0},{:.0})", at(0), at(1), at(2))
    };
    if value <= 1.0 {
        mix([255.0, 255.0, 255.0], [31.0, 111.0, 139.0], value)
    } else {
        mix([224.0, 150.0, 63.0], [181.0, 30.0, 50.0], value - 1.0)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Whether every element that opens closes, in the right order, and text has no bare marks.
#[cfg(any(test, feature = "testing"))]
pub fn well_formed(xml: &str) -> bool {
    let mut open = Vec::new();
    let mut rest = xml.trim();
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        let marks = text.match_indices('&').all(|(at, _)| {
            ["&amp;", "&lt;", "&gt;", "&quot;"].iter().any(|mark| text[at..].starts_with(mark))
        });
        let Some(end) = rest[start..].find('>') else { return false };
        let tag = &rest[start + 1..start + end];
        rest = &rest[start + end + 1..];
        if !marks || text.contains('>') || !tag.matches('"').count().is_multiple_of(2) {
            return false;
        }
        let name = tag.trim_matches('/').split_whitespace().next().unwrap_or_default();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) if open.pop() != Some(name) => return false,
            (false, false) => open.push(name),
            _ => {}
        }
        if open.is_empty() && !rest.is_empty() {
            return false;
        }
    }
    open.is_empty() && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_are_well_formed() {
        let one = [("g".into(), vec![Some(2.0), None])];
        let svg = bars("x < y & \"z\"", &["one", "two"], &one).to_string();
        assert!(well_formed(&svg), "{svg}");
        assert!(svg.contains("x &lt; y &amp; &quot;z&quot;"));
        // The ground, two names, and the one bar that has a value.
        assert_eq!(svg.matches("<rect").count(), 4);
        assert!(svg.contains("width=\"430.0\""), "the longest is as wide as the drawing: {svg}");

        let curve = [("a".into(), vec![(0.0, 0.0), (200.0, 1.0)])];
        let svg = curves("t", "cycles", 100.0, &curve).to_string();
        assert!(well_formed(&svg) && svg.contains("points=\"40.0,"), "{svg}");
        assert!(svg.contains("600.0,52.0"), "what lies beyond stays at the edge: {svg}");

        let panel = ("p".to_owned(), vec![("18".to_owned(), [1.0, 2.0, 3.0, 4.0, 5.0])]);
        let svg = boxes("t", "cycles", &[panel.clone(), panel]).to_string();
        assert!(well_formed(&svg), "{svg}");
        assert_eq!(svg.matches(">18<").count(), 2);
        let empty = [
            bars("t", &[], &[]),
            curves("t", "", 1.0, &[]),
            boxes("t", "", &[]),
            heat("t", "", "", &[]),
        ];
        assert!(empty.iter().all(|drawing| well_formed(&drawing.to_string())), "{empty:?}");
        let all = column(&empty);
        assert!(well_formed(&all.to_string()), "{all}");
        assert_eq!(all.height, empty.iter().map(|drawing| drawing.height).sum::<f64>());
    }

    #[test]
    fn a_heat_map_has_a_color_a_number_and_blocks_of_many() {
        let svg = heat("t", "from", "to", &[vec![0.0, 1.0], vec![2.0, 9.0]]).to_string();
        assert!(well_formed(&svg), "{svg}");
        // Nine of the scale and four cells; what is above 2 has the color of 2.
        assert_eq!(svg.matches("rgb(").count(), 13);
        assert_eq!(svg.matches("rgb(181,30,50)").count(), 3);
        let svg = heat("t", "from", "to", &vec![vec![0.5; 1024]; 1024]).to_string();
        assert!(svg.matches("rgb(").count() <= CELLS * CELLS + 9, "{}", svg.len());
    }

    #[test]
    fn scales_end_at_round_numbers() {
        let tops = [0.3, 1.0, 3.0, 61.0, 101.0, 950.0].map(round_up);
        assert_eq!(
            tops.map(|top| format!("{top:.1}")),
            ["0.4", "1.0", "4.0", "80.0", "200.0", "1000.0"]
        );
        let numbers = [0.1234, 1.26, 123.4, 45_600.0, 1_234_567.0].map(short);
        assert_eq!(numbers, ["0.123", "1.3", "123", "46k", "1.23M"]);
    }

    #[test]
    fn broken_drawings_are_told_apart() {
        for broken in
            ["<a>", "<a></b>", "<a><b></a></b>", "<a>&</a>", "<a x=\"></a>", "<a/><b/>", "x"]
        {
            assert!(!well_formed(broken), "{broken}");
        }
        assert!(well_formed("<a x=\"1\"><b/>&amp;</a>\n"));
    }
}
