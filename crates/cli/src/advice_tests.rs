//! Texts and verbs: every option that is named exists where it is named.

use std::fs;
use std::path::Path;

use super::*;
use crate::verb::program;

fn verb(name: &str) -> Command {
    let program = program();
    program.find_subcommand(name).expect("a verb").clone()
}

#[test]
fn advice_that_the_verb_cannot_follow_is_left_out() {
    let either = "; so it is not encrypted, unless without a header (--type plain or --table)";
    for (name, advice, left) in [
        ("serve", either, either),
        ("info", either, "; so it is not encrypted, unless without a header"),
        ("info", "; leave out --shared", ""),
        ("info", "; give another name", "; give another name"),
        ("info", "; `cryptline btt check --repair` helps", "; `cryptline btt check --repair` helps"),
        ("serve", "; use --direct=auto", "; use --direct=auto"),
    ] {
        assert_eq!(advice_for(&verb(name), advice), left, "{name}");
    }
}

#[test]
fn options_are_found_in_a_text() {
    let text = "give --a=b, --c-d (or --e_f) and not `x --g`; --h.";
    let found: Vec<_> = options(text).collect();
    assert_eq!(found, ["--a", "--c-d", "--e_f", "--h"]);
}

/// The verb that the words after `cryptline` name, as far as they do, and what follows. `ctl` has a socket between its
/// name and the verb below it.
fn named<'a>(program: &Command, words: &'a str) -> (Command, &'a str) {
    let (mut verb, mut rest) = (program.clone(), words.trim_start());
    loop {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let after = after.trim_start();
        match verb.find_subcommand(word.trim_end_matches(['.', ','])) {
            Some(found) => (verb, rest) = (found.clone(), after),
            None if verb.get_name() == "ctl" && word.starts_with('/') => rest = after,
            None => return (verb, rest),
        }
    }
}

/// Options in a command line that its verb lacks. What is piped on, or quoted for a shell, is for another program.
fn wrong_in_command(program: &Command, words: &str) -> Vec<String> {
    let (verb, rest) = named(program, words);
    let own = rest.split(['|', '\'', ';', ']']).next().unwrap_or_default();
    let wrong = options(own).filter(|option| !has(&verb, option));
    wrong.map(|option| format!("`cryptline {words}`: {option}")).collect()
}

/// Options that a text names and that neither its verb nor the command beside them has.
fn wrong_in_text(program: &Command, verb: &Command, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let joined = text.replace("\\\n", " ");
    for line in joined.lines().filter(|line| !line.starts_with("  sudo ")) {
        let mut parts = line.split('`');
        while let Some(prose) = parts.next() {
            // An example is a command of its own.
            match prose.split_once("cryptline ") {
                Some((_, command)) => wrong.extend(wrong_in_command(program, command)),
                None => {
                    let of_verbs = |option| verb.get_subcommands().any(|below| has(below, option));
                    let lacking = options(prose).filter(|option| !has(verb, option) && !of_verbs(option));
                    wrong.extend(lacking.map(|option| format!("{option} in {line:?}")));
                }
            }
            let quoted = parts.next().unwrap_or_default();
            if let Some(command) = quoted.strip_prefix("cryptline ") {
                wrong.extend(wrong_in_command(program, command));
            }
        }
    }
    wrong
}

/// Everything that the help of a verb says.
fn texts(verb: &Command) -> Vec<String> {
    let of_verb = [verb.get_about(), verb.get_long_about(), verb.get_after_help(), verb.get_after_long_help()];
    let of_args = verb.get_arguments().flat_map(|arg| [arg.get_help(), arg.get_long_help()]);
    let all = of_verb.into_iter().chain(of_args).flatten();
    all.map(ToString::to_string).collect()
}

fn look_through(program: &Command, verb: &Command, wrong: &mut Vec<String>) {
    for text in texts(verb) {
        let found = wrong_in_text(program, verb, &text);
        wrong.extend(found.iter().map(|what| format!("{}: {what}", verb.get_name())));
    }
    for below in verb.get_subcommands() {
        look_through(program, below, wrong);
    }
}

#[test]
fn help_names_only_options_that_there_are() {
    let program = program();
    let mut wrong = Vec::new();
    look_through(&program, &program, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Arguments that name a file or a target and take text only.
fn take_text_only(verb: &Command, found: &mut Vec<String>) {
    const FILES: [&str; 10] =
        ["TARGET", "PATH", "FILE", "DIR", "FOLDER", "DEVICE", "SOCKET", "SOURCE", "DESTINATION", "MOUNTPOINT"];
    for arg in verb.get_arguments() {
        let names = arg.get_value_names().into_iter().flatten();
        let mut words = names.flat_map(|name| name.split([' ', '.', '|']));
        let is_text = arg.get_value_parser().type_id() == clap::builder::ValueParser::string().type_id();
        if is_text && words.any(|word| FILES.contains(&word)) {
            found.push(format!("{} {arg}", verb.get_name()));
        }
    }
    for below in verb.get_subcommands() {
        take_text_only(below, found);
    }
}

/// A name need not be UTF-8.
#[test]
fn what_names_a_file_takes_any_name() {
    let (program, mut found) = (program(), Vec::new());
    take_text_only(&program, &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let text = clap::Arg::new("text").value_name("TARGET... MOUNTPOINT").value_parser(clap::value_parser!(String));
    take_text_only(&Command::new("verb").arg(text), &mut found);
    assert_eq!(found.len(), 1);
}

/// Every file of the program.
fn sources(folder: &Path, all: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|name| name == "rs") && !path.ends_with("advice_tests.rs") {
            all.push(fs::read_to_string(&path).expect("text"));
        }
    }
}

#[test]
fn commands_that_messages_advise_exist() {
    let program = program();
    let (mut texts, mut wrong, mut count) = (Vec::new(), Vec::new(), 0);
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut texts);
    for text in &texts {
        for command in text.split("`cryptline ").skip(1) {
            let command = command.split('`').next().unwrap_or_default();
            let command = command.replace("\\\n", " ");
            let first = command.split_whitespace().next().unwrap_or_default();
            count += 1;
            let is_known = first.starts_with("help") || program.find_subcommand(first).is_some();
            if !is_known {
                wrong.push(format!("`cryptline {command}`: no such verb"));
            }
            wrong.extend(wrong_in_command(&program, &command));
        }
    }
    assert!(count > 20 && wrong.is_empty(), "{}", wrong.join("\n"));
}
