//! Times as text: RFC 3339, in UTC, with milliseconds.
//!
//! Source: the days of a civil date by Howard Hinnant's `civil_from_days` (chrono-Compatible Low-Level Date Algorithms).
//! UTC, since the host's zone is a database of its own, and two routers are compared by their logs.

use std::time::{SystemTime, UNIX_EPOCH};

/// Formats a time as `2026-11-21T10:11:12.345Z`.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, ms) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Seconds since 1970 of `YYYY-MM-DD` or `YYYY-MM-DDTHH:MM` in UTC, from 1970 to 9999.
#[must_use]
pub fn seconds_of(text: &str) -> Option<u64> {
    let (day, time) = text.split_once('T').unwrap_or((text, "00:00"));
    let digits = |text: &str, len: usize| {
        let right = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        right.then(|| text.parse::<u64>().ok()).flatten()
    };
    let [year, month, number] = day.split('-').collect::<Vec<_>>().try_into().ok()?;
    let wanted = (digits(year, 4)?, digits(month, 2)?, digits(number, 2)?);
    let (hour, minute) = time.split_once(':')?;
    let (hour, minute) = (digits(hour, 2)?, digits(minute, 2)?);
    // A year has 365.2425 days, so that the day is one of the next ones.
    let near = (wanted.0.checked_sub(1970)? * 146_097 / 400 + (wanted.1.max(1) - 1) * 30)
        .saturating_sub(2);
    let days = (near..near + 40).find(|&days| date(days) == wanted)?;
    (hour < 24 && minute < 60).then_some(days * 86_400 + hour * 3600 + minute * 60)
}

/// Year, month and day, of days since 1970.
#[must_use]
pub fn date(days: u64) -> (u64, u64, u64) {
    // From the first of March of year 0 on, so that a leap day ends its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_date_has_its_seconds() {
        for day in 0..60_000 {
            let (year, month, number) = date(day);
            let text = format!("{year:04}-{month:02}-{number:02}");
            assert_eq!(seconds_of(&text), Some(day * 86_400), "{text}");
        }
        assert_eq!(seconds_of("2026-11-21T10:21"), Some(1_795_256_460));
        for wrong in ["2026-02-29", "1969-12-31", "2026-1-1", "2026-01-01T24:00", "2026-13-01", "x"]
        {
            assert_eq!(seconds_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_those_of_date() {
        // By `date -u -d @SECONDS +%FT%T`.
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_001, "2000-02-29T00:00:00.001Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599_500, "2024-12-31T23:59:59.500Z"),
            (1_795_256_472_345, "2026-11-21T10:21:12.345Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(ms)), text);
        }
    }
}
