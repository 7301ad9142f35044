//! Which thread runs which element: `StaticThreadSched`, `BalancedThreadSched`, and locks between threads (`SpinlockAcquire`,
//! `SpinlockRelease`, `SpinlockPush`, `SpinlockInfo`): hints that mean nothing here, as each worker has a graph of its own.
//!
//! Source: Click's elements of these names. They are taken with a warning.

use super::each::class;
use super::info;
use crate::graph::{ElementClass, Made, Setup};
use crate::language::{ClassSpec, ConfigError};

pub(crate) const STATIC: ElementClass = hint("StaticThreadSched");
pub(crate) const BALANCED: ElementClass = hint("BalancedThreadSched");
pub(crate) const LOCKS: ElementClass = hint("SpinlockInfo");
pub(crate) const ACQUIRE: ElementClass = class("SpinlockAcquire", PASSES, passes);
pub(crate) const RELEASE: ElementClass = class("SpinlockRelease", PASSES, passes);

pub(crate) const PUSH: ElementClass = ElementClass {
    spec: ClassSpec::new("SpinlockPush", "1/1", "h/h", "x/x"),
    summary: PASSES,
    configure: passes,
};

const PASSES: &str = "passes packets: workers share no element here";

const fn hint(name: &'static str) -> ElementClass {
    ElementClass {
        spec: ClassSpec::new(name, "0/0", "a/a", "x/y"),
        summary: "which thread runs which element: each worker has all elements here",
        configure: passes,
    }
}

fn passes(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let made = info::each(setup, |_| Ok(()))?;
    setup.args.warn_here("each worker has all elements here: nothing is changed by it");
    Ok(made)
}
