//! Frames with comments, as a capture file in the pcapng format (draft-ietf-opsawg-pcapng).
//!
//! One section, an interface for each name, a block for each frame with its time in nanoseconds and a comment. What was
//! written so far is a whole file. A packet of such a file, or of a classic capture, is found by its number.

use std::borrow::Cow;
use std::io::{self, BufRead, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgBlock, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, PcapError};

/// How a file of the format begins, in either order of bytes.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Times are nanoseconds: what the library writes in any case.
const NANOSECONDS: u8 = 9;
/// The longest comment: its length has 16 bits.
const LONGEST: usize = u16::MAX as usize;

/// A file that is being written.
pub struct Pcapng<W: Write> {
    to: PcapNgWriter<W>,
    interfaces: Vec<String>,
}

impl<W: Write> Pcapng<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn new(to: W) -> io::Result<Self> {
        Ok(Self { to: PcapNgWriter::new(to).map_err(reported)?, interfaces: Vec::new() })
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
        let comment = &comment[..comment.floor_char_boundary(LONGEST)];
        let packet = EnhancedPacketBlock {
            interface_id: word(number),
            timestamp: time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO),
            original_len: word(frame.len()),
            data: Cow::Borrowed(frame),
            options: vec![EnhancedPacketOption::Comment(Cow::Borrowed(comment))],
        };
        self.to.write_block(&packet.into_block()).map_err(reported)?;
        self.to.get_mut().flush()
    }

    fn interface(&mut self, name: &str) -> io::Result<usize> {
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            // Frames are never cut.
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.to.write_block(&interface.into_block()).map_err(reported)?;
        self.interfaces.push(name.to_owned());
        Ok(self.interfaces.len() - 1)
    }
}

fn reported(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
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
    if !from.fill_buf().map_err(PcapError::IoError)?.starts_with(&SECTION) {
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
    u32::try_from(number).expect("frames are short, interfaces few")
}
