//! The section `[groups]`: how flows are spread over the members of next-hop groups.

use fingerpost_route::group::GroupMode;
use serde::Deserialize;

/// Next-hop groups (ECMP and UCMP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Groups {
    /// How the slots of a group are shared among its next hops.
    pub(crate) layout: Layout,
    /// Seed of the hash of flows; without it a random number. The routers of a cluster need the same seed.
    pub(crate) flow_seed: Option<u64>,
}

/// How their members share the slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layout {
    /// Only the flows of next hops that are removed or lose weight move.
    #[default]
    Resilient,
    /// The arithmetic of FreeBSD.
    Slots,
}

impl Layout {
    pub(crate) fn mode(self) -> GroupMode {
        match self {
            Self::Resilient => GroupMode::Resilient,
            Self::Slots => GroupMode::Slots,
        }
    }
}
