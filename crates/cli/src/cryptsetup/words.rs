//! Words about headers: the verbs that they mean, with those options that each of them has.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::FromArgMatches;
use cryptline::luks::Error as LuksError;
use cryptline::{Open, Problem, VolumeKind};

use super::line::{CryptsetupLine, OptionUse};
use crate::CliError;
use crate::command_line::Cli;
use crate::{advice, output, verb};

/// Options that say nothing where a verb does not have them.
const NOTHING: [&str; 2] = ["batch-mode", "verbose"];

/// Runs the verb.
///
/// # Errors
/// As the verb's; exit code 1 for an option that cryptsetup does not take with it either.
pub fn run(line: &CryptsetupLine) -> Result<ExitCode, CliError> {
    let arguments = arguments(line)?;
    refuse_other_type(line)?;
    let matches = verb::program().try_get_matches_from(arguments);
    let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = parsed.map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        CliError::parameters(format!("cryptsetup: {}", first.trim_start_matches("error: ")))
    })?;
    let answers = match line.word() {
        "luksDump" | "luksUUID" => true,
        "token" => line.places.first().is_some_and(|action| action == "export"),
        _ => false,
    };
    output::hush(!answers && !line.has("verbose"));
    cli.command.run(line.word())
}

/// A header of another version than was said is none.
fn refuse_other_type(line: &CryptsetupLine) -> Result<(), CliError> {
    let (Some(kind), Some(device)) = (line.value("type"), line.header()) else { return Ok(()) };
    if matches!(line.word(), "luksFormat" | "convert" | "isLuks" | "open") {
        return Ok(());
    }
    let wanted = match kind.to_str() {
        Some("luks1") => VolumeKind::Luks1,
        Some("luks2") => VolumeKind::Luks2,
        _ => return Ok(()),
    };
    let found = Open::new(device).inspect()?.kind;
    if found == wanted { Ok(()) } else { Err(cryptline::Error::from(Problem::Luks(LuksError::NotLuks)).into()) }
}

/// The verb's own command line.
fn arguments(line: &CryptsetupLine) -> Result<Vec<OsString>, CliError> {
    let word = if line.word() == "open" { "luksOpen" } else { line.word() };
    let mut places = line.places.clone();
    let program = verb::program();
    let (mut arguments, _) = verb::in_our_words(vec!["cryptline".into(), word.into()]);
    match word {
        // The name of a mapping that is not made.
        "luksOpen" => places.truncate(1),
        "token" => {
            let action = places.remove(0);
            arguments.push(action);
        }
        _ => {}
    }
    let verb = verb::find(&program, &arguments[1..]);
    let takes = |name: &str| advice::has(verb, name);
    let has_new_slot = line.has("new-key-slot");
    for (option, value) in line.options().filter(|(option, _)| option.used == OptionUse::Same) {
        let name = name_of(word, option.name, has_new_slot);
        if !takes(name) {
            if NOTHING.contains(&name) || name == "type" {
                continue;
            }
            let (name, word) = (option.name, &line.typed);
            return Err(CliError::parameters(format!("Option --{name} is not allowed with {word} action.")));
        }
        // Given once is enough for the verb.
        let argument = joined(name, value);
        if value.is_some() || !arguments.contains(&argument) {
            arguments.push(argument);
        }
    }
    arguments.push("--".into());
    arguments.extend(places);
    Ok(arguments)
}

/// The verb's name of an option.
fn name_of<'a>(word: &str, name: &'a str, has_new_slot: bool) -> &'a str {
    match (word, name) {
        // Of the new key, unless that has an option of its own.
        ("luksAddKey", "key-slot") if !has_new_slot => "new-key-slot",
        ("luksHeaderBackup" | "luksHeaderRestore", "header-backup-file") => "file",
        ("convert", "type") => "to",
        _ => name,
    }
}

/// `--name=value`.
pub fn joined(name: &str, value: Option<&OsStr>) -> OsString {
    let mut argument = OsString::from(format!("--{name}"));
    if let Some(value) = value {
        argument.push("=");
        argument.push(value);
    }
    argument
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Result<String, String> {
        let line = CryptsetupLine::parse(text.split(' ').map(OsString::from).collect()).unwrap();
        let told = arguments(&line).map_err(|error| error.to_string())?;
        let words: Vec<_> = told.iter().skip(1).map(|word| word.to_str().unwrap()).collect();
        Ok(words.join(" "))
    }

    #[test]
    fn verbs_get_the_options_that_they_have() {
        for (line, expected) in [
            ("-v --test-passphrase luksOpen d -d k", "check --open --test-passphrase --key-file=k -- d"),
            ("-q -q luksFormat d --disable-keyring", "luksFormat --batch-mode -- d"),
            ("--key-file=F --key-slot=1 luksAddKey d n", "key add --key-file=F --new-key-slot=1 -- d n"),
            ("isLuks -v -q d", "isLuks -- d"),
            ("luksHeaderBackup d --header-backup-file b", "header backup --file=b -- d"),
            ("token add --key-description x d", "token add --key-description=x -- d"),
        ] {
            assert_eq!(told(line).as_deref(), Ok(expected), "{line}");
        }
        let refused = told("luksUUID --allow-discards d").unwrap_err();
        assert_eq!(refused, "Option --allow-discards is not allowed with luksUUID action.");
    }
}
