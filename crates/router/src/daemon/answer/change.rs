//! `route add` and its siblings: one change of one route, checked whole before anything is done.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fingerpost_route::event::is_station;
use fingerpost_route::source::words::unknown;
use fingerpost_route::{
    AnyPrefix, MAIN_TABLE, Operation, Paths, RouteError, RouteKey, Target, Way,
};

use super::events::word;
use super::lookup::RowMaker;
use super::routes::prefix;
use super::{Daemon, bad};
use crate::api::error::{ApiError, Code};
use crate::api::model::{self, Action, RouteChange, RouteChanged};

/// Weights have 16 bits.
const WEIGHT_MAX: u32 = 65_535;
impl Daemon {
    /// Makes a change; workers see it when this returns.
    pub(crate) fn change_route(&mut self, change: &RouteChange) -> Result<RouteChanged, ApiError> {
        let prefix = prefix("prefix", &change.prefix)?;
        let table = change.table.unwrap_or(MAIN_TABLE);
        let key = RouteKey { table, prefix, metric: change.metric.unwrap_or(0) };
        let ways = self.ways_of(prefix, &change.ways)?;
        let delete = change.action == Action::Delete;
        let lifetime = match change.expires {
            Some(0) => return Err(bad("expires", "at least 1 second is needed")),
            Some(_) if delete => return Err(bad("expires", "a deleted route has no end")),
            seconds => seconds.map(|seconds| (Duration::from_secs(seconds), Instant::now())),
        };
        let done = if delete {
            if change.kind.is_some() {
                return Err(bad("kind", "a route is deleted by its prefix, or by its ways"));
            }
            let paths = match ways.is_empty() {
                false if change.all => return Err(bad("all", "all, or only these ways?")),
                false => Paths::Named(ways),
                true if change.all => Paths::All,
                true => Paths::Only,
            };
            self.control.delete_route(self.command, key, &paths)
        } else {
            let target = target(change, ways)?;
            let operation = match change.action {
                Action::Add => Operation::ADD,
                Action::Append => Operation::APPEND,
                Action::Replace => Operation::REPLACE,
                Action::Change | Action::Delete => Operation::CHANGE,
            };
            self.control.put_route(self.command, key, operation, &target, lifetime)
        };
        let outcome = done.map_err(|error| self.refused(&key, &error))?;
        self.commit_now();
        Ok(RouteChanged {
            done: word(outcome.done).to_owned(),
            prefix: prefix.to_string(),
            table,
            sequence: outcome.sequence,
            generation: self.generation,
            candidates: self.candidates(table, prefix),
        })
    }

    /// All routes of a prefix, the best first.
    fn candidates(&self, table: u32, prefix: AnyPrefix) -> Vec<model::Route> {
        let (maker, hops) = (RowMaker::new(self), self.control.next_hops());
        let ranked = self.control.candidates(table, prefix).into_iter().enumerate();
        ranked.map(|(rank, c)| maker.route(hops, table, prefix, &c, rank == 0)).collect()
    }

    fn refused(&self, key: &RouteKey, error: &RouteError) -> ApiError {
        let code = match error {
            RouteError::NoRoute(_) | RouteError::NoPath(_) | RouteError::ManyPaths { .. } => {
                Code::NotFound
            }
            RouteError::Exists(_) => Code::Exists,
            _ => Code::Refused,
        };
        let mut words = error.to_string();
        if let (RouteError::NoRoute(_), [other, ..]) =
            (error, &self.candidates(key.table, key.prefix)[..])
        {
            words += &format!(" of a command: the one of {} goes with its source", other.source);
        }
        let place = if matches!(error, RouteError::NextHop { .. }) { "gateway" } else { "prefix" };
        ApiError::at(code, place, words)
    }

    /// The ways with the numbers of their links.
    fn ways_of(&self, prefix: AnyPrefix, ways: &[model::WayChange]) -> Result<Vec<Way>, ApiError> {
        let mut found: Vec<Way> = Vec::new();
        for way in ways {
            let gateway = way.gateway.as_deref().map(|text| gateway(prefix, text)).transpose()?;
            let link = way.dev.as_deref().map(|dev| self.link_of(dev)).transpose()?;
            match (gateway, link) {
                (None, None) => return Err(bad("ways", "a way needs a gateway or a device")),
                (Some(IpAddr::V6(addr)), None) if addr.is_unicast_link_local() => {
                    let words = format_args!("{addr} is link-local: on which device?");
                    return Err(bad("gateway", words));
                }
                _ => {}
            }
            if !(1..=WEIGHT_MAX).contains(&way.weight) {
                let words = format_args!("weight {}: 1 to {WEIGHT_MAX} is needed", way.weight);
                return Err(bad("weight", words));
            }
            let same = |other: &Way| (other.gateway, other.link) == (gateway, link);
            if found.iter().any(same) {
                return Err(bad("ways", "the same way twice: give it a larger weight instead"));
            }
            found.push(Way { gateway, link, weight: way.weight });
        }
        Ok(found)
    }
}

fn target(change: &RouteChange, ways: Vec<Way>) -> Result<Target, ApiError> {
    let verdict = match change.kind.as_deref() {
        None | Some("via") => None,
        Some("blackhole") => Some(Target::Blackhole),
        Some("unreachable") => Some(Target::Unreachable),
        Some("prohibit") => Some(Target::Prohibit),
        Some(other) => {
            let words = unknown("kind", other, ["via", "blackhole", "unreachable", "prohibit"]);
            return Err(bad("kind", words));
        }
    };
    if change.all {
        return Err(bad("all", "only for deleting"));
    }
    match (verdict, &ways[..]) {
        (Some(target), []) => Ok(target),
        (Some(_), _) => Err(bad("kind", "a route that drops packets has no ways")),
        (None, []) => Err(bad("ways", "where to? a gateway, a device, or a kind that drops")),
        (None, [way]) => Ok(Target::Way(*way)),
        (None, _) => Ok(Target::Ways(ways)),
    }
}

fn gateway(prefix: AnyPrefix, text: &str) -> Result<IpAddr, ApiError> {
    let addr: IpAddr =
        text.parse().map_err(|_| bad("gateway", format_args!("`{text}` is no address")))?;
    if !is_station(addr) {
        let words = format_args!("{addr} cannot be a gateway: the address of a router is needed");
        return Err(bad("gateway", words));
    }
    if prefix.family() == 6 && addr.is_ipv4() {
        let words = format_args!("{addr} is no gateway for IPv6: an IPv6 address is needed");
        return Err(bad("gateway", words));
    }
    Ok(addr)
}
