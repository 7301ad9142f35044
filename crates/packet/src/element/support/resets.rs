//! Requests to begin anew, which a handler makes of all instances of an element.

use super::setting::Setting;
use crate::graph::Made;

/// The number of requests, and of those that this instance has carried out.
pub(crate) struct Resets {
    requested: Setting<u32>,
    done: u32,
}

impl Resets {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self { requested: Setting::new(0), done: 0 }
    }

    /// That of a new instance, which is as after a reset.
    pub(crate) fn instance(&self) -> Self {
        Self { requested: self.requested.clone(), done: self.requested.get() }
    }

    /// Whether a request came since the last call.
    #[inline]
    pub(crate) fn came(&mut self) -> bool {
        let requested = self.requested.get();
        std::mem::replace(&mut self.done, requested) != requested
    }

    /// What requests it.
    pub(crate) fn request(&self) -> impl Fn() + Send + Sync + 'static + use<> {
        let requested = self.requested.clone();
        move || requested.change(|requested| requested.wrapping_add(1))
    }

    /// Adds the handler that requests it, by any text.
    pub(crate) fn handled(&self, made: Made, name: &'static str) -> Made {
        made.command(name, self.request())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instance_carries_out_each_request_once() {
        let (resets, mut early) = (Resets::new(), Resets::new().instance());
        assert!(!early.came());
        let mut early = resets.instance();
        resets.requested.change(|n| n + 1);
        let mut late = resets.instance();
        assert_eq!([early.came(), early.came(), late.came()], [true, false, false]);
        resets.requested.change(|n| n + 2);
        assert_eq!([early.came(), late.came(), late.came()], [true, true, false]);
    }
}
