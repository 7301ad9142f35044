//! `config diff` and `config apply`: the running configuration and another one.

use std::collections::HashSet;
use std::path::Path;

use fingerpost_packet::Plan;
use fingerpost_packet::feature::FeatureSettings;
use fingerpost_packet::feature::row::Item;

use super::{Daemon, View};
use crate::api::error::{ApiError, Code, Detail};
use crate::api::model::{AlgorithmChange, ConfigChange, ConfigText};
use crate::config::{Config, Interface, Source};
use crate::daemon::Said;
use crate::daemon::features::Prepared;

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

/// Reader of another configuration, for any thread, as its text may be long.
struct ConfigReader {
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
}

impl View<'_> {
    /// A copy of the running configuration.
    pub(super) fn running(&self) -> Running {
        Running {
            reader: self.config_reader(),
            config: self.settings.config().clone(),
            fed: self.sources.configured.fed.iter().map(|fed| fed.source.clone()).collect(),
            kernel_routes: self.sources.kernel.routes(),
        }
    }

    fn config_reader(&self) -> ConfigReader {
        let links = self.control.links().map(|(link, _, state)| (state.name.clone(), link));
        ConfigReader { links: links.collect(), said: self.settings.said().clone() }
    }

    pub(super) fn read_config(&self, text: &ConfigText) -> Result<Config, ApiError> {
        self.config_reader().read(text)
    }
}

impl Daemon {
    /// Applies what can be applied while running, and names the rest. Other features were made before.
    pub(super) fn apply(
        &mut self,
        text: &ConfigText,
        features: Option<Prepared>,
    ) -> Result<Vec<ConfigChange>, ApiError> {
        let new = self.view().read_config(text);
        let running = self.settings.config();
        let fits = |new| self.graph.features.fits(&new, running, features.as_ref()).map(|()| new);
        let new = match new.and_then(fits) {
            Ok(new) => new,
            Err(error) => {
                features.into_iter().for_each(Prepared::let_go);
                return Err(error);
            }
        };
        let mut changes = self.view().running().changes(&new);
        // What can be refused comes first.
        let planned = features.map(|prepared| self.plan_features(prepared)).transpose()?;
        if let Err(error) = self.change_sources(&new) {
            planned.into_iter().for_each(|(prepared, _)| self.refuse_features(prepared));
            return Err(error);
        }
        if let Some((prepared, plan)) = planned {
            self.put_features(prepared, plan);
        }
        for (family, name) in [(4, &new.fib.algorithm_v4), (6, &new.fib.algorithm_v6)] {
            let fib = &self.settings.config().fib;
            if *name != if family == 4 { &fib.algorithm_v4 } else { &fib.algorithm_v6 }[..] {
                let change = AlgorithmChange { family: Some(family), name: name.clone() };
                // One that cannot hold the table stays wanted, as it would at a start.
                let pinned = self.pin_algorithm(&change).and_then(|()| {
                    self.commit_now();
                    self.pinned(&change)
                });
                if let Err(error) = pinned {
                    self.journal.push(error.to_string());
                }
            }
        }
        if let Err(error) = self.control.set_group_mode(new.groups.layout.mode()) {
            self.journal.push(format!("not all groups have their new layout yet: {error}"));
        }
        self.settings.config_mut().groups.layout = new.groups.layout;
        let knobs = new.fib.knobs;
        self.control.set_fib_options(knobs).expect("checked with the configuration");
        self.settings.config_mut().fib.knobs = knobs;
        self.commit_now();
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
            self.journal.push(format!("features of interfaces: {error}"));
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
        self.journal.extend(messages);
        self.interfaces.set_features(wanted.clone());
        self.settings.config_mut().features = wanted;
        self.replace_graph(plan);
    }

    fn change_sources(&mut self, new: &Config) -> Result<(), ApiError> {
        let mut gone = Vec::new();
        let failed =
            |error: fingerpost_route::source::SourceError| ApiError::new(Code::Refused, error);
        for step in self.view().running().steps(new) {
            // New routes are added before old ones are deleted: packets find a route at any moment.
            let said = match step {
                Step::New(source) => self.sources.configured.feed(&mut self.control, &source),
                Step::Again(at, source) => {
                    self.sources.configured.feed_again(&mut self.control, at, &source)
                }
                Step::Swap(at, source) => {
                    gone.push(at);
                    self.sources.configured.feed(&mut self.control, &source)
                }
                Step::Reopen(at, source) => {
                    self.sources.configured.reopen(&mut self.control, at, &source)
                }
                Step::Remove(at) => {
                    gone.push(at);
                    continue;
                }
            };
            self.journal.extend(said.map_err(failed)?);
        }
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            self.sources.configured.remove(&mut self.control, at);
        }
        let config = self.settings.config_mut();
        let kernel = config.source.iter().filter(|source| source.kind == "kernel").cloned();
        let others = new.source.iter().filter(|source| source.kind != "kernel").cloned();
        config.source = kernel.chain(others).collect();
        Ok(())
    }
}

impl ConfigReader {
    fn read(&self, text: &ConfigText) -> Result<Config, ApiError> {
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
        Ok(self.changes(&self.reader.read(text)?))
    }

    fn changes(&self, new: &Config) -> Vec<ConfigChange> {
        let old = &self.config;
        let mut changes = Changes::default();
        changes.word("fib.algorithm_v4", &old.fib.algorithm_v4, &new.fib.algorithm_v4, false);
        changes.word("fib.algorithm_v6", &old.fib.algorithm_v6, &new.fib.algorithm_v6, false);
        let knobs = |config: &Config| format!("{:?}", config.fib.knobs);
        changes.word("fib.knobs", &knobs(old), &knobs(new), false);
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
                    changes.push(&title(&source), None, Some(told(&source)), false)
                }
                Step::Remove(at) => {
                    changes.push(&title(index(at)), Some(told(index(at))), None, false);
                }
                Step::Swap(at, source) | Step::Reopen(at, source) => {
                    let item = title(&source);
                    changes.push(&item, Some(told(index(at))), Some(told(&source)), false);
                    changes.routes(&index(at).routes, &source.routes);
                }
                Step::Again(at, source) => {
                    // Its routes are listed one by one.
                    let (was, is) = (settings(index(at)), settings(&source));
                    changes.push_if(&title(&source), Some(was), Some(is), false);
                    changes.routes(&index(at).routes, &source.routes);
                }
            }
        }
        let kernel = |config: &Config| {
            let kernel = config.source.iter().find(|source| source.kind == "kernel");
            let distance = kernel.and_then(|source| source.distance);
            let distance =
                distance.map_or("its usual distance".to_owned(), |n| format!("distance {n}"));
            let buffer = kernel.and_then(|source| source.receive_buffer_kib);
            distance + &buffer.map_or(String::new(), |kib| format!(", receive buffer {kib} KiB"))
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
        let cluster = |config: &Config| config.cluster.as_ref().map(|c| format!("node {}", c.node));
        if old.cluster != new.cluster {
            let (was, is) = (cluster(old), cluster(new));
            changes.push("cluster", was, is, true);
        }
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

    fn routes(&mut self, from: &[String], to: &[String]) {
        self.lines("fixed route", from, to);
    }

    fn lines(&mut self, item: &str, from: &[String], to: &[String]) {
        let (were, are): (HashSet<_>, HashSet<_>) = (from.iter().collect(), to.iter().collect());
        for line in from.iter().filter(|line| !are.contains(line)) {
            self.push(item, Some(line.clone()), None, false);
        }
        for line in to.iter().filter(|line| !were.contains(line)) {
            self.push(item, None, Some(line.clone()), false);
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

fn told(source: &Source) -> String {
    let routes = (!source.routes.is_empty()).then(|| format!("{} routes, ", source.routes.len()));
    routes.unwrap_or_default() + &settings(source)
}

/// All of a source but its routes, in words.
fn settings(source: &Source) -> String {
    let distance = match source.distance {
        Some(distance) => format!("distance {distance}"),
        None => "its usual distance".to_owned(),
    };
    let settings = [
        source.sweep_s.map(|seconds| format!("sweep_s {seconds}")),
        source.stale_s.map(|seconds| format!("stale_s {seconds}")),
        source.acknowledge.map(|wanted| format!("acknowledge {wanted}")),
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
