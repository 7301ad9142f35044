//! Access lists as the XDP datapath reads them (`forward.c`): the trees of all ingress lists in one array, and its counts.
//!
//! Shape: rows [u32; 4 n]: for each list and family a row with the first row of its trees that decide, that of its trees
//!        that count or 0, the place of its first count, and how many rules it has; then the trees: a row each with its root and
//!        the first of its rules, [`NONE`] at the end; then nodes and rows of leaves, by the bits of the first word:
//!        node (bits 0-3 word, 8-12 shift): the first child, what is subtracted from the word, number of the last child
//!        comparison (bits 0-3 word, 4 set, 16-31 rows to the next rule): mask, least value, how far above it values may be
//!        rule (bit 5 set, 6 inexact, 7 denies, 16 set): the rule; [`NONE`] ends a leaf
//!        hits [u64; 2 n], by CPU and rule: packets, bytes; behind a list's rules those that no rule decided
//! Cost:  as of `classify.rs`; a rule that does not take the packet costs a read less, since it stands behind its comparisons.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use fingerpost_lpm::{Region, UpdateError};
use fingerpost_route::MemoryMaker;

use super::classify::{Classifier, INEXACT, NONE, Row, index};
use super::lists::Total;
use super::rules::Rules;
use crate::filter::Family;

/// Bits of the first word of a row.
const COMPARISON: u32 = 1 << 4;
const RULE: u32 = 1 << 5 | 1 << 16;
const UNSURE: u32 = 1 << 6;
const DENIES: u32 = 1 << 7;

/// Words of 8 bytes of a count.
const HIT_WORDS: usize = 2;

/// The ingress lists of a router for the XDP datapath.
#[derive(Debug)]
pub struct KernelLists {
    /// The rows.
    pub rows: Region,
    /// The counts.
    pub hits: Region,
    /// Counts of a CPU.
    pub stride: usize,
    /// Whether some rule counts only.
    pub counts: bool,
    /// Whether some rule has a condition that has to be evaluated beside the rows.
    pub inexact: bool,
    /// Gone when nobody counts here any more.
    in_use: Arc<()>,
}

/// The counts of one list among those of [`KernelLists`].
#[derive(Debug)]
pub(super) struct KernelHits {
    hits: Region,
    stride: usize,
    first: usize,
    in_use: Weak<()>,
}

impl KernelLists {
    /// Puts these lists, of which some are not for ingress, into such memory, with counts for so many CPUs.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(
        lists: &[Option<&Rules>],
        memory: &MemoryMaker,
        cpus: usize,
    ) -> Result<Self, UpdateError> {
        let mut image: Vec<Row> = vec![[0; 4]; lists.len() * 2];
        let (mut stride, mut counts) = (0, false);
        for (number, rules) in lists.iter().enumerate() {
            let Some(rules) = rules else { continue };
            for family in [Family::V4, Family::V6] {
                let [decide, count] = rules.classifiers(family);
                let decide = append(&mut image, decide, |rule| !rules.permits(rule));
                let count = match count.arrays().2 {
                    [] => 0,
                    _ => append(&mut image, count, |_| false),
                };
                counts |= count != 0;
                image[number * 2 + family as usize] = [decide, count, index(stride), rules.none()];
            }
            stride += rules.rules().len() + 1;
        }
        // CPUs count in lines of their own.
        let stride = stride.next_multiple_of(4);
        let mut memory = memory.make();
        // A power of two, since programs mask.
        let rows = memory.region("acl", image.len().next_power_of_two().max(4) * 16)?;
        let words = image.iter().flatten();
        rows.u32s().iter().zip(words).for_each(|(cell, word)| cell.store(*word, Relaxed));
        let hits = memory.region("acl_hits", cpus * stride * HIT_WORDS * 8)?;
        let inexact = image.iter().any(|[how, ..]| how & !DENIES == RULE | UNSURE);
        Ok(Self { rows, hits, stride, counts, inexact, in_use: Arc::default() })
    }

    /// The counts of the list whose first count has this place.
    pub(super) fn hits(&self, first: usize) -> KernelHits {
        let (hits, in_use) = (self.hits.clone(), Arc::downgrade(&self.in_use));
        KernelHits { hits, stride: self.stride, first, in_use }
    }
}

impl KernelHits {
    /// Whether nobody counts here any more.
    pub(super) fn is_over(&self) -> bool {
        self.in_use.strong_count() == 0
    }

    /// Adds the counts of each rule to its total.
    pub(super) fn add_to(&self, totals: &mut [Total]) {
        for cpu in self.hits.u64s().chunks_exact(self.stride * HIT_WORDS) {
            let hits = cpu.chunks_exact(HIT_WORDS).skip(self.first);
            // Relaxed: numbers of a program that may be running, read for people.
            for (total, hit) in totals.iter_mut().zip(hits) {
                let (packets, bytes) = (hit[0].load(Relaxed), hit[1].load(Relaxed));
                *total = total.plus(Total { packets, bytes });
            }
        }
    }
}

/// Appends the trees of a classifier; returns the first of their rows.
fn append(image: &mut Vec<Row>, classifier: &Classifier, denies: impl Fn(u32) -> bool) -> u32 {
    let (nodes, rows, trees) = classifier.arrays();
    let start = index(image.len());
    let first_node = start + index(trees.len()) + 1;
    let first_row = first_node + index(nodes.len());
    image.extend(trees.iter().map(|tree| [first_node + tree.root, tree.first, 0, 0]));
    image.push([0, NONE, 0, 0]);
    for (&[child, from, how, last], at) in nodes.iter().zip(0..) {
        // A leaf, its own child, leads to its first row.
        let leaf = [0, first_row + from, 0, 0];
        image.push(if child == at { leaf } else { [how, first_node + child, from, last] });
    }
    let mut rest = rows;
    while let [[rule, how, ..], behind @ ..] = rest {
        let (comparisons, next) =
            behind.split_at(if *rule == NONE { 0 } else { (how & 0xff) as usize });
        for (&[word, mask, low, span], to_next) in
            comparisons.iter().zip((2..=index(comparisons.len()) + 1).rev())
        {
            image.push([word | COMPARISON | to_next << 16, mask, low, span]);
        }
        let unsure = if how & INEXACT != 0 { UNSURE } else { 0 };
        let denied = if denies(*rule) { DENIES } else { 0 };
        image.push([RULE | unsure | denied, *rule, 0, 0]);
        rest = next;
    }
    start
}
