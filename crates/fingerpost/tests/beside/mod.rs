//! Long requests beside short ones: a request about a long configuration keeps nobody waiting.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Lab;

/// Fixed routes of the configuration: a megabyte of text.
const ROUTES: u32 = 30_000;

#[test]
fn a_long_configuration_is_compared_beside_other_questions() {
    let Some(lab) = Lab::new("beside", &[]) else { return };
    let mut text = String::from("[[source]]\nkind = \"fixed\"\nroutes = [\n");
    for n in 0..ROUTES {
        let [_, a, b, c] = n.to_be_bytes();
        writeln!(text, "\"20.{a}.{b}.{c}/32 via 10.0.1.2\",").unwrap();
    }
    text += "]\n";
    let body = json!({"file": "long.toml", "text": text}).to_string();
    let head = format!("content-type: application/json\r\ncontent-length: {}", body.len());
    let long = format!("POST /v1/config/diff HTTP/1.0\r\n{head}\r\n\r\n{body}");
    let (took, slowest, asked) = thread::scope(|scope| {
        let compared = scope.spawn(|| {
            let began = Instant::now();
            let (head, body) = lab.raw(long.as_bytes());
            let took = began.elapsed();
            assert!(head.contains(" 200 "), "{head}");
            let changes: Vec<Value> = serde_json::from_str(&body).unwrap();
            assert!(changes.len() > 1, "{}", changes.len());
            took
        });
        let (mut slowest, mut asked) = (Duration::ZERO, 0);
        while !compared.is_finished() {
            let began = Instant::now();
            let (head, _) = lab.raw(b"GET /v1/status HTTP/1.0\r\n\r\n");
            assert!(head.contains(" 200 "), "{head}");
            slowest = slowest.max(began.elapsed());
            asked += 1;
            thread::sleep(Duration::from_millis(5));
        }
        (compared.join().unwrap(), slowest, asked)
    });
    println!("{took:?} to compare; of {asked} questions beside it the slowest took {slowest:?}");
    assert!(slowest * 2 < took, "{slowest:?} of {took:?}");
}
