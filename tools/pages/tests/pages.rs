//! Pages and completions as the program writes them: each verb has its own, with examples, and roff understands it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cryptline_cli::verb::{Group, below, program, row};
use cryptline_peers::run;

const PATIENCE: Duration = Duration::from_secs(60);

/// All that is written into an empty folder, by name.
fn written() -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("pages");
    run(
        Command::new(env!("CARGO_BIN_EXE_cryptline-pages")).arg(&into).env("SOURCE_DATE_EPOCH", "1769817600"),
        PATIENCE,
    )
    .success();
    let entries = fs::read_dir(into).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.map(|path| (name(&path), fs::read_to_string(&path).expect("text"))).collect()
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Names of all verbs that are no secret and of the topics, as pages have them.
fn verbs(command: &clap::Command, name: &str, all: &mut Vec<String>) {
    for verb in command.get_subcommands() {
        let name = below(name, verb);
        let is_topic = row(&name).is_some_and(|row| row.group == Some(Group::Topics));
        if !verb.is_hide_set() || is_topic {
            verbs(verb, &name, all);
            all.push(format!("cryptline-{}", name.replace(' ', "-")));
        }
    }
}

#[test]
fn every_verb_has_a_page_that_names_its_options() {
    let files = written();
    let mut names = vec!["cryptline".to_owned()];
    verbs(&program(), "", &mut names);
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
        // Verbs of `ctl` and `certs` have their examples in its own page, which shows them in turn.
        let is_below = ["cryptline-ctl-", "cryptline-certs-"].iter().any(|verb| name.starts_with(verb));
        if name != "cryptline-top.1" && !is_below {
            assert!(text.contains(".SH \"EXAMPLES\""), "{name} has no examples");
        }
    }
}

#[test]
fn completions_of_each_shell_know_every_verb() {
    let files = written();
    for shell in ["cryptline.bash", "cryptline.fish", "_cryptline"] {
        let script = &files[shell];
        for verb in program().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            assert!(script.contains(verb.get_name()), "{shell} does not know {}", verb.get_name());
        }
        assert!(script.contains("key-file"), "{shell} knows no option");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    fs::write(&script, &files["cryptline.bash"]).expect("written");
    run(Command::new("bash").arg("-n").arg(&script), PATIENCE).success();
}

/// Words that Bash is offered for the last of `words`; none has it complete the name of a file.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("script");
    fs::write(&path, script).expect("written");
    let [.., before, last] = words else { panic!("two words") };
    let line = r#". "$0"; cur=$1; prev=$2; shift 2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _cryptline cryptline "$cur" "$prev"; for word in "${COMPREPLY[@]}"; do echo "$word"; done"#;
    let mut bash = Command::new("bash");
    bash.args(["-c", line]).arg(&path).args([last, before]).args(words).current_dir(folder.path());
    run(&mut bash, PATIENCE).success().stdout_text().lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_files_to_verbs_that_take_them_and_nothing_that_is_hidden() {
    let script = &written()["cryptline.bash"];
    let has = |words: &[String], word: &str| words.iter().any(|it| it == word);
    let verbs = offered(script, &["cryptline", ""]);
    assert!(has(&verbs, "serve") && has(&verbs, "create") && !has(&verbs, "luksAddKey"), "{verbs:?}");
    for verb in ["serve", "vhost-user", "info", "create", "top"] {
        assert_eq!(offered(script, &["cryptline", verb, ""]), [""; 0], "{verb}");
        assert_eq!(offered(script, &["cryptline", verb, "--json", ""]), [""; 0], "{verb}");
    }
    assert_eq!(offered(script, &["cryptline", "key", "add", ""]), [""; 0]);
    let options = offered(script, &["cryptline", "serve", "--"]);
    assert!(has(&options, "--key-file") && has(&options, "--background"), "{options:?}");
    for hidden in ["--fault", "--delay", "--foreground"] {
        assert!(!has(&options, hidden), "{hidden}: {options:?}");
    }
    assert!(has(&offered(script, &["cryptline", "token", "bind", "disk.img", ""]), "tang"));
    assert!(has(&offered(script, &["cryptline", "key", ""]), "rotate"));
    assert_eq!(offered(script, &["cryptline", "serve", "--dispatch", "in"]), ["inline"]);
    assert!(!has(&offered(script, &["cryptline", "serve", "--port", ""]), "script"));
    assert!(has(&offered(script, &["cryptline", "serve", "--key-file", ""]), "script"));
}

#[test]
fn folder_that_cannot_be_made_is_named() {
    let refused = run(Command::new(env!("CARGO_BIN_EXE_cryptline-pages")).arg("/proc/pages"), PATIENCE).exited_with(1);
    assert!(refused.stderr_text().starts_with("cryptline-pages: /proc/pages: "), "{refused}");
    run(&mut Command::new(env!("CARGO_BIN_EXE_cryptline-pages")), PATIENCE).exited_with(2);
}

#[test]
fn notes_of_a_page_have_their_sections_and_are_filled() {
    let page = &written()["cryptline-copy.1"];
    let title = page.lines().find(|line| line.starts_with(".TH")).expect("a title");
    assert!(title.contains("2026-01-31"), "{title}");
    assert!(title.contains(concat!("\"cryptline ", env!("CARGO_PKG_VERSION"), "\"")), "{title}");
    let section = |name: &str| {
        let (_, text) = page.split_once(&format!(".SH {name}\n")).unwrap_or_else(|| panic!("no {name}: {page}"));
        text.split("\n.SH ").next().unwrap_or(text)
    };
    let description = section("DESCRIPTION");
    let paragraphs: Vec<_> = description.split("\n.PP\n").collect();
    assert!(paragraphs.len() >= 4 && paragraphs[1..].iter().any(|it| it.len() > 200), "{description}");
    let examples = section("\"EXAMPLES\"");
    assert!(examples.starts_with(".nf\n  # decrypt it"), "{examples}");
    assert!(examples.contains("\n  cryptline copy"), "{examples}");
    assert!(section("\"EXIT STATUS\"").contains("0 copied"), "{page}");
    assert!(!page.contains("Examples:") && !page.contains("Exit codes"), "{page}");
}
