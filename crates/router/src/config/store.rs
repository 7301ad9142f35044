//! The store of `[cluster]`: where the members come from and how to get in.
//!
//! Shape:  keys are checked with the configuration; files are read when the router starts, as they may be elsewhere then.
//! Limits: secrets come from files alone, so that a configuration can be shown.

use std::path::Path;
use std::time::Duration;

use fingerpost_cluster::store::{self, Options, Store};
use fingerpost_packet::feature::Mistake as Wrong;

use super::Cluster;

impl Cluster {
    /// A session with the store, which is not connected yet.
    ///
    /// # Errors
    /// What is wrong with the files that the configuration names, or with its endpoints.
    pub(crate) fn open_store(&self) -> Result<Box<dyn Store>, String> {
        let kind = store::find(&self.store).map_err(|error| error.to_string())?;
        let secret = |file: &Option<_>| file.as_deref().map(secret).transpose();
        let user = self.user.clone().zip(secret(&self.password_file)?);
        let options = Options {
            endpoints: self.endpoints.clone(),
            prefix: self.prefix.clone().unwrap_or_else(|| format!("fingerpost/{}", self.id)),
            ttl: Duration::from_secs(self.ttl_s.into()),
            ca: self.ca.clone(),
            identity: self.cert.clone().zip(self.key.clone()),
            user,
            token: secret(&self.token_file)?,
            ..Options::default()
        };
        (kind.open)(&options).map_err(|error| error.to_string())
    }

    /// What is wrong with the keys of the store.
    pub(super) fn check_store(&self, wrong: &mut Vec<Wrong>) {
        let mut mistake = |key: &str, what: String| {
            wrong.push(Wrong::new(format!("cluster.{key}"), what).with("cluster.store"));
        };
        let given = [
            ("endpoints", !self.endpoints.is_empty()),
            ("prefix", self.prefix.is_some()),
            ("ca", self.ca.is_some()),
            ("cert", self.cert.is_some()),
            ("key", self.key.is_some()),
            ("user", self.user.is_some()),
            ("password_file", self.password_file.is_some()),
            ("token_file", self.token_file.is_some()),
        ];
        if !self.has_store() {
            for (key, _) in given.iter().filter(|(_, given)| *given) {
                mistake(key, format!("`{key}` needs a `store`, etcd or nats"));
            }
            return;
        }
        if let Err(error) = store::find(&self.store) {
            mistake("store", format!("{error}, or \"static\" for none"));
        }
        if self.endpoints.is_empty() {
            let what = format!("store {:?} needs `endpoints`, a list of URLs", self.store);
            mistake("store", what);
        }
        if self.prefix.as_ref().is_some_and(|prefix| prefix.trim_matches('/').is_empty()) {
            mistake("prefix", "`prefix` is empty".to_owned());
        }
        for (key, other) in
            [("cert", "key"), ("key", "cert"), ("user", "password_file"), ("password_file", "user")]
        {
            let has = |key: &str| given.iter().any(|(name, given)| *name == key && *given);
            if has(key) && !has(other) {
                mistake(key, format!("`{key}` needs `{other}` beside it"));
            }
        }
        for (i, member) in self.member.iter().enumerate().filter(|(_, m)| m.id != self.node) {
            let what = format!("member {:?}: the store has the other members", member.id);
            mistake(&format!("member.{i}.id"), what);
        }
    }
}

/// Content of a file, without the end of its line.
fn secret(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let secret = text.trim_end_matches(['\n', '\r']);
    match secret.is_empty() {
        true => Err(format!("{} is empty", file.display())),
        false => Ok(secret.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    const SECTION: &str = r#"
        [cluster]
        node = "b"
        store = "etcd"
        endpoints = ["http://127.0.0.1:2379"]
        [[cluster.member]]
        id = "b"
        loopback = "192.0.2.2"
        [[cluster.link]]
        interface = "int0"
        peer = "not-there-yet"
    "#;

    fn refused(text: &str) -> String {
        let mistakes = Config::parse(text, None).unwrap_err();
        let said = mistakes.iter().map(|(line, what)| format!("{}: {what}", line.unwrap_or(0)));
        said.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_build_without_a_store_names_the_feature() {
        match Config::parse(SECTION, None) {
            Ok(config) => assert!(config.cluster.unwrap().has_store()),
            Err(_) => assert!(refused(SECTION).contains("4: this build is without the store etcd")),
        }
    }

    #[test]
    fn mistakes_name_the_line_and_the_remedy() {
        for (from, to, want) in [
            ("\"etcd\"", "\"zookeeper\"", "4: there is no store \"zookeeper\""),
            ("store = \"etcd\"", "", "5: `endpoints` needs a `store`"),
            ("endpoints = [\"http://127.0.0.1:2379\"]", "", "4: store \"etcd\" needs `endpoints`"),
            ("store", "user = \"x\"\nstore", "4: `user` needs `password_file` beside it"),
            ("store", "cert = \"x\"\nstore", "4: `cert` needs `key` beside it"),
            ("store", "prefix = \"/\"\nstore", "4: `prefix` is empty"),
            ("store", "ttl_s = 0\nstore", "4: `ttl_s` must be from 1 to 60, not 0"),
            (
                "[[cluster.link]]",
                "[[cluster.member]]\nid = \"c\"\nloopback = \"192.0.2.3\"\n[[cluster.link]]",
                "10: member \"c\": the store has the other members",
            ),
        ] {
            let text = SECTION.replacen(from, to, 1);
            assert_ne!(text, SECTION, "{from}");
            let got = refused(&text);
            assert!(got.contains(want), "{to}: {got}");
        }
    }
}
