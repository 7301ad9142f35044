//! `CheckPacket` reports packets that are not as its arguments have it, and passes all.
//!
//! Source: Click's `CheckPacket`. `LENGTH` (or `LENGTH_EQ`), `LENGTH_GE` and `LENGTH_LE` are lengths, `DATA` bytes that
//! packets have from `DATA_OFFSET` on. `ALIGNMENT` is accepted: any alignment is good here.

use crate::element::click::only::console;
use crate::element::click::only::each::{class, each};
use crate::graph::ElementClass;

pub(crate) const CLASS: ElementClass =
    class("CheckPacket", "reports packets that are not as its arguments have it", |setup| {
        let length = setup.args.keyword::<usize>("LENGTH");
        let equal = setup.args.keyword::<usize>("LENGTH_EQ");
        let least = setup.args.keyword::<usize>("LENGTH_GE");
        let most = setup.args.keyword::<usize>("LENGTH_LE");
        let data = setup.args.keyword_arg("DATA")?;
        let offset = setup.args.keyword::<usize>("DATA_OFFSET");
        let alignment = setup.list::<u32>("ALIGNMENT");
        setup.args.finish()?;
        alignment?;
        let bounds =
            [("length", length?.or(equal?)), ("least length", least?), ("greatest length", most?)];
        let data = data.map(|data| data.bytes().into_owned()).unwrap_or_default();
        let (offset, name) = (offset?.unwrap_or(0), setup.name().to_owned());
        each(move |batch, i| {
            let bytes = batch.bytes(i);
            let [equal, least, most] = bounds.map(|(_, bound)| bound);
            let has = bytes.len();
            for (wrong, (what, bound)) in [
                (equal.is_some_and(|bound| has != bound), bounds[0]),
                (least.is_some_and(|bound| has < bound), bounds[1]),
                (most.is_some_and(|bound| has > bound), bounds[2]),
            ] {
                if let Some(bound) = bound.filter(|_| wrong) {
                    console::warn(&format!("{name}: packet of {has} bytes, {what} {bound} wanted"));
                }
            }
            let found = bytes.get(offset..).unwrap_or_default();
            let differs = data.iter().zip(0..).find(|(byte, at)| found.get(*at) != Some(byte));
            if let Some((byte, at)) = differs {
                let what = match found.get(at) {
                    Some(found) => format!("{found:02x}"),
                    None => "no byte".to_owned(),
                };
                let at = offset + at;
                console::warn(&format!("{name}: {what} at offset {at}, {byte:02x} wanted"));
            }
        })
    });

#[cfg(test)]
mod tests {
    use crate::element::click::only::console;
    use crate::testing::{Rig, World};

    #[test]
    fn what_differs_is_reported() {
        let reported = |config: &str| {
            console::collect();
            let text = format!("FromDevice(a) -> c :: CheckPacket({config}) -> ToDevice(b)");
            let mut rig = Rig::new(&World::new(), &text);
            assert_eq!(rig.receive("a", &[&[1, 2, 3]]).len(), 1, "all pass");
            console::collected().err
        };
        assert_eq!(reported("LENGTH 3, LENGTH_LE 3, DATA \\<0203>, DATA_OFFSET 1"), "");
        assert_eq!(reported("LENGTH_EQ 4"), "c: packet of 3 bytes, length 4 wanted\n");
        let both = reported("LENGTH_GE 4, LENGTH_LE 2, ALIGNMENT 4 0");
        assert_eq!(both.lines().count(), 2, "{both}");
        assert_eq!(reported("DATA \\<0103>"), "c: 02 at offset 1, 03 wanted\n");
        assert_eq!(reported("DATA \\<04>, DATA_OFFSET 3"), "c: no byte at offset 3, 04 wanted\n");
    }
}
