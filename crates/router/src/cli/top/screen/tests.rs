//! The screen in a terminal of memory, after keys.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::Color;
use serde_json::{Value, json};

use super::draw::draw;
use super::state::{Next, Screen};
use crate::cli::top::{Drops, Picture, Rates, Share};

fn status() -> Value {
    let quantiles = json!({"count": 1, "p50_ms": 0.1, "p99_ms": 0.1, "longest_ms": 0.1});
    json!({"version": "0.1.0", "pid": 7, "seconds": 61.4, "routes_v4": 912_000, "routes_v6": 3, "interfaces": 2,
           "workers": 2, "workers_alive": 2, "resident_kib": 40_960, "visible": quantiles,
           "turns": {"cpu": quantiles, "wall": quantiles, "longest_stage": "commit", "longest_stage_ms": 0.1}})
}

fn picture(rate: f64) -> Picture {
    let interface = |name: &str, up, rx_packets| Rates {
        name: name.to_owned(),
        up,
        path: "xdp".to_owned(),
        policy: (!up).then(|| "nftables: chain forward".to_owned()),
        rx_packets,
        rx_bits: rx_packets * 8e3,
        tx_packets: rx_packets / 2.0,
        tx_bits: rx_packets * 4e3,
        punted: 0.0,
        dropped: 0.0,
        remedy: None,
    };
    let element = |name: &str, worker, packets, share| Share {
        name: name.to_owned(),
        worker: Some(worker),
        packets,
        average_batch: Some(32.0),
        cycles: Some(40.0),
        share: Some(share),
    };
    Picture {
        status: serde_json::from_value(status()).unwrap(),
        seconds: 1.0,
        forwarded_xdp: 0.0,
        interfaces: vec![
            interface("lan0", true, rate),
            interface("wan0", true, rate * 10.0),
            interface("wan1", false, 0.0),
        ],
        elements: vec![
            element("lookup4", 0, 700.0, 0.5),
            element("input", 0, 900.0, 0.2),
            element("lookup4", 1, 400.0, 0.3),
        ],
        drops: vec![Drops {
            element: "lookup4".to_owned(),
            reason: "no_route".to_owned(),
            packets: 3.0,
            total: 12,
        }],
        fibs: Vec::new(),
        sources: Vec::new(),
    }
}

fn press(screen: &mut Screen, keys: &str) -> Next {
    let code = |c| match c {
        '\r' => KeyCode::Enter,
        '\x1b' => KeyCode::Esc,
        c => KeyCode::Char(c),
    };
    keys.chars().map(|c| screen.key(KeyEvent::from(code(c)))).last().expect("some keys")
}

/// What is drawn, a line each without blanks at the end, and the number of red cells.
fn drawn(screen: &Screen, width: u16, height: u16) -> (Vec<String>, usize) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    let red = buffer.content().iter().filter(|cell| cell.fg == Color::Red && cell.symbol() != " ");
    ((0..height).map(line).collect(), red.count())
}

fn screen() -> Screen {
    let mut screen = Screen::new(true);
    screen.push(picture(50.0));
    screen.push(picture(100.0));
    screen
}

#[test]
fn interfaces_have_rates_sparklines_and_what_is_wrong() {
    let (lines, red) = drawn(&screen(), 100, 14);
    let want = [
        "fingerpost 0.1.0, process 7, up 61 s, 40 MiB, 2 workers, 912000 IPv4 and 3 IPv6 prefixes",
        "in      ▅█ 1100 packets/s",
        "out     ▅█ 550 packets/s",
        "dropped ██ 3 packets/s",
        " 1 interfaces  2 workers  3 elements  4 drops  5 FIB  6 sources",
        "interface  path  in/s  Mbit/s  out/s  Mbit/s  punted/s  dropped/s  in/s",
        "lan0       xdp   100   0.8     50     0.4     0         0          ▅█",
        "wan0       xdp   1000  8.0     500    4.0     0         0          ▅█",
        "wan1       down  0     0.0     0      0.0     0         0          ▁▁",
        "",
        "",
        "",
        "",
        "? help  / filter  s sort  p pause  q quit",
    ];
    assert_eq!(lines, want);
    assert!(red > 0);
    let mut plain = screen();
    plain.colors = false;
    assert_eq!(drawn(&plain, 100, 14), (lines, 0), "NO_COLOR");
}

#[test]
fn keys_sort_filter_select_and_pause() {
    let mut screen = screen();
    let names = |screen: &Screen| -> Vec<String> {
        screen.table().rows.iter().map(|row| row.cells[0].clone()).collect()
    };
    press(&mut screen, "sss");
    assert_eq!(names(&screen), ["wan0", "lan0", "wan1"], "by packets in, the largest first");
    assert!(drawn(&screen, 100, 14).0[5].contains("in/s▼"));
    press(&mut screen, "r");
    assert_eq!(names(&screen), ["wan1", "lan0", "wan0"]);
    assert_eq!(
        drawn(&screen, 100, 14).0[12],
        "nftables: chain forward",
        "details of the selected row"
    );
    press(&mut screen, "SSS");
    assert_eq!((screen.sort(), names(&screen).len()), (None, 3));
    press(&mut screen, "/wan\r");
    assert_eq!(names(&screen), ["wan0", "wan1"]);
    press(&mut screen, "jjjj");
    assert_eq!(screen.selected, 1, "the last row");
    assert!(drawn(&screen, 100, 14).0[13].ends_with("filter: wan"));
    assert_eq!(press(&mut screen, "/q"), Next::Stay, "text of the filter");
    press(&mut screen, "\x1b");
    assert_eq!(names(&screen).len(), 3);

    press(&mut screen, "p");
    screen.push(picture(7.0));
    assert_eq!(screen.table().rows[0].cells[2], "100", "paused");
    assert!(drawn(&screen, 100, 14).0[13].ends_with("PAUSED"));
    press(&mut screen, "p");
    screen.push(picture(7.0));
    assert_eq!(screen.table().rows[0].cells[2], "7");
    assert_eq!(press(&mut screen, "q"), Next::Quit);
}

#[test]
fn no_rows_add_up_to_zero() {
    let mut screen = Screen::new(true);
    screen.push(Picture { drops: Vec::new(), ..picture(0.0) });
    assert!(drawn(&screen, 100, 14).0[3].ends_with(" 0 packets/s"));
    assert!(!drawn(&screen, 100, 14).0[3].contains('-'));
}

#[test]
fn each_tab_is_drawn_at_any_size() {
    let mut screen = screen();
    for (key, words) in [
        ("2", "0       900        32.0   70.0     lookup4"),
        ("3", "lookup4  0       700        32.0   40.0    50.0"),
        ("4", "lookup4     no_route  3          12"),
        ("5", "no rows"),
        ("6", "no rows"),
    ] {
        press(&mut screen, key);
        let (lines, _) = drawn(&screen, 100, 14);
        assert!(lines.iter().any(|line| line.starts_with(words)), "{words}: {lines:#?}");
    }
    press(&mut screen, "4");
    assert!(!drawn(&screen, 100, 14).0[12].is_empty(), "what the reason means");
    press(&mut screen, "?");
    let (lines, _) = drawn(&screen, 100, 20);
    assert!(lines.iter().any(|line| line.contains("q, Ctrl-C")), "{lines:#?}");
    for (width, height) in [(1, 1), (10, 3), (40, 8), (300, 100)] {
        drawn(&screen, width, height);
    }
    drawn(&Screen::new(true), 80, 24);
}
