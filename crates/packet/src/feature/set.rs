//! The features of a router, by row: what is configured ([`FeatureSettings`]), and what runs ([`FeatureStates`]).

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fingerpost_route::{Control, InterfaceSet, RouteError};

use super::FEATURES;
use super::reader::Mistake;
use super::row::{Feature, FeatureArc, Given, Settings, Stage, State, Support, Use};

/// What a configuration has of each feature.
#[derive(Clone)]
pub struct FeatureSettings(Arc<[Arc<dyn Settings>]>);

impl FeatureSettings {
    /// Reads what `given` has for each row.
    ///
    /// # Errors
    /// All mistakes; the settings are there in any case, as far as they could be read.
    pub fn read(given: impl Fn(&Feature) -> Given) -> (Self, Vec<Mistake>) {
        let mut mistakes = Vec::new();
        let read = FEATURES.iter().map(|row| (row.read)(&given(row), &mut mistakes)).collect();
        (Self(read), mistakes)
    }

    /// Rows and their settings.
    pub fn each(&self) -> impl Iterator<Item = (&'static Feature, &dyn Settings)> {
        FEATURES.iter().zip(self.0.iter().map(|settings| &**settings))
    }

    /// The settings of the feature whose settings are of this type.
    pub fn of<T: Settings>(&self) -> &T {
        let found = self.0.iter().find_map(|settings| settings.of());
        found.expect("each feature has its settings")
    }

    /// The features that an interface uses.
    pub fn on(&self, interface: &str) -> Vec<(&'static Feature, Use, Support)> {
        let used = |(row, settings): (&'static Feature, &dyn Settings)| {
            let used = settings.on(interface)?;
            Some((row, used, settings.xdp(Some(interface))))
        };
        self.each().filter_map(used).collect()
    }

    /// Whether an interface uses a feature without which its packets must not be forwarded.
    pub fn guards(&self, interface: &str) -> bool {
        self.each().any(|(row, settings)| row.guards && settings.on(interface).is_some())
    }

    /// Whether some interface does.
    pub fn guards_any(&self) -> bool {
        self.each().any(|(row, settings)| row.guards && !settings.interfaces().is_empty())
    }

    /// The interfaces whose packets leave the XDP datapath because of a feature.
    pub fn graph_only(&self) -> InterfaceSet {
        let mut names = BTreeSet::new();
        let leaves = |support| matches!(support, Support::Graph(_));
        for (_, settings) in self.each() {
            match settings.interfaces() {
                InterfaceSet::All if leaves(settings.xdp(None)) => {
                    return InterfaceSet::All;
                }
                InterfaceSet::All => {}
                InterfaceSet::Some(some) => {
                    names.extend(some.into_iter().filter(|name| leaves(settings.xdp(Some(name)))))
                }
            }
        }
        InterfaceSet::Some(names)
    }

    /// Hands to the control side what it publishes of ports; `before` are the settings until now.
    ///
    /// # Errors
    /// There are too many tables.
    pub fn bind(&self, before: Option<&Self>, control: &mut Control) -> Result<(), RouteError> {
        for (at, settings) in self.0.iter().enumerate() {
            settings.bind(before.map(|before| &*before.0[at]), control)?;
        }
        control.leave_to_graph(self.graph_only());
        Ok(())
    }
}

impl Default for FeatureSettings {
    fn default() -> Self {
        Self::read(|_| Given::default()).0
    }
}

impl PartialEq for FeatureSettings {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0.iter()).all(|(one, other)| one.is_same(&**other))
    }
}

impl Eq for FeatureSettings {}

impl fmt::Debug for FeatureSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.each().map(|(row, settings)| (row.name, settings))).finish()
    }
}

/// Run-time state of the features in use. Clones share it.
#[derive(Clone, Default)]
pub struct FeatureStates(Vec<Option<Arc<dyn State>>>);

impl FeatureStates {
    /// Makes the states of these settings. What is the same as in `before` is taken over from there: a state whose
    /// settings have not changed is the same one.
    ///
    /// # Errors
    /// All that is wrong with files, or that there is no memory.
    pub fn make(
        settings: &FeatureSettings,
        before: Option<(&FeatureSettings, &Self)>,
    ) -> Result<Self, Vec<String>> {
        let (mut made, mut wrong) = (Vec::new(), Vec::new());
        for (at, wanted) in settings.0.iter().enumerate() {
            let known = before
                .and_then(|(known, states)| Some((&*known.0[at], states.0.get(at)?.as_ref())));
            let state = match known {
                Some((known, state)) if wanted.is_same(known) => Ok(state.cloned()),
                known => wanted.make(known.and_then(|(_, state)| state).map(|state| &**state)),
            };
            match state {
                Ok(state) => made.push(state),
                Err(words) => wrong.extend(words),
            }
        }
        if wrong.is_empty() { Ok(Self(made)) } else { Err(wrong) }
    }

    /// States by themselves, for routers that are put together by hand.
    pub fn with(self, name: &str, state: Arc<dyn State>) -> Self {
        let at = FEATURES.iter().position(|row| row.name == name).expect("a feature of a row");
        let mut states = self.0;
        states.resize(FEATURES.len(), None);
        states[at] = Some(state);
        Self(states)
    }

    /// Rows of the features in use, and their states.
    pub fn each(&self) -> impl Iterator<Item = (&'static Feature, &Arc<dyn State>)> {
        let states = FEATURES.iter().zip(&self.0);
        states.filter_map(|(row, state)| Some((row, state.as_ref()?)))
    }

    /// The state of a feature by its name.
    pub fn find(&self, name: &str) -> Option<&Arc<dyn State>> {
        self.each().find(|(row, _)| row.name == name).map(|(_, state)| state)
    }

    /// The state that is of this type.
    pub fn of<T: State>(&self) -> Option<Arc<T>> {
        self.each().find_map(|(_, state)| {
            let any: Arc<dyn Any + Send + Sync> = state.clone();
            any.downcast::<T>().ok()
        })
    }

    /// Ports have these names from now on.
    pub fn follow(&self, ports: &[(u16, &str)]) {
        self.each().for_each(|(_, state)| state.follow(ports));
    }

    /// Continues the counts of others, by feature; no worker has these yet.
    pub fn go_on_with(&self, before: &Self) {
        for (row, state) in self.each() {
            if let Some(known) = before.find(row.name).filter(|known| !Arc::ptr_eq(known, state)) {
                state.go_on_with(&**known);
            }
        }
    }

    /// Whether these are the very same states.
    pub fn is_same(&self, other: &Self) -> bool {
        let address = |states: &Self| -> Vec<(&str, *const ())> {
            let address = |state: &Arc<dyn State>| Arc::as_ptr(state).cast();
            states.each().map(|(row, state)| (row.name, address(state))).collect()
        };
        address(self) == address(other)
    }

    /// The stages that stand in the graph of an arc, in the order in which packets pass them.
    pub(crate) fn stages(&self, arc: FeatureArc) -> Vec<&'static Stage> {
        let used = self.each().filter(|(_, state)| state.runs(arc));
        let stages = used.flat_map(|(row, _)| row.stages).filter(|stage| stage.arc == arc);
        ordered(stages.collect())
    }
}

/// Stages with each behind those that it is to be after; else as they come.
fn ordered(mut left: Vec<&'static Stage>) -> Vec<&'static Stage> {
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waits = |stage: &Stage| left.iter().any(|other| stage.after.contains(&other.name));
        let next = left.iter().position(|stage| !waits(stage));
        order.push(left.remove(next.expect("stages are in no circle: a test looks for one")));
    }
    order
}

impl fmt::Debug for FeatureStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.each().map(|(row, _)| row.name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::Classes;

    #[test]
    fn rows_are_whole() {
        let mut names = BTreeSet::new();
        for row in FEATURES {
            assert!(names.insert(row.name), "{} twice", row.name);
            assert!(!row.summary.is_empty() && !row.summary.ends_with('.'), "{}", row.name);
            assert!(row.key.is_some() || row.section.is_some(), "{} cannot be used", row.name);
            for stage in row.stages {
                let class = crate::ELEMENTS.find(stage.element.spec.name);
                assert!(class.is_some(), "{} is not in ELEMENTS", stage.element.spec.name);
                for other in stage.after {
                    let known = |known: &Stage| known.name == *other && known.arc == stage.arc;
                    let all = || FEATURES.iter().flat_map(|row| row.stages);
                    assert!(all().any(known), "{}: no stage {other}", stage.name);
                }
            }
        }
        for arc in FeatureArc::ALL {
            let all = FEATURES.iter().flat_map(|row| row.stages);
            ordered(all.filter(|stage| stage.arc == arc).collect());
        }
    }

    #[test]
    fn settings_of_an_empty_configuration_use_nothing_that_guards() {
        let settings = FeatureSettings::default();
        assert!(!settings.guards_any() && settings == FeatureSettings::default());
        assert_eq!(settings.graph_only(), InterfaceSet::default());
        let states = FeatureStates::make(&settings, None).unwrap();
        let again = FeatureStates::make(&settings, Some((&settings, &states))).unwrap();
        assert!(states.is_same(&again), "unchanged states are kept");
    }
}
