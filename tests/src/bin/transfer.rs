//! One end of a transfer, for the tests: content that both ends can make, and the receiver checks.
//!
//! `transfer receive ADDR BYTES`: listens, takes one TCP connection, checks every byte.
//! `transfer send ADDR BYTES`: connects (trying for some seconds) and sends.
//! `transfer count ADDR,ADDR,.. FLOWS SECONDS`: takes numbered UDP packets, a socket an address, until its standard input
//! is closed and none comes any more, for SECONDS at most; prints `received N missing M reordered K` over all flows, and
//! `worst W`, what the flow misses that misses most.
//! `transfer blast ADDR,ADDR,.. RATE SECONDS [BYTES]`: sends numbered UDP packets of so many bytes of content, RATE a second
//! in all, in turn to each address; prints `sent N`.
//! `transfer sweep PREFIX RATE SECONDS`: sends UDP packets to random addresses of a prefix; prints `sent N`.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fingerpost_lpm::Rng;

const BLOCK: usize = 64 << 10;

/// Bytes of the content of a numbered packet without padding.
const NUMBERS: usize = 24;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["receive", addr, bytes] => receive(addr, bytes),
        ["send", addr, bytes] => send(addr, bytes),
        ["count", addr, flows, seconds] => count(addr, flows, seconds),
        ["blast", addrs, rate, seconds] => blast(addrs, rate, seconds, NUMBERS),
        ["blast", addrs, rate, seconds, bytes] => {
            bytes.parse().map_err(Into::into).and_then(|bytes| blast(addrs, rate, seconds, bytes))
        }
        ["sweep", prefix, rate, seconds] => sweep(prefix, rate, seconds),
        _ => Err(anyhow::anyhow!("see the head of transfer.rs")),
    };
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("transfer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The content from byte `at` on; `at` is a multiple of 8.
fn content(at: u64, block: &mut [u8]) {
    for (i, word) in (at / 8..).zip(block.chunks_mut(8)) {
        let mixed = (i ^ i >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&mixed.to_le_bytes()[..word.len()]);
    }
}

fn receive(addr: &str, bytes: &str) -> Result<String> {
    let total: u64 = bytes.parse()?;
    let listener = TcpListener::bind(addr)?;
    let (mut stream, _) = listener.accept()?;
    let (mut got, mut want) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut at = 0u64;
    while at < total {
        let len = BLOCK.min(usize::try_from(total - at)?);
        stream.read_exact(&mut got[..len]).with_context(|| format!("at byte {at}"))?;
        content(at, &mut want[..len]);
        ensure!(got[..len] == want[..len], "damaged within {len} bytes from {at}");
        at += len as u64;
    }
    ensure!(stream.read(&mut got)? == 0, "more than {total} bytes came");
    Ok(format!("received {total}"))
}

fn send(addr: &str, bytes: &str) -> Result<String> {
    let total: u64 = bytes.parse()?;
    let until = Instant::now() + Duration::from_secs(5);
    let mut stream = loop {
        match TcpStream::connect(addr) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > until => bail!("{addr}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let mut block = vec![0; BLOCK];
    let mut at = 0u64;
    while at < total {
        let len = BLOCK.min(usize::try_from(total - at)?);
        content(at, &mut block[..len]);
        stream.write_all(&block[..len])?;
        at += len as u64;
    }
    Ok(format!("sent {total}"))
}

/// What arrived of a flow.
#[derive(Clone, Copy, Default)]
struct Flow {
    next: u64,
    highest: u64,
    received: u64,
    reordered: u64,
}

fn count(addrs: &str, flows: &str, seconds: &str) -> Result<String> {
    let flows: usize = flows.parse()?;
    let longest = Duration::from_secs(seconds.parse()?);
    let sockets: Vec<UdpSocket> =
        addrs.split(',').map(UdpSocket::bind).collect::<Result<_, _>>()?;
    let closed = Arc::new(AtomicBool::new(false));
    let input = closed.clone();
    std::thread::spawn(move || {
        // Whatever ends it: nobody waits for more.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        // Relaxed: a flag without data behind it.
        input.store(true, Ordering::Relaxed);
    });
    // A thread each, so that each has the room of a socket of its own.
    let threads = sockets.into_iter().map(|socket| {
        let closed = closed.clone();
        std::thread::spawn(move || count_at(&socket, flows, longest, &closed))
    });
    let mut all = vec![Flow::default(); flows];
    for thread in threads.collect::<Vec<_>>() {
        let some = thread.join().map_err(|_| anyhow::anyhow!("a receiver failed"))??;
        for (flow, more) in all.iter_mut().zip(some) {
            flow.highest = flow.highest.max(more.highest);
            flow.received += more.received;
            flow.reordered += more.reordered;
        }
    }
    let sum = |of: fn(&Flow) -> u64| all.iter().map(of).sum::<u64>();
    let (received, reordered) = (sum(|flow| flow.received), sum(|flow| flow.reordered));
    let missing = sum(|flow| flow.highest).saturating_sub(received);
    let worst = all.iter().map(|flow| flow.highest.saturating_sub(flow.received)).max();
    let worst = worst.unwrap_or_default();
    Ok(format!("received {received} missing {missing} reordered {reordered} worst {worst}"))
}

/// Waits until no more are sent, and all of them have arrived.
fn count_at(
    socket: &UdpSocket,
    flows: usize,
    longest: Duration,
    closed: &AtomicBool,
) -> Result<Vec<Flow>> {
    const QUIET: Duration = Duration::from_millis(250);
    let began = Instant::now();
    let mut all = vec![Flow::default(); flows];
    let mut packet = [0; 2048];
    let mut before = false;
    socket.set_read_timeout(Some(QUIET))?;
    while began.elapsed() <= longest {
        let Ok(len) = socket.recv(&mut packet) else {
            // Nothing came between two looks, and nothing was to come at the first.
            if std::mem::replace(&mut before, closed.load(Ordering::Relaxed)) {
                break;
            }
            continue;
        };
        before = false;
        ensure!(len >= NUMBERS, "a packet of {len} bytes");
        ensure!(packet[NUMBERS..len].iter().all(|byte| *byte == 0), "other content");
        let flow = usize::try_from(u64::from_le_bytes(packet[..8].try_into()?))?;
        let number = u64::from_le_bytes(packet[8..16].try_into()?);
        ensure!(flow < flows, "flow {flow}");
        let flow = &mut all[flow];
        flow.received += 1;
        flow.reordered += u64::from(number < flow.next);
        flow.next = number + 1;
        flow.highest = flow.highest.max(number + 1);
    }
    Ok(all)
}

fn blast(addrs: &str, rate: &str, seconds: &str, bytes: usize) -> Result<String> {
    ensure!(bytes >= NUMBERS, "BYTES: {bytes}, at least {NUMBERS}");
    let addrs: Vec<SocketAddr> = addrs.split(',').map(str::parse).collect::<Result<_, _>>()?;
    paced(addrs[0].is_ipv4(), rate, seconds, |sent| {
        let flow = sent % addrs.len() as u64;
        let number = sent / addrs.len() as u64;
        // A number and its complement add up to nothing: so all packets of a flow have one checksum, and
        // none has by chance that of an empty one, which routers may take for one that is still to be made.
        let mut packet = [flow, number, !number].map(u64::to_le_bytes).concat();
        packet.resize(bytes, 0);
        Ok((packet, addrs[usize::try_from(flow)?]))
    })
}

fn sweep(prefix: &str, rate: &str, seconds: &str) -> Result<String> {
    let (first, len) = prefix.split_once('/').context("a prefix")?;
    let (first, len): (IpAddr, u32) = (first.parse()?, len.parse()?);
    let mut random = Rng::new(0);
    paced(first.is_ipv4(), rate, seconds, |_| {
        let mixed = random.word();
        let to = match first {
            IpAddr::V4(first) => {
                let host = u32::MAX.checked_shr(len).unwrap_or(0);
                IpAddr::from((u32::from(first) | u32::try_from(mixed >> 32)? & host).to_be_bytes())
            }
            IpAddr::V6(first) => {
                let host = u128::MAX.checked_shr(len).unwrap_or(0);
                IpAddr::from((u128::from(first) | u128::from(mixed) & host).to_be_bytes())
            }
        };
        Ok((vec![0; 24], SocketAddr::new(to, 7100)))
    })
}

/// Sends what `next` makes of the number of a packet, so many a second.
fn paced(
    v4: bool,
    rate: &str,
    seconds: &str,
    mut next: impl FnMut(u64) -> Result<(Vec<u8>, SocketAddr)>,
) -> Result<String> {
    let (rate, seconds): (u64, u64) = (rate.parse()?, seconds.parse()?);
    let any: SocketAddr = if v4 { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let socket = UdpSocket::bind(any)?;
    let began = Instant::now();
    let mut sent = 0u64;
    while began.elapsed() < Duration::from_secs(seconds) {
        // By the clock, so that a delay is made up for.
        let due = u64::try_from(began.elapsed().as_micros())? * rate / 1_000_000;
        while sent < due {
            let (packet, to) = next(sent)?;
            // ICMP errors come back as errors of the next send: the packet goes out all the same.
            if socket.send_to(&packet, to).is_err() {
                socket.send_to(&packet, to)?;
            }
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(format!("sent {sent}"))
}
