//! Handlers that are read when a configuration ends: of one element, of all that a pattern fits, or of all of a class.
//!
//! Source: Click's program, with its words. Click's elements also answer to names of what they are besides their class, as
//! `IPRouteTable`.

use std::io::{self, Write};

use fingerpost_packet::language::{ClassSpec, Role};
use fingerpost_packet::{HandlerError, Handlers};

/// What Click's elements of some classes are besides, by the name for it.
const KINDS: &[(&str, &[&str])] = &[
    ("Storage", QUEUES),
    ("Storage", &["LinkUnqueue"]),
    ("Queue", QUEUES),
    ("SimpleQueue", QUEUES),
    ("NotifierQueue", &["MixedQueue", "FrontDropQueue"]),
    ("NotifierQueue", NOTED),
    ("FullNoteQueue", NOTED),
    ("AggregateNotifier", &["AggregateIPFlows", "AggregateIPAddrPair"]),
    ("IPMapper", &["RoundRobinIPMapper", "SourceIPHashMapper"]),
    ("IPRewriterBase", &["IPRewriter", "TCPRewriter", "UDPRewriter", "ICMPPingRewriter"]),
    ("IPRewriterBase", &["IPAddrRewriter", "IPAddrPairRewriter"]),
    ("TCPRewriter", &["IPRewriter"]),
    ("ARPTable", &["ARPQuerier"]),
];

const QUEUES: &[&str] = &[
    "Queue",
    "SimpleQueue",
    "NotifierQueue",
    "FullNoteQueue",
    "QuickNoteQueue",
    "ThreadSafeQueue",
    "MixedQueue",
    "FrontDropQueue",
];

/// Queues that know when they are full.
const NOTED: &[&str] = &["Queue", "FullNoteQueue", "QuickNoteQueue", "ThreadSafeQueue"];

/// Whether elements of a class are what this name names.
fn is_a(class: &ClassSpec, name: &str) -> bool {
    class.name == name
        || name == "IPRouteTable" && class.role == Role::RouteTable
        || KINDS.iter().any(|(kind, classes)| *kind == name && classes.contains(&class.name))
}

/// Prints handlers as Click does: the value alone, or each below its name where there are several. What is wrong with others,
/// in words.
///
/// # Errors
/// It cannot be written.
pub(super) fn print(
    handlers: &Handlers,
    names: &[String],
    out: &mut impl Write,
) -> io::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for name in names {
        let (meant, several) = match meant(handlers, name) {
            Ok(Some(meant)) => (meant, true),
            Ok(None) => (vec![name.clone()], names.len() > 1),
            Err(words) => {
                wrong.push(words);
                continue;
            }
        };
        for name in meant {
            let mut value = match handlers.read(&name, "") {
                Ok(value) => value,
                Err(error) => {
                    wrong.push(words(&name, &error));
                    continue;
                }
            };
            // An empty value is no line.
            if !value.is_empty() && !value.ends_with('\n') {
                value.push('\n');
            }
            match several {
                true => writeln!(out, "{name}:\n{value}")?,
                false => write!(out, "{value}")?,
            }
        }
    }
    Ok(wrong)
}

/// What is wrong with a handler.
fn words(name: &str, error: &HandlerError) -> String {
    match error {
        HandlerError::NoElement(_) | HandlerError::NoHandler(_) => format!("no '{name}' handler"),
        HandlerError::WriteOnly(_) => format!("'{name}' is a write handler"),
        error => error.to_string(),
    }
}

/// Names of the handlers that a name stands for which is a pattern, or a class; `None` where it is that of one handler.
///
/// # Errors
/// There is no such element, in words.
fn meant(handlers: &Handlers, name: &str) -> Result<Option<Vec<String>>, String> {
    let Err(HandlerError::NoElement(element)) = handlers.find(name) else { return Ok(None) };
    let own = name.split_once('.').map_or(name, |(_, own)| own);
    let is_pattern = element.contains(['*', '?', '[']);
    let elements = handlers.configuration().elements().iter();
    let named: Vec<_> = elements
        .filter(|known| match is_pattern {
            true => fits(element.as_bytes(), known.name.as_bytes()),
            false => is_a(&known.class, &element),
        })
        .map(|known| format!("{}.{own}", known.name))
        .collect();
    match (named.is_empty(), is_pattern) {
        (true, true) => Err(format!("no element matching '{element}'")),
        (true, false) => Err(format!("no element '{element}'")),
        _ => {
            let is_readable = |name: &String| handlers.find(name).is_ok_and(|h| h.is_readable());
            Ok(Some(named.into_iter().filter(is_readable).collect()))
        }
    }
}

/// Whether a name fits a pattern, in which `*` stands for any letters, `?` for one, and `[a-c]` or `[^a-c]` for one of
/// some.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            fits(rest, name) || name.split_first().is_some_and(|(_, after)| fits(pattern, after))
        }
        (Some((b'?', rest)), Some((_, after))) => fits(rest, after),
        (Some((b'[', rest)), Some((letter, after))) if set_of(rest).is_some() => set_of(rest)
            .is_some_and(|(letters, without, rest)| {
                is_of(letters, *letter) != without && fits(rest, after)
            }),
        (Some((letter, rest)), Some((found, after))) => letter == found && fits(rest, after),
        _ => false,
    }
}

/// Letters of a bracket expression whose `[` was read, whether it is negated, and the pattern behind it.
fn set_of(pattern: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let (without, letters) = match pattern {
        [b'^' | b'!', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    // A first `]` is one of them.
    let end = letters.iter().skip(1).position(|letter| *letter == b']')? + 1;
    Some((&letters[..end], without, &letters[end + 1..]))
}

/// Whether a letter is one of these, or in a range of them.
fn is_of(letters: &[u8], letter: u8) -> bool {
    match letters {
        [first, b'-', last, rest @ ..] => (*first..=*last).contains(&letter) || is_of(rest, letter),
        [one, rest @ ..] => *one == letter || is_of(rest, letter),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use fingerpost_packet::Plan;
    use fingerpost_packet::language::Language;

    use super::*;
    use crate::registry;

    #[test]
    fn patterns_fit_names() {
        let fits = |pattern: &str, name: &str| fits(pattern.as_bytes(), name.as_bytes());
        assert!(fits("*", "") && fits("*", "a/b") && fits("c*n?", "count") && fits("c", "c"));
        assert!(
            fits("c[12]", "c2") && fits("c[a-c-]x", "c-x") && fits("[]a]", "]") && fits("[a", "[a")
        );
        assert!(
            fits("c[^12]", "c3")
                && !fits("c[!1-3]", "c2")
                && !fits("c[12]", "c")
                && !fits("c[12]", "c3")
        );
        assert!(!fits("c?", "c") && !fits("", "c") && !fits("*x", "xy") && !fits("c", "cc"));
    }

    /// What is printed of handlers of a configuration, and what is wrong.
    fn printed(names: &[&str]) -> (String, String) {
        let text = "Idle -> q :: Queue(5) -> Unqueue -> p :: SimpleQueue(6) -> Unqueue -> Discard;
            Idle -> r :: RadixIPLookup(1.0.0.0/8 0) -> b :: { input -> c :: Counter -> Discard };
            Idle -> l :: StaticIPLookup(2.0.0.0/8 0) -> Discard";
        let all = registry::all();
        let configuration = Language::new(all.elements).read("t", text).unwrap();
        let handlers = Plan::of(&configuration, all).unwrap().handlers(configuration);
        let mut out = Vec::new();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let wrong = print(&handlers, &names, &mut out).unwrap();
        (String::from_utf8(out).unwrap(), wrong.join("|"))
    }

    #[test]
    fn handlers_are_printed_in_the_form_of_click() {
        let alone = |text: &str| (text.to_owned(), String::new());
        assert_eq!(printed(&["q.capacity"]), alone("5\n"));
        let both = "q.capacity:\n5\n\nb/c.count:\n0\n\n";
        assert_eq!(printed(&["q.capacity", "b/c.count"]), alone(both));
        assert_eq!(printed(&["b/c*.count"]), alone("b/c.count:\n0\n\n"));
        assert_eq!(printed(&["Queue.capacity"]), alone("q.capacity:\n5\n\np.capacity:\n6\n\n"));
        assert_eq!(printed(&["NotifierQueue.capacity"]), alone("q.capacity:\n5\n\n"));
        assert_eq!(printed(&["Storage.reset"]), alone(""), "no such one is read");
        let (tables, wrong) = printed(&["IPRouteTable.table"]);
        assert!(tables.contains("r.table:\n1.0.0.0/8") && tables.contains("l.table:\n2.0.0.0/8"));
        assert_eq!(wrong, "");
        let wrong = |name: &str| printed(&[name]).1;
        assert_eq!(wrong("q.reset"), "'q.reset' is a write handler");
        assert_eq!(wrong("q.x.y"), "no 'q.x.y' handler");
        assert_eq!(wrong("hotconfig"), "no 'hotconfig' handler");
        assert_eq!(wrong("x.count"), "no element 'x'");
        assert_eq!(wrong("x*.count"), "no element matching 'x*'");
        let (out, wrong) = printed(&["x.count", "q.capacity"]);
        assert_eq!((&*out, &*wrong), ("q.capacity:\n5\n\n", "no element 'x'"));
    }
}
