//! One end of a transfer, for the tests: content that both ends can make, and the receiver checks.
//!
//! `transfer receive ADDR BYTES`: listens, takes one TCP connection, checks every byte.
//! `transfer send ADDR BYTES`: connects (trying for some seconds) and sends.
//! `transfer count ADDR,ADDR,.. FLOWS SECONDS`: takes numbered UDP packets of FLOWS flows at most, a socket an address, until
//! its standard input is closed and none comes any more, for SECONDS at most; prints `received N missing M` over all flows,
//! `twice T`, copies that are in none of the other counts, `reordered K` by RFC 4737, `sequences S` by RouteBricks, and
//! `worst W`, what the flow misses that misses most.
//! `transfer blast ADDR,ADDR,.. RATE SECONDS [BYTES]`: sends numbered UDP packets of so many bytes of content, RATE a second
//! in all, in turn to each address; prints `sent N`.
//! `transfer scatter ADDR,ADDR,.. RATE SECONDS BYTES`: the same at random times, RATE a second in the mean.
//! `transfer mix ADDR,ADDR,.. RATE SECONDS BYTES`: sends the flows of the simulator's mix, RATE packets a second in the mean:
//! heavy-tailed sizes, in bursts of senders with 100 Mbit/s and round trips of 6 to 600 ms; prints `sent N`.
//! `transfer each PORT`: sends a numbered UDP packet at once for each line `FLOW ADDR` of its standard input; prints `sent N`.
//! `transfer sweep PREFIX RATE SECONDS`: sends UDP packets to random addresses of a prefix; prints `sent N`.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fingerpost_cluster::sim::{Mix, Order, SLOT_NS, Totals};
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
        ["scatter", addrs, rate, seconds, bytes] => scatter(addrs, rate, seconds, bytes),
        ["mix", addrs, rate, seconds, bytes] => mix(addrs, rate, seconds, bytes),
        ["each", port] => each(port),
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
#[derive(Clone, Default)]
struct Flow {
    order: Order,
    /// Whether each number arrived.
    seen: Vec<bool>,
    received: u64,
}

impl Flow {
    fn missing(&self) -> u64 {
        self.seen.len() as u64 - self.received
    }
}

/// What arrived at a socket.
#[derive(Default)]
struct Arrived {
    /// Flows by number.
    flows: Vec<Flow>,
    totals: Totals,
    twice: u64,
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
    let (mut received, mut missing, mut twice, mut worst) = (0, 0, 0, 0);
    let (mut sequences, mut reordered) = (0, 0);
    for thread in threads.collect::<Vec<_>>() {
        let some = thread.join().map_err(|_| anyhow::anyhow!("a receiver failed"))??;
        // A flow is at one address.
        received += some.totals.packets;
        missing += some.flows.iter().map(Flow::missing).sum::<u64>();
        worst = some.flows.iter().map(Flow::missing).fold(worst, u64::max);
        twice += some.twice;
        (sequences, reordered) =
            (sequences + some.totals.sequences, reordered + some.totals.reordered);
    }
    Ok(format!(
        "received {received} missing {missing} twice {twice} reordered {reordered} sequences {sequences} worst {worst}"
    ))
}

/// Waits until no more are sent, and all of them have arrived.
fn count_at(
    socket: &UdpSocket,
    flows: usize,
    longest: Duration,
    closed: &AtomicBool,
) -> Result<Arrived> {
    const QUIET: Duration = Duration::from_millis(250);
    let began = Instant::now();
    let mut all = Arrived::default();
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
        all.flows.resize(all.flows.len().max(flow + 1), Flow::default());
        let (flow, at) = (&mut all.flows[flow], usize::try_from(number)?);
        flow.seen.resize(flow.seen.len().max(at + 1), false);
        if std::mem::replace(&mut flow.seen[at], true) {
            all.twice += 1;
            continue;
        }
        flow.received += 1;
        flow.order.arrive(u32::try_from(number)?, &mut all.totals);
    }
    Ok(all)
}

fn blast(addrs: &str, rate: &str, seconds: &str, bytes: usize) -> Result<String> {
    ensure!(bytes >= NUMBERS, "BYTES: {bytes}, at least {NUMBERS}");
    let addrs: Vec<SocketAddr> = addrs.split(',').map(str::parse).collect::<Result<_, _>>()?;
    paced(addrs[0].is_ipv4(), rate, seconds, |sent| {
        let flow = sent % addrs.len() as u64;
        let number = sent / addrs.len() as u64;
        Ok((numbered(flow, number, bytes), addrs[usize::try_from(flow)?]))
    })
}

/// Packets of [`blast`] at random times: what several of these send never falls into step.
fn scatter(addrs: &str, rate: &str, seconds: &str, bytes: &str) -> Result<String> {
    let addrs: Vec<SocketAddr> = addrs.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let (rate, seconds, bytes): (f64, u64, usize) =
        (rate.parse()?, seconds.parse()?, bytes.parse()?);
    ensure!(bytes >= NUMBERS, "BYTES: {bytes}, at least {NUMBERS}");
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut random = Rng::new(std::process::id().into());
    let (began, mut sent, mut due) = (Instant::now(), 0u64, 0.0);
    while began.elapsed() < Duration::from_secs(seconds) {
        let now = began.elapsed().as_secs_f64();
        while due <= now {
            let flow = sent % addrs.len() as u64;
            let packet = numbered(flow, sent / addrs.len() as u64, bytes);
            // One that the network refuses is lost.
            let _ = socket.send_to(&packet, addrs[usize::try_from(flow)?]);
            sent += 1;
            due -= (1.0 - random.unit()).ln() / rate;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(format!("sent {sent}"))
}

fn each(port: &str) -> Result<String> {
    let port: u16 = port.parse()?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut sent = 0u64;
    for line in std::io::stdin().lines() {
        let line = line?;
        let (flow, addr) = line.split_once(' ').context("FLOW ADDR")?;
        let (packet, to) =
            (numbered(flow.parse()?, sent, NUMBERS), (addr.parse::<IpAddr>()?, port));
        // ICMP errors come back as errors of the next send: the packet is sent all the same.
        if socket.send_to(&packet, to).is_err() {
            socket.send_to(&packet, to)?;
        }
        sent += 1;
    }
    Ok(format!("sent {sent}"))
}

/// Content of a packet of a flow.
fn numbered(flow: u64, number: u64, bytes: usize) -> Vec<u8> {
    // A number and its complement add up to nothing: so all packets of a flow have one checksum, and
    // none has by chance that of an empty one, which routers may take for one that is still to be made.
    let mut packet = [flow, number, !number].map(u64::to_le_bytes).concat();
    packet.resize(bytes, 0);
    packet
}

/// Source ports of the mix: flows with one of them and one address follow each other. No divisor in common with the
/// number of addresses.
const PORTS: usize = 251;

fn mix(addrs: &str, rate: &str, seconds: &str, bytes: &str) -> Result<String> {
    // Ten times slower than in the model, so that some hundred senders are a rate that a test can have.
    let slot_time = Duration::from_secs_f64(SLOT_NS * 10.0 / 1e9);
    let addrs: Vec<SocketAddr> = addrs.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let (rate, seconds, bytes): (f64, u64, usize) =
        (rate.parse()?, seconds.parse()?, bytes.parse()?);
    ensure!(bytes >= NUMBERS, "BYTES: {bytes}, at least {NUMBERS}");
    let sockets: Vec<UdpSocket> =
        (0..PORTS).map(|_| UdpSocket::bind("0.0.0.0:0")).collect::<Result<_, _>>()?;
    let mut packets = Mix::default().packets(rate * slot_time.as_secs_f64(), 1).peekable();
    let (mut sent, mut numbers) = (0u64, Vec::new());
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        let now = began.elapsed();
        while let Some((_, flow)) = packets.next_if(|&(slot, _)| slot_time * slot <= now) {
            let at = usize::try_from(flow)?;
            numbers.resize(numbers.len().max(at + 1), 0);
            let packet = numbered(flow.into(), numbers[at], bytes);
            // One that the network refuses is lost.
            let _ = sockets[at % PORTS].send_to(&packet, addrs[at % addrs.len()]);
            (sent, numbers[at]) = (sent + 1, numbers[at] + 1);
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    Ok(format!("sent {sent}"))
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
