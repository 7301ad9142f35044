//! Makes packets of nothing: for tests and measurements.
//!
//! Source: Click's `InfiniteSource`. Its packets count as packets of our own making.

use std::sync::Arc;

use super::setting::Setting;
use super::{Context, Element, ElementClass, Inputs, Made};
use crate::buf::{BATCH, Batch, FLAG_GENERATED, HEADROOM};
use crate::counters::{Count, PerWorker};
use crate::graph::{Arg, ClassSpec};
use crate::handler::Handler;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec {
        name: "InfiniteSource",
        ports: "0/1",
        processing: "h/h",
        flow: "x/y",
        output_names: &[],
    },
    summary: "makes packets of the same bytes, a burst a round",
    configure: |setup| {
        let data = setup.args.optional_arg("DATA")?;
        let limit = setup.args.optional("LIMIT");
        let burst = setup.args.optional("BURST");
        let active = setup.args.optional("ACTIVE");
        let length = setup.args.keyword("LENGTH");
        setup.args.finish()?;
        let limit: i64 = limit?.unwrap_or(-1);
        let burst = burst?.unwrap_or(1);
        let active = Setting::new(active?.unwrap_or(true));
        let data = data.as_ref().map_or_else(|| USUAL.into(), |data: &Arg<'_>| data.bytes());
        let longest = usize::from(LONGEST);
        let length = length?;
        if length.unwrap_or(data.len()) > longest {
            let words = format!("packets have at most {longest} bytes");
            return Err(setup.args.refuse_all(&words));
        }
        let data = padded(&data, length);
        let counts = setup.keep::<PerWorker<Count>>();
        let made = Made::new({
            let (active, counts) = (active.clone(), counts.clone());
            move || Source {
                data: data.clone(),
                left: u64::try_from(limit).unwrap_or(u64::MAX),
                burst,
                active: active.clone(),
                count: counts.add(),
            }
        });
        let made = made
            .polled()
            .handler(Handler::read("count", move || counts.sum(Count::read).to_string()));
        Ok(active.handled(made, "active"))
    },
};

/// What the smallest frames hold behind their headroom.
const LONGEST: u16 = 2048 - HEADROOM;

/// What a packet holds unless told otherwise; Click's is a sentence of this length.
const USUAL: &[u8] = b"A packet of no meaning, sixty-four bytes long as the shortest frames";

/// `data`, cut or repeated to that length.
fn padded(data: &[u8], length: Option<usize>) -> Arc<[u8]> {
    match length {
        Some(length) if !data.is_empty() => data.iter().copied().cycle().take(length).collect(),
        _ => data.into(),
    }
}

struct Source {
    data: Arc<[u8]>,
    left: u64,
    burst: usize,
    active: Setting<bool>,
    count: Arc<Count>,
}

impl Element for Source {
    fn poll(&mut self, batch: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        if self.left == 0 || !self.active.get() {
            return;
        }
        let wanted = self.burst.min(BATCH).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        for _ in 0..wanted {
            let Some(mut packet) = cx.pool.alloc() else { break };
            if !packet.set_len(self.data.len()) {
                break;
            }
            packet.bytes_mut().copy_from_slice(&self.data);
            packet.meta.flags |= FLAG_GENERATED;
            batch.push(packet).expect("a batch holds a burst");
        }
        let made = batch.len() as u64;
        cx.counters.generated.add(made);
        self.count.add(made);
        self.left -= made;
    }
}
