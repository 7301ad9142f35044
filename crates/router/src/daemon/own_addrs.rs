//! The host's own addresses ahead of all else: a thread that follows nothing but them.
//!
//! The kernel answers for an address from when it is added. The control thread learns of it by the same socket as of
//! routes, and may be at something that takes a while: a table built anew, programs put on interfaces. Meanwhile
//! packets to the address would be answered with errors or forwarded elsewhere. So additions reach the
//! classifiers and the programs in XDP from here. The control thread removes them, since it knows of all interfaces that
//! have an address; an address that is deleted before the control thread learned of it is removed here.
//!
//! Cost: a netlink socket, and a thread that wakes when an address changes, and once a second.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fingerpost_io::xdp::LocalAddresses;
use fingerpost_route::netlink::{Messages, address};

use crate::sys::{Netlink, Received, poll};

/// Changes of addresses (`RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`).
const GROUPS: [u32; 2] = [5, 9];
/// Interval between two looks whether anybody still wants to know.
const LOOK: Duration = Duration::from_secs(1);
/// A notification is a few hundred bytes.
const BUFFER_BYTES: usize = 16 << 10;

/// Inserts addresses of the present network namespace from when they are added, as long as the set is held elsewhere.
///
/// # Errors
/// Errors of the socket or the thread: then additions are known when the control thread knows them.
pub(super) fn watch(local: &Arc<LocalAddresses>) -> io::Result<()> {
    let socket = Netlink::open(libc::NETLINK_ROUTE, &GROUPS)?;
    let local = Arc::downgrade(local);
    let thread = std::thread::Builder::new().name("addresses".into());
    thread.spawn(move || follow(&socket, &local)).map(drop)
}

fn follow(socket: &Netlink, local: &Weak<LocalAddresses>) {
    crate::privilege::keep_to_run_programs();
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Some(local) = local.upgrade() {
        match socket.recv(&mut buffer) {
            Ok(Received::Bytes(len)) => apply(&buffer[..len], &local),
            // The control thread requests a dump of all of them then.
            Ok(Received::Lost) => {}
            Ok(Received::Empty) => {
                drop(local);
                poll(&[socket.fd()], LOOK);
            }
            Err(_) => return,
        }
    }
}

/// What makes no sense, or does not fit, the control thread meets as well, and reports.
fn apply(datagram: &[u8], local: &LocalAddresses) {
    for message in Messages::new(datagram).map_while(Result::ok) {
        if matches!(message.kind, address::NEW | address::DEL)
            && let Ok(Some(update)) = address::parse(&message)
        {
            for addr in update.local() {
                let _ = if update.gone { local.retract(addr) } else { local.insert(addr) };
            }
        }
    }
}
