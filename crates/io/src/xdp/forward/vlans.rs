//! VLAN interfaces (IEEE 802.1Q): routed interfaces of their own, whose frames come and go, tagged, by the device
//! of another one.
//!
//! Shape: for an interface that has some, a word of 8 bytes for each of the 4,096 ids: the VLAN interface's MAC,
//!        and above it the place of its counts ([`super::seen`]); 0 where there is none. For egress the tag
//!        stands in the upper half of the port's word of `egress`, and `devices` has the other one's device.
//! Cost:  nothing for interfaces without VLANs where there are none at all: their programs are linked without;
//!        32 KiB of kernel memory for an interface that has some.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fingerpost_lpm::Region;
use fingerpost_route::Mac;

use super::{Forwarder, Reads, State};
use crate::xdp::XdpError;
use crate::xdp::bpf::SharedMemory;

/// Ids that a tag can have.
const IDS: usize = 4096;

/// A VLAN interface on an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vlan {
    /// Its own port.
    pub port: u16,
    /// That of the interface which it is on.
    pub parent: u16,
    /// The kernel's number of that interface.
    pub ifindex: u32,
    /// The id in its tags: 1 to 4,094.
    pub id: u16,
    /// Its own address, which may be another one than that of the interface which it is on.
    pub mac: Mac,
}

impl Vlan {
    /// What the program needs to send by it: that packets can leave, and the tag as it stands in the frame.
    fn egress_word(&self) -> u32 {
        1 | u32::from(self.id.to_be()) << 16
    }

    fn same_way_out(&self, other: &Self) -> bool {
        Self { mac: other.mac, ..*self } == *other
    }
}

/// Which VLAN interfaces an interface has, for its program.
#[derive(Debug)]
pub(super) struct Tags {
    memory: Arc<SharedMemory>,
    words: Region,
}

impl Tags {
    fn new() -> Result<Self, XdpError> {
        let memory = SharedMemory::new("vlans", IDS * 8)?;
        let words = memory.region("vlans", IDS * 8);
        Ok(Self { memory, words })
    }

    /// The memory, for programs.
    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// These and no others, each with the place of its counts.
    fn set(&self, vlans: &[(Vlan, u64)]) {
        let mut words = vec![0; IDS];
        for (vlan, place) in vlans {
            let m = vlan.mac.0;
            let mac = u64::from_le_bytes([m[0], m[1], m[2], m[3], m[4], m[5], 0, 0]);
            words[usize::from(vlan.id) % IDS] = mac | place << 48;
        }
        // Relaxed: each word is whole by itself, and its place was made before the program could know it.
        self.words.u64s().iter().zip(words).for_each(|(word, new)| word.store(new, Relaxed));
    }
}

impl Forwarder {
    /// Which VLAN interfaces there are from now on. What comes tagged for one of them is forwarded by the program
    /// of the interface that it is on, as soon as that is [taken in](Forwarder::add_port) and as long as both use
    /// the same routing table; packets leave by it whenever they may leave by that interface.
    ///
    /// # Errors
    /// When the kernel takes no device to send by, or no program; the other interfaces are as they should be.
    pub fn set_vlans(&self, mut vlans: Vec<Vlan>) -> Result<(), XdpError> {
        let mut state = self.state();
        if state.vlans == vlans {
            return Ok(());
        }
        let mut result = Ok(());
        let mut note = |done: Result<(), XdpError>| {
            let failed = done.is_err();
            if result.is_ok() {
                result = done;
            }
            failed
        };
        for old in &state.vlans {
            if !vlans.iter().any(|new| new.same_way_out(old)) {
                self.set_egress_word(&state, old.port, 0);
                // A device that is gone was taken out by the kernel.
                let _ = self.0.devices.delete(&u32::from(old.port).to_ne_bytes());
            }
        }
        vlans.retain(|new| {
            let known = state.vlans.iter().any(|old| old.same_way_out(new));
            known || !note(self.add_device(new.port, new.ifindex))
        });
        let first = state.vlans.is_empty();
        state.vlans = vlans;
        for vlan in &state.vlans {
            let open = self.egress_word(vlan.parent) & 1 == 1;
            self.set_egress_word(&state, vlan.port, if open { vlan.egress_word() } else { 0 });
        }
        for (&port, attached) in &state.ports {
            self.copy_egress(&state, port, attached);
        }
        for port in state.ports.keys().copied().collect::<Vec<_>>() {
            // The first of all is news for programs that only send by it, too.
            let anew = self.write_vlans(&mut state, port);
            if first || !matches!(anew, Ok(false)) {
                note(anew.and_then(|_| self.relink(&mut state, port)));
            }
        }
        result
    }

    /// Whether packets leave by the VLAN interfaces on a port.
    pub(super) fn open_vlans(&self, state: &State, parent: u16, open: bool) {
        for vlan in state.vlans.iter().filter(|vlan| vlan.parent == parent) {
            self.set_egress_word(state, vlan.port, if open { vlan.egress_word() } else { 0 });
        }
    }

    /// Brings up to date what the program of a port knows of VLANs; whether it has to be linked anew for that.
    pub(super) fn write_vlans(&self, state: &mut State, port: u16) -> Result<bool, XdpError> {
        let here: Vec<Vlan> = read_by(state, port).collect();
        let State { ports, gone, .. } = state;
        let Some(attached) = ports.get_mut(&port) else { return Ok(false) };
        if here.is_empty() && attached.vlans.is_none() {
            return Ok(false);
        }
        let numbers: Vec<u16> = here.iter().map(|vlan| vlan.port).collect();
        let grown = attached.seen.make_room(&numbers)?;
        let mut anew = grown.is_some();
        grown.into_iter().for_each(|before| gone.push(before));
        if attached.vlans.is_none() {
            attached.vlans = Some(Tags::new()?);
            anew = true;
        }
        let placed: Vec<_> =
            here.into_iter().map(|vlan| (vlan, attached.seen.place(vlan.port))).collect();
        if let Some(tags) = &attached.vlans {
            tags.set(&placed);
        }
        Ok(anew)
    }
}

/// What is forwarded of frames that arrive on a VLAN interface; `None` where nothing is there to do it.
pub(super) fn reads(state: &State, port: u16) -> Option<Result<Reads, String>> {
    let vlan = state.vlans.iter().find(|vlan| vlan.port == port)?;
    let parent = state.ports.get(&vlan.parent)?;
    if read_by(state, vlan.parent).any(|read| read.port == port) {
        return Some(parent.state.clone());
    }
    if let Err(why) = state.features_of(port) {
        return Some(Err(why.into()));
    }
    Some(Err("it uses another routing table than the interface that it is on".into()))
}

/// The VLAN interfaces whose frames the program of a port forwards: those that use the table that it uses, and no feature
/// that the graph alone has.
pub(super) fn read_by(state: &State, port: u16) -> impl Iterator<Item = Vlan> {
    let fibs = |port| state.forwarding.as_ref().map(|all| all.ports.first_fibs(port));
    let of_port = state.vlans.iter().filter(move |vlan| vlan.parent == port);
    of_port
        .filter(move |vlan| fibs(vlan.port) == fibs(port) && state.features_of(vlan.port).is_ok())
        .copied()
}
