//! `Script(INSTRUCTION, ...)` carries out a small program, which reads and writes handlers; `DriverManager` is a
//! script that decides when the router ends.
//!
//! Source: Click's elements of these names. Instructions: `print`, `printn` `[>FILE|>>FILE] HANDLER|TEXT`, `read` HANDLER,
//! `write` HANDLER VALUE, `set`, `init`, `export` NAME VALUE, `save`, `append` HANDLER FILE, `label` NAME, `goto` LABEL
//! [CONDITION], `loop`, `return` [VALUE], `exit`, `end`, `error` TEXT, `stop`, `pause` or `wait_stop` [COUNT], and `wait`
//! or `wait_time` TIME. `$name`, `$1` and `$(HANDLER PARAMETER)` are put in; quotes stay, but for `print` of a text, and
//! for the forms with a `q` at their end (`setq`, `writeq`, `printnq`). What the functions of `$( )` are is in the handlers
//! of the element: `add`, `eq`, `if`, `sprintf` and others; `cat`, `catq` FILE and `kill` SIGNAL PROCESS are none.
//!
//! `TYPE` selects what starts it: `ACTIVE` scripts start by themselves, `PASSIVE` ones when `run` is called, `PACKET`
//! scripts (those with inputs) for each packet, which goes to the output that they `return`, 0 without one, and is
//! dropped by `exit`. A `DRIVER` script, `DriverManager`, receives each request that the router end: `pause` waits for
//! one. When it is at its end, so is the router. Where an element carries out what is written in its next turn, such
//! scripts and `ACTIVE` ones continue behind that. Of several workers the first runs it. `SIGNAL NAME` scripts start when
//! the process receives one of these signals. `PROXY` scripts run when any handler of theirs is called, which `$0` names.

mod functions;
mod program;
mod text;
mod trail;

use std::sync::Arc;

use crate::element::support::caller::Caller;
use crate::element::support::one_instance::OneInstance;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Ending, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError, Role, Value};

#[cfg(any(test, feature = "testing"))]
pub(crate) use program::bound_jumps;
use program::{Kind, Program, Script};
pub(crate) use text::{first_word, words};

pub(crate) const SCRIPT: ElementClass = ElementClass {
    spec: ClassSpec::new("Script", "-/-", "ah/ah", "x/x").role(Role::Script),
    summary: "carries out a program that reads and writes handlers",
    configure: |setup| {
        let mut signals = Vec::new();
        let kind = match setup.args.keyword_arg("TYPE")? {
            None if setup.inputs > 0 => Kind::Packet,
            None => Kind::Active,
            Some(arg) => match arg.raw() {
                "ACTIVE" => Kind::Active,
                "PASSIVE" => Kind::Passive,
                "DRIVER" => Kind::Driver,
                "PACKET" | "PUSH" => Kind::Packet,
                "PROXY" => Kind::Proxy,
                other if other.starts_with("SIGNAL") => {
                    signals = arg.words().skip(1).map(|word| signal(word.raw())).collect();
                    if signals.is_empty() || signals.contains(&None) {
                        return Err(setup.args.refuse(&arg, "TYPE: a signal that is not known"));
                    }
                    Kind::Signal
                }
                other => {
                    let known = "ACTIVE, PASSIVE, DRIVER, PACKET, PROXY, SIGNAL";
                    let words = format!("TYPE: `{other}` is none of {known}");
                    return Err(setup.args.refuse(&arg, &words));
                }
            },
        };
        let made = configure(setup, "Script", kind)?;
        let numbers: Vec<String> = signals.into_iter().flatten().map(|n| n.to_string()).collect();
        Ok(match kind {
            Kind::Signal => made.handler(Handler::read("signals", move || numbers.join(" "))),
            _ => made,
        })
    },
};

/// Number of a signal.
fn signal(name: &str) -> Option<u32> {
    const SIGNALS: &[(&str, u32)] = &[
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("ABRT", 6),
        ("USR1", 10),
        ("USR2", 12),
        ("PIPE", 13),
        ("ALRM", 14),
        ("TERM", 15),
        ("TSTP", 20),
        ("IO", 29),
    ];
    let plain = name.strip_prefix("SIG").unwrap_or(name);
    let named = SIGNALS.iter().find(|(known, _)| *known == plain).map(|(_, number)| *number);
    // Those that cannot be caught, or mean that the program failed, are none.
    named.or_else(|| u32::read(name).ok().filter(|number| SIGNALS.iter().any(|s| s.1 == *number)))
}

pub(crate) const DRIVER_MANAGER: ElementClass = ElementClass {
    spec: ClassSpec::new("DriverManager", "0/0", "a/a", "x/y").role(Role::Script),
    summary: "decides by a program when the router ends",
    configure: |setup| configure(setup, "DriverManager", Kind::Driver),
};

fn configure(setup: &mut Setup<'_>, class: &'static str, kind: Kind) -> Result<Made, ConfigError> {
    let mut program = Program::default();
    let steps: Vec<_> = setup.args.rest().collect();
    for step in &steps {
        if let Err(words) = program.add(&step.uncommented()) {
            setup.args.refuse(step, &words);
        }
    }
    if let Some(label) = program.missing() {
        let words = format!("there is no label `{label}`");
        setup.args.refuse_all(&words);
    }
    setup.args.finish()?;
    if kind == Kind::Driver {
        program = program.or_pause();
    }
    let ending = setup.ending.clone();
    let exports = program.exports().to_vec();
    let name = (setup.name().to_owned(), class);
    let script = Script::new(name, kind, program, Caller::of(setup), ending);
    let script = Arc::new(script);
    let one = OneInstance::default();
    let (outputs, ending) = (setup.outputs, setup.ending.clone());
    let mut made = Made::new({
        let script = script.clone();
        move |instance| Runner {
            works: one.is(instance),
            script: script.clone(),
            ending: ending.clone(),
            outputs,
        }
    });
    if kind != Kind::Packet {
        made = made.polled();
    }
    let [run, write, step, jump] = [(); 4].map(|()| script.clone());
    made = made
        .handler(Handler::read_with("run", move |text| run.handle("run", text, false)))
        .handler(Handler::write("run", move |text| write.handle("run", text, true).map(drop)))
        .handler(Handler::write("step", move |count| {
            let count = match count.trim() {
                "" | "router" => 1,
                text => u64::read(text).map_err(|words| format!("`{text}` is {words}"))?,
            };
            step.step(count);
            // One that steps itself continues when it waits.
            if step.is_busy() { Ok(()) } else { step.called(|| step.run()).map(drop) }
        }))
        .handler(Handler::write("goto", move |label| {
            jump.jump(label)?;
            jump.called(|| jump.run()).map(drop)
        }));
    let set = script.clone();
    made = made.handler(Handler::write("set", move |text| match first_word(text) {
        ("", _) => Err("no variable".into()),
        (name, value) => {
            set.set(name, value.to_owned());
            Ok(())
        }
    }));
    if kind == Kind::Proxy {
        let [read, write] = [(); 2].map(|()| script.clone());
        made = made.handler(Handler::any(
            move |name, text| read.handle(name, text, false),
            move |name, text| write.handle(name, text, true).map(drop),
        ));
    }
    for name in exports {
        let (script, own) = (script.clone(), name.clone());
        made = made.handler(Handler::read("export", move || script.exported(&own)).named(name));
    }
    // A handler gives the same as long as nothing changes.
    let constant = functions::NAMES.iter().filter(|name| !matches!(**name, "random" | "now"));
    for &name in constant.chain(&["get", "shift", "readable", "writable"]) {
        let script = script.clone();
        made = made.handler(Handler::read_with(name, move |text| {
            script.function(name, text).unwrap_or_else(|| Ok(String::new()))
        }));
    }
    Ok(made)
}

struct Runner {
    script: Arc<Script>,
    works: bool,
    ending: Ending,
    outputs: u32,
}

impl Element for Runner {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.script.set_now(cx.now_ns);
        for i in 0..batch.len() {
            if !self.works || self.script.kind != Kind::Packet {
                batch.output(i, input);
                continue;
            }
            let result = self.script.handle_packet(input);
            match result.filter(|&output| u32::from(output) < self.outputs) {
                Some(output) => batch.output(i, output),
                None => batch.discard(i, DropReason::Discarded),
            }
        }
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        if !self.works {
            return;
        }
        // Handlers of one that does not run ask for it as well.
        self.script.set_now(cx.now_ns);
        if !self.script.is_running() {
            return;
        }
        // An end that is requested before it began is one that it waits for.
        self.script.continue_by_itself();
        // The script's own request is none to itself, and no request ends a rest.
        let manages =
            self.script.kind == Kind::Driver && self.script.is_running() && !self.script.rests();
        if manages && self.ending.take() {
            self.script.end_requested();
            self.script.run();
        }
    }

    fn keeps_time(&self) -> bool {
        self.works && self.script.until_ns().is_some()
    }

    fn due_ns(&self) -> Option<u64> {
        self.script.until_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::click::only::console;
    use crate::testing::{Rig, World, refused};

    /// What a configuration writes in so many rounds of 10 ms.
    fn written(text: &str, rounds: usize) -> (String, String, bool) {
        console::collect();
        let mut rig = Rig::new(&World::new(), text);
        for _ in 0..rounds {
            if rig.plan.is_stopped() {
                break;
            }
            rig.poll();
            rig.bench.now_ns += 10_000_000;
        }
        let console::Written { out, err } = console::collected();
        (out, err, rig.plan.is_stopped())
    }

    #[test]
    fn instructions() {
        let text = "i1, i2 :: Idle; define($j sub);
            Script(print $(add 1 2), set i add, print $($i 3 4), print $($(s.run).name), print $($j.run), printn a.b, print 'x, y',
                stop);
            s :: Script(TYPE PASSIVE, return i2); sub :: Script(TYPE PASSIVE, return Hello)";
        let (out, err, stopped) = written(text, 3);
        assert_eq!((out.as_str(), stopped), ("3\n7\ni2\nHello\nx, y\n", true));
        assert_eq!(err, "While executing 'Script@3 :: Script':\n  no element named 'a'\n");
        let text = "q :: Queue(7); Idle -> q -> Idle; Script(read q.capacity, write q.capacity 9, print \"$? $(q.capacity)\",
            write q.capacity x, print $?, readq q.capacity, error \"it $(if $(eq 1 1) ends)\", print 'never')";
        let (out, err, stopped) = written(text, 3);
        assert_eq!((out.as_str(), stopped), ("0 9\n-22\n", false));
        assert!(
            err.starts_with("q.capacity:\n7\nWhile executing 'Script@4 :: Script':\n  While calling 'q.capacity x':\n")
                && err.ends_with("q.capacity:\n9\n  \"it ends\"\n"),
            "{err}"
        );
    }

    #[test]
    fn the_time_of_a_passive_script_is_now() {
        let text = "Script(wait 25ms, set a $(s.run), wait 25ms, print $(ne $a $(s.run)), stop);
            s :: Script(TYPE PASSIVE, return $(now))";
        let (out, _, stopped) = written(text, 9);
        assert_eq!((out.as_str(), stopped), ("true\n", true));
    }

    #[test]
    fn loops_and_waits() {
        let text = "Script(init i 0, set i $(add $i 1), print $i, wait 25ms, goto begin $(lt $i 3), label x, print 'end', stop)";
        let (out, _, stopped) = written(text, 100);
        assert_eq!((out.as_str(), stopped), ("1\n2\n3\nend\n", true));
        let (out, _, _) = written("Script(print 'a', wait 25ms, print 'b')", 3);
        assert_eq!(out, "a\n");
        let (_, err, _) = written("s :: Script(write s.run)", 1);
        assert!(err.contains("s: it runs within itself, 64 times\n"), "{err}");
        let (_, err, _) = written(
            "Script(init x 1234567, init i 0, label a, set i $(add $i 1), set x $x$x, goto a $(lt $i 20))",
            1,
        );
        assert!(err.contains("  `x` has at most 1048576 bytes\n"), "{:.200}", err);
        let (out, err, _) = written("Script(label x, set i 1, goto x)", 1);
        assert!(
            out.is_empty() && err.ends_with("  Script@1: 1000000 jumps without a wait\n"),
            "{err}"
        );
        let text =
            "Script(label x, write p.run, goto x); p :: Script(TYPE PASSIVE, label y, goto y)";
        let (_, err, _) = written(text, 1);
        let words = "1000000 jumps without a wait";
        assert_eq!(
            err,
            format!(
                "While executing 'Script@1 :: Script':\n  While calling 'p.run':\n    p: {words}\n  Script@1: {words}\n"
            ),
            "together"
        );
        let twice = |n| {
            format!("p{n} :: Script(TYPE PASSIVE, write p{}.run, write p{}.run);", n + 1, n + 1)
        };
        let text = (0..40).map(twice).collect::<String>() + "p40 :: Idle; Script(write p0.run)";
        bound_jumps(1000);
        let (_, err, _) = written(&text, 1);
        let rig = Rig::new(&World::new(), &text);
        console::collect();
        let result = rig.handlers.read("p0.run", "");
        let words = result.map_or_else(|error| error.to_string(), |_| console::collected().err);
        assert!(words.contains("...") && words.len() < 100_000, "{}", words.len());
        bound_jumps(1_000_000);
        assert!(
            err.contains("1000 jumps without a wait\n") && err.len() < 1_000_000,
            "{:.300}",
            err
        );
        assert!(refused(&SCRIPT, "goto y, jump").contains("`jump` is no instruction"));
        assert!(refused(&SCRIPT, "goto y").contains("there is no label `y`"));
        assert!(
            refused(&SCRIPT, "TYPE SIGNAL KILL, print x").contains("a signal that is not known")
        );
        assert!(refused(&SCRIPT, "TYPE PROX, print x").contains("`PROX` is none of"));
        let mut rig =
            Rig::new(&World::new(), "s :: Script(TYPE SIGNAL INT 10, set x 1, return $x)");
        rig.poll();
        let returned = rig.handlers.read("s.run", "").unwrap();
        assert_eq!((rig.read("s.signals"), returned), ("2 10".into(), "1".into()));
    }

    #[test]
    fn quotes_stay_but_for_the_forms_that_take_them() {
        let text = "Script(set x \"a b\", print $x, print \"$x\", print '$x', setq y \"a b\", print $y, set z \"$y\",
                print $z, print $(p.run \"c d\" 'e' f), print p.run \"c\", printq p.run \"c\", printnq p.run \"c\",
                print '|', print $u $7, print $(nothing 1), print nothing, print .5, set q, stop);
            p :: Script(TYPE PASSIVE, return $#:$1:$2:$args:$0:$write)";
        assert!(refused(&SCRIPT, "set q").contains("`q` wants a value"));
        let (out, err, _) = written(&text.replace(" set q,", ""), 2);
        let lines: Vec<_> = out.lines().collect();
        let want = [
            "\"a b\"",
            "\"a b\"",
            "$x",
            "a b",
            "\"a b\"",
            "3:\"c d\":'e':\"c d\" 'e' f:run:false",
            "1:\"c\"::\"c\":run:false",
            "1:c::c:run:false",
            "1:c::c:run:false|",
            "$u ",
            "$(nothing 1)",
            ".5",
        ];
        assert_eq!(lines, want);
        let none = "  no 'nothing' read handler\n";
        assert_eq!(err, format!("While executing 'Script@1 :: Script':\n{none}{none}"));
        let text = "Script(init x \"1 2\", initq y \"1 2\", export z 5, print $x $y $z $(get x), print $(shift x), print $x,
                write s.set v 'w', print $(s.get v) $(s.z), print s.z, print $(length \"a b\"), stop);
            s :: Script(TYPE PASSIVE, export z \"e\", error \"no\")";
        let (out, err, _) = written(text, 2);
        assert_eq!(out, "\"1 2\" 1 2 5 \"1 2\"\n\"1 2\"\n\n'w' \"e\"\n\"e\"\n5\n");
        assert_eq!(err, "");
    }

    #[test]
    fn scripts_report_below_what_they_call() {
        let text = "p :: Script(TYPE PASSIVE, print $(q.x), write q.y 1, error no 'way'); q :: Script(TYPE PASSIVE, error inner);
            Script(write p.run, print $?, write q.run 1 2, goto a 7, print $(p.run), stop, label a)";
        let (out, err, _) = written(text, 2);
        assert_eq!(out, "$(q.x)\n-22\n$(q.x)\n\n");
        let want = "While executing 'Script@3 :: Script':
  While calling 'p.run':
    no 'q.x' read handler
    no 'q.y' write handler
    no 'way'
  While calling 'q.run 1 2':
    inner
  bad condition '7'
  no 'q.x' read handler
  no 'q.y' write handler
  no 'way'
";
        assert_eq!(err, want);
        let mut rig = Rig::new(&World::new(), "p :: Script(TYPE PASSIVE, error no)");
        rig.poll();
        assert_eq!(rig.handlers.read("p.run", "").unwrap_err().to_string(), "no");
    }

    #[test]
    fn a_proxy_has_handlers_of_all_names() {
        let text = "s :: Script(TYPE PROXY, goto nota $(ne $0 a), returnq \"it is '$0' $args $write\", label nota, set b $1,
            goto end $(eq $0 b), error bad handler); Script(print s.a 1, write s.b 7 8, print $? $(s.get b), print s.c, stop)";
        let (out, err, _) = written(text, 2);
        assert_eq!(out, "it is 'a' 1 false\n0 7\n");
        let want =
            "While executing 'Script@2 :: Script':\n  While calling 's.c':\n    bad handler\n";
        assert_eq!(err, want);
    }

    #[test]
    fn steps_pass_pauses_and_waits() {
        let text = "s :: Script(TYPE PASSIVE, print 'a', pause 2, print 'b', wait 1h, print 'c', pause, print 'd');
            Script(write s.run, write s.step, print '1', write s.step 2, print '2', write s.step 5, stop)";
        assert_eq!(written(text, 2).0, "a\n1\nb\nc\n2\nd\n");
        let text = "s :: Script(TYPE PASSIVE, print 'a', pause, print 'b', pause, print 'c'); Script(write s.step, stop)";
        assert_eq!(written(text, 2).0, "a\nb\n");
    }

    #[test]
    fn files_are_written_and_read() {
        let name = std::env::temp_dir().join(format!("script-{}", std::process::id()));
        let file = name.display();
        let text = format!(
            "q :: Queue(7); Idle -> q -> Idle; Script(print >{file} 'x', print >>{file} q.capacity, save q.capacity -,
                append q.capacity {file}, print $(cat {file}), print \"$(cat {file})\", print $(catq {file}),
                print >/dev/null 'nothing', print $(cat /nowhere), stop)"
        );
        let (out, err, _) = written(&text, 2);
        std::fs::remove_file(&name).unwrap();
        let thrice = "x\n7\n7\n";
        assert_eq!(out, format!("7\n{thrice}{thrice}\"x\\n7\\n7\\n\"\n\n"));
        assert!(err.contains("\n  /nowhere: "), "{err}");
    }

    #[test]
    fn a_signal_is_sent_to_one_process() {
        use std::os::unix::process::ExitStatusExt;

        let ids = ["0", "-1", "4294967295", "2147483648", "1", "2147483647"];
        let groups = [None; 4].into_iter();
        let want: Vec<_> = groups.chain([Some(1), Some(i32::MAX)]).collect();
        assert_eq!(ids.map(program::process_id).to_vec(), want);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let text = format!("Script(print $(kill TERM {}), print $(kill TERM x), stop)", child.id());
        let (_, err, _) = written(&text, 2);
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        assert_eq!(err, "While executing 'Script@1 :: Script':\n  bad PID\n");
    }

    #[test]
    fn a_manager_decides_what_the_end_is() {
        let text = "InfiniteSource(LIMIT 1, STOP true) -> d :: Discard; s :: InfiniteSource(LIMIT 2, ACTIVE false, STOP true) -> d;
            DriverManager(print 'start', pause, print $(d.count), write s.active true, wait_stop, print $(d.count))";
        let (out, _, stopped) = written(text, 50);
        assert_eq!((out.as_str(), stopped), ("start\n1\n3\n", true));
        let (_, _, stopped) =
            written("InfiniteSource(LIMIT 1, STOP true) -> Discard; DriverManager()", 5);
        assert!(stopped, "it waits once");
        let (out, _, stopped) = written("DriverManager(print 'x', stop)", 2);
        assert_eq!((out.as_str(), stopped), ("x\n", true));
        let (out, _, stopped) = written("DriverManager(wait 1s, print 'x')", 5);
        assert_eq!((out.as_str(), stopped), ("", false));
    }

    #[test]
    fn what_a_write_does_to_packets_is_done_before_the_next_instruction() {
        // The later fragment waits for the first one, which does not come.
        let rows = "!data src dst proto ip_id ip_fragoff\n1.0.0.1 2.0.0.2 U 7 8";
        let text = format!(
            "FromIPSummaryDump(DATA \"{rows}\", STOP true) -> a :: AggregateIPFlows -> Discard; a [1] -> c :: Counter -> Discard;
            DriverManager(pause, print $(c.count), write a.clear, print $(c.count), pause, print 'x')"
        );
        let (out, _, stopped) = written(&text, 9);
        assert_eq!((out.as_str(), stopped), ("0\n1\n", false), "it waits for one more end");
    }

    #[test]
    fn packets_go_where_it_returns() {
        let text = "FromDevice(a) -> s :: Script(TYPE PACKET, init i 0, set j $i, set i $(if $(eq $i 0) 1 0), return $j)
            -> ToDevice(x); s [1] -> ToDevice(y);
            FromDevice(b) -> Script(goto exit $(eq $input 0)) -> ToDevice(x); FromDevice(c) -> Script(end) -> ToDevice(z)";
        let mut rig = Rig::new(&World::new(), text);
        let sent = rig.receive("a", &[&[1], &[2], &[3]]);
        let to: Vec<_> = sent.iter().map(|(device, frame)| (device.as_str(), frame[0])).collect();
        assert_eq!(to, [("x", 1), ("x", 3), ("y", 2)]);
        assert!(rig.receive("b", &[&[1]]).is_empty());
        assert_eq!(rig.receive("c", &[&[1]]).len(), 1);
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(a) -> Script(return) -> ToDevice(x); FromDevice(b) -> Script(pause) -> ToDevice(x)",
        );
        assert!(rig.receive("a", &[&[1]]).is_empty() && rig.receive("b", &[&[1]]).is_empty());
    }

    #[test]
    fn names_are_those_of_its_compound() {
        let text = "elementclass C { $x | c :: Counter; input -> c -> output; Script(print c.name, print $x, print d.name) };
            d :: Idle; FromDevice(a) -> e :: C(7) -> ToDevice(b)";
        let (out, _, _) = written(text, 1);
        assert_eq!(out, "e/c\n7\nd\n");
    }
}
