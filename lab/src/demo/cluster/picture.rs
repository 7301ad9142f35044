//! The cluster while it runs: a picture that is drawn again in place on a terminal, else a line every few seconds.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::NodeView;
use super::loads::Matrix;
use super::plan::{ID, NODES};

/// Time between lines where there is no terminal.
const LINE: Duration = Duration::from_secs(2);
/// Characters of a bar that is full.
const WIDTH: usize = 8;

/// What is shown.
pub(super) struct Scene<'a> {
    pub(super) elapsed: Duration,
    /// Planned duration.
    pub(super) time: Duration,
    /// What happened so far.
    pub(super) event: &'a str,
    pub(super) nodes: &'a [Option<NodeView>],
    pub(super) loads: &'a Matrix,
    pub(super) sent: u64,
    pub(super) arrived: u64,
    pub(super) wrong: u64,
}

impl Scene<'_> {
    /// Delivery ratio in per cent; packets in flight count as lost.
    #[allow(clippy::cast_precision_loss, reason = "a share for people")]
    fn delivered(&self) -> f64 {
        self.arrived as f64 / self.sent.max(1) as f64 * 100.0
    }

    /// Links that are up, in each direction.
    fn up(&self) -> usize {
        let links = self.nodes.iter().flatten().flat_map(|node| node.links.iter().flatten());
        links.filter(|link| link.up).count()
    }

    fn line(&self) -> String {
        let running = self.nodes.iter().flatten().count();
        let worst = self.loads.iter().flatten().copied().fold(0.0, f64::max);
        format!(
            "{:5.1} s  {running} of {NODES} nodes, {} of {} links up, busiest {worst:.2} of 2R/N, {:.2} % delivered, \
             {} wrong; {}",
            self.elapsed.as_secs_f64(),
            self.up(),
            NODES * (NODES - 1),
            self.delivered(),
            self.wrong,
            self.event
        )
    }

    /// The lines of the picture.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{:5.1} s of {:.0}   load of links from row to column, full: 2R/N",
            self.elapsed.as_secs_f64(),
            self.time.as_secs_f64()
        )];
        let mut head = String::from("node  state ");
        for id in ID {
            let _ = write!(head, "  {:<width$}", format!("to {id}"), width = WIDTH + 7);
        }
        lines.push(head.trim_end().to_owned());
        for ((id, node), loads) in ID.iter().zip(self.nodes).zip(self.loads) {
            let state = if node.is_some() { "active" } else { "dead" };
            let mut line = format!("{id:<4}  {state:<6}");
            for (to, load) in loads.iter().enumerate() {
                let link = node.as_ref().and_then(|node| node.links.get(to).copied().flatten());
                let cell = match link {
                    Some(link) if link.up => format!("[{}] {load:.2}", bar(*load)),
                    Some(_) => "down".to_owned(),
                    None => "-".to_owned(),
                };
                let _ = write!(line, "  {cell:<width$}", width = WIDTH + 7);
            }
            lines.push(line.trim_end().to_owned());
        }
        lines.push(format!(
            "{} sent, {} arrived ({:.2} %), {} wrong",
            self.sent,
            self.arrived,
            self.delivered(),
            self.wrong
        ));
        lines.push(self.event.to_owned());
        lines
    }
}

/// A bar of this load.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most its width")]
#[allow(clippy::cast_precision_loss, reason = "a small width")]
fn bar(load: f64) -> String {
    let full = (load.clamp(0.0, 1.0) * WIDTH as f64).round() as usize;
    "#".repeat(full) + &" ".repeat(WIDTH - full)
}

/// The picture.
pub(super) struct Picture {
    terminal: bool,
    /// Lines on the terminal, and when a line was last shown.
    drawn: usize,
    shown: Option<Instant>,
}

impl Picture {
    /// Nothing shown yet.
    pub(super) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), drawn: 0, shown: None }
    }

    /// Shows a scene: on standard error where that is a terminal, else by `progress` if it is time for a line.
    pub(super) fn draw(&mut self, scene: &Scene<'_>, progress: &dyn Fn(String)) {
        if self.terminal {
            let text = self.frame(&scene.lines());
            // Where standard error is closed nobody waits for it.
            let _ = io::stderr().write_all(text.as_bytes());
        } else if self.shown.is_none_or(|shown| shown.elapsed() >= LINE) {
            self.shown = Some(Instant::now());
            progress(scene.line());
        }
    }

    /// The lines, in place of those before.
    fn frame(&mut self, lines: &[String]) -> String {
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A", self.drawn);
        }
        for line in lines {
            let _ = write!(text, "\r\x1b[K{line}\n");
        }
        self.drawn = lines.len();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::LinkView;
    use super::*;

    #[test]
    fn nodes_and_links_are_drawn_in_place() {
        let link = |up| Some(LinkView { up, bytes: 0 });
        let node = Some(NodeView { links: vec![None, link(true), link(false), link(true)] });
        let mut loads = Matrix::default();
        loads[0][1] = 0.5;
        let scene = Scene {
            elapsed: Duration::from_millis(2_500),
            time: Duration::from_secs(9),
            event: "node c was killed",
            nodes: &[node, None, None, None],
            loads: &loads,
            sent: 200,
            arrived: 199,
            wrong: 0,
        };
        let lines = scene.lines();
        assert_eq!(
            lines[2],
            "a     active  -                [####    ] 0.50  down             [        ] 0.00"
        );
        assert_eq!(lines[3], "b     dead    -                -                -                -");
        assert_eq!(lines.len(), 8);
        assert!(
            scene.line().contains("1 of 4 nodes, 2 of 12 links up, busiest 0.50 of 2R/N, 99.50 %")
        );
        let mut picture = Picture { terminal: true, drawn: 0, shown: None };
        assert!(!picture.frame(&lines).contains("\x1b[8A"));
        assert!(picture.frame(&lines).starts_with("\x1b[8A\r\x1b[K"));
        assert_eq!((bar(0.0), bar(3.0)), (" ".repeat(8), "#".repeat(8)));
    }
}
