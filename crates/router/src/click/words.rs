//! What is wrong with a configuration, as Click reports it: scripts of its users look for its words.

use fingerpost_packet::language::{Errors, InClick, Report};

use super::ClickError;

/// What Click reports behind all else when a router is made, but cannot be initialized.
const REFUSED: &str = "Router could not be initialized!";

/// Lines of a report about errors.
pub(crate) fn lines(errors: &Errors) -> Vec<String> {
    let is_unread = |report: &&Report| matches!(report.in_click, Some(InClick::Reading(_)));
    if errors.reports.iter().any(|report| is_unread(&report)) {
        // What cannot be read is not checked either.
        return shown(errors.reports.iter().filter(is_unread));
    }
    let mut lines = shown(errors.reports.iter());
    lines.push(REFUSED.to_owned());
    lines
}

/// Lines about problems, or warnings.
pub(super) fn shown<'a>(reports: impl Iterator<Item = &'a Report>) -> Vec<String> {
    let mut about = String::new();
    let mut lines = Vec::new();
    for report in reports {
        let Report { place, message, in_click, hint, .. } = report;
        let place = format!("{}:{}", place.file, place.line);
        match in_click {
            Some(InClick::Configuring { element: (name, class), words }) => {
                let heading = format!("{place}: While configuring '{name} :: {class}':");
                if heading != about {
                    lines.push(heading.clone());
                    about = heading;
                }
                lines.extend(words.lines().map(|line| format!("  {line}")));
            }
            Some(InClick::Checking(words)) => {
                lines.extend(words.lines().map(|line| format!("{place}: {line}")));
            }
            Some(InClick::Reading(words)) => lines.push(format!("{place}: {words}")),
            Some(InClick::Silent) => {}
            None => lines.push(format!("{place}: {message}")),
        }
        // Click has no remedies.
        if let Some(hint) = hint.as_ref().filter(|_| {
            !matches!(in_click, Some(InClick::Reading(_) | InClick::Checking(_) | InClick::Silent))
        }) {
            lines.push(format!("  hint: {hint}"));
        }
    }
    lines
}

/// Any error as one text.
pub(crate) fn text(error: &ClickError) -> String {
    match error {
        ClickError::Wrong(errors) => lines(errors).join("\n"),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use fingerpost_packet::OpenPolicy;

    use super::*;
    use crate::click::{Given, planned};

    #[test]
    fn errors_have_the_words_of_click() {
        let reported = |text: &str| {
            let refused =
                planned(None, "a", text, &Given::default(), &OpenPolicy::check()).err().unwrap();
            lines(&refused)
        };
        let unused =
            ["a:1: 'Print@1 :: Print' input 0 unused", "a:1: 'Print@1 :: Print' output 0 unused"];
        assert_eq!(reported("Print"), [&unused[..], &[REFUSED]].concat());
        assert_eq!(reported("Bogus"), ["a:1: undeclared element 'Bogus'"]);
        assert_eq!(reported("\n-> Idle"), ["a:2: syntax error near '->'"]);
        for unread in
            ["Idle ->", "Idle -> [x] Discard", "Idle -> Paint(1", "elementclass A { $a | } A"]
        {
            let lines = reported(unread);
            assert!(
                !lines.is_empty() && !lines.contains(&REFUSED.to_owned()),
                "{unread}: {lines:?}"
            );
        }
        assert_eq!(
            reported("x :: Idle;\nx :: Idle; Idle -> Paint"),
            ["a:2: redeclaration of element 'x'\na:1: element 'x' previously declared here"]
        );
        let wrong = reported("Idle -> Queue(x) -> Idle");
        assert_eq!(wrong[0], "a:1: While configuring 'Queue@2 :: Queue':");
        assert_eq!((wrong.len(), wrong[2].as_str()), (3, REFUSED));
        let clash = reported("q :: Queue; Idle -> q; q -> Queue -> Idle");
        assert_eq!(
            clash[0],
            "a:1: 'q :: Queue' pull output 0 connected to 'Queue@3 :: Queue' push input 0"
        );
        let reuse = reported("i :: InfiniteSource; i -> Discard; i -> Discard");
        assert_eq!(reuse[0], "a:1: illegal reuse of 'i :: InfiniteSource' push output 0");
    }
}
