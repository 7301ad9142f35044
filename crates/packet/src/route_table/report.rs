//! Reports of a route table: its structure, and its speed.
//!
//! Source: the `stat`, `bench_sel` and `bench` handlers of the DXR elements, whose form this is; bench.md of the DXR
//! page for the three tests.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

use fingerpost_lpm::{LpmTable, NextHopId, Prefix, intervals};

use super::{Family, RouteTable};
use crate::frame::BATCH;
use crate::language::Value;

/// Lookups of a test at most: those of the DXR elements.
const MOST_LOOKUPS: u64 = 1 << 28;
/// A test ends after this time, however many they were.
const LONGEST_TEST: Duration = Duration::from_secs(2);
/// Memory of the keys that a test reads over and over, in bytes: enough to reach all of a table.
const KEY_BYTES: usize = 16 << 20;
/// Keys of the repeating test: so many, each as often, one block after another.
const REPEATED: usize = 16;
const REPEATS: usize = 8;

/// A test of speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Test {
    /// Each lookup depends on the answer of the one before: packets one at a time.
    #[default]
    Dependent,
    /// Lookups of batches.
    Independent,
    /// The same, each key eight times within a short while.
    Repeated,
}

impl Test {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Dependent, "SEQ"), (Self::Independent, "RND"), (Self::Repeated, "REP")];

    fn row(self) -> usize {
        Self::ALL.iter().position(|(test, _)| *test == self).expect("all are there")
    }
}

/// Number of first bits that index DXR's direct table, for an algorithm with that in its name.
fn direct_bits(algorithm: &str) -> Option<u8> {
    algorithm.strip_prefix("dxr")?.parse().ok()
}

/// A share without the risk of dividing by nothing.
fn per(total: u64, count: u64) -> f64 {
    real(total) / real(count.max(1))
}

#[allow(clippy::cast_precision_loss, reason = "for people, who read three digits")]
fn real(number: u64) -> f64 {
    number as f64
}

impl<A: Family> RouteTable<A> {
    /// The class, and by which algorithm it looks up.
    fn title(&self, table: &LpmTable<A>) -> String {
        let name = table.algorithm().name;
        match direct_bits(name) {
            Some(bits) => format!("{} (D{bits}R)", self.class),
            None => format!("{} ({name})", self.class),
        }
    }

    /// The structure in numbers.
    pub(crate) fn read_stat(&self) -> String {
        let writer = self.writer();
        let table = &writer.table;
        let mut used = vec![false; writer.numbers.len() + 1];
        table.iter().for_each(|(_, number)| used[number.index()] = true);
        // That of the default route may be one of the others besides.
        let used = writer.numbers.iter().filter(|(_, number)| used[number.index()]);
        let paths: HashSet<_> = used.map(|(path, _)| (path.gateway, path.output)).collect();
        let paths = paths.len();
        let prefixes = table.len() as u64;
        let title = self.title(table);
        let mut text = format!("{title}: {prefixes} prefixes, {paths} unique nexthops\n");
        let mut counts = Vec::new();
        table.structure().stats(&mut |name, count| counts.push((name, count)));
        let bytes = table.structure().bytes() as u64;
        match direct_bits(table.algorithm().name) {
            Some(bits) => {
                let count =
                    |name: &str| counts.iter().find(|(is, _)| *is == name).map_or(0, |c| c.1);
                let direct = 4_u64 << bits;
                // Without the counts beside them, as the DXR elements count.
                let ranges =
                    2 * count("physical_short_fragments") + 4 * count("physical_long_fragments");
                let each = per(direct + ranges, prefixes);
                let chunks = count("aggregated_short_chunks") + count("aggregated_long_chunks");
                let resolved = 100.0 * (1.0 - per(chunks, 1 << bits));
                let _ = write!(
                    text,
                    "Lookup tables: {direct} bytes direct, {ranges} bytes range ({each:.1} bytes/prefix)\n\
                     Direct table resolves {resolved:.1}% of IPv{} address space\n\
                     Longest range chunk contains {} fragments\n",
                    A::FAMILY,
                    longest_chunk(table, bits),
                );
                for (label, kind) in [("Physical", "physical"), ("Aggregated", "aggregated")] {
                    for what in ["chunks", "fragments"] {
                        let [short, long] = ["short", "long"]
                            .map(|format| count(&format!("{kind}_{format}_{what}")));
                        let _ = writeln!(text, "{label} {what}: {short} short, {long} long");
                    }
                }
            }
            None => {
                let each = per(bytes, prefixes);
                let _ = writeln!(text, "Lookup structure: {bytes} bytes ({each:.1} bytes/prefix)");
                for (name, count) in counts.iter().filter(|count| count.0 != "prefixes") {
                    let _ = writeln!(text, "{}: {count}", name.replace('_', " "));
                }
            }
        }
        let _ = writeln!(text, "Last update duration: {:.1} ms", writer.last.as_secs_f64() * 1e3);
        text
    }

    /// The number of the test that `bench` runs.
    pub(crate) fn read_bench_sel(&self) -> String {
        self.writer().test.row().to_string()
    }

    /// Chooses the test that `bench` runs.
    ///
    /// # Errors
    /// There is no such test.
    pub(crate) fn write_bench_sel(&self, text: &str) -> Result<(), String> {
        let number = usize::read(text.trim()).ok();
        let row = number.and_then(|number| Test::ALL.get(number));
        let words = || format!("`{}` is no test: 0 = SEQ, 1 = RND, 2 = REP", text.trim());
        self.writer().test = row.ok_or_else(words)?.0;
        Ok(())
    }

    /// Runs the test that was chosen. Changes and other handlers run meanwhile.
    pub(crate) fn read_bench(&self) -> String {
        self.bench(KEY_BYTES, LONGEST_TEST)
    }

    /// Runs the test with so many keys, for so long.
    pub(super) fn bench(&self, key_bytes: usize, longest: Duration) -> String {
        let (title, test, mut reader) = {
            let writer = self.writer();
            (self.title(&writer.table), writer.test, writer.table.reader())
        };
        let keys = keys::<A>(test, key_bytes);
        let mut answers = [NextHopId::NONE; BATCH];
        let (mut done, mut before) = (0, NextHopId::NONE);
        let begin = Instant::now();
        while done < MOST_LOOKUPS && begin.elapsed() < longest {
            // The clock is looked at now and then, and never costs anything.
            for batch in keys.chunks_exact(BATCH) {
                match test {
                    Test::Dependent => {
                        let pinned = reader.pin();
                        for &key in batch {
                            // Answers are small numbers: the key stays as random.
                            before = pinned.lookup(key ^ A::from_u128(u128::from(before.0)));
                        }
                    }
                    Test::Independent | Test::Repeated => reader.lookup_batch(batch, &mut answers),
                }
            }
            std::hint::black_box((&answers, before));
            done += (keys.len() / BATCH * BATCH) as u64;
        }
        let seconds = begin.elapsed().as_secs_f64();
        let name = Test::ALL[test.row()].1;
        let rate = real(done) / seconds / 1e6;
        format!(
            "{title}, {name} test, uniformly random keys:\n\
             {done} lookups in {seconds:.9} s ({rate:.1} M lookups/s)\n"
        )
    }
}

/// Keys of a test, in order.
fn keys<A: Family>(test: Test, bytes: usize) -> Vec<A> {
    // xorshift64.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        A::key(state)
    };
    let count = bytes / size_of::<A>();
    if test != Test::Repeated {
        return (0..count).map(|_| random()).collect();
    }
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        let block: Vec<A> = (0..REPEATED).map(|_| random()).collect();
        (0..REPEATS).for_each(|_| keys.extend(&block));
    }
    keys
}

/// The most ranges in one of the chunks that a direct table of so many bits leaves to the ranges.
fn longest_chunk<A: Family>(table: &LpmTable<A>, bits: u8) -> u64 {
    let (mut longest, mut last) = (0, None);
    for (prefix, _) in table.iter().filter(|(prefix, _)| prefix.len() > bits) {
        let chunk = Prefix::masked(prefix.addr(), bits);
        // They come by address: those of one chunk in a row.
        if last.replace(chunk) == Some(chunk) {
            continue;
        }
        let mut ranges = 0;
        intervals::sweep(chunk, table.routes(), &mut |_, _| ranges += 1);
        // One range is the direct table's.
        longest = longest.max(if ranges > 1 { ranges } else { 0 });
    }
    longest
}
