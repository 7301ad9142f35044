//! A configuration with the run-time changes of a router in it: `config save --to`.
//!
//! What can be written is: static routes, static neighbors, algorithms, and prefixes of source filters. Comments and the order of
//! keys are those of a writer of TOML, not those of the text.

use fingerpost_packet::feature::source_filter::prefix;
use fingerpost_route::AnyPrefix;
use toml::{Table, Value};

use super::Config;
use crate::api::saved::{FilterEdit, SavedChange};

/// The text with the changes in it, and what it cannot have, each with its reason. The static neighbors are those among the
/// changes alone: what the configuration sets is among them as long as it is there.
///
/// # Errors
/// When the text is no configuration.
pub(crate) fn merged(text: &str, changes: &[SavedChange]) -> Result<(String, Vec<String>), String> {
    let mut tables: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let (mut routes, mut neighbors, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        let line = change.to_string();
        let done = match change {
            SavedChange::Route(_) => {
                routes.push(Value::String(line["route ".len()..].to_owned()));
                Ok(())
            }
            SavedChange::Neighbor(change) => {
                let mac = change.mac.clone().unwrap_or_default();
                let row = [
                    ("address", change.addr.clone()),
                    ("lladdr", mac),
                    ("interface", change.dev.clone()),
                ];
                let row = row.map(|(key, value)| (key.to_owned(), Value::String(value)));
                neighbors.push(Value::Table(row.into_iter().collect()));
                Ok(())
            }
            SavedChange::Algorithm(change) => {
                algorithm(&mut tables, change.family.unwrap_or(4), &change.name)
            }
            SavedChange::Filter { filter, edit } => edited(&mut tables, filter, edit),
        };
        left_out.extend(done.err().map(|why| format!("{line}: {why}")));
    }
    if !routes.is_empty() {
        let sources = list(&mut tables, "source");
        // None named stands for the kernel.
        if sources.is_empty() {
            sources.push(source("kernel"));
        }
        let mut fixed = source("fixed");
        if let Value::Table(fixed) = &mut fixed {
            fixed.insert("routes".to_owned(), Value::Array(routes));
        }
        sources.push(fixed);
    }
    tables.remove("neighbor");
    if !neighbors.is_empty() {
        tables.insert("neighbor".to_owned(), Value::Array(neighbors));
    }
    let text = toml::to_string(&tables).map_err(|error| error.to_string())?;
    match Config::parse(&text, None) {
        Ok(_) => Ok((text, left_out)),
        Err(mistakes) => {
            Err(mistakes.into_iter().map(|(_, what)| what).collect::<Vec<_>>().join("; "))
        }
    }
}

fn source(kind: &str) -> Value {
    Value::Table([("kind".to_owned(), Value::String(kind.to_owned()))].into_iter().collect())
}

/// The list of this name, which is there from now on.
fn list<'a>(tables: &'a mut Table, name: &str) -> &'a mut Vec<Value> {
    let value = tables.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().expect("it is one")
}

fn algorithm(tables: &mut Table, family: u8, name: &str) -> Result<(), String> {
    if name == "measured" {
        return Err("a file has `auto` or the name of an algorithm".to_owned());
    }
    let fib = tables.entry("fib").or_insert_with(|| Value::Table(Table::new()));
    let fib = fib.as_table_mut().ok_or("`fib` is no table")?;
    fib.insert(format!("algorithm_v{family}"), Value::String(name.to_owned()));
    Ok(())
}

/// Changes the list of a source filter.
fn edited(tables: &mut Table, filter: &str, edit: &FilterEdit) -> Result<(), String> {
    let name = if tables.contains_key("filter") { "filter" } else { "source_filter" };
    let is_named = |value: &&mut Value| value.get("name").and_then(Value::as_str) == Some(filter);
    let found = list(tables, name).iter_mut().find(is_named);
    let table =
        found.and_then(Value::as_table_mut).ok_or("the configuration has no such filter")?;
    match edit {
        FilterEdit::Replace(file) => {
            table.insert("file".to_owned(), Value::String(file.clone()));
            table.remove("prefixes");
            Ok(())
        }
        FilterEdit::Add(added) => {
            list(table, "prefixes").push(Value::String(added.to_string()));
            Ok(())
        }
        FilterEdit::Remove(gone) => {
            let has_file = table.contains_key("file");
            let prefixes = list(table, "prefixes");
            let same = |value: &Value| is_prefix(value, *gone);
            let before = prefixes.len();
            prefixes.retain(|value| !same(value));
            let is_gone = prefixes.len() < before;
            if prefixes.is_empty() {
                table.remove("prefixes");
            }
            match is_gone || !has_file {
                true => Ok(()),
                false => Err("the list is that of a file: take the prefix from there".to_owned()),
            }
        }
    }
}

fn is_prefix(value: &Value, wanted: AnyPrefix) -> bool {
    value.as_str().is_some_and(|text| prefix(text) == Ok(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbor_is_the_same_change_however_it_is_written() {
        let text = "[[neighbor]]\naddress = \"2001:DB8:0::1\"\nlladdr = \"02-00-5E-10-00-0A\"\n\
                    interface = \"eth0\"\n";
        let config = Config::parse(text, None).unwrap();
        let (_, change) = config.neighbor[0].placed();
        assert_eq!(change.to_string(), "neighbor 2001:db8::1 lladdr 02:00:5e:10:00:0a dev eth0");
    }

    #[test]
    fn changes_are_part_of_the_file() {
        let text = "[[source_filter]]\nname = \"bad\"\naction = \"drop\"\nprefixes = [\"10.0.0.0/8\"]\n\
                    [[source_filter]]\nname = \"file\"\naction = \"drop\"\nfile = \"list\"\n\
                    [fib]\nalgorithm_v4 = \"dxr18\"\n";
        let changes: Vec<SavedChange> = [
            "neighbor 192.0.2.1 lladdr 02:00:5e:10:00:01 dev eth0",
            "route 198.51.100.0/24 via 192.0.2.1 metric 5",
            "algorithm 4 auto",
            "algorithm 6 measured",
            "source-filter bad add 192.0.2.7/32",
            "source-filter bad remove 10.0.0.0/8",
            "source-filter file remove 10.0.0.0/8",
            "source-filter none add 10.0.0.0/8",
        ]
        .map(|line| line.parse().unwrap())
        .into();
        let (text, left_out) = merged(text, &changes).unwrap();
        let config = Config::parse(&text, None).unwrap();
        assert_eq!(config.neighbor[0].to_string(), "192.0.2.1 lladdr 02:00:5e:10:00:01 dev eth0");
        assert!(config.kernel_routes());
        assert_eq!(*config.source[1].routes, ["198.51.100.0/24 via 192.0.2.1 metric 5"]);
        assert_eq!((&*config.fib.algorithm_v4, &*config.fib.algorithm_v6), ("auto", "auto"));
        assert!(text.contains("prefixes = [\"192.0.2.7/32\"]"), "{text}");
        let words =
            ["algorithm 6 measured: ", "source-filter file remove", "source-filter none add"];
        assert_eq!(left_out.len(), words.len(), "{left_out:?}");
        for (line, words) in left_out.iter().zip(words) {
            assert!(line.starts_with(words), "{line}");
        }
        // What has gone from the router has gone from the file.
        let (again, _) = merged(&text, &[]).unwrap();
        assert!(Config::parse(&again, None).unwrap().neighbor.is_empty());
    }
}
