//! `FTPPortMapper(CONTROL, DATA, INPUT)`: an FTP client's `PORT` names the address and port that its data connection
//! gets.
//!
//! Source: Click's `FTPPortMapper`; RFC 959, 4.1.2. The data flow is mapped as one that comes by the input of rewriter
//! `DATA`; what the change of the command does to sequence numbers is noted with its flow in rewriter `CONTROL`, a
//! `TCPRewriter`.

use std::fmt::Write as _;
use std::sync::Arc;

use super::pattern::FlowId;
use super::{Core, named, packet};
use crate::element::click::only::checksums::fill_checksums;
use crate::element::click::only::seen::{Seen, long};
use crate::frame::wire::protocol::TCP;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("FTPPortMapper", "1/1", "a/a", "x/x"),
    summary: "maps the data connections that FTP clients name",
    configure: |setup| {
        let control = setup.args.positional_arg("CONTROL_REWRITER")?;
        let data = setup.args.positional_arg("DATA_REWRITER")?;
        let input = setup.args.positional::<u16>("DATA_REWRITER_INPUT");
        setup.args.finish()?;
        let (control, data, input) = (named(setup, &control)?, named(setup, &data)?, input?);
        Ok(Made::new(move |_| Mapper { control: control.clone(), data: data.clone(), input }))
    },
};

/// Port that data connections of servers come from.
const DATA_PORT: u16 = 20;

struct Mapper {
    control: Arc<Core>,
    data: Arc<Core>,
    input: u16,
}

/// Address and port of `PORT a,b,c,d,e,f`, and where the numbers are.
fn port_command(payload: &[u8]) -> Option<(u32, u16, std::ops::Range<usize>)> {
    let start = payload.get(..5)?.eq_ignore_ascii_case(b"PORT ").then_some(5)?;
    let rest = &payload[start..];
    let len = rest.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b',').count();
    // The line must have ended: its last number may go on.
    rest.get(len).filter(|byte| byte.is_ascii_whitespace())?;
    let text = std::str::from_utf8(&rest[..len]).ok()?;
    let numbers: Vec<u8> =
        text.split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [a, b, c, d, high, low] = numbers[..] else { return None };
    Some((u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([high, low]), start..start + len))
}

impl Mapper {
    /// The packet as it leaves, where it is changed.
    fn change(&self, frame: &[u8], network: usize, paint: u8, now_ns: u64) -> Option<Vec<u8>> {
        let seen = Seen { frame, network, paint, annotations: Default::default() };
        let (ip, payload) = (seen.ip()?, seen.payload()?);
        let (protocol, id) = packet::ends(frame, network, true)?;
        let (src, sport, numbers) = port_command(payload).filter(|_| protocol == TCP)?;
        let (control, data) = (self.control.config.get()?, self.data.config.get()?);
        let header = usize::from(ip[0] & 15) * 4;
        let seq = long(ip, header + 4)?;
        let flow = FlowId { src, sport, dst: id.dst, dport: DATA_PORT };
        // A flow that is not known yet is not changed: nothing could be noted of it.
        control.find(&mut control.table.session(), TCP, id, now_ns)?;
        let to = {
            let mut session = data.table.session();
            let found = match data.find(&mut session, TCP, flow, now_ns) {
                Some(found) => found,
                None => data.map(&mut session, (TCP, flow), self.input, paint, now_ns)?,
            };
            data.change(&mut session, found, flow).to
        };
        let mut text = String::new();
        for byte in to.src.to_be_bytes().into_iter().chain(to.sport.to_be_bytes()) {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{byte}");
        }
        let before = payload.len();
        let payload =
            [&payload[..numbers.start], text.as_bytes(), &payload[numbers.end..]].concat();
        let mut session = control.table.session();
        let found = control.find(&mut session, TCP, id, now_ns)?;
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(0);
        session.deltas(found)[usize::from(found.reply)].change(
            seq,
            length(before),
            length(payload.len()),
        );
        let mut packet = [&frame[..network], &ip[..ip.len() - before], &payload].concat();
        let total = u16::try_from(packet.len() - network).ok()?;
        packet[network + 2..network + 4].copy_from_slice(&total.to_be_bytes());
        fill_checksums(&mut packet[network..]);
        Some(packet)
    }
}

impl Element for Mapper {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            let meta = batch.meta()[i];
            let changed = self.change(batch.bytes(i), meta.network.into(), meta.paint, cx.now_ns);
            let Some(changed) = changed else { continue };
            if changed.len() <= batch.frame_len(i) {
                batch.truncate(i, changed.len());
                batch.bytes_mut(i).copy_from_slice(&changed);
                continue;
            }
            let mut packet = batch.take(i);
            if packet.set_len(changed.len()) {
                packet.bytes_mut().copy_from_slice(&changed);
                cx.emit(0, packet);
            } else {
                cx.drop_packet(packet, DropReason::NoBuffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        assert_eq!(port_command(b"PORT 1,2,3,4,5,6\r\n"), Some((0x0102_0304, 0x0506, 5..16)));
        for text in
            ["PORT 1,2,3,4,5\n", "PORT 1,2,3,4,5,6", "PORT 1,2,3,4,5,600\n", "PASV\n", "PORT x\n"]
        {
            assert_eq!(port_command(text.as_bytes()), None, "{text}");
        }
    }
}
