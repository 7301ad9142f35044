//! Static routes of a configuration, and the files of its sources: what can be checked with the links of a host.

use std::collections::BTreeSet;

use fingerpost_packet::feature::Mistake as Wrong;
use fingerpost_route::source::words::nearest;
use fingerpost_route::source::{SourceError, SourceSpec, line};

use super::mistakes::MOST;
use super::{Config, readable};

impl Config {
    /// Fixed routes, one by one, as the source itself will read them, and files that are not there.
    pub(super) fn check_routes(&self, links: &[(String, u32)]) -> Vec<Wrong> {
        let kind = fingerpost_route::source::find("fixed").expect("it is in the registry");
        let mut wrong = self.check_feature_files();
        wrong.extend(self.control.check());
        for (i, source) in self.source.iter().enumerate() {
            let further = source.updates.iter().enumerate();
            let further = further.map(|(at, path)| (format!("updates.{at}"), path));
            for (key, path) in source.path.iter().map(|path| ("path".into(), path)).chain(further) {
                if let Err(error) = readable(path) {
                    let what = format!("{}: {error}", path.display());
                    wrong.push(Wrong::new(format!("source.{i}.{key}"), what));
                }
            }
            let mut spec = SourceSpec { links: links.to_vec(), ..SourceSpec::default() };
            // A link that is not there may appear: its routes wait.
            line::add_absent_links(&source.routes, &mut spec.links);
            let mut open = |routes: &[String]| {
                spec.routes = routes.to_vec();
                (kind.open)(&spec).err()
            };
            let before = wrong.len();
            for (at, route) in source.routes.iter().enumerate() {
                // No more are reported, and each is compared with the names of all links.
                if wrong.len() >= MOST {
                    break;
                }
                if let Some(error) = open(std::slice::from_ref(route)) {
                    wrong.push(wrong_route(i, at, &error));
                }
            }
            // Each is right by itself: do they go together?
            if wrong.len() == before && !source.routes.is_empty() {
                wrong.extend(open(&source.routes).map(|error| wrong_route(i, 0, &error)));
            }
        }
        wrong
    }

    /// A message for each link that static routes name and that is not among `links`: it may still appear.
    pub(crate) fn absent_links(&self, links: &[(String, u32)]) -> Vec<String> {
        let mut absent = BTreeSet::new();
        for source in &self.source {
            let named = line::add_absent_links(&source.routes, &mut links.to_vec());
            let named = named.into_iter().filter(|(_, link)| *link >= line::ABSENT_LINK);
            absent.extend(named.map(|(name, _)| name));
        }
        let names = || links.iter().map(|(name, _)| &**name);
        let message = |name: &str| {
            let hint = nearest(name, names())
                .map_or(String::new(), |other| format!(": did you mean {other}?"));
            format!("{name}: no such interface; static routes over it wait until it appears{hint}")
        };
        absent.iter().map(|name| message(name)).collect()
    }
}

/// A mistake in the static routes of the source of this index, of which the routes from `first` on were read.
fn wrong_route(source: usize, first: usize, error: &SourceError) -> Wrong {
    let place = format!("source.{source}.routes");
    match error {
        SourceError::Route { number, line, what, .. } => {
            let at = first + number - 1;
            Wrong::new(format!("{place}.{at}"), format!("`{line}`: {what}"))
        }
        error => Wrong::new(place, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn fixed_routes_are_checked_where_they_stand() {
        let text = "[[source]]\nkind = \"fixed\"\nroutes = [\n \"10.0.0.0/8 via 192.0.2.1\",\n \
                    \"10.0.0.1/8 via 192.0.2.1\",\n \"10.1.0.0/16 dev eth9\",\n \"10.2.0.0/16\"]\n";
        let links = [("eth0".to_owned(), 2)];
        let errors = Config::of_text(Path::new("r.toml"), text, Some(&links)).unwrap_err();
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(said[0].starts_with("r.toml:5: ") && said[0].contains("bits set"), "{said:?}");
        assert!(said[1].starts_with("r.toml:7: ") && said[1].contains("where to?"), "{said:?}");
        assert_eq!(said.len(), 2);
        assert!(Config::of_text(Path::new("r.toml"), text, None).is_ok());
        let text = text
            .replace("10.0.0.1/8", "10.0.0.0/8")
            .replace("10.2.0.0/16", "192.0.2.0/24 blackhole");
        let errors = Config::of_text(Path::new("r.toml"), &text, Some(&links)).unwrap_err();
        let want =
            "r.toml:5: `10.0.0.0/8 via 192.0.2.1`: 10.0.0.0/8 with metric 0 is route 1 already: ";
        assert!(errors.len() == 1 && errors[0].to_string().starts_with(want), "{errors:?}");
    }

    #[test]
    fn absent_links_are_named_with_the_nearest_one() {
        let text = "[[source]]\nkind = \"fixed\"\nroutes = [\"10.0.0.0/8 dev eht0\", \
                    \"10.1.0.0/16 via 192.0.2.1 dev eth1 via 192.0.2.2 dev wan\"]\n\
                    [[source]]\nkind = \"fixed\"\nroutes = [\"10.2.0.0/16 dev wan\"]\n";
        let links = [("eth0".to_owned(), 2), ("eth1".to_owned(), 3)];
        let config = Config::of_text(Path::new("r.toml"), text, Some(&links)).unwrap();
        let wait = "no such interface; static routes over it wait until it appears";
        assert_eq!(
            config.absent_links(&links),
            [format!("eht0: {wait}: did you mean eth0?"), format!("wan: {wait}")]
        );
        // Such a name no interface can have.
        let text = text.replace("wan", "wide-area-network");
        let errors = Config::of_text(Path::new("r.toml"), &text, Some(&links)).unwrap_err();
        assert!(errors[0].what().contains("at most 15 bytes"), "{}", errors[0]);
    }
}
