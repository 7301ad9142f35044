//! The machine that the numbers of a document were measured on. Everything is read from
//! where Linux has it; what it does not have is left empty.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::document::Machine;

/// Commit of a program that no checkout has.
const UNKNOWN: &str = "unknown";

/// The machine as it is now.
pub fn machine() -> Machine {
    Machine {
        cpu: cpu_name(),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        l2_kib: cache_kib(2),
        l3_kib: cache_kib(3),
        simd: simd().to_owned(),
        huge_pages: huge_pages().to_owned(),
        governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        commit: std::env::current_exe()
            .map_or_else(|_| UNKNOWN.to_owned(), |path| commit_of(&path)),
        rustc: env!("FINGERPOST_RUSTC").to_owned(),
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Name of the processor; its architecture where Linux has no name.
pub(crate) fn cpu_name() -> String {
    let info = read("/proc/cpuinfo");
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// Size of the first core's cache of a level that holds data.
fn cache_kib(level: u32) -> u64 {
    for index in 0..8 {
        let dir = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        if read(&format!("{dir}/level")) == level.to_string()
            && read(&format!("{dir}/type")) != "Instruction"
        {
            let size = read(&format!("{dir}/size"));
            return size.strip_suffix('K').unwrap_or(&size).parse().unwrap_or(0);
        }
    }
    0
}

#[cfg(target_arch = "x86_64")]
fn simd() -> &'static str {
    if is_x86_feature_detected!("avx512f") {
        "avx512"
    } else if is_x86_feature_detected!("avx2") {
        "avx2"
    } else {
        "sse2"
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn simd() -> &'static str {
    if cfg!(target_arch = "aarch64") { "neon" } else { "" }
}

fn huge_pages() -> &'static str {
    let reserved = read("/proc/sys/vm/nr_hugepages");
    if reserved.parse().unwrap_or(0u64) > 0 {
        return "hugetlb";
    }
    let mode = read("/sys/kernel/mm/transparent_hugepage/enabled");
    if mode.contains("[always]") || mode.contains("[madvise]") { "thp" } else { "none" }
}

/// The checkout that has the program, or the current folder in it; of an installed program that runs elsewhere none. It is
/// looked for at run time: a path of the host that builds would be in packages.
pub(crate) fn checkout() -> Option<PathBuf> {
    let folders = [std::env::current_exe().ok(), std::env::current_dir().ok()];
    folders.iter().flatten().find_map(|folder| checkout_above(folder))
}

fn checkout_above(folder: &Path) -> Option<PathBuf> {
    let is_ours = |folder: &&Path| folder.join("lab/peers/README.md").is_file();
    folder.ancestors().find(is_ours).map(Path::to_path_buf)
}

/// Commit of the checkout that has this program. One that is installed is not of the checkout that it runs in.
fn commit_of(program: &Path) -> String {
    let Some(checkout) = checkout_above(program) else { return UNKNOWN.to_owned() };
    let mut git = Command::new("git");
    let out = git.arg("-C").arg(checkout).args(["describe", "--always", "--dirty"]).output();
    match out {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).trim().to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_above_the_program() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(checkout_above(&root.join("target/debug/deps/x")).as_deref(), Some(root));
        assert_eq!(checkout_above(Path::new("/usr/bin/fingerpost-lab")), None);
        // Tests run in the checkout.
        assert!(checkout().is_some());
        assert_eq!(commit_of(Path::new("/usr/bin/fingerpost-lab")), UNKNOWN);
    }

    #[test]
    fn the_machine_has_a_name_and_a_core() {
        let machine = super::machine();
        assert!(!machine.cpu.is_empty() && machine.cores > 0);
        assert!(machine.rustc.starts_with("rustc "), "{}", machine.rustc);
    }
}
