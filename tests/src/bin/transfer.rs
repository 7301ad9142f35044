//! One end of a transfer, for the tests: content that both ends can make, and the receiver checks.
//!
//! `transfer receive ADDR BYTES`: listens, takes one TCP connection, checks every byte.
//! `transfer send ADDR BYTES`: connects (trying for some seconds) and sends.
//! `transfer count ADDR FLOWS SECONDS`: takes numbered UDP packets until none came for a second; prints
//! `received N missing M reordered K` over all flows, and `worst W`, what the flow misses that misses most.
//! `transfer blast ADDR,ADDR,.. RATE SECONDS`: sends numbered UDP packets, RATE a second in all, in turn
//! to each address; prints `sent N`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const BLOCK: usize = 64 << 10;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["receive", addr, bytes] => receive(addr, bytes),
        ["send", addr, bytes] => send(addr, bytes),
        ["count", addr, flows, seconds] => count(addr, flows, seconds),
        ["blast", addrs, rate, seconds] => blast(addrs, rate, seconds),
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

fn count(addr: &str, flows: &str, seconds: &str) -> Result<String> {
    let flows: usize = flows.parse()?;
    let longest = Duration::from_secs(seconds.parse()?);
    let socket = UdpSocket::bind(addr)?;
    let began = Instant::now();
    let mut next = vec![0u64; flows];
    let (mut received, mut reordered, mut highest) = (0u64, 0u64, vec![0u64; flows]);
    let mut came = vec![0u64; flows];
    let mut packet = [0; 64];
    let mut quiet = longest;
    loop {
        socket.set_read_timeout(Some(quiet))?;
        let Ok(len) = socket.recv(&mut packet) else { break };
        ensure!(len == 24, "a packet of {len} bytes");
        let flow = usize::try_from(u64::from_le_bytes(packet[..8].try_into()?))?;
        let number = u64::from_le_bytes(packet[8..16].try_into()?);
        ensure!(flow < flows, "flow {flow}");
        received += 1;
        came[flow] += 1;
        reordered += u64::from(number < next[flow]);
        next[flow] = number + 1;
        highest[flow] = highest[flow].max(number + 1);
        quiet = Duration::from_secs(1);
        if began.elapsed() > longest {
            break;
        }
    }
    let missing = highest.iter().sum::<u64>().saturating_sub(received);
    let worst = highest.iter().zip(&came).map(|(high, came)| high.saturating_sub(*came)).max();
    let worst = worst.unwrap_or_default();
    Ok(format!("received {received} missing {missing} reordered {reordered} worst {worst}"))
}

fn blast(addrs: &str, rate: &str, seconds: &str) -> Result<String> {
    let addrs: Vec<SocketAddr> = addrs.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let (rate, seconds): (u64, u64) = (rate.parse()?, seconds.parse()?);
    let any: SocketAddr = if addrs[0].is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let socket = UdpSocket::bind(any)?;
    let began = Instant::now();
    let mut sent = 0u64;
    while began.elapsed() < Duration::from_secs(seconds) {
        // By the clock, so that a delay is made up for.
        let due = u64::try_from(began.elapsed().as_micros())? * rate / 1_000_000;
        while sent < due {
            let flow = sent % addrs.len() as u64;
            let number = sent / addrs.len() as u64;
            // A number and its complement add up to nothing: so all packets of a flow have one checksum, and
            // none has by chance that of an empty one, which routers may take for one that is still to be made.
            let packet = [flow, number, !number].map(u64::to_le_bytes).concat();
            // ICMP errors come back as errors of the next send: the packet goes out all the same.
            if socket.send_to(&packet, addrs[usize::try_from(flow)?]).is_err() {
                socket.send_to(&packet, addrs[usize::try_from(flow)?])?;
            }
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(format!("sent {sent}"))
}
