//! Archives of route collectors: where the table dump of a time is, and the updates that follow it.
//!
//! Source: the archives of RIPE RIS (collectors `rrcNN`; a dump every 8 hours, updates of 5 minutes) and of RouteViews (others;
//! every 2 hours, of 15 minutes). All times are UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use fingerpost_command::time::{date, seconds_of};

const DAY: u64 = 86_400;

/// A collector of an archive.
pub(super) struct Collector {
    name: String,
    is_ris: bool,
    base: String,
}

impl Collector {
    /// The collector of this name, at a mirror or at the archive itself.
    pub(super) fn new(name: &str, base: Option<&str>) -> Result<Self, String> {
        let safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
        let number = name.strip_prefix("rrc");
        let is_ris = number.is_some_and(|n| n.len() == 2 && n.bytes().all(|b| b.is_ascii_digit()));
        if !(is_ris || name.starts_with("route-views")) || !name.chars().all(safe) {
            return Err(format!(
                "collector `{name}`: neither rrcNN (RIPE RIS) nor route-views* (RouteViews)"
            ));
        }
        let usual =
            if is_ris { "https://data.ris.ripe.net" } else { "https://archive.routeviews.org" };
        let base = base.unwrap_or(usual).trim_end_matches('/').to_owned();
        Ok(Self { name: name.to_owned(), is_ris, base })
    }

    /// Seconds between dumps.
    pub(super) fn interval(&self) -> u64 {
        if self.is_ris { 8 * 3600 } else { 2 * 3600 }
    }

    /// Time of the last dump at or before this time.
    pub(super) fn dump_at(&self, time: u64) -> u64 {
        time - time % self.interval()
    }

    /// URL of the dump of a time.
    pub(super) fn dump(&self, time: u64) -> String {
        match self.is_ris {
            true => self.url("", "bview", time, "gz"),
            false => self.url("RIBS/", "rib", time, "bz2"),
        }
    }

    /// URLs of the first `count` files of updates from a time on.
    pub(super) fn updates(&self, from: u64, count: u32) -> impl Iterator<Item = String> {
        let (folder, minutes, end) =
            if self.is_ris { ("", 5, "gz") } else { ("UPDATES/", 15, "bz2") };
        let time = move |n| from + u64::from(n) * minutes * 60;
        (0..count).map(move |n| self.url(folder, "updates", time(n), end))
    }

    fn url(&self, folder: &str, kind: &str, time: u64, end: &str) -> String {
        let Self { name, base, is_ris } = self;
        let bgpdata = if *is_ris { "" } else { "bgpdata/" };
        let (year, month, day) = date(time / DAY);
        let (hour, minute) = (time / 3600 % 24, time / 60 % 60);
        format!(
            "{base}/{name}/{bgpdata}{year:04}.{month:02}/{folder}{kind}.{year:04}{month:02}{day:02}.{hour:02}{minute:02}.{end}"
        )
    }
}

/// Seconds since 1970 of `YYYY-MM-DD` or `YYYY-MM-DDTHH:MM`.
pub(super) fn parse_date(text: &str) -> Result<u64, String> {
    seconds_of(text)
        .ok_or_else(|| "a date is needed, YYYY-MM-DD or YYYY-MM-DDTHH:MM (UTC)".to_owned())
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_of_the_archives() {
        let time = parse_date("2026-11-21T10:21").unwrap();
        let ris = Collector::new("rrc00", Some("http://m.example/")).unwrap();
        let at = ris.dump_at(time);
        assert_eq!(ris.dump(at), "http://m.example/rrc00/2026.11/bview.20261121.0800.gz");
        let updates: Vec<String> = ris.updates(at, 2).collect();
        assert_eq!(
            updates,
            [
                "http://m.example/rrc00/2026.11/updates.20261121.0800.gz",
                "http://m.example/rrc00/2026.11/updates.20261121.0805.gz"
            ]
        );
        let views = Collector::new("route-views2", Some("http://m.example")).unwrap();
        let at = views.dump_at(time);
        let folder = "http://m.example/route-views2/bgpdata/2026.11";
        assert_eq!(views.dump(at), format!("{folder}/RIBS/rib.20261121.1000.bz2"));
        assert_eq!(
            views.updates(at, 2).last().unwrap(),
            format!("{folder}/UPDATES/updates.20261121.1015.bz2")
        );
        for wrong in ["rrc0", "rrcaa", "other", "route-views/../x"] {
            assert!(Collector::new(wrong, None).is_err(), "{wrong}");
        }
        assert!(parse_date("yesterday").is_err());
    }
}
