//! `config diff` and `config apply`: the running configuration and another one.

use std::path::Path;
use std::time::Instant;

use fingerpost_packet::Plan;
use fingerpost_packet::feature::FeatureSettings;
use fingerpost_packet::feature::row::Item;
use tracing::{error, info, warn};

use super::features::Ready;
use super::saving::redefined;
use super::{Daemon, View};
use crate::api::access::Requester;
use crate::api::backend::{Awaited, Backend, Job, Made};
use crate::api::config::{ConfigApplied, ConfigApply, ConfigEntry, ConfigShown};
use crate::api::error::{ApiError, Code, Detail};
use crate::api::model::{AlgorithmChange, ConfigChange, ConfigText};
use crate::api::saved::Subject;
use crate::config::{Cluster, Config, Interface, Source};
use crate::daemon::Said;
use crate::daemon::features::Prepared;
use crate::daemon::free::free_later;
use crate::daemon::lasting::Before;
use crate::daemon::route_changes::{RouteChanges, lines};
use crate::daemon::sources::{Configured, Sources};
use crate::daemon::static_routes::{Lines, ReadAhead};
use crate::log;

/// Start of the names of items that are algorithms, in the list of changes.
const ALGORITHM: &str = "fib.algorithm_";

/// What becomes of one configured source.
enum Step {
    /// Read in the place of the one of this index: other fixed routes.
    Again(usize, Source),
    /// Read as a new one, and the one of this index is taken away: another distance.
    Swap(usize, Source),
    /// Opened anew after the one of this index was taken away: both would listen at one address.
    Reopen(usize, Source),
    New(Source),
    /// Removes the one of this index; carried out last, the highest first.
    Remove(usize),
}

/// Consequence of a source that cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failing {
    /// The change is refused: all is as before.
    Refused,
    /// It is reported, and the rest of the change is carried out: in a rollback.
    Reported,
}

/// Step that takes another one back.
enum Undo {
    /// Removes the newest one.
    Remove,
    /// Reads this source again in the place of this index.
    Again(usize, Source),
    /// Opens this one in the place of this index.
    Reopen(usize, Source),
    /// Opens this one at this index, where there is none.
    Insert(usize, Source),
}

/// Reader of another configuration, for any thread, as its text may be long.
pub(super) struct ConfigReader {
    links: Vec<(String, u32)>,
    said: Said,
}

/// Copy of the running configuration, for any thread to compare another one with.
pub(super) struct Running {
    reader: ConfigReader,
    config: Config,
    /// Sources that feed the control side.
    fed: Vec<Source>,
    kernel_routes: bool,
    /// Changes of links until its reader had them.
    link_changes: u64,
}

impl View<'_> {
    /// A copy of the running configuration.
    pub(super) fn running(&self) -> Running {
        Running {
            reader: self.config_reader(),
            config: self.settings.config().clone(),
            fed: self.sources.configured.fed.iter().map(|fed| fed.source.clone()).collect(),
            kernel_routes: self.sources.kernel.routes(),
            link_changes: self.control.link_changes(),
        }
    }

    pub(super) fn config_reader(&self) -> ConfigReader {
        let links = self.control.links().map(|(link, _, state)| (state.name.clone(), link));
        ConfigReader { links: links.collect(), said: self.settings.said().clone() }
    }
}

impl Daemon {
    /// Applies what can be applied while running, and names the rest; what is refused changes nothing. The configuration was
    /// read before.
    pub(super) fn apply(
        &mut self,
        wanted: &ConfigApply,
        by: Requester,
        ready: Option<Ready>,
    ) -> Result<ConfigApplied, ApiError> {
        let now = Instant::now();
        let Some(Ready { config: new, features, routes, mut read }) = ready else {
            let error = ApiError::new(Code::Refused, "it was not read before: try again");
            return Err(self.keep_record(wanted, error));
        };
        let running = self.settings.config();
        let checked = self.settings.lasting.check_waiting(now);
        let fits = |()| self.graph.features.fits(&new, running, features.as_ref());
        if let Err(error) = checked.and_then(fits) {
            features.into_iter().for_each(Prepared::let_go);
            free_later((new, routes, read));
            return Err(self.keep_record(wanted, error));
        }
        let mut before = Before {
            config: running.clone(),
            states: self.graph.features.states().clone(),
            changes: self.settings.lasting.present.clone(),
            neighbors: self.overridden(&new),
            routes,
        };
        let redefined = redefined(&before.config, &new);
        let found = (&mut before.routes, &mut read);
        let changes = match self.change_to(&new, features, Failing::Refused, found) {
            Ok(changes) => changes,
            Err(error) => {
                free_later((new, before, read));
                return Err(self.keep_record(wanted, error));
            }
        };
        let lasting = &mut self.settings.lasting;
        if changes.is_empty() && lasting.history.running_text() == wanted.document() {
            let number = lasting.history.running();
            lasting.restore_record();
            return Ok(ConfigApplied { number, changes, confirm_s: None });
        }
        if wanted.confirm_s.is_none() {
            lasting.forget_saved(&redefined);
        }
        let words = changes.iter().map(ToString::to_string);
        let entry = ConfigShown::new(wanted.document(), by.clone(), words);
        let what = entry.entry.changes.join("; ");
        let confirm = match wanted.confirm_s {
            Some(seconds) => Some((seconds, before)),
            None => {
                free_later(before);
                None
            }
        };
        let number = self.settings.lasting.applied(entry, confirm, now);
        let (done, wait) = match wanted.confirm_s {
            Some(seconds) => ("waiting", format!(" and waits {seconds} s for its confirmation")),
            None => ("applied", String::new()),
        };
        let words = format!("configuration {number} ({}) is applied{wait}, by {by}", wanted.file);
        self.note_configuration(number, done, &format!("by {by}: {what}"), words);
        Ok(ConfigApplied { number, changes, confirm_s: wanted.confirm_s })
    }

    /// A configuration that was just applied. Packets are to follow its files and tables, too.
    pub(super) fn applied(&self, done: ConfigApplied) -> Made<ConfigApplied> {
        let builds = done.changes.iter().any(|change| change.item.starts_with(ALGORITHM));
        let awaited = Awaited { files: true, builds, ..self.awaited() };
        Made { done, awaited, written: self.history_written() }
    }

    /// Waits until the history has the change that was just made. This is ordered in the call that makes the change: an error of
    /// another one is not its own.
    pub(super) fn history_written(&self) -> Option<Job<()>> {
        let flush = self.settings.lasting.flush()?;
        Some(Box::new(move || {
            let unsaved = |words| {
                let words = format!("done, but a restart may not find it: {words}");
                ApiError::new(Code::Unsaved, words)
            };
            flush().map_err(unsaved)
        }))
    }

    /// A change is refused: the record that was written for it goes.
    fn keep_record(&mut self, wanted: &ConfigApply, error: ApiError) -> ApiError {
        if wanted.confirm_s.is_some() {
            self.settings.lasting.restore_record();
        }
        error
    }

    /// Goes over to a configuration that was read before.
    fn change_to(
        &mut self,
        new: &Config,
        features: Option<Prepared>,
        failing: Failing,
        (routes, read): (&mut RouteChanges, &mut ReadAhead),
    ) -> Result<Vec<ConfigChange>, ApiError> {
        let mut changes = self.view().running().changes(new, routes);
        // What can be refused comes first.
        let planned = match features.map(|prepared| self.plan_features(prepared)).transpose() {
            Err(error) if failing == Failing::Reported => {
                warn!(target: "config", "features of interfaces stay as they are: {error}");
                None
            }
            planned => planned?,
        };
        if let Err(error) = self.change_sources(new, failing, read) {
            planned.into_iter().for_each(|(prepared, _)| self.refuse_features(prepared));
            return Err(error);
        }
        if let Some((prepared, plan)) = planned {
            self.forget_changes(new);
            self.put_features(prepared, plan);
        }
        self.change_neighbors(new);
        for (family, name) in [(4, &new.fib.algorithm_v4), (6, &new.fib.algorithm_v6)] {
            let fib = &self.settings.config().fib;
            if *name != if family == 4 { &fib.algorithm_v4 } else { &fib.algorithm_v6 }[..] {
                let change = AlgorithmChange { family: Some(family), name: name.clone() };
                self.settings.lasting.present.remove(&Subject::Algorithm(Some(family)));
                // It is built beside. One that cannot hold the table stays wanted, as it would at a start; the log has the
                // reason.
                if let Err(error) = self.pin_algorithm(&change) {
                    warn!(target: "config", "{error}");
                }
            }
        }
        if let Err(error) = self.control.set_group_mode(new.groups.layout.mode()) {
            warn!(target: "config", "not all groups have their new layout yet: {error}");
        }
        self.settings.config_mut().groups.layout = new.groups.layout;
        if new.log != self.settings.config().log {
            log::set(&new.log.level, new.log.format);
            self.settings.config_mut().log = new.log.clone();
        }
        let knobs = new.fib.knobs;
        self.control.set_fib_options(knobs).expect("checked with the configuration");
        self.settings.config_mut().fib.knobs = knobs;
        self.commit_soon();
        for change in &mut changes {
            change.applied = !change.restart;
        }
        Ok(changes)
    }

    /// The running graph with prepared features, for which the control side publishes what they need.
    fn plan_features(&mut self, prepared: Prepared) -> Result<(Prepared, Plan), ApiError> {
        let refuse = |prepared: Prepared, error| {
            prepared.let_go();
            Err(error)
        };
        let plan = match self.graph.planned(prepared.states()) {
            Ok(plan) => plan,
            // A graph that was swapped in names something that is no longer there.
            Err(errors) => {
                return refuse(prepared, ApiError::at(Code::Refused, "graph", errors));
            }
        };
        let running = &self.settings.config().features;
        match prepared.settings().bind(Some(running), &mut self.control) {
            Ok(()) => Ok((prepared, plan)),
            Err(error) => {
                self.unbind(prepared.settings());
                refuse(prepared, ApiError::new(Code::Refused, error))
            }
        }
    }

    /// The control side publishes what the running features need, and nothing for others.
    fn unbind(&mut self, others: &FeatureSettings) {
        let running = &self.settings.config().features;
        if let Err(error) = running.bind(Some(others), &mut self.control) {
            warn!(target: "config", "features of interfaces: {error}");
        }
    }

    /// Planned features will not be the running ones.
    fn refuse_features(&mut self, prepared: Prepared) {
        self.unbind(prepared.settings());
        prepared.let_go();
    }

    /// The features from now on, in all workers.
    fn put_features(&mut self, prepared: Prepared, plan: Plan) {
        let (wanted, messages) = self.graph.features.put(prepared, &self.control);
        messages.iter().for_each(|what| warn!(target: "graph", "{what}"));
        self.interfaces.set_features(wanted.clone());
        self.settings.config_mut().features = wanted;
        self.replace_graph(plan);
    }

    /// Goes over to the sources of a configuration. One that cannot be opened is reported, or all are as before.
    fn change_sources(
        &mut self,
        new: &Config,
        failing: Failing,
        read: &mut ReadAhead,
    ) -> Result<(), ApiError> {
        let (mut gone, mut done) = (Vec::new(), Vec::new());
        for step in self.view().running().steps(new) {
            let Sources { configured, .. } = &mut self.sources;
            let before = |configured: &Configured, at: usize| configured.fed[at].source.clone();
            // New routes are added before old ones are deleted: packets find a route at any moment.
            let (fed, undo) = match step {
                Step::New(source) => {
                    let read = read.take(&source);
                    (configured.feed(&mut self.control, &source, read), Undo::Remove)
                }
                Step::Again(at, source) => {
                    let undo = Undo::Again(at, before(configured, at));
                    let read = read.take(&source);
                    (configured.feed_again(&mut self.control, at, &source, read), undo)
                }
                Step::Swap(at, source) => {
                    let read = read.take(&source);
                    let fed = configured.feed(&mut self.control, &source, read);
                    // Without another one in its place it stays.
                    if fed.is_ok() {
                        gone.push(at);
                    }
                    (fed, Undo::Remove)
                }
                Step::Reopen(at, source) => {
                    let old = before(configured, at);
                    let fed = configured.reopen(&mut self.control, at, &source);
                    if fed.is_err() {
                        // Its address is free again.
                        self.undo(Undo::Insert(at, old.clone()));
                    }
                    (fed, Undo::Reopen(at, old))
                }
                Step::Remove(at) => {
                    gone.push(at);
                    continue;
                }
            };
            match (fed, failing) {
                (Ok(()), _) => done.push(undo),
                (Err(error), Failing::Reported) => warn!(target: "source", "{error}"),
                (Err(error), Failing::Refused) => {
                    done.into_iter().rev().for_each(|undo| self.undo(undo));
                    self.sources.configured.end_change(&mut self.control);
                    return Err(ApiError::new(Code::Refused, error));
                }
            }
        }
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            self.sources.configured.remove(at);
        }
        self.sources.configured.end_change(&mut self.control);
        let config = self.settings.config_mut();
        let kernel = config.source.iter().filter(|source| source.kind == "kernel").cloned();
        let others = new.source.iter().filter(|source| source.kind != "kernel").cloned();
        let sources = kernel.chain(others).collect();
        free_later(std::mem::replace(&mut config.source, sources));
        Ok(())
    }

    /// Takes a step back. What cannot be opened again is reported.
    fn undo(&mut self, undo: Undo) {
        let (configured, control) = (&mut self.sources.configured, &mut self.control);
        let fed = match undo {
            Undo::Remove => {
                configured.remove(configured.fed.len() - 1);
                return;
            }
            Undo::Again(at, source) => configured.feed_again(control, at, &source, None),
            Undo::Reopen(at, source) => configured.reopen(control, at, &source),
            Undo::Insert(at, source) => configured.insert(control, at, &source),
        };
        if let Err(error) = fed {
            error!(target: "source", "a source is not as before: {error}");
        }
    }

    /// Restores the configuration before the one that waits for its confirmation, if its time is over.
    pub(in crate::daemon) fn follow_confirmation(&mut self, now: Instant) {
        for what in self.settings.lasting.take_errors() {
            error!(target: "config", "{what}");
        }
        if let Some(reason) = self.settings.lasting.due(now)
            && let Err(error) = self.roll_back(&reason)
        {
            error!(target: "config", "the configuration is not rolled back: {error}");
        }
    }

    /// Restores the configuration before the one that waits for its confirmation.
    pub(super) fn roll_back(&mut self, reason: &str) -> Result<ConfigApplied, ApiError> {
        let (number, after, mut before) = self.settings.lasting.roll_back(reason)?;
        let prepared = self.graph.features.prepared(&before.config, before.states);
        let found = (&mut before.routes, &mut ReadAhead::default());
        let changes = self.change_to(&before.config, prepared, Failing::Reported, found)?;
        self.restore_changes(before.changes);
        self.make(before.neighbors);
        free_later((before.config, before.routes));
        let words = format!("configuration {number} is rolled back, {after} runs again: {reason}");
        self.note_configuration(number, "rolled_back", reason, words);
        Ok(ConfigApplied { number: after, changes, confirm_s: None })
    }

    /// Keeps the configuration that waits for its confirmation.
    pub(super) fn confirm(&mut self, by: &Requester) -> Result<ConfigEntry, ApiError> {
        let (mut entry, before) = self.settings.lasting.confirm()?;
        let redefined = redefined(&before.config, self.settings.config());
        self.settings.lasting.forget_saved(&redefined);
        free_later(before);
        entry.running = true;
        let words = format!("configuration {} is confirmed, by {by}", entry.number);
        self.note_configuration(entry.number, "confirmed", &format!("by {by}"), words);
        Ok(entry)
    }

    /// Notes what was done with a configuration: for followers of events, and in the log.
    fn note_configuration(&mut self, number: u64, done: &'static str, text: &str, words: String) {
        self.control.note_configuration(number, done, text);
        info!(target: "config", number, done, text, "{words}");
    }
}

impl ConfigReader {
    pub(super) fn read(&self, text: &ConfigText) -> Result<Config, ApiError> {
        let read = Config::of_text(Path::new(&text.file), &text.text, Some(&self.links));
        let with_said = |mut config: Config| {
            self.said.add_to(&mut config);
            config
        };
        read.map(with_said).map_err(|errors| {
            let details: Vec<Detail> = errors
                .iter()
                .map(|error| Detail {
                    message: error.what().to_owned(),
                    place: Some(error.place()),
                })
                .collect();
            let (message, place) = (details[0].message.clone(), details[0].place.clone());
            ApiError { code: Code::BadRequest, message, place, errors: details }
        })
    }
}

impl Running {
    /// Differences of another configuration.
    pub(super) fn diff(&self, text: &ConfigText) -> Result<Vec<ConfigChange>, ApiError> {
        Ok(self.changes(&self.reader.read(text)?, &mut RouteChanges::default()))
    }

    /// Another configuration, and the differences of its static routes.
    pub(super) fn read(&self, text: &ConfigText) -> Result<(Config, RouteChanges), ApiError> {
        let (mut new, mut changes) = (self.reader.read(text)?, RouteChanges::default());
        // Lists that are one need not be compared again.
        for source in &mut new.source {
            let same = self.fed.iter().find(|known| known.routes == source.routes);
            source.routes = same.map_or(source.routes.clone(), |same| same.routes.clone());
        }
        for step in self.steps(&new) {
            if let Step::Again(at, source) | Step::Swap(at, source) = step {
                changes.add(&self.fed[at].routes, &source.routes);
            }
        }
        Ok((new, changes))
    }

    /// Reads the static routes of sources of another configuration that have many and differ from those that run: they were
    /// checked with it.
    pub(super) fn read_routes(&self, new: &Config) -> Result<ReadAhead, ApiError> {
        let mut read = ReadAhead::default();
        for step in self.steps(new) {
            let (Step::New(source) | Step::Again(_, source) | Step::Swap(_, source)) = step else {
                continue;
            };
            if Lines::are_many(&source) {
                let lines = Lines::of(&source, self.reader.links.clone(), self.link_changes);
                let routes = lines.read().map_err(|error| ApiError::new(Code::Refused, error))?;
                read.add(source, routes);
            }
        }
        Ok(read)
    }

    fn changes(&self, new: &Config, routes: &mut RouteChanges) -> Vec<ConfigChange> {
        let old = &self.config;
        let mut changes = Changes::default();
        changes.word(
            &format!("{ALGORITHM}v4"),
            &old.fib.algorithm_v4,
            &new.fib.algorithm_v4,
            false,
        );
        changes.word(
            &format!("{ALGORITHM}v6"),
            &old.fib.algorithm_v6,
            &new.fib.algorithm_v6,
            false,
        );
        let knobs = |config: &Config| format!("{:?}", config.fib.knobs);
        changes.word("fib.knobs", &knobs(old), &knobs(new), false);
        let neighbors = |config: &Config| -> Vec<String> {
            config.neighbor.iter().map(ToString::to_string).collect()
        };
        changes.lines("neighbor", &neighbors(old), &neighbors(new));
        let layout = |config: &Config| config.groups.layout.mode().name();
        changes.word("groups.layout", layout(old), layout(new), false);
        let seed = |config: &Config| {
            config.groups.flow_seed.map_or("random".to_owned(), |seed| seed.to_string())
        };
        changes.word("groups.flow_seed", &seed(old), &seed(new), true);
        changes.features(&old.features, &new.features);
        for step in self.steps(new) {
            let index = |at: usize| &self.fed[at];
            match step {
                Step::New(source) => {
                    changes.push(&title(&source), None, Some(summary(&source)), false)
                }
                Step::Remove(at) => {
                    changes.push(&title(index(at)), Some(summary(index(at))), None, false);
                }
                Step::Swap(at, source) | Step::Reopen(at, source) => {
                    let item = title(&source);
                    changes.push(&item, Some(summary(index(at))), Some(summary(&source)), false);
                    changes.0.extend(routes.take(&index(at).routes, &source.routes));
                }
                Step::Again(at, source) => {
                    // Its routes are listed one by one.
                    let (was, is) = (settings(index(at)), settings(&source));
                    changes.push_if(&title(&source), Some(was), Some(is), false);
                    changes.0.extend(routes.take(&index(at).routes, &source.routes));
                }
            }
        }
        let kernel = |config: &Config| {
            let kernel = config.source.iter().find(|source| source.kind == "kernel");
            let distance = kernel.and_then(|source| source.distance);
            let distance =
                distance.map_or("its usual distance".to_owned(), |n| format!("distance {n}"));
            let buffer = kernel.and_then(|source| source.receive_buffer_kib);
            let compare = kernel.and_then(|source| source.compare_s);
            let words = [
                buffer.map(|kib| format!(", receive buffer {kib} KiB")),
                compare.map(|seconds| format!(", compared every {seconds} s")),
            ];
            distance + &words.into_iter().flatten().collect::<String>()
        };
        let (had, has) = (self.kernel_routes, new.kernel_routes());
        let (was, is) = (had.then(|| kernel(old)), has.then(|| kernel(new)));
        changes.push_if("source kernel", was, is, true);
        let list = |config: &Config| interfaces(config, &self.reader.said.only);
        changes.word("interface", &list(old), &list(new), true);
        let cores = |config: &Config| config.workers.cores.to_string();
        changes.word("workers.cores", &cores(old), &cores(new), true);
        let ignored = |config: &Config| config.takeover.ignore.join(", ");
        changes.word("takeover.ignore", &ignored(old), &ignored(new), true);
        let on_change = |config: &Config| config.takeover.on_change.name();
        changes.word("takeover.on_change", on_change(old), on_change(new), true);
        let nonstop = |config: &Config| config.takeover.nonstop_s.to_string();
        changes.word("takeover.nonstop_s", &nonstop(old), &nonstop(new), true);
        let memory = |config: &Config| config.xdp.memory.to_string();
        changes.word("xdp.memory", &memory(old), &memory(new), true);
        let [read, write] = old.control.words();
        let [new_read, new_write] = new.control.words();
        let form = |config: &Config| config.log.format.name();
        changes.word("log.level", &old.log.level.to_string(), &new.log.level.to_string(), false);
        changes.word("log.format", form(old), form(new), false);
        changes.word("control.read_group", &read, &new_read, true);
        changes.word("control.write_group", &write, &new_write, true);
        changes.word("listen", &old.listen.words(), &new.listen.words(), true);
        changes.cluster(old.cluster.as_ref(), new.cluster.as_ref());
        changes.0
    }

    /// Steps from the present sources to those of `new`.
    fn steps(&self, new: &Config) -> Vec<Step> {
        let mut left: Vec<usize> = (0..self.fed.len()).collect();
        let mut steps = Vec::new();
        for source in new.source.iter().filter(|source| source.kind != "kernel") {
            // A file is known by its path, fixed routes by their turn.
            let same = |at: &usize| {
                let known = &self.fed[*at];
                known.kind == source.kind
                    && known.path == source.path
                    && known.listens_at() == source.listens_at()
            };
            let Some(found) = left.iter().position(same) else {
                steps.push(Step::New(source.clone()));
                continue;
            };
            let at = left.remove(found);
            let known = &self.fed[at];
            let source = source.clone();
            steps.push(match known.distance == source.distance {
                true if *known == source => continue,
                true => Step::Again(at, source),
                false if source.has_sessions() => Step::Reopen(at, source),
                false => Step::Swap(at, source),
            });
        }
        steps.extend(left.into_iter().map(Step::Remove));
        steps
    }
}

/// Interfaces that a configuration takes over with `run --only` of these, in words.
fn interfaces(config: &Config, only: &[String]) -> String {
    let one = |i: &Interface| format!("{} ({}, table {})", i.name, i.mode.name(), i.table);
    let names: Vec<String> = match (&*config.interface, only) {
        ([], []) => return "every usable one".into(),
        ([], only) => only.iter().map(|name| format!("{name} (auto, table 0)")).collect(),
        (all, []) => all.iter().map(one).collect(),
        (all, only) => all.iter().filter(|i| only.contains(&i.name)).map(one).collect(),
    };
    if names.is_empty() { "none of --only".into() } else { names.join(", ") }
}

#[derive(Default)]
struct Changes(Vec<ConfigChange>);

impl Changes {
    fn push(&mut self, item: &str, from: Option<String>, to: Option<String>, restart: bool) {
        let item = item.to_owned();
        self.0.push(ConfigChange { item, from, to, restart, applied: false });
    }

    fn push_if(&mut self, item: &str, from: Option<String>, to: Option<String>, restart: bool) {
        if from != to {
            self.push(item, from, to, restart);
        }
    }

    fn word(&mut self, item: &str, from: &str, to: &str, restart: bool) {
        self.push_if(item, Some(from.to_owned()), Some(to.to_owned()), restart);
    }

    fn lines(&mut self, item: &str, from: &[String], to: &[String]) {
        self.0.extend(lines(item, from, to));
    }

    fn cluster(&mut self, from: Option<&Cluster>, to: Option<&Cluster>) {
        let (Some(from), Some(to)) = (from, to) else {
            let node = |cluster: &Cluster| format!("node {}", cluster.node);
            return self.push_if("cluster", from.map(node), to.map(node), true);
        };
        let (from, mut to) = (from.words(), to.words());
        for (key, was) in from {
            let at = to.iter().position(|(other, _)| *other == key);
            let is = at.map(|at| to.remove(at).1);
            self.push_if(&format!("cluster {key}"), Some(was), is, true);
        }
        for (key, is) in to {
            self.push(&format!("cluster {key}"), None, Some(is), true);
        }
    }

    fn features(&mut self, from: &FeatureSettings, to: &FeatureSettings) {
        let items = |all: &FeatureSettings| -> Vec<Item> {
            all.each().flat_map(|(_, settings)| settings.items()).collect()
        };
        let (from, to) = (items(from), items(to));
        let words = |item: &Item| item.words.clone();
        for old in &from {
            let new = to.iter().find(|new| new.name == old.name);
            self.push_if(&old.name, Some(words(old)), new.map(words), false);
            if let Some(new) = new {
                let name = format!("{} {}", old.name, old.lines.0);
                self.lines(&name, &old.lines.1, &new.lines.1);
            }
        }
        for new in to.iter().filter(|new| from.iter().all(|old| old.name != new.name)) {
            self.push(&new.name, None, Some(words(new)), false);
        }
    }
}

fn title(source: &Source) -> String {
    match (&source.path, source.listens_at()) {
        (Some(path), _) => format!("source {} {}", source.kind, path.display()),
        (None, Some(listen)) => format!("source {} {listen}", source.kind),
        (None, None) => format!("source {}", source.kind),
    }
}

/// Summary of a source.
fn summary(source: &Source) -> String {
    let routes = (!source.routes.is_empty()).then(|| format!("{} routes, ", source.routes.len()));
    routes.unwrap_or_default() + &settings(source)
}

/// Settings of a source in words, without its routes.
fn settings(source: &Source) -> String {
    let distance = match source.distance {
        Some(distance) => format!("distance {distance}"),
        None => "its usual distance".to_owned(),
    };
    let settings = [
        source.sweep_s.map(|seconds| format!("sweep_s {seconds}")),
        source.stale_s.map(|seconds| format!("stale_s {seconds}")),
        source.acknowledge.map(|wanted| format!("acknowledge {wanted}")),
        source.max_peers.map(|most| format!("max_peers {most}")),
        source.max_prefixes.map(|most| format!("max_prefixes {most}")),
        source.max_paths.map(|most| format!("max_paths {most}")),
        source.max_tables.map(|most| format!("max_tables {most}")),
        source.exports_as().map(|protocol| format!("exported as protocol {protocol}")),
        source.probe().map(|every| format!("next hops probed every {} ms", every.as_millis())),
        source.peer.as_ref().map(|peer| format!("peer {peer}")),
        source.speed.as_ref().map(|speed| format!("speed {speed}")),
        (!source.updates.is_empty()).then(|| format!("{} files of updates", source.updates.len())),
    ];
    [Some(distance)].into_iter().chain(settings).flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_static_routes_are_read_before_the_change() {
        let running = Running {
            reader: ConfigReader { links: Vec::new(), said: Said::default() },
            config: Config::default(),
            fed: Vec::new(),
            kernel_routes: true,
            link_changes: 0,
        };
        let line = |n: usize| format!("\"10.{}.{}.0/24 via 192.0.2.1\",\n", n / 256, n % 256);
        let read = |numbers: &[usize]| {
            let lines: String = numbers.iter().copied().map(line).collect();
            let text = format!("[[source]]\nkind = \"fixed\"\nroutes = [\n{lines}]\n");
            let (new, _) = running.read(&ConfigText { file: "r.toml".to_owned(), text })?;
            let mut read = running.read_routes(&new)?;
            Ok(read.take(&new.source[0]).is_some())
        };
        let mut numbers: Vec<usize> = (0..5000).collect();
        assert_eq!((read(&numbers), read(&numbers[..9])), (Ok(true), Ok(false)));
        numbers[4321] = 7;
        let error: ApiError = read(&numbers).unwrap_err();
        assert_eq!((error.code, error.place.as_deref()), (Code::BadRequest, Some("r.toml:4325")));
        let want = "`10.0.7.0/24 via 192.0.2.1`: 10.0.7.0/24 with metric 0 is route 8 already: ";
        assert!(error.message.starts_with(want), "{}", error.message);
    }

    #[test]
    fn a_change_of_a_cluster_names_its_keys() {
        let of = |text: &str| {
            let text = format!("[cluster]\nnode = \"a\"\n{text}");
            Config::of_text(Path::new("r.toml"), &text, None).unwrap().cluster
        };
        let members = |more: &str| {
            format!(
                "[[cluster.member]]\nid = \"a\"\nloopback = \"192.0.2.1\"\n{more}\
                 [[cluster.link]]\ninterface = \"int0\"\n"
            )
        };
        let other = "[[cluster.member]]\nid = \"b\"\nnumber = 2\nloopback = \"192.0.2.2\"\n";
        let old = of(&members(other));
        let diff = |old: Option<&Cluster>, new: Option<&Cluster>| {
            let mut changes = Changes::default();
            changes.cluster(old, new);
            changes.0.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(diff(old.as_ref(), old.as_ref()), [""; 0]);
        let third =
            other.replace("\"b\"", "\"c\"").replace('2', "3").replace("193.0.3.3", "192.0.2.3");
        let new = of(&format!("mode = \"direct\"\n{}", members(&third)));
        let changed = diff(old.as_ref(), new.as_ref());
        let want = [
            "cluster mode: vlb -> direct (needs a restart)",
            "cluster member b: - number 2, loopback 192.0.2.2, weight 1 (needs a restart)",
            "cluster member c: + number 3, loopback 192.0.2.3, weight 1 (needs a restart)",
        ];
        assert_eq!(changed, want);
        assert_eq!(diff(None, old.as_ref()).len(), 1);
    }

    #[test]
    fn interfaces_are_those_of_the_file_and_of_the_command_line() {
        let of = |text: &str, only: &[&str]| {
            let config = Config::of_text(Path::new("r.toml"), text, None).unwrap();
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            interfaces(&config, &only)
        };
        let two = "[[interface]]\nname = \"a\"\n[[interface]]\nname = \"b\"\ntable = 7\n";
        assert_eq!(of("", &[]), "every usable one");
        assert_eq!(of("", &["a", "b"]), "a (auto, table 0), b (auto, table 0)");
        assert_eq!(of(two, &[]), "a (auto, table 0), b (auto, table 7)");
        assert_eq!(of(two, &["b", "c"]), "b (auto, table 7)");
        assert_eq!(of(two, &["c"]), "none of --only");
    }
}
