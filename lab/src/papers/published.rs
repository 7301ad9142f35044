//! What the papers print, as they print it.

/// A row of the tests of DXR's authors: who, then for SEQ, RND and REP the millions of lookups a second
/// on an E5-1650, an FX-8350, an i7-4771 and an i5-3210M.
///
/// Source: DXR's web page, 2014: one thread, uniform keys, linx of 22 April 2014 (513,643 prefixes, 239
/// next hops).
pub(super) struct Dxr {
    /// What it is called there.
    pub(super) name: &'static str,
    /// Which of our rows is the same scheme.
    pub(super) ours: &'static str,
    /// Figures by test, then machine.
    pub(super) rates: [[f64; 4]; 3],
}

const fn dxr(name: &'static str, ours: &'static str, rates: [[f64; 4]; 3]) -> Dxr {
    Dxr { name, ours, rates }
}

/// The machines of [`DXR`].
pub(super) const DXR_MACHINES: &str = "E5-1650 / FX-8350 / i7-4771 / i5-3210M";

pub(super) static DXR: &[Dxr] = &[
    dxr("BSD", "radix", [[4.7, 4.7, 4.9, 4.1], [4.8, 4.8, 4.9, 4.1], [8.9, 9.1, 8.8, 8.2]]),
    dxr(
        "DIR-24-8",
        "dir24_8",
        [[27.5, 24.8, 19.9, 16.1], [135.0, 75.2, 137.8, 92.1], [223.1, 148.5, 307.8, 186.4]],
    ),
    dxr(
        "D16R",
        "dxr16",
        [[67.1, 71.7, 88.5, 72.0], [93.7, 102.7, 123.5, 95.1], [128.0, 162.5, 172.0, 129.3]],
    ),
    dxr(
        "D18R",
        "dxr18",
        [[57.0, 72.7, 79.3, 69.2], [134.4, 144.9, 179.1, 140.9], [210.5, 232.0, 294.6, 212.2]],
    ),
    dxr(
        "D20R",
        "dxr20",
        [[62.1, 86.6, 79.3, 82.4], [211.5, 190.5, 273.3, 230.4], [327.3, 297.9, 465.2, 312.4]],
    ),
    dxr(
        "D21R",
        "dxr21",
        [[63.1, 62.1, 76.5, 29.7], [248.7, 171.9, 308.5, 118.5], [361.2, 267.8, 490.7, 217.1]],
    ),
    dxr(
        "D22R",
        "dxr22",
        [[60.6, 45.3, 37.8, 19.1], [247.6, 122.2, 141.6, 99.9], [290.5, 194.2, 206.9, 191.3]],
    ),
];

/// Shares of all 2^K chunks with 1, 2, 3 to 4, .. 129 to 256 ranges, K from 16 to 22; same source and table.
pub(super) static CHUNKS: [[f64; 9]; 7] = [
    [0.75318, 0.02029, 0.04551, 0.04385, 0.04750, 0.04628, 0.03082, 0.01167, 0.00087],
    [0.80845, 0.01961, 0.04394, 0.04278, 0.03985, 0.02984, 0.01428, 0.00121, 0.00003],
    [0.85712, 0.02175, 0.04058, 0.03472, 0.02792, 0.01578, 0.00209, 0.00003, 0.0],
    [0.90347, 0.01829, 0.03194, 0.02596, 0.01699, 0.00330, 0.00005, 0.0, 0.0],
    [0.93821, 0.01400, 0.02545, 0.01732, 0.00494, 0.00006, 0.0, 0.0, 0.0],
    [0.96177, 0.01289, 0.01826, 0.00697, 0.00008, 0.00001, 0.0, 0.0, 0.0],
    [0.97907, 0.01073, 0.01004, 0.00013, 0.00001, 0.0, 0.0, 0.0, 0.0],
];

/// Statistics of linx that D20R prints (its `stat` handler, same page), by the names of ours.
pub(super) static STAT: &[(&str, u64)] = &[
    ("prefixes", 513_644),
    ("physical_short_chunks", 40_247),
    ("physical_long_chunks", 1_416),
    ("physical_short_fragments", 237_728),
    ("physical_long_fragments", 9_173),
    ("aggregated_short_chunks", 63_313),
    ("aggregated_long_chunks", 1_477),
    ("aggregated_short_fragments", 306_484),
    ("aggregated_long_fragments", 9_354),
];

/// FreeBSD's module test_lookup on a Ryzen 5 5600X (commit of May 2021): host RND, SEQ, BGP RND, SEQ. SEQ is
/// too low as printed: the time of as many independent lookups was in it. bsearch4 has no BGP figures.
pub(super) static FREEBSD: &[(&str, &str, [Option<f64>; 4])] = &[
    ("bsearch4", "bsearch", [Some(93.6), Some(46.7), None, None]),
    ("radix4", "radix", [Some(18.9), Some(9.3), Some(4.3), Some(2.1)]),
    ("radix4_lockless", "radix_lockless", [Some(37.2), Some(18.6), Some(5.3), Some(2.7)]),
    ("dpdk_lpm4", "lpm4", [Some(51.8), Some(15.1), Some(51.6), Some(14.9)]),
    ("dxr", "dxr", [Some(218.2), Some(103.3), Some(114.0), Some(49.0)]),
];

/// A form of Poptrie in the slides: i7-4770K, tier-1 table of 9 January 2015, random keys.
pub(super) struct Form {
    /// Which extensions it has.
    pub(super) name: &'static str,
    /// Which of our rows is the same.
    pub(super) ours: &'static str,
    /// Inner nodes.
    pub(super) nodes: u64,
    /// Leaves.
    pub(super) leaves: u64,
    /// Memory, in MiB.
    pub(super) mib: f64,
    /// Millions of lookups a second.
    pub(super) rate: f64,
}

const fn form(
    name: &'static str,
    ours: &'static str,
    nodes: u64,
    leaves: u64,
    mib: f64,
    rate: f64,
) -> Form {
    Form { name, ours, nodes, leaves, mib, rate }
}

pub(super) static FORMS: &[Form] = &[
    form("basic, s = 0", "poptrie_basic", 64_009, 4_032_568, 8.67, 87.71),
    form("basic, s = 16", "poptrie16_basic", 172_110, 10_862_901, 23.60, 130.72),
    form("basic, s = 18", "poptrie18_basic", 61_282, 3_911_422, 9.40, 170.69),
    form("leafvec, s = 0", "poptrie_leafvec", 64_009, 280_673, 2.00, 89.15),
    form("leafvec, s = 16", "poptrie16_leafvec", 172_110, 347_449, 4.85, 154.33),
    form("leafvec, s = 18", "poptrie18_leafvec", 61_282, 269_320, 2.91, 191.95),
    form("aggregated, s = 0", "poptrie", 43_191, 263_381, 1.49, 96.27),
    form("aggregated, s = 16", "poptrie16", 86_171, 274_145, 2.75, 198.28),
    form("aggregated, s = 18", "poptrie18", 40_760, 245_034, 2.40, 240.52),
];

/// Same source: name there, ours, MiB, and millions of lookups a second on the table, on SYN1 (764,847
/// routes) and on SYN2 (885,645), where they have it. D18R was changed for the last two; SAIL could not hold
/// the last.
pub(super) static COMPARED: &[(&str, &str, f64, [Option<f64>; 3])] = &[
    ("Radix", "radix", 30.48, [Some(8.82), None, None]),
    ("Tree Bitmap", "tree_bitmap", 2.62, [Some(56.24), None, None]),
    ("Tree Bitmap 64-ary", "tree_bitmap64", 3.10, [Some(61.61), None, None]),
    ("SAIL", "sail", 44.24, [Some(158.22), Some(102.86), None]),
    ("D16R", "dxr16", 1.16, [Some(116.63), None, None]),
    ("D18R", "dxr18", 1.91, [Some(179.92), Some(115.45), Some(102.59)]),
    ("Poptrie 16", "poptrie16", 2.75, [Some(198.28), None, None]),
    ("Poptrie 18", "poptrie18", 2.40, [Some(240.52), Some(188.02), Some(174.42)]),
];

/// Poptrie's slides, IPv6: 20,440 prefixes, random keys in 2000::/8.
pub(super) static IPV6: &[(&str, f64)] =
    &[("dxr", 166.5), ("poptrie16", 209.84), ("poptrie18", 211.32)];

/// Same source: shares of lookups that end deeper than 18 and than 24 in a binary trie, random addresses and
/// those of real traffic (a border router of WIDE).
pub(super) const DEEPER: [(&str, f64, f64); 2] =
    [("random", 0.221, 0.017), ("real trace", 0.325, 0.218)];
