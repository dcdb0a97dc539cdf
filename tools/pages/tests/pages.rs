//! Pages and completions as the program writes them: each verb has its own, with examples, and roff understands it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::CommandFactory as _;
use cryptline_cli::command_line::Cli;
use cryptline_peers::run;

const PATIENCE: Duration = Duration::from_secs(60);

/// All that is written into an empty folder, by name.
fn written() -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("pages");
    run(Command::new(env!("CARGO_BIN_EXE_cryptline-pages")).arg(&into), PATIENCE).success();
    let entries = fs::read_dir(into).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.map(|path| (name(&path), fs::read_to_string(&path).expect("text"))).collect()
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Names of all verbs that are no secret, as pages have them.
fn verbs(command: &clap::Command, prefix: &str, all: &mut Vec<String>) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = format!("{prefix}-{}", verb.get_name());
        verbs(verb, &name, all);
        all.push(name);
    }
}

#[test]
fn every_verb_has_a_page_that_names_its_options() {
    let files = written();
    let mut names = vec!["cryptline".to_owned()];
    verbs(&Cli::command(), "cryptline", &mut names);
    assert!(names.len() > 40, "{names:?}");
    for name in &names {
        let page = &files.get(&format!("{name}.1")).unwrap_or_else(|| panic!("{name} has no page"));
        for section in [".TH", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(page.contains(section), "{name}: no {section}");
        }
    }
    let pages = files.keys().filter(|name| name.ends_with(".1")).count();
    assert_eq!(pages, names.len(), "a page without a verb");
    let serve = &files["cryptline-serve.1"];
    for text in ["\\-\\-key\\-file", "\\-\\-unix", "ENVIRONMENT", "XDG_RUNTIME_DIR", "SEE ALSO"] {
        assert!(serve.contains(text), "no {text}");
    }
}

#[test]
fn every_page_of_help_has_examples() {
    for (name, text) in written().iter().filter(|(name, _)| name.ends_with(".1")) {
        // Verbs of `ctl` have their examples in its own page, which shows them in turn.
        if name != "cryptline-top.1" && !name.starts_with("cryptline-ctl-") {
            assert!(text.contains("Examples:"), "{name} has no examples");
        }
    }
}

#[test]
fn completions_of_each_shell_know_every_verb() {
    let files = written();
    for shell in ["cryptline.bash", "cryptline.fish", "_cryptline"] {
        let script = &files[shell];
        for verb in Cli::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            assert!(script.contains(verb.get_name()), "{shell} does not know {}", verb.get_name());
        }
        assert!(script.contains("key-file"), "{shell} knows no option");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    fs::write(&script, &files["cryptline.bash"]).expect("written");
    run(Command::new("bash").arg("-n").arg(&script), PATIENCE).success();
}

#[test]
fn folder_that_cannot_be_made_is_named() {
    let refused = run(Command::new(env!("CARGO_BIN_EXE_cryptline-pages")).arg("/proc/pages"), PATIENCE).exited_with(1);
    assert!(refused.stderr_text().starts_with("cryptline-pages: /proc/pages: "), "{refused}");
    run(&mut Command::new(env!("CARGO_BIN_EXE_cryptline-pages")), PATIENCE).exited_with(2);
}

#[test]
fn notes_of_a_page_are_filled_and_it_says_the_version() {
    let page = &written()["cryptline-copy.1"];
    assert!(page.contains(concat!("\"cryptline ", env!("CARGO_PKG_VERSION"), "\"")), "{page}");
    let (_, notes) = page.split_once("EXAMPLES AND NOTES").expect("notes");
    let (first, rest) = notes.split_once(".fi\n.PP\n").expect("examples, and then prose");
    assert!(first.contains("\n.nf\n  cryptline copy"), "{first}");
    let paragraph = rest.lines().next().expect("a paragraph");
    assert!(paragraph.len() > 120, "{paragraph}");
}
