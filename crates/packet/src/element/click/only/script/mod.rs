//! `Script(INSTRUCTION, ...)` carries out a small program, which reads and writes handlers; `DriverManager` is a
//! script that decides when the router ends.
//!
//! Source: Click's elements of these names. Instructions: `print`, `printn` `[>FILE|>>FILE] HANDLER|TEXT`, `read`,
//! `readq` HANDLER, `write`, `writeq` HANDLER VALUE, `set`, `init` NAME VALUE, `save`, `append` HANDLER FILE, `label`
//! NAME, `goto` LABEL [CONDITION], `loop`, `return` [VALUE], `exit`, `end`, `error` TEXT, `stop`, `pause` or
//! `wait_stop` [COUNT], and `wait` or `wait_time` TIME. `$name`, `$1` and `$(HANDLER PARAMETER)` are put in; what the
//! functions of `$( )` are is in the handlers of the element: `add`, `eq`, `if`, `sprintf` and others.
//!
//! `TYPE` selects what starts it: `ACTIVE` scripts start by themselves, `PASSIVE` ones when `run` is called, `PACKET`
//! scripts (those with inputs) for each packet, which goes to the output that they `return`, 0 without one, and is
//! dropped by `exit`. A `DRIVER` script, `DriverManager`, receives each request that the router end: `pause` waits for
//! one. When it is at its end, so is the router. Of several workers the first runs it. `SIGNAL NAME` scripts start when
//! the process receives one of these signals. Differs: `PROXY` is refused.

mod functions;
mod program;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::element::support::caller::Caller;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Ending, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError, Role, Value};

#[cfg(any(test, feature = "testing"))]
pub(crate) use program::bound_jumps;
use program::{Came, Kind, Program, Script};
pub(crate) use text::first_word;

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
                other if other.starts_with("SIGNAL") => {
                    signals = arg.words().skip(1).map(|word| signal(word.raw())).collect();
                    if signals.is_empty() || signals.contains(&None) {
                        return Err(setup.args.refuse(&arg, "TYPE: a signal that is not known"));
                    }
                    Kind::Signal
                }
                other => {
                    let known = "ACTIVE, PASSIVE, DRIVER, PACKET, SIGNAL";
                    let words = format!("TYPE: `{other}` is none of {known}");
                    return Err(setup.args.refuse(&arg, &words));
                }
            },
        };
        let made = configure(setup, kind)?;
        let numbers: Vec<String> = signals.into_iter().flatten().map(|n| n.to_string()).collect();
        Ok(match kind {
            Kind::Signal => made.handler(Handler::read("signals", move || numbers.join(" "))),
            _ => made,
        })
    },
};

/// Number of a signal.
fn signal(name: &str) -> Option<u32> {
    const SIGNALS: &[(&str, u32)] =
        &[("HUP", 1), ("INT", 2), ("QUIT", 3), ("USR1", 10), ("USR2", 12), ("TERM", 15)];
    let plain = name.strip_prefix("SIG").unwrap_or(name);
    let named = SIGNALS.iter().find(|(known, _)| *known == plain).map(|(_, number)| *number);
    // Those that cannot be caught, or mean that the program failed, are none.
    named.or_else(|| u32::read(name).ok().filter(|number| SIGNALS.iter().any(|s| s.1 == *number)))
}

pub(crate) const DRIVER_MANAGER: ElementClass = ElementClass {
    spec: ClassSpec::new("DriverManager", "0/0", "a/a", "x/y").role(Role::Script),
    summary: "decides by a program when the router ends",
    configure: |setup| configure(setup, Kind::Driver),
};

fn configure(setup: &mut Setup<'_>, kind: Kind) -> Result<Made, ConfigError> {
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
    let script = Script::new(setup.name().to_owned(), kind, program, Caller::of(setup), ending);
    let script = Arc::new(script);
    let made_one = AtomicBool::new(false);
    let (outputs, ending) = (setup.outputs, setup.ending.clone());
    let mut made = Made::new({
        let script = script.clone();
        move |instance| Runner {
            // Relaxed: instances are made by one thread, that of the first worker first.
            works: !instance.is_dry_run() && !made_one.swap(true, Relaxed),
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
        .handler(Handler::read_with("run", move |arguments| {
            run.start(arguments, 0);
            run.run();
            Ok(run.result())
        }))
        .handler(Handler::write("run", move |arguments| {
            write.start(arguments, 0);
            write.run();
            Ok(())
        }))
        .handler(Handler::write("step", move |count| {
            let count = match count.trim() {
                "" => 1,
                text => u64::read(text).map_err(|words| format!("`{text}` is {words}"))?,
            };
            step.step(count);
            step.run();
            Ok(())
        }))
        .handler(Handler::write("goto", move |label| {
            jump.jump(label)?;
            jump.run();
            Ok(())
        }));
    // A handler gives the same as long as nothing changes.
    for &name in functions::NAMES.iter().filter(|name| !matches!(**name, "random" | "now")) {
        let script = script.clone();
        made = made.handler(Handler::read_with(name, move |text| {
            let result = functions::call(name, &text::words(text), script.now_ns());
            result.unwrap_or_else(|| Ok(String::new()))
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
            self.script.start("", input);
            let result = match self.script.run() {
                Came::Exited => None,
                Came::Ended | Came::Waits => match self.script.result().trim() {
                    "" => Some(0),
                    text => u16::read(text).ok(),
                },
            };
            match result.filter(|&output| u32::from(output) < self.outputs) {
                Some(output) => batch.output(i, output),
                None => batch.discard(i, DropReason::Discarded),
            }
        }
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        if !self.works || !self.script.is_running() {
            return;
        }
        self.script.set_now(cx.now_ns);
        // An end that is requested before it began is one that it waits for.
        self.script.run();
        // The script's own request is none to itself.
        let manages = self.script.kind == Kind::Driver && self.script.is_running();
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
        assert_eq!(err, "Script@3: No element named 'a'\n");
        let text = "q :: Queue(7); Idle -> q -> Idle; Script(read q.capacity, write q.capacity 9, print \"$? $(q.capacity)\",
            write q.capacity x, print $?, readq q.capacity, error \"it $(if $(eq 1 1) ends)\", print 'never')";
        let (out, err, stopped) = written(text, 3);
        assert_eq!((out.as_str(), stopped), ("true 9\nfalse\n", false));
        assert!(
            err.starts_with("q.capacity:\n7\n") && err.ends_with("9\nScript@4: it ends\n"),
            "{err}"
        );
    }

    #[test]
    fn loops_and_waits() {
        let text = "Script(init i 0, set i $(add $i 1), print $i, wait 25ms, goto begin $(lt $i 3), label x, print 'end', stop)";
        let (out, _, stopped) = written(text, 100);
        assert_eq!((out.as_str(), stopped), ("1\n2\n3\nend\n", true));
        let (out, _, _) = written("Script(print 'a', wait 25ms, print 'b')", 3);
        assert_eq!(out, "a\n");
        let (_, err, _) = written("s :: Script(write s.run)", 1);
        assert_eq!(err, "s: it runs within itself, 64 times\n");
        let (_, err, _) = written(
            "Script(init x 1234567, init i 0, label a, set i $(add $i 1), set x $x$x, goto a $(lt $i 20))",
            1,
        );
        assert!(err.starts_with("Script@1: `x` has at most 1048576 bytes\n"), "{:.200}", err);
        let (out, err, _) = written("Script(label x, set i 1, goto x)", 1);
        assert_eq!((out.as_str(), err.as_str()), ("", "Script@1: 1000000 jumps without a wait\n"));
        let text =
            "Script(label x, write p.run, goto x); p :: Script(TYPE PASSIVE, label y, goto y)";
        let (_, err, _) = written(text, 1);
        let words = "1000000 jumps without a wait";
        assert_eq!(err, format!("p: {words}\nScript@1: {words}\n"), "together");
        let twice = |n| {
            format!("p{n} :: Script(TYPE PASSIVE, write p{}.run, write p{}.run);", n + 1, n + 1)
        };
        let text = (0..40).map(twice).collect::<String>() + "p40 :: Idle; Script(write p0.run)";
        bound_jumps(1000);
        let (_, err, _) = written(&text, 1);
        bound_jumps(1_000_000);
        assert!(err.contains("1000 jumps without a wait\n") && err.len() < 100_000, "{:.300}", err);
        assert!(refused(&SCRIPT, "goto y, jump").contains("`jump` is no instruction"));
        assert!(refused(&SCRIPT, "goto y").contains("there is no label `y`"));
        assert!(
            refused(&SCRIPT, "TYPE SIGNAL KILL, print x").contains("a signal that is not known")
        );
        assert!(refused(&SCRIPT, "TYPE PROXY, print x").contains("`PROXY` is none of"));
        let mut rig =
            Rig::new(&World::new(), "s :: Script(TYPE SIGNAL INT 10, set x 1, return $x)");
        rig.poll();
        let returned = rig.handlers.read("s.run", "").unwrap();
        assert_eq!((rig.read("s.signals"), returned), ("2 10".into(), "1".into()));
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
    }

    #[test]
    fn names_are_those_of_its_compound() {
        let text = "elementclass C { $x | c :: Counter; input -> c -> output; Script(print c.name, print $x, print d.name) };
            d :: Idle; FromDevice(a) -> e :: C(7) -> ToDevice(b)";
        let (out, _, _) = written(text, 1);
        assert_eq!(out, "e/c\n7\nd\n");
    }
}
