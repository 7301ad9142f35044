//! Policy rules (`ip rule`): the route tables that the packets of an interface are looked up in.
//!
//! Rules that select nothing but the ingress interface, or the VRF that it belongs to, reduce to a list of tables for each
//! interface: a destination that the first one has no route for is looked up in the next. Any other rule depends on
//! what only the kernel looks at, and keeps the packets that it may concern with the kernel.

use crate::event::MAIN_TABLE;

/// The table that is looked up for the host's own addresses; of the host itself they are known anyway.
const LOCAL_TABLE: u32 = 255;
/// The name that selects packets of the host itself.
const LOOPBACK: &str = "lo";

/// A policy rule of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyRule {
    /// Its place: the lowest is the first.
    pub priority: u32,
    /// The only ingress interface that it concerns.
    pub iif: Option<String>,
    /// What it does.
    pub action: RuleAction,
    /// The rule, in the words of its own tool.
    pub words: String,
}

/// Action of a policy rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleAction {
    /// Look up in this table.
    Table(u32),
    /// Look up in the table of the VRF that the interface belongs to (`l3mdev`).
    Vrf,
    /// Anything else, or for some packets of the interface only.
    Other,
}

/// What rules may select an interface by.
#[derive(Clone, Copy, Debug)]
pub struct Selected<'a> {
    /// Its name.
    pub name: &'a str,
    /// The VRF that it belongs to: its name and its table.
    pub vrf: Option<(&'a str, u32)>,
}

/// The policy rules of both families, each in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyRules([Vec<PolicyRule>; 2]);

impl Default for PolicyRules {
    fn default() -> Self {
        Self([usual(), usual()])
    }
}

/// The rules of a kernel with VRFs to which none were added.
pub fn usual() -> Vec<PolicyRule> {
    let rule = |priority, action| PolicyRule { priority, iif: None, action, words: String::new() };
    vec![
        rule(0, RuleAction::Table(LOCAL_TABLE)),
        rule(1000, RuleAction::Vrf),
        rule(32766, RuleAction::Table(MAIN_TABLE)),
    ]
}

impl PolicyRules {
    /// These rules, IPv4 first, in any order.
    pub fn new(mut rules: [Vec<PolicyRule>; 2]) -> Self {
        // Stable: of rules of one place the kernel reports the first one first.
        rules.iter_mut().for_each(|rules| rules.sort_by_key(|rule| rule.priority));
        Self(rules)
    }

    /// The tables that packets of a family (4 or 6) are looked up in that arrive on an interface, in their order.
    ///
    /// # Errors
    /// The rule that does not reduce to a table, in words: what it may concern is the kernel's.
    pub fn tables(&self, family: u8, of: Selected<'_>) -> Result<Vec<u32>, String> {
        let mut tables = Vec::new();
        let mut has_local = false;
        for rule in &self.0[usize::from(family == 6)] {
            let here = match (rule.iif.as_deref(), of.vrf) {
                (None, _) => true,
                (Some(LOOPBACK), _) => false,
                // Kernels differ in which of the two such a packet arrives on.
                (Some(iif), Some((vrf, _))) if iif == vrf || iif == of.name => {
                    return Err(rule.words.clone());
                }
                (Some(iif), _) => iif == of.name,
            };
            match rule.action {
                _ if !here => {}
                RuleAction::Table(LOCAL_TABLE) => has_local = true,
                RuleAction::Table(table) => tables.push(table),
                RuleAction::Vrf => tables.extend(of.vrf.map(|(_, table)| table)),
                RuleAction::Other => return Err(rule.words.clone()),
            }
        }
        let tool = if family == 4 { "ip" } else { "ip -6" };
        if !has_local {
            return Err(format!("{tool} rule 0: missing (lookup {LOCAL_TABLE})"));
        }
        if tables.is_empty() {
            return Err(format!("{tool} rule 32766: missing (lookup {MAIN_TABLE})"));
        }
        Ok(tables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(priority: u32, iif: &str, action: RuleAction) -> PolicyRule {
        let iif = Some(iif.to_owned()).filter(|iif| !iif.is_empty());
        PolicyRule { priority, iif, action, words: format!("rule {priority}") }
    }

    const A: Selected<'_> = Selected { name: "a", vrf: None };
    const B: Selected<'_> = Selected { name: "b", vrf: None };
    const RED: Selected<'_> = Selected { name: "r", vrf: Some(("red", 10)) };

    fn with(more: impl IntoIterator<Item = PolicyRule>) -> PolicyRules {
        let PolicyRules([mut v4, v6]) = PolicyRules::default();
        v4.extend(more);
        PolicyRules::new([v4, v6])
    }

    #[test]
    fn each_interface_has_its_tables() {
        use RuleAction::{Other, Table};
        let plain = PolicyRules::default();
        assert_eq!(plain.tables(4, A), Ok(vec![254]));
        assert_eq!(plain.tables(6, RED), Ok(vec![10, 254]), "what the VRF lacks is in main");
        let rules = with([
            rule(100, "a", Table(7)),
            rule(90, "a", Table(8)),
            rule(2000, "", Table(9)),
            rule(5, "lo", Other),
        ]);
        assert_eq!(rules.tables(4, A), Ok(vec![8, 7, 9, 254]));
        assert_eq!(rules.tables(4, B), Ok(vec![9, 254]));
        assert_eq!(rules.tables(4, RED), Ok(vec![10, 9, 254]));
        assert_eq!(rules.tables(6, A), Ok(vec![254]), "they are IPv4's");
        // What depends on more concerns its interface, or all.
        let rules = with([rule(100, "a", Other)]);
        assert_eq!(rules.tables(4, A), Err("rule 100".into()));
        assert_eq!(rules.tables(4, B), Ok(vec![254]));
        assert_eq!(with([rule(9, "", Other)]).tables(4, B), Err("rule 9".into()));
        // By the VRF's own name, or a member's.
        for name in ["red", "r"] {
            let rules = with([rule(100, name, Table(7))]);
            assert_eq!(rules.tables(4, RED), Err("rule 100".into()));
            assert_eq!(rules.tables(4, A), Ok(vec![254]));
        }
        // The host's own addresses may come later, but not never.
        let moved = [rule(32765, "", Table(255)), rule(32766, "", Table(254))];
        assert_eq!(PolicyRules::new([moved.to_vec(), vec![]]).tables(4, A), Ok(vec![254]));
        let rules = PolicyRules::new([vec![moved[1].clone()], vec![moved[0].clone()]]);
        assert_eq!(rules.tables(4, A), Err("ip rule 0: missing (lookup 255)".into()));
        assert_eq!(rules.tables(6, A), Err("ip -6 rule 32766: missing (lookup 254)".into()));
    }
}
