//! Tests of the parser: what is read, printed again, and the errors.

use super::*;

/// The statements in a notation without choices, and the messages.
fn parsed(text: &str) -> (String, String) {
    let mut sources = Sources::default();
    sources.add("a.click", text).unwrap();
    let mut problems = Problems::default();
    let mut library = |file: &str, from: &str| match file {
        "b" => Ok(("b".to_owned(), "require(library c) b1".to_owned())),
        "c" => Ok(("c".to_owned(), format!("c1; require(library b) c2; // {from}"))),
        "d" => Ok(("d".to_owned(), "d1 ->".to_owned())),
        _ => Err("it is not there".to_owned()),
    };
    let (statements, _) = parse(&mut sources, 0, &mut library, &mut problems);
    let shown: Vec<_> = statements.iter().map(|s| statement(s, &sources)).collect();
    let reports = problems.errors(&sources).reports;
    let reported: Vec<_> = reports
        .iter()
        .map(|r| format!("{}:{} {}", r.place.line, r.place.column, r.message))
        .collect();
    (shown.join("; "), reported.join("; "))
}

fn statement(statement: &Statement, sources: &Sources) -> String {
    match statement {
        Statement::Chain(chain) => {
            let mut shown = group(&chain.groups[0], sources);
            for (items, (_, pairs)) in chain.groups[1..].iter().zip(&chain.arrows) {
                shown += if *pairs { " => " } else { " -> " };
                shown += &group(items, sources);
            }
            shown
        }
        Statement::Class { name, class: of } => {
            format!("class {} = {}", sources.text(*name), class(of, sources))
        }
        Statement::Define(config) => format!("define<{}>", sources.text(*config)),
    }
}

fn group(items: &[Item], sources: &Sources) -> String {
    items.iter().map(|i| item(i, sources)).collect::<Vec<_>>().join(" & ")
}

fn item(item: &Item, sources: &Sources) -> String {
    let ports = |ports: &Option<Ports>| {
        let Some(ports) = ports else { return String::new() };
        let list = ports.list.iter().map(|port| match port {
            PortItem::Numbers(first, last, _) => format!("{first}-{last}"),
            PortItem::Named(name) => sources.text(*name).to_owned(),
        });
        let list = list.collect::<Vec<_>>().join(",");
        format!("[{list}{}]", if ports.more { ",.." } else { "" })
    };
    let what = match &item.what {
        What::Named(name) => sources.text(*name).to_owned(),
        What::Made { name, class: of, config } => {
            let name = name.map_or(String::new(), |name| format!("{}=", sources.text(name)));
            let config = config.map_or(String::new(), |c| format!("<{}>", sources.text(c)));
            format!("{name}{}{config}", class(of, sources))
        }
    };
    format!("{}{what}{}", ports(&item.inputs), ports(&item.outputs))
}

fn class(class: &Class, sources: &Sources) -> String {
    match class {
        Class::Named(name) => sources.text(*name).to_owned(),
        Class::Compound(body) => {
            let formals = body.formals.iter().map(|f| {
                let keyword = f.keyword.map_or(String::new(), |k| format!("{}:", sources.text(k)));
                format!("{keyword}{} ", sources.text(f.variable))
            });
            let inside: Vec<_> = body.statements.iter().map(|s| statement(s, sources)).collect();
            format!("{{{}{}}}", formals.collect::<String>(), inside.join("; "))
        }
    }
}

fn good(text: &str) -> String {
    let (shown, reported) = parsed(text);
    assert_eq!(reported, "", "{text}");
    shown
}

#[test]
fn chains() {
    assert_eq!(good("a -> b => c"), "a -> b => c");
    assert_eq!(good("a [1] -> [2] x [3] -> b"), "a[1-1] -> [2-2]x[3-3] -> b");
    assert_eq!(good("a, b -> c, d"), "a & b -> c & d");
    assert_eq!(good("a -> b c -> d"), "a -> b; c -> d", "no semicolon is needed");
    assert_eq!(good("a :: X b :: Y(1) ; ; c"), "a=X; b=Y<1>; c");
    assert_eq!(good("a [0, 2-4,7] => [0,] b"), "a[0-0,2-4,7-7] => [0-0,..]b");
    assert_eq!(good("t[expired] -> b[] -> c"), "t[expired] -> b[0-0] -> c");
    assert_eq!(
        good("a -> Q(2) -> {input -> output} -> b :: {}"),
        "a -> Q<2> -> {input -> output} -> b={}"
    );
    assert_eq!(good("a, b, c :: X( 1 )"), "a & b & c=X< 1 >");
    assert_eq!(good("{ $x | Y($x) }(5)"), "{$x Y<$x>}<5>");
    assert_eq!(good(""), "");
}

#[test]
fn classes_and_definitions() {
    assert_eq!(good("elementclass A B elementclass C { }"), "class A = B; class C = {}");
    assert_eq!(
        good("elementclass C { $a, KEY $b | input -> X($a) -> output; } c :: C(1)"),
        "class C = {$a KEY:$b input -> X<$a> -> output}; c=C<1>"
    );
    assert_eq!(good("elementclass C { | x }"), "class C = {x}");
    assert_eq!(good("define($x 5, $y 6) a"), "define<$x 5, $y 6>; a");
    assert_eq!(
        good("elementclass A { define($x 5) elementclass B { } B }"),
        "class A = {define<$x 5>; class B = {}; B}"
    );
}

#[test]
fn libraries_are_read_once() {
    assert_eq!(good("require(library b) a; require(library b, library c)"), "c1; c2; b1; a");
    assert_eq!(parsed("require(library z)").1, "1:9 no library `z`: it is not there");
    assert_eq!(parsed("\n a require(library d)").1, "1:4 no element behind this arrow");
    assert_eq!(
        parsed("require(package fast, x y, compact_config)").1,
        "1:9 there is no package `fast`; 1:23 `x y` cannot be required"
    );
    assert!(parsed("A :: { require(library b) }").1.contains("outside of `{ }` only"));
}

#[test]
fn after_an_error_reading_goes_on() {
    let (shown, reported) =
        parsed("a -> ; b [x; c\nd -> e\nelementclass 5 {}\nf; g [0-] h; i ) ->");
    assert_eq!(shown, "c; d -> e; f", "what stands before the `)` may be meant otherwise");
    assert_eq!(
        reported,
        "1:3 no element behind this arrow; 1:12 expected `]`, found `;`; \
         3:14 expected a name for the class, found `5`; \
         4:9 expected the number of a port, found `]`; 4:16 `)` means nothing here"
    );
    let (shown, reported) = parsed("A :: { x => =>; y } B :: { z ");
    assert_eq!(shown, "A={y}");
    assert_eq!(reported, "1:13 expected an element, found `=>`; 1:26 this `{` has no `}`");
    assert_eq!(parsed("} a").0, "a");
    let (shown, _) = parsed("% { a; b }; c");
    assert_eq!(shown, "c", "a body that belongs to what is broken is skipped");
}

#[test]
fn what_is_left_out_says_why() {
    for (text, words) in [
        ("elementclass A { } || { }", "expected an element, found `||`"),
        ("elementclass A { ... || x }", "`...` stands behind the bodies that extend a class"),
        ("provide x", "`provide` is not supported"),
        ("$x -> a", "a variable cannot be an element"),
        ("-> a", "no element before this arrow"),
        ("define :: A", "expected `(` after `define`"),
        ("a :: define", "`define` is a word of the language"),
        ("a [65536] -> b", "no port 65536: at most 65279"),
        ("a [3-1] -> b", "ports 3 to 1 go backwards"),
        ("A :: { $x b }", "expected `|` after the parameters, found `b`"),
        ("a ::", "expected a class, found the end of the file"),
    ] {
        let reported = parsed(text).1;
        assert!(reported.contains(words), "{text}: {reported}");
    }
}

#[test]
fn the_outside_may_be_left_out() {
    assert_eq!(
        parsed("A :: { -> x -> ; [1] -> [2] }").0,
        "A={input -> x -> output; input[1-1] -> [2-2]output}"
    );
    let (shown, reported) = parsed("a => ([0] -> b -> [0]; [1] -> [1]) => c");
    assert_eq!(reported, "");
    let group = "group@0x5";
    let pass = |end: &str| format!("{group}{end}={{input -> output; input[1-1] -> [1-1]output}}");
    let (begin, finish) = (pass("i"), pass("o"));
    assert_eq!(
        shown,
        format!(
            "{begin}; {finish}; {group}i[0-0] -> b -> [0-0]{group}o; {group}i[1-1] -> [1-1]{group}o; a => [0-1]{group}i[0-1] => c"
        )
    );
    assert_eq!(parsed("-> x").1, "1:1 no element before this arrow");
    for (text, shown) in [
        ("A :: { -> x -> || $a | -> y -> }", "A={input -> x -> output}"),
        ("A :: { [0], [1] -> x -> }", "A={input[0-0,1-1] -> x -> output}"),
        ("A :: { x => [0], [1, 2-3] }", "A={x => [0-0,1-1,2-3]output}"),
    ] {
        assert_eq!(good(text), shown);
    }
}

#[test]
fn groups_have_names_for_their_outside() {
    let named = parsed("a => ( input [0] -> b -> output; input [1] -> [1] output ) => c");
    // As without names, but for where the group begins.
    let bare = parsed("a => ( [0] -> b -> [0]; [1] -> [1]             ) => c");
    let ports = |text: &str| text.replace("[0-0]", "");
    assert_eq!((ports(&named.0), named.1), (ports(&bare.0), String::new()));
    let (shown, reported) = parsed("a => ( input => b, c; b, c => output ) => d");
    assert_eq!(reported, "");
    assert!(shown.ends_with("a => [0-1]group@0x5i[0-1] => d"), "{shown}");
    assert_eq!(parsed("a -> ( b -> input ) -> c").1, "1:13 packets cannot go to `input`");
    assert_eq!(parsed("a -> ( output -> b ) -> c").1, "1:8 packets cannot come from `output`");
    // In a compound of the group they are those of the compound.
    assert_eq!(parsed("a -> ( -> { input -> output } -> ) -> c").1, "");
}

#[test]
fn depth_is_bounded() {
    let deep = |n: usize| format!("{}{}", "{".repeat(n), "}".repeat(n));
    assert_eq!(parsed(&deep(MOST_DEPTH)).1, "");
    let (_, reported) = parsed(&deep(100_000));
    assert_eq!(reported, "1:65 more than 64 `{` are open");
    let forms = |n: usize| format!("elementclass X {{ {} }}\na", "|| ".repeat(n - 1));
    assert_eq!(parsed(&forms(MOST_FORMS)).1, "");
    let (shown, reported) = parsed(&forms(100_000));
    assert_eq!((&*shown, &*reported), ("a", "1:16 a class of more than 64 forms"));
}
