//! Crates behind the protocol of `lab/peers/README.md`.
//!
//!     peer ENGINE 4|6 TABLEFILE
//!
//! Each looks one address up at a time, so a batch is a loop. Everything is monomorphic: their lookups
//! are inlined into the loops here.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. A call of the C library gets pointers only to what lives until it returns.

mod engines;

use std::fs;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use engines::{Iptrie, Poptrie, PrefixTrie, TreeBitmap};

/// Keys between two looks at the clock; answers of so many stay in the first-level cache.
const CHUNK: usize = 1024;

/// A route: address in host order, length, hop from 1.
#[derive(Clone, Copy)]
struct Route {
    addr: u128,
    len: u8,
    hop: u32,
}

/// A library with a table in it.
trait Engine: Sized {
    /// An address in the form in which the library takes it.
    type Key: Copy;
    /// The crate.
    const CRATE: &'static str;

    fn build(routes: &[Route]) -> Self;
    /// 0 where no prefix covers `key`.
    fn lookup(&self, key: Self::Key) -> u32;
    /// Whether the library has updates.
    const MUTABLE: bool;
    /// Announces, or withdraws where the hop is 0; a route that is not there is withdrawn already.
    fn change(&mut self, route: Route);
    fn key(addr: u128) -> Self::Key;
    /// `key` with `bits` xored into its low end.
    fn xor(key: Self::Key, bits: u32) -> Self::Key;
}

fn main() {
    die_with_starter();
    let args: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    let done = match words[..] {
        ["prefix-trie", "4", file] => serve::<PrefixTrie<u32>>(4, file),
        ["prefix-trie", "6", file] => serve::<PrefixTrie<u128>>(6, file),
        ["treebitmap", "4", file] => serve::<TreeBitmap<std::net::Ipv4Addr>>(4, file),
        ["treebitmap", "6", file] => serve::<TreeBitmap<std::net::Ipv6Addr>>(6, file),
        ["iptrie", "4", file] => serve::<Iptrie<iptrie::Ipv4Prefix>>(4, file),
        ["iptrie", "6", file] => serve::<Iptrie<iptrie::Ipv6Prefix>>(6, file),
        ["poptrie", "4", file] => serve::<Poptrie<u32>>(4, file),
        ["poptrie", "6", file] => serve::<Poptrie<u128>>(6, file),
        _ => Err("no such algorithm for this family".to_owned()),
    };
    if let Err(error) = done {
        say(&format!("{{\"error\":\"{error}\"}}"));
        std::process::exit(1);
    }
}

fn say(line: &str) {
    // A supervisor that is gone closes our input as well, which ends us.
    let _ = writeln!(std::io::stdout(), "{line}");
}

struct Peer<E: Engine> {
    engine: E,
    family: u8,
    bytes: usize,
    keys: Vec<E::Key>,
    at: usize,
    /// Routes of updates; hop 0 withdraws.
    changes: Vec<Route>,
    change_at: usize,
    /// Zero, but the compiler cannot know: what makes one lookup wait for another.
    zero: u32,
    out: Box<[u32; CHUNK]>,
}

fn serve<E: Engine>(family: u8, file: &str) -> Result<(), String> {
    let routes = read(file)?;
    let before = heap_bytes();
    let start = Instant::now();
    let engine = E::build(&routes);
    let build_ms = start.elapsed().as_secs_f64() * 1e3;
    let bytes = heap_bytes() - before;
    say(&format!(
        "{{\"name\":\"{}\",\"version\":\"{}\",\"routes\":{},\"refused\":0,\"build_ms\":{build_ms:.3},\
         \"bytes\":{bytes},\"note\":\"one by one; bytes: growth of the heap\"}}",
        E::CRATE,
        version(E::CRATE),
        routes.len(),
    ));
    drop(routes);
    let out = Box::new([0; CHUNK]);
    let mut peer = Peer {
        engine,
        family,
        bytes,
        keys: vec![],
        at: 0,
        changes: vec![],
        change_at: 0,
        zero: black_box(0),
        out,
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let reply = match words[..] {
            ["keys", file] => peer.set_keys(file),
            ["answers", file] => peer.answers(file),
            ["turn", mode, ms] => millis(ms).and_then(|limit| peer.turn(mode, limit)),
            ["changes", file] => peer.set_changes(file),
            ["update", ms, file] => millis(ms).and_then(|limit| peer.update(limit, file)),
            ["rest"] => peer.rest(),
            ["bytes"] => Ok(format!("{{\"bytes\":{}}}", peer.bytes)),
            ["quit"] => return Ok(()),
            _ => Err("no such command".to_owned()),
        };
        say(&reply.unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}")));
    }
    Ok(())
}

fn millis(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).map_err(|_| format!("no time: {text}"))
}

/// Version of a crate in the lock file.
fn version(name: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    lock.split("\n\n")
        .find(|package| package.contains(&format!("name = \"{name}\"\n")))
        .and_then(|package| package.split("version = \"").nth(1)?.split('"').next())
        .unwrap_or("unknown")
}

fn read(file: &str) -> Result<Vec<Route>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    text.lines().map(|line| route(line).ok_or_else(|| format!("no route: {line}"))).collect()
}

fn route(line: &str) -> Option<Route> {
    let (prefix, hop) = line.split_once(' ')?;
    let (addr, len) = prefix.split_once('/')?;
    let addr = match addr.parse().ok()? {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    };
    Some(Route { addr, len: len.parse().ok()?, hop: hop.parse().ok()? })
}

impl<E: Engine> Peer<E> {
    fn set_keys(&mut self, file: &str) -> Result<String, String> {
        let bytes = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        let keys = if self.family == 4 {
            bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word).into()).collect()
        } else {
            let words = bytes.as_chunks().0.iter();
            words.map(|&word| u128::from_be_bytes(word)).collect::<Vec<_>>()
        };
        self.keys = keys.into_iter().map(E::key).collect();
        self.at = 0;
        self.some_keys()?;
        Ok(format!("{{\"ok\":true,\"keys\":{}}}", self.keys.len()))
    }

    fn some_keys(&self) -> Result<(), String> {
        if self.keys.is_empty() { Err("no keys".to_owned()) } else { Ok(()) }
    }

    fn answers(&mut self, file: &str) -> Result<String, String> {
        self.some_keys()?;
        let hops = self.keys.iter().map(|&key| self.engine.lookup(key));
        let bytes: Vec<u8> = hops.flat_map(u32::to_le_bytes).collect();
        fs::write(file, bytes).map_err(|error| format!("{file}: {error}"))?;
        Ok("{\"ok\":true}".to_owned())
    }

    fn turn(&mut self, mode: &str, limit: Duration) -> Result<String, String> {
        self.some_keys()?;
        let dependent = match mode {
            "batch" | "single" => false,
            "dependent" => true,
            _ => return Err("no such mode".to_owned()),
        };
        let (cpu, start) = (cpu_ns(), Instant::now());
        let (mut lookups, mut elapsed) = (0, Duration::ZERO);
        while elapsed < limit {
            let end = (self.at + CHUNK).min(self.keys.len());
            let keys = &self.keys[self.at..end];
            if dependent {
                let mut last = 0;
                for (&key, out) in keys.iter().zip(self.out.iter_mut()) {
                    last = self.engine.lookup(E::xor(key, last & self.zero));
                    *out = last;
                }
            } else {
                for (&key, out) in keys.iter().zip(self.out.iter_mut()) {
                    *out = self.engine.lookup(key);
                }
            }
            black_box(&mut self.out);
            lookups += keys.len();
            self.at = if end == self.keys.len() { 0 } else { end };
            elapsed = start.elapsed();
        }
        let (ns, cpu) = (elapsed.as_nanos(), cpu_ns() - cpu);
        Ok(format!("{{\"lookups\":{lookups},\"ns\":{ns},\"cpu_ns\":{cpu}}}"))
    }

    fn set_changes(&mut self, file: &str) -> Result<String, String> {
        if !E::MUTABLE {
            return Ok("{\"unsupported\":\"immutable\"}".to_owned());
        }
        (self.changes, self.change_at) = (read(file)?, 0);
        if self.changes.is_empty() {
            return Err("no changes in the file".to_owned());
        }
        Ok(format!("{{\"ok\":true,\"changes\":{}}}", self.changes.len()))
    }

    fn change(&mut self) {
        let route = self.changes[self.change_at];
        self.change_at =
            if self.change_at + 1 == self.changes.len() { 0 } else { self.change_at + 1 };
        self.engine.change(route);
    }

    /// Half of the time without a look at single changes, the other half with each timed and written
    /// down.
    fn update(&mut self, limit: Duration, file: &str) -> Result<String, String> {
        if self.changes.is_empty() {
            return Err("no changes".to_owned());
        }
        let (cpu, start) = (cpu_ns(), Instant::now());
        let (mut updates, mut elapsed) = (0, Duration::ZERO);
        while elapsed < limit / 2 {
            for _ in 0..16 {
                self.change();
            }
            updates += 16;
            elapsed = start.elapsed();
        }
        let (ns, cpu) = (elapsed.as_nanos(), cpu_ns() - cpu);
        let mut each: Vec<u8> = Vec::with_capacity(8 * updates + (1 << 14));
        let start = Instant::now();
        let mut last = start;
        while last - start < limit / 2 {
            self.change();
            let now = Instant::now();
            let took = u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX);
            each.extend_from_slice(&took.to_le_bytes());
            last = now;
        }
        let timed = each.len() / 4;
        fs::write(file, each).map_err(|error| format!("{file}: {error}"))?;
        Ok(format!(
            "{{\"updates\":{updates},\"ns\":{ns},\"cpu_ns\":{cpu},\"timed\":{timed},\"failed\":0}}"
        ))
    }

    fn rest(&mut self) -> Result<String, String> {
        while self.change_at != 0 {
            self.change();
        }
        Ok("{\"ok\":true,\"failed\":0}".to_owned())
    }
}

/// Nobody is left to answer when whoever started us is gone.
fn die_with_starter() {
    // SAFETY: invariant 1: it takes numbers alone.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// CPU time of this thread.
fn cpu_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: invariant 1: it writes only to `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// What `malloc` has given out.
fn heap_bytes() -> usize {
    // SAFETY: invariant 1: it takes nothing and returns a value.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
