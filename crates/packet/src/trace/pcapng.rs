//! Frames with comments, as a capture file in the pcapng format (draft-ietf-opsawg-pcapng).
//!
//! One section, an interface for each name, a block for each frame with its time in nanoseconds and a comment. What was
//! written so far is a whole file. A packet of such a file, or of a classic capture, is found by its number.

use std::io::{self, BufRead, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
/// Ethernet frames.
const LINK_TYPE: u16 = 1;

/// Options that we write.
const END: u16 = 0;
const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_RESOLUTION: u16 = 9;
/// Times are nanoseconds.
const NANOSECONDS: u8 = 9;

/// The longest value of an option.
const LONGEST: usize = u16::MAX as usize;

/// A file that is being written.
#[derive(Debug)]
pub struct Pcapng<W> {
    to: W,
    interfaces: Vec<String>,
}

impl<W: Write> Pcapng<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn new(to: W) -> io::Result<Self> {
        let mut file = Self { to, interfaces: Vec::new() };
        let mut body = 0x1a2b_3c4d_u32.to_ne_bytes().to_vec();
        body.extend(1_u16.to_ne_bytes());
        body.extend(0_u16.to_ne_bytes());
        // How long the section is nobody knows yet.
        body.extend((-1_i64).to_ne_bytes());
        file.block(SECTION, body)?;
        Ok(file)
    }

    /// Writes a frame, which came or went by the interface of that name.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn frame(
        &mut self,
        interface: &str,
        time: SystemTime,
        frame: &[u8],
        comment: &str,
    ) -> io::Result<()> {
        let number = match self.interfaces.iter().position(|name| name == interface) {
            Some(number) => number,
            None => self.interface(interface)?,
        };
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let time = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let [high, low] = [(time >> 32) as u32, (time & 0xffff_ffff) as u32];
        let length = word(frame.len());
        let mut body = Vec::with_capacity(frame.len() + comment.len() + 64);
        for word in [word(number), high, low, length, length] {
            body.extend(word.to_ne_bytes());
        }
        padded(&mut body, frame);
        option(&mut body, COMMENT, comment.as_bytes());
        option(&mut body, END, &[]);
        self.block(PACKET, body)?;
        self.to.flush()
    }

    fn interface(&mut self, name: &str) -> io::Result<usize> {
        let mut body = LINK_TYPE.to_ne_bytes().to_vec();
        body.extend(0_u16.to_ne_bytes());
        // Frames are never cut.
        body.extend(0_u32.to_ne_bytes());
        option(&mut body, IF_NAME, name.as_bytes());
        option(&mut body, IF_RESOLUTION, &[NANOSECONDS]);
        option(&mut body, END, &[]);
        self.block(INTERFACE, body)?;
        self.interfaces.push(name.to_owned());
        Ok(self.interfaces.len() - 1)
    }

    fn block(&mut self, kind: u32, body: Vec<u8>) -> io::Result<()> {
        let length = word(body.len() + 12).to_ne_bytes();
        let block = [&kind.to_ne_bytes()[..], &length, &body, &length].concat();
        self.to.write_all(&block)
    }
}

/// Frame `number`, from 1, of a capture file in either format; `None` past its end.
///
/// # Errors
/// It cannot be read, or holds no Ethernet frames.
pub fn captured(mut from: impl BufRead, number: usize) -> Result<Option<Vec<u8>>, PcapError> {
    let Some(skipped) = number.checked_sub(1) else { return Ok(None) };
    let ethernet = |link| match link {
        DataLink::ETHERNET => Ok(()),
        _ => Err(PcapError::InvalidField("no Ethernet frames")),
    };
    if !from.fill_buf().map_err(PcapError::IoError)?.starts_with(&SECTION.to_ne_bytes()) {
        let mut reader = PcapReader::new(from)?;
        ethernet(reader.header().datalink)?;
        for _ in 0..skipped {
            if reader.next_packet().transpose()?.is_none() {
                return Ok(None);
            }
        }
        return Ok(reader.next_packet().transpose()?.map(|packet| packet.data.into_owned()));
    }
    let mut reader = PcapNgReader::new(from)?;
    let mut seen = 0;
    while let Some(block) = reader.next_block() {
        match block? {
            Block::InterfaceDescription(interface) => ethernet(interface.linktype)?,
            Block::EnhancedPacket(packet) if seen == skipped => {
                return Ok(Some(packet.data.into_owned()));
            }
            Block::EnhancedPacket(_) => seen += 1,
            _ => {}
        }
    }
    Ok(None)
}

fn word(number: usize) -> u32 {
    u32::try_from(number).expect("frames and comments are short")
}

fn padded(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend_from_slice(bytes);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(LONGEST)];
    let length = u16::try_from(value.len()).expect("cut above");
    body.extend(code.to_ne_bytes());
    body.extend(length.to_ne_bytes());
    padded(body, value);
}
