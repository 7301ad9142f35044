//! Patterns that packets are sorted by, and that handlers change while packets are sorted: what `Classifier`, `IPClassifier` and
//! `IPFilter` have in common.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_route::{Publisher, Reader};

use crate::filter::FilterError;
use crate::graph::{Element, Made, Setup, configured};
use crate::handler::Handler;
use crate::language::{Arg, Args, ConfigError};

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
    // All errors are reported, not only the first.
    let patterns: Vec<_> = given.iter().map(one).collect();
    let texts = given.iter().map(|arg| arg.uncommented().trim().to_owned()).collect();
    Ok((patterns.into_iter().collect::<Result<_, _>>()?, texts))
}

/// Most patterns of which those are searched for that match nothing.
#[cfg(feature = "click")]
const SEARCHED: usize = 64;

/// Warns of the outputs of so many patterns that no packet leaves by: what earlier patterns take, and what contradicts
/// itself, is not in the listing.
#[cfg(feature = "click")]
pub(super) fn warn_of_unused(
    args: &mut Args<'_>,
    patterns: usize,
    listing: impl FnOnce() -> String,
) {
    let listing = if patterns <= SEARCHED { listing() } else { String::new() };
    // Too long a program is none.
    let known = if listing.contains("safe length") { patterns } else { 0 };
    for number in (0..known).filter(|number| !listing.contains(&format!("->[{number}]"))) {
        args.warn_all(&format!("output {number} matches no packets"));
    }
}

#[cfg(not(feature = "click"))]
pub(super) fn warn_of_unused(_: &mut Args<'_>, _: usize, _: impl FnOnce() -> String) {}

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
