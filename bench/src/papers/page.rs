//! The page: tables in Markdown, bars in SVG.

use std::fmt::Write;

/// A table of text.
pub(super) fn table(out: &mut String, headings: &[&str], rows: &[Vec<String>]) {
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<&str> = cells.collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    };
    line(&mut headings.iter().copied());
    line(&mut headings.iter().map(|_| "---"));
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    out.push('\n');
}

/// Bars side by side, one group a label and one bar a series, as a drawing of its own.
#[allow(clippy::cast_precision_loss, reason = "a few bars")]
pub(super) fn bars(title: &str, series: &[&str], groups: &[(String, Vec<Option<f64>>)]) -> String {
    const COLORS: [&str; 4] = ["#1f6f8b", "#e07a3f", "#5b8c5a", "#8d6a9f"];
    const LEFT: f64 = 50.0;
    const TOP: f64 = 50.0;
    const HEIGHT: f64 = 220.0;
    const BAR: f64 = 18.0;
    let width = BAR * series.len() as f64 + 16.0;
    let most = groups.iter().flat_map(|group| &group.1).flatten().copied().fold(1.0, f64::max);
    let total = LEFT + width * groups.len() as f64 + 20.0;
    let mut svg = String::new();
    let mut put = |text: std::fmt::Arguments<'_>| {
        svg.write_fmt(text).expect("a string takes all");
        svg.push('\n');
    };
    put(format_args!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0} {:.0}" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#ffffff"/><text x="{LEFT}" y="16" font-size="13">{}</text>"##,
        TOP + HEIGHT + 40.0,
        escaped(title)
    ));
    for (i, name) in series.iter().enumerate() {
        let x = LEFT + 150.0 * i as f64;
        let color = COLORS[i % COLORS.len()];
        put(format_args!(
            r#"<rect x="{x:.0}" y="24" width="10" height="10" fill="{color}"/><text x="{:.0}" y="33">{}</text>"#,
            x + 14.0,
            escaped(name)
        ));
    }
    for step in 0..=4 {
        let value = most * f64::from(step) / 4.0;
        let y = TOP + HEIGHT - HEIGHT * f64::from(step) / 4.0;
        put(format_args!(
            r##"<line x1="{LEFT}" x2="{total:.0}" y1="{y:.1}" y2="{y:.1}" stroke="#dddddd"/><text x="4" y="{:.1}">{value:.0}</text>"##,
            y + 4.0
        ));
    }
    for (g, (label, values)) in groups.iter().enumerate() {
        let x = LEFT + 8.0 + width * g as f64;
        for (i, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let height = HEIGHT * value / most;
            let color = COLORS[i % COLORS.len()];
            put(format_args!(
                r#"<rect x="{:.1}" y="{:.1}" width="{:.0}" height="{height:.1}" fill="{color}"><title>{} {value:.1}</title></rect>"#,
                x + BAR * i as f64,
                TOP + HEIGHT - height,
                BAR - 2.0,
                escaped(label)
            ));
        }
        put(format_args!(
            r#"<text x="{x:.1}" y="{:.0}">{}</text>"#,
            TOP + HEIGHT + 16.0,
            escaped(label)
        ));
    }
    put(format_args!("</svg>"));
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_bars_are_well_formed() {
        let mut text = String::new();
        table(&mut text, &["a", "b"], &[vec!["1".into(), "2".into()]]);
        assert_eq!(text, "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n");
        let svg = bars("x < y", &["one", "two"], &[("g".into(), vec![Some(2.0), None])]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("x &lt; y") && svg.contains("height=\"220.0\""));
        assert_eq!(svg.matches("<title>").count(), 1);
    }
}
