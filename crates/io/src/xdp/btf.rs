//! Numbers of the kernel's own functions, which a program must name to call them.
//!
//! Source: the kernel's `Documentation/bpf/btf.rst`. `/sys/kernel/btf/vmlinux` lists all types of the
//! kernel one after another; a type's number is its place in the list, from 1.
//! Cost: reading 5 to 10 MB, some 10 ms, once.

use std::sync::OnceLock;

/// Bytes that follow a type of each kind (by number), and bytes for each of its members besides.
const SIZES: [(usize, usize); 20] = [
    (0, 0),  // none
    (4, 0),  // integer
    (0, 0),  // pointer
    (12, 0), // array
    (0, 12), // struct
    (0, 12), // union
    (0, 8),  // enum
    (0, 0),  // forward
    (0, 0),  // typedef
    (0, 0),  // volatile
    (0, 0),  // const
    (0, 0),  // restrict
    (0, 0),  // function
    (0, 8),  // prototype
    (4, 0),  // variable
    (0, 12), // section
    (0, 0),  // float
    (4, 0),  // declaration tag
    (0, 0),  // type tag
    (0, 12), // enum of 64 bits
];

const FUNCTION: usize = 12;

/// The number of `bpf_xdp_metadata_rx_vlan_tag` (Linux 6.8): reports a tag that the device took off.
pub(super) fn vlan_tag_function() -> Option<i32> {
    static NUMBER: OnceLock<Option<i32>> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let types = std::fs::read("/sys/kernel/btf/vmlinux").ok()?;
        function(&types, "bpf_xdp_metadata_rx_vlan_tag")
    })
}

/// The number of a function; `None` where it is not listed, or the list makes no sense.
fn function(btf: &[u8], name: &str) -> Option<i32> {
    let word = |at: usize| -> Option<usize> {
        let bytes = btf.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().expect("4 bytes")) as usize)
    };
    if btf.get(..2)? != 0xeb9f_u16.to_ne_bytes() {
        return None;
    }
    let header = word(4)?;
    let (types, types_bytes, strings) = (header + word(8)?, word(12)?, header + word(16)?);
    let name = [name.as_bytes(), &[0]].concat();
    let mut at = types;
    let mut number = 1;
    while at < types + types_bytes {
        let info = word(at + 4)?;
        let (kind, members) = (info >> 24 & 0x1f, info & 0xffff);
        if kind == FUNCTION {
            let string = strings + word(at)?;
            if btf.get(string..string + name.len())? == name {
                return Some(number);
            }
        }
        let &(fixed, each) = SIZES.get(kind)?;
        at += 12 + fixed + each * members;
        number += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of three types: an integer, a struct of two members, a function.
    fn list() -> Vec<u8> {
        let strings = b"\0int\0pair\0other\0wanted\0";
        let mut types: Vec<u32> = Vec::new();
        types.extend([1, 1 << 24, 4, 32]);
        types.extend([5, 4 << 24 | 2, 8, 0, 1, 0, 0, 1, 32]);
        types.extend([10, 12 << 24, 1]);
        types.extend([16, 12 << 24, 1]);
        let bytes = u32::try_from(types.len() * 4).unwrap();
        let mut btf = [0xeb9f_u16.to_ne_bytes(), [1, 0]].concat();
        for word in [24, 0, bytes, bytes, u32::try_from(strings.len()).unwrap()] {
            btf.extend(word.to_ne_bytes());
        }
        types.iter().for_each(|word| btf.extend(word.to_ne_bytes()));
        btf.extend(strings);
        btf
    }

    #[test]
    fn functions_are_found_by_name() {
        let list = list();
        assert_eq!((function(&list, "other"), function(&list, "wanted")), (Some(3), Some(4)));
        assert_eq!((function(&list, "want"), function(&list, "pair")), (None, None));
        for len in 0..list.len() {
            assert_eq!(function(&list[..len], "wanted"), None, "cut at {len}");
        }
    }
}
