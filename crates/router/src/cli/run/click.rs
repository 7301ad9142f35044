//! `fingerpost run FILE.click`: the graph of a file, and nothing besides.

use std::io::{self, Write};
use std::path::Path;

use fingerpost_packet::control_socket::Listen;

use super::Arguments;
use crate::cli::command::{Exit, Failure};
use crate::cli::output::{Output, Report, message};
use crate::click::{self, ClickError, ClickPlan, ClickReport, Running};
use crate::sys;

pub(super) fn run(file: &Path, arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let daemons = [
        ("--only", !arguments.only.is_empty()),
        ("--ignore", !arguments.ignore.is_empty()),
        ("--survive", arguments.survive.is_some()),
        ("--socket", arguments.at.socket.is_some()),
    ];
    if let Some((option, _)) = daemons.iter().find(|(_, given)| *given) {
        let words = format!("{option} is for a router that takes interfaces over, not for a graph");
        return Err(Failure::new(Exit::Usage, words));
    }
    let planned = click::read(file)?;
    planned.warnings().for_each(message);
    if arguments.check {
        return Ok(output.print(&planned.outline())?);
    }
    sys::catch_signals();
    let mut running = Running::start(file, planned, &arguments.device, &arguments.port)?;
    running.opened().for_each(message);
    running.run(&mut sys::stop_asked, &mut |words| message(words));
    let report = running.stop();
    output.print(&report)?;
    if report.crashed {
        return Err(Failure::new(Exit::Failed, "the worker ended by a fault of the program"));
    }
    Ok(())
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
            return Self::Told(code);
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
        for element in self.elements.iter().filter(|element| element.packets > 0) {
            let (name, class) = (&element.name, element.class);
            writeln!(to, "element    {name} ({class}): {} packets", element.packets)?;
        }
        Ok(())
    }
}
