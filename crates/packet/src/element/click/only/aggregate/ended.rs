//! Flows that have ended, for the elements that name the one that numbers flows as their `NOTIFIER`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::flows::MOST_FLOWS;
use crate::graph::Setup;
use crate::language::{Arg, ConfigError};

type Numbers = Mutex<Vec<u32>>;

/// Who wants to know which flows of an element have ended.
#[derive(Default)]
pub(crate) struct Ended {
    wanted: AtomicBool,
    listeners: Mutex<Vec<Weak<Numbers>>>,
}

/// What a lock guards: it is whole whatever panicked beside it.
fn lock<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ended {
    /// The flows of the element that an argument names, where it is one that numbers flows.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) fn of(setup: &mut Setup<'_>, arg: &Arg<'_>) -> Result<Arc<Self>, ConfigError> {
        let name: String = setup.args.read(arg, "NOTIFIER")?;
        match setup.element(&name) {
            Some((number, "AggregateIPFlows" | "AggregateIPAddrPair")) => {
                Ok(setup.shared::<Self>(number))
            }
            _ => {
                let words = format!("NOTIFIER: `{name}` is no element that numbers flows");
                Err(setup.args.refuse(arg, &words))
            }
        }
    }

    /// A list of those that end from now on.
    pub(crate) fn listen(&self) -> Listener {
        let numbers = Arc::default();
        lock(&self.listeners).push(Arc::downgrade(&numbers));
        // Relaxed: an end in the same moment may be one before.
        self.wanted.store(true, Relaxed);
        Listener(numbers)
    }

    /// Adds flows that have ended to all lists.
    pub(super) fn add(&self, ended: impl Iterator<Item = u32> + Clone) {
        if !self.wanted.load(Relaxed) {
            return;
        }
        lock(&self.listeners).retain(|listener| {
            let Some(numbers) = listener.upgrade() else { return false };
            let mut numbers = lock(&numbers);
            // Nobody may come for them.
            let room = MOST_FLOWS.saturating_sub(numbers.len());
            numbers.extend(ended.clone().take(room));
            true
        });
    }
}

/// Numbers of flows that have ended.
pub(crate) struct Listener(Arc<Numbers>);

impl Listener {
    /// Those since the last call.
    pub(crate) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *lock(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listener_has_a_list_of_its_own() {
        let ended = Ended::default();
        ended.add([1].into_iter());
        let (one, other) = (ended.listen(), ended.listen());
        ended.add([2, 3].into_iter());
        assert_eq!((one.take(), one.take(), other.take()), (vec![2, 3], vec![], vec![2, 3]));
        drop(one);
        ended.add([4].into_iter());
        assert_eq!((other.take(), lock(&ended.listeners).len()), (vec![4], 1));
    }
}
