//! Update benches on small tables: what is measured, and that nothing is left behind.

use super::*;
use crate::document::Answers;
use fingerpost_command::progress::Progress;
use fingerpost_lpm::Prefix;

fn options(algorithms: &[&str]) -> UpdateOptions {
    let v4 = (1..3000u32).map(|n| (Prefix::masked(n << 19, 24), n % 50 + 1));
    UpdateOptions {
        tables: Tables { v4: Some(Table::new("v4", v4.collect())), v6: None },
        algorithms: algorithms.iter().map(|&name| name.to_owned()).collect(),
        peers: Vec::new(),
        load_limit: crate::peer::LOAD_LIMIT,
        recorded: None,
        seconds: 0.03,
        samples: 3,
        seed: 1,
    }
}

#[test]
fn pairs_streams_and_what_is_beside_them() {
    let file = std::env::temp_dir().join(format!("fingerpost-stream-{}", std::process::id()));
    std::fs::write(&file, "1 a 1.0.0.0/9 192.0.2.1\n2 w 0.8.0.0/24 0.0.0.0\n").unwrap();
    let mut options = options(&["radix", "dxr18"]);
    options.recorded = Some(Recorded::load(&file).unwrap());
    std::fs::remove_file(&file).unwrap();
    let runs = update(&options, &mut Progress::silent()).unwrap().runs;
    for algorithm in ["radix", "dxr18"] {
        let find = |name: &str, unit| {
            let is_it = |run: &&Run| {
                run.name == name && run.unit == unit && run.algorithm.as_deref() == Some(algorithm)
            };
            runs.iter().find(is_it).unwrap_or_else(|| panic!("{algorithm} {name}"))
        };
        for name in ["random-pairs", "stream"] {
            let (rate, single) = (find(name, Unit::UpdatesPerSecond), find(name, Unit::Us));
            assert_eq!((rate.answers, rate.samples.len()), (Answers::Ok, 3), "{rate:?}");
            assert!(rate.median > Some(1.0) && single.median > Some(0.0));
            assert!(single.max >= single.p999 && single.p99 >= single.median);
        }
        let share = find("lookups-during-updates", Unit::Share);
        assert!(share.median > Some(0.0) || share.note == "needs two cores", "{share:?}");
        let left = find("withdraw-all", Unit::Bytes);
        let empty = left.note.rsplit(' ').next().unwrap().parse::<f64>().ok();
        assert!(empty.is_some() && left.median == empty, "{left:?}");
    }
}

#[test]
fn what_is_built_anew_is_not_withdrawn_from() {
    let runs = update(&options(&["bsearch"]), &mut Progress::silent()).unwrap().runs;
    let left = runs.iter().find(|run| run.name == "withdraw-all").unwrap();
    assert_eq!((left.median, &*left.note), (None, "is built anew at every change"));
}

#[test]
fn what_a_table_exceeds_is_said() {
    let mut options = options(&["dxr16"]);
    let routes = (0..65_536 + 10).map(|n| (Prefix::masked(n << 10, 24), n + 1));
    options.tables.v4 = Some(Table::new("v4", routes.collect()));
    let runs = update(&options, &mut Progress::silent()).unwrap().runs;
    assert!(runs.iter().all(|run| run.median.is_none()), "{runs:?}");
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run.note.contains("limit exceeded")), "{runs:?}");
    options.algorithms = vec!["nothing".into()];
    assert!(update(&options, &mut Progress::silent()).is_err());
}
