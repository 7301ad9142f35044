//! Former names of commands and options, which are accepted for one release with a warning.
//!
//! A hidden alias of a command or of an option is a former name of it; a visible alias is another name that stays.

/// Warning that `former` is now called `name`.
#[must_use]
pub fn warning(former: &str, name: &str) -> String {
    format!("`{former}` is called `{name}` now: the next release refuses it")
}

/// A warning for each former name in a command line, which begins with the program.
#[must_use]
pub fn warnings(program: &clap::Command, args: impl Iterator<Item = String>) -> Vec<String> {
    let (mut at, mut found) = (program, Vec::new());
    for arg in args.skip(1).take_while(|arg| arg != "--") {
        if let Some(option) = arg.strip_prefix("--") {
            let former = option.split('=').next().unwrap_or(option);
            let options = at.get_arguments().filter(|known| {
                let visible = known.get_visible_aliases().unwrap_or_default();
                let all = known.get_all_aliases().unwrap_or_default();
                all.contains(&former) && !visible.contains(&former)
            });
            let names = options.filter_map(|known| known.get_long());
            found.extend(names.map(|name| warning(&format!("--{former}"), &format!("--{name}"))));
        } else if let Some(below) = at.find_subcommand(&arg) {
            if below.get_name() != arg && below.get_visible_aliases().all(|alias| alias != arg) {
                found.push(warning(&arg, below.get_name()));
            }
            at = below;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_aliases_are_former_names() {
        let number = clap::Arg::new("new").long("new").alias("old").visible_alias("other");
        let run = clap::Command::new("run").alias("start").visible_alias("go").arg(number);
        let program = clap::Command::new("fingerpost").subcommand(run);
        let of = |call: &str| warnings(&program, call.split(' ').map(str::to_owned));
        assert_eq!(of("fingerpost run --new 1"), [""; 0]);
        assert_eq!(of("fingerpost go --other=1 old"), [""; 0]);
        assert_eq!(of("fingerpost run -- --old"), [""; 0]);
        let option = "`--old` is called `--new` now: the next release refuses it";
        assert_eq!(of("fingerpost run --old 1"), [option]);
        let command = "`start` is called `run` now: the next release refuses it";
        assert_eq!(of("fingerpost --json start --old=1"), [command, option]);
    }
}
