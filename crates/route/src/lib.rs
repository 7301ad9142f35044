//! Routes in, the best ones chosen, one snapshot for forwarding out.

pub mod event;
pub mod source;

pub use event::{
    AddressUpdate, AnyPrefix, LinkState, LinkUpdate, MAIN_TABLE, Mac, NeighborState,
    NeighborUpdate, NextHopUpdate, ObjectTarget, RouteEvent, RouteKey, RouteUpdate, Target, Way,
};
