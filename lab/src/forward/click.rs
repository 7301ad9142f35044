//! Two short graphs, as users of Click run them: source to discard, and a filter of six rules.
//!
//! `click-discard` frees what it receives, `click-filter` checks the IPv4 header and passes packets by six rules.
//! Before anything is timed, each packet crosses once, and as many must have been discarded, or dropped by the filter,
//! as the rules let through.

use anyhow::{Context, Result, anyhow};
use fingerpost_lpm::NextHopId;
use fingerpost_route::Control;

use super::{ForwardOptions, HEADER_BYTES, Path, Prepared, graphs, packets, world};
use crate::document::{Kind, Run, Unit};
use crate::table::Table;

/// Rules of the filter: packets of the bench meet the last two.
const RULES: &str = "deny src net 10.0.0.0/8, deny src net 192.168.0.0/16, allow dst tcp port 80, \
                     allow icmp type echo, deny dst udp port 9 and dst net 64.0.0.0/4, allow ip proto udp";

/// Whether the rules let a packet to this destination pass.
fn passes(dst: u32) -> bool {
    dst >> 28 != 4
}

/// The runs, with the element that discards what passes.
const RUNS: [(&str, &str); 2] =
    [("click-discard", ""), ("click-filter", "Strip(14) -> CheckIPHeader -> IPFilter")];

/// The runs of each stream. None without the option.
pub(super) fn prepare(
    table: &Table<u32>,
    options: &ForwardOptions,
    control: &Control,
    prepared: &mut Prepared,
) -> Result<()> {
    if !options.click {
        return Ok(());
    }
    for &stream in &options.streams {
        let (found, headers) = packets(table, options, stream)?;
        for (name, elements) in RUNS {
            let filter = !elements.is_empty();
            let between = if filter { format!("{elements}({RULES}) -> ") } else { String::new() };
            let text = format!("FromDevice(in) -> {between}end :: Discard;");
            let path = graph(&text, options, control, &headers);
            let (mut path, handlers) = path.with_context(|| name.to_owned())?;
            let sent = found.len() as u64;
            path.worker.add_port(0, Box::new(path.generator().limit(sent)));
            while path.worker.round() > 0 {}
            let count = handlers.read("end.count", "").map_err(|error| anyhow!("{error}"))?;
            let ended: u64 = count.trim().parse().context("a count")?;
            let passed = |found: &&(u32, NextHopId)| !filter || passes(found.0);
            let wanted = found.iter().filter(passed).count() as u64;
            let mut run = Run::new(name, Kind::Ours, stream.name(), Unit::NsPerPacket);
            run.family = Some(4);
            run.set_answers(sent, wanted.abs_diff(ended));
            run.note = format!("{ended} of {sent} packets pass");
            path.worker.add_port(0, Box::new(path.generator()));
            prepared.paths.push((run, path));
        }
    }
    Ok(())
}

/// A graph whose only port receives.
fn graph(
    text: &str,
    options: &ForwardOptions,
    control: &Control,
    headers: &[[u8; HEADER_BYTES]],
) -> Result<(Path, fingerpost_packet::Handlers)> {
    let (plan, handlers) = graphs::read("click", text)?;
    // The first device has the first number; nothing is sent.
    let ports = world::Ports { input: 0, out: [1, 2] };
    Ok((Path::new(plan, control.reader(), ports, 4, headers.into(), options.burst), handlers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Answers;
    use crate::forward::{Stream, forward, tests::tables};
    use crate::table::Tables;

    #[test]
    fn short_graphs_end_what_they_are_to() {
        let options = ForwardOptions {
            tables: Tables { v6: None, ..tables() },
            streams: vec![Stream::Prefix],
            destinations: 500,
            seconds: 0.01,
            click: true,
            elements: false,
            ..ForwardOptions::default()
        };
        let runs = forward(&options).unwrap().runs;
        let of = |name: &str| runs.iter().find(|run| run.name == name).unwrap();
        for (name, _) in RUNS {
            assert_eq!((of(name).answers, of(name).samples.len()), (Answers::Ok, 9));
        }
        assert_eq!(of("click-discard").note, "500 of 500 packets pass");
        assert_ne!(of("click-filter").note, "500 of 500 packets pass");
    }
}
