//! A client of a control socket, for tests that need a client of another user: `session PLACE` connects to an address and port,
//! or to the path of a Unix socket, sends its standard input, and prints what is answered until the other end closes. `session
//! echo ADDR` listens instead, and sends back what comes, to one client after the other. `session crowd PLACE COUNT TEXT` opens
//! so many connections and sends that text on each, and then a byte every second.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Context, Result};
use fingerpost_tests::place::connect;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("session: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let place = std::env::args().nth(1).context("see the head of session.rs")?;
    if place == "crowd" {
        let [path, count, text] =
            std::env::args().skip(2).collect::<Vec<_>>().try_into().ok().context("three words")?;
        return crowd(&path, &count, &text);
    }
    if place == "echo" {
        return echo(&std::env::args().nth(2).context("see the head of session.rs")?);
    }
    let mut stream = connect(&place).with_context(|| place.clone())?;
    let mut sending = stream.try_clone()?;
    let sender = std::thread::spawn(move || {
        // The other end may have had enough.
        let _ = io::copy(&mut io::stdin().lock(), &mut sending);
        let _ = sending.shutdown(Shutdown::Write);
    });
    let mut bytes = vec![0; 1 << 16];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => io::stdout().write_all(&bytes[..len])?,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error.into()),
        }
    }
    drop(sender);
    Ok(())
}

fn echo(addr: &str) -> Result<()> {
    let listener = TcpListener::bind(addr).with_context(|| addr.to_owned())?;
    for stream in listener.incoming() {
        let mut from = stream?;
        let mut to = from.try_clone()?;
        // A client that is gone is followed by the next one.
        let _ = io::copy(&mut from, &mut to);
    }
    Ok(())
}

/// Opens so many connections to a place, sends `text` on each and another byte every second, until its standard input is
/// closed. Prints how many were opened, and at the end how many were still open.
fn crowd(place: &str, count: &str, text: &str) -> Result<()> {
    let mut open = Vec::new();
    for _ in 0..count.parse::<usize>()? {
        let mut stream = connect(place).with_context(|| place.to_owned())?;
        // The other end may have had enough.
        let _ = stream.write_all(text.as_bytes());
        open.push(stream);
    }
    println!("open {}", open.len());
    let (closed, ended) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(closed);
    });
    loop {
        let ends = ended.recv_timeout(Duration::from_secs(1)) != Err(RecvTimeoutError::Timeout);
        open.retain_mut(|stream| stream.write_all(b"x").is_ok());
        if ends {
            break;
        }
    }
    println!("left {}", open.len());
    Ok(())
}
