//! What the classifier decides, in plain Rust: the slow, obvious answer that its program is tested
//! against, and the place to read the rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Families;

/// Who gets a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The kernel.
    Pass,
    /// The router, through an AF_XDP socket.
    Redirect,
}

/// Least bytes of a frame that is looked at: link header and IPv4 header.
const SHORTEST: usize = 34;

/// Decides about one frame, from its Ethernet header on, received by the interface that has the
/// address `mac` and whose sockets hold frames of at most `max_len` bytes.
///
/// To the router goes only what it will forward for sure or drop for a reason of its own: untagged
/// IPv4 and IPv6, sent to this interface's own link address, to a unicast address that is not local.
/// All else is the kernel's: ARP and other protocols, VLAN tags, multicast and broadcast, link-local
/// and loopback addresses, our own addresses, what is too short to classify and too long to hold.
/// Broken headers of packets to others go to the router, which counts them by reason. Packets of the families in `left`
/// are the kernel's as well; frames of the EtherType `taken` are the router's to whatever address they are sent.
pub fn classify(
    frame: &[u8],
    mac: [u8; 6],
    max_len: u16,
    (left, taken): (Families, Option<u16>),
    local: &dyn Fn(IpAddr) -> bool,
) -> Verdict {
    if !(SHORTEST..=usize::from(max_len)).contains(&frame.len()) {
        return Verdict::Pass;
    }
    let ethertype = u16::from_be_bytes([frame[12], frame[13]]);
    if taken == Some(ethertype) {
        return Verdict::Redirect;
    }
    if !frame.starts_with(&mac) {
        return Verdict::Pass;
    }
    let to_others = match frame.get(12..14) {
        Some([0x08, 0x00]) if !left.v4 => frame.get(30..34).is_some_and(|bytes| {
            let address = Ipv4Addr::from(<[u8; 4]>::try_from(bytes).expect("4 bytes"));
            // 0/8 and 127/8 do not leave a host, 224/4 is multicast.
            !(matches!(address.octets()[0], 0 | 127 | 224..=239)
                || address.is_broadcast()
                || local(address.into()))
        }),
        Some([0x86, 0xdd]) if !left.v6 => frame.get(38..54).is_some_and(|bytes| {
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).expect("16 bytes"));
            !(address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || address.is_unicast_link_local()
                || local(address.into()))
        }),
        _ => false,
    };
    if to_others { Verdict::Redirect } else { Verdict::Pass }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn verdict(destination: &str) -> Verdict {
        let mut frame = vec![0; 60];
        frame[..6].copy_from_slice(&MAC);
        match destination.parse().unwrap() {
            IpAddr::V4(v4) => {
                frame[12..14].copy_from_slice(&[8, 0]);
                frame[30..34].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                frame[12..14].copy_from_slice(&[0x86, 0xdd]);
                frame[38..54].copy_from_slice(&v6.octets());
            }
        }
        let own: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        classify(&frame, MAC, 1792, (Families::NONE, None), &|a| own.contains(&a))
    }

    #[test]
    fn unicast_to_others_goes_to_the_router() {
        for address in
            ["1.0.0.0", "10.0.0.2", "126.1.1.1", "128.0.0.1", "223.255.255.255", "240.0.0.1"]
        {
            assert_eq!(verdict(address), Verdict::Redirect, "{address}");
        }
        for address in ["::2", "fd00::2", "2001:db8::1", "fe00::1", "fec0::1", "fe7f:ffff::"] {
            assert_eq!(verdict(address), Verdict::Redirect, "{address}");
        }
    }

    #[test]
    fn the_rest_stays_with_the_kernel() {
        for address in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.1",
            "127.0.0.1",
            "127.255.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
            "::",
            "::1",
            "fd00::1",
            "ff02::1",
            "fe80::1",
            "febf:ffff::1",
        ] {
            assert_eq!(verdict(address), Verdict::Pass, "{address}");
        }
    }
}
