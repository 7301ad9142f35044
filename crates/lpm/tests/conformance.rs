//! The conformance suite on every registry row: one named test a row, family and check.
//!
//! Runs without libtest's harness, because its tests are named by the registry, not by this file.
//! Understands a filter, `--exact`, `--list` and `--test-threads`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{env, panic, thread};

use fingerpost_lpm::testing::{EXPECTED_PANIC, checks};
use fingerpost_lpm::{Addr, Algorithm, v4, v6};

struct Test {
    name: String,
    run: Box<dyn Fn() + Sync>,
}

fn tests_of<A: Addr>(rows: impl Iterator<Item = &'static Algorithm<A>>) -> Vec<Test> {
    let mut tests = Vec::new();
    for row in rows {
        for check in checks::<A>() {
            let name = format!("v{}::{}::{}", A::FAMILY, row.name, check.name);
            tests.push(Test { name, run: Box::new(move || (check.run)(row)) });
        }
    }
    tests
}

fn main() -> ExitCode {
    let mut filters = Vec::new();
    let (mut exact, mut list, mut threads) = (false, false, 2);
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--exact" => exact = true,
            "--list" => list = true,
            "--test-threads" => threads = args.next().and_then(|n| n.parse().ok()).unwrap_or(2),
            // Options of libtest that change nothing here; those with a value bring it along.
            "--format" | "--color" | "--skip" | "--logfile" => drop(args.next()),
            option if option.starts_with('-') => {}
            _ => filters.push(arg),
        }
    }
    let mut tests = tests_of(v4());
    tests.extend(tests_of(v6()));
    let all = tests.len();
    let wanted = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|f| if exact { name == f } else { name.contains(f.as_str()) })
    };
    tests.retain(|test| wanted(&test.name));
    if list {
        tests.iter().for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().name() != Some(EXPECTED_PANIC) {
            hook(info);
        }
    }));
    println!("\nrunning {} tests", tests.len());
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let passed = catch_unwind(AssertUnwindSafe(|| (test.run)())).is_ok();
                    if !passed {
                        failed.fetch_add(1, Ordering::SeqCst);
                    }
                    println!("test {} ... {}", test.name, if passed { "ok" } else { "FAILED" });
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out; \
         finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        tests.len() - failed,
        all - tests.len(),
        start.elapsed().as_secs_f64(),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
