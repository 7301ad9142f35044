//! The frame of a command line, shared by `fingerpost` and `fingerpost-lab`.
//!
//! [`dispatch`] has the registry row of a command and runs it, [`output`] has text, JSON and messages,
//! [`choice`] the names of algorithms as values of options, [`load`] reads tables
//! from files, [`progress`] shows how far long work is, [`save`] writes files, and [`plot`] draws SVG. `testing` checks the commands of a program: their help,
//! their examples and their recorded output.

pub mod choice;
pub mod dispatch;
pub mod former;
#[allow(unsafe_code, reason = "a signal handler; its invariants are numbered there")]
mod interrupt;
pub mod load;
pub mod output;
pub mod plot;
pub mod progress;
pub mod save;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
