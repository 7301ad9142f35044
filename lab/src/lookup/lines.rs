//! How much memory a lookup touches: the distinct cache lines that `explain` reports.

use std::collections::HashSet;

use fingerpost_lpm::mem::LINE_BYTES;
use fingerpost_lpm::{Addr, Lookup};

/// The mean over some of `addrs`. A read that runs over the end of its line counts as one.
#[allow(clippy::cast_precision_loss, reason = "small counts")]
pub fn mean_lines<A: Addr>(lookup: &dyn Lookup<A>, addrs: &[A]) -> Option<f64> {
    const SAMPLE: usize = 20_000;
    let step = addrs.len().div_ceil(SAMPLE).max(1);
    let (mut seen, mut lines, mut asked) = (HashSet::new(), 0, 0);
    for &addr in addrs.iter().step_by(step) {
        seen.clear();
        lookup.explain(addr, &mut |step| {
            seen.insert((step.region, step.offset / LINE_BYTES));
        });
        lines += seen.len();
        asked += 1;
    }
    (asked > 0).then(|| lines as f64 / f64::from(asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_lpm::{Heap, NextHopId, Prefix, RouteStore};

    #[test]
    fn lines_are_counted_once() {
        let routes: RouteStore<u32> =
            (0..40_000u32).map(|n| (Prefix::masked(n << 8, 24), NextHopId(n % 7 + 1))).collect();
        let of = |name: &str, addrs: &[u32]| {
            let mut table =
                fingerpost_lpm::find_v4(name).unwrap().build(&routes, &mut Heap).unwrap();
            mean_lines(&*table.publish(), addrs)
        };
        let nowhere = [0xffff_ffff; 100];
        assert_eq!(of("dxr18", &nowhere), Some(1.0), "a direct hit");
        assert!(of("dxr18", &[0x0001_0203; 10]).unwrap() >= 2.0);
        assert_eq!(of("dxr18", &[]), None);
    }
}
