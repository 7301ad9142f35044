//! Tests of the log as a subscriber: what is written for events.

use std::time::Duration;

use tracing::{debug, info, warn};

use super::*;

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn lines(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Runs `work`, and returns the lines that it logs, in the form of the journal.
pub(crate) fn captured<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let (log, memory) = log("debug", Format::Text, Medium::Journal);
    let done = tracing::subscriber::with_default(Handle(log), work);
    (done, memory.lines())
}

fn log(levels: &str, format: Format, medium: Medium) -> (Arc<Log>, Memory) {
    let to = Memory::default();
    let log = Log::new(levels.parse().unwrap(), format, medium, Box::new(to.clone()));
    (Arc::new(log), to)
}

#[test]
fn an_event_is_a_line_in_each_format() {
    let event = || {
        warn!(target: "fib", family = 4, algorithm = "dxr18", build_ms = 1.25_f64, from = None::<&str>,
              "dxr18 is \"built\"\nagain");
        debug!(target: "fib", "not wanted");
        info!(target: "elsewhere", "no target of ours");
    };
    let mut lines = Vec::new();
    for (format, medium) in [
        (Format::Text, Medium::Stream),
        (Format::Json, Medium::Stream),
        (Format::Text, Medium::Journal),
        (Format::Json, Medium::Journal),
    ] {
        let (log, memory) = log("info", format, medium);
        tracing::subscriber::with_default(Handle(log), event);
        lines.extend(memory.lines());
    }
    let [text, json, journal, both] = &lines[..] else { panic!("{lines:?}") };
    let (time, rest) = text.split_once(' ').unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z'), "{text}");
    assert_eq!(rest, r#"fingerpost: warn fib: dxr18 is "built"\nagain"#);
    let document: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(document["time"].as_str().unwrap().len(), time.len());
    let words = [&document["level"], &document["target"], &document["algorithm"]];
    assert_eq!(words, ["warn", "fib", "dxr18"]);
    assert_eq!(document["message"], "dxr18 is \"built\"\nagain");
    assert_eq!((&document["family"], &document["build_ms"]), (&4.into(), &1.25.into()));
    assert_eq!(document.get("from"), None);
    assert_eq!(journal, r#"<4>fib: dxr18 is "built"\nagain"#);
    assert!(both.starts_with("<4>{\"time\":"), "{both}");
}

/// A socket of the test is in place of that of the journal: none runs in most places that run tests.
#[test]
fn the_journal_gets_fields_and_standard_error_what_it_does_not_take() {
    let path = std::env::temp_dir().join(format!("fp-journal-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let (log, memory) = log("info", Format::Journald, Medium::Stream);
    log.state().journal = Journal::at(path.clone());
    let event = || {
        warn!(target: "fib", family = 4, build_ms = 1.25_f64, algorithm = "dxr\n18", "built\nagain");
    };
    let text = |memory: &Memory| {
        let lines = memory.lines();
        lines.iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    tracing::subscriber::with_default(Handle(log), || {
        event();
        assert_eq!(text(&memory), ["fingerpost: warn fib: built\\nagain"], "there is no journal");
        for _ in 0..2 {
            let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            event();
            let mut datagram = [0; 4096];
            let len = socket.recv(&mut datagram).unwrap();
            let want = b"MESSAGE=built\\nagain\nPRIORITY=4\nSYSLOG_IDENTIFIER=fingerpost\n\
                         FINGERPOST_TARGET=fib\nFINGERPOST_ALGORITHM\n\x06\0\0\0\0\0\0\0dxr\n18\nFINGERPOST_BUILD_MS=1.25\n\
                         FINGERPOST_FAMILY=4\n";
            assert_eq!(String::from_utf8_lossy(&datagram[..len]), String::from_utf8_lossy(want));
            assert!(memory.lines().is_empty());
            // It is restarted.
            drop(socket);
            std::fs::remove_file(&path).unwrap();
        }
        // One that does not read: the control thread does not wait for it.
        let _socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        let begun = Instant::now();
        for n in 0..150 {
            info!(target: "run", "{n}{}", "x".repeat(60_000));
        }
        assert!(!memory.lines().is_empty() && begun.elapsed() < Duration::from_secs(10));
    });
    std::fs::remove_file(path).unwrap();
}

#[test]
fn levels_change_at_run_time() {
    let (log, memory) = log("warn,fib=debug", Format::Text, Medium::Journal);
    let event = || {
        info!(target: "run", "run");
        debug!(target: "fib", "fib");
    };
    tracing::subscriber::with_default(Handle(log.clone()), || {
        event();
        assert_eq!(memory.lines(), ["<7>fib: fib"]);
        log.set(&Levels::default(), Format::Text);
        event();
        assert_eq!(memory.lines(), ["<6>run: run"]);
        log.set(&"off".parse().unwrap(), Format::Text);
        event();
        assert!(memory.lines().is_empty());
    });
}

#[test]
fn lines_that_repeat_are_bounded_and_counted() {
    let (log, memory) = log("info", Format::Json, Medium::Stream);
    let numbered = |n: u32| info!(target: "source", "session {n}");
    tracing::subscriber::with_default(Handle(log.clone()), || {
        for _ in 0..100 {
            warn!(target: "source", "closed");
        }
        (0..1000).for_each(numbered);
    });
    let lines = memory.lines();
    let closed = lines.iter().filter(|line| line.contains("closed")).count();
    assert_eq!((closed, lines.len()), (5, 205));

    log.state().end_second(Instant::now() + Duration::from_secs(2));
    let mut lines = memory.lines();
    lines.sort_unstable_by_key(|line| line.contains("session"));
    let documents: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [closed, session] = &documents[..] else { panic!("{lines:?}") };
    assert_eq!((&closed["suppressed"], &session["suppressed"]), (&95.into(), &800.into()));
    assert_eq!((&closed["level"], &session["level"]), (&"warn".into(), &"info".into()));
    let words = "800 more messages like this one were left out: session 200";
    assert_eq!(session["message"], words);
    assert_eq!(log.state().suppressed, 895);

    // The next second has room again.
    tracing::subscriber::with_default(Handle(log), || numbered(7));
    assert_eq!(memory.lines().len(), 1);
}

#[test]
fn lines_about_changes_are_all_printed() {
    let (log, memory) = log("info", Format::Text, Medium::Journal);
    tracing::subscriber::with_default(Handle(log), || {
        for _ in 0..1000 {
            info!(target: "control", subject = "add 10.0.0.0/8", "done: add 10.0.0.0/8");
        }
    });
    assert_eq!(memory.lines().len(), 1000);
}

/// An event of a target that is not in the list would be logged nowhere.
#[test]
fn every_target_of_the_program_is_known() {
    fn visit(folder: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs")
                && !path.ends_with("log/tests.rs")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                let targets = text.split("target: \"").skip(1);
                found.extend(targets.map(|rest| rest.split('"').next().unwrap().to_owned()));
            }
        }
    }
    let mut found = Vec::new();
    visit(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() > 50, "{}", found.len());
    let unknown = |target: &&String| !TARGETS.iter().any(|(known, _)| known == *target);
    assert_eq!(found.iter().filter(unknown).collect::<Vec<_>>(), Vec::<&String>::new());
}
