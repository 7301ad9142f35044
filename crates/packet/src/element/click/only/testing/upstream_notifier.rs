//! `UpstreamNotifier(SIGNAL)` holds sources before it back while its signal is off, as a full queue does.
//!
//! Source: Click's `UpstreamNotifier`. Handler `signal` reads and writes the signal. Packets pass in any case.

use crate::element::support::setting::Setting;
use crate::graph::{Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("UpstreamNotifier", "1/1", "h/h", "x/x"),
    summary: "holds sources back while its signal is off",
    configure: |setup| {
        let signal = setup.args.optional("SIGNAL");
        setup.args.finish()?;
        let signal = Setting::new(signal?.unwrap_or(true));
        let each = signal.clone();
        let made = Made::new(move |_| Notifier { signal: each.clone() });
        Ok(signal.handled(made.holds_back(), "signal"))
    },
};

struct Notifier {
    signal: Setting<bool>,
}

impl Element for Notifier {
    fn room(&self) -> usize {
        if self.signal.get() { usize::MAX } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn sources_wait_for_the_signal() {
        let text = "InfiniteSource(LIMIT 9) -> Null -> u :: UpstreamNotifier(false) -> c :: Counter -> Discard";
        let mut rig = Rig::new(&World::new(), text);
        (0..3).for_each(|_| drop(rig.poll()));
        assert_eq!([rig.read("c.count"), rig.read("u.signal")], ["0", "false"]);
        rig.write("u.signal", "true");
        (0..3).for_each(|_| drop(rig.poll()));
        assert_eq!(rig.read("c.count"), "3");
    }
}
