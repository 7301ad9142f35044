//! Policy rules: messages of `ip rule`.

use super::super::{IPV4, IPV6, Malformed, Message, Request, fixed, u32_at};
use crate::rules::{PolicyRule, RuleAction};

/// `RTM_NEWRULE`.
pub const NEW: u16 = 32;
const GET: u16 = 34;

const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_OIFNAME: u16 = 17;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_PROTOCOL: u16 = 21;

const FR_ACT_TO_TBL: u8 = 1;
/// The rule selects what it does not match.
const INVERT: u32 = 0x2;
/// The interface that it names is not there.
const IIF_DETACHED: u32 = 0x8;

fn tool(family: u8) -> &'static str {
    if family == IPV4 { "ip" } else { "ip -6" }
}

/// Reads [`NEW`]; `None` for a rule of neither IPv4 nor IPv6.
///
/// # Errors
/// [`Malformed`].
pub fn parse(message: &Message<'_>) -> Result<Option<(u8, PolicyRule)>, Malformed> {
    let (h, attrs) = fixed::<12>(message.body, "fib_rule_hdr")?;
    let [family, dst_len, src_len, tos, table, _, _, action, ..] = *h;
    if family != IPV4 && family != IPV6 {
        return Ok(None);
    }
    let flags = u32_at(h, 8) & !IIF_DETACHED;
    let mut plain =
        dst_len == 0 && src_len == 0 && tos == 0 && action == FR_ACT_TO_TBL && flags == 0;
    let (mut priority, mut table, mut iif, mut vrf) = (0, u32::from(table), None, false);
    let (mut from, mut rest) = (String::from("all"), String::new());
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            FRA_PRIORITY => priority = attr.u32()?,
            FRA_TABLE => table = attr.u32()?,
            FRA_PROTOCOL | FRA_PAD => {}
            // All ones: nothing is suppressed.
            FRA_SUPPRESS_PREFIXLEN if attr.u32()? == u32::MAX => {}
            FRA_IIFNAME => {
                rest.push_str(&format!(" iif {}", attr.text()));
                iif = Some(attr.text().into_owned());
            }
            FRA_L3MDEV => {
                rest.push_str(" l3mdev");
                vrf = attr.u8()? == 1;
                plain &= vrf;
            }
            kind => {
                plain = false;
                match kind {
                    FRA_SRC => from = format!("{}/{src_len}", attr.ip()?),
                    FRA_DST => rest.push_str(&format!(" to {}/{dst_len}", attr.ip()?)),
                    FRA_OIFNAME => rest.push_str(&format!(" oif {}", attr.text())),
                    FRA_FWMARK => rest.push_str(&format!(" fwmark {:#x}", attr.u32()?)),
                    _ => {}
                }
            }
        }
    }
    let then = match action {
        FR_ACT_TO_TBL if vrf => "lookup that of the VRF".into(),
        FR_ACT_TO_TBL => format!("lookup {table}"),
        2 => "goto".into(),
        3 => "nop".into(),
        6 => "blackhole".into(),
        7 => "unreachable".into(),
        8 => "prohibit".into(),
        other => format!("action {other}"),
    };
    let not = if flags & INVERT != 0 { "not " } else { "" };
    let words = format!("{} rule {priority}: {not}from {from}{rest} {then}", tool(family));
    let action = match plain {
        true if vrf => RuleAction::Vrf,
        true => RuleAction::Table(table),
        false => RuleAction::Other,
    };
    // One that is inverted concerns the other interfaces.
    let iif = iif.filter(|_| not.is_empty());
    Ok(Some((family, PolicyRule { priority, iif, action, words })))
}

/// Request for all rules of a family.
pub fn dump(family: u8, seq: u32) -> Vec<u8> {
    Request::dump(GET, seq).fixed(&[family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).finish()
}

#[cfg(test)]
mod tests {
    use super::super::super::Messages;
    use super::*;

    fn read(table: u8, flags: u8, more: &[(u16, &[u8])]) -> PolicyRule {
        let src_len = if more.iter().any(|(kind, _)| *kind == FRA_SRC) { 8 } else { 0 };
        let request = Request::new(NEW, 2, 1)
            .fixed(&[IPV4, 0, src_len, 0, table, 0, 0, FR_ACT_TO_TBL, flags, 0, 0, 0])
            .attr(FRA_SUPPRESS_PREFIXLEN, &u32::MAX.to_ne_bytes())
            .attr(FRA_TABLE, &u32::from(table).to_ne_bytes())
            .attr(FRA_PRIORITY, &100u32.to_ne_bytes());
        let request = more.iter().fold(request, |r, (kind, data)| r.attr(*kind, data));
        let message = request.finish();
        let parsed = parse(&Messages::new(&message).next().unwrap().unwrap()).unwrap();
        parsed.unwrap().1
    }

    #[test]
    fn rules_that_select_by_interface_alone_name_a_table() {
        assert_eq!(read(254, 0, &[]).action, RuleAction::Table(254));
        let iif = (FRA_IIFNAME, &b"eth0\0"[..]);
        // Whether the interface is there does not matter.
        for flags in [0, 8] {
            let rule = read(7, flags, &[iif]);
            assert_eq!((rule.iif.as_deref(), rule.action), (Some("eth0"), RuleAction::Table(7)));
            assert_eq!(rule.words, "ip rule 100: from all iif eth0 lookup 7");
        }
        let vrf = read(0, 0, &[(FRA_L3MDEV, &[1])]);
        assert_eq!((vrf.priority, vrf.iif, vrf.action), (100, None, RuleAction::Vrf));
        let from = read(254, 0, &[(FRA_SRC, &[10, 0, 0, 0]), iif]);
        assert_eq!((from.iif.as_deref(), from.action), (Some("eth0"), RuleAction::Other));
        assert_eq!(from.words, "ip rule 100: from 10.0.0.0/8 iif eth0 lookup 254");
        let less = read(254, 0, &[(FRA_SUPPRESS_PREFIXLEN, &[0; 4])]);
        assert_eq!(less.action, RuleAction::Other);
        let not = read(7, 2, &[iif]);
        assert_eq!((not.iif, not.action), (None, RuleAction::Other), "all other interfaces");
        assert_eq!(not.words, "ip rule 100: not from all iif eth0 lookup 7");
    }
}
