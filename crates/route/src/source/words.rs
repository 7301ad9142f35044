//! Messages about unknown words.

/// ``unknown WHAT `given` ``, with the nearest of `known`, or with all of them where none is near.
pub fn unknown<'a>(what: &str, given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(given, known.iter().copied()) {
        Some(word) => format!("unknown {what} `{given}`, did you mean `{word}`?"),
        None if known.is_empty() => format!("unknown {what} `{given}`, none is known"),
        None => format!("unknown {what} `{given}`, known: {}", known.join(", ")),
    }
}

/// The nearest of `known`, if at most two letters and half of the word differ; letters that
/// changed places count as one.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (steps, word) =
        known.into_iter().map(|word| (strsim::osa_distance(given, word), word)).min()?;
    (steps <= 2 && steps * 2 <= word.len()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_letters_may_be_wrong_and_half_the_word() {
        let known = ["via", "dev", "blackhole", "metric"];
        for (given, want) in [
            ("via", Some("via")),
            ("vai", Some("via")),
            ("", None),
            ("blackhol", Some("blackhole")),
            ("metrics", Some("metric")),
            ("weight", None),
        ] {
            assert_eq!(nearest(given, known), want, "{given}");
        }
    }
}
