//! All classes of elements: those of the registry, and those of the stages of interface features.

use crate::element;
use crate::feature::FEATURES;
use crate::graph::ElementClass;

/// Every class of elements.
pub static ELEMENTS: &[ElementClass] = &JOINED;

/// How many classes the registry has.
const OWN: usize =
    element::ELEMENTS[0].len() + element::ELEMENTS[1].len() + element::ELEMENTS[2].len();
/// All registries; joined where the program is compiled, so that a slice of classes can be a static.
static JOINED: [ElementClass; OWN + feature_classes()] = joined();

/// The class of a stage by the number of its feature and its own; `None` where an earlier stage has the same class.
const fn class(feature: usize, stage: usize) -> Option<&'static ElementClass> {
    let class = FEATURES[feature].stages[stage].element;
    let mut before = 0;
    while before < stage {
        if is_same(FEATURES[feature].stages[before].element.spec.name, class.spec.name) {
            return None;
        }
        before += 1;
    }
    Some(class)
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const fn feature_classes() -> usize {
    let (mut count, mut feature) = (0, 0);
    while feature < FEATURES.len() {
        let mut stage = 0;
        while stage < FEATURES[feature].stages.len() {
            count += class(feature, stage).is_some() as usize;
            stage += 1;
        }
        feature += 1;
    }
    count
}

#[allow(clippy::large_stack_arrays, reason = "it runs where the program is compiled")]
const fn joined() -> [ElementClass; OWN + feature_classes()] {
    let [first, second, third] = element::ELEMENTS;
    let mut all = [first[0]; OWN + feature_classes()];
    let mut at = 0;
    while at < OWN {
        let (behind, last) = (at.saturating_sub(first.len()), second.len());
        all[at] = if at < first.len() {
            first[at]
        } else if behind < last {
            second[behind]
        } else {
            third[behind - last]
        };
        at += 1;
    }
    let mut feature = 0;
    while feature < FEATURES.len() {
        let mut stage = 0;
        while stage < FEATURES[feature].stages.len() {
            if let Some(class) = class(feature, stage) {
                all[at] = *class;
                at += 1;
            }
            stage += 1;
        }
        feature += 1;
    }
    all
}
