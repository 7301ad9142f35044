//! Route tables in configurations: full tables as arguments, what is wrong with them, and a session at a control socket.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::time::{Duration, Instant};

use fingerpost_packet::handler::control_socket::{Session, SessionOptions};
use fingerpost_packet::language::Language;
use fingerpost_packet::{ELEMENTS, Handlers, Plan};

fn planned(text: &str) -> (Plan, Handlers) {
    let configuration = Language::new(ELEMENTS).read("a.click", text).unwrap();
    let plan = Plan::of(&configuration, ELEMENTS).unwrap();
    let handlers = plan.handlers(configuration);
    (plan, handlers)
}

/// A configuration of the form that the authors of DXR published, with so many routes and outputs.
fn dxr(routes: u32, outputs: u32) -> String {
    let mut text = String::from("ControlSocket(TCP, 1234);\nrt :: DXRIPLookup(\n");
    for n in 0..routes {
        // Spread over the space as announced ones are: /24 most of all, some shorter.
        let addr = n.wrapping_mul(2_654_435_761) & 0xffff_ff00;
        let len = if n % 8 == 0 { 20 } else { 24 };
        let addr = std::net::Ipv4Addr::from(addr);
        writeln!(text, "{addr}/{len} {},", n % outputs).unwrap();
    }
    text += ");\nIdle -> rt;\n";
    for output in 0..outputs {
        writeln!(text, "rt[{output}] -> Discard;").unwrap();
    }
    text
}

fn session(handlers: &Handlers, text: &str) -> String {
    let mut session = Session::new(SessionOptions::default());
    session.take(text.as_bytes());
    let replies: Vec<u8> = std::iter::from_fn(|| session.reply(Some(handlers))).flatten().collect();
    String::from_utf8(replies).unwrap()
}

/// 0.9 M routes and 200 outputs. In a release build that is to take less than 2 s; here there are other tests beside,
/// so it is the order that is held, and the time is printed.
#[test]
fn a_full_table_loads_from_arguments() {
    let text = dxr(900_000, 200);
    let begin = Instant::now();
    let (_, handlers) = planned(&text);
    let took = begin.elapsed();
    println!("900,000 routes: {took:.2?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    let stat = handlers.read("rt.stat", "").unwrap();
    assert!(stat.starts_with("DXRIPLookup (D20R): "), "{stat}");
    let prefixes: usize = stat.split(' ').nth(2).unwrap().parse().unwrap();
    assert!(prefixes > 700_000 && stat.contains(", 200 unique nexthops\n"), "{stat}");
    assert_eq!(handlers.read("rt.table", "").unwrap().lines().count(), prefixes);
}

#[test]
fn the_recorded_session_works_in_form() {
    let (plan, handlers) = planned(&dxr(1000, 3));
    assert_eq!(plan.control_sockets().count(), 1);
    let said = session(
        &handlers,
        "read rt.stat\r\nwrite rt.bench_sel 1\r\nread rt.bench\r\nread rt.lookup 0.0.0.1\r\n\
         write rt.add 0.0.0.0/20 1\r\nwrite rt.remove 0.0.0.0/20 0\r\nread rt.lookup 0.0.0.1\r\n\
         WRITEUNTIL rt.ctrl .\r\nadd 0.0.0.0/20 9.9.9.9 2\r\nadd 240.0.0.0/4 1\r\n.\r\n\
         read rt.lookup 0.0.0.1\r\nquit\r\n",
    );
    let mut lines = said.lines();
    let mut next = || lines.next().unwrap();
    assert_eq!(next(), "Click::ControlSocket/1.3");
    assert_eq!(next(), "200 Read handler 'rt.stat' OK");
    assert!(next().starts_with("DATA "));
    for begin in [
        "DXRIPLookup (D20R): 1000 prefixes, 3 unique nexthops",
        "Lookup tables: 4194304 bytes direct, ",
        "Direct table resolves ",
        "Longest range chunk contains ",
        "Physical chunks: ",
        "Physical fragments: ",
        "Aggregated chunks: ",
        "Aggregated fragments: ",
        "Last update duration: ",
        "200 Write handler 'rt.bench_sel' OK",
        "200 Read handler 'rt.bench' OK",
        "DATA ",
        "DXRIPLookup (D20R), RND test, uniformly random keys:",
    ] {
        let line = next();
        assert!(line.starts_with(begin), "{line}");
    }
    let line = next();
    assert!(line.contains(" lookups in ") && line.ends_with(" M lookups/s)"), "{line}");
    let rest: Vec<&str> = lines.collect();
    // What has no newline of its own is followed at once by the next reply.
    assert_eq!(
        rest,
        [
            "200 Read handler 'rt.lookup' OK",
            "DATA 1",
            "0520-Write handler 'rt.add' error:",
            "520 conflict with existing route `0.0.0.0/20 - 0`",
            "200 Write handler 'rt.remove' OK",
            "200 Read handler 'rt.lookup' OK",
            "DATA 2",
            "-1200 Write handler 'rt.ctrl' OK",
            "200 Read handler 'rt.lookup' OK",
            "DATA 9",
            "2 9.9.9.9200 Goodbye!",
        ]
    );
}

#[test]
fn what_is_wrong_with_routes_is_reported() {
    let errors = |table: &str| {
        let text = format!("Idle -> rt :: {table} -> Discard");
        Plan::read("a.click", &text, ELEMENTS).unwrap_err().to_string()
    };
    let reported = errors("RadixIPLookup(10/8 0, 10/40 0, 10/8 x 0, 11/8, 12/8 1)");
    for words in [
        "`10/40` is no IPv4 prefix",
        "`x` is no IPv4 gateway",
        "a route is ADDR/MASK [GATEWAY] OUTPUT",
        "output 1 is not connected: there are 1",
    ] {
        assert!(reported.contains(words), "{reported}");
    }
    let reported = errors("IPLookup(10/8 0, ALGORITHM dxr9)");
    assert!(
        reported.contains("ALGORITHM: `dxr9`: no such IPv4 algorithm; did you mean"),
        "{reported}"
    );
    let reported = errors("DXRIPLookup(10/8 0, ALGORITHM radix)");
    assert!(reported.contains("unknown keyword `ALGORITHM`"), "{reported}");
    let reported = errors("BSDIP6Lookup(10/8 0)");
    assert!(reported.contains("`10/8` is no IPv6 prefix"), "{reported}");
    // The algorithms that are built in on demand say how.
    if fingerpost_lpm::find_v4("poptrie").is_err() {
        let reported = errors("PoptrieIPLookup(10/8 0)");
        assert!(reported.contains("feature \"poptrie\", built without it"), "{reported}");
    }
}

#[test]
fn prefixes_given_twice_are_warned_of_once() {
    let mut text = String::from("Idle -> rt :: StaticIPLookup(10/8 0, 11/8 0, 10/8 0");
    (0..9).for_each(|n| write!(text, ", 1.{n}.0.0/16 0, 1.{n}.0.0/16 0").unwrap());
    let (plan, handlers) = planned(&(text + ") -> Discard"));
    let warned: Vec<&str> = plan.warnings().iter().map(|report| &*report.message).collect();
    assert_eq!(
        warned,
        [
            "`rt` (StaticIPLookup): 10.0.0.0/8, 1.0.0.0/16, 1.1.0.0/16, 1.2.0.0/16, 1.3.0.0/16 and 5 \
          more: given more than once, the last one counts"
        ]
    );
    assert_eq!(handlers.read("rt.lookup", "10.0.0.1").unwrap(), "0");
    let fixed = handlers.write("rt.add", "12/8 0").unwrap_err().to_string();
    assert_eq!(fixed, "No handler named 'rt.add'");
}
