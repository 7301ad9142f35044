//! A route as people write it, in a line of words.
//!
//! ```text
//! PREFIX via GATEWAY [dev NAME] [weight N] [via GATEWAY ...] [metric N] [mtu N] [table N]
//! PREFIX dev NAME [metric N] [mtu N] [table N]
//! PREFIX blackhole|unreachable|prohibit [metric N] [table N]
//! ```
//!
//! `default` may stand for the prefix where a gateway shows the family. Of what the words mean on a host
//! (which links there are, whether a gateway can be found) nothing is known here.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use fingerpost_lpm::{Prefix, PrefixError};

use super::words::unknown;
use crate::event::{AnyPrefix, Path, Target, is_host};
use crate::nexthop::MAX_WEIGHT;

/// What may stand behind a prefix, for the nearest word.
const WORDS: [&str; 9] =
    ["via", "dev", "weight", "metric", "mtu", "table", "blackhole", "unreachable", "prohibit"];

/// Content of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// Where it leads.
    pub prefix: AnyPrefix,
    /// Its paths.
    pub paths: Vec<LinePath<'a>>,
    /// The word of [`verdict`], instead of paths.
    pub verdict: Option<&'a str>,
    /// Lower wins.
    pub metric: Option<u32>,
    /// Largest IP packet in bytes; 0 for the link's.
    pub mtu: Option<u16>,
    /// `None` for the main one, which `table 0` names too, as in the kernel's messages.
    pub table: Option<u32>,
    /// Lifetime in seconds (`expires N`, where that was allowed).
    pub expires: Option<u32>,
    /// All paths are meant (`all`, where that was allowed).
    pub all: bool,
}

/// A path of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinePath<'a> {
    /// The next router.
    pub gateway: Option<IpAddr>,
    /// Name of a link.
    pub dev: Option<&'a str>,
    /// Share among the paths, from 1.
    pub weight: u32,
}

impl<'a> Line<'a> {
    /// Reads words, the first of which is the prefix. `expires` and `all` may stand among them where
    /// `more` has them.
    ///
    /// # Errors
    /// What is wrong, and what is needed instead.
    pub fn parse(
        words: impl IntoIterator<Item = &'a str>,
        more: &[&'static str],
    ) -> Result<Self, String> {
        let mut words = words.into_iter();
        let first = words.next().ok_or("empty: `PREFIX via GATEWAY` is needed")?;
        // Weight 0 stands for none.
        let mut paths: Vec<LinePath<'_>> = Vec::new();
        let (mut verdict, mut all) = (None, false);
        let (mut metric, mut mtu, mut table, mut expires) = (None, None, None, None);
        while let Some(word) = words.next() {
            let mut value = |what: &str| {
                words.next().ok_or_else(|| format!("incomplete after `{word}`: {what} must follow"))
            };
            match word {
                "via" => {
                    let gateway = Some(gateway(value("a gateway")?)?);
                    paths.push(LinePath { gateway, dev: None, weight: 0 });
                }
                "dev" => {
                    let dev = Some(link_name(value("the name of a link")?)?);
                    match paths.last_mut() {
                        None => paths.push(LinePath { gateway: None, dev, weight: 0 }),
                        Some(path) if path.dev.is_none() && path.weight == 0 => path.dev = dev,
                        Some(_) => {
                            return Err("`dev` belongs right behind its `via GATEWAY`".into());
                        }
                    }
                }
                "weight" => {
                    let weight = number(word, value("a number")?, 1, MAX_WEIGHT)?;
                    let path = paths.last_mut().filter(|path| path.weight == 0);
                    path.ok_or("`weight` belongs right behind one `via GATEWAY`")?.weight = weight;
                }
                "metric" | "mtu" | "table" | "expires" if known(more, word) => {
                    let (of, max) = match word {
                        "metric" => (&mut metric, u32::MAX),
                        "mtu" => (&mut mtu, u32::from(u16::MAX)),
                        "table" => (&mut table, u32::MAX),
                        _ => (&mut expires, u32::MAX),
                    };
                    once(word, of, number(word, value("a number")?, 0, max)?)?;
                }
                "all" if known(more, word) => all = true,
                _ if self::verdict(word).is_some() => once(word, &mut verdict, word)?,
                other => return Err(unknown("word", other, WORDS.iter().chain(more).copied())),
            }
        }
        let prefix = prefix(first, &paths)?;
        for path in &mut paths {
            path.weight = path.weight.max(1);
        }
        let mtu = mtu.map(|mtu| u16::try_from(mtu).expect("read as one"));
        let min = prefix.min_mtu();
        if let Some(mtu) = mtu.filter(|mtu| (1..min).contains(mtu)) {
            let family = prefix.family();
            return Err(format!("`mtu {mtu}`: IPv{family} needs at least {min}, 0 is the link's"));
        }
        let table = table.filter(|&number| number != 0);
        Ok(Self { prefix, paths, verdict, metric, mtu, table, expires, all })
    }
}

/// Forwarding action of a route without paths, by its word.
pub fn verdict(word: &str) -> Option<Target> {
    match word {
        "blackhole" => Some(Target::Blackhole),
        "unreachable" => Some(Target::Unreachable),
        "prohibit" => Some(Target::Prohibit),
        _ => None,
    }
}

/// Largest length of the name of a link (`IFNAMSIZ`, without the end of the text).
const LONGEST_LINK_NAME: usize = 15;

/// A name that a link may have in the kernel, whether or not one has it.
fn link_name(name: &str) -> Result<&str, String> {
    let odd = |c: char| c == '/' || c == ':' || c.is_whitespace();
    if name.len() > LONGEST_LINK_NAME {
        return Err(format!(
            "no link is called `{name}`: a name has at most {LONGEST_LINK_NAME} bytes"
        ));
    }
    if name.is_empty() || name == "." || name == ".." || name.contains(odd) {
        return Err(format!("no link is called `{name}`: a name has no blank, `/` or `:`"));
    }
    Ok(name)
}

/// The address of a next router.
///
/// # Errors
/// Why it cannot be one.
pub fn gateway(text: &str) -> Result<IpAddr, String> {
    let addr: IpAddr = text
        .parse()
        .map_err(|_| format!("`{text}` is no gateway: an IPv4 or IPv6 address is needed"))?;
    if !is_host(addr) {
        return Err(format!("{addr} cannot be a gateway: the address of a router is needed"));
    }
    Ok(addr)
}

/// Checks paths whose words are each right.
///
/// # Errors
/// What is needed instead.
pub fn check_paths(prefix: AnyPrefix, paths: &[Path]) -> Result<(), String> {
    for (index, path) in paths.iter().enumerate() {
        match (path.gateway, path.link) {
            (None, None) => return Err("a path needs a gateway or a device".into()),
            (Some(IpAddr::V4(gateway)), _) if prefix.family() == 6 => {
                return Err(format!("{gateway} is no gateway for IPv6: an IPv6 address is needed"));
            }
            (Some(IpAddr::V6(gateway)), None) if gateway.is_unicast_link_local() => {
                return Err(format!("{gateway} is link-local: name its link by `dev NAME`"));
            }
            _ => {}
        }
        let same = |other: &Path| (other.gateway, other.link) == (path.gateway, path.link);
        if paths[..index].iter().any(same) {
            return Err("path repeated: give it a larger `weight` instead".into());
        }
    }
    Ok(())
}

fn known(more: &[&str], word: &str) -> bool {
    WORDS.contains(&word) || more.contains(&word)
}

fn prefix(text: &str, paths: &[LinePath<'_>]) -> Result<AnyPrefix, String> {
    if text == "default" {
        return match paths.iter().find_map(|path| path.gateway) {
            Some(IpAddr::V4(_)) => Ok(AnyPrefix::V4(Prefix::ALL)),
            Some(IpAddr::V6(_)) => Ok(AnyPrefix::V6(Prefix::ALL)),
            None => Err("`default` of which family? write 0.0.0.0/0 or ::/0".into()),
        };
    }
    AnyPrefix::parse(text).map_err(|error| match error {
        PrefixError::Syntax(_) => format!(
            "`{text}` is no prefix: a route begins with one, as in `192.0.2.0/24 via 198.51.100.1`"
        ),
        PrefixError::HostBits => {
            format!("`{text}` has bits set behind its length: clear them or make it longer")
        }
        error => error.to_string(),
    })
}

fn number(word: &str, text: &str, min: u32, max: u32) -> Result<u32, String> {
    let value = text.parse().ok().filter(|value| (min..=max).contains(value));
    value.ok_or_else(|| format!("`{word} {text}`: a number from {min} to {max} is needed"))
}

/// Sets a value that may stand once.
///
/// # Errors
/// When it was set before.
pub fn once<T>(word: &str, slot: &mut Option<T>, value: T) -> Result<(), String> {
    if slot.replace(value).is_some() { Err(format!("`{word}` twice")) } else { Ok(()) }
}

/// First number of the links that are not there. A number of the kernel has 31 bits.
pub const ABSENT_LINK: u32 = 1 << 31;

/// Adds the links that routes name and that are not among `links`. Each has [`ABSENT_LINK`] and its place among all that the
/// routes name, which are returned: it stays the same whichever of them are there. A route that cannot be read names none.
pub fn add_absent_links(
    routes: &[String],
    links: &mut Vec<(String, u32)>,
) -> BTreeMap<String, u32> {
    let mut named = BTreeMap::new();
    for route in routes {
        let line = Line::parse(route.split_ascii_whitespace(), &[]);
        let names = line.iter().flat_map(|line| &line.paths).filter_map(|path| path.dev);
        for name in names {
            if !named.contains_key(name) {
                named.insert(name.to_owned(), ABSENT_LINK);
            }
        }
    }
    let there: HashMap<&str, u32> = links.iter().map(|(name, link)| (&**name, *link)).collect();
    for ((name, link), absent) in named.iter_mut().zip(ABSENT_LINK..) {
        *link = there.get(&**name).copied().unwrap_or(absent);
    }
    let absent = named.iter().filter(|(_, link)| **link >= ABSENT_LINK);
    links.extend(absent.map(|(name, link)| (name.clone(), *link)));
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_allowed_in_some_places() {
        let parse = |text: &'static str, more| {
            Line::parse(text.split(' '), more).map(|l| (l.expires, l.all))
        };
        let more = &["expires", "all"];
        assert_eq!(parse("10.0.0.0/8 blackhole expires 60", more), Ok((Some(60), false)));
        assert_eq!(parse("10.0.0.0/8 all", more), Ok((None, true)));
        assert_eq!(
            parse("10.0.0.0/8 blackhole expire 60", more),
            Err("unknown word `expire`, did you mean `expires`?".into())
        );
        for word in ["expires", "all"] {
            let line = ["10.0.0.0/8", word];
            let error = Line::parse(line, &[]).unwrap_err();
            assert!(error.starts_with(&format!("unknown word `{word}`, known: via, ")), "{error}");
        }
    }

    #[test]
    fn links_are_named_by_routes_that_can_be_read() {
        let routes = [
            "10.0.0.0/8 via 192.0.2.1 dev eth1 via 192.0.2.2 dev dev weight 2",
            "11.0.0.0/8 dev eth0 metric 7",
            "12.0.0.0/8 dev eth9 metric",
            "13.0.0.0/8 via 192.0.2.1",
        ];
        let mut links = vec![("eth0".to_owned(), 2)];
        let named = add_absent_links(&routes.map(String::from), &mut links);
        let names: Vec<&str> = named.keys().map(String::as_str).collect();
        assert_eq!(names, ["dev", "eth0", "eth1"]);
        let absent = |name: &str, n| (name.to_owned(), ABSENT_LINK + n);
        assert_eq!(links, [("eth0".to_owned(), 2), absent("dev", 0), absent("eth1", 2)]);
    }

    #[test]
    fn a_device_has_a_name_that_links_may_have() {
        let parse = |name: &'static str| {
            Line::parse(["10.0.0.0/8", "dev", name], &[]).map(|line| line.paths[0].dev)
        };
        for name in ["a", "eth0.100", "fifteen-bytes-x", "é"] {
            assert_eq!(parse(name), Ok(Some(name)));
        }
        for name in ["sixteen-bytes-xy", "a/b", "a:1", "a b", "", ".", ".."] {
            let error = parse(name).unwrap_err();
            assert!(error.starts_with(&format!("no link is called `{name}`")), "{error}");
        }
    }

    #[test]
    fn an_mtu_is_that_of_its_family() {
        let parse = |text: &'static str| Line::parse(text.split(' '), &[]).map(|line| line.mtu);
        assert_eq!(parse("10.0.0.0/8 dev eth0 mtu 68"), Ok(Some(68)));
        assert_eq!(parse("default via 2001:db8::1 mtu 1280"), Ok(Some(1280)));
        assert_eq!(parse("default via 2001:db8::1 mtu 0"), Ok(Some(0)));
        assert_eq!(parse("10.0.0.0/8 dev eth0"), Ok(None));
        for (line, words) in [
            ("10.0.0.0/8 dev eth0 mtu 67", "`mtu 67`: IPv4 needs at least 68, 0 is the link's"),
            ("::/0 dev eth0 mtu 1279", "`mtu 1279`: IPv6 needs at least 1280, 0 is the link's"),
            ("::/0 dev eth0 mtu 65536", "`mtu 65536`: a number from 0 to 65535 is needed"),
            ("::/0 dev eth0 mtu", "incomplete after `mtu`: a number must follow"),
            ("::/0 dev eth0 mtu 1500 mtu 1500", "`mtu` twice"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
