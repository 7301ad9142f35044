//! Best routes and their changes, for pictures of the address space: copied, some thousand at a time.

use fingerpost_lpm::{Addr, Prefix};
use fingerpost_route::rib::Rib;
use fingerpost_route::{AnyPrefix, Happened, SnapshotError};

use super::View;
use crate::api::error::{ApiError, Code};
use crate::api::map::{MapChanges, MapFound, MapPrefix, MapRange, MapRead, MapRoute};

/// Work of a piece, in routes: some 100 us of the daemon's thread.
const PIECE: usize = 4096;
/// Routes that are copied at once, where there are many ranges and where there is one: those behind a range are thrown away.
const FEW: usize = 24;
const MANY: usize = 1024;

impl View<'_> {
    /// Routes of ranges and of single prefixes, as they are now.
    pub(super) fn map_routes(&self, read: MapRead) -> Result<MapFound, ApiError> {
        let Some((v4, v6)) = self.control.ribs(read.table) else {
            let error = SnapshotError::NoTable(read.table);
            return Err(ApiError::at(Code::NotFound, "table", error));
        };
        Ok(if read.family == 4 { routes(v4, read) } else { routes(v6, read) })
    }

    /// Prefixes of a table whose best route changed after a notice, and the number of the latest one.
    pub(super) fn map_changes(&self, table: u32, family: u8, since: Option<u64>) -> MapChanges {
        let notices = since.and_then(|since| self.control.notices(since).ok());
        let prefixes = notices.map(|notices| {
            let changed = notices.filter_map(|notice| match &notice.what {
                Happened::Route { key, best: true, .. } if key.table == table => {
                    match (key.prefix, family) {
                        (AnyPrefix::V4(prefix), 4) => Some(from_left(prefix)),
                        (AnyPrefix::V6(prefix), 6) => Some(from_left(prefix)),
                        _ => None,
                    }
                }
                _ => None,
            });
            changed.collect()
        });
        MapChanges { prefixes, sequence: self.control.sequence() }
    }
}

fn routes<A: Addr>(rib: &Rib<A>, read: MapRead) -> MapFound {
    let own = |&prefix: &MapPrefix| rib.of(from_right(prefix)).next().map_or(0, |best| best.hop.0);
    let mut found = MapFound { exact: read.exact.iter().map(own).collect(), ..MapFound::default() };
    let (mut ranges, mut work) = (read.ranges, found.exact.len());
    let mut copied = Vec::new();
    while let Some(MapRange { mut after, last }) = ranges.pop() {
        let most = if ranges.is_empty() { MANY } else { FEW };
        loop {
            if work >= PIECE {
                ranges.push(MapRange { after, last });
                found.ranges = ranges;
                return found;
            }
            copied.clear();
            rib.copy_after(after.map(from_right), most, &mut copied);
            // A descent costs as much as some routes, also to a range that is empty.
            work += copied.len().max(FEW);
            let all = copied.drain(..).map(|(prefix, hop)| (from_left(prefix), hop.0));
            let before = found.routes.len();
            let inside = all.take_while(|((addr, _), _)| *addr <= last);
            found.routes.extend(inside.map(|(prefix, hop)| MapRoute { prefix, hop }));
            if found.routes.len() - before < most {
                break;
            }
            after = found.routes.last().map(|route| route.prefix);
        }
    }
    found
}

fn from_left<A: Addr>(prefix: Prefix<A>) -> MapPrefix {
    (prefix.addr().to_u128() << (128 - u32::from(A::BITS)), prefix.len())
}

fn from_right<A: Addr>((addr, len): MapPrefix) -> Prefix<A> {
    let addr = A::from_u128(addr >> (128 - u32::from(A::BITS)));
    Prefix::masked(addr, len.min(A::BITS))
}

#[cfg(test)]
mod tests {
    use fingerpost_lpm::NextHopId;
    use fingerpost_route::rib::Candidate;

    use super::*;
    use crate::api::map::MapRead;

    #[test]
    fn ranges_are_read_in_pieces() {
        let mut rib = Rib::<u32>::default();
        let mut add = |addr: u32, len, hop| {
            let candidate = Candidate { source: 0, distance: 1, metric: 0, hop: NextHopId(hop) };
            rib.insert(Prefix::masked(addr, len), candidate, 0);
        };
        add(0, 0, 9);
        add(0x0A00_0000, 8, 1);
        for low in 0..10_000 {
            add(0x0A00_0000 + low * 256, 24, 2);
        }
        add(0x0B00_0000, 8, 3);
        let left = |addr: u32, len| (u128::from(addr) << 96, len);
        let last = left(0x0AFF_FFFF, 32).0 | u128::MAX >> 32;
        let ranges = vec![MapRange { after: Some(left(0x0A00_0000, 7)), last }];
        let exact = vec![left(0, 0), left(0, 1), left(0x0B00_0000, 8)];
        let mut read = MapRead { table: 254, family: 4, ranges, exact };
        let (mut all, mut pieces) = (Vec::new(), 0);
        loop {
            let found = routes(&rib, read.clone());
            if pieces == 0 {
                assert_eq!(found.exact, [9, 0, 3]);
            }
            pieces += 1;
            all.extend(found.routes);
            if found.ranges.is_empty() {
                break;
            }
            (read.ranges, read.exact) = (found.ranges, Vec::new());
        }
        assert_eq!((all.len(), pieces), (10_001, 3));
        // Ranges without routes are work too.
        let nothing = MapRange { after: Some(left(0x0C00_0000, 8)), last: left(0x0CFF_FFFF, 32).0 };
        let ranges = vec![nothing; 1000];
        let found = routes(&rib, MapRead { ranges, ..read });
        assert!(found.routes.is_empty() && !found.ranges.is_empty(), "{}", found.ranges.len());
        assert_eq!(all[0], MapRoute { prefix: left(0x0A00_0000, 8), hop: 1 });
        assert!(all.windows(2).all(|pair| pair[0].prefix < pair[1].prefix));
    }
}
