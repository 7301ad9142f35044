//! A peer as a router in one loop: it forwards the frames that our generator makes, in turns with ours.
//!
//! Its requests are in `lab/peers/README.md`: how packets leave by next hop, the frames in order, and
//! then to forward each once, so that what became of it can be compared, or all of them for a while.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fingerpost_lpm::Addr;
use serde::Deserialize;

use super::{Done, Peer, REPLY_LIMIT, Turn, turn};

/// Bytes of a frame that are handed over and come back: what a router looks at.
pub const HEAD_BYTES: usize = 64;

/// How packets of one next hop leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leave {
    /// Destination and source of the link header, as they stand in the frame.
    pub macs: [u8; 12],
    /// Whether it leaves by the first egress or the second.
    pub port: u16,
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Its first bytes.
    pub head: [u8; HEAD_BYTES],
    /// The egress; `None` when it was dropped.
    pub port: Option<u16>,
}

/// Which lookup a loop found fastest on its frames, and at which burst.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Chosen {
    /// The function of the library.
    pub function: String,
    /// Frames at once.
    pub burst: usize,
    frames: usize,
}

impl<A: Addr> Peer<A> {
    /// Hands over how packets leave, by the number of their next hop, from 0 (which is none).
    ///
    /// # Errors
    /// When it cannot take them, or is no router.
    pub fn set_leaves(&mut self, leaves: &[Leave]) -> Result<()> {
        #[derive(Deserialize)]
        struct Reply {
            hops: usize,
        }
        let mut bytes = Vec::with_capacity(leaves.len() * 16);
        for leave in leaves {
            bytes.extend(leave.macs);
            bytes.extend(leave.port.to_le_bytes());
            bytes.extend([0; 2]);
        }
        let reply: Reply = self.hand("leaves", &bytes)?;
        ensure!(reply.hops == leaves.len(), "{}: took {} next hops", self.name, reply.hops);
        Ok(())
    }

    /// Hands over the beginnings of the frames of `len` bytes that all later turns forward, over and
    /// over, in this order.
    ///
    /// # Errors
    /// When it cannot take them, there are none, or next hops were not handed over before.
    pub fn set_frames(&mut self, heads: &[[u8; HEAD_BYTES]], len: u16) -> Result<Chosen> {
        let chosen: Chosen = self.hand(&format!("frames {len}"), heads.as_flattened())?;
        ensure!(chosen.frames == heads.len(), "{}: took {} frames", self.name, chosen.frames);
        Ok(chosen)
    }

    fn hand<R: serde::de::DeserializeOwned>(&mut self, command: &str, bytes: &[u8]) -> Result<R> {
        let file = self.process.scratch.file("handed");
        let shown = |file: &Path| file.display().to_string();
        fs::write(&file, bytes).with_context(|| shown(&file))?;
        let reply = self.ask(&format!("{command} {}", shown(&file)), REPLY_LIMIT)?;
        fs::remove_file(&file).with_context(|| shown(&file))?;
        Ok(reply)
    }

    /// What becomes of each frame, in their order.
    ///
    /// # Errors
    /// When there are no frames, or it does not report on each.
    pub fn forwarded(&mut self, frames: usize) -> Result<Vec<Forwarded>> {
        let file = self.process.scratch.file("forwarded");
        let _: Done = self.ask(&format!("forwarded {}", file.display()), REPLY_LIMIT)?;
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        let (records, rest) = bytes.as_chunks::<{ HEAD_BYTES + 2 }>();
        ensure!(
            rest.is_empty() && records.len() == frames,
            "{}: {} bytes of {frames} frames",
            self.name,
            bytes.len()
        );
        let read = |record: &[u8; HEAD_BYTES + 2]| {
            let (head, port) = record.split_at(HEAD_BYTES);
            let port = u16::from_le_bytes([port[0], port[1]]);
            let head = head.try_into().expect("split there");
            Forwarded { head, port: (port != u16::MAX).then_some(port) }
        };
        Ok(records.iter().map(read).collect())
    }

    /// Forwards frames for at least `time`, from where the last turn ended.
    ///
    /// # Errors
    /// When there are no frames, one of them does not leave, or it does not come back.
    pub fn forward(&mut self, time: Duration) -> Result<Turn> {
        let (packets, left, turn) = self.frames_for("forward", time)?;
        ensure!(packets == left, "{}: {left} of {packets} packets left", self.name);
        Ok(turn)
    }

    /// Only makes the frames: what a device would do.
    ///
    /// # Errors
    /// As [`Peer::forward`].
    pub fn generate(&mut self, time: Duration) -> Result<Turn> {
        self.frames_for("generate", time).map(|(_, _, turn)| turn)
    }

    fn frames_for(&mut self, command: &str, time: Duration) -> Result<(u64, u64, Turn)> {
        #[derive(Deserialize)]
        struct Reply {
            packets: u64,
            left: u64,
            ns: u64,
            cpu_ns: u64,
        }
        let line = format!("{command} {}", time.as_millis().max(1));
        let reply: Reply = self.ask(&line, REPLY_LIMIT + time)?;
        let turn = turn(reply.packets, reply.ns, reply.cpu_ns);
        Ok((reply.packets, reply.left, turn.with_context(|| self.name.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fake, text};
    use super::*;

    const TIME: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_handed_over_is_counted() {
        let mut peer = fake(
            r#"read -r leaves file; wc -c < "$file" | { read -r n; echo "{\"hops\":$((n / 16))}"; }
            read -r line; echo '{"hops":7}'
            read -r frames len file; echo "{\"frames\":$((len / 30)),\"function\":\"x4\",\"burst\":32}"
            read -r line; echo '{"frames":9,"function":"x4","burst":32}'"#,
        );
        peer.set_leaves(&[Leave::default(); 3]).unwrap();
        let error = peer.set_leaves(&[Leave::default(); 3]).unwrap_err();
        assert_eq!(text(&error), "fake: took 7 next hops");
        let chosen = peer.set_frames(&[[0; HEAD_BYTES]; 2], 60).unwrap();
        assert_eq!((&chosen.function[..], chosen.burst), ("x4", 32));
        let error = peer.set_frames(&[[0; HEAD_BYTES]; 2], 60).unwrap_err();
        assert_eq!(text(&error), "fake: took 9 frames");
    }

    #[test]
    fn frames_come_back_with_their_way_out() {
        let mut peer = fake(
            r#"read -r word file; { printf '%064d' 5; printf '\001\000'; printf '%064d' 6; printf '\377\377'; } > "$file"
            echo '{"ok":true}'; read -r word file; printf 'short' > "$file"; echo '{"ok":true}'"#,
        );
        let came = peer.forwarded(2).unwrap();
        assert_eq!((came[0].port, came[0].head[63]), (Some(1), b'5'));
        assert_eq!((came[1].port, came[1].head[63]), (None, b'6'));
        let error = peer.forwarded(2).unwrap_err();
        assert_eq!(text(&error), "fake: 5 bytes of 2 frames");
    }

    #[test]
    fn a_turn_in_which_packets_are_lost_does_not_count() {
        let mut peer = fake(
            r#"read -r line; echo '{"packets":8,"left":8,"ns":9,"cpu_ns":6}'
            read -r line; echo '{"packets":8,"left":7,"ns":9,"cpu_ns":6}'
            read -r line; echo '{"packets":8,"left":0,"ns":9,"cpu_ns":6}'"#,
        );
        let turn = peer.forward(TIME).unwrap();
        assert_eq!((turn.count, turn.cpu), (8, Duration::from_nanos(6)));
        let error = peer.forward(TIME).unwrap_err();
        assert_eq!(text(&error), "fake: 7 of 8 packets left");
        assert_eq!(peer.generate(TIME).unwrap().count, 8);
    }
}
