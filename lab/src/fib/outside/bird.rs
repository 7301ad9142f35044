//! BIRD 2: its route tables, from a file of static routes.
//!
//! The routes are `recursive`, so that BIRD finds their next hops by the interior routes as ours does. It
//! is given no kernel: what it does is the RIB's part of the job. `load` is from its start until its
//! tables hold all routes, with the reading of the file; `nexthop-loss` from the command that takes the
//! better interior route away until a route behind it shows the other neighbor. Requests go straight to
//! its control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Jobs, LIMIT, LINK, Peer, blank, failed};
use crate::document::{Mode, Run, Unit};
use crate::family::Family;
use crate::fib::FibOptions;
use crate::fib::replay::Updates;
use crate::fib::world;
use crate::namespace::{Namespace, need, write_lines};
use fingerpost_command::progress::Progress;

const NAME: &str = "bird";

pub(super) const PEER: Peer =
    Peer { name: NAME, summary: "BIRD 2: static routes, recursive next hops", measure };

/// Time between requests while it reads its file.
const TICK: Duration = Duration::from_millis(5);

fn measure(options: &FibOptions, updates: &Updates, progress: &mut Progress) -> Vec<Run> {
    let load = blank(NAME, "load", Unit::Ms);
    let jobs = Jobs::new(options, updates);
    progress.stage("bird: load");
    let mut bird = match start(&jobs) {
        Ok(bird) => bird,
        Err(error) => return vec![failed(load, format_args!("{error:#}"))],
    };
    let mut runs = Vec::new();
    runs.push(
        table(&mut bird, &jobs, options.seed, load.clone())
            .unwrap_or_else(|error| failed(load, format_args!("{error:#}"))),
    );
    if runs[0].median.is_none() {
        return runs;
    }
    let run = blank(NAME, "bytes-per-route", Unit::Bytes);
    runs.push(
        memory(&mut bird, &jobs, run.clone())
            .unwrap_or_else(|error| failed(run, format_args!("{error:#}"))),
    );
    progress.stage("bird: nexthop-loss");
    let run = blank(NAME, "nexthop-loss", Unit::Us);
    runs.push(
        loss(&mut bird, &jobs, options, run.clone())
            .unwrap_or_else(|error| failed(run, format_args!("{error:#}"))),
    );
    runs
}

/// A BIRD at work. Ended when dropped.
struct Bird {
    child: Child,
    started: Instant,
    socket: BufReader<UnixStream>,
    /// Greeting that it sends first.
    version: String,
    _namespace: Namespace,
}

impl Drop for Bird {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(jobs: &Jobs) -> Result<Bird> {
    need("bird")?;
    let namespace = Namespace::new()?;
    let [(v4, len4), (v6, len6)] = [4, 6].map(|family| world::own(family, 0));
    namespace.link(LINK, &[format!("{v4}/{len4}"), format!("{v6}/{len6}")])?;
    let (config, socket) = (namespace.file("bird.conf"), namespace.file("bird.ctl"));
    write_lines(&config, |to| configure(to, jobs))?;
    let mut command = namespace.command("bird");
    command.arg("-f").arg("-c").arg(&config).arg("-s").arg(&socket);
    let started = Instant::now();
    let mut child = command.spawn().context("bird")?;
    let connected = connect(&socket, &mut child, started);
    let mut bird = match connected {
        Ok(socket) => {
            Bird { child, started, socket, version: String::new(), _namespace: namespace }
        }
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
    };
    bird.version = bird.answer()?.concat();
    Ok(bird)
}

fn connect(path: &Path, child: &mut Child, started: Instant) -> Result<BufReader<UnixStream>> {
    loop {
        if let Ok(socket) = UnixStream::connect(path) {
            socket.set_read_timeout(Some(LIMIT))?;
            return Ok(BufReader::new(socket));
        }
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("bird ended: {status}");
        }
        ensure!(started.elapsed() < LIMIT, "longer than {} s", LIMIT.as_secs());
        std::thread::sleep(TICK);
    }
}

/// The interior routes, and the table behind them.
fn configure(to: &mut dyn Write, jobs: &Jobs) -> io::Result<()> {
    writeln!(to, "router id 192.0.2.1;\nprotocol device {{ scan time 1000; }}")?;
    writeln!(to, "protocol direct {{ ipv4; ipv6; }}")?;
    let (family, hop) = jobs.lost;
    for (channel, of) in [("ipv4", 4), ("ipv6", 6)] {
        writeln!(to, "protocol static igp{of} {{ {channel};")?;
        for number in (1..=jobs.neighbors).filter(|&number| (of, number) != (family, hop)) {
            lead(to, of, number, number)?;
        }
        writeln!(to, "}}")?;
    }
    let channel = if family == 4 { "ipv4" } else { "ipv6" };
    for (name, preference, neighbor) in [("near", 250, hop), ("far", 240, hop + 1)] {
        writeln!(to, "protocol static {name} {{ {channel} {{ preference {preference}; }};")?;
        lead(to, family, hop, neighbor)?;
        writeln!(to, "}}")?;
    }
    writeln!(to, "protocol static table4 {{ ipv4;")?;
    routes(to, jobs.v4.as_ref().map_or(&[], |table| &table.routes))?;
    writeln!(to, "}}\nprotocol static table6 {{ ipv6;")?;
    routes(to, jobs.v6.as_ref().map_or(&[], |table| &table.routes))?;
    writeln!(to, "}}")
}

fn lead(to: &mut dyn Write, family: u8, hop: u32, neighbor: u32) -> io::Result<()> {
    let (gateway, via) = (world::gateway(family, hop), world::neighbor_on(family, 0, neighbor));
    writeln!(to, "route {gateway}/{} via {via};", if family == 4 { 32 } else { 128 })
}

fn routes<A: Family>(
    to: &mut dyn Write,
    routes: &[(fingerpost_lpm::Prefix<A>, u32)],
) -> io::Result<()> {
    for &(prefix, hop) in routes {
        writeln!(to, "route {prefix} recursive {};", world::gateway(A::FAMILY, hop))?;
    }
    Ok(())
}

impl Bird {
    fn ask(&mut self, question: &str) -> Result<Vec<String>> {
        self.socket.get_mut().write_all(format!("{question}\n").as_bytes())?;
        self.answer()
    }

    /// Lines of `CODE-TEXT` or ` TEXT`, of which the last is `CODE TEXT`.
    fn answer(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            ensure!(self.socket.read_line(&mut line)? > 0, "bird closed its socket");
            let last = line.as_bytes().get(4) == Some(&b' ')
                && line.as_bytes().iter().take(4).all(u8::is_ascii_digit);
            lines.push(line.trim_end().to_owned());
            if last {
                return Ok(lines);
            }
        }
    }

    /// Routes in all tables: `0014 Total: N of M routes ...`.
    fn routes(&mut self) -> Result<usize> {
        let lines = self.ask("show route count")?;
        let total = lines.iter().find_map(|line| line.split_once("Total: "));
        let count = total.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        count.context("bird does not report how many routes it has")
    }

    /// The neighbor that an address leads to.
    fn via(&mut self, addr: IpAddr) -> Result<Option<IpAddr>> {
        let lines = self.ask(&format!("show route for {addr} primary"))?;
        let found = lines.iter().find_map(|line| line.split_once("via ")?.1.split(' ').next());
        Ok(found.and_then(|text| text.parse().ok()))
    }

    fn check(&mut self, questions: &[(IpAddr, IpAddr)]) -> Result<(u64, u64)> {
        let mut wrong = 0;
        for &(addr, neighbor) in questions {
            wrong += u64::from(self.via(addr)? != Some(neighbor));
        }
        Ok((questions.len() as u64, wrong))
    }
}

fn table(bird: &mut Bird, jobs: &Jobs, seed: u64, mut run: Run) -> Result<Run> {
    // Interior routes and connected subnets come on top.
    while bird.routes()? < jobs.routes() + 2 * jobs.neighbors as usize {
        ensure!(bird.started.elapsed() < LIMIT, "longer than {} s", LIMIT.as_secs());
        std::thread::sleep(TICK);
    }
    let took = bird.started.elapsed();
    let (asked, wrong) = bird.check(&jobs.questions(None, seed))?;
    run.set_answers(asked, wrong);
    run.set_samples(vec![took.as_secs_f64() * 1e3]);
    let version = bird.version.get(5..).unwrap_or_default();
    run.note = format!("{version} RIB alone, from a file of static routes");
    Ok(run)
}

/// Memory by its own account, of which all that is not for routes is little.
#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
fn memory(bird: &mut Bird, jobs: &Jobs, mut run: Run) -> Result<Run> {
    let lines = bird.ask("show memory")?;
    let line = lines.iter().find_map(|line| line.split_once("Total:")).context("no total")?.1;
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    // What is in use, and what its allocators add: a number and a unit each.
    let mut total = 0.0;
    for pair in words.chunks(2) {
        let [number, unit] = pair else { anyhow::bail!("what is {line:?}") };
        let scale = match *unit {
            "GB" => 1024.0 * 1024.0 * 1024.0,
            "MB" => 1024.0 * 1024.0,
            "kB" => 1024.0,
            _ => 1.0,
        };
        total += number.parse::<f64>()? * scale;
    }
    run.set_samples(vec![total / jobs.routes().max(1) as f64]);
    run.note = "RIB alone, by its own account".to_owned();
    Ok(run)
}

fn loss(bird: &mut Bird, jobs: &Jobs, options: &FibOptions, mut run: Run) -> Result<Run> {
    run.mode = Mode::Single;
    let (family, hop) = jobs.lost;
    run.family = Some(family);
    let addr = jobs.behind_it(options.seed).context("no address behind the next hop")?;
    let mut times = Vec::new();
    for round in 0..=options.samples {
        for (command, neighbor) in [("disable", hop + 1), ("enable", hop)] {
            let neighbor = Some(world::neighbor_on(family, 0, neighbor));
            let start = Instant::now();
            bird.ask(&format!("{command} near"))?;
            while bird.via(addr)? != neighbor {
                ensure!(start.elapsed() < LIMIT, "longer than {} s", LIMIT.as_secs());
            }
            if command == "disable" && round > 0 {
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            // It moves its routes in pieces: until the last of them is there it is not done.
            std::thread::sleep(TICK);
        }
    }
    let (asked, wrong) = bird.check(&jobs.questions(None, options.seed + 1))?;
    run.set_answers(asked, wrong);
    run.set_samples(times);
    run.note = format!("{} routes behind it, in the RIB alone", jobs.behind);
    Ok(run)
}
