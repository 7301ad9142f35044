//! Interface features of the XDP datapath: uRPF strict and loose, source filters that pass, drop or count, ACLs on
//! ingress, and sampling ([`super::samples`]).
//!
//! Source: what each feature does with a packet is documented at its element; the program does the same from the same
//!         memory, the tables of routes for uRPF, the lists for source filters and the trees for ACLs.
//! Shape:  ports [u64; places]: of a port and of the VLAN interfaces on it, by their place in [`super::received`]: the port
//!         number, the check of sources from bit 16 on, the ACL from bit 18 on, the lists from bit 32 on, the sampling rate
//!         from bit 48 on.
//!         defaults [u64]: how many, then the next hops of default routes. verdicts [u8; masks]: what becomes of packets
//!         by the lists that hold for them.
//! Cost:   a port without features runs a program without them. With them a lookup more for uRPF, for the lists another
//!         one. A change of what a port has means a new program for it; a change inside a list is seen at once, and one
//!         that is exchanged means new programs, each taken over at once.
//!
//! What is also for packets to the router itself (`local = true`) is applied by a function of its own, which the classifier
//! calls before it passes a frame to the kernel: the same lists and rules by words of their own, without uRPF.
//!
//! What the program leaves to the graph: uRPF feasible, packets that a rate limits, sources whose next hop is a group
//! of more slots than it looks at; with an ACL those in the boxes of a rule whose condition is more than boxes, IPv6 with
//! extension headers, what takes more reads of the ACL than it does, and all where there is a list for egress. A packet is
//! counted on its lists and rules where it ends.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use fingerpost_lpm::{Epoch, KernelReader, Lookup, is_kernel_readable};
use fingerpost_route::{PortInfo, Shared, UrpfMode};

use super::epochs::Marks;
use fingerpost_packet::feature::acl::AccessLists;
use fingerpost_packet::feature::source_filter::SourceFilters;

use super::{Forwarder, Inner, LISTS, Names, State, last, readable, vlans};
use crate::xdp::XdpError;
use crate::xdp::bpf::SharedMemory;

/// Next hops of default routes at most (`forward.c`).
const DEFAULTS: usize = 64;

/// What lists may take of kernel memory: a million prefixes of IPv6 twice, since the old ones live until the new ones are
/// built.
pub(super) const LISTS_CAP_BYTES: usize = 256 << 20;

/// What access lists may take: several of 10,000 rules twice, with counts for each CPU.
pub(super) const ACLS_CAP_BYTES: usize = 64 << 20;

/// What a CPU has for the key of a packet (`forward.c`).
const SCRATCH_BYTES: usize = 64 * 4;

/// Place of the word there that stands for no rule (`forward.c`).
const NO_RULE: usize = 49;

/// What CPUs keep the key of a packet in.
pub(super) fn scratch(cpus: usize) -> Result<Arc<SharedMemory>, XdpError> {
    let memory = SharedMemory::new("acl_scratch", cpus * SCRATCH_BYTES)?;
    let words = memory.region("acl_scratch", cpus * SCRATCH_BYTES);
    let unknown = words.u32s().iter().skip(NO_RULE).step_by(SCRATCH_BYTES / 4);
    unknown.for_each(|word| word.store(u32::MAX, Relaxed));
    Ok(memory)
}

/// Bits of a port's word.
const URPF: u64 = 3 << 16;
const ACL: u64 = 0x3fff << 18;
const FILTERS: u64 = 0xffff << 32;
const SAMPLING: u64 = 0xffff << 48;

/// What a CPU counts of lists in (`forward.c`).
pub(super) const HIT_BYTES: usize = 16 * 4 * 8;

/// Checks of sources and verdicts, as `forward.c` numbers them.
const STRICT: u64 = 1;
const LOOSE: u64 = 2;
const VERDICTS: [&str; 3] = ["pass", "drop", "limit"];

/// The features of a program.
#[derive(Clone, Debug)]
pub(super) struct PortFeatures {
    words: Vec<u64>,
    /// Next hops of default routes, as in `defaults`.
    hops: Vec<u64>,
    ports: Arc<SharedMemory>,
    defaults: Arc<SharedMemory>,
}

impl PortFeatures {
    /// Whether some port has one of these.
    fn any(&self, bits: u64) -> bool {
        self.words.iter().any(|word| word & bits != 0)
    }

    /// Whether some port samples.
    pub(super) fn samples(&self) -> bool {
        self.any(SAMPLING)
    }
}

/// The source filters that programs read.
pub(super) struct Lists {
    filters: Arc<SourceFilters>,
    verdicts: Arc<SharedMemory>,
    masks: u64,
    v4: Option<Arc<dyn Lookup<u32>>>,
    v6: Option<Arc<dyn Lookup<u128>>>,
}

impl std::fmt::Debug for Lists {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.filters.fmt(f)
    }
}

impl Lists {
    /// Why programs do without them, if they do.
    fn unreadable(&self) -> Option<&'static str> {
        let (v4, v6) = (self.v4.as_deref(), self.v6.as_deref());
        let tables = v4.and_then(readable).is_some() && v6.and_then(readable).is_some();
        let counts =
            self.filters.kernel_hits().is_some_and(|hits| SharedMemory::of(hits).is_some());
        (!(tables && counts)).then_some("no kernel memory for the lists of its source filters")
    }
}

impl State {
    /// The features of packets that arrive on a port, as a word for its program, or why the graph alone has them.
    pub(super) fn features_of(&self, port: u16) -> Result<u64, &'static str> {
        let known = self.forwarding.as_ref();
        let info = known.and_then(|known| known.ports.port(port));
        if info.is_some_and(|info| info.graph_only) {
            return Err(GRAPH_ONLY);
        }
        let urpf = match info.and_then(|info| info.urpf) {
            None => 0,
            Some(UrpfMode::Strict) => STRICT,
            Some(UrpfMode::Loose) => LOOSE,
            Some(UrpfMode::Feasible) => return Err(FEASIBLE),
        };
        if urpf == LOOSE && known.is_some_and(|known| known.defaults.len() > DEFAULTS) {
            return Err("there are more default routes than programs look at (urpf loose)");
        }
        let lists = self.lists.as_ref().map_or(0, |lists| lists.filters.lists(port));
        let acl = self.acls.as_ref().map_or(0, |acls| acls.ingress(port));
        let sampling = self.sampling.as_ref().map_or(Ok(None), |all| all.as_ref().map(Some));
        let rate = sampling.map_err(|why| *why)?.map_or(0, |sampling| sampling.rate(port));
        Ok(self.word(port, lists, acl)? | urpf << 16 | u64::from(rate) << 48)
    }

    /// The features of packets to the router itself that arrive on a port.
    fn local_features_of(&self, port: u16) -> Result<u64, &'static str> {
        let lists = self.lists.as_ref().map_or(0, |lists| lists.filters.local_lists(port));
        self.word(port, lists, self.acls.as_ref().map_or(0, |acls| acls.local(port)))
    }

    /// The word of a port with these lists of sources and this ACL, or why programs cannot read them.
    fn word(&self, port: u16, lists: u16, acl: u16) -> Result<u64, &'static str> {
        if let Some(why) = self.lists.as_ref().filter(|_| lists != 0).and_then(Lists::unreadable) {
            return Err(why);
        }
        if acl != 0 && self.acls.as_deref().is_none_or(is_unreadable) {
            return Err("no kernel memory for its ACL");
        }
        Ok(u64::from(port) | u64::from(acl) << 18 | u64::from(lists) << 32)
    }

    /// What packets to different ports have to have in common to be treated alike there.
    pub(super) fn features_alike(&self, port: u16) -> u64 {
        // Samples do not change what becomes of a packet.
        let word = self.features_of(port).unwrap_or(0) & !SAMPLING;
        if word >> 16 & 3 == STRICT { word } else { word & !0xffff }
    }

    /// What a port's program knows of features; `None` where neither it nor a VLAN interface on it has any.
    pub(super) fn port_features(&self, port: u16) -> Result<Option<PortFeatures>, String> {
        let words = self.feature_words(port)?;
        if is_plain(&words) {
            return Ok(None);
        }
        let present = self.ports.get(&port).map(|attached| &attached.features);
        self.memory_of(words, present).map(Some)
    }

    /// What the guard of a port knows of features for packets to the router itself; `None` where there are none.
    pub(super) fn local_features(&self, port: u16) -> Result<Option<PortFeatures>, String> {
        let words = self.local_words(port)?;
        if is_plain(&words) {
            return Ok(None);
        }
        let present = self.ports.get(&port).map(|attached| &attached.local_features);
        self.memory_of(words, present).map(Some)
    }

    /// Memory with these words: the present one if it has them, as a program that was loaded ahead reads it.
    fn memory_of(
        &self,
        words: Vec<u64>,
        present: Option<&Result<Option<PortFeatures>, String>>,
    ) -> Result<PortFeatures, String> {
        let defaults = self.forwarding.as_ref().map_or(&[][..], |known| &known.defaults);
        let defaults: Vec<u64> = defaults.iter().map(|hop| hop.0.into()).collect();
        if let Some(Ok(Some(present))) = present
            && (&present.words, &present.hops) == (&words, &defaults)
        {
            return Ok(present.clone());
        }
        let count = defaults.len() as u64;
        let made = |name, words: &[u64], least: usize| {
            let memory = SharedMemory::new(name, words.len().max(least) * 8)?;
            let cells = memory.region(name, words.len() * 8);
            cells.u64s().iter().zip(words).for_each(|(cell, word)| cell.store(*word, Relaxed));
            Ok::<_, XdpError>(memory)
        };
        let error = |error: XdpError| error.to_string();
        Ok(PortFeatures {
            ports: made("ingress", &words, 1).map_err(error)?,
            defaults: made("defaults", &[&[count][..], &defaults].concat(), 1 + DEFAULTS)
                .map_err(error)?,
            words,
            hops: defaults,
        })
    }

    /// Words for the features of a port, by place in `seen`.
    fn feature_words(&self, port: u16) -> Result<Vec<u64>, &'static str> {
        self.words(port, Self::features_of)
    }

    fn local_words(&self, port: u16) -> Result<Vec<u64>, &'static str> {
        self.words(port, Self::local_features_of)
    }

    fn words(
        &self,
        port: u16,
        of: impl Fn(&Self, u16) -> Result<u64, &'static str>,
    ) -> Result<Vec<u64>, &'static str> {
        let own = of(self, port)?;
        let Some(attached) = self.ports.get(&port) else { return Ok(Vec::new()) };
        let mut words = vec![0; attached.seen.places()];
        words[0] = own;
        for vlan in vlans::read_by(self, port) {
            let place = usize::try_from(attached.seen.place(vlan.port)).unwrap_or(0);
            words[place] = of(self, vlan.port)?;
        }
        Ok(words)
    }

    /// Whether the program of a port is no longer the one for its features; what it reads for those in `exchanged` was
    /// exchanged.
    fn is_outdated(&self, port: u16, exchanged: u64) -> bool {
        let Some(attached) = self.ports.get(&port) else { return false };
        type Had = Result<Option<PortFeatures>, String>;
        type Has = Result<Vec<u64>, &'static str>;
        let is_outdated = |had: &Had, has: Has| match (had, has) {
            (Err(had), Err(has)) => had != has,
            (Ok(None), Ok(words)) => !is_plain(&words),
            (Ok(Some(had)), Ok(words)) => had.words != words || had.any(exchanged),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => true,
        };
        is_outdated(&attached.features, self.feature_words(port))
            || is_outdated(&attached.local_features, self.local_words(port))
    }

    /// Whether a change of default routes is one for programs.
    pub(super) fn reads_defaults(&self) -> bool {
        let loose = |info: &PortInfo| info.urpf == Some(UrpfMode::Loose);
        let ports = self.forwarding.as_ref().map(|known| &known.ports);
        ports.is_some_and(|ports| ports.ports.iter().flatten().any(loose))
    }
}

impl<'a> Names<'a> {
    /// What a program with features reads; without, none of it is looked at.
    pub(super) fn features(
        &mut self,
        features: Option<&'a PortFeatures>,
        lists: Option<&'a Lists>,
    ) {
        let has = |bits| features.is_some_and(|features| features.any(bits));
        let lists = lists.filter(|_| has(FILTERS));
        self.memory("ingress", features.map_or(self.any, |features| &features.ports));
        self.memory("defaults", features.map_or(self.any, |features| &features.defaults));
        self.number("urpf", has(URPF).into());
        self.number("lists", lists.is_some().into());
        self.memory("verdicts", lists.map_or(self.any, |lists| &lists.verdicts));
        self.number("verdicts_last", lists.map_or(0, |lists| lists.masks - 1));
        let hits = lists.and_then(|lists| SharedMemory::of(lists.filters.kernel_hits()?));
        self.memory("hits", hits.unwrap_or(self.any));
        self.table(LISTS, lists.and_then(|lists| lists.v4.as_deref()));
        self.table(LISTS, lists.and_then(|lists| lists.v6.as_deref()));
    }

    /// What a program with access lists reads.
    pub(super) fn acls(
        &mut self,
        features: Option<&PortFeatures>,
        acls: Option<&'a AccessLists>,
        scratch: &'a SharedMemory,
    ) {
        let has = features.is_some_and(|features| features.any(ACL));
        let kernel = acls.filter(|_| has).and_then(AccessLists::kernel);
        for (name, last_name, region) in [
            ("acl", "acl_mask", kernel.map(|kernel| &kernel.rows)),
            ("acl_hits", "acl_hits_last", kernel.map(|kernel| &kernel.hits)),
        ] {
            self.memory(name, region.and_then(SharedMemory::of).unwrap_or(self.any));
            self.number(last_name, region.map_or(0, |region| last(region, 16)));
        }
        self.memory("acl_scratch", scratch);
        self.number("acls", kernel.is_some().into());
        self.number("acl_counts", kernel.is_some_and(|kernel| kernel.counts).into());
        self.number("acl_inexact", kernel.is_some_and(|kernel| kernel.inexact).into());
        self.number("acl_stride", kernel.map_or(0, |kernel| kernel.stride as u64));
    }
}

impl Forwarder {
    /// What the lists of source filters share with programs, for so many CPUs: [`SourceFilters::share`]. To be called
    /// before [`Forwarder::set_source_filters`], by a thread that may take its time; else that one does it.
    ///
    /// # Errors
    /// No memory, in words.
    pub fn share(&self, filters: &SourceFilters) -> Result<(), String> {
        if self.0.only_guards && !filters.any_local() {
            return Ok(());
        }
        let memory = self.0.lists.maker();
        let shared = Shared { memory, reads: is_kernel_readable, ahead: None, fib: 0 };
        filters.share(&shared, self.0.epochs.cpus())
    }

    /// Whether the features for packets to the router itself are applied on a port, or why not; of a VLAN interface, on
    /// the one that it is on.
    pub fn guards(&self, port: u16) -> Option<Result<(), String>> {
        let state = self.state();
        let vlan = state.vlans.iter().find(|vlan| vlan.port == port);
        let attached = state.ports.get(&vlan.map_or(port, |vlan| vlan.parent))?;
        Some(attached.local_features.as_ref().map(drop).map_err(Clone::clone))
    }

    /// What access lists share with programs: as [`Forwarder::share`], before [`Forwarder::set_access_lists`].
    ///
    /// # Errors
    /// No memory, in words.
    pub fn share_access_lists(&self, acls: &AccessLists) -> Result<(), String> {
        if self.0.only_guards && !acls.any_local() {
            return Ok(());
        }
        acls.share(&self.0.acls.maker(), self.0.epochs.cpus())
    }

    /// The access lists from now on, by the ports that they are for by now: as [`Forwarder::set_source_filters`].
    ///
    /// # Errors
    /// No memory, in words: the interfaces with lists are the graph's.
    pub fn set_access_lists(&self, acls: Option<Arc<AccessLists>>) -> Result<(), String> {
        let acls = acls.filter(|acls| !self.0.only_guards || acls.any_local());
        let shared = acls.as_ref().map_or(Ok(()), |acls| self.share_access_lists(acls));
        let mut state = self.state();
        let address = |acls: &Option<Arc<AccessLists>>| acls.as_ref().map(Arc::as_ptr);
        let exchanged = if address(&state.acls) == address(&acls) { 0 } else { ACL };
        let before = std::mem::replace(&mut state.acls, acls);
        self.relink_outdated(&mut state, exchanged);
        drop((state, before));
        shared
    }

    /// The source filters from now on, by the ports that they are [for](SourceFilters::follow) by now: to be called when
    /// either has changed, before packets of a new port arrive. Ports whose lists programs cannot read are the graph's.
    ///
    /// # Errors
    /// No memory, in words: the interfaces with lists are the graph's.
    pub fn set_source_filters(&self, filters: Option<Arc<SourceFilters>>) -> Result<(), String> {
        let used = |filters: &Arc<SourceFilters>| {
            !filters.is_empty() && (!self.0.only_guards || filters.any_local())
        };
        let Some(filters) = filters.filter(used) else {
            let mut state = self.state();
            state.lists = None;
            self.relink_outdated(&mut state, FILTERS);
            return Ok(());
        };
        let shared = self.share(&filters);
        let mut state = self.state();
        let known = state.lists.as_ref();
        let id = filters.lists_id();
        let same_lists = known.is_some_and(|known| known.filters.lists_id() == id);
        let same = known.is_some_and(|known| Arc::ptr_eq(&known.filters, &filters));
        if !same {
            let verdicts: Vec<&str> = filters.verdicts().collect();
            let memory = match SharedMemory::new("verdicts", verdicts.len()) {
                Ok(memory) => memory,
                Err(error) => {
                    state.lists = None;
                    self.relink_outdated(&mut state, FILTERS);
                    return Err(error.to_string());
                }
            };
            let cells = memory.region("verdicts", verdicts.len());
            for (cell, verdict) in cells.u8s().iter().zip(&verdicts) {
                let number = (0..).zip(VERDICTS).find(|(_, name)| name == verdict);
                cell.store(number.map_or(2, |(number, _)| number), Relaxed);
            }
            let before = state.lists.take().filter(|_| same_lists);
            let (v4, v6) = before.map_or((None, None), |before| (before.v4, before.v6));
            let masks = verdicts.len() as u64;
            let lists = Lists { filters: filters.clone(), verdicts: memory, masks, v4, v6 };
            state.lists = Some(lists);
        }
        if !same_lists {
            // They follow at once, each for its family, which takes the state.
            drop(state);
            let forwarder = || Arc::downgrade(&self.0);
            let reader = || ListReader { forwarder: forwarder(), id, marks: Marks::default() };
            filters.set_kernel_readers(Box::new(reader()), Box::new(reader()));
            state = self.state();
        }
        self.relink_outdated(&mut state, if same { 0 } else { FILTERS });
        shared
    }

    /// Exchanges the programs of ports that have other features, or those in `exchanged`.
    pub(super) fn relink_outdated(&self, state: &mut State, exchanged: u64) {
        let ports = state.ports.keys().copied();
        let outdated = ports.filter(|port| state.is_outdated(*port, exchanged));
        for port in outdated.collect::<Vec<_>>() {
            let put = self.relink(state, port);
            self.note_stuck(state, port, put);
        }
    }
}

/// The programs as readers of the lists of a family.
struct ListReader {
    /// Who is gone has no programs.
    forwarder: Weak<Inner>,
    /// Identity of the lists, which keep this reader.
    id: usize,
    marks: Marks,
}

impl ListReader {
    /// `take` answers whether there was another structure before.
    fn follow(&self, take: impl FnOnce(&mut Lists) -> bool) {
        let Some(inner) = self.forwarder.upgrade() else { return };
        let forwarder = Forwarder(inner);
        let mut state = forwarder.state();
        let here = |lists: &&mut Lists| lists.filters.lists_id() == self.id;
        if state.lists.as_mut().filter(here).is_some_and(take) {
            forwarder.relink_outdated(&mut state, FILTERS);
        }
    }

    fn mark(&self, epoch: Epoch) {
        if let Some(inner) = self.forwarder.upgrade() {
            inner.epochs.mark_in(&self.marks, epoch);
        }
    }

    fn passed(&self, epoch: Epoch) -> bool {
        let passed = |inner: Arc<Inner>| {
            inner.epochs.passed_in(&self.marks, epoch) && !inner.stuck.load(Relaxed)
        };
        self.forwarder.upgrade().is_none_or(passed)
    }
}

macro_rules! list_reader {
    ($addr:ty, $family:ident) => {
        impl KernelReader<Arc<dyn Lookup<$addr>>> for ListReader {
            fn follow(&mut self, lookup: &Arc<dyn Lookup<$addr>>) {
                ListReader::follow(self, |lists| lists.$family.replace(lookup.clone()).is_some());
            }
            fn mark(&mut self, epoch: Epoch) {
                ListReader::mark(self, epoch);
            }
            fn passed(&self, epoch: Epoch) -> bool {
                ListReader::passed(self, epoch)
            }
        }
    };
}
list_reader!(u32, v4);
list_reader!(u128, v6);

/// Whether ports with these words have no features.
fn is_plain(words: &[u64]) -> bool {
    words.iter().all(|word| word >> 16 == 0)
}

/// Whether programs do without these lists.
fn is_unreadable(acls: &AccessLists) -> bool {
    let shared = |region| SharedMemory::of(region).is_some();
    acls.kernel().is_none_or(|kernel| !shared(&kernel.rows) || !shared(&kernel.hits))
}

/// Why packets whose sources are looked up in all paths are not for programs.
const FEASIBLE: &str = "the graph alone looks sources up in all paths (urpf feasible)";
/// Why packets that arrive there are not for programs.
const GRAPH_ONLY: &str = "a feature of the interface runs only in the graph: see `interface show`";
