//! The program on each interface: forwardable unicast to the router's sockets, the rest to the kernel.
//!
//! The program is `classify.c`. Its rules stand in [`classify`](super::classify()); a test compares the two frame by frame.
//! Shape: about 100 instructions, no loops; four maps: settings (MAC, longest frame, families that are
//!        the kernel's), sockets by queue, counters by CPU, and the local addresses that all interfaces share.
//! Cost:  one hash lookup and one counter a packet to be forwarded, one counter for any other.
//!
//! A tag may be hidden: many devices take the VLAN tag off before a program sees the frame, and veth
//! carries it beside the frame from the start. In native mode the program reads it from the driver (Linux 6.8,
//! and a driver that reports it: veth, mlx5, ice and others); besides, attaching sets the device to
//! leave tags in (`ethtool -K ... rxvlan off`), which most obey.
//!
//! A queue without a socket passes its frames to the kernel, so an interface can be attached before
//! its sockets are open, and keeps working when they close. So does a queue whose worker does not work
//! ([`super::presence`]). Where the kernel must not forward instead of us, since it knows nothing of our filters, such frames
//! are dropped ([`Classifier::hold`]).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::ahead::{Ahead, with_ids};
use super::bpf::{Link, Map, MapKind, Program, SharedMemory};
use super::load::{self, Bound, Insn};
use super::{Families, LocalAddresses, Mode, XdpError, btf};
use crate::interface;

/// Queues an interface can have here; the map takes 8 bytes each.
const QUEUES: u32 = 1024;

/// The compiled `classify.c`.
pub(crate) static OBJECT: &[u8] = include_bytes!("classify.o");

/// Counter numbers (`classify.c`).
const PASSED: u32 = 0;
const REDIRECTED: u32 = 1;
const NO_SOCKET: u32 = 2;
const HELD_BACK: u32 = 3;
/// Number of counters.
const COUNTERS: u32 = 4;

/// Bits of the settings' last word (`classify.c`).
const LEFT_V4: u32 = 1;
const LEFT_V6: u32 = 2;
const HELD: u32 = 4;

/// Frames that a classifier has seen. Each is counted once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Left to the kernel by the rules.
    pub passed: u64,
    /// Handed to a socket (whose ring may still have been full).
    pub redirected: u64,
    /// To be forwarded, but left to the kernel because its queue had no socket, or no worker that works.
    pub no_socket: u64,
    /// To be forwarded, and dropped instead, since the kernel must not forward them ([`Classifier::hold`]).
    pub held_back: u64,
}

/// A loaded classifier, for one interface.
#[derive(Debug)]
pub struct Classifier {
    program: Program,
    maps: Maps,
    filters: [Arc<SharedMemory>; 2],
    max_len: u16,
    written: Mutex<Written>,
    /// The program that reads hidden tags and calls nothing, where the interface takes it.
    alone: OnceLock<Program>,
    /// What the interface runs, as far as it is known.
    running: Mutex<Option<Running>>,
}

/// Code with ids of maps in place of descriptors, and the interface that it is bound to.
type Running = (Vec<Insn>, Option<u32>);

/// Everything that `classify.c` names.
#[derive(Debug)]
struct Maps {
    settings: Map,
    sockets: Map,
    counts: Map,
    local: [OwnedFd; 2],
    presence: OwnedFd,
    /// Number of workers that have a word in `presence`.
    workers: u32,
}

impl Maps {
    /// The program. `vlan_tag` is the number of the function that reads a hidden tag.
    fn link(
        &self,
        vlan_tag: Option<i32>,
        Functions { forward, guard }: Functions<'_>,
    ) -> Vec<Insn> {
        let program = if guard.is_some() { "classify_and_guard" } else { "classify" };
        load::link(OBJECT, program, |name| {
            Some(match name {
                "settings" => Bound::Memory(self.settings.as_fd()),
                "presence" => Bound::Memory(self.presence.as_fd()),
                "sockets" => Bound::Map(self.sockets.as_fd()),
                "counts" => Bound::Map(self.counts.as_fd()),
                "local4" => Bound::Map(self.local[0].as_fd()),
                "local6" => Bound::Map(self.local[1].as_fd()),
                "workers" => Bound::Number(self.workers.into()),
                "reads_tags" => Bound::Number(vlan_tag.is_some().into()),
                "vlan_tag" => vlan_tag.map_or(Bound::Uncalled, Bound::Kernel),
                "forwards" => Bound::Number(forward.is_some().into()),
                "forward" => forward.map_or(Bound::Uncalled, Bound::Function),
                "guard" => guard.map_or(Bound::Uncalled, Bound::Function),
                _ => return None,
            })
        })
    }
}

/// Functions of other programs that the classifier of an interface calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Functions<'a> {
    /// Sees untagged frames before the rules do: what it returns below 0 passes to these, all else is the frame's verdict.
    pub forward: Option<&'a [Insn]>,
    /// Sees frames that are about to pass to the kernel, and may drop them.
    pub guard: Option<&'a [Insn]>,
}

/// Settings that the program has, besides the longest frame.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    mac: [u8; 6],
    taken: Option<u16>,
    left: Families,
    held: bool,
}

impl Classifier {
    /// Loads one for an interface with that MAC and sockets whose frames hold `max_len` bytes
    /// ([`Pool::max_len`](fingerpost_packet::Pool::max_len)).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load(mac: [u8; 6], shared: &LocalAddresses, max_len: u16) -> Result<Self, XdpError> {
        let settings = Map::new(MapKind::Array, "settings", 4, 16, 1)?;
        let sockets = Map::new(MapKind::XskMap, "sockets", 4, 4, QUEUES)?;
        let counts = Map::new(MapKind::PerCpuArray, "counts", 4, 8, COUNTERS)?;
        let own = |map: &Map| map.as_fd().try_clone_to_owned();
        let dup = |source| XdpError::System { call: "dup of a map", source };
        let local = [own(&shared.v4).map_err(dup)?, own(&shared.v6).map_err(dup)?];
        let presence = own(shared.presence.map()).map_err(dup)?;
        let filters = shared.filters.clone();
        let workers = shared.presence.workers();
        let maps = Maps { settings, sockets, counts, local, presence, workers };
        let program = Program::load("classifier", &maps.link(None, Functions::default()))?;
        let classifier = Self {
            program,
            maps,
            filters,
            max_len,
            written: Mutex::default(),
            alone: OnceLock::new(),
            running: Mutex::default(),
        };
        classifier.set_mac(mac)?;
        Ok(classifier)
    }

    /// Attaches it to an interface, until the link is dropped.
    ///
    /// # Errors
    /// When the interface cannot take it in this mode.
    pub fn attach(&self, ifindex: u32, mode: Mode) -> Result<Link, XdpError> {
        // Refused by devices that cannot, and then there is nothing to leave in, or no means.
        let _ = interface::keep_tags(&interface::name_of(ifindex));
        let alone = Functions::default();
        if mode == Mode::Native
            && let Some((code, bound)) = self.code(ifindex, alone)
            && let Ok(program) = Program::load_for("classifier", &code, Some(bound))
        {
            let link = program.attach(ifindex, mode)?;
            *self.running() = with_ids(&code).map(|code| (code, Some(bound)));
            // It stays that of the interface which the classifier is for.
            let _ = self.alone.set(program);
            return Ok(link);
        }
        let link = self.program.attach(ifindex, mode)?;
        self.runs_program();
        Ok(link)
    }

    /// Has these functions called by the program that is attached by `link`, in place of those before.
    ///
    /// # Errors
    /// When the kernel refuses; the program is as it was.
    pub fn put(&self, ifindex: u32, link: &Link, functions: Functions<'_>) -> Result<(), XdpError> {
        self.put_ahead(ifindex, link, functions, &Ahead::default())
    }

    /// Replaces the program as [`Classifier::put`] does, by one of those that were loaded ahead if it is among them. One
    /// that the interface runs already stays.
    ///
    /// # Errors
    /// As [`Classifier::put`].
    pub(super) fn put_ahead(
        &self,
        ifindex: u32,
        link: &Link,
        functions: Functions<'_>,
        ahead: &Ahead,
    ) -> Result<(), XdpError> {
        let mut running = self.running();
        let alone = functions.forward.is_none() && functions.guard.is_none();
        if link.mode() == Mode::Native
            && let Some((code, bound)) = self.code(ifindex, functions)
        {
            let key = with_ids(&code).map(|code| (code, Some(bound)));
            if key.is_some() && *running == key {
                return Ok(());
            }
            let kept = self.alone.get().filter(|_| alone);
            let taken = kept.is_none().then(|| ahead.take("classifier", &code, Some(bound)));
            let taken = taken.and_then(Result::ok);
            if let Some(program) = kept.or(taken.as_ref()) {
                link.replace(program)?;
                *running = key;
                return Ok(());
            }
        }
        let code = self.maps.link(None, functions);
        let key = with_ids(&code).map(|code| (code, None));
        if key.is_some() && *running == key {
            return Ok(());
        }
        match alone {
            true => link.replace(&self.program)?,
            false => link.replace(&ahead.take("classifier", &code, None)?)?,
        }
        *running = key;
        Ok(())
    }

    /// Notes that another program than one of this classifier was put in the place of the one that runs.
    pub(super) fn replaced(&self) {
        *self.running() = None;
    }

    /// The interface runs the program that reads no hidden tags and calls nothing.
    fn runs_program(&self) {
        let code = with_ids(&self.maps.link(None, Functions::default()));
        *self.running() = code.map(|code| (code, None));
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().expect("no panic while it is held")
    }

    /// Whether the interface runs this code.
    pub(super) fn runs(&self, code: &[Insn], bound: Option<u32>) -> bool {
        let running = self.running();
        let same = |(known, to): &Running| *to == bound && with_ids(code).as_ref() == Some(known);
        running.as_ref().is_some_and(same)
    }

    /// The codes that [`Classifier::put`] tries, the best first, each with the interface that it is bound to.
    pub(super) fn codes(
        &self,
        ifindex: u32,
        mode: Mode,
        functions: Functions<'_>,
    ) -> Vec<(Vec<Insn>, Option<u32>)> {
        let bound = (mode == Mode::Native).then(|| self.code(ifindex, functions)).flatten();
        let bound = bound.map(|(code, bound)| (code, Some(bound)));
        bound.into_iter().chain([(self.maps.link(None, functions), None)]).collect()
    }

    /// The code that [`Classifier::put`] has loaded in native mode, and the interface that it is for.
    pub(super) fn code(&self, ifindex: u32, functions: Functions<'_>) -> Option<(Vec<Insn>, u32)> {
        Some((self.maps.link(Some(btf::vlan_tag_function()?), functions), ifindex))
    }

    /// The program that reads no hidden tags.
    pub(super) fn with(&self, functions: Functions<'_>) -> Result<Program, XdpError> {
        Program::load("classifier", &self.maps.link(None, functions))
    }

    /// The settings, of which the first 6 bytes are the interface's MAC.
    pub(super) fn settings(&self) -> &Map {
        &self.maps.settings
    }

    /// The sockets by queue.
    pub(super) fn sockets(&self) -> &Map {
        &self.maps.sockets
    }

    /// The local addresses: a hash map a family.
    pub(super) fn local(&self) -> [BorrowedFd<'_>; 2] {
        self.maps.local.each_ref().map(AsFd::as_fd)
    }

    /// A filter a family, which excludes most addresses that are not local.
    pub(super) fn filters(&self) -> &[Arc<SharedMemory>; 2] {
        &self.filters
    }

    /// Attaches it in the best mode that the interface takes; the link has the mode and the reason.
    ///
    /// # Errors
    /// When the interface takes it in none.
    pub fn attach_best(&self, ifindex: u32) -> Result<Link, XdpError> {
        match self.attach(ifindex, Mode::Native) {
            Ok(link) => Ok(link),
            // Says why not native.
            Err(_) => {
                let link = self.program.attach_best(ifindex)?;
                self.runs_program();
                Ok(link)
            }
        }
    }

    /// Sends the frames of a queue to an AF_XDP socket bound to it. Closing the socket undoes it.
    ///
    /// # Errors
    /// `Limit` for a queue past the map, else the kernel's error.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), XdpError> {
        let fd = socket.as_raw_fd().to_ne_bytes();
        self.maps.sockets.update(&queue.to_ne_bytes(), &fd).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::E2BIG) => XdpError::Limit {
                    what: "queue",
                    max: QUEUES as usize,
                    need: queue as usize + 1,
                },
                _ => XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of sockets", source },
            }
        })
    }

    /// Leaves the frames of the first `queues` queues to the kernel, from the next frame on. A program that runs at this
    /// moment may still redirect one: see [`super::wait_for_programs`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn clear_sockets(&self, queues: u32) -> Result<(), XdpError> {
        let cleared = |source| XdpError::System { call: "bpf(MAP_DELETE_ELEM) of sockets", source };
        (0..queues).try_for_each(|queue| {
            self.maps.sockets.delete(&queue.to_ne_bytes()).map(drop).map_err(cleared)
        })
    }

    /// Follows a change of the interface's MAC.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_mac(&self, mac: [u8; 6]) -> Result<(), XdpError> {
        let mut written = self.written();
        self.settle(Written { mac, ..*written })?;
        written.mac = mac;
        Ok(())
    }

    /// Takes all frames of an EtherType, to whatever address they are sent, from the next frame on: the graph drops and counts
    /// those that have no place on the interface.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn take(&self, ethertype: Option<u16>) -> Result<(), XdpError> {
        let mut written = self.written();
        self.settle(Written { taken: ethertype, ..*written })?;
        written.taken = ethertype;
        Ok(())
    }

    /// Leaves the packets of these families to the kernel, from the next frame on, and takes those of the others.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn leave(&self, left: Families) -> Result<(), XdpError> {
        let mut written = self.written();
        self.settle(Written { left, ..*written })?;
        written.left = left;
        Ok(())
    }

    /// The families whose packets are left to the kernel.
    pub fn left(&self) -> Families {
        self.written().left
    }

    /// Drops frames that are to be forwarded and find no worker that works, from the next frame on, or leaves them to the
    /// kernel again. While it holds nothing gets past what the graph does to packets, whatever becomes of the process.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn hold(&self, held: bool) -> Result<(), XdpError> {
        let mut written = self.written();
        self.settle(Written { held, ..*written })?;
        written.held = held;
        Ok(())
    }

    /// Whether such frames are dropped.
    pub fn holds(&self) -> bool {
        self.written().held
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().expect("no panic while it is held")
    }

    fn settle(&self, Written { mac, taken, left, held }: Written) -> Result<(), XdpError> {
        let mut value = [0; 16];
        value[..6].copy_from_slice(&mac);
        value[6..8].copy_from_slice(&taken.unwrap_or(0).to_be_bytes());
        value[8..12].copy_from_slice(&u32::from(self.max_len).to_ne_bytes());
        let bits = [(left.v4, LEFT_V4), (left.v6, LEFT_V6), (held, HELD)];
        let word = bits.iter().filter(|(set, _)| *set).fold(0, |word, (_, bit)| word | bit);
        value[12..].copy_from_slice(&word.to_ne_bytes());
        self.maps
            .settings
            .update(&0u32.to_ne_bytes(), &value)
            .map_err(|source| XdpError::System { call: "bpf(MAP_UPDATE_ELEM) of settings", source })
    }

    /// Frames seen so far.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn counts(&self) -> Result<Counts, XdpError> {
        let sum = |index: u32| {
            self.maps.counts.sum(index).map_err(|source| XdpError::System {
                call: "bpf(MAP_LOOKUP_ELEM) of counts",
                source,
            })
        };
        Ok(Counts {
            passed: sum(PASSED)?,
            redirected: sum(REDIRECTED)?,
            no_socket: sum(NO_SOCKET)?,
            held_back: sum(HELD_BACK)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use fingerpost_packet::Heartbeat;
    use proptest::prelude::Rng;
    use proptest::test_runner::{RngAlgorithm, TestRng};
    use std::net::IpAddr;
    use std::time::{Duration, Instant};

    use super::super::testing;
    use super::super::{Verdict, XDP_DROP, XDP_PASS, XDP_REDIRECT, classify, presence};
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const MAX_LEN: u16 = 1792;
    const LOCAL: &[&str] =
        &["10.0.0.1", "10.0.0.0", "10.0.0.255", "192.0.2.1", "fd00::1", "2001:db8::1", "::5"];

    struct Bench {
        classifier: Classifier,
        local: LocalAddresses,
        _socket: OwnedFd,
    }

    /// A classifier with a socket at queue 0 that is bound to nothing: enough to be redirected to.
    fn bench() -> Bench {
        let local = LocalAddresses::new().unwrap();
        for address in LOCAL {
            local.insert(address.parse().unwrap()).unwrap();
        }
        let classifier = Classifier::load(OWN, &local, MAX_LEN).unwrap();
        let socket = testing::xdp_socket();
        classifier.set_socket(0, socket.as_fd()).unwrap();
        Bench { classifier, local, _socket: socket }
    }

    impl Bench {
        fn kernel(&self, frame: &[u8]) -> Verdict {
            let answer = self.classifier.program.test(frame).unwrap();
            assert_eq!(answer.frame, frame, "the classifier changes nothing");
            match answer.action.cast_signed() {
                XDP_PASS => Verdict::Pass,
                XDP_REDIRECT => Verdict::Redirect,
                other => panic!("action {other} for {frame:02x?}"),
            }
        }

        fn model(&self, frame: &[u8]) -> Verdict {
            let Written { taken, left, .. } = *self.classifier.written();
            classify(frame, OWN, MAX_LEN, (left, taken), &|a| self.local.contains(a))
        }
    }

    fn frame(kind: [u8; 2], destination: &str, len: usize) -> Vec<u8> {
        let mut frame = vec![0; len.max(60)];
        frame[..6].copy_from_slice(&OWN);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame[12..14].copy_from_slice(&kind);
        match destination.parse().unwrap() {
            IpAddr::V4(v4) => {
                frame[14] = 0x45;
                frame[30..34].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                frame[14] = 0x60;
                frame[38..54].copy_from_slice(&v6.octets());
            }
        }
        frame.truncate(len);
        frame
    }

    const V4: [u8; 2] = [8, 0];
    const V6: [u8; 2] = [0x86, 0xdd];

    #[test]
    fn each_rule_holds_in_the_kernel() {
        if !testing::can_bpf() {
            return;
        }
        let bench = bench();
        use Verdict::{Pass, Redirect};
        let cases = [
            (V4, "10.0.0.2", 60, Redirect),
            (V4, "1.0.0.0", 34, Redirect),
            (V4, "223.255.255.255", 60, Redirect),
            (V4, "240.0.0.1", 60, Redirect),
            (V4, "255.255.255.254", 60, Redirect),
            (V4, "10.0.0.2", 1792, Redirect),
            (V4, "10.0.0.2", 1793, Pass),
            (V4, "10.0.0.2", 3000, Pass),
            (V4, "10.0.0.2", 33, Pass),
            (V4, "10.0.0.1", 60, Pass),
            (V4, "10.0.0.0", 60, Pass),
            (V4, "10.0.0.255", 60, Pass),
            (V4, "192.0.2.1", 60, Pass),
            (V4, "0.0.0.0", 60, Pass),
            (V4, "0.1.2.3", 60, Pass),
            (V4, "127.0.0.1", 60, Pass),
            (V4, "224.0.0.0", 60, Pass),
            (V4, "239.255.255.255", 60, Pass),
            (V4, "255.255.255.255", 60, Pass),
            (V6, "2001:db8::2", 60, Redirect),
            (V6, "::2", 60, Redirect),
            (V6, "::100", 60, Redirect),
            (V6, "0:0:0:1::", 60, Redirect),
            (V6, "0:0:0:1::1", 60, Redirect),
            (V6, "fe00::1", 60, Redirect),
            (V6, "fe7f::1", 60, Redirect),
            (V6, "fec0::1", 54, Redirect),
            (V6, "2001:db8::2", 53, Pass),
            (V6, "2001:db8::2", 1793, Pass),
            (V6, "2001:db8::1", 60, Pass),
            (V6, "fd00::1", 60, Pass),
            (V6, "::", 60, Pass),
            (V6, "::1", 60, Pass),
            (V6, "::5", 60, Pass),
            (V6, "fe80::1", 60, Pass),
            (V6, "febf::1", 60, Pass),
            (V6, "ff02::1", 60, Pass),
            ([0x08, 0x06], "10.0.0.2", 60, Pass),
            ([0x81, 0x00], "10.0.0.2", 60, Pass),
            ([0x88, 0xa8], "10.0.0.2", 60, Pass),
            ([0x00, 0x08], "10.0.0.2", 60, Pass),
        ];
        let mut expected = Counts::default();
        for (kind, destination, len, verdict) in cases {
            let frame = frame(kind, destination, len);
            assert_eq!(bench.kernel(&frame), verdict, "{kind:02x?} {destination} {len}");
            assert_eq!(bench.model(&frame), verdict, "model: {kind:02x?} {destination} {len}");
            match verdict {
                Pass => expected.passed += 1,
                Redirect => expected.redirected += 1,
            }
        }
        assert_eq!(bench.classifier.counts().unwrap(), expected);
    }

    #[test]
    fn a_family_that_is_left_goes_to_the_kernel() {
        if !testing::can_bpf() {
            return;
        }
        let bench = bench();
        let frames = [frame(V4, "10.0.0.2", 60), frame(V6, "2001:db8::2", 60)];
        let both = [false, true].map(|v4| [false, true].map(|v6| Families { v4, v6 }));
        for left in both.as_flattened().iter().chain([&Families::NONE]) {
            bench.classifier.leave(*left).unwrap();
            let want = [left.v4, left.v6].map(|left| match left {
                true => Verdict::Pass,
                false => Verdict::Redirect,
            });
            assert_eq!(frames.each_ref().map(|frame| bench.kernel(frame)), want, "{left:?}");
            assert_eq!(frames.each_ref().map(|frame| bench.model(frame)), want, "model: {left:?}");
        }
        // Neither setting changes the other.
        bench.classifier.leave(Families { v4: true, v6: false }).unwrap();
        bench.classifier.set_mac(OWN).unwrap();
        assert_eq!(bench.kernel(&frames[0]), Verdict::Pass);
        assert_eq!(bench.kernel(&frames[1]), Verdict::Redirect);
    }

    #[test]
    fn only_frames_to_the_own_mac_are_taken() {
        if !testing::can_bpf() {
            return;
        }
        let bench = bench();
        for at in 0..6 {
            let mut frame = frame(V4, "10.0.0.2", 60);
            frame[at] ^= 1;
            assert_eq!(bench.kernel(&frame), Verdict::Pass, "byte {at} of the MAC");
        }
        let mac = [6, 5, 4, 3, 2, 1];
        bench.classifier.set_mac(mac).unwrap();
        let mut frame = frame(V4, "10.0.0.2", 60);
        assert_eq!(bench.kernel(&frame), Verdict::Pass);
        frame[..6].copy_from_slice(&mac);
        assert_eq!(bench.kernel(&frame), Verdict::Redirect);
    }

    #[test]
    fn an_ethertype_is_taken_whatever_the_destination() {
        if !testing::can_bpf() {
            return;
        }
        let bench = bench();
        let mut internal = frame([0x88, 0xb5], "10.0.0.2", 60);
        internal[0] ^= 4;
        let ordinary = frame(V4, "10.0.0.2", 60);
        let arp = frame([8, 6], "10.0.0.2", 60);
        for (taken, verdict) in [(None, Verdict::Pass), (Some(0x88b5), Verdict::Redirect)] {
            bench.classifier.take(taken).unwrap();
            for (frame, verdict) in
                [(&internal, verdict), (&ordinary, Verdict::Redirect), (&arp, Verdict::Pass)]
            {
                assert_eq!(bench.kernel(frame), verdict, "{taken:?}");
                assert_eq!(bench.model(frame), verdict, "model: {taken:?}");
            }
        }
    }

    #[test]
    fn a_queue_without_socket_passes_to_the_kernel() {
        if !testing::can_bpf() {
            return;
        }
        let local = LocalAddresses::new().unwrap();
        let classifier = Classifier::load(OWN, &local, MAX_LEN).unwrap();
        let frame = frame(V4, "10.0.0.2", 60);
        let socket = testing::xdp_socket();
        let action = || classifier.program.test(&frame).unwrap().action.cast_signed();
        assert_eq!(action(), XDP_PASS);
        classifier.set_socket(0, socket.as_fd()).unwrap();
        assert_eq!(action(), XDP_REDIRECT);
        drop(socket);
        assert_eq!(action(), XDP_PASS, "the map forgets a closed socket");
        let socket = testing::xdp_socket();
        classifier.set_socket(0, socket.as_fd()).unwrap();
        assert_eq!(action(), XDP_REDIRECT);
        classifier.clear_sockets(2).unwrap();
        assert_eq!(action(), XDP_PASS, "an open socket can be taken out");
        let counts = classifier.counts().unwrap();
        assert_eq!(counts, Counts { redirected: 2, no_socket: 3, ..Counts::default() });
        let error = classifier.set_socket(QUEUES, testing::xdp_socket().as_fd()).unwrap_err();
        assert_eq!(error.to_string(), "queue limit exceeded: need 1025, at most 1024");
    }

    /// Each queue depends on its own worker; a frame that finds none is the kernel's, or is dropped where it must not be.
    #[test]
    fn a_queue_whose_worker_does_not_work_has_no_socket() {
        if !testing::can_bpf() {
            return;
        }
        let frame = frame(V4, "10.0.0.2", 60);
        for workers in [1, 2, 3] {
            let local = LocalAddresses::new().unwrap();
            let mut pulses = local.pulses(workers).unwrap();
            let classifier = Classifier::load(OWN, &local, MAX_LEN).unwrap();
            let socket = testing::xdp_socket();
            // Frames of a trial come by queue 0.
            classifier.set_socket(0, socket.as_fd()).unwrap();
            let action = || classifier.program.test(&frame).unwrap().action.cast_signed();
            assert_eq!(action(), XDP_REDIRECT, "{workers} workers");
            let now = Instant::now();
            let mut beat = |worker: usize, at| {
                let pulse: &mut presence::Pulse = &mut pulses[worker];
                pulse.start_clock(at);
                pulse.beat(0);
            };
            let long_ago = now.checked_sub(Duration::from_secs(3)).unwrap();
            (1..workers).for_each(|worker| beat(worker, long_ago));
            assert_eq!(action(), XDP_REDIRECT, "those of other queues, of {workers}");
            beat(0, long_ago);
            assert_eq!(action(), XDP_PASS, "{workers} workers");
            classifier.hold(true).unwrap();
            assert!(classifier.holds());
            assert_eq!(action(), XDP_DROP, "{workers} workers");
            beat(0, now);
            assert_eq!(action(), XDP_REDIRECT, "it works again");
            classifier.clear_sockets(1).unwrap();
            assert_eq!(action(), XDP_DROP, "its socket was closed");
            classifier.hold(false).unwrap();
            assert_eq!(action(), XDP_PASS);
            let counts = classifier.counts().unwrap();
            let want = Counts { passed: 0, redirected: 3, no_socket: 2, held_back: 2 };
            assert_eq!(counts, want);
        }
    }

    /// Over a real pair: a tag beside the frame is seen in native mode, and the frame left alone.
    #[test]
    fn a_hidden_tag_goes_to_the_kernel() {
        use crate::af_packet;
        use fingerpost_packet::Port;
        use fingerpost_packet::{Batch, Pool};
        testing::in_namespace(|| {
            if btf::vlan_tag_function().is_none() {
                return testing::skipped("Linux 6.8 with BTF");
            }
            let (a, b) = testing::veth("a0", "b0", 1);
            let local = LocalAddresses::new().unwrap();
            let classifier = Classifier::load(testing::mac("b0"), &local, MAX_LEN).unwrap();
            let (code, bound) = classifier.code(b, Functions::default()).unwrap();
            assert!(Program::load_for("classifier", &code, Some(bound)).is_ok());
            let _link = classifier.attach(b, Mode::Native).unwrap();
            let mut port = af_packet::open("a0", a).unwrap();
            let pool = Pool::new(8, 2048);
            let mut batch = Batch::new(&pool);
            let mut send = || {
                let mut bytes = frame(V4, "10.0.0.2", 60);
                bytes[..6].copy_from_slice(&testing::mac("b0"));
                let mut packet = pool.alloc().unwrap();
                packet.set_len(60);
                packet.bytes_mut().copy_from_slice(&bytes);
                batch.push(packet).unwrap();
                assert_eq!(port.send(&mut batch).unwrap(), 1);
            };
            let counted = |expected: Counts| {
                for _ in 0..200 {
                    if classifier.counts().unwrap() == expected {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                assert_eq!(classifier.counts().unwrap(), expected);
            };
            send();
            counted(Counts { no_socket: 1, ..Counts::default() });
            let _tagging = super::super::bpf::tag_on_egress(a);
            send();
            counted(Counts { passed: 1, no_socket: 1, ..Counts::default() });
        });
    }

    /// Random and mutated frames: the kernel and the model agree on each.
    #[test]
    fn the_program_agrees_with_the_model() {
        if !testing::can_bpf() {
            return;
        }
        let bench = bench();
        let seed = [7; 32];
        let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut below = |n: u64| usize::try_from(random.next_u64() % n).unwrap();
        let addresses: Vec<&str> = LOCAL
            .iter()
            .copied()
            .chain(["10.0.0.2", "127.0.0.1", "0.0.0.1", "224.0.0.1", "255.255.255.255", "9.9.9.9"])
            .chain(["::", "::1", "fe80::1", "ff02::1", "2001:db8::9", "::6", "fec0::"])
            .collect();
        let mut redirected = 0;
        for round in 0..20_000 {
            let destination = addresses[below(addresses.len() as u64)];
            let kind = if destination.contains(':') { V6 } else { V4 };
            let len = if below(50) == 0 { 1785 + below(16) } else { 14 + below(60) };
            let mut frame = frame(kind, destination, len);
            for _ in 0..below(3) {
                // Mostly where the rules look.
                let at =
                    [0, 5, 12, 13, 30, 31, 33, 38, 39, 45, 46, 53, below(len as u64)][below(13)];
                let noise = u8::try_from(below(256)).unwrap();
                if at < len {
                    frame[at] = [0, 0xff, 0xfe, 0x80, 1, 8, 0x86, 0xdd, noise][below(9)];
                }
            }
            let expected = bench.model(&frame);
            assert_eq!(bench.kernel(&frame), expected, "round {round}: {frame:02x?}");
            redirected += usize::from(expected == Verdict::Redirect);
        }
        assert!((2_000..18_000).contains(&redirected), "{redirected} of 20000: a lopsided sample");
    }
}
