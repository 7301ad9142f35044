//! The writer of a structure that never changes: any change builds a new one.

use alloc::sync::Arc;

use crate::addr::Addr;
use crate::error::UpdateError;
use crate::lookup::{Change, Grace, Lookup, Routes, Table};

/// A reader, and no state beside it.
pub(crate) struct Unchanging<L> {
    pub(crate) reader: Arc<L>,
    /// Greatest next hop that it could hold.
    pub(crate) max_hop: u32,
}

impl<A: Addr, L: Lookup<A> + 'static> Table<A> for Unchanging<L> {
    fn apply(
        &mut self,
        changes: &[Change<A>],
        _: &dyn Routes<A>,
        _: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        Change::greatest_hop(changes, self.max_hop)?;
        if changes.iter().all(|c| c.old == c.new) { Ok(()) } else { Err(UpdateError::Rebuild) }
    }

    fn publish(&mut self) -> Arc<dyn Lookup<A>> {
        self.reader.clone()
    }
}
