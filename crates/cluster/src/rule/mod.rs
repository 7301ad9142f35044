//! The choice of a path through the mesh: pure functions over states, weights and queue lengths.
//!
//! Source: Valiant load balancing and its direct variant, RouteBricks, SOSP 2009, section 3; Zhang-Shen and McKeown,
//!         "Designing a Predictable Internet Backbone with Valiant Load-Balancing", 2005. The adaptive rule is ours, of
//!         the family of UGAL (Singh, 2005): the direct link while its queue is short, else the better of two others.
//! Cost:   no allocation, no clock, no random source: the caller passes a random word; a choice reads a few words of
//!         the members and at most three queue lengths.
//! Limits: at most one deviation a packet. An intermediate sees its own links, the input does not see them.
//!
//! A packet from input `i` to output `j` goes direct, over link `i -> j`, or by an intermediate `m`, over `i -> m` in
//! phase 1 and `m -> j` in phase 2. `choose` is the decision at the input, `forward` that of every later node.

mod alias;
mod choose;
mod forward;
mod members;

pub use choose::{Choice, Local, Path, Rule, Settings, Why, choose};
pub use forward::{Phase, Refusal, Step, forward};
pub use members::{MAX_NODES, Members, NodeId, NodeState};
