//! `fingerpost completions`: what a shell needs to complete commands, options and their values.

use std::io::{self, Write};

use clap::{ArgMatches, Args};
use clap_complete::Shell;
use serde::Serialize;

use super::command::{Command, Failure, command_line, parsed};
use super::output::{Output, Report};

pub(super) const COMMAND: Command = Command {
    name: "completions",
    summary: "Print the completion script of a shell",
    examples: "Examples:
  $ fingerpost completions bash > /etc/bash_completion.d/fingerpost
  $ fingerpost completions zsh > ~/.zfunc/_fingerpost
  $ fingerpost completions fish > ~/.config/fish/completions/fingerpost.fish",
    arguments: Arguments::augment_args,
    run,
};

#[derive(Args)]
struct Arguments {
    /// Name of the shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let Arguments { shell } = parsed(matches)?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_line(&super::PROGRAM), "fingerpost", &mut script);
    let script = String::from_utf8(script).expect("completions are text");
    Ok(output.print(&Completions { shell: shell.to_string(), script })?)
}

/// The JSON of this command.
#[derive(Serialize)]
struct Completions {
    shell: String,
    script: String,
}

impl Report for Completions {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(self.script.as_bytes())
    }
}
