//! The recorded output of the commands, in `golden/*.txt`, a file a command, and the help of all of them.

use std::path::Path;

use fingerpost_command::testing::{Golden, difference, folder};

fn golden() -> Golden {
    let program = Path::new(env!("CARGO_BIN_EXE_fingerpost")).to_path_buf();
    Golden { program, folder: folder(env!("CARGO_MANIFEST_DIR")) }
}

#[test]
fn commands_print_what_is_recorded() {
    golden().check_records();
}

/// Those of `fingerpost-lab` print its help and its errors, where it is built: its own tests have them.
#[test]
fn every_command_has_help_and_refuses_nonsense() {
    golden().check_commands(&["bench", "demo", "papers", "table check"]);
}

#[test]
fn differences_are_found() {
    let text = "$ echo a; echo b >&2; exit 3\n| a\n! b\n? 3\n";
    let again = |text: &str| golden().again(text);
    assert_eq!(again(text), text);
    assert_eq!(again("# x\n\n$ echo a; echo b >&2; exit 3\n| old\n"), format!("# x\n\n{text}"));
    assert_eq!(difference("a\nb\n", "a\nc\n"), "line 2:\n- b\n+ c\n");
}
