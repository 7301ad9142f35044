//! The registry of algorithms.
