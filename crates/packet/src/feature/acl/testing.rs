//! The law of access lists, for tests and the fuzzer: what is found is what a search from the first rule on finds.
//!
//! ```text
//! rules        lines of text, up to a byte 0; those that are no rules are left out
//! a packet     length, as many bytes (fewer at the end), from the IP header on
//! ```

use super::rules::{Rule, Rules};
use crate::filter::{Filter, key_of};

/// Rules of an input at most: one of a few bytes may take hundreds of boxes.
const MOST: usize = 64;

/// The rules that count or decide a packet, found one after the other, up to the first that decides.
pub(super) fn expected(rules: &[Rule], filters: &[Filter], packet: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    for (number, (rule, filter)) in (0..).zip(rules.iter().zip(filters)) {
        if filter.matches(packet) {
            found.push(number);
            if rule.verdict.decides() {
                return found;
            }
        }
    }
    found.push(u32::try_from(rules.len()).expect("few rules"));
    found
}

/// Compares compiled rules with [`expected`], and the boxes of each with its condition.
///
/// # Panics
/// The law does not hold.
pub(super) fn compare<'a>(rules: &[Rule], packets: impl IntoIterator<Item = &'a [u8]>) {
    let filters: Vec<Filter> = rules.iter().map(|rule| rule.condition.filter()).collect();
    let compiled = Rules::new(rules.to_vec());
    let texts = || rules.iter().map(|rule| &*rule.text).collect::<Vec<_>>();
    for packet in packets {
        let want = expected(rules, &filters, packet);
        assert_eq!(compiled.all_of(packet), want, "{:?} {packet:02x?}", texts());
        for (rule, filter) in rules.iter().zip(&filters) {
            let Some((family, key)) = key_of(packet) else { continue };
            let boxes = rule.condition.boxes(family);
            let inside = boxes.boxes.iter().any(|one| one.contains(&key));
            let holds = filter.matches(packet);
            assert!(inside || !holds, "{}: no box has {packet:02x?}", rule.text);
            assert!(!boxes.exact || inside == holds, "{}: {packet:02x?}", rule.text);
        }
    }
}

/// Reads rules and packets from any bytes, and checks the law.
///
/// # Panics
/// It does not hold.
pub fn check(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    let rules: Vec<Rule> =
        text.lines().filter_map(|line| Rule::parse(line).ok()).take(MOST).collect();
    let mut rest = bytes.get(end + 1..).unwrap_or_default();
    let packets = std::iter::from_fn(|| {
        let (&len, behind) = rest.split_first()?;
        let (packet, next) = behind.split_at(behind.len().min(len.into()));
        rest = next;
        Some(packet)
    });
    compare(&rules, packets);
}
