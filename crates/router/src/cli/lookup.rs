//! `fingerpost lookup`: the route of each address, by any algorithm, from a table in a file.
//!
//! The next hop is that of the algorithm, the prefix that of the route store, and both must agree.
//! Addresses on standard input are answered in order, as they come: what was read is answered before
//! more is read, so a program may write and wait. Cost: see `docs/reference/commands.md`.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgMatches, Args};
use fingerpost_command::progress::Progress;
use fingerpost_lpm::{NextHopId, Prefix};
use fingerpost_route::source::table::PeerChoice;
use serde::Serialize;

use super::choice::{self, Built};
use super::command::{Command, Exit, Failure, parsed};
use super::load::{Family, Half, Tables};
use super::output::{Output, Report, message};

pub(super) const COMMAND: Command = Command {
    name: "lookup",
    summary: "Look addresses up in a table from a file",
    examples: "Examples:
  $ fingerpost lookup --table rib.bz2 192.0.2.1 2001:db8::1
  $ fingerpost lookup --table v4.txt.xz --table v6.txt.xz --algorithm bsearch 192.0.2.1
  $ zcat addresses.gz | fingerpost lookup --table v4.txt.xz - > answers.tsv

Each answer is ADDR, PREFIX and NEXTHOP, separated by tabs, or `-` for the last two where there \
is no route. An address without a route is an answer: exit code 0.",
    arguments: Arguments::augment_args,
    run,
};

#[derive(Args)]
struct Arguments {
    /// Table file: lines `PREFIX NEXTHOP`, or MRT; plain, .gz, .bz2, .xz or .zst. Several are read as one table
    #[arg(long, value_name = "FILE", required = true)]
    table: Vec<PathBuf>,
    /// Which routes of an MRT dump of several peers: of the first peer that a prefix has, of the peer with this number, or
    /// the best ones
    #[arg(long, value_name = "first|N|best", default_value = "first")]
    peer: PeerChoice,
    /// Lookup algorithm (`fingerpost algorithms` lists them); `auto` takes the fittest one for each family
    #[arg(long, value_name = "NAME", default_value = choice::AUTO)]
    #[arg(value_parser = choice::names(choice::AUTO), hide_possible_values = true)]
    algorithm: String,
    /// Addresses, or `-` to read them from standard input, one a line (`#` begins a comment)
    #[arg(value_name = "ADDR|-", required = true, value_parser = Argument::parse)]
    addresses: Vec<Argument>,
}

/// What is to be looked up.
#[derive(Clone)]
enum Argument {
    /// Text of the address, and its value.
    Addr(String, IpAddr),
    Stdin,
}

impl Argument {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Stdin);
        }
        let addr = text.parse().map_err(|_| "neither an IPv4 nor an IPv6 address".to_owned())?;
        Ok(Self::Addr(text.to_owned(), addr))
    }
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let arguments: Arguments = parsed(matches)?;
    let stdin = arguments.addresses.iter().any(|argument| matches!(argument, Argument::Stdin));
    if stdin && arguments.addresses.len() > 1 {
        let words = "either addresses or `-`, not both (see fingerpost lookup --help)";
        return Err(Failure::new(Exit::Usage, words));
    }
    let tables = Tables::load_of(&arguments.table, arguments.peer)?;
    let mut run = LookupRun::new(&tables, &arguments.algorithm);
    if stdin {
        stream(io::stdin().lock(), &mut run, output)?;
    } else {
        let queries: Vec<_> = arguments
            .addresses
            .iter()
            .filter_map(|argument| match argument {
                Argument::Addr(text, addr) => Some(Query { text, addr: Ok(*addr), line: 0 }),
                Argument::Stdin => None,
            })
            .collect();
        run.answer(&queries, output)?;
    }
    run.verdict()?;
    tables.verdict()
}

/// One line of the output.
#[derive(Serialize)]
struct Answer<'a> {
    addr: &'a str,
    prefix: Option<&'a str>,
    nexthop: Option<&'a str>,
}

impl Report for Answer<'_> {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let fields = [self.addr, "\t", self.prefix.unwrap_or("-"), "\t"];
        for field in fields.into_iter().chain([self.nexthop.unwrap_or("-"), "\n"]) {
            to.write_all(field.as_bytes())?;
        }
        Ok(())
    }
}

/// An address to look up.
struct Query<'a> {
    text: &'a str,
    /// What it means; or why it means nothing.
    addr: Result<IpAddr, &'static str>,
    /// Line of standard input; 0 for an argument.
    line: u64,
}

/// Both families of a table, and the errors of addresses so far.
struct LookupRun<'a> {
    v4: Side<'a, u32>,
    v6: Side<'a, u128>,
    bad: u64,
}

/// Errors that are printed one by one; further ones are counted.
const BAD_PRINTED: u64 = 20;
/// Addresses that are looked up together: many times the batch that hides the cache misses, few enough
/// to stay in the first-level cache.
const BATCH: usize = 512;

impl<'a> LookupRun<'a> {
    fn new(tables: &'a Tables, algorithm: &'a str) -> Self {
        Self { v4: Side::new(tables, algorithm), v6: Side::new(tables, algorithm), bad: 0 }
    }

    /// Prints the answers to `queries` in order.
    fn answer(
        &mut self,
        queries: &[Query<'_>],
        output: &mut Output<impl Write>,
    ) -> Result<(), Failure> {
        for batch in queries.chunks(BATCH) {
            self.v4.clear();
            self.v6.clear();
            for query in batch {
                match query.addr {
                    Ok(IpAddr::V4(addr)) => self.v4.addrs.push(addr.to_bits()),
                    Ok(IpAddr::V6(addr)) => self.v6.addrs.push(addr.to_bits()),
                    Err(_) => {}
                }
            }
            self.v4.look_up()?;
            self.v6.look_up()?;
            for query in batch {
                let printed = match query.addr {
                    Ok(IpAddr::V4(_)) => self.v4.print(query.text, output),
                    Ok(IpAddr::V6(_)) => self.v6.print(query.text, output),
                    Err(why) => Err(Trouble::Query(why.to_owned())),
                };
                match printed {
                    Ok(()) => {}
                    Err(Trouble::Query(why)) => self.complain(query, &why),
                    Err(Trouble::Fatal(failure)) => return Err(failure),
                }
            }
        }
        Ok(())
    }

    fn complain(&mut self, query: &Query<'_>, why: &str) {
        self.bad += 1;
        if self.bad > BAD_PRINTED {
            return;
        }
        // A line may be anything; its beginning is enough to find it.
        let text: String = query.text.chars().take(60).collect();
        match query.line {
            0 => message(format_args!("{text}: {why}")),
            line => message(format_args!("standard input, line {line}: `{text}`: {why}")),
        }
    }

    /// Result of the command: a failure when addresses had errors.
    fn verdict(&self) -> Result<(), Failure> {
        match self.bad {
            0 => Ok(()),
            1..=BAD_PRINTED => Err(Failure::Reported(Exit::Failed)),
            bad => {
                let more = bad - BAD_PRINTED;
                Err(Failure::new(Exit::Failed, format_args!("{more} more addresses not answered")))
            }
        }
    }
}

enum Trouble {
    /// Error of this address; the others can be answered.
    Query(String),
    Fatal(Failure),
}

/// One family of a table, built when its first address comes.
struct Side<'a, A: Family> {
    half: &'a Half<A>,
    algorithm: &'a str,
    state: State<A>,
    /// The batch at hand, and its answers.
    addrs: Vec<A>,
    hops: Vec<NextHopId>,
    found: Vec<Option<(Prefix<A>, &'a NextHopId)>>,
    /// Answers printed so far.
    printed: usize,
    /// The texts of `half.hops`.
    names: Vec<String>,
    prefix: String,
}

enum State<A: Family> {
    New,
    Ready(Built<A>),
    /// The algorithm is none of this family.
    Lacking,
}

impl<'a, A: Family> Side<'a, A> {
    fn new(tables: &'a Tables, algorithm: &'a str) -> Self {
        Self {
            half: A::of(tables),
            algorithm,
            state: State::New,
            addrs: Vec::new(),
            hops: Vec::new(),
            found: Vec::new(),
            printed: 0,
            names: Vec::new(),
            prefix: String::new(),
        }
    }

    fn clear(&mut self) {
        self.addrs.clear();
        self.printed = 0;
    }

    /// Looks the batch up in the algorithm and in the route store.
    fn look_up(&mut self) -> Result<(), Failure> {
        if self.addrs.is_empty() {
            return Ok(());
        }
        if let State::New = self.state {
            let mut progress = Progress::new();
            progress.stage(&format!("building the IPv{} table", A::FAMILY));
            match Built::named(self.algorithm, self.half)? {
                Some(built) => self.look_up_by(built),
                None => self.state = State::Lacking,
            }
        }
        self.hops.resize(self.addrs.len(), NextHopId::NONE);
        if let State::Ready(built) = &self.state {
            built.lookup.lookup_batch(&self.addrs, &mut self.hops);
            self.half.routes.longest_matches(&self.addrs, &mut self.found);
        }
        Ok(())
    }

    fn look_up_by(&mut self, built: Built<A>) {
        self.names = self.half.hops.iter().map(ToString::to_string).collect();
        self.state = State::Ready(built);
    }

    /// Prints the next answer of the batch.
    fn print(&mut self, text: &str, output: &mut Output<impl Write>) -> Result<(), Trouble> {
        let at = self.printed;
        self.printed += 1;
        let State::Ready(built) = &self.state else {
            let why =
                format!("{} has no IPv{} form; leave --algorithm out", self.algorithm, A::FAMILY);
            return Err(Trouble::Query(why));
        };
        let (got, best) = (self.hops[at], self.found[at]);
        let want = best.map_or(NextHopId::NONE, |(_, &hop)| hop);
        if got != want {
            let said = |hop: NextHopId| match hop.index().checked_sub(1) {
                None => "no route".to_owned(),
                Some(at) => self.names.get(at).map_or(format!("index {at}"), String::clone),
            };
            let by = best.map(|(prefix, _)| format!(" by {prefix}")).unwrap_or_default();
            let words = format!(
                "{text}: {} has {}, the route store {}{by}",
                built.name,
                said(got),
                said(want)
            );
            return Err(Trouble::Fatal(Failure::new(Exit::Differences, words)));
        }
        self.prefix.clear();
        let answer = match best {
            None => Answer { addr: text, prefix: None, nexthop: None },
            Some((prefix, hop)) => {
                write!(self.prefix, "{prefix}").expect("strings grow");
                let nexthop = &*self.names[hop.index() - 1];
                Answer { addr: text, prefix: Some(&self.prefix), nexthop: Some(nexthop) }
            }
        };
        output.print(&answer).map_err(|error| Trouble::Fatal(error.into()))
    }
}

/// Bytes read from standard input at once, and the longest line.
const READ_BYTES: usize = 64 << 10;

/// Answers the lines of `input` as they come.
fn stream(
    mut input: impl Read,
    run: &mut LookupRun<'_>,
    output: &mut Output<impl Write>,
) -> Result<(), Failure> {
    let mut buf = vec![0; READ_BYTES];
    let (mut held, mut line) = (0, 1);
    // In a line that does not fit into `buf`: it was reported, its rest is passed over.
    let mut passing = false;
    loop {
        let len = match input.read(&mut buf[held..]) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let words = format!("standard input: {error}");
                return Err(Failure::outside(error.kind(), words));
            }
        };
        let filled = held + len;
        let last = buf[..filled].iter().rposition(|&b| b == b'\n');
        // At the end of the input the last line needs no line feed.
        let whole = if len == 0 { filled } else { last.map_or(0, |at| at + 1) };
        let mut start = 0;
        if passing && whole > 0 {
            start = buf[..whole].iter().position(|&b| b == b'\n').map_or(whole, |at| at + 1);
            passing = false;
            line += 1;
        }
        answer_lines(&buf[start..whole], &mut line, run, output)?;
        if len == 0 {
            return Ok(());
        }
        output.flush()?;
        buf.copy_within(whole..filled, 0);
        held = filled - whole;
        if held == buf.len() {
            if !passing {
                let text = "";
                run.complain(&Query { text, addr: Err(""), line }, "too long for an address");
            }
            passing = true;
            held = 0;
        }
    }
}

/// Answers whole lines, the first of which has number `line`.
fn answer_lines(
    bytes: &[u8],
    line: &mut u64,
    run: &mut LookupRun<'_>,
    output: &mut Output<impl Write>,
) -> Result<(), Failure> {
    let mut queries = Vec::new();
    for bytes in bytes.split_inclusive(|&b| b == b'\n') {
        let number = *line;
        *line += 1;
        let Ok(text) = std::str::from_utf8(bytes) else {
            let addr = Err("not an address, and not even text");
            queries.push(Query { text: "", addr, line: number });
            continue;
        };
        let text = text.split('#').next().unwrap_or_default().trim_ascii();
        if !text.is_empty() {
            let addr = text.parse().map_err(|_| "neither an IPv4 nor an IPv6 address");
            queries.push(Query { text, addr, line: number });
        }
    }
    run.answer(&queries, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    use fingerpost_lpm::{Lookup, Region, Step};

    fn tables(name: &str, text: &str) -> Tables {
        let file = format!("fingerpost-lookup-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, text).unwrap();
        let tables = Tables::load(std::slice::from_ref(&path));
        std::fs::remove_file(path).unwrap();
        tables.unwrap()
    }

    const TEXT: &str = "10.0.0.0/8 192.0.2.1\n10.1.0.0/16 7\n2001:db8::/32 2001:db8::1\n";

    /// What `input` is answered when it comes `size` bytes at a time, and how that ends.
    fn printed(tables: &Tables, algorithm: &str, input: &[u8], size: usize) -> (String, bool) {
        struct Slow<'a>(&'a [u8], usize);
        impl Read for Slow<'_> {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                let len = self.1.min(buf.len()).min(self.0.len());
                buf[..len].copy_from_slice(&self.0[..len]);
                self.0 = &self.0[len..];
                Ok(len)
            }
        }
        let mut run = LookupRun::new(tables, algorithm);
        let mut output = Output::memory(false);
        stream(Slow(input, size), &mut run, &mut output).unwrap();
        (output.written().to_owned(), run.verdict().is_ok())
    }

    #[test]
    fn lines_are_answered_in_order_however_they_come() {
        let tables = tables("order", TEXT);
        let input = b"10.1.2.3\n2001:db8::5\r\n\n  11.0.0.1  # a comment\n10.9.9.9";
        let want = "10.1.2.3\t10.1.0.0/16\t7\n2001:db8::5\t2001:db8::/32\t2001:db8::1\n\
                    11.0.0.1\t-\t-\n10.9.9.9\t10.0.0.0/8\t192.0.2.1\n";
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(printed(&tables, "auto", input, size), (want.to_owned(), true), "{size}");
        }
        let many = b"10.1.2.3\n11.0.0.1\n".repeat(20_000);
        let (answers, fine) = printed(&tables, "bsearch", &many, usize::MAX);
        assert_eq!((answers.lines().count(), fine), (40_000, true));
        assert!(answers.lines().skip(1).step_by(2).all(|line| line == "11.0.0.1\t-\t-"));
    }

    #[test]
    fn bad_lines_are_passed_over_and_fail_in_the_end() {
        let tables = tables("bad", TEXT);
        let good = ("10.1.2.3\t10.1.0.0/16\t7\n".to_owned(), false);
        assert_eq!(printed(&tables, "auto", b"10.1.2\n10.1.2.3\n", 5), good);
        assert_eq!(printed(&tables, "auto", b"\xff\xfe\n10.1.2.3\n", 5), good);
        assert_eq!(printed(&tables, "auto", b"10.1.2.3/32\n10.1.2.3\n", 5), good);
        let long = [&b"x".repeat(3 * READ_BYTES)[..], b"\n10.1.2.3\n"].concat();
        for size in [1000, READ_BYTES, usize::MAX] {
            assert_eq!(printed(&tables, "auto", &long, size), good, "{size}");
        }
        // The other family's algorithm.
        assert_eq!(printed(&tables, "dxr18", b"2001:db8::5\n10.1.2.3\n", 100), good);
        let flood = b"x\n".repeat(100);
        assert_eq!(printed(&tables, "auto", &flood, 64), (String::new(), false));
    }

    /// Answers everything with next hop 1.
    struct Liar;

    impl Lookup<u32> for Liar {
        fn lookup(&self, _: u32) -> NextHopId {
            NextHopId(1)
        }
        fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
            out[..addrs.len()].fill(NextHopId(1));
        }
        fn explain(&self, _: u32, _: &mut dyn FnMut(&Step)) -> NextHopId {
            NextHopId(1)
        }
        fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}
        fn regions(&self) -> &[Region] {
            &[]
        }
    }

    #[test]
    fn an_algorithm_that_is_wrong_is_caught() {
        let tables = tables("liar", TEXT);
        for (asked, words) in [
            ("10.1.2.3", "10.1.2.3: liar has 192.0.2.1, the route store 7 by 10.1.0.0/16"),
            ("11.0.0.1", "11.0.0.1: liar has 192.0.2.1, the route store no route"),
        ] {
            let mut run = LookupRun::new(&tables, "auto");
            let liar = Built { name: "liar", lookup: Arc::new(Liar), took: Duration::ZERO };
            run.v4.look_up_by(liar);
            let mut output = Output::memory(false);
            let input = format!("10.5.5.5\n{asked}\n10.5.5.5\n");
            let failure = stream(input.as_bytes(), &mut run, &mut output).unwrap_err();
            let Failure::Failed(code, said) = failure else { panic!("{failure:?}") };
            assert_eq!((code, said.as_str()), (Exit::Differences, words));
            assert_eq!(output.written(), "10.5.5.5\t10.0.0.0/8\t192.0.2.1\n");
        }
    }

    #[test]
    fn json_is_a_line_an_address() {
        let tables = tables("json", TEXT);
        let mut output = Output::memory(true);
        let mut run = LookupRun::new(&tables, "auto");
        stream(&b"10.1.2.3\n11.0.0.1\n"[..], &mut run, &mut output).unwrap();
        let want = "{\"addr\":\"10.1.2.3\",\"prefix\":\"10.1.0.0/16\",\"nexthop\":\"7\"}\n\
                    {\"addr\":\"11.0.0.1\",\"prefix\":null,\"nexthop\":null}\n";
        assert_eq!(output.written(), want);
    }
}
