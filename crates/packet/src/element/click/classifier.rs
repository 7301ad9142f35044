//! Sorts frames by patterns over their bytes: `Classifier(12/0806 20/0001, 12/0800, -)`.
//!
//! Source: Click's `Classifier`. A frame leaves by the output of the first pattern that takes it, and is dropped when
//! none does. A pattern is a list of `OFFSET/VALUE%MASK`, with hexadecimal values, or `-` for all.
//!
//! Handlers `config` and `patternN` change the patterns while packets are sorted: all of them, or none where one is wrong.
//!
//! Cost: a load for each word that the patterns read, up to the first that holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_route::{Publisher, Reader};

use crate::element::router::ether_input::AHEAD;
use crate::filter::{FilterError, Pattern, Patterns};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made, Setup, configured};
use crate::handler::Handler;
use crate::language::{Arg, Args, ClassSpec, ConfigError};

const NAME: &str = "Classifier";

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new(NAME, "1/-", "h/h", "x/x"),
    summary: "sorts frames by patterns over their bytes",
    configure: |setup| Sorting::made(setup, NAME, read, |sorting| Classifier { sorting }),
};

fn read(args: &mut Args<'_>, outputs: u32) -> Result<Sorting<Patterns>, ConfigError> {
    let (patterns, texts) = one_per_output(args, outputs, Pattern::parse)?;
    let choice = Patterns::new(patterns.iter().cloned());
    Ok(Sorting::new(texts, choice, move || listing(&patterns)))
}

#[cfg(feature = "click")]
fn listing(patterns: &[Pattern]) -> String {
    Patterns::listing(patterns)
}

#[cfg(not(feature = "click"))]
fn listing(_: &[Pattern]) -> String {
    String::new()
}

/// What sorts packets, and the arguments that it is made of.
pub(super) struct Sorting<C> {
    pub(super) choice: C,
    texts: Vec<String>,
    #[cfg_attr(not(feature = "click"), allow(dead_code, reason = "only Click's handler shows it"))]
    listing: Box<dyn Fn() -> String + Send + Sync>,
}

/// Makes it of arguments, for so many outputs.
type Read<C> = fn(&mut Args<'_>, u32) -> Result<Sorting<C>, ConfigError>;

impl<C: Send + Sync + 'static> Sorting<C> {
    pub(super) fn new(
        texts: Vec<String>,
        choice: C,
        listing: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        Self { choice, texts, listing: Box::new(listing) }
    }

    /// The element that sorts packets, with its handlers.
    pub(super) fn made<E: Element + 'static>(
        setup: &mut Setup<'_>,
        class: &'static str,
        read: Read<C>,
        with: impl Fn(Reader<Self>) -> E + Send + Sync + 'static,
    ) -> Result<Made, ConfigError> {
        let outputs = setup.outputs;
        let sorting = read(&mut setup.args, outputs)?;
        let patterns = sorting.texts.len();
        let publisher = Publisher::new(sorting);
        let subscribe = publisher.subscribe();
        let made = Made::new(move |_| with(subscribe.reader()));
        let live = Live { class, outputs, read, present: Arc::new(Mutex::new(publisher)) };
        Ok(live.handled(made, patterns))
    }
}

/// What handlers reach.
struct Live<C> {
    class: &'static str,
    outputs: u32,
    read: Read<C>,
    present: Arc<Mutex<Publisher<Sorting<C>>>>,
}

impl<C> Clone for Live<C> {
    fn clone(&self) -> Self {
        Self { present: self.present.clone(), ..*self }
    }
}

impl<C: Send + Sync + 'static> Live<C> {
    fn lock(&self) -> MutexGuard<'_, Publisher<Sorting<C>>> {
        // Patterns are replaced as a whole, whatever panicked beside it.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, config: &str) -> Result<Sorting<C>, String> {
        configured(self.class, config, |mut args| (self.read)(&mut args, self.outputs))
    }

    fn handled(self, made: Made, patterns: usize) -> Made {
        let [shown, all] = [(); 2].map(|()| self.clone());
        let made = made
            .handler(Handler::read("config", move || shown.lock().value().texts.join(", ")))
            .handler(Handler::write("config", move |config| {
                let new = all.read(config)?;
                all.lock().set(new);
                Ok(())
            }));
        self.of_click(made, patterns)
    }

    #[cfg(feature = "click")]
    fn of_click(self, mut made: Made, patterns: usize) -> Made {
        let listed = self.clone();
        let program = move || (listed.lock().value().listing)();
        made = made.handler(Handler::read("program", program));
        for n in 0..patterns {
            let [shown, one] = [(); 2].map(|()| self.clone());
            let text = move || shown.lock().value().texts.get(n).cloned().unwrap_or_default();
            let change = move |text: &str| {
                let mut present = one.lock();
                let mut texts = present.value().texts.clone();
                let old = texts.get_mut(n).ok_or("there is no such pattern now")?;
                text.trim().clone_into(old);
                let new = one.read(&texts.join(", "))?;
                if new.texts.len() != texts.len() {
                    return Err("expected one pattern".to_owned());
                }
                present.set(new);
                Ok(())
            };
            let name = format!("pattern{n}");
            made = made
                .handler(Handler::read("pattern", text).named(name.clone()))
                .handler(Handler::write("pattern", change).named(name));
        }
        made
    }

    #[cfg(not(feature = "click"))]
    fn of_click(self, made: Made, _: usize) -> Made {
        made
    }
}

/// Reads all arguments as patterns, which are returned with their texts.
pub(super) fn patterns<T>(
    args: &mut Args<'_>,
    read: impl Fn(&str) -> Result<T, FilterError>,
) -> Result<(Vec<T>, Vec<String>), ConfigError> {
    let given: Vec<_> = args.rest().collect();
    let one = |arg: &Arg<'_>| {
        let bytes = arg.bytes();
        let text = std::str::from_utf8(&bytes).map_err(|_| "no text".to_owned());
        text.and_then(|text| read(text).map_err(|error| error.to_string()))
            .map_err(|words| args.refuse(arg, &words))
    };
    // All that is wrong is told, not only the first.
    let patterns: Vec<_> = given.iter().map(one).collect();
    let texts = given.iter().map(|arg| arg.uncommented().trim().to_owned()).collect();
    Ok((patterns.into_iter().collect::<Result<_, _>>()?, texts))
}

/// Reads all arguments as patterns, of which each output has one.
pub(super) fn one_per_output<T>(
    args: &mut Args<'_>,
    outputs: u32,
    read: impl Fn(&str) -> Result<T, FilterError>,
) -> Result<(Vec<T>, Vec<String>), ConfigError> {
    let patterns = patterns(args, read);
    args.finish()?;
    let patterns = patterns?;
    if patterns.0.len() != outputs as usize {
        return Err(args.refuse_all(&format!("need {outputs} arguments, one per output port")));
    }
    Ok(patterns)
}

struct Classifier {
    sorting: Reader<Sorting<Patterns>>,
}

impl Element for Classifier {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let patterns = &self.sorting.pin().choice;
        for i in 0..batch.len() {
            batch.prefetch(i + AHEAD);
            match patterns.find(batch.bytes(i)) {
                Some(output) => batch.output(i, output),
                None => batch.discard(i, DropReason::Unmatched),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Plan;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn frames_leave_by_the_first_pattern_that_takes_them() {
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(in) -> c :: Classifier(0/01 2/??, 0/01, !1/02); c => ToDevice(a), ToDevice(b), ToDevice(c)",
        );
        let sent = rig.receive("in", &[&[1, 2, 3], &[1], &[2, 3], &[2, 2], &[]]);
        let names: String = sent.iter().map(|(device, _)| device.as_str()).collect();
        assert_eq!(names, "aacc");
        assert_eq!(rig.dropped(DropReason::Unmatched), 1);
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(in) -> c :: Classifier(0/01 2/03, 0/01); c => ToDevice(a), ToDevice(b)",
        );
        let sent = rig.receive("in", &[&[1, 2, 3], &[1, 2], &[2, 2]]);
        assert_eq!(sent.iter().map(|(device, _)| device.as_str()).collect::<String>(), "ab");
        assert_eq!(rig.dropped(DropReason::Unmatched), 1);
    }

    #[test]
    fn patterns_are_replaced_while_packets_are_sorted() {
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(in) -> c :: Classifier(0/01, -); c => ToDevice(a), ToDevice(b)",
        );
        let sent = |rig: &mut Rig| -> String {
            let sent = rig.receive("in", &[&[1], &[2]]).into_iter();
            sent.map(|(device, frame)| format!("{device}{}", frame[0])).collect()
        };
        assert_eq!(sent(&mut rig), "a1b2");
        rig.write("c.config", "0/02,0/01");
        assert_eq!((rig.read("c.config"), sent(&mut rig)), ("0/02, 0/01".into(), "a2b1".into()));
        for (config, words) in [
            ("0/02", "need 2 arguments, one per output port"),
            ("0/02, 0/0", "expected two hexadecimal digits a byte"),
        ] {
            let refused = rig.handlers.write("c.config", config).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        assert_eq!((rig.read("c.config"), sent(&mut rig)), ("0/02, 0/01".into(), "a2b1".into()));
    }

    #[cfg(feature = "click")]
    #[test]
    fn a_pattern_is_read_and_written_by_itself() {
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(in) -> c :: Classifier(0/01, -); c => ToDevice(a), ToDevice(b)",
        );
        rig.write("c.pattern0", " 0/02 ");
        assert_eq!([rig.read("c.pattern0"), rig.read("c.pattern1")], ["0/02", "-"]);
        let sent = rig.receive("in", &[&[1], &[2]]);
        let sent: Vec<_> = sent.iter().map(|(device, frame)| (device.as_str(), frame[0])).collect();
        assert_eq!(sent, [("a", 2), ("b", 1)]);
        for config in ["0/03, 0/04", "x", ""] {
            assert!(rig.handlers.write("c.pattern1", config).is_err(), "{config}");
        }
        assert_eq!(rig.read("c.config"), "0/02, -");
        let want =
            " 0   0/02000000%ff000000  yes->[0]  no->[1]\nsafe length 1\nalignment offset 0\n";
        assert_eq!(rig.read("c.program"), want);
    }

    #[test]
    fn each_output_has_its_pattern_and_all_that_is_wrong_is_reported() {
        let text = "Idle -> c :: Classifier(12/0800, -); c -> Discard";
        let reported = Plan::read("a", text, crate::ELEMENTS).unwrap_err().to_string();
        assert!(reported.contains("need 1 arguments, one per output port"), "{reported}");
        let reported = refused(&CLASS, "12/08, 12/0g, \\<ff>, x");
        for words in [
            "expected hexadecimal digits or `?`, at character 5",
            "no text",
            "expected `OFFSET/VALUE`, as in `12/0800`, at character 1",
        ] {
            assert!(reported.contains(words), "{reported}");
        }
    }
}
