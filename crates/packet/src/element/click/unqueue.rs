//! Pulls packets and pushes them: where pull ends and push begins.
//!
//! Source: Click's `Unqueue`. A burst is per round of the worker. Differs: it is as large as a batch unless it is
//! given, and never larger. A burst below 0 has no end in Click.

use std::sync::Arc;

use crate::element::support::resets::Resets;
use crate::element::support::setting::{Setting, value};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{BATCH, Batch};
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Unqueue", "1/1", "l/h", "x/y"),
    summary: "pulls packets and pushes them, a burst a round",
    configure: |setup| configure(setup, false),
};

/// Configures the element; whether a burst of 0 is all that comes, rather than nothing.
pub(super) fn configure(setup: &mut Setup<'_>, zero_is_all: bool) -> Result<Made, ConfigError> {
    let burst = setup.args.optional::<i64>("BURST");
    let active = setup.args.keyword("ACTIVE");
    let limit = setup.args.keyword::<i64>("LIMIT");
    setup.args.finish()?;
    let burst = match burst? {
        None => u32::try_from(BATCH).unwrap_or(ALL),
        Some(0) if zero_is_all => ALL,
        Some(given) => counted(given),
    };
    if burst == 0 {
        setup.args.warn_all("BURST size 0, no packets will be pulled");
    }
    let burst = Setting::new(burst);
    let active = Setting::new(active?.unwrap_or(true));
    let limit = Setting::new(bounded(limit?.unwrap_or(-1)));
    let counts = setup.keep::<PerWorker<Count>>();
    let resets = Arc::new(Resets::new());
    let made = Made::new({
        let (burst, active, limit) = (burst.clone(), active.clone(), limit.clone());
        let (counts, resets) = (counts.clone(), resets.clone());
        move |instance| Unqueue {
            burst: burst.clone(),
            active: active.clone(),
            limit: limit.clone(),
            count: counts.add(instance),
            resets: resets.instance(),
        }
    });
    let made = made
        .counter("count", &counts)
        .handler(Handler::read("limit", {
            let limit = limit.clone();
            move || if limit.get() == u32::MAX { "-1".into() } else { limit.get().to_string() }
        }))
        .handler(Handler::write("limit", move |text| {
            let given = bounded(value::<i64>(text)?);
            limit.change(|_| given);
            Ok(())
        }))
        .handler(Handler::write("burst", {
            let burst = burst.clone();
            move |text| {
                let given = counted(value::<i64>(text)?);
                burst.change(|_| given);
                Ok(())
            }
        }))
        .handler(Handler::read("burst", move || burst.get().to_string()));
    let made = resets.handled(resets.handled(made, "reset"), "reset_counts");
    Ok(active.handled(made, "active"))
}

/// A burst that has no end, as handlers show it: the largest number that Click has for one.
const ALL: u32 = i32::MAX.cast_unsigned();

/// All where it is below 0.
fn counted(burst: i64) -> u32 {
    u32::try_from(burst).map_or(ALL, |burst| burst.min(ALL))
}

/// No limit where it is below 0.
fn bounded(limit: i64) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

struct Unqueue {
    burst: Setting<u32>,
    active: Setting<bool>,
    limit: Setting<u32>,
    count: Arc<Count>,
    /// Requests to count anew.
    resets: Resets,
}

impl Element for Unqueue {
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        if self.resets.came() {
            self.count.set(0);
        }
        let left = match self.limit.get() {
            u32::MAX => u64::MAX,
            limit => u64::from(limit).saturating_sub(self.count.read()),
        };
        let burst = u64::from(self.burst.get()).min(left);
        if burst == 0 || !self.active.get() {
            return;
        }
        batch.set_limit(usize::try_from(burst).unwrap_or(BATCH));
        inputs.pull(0, batch, cx);
        batch.set_limit(BATCH);
        self.count.add(batch.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn it_may_wait_and_end() {
        let text =
            "FromDevice(a) -> Queue -> u :: Unqueue(2, ACTIVE false, LIMIT 5) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[1_u8][..]; 9]);
        assert_eq!(rig.poll().len(), 0);
        rig.write("u.active", "true");
        assert_eq!([(); 4].map(|()| rig.poll().len()), [2, 2, 1, 0]);
        rig.write("u.burst", "-1");
        rig.write("u.limit", "-1");
        assert_eq!(
            (rig.poll().len(), rig.read("u.count"), rig.read("u.limit")),
            (4, "9".into(), "-1".into())
        );
        rig.write("u.reset", "");
        rig.poll();
        assert_eq!((rig.read("u.count"), rig.read("u.burst")), ("0".into(), "2147483647".into()));
        rig.write("u.burst", "1000");
        rig.receive("a", &[&[1_u8][..]; 9]);
        assert_eq!((rig.poll().len(), rig.read("u.burst")), (9, "1000".into()));
        let text = text.replace("2, ACTIVE false, LIMIT 5", "0");
        let mut rig = Rig::new(&World::new(), &text);
        assert!(rig.plan.warnings()[0].to_string().contains("BURST size 0"));
        rig.receive("a", &[&[1]]);
        assert!(rig.poll().is_empty());
    }
}
