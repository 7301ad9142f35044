//! A rate that an element keeps to, in packets or in bytes: how it is given, changed and used up.
//!
//! Source: the arguments of Click's `RatedUnqueue` and its kin: `RATE`, and how much may come at once, as
//! `BURST_DURATION` (20 ms unless configured otherwise) or as `BURST_SIZE` packets, `BURST_BYTES` bytes. A packet may take
//! more bytes than there are; the next one waits until they are paid. Each worker has the whole rate for itself.
//!
//! Cost: a comparison and a division a packet.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::setting::value;
use crate::element::support::rate_limit::Bucket;
use crate::frame::Batch;
use crate::graph::{Context, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{Bandwidth, ConfigError, Value};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Packets,
    Bytes,
}

/// A rate whose unit states whether it is of packets, `1000`, or of bytes, `8Mbps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    unit: Unit,
    a_second: u64,
}

impl Rate {
    /// So many packets a second.
    pub(crate) fn of_packets(a_second: u64) -> Self {
        Self { unit: Unit::Packets, a_second }
    }

    /// Whether bytes are counted, rather than packets.
    pub fn is_of_bytes(self) -> bool {
        self.unit == Unit::Bytes
    }

    /// Packets or bytes a second.
    pub fn per_second(self) -> u64 {
        self.a_second
    }
}

impl Value for Rate {
    fn read(text: &str) -> Result<Self, String> {
        let packets = text.strip_suffix("pps").map_or(text, str::trim_end);
        if let Ok(a_second) = u64::read(packets) {
            return Ok(Self { unit: Unit::Packets, a_second });
        }
        let words = |_| "no rate: `1000` packets, `1Mbps` (bits), `125kBps` (bytes)".to_owned();
        let bandwidth = Bandwidth::read(text).map_err(words)?;
        Ok(Self { unit: Unit::Bytes, a_second: bandwidth.bytes_per_s })
    }
}

/// Bits (`8Mbps`) or packets (`1000pps`) a second, as [`Value::read`] takes them.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unit == Unit::Packets {
            return write!(f, "{}pps", self.a_second);
        }
        let bits = u128::from(self.a_second) * 8;
        // The largest unit that needs no more than three decimals, so that the rate is exact.
        let units = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)];
        let (unit, one) = units
            .into_iter()
            .find(|(_, one)| bits >= *one && bits % (one / 1_000) == 0)
            .unwrap_or(("", 1));
        let decimals = match bits % one {
            0 => String::new(),
            rest => format!(".{:03}", rest / (one / 1_000)),
        };
        write!(f, "{}{}{unit}bps", bits / one, decimals.trim_end_matches('0'))
    }
}

/// How much may come at once.
#[derive(Clone, Copy)]
enum Burst {
    /// What comes back in this time.
    Of(Duration),
    /// So many packets or bytes.
    Tokens(u64),
}

/// Click's.
const BURST: Burst = Burst::Of(Duration::from_millis(20));

/// Bytes that Click adds to the capacity of its buckets, for packets that take more than there are.
const CLICK_DEBT: u64 = 131_072;

/// Bytes that a packet has at most, for how many to pull at once: jumbo frames are longer, and are owed.
const USUAL_BYTES: u64 = 1518;

/// The rate as it was given, and as handlers change it.
#[derive(Clone)]
pub(crate) struct Allowance {
    unit: Unit,
    /// A second.
    rate: Arc<AtomicU64>,
    burst: Burst,
    begins_empty: bool,
}

impl Allowance {
    /// Allowance of this rate, and the usual burst.
    pub(crate) fn of(rate: Rate) -> Self {
        let Rate { unit, a_second } = rate;
        let rate = Arc::new(AtomicU64::new(a_second));
        Self { unit, rate, burst: BURST, begins_empty: false }
    }

    /// The present rate.
    pub(crate) fn rate(&self) -> Rate {
        Rate { unit: self.unit, a_second: self.rate.load(Relaxed) }
    }

    /// Changes the rate.
    ///
    /// # Errors
    /// It is not of what is counted.
    pub(crate) fn set(&self, rate: Rate) -> Result<(), String> {
        if rate.unit != self.unit {
            let counted = if self.unit == Unit::Bytes { "bytes" } else { "packets" };
            return Err(format!("`{rate}`: {counted} are counted here"));
        }
        // Relaxed: no other memory depends on it.
        self.rate.store(rate.a_second, Relaxed);
        Ok(())
    }

    /// Reads the arguments, `RATE` as the next one in order; `usual` is for who may leave it out.
    pub(crate) fn read(
        setup: &mut Setup<'_>,
        unit: Unit,
        usual: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let args = &mut setup.args;
        let rate = match (unit, usual) {
            (Unit::Packets, None) => args.positional("RATE"),
            (Unit::Packets, Some(usual)) => args.optional("RATE").map(|rate| rate.unwrap_or(usual)),
            (Unit::Bytes, _) => args.positional("RATE").map(|rate: Bandwidth| rate.bytes_per_s),
        };
        let time = args.keyword("BURST_DURATION");
        let name = if unit == Unit::Bytes { "BURST_BYTES" } else { "BURST_SIZE" };
        let tokens = args.keyword(name);
        let burst = match (time?, tokens?) {
            (None, None) => BURST,
            (Some(time), None) => Burst::Of(time),
            (None, Some(tokens)) => Burst::Tokens(tokens),
            (Some(_), Some(_)) => {
                return Err(args.refuse_all(&format!("give one of BURST_DURATION and {name}")));
            }
        };
        Ok(Self { unit, rate: Arc::new(AtomicU64::new(rate?)), burst, begins_empty: false })
    }

    /// A rate of which no burst is there at the start, or where it changes: one packet is.
    pub(crate) fn begins_empty(self) -> Self {
        Self { begins_empty: true, ..self }
    }

    /// Adds the handlers that read and write the rate.
    pub(crate) fn handled(&self, made: Made) -> Made {
        let (read, write) = (self.clone(), self.clone());
        // A number alone is packets, as Click writes them.
        let text = move || match read.unit {
            Unit::Packets => read.rate().a_second.to_string(),
            Unit::Bytes => read.rate().to_string(),
        };
        made.handler(Handler::read("rate", text)).handler(Handler::write("rate", move |text| {
            let a_second = match write.unit {
                Unit::Packets => value(text)?,
                Unit::Bytes => value::<Bandwidth>(text)?.bytes_per_s,
            };
            write.set(Rate { unit: write.unit, a_second })
        }))
    }

    /// A full bucket of the present rate.
    fn bucket(&self) -> Bucket {
        let rate = self.rate.load(Relaxed);
        let tokens = match self.burst {
            Burst::Tokens(tokens) => tokens,
            Burst::Of(time) => {
                let tokens = u128::from(rate).saturating_mul(time.as_nanos()) / 1_000_000_000;
                u64::try_from(tokens).unwrap_or(u64::MAX)
            }
        };
        match self.unit {
            Unit::Packets => Bucket::with_burst(rate, tokens),
            Unit::Bytes => Bucket::with_debt(rate, held_bytes(tokens)),
        }
    }

    /// Budget of an instance.
    pub(crate) fn budget(&self) -> Budget {
        let fresh = self.begins_empty;
        Budget { bucket: self.bucket(), allowance: self.clone(), fresh }
    }
}

/// Bytes that Click's bucket of so many holds: it counts in parts of 2^32, and rounds a byte down to whole parts.
fn held_bytes(tokens: u64) -> u64 {
    let all = u64::from(u32::MAX);
    let parts = all / tokens.saturating_add(CLICK_DEBT);
    all.checked_div(parts).map_or(tokens, |held| held - CLICK_DEBT)
}

/// What one worker has of it.
pub(crate) struct Budget {
    allowance: Allowance,
    bucket: Bucket,
    /// Nothing of the burst is there.
    fresh: bool,
}

impl Budget {
    /// Takes over a rate that a handler has changed; once a batch.
    pub(crate) fn refresh(&mut self, now_ns: u64) {
        if self.allowance.rate.load(Relaxed) != self.bucket.rate() {
            self.bucket.become_of(self.allowance.bucket(), now_ns);
            self.fresh = self.allowance.begins_empty;
        }
        if self.fresh {
            self.bucket.empty(now_ns);
            self.fresh = false;
        }
    }

    /// Whether a packet of this length may go, which is noted as done.
    pub(crate) fn spend(&mut self, bytes: usize, now_ns: u64) -> bool {
        let may = self.has_room(now_ns);
        if may {
            self.charge(bytes, now_ns);
        }
        may
    }

    /// Whether a packet may go.
    pub(crate) fn has_room(&self, now_ns: u64) -> bool {
        self.bucket.has_token(now_ns)
    }

    /// Notes that a packet of this length goes.
    pub(crate) fn charge(&mut self, bytes: usize, now_ns: u64) {
        self.bucket.take_many(self.cost(bytes), now_ns);
    }

    fn cost(&self, bytes: usize) -> u64 {
        if self.allowance.unit == Unit::Bytes { bytes as u64 } else { 1 }
    }

    /// Packets that may go for certain, without a look at them.
    pub(crate) fn packets(&self, now_ns: u64) -> usize {
        let tokens = self.bucket.tokens(now_ns);
        let packets = match self.allowance.unit {
            Unit::Packets => tokens,
            Unit::Bytes => tokens.div_ceil(USUAL_BYTES),
        };
        usize::try_from(packets).unwrap_or(usize::MAX)
    }

    /// How many packets may go, of so many that are wanted; they are noted as gone.
    pub(crate) fn grant(&mut self, wanted: usize, now_ns: u64) -> usize {
        self.refresh(now_ns);
        let granted = self.packets(now_ns).min(wanted);
        self.bucket.take_many(granted as u64, now_ns);
        granted
    }

    /// Pulls from an element's input as many packets as may go.
    pub(crate) fn pull(&mut self, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.refresh(cx.now_ns);
        let wanted = into.len() + into.room();
        while into.len() < wanted {
            let before = into.len();
            into.set_limit(before.saturating_add(self.packets(cx.now_ns)).min(wanted));
            inputs.pull(0, into, cx);
            if into.len() == before {
                break;
            }
            for i in before..into.len() {
                self.charge(into.frame_len(i), cx.now_ns);
            }
        }
        into.set_limit(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_written_as_they_are_read() {
        for (text, written) in [
            ("1000", "1000pps"),
            ("5 pps", "5pps"),
            ("12500Bps", "100kbps"),
            ("8Mbps", "8Mbps"),
            ("2.5Gbps", "2.5Gbps"),
            ("1.25 kBps", "10kbps"),
            ("125001Bps", "1000.008kbps"),
            ("1Bps", "8bps"),
            ("0Bps", "0bps"),
        ] {
            let rate = Rate::read(text).unwrap();
            assert_eq!(rate.to_string(), written, "{text}");
            assert_eq!(Rate::read(written), Ok(rate), "{text}");
        }
    }
}
