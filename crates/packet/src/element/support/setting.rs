//! A number or switch of an element that its workers read and its handlers change; how values are read that handlers
//! are given.

#[cfg(feature = "click")]
use std::fmt;
use std::marker::PhantomData;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
#[cfg(feature = "click")]
use std::time::Duration;

use fingerpost_route::Mac;

#[cfg(feature = "click")]
use crate::filter::names::Port;
use crate::graph::Made;
use crate::handler::Handler;
use crate::language::Value;

/// Reads what was written to a handler.
pub(crate) fn value<T: Value>(text: &str) -> Result<T, String> {
    T::read(text.trim()).map_err(|words| format!("`{}` is {words}", text.trim()))
}

/// What fits a word.
pub(crate) trait Word: Value + ToString + Copy + 'static {
    fn to_word(self) -> u64;
    /// Value of a word that [`Word::to_word`] made.
    fn of_word(word: u64) -> Self;
    /// Text that a handler shows.
    fn shown(self) -> String {
        self.to_string()
    }
}

/// A link address as Click writes it: `02-00-5E-10-00-01`.
pub(crate) fn dashed(mac: Mac) -> String {
    mac.to_string().replace(':', "-").to_uppercase()
}

impl Word for bool {
    fn to_word(self) -> u64 {
        self.into()
    }
    fn of_word(word: u64) -> Self {
        word != 0
    }
}

impl Word for u8 {
    fn to_word(self) -> u64 {
        self.into()
    }
    fn of_word(word: u64) -> Self {
        word.to_le_bytes()[0]
    }
}

impl Word for u16 {
    fn to_word(self) -> u64 {
        self.into()
    }
    fn of_word(word: u64) -> Self {
        let [low, high, ..] = word.to_le_bytes();
        Self::from_le_bytes([low, high])
    }
}

impl Word for u32 {
    fn to_word(self) -> u64 {
        self.into()
    }
    fn of_word(word: u64) -> Self {
        let [a, b, c, d, ..] = word.to_le_bytes();
        Self::from_le_bytes([a, b, c, d])
    }
}

impl Word for i32 {
    fn to_word(self) -> u64 {
        self.cast_unsigned().to_word()
    }
    fn of_word(word: u64) -> Self {
        u32::of_word(word).cast_signed()
    }
}

impl Word for i64 {
    fn to_word(self) -> u64 {
        self.cast_unsigned()
    }
    fn of_word(word: u64) -> Self {
        word.cast_signed()
    }
}

impl Word for Mac {
    fn to_word(self) -> u64 {
        self.bits()
    }
    fn of_word(word: u64) -> Self {
        let [_, _, bytes @ ..] = word.to_be_bytes();
        Self(bytes)
    }
    fn shown(self) -> String {
        dashed(self)
    }
}

/// A time, which handlers show in seconds.
#[cfg(feature = "click")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Time {
    pub(crate) ns: u64,
}

#[cfg(feature = "click")]
impl From<Duration> for Time {
    fn from(time: Duration) -> Self {
        Self { ns: super::time::nanoseconds(time) }
    }
}

#[cfg(feature = "click")]
impl Value for Time {
    fn read(text: &str) -> Result<Self, String> {
        Duration::read(text).map(Self::from)
    }
}

#[cfg(feature = "click")]
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Duration::from_nanos(self.ns).as_secs_f64().fmt(f)
    }
}

#[cfg(feature = "click")]
impl Word for Time {
    fn to_word(self) -> u64 {
        self.ns
    }
    fn of_word(word: u64) -> Self {
        Self { ns: word }
    }
}

#[cfg(feature = "click")]
impl Word for Port {
    fn to_word(self) -> u64 {
        self.0.into()
    }
    fn of_word(word: u64) -> Self {
        Self(u16::of_word(word))
    }
}

impl Word for Ipv4Addr {
    fn to_word(self) -> u64 {
        self.to_bits().into()
    }
    fn of_word(word: u64) -> Self {
        Self::from_bits(u32::of_word(word))
    }
}

/// The setting. Clones share it.
pub(crate) struct Setting<T>(Arc<AtomicU64>, PhantomData<fn() -> T>);

impl<T> Clone for Setting<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<T: Word> Setting<T> {
    /// Begins with this value.
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(AtomicU64::new(value.to_word())), PhantomData)
    }

    /// The present value.
    #[inline]
    pub(crate) fn get(&self) -> T {
        // Relaxed: no other memory depends on it.
        T::of_word(self.0.load(Relaxed))
    }

    /// Sets another value.
    pub(crate) fn set(&self, value: T) {
        self.0.store(value.to_word(), Relaxed);
    }

    /// Makes another value of the present one, whoever else changes it meanwhile.
    pub(crate) fn change(&self, with: impl Fn(T) -> T) {
        let change = |word| Some(with(T::of_word(word)).to_word());
        // It always gives a value, so this cannot fail.
        let _ = self.0.fetch_update(Relaxed, Relaxed, change);
    }

    /// Adds the handlers that read and write it.
    pub(crate) fn handled(&self, made: Made, name: &'static str) -> Made {
        let (shown, set) = (self.clone(), self.clone());
        made.handler(Handler::read(name, move || shown.get().shown())).handler(Handler::write(
            name,
            move |text| {
                set.set(value::<T>(text)?);
                Ok(())
            },
        ))
    }
}
