//! A document as drawings: a file for each family, stream and mode that it has.

use fingerpost_command::plot::bars;

use crate::document::{BenchDocument, Kind, Run, Unit};

/// Names and contents. Runs without a median are left out, and so are ceilings; several units of one
/// stream (a rate and a time) are drawn apart.
pub fn drawings(document: &BenchDocument) -> Vec<(String, String)> {
    let mut files: Vec<(String, Vec<&Run>)> = Vec::new();
    let drawn = |run: &&Run| run.median.is_some() && run.kind != Kind::Ceiling;
    for run in document.runs.iter().filter(drawn) {
        let name = file_name(run);
        match files.iter_mut().find(|file| file.0 == name) {
            Some(file) => file.1.push(run),
            None => files.push((name, vec![run])),
        }
    }
    files.into_iter().map(|(name, runs)| (format!("{name}.svg"), drawing(runs))).collect()
}

fn file_name(run: &Run) -> String {
    let family = run.family.map_or(String::new(), |family| format!("v{family}-"));
    let unit = run.unit.name().replace('/', "-");
    format!("{family}{}-{}-{unit}", run.stream, run.mode.name())
}

/// The best first.
fn drawing(mut runs: Vec<&Run>) -> String {
    let rates = [Unit::MlookupsPerSecond, Unit::Mpps, Unit::UpdatesPerSecond, Unit::Share];
    let first = runs[0];
    let value = |run: &&Run| run.median.unwrap_or(0.0);
    runs.sort_by(|a, b| value(a).total_cmp(&value(b)));
    if rates.contains(&first.unit) {
        runs.reverse();
    }
    let family = first.family.map_or(String::new(), |family| format!("IPv{family}, "));
    let title = format!("{family}{}, {}: {}", first.stream, first.mode.name(), first.unit.name());
    let label = |run: &Run| {
        let name = run.algorithm.as_ref().unwrap_or(&run.name);
        if run.threads > 1 && run.unit != Unit::Share {
            format!("{name} x{}", run.threads)
        } else {
            name.clone()
        }
    };
    let groups: Vec<_> = runs.iter().map(|run| (label(run), vec![run.median])).collect();
    bars(&title, &[first.unit.name()], &groups).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Machine, Mode, TableInfo};
    use fingerpost_command::plot::well_formed;

    #[test]
    fn each_stream_and_mode_has_a_drawing() {
        let run = |name: &str, kind, stream: &str, mode, median| {
            let mut run = Run::new(name, kind, stream, Unit::MlookupsPerSecond);
            (run.mode, run.family, run.median) = (mode, Some(4), median);
            run
        };
        let runs = vec![
            run("slow", Kind::Published, "uniform", Mode::Batch, Some(10.0)),
            run("fast", Kind::Ours, "uniform", Mode::Batch, Some(20.0)),
            run("none", Kind::Ours, "uniform", Mode::Batch, None),
            run("two-loads", Kind::Ceiling, "uniform", Mode::Batch, Some(90.0)),
            run("slow", Kind::Published, "prefix", Mode::Single, Some(5.0)),
        ];
        let table = TableInfo { file: "t".into(), routes: 1, nexthops: 1, family: 4 };
        let document = BenchDocument { machine: Machine::default(), table, tables: vec![], runs };
        let made = drawings(&document);
        let names: Vec<_> = made.iter().map(|file| &file.0[..]).collect();
        let want = ["v4-uniform-batch-Mlookups-s.svg", "v4-prefix-single-Mlookups-s.svg"];
        assert_eq!(names, want);
        assert!(made.iter().all(|file| well_formed(&file.1)));
        let (fast, slow) = (made[0].1.find(">fast<"), made[0].1.find(">slow<"));
        assert!(fast < slow && fast.is_some(), "{}", made[0].1);
        assert!(!made[0].1.contains("two-loads") && !made[0].1.contains(">none<"));
    }
}
