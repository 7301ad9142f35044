//! Bytes of packets: `Pad(LENGTH)` lengthens short ones, `StoreData(OFFSET, DATA)` writes some, `EraseIPPayload` zeros
//! what is behind the headers, `TruncateIPPayload(LENGTH)` cuts it, `Resize(HEAD, TAIL)` adds bytes at both
//! ends, or cuts them.
//!
//! Source: Click's elements of these names. `Pad` without a length makes packets as long as an annotation states that
//! they were; from then on there are no more. What is cut off is counted in an annotation, unless `EXTRA_LENGTH false` is
//! given. The payload that is cut to `LENGTH` (0) is that behind the transport header, with `TRANSPORT false` that behind
//! the IPv4 header; of packets of other protocols it is all. Differs: bytes that `Resize` adds are those that were cut
//! off there before, or zeros.

use super::annotations::Annotations;
use super::each::{class, each};
use super::seen::Seen;
use crate::element::click::front::grow;
use crate::element::support::setting::Setting;
use crate::frame::wire::Ip4Mut;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::{Batch, DropReason};
use crate::graph::ElementClass;

pub(crate) const PAD: ElementClass = class("Pad", "lengthens short packets with zeros", |setup| {
    let length = setup.args.optional::<usize>("LENGTH");
    let zero = setup.args.keyword::<bool>("ZERO");
    setup.args.finish()?;
    let (length, zero) = (length?, zero?);
    if zero == Some(false) {
        setup.args.warn_here("ZERO: bytes that are added are zeros in any case");
    }
    each(move |batch, i| {
        let extra = Annotations::of(batch, i).extra_length as usize;
        let wanted = length.unwrap_or_else(|| batch.frame_len(i) + extra);
        let length = batch.frame_len(i);
        let missing = wanted.saturating_sub(length);
        if missing > 0 {
            if !batch.lengthen(i, missing) {
                return batch.discard(i, DropReason::NoBuffer);
            }
            batch.bytes_mut(i)[length..].fill(0);
        }
        if extra > 0 {
            let annotations = Annotations { extra_length: 0, ..Annotations::of(batch, i) };
            annotations.set(batch, i);
        }
    })
});

pub(crate) const STORE_DATA: ElementClass =
    class("StoreData", "writes bytes into packets", |setup| {
        let offset = setup.args.positional::<usize>("OFFSET");
        let data = setup.args.positional_arg("DATA");
        setup.args.finish()?;
        let (offset, data) = (offset?, data?.bytes().into_owned());
        each(move |batch, i| {
            let frame = batch.bytes_mut(i);
            // As far as the packet reaches, as in Click.
            let room = frame.get_mut(offset..).unwrap_or_default();
            let fits = room.len().min(data.len());
            room[..fits].copy_from_slice(&data[..fits]);
        })
    });

pub(crate) const ERASE: ElementClass =
    class("EraseIPPayload", "zeros what TCP and UDP carry in IPv4 packets", |setup| {
        setup.args.finish()?;
        each(|batch, i| {
            let network = usize::from(batch.meta()[i].network);
            let seen = Seen::bare(batch.bytes(i), network);
            let Some(ip) = seen.ip().filter(|ip| matches!(ip[9], TCP | UDP)) else { return };
            let (payload, end) = (seen.payload().map_or(0, <[u8]>::len), network + ip.len());
            batch.bytes_mut(i)[end - payload..end].fill(0);
        })
    });

pub(crate) const TRUNCATE: ElementClass =
    class("TruncateIPPayload", "cuts what is behind the headers of IPv4 packets", |setup| {
        let length = setup.args.optional::<usize>("LENGTH");
        let transport = setup.args.optional("TRANSPORT");
        let extra = setup.args.keyword("EXTRA_LENGTH");
        setup.args.finish()?;
        let (length, extra) = (length?.unwrap_or(0), extra?.unwrap_or(true));
        let transport = transport?.unwrap_or(true);
        each(move |batch, i| {
            let network = usize::from(batch.meta()[i].network);
            let seen = Seen::bare(batch.bytes(i), network);
            let (payload, end) = match seen.ip() {
                Some(_) if transport => (seen.payload().map_or(0, <[u8]>::len), network),
                Some(ip) => (ip.len() - (usize::from(ip[0] & 15) * 4).min(ip.len()), network),
                // Of what is no IPv4 packet all is payload.
                None => (batch.frame_len(i), 0),
            };
            if payload <= length {
                return;
            }
            let cut = payload - length;
            let whole = seen.ip().map_or(payload, <[u8]>::len);
            let is_ip = seen.ip().is_some();
            batch.truncate(i, end + whole - cut);
            if is_ip
                && !extra
                && let Some(mut header) = Ip4Mut::at(batch.bytes_mut(i), network)
            {
                let total = header.view().total_len().saturating_sub(cut);
                header.set_total_len(u16::try_from(total).unwrap_or(u16::MAX));
            }
            if extra {
                let mut annotations = Annotations::of(batch, i);
                let cut = u32::try_from(cut).unwrap_or(0);
                annotations.extra_length = annotations.extra_length.saturating_add(cut);
                annotations.set(batch, i);
            }
        })
    });

pub(crate) const RESIZE: ElementClass =
    class("Resize", "adds bytes at the ends of packets, or cuts them off", |setup| {
        let head = setup.args.optional::<i32>("HEAD");
        let tail = setup.args.optional::<i32>("TAIL");
        setup.args.finish()?;
        let [head, tail] = [head?, tail?].map(|bytes| Setting::new(bytes.unwrap_or(0)));
        let (front, end) = (head.clone(), tail.clone());
        let made = each(move |batch, i| {
            if resize_front(batch, i, front.get()) {
                resize_end(batch, i, end.get());
            }
        })?;
        Ok(tail.handled(head.handled(made, "head"), "tail"))
    });

/// Adds bytes before packet `i`, or cuts them off where the number is negative. Whether the packet stays.
fn resize_front(batch: &mut Batch, i: usize, bytes: i32) -> bool {
    if bytes <= 0 {
        let bytes = u16::try_from(bytes.unsigned_abs()).unwrap_or(u16::MAX);
        if !batch.pull_front(i, bytes) {
            // It has fewer.
            batch.truncate(i, 0);
        }
        let network = &mut batch.meta_mut()[i].network;
        *network = u8::try_from(u16::from(*network).saturating_sub(bytes)).unwrap_or(0);
        return true;
    }
    let Ok(bytes) = u8::try_from(bytes) else {
        batch.discard(i, DropReason::NoBuffer);
        return false;
    };
    let known = usize::from(batch.cut_off(i));
    if !grow(batch, i, bytes) {
        return false;
    }
    let unknown = usize::from(bytes).saturating_sub(known);
    batch.bytes_mut(i)[..unknown].fill(0);
    true
}

/// Adds zeros behind packet `i`, or cuts bytes off where the number is negative.
fn resize_end(batch: &mut Batch, i: usize, bytes: i32) {
    let (length, count) = (batch.frame_len(i), bytes.unsigned_abs() as usize);
    if bytes <= 0 {
        batch.truncate(i, length.saturating_sub(count));
    } else if batch.lengthen(i, count) {
        batch.bytes_mut(i)[length..].fill(0);
    } else {
        batch.discard(i, DropReason::NoBuffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::testing::{Rig, World, frame_v4, run};

    #[test]
    fn packets_are_lengthened_and_written_to() {
        let batch = run(&PAD, "6", 0, &[&[1, 2, 3], &[7; 9]]);
        assert_eq!((batch.bytes(0), batch.frame_len(1)), (&[1, 2, 3, 0, 0, 0][..], 9));
        let long = run(&PAD, "1500", 0, &[&[7; 60]]);
        assert_eq!((long.frame_len(0), &long.bytes(0)[58..62]), (1500, &[7, 7, 0, 0][..]));
        assert_eq!(run(&PAD, "1793", 0, &[&[7]]).decision(0), Decision::Drop(DropReason::NoBuffer));
        assert_eq!(run(&STORE_DATA, "1, \\<09 08 07>", 0, &[&[1, 2, 3]]).bytes(0), [1, 9, 8]);
    }

    #[test]
    fn a_padded_packet_misses_nothing() {
        for (pads, length) in [("Pad", 9), ("Pad(6) -> Pad", 6), ("Pad(3) -> Pad", 4)] {
            let text = format!("FromDevice(a) -> Truncate(4) -> {pads} -> ToDevice(b)");
            let mut rig = Rig::new(&World::new(), &text);
            assert_eq!(rig.receive("a", &[&[7; 9]])[0].1.len(), length, "{pads}");
        }
    }

    #[test]
    fn both_ends_are_resized() {
        let resized = |config| run(&RESIZE, config, 1, &[&[1, 2, 3, 4]]).bytes(0).to_vec();
        assert_eq!(resized("2, -3"), [0, 0, 1]);
        assert_eq!(resized("-1, 2"), [2, 3, 4, 0, 0]);
        assert_eq!((resized("0, 0"), resized("-9, -9")), (vec![1, 2, 3, 4], Vec::new()));
        assert_eq!(run(&RESIZE, "3, 0", 1, &[&[1]]).meta()[0].network, 4);
        assert_eq!(run(&RESIZE, "-3, 0", 4, &[&[1; 9]]).meta()[0].network, 1);
        for config in ["256, 0", "0, 1793"] {
            let batch = run(&RESIZE, config, 0, &[&[7]]);
            assert_eq!(batch.decision(0), Decision::Drop(DropReason::NoBuffer), "{config}");
        }
        let text = "FromDevice(a) -> Strip(2) -> Resize(3, 0) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(rig.receive("a", &[&[1, 2, 3]])[0].1, [0, 1, 2, 3]);
    }

    #[test]
    fn lengths_of_resize_are_shown() {
        let rig =
            Rig::new(&World::new(), "FromDevice(a) -> r :: Resize(4, TAIL -2) -> ToDevice(b)");
        rig.write("r.head", "6");
        assert_eq!([rig.read("r.head"), rig.read("r.tail")], ["6", "-2"]);
    }

    #[test]
    fn only_what_tcp_and_udp_carry_is_erased() {
        let icmp = frame_v4("10.0.0.1", "10.0.0.2", 64, 1, &[9; 12]);
        assert_eq!(run(&ERASE, "", 14, &[&icmp]).bytes(0), icmp);
    }

    #[test]
    fn payloads_go() {
        let frame = frame_v4("10.0.0.1", "10.0.0.2", 64, 17, &[1, 1, 1, 1, 1, 1, 1, 1, 9, 9, 9, 9]);
        let batch = run(&ERASE, "", 14, &[&frame, &frame[..20]]);
        assert_eq!((&batch.bytes(0)[42..], batch.bytes(0)[41]), (&[0; 4][..], 1));
        assert_eq!(run(&ERASE, "", 14, &[&frame[..9]]).bytes(0), &frame[..9]);
        let batch = run(&TRUNCATE, "", 14, &[&frame, &[7; 30]]);
        let cut = [0, 1].map(|i| Annotations::of(&batch, i).extra_length);
        assert_eq!((batch.frame_len(0), batch.frame_len(1), cut), (42, 0, [4, 30]));
        assert_eq!(batch.bytes(0)[17], 32, "the header states what the packet was");
        assert_eq!(run(&TRUNCATE, "9, false", 14, &[&frame]).frame_len(0), 43);
        let batch = run(&TRUNCATE, "1, TRANSPORT true", 14, &[&frame]);
        assert_eq!((batch.frame_len(0), Annotations::of(&batch, 0).extra_length), (43, 3));
        let batch = run(&TRUNCATE, "10, false, EXTRA_LENGTH false", 14, &[&frame]);
        assert_eq!((batch.frame_len(0), batch.bytes(0)[17]), (44, 30));
        let mut odd = frame.clone();
        // A header of no bytes, a packet of none.
        (odd[14], odd[17]) = (0x40, 0);
        let batch = run(&TRUNCATE, "10, false, EXTRA_LENGTH false", 14, &[&odd]);
        assert_eq!((batch.frame_len(0), batch.bytes(0)[17]), (24, 0));
    }
}
