//! The man pages and completions in `docs/` are those of the program. `cryptline man docs/man` and
//! `cryptline completions SHELL` make them again.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;
use cryptline_cli::cmd::{completions, man};
use cryptline_cli::command_line::Cli;

const SHELLS: [(Shell, &str); 3] =
    [(Shell::Bash, "cryptline.bash"), (Shell::Fish, "cryptline.fish"), (Shell::Zsh, "_cryptline")];

/// The texts in a folder of `docs/` by file name.
fn committed(folder: &str) -> BTreeMap<String, String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(folder);
    let entries = fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let texts = paths.map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("text"))
    });
    texts.collect()
}

#[track_caller]
fn compare(made: &BTreeMap<String, String>, committed: &BTreeMap<String, String>, again: &str) {
    let names = |texts: &BTreeMap<String, String>| texts.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(made), names(committed), "make them again: {again}");
    for (name, text) in made {
        assert!(*text == committed[name], "{name} is out of date; make it again: {again}");
    }
}

#[test]
fn man_pages_are_up_to_date() {
    let made = man::pages(Cli::command()).expect("pages").into_iter().collect();
    compare(&made, &committed("man"), "cargo run -- man docs/man");
}

#[test]
fn completions_are_up_to_date() {
    let made = SHELLS.map(|(shell, name)| (name.to_owned(), completions::script(shell, Cli::command())));
    let again = "cargo run -- completions bash > docs/completions/cryptline.bash, and so on";
    compare(&BTreeMap::from(made), &committed("completions"), again);
}

#[test]
fn every_page_of_help_has_examples() {
    for (name, text) in man::pages(Cli::command()).expect("pages") {
        // Verbs of `ctl` have their examples in its own page, which shows them in turn.
        if name != "cryptline-top.1" && !name.starts_with("cryptline-ctl-") {
            assert!(text.contains("Examples:"), "{name} has no examples");
        }
    }
}
