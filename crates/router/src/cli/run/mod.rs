//! `fingerpost run`: takes forwarding over from the kernel until a signal, or runs the graph of a file.

mod click;
mod reload;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use fingerpost_lpm::input;
use fingerpost_packet::handler::control_socket::Listen;
use tracing::{info, warn};

use super::command::{Command, Exit, Failure, parsed};
use super::output::{Output, Report as Print, message};
use crate::api::access::Groups;
use crate::api::backend;
use crate::api::model::ConfigText;
use crate::api::server::{Served, Server};
use crate::api::socket::{self, Claimed, SocketError};
use crate::api::tcp::TcpServed;
use crate::cli::at::At;
use crate::click::Stand;
use crate::config::{Config, ListenConfig, LogConfig, PacketPath, Takeover};
use crate::daemon::{self, Daemon, DaemonError, Lasting, Report, RunOptions, Said, StateFolder};
use crate::log::{self, Format, Levels};
use crate::service::Service;
use crate::{privilege, sys, syscalls};

use reload::Reload;

pub(super) const COMMAND: Command = Command {
    name: "run",
    summary: "Take over forwarding on this host (or network namespace)",
    examples: "Examples:
  $ fingerpost run
  $ fingerpost run --check
  $ fingerpost run router.toml --only eth0,eth1
  $ fingerpost run --ignore nftables,forwarding --json > report.json
  $ fingerpost run --nonstop 60
  $ fingerpost run router.click -p 1234
  $ fingerpost run router.click --workers 2
  $ fingerpost run router.click --device eth0=pcap:in.pcap,out.pcap

Without a file every usable interface is taken over, with the kernel's addresses, neighbors and \
routes, which are followed as they change. SIGINT or SIGTERM returns the interfaces to the kernel \
and prints a report; a crash returns them without a report. If a worker fails, the run ends in \
the same way, with exit code 1. SIGHUP reads the file again and applies it like `config apply`.

An interface stays with the kernel, or is returned to it, while the kernel has rules for its \
forwarded packets or forwarding is switched off. --ignore SUBSYSTEM takes it over in spite of \
them.

With --nonstop the XDP programs keep forwarding without this process (non-stop forwarding), until \
another daemon takes over, the time is up, or `fingerpost release` is called.

A file in Click's language (.click) is a graph of its own: only the devices and control sockets \
that it names are opened. If the name ends in neither .toml nor .click, the content of the file \
decides.",
    arguments: Arguments::augment_args,
    run: |matches, output| run(&parsed(matches)?, output),
};

#[derive(Args, Debug)]
struct Arguments {
    /// Configuration (TOML), or a graph (.click) [default: an empty configuration]
    file: Option<PathBuf>,
    /// Print what would be done with each interface, and exit
    #[arg(long)]
    check: bool,
    /// Take over these interfaces and no others
    #[arg(long, value_name = "IF,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Take interfaces over in spite of the policy of these subsystems for forwarded packets
    #[arg(long, value_name = "SUBSYSTEM,..", value_delimiter = ',',
          value_parser = Takeover::SUBSYSTEMS.to_vec())]
    ignore: Vec<String>,
    /// Seconds for which the XDP programs keep forwarding without this process (takeover.nonstop_s)
    #[arg(long, alias = "survive", value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(..=i64::from(Takeover::LONGEST_NONSTOP_S)))]
    nonstop: Option<u32>,
    /// Folder for what lasts across restarts [default: /var/lib/fingerpost, where it can be written]
    #[arg(long, value_name = "DIR", env = "FINGERPOST_STATE", hide_env_values = true)]
    state: Option<PathBuf>,
    /// Least important level that is logged, and others for single targets: `info,fib=debug` (log.level)
    #[arg(long, value_name = "LEVEL,..")]
    log_level: Option<Levels>,
    /// Form of the log (log.format)
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<Format>,
    /// Packet path
    #[arg(long, value_name = "PATH", value_enum, default_value_t)]
    path: PacketPath,
    /// Graph only: TCP port of this host that serves its handlers (1234+: or the next free one)
    #[arg(short, long, value_name = "PORT", value_parser = click::port)]
    port: Vec<Listen>,
    /// Graph only: token file; TCP sessions that send the token (`AUTH TOKEN`) may write handlers
    #[arg(long, value_name = "FILE")]
    write_token: Option<PathBuf>,
    /// Graph only: folder whose files configurations received over TCP may open
    #[arg(long, value_name = "DIR")]
    open_below: Vec<PathBuf>,
    /// Graph only: driver and argument for a device of the file
    #[arg(long, value_name = "NAME=DRIVER:WHAT")]
    device: Vec<Stand>,
    /// Graph only: number of workers, each with a queue of every device
    #[arg(long, value_name = "N", conflicts_with = "cores",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// Graph only: processors, each with a worker pinned to it
    #[arg(long, value_name = "CPU,..", value_delimiter = ',', value_parser = click::core)]
    cores: Vec<usize>,
    #[command(flatten)]
    at: At,
}

fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if !arguments.check {
        // Before anything that takes its time: a router that starts is not to be ended by it either.
        sys::catch_hangup();
    }
    if arguments.log_format == Some(Format::Json) {
        // Whoever reads JSON is to find nothing else.
        begin_log(arguments, &LogConfig::default());
    }
    if let Some(file) = &arguments.file {
        let is_graph = crate::click::is_one(file);
        if is_graph.map_err(|words| Failure::new(Exit::Failed, words))? {
            return click::run(file, arguments, output);
        }
    }
    click::refuse_alone(arguments)?;
    let text = match &arguments.file {
        Some(path) => input::read_text_or_stdin(path).map_err(|error| {
            let hint = privilege::to_read(error.kind());
            Failure::outside(error.kind(), format_args!("{}: {error}{hint}", path.display()))
        })?,
        None => String::new(),
    };
    let file = arguments.file.as_ref().map_or(String::new(), |path| path.display().to_string());
    let state = match arguments.check {
        true => None,
        false => StateFolder::find(arguments.state.as_deref())
            .map_err(|words| Failure::new(Exit::Failed, words))?,
    };
    let (mut lasting, saved, messages) = Lasting::open(state);
    messages.iter().for_each(message);
    let (text, refused) = lasting.starting(ConfigText { file, text });
    refused.iter().for_each(message);
    let file = Path::new(&text.file);
    let mut config = Config::of_text(file, &text.text, None).map_err(|errors| {
        errors.iter().for_each(message);
        Failure::Reported(Exit::Failed)
    })?;
    config.former_name_warnings(file).for_each(message);
    let said = Said {
        ignore: arguments.ignore.clone(),
        nonstop_s: arguments.nonstop,
        only: arguments.only.clone(),
        log_level: arguments.log_level.clone(),
        log_format: arguments.log_format,
    };
    said.add_to(&mut config);
    let options = RunOptions { config, path: arguments.path, said, text, saved };
    if arguments.check {
        return check(&options, output);
    }
    privilege::to_forward().map_err(DaemonError::from)?;
    // First of all: a second daemon would take the first one's interfaces.
    let mut sockets = Sockets::claim(arguments.at.socket.as_deref(), &options.config)?;
    sys::catch_signals();
    sys::map_large_allocations();
    log::begin(&options.config.log.level, options.config.log.format);
    let mut daemon = Daemon::start(&options)?;
    let kept = privilege::keep_to_forward(&files(arguments.file.as_deref(), &options.config));
    if let Err(error) = kept {
        warn!(target: "run", "capabilities that are not needed any more are kept: {error}");
    }
    daemon.keep(lasting);
    let (server, mut reload) = serve(&mut daemon, &mut sockets, arguments.file.clone())?;
    let report = daemon.report();
    let taken_over = daemon.taken_over();
    info!(
        target: "run",
        interfaces = taken_over,
        workers = report.workers,
        routes_v4 = report.routes_v4,
        algorithm_v4 = report.algorithm_v4,
        routes_v6 = report.routes_v6,
        algorithm_v6 = report.algorithm_v6,
        load_ms = report.load_ms,
        "forwarding on {} with {}: {} IPv4 routes ({}), {} IPv6 routes ({}), learned in {:.0} ms",
        counted(taken_over, "interface"),
        counted(report.workers, "worker"),
        report.routes_v4,
        report.algorithm_v4,
        report.routes_v6,
        report.algorithm_v6,
        report.load_ms,
    );
    if taken_over == 0 {
        warn!(
            target: "run",
            "nothing is forwarded yet: `fingerpost interface show` has the reason for each interface",
        );
    }
    if let Err(error) = syscalls::refuse_unused() {
        warn!(target: "run", "system calls that are not needed are not refused: {error}");
    }
    let mut service = Service::ready(daemon.status());
    let worked = daemon.run(&mut sys::stop_asked, &mut |daemon| {
        log::turn();
        reload.turn();
        service.turn(Instant::now(), || daemon.status());
    });
    drop(service);
    if let Some(time) = daemon.nonstop() {
        let seconds = time.as_secs();
        info!(
            target: "nonstop",
            nonstop_s = seconds,
            "the XDP programs keep forwarding for {seconds} s, or until `fingerpost release`"
        );
    }
    let report = daemon.stop();
    log::end();
    drop((server, sockets));
    output.print(&report)?;
    worked?;
    match report.workers - report.workers_alive {
        0 => Ok(()),
        failed => Err(DaemonError::Workers { failed, workers: report.workers }.into()),
    }
}

/// Begins the log as the command line has it, or else the configuration.
fn begin_log(arguments: &Arguments, config: &LogConfig) {
    let levels = arguments.log_level.as_ref().unwrap_or(&config.level);
    log::begin(levels, arguments.log_format.unwrap_or(config.format));
}

/// The control sockets of a run.
struct Sockets {
    control: Claimed,
    reading: Claimed,
    /// Groups whose members may use them.
    groups: Groups,
    /// The TCP listener, until it is served.
    tcp: Option<TcpServed>,
}

impl Sockets {
    /// Takes the socket of this name, or the usual one, the one for reading beside it, and the address of the TCP listener.
    fn claim(named: Option<&Path>, config: &Config) -> Result<Self, Failure> {
        let control = Claimed::new(socket::path(named))?;
        let reading = Claimed::new(socket::for_reading(control.path()))?;
        let (groups, messages) = config.control.groups();
        messages.iter().for_each(message);
        for (socket, group) in [(&control, &groups.write), (&reading, &groups.read)] {
            let Some(group) = group else { continue };
            if let Err(error) = socket.admit(group.id) {
                message(format_args!(
                    "{}: group {} may not use it, as this user may not give it to that group: {error}",
                    socket.path().display(),
                    group.name
                ));
            }
        }
        let tcp = tcp_listener(&config.listen)?;
        Ok(Self { control, reading, groups, tcp })
    }
}

fn tcp_listener(config: &ListenConfig) -> Result<Option<TcpServed>, Failure> {
    let Some(address) = config.address else { return Ok(None) };
    if !sys::has_address(address.ip()) {
        message(format_args!("[listen] address {address}: this host does not have it yet"));
    }
    let (token, tls) = (config.token_file.as_deref(), config.tls());
    let served = TcpServed::new(address, &config.names, token, tls.as_ref());
    served.map(Some).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => " (end what listens there, or configure another address)",
            io::ErrorKind::AddrNotAvailable => " (this host does not have that address)",
            io::ErrorKind::PermissionDenied if address.port() < 1024 => {
                " (take a port from 1024 on, or add CAP_NET_BIND_SERVICE)"
            }
            kind => privilege::to_read(kind),
        };
        let words = format_args!("[listen] address {address}: {error}{remedy}");
        Failure::outside(error.kind(), words)
    })
}

/// The files that a run reads, and may read again.
fn files(file: Option<&Path>, config: &Config) -> Vec<PathBuf> {
    let sources = config.source.iter().flat_map(|source| source.path.iter().chain(&source.updates));
    let features = config.features.each().flat_map(|(_, settings)| settings.files());
    let features = features.map(|(_, path)| PathBuf::from(path));
    let ListenConfig { token_file, certificate, key, client_ca, .. } = &config.listen;
    let listen = [token_file, certificate, key, client_ca].into_iter().flatten();
    let named = file.map(Path::to_owned).into_iter().chain(sources.chain(listen).cloned());
    named.chain(features).collect()
}

/// Serves the control API: for clients, and for SIGHUP.
fn serve(
    daemon: &mut Daemon,
    sockets: &mut Sockets,
    file: Option<PathBuf>,
) -> Result<(Server, Reload), Failure> {
    let Sockets { control, reading, groups, tcp } = sockets;
    let failed = |error: io::Error| {
        let words = format_args!("control socket {}: {error}", control.path().display());
        Failure::outside(error.kind(), words)
    };
    let (requests, queue) = backend::channel().map_err(failed)?;
    let reload = Reload::new(file, requests.clone());
    let served = |socket: &Claimed, read_only| {
        socket.listener().map(|listener| Served::Unix(listener, read_only)).map_err(failed)
    };
    let mut all = vec![served(control, false)?, served(reading, true)?];
    let url = tcp.as_ref().and_then(TcpServed::url);
    all.extend(tcp.take().map(Served::Tcp));
    let server = Server::start(all, groups.clone(), requests).map_err(failed)?;
    daemon.serve(queue);
    info!(target: "control", "control socket {}", control.path().display());
    if let Some(url) = url {
        info!(target: "control", "listening for requests to read on {url}");
    }
    Ok((server, reload))
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        let code = if error.is_permission() { Exit::Permission } else { Exit::Failed };
        Self::new(code, error)
    }
}

/// A number and the noun for it.
fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        let code = if error.is_permission() { Exit::Permission } else { Exit::Failed };
        Self::new(code, error)
    }
}

fn check(options: &RunOptions, output: &mut Output) -> Result<(), Failure> {
    let checked = daemon::check(options)?;
    let rows = checked.plans.into_iter().map(|(name, plan)| match plan {
        Ok(mode) => PlanRow { name, taken: true, mode: Some(mode.name()), reason: None },
        Err(reason) => PlanRow { name, taken: false, mode: None, reason: Some(reason) },
    });
    output.print(&Plans { interfaces: rows.collect() })?;
    checked.missing.iter().for_each(message);
    checked.unanswered.iter().for_each(|what| message(format_args!("unknown: {what}")));
    // What it would do is what was printed, if it could start at all.
    Ok(privilege::to_forward().map_err(DaemonError::from)?)
}

/// What would be done with each interface.
#[derive(serde::Serialize)]
struct Plans {
    interfaces: Vec<PlanRow>,
}

#[derive(serde::Serialize)]
struct PlanRow {
    name: String,
    taken: bool,
    mode: Option<&'static str>,
    reason: Option<String>,
}

impl Print for Plans {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for PlanRow { name, mode, reason, .. } in &self.interfaces {
            match reason {
                Some(reason) => writeln!(to, "{name} stays with the kernel: {reason}")?,
                None => writeln!(to, "{name} would be taken over ({})", mode.unwrap_or("auto"))?,
            }
        }
        Ok(())
    }
}

impl Print for Report {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(
            to,
            "routes     {} IPv4 ({}{}), {} IPv6 ({}{})",
            self.routes_v4,
            self.algorithm_v4,
            a_prefix(self.bytes_per_prefix_v4),
            self.routes_v6,
            self.algorithm_v6,
            a_prefix(self.bytes_per_prefix_v6),
        )?;
        writeln!(
            to,
            "loaded     in {:.0} ms, {:.0} routes/s, {} MiB resident",
            self.load_ms,
            self.routes_per_second,
            self.resident_kib >> 10,
        )?;
        writeln!(
            to,
            "packets    {} in, {} out, {} dropped, {} held, {} originated, {} left to the kernel",
            self.packets_in,
            self.packets_out,
            self.dropped_total(),
            self.held,
            self.originated,
            self.punted,
        )?;
        for (reason, count) in &self.dropped {
            writeln!(to, "  dropped  {count} {reason}")?;
        }
        for interface in &self.interfaces {
            writeln!(to, "interface  {}: {}, {}", interface.name, interface.path, interface.mode)?;
        }
        for source in self.sources.iter().filter(|s| s.routes + s.refused > 0) {
            write!(to, "source     {}: {} routes", source.name, source.routes)?;
            if source.refused > 0 {
                write!(to, ", {} refused, the latest {}", source.refused, source.last_refusal)?;
            }
            writeln!(to)?;
        }
        Ok(())
    }
}

/// Bytes per prefix after the name of an algorithm, where there are enough prefixes.
fn a_prefix(bytes: Option<f64>) -> String {
    bytes.map_or(String::new(), |bytes| format!(", {bytes:.2} bytes a prefix"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_that_are_read_again_are_known() {
        let mut config = Config::of_text(
            Path::new("r.toml"),
            "[[source]]\nkind = \"mrt\"\npath = \"rib\"\nupdates = [\"u1\", \"u2\"]\n[[source]]\nkind = \"file\"\n\
             path = \"table\"\n[[source_filter]]\nname = \"a\"\naction = \"drop\"\nfile = \"list\"\n",
            None,
        )
        .unwrap();
        config.listen.certificate = Some("cert".into());
        config.listen.key = Some("key".into());
        config.listen.client_ca = Some("ca".into());
        let files = files(Some(Path::new("r.toml")), &config);
        let want = ["r.toml", "rib", "u1", "u2", "table", "cert", "key", "ca", "list"];
        assert_eq!(files, want.map(PathBuf::from));
    }
}
