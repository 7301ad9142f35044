//! Addresses of real traffic: a text file of them, or the destinations of a pcap file.

use std::io::{BufReader, Read};
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use fingerpost_lpm::Addr;
use fingerpost_lpm::input::{self, MOST_STREAM_BYTES};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;

/// Addresses in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// IPv4.
    pub v4: Vec<u32>,
    /// IPv6.
    pub v6: Vec<u128>,
}

impl Trace {
    /// Reads a file: pcap by its first four bytes, else an address a line; `#` begins a comment.
    ///
    /// # Errors
    /// When it cannot be read, a line is no address, or there is no address at all.
    pub fn load(file: &Path) -> Result<Self> {
        let name = || file.display().to_string();
        let mut start = Vec::new();
        let mut reader =
            BufReader::new(input::open_or_stdin(file, MOST_STREAM_BYTES).with_context(name)?);
        reader.by_ref().take(4).read_to_end(&mut start).with_context(name)?;
        let whole = std::io::Cursor::new(start.clone()).chain(reader);
        let pcap = matches!(
            start[..],
            [0xa1, 0xb2, 0xc3, 0xd4 | 0x4d]
                | [0xd4, 0xc3, 0xb2, 0xa1]
                | [0x4d, 0x3c, 0xb2, 0xa1]
                | [0xa1, 0xb2, 0x3c, 0x4d]
        );
        let mut trace = Self::default();
        if pcap { trace.pcap(whole) } else { trace.text(whole) }.with_context(name)?;
        ensure!(!trace.v4.is_empty() || !trace.v6.is_empty(), "{}: no address", name());
        Ok(trace)
    }

    fn add(&mut self, addr: IpAddr) {
        self.v4.extend(u32::from_ip(addr));
        self.v6.extend(u128::from_ip(addr));
    }

    fn text(&mut self, mut from: impl Read) -> Result<()> {
        let mut text = String::new();
        from.read_to_string(&mut text)?;
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                let addr = line.parse();
                self.add(addr.with_context(|| format!("line {}: {line:?} is no address", i + 1))?);
            }
        }
        Ok(())
    }

    fn pcap(&mut self, from: impl Read) -> Result<()> {
        let mut reader = PcapReader::new(from)?;
        let skip = match reader.header().datalink {
            DataLink::ETHERNET => 14,
            DataLink::RAW => 0,
            other => bail!("link type {other:?}: only Ethernet and raw IP are read"),
        };
        while let Some(packet) = reader.next_packet() {
            let packet = packet?;
            // VLAN tags shift what follows; a frame that is cut short has no address.
            let mut at = skip;
            while at >= 14 && matches!(packet.data.get(at - 2..at), Some([0x81 | 0x88, 0 | 0xa8])) {
                at += 4;
            }
            if let Some(addr) = packet.data.get(at..).and_then(destination) {
                self.add(addr);
            }
        }
        Ok(())
    }
}

/// Destination of an IP packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?)),
        6 => Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(24..40)?).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_packets_have_addresses() {
        let mut trace = Trace::default();
        trace.text(&b"10.0.0.1 # one\n\n# none\n2001:db8::1\n"[..]).unwrap();
        assert_eq!(trace, Trace { v4: vec![0x0a00_0001], v6: vec![0x2001_0db8 << 96 | 1] });
        let error = trace.text(&b"10.0.0.1\nnobody\n"[..]).unwrap_err();
        assert_eq!(error.to_string(), "line 2: \"nobody\" is no address");

        let mut v4 = [0u8; 20];
        (v4[0], v4[19]) = (0x45, 9);
        assert_eq!(destination(&v4), Some("0.0.0.9".parse().unwrap()));
        assert_eq!(destination(&v4[..19]), None);
        let mut v6 = [0u8; 40];
        (v6[0], v6[39]) = (0x60, 9);
        assert_eq!(destination(&v6), Some("::9".parse().unwrap()));
        assert_eq!((destination(&[]), destination(&[0; 60])), (None, None));
    }

    #[test]
    fn a_pcap_file_is_known_by_its_start() {
        let mut file = Vec::new();
        file.extend(0xa1b2_c3d4u32.to_le_bytes());
        file.extend([2, 0, 4, 0].into_iter().chain([0; 8]).chain([0, 0, 1, 0]).chain([1, 0, 0, 0]));
        for tagged in [false, true] {
            let mut frame = vec![0; 12];
            frame.extend_from_slice(if tagged { &[0x81, 0, 0, 5, 8, 0] } else { &[8, 0] });
            frame.extend([0x45].into_iter().chain([0; 15]).chain([192, 0, 2, 7]));
            let len = u32::try_from(frame.len()).unwrap().to_le_bytes();
            file.extend([0; 8].into_iter().chain(len).chain(len).chain(frame));
        }
        let path = std::env::temp_dir().join(format!("fingerpost-trace-{}", std::process::id()));
        std::fs::write(&path, &file).unwrap();
        assert_eq!(Trace::load(&path).unwrap().v4, [0xc000_0207; 2]);
        std::fs::write(&path, "# nothing\n").unwrap();
        assert!(Trace::load(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(Trace::load(&path).is_err());
    }
}
