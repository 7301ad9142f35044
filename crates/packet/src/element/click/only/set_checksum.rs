//! Checksums anew: `SetIPChecksum` that of the IPv4 header, `SetTCPChecksum` and `SetUDPChecksum` those behind it.
//!
//! Source: Click's elements of these names. What is no such packet, or not whole, is dropped (`SetUDPChecksum`: leaves
//! by its second output, where that is used, and so do fragments); later fragments of TCP pass. `FIXOFF true` corrects
//! a data offset of TCP that leads out of the packet.

use super::checksums::fill_checksums;
use super::each::{class, counted, each, sorting};
use super::seen::Seen;
use crate::frame::DropReason;
use crate::frame::wire::Ip4;
use crate::frame::wire::checksum::checksum;
use crate::frame::wire::protocol::{TCP as PROTOCOL_TCP, UDP as PROTOCOL_UDP};
use crate::graph::{ElementClass, Exit, Made, Setup};
use crate::language::ConfigError;

pub(crate) const IP: ElementClass =
    class("SetIPChecksum", "writes IPv4 header checksums", |setup| {
        setup.args.finish()?;
        counted(setup, |batch, i| {
            let network = usize::from(batch.meta()[i].network);
            let ip = batch.bytes_mut(i).get_mut(network..).unwrap_or_default();
            let length = Ip4::at(ip, 0).filter(|ip| ip.version() == 4).map(Ip4::header_len);
            match length.and_then(|length| ip.get_mut(..length)).filter(|header| header.len() >= 20)
            {
                None => {
                    batch.discard(i, DropReason::BadHeaderLength);
                    true
                }
                Some(header) => {
                    header[10..12].fill(0);
                    let sum = checksum(header);
                    header[10..12].copy_from_slice(&sum.to_be_bytes());
                    false
                }
            }
        })
    });

pub(crate) const TCP: ElementClass = class("SetTCPChecksum", "writes TCP checksums", |setup| {
    let fixes = setup.args.optional("FIXOFF");
    let exit = setup.exit(u16::MAX, DropReason::TooShort);
    transport(setup, PROTOCOL_TCP, 20, exit, Of { fixes: fixes?.unwrap_or(false), passes: true })
});

pub(crate) const UDP: ElementClass =
    sorting("SetUDPChecksum", &["out", "bad"], "writes UDP checksums", |setup| {
        let exit = setup.exit(1, DropReason::TooShort);
        transport(setup, PROTOCOL_UDP, 8, exit, Of { fixes: false, passes: false })
    });

/// What differs between the protocols.
#[derive(Clone, Copy)]
struct Of {
    /// A wrong data offset is corrected.
    fixes: bool,
    /// Fragments are no packets that are wrong.
    passes: bool,
}

fn transport(
    setup: &mut Setup<'_>,
    protocol: u8,
    least: usize,
    exit: Exit,
    Of { fixes, passes }: Of,
) -> Result<Made, ConfigError> {
    setup.args.finish()?;
    each(move |batch, i| {
        let network = usize::from(batch.meta()[i].network);
        let seen = Seen::bare(batch.bytes(i), network);
        let is_part = Ip4::at(batch.bytes(i), network).is_some_and(Ip4::is_fragment);
        let length = match (seen.ip(), seen.transport()) {
            (Some(ip), Some((found, bytes)))
                if found == protocol && bytes.len() >= least && (passes || !is_part) =>
            {
                Some(ip.len())
            }
            // A later fragment has none.
            (Some(_), None) if passes => return,
            _ => None,
        };
        match length {
            None => exit.take(batch, i),
            Some(length) => {
                let packet = &mut batch.bytes_mut(i)[network..network + length];
                // The header's own is left as it is.
                let own = [packet[10], packet[11]];
                if fixes {
                    fix_offset(&mut packet[..]);
                }
                fill_checksums(packet);
                packet[10..12].copy_from_slice(&own);
            }
        }
    })
}

/// Makes the data offset of a TCP packet one that leads into it.
fn fix_offset(ip: &mut [u8]) {
    let header = usize::from(ip[0] & 15) * 4;
    let Some(tcp) = ip.get_mut(header..).filter(|tcp| tcp.len() >= 20) else { return };
    let most = u8::try_from(tcp.len() / 4).unwrap_or(15).min(15);
    tcp[12] = (tcp[12] >> 4).clamp(5, most) << 4 | tcp[12] & 15;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::testing::{Rig, World, frame_v4, run};

    #[test]
    fn checksums_are_written() {
        let text = "FromDevice(a) -> Strip(14) -> SetTCPChecksum -> SetIPChecksum -> CheckIPHeader -> c :: CheckTCPHeader
            -> ToDevice(x); c [1] -> ToDevice(y); FromDevice(b) -> Strip(14) -> MarkIPHeader -> s :: SetUDPChecksum
            -> CheckUDPHeader -> ToDevice(x); s [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let mut tcp = [7; 40];
        tcp[12] = 0x50;
        let mut frame = frame_v4("10.0.0.1", "192.0.2.7", 64, 6, &tcp);
        frame[24..26].fill(9);
        assert_eq!(rig.receive("a", &[&frame])[0].0, "x");
        let offset = |config, value: u8| {
            let mut frame = frame.clone();
            frame[46] = value;
            run(&TCP, config, 14, &[&frame]).bytes(0)[46]
        };
        assert_eq!([0x31, 0x51, 0xf1].map(|value| offset("true", value)), [0x51, 0x51, 0xa1]);
        assert_eq!(offset("false", 0x31), 0x31);
        let udp = frame_v4("10.0.0.1", "192.0.2.7", 64, 17, &[0, 1, 0, 2, 0, 12, 9, 9, 1, 2, 3, 4]);
        assert_eq!(rig.receive("b", &[&udp])[0].0, "x");
        assert_eq!(rig.receive("b", &[&frame])[0].0, "y");
        for (flags, offset) in [(0x20, 0), (0, 1)] {
            let mut part = udp.clone();
            (part[20], part[21]) = (flags, offset);
            let sent = rig.receive("b", &[&part]);
            assert_eq!((sent[0].0.as_str(), &sent[0].1[..]), ("y", &part[14..]), "a fragment");
        }
        let mut rig = Rig::new(&World::new(), "FromDevice(a) -> s :: SetIPChecksum -> ToDevice(b)");
        rig.receive("a", &[&[0x43; 30], &[0x45; 30]]);
        assert_eq!(rig.read("s.drops"), "1");
        assert_eq!(
            run(&IP, "", 0, &[&[0x43; 30]]).decision(0),
            Decision::Drop(DropReason::BadHeaderLength)
        );
    }
}
