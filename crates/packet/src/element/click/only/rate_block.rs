//! Packets by the rates that `IPRateMonitor` gave them: `Block(THRESH)` and `CompareBlock(FWD_WEIGHT, REV_WEIGHT,
//! THRESH)` send those with high ones to their second output.
//!
//! Source: Click's elements of these names. `Block` compares the rate of the monitor's first input with `THRESH`, and
//! sends none there where `THRESH` is 0. `CompareBlock` sends those there of which one rate exceeds `THRESH` and
//! `FWD_WEIGHT` times the rate of the first input exceeds `REV_WEIGHT` times that of the second. Handlers read and
//! write the arguments. A packet without rates has rates of 0.

use super::each::each;
use super::rate_monitor::rates;
use crate::element::support::setting::Setting;
use crate::graph::ElementClass;
use crate::language::ClassSpec;

pub(crate) const BLOCK: ElementClass = ElementClass {
    spec: ClassSpec::new("Block", "1/2", "a/ah", "x/x").outputs(&["out", "high"]),
    summary: "sends packets with a high rate to its second output",
    configure: |setup| {
        let most = setup.args.positional("THRESH");
        setup.args.finish()?;
        let most = Setting::<u32>::new(most?);
        let shown = most.clone();
        let made = each(move |batch, i| {
            let most = most.get();
            if most > 0 && rates(batch, i)[0] > most {
                batch.output(i, 1);
            }
        })?;
        Ok(shown.handled(made, "thresh"))
    },
};

pub(crate) const COMPARE: ElementClass = ElementClass {
    spec: ClassSpec::new("CompareBlock", "1/2", "a/ah", "x/x").outputs(&["out", "high"]),
    summary: "sends packets with a high rate, compared with the other one, to its second output",
    configure: |setup| {
        let weights = ["FWD_WEIGHT", "REV_WEIGHT"].map(|name| setup.args.positional::<i32>(name));
        let most = setup.args.positional::<u32>("THRESH");
        setup.args.finish()?;
        let [forward, reverse] = weights;
        let weights = [Setting::new(forward?), Setting::new(reverse?)];
        let most = Setting::new(most?);
        let (shown, shown_most) = (weights.clone(), most.clone());
        let made = each(move |batch, i| {
            let rates = rates(batch, i);
            let is_high = rates.iter().any(|rate| *rate > most.get());
            // Below 2^63: a weight is below 2^31, a rate below 2^32.
            let weighted = |at: usize| i64::from(weights[at].get()) * i64::from(rates[at]);
            if is_high && weighted(0) > weighted(1) {
                batch.output(i, 1);
            }
        })?;
        let made = shown[1].handled(shown[0].handled(made, "fwd_weight"), "rev_weight");
        Ok(shown_most.handled(made, "thresh"))
    },
};

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World, frame_v4, refused};

    use super::{BLOCK, COMPARE};

    /// Sends packets of 32 bytes to and from an address in a hundredth of a second, `there` and `back` of them; where
    /// packets from it go then, through this element.
    fn goes(element: &str, there: usize, back: usize) -> (String, Rig) {
        let text = format!(
            "FromDevice(a) -> MarkIPHeader(14) -> m :: IPRateMonitor(BYTES, 1, 1000000) -> b :: {element} -> ToDevice(x); b [high] -> ToDevice(y);
             FromDevice(b) -> MarkIPHeader(14) -> [1] m [1] -> Discard"
        );
        let mut rig = Rig::new(&World::new(), &text);
        let request = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 12]);
        let reply = frame_v4("192.0.2.1", "10.0.0.9", 64, 17, &[0; 12]);
        (0..there).for_each(|_| drop(rig.receive("a", &[&request])));
        (0..back).for_each(|_| drop(rig.receive("b", &[&reply])));
        rig.bench.now_ns += 10_000_000;
        (rig.receive("a", &[&request])[0].0.clone(), rig)
    }

    #[test]
    fn packets_with_a_high_rate_leave_apart() {
        // 32 bytes in a hundredth of a second are 200 a second.
        let by = |most: &str| goes(&format!("Block({most})"), 3, 9).0;
        assert_eq!(["599", "600", "0"].map(by), ["y", "x", "x"]);
        let (_, mut rig) = goes("Block(0)", 3, 0);
        rig.write("b.thresh", "5");
        let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[]);
        assert_eq!(
            (rig.receive("a", &[&frame])[0].0.as_str(), rig.read("b.thresh")),
            ("y", "5".into())
        );
        assert!(refused(&BLOCK, "").contains("THRESH"));
    }

    #[test]
    fn rates_are_compared() {
        let by = |config: &str| goes(&format!("CompareBlock({config})"), 2, 5).0;
        // 400 and 1,000.
        assert_eq!(
            ["5, 2, 100", "6, 2, 100", "6, 2, 999", "6, 2, 1000"].map(by),
            ["x", "y", "y", "x"]
        );
        assert_eq!(["1, -1, 0", "-1, 0, 0"].map(by), ["y", "x"]);
        let (_, rig) = goes("CompareBlock(5, 2, 100)", 0, 0);
        rig.write("b.rev_weight", "7");
        let shown =
            ["fwd_weight", "rev_weight", "thresh"].map(|name| rig.read(&format!("b.{name}")));
        assert_eq!(shown, ["5", "7", "100"]);
        assert!(refused(&COMPARE, "1, 2").contains("THRESH"));
    }
}
