//! Members that the store has no more while their links are up: they stay members.
//!
//! A session of the store ends where its node cannot reach the store, which is no fault of the links: forwarding never
//! depends on the store. A node that leaves is dropped once its links are down, one that dies once they have been for a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_cluster::rule::NodeId;
use fingerpost_cluster::store::member::{Membership, Record, clash};

/// The members of the store, and those that are kept beside them.
pub(super) struct Kept {
    stored: Arc<Membership>,
    /// Each with the end of its time.
    records: Vec<(Record, Instant)>,
}

impl Kept {
    /// These members of the store, and no others.
    pub(super) fn new(stored: Arc<Membership>) -> Self {
        Self { stored, records: Vec::new() }
    }

    /// Takes what the store has by now, where the members were `before`. Those that the store no longer has are kept for `hold` at
    /// most, each as long as `stays` returns true for it. Returns the members, unless they are as they were.
    pub(super) fn follow(
        &mut self,
        stored: Arc<Membership>,
        before: &Membership,
        hold: Duration,
        stays: impl Fn(NodeId) -> bool,
    ) -> Option<Arc<Membership>> {
        let (is_new, now) = (!Arc::ptr_eq(&stored, &self.stored), Instant::now());
        if is_new {
            self.stored = stored;
            for record in &before.members {
                if !self.records.iter().any(|(kept, _)| kept.id == record.id) {
                    self.records.push((record.clone(), now + hold));
                }
            }
        }
        let count = self.records.len();
        let members = &self.stored.members;
        let replaces = |member: &Record, record: &Record| {
            member.id == record.id || clash(member, record).is_some()
        };
        self.records.retain(|(record, until)| {
            now < *until
                && stays(record.number)
                && !members.iter().any(|member| replaces(member, record))
        });
        if !is_new && self.records.len() == count {
            return None;
        }
        let kept = self.records.iter().map(|(record, _)| record.clone());
        let mut membership = (*self.stored).clone();
        membership.members.extend(kept);
        membership.members.sort_by_key(|record| record.number);
        Some(Arc::new(membership))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(3600);

    fn stored(members: &[(&str, NodeId)]) -> Arc<Membership> {
        let record = |&(id, number): &(&str, NodeId)| Record {
            id: id.to_owned(),
            number,
            ..Record::default()
        };
        let members = members.iter().map(record).collect();
        Arc::new(Membership { members, ..Membership::default() })
    }

    fn ids(membership: &Membership) -> Vec<&str> {
        membership.members.iter().map(|record| &*record.id).collect()
    }

    #[test]
    fn a_member_that_the_store_lost_stays_while_its_links_are_up() {
        let all = stored(&[("a", 1), ("b", 2), ("c", 3)]);
        let mut kept = Kept::new(all.clone());
        assert!(kept.follow(all.clone(), &all, HOLD, |_| true).is_none());
        let less = stored(&[("a", 1), ("c", 3)]);
        let now = kept.follow(less.clone(), &all, HOLD, |_| true).unwrap();
        assert_eq!(ids(&now), ["a", "b", "c"]);
        assert!(kept.follow(less.clone(), &now, HOLD, |_| true).is_none(), "nothing changes");
        let gone = kept.follow(less.clone(), &now, HOLD, |number| number != 2).unwrap();
        assert_eq!(ids(&gone), ["a", "c"]);
        assert!(kept.follow(less, &gone, HOLD, |_| true).is_none(), "it does not come back");
    }

    #[test]
    fn it_gives_way_to_its_own_record_and_to_who_has_its_number() {
        let all = stored(&[("a", 1), ("b", 2)]);
        let mut kept = Kept::new(all.clone());
        let now = kept.follow(stored(&[("a", 1)]), &all, HOLD, |_| true).unwrap();
        assert_eq!(ids(&now), ["a", "b"]);
        let again = kept.follow(stored(&[("a", 1), ("b", 4)]), &now, HOLD, |_| true).unwrap();
        assert_eq!(again.members.iter().map(|record| record.number).collect::<Vec<_>>(), [1, 4]);
        let now = kept.follow(stored(&[("a", 1)]), &again, HOLD, |_| true).unwrap();
        let other = kept.follow(stored(&[("a", 1), ("z", 4)]), &now, HOLD, |_| true).unwrap();
        assert_eq!(ids(&other), ["a", "z"]);
        let none = kept.follow(stored(&[("a", 1)]), &other, Duration::ZERO, |_| true).unwrap();
        assert_eq!(ids(&none), ["a"], "its time is over");
    }
}
