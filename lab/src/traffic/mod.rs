//! Traffic of benches and of the demo, made and counted in the kernel.
//!
//! A [`Generator`] makes it, a [`Sink`] counts it and lets a share through to be checked, a [`Meter`] checks all of it and
//! takes the time. Each is a program in C beside what loads it.

pub mod generator;
pub mod meter;
#[cfg(test)]
mod rate;
pub mod sink;

pub use generator::Generator;
pub use meter::Meter;
pub use sink::Sink;
