//! The language as a whole: what configurations become, and the errors of wrong ones.

use super::class::Processing;
use super::read::Language;
use super::source::{Errors, Problems};
use super::testing::CLASSES;
use super::{Configuration, Declared};

fn read(text: &str) -> Result<Configuration, Errors> {
    Language::new(CLASSES).read("a.click", text)
}

/// The elements and connections of a good configuration, in one line.
fn flat(text: &str) -> String {
    let read = read(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    let flat = read.flatconfig();
    let again = self::read(&flat).unwrap_or_else(|errors| panic!("{flat}\n{errors}"));
    assert_eq!(again.flatconfig(), flat, "it reads as the same again");
    let declared = flat.split("\n\n").next().unwrap_or_default().replace(";\n", "; ");
    let name = |number: u32| &read.elements()[number as usize].name;
    let port = |port: u32| if port == 0 { String::new() } else { format!(" [{port}]") };
    let wires = read.connections().iter().map(|wire| {
        let (output, input) = (port(wire.output), port(wire.input));
        format!("; {}{output} ->{input} {}", name(wire.from), name(wire.to))
    });
    declared.trim_end_matches([';', ' ']).to_owned() + &wires.collect::<String>()
}

#[test]
fn the_text_has_chains() {
    let text = "a :: Idle -> t :: Tee -> b :: Counter -> d :: Discard; t [1] -> [0] c :: Counter -> d;
        c2 :: Counter -> c3 :: Counter -> c2; Idle -> s :: Tee; Idle -> s; s -> Discard; s [1] -> b";
    let chains = read(text).unwrap().flatconfig();
    let (declared, chains) = chains.split_once("\n\n").unwrap();
    assert!(declared.starts_with("a :: Idle;\nt :: Tee;\n"), "{declared}");
    assert_eq!(
        chains,
        "a -> t\n    -> b\n    -> d;\nt [1] -> c\n    -> d;\nIdle@8 -> s\n    -> Discard@11;\n\
         s [1] -> b;\nIdle@10 -> s;\nc2 -> c3\n    -> c2;\n"
    );
    assert_eq!(read("").unwrap().flatconfig(), "");
}

#[test]
fn elements_of_compounds_are_behind_those_around_them() {
    let text = "elementclass B { input -> x :: Counter -> output }
        elementclass A { input -> Counter -> B -> Counter -> output } Idle -> A -> B -> Discard";
    let names: Vec<_> =
        read(text).unwrap().elements().iter().map(|element| element.name.to_string()).collect();
    assert_eq!(names.join(" "), "Idle@1 Discard@4 A@2/Counter@1 A@2/Counter@3 A@2/B@2/x B@3/x");
}

/// The messages of a wrong one, with line and column.
fn reported(text: &str) -> String {
    let Err(errors) = read(text) else { panic!("{text}: it is right") };
    let words = errors.reports.iter();
    let words = words.map(|r| format!("{}:{} {}", r.place.line, r.place.column, r.message));
    words.collect::<Vec<_>>().join("; ")
}

fn hint(text: &str) -> String {
    let errors = read(text).expect_err(text);
    errors.reports[0].hint.clone().unwrap_or_default()
}

#[test]
fn anonymous_elements_are_numbered_by_those_before() {
    assert_eq!(
        flat("Idle -> Discard; q :: Queue; Idle -> q -> ToDevice(eth0)"),
        "Idle@1 :: Idle; Discard@2 :: Discard; q :: Queue; Idle@4 :: Idle; \
         ToDevice@5 :: ToDevice(eth0); Idle@1 -> Discard@2; Idle@4 -> q; q -> ToDevice@5"
    );
    // A name that is taken is passed over, without going through all of them again.
    assert_eq!(
        flat("Idle@2, Idle@3 :: Idle; Idle; Idle; Idle@6 :: Idle"),
        "Idle@2 :: Idle; Idle@3 :: Idle; Idle@4 :: Idle; Idle@5 :: Idle; Idle@6 :: Idle"
    );
    assert_eq!(
        flat("Idle -> {input -> output} -> Discard"),
        "Idle@1 :: Idle; Discard@3 :: Discard; Idle@1 -> Discard@3"
    );
}

#[test]
fn declarations_and_chains() {
    assert_eq!(flat("a, b, c :: Idle(1)"), "a :: Idle(1); b :: Idle(1); c :: Idle(1)");
    assert_eq!(
        flat("a :: Idle; a, b :: Idle -> d :: Discard"),
        "a :: Idle; b :: Idle; d :: Discard; a -> d; b -> d"
    );
    assert_eq!(
        flat("i -> d; i :: Idle d :: Discard"),
        "i :: Idle; d :: Discard; i -> d",
        "used before it is declared"
    );
    assert_eq!(
        flat(
            "i :: Idle; i [0] -> c :: Classifier(-, -, -) [2] -> d :: Discard; c -> d; c [1] -> d"
        ),
        "i :: Idle; c :: Classifier(-, -, -); d :: Discard; i -> c; c [2] -> d; c -> d; c [1] -> d"
    );
    assert_eq!(
        flat("Idle -> d :: Discard; Idle@1 -> d"),
        "Idle@1 :: Idle; d :: Discard; Idle@1 -> d"
    );
}

#[test]
fn arrows_of_many() {
    let ends = |chain: &str| match read(&format!("i, j, t, u, d, e, f, s :: Idle; {chain}")) {
        Ok(read) => {
            let flat = read.flatconfig();
            flat.lines().filter(|line| line.contains("->")).collect::<Vec<_>>().join(" ")
        }
        Err(errors) => errors.reports[0].message.clone(),
    };
    assert_eq!(ends("t => d, e, f"), "t -> d; t [1] -> e; t [2] -> f;");
    assert_eq!(ends("t [0,] => d, e"), "t -> d; t [1] -> e;");
    assert_eq!(ends("u [0-1,2] => d, e, f"), "u -> d; u [1] -> e; u [2] -> f;");
    assert_eq!(ends("i, u [0,], j => d, e, f, d"), "i -> d; j -> d; u -> e; u [1] -> f;");
    assert_eq!(ends("i, j => d, e"), "i -> d; j -> e;");
    assert_eq!(ends("i, j -> d"), "i -> d; j -> d;");
    assert_eq!(ends("i => d"), "i -> d;");
    assert_eq!(ends("i, j, t => s"), "i -> s; j -> [1] s; t -> [2] s;");
    assert_eq!(ends("i, j => d, e, f"), "`=>` joins 2 outputs to 3 inputs");
    assert_eq!(ends("i, j -> d, e"), "2 outputs to 2 inputs: which to which?");
    assert_eq!(ends("t [0,], u [0,] => d, e, f"), "two lists of ports without end");
}

#[test]
fn compounds_vanish() {
    assert_eq!(
        flat("elementclass C { input -> x :: Counter -> output } Idle -> c :: C -> Discard"),
        "Idle@1 :: Idle; Discard@3 :: Discard; c/x :: Counter; Idle@1 -> c/x; c/x -> Discard@3"
    );
    // Ports, compounds in compounds, and one that only passes on.
    assert_eq!(
        flat(
            "elementclass In { input [0], input [1] -> output }
             elementclass Out { input -> i :: In -> output; Idle -> [1] i }
             Idle -> o :: Out -> Discard;"
        ),
        "Idle@1 :: Idle; Discard@3 :: Discard; o/Idle@2 :: Idle; Idle@1 -> Discard@3; o/Idle@2 -> Discard@3"
    );
    assert_eq!(
        flat("Idle -> { t :: Tee; input -> t; t [0,1] => [0,1] output } => Discard, Discard"),
        "Idle@1 :: Idle; Discard@3 :: Discard; Discard@4 :: Discard; @2/t :: Tee; Idle@1 -> @2/t; \
         @2/t -> Discard@3; @2/t [1] -> Discard@4"
    );
    // An output of a compound that goes nowhere leaves nothing behind.
    assert_eq!(
        flat(
            "Idle -> { t :: DecIPTTL; input -> t -> output; t [expired] -> [1] output } -> Discard"
        ),
        "Idle@1 :: Idle; Discard@3 :: Discard; @2/t :: DecIPTTL; Idle@1 -> @2/t; @2/t -> Discard@3"
    );
}

#[test]
fn classes_are_visible_where_they_are_declared() {
    // Inside its own body the name is still the outer class.
    assert_eq!(
        flat("elementclass Counter { input -> Counter -> output } Idle -> Counter -> Discard"),
        "Idle@1 :: Idle; Discard@3 :: Discard; Counter@2/Counter@1 :: Counter; \
         Idle@1 -> Counter@2/Counter@1; Counter@2/Counter@1 -> Discard@3"
    );
    assert_eq!(flat("elementclass X Idle; elementclass Y X; y :: Y"), "y :: Idle");
    assert_eq!(
        reported("a :: { elementclass X Idle; X } \n x :: X"),
        "2:7 unknown element class `X`",
        "not behind the body it is declared in"
    );
    assert_eq!(reported("X -> Discard; elementclass X Idle"), "1:1 no element is called `X`");
    assert_eq!(
        hint("X -> Discard; elementclass X Idle"),
        "a class is visible behind its declaration, in the same `{ }` and those inside"
    );
    assert_eq!(
        flat("elementclass X Idle; x :: X; elementclass X Tee; y :: X; Idle -> y -> Discard"),
        "x :: Idle; y :: Tee; Idle@3 :: Idle; Discard@4 :: Discard; Idle@3 -> y; y -> Discard@4",
        "the later one from there on"
    );
    assert_eq!(reported("elementclass X X"), "1:16 unknown element class `X`");
}

#[test]
fn declarations_of_several_classes_stand_in_a_row() {
    let read = self::read("a, b :: Idle, c :: Counter, d :: Discard; a -> c -> d; b -> c").unwrap();
    let flat = "a :: Idle;\nb :: Idle;\nc :: Counter;\nd :: Discard;\n";
    assert!(read.flatconfig().starts_with(flat), "{}", read.flatconfig());
    let errors = self::read("a :: Idle, b -> Discard, c").unwrap_err();
    assert!(!errors.reports.is_empty());
}

#[test]
fn definitions_are_kept_where_that_is_wanted() {
    let text = "define($x 1, $y \"a $x\") elementclass A { $a | define($z 3) Idle($a $z, '$x') }
        A($x); Idle(\"${x-2}\", ${y})";
    let kept = |language: Language<'_, _>| {
        language.keeping_defined(true).read("a", text).unwrap().flatconfig()
    };
    let with = |x: &str, definitions: &str| {
        let own = "Idle@2 :: Idle(\"${x-2}\", ${y});\n";
        format!("define({definitions});\n\n{own}A@1/Idle@1 :: Idle({x} 3, '$x');\n\n")
    };
    assert_eq!(kept(Language::new(CLASSES)), with("1", "$x 1, $y \"a $x\""));
    let given = Language::new(CLASSES).define("x", "6").define("x", "7").define("w", "5");
    assert_eq!(kept(given), with("7", "$x 7, $y \"a $x\", $w 5"));
    assert!(read(&with("1", "$x 1, $y 2")).is_ok());
}

#[test]
fn definitions_that_cannot_be_written_are_put_in() {
    let kept = |value: &str| {
        let language = Language::new(CLASSES).define("x", value).keeping_defined(true);
        let text = "define($x 1, $y \"a $x\", $z 3) Idle($z, \"$x\", $y)";
        language.read("a", text).unwrap().flatconfig()
    };
    let all = "define($x 7 8, $y \"a $x\", $z 3);\n\nIdle@1 :: Idle($z, \"$x\", $y);\n\n";
    assert_eq!(kept("7 8"), all);
    for value in
        ["1.0.0.0/8 0, 2.0.0.0/8 1", "1,", "1 // c", "1 /* c */ 2", ")", "(", "'", "", " 1"]
    {
        let flat = format!("Idle@1 :: Idle($z, \"{value}\", \"a {value}\");\n\n");
        assert_eq!(kept(value), format!("define($z 3);\n\n{flat}"));
    }
}

#[test]
fn definitions_that_compounds_get_are_put_in() {
    let kept = |text: &str| {
        let read = Language::new(CLASSES).keeping_defined(true).read("a", text).unwrap();
        read.elements().iter().map(|element| element.config.as_str().to_owned()).collect::<String>()
    };
    let text = "define($n 5) elementclass A { $a | Idle(\"v $a\", \\<$a 5>, $n) } A($n)";
    assert_eq!(kept(text), "\"v 5\", \\<5 5>, $n");
    assert_eq!(kept("define($n a b) elementclass A { $a | Idle(${a[1]}) } A($n)"), "b");
    let forms = "define($b BURST 5) elementclass K { $a, BURST $b | Idle($a $b) } K(1, $b)";
    assert_eq!(kept(forms), "1 5");
    let beside = "define($n 5) elementclass A { $a | Idle($n$a, ${n}$a $n) } A(6)";
    assert_eq!(kept(beside), "${n}6, ${n}6 $n");
    let within = "define($n 5) { define($m $n) Idle(\"$m ${u-$n}\", \"$n\") }";
    let read = Language::new(CLASSES).keeping_defined(true).keeping_unknown(true);
    let read = read.read("a", within).unwrap();
    assert_eq!(read.elements()[0].config.as_str(), "\"5 5\", \"$n\"");
}

#[test]
fn requirements_are_kept() {
    let text = "require(package \"click\", compact_config) require(analysis); i :: Idle";
    let read = self::read(text).unwrap();
    let all = [("package", "click"), ("compact_config", ""), ("package", "analysis")];
    assert_eq!(read.requirements(), all);
    let flat =
        "require(package \"click\", compact_config, package \"analysis\");\n\ni :: Idle;\n\n";
    assert_eq!(read.flatconfig(), flat);
    assert_eq!(self::read(flat).unwrap().flatconfig(), flat);
    assert_eq!(hint("require(package compact_config)"), "write `require(compact_config)`");
    assert!(hint("require(package x)").starts_with("all elements are built in"));
}

#[test]
fn what_was_put_in_before_a_number_reads_as_itself() {
    let read = self::read("define($x 1) Idle(7$${x}, ${1-2}) -> Discard").unwrap();
    let flat = read.flatconfig();
    assert!(flat.starts_with("Idle@1 :: Idle(7$1, 2);\n"), "{flat}");
    assert_eq!(self::read(&flat).unwrap().flatconfig(), flat);
}

#[test]
fn variables() {
    let compound = "elementclass C { $a, KEY $b | Idle($a, ${b-9}) }";
    assert_eq!(flat(&format!("{compound} c :: C(1)")), "c/Idle@1 :: Idle(1, 9)");
    assert_eq!(flat(&format!("{compound} c :: C(KEY 2, 1)")), "c/Idle@1 :: Idle(1, 2)");
    assert_eq!(flat(&format!("{compound} c :: C(\"KEY 2\")")), "c/Idle@1 :: Idle(\"KEY 2\", 9)");
    let twice = format!("{compound} c :: C(KEY 3, 1, KEY 2)");
    assert_eq!(flat(&twice), "c/Idle@1 :: Idle(1, 2)", "the last one counts");
    let warned = read(&twice).unwrap().warnings(&Problems::default());
    let warned: Vec<_> = warned.iter().map(|report| report.message.as_str()).collect();
    assert_eq!(warned, ["compound `c`: KEY is given twice: the last one counts"]);
    assert_eq!(flat("Idle($x); define($x $y, $y 5)"), "Idle@1 :: Idle(5)");
    // The text around a body decides, not who uses it.
    assert_eq!(
        flat(
            "define($x 1) elementclass A { Idle($x) }
             elementclass B { $x | a :: A; elementclass D { Idle($x) } d :: D; e :: { define($x 3) f :: D } } b :: B(2)"
        ),
        "b/a/Idle@1 :: Idle(1); b/d/Idle@1 :: Idle(2); b/e/f/Idle@1 :: Idle(2)"
    );
    let language = Language::new(CLASSES).define("x", "7, 8").define("z", "$x");
    let read = language.read("a", "define($x 5) Idle($x, '$x', $z)").unwrap();
    assert_eq!(read.flatconfig(), "Idle@1 :: Idle(7, 8, '$x', 7, 8);\n\n");
    assert_eq!(reported("define($x 1) define($x 2)"), "1:21 `$x` is defined twice");
    assert_eq!(reported("{ $x | define($x 2) }(1)"), "1:15 `$x` is defined twice");
    assert_eq!(reported("define(x 1, $y)"), "1:8 expected `$NAME VALUE`, found `x`");
    assert_eq!(reported("Idle($speed) define($spead 1)"), "1:6 no variable is called `$speed`");
    assert_eq!(
        reported(&format!("{compound} c :: C")),
        "1:50 compound `c`: argument `$a` is missing"
    );
    assert_eq!(
        reported(&format!("{compound} C(1, 2, 3)")),
        "1:55 compound `C@1`: too many arguments: at most 1"
    );
    assert_eq!(
        reported("elementclass C { A $a | Idle($a) } C"),
        "1:30 `$a` has no value here: it was not given"
    );
}

#[test]
fn names_that_cannot_be() {
    assert_eq!(reported("a :: Idle; a :: Idle"), "1:12 `a` is declared twice");
    assert_eq!(reported("Queue :: Queue"), "1:1 `Queue` is a class, no name for an element");
    assert_eq!(reported("input :: Idle"), "1:1 `input` is where packets enter or leave a compound");
    assert_eq!(reported("a/b :: Idle; a :: { b :: Idle }"), "1:21 `a/b` is declared twice");
    assert_eq!(reported("a :: Cuonter"), "1:6 unknown element class `Cuonter`");
    assert_eq!(hint("a :: Cuonter"), "did you mean `Counter`?");
    assert_eq!(
        reported("idle :: Idle -> Discard; idel -> Discard"),
        "1:26 no element is called `idel`"
    );
    assert_eq!(hint("idle :: Idle -> Discard; idel -> Discard"), "did you mean `idle`?");
    assert_eq!(reported("input -> Discard"), "1:1 `input` outside of a compound");
    assert_eq!(
        reported("{ Idle -> input }"),
        "1:11 packets cannot go to `input`: they come from there"
    );
    assert_eq!(
        reported("{ output -> Discard }"),
        "1:3 packets cannot come from `output`: they go there"
    );
    assert_eq!(reported("x"), "1:1 no element is called `x`");
    let deep = "elementclass A { $x | input -> output } ".to_owned()
        + &(0..5).map(|n| format!("{}{n} :: {{ ", "n".repeat(250))).collect::<String>()
        + "Idle"
        + &"}".repeat(5);
    assert!(
        reported(&deep).contains("a name of 1007 bytes in its compounds, at most 1000"),
        "{}",
        reported(&deep)
    );
}

#[test]
fn ports_that_are_not_there() {
    assert_eq!(
        reported("[1] Idle -> Discard [2]"),
        "1:1 ports before the first element of a chain; 1:21 ports behind the last element of a chain"
    );
    assert_eq!(
        reported("c :: { input -> output } Idle -> c [1] -> Discard"),
        "1:36 compound `c` has no output 1: its last one is 0"
    );
    assert_eq!(
        reported("c :: { Idle -> output } Idle -> c -> Discard"),
        "1:33 compound `c` has no input 0: it has no inputs"
    );
    assert_eq!(
        reported("{ input [1] -> Discard }"),
        "1:1 compound skips input 0, and uses input 1"
    );
    assert_eq!(
        reported("{ input -> Quue -> output; input [1] -> Discard }"),
        "1:12 no element is called `Quue`",
        "which may have been what takes input 0"
    );
    assert_eq!(reported("{ KEY $a, KEY $b | Idle }"), "1:11 keyword `KEY` is declared twice");
    assert_eq!(
        reported("{ Idle -> output; Idle -> [2] output }"),
        "1:1 compound skips output 1, and uses output 2"
    );
    assert_eq!(
        reported("Idle -> t :: DecIPTTL -> Discard; t [expird] -> Discard"),
        "1:38 `DecIPTTL` has no output `expird`"
    );
    assert_eq!(
        hint("Idle -> t :: DecIPTTL -> Discard; t [expird] -> Discard"),
        "did you mean `expired`?"
    );
    assert_eq!(
        reported("Idle -> [one] Discard"),
        "1:10 no input `one`: ports of inputs have numbers only"
    );
}

#[test]
fn numbers_of_ports_are_what_classes_declare() {
    assert_eq!(
        reported("Idle -> c :: Counter; c -> Discard; c [1] -> Discard"),
        "1:37 `c` (Counter) has no output 1: it has output 0 only"
    );
    assert_eq!(
        reported("Idle -> Counter"),
        "1:9 output 0 of `Counter@2` (Counter) is not connected"
    );
    assert_eq!(hint("Idle -> Counter"), "connect what is not wanted to `Discard`");
    assert_eq!(reported("q :: Queue -> ToDevice"), "1:1 input 0 of `q` (Queue) is not connected");
    assert_eq!(
        reported("Idle -> [1] Discard"),
        "1:1 `Discard@2` (Discard) has no input 1: it has input 0 only; 1:13 input 0 of `Discard@2` (Discard) is not connected"
    );
    assert_eq!(
        reported(
            "Idle -> t :: Tee [3] -> Discard; t [1] -> Discard; t -> Discard; t [7] -> Discard"
        ),
        "1:9 output 2 of `t` (Tee) is not connected; 1:9 outputs 4 to 6 of `t` (Tee) are not connected"
    );
    assert_eq!(
        reported("Idle -> d :: FromDevice -> Discard"),
        "1:1 `d` (FromDevice) has no input 0: it has no inputs"
    );
    assert_eq!(reported("Wrong -> Discard"), "1:1 class `Wrong`: `1/one` is no number of ports");
    // As many outputs as inputs.
    assert_eq!(
        reported("Idle -> s :: Suppressor -> Discard; Idle -> [1] s"),
        "1:9 output 1 of `s` (Suppressor) is not connected"
    );
    assert_eq!(
        reported("Idle -> t :: Tee [65279] -> Discard"),
        "1:9 outputs 0 to 65278 of `t` (Tee) are not connected"
    );
}

fn kinds(text: &str) -> String {
    let read = read(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    let letter = |kind| if kind == Processing::Pull { 'l' } else { 'h' };
    read.connections().iter().map(|wire| letter(wire.kind)).collect()
}

#[test]
fn kinds_spread_through_agnostic_elements() {
    assert_eq!(kinds("FromDevice -> Counter -> Print -> Queue -> Counter -> ToDevice"), "hhhll");
    assert_eq!(kinds("Idle -> Counter -> Discard"), "hh", "what is agnostic in the end pushes");
    assert_eq!(kinds("Idle -> Counter -> ToDevice"), "ll");
    // The second output of DecIPTTL pushes whatever the first one does.
    assert_eq!(kinds("FromDevice -> Queue -> t :: DecIPTTL -> ToDevice; t [1] -> Discard"), "hllh");
    // Each of its ways by itself.
    assert_eq!(
        kinds(
            "s :: Suppressor; FromDevice -> s -> Discard; q :: Queue; Idle -> q -> [1] s [1] -> ToDevice"
        ),
        "hhhll"
    );
    assert_eq!(
        kinds("q, r :: Queue; Idle -> q -> s :: RoundRobinSched -> ToDevice; Idle -> r -> [1] s"),
        "hllhl"
    );
}

#[test]
fn kinds_that_clash() {
    assert_eq!(
        reported("FromDevice(eth0) -> ToDevice(eth1)"),
        "1:1 output 0 of `FromDevice@1` (FromDevice) (push) is connected to input 0 of `ToDevice@2` (ToDevice) (pull)"
    );
    assert_eq!(hint("FromDevice -> ToDevice"), "put a `Queue` between them");
    assert_eq!(
        reported("i :: Idle -> q :: Queue -> f :: ToHost"),
        "1:14 output 0 of `q` (Queue) (pull) is connected to input 0 of `f` (ToHost) (push)"
    );
    assert!(hint("Idle -> Queue -> ToHost").starts_with("put an `Unqueue` between them"));
    assert_eq!(
        reported("FromDevice -> c :: Counter -> ToDevice"),
        "1:15 agnostic element `c` (Counter) in mixed context: input 0 is push, output 0 is pull"
    );
    let chain = reported("FromDevice -> c :: Counter -> d :: Counter -> ToDevice");
    assert_eq!(
        chain,
        "1:15 output 0 of `c` (Counter) (push, by what it is joined to) is connected to \
         input 0 of `d` (Counter) (pull, by what it is joined to)"
    );
    assert_eq!(
        reported(
            "s :: EtherSwitch; FromDevice => s; Idle -> [1] s; s -> Discard; s [1] -> ToDevice"
        ),
        "1:1 agnostic element `s` (EtherSwitch) in mixed context: input 0 is push, output 1 is pull"
    );
    // With two ports, what enters at 0 leaves at 1 only.
    let crossed = "s :: EtherSwitch; FromDevice -> s -> ToDevice; Idle -> [1] s [1] -> Discard";
    assert_eq!(kinds(crossed), "hllh");
}

#[test]
fn what_takes_one_connection_gets_one() {
    assert_eq!(
        reported("f :: FromDevice -> Discard; f -> Discard"),
        "1:29 push output 0 of `f` (FromDevice) has 2 connections"
    );
    assert!(hint("f :: FromDevice -> Discard; f -> Discard").contains("`Tee`"));
    assert_eq!(
        reported("t :: ToDevice; Idle -> Queue -> t; Idle -> Queue -> t"),
        "1:44 pull input 0 of `t` (ToDevice) has 2 connections"
    );
    assert_eq!(kinds("FromDevice, FromDevice -> q :: Queue -> ToDevice; q -> ToDevice"), "hhll");
}

#[test]
fn one_run_tells_all() {
    assert_eq!(
        reported(
            "a :: Queu;\nb -> Discard [;\nIdle -> $x;\nelementclass A { Quue }\nIdle -> C -> (d);\n%"
        ),
        "1:6 unknown element class `Queu`; 2:15 expected the number of a port, found `;`; \
         3:9 a variable cannot be an element; 4:18 no element is called `Quue`; \
         5:9 no element is called `C`; 5:14 this group has no input: begin a chain in it with `[0] ->`; \
         5:15 no element is called `d`; 6:1 `%` means nothing here"
    );
    let read = Language::new(CLASSES).library(|file, from| {
        assert_eq!((file, from), ("b", "a.click"));
        Ok(("lib/b".to_owned(), "\nx -> Discard".to_owned()))
    });
    let errors = read.read("a.click", "require(library b)\ny -> Discard").unwrap_err();
    let places: Vec<_> = errors.reports.iter().map(|r| r.place.to_string()).collect();
    assert_eq!(places, ["a.click:2:1", "lib/b:2:1"]);
}

#[test]
fn sizes_are_bounded_before_anything_grows() {
    let doubling = |depth: usize, body: &str| {
        let mut text = format!("elementclass C0 {{ {body} }}\n");
        for n in 1..depth {
            text += &format!("elementclass C{n} {{ input -> C{0} -> C{0} -> output }}\n", n - 1);
        }
        text + &format!("Idle -> C{} -> Discard", depth - 1)
    };
    assert!(read(&doubling(10, "input -> Counter -> output")).is_ok());
    for body in ["input -> Counter -> output", "input -> output"] {
        let words = reported(&doubling(60, body));
        assert!(
            words.contains("this expands to") && words.contains("elements, at most 32768"),
            "{words}"
        );
    }
    let mut levels = "elementclass C0 { Idle }".to_owned();
    for n in 1..70 {
        levels += &format!(" elementclass C{n} {{ C{} }}", n - 1);
    }
    assert!(
        reported(&levels).contains("65 levels of compounds, at most 64"),
        "{}",
        reported(&levels)
    );
    let wide = "Idle [0-65279] -> Tee; ".repeat(100);
    assert!(reported(&wide).contains("more than 262144 connections"));
    assert!(
        reported("a :: Idle; a [0-65279,0-65279,0-65279,0-65279,0-65279] -> Discard")
            .contains("more than 262144 ports")
    );
    // Many to many through one port.
    let sources = "Idle -> c; ".repeat(2000) + &"c -> Discard; ".repeat(2000);
    let words = reported(&("c :: { input -> output } ".to_owned() + &sources));
    assert!(words.contains("more than 262144 connections, or"), "{words}");
}

#[test]
fn a_route_table_of_200_000_arguments_is_one_string() {
    let routes: String = (0..200_000_u32)
        .map(|n| format!("{}.{}.{}.0/24 {}, ", 1 + n / 65_536, n / 256 % 256, n % 256, n % 200))
        .collect();
    let outputs: String = (0..200).map(|n| format!("rt[{n}] -> Discard;\n")).collect();
    let text =
        format!("ControlSocket(TCP, 1234); rt :: DXRIPLookup({routes}); Idle -> rt;\n{outputs}");
    let read = read(&text).unwrap();
    let rt = read.find("rt").unwrap();
    assert_eq!((read.elements()[rt].inputs, read.elements()[rt].outputs), (1, 200));
    let mut problems = super::Problems::default();
    let mut args = read.args(rt, &mut problems);
    let mut sum = 0;
    for route in args.rest() {
        let words: Vec<_> = route.words().collect();
        let prefix: fingerpost_lpm::Prefix<u32> = words[0].value().unwrap();
        assert_eq!(prefix.len(), 24);
        sum += words[1].value::<u64>().unwrap();
    }
    args.finish().unwrap();
    assert_eq!(sum, 1000 * (199 * 200 / 2));
    let again = self::read(&read.flatconfig()).unwrap();
    assert_eq!(again.elements()[rt].config.arguments().len(), 200_000);
}

#[test]
fn arguments_know_their_places_and_elements_their_names() {
    let text = "elementclass C { $x | a :: Idle($x, b); b :: Idle(1) }\nb :: Idle; c :: C(five)";
    let read = read(text).unwrap();
    let (a, inner, outer) =
        (read.find("c/a").unwrap(), read.find("c/b").unwrap(), read.find("b").unwrap());
    assert_eq!(read.find_from(a, "b"), Some(inner));
    assert_eq!(read.find_from(outer, "c/a"), Some(a));
    assert_eq!((read.find_from(a, "z"), read.find("z")), (None, None));
    let mut problems = super::Problems::default();
    let mut args = read.args(a, &mut problems);
    assert!(args.positional::<u32>("N").is_err());
    assert_eq!(args.positional::<String>("OF").unwrap(), "b");
    let errors = read.errors(problems);
    assert_eq!(
        errors.to_string(),
        "a.click:1:33: `c/a` (Idle): N: `five` is no whole number\n    \
         elementclass C { $x | a :: Idle($x, b); b :: Idle(1) }\n                                    ^^"
    );
}

/// Elements of a good configuration, each with its arguments.
fn elements(text: &str) -> String {
    let read = read(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    let of = |element: &Declared| format!("{}({})", element.name, element.config.as_str());
    read.elements().iter().map(of).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_class_has_several_forms() {
    let forms = "elementclass X { $a | Idle($a) || $a, $b | input -> Print($b $a) -> output ||
        $a, __REST__ $r | Idle($a/$r) }";
    let with = |text: &str| elements(&format!("{forms} {text}"));
    assert_eq!(with("X(1); X(1, 2, 3)"), "X@1/Idle@1(1) X@2/Idle@1(1/2, 3)");
    assert_eq!(with("X(1, 2)"), "X@1/Idle@1(1/2)", "no port is used");
    assert_eq!(with("Idle -> x :: X(1, 2) -> Idle"), "Idle@1() Idle@3() x/Print@1(2 1)");
    let words = "`X@1`: no form of its class has 0 arguments, 0 inputs and 0 outputs";
    assert!(reported(&format!("{forms} X")).contains(words));
    let by_ports =
        "elementclass Y { input -> output || input -> Print -> output; input [1] -> Idle }";
    assert_eq!(elements(&format!("{by_ports} Idle -> Y -> Idle")), "Idle@1() Idle@3()");
    assert_eq!(
        elements(&format!("{by_ports} Idle -> y :: Y -> Idle; Idle -> [1] y")),
        "Idle@1() Idle@3() Idle@4() y/Print@1() y/Idle@2()"
    );
    let extended = "elementclass Queue { $a, $b | input -> Queue($a$b) -> output || ... }
        Idle -> Queue(1, 2) -> Unqueue -> Queue(7) -> Unqueue -> Idle";
    assert_eq!(
        elements(extended),
        "Idle@1() Unqueue@3() Queue@4(7) Unqueue@5() Idle@6() Queue@2/Queue@1(12)"
    );
    let keyed = "elementclass K { $a, BURST $b | Idle($a, $b) || $a | Idle($a) || Idle(0) } ";
    assert_eq!(
        elements(&format!("{keyed} K(1); K(1, BURST 2); K")),
        "K@1/Idle@1(1) K@2/Idle@1(1, 2) K@3/Idle@1(0)"
    );
    let left_out = "elementclass L { $a, $b | Idle || C $c, D $d | Idle(${c-0} $d) } L(D 5)";
    assert_eq!(elements(left_out), "L@1/Idle@1(0 5)", "where no other form fits");
    let nothing = reported("elementclass Zz { Idle || ... }");
    assert!(nothing.contains("there is no class `Zz` to extend"), "{nothing}");
    let rest = "elementclass Z { __REST__ $r, K $k | Idle($k: $r) } Z(1, K 5, 2)";
    assert_eq!(elements(rest), "Z@1/Idle@1(5: 1, 2)");
}
