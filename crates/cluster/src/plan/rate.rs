//! Rates as people write them: `320G`, `1.28T`, `2.5G`, or a number of bits per second.

use std::fmt;
use std::str::FromStr;

/// A rate in bits per second. K, M, G and T are powers of 1,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

const UNITS: [(char, u64); 4] =
    [('T', 1_000_000_000_000), ('G', 1_000_000_000), ('M', 1_000_000), ('K', 1_000)];

impl Rate {
    /// The rate `count` times.
    pub(crate) fn times(self, count: u64) -> u128 {
        u128::from(self.0) * u128::from(count)
    }

    /// The rate in Gbit/s.
    #[must_use]
    pub fn gbps(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// The smallest rate that holds `numerator / denominator` bits per second.
pub(crate) fn at_least(numerator: u128, denominator: u128) -> Rate {
    Rate(u64::try_from(numerator.div_ceil(denominator)).unwrap_or(u64::MAX))
}

/// Whole and decimal digits, exactly; `None` where a bit per second would be split.
fn scaled(digits: &str, unit: u64) -> Option<u64> {
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    let number = |text: &str| -> Option<u64> {
        text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
    };
    let power = 10_u64.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let part = number(decimals)?.checked_mul(unit)?;
    let whole = number(whole)?.checked_mul(unit)?;
    part.is_multiple_of(power).then(|| whole.checked_add(part / power))?
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit = UNITS.iter().find_map(|&(c, bits)| {
            Some((
                text.strip_suffix(c).or_else(|| text.strip_suffix(c.to_ascii_lowercase()))?,
                bits,
            ))
        });
        let (digits, unit) = unit.unwrap_or((text, 1));
        match scaled(digits, unit) {
            Some(0) => Err("a rate is more than 0".to_owned()),
            Some(bits) => Ok(Self(bits)),
            None => Err("no rate: `320G`, `1.28T`, `100M`, or bits per second".to_owned()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((c, unit)) = UNITS.iter().find(|(_, unit)| self.0 >= *unit) else {
            return write!(f, "{}", self.0);
        };
        let digits = unit.ilog10() as usize;
        let decimals = format!("{:0digits$}", self.0 % unit);
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{}{c}", self.0 / unit),
            decimals => write!(f, "{}.{decimals}{c}", self.0 / unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written_exactly() {
        for (text, bits) in [
            ("320G", 320_000_000_000),
            ("1.28T", 1_280_000_000_000),
            ("2.5G", 2_500_000_000),
            ("625M", 625_000_000),
            ("17", 17),
            ("6.666666667G", 6_666_666_667),
        ] {
            assert_eq!(text.parse(), Ok(Rate(bits)));
            assert_eq!(Rate(bits).to_string(), text);
        }
        assert_eq!("0.625g".parse(), Ok(Rate(625_000_000)));
        for text in ["", "G", ".", ".5G", "1.G", "-1G", "+1G", "10 G", "10Gbps", "1.5", "0.0001K"] {
            assert!(text.parse::<Rate>().unwrap_err().starts_with("no rate"), "{text}");
        }
        for text in ["99999999999T", "1.00000000000000000000000G", "18446744073709551616"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert_eq!("0G".parse::<Rate>(), Err("a rate is more than 0".to_owned()));
    }
}
