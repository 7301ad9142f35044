//! Messages about words that are not known.

/// ``unknown WHAT `given` ``, with the nearest of `known`, or with all of them where none is near.
pub(super) fn unknown<'a>(
    what: &str,
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = known.iter().map(|word| (distance(given, word), word)).min();
    match near {
        // Half the word may be wrong, but no more than two letters.
        Some((steps, word)) if steps <= 2 && steps * 2 <= word.len() => {
            format!("unknown {what} `{given}`, did you mean `{word}`?")
        }
        Some(_) => format!("unknown {what} `{given}`, known: {}", known.join(", ")),
        None => format!("unknown {what} `{given}`, none is known"),
    }
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
