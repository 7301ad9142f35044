//! What a node does with a store: publishes its record, takes a number, and keeps the membership.
//!
//! Source: our own; leases and compare-and-set as in any cluster manager. Fail-static as in SDN agents: without the store the
//!         last membership stands.
//! Shape:  `member/ID` has the record of a node and vanishes with its session; `number/N` has the owner of a number and stays
//!         when it has left, with the time of that, so that the number goes to nobody else within the hold time. `parameters`
//!         has those of the cluster: who changes them reports the new version in its record, so that the watch of the members
//!         wakes the others.
//! Cost:   a keep-alive and a read of the parameters each third of the TTL, and a watch.
//! Limits: hold times compare the clocks of nodes, to the second. The store is called by the thread that calls `step`.
//!
//! Sans-clock: every call has the time with it. A thread calls `step` in a loop and waits as long as its answer demands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::adopt::{Adopted, Adoption, ChangeError};
use super::member::{Conflict, Membership, Record};
use super::parameters::{Change, Parameters};
use super::value::ValueError;
use super::{Event, Keep, Store, StoreError};
use crate::rule::MAX_NODES;

const MEMBERS: &str = "member/";
const NUMBERS: &str = "number/";

/// How an agent behaves.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// TTL of the session with the store.
    pub ttl: Duration,
    /// A number that its node left goes to no other node for this time.
    pub hold: Duration,
    /// Longest that a step waits for changes.
    pub poll: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(5),
            hold: Duration::from_secs(3600),
            poll: Duration::from_secs(1),
        }
    }
}

/// The time of a call.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Monotonic time.
    pub now: Duration,
    /// Seconds since 1970.
    pub unix_s: u64,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whether the membership is another one.
    pub changed: bool,
    /// How long to wait before the next step.
    pub wait: Duration,
}

/// Why a node is not among the members.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The store does not work; forwarding continues with the last membership.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The configured number belongs to a node that is there.
    #[error("number {number} of this node belongs to member {owner}")]
    NumberTaken {
        /// The number.
        number: u16,
        /// Who has it.
        owner: String,
    },
    /// Another node with the name of this one is there.
    #[error(
        "another node is named {id} (boot id {boot:08x}): give one of them another name; a node that crashed is \
         forgotten within its TTL"
    )]
    NameTaken {
        /// The name.
        id: String,
        /// Its boot id.
        boot: u32,
    },
    /// No number is free.
    #[error("no number from 1 to {} is free", MAX_NODES - 1)]
    NoNumber,
}

/// Who has a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    id: String,
    /// When somebody saw that it had left.
    #[serde(default)]
    left_unix_s: Option<u64>,
}

/// The state of a node toward its store.
pub struct Agent {
    settings: Settings,
    own: Record,
    /// Number of the configuration; 0: the lowest that is free.
    configured: u16,
    /// The own record in the store is ours, under our session.
    registered: bool,
    /// It was so once.
    joined: bool,
    /// The own record is not in the store as it is here.
    dirty: bool,
    keep_alive_at: Duration,
    retry_at: Duration,
    lost_since: Option<Duration>,
    error: Option<AgentError>,
    revision: u64,
    records: BTreeMap<String, Result<Record, ValueError>>,
    /// Members that were not there when the store came back, and until when that is no reason to let them go.
    lingering: BTreeMap<String, Duration>,
    /// Until when the sessions of before a loss of the store may end, of nodes that are there.
    settled_at: Duration,
    /// Another node writes the own record.
    twin: bool,
    membership: Arc<Membership>,
    parameters: Adoption,
}

impl Agent {
    /// An agent for a node; number 0 of its record takes the lowest that is free.
    #[must_use]
    pub fn new(settings: Settings, own: Record) -> Self {
        Self {
            settings,
            configured: own.number,
            own,
            registered: false,
            joined: false,
            dirty: false,
            keep_alive_at: Duration::ZERO,
            retry_at: Duration::ZERO,
            lost_since: None,
            error: None,
            revision: 0,
            records: BTreeMap::new(),
            lingering: BTreeMap::new(),
            settled_at: Duration::ZERO,
            twin: false,
            membership: Arc::default(),
            parameters: Adoption::new(Parameters::default()),
        }
    }

    /// Has the store get these parameters if it has none.
    #[must_use]
    pub fn with_parameters(self, configured: Parameters) -> Self {
        Self { parameters: Adoption::new(configured), ..self }
    }

    /// The parameters, the last known ones when the store is lost.
    #[must_use]
    pub fn parameters(&self) -> &Adopted {
        self.parameters.adopted()
    }

    /// Changes the parameters in the store. Returns their new version, which this node has from then on.
    ///
    /// # Errors
    /// When the store does not answer, or the change cannot be.
    pub fn change(&mut self, store: &mut dyn Store, change: &Change) -> Result<u64, ChangeError> {
        let version = self.parameters.change(store, change)?;
        self.report_version();
        Ok(version)
    }

    /// The membership, the last known one when the store is lost.
    #[must_use]
    pub fn membership(&self) -> Arc<Membership> {
        self.membership.clone()
    }

    /// Why this node is not registered, if it is not.
    #[must_use]
    pub fn error(&self) -> Option<&AgentError> {
        self.error.as_ref()
    }

    /// Whether this node was registered once, so that its number is certain.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        self.joined
    }

    /// The own record, with its number once it has one.
    #[must_use]
    pub fn own(&self) -> &Record {
        &self.own
    }

    /// Changes the own record. Its id, number and version of the parameters stay; the next step publishes it.
    pub fn publish(&mut self, record: Record) {
        let Record { id, number, parameters, .. } = &self.own;
        let record = Record { id: id.clone(), number: *number, parameters: *parameters, ..record };
        if record != self.own {
            self.own = record;
            self.dirty = true;
        }
    }

    /// One round with the store: registers if that is due, keeps alive, publishes, and waits for changes.
    pub fn step(&mut self, store: &mut dyn Store, clock: Clock) -> Step {
        if clock.now < self.retry_at {
            return Step { changed: false, wait: self.retry_at.saturating_sub(clock.now) };
        }
        match self.round(store, clock) {
            Ok(()) => {
                self.lost_since = None;
                self.error = None;
                let lags = self.lags();
                self.parameters.settle(lags, clock.now, self.settings.ttl * 2);
            }
            Err(error) => {
                if matches!(error, AgentError::Store(_)) {
                    self.lost_since.get_or_insert(clock.now);
                }
                self.parameters.lost();
                self.error = Some(error);
                self.registered = false;
                self.retry_at = clock.now + (self.settings.ttl / 4).min(Duration::from_secs(1));
            }
        }
        let wait = self.retry_at.saturating_sub(clock.now);
        Step { changed: self.renew(), wait }
    }

    /// Takes the node out of the membership, as the last call. Its number is held for it.
    ///
    /// # Errors
    /// When the store does not answer; the session ends by itself then.
    pub fn leave(&mut self, store: &mut dyn Store, clock: Clock) -> Result<(), StoreError> {
        if self.registered {
            self.registered = false;
            store.delete(&format!("{MEMBERS}{}", self.own.id))?;
            self.mark_left(store, self.own.number, &self.own.id, clock)?;
        }
        Ok(())
    }

    fn round(&mut self, store: &mut dyn Store, clock: Clock) -> Result<(), AgentError> {
        if self.registered && clock.now >= self.keep_alive_at {
            match store.keep_alive() {
                Ok(()) => {
                    self.keep_alive_at = clock.now + self.settings.ttl / 3;
                    self.read_parameters(store)?;
                }
                Err(StoreError::LeaseLost) => self.registered = false,
                Err(error) => return Err(error.into()),
            }
        }
        if !self.registered {
            self.register(store, clock)?;
        } else if self.dirty {
            self.write(store)?;
        }
        let (records, lingering) = (&mut self.records, &mut self.lingering);
        lingering.retain(|id, until| {
            let stays = *until > clock.now;
            if !stays {
                records.remove(id);
            }
            stays
        });
        match store.watch(MEMBERS, self.revision, self.settings.poll.min(self.settings.ttl / 3)) {
            Ok(found) => {
                for event in &found.items {
                    self.apply(store, event, clock)?;
                }
                self.revision = self.revision.max(found.revision);
            }
            // The list of a new registration has what the watch has not.
            Err(StoreError::Compacted { .. }) => self.registered = false,
            Err(error) => return Err(error.into()),
        }
        if self.registered && self.peers().any(|record| record.parameters > self.own.parameters) {
            self.read_parameters(store)?;
            if self.dirty {
                self.write(store)?;
            }
        }
        Ok(())
    }

    /// Records of the other members.
    fn peers(&self) -> impl Iterator<Item = &Record> {
        let own = &self.own;
        let records = self.records.values().filter_map(|record| record.as_ref().ok());
        records.filter(|record| record.id != own.id && record.cluster == own.cluster)
    }

    /// Whether a member has not reported the version of the parameters that this node has.
    fn lags(&self) -> bool {
        let version = self.parameters.version();
        self.peers().any(|record| record.parameters < version)
    }

    fn read_parameters(&mut self, store: &mut dyn Store) -> Result<(), StoreError> {
        self.parameters.read(store)?;
        self.report_version();
        Ok(())
    }

    fn report_version(&mut self) {
        let version = self.parameters.version();
        self.dirty |= std::mem::replace(&mut self.own.parameters, version) != version;
    }

    /// Lists all members, takes a number and writes the own record.
    fn register(&mut self, store: &mut dyn Store, clock: Clock) -> Result<(), AgentError> {
        // The session may be about to end, and not every store renews it with a record that is put under it.
        match store.keep_alive() {
            Ok(()) | Err(StoreError::LeaseLost) => {}
            Err(error) => return Err(error.into()),
        }
        let found = store.list(MEMBERS)?;
        let mut records = BTreeMap::new();
        for entry in &found.items {
            let Some(id) = entry.key.strip_prefix(MEMBERS) else { continue };
            if id == self.own.id {
                match Record::parse(&entry.value) {
                    Ok(twin) if !self.joined && twin.boot != self.own.boot => {
                        return Err(AgentError::NameTaken { id: twin.id, boot: twin.boot });
                    }
                    _ => continue,
                }
            }
            records.insert(id.to_owned(), Record::parse(&entry.value));
        }
        // They have to register again as we do; until then they are where they were.
        let until = clock.now + self.settings.ttl * 2;
        if self.joined {
            self.settled_at = until;
        }
        // Those that have registered since are there by themselves.
        self.lingering.retain(|id, _| !records.contains_key(id));
        for (id, record) in std::mem::take(&mut self.records) {
            if self.joined && !records.contains_key(&id) {
                self.lingering.insert(id.clone(), until);
                records.insert(id, record);
            }
        }
        self.records = records;
        self.revision = found.revision;
        self.own.number = self.take_number(store, clock)?;
        self.read_parameters(store)?;
        self.write(store)?;
        self.registered = true;
        self.joined = true;
        // The data plane has it by now.
        self.configured = self.own.number;
        self.twin = false;
        self.keep_alive_at = clock.now + self.settings.ttl / 3;
        Ok(())
    }

    fn write(&mut self, store: &mut dyn Store) -> Result<(), StoreError> {
        let key = format!("{MEMBERS}{}", self.own.id);
        store.put(&key, &self.own.to_bytes(), Keep::Leased)?;
        self.dirty = false;
        Ok(())
    }

    /// The number of this node: the configured one, else the one it had, else the lowest that is free.
    fn take_number(&self, store: &mut dyn Store, clock: Clock) -> Result<u16, AgentError> {
        let mut owners = BTreeMap::new();
        for entry in store.list(NUMBERS)?.items {
            let number = entry.key.strip_prefix(NUMBERS).and_then(|number| number.parse().ok());
            let Some(number) = number else { continue };
            // What nobody can read belongs to nobody.
            let owner = serde_json::from_slice::<Owner>(&entry.value).ok();
            owners.insert(number, (entry.revision, owner));
        }
        let mine = |(number, (_, owner)): (&u16, &(u64, Option<Owner>))| {
            owner.as_ref().is_some_and(|owner| owner.id == self.own.id).then_some(*number)
        };
        let last = u16::try_from(MAX_NODES - 1).unwrap_or(u16::MAX);
        let candidates: Vec<u16> = match self.configured {
            0 => owners.iter().filter_map(mine).chain(1..=last).collect(),
            number => vec![number],
        };
        for number in candidates {
            let (revision, owner) = owners.get(&number).cloned().unwrap_or((0, None));
            if let Some(owner) = owner.filter(|owner| owner.id != self.own.id) {
                if self.records.contains_key(&owner.id) {
                    if self.configured != 0 {
                        return Err(AgentError::NumberTaken { number, owner: owner.id });
                    }
                    continue;
                }
                // An operator who gives a number away knows that its node is gone.
                if self.configured == 0 && !self.is_free(store, number, &owner, clock)? {
                    continue;
                }
            }
            let owner = Owner { id: self.own.id.clone(), left_unix_s: None };
            let (key, value) = (format!("{NUMBERS}{number}"), to_bytes(&owner));
            if store.swap(&key, revision, &value, Keep::Forever)?.is_some() {
                return Ok(number);
            }
            // Somebody else was first; the next step lists the numbers anew.
            if self.configured != 0 {
                return Err(AgentError::NumberTaken { number, owner: "another node".to_owned() });
            }
        }
        Err(AgentError::NoNumber)
    }

    /// Whether the hold time of a number is over; it begins when somebody notices that the owner is gone.
    fn is_free(
        &self,
        store: &mut dyn Store,
        number: u16,
        owner: &Owner,
        clock: Clock,
    ) -> Result<bool, StoreError> {
        match owner.left_unix_s {
            Some(left) => Ok(clock.unix_s >= left.saturating_add(self.settings.hold.as_secs())),
            None => {
                self.mark_left(store, number, &owner.id, clock)?;
                Ok(self.settings.hold.is_zero())
            }
        }
    }

    /// Notes when the owner of a number left, unless that is known or the number is another's by now.
    fn mark_left(
        &self,
        store: &mut dyn Store,
        number: u16,
        id: &str,
        clock: Clock,
    ) -> Result<(), StoreError> {
        let key = format!("{NUMBERS}{number}");
        let Some(entry) = store.get(&key)? else { return Ok(()) };
        let owner: Option<Owner> = serde_json::from_slice(&entry.value).ok();
        if owner.is_some_and(|owner| owner.id == id && owner.left_unix_s.is_none()) {
            let owner = Owner { id: id.to_owned(), left_unix_s: Some(clock.unix_s) };
            store.swap(&key, entry.revision, &to_bytes(&owner), Keep::Forever)?;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        store: &mut dyn Store,
        event: &Event,
        clock: Clock,
    ) -> Result<(), StoreError> {
        let Some(id) = event.key.strip_prefix(MEMBERS) else { return Ok(()) };
        let record = event.value.as_ref().map(|value| Record::parse(value));
        if id == self.own.id {
            match record {
                // Somebody deleted it, or the session ended.
                None => self.registered = false,
                Some(Ok(record)) => self.twin = record.boot != self.own.boot,
                Some(Err(_)) => self.twin = true,
            }
            return Ok(());
        }
        self.lingering.remove(id);
        match record {
            Some(record) => drop(self.records.insert(id.to_owned(), record)),
            None if clock.now < self.settled_at && self.records.contains_key(id) => {
                self.lingering.insert(id.to_owned(), self.settled_at);
            }
            None => {
                if let Some(Ok(record)) = self.records.remove(id) {
                    self.mark_left(store, record.number, id, clock)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the membership anew; true when it is another one but for its revision.
    fn renew(&mut self) -> bool {
        // A node that never was a member knows of no membership.
        let mut membership = if self.own.number == 0 {
            Membership::default()
        } else {
            let before = &self.membership.members;
            Membership::new(Some(&self.own), before, &self.records, self.revision)
        };
        membership.store_lost_since = self.lost_since;
        if self.twin {
            membership.conflicts.push(Conflict::SameId { id: self.own.id.clone() });
        }
        let old = Membership { revision: membership.revision, ..(*self.membership).clone() };
        let changed = old != membership;
        if changed || self.membership.revision != membership.revision {
            self.membership = Arc::new(membership);
        }
        changed
    }
}

fn to_bytes(owner: &Owner) -> Vec<u8> {
    serde_json::to_vec(owner).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::memory::{Memory, Session};
    use super::*;
    use crate::fabric::Mode;
    use crate::rule::Rule;

    const TTL: Duration = Duration::from_secs(6);
    const POLL: Duration = Duration::from_millis(1);

    /// A node with its session. The session lives by real time, the agent by `at`.
    struct Node {
        agent: Agent,
        session: Session,
    }

    impl Node {
        fn new(memory: &Memory, id: &str, number: u16) -> Self {
            let settings = Settings { ttl: TTL, hold: Duration::from_secs(100), poll: POLL };
            let own = Record { id: id.to_owned(), number, boot: 1, ..Record::default() };
            Self { agent: Agent::new(settings, own), session: memory.open(TTL) }
        }

        fn step(&mut self, at: u64) -> Step {
            self.agent.step(&mut self.session, clock(at))
        }

        fn members(&self) -> Vec<(String, u16)> {
            let membership = self.agent.membership();
            membership.members.iter().map(|member| (member.id.clone(), member.number)).collect()
        }
    }

    /// Two nodes that know each other, and the members of which each is one.
    fn two(memory: &Memory) -> (Node, Node, Vec<(String, u16)>) {
        let (mut a, mut b) = (Node::new(memory, "a", 0), Node::new(memory, "b", 0));
        for _ in 0..2 {
            a.step(1);
            b.step(1);
        }
        let both = named(&[("a", 1), ("b", 2)]);
        assert_eq!((a.members(), b.members()), (both.clone(), both.clone()));
        (a, b, both)
    }

    fn clock(at: u64) -> Clock {
        Clock { now: Duration::from_secs(at), unix_s: 1_000_000 + at }
    }

    fn named(members: &[(&str, u16)]) -> Vec<(String, u16)> {
        members.iter().map(|(id, number)| ((*id).to_owned(), *number)).collect()
    }

    #[test]
    fn nodes_take_the_lowest_free_numbers_and_see_each_other() {
        let memory = Memory::default();
        let mut nodes = ["c", "a", "b"].map(|id| Node::new(&memory, id, 0));
        assert!(nodes.each_mut().map(|node| node.step(1)).iter().all(|step| step.changed));
        for node in &mut nodes {
            node.step(2);
            assert_eq!(node.members(), named(&[("c", 1), ("a", 2), ("b", 3)]));
            assert!(!node.step(3).changed);
        }
    }

    #[test]
    fn a_change_of_a_record_reaches_the_others() {
        let memory = Memory::default();
        let (mut a, mut b) = (Node::new(&memory, "a", 0), Node::new(&memory, "b", 0));
        a.step(1);
        b.step(1);
        a.step(1);
        let later = Record { epoch: 5, number: 99, ..b.agent.own().clone() };
        b.agent.publish(later);
        b.step(2);
        assert!(a.step(2).changed);
        assert_eq!(a.agent.membership().members[1], *b.agent.own());
        assert_eq!(b.agent.own().number, 2);
    }

    #[test]
    fn a_number_is_held_for_its_node_and_then_given_away() {
        let memory = Memory::default();
        let (mut a, mut b) = (Node::new(&memory, "a", 0), Node::new(&memory, "b", 0));
        a.step(1);
        b.step(1);
        b.step(1);
        a.agent.leave(&mut a.session, clock(10)).unwrap();
        b.step(10);
        assert_eq!(b.members(), named(&[("b", 2)]));

        let mut c = Node::new(&memory, "c", 0);
        c.step(20);
        assert_eq!(c.agent.own().number, 3);
        let mut again = Node::new(&memory, "a", 0);
        again.step(21);
        assert_eq!(again.agent.own().number, 1);
        again.agent.leave(&mut again.session, clock(30)).unwrap();
        let mut d = Node::new(&memory, "d", 0);
        b.step(30);
        d.step(129);
        assert_eq!(d.agent.own().number, 4);
        let mut e = Node::new(&memory, "e", 0);
        e.step(130);
        assert_eq!(e.agent.own().number, 1);
    }

    #[test]
    fn a_configured_number_of_another_node_is_an_error() {
        let memory = Memory::default();
        let (mut a, mut b) = (Node::new(&memory, "a", 7), Node::new(&memory, "b", 7));
        a.step(1);
        b.step(1);
        assert_eq!(a.agent.own().number, 7);
        let message = b.agent.error().unwrap().to_string();
        assert_eq!(message, "number 7 of this node belongs to member a");
        a.agent.leave(&mut a.session, clock(2)).unwrap();
        b.step(3);
        assert!(b.agent.error().is_none());
        assert_eq!(b.members(), named(&[("b", 7)]));
    }

    #[test]
    fn two_nodes_with_one_name_are_reported() {
        let memory = Memory::default();
        let (mut a, mut b) = (Node::new(&memory, "a", 0), Node::new(&memory, "a", 0));
        b.agent.own.boot = 1234;
        a.step(1);
        b.step(1);
        let message = b.agent.error().unwrap().to_string();
        assert!(message.starts_with("another node is named a (boot id 00000001)"), "{message}");
        assert!(!b.agent.has_joined() && b.members().is_empty());
        // Both were members of a store that is lost, or of the two halves of one.
        b.agent.joined = true;
        b.step(2);
        assert!(a.step(2).changed);
        let conflicts = &a.agent.membership().conflicts;
        assert_eq!(conflicts[..], [Conflict::SameId { id: "a".to_owned() }]);
    }

    #[test]
    fn without_the_store_the_last_membership_stands() {
        let memory = Memory::default();
        let (mut a, _b, both) = two(&memory);
        memory.stop(true);
        let step = a.step(5);
        assert!(step.changed && step.wait > Duration::ZERO, "{step:?}");
        a.step(9);
        assert_eq!(a.members(), both);
        assert_eq!(a.agent.membership().store_lost_since, Some(Duration::from_secs(5)));
        assert!(a.agent.error().unwrap().to_string().contains("unreachable"));

        memory.stop(false);
        assert!(a.step(20).changed);
        assert_eq!(a.members(), both);
        assert_eq!(a.agent.membership().store_lost_since, None);
    }

    #[test]
    fn a_store_that_lost_everything_gets_it_again() {
        let memory = Memory::default();
        let (mut a, mut b, both) = two(&memory);
        let empty = Memory::default();
        memory.stop(true);
        a.step(4);
        b.step(4);
        (a.session, b.session) = (empty.open(TTL), empty.open(TTL));
        // The one that is late lingers, and has its number.
        a.step(8);
        assert_eq!(a.members(), both);
        b.step(9);
        a.step(9);
        assert_eq!(a.members(), both);
        a.step(30);
        assert_eq!(a.members(), both);

        // One that never comes is let go.
        let third = Memory::default();
        empty.stop(true);
        a.step(40);
        a.session = third.open(TTL);
        a.step(50);
        a.step(61);
        assert_eq!(a.members(), both);
        a.step(62);
        assert_eq!(a.members(), named(&[("a", 1)]));
    }

    #[test]
    fn a_session_that_ends_once_the_store_is_back_removes_no_member() {
        let memory = Memory::default();
        let (mut a, mut b, both) = two(&memory);
        memory.stop(true);
        a.step(4);
        b.step(4);
        memory.stop(false);
        a.step(8);
        // The session of before ends when b has not registered again yet.
        memory.open(TTL).delete("member/b").unwrap();
        assert!(!a.step(9).changed);
        assert_eq!(a.members(), both);
        b.step(10);
        a.step(10);
        a.step(60);
        assert_eq!(a.members(), both);
    }

    #[test]
    fn a_second_registration_finds_those_that_registered_between() {
        let memory = Memory::default();
        let (mut a, mut b, both) = two(&memory);
        // A store that has lost everything, and a session that ends once more before b is seen.
        let empty = Memory::default();
        memory.stop(true);
        a.step(4);
        b.step(4);
        (a.session, b.session) = (empty.open(TTL), empty.open(TTL));
        a.step(8);
        empty.stop(true);
        a.step(9);
        empty.stop(false);
        b.step(10);
        empty.open(TTL).delete("member/a").unwrap();
        a.session = empty.open(TTL);
        a.agent.registered = false;
        a.step(11);
        assert_eq!(a.members(), both);
        // Later than either outage lets a member linger; only b itself renews its session meanwhile.
        b.step(20);
        a.step(20);
        b.step(30);
        a.step(30);
        assert_eq!(a.members(), both);
    }

    #[test]
    fn a_new_registration_renews_the_session() {
        let memory = Memory::default();
        let mut a = Node::new(&memory, "a", 0);
        a.session = memory.open(Duration::from_secs(1));
        a.step(1);
        std::thread::sleep(Duration::from_millis(700));
        memory.stop(true);
        a.step(2);
        memory.stop(false);
        assert!(a.step(4).wait.is_zero());
        std::thread::sleep(Duration::from_millis(600));
        assert!(memory.open(TTL).get("member/a").unwrap().is_some());
    }

    #[test]
    fn a_deleted_record_is_written_again() {
        let memory = Memory::default();
        let mut a = Node::new(&memory, "a", 0);
        a.step(1);
        let mut operator = memory.open(TTL);
        operator.delete("member/a").unwrap();
        a.step(2);
        a.step(3);
        assert!(operator.get("member/a").unwrap().is_some());
    }

    #[test]
    fn nonsense_in_the_store_is_a_conflict_and_no_harm() {
        let memory = Memory::default();
        let mut a = Node::new(&memory, "a", 0);
        let mut vandal = memory.open(TTL);
        vandal.put("member/x", b"\xff\x00", Keep::Forever).unwrap();
        vandal.put("member/y", br#"{"version":9}"#, Keep::Forever).unwrap();
        vandal.put("number/1", b"mine", Keep::Forever).unwrap();
        vandal.put("number/banana", b"{}", Keep::Forever).unwrap();
        a.step(1);
        assert_eq!(a.members(), named(&[("a", 1)]));
        let conflicts = a.agent.membership().conflicts.clone();
        let messages: Vec<_> = conflicts.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "the record of x is unreadable: expected value at line 1 column 1",
                "the record of y is unreadable: it has version 9, this program reads version 1",
            ]
        );
    }

    fn change(words: &[(&str, &str)]) -> Change {
        Change::parse(words.iter().copied(), &["a", "b"]).unwrap()
    }

    /// Version that a node has, and the mode it uses.
    fn version(node: &Node) -> (u64, Mode) {
        let Adopted { parameters, mode, .. } = node.agent.parameters();
        (parameters.version, *mode)
    }

    #[test]
    fn the_first_node_writes_its_parameters_and_others_take_them() {
        let memory = Memory::default();
        let node = |id, flowlet_ms| {
            let mut node = Node::new(&memory, id, 0);
            let own = Parameters { flowlet_ms, mode: Mode::Direct, ..Parameters::default() };
            node.agent = node.agent.with_parameters(own);
            node
        };
        let (mut a, mut b) = (node("a", 7), node("b", 9));
        assert_eq!(a.agent.parameters().parameters.version, 0);
        a.step(1);
        b.step(1);
        assert_eq!(a.agent.parameters(), b.agent.parameters());
        let Adopted { parameters, mode, error } = b.agent.parameters();
        assert_eq!((parameters.version, parameters.flowlet_ms), (1, 7));
        assert_eq!((*mode, error), (Mode::Direct, &None));
    }

    #[test]
    fn a_change_reaches_the_others_and_a_mode_waits_for_all() {
        let memory = Memory::default();
        let (mut a, mut b) = (Node::new(&memory, "a", 0), Node::new(&memory, "b", 0));
        a.step(1);
        b.step(1);
        a.step(1);
        let changed = change(&[("rule", "fixed"), ("mode", "direct")]);
        assert_eq!(a.agent.change(&mut a.session, &changed).unwrap(), 2);
        a.step(1);
        assert_eq!((version(&a), version(&b)), ((2, Mode::Vlb), (1, Mode::Vlb)));
        assert_eq!(a.agent.parameters().parameters.rule, Rule::Fixed, "it may differ");
        b.step(1);
        // It has seen that the other one has it.
        assert_eq!(version(&b), (2, Mode::Direct));
        a.step(1);
        assert_eq!(version(&a), (2, Mode::Direct));
        assert_eq!(a.agent.membership().members[1].parameters, 2);
    }

    #[test]
    fn a_member_that_never_reports_holds_a_mode_up_for_a_time() {
        let memory = Memory::default();
        let mut a = Node::new(&memory, "a", 0);
        a.step(1);
        // One whose program knows no parameters.
        let old = Record { id: "b".to_owned(), number: 2, ..Record::default() };
        memory.open(TTL).put("member/b", &old.to_bytes(), Keep::Forever).unwrap();
        a.agent.change(&mut a.session, &change(&[("mode", "direct")])).unwrap();
        a.step(2);
        memory.stop(true);
        a.step(6);
        memory.stop(false);
        // The time without the store does not count.
        for at in [16, 27] {
            a.step(at);
            assert_eq!(version(&a), (2, Mode::Vlb), "{at}");
        }
        a.step(28);
        assert_eq!(version(&a), (2, Mode::Direct));
    }

    #[test]
    fn changes_of_two_nodes_are_both_made() {
        let memory = Memory::default();
        let (mut a, mut b) = (Node::new(&memory, "a", 0), Node::new(&memory, "b", 0));
        a.step(1);
        b.step(1);
        a.agent.change(&mut a.session, &change(&[("weight.b", "3")])).unwrap();
        // It does not know the one of before.
        let made = b.agent.change(&mut b.session, &change(&[("state.a", "draining")])).unwrap();
        let parameters = b.agent.parameters().parameters.clone();
        assert_eq!((made, parameters.weights.get("b")), (3, Some(&3)));
        assert!(parameters.draining.contains("a"));
        b.step(1);
        a.step(1);
        assert_eq!(a.agent.parameters().parameters, parameters);
    }

    #[test]
    fn parameters_stay_while_the_store_is_lost_and_return_to_an_empty_one() {
        let memory = Memory::default();
        let mut a = Node::new(&memory, "a", 0);
        a.step(1);
        a.agent.change(&mut a.session, &change(&[("rule", "vlb")])).unwrap();
        memory.stop(true);
        a.step(4);
        let lost = a.agent.change(&mut a.session, &change(&[("rule", "fixed")]));
        let message = lost.unwrap_err().to_string();
        assert!(message.ends_with("the nodes keep their parameters until it answers"), "{message}");
        assert_eq!((version(&a).0, a.agent.parameters().parameters.rule), (2, Rule::Vlb));
        let empty = Memory::default();
        a.session = empty.open(TTL);
        a.step(8);
        let stored = empty.open(TTL).get("parameters").unwrap().unwrap();
        let stored = Parameters::parse(&stored.value).unwrap();
        assert_eq!((stored.version, stored.rule), (2, Rule::Vlb));
        // Nor does an old backup undo a change.
        let old = Parameters::default().to_bytes();
        empty.open(TTL).put("parameters", &old, Keep::Forever).unwrap();
        a.step(20);
        let stored = empty.open(TTL).get("parameters").unwrap().unwrap();
        assert_eq!(Parameters::parse(&stored.value).unwrap().version, 2);
    }

    #[test]
    fn nonsense_in_the_parameters_is_an_error_until_the_next_change() {
        let memory = Memory::default();
        let mut a = Node::new(&memory, "a", 0);
        a.step(1);
        let before = a.agent.parameters().clone();
        memory.open(TTL).put("parameters", b"{\"format\":9}", Keep::Forever).unwrap();
        a.step(20);
        let Adopted { parameters, error, .. } = a.agent.parameters();
        assert_eq!(*parameters, before.parameters);
        assert_eq!(error.as_deref(), Some("it has format 9, this program reads format 1"));
        // A node that begins has those of its configuration.
        let mut b = Node::new(&memory, "b", 0);
        b.step(20);
        assert_eq!(version(&b), (0, Mode::Vlb));
        assert!(b.agent.parameters().error.is_some());
        a.agent.change(&mut a.session, &change(&[("flowlet_ms", "9")])).unwrap();
        a.step(21);
        b.step(21);
        assert_eq!(a.agent.parameters().error, None);
        assert_eq!(b.agent.parameters(), a.agent.parameters());
        assert_eq!(version(&b).0, 2);
    }

    #[test]
    fn a_watch_that_comes_too_late_lists_again() {
        let memory = Memory::default();
        let (mut a, mut b) = (Node::new(&memory, "a", 0), Node::new(&memory, "b", 0));
        a.step(1);
        b.step(1);
        memory.compact();
        a.step(2);
        a.step(3);
        assert_eq!(a.members(), named(&[("a", 1), ("b", 2)]));
    }
}
