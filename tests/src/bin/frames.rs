//! Sends frames as they are, but for their source address, which becomes the interface's own:
//! `frames INTERFACE FILE GAP`, with a frame a line in hexadecimal, and so many milliseconds between two. Prints the
//! time of day before each, in microseconds, and `sent N`.

use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fingerpost_packet::device::af_packet;
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

fn send() -> Result<usize> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [interface, file, gap] = &words[..] else { anyhow::bail!("see the head of frames.rs") };
    let index = std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"))?;
    let mut port = af_packet::open(interface, index.trim().parse()?)?;
    let gap = Duration::from_millis(gap.parse()?);
    let pool = Pool::new(64, 4096);
    let text = std::fs::read_to_string(file)?;
    for line in text.lines() {
        let bytes = (0..line.len()).step_by(2);
        let frame: Vec<u8> = bytes
            .map(|at| u8::from_str_radix(line.get(at..at + 2).unwrap_or_default(), 16))
            .collect::<Result<_, _>>()
            .context("two digits a byte")?;
        let mut packet = pool.alloc().context("a free frame")?;
        ensure!(packet.set_len(frame.len()), "{} bytes are too many", frame.len());
        packet.bytes_mut().copy_from_slice(&frame);
        let mut batch = Batch::new(&pool);
        ensure!(batch.push(packet).is_ok(), "an empty batch has room");
        println!("{}", UNIX_EPOCH.elapsed()?.as_micros());
        ensure!(port.send(&mut batch)? == 1, "{interface} takes no frame");
        std::thread::sleep(gap);
    }
    Ok(text.lines().count())
}
