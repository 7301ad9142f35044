//! Rows of a registry by their names, as options take them.

use anyhow::{Result, bail};

/// Rows that `names` names, with commas, in the order of the registry; `all` stands for all of them.
///
/// # Errors
/// When a name is none; the message calls it a `what`, and lists those that are.
pub(crate) fn named<T>(
    what: &str,
    rows: &'static [T],
    name_of: impl Fn(&T) -> &'static str,
    names: &str,
) -> Result<Vec<&'static T>> {
    for name in names.split(',').filter(|&name| name != "all") {
        if !rows.iter().any(|row| name_of(row) == name) {
            let mut known = Vec::new();
            for name in rows.iter().map(&name_of) {
                if !known.contains(&name) {
                    known.push(name);
                }
            }
            bail!("no {what} {name}: there are {}", known.join(", "));
        }
    }
    let is = |row: &T, name: &str| name == "all" || name == name_of(row);
    Ok(rows.iter().filter(|row| names.split(',').any(|name| is(row, name))).collect())
}
