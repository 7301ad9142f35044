//! The functions that scripts have: arithmetic, comparison, text.
//!
//! Source: the manual page of Click's `Script`. Numbers are whole ones of 64 bits where all operands are, and floating
//! point otherwise. Words keep their quotes where they are results, and are compared without them.

use super::text::{first_word, plain, words};
use crate::element::click::only::clock;
use crate::element::support::time;
use crate::language::Value;

/// Names of the functions; the element has a handler for each.
pub(crate) const NAMES: &[&str] = &[
    "add", "sub", "mul", "div", "idiv", "mod", "rem", "neg", "abs", "min", "max", "eq", "ne", "gt",
    "ge", "lt", "le", "not", "and", "or", "nand", "nor", "xor", "if", "in", "first", "now",
    "random", "sprintf", "length", "unquote", "htons", "ntohs", "htonl", "ntohl",
];

#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
enum Number {
    Whole(i64),
    Real(f64),
}

impl Number {
    fn read(text: &str) -> Result<Self, String> {
        if let Ok(whole) = i64::read(text) {
            return Ok(Self::Whole(whole));
        }
        let real = text.parse::<f64>().ok().filter(|real| real.is_finite());
        real.map(Self::Real).ok_or_else(|| format!("`{text}` is no number"))
    }

    #[allow(clippy::cast_precision_loss, reason = "what floating point is")]
    fn real(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Real(real) => real,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Whole(whole) => whole.to_string(),
            Self::Real(real) => shown_real(real),
        }
    }
}

/// Digits of a floating-point number that are written.
const DIGITS: usize = 12;

/// A number as `%.12g` of C writes it.
fn shown_real(real: f64) -> String {
    let scientific = format!("{real:.*e}", DIGITS - 1);
    let Some((digits, exponent)) = scientific.split_once('e') else { return real.to_string() };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match usize::try_from(exponent + 4) {
        // From 0.0001 on, and as long as the digits reach the point.
        Ok(above) if above < DIGITS + 4 => {
            trim(&format!("{real:.*}", (DIGITS + 3).saturating_sub(above)))
        }
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(digits), exponent.unsigned_abs())
        }
    }
}

/// Result of one of [`NAMES`] at that time of the worker's clock; `None` where there is no such function.
pub(crate) fn call(name: &str, text: &str, now_ns: u64) -> Option<Result<String, String>> {
    NAMES.contains(&name).then(|| evaluate(name, text, now_ns))
}

fn evaluate(name: &str, text: &str, now_ns: u64) -> Result<String, String> {
    let words = words(text);
    let number = |word: &&str| Number::read(word).map_err(|_| "expected list of numbers".into());
    let numbers = || words.iter().map(number).collect::<Result<Vec<_>, String>>();
    let truth = |word: &str| bool::read(word).map_err(|words| format!("`{word}` is {words}"));
    // The first of the words that is so decides, and none behind it is read.
    let any = |value: bool| {
        let found = |found, word: &&str| Ok::<_, String>(found || truth(word)? == value);
        words.iter().try_fold(false, found)
    };
    let one = || words.first().copied().ok_or_else(|| format!("`{name}` takes an argument"));
    let shown = |value: bool| Ok(value.to_string());
    match name {
        "add" => fold(&numbers()?, Number::Whole(0), i64::checked_add, |a, b| a + b),
        "mul" => fold(&numbers()?, Number::Whole(1), i64::checked_mul, |a, b| a * b),
        "sub" => first_of(&numbers()?, i64::checked_sub, |a, b| a - b),
        "div" => first_of(
            &numbers()?,
            |a, b| a.checked_rem(b).filter(|&rest| rest == 0).and(a.checked_div(b)),
            |a, b| a / b,
        ),
        #[allow(clippy::cast_possible_truncation, reason = "as a cast of C, but that it saturates")]
        "idiv" => {
            let numbers = numbers()?;
            let mut numbers = numbers.iter().map(|number| number.real());
            let first = numbers.next().unwrap_or(1.0);
            Ok((numbers.fold(first, |a, b| a / b) as i64).to_string())
        }
        "mod" | "rem" => match numbers()?[..] {
            [Number::Whole(_), Number::Whole(0)] => Err("division by zero".into()),
            [Number::Whole(a), Number::Whole(b)] => Ok(a.wrapping_rem(b).to_string()),
            [a, b] if name == "rem" => Ok(shown_real(a.real() % b.real())),
            _ => Err("expected two numbers".into()),
        },
        "neg" => match Number::read(one()?)? {
            Number::Whole(whole) => Ok(whole.wrapping_neg().to_string()),
            Number::Real(real) => Ok(shown_real(-real)),
        },
        "abs" => match Number::read(one()?)? {
            Number::Whole(whole) => Ok(whole.unsigned_abs().to_string()),
            Number::Real(real) => Ok(shown_real(real.abs())),
        },
        "min" | "max" => {
            let numbers = numbers()?;
            let compare = |a: &&Number, b: &&Number| a.real().total_cmp(&b.real());
            let found = match name {
                "min" => numbers.iter().min_by(compare),
                _ => numbers.iter().max_by(compare),
            };
            found.map(|number| number.text()).ok_or_else(|| format!("`{name}` takes numbers"))
        }
        "eq" | "ne" | "gt" | "ge" | "lt" | "le" => {
            let [a, b] = words[..] else { return Err("expected two numbers".into()) };
            let order = match (Number::read(a), Number::read(b)) {
                (Ok(Number::Whole(a)), Ok(Number::Whole(b))) => Some(a.cmp(&b)),
                (Ok(a), Ok(b)) => a.real().partial_cmp(&b.real()),
                _ => Some(plain(a).cmp(&plain(b))),
            };
            let Some(order) = order else { return shown(false) };
            shown(match name {
                "eq" => order.is_eq(),
                "ne" => order.is_ne(),
                "gt" => order.is_gt(),
                "ge" => order.is_ge(),
                "lt" => order.is_lt(),
                _ => order.is_le(),
            })
        }
        "not" => shown(!truth(one()?)?),
        "and" => shown(!any(false)?),
        "nand" => shown(any(false)?),
        "or" => shown(any(true)?),
        "nor" => shown(!any(true)?),
        "xor" => {
            let odd = words.iter().try_fold(false, |odd, word| Ok::<_, String>(odd ^ truth(word)?));
            shown(odd?)
        }
        "if" => {
            let yes = truth(one()?)?;
            Ok(words.get(if yes { 1 } else { 2 }).copied().unwrap_or_default().to_owned())
        }
        "in" => {
            let mut words = words.iter().map(|word| plain(word));
            let what = words.next();
            shown(what.is_some_and(|what| words.any(|word| word == what)))
        }
        "first" => Ok(words.first().copied().unwrap_or_default().to_owned()),
        "now" => Ok(clock::seconds(clock::time_of_day(now_ns))),
        "random" => random(&numbers()?),
        "sprintf" => sprintf(text),
        "length" => Ok(text.len().to_string()),
        "unquote" => Ok(plain(text.trim())),
        "htons" | "ntohs" => Ok(u16::read(one()?)?.swap_bytes().to_string()),
        _ => Ok(u32::read(one()?)?.swap_bytes().to_string()),
    }
}

fn fold(
    numbers: &[Number],
    start: Number,
    whole: impl Fn(i64, i64) -> Option<i64>,
    real: impl Fn(f64, f64) -> f64,
) -> Result<String, String> {
    Ok(numbers.iter().fold(start, |a, b| join(a, *b, &whole, &real)).text())
}

/// The first number, and what the others make of it.
fn first_of(
    numbers: &[Number],
    whole: impl Fn(i64, i64) -> Option<i64>,
    real: impl Fn(f64, f64) -> f64,
) -> Result<String, String> {
    let Some((first, rest)) = numbers.split_first() else { return Err("no numbers".into()) };
    let made = rest.iter().fold(*first, |a, b| join(a, *b, &whole, &real));
    Ok(made.text())
}

fn join(
    a: Number,
    b: Number,
    whole: &impl Fn(i64, i64) -> Option<i64>,
    real: &impl Fn(f64, f64) -> f64,
) -> Number {
    if let (Number::Whole(a), Number::Whole(b)) = (a, b)
        && let Some(made) = whole(a, b)
    {
        return Number::Whole(made);
    }
    Number::Real(real(a.real(), b.real()))
}

/// A number below the only bound, or between two.
fn random(bounds: &[Number]) -> Result<String, String> {
    let word = time::random_word();
    let (low, high) = match bounds {
        [] => (0, i64::MAX),
        [Number::Whole(bound)] => (0, bound.saturating_sub(1)),
        [Number::Whole(low), Number::Whole(high)] => (*low, *high),
        _ => return Err("`random` takes whole numbers".into()),
    };
    let count = u128::try_from(i128::from(high) - i128::from(low) + 1).unwrap_or(0);
    if count == 0 {
        return Err("`random`: there is no number between these".into());
    }
    let chosen = i128::from(low) + i128::try_from(u128::from(word) % count).unwrap_or(0);
    Ok(chosen.to_string())
}

/// `%d %x %05d %s %%` and the like.
fn sprintf(text: &str) -> Result<String, String> {
    let (format, values) = first_word(text);
    let (format, all) = (plain(format), words(values));
    let mut values = all.as_slice();
    let mut out = String::new();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if rest.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let (mut left, mut zero, mut sign, mut marked) = (false, false, "", false);
        let (mut width, mut digits) = (0_usize, None);
        loop {
            match rest.peek() {
                Some('-') => left = true,
                Some('0') if width == 0 && digits.is_none() => zero = true,
                Some('+') => sign = "+",
                Some(' ') if sign.is_empty() => sign = " ",
                Some('#') => marked = true,
                Some(' ' | 'l' | 'L' | 'h' | 'q') => {}
                Some('.') => digits = Some(0_usize),
                Some('*') => {
                    let Some((given, more)) = values.split_first() else {
                        return Err("too few values".into());
                    };
                    values = more;
                    let given =
                        i64::read(given).map_err(|words| format!("`{given}` is {words}"))?;
                    left |= given < 0 && digits.is_none();
                    let given = usize::try_from(given.unsigned_abs()).unwrap_or(1000).min(1000);
                    *digits.as_mut().unwrap_or(&mut width) = given;
                }
                Some(&digit) if digit.is_ascii_digit() => {
                    let value = digits.as_mut().unwrap_or(&mut width);
                    *value = (*value * 10 + digit as usize - '0' as usize).min(1000);
                }
                _ => break,
            }
            rest.next();
        }
        let Some((value, more)) = values.split_first() else { return Err("too few values".into()) };
        values = more;
        let whole = || i64::read(value).map_err(|words| format!("`{value}` is {words}"));
        let of = |digits_of: &dyn Fn(u64) -> String, mark: &str| {
            let whole = whole()?;
            let shown = digits_of(u64::from_ne_bytes(whole.to_ne_bytes()));
            let mark = if marked && whole != 0 { mark } else { "" };
            Ok::<_, String>((mark.to_owned(), format!("{shown:0>0$}", digits.unwrap_or(1))))
        };
        let conversion = rest.next();
        let (sign, body) = match conversion {
            Some('d' | 'i') => {
                let whole = whole()?;
                let sign = if whole < 0 { "-" } else { sign };
                (sign.to_owned(), format!("{:0>1$}", whole.unsigned_abs(), digits.unwrap_or(1)))
            }
            Some('u') => of(&|n| n.to_string(), "")?,
            Some('x') => of(&|n| format!("{n:x}"), "0x")?,
            Some('X') => of(&|n| format!("{n:X}"), "0X")?,
            Some('o') => of(&|n| format!("{n:o}"), "0")?,
            Some('c') => (String::new(), char::from(u8::read(value).unwrap_or(b'?')).to_string()),
            Some('s') => {
                (String::new(), plain(value).chars().take(digits.unwrap_or(usize::MAX)).collect())
            }
            Some('f' | 'g' | 'e') => {
                let value = Number::read(value)?.real();
                let sign = if value < 0.0 { "-" } else { sign };
                (sign.to_owned(), format!("{:.*}", digits.unwrap_or(6), value.abs()))
            }
            _ => return Err("a format that is not known".into()),
        };
        let fill = width.saturating_sub(sign.len() + body.len());
        // A precision takes the place of zeroes before whole numbers.
        let whole = matches!(conversion, Some('d' | 'i' | 'u' | 'x' | 'X' | 'o'));
        let zero = zero && !(whole && digits.is_some());
        match (left, zero) {
            (true, _) => out.extend([sign, body, " ".repeat(fill)]),
            (false, true) => out.extend([sign, "0".repeat(fill), body]),
            (false, false) => out.extend([" ".repeat(fill), sign, body]),
        }
    }
    if !values.is_empty() {
        return Err("too many values".into());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        let (name, text) = first_word(text);
        call(name, text, 0).unwrap().unwrap_or_else(|words| format!("error: {words}"))
    }

    #[test]
    fn numbers_and_truths() {
        for (text, want) in [
            ("add 1 2", "3"),
            ("add", "0"),
            ("sub 5 1 1", "3"),
            ("mul 2 1.5", "3"),
            ("div 3 2", "1.5"),
            ("div 4 2", "2"),
            ("div 10 3", "3.33333333333"),
            ("mul 1e12 10", "1e+13"),
            ("mul 1e10 10", "100000000000"),
            ("mul 0.00001 5", "5e-05"),
            ("mul 0.0001 5", "0.0005"),
            ("add 0.1 0.2", "0.3"),
            ("sub 0.5 0.5", "0"),
            ("idiv 7 2", "3"),
            ("mod -1 3", "-1"),
            ("rem -1 3", "-1"),
            ("add 9223372036854775807 1", "9.22337203685e+18"),
            ("neg 3", "-3"),
            ("abs -3", "3"),
            ("min 3 0x2 7", "2"),
            ("max 3 2 7.5", "7.5"),
            ("eq 1 0x1", "true"),
            ("eq a a", "true"),
            ("lt 2 10", "true"),
            ("ge 2 10", "false"),
            ("not false", "true"),
            ("and true 1 yes", "true"),
            ("or false 0", "false"),
            ("xor true true true", "true"),
            ("if true a b", "a"),
            ("if 0 a", ""),
            ("in b a c", "false"),
            ("in b b c", "true"),
            ("sprintf %03d-%x-%s|%-3d|%5.2f%% 7 255 z 1 1.5", "007-ff-z|1  | 1.50%"),
            ("sprintf %.3d|%+d|%.2x 5 5 10", "005|+5|0a"),
            ("sprintf %*d|%-*d| 5 3 3 1", "    3|1  |"),
            ("htons 1", "256"),
            ("random 1", "0"),
            ("sprintf %03d|%-5d|%#x|%08.3d -7 -7 255 -5", "-07|-7   |0xff|    -005"),
            ("sprintf '%s, %5s' \"a b\" c", "a b,     c"),
            ("sprintf %d", "error: too few values"),
            ("sprintf %d 1 2", "error: too many values"),
            ("and true false x", "false"),
            ("and true x", "error: `x` is neither `true` nor `false`"),
            ("or false 1 x", "true"),
            ("nand true false x", "true"),
            ("nor false false", "true"),
            ("if true 'a b' c", "'a b'"),
            ("in 'a' b a", "true"),
            ("eq 'a' a", "true"),
            ("eq a", "error: expected two numbers"),
            ("first 'a b' c", "'a b'"),
            ("length 'a b'", "5"),
            ("unquote 'a  b'", "a  b"),
            ("idiv -7 2", "-3"),
            ("rem 7.5 2", "1.5"),
            ("mod 7.5 2", "error: expected two numbers"),
            ("div 1 0", "inf"),
            ("mod 1 0", "error: division by zero"),
            ("add x", "error: expected list of numbers"),
            ("random 0", "error: `random`: there is no number between these"),
        ] {
            assert_eq!(of(text), want, "{text}");
        }
        assert!(call("nothing", "", 0).is_none());
    }
}
