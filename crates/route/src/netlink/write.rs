//! Writes one netlink message.

use core::net::IpAddr;

use super::{ATTRIBUTE_BYTES, HEADER_BYTES, aligned};

/// `NLM_F_REQUEST`.
const F_REQUEST: u16 = 0x1;
/// `NLM_F_ROOT | NLM_F_MATCH`.
const F_DUMP: u16 = 0x300;

/// A message being written: the header, then the fixed part, then attributes.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A message of `kind` with `flags` as they are.
    pub fn new(kind: u16, flags: u16, seq: u32) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&seq.to_ne_bytes());
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        debug_assert_eq!(bytes.len(), HEADER_BYTES);
        Self { bytes }
    }

    /// A request for one thing.
    pub fn query(kind: u16, flags: u16, seq: u32) -> Self {
        Self::new(kind, flags | F_REQUEST, seq)
    }

    /// A request for all there is of a kind.
    pub fn dump(kind: u16, seq: u32) -> Self {
        Self::new(kind, F_REQUEST | F_DUMP, seq)
    }

    /// The fixed part of the body.
    #[must_use]
    pub fn fixed(mut self, part: &[u8]) -> Self {
        self.bytes.extend_from_slice(part);
        self.pad();
        self
    }

    /// An attribute.
    ///
    /// # Panics
    /// When `data` does not fit into an attribute (65,531 bytes).
    #[must_use]
    pub fn attr(mut self, kind: u16, data: &[u8]) -> Self {
        let len = u16::try_from(ATTRIBUTE_BYTES + data.len()).expect("an attribute fits 64 KiB");
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(data);
        self.pad();
        self
    }

    /// An attribute that is an address.
    #[must_use]
    pub fn ip(self, kind: u16, addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => self.attr(kind, &addr.octets()),
            IpAddr::V6(addr) => self.attr(kind, &addr.octets()),
        }
    }

    /// The bytes to send.
    pub fn finish(mut self) -> Vec<u8> {
        let len = u32::try_from(self.bytes.len()).expect("a message fits 4 GiB");
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes
    }

    /// What is behind the header: attributes for inside of another one.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    fn pad(&mut self) {
        self.bytes.resize(aligned(self.bytes.len()), 0);
    }
}
