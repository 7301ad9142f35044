//! A small assembler for eBPF: one method an instruction, labels for jumps, no compiler needed.
//!
//! Source: the instruction set of RFC 9669. Only what our programs use is here.
//! Shape: an instruction is 8 bytes; a 64-bit constant or a map takes two of them.
//!
//! Jumps go forward only, to labels that are bound once: what is written reads from top to bottom,
//! and the verifier has no loops to think about. Misuse is a bug in our own programs and panics.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A register. `R0` holds results, `R1` to `R5` arguments (lost in calls), `R6` to `R9` survive
/// calls, `R10` is the end of the stack (512 bytes below it).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "their names say all")]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Second operand: a register, or a constant that is extended with its sign to 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A register.
    Reg(Reg),
    /// A constant.
    Imm(i32),
}

impl From<Reg> for Value {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Value {
    fn from(imm: i32) -> Self {
        Self::Imm(imm)
    }
}

impl From<u16> for Value {
    fn from(imm: u16) -> Self {
        Self::Imm(imm.into())
    }
}

/// Bytes that a load or store moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Width {
    /// 4 bytes.
    Word = 0x00,
    /// 2 bytes.
    Half = 0x08,
    /// 1 byte.
    Byte = 0x10,
    /// 8 bytes.
    Double = 0x18,
}

/// When a jump is taken; numbers are unsigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum When {
    /// Equal.
    Eq = 0x10,
    /// Above.
    Gt = 0x20,
    /// Above or equal.
    Ge = 0x30,
    /// Not equal.
    Ne = 0x50,
    /// Below.
    Lt = 0xa0,
    /// Below or equal.
    Le = 0xb0,
}

/// One instruction, as the kernel reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    imm: i32,
}

impl Insn {
    /// What a wide load takes: a number as it is, a map, or the memory of a map's only value.
    pub(super) const NUMBER: u8 = 0;
    pub(super) const MAP: u8 = 1;
    pub(super) const MAP_VALUE: u8 = 2;

    /// Decodes an instruction of an object file of this machine's byte order.
    pub(super) fn from_bytes([code, registers, o0, o1, i0, i1, i2, i3]: [u8; 8]) -> Self {
        let (offset, imm) = ([o0, o1], [i0, i1, i2, i3]);
        Self { code, registers, offset: i16::from_ne_bytes(offset), imm: i32::from_ne_bytes(imm) }
    }

    pub(super) fn imm(self) -> i32 {
        self.imm
    }

    /// A call of the function that begins so many instructions after the next one.
    pub(super) fn call_function(distance: i32) -> Self {
        Self { code: CALL, registers: nibbles(0, 1), offset: 0, imm: distance }
    }

    /// A call of a function of the kernel by its number in the kernel's BTF.
    pub(super) fn call_kernel(number: i32) -> Self {
        // The source register marks it as no helper.
        Self { code: CALL, registers: nibbles(0, 2), offset: 0, imm: number }
    }

    /// `R0 = 0`, in place of a call that is never reached.
    pub(super) const NOTHING: Self = Self { code: 0xb7, registers: 0, offset: 0, imm: 0 };

    /// Makes a wide load, which keeps its register, one of such a `kind`.
    pub(super) fn set_wide(load: &mut [Self; 2], kind: u8, low: i32, high: i32) {
        let keep = if cfg!(target_endian = "big") { 0xf0 } else { 0x0f };
        load[0].registers = load[0].registers & keep | nibbles(0, kind);
        (load[0].imm, load[1].imm) = (low, high);
    }
}

/// A place to jump to, made by [`Asm::label`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a label must be bound"]
pub struct Label(usize);

/// The helper functions of the kernel that our programs call (numbers of `enum bpf_func_id`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Helper {
    /// `R0 = map_lookup_elem(R1 map, R2 key)`: a pointer or 0.
    MapLookup = 1,
    /// `R0 = ktime_get_ns()`: nanoseconds since the machine came up.
    TimeNs = 5,
    /// `R0 = get_prandom_u32()`.
    Random = 7,
    /// `tail_call(R1 context, R2 map of programs, R3 number)`: continues there, or returns if it cannot.
    TailCall = 12,
    /// `skb_vlan_push(R1 buffer, R2 protocol, R3 tag)`.
    #[cfg(test)]
    VlanPush = 18,
    /// `R0 = redirect_map(R1 map, R2 key, R3 action when there is nothing at the key)`.
    RedirectMap = 51,
    /// `R0 = fib_lookup(R1 context, R2 struct bpf_fib_lookup, R3 its bytes, R4 flags)`: 0 when found.
    FibLookup = 69,
    /// `R0 = jiffies64()`: ticks of the kernel's clock.
    Ticks = 118,
}

/// A program in the making.
#[derive(Debug, Default)]
pub struct Asm {
    code: Vec<Insn>,
    /// Where each label is bound.
    labels: Vec<Option<usize>>,
    /// Jumps: place and label.
    jumps: Vec<(usize, Label)>,
}

impl Asm {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new label, to be bound further down.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label means here.
    ///
    /// # Panics
    /// When it was bound before.
    pub fn bind(&mut self, label: Label) -> &mut Self {
        let here = self.code.len();
        assert!(self.labels[label.0].replace(here).is_none(), "label {} is bound twice", label.0);
        self
    }

    /// `dst = value`.
    pub fn set(&mut self, dst: Reg, value: impl Into<Value>) -> &mut Self {
        self.alu(0xb0, dst, value)
    }

    /// `dst += value`.
    pub fn add(&mut self, dst: Reg, value: impl Into<Value>) -> &mut Self {
        self.alu(0x00, dst, value)
    }

    /// `dst -= value`.
    pub fn sub(&mut self, dst: Reg, value: impl Into<Value>) -> &mut Self {
        self.alu(0x10, dst, value)
    }

    /// `dst &= value`.
    pub fn and(&mut self, dst: Reg, value: impl Into<Value>) -> &mut Self {
        self.alu(0x50, dst, value)
    }

    /// `dst |= value`.
    pub fn or(&mut self, dst: Reg, value: impl Into<Value>) -> &mut Self {
        self.alu(0x40, dst, value)
    }

    /// `dst ^= value`.
    pub fn xor(&mut self, dst: Reg, value: impl Into<Value>) -> &mut Self {
        self.alu(0xa0, dst, value)
    }

    /// `dst >>= value`, zeros from above.
    pub fn shr(&mut self, dst: Reg, value: impl Into<Value>) -> &mut Self {
        self.alu(0x70, dst, value)
    }

    /// `dst ^= value` on the lower 32 bits; the upper ones become 0.
    pub fn xor32(&mut self, dst: Reg, value: impl Into<Value>) -> &mut Self {
        self.operate(0x04 | 0xa0, dst, value, 0)
    }

    /// `dst *= value`.
    pub fn mul(&mut self, dst: Reg, value: impl Into<Value>) -> &mut Self {
        self.alu(0x20, dst, value)
    }

    /// The lower 32 bits of `dst` in network order; the upper ones become 0.
    pub fn to_be32(&mut self, dst: Reg) -> &mut Self {
        self.push(0xdc, dst, Reg::R0, 0, 32)
    }

    /// The lower 16 bits of `dst` in network order; the upper ones become 0.
    pub fn to_be16(&mut self, dst: Reg) -> &mut Self {
        self.push(0xdc, dst, Reg::R0, 0, 16)
    }

    /// `dst =` the bytes at `base + offset`.
    pub fn load(&mut self, width: Width, dst: Reg, base: Reg, offset: i16) -> &mut Self {
        self.push(0x61 | width as u8, dst, base, offset, 0)
    }

    /// Stores a register, or a constant, at `base + offset`.
    pub fn store(
        &mut self,
        width: Width,
        base: Reg,
        offset: i16,
        value: impl Into<Value>,
    ) -> &mut Self {
        match value.into() {
            Value::Reg(src) => self.push(0x63 | width as u8, base, src, offset, 0),
            Value::Imm(imm) => self.push(0x62 | width as u8, base, Reg::R0, offset, imm),
        }
    }

    /// Adds a register to the 64 bits at `base + offset`, at once for all CPUs; it has their old value then.
    pub fn fetch_add(&mut self, base: Reg, offset: i16, register: Reg) -> &mut Self {
        // BPF_STX | BPF_ATOMIC | BPF_DW; BPF_ADD | BPF_FETCH (Linux 5.12).
        self.push(0xdb, base, register, offset, 0x01)
    }

    /// `dst =` a 64-bit constant.
    pub fn set64(&mut self, dst: Reg, value: u64) -> &mut Self {
        let [low, high] = halves(value);
        self.wide(dst, Insn::NUMBER, low, high)
    }

    /// `dst =` the map, as an argument of a helper.
    pub fn set_map(&mut self, dst: Reg, map: BorrowedFd<'_>) -> &mut Self {
        self.wide(dst, Insn::MAP, map.as_raw_fd(), 0)
    }

    /// `dst =` pointer to byte `offset` of the only value of an array map.
    pub fn set_map_value(&mut self, dst: Reg, map: BorrowedFd<'_>, offset: i32) -> &mut Self {
        self.wide(dst, Insn::MAP_VALUE, map.as_raw_fd(), offset)
    }

    /// Calls a helper of the kernel.
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(CALL, Reg::R0, Reg::R0, 0, helper as i32)
    }

    /// Ends the program with the result in `R0`.
    pub fn exit(&mut self) -> &mut Self {
        self.push(0x95, Reg::R0, Reg::R0, 0, 0)
    }

    /// Goes on at `to`.
    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.jump_from_here(to);
        self.push(0x05, Reg::R0, Reg::R0, 0, 0)
    }

    /// Goes on at `to` when all 64 bits compare so.
    pub fn branch(
        &mut self,
        left: Reg,
        when: When,
        right: impl Into<Value>,
        to: Label,
    ) -> &mut Self {
        self.jump_from_here(to);
        self.operate(0x05 | when as u8, left, right, 0)
    }

    /// Goes on at `to` when the lower 32 bits compare so.
    pub fn branch32(
        &mut self,
        left: Reg,
        when: When,
        right: impl Into<Value>,
        to: Label,
    ) -> &mut Self {
        self.jump_from_here(to);
        self.operate(0x06 | when as u8, left, right, 0)
    }

    /// The finished program, its jumps filled in.
    ///
    /// # Panics
    /// When a label is jumped to and not bound, or further away than a jump reaches (32,767).
    pub fn finish(mut self) -> Vec<Insn> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0]
                .unwrap_or_else(|| panic!("label {} of the jump at {at} is not bound", label.0));
            let distance = target - at - 1;
            if self.code[at].code == CALL {
                self.code[at].imm = i32::try_from(distance).expect("programs are short");
                continue;
            }
            self.code[at].offset = i16::try_from(distance)
                .unwrap_or_else(|_| panic!("jump at {at} over {distance} instructions"));
        }
        self.code
    }

    fn jump_from_here(&mut self, to: Label) {
        assert!(self.labels[to.0].is_none(), "jump back to label {}", to.0);
        self.jumps.push((self.code.len(), to));
    }

    fn alu(&mut self, operation: u8, dst: Reg, value: impl Into<Value>) -> &mut Self {
        self.operate(0x07 | operation, dst, value, 0)
    }

    /// An instruction whose second operand is a register (bit 3 set) or a constant.
    fn operate(&mut self, code: u8, dst: Reg, value: impl Into<Value>, offset: i16) -> &mut Self {
        match value.into() {
            Value::Reg(src) => self.push(code | 0x08, dst, src, offset, 0),
            Value::Imm(imm) => self.push(code, dst, Reg::R0, offset, imm),
        }
    }

    /// A 64-bit load in two slots; `kind` in the place of the source register is its meaning.
    fn wide(&mut self, dst: Reg, kind: u8, low: i32, high: i32) -> &mut Self {
        self.code.push(Insn {
            code: 0x18,
            registers: nibbles(dst as u8, kind),
            offset: 0,
            imm: low,
        });
        self.code.push(Insn { code: 0, registers: 0, offset: 0, imm: high });
        self
    }

    fn push(&mut self, code: u8, dst: Reg, src: Reg, offset: i16, imm: i32) -> &mut Self {
        self.code.push(Insn { code, registers: nibbles(dst as u8, src as u8), offset, imm });
        self
    }
}

const CALL: u8 = 0x85;

/// The two register fields are bit fields of C: their order follows the byte order.
const fn nibbles(dst: u8, src: u8) -> u8 {
    if cfg!(target_endian = "big") { dst << 4 | src } else { src << 4 | dst }
}

pub(super) fn halves(value: u64) -> [i32; 2] {
    #[allow(clippy::cast_possible_truncation, reason = "takes the two halves of a word")]
    [value as i32, (value >> 32) as i32]
}

/// A number as it lies in a packet, for comparing with what a load of 2 bytes gives.
pub const fn be16(value: u16) -> i32 {
    value.to_be() as i32
}

/// A number as it lies in a packet, for comparing with what a load of 4 bytes gives
/// ([`Asm::branch32`]: as a constant it is extended with its sign).
pub const fn be32(value: u32) -> i32 {
    value.to_be().cast_signed()
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use std::os::fd::AsFd;

    use super::Reg::*;
    use super::Width::*;
    use super::*;

    fn bytes(asm: Asm) -> Vec<[u8; 8]> {
        asm.finish()
            .into_iter()
            .map(|i| {
                let mut bytes = [i.code, i.registers, 0, 0, 0, 0, 0, 0];
                bytes[2..4].copy_from_slice(&i.offset.to_le_bytes());
                bytes[4..].copy_from_slice(&i.imm.to_le_bytes());
                bytes
            })
            .collect()
    }

    /// Encodings checked against `llvm-mc -triple bpf -show-encoding` (LLVM 14).
    #[test]
    fn instructions_are_encoded_as_the_kernel_reads_them() {
        let mut a = Asm::new();
        a.set(R6, R1).set(R0, -2).add(R2, -4).sub(R1, R7).and(R3, 0xf0).xor32(R4, -1).mul(R5, 96);
        a.to_be32(R1).to_be16(R1).or(R1, R2).xor(R4, R5).shr(R6, 16);
        a.load(Word, R7, R6, 4)
            .load(Half, R1, R7, 12)
            .load(Byte, R1, R7, 30)
            .load(Double, R1, R0, 0);
        a.store(Word, R10, -4, R1).store(Half, R10, -2, 7).store(Byte, R10, -1, R2);
        a.store(Double, R0, 8, R1).set64(R3, 0x0102_0304_0506_0708);
        a.call(Helper::RedirectMap).exit();
        let expected: &[[u8; 8]] = &[
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],             // r6 = r1
            [0xb7, 0x00, 0, 0, 0xfe, 0xff, 0xff, 0xff], // r0 = -2
            [0x07, 0x02, 0, 0, 0xfc, 0xff, 0xff, 0xff], // r2 += -4
            [0x1f, 0x71, 0, 0, 0, 0, 0, 0],             // r1 -= r7
            [0x57, 0x03, 0, 0, 0xf0, 0, 0, 0],          // r3 &= 0xf0
            [0xa4, 0x04, 0, 0, 0xff, 0xff, 0xff, 0xff], // w4 ^= -1
            [0x27, 0x05, 0, 0, 96, 0, 0, 0],            // r5 *= 96
            [0xdc, 0x01, 0, 0, 32, 0, 0, 0],            // r1 = be32 r1
            [0xdc, 0x01, 0, 0, 16, 0, 0, 0],            // r1 = be16 r1
            [0x4f, 0x21, 0, 0, 0, 0, 0, 0],             // r1 |= r2
            [0xaf, 0x54, 0, 0, 0, 0, 0, 0],             // r4 ^= r5
            [0x77, 0x06, 0, 0, 16, 0, 0, 0],            // r6 >>= 16
            [0x61, 0x67, 4, 0, 0, 0, 0, 0],             // r7 = *(u32 *)(r6 + 4)
            [0x69, 0x71, 12, 0, 0, 0, 0, 0],            // r1 = *(u16 *)(r7 + 12)
            [0x71, 0x71, 30, 0, 0, 0, 0, 0],            // r1 = *(u8 *)(r7 + 30)
            [0x79, 0x01, 0, 0, 0, 0, 0, 0],             // r1 = *(u64 *)(r0 + 0)
            [0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0],       // *(u32 *)(r10 - 4) = r1
            [0x6a, 0x0a, 0xfe, 0xff, 7, 0, 0, 0],       // *(u16 *)(r10 - 2) = 7
            [0x73, 0x2a, 0xff, 0xff, 0, 0, 0, 0],       // *(u8 *)(r10 - 1) = r2
            [0x7b, 0x10, 8, 0, 0, 0, 0, 0],             // *(u64 *)(r0 + 8) = r1
            [0x18, 0x03, 0, 0, 0x08, 0x07, 0x06, 0x05], // r3 = 0x0102030405060708 ll
            [0, 0, 0, 0, 0x04, 0x03, 0x02, 0x01],
            [0x85, 0, 0, 0, 51, 0, 0, 0], // call 51
            [0x95, 0, 0, 0, 0, 0, 0, 0],  // exit
        ];
        assert_eq!(bytes(a), expected);
    }

    #[test]
    fn jumps_count_from_the_next_instruction() {
        let mut a = Asm::new();
        let (near, far) = (a.label(), a.label());
        a.branch(R1, When::Eq, 5, far).branch32(R1, When::Ne, R2, near).jump(far);
        a.bind(near).set(R0, 1);
        a.bind(far).exit();
        let code = bytes(a);
        assert_eq!(code[0], [0x15, 0x01, 3, 0, 5, 0, 0, 0]);
        assert_eq!(code[1], [0x5e, 0x21, 1, 0, 0, 0, 0, 0]);
        assert_eq!(code[2], [0x05, 0, 1, 0, 0, 0, 0, 0]);
        let conditions = [When::Gt, When::Ge, When::Lt, When::Le].map(|when| {
            let mut a = Asm::new();
            let end = a.label();
            a.branch(R1, when, R2, end).bind(end).exit();
            bytes(a)[0][0]
        });
        assert_eq!(conditions, [0x2d, 0x3d, 0xad, 0xbd]);
    }

    #[test]
    fn maps_are_named_by_their_descriptor() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = file.as_fd().as_raw_fd().to_le_bytes();
        let mut a = Asm::new();
        a.set_map(R1, file.as_fd()).set_map_value(R9, file.as_fd(), 8);
        let code = bytes(a);
        assert_eq!((code[0][..4].to_vec(), &code[0][4..]), (vec![0x18, 0x11, 0, 0], &fd[..]));
        assert_eq!((code[2][..4].to_vec(), &code[2][4..]), (vec![0x18, 0x29, 0, 0], &fd[..]));
        assert_eq!(code[3], [0, 0, 0, 0, 8, 0, 0, 0]);
    }

    #[test]
    fn packet_numbers_are_in_network_order() {
        assert_eq!(be16(0x0800), 0x0008);
        assert_eq!(be32(0xff00_0001), 0x0100_00ff);
        assert_eq!(be32(0xffff_ffff), -1);
    }

    #[test]
    #[should_panic(expected = "is not bound")]
    fn an_unbound_label_is_a_bug() {
        let mut a = Asm::new();
        let nowhere = a.label();
        a.jump(nowhere);
        a.finish();
    }

    #[test]
    #[should_panic(expected = "jump back")]
    fn a_jump_back_is_a_bug() {
        let mut a = Asm::new();
        let up = a.label();
        a.bind(up).jump(up);
    }

    #[test]
    #[should_panic(expected = "bound twice")]
    fn a_label_has_one_place() {
        let mut a = Asm::new();
        let here = a.label();
        a.bind(here).exit().bind(here);
    }

    #[test]
    #[should_panic(expected = "jump at 0 over 32768 instructions")]
    fn a_jump_reaches_32767_instructions() {
        let mut a = Asm::new();
        let end = a.label();
        a.jump(end);
        for _ in 0..32768 {
            a.exit();
        }
        a.bind(end);
        a.finish();
    }
}
