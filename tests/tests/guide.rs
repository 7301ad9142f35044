//! Runs the commands of all pages, each page in a router of its own in network namespaces: those of README and of the guide,
//! and of every other page that has some. Of commands that do not run the names and options are checked.
//!
//! A page names its lab in a comment: `<!-- lab: router -->` is a router with the interfaces `lan0` (10.0.1.1,
//! fd01::1) and `wan0` (10.0.2.1, fd02::1) and a host on each link, .2, whose default route leads there.
//! Its blocks run in order, in one folder, by `sh -eu` in the namespace of the router:
//!
//! | block | effect |
//! |---|---|
//! | ` ```sh ` | runs and has to succeed |
//! | ` ```sh background ` | starts and keeps running until `<!-- stop -->`, which sends SIGTERM, or the end |
//! | ` ```sh fails ` | runs and has to fail |
//! | ` ```sh not run: REASON ` | is counted; commands of this repository have to know its options |
//! | ` ```toml NAME `, ` ```click NAME `, ` ```text NAME ` | is written to the file NAME; without NAME it is not used |
//!
//! Comments do what readers do elsewhere: `<!-- until: COMMAND -->` repeats a command in the router until it
//! succeeds, `<!-- run: COMMAND -->`, `<!-- lan: COMMAND -->` and `<!-- wan: COMMAND -->` run one in the router
//! and on the hosts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{self, Line};
use fingerpost_tests::source;

/// What a page does at a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Runs in the router, on the host of `lan0`, or on that of `wan0`.
    Run(Place, String),
    Fails(String),
    Background(String),
    Until(String),
    Stop,
    Write(String, String),
    /// Commands that do not run here.
    NotRun(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Router,
    Lan,
    Wan,
}

/// The lab that a page names, if any.
fn lab(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<!-- lab: ")?;
    Some(rest.split_once(" -->")?.0)
}

/// Steps of a page, each with its line, and what is wrong with the page.
fn steps(text: &str) -> Result<Vec<(usize, Step)>, String> {
    let mut all = Vec::new();
    let mut lines = text.lines().enumerate().map(|(n, line)| (n + 1, line));
    while let Some((line, text)) = lines.next() {
        if let Some(comment) = text.strip_prefix("<!-- ").and_then(|t| t.strip_suffix(" -->")) {
            let (word, rest) = comment.split_once(": ").unwrap_or((comment, ""));
            let command = || rest.to_owned();
            all.push((
                line,
                match word {
                    "lab" => continue,
                    // Where a page is from.
                    word if word.starts_with("Made by ") => continue,
                    "stop" => Step::Stop,
                    "until" => Step::Until(command()),
                    "run" => Step::Run(Place::Router, command()),
                    "lan" => Step::Run(Place::Lan, command()),
                    "wan" => Step::Run(Place::Wan, command()),
                    _ => return Err(format!("{line}: no comment `{word}`")),
                },
            ));
        } else if is_command(text) {
            return Err(format!("{line}: a command in no block that runs or is marked: {text}"));
        } else if let Some(info) = text.strip_prefix("```") {
            // CommonMark, section 4.5: such a line begins no block, and the end of this one would begin another.
            if info.contains('`') {
                return Err(format!("{line}: a backtick in the information of a block"));
            }
            let mut body = String::new();
            loop {
                match lines.next() {
                    Some((_, "```")) => break,
                    Some((_, text)) => body = body + text + "\n",
                    None => return Err(format!("{line}: a block without end")),
                }
            }
            let (language, rest) = info.split_once(' ').unwrap_or((info, ""));
            all.push((
                line,
                match (language, rest) {
                    ("sh", "") => Step::Run(Place::Router, body),
                    ("sh", "background") => Step::Background(body),
                    ("sh", "fails") => Step::Fails(body),
                    ("sh", rest) if rest.starts_with("not run: ") => Step::NotRun(body),
                    ("toml" | "click" | "text", name) if !name.is_empty() => {
                        Step::Write(name.to_owned(), body)
                    }
                    ("toml" | "click" | "text" | "json" | "rust", "") => continue,
                    _ => return Err(format!("{line}: no block `{info}`")),
                },
            ));
        }
    }
    Ok(all)
}

/// Whether a line is an indented command: such blocks are for what is written elsewhere, as into a session.
fn is_command(line: &str) -> bool {
    let Some(words) = line.strip_prefix("    ") else { return false };
    let first = words.split(' ').next().unwrap_or_default();
    ["fingerpost", "fingerpost-lab", "cargo", "sudo", "chrt"].contains(&first)
}

/// Words of each command of a block that does not run.
fn commands(block: &str) -> Vec<Vec<String>> {
    let whole = block.replace("\\\n", " ");
    let words = |line: &str| {
        let line = line.split(" #").next().unwrap_or_default();
        let words = quoted(line).into_iter();
        words.skip_while(|word| word == "sudo" || word.contains('=')).collect::<Vec<_>>()
    };
    whole.lines().map(words).filter(|words| !words.is_empty()).collect()
}

/// Words of a line; what is in single quotes is one, with its blanks.
fn quoted(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.last_mut().expect("never empty").push_str(part);
            continue;
        }
        for (at, word) in part.split(|c: char| c.is_ascii_whitespace()).enumerate() {
            if at > 0 {
                words.push(String::new());
            }
            words.last_mut().expect("never empty").push_str(word);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Checks the options of a command of ours by its help, and names of tasks and tests; what is wrong.
fn unknown(words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let root = fingerpost_tests::root();
    let program = fingerpost_tests::program()?;
    let arguments = match words[..] {
        ["chrt", _, _, "fingerpost" | "fingerpost-lab", ref arguments @ ..]
        | ["fingerpost" | "fingerpost-lab", ref arguments @ ..] => arguments,
        ["cargo", "xtask", "bench" | "demo", ..] => &words[2..],
        ["cargo", "xtask", task, ..] => {
            let tasks = fs::read_to_string(root.join("xtask/src/main.rs")).expect("it is there");
            let is_there = tasks.contains(&format!("name: \"{task}\""));
            return (!is_there).then(|| format!("cargo xtask has no {task}"));
        }
        ["cargo", "test", .., "--test", test, "--", "--nocapture"] => {
            let is_there = root.join(format!("tests/tests/{test}.rs")).exists();
            return (!is_there).then(|| format!("there is no test {test}"));
        }
        _ => return None,
    };
    let own = arguments.iter().take_while(|word| !["--", ">", "|"].contains(*word));
    let output = Command::new(program).args(own).arg("--help").output().expect("it is there");
    let said = String::from_utf8_lossy(&output.stderr);
    // An algorithm that this program was built without is known all the same.
    let is_known = output.status.success() || said.contains("is in programs built with");
    (!is_known).then(|| format!("{}: {said}", words.join(" ")))
}

/// A router with a folder for files, and the program in its path.
struct Lab {
    line: Line,
    folder: PathBuf,
    background: Option<Child>,
}

impl Lab {
    fn new() -> Option<Self> {
        let line = Line::new(&["nsenter", "ping", "ethtool"])?;
        let folder = std::env::temp_dir().join(format!("{}guide", line.router));
        fs::create_dir_all(folder.join("bin")).expect("the temporary folder is ours");
        let program = fingerpost_tests::program().expect("the line was built with it");
        let program = fs::canonicalize(program).expect("the temporary folder is ours");
        std::os::unix::fs::symlink(program, folder.join("bin/fingerpost"))
            .expect("the temporary folder is ours");
        let sudo = folder.join("bin/sudo");
        fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n").expect("the temporary folder is ours");
        fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755))
            .expect("the temporary folder is ours");
        for (from, to, subnet) in [("r0", "lan0", 1), ("r1", "wan0", 2)] {
            netns::ip(&format!("-n {} link set {from} down", line.router));
            netns::ip(&format!("-n {} link set {from} name {to}", line.router));
            netns::ip(&format!("-n {} link set {to} up", line.router));
            netns::ip(&format!("-n {} addr add fd0{subnet}::1/64 dev {to} nodad", line.router));
        }
        line.kernel_forwards(true);
        // What a veth sends in XDP its peer has to take (docs/guide/replace-kernel-forwarding.md).
        netns::run(&line.source, "ethtool -K s0 gro on");
        netns::run(&line.destination, "ethtool -K d0 gro on");
        Some(Self { line, folder, background: None })
    }

    fn command(&self, place: Place, text: &str) -> Command {
        let namespace = match place {
            Place::Router => &self.line.router,
            Place::Lan => &self.line.source,
            Place::Wan => &self.line.destination,
        };
        let mut command = netns::command_beside(namespace, "sh -euc");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .arg(text)
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", self.folder.join("bin").display()))
            .env_remove("FINGERPOST_SOCKET")
            .stdin(Stdio::null());
        command
    }

    /// Runs a step; fails with what was printed.
    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Run(place, text) => self.run(*place, text, true),
            Step::Fails(text) => self.run(Place::Router, text, false),
            Step::Background(text) => {
                let log = fs::File::create(self.folder.join("background.log"))
                    .expect("the temporary folder is ours");
                let mut command = self.command(Place::Router, &format!("exec {}", text.trim()));
                command.stdout(log.try_clone().expect("the temporary folder is ours")).stderr(log);
                self.background = Some(command.spawn().map_err(|error| error.to_string())?);
                Ok(())
            }
            Step::Until(text) => {
                let limit = Instant::now() + fingerpost_tests::patience(Duration::from_secs(20));
                loop {
                    let done = self.run(Place::Router, text, true);
                    if done.is_ok() || Instant::now() > limit {
                        return done;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            Step::Stop => {
                self.stop();
                Ok(())
            }
            Step::Write(name, text) => {
                fs::write(self.folder.join(name), text).map_err(|error| error.to_string())
            }
            Step::NotRun(_) => Ok(()),
        }
    }

    fn run(&self, place: Place, text: &str, succeeds: bool) -> Result<(), String> {
        // Output goes to a file: what a command leaves running must not keep a pipe open.
        let path = self.folder.join("output.log");
        let log = fs::File::create(&path).expect("the temporary folder is ours");
        let mut command = self.command(place, text);
        command.stdout(log.try_clone().expect("the temporary folder is ours")).stderr(log);
        let limit = Instant::now() + fingerpost_tests::patience(Duration::from_secs(60));
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                break status;
            }
            if Instant::now() > limit {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not done within a minute:\n{text}{}", self.printed(&path)));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if status.success() == succeeds {
            return Ok(());
        }
        Err(format!("{status}:\n{text}{}", self.printed(&path)))
    }

    fn printed(&self, path: &Path) -> String {
        let mut text = format!("\nprinted:\n{}", fs::read_to_string(path).unwrap_or_default());
        if let Ok(log) = fs::read_to_string(self.folder.join("background.log")) {
            text = text + "\nin the background:\n" + &log;
        }
        text
    }

    fn stop(&mut self) {
        let Some(mut child) = self.background.take() else { return };
        let _ = Command::new("kill").arg(child.id().to_string()).status();
        let _ = child.wait();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop();
        // What non-stop forwarding pinned goes with the namespace, not with the process.
        let _ = self.run(Place::Router, "fingerpost release", true);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn pages() -> Vec<source::File> {
    source::files(".", ".md")
}

#[test]
fn commands_of_the_guide_work() {
    let (mut run, mut not_run, mut wrong) = (0, 0, Vec::new());
    let only = std::env::var("FINGERPOST_PAGE").ok();
    for page in pages() {
        if only.as_ref().is_some_and(|only| !page.path.contains(only.as_str())) {
            continue;
        }
        let steps = steps(&page.text).unwrap_or_else(|why| panic!("{}:{why}", page.path));
        let idle = |step: &Step| matches!(step, Step::NotRun(_));
        not_run += steps.iter().filter(|(_, step)| idle(step)).count();
        if steps.iter().all(|(_, step)| idle(step)) {
            continue;
        }
        assert_eq!(lab(&page.text), Some("router"), "{}: names no lab", page.path);
        let Some(mut lab) = Lab::new() else { return };
        for (line, step) in steps.iter().filter(|(_, step)| !idle(step)) {
            run += 1;
            if let Err(why) = lab.step(step) {
                wrong.push(format!("{}:{line}: {why}", page.path));
                break;
            }
        }
    }
    println!("{run} steps of the book run, {not_run} blocks marked as not run");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
    assert!(only.is_some() || run > 40, "{run} steps are not the guide");
}

#[test]
fn commands_that_do_not_run_have_their_names_and_options() {
    if fingerpost_tests::lab().is_none() {
        return fingerpost_tests::skip("the programs");
    }
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in pages() {
        for (line, step) in steps(&page.text).unwrap_or_else(|why| panic!("{}:{why}", page.path)) {
            let Step::NotRun(block) = step else { continue };
            for command in commands(&block) {
                checked += 1;
                let why = unknown(&command);
                wrong.extend(why.map(|why| format!("{}:{line}: {why}", page.path)));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(checked > 40, "{checked} commands are not the book");
    let one = |line: &str| unknown(&commands(line)[0]);
    assert_eq!(one("A=1 cargo xtask soak proof  # x"), None);
    assert_eq!(commands("a -e 'b -> c' d"), [["a", "-e", "b -> c", "d"]]);
    assert!(
        one("cargo xtask soke").is_some() && one("cargo test --test a -- --nocapture").is_some()
    );
    assert_eq!(one("chrt -f 10 fingerpost bench lookup \\\n  --table V4"), None);
    assert!(one("fingerpost-lab bench lookup --tabel V4").is_some());
}

#[test]
fn pages_are_read_as_steps() {
    let text = "# T\n<!-- lab: router -->\n```sh\na\nb\n```\n```sh background\nc\n```\n<!-- until: d -->\n\
                <!-- lan: e -->\n<!-- stop -->\n```toml f.toml\ng\n```\n```text\nh\n```\n```sh not run: builds\ni\n```\n";
    let run = |place, text: &str| Step::Run(place, text.to_owned());
    let found: Vec<_> = steps(text).unwrap().into_iter().map(|(_, step)| step).collect();
    assert_eq!(lab(text), Some("router"));
    assert_eq!(
        found,
        [
            run(Place::Router, "a\nb\n"),
            Step::Background("c\n".to_owned()),
            Step::Until("d".to_owned()),
            run(Place::Lan, "e"),
            Step::Stop,
            Step::Write("f.toml".to_owned(), "g\n".to_owned()),
            Step::NotRun("i\n".to_owned()),
        ]
    );
    assert_eq!(steps("```sh\na\n").unwrap_err(), "1: a block without end");
    assert!(steps("x\n\n    cargo xtask help\n").is_err());
    assert_eq!(steps("```bash\na\n```").unwrap_err(), "1: no block `bash`");
    let backtick = steps("```sh not run: by `time`\na\n```").unwrap_err();
    assert_eq!(backtick, "1: a backtick in the information of a block");
    assert_eq!(steps("<!-- tell: x -->").unwrap_err(), "1: no comment `tell`");
}
