//! `cargo xtask peers fastclick --source DIR`: builds FastClick (or Click) from its source, and measures it beside `fingerpost click`.
//!
//! Both programs run the configurations of `lab/peers/fastclick`, in turns. The time of a packet is the time that twice as many
//! packets take longer, by their number, so that the start of a program does not count. Each run must count all its packets.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::sh;

const CONFIGURATIONS: [&str; 3] = ["discard", "router", "filter"];
const FLAGS: &str = "--disable-linuxmodule --disable-dpdk --enable-userlevel";
/// Packets of a run, of which a second one has twice as many.
const PACKETS: u32 = 2_000_000;
/// Pairs of runs of each program.
const ROUNDS: usize = 9;

/// Builds the program of a source folder, and prints how both compare.
pub(crate) fn fastclick(source: &Path) -> Result<()> {
    let theirs = build(source)?;
    sh::run(&mut sh::command(sh::RELEASE))?;
    let ours = sh::root().join("target/release/fingerpost");
    println!("configuration  theirs, ns  ours, ns  theirs / ours");
    for name in CONFIGURATIONS {
        let file = sh::root().join(format!("lab/peers/fastclick/{name}.click"));
        let packet = |program: &Path, subcommand: Option<&str>| -> Result<f64> {
            let run = |packets| {
                let mut command = Command::new(program);
                command
                    .args(subcommand)
                    .arg(&file)
                    .arg(format!("LIMIT={packets}"))
                    .args(["-h", "end.count"]);
                counted(&mut command, packets)
            };
            let (once, twice) = (run(PACKETS)?, run(2 * PACKETS)?);
            Ok(twice.saturating_sub(once).as_secs_f64() * 1e9 / f64::from(PACKETS))
        };
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            times[0].push(packet(&theirs, None)?);
            times[1].push(packet(&ours, Some("click"))?);
        }
        let [theirs, ours] = times.map(median);
        println!("{name:13}  {theirs:10.1}  {ours:8.1}  {:13.2}", theirs / ours);
    }
    Ok(())
}

/// The program, which is built beside the source's folder and not in it.
fn build(source: &Path) -> Result<PathBuf> {
    let source = source.canonicalize().with_context(|| source.display().to_string())?;
    let folder = sh::root().join("target/peers/fastclick");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let program = folder.join("userlevel/click");
    let mut configure = Command::new(source.join("configure"));
    configure.args(FLAGS.split(' ')).arg("CXXFLAGS=-std=gnu++14 -O3 -march=native");
    sh::run(configure.current_dir(&folder))?;
    sh::run(sh::command("make -j2").current_dir(&folder))?;
    ensure!(program.is_file(), "{} was not built", program.display());
    Ok(program)
}

/// How long a run takes, which must count this many packets.
fn counted(command: &mut Command, packets: u32) -> Result<Duration> {
    let began = Instant::now();
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {}", sh::shown(command)))?;
    let took = began.elapsed();
    let counts = String::from_utf8_lossy(&output.stdout);
    let count = counts.split_whitespace().last().and_then(|word| word.parse().ok());
    let is_right = output.status.success() && count == Some(packets);
    ensure!(is_right, "{}: {}, counted {counts:?}", sh::shown(command), output.status);
    Ok(took)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_loses_packets_is_an_error() {
        let run = |words| counted(&mut sh::command(words), 7);
        assert!(run("echo 7").is_ok());
        assert!(run("echo 6").unwrap_err().to_string().contains("counted"));
        assert!(run("false").is_err());
    }

    #[test]
    fn the_median_is_of_sorted_times() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
