//! The section `[control]`: who may use the control sockets.

use fingerpost_packet::feature::Mistake as Wrong;
use serde::Deserialize;

use super::Choice;
use crate::api::access::{Group, Groups};

/// Control sockets. Root and the user of the daemon may always read and change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ControlConfig {
    /// Group whose members may read, over the socket for reading: its name, or its number. Without it `fingerpost`, where
    /// there is such a group.
    pub(crate) read_group: Option<Choice>,
    /// Group whose members may read and change: its name, or its number. Without it `fingerpost-admin`, where there is such a
    /// group.
    pub(crate) write_group: Option<Choice>,
}

impl ControlConfig {
    const READ: &str = "fingerpost";
    const WRITE: &str = "fingerpost-admin";

    fn each(&self) -> [(&'static str, Option<&Choice>, &'static str); 2] {
        [
            ("read_group", self.read_group.as_ref(), Self::READ),
            ("write_group", self.write_group.as_ref(), Self::WRITE),
        ]
    }

    /// Groups that this host does not have.
    pub(super) fn check(&self) -> Vec<Wrong> {
        let named = self.each().into_iter().filter_map(|(key, name, _)| Some((key, name?)));
        let missing = named.filter(|(_, name)| Group::find(&name.to_string()).is_none());
        let wrong = missing.map(|(key, name)| {
            let what =
                format!("this host has no group `{name}`: make it with `groupadd -r {name}`");
            Wrong::new(format!("control.{key}"), what)
        });
        wrong.collect()
    }

    /// The groups on this host; a message for each that is configured and is not there.
    pub(crate) fn groups(&self) -> (Groups, Vec<String>) {
        let found = |name: Option<&Choice>, usual: &str| {
            Group::find(&name.map_or(usual.to_owned(), ToString::to_string))
        };
        let [read, write] = self.each().map(|(_, name, usual)| found(name, usual));
        let messages = self.check().into_iter().map(|wrong| format!("[control]: {}", wrong.what));
        (Groups { read, write }, messages.collect())
    }

    /// Its groups in words.
    pub(crate) fn words(&self) -> [String; 2] {
        self.each().map(|(_, name, usual)| name.map_or(usual.to_owned(), ToString::to_string))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn groups_are_named_or_numbered() {
        let read = |text: &str| Config::parse(text, Some(&[]));
        let config = read("[control]\nread_group = 4242\nwrite_group = \"root\"\n").unwrap();
        let (groups, messages) = config.control.groups();
        assert_eq!(messages, [""; 0]);
        assert_eq!((groups.read.unwrap().id, groups.write.unwrap().id), (4242, 0));
        let wrong = read("[control]\nread_group = \"no-such-group\"\n").unwrap_err();
        let words =
            "this host has no group `no-such-group`: make it with `groupadd -r no-such-group`";
        assert_eq!(wrong, [(Some(2), words.to_owned())]);
        assert_eq!(Config::default().control.words(), ["fingerpost", "fingerpost-admin"]);
    }
}
