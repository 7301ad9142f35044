//! `route add` and its siblings: one change of one route, checked whole before anything is done.

use std::time::{Duration, Instant};

use fingerpost_route::nexthop::{HopError, MAX_WEIGHT};
use fingerpost_route::source::line;
use fingerpost_route::source::words::unknown;
use fingerpost_route::{
    AnyPrefix, Control, Operation, Outcome, Path, Paths, RouteError, RouteKey, SourceId, Target,
};

use super::lookup::RowMaker;
use super::routes::prefix;
use super::{Daemon, View, bad, link_of, word};
use crate::api::error::{ApiError, Code};
use crate::api::model::{self, Action, RouteChange, RouteChanged};
use crate::api::saved::SavedChange;

/// Longest life of a route that expires, in seconds: what the kernel takes.
const LONGEST_LIFE_S: u64 = u32::MAX as u64;

/// Reason for which a route is not changed.
#[derive(Debug, thiserror::Error)]
pub(in crate::daemon) enum Refusal {
    /// The request is invalid.
    #[error("{0}")]
    Invalid(#[from] ApiError),
    /// The routes there are do not permit it.
    #[error("{1}")]
    Route(RouteKey, Box<RouteError>),
}

/// Changes a route of the source `command`.
pub(in crate::daemon) fn put(
    control: &mut Control,
    command: SourceId,
    change: &RouteChange,
    now: Instant,
) -> Result<(RouteKey, Outcome), Refusal> {
    let prefix = prefix("prefix", &change.prefix)?;
    let table = model::table_or_main(change.table);
    let key = RouteKey { table, prefix, metric: change.metric.unwrap_or(0) };
    let paths = paths_of(control, prefix, &change.paths)?;
    let delete = change.action == Action::Delete;
    let lifetime = match change.expires {
        Some(0) => return Err(bad("expires", "at least 1 second is needed").into()),
        Some(seconds) if seconds > LONGEST_LIFE_S => {
            return Err(bad("expires", format!("at most {LONGEST_LIFE_S} seconds")).into());
        }
        Some(_) if delete => return Err(bad("expires", "a deleted route has no end").into()),
        seconds => seconds.map(|seconds| (Duration::from_secs(seconds), now)),
    };
    let done = if delete {
        if change.mtu.is_some() {
            return Err(bad("mtu", "a route is deleted whatever its MTU").into());
        }
        if change.kind.is_some() {
            return Err(bad("kind", "a route is deleted by its prefix, or by its paths").into());
        }
        let paths = match paths.is_empty() {
            false if change.all => return Err(bad("all", "all, or only these paths?").into()),
            false => Paths::Named(paths),
            true if change.all => Paths::All,
            true => Paths::Only,
        };
        control.delete_route(command, key, &paths)
    } else {
        let target = target(change, paths)?;
        let operation = match change.action {
            Action::Add => Operation::ADD,
            Action::Append => Operation::APPEND,
            Action::Replace => Operation::REPLACE,
            Action::Change | Action::Delete => Operation::CHANGE,
        };
        control.put_route(command, key, operation, &target, change.mtu, lifetime)
    };
    done.map(|outcome| (key, outcome)).map_err(|error| Refusal::Route(key, error.into()))
}

/// Paths with the numbers of their links.
fn paths_of(
    control: &Control,
    prefix: AnyPrefix,
    paths: &[model::PathChange],
) -> Result<Vec<Path>, ApiError> {
    let mut found: Vec<Path> = Vec::new();
    for path in paths {
        let gateway = path.gateway.as_deref().map(line::gateway).transpose();
        let gateway = gateway.map_err(|words| bad("gateway", words))?;
        let link = path.dev.as_deref().map(|dev| link_of(control, dev)).transpose()?;
        if !(1..=MAX_WEIGHT).contains(&path.weight) {
            let words = format_args!("weight {}: 1 to {MAX_WEIGHT} is needed", path.weight);
            return Err(bad("weight", words));
        }
        found.push(Path { gateway, link, weight: path.weight });
    }
    line::check_paths(prefix, &found).map_err(|words| bad("paths", words))?;
    Ok(found)
}

impl Daemon {
    /// Makes a change; workers see it once [`Daemon::visible`] has a generation.
    pub(super) fn set_route(&mut self, change: &RouteChange) -> Result<RouteChanged, ApiError> {
        let done = put(&mut self.control, self.sources.command, change, Instant::now());
        let (RouteKey { table, prefix, .. }, outcome) = done.map_err(|refusal| match refusal {
            Refusal::Invalid(error) => error,
            Refusal::Route(key, error) => self.view().refused(&key, &error),
        })?;
        // It is newer than what waits for its gateway or interface.
        if let Some(subject) = SavedChange::Route(change.clone()).subject() {
            self.settings.lasting.unmade.forget(&subject);
        }
        self.commit_soon();
        Ok(RouteChanged {
            done: word(outcome.done).to_owned(),
            prefix: prefix.to_string(),
            table,
            sequence: outcome.sequence,
            generation: self.progress.generation(),
            candidates: self.view().candidates(table, prefix),
        })
    }
}

impl View<'_> {
    /// All routes of a prefix, the best first.
    pub(super) fn candidates(&self, table: u32, prefix: AnyPrefix) -> Vec<model::Route> {
        let (mut maker, view) = (RowMaker::new(*self), self.control.hop_view());
        let ranked = self.control.candidates(table, prefix).into_iter().enumerate();
        ranked.map(|(rank, c)| maker.route(view, table, prefix, &c, rank == 0)).collect()
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
        let place = match error {
            RouteError::NextHop { error: HopError::Mtu { .. }, .. } => "mtu",
            RouteError::NextHop { .. } => "gateway",
            _ => "prefix",
        };
        ApiError::at(code, place, words)
    }
}

fn target(change: &RouteChange, paths: Vec<Path>) -> Result<Target, ApiError> {
    let verdict = match change.kind.as_deref() {
        None | Some("via") => None,
        Some(word) => Some(line::verdict(word).ok_or_else(|| {
            bad("kind", unknown("kind", word, ["via", "blackhole", "unreachable", "prohibit"]))
        })?),
    };
    if change.all {
        return Err(bad("all", "only for deleting"));
    }
    match (verdict, &paths[..]) {
        (Some(_), []) if change.mtu.is_some() => {
            Err(bad("mtu", "a route that drops packets has none"))
        }
        (Some(target), []) => Ok(target),
        (Some(_), _) => Err(bad("kind", "a route that drops packets has no paths")),
        (None, []) => Err(bad("paths", "where to? a gateway, a device, or a kind that drops")),
        (None, [path]) => Ok(Target::Path(*path)),
        (None, _) => Ok(Target::Paths(paths)),
    }
}
