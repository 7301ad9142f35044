//! Run-time changes that are kept across restarts: their lines, and the requests that save them.
//!
//! ```text
//! neighbor 192.0.2.1 lladdr 02:00:5e:10:00:01 dev eth0
//! route 10.0.0.0/8 via 192.0.2.1 dev eth0 weight 3 metric 7
//! algorithm 4 dxr18
//! source-filter attackers replace /var/lib/lists/attackers.txt
//! source-filter attackers add 192.0.2.7/32
//! source-filter attackers remove 198.51.100.0/24
//! ```

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use fingerpost_packet::feature::source_filter::prefix;
use fingerpost_route::source::words::unknown;
use fingerpost_route::{AnyPrefix, MAIN_TABLE};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::{IntoParams, ToSchema};

use super::backend::{Awaited, Backend, Deleted, Kept, Requests};
use super::connections::Connection;
#[cfg(test)]
use super::error::ErrorDocument;
use super::error::{ApiError, Code};
use super::model::{
    Action, AlgorithmChange, Neighbor, NeighborAction, NeighborChange, PathChange, Route,
    RouteChange, table_or_main,
};
use super::server::{Answer, run};
use super::streams::RouteFilter;
use super::words;

/// Name of the source of routes that commands make.
pub(crate) const COMMAND_SOURCE: &str = "command";

/// Parameter of requests for changes that can be saved.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Persist {
    /// Whether the change is saved as well, for the next runs of the daemon.
    #[serde(default)]
    pub(crate) persist: bool,
}

/// Change of the list of a source filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterEdit {
    /// Replaces the list by that of a file.
    Replace(String),
    Add(AnyPrefix),
    Remove(AnyPrefix),
}

/// A run-time change that can be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SavedChange {
    Neighbor(NeighborChange),
    Route(RouteChange),
    Algorithm(AlgorithmChange),
    Filter { filter: String, edit: FilterEdit },
}

/// Subject of a change, in the order in which changes are made: a later change of an equal subject takes the place of the earlier
/// one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Neighbor(String, IpAddr),
    Route(u32, AnyPrefix, u32),
    Algorithm(Option<u8>),
    /// Filter, and prefix; none for the whole list.
    Filter(String, Option<AnyPrefix>),
}

impl SavedChange {
    /// Subject of the change; `None` where an address or a prefix cannot be read.
    pub(crate) fn subject(&self) -> Option<Subject> {
        Some(match self {
            Self::Neighbor(change) => {
                Subject::Neighbor(change.dev.clone(), change.addr.parse().ok()?)
            }
            Self::Route(RouteChange { prefix, table, metric, .. }) => {
                let table = table_or_main(*table);
                Subject::Route(table, words::prefix_of(prefix)?, metric.unwrap_or(0))
            }
            Self::Algorithm(change) => Subject::Algorithm(change.family),
            Self::Filter { filter, edit } => {
                let prefix = match edit {
                    FilterEdit::Replace(_) => None,
                    FilterEdit::Add(prefix) | FilterEdit::Remove(prefix) => Some(*prefix),
                };
                Subject::Filter(filter.clone(), prefix)
            }
        })
    }

    /// Interfaces that a route names.
    fn devs_of_route(&self) -> impl Iterator<Item = &str> {
        let paths = match self {
            Self::Route(change) => &*change.paths,
            _ => &[],
        };
        paths.iter().filter_map(|path| path.dev.as_deref())
    }

    /// The route of a row without what expires; `None` where all of it does.
    pub(crate) fn of_route(route: &Route) -> Option<Self> {
        let lasting = route.paths.iter().filter(|path| path.expires.is_none());
        let paths: Vec<PathChange> = lasting
            .map(|path| PathChange {
                gateway: path.gateway.clone(),
                dev: path.dev.clone(),
                weight: path.weight,
            })
            .collect();
        let drops = route.kind != "via";
        if route.expires.is_some() || (paths.is_empty() && !drops) {
            return None;
        }
        Some(Self::Route(RouteChange {
            action: Action::Replace,
            prefix: route.prefix.clone(),
            table: Some(route.table).filter(|table| *table != MAIN_TABLE),
            metric: Some(route.metric).filter(|metric| *metric != 0),
            mtu: route.mtu,
            paths,
            kind: drops.then(|| route.kind.clone()),
            expires: None,
            all: false,
        }))
    }

    /// A neighbor that a command has set.
    pub(crate) fn of_neighbor(neighbor: &Neighbor) -> Option<Self> {
        let set = neighbor.source == COMMAND_SOURCE;
        set.then(|| {
            Self::Neighbor(NeighborChange {
                action: NeighborAction::Replace,
                addr: neighbor.addr.clone(),
                dev: neighbor.interface.clone(),
                mac: neighbor.mac.clone(),
            })
        })
    }
}

impl fmt::Display for SavedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Neighbor(NeighborChange { addr, dev, mac, .. }) => {
                let mac = mac.as_deref().unwrap_or_default();
                write!(f, "neighbor {addr} lladdr {mac} dev {dev}")
            }
            Self::Route(change) => {
                write!(f, "route ")?;
                words::write_route(change, f)
            }
            Self::Algorithm(AlgorithmChange { family, name }) => match family {
                Some(family) => write!(f, "algorithm {family} {name}"),
                None => write!(f, "algorithm {name}"),
            },
            Self::Filter { filter, edit } => match edit {
                FilterEdit::Replace(file) => write!(f, "source-filter {filter} replace {file}"),
                FilterEdit::Add(prefix) => write!(f, "source-filter {filter} add {prefix}"),
                FilterEdit::Remove(prefix) => write!(f, "source-filter {filter} remove {prefix}"),
            },
        }
    }
}

impl FromStr for SavedChange {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let needed = |what: &str| format!("incomplete: {what} is needed");
        let (kind, rest) = line.split_once(' ').ok_or_else(|| needed("what is changed"))?;
        let mut of_rest = rest.split_whitespace();
        let first = of_rest.next().ok_or_else(|| needed("what is changed"))?;
        let words: Vec<String> = of_rest.clone().map(str::to_owned).collect();
        match kind {
            "neighbor" => {
                words::neighbor(NeighborAction::Replace, first, &words).map(Self::Neighbor)
            }
            "route" => words::route(Action::Replace, first, &words).map(Self::Route),
            "algorithm" => {
                let name = words.first().cloned().ok_or_else(|| needed("its name"))?;
                match first {
                    "4" | "6" => {
                        let family = first.parse().ok();
                        Ok(Self::Algorithm(AlgorithmChange { family, name }))
                    }
                    other => Err(format!("`{other}` is no family: 4 or 6 is needed")),
                }
            }
            "source-filter" => {
                let (edit, what) = rest[first.len()..]
                    .trim_start()
                    .split_once(' ')
                    .ok_or_else(|| needed("`add PREFIX`, `remove PREFIX` or `replace FILE`"))?;
                let edit = match edit {
                    "replace" => FilterEdit::Replace(what.to_owned()),
                    "add" => FilterEdit::Add(prefix(what)?),
                    "remove" => FilterEdit::Remove(prefix(what)?),
                    other => return Err(unknown("word", other, ["add", "remove", "replace"])),
                };
                Ok(Self::Filter { filter: first.to_owned(), edit })
            }
            other => {
                let known = ["neighbor", "route", "algorithm", "source-filter"];
                Err(unknown("change", other, known))
            }
        }
    }
}

/// Run-time changes of this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RuntimeChanges {
    /// The changes as lines of the file of saved changes.
    pub(crate) lines: Vec<String>,
    /// What is left out, with the reason: what expires, and over `GET` routes by interfaces that are not there.
    pub(crate) left_out: Vec<String>,
}

/// Run-time changes of this moment: routes and neighbors of commands, also those that wait for an interface or a gateway, changes
/// of source filters, pinned algorithms.
#[cfg_attr(test, utoipa::path(get, path = "/v1/config/changes", responses(
    (status = 200, body = RuntimeChanges), (status = "default", body = ErrorDocument))))]
pub(super) async fn changes(
    State(requests): State<Requests>,
    Extension(connection): Extension<Arc<Connection>>,
) -> Answer<RuntimeChanges> {
    let (changes, mut left_out) = collect(&requests, connection.reader()).await?;
    let interfaces = requests.call(|backend| backend.interfaces()).await?;
    let mut lines = Vec::new();
    for change in changes {
        // A configuration with such a route is refused.
        let missing = change.devs_of_route().find(|dev| interfaces.iter().all(|i| i.name != *dev));
        match missing {
            Some(dev) => left_out.push(format!("{change}: there is no interface {dev}")),
            None => lines.push(change.to_string()),
        }
    }
    Ok(Json(RuntimeChanges { lines, left_out }))
}

/// Saves all run-time changes of this moment, for the next runs of the daemon.
#[cfg_attr(test, utoipa::path(post, path = "/v1/config/save", responses(
    (status = 200, body = RuntimeChanges), (status = "default", body = ErrorDocument))))]
pub(super) async fn save(State(requests): State<Requests>) -> Answer<RuntimeChanges> {
    requests.call(|backend| backend.check_saving()).await??;
    let _alone = requests.write_lock().await;
    let (mut changes, left_out) = collect(&requests, None).await?;
    // Otherwise the next start would prefer them to a file that was edited since.
    let configured = requests.call(|backend| backend.configured_changes()).await?;
    changes.retain(|change| !configured.contains(change));
    let lines = changes.iter().map(ToString::to_string).collect();
    run(requests.call(move |backend| backend.save_changes(changes)).await?).await?;
    Ok(Json(RuntimeChanges { lines, left_out }))
}

/// Makes a change, and saves it if wanted. What waits to be made can be deleted too, and with `persist` what is saved. Returns
/// what packets are to follow as well.
pub(super) async fn kept<T: TryFrom<Deleted> + Send + 'static>(
    requests: &Requests,
    Persist { persist }: Persist,
    kept: Kept,
    change: impl FnOnce(&mut dyn Backend) -> Result<T, ApiError> + Send + 'static,
) -> Result<(T, Awaited), ApiError> {
    // Changes that are saved meanwhile would miss this one.
    let _alone = match persist {
        true => {
            requests.call(|backend| backend.check_saving()).await??;
            Some(requests.write_lock().await)
        }
        false => None,
    };
    // In the call that makes the change: others come behind it.
    let (made, awaited) = requests.call(move |b| (change(b), b.awaited())).await?;
    let done = match made {
        Err(error) if error.code == Code::NotFound => {
            let gone = kept.clone();
            let deleted = requests.call(move |b| b.delete_kept(&gone, persist)).await?;
            deleted.and_then(|deleted| T::try_from(deleted).ok()).ok_or(error)?
        }
        done => done?,
    };
    if persist {
        let saved = match requests.call(move |backend| backend.keep(&kept)).await {
            Ok(job) => run(job).await,
            Err(error) => Err(error),
        };
        saved.map_err(ApiError::unsaved_if_stopping)?;
    }
    Ok((done, awaited))
}

/// All run-time changes, and what is left out; `reader`: the user, if a client that may not change anything wants them.
async fn collect(
    requests: &Requests,
    reader: Option<u32>,
) -> Result<(Vec<SavedChange>, Vec<String>), ApiError> {
    let mut changes = requests.call(|backend| backend.runtime_changes()).await?;
    let neighbors = requests.call(|backend| backend.neighbors()).await?;
    changes.extend(neighbors.iter().filter_map(SavedChange::of_neighbor));
    let mut left_out = Vec::new();
    let fibs = requests.call(|backend| backend.fibs()).await?;
    let tables = fibs.iter().filter(|fib| fib.family == 4 && !fib.paths).map(|fib| fib.table);
    for table in tables {
        let filter = RouteFilter {
            table: Some(table),
            source: Some(COMMAND_SOURCE.to_owned()),
            ..RouteFilter::default()
        };
        // No client is waited for: the next call finds that the list has ended.
        let (open, _ended) = oneshot::channel();
        let session = requests.call(move |b| b.open_routes(&filter, reader, open)).await??;
        let number = session.number();
        loop {
            let piece = requests.call(move |backend| backend.next_routes(number)).await??;
            let (lines, more) = piece;
            for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                let route: Route = serde_json::from_slice(line).expect("it was written just now");
                match SavedChange::of_route(&route) {
                    Some(change) => changes.push(change),
                    None => left_out.push(format!("route {}: it expires", route.prefix)),
                }
            }
            if !more {
                break;
            }
        }
    }
    Ok((latest(changes), left_out))
}

/// The changes in the order in which they are made, of each subject the last one: what waited may have been made meanwhile.
fn latest(mut changes: Vec<SavedChange>) -> Vec<SavedChange> {
    changes.sort_by_cached_key(SavedChange::subject);
    changes.dedup_by(|later, kept| {
        let is_same = later.subject() == kept.subject();
        if is_same {
            std::mem::swap(later, kept);
        }
        is_same
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_as_it_was_written() {
        for line in [
            "neighbor 192.0.2.1 lladdr 02:00:5e:10:00:01 dev eth0",
            "route 10.0.0.0/8 via 192.0.2.1 dev eth0 weight 3 via 192.0.2.2 metric 7 mtu 1400 table 9",
            "route 2001:db8::/32 via fe80::1 dev eth0",
            "route 192.0.2.0/24 dev eth0",
            "route 203.0.113.0/24 prohibit metric 5",
            "algorithm 6 auto",
            "source-filter bad add 192.0.2.7/32",
            "source-filter bad remove 2001:db8::/32",
            "source-filter bad replace /a folder/list.txt",
        ] {
            let change: SavedChange = line.parse().unwrap();
            assert_eq!(change.to_string(), line);
            assert!(change.subject().is_some(), "{line}");
        }
        let subject = |line: &str| line.parse::<SavedChange>().unwrap().subject();
        assert_eq!(subject("route 10.0.0.0/8 blackhole"), subject("route 10.0.0.0/8 dev a"));
        assert_ne!(subject("route 10.0.0.0/8 dev a"), subject("route 10.0.0.0/8 dev a metric 1"));
        assert!(subject("source-filter a replace x") < subject("source-filter a add 0.0.0.0/0"));
    }

    #[test]
    fn of_changes_of_one_subject_the_last_one_counts() {
        let changes = |lines: &[&str]| -> Vec<SavedChange> {
            lines.iter().map(|line| line.parse().unwrap()).collect()
        };
        let all = changes(&[
            "route 10.0.0.0/8 via 192.0.2.1 dev eth0",
            "algorithm 4 auto",
            "neighbor 192.0.2.1 lladdr 02:00:5e:10:00:01 dev eth0",
            "route 10.0.0.0/8 via 192.0.2.2 dev eth1",
            "route 10.0.0.0/8 blackhole metric 5",
            "neighbor 192.0.2.1 lladdr 02:00:5e:10:00:02 dev eth0",
        ]);
        let want = changes(&[
            "neighbor 192.0.2.1 lladdr 02:00:5e:10:00:02 dev eth0",
            "route 10.0.0.0/8 via 192.0.2.2 dev eth1",
            "route 10.0.0.0/8 blackhole metric 5",
            "algorithm 4 auto",
        ]);
        assert_eq!(latest(all), want);
        assert_eq!(want[1].devs_of_route().collect::<Vec<_>>(), ["eth1"]);
        assert_eq!(want[0].devs_of_route().count(), 0);
    }

    #[test]
    fn a_line_that_is_wrong_says_what_would_be_right() {
        for (line, words) in [
            ("route", "incomplete: what is changed is needed"),
            ("rout 10.0.0.0/8 blackhole", "unknown change `rout`, did you mean `route`?"),
            ("route 10.0.0.1/8 blackhole", "has bits set behind its length"),
            ("neighbor 192.0.2.1 dev e", "`lladdr MAC` is needed"),
            ("algorithm 5 dxr", "`5` is no family: 4 or 6 is needed"),
            ("algorithm 4", "incomplete: its name is needed"),
            ("source-filter a", "`add PREFIX`, `remove PREFIX` or `replace FILE`"),
            ("source-filter a ad 10.0.0.0/8", "did you mean `add`?"),
            ("source-filter a add 10.0.0.0/33", "10.0.0.0/33"),
        ] {
            let got = line.parse::<SavedChange>().unwrap_err();
            assert!(got.contains(words), "{line}: {got}");
        }
    }
}
