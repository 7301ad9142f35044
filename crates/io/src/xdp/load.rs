//! Programs that a C compiler made: taken out of their object file, with what they name put in.
//!
//! Source: the ELF object format of the System V ABI, for machine 247 (eBPF), and the kernel's
//! `Documentation/bpf/llvm_reloc.rst`. No libbpf, no BTF: a program is a function's instructions, and a
//! relocation is a 64-bit load of something that has a name. The caller decides what that is
//! ([`Bound`]). The objects are our own, compiled beforehand and checked in; damage is an error all the same.

use std::os::fd::{AsRawFd, BorrowedFd};

/// One instruction (RFC 9669), as the kernel reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    imm: i32,
}

impl Insn {
    /// `R0 = 0`, in place of a call that is never reached.
    const NOTHING: Self = Self { code: 0xb7, registers: 0, offset: 0, imm: 0 };
    /// Code of the first half of a wide load; the second half has code 0.
    const WIDE: u8 = 0x18;
    /// What a wide load takes: a number as it is, a map, or the memory of a map's only value.
    const NUMBER: u8 = 0;
    const MAP: u8 = 1;
    const MAP_VALUE: u8 = 2;

    /// Descriptors of the maps that code names, to be read or replaced.
    pub(super) fn maps(code: &mut [Self]) -> impl Iterator<Item = &mut i32> {
        let source =
            |registers| if cfg!(target_endian = "big") { registers & 0xf } else { registers >> 4 };
        let names = move |insn: &&mut Self| {
            insn.code == Self::WIDE && matches!(source(insn.registers), Self::MAP | Self::MAP_VALUE)
        };
        code.iter_mut().filter(names).map(|insn| &mut insn.imm)
    }

    /// Decodes an instruction of an object file of this machine's byte order.
    fn from_bytes([code, registers, o0, o1, i0, i1, i2, i3]: [u8; 8]) -> Self {
        let (offset, imm) = ([o0, o1], [i0, i1, i2, i3]);
        Self { code, registers, offset: i16::from_ne_bytes(offset), imm: i32::from_ne_bytes(imm) }
    }

    /// A call. The `source` register is 1 for a function by its distance from the next instruction, and 2 for a function
    /// of the kernel by its number in the kernel's BTF.
    fn call(source: u8, imm: i32) -> Self {
        Self { code: 0x85, registers: nibbles(0, source), offset: 0, imm }
    }

    /// Makes a wide load, which keeps its register, one of such a `kind`.
    fn set_wide(load: &mut [Self; 2], kind: u8, low: i32, high: i32) {
        let keep = if cfg!(target_endian = "big") { 0xf0 } else { 0x0f };
        load[0].registers = load[0].registers & keep | nibbles(0, kind);
        (load[0].imm, load[1].imm) = (low, high);
    }
}

/// The two register fields are bit fields of C: their order follows the byte order.
const fn nibbles(dst: u8, src: u8) -> u8 {
    if cfg!(target_endian = "big") { dst << 4 | src } else { src << 4 | dst }
}

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

/// The instructions of `function` in an object of ours, with what it names put in.
///
/// # Panics
/// When the object is not that of its source, or `bind` lacks a name: tests link each function.
pub fn link<'a>(
    object: &[u8],
    function: &str,
    bind: impl Fn(&str) -> Option<Bound<'a>>,
) -> Vec<Insn> {
    self::function(object, function, bind)
        .unwrap_or_else(|error| panic!("the object is that of its source: {error}"))
}

/// The instructions of `function` in `object`, with what it names put in.
///
/// # Errors
/// [`ObjectError`].
pub fn function<'a>(
    object: &[u8],
    function: &str,
    bind: impl Fn(&str) -> Option<Bound<'a>>,
) -> Result<Vec<Insn>, ObjectError> {
    linked(object, function, bind).ok_or(ObjectError::Damaged)?
}

/// `None` where the object makes no sense.
fn linked<'a>(
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
                    code[at / 8] = Insn::call(1, i32::try_from(end - at / 8 - 1).ok()?);
                    code.extend_from_slice(function);
                    continue;
                }
                Bound::Kernel(number) => code[at / 8] = Insn::call(2, number),
                Bound::Uncalled => code[at / 8] = Insn::NOTHING,
                Bound::Map(_) | Bound::Memory(_) | Bound::Number(_) => {}
            }
            let load = code.get_mut(at / 8..at / 8 + 2)?.first_chunk_mut()?;
            match bound {
                Bound::Map(map) => Insn::set_wide(load, Insn::MAP, map.as_raw_fd(), 0),
                // The compiler left the offset from the name where the number would be.
                Bound::Memory(map) => {
                    let offset = load[0].imm;
                    Insn::set_wide(load, Insn::MAP_VALUE, map.as_raw_fd(), offset);
                }
                Bound::Number(number) => {
                    #[allow(clippy::cast_possible_truncation, reason = "the halves of a word")]
                    let [low, high] = [number as i32, (number >> 32) as i32];
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

    use super::super::classify;
    use super::*;

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
        assert_eq!(longer[calls[0]], Insn::call(1, distance));
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
