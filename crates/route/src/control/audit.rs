//! Truth: what readers are told, compared with the routes ([`crate::fib::audit`]), one table after the
//! other.

use std::time::Instant;

use fingerpost_lpm::UpdateError;

use super::{Control, Table};
use crate::fib::audit::Allowance;
use crate::fib::{Auditor, KernelLookup, Verified};

/// What the tables' auditors share.
#[derive(Debug, Default)]
pub(super) struct Audit {
    allowance: Allowance,
    /// Whose turn it is: of each table IPv4, then IPv6.
    turn: usize,
}

impl Control {
    /// Lets the auditor of one FIB after the other work for the share of a core that the time since the
    /// last call earns. Call it between commits; what it finds wrong is built again by the next one. A
    /// reader outside is asked too, if there is one.
    pub fn audit(&mut self, now: Instant, kernel_reader: Option<&dyn KernelLookup>) {
        let share = self.tables.main().v4.fib.options().audit_share_bp;
        let Some(budget) = self.audit.allowance.at(now, share) else { return };
        let start = Instant::now();
        let clock = &mut Instant::now;
        let at = self.audit.turn;
        let table = self.tables.iter_mut().nth(at / 2).expect("turns are those of tables");
        let fib = u16::try_from(at / 2).expect("fibs are counted in 16 bits");
        let over = match at % 2 {
            0 => table.v4.fib.audit(&table.v4.rib, &|| kernel_reader?.v4(fib), budget, clock),
            _ => table.v6.fib.audit(&table.v6.rib, &|| kernel_reader?.v6(fib), budget, clock),
        };
        if over {
            self.audit.turn = (at + 1) % (2 * self.tables.iter().count());
        }
        self.audit.allowance.spent(start.elapsed());
    }

    /// Makes everything visible and compares all that readers are told with the routes: a result a FIB,
    /// in the order of [`Control::fib_reports`], with the first `limit` differences each. Takes as long
    /// as a pass of the auditor on a whole core.
    ///
    /// # Errors
    /// As [`Control::commit`].
    pub fn verify(&mut self, limit: usize, now: Instant) -> Result<Vec<Verified>, UpdateError> {
        self.commit_now(now)?;
        let both =
            |t: &Table| [t.v4.fib.verify(&t.v4.rib, limit), t.v6.fib.verify(&t.v6.rib, limit)];
        Ok(self.tables.iter().flat_map(both).collect())
    }

    /// Hands over what somebody's own auditors found in a pass over a table ([`crate::fib::Fib::adopt`]).
    /// Whether there was anything; it is built again by the next commit.
    pub fn adopt(
        &mut self,
        table: u32,
        v4: &Auditor<u32>,
        v6: &Auditor<u128>,
        kernel_reader: Option<&dyn KernelLookup>,
    ) -> bool {
        let fib = self.tables.fib(table);
        let Some((fib, table)) = fib.zip(self.tables.get_mut(table)) else { return false };
        let found = table.v4.fib.adopt(v4, &table.v4.rib, &|| kernel_reader?.v4(fib));
        table.v6.fib.adopt(v6, &table.v6.rib, &|| kernel_reader?.v6(fib)) | found
    }
}
