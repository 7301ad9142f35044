//! The kernel's table: used by the kernel itself, and by a program with `bpf_fib_lookup`.
//!
//! The second is what `xdp-forward` of xdp-tools does, and the samples of the kernel before it; here
//! in our assembler, and for one family at a time, which spares it a branch.

use std::any::Any;

use anyhow::Result;
use fingerpost_io::xdp::asm::Reg::{R0, R1, R2, R3, R4, R6, R7, R10};
use fingerpost_io::xdp::asm::Width::{Byte, Double, Half, Word};
use fingerpost_io::xdp::asm::{Asm, Helper, When};
use fingerpost_io::xdp::bpf::{Map, Program};
use fingerpost_io::xdp::{Meter, XDP_PASS};

use super::{Engine, Row, code};
use crate::document::Kind;

pub(super) const KERNEL: Row = Row {
    name: "kernel",
    summary: "Linux forwards, with the same table",
    by_family: true,
    kind: Kind::Peer,
    checked: true,
    loses: false,
    program: false,
    kernel_table: true,
    make: |_, _| Ok(Box::new(Kernel::new()?)),
};

pub(super) const HELPER: Row = Row {
    name: "fib-lookup-helper",
    summary: "an XDP program with bpf_fib_lookup, on the kernel's table",
    by_family: false,
    kind: Kind::Peer,
    checked: true,
    loses: false,
    program: true,
    kernel_table: true,
    make: |_, family| Ok(Box::new(Asks::new(family)?)),
};

/// A frame that is redirected into a veth arrives only where a program or GRO is: the shortest program
/// there is hands all to the kernel.
struct Kernel {
    program: Program,
}

impl Kernel {
    fn new() -> Result<Self> {
        let mut a = Asm::new();
        a.set(R0, XDP_PASS).exit();
        Ok(Self { program: Program::load("pass", &a.finish())? })
    }
}

impl Engine for Kernel {
    fn attach(&self, _: &Meter) -> Result<Box<dyn Any>> {
        Ok(Box::new(code::attach(&self.program)?))
    }
}

struct Asks {
    program: Program,
    _ports: Map,
}

/// `struct bpf_fib_lookup`: 64 bytes at the end of the stack; offsets from there.
const QUESTION_BYTES: i32 = 64;
const FAMILY: i16 = -64;
const PROTOCOL: i16 = -63;
const TOTAL_LEN: i16 = -58;
const LINK: i16 = -56;
const SOURCE: i16 = -48;
const DESTINATION: i16 = -32;
const FROM: i16 = -12;
const TO: i16 = -6;

/// `AF_INET` and `AF_INET6` of Linux.
const INET: i32 = 2;
const INET6: i32 = 10;

impl Asks {
    fn new(family: u8) -> Result<Self> {
        let ports = code::ports()?;
        let mut a = Asm::new();
        let pass = a.label();
        code::begin(&mut a, family, pass);
        for word in 0..8 {
            a.store(Double, R10, FAMILY + 8 * word, 0);
        }
        // What the kernel calls `tot_len` is compared with the MTU; of IPv6 it is the payload's.
        let (number, protocol, len) = if family == 4 { (INET, 23, 16) } else { (INET6, 20, 18) };
        a.store(Byte, R10, FAMILY, number);
        a.load(Byte, R1, R7, protocol).store(Byte, R10, PROTOCOL, R1);
        a.load(Half, R1, R7, len).to_be16(R1).store(Half, R10, TOTAL_LEN, R1);
        a.load(Word, R1, R6, 12).store(Word, R10, LINK, R1);
        if family == 4 {
            a.load(Word, R1, R7, 26).store(Word, R10, SOURCE, R1);
            a.load(Word, R1, R7, 30).store(Word, R10, DESTINATION, R1);
        } else {
            for half in [0, 8] {
                a.load(Double, R1, R7, 22 + half).store(Double, R10, SOURCE + half, R1);
                a.load(Double, R1, R7, 38 + half).store(Double, R10, DESTINATION + half, R1);
            }
        }
        a.set(R1, R6).set(R2, R10).add(R2, i32::from(FAMILY));
        a.set(R3, QUESTION_BYTES).set(R4, 0).call(Helper::FibLookup);
        a.branch(R0, When::Ne, 0, pass);

        code::age(&mut a, family);
        a.load(Half, R1, R10, TO).store(Half, R7, 0, R1);
        a.load(Word, R1, R10, TO + 2).store(Word, R7, 2, R1);
        a.load(Word, R1, R10, FROM).store(Word, R7, 6, R1);
        a.load(Half, R1, R10, FROM + 4).store(Half, R7, 10, R1);
        a.load(Word, R1, R10, LINK);
        code::redirect(&mut a, R1, &ports);
        a.bind(pass).set(R0, XDP_PASS).exit();
        Ok(Self { program: Program::load("fib_lookup", &a.finish())?, _ports: ports })
    }
}

impl Engine for Asks {
    fn attach(&self, _: &Meter) -> Result<Box<dyn Any>> {
        Ok(Box::new(code::attach(&self.program)?))
    }

    fn alone(&self, time: &mut dyn FnMut(&Program) -> Result<f64>) -> Result<f64> {
        time(&self.program)
    }
}
