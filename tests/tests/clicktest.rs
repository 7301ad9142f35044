//! Click's own tests, as far as they are at hand: `fingerpost click` in the place of `click`.

use std::process::{Command, Stdio};

use fingerpost_tests::{program, quick, skip, tables};

/// Tests that may fail: those of multicast sockets need a route to all groups, and one the program `nc`.
const MAY_FAIL: [&str; 4] = [
    "userlevel/McastSocket-01.clicktest",
    "userlevel/McastSocket-02.clicktest",
    "userlevel/McastSocket-03.clicktest",
    "userlevel/uhotswap-01.clicktest",
];

/// Tests that there are.
const TESTS: usize = 59;

#[test]
fn the_tests_of_click_pass() {
    let tree = tables::data().join("click/clicktest");
    let Some(program) = program().filter(|_| !quick()) else { return };
    if !tree.join("run").exists() {
        return skip("Click's tests (FINGERPOST_DATA)");
    }
    let perl = Command::new("perl").arg("-v").stdout(Stdio::null()).status();
    if !perl.is_ok_and(|status| status.success()) {
        return skip("perl");
    }
    let output = Command::new(tree.join("run")).arg(program).output().expect("bash runs it");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let of = |word: &str| lines.lines().filter(|line| line.starts_with(word)).collect::<Vec<_>>();
    let (passed, failed) = (of("pass "), of("fail "));
    assert_eq!(passed.len() + failed.len(), TESTS, "{lines}");
    let excused = |line: &&&str| MAY_FAIL.iter().any(|name| line.contains(name));
    assert_eq!(failed.iter().filter(excused).count(), failed.len(), "{failed:#?}");
}
