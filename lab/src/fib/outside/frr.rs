//! FRR: staticd reads a file of static routes, zebra resolves their next hops and sends them to the kernel.
//!
//! The gateways are those of the table, behind interior routes of the same file, so that zebra resolves
//! them as ours does. `load` is from the start of staticd until the kernel of the namespace answers for
//! the last route of each table. Other methods to load a table at once (sharpd) are not in the packages.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Jobs, LIMIT, LINK, Peer, blank, failed, kernel};
use crate::document::{Run, Unit};
use crate::family::Family;
use crate::fib::FibOptions;
use crate::fib::replay::Updates;
use crate::fib::world;
use crate::namespace::{Namespace, Talk, write_lines};
use fingerpost_command::progress::Progress;

const NAME: &str = "frr";

pub(super) const PEER: Peer = Peer {
    name: NAME,
    summary: "FRR: static routes by staticd and zebra, into the kernel",
    measure,
};

/// Where distributions put its programs.
const FOLDER: &str = "/usr/lib/frr";
/// It gives up its privileges for this user and this group.
const USER: &str = "frr";
/// Time between requests.
const TICK: Duration = Duration::from_millis(20);
/// How long zebra may take to be there.
const START_LIMIT: Duration = Duration::from_secs(10);

fn measure(options: &FibOptions, updates: &Updates, progress: &mut Progress) -> Vec<Run> {
    let run = blank(NAME, "load", Unit::Ms);
    let jobs = Jobs::new(options, updates);
    progress.stage("frr: load");
    let run = load(&jobs, options.seed, run.clone())
        .unwrap_or_else(|error| failed(run, format_args!("{error:#}")));
    vec![run]
}

/// A daemon. Ended when dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(namespace: &Namespace, name: &str, config: &Path) -> Result<Daemon> {
    let program = PathBuf::from(FOLDER).join(name);
    let socket = namespace.file("zapi.sock");
    let mut command = namespace.command(&program.display().to_string());
    command.args(["-u", USER, "-g", USER, "-P", "0", "-f"]).arg(config);
    command.arg("-i").arg(namespace.file(&format!("{name}.pid"))).arg("-z").arg(socket);
    command.arg("--vty_socket").arg(namespace.file(""));
    Ok(Daemon(command.spawn().with_context(|| name.to_owned())?))
}

fn load(jobs: &Jobs, seed: u64, mut run: Run) -> Result<Run> {
    for program in ["zebra", "staticd"] {
        let found = PathBuf::from(FOLDER).join(program).is_file();
        ensure!(found, "needs {program} in {FOLDER}");
    }
    let namespace = Namespace::new()?;
    let [(v4, len4), (v6, len6)] = [4, 6].map(|family| world::own(family, 0));
    namespace.link(LINK, &[format!("{v4}/{len4}"), format!("{v6}/{len6}")])?;
    let (empty, config) = (namespace.file("zebra.conf"), namespace.file("staticd.conf"));
    write_lines(&empty, |_| Ok(()))?;
    write_lines(&config, |to| configure(to, jobs))?;
    let folder = namespace.file("");
    let owned = std::process::Command::new("chown").arg("-R").arg(USER).arg(&folder).status()?;
    ensure!(owned.success(), "needs the user {USER}");
    let mut zebra = start(&namespace, "zebra", &empty)?;
    let started = Instant::now();
    while !namespace.file("zapi.sock").exists() {
        let ended = zebra.0.try_wait()?;
        ensure!(ended.is_none() && started.elapsed() < START_LIMIT, "zebra does not start");
        std::thread::sleep(TICK);
    }
    let started = Instant::now();
    let mut staticd = start(&namespace, "staticd", &config)?;
    let mut talk = kernel::talk(&namespace)?;
    // What is not there yet is answered with an error, and not on standard output: ask for what is.
    for (addr, neighbor) in last(jobs, seed) {
        loop {
            if answer(&mut talk, addr)? == Some(neighbor) {
                break;
            }
            ensure!(staticd.0.try_wait()?.is_none(), "staticd ended");
            ensure!(started.elapsed() < LIMIT, "longer than {} s", LIMIT.as_secs());
            std::thread::sleep(TICK);
        }
    }
    let took = started.elapsed();
    let (asked, wrong) = kernel::check(&namespace, &jobs.questions(None, seed))?;
    run.set_answers(asked, wrong);
    run.set_samples(vec![took.as_secs_f64() * 1e3]);
    run.note = "from a file of static routes into the kernel".to_owned();
    Ok(run)
}

/// The neighbor of an address, if it has one; the request after it always has a reply.
fn answer(talk: &mut Talk, addr: IpAddr) -> Result<Option<IpAddr>> {
    let (own, _) = world::own(4, 0);
    talk.say(&format!("route get {addr}\nroute get {own}\n"))?;
    let mut found = None;
    loop {
        let line = talk.line(Instant::now() + LIMIT)?;
        if line.contains(&own.to_string()) && line.starts_with("local") {
            return Ok(found);
        }
        found = kernel::via_of(&line).or(found);
    }
}

/// An address near the end of each table, and its neighbor.
fn last(jobs: &Jobs, seed: u64) -> Vec<(IpAddr, IpAddr)> {
    let mut found = jobs.questions(None, seed);
    found.sort_unstable();
    let v6 = found.iter().rposition(|(addr, _)| addr.is_ipv6()).map(|at| found[at]);
    let v4 = found.iter().rposition(|(addr, _)| addr.is_ipv4()).map(|at| found[at]);
    v4.into_iter().chain(v6).collect()
}

fn configure(to: &mut dyn Write, jobs: &Jobs) -> io::Result<()> {
    for family in [4, 6] {
        for hop in 1..=jobs.neighbors {
            let (gateway, via) = (world::gateway(family, hop), world::neighbor_on(family, 0, hop));
            let (word, len) = if family == 4 { ("ip", 32) } else { ("ipv6", 128) };
            writeln!(to, "{word} route {gateway}/{len} {via}")?;
        }
    }
    routes(to, jobs.v4.as_ref().map_or(&[], |table| &table.routes))?;
    routes(to, jobs.v6.as_ref().map_or(&[], |table| &table.routes))
}

fn routes<A: Family>(
    to: &mut dyn Write,
    routes: &[(fingerpost_lpm::Prefix<A>, u32)],
) -> io::Result<()> {
    let word = if A::FAMILY == 4 { "ip" } else { "ipv6" };
    for &(prefix, hop) in routes {
        writeln!(to, "{word} route {prefix} {}", world::gateway(A::FAMILY, hop))?;
    }
    Ok(())
}
