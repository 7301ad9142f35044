//! Classes of Click that are another class under a second name: `Null1` to `Null8`, `DiscardNoFree`, `CheckIPHeader2`, `ICMPPingEncap`,
//! `EtherVlanEncap`, `SetVlanAnno`, `StripEtherVlanHeader`, `SimpleIdle`, `SimplePrioSched`, `Error`; and information about a configuration
//! that nothing here needs: `AlignmentInfo`, `DevirtualizeInfo`, `FlowInfo`, `IPFieldInfo`, `IPNameInfo`.
//!
//! Source: Click's elements of these names.

use super::{encap, info, null};
use crate::element::click::{check_ip_header, discard, idle, sched, vlan};
use crate::graph::ElementClass;
use crate::language::ClassSpec;

/// Class under another name.
pub(super) const fn renamed(name: &'static str, class: &ElementClass) -> ElementClass {
    ElementClass { spec: ClassSpec { name, ..class.spec }, ..*class }
}

pub(crate) const NULL1: ElementClass = renamed("Null1", &null::NULL);
pub(crate) const NULL2: ElementClass = renamed("Null2", &null::NULL);
pub(crate) const NULL3: ElementClass = renamed("Null3", &null::NULL);
pub(crate) const NULL4: ElementClass = renamed("Null4", &null::NULL);
pub(crate) const NULL5: ElementClass = renamed("Null5", &null::NULL);
pub(crate) const NULL6: ElementClass = renamed("Null6", &null::NULL);
pub(crate) const NULL7: ElementClass = renamed("Null7", &null::NULL);
pub(crate) const NULL8: ElementClass = renamed("Null8", &null::NULL);
pub(crate) const DISCARD: ElementClass = renamed("DiscardNoFree", &discard::CLASS);
pub(crate) const ERROR: ElementClass = renamed("Error", &info::ERROR);
pub(crate) const CHECK_IP: ElementClass = renamed("CheckIPHeader2", &check_ip_header::CLASS4);
pub(crate) const PING_ENCAP: ElementClass = renamed("ICMPPingEncap", &encap::ICMP_IP);
pub(crate) const VLAN_ENCAP: ElementClass = renamed("EtherVlanEncap", &vlan::ETHER_ENCAP);
pub(crate) const VLAN_SET: ElementClass = renamed("SetVlanAnno", &vlan::SET);
pub(crate) const VLAN_STRIP: ElementClass = renamed("StripEtherVlanHeader", &vlan::STRIP);
pub(crate) const IDLE: ElementClass = renamed("SimpleIdle", &idle::CLASS);
pub(crate) const PRIORITY: ElementClass = renamed("SimplePrioSched", &sched::PRIORITY);
pub(crate) const ALIGNMENT: ElementClass = renamed("AlignmentInfo", &info::SCHEDULE);
pub(crate) const DEVIRTUALIZE: ElementClass = renamed("DevirtualizeInfo", &info::SCHEDULE);
pub(crate) const FLOW: ElementClass = renamed("FlowInfo", &info::SCHEDULE);
pub(crate) const FIELDS: ElementClass = renamed("IPFieldInfo", &info::SCHEDULE);
pub(crate) const NAMES: ElementClass = renamed("IPNameInfo", &info::SCHEDULE);
