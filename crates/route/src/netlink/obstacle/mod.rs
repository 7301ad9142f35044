//! What the kernel would have done to forwarded packets and a bypass of it would not: rules, traffic
//! control, IPsec policies, netfilter chains, not to forward at all.
//!
//! [`Survey`] sends one request after another; its owner has a socket for each [`Protocol`] and
//! carries the bytes. [`GROUPS`] is where the kernel reports changes of any of it. Not seen here: BPF programs attached
//! by links (tcx, netfilter), and the old iptables modules, which have no netlink: [`legacy`] reads their tables.

pub mod forwarding;
pub mod legacy;
#[cfg(test)]
mod live;
pub mod nft;
pub mod rule;
pub mod tc;
pub mod xfrm;

use forwarding::Forwarding;

use super::{DONE, ERROR, F_DUMP_INTR, IPV4, IPV6, Malformed, Messages, errno};
use crate::rules::{self, PolicyRule, PolicyRules};

/// A netlink protocol, which is a socket of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `NETLINK_ROUTE`.
    Route,
    /// `NETLINK_XFRM`: IPsec.
    Xfrm,
    /// `NETLINK_NETFILTER`.
    Netfilter,
}

impl Protocol {
    /// Third argument of `socket(AF_NETLINK, SOCK_RAW, ..)`.
    pub fn number(self) -> i32 {
        match self {
            Self::Route => 0,
            Self::Xfrm => 6,
            Self::Netfilter => 12,
        }
    }
}

/// The multicast groups that report changes of the subjects of a [`Survey`]: `RTNLGRP_TC`, `RTNLGRP_IPV4_RULE`,
/// `RTNLGRP_IPV6_RULE`, `RTNLGRP_IPV4_NETCONF`, `RTNLGRP_IPV6_NETCONF`; `XFRMNLGRP_POLICY`; `NFNLGRP_NFTABLES`.
pub const GROUPS: [(Protocol, &[u32]); 3] =
    [(Protocol::Route, &[4, 8, 19, 24, 25]), (Protocol::Xfrm, &[4]), (Protocol::Netfilter, &[7])];

/// Something that keeps packets of a link, or of all links, with the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Obstacle {
    /// `tc`, `xfrm`, `nftables` or `iptables`; `rule` for a policy rule ([`Survey::rules`]).
    pub subsystem: &'static str,
    /// Kernel index of the only link that it concerns.
    pub link: Option<u32>,
    /// Its name in the words of its own tool.
    pub what: String,
}

/// One request of a survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Rules(u8),
    Qdiscs,
    Filters { link: u32, parent: u32 },
    Policies,
    Chains,
    Forwarding(u8),
}

impl Step {
    fn protocol(self) -> Protocol {
        match self {
            Self::Rules(_) | Self::Qdiscs | Self::Filters { .. } | Self::Forwarding(_) => {
                Protocol::Route
            }
            Self::Policies => Protocol::Xfrm,
            Self::Chains => Protocol::Netfilter,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rules(_) => "ip rules",
            Self::Qdiscs => "queueing disciplines",
            Self::Filters { .. } => "traffic filters",
            Self::Policies => "IPsec policies",
            Self::Chains => "nftables chains",
            Self::Forwarding(_) => "forwarding switches",
        }
    }
}

/// Survey of everything that could be an obstacle.
///
/// Loop: send what [`Survey::output`] gives on a socket of that protocol, give what arrives to
/// [`Survey::input`] until `output` has the next request; `None` when none is awaited is the end
/// ([`Survey::is_done`]).
#[derive(Debug)]
pub struct Survey {
    steps: Vec<Step>,
    asked: Option<(u32, Step)>,
    seq: u32,
    disturbed: bool,
    retries: u32,
    rules: [Vec<PolicyRule>; 2],
    obstacles: Vec<Obstacle>,
    forwarding: Forwarding,
    unanswered: Vec<String>,
}

/// Most repetitions of a dump that a change disturbs.
const RETRIES: u32 = 8;

/// Errors that mean that the kernel has no such thing: ENOENT, ENODEV, EINVAL, EPROTONOSUPPORT,
/// EOPNOTSUPP, EAFNOSUPPORT. EPERM is not among them.
const ABSENT: [u32; 6] = [2, 19, 22, 93, 95, 97];

impl Default for Survey {
    fn default() -> Self {
        Self::new()
    }
}

impl Survey {
    /// A survey before its first request.
    pub fn new() -> Self {
        // Taken from the end.
        let steps = vec![
            Step::Forwarding(IPV6),
            Step::Forwarding(IPV4),
            Step::Chains,
            Step::Policies,
            Step::Qdiscs,
            Step::Rules(IPV6),
            Step::Rules(IPV4),
        ];
        Self {
            steps,
            asked: None,
            seq: 0,
            disturbed: false,
            retries: 0,
            rules: Default::default(),
            obstacles: Vec::new(),
            forwarding: Forwarding::default(),
            unanswered: Vec::new(),
        }
    }

    /// The next request, once the reply to the one before is complete.
    pub fn output(&mut self) -> Option<(Protocol, Vec<u8>)> {
        if self.asked.is_some() {
            return None;
        }
        let step = self.steps.pop()?;
        self.seq += 1;
        self.disturbed = false;
        self.asked = Some((self.seq, step));
        let request = match step {
            Step::Rules(family) => {
                // A dump that is repeated has them again.
                self.rules[usize::from(family == IPV6)].clear();
                rule::dump(family, self.seq)
            }
            Step::Qdiscs => tc::dump_qdiscs(self.seq),
            Step::Filters { link, parent } => tc::dump_filters(link, parent, self.seq),
            Step::Policies => xfrm::dump(self.seq),
            Step::Chains => nft::dump_chains(self.seq),
            Step::Forwarding(family) => {
                self.forwarding.forget(family);
                forwarding::dump(family, self.seq)
            }
        };
        Some((step.protocol(), request))
    }

    /// Takes a datagram from the socket of the last request.
    ///
    /// # Errors
    /// [`Malformed`]: the rest of the datagram is not read; the request stays open.
    pub fn input(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        for message in Messages::new(bytes) {
            let message = message?;
            let Some((seq, step)) = self.asked else { return Ok(()) };
            if message.seq != seq {
                continue;
            }
            self.disturbed |= message.flags & F_DUMP_INTR != 0;
            match message.kind {
                DONE | ERROR => {
                    self.asked = None;
                    match message.code()? {
                        0 if self.disturbed && self.retries < RETRIES => {
                            self.retries += 1;
                            self.steps.push(step);
                        }
                        0 => {}
                        code => self.fail(step, code),
                    }
                }
                rule::NEW => {
                    if let Some((family, rule)) = rule::parse(&message)? {
                        self.rules[usize::from(family == IPV6)].push(rule);
                    }
                }
                tc::NEW_QDISC => {
                    let qdisc = tc::parse_qdisc(&message)?;
                    for parent in qdisc.filter_parents() {
                        let next = Step::Filters { link: qdisc.link, parent: *parent };
                        // A dump that is repeated has them again.
                        if !self.steps.contains(&next) {
                            self.steps.push(next);
                        }
                    }
                    self.found(qdisc.obstacle());
                }
                tc::NEW_FILTER => self.found(Some(tc::parse_filter(&message)?)),
                xfrm::NEW => self.found(xfrm::parse(&message)?),
                forwarding::NEW => self.forwarding.read(&message)?,
                nft::NEW_CHAIN => self.found(nft::parse_chain(&message)?),
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes that the last request could not be sent, because of this errno.
    pub fn failed(&mut self, errno: u32) {
        if let Some((_, step)) = self.asked.take() {
            self.fail(step, errno);
        }
    }

    /// Whether the reply to the last request is complete.
    pub fn answered(&self) -> bool {
        self.asked.is_none()
    }

    /// Whether all replies are in.
    pub fn is_done(&self) -> bool {
        self.asked.is_none() && self.steps.is_empty()
    }

    /// What was found, each once.
    pub fn obstacles(&self) -> &[Obstacle] {
        &self.obstacles
    }

    /// The policy rules, as far as they are known.
    pub fn rules(&self) -> PolicyRules {
        PolicyRules::new(self.rules.clone())
    }

    /// Whether the kernel forwards at all.
    pub fn forwarding(&self) -> &Forwarding {
        &self.forwarding
    }

    /// What could not be found out, and why: `IPsec policies: Operation not permitted`.
    pub fn unanswered(&self) -> &[String] {
        &self.unanswered
    }

    fn fail(&mut self, step: Step, error: u32) {
        if let Step::Rules(family) = step {
            self.rules[usize::from(family == IPV6)] = rules::usual();
        }
        if !ABSENT.contains(&error) {
            self.unanswered.push(format!("{}: {}", step.name(), errno::words(error)));
        }
    }

    fn found(&mut self, obstacle: Option<Obstacle>) {
        self.obstacles.extend(obstacle.filter(|new| !self.obstacles.contains(new)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::*;

    fn done(seq: u32, code: i32, flags: u16) -> Vec<u8> {
        Request::new(DONE, 2 | flags, seq).fixed(&code.to_ne_bytes()).finish()
    }

    #[test]
    fn requests_follow_one_another_and_repeat_when_disturbed() {
        let mut survey = Survey::new();
        let mut asked = Vec::new();
        while let Some((protocol, request)) = survey.output() {
            asked.push(protocol.number());
            assert!(survey.output().is_none(), "one at a time");
            let seq = u32::from_ne_bytes(request[8..12].try_into().unwrap());
            survey.input(&done(seq + 1, 0, 0)).unwrap(); // another's answer
            assert!(survey.output().is_none());
            let disturb = if asked.len() == 2 { F_DUMP_INTR } else { 0 };
            let code = [0, 0, 0, 0, -1, -95, 0, -95][asked.len() - 1];
            survey.input(&done(seq, code, disturb)).unwrap();
        }
        assert_eq!(asked, [0, 0, 0, 0, 6, 12, 0, 0]);
        assert!(survey.is_done());
        // Rules were requested twice and then there were none.
        assert_eq!(survey.rules(), PolicyRules::new([vec![], vec![]]));
        assert_eq!(survey.obstacles(), []);
        // No nf_tables is no obstacle; not being allowed to look is not the same as nothing there.
        assert_eq!(survey.unanswered(), ["IPsec policies: Operation not permitted"]);
    }
}
