//! Differences of lists of static routes, found beside the control thread: long lists take longer than a turn may.

use std::collections::HashSet;

use crate::api::model::ConfigChange;
use crate::config::Shared;

/// Static routes of a source, as the configuration writes them.
type Routes = Shared<Vec<String>>;

/// Differences that are known.
#[derive(Default)]
pub(super) struct RouteChanges(Vec<Between>);

/// Differences of two lists.
struct Between {
    from: Routes,
    to: Routes,
    changes: Vec<ConfigChange>,
}

impl RouteChanges {
    /// Finds the differences of two lists, and those of the step back.
    pub(super) fn add(&mut self, from: &Routes, to: &Routes) {
        for (from, to) in [(from, to), (to, from)] {
            let changes = between(from, to);
            self.0.push(Between { from: from.clone(), to: to.clone(), changes });
        }
    }

    /// The differences of two lists, which are found now where they are not known.
    pub(super) fn take(&mut self, from: &Routes, to: &Routes) -> Vec<ConfigChange> {
        let same = |known: &Between| known.from.is_one_with(from) && known.to.is_one_with(to);
        match self.0.iter().position(same) {
            Some(at) => self.0.swap_remove(at).changes,
            None => between(from, to),
        }
    }
}

fn between(from: &[String], to: &[String]) -> Vec<ConfigChange> {
    lines("fixed route", from, to)
}

/// Differences of two lists without an order: what goes, then what comes.
pub(super) fn lines(item: &str, from: &[String], to: &[String]) -> Vec<ConfigChange> {
    let (were, are): (HashSet<_>, HashSet<_>) = (from.iter().collect(), to.iter().collect());
    let change = |from: Option<&String>, to: Option<&String>| ConfigChange {
        item: item.to_owned(),
        from: from.cloned(),
        to: to.cloned(),
        restart: false,
        applied: false,
    };
    let gone = from.iter().filter(|line| !are.contains(line)).map(|line| change(Some(line), None));
    let new = to.iter().filter(|line| !were.contains(line)).map(|line| change(None, Some(line)));
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_differences_are_those_of_both_directions() {
        let routes = |lines: &[&str]| -> Routes {
            lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>().into()
        };
        let (old, new) = (routes(&["a", "b", "c"]), routes(&["d", "b", "e"]));
        let words = |changes: Vec<ConfigChange>| -> Vec<String> {
            changes.iter().map(ToString::to_string).collect()
        };
        let mut known = RouteChanges::default();
        known.add(&old, &new);
        for (from, to) in [(&old, &new), (&new, &old)] {
            let want = words(between(from, to));
            assert_eq!(want.len(), 4);
            assert_eq!(words(known.take(from, to)), want);
            // Others that are equal, and those that were taken, are compared.
            assert_eq!(words(known.take(from, to)), want);
        }
        assert_eq!(words(known.take(&old, &old.clone())), [""; 0]);
        let want = ["fixed route: - a", "fixed route: - c", "fixed route: + d", "fixed route: + e"];
        assert_eq!(words(between(&old, &new)), want);
    }
}
