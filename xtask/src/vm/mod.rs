//! `cargo xtask vm`: tests in a machine of their own, under Debian's kernel, which has the modules that others leave out.
//!
//! QEMU boots it in seconds (`kernel.rs` has the kernel, `init.sh` what it does first). The machine sees all files of its host
//! by 9P, read-only and under their own names, so that test programs find their libraries and tools; what is written lies
//! above them in its memory, and ends with it. For some tests it is a Debian of its own instead (`debian.rs`). The tests write
//! to a port that is QEMU's standard output, and the last line is their status. No network leads out.

mod debian;
mod kernel;

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::sh;
use crate::tally::{Tally, TestReader};
use debian::Debian;
use kernel::Kernel;

/// Drivers that the machine needs to see the files of its host, and to write; with what they lean on.
const DRIVERS: &[&str] = &["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"];

/// The beginning of the last line that the machine writes; its status follows.
const STATUS: &str = "fingerpost-vm: exit ";

/// How long a machine may run, in seconds, besides the duration of a soak.
const LIMIT_SECONDS: u64 = 600;

/// Command line of the kernel: its messages go to the console, and it stops where it cannot continue. Emulated timers
/// are late, which it would take for broken ones.
const CMDLINE: &str = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off no_timer_check";

/// Tests of a Debian that the machine itself is.
const OF_DEBIAN: &[&str] = &["service"];

/// Variable that requires a machine where there is no KVM.
const CHOICE: &str = "FINGERPOST_VM";

/// A test program, as `cargo test` names it, and its arguments.
pub(crate) struct Program {
    /// `tests/vlans.rs (target/debug/deps/vlans-0123)`.
    pub(crate) running: String,
    pub(crate) args: Vec<String>,
}

impl Program {
    /// The file, below the checkout or with its whole path.
    fn path(&self) -> Result<PathBuf> {
        let path = self.running.strip_suffix(')').and_then(|text| text.rsplit_once(" (")?.1.into());
        let path: &str = path.with_context(|| format!("no test program: {}", self.running))?;
        Ok(sh::root().join(path))
    }
}

/// What runs the machine's instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Accelerator {
    Kvm,
    /// QEMU itself, some ten times slower.
    Emulation,
}

/// `TEST [FILTER..]`: a file of `tests/tests`, or all test programs of a package.
pub(crate) fn vm(args: &[String]) -> Result<()> {
    let Some((test, filter)) = args.split_first() else {
        bail!(
            "usage: cargo xtask vm TEST [FILTER..], with TEST a file of tests/tests or a package"
        );
    };
    let mut machine = match Machine::new() {
        Ok(machine) => machine,
        Err(needs) => {
            println!("skipped: needs {needs}");
            return Ok(());
        }
    };
    let is_of_debian = OF_DEBIAN.contains(&test.as_str());
    if is_of_debian && sh::find("mmdebstrap").is_none() {
        println!("skipped: needs mmdebstrap");
        return Ok(());
    }
    let mut programs = build(test)?;
    if is_of_debian {
        machine.debian = Some(Debian::provide()?);
    }
    for program in &mut programs {
        program.args = filter.iter().cloned().chain(["--show-output".into()]).collect();
    }
    let mut tally = Tally::default();
    let mut reader = TestReader::new("vm", &mut tally);
    let ok = machine.run(&programs, |line| {
        reader.line(line);
        println!("{line}");
    })?;
    reader.end(ok);
    println!("{}", tally.report());
    if !tally.ok() {
        std::process::exit(1);
    }
    Ok(())
}

/// Builds what a test is made of, and the program that it starts.
fn build(test: &str) -> Result<Vec<Program>> {
    let mut command = sh::command("cargo test --no-run --package");
    if sh::root().join(format!("tests/tests/{test}.rs")).is_file() {
        if std::env::var_os("FINGERPOST_BIN").is_none() {
            sh::run(&mut sh::command("cargo build --release --bin fingerpost"))?;
        }
        command.args(["fingerpost-tests", "--test", test]);
    } else {
        command.args([test, "--all-features"]);
    }
    let mut programs = Vec::new();
    let status = sh::lines(&mut command, |line| {
        println!("{line}");
        programs.extend(executable(line));
    })?;
    ensure!(status.success(), "{}: {status}", sh::shown(&command));
    Ok(programs)
}

/// The program in the output of `cargo test --no-run`.
fn executable(line: &str) -> Option<Program> {
    let running = line.trim_start().strip_prefix("Executable ")?.to_owned();
    Some(Program { running, args: Vec::new() })
}

/// All that a machine can be made of.
pub(crate) struct Machine {
    qemu: PathBuf,
    accelerator: Accelerator,
    kernel: Kernel,
    /// What it boots in place of the files of the host.
    debian: Option<Debian>,
}

impl Machine {
    /// Finds it, and fetches the kernel where it was not used before.
    ///
    /// # Errors
    /// What is missing, to stand behind `needs`.
    pub(crate) fn new() -> Result<Self, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("an x86-64 processor".into());
        }
        let choice = std::env::var(CHOICE).unwrap_or_default();
        let accelerator = accelerator(can_kvm(), &choice)?;
        let qemu = sh::find("qemu-system-x86_64").ok_or("qemu-system-x86_64 (qemu-system-x86)")?;
        sh::find("depmod").ok_or("depmod (kmod)")?;
        let kernel = Kernel::provide().map_err(|error| format!("Debian's kernel: {error:#}"))?;
        Ok(Self { qemu, accelerator, kernel, debian: None })
    }

    /// Boots it, runs the programs one after the other, and hands over each line that they write. Returns whether all of
    /// them succeeded.
    ///
    /// # Errors
    /// When the machine ends before they do, or does not within its time.
    pub(crate) fn run(&self, programs: &[Program], mut each: impl FnMut(&str)) -> Result<bool> {
        let folder = sh::scratch(&format!("vm-{}", std::process::id()))?;
        fs::write(folder.join("job"), self.job(programs)?).context("cannot write the job")?;
        self.initramfs(&folder)?;
        let mut status = None;
        let mut command = self.command(&folder);
        let ended = sh::lines(&mut command, |line| match line.strip_prefix(STATUS) {
            Some(number) => status = Some(number == "0"),
            None => each(line),
        })?;
        let Some(ok) = status else {
            let console = fs::read_to_string(folder.join("console")).unwrap_or_default();
            for line in last(&console, 30) {
                println!("{line}");
            }
            bail!(
                "the machine did not get to its end: {ended}; its console is in {}",
                folder.display()
            );
        };
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(ok)
    }

    /// The script that the machine runs.
    fn job(&self, programs: &[Program]) -> Result<String> {
        let mut job = format!("modules={}\n", quoted(&self.kernel.modules()));
        for (name, value) in std::env::vars() {
            let wanted = name.starts_with("FINGERPOST_") || name.starts_with("RUST_");
            if wanted || name == "PATH" || name == "HOME" {
                job += &format!("export {name}={}\n", sh::quoted(&value));
            }
        }
        if self.accelerator == Accelerator::Emulation {
            // What waits for each other's turns would miss its deadlines.
            job += "export RUST_TEST_THREADS=1\n";
        }
        // Programs of the system, for a user's path too.
        job += "PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin\n";
        match &self.debian {
            Some(debian) => job += &debian.export(),
            None => job += include_str!("mounts.sh"),
        }
        job += include_str!("setup.sh");
        job += &format!("cd {}\n", quoted(&sh::root()));
        for program in programs {
            // As cargo says it, so that a test has one name wherever it runs.
            job += &format!("echo {}\n", sh::quoted(&format!("     Running {}", program.running)));
            let args: String =
                program.args.iter().map(|arg| format!(" {}", sh::quoted(arg))).collect();
            job += &format!("{}{args} || status=$?\n", quoted(&program.path()?));
        }
        let off = match &self.debian {
            Some(_) => "systemctl poweroff --force --force",
            None => "/run/vm/busybox poweroff -f",
        };
        Ok(job + &format!("echo\necho \"{STATUS}$status\"\n{off}\n"))
    }

    /// An archive of the shell, its script, the job and the drivers.
    fn initramfs(&self, folder: &Path) -> Result<()> {
        let files = folder.join("initramfs");
        let modules = files.join("modules");
        fs::create_dir_all(&modules).with_context(|| modules.display().to_string())?;
        let copy = |from: &Path, to: PathBuf| {
            fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display())).map(drop)
        };
        let mut compressed = Vec::new();
        for (number, path) in self.kernel.with_dependencies(DRIVERS)?.iter().enumerate() {
            // In the order in which a shell lists them.
            let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            let to = modules.join(format!("{number:02}-{name}"));
            copy(path, to.clone())?;
            if name.ends_with(".xz") {
                compressed.push(to);
            }
        }
        if !compressed.is_empty() {
            sh::run(sh::command("xz --decompress").args(compressed))?;
        }
        let shell = self.kernel.shell();
        copy(&shell, files.join("busybox"))?;
        copy(&folder.join("job"), files.join("job"))?;
        // The shell's mode is that of a program.
        copy(&shell, files.join("init"))?;
        let rest = match &self.debian {
            Some(debian) => debian.init(&self.kernel.modules()),
            None => include_str!("host.sh").to_owned(),
        };
        let init = include_str!("init.sh").to_owned() + &rest;
        fs::write(files.join("init"), init).context("cannot write init")?;
        let mut pack = sh::command("sh -c");
        pack.arg("find . | \"$0\" cpio -o -H newc >../initrd").arg(shell).current_dir(&files);
        sh::run(&mut pack)
    }

    fn command(&self, folder: &Path) -> Command {
        let soak = std::env::var("FINGERPOST_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
        let slower = if self.accelerator == Accelerator::Emulation { 3 } else { 1 };
        let seconds = LIMIT_SECONDS * slower + soak.unwrap_or(0);
        let mut command = sh::command(&format!("timeout --kill-after=5 {seconds}"));
        command.arg(&self.qemu);
        command.args(match self.accelerator {
            Accelerator::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Accelerator::Emulation => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        });
        let words = "-machine q35 -m 2G -smp 2 -nodefaults -no-user-config -display none -no-reboot \
                     -device virtio-serial-pci -device virtserialport,chardev=output,name=output \
                     -chardev file,id=output,path=/dev/stdout -virtfs \
                     local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap";
        command.args(words.split_ascii_whitespace());
        command.arg("-kernel").arg(self.kernel.image());
        command.arg("-initrd").arg(folder.join("initrd"));
        command.args(["-append", CMDLINE]);
        command.arg("-serial").arg(format!("file:{}", folder.join("console").display()));
        command
    }
}

/// What runs the machine, or what it needs.
fn accelerator(kvm: bool, choice: &str) -> Result<Accelerator, String> {
    match choice {
        _ if kvm => Ok(Accelerator::Kvm),
        "emulated" => Ok(Accelerator::Emulation),
        _ => Err("KVM".into()),
    }
}

/// Whether there is KVM that boots any kernel. There are hosts whose processor has no virtualization that offer
/// `/dev/kvm` all the same, for kernels that were made for them.
fn can_kvm() -> bool {
    let opens = OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    opens && virtualizes(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

fn virtualizes(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_ascii_whitespace().any(|flag| flag == "vmx" || flag == "svm")
}

fn quoted(path: &Path) -> String {
    sh::quoted(&path.to_string_lossy())
}

fn last(text: &str, lines: usize) -> impl Iterator<Item = &str> {
    text.lines().skip(text.lines().count().saturating_sub(lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_needs_kvm_unless_it_may_be_slow() {
        assert_eq!(accelerator(true, "emulated"), Ok(Accelerator::Kvm));
        assert_eq!(accelerator(false, "emulated"), Ok(Accelerator::Emulation));
        assert_eq!(accelerator(false, ""), Err("KVM".to_owned()));
        assert!(virtualizes("processor\t: 0\nflags\t\t: fpu svm nx\n"));
        assert!(!virtualizes("processor\t: 0\nflags\t\t: fpu vmmcall hypervisor\nbugs\t: vmx\n"));
    }

    #[test]
    fn programs_are_found_where_cargo_says() {
        let line = "  Executable unittests src/lib.rs (target/debug/deps/x-0123)";
        let program = executable(line).unwrap();
        assert_eq!(program.running, "unittests src/lib.rs (target/debug/deps/x-0123)");
        assert_eq!(program.path().unwrap(), sh::root().join("target/debug/deps/x-0123"));
        assert!(executable("   Compiling x v0.1.0 (/x)").is_none());
        let outside = Program { running: "tests/y.rs (/t/y-1)".into(), args: Vec::new() };
        assert_eq!(outside.path().unwrap(), Path::new("/t/y-1"));
        assert!(Program { running: "tests/y.rs".into(), args: Vec::new() }.path().is_err());
    }

    #[test]
    fn the_end_of_a_console_is_shown() {
        assert_eq!(last("a\nb\nc\n", 2).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(last("a\n", 2).collect::<Vec<_>>(), ["a"]);
    }
}
