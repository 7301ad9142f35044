//! The pieces of a page: tables in Markdown and the figures in them.

use crate::document::{Kind, Run};

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

/// A figure with so many digits, or a dash.
pub(super) fn figure(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".into(), |number| format!("{number:.digits$}"))
}

/// Millions a second.
pub(super) fn rate(number: Option<f64>) -> String {
    figure(number, 1)
}

/// A number with commas, as tables of the papers have it.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// One number as so many times another.
pub(super) fn ratio(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    of.zip(to).map(|(of, to)| of / to)
}

/// The name of a table's file without folder and endings.
pub(super) fn short(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    let end = name.find(".txt").unwrap_or(name.len());
    let rest = name[end..].split_once(' ').map_or("", |(_, syn)| syn);
    if rest.is_empty() { &name[..end] } else { name }
}

/// Median of the run of that algorithm and stream, if its answers were right.
pub(super) fn median(runs: &[Run], name: &str, stream: &str) -> Option<f64> {
    find(runs, name, stream)?.median
}

/// The run of that algorithm and stream itself.
pub(super) fn find<'a>(runs: &'a [Run], name: &str, stream: &str) -> Option<&'a Run> {
    runs.iter().find(|run| {
        run.name == name
            && run.stream == stream
            && run.wrong == 0
            && run.threads == 1
            && run.kind != Kind::Ceiling
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_as_tables_have_them() {
        let mut text = String::new();
        table(&mut text, &["a", "b"], &[vec!["1".into(), "2".into()]]);
        assert_eq!(text, "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n");
        assert_eq!((rate(Some(1.26)), figure(None, 2)), ("1.3".into(), "-".into()));
        let numbers = [0, 999, 1000, 4_032_568].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "4,032,568"]);
        assert_eq!((ratio(Some(3.0), Some(2.0)), ratio(None, Some(2.0))), (Some(1.5), None));
        let names = ["/a/v4-x.txt.xz", "v6.txt", "/a/v4-x.txt.xz SYN1", "host"].map(short);
        assert_eq!(names, ["v4-x", "v6", "v4-x.txt.xz SYN1", "host"]);
    }
}
