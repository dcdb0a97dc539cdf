//! Advice names only options that the verb has.
//!
//! The library's messages go to users of every verb, and what would help one of them may be no option for another.

use clap::{ArgMatches, Command};

/// The verb that was typed, with its options.
pub fn verb_of(program: Command, matches: &ArgMatches) -> Command {
    let (mut verb, mut matches) = (program, matches);
    while let Some((name, below)) = matches.subcommand() {
        let Some(found) = verb.find_subcommand(name) else {
            break;
        };
        (verb, matches) = (found.clone(), below);
    }
    verb
}

/// Its name alone, as [`verb_of`] has it.
pub fn name_of_verb(matches: &ArgMatches) -> &str {
    let (mut name, mut matches) = ("cryptline", matches);
    while let Some((verb, below)) = matches.subcommand() {
        (name, matches) = (verb, below);
    }
    name
}

/// Returns what of `advice` a user of `verb` can follow: all of it, or all but what is in brackets, or nothing.
pub fn advice_for(verb: &Command, advice: &str) -> String {
    let fits = |text: &str| options(text).all(|option| has(verb, option));
    if fits(advice) {
        return advice.to_owned();
    }
    let without = advice.rsplit_once(" (").and_then(|(before, rest)| rest.ends_with(')').then_some(before));
    without.filter(|text| fits(text)).unwrap_or("").to_owned()
}

/// Tells if the verb takes `option`, which begins with `--`.
pub fn has(verb: &Command, option: &str) -> bool {
    let name = option.trim_start_matches("--");
    matches!(name, "help" | "version")
        || verb.get_arguments().any(|arg| {
            let others = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || others.contains(&name)
        })
}

/// The options of this verb that a text names. What is between backticks is a command of its own.
pub fn options(text: &str) -> impl Iterator<Item = &str> {
    let own = text.split('`').step_by(2);
    own.flat_map(|part| part.split([' ', '(', ')', ',', '\n', '[', ']']))
        .filter(|word| word.starts_with("--"))
        .map(|word| {
            let is_part = |at: char| at.is_ascii_alphanumeric() || at == '-' || at == '_';
            let end = word.find(|at| !is_part(at)).unwrap_or(word.len());
            word[..end].trim_end_matches('-')
        })
        .filter(|option| !option.is_empty())
}

#[cfg(test)]
#[path = "advice_tests.rs"]
mod tests;
