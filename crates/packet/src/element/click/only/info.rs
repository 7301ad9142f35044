//! Elements that no packet passes: `AddressInfo` names addresses, `PortInfo`
//! names ports, `AnnotationInfo` names annotations, `ClickyInfo` and `ScheduleInfo` are for other programs, `Message`
//! writes a text when the configuration is read, and `ErrorElement` takes all arguments and is refused.
//!
//! Source: Click's elements of these names.

use crate::element::click::only::console;
use crate::graph::{ElementClass, Made, Passing, Setup};
use crate::language::{Arg, ClassSpec, ConfigError, addresses, annotations, ports};

pub(crate) const ADDRESSES: ElementClass = ElementClass {
    spec: ClassSpec::new("AddressInfo", "0/0", "a/a", "x/y"),
    summary: "names addresses",
    configure: |setup| each(setup, addresses::add),
};

pub(crate) const PORTS: ElementClass = ElementClass {
    spec: ClassSpec::new("PortInfo", "0/0", "a/a", "x/y"),
    summary: "names ports",
    configure: |setup| each(setup, ports::add),
};

pub(crate) const ANNOTATIONS: ElementClass = ElementClass {
    spec: ClassSpec::new("AnnotationInfo", "0/0", "a/a", "x/y"),
    summary: "names annotations",
    configure: |setup| each(setup, annotations::check),
};

/// Configures an element that only reads its arguments; all that are wrong are reported.
pub(super) fn each(
    setup: &mut Setup<'_>,
    read: impl Fn(&Arg<'_>) -> Result<(), String>,
) -> Result<Made, ConfigError> {
    // A name in capitals looks like a keyword.
    while let Some(arg) = &setup.args.next_of_any() {
        if let Err(words) = read(arg) {
            setup.args.refuse(arg, &words);
        }
    }
    setup.args.finish()?;
    Ok(Made::new(|_| Passing))
}

pub(crate) const CLICKY: ElementClass = silent("ClickyInfo", "how clicky shows elements");
pub(crate) const SCHEDULE: ElementClass = silent(
    "ScheduleInfo",
    "information that changes nothing here, as all elements have the same turns",
);

/// Class whose arguments mean nothing here.
const fn silent(name: &'static str, summary: &'static str) -> ElementClass {
    ElementClass {
        spec: ClassSpec::new(name, "0/0", "a/a", "x/y"),
        summary,
        configure: |setup| each(setup, |_| Ok(())),
    }
}

pub(crate) const MESSAGE: ElementClass = ElementClass {
    spec: ClassSpec::new("Message", "0/0", "a/a", "x/y"),
    summary: "writes a text to the standard error when the configuration is read",
    configure: |setup| {
        let text: String = setup.args.positional("MESSAGE")?;
        let kind = setup.args.optional::<String>("TYPE");
        setup.args.finish()?;
        match kind?.as_deref() {
            None | Some("MESSAGE") => console::err(&format!("{text}\n")),
            Some("WARNING") => setup.args.warn_all(&text),
            Some(_) => return Err(setup.args.refuse_all(&text)),
        }
        Ok(Made::new(|_| Passing))
    },
};

pub(crate) const ERROR: ElementClass = ElementClass {
    spec: ClassSpec::new("ErrorElement", "-/-", "a/a", "x/x"),
    summary: "stands where an element cannot: it is refused",
    configure: |setup| {
        setup.args.rest().for_each(drop);
        Err(setup.args.refuse_all("an element that is none"))
    },
};

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World, refused};

    #[test]
    fn annotations_are_named() {
        let text = "AnnotationInfo(MARK 5 1, PAIR 46 2, CHECK_OVERLAP MARK PAIR PAINT);
            FromDevice(a) -> s :: SetAnnoByte(MARK, 9) -> CheckPaint(9, 5) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!((rig.receive("a", &[&[7]]).len(), rig.read("s.anno")), (1, "5".into()));
        let refused = |config| refused(&super::ANNOTATIONS, config);
        assert!(refused("A 4 2, B 5 1, CHECK_OVERLAP A B").contains("`A` and `B` overlap"));
        assert!(refused("A 20, CHECK_OVERLAP PAINT A").contains("`PAINT` and `A` overlap"));
        assert!(refused("CHECK_OVERLAP Z").contains("no annotation is called `Z`"));
        assert!(refused("PAINT 4 1").contains("there already, at byte 20, 1 byte"));
        assert!(refused("AGGREGATE 4 4").contains("at byte 24, 4 bytes"));
        assert!(refused("A 47 2").contains("bytes 0 to 47"));
        assert!(refused("A").contains("a name, its first byte"));
    }

    #[test]
    fn ports_are_named() {
        let text = "PortInfo(foo 99/udp, bar 98, foo 97/tcp);
            FromDevice(in) -> u :: UDPIPEncap(1.0.0.1, foo, 2.0.0.2, domain) -> MarkIPHeader
                -> c :: IPClassifier(tcp port foo, udp port foo, -);
            c => ToDevice(a), ToDevice(b), ToDevice(c)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(["u.sport", "u.dport"].map(|name| rig.read(name)), ["99", "53"]);
        assert_eq!(rig.receive("in", &[&[7]])[0].0, "b");
        rig.write("u.sport", "bar");
        assert_eq!(rig.receive("in", &[&[7]])[0].0, "c");
        Rig::new(
            &World::new(),
            "PortInfo(foo 99/udp); Idle -> UDPRewriter(pattern 1.0.0.1 foo 2.0.0.2 domain 0 0) -> Discard",
        );
        assert!(refused(&super::PORTS, "foo").contains("a name and a port"));
        assert!(refused(&super::PORTS, "foo 5/sctp").contains("neither `tcp` nor `udp`"));
    }
}
