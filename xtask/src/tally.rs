//! Counts what passed, failed and was skipped, from the lines that the steps print.
//!
//! `cargo test -- --show-output` prints what each passed test wrote, under the test's name, before
//! its `test result:` line. A test that cannot run here writes `skipped: needs X` and returns; the
//! test runner calls it passed, and it is counted as skipped here. What passed tests wrote is not
//! shown again otherwise: it would bury the rest. One that writes `skipped: needs a machine with X` has another chance:
//! it is run again in a machine of its own (`vm`), and what it does there counts instead.

use std::collections::{BTreeMap, BTreeSet};

/// What a test that cannot run writes, at the start of a line.
const SKIPPED: &str = "skipped: ";

/// What a test writes that can run in a machine of its own: `8021q` and the like follow.
const MACHINE: &str = "skipped: needs a machine with ";

/// The sums of all steps.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// What was skipped, once a test, and the reason.
    skipped: BTreeMap<String, String>,
    /// Skipped tests that can run in a machine of their own: by program as cargo names it, the test, and its name in
    /// `skipped`.
    for_machine: BTreeMap<String, BTreeMap<String, String>>,
    /// Names for the end of the report.
    failures: BTreeSet<String>,
    /// Programs that failed and were run again; what they did then is counted.
    again: BTreeSet<String>,
}

impl Tally {
    /// A step that is one thing, such as the linter.
    pub(crate) fn gate(&mut self, name: &str, ok: bool) {
        if ok {
            self.passed += 1;
        } else {
            self.fail(name);
        }
    }

    /// A step that could not run.
    pub(crate) fn skip(&mut self, name: &str, needs: &str) {
        self.skipped.insert(name.to_owned(), format!("{SKIPPED}needs {needs}"));
    }

    /// Tests that can run in a machine of their own, by program as cargo names it.
    pub(crate) fn for_machine(&self) -> Vec<(String, Vec<String>)> {
        let names = |tests: &BTreeMap<String, String>| tests.keys().cloned().collect();
        self.for_machine.iter().map(|(program, tests)| (program.clone(), names(tests))).collect()
    }

    /// Forgets that they were skipped: what they do in the machine counts.
    pub(crate) fn in_machine(&mut self) {
        for name in
            std::mem::take(&mut self.for_machine).into_values().flat_map(BTreeMap::into_values)
        {
            self.skipped.remove(&name);
        }
    }

    /// Adds to their reason what a machine would need.
    pub(crate) fn without_machine(&mut self, needs: &str) {
        for name in
            std::mem::take(&mut self.for_machine).into_values().flat_map(BTreeMap::into_values)
        {
            if let Some(reason) = self.skipped.get_mut(&name) {
                *reason += &format!(", or {needs} for one");
            }
        }
    }

    /// A program, as cargo names it, that failed beside others and is run again.
    pub(crate) fn again(&mut self, running: &str) {
        self.again.insert(program_name(running));
    }

    fn fail(&mut self, name: &str) {
        self.failed += 1;
        self.failures.insert(name.to_owned());
    }

    /// What was skipped and what failed, by name, then the sums alone on the last line.
    pub(crate) fn report(&self) -> String {
        let mut text = String::from("\n");
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, reason) in &self.skipped {
            reasons.entry(reason).or_default().push(name);
        }
        for (reason, names) in reasons {
            text += &format!("{reason}\n");
            for name in names {
                text += &format!("    {name}\n");
            }
        }
        for name in &self.again {
            text += &format!("failed at first, and ran again alone: {name}\n");
        }
        for name in &self.failures {
            text += &format!("failed: {name}\n");
        }
        let skipped = u64::try_from(self.skipped.len()).expect("a count") + self.ignored;
        text + &format!("{} passed, {} failed, {skipped} skipped", self.passed, self.failed)
    }

    /// Whether nothing failed.
    pub(crate) fn ok(&self) -> bool {
        self.failed == 0
    }
}

#[derive(Debug, PartialEq)]
enum Section {
    /// Between the lists: results, compiler messages, failures.
    Open,
    /// What passed tests wrote; the name of the test whose lines these are.
    Passed(String),
}

/// Reads the output of one `cargo test`.
#[derive(Debug)]
pub(crate) struct TestReader<'a> {
    tally: &'a mut Tally,
    step: &'a str,
    /// The test program that is running, by its source.
    program: String,
    /// Its name as cargo writes it, with its path.
    running: String,
    section: Section,
    /// Tests of this program that wrote that they skip.
    skipped_here: u64,
    /// Tests of all programs of this step.
    ran: u64,
    failed_before: u64,
    /// Failed tests before the program that runs.
    failed_before_program: u64,
}

impl<'a> TestReader<'a> {
    pub(crate) fn new(step: &'a str, tally: &'a mut Tally) -> Self {
        let failed_before = tally.failed;
        Self {
            tally,
            step,
            program: step.to_owned(),
            running: String::new(),
            section: Section::Open,
            skipped_here: 0,
            ran: 0,
            failed_before,
            failed_before_program: failed_before,
        }
    }

    /// Takes one line; returns whether it is worth showing.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        // A result closes whatever went before; a child of a test may have written in front of it.
        let result = line.split_once("test result: ").and_then(|(_, result)| counts(result));
        if let Some([passed, failed, ignored]) = result {
            self.tally.passed += passed.saturating_sub(self.skipped_here);
            self.tally.failed += failed;
            self.tally.ignored += ignored;
            self.ran += passed + failed;
            self.skipped_here = 0;
            self.section = Section::Open;
            return true;
        }
        if self.section == Section::Open { self.open_line(line) } else { self.passed_line(line) }
    }

    fn open_line(&mut self, line: &str) -> bool {
        if let Some(program) = line.trim_start().strip_prefix("Running ") {
            self.program = program_name(program);
            program.clone_into(&mut self.running);
            self.failed_before_program = self.tally.failed;
        } else if let Some(program) = line.trim_start().strip_prefix("Doc-tests ") {
            self.program = format!("documentation of {program}");
        } else if line == "successes:" {
            self.section = Section::Passed(String::new());
            return false;
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED"))
        {
            self.tally.failures.insert(format!("{name} ({})", self.program));
        }
        true
    }

    fn passed_line(&mut self, line: &str) -> bool {
        if line == "failures:" {
            self.section = Section::Open;
            return true;
        }
        let name = line.strip_prefix("---- ").and_then(|l| l.strip_suffix(" stdout ----"));
        if let Some(name) = name {
            self.section = Section::Passed(name.to_owned());
        } else if line.starts_with(SKIPPED) {
            let Section::Passed(test) = &self.section else { return false };
            let name = format!("{test} ({})", self.program);
            if line.starts_with(MACHINE) {
                let tests = self.tally.for_machine.entry(self.running.clone()).or_default();
                tests.insert(test.clone(), name.clone());
            }
            if self.tally.skipped.insert(name, line.to_owned()).is_none() {
                self.skipped_here += 1;
            }
        }
        false
    }

    /// The program that was running is over. A failure without a failed test, such as a program that died, is one.
    pub(crate) fn program_ended(&mut self, ok: bool) {
        if !ok && self.tally.failed == self.failed_before_program {
            self.tally.fail(&format!("{} ({})", self.step, self.program));
        }
        self.section = Section::Open;
        self.skipped_here = 0;
    }

    /// The step is over. A failure without a failed test, such as code that does not compile or a
    /// test program that died, is one failure; so is a step that ran no test, because what it
    /// names has another name by now.
    pub(crate) fn end(self, ok: bool) {
        if !ok && self.tally.failed == self.failed_before {
            self.tally.fail(&format!("{} ({})", self.step, self.program));
        } else if ok && self.ran == 0 {
            self.tally.fail(&format!("{} ran no test", self.step));
        }
    }
}

/// `x: unittests src/lib.rs` of `unittests src/lib.rs (target/debug/deps/x-0123456789abcdef)`: without
/// the crate, the libraries would all have one name.
fn program_name(running: &str) -> String {
    let parts = running.strip_suffix(')').and_then(|rest| rest.split_once(" ("));
    let Some((source, path)) = parts else { return running.to_owned() };
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
    format!("{name}: {source}")
}

/// `passed, failed, ignored` of `ok. 3 passed; 0 failed; 0 ignored; ...`.
fn counts(result: &str) -> Option<[u64; 3]> {
    let (_, numbers) = result.split_once(". ")?;
    let mut all = [0; 3];
    for (part, (sum, word)) in
        numbers.split("; ").zip(all.iter_mut().zip(["passed", "failed", "ignored"]))
    {
        let (number, what) = part.split_once(' ')?;
        if what != word {
            return None;
        }
        *sum = number.parse().ok()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
   Compiling x v0.1.0
     Running unittests src/lib.rs (target/debug/deps/x-1)

running 4 tests
test a ... ok
test b ... ok
test c ... FAILED
test d ... ok

successes:

---- a stdout ----
skipped: needs root
skipped: needs root
---- d stdout ----
hello
it says skipped: needs nothing


successes:
    a
    b
    d

failures:

---- c stdout ----
skipped: needs luck
thread 'c' panicked

failures:
    c

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s

     Running tests/y.rs (target/debug/deps/y-1)

successes:

---- a stdout ----
skipped: needs valgrind

successes:
    a

noise of a childtest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
   Doc-tests x
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    fn read(text: &str, ok: bool) -> (Tally, Vec<String>) {
        let mut tally = Tally::default();
        let mut shown = Vec::new();
        let mut reader = TestReader::new("step", &mut tally);
        for line in text.lines() {
            if reader.line(line) {
                shown.push(line.to_owned());
            }
        }
        reader.end(ok);
        (tally, shown)
    }

    #[test]
    fn a_skip_is_counted_once_a_test_and_not_as_passed() {
        let (tally, shown) = read(OUTPUT, false);
        let report = tally.report();
        assert_eq!(report.lines().last(), Some("4 passed, 1 failed, 3 skipped"), "{report}");
        assert!(
            report.contains("skipped: needs root\n    a (x: unittests src/lib.rs)"),
            "{report}"
        );
        assert!(report.contains("skipped: needs valgrind\n    a (y: tests/y.rs)"), "{report}");
        assert!(report.contains("failed: c (x: unittests src/lib.rs)"), "{report}");
        assert!(!report.contains("luck") && !report.contains("needs nothing"), "{report}");
        assert!(!tally.ok());
        // What failed tests wrote is shown, what passed ones wrote is not.
        assert!(shown.iter().any(|l| l == "skipped: needs luck"));
        assert!(!shown.iter().any(|l| l == "hello"));
    }

    #[test]
    fn each_program_that_dies_is_a_failure() {
        let mut tally = Tally::default();
        let mut reader = TestReader::new("step", &mut tally);
        for (name, line, ok) in [
            ("a", "test result: FAILED. 0 passed; 1 failed; 0 ignored", false),
            ("b", "error: signal 11", false),
            ("c", "test result: ok. 2 passed; 0 failed; 0 ignored", true),
            ("d", "", false),
        ] {
            reader.line(&format!("     Running tests/{name}.rs (target/{name}-1)"));
            reader.line(line);
            reader.program_ended(ok);
        }
        reader.end(true);
        let report = tally.report();
        assert!(report.ends_with("\n2 passed, 3 failed, 0 skipped"), "{report}");
        assert!(report.contains("failed: step (b: tests/b.rs)\nfailed: step (d: tests/d.rs)"));
    }

    #[test]
    fn a_failure_without_a_failed_test_counts() {
        let (tally, _) = read("     Running tests/y.rs (y-1)\nerror: signal 11\n", false);
        assert_eq!(tally.report(), "\nfailed: step (y: tests/y.rs)\n0 passed, 1 failed, 0 skipped");
        let (tally, _) = read("test result: ok. 5 passed; 0 failed; 0 ignored\n", true);
        assert!(tally.ok() && tally.report().ends_with("\n5 passed, 0 failed, 0 skipped"));
        let (tally, _) = read("test result: ok. 0 passed; 0 failed; 0 ignored\n", true);
        assert_eq!(tally.report(), "\nfailed: step ran no test\n0 passed, 1 failed, 0 skipped");
    }

    const ALONE: &str = "
     Running tests/y.rs (target/debug/deps/y-1)

successes:

---- a stdout ----
skipped: needs a machine with vlan interfaces
---- b stdout ----
skipped: needs root

successes:
    a
    b

test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
";

    #[test]
    fn what_runs_in_a_machine_is_counted_there_alone() {
        let (mut tally, _) = read(ALONE, true);
        let running = "tests/y.rs (target/debug/deps/y-1)".to_owned();
        assert_eq!(tally.for_machine(), [(running.clone(), vec!["a".to_owned()])]);
        tally.in_machine();
        assert!(tally.for_machine().is_empty());
        let mut reader = TestReader::new("vm", &mut tally);
        for line in
            [&format!("     Running {running}"), "test result: ok. 1 passed; 0 failed; 0 ignored"]
        {
            reader.line(line);
        }
        reader.end(true);
        assert_eq!(
            tally.report(),
            "\nskipped: needs root\n    b (y: tests/y.rs)\n2 passed, 0 failed, 1 skipped"
        );

        let (mut tally, _) = read(ALONE, true);
        tally.without_machine("KVM");
        let reason = "skipped: needs a machine with vlan interfaces, or KVM for one\n    a (y: tests/y.rs)\n";
        let report = tally.report();
        assert!(
            report.contains(reason) && report.ends_with("\n1 passed, 0 failed, 2 skipped"),
            "{report}"
        );
    }

    #[test]
    fn gates_and_missing_tools_count() {
        let mut tally = Tally::default();
        tally.gate("format", true);
        tally.gate("lint", false);
        tally.skip("loom", "cargo");
        assert!(tally.report().ends_with("failed: lint\n1 passed, 1 failed, 1 skipped"));
    }
}
