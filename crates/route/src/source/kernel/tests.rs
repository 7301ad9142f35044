//! Messages in, events out: single cases, each with the messages that the kernel sends.
