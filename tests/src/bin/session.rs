//! A client of a control socket, for tests that need a client of another user: `session PLACE` connects to an address and port,
//! or to the path of a Unix socket, sends its standard input, and prints what is answered until the other end closes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::{Context, Result};

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
    let mut stream = match place.contains('/') {
        true => UnixStream::connect(&place),
        false => TcpStream::connect(&place).map(|stream| UnixStream::from(OwnedFd::from(stream))),
    }
    .with_context(|| place.clone())?;
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
