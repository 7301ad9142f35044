//! The router gives memory back when a full table goes, as the kernel counts it.

use std::io::Write;
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Line, Router, run};
use fingerpost_tests::program;
use serde_json::Value;

/// Routes of the table: as many as the public IPv4 table has.
const ROUTES: u32 = 900_000;
/// What may stay whatever the table was: the log of changes (7 MiB), and room that stores keep.
const SLACK_KIB: u64 = 8 << 10;

fn fib_v4(router: &Router) -> Value {
    let rows: Vec<Value> = router.ask("fib show");
    rows.into_iter().find(|row| row["family"] == 4).expect("there is one of IPv4")
}

#[test]
fn a_withdrawn_table_leaves_no_memory_behind() {
    let Some(line) = Line::new(&[]) else { return };
    let folder = std::env::temp_dir().join(format!("{}-memory", line.router));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let table = folder.join("table.txt");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&table).expect("as above"));
    for n in 0..ROUTES {
        let (a, b, c) = (20 + (n >> 16), n >> 8 & 255, n & 255);
        writeln!(file, "{a}.{b}.{c}.0/24 10.0.2.{}", 2 + n % 8).expect("as above");
    }
    file.flush().expect("as above");
    let kernel = "[[source]]\nkind = \"kernel\"\n";
    let (empty, full) = (folder.join("empty.toml"), folder.join("full.toml"));
    std::fs::write(&empty, kernel).expect("as above");
    let source = format!("{kernel}[[source]]\nkind = \"file\"\npath = \"{}\"\n", table.display());
    std::fs::write(&full, source).expect("as above");

    let router = Router::start(&line.router, &empty.display().to_string(), 2);
    let apply = |file: &std::path::Path| {
        let program = program().expect("the line was made with it");
        run(&line.router, &format!("{} config apply {}", program.display(), file.display()));
    };
    let before = fib_v4(&router);
    assert_eq!(
        (&before["bytes_per_prefix"], &before["bytes_per_route"]),
        (&Value::Null, &Value::Null)
    );
    let fresh = router.resident_kib();
    for round in 0..2 {
        apply(&full);
        let row = fib_v4(&router);
        assert!(row["prefixes"].as_u64() >= Some(u64::from(ROUTES)), "{row}");
        let each = row["bytes_per_route"].as_f64().expect("there are many");
        assert!(1.0 < each && each < 200.0, "{row}");
        let loaded = router.resident_kib();
        assert!(loaded > fresh + (48 << 10), "{fresh} KiB fresh, {loaded} KiB loaded");

        apply(&empty);
        let most = fresh + fresh / 4 + SLACK_KIB;
        let until = Instant::now() + Duration::from_secs(20);
        // Routes are withdrawn in pieces, and memory is returned after them.
        let (mut left, mut row) = (router.resident_kib(), fib_v4(&router));
        while (left > most || row["prefixes"] != before["prefixes"]) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
            (left, row) = (router.resident_kib(), fib_v4(&router));
        }
        assert!(
            left <= most,
            "round {round}: {fresh} KiB fresh, {loaded} KiB loaded, {left} KiB left: {row}"
        );
        assert!(row["rib_bytes"].as_u64() < Some(1 << 20), "{row}");
        assert_eq!(
            (&row["bytes_per_prefix"], &row["bytes_per_route"]),
            (&Value::Null, &Value::Null)
        );
        eprintln!("{fresh} KiB fresh, {loaded} KiB loaded, {left} KiB left");
    }
    router.stop();
    let _ = std::fs::remove_dir_all(&folder);
}
