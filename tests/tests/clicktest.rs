//! Click's own tests, as far as they are at hand: `fingerpost click` in the place of `click`.

use std::process::{Command, Stdio};

use fingerpost_tests::{program, quick, skip, tables};

/// Tests that may fail: they send to multicast groups, which needs a route to all of them.
const MAY_FAIL: [&str; 3] = [
    "userlevel/McastSocket-01.clicktest",
    "userlevel/McastSocket-02.clicktest",
    "userlevel/McastSocket-03.clicktest",
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
    // `nc -h` succeeds as `perl -h` does.
    for tool in ["perl", "nc"] {
        let mut help = Command::new(tool);
        let status = help.arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            return skip(tool);
        }
    }
    let output = Command::new(tree.join("run")).arg(program).output().expect("bash runs it");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let of = |word: &str| lines.lines().filter(|line| line.starts_with(word)).collect::<Vec<_>>();
    let (passed, failed) = (of("pass "), of("fail "));
    assert_eq!(passed.len() + failed.len(), TESTS, "{lines}");
    let excused = |line: &&&str| MAY_FAIL.iter().any(|name| line.contains(name));
    assert_eq!(failed.iter().filter(excused).count(), failed.len(), "{failed:#?}");
}
