//! `fingerpost release`: ends the non-stop forwarding that a router with `--nonstop` left.

use std::io::{self, Write};

use clap::Args;
use fingerpost_io::interface;
use fingerpost_io::xdp::Pins;

use super::command::{Command, Failure};
use super::output::{Output, Report as Print, message};
use crate::sys;

pub(super) const COMMAND: Command = Command {
    name: "release",
    summary: "Return interfaces to the kernel that keep forwarding without their router",
    examples: "Examples:
  $ fingerpost release
  $ fingerpost release --json

Ends the non-stop forwarding of `run --nonstop` in this network namespace. If no router runs, the \
kernel has the interfaces back at once. If one runs, it keeps them until it stops, and the kernel \
has them back then. Interfaces that drop packets because a worker failed that checked their \
sources are returned as well.",
    arguments: Arguments::augment_args,
    run: |_, output| run(output),
};

/// None but those of all commands.
#[derive(Args, Debug)]
struct Arguments {}

fn run(output: &mut Output) -> Result<(), Failure> {
    let name = sys::namespace_number().to_string();
    let hidden = |error: io::Error| {
        let words =
            "what a router left can be seen and released by the user that it ran as, or by root";
        Failure::outside(error.kind(), format_args!("{words}: {error}"))
    };
    let released = match Pins::find_to_release(&name).map_err(hidden)? {
        Some(pins) => {
            let folder = pins.folder().display().to_string();
            let failed = |error: io::Error| {
                Failure::outside(error.kind(), format_args!("{folder}: {error}"))
            };
            pins.release().map_err(failed)?
        }
        None => Vec::new(),
    };
    let interfaces: Vec<_> = released.into_iter().map(interface::name_of).collect();
    if interfaces.is_empty() {
        message("nothing to release: no XDP program forwards without its router");
    }
    Ok(output.print(&Released { interfaces })?)
}

#[derive(serde::Serialize)]
struct Released {
    interfaces: Vec<String>,
}

impl Print for Released {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for name in &self.interfaces {
            writeln!(to, "{name}: released")?;
        }
        Ok(())
    }
}
