//! Programs that a C compiler made: taken out of their object file, with what they name put in.
//!
//! Source: the ELF object format of the System V ABI, for machine 247 (eBPF), and the kernel's
//! `Documentation/bpf/llvm_reloc.rst`. No libbpf, no BTF: a program is a function's instructions, and a
//! relocation is a 64-bit load of something that has a name. The caller decides what that is
//! ([`Bound`]). The objects are our own, compiled beforehand and checked in; damage is an error all the same.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::asm::Insn;

/// What a name in a program stands for.
#[derive(Clone, Copy, Debug)]
pub enum Bound<'a> {
    /// A map, as an argument of a helper.
    Map(BorrowedFd<'a>),
    /// The memory of an array map's only value.
    Memory(BorrowedFd<'a>),
    /// A number. The verifier knows it: what it excludes is no part of the program that runs.
    Number(u64),
    /// A function, which is linked into the program.
    Function(&'a [Insn]),
    /// A function of the kernel, by its number in the kernel's BTF.
    Kernel(i32),
    /// A function that this program never calls: a number that the verifier knows excludes each call.
    Uncalled,
}

/// Why a program was not taken from an object.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// No object of this kind, or cut off.
    #[error("no eBPF object of this byte order, or a damaged one")]
    Damaged,
    /// It has no such function.
    #[error("the object has no function {0}")]
    Missing(String),
    /// A function names what nobody bound.
    #[error("nothing is bound to {0}")]
    Unbound(String),
}

const MACHINE: usize = 247;
/// `R_BPF_64_32`: a call.
const CALL: usize = 10;
/// `R_BPF_64_64`: a load of 64 bits in two instructions.
const WIDE_LOAD: usize = 1;

/// Sizes of an entry, by the kind of section.
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const RELOCATION: usize = 16;

/// Kinds of section.
const SYMBOLS: usize = 2;
const RELOCATIONS: usize = 9;

/// The instructions of `function` in `object`, with what it names put in.
///
/// # Errors
/// [`ObjectError`].
pub fn function<'a>(
    object: &[u8],
    function: &str,
    bind: impl Fn(&str) -> Option<Bound<'a>>,
) -> Result<Vec<Insn>, ObjectError> {
    link(object, function, bind).ok_or(ObjectError::Damaged)?
}

/// `None` where the object makes no sense.
fn link<'a>(
    object: &[u8],
    wanted: &str,
    bind: impl Fn(&str) -> Option<Bound<'a>>,
) -> Option<Result<Vec<Insn>, ObjectError>> {
    // 64 bits, and the byte order of this machine, for which the instructions are.
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if object.get(..6)? != [0x7f, b'E', b'L', b'F', 2, order] || half(object, 18)? != MACHINE {
        return None;
    }
    let (table, count) = (long(object, 40)?, half(object, 60)?);
    let section = |index: usize| object.get(table..)?.get(index * SECTION..)?.get(..SECTION);
    let content = |header: &[u8]| object.get(long(header, 24)?..)?.get(..long(header, 32)?);

    let symbols = (0..count).find(|&i| section(i).is_some_and(|s| word(s, 4) == Some(SYMBOLS)))?;
    let symbols = section(symbols)?;
    let names = content(section(word(symbols, 40)?)?)?;
    let symbols = content(symbols)?.as_chunks::<SYMBOL>().0;
    let name = |symbol: &[u8; SYMBOL]| {
        let from = names.get(word(symbol, 0)?..)?;
        std::str::from_utf8(from.split(|&byte| byte == 0).next()?).ok()
    };

    let Some(symbol) = symbols.iter().find(|symbol| name(symbol) == Some(wanted)) else {
        return Some(Err(ObjectError::Missing(wanted.into())));
    };
    let (home, start, bytes) = (half(symbol, 6)?, long(symbol, 8)?, long(symbol, 16)?);
    let mut code: Vec<Insn> = content(section(home)?)?
        .get(start..)?
        .get(..bytes)?
        .as_chunks()
        .0
        .iter()
        .map(|&insn| Insn::from_bytes(insn))
        .collect();

    for header in (0..count).filter_map(section) {
        if word(header, 4) != Some(RELOCATIONS) || word(header, 44) != Some(home) {
            continue;
        }
        for relocation in content(header)?.as_chunks::<RELOCATION>().0 {
            let Some(at) = long(relocation, 0)?.checked_sub(start).filter(|&at| at < bytes) else {
                continue;
            };
            let name = name(symbols.get(word(relocation, 12)?)?)?;
            let kind = word(relocation, 8)?;
            if at % 8 != 0 || at / 8 + 1 >= code.len() {
                return None;
            }
            let Some(bound) = bind(name) else {
                return Some(Err(ObjectError::Unbound(name.into())));
            };
            let is_call = match bound {
                Bound::Function(_) | Bound::Kernel(_) | Bound::Uncalled => true,
                Bound::Map(_) | Bound::Memory(_) | Bound::Number(_) => false,
            };
            if kind != if is_call { CALL } else { WIDE_LOAD } {
                return None;
            }
            let end = code.len();
            match bound {
                Bound::Function(function) => {
                    // Counted from the instruction after the call.
                    code[at / 8] = Insn::call_function(i32::try_from(end - at / 8 - 1).ok()?);
                    code.extend_from_slice(function);
                    continue;
                }
                Bound::Kernel(number) => code[at / 8] = Insn::call_kernel(number),
                Bound::Uncalled => code[at / 8] = Insn::NOTHING,
                Bound::Map(_) | Bound::Memory(_) | Bound::Number(_) => {}
            }
            let load = code.get_mut(at / 8..at / 8 + 2)?.first_chunk_mut()?;
            match bound {
                Bound::Map(map) => Insn::set_wide(load, Insn::MAP, map.as_raw_fd(), 0),
                // The compiler left the offset from the name where the number would be.
                Bound::Memory(map) => {
                    let offset = load[0].imm();
                    Insn::set_wide(load, Insn::MAP_VALUE, map.as_raw_fd(), offset);
                }
                Bound::Number(number) => {
                    let [low, high] = super::asm::halves(number);
                    Insn::set_wide(load, Insn::NUMBER, low, high);
                }
                Bound::Function(_) | Bound::Kernel(_) | Bound::Uncalled => {}
            }
        }
    }
    Some(Ok(code))
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?)).ok()
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?)).ok()
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::Command;

    use super::super::{classify, forward, lab};
    use super::*;

    /// Each object with its source, below this folder and without the ending.
    const OBJECTS: &[(&str, &[u8])] =
        &[("forward/forward", forward::OBJECT), ("classify/classify", classify::OBJECT)];

    /// Each shipped object is what the pinned compiler makes of its source, where that compiler is installed.
    #[test]
    fn each_object_is_that_of_its_source() {
        let folder = std::env::temp_dir().join(format!("fingerpost-object-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, shipped) in OBJECTS {
            let here = concat!(env!("CARGO_MANIFEST_DIR"), "/src/xdp");
            let (source, object) = (format!("{here}/{name}.c"), format!("{here}/{name}.o"));
            let made = folder.join("made.o");
            let options = ["-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"];
            let compiled = Command::new(COMPILER)
                .args(options)
                .args(["-Wno-unused-function", "-c", &source, "-o"])
                .arg(&made)
                .status();
            let Ok(compiled) = compiled else { return not_compared(COMPILER, "clang-14") };
            assert!(compiled.success(), "{source} compiles");
            let stripped = Command::new(STRIP).arg("--strip-unneeded").arg(&made).status();
            let Ok(stripped) = stripped else { return not_compared(STRIP, "llvm-14") };
            assert!(stripped.success());
            let new = std::fs::read(&made).unwrap();
            if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
                std::fs::write(object, &new).unwrap();
            } else {
                let accept = "FINGERPOST_ACCEPT=1 cargo test -p fingerpost-io object";
                assert!(new == *shipped, "{object} is not that of its source; to accept: {accept}");
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The version that the shipped objects were made with; another makes other bytes.
    const COMPILER: &str = "clang-14";
    const STRIP: &str = "llvm-strip-14";

    /// A program of a package of Debian is missing. A run of CI that could have had it fails: else an object could be
    /// shipped that is not that of its source.
    fn not_compared(program: &str, package: &str) {
        let policy = Command::new("apt-cache").args(["policy", package]).output();
        let policy = policy.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        assert!(
            std::env::var_os("CI").is_none() || !can_be_installed(&policy.unwrap_or_default()),
            "{program} is missing and no object was compared with its source: apt-get install {package}"
        );
        lab::skipped(program);
    }

    /// Whether `apt-cache policy` names a version that can be installed.
    fn can_be_installed(policy: &str) -> bool {
        let candidate = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
        candidate.is_some_and(|version| version != "(none)")
    }

    #[test]
    fn a_compiler_that_could_be_had_is_known() {
        let policy = |candidate: &str| format!("clang-14:\n  Installed: (none)\n{candidate}");
        assert!(can_be_installed(&policy("  Candidate: 1:14.0.6-12\n  Version table:\n")));
        assert!(!can_be_installed(&policy("  Candidate: (none)\n")));
        assert!(!can_be_installed(""), "no such package, or no Debian");
    }

    #[test]
    fn functions_are_linked_behind_the_program() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let linked = |forward: Option<Bound<'static>>| {
            function(classify::OBJECT, "classify", |name| match name {
                "settings" | "presence" => Some(Bound::Memory(file.as_fd())),
                "workers" | "reads_tags" | "forwards" => Some(Bound::Number(0)),
                "forward" => forward,
                "vlan_tag" => Some(Bound::Uncalled),
                _ => Some(Bound::Map(file.as_fd())),
            })
        };
        static LAST: [Insn; 1] = [Insn::NOTHING];
        let (alone, longer) =
            (linked(Some(Bound::Uncalled)).unwrap(), linked(Some(Bound::Function(&LAST))).unwrap());
        assert_eq!((longer.len(), longer.last()), (alone.len() + 1, LAST.last()));
        let calls: Vec<_> = (0..alone.len()).filter(|&at| alone[at] != longer[at]).collect();
        assert_eq!(calls.len(), 1, "one call");
        let distance = i32::try_from(alone.len() - calls[0] - 1).unwrap();
        assert_eq!(longer[calls[0]], Insn::call_function(distance));
        assert_eq!(alone[calls[0]], Insn::NOTHING);
        assert_eq!(linked(None), Err(ObjectError::Unbound("forward".into())));
        assert_eq!(linked(Some(Bound::Number(1))), Err(ObjectError::Damaged), "a call of a number");
        let missing = function(classify::OBJECT, "none", |_| None);
        assert_eq!(missing, Err(ObjectError::Missing("none".into())));
        assert_eq!(
            function(&classify::OBJECT[..200], "classify", |_| None),
            Err(ObjectError::Damaged)
        );
    }
}
