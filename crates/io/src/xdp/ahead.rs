//! Programs that are loaded ahead: the kernel's verifier takes tens of milliseconds for one that forwards, which the control
//! thread must not wait for.
//!
//! Another thread links the programs for tables to come and has them verified. When these tables are published, a program
//! whose code is the same to the instruction is taken, and only its link changes. Any difference, of a table, a feature, or
//! a map that was made anew, and the program is loaded as if there had been none.
//!
//! Descriptors of maps are numbers that are used again, so code is compared with the kernel's ids of its maps: a loaded
//! program keeps its maps, and the kernel gives no two living maps the same id.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use super::XdpError;
use super::bpf::{self, Program};
use super::load::Insn;

/// Programs that wait for their tables.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<Vec<Loaded>>);

#[derive(Debug)]
struct Loaded {
    /// Code with ids of maps in place of descriptors.
    code: Vec<Insn>,
    /// The interface that it is bound to.
    ifindex: Option<u32>,
    program: Program,
}

impl Ahead {
    /// Loads a program now, to be taken later, and returns whether it waits. What the kernel refuses is refused again by
    /// then, with the reason.
    pub(super) fn prepare(&self, name: &'static str, code: &[Insn], ifindex: Option<u32>) -> bool {
        let Some(key) = with_ids(code) else { return false };
        let known = |loaded: &Loaded| loaded.ifindex == ifindex && loaded.code == key;
        if self.all().iter().any(known) {
            return true;
        }
        let loaded = Program::load_for(name, code, ifindex);
        let loaded = loaded.map(|program| Loaded { code: key, ifindex, program });
        loaded.map(|loaded| self.all().push(loaded)).is_ok()
    }

    /// Whether a program of this code waits.
    pub(super) fn has(&self, code: &[Insn], ifindex: Option<u32>) -> bool {
        let all = self.all();
        !all.is_empty()
            && with_ids(code)
                .is_some_and(|key| all.iter().any(|l| l.ifindex == ifindex && l.code == key))
    }

    /// Takes the program of this code, or loads it.
    ///
    /// # Errors
    /// As [`Program::load_for`].
    pub(super) fn take(
        &self,
        name: &'static str,
        code: &[Insn],
        ifindex: Option<u32>,
    ) -> Result<Program, XdpError> {
        let mut all = self.all();
        if !all.is_empty()
            && let Some(key) = with_ids(code)
            && let Some(at) = all.iter().position(|l| l.ifindex == ifindex && l.code == key)
        {
            return Ok(all.swap_remove(at).program);
        }
        drop(all);
        Program::load_for(name, code, ifindex)
    }

    /// Drops programs for which no tables came.
    pub(super) fn clear(&self) {
        self.all().clear();
    }

    /// Ids of the programs that wait.
    #[cfg(test)]
    pub(super) fn ids(&self) -> std::collections::BTreeSet<u32> {
        self.all().iter().map(|loaded| loaded.program.id().expect("it is loaded")).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Loaded>> {
        self.0.lock().expect("no panic while it is held")
    }
}

/// The code with the ids of its maps; `None` where a map is gone.
pub(super) fn with_ids(code: &[Insn]) -> Option<Vec<Insn>> {
    let mut known = HashMap::new();
    let mut code = code.to_vec();
    for map in Insn::maps(&mut code) {
        let id = match known.get(map) {
            Some(id) => *id,
            None => bpf::map_id(*map).ok()?.cast_signed(),
        };
        known.insert(*map, id);
        *map = id;
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};

    use super::*;
    use crate::xdp::bpf::{Map, MapKind};
    use crate::xdp::classify;
    use crate::xdp::load::{self, Bound};
    use crate::xdp::testing;

    /// The classifier alone, over one map for all that it names.
    fn code(map: BorrowedFd<'_>, number: u64) -> Vec<Insn> {
        load::link(classify::OBJECT, "classify", |name| {
            Some(match name {
                "settings" | "presence" => Bound::Memory(map),
                "sockets" | "counts" | "local4" | "local6" => Bound::Map(map),
                "vlan_tag" | "forward" | "guard" => Bound::Uncalled,
                "workers" => Bound::Number(number),
                _ => Bound::Number(0),
            })
        })
    }

    #[test]
    fn code_is_the_same_if_its_maps_are_whatever_their_descriptors() {
        if !testing::can_bpf() {
            return;
        }
        let make = || Map::new(MapKind::Array, "test", 4, 16, 1).unwrap();
        let (map, other) = (make(), make());
        let again = map.as_fd().try_clone_to_owned().unwrap();
        let ids = |map: BorrowedFd<'_>, number| with_ids(&code(map, number)).unwrap();
        assert_ne!(code(map.as_fd(), 1), code(again.as_fd(), 1));
        assert_eq!(ids(map.as_fd(), 1), ids(again.as_fd(), 1));
        assert_ne!(ids(map.as_fd(), 1), ids(other.as_fd(), 1));
        assert_ne!(ids(map.as_fd(), 1), ids(map.as_fd(), 2));
    }
}
