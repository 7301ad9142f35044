//! Instructions a packet on the forwarding path, against recorded counts: the gate that does not depend
//! on how busy the machine is.
//!
//! The counts are callgrind's, of `fingerpost bench forward` on every 45th route of the shipped tables.
//! They hold for one compiler; with another the test prints what it counted and skips. To accept new
//! counts: `FINGERPOST_ACCEPT=1 cargo test -p fingerpost-tests --test instructions`.
//!
//! The machine code of the released program has a bound as well (`docs/decisions/0015-size-outside-the-packet-path.md`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use fingerpost_route::source::table::FileHop;
use fingerpost_tests::{lab, program, quick, root, skip, tables};

/// Packets of a run: enough that the few instructions around the path do not show.
const PACKETS: u64 = 20_000;
/// Routes left out between two that are kept: the path's instructions hardly depend on the size of the
/// table, and callgrind is fifty times slower than the machine.
const THIN: usize = 45;
/// More instructions than recorded by this part fail: 1/20.
const TOLERANCE: u64 = 20;

/// Most bytes of machine code of the released program, by its default features.
const MOST_CODE_BYTES: u64 = 15_000_000;

struct Case {
    name: &'static str,
    table: &'static str,
}

const CASES: [Case; 2] = [
    Case { name: "graph-v4", table: "v4-tier1-nh496.txt.xz" },
    Case { name: "graph-v6", table: "v6-tier1-nh496.txt.xz" },
];

fn record() -> PathBuf {
    root().join("lab/records/instructions.toml")
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output().expect("it compiled this");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A part of a shipped table, as text.
fn thin(table: &str, folder: &Path) -> PathBuf {
    let mut text = String::new();
    for entry in tables::entries(table).step_by(THIN) {
        if let FileHop::Addr(hop) = entry.hop {
            writeln!(text, "{} {hop}", entry.prefix).expect("a string takes all");
        }
    }
    let path = folder.join(table.trim_end_matches(".xz"));
    std::fs::write(&path, text).expect("the temporary folder can be written");
    path
}

/// Instructions a packet.
fn count(program: &Path, table: &Path, folder: &Path) -> u64 {
    let out = folder.join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*counted_section*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["bench", "forward", "--json", "--stream", "prefix", "--destinations", "4096"])
        .args(["--instructions", &PACKETS.to_string(), "--table"])
        .arg(table)
        .output()
        .expect("valgrind was found before");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let line = said.lines().find_map(|line| line.split_once("Collected : ")).expect("a count");
    let collected: u64 = line.1.trim().parse().expect("a number");
    assert!(collected > PACKETS * 10, "nothing was counted: {said}");
    collected / PACKETS
}

#[test]
fn the_path_takes_no_more_instructions_than_recorded() {
    if quick() {
        return skip("time (FINGERPOST_QUICK is set)");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("valgrind");
    }
    let Some(program) = lab() else { return skip("a release build of fingerpost-lab") };
    let folder =
        std::env::temp_dir().join(format!("fingerpost-instructions-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let counted: Vec<(&str, u64)> = CASES
        .iter()
        .map(|case| (case.name, count(&program, &thin(case.table, &folder), &folder)))
        .collect();
    let _ = std::fs::remove_dir_all(&folder);
    println!("instructions a packet: {counted:?}");
    if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
        let mut text = String::from(
            "# Instructions a packet, counted by callgrind: tests/tests/instructions.rs\n",
        );
        let _ = writeln!(text, "compiler = {:?}", compiler());
        for (name, count) in &counted {
            let _ = writeln!(text, "{name} = {count}");
        }
        std::fs::write(record(), text).expect("the record can be written");
        return;
    }
    let text = std::fs::read_to_string(record()).expect("the record is checked in");
    let record: toml::Table = text.parse().expect("the record is TOML");
    if record["compiler"].as_str() != Some(&compiler()) {
        return skip(&format!("{} (recorded counts are its)", record["compiler"]));
    }
    for (name, count) in counted {
        let recorded =
            record[name].as_integer().and_then(|n| u64::try_from(n).ok()).expect("a count");
        assert!(
            count <= recorded + recorded / TOLERANCE,
            "{name}: {count} instructions a packet, {recorded} recorded"
        );
    }
}

#[test]
fn the_released_program_has_bounded_code() {
    let Some(program) = program().filter(|_| !quick()) else {
        return skip("cargo build --release");
    };
    let Ok(output) = Command::new("size").arg("-A").arg(&program).output() else {
        return skip("size (binutils)");
    };
    let sections = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = sections.lines().find_map(|line| line.strip_prefix(".text "));
    let bytes: u64 =
        text.and_then(|text| text.split_whitespace().next()?.parse().ok()).expect(".text");
    println!("{bytes} bytes of code, at most {MOST_CODE_BYTES}");
    assert!(bytes <= MOST_CODE_BYTES, "{bytes} bytes of code: see decision 15");
}
