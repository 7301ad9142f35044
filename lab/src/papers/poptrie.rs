//! Poptrie's evaluation: what its extensions bring, other schemes, traffic patterns, SYN1 and SYN2, IPv6.

use anyhow::Result;

use super::page::{figure, find, grouped, median, rate, ratio, short, table};
use super::{Paper, published};
use crate::document::{Mode, Run};
use crate::lookup::Stream;
use crate::syn::Syn;
use crate::table::{Table, Tables};

/// All of a table of IPv4.
pub(super) fn sections(paper: &mut Paper<'_>, of: &Table<u32>) -> Result<()> {
    forms(paper, of)?;
    compared(paper, of)
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
fn mib(run: Option<&Run>) -> Option<f64> {
    run.and_then(|run| run.bytes).map(|bytes| bytes as f64 / f64::from(1 << 20))
}

fn forms(paper: &mut Paper<'_>, of: &Table<u32>) -> Result<()> {
    let name = short(&of.file).to_owned();
    paper.say(&format!(
        "### Poptrie: its extensions ({name})\n\nThere: i7-4770K, a tier-1 table of 9 January 2015 (its size is \
         not in the slides; SYN1 and SYN2 of it\nhave 764,847 and 885,645 routes), random keys. Ours: \
         `uniform`, single lookups, {} prefixes.",
        grouped(of.routes.len() as u64)
    ));
    if !crate::family::Family::named(&["poptrie18".to_owned()])
        .iter()
        .any(|row: &&fingerpost_lpm::Algorithm<u32>| row.name == "poptrie18")
    {
        paper.say("skipped: needs a program built with the feature `poptrie`");
        return Ok(());
    }
    let names: Vec<_> = published::FORMS.iter().map(|form| form.ours).collect();
    let tables = Tables { v4: Some(of.clone()), v6: None };
    let runs = paper.measure(tables, &name, &names, &[Stream::Uniform], Mode::Single)?;
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    let base =
        published::FORMS.iter().find(|form| form.ours == "poptrie18").expect("a row of ours");
    let base_rate = median(&runs, base.ours, "uniform");
    for form in published::FORMS {
        let stats = super::stats(of, form.ours);
        let count = |name| stats.iter().find(|stat| stat.0 == name).map(|stat| stat.1);
        let found = median(&runs, form.ours, "uniform");
        rows.push(vec![
            form.name.to_owned(),
            count("inner_nodes").map_or("-".into(), grouped),
            grouped(form.nodes),
            count("leaves").map_or("-".into(), grouped),
            grouped(form.leaves),
            figure(mib(find(&runs, form.ours, "uniform")), 2),
            figure(Some(form.mib), 2),
            rate(found),
            rate(Some(form.rate)),
            figure(ratio(found, base_rate), 2),
            figure(Some(form.rate / base.rate), 2),
        ]);
        groups.push((form.ours.to_owned(), vec![found]));
    }
    let headings = [
        "form",
        "nodes",
        "there",
        "leaves",
        "there",
        "MiB",
        "there",
        "M/s",
        "there",
        "/ Poptrie 18",
        "there",
    ];
    table(&mut paper.text, &headings, &rows);
    paper.bars(
        &format!("poptrie-forms-{name}"),
        "Mlookups/s, uniform, single",
        &["uniform"],
        &groups,
    );
    Ok(())
}

fn compared(paper: &mut Paper<'_>, of: &Table<u32>) -> Result<()> {
    let name = short(&of.file).to_owned();
    let names: Vec<_> = published::COMPARED.iter().map(|row| row.1).collect();
    let patterns = [Stream::Uniform, Stream::Repeat, Stream::Ascending, Stream::Prefix];
    let mut found = Vec::new();
    let tables = [of.clone(), Syn::One.split(of), Syn::Two.split(of)];
    let sizes = tables.each_ref().map(|table| grouped(table.routes.len() as u64));
    for (t, table) in tables.into_iter().enumerate() {
        let of = if t == 0 { name.clone() } else { format!("{name} SYN{t}") };
        let tables = Tables { v4: Some(table), v6: None };
        let streams = if t == 0 { &patterns[..] } else { &patterns[..1] };
        found.push(paper.measure(tables, &of, &names, streams, Mode::Single)?);
    }
    paper.say(&format!(
        "### Poptrie: compared with other schemes ({name})\n\nThere: the same machine and table. Ours: \
         `uniform`, single lookups; {}, {} and {} routes. A dash of\nours: beyond the scheme's limits, or not \
         built.",
        sizes[0], sizes[1], sizes[2]
    ));
    let (mut rows, mut shares, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    let base = published::COMPARED.iter().find(|row| row.1 == "dxr18").expect("a row of ours");
    for (there, ours, there_mib, figures) in published::COMPARED {
        let mib = mib(find(&found[0], ours, "uniform"));
        let mut cells = vec![
            (*there).to_owned(),
            (*ours).to_owned(),
            figure(mib, 2),
            format!("{there_mib:.2}"),
        ];
        let rates: Vec<_> = found.iter().map(|runs| median(runs, ours, "uniform")).collect();
        let mut ratios = vec![(*there).to_owned()];
        for (t, (&ours, &there)) in rates.iter().zip(figures).enumerate() {
            cells.extend([rate(ours), rate(there)]);
            let of_base = ratio(ours, median(&found[t], base.1, "uniform"));
            ratios.extend([figure(of_base, 2), figure(ratio(there, base.3[t]), 2)]);
        }
        rows.push(cells);
        shares.push(ratios);
        groups.push(((*ours).to_owned(), rates));
    }
    let headings =
        ["there", "ours", "MiB", "there", "table", "there", "SYN1", "there", "SYN2", "there"];
    table(&mut paper.text, &headings, &rows);
    paper.say(
        "Each as so many times D18R (there changed for SYN1 and SYN2: it could not hold them):",
    );
    table(&mut paper.text, &["", "table", "there", "SYN1", "there", "SYN2", "there"], &shares);
    let series = ["table", "SYN1", "SYN2"];
    paper.bars(&format!("poptrie-{name}"), "Mlookups/s, uniform, single", &series, &groups);

    paper.say("By traffic (there only drawn): random, each of 16 addresses 8 times, ascending, and announced.");
    let row = |name: &&str| {
        let rates = patterns.map(|stream| rate(median(&found[0], name, stream.name())));
        std::iter::once((*name).to_owned()).chain(rates).collect::<Vec<_>>()
    };
    let rows: Vec<_> = names.iter().map(row).collect();
    table(&mut paper.text, &["", "uniform", "repeat", "ascending", "prefix"], &rows);
    trace(paper, &name, of, &names)
}

/// Addresses of real traffic, where there is a file of them.
fn trace(paper: &mut Paper<'_>, name: &str, of: &Table<u32>, names: &[&str]) -> Result<()> {
    paper.say(&format!("### Poptrie: real traffic ({name})"));
    if paper.options.trace.as_ref().is_none_or(|trace| trace.v4.is_empty()) {
        paper.say("skipped: needs a trace (`--trace FILE`: addresses, one a line, or a pcap file)");
        return Ok(());
    }
    let tables = Tables { v4: Some(of.clone()), v6: None };
    let runs = paper.measure(tables, name, names, &[Stream::Trace], Mode::Single)?;
    let rows: Vec<_> = names
        .iter()
        .map(|name| vec![(*name).to_owned(), rate(median(&runs, name, "trace"))])
        .collect();
    table(&mut paper.text, &["", "trace"], &rows);
    Ok(())
}

/// Section of a table of IPv6: every algorithm.
pub(super) fn ipv6(paper: &mut Paper<'_>, of: &Table<u128>) -> Result<()> {
    let name = short(&of.file).to_owned();
    let names: Vec<&str> = fingerpost_lpm::v6().map(|row| row.name).collect();
    let tables = Tables { v4: None, v6: Some(of.clone()) };
    let single = paper.measure(tables.clone(), &name, &names, &[Stream::Uniform], Mode::Single)?;
    let streams = [Stream::Uniform, Stream::Prefix];
    let batch = paper.measure(tables, &name, &names, &streams, Mode::Batch)?;
    paper.say(&format!(
        "### Poptrie: IPv6 ({name})\n\nThere: i7-4770K, 20,440 prefixes, random keys in 2000::/8; for `dxr` the \
         mean of D16R (163.07) and D18R\n(169.91), of which ours is the two-stage kin. Ours: {} prefixes, \
         `uniform` in 2000::/3. Such keys meet next to\nnothing and prove little: `prefix` is what counts.",
        grouped(of.routes.len() as u64)
    ));
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for name in names {
        let there = published::IPV6.iter().find(|row| row.0 == name).map(|row| row.1);
        let bytes = find(&batch, name, "uniform").and_then(|run| run.bytes_per_prefix);
        let rates = [
            median(&single, name, "uniform"),
            median(&batch, name, "uniform"),
            median(&batch, name, "prefix"),
        ];
        rows.push(vec![
            name.to_owned(),
            rate(rates[0]),
            rate(there),
            rate(rates[1]),
            rate(rates[2]),
            figure(bytes, 2),
        ]);
        groups.push((name.to_owned(), rates[1..].to_vec()));
    }
    let headings =
        ["", "uniform, single", "there", "uniform, batch", "prefix, batch", "bytes a prefix"];
    table(&mut paper.text, &headings, &rows);
    paper.bars(&format!("ipv6-{name}"), "Mlookups/s, batches", &["uniform", "prefix"], &groups);
    Ok(())
}
