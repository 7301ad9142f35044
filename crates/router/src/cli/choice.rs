//! A table of the algorithm that a command names.

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use fingerpost_command::choice::{ALL, AUTO, names, names_beside};
use fingerpost_lpm::{Algorithm, Heap, Lookup, Routes, UpdateError};
use fingerpost_route::fib::Chooser;

use super::command::{Exit, Failure};
use super::load::{Family, Half};
use super::output::message;

/// A table that can be asked.
pub(crate) struct Built<A: Family> {
    /// Of which algorithm.
    pub(crate) name: &'static str,
    /// Its reader.
    pub(crate) lookup: Arc<dyn Lookup<A>>,
    /// What building it took.
    pub(crate) took: Duration,
}

impl<A: Family> Built<A> {
    /// Builds the routes into a table of this algorithm.
    ///
    /// # Errors
    /// As [`Algorithm::build`].
    pub(crate) fn new(row: &Algorithm<A>, half: &Half<A>) -> Result<Self, UpdateError> {
        let start = Instant::now();
        let lookup = row.build(&half.routes, &mut Heap)?.publish();
        Ok(Self { name: row.name, lookup, took: start.elapsed() })
    }

    /// The algorithm called `name`, or for [`AUTO`] the one that claims to fit best. `None` where
    /// the name is not one of this family.
    ///
    /// # Errors
    /// When the table cannot be built.
    pub(crate) fn named(name: &str, half: &Half<A>) -> Result<Option<Self>, Failure> {
        if name == AUTO {
            return Self::fittest(half).map(Some);
        }
        let row = A::algorithms().into_iter().find(|row| row.name == name);
        row.map(|row| Self::new(row, half).map_err(|error| refused(name, A::FAMILY, &error)))
            .transpose()
    }

    fn fittest(half: &Half<A>) -> Result<Self, Failure> {
        let mut chooser = Chooser::new(A::algorithms());
        loop {
            let row = chooser.choose(None, 0, &mut || half.routes.stats(), Instant::now());
            let Some(row) = row else {
                let words = format!("no algorithm holds this IPv{} table", A::FAMILY);
                return Err(Failure::new(Exit::Failed, words));
            };
            match Self::new(row, half) {
                Ok(built) => return Ok(built),
                Err(error) => {
                    message(format_args!("{}: {error}; taking another algorithm", row.name));
                    chooser.ban(row.name);
                }
            }
        }
    }
}

/// A table that is not built, and what to do about it.
pub(crate) fn refused(name: &str, family: u8, error: &UpdateError) -> Failure {
    let remedy = match error {
        UpdateError::Limit { .. } => "; `fingerpost algorithms --json` lists the limits of all",
        _ => "",
    };
    Failure::new(Exit::Failed, format_args!("{name} (IPv{family}): {error}{remedy}"))
}
