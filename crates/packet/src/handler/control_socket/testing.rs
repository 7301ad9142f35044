//! What must hold of any bytes that a client sends, for tests and the fuzzer.

use std::sync::Arc;

use super::{Session, SessionOptions};
use crate::handler::{Handler, Handlers};
use crate::language::Language;
use crate::language::testing::CLASSES;

/// Handlers of every kind: `q.echo`, `q.fail`, `q.take`, `q.warn`, and what all have.
///
/// # Panics
/// Never: the configuration is right.
pub fn handlers() -> Handlers {
    let read = Language::new(CLASSES).read("a.click", "q :: Idle -> d :: Discard;");
    let configuration = Arc::new(read.expect("it is right"));
    let fail = |text: &str| match text {
        "" => Err(String::new()),
        text => Err(format!("first of {text}\nsecond\n")),
    };
    let given = vec![
        Handler::read_with("echo", |text| Ok(text.to_owned())),
        Handler::read_with("fail", move |text| fail(text).map(|()| String::new())),
        Handler::write("fail", fail),
        Handler::write("take", |_| Ok(())),
        Handler::write_warned("warn", |text| Ok(text.lines().map(str::to_owned).collect())),
        Handler::read("five", || "1\n2\n3".to_owned()),
    ];
    Handlers::new(configuration, vec![given, Vec::new()], CLASSES)
}

/// Everything that is answered to bytes that come in these pieces.
pub fn replies<'a>(
    options: SessionOptions,
    handlers: Option<&Handlers>,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Vec<u8>> {
    let mut session = Session::new(options);
    let mut replies = Vec::new();
    for piece in pieces {
        session.take(piece);
        replies.extend(std::iter::from_fn(|| session.reply(handlers)));
    }
    session.end();
    replies.extend(std::iter::from_fn(|| session.reply(handlers)));
    replies
}

/// What must hold of any bytes: they are read to their end without a panic, replies are of the form that
/// the protocol has, within their limits, and the same however the bytes are cut.
///
/// # Panics
/// Where it does not hold.
pub fn check(bytes: &[u8]) {
    let options = SessionOptions {
        read_only: bytes.first().is_some_and(|byte| byte & 1 == 0),
        longest_line: 100,
        longest_data: 200,
        longest_reply: 150,
    };
    let handlers = handlers();
    let whole = replies(options, Some(&handlers), [bytes]);
    for size in [1, 2, 7] {
        assert_eq!(replies(options, Some(&handlers), bytes.chunks(size)), whole, "cut at {size}");
    }
    for reply in &whole[1..] {
        check_form(reply, options);
    }
}

fn check_form(reply: &[u8], options: SessionOptions) {
    let mut rest = reply;
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").expect("a line ends");
        let (line, after) = (&rest[..end], &rest[end + 2..]);
        assert!(line[..3].iter().all(u8::is_ascii_digit) && line[..3] == reply[..3]);
        rest = after;
        if line[3] == b' ' {
            break;
        }
        assert_eq!(line[3], b'-');
    }
    if rest.is_empty() {
        return;
    }
    let end = rest.iter().position(|&byte| byte == b'\r').expect("data has a length");
    let length = std::str::from_utf8(&rest[..end]).expect("digits").strip_prefix("DATA ");
    let length: usize = length.expect("data is announced").parse().expect("a number");
    assert_eq!(rest.len(), end + 2 + length);
    assert!(length <= options.longest_reply);
}
