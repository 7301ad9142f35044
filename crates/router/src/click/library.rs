//! Files of `require(library FILE)`: in the folders of `CLICKPATH`, and beside the file that requires them.

use std::path::{Path, PathBuf};

use fingerpost_packet::OpenPolicy;

/// Where a folder of `CLICKPATH` has libraries: itself first.
const BELOW: [&str; 3] = ["", "conf", "conf/click"];

/// Name and text of a library that the file `asking` requires.
///
/// # Errors
/// In words, why it cannot be read.
pub(super) fn read(
    wanted: &str,
    asking: &str,
    folders: &[PathBuf],
    policy: &OpenPolicy,
) -> Result<(String, String), String> {
    let name = found(wanted, asking, folders).display().to_string();
    let text = policy.text(&name).map_err(|error| error.to_string())?;
    Ok((name, text))
}

/// The path of a library: of one in the home directory its name.
fn found(wanted: &str, asking: &str, folders: &[PathBuf]) -> PathBuf {
    if wanted.starts_with("~/") {
        return PathBuf::from(wanted);
    }
    let of = |folder: &PathBuf| BELOW.map(|below| folder.join(below).join(wanted));
    let found = folders.iter().flat_map(of).find(|path| path.is_file());
    found.unwrap_or_else(|| Path::new(asking).parent().unwrap_or(Path::new("")).join(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_folders_and_beside() {
        let folder = std::env::temp_dir().join(format!("fp-libraries-{}", std::process::id()));
        let [own, path] = ["own", "path"].map(|name| folder.join(name));
        std::fs::create_dir_all(path.join("conf/click")).unwrap();
        std::fs::create_dir_all(path.join("alone")).unwrap();
        std::fs::create_dir_all(&own).unwrap();
        for (name, text) in [
            ("own/both", "own"),
            ("own/alone", "alone"),
            ("path/both", "path"),
            ("path/conf/deep", "conf"),
            ("path/conf/click/deeper", "click"),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let asking = own.join("a.click").display().to_string();
        let policy = OpenPolicy::check();
        let text = |wanted: &str, folders: &[PathBuf]| {
            read(wanted, &asking, folders, &policy).map(|(_, text)| text).unwrap_or_default()
        };
        let folders = [folder.join("not there"), path];
        for (wanted, wants) in
            [("both", "path"), ("alone", "alone"), ("deep", "conf"), ("deeper", "click"), ("x", "")]
        {
            assert_eq!(text(wanted, &folders), wants, "{wanted}");
        }
        assert_eq!([text("both", &[]), text("deep", &[])], ["own", ""]);
        assert_eq!(found("~/x", &asking, &folders), Path::new("~/x"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
