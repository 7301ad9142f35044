//! Which thread runs which element: `StaticThreadSched`, `BalancedThreadSched`, and locks between threads (`SpinlockAcquire`,
//! `SpinlockRelease`, `SpinlockPush`, `SpinlockInfo`): hints that mean nothing here, as each worker has a graph of its own.
//!
//! Source: Click's elements of these names. They are taken with a warning; elements and locks that they name must be there.
//! `StaticThreadSched` also takes the name of a compound, for all elements in it.
//! Differs: numbers of threads are not compared with how many there are.

use super::each::class;
use super::info;
use crate::graph::{ElementClass, Made, Passing, Setup};
use crate::language::{ClassSpec, ConfigError, Declared, Problems};

pub(crate) const STATIC: ElementClass = hint("StaticThreadSched", preferences);
pub(crate) const BALANCED: ElementClass = hint("BalancedThreadSched", balanced);
pub(crate) const LOCKS: ElementClass = hint(LOCKS_NAME, locks);
pub(crate) const ACQUIRE: ElementClass = class("SpinlockAcquire", PASSES, locked);
pub(crate) const RELEASE: ElementClass = class("SpinlockRelease", PASSES, locked);

pub(crate) const PUSH: ElementClass = ElementClass {
    spec: ClassSpec::new("SpinlockPush", "1/1", "h/h", "x/x"),
    summary: PASSES,
    configure: locked,
};

const LOCKS_NAME: &str = "SpinlockInfo";
const NOTHING: &str = "each worker has all elements here: nothing is changed by it";
const PASSES: &str = "passes packets: workers share no element here";

const fn hint(
    name: &'static str,
    configure: fn(&mut Setup<'_>) -> Result<Made, ConfigError>,
) -> ElementClass {
    ElementClass {
        spec: ClassSpec::new(name, "0/0", "a/a", "x/y"),
        summary: "which thread runs which element: each worker has all elements here",
        configure,
    }
}

fn preferences(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    while let Some(arg) = setup.args.next_of_any() {
        let words: Vec<_> = arg.words().collect();
        let [element, thread] = &words[..] else {
            setup.args.refuse(&arg, "expected ELEMENT THREAD");
            continue;
        };
        if let Ok(name) = setup.args.read::<String>(element, "ELEMENT")
            && !is_known(setup, &name)
        {
            setup.args.refuse(element, &format!("`{name}` does not name an element"));
        }
        // What is wrong with it is reported, as all else.
        let _ = setup.args.read::<i32>(thread, "THREAD");
    }
    passes(setup)
}

/// Whether a name means an element here, or a compound in its own one.
fn is_known(setup: &Setup<'_>, name: &str) -> bool {
    let Some(configuration) = setup.around.configuration else { return true };
    let own = setup.name();
    let compound = own.rfind('/').map_or("", |slash| &own[..=slash]);
    let within = format!("{compound}{name}/");
    setup.element(name).is_some()
        || configuration.elements().iter().any(|element| element.name.starts_with(&within))
}

fn balanced(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let interval = setup.args.optional::<u32>("INTERVAL");
    let increasing = setup.args.optional::<bool>("INCREASING");
    interval?;
    increasing?;
    passes(setup)
}

fn locks(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let made = info::each(setup, |_| Ok(()))?;
    setup.args.warn_here(NOTHING);
    Ok(made)
}

fn locked(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let lock = setup.args.positional_arg("LOCK")?;
    let name: String = setup.args.read(&lock, "LOCK")?;
    if !is_declared(setup, &name) {
        setup.args.refuse(&lock, &format!("cannot locate spinlock {name}"));
    }
    passes(setup)
}

/// Whether a `SpinlockInfo` of its compound, or of one around that, declares a lock of this name.
fn is_declared(setup: &Setup<'_>, lock: &str) -> bool {
    let Some(configuration) = setup.around.configuration else { return true };
    let declares = |(number, element): (usize, &Declared)| {
        let compound = element.name.rfind('/').map_or("", |slash| &element.name[..=slash]);
        if element.class.name != LOCKS_NAME || !setup.name().starts_with(compound) {
            return false;
        }
        let mut problems = Problems::default();
        let mut args = configuration.args(number, &mut problems);
        std::iter::from_fn(|| args.next_of_any()).any(|arg| arg.bytes() == lock.as_bytes())
    };
    configuration.elements().iter().enumerate().any(declares)
}

fn passes(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    setup.args.finish()?;
    setup.args.warn_here(NOTHING);
    Ok(Made::new(|_| Passing))
}

#[cfg(test)]
mod tests {
    use crate::ELEMENTS;
    use crate::graph::Plan;
    use crate::testing::warnings;

    fn errors(text: &str) -> String {
        Plan::read("test", text, ELEMENTS).err().map_or_else(String::new, |e| e.to_string())
    }

    #[test]
    fn elements_and_compounds_that_get_a_thread_are_there() {
        let around = "elementclass Inner { input -> d :: Discard; StaticThreadSched(d 0, e -1) }
            e :: Idle -> i :: Inner;";
        let warned = warnings(&format!("{around} StaticThreadSched(e 7, i 0, i/d 1)"));
        let words = "nothing is changed by it";
        assert_eq!(warned.iter().filter(|message| message.contains(words)).count(), 2);
        for (arg, words) in [
            ("d 0", "`d` does not name an element"),
            ("i/x 0", "`i/x` does not name an element"),
            ("e x", "THREAD: `x` is no whole number"),
            ("e", "expected ELEMENT THREAD"),
            ("e 0 0", "expected ELEMENT THREAD"),
        ] {
            let errors = errors(&format!("{around} StaticThreadSched({arg})"));
            assert!(errors.contains(words), "{arg}: {errors}");
        }
        assert_eq!(errors("BalancedThreadSched(100, INCREASING true)"), "");
        assert!(errors("BalancedThreadSched(x)").contains("INTERVAL"));
    }

    #[test]
    fn locks_are_declared() {
        let within = "SpinlockInfo(a); Idle -> b :: { SpinlockInfo(\"in\");
            input -> SpinlockAcquire(in) -> SpinlockRelease(a) -> output }";
        assert_eq!(errors(&format!("{within} -> SpinlockAcquire(a) -> Discard")), "");
        let out = errors(&format!("{within} -> SpinlockRelease(in) -> Discard"));
        assert!(out.contains("cannot locate spinlock in"), "{out}");
        assert!(errors("FromDevice(a) -> SpinlockPush(in) -> Discard").contains("spinlock in"));
        assert!(errors("Idle -> SpinlockAcquire -> Discard").contains("LOCK is missing"));
        assert!(
            errors("SpinlockInfo(a); Idle -> SpinlockAcquire(a, b) -> Discard")
                .contains("at most 1")
        );
    }
}
