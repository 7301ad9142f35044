//! `fingerpost run FILE.click`: the graph of a file, and nothing besides.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fingerpost_packet::handler::control_socket::{Listen, Token};
use fingerpost_packet::{Folder, OpenPolicy};
use tracing::{info, warn};

use super::{Arguments, begin_log};
use crate::cli::command::{Exit, Failure};
use crate::cli::output::{Output, Report, message};
use crate::click::{self, ClickError, ClickPlan, ClickReport, Places, Running};
use crate::config::LogConfig;
use crate::control::{Service, secret};
use crate::{log, privilege, sys};

pub(super) fn run(file: &Path, arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let daemons = [
        ("--only", !arguments.only.is_empty()),
        ("--ignore", !arguments.ignore.is_empty()),
        ("--nonstop", arguments.nonstop.is_some()),
        ("--socket", arguments.at.socket.is_some()),
        ("--state", arguments.state.is_some()),
    ];
    if let Some((option, _)) = daemons.iter().find(|(_, given)| *given) {
        let words = format!("{option} is for a router that takes interfaces over, not for a graph");
        return Err(Failure::new(Exit::Usage, words));
    }
    if arguments.check {
        let planned = click::read(file, &OpenPolicy::check())?;
        planned.warnings().for_each(message);
        return Ok(output.print(&planned.outline())?);
    }
    let service = service(arguments)?;
    let planned = click::read(file, &service.policy)?;
    planned.warnings().for_each(message);
    sys::catch_signals();
    let places = match &arguments.cores[..] {
        [] => Places::Anywhere(arguments.workers.map_or(1, usize::from)),
        cores => Places::On(cores.to_vec()),
    };
    let (stands, sockets) = (&arguments.device, &arguments.port);
    let mut running = Running::start(file, planned, stands, sockets, &places, service)?;
    begin_log(arguments, &LogConfig::default());
    for what in running.opened() {
        info!(target: "run", "{what}");
    }
    if let Err(error) = privilege::keep_to_forward(&[file.to_owned()]) {
        warn!(target: "run", "capabilities that are not needed any more are kept: {error}");
    }
    running.run(&mut sys::stop_asked, &mut sys::reload_asked);
    let report = running.stop();
    log::end();
    output.print(&report)?;
    if report.crashed {
        return Err(Failure::new(Exit::Failed, "a worker ended by a fault of the program"));
    }
    Ok(())
}

/// What its control sockets have in common.
fn service(arguments: &Arguments) -> Result<Service, Failure> {
    let folder = |path: &PathBuf| {
        let told = |error: io::Error| {
            let words = format_args!("--open-below {}: {error}", path.display());
            Failure::outside(error.kind(), words)
        };
        Folder::new(path).map_err(told)
    };
    let folders = arguments.open_below.iter().map(folder).collect::<Result<_, _>>()?;
    let read = |path: &PathBuf| secret(path).and_then(|text| Token::new(&text));
    let token = arguments.write_token.as_ref().map(read).transpose();
    let told = |words| Failure::new(Exit::Failed, format_args!("--write-token: {words}"));
    Ok(Service::new(OpenPolicy::with_folders(folders), token.map_err(told)?))
}

/// What is for graphs alone, where there is none.
pub(super) fn refuse_alone(arguments: &Arguments) -> Result<(), Failure> {
    let graphs = [
        ("--port", !arguments.port.is_empty()),
        ("--write-token", arguments.write_token.is_some()),
        ("--open-below", !arguments.open_below.is_empty()),
        ("--device", !arguments.device.is_empty()),
        ("--workers", arguments.workers.is_some()),
        ("--cores", !arguments.cores.is_empty()),
    ];
    match graphs.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => {
            let words = format!("{option} is for a graph: fingerpost run FILE.click");
            Err(Failure::new(Exit::Usage, words))
        }
    }
}

/// A processor that this process may use.
pub(super) fn core(text: &str) -> Result<usize, String> {
    let cores = sys::cores();
    let number = text.parse().ok().filter(|core| cores.contains(core));
    number.ok_or_else(|| {
        let known: Vec<String> = cores.iter().map(usize::to_string).collect();
        format!("`{text}` is no processor of this process: it may use {}", known.join(","))
    })
}

/// A port for `-p`, as Click writes it.
pub(super) fn port(text: &str) -> Result<Listen, String> {
    Listen::tcp(text)
}

impl From<ClickError> for Failure {
    fn from(error: ClickError) -> Self {
        let code = if error.is_permission() { Exit::Permission } else { Exit::Failed };
        if let ClickError::Wrong(errors) = &error {
            // Several lines, with excerpts: they are made to be read as they are.
            eprintln!("{errors}");
            return Self::Reported(code);
        }
        Self::new(code, error)
    }
}

impl Report for ClickPlan {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{} elements, {} control sockets", self.elements, self.control_sockets)?;
        for device in &self.devices {
            writeln!(to, "device     {device}")?;
        }
        Ok(())
    }
}

impl Report for ClickReport {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let dropped: u64 = self.dropped.values().sum();
        writeln!(
            to,
            "packets    {} in, {} out, {} dropped; {} of our own making, {} of them sent",
            self.packets_in, self.packets_out, dropped, self.originated, self.originated_sent,
        )?;
        for (reason, count) in &self.dropped {
            writeln!(to, "  dropped  {count} {reason}")?;
        }
        for (reason, count) in &self.originated_dropped {
            writeln!(to, "  dropped  {count} {reason} (our own)")?;
        }
        // One alone did all of it.
        for (number, worker) in self.workers.iter().enumerate().filter(|_| self.workers.len() > 1) {
            let click::Share { packets_in, packets_out, dropped, originated } = worker;
            writeln!(
                to,
                "worker     {number}: {packets_in} in, {packets_out} out, {dropped} dropped; \
                 {originated} of its own making",
            )?;
        }
        for element in self.elements.iter().filter(|element| element.packets > 0) {
            let (name, class) = (&element.name, element.class);
            writeln!(to, "element    {name} ({class}): {} packets", element.packets)?;
        }
        Ok(())
    }
}
