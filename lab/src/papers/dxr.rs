//! DXR's tables of 2014: SEQ, RND and REP, what its `stat` handler prints, and the lengths of chunks.

use anyhow::Result;
use fingerpost_lpm::intervals::sweep;
use fingerpost_lpm::{Prefix, RouteStore};

use super::page::{figure, grouped, median, rate, ratio, short, table};
use super::{Paper, published};
use crate::document::Mode;
use crate::lookup::Stream;
use crate::table::{Table, Tables};

const STREAMS: &[Stream] = &[Stream::Sequential, Stream::Uniform, Stream::Repeat];
const TESTS: [&str; 3] = ["SEQ", "RND", "REP"];

/// All three.
pub(super) fn sections(paper: &mut Paper<'_>, of: &Table<u32>) -> Result<()> {
    tests(paper, of)?;
    stat(paper, of);
    chunks(paper, of);
    Ok(())
}

fn tests(paper: &mut Paper<'_>, of: &Table<u32>) -> Result<()> {
    let name = short(&of.file).to_owned();
    let names: Vec<_> = published::DXR.iter().map(|row| row.ours).collect();
    let tables = Tables { v4: Some(of.clone()), v6: None };
    let runs = paper.measure(tables, &name, &names, STREAMS, Mode::Single)?;
    paper.say(&format!(
        "### DXR: SEQ, RND and REP ({name})\n\nThere: {} in 2014, linx with 513,643 prefixes and 239 next hops. \
         Ours: `sequential`, `uniform` and\n`repeat`, single lookups.",
        published::DXR_MACHINES
    ));
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for row in published::DXR {
        let mut cells = vec![row.name.to_owned(), row.ours.to_owned()];
        let mut values = Vec::new();
        for (stream, there) in STREAMS.iter().zip(&row.rates) {
            let found = median(&runs, row.ours, stream.name());
            cells.push(rate(found));
            cells.push(there.map(|n| format!("{n:.1}")).join(" / "));
            values.push(found);
        }
        rows.push(cells);
        groups.push((row.ours.to_owned(), values));
    }
    let headings = ["there", "ours", "SEQ", "there", "RND", "there", "REP", "there"];
    table(&mut paper.text, &headings, &rows);

    paper.say("Each as so many times D18R on the same machine; there: the least and the most of the four.");
    let base = published::DXR.iter().find(|row| row.ours == "dxr18").expect("a row of ours");
    let mut rows = Vec::new();
    for row in published::DXR.iter().filter(|row| row.ours != base.ours) {
        let mut cells = vec![row.name.to_owned()];
        for (t, stream) in STREAMS.iter().enumerate() {
            let of = |name| median(&runs, name, stream.name());
            let there = row.rates[t].iter().zip(&base.rates[t]).map(|(a, b)| a / b);
            let (least, most) =
                there.fold((f64::MAX, 0.0), |(least, most), n| (least.min(n), f64::max(most, n)));
            cells.push(figure(ratio(of(row.ours), of(base.ours)), 2));
            cells.push(format!("{least:.2} - {most:.2}"));
        }
        rows.push(cells);
    }
    table(&mut paper.text, &["", "SEQ", "there", "RND", "there", "REP", "there"], &rows);
    paper.bars(&format!("dxr-{name}"), "Mlookups/s, one thread, single lookups", &TESTS, &groups);
    Ok(())
}

/// D20R's own count of what it holds; linx is another view of the same internet.
fn stat(paper: &mut Paper<'_>, of: &Table<u32>) {
    paper.say(&format!(
        "### DXR: what D20R holds ({})\n\nThere: linx, 513,644 prefixes with the default route. \"Physical\" \
         is what is stored, \"aggregated\" what it\nstands for: equal chunks are stored once.",
        short(&of.file)
    ));
    let found = super::stats(of, "dxr20");
    let rows: Vec<Vec<String>> = published::STAT
        .iter()
        .map(|&(name, there)| {
            let ours = found.iter().find(|stat| stat.0 == name).map(|stat| stat.1);
            #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
            let share = ours.map(|ours| ours as f64 / there as f64);
            let words = name.replace('_', " ");
            vec![words, ours.map_or("-".into(), grouped), grouped(there), figure(share, 2)]
        })
        .collect();
    table(&mut paper.text, &["D20R", "ours", "there", "ours / there"], &rows);
}

fn chunks(paper: &mut Paper<'_>, of: &Table<u32>) {
    paper.say(&format!(
        "### DXR: lengths of chunks ({})\n\nShare of all 2^K chunks with so many ranges; below each row of \
         ours the published one (linx, 2014).",
        short(&of.file)
    ));
    let mut rows = Vec::new();
    for (k, there) in (16u8..).zip(&published::CHUNKS) {
        let shares = chunk_shares(of, k);
        let line = |name: String, shares: &[f64]| {
            let cells = shares.iter().map(|share| format!("{share:.5}"));
            std::iter::once(name).chain(cells).collect::<Vec<_>>()
        };
        rows.push(line(format!("{k}"), &shares));
        rows.push(line("there".into(), there));
    }
    let headings = ["K", "1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129-256"];
    table(&mut paper.text, &headings, &rows);
}

/// Shares of the 2^`k` chunks that have 1, 2, 3 to 4, .. 129 to 256 ranges of different next hops.
#[allow(clippy::cast_precision_loss, reason = "at most 2^22 chunks")]
fn chunk_shares(of: &Table<u32>, k: u8) -> [f64; 9] {
    let store: RouteStore<u32> = of.store();
    let mut ranges = vec![1u32; 1 << k];
    sweep(Prefix::ALL, &store, &mut |start, _| {
        // A range that starts with its chunk is the one that the chunk has anyway.
        if start & !<u32 as fingerpost_lpm::Addr>::mask(k) != 0 {
            ranges[(start >> (32 - k)) as usize] += 1;
        }
    });
    let mut counts = [0u32; 9];
    for count in ranges {
        let class = count.next_power_of_two().trailing_zeros() as usize;
        counts[class.min(8)] += 1;
    }
    counts.map(|count| f64::from(count) / f64::from(1u32 << k))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_counted_by_their_ranges() {
        let route = |text: &str, hop| (text.parse::<Prefix<u32>>().unwrap(), hop);
        let routes =
            vec![route("10.0.0.0/16", 1), route("10.1.128.0/17", 2), route("10.2.1.0/24", 3)];
        let shares = chunk_shares(&Table::new("t", routes), 16);
        let chunks = shares.map(|share| share * 65_536.0);
        assert_eq!(chunks, [65_534.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn published_figures_fit_together() {
        // Chunks that are no hit are what the direct table refers to (the handler
        // `stat`, and the lengths of chunks, both of DXR's web page).
        let of = |name| published::STAT.iter().find(|stat| stat.0 == name).unwrap().1;
        let references = of("aggregated_short_chunks") + of("aggregated_long_chunks");
        #[allow(clippy::cast_precision_loss, reason = "small")]
        let share = references as f64 / f64::from(1 << 20);
        assert!((share + published::CHUNKS[4][0] - 1.0).abs() < 1e-4, "{share}");
        for shares in &published::CHUNKS {
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-4, "{shares:?}");
        }
    }
}
