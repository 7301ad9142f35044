//! Whole frames across a router, compared byte by byte with what they must be: link addresses, TTL counted down once, content,
//! each once, and their order within flows.
//!
//! `exact send INTERFACE ROUTER FLOWS HOST RATE SECONDS`: sends the flows of the file FLOWS, a line each, that begin at HOST, four packets each in turn,
//! RATE packets a second in all; prints `sent N`. ROUTER is the router's link address on this link.
//! `exact check INTERFACE ROUTER FLOWS HOST SECONDS`: receives those that end at HOST, until its standard input is closed and none
//! comes any more, for SECONDS at most; prints `received N missed M twice T reordered K sequences S wrong W`, and the
//! first things that were wrong. M are frames of all sorts that its own ring had no room for.
//!
//! A line of FLOWS: the hosts that a flow goes from and to, as numbers, and its two IPv4 addresses.

use std::io::Read;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fingerpost_cluster::sim::{Order, Totals};
use fingerpost_io::DRIVERS;
use fingerpost_packet::device::DeviceSpec;
use fingerpost_packet::frame::wire::checksum::checksum;
use fingerpost_packet::{Batch, Pool, Port};

/// UDP port that all flows go to; nobody reads it, but the host sends no ICMP error.
const PORT: u16 = 7100;
const TTL: u8 = 64;
/// Offset of the IP header, of the UDP header, and of its content: flow, number, and what follows from these.
const IP: usize = 14;
const UDP: usize = 34;
const CONTENT: usize = 42;
/// Longest frame.
const MOST: usize = 1_400;
/// Frames of the pool.
const FRAMES: u32 = 4_096;
/// Packets that are sent at most between two naps.
const CATCH_UP: usize = 4;
/// Packets of a flow one after the other.
const TRAIN: usize = 4;
/// Time between two turns.
const NAP: Duration = Duration::from_micros(500);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["send", interface, router, flows, host, rate, seconds] => {
            Link::open(interface, router, flows, host).and_then(|link| link.send(rate, seconds))
        }
        ["check", interface, router, flows, host, seconds] => {
            Link::open(interface, router, flows, host).and_then(|link| link.check(seconds))
        }
        _ => Err(anyhow::anyhow!("see the head of exact.rs")),
    };
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("exact: {error:#}");
            ExitCode::FAILURE
        }
    }
}

type Mac = [u8; 6];

fn mac(text: &str) -> Result<Mac> {
    let parts = text.trim().split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes: Vec<u8> = parts.collect::<Result<_, _>>().context("a link address")?;
    bytes.try_into().ok().with_context(|| format!("{text}: no link address"))
}

/// A flow, and what arrived of it.
struct Flow {
    from: u32,
    to: u32,
    addrs: [Ipv4Addr; 2],
    sent: u32,
    seen: Vec<bool>,
    order: Order,
}

fn flow(line: &str) -> Result<Flow> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [from, to, src, dst] = words[..] else { anyhow::bail!("{line:?}: four words") };
    Ok(Flow {
        from: from.parse()?,
        to: to.parse()?,
        addrs: [src.parse()?, dst.parse()?],
        sent: 0,
        seen: Vec::new(),
        order: Order::default(),
    })
}

/// The end of a link to a router.
struct Link {
    port: Box<dyn Port>,
    pool: Pool,
    own: Mac,
    router: Mac,
    host: u32,
    flows: Vec<Flow>,
}

impl Link {
    fn open(interface: &str, router: &str, flows: &str, host: &str) -> Result<Self> {
        let pool = Pool::new(FRAMES, 2048);
        let driver = DRIVERS.iter().find(|row| row.name == "af_packet").context("the driver")?;
        let pools = std::slice::from_ref(&pool);
        let ports = (driver.open)(&DeviceSpec { name: interface, queues: (0, 1), pools })?;
        let own = std::fs::read_to_string(format!("/sys/class/net/{interface}/address"))?;
        Ok(Self {
            port: ports.into_iter().next().context("a port a queue")?,
            own: mac(&own)?,
            router: mac(router)?,
            host: host.parse()?,
            flows: std::fs::read_to_string(flows)?.lines().map(flow).collect::<Result<_>>()?,
            pool,
        })
    }

    fn send(mut self, rate: &str, seconds: &str) -> Result<String> {
        let (rate, seconds): (f64, u64) = (rate.parse()?, seconds.parse()?);
        let mine = (0..self.flows.len()).filter(|&at| self.flows[at].from == self.host);
        // A train of each flow after the other, so that there is an order to keep.
        let mine: Vec<usize> = mine.flat_map(|at| [at; TRAIN]).collect();
        let mut turn = mine.iter().cycle();
        let mut batch = Batch::new(&self.pool);
        let (began, mut sent) = (Instant::now(), 0u32);
        while began.elapsed() < Duration::from_secs(seconds) {
            // After a delay a few at a time: what a busy machine kept waiting is not to overrun the rings of a veth pair.
            for _ in 0..CATCH_UP {
                if f64::from(sent) >= began.elapsed().as_secs_f64() * rate {
                    break;
                }
                let at = *turn.next().context("a flow from this host")?;
                let flow = &mut self.flows[at];
                let frame = frame([self.router, self.own], flow.addrs, at, flow.sent, TTL);
                let mut packet = self.pool.alloc().context("a free frame")?;
                packet.set_len(frame.len());
                packet.bytes_mut().copy_from_slice(&frame);
                ensure!(batch.push(packet).is_ok(), "a batch has room");
                while !batch.is_empty() {
                    self.port.send(&mut batch)?;
                }
                (flow.sent, sent) = (flow.sent + 1, sent + 1);
            }
            std::thread::sleep(NAP);
        }
        Ok(format!("sent {sent}"))
    }

    fn check(mut self, seconds: &str) -> Result<String> {
        const QUIET: Duration = Duration::from_millis(500);
        let longest = Duration::from_secs(seconds.parse()?);
        let _nobody = UdpSocket::bind(("0.0.0.0", PORT))?;
        let closed = Arc::new(AtomicBool::new(false));
        let input = closed.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            // Relaxed: a flag without data behind it.
            input.store(true, Ordering::Relaxed);
        });
        println!("ready");
        let mut batch = Batch::new(&self.pool);
        let (mut totals, mut twice, mut wrong) = (Totals::default(), 0, Vec::new());
        let (began, mut last) = (Instant::now(), Instant::now());
        while began.elapsed() < longest {
            if self.port.recv(&mut batch)? == 0 {
                if closed.load(Ordering::Relaxed) && last.elapsed() > QUIET {
                    break;
                }
                std::thread::sleep(NAP);
                continue;
            }
            for i in 0..batch.len() {
                let frame = batch.bytes(i);
                if !is_one(frame) {
                    continue;
                }
                last = Instant::now();
                match self.arrived(frame, &mut totals) {
                    Ok(true) => {}
                    Ok(false) => twice += 1,
                    Err(error) => wrong.push(format!("{error:#}")),
                }
            }
            batch.clear();
        }
        let Totals { packets, reordered, sequences, .. } = totals;
        let mut missed = 0;
        self.port.stats(&mut |name, count| missed += if name == "rx_lost" { count } else { 0 });
        let count = wrong.len();
        wrong.truncate(5);
        Ok(format!(
            "received {packets} missed {missed} twice {twice} reordered {reordered} sequences {sequences} wrong {count} {wrong:?}"
        ))
    }

    /// Compares a frame; false for one that came before.
    fn arrived(&mut self, frame_in: &[u8], totals: &mut Totals) -> Result<bool> {
        let number = |at: usize| {
            frame_in.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
        };
        let at = usize::try_from(number(CONTENT).context("a flow")?)?;
        let number = number(CONTENT + 4).context("a number")?;
        let flow = self.flows.get_mut(at).with_context(|| format!("no flow {at}"))?;
        ensure!(flow.to == self.host, "flow {at} ends at host {}, not {}", flow.to, self.host);
        let wanted = frame([self.own, self.router], flow.addrs, at, number, TTL - 1);
        ensure!(frame_in.len() == wanted.len(), "flow {at}: {} bytes", frame_in.len());
        if let Some(byte) = (0..wanted.len()).find(|&byte| frame_in[byte] != wanted[byte]) {
            anyhow::bail!("flow {at}: byte {byte} is {}, not {}", frame_in[byte], wanted[byte]);
        }
        let seen = usize::try_from(number)?;
        flow.seen.resize(flow.seen.len().max(seen + 1), false);
        if std::mem::replace(&mut flow.seen[seen], true) {
            return Ok(false);
        }
        flow.order.arrive(number, totals);
        Ok(true)
    }
}

/// Whether a frame is of a flow: IPv4, UDP, to our port.
fn is_one(frame: &[u8]) -> bool {
    let at = |at: usize, bytes: &[u8]| frame.get(at..at + bytes.len()) == Some(bytes);
    at(12, &[8, 0]) && at(IP + 9, &[17]) && at(UDP + 2, &PORT.to_be_bytes())
}

/// The frame of a packet of a flow, between these link addresses, destination first.
fn frame(macs: [Mac; 2], [src, dst]: [Ipv4Addr; 2], flow: usize, number: u32, ttl: u8) -> Vec<u8> {
    let flow = u32::try_from(flow).expect("flows of a file");
    // Lengths from the shortest to the longest frame.
    let len = CONTENT + 18 + (flow as usize * 97 + number as usize * 31) % (MOST - CONTENT - 18);
    let word = |len: usize| u16::try_from(len).expect("a short frame").to_be_bytes();
    let mut bytes = macs.concat();
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend(word(len - IP));
    bytes.extend(&number.to_be_bytes()[2..]);
    bytes.extend([0x40, 0, ttl, 17, 0, 0]);
    bytes.extend(src.octets());
    bytes.extend(dst.octets());
    let sum = checksum(&bytes[IP..UDP]).to_be_bytes();
    bytes[IP + 10..IP + 12].copy_from_slice(&sum);
    bytes.extend(word(20_000 + flow as usize % 20_000));
    bytes.extend(PORT.to_be_bytes());
    bytes.extend(word(len - UDP));
    bytes.extend([0, 0]);
    bytes.extend(flow.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    let content = flow.wrapping_mul(0x9e37_79b9) ^ number.wrapping_mul(0x85eb_ca6b);
    let more = (0u32..).map(|i| content.rotate_left(i & 31).wrapping_add(i).to_le_bytes()[0]);
    bytes.extend(more.take(len - bytes.len()));
    // The pseudo header: addresses, protocol and length.
    let mut summed = bytes[IP + 12..UDP].to_vec();
    summed.extend([0, 17]);
    summed.extend(word(len - UDP));
    summed.extend(&bytes[UDP..]);
    summed.resize(summed.len().next_multiple_of(2), 0);
    let sum = match checksum(&summed) {
        0 => u16::MAX,
        sum => sum,
    };
    bytes[UDP + 6..UDP + 8].copy_from_slice(&sum.to_be_bytes());
    bytes
}
