//! Received frames in blocks that the kernel fills: TPACKET_V3.
//!
//! Source: the kernel's `Documentation/networking/packet_mmap.rst`, `linux/if_packet.h`.
//! Shape:  blocks one after the other; each begins with its status and the number and place of its frames, each frame
//!         with the distance to the next, its lengths and where its bytes begin.
//! Cost:   a copy a frame and no system call while there are frames. A block that is not full is handed over after a
//!         millisecond.

use std::io;
use std::os::fd::AsFd;

use crate::shared_ring::Mapping;
use crate::socket_call::{set_number, set_structure};
use fingerpost_packet::frame::{Batch, HEADROOM, Meta};

const BLOCK_BYTES: usize = 1 << 18;
const BLOCKS: usize = 8;
/// What the kernel counts frames with; it packs them closer.
const FRAME_BYTES: usize = 1 << 11;
/// Milliseconds until a block that has frames is handed over, full or not.
const LONGEST_WAIT: u32 = 1;

/// Where the fields of a block's header lie: `struct tpacket_block_desc`.
mod block {
    pub(super) const STATUS: usize = 8;
    pub(super) const PACKETS: usize = 12;
    pub(super) const FIRST: usize = 16;
}

/// Where the fields of a frame's header lie: `struct tpacket3_hdr`.
mod frame {
    pub(super) const NEXT: usize = 0;
    pub(super) const CAPTURED: usize = 12;
    pub(super) const LEN: usize = 16;
    pub(super) const STATUS: usize = 20;
    pub(super) const BEGIN: usize = 24;
    pub(super) const TAG: usize = 32;
    pub(super) const TAG_PROTOCOL: usize = 36;
    pub(super) const BYTES: usize = 40;
}

/// Bytes of a VLAN tag in front of a frame's type.
const TAG_BYTES: u16 = 4;

/// The ring of one socket.
#[derive(Debug)]
pub(super) struct BlockRing {
    memory: Mapping,
    /// The block that is read, or waited for.
    block: usize,
    /// Frames of it that are left, and where the next one is; `None` while the kernel fills it.
    open: Option<(u32, usize)>,
    /// Frames too long for ours, lost.
    pub(super) too_long: u64,
    /// Times that there was no frame to receive into.
    pub(super) no_buffer: u64,
}

impl BlockRing {
    /// The ring of a packet socket that has none.
    pub(super) fn new(socket: &impl AsFd) -> io::Result<Self> {
        let bytes = BLOCK_BYTES * BLOCKS;
        let number = |n: usize| libc::c_uint::try_from(n).map_err(io::Error::other);
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set_number(socket, (libc::SOL_PACKET, libc::PACKET_VERSION), version)?;
        let request = libc::tpacket_req3 {
            tp_block_size: number(BLOCK_BYTES)?,
            tp_block_nr: number(BLOCKS)?,
            tp_frame_size: number(FRAME_BYTES)?,
            tp_frame_nr: number(bytes / FRAME_BYTES)?,
            tp_retire_blk_tov: LONGEST_WAIT,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_structure(socket, &request)?;
        let memory = Mapping::of_file(socket.as_fd(), bytes)?;
        Ok(Self { memory, block: 0, open: None, too_long: 0, no_buffer: 0 })
    }

    /// Copies frames into the batch, as many as there are and as it has room for.
    pub(super) fn receive(&mut self, into: &mut Batch) -> usize {
        let before = into.len();
        while into.room() > 0 {
            let base = self.block * BLOCK_BYTES;
            let (left, at) = match self.open {
                Some(open) => open,
                None if self.memory.load(base + block::STATUS) & libc::TP_STATUS_USER != 0 => {
                    let (frames, first) = (base + block::PACKETS, base + block::FIRST);
                    (self.memory.load(frames), base + self.memory.load(first) as usize)
                }
                None => break,
            };
            self.open = Some((left, at));
            if left == 0 {
                self.memory.store(base + block::STATUS, libc::TP_STATUS_KERNEL);
                self.open = None;
                self.block = (self.block + 1) % BLOCKS;
                continue;
            }
            if !self.take(at, into) {
                self.no_buffer += 1;
                break;
            }
            self.open = Some((left - 1, at + self.memory.load(at + frame::NEXT) as usize));
        }
        into.len() - before
    }

    /// Copies the frame at `at`, with the tag that the kernel took off it; `false` when there is none to copy it to.
    fn take(&mut self, at: usize, into: &mut Batch) -> bool {
        let mut header = [0; frame::BYTES];
        self.memory.read(at, &mut header);
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let (len, status) = (word(frame::CAPTURED), word(frame::STATUS));
        let tagged = status & libc::TP_STATUS_VLAN_VALID != 0;
        let pool = into.pool().clone();
        let len = match u16::try_from(len) {
            Ok(len) if len <= pool.max_len() && word(frame::LEN) == u32::from(len) => len,
            _ => {
                self.too_long += 1;
                return true;
            }
        };
        let meta = Meta::default();
        let one = pool.take_raw(1, |raw| into.push_raw(raw, HEADROOM, len, meta));
        if one == 0 {
            return false;
        }
        let i = into.len() - 1;
        let begin = at + usize::from(half(frame::BEGIN));
        self.memory.read(begin, into.bytes_mut(i));
        if tagged && into.push_front(i, TAG_BYTES) {
            let protocol = match half(frame::TAG_PROTOCOL) {
                told if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 => told,
                _ => 0x8100,
            };
            // The kernel gives the lower half of a word of 32 bits.
            let tag = (word(frame::TAG) & 0xffff).to_be_bytes();
            let bytes = into.bytes_mut(i);
            bytes.copy_within(4..16, 0);
            bytes[12..14].copy_from_slice(&protocol.to_be_bytes());
            bytes[14..16].copy_from_slice(&tag[2..]);
        }
        true
    }
}
