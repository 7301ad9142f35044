//! The recorded output of the commands, in `golden/*.txt`, and the help of all of them.

use std::path::Path;

use fingerpost_command::testing::{Golden, folder};

fn golden() -> Golden {
    let program = Path::new(env!("CARGO_BIN_EXE_fingerpost-lab")).to_path_buf();
    Golden { program, folder: folder(env!("CARGO_MANIFEST_DIR")) }
}

#[test]
fn commands_print_what_is_recorded() {
    golden().check_records();
}

#[test]
fn every_command_has_help_and_refuses_unknown_options() {
    golden().check_commands(&[]);
}
