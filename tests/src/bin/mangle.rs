//! Sends mutated conversations to a server, for the tests: `mangle PLACE SEED SECONDS FILE`. PLACE is an address and port, or the
//! path of a Unix socket; each line of FILE is what a client sends, as hexadecimal digits. Prints `sent N answered N failed N`:
//! the connections, those of HTTP responses, and those with a response of status 500; and the first input of such a one.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fingerpost_lpm::Rng;
use fingerpost_tests::place::connect;

/// Clients at a time.
const CLIENTS: u64 = 8;
/// Time that a client waits for a response, and for the rest of one.
const FIRST: Duration = Duration::from_millis(100);
const REST: Duration = Duration::from_millis(3);
/// Most mutations of an input.
const MOST: usize = 6;
/// Most bytes of an input.
const LONGEST: usize = 1 << 20;
/// Most bytes that are read of a response: streams have no end.
const READ: usize = 1 << 16;

/// Values at which parsers of numbers and texts err.
const VALUES: [&[u8]; 24] = [
    b"0",
    b"-1",
    b"4294967296",
    b"18446744073709551616",
    b"1e999",
    b"0.0.0.0/0",
    b"::/0",
    b"::ffff:10.0.0.1",
    b"10.0.0.1/33",
    b"2001:db8::/129",
    b"%00",
    b"%",
    b"%ff%fe",
    b"..%2f",
    b"\r\n",
    b"\r\n\r\n",
    b"\0",
    b"[[",
    b"{\"",
    b"null",
    b"\xf0\x9f\x92\xa9",
    b"&table=9&table=x",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 99999999999\r\n",
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mangle: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let words = std::env::args().skip(1).collect::<Vec<_>>();
    let [place, seed, seconds, file] =
        words.try_into().ok().context("see the head of mangle.rs")?;
    let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
    let inputs: Vec<Vec<u8>> = text.lines().map(bytes).collect::<Result<_>>()?;
    ensure!(!inputs.is_empty(), "{file}: empty");
    let (seed, until) =
        (seed.parse::<u64>()?, Instant::now() + Duration::from_secs(seconds.parse()?));
    let threads = std::thread::scope(|scope| {
        let client = |n| (Rng::new(seed.wrapping_add(n)), &inputs, &place);
        let clients = (0..CLIENTS).map(client).map(|(mut rng, inputs, place)| {
            scope.spawn(move || send(place, inputs, until, &mut rng))
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut all = Counts::default();
    for counts in threads {
        let counts = counts.map_err(|_| anyhow::anyhow!("a client failed"))??;
        all.sent += counts.sent;
        all.answered += counts.answered;
        all.failed += counts.failed;
        all.first = all.first.or(counts.first);
    }
    println!("sent {} answered {} failed {}", all.sent, all.answered, all.failed);
    if let Some(input) = all.first {
        println!("{}", String::from_utf8_lossy(&input));
    }
    Ok(())
}

/// What became of the inputs.
#[derive(Default)]
struct Counts {
    sent: u64,
    answered: u64,
    failed: u64,
    /// The first input that failed.
    first: Option<Vec<u8>>,
}

/// Sends inputs one after the other, until a time.
fn send(place: &str, inputs: &[Vec<u8>], until: Instant, rng: &mut Rng) -> Result<Counts> {
    let mut counts = Counts::default();
    while Instant::now() < until {
        let input = mutated(inputs, rng);
        let response = converse(place, &input, rng.below(2) == 0)?;
        counts.sent += 1;
        counts.answered += u64::from(response.starts_with(b"HTTP/1.1 "));
        if response.starts_with(b"HTTP/1.1 500") {
            counts.failed += 1;
            counts.first.get_or_insert(input);
        }
    }
    Ok(counts)
}

fn bytes(digits: &str) -> Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

/// An input with some mutations.
fn mutated(inputs: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = inputs[rng.below(inputs.len())].clone();
    for _ in 0..=rng.below(MOST) {
        let at = rng.below(bytes.len() + 1);
        let end = at + rng.below((bytes.len() - at).min(64) + 1);
        match rng.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 if at < bytes.len() => bytes[at] = rng.word().to_le_bytes()[0],
            2 => drop(bytes.drain(at..end)),
            // Many of the same: headers, brackets, parameters.
            3 => {
                let part = bytes[at..end].repeat(1 << rng.below(12));
                bytes.splice(at..at, part).for_each(drop);
            }
            4 => {
                let other = &inputs[rng.below(inputs.len())];
                let from = rng.below(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied()).for_each(drop);
            }
            5 => bytes.truncate(at),
            // The next request of the connection.
            6 => bytes.extend_from_slice(&inputs[rng.below(inputs.len())]),
            7 => number(&mut bytes, at, rng),
            _ => {
                let value = VALUES[rng.below(VALUES.len())];
                bytes.splice(at..end, value.iter().copied()).for_each(drop);
            }
        }
        bytes.truncate(LONGEST);
    }
    bytes
}

/// Replaces the next number of a text.
fn number(bytes: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let Some(begin) = bytes[at..].iter().position(u8::is_ascii_digit).map(|skip| at + skip) else {
        return;
    };
    let digits = bytes[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut text = String::new();
    // Nothing fails to be written to a text.
    let _ = write!(text, "{}", rng.word() >> rng.below(64));
    bytes.splice(begin..begin + digits, text.bytes()).for_each(drop);
}

/// Sends an input and reads what is answered, for a moment.
fn converse(place: &str, input: &[u8], ends: bool) -> Result<Vec<u8>> {
    let mut stream = connect(place).with_context(|| place.to_owned())?;
    stream.set_read_timeout(Some(FIRST))?;
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    // The server may have had enough, here and below.
    let _ = stream.write_all(input);
    if ends {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let (mut response, mut part) = (Vec::new(), [0; 4096]);
    while response.len() < READ {
        match stream.read(&mut part) {
            Ok(len) if len > 0 => response.extend_from_slice(&part[..len]),
            _ => break,
        }
        stream.set_read_timeout(Some(REST))?;
    }
    Ok(response)
}
