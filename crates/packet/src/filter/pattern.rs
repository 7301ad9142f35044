//! Patterns over the bytes of a frame, as `Classifier` takes them: `12/0806 20/0001`.
//!
//! A pattern is `-`, which takes every frame, or clauses between spaces, all of which must hold. A clause
//! is `OFFSET/VALUE` or `OFFSET/VALUE%MASK`: a decimal offset, and bytes in hexadecimal, in which `?`
//! stands for any four bits. `!` before a clause turns it round.
//!
//! Source: the manual page of Click's Classifier. What a mask leaves out need not even be there; a clause
//! that reads bytes past the end of the frame does not hold, so its contrary does.

use super::FilterError;
use super::program::{Expr, Loaded, Program, Rule, Test};

/// Bytes of the longest frame that any port takes.
const FRAME: usize = 1 << 16;

/// Where a word begins: a multiple of 4.
type Offset = u16;

/// One pattern.
#[derive(Clone, Debug)]
pub struct Pattern(Expr<Offset>);

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Where it is wrong, and what was expected.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match words[..] {
            [] => Err(FilterError::new(0, "expected `OFFSET/VALUE`, or `-` for all frames")),
            ["-"] => Ok(Self(Expr::Const(true))),
            _ => {
                let clauses: Result<Vec<_>, _> =
                    words.iter().map(|word| clause(word, super::offset_in(text, word))).collect();
                clauses.map(|clauses| Self(Expr::all(clauses)))
            }
        }
    }
}

/// Reads a clause that begins at this offset of the text.
fn clause(word: &str, start: usize) -> Result<Expr<Offset>, FilterError> {
    let (positive, rest) = match word.strip_prefix('!') {
        Some(rest) => (false, rest),
        None => (true, word),
    };
    let at = |part: &str| start + super::offset_in(word, part);
    let Some((offset, bytes)) = rest.split_once('/') else {
        return Err(FilterError::new(at(rest), "expected `OFFSET/VALUE`, as in `12/0800`"));
    };
    let digits = offset.bytes().all(|byte| byte.is_ascii_digit());
    let Some(first) = offset.parse::<usize>().ok().filter(|_| digits) else {
        return Err(FilterError::new(at(offset), "expected an offset, a decimal number"));
    };
    let (value, mask) = match bytes.split_once('%') {
        Some((value, mask)) => (value, Some(mask)),
        None => (bytes, None),
    };
    let (value, mut asked) = hex(value, at(value), true)?;
    if let Some(mask) = mask {
        let (mask, _) = hex(mask, at(mask), false).and_then(|mask| {
            let differs = mask.0.len() != value.len();
            let error = || FilterError::new(at(bytes), "expected a mask as long as the value");
            if differs { Err(error()) } else { Ok(mask) }
        })?;
        for (asked, mask) in asked.iter_mut().zip(mask) {
            *asked &= mask;
        }
    }
    if first.saturating_add(value.len()) > FRAME {
        return Err(FilterError::new(at(offset), "expected a place below 65536"));
    }
    let expr = Expr::all(words_of(first, &value, &asked));
    Ok(if positive { expr } else { expr.not() })
}

/// Bytes and which of their bits are given.
fn hex(text: &str, start: usize, any: bool) -> Result<(Vec<u8>, Vec<u8>), FilterError> {
    let mut nibbles = Vec::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let nibble = match letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok()) {
            Some(digit) => (digit, 15),
            None if any && letter == '?' => (0, 0),
            None if any => {
                return Err(FilterError::new(start + at, "expected hexadecimal digits or `?`"));
            }
            None => return Err(FilterError::new(start + at, "expected hexadecimal digits")),
        };
        nibbles.push(nibble);
    }
    let (pairs, rest) = nibbles.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(FilterError::new(start, "expected two hexadecimal digits a byte"));
    }
    Ok(pairs.iter().map(|[a, b]| (a.0 << 4 | b.0, a.1 << 4 | b.1)).unzip())
}

/// The tests of the words in which these bytes lie.
fn words_of<'a>(
    first: usize,
    value: &'a [u8],
    mask: &'a [u8],
) -> impl Iterator<Item = Expr<Offset>> + 'a {
    let last = first + value.len();
    (first / 4..last.div_ceil(4)).filter_map(move |word| {
        let byte = |bytes: &[u8], at: usize| {
            (word * 4 + at).checked_sub(first).and_then(|at| bytes.get(at)).copied().unwrap_or(0)
        };
        let gather = |bytes| u32::from_be_bytes([0, 1, 2, 3].map(|at| byte(bytes, at)));
        let load = u16::try_from(word * 4).expect("places are below 65536");
        let test = Test::equal(load, gather(mask), gather(value));
        (test.mask != 0).then_some(Expr::Test(test, true))
    })
}

/// Patterns in order, compiled.
#[derive(Clone, Debug)]
pub struct Patterns(Program<Offset>);

impl Patterns {
    /// At most 65,535 of them: what is behind that is not looked at.
    pub fn new(patterns: impl IntoIterator<Item = Pattern>) -> Self {
        Self(Program::new(&rules(patterns)))
    }

    /// Listing of patterns as Click's handler `program` has it.
    pub(crate) fn listing(patterns: &[Pattern]) -> String {
        let outputs = u16::try_from(patterns.len()).unwrap_or(u16::MAX);
        super::listing::of_frames(&rules(patterns.iter().cloned()), outputs)
    }

    /// The number of the first pattern that takes the frame.
    #[inline]
    pub fn find(&self, frame: &[u8]) -> Option<u16> {
        self.0.run(|at| word(frame, at))
    }
}

fn rules(patterns: impl IntoIterator<Item = Pattern>) -> Vec<Rule<Offset>> {
    let rule = |(answer, Pattern(expr))| Rule { expr, answer };
    (0..u16::MAX).zip(patterns).map(rule).collect()
}

#[inline]
fn word(frame: &[u8], at: Offset) -> Loaded {
    let rest = frame.get(usize::from(at)..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => Loaded { word: u32::from_be_bytes(*bytes), there: u32::MAX },
        None => {
            let (mut word, mut there) = ([0; 4], [0; 4]);
            word[..rest.len()].copy_from_slice(rest);
            there[..rest.len()].fill(0xff);
            Loaded { word: u32::from_be_bytes(word), there: u32::from_be_bytes(there) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn patterns(texts: &[&str]) -> Patterns {
        Patterns::new(texts.iter().map(|text| Pattern::parse(text).unwrap()))
    }

    #[test]
    fn what_a_router_asks_for() {
        let sort = patterns(&["12/0806 20/0001", "12/0806 20/0002", "12/0800", "12/86dd", "-"]);
        let mut frame = [0; 60];
        let mut with = |kind: u16, operation: u16| {
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            frame[20..22].copy_from_slice(&operation.to_be_bytes());
            sort.find(&frame)
        };
        assert_eq!(with(0x0806, 1), Some(0));
        assert_eq!(with(0x0806, 2), Some(1));
        assert_eq!(with(0x0806, 3), Some(4));
        assert_eq!(with(0x0800, 1), Some(2));
        assert_eq!(with(0x86dd, 0), Some(3));
        assert_eq!(with(0x8100, 0), Some(4));
        assert_eq!(sort.find(&[8; 13]), Some(4));
        assert_eq!(patterns(&["12/0800"]).find(&[0; 60]), None);
        assert_eq!(patterns(&[]).find(&[0; 60]), None);
    }

    #[test]
    fn masks_wildcards_and_contraries() {
        let takes = |text: &str, frame: &[u8]| patterns(&[text]).find(frame) == Some(0);
        assert!(takes("0/4?", &[0x45]) && takes("0/?5", &[0x45]) && !takes("0/5?", &[0x45]));
        assert!(takes("0/45%f0", &[0x4a]) && !takes("0/45%0f", &[0x4a]));
        assert!(takes("0/4?%0f", &[0x12]), "under the mask nothing is asked");
        assert!(takes("!0/45", &[0x46]) && !takes("!0/45", &[0x45]));
        assert!(takes("!0/4546", &[0x45]), "the second byte is not there");
        assert!(takes("3/01ff", &[0, 0, 0, 1, 0xff]) && !takes("3/01ff", &[0, 0, 0, 1]));
        assert!(takes("9/??", &[]), "what may be anything need not be there");
        assert!(takes(" 0/aA\t1/bB ", &[0xaa, 0xbb]));
        let long = vec![0; 65536];
        assert!(takes("65535/00", &long) && !takes("65535/00", &long[1..]));
    }

    #[test]
    fn errors_name_the_place() {
        for (text, at, words) in [
            ("", 0, "expected `OFFSET/VALUE`, or `-` for all frames"),
            ("12/0800 x", 8, "expected `OFFSET/VALUE`, as in `12/0800`"),
            ("12/0800 -", 8, "expected `OFFSET/VALUE`, as in `12/0800`"),
            ("!", 1, "expected `OFFSET/VALUE`, as in `12/0800`"),
            ("/08", 0, "expected an offset, a decimal number"),
            (" !+1/08", 2, "expected an offset, a decimal number"),
            ("-1/08", 0, "expected an offset, a decimal number"),
            ("12/080", 3, "expected two hexadecimal digits a byte"),
            ("12/", 3, "expected two hexadecimal digits a byte"),
            ("12/08g0", 5, "expected hexadecimal digits or `?`"),
            ("12/08%?f", 6, "expected hexadecimal digits"),
            ("12/08%ffff", 3, "expected a mask as long as the value"),
            ("12/08%", 6, "expected two hexadecimal digits a byte"),
            ("65536/00", 0, "expected a place below 65536"),
            ("12/08é", 5, "expected hexadecimal digits or `?`"),
            ("99999999999999999999999/00", 0, "expected an offset, a decimal number"),
        ] {
            let error = Pattern::parse(text).unwrap_err();
            assert_eq!((error.at, error.message.as_str()), (at, words), "{text}");
        }
    }

    /// A clause before it is text: byte by byte, with the nibbles that are given.
    #[derive(Clone, Debug)]
    struct Plain {
        positive: bool,
        at: usize,
        nibbles: Vec<Option<u8>>,
        mask: Option<Vec<u8>>,
    }

    impl Plain {
        fn text(&self) -> String {
            let nibble = |n: &Option<u8>| n.map_or("?".into(), |n| format!("{n:x}"));
            let value: String = self.nibbles.iter().map(nibble).collect();
            let mask = self.mask.as_ref().map(|mask| {
                format!("%{}", mask.iter().map(|n| format!("{n:X}")).collect::<String>())
            });
            let sign = if self.positive { "" } else { "!" };
            format!("{sign}{}/{value}{}", self.at, mask.unwrap_or_default())
        }

        fn holds(&self, frame: &[u8]) -> bool {
            let holds = self.nibbles.iter().enumerate().all(|(n, want)| {
                let mask = self.mask.as_ref().map_or(15, |mask| mask[n]);
                // A byte is there for one of its nibbles when it is there for the other.
                let Some(want) = want.filter(|_| mask != 0) else { return true };
                let Some(byte) = frame.get(self.at + n / 2) else { return false };
                let nibble = if n % 2 == 0 { byte >> 4 } else { byte & 15 };
                nibble & mask == want & mask
            });
            holds == self.positive
        }
    }

    fn plain() -> impl Strategy<Value = Plain> {
        // Few values and places, so that patterns and frames meet.
        let nibble = prop_oneof![3 => (0..2_u8).prop_map(Some), 1 => Just(None)];
        let mask = prop_oneof![Just(15_u8), Just(0), Just(1), 0..16_u8];
        (any::<bool>(), 0..12_usize, 1..4_usize).prop_flat_map(move |(positive, at, bytes)| {
            let nibbles = prop::collection::vec(nibble.clone(), 2 * bytes);
            let mask = prop::option::of(prop::collection::vec(mask.clone(), 2 * bytes));
            (nibbles, mask).prop_map(move |(nibbles, mask)| Plain { positive, at, nibbles, mask })
        })
    }

    proptest! {
        #[test]
        fn frames_go_where_a_reader_would_send_them(
            patterns in prop::collection::vec(prop::collection::vec(plain(), 1..4), 0..8),
            frames in prop::collection::vec(
                prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0x11), Just(0x10)], 0..16),
                1..20,
            ),
        ) {
            let texts: Vec<String> = patterns
                .iter()
                .map(|clauses| clauses.iter().map(Plain::text).collect::<Vec<_>>().join(" "))
                .collect();
            let compiled = Patterns::new(texts.iter().map(|text| Pattern::parse(text).unwrap()));
            for frame in frames {
                let takes = |clauses: &Vec<Plain>| clauses.iter().all(|c| c.holds(&frame));
                let want = patterns.iter().position(takes).map(|n| u16::try_from(n).unwrap());
                prop_assert_eq!(compiled.find(&frame), want, "{:?} {:?}", texts, frame);
            }
        }

        #[test]
        fn any_text_is_read_or_refused_inside_it(text in "[!0-9a-f/% ?é-]{0,24}") {
            if let Err(error) = Pattern::parse(&text) {
                prop_assert!(text.is_char_boundary(error.at), "{} of {text:?}", error.at);
            }
        }
    }
}
