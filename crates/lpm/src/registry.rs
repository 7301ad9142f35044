//! Finding a row of the registry: by family, and by name.

use alloc::vec::Vec;
use core::fmt;

use crate::addr::Addr;
use crate::algo::modules;
use crate::kernel_layout::KernelLayout;
use crate::lookup::Algorithm;
use crate::mem::Region;

/// The IPv4 algorithms, in registry order.
pub fn v4() -> impl Iterator<Item = &'static Algorithm<u32>> + Clone {
    modules().flat_map(|module| module.v4)
}

/// The IPv6 algorithms, in registry order.
pub fn v6() -> impl Iterator<Item = &'static Algorithm<u128>> + Clone {
    modules().flat_map(|module| module.v6)
}

/// A family as the registry knows it, for code that serves both.
pub trait Rows: Addr {
    /// The algorithms of the family, in registry order.
    fn rows() -> impl Iterator<Item = &'static Algorithm<Self>> + Clone;

    /// The algorithm called `name`.
    ///
    /// # Errors
    /// [`Unknown`], with the cargo feature that the algorithm needs, if there is one.
    fn row(name: &str) -> Result<&'static Algorithm<Self>, Unknown> {
        find(Self::rows(), name)
    }
}

impl Rows for u32 {
    fn rows() -> impl Iterator<Item = &'static Algorithm<Self>> + Clone {
        v4()
    }
}

impl Rows for u128 {
    fn rows() -> impl Iterator<Item = &'static Algorithm<Self>> + Clone {
        v6()
    }
}

/// The IPv4 algorithm called `name`.
///
/// # Errors
/// [`Unknown`], with the cargo feature that the algorithm needs, if there is one.
pub fn find_v4(name: &str) -> Result<&'static Algorithm<u32>, Unknown> {
    u32::row(name)
}

/// The IPv6 algorithm called `name`.
///
/// # Errors
/// [`Unknown`], with the cargo feature that the algorithm needs, if there is one.
pub fn find_v6(name: &str) -> Result<&'static Algorithm<u128>, Unknown> {
    u128::row(name)
}

impl KernelLayout {
    /// Layouts of a family's algorithms.
    pub fn all<A: Rows>() -> impl Iterator<Item = &'static Self> {
        A::rows().filter_map(|row| row.kernel_layout)
    }

    /// Layout of the structure with these regions and its constants; `None` when the program has no reader for it.
    pub fn of<A: Addr + Rows>(regions: &[Region]) -> Option<(&'static Self, Vec<u64>)> {
        Self::all::<A>().find_map(|layout| Some((layout, (layout.constants)(regions)?)))
    }
}

/// Whether the XDP datapath can read tables of the algorithm called `name`.
pub fn is_kernel_readable(name: &str) -> bool {
    fn of<A: Rows>(name: &str) -> bool {
        A::rows().any(|row| row.name == name && row.kernel_layout.is_some())
    }
    of::<u32>(name) || of::<u128>(name)
}

fn find<A: Addr>(
    rows: impl IntoIterator<Item = &'static Algorithm<A>>,
    name: &str,
) -> Result<&'static Algorithm<A>, Unknown> {
    if let Some(row) = rows.into_iter().find(|row| row.name == name) {
        return Ok(row);
    }
    Err(Unknown { family: A::FAMILY, needs: needs(name) })
}

/// An algorithm that is compiled on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// Name of its row; variants have names that begin so.
    pub name: &'static str,
    /// The cargo feature of this crate that brings it.
    pub feature: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Where it is from, as [`Algorithm::source`].
    pub source: &'static str,
    built_in: bool,
}

const ON_DEMAND: &[OnDemand] = &[OnDemand {
    name: "poptrie",
    feature: "poptrie",
    summary: "64-way trie by counted bits, equal leaves and equal routes stored once",
    source: "Asai, Ohara, SIGCOMM 2015",
    built_in: cfg!(feature = "poptrie"),
}];

/// Algorithms whose feature was off when this crate was built: no row of the registry is theirs.
pub fn left_out() -> impl Iterator<Item = &'static OnDemand> {
    ON_DEMAND.iter().filter(|algorithm| !algorithm.built_in)
}

/// The cargo feature of this crate that algorithm `name` needs and that was off when it was built.
pub fn needs(name: &str) -> Option<&'static str> {
    needs_of(name, ON_DEMAND)
}

fn needs_of(name: &str, on_demand: &[OnDemand]) -> Option<&'static str> {
    let off = on_demand.iter().find(|known| !known.built_in && name.starts_with(known.name));
    off.map(|known| known.feature)
}

/// No algorithm of that name for that family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// 4 or 6.
    pub family: u8,
    /// The cargo feature that would bring it.
    pub needs: Option<&'static str>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(feature) = self.needs {
            return write!(f, "needs fingerpost-lpm with feature {feature:?}, built without it");
        }
        write!(f, "no such IPv{} algorithm", self.family)
    }
}

impl core::error::Error for Unknown {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Heap;
    use crate::routes::RouteStore;
    use alloc::string::{String, ToString};

    #[test]
    fn names_are_found() {
        for row in v4() {
            assert_eq!(find_v4(row.name).map(|found| found.name), Ok(row.name));
        }
        for row in v6() {
            assert_eq!(find_v6(row.name).map(|found| found.name), Ok(row.name));
        }
        let first = v4().next().unwrap().name;
        let unknown = find_v4(&(String::from("x") + first)).unwrap_err();
        assert_eq!(unknown.to_string(), "no such IPv4 algorithm");
        let long = "x".repeat(100);
        assert!(find_v6(&long).is_err() && find_v6("").is_err());
    }

    #[test]
    fn what_was_left_out_is_named() {
        let of = |name, feature, built_in| OnDemand { name, feature, built_in, ..ON_DEMAND[0] };
        let off = [of("poptrie", "poptrie", false), of("other", "more", true)];
        assert_eq!(needs_of("poptrie16", &off), Some("poptrie"));
        assert_eq!((needs_of("other", &off), needs_of("poptri", &off)), (None, None));
        for name in ["poptrie", "poptrie16", "poptrie18"] {
            let on = cfg!(feature = "poptrie");
            assert_eq!((find_v4(name).is_ok(), find_v6(name).is_ok()), (on, on), "{name}");
            assert_eq!(needs(name).is_none(), on);
        }
        for known in ON_DEMAND {
            let listed = left_out().any(|left_out| left_out == known);
            assert_eq!(listed, find_v4(known.name).is_err(), "{}", known.name);
            let Ok(row) = find_v4(known.name) else { continue };
            assert_eq!((row.summary, row.source), (known.summary, known.source));
        }
        let unknown = Unknown { family: 4, needs: Some("poptrie") };
        assert!(unknown.to_string().contains("feature \"poptrie\""), "{unknown}");
    }

    #[test]
    fn rows_have_names_of_their_own_and_say_what_they_are() {
        fn check<A: Addr>(rows: impl Iterator<Item = &'static Algorithm<A>>) {
            let rows: Vec<_> = rows.collect();
            for (i, row) in rows.iter().enumerate() {
                assert!(rows[..i].iter().all(|other| other.name != row.name), "{}", row.name);
                assert!(!row.summary.is_empty() && !row.source.is_empty(), "{}", row.name);
                assert!(row.limits.prefix_len <= A::BITS && row.limits.next_hop > 0);
            }
        }
        check(v4());
        check(v6());
    }

    fn check_layouts<A: Rows>() {
        let routes = RouteStore::<A>::new();
        for row in A::rows() {
            let table = row.build(&routes, &mut Heap).map(|mut table| table.publish());
            let table = table.expect("an empty table fits all");
            let found = KernelLayout::of::<A>(table.regions());
            assert_eq!(found.is_some(), is_kernel_readable(row.name), "{}", row.name);
            let Some((layout, constants)) = found else { continue };
            assert!(constants.len() == layout.names.len() && constants[0] > 0, "{}", row.name);
            for region in layout.regions {
                assert!(table.regions().iter().any(|r| r.name() == region.region), "{region:?}");
            }
        }
    }

    #[test]
    fn a_layout_is_found_by_the_regions_of_its_tables() {
        check_layouts::<u32>();
        check_layouts::<u128>();
        assert!(!is_kernel_readable("no such algorithm"));
    }
}
