//! Frames as text: a line a layer, so that a person can read a packet case.
//!
//! ```text
//! eth lan.host > lan
//! ip4 10.1.0.2 > 198.51.100.7 ttl 63 df
//! udp 4000 > 53
//! text hello
//! ```
//!
//! Lengths, next-header fields and checksums are filled in unless the line gives them (`len`,
//! `next`, `sum`). They are computed here anew, by the plainest code, because the router's own is
//! what is tested. `testdata/packets/README.md` lists the layers and their words.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::topology::Built;

/// The frame that `text` describes. `quoted` is what a `quote` line means: the packet, from its IP
/// header on, that an error is about.
///
/// # Errors
/// What is wrong, and in which line.
pub fn frame(text: &str, topology: &Built, quoted: &[u8]) -> Result<Vec<u8>, String> {
    build(parse(text)?, topology, quoted)
}

/// Frame with some words of some layers replaced or added: each line of `changes` is a layer
/// and what differs, both ends or words. The second line of a kind is about the second layer of it.
///
/// # Errors
/// What is wrong, and in which line.
pub fn changed(text: &str, changes: &str, topology: &Built) -> Result<Vec<u8>, String> {
    let mut layers = parse(text)?;
    let mut seen = Vec::new();
    for change in parse(changes)? {
        let kind = change.kind.clone();
        let before = seen.iter().filter(|k| **k == kind).count();
        let layer = layers.iter_mut().filter(|l| l.kind == kind).nth(before);
        layer.ok_or_else(|| format!("{kind}: no such layer to change"))?.change(change);
        seen.push(kind);
    }
    build(layers, topology, &[])
}

fn parse(text: &str) -> Result<Vec<Layer>, String> {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines.map(|line| Layer::parse(line).map_err(|e| format!("{line:?}: {e}"))).collect()
}

/// A line: what kind of layer, its two ends where it has such, and its words.
struct Layer {
    kind: String,
    ends: Option<(String, String)>,
    words: Vec<String>,
}

impl Layer {
    fn parse(line: &str) -> Result<Self, String> {
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let kind = words.remove(0);
        let mut ends = None;
        if words.get(1).is_some_and(|w| w == ">") {
            if words.len() < 3 {
                return Err("an end is missing after >".into());
            }
            ends = Some((words[0].clone(), words[2].clone()));
            words.drain(..3);
        }
        Ok(Self { kind, ends, words })
    }

    fn change(&mut self, other: Self) {
        if other.ends.is_some() {
            self.ends = other.ends;
        }
        let mut words = other.words.into_iter();
        while let Some(word) = words.next() {
            let Some(at) = self.words.iter().position(|w| *w == word) else {
                self.words.push(word.clone());
                if !FLAGS.contains(&word.as_str()) {
                    self.words.extend(words.next());
                }
                continue;
            };
            if let Some(value) = words.next() {
                self.words[at + 1] = value;
            }
        }
    }

    /// Whether a flag is there, taking it.
    fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|w| w == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// The word after `name`, taking both.
    fn word(&mut self, name: &str) -> Result<Option<String>, String> {
        let Some(at) = self.words.iter().position(|w| w == name) else { return Ok(None) };
        if at + 1 >= self.words.len() {
            return Err(format!("{name} needs a value"));
        }
        let value = self.words.remove(at + 1);
        self.words.remove(at);
        Ok(Some(value))
    }

    /// The number after `name`, or `default`.
    fn number(&mut self, name: &str, default: u32) -> Result<u32, String> {
        self.word(name)?.map_or(Ok(default), |w| number(&w))
    }

    fn narrow<T: TryFrom<u32>>(&mut self, name: &str, default: u32) -> Result<T, String> {
        let value = self.number(name, default)?;
        T::try_from(value).map_err(|_| format!("{name} {value} does not fit"))
    }

    /// Both ends.
    fn ends<T: FromStr>(&self) -> Result<(T, T), String> {
        let (from, to) = self.ends.as_ref().ok_or("FROM > TO is missing")?;
        let one = |w: &String| w.parse().map_err(|_| format!("what is {w}?"));
        Ok((one(from)?, one(to)?))
    }

    /// Everything must have been understood.
    fn done(&self) -> Result<(), String> {
        match &self.words[..] {
            [] => Ok(()),
            rest => Err(format!("what is {}?", rest.join(" "))),
        }
    }
}

/// Words without a value.
const FLAGS: &[&str] = &["df", "mf"];

fn number(word: &str) -> Result<u32, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| format!("{word} is not a number"))
}

fn hex(words: &[String]) -> Result<Vec<u8>, String> {
    let digits: String = words.concat();
    if !digits.len().is_multiple_of(2) {
        return Err("an odd number of hex digits".into());
    }
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| "not hex".to_owned());
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// A header that is written, and what is still to be filled in when all that follows is known.
enum Pending {
    /// Total length and checksum of an IPv4 header.
    Ip4 { at: usize, len: Option<u16>, sum: Option<u16> },
    /// Payload length of an IPv6 header.
    Ip6 { at: usize, len: Option<u16> },
    /// Length and checksum of a transport header.
    Upper { at: usize, protocol: u8, len: Option<u16>, sum: UpperSum },
}

#[derive(Clone, Copy, PartialEq)]
enum UpperSum {
    Right,
    /// The pseudo-header's sum alone, as a sender leaves it that trusts its card with the rest.
    Partial,
    Given(u16),
}

/// Where the number of the next layer belongs.
enum NextField {
    /// EtherType at this offset.
    Ether(usize),
    /// One byte at this offset; an IPv6 chain or not.
    Byte(usize),
}

struct Writer<'a> {
    topology: &'a Built,
    quoted: &'a [u8],
    out: Vec<u8>,
    pending: Vec<Pending>,
    next: Option<NextField>,
    /// Bytes that are no part of the IP packet.
    padding: usize,
}

fn build(layers: Vec<Layer>, topology: &Built, quoted: &[u8]) -> Result<Vec<u8>, String> {
    let mut w =
        Writer { topology, quoted, out: Vec::new(), pending: Vec::new(), next: None, padding: 0 };
    for mut layer in layers {
        let kind = layer.kind.clone();
        w.layer(&mut layer).and_then(|()| layer.done()).map_err(|e| format!("{kind}: {e}"))?;
    }
    Ok(w.finish())
}

impl Writer<'_> {
    /// Writes the kind of this layer into the one before.
    fn is(&mut self, ether: u16, protocol: u8) {
        match self.next.take() {
            Some(NextField::Ether(at)) => {
                self.out[at..at + 2].copy_from_slice(&ether.to_be_bytes());
            }
            Some(NextField::Byte(at)) => self.out[at] = protocol,
            None => {}
        }
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.out[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    fn layer(&mut self, layer: &mut Layer) -> Result<(), String> {
        let at = self.out.len();
        match layer.kind.as_str() {
            "eth" => {
                let (from, to): (String, String) = layer.ends()?;
                self.out.extend(self.topology.mac(&to).0);
                self.out.extend(self.topology.mac(&from).0);
                self.is(0x6558, 0);
                let kind = layer.word("type")?;
                self.out.extend(kind.as_deref().map_or(Ok(0), number)?.to_be_bytes()[2..].iter());
                self.next = kind.is_none().then_some(NextField::Ether(at + 12));
            }
            "ip4" => self.ip4(layer, at)?,
            "ip6" => self.ip6(layer, at)?,
            "hbh" | "opts" | "route" | "frag" | "ah" => self.extension(layer, at)?,
            "udp" | "tcp" | "icmp" | "icmp6" | "sctp" => self.upper(layer, at)?,
            "vxlan" => {
                let vni = layer.number("vni", 1)?;
                self.out.extend([8, 0, 0, 0]);
                self.out.extend((vni << 8).to_be_bytes());
            }
            "bytes" => {
                let count = layer.words.first().ok_or("how many?").map(|w| number(w))??;
                layer.words.remove(0);
                let from = layer.number("from", 0)?;
                self.out.extend((0..count).map(|i| (from + i).to_le_bytes()[0]));
            }
            "text" => self.out.extend(layer.words.drain(..).collect::<Vec<_>>().join(" ").bytes()),
            "hex" => {
                let bytes = hex(&std::mem::take(&mut layer.words))?;
                self.out.extend(bytes);
            }
            "quote" => {
                let count = layer.words.first().map(|w| number(w)).transpose()?;
                layer.words.clear();
                let len = count.map_or(self.quoted.len(), |n| n as usize);
                let quoted = self.quoted.get(..len).ok_or("the packet is not that long")?;
                self.out.extend(quoted);
            }
            "pad" => {
                let to = layer.words.first().ok_or("to how many bytes?").map(|w| number(w))??;
                layer.words.remove(0);
                self.padding = (to as usize).saturating_sub(at);
                self.out.resize(at + self.padding, 0);
            }
            "cut" => {
                // The lengths still speak of the whole.
                let to = layer.words.first().ok_or("to how many bytes?").map(|w| number(w))??;
                layer.words.remove(0);
                let whole = std::mem::replace(
                    self,
                    Writer { out: Vec::new(), pending: Vec::new(), next: None, ..*self },
                );
                self.out = whole.finish();
                self.out.truncate(to as usize);
            }
            other => return Err(format!("no layer is called {other}")),
        }
        Ok(())
    }

    fn ip4(&mut self, layer: &mut Layer, at: usize) -> Result<(), String> {
        let (from, to): (Ipv4Addr, Ipv4Addr) = layer.ends()?;
        self.is(0x0800, 4);
        let version = layer.number("version", 4)?;
        let options = layer.word("opts")?.map_or(Ok(Vec::new()), |w| hex(&[w]))?;
        let default = 5 + u32::try_from(options.len().div_ceil(4)).expect("short");
        let words = layer.number("ihl", default)?;
        self.out.push(u8::try_from(version << 4 | words).map_err(|_| "version or ihl")?);
        self.out.push(layer.narrow("tos", 0)?);
        let len = layer.word("len")?.map(|w| number(&w)).transpose()?;
        self.out.extend([0, 0]);
        self.out.extend(layer.narrow::<u16>("id", 0)?.to_be_bytes());
        let (df, mf) = (layer.flag("df"), layer.flag("mf"));
        let evil = layer.narrow::<u16>("evil", 0)?;
        let offset: u16 = layer.narrow("off", 0)?;
        if !offset.is_multiple_of(8) {
            return Err("off is in bytes, a multiple of 8".into());
        }
        let word = evil << 15 | u16::from(df) << 14 | u16::from(mf) << 13 | (offset / 8);
        self.out.extend(word.to_be_bytes());
        self.out.push(layer.narrow("ttl", 64)?);
        let protocol = layer.word("proto")?.map(|w| number(&w)).transpose()?;
        self.out.push(u8::try_from(protocol.unwrap_or(59)).map_err(|_| "proto")?);
        let sum = layer.word("sum")?.map(|w| number(&w)).transpose()?;
        self.out.extend([0, 0]);
        self.out.extend(from.octets());
        self.out.extend(to.octets());
        self.out.extend(&options);
        self.out.resize(at + 20 + options.len().next_multiple_of(4), 0);
        self.next = protocol.is_none().then_some(NextField::Byte(at + 9));
        let narrow = |n: u32| u16::try_from(n).map_err(|_| "does not fit in 16 bits");
        self.pending.push(Pending::Ip4 {
            at,
            len: len.map(narrow).transpose()?,
            sum: sum.map(narrow).transpose()?,
        });
        Ok(())
    }

    fn ip6(&mut self, layer: &mut Layer, at: usize) -> Result<(), String> {
        let (from, to): (Ipv6Addr, Ipv6Addr) = layer.ends()?;
        self.is(0x86dd, 41);
        let (version, class) = (layer.number("version", 6)?, layer.number("class", 0)?);
        let flow = layer.number("flow", 0)?;
        self.out.extend((version << 28 | class << 20 | flow).to_be_bytes());
        let len = layer.word("len")?.map(|w| number(&w)).transpose()?;
        self.out.extend([0, 0]);
        let next = layer.word("next")?.map(|w| number(&w)).transpose()?;
        self.out.push(u8::try_from(next.unwrap_or(59)).map_err(|_| "next")?);
        self.out.push(layer.narrow("hop", 64)?);
        self.out.extend(from.octets());
        self.out.extend(to.octets());
        self.next = next.is_none().then_some(NextField::Byte(at + 6));
        let len = len.map(|n| u16::try_from(n).map_err(|_| "len does not fit"));
        self.pending.push(Pending::Ip6 { at, len: len.transpose()? });
        Ok(())
    }

    fn extension(&mut self, layer: &mut Layer, at: usize) -> Result<(), String> {
        let protocol = match layer.kind.as_str() {
            "hbh" => 0,
            "route" => 43,
            "frag" => 44,
            "ah" => 51,
            _ => 60,
        };
        self.is(0, protocol);
        let next = layer.narrow::<u8>("next", 59)?;
        if protocol == 44 {
            let (off, more): (u16, bool) = (layer.narrow("off", 0)?, layer.flag("mf"));
            let id = layer.number("id", 0)?;
            self.out.extend([next, 0]);
            self.out.extend((off | u16::from(more)).to_be_bytes());
            self.out.extend(id.to_be_bytes());
        } else {
            let words = layer.word("len")?.map(|w| number(&w)).transpose()?;
            let body = hex(&std::mem::take(&mut layer.words))?;
            let unit = if protocol == 51 { 4 } else { 8 };
            let total = (2 + body.len()).next_multiple_of(unit).max(8);
            let field = if protocol == 51 { total / 4 - 2 } else { total / 8 - 1 };
            let field = words.map_or(field, |w| w as usize);
            self.out.extend([next, u8::try_from(field).map_err(|_| "len does not fit")?]);
            self.out.extend(&body);
            self.out.resize(at + total, 0);
        }
        self.next = Some(NextField::Byte(at));
        Ok(())
    }

    fn upper(&mut self, layer: &mut Layer, at: usize) -> Result<(), String> {
        let len = layer.word("len")?.map(|w| number(&w)).transpose()?;
        let len = len.map(|n| u16::try_from(n).map_err(|_| "len does not fit")).transpose()?;
        let sum = match layer.word("sum")?.as_deref() {
            None => UpperSum::Right,
            Some("partial") => UpperSum::Partial,
            Some(given) => {
                UpperSum::Given(u16::try_from(number(given)?).map_err(|_| "sum does not fit")?)
            }
        };
        let protocol = match layer.kind.as_str() {
            "icmp" => 1,
            "tcp" => 6,
            "udp" => 17,
            "sctp" => 132,
            _ => 58,
        };
        self.is(0, protocol);
        if matches!(protocol, 1 | 58) {
            // TYPE/CODE, then the second word by a name that says what it means.
            let word = if layer.words.is_empty() { String::new() } else { layer.words.remove(0) };
            let (kind, code) = word.split_once('/').ok_or("TYPE/CODE is missing")?;
            let small = |w| number(w).and_then(|n| u8::try_from(n).map_err(|_| "too big".into()));
            self.out.extend([small(kind)?, small(code)?, 0, 0]);
            let pointer = layer.number("ptr", 0)?;
            let pointer = if protocol == 1 { pointer << 24 } else { pointer };
            let rest = layer.number("mtu", 0)? | layer.number("rest", 0)? | pointer;
            self.out.extend(rest.to_be_bytes());
        } else {
            let (from, to): (u16, u16) = layer.ends()?;
            self.out.extend(from.to_be_bytes());
            self.out.extend(to.to_be_bytes());
            match protocol {
                17 => self.out.extend([0; 4]),
                6 => {
                    self.out.extend(layer.number("seq", 0)?.to_be_bytes());
                    self.out.extend(layer.number("ack", 0)?.to_be_bytes());
                    self.out.extend([0x50, layer.narrow("flags", 0x10)?]);
                    self.out.extend(layer.narrow::<u16>("window", 0xffff)?.to_be_bytes());
                    self.out.extend([0; 4]);
                }
                _ => {
                    self.out.extend(layer.number("tag", 0)?.to_be_bytes());
                    self.out.extend([0; 4]);
                }
            }
        }
        self.pending.push(Pending::Upper { at, protocol, len, sum });
        Ok(())
    }

    /// Fills in what depends on what follows, innermost first.
    fn finish(mut self) -> Vec<u8> {
        let end = self.out.len() - self.padding;
        while let Some(pending) = self.pending.pop() {
            match pending {
                Pending::Ip4 { at, len, sum } => {
                    let len = len.unwrap_or(u16::try_from(end - at).expect("a frame is short"));
                    self.put16(at + 2, len);
                    let header = at..(at + usize::from(self.out[at] & 15) * 4).max(at + 20);
                    let header = header.start..header.end.min(self.out.len());
                    let sum = sum.unwrap_or_else(|| !plain_sum(&self.out[header]));
                    self.put16(at + 10, sum);
                }
                Pending::Ip6 { at, len } => {
                    let len = len.unwrap_or(u16::try_from(end - at - 40).expect("short"));
                    self.put16(at + 4, len);
                }
                Pending::Upper { at, protocol, len, sum } => {
                    self.fill_upper(at, end, protocol, len, sum);
                }
            }
        }
        self.out
    }

    fn fill_upper(&mut self, at: usize, end: usize, protocol: u8, len: Option<u16>, sum: UpperSum) {
        let real = u16::try_from(end - at).expect("a frame is short");
        if protocol == 17 {
            self.put16(at + 4, len.unwrap_or(real));
        }
        let field = at
            + match protocol {
                6 => 16,
                17 => 6,
                132 => 8,
                _ => 2,
            };
        if protocol == 132 {
            // SCTP's is a CRC, least significant byte first.
            let crc = match sum {
                UpperSum::Right => plain_crc32c(&self.out[at..end]),
                UpperSum::Partial => 0,
                UpperSum::Given(value) => value.into(),
            };
            self.out[field..field + 4].copy_from_slice(&crc.to_le_bytes());
            return;
        }
        // The pseudo-header belongs to the innermost IP header before it.
        let mut pseudo = Vec::new();
        let ip = self.pending.iter().rev().find_map(|p| match p {
            Pending::Ip4 { at, .. } => Some((*at, 4)),
            Pending::Ip6 { at, .. } => Some((*at, 6)),
            Pending::Upper { .. } => None,
        });
        match ip {
            Some((ip, 4)) if protocol != 1 => pseudo.extend(&self.out[ip + 12..ip + 20]),
            Some((ip, 6)) => pseudo.extend(&self.out[ip + 8..ip + 40]),
            _ => {}
        }
        if !pseudo.is_empty() {
            pseudo.extend(real.to_be_bytes());
            pseudo.extend([0, protocol]);
        }
        let value = match sum {
            UpperSum::Given(value) => value,
            UpperSum::Partial => plain_sum(&pseudo),
            UpperSum::Right => {
                pseudo.extend(&self.out[at..end]);
                let right = !plain_sum(&pseudo);
                if protocol == 17 && right == 0 { 0xffff } else { right }
            }
        };
        self.put16(field, value);
    }
}

/// One's-complement sum as in RFC 1071, a word at a time.
fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// CRC32c, a bit at a time.
fn plain_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        frame(text, &Built::of_cases(), &[1, 2, 3, 4, 5, 6]).unwrap()
    }

    #[test]
    fn a_header_of_the_vectors() {
        // 45 00 00 3c 1c 46 40 00 40 06, 10.0.0.1 to 192.0.2.7: checksum 0x526e.
        let frame = bytes(
            "eth lan.host > 02:00:00:00:00:01\nip4 10.0.0.1 > 192.0.2.7 id 0x1c46 df proto 6\nbytes 40",
        );
        assert_eq!(frame[..14], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 8, 0]);
        assert_eq!(frame[14..26], [0x45, 0, 0, 0x3c, 0x1c, 0x46, 0x40, 0, 0x40, 6, 0x52, 0x6e]);
        assert_eq!((frame.len(), frame[34], frame[73]), (74, 0, 39));
    }

    #[test]
    fn a_chain_of_ipv6_headers_links_up() {
        let frame = bytes(
            "eth lan.host > lan\nip6 ::1 > ::2\nhbh 0104\nfrag off 8 mf id 7\nicmp6 2/0 mtu 1280\nquote 3",
        );
        let ip = &frame[14..];
        assert_eq!((frame[12], frame[13], ip[0], ip[6], ip[7]), (0x86, 0xdd, 0x60, 0, 64));
        assert_eq!((ip[4], ip[5]), (0, 8 + 8 + 8 + 3));
        assert_eq!(ip[40..48], [44, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(ip[48..56], [58, 0, 0, 9, 0, 0, 0, 7]);
        assert_eq!((ip[56], &ip[60..67]), (2, &[0, 0, 5, 0, 1, 2, 3][..]));
        let mut pseudo = ip[8..40].to_vec();
        pseudo.extend([0, 11, 0, 58]);
        pseudo.extend(&ip[56..]);
        assert_eq!(plain_sum(&pseudo), 0xffff);
    }

    #[test]
    fn checksums_as_asked() {
        let udp = |words: &str| {
            let frame = bytes(&format!("ip4 10.0.0.1 > 10.0.0.2\nudp 1 > 2 {words}\ntext ab"));
            u16::from_be_bytes([frame[26], frame[27]])
        };
        // 0a00 + 0001 + 0a00 + 0002 + 0011 + 000a, and the rest on top.
        assert_eq!(udp("sum partial"), 0x141e);
        assert_eq!(udp(""), !(0x141e + 1 + 2 + 10 + 0x6162));
        assert_eq!((udp("sum 0"), udp("sum 0xabcd")), (0, 0xabcd));
        // "123456789" gives 0xe3069283 (RFC 3720, B.4 has others; this is the usual check value).
        assert_eq!(plain_crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn changes_touch_what_they_name() {
        let text = "eth lan.host > lan\nip4 10.0.0.1 > 10.0.0.2 ttl 9\nudp 1 > 2\ntext ab";
        let topology = Built::of_cases();
        let now = changed(text, "eth wan > wan.gw\nip4 ttl 8 df tos 4", &topology).unwrap();
        let text = "eth wan > wan.gw\nip4 10.0.0.1 > 10.0.0.2 ttl 8 df tos 4\nudp 1 > 2\ntext ab";
        assert_eq!(now, frame(text, &topology, &[]).unwrap());
    }

    #[test]
    fn padding_and_cutting() {
        let whole = bytes("eth lan.host > lan\nip4 10.0.0.1 > 10.0.0.2\nudp 1 > 2\npad 60");
        assert_eq!((whole.len(), whole[17]), (60, 28));
        let cut = bytes("eth lan.host > lan\nip4 10.0.0.1 > 10.0.0.2\nudp 1 > 2\nbytes 50\ncut 60");
        assert_eq!((cut.len(), cut[17]), (60, 78));
    }

    #[test]
    fn errors_name_the_word() {
        let topology = Built::of_cases();
        let error = |text| frame(text, &topology, &[]).unwrap_err();
        assert_eq!(error("ip4 10.0.0.1 > 10.0.0.2 tttl 3"), "ip4: what is tttl 3?");
        assert_eq!(error("ip4 10.0.0.1"), "ip4: FROM > TO is missing");
        assert_eq!(error("ip5 1 > 2"), "ip5: no layer is called ip5");
        assert_eq!(error("ip4 10.0.0.1 > 10.0.0.2 off 4"), "ip4: off is in bytes, a multiple of 8");
    }
}
