//! nf_tables: base chains that forwarded packets pass (iptables-nft makes the same ones).

use super::super::{Malformed, Message, Request, fixed};
use super::Obstacle;

/// Subsystem `NFNL_SUBSYS_NFTABLES`, message `NFT_MSG_NEWCHAIN`.
pub const NEW_CHAIN: u16 = 10 << 8 | 3;
const GET_CHAIN: u16 = 10 << 8 | 4;

const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_USE: u16 = 6;
const NFTA_CHAIN_TYPE: u16 = 7;

const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;

const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_NETDEV: u8 = 5;
const NFPROTO_BRIDGE: u8 = 7;
const NFPROTO_IPV6: u8 = 10;

/// Reads [`NEW_CHAIN`]. `None` for chains that no forwarded packet passes, and for those that let
/// everything through: no rules, policy accept.
///
/// # Errors
/// [`Malformed`].
pub fn parse_chain(message: &Message<'_>) -> Result<Option<Obstacle>, Malformed> {
    let (h, attrs) = fixed::<4>(message.body, "nfgenmsg")?;
    let family = h[0];
    let (mut table, mut name, mut kind) = (String::new(), String::new(), String::new());
    let (mut hook, mut device, mut rules, mut drops) = (None, String::new(), 0, false);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_CHAIN_TABLE => table = attr.text().into_owned(),
            NFTA_CHAIN_NAME => name = attr.text().into_owned(),
            NFTA_CHAIN_TYPE => kind = attr.text().into_owned(),
            // NF_DROP is 0, NF_ACCEPT 1.
            NFTA_CHAIN_POLICY => drops = attr.u32_be()? == 0,
            // References to a base chain, which nothing can jump to: its rules.
            NFTA_CHAIN_USE => rules = attr.u32_be()?,
            NFTA_CHAIN_HOOK => {
                for part in attr.nested() {
                    let part = part?;
                    match part.kind {
                        NFTA_HOOK_HOOKNUM => hook = Some(part.u32_be()?),
                        NFTA_HOOK_DEV => device = part.text().into_owned(),
                        NFTA_HOOK_DEVS => {
                            let names: Result<Vec<_>, _> =
                                part.nested().map(|a| a.map(|a| a.text())).collect();
                            device = names?.join(",");
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let (family, hook) = match (family, hook) {
        (NFPROTO_INET, Some(5)) => ("inet", "ingress"),
        (NFPROTO_INET, Some(hook)) => ("inet", inet_hook(hook)),
        (NFPROTO_IPV4, Some(hook)) => ("ip", inet_hook(hook)),
        (NFPROTO_IPV6, Some(hook)) => ("ip6", inet_hook(hook)),
        (NFPROTO_NETDEV, Some(0)) => ("netdev", "ingress"),
        (NFPROTO_NETDEV, Some(1)) => ("netdev", "egress"),
        // Between the ports of a bridge; these stay with the kernel anyway.
        (NFPROTO_BRIDGE, _) => return Ok(None),
        _ => return Ok(None),
    };
    if hook.is_empty() || (rules == 0 && !drops) {
        return Ok(None);
    }
    let mut what = format!("nft {family} table {table} chain {name}: {kind} hook {hook}");
    if !device.is_empty() {
        what.push_str(&format!(" on {device}"));
    }
    what.push_str(&format!(", {rules} rule{}", if rules == 1 { "" } else { "s" }));
    if drops {
        what.push_str(", policy drop");
    }
    Ok(Some(Obstacle { subsystem: "nftables", link: None, what }))
}

/// The hooks of forwarded packets; empty for those of the host's own.
fn inet_hook(hook: u32) -> &'static str {
    match hook {
        0 => "prerouting",
        2 => "forward",
        4 => "postrouting",
        _ => "",
    }
}

/// Request for all chains of all families.
pub fn dump_chains(seq: u32) -> Vec<u8> {
    // nfgenmsg: family, version, resource; family 0 for all.
    Request::dump(GET_CHAIN, seq).fixed(&[0; 4]).finish()
}
