//! Settings of a run: the configuration, and what the command line adds to it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fingerpost_route::Control;
use fingerpost_route::source::words::nearest;

use super::lasting::{Lasting, Placed};
use super::memory::Memory;
use super::pace::Pace;
use super::turns::Turns;
use crate::api::model::{AlgorithmChange, ConfigText};
use crate::api::saved::SavedChange;
use crate::config::{Config, PacketPath};
use crate::log::{Format, Levels};

/// What a run is started with besides the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunOptions {
    pub(crate) config: Config,
    /// Packet path.
    pub(crate) path: PacketPath,
    /// Settings of the command line, which the configuration has already.
    pub(crate) said: Said,
    /// Text of the configuration.
    pub(crate) text: ConfigText,
    /// Changes of earlier runs that are made again.
    pub(crate) saved: Vec<Placed>,
}

impl RunOptions {
    /// A message for each interface that is named, by `--only` or by the file, and that no link of this network namespace
    /// is called, and for each that static routes name: it may still appear.
    pub(super) fn missing(&self, control: &Control) -> Vec<String> {
        let links: Vec<(String, u32)> =
            control.links().map(|(link, _, state)| (state.name.to_string(), link)).collect();
        let known: Vec<&str> = links.iter().map(|(name, _)| &**name).collect();
        let named =
            self.said.only.iter().chain(self.config.interface.iter().map(|known| &known.name));
        let named: BTreeSet<&str> = named.map(|name| &**name).collect();
        let missing = named.into_iter().filter(|name| !known.contains(name));
        missing
            .map(|name| {
                let hint = nearest(name, known.iter().copied())
                    .map_or(String::new(), |other| format!(": did you mean {other}?"));
                format!("{name}: no such interface; it is taken over when it appears{hint}")
            })
            .chain(self.config.absent_links(&links))
            .collect()
    }
}

/// Settings of the command line beside a configuration file: they hold however often the file is read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// Subsystems that are no obstacle.
    pub(crate) ignore: Vec<String>,
    /// Seconds for which the XDP programs keep forwarding without this process.
    pub(crate) nonstop_s: Option<u32>,
    /// Interfaces to take over; none named: all of the configuration.
    pub(crate) only: Vec<String>,
    /// Levels of the log.
    pub(crate) log_level: Option<Levels>,
    /// Form of its lines.
    pub(crate) log_format: Option<Format>,
}

impl Said {
    /// Adds them to those of a file.
    pub(crate) fn add_to(&self, config: &mut Config) {
        config.takeover.ignore.extend(self.ignore.iter().cloned());
        config.takeover.nonstop_s = self.nonstop_s.unwrap_or(config.takeover.nonstop_s);
        if let Some(levels) = &self.log_level {
            config.log.level = levels.clone();
        }
        config.log.format = self.log_format.unwrap_or(config.log.format);
    }
}

/// The settings at present: those of the start, and changes since.
pub(super) struct Settings {
    config: Config,
    said: Said,
    /// What outlasts a change or the run.
    pub(super) lasting: Lasting,
}

impl Settings {
    /// Settings at the start, with the changes of earlier runs that could not be made yet.
    pub(super) fn new(options: &RunOptions, unmade: Vec<Placed>) -> Self {
        let (config, said) = (options.config.clone(), options.said.clone());
        let mut settings = Self { config, said, lasting: Lasting::default() };
        settings.lasting.started(&options.text);
        settings.lasting.unmade.changes = unmade;
        for Placed { change, .. } in &options.saved {
            match change {
                SavedChange::Algorithm(AlgorithmChange { family, name }) => {
                    let fib = &mut settings.config.fib;
                    let choice = match family {
                        Some(6) => &mut fib.algorithm_v6,
                        _ => &mut fib.algorithm_v4,
                    };
                    choice.clone_from(name);
                }
                SavedChange::Filter { .. } => {}
                SavedChange::Route(_) | SavedChange::Neighbor(_) => continue,
            }
            settings.lasting.present.set(change.clone());
        }
        settings
    }

    /// The running configuration.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// The running configuration, to be changed with the router.
    pub(super) fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Settings of the command line, which hold over any file.
    pub(super) fn said(&self) -> &Said {
        &self.said
    }
}

/// Times of a run, and the generation that readers see.
pub(super) struct Progress {
    started: Instant,
    load: Duration,
    generation: u64,
    pub(super) memory: Memory,
    pub(super) pace: Pace,
    pub(super) turns: Turns,
}

impl Progress {
    /// Progress of a run that began at `started` and has learned all routes.
    pub(super) fn new(started: Instant) -> Self {
        let pace = Pace::new(Instant::now());
        let load = started.elapsed();
        Self {
            started,
            load,
            generation: 0,
            memory: Memory::default(),
            pace,
            turns: Turns::default(),
        }
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Time from the start until all routes were learned.
    pub(super) fn load(&self) -> Duration {
        self.load
    }

    /// Generation that readers see.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
    }
}
