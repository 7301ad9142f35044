//! Sends frames as they are, but for their source address, which becomes the interface's own:
//! `frames INTERFACE FILE GAP`, with a frame a line in hexadecimal, and so many milliseconds between two. Prints the
//! time of day before each, in microseconds, and `sent N`.
//! `frames INTERFACE FILE RATE SECONDS`: the same frames again and again, so many a second; prints `sent N` alone.

use std::process::ExitCode;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fingerpost_io::af_packet;
use fingerpost_packet::{Batch, Pool, Port};

fn main() -> ExitCode {
    match send() {
        Ok(sent) => {
            println!("sent {sent}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("frames: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn send() -> Result<u64> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [interface, file, pace @ ..] = &words[..] else {
        anyhow::bail!("see the head of frames.rs")
    };
    let text = std::fs::read_to_string(file)?;
    let frames: Vec<Vec<u8>> = text.lines().map(frame).collect::<Result<_>>()?;
    let index = std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"))?;
    let mut port = af_packet::open(interface, index.trim().parse()?)?;
    match pace {
        [gap] => one_by_one(&mut port, &frames, Duration::from_millis(gap.parse()?)),
        [rate, seconds] => {
            storm(&mut port, &frames, rate.parse()?, Duration::from_secs(seconds.parse()?))
        }
        _ => anyhow::bail!("see the head of frames.rs"),
    }
}

/// A frame from hexadecimal digits.
fn frame(line: &str) -> Result<Vec<u8>> {
    let bytes = (0..line.len()).step_by(2);
    bytes
        .map(|at| u8::from_str_radix(line.get(at..at + 2).unwrap_or_default(), 16))
        .collect::<Result<_, _>>()
        .context("two digits a byte")
}

fn push(batch: &mut Batch, pool: &Pool, frame: &[u8]) -> Result<()> {
    let mut packet = pool.alloc().context("a free frame")?;
    ensure!(packet.set_len(frame.len()), "{} bytes are too many", frame.len());
    packet.bytes_mut().copy_from_slice(frame);
    ensure!(batch.push(packet).is_ok(), "a batch has room");
    Ok(())
}

fn one_by_one(port: &mut dyn Port, frames: &[Vec<u8>], gap: Duration) -> Result<u64> {
    let pool = Pool::new(64, 4096);
    for frame in frames {
        let mut batch = Batch::new(&pool);
        push(&mut batch, &pool, frame)?;
        println!("{}", UNIX_EPOCH.elapsed()?.as_micros());
        ensure!(port.send(&mut batch)? == 1, "the interface takes no frame");
        std::thread::sleep(gap);
    }
    Ok(frames.len() as u64)
}

fn storm(port: &mut dyn Port, frames: &[Vec<u8>], rate: u64, time: Duration) -> Result<u64> {
    const AT_ONCE: u64 = 64;
    let pool = Pool::new(512, 4096);
    let mut batch = Batch::new(&pool);
    let (began, mut sent, mut next) = (Instant::now(), 0, frames.iter().cycle());
    while began.elapsed() < time {
        // By the clock, so that a delay is made up for.
        let due = u64::try_from(began.elapsed().as_micros())? * rate / 1_000_000;
        while sent < due {
            for _ in 0..(due - sent).min(AT_ONCE) {
                push(&mut batch, &pool, next.next().context("a frame")?)?;
            }
            sent += batch.len() as u64;
            while !batch.is_empty() {
                port.send(&mut batch)?;
            }
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(sent)
}
