//! Which algorithm: its name on the command line, and a table of it.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use fingerpost_lpm::{Algorithm, Heap, Lookup, Routes, UpdateError};
use fingerpost_route::fib::Chooser;

use super::command::{Exit, Failure};
use super::load::{Family, Half};
use super::output::message;
use crate::config::left_out;

/// Leaves the choice to the registry, as the daemon does.
pub(crate) const AUTO: &str = "auto";
/// Every algorithm there is.
pub(crate) const ALL: &str = "all";

/// Names of the registry, each once, behind `word`, which means several of them.
pub(crate) fn names(word: &'static str) -> Names {
    names_beside(&[word])
}

/// The same behind several words.
pub(crate) fn names_beside(words: &[&'static str]) -> Names {
    let mut names = words.to_vec();
    let v4 = fingerpost_lpm::v4().map(|row| row.name);
    for name in v4.chain(fingerpost_lpm::v6().map(|row| row.name)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Names(PossibleValuesParser::new(names))
}

/// The names, and the word about those that this program was built without.
#[derive(Clone)]
pub(crate) struct Names(PossibleValuesParser);

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        match value.to_str().and_then(left_out) {
            Some(words) => Err(clap::Error::raw(ErrorKind::InvalidValue, words + "\n")),
            None => self.0.parse_ref(command, arg, value),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// [`AUTO`], or a name of this family.
pub(crate) fn names_of<A: Family>() -> PossibleValuesParser {
    let names = A::algorithms().into_iter().map(|row| row.name);
    PossibleValuesParser::new(std::iter::once(AUTO).chain(names))
}

/// The one of a family that a name for both means: `None`, the choice of the FIB, also where it is
/// none of this family.
pub(crate) fn of_family<A: Family>(name: &str) -> Option<&'static str> {
    A::algorithms().into_iter().map(|row| row.name).find(|known| *known == name)
}

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
