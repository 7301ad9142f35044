//! What a machine must have for a daemon to run in a network namespace.

use std::process::Command;
use std::sync::Mutex;

/// `None`, after a message, where no daemon can run.
pub(crate) fn possible() -> Option<()> {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        println!("skipped: needs time (FINGERPOST_QUICK is set)");
        return None;
    }
    let id = Command::new("id").arg("-u").output().ok()?;
    if id.stdout != b"0\n" {
        println!("skipped: needs root");
        return None;
    }
    if !Command::new("ip").arg("-V").output().is_ok_and(|ip| ip.status.success()) {
        println!("skipped: needs ip");
        return None;
    }
    // Root of a container may not be root enough.
    let name = format!("fpapitry{}", std::process::id());
    let try_out = |word: &str| Command::new("ip").args(["netns", word, &name]).output();
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !try_out("add").is_ok_and(|made| made.status.success()) {
        println!("skipped: needs network namespaces");
        return None;
    }
    let _ = try_out("del");
    Some(())
}
