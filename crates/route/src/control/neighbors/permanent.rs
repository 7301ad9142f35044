//! Neighbors that users set: link addresses that hold whatever the kernel learns.
//!
//! Source: FreeBSD's static entries (`lla_rt_output`, sys/net/if_llatbl.c; arp(8), ndp(8)): one that a user
//! made is used at once, never resolved and never expires; the host's own address is refused. With the link
//! down it stays but leads nowhere (`in_scrubprefix` spares static entries then), and it goes with the link.
//! Differs: adding one that is there is refused, as `ip neighbor add` does, where FreeBSD replaces it; one
//! stays when the address of its prefix goes, so that an address that is set anew, as DHCP does, costs
//! nothing that a user typed: its host route goes and comes with the prefix all the same. And an address
//! may lie in no prefix of the link, as the gateway of a link without addresses does; only routes that name
//! it go there then.
//!
//! The kernel's own entry of the host is kept beside it, and counts again when it is deleted. The
//! kernel does not get it: packets of the router itself go by the kernel's own entry.

use std::net::IpAddr;

use super::super::Control;
use super::super::action::Done;
use super::super::journal::Happened;
use super::super::links::is_broadcast;
use crate::event::{Mac, is_host};

/// Why a neighbor was not set or deleted. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NeighborError {
    /// A user has set it already.
    #[error("{addr}: exists on {interface}, at {mac}: replace or delete it")]
    Exists {
        /// Its address.
        addr: IpAddr,
        /// Name of the link.
        interface: String,
        /// Where it is.
        mac: Mac,
    },
    /// No user has set it.
    #[error("{addr}: no such neighbor on {interface}: list them all")]
    Unknown {
        /// Its address.
        addr: IpAddr,
        /// Name of the link.
        interface: String,
    },
    /// No user has set it, but the kernel knows it.
    #[error(
        "{addr}: no such neighbor of a command on {interface}: the kernel's own is for it to delete"
    )]
    Learned {
        /// Its address.
        addr: IpAddr,
        /// Name of the link.
        interface: String,
    },
    /// There is no link of this number.
    #[error("there is no link {0}")]
    NoLink(u32),
    /// Nobody has a link address there.
    #[error("{0} has no Ethernet addresses: a link that has some is needed")]
    NoEthernet(String),
    /// The address is the host's own.
    #[error("{0} is this host's own: a neighbor is another host")]
    Own(IpAddr),
    /// No host has such an address.
    #[error("{0} is no address of a host: no group, broadcast or loopback can be a neighbor")]
    NotHost(IpAddr),
    /// An address of the other family in the form of this one.
    #[error("{addr} is of the wrong family: write {v4}")]
    Mapped {
        /// Address as it was written.
        addr: IpAddr,
        /// What it means.
        v4: std::net::Ipv4Addr,
    },
    /// A link address of many, or all zero.
    #[error("{0} is {kind}: the link address of one card is needed", kind = mac_kind(*.0))]
    NotHostMac(Mac),
}

impl NeighborError {
    /// A word for programs, the same in all versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Exists { .. } => "exists",
            Self::Unknown { .. } | Self::Learned { .. } => "no-such-neighbor",
            Self::NoLink(_) => "no-such-interface",
            Self::NoEthernet(_) => "no-ethernet",
            Self::Own(_) => "own-address",
            Self::NotHost(_) => "not-a-host",
            Self::Mapped { .. } => "wrong-family",
            Self::NotHostMac(_) => "not-a-host-mac",
        }
    }
}

/// What a link address is that no card has.
fn mac_kind(mac: Mac) -> &'static str {
    if mac.is_group() { "a group's" } else { "all zero" }
}

impl Control {
    /// Sets the link address of a neighbor, until it is deleted or its link vanishes. Adjacencies of it are
    /// complete when this returns; a host without one gets its host route at the next commit.
    ///
    /// # Errors
    /// [`NeighborError`]; nothing was changed then.
    pub fn add_neighbor(&mut self, link: u32, addr: IpAddr, mac: Mac) -> Result<(), NeighborError> {
        let interface = self.check_neighbor(link, addr, mac)?;
        match self.neighbors.permanent(link, addr) {
            Some(mac) => Err(NeighborError::Exists { addr, interface, mac }),
            None => {
                self.set_neighbor(link, addr, mac);
                Ok(())
            }
        }
    }

    /// Like [`Control::add_neighbor`], in the place of what was set before, if anything was.
    ///
    /// # Errors
    /// [`NeighborError`]; nothing was changed then.
    pub fn replace_neighbor(
        &mut self,
        link: u32,
        addr: IpAddr,
        mac: Mac,
    ) -> Result<Done, NeighborError> {
        self.check_neighbor(link, addr, mac)?;
        Ok(self.set_neighbor(link, addr, mac))
    }

    /// Deletes a neighbor that was set: the kernel's own entry counts again. Returns the link address.
    ///
    /// # Errors
    /// [`NeighborError`]; nothing was changed then.
    pub fn delete_neighbor(&mut self, link: u32, addr: IpAddr) -> Result<Mac, NeighborError> {
        let interface = self.link_name(link)?;
        let Some(mac) = self.neighbors.set_permanent(link, addr, None) else {
            return Err(match self.neighbors.state(link, addr) {
                Some(_) => NeighborError::Learned { addr, interface },
                None => NeighborError::Unknown { addr, interface },
            });
        };
        self.fill_neighbor(link, addr);
        self.note_neighbor(Done::Deleted, link, addr, mac);
        Ok(mac)
    }

    fn set_neighbor(&mut self, link: u32, addr: IpAddr, mac: Mac) -> Done {
        let before = self.neighbors.set_permanent(link, addr, Some(mac));
        let done = if before.is_none() { Done::Added } else { Done::Changed };
        // Set again: nothing happened.
        if before != Some(mac) {
            self.fill_neighbor(link, addr);
            self.note_neighbor(done, link, addr, mac);
        }
        done
    }

    /// Checks that a host can have this address on the link; returns the name of the link.
    fn check_neighbor(&self, link: u32, addr: IpAddr, mac: Mac) -> Result<String, NeighborError> {
        let interface = self.link_name(link)?;
        let entry = self.links.get(link).expect("its name was just found");
        if entry.state().loopback || entry.state().mac.is_none() {
            return Err(NeighborError::NoEthernet(interface));
        }
        if let IpAddr::V6(v6) = addr
            && let Some(v4) = v6.to_ipv4_mapped()
        {
            return Err(NeighborError::Mapped { addr, v4 });
        }
        if self.links.addresses_of(entry.table()).any(|own| own.addr == addr) {
            return Err(NeighborError::Own(addr));
        }
        if !is_host(addr) || entry.addresses().iter().any(|own| is_broadcast(own, addr)) {
            return Err(NeighborError::NotHost(addr));
        }
        if mac.is_group() || mac == Mac::default() {
            return Err(NeighborError::NotHostMac(mac));
        }
        Ok(interface)
    }

    fn link_name(&self, link: u32) -> Result<String, NeighborError> {
        let entry = self.links.get(link).ok_or(NeighborError::NoLink(link))?;
        Ok(entry.state().name.clone())
    }

    /// Notes that neighbors set on a link are resumed or suspended, as it went up or down.
    pub(in crate::control) fn note_permanent(&mut self, link: u32) {
        for (addr, mac) in self.neighbors.permanent_on(link) {
            self.note_neighbor(Done::Changed, link, addr, mac);
        }
    }

    /// Deletes the neighbors set on a link, while that is still known.
    pub(in crate::control) fn forget_permanent(&mut self, link: u32) {
        for (addr, mac) in self.neighbors.permanent_on(link) {
            self.neighbors.set_permanent(link, addr, None);
            self.fill_neighbor(link, addr);
            self.note_neighbor(Done::Deleted, link, addr, mac);
        }
    }

    fn note_neighbor(&mut self, done: Done, link: u32, addr: IpAddr, mac: Mac) {
        let Some(entry) = self.links.get(link) else { return };
        let (interface, up) = (entry.state().name.as_str().into(), entry.state().up);
        self.journal.note(Happened::Neighbor { done, interface, addr, mac, up });
    }
}
