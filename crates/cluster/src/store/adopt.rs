//! Parameters as a node has them: read from the store, put there where they are missing, changed by compare-and-set.
//!
//! Source: versions that nodes report before a change is active, as in cluster managers.
//! Shape:  a node takes what it reads at once, but for the mode: that is active when all members have reported the version, or
//!         after a time-out, for which a member of another program or one that hangs holds a change up.
//! Cost:   a read each third of the TTL, and one more when the record of a member has a later version.
//! Limits: two nodes may have different modes for a round trip or two. Frames and their paths are right in both.
//!
//! The later version wins: a store that lost its data, or got old ones back, gets the parameters of the nodes again. What
//! nobody can read stays there until the next change, and the nodes stay with what they have.

use std::sync::Arc;
use std::time::Duration;

use super::parameters::{Change, KEY, Parameters};
use super::{Keep, Store, StoreError};
use crate::fabric::Mode;

/// Most attempts of a change against other ones.
const ATTEMPTS: usize = 16;

/// Parameters of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Latest ones that were read; version 0: those of the configuration, for none could be read yet.
    pub parameters: Arc<Parameters>,
    /// Mode in use.
    pub mode: Mode,
    /// Why the value in the store is not used.
    pub error: Option<String>,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The store does not work. It may have made the change before it failed.
    #[error("{0}; the nodes keep their parameters until it answers")]
    Store(#[from] StoreError),
    /// The change cannot be.
    #[error("{0}")]
    Refused(String),
    /// Others were faster each time.
    #[error("{ATTEMPTS} other changes were made meanwhile: try again")]
    Busy,
}

/// The part of an agent that keeps the parameters.
#[derive(Debug)]
pub(super) struct Adoption {
    adopted: Adopted,
    /// A value of the store was read, or put there.
    begun: bool,
    /// Time since which the mode waits for members.
    waits: Option<Duration>,
}

impl Adoption {
    /// Begins with the parameters of the configuration.
    pub(super) fn new(configured: Parameters) -> Self {
        let parameters = Arc::new(Parameters { version: 0, ..configured });
        let mode = parameters.mode;
        let adopted = Adopted { parameters, mode, error: None };
        Self { adopted, begun: false, waits: None }
    }

    pub(super) fn adopted(&self) -> &Adopted {
        &self.adopted
    }

    /// Version that this node reports.
    pub(super) fn version(&self) -> u64 {
        self.adopted.parameters.version
    }

    fn take(&mut self, parameters: Parameters) {
        if !self.begun {
            // There is no mode that could be left.
            self.adopted.mode = parameters.mode;
            self.begun = true;
        }
        self.adopted.error = None;
        if parameters != *self.adopted.parameters {
            self.adopted.parameters = Arc::new(parameters);
            self.waits = None;
        }
    }

    /// Takes what the store has, and puts it there if that is nothing or of an earlier version.
    pub(super) fn read(&mut self, store: &mut dyn Store) -> Result<(), StoreError> {
        let (revision, own) = match store.get(KEY)? {
            None => {
                let version = self.version().max(1);
                (0, Parameters { version, ..(*self.adopted.parameters).clone() })
            }
            Some(entry) => match Parameters::parse(&entry.value) {
                Ok(found) if found.version < self.version() => {
                    (entry.revision, (*self.adopted.parameters).clone())
                }
                Ok(found) => {
                    self.take(found);
                    return Ok(());
                }
                Err(why) => {
                    self.adopted.error = Some(why.to_string());
                    return Ok(());
                }
            },
        };
        // Who was faster is read the next time.
        if store.swap(KEY, revision, &own.to_bytes(), Keep::Forever)?.is_some() {
            self.take(own);
        }
        Ok(())
    }

    /// Changes them in the store. Returns the new version.
    pub(super) fn change(
        &mut self,
        store: &mut dyn Store,
        change: &Change,
    ) -> Result<u64, ChangeError> {
        for _ in 0..ATTEMPTS {
            let found = store.get(KEY)?;
            let revision = found.as_ref().map_or(0, |entry| entry.revision);
            let stored = found.and_then(|entry| Parameters::parse(&entry.value).ok());
            let before = stored.filter(|stored| stored.version >= self.version());
            let before = before.unwrap_or_else(|| (*self.adopted.parameters).clone());
            let after = change.apply(&before).map_err(ChangeError::Refused)?;
            if store.swap(KEY, revision, &after.to_bytes(), Keep::Forever)?.is_some() {
                let version = after.version;
                self.take(after);
                return Ok(version);
            }
        }
        Err(ChangeError::Busy)
    }

    /// Activates the mode if no member lags behind, or one has for `longest`.
    pub(super) fn settle(&mut self, lags: bool, now: Duration, longest: Duration) {
        let wanted = self.adopted.parameters.mode;
        if wanted == self.adopted.mode {
            self.waits = None;
            return;
        }
        let since = *self.waits.get_or_insert(now);
        if !lags || now.saturating_sub(since) >= longest {
            self.adopted.mode = wanted;
            self.waits = None;
        }
    }

    /// The store is lost: the time until a mode is active begins anew with it.
    pub(super) fn lost(&mut self) {
        self.waits = None;
    }
}
