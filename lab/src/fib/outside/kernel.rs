//! The Linux kernel: its route tables and next-hop objects, filled by `ip -batch`.
//!
//! Routes name next-hop objects, as ours name next hops. The kernel resolves none by a route: what an
//! interior protocol would do is to replace the object, which is what `nexthop-loss` times, until
//! `ip route get` answers with the other neighbor. Both go over the pipes of one `ip` that is running.

use std::io::{self, Write};
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Jobs, LIMIT, LINK, Peer, blank, failed};
use crate::document::{Mode, Run, Unit};
use crate::family::Family;
use crate::fib::FibOptions;
use crate::fib::replay::Updates;
use crate::fib::world;
use crate::namespace::{Namespace, Talk, write_lines};
use crate::update::changes::Changes;
use fingerpost_command::progress::Progress;

const NAME: &str = "kernel";

pub(super) const PEER: Peer =
    Peer { name: NAME, summary: "Linux: FIB and next-hop objects, by ip -batch", measure };

/// Numbers of IPv6 objects begin here.
const V6_OBJECTS: u32 = 1 << 20;
/// An answer takes no longer.
const ANSWER: Duration = Duration::from_secs(60);

fn object(family: u8, hop: u32) -> u32 {
    if family == 4 { hop } else { V6_OBJECTS + hop }
}

fn measure(options: &FibOptions, updates: &Updates, progress: &mut Progress) -> Vec<Run> {
    let load = blank(NAME, "load", Unit::Ms);
    let jobs = Jobs::new(options, updates);
    let namespace = match prepare(&jobs) {
        Ok(namespace) => namespace,
        Err(error) => return vec![failed(load, format_args!("{error:#}"))],
    };
    let mut runs = Vec::new();
    match table(&namespace, &jobs, options.seed, load.clone()) {
        Ok(run) => runs.push(run),
        Err(error) => return vec![failed(load, format_args!("{error:#}"))],
    }
    progress.stage("kernel: nexthop-loss");
    let run = blank(NAME, "nexthop-loss", Unit::Us);
    runs.push(
        loss(&namespace, &jobs, options, run.clone())
            .unwrap_or_else(|error| failed(run, format_args!("{error:#}"))),
    );
    progress.stage("kernel: stream-replay");
    let run = blank(NAME, "stream-replay", Unit::UpdatesPerSecond);
    runs.push(
        replay(&namespace, &jobs, updates, options.seed, run.clone())
            .unwrap_or_else(|error| failed(run, format_args!("{error:#}"))),
    );
    progress.stage("kernel: withdraw-all");
    let run = blank(NAME, "withdraw-all", Unit::Ms);
    runs.push(
        withdraw(&namespace, &jobs, updates, run.clone())
            .unwrap_or_else(|error| failed(run, format_args!("{error:#}"))),
    );
    runs
}

/// A namespace with the link and an object for each next hop.
fn prepare(jobs: &Jobs) -> Result<Namespace> {
    let namespace = Namespace::new()?;
    let [(v4, len4), (v6, len6)] = [4, 6].map(|family| world::own(family, 0));
    namespace.link(LINK, &[format!("{v4}/{len4}"), format!("{v6}/{len6}")])?;
    let objects = namespace.batch(|to| {
        for family in [4, 6] {
            for hop in 1..=jobs.neighbors {
                let (id, via) = (object(family, hop), world::neighbor_on(family, 0, hop));
                writeln!(to, "nexthop add id {id} via {via} dev {LINK}")?;
            }
        }
        Ok(())
    });
    objects.context("next-hop objects")?;
    Ok(namespace)
}

fn batch(namespace: &Namespace, file: &std::path::Path) -> Command {
    let mut command = namespace.command("ip");
    command.args(["-force", "-batch"]).arg(file);
    command
}

fn add<A: Family>(
    to: &mut dyn Write,
    routes: &[(fingerpost_lpm::Prefix<A>, u32)],
) -> io::Result<()> {
    for &(prefix, hop) in routes {
        writeln!(to, "route add {prefix} nhid {}", object(A::FAMILY, hop))?;
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn table(namespace: &Namespace, jobs: &Jobs, seed: u64, mut run: Run) -> Result<Run> {
    let file = namespace.file("routes");
    write_lines(&file, |to| {
        add(to, jobs.v4.as_ref().map_or(&[], |table| &table.routes))?;
        add(to, jobs.v6.as_ref().map_or(&[], |table| &table.routes))
    })?;
    let took = namespace.timed(&mut batch(namespace, &file), LIMIT).context("ip -batch")?;
    let (asked, wrong) = check(namespace, &jobs.questions(None, seed))?;
    run.set_answers(asked, wrong);
    run.set_samples(vec![took.as_secs_f64() * 1e3]);
    run.note = format!("{} routes by ip -batch, each naming a next-hop object", jobs.routes());
    Ok(run)
}

/// `ip` with its pipes open.
pub(super) fn talk(namespace: &Namespace) -> Result<Talk> {
    let mut command = namespace.command("ip");
    command.args(["-force", "-oneline", "-batch", "-"]);
    Talk::start(command)
}

/// The neighbor that an address leads to.
fn via(talk: &mut Talk, addr: IpAddr) -> Result<Option<IpAddr>> {
    talk.say(&format!("route get {addr}\n"))?;
    let line = talk.line(Instant::now() + ANSWER)?;
    Ok(via_of(&line))
}

/// Next hop in the line that `ip route get` prints.
pub(super) fn via_of(line: &str) -> Option<IpAddr> {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == "via").and_then(|_| words.next()?.parse().ok())
}

pub(super) fn check(namespace: &Namespace, questions: &[(IpAddr, IpAddr)]) -> Result<(u64, u64)> {
    let mut talk = talk(namespace)?;
    let mut wrong = 0;
    for &(addr, neighbor) in questions {
        wrong += u64::from(via(&mut talk, addr)? != Some(neighbor));
    }
    Ok((questions.len() as u64, wrong))
}

fn loss(namespace: &Namespace, jobs: &Jobs, options: &FibOptions, mut run: Run) -> Result<Run> {
    run.mode = Mode::Single;
    let (family, hop) = jobs.lost;
    run.family = Some(family);
    let addr = jobs.behind_it(options.seed).context("no address behind the next hop")?;
    let mut talk = talk(namespace)?;
    let mut times = Vec::new();
    // There and back; the last way back leaves the object where the table has it.
    for round in 0..2 * (options.samples + 1) {
        let neighbor = world::neighbor_on(family, 0, if round % 2 == 0 { hop + 1 } else { hop });
        let start = Instant::now();
        talk.say(&format!(
            "nexthop replace id {} via {neighbor} dev {LINK}\n",
            object(family, hop)
        ))?;
        while via(&mut talk, addr)? != Some(neighbor) {
            ensure!(start.elapsed() < LIMIT, "longer than {} s", LIMIT.as_secs());
        }
        // As with ours only the way there counts, and not the first.
        if round % 2 == 0 && round > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    let (asked, wrong) = check(namespace, &jobs.questions(None, options.seed + 1))?;
    run.set_answers(asked, wrong);
    run.set_samples(times);
    run.note = format!(
        "{} routes behind an object that is replaced, until ip route get shows it; over the pipes of a \
         running ip",
        jobs.behind
    );
    Ok(run)
}

fn change<A: Family>(to: &mut dyn Write, changes: &Changes<A>) -> io::Result<()> {
    for &(prefix, hop) in changes {
        if hop.is_none() {
            writeln!(to, "route del {prefix}")?;
        } else {
            writeln!(to, "route replace {prefix} nhid {}", object(A::FAMILY, hop.0))?;
        }
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn replay(
    namespace: &Namespace,
    jobs: &Jobs,
    updates: &Updates,
    seed: u64,
    mut run: Run,
) -> Result<Run> {
    ensure!(updates.len() > 0, "no update for the families of the table");
    let file = namespace.file("updates");
    write_lines(&file, |to| {
        change(to, &updates.v4)?;
        change(to, &updates.v6)
    })?;
    let took = namespace.timed(&mut batch(namespace, &file), LIMIT).context("ip -batch")?;
    let (asked, wrong) = check(namespace, &jobs.questions(Some(updates), seed))?;
    run.set_answers(asked, wrong);
    run.set_samples(vec![updates.len() as f64 / took.as_secs_f64()]);
    run.note = format!("{}, {} updates by ip -batch", updates.name, updates.len());
    Ok(run)
}

/// Every route is taken away by itself.
fn withdraw(namespace: &Namespace, jobs: &Jobs, updates: &Updates, mut run: Run) -> Result<Run> {
    let file = namespace.file("gone");
    write_lines(&file, |to| {
        remove(to, jobs.v4.as_ref().map_or(&[], |table| &table.routes))?;
        remove(to, jobs.v6.as_ref().map_or(&[], |table| &table.routes))
    })?;
    let took = namespace.timed(&mut batch(namespace, &file), LIMIT).context("ip -batch")?;
    run.set_samples(vec![took.as_secs_f64() * 1e3]);
    run.note = "every route by ip -batch".to_owned();
    // What the updates brought that the table does not have is not part of it.
    write_lines(&file, |to| {
        let plain = |hop: fingerpost_lpm::NextHopId| hop.0;
        let v4: Vec<_> = updates.v4.iter().map(|&(prefix, hop)| (prefix, plain(hop))).collect();
        let v6: Vec<_> = updates.v6.iter().map(|&(prefix, hop)| (prefix, plain(hop))).collect();
        remove(to, &v4)?;
        remove(to, &v6)
    })?;
    namespace.timed(&mut batch(namespace, &file), LIMIT).context("ip -batch")?;
    let left = left(namespace, "-4")? + left(namespace, "-6")?;
    run.set_answers(jobs.routes() as u64, left);
    Ok(run)
}

/// Routes of a family that name a next-hop object.
fn left(namespace: &Namespace, family: &str) -> Result<u64> {
    let mut command = namespace.command("ip");
    command.args(["-oneline", family, "route", "show", "table", "main"]);
    let output = command.stdout(std::process::Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().filter(|line| line.contains("nhid")).count() as u64)
}

fn remove<A: Family>(
    to: &mut dyn Write,
    routes: &[(fingerpost_lpm::Prefix<A>, u32)],
) -> io::Result<()> {
    for (prefix, _) in routes {
        writeln!(to, "route del {prefix}")?;
    }
    Ok(())
}
