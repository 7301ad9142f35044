//! Every reply of the protocol, word for word.

use proptest::prelude::*;

use super::testing::{check, handlers, replies};
use super::{Access, Client, Memory, Session, SessionOptions, Token};
use crate::handler::Handlers;

fn said(options: SessionOptions, handlers: Option<&Handlers>, bytes: &[u8]) -> String {
    let whole = replies(options, handlers, [bytes]).concat();
    assert_eq!(replies(options, handlers, bytes.chunks(1)).concat(), whole);
    let whole = String::from_utf8(whole).unwrap();
    whole.strip_prefix("Click::ControlSocket/1.3\r\n").unwrap().to_owned()
}

/// What is answered to `bytes`, after the greeting, `|` for each end of a line.
fn answer(bytes: impl AsRef<[u8]>) -> String {
    said(SessionOptions::default(), Some(&handlers()), bytes.as_ref()).replace("\r\n", "|")
}

#[test]
fn reading() {
    assert_eq!(answer("read q.five\n"), "200 Read handler 'q.five' OK|DATA 5|1\n2\n3");
    assert_eq!(answer("GET  q.five  \r"), "200 Read handler 'q.five' OK|DATA 5|1\n2\n3");
    assert_eq!(answer("Read q.echo a  b \r\n"), "200 Read handler 'q.echo' OK|DATA 4|a  b");
    assert_eq!(answer("READ q.echo"), "200 Read handler 'q.echo' OK|DATA 0|", "a last line");
    assert_eq!(answer("read list\n"), "200 Read handler 'list' OK|DATA 6|2\nq\nd\n");
}

#[test]
fn reading_with_data_and_lines() {
    let echo = |text| format!("200 Read handler 'q.echo' OK|DATA {text}");
    assert_eq!(answer("READDATA q.echo 3\r\na\nb"), echo("3|a\nb"));
    assert_eq!(answer("READDATA q.echo 3\r\r\nb"), echo("3||b"), "a CR was the end already");
    assert_eq!(answer("READDATA q.echo 3\r\r\r\n"), echo("3|\r|"));
    assert_eq!(answer("READDATA q.echo 0\nread q.echo b\n"), echo("0|") + &echo("1|b"));
    assert_eq!(
        answer("READUNTIL q.echo\na b\r\n c\r\rread q.echo d"),
        echo("7|a b\n c\n") + &echo("1|d")
    );
    assert_eq!(answer("READUNTIL q.echo END\n\nEND.\n END\nEND \t\nquit"), {
        echo("11|\nEND.\n END\n") + "200 Goodbye!|"
    });
    assert_eq!(answer("READUNTIL q.echo END\nEND"), echo("0|"), "a last line");
}

#[test]
fn writing() {
    let fine = "200 Write handler 'q.take' OK|";
    for text in [
        "WRITE q.take\n",
        "set q.take 1 2\n",
        "WRITEDATA q.take 4\nab\r\n",
        "SETDATA q.take 0\n",
        "WRITEUNTIL q.take .\n1\n.\n",
    ] {
        assert_eq!(answer(text), fine, "{text}");
    }
    assert_eq!(
        answer("WRITEUNTIL q.warn\none\ntwo\n\n"),
        "220-Write handler 'q.warn' OK with warnings:|220-one|220 two|"
    );
    assert_eq!(answer("write q.warn\n"), "200 Write handler 'q.warn' OK|");
}

#[test]
fn handlers_that_fail() {
    assert_eq!(
        answer("write q.fail all\n"),
        "520-Write handler 'q.fail' error:|520-first of all|520 second|"
    );
    assert_eq!(answer("write q.fail\n"), "520 Write handler 'q.fail' error|");
    assert_eq!(
        answer("read q.fail all\n"),
        "590-Read handler 'q.fail' error:|590-first of all|590 second|"
    );
    assert_eq!(answer("read q.fail\n"), "590 Read handler 'q.fail' error|");
    assert_eq!(
        answer("read q.five x\n"),
        "590-Read handler 'q.five' error:|590 Read handler 'q.five' does not take parameters|"
    );
}

#[test]
fn checking() {
    assert_eq!(answer("checkread q.fail\n"), "200 Read handler 'q.fail' OK|");
    assert_eq!(answer("CHECKWRITE q.fail\n"), "200 Write handler 'q.fail' OK|");
    assert_eq!(answer("CHECKREAD q.take\n"), "511 Handler 'q.take' not readable|");
    assert_eq!(answer("CHECKWRITE q.five\n"), "511 Handler 'q.five' not writable|");
    assert_eq!(answer("CHECKREAD q.x\n"), "511 No handler named 'q.x'|");
}

#[test]
fn what_is_not_there() {
    for verb in ["read", "write", "checkread", "checkwrite"] {
        assert_eq!(answer(format!("{verb} x.five\n")), "510 No element named 'x'|");
        assert_eq!(answer(format!("{verb} q.six\n")), "511 No handler named 'q.six'|");
        assert_eq!(answer(format!("{verb} six\n")), "511 No handler named 'six'|");
        let none = said(SessionOptions::default(), None, format!("{verb} q.five\n").as_bytes());
        assert_eq!(none, "540 No router installed\r\n");
    }
    assert_eq!(answer("frob x\n"), "501 Command 'FROB' unimplemented|");
}

#[test]
fn binary_calls() {
    use crate::handler::Handler;
    let configuration = handlers().configuration().clone();
    let given = vec![
        Handler::read("count", || "300".to_owned()),
        Handler::write("switch", |at| if at == "7" { Ok(()) } else { Err("no".to_owned()) }),
    ];
    let handlers =
        Handlers::new(configuration, vec![given, Vec::new()], crate::language::testing::CLASSES);
    let answer = |bytes: &[u8], read_only| {
        let options = SessionOptions { read_only, ..SessionOptions::default() };
        let all = replies(options, Some(&handlers), [bytes]).concat();
        let all = all.strip_prefix(b"Click::ControlSocket/1.3\r\n").unwrap().to_vec();
        let lines = String::from_utf8_lossy(&all).replace("\r\n", "|");
        (lines, all)
    };
    let word = |number: u32| number.to_ne_bytes();
    let call = |name: &str, number: u32| {
        let bytes = [format!("llrpc {name} 4\r\n").as_bytes(), &word(number), b"quit\n"].concat();
        answer(&bytes, false)
    };
    let bye = "200 Goodbye!|";
    let (lines, bytes) = call("q#c004c003", 0);
    assert!(lines.starts_with("200 LLRPC 'q#c004c003' OK|DATA 4|"), "{lines}");
    assert!(bytes.ends_with(&[&word(300)[..], b"200 Goodbye!\r\n"].concat()));
    assert_eq!(call("q#80044006", 7).0, format!("200 LLRPC 'q#80044006' OK|DATA 0|{bye}"));
    for (name, words) in [
        ("q#80044006", "522 LLRPC 'q#80044006' error: Invalid argument|"),
        ("q#c0044009", "522 LLRPC 'q#c0044009' error: Invalid argument|"),
        ("q#c00c4009", "522 LLRPC 'q#c00c4009' requires 12 bytes input data|"),
        ("q#1", "501 Cannot call LLRPC 'q#1' remotely|"),
        ("q#x", "500 Syntax error in LLRPC name 'q#x'|"),
        ("x#c004c003", "510 No element named 'x'|"),
    ] {
        assert_eq!(call(name, 9).0, format!("{words}{bye}"), "{name}");
    }
    let denied = answer(b"llrpc q#80044006 4\nquit\nquit\n", true).0;
    assert_eq!(denied, format!("530 Permission denied for 'q#80044006'|{bye}"));
    for text in ["llrpc\n", "llrpc q#1 2 3\n"] {
        assert_eq!(answer(text.as_bytes(), false).0, "500 Wrong number of arguments|");
    }
}

#[cfg(feature = "click")]
#[test]
fn behind_a_proxy_names_are_its_handlers() {
    use crate::handler::Handler;
    let configuration = handlers().configuration().clone();
    let any = Handler::any(
        |name, text| Ok(format!("{name}({text})")),
        |name, _| if name == "a.b.c" { Ok(()) } else { Err(format!("no {name}")) },
    );
    let handlers = Handlers::new(
        configuration,
        vec![vec![any], Vec::new()],
        crate::language::testing::CLASSES,
    );
    let answer = |proxy: &str, text: &str| {
        let session = Session::of(SessionOptions::default(), Client::default());
        let mut session = session.through(Some(proxy.to_owned()));
        session.take(text.as_bytes());
        let all: Vec<u8> =
            std::iter::from_fn(|| session.reply(Some(&handlers))).skip(1).flatten().collect();
        String::from_utf8(all).unwrap().replace("\r\n", "|")
    };
    let read =
        |name: &str, text: &str| format!("200 Read handler '{name}' OK|DATA {}|{text}", text.len());
    assert_eq!(answer("q", "read x.y.z 1\n"), read("x.y.z", "x.y.z(1)"));
    assert_eq!(answer("q", "read list\nread 0.list\n"), {
        read("list", "list()") + &read("0.list", "list()")
    });
    assert_eq!(answer("q", "read name\n"), read("name", "q"), "its own are first");
    assert_eq!(answer("q", "write a.b.c 1\n"), "200 Write handler 'a.b.c' OK|");
    assert_eq!(answer("q", "write a.b 1\n"), "520-Write handler 'a.b' error:|520 no a.b|");
    assert_eq!(answer("d", "read x.y\n"), "511 No proxied handler named 'x.y'|");
    assert_eq!(
        answer("q", "llrpc x#c004c003 4\n0123"),
        "522 LLRPC 'x#c004c003' error: Invalid argument|"
    );
}

#[test]
fn what_is_not_allowed() {
    assert_eq!(answer("read q.take\n"), "530 Handler 'q.take' write-only|");
    assert_eq!(answer("write q.five 1\n"), "530 Handler 'q.five' read-only|");
    let options = SessionOptions { read_only: true, ..SessionOptions::default() };
    let denied = "530 Permission denied for write handler 'q.take'\r\n";
    for text in
        ["write q.take\n", "writedata q.take 1\n.", "writeuntil q.take\n\n", "checkwrite q.take"]
    {
        assert_eq!(said(options, Some(&handlers()), text.as_bytes()), denied);
    }
    let read =
        said(options, Some(&handlers()), b"checkread q.five\nwrite q.five\ncheckwrite q.five");
    assert_eq!(
        read,
        "200 Read handler 'q.five' OK\r\n530 Handler 'q.five' read-only\r\n\
         511 Handler 'q.five' not writable\r\n"
    );
}

/// What is answered to a client, after the greeting, and whether its session is over.
fn reported(client: &Client, bytes: &[u8]) -> (String, bool) {
    let mut session = Session::of(SessionOptions::default(), client.clone());
    session.take(bytes);
    let handlers = handlers();
    let all: Vec<u8> = std::iter::from_fn(|| session.reply(Some(&handlers))).flatten().collect();
    let all = String::from_utf8(all).unwrap();
    let reported = all.strip_prefix("Click::ControlSocket/1.3\r\n").unwrap();
    (reported.replace("\r\n", "|"), session.is_closed())
}

#[test]
fn a_token_gives_access() {
    let token = Some(Token::new("0123456789abcdef").unwrap());
    let reader = Client { access: Access::Read, token, ..Client::default() };
    let reported = |text: &str| reported(&reader, text.as_bytes());
    let (denied, open) = ("530 Permission denied for write handler 'q.take'|", false);
    assert_eq!(reported("write q.take\n"), (denied.into(), open));
    let written = "200 Write access|200 Write handler 'q.take' OK|";
    assert_eq!(reported("AUTH 0123456789abcdef\nwrite q.take\n"), (written.into(), open));
    assert_eq!(reported("auth  0123456789abcdef \r\nwrite q.take\n"), (written.into(), open));
    let closed = true;
    assert_eq!(reported("AUTH 0123456789abcdee\nhelp\n"), ("530 Wrong token|".into(), closed));
    let late = "500 AUTH TOKEN is the first line of a session|";
    let words = "read q.echo\nAUTH 0123456789abcdef\nwrite q.take\n";
    let (said, _) = reported(words);
    assert_eq!(said, format!("200 Read handler 'q.echo' OK|DATA 0|{late}{denied}"));
    assert_eq!(reported("AUTH\nwrite q.take\n"), (format!("{late}{denied}"), open));
    let none = Client { token: None, ..reader.clone() };
    let said = super::tests::reported(&none, b"AUTH 0123456789abcdef\nwrite q.take\n");
    assert_eq!(said, ("530 No token is set|".into(), closed));
    // A socket for reading alone stays one.
    let options = SessionOptions { read_only: true, ..SessionOptions::default() };
    let mut session = Session::of(options, reader);
    session.take(b"AUTH 0123456789abcdef\n");
    let handlers = handlers();
    let all: Vec<_> = std::iter::from_fn(|| session.reply(Some(&handlers))).collect();
    assert_eq!((&all[1][..], session.is_refused()), (&b"530 No token is set\r\n"[..], true));
}

#[test]
fn what_a_browser_sends_is_closed() {
    for text in [
        "POST /hotconfig HTTP/1.1\r\nHost: x\r\n\r\nwrite q.take\n",
        "GET / HTTP/1.1\r\nwrite q.take\n",
        "get /write%20q.take\nwrite q.take\n",
        "GET http://x/ HTTP/1.0\nwrite q.take\n",
        "PUT q HTTP/1.1\nwrite q.take\n",
        "HEAD *\nwrite q.take\n",
        "OPTIONS * HTTP/1.1\nwrite q.take\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nwrite q.take\n",
        "BREW pot HTCPCP/1.0 HTTP/1.1\nwrite q.take\n",
        "\x16\x03\x01\x02\0\x01\0\nwrite q.take\n",
        "\x16\nwrite q.take\n",
    ] {
        assert_eq!(reported(&Client::default(), text.as_bytes()), (String::new(), true), "{text}");
    }
    assert_eq!(answer("GET q.five\n"), "200 Read handler 'q.five' OK|DATA 5|1\n2\n3");
}

#[test]
fn nothing_is_kept_of_what_is_refused() {
    let memory = Memory::of(0);
    let reader = Client { access: Access::Read, memory, ..Client::default() };
    let denied = "530 Permission denied for write handler 'q.take'|";
    let text = format!("writedata q.take 100000\n{}help", "x".repeat(100_000));
    assert!(reported(&reader, text.as_bytes()).0.starts_with(denied));
    // Told before any of it came.
    assert_eq!(reported(&reader, b"writedata q.take 60000000\n").0, denied);
    assert_eq!(reported(&reader, b"writeuntil q.take .\nx\ny\n.\nwrite q.take\n").0, {
        denied.to_owned() + denied
    });
}

#[test]
fn what_a_handler_says_to_be_wrong_is_bounded() {
    let long = "x".repeat(1 << 20);
    let said = answer(format!("readdata q.fail {}\n{long}", long.len()));
    assert!(said.starts_with("590-Read handler 'q.fail' error:|590 first of xxx"), "{said:.80}");
    assert!(said.len() < 70_000, "{} bytes", said.len());
}

#[test]
fn sessions_share_their_memory() {
    let memory = Memory::of(20);
    let client = Client { memory: memory.clone(), ..Client::default() };
    let none = "521 Data too big for now: other sessions hold all memory there is for them|";
    let taken = "200 Write handler 'q.take' OK|";
    let writing = |digits: usize, text: &str| {
        reported(&client, format!("writedata q.take {digits}\n{text}").as_bytes()).0
    };
    assert_eq!(writing(20, "01234567890123456789"), taken);
    assert_eq!(writing(21, "012345678901234567890"), none);
    // Another one that has not sent all yet, and one whose reply is not sent.
    let handlers = handlers();
    let mut other = Session::of(SessionOptions::default(), client.clone());
    other.take(b"writedata q.take 16\n012345678901234");
    while other.reply(Some(&handlers)).is_some() {}
    assert_eq!((writing(5, "01234"), writing(6, "012345")), (taken.into(), none.into()));
    assert_eq!(reported(&client, b"writeuntil q.take .\n01234\n.\nread q.echo 12345\n").0, {
        format!("{none}200 Read handler 'q.echo' OK|DATA 5|12345")
    });
    let mut reading = Session::of(SessionOptions::default(), client.clone());
    reading.take(b"read q.five\nquit\n");
    assert!(reading.reply(None).is_some() && reading.reply(Some(&handlers)).is_some());
    assert_eq!(writing(1, "0"), none);
    assert!(reading.reply(Some(&handlers)).is_some(), "the reply before was sent");
    assert_eq!(writing(5, "01234"), taken);
    drop(other);
    assert_eq!(writing(20, "01234567890123456789"), taken);
}

#[test]
fn syntax_errors() {
    for text in [
        "read",
        "write ",
        "readdata q.echo",
        "writedata q.take 1 2",
        "readuntil",
        "checkread",
        "readuntil q.echo a b",
        "checkread q.five x",
        "checkwrite",
    ] {
        assert_eq!(answer(text), "500 Wrong number of arguments|", "{text}");
    }
    for text in
        ["readdata q.echo -1", "readdata q.echo +1", "readdata q.echo x", "setdata q.take 1e3"]
    {
        assert_eq!(answer(text), "500 Bad length|", "{text}");
    }
    assert_eq!(answer(b"read q.echo \xff\n"), "500 Command line is no UTF-8 text|");
    assert_eq!(answer(b"readdata q.echo 1\n\xff"), "500 Data is no UTF-8 text|");
    assert_eq!(answer(" \n\r\n\t\r\x0b\n"), "", "blank lines");
    for text in ["readdata q.echo 3\nab", "writeuntil q.take\nread q.echo\n", "readuntil q.echo"] {
        assert_eq!(answer(text), "500 Not enough data|", "{text}");
    }
}

#[test]
fn help_and_the_end() {
    let help = answer("help\n");
    let first = "200-Commands supported:|200-AUTH token ";
    assert!(help.starts_with(first) && help.contains("|200-READ handler [arg...] "), "{help}");
    assert!(help.ends_with("|200-QUIT                         close the connection|200 |"));
    for text in ["quit\nread q.five\n", "CLOSE\r", "Quit"] {
        assert_eq!(answer(text), "200 Goodbye!|");
    }
}

#[test]
fn what_is_too_much() {
    let options = SessionOptions {
        longest_line: 40,
        longest_data: 8,
        longest_reply: 4,
        ..SessionOptions::default()
    };
    let said = |text: &str| said(options, Some(&handlers()), text.as_bytes()).replace("\r\n", "|");
    let goodbye = "200 Goodbye!|";
    let long = "x".repeat(41);
    assert_eq!(
        said(&format!("{long}\nquit")),
        format!("500 Line too long: at most 40 bytes|{goodbye}")
    );
    assert_eq!(said(&long), "500 Line too long: at most 40 bytes|");
    assert_eq!(said(&format!("{}\nquit", &long[..40])), {
        format!("501 Command '{}' unimplemented|{goodbye}", "X".repeat(40))
    });
    let too_big = "521 Data too big: at most 8 bytes|";
    assert_eq!(said("setdata q.take 9\nquit\nquitquit"), format!("{too_big}{goodbye}"));
    assert_eq!(said("setdata q.take 9\nquit"), too_big, "the end comes early");
    assert_eq!(said("setdata q.take 8\nquitquit"), "200 Write handler 'q.take' OK|");
    let lines = "writeuntil q.take .\n1234\nquit\nquit\n.\nquit";
    assert_eq!(said(lines), format!("{too_big}{goodbye}"));
    let lines = format!("writeuntil q.take .\n{long}\n.\nquit");
    assert_eq!(said(&lines), format!("521 Line too long: at most 40 bytes|{goodbye}"));
    assert_eq!(said("read q.five\n"), "521 Data too big: 5 bytes, at most 4|");
    assert_eq!(said("setdata q.take 18446744073709551615\n1"), too_big);
    assert_eq!(said("setdata x 99999999999\n1"), too_big);
    assert_eq!(answer("setdata q.take 18446744073709551616\n"), "500 Bad length|");
}

/// The form of the session that the authors of DXR recorded, but for their numbers.
#[test]
fn the_recorded_session() {
    use crate::handler::Handler;
    let configuration = handlers().configuration().clone();
    let stat = "DXRIPLookup (D20R): 5 prefixes, 2 unique nexthops\n";
    let given = vec![
        Handler::read("stat", move || stat.to_owned()),
        Handler::write("bench_sel", |number| match number.trim() {
            "0" | "1" | "2" => Ok(()),
            other => Err(format!("no test `{other}`")),
        }),
    ];
    let handlers =
        Handlers::new(configuration, vec![given, Vec::new()], crate::language::testing::CLASSES);
    let said = said(
        SessionOptions::default(),
        Some(&handlers),
        b"read q.stat\r\nwrite q.bench_sel 1\r\nwrite q.bench_sel 3\r\n",
    );
    assert_eq!(
        said,
        format!(
            "200 Read handler 'q.stat' OK\r\nDATA {}\r\n{stat}200 Write handler 'q.bench_sel' OK\r\n\
             520-Write handler 'q.bench_sel' error:\r\n520 no test `3`\r\n",
            stat.len()
        )
    );
}

/// Words that mean something, and ends of lines, so that soups reach far.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "READ ",
        "readdata ",
        "readuntil ",
        "write ",
        "SETDATA ",
        "writeuntil ",
        "checkread ",
        "checkwrite ",
        "llrpc ",
        "q#c004c003 ",
        "help",
        "quit",
        "auth ",
        "POST / ",
        "q.echo ",
        "q.fail ",
        "q.take ",
        "q.warn ",
        "q.five ",
        "list ",
        "x.y ",
        "0 ",
        "1",
        "7",
        "END",
        " ",
        "\r",
        "\n",
        "\r\n",
        "\n\n",
        "\u{fc}",
    ];
    let word = prop_oneof![
        20 => prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..5),
        1 => Just(vec![b'x'; 90]),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn replies_do_not_depend_on_pieces(bytes in soup()) {
        check(&bytes);
    }

    #[test]
    fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }

    #[test]
    fn any_cut_is_as_good(bytes in soup(), cuts in prop::collection::vec(0..400_usize, 0..6)) {
        let options = SessionOptions { longest_line: 60, ..SessionOptions::default() };
        let handlers = handlers();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        let cut = replies(options, Some(&handlers), pieces);
        prop_assert_eq!(cut, replies(options, Some(&handlers), [&bytes[..]]));
    }
}
