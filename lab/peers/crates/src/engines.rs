//! One implementation of `Engine` for each crate.

use std::net::{Ipv4Addr, Ipv6Addr};

use iptrie::map::{LCTrieMap, RTrieMap};
use iptrie::{Ipv4Prefix, Ipv6Prefix};
use prefix_trie::PrefixMap;

use crate::{Engine, Route};

/// `prefix-trie`.
pub struct PrefixTrie<A>(PrefixMap<(A, u8), u32>)
where
    (A, u8): prefix_trie::Prefix;

/// `poptrie`.
pub struct Poptrie<A>(poptrie::Poptrie<(A, u8), u32>)
where
    (A, u8): poptrie::Prefix;

/// `ip_network_table-deps-treebitmap`, which is all of `ip_network_table` but its prefix type.
pub struct TreeBitmap<A>(ip_network_table_deps_treebitmap::IpLookupTable<A, u32>);

/// `iptrie`, level-compressed: built from its Patricia trie, then immutable.
pub struct Iptrie<P: iptrie::IpPrefix>(LCTrieMap<P, u32>);

macro_rules! engines {
    ($bits:ty, $len:literal, $ip:ty, $iptrie:ty) => {
        impl Engine for PrefixTrie<$bits> {
            type Key = $bits;
            const CRATE: &'static str = "prefix-trie";
            const MUTABLE: bool = true;

            fn build(routes: &[Route]) -> Self {
                let mut map = PrefixMap::new();
                for route in routes {
                    map.insert((route.addr as $bits, route.len), route.hop);
                }
                Self(map)
            }
            #[inline(always)]
            fn lookup(&self, key: Self::Key) -> u32 {
                self.0.get_lpm(&(key, $len)).map_or(0, |(_, &hop)| hop)
            }
            fn change(&mut self, route: Route) {
                let prefix = (route.addr as $bits, route.len);
                match route.hop {
                    0 => self.0.remove(&prefix),
                    hop => self.0.insert(prefix, hop),
                };
            }
            fn key(addr: u128) -> Self::Key {
                addr as $bits
            }
            #[inline(always)]
            fn xor(key: Self::Key, bits: u32) -> Self::Key {
                key ^ <$bits>::from(bits)
            }
        }

        impl Engine for Poptrie<$bits> {
            type Key = $bits;
            const CRATE: &'static str = "poptrie";
            const MUTABLE: bool = true;

            fn build(routes: &[Route]) -> Self {
                // It sorts first; one by one its inserts take a time that grows with the square.
                let routes = routes.iter();
                Self(routes.map(|r| ((r.addr as $bits, r.len), r.hop)).collect())
            }
            #[inline(always)]
            fn lookup(&self, key: Self::Key) -> u32 {
                self.0.lookup(key).map_or(0, |&hop| hop)
            }
            fn change(&mut self, route: Route) {
                let prefix = (route.addr as $bits, route.len);
                match route.hop {
                    0 => self.0.remove(prefix),
                    hop => self.0.insert(prefix, hop),
                };
            }
            fn key(addr: u128) -> Self::Key {
                addr as $bits
            }
            #[inline(always)]
            fn xor(key: Self::Key, bits: u32) -> Self::Key {
                key ^ <$bits>::from(bits)
            }
        }

        impl Engine for TreeBitmap<$ip> {
            type Key = $ip;
            const CRATE: &'static str = "ip_network_table-deps-treebitmap";
            const MUTABLE: bool = true;

            fn build(routes: &[Route]) -> Self {
                let mut map = ip_network_table_deps_treebitmap::IpLookupTable::new();
                for route in routes {
                    map.insert(Self::key(route.addr), route.len.into(), route.hop);
                }
                Self(map)
            }
            #[inline(always)]
            fn lookup(&self, key: Self::Key) -> u32 {
                self.0.longest_match(key).map_or(0, |(_, _, &hop)| hop)
            }
            fn change(&mut self, route: Route) {
                let key = Self::key(route.addr);
                match route.hop {
                    0 => self.0.remove(key, route.len.into()),
                    hop => self.0.insert(key, route.len.into(), hop),
                };
            }
            fn key(addr: u128) -> Self::Key {
                <$ip>::from_bits(addr as $bits)
            }
            #[inline(always)]
            fn xor(key: Self::Key, bits: u32) -> Self::Key {
                <$ip>::from_bits(key.to_bits() ^ <$bits>::from(bits))
            }
        }

        impl Engine for Iptrie<$iptrie> {
            type Key = $ip;
            const CRATE: &'static str = "iptrie";
            const MUTABLE: bool = false;

            fn build(routes: &[Route]) -> Self {
                // Its root is a default route that is always there: hop 0 is none.
                let mut map = RTrieMap::with_root_and_capacity(0, routes.len());
                for route in routes {
                    let prefix = <$iptrie>::new(Self::key(route.addr), route.len);
                    map.insert(prefix.expect("the table has no host bits"), route.hop);
                }
                Self(map.compress())
            }
            #[inline(always)]
            fn lookup(&self, key: Self::Key) -> u32 {
                *self.0.lookup(&key).1
            }
            fn change(&mut self, _: Route) {
                unreachable!("it is never given changes");
            }
            fn key(addr: u128) -> Self::Key {
                <$ip>::from_bits(addr as $bits)
            }
            #[inline(always)]
            fn xor(key: Self::Key, bits: u32) -> Self::Key {
                <$ip>::from_bits(key.to_bits() ^ <$bits>::from(bits))
            }
        }
    };
}

engines!(u32, 32, Ipv4Addr, Ipv4Prefix);
engines!(u128, 128, Ipv6Addr, Ipv6Prefix);
