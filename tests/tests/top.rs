//! `fingerpost top` in a pseudo-terminal, against a real router: keys, resize, and the terminal as it was before.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Line, Router, command, run};

/// A program in a pseudo-terminal that `script` makes.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    written: Arc<Mutex<String>>,
    namespace: String,
    /// File with the name of the terminal.
    name: PathBuf,
    rows: u32,
}

impl Terminal {
    fn start(namespace: &str, shell: &Path, typescript: &Path, name: &Path) -> Self {
        let words = format!("script -qfe -c {} {}", shell.display(), typescript.display());
        let mut child = command(namespace, &words)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script was found before");
        let keys = child.stdin.take().expect("it is piped");
        let mut output = child.stdout.take().expect("it is piped");
        let written = Arc::new(Mutex::new(String::new()));
        let all = written.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len) = output.read(&mut bytes)
                && len > 0
            {
                all.lock()
                    .expect("no reader panics")
                    .push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        Self { child, keys, written, namespace: namespace.into(), name: name.into(), rows: 24 }
    }

    /// Types keys, and waits until this is written behind them.
    fn type_until(&mut self, keys: &str, wanted: &str) -> String {
        let before = self.written.lock().expect("no reader panics").len();
        self.keys.write_all(keys.as_bytes()).expect("it reads");
        self.keys.flush().expect("it reads");
        self.wait_for(before, wanted)
    }

    fn wait_for(&self, before: usize, wanted: &str) -> String {
        let until = Instant::now() + Duration::from_secs(8);
        loop {
            let drawn = self.written.lock().expect("no reader panics")[before..].to_owned();
            if drawn.contains(wanted) {
                return drawn;
            }
            assert!(Instant::now() < until, "no {wanted:?}: {drawn:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types keys, and waits until the screen has a word. Otherwise only cells that change are drawn: another height has it
    /// drawn anew.
    fn shows(&mut self, keys: &str, word: &str) -> String {
        self.keys.write_all(keys.as_bytes()).expect("it reads");
        self.keys.flush().expect("it reads");
        // An escape is a key of its own when nothing follows it.
        std::thread::sleep(Duration::from_millis(200));
        let before = self.written.lock().expect("no reader panics").len();
        self.rows ^= 1;
        run(&self.namespace, &format!("stty -F {} rows {} cols 110", self.tty(), self.rows));
        self.wait_for(before, word)
    }

    fn tty(&self) -> String {
        let name = std::fs::read_to_string(&self.name).expect("the shell wrote it");
        name.trim().to_owned()
    }
}

#[test]
fn keys_show_sort_filter_and_quit_and_the_terminal_is_as_before() {
    let Some(line) = Line::new(&["script", "stty", "ping"]) else { return };
    let folder = std::env::temp_dir().join(format!("{}-top", line.router));
    std::fs::create_dir_all(&folder).unwrap();
    let program = fingerpost_tests::program().expect("the line was made with it");
    let router = Router::start(&line.router, "--ignore tc", 2);
    run(&line.source, "ping -c 3 -i 0.2 -W 3 10.0.2.2");

    let file = |name: &str| folder.join(name);
    let [shell, name, before, after] = ["shell", "tty", "before", "after"].map(file);
    let text = format!(
        "#!/bin/sh\nstty rows 24 cols 110\ntty > {}\nstty -a > {}\n{} top --interval 0.3\nstatus=$?\n\
         stty -a > {}\nexit $status\n",
        name.display(),
        before.display(),
        program.display(),
        after.display()
    );
    std::fs::write(&shell, text).unwrap();
    run(&line.router, &format!("chmod 700 {}", shell.display()));
    let mut terminal = Terminal::start(&line.router, &shell, &folder.join("typescript"), &name);
    let first = terminal.type_until("", "interface");
    assert!(first.contains("\x1b[?1049h"), "the alternate screen: {first:?}");
    terminal.shows("", "r1");
    terminal.shows("s", "interface▼");
    terminal.shows("?", "Ctrl-C");
    assert!(!terminal.shows("?", "r1").contains("Ctrl-C"));
    assert!(!terminal.shows("/r1\r", "filter:").contains("r0"));
    terminal.shows("\x1b", "r0");
    terminal.shows("2", "dearest");
    terminal.shows("5", "algorithm");
    terminal.shows("6", "kernel");
    terminal.shows("p", "PAUSED");
    assert!(!terminal.shows("p", "kernel").contains("PAUSED"));
    terminal.type_until("q", "\x1b[?1049l");
    let status = terminal.child.wait().unwrap();
    assert!(status.success(), "{status}");
    let sane = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        // Its size is another one by now.
        text.lines().skip(1).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(sane(&before), sane(&after));
    assert!(terminal.written.lock().unwrap().contains("\x1b[?25h"), "the cursor is shown");

    // In a pipe it is text, and JSON has the sources.
    let plain = run(&line.router, &format!("{} top --count 1 --interval 0.1", program.display()));
    assert!(plain.starts_with("fingerpost ") && !plain.contains('\x1b'), "{plain}");
    let document: serde_json::Value = router.ask("top --count 1 --interval 0.1");
    assert_eq!(
        document["sources"][0]["updates_per_second"].as_f64().map(f64::is_finite),
        Some(true)
    );
    router.stop();
    std::fs::remove_dir_all(folder).unwrap();
}
