//! Drawings of a configuration: Graphviz's language, and SVG without any other program.

mod layout;

use std::fmt::Write;

use super::class::Processing;
use super::flat::{Configuration, Declared};
pub use layout::TooLarge;
use layout::{Layout, port_at};

/// Characters shown of an element's arguments.
const CONFIG_SHOWN: usize = 30;
/// Width of a character of the font, in pixels.
const LETTER: f64 = 6.7;
/// Room for the number of a port.
const PORT: f64 = 20.0;
/// Height of an element's box.
const HEIGHT: f64 = 46.0;
/// Space from one row of boxes to the next.
const BETWEEN: f64 = 64.0;
/// Around it all, with room for connections that lead around the first and the last row.
const MARGIN: f64 = 44.0;

impl Configuration {
    /// It in the language of Graphviz; pull connections are dashed.
    pub fn dot(&self) -> String {
        let mut text = String::from(
            "digraph {\n  node [shape=record, fontname=\"monospace\", fontsize=10];\n  \
             edge [fontsize=8];\n",
        );
        for (number, element) in self.elements().iter().enumerate() {
            let ports = |letter, count| {
                let port = |port| format!("<{letter}{port}> {port}");
                let ports: Vec<String> = (0..count).map(port).collect();
                ports.join(" | ")
            };
            let (inputs, outputs) = (ports('i', element.inputs), ports('o', element.outputs));
            let side = |ports: &str| match ports {
                "" => String::new(),
                ports => format!("{{ {ports} }}"),
            };
            let words = format!("{} :: {}", element.name, element.class.name);
            let parts = [side(&inputs), escaped_record(&words), side(&outputs)];
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let _ = writeln!(text, "  n{number} [label=\"{{ {} }}\"];", parts.join(" | "));
        }
        for wire in self.connections() {
            let style = if wire.kind == Processing::Pull { " [style=dashed]" } else { "" };
            let (from, to) = (wire.from, wire.to);
            let (output, input) = (wire.output, wire.input);
            let _ = writeln!(text, "  n{from}:o{output}:s -> n{to}:i{input}:n{style};");
        }
        text + "}\n"
    }

    /// It as an SVG picture: sources above, pull connections dashed, those that close a cycle curved and
    /// of a color of their own; ports are numbered where a side has several.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn svg(&self) -> Result<String, TooLarge> {
        let widths: Vec<f64> = self.elements().iter().map(width).collect();
        let layout = Layout::new(self, &widths)?;
        let rows = f64::from(u32::try_from(layout.rows).unwrap_or(u32::MAX));
        let wide = layout.width + 2.0 * MARGIN;
        let high = rows * (HEIGHT + BETWEEN) - BETWEEN + 2.0 * MARGIN;
        let mut picture = Picture { text: String::new(), layout: &layout, graph: self };
        let _ = write!(
            picture.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide:.0}\" height=\"{high:.0}\" \
             viewBox=\"0 0 {wide:.0} {high:.0}\" font-family=\"monospace\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        (0..self.connections().len()).for_each(|number| picture.connection(number));
        for (number, &width) in widths.iter().enumerate() {
            picture.element(number, width);
        }
        Ok(picture.text + "</svg>\n")
    }
}

/// What is written in the box of an element.
fn lines(element: &Declared) -> [String; 3] {
    let words: Vec<&str> = element.config.as_str().split_whitespace().collect();
    let config = words.join(" ");
    let mut shown: String = config.chars().take(CONFIG_SHOWN).collect();
    if shown.len() < config.len() {
        shown += "...";
    }
    [element.name.to_string(), element.class.name.to_owned(), shown]
}

fn width(element: &Declared) -> f64 {
    let number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    let longest = lines(element).iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let ports = element.inputs.max(element.outputs);
    (number(longest) * LETTER + 16.0).max(f64::from(ports) * PORT)
}

struct Picture<'a> {
    text: String,
    layout: &'a Layout,
    graph: &'a Configuration,
}

impl Picture<'_> {
    fn x(&self, spot: usize) -> f64 {
        self.layout.spots[spot].x + MARGIN
    }

    /// The upper side of a spot's row.
    fn top(&self, spot: usize) -> f64 {
        let row = u32::try_from(self.layout.spots[spot].row).unwrap_or(u32::MAX);
        MARGIN + f64::from(row) * (HEIGHT + BETWEEN)
    }

    fn connection(&mut self, number: usize) {
        let wire = self.graph.connections()[number];
        let (from, to) = (wire.from as usize, wire.to as usize);
        let [sender, taker] = [from, to].map(|end| &self.graph.elements()[end]);
        let leaves = self.x(from) + port_at(wire.output, sender.outputs, width(sender));
        let arrives = self.x(to) + port_at(wire.input, taker.inputs, width(taker));
        let (start, end) = (self.top(from) + HEIGHT, self.top(to) - 5.0);
        let mut path = format!("M{leaves:.1} {start:.1}");
        let back = self.layout.back[number];
        let (mut x, mut y) = (leaves, start);
        for &bend in &self.layout.ways[number] {
            let (there, top) = (self.x(bend), self.top(bend));
            let (enter, leave) = if back { (top + HEIGHT, top) } else { (top, top + HEIGHT) };
            path +=
                &curve((x, y), (there, enter), back && y >= enter - 1.0 && y <= enter + 1.0, true);
            let _ = write!(path, " L{there:.1} {leave:.1}");
            (x, y) = (there, leave);
        }
        path += &curve((x, y), (arrives, end), back, false);
        let (color, width) = if back { ("#b5541c", "1.3") } else { ("#33475b", "1.2") };
        let dashes = match wire.kind {
            Processing::Pull => " stroke-dasharray=\"5 3\"",
            _ => "",
        };
        let _ = writeln!(
            self.text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"{dashes}/>\n\
             <path d=\"M{:.1} {:.1} L{:.1} {:.1} L{arrives:.1} {:.1} Z\" fill=\"{color}\"/>",
            arrives - 3.5,
            end - 2.0,
            arrives + 3.5,
            end - 2.0,
            end + 5.0
        );
    }

    fn element(&mut self, number: usize, width: f64) {
        let element = &self.graph.elements()[number];
        let (x, top) = (self.x(number), self.top(number));
        let _ = writeln!(
            self.text,
            "<g><title>{}</title><rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" \
             rx=\"4\" fill=\"#f3f6f9\" stroke=\"#33475b\"/>",
            escaped(&format!("{} :: {}", element.name, element.class.name)),
            x - width / 2.0,
        );
        let styles =
            ["font-weight=\"bold\"", "fill=\"#1d5f8a\"", "fill=\"#66727f\" font-size=\"9\""];
        let [name, class, config] = lines(element);
        for ((line, style), y) in [name, class, config].iter().zip(styles).zip([16.0, 28.5, 39.5]) {
            let (y, line) = (top + y, escaped(line));
            let _ = writeln!(
                self.text,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" {style}>{line}</text>"
            );
        }
        for (ports, y) in [(element.inputs, top - 8.0), (element.outputs, top + HEIGHT + 9.0)] {
            for port in (0..ports).filter(|_| ports > 1) {
                let x = x + port_at(port, ports, width) + 3.0;
                let _ = writeln!(
                    self.text,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"8\" fill=\"#7a4a00\">{port}</text>"
                );
            }
        }
        self.text += "</g>\n";
    }
}

/// From here to there: an S between two rows, or a turn below or above a row where it leads around.
fn curve(from: (f64, f64), to: (f64, f64), turn: bool, below: bool) -> String {
    let (out, into) = if turn {
        let far = if below { BETWEEN * 0.45 } else { -BETWEEN * 0.45 };
        (from.1 + far, to.1 + far)
    } else {
        let half = f64::midpoint(from.1, to.1);
        (half, half)
    };
    format!(" C{:.1} {out:.1} {:.1} {into:.1} {:.1} {:.1}", from.0, to.0, to.0, to.1)
}

fn escaped(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => done += "&amp;",
            '<' => done += "&lt;",
            '>' => done += "&gt;",
            '"' => done += "&quot;",
            // Not allowed in XML, however it is written.
            c if c.is_control() => done.push(' '),
            '\u{fffe}' | '\u{ffff}' => done.push('\u{fffd}'),
            c => done.push(c),
        }
    }
    done
}

/// Text of a label of a record.
fn escaped_record(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '{' | '}' | '|' | '<' | '>' | '"' | '\\' | ' ') {
            done.push('\\');
        }
        done.push(c);
    }
    done
}

#[cfg(test)]
mod tests {
    use crate::language::testing::CLASSES;
    use crate::language::{Configuration, Language};

    fn graph(text: &str) -> Configuration {
        Language::new(CLASSES).read("a.click", text).unwrap()
    }

    const TEXT: &str = "i :: Idle -> q :: Queue(\"<&>\") -> u :: Unqueue -> t :: Tee -> d :: Discard; \
                        t [1] -> q";

    #[test]
    fn graphviz_gets_ports_and_kinds() {
        assert_eq!(
            graph("i :: Idle -> q :: Queue -> Unqueue -> d :: Discard").dot(),
            "digraph {\n  node [shape=record, fontname=\"monospace\", fontsize=10];\n  \
             edge [fontsize=8];\n  \
             n0 [label=\"{ i\\ ::\\ Idle | { <o0> 0 } }\"];\n  \
             n1 [label=\"{ { <i0> 0 } | q\\ ::\\ Queue | { <o0> 0 } }\"];\n  \
             n2 [label=\"{ { <i0> 0 } | Unqueue@3\\ ::\\ Unqueue | { <o0> 0 } }\"];\n  \
             n3 [label=\"{ { <i0> 0 } | d\\ ::\\ Discard }\"];\n  \
             n0:o0:s -> n1:i0:n;\n  n1:o0:s -> n2:i0:n [style=dashed];\n  n2:o0:s -> n3:i0:n;\n}\n"
        );
    }

    #[test]
    fn a_picture_has_all_elements_connections_and_kinds() {
        let svg = graph(TEXT).svg().unwrap();
        assert_eq!(svg.matches("<rect ").count(), 1 + 5, "a box an element, and the ground");
        assert_eq!(svg.matches("fill=\"none\"").count(), 5, "a line a connection");
        assert_eq!(svg.matches("stroke-dasharray").count(), 1, "one pulls");
        assert_eq!(svg.matches("stroke=\"#b5541c\"").count(), 1, "one closes a cycle");
        assert!(svg.contains(">&quot;&lt;&amp;&gt;&quot;</text>"), "{svg}");
        assert!(svg.contains(">1</text>") && !svg.contains(">2</text>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn the_router_of_the_examples_can_be_looked_at() {
        let router = graph(include_str!("../../../../../examples/graphs/ip-router-2.click"));
        let svg = router.svg().unwrap();
        assert_eq!(svg.matches("<rect ").count(), 1 + router.elements().len());
        assert_eq!(svg.matches("fill=\"none\"").count(), router.connections().len());
        assert_eq!(svg.matches("stroke=\"#b5541c\"").count(), 9, "errors and answers go back");
        assert_eq!(svg.matches("stroke-dasharray").count(), 2, "devices ask queues");
        let size = |name: &str| -> f64 {
            let text = &svg[svg.find(name).unwrap() + name.len()..];
            text[..text.find('"').unwrap()].parse().unwrap()
        };
        let (wide, high) = (size("width=\""), size("height=\""));
        assert!(wide < 1400.0 && high < 2000.0, "{wide} by {high}");
    }

    #[test]
    fn a_graph_without_anything_is_a_picture_too() {
        let svg = graph("").svg().unwrap();
        assert!(svg.ends_with("</svg>\n") && !svg.contains("inf") && !svg.contains("NaN"), "{svg}");
        assert!(graph("").dot().ends_with("}\n"));
    }
}
