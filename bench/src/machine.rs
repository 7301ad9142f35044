//! The machine that numbers are from, as far as the system tells.

use std::path::Path;

use serde::Serialize;

/// What a record says of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its processor, as the system names it; `unknown` where it does not.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Second-level cache of a core, in KiB; 0 where the system does not tell.
    pub l2_kib: u64,
    /// Third-level cache, in KiB, however many cores share it; 0 where the system does not tell.
    pub l3_kib: u64,
    /// The widest vector instructions there are: `avx512`, `avx2`, `sse2`, `neon` or `none`.
    pub simd: &'static str,
    /// What backs large tables: `thp` where the system gives huge pages to all that ask for memory,
    /// else `none`. Nothing asks for reserved ones (`hugetlb`).
    pub huge_pages: &'static str,
    /// Commit of the build.
    pub commit: &'static str,
    /// Compiler of the build.
    pub rustc: &'static str,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: cpu(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            l2_kib: cache_kib(Path::new(CACHES), 2),
            l3_kib: cache_kib(Path::new(CACHES), 3),
            simd: simd(),
            huge_pages: huge_pages(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            commit: env!("FINGERPOST_COMMIT"),
            rustc: env!("FINGERPOST_RUSTC"),
        }
    }
}

const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

fn cpu(info: &str) -> String {
    // x86 has the first, some others the second.
    let names = ["model name", "Model"];
    let field = |name: &str| {
        let lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    };
    let name = names.into_iter().find_map(field).filter(|name| !name.is_empty());
    name.unwrap_or("unknown").to_owned()
}

/// Size of the data or unified cache of `level`, in KiB.
fn cache_kib(caches: &Path, level: u8) -> u64 {
    let kib = (0..8).find_map(|index| {
        let folder = caches.join(format!("index{index}"));
        let read = |name| std::fs::read_to_string(folder.join(name)).ok();
        let this = read("level")?.trim() == level.to_string();
        let data = read("type")?.trim() != "Instruction";
        let size = read("size")?;
        if this && data { size.trim().strip_suffix('K')?.parse().ok() } else { None }
    });
    kib.unwrap_or(0)
}

fn simd() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "avx512";
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return "avx2";
        }
        "sse2"
    }
    #[cfg(target_arch = "aarch64")]
    {
        "neon"
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        "none"
    }
}

fn huge_pages(enabled: &str) -> &'static str {
    if enabled.contains("[always]") { "thp" } else { "none" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && !machine.cpu.is_empty());
        assert!(machine.rustc.starts_with("rustc "), "{}", machine.rustc);
        assert!(!machine.commit.is_empty() && !machine.commit.contains(' '));
    }

    #[test]
    fn what_the_system_says_is_read() {
        let info = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU @ 2.50GHz\nflags : x\n";
        assert_eq!(cpu(info), "Some CPU @ 2.50GHz");
        assert_eq!(cpu("Model\t\t: Raspberry Pi 4\n"), "Raspberry Pi 4");
        assert_eq!((cpu(""), cpu("model name :\n")), ("unknown".into(), "unknown".into()));
        assert_eq!(huge_pages("[always] madvise never\n"), "thp");
        assert_eq!(huge_pages("always [madvise] never\n"), "none");
        assert_eq!(huge_pages(""), "none");
    }

    #[test]
    fn caches_are_told_apart() {
        let folder = std::env::temp_dir().join(format!("fingerpost-caches-{}", std::process::id()));
        for (index, level, kind, size) in
            [(0, "1", "Data", "32K"), (1, "2", "Instruction", "7K"), (2, "2", "Unified", "1024K")]
        {
            let index = folder.join(format!("index{index}"));
            std::fs::create_dir_all(&index).unwrap();
            for (name, value) in [("level", level), ("type", kind), ("size", size)] {
                std::fs::write(index.join(name), format!("{value}\n")).unwrap();
            }
        }
        let found = [1, 2, 3].map(|level| cache_kib(&folder, level));
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(found, [32, 1024, 0]);
    }
}
