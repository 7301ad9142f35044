//! Stand-in for zebra, which sends routes by FPM, without next-hop objects.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use fingerpost_route::RouteUpdate;
use fingerpost_route::netlink::export;

/// Most bytes of messages in a frame.
const FRAME_BYTES: usize = 60_000;
/// Number of zebra's routes in the kernel's tables (`RTPROT_ZEBRA`).
const ZEBRA: u8 = 11;

/// A session with a router. It ends when this is dropped.
#[derive(Debug)]
pub struct Zebra(UnixStream);

impl Zebra {
    /// Connects to the socket of a router.
    ///
    /// # Panics
    /// When it does not listen there.
    pub fn connect(socket: &Path) -> Self {
        Self(UnixStream::connect(socket).expect("the router listens"))
    }

    /// Sends routes in as few frames as hold them.
    ///
    /// # Panics
    /// When a route has a target that the kernel has no message for, or the session has ended.
    pub fn send<'a>(&mut self, routes: impl IntoIterator<Item = &'a RouteUpdate>) {
        let mut frame = Vec::new();
        for route in routes {
            frame.extend(export::add(route, ZEBRA, 0).expect("the kernel has such routes"));
            if frame.len() > FRAME_BYTES {
                self.flush(&mut frame);
            }
        }
        if !frame.is_empty() {
            self.flush(&mut frame);
        }
    }

    fn flush(&mut self, messages: &mut Vec<u8>) {
        let len = u16::try_from(messages.len() + 4).expect("a frame is below 64 KiB");
        let head = [&[1, 1][..], &len.to_be_bytes()].concat();
        self.0.write_all(&head).expect("the router reads");
        self.0.write_all(messages).expect("the router reads");
        messages.clear();
    }
}
