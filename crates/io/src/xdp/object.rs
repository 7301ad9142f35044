//! Programs that a C compiler made: taken out of their object file, with what they name put in.
//!
//! Source: the ELF object format of the System V ABI, for machine 247 (eBPF), and the kernel's
//! `Documentation/bpf/llvm_reloc.rst`. No libbpf, no BTF: a program is a function's instructions, and a
//! relocation is a 64-bit load of something that has a name. What that is, is for the caller to say
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
            if word(relocation, 8)? != WIDE_LOAD || at % 8 != 0 || at / 8 + 1 >= code.len() {
                return None;
            }
            let Some(bound) = bind(name) else {
                return Some(Err(ObjectError::Unbound(name.into())));
            };
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
