//! The page in a real browser: each view opened, used by keyboard and pointer, and compared with what the API has.
//!
//! What a view draws is counted, and compared with the pictures that are kept of it: one in the guide, and a dark one on a phone
//! in `testdata/page`. It may differ from them in one pixel of fifty. Numbers and the lines of the last minute are of the run, and
//! left out. `FINGERPOST_ACCEPT` keeps new pictures.

use std::fmt::Write as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fingerpost_tests::browser::Browser;
use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, command, conserved, ip, run};
use fingerpost_tests::{patience, tables as table_files};
use serde_json::Value;

const ADDRESS: &str = "http://127.0.0.1:9477";
/// Pictures of the guide, and those of a phone.
const GUIDE: &str = "docs/guide/pictures";
const PHONE: &str = "testdata/page";
/// The views, as they are opened on a phone, and what is of the run in each besides numbers.
const VIEWS: [(&str, &str, &str); 8] = [
    ("overview", "overview", MINUTE),
    ("graph", "graph", "path.edge"),
    ("fib", "fib", ".spark"),
    ("sources", "sources", ".none"),
    ("hops", "hops", ".none"),
    ("neighbors", "neighbors", ".badge"),
    ("packet", "packet=10.0.2.2", ".none"),
    ("space", "space", ".none"),
];
/// Lines and bars of the last minute in the overview.
const MINUTE: &str = ".spark, .stack, .bar";
/// Share of pixels in which a view may differ from the picture that is kept of it.
const DIFFER: f64 = 0.02;
/// Changes a second.
const CHURN: u32 = 10_000;
/// Longest time in which a map of a full table is drawn, in ms.
const DRAWN_MS: u64 = 1000;

/// Packets from one end to the other, and some that no route has, until this is dropped.
struct Pings([Child; 2]);

impl Drop for Pings {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Lab {
    browser: Browser,
    router: Router,
    pings: Pings,
    line: Line,
    folder: Folder,
}

impl Lab {
    fn new() -> Option<Self> {
        let line = Line::new(&["chromium", "ping"])?;
        let folder = Folder::new(&line.router);
        let text = format!(
            "[listen]\naddress = \"127.0.0.1:9477\"\n[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"file\"\npath = {:?}\n",
            table_files::shipped().join("v4-tier1-nh496.txt.xz")
        );
        let path = folder.write("router.toml", &text);
        let router = Router::start(&line.router, &path, 2);
        run(&line.source, "ping -c 2 -i 0.5 -W 3 10.0.2.2");
        let pings = ["-i 0.002 10.0.2.2", "-i 0.02 10.9.9.9"].map(|words| {
            let mut ping = command(&line.source, &format!("ping -q {words}"));
            ping.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ping was found before")
        });
        let pings = Pings(pings);
        let browser = Browser::start(&line.router, &folder.path().display().to_string());
        Some(Self { browser, router, pings, line, folder })
    }

    /// Waits for a view, and for two looks at its numbers.
    fn view(&mut self, name: &str) {
        self.looked(name, 2);
    }

    fn looked(&mut self, name: &str, times: u32) {
        self.browser.wait(&format!("document.querySelector('#view-{name}')"));
        let looks = self.browser.value("Number(document.body.dataset.looks ?? 0)");
        self.browser.wait(&format!("Number(document.body.dataset.looks) >= {looks} + {times}"));
    }

    fn number(&mut self, expression: &str) -> u64 {
        let value = self.browser.value(expression);
        value.as_u64().unwrap_or_else(|| panic!("{expression}: {value}"))
    }

    /// Compares a view with the picture of it in a folder, but for what `live` matches; or keeps it there.
    fn picture(&mut self, folder: &str, name: &str, live: &str) {
        let folder = fingerpost_tests::root().join(folder);
        let kept = folder.join(format!("{name}.png"));
        // A view with few words differs little from a blank one: that it is not blank is looked at by itself.
        let picture = self.browser.picture();
        if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
            std::fs::create_dir_all(&folder).expect("the checkout can be written");
            std::fs::write(kept, picture).expect("the checkout can be written");
            return;
        }
        let before = std::fs::read(&kept).expect("there is one of each view");
        // A look at the numbers may come in between.
        let until = Instant::now() + patience(Duration::from_secs(5));
        loop {
            let (differ, out) = self.browser.differs(&before, live);
            println!("{name}: {:.2} % differ, {:.0} % left out", differ * 100.0, out * 100.0);
            assert!(out < 0.5, "{name}: nothing is left to compare");
            if differ <= DIFFER {
                // Another view is not taken for this one.
                let other = if name == "graph" { "fib.png" } else { "graph.png" };
                let other = std::fs::read(folder.join(other)).expect("there is one");
                assert!(self.browser.differs(&other, live).0 > DIFFER, "{name}: all is alike");
                return;
            }
            if Instant::now() > until {
                let now = fingerpost_tests::root().join(format!("target/{name}.png"));
                std::fs::write(&now, self.browser.picture()).expect("the checkout can be written");
                let now = now.display();
                panic!(
                    "{name}: {:.1} % of the pixels differ: see {now}; FINGERPOST_ACCEPT=1 keeps it",
                    differ * 100.0
                );
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Waits until the map has as many routes as the FIB.
    fn follows(&mut self) {
        let until = Instant::now() + patience(Duration::from_secs(5));
        loop {
            let fibs: Vec<Value> = self.router.ask("fib show");
            let main = fibs.iter().find(|fib| fib["family"] == 4 && fib["table"] == 254);
            let wanted = main.and_then(|fib| fib["prefixes"].as_u64()).expect("there is one");
            std::thread::sleep(Duration::from_millis(300));
            let routes = self.browser.value("document.querySelector('#view-space').dataset.routes");
            if routes.as_str() == Some(&wanted.to_string()) {
                return;
            }
            assert!(Instant::now() < until, "the map has {routes} of {wanted} routes");
        }
    }
}

#[test]
fn views_are_used_by_keyboard_and_pointer() {
    let Some(mut lab) = Lab::new() else { return };
    lab.browser.size(1360, 900, false);
    lab.browser.open(ADDRESS);
    overview(&mut lab);
    graph(&mut lab);
    tables(&mut lab);
    packet(&mut lab);
    space(&mut lab);
    hangs(&mut lab);
    phone(&mut lab);
    let errors = lab.browser.errors();
    assert!(errors.is_empty(), "{errors:#?}");
    let requested = lab.browser.requested();
    assert!(requested.len() > 20);
    for url in requested.iter().filter(|url| *url != "about:blank") {
        assert!(url.starts_with(ADDRESS), "{url}");
    }
    let Lab { router, pings, browser, folder, line } = lab;
    drop((browser, pings));
    conserved(&router.stop());
    drop((folder, line));
}

fn overview(lab: &mut Lab) {
    lab.view("overview");
    lab.browser.wait("document.querySelectorAll('#view-overview .spark path').length >= 8");
    assert_eq!(lab.number("document.querySelectorAll('.tile').length"), 6);
    let interfaces: Vec<Value> = lab.router.ask("interface show");
    let rows = "document.querySelectorAll('table[aria-label=Interfaces] tbody tr').length";
    assert_eq!(lab.number(rows), interfaces.len() as u64);
    // Pings are forwarded, there and back.
    lab.browser.wait("/ k|^[1-9][0-9][0-9]/.test(document.querySelector('.tile dd').textContent)");
    assert_eq!(lab.number("document.querySelectorAll('.stack i').length"), 4);
    // Dropped packets have a reason, and its meaning.
    lab.browser.wait(
        "[...document.querySelectorAll('table[aria-label=\"Drops by reason\"] tbody tr')].some((row) => \
         row.cells[0].textContent === 'unreachable' || row.cells[0].textContent === 'no_route')",
    );
    if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
        // Lines of the last minute.
        std::thread::sleep(Duration::from_secs(25));
    }
    lab.picture(GUIDE, "overview", MINUTE);
}

fn graph(lab: &mut Lab) {
    // By keyboard: the second view, an element, its counters.
    lab.browser.press("2", 50);
    lab.view("graph");
    let stats: Value = lab.router.ask("graph stats");
    let elements = stats["elements"].as_array().expect("it is a list");
    let elements =
        elements.iter().filter(|row| row["worker"] == 0 && row["class"] != "").count() as u64;
    let edges = stats["edges"].as_array().expect("it is a list").len() as u64;
    assert!(elements > 10 && edges > elements, "{elements} elements, {edges} edges");
    assert_eq!(lab.number("document.querySelectorAll('.node').length"), elements);
    assert_eq!(lab.number("document.querySelectorAll('path.edge').length"), edges);
    let apart = "(() => { const boxes = [...document.querySelectorAll('.node rect')].map((e) => e.getBoundingClientRect()); return \
                 boxes.filter((a, i) => boxes.some((b, j) => j > i && a.left < b.right && b.left < a.right && a.top < b.bottom && \
                 b.top < a.bottom)).length; })()";
    assert_eq!(lab.number(apart), 0, "elements lie over each other");
    lab.browser.value("document.querySelector('.node[data-element=ip4_input]').focus()");
    lab.browser.press("Enter", 13);
    lab.browser.wait("document.querySelector('section[aria-label=Element] h2').textContent.startsWith('ip4_input')");
    lab.browser.click(".node[data-element=resolver]", (0.5, 0.5));
    lab.browser.wait("document.querySelector('section[aria-label=Element] h2').textContent.startsWith('resolver')");
    lab.browser.value("scrollTo(0, 0)");
    lab.picture(GUIDE, "graph", "path.edge");
}

fn tables(lab: &mut Lab) {
    lab.browser.click("nav a[href='#fib']", (0.5, 0.5));
    lab.view("fib");
    let fibs: Vec<Value> = lab.router.ask("fib show");
    assert_eq!(
        lab.number("document.querySelectorAll('#view-fib .card').length"),
        fibs.len() as u64
    );
    let rows: usize = fibs.iter().map(|fib| fib["fitness"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!(lab.number("document.querySelectorAll('.fit .bar').length"), rows as u64);
    let algorithm = fibs[0]["algorithm"].as_str().expect("it has one");
    lab.browser.wait(&format!("document.querySelector('.fit .now').textContent === {algorithm:?}"));
    lab.picture(GUIDE, "fib", ".spark");
    lab.browser.press("4", 52);
    lab.view("sources");
    let sources: Vec<Value> = lab.router.ask("source show");
    assert_eq!(
        lab.number("document.querySelectorAll('#view-sources tbody tr').length"),
        sources.len() as u64
    );
    lab.picture(GUIDE, "sources", ".none");
    lab.browser.press("5", 53);
    lab.view("hops");
    lab.browser
        .wait("document.querySelectorAll('table[aria-label=\"Next hops\"] tbody tr').length >= 4");
    // A list is narrowed as one types.
    lab.browser.click("#view-hops input", (0.5, 0.5));
    lab.browser.insert("10.0.2.2");
    lab.browser.wait("[...document.querySelectorAll('table[aria-label=\"Next hops\"] tbody tr')].every((row) => row.textContent.includes('10.0.2.2'))");
    lab.picture(GUIDE, "hops", ".none");
    lab.browser.click("nav a[href='#neighbors']", (0.5, 0.5));
    lab.view("neighbors");
    lab.browser.wait("[...document.querySelectorAll('#view-neighbors td')].some((cell) => cell.textContent === '10.0.2.2')");
    lab.picture(GUIDE, "neighbors", ".badge");
}

fn packet(lab: &mut Lab) {
    lab.browser.press("/", 191);
    lab.browser.wait("document.activeElement?.name === 'packet'");
    lab.browser.insert("10.0.2.2");
    lab.browser.press("Enter", 13);
    lab.browser.wait("document.querySelector('.verdict')?.textContent.includes('forward')");
    let why: Value = lab.router.ask("why 10.0.2.2");
    let steps = why["dry_run"]["steps"].as_array().expect("it is a list").len() as u64;
    assert_eq!(lab.number("document.querySelectorAll('ol.steps li').length"), steps);
    lab.browser.wait("document.querySelector('ol.steps li.sent')");
    lab.picture(GUIDE, "packet", ".none");
    lab.browser.value("document.querySelector('input[name=packet]').value = 'no address'");
    lab.browser.click("#view-packet button", (0.5, 0.5));
    lab.browser.wait("document.querySelector('[role=alert]')?.textContent.includes('no address')");
    // The browser itself reports the refusal as an error.
    let status: Vec<String> = lab.browser.errors().to_vec();
    assert!(status.iter().all(|error| error.contains("400")), "{status:#?}");
    lab.browser.forget_errors();
}

fn space(lab: &mut Lab) {
    lab.browser.click("nav a[href='#space']", (0.5, 0.5));
    let drawn = "document.querySelector('#view-space')?.dataset.drawn";
    lab.browser.wait(drawn);
    let took = lab.number(&format!("Number({drawn})"));
    let limit = patience(Duration::from_millis(DRAWN_MS));
    println!("the map was drawn in {took} ms");
    assert!(Duration::from_millis(took) <= limit, "the map took {took} ms to draw");
    lab.follows();
    let colors = "(() => { const c = document.querySelector('.cells'); const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, \
                  c.width, c.height).data.buffer); return new Set(d).size; })()";
    assert!(lab.number(colors) > 8);
    churn(lab);
    // By pointer into a prefix, by keyboard further and out again.
    lab.browser.click(".over", (0.1, 0.1));
    lab.browser.wait("document.querySelector('#view-space').dataset.square.endsWith('/4')");
    assert_eq!(lab.number("document.querySelectorAll('.crumbs li').length"), 2);
    lab.browser.value("document.querySelector('.over').focus()");
    for key in ["ArrowRight", "ArrowDown", "Enter"] {
        lab.browser.press(key, if key == "Enter" { 13 } else { 39 });
    }
    lab.browser.wait("document.querySelector('#view-space').dataset.square.endsWith('/8')");
    lab.browser.press("Backspace", 8);
    lab.browser.press("Backspace", 8);
    lab.browser.wait("document.querySelector('#view-space').dataset.square === '0.0.0.0/0'");
    // A prefix that is typed: the cell under the cursor is it.
    lab.browser.click("input[name=prefix]", (0.5, 0.5));
    lab.browser.insert("10.0.2.2");
    lab.browser.press("Enter", 13);
    lab.browser.wait("document.querySelector('#cell h2')?.textContent === '10.0.2.2/32'");
    lab.browser.wait("document.querySelector('#cell dd').textContent === '1'");
    lab.browser.click("button[data-name='6']", (0.5, 0.5));
    lab.browser.wait("document.querySelector('#view-space').dataset.square === '2000::/3'");
    lab.browser.click("button[data-name='4']", (0.5, 0.5));
    lab.browser.wait("document.querySelector('#view-space').dataset.square === '0.0.0.0/0'");
    for name in ["hop", "traffic", "length"] {
        lab.browser.click(&format!("button[data-name={name}]"), (0.5, 0.5));
        lab.browser.wait("document.querySelectorAll('.legend i').length >= 2");
        assert!(lab.number(colors) >= 2, "{name}");
    }
    lab.browser.click(".over", (2.0, 0.5));
    lab.browser.size(1360, 980, true);
    lab.browser.wait("document.documentElement.dataset.theme === 'dark'");
    lab.browser.value("scrollTo(0, 0)");
    std::thread::sleep(Duration::from_millis(300));
    lab.picture(GUIDE, "space", ".none");
}

/// Routes that change, ten thousand a second, and the map that follows them.
fn churn(lab: &mut Lab) {
    let mut files = [String::new(), String::new()];
    for i in 0..CHURN {
        let addr = std::net::Ipv4Addr::from_bits((0x0B00_0000 + i * 0x0005_1357) & 0xffff_ffc0);
        // The last round may have left them.
        let _ = writeln!(files[0], "route replace {addr}/26 via 10.0.2.2");
        let _ = writeln!(files[1], "route del {addr}/26 via 10.0.2.2");
    }
    let files =
        [("add", &files[0]), ("del", &files[1])].map(|(name, text)| lab.folder.write(name, text));
    let changed = "Number(document.querySelector('#view-space').dataset.changed)";
    let before = lab.number(changed);
    let until = Instant::now() + patience(Duration::from_secs(20));
    // A cell that changes back and forth between two looks is as it was: on a machine with much else to do a look may take long.
    for round in 0.. {
        let begun = Instant::now();
        ip(&format!("-n {} -force -batch {}", lab.line.router, files[round % 2]));
        std::thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
        let seen = lab.number(changed) - before;
        if round > 0 && seen > u64::from(CHURN) {
            break;
        }
        assert!(Instant::now() < until, "{seen} cells have changed");
    }
    ip(&format!("-n {} -force -batch {}", lab.line.router, files[0]));
    lab.follows();
    ip(&format!("-n {} -force -batch {}", lab.line.router, files[1]));
    lab.follows();
}

/// A router that hangs is reported, and once more when it answers; both are announced to readers of screens.
fn hangs(lab: &mut Lab) {
    let is = |kind: &str, announced: &str| {
        format!(
            "document.querySelector('#state .dot').classList.contains('{kind}') && \
             document.getElementById('announced').textContent.startsWith('{announced}')"
        )
    };
    lab.browser.wait(&is("ok", "The router answers"));
    lab.router.signal("STOP");
    lab.browser.wait(&is("bad", "The router does not answer: no answer"));
    lab.router.signal("CONT");
    lab.browser.wait(&is("ok", "The router answers"));
    lab.browser.forget_errors();
}

fn phone(lab: &mut Lab) {
    lab.browser.size(390, 844, true);
    for (name, words, live) in VIEWS {
        lab.browser.value(&format!("location.hash = '#{words}'"));
        lab.looked(name, 1);
        match name {
            "packet" => lab.browser.wait("document.querySelector('ol.steps li.sent')"),
            "space" => lab.browser.wait("document.querySelector('#view-space').dataset.drawn"),
            _ => {}
        }
        let wide = "document.documentElement.scrollWidth > innerWidth";
        assert_eq!(lab.browser.value(wide), false, "{name} is wider than a phone");
        lab.browser.value("scrollTo(0, 0)");
        lab.picture(PHONE, name, live);
    }
}
