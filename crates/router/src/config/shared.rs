//! Values of a configuration that may be long, shared by its copies.

use std::ops::Deref;
use std::sync::Arc;

use serde::Deserialize;

/// A value that copies of a configuration share: a copy of a hundred thousand routes takes no time.
#[derive(Clone, Debug, Default, Eq, Deserialize)]
#[serde(from = "T")]
pub(crate) struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Whether both are one value, and not two equal ones.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_one_with(other) || self.0 == other.0
    }
}
