//! `fingerpost fib verify`: compares the lookups with the routes.

use std::io::{self, Write};

use fingerpost_command::progress::Progress;
use hyper::Method;

use super::super::command::{Exit, Failure};
use super::super::output::{Output, Report, or_dash};
use crate::api::model::Verification;
use crate::cli::at::At;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost fib verify
  $ fingerpost fib verify --json

Compares the lookups of all tables, and those of the XDP datapath, with a search in the RIB: at \
both ends of every range of addresses with one route, and in between. Differences are repaired; \
the first ones are listed, with exit code 5.";

pub(super) fn run(at: &At, output: &mut Output) -> Result<(), Failure> {
    let mut progress = Progress::new();
    progress.stage("comparing the lookups of all tables with the RIB");
    let found: Verification = at.client()?.send(Method::POST, "/v1/verify", &())?;
    progress.done();
    output.print(&found)?;
    if found.mismatches == 0 { Ok(()) } else { Err(Failure::Reported(Exit::Differences)) }
}

impl Report for Verification {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for difference in &self.differences {
            writeln!(
                to,
                "{} (table {}): {} has next hop {}, the RIB {} by {}",
                difference.addr,
                difference.table,
                if difference.in_xdp { "the XDP datapath" } else { "the lookup" },
                difference.fib,
                difference.rib,
                or_dash(difference.prefix.as_ref()),
            )?;
        }
        writeln!(
            to,
            "{} addresses compared in {:.2} s: {} differ",
            self.addresses, self.seconds, self.mismatches
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::model::Difference;

    #[test]
    fn differences_are_named() {
        let difference = Difference {
            table: 254,
            in_xdp: false,
            addr: "10.0.0.1".into(),
            prefix: Some("10.0.0.0/8".into()),
            rib: 3,
            fib: 7,
        };
        let found = Verification {
            addresses: 5,
            mismatches: 1,
            differences: vec![difference],
            ..Verification::default()
        };
        let mut output = Output::memory(false);
        output.print(&found).unwrap();
        assert_eq!(
            output.written(),
            "10.0.0.1 (table 254): the lookup has next hop 7, the RIB 3 by 10.0.0.0/8\n\
             5 addresses compared in 0.00 s: 1 differ\n"
        );
    }
}
