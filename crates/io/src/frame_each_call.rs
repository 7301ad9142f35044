//! The loops of ports whose device takes or returns one frame a system call.

use std::io::{self, ErrorKind};

use fingerpost_packet::frame::Batch;

/// Receives until the device has no more frames or the batch no more room. `read` fills a frame and returns its length,
/// or nothing for a frame that is lost; without a free frame, which `no_buffer` counts, the device's queue drops what is
/// too much.
///
/// # Errors
/// Those of `read`, but for `WouldBlock`, which ends the loop, and `Interrupted`, which repeats the call.
pub(crate) fn receive(
    into: &mut Batch,
    no_buffer: &mut u64,
    mut read: impl FnMut(&mut [u8]) -> io::Result<Option<usize>>,
) -> io::Result<usize> {
    let mut count = 0;
    while into.room() > 0 {
        let Some(mut packet) = into.pool().alloc() else {
            *no_buffer += 1;
            break;
        };
        packet.set_len(into.pool().max_len().into());
        match read(packet.bytes_mut()) {
            Ok(Some(len)) => {
                packet.set_len(len);
                into.push(packet).expect("there is room");
                count += 1;
            }
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Sends until the batch is empty or the device full; frames that `write` took leave the batch.
///
/// # Errors
/// Those of `write`, but for `WouldBlock`, which ends the loop, and `Interrupted`, which repeats the call.
pub(crate) fn send(
    from: &mut Batch,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<usize> {
    let (mut sent, mut failed) = (0, None);
    while sent < from.len() {
        match write(from.bytes(sent)) {
            Ok(()) => sent += 1,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    from.free_front(sent);
    failed.map_or(Ok(sent), Err)
}
