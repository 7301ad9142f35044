//! Interface features for the API: their rows, and jobs that read and change source filters outside the daemon's thread.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use fingerpost_packet::feature::row::Cell;
use fingerpost_packet::feature::source_filter::{Covering, SourceFilters, prefix};
use fingerpost_packet::feature::{FEATURES, Feature as Row};
use fingerpost_route::AnyPrefix;
use fingerpost_route::source::words::unknown;

use serde_json::Value;

use super::{Daemon, View};
use crate::api::backend::{Job, Preparation};
use crate::api::error::{ApiError, Code};
use crate::api::features::{Feature, FeatureRow};
use crate::api::model::ConfigText;
use crate::api::source_filters::{
    FilterAnswer, FilterChange, FilterChanged, FilterHit, FilterList, FilterQuery,
};
use crate::config::Config;
use crate::daemon::features::Prepared;
use crate::daemon::route_changes::RouteChanges;
use crate::daemon::static_routes::ReadAhead;

/// What a job prepares for a change of the configuration; empty until it is done.
pub(in crate::daemon) type Preparing = Arc<Mutex<Option<Ready>>>;

/// A configuration that was read, and its features where they are not the running ones.
pub(in crate::daemon) struct Ready {
    pub(super) config: Config,
    pub(super) features: Option<Prepared>,
    /// Differences of its static routes from those that ran then.
    pub(super) routes: RouteChanges,
    pub(super) read: ReadAhead,
}

impl View<'_> {
    pub(super) fn feature_list(&self) -> Vec<Feature> {
        let states = self.graph.features.states();
        let feature = |row: &Row| Feature {
            name: row.name.to_owned(),
            summary: row.summary.to_owned(),
            used: states.find(row.name).is_some(),
        };
        FEATURES.iter().map(feature).collect()
    }

    pub(super) fn rows_of(&self, name: &str) -> Result<Job<Vec<FeatureRow>>, ApiError> {
        let row = FEATURES.iter().find(|row| row.name == name && !row.columns.is_empty());
        let row = row.ok_or_else(|| {
            let known = FEATURES.iter().filter(|row| !row.columns.is_empty()).map(|row| row.name);
            ApiError::at(Code::NotFound, "name", unknown("feature with rows", name, known))
        })?;
        self.graph.features.note_sampled();
        let states = self.graph.features.states().clone();
        // Sums over the counters of all workers: beside routes and packets.
        Ok(Box::new(move || {
            let rows = states.find(row.name).map(|state| state.rows()).unwrap_or_default();
            Ok(rows.into_iter().map(|cells| object(row, cells)).collect())
        }))
    }

    pub(super) fn look_up_source(&self, query: FilterQuery) -> Result<Job<FilterAnswer>, ApiError> {
        let FilterQuery { addr, interface } = query;
        let invalid = |_| ApiError::at(Code::BadRequest, "addr", format!("`{addr}` is no address"));
        let addr: IpAddr = addr.parse().map_err(invalid)?;
        let port = interface.map(|name| self.port_of(&name)).transpose()?;
        let filters = self.graph.features.states().of::<SourceFilters>();
        Ok(Box::new(move || {
            let found = filters.map(|filters| filters.lookup(addr, port));
            let (does, on) = found.unwrap_or(("pass", Vec::new()));
            let filters = on.into_iter().map(FilterHit::from).collect();
            Ok(FilterAnswer { addr: addr.to_string(), does: does.to_owned(), filters })
        }))
    }

    pub(super) fn edit_filter(&self, change: FilterChange) -> Job<FilterChanged> {
        let filters = self.graph.features.states().of::<SourceFilters>();
        Box::new(move || {
            let add = prefixes("add", &change.add)?;
            let remove = prefixes("remove", &change.remove)?;
            changed(filters.as_deref(), change.filter, |filters, at| {
                filters.edit(at, &add, &remove)
            })
        })
    }

    pub(super) fn reload_filter(&self, list: FilterList) -> Job<FilterChanged> {
        let filters = self.graph.features.states().of::<SourceFilters>();
        Box::new(move || {
            changed(filters.as_deref(), list.filter, |filters, at| filters.replace(at, &list.file))
        })
    }
}

impl Daemon {
    /// Reads another configuration, reads and compares its static routes and makes its features: each may take long.
    pub(super) fn prepare(&mut self, text: ConfigText) -> Preparation {
        let running = self.view().running();
        let beside = self.graph.features.beside(self.settings.config());
        let preparing = Preparing::default();
        let session = self.requests.preparations.open(preparing.clone());
        let job: Job<()> = Box::new(move || {
            let (config, routes) = running.read(&text)?;
            let read = running.read_routes(&config)?;
            let features = beside.prepare(&config.features)?;
            let ready = Ready { config, features, routes, read };
            *preparing.lock().unwrap_or_else(PoisonError::into_inner) = Some(ready);
            Ok(())
        });
        (session, job)
    }
}

/// What a job has prepared.
pub(super) fn prepared(preparing: &Preparing) -> Option<Ready> {
    preparing.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A row as JSON.
fn object(row: &Row, cells: Vec<Cell>) -> FeatureRow {
    let value = |cell| match cell {
        Cell::Nothing => Value::Null,
        Cell::Text(text) => text.into(),
        Cell::Number(number) => number.into(),
        Cell::Words(words) => words.into(),
    };
    let fields = row.columns.iter().map(|column| column.field.to_owned());
    fields.zip(cells.into_iter().map(value)).collect()
}

impl From<Covering> for FilterHit {
    fn from(on: Covering) -> Self {
        Self {
            name: on.name,
            action: on.action.name().to_owned(),
            prefix: on.prefix.map(|prefix| prefix.to_string()),
            interfaces: on.interfaces,
        }
    }
}

/// The filters, and the number of the one of this name.
fn find<'a>(
    filters: Option<&'a SourceFilters>,
    name: &str,
) -> Result<(&'a SourceFilters, usize), ApiError> {
    let none = || {
        ApiError::at(Code::NotFound, "filter", "there are no source filters: see [[source_filter]]")
    };
    let filters = filters.ok_or_else(none)?;
    let at = filters.find(name).ok_or_else(|| {
        ApiError::at(Code::NotFound, "filter", unknown("source filter", name, filters.names()))
    })?;
    Ok((filters, at))
}

fn prefixes(place: &str, texts: &[String]) -> Result<Vec<AnyPrefix>, ApiError> {
    let read: Result<Vec<AnyPrefix>, String> = texts.iter().map(|text| prefix(text)).collect();
    read.map_err(|message| ApiError::at(Code::BadRequest, place, message))
}

fn changed(
    filters: Option<&SourceFilters>,
    filter: String,
    change: impl FnOnce(&SourceFilters, usize) -> Result<usize, String>,
) -> Result<FilterChanged, ApiError> {
    let (filters, at) = find(filters, &filter)?;
    let changed = change(filters, at).map_err(|message| ApiError::new(Code::Refused, message))?;
    let [prefixes_v4, prefixes_v6] = filters.count(at);
    Ok(FilterChanged { filter, changed, prefixes_v4, prefixes_v6 })
}
