//! Names of lookup algorithms on the command line, and the tables that they stand for.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use fingerpost_lpm::{Algorithm, Heap, Lookup, Routes, UpdateError};
use fingerpost_route::fib::Chooser;

use crate::dispatch::{Exit, Failure};
use crate::load::{Family, Half};
use crate::output::message;

/// Word that leaves the choice to the registry, as the daemon does.
pub const AUTO: &str = "auto";
/// Word that means every algorithm.
pub const ALL: &str = "all";

/// Names of the registry, each once, behind `word`, which means several of them.
#[must_use]
pub fn names(word: &'static str) -> Names {
    names_beside(&[word])
}

/// Names of the registry, each once, behind several such words.
#[must_use]
pub fn names_beside(words: &[&'static str]) -> Names {
    let mut names = words.to_vec();
    let v4 = fingerpost_lpm::v4().map(|row| row.name);
    for name in v4.chain(fingerpost_lpm::v6().map(|row| row.name)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Names(PossibleValuesParser::new(names))
}

/// Parser of an algorithm's name, which also knows those that this program was built without.
#[derive(Clone)]
pub struct Names(PossibleValuesParser);

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

/// Parser of [`AUTO`] or one of these names, those of one family.
pub fn names_of(names: impl IntoIterator<Item = &'static str>) -> PossibleValuesParser {
    PossibleValuesParser::new(std::iter::once(AUTO).chain(names))
}

/// Message about an algorithm that this program was built without; `None` for any other name.
#[must_use]
pub fn left_out(name: &str) -> Option<String> {
    let feature = fingerpost_lpm::registry::needs(name)?;
    Some(format!("{name} is in programs built with `--features {feature}`, and not in this one"))
}

/// A table built of routes, with its reader.
pub struct Built<A: Family> {
    /// Name of the algorithm.
    pub name: &'static str,
    /// Its reader.
    pub lookup: Arc<dyn Lookup<A>>,
    /// Time that building took.
    pub took: Duration,
}

impl<A: Family> Built<A> {
    /// Builds the routes into a table of this algorithm.
    ///
    /// # Errors
    /// As [`Algorithm::build`].
    pub fn new(row: &Algorithm<A>, half: &Half<A>) -> Result<Self, UpdateError> {
        let start = Instant::now();
        let lookup = row.build(&half.routes, &mut Heap)?.publish();
        Ok(Self { name: row.name, lookup, took: start.elapsed() })
    }

    /// The algorithm called `name`, or for [`AUTO`] the fittest one. `None` where
    /// the name is not one of this family.
    ///
    /// # Errors
    /// When the table cannot be built.
    pub fn named(name: &str, half: &Half<A>) -> Result<Option<Self>, Failure> {
        if name == AUTO {
            return Self::fittest(half).map(Some);
        }
        let row = A::rows().find(|row| row.name == name);
        row.map(|row| Self::new(row, half).map_err(|error| refused(name, A::FAMILY, &error)))
            .transpose()
    }

    fn fittest(half: &Half<A>) -> Result<Self, Failure> {
        let mut chooser = Chooser::new(A::rows());
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

/// Failure to build a table, with the remedy.
#[must_use]
pub fn refused(name: &str, family: u8, error: &UpdateError) -> Failure {
    let remedy = match error {
        UpdateError::Limit { .. } => "; `fingerpost algorithms --json` lists the limits of all",
        _ => "",
    };
    Failure::new(Exit::Failed, format_args!("{name} (IPv{family}): {error}{remedy}"))
}
