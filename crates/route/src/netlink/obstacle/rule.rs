//! Policy routing: `ip rule` beyond the rules that each kernel starts with.

use super::super::{IPV4, IPV6, Malformed, Message, Request, fixed, u32_at};
use super::Obstacle;

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

/// Priority and table of the rules that are there from the start: local, main, default. The last is
/// IPv4's only.
const DEFAULTS: [(u32, u32); 3] = [(0, 255), (32766, 254), (32767, 253)];

/// What a rule is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// There from the start: local 0, main 1, default 2.
    Default(usize),
    /// One more, or another.
    More(Obstacle),
    /// The rule is of neither IPv4 nor IPv6.
    Other,
}

/// What the rules that were seen lack: each family looks up its addresses in local, then in main.
pub fn missing(family: u8, seen: [bool; 3]) -> Vec<Obstacle> {
    let lacking = DEFAULTS.iter().zip(seen).take(2).filter(|(_, seen)| !seen);
    lacking
        .map(|((priority, table), _)| {
            let what = format!("{} rule {priority}: missing (lookup {table})", tool(family));
            Obstacle { subsystem: "rule", link: None, what }
        })
        .collect()
}

fn tool(family: u8) -> &'static str {
    if family == IPV4 { "ip" } else { "ip -6" }
}

/// Reads [`NEW`].
///
/// # Errors
/// [`Malformed`].
pub fn parse(message: &Message<'_>) -> Result<Rule, Malformed> {
    let (h, attrs) = fixed::<12>(message.body, "fib_rule_hdr")?;
    let [family, dst_len, src_len, tos, table, _, _, action, ..] = *h;
    if family != IPV4 && family != IPV6 {
        return Ok(Rule::Other);
    }
    let mut plain =
        dst_len == 0 && src_len == 0 && tos == 0 && action == FR_ACT_TO_TBL && u32_at(h, 8) == 0;
    let (mut priority, mut table) = (0, u32::from(table));
    let (mut from, mut rest) = (String::from("all"), String::new());
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            FRA_PRIORITY => priority = attr.u32()?,
            FRA_TABLE => table = attr.u32()?,
            FRA_PROTOCOL | FRA_PAD => {}
            // All ones: nothing is suppressed.
            FRA_SUPPRESS_PREFIXLEN if attr.u32()? == u32::MAX => {}
            kind => {
                plain = false;
                match kind {
                    FRA_SRC => from = format!("{}/{src_len}", attr.ip()?),
                    FRA_DST => rest.push_str(&format!(" to {}/{dst_len}", attr.ip()?)),
                    FRA_IIFNAME => rest.push_str(&format!(" iif {}", attr.text())),
                    FRA_OIFNAME => rest.push_str(&format!(" oif {}", attr.text())),
                    FRA_FWMARK => rest.push_str(&format!(" fwmark {:#x}", attr.u32()?)),
                    FRA_L3MDEV => rest.push_str(" l3mdev"),
                    _ => {}
                }
            }
        }
    }
    let defaults = if family == IPV4 { &DEFAULTS[..] } else { &DEFAULTS[..2] };
    if plain && let Some(at) = defaults.iter().position(|rule| *rule == (priority, table)) {
        return Ok(Rule::Default(at));
    }
    let then = match action {
        FR_ACT_TO_TBL => format!("lookup {table}"),
        2 => "goto".into(),
        3 => "nop".into(),
        6 => "blackhole".into(),
        7 => "unreachable".into(),
        8 => "prohibit".into(),
        other => format!("action {other}"),
    };
    let what = format!("{} rule {priority}: from {from}{rest} {then}", tool(family));
    Ok(Rule::More(Obstacle { subsystem: "rule", link: None, what }))
}

/// Request for all rules of a family.
pub fn dump(family: u8, seq: u32) -> Vec<u8> {
    Request::dump(GET, seq).fixed(&[family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).finish()
}

#[cfg(test)]
mod tests {
    use super::super::super::Messages;
    use super::*;

    fn rule(family: u8, table: u8, priority: u32, more: &[(u16, &[u8])]) -> Option<Obstacle> {
        match read(family, table, priority, more) {
            Rule::More(obstacle) => Some(obstacle),
            Rule::Default(_) => None,
            Rule::Other => panic!("an IP rule"),
        }
    }

    fn read(family: u8, table: u8, priority: u32, more: &[(u16, &[u8])]) -> Rule {
        let src_len = if more.iter().any(|(kind, _)| *kind == FRA_SRC) { 8 } else { 0 };
        let mut request = Request::new(NEW, 2, 1)
            .fixed(&[family, 0, src_len, 0, table, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0])
            .attr(FRA_SUPPRESS_PREFIXLEN, &u32::MAX.to_ne_bytes())
            .attr(FRA_TABLE, &u32::from(table).to_ne_bytes());
        if priority > 0 {
            request = request.attr(FRA_PRIORITY, &priority.to_ne_bytes());
        }
        let request = more.iter().fold(request, |r, (kind, data)| r.attr(*kind, data));
        parse(&Messages::new(&request.finish()).next().unwrap().unwrap()).unwrap()
    }

    #[test]
    fn the_rules_of_a_fresh_kernel_are_no_obstacle() {
        for (priority, table) in [(0, 255), (32766, 254), (32767, 253)] {
            assert_eq!(rule(IPV4, table, priority, &[]), None);
        }
        assert!(rule(IPV6, 253, 32767, &[]).is_some(), "IPv6 has no default table");
        assert!(rule(IPV4, 100, 32766, &[]).is_some(), "another table");
        assert!(rule(IPV4, 254, 100, &[]).is_some(), "another place");
        let found = rule(IPV4, 254, 32766, &[(FRA_SRC, &[10, 0, 0, 0])]).unwrap();
        assert_eq!(found.what, "ip rule 32766: from 10.0.0.0/8 lookup 254");
        assert!(rule(IPV4, 254, 32766, &[(FRA_SUPPRESS_PREFIXLEN, &[0; 4])]).is_some());
        assert_eq!(read(IPV6, 254, 32766, &[]), Rule::Default(1));
        assert_eq!(missing(IPV6, [true, true, false]), []);
        let lacking = missing(IPV4, [true, false, true]);
        assert_eq!(lacking[0].what, "ip rule 32766: missing (lookup 254)");
    }
}
