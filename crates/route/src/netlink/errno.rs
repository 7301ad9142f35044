//! Words of the kernel's errors, for columns and sentences: without the number that [`io::Error`] adds.

use std::io;

/// What [`io::Error`] writes before the number of an error of the kernel, which a parenthesis ends.
const NUMBER: &str = " (os error ";

/// Words of the error of this number: `Operation not permitted` for 1.
pub fn words(errno: u32) -> String {
    without_number(&io::Error::from_raw_os_error(errno.cast_signed()).to_string())
}

/// `text` without the numbers of errors in it.
pub fn without_number(text: &str) -> String {
    let mut parts = text.split(NUMBER);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |words, part| match part.split_once(')') {
        Some((number, rest)) if number.parse::<i32>().is_ok() => words + rest,
        _ => words + NUMBER + part,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_left_out() {
        assert_eq!(words(1), "Operation not permitted");
        let mode = "copy: zero-copy refused by bind (Operation not supported (os error 95)), busy (os error 16)";
        let short = "copy: zero-copy refused by bind (Operation not supported), busy";
        assert_eq!(without_number(mode), short);
        assert_eq!(without_number("a (os error x)"), "a (os error x)");
    }
}
