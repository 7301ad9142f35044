//! Who may do what over the control sockets: users by commands, a table of attempts, made by processes of these users.

use std::process::Output;

use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, command, conserved};
use fingerpost_tests::{program, skip};
use serde_json::Value;

/// Groups that no file has.
const READERS: u32 = 7001;
const ADMINS: u32 = 7002;

/// A user: its number and supplementary groups.
#[derive(Clone, Copy)]
struct User {
    name: &'static str,
    uid: u32,
    groups: &'static str,
}

const ROOT: User = User { name: "root", uid: 0, groups: "0" };
const READER: User = User { name: "reader", uid: 4001, groups: "7001" };
const ADMIN: User = User { name: "admin", uid: 4002, groups: "7002" };
const BOTH: User = User { name: "both", uid: 4003, groups: "7001,7002" };
const OTHER: User = User { name: "other", uid: 4004, groups: "7003" };
/// The user that the daemon runs as in one of the tests.
const OWN: User = User { name: "the daemon's own", uid: 4005, groups: "7003" };

struct Lab {
    line: Line,
    folder: Folder,
}

impl Lab {
    fn new() -> Option<Self> {
        let line = Line::new(&["setpriv", "prlimit"])?;
        let folder = Folder::new(&line.router);
        let text = format!("[control]\nread_group = {READERS}\nwrite_group = \"{ADMINS}\"\n");
        folder.write("router.toml", &text);
        let lab = Self { line, folder };
        if !lab.by(OTHER, "--version").status.success() {
            skip("a program that all users may run, and setpriv of util-linux 2.33");
            return None;
        }
        Some(lab)
    }

    fn file(&self) -> String {
        self.folder.file("router.toml")
    }

    fn by(&self, user: User, words: &str) -> Output {
        let program = program().expect("the line was made with it");
        let User { uid, groups, .. } = user;
        let words = format!(
            "setpriv --reuid {uid} --regid {uid} --groups {groups} -- {} {words}",
            program.display()
        );
        command(&self.line.router, &words).output().expect("ip was found before")
    }
}

/// What a user has over a socket, and what a refusal names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum May {
    Change,
    Read(&'static str),
    Nothing(&'static str),
}

/// Commands that read, and commands that change something or have the daemon read files.
fn commands(file: &str) -> ([String; 8], [String; 9]) {
    let reads = [
        "route show",
        "route get 10.0.2.2",
        "fib show",
        "fib verify",
        "interface show",
        "config show",
        "config history",
        "why 10.0.2.2",
    ];
    let changes = [
        "route add 203.0.113.0/24 via 10.0.2.2",
        "route del 203.0.113.0/24",
        "neighbor replace 10.0.2.9 lladdr 02:00:5e:10:00:01 dev r1",
        "fib algorithm --family 4 dxr18",
        &format!("config apply {file}"),
        &format!("config diff {file}"),
        "config confirm",
        "config rollback 1",
        "config save",
    ];
    (reads.map(str::to_owned), changes.map(str::to_owned))
}

fn attempts(lab: &Lab, socket: &str, table: &[(User, [May; 2])]) {
    let (reads, changes) = commands(&lab.file());
    let mut tried = 0;
    for (user, of_sockets) in table {
        for (path, may) in [socket.to_owned(), format!("{socket}.ro")].iter().zip(of_sockets) {
            let all = reads
                .iter()
                .map(|words| (words, true))
                .chain(changes.iter().map(|words| (words, false)));
            for (words, reads) in all {
                tried += 1;
                let output = lab.by(*user, &format!("{words} --socket {path}"));
                let (code, said) =
                    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned());
                let refusal = match may {
                    May::Change => None,
                    May::Read(named) => (!reads).then_some(named),
                    May::Nothing(named) => Some(named),
                };
                let what = format!("{} over {path}: {words}: {code:?} {said}", user.name);
                match refusal {
                    // What it does is another matter: without a state folder `config save` is refused, and nothing waits.
                    None => {
                        assert!(matches!(code, Some(0 | 1 | 5)) && !said.contains("may"), "{what}")
                    }
                    Some(named) => {
                        assert_eq!(code, Some(4), "{what}");
                        assert!(said.lines().count() == 1 && said.contains(*named), "{what}");
                    }
                }
            }
        }
    }
    assert_eq!(tried, table.len() * 2 * 17);
}

#[test]
fn groups_decide_who_reads_and_who_changes() {
    let Some(lab) = Lab::new() else { return };
    let router = Router::start(&lab.line.router, &lab.file(), 2);
    let said = router.said();
    let socket =
        said.iter().find_map(|line| line.split_once("control socket ")).expect("it has one").1;
    let reading = "this socket is for reading: over the control socket members of group 7002 and root may change";
    let neither = "members of group 7001 read, members of group 7002 read and change, root may";
    let not_for_admins = "members of group 7001 read, root may";
    attempts(
        &lab,
        socket,
        &[
            (ROOT, [May::Change, May::Read(reading)]),
            (ADMIN, [May::Change, May::Nothing(not_for_admins)]),
            (BOTH, [May::Change, May::Read(reading)]),
            (READER, [May::Read(reading), May::Read(reading)]),
            (OTHER, [May::Nothing(neither), May::Nothing(not_for_admins)]),
        ],
    );
    // Each change is noted with who made it, and each refused one.
    lab.by(ADMIN, &format!("route add 198.51.100.0/24 via 10.0.2.2 --socket {socket}"));
    lab.by(READER, &format!("route add 198.51.100.0/25 via 10.0.2.2 --socket {socket}"));
    router.wait_for("to note the requests", |said| {
        let noted = |uid: u32, words: &str, end: &str| {
            said.iter().any(|line| {
                line.contains(&format!("uid {uid}, pid "))
                    && line.contains(words)
                    && line.contains(end)
            })
        };
        noted(4002, "via 10.0.2.2", ": POST /v1/routes: done: add 198.51.100.0/24 via 10.0.2.2")
            && noted(4001, ": POST /v1/routes: refused: this socket", "")
    });
    conserved(&router.stop());
}

/// A daemon of a user with five capabilities: its own user may do all, and its groups are those that it is in.
#[test]
fn the_own_user_of_a_daemon_may_do_all() {
    let Some(lab) = Lab::new() else { return };
    let socket = lab.folder.file("own.sock");
    std::os::unix::fs::chown(lab.folder.path(), Some(OWN.uid), None).expect("root may");
    let set = "-all,+net_admin,+net_raw,+bpf,+perfmon,+ipc_lock";
    let by = |namespace: &str, words: &str| {
        let caps = format!("--inh-caps {set} --ambient-caps {set}");
        let user = format!("--reuid {0} --regid {0} --groups {READERS},{ADMINS}", OWN.uid);
        command(
            namespace,
            &format!("prlimit --memlock=65536:65536 setpriv {user} {caps} -- {words}"),
        )
    };
    let words = format!("{} --socket {socket}", lab.file());
    let router = Router::start_by(by, &lab.line.router, &words, 2);
    let reading = "over the control socket members of group 7002 and root and uid 4005 may change";
    let neither =
        "members of group 7001 read, members of group 7002 read and change, root and uid 4005 may";
    attempts(
        &lab,
        &socket,
        &[
            (OWN, [May::Change, May::Read(reading)]),
            (ROOT, [May::Change, May::Read(reading)]),
            (ADMIN, [May::Change, May::Nothing("group 7001 read, root and uid 4005 may")]),
            (READER, [May::Read(reading), May::Read(reading)]),
            (OTHER, [May::Nothing(neither), May::Nothing("group 7001 read")]),
        ],
    );
    let all: Vec<Value> = router.ask(&format!("config history --socket {socket}"));
    assert_eq!((&all[0]["state"], &all[0]["by"]["uid"]), (&"started".into(), &OWN.uid.into()));
    conserved(&router.stop());
}
