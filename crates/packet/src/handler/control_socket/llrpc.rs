//! LLRPCs, Click's binary calls into elements, as far as handlers answer them.
//!
//! Source: Click's `llrpc.h`, and the manual pages of `Counter` and `Switch`. The number of an LLRPC has
//! the direction of its data, their length in bytes, and whether they hold no pointers; a client may call no other. A counter
//! has one for its rate and one for its count, of packets (key 0) or bytes (key 1); a switch has two, which read and set its output.

use std::str::FromStr;

/// Data goes to the element.
const IN: u32 = 0x8000_0000;
/// Data comes from the element.
const OUT: u32 = 0x4000_0000;
/// Data holds no pointers.
const FLAT: u32 = 0x4000;

const GET_RATE: u32 = 0xc004_c001;
const GET_COUNT: u32 = 0xc004_c003;
const GET_SWITCH: u32 = 0x4004_c005;
const SET_SWITCH: u32 = 0x8004_4006;

/// The number of an LLRPC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Llrpc(u32);

impl Llrpc {
    /// Element and number of a name, `ELEMENT#HEXADECIMAL`.
    pub(super) fn read(name: &str) -> Option<(&str, Self)> {
        let (element, number) = name.split_once('#')?;
        let number = u32::from_str_radix(number.strip_prefix("0x").unwrap_or(number), 16).ok()?;
        Some((element, Self(number)))
    }

    /// Bytes of its data.
    pub(super) fn size(self) -> usize {
        (self.0 >> 16 & 0xfff) as usize
    }

    /// Whether its number alone shows how to call it.
    pub(super) fn is_remote(self) -> bool {
        self.size() > 0 && self.0 & (IN | OUT) != 0 && self.0 & FLAT != 0
    }

    /// Whether it is given data.
    pub(super) fn takes_data(self) -> bool {
        self.0 & IN != 0
    }

    /// Calls it by the handlers of its element; `None` where the element has no such one, or refuses the data.
    pub(super) fn call(
        self,
        data: &[u8],
        read: impl Fn(&str) -> Option<String>,
        write: impl Fn(&str, &str) -> Option<()>,
    ) -> Option<Vec<u8>> {
        let given = data.first_chunk().copied().map(u32::from_ne_bytes);
        let number = |text: String| whole::<u64>(&text).map(|number| low(number).to_vec());
        match (self.0, given) {
            (GET_RATE, Some(0)) => number(read("rate")?),
            (GET_COUNT, Some(0)) => number(read("count")?),
            (GET_COUNT, Some(1)) => number(read("byte_count")?),
            (GET_SWITCH, _) => whole::<i32>(&read("switch")?).map(|at| at.to_ne_bytes().to_vec()),
            (SET_SWITCH, Some(at)) => {
                let at = i32::from_ne_bytes(at.to_ne_bytes());
                write("switch", &at.to_string()).map(|()| Vec::new())
            }
            _ => None,
        }
    }
}

/// The whole number that a text begins with.
fn whole<T: FromStr>(text: &str) -> Option<T> {
    text.trim().split('.').next()?.parse().ok()
}

/// The lowest four bytes of a number, in the order of the host.
fn low(number: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d]).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_answer() {
        let read = |name: &str| match name {
            "rate" => Some("12.5\n".to_owned()),
            "count" => Some("4294967299".to_owned()),
            "switch" => Some("-1".to_owned()),
            _ => None,
        };
        let write = |name: &str, text: &str| ((name, text) == ("switch", "-1")).then_some(());
        let call = |name: &str, data: u32| {
            let (element, llrpc) = Llrpc::read(name).unwrap();
            assert_eq!((element, llrpc.size(), llrpc.is_remote()), ("a/b", 4, true), "{name}");
            llrpc.call(&data.to_ne_bytes(), read, write)
        };
        let word = |number: u32| Some(number.to_ne_bytes().to_vec());
        assert_eq!([call("a/b#c004c001", 0), call("a/b#C004C001", 1)], [word(12), None]);
        assert_eq!([call("a/b#c004c003", 0), call("a/b#c004c003", 1)], [word(3), None]);
        assert_eq!(call("a/b#4004c005", 0), word(u32::MAX));
        assert_eq!([call("a/b#80044006", u32::MAX), call("a/b#80044006", 7)], [Some(vec![]), None]);
        assert_eq!(call("a/b#c0044007", 0), None);
        assert!(["a", "a#", "a#x", "a#1c004c0030"].iter().all(|name| Llrpc::read(name).is_none()));
        assert!(!Llrpc(0xc004_8001).is_remote() && !Llrpc(0xc000_c001).is_remote());
    }
}
