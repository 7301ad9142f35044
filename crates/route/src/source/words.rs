//! Messages about words that are not known.

/// ``unknown WHAT `given` ``, with the nearest of `known`, or with all of them where none is near.
pub fn unknown<'a>(what: &str, given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(given, known.iter().copied()) {
        Some(word) => format!("unknown {what} `{given}`, did you mean `{word}`?"),
        None if known.is_empty() => format!("unknown {what} `{given}`, none is known"),
        None => format!("unknown {what} `{given}`, known: {}", known.join(", ")),
    }
}

/// The nearest of `known`, if it is near: half the word may be wrong, but no more than two letters.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (steps, word) = known.into_iter().map(|word| (distance(given, word), word)).min()?;
    (steps <= 2 && steps * 2 <= word.len()).then_some(word)
}

/// Letters to insert, remove, replace or swap with the next one (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = [(0..=b.len()).collect::<Vec<_>>(), Vec::new(), Vec::new()];
    for i in 1..=a.len() {
        rows.rotate_right(1);
        let [row, above, before] = &mut rows;
        row.clear();
        row.push(i);
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
    }
    rows[0][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, want) in [
            ("", "", 0),
            ("via", "via", 0),
            ("vai", "via", 1),
            ("", "dev", 3),
            ("blackhol", "blackhole", 1),
            ("metrics", "weight", 6),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (want, want), "{a} {b}");
        }
    }
}
