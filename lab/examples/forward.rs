//! `bench forward` without the program around it: for callgrind, and for trying things.
//!
//!     cargo run --release -p fingerpost-lab --example forward -- \
//!         --table testdata/tables/v4-tier1-nh496.txt.xz --seconds 2
//!
//! With `--instructions N` it takes about N packets through the counted section of each run:
//!
//!     valgrind --tool=callgrind --toggle-collect='*counted_section*' \
//!         target/release/examples/forward --table ... --routes 20000 --instructions 20000

use std::time::Duration;

use anyhow::{Context, Result, bail};
use fingerpost_lab::forward::Stream;
use fingerpost_lab::peer::find_loops;
use fingerpost_lab::table::Tables;
use fingerpost_lab::{ForwardOptions, forward};

fn main() -> Result<()> {
    let mut options = ForwardOptions::default();
    let (mut files, mut routes) = (Vec::new(), usize::MAX);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--table" => files.push(value()?),
            "--routes" => routes = value()?.parse()?,
            "--v4" => options.algorithm_v4 = Some(value()?),
            "--v6" => options.algorithm_v6 = Some(value()?),
            "--stream" => {
                let name = value()?;
                let all = Stream::ALL.iter().copied();
                options.streams = all.filter(|s| name.contains(s.name())).collect();
            }
            "--destinations" => options.destinations = value()?.parse()?,
            "--burst" => options.burst = value()?.parse()?,
            "--seconds" => options.seconds = value()?.parse()?,
            "--repeat" => options.samples = value()?.parse()?,
            "--peers" => options.peers = find_loops(&value()?)?,
            "--peer-seconds" => options.load_limit = Duration::from_secs(value()?.parse()?),
            "--no-elements" => options.elements = false,
            "--filters" => options.filters = value()?.parse()?,
            "--listed" => options.listed = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            "--instructions" => options.instructions = Some(value()?.parse()?),
            other => bail!("what is {other}?"),
        }
    }
    let mut tables = Tables::load(&files)?;
    if let Some(table) = &mut tables.v4 {
        table.thin(routes);
    }
    if let Some(table) = &mut tables.v6 {
        table.thin(routes);
    }
    options.tables = tables;
    let document = forward(&options)?;
    println!("{}", serde_json::to_string_pretty(&document)?);
    for run in &document.runs {
        let (low, high) = (run.min.unwrap_or(0.0), run.max.unwrap_or(0.0));
        eprintln!(
            "{:24} {:8} {:6.1} ({low:.1} to {high:.1}) {:?} {}",
            run.name,
            run.stream,
            run.median.unwrap_or(0.0),
            run.answers,
            run.note
        );
    }
    Ok(())
}
