//! What a user without rights can do to a graph of root by its control sockets, form by form: a table of attempts.
//!
//! Files of root read and written, devices and sockets opened, FIFOs, memory: each attempt is made over the loopback, by
//! the address of an interface and by a Unix socket, by a user who owns nothing; and again by root, who may write, but
//! has nothing opened over TCP that the router's own file does not name.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fingerpost_tests::netns::{Line, Router, command, ip};
use fingerpost_tests::{program, skip};

const SESSION: &str = env!("CARGO_BIN_EXE_session");
/// A user and a group that own nothing, and another one.
const NOBODY: u32 = 65534;
const ANOTHER: u32 = 65533;
const ROOT: u32 = 0;
/// What stands in a file of root's.
const SECRET: &str = "hunter2";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A folder that all may look into, gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(line: &Line) -> Self {
        let path = std::env::temp_dir().join(format!("{}-trust", line.router));
        fs::create_dir(&path).expect("the temporary folder can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// A file that its owner alone reads and writes.
    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("it is ours");
        fs::set_permissions(self.0.join(name), fs::Permissions::from_mode(0o600)).expect("ours");
        self.path(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.join(name)).ok()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Words that a user runs by.
fn by(user: u32, words: &str) -> String {
    format!("setpriv --reuid {user} --regid {user} --clear-groups -- {words}")
}

/// A session of a user with a control socket in a namespace.
fn session(namespace: &str, user: u32, place: &str) -> Child {
    command(namespace, &by(user, &format!("{SESSION} {place}")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tools were found before")
}

/// Reply that the user gets in a session of these bytes.
fn told(namespace: &str, user: u32, place: &str, bytes: &[u8]) -> String {
    let mut child = session(namespace, user, place);
    let (mut stdin, bytes) = (child.stdin.take().expect("it is piped"), bytes.to_vec());
    // It may end before it has read all.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let output = child.wait_with_output().expect("it was started");
    writer.join().expect("it does not panic");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn hotconfig(text: &str) -> String {
    format!("writedata hotconfig {}\n{text}", text.len())
}

/// A line where users without rights can be clients.
fn line() -> Option<Line> {
    let line = Line::new(&["setpriv", "mkfifo"])?;
    let said = told(&line.router, NOBODY, "127.0.0.1:1", b"");
    if !said.contains("refused") {
        skip("test programs that all users may run, and setpriv of util-linux 2.33");
        return None;
    }
    Some(line)
}

/// A graph with all forms of control sockets, and files that are there to be stolen.
struct Target<'a> {
    line: &'a Line,
    folder: Folder,
    router: Router,
    /// `127.0.0.1:PORT`, for this host; the port for all; the path.
    local: String,
    port: String,
    unix: String,
}

impl<'a> Target<'a> {
    fn new(line: &'a Line) -> Self {
        let folder = Folder::new(line);
        let known = folder.write("known", "10.0.0.0/8\n");
        folder.write("secret", &format!("root:{SECRET}:0:0:root:/root\n"));
        folder.write("victim", "precious");
        let token = folder.write("token", TOKEN);
        let below = folder.path("below");
        fs::create_dir(&below).expect("it is ours");
        folder.write("below/list", "11.0.0.0/8\n");
        let made = Command::new("mkfifo").arg(folder.path("fifo")).status();
        assert!(made.expect("it was found before").success());
        let unix = folder.path("socket");
        let text = format!(
            "ControlSocket(UNIX, {unix}); ControlSocket(TCP, 0, LOCALHOST false);
             FromDevice(m, METHOD memory) -> f :: SourceFilter(bad drop FILE {known}) -> c :: Counter
                -> s :: Switch(0) -> Discard;"
        );
        let file = folder.write("graph.click", &text);
        let words = format!("{file} -p 0 --write-token {token} --open-below {below}");
        let router = Router::begin(command, &line.router, &words);
        let opened = |said: &[String]| said.iter().filter(|l| l.contains("control socket")).count();
        router.wait_for("to listen", |said| opened(said) == 3);
        let said = router.said();
        let place = |of: &str| {
            let line = said.iter().find(|line| line.contains(&format!("control socket {of}")));
            line.and_then(|line| line.rsplit(' ').next()).expect("it listens there").to_owned()
        };
        let (local, everywhere) = (place("127.0.0.1:"), place("["));
        let port = everywhere.rsplit(':').next().expect("a port").to_owned();
        Self { line, folder, router, local, port, unix }
    }

    /// The places of each form of TCP: for this host, and for all by the loopback, IPv4 and IPv6, and by an interface.
    fn tcp(&self) -> [(&'static str, String); 4] {
        let port = &self.port;
        [
            ("this host alone", self.local.clone()),
            ("everywhere, IPv4 loopback", format!("127.0.0.1:{port}")),
            ("everywhere, IPv6 loopback", format!("[::1]:{port}")),
            ("everywhere, an interface", format!("10.0.1.1:{port}")),
        ]
    }

    /// Configurations that open what they should not, by what that is.
    fn configurations(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.folder.path(name);
        vec![
            ("read a file as a library", format!("require(library {})", path("secret"))),
            (
                "read a file as a list",
                format!("Idle -> SourceFilter(a drop FILE {}) -> Discard", path("secret")),
            ),
            ("read a file as a capture", format!("FromDump({}) -> Discard", path("secret"))),
            ("count a file", format!("Idle -> PrefixCounter(FILE {}) -> Discard", path("secret"))),
            ("overwrite a file", format!("RandomSource(60) -> ToDump({})", path("victim"))),
            ("make a file", format!("RandomSource(60) -> ToDump({})", path("made"))),
            (
                "leave the folder",
                format!("RandomSource(60) -> ToDump({})", path("below/../victim")),
            ),
            (
                "sniff an interface",
                format!("FromDevice(r1, METHOD af_packet) -> ToDump({})", path("made")),
            ),
            ("take an interface over", "FromDevice(r1) -> Discard".to_owned()),
            ("make an interface", "FromDevice(tap9, METHOD tap) -> Discard".to_owned()),
            (
                "overwrite a file as a device",
                format!("Idle -> ToDevice(\",{}\", METHOD pcap)", path("victim")),
            ),
            ("open a socket", "ControlSocket(TCP, 4321, LOCALHOST false)".to_owned()),
            ("open a Unix socket", format!("ControlSocket(UNIX, {})", path("made"))),
            ("wait for a FIFO", format!("FromDump({}, SPECIAL true) -> Discard", path("fifo"))),
            ("wait for a FIFO as a library", format!("require(library {})", path("fifo"))),
            ("take all memory", "require(library /dev/zero)".to_owned()),
            ("take standard input", "FromDump(-) -> Discard".to_owned()),
        ]
    }

    /// Nothing was read, written or opened, and the graph is the one that was started.
    fn is_whole(&self, after: &str) {
        assert_eq!(self.folder.read("victim").as_deref(), Some("precious"), "{after}");
        assert!(
            self.folder.read("made").is_none() && !self.folder.0.join("made").exists(),
            "{after}"
        );
        let links = ip(&format!("-n {} -o link", self.line.router));
        assert!(!links.contains("tap9"), "{after}: {links}");
        let listed = told(&self.line.router, NOBODY, "127.0.0.1:4321", b"");
        assert!(listed.contains("refused"), "{after}: {listed}");
        let said = told(&self.line.router, ROOT, &self.local, b"read list\nread s.switch\n");
        assert!(
            said.contains("\nc\ns\nDiscard@") && said.contains("DATA 1\r\n0"),
            "{after}: {said}"
        );
    }
}

/// A refusal that shows nothing of what is in the file.
fn refused(said: &str, what: &str) {
    assert!(!said.contains(SECRET) && !said.contains("200 Write handler"), "{what}: {said}");
}

#[test]
fn a_user_without_rights_changes_and_opens_nothing() {
    let Some(line) = line() else { return };
    let target = Target::new(&line);
    let secret = target.folder.path("secret");
    let mut attempts: Vec<(&str, String)> =
        target.configurations().into_iter().map(|(what, text)| (what, hotconfig(&text))).collect();
    attempts.extend([
        ("exchange a list for a file", format!("write f.load bad {secret}\n")),
        ("change a list", "write f.add bad 12.0.0.0/8\n".to_owned()),
        ("change the graph", "write s.switch -1\n".to_owned()),
        ("trace packets", "write trace 1 all\n".to_owned()),
        ("guess the token", format!("AUTH {}\nwrite s.switch -1\n", TOKEN.replace('0', "1"))),
        ("give the token late", format!("read list\nAUTH {TOKEN}\nwrite s.switch -1\n")),
        (
            "have a browser do it",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\nwrite s.switch -1\r\n"
                .to_owned(),
        ),
    ]);
    for (form, place) in target.tcp() {
        for (what, text) in &attempts {
            let said = told(&line.router, NOBODY, &place, text.as_bytes());
            refused(&said, &format!("{what}, {form}"));
            let denied = said.contains("\r\n530 ") || what.contains("browser");
            assert!(denied, "{what}, {form}: {said}");
        }
        // Reading is what is left.
        let said = told(&line.router, NOBODY, &place, b"read c.count\ncheckwrite hotconfig\n");
        assert!(said.contains("DATA 1\r\n0") && said.contains("530 Permission denied"), "{said}");
        target.is_whole(form);
    }
    // A Unix socket is not for others: by the mode of its file, and by who is there where that is changed.
    let mode = || fs::metadata(&target.unix).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let said = told(&line.router, NOBODY, &target.unix, b"read c.count\n");
    assert!(said.contains("Permission denied"), "{said}");
    fs::set_permissions(&target.unix, fs::Permissions::from_mode(0o666)).expect("it is ours");
    for (what, text) in &attempts {
        let said = told(&line.router, NOBODY, &target.unix, text.as_bytes());
        assert!(!said.contains("Click::ControlSocket"), "{what}: {said}");
    }
    target.is_whole("by a Unix socket");
    let report = target.router.stop();
    assert_eq!(report["packets_in"], 0, "{report}");
}

#[test]
fn over_tcp_even_root_has_nothing_opened_that_the_file_does_not_name() {
    let Some(line) = line() else { return };
    let target = Target::new(&line);
    let path = |name: &str| target.folder.path(name);
    for (form, place) in &target.tcp()[..3] {
        for (what, text) in target.configurations() {
            let said = told(&line.router, ROOT, place, hotconfig(&text).as_bytes());
            refused(&said, &format!("{what}, {form}"));
            assert!(said.contains("not opened for what comes over TCP"), "{what}, {form}: {said}");
        }
        let load = format!("write f.load bad {}\n", path("secret"));
        refused(&told(&line.router, ROOT, place, load.as_bytes()), form);
        target.is_whole(form);
        // A list below the folder is read, and not shown.
        target.folder.write("below/wrong", &format!("{SECRET}\n"));
        let load = format!("write f.load bad {}\n", path("below/wrong"));
        let said = told(&line.router, ROOT, place, load.as_bytes());
        refused(&said, form);
        assert!(said.contains("wrong:1: no line of a list of prefixes"), "{said}");
        let library = hotconfig(&format!("require(library {})", path("below/wrong")));
        let said = told(&line.router, ROOT, place, library.as_bytes());
        refused(&said, form);
        assert!(said.contains("wrong:1:1: a mistake in a library"), "{said}");
    }
    // As today: writes, the file's own names, and what lies below the folder.
    let (known, list, out) = (path("known"), path("below/list"), path("below/out.pcap"));
    let socket = format!("ControlSocket(UNIX, {});\n", target.unix);
    let text = format!(
        "{socket}FromDevice(m, METHOD memory) -> f :: SourceFilter(bad drop FILE {known} FILE {list}) -> c :: Counter
            -> s :: Switch(0) -> ToDump({out})"
    );
    let all = format!("write s.switch 0\nwrite f.load bad {known}\n{}", hotconfig(&text));
    let said = told(&line.router, ROOT, &target.local, all.as_bytes());
    assert_eq!(said.matches("200 Write handler").count(), 3, "{said}");
    assert!(target.folder.0.join("below/out.pcap").exists());
    // By the Unix socket root has everything; only what never ends is refused to anybody.
    for name in ["victim", "made"] {
        let text = hotconfig(&format!("{socket}Idle -> ToDump({})", path(name)));
        let said = told(&line.router, ROOT, &target.unix, text.as_bytes());
        assert!(said.contains("200 Write handler"), "{name}: {said}");
    }
    for (name, kind) in [("/dev/zero", "a device"), (&path("fifo")[..], "a FIFO")] {
        let text = hotconfig(&format!("require(library {name})"));
        let said = told(&line.router, ROOT, &target.unix, text.as_bytes());
        assert!(said.contains(&format!("is {kind}, and a regular file is wanted")), "{said}");
    }
    let text = hotconfig(&format!("require(library {})", path("secret")));
    let said = told(&line.router, ROOT, &target.unix, text.as_bytes());
    assert!(said.contains(SECRET), "it is root's own: {said}");
    target.router.stop();
}

#[test]
fn a_token_gives_write_access_and_no_more() {
    let Some(line) = line() else { return };
    let target = Target::new(&line);
    for (form, place) in target.tcp() {
        let session = |text: &str| {
            let text = format!("AUTH {TOKEN}\r\n{text}");
            told(&line.router, NOBODY, &place, text.as_bytes())
        };
        let said = session("write s.switch 0\n");
        assert!(
            said.contains("200 Write access\r\n200 Write handler 's.switch' OK"),
            "{form}: {said}"
        );
        for (what, text) in target.configurations() {
            let said = session(&hotconfig(&text));
            refused(&said, &format!("{what}, {form}"));
        }
        target.is_whole(form);
    }
    // From another host.
    let place = format!("10.0.1.1:{}", target.port);
    let said = told(&line.source, ROOT, &place, b"write s.switch 0\n");
    assert!(said.contains("530 Permission denied for write handler 's.switch'"), "{said}");
    let text = format!("AUTH {TOKEN}\nwrite s.switch 0\n");
    let said = told(&line.source, ROOT, &place, text.as_bytes());
    assert!(said.contains("200 Write handler 's.switch' OK"), "{said}");
    target.router.stop();
}

#[test]
fn readers_take_neither_memory_nor_all_places() {
    const MIB: usize = 1 << 20;
    let Some(line) = line() else { return };
    let target = Target::new(&line);
    let most = || {
        let status = fs::read_to_string(format!("/proc/{}/status", target.router.pid()));
        let status = status.expect("it runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("on Linux");
        peak.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
    };
    let before = most();
    // More than there are places, all at once, each with texts that are announced and sent, refused or not.
    std::thread::scope(|scope| {
        for at in 0..20 {
            let (line, local) = (&line.router, &target.local);
            scope.spawn(move || {
                let verb = ["writedata hotconfig", "readdata why"][at % 2];
                let text = format!("{verb} {}\n{}", 16 * MIB, "x".repeat(16 * MIB));
                told(line, NOBODY, local, text.as_bytes())
            });
        }
        // Whoever may write finds a place, and memory, beside them.
        for _ in 0..5 {
            let said = told(&line.router, ROOT, &target.local, b"write s.switch 0\n");
            assert!(said.contains("200 Write handler 's.switch' OK"), "{said}");
        }
    });
    let grown = most().saturating_sub(before);
    println!("{} MiB more at most", grown / MIB);
    // What the readers' texts may have together, and a little for what they are answered.
    assert!(grown < 160 * MIB, "{} MiB", grown / MIB);
    // Those that stay have half of the places.
    let greeted = |user| {
        // Places of those before are given back a moment after they are gone.
        std::thread::sleep(Duration::from_millis(100));
        let mut child = session(&line.router, user, &target.local);
        let mut greeting = String::new();
        let stdout = child.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut greeting).expect("it is text");
        assert_eq!(greeting.trim_end(), "Click::ControlSocket/1.3");
        child
    };
    let mut all: Vec<Child> = (0..8).map(|_| greeted(NOBODY)).collect();
    let said = told(&line.router, NOBODY, &target.local, b"read list\n");
    assert_eq!(said, "590 Too many sessions that only read\r\n");
    all.extend((0..8).map(|_| greeted(ROOT)));
    for mut child in all {
        drop(child.stdin.take());
        assert!(child.wait().expect("it was started").success());
    }
    target.router.stop();
}

#[test]
fn the_routers_own_user_and_root_may_write() {
    let Some(line) = line() else { return };
    let folder = Folder::new(&line);
    let file = folder.write("graph.click", "i :: Idle -> s :: Switch(0) -> Discard");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let version = format!("{} --version", program().expect("the line was made with it").display());
    let may = command(&line.router, &by(NOBODY, &version)).output();
    if !may.expect("ip was found before").status.success() {
        return skip("a program that all users may run");
    }
    let as_nobody = |namespace: &str, words: &str| command(namespace, &by(NOBODY, words));
    let router = Router::begin(as_nobody, &line.router, &format!("{file} -p 0"));
    router.wait_for("to listen", |said| said.iter().any(|line| line.contains("control socket")));
    let said = router.said();
    let place = said.iter().find(|line| line.contains("control socket")).expect("it listens");
    let place = place.rsplit(' ').next().expect("where");
    for (user, writes) in [(NOBODY, true), (ROOT, true), (ANOTHER, false)] {
        let said = told(&line.router, user, place, b"write s.switch 0\nread s.switch\n");
        assert_eq!(said.contains("200 Write handler 's.switch' OK"), writes, "{user}: {said}");
        assert!(said.contains("200 Read handler"), "{user}: {said}");
    }
    router.stop();
}
