//! Names that elements declare, for the elements of their compound and of those inside it.
//!
//! Source: Click's `NameInfo`. Names are those of the configuration that this thread planned last. Handlers, which are
//! called later, see those of the top.

use std::cell::RefCell;
use std::collections::HashMap;

use super::{Arg, Configuration, Problems};

thread_local! {
    /// Compound of the element that is being configured, with its last slash.
    static COMPOUND: RefCell<String> = RefCell::default();
}

/// Reads names from now on as this element does; an empty name is one of the top.
pub(crate) fn enter(element: &str) {
    let compound = element.rfind('/').map_or("", |slash| &element[..=slash]);
    COMPOUND.with_borrow_mut(|entered| compound.clone_into(entered));
}

/// Adds the names that elements of a class declare, each for its compound.
pub(super) fn declare(
    configuration: &Configuration,
    class: &str,
    add: fn(&Arg<'_>) -> Result<(), String>,
) {
    for (number, element) in configuration.elements().iter().enumerate() {
        if element.class.name != class {
            continue;
        }
        enter(&element.name);
        let mut problems = Problems::default();
        let mut args = configuration.args(number, &mut problems);
        while let Some(arg) = args.next_of_any() {
            // The element reports what is wrong.
            let _ = add(&arg);
        }
    }
    enter("");
}

/// Names with their compounds, and what they stand for.
#[derive(Debug)]
pub(super) struct Scoped<T>(HashMap<String, T>);

impl<T> Default for Scoped<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Copy + Default> Scoped<T> {
    /// Forgets all names.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What a name of the present compound stands for, to be filled in.
    pub(super) fn own(&mut self, name: &str) -> &mut T {
        COMPOUND.with_borrow(|compound| self.0.entry(format!("{compound}{name}")).or_default())
    }

    /// What a name means here: that of the innermost compound that has it.
    pub(super) fn find(&self, name: &str) -> Option<T> {
        if self.0.is_empty() {
            return None;
        }
        COMPOUND.with_borrow(|compound| {
            let mut compound = compound.as_str();
            loop {
                if let Some(found) = self.0.get(&format!("{compound}{name}")) {
                    return Some(*found);
                }
                let around = compound.strip_suffix('/')?;
                compound = around.rfind('/').map_or("", |slash| &around[..=slash]);
            }
        })
    }
}
